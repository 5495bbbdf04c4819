//! What a run's record says, member by member (`spec/run.md`, section 3).

use super::runbook::Said;
use crate::bytes::{Digest, Id};
use crate::json::Value;
use crate::record::Action;
use std::collections::{BTreeMap, BTreeSet};

/// A value of somebody's, in full or by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Value(Value),
    Digest(Digest),
}

/// Whose steps they are from here on, when they are to be done, and by when they are to be claimed.
pub type Charged<'v> = (Ranges, Option<&'v str>, [Option<i64>; 2]);

/// What a claimed step was handed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handed {
    /// The run's own input, unchanged.
    RunInput,
    Own(Told),
}

pub struct Moves<'v> {
    pub steps: Vec<StepMove<'v>>,
    pub run: Vec<RunMove<'v>>,
    pub compensations: Vec<(usize, usize)>,
    pub leases: BTreeSet<usize>,
    pub inputs: Vec<(usize, Handed)>,
    /// What steps that begin to wait wait for.
    pub waits: BTreeMap<usize, &'v str>,
    /// How badly steps are blocked from here on, and why where that is red.
    pub severities: Vec<(usize, &'v str, Option<&'v str>)>,
    pub outputs: Vec<(usize, Told)>,
    pub errors: Vec<(usize, Failure<'v>)>,
    pub effect: Option<(usize, bool)>,
    pub children: Vec<(usize, Id)>,
    pub outcome: Option<&'v str>,
    pub last_error: Option<&'v str>,
    pub output: Option<Told>,
    /// Who is in charge of which steps from here on, and by when.
    pub charges: Vec<Charged<'v>>,
    /// What was completed late: the step, when it was first overdue, by how much it was late.
    pub late: Vec<(usize, i64, i64)>,
    /// The step that somebody acted on.
    pub acted: Option<usize>,
    pub approval_id: Option<&'v str>,
    /// The request and the approval of a replay.
    pub replay: Option<(Id, Id)>,
    pub correction: Option<Correction<'v>>,
    /// What shows it, as somebody who acted on the step says.
    pub evidence_ref: Option<&'v str>,
    pub escalation: Option<Escalation<'v>>,
    /// It says nothing but which compensations there are.
    pub only_lists: bool,
    /// What was completed is to be undone before the run is cancelled.
    pub compensate: bool,
    /// The transition of one's own that it was.
    pub own: Option<OwnMove<'v>>,
    /// What it says of pins, checks and approvals.
    pub book: Said<'v>,
}

pub struct OwnMove<'v> {
    pub id: &'v str,
    pub from: &'v str,
    pub to: &'v str,
    pub class: &'v str,
    pub trigger: &'v str,
}

/// The chain that it goes on, and to whom the step is escalated by it.
pub struct Escalation<'v> {
    pub chain: &'v str,
    pub to: Vec<&'v str>,
}

pub struct Correction<'v> {
    pub cycle: i64,
    pub reason: &'v str,
    pub prior: Id,
    /// What the step had yielded.
    pub output: Option<Told>,
}

pub struct StepMove<'v> {
    pub id: &'v str,
    pub seqs: Ranges,
    /// Where one step made it.
    pub name: Option<&'v str>,
    pub from: &'v str,
    pub to: &'v str,
    pub class: &'v str,
    pub trigger: &'v str,
}

pub struct RunMove<'v> {
    pub id: &'v str,
    pub from: &'v str,
    pub to: &'v str,
    pub trigger: &'v str,
}

#[derive(Clone)]
pub struct Failure<'v> {
    pub attempts: i64,
    pub last_error: Option<&'v str>,
    pub category: Option<&'v str>,
    pub effect_unknown: bool,
    /// Another attempt follows.
    pub again: bool,
}

/// Spans, first and last included, ascending and apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    pub fn parse(text: &str) -> Option<Ranges> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = match part.split_once('-') {
                None => (number(part)?, number(part)?),
                Some((first, last)) => (number(first)?, number(last)?),
            };
            if first > last || spans.last().is_some_and(|(_, before)| *before >= first) {
                return None;
            }
            spans.push((first, last));
        }
        Some(Ranges(spans))
    }

    /// The largest number: nothing is unfolded before it is known to be small.
    pub fn last(&self) -> Option<usize> {
        self.0.last().map(|(_, last)| *last)
    }

    pub fn contains(&self, number: usize) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

