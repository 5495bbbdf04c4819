//! Reading: everything that was written is read back unchanged, by every filter and page.

use super::model::Model;
use super::story::HARD;
use super::{Bench, require_found};
use crate::place::{Kind, Place};
use anyhow::{Context, bail, ensure};
use countersign_engine::port::{
    AssignmentQuery, HoldQuery, LoadedBody, Page, ProcessQuery, Range, Reader, RecordQuery, StepQuery, Writer,
};
use countersign_engine::rows::{RecordRow, Write};
use countersign_kernel::machine::{AssignmentStatus, StepState};
use countersign_kernel::registry::{Delegation, Event, EventBody};
use countersign_kernel::{EventId, InstanceId, StepId, Time};
use std::collections::BTreeMap;
use uuid::Uuid;

pub async fn require_everything(reader: &dyn Reader, model: &Model) -> anyhow::Result<()> {
    require_processes(reader, model, &ProcessQuery::default()).await?;
    require_steps(reader, model, &StepQuery::default()).await?;
    require_assignments(reader, model, &AssignmentQuery::default()).await?;
    require_records(reader, model, &RecordQuery::default()).await?;
    super::retention::require_holds(reader, model, &HoldQuery::default()).await
}

async fn require_processes(reader: &dyn Reader, model: &Model, query: &ProcessQuery) -> anyhow::Result<()> {
    let show = |view: &countersign_engine::port::ProcessView| (view.row.instance_id.0, format!("{view:?}"));
    let read = async |page: &Page| reader.processes(query, page).await;
    require_found(&format!("{query:?}"), model.find_processes(query), read, show).await
}

async fn require_steps(reader: &dyn Reader, model: &Model, query: &StepQuery) -> anyhow::Result<()> {
    let read = async |page: &Page| reader.approval_steps(query, page).await;
    require_found(&format!("{query:?}"), model.find_steps(query), read, |row| (row.step_id.0, format!("{row:?}"))).await
}

async fn require_assignments(reader: &dyn Reader, model: &Model, query: &AssignmentQuery) -> anyhow::Result<()> {
    let read = async |page: &Page| reader.assignments(query, page).await;
    let show = |(row, step): &(_, _)| {
        let row: &countersign_engine::rows::AssignmentRow = row;
        let step: &countersign_engine::rows::StepRow = step;
        (row.assignment_id.0, format!("{:?}", (row, Some(step))))
    };
    require_found(&format!("{query:?}"), model.find_assignments(query), read, show).await
}

async fn require_records(reader: &dyn Reader, model: &Model, query: &RecordQuery) -> anyhow::Result<()> {
    let read = async |page: &Page| reader.records(query, page).await;
    require_found(&format!("{query:?}"), model.find_records(query), read, |row| (row.event_id.0, format!("{row:?}")))
        .await
}

