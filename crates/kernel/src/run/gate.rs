//! Gates of a run: the same approval steps, quorums and records as a process has, on the run's shell.

use super::correct::REOPEN;
use super::flow::{By, Flow, SYSTEM, broken};
use super::guard::Approval;
use super::operator::ESCALATE;
use super::stop::{RESUME, VOID, label_of};
use super::{Action, Cell, Context, Event, Run, alive, known, permitted};
use crate::declaration::{Declaration, Transition};
use crate::gate_spec::GateSpec;
use crate::id::StepId;
use crate::lifecycle::{FailureCategory, RunState, StepCode};
use crate::machine::StepState;
use crate::plan::{Plan, StepSeq, StepSpec, Work};
use crate::process::{self, DecideGate, EventBody, GateStatus, OpenGate, Process, Request};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::registry::scopes;
use crate::text::json_string;

/// The only state of a shell.
pub const SHELL_STATE: &str = "run";
/// The gate that a cancellation needs, where the plan declares it.
pub const CANCEL: &str = "cancel";

/// The shell of a plan's runs: a guarded self-loop for every gate, and who decides it.
pub fn shell_declaration(plan: &Plan) -> (Declaration, GateSpec) {
    let mut gate_spec = plan.gate_spec.clone();
    let mut transitions = Vec::new();
    let mut guard = |action: &str, label: &str| {
        transitions.push(Transition {
            from_state: SHELL_STATE.to_owned(),
            action: action.to_owned(),
            to_state: SHELL_STATE.to_owned(),
            guard: Some(label.to_owned()),
            effects: vec![],
        });
    };
    for step in &plan.steps {
        match (&step.work, &step.gate) {
            (Work::Approval(entry), _) => {
                let label = format!("approval:{}", step.name);
                guard(&step.name, &label);
                gate_spec.0.insert(label, entry.clone());
            }
            (_, Some(label)) => guard(&step.name, label),
            (_, None) => {}
        }
    }
    if plan.gate_spec.0.contains_key(CANCEL) {
        guard(CANCEL, CANCEL);
    }
    for action in [RESUME, VOID] {
        if let Some(label) = label_of(plan, action) {
            guard(action, label);
        }
    }
    // A gate of its own for each step: an approval to reopen one is none to reopen another.
    for label in [REOPEN, ESCALATE] {
        if plan.gate_spec.0.contains_key(label) {
            plan.steps.iter().for_each(|step| guard(&format!("{label}:{}", step.name), label));
        }
    }
    let declaration = Declaration {
        states: vec![SHELL_STATE.to_owned()],
        transitions,
        initial_state: SHELL_STATE.to_owned(),
        terminal_states: vec![],
    };
    // Entries for what no gate asks (yet) stay in the plan.
    let labels: Vec<String> = declaration.guard_labels().into_iter().map(str::to_owned).collect();
    gate_spec.0.retain(|label, _| labels.contains(label));
    (declaration, gate_spec)
}

/// Opens a gate that does not open by itself: that of a cancellation, of a reopening, of a late escalation.
pub fn open(
    target: Option<(&Process, &Run)>,
    command: &OpenGate,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_ref("action", &command.action)?;
    require_optional_text("reason", command.reason.as_deref())?;
    let (shell, run) = permitted(target, scopes::RUNS_CONTROL, ctx)?;
    let void = command.action == VOID && run.guards(VOID);
    let voidable = void && matches!(run.head.state, RunState::Failed | RunState::Cancelled);
    if run.head.state.is_ended() && !voidable {
        let detail = format!("the run has ended ({}); no gate can be opened any more", run.head.state);
        return Err(Refusal::new(Code::GateNotAvailable, detail));
    }
    let resume = command.action == RESUME && run.guards(RESUME);
    if [RESUME, VOID].contains(&command.action.as_str()) && !void && !resume {
        let detail = format!("nobody is asked before this run is {}d: there is no such gate", command.action);
        return Err(Refusal::new(Code::GateNotAvailable, detail).at("action"));
    }
    if resume && run.head.state != RunState::Stopped {
        let detail = format!("the run is {}; there is nothing to resume", run.head.state);
        return Err(Refusal::new(Code::GateNotAvailable, detail).at("action"));
    }
    if let Some(seq) = run.plan.step_named(&command.action)
        && run.cell(seq).is_none_or(|cell| cell.state != StepCode::Blocked)
    {
        let detail = format!("the gate of the step `{}` opens by itself when its turn comes", command.action);
        return Err(Refusal::new(Code::GateNotAvailable, detail).at("action"));
    }
    if let Some((label, step)) = command.action.split_once(':')
        && let Some(seq) = run.plan.step_named(step)
    {
        let wanted: &[StepCode] = match label {
            REOPEN => &[StepCode::Completed, StepCode::CannotComplete],
            _ => &[StepCode::Blocked],
        };
        // A task that was declared impossible is reopened with its step's approval.
        let impossible = |task| run.cell(task).is_some_and(|cell: &Cell| cell.state == StepCode::CannotComplete);
        let of_task = label == REOPEN && run.plan.tasks_of(seq).any(impossible);
        if !of_task && run.cell(seq).is_none_or(|cell| !wanted.contains(&cell.state)) {
            let detail = format!("there is nothing to {label}: `{step}` is not {}", wanted[0]);
            return Err(Refusal::new(Code::GateNotAvailable, detail).at("action"));
        }
    }
    let own = run.plan.step_named(&command.action).and_then(|seq| run.plan.step(seq));
    if command.request.is_some() && (resume || void || own.is_some()) {
        let detail = "what the approver of this gate is asked follows from the run: leave out `request`";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("request"));
    }
    let request = {
        let flow = Flow::new(shell, run, ctx);
        let reason = command.reason.as_deref();
        match (resume, void, run.head.outcome, own) {
            (true, _, Some(outcome), _) => flow.stop_request(outcome, reason),
            (_, true, ..) => flow.void_request(reason),
            (.., Some(spec)) => flow.step_request(spec).map_err(no_request)?,
            _ => command.request.clone().unwrap_or_else(|| {
                let step = command.action.split_once(':').and_then(|(_, step)| run.plan.step_named(step));
                flow.operator_request(step.and_then(|seq| Some((seq, run.plan.step(seq)?))), reason)
            }),
        }
    };
    let events = process::open_any_gate(shell, command, Some(request), &mut ctx.base)?;
    Ok(events.into_iter().map(Event::Gate).collect())
}