fn number(text: &str) -> Option<usize> {
    let number: usize = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The value of that name, in full or by digest. The outer `None` is a fault.
pub fn told(object: &Value, name: &str) -> Option<Option<Told>> {
    match (object.get(name), object.get(&format!("{name}_digest"))) {
        (Some(value), None) => Some(Some(Told::Value(value.clone()))),
        (None, Some(digest)) => {
            object.int(&format!("{name}_bytes"))?;
            Some(Some(Told::Digest(Digest::parse(digest.as_text()?)?)))
        }
        (None, None) => Some(None),
        (Some(_), Some(_)) => None,
    }
}

fn natural(object: &Value, name: &str) -> Option<usize> {
    usize::try_from(object.int(name)?).ok()
}

fn items<'v>(payload: &'v Value, name: &str) -> Option<&'v [Value]> {
    match payload.get(name) {
        None => Some(&[]),
        Some(value) => value.as_list(),
    }
}

fn optional<'v>(object: &'v Value, name: &str) -> Option<Option<&'v str>> {
    match object.get(name) {
        None => Some(None),
        Some(value) => value.as_text().map(Some),
    }
}

/// The steps of an entry of a list, each below `limit`: one, or several that share it. Without a limit they are not unfolded.
fn seqs(entry: &Value, limit: Option<usize>) -> Option<Vec<usize>> {
    match entry.get("step_seqs") {
        None => Some(vec![natural(entry, "step_seq")?]),
        Some(text) => {
            let ranges = Ranges::parse(text.as_text()?)?;
            match limit {
                None => Some(vec![]),
                Some(limit) => (ranges.last()? < limit).then(|| ranges.iter().collect()),
            }
        }
    }
}

/// What each step of a list of entries has.
fn shared<'v, T: Clone>(
    payload: &'v Value,
    name: &str,
    limit: Option<usize>,
    read: impl Fn(&'v Value) -> Option<T>,
) -> Option<Vec<(usize, T)>> {
    let mut all = Vec::new();
    for entry in items(payload, name)? {
        let one = read(entry)?;
        all.extend(seqs(entry, limit)?.into_iter().map(|seq| (seq, one.clone())));
    }
    Some(all)
}

/// `None`: the payload is not that of a record of a run that has so many steps (where that is known).
pub fn read(payload: &Value, action: Action, steps: Option<usize>) -> Option<Moves<'_>> {
    let compensations: Vec<(usize, usize)> =
        items(payload, "compensations")?.iter().map(pair).collect::<Option<_>>()?;
    let limit = steps.map(|steps| steps + compensations.len());
    let effect = match payload.get("effect") {
        None => None,
        Some(effect) => Some((natural(effect, "step_seq")?, effect.get("done")?.as_bool()?)),
    };
    let output = told(payload, "output")?;
    let only_lists = payload
        .members()
        .is_some_and(|members| members.iter().all(|(name, _)| matches!(&**name, "instance_id" | "compensations")));
    let compensate = match payload.get("compensate") {
        None => false,
        Some(asked) if action == Action::RunCancelled && asked.as_bool() == Some(true) => true,
        Some(_) => return None,
    };
    Some(Moves {
        only_lists,
        compensate,
        book: Said::read(payload, action)?,
        steps: items(payload, "transitions")?.iter().map(step_move).collect::<Option<_>>()?,
        run: items(payload, "run_transitions")?.iter().map(run_move).collect::<Option<_>>()?,
        compensations,
        leases: shared(payload, "leases", limit, lease)?.into_iter().map(|(seq, ())| seq).collect(),
        inputs: shared(payload, "inputs", limit, handed)?,
        waits: shared(payload, "waits", limit, |entry| entry.text("facet"))?.into_iter().collect(),
        severities: shared(payload, "severities", limit, |entry| {
            Some((entry.text("severity")?, optional(entry, "cause")?))
        })?
        .into_iter()
        .map(|(seq, (severity, cause))| (seq, severity, cause))
        .collect(),
        outputs: shared(payload, "outputs", limit, |entry| told(entry, "output")?)?,
        errors: shared(payload, "errors", limit, failure)?,
        effect,
        children: items(payload, "children")?
            .iter()
            .map(|entry| Some((natural(entry, "step_seq")?, Id::parse(entry.text("run_id")?)?)))
            .collect::<Option<_>>()?,
        outcome: optional(payload, "outcome")?,
        last_error: optional(payload, "last_error")?,
        output,
        charges: items(payload, "charges")?.iter().map(charge).collect::<Option<_>>()?,
        late: items(payload, "sla")?.iter().map(late).collect::<Option<_>>()?,
        acted: match payload.get("step_seq") {
            None => None,
            Some(_) => Some(natural(payload, "step_seq")?),
        },
        approval_id: optional(payload, "approval_id")?,
        replay: match payload.get("replay") {
            None => None,
            Some(told) => {
                Some((Id::parse(told.text("dlq_replay_request_id")?)?, Id::parse(told.text("approval_id")?)?))
            }
        },
        correction: match payload.get("correction") {
            None => None,
            Some(told) => Some(Correction {
                cycle: told.int("cycle")?,
                reason: told.text("correction_reason")?,
                prior: Id::parse(told.text("prior_event_id")?)?,
                output: self::told(told, "output")?,
            }),
        },
        evidence_ref: optional(payload, "evidence_ref")?,
        escalation: match payload.get("escalation") {
            None => None,
            Some(told) => Some(Escalation { chain: told.text("escalation_chain_id")?, to: told.texts("to")? }),
        },
        own: match payload.get("own_transition") {
            None => None,
            Some(own) => Some(OwnMove {
                id: own.text("id")?,
                from: own.text("from")?,
                to: own.text("to")?,
                class: own.text("actor_class")?,
                trigger: own.text("trigger")?,
            }),
        },
    })
}