/// What the committer gets to decide on: the head, the state, and the gates that can still matter.
pub async fn require_loads(writer: &mut dyn Writer, model: &Model) -> anyhow::Result<()> {
    let ids: Vec<InstanceId> = model.processes.values().map(|row| row.instance_id).collect();
    let loaded = writer.load(&ids).await?;
    ensure!(loaded.len() == ids.len(), "{} of {} were loaded", loaded.len(), ids.len());
    for loaded in loaded {
        let LoadedBody::Process(process) = &loaded.body else { bail!("a process was loaded as a run") };
        let unit = model.instances.get(&process.instance_id).context("loaded what nobody asked for")?;
        ensure!(loaded.head == unit.head, "{:?} is not {:?}", loaded.head, unit.head);
        ensure!(loaded.policy_ref == unit.policy_ref, "kept under {}", loaded.policy_ref);
        ensure!(process.current_state == unit.state && process.next_sequence_number == unit.moves + 1, "{process:?}");
        let row = model.processes.get(&process.instance_id.0).context("no such process")?;
        ensure!(
            (&process.subject_ref, &process.initiator_ref, process.started_at)
                == (&row.subject_ref, &row.initiator_ref, row.started_at),
            "{process:?}"
        );
        let standing: BTreeMap<_, _> = (model.holds.values())
            .filter(|hold| hold.instance_id == process.instance_id && hold.released.is_none())
            .map(|hold| (hold.hold_id, hold.record_ref))
            .collect();
        ensure!(process.holds == standing, "held by {:?}, not by {standing:?}", process.holds);
        let live: Vec<String> = (model.view(row).gates.iter())
            .filter(|(gate, steps)| gate.current || steps.iter().any(|(step, _)| step.state == StepState::Pending))
            .map(|(gate, steps)| {
                let told = steps.iter().map(|(step, assignment)| {
                    let active = assignment.status == AssignmentStatus::Active;
                    (step.step_id, &step.approver_ref, step.state, active.then_some(assignment.assignment_id))
                });
                format!(
                    "{} {} {:?} {} {:?}",
                    gate.action,
                    gate.from_state,
                    gate.fate,
                    gate.current,
                    told.collect::<Vec<_>>()
                )
            })
            .collect();
        let held: Vec<String> = (process.gates.iter())
            .map(|gate| {
                let told = gate.steps.iter().map(|s| (s.step_id, &s.approver_ref, s.state, s.assignment));
                format!(
                    "{} {} {:?} {} {:?}",
                    gate.action,
                    gate.from_state,
                    gate.fate,
                    gate.current,
                    told.collect::<Vec<_>>()
                )
            })
            .collect();
        ensure!(held == live, "loaded\n  {held:?}\nbut written were\n  {live:?}");
    }
    Ok(())
}

