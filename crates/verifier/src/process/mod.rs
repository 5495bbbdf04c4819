//! A process, replayed from its records: only declared moves, gates opened and decided by whom the gate_spec names,
//! approvals spent once, moot gates withdrawn. A file per kind of record; `Process::take` is the way in.

mod decide;
pub mod document;
mod fire;
pub mod gate;
mod open;
pub mod proposal;
mod purged;
pub mod quorum;
pub mod replay;
mod request;
mod start;
mod substitute;

use crate::bytes::{Digest, Id};
use crate::finding::{Claim, Code, Findings};
use crate::json::Value;
use crate::record::{Action, Header, Record};
use crate::registry::Registry;
use document::{Declaration, Documents, GateSpec};
use gate::{Gate, Gates, Step};
use quorum::{Rule, State};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Names that appear again and again are kept once.
#[derive(Debug, Default)]
pub struct Names(HashSet<Rc<str>>);

impl Names {
    pub fn get(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let name: Rc<str> = name.into();
        self.0.insert(name.clone());
        name
    }

    /// After a process: its subject does not come again.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

pub struct Context<'a> {
    pub registry: &'a Registry,
    pub documents: &'a Documents,
    pub names: &'a mut Names,
    pub findings: &'a mut Findings,
}

/// Kinds of records, as a set: what was purged of a process, and what a judgement depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub const NONE: Kinds = Kinds(0);
    pub const STARTED: Kinds = Kinds(1);
    pub const OPENED: Kinds = Kinds(2);
    pub const DECIDED: Kinds = Kinds(4);
    pub const FIRED: Kinds = Kinds(8);
    pub const MOOTED: Kinds = Kinds(16);
    /// What a run's steps did.
    pub const RAN: Kinds = Kinds(32);

    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub const fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    fn of(action: Action) -> Kinds {
        match action {
            Action::WorkflowStarted | Action::RunStarted => Kinds::STARTED,
            Action::GateOpened | Action::ChainInitiated => Kinds::OPENED,
            Action::GateDecided
            | Action::StepApproved
            | Action::StepRejected
            | Action::StepWithdrawn
            | Action::ChainResolved
            | Action::ChainWithdrawn => Kinds::DECIDED,
            Action::TransitionFired => Kinds::FIRED,
            Action::MootGateRecalled => Kinds::MOOTED,
            action if action.is_run() => Kinds::RAN,
            _ => Kinds::NONE,
        }
    }

    /// The claims that cannot be verified without the content of such a record.
    fn claims(self) -> &'static [Claim] {
        use Claim::{ApprovalGated, Completeness, Coverage, DeclaredPath};
        match self {
            Kinds::STARTED | Kinds::FIRED | Kinds::RAN => &[ApprovalGated, DeclaredPath, Completeness, Coverage],
            Kinds::OPENED | Kinds::DECIDED => &[ApprovalGated, Completeness, Coverage],
            Kinds::MOOTED => &[Completeness, Coverage],
            _ => &[],
        }
    }
}

#[derive(Debug)]
pub struct Begun {
    pub event_id: Id,
    pub initiator: Rc<str>,
    pub at_us: i64,
    pub registry_seq: u64,
}

#[derive(Debug)]
pub struct Started {
    pub subject_ref: Rc<str>,
    pub definition: Option<Rc<str>>,
    pub declaration_digest: Digest,
    pub gate_spec_digest: Digest,
    /// Guards whose approvers are not those of the definition.
    pub replaced: Vec<Rc<str>>,
}

/// What a firing caused beside the move.
#[derive(Debug)]
pub struct Caused {
    pub transition_id: Id,
    /// Its place among the effects of the firing.
    pub place: i64,
    /// `name@2`; None: it sent an event.
    pub starts: Option<String>,
}