/// The named approver decides; the step behind the gate follows in the same commit.
pub fn decide(
    target: Option<(&Process, &Run)>,
    command: &DecideGate,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = known(target)?;
    let decided = process::decide(Some(shell), &process::Command::DecideGate(command.clone()), &mut ctx.base)?;
    let after = super::advance::shell_after(shell, &decided);
    let status = after.gate(SHELL_STATE, &command.action).map(process::Gate::status);
    let mut events: Vec<Event> = decided.into_iter().map(Event::Gate).collect();
    let blocked = run
        .plan
        .step_named(&command.action)
        .filter(|seq| alive(run).is_ok() && run.cell(*seq).is_some_and(|cell| cell.state == StepCode::Blocked));
    let (Some(seq), Some(status)) = (blocked, status) else { return Ok(events) };
    let actor_ref = ctx.base.application_actor_ref.to_owned();
    let mut flow = Flow::new(&after, run, ctx);
    match status {
        GateStatus::Pending => return Ok(events),
        // It is spent when its pins were looked at, and not before: in a run that was stopped, after it goes on.
        GateStatus::Approved if flow.has_pins() => {
            if flow.head.state != RunState::Stopped {
                flow.ask_survey(seq)?;
            }
            events.extend(flow.finish(Action::SurveyMoved, &actor_ref, None));
            return Ok(events);
        }
        GateStatus::Approved => {
            flow.consume(&command.action)?;
            let spec = flow.spec(seq).cloned().ok_or_else(broken)?;
            flow.make_ready(seq, &spec, By(SYSTEM, "gate_cleared"))?;
        }
        GateStatus::Rejected | GateStatus::Withdrawn => {
            let error = if status == GateStatus::Rejected { "REJECTED" } else { "WITHDRAWN" };
            flow.fail(seq, error, FailureCategory::Governance, By(SYSTEM, "gate_rejected"))?;
        }
    }
    flow.advance()?;
    events.extend(flow.finish(Action::GateFollowed, &actor_ref, None));
    Ok(events)
}

fn no_request(error: String) -> Refusal {
    Refusal::new(Code::GateNotAvailable, error).at("action")
}