/// The registry as events, from any point on.
async fn require_registry(bench: &mut Bench) -> anyhow::Result<()> {
    let mut expected: BTreeMap<u64, Event> = BTreeMap::new();
    let writes = bench.story.all().flat_map(|batch| &batch.units).flat_map(|unit| &unit.writes);
    for write in writes {
        match write {
            Write::Actor { actor, registered_by, registry_sequence } => {
                let body = EventBody::ActorRegistered { actor: actor.clone(), credential: None };
                let event = Event { actor_ref: registered_by.clone(), at: actor.registered_at, body };
                expected.insert(*registry_sequence, event);
            }
            Write::Credential { credential: made, issued_at, issued_by, registry_sequence } => {
                if let Some(Event { body: EventBody::ActorRegistered { credential, .. }, .. }) =
                    expected.get_mut(registry_sequence)
                {
                    *credential = Some(made.clone());
                } else {
                    let body = EventBody::CredentialIssued(made.clone());
                    expected.insert(*registry_sequence, Event { actor_ref: issued_by.clone(), at: *issued_at, body });
                }
            }
            Write::RevokeCredential { credential, revoked_at, revoked_by, registry_sequence } => {
                let body = EventBody::CredentialRevoked(credential.clone());
                expected.insert(*registry_sequence, Event { actor_ref: revoked_by.clone(), at: *revoked_at, body });
            }
            Write::Key { actor_ref, key, registered_at, registered_by, registry_sequence } => {
                // The key that an actor was registered with is part of that event.
                expected.entry(*registry_sequence).or_insert_with(|| Event {
                    actor_ref: registered_by.clone(),
                    at: *registered_at,
                    body: EventBody::KeyRegistered { actor_ref: actor_ref.clone(), key: key.clone() },
                });
            }
            Write::RevokeKey { key_id, reason, revoked_at, revoked_by, registry_sequence } => {
                let owner = expected.values().find_map(|event| match &event.body {
                    EventBody::ActorRegistered { actor, .. } => {
                        actor.key.as_ref().filter(|key| key.key_id == *key_id).map(|_| actor.actor_ref.clone())
                    }
                    EventBody::KeyRegistered { actor_ref, key } if key.key_id == *key_id => Some(actor_ref.clone()),
                    _ => None,
                });
                let (actor_ref, key_id) = (owner.context("revoked before it was registered")?, key_id.clone());
                let body = EventBody::KeyRevoked { actor_ref, key_id, reason: reason.clone() };
                expected.insert(*registry_sequence, Event { actor_ref: revoked_by.clone(), at: *revoked_at, body });
            }
            Write::Grant { grant_id, subject_ref, action_scope, granted_at, granted_by, registry_sequence } => {
                let (subject_ref, action_scope) = (subject_ref.clone(), action_scope.clone());
                let body = EventBody::GrantMade { grant_id: *grant_id, subject_ref, action_scope };
                expected.insert(*registry_sequence, Event { actor_ref: granted_by.clone(), at: *granted_at, body });
            }
            Write::RevokeGrant { grant_id, revoked_at, revoked_by, registry_sequence } => {
                let made = expected.values().find_map(|event| match &event.body {
                    EventBody::GrantMade { grant_id: made, subject_ref, action_scope } if made == grant_id => {
                        Some((subject_ref.clone(), action_scope.clone()))
                    }
                    _ => None,
                });
                let (subject_ref, action_scope) = made.context("revoked before it was made")?;
                let body = EventBody::GrantRevoked { grant_id: *grant_id, subject_ref, action_scope };
                expected.insert(*registry_sequence, Event { actor_ref: revoked_by.clone(), at: *revoked_at, body });
            }
            Write::Delegation { delegation, made_at, registry_sequence } => {
                let (actor_ref, body) =
                    (delegation.delegator_ref.clone(), EventBody::DelegationMade(delegation.clone()));
                expected.insert(*registry_sequence, Event { actor_ref, at: *made_at, body });
            }
            Write::RevokeDelegation { delegation_id, revoked_at, registry_sequence } => {
                let made = expected.values().find_map(|event| match &event.body {
                    EventBody::DelegationMade(made) if made.delegation_id == *delegation_id => Some(made.clone()),
                    _ => None,
                });
                let Delegation { delegation_id, delegator_ref, delegate_ref, scope, .. } =
                    made.context("revoked before it was made")?;
                let actor_ref = delegator_ref.clone();
                let body = EventBody::DelegationRevoked { delegation_id, delegator_ref, delegate_ref, scope };
                expected.insert(*registry_sequence, Event { actor_ref, at: *revoked_at, body });
            }
            Write::Definition { definition, registry_sequence, .. } => {
                let body = EventBody::DefinitionPublished((**definition).clone());
                let (actor_ref, at) = (definition.published_by.clone(), definition.published_at);
                expected.insert(*registry_sequence, Event { actor_ref, at, body });
            }
            Write::DefinitionMark { marked, marked_at, marked_by, registry_sequence } => {
                let body = EventBody::DefinitionMarked(marked.clone());
                expected.insert(*registry_sequence, Event { actor_ref: marked_by.clone(), at: *marked_at, body });
            }
            Write::WorkerClassMark { marked, marked_at, marked_by, registry_sequence } => {
                let body = EventBody::WorkerClassMarked(marked.clone());
                expected.insert(*registry_sequence, Event { actor_ref: marked_by.clone(), at: *marked_at, body });
            }
            Write::Configuration { configuration, recorded_at, recorded_by, registry_sequence } => {
                let body = EventBody::ConfigurationRecorded(configuration.clone());
                expected.insert(*registry_sequence, Event { actor_ref: recorded_by.clone(), at: *recorded_at, body });
            }
            _ => {}
        }
    }
    let head = bench.model.instances.get(&InstanceId::REGISTRY).context("no registry")?.head.clone();
    for since in 0..=head.sequence + 1 {
        let wanted: Vec<(u64, Event)> = expected.range(since + 1..).map(|(n, event)| (*n, event.clone())).collect();
        for delta in [bench.writer.registry_since(since).await?, bench.reader.registry_since(since).await?] {
            ensure!(delta.head == head, "the registry stands at {:?}, not {head:?}", delta.head);
            ensure!(delta.events == wanted, "since {since}:\n  {:?}\nbut written were\n  {wanted:?}", delta.events);
        }
    }
    Ok(())
}

