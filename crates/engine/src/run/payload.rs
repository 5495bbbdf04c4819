//! What a run's record says (`spec/run.md`): the transitions that one command caused, and what came with them.

use countersign_kernel::Digest;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::run::{Move, Run, RunEvent};
use countersign_kernel::text::json_string;
use countersign_ledger::sha256;
use std::fmt::Write as _;

/// A JSON value up to this size stands in the record itself; of a larger one only its digest does.
pub const MAX_INLINE: usize = 16 * 1024;

/// An object under construction: members in the order they are given, values as they are.
struct Object(String);

impl Object {
    fn new() -> Self {
        Object(String::from("{"))
    }

    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // Names are ours and need no escapes.
        let _ = write!(self.0, "\"{name}\":{json}");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &json_string(text));
    }

    fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn int(&mut self, name: &str, value: impl std::fmt::Display) {
        self.raw(name, &value.to_string());
    }

    /// A value of the caller's: in full, or by digest.
    fn value(&mut self, name: &str, json: &str) {
        if json.len() <= MAX_INLINE {
            self.raw(name, json);
        } else {
            self.text(&format!("{name}_digest"), &sha256(&[json.as_bytes()]).to_string());
            self.int(&format!("{name}_bytes"), json.len());
        }
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// The payload of a run's record. `run` is the run before the event; `document` the digest of its definition.
pub fn run_payload(run: &Run, event: &RunEvent, document: Option<&Digest>) -> Vec<u8> {
    let mut payload = Object::new();
    payload.text("instance_id", &run.run_id.to_string());
    if let Some(started) = &event.started {
        payload.text("definition", &format!("{}@{}", started.definition.name, started.definition.version));
        payload.optional("document_digest", document.map(Digest::to_string).as_deref());
        payload.text("subject_ref", &started.subject_ref);
        payload.int("steps", started.plan.steps.len());
        payload.value("input", &started.input);
        payload.optional("correlation_key", started.correlation_key.as_deref());
        payload.optional("corrects", started.corrects.map(|id| id.to_string()).as_deref());
        payload.optional("continues", started.continues.map(|id| id.to_string()).as_deref());
        if let Some(parent) = &event.head.parent {
            payload.text("parent_run_id", &parent.run_id.to_string());
            payload.int("parent_step_seq", parent.step_seq);
        }
    }
    if !event.moves.is_empty() {
        payload.raw("transitions", &transitions(run, event));
    }
    if !event.run_moves.is_empty() {
        payload.raw("run_transitions", &run_transitions(event));
    }
    let compensations: Vec<String> = event
        .cells
        .iter()
        .filter(|(seq, _)| event.started.is_none() && event.adds(*seq))
        .map(|(seq, cell)| match cell.role {
            countersign_kernel::run::Role::Compensation(step) => format!("[{seq},{step}]"),
            countersign_kernel::run::Role::Step => format!("[{seq},{seq}]"),
        })
        .collect();
    if !compensations.is_empty() {
        payload.raw("compensations", &format!("[{}]", compensations.join(",")));
    }
    details(&mut payload, run, event);
    payload.optional("outcome", event.head.outcome.map(|outcome| outcome.as_str()));
    payload.optional("reason", event.reason.as_deref());
    payload.end().into_bytes()
}

/// What came with the transitions: leases, outputs, errors, events.
fn details(payload: &mut Object, run: &Run, event: &RunEvent) {
    if !event.claimed.is_empty() {
        let leases = event.claimed.iter().map(|claimed| {
            let mut lease = Object::new();
            lease.int("step_seq", claimed.step_seq);
            lease.int("attempt", claimed.attempt);
            let worker =
                event.cells.iter().find(|(seq, _)| *seq == claimed.step_seq).and_then(|(_, cell)| cell.lease());
            lease.optional("worker_id", worker.map(|lease| &*lease.worker_id));
            lease.int("locked_until_us", claimed.locked_until.0);
            lease.end()
        });
        payload.raw("leases", &format!("[{}]", leases.collect::<Vec<_>>().join(",")));
    }
    if event.started.is_none() && !event.outputs.is_empty() {
        let outputs = event.outputs.iter().map(|(seq, output)| {
            let mut one = Object::new();
            one.int("step_seq", seq);
            one.value("output", output);
            one.end()
        });
        payload.raw("outputs", &format!("[{}]", outputs.collect::<Vec<_>>().join(",")));
    }
    let failed = |m: &&Move| matches!(m.transition.id, "T9" | "X2" | "X5" | "X7" | "X10");
    let errors: Vec<String> = event
        .moves
        .iter()
        .filter(failed)
        .filter_map(|m| {
            let live = event.cells.iter().find(|(seq, _)| *seq == m.step_seq)?.1.live.as_deref()?;
            let mut error = Object::new();
            error.int("step_seq", m.step_seq);
            error.int("attempts", live.attempts);
            error.optional("last_error", live.last_error.as_deref());
            error.optional("error_category", live.category.map(|category| category.as_str()));
            if let Some(at) = live.next_run_at {
                error.int("next_run_at_us", at.0);
            }
            if live.effect_unknown {
                error.raw("effect_unknown", "true");
            }
            Some(error.end())
        })
        .collect();
    if !errors.is_empty() {
        payload.raw("errors", &format!("[{}]", errors.join(",")));
    }
    if let Some(kept) = &event.kept {
        let mut received = Object::new();
        received.text("id", &kept.id);
        received.text("type", &kept.event_type);
        received.value("data", &kept.data);
        payload.raw("event", &received.end());
    }
    if !event.taken.is_empty() {
        let taken: Vec<String> = event.taken.iter().map(|id| json_string(id)).collect();
        payload.raw("events_taken", &format!("[{}]", taken.join(",")));
    }
    if !event.outbound.is_empty() {
        let sent = event.outbound.iter().map(|outbound| {
            let mut one = Object::new();
            one.text("type", &outbound.event_type);
            one.value("data", &outbound.data);
            one.end()
        });
        payload.raw("outbound_events", &format!("[{}]", sent.collect::<Vec<_>>().join(",")));
    }
    let children = event.cells.iter().filter_map(|(seq, cell)| {
        let child = cell.live.as_ref()?.child?;
        let new = run.cell(*seq).and_then(|cell| cell.live.as_ref()).is_none_or(|live| live.child.is_none());
        new.then(|| format!("{{\"step_seq\":{seq},\"run_id\":\"{child}\"}}"))
    });
    let children: Vec<String> = children.collect();
    if !children.is_empty() {
        payload.raw("children", &format!("[{}]", children.join(",")));
    }
    if event.run_moves.last().is_some_and(|m| m.transition.to.is_ended()) {
        if let Some(output) = &event.head.output {
            payload.value("output", output);
        }
        payload.optional("last_error", event.head.last_error.as_deref());
    }
}

/// Steps that made the same move stand together, as ranges: ten thousand of them are one line.
fn transitions(run: &Run, event: &RunEvent) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut from = 0;
    while from < event.moves.len() {
        let first = &event.moves[from];
        let same = |m: &&Move| {
            (m.transition.id, m.from, m.to, m.actor, m.trigger)
                == (first.transition.id, first.from, first.to, first.actor, first.trigger)
        };
        let count = event.moves[from..].iter().take_while(same).count();
        let group = &event.moves[from..from + count];
        let mut line = Object::new();
        line.text("id", first.transition.id);
        match group {
            [one] => {
                line.text("step", run.step_name(one.step_seq));
                line.int("step_seq", one.step_seq);
            }
            many => line.text("step_seqs", &ranges(many)),
        }
        line.text("from", first.from.as_str());
        line.text("to", first.to.as_str());
        line.text("actor_class", first.actor.as_str());
        line.text("trigger", first.trigger);
        lines.push(line.end());
        from += count;
    }
    format!("[{}]", lines.join(","))
}

/// `0-3,7,9-12`
fn ranges(moves: &[Move]) -> String {
    let mut text = String::new();
    let mut open: Option<(StepSeq, StepSeq)> = None;
    let mut close = |range: (StepSeq, StepSeq)| {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = if range.0 == range.1 { write!(text, "{}", range.0) } else { write!(text, "{}-{}", range.0, range.1) };
    };
    for m in moves {
        open = match open {
            Some((first, last)) if m.step_seq == last + 1 => Some((first, m.step_seq)),
            Some(range) => {
                close(range);
                Some((m.step_seq, m.step_seq))
            }
            None => Some((m.step_seq, m.step_seq)),
        };
    }
    if let Some(range) = open {
        close(range);
    }
    text
}

fn run_transitions(event: &RunEvent) -> String {
    let lines = event.run_moves.iter().map(|m| {
        let mut line = Object::new();
        line.text("id", m.transition.id);
        line.text("from", m.transition.from.as_str());
        line.text("to", m.transition.to.as_str());
        line.text("trigger", m.transition.trigger);
        line.end()
    });
    format!("[{}]", lines.collect::<Vec<_>>().join(","))
}