impl Flow<'_, '_, '_> {
    /// The step's own gate, opened by the engine.
    pub fn open_step_gate(&mut self, seq: StepSeq, spec: &StepSpec) -> Result<(), Refusal> {
        match self.step_request(spec) {
            Ok(request) => self.open_gate(&spec.name, request),
            Err(error) => self.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, "expression_error")),
        }
    }

    pub fn open_gate(&mut self, action: &str, request: Request) -> Result<(), Refusal> {
        let command = OpenGate { action: action.to_owned(), reason: None, request: None };
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let opened = process::open_any_gate(&shell, &command, Some(request), &mut self.ctx.base)?;
        let application = self.ctx.base.application_actor_ref.to_owned();
        self.gate_events
            .extend(opened.into_iter().map(|event| process::Event { actor_ref: application.clone(), ..event }));
        Ok(())
    }

    /// An approval is good for one firing: the gate's self-loop.
    pub fn consume(&mut self, action: &str) -> Result<(), Refusal> {
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let gate = shell.gate(SHELL_STATE, action).filter(|gate| gate.is_cleared()).ok_or_else(broken)?;
        let fired = process::Event {
            actor_ref: self.ctx.base.application_actor_ref.to_owned(),
            at: self.ctx.base.now,
            body: EventBody::TransitionFired {
                transition_id: self.ctx.base.ids.make(),
                sequence_number: shell.next_sequence_number,
                from_state: SHELL_STATE.to_owned(),
                action: action.to_owned(),
                to_state: SHELL_STATE.to_owned(),
                gate: Some(gate.gate_ref()),
                reason: None,
                effects: vec![],
                attachment: None,
            },
        };
        self.gate_events.push(fired);
        Ok(())
    }

    /// What an approval yields: who decided on its gate, when and why.
    pub fn approval(&self, action: &str) -> String {
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let decision = |step: &process::Step| {
            let decided = step.decided.as_ref()?;
            let decision = if step.state == StepState::Approved { "approve" } else { "reject" };
            let reason = decided.reason.as_ref().map(|reason| format!(r#","reason":{}"#, json_string(reason)));
            Some(format!(
                r#"{{"approver_ref":{},"decided_by":{},"decision":"{decision}","decided_at_us":{}{}}}"#,
                json_string(&step.approver_ref),
                json_string(&decided.by),
                decided.at.0,
                reason.unwrap_or_default()
            ))
        };
        let steps = shell.gate(SHELL_STATE, action).map_or(&[][..], |gate| &gate.steps);
        let decisions: Vec<String> = steps.iter().filter_map(decision).collect();
        format!(r#"{{"approved":true,"decisions":[{}]}}"#, decisions.join(","))
    }

    /// Whether the action's gate was approved, and not spent.
    pub fn is_cleared(&self, action: &str) -> bool {
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        shell.gate(SHELL_STATE, action).is_some_and(process::Gate::is_cleared)
    }

    pub fn has_open_gate(&self, seq: StepSeq) -> bool {
        let gate = self.spec(seq).and_then(|spec| self.shell.gate(SHELL_STATE, &spec.name));
        gate.is_some_and(|gate| gate.status() == GateStatus::Pending && gate.fate == process::Fate::Unspent)
    }

    /// A step that fails while its gate is open leaves nobody to be asked.
    pub fn moot_step_gate(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        if let Some(spec) = self.spec(seq).cloned()
            && self.has_open_gate(seq)
        {
            let shell = super::advance::shell_after(self.shell, &self.gate_events);
            let own = |gate: &process::Gate| gate.action == *spec.name;
            self.gate_events.extend(process::moot_gates(&shell, own, &self.ctx.base));
        }
        Ok(())
    }

    pub fn moot_all_gates(&mut self) {
        if self.shell.gates.is_empty() && self.gate_events.is_empty() {
            return;
        }
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        self.gate_events.extend(process::moot_gates(&shell, |_| true, &self.ctx.base));
    }

    /// Nobody is to be asked any more about a run that has come to its end.
    pub fn moot_open_gates(&mut self) {
        if self.shell.gates.is_empty() && self.gate_events.is_empty() {
            return;
        }
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let open = |gate: &process::Gate| {
            gate.current
                && gate.fate == process::Fate::Unspent
                && matches!(gate.status(), GateStatus::Pending | GateStatus::Approved)
        };
        self.gate_events.extend(process::moot_gates(&shell, open, &self.ctx.base));
    }

    /// The gate's own approval, unspent: the one that is named, or any where none need be.
    pub fn approved(&self, approval: &Approval<'_>) -> Option<StepId> {
        let named = approval.id.and_then(StepId::parse);
        let gate = self.shell.gate(SHELL_STATE, approval.gate).filter(|gate| gate.is_cleared())?;
        let fits = |step: &&process::Step| {
            step.state == StepState::Approved && (!approval.is_named || Some(step.step_id) == named)
        };
        gate.steps.iter().find(fits).map(|step| step.step_id)
    }

    /// Spends the approval that the guard `approval_present` has found.
    pub fn spend(&mut self, approval: &Approval<'_>) -> Result<StepId, Refusal> {
        let step_id = self.approved(approval).ok_or_else(broken)?;
        self.consume(approval.gate)?;
        Ok(step_id)
    }

    /// Where the plan names a gate for it, a cancellation spends a cleared one. To void a run is one too. An approval that the
    /// caller names must be that gate's own.
    pub fn cancel_approval<'g>(&self, id: Option<&'g str>) -> Option<Approval<'g>> {
        let asked = id.is_some() || self.shell.gate_spec.0.contains_key(CANCEL);
        asked.then_some(Approval { gate: CANCEL, id, is_named: id.is_some() })
    }
}
