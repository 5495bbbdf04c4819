//! What a runbook's run keeps (ADR 34), as it is stored: one JSON text on the run's head. Values are texts in it, so that they
//! come back byte for byte.

use countersign_kernel::plan::StepSeq;
use countersign_kernel::run::{Aim, Artifact, Drift, Pin, Runbook, Survey, Verdict};
use countersign_kernel::{Digest, Time};
use countersign_ledger::parse_hex_digest;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// A value up to this size is shown as it is; of a longer one, its digest.
const SHOWN: usize = 256;

/// A value as records and views show it: JSON text.
pub fn shown(value: &str) -> String {
    if value.len() <= SHOWN {
        return value.to_owned();
    }
    format!("\"sha256:{}\"", countersign_ledger::sha256(&[value.as_bytes()]))
}

pub fn to_json(book: &Runbook) -> String {
    let artifact = |artifact: &Artifact| json!([&*artifact.path, artifact.sha256.to_string(), artifact.size_bytes]);
    let artifacts = |all: &[Artifact]| all.iter().map(artifact).collect::<Vec<_>>();
    let survey = book.survey.as_ref().map(|survey| {
        let aim = match &survey.aim {
            Aim::Begin => Value::Null,
            Aim::Capture { output, artifacts: left, declared } => {
                json!({"output": &**output, "artifacts": artifacts(left), "declared": declared})
            }
        };
        json!({
            "step_seq": survey.step_seq,
            "captures": aim,
            "found": survey.found.iter().map(|(pin, value)| json!([&**pin, value.as_deref()])).collect::<Vec<_>>(),
            "offered_at": survey.offered_at.0,
            "lease": survey.lease.map(|(token, until)| json!([token.to_string(), until.0])),
        })
    });
    let pin = |pin: &Pin| json!([&*pin.name, pin.step_seq, &*pin.value, pin.before.as_deref()]);
    let drift = |drift: &Drift| json!([&*drift.pin, &*drift.pinned, drift.live.as_deref()]);
    let checks = |(seq, verdicts): &(StepSeq, Vec<Verdict>)| {
        let verdicts: Vec<Value> = verdicts.iter().map(|verdict| json!([&*verdict.name, verdict.held])).collect();
        json!([seq, verdicts])
    };
    json!({
        "dry_run": book.dry_run,
        "pins": book.pins.iter().map(pin).collect::<Vec<_>>(),
        "survey": survey,
        "answered": book.answered.map(|token| token.to_string()),
        "drift": book.drift.iter().map(drift).collect::<Vec<_>>(),
        "unseen": book.unseen.iter().map(|(pin, why)| json!([&**pin, &**why])).collect::<Vec<_>>(),
        "used": book.used,
        "since": book.since.map(|since| since.0),
        "claimed": book.claimed.map(|(seq, at)| json!([seq, at.0])),
        "checks": book.checks.iter().map(checks).collect::<Vec<_>>(),
        "artifacts": book.artifacts.iter().map(|(seq, left)| json!([seq, artifact(left)])).collect::<Vec<_>>(),
    })
    .to_string()
}

/// Nothing where the text is not one of ours.
pub fn parse(text: &str) -> Option<Runbook> {
    let value: Value = serde_json::from_str(text).ok()?;
    let list = |name: &str| value.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Some(Runbook {
        dry_run: value.get("dry_run")?.as_bool()?,
        pins: list("pins").iter().map(pin).collect::<Option<_>>()?,
        survey: match value.get("survey")? {
            Value::Null => None,
            survey => Some(parse_survey(survey)?),
        },
        answered: value.get("answered").and_then(Value::as_str).and_then(|text| Uuid::try_parse(text).ok()),
        drift: list("drift").iter().map(drift).collect::<Option<_>>()?,
        unseen: list("unseen").iter().map(unseen).collect::<Option<_>>()?,
        used: value.get("used")?.as_i64()?,
        since: value.get("since").and_then(Value::as_i64).map(Time),
        claimed: match value.get("claimed")? {
            Value::Null => None,
            claimed => Some((seq(claimed.get(0)?)?, Time(claimed.get(1)?.as_i64()?))),
        },
        checks: list("checks").iter().map(checks).collect::<Option<_>>()?,
        artifacts: list("artifacts")
            .iter()
            .map(|line| Some((seq(line.get(0)?)?, artifact(line.get(1)?)?)))
            .collect::<Option<_>>()?,
    })
}

