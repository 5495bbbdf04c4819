//! One record of a run: its transitions against the tables, against what came before, and against its own members.

use super::machine::{fits_overdue, is_ended, is_past, run_row, step_row};
use super::read::{Moves, StepMove};
use super::{Run, Step};
use crate::finding::Code;
use crate::process::{Context, Process};
use crate::record::{Action, Header};
use std::collections::HashSet;

const FACETS: [&str; 4] = ["waiting_dependency", "waiting_human", "waiting_external", "waiting_time_gate"];
const CAUSES: [&str; 4] = ["threshold", "critical_path", "deadline", "escalated"];

/// What one step did within the record.
#[derive(Clone, Copy, Debug, Default)]
struct Within {
    claimed: bool,
    resumed: bool,
}

/// One transition of one step, known to be declared.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub seq: usize,
    pub id: &'static str,
    pub to: &'static str,
    /// By a person in charge.
    pub person: bool,
    /// It left `not_started` as those do whose turn has come.
    begins: bool,
}

impl Run {
    pub(super) fn follow(&mut self, header: &Header, moves: &Moves<'_>, process: &Process, ctx: &mut Context<'_>) {
        let was = self.state;
        let unknown: Vec<usize> =
            (0..).zip(&self.steps).filter(|(_, step)| step.effect_unknown).map(|(seq, _)| seq).collect();
        self.add_compensations(header, moves, ctx);
        let closed = moves.acted.and_then(|seq| self.steps.get(seq)).and_then(|step| step.charge.closed);
        self.take_charges(header, moves, ctx);
        let shown = moves.acted.and_then(|seq| self.steps.get(seq)).map(Step::shown);
        let mut made: Vec<Made> = Vec::new();
        for step_move in &moves.steps {
            if !self.make(header, step_move, &mut made, process, ctx) {
                self.lost = true;
                return;
            }
        }
        self.judge(header, moves, &made, ctx);
        self.judge_people(header, moves, &made, closed, ctx);
        self.judge_own(header, moves, &made, shown.as_deref(), ctx);
        self.judge_facets(header, moves, &made, ctx);
        self.judge_acts(header, moves, process, ctx);
        self.judge_inputs(header, moves, &made, process, ctx);
        self.outputs(header, moves, &made, ctx);
        for (seq, child) in &moves.children {
            if let Some(step) = self.steps.get_mut(*seq) {
                step.child = Some(*child);
            }
        }
        for (seq, failure) in &moves.errors {
            if let Some(step) = self.steps.get_mut(*seq) {
                step.attempts = failure.attempts;
                step.last_error = failure.last_error.map(str::to_owned);
                step.category = failure.category.map(str::to_owned);
                step.effect_unknown = failure.effect_unknown;
            }
        }
        self.move_run(header, moves, ctx);
        if !self.lost {
            self.follow_runbook(header, moves, &made, was, &unknown, process, ctx);
        }
        self.judge_failed_undos(header, moves, &made, ctx);
        let undoes = made.iter().any(|made| made.id == "T1" && made.seq >= self.with_tasks());
        if undoes && self.state != "compensating" {
            let detail = format!("a compensation began while the run was {}", self.state);
            ctx.findings.find(Code::CompensationOrder, header, detail);
        }
        if moves.output.is_some() {
            self.output.clone_from(&moves.output);
        }
        if let Some(error) = moves.last_error {
            self.last_error = Some(error.to_owned());
        }
        self.outcome = moves.outcome.map(str::to_owned);
    }

    /// An undo that failed for good ends the run, unless its entry holds it for an operator.
    fn judge_failed_undos(&self, header: &Header, moves: &Moves<'_>, made: &[Made], ctx: &mut Context<'_>) {
        let Some(workflow) = self.workflow.as_ref().filter(|_| !self.lost && !is_ended(self.state)) else { return };
        let again = |seq: usize| moves.errors.iter().any(|(of, failure)| *of == seq && failure.again);
        for made in made.iter().filter(|made| matches!(made.to, "failed" | "cannot_complete") && !again(made.seq)) {
            let undone = self.steps.get(made.seq).and_then(|step| step.compensates);
            if undone.is_some_and(|undone| !workflow.held.contains(&undone)) {
                let detail = format!("the compensation {} failed, and the run is {}", made.seq, self.state);
                ctx.findings.find(Code::CompensationOrder, header, detail);
            }
        }
    }

