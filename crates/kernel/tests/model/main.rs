//! Model check of the approval-gated process, on the kernel's own `decide` and `apply`: every command
//! of every actor in every order. Seed 000's formal model has two invariants (fired ⇒ approved,
//! fired ⇒ audited) and two broken twins that show the invariants have teeth; so does this.
//!
//! The single-gate space is closed: ids are renamed and times ranked after every command, so the check
//! covers histories of any length. With the records kept in the state, and for the quorum, whose
//! superseded chains may pile up, it covers every history up to a number of accepted commands.

#[path = "../support/mod.rs"]
mod support;

mod auditor;
mod normalise;

use auditor::{Auditor, Breach, Grants, Note};
use countersign_kernel::machine::{ChainState, StepState};
use countersign_kernel::process::{
    Command, DecideGate, Decision, Event, EventBody, Fate, FireTransition, GateKind, OpenGate, Process, Source,
    StartWorkflow, StepChoice,
};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Time};
use stateright::{Checker, Expectation, Model, Property};
use std::sync::Arc;
use support::{APPLICATION, decide, declaration, registry_with};

/// Starts the process and holds every grant; approves the gate `note` as well (self-approval is legal).
const INITIATOR: &str = "ines";
const APPROVER: &str = "axel";
/// Holds no grant and is named by no gate.
const STRANGER: &str = "stan";
const BOARD: [&str; 3] = ["axel", "bea", "cleo"];

/// What stands between a command and the state: the kernel as it is, or one of the broken twins.
#[derive(Clone, Copy, PartialEq)]
enum Composition {
    Honest,
    /// Trusts the caller: where the gate is not cleared, it fires all the same.
    FiresUngated,
    /// Fires rightly, and loses the record of it.
    FiresUnaudited,
    /// Leaves a state and forgets the gates that wait there.
    LeavesGatesBehind,
    /// Does not remember that an approval was spent.
    SpendsTwice,
}

struct Gated {
    composition: Composition,
    registry: Registry,
    declaration: Arc<Declaration>,
    gate_spec: GateSpec,
    actors: Vec<&'static str>,
    keeps_records: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    process: Process,
    auditor: Auditor,
    /// (action_ref, actor_ref) of everything recorded so far, where the model keeps it.
    records: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Act {
    actor: &'static str,
    ask: Ask,
}

#[derive(Clone, Debug, PartialEq)]
enum Ask {
    Open(String),
    /// Gate and slot of the step that is named, if one is.
    Decide(String, Decision, Option<(usize, usize)>),
    Fire(String),
}

/// Two guarded exits, a guarded self-loop, a free exit with a way back, and one action that is guarded
/// in two states.
fn single_gates(composition: Composition, keeps_records: bool) -> Gated {
    let transitions = [
        "draft submit review",
        "review release released sign-off",
        "review hold held hold-order",
        "review annotate review note",
        "review recall draft",
        "held release released sign-off",
        "held resume review",
    ];
    let named = |label: &str, approver: &str| {
        (
            label.to_owned(),
            GateEntry::Single { approver_ref: approver.to_owned(), scope: "s".to_owned(), delegable: false },
        )
    };
    Gated {
        composition,
        registry: grants(),
        declaration: Arc::new(declaration("draft review held released", "draft", "released", &transitions)),
        gate_spec: GateSpec(
            [named("sign-off", APPROVER), named("hold-order", APPROVER), named("note", INITIATOR)].into(),
        ),
        actors: vec![INITIATOR, APPROVER, STRANGER],
        keeps_records,
    }
}

/// Two of three must approve: an exit and a self-loop under the same rule, and a free exit.
fn quorum_gates(composition: Composition) -> Gated {
    let transitions =
        ["review release released board", "review annotate review board", "review recall draft", "draft submit review"];
    let approvers = BOARD.map(str::to_owned).to_vec();
    let entry =
        GateEntry::Quorum { approvers, rule: QuorumRule::MOfN { m: 2 }, scope: "s".to_owned(), delegable: false };
    Gated {
        composition,
        registry: grants(),
        declaration: Arc::new(declaration("draft review released", "review", "released", &transitions)),
        gate_spec: GateSpec([("board".to_owned(), entry)].into()),
        actors: vec![INITIATOR, BOARD[0], BOARD[1], BOARD[2], STRANGER],
        keeps_records: false,
    }
}

fn grants() -> Registry {
    registry_with(&[(INITIATOR, "workflows:start"), (INITIATOR, "workflows:open-gate"), (INITIATOR, "workflows:fire")])
}

impl Gated {
    fn start(&self) -> Process {
        let command = Command::StartWorkflow(StartWorkflow {
            source: Source::Inline(self.declaration.clone()),
            subject_ref: "subject".to_owned(),
            gate_spec: self.gate_spec.clone(),
            reason: None,
        });
        let events = decide(&self.registry, None, INITIATOR, Time(0), &command);
        match events.as_deref().map(|events| events.first().and_then(Process::begin)) {
            Ok(Some(process)) => process,
            other => panic!("the model does not start: {other:?}"),
        }
    }