pub async fn nothing_is_found_in_an_empty_store(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::empty(place).await?;
    bench.require_model().await?;
    bench.reader.ping().await?;
    let (some, now) = (Uuid::from_u128(7), Time(0));
    ensure!(bench.writer.load(&[]).await?.is_empty());
    ensure!(bench.writer.load(&[InstanceId(some), InstanceId::REGISTRY]).await?.is_empty());
    ensure!(bench.writer.recall(&[], now).await?.is_empty());
    ensure!(bench.writer.recall(&[("ines".to_owned(), "key".to_owned())], now).await?.is_empty());
    ensure!(!bench.writer.step_ended(InstanceId(some), "go", StepId(some)).await?);
    ensure!(bench.writer.forget_expired(Time(i64::MAX)).await? == 0);
    let delta = bench.writer.registry_since(0).await?;
    ensure!(delta.events.is_empty() && delta.head.sequence == 0, "{delta:?}");
    Ok(())
}

pub async fn every_row_reads_back(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_everything(place).await?;
    bench.require_model().await?;
    require_registry(&mut bench).await?;
    let steps: Vec<_> = bench.model.steps.values().cloned().collect();
    for step in steps {
        // Whatever became of it: it once was one, of this instance and action.
        ensure!(bench.writer.step_ended(step.instance_id, &step.action, step.step_id).await?);
        ensure!(!bench.writer.step_ended(step.instance_id, "another", step.step_id).await?);
        ensure!(!bench.writer.step_ended(InstanceId::REGISTRY, &step.action, step.step_id).await?);
    }
    Ok(())
}

/// Around each of these times: before it, at it, after it, and between two of them.
fn ranges(times: impl IntoIterator<Item = Time>) -> Vec<Range> {
    let mut times: Vec<Time> = times.into_iter().collect();
    times.sort_unstable();
    times.dedup();
    let mut ranges = vec![];
    for at in [times.first(), times.get(times.len() / 2), times.last()].into_iter().flatten() {
        for near in [at.0 - 1, at.0, at.0 + 1] {
            ranges.push(Range { after: Some(Time(near)), before: None });
            ranges.push(Range { after: None, before: Some(Time(near)) });
        }
        ranges.push(Range { after: Some(*at), before: Some(*at) });
        ranges.push(Range { after: times.first().copied(), before: Some(*at) });
    }
    ranges
}

pub async fn processes_are_found_by_every_axis(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let any = ProcessQuery::default;
    let mut queries = vec![
        ProcessQuery { instance_id: Some(InstanceId(Uuid::from_u128(7))), ..any() },
        ProcessQuery { definitions: Some(vec!["gated".to_owned()]), ..any() },
        ProcessQuery { definitions: Some(vec![HARD[3].to_owned(), "gated".to_owned()]), ..any() },
        ProcessQuery { definitions: Some(vec!["none such".to_owned()]), ..any() },
        ProcessQuery { definitions: Some(vec![]), ..any() },
    ];
    queries
        .extend(bench.model.processes.values().map(|row| ProcessQuery { instance_id: Some(row.instance_id), ..any() }));
    for text in HARD.into_iter().chain(["subject", "ines", "none such", "' OR 1=1 --"]) {
        let text = Some(text.to_owned());
        queries.push(ProcessQuery { subject_ref: text.clone(), ..any() });
        queries.push(ProcessQuery { initiator_ref: text.clone(), ..any() });
        queries.push(ProcessQuery {
            initiator_ref: text.clone(),
            definitions: Some(vec!["gated".to_owned(), HARD[3].to_owned()]),
            ..any()
        });
        queries.push(ProcessQuery { initiator_ref: text, subject_ref: Some("subject".to_owned()), ..any() });
    }
    for started in ranges(bench.model.processes.values().map(|row| row.started_at)) {
        queries.push(ProcessQuery { started: started.clone(), ..any() });
        queries.push(ProcessQuery { started: started.clone(), initiator_ref: Some("ines".to_owned()), ..any() });
        queries.push(ProcessQuery { started: started.clone(), definitions: Some(vec!["gated".to_owned()]), ..any() });
        queries.push(ProcessQuery { started, subject_ref: Some("subject".to_owned()), ..any() });
    }
    for query in &queries {
        require_processes(&*bench.reader, &bench.model, query).await?;
    }
    for lists in lists_that_end_anywhere(place, &bench) {
        place.sql(&lists).await?;
        for query in &queries {
            require_processes(&*bench.reader, &bench.model, query).await?;
        }
    }
    Ok(())
}

