//! `start_run`: the whole plan is inserted at once; nothing that comes later asks the definition again.

use super::flow::Flow;
use super::gate::shell_declaration;
use super::guard::{Given, Judged};
use super::{Action, Cell, Context, Event, FromStep, Head, PinnedMachine, Role, Run, Runbook, StartRun, Started};
use crate::lifecycle::{RunState, StepCode};
use crate::plan::{MachineRef, Plan, Scope, StepSeq, Work};
use crate::process::{DefinitionRef, Process};
use crate::refusal::{Code, Refusal, require_ref};
use crate::registry::scopes;
use crate::rollup::{Rollup, Tally};
use crate::text::from_json_string;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const MAX_PRIORITY: u8 = 9;

pub fn decide(command: &StartRun, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_ref("definition", &command.definition)?;
    if let Some(subject_ref) = &command.subject_ref {
        require_ref("subject_ref", subject_ref)?;
    }
    if command.priority.is_some_and(|priority| priority > MAX_PRIORITY) {
        return Err(Refusal::new(Code::InvalidRequest, "`priority` lies between 0 and 9; 9 goes first").at("priority"));
    }
    if command.trace_id.as_deref().is_some_and(|trace_id| !super::is_trace_id(trace_id)) {
        let detail = "a trace_id has 32 hexadecimal digits, in small letters, and is not all zeros";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("traceparent"));
    }
    if !ctx.is_application() {
        ctx.base.require_scope(scopes::RUNS_START, Some(&command.definition))?;
    }
    let registry = ctx.base.registry;
    let definition = registry.definition(&command.definition, command.version).ok_or_else(|| {
        let here = command.version.map_or_else(|| "here".to_owned(), |version| format!("in version {version}"));
        let detail = format!("no workflow named `{}` is published {here}", command.definition);
        Refusal::new(Code::NotKnown, detail).at("definition")
    })?;
    definition.require_usable()?;
    // A child is a part of the run that it belongs to, which goes on.
    if command.parent.is_none() {
        registry.require_live(definition)?;
    }
    if command.by_itself {
        registry.require_unpaused(&definition.name)?;
    }
    let Some(workflow) = &definition.workflow else {
        if definition.machine.is_some() {
            let detail = format!("`{}` is a state machine: a workflow names it with `machine`", command.definition);
            return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
        }
        let detail = format!("`{}` is a process: start it with POST /v1/processes", command.definition);
        return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
    };
    let given = command.plan.as_ref().filter(|(digest, _)| *digest == workflow.document_digest).map(|(_, plan)| plan);
    let Some(plan) = workflow.plan.as_ref().or(given).cloned() else {
        let detail = format!("the plan of `{}` is not at hand; try again", command.definition);
        return Err(Refusal::new(Code::Overloaded, detail));
    };
    if plan.is_runbook() && shell_declaration(&plan).0 != *definition.declaration {
        let detail = format!(
            "`{}` was published before runbooks were resumed by approval; publish it again",
            command.definition
        );
        return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
    }
    if command.dry_run && !plan.is_runbook() {
        let detail = "only a runbook (failurePolicy: fail-closed, order: linear) can be tried without effect";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("dry_run"));
    }
    let machine = match &plan.machine {
        Some(MachineRef { name, version }) => Some(Arc::new(PinnedMachine::of(registry, name, *version)?)),
        None => None,
    };
    if let Some(schema) = &plan.input_schema {
        ctx.language.conforms(schema, &command.input).map_err(|error| {
            Refusal::new(Code::InvalidRequest, format!("the input does not fit the definition's inputSchema: {error}"))
                .at("input")
        })?;
    }
    let run_id = ctx.base.ids.make();
    let definition = DefinitionRef { name: definition.name.clone(), version: definition.version };
    let subject_ref = command.subject_ref.clone().unwrap_or_else(|| format!("run:{run_id}"));
    let started = Started {
        run_id,
        definition,
        plan: plan.clone(),
        machine,
        input: command.input.clone(),
        subject_ref,
        correlation_key: key(&plan.correlation_key, command, ctx, "correlationKey")?,
        corrects: command.corrects,
        continues: command.from_step.as_ref().map(|from| from.run_id),
        trace_id: command.trace_id.clone(),
        origin: command.origin.clone(),
    };
    let concurrency = plan.concurrency.as_ref().map(|concurrency| concurrency.key.clone());
    let concurrency_key = match &command.concurrency_key {
        Some(key) => Some(key.clone()),
        None => key(&concurrency, command, ctx, "concurrency.key")?,
    };
    let shell = shell_of(&started, ctx.base.actor_ref, ctx.base.now);
    let mut run = Run::begin(&started);
    run.head.priority = command.priority.unwrap_or(plan.priority);
    run.head.start_at = command.start_at.filter(|at| *at > ctx.base.now);
    run.head.concurrency_key = concurrency_key;
    run.head.parent.clone_from(&command.parent);
    run.head.runbook = plan.is_runbook().then(|| Box::new(Runbook { dry_run: command.dry_run, ..Runbook::default() }));
    let takes_over = take_over(command, &plan, &mut run)?;

    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(&shell, &run, ctx);
    flow.outputs = takes_over;
    // It was held against its schema above.
    let given = Given { judged: Some(&Judged::Holds), ..Given::default() };
    let fired = flow.fire_run(RunState::Queued, "started", &given)?;
    flow.make_run(fired)?;
    if flow.head.start_at.is_none() && flow.head.concurrency_key.is_none() {
        begin_executing(&mut flow, false)?;
    }
    let mut events = flow.finish(Action::RunStarted, &actor_ref, None);
    for event in &mut events {
        if let Event::Run(event) = event {
            event.cells = all_cells(&run, std::mem::take(&mut event.cells));
            event.started = Some(Box::new(started.clone()));
        }
    }
    // The run comes before its gates: they belong to it.
    events.sort_by_key(|event| matches!(event, Event::Gate(_)));
    Ok(events)
}

