//! The colour of a run and of its blocks, worked out from nothing by the words of seed 003 §3.1 (MP-D4), §5.1 and §5.3,
//! beside what the kernel keeps as it goes.

use countersign_kernel::Time;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::{Order, StepSeq};
use countersign_kernel::rollup::{Colour, Counts, Rollup};
use countersign_kernel::run::{Role, Run, RunEvent, Severity};

/// What is remembered between two looks.
#[derive(Default)]
pub struct Colours {
    shown: Rollup,
}

impl Colours {
    /// After every command.
    pub fn look(&mut self, run: &Run, event: &RunEvent) {
        let path = critical_path(run);
        for (seq, cell) in (0..).zip(&run.cells) {
            severity(run, seq, &path, event.at);
            let waits = cell.live.as_ref().is_some_and(|live| live.waiting.is_some());
            assert_eq!(cell.state == StepCode::Waiting, waits, "`waiting` and a facet go together: step {seq}");
        }
        let (colour, counts, decisive) = from_scratch(run);
        let shown = run.head.rollup;
        match run.head.state {
            RunState::Paused => {
                let last = (self.shown.colour, self.shown.counts, self.shown.decisive);
                assert_eq!((shown.colour, shown.counts, shown.decisive), last, "a paused run's colour is frozen");
                let since = self.shown.frozen_at.unwrap_or(event.at);
                assert_eq!(shown.frozen_at, Some(since));
            }
            _ => {
                assert_eq!((shown.colour, shown.counts), (colour, counts), "{:?}", run.head.state);
                assert_eq!(shown.decisive, decisive.map(|seq| (seq, run.cells[seq as usize].state)));
                assert_eq!(shown.frozen_at, None);
                if event.action.is_recorded() {
                    assert_eq!(shown.computed_at, event.at);
                }
            }
        }
        self.shown = shown;
    }
}

/// Red for one of the causes and for nothing else; by the clock only once the clock was looked at.
fn severity(run: &Run, seq: StepSeq, path: &[StepSeq], now: Time) {
    let cell = &run.cells[seq as usize];
    let live = cell.live.as_deref();
    let Some(block) = live.and_then(|live| live.block.as_ref()) else {
        assert_ne!(cell.state, StepCode::Blocked, "step {seq} is blocked since nobody knows when");
        return;
    };
    assert_eq!(cell.state, StepCode::Blocked, "step {seq} kept its severity");
    assert_eq!(cell.role, Role::Step);
    let plan = &run.plan;
    let lasted = block.since.0 + plan.blocked_escalation.after < now.0;
    let counts = plan.blocked_escalation.critical_path.unwrap_or(plan.order == Order::Dag);
    let critical = counts && path.contains(&seq);
    let late = cell.deadline().is_some_and(|deadline| deadline < now);
    match cell.severity().unwrap_or_default() {
        Severity::YellowDark => assert!(!critical, "step {seq} stands on the critical path"),
        Severity::Red(cause) => {
            assert!(lasted || critical || late || block.escalated_at.is_some(), "step {seq} is red by {cause:?}")
        }
    }
}

fn from_scratch(run: &Run) -> (Colour, Counts, Option<StepSeq>) {
    let mut counts = Counts::default();
    let (mut red, mut cancelled, mut yellow) = (vec![], vec![], vec![]);
    for (seq, cell) in (0..).zip(&run.cells) {
        let optional = cell.role == Role::Step && run.plan.steps[seq as usize].optional;
        match cell.state {
            _ if optional => counts.optional_excluded += 1,
            StepCode::Skipped => counts.skipped += 1,
            StepCode::NotStarted => {}
            StepCode::Failed | StepCode::Overdue | StepCode::CannotComplete => red.push(seq),
            StepCode::Cancelled => cancelled.push(seq),
            StepCode::Blocked if cell.severity().is_some_and(Severity::is_red) => red.push(seq),
            StepCode::Waiting | StepCode::Blocked => yellow.push(seq),
            StepCode::Ready | StepCode::InProgress | StepCode::Completed => counts.green += 1,
        }
    }
    // What failed comes before what was cancelled because of it.
    red.append(&mut cancelled);
    counts.red = red.len() as u32;
    counts.yellow = yellow.len() as u32;
    let colour = match (red.is_empty(), yellow.is_empty(), counts.green) {
        (false, ..) => Colour::Red,
        (true, false, _) => Colour::Yellow,
        (true, true, 1..) => Colour::Green,
        _ => Colour::Gray,
    };
    (colour, counts, red.first().or(yellow.first()).copied())
}

/// The longest dependency chain that reaches the earliest mandatory unfinished step; of several at the same depth, the
/// one with the longest chain behind it.
fn critical_path(run: &Run) -> Vec<StepSeq> {
    let plan = &run.plan;
    let count = plan.steps.len();
    let (mut depth, mut height) = (vec![0; count], vec![0; count]);
    // The generator's steps depend on earlier ones only.
    for (i, step) in plan.steps.iter().enumerate() {
        depth[i] = step.depends_on.iter().map(|dep| depth[*dep as usize] + 1).max().unwrap_or(0);
    }
    for (i, step) in plan.steps.iter().enumerate().rev() {
        for dep in &step.depends_on {
            height[*dep as usize] = height[*dep as usize].max(height[i] + 1);
        }
    }
    let open = |i: &usize| !plan.steps[*i].optional && !run.cells[*i].is_ended();
    let end = (0..count).filter(open).min_by_key(|i| (depth[*i], std::cmp::Reverse(height[*i]), *i));
    let mut path: Vec<StepSeq> = end.into_iter().map(|i| i as StepSeq).collect();
    while let Some(last) = path.last() {
        let before = &plan.steps[*last as usize].depends_on;
        let Some(deepest) = before.iter().map(|dep| depth[*dep as usize]).max() else { break };
        path.extend(before.iter().find(|dep| depth[**dep as usize] == deepest));
    }
    path
}