pub async fn steps_are_found_by_every_axis(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let any = StepQuery::default;
    let mut queries = vec![
        StepQuery { step_id: Some(StepId(Uuid::from_u128(7))), ..any() },
        StepQuery { instance_id: Some(InstanceId(Uuid::from_u128(7))), ..any() },
        StepQuery { scope: Some("quality".to_owned()), ..any() },
        StepQuery { scope: Some("none such".to_owned()), ..any() },
    ];
    for row in bench.model.steps.values() {
        queries.push(StepQuery { step_id: Some(row.step_id), ..any() });
        queries.push(StepQuery { instance_id: Some(row.instance_id), ..any() });
        queries.push(StepQuery { subject_ref: Some(row.subject_ref.clone()), ..any() });
        queries.push(StepQuery { approver_ref: Some(row.approver_ref.clone()), ..any() });
        queries.push(StepQuery { submitter_ref: Some(row.submitter_ref.clone()), ..any() });
    }
    for state in StepState::ALL {
        let state = Some(state.as_str().to_owned());
        queries.push(StepQuery { state: state.clone(), ..any() });
        queries.push(StepQuery { state, approver_ref: Some("bea".to_owned()), ..any() });
    }
    for range in ranges(bench.model.steps.values().map(|row| row.submitted_at)) {
        queries.push(StepQuery { submitted: range, ..any() });
    }
    for range in ranges(bench.model.steps.values().filter_map(|row| row.ended.as_ref()).map(|end| end.at)) {
        queries.push(StepQuery { decided: range.clone(), ..any() });
        queries.push(StepQuery { withdrawn: range.clone(), ..any() });
        queries.push(StepQuery { decided: range, approver_ref: Some("bea".to_owned()), ..any() });
    }
    for query in queries {
        require_steps(&*bench.reader, &bench.model, &query).await?;
    }
    Ok(())
}

pub async fn assignments_are_found_by_every_axis(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let any = AssignmentQuery::default;
    let mut queries = vec![
        AssignmentQuery { task_ref: Some(StepId(Uuid::from_u128(7))), ..any() },
        AssignmentQuery { assignee_ref: Some("none such".to_owned()), ..any() },
    ];
    for row in bench.model.assignments.values() {
        queries.push(AssignmentQuery { assignment_id: Some(row.assignment_id), ..any() });
        queries.push(AssignmentQuery { task_ref: Some(row.task_ref), ..any() });
        queries.push(AssignmentQuery { assignee_ref: Some(row.assignee_ref.clone()), ..any() });
    }
    for status in AssignmentStatus::ALL {
        let status = Some(status.as_str().to_owned());
        queries.push(AssignmentQuery { status: status.clone(), ..any() });
        queries.push(AssignmentQuery { status, assignee_ref: Some("bea".to_owned()), ..any() });
    }
    for query in queries {
        require_assignments(&*bench.reader, &bench.model, &query).await?;
    }
    Ok(())
}

pub async fn records_are_found_by_every_axis(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let any = RecordQuery::default;
    let mut queries = vec![
        RecordQuery { event_id: Some(EventId(Uuid::from_u128(7))), ..any() },
        RecordQuery { action_ref: Some("none such".to_owned()), ..any() },
    ];
    let mut actions: Vec<&String> = bench.model.records.values().map(|row| &row.action_ref).collect();
    actions.sort_unstable();
    actions.dedup();
    ensure!(actions.len() >= 14, "the story lacks some kinds of records: {actions:?}");
    queries.extend(actions.into_iter().map(|action| RecordQuery { action_ref: Some(action.clone()), ..any() }));
    for actor in HARD.into_iter().chain(["ines", "bea", "countersign", "nobody", "none such"]) {
        let actor_ref = Some(actor.to_owned());
        queries.push(RecordQuery { actor_ref: actor_ref.clone(), ..any() });
        queries.push(RecordQuery { actor_ref, action_ref: Some("gate_decided".to_owned()), ..any() });
    }
    for instance_id in bench.model.instances.keys() {
        queries.push(RecordQuery { instance_id: Some(*instance_id), ..any() });
    }
    queries.extend(
        bench.model.records.values().step_by(7).map(|row| RecordQuery { event_id: Some(row.event_id), ..any() }),
    );
    for recorded in ranges(bench.model.records.values().map(|row| row.recorded_at)) {
        queries.push(RecordQuery { recorded: recorded.clone(), ..any() });
        queries.push(RecordQuery { recorded: recorded.clone(), instance_id: Some(InstanceId::REGISTRY), ..any() });
        queries.push(RecordQuery { recorded, action_ref: Some("gate_opened".to_owned()), ..any() });
    }
    for query in &queries {
        require_records(&*bench.reader, &bench.model, query).await?;
    }
    require_chains(&bench).await?;
    for lists in lists_that_end_anywhere(place, &bench) {
        place.sql(&lists).await?;
        for query in &queries {
            require_records(&*bench.reader, &bench.model, query).await?;
        }
        require_chains(&bench).await?;
    }
    Ok(())
}