/// Every step of the plan and its tasks, with what the start has changed laid over.
fn all_cells(run: &Run, changed: Vec<(StepSeq, Cell)>) -> Vec<(StepSeq, Cell)> {
    let mut cells: Vec<(StepSeq, Cell)> = (0..).zip(run.cells.iter().cloned()).collect();
    for (seq, cell) in changed {
        if let Some(place) = cells.get_mut(seq as usize) {
            place.1 = cell;
        }
    }
    cells
}

fn key(
    template: &Option<crate::plan::Template>,
    command: &StartRun,
    ctx: &Context<'_>,
    field: &str,
) -> Result<Option<Arc<str>>, Refusal> {
    let Some(template) = template else { return Ok(None) };
    let scope = Scope { input: Some(&command.input), ..Scope::default() };
    let filled = ctx.language.fill(template, &scope).map_err(|error| {
        Refusal::new(
            Code::InvalidRequest,
            format!("the definition's {field} cannot be worked out from this input: {error}"),
        )
        .at("input")
    })?;
    // A string is its own key; anything else is its JSON.
    let key = from_json_string(&filled).unwrap_or(filled);
    require_ref(field, &key).map_err(|refusal| {
        Refusal::new(refusal.code, format!("the definition's key, worked out from this input: {}", refusal.detail))
            .at("input")
    })?;
    Ok(Some(Arc::from(key)))
}