#[derive(Debug)]
pub struct Fired {
    pub event_id: Id,
    pub transition_id: Id,
    pub sequence_number: u64,
    pub from_state: Rc<str>,
    pub action: Rc<str>,
    pub to_state: Rc<str>,
    pub at_us: i64,
    pub by: Rc<str>,
    pub guarded: bool,
    pub step_id: Option<Id>,
    pub chain_id: Option<Id>,
}

/// What the command whose records are arriving still owes.
#[derive(Debug, Default)]
struct Command {
    /// A chain that was initiated; its `gate_opened` follows.
    chain: Option<ChainOpening>,
    /// A step or chain that was decided; its `gate_decided` follows.
    decision: Option<Owed>,
    /// The outcome that the decision gave a chain; its `chain_resolved` follows.
    resolution: Option<(Id, State)>,
    /// The state that the command left.
    left: Option<Rc<str>>,
    /// Its firing was purged: any state may have been left.
    left_unknown: bool,
    /// Chains that were resolved for being moot; their `moot_gate_recalled` follows.
    moot: Vec<Id>,
    /// Steps that a chain's end withdrew, and in which words; a record of each follows.
    withdrawn: Vec<Withdrawn>,
}

#[derive(Debug)]
struct Withdrawn {
    step_id: Id,
    chain_id: Id,
    /// Who ended the chain, and so writes the step's record.
    by: Rc<str>,
    reason: gate::Reason,
    recorded: bool,
}