/// Records by their chains, and instances by when something of them was recorded.
async fn require_chains(bench: &Bench) -> anyhow::Result<()> {
    let mut expected: Vec<&RecordRow> = bench.model.records.values().collect();
    expected.sort_unstable_by_key(|row| (row.instance_id, row.sequence));
    let ids: Vec<InstanceId> = bench.model.instances.keys().copied().collect();
    let (first, middle, last) = (ids[0], ids[ids.len() / 2], ids[ids.len() - 1]);
    for (from, to) in [(first, last), (first, first), (middle, middle), (middle, last)] {
        let found = bench.reader.chains(from, to).await?;
        let expected = expected.iter().filter(|row| (from..=to).contains(&row.instance_id)).copied();
        ensure!(found.iter().eq(expected), "chains from {from} to {to}");
    }
    let mut windows = vec![Range::default()];
    windows.extend(ranges(bench.model.records.values().map(|row| row.recorded_at)));
    for window in windows {
        let within =
            |at: Time| window.after.is_none_or(|after| at >= after) && window.before.is_none_or(|before| at <= before);
        let mut all: Vec<InstanceId> = expected
            .iter()
            .filter(|row| row.instance_id != InstanceId::REGISTRY && within(row.recorded_at))
            .map(|row| row.instance_id)
            .collect();
        all.dedup();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = bench.reader.instances_in(&window, after, 2).await?;
            let Some(last) = page.last() else { break };
            after = Some(*last);
            found.extend(page);
        }
        ensure!(found == all, "instances in {window:?}: {found:?}, not {all:?}");
    }
    Ok(())
}

/// SQLite lists records and processes behind their commits: wherever the lists end, the answers are the same.
fn lists_that_end_anywhere(place: &Place, bench: &Bench) -> Vec<String> {
    let count = bench.model.records.len();
    let ends = if place.kind == Kind::Sqlite { vec![0, 1, count / 3, count - 1, count] } else { vec![] };
    ends.into_iter().map(listed_through).collect()
}

fn listed_through(position: usize) -> String {
    let list = |list: &str, column: &str| {
        format!(
            "DELETE FROM {list}; INSERT INTO {list} SELECT {column}, event_id FROM records WHERE position <= {position};"
        )
    };
    let processes = |list: &str, column: &str| {
        format!(
            "DELETE FROM {list}; INSERT INTO {list} SELECT {column}, instance_id FROM processes WHERE {column} IS NOT NULL AND \
             instance_id IN (SELECT instance_id FROM records WHERE sequence = 1 AND position <= {position});"
        )
    };
    let (actions, actors) = (list("records_of_action", "action_ref"), list("records_of_actor", "actor_ref"));
    let chains = format!(
        "DELETE FROM records_of_instance; INSERT INTO records_of_instance \
         SELECT instance_id, sequence, event_id, position FROM records WHERE position <= {position};"
    );
    let initiators = processes("processes_of_initiator", "initiator_ref");
    let definitions = processes("processes_of_definition", "definition_name");
    format!(
        "BEGIN; {actions} {actors} {chains} {initiators} {definitions} UPDATE records_listed SET through = {position}; COMMIT"
    )
}