/// A slot is free, or the time has come.
pub fn dispatch((shell, run): (&Process, &Run), in_slot: bool, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let early = run.head.start_at.is_some_and(|at| at > ctx.base.now);
    if run.head.state != RunState::Queued || early || (run.head.concurrency_key.is_some() && !in_slot) {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.application_actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    begin_executing(&mut flow, in_slot)?;
    Ok(flow.finish(Action::RunDispatched, &actor_ref, None))
}

fn begin_executing(flow: &mut Flow<'_, '_, '_>, in_slot: bool) -> Result<(), Refusal> {
    let fired = flow.fire_run(RunState::Executing, "slot_available", &Given { in_slot, ..Given::default() })?;
    flow.make_run(fired)?;
    let roots =
        (0..).zip(&flow.run.cells).filter(|(_, cell)| cell.open_deps == 0 && cell.state == StepCode::NotStarted);
    flow.to_resolve = roots.map(|(seq, _)| seq).collect();
    flow.advance()
}

/// What the old run has finished is taken over as it ended there, with its tasks; the step named and all behind it are done
/// again. So is what was undone, and what had it for its input.
fn take_over(command: &StartRun, plan: &Plan, run: &mut Run) -> Result<Vec<(StepSeq, Arc<str>)>, Refusal> {
    let Some(from) = &command.from_step else { return Ok(vec![]) };
    let refuse = |detail: String, field: &str| Err(Refusal::new(Code::InvalidRequest, detail).at(field));
    if from.definition != command.definition {
        let detail = format!("the old run is one of `{}`: a run of that goes on with its steps", from.definition);
        return refuse(detail, "from_step.run_id");
    }
    if !from.has_ended {
        let detail = "the old run has not ended, and may still undo its steps: wait until it has, or cancel it";
        return Err(Refusal::new(Code::Conflict, detail).at("from_step.run_id"));
    }
    let Some(target) = plan.step_named(&from.step) else {
        let detail = format!("`{}` has no step named `{}`", command.definition, from.step);
        return refuse(detail, "from_step.step");
    };
    let taken = taken(from, plan, target);
    if plan.is_runbook() {
        no_authority_taken(plan, &taken)?;
    }
    // What the named step needs, directly or not, must have ended in the old run.
    let needed = reached(target, |seq| plan.step(seq).map_or(&[][..], |step| &step.depends_on));
    if let Some(spec) = needed.difference(&taken).find_map(|seq| plan.step(*seq)) {
        let name = &*spec.name;
        let because = if from.undone.contains(name) { "was undone" } else { "did not end" };
        let detail = format!("the step `{name}` of the old run {because}: start from it, or from an earlier one");
        return refuse(detail, "from_step.step");
    }
    let steps = taken.iter().flat_map(|seq| std::iter::once(*seq).chain(plan.tasks_of(*seq)));
    if let Some(spec) = steps.filter_map(|seq| plan.step(seq)).find(|spec| from.purged.contains(&*spec.name)) {
        let detail = format!("what `{}` yielded in the old run was purged: start from it, or anew", spec.name);
        return refuse(detail, "from_step.step");
    }
    let mut outputs = Vec::new();
    for seq in &taken {
        let Some((state, output)) = plan.step(*seq).and_then(|spec| from.finished.get(&*spec.name)) else { continue };
        if let Some(cell) = run.cells.get_mut(*seq as usize) {
            cell.state = *state;
            cell.open_deps = 0;
            run.head.open -= 1;
        }
        for follower in plan.dependents(*seq) {
            if let Some(cell) = run.cells.get_mut(*follower as usize) {
                cell.open_deps = cell.open_deps.saturating_sub(1);
                cell.fed |= *state == StepCode::Completed;
            }
        }
        outputs.extend(output.clone().map(|output| (*seq, output)));
    }
    // Their tasks come along: as they ended, and not needed any more where they had not.
    for task in taken.iter().flat_map(|seq| plan.tasks_of(*seq)) {
        let name = plan.step(task).map_or("", |spec| &spec.name);
        let (state, output) = from.finished.get(name).cloned().unwrap_or((StepCode::Skipped, None));
        if let Some(cell) = run.cells.get_mut(task as usize) {
            cell.state = state;
            cell.open_deps = 0;
        }
        outputs.extend(output.map(|output| (task, output)));
    }
    run.head.current = (0..).zip(&run.cells).find(|(_, cell)| !cell.is_ended()).map_or(0, |(seq, _)| seq);
    run.head.critical =
        Run::first_unfinished(plan, |seq| run.cells.get(seq as usize).is_some_and(|cell| cell.is_ended()));
    run.outputs.extend(outputs.iter().filter(|(seq, _)| plan.is_referenced(*seq)).cloned());
    Ok(outputs)
}

/// A runbook takes neither an approval nor a pin from another run.
fn no_authority_taken(plan: &Plan, taken: &BTreeSet<StepSeq>) -> Result<(), Refusal> {
    for spec in taken.iter().filter_map(|seq| plan.step(*seq)) {
        if spec.gate.is_some() || matches!(spec.work, Work::Approval(_)) {
            let detail =
                format!("`{}` was approved for another run: start from it, or from an earlier step", spec.name);
            return Err(Refusal::new(Code::GateNotCleared, detail).at("from_step.step"));
        }
        if !spec.pins.is_empty() {
            let detail =
                format!("`{}` captures pins of its own run: start from it, or from an earlier step", spec.name);
            return Err(Refusal::new(Code::InvalidRequest, detail).at("from_step.step"));
        }
    }
    Ok(())
}

/// The finished steps that neither are nor follow one that is done again.
fn taken(from: &FromStep, plan: &Plan, target: StepSeq) -> BTreeSet<StepSeq> {
    let is_finished = |seq: &StepSeq| plan.step(*seq).is_some_and(|spec| from.finished.contains_key(&*spec.name));
    let all = || (0..).take(plan.steps.len());
    let mut again = BTreeSet::from([target]);
    let mut ahead: Vec<StepSeq> = all().filter(|seq| *seq == target || !is_finished(seq)).collect();
    while let Some(seq) = ahead.pop() {
        again.insert(seq);
        ahead.extend(plan.dependents(seq).iter().filter(|follower| !again.contains(follower)));
    }
    all().filter(|seq| !again.contains(seq)).collect()
}

/// Every step that can be reached from this one, which is not among them.
fn reached<'p>(from: StepSeq, next: impl Fn(StepSeq) -> &'p [StepSeq]) -> BTreeSet<StepSeq> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(seq) = ahead.pop() {
        ahead.extend(next(seq).iter().filter(|step| found.insert(**step)));
    }
    found
}