#[derive(Debug)]
struct ChainOpening {
    chain_id: Id,
    action: Rc<str>,
    scope: Rc<str>,
    rule: Rule,
    steps: Vec<(Id, Id, Rc<str>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Owed {
    chain_id: Id,
    step_id: Option<Id>,
    state: State,
    by: Rc<str>,
    reason: gate::Reason,
    mandate: Option<substitute::Mandate>,
}

#[derive(Debug)]
pub struct Process {
    pub instance_id: Id,
    /// Who started it, and when: the header tells, purged or not.
    pub begun: Option<Begun>,
    pub started: Option<Started>,
    pub declaration: Option<Rc<Declaration>>,
    pub gate_spec: Option<Rc<GateSpec>>,
    /// Where replay stands; None where purged records hide it.
    pub state: Option<Rc<str>>,
    next_number: u64,
    pub fired: Vec<Fired>,
    pub effects: Vec<Caused>,
    /// The types of the events that its firings sent.
    pub sent: HashSet<String>,
    spent: HashMap<Id, u64>,
    pub gates: Gates,
    /// What each gate asks, by digest.
    requests: HashMap<String, Option<String>>,
    command: Command,
    last: Option<Header>,
    /// Decisions without content that could explain an approval.
    purged_decisions: Vec<purged::Decision>,
    /// What was purged so far.
    pub purged: Kinds,
    /// Records without content, by id, and of what kind.
    pub purged_events: HashMap<Id, Kinds>,
    /// Which edition of `spec/record.md` it began under.
    rules: i64,
    /// What it proposes, where it is a proposal.
    proposal: proposal::Proposal,
    /// Where it is a request to replay a dead letter.
    pub replay: replay::Replay,
    /// It is the shell of a run: its only state is never left, and its gates belong to steps.
    pub is_run: bool,
}

impl Process {
    pub fn new(instance_id: Id) -> Self {
        Process {
            instance_id,
            begun: None,
            started: None,
            declaration: None,
            gate_spec: None,
            state: None,
            next_number: 1,
            fired: vec![],
            effects: vec![],
            sent: HashSet::new(),
            spent: HashMap::new(),
            gates: Gates::default(),
            requests: HashMap::new(),
            command: Command::default(),
            last: None,
            purged_decisions: vec![],
            purged: Kinds::NONE,
            purged_events: HashMap::new(),
            rules: 1,
            proposal: proposal::Proposal::default(),
            replay: replay::Replay::default(),
            is_run: false,
        }
    }

    /// The name of the definition it came from, without version.
    pub fn definition_name(&self) -> Option<&str> {
        let definition = self.started.as_ref()?.definition.as_deref()?;
        definition.rsplit_once('@').map(|(name, _)| name)
    }

    /// The edition of `record.md` that it began under.
    pub fn rules(&self) -> i64 {
        self.rules
    }

    /// Whom the gate_spec names for this label.
    pub fn approvers_of(&self, label: &str) -> &[String] {
        self.gate_spec.as_ref().and_then(|spec| spec.0.get(label)).map_or(&[], |entry| &entry.approvers)
    }

    /// The time of its last record.
    pub fn last_us(&self) -> Option<i64> {
        self.last.as_ref().map(|last| last.recorded_at_us)
    }

    /// It is where nothing leaves.
    pub fn has_ended(&self) -> bool {
        let declaration = self.declaration.as_ref().zip(self.state.as_ref());
        declaration.is_some_and(|(declaration, state)| declaration.is_terminal(state))
    }

    pub fn is_start_purged(&self) -> bool {
        self.purged.meets(Kinds::STARTED)
    }

    /// Takes the next record of the chain.
    pub fn take(&mut self, record: &Record, ctx: &mut Context<'_>) {
        let header = &record.header;
        if self.last.as_ref().is_some_and(|last| last.recorded_at_us != header.recorded_at_us) {
            self.end_command(ctx);
        }
        if header.sequence == 1 && matches!(header.action, Action::WorkflowStarted | Action::RunStarted) {
            self.is_run = header.action == Action::RunStarted;
            let (event_id, initiator) = (header.event_id, header.actor_ref.clone());
            self.begun =
                Some(Begun { event_id, initiator, at_us: header.recorded_at_us, registry_seq: header.registry_seq });
        }
        if Kinds::of(header.action) != Kinds::NONE {
            ctx.findings.checked(Claim::Completeness);
        }
        match (&record.content, record.payload()) {
            (None, _) => self.take_purged(header, ctx),
            (Some(_), Some(payload)) => {
                self.check_request(record, payload, ctx);
                self.take_payload(header, payload, ctx);
            }
            // Not readable, and found so before.
            (Some(_), None) => {}
        }
        self.take_proposal(record, ctx);
        self.take_replay(record, ctx);
        self.last = Some(header.clone());
    }

    fn take_payload(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        let stated = payload.get("instance_id");
        let needed = !matches!(header.action, Action::AttemptRefused);
        if (needed || stated.is_some()) && stated.and_then(Value::as_text) != Some(&header.instance_id.to_string()) {
            ctx.findings.find(Code::BundleForm, header, "the payload's instance_id is not the header's");
        }
        if header.sequence == 1 && !matches!(header.action, Action::WorkflowStarted | Action::RunStarted) {
            ctx.findings.find(Code::RecordMissing, header, "the chain does not begin with its start");
        }
        if header.action.is_run() && !self.is_run {
            let detail = format!("a `{}` among the records of a process", header.action.as_str());
            ctx.findings.find(Code::RecordMissing, header, detail);
        }
        let taken = match header.action {
            Action::WorkflowStarted => self.start(header, payload, ctx),
            Action::RunStarted => self.start_run(header, payload, ctx),
            Action::ChainInitiated => self.initiate_chain(header, payload, ctx),
            Action::GateOpened => self.open_gate(header, payload, ctx),
            Action::GateDecided => self.decide_gate(header, payload, ctx),
            Action::StepApproved => self.decide_step(header, payload, State::Approved, ctx),
            Action::StepRejected => self.decide_step(header, payload, State::Rejected, ctx),
            Action::StepWithdrawn => self.decide_step(header, payload, State::Withdrawn, ctx),
            Action::ChainResolved => self.resolve_chain(header, payload, ctx),
            Action::ChainWithdrawn => self.withdraw_chain(header, payload, ctx),
            Action::TransitionFired => self.fire(header, payload, ctx),
            Action::MootGateRecalled => self.recall_moot(header, payload, ctx),
            _ => Some(()),
        };
        if taken.is_none() {
            let detail = format!("the payload is not that of a `{}`", header.action.as_str());
            ctx.findings.find(Code::BundleForm, header, detail);
        }
    }

    /// After the last record of a command: nothing may be owed any more.
    fn end_command(&mut self, ctx: &mut Context<'_>) {
        let Some(last) = self.last.clone() else { return };
        let command = std::mem::take(&mut self.command);
        let mut owed = Vec::new();
        if let Some(chain) = command.chain {
            owed.push((Kinds::OPENED, format!("chain {} was initiated, but no `gate_opened` follows", chain.chain_id)));
        }
        if let Some(decision) = command.decision {
            let of = decision.step_id.unwrap_or(decision.chain_id);
            owed.push((Kinds::DECIDED, format!("{of} was decided, but no `gate_decided` follows")));
        }
        if let Some((chain_id, outcome)) = command.resolution {
            let detail =
                format!("the decision makes chain {chain_id} {}, but no `chain_resolved` follows", outcome.as_str());
            owed.push((Kinds::DECIDED, detail));
        }
        // Before the second edition no step had one; never have only some of them.
        let some = self.rules >= 2 || command.withdrawn.iter().any(|step| step.recorded);
        for step in command.withdrawn.iter().filter(|step| some && !step.recorded) {
            let detail =
                format!("chain {} withdrew its step {}, which has no `step_withdrawn`", step.chain_id, step.step_id);
            owed.push((Kinds::DECIDED, detail));
        }
        for (kind, detail) in owed {
            self.find(Code::RecordMissing, &last, kind, detail, ctx);
        }
        let mut forgotten = command.moot;
        if let Some(left) = &command.left {
            forgotten.extend(self.gates.left_waiting(left));
        }
        for gate in forgotten {
            let detail = format!("gate {gate} belongs to a state that was left, and is neither consumed nor mooted");
            self.find(Code::AssignmentCoverage, &last, Kinds::MOOTED.and(Kinds::DECIDED), detail, ctx);
        }
    }

    /// After the last record.
    pub fn finish(&mut self, ctx: &mut Context<'_>) {
        self.end_command(ctx);
        self.finish_proposal(ctx);
    }

    /// The initiator, in whose name gates are submitted.
    fn initiator(&self, ctx: &mut Context<'_>) -> Rc<str> {
        self.begun.as_ref().map_or_else(|| ctx.names.get(""), |begun| begun.initiator.clone())
    }
}

impl Command {
    /// Whether it left, or may have left, that state.
    fn leaves(&self, state: &str) -> bool {
        self.left_unknown || self.left.as_deref() == Some(state)
    }
}

/// Most processes are short, and a window holds many: the first few places are taken one by one.
fn push_tight<T>(list: &mut Vec<T>, item: T) {
    if list.len() < 4 {
        list.reserve_exact(1);
    }
    list.push(item);
}

fn id(payload: &Value, name: &str) -> Option<Id> {
    Id::parse(payload.text(name)?)
}

/// Absent or null is None; anything but an id is a fault.
fn optional_id(payload: &Value, name: &str) -> Option<Option<Id>> {
    match payload.given(name) {
        None => Some(None),
        Some(value) => Id::parse(value.as_text()?).map(Some),
    }
}

fn optional_text<'v>(payload: &'v Value, name: &str) -> Option<Option<&'v str>> {
    match payload.given(name) {
        None => Some(None),
        Some(value) => value.as_text().map(Some),
    }
}

fn new_step(step_id: Id, assignment_id: Id, approver: Rc<str>) -> Step {
    Step {
        step_id,
        assignment_id,
        approver,
        state: State::Pending,
        end: None,
        assumed: false,
        recalled_at_us: None,
        recall_unknown: false,
        transfer: None,
    }
}

/// Words for a message.
fn named(gate: &Gate) -> String {
    format!("the gate {} for `{}` in `{}`", gate.id, gate.action, gate.from_state)
}