fn seq(value: &Value) -> Option<StepSeq> {
    value.as_u64().and_then(|seq| StepSeq::try_from(seq).ok())
}

fn text(value: &Value) -> Option<Arc<str>> {
    value.as_str().map(Arc::from)
}

fn pin(line: &Value) -> Option<Pin> {
    let (name, value) = (text(line.get(0)?)?, text(line.get(2)?)?);
    Some(Pin { name, step_seq: seq(line.get(1)?)?, value, before: text(line.get(3)?) })
}

fn drift(line: &Value) -> Option<Drift> {
    Some(Drift { pin: text(line.get(0)?)?, pinned: text(line.get(1)?)?, live: text(line.get(2)?) })
}

fn unseen(line: &Value) -> Option<(Arc<str>, Arc<str>)> {
    Some((text(line.get(0)?)?, text(line.get(1)?)?))
}

fn checks(line: &Value) -> Option<(StepSeq, Vec<Verdict>)> {
    let verdict = |line: &Value| Some(Verdict { name: text(line.get(0)?)?, held: line.get(1)?.as_bool()? });
    Some((seq(line.get(0)?)?, line.get(1)?.as_array()?.iter().map(verdict).collect::<Option<_>>()?))
}

fn artifact(line: &Value) -> Option<Artifact> {
    let sha256: Digest = parse_hex_digest(line.get(1)?.as_str()?)?;
    Some(Artifact { path: text(line.get(0)?)?, sha256, size_bytes: line.get(2)?.as_u64()? })
}

fn parse_survey(value: &Value) -> Option<Survey> {
    let aim = match value.get("captures")? {
        Value::Null => Aim::Begin,
        captures => Aim::Capture {
            output: text(captures.get("output")?)?,
            artifacts: captures.get("artifacts")?.as_array()?.iter().map(artifact).collect::<Option<_>>()?,
            declared: captures.get("declared")?.as_bool()?,
        },
    };
    let lease = match value.get("lease")? {
        Value::Null => None,
        lease => Some((Uuid::try_parse(lease.get(0)?.as_str()?).ok()?, Time(lease.get(1)?.as_i64()?))),
    };
    let found = |line: &Value| Some((text(line.get(0)?)?, text(line.get(1)?)));
    Some(Survey {
        step_seq: seq(value.get("step_seq")?)?,
        aim,
        found: value.get("found")?.as_array()?.iter().map(found).collect::<Option<_>>()?,
        offered_at: Time(value.get("offered_at")?.as_i64()?),
        lease,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let artifact =
            || Artifact { path: "a/b.gpg".into(), sha256: countersign_ledger::sha256(&[b"x"]), size_bytes: 7 };
        let pin = |before: Option<&str>| Pin {
            name: "schema".into(),
            step_seq: 3,
            value: "{ \"a\": 1.50 }".into(),
            before: before.map(Arc::from),
        };
        let survey = |aim: Aim| Survey {
            step_seq: 4,
            aim,
            found: vec![("a".into(), Some("\"x\"".into())), ("b".into(), None)],
            offered_at: Time(9),
            lease: Some((Uuid::from_u128(7), Time(12))),
        };
        let capture = Aim::Capture { output: "null".into(), artifacts: vec![artifact()], declared: true };
        let full = Runbook {
            dry_run: true,
            pins: vec![pin(None), pin(Some("null"))],
            survey: Some(survey(capture)),
            answered: Some(Uuid::from_u128(8)),
            drift: vec![Drift { pin: "schema".into(), pinned: "1".into(), live: None }],
            unseen: vec![("schema".into(), "exit code 3".into())],
            used: 55,
            since: Some(Time(3)),
            claimed: Some((2, Time(4))),
            checks: vec![(1, vec![Verdict { name: "all".into(), held: false }])],
            artifacts: vec![(1, artifact())],
        };
        let begins = Runbook { survey: Some(survey(Aim::Begin)), ..Runbook::default() };
        for book in [Runbook::default(), begins, full] {
            assert_eq!(parse(&to_json(&book)), Some(book));
        }
        assert_eq!(parse("{}"), None);
    }

    #[test]
    fn long_values_are_shown_by_digest() {
        assert_eq!(shown("\"short\""), "\"short\"");
        let long = format!("\"{}\"", "x".repeat(255));
        assert!(shown(&long).starts_with("\"sha256:") && shown(&long).len() == 73, "{}", shown(&long));
    }
}