/// The shell that a run begins with.
pub fn shell_of(started: &Started, initiator_ref: &str, at: crate::Time) -> Process {
    let (declaration, gate_spec) = shell_declaration(&started.plan);
    Process {
        instance_id: started.run_id,
        definition: Some(started.definition.clone()),
        subject_ref: started.subject_ref.clone(),
        initiator_ref: initiator_ref.to_owned(),
        current_state: declaration.initial_state.clone(),
        declaration: Arc::new(declaration),
        gate_spec: Arc::new(gate_spec),
        started_at: at,
        next_sequence_number: 1,
        gates: vec![],
        holds: BTreeMap::new(),
    }
}

impl Run {
    /// The run before anything has happened to it.
    pub fn begin(started: &Started) -> Run {
        let plan = started.plan.clone();
        let steps = plan.steps.iter().map(|step| Cell::new(step.depends_on.len()));
        let behind = StepSeq::try_from(plan.steps.len()).unwrap_or(StepSeq::MAX);
        let tasks = (behind..).map_while(|seq| plan.step_of_task(seq));
        let cells: Vec<Cell> = steps.chain(tasks.map(|step| Cell { role: Role::Task(step), ..Cell::new(1) })).collect();
        let mut run = Run {
            run_id: started.run_id,
            machine: started.machine.clone(),
            input: started.input.clone(),
            trace_id: started.trace_id.clone(),
            correlation_key: started.correlation_key.clone(),
            follows: started.corrects.or(started.continues),
            head: Head {
                state: RunState::Idle,
                outcome: None,
                last_error: None,
                priority: plan.priority,
                start_at: None,
                executing_since: None,
                completed_at: None,
                failed_at: None,
                open: u32::try_from(plan.steps.len()).unwrap_or(u32::MAX),
                blocked: 0,
                held: 0,
                current: 0,
                critical: Run::first_unfinished(&plan, |_| false),
                rollup: Rollup::default(),
                output: None,
                concurrency_key: None,
                undoing: false,
                called_off: false,
                parent: None,
                runbook: None,
            },
            plan,
            cells,
            live: BTreeSet::new(),
            tally: Tally::default(),
            outputs: BTreeMap::new(),
            kept: vec![],
        };
        run.count_all();
        run
    }
}