fn step_move(value: &Value) -> Option<StepMove<'_>> {
    let (name, seqs) = match value.get("step_seqs") {
        Some(seqs) => (None, Ranges::parse(seqs.as_text()?)?),
        None => {
            let seq = natural(value, "step_seq")?;
            (Some(value.text("step")?), Ranges(vec![(seq, seq)]))
        }
    };
    Some(StepMove {
        id: value.text("id")?,
        seqs,
        name,
        from: value.text("from")?,
        to: value.text("to")?,
        class: value.text("actor_class")?,
        trigger: value.text("trigger")?,
    })
}

fn run_move(value: &Value) -> Option<RunMove<'_>> {
    let text = |name| value.text(name);
    Some(RunMove { id: text("id")?, from: text("from")?, to: text("to")?, trigger: text("trigger")? })
}

fn pair(value: &Value) -> Option<(usize, usize)> {
    match value.as_list()? {
        [seq, undone] => Some((usize::try_from(seq.as_int()?).ok()?, usize::try_from(undone.as_int()?).ok()?)),
        _ => None,
    }
}

fn lease(value: &Value) -> Option<()> {
    value.int("attempt")?;
    value.int("locked_until_us")?;
    optional(value, "worker_id").map(|_| ())
}

fn handed(value: &Value) -> Option<Handed> {
    match (value.get("run_input"), told(value, "input")?) {
        (Some(flag), None) => flag.as_bool().filter(|flag| *flag).map(|_| Handed::RunInput),
        (None, Some(told)) => Some(Handed::Own(told)),
        _ => None,
    }
}

fn charge(value: &Value) -> Option<Charged<'_>> {
    let time = |name: &str| match value.get(name) {
        None => Some(None),
        Some(time) => time.as_int().map(Some),
    };
    let times = [time("deadline_us")?, time("start_by_us")?];
    Some((Ranges::parse(value.text("step_seqs")?)?, optional(value, "pic")?, times))
}

fn late(value: &Value) -> Option<(usize, i64, i64)> {
    value.get("completed_after_deadline")?.as_bool().filter(|late| *late)?;
    Some((natural(value, "step_seq")?, value.int("overdue_first_at_us")?, value.int("sla_breach_us")?))
}

fn failure(value: &Value) -> Option<Failure<'_>> {
    let effect_unknown = match value.get("effect_unknown") {
        None => false,
        Some(flag) => flag.as_bool()?,
    };
    Some(Failure {
        attempts: value.int("attempts")?,
        last_error: optional(value, "last_error")?,
        category: optional(value, "error_category")?,
        effect_unknown,
        again: value.get("next_run_at_us").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_share_an_entry_are_told_apart_below_the_limit() {
        let leases = |text: &str| {
            let entry = format!(r#"{{"leases":[{{{text},"attempt":1,"locked_until_us":9}}]}}"#);
            crate::json::parse(entry.as_bytes()).ok().and_then(|payload| {
                read(&payload, Action::StepsClaimed, Some(8)).map(|moves| moves.leases.into_iter().collect::<Vec<_>>())
            })
        };
        assert_eq!(leases(r#""step_seq":3"#), Some(vec![3]));
        assert_eq!(leases(r#""step_seqs":"0-2,7""#), Some(vec![0, 1, 2, 7]));
        for bad in [r#""step_seqs":"0-8""#, r#""step_seqs":"0-99999999999""#, r#""step_seqs":"""#, r#""step":1"#] {
            assert_eq!(leases(bad), None, "{bad}");
        }
    }

    #[test]
    fn ranges_are_read_strictly() {
        let read = |text: &str| Ranges::parse(text).map(|ranges| ranges.iter().collect::<Vec<_>>());
        assert_eq!(read("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(read(""), Some(vec![]));
        for bad in ["2-1", "1,1", "3,2", "01", "-1", "1-", "a", "1,,2", "0-2,2-3", "+1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