    fn ask(&self, process: &Process, actor: &str, command: &Command) -> Result<Vec<Event>, Refusal> {
        let newest = process.gates.iter().map(|gate| gate.opened_at).max().unwrap_or_default();
        // Far from the times that normalising gives out, so that new ids differ from renamed ones.
        let now = Time(newest.0.max(1_000_000) + 1);
        decide(&self.registry, Some(process), actor, now, command)
    }

    /// (what happened to the process, what was recorded of it)
    fn perform(&self, process: &Process, act: &Act) -> Option<(Vec<Event>, Vec<Event>)> {
        let command = command(process, &act.ask)?;
        let events = match (self.ask(process, act.actor, &command), self.composition) {
            (Ok(events), _) => events,
            (Err(refusal), Composition::FiresUngated) if refusal.code == Code::GateNotCleared => {
                let mut gullible = process.clone();
                let mut declaration = (*gullible.declaration).clone();
                declaration.transitions.iter_mut().for_each(|transition| transition.guard = None);
                gullible.declaration = Arc::new(declaration);
                self.ask(&gullible, act.actor, &command).ok()?
            }
            (Err(_), _) => return None,
        };
        let mut events = events;
        if self.composition == Composition::LeavesGatesBehind {
            let moved = events.iter().any(|event| matches!(event.body, EventBody::TransitionFired { .. }));
            events.retain(|event| !moved || event.actor_ref != APPLICATION);
        }
        let mut recorded = events.clone();
        if self.composition == Composition::FiresUnaudited {
            recorded.retain(|event| !matches!(event.body, EventBody::TransitionFired { .. }));
        }
        Some((events, recorded))
    }
}

fn command(process: &Process, ask: &Ask) -> Option<Command> {
    Some(match ask {
        Ask::Open(action) => Command::OpenGate(OpenGate { action: action.clone(), reason: None, request: None }),
        Ask::Fire(action) => Command::FireTransition(FireTransition { action: action.clone(), reason: None }),
        Ask::Decide(action, decision, which) => Command::DecideGate(DecideGate {
            action: action.clone(),
            decision: *decision,
            reason: Some("because".to_owned()),
            step: match which {
                None => None,
                Some((gate, slot)) => Some(StepChoice::Id(process.gates.get(*gate)?.steps.get(*slot)?.step_id)),
            },
            request_digest: None,
        }),
    })
}

impl Model for Gated {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut process = self.start();
        let mut auditor = Auditor::default();
        normalise::normalise(&mut process, &mut auditor);
        vec![State { process, auditor, records: vec![] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        let mut names: Vec<&String> = self.declaration.transitions.iter().map(|t| &t.action).collect();
        names.sort();
        names.dedup();
        for actor in self.actors.iter().copied() {
            for name in &names {
                let mut add = |ask| actions.push(Act { actor, ask });
                add(Ask::Open((*name).clone()));
                add(Ask::Fire((*name).clone()));
                for decision in Decision::ALL {
                    add(Ask::Decide((*name).clone(), *decision, None));
                }
            }
            for (i, gate) in state.process.gates.iter().enumerate() {
                for slot in 0..gate.steps.len() {
                    let ask = |decision: &Decision| Ask::Decide(gate.action.clone(), *decision, Some((i, slot)));
                    actions.extend(Decision::ALL.iter().map(|decision| Act { actor, ask: ask(decision) }));
                }
            }
        }
    }

    fn next_state(&self, state: &State, act: Act) -> Option<State> {
        let (applied, recorded) = self.perform(&state.process, &act)?;
        let State { mut process, mut auditor, mut records } = state.clone();
        applied.iter().for_each(|event| process.apply(event));
        if self.composition == Composition::SpendsTwice {
            let spent = process.gates.iter_mut().filter(|gate| gate.fate == Fate::Consumed);
            spent.for_each(|gate| gate.fate = Fate::Unspent);
        }
        let grants = Grants { may_advance: &[INITIATOR], application: APPLICATION };
        auditor.watch(&grants, &state.process, &process, &applied, &recorded);
        if self.keeps_records {
            records.extend(recorded.iter().map(|event| (action_ref(&event.body), event.actor_ref.clone())));
        }
        normalise::normalise(&mut process, &mut auditor);
        Some(State { process, auditor, records })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        properties.extend([
            Property::sometimes("a guarded release happens", |_, s: &State| s.process.current_state == "released"),
            Property::sometimes("a pending gate becomes moot", |_, s| noted(s, Note::MootedPending)),
            Property::sometimes("an approved gate becomes moot", |_, s| noted(s, Note::MootedApproved)),
            Property::sometimes("a gate is opened again", |_, s| noted(s, Note::Reopened)),
            Property::sometimes("a self-loop leaves the other gates alone", |_, s| {
                noted(s, Note::SelfLooped) && s.process.gates.iter().any(|gate| gate.pending_steps().next().is_some())
            }),
        ]);
        let has_quorum = self.gate_spec.0.values().any(|entry| matches!(entry, GateEntry::Quorum { .. }));
        if has_quorum {
            properties.extend([
                Property::sometimes("a decision trails", |_, s: &State| noted(s, Note::Trailing)),
                Property::sometimes("what is left of a chain is withdrawn", |_, s| noted(s, Note::RestWithdrawn)),
                Property::sometimes("a chain is withdrawn", |_, s| in_chain(s, ChainState::Withdrawn)),
                Property::sometimes("a chain is rejected", |_, s| in_chain(s, ChainState::Rejected)),
            ]);
        }
        properties
    }
}

/// What holds in every state, whoever asked for what in whatever order.
fn promises() -> Vec<Property<Gated>> {
    vec![
        Property::always(GATE_CLEARANCE, |_, s: &State| !broken(s, Breach::Ungated)),
        Property::always(FIRED_IS_AUDITED, |_, s| !broken(s, Breach::Unaudited)),
        Property::always(ONE_FIRING, |_, s| !broken(s, Breach::Reused)),
        Property::always("only declared transitions", |_, s| !broken(s, Breach::Undeclared)),
        Property::always(TERMINAL_ABSORBS, |_, s| !broken(s, Breach::AfterTerminal)),
        Property::always("only who may, acts", |_, s| !broken(s, Breach::Unauthorised)),
        Property::always("a step is decided once", |_, s| !broken(s, Breach::Redecided)),
        Property::always("no waiting gate is forgotten", |_, s| !broken(s, Breach::Forgotten)),
        Property::always(NOTHING_LEFT_WAITING, |_, s: &State| {
            let left = |from_state: &str| from_state != s.process.current_state;
            let process = s.process.gates.iter().filter(|gate| left(&gate.from_state));
            let seen = s.auditor.gates.iter().filter(|gate| left(&gate.from_state));
            process
                .flat_map(|gate| &gate.steps)
                .all(|step| step.state != StepState::Pending && step.assignment.is_none())
                && seen.flat_map(|gate| &gate.steps).all(|step| step.active.is_empty())
        }),
        Property::always("at most one active assignment per step", |_, s: &State| {
            s.auditor.gates.iter().flat_map(|gate| &gate.steps).all(|step| step.active.len() <= 1)
        }),
        Property::always("a waiting step is in its approver's in-tray, and no other", |_, s: &State| {
            s.auditor.gates.iter().all(|gate| {
                gate.steps.iter().all(|step| {
                    let waits = step.state == StepState::Pending && !gate.resolved;
                    step.active.len() == usize::from(waits)
                })
            })
        }),
        Property::always(STATE_IS_THE_RECORD, |_, s: &State| {
            s.process.gates.len() == s.auditor.gates.len()
                && s.process.gates.iter().zip(&s.auditor.gates).all(|(gate, seen)| {
                    let consumed = (gate.fate == Fate::Consumed) == (seen.firings == 1);
                    let steps = gate.steps.iter().zip(&seen.steps);
                    consumed
                        && steps.into_iter().all(|(step, seen)| {
                            (step.state, step.assignment) == (seen.state, seen.active.first().copied())
                        })
                })
        }),
        Property::always("who did nothing is in no record", |_, s: &State| {
            s.records.iter().all(|(_, actor)| actor != STRANGER)
        }),
        Property::always("the application actor only recalls", |_, s: &State| {
            let recalls = ["moot_gate_recalled", "chain_resolved", "step_decided", "step_withdrawn"];
            s.records.iter().all(|(action, actor)| actor != APPLICATION || recalls.contains(action))
        }),
        Property::always("one current gate per transition", |_, s: &State| {
            s.process.gates.iter().filter(|gate| gate.current).all(|gate| {
                let same = |other: &&countersign_kernel::process::Gate| {
                    other.current && (&other.from_state, &other.action) == (&gate.from_state, &gate.action)
                };
                s.process.gates.iter().filter(same).count() == 1
            })
        }),
    ]
}

const GATE_CLEARANCE: &str = "a guarded transition fires only on its approval";
const FIRED_IS_AUDITED: &str = "what fired is recorded, once";
const ONE_FIRING: &str = "one approval, one firing";
const TERMINAL_ABSORBS: &str = "terminal absorbs";
const NOTHING_LEFT_WAITING: &str = "nothing waits in a state that was left";
const STATE_IS_THE_RECORD: &str = "the process says of its gates what the records say";

fn broken(state: &State, breach: Breach) -> bool {
    state.auditor.breaches.contains(&breach)
}

fn noted(state: &State, note: Note) -> bool {
    state.auditor.notes.contains(&note)
}

fn in_chain(state: &State, expected: ChainState) -> bool {
    let is_it = |kind: &GateKind| matches!(kind, GateKind::Quorum { state, .. } if *state == expected);
    state.process.gates.iter().any(|gate| is_it(&gate.kind))
}

fn action_ref(body: &EventBody) -> &'static str {
    match body {
        EventBody::WorkflowStarted { .. } => "workflow_started",
        EventBody::ChainInitiated { .. } => "chain_initiated",
        EventBody::GateOpened { .. } => "gate_opened",
        EventBody::GateDecided { .. } => "gate_decided",
        EventBody::StepDecided { .. } => "step_decided",
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

/// Commands within which every broken twin shows all that it breaks.
const DEEP_ENOUGH: usize = 7;

/// Explores all of it, or every history of at most `commands` accepted commands.
fn check(model: Gated, commands: Option<usize>) -> impl Checker<Gated> {
    let builder = model.checker();
    match commands {
        None => builder.spawn_bfs().join(),
        // The checker counts states from 1 and does not look at those of the last depth.
        Some(commands) => builder.target_max_depth(commands + 2).spawn_bfs().join(),
    }
}

/// The always-properties for which the checker found a counterexample.
fn broken_promises(checker: &impl Checker<Gated>) -> Vec<&'static str> {
    let properties = checker.model().properties();
    let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    always.map(|property| property.name).filter(|name| checker.discovery(name).is_some()).collect()
}

#[test]
fn single_gates_hold_in_histories_of_any_length() {
    let checker = check(single_gates(Composition::Honest, false), None);
    checker.assert_properties();
    println!("single gates: {} unique states, the whole space", checker.unique_state_count());
    assert!(checker.unique_state_count() > 1_000, "the space is not trivial");
}

#[test]
fn single_gates_hold_with_the_whole_record_kept() {
    const COMMANDS: usize = 6;
    let checker = check(single_gates(Composition::Honest, true), Some(COMMANDS));
    checker.assert_properties();
    println!("with their records: {} unique states, {COMMANDS} commands deep", checker.unique_state_count());
}

#[test]
fn a_quorum_of_two_out_of_three_holds() {
    const COMMANDS: usize = 7;
    let checker = check(quorum_gates(Composition::Honest), Some(COMMANDS));
    checker.assert_properties();
    println!("two of three: {} unique states, {COMMANDS} commands deep", checker.unique_state_count());
}

#[test]
fn a_twin_that_fires_ungated_is_caught_for_exactly_that() {
    let checker = check(single_gates(Composition::FiresUngated, false), Some(DEEP_ENOUGH));
    assert_eq!(broken_promises(&checker), [GATE_CLEARANCE]);
    println!("fires ungated: caught among {} unique states", checker.unique_state_count());

    let checker = check(quorum_gates(Composition::FiresUngated), Some(5));
    assert_eq!(broken_promises(&checker), [GATE_CLEARANCE]);
}

#[test]
fn a_twin_that_fires_unaudited_is_caught_for_exactly_that() {
    let checker = check(single_gates(Composition::FiresUnaudited, false), Some(DEEP_ENOUGH));
    assert_eq!(broken_promises(&checker), [FIRED_IS_AUDITED]);
    println!("fires unaudited: caught among {} unique states", checker.unique_state_count());

    let checker = check(quorum_gates(Composition::FiresUnaudited), Some(5));
    assert_eq!(broken_promises(&checker), [FIRED_IS_AUDITED]);
}

/// The twins of the seed break its two invariants; the promises beside them have teeth as well.
#[test]
fn twins_that_forget_are_caught() {
    let checker = check(single_gates(Composition::LeavesGatesBehind, false), Some(DEEP_ENOUGH));
    // A gate left behind can even be decided after the end.
    assert_eq!(broken_promises(&checker), [TERMINAL_ABSORBS, NOTHING_LEFT_WAITING]);

    let checker = check(single_gates(Composition::SpendsTwice, false), Some(DEEP_ENOUGH));
    assert_eq!(broken_promises(&checker), [ONE_FIRING, STATE_IS_THE_RECORD]);
}
