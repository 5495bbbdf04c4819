//! Random histories against the kernel, beside an oracle that was written from the requirement. After
//! every command both must agree on the answer, on the state, on every gate, step and in-tray, and on
//! the records that are owed; and what was recorded must be enough to build it all again.

#[path = "../support/mod.rs"]
mod support;

mod generate;
mod oracle;
mod order;
mod retention;

use countersign_kernel::machine::{ChainState, StepState};
use countersign_kernel::process::{
    Command, DecideGate, Decision, Event, EventBody, FireTransition, GateKind, OpenGate, Process, Source,
    StartWorkflow, StepChoice,
};
use countersign_kernel::registry::Registry;
use countersign_kernel::{Declaration, GateEntry, GateSpec, StepId, Time};
use generate::{Draw, PEOPLE, World};
use oracle::{Ask, Oracle, Owed, Status};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{APPLICATION, decide, registry_with};

/// The kernel's side of a run, and everything that was ever recorded.
struct Run {
    registry: Registry,
    process: Process,
    events: Vec<Event>,
    /// Ids of the steps that were opened, gate by gate.
    steps: Vec<Vec<StepId>>,
    clock: i64,
}

impl Run {
    fn start(world: &World) -> (Run, Oracle) {
        let mut grants: Vec<(&str, &str)> = world.grants.iter().map(|(who, scope)| (who.as_str(), *scope)).collect();
        grants.push((PEOPLE[0], "workflows:start"));
        let registry = registry_with(&grants);
        let command = Command::StartWorkflow(StartWorkflow {
            source: Source::Inline(Arc::new(world.declaration.clone())),
            subject_ref: "subject".to_owned(),
            gate_spec: world.gate_spec.clone(),
            reason: None,
        });
        let events = decide(&registry, None, PEOPLE[0], Time(1), &command)
            .unwrap_or_else(|refusal| panic!("{refusal}\n{world:#?}"));
        let process = Process::begin(&events[0]).unwrap_or_else(|| panic!("not a start: {events:?}"));
        let oracle = Oracle {
            declaration: world.declaration.clone(),
            gate_spec: world.gate_spec.clone(),
            initiator: PEOPLE[0].to_owned(),
            application: APPLICATION.to_owned(),
            grants: world.grants.clone(),
            state: world.declaration.initial_state.clone(),
            history: vec![],
            gates: vec![],
        };
        (Run { registry, process, events, steps: vec![], clock: 1 }, oracle)
    }

    /// The command as the engine would hand it to the kernel: a step that the process no longer holds
    /// is looked up in the store first.
    fn command(&self, oracle: &Oracle, ask: &Ask) -> Command {
        match ask {
            Ask::Open { action } => Command::OpenGate(OpenGate { action: action.clone(), reason: None, request: None }),
            Ask::Fire { action } => Command::FireTransition(FireTransition { action: action.clone(), reason: None }),
            Ask::Decide { action, decision, reason, step } => Command::DecideGate(DecideGate {
                action: action.clone(),
                decision: *decision,
                reason: reason.clone(),
                step: step.map(|at| match at {
                    None => StepChoice::Unknown,
                    Some((gate, slot)) => self.choice(oracle, action, gate, slot),
                }),
                request_digest: None,
            }),
        }
    }

    fn choice(&self, oracle: &Oracle, action: &str, gate: usize, slot: usize) -> StepChoice {
        let step_id = self.steps[gate][slot];
        let of_action = self.process.gates.iter().filter(|gate| gate.action == action);
        let is_live = of_action.flat_map(|gate| &gate.steps).any(|step| step.step_id == step_id);
        if is_live {
            StepChoice::Id(step_id)
        } else if oracle.gates[gate].action == action {
            StepChoice::Ended
        } else {
            StepChoice::Unknown
        }
    }

    fn give(&mut self, oracle: &mut Oracle, actor: &str, ask: &Ask, exists: bool) {
        let command = self.command(oracle, ask);
        self.clock += 1;
        let process = exists.then_some(&self.process);
        let answer = decide(&self.registry, process, actor, Time(self.clock), &command);
        let expected = oracle.answer(actor, ask, exists);
        match (answer, expected) {
            (Err(refusal), Err(code)) => assert_eq!(refusal.code, code, "{actor}: {ask:?}: {refusal}"),
            (Ok(events), Ok(owed)) => self.accept(events, owed),
            (answer, expected) => panic!("{actor}: {ask:?}\nthe kernel: {answer:#?}\nthe oracle: {expected:?}"),
        }
    }

