//! What must hold of every run, from the requirement: seed 001's chain, seed 004's states, dependencies, failures and
//! compensation, and the lifecycles as declared.

use countersign_kernel::Time;
use countersign_kernel::lifecycle::{Outcome, RUN_TRANSITIONS, RunState, STEP_TRANSITIONS, StepCode};
use countersign_kernel::plan::*;
use countersign_kernel::run::{Action, Agenda, Cell, Move, Role, Run, RunEvent};
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Auditor {
    plan: Arc<Plan>,
    steps: Vec<StepCode>,
    run: RunState,
    /// Once it has begun to undo, it goes forward no more.
    undoing: bool,
    /// Steps that completed, or were declared done, and when.
    done: Vec<(Time, StepSeq)>,
    /// Failed steps that will be tried again.
    scheduled: BTreeSet<StepSeq>,
    /// Steps of which an attempt ended without a verdict, and that may not simply be made again.
    unknown: BTreeSet<StepSeq>,
    /// Steps that failed by something for which they are to be skipped.
    skipped: BTreeSet<StepSeq>,
}

impl Auditor {
    pub fn new(plan: Arc<Plan>) -> Auditor {
        let steps = vec![StepCode::NotStarted; plan.steps.len()];
        Auditor {
            plan,
            steps,
            run: RunState::Idle,
            undoing: false,
            done: vec![],
            scheduled: BTreeSet::new(),
            unknown: BTreeSet::new(),
            skipped: BTreeSet::new(),
        }
    }

    pub fn declares(&mut self, seq: StepSeq, done: bool, at: Time) {
        assert!(self.unknown.remove(&seq), "nobody had to say what became of step {seq}");
        if done {
            self.done.push((at, seq));
        }
    }

    /// Every change is a declared transition, begins where the last one ended, and had leave to happen.
    pub fn hear(&mut self, before: &Run, event: &RunEvent, after: &Run) {
        self.steps.resize(after.cells.len(), StepCode::NotStarted);
        let was_undoing = self.undoing;
        for m in &event.moves {
            let seq = m.step_seq as usize;
            assert_eq!(self.steps[seq], m.from, "step {seq}: {m:?}");
            let declared = STEP_TRANSITIONS.iter().any(|t| {
                t.id == m.transition.id
                    && t.from.contains(&m.from)
                    && t.to == m.to
                    && t.actors.contains(&m.actor)
                    && t.triggers.contains(&m.trigger)
            });
            assert!(declared, "{m:?}");
            assert!(!matches!(m.from, StepCode::Completed | StepCode::Skipped | StepCode::Cancelled), "{m:?}");
            if seq < self.plan.steps.len() {
                self.forward(m.step_seq, m.to, was_undoing);
                let by_worker = matches!(self.plan.steps[seq].work, Work::Worker);
                let claims = matches!(m.trigger, "step_claim" | "retry_attempt")
                    || (m.trigger == "waiting_timeout" && m.to == StepCode::InProgress);
                if by_worker && claims {
                    assert!(matches!(before.head.state, RunState::Executing | RunState::Blocked), "{m:?}");
                    assert!(!was_undoing, "a step begins while the run is undone: {m:?}");
                }
                if m.to == StepCode::Completed {
                    self.done.push((event.at, m.step_seq));
                }
                self.verdict(m, before, event);
                self.skips(m, after);
            }
            self.steps[seq] = m.to;
            self.scheduled.remove(&m.step_seq);
        }
        for m in &event.run_moves {
            let t = m.transition;
            assert_eq!(t.from, self.run, "{t:?}");
            assert!(RUN_TRANSITIONS.iter().any(|d| d.id == t.id && d.from == t.from && d.to == t.to));
            assert!(!matches!((t.from, t.to), (RunState::Idle, RunState::Executing)), "must go through queued");
            self.undoing |= t.to == RunState::Compensating;
            let cancelled = t.to == RunState::Cancelled && t.id != "C12";
            let forward = matches!(t.to, RunState::Executing | RunState::Queued) || cancelled;
            assert!(!(self.undoing && forward), "cannot resume after compensation starts: {t:?}");
            self.run = t.to;
        }
        let cells = (0..).zip(&after.cells);
        self.scheduled = cells.filter(|(_, cell)| cell.retry_scheduled()).map(|(seq, _)| seq).collect();
        self.retries(event, after);
    }

    /// A lease that ends by the clock or by a stop leaves nobody's word for what was done under it.
    fn verdict(&mut self, m: &Move, before: &Run, event: &RunEvent) {
        let spec = &self.plan.steps[m.step_seq as usize];
        let leased = before.cell(m.step_seq).is_some_and(|cell| cell.is_held() && cell.lease().is_some());
        let ends = leased && !matches!(m.to, StepCode::InProgress | StepCode::Overdue);
        let called_off = event.action == Action::RunCancelled && event.head.called_off;
        let revoked = called_off || matches!(event.action, Action::TimePassed | Action::RunStopped);
        if ends && revoked && !spec.is_repeatable() {
            self.unknown.insert(m.step_seq);
        }
        if m.to == StepCode::Completed {
            self.unknown.remove(&m.step_seq);
        }
    }

