//! `countersign audit verify --sidecar FILE`: a runbook's `state.json` against the ledger. The server makes the file anew from the
//! records up to the one that the file names; whatever is not the same, byte for byte, is a difference. Then the run's records are
//! verified, since the new file is only as good as they are.

use super::super::connection::Context;
use super::super::failure::Failure;
use super::super::output::{self, printable};
use super::super::table::{Table, Tint, tint};
use super::verify::told;
use anyhow::Context as _;
use countersign_client::wire::{VerificationResult, VerifyLog};
use countersign_server::sidecar::STATE_FILE;
use serde_json::{Value, json};
use std::path::Path;

/// What the file says and what the ledger says.
#[derive(Debug, PartialEq)]
struct Difference {
    /// `phases.backup.result`; `(bytes)` where the content is the same and its form is not.
    field: String,
    file: Option<Value>,
    ledger: Option<Value>,
}

/// What was compared.
struct Compared {
    run_id: Option<String>,
    sequence: Option<u64>,
    differences: Vec<Difference>,
    /// Records whose content is gone.
    purged: Vec<Value>,
}

pub async fn verify(context: &Context, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let state: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    let compared = compare(context, &text, &state).await?;
    let ledger = match &compared.run_id {
        Some(run_id) => {
            let request = VerifyLog { instance_id: Some(run_id.clone()) };
            Some(context.client()?.verify_log(&request, |_| {}).await?)
        }
        None => None,
    };
    let intact = ledger.as_ref().is_some_and(|ledger| ledger.body.result == VerificationResult::Verified);
    let verified = intact && compared.differences.is_empty();
    let word = |difference: &Difference, value: &Option<Value>| match value {
        Some(value) => value.to_string(),
        None if difference.field == "(bytes)" => "–".to_owned(),
        None => "(absent)".to_owned(),
    };
    if context.json() {
        let lines = compared.differences.iter();
        let differences: Vec<Value> =
            lines.map(|d| json!({"field": d.field, "file": d.file, "ledger": d.ledger})).collect();
        output::json(&json!({
            "result": if verified { "verified" } else { "failed_verification" },
            "run_id": compared.run_id, "sequence": compared.sequence, "differences": differences,
            "purged": compared.purged, "ledger": ledger.as_ref().map(|ledger| &ledger.json),
        }))?;
    } else if compared.differences.is_empty() {
        let at = compared.sequence.unwrap_or_default();
        let verdict = tint(Tint::Good, "Unchanged:");
        output::say(&format!("{verdict} the file is what the ledger says at record {at} of the run."))?;
    } else {
        let mut table = Table::new(["field", "file", "ledger"]);
        for d in &compared.differences {
            table.row([tint(Tint::Bad, &d.field), printable(&word(d, &d.file)), printable(&word(d, &d.ledger))]);
        }
        let count = compared.differences.len();
        let noun = if count == 1 { "difference" } else { "differences" };
        output::say(&format!("{} {count} {noun}.\n{table}", tint(Tint::Bad, "Edited:")))?;
        if !compared.purged.is_empty() {
            let gone = Value::Array(compared.purged.clone());
            output::say(&format!("  the content of records {gone} was purged; what they said cannot be compared"))?;
        }
    }
    if let Some(ledger) = ledger.filter(|_| !context.json()) {
        output::say(&told(&ledger.body))?;
    }
    if verified { Ok(()) } else { Err(Failure::Reported.into()) }
}

/// The id of the run: what follows the time in `<name>-<time>-<uuid>`.
fn run_of(state: &Value) -> Option<String> {
    let name = state.get("run_id")?.as_str()?;
    let at = name.len().checked_sub(36)?;
    let id = name.get(at..)?;
    uuid::Uuid::try_parse(id).ok().map(|_| id.to_owned())
}

async fn compare(context: &Context, text: &str, state: &Value) -> anyhow::Result<Compared> {
    let client = context.client()?;
    let one = |field: &str, ledger: Option<Value>| {
        vec![Difference { field: field.to_owned(), file: state.get(field).cloned(), ledger }]
    };
    let Some(run_id) = run_of(state) else {
        return Ok(Compared { run_id: None, sequence: None, differences: one("run_id", None), purged: vec![] });
    };
    let sequence = state.get("sequence").and_then(Value::as_u64);
    let asked = sequence.filter(|sequence| *sequence > 0);
    let made = match client.sidecar(&run_id, asked).await {
        Ok(made) => made,
        Err(error) => {
            let field = error.refusal().filter(|problem| problem.code == "not-known").and_then(|p| p.field.clone());
            match field.as_deref() {
                Some("run_id") => {
                    let differences = one("run_id", None);
                    return Ok(Compared { run_id: None, sequence, differences, purged: vec![] });
                }
                // The run has no such record: what it has is told.
                Some("sequence") => client.sidecar(&run_id, None).await?,
                _ => return Err(error.into()),
            }
        }
    };
    let ledger_text = made.body.files.get(STATE_FILE).cloned().unwrap_or_default();
    let ledger: Value = serde_json::from_str(&ledger_text).context("the server's state.json is not JSON")?;
    let mut differences = vec![];
    differ("", Some(state), Some(&ledger), &mut differences);
    if differences.is_empty() && text != ledger_text {
        // Spaces, a member twice, another form of a number.
        differences.push(Difference { field: "(bytes)".to_owned(), file: None, ledger: None });
    }
    let purged = ledger.get("purged").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Compared { run_id: Some(run_id), sequence, differences, purged })
}

/// Field by field, in the order of the file.
fn differ(path: &str, file: Option<&Value>, ledger: Option<&Value>, found: &mut Vec<Difference>) {
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (file, ledger) {
        (Some(Value::Object(of_file)), Some(Value::Object(of_ledger))) => {
            let added = of_ledger.keys().filter(|name| !of_file.contains_key(*name));
            for name in of_file.keys().chain(added) {
                differ(&under(name), of_file.get(name), of_ledger.get(name), found);
            }
        }
        (Some(Value::Array(of_file)), Some(Value::Array(of_ledger))) => {
            for at in 0..of_file.len().max(of_ledger.len()) {
                differ(&under(&at.to_string()), of_file.get(at), of_ledger.get(at), found);
            }
        }
        (file, ledger) if file == ledger => {}
        (file, ledger) => {
            found.push(Difference { field: path.to_owned(), file: file.cloned(), ledger: ledger.cloned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_field_by_field() {
        let file = json!({"a": {"b": 1, "c": [1, 2]}, "extra": true});
        let ledger = json!({"a": {"b": 2, "c": [1]}, "missing": null});
        let mut found = vec![];
        differ("", Some(&file), Some(&ledger), &mut found);
        let fields: Vec<&str> = found.iter().map(|difference| difference.field.as_str()).collect();
        assert_eq!(fields, ["a.b", "a.c.1", "extra", "missing"]);
        assert_eq!((&found[3].file, &found[3].ledger), (&None, &Some(Value::Null)));
    }

    #[test]
    fn a_run_is_named_by_the_end_of_its_name() {
        let id = "019338d1-7a5c-7e11-8a4e-0b7f6a3d2c10";
        assert_eq!(run_of(&json!({"run_id": format!("db-migrate-20261117T000000Z-{id}")})).as_deref(), Some(id));
        for none in [json!({"run_id": "x"}), json!({"run_id": 7}), json!({})] {
            assert_eq!(run_of(&none), None);
        }
    }
}