    fn accept(&mut self, events: Vec<Event>, owed: Vec<Owed>) {
        let recorded: Vec<Owed> = events.iter().map(|e| (action_ref(&e.body), e.actor_ref.clone())).collect();
        // The order within a cascade is nobody's business; everything else has its place.
        let in_order = |owed: Vec<Owed>| match owed.split_first() {
            Some((first @ ("transition_fired", _), rest)) => {
                let mut rest = rest.to_vec();
                rest.sort();
                std::iter::once(first.clone()).chain(rest).collect()
            }
            _ => owed,
        };
        assert_eq!(in_order(recorded), in_order(owed), "what is recorded");
        for event in &events {
            self.process.apply(event);
            if let EventBody::GateOpened { gate, .. } = &event.body {
                self.steps.push(gate.steps.iter().map(|step| step.step_id).collect());
            }
        }
        self.events.extend(events);
    }

    /// The kernel's process against the oracle's world.
    fn compare(&self, oracle: &Oracle) {
        assert_eq!(self.process.current_state, oracle.state);
        assert_eq!(self.process.next_sequence_number, oracle.history.len() as u64 + 1);
        let held = |id: &StepId| {
            let gates = self.process.gates.iter();
            gates.flat_map(|gate| gate.steps.iter().map(move |step| (gate, step))).find(|(_, step)| step.step_id == *id)
        };
        for (gate, ids) in oracle.gates.iter().zip(&self.steps) {
            for (step, id) in gate.steps.iter().zip(ids) {
                match held(id) {
                    None => {
                        assert_ne!(step.status, Status::Pending, "a waiting step was forgotten");
                        assert!(!step.in_tray);
                    }
                    Some((kernel_gate, kernel_step)) => {
                        assert_eq!(status(kernel_step.state), step.status, "{gate:?}");
                        assert_eq!(kernel_step.assignment.is_some(), step.in_tray, "{gate:?}");
                        assert_eq!(kernel_step.approver_ref, step.approver);
                        if let GateKind::Quorum { state, .. } = kernel_gate.kind {
                            assert_eq!(chain_status(state), gate.status, "{gate:?}");
                        }
                    }
                }
            }
        }
    }

    /// What was recorded is enough: the same events make the same process.
    fn replay(&self) {
        let begun = self.events.first().and_then(Process::begin);
        let again = begun.map(|process| self.events.iter().skip(1).fold(process, Process::evolve));
        assert_eq!(again.as_ref(), Some(&self.process));
    }

    /// The auditor's reading of the records alone (invariants 1, 2, 4 and 5 of the requirement).
    fn audit(&self, world: &World) {
        let mut state = &world.declaration.initial_state;
        let mut cleared_by: BTreeSet<String> = BTreeSet::new();
        let mut next = 1;
        for event in &self.events {
            let held = |scope| world.grants.contains(&(event.actor_ref.clone(), scope));
            match &event.body {
                EventBody::GateOpened { .. } => assert!(held("workflows:open-gate")),
                EventBody::TransitionFired { from_state, action, to_state, gate, sequence_number, .. } => {
                    assert!(held("workflows:fire"), "who fires may");
                    assert_eq!(*sequence_number, next, "dense from one");
                    assert_eq!(from_state, state, "each move begins where the last one ended");
                    let declared = world.declaration.transition(from_state, action);
                    assert_eq!(declared.map(|t| &t.to_state), Some(to_state), "only declared transitions");
                    let guarded = declared.is_some_and(|t| t.guard.is_some());
                    assert_eq!(gate.is_some(), guarded, "a guarded move names its approval, a free one none");
                    if let Some(gate) = gate {
                        assert!(cleared_by.insert(format!("{gate:?}")), "one approval, one firing");
                    }
                    state = to_state;
                    next += 1;
                }
                _ => {}
            }
        }
        assert_eq!(state, &self.process.current_state, "the records replay to the current state");
    }
}

fn status(state: StepState) -> Status {
    match state {
        StepState::Pending => Status::Pending,
        StepState::Approved => Status::Approved,
        StepState::Rejected => Status::Rejected,
        StepState::Withdrawn => Status::Withdrawn,
    }
}

fn chain_status(state: ChainState) -> Status {
    match state {
        ChainState::Pending => Status::Pending,
        ChainState::Approved => Status::Approved,
        ChainState::Rejected => Status::Rejected,
        ChainState::Withdrawn => Status::Withdrawn,
    }
}