    fn skips(&mut self, m: &Move, after: &Run) {
        let category = after.cells[m.step_seq as usize].details().category;
        let own = category.and_then(|category| self.plan.steps[m.step_seq as usize].errors.of(category));
        if m.to == StepCode::Failed && m.trigger == "executor_failure" && own == Some(ErrorResponse::Skip) {
            self.skipped.insert(m.step_seq);
        } else {
            self.skipped.remove(&m.step_seq);
        }
    }

    /// A dependency that holds nobody up any more.
    fn has_ended(&self, seq: StepSeq) -> bool {
        let passed_over = self.steps[seq as usize] == StepCode::Failed
            && (self.skipped.contains(&seq) || self.plan.steps[seq as usize].on_failure == OnFailure::Skip);
        self.steps[seq as usize].is_terminal() || (passed_over && !self.scheduled.contains(&seq))
    }

    /// A step begins when all dependencies ended and, in a DAG, one completed; where all were skipped, so is it.
    fn forward(&self, seq: StepSeq, to: StepCode, was_undoing: bool) {
        if self.steps[seq as usize] != StepCode::NotStarted || to == StepCode::Cancelled {
            return;
        }
        assert!(!was_undoing, "step {seq} begins while the run is undone");
        let deps = &self.plan.steps[seq as usize].depends_on;
        assert!(deps.iter().all(|dep| self.has_ended(*dep)), "step {seq} begins before its dependencies have ended");
        let fed = deps.is_empty() || deps.iter().any(|dep| self.steps[*dep as usize] == StepCode::Completed);
        if self.plan.order == Order::Dag && !fed {
            assert_eq!(to, StepCode::Skipped, "step {seq}, behind skipped steps only");
        }
    }

    /// Delay before retry n: constant d, linear n·d, exponential 2^(n−1)·d, at most maxDelay.
    fn retries(&self, event: &RunEvent, after: &Run) {
        for m in event.moves.iter().filter(|m| m.transition.id == "T9") {
            let cell = &after.cells[m.step_seq as usize];
            let (Some(live), true) = (cell.live.as_ref(), cell.retry_scheduled()) else { continue };
            // What undoes a step follows the step's own policy.
            let tried = if let Role::Compensation(step) = cell.role { step } else { m.step_seq };
            let policy = self.plan.step(tried).map_or(RetryPolicy::DEFAULT, |spec| spec.retry);
            let mut delay = policy.initial_delay;
            for n in 1..live.attempts {
                delay = match policy.backoff {
                    Backoff::Constant => delay,
                    Backoff::Linear => policy.initial_delay * i64::from(n + 1),
                    Backoff::Exponential => delay * 2,
                };
            }
            let at = live.next_run_at.map(|at| at.0 - event.at.0);
            assert_eq!(at, Some(delay.min(policy.max_delay)), "retry {} under {policy:?}", live.attempts);
            assert!(live.attempts < policy.max_attempts(), "a retry too many");
        }
    }

    /// What the run holds agrees with itself.
    pub fn look(&self, run: &Run) {
        let states: Vec<StepCode> = run.cells.iter().map(|cell| cell.state).collect();
        assert_eq!((&states, run.head.state), (&self.steps, self.run));
        let count = |which: &dyn Fn(&Cell) -> bool| run.cells.iter().filter(|cell| which(cell)).count();
        let head = &run.head;
        assert_eq!(head.held as usize, count(&Cell::is_held), "held");
        assert_eq!(head.blocked as usize, count(&|cell| cell.state == StepCode::Blocked), "blocked");
        let under_way = |cell: &Cell| !cell.is_ended() && cell.state != StepCode::NotStarted;
        let live: BTreeSet<StepSeq> =
            (0..).zip(&run.cells).filter(|(_, cell)| under_way(cell)).map(|(seq, _)| seq).collect();
        assert_eq!(run.live, live, "live");
        // It says when a run has completed; one that is undone does not.
        if !head.state.is_ended() && !self.undoing {
            let open = (0..self.plan.steps.len() as StepSeq).filter(|seq| !self.has_ended(*seq)).count();
            assert_eq!(head.open as usize, open, "open");
        }
        for (seq, cell) in (0..).zip(&run.cells) {
            self.look_at(run, seq, cell);
        }
        self.look_at_whole(run);
        self.look_at_compensations(run);
    }

    fn look_at(&self, run: &Run, seq: StepSeq, cell: &Cell) {
        let said = || format!("step {seq}: {cell:?}");
        let live = cell.details();
        assert_eq!(live.lease.is_some(), cell.is_held(), "a lease is held at work and only there: {}", said());
        assert_eq!(live.waiting.is_some(), cell.state == StepCode::Waiting, "{}", said());
        if cell.state == StepCode::Ready {
            assert!(live.next_run_at.is_some(), "{}", said());
        }
        // Only where a lost lease stops the run is a step handed out once more than it may be tried.
        let closed = self.plan.failure_policy == FailurePolicy::FailClosed;
        assert!(closed || live.attempts <= run.max_attempts(seq), "{}", said());
        if run.head.state.is_ended() {
            assert_eq!(run.agenda(seq), Agenda::default(), "{}", said());
            let dead = matches!(cell.state, StepCode::Failed | StepCode::NotStarted) && !cell.retry_scheduled();
            assert!(cell.is_ended() || dead, "alive in an ended run: {}", said());
        }
    }