    /// What waits says for what, and a block is red for one of four causes.
    fn judge_facets(&self, header: &Header, moves: &Moves<'_>, made: &[Made], ctx: &mut Context<'_>) {
        let is = |seq: usize, state: &str| self.steps.get(seq).is_some_and(|step| step.state == state);
        for made in made.iter().filter(|made| made.to == "waiting" && is(made.seq, "waiting")) {
            if !moves.waits.get(&made.seq).is_some_and(|facet| FACETS.contains(facet)) {
                let detail = format!("step {} waits, and the record does not say for what", made.seq);
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
        }
        for (seq, severity, cause) in &moves.severities {
            let fits = match *severity {
                "yellow_dark" => cause.is_none(),
                "red" => cause.is_some_and(|cause| CAUSES.contains(&cause)),
                _ => false,
            };
            if !fits || !is(*seq, "blocked") {
                let detail = format!("step {seq} is not blocked, or for no cause is its block {severity}");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
        }
    }

    /// One line of `transitions`. False where the rest cannot be followed.
    fn make(
        &mut self,
        header: &Header,
        step_move: &StepMove<'_>,
        made: &mut Vec<Made>,
        process: &Process,
        ctx: &mut Context<'_>,
    ) -> bool {
        let StepMove { id, seqs, name, from, to, class, trigger } = step_move;
        // The person in charge of a task may what that of a step may.
        let of_tasks = *class == "task_pic_human";
        let row_class = if of_tasks { "pic_human" } else { class };
        let Some((id, to)) = step_row(id, from, to, row_class, trigger) else {
            let shown = format!("{id} from {from} to {to} by {class} {trigger}");
            let detail = format!("no such transition of a step is declared: {}", crate::json::shortened(&shown));
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
            return false;
        };
        if seqs.last().is_some_and(|last| last >= self.steps.len()) {
            let detail = format!("{id} of a step that the run does not have; it has {}", self.steps.len());
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
            return false;
        }
        for seq in seqs.iter() {
            let gated = process.declaration.as_ref().is_some_and(|declaration| {
                seq < self.planned()
                    && self.steps.get(seq).is_some_and(|step| declaration.transition("run", &step.name).is_some())
            });
            let Some(step) = self.steps.get_mut(seq) else { return false };
            if row_class == "pic_human" && of_tasks != step.task_of.is_some() {
                let detail = format!("{id} of step {seq} by {class}: a task has a task_pic_human, a step a pic_human");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            if name.is_some_and(|name| name != step.name) {
                let detail = format!("step {seq} is `{}`, the record names another", step.name);
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            if step.state != *from {
                let detail = format!("{id} of step {seq} from {from}, but it was {}", step.state);
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
                return false;
            }
            if id == "T1" && gated {
                let detail = format!("step {seq} (`{}`) has a gate, and became ready without it", step.name);
                ctx.findings.find(Code::BindingInvalid, header, detail);
            }
            if step.gated && matches!(to, "ready" | "in_progress") && id != "X8r" {
                let detail = format!("step {seq} was blocked by its gate, and left it by {id}");
                ctx.findings.find(Code::GateNotApproved, header, detail);
            }
            if *from == "overdue" && !fits_overdue(id, to, row_class, trigger, step.unclaimed) {
                let claimed = if step.unclaimed { "has not been claimed" } else { "is at work" };
                let detail = format!("{id} of step {seq}, which is overdue and {claimed}");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            enter(step, header, id, to);
            step.follow_person(seq, header, id, row_class, ctx);
            let begins = from == &"not_started" && matches!(id, "T1" | "X4" | "X8" | "X12");
            made.push(Made { seq, id, to, person: row_class == "pic_human", begins });
        }
        self.note_moves(id, to, from, seqs);
        true
    }

    /// All it depends on has ended, in this record at the latest: its lines that say the same of several steps stand together,
    /// and tell no order between steps. A compensation, and every one before it is done.
    fn may_begin(&self, seq: usize, made: &[Made]) -> bool {
        let came_to = |seq: usize, fits: &dyn Fn(&str) -> bool| {
            self.steps.get(seq).is_some_and(|step| fits(step.state))
                || made.iter().any(|made| made.seq == seq && fits(made.to))
        };
        // See `may_begin_with_step`.
        if self.steps.get(seq).is_some_and(|task| task.task_of.is_some()) {
            return true;
        }
        match self.workflow.as_ref().and_then(|workflow| workflow.steps.get(seq)) {
            Some(spec) => spec.depends_on.iter().all(|before| came_to(*before, &is_past)),
            None => {
                // The run's own move to compensating stands in the same record at the earliest.
                let passed = |state: &str| matches!(state, "completed" | "cannot_complete");
                (self.with_tasks()..seq).all(|before| came_to(before, &passed))
            }
        }
    }

    /// Which transitions belong into which record, and which are the engine's own.
    fn judge(&self, header: &Header, moves: &Moves<'_>, made: &[Made], ctx: &mut Context<'_>) {
        let action = header.action;
        let mut within: std::collections::HashMap<usize, Within> = std::collections::HashMap::new();
        let mut reported = 0;
        let mut wrong: Vec<(usize, &str, &str)> = Vec::new();
        for (at, Made { seq, id, person, .. }) in made.iter().enumerate() {
            let before = within.entry(*seq).or_default();
            let fault = match *id {
                "T1" if !self.may_begin_with_step(*seq, made) => Some("begins no step that it is a task of"),
                "T2" | "X15" if *person => (action != Action::StepClaimed).then_some("is no person's claim"),
                "T2r" => (action != Action::StepReleased).then_some("gives nothing back"),
                "T4" if *person => (action != Action::StepBlocked).then_some("blocks nothing"),
                "T5" => {
                    let completes = made.iter().skip(at + 1).any(|later| later.seq == *seq && later.id == "T7");
                    let looked = matches!(action, Action::TimePassed | Action::StepClaimed);
                    (!looked && !completes).then_some("does not look at the clock")
                }
                "X14" => (action != Action::TimePassed).then_some("does not look at the clock"),
                "T6" if *person => (action != Action::StepReengaged).then_some("does not re-engage"),
                "T6" | "X16" => (action != Action::DeadlineExtended).then_some("puts no deadline off"),
                "T8r" | "T12r" => (action != Action::StepReopened).then_some("reopens nothing"),
                "X17" => (action != Action::StepReopened).then_some("reopens nothing"),
                "T11" => (action != Action::StepEscalated).then_some("escalates nothing"),
                "T12" => (action != Action::StepCannotComplete).then_some("declares nothing"),
                "T2" | "T10" | "X3" | "X15" if moves.leases.contains(seq) => {
                    (!matches!(action, Action::StepsClaimed | Action::StepCompleted)).then_some("is no claim")
                }
                "T2" | "T10" | "X3" | "X15" => {
                    let leaves = made.iter().skip(at + 1).any(|later| later.seq == *seq);
                    before.claimed = true;
                    // What has tasks stays at work for as long as they do.
                    let has_tasks = !self.tasks_of(*seq).is_empty();
                    (!leaves && !has_tasks).then_some("has no lease")
                }
                "T3r" => {
                    before.resumed = true;
                    let own = self.steps.get(*seq).is_some_and(|step| step.child.is_some());
                    (action == Action::ChildResumed && !own).then_some("goes on with no run of its own")
                }
                "T7" | "T8"
                    if self.tasks_of(*seq).iter().any(|task| !matches!(task.state, "completed" | "skipped")) =>
                {
                    Some("completes it over its tasks")
                }
                "T7" | "T8" if !person && !self.tasks_of(*seq).is_empty() => None,
                "T7" | "T8" if before.claimed || before.resumed => None,
                "T3" if before.claimed => None,
                "T7" | "T8" => {
                    reported += 1;
                    (!matches!(action, Action::StepCompleted | Action::ChildEnded)).then_some("reports no completion")
                }
                "T3" => {
                    reported += 1;
                    let with_child = action == Action::ChildWaiting && self.waits_for_run(*seq, moves);
                    (action != Action::StepWaiting && !with_child).then_some("puts no step down")
                }
                "T9" => (!matches!(action, Action::StepRetried | Action::StepFailed | Action::ChildEnded))
                    .then_some("reports no failure"),
                "T4" => (!matches!(action, Action::StepFailed | Action::StepBlocked)).then_some("blocks nothing"),
                "T4r" => (action != Action::StepUnblocked).then_some("clears no block"),
                "X13" => {
                    let captured = action == Action::StepCompleted && self.has_captured(*seq);
                    (action != Action::EffectDeclared && !captured).then_some("declares nothing")
                }
                "U1" | "U2" => {
                    let undoes = self.steps.get(*seq).is_some_and(|step| step.compensates.is_some());
                    (action != Action::EffectDeclared || !undoes).then_some("declares no undo")
                }
                "X6" => (!matches!(action, Action::RunCancelled | Action::RunVoided)).then_some("cancels nothing"),
                _ => None,
            };
            wrong.extend(fault.map(|fault| (*seq, *id, fault)));
        }
        for Made { seq, id, .. } in made.iter().filter(|made| made.begins) {
            if self.may_begin(*seq, made) {
                continue;
            }
            if self.steps.get(*seq).is_some_and(|step| step.compensates.is_some()) {
                let detail = format!("the compensation {seq} began out of its turn");
                ctx.findings.find(Code::CompensationOrder, header, detail);
            } else {
                let detail = format!("{id} of step {seq} before everything it depends on had ended");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
        }
        for Made { seq, id, .. } in made.iter().filter(|made| made.to == "skipped") {
            let open = |task: &Step| {
                !matches!(task.state, "completed" | "skipped" | "cancelled" | "failed" | "cannot_complete")
            };
            if self.tasks_of(*seq).iter().any(open) {
                wrong.push((*seq, id, "passes it over and leaves its tasks behind"));
            }
        }
        for (seq, id, fault) in wrong {
            let detail = format!("{id} of step {seq}, but this `{}` {fault}", action.as_str());
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        if action == Action::ChildStarted && moves.children.is_empty() {
            let detail = "this `child_started` names no run that was started".to_owned();
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        if reported > 1 {
            let detail = format!("one record reports on one step, this one on {reported}");
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
    }

    /// It has a run of its own, and says that it waits for that.
    fn waits_for_run(&self, seq: usize, moves: &Moves<'_>) -> bool {
        self.steps.get(seq).is_some_and(|step| step.child.is_some())
            && moves.waits.get(&seq).is_some_and(|facet| *facet == "waiting_dependency")
    }

    /// A task: its step is at work, or was within this record.
    fn may_begin_with_step(&self, seq: usize, made: &[Made]) -> bool {
        let Some(step) = self.steps.get(seq).and_then(|task| task.task_of) else { return true };
        let at_work = |state: &str| matches!(state, "in_progress" | "overdue");
        self.steps.get(step).is_some_and(|step| at_work(step.state) && !step.unclaimed)
            || made.iter().any(|made| made.seq == step && at_work(made.to) && made.id != "X14")
    }

    fn outputs(&mut self, header: &Header, moves: &Moves<'_>, made: &[Made], ctx: &mut Context<'_>) {
        let mut completed: Vec<usize> =
            made.iter().filter(|made| made.to == "completed").map(|made| made.seq).collect();
        let done = moves.effect.filter(|(_, done)| *done).map(|(seq, _)| seq);
        for (seq, output) in &moves.outputs {
            let due = completed.iter().position(|of| of == seq);
            let declared = done == Some(*seq) && !self.is_runbook();
            if due.is_none() && !declared {
                let detail = format!("an output of step {seq}, which does not complete here");
                ctx.findings.find(Code::OutputMissing, header, detail);
            }
            if let Some(at) = due {
                completed.swap_remove(at);
            }
            if let Some(step) = self.steps.get_mut(*seq) {
                step.output = Some(output.clone());
            }
        }
        for seq in completed {
            let detail = format!("step {seq} is completed, and its output is not in the record");
            ctx.findings.find(Code::OutputMissing, header, detail);
        }
    }

    /// Everything that can be undone, the last one completed first.
    fn add_compensations(&mut self, header: &Header, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        if let Some((seq, done)) = moves.effect
            && let Some(step) = self.steps.get_mut(seq)
        {
            step.effect_unknown = false;
            if done && moves.outputs.iter().any(|(of, _)| *of == seq) {
                step.completed_at_us = Some(header.recorded_at_us);
            }
        }
        let listing = header.action == Action::CompensationsListed;
        if listing && (self.state != "compensating" || !moves.only_lists) {
            let detail = "a list of compensations comes while the run compensates, and does nothing else";
            ctx.findings.find(Code::CompensationOrder, header, detail);
        }
        if moves.compensations.is_empty() && !listing {
            return;
        }
        let expected = match listing {
            true => std::mem::take(&mut self.command.unlisted),
            false => self.due_compensations(header, moves),
        };
        if moves.compensations.is_empty() || !expected.starts_with(&moves.compensations) {
            let detail = format!("compensations {:?}, due are {expected:?}", moves.compensations);
            ctx.findings.find(Code::CompensationOrder, header, crate::json::shortened(&detail));
        } else {
            // What the record has no room for is listed by others of the same command.
            self.command.unlisted = expected[moves.compensations.len()..].to_vec();
        }
        for (seq, undone) in &moves.compensations {
            let name = self.steps.get(*undone).map_or_else(String::new, |step| step.name.clone());
            if *seq == self.steps.len() {
                self.steps.push(Step::new(name, Some(*undone)));
            }
        }
    }

    fn due_compensations(&self, header: &Header, moves: &Moves<'_>) -> Vec<(usize, usize)> {
        let Some(workflow) = &self.workflow else { return vec![] };
        let planned: HashSet<usize> = self.steps.iter().filter_map(|step| step.compensates).collect();
        let mut due: Vec<(i64, usize, usize)> = workflow
            .compensated
            .iter()
            .filter(|seq| !planned.contains(seq))
            .filter_map(|seq| {
                // What completes in this very record is not there yet.
                let now = moves.steps.iter().any(|m| {
                    m.to == "completed"
                        && m.seqs.last().is_some_and(|last| last < self.steps.len())
                        && m.seqs.iter().any(|s| s == *seq)
                });
                let step = self.steps.get(*seq)?;
                let taken_over = (step.taken_over && step.state == "completed").then_some(0);
                let at = if now { Some(header.recorded_at_us) } else { step.completed_at_us.or(taken_over) };
                Some((at?, workflow.depth[*seq], *seq))
            })
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        (self.steps.len()..).zip(due.into_iter().map(|(.., seq)| seq)).collect()
    }

    /// A cancellation undoes the work if it says `compensate`, and only then.
    fn judge_cancel(&mut self, header: &Header, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        let cancels = moves.run.iter().find(|run_move| run_move.trigger == "workflow_cancel");
        let undoes = cancels.is_some_and(|cancels| cancels.to == "compensating");
        if undoes != moves.compensate {
            let detail = match moves.compensate {
                true => "cancelled with `compensate`, and its work is not undone",
                false => "its work is undone by a cancellation that did not say `compensate`",
            };
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        self.called_off |= moves.compensate;
    }

    /// What it undid is all that was to be undone, and it ends as it was called off, or was not.
    fn judge_undone(&self, header: &Header, id: &str, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        if self.called_off != (id == "C12") {
            let detail = match self.called_off {
                true => "completed, though it was cancelled with `compensate`",
                false => "cancelled at the end of its undos, though nobody cancelled it",
            };
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        if let Some((_, left)) = self.due_compensations(header, moves).first() {
            let detail = format!("the run has undone its work, and what undoes step {left} was not listed");
            ctx.findings.find(Code::CompensationOrder, header, detail);
        }
    }

    fn move_run(&mut self, header: &Header, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        self.judge_cancel(header, moves, ctx);
        for run_move in &moves.run {
            let Some((to, trigger)) = run_row(run_move.id, run_move.from, run_move.to, run_move.trigger) else {
                let shown =
                    format!("{} from {} to {} by {}", run_move.id, run_move.from, run_move.to, run_move.trigger);
                let detail = format!("no such transition of a run is declared: {}", crate::json::shortened(&shown));
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
                self.lost = true;
                return;
            };
            if self.state != run_move.from {
                let detail = format!("the run goes from {} to {to}, but it was {}", run_move.from, self.state);
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
                self.lost = true;
                return;
            }
            let own = match trigger {
                "workflow_cancel" => Some(Action::RunCancelled),
                "workflow_pause" => Some(Action::RunPaused),
                "workflow_resume" => Some(Action::RunResumed),
                "workflow_stop" => Some(Action::RunStopped),
                "workflow_void" => Some(Action::RunVoided),
                "effect_declared" => Some(Action::EffectDeclared),
                "lease_expired" | "soft_cap" | "hard_cap" => Some(Action::TimePassed),
                "drift" => Some(Action::PinsSurveyed),
                "started" => Some(Action::RunStarted),
                _ => None,
            };
            if own.is_some_and(|own| own != header.action) {
                let detail = format!("`{trigger}` of the run in a `{}`", header.action.as_str());
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            let open = match run_move.id {
                "R4" => self.steps.iter().take(self.planned()).position(|step| !is_past(step.state)),
                "R10" | "C12" => self.steps.iter().skip(self.with_tasks()).position(|step| step.state != "completed"),
                _ => None,
            };
            if let Some(seq) = open {
                let detail = format!("the run is {to}, and step {seq} of what it asks for has not ended");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            if matches!(run_move.id, "R10" | "C12") {
                self.judge_undone(header, run_move.id, moves, ctx);
            }
            if run_move.id == "R13" && !self.is_dry() {
                let detail = "completed as a dry run, which it is not";
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            let undoing = match run_move.id {
                "P10" | "P11" | "S21" | "S22" => self.undoing,
                "R9e" | "R10" | "R11" | "R12" | "C12" => true,
                _ => !self.undoing || matches!(to, "paused" | "stopped" | "voided"),
            };
            if !undoing {
                let detail = format!(
                    "{} does not belong to a run that {}",
                    run_move.id,
                    match self.undoing {
                        true => "is undone",
                        false => "is not undone",
                    }
                );
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            self.undoing |= to == "compensating";
            self.state = to;
            self.command.stops |= to == "stopped";
            self.command.over |= is_ended(to) || to == "compensating";
            let at = Some(header.recorded_at_us);
            match to {
                "executing" => self.executing_since_us = self.executing_since_us.or(at),
                "completed" => self.completed_at_us = at,
                "failed" => self.failed_at_us = at,
                _ => {}
            }
        }
    }
}

/// The step is there now.
fn enter(step: &mut Step, header: &Header, id: &str, to: &'static str) {
    step.state = to;
    step.derived = None;
    step.gated = id == "X8" || (step.gated && to == "blocked");
    let at = header.recorded_at_us;
    (step.blocked_since_us, step.escalated) = ((to == "blocked").then_some(at), false);
    step.unclaimed = id == "X14";
    if matches!(to, "in_progress" | "overdue" | "blocked") && !step.unclaimed {
        step.started_at_us.get_or_insert(at);
    }
    if to == "completed" {
        step.completed_at_us = Some(at);
        step.effect_unknown = false;
    }
    if step.by.last() != Some(&header.actor_ref) && step.by.len() < 8 {
        step.by.push(header.actor_ref.clone());
    }
}
