//! Guards: what must hold for a transition besides its place in the table. A guard is declared once, here: its name, its
//! kind and what it means. The tables name the guards of each transition, and [`evaluate`] asks the facts about each of
//! them. What answers for a run is [`crate::run`]; no other code refuses by a guard.

use super::ActorClass;
use crate::refusal::Refusal;

macro_rules! guards {
    ($($guard:ident = $name:literal, $kind:ident, $meaning:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Guard { $($guard,)* }

        impl Guard {
            pub const ALL: &'static [Guard] = &[$(Guard::$guard,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Guard::$guard => $name,)* }
            }

            const fn guard_kind(self) -> GuardKind {
                match self { $(Guard::$guard => GuardKind::$kind,)* }
            }

            /// What must hold, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Guard::$guard => $meaning,)* }
            }
        }
    };
}

#[derive(Clone, Copy)]
enum GuardKind {
    /// A rule of the configuration: a vocabulary, a policy, what a definition says.
    Config,
    /// A predicate over the run.
    Predicate,
}

#[rustfmt::skip]
guards! {
    PreconditionConfig = "precondition_config", Config, "Every step that this one depends on has ended. A task begins when its step is at work.";
    PredecessorOpen = "predecessor_open", Predicate, "A step before this one was reopened and has not ended.";
    PicResolves = "fn_step_pic_resolves", Predicate, "The person in charge of the step is a registered actor.";
    ActorIsPic = "actor_is_pic", Predicate, "The actor is the person in charge of the step.";
    ExecutorClass = "executor_class_ref", Predicate, "The step is done by a person or a worker, as the transition needs it.";
    RunGoesForward = "run_goes_forward", Predicate, "The run is not undoing its work.";
    RunHandsOut = "run_hands_out_steps", Predicate, "The run is executing; in a paused or stopped run no step begins.";
    PinsSurveyed = "pins_surveyed", Predicate, "The pins of the runbook were surveyed and are equal, and its `hardCap` is not reached.";
    WaitingFacet = "waiting_facet_in_vocab", Config, "The reason for waiting is one of the facets.";
    FacetProof = "facet_resolution_proof", Predicate, "Something shows that the wait is over: an event, the time, the child run, or `evidence_ref`.";
    BlockReason = "block_reason_in_vocab", Config, "The reason of the block is one of the vocabulary, or the policy that forbade the step.";
    GateCleared = "gate_cleared", Predicate, "The gate of the step is approved.";
    BlockerEvidence = "blocker_resolution_evidence", Predicate, "`evidence_ref` names the proof that the block is resolved.";
    DeadlinePassed = "deadline_passed", Predicate, "The deadline of the step has passed.";
    StartDeadlinePassed = "start_deadline_passed", Predicate, "The time in which the step is to be claimed has passed.";
    DeadlineUpdated = "deadline_updated", Predicate, "The new deadline is in the future and later than the old one.";
    TasksCompleted = "tasks_completed", Predicate, "Every task of the step is completed or skipped.";
    CapReached = "cap_reached", Predicate, "A person completes the step before its `softCap` is reached and while its work is not done; a cap stops a run when it is reached.";
    OutputContract = "output_contract_met", Predicate, "The output matches the step's `outputSchema` and `output`.";
    Postcondition = "postcondition_config", Config, "The `checks` of the step hold.";
    CompletedLate = "completed_after_deadline", Predicate, "The step is late; how late is written with its completion.";
    CorrectionReason = "correction_reason_in_vocab", Config, "The reason of the correction is one of the vocabulary.";
    ApprovalPresent = "approval_present", Predicate, "Where an approval is needed, `approval_id` names an unspent one of the right gate.";
    PriorAudit = "prior_audit", Predicate, "The record that closed the step, with its output, belongs to this run.";
    FailureClass = "failure_class_in_registry", Config, "The failure has a category of the registry, which says transient or permanent.";
    RetryBudget = "retry_budget", Predicate, "A worker tries again while another attempt is due; people escalate or order an attempt when none is.";
    OnFailureHold = "on_failure_hold", Predicate, "The run waits for a decision about the failed step.";
    DeclarationEvidence = "declaration_evidence", Predicate, "`evidence_ref` names the proof that the step cannot be completed.";
    EventAwaited = "event_type_awaited", Predicate, "The step waits for an event of this type.";
    LeaseOver = "lease_over", Predicate, "The lease has expired.";
    WaitOver = "wait_over", Predicate, "The time that the step waits for is over.";
    UpstreamOrWhen = "upstream_or_when", Predicate, "Every step before it was skipped, or its `when` is false. A task is skipped with its step.";
    OnFailureSkip = "on_failure_skip", Config, "The step's `onFailure`, or the rule for its error, is `skip`. A task is skipped with its step.";
    ApprovalWhereDeclared = "approval_where_declared", Predicate, "The run was cancelled or voided, with the approval that its definition asks for.";
    TimeoutPassed = "timeout_passed", Predicate, "The `timeout` of the step or of the run has passed.";
    GateDeclared = "gate_declared", Config, "The step has a gate.";
    FailurePolicy = "failure_policy", Config, "A step or the run has failed, and the failure policy leads there.";
    EngineVerdict = "engine_verdict", Predicate, "The engine has judged the attempt: it has a category of failure, or its effect is unknown.";
    EffectUnknown = "effect_unknown", Predicate, "The run waits for the declaration of what became of the step.";
    EffectsKnown = "effects_known", Predicate, "The effect of each attempt without a verdict is declared.";
    UndoUnderWay = "undo_under_way", Predicate, "The compensation has begun and has not ended.";
    InputContract = "input_contract_met", Predicate, "The input matches the definition's `inputSchema`.";
    SlotFree = "slot_free", Predicate, "A slot of the concurrency key is free, and the start time has come.";
    AllCompleted = "all_mandatory_steps_completed", Predicate, "No step of the plan is open.";
    PinsDiffer = "pins_differ", Predicate, "A pin is not as it was approved.";
    ActorIsApprover = "actor_is_approver", Predicate, "The actor is the approver whom the gate names, or the substitute whom that approver named.";
    ActorIsSubmitter = "actor_is_submitter", Predicate, "The actor is the initiator, in whose name the gate was submitted.";
    QuorumRule = "quorum_rule", Predicate, "The decisions settle the rule of the quorum, or the initiator withdraws it.";
    ActorIsProposer = "actor_is_proposer", Predicate, "The actor proposed the change.";
    ActorIsPerson = "actor_is_a_person", Predicate, "The actor is a person; a proposal of an agent is merged by a person too.";
    GateDecided = "gate_decided", Predicate, "The approvers of the proposal have decided.";
    GateApproved = "gate_approved", Predicate, "The approvers of the proposal approved exactly these bytes.";
    ResolvingEvent = "resolving_event", Predicate, "An event opens a problem, and an event resolves it.";
    EventSchema = "event_schema", Config, "The event that the transition emits matches the schema of its type.";
}

