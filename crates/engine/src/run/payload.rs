//! What a run's record says (`spec/run.md`): the transitions that one command caused, and what came with them.

mod moves;
mod notes;

use self::moves::{ranges, run_transitions, transitions};
use crate::payload::RULES;
use countersign_kernel::lifecycle::{MACHINE_VERSION, StepCode};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::registry::Definition;
use countersign_kernel::run::{Action, Cause, Cell, Move, Origin, OriginCause, Role, Run, RunEvent, Started, TaskType};
use countersign_kernel::text::json_string;
use countersign_kernel::{Digest, Time};
use countersign_ledger::document::{declaration_document, published_gates_document};
use countersign_ledger::{Unwritable, sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// A JSON value up to this size stands in the record itself; of a larger one only its digest does.
pub const MAX_INLINE: usize = 16 * 1024;
/// What all the values of one record may take together.
const ROOM: usize = 40 * 1024;
/// What an entry with the digest of a value takes.
const DIGEST_ROOM: usize = 144;
/// The largest whole number that every reader of JSON takes for the same.
const MAX_INTEGER: u64 = (1 << 53) - 1;
/// Nested deeper than this, a value is told by its digest.
const MAX_DEPTH: usize = 48;

/// The documents that a run is started under.
#[derive(Clone, Copy, Debug)]
pub struct RunDocuments {
    /// The normalised definition.
    pub document: Digest,
    /// Its gates, as a process's.
    pub declaration: Digest,
    pub gate_spec: Digest,
}

impl RunDocuments {
    /// What a run of this definition is started under. `None`: it is no workflow.
    pub fn of(definition: &Definition) -> Result<Option<RunDocuments>, Unwritable> {
        let Some(workflow) = &definition.workflow else { return Ok(None) };
        Ok(Some(RunDocuments {
            document: workflow.document_digest,
            declaration: declaration_document(&definition.declaration)?.digest,
            gate_spec: published_gates_document(&definition.gate_spec)?.digest,
        }))
    }
}

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

    fn optional_time(&mut self, name: &str, time: Option<Time>) {
        if let Some(Time(us)) = time {
            self.int(name, us);
        }
    }

    /// A value of the caller's: in full, or by digest.
    fn value(&mut self, name: &str, json: &str, room: &mut usize) {
        if json.len() <= MAX_INLINE.min(*room) && every_reader_agrees(json) {
            *room -= json.len();
            self.raw(name, json);
        } else {
            self.text(&format!("{name}_digest"), &sha256(&[json.as_bytes()]).to_string());
            self.int(&format!("{name}_bytes"), json.len());
        }
    }

    /// A list that is left out where it is empty.
    fn lines(&mut self, name: &str, lines: &[String]) {
        if !lines.is_empty() {
            self.raw(name, &list(lines));
        }
    }

    /// A list of what steps have. Those that have the same share an entry: ten thousand that wait for one event are one line.
    fn shared(&mut self, name: &str, entries: Vec<(StepSeq, Object)>) {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut groups: Vec<(BTreeSet<StepSeq>, String)> = Vec::new();
        for (seq, Object(members)) in entries {
            let known = places.get(&members).copied();
            // A step with two of them has two entries.
            match known.and_then(|at| groups.get_mut(at)).filter(|(seqs, _)| !seqs.contains(&seq)) {
                Some((seqs, _)) => drop(seqs.insert(seq)),
                None => {
                    places.insert(members.clone(), groups.len());
                    groups.push((BTreeSet::from([seq]), members));
                }
            }
        }
        let entry = |(seqs, members): &(BTreeSet<StepSeq>, String)| {
            let mut entry = Object::new();
            match seqs.first() {
                Some(seq) if seqs.len() == 1 => entry.int("step_seq", seq),
                _ => entry.text("step_seqs", &ranges(seqs.iter().copied())),
            }
            let members = members.trim_start_matches('{');
            if !members.is_empty() {
                entry.0.push(',');
                entry.0.push_str(members);
            }
            entry.end()
        };
        if !groups.is_empty() {
            self.raw(name, &list(&groups.iter().map(entry).collect::<Vec<_>>()));
        }
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Whether a value of the caller's stands in a record that has room for it.
pub fn is_told_in_full(json: &str) -> bool {
    json.len() <= MAX_INLINE && every_reader_agrees(json)
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

/// No whole number beyond ±(2^53 − 1), which expressions can make, and no nesting that a strict reader refuses.
fn every_reader_agrees(json: &str) -> bool {
    let bytes = json.as_bytes();
    let (mut i, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(i) {
        match byte {
            b'"' => {
                i += 1;
                while let Some(byte) = bytes.get(i).filter(|byte| **byte != b'"') {
                    i += if *byte == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'0'..=b'9' => {
                let start = i;
                while bytes.get(i + 1).is_some_and(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
                    i += 1;
                }
                let number = bytes.get(start..=i).unwrap_or_default();
                let whole = number.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(number).unwrap_or_default();
                if whole && number.len() > 15 && text.parse::<u64>().map_or(true, |n| n > MAX_INTEGER) {
                    return false;
                }
            }
            _ => {}
        }
        i += 1;
    }
    true
}

/// The payload of a run's record. `run` is the run before the event; `documents` are those of a start.
pub fn run_payload(run: &Run, event: &RunEvent, documents: Option<&RunDocuments>) -> Vec<u8> {
    let mut payload = Object::new();
    let mut room = ROOM;
    payload.text("instance_id", &run.run_id.to_string());
    if let Some(started) = &event.started {
        start(&mut payload, started, event, documents, &mut room);
    }
    if !event.moves.is_empty() {
        payload.raw("transitions", &transitions(run, event));
    }
    if !event.run_moves.is_empty() {
        payload.raw("run_transitions", &run_transitions(event));
    }
    let undone = |cell: &Cell| match cell.role {
        Role::Compensation(step) => Some(step),
        Role::Step | Role::Task(_) => None,
    };
    let compensations: Vec<String> = event
        .cells
        .iter()
        .filter(|(seq, _)| event.started.is_none() && event.adds(*seq))
        .filter_map(|(seq, cell)| Some(format!("[{seq},{}]", undone(cell)?)))
        .collect();
    if !compensations.is_empty() {
        payload.raw("compensations", &list(&compensations));
    }
    if event.action == Action::CompensationsListed {
        // What else the command did stands in the record before.
        return payload.end().into_bytes();
    }
    work(&mut payload, event, &mut room);
    charges(&mut payload, run, event);
    acted(&mut payload, run, event, &mut room);
    if let Some(notes) = event.notes.as_deref() {
        notes::noted(&mut payload, notes, &mut room);
    }
    failures(&mut payload, run, event);
    severities(&mut payload, run, event);
    events(&mut payload, event, &mut room);
    children(&mut payload, run, event);
    if event.head.output != run.head.output
        && let Some(output) = &event.head.output
    {
        payload.value("output", output, &mut room);
    }
    handed(&mut payload, run, event, &mut room);
    if event.head.last_error != run.head.last_error {
        payload.optional("last_error", event.head.last_error.as_deref());
    }
    payload.optional("outcome", event.head.outcome.map(|outcome| outcome.as_str()));
    payload.optional("reason", event.reason.as_deref());
    payload.end().into_bytes()
}

fn start(
    payload: &mut Object,
    started: &Started,
    event: &RunEvent,
    documents: Option<&RunDocuments>,
    room: &mut usize,
) {
    payload.text("definition", &format!("{}@{}", started.definition.name, started.definition.version));
    if let Some(documents) = documents {
        payload.text("document_digest", &documents.document.to_string());
        payload.text("declaration_digest", &documents.declaration.to_string());
        payload.text("gate_spec_digest", &documents.gate_spec.to_string());
    }
    let tasks = started.plan.cell_count() - started.plan.steps.len();
    let of_tasks = if tasks > 0 { format!("\"task@{MACHINE_VERSION}\",") } else { String::new() };
    let own = started
        .machine
        .as_ref()
        .map(|pinned| format!(",{}", json_string(&format!("{}@{}", pinned.name, pinned.version))));
    let own = own.unwrap_or_default();
    let machines = format!("[\"step@{MACHINE_VERSION}\",{of_tasks}\"workflow_run@{MACHINE_VERSION}\"{own}]");
    payload.raw("machines", &machines);
    payload.int("rules", RULES);
    payload.optional("trace_id", started.trace_id.as_deref());
    payload.text("subject_ref", &started.subject_ref);
    payload.int("steps", started.plan.steps.len());
    if tasks > 0 {
        payload.int("tasks", tasks);
    }
    payload.int("priority", event.head.priority);
    payload.optional_time("start_at_us", event.head.start_at);
    payload.value("input", &started.input, room);
    payload.optional("correlation_key", started.correlation_key.as_deref());
    payload.optional("concurrency_key", event.head.concurrency_key.as_deref());
    payload.optional("corrects", started.corrects.map(|id| id.to_string()).as_deref());
    payload.optional("continues", started.continues.map(|id| id.to_string()).as_deref());
    if started.continues.is_some() {
        payload.raw("taken_over", &taken_over(event));
    }
    if event.head.runbook.as_deref().is_some_and(|book| book.dry_run) {
        payload.raw("dry_run", "true");
    }
    if let Some(parent) = &event.head.parent {
        payload.text("parent_run_id", &parent.run_id.to_string());
        payload.int("parent_step_seq", parent.step_seq);
    }
    if let Some(origin) = &started.origin {
        payload.raw("origin", &origin_of(origin));
    }
}

/// What inside this server started the run.
fn origin_of(origin: &Origin) -> String {
    let mut object = Object::new();
    object.text("instance_id", &origin.instance_id.to_string());
    match &origin.cause {
        OriginCause::Event(outbox_id) => object.text("outbox_id", &outbox_id.to_string()),
        OriginCause::Effect { transition_id, effect } => {
            object.text("transition_id", &transition_id.to_string());
            object.int("effect", effect);
        }
    }
    object.int("depth", origin.depth);
    object.end()
}

/// The steps that begin as they ended in the run before; their outputs as one digest.
fn taken_over(event: &RunEvent) -> String {
    let moves: HashSet<StepSeq> = event.moves.iter().map(|m| m.step_seq).collect();
    let moved = |seq: StepSeq| moves.contains(&seq);
    let of = |state: StepCode| {
        let cells = event.cells.iter().filter(|(seq, cell)| cell.state == state && !moved(*seq));
        ranges(cells.map(|(seq, _)| *seq))
    };
    let lines: String = event
        .outputs
        .iter()
        .filter(|(seq, _)| !moved(*seq))
        .map(|(seq, output)| format!("{seq} {}\n", sha256(&[output.as_bytes()])))
        .collect();
    let mut taken = Object::new();
    taken.text("completed", &of(StepCode::Completed));
    taken.text("skipped", &of(StepCode::Skipped));
    taken.text("outputs_digest", &sha256(&[lines.as_bytes()]).to_string());
    taken.end()
}

/// The step as the event leaves it.
fn cell_of(event: &RunEvent, seq: StepSeq) -> Option<&Cell> {
    let at = event.cells.binary_search_by_key(&seq, |(of, _)| *of).ok()?;
    event.cells.get(at).map(|(_, cell)| cell)
}

/// Who took what, what waits for what, and what came of it.
fn work(payload: &mut Object, event: &RunEvent, room: &mut usize) {
    let leases = event
        .claimed
        .iter()
        .map(|claimed| {
            let mut lease = Object::new();
            lease.int("attempt", claimed.attempt);
            let worker = cell_of(event, claimed.step_seq).and_then(Cell::lease);
            lease.optional("worker_id", worker.map(|lease| &*lease.worker_id));
            lease.int("locked_until_us", claimed.locked_until.0);
            (claimed.step_seq, lease)
        })
        .collect();
    payload.shared("leases", leases);
    let waits = event
        .moves
        .iter()
        .filter(|m| m.to == StepCode::Waiting)
        .filter_map(|m| {
            let waiting = cell_of(event, m.step_seq)?.live.as_ref()?.waiting.as_ref()?;
            let mut wait = Object::new();
            wait.text("facet", waiting.facet.as_str());
            if !waiting.secondary.is_empty() {
                let others: Vec<String> = waiting.secondary.iter().map(|facet| json_string(facet.as_str())).collect();
                wait.raw("secondary_facets", &list(&others));
            }
            wait.optional("event_type", waiting.event_type.as_deref());
            wait.optional_time("deadline_at_us", waiting.deadline_at);
            Some((m.step_seq, wait))
        })
        .collect();
    payload.shared("waits", waits);
    // What was taken over from another run is told by `taken_over`.
    let earned = |seq: StepSeq| event.started.is_none() || event.moves.iter().any(|m| m.step_seq == seq);
    let outputs = event
        .outputs
        .iter()
        .filter(|(seq, _)| earned(*seq))
        .map(|(seq, output)| {
            let mut one = Object::new();
            one.value("output", output, room);
            (*seq, one)
        })
        .collect();
    payload.shared("outputs", outputs);
}

/// The input of each claimed step. It comes last: the other values get the room of the record first.
fn handed(payload: &mut Object, run: &Run, event: &RunEvent, room: &mut usize) {
    let person = event.acted.as_deref().and_then(|acted| Some((acted.step_seq, acted.input.as_ref()?)));
    // A survey claims no step.
    let claimed = event.claimed.iter().filter(|claimed| claimed.task_type != TaskType::Survey);
    let given: Vec<_> = claimed.map(|claimed| (claimed.step_seq, &claimed.input)).chain(person).collect();
    // A digest takes room too: a claim of many steps leaves enough for the digests of all.
    *room = room.saturating_sub(given.len() * DIGEST_ROOM);
    let inputs = given.into_iter().map(|(seq, input)| {
        let mut one = Object::new();
        if &**input != "null" && (Arc::ptr_eq(input, &run.input) || *input == run.input) {
            one.raw("run_input", "true");
        } else {
            one.value("input", input, room);
        }
        (seq, one)
    });
    payload.shared("inputs", inputs.collect());
}

/// Who is in charge of which steps, and by when, where this record says it; and what was completed late.
fn charges(payload: &mut Object, run: &Run, event: &RunEvent) {
    type Charge<'c> = (Option<&'c str>, Option<Time>, Option<Time>);
    fn charge(cell: &Cell) -> Charge<'_> {
        (cell.pic().map(|pic| &**pic), cell.deadline(), cell.docket.as_ref().and_then(|docket| docket.start_by))
    }
    let mut groups: BTreeMap<Charge<'_>, Vec<StepSeq>> = BTreeMap::new();
    for (seq, cell) in &event.cells {
        let (now, before) = (charge(cell), run.cell(*seq).map(charge).unwrap_or_default());
        if now != before {
            groups.entry(now).or_default().push(*seq);
        }
    }
    let lines: Vec<String> = groups
        .into_iter()
        .map(|((pic, deadline, start_by), seqs)| {
            let mut line = Object::new();
            line.text("step_seqs", &ranges(seqs.into_iter()));
            line.optional("pic", pic);
            line.optional_time("deadline_us", deadline);
            line.optional_time("start_by_us", start_by);
            line.end()
        })
        .collect();
    if !lines.is_empty() {
        payload.raw("charges", &list(&lines));
    }
    let late: Vec<String> = event
        .moves
        .iter()
        .filter(|m| m.transition.id == "T7")
        .filter_map(|m| {
            let docket = event.cells.iter().find(|(seq, _)| *seq == m.step_seq)?.1.docket.as_deref()?;
            let mut line = Object::new();
            line.int("step_seq", m.step_seq);
            line.raw("completed_after_deadline", "true");
            line.optional_time("overdue_first_at_us", docket.overdue_first_at);
            line.int("sla_breach_us", docket.sla_breach?);
            Some(line.end())
        })
        .collect();
    if !late.is_empty() {
        payload.raw("sla", &list(&late));
    }
}

/// What somebody who acted on one step gave with it.
fn acted(payload: &mut Object, run: &Run, event: &RunEvent, room: &mut usize) {
    let Some(acted) = event.acted.as_deref() else { return };
    payload.int("step_seq", acted.step_seq);
    payload.optional("evidence_ref", acted.evidence_ref.as_deref());
    let cell = event.cells.iter().find(|(seq, _)| *seq == acted.step_seq).map(|(_, cell)| cell);
    let block = cell.and_then(|cell| cell.live.as_ref()).and_then(|live| live.block);
    if event.action == Action::StepBlocked {
        payload.optional("block_reason", block.and_then(|block| block.reason).map(|reason| reason.as_str()));
    }
    if let Some(own) = &acted.own {
        let mut line = Object::new();
        line.text("id", &own.id);
        line.text("from", &own.from);
        line.text("to", &own.to);
        line.text("actor_class", own.actor.as_str());
        line.text("trigger", &own.trigger);
        payload.raw("own_transition", &line.end());
    }
    payload.optional("approval_id", acted.approval_id.map(|id| id.to_string()).as_deref());
    if let Some(replay) = &acted.replay {
        let mut line = Object::new();
        line.text("dlq_replay_request_id", &replay.request.to_string());
        line.text("approval_id", &replay.approval_id.to_string());
        payload.raw("replay", &line.end());
    }
    if let Some(to) = &acted.escalated_to {
        let mut line = Object::new();
        line.text("escalation_chain_id", &format!("{}.{}", run.run_id, acted.step_seq));
        let to: Vec<String> = to.iter().map(|approver| json_string(approver)).collect();
        line.raw("to", &list(&to));
        payload.raw("escalation", &line.end());
    }
    if let Some(correction) = &acted.correction {
        let mut line = Object::new();
        line.int("cycle", correction.cycle);
        line.text("correction_reason", correction.reason.as_str());
        line.text("prior_event_id", &correction.prior.event_id.to_string());
        if let Some(output) = &correction.prior.output {
            line.value("output", output, room);
        }
        payload.raw("correction", &line.end());
    }
}

/// Whether the record of this move may say what went wrong.
pub fn tells_error(made: &Move) -> bool {
    matches!(made.transition.id, "T4" | "T9" | "X2" | "X5" | "X7" | "X10" | "X11" | "X12")
}

/// What went wrong, and what somebody said of an attempt that left no verdict.
fn failures(payload: &mut Object, run: &Run, event: &RunEvent) {
    // A lease that is taken away is no failure, but it leaves an effect of which nobody knows.
    let loses_verdict = |seq: StepSeq| {
        let unknown = |cell: &Cell| cell.live.as_ref().is_some_and(|live| live.effect_unknown);
        cell_of(event, seq).is_some_and(unknown) && !run.cell(seq).is_some_and(unknown)
    };
    let failed = |m: &&Move| tells_error(m) && (m.transition.id != "X11" || loses_verdict(m.step_seq));
    let errors = event
        .moves
        .iter()
        .filter(failed)
        .filter_map(|m| {
            let live = cell_of(event, m.step_seq)?.live.as_deref()?;
            let mut error = Object::new();
            error.int("attempts", live.attempts);
            error.optional("last_error", live.last_error.as_deref());
            error.optional("error_category", live.category.map(|category| category.as_str()));
            error.optional_time("next_run_at_us", live.next_run_at);
            if live.effect_unknown {
                error.raw("effect_unknown", "true");
            }
            Some((m.step_seq, error))
        })
        .collect();
    payload.shared("errors", errors);
    if let Some((seq, done)) = event.effect {
        payload.raw("effect", &format!("{{\"step_seq\":{seq},\"done\":{done}}}"));
    }
}

/// Blocks that became red, and those that are no longer.
fn severities(payload: &mut Object, run: &Run, event: &RunEvent) {
    let changed: Vec<(StepSeq, Object)> = event
        .cells
        .iter()
        .filter_map(|(seq, cell)| {
            let now = cell.severity()?;
            let before = run.cell(*seq).and_then(Cell::severity).unwrap_or_default();
            if now == before {
                return None;
            }
            let mut one = Object::new();
            one.text("severity", now.as_str());
            one.optional("cause", now.cause().map(Cause::as_str));
            Some((*seq, one))
        })
        .collect();
    payload.shared("severities", changed);
}

fn events(payload: &mut Object, event: &RunEvent, room: &mut usize) {
    if let Some(kept) = &event.kept {
        let mut received = Object::new();
        received.text("id", &kept.id);
        received.text("type", &kept.event_type);
        received.value("data", &kept.data, room);
        payload.raw("event", &received.end());
    }
    if !event.taken.is_empty() {
        let taken: Vec<String> = event.taken.iter().map(|id| json_string(id)).collect();
        payload.raw("events_taken", &list(&taken));
    }
    if !event.outbound.is_empty() {
        let mut sent = Vec::with_capacity(event.outbound.len());
        for outbound in &event.outbound {
            let mut one = Object::new();
            one.text("type", &outbound.event_type);
            one.value("data", &outbound.data, room);
            sent.push(one.end());
        }
        payload.raw("outbound_events", &list(&sent));
    }
}

fn children(payload: &mut Object, run: &Run, event: &RunEvent) {
    let child_of = |cell: &Cell| cell.live.as_ref().and_then(|live| live.child);
    let children: Vec<String> = event
        .cells
        .iter()
        .filter_map(|(seq, cell)| {
            let child = child_of(cell)?;
            let new = run.cell(*seq).and_then(child_of) != Some(child);
            new.then(|| format!("{{\"step_seq\":{seq},\"run_id\":\"{child}\"}}"))
        })
        .collect();
    if !children.is_empty() {
        payload.raw("children", &list(&children));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_might_take_differently_goes_by_digest() {
        for fine in
            ["null", "1.5e300", "[9007199254740991,-9007199254740991]", "\"12345678901234567890\\\"\"", "{\"a\":[0]}"]
        {
            assert!(every_reader_agrees(fine), "{fine}");
        }
        let deep = format!("{}{}", "[".repeat(49), "]".repeat(49));
        for risky in ["9007199254740992", "{\"a\":[-18446744073709551615]}", deep.as_str()] {
            assert!(!every_reader_agrees(risky), "{risky}");
        }
    }
}