    fn look_at_whole(&self, run: &Run) {
        let head = &run.head;
        let unknown = head.outcome == Some(Outcome::EffectUnknown);
        match head.state {
            RunState::Completed if head.outcome.is_none() => {
                let all = (0..self.plan.steps.len() as StepSeq).all(|seq| self.has_ended(seq));
                assert!(all && head.completed_at.is_some(), "completed, but {:?}", self.steps);
            }
            RunState::Cancelled if !head.called_off => assert!(!self.undoing, "half undone"),
            RunState::Completed | RunState::Cancelled => {
                assert_eq!(head.outcome, Some(Outcome::RolledBack));
                assert_eq!(head.called_off, head.state == RunState::Cancelled);
                let mut owed = self.done.iter().filter(|(_, seq)| self.plan.compensation_of(*seq).is_some());
                let listed = run.cells.len() > self.plan.steps.len();
                assert!(listed || owed.next().is_none(), "nothing was undone of {:?}", self.done);
                let forgotten = !self.plan.compensation.is_empty() && !self.unknown.is_empty();
                assert!(!forgotten, "rolled back over {:?}", self.unknown);
            }
            RunState::Failed => assert!(head.failed_at.is_some() && head.last_error.is_some()),
            RunState::Executing => {
                assert!(head.blocked == 0, "a step is blocked, and the run does not say so");
                assert!(!run.live.is_empty(), "nothing goes on: {:?}", self.steps);
            }
            RunState::Blocked => assert!(head.blocked > 0 || unknown, "blocked by nothing"),
            RunState::Compensating => {
                let undo = run.live.iter().any(|seq| matches!(run.cells[*seq as usize].role, Role::Compensation(_)));
                assert!(head.held > 0 || undo, "nothing is undone: {:?}", self.steps);
            }
            _ => {}
        }
        if unknown && !head.state.is_ended() {
            assert_eq!(head.state, RunState::Blocked);
            let asked = run.cells.iter().filter(|cell| cell.details().effect_unknown && !cell.is_ended());
            assert!(asked.count() > 0, "blocked by an effect that nobody can declare");
        }
        if head.outcome == Some(Outcome::LeaseExpired) {
            let closed = self.plan.failure_policy == FailurePolicy::FailClosed;
            assert!(closed && head.state == RunState::Stopped);
        }
    }

    /// In reverse order of completion, one at a time, only what completed, and never over an unknown effect.
    fn look_at_compensations(&self, run: &Run) {
        let undone: Vec<(StepSeq, StepCode)> = run
            .cells
            .iter()
            .filter_map(|cell| match cell.role {
                Role::Compensation(step) => Some((step, cell.state)),
                Role::Step | Role::Task(_) => None,
            })
            .collect();
        if undone.is_empty() {
            return;
        }
        let steps: Vec<StepSeq> = undone.iter().map(|(step, _)| *step).collect();
        self.look_at_order(&steps);
        let begun = undone.iter().take_while(|(_, state)| *state == StepCode::Completed).count();
        assert!(undone.iter().skip(begun + 1).all(|(_, state)| *state == StepCode::NotStarted), "one at a time");
        assert!(self.unknown.is_empty(), "something is undone over {:?}, whose effect is unknown", self.unknown);
    }

    /// Steps that one command completed have no order among them, except that what builds on another is undone before it.
    fn look_at_order(&self, undone: &[StepSeq]) {
        let at = |seq: StepSeq| self.done.iter().rev().find(|(_, done)| *done == seq).map(|(at, _)| *at);
        let times: Vec<Time> = undone.iter().filter_map(|seq| at(*seq)).collect();
        assert!(times.len() == undone.len() && times.is_sorted_by(|a, b| a >= b), "undone in the order {undone:?}");
        let mut owed: Vec<StepSeq> = self.done.iter().map(|(_, seq)| *seq).collect();
        owed.retain(|seq| self.plan.compensation_of(*seq).is_some());
        let mut sorted = undone.to_vec();
        owed.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(sorted, owed, "what is undone");
        for (place, seq) in undone.iter().enumerate() {
            let before = self.all_before(*seq);
            let early = undone[..place].iter().find(|undone| at(**undone) == at(*seq) && before.contains(undone));
            assert_eq!(early, None, "undone before step {seq}, which builds on it");
        }
    }

    /// What a step depends on, directly or not.
    fn all_before(&self, seq: StepSeq) -> BTreeSet<StepSeq> {
        let mut found = BTreeSet::new();
        let mut open = vec![seq];
        while let Some(seq) = open.pop() {
            open.extend(self.plan.steps[seq as usize].depends_on.iter().filter(|dep| found.insert(**dep)));
        }
        found
    }
}