impl Guard {
    pub const fn kind(self) -> &'static str {
        match self.guard_kind() {
            GuardKind::Config => "config",
            GuardKind::Predicate => "predicate_fn",
        }
    }

    pub fn named(name: &str) -> Option<Guard> {
        Guard::ALL.iter().copied().find(|guard| guard.name() == name)
    }
}

/// A guard of a row of a table: of all that the row lets act, or of one class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub guard: Guard,
    pub of: Option<ActorClass>,
}

pub(super) const fn all(guard: Guard) -> Asked {
    Asked { guard, of: None }
}

pub(super) const fn of(actor: ActorClass, guard: Guard) -> Asked {
    Asked { guard, of: Some(actor) }
}

/// Those that hold for this class, in the order in which they are asked.
pub fn guards_of(asked: &'static [Asked], actor: ActorClass) -> impl Iterator<Item = Guard> {
    // A task's person in charge is held to what a step's is.
    let actor = if actor == ActorClass::TaskPicHuman { ActorClass::PicHuman } else { actor };
    asked.iter().filter(move |asked| asked.of.is_none_or(|of| of == actor)).map(|asked| asked.guard)
}

/// What is known where a transition is asked for.
pub trait Facts {
    /// Whether the guard holds; otherwise the refusal, which says what would satisfy it.
    fn check(&self, guard: Guard) -> Result<(), Refusal>;
}

/// Asks about every guard. The refusal is that of the first one that does not hold, and carries the others.
pub fn evaluate(guards: impl IntoIterator<Item = Guard>, facts: &dyn Facts) -> Result<(), Refusal> {
    let mut refused = guards.into_iter().filter_map(|guard| facts.check(guard).err());
    match refused.next() {
        None => Ok(()),
        Some(first) => Err(Refusal { also: refused.collect(), ..first }),
    }
}

/// Guards of acts on a step that change no state by themselves, by the name of the act.
pub const STEP_ACTS: &[(&str, &[Guard])] = &[
    ("step_retry", &[Guard::RunGoesForward, Guard::OnFailureHold, Guard::RetryBudget]),
    ("undo_retry", &[Guard::RetryBudget]),
    ("step_block_escalate", &[Guard::ApprovalPresent]),
    ("deadline_extend", &[Guard::DeadlineUpdated]),
    ("effect_declare", &[Guard::EffectUnknown]),
    ("undo_declare", &[Guard::UndoUnderWay]),
];

pub fn guards_of_act(act: &str) -> &'static [Guard] {
    STEP_ACTS.iter().find(|(name, _)| *name == act).map_or(&[], |(_, guards)| *guards)
}

/// What every transition that emits an event is held to, where somebody listens. The engine composes the event and asks.
pub const EVERY_EMITTED: &[Guard] = &[Guard::EventSchema];