fn action_ref(body: &EventBody) -> &'static str {
    match body {
        EventBody::WorkflowStarted { .. } => "workflow_started",
        EventBody::ChainInitiated { .. } => "chain_initiated",
        EventBody::GateOpened { .. } => "gate_opened",
        EventBody::GateDecided { .. } => "gate_decided",
        EventBody::StepDecided { decision: Decision::Approve, .. } => "step_approved",
        EventBody::StepDecided { decision: Decision::Reject, .. } => "step_rejected",
        EventBody::StepDecided { decision: Decision::Withdraw, .. } => "step_withdrawn",
        EventBody::StepWithdrawnWithChain { .. } => "step_withdrawn",
        EventBody::ChainResolved { .. } => "chain_resolved",
        EventBody::ChainWithdrawn { .. } => "chain_withdrawn",
        EventBody::TransitionFired { .. } => "transition_fired",
        EventBody::MootGateRecalled { .. } => "moot_gate_recalled",
        EventBody::HoldPlaced { .. } => "hold_placed",
        EventBody::HoldReleased { .. } => "hold_released",
        EventBody::RecordPurged { .. } => "record_purged",
        EventBody::EvidenceExported => "evidence_exported",
        EventBody::AttemptRefused { .. } => "attempt_refused",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn random_histories_agree_with_the_requirement(world in generate::world(), draws in generate::draws()) {
        let (mut run, mut oracle) = Run::start(&world);
        for draw in &draws {
            let (actor, ask, exists) = generate::command(&oracle, draw);
            run.give(&mut oracle, &actor, &ask, exists);
            run.compare(&oracle);
            run.replay();
        }
        run.audit(&world);
        assert_eq!(*run.process.declaration, world.declaration, "the declaration never changes");
        assert_eq!(*run.process.gate_spec, world.gate_spec, "nor does the gate_spec");
    }

    /// One quorum gate and nothing but decisions on it: the outcome is the contract's function of the counts.
    #[test]
    fn a_quorum_is_decided_by_its_counts(
        entry in generate::gate_entry(),
        decisions in proptest::collection::vec((0..4usize, 0..3usize), 1..12),
    ) {
        let (mut run, mut oracle) = Run::start(&one_gate(entry.clone()));
        run.give(&mut oracle, PEOPLE[0], &Ask::Open { action: "go".to_owned() }, true);
        for (slot, decision) in decisions {
            let step = (0, slot % entry.approvers().len());
            let decision = Decision::ALL[decision];
            let actor = if decision == Decision::Withdraw { PEOPLE[0] } else { &entry.approvers()[step.1] };
            let ask = Ask::Decide {
                action: "go".to_owned(),
                decision,
                reason: Some("because".to_owned()),
                step: Some(Some(step)),
            };
            run.give(&mut oracle, actor, &ask, true);
            run.compare(&oracle);
        }
        let clears = oracle.gates[0].status == Status::Approved;
        run.give(&mut oracle, PEOPLE[0], &Ask::Fire { action: "go".to_owned() }, true);
        assert_eq!(run.process.current_state == "s1", clears, "fires exactly when the quorum has approved");
        run.compare(&oracle);
    }
}

fn one_gate(entry: GateEntry) -> World {
    let declaration: Declaration = support::declaration("s0 s1", "s0", "s1", &["s0 go s1 first"]);
    let grants = ["workflows:open-gate", "workflows:fire"].map(|scope| (PEOPLE[0].to_owned(), scope));
    World { declaration, gate_spec: GateSpec([("first".to_owned(), entry)].into()), grants: grants.into() }
}

/// The generator reaches what matters; otherwise agreement would mean little.
#[test]
fn random_histories_are_eventful() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeSet<&'static str> = BTreeSet::new();
    let (mut reopened, mut trailing, mut guarded) = (0, 0, 0);
    for _ in 0..150 {
        let (world, draws): (World, Vec<Draw>) = (generate::world(), generate::draws())
            .new_tree(&mut runner)
            .unwrap_or_else(|reason| panic!("{reason}"))
            .current();
        let (mut run, mut oracle) = Run::start(&world);
        for draw in &draws {
            let (actor, ask, exists) = generate::command(&oracle, draw);
            run.give(&mut oracle, &actor, &ask, exists);
        }
        for event in &run.events {
            seen.insert(action_ref(&event.body));
            match &event.body {
                EventBody::GateOpened { supersedes: Some(_), .. } => reopened += 1,
                EventBody::StepDecided { trailing: true, .. } => trailing += 1,
                EventBody::TransitionFired { gate: Some(_), .. } => guarded += 1,
                _ => {}
            }
        }
    }
    let missing: Vec<_> = ["chain_withdrawn", "chain_resolved", "moot_gate_recalled", "step_withdrawn", "gate_decided"]
        .into_iter()
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
    assert!(
        reopened > 20 && trailing > 5 && guarded > 50,
        "{reopened} re-opened, {trailing} trailing, {guarded} guarded"
    );
}
