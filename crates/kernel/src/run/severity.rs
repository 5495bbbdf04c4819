//! How bad it is that a step is blocked (seed 003, MP-D4). The state stays `blocked`; its severity is a field of its own,
//! worked out here and nowhere else, when a command or the clock moves something and never by reading.

use super::flow::Flow;
use super::{Block, Cell, Role, Run};
use crate::Time;
use crate::lifecycle::StepCode;
use crate::plan::{Order, Plan, StepSeq};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Severity {
    #[default]
    YellowDark,
    Red(Cause),
}

/// Why a block is red: any one is enough, the first in this order is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It has lasted longer than the definition allows (`blockedEscalation.after`).
    Threshold,
    CriticalPath,
    /// The step's own deadline has passed.
    Deadline,
    /// `step_block_escalate`.
    Escalated,
}

impl Cause {
    pub const ALL: &'static [Cause] = &[Cause::Threshold, Cause::CriticalPath, Cause::Deadline, Cause::Escalated];

    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Threshold => "threshold",
            Cause::CriticalPath => "critical_path",
            Cause::Deadline => "deadline",
            Cause::Escalated => "escalated",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.as_str() == text)
    }
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::YellowDark => "yellow_dark",
            Severity::Red(_) => "red",
        }
    }

    pub const fn is_red(self) -> bool {
        matches!(self, Severity::Red(_))
    }

    pub const fn cause(self) -> Option<Cause> {
        match self {
            Severity::YellowDark => None,
            Severity::Red(cause) => Some(cause),
        }
    }
}

impl Plan {
    /// Whether standing on the critical path makes a block red. In a chain every step does, so it would say nothing.
    pub fn critical_path_counts(&self) -> bool {
        self.blocked_escalation.critical_path.unwrap_or(self.order == Order::Dag)
    }

    /// Whether anybody asks where the path leads.
    pub fn has_critical_path(&self) -> bool {
        self.order == Order::Dag || self.critical_path_counts()
    }
}

impl Plan {
    /// The part of the critical path that may not have ended: where it leads, and optional steps on the way.
    fn unfinished_path(&self, rank: StepSeq) -> impl Iterator<Item = StepSeq> {
        let length = if self.has_optional_steps() { usize::MAX } else { 1 };
        self.critical_path(self.by_rank(rank)).take(length)
    }
}

/// `fn_step_blocked_severity`.
pub fn severity_of(plan: &Plan, block: &Block, deadline: Option<Time>, on_critical_path: bool, now: Time) -> Severity {
    let holds = |cause: &Cause| match cause {
        Cause::Threshold => block.since.after(plan.blocked_escalation.after) < now,
        Cause::CriticalPath => on_critical_path && plan.critical_path_counts(),
        Cause::Deadline => deadline.is_some_and(|deadline| deadline < now),
        Cause::Escalated => block.escalated_at.is_some(),
    };
    Cause::ALL.iter().copied().find(holds).map_or(Severity::YellowDark, Severity::Red)
}

/// When the clock alone makes this block red.
pub fn turns_red_at(plan: &Plan, cell: &Cell) -> Option<Time> {
    let live = cell.live.as_deref().filter(|_| cell.state == StepCode::Blocked && cell.role == Role::Step)?;
    let block = live.block.as_ref().filter(|_| !live.severity.is_red())?;
    let threshold = block.since.after(plan.blocked_escalation.after);
    Some(cell.deadline().map_or(threshold, |deadline| deadline.min(threshold)).after(1))
}

impl Cell {
    pub fn severity(&self) -> Option<Severity> {
        let live = self.live.as_deref().filter(|_| self.state == StepCode::Blocked)?;
        Some(live.severity)
    }
}

impl Run {
    /// The step that the critical path leads to: the earliest mandatory one that has not ended.
    pub fn critical_step(&self) -> Option<StepSeq> {
        self.plan.by_rank(self.head.critical).filter(|_| self.plan.has_critical_path())
    }

    /// Where the critical path leads, worked out from nothing.
    pub fn first_unfinished(plan: &Plan, ended: impl Fn(StepSeq) -> bool) -> StepSeq {
        if !plan.has_critical_path() {
            return 0;
        }
        let open = |rank: &StepSeq| {
            plan.by_rank(*rank).is_none_or(|seq| plan.step(seq).is_some_and(|step| !step.optional) && !ended(seq))
        };
        (0..).find(open).unwrap_or(StepSeq::MAX)
    }
}

impl Flow<'_, '_, '_> {
    /// Sees to the critical path, and to the blocks that this command may have made better or worse: those that it
    /// touched, and those that came to stand on the path or left it.
    pub fn weigh_blocks(&mut self) {
        let plan = &self.run.plan;
        let before = self.head.critical;
        if plan.has_critical_path() {
            self.follow_critical_path();
        }
        if self.head.blocked == 0 {
            return;
        }
        let mut suspects = self.changed_where(|cell| cell.state == StepCode::Blocked);
        if before != self.head.critical {
            suspects.extend(plan.unfinished_path(before));
            suspects.extend(plan.unfinished_path(self.head.critical));
        }
        self.weigh(suspects);
    }

    /// The severity of these steps, where they are blocked, as of now.
    pub fn weigh(&mut self, mut suspects: Vec<StepSeq>) {
        suspects.sort_unstable();
        suspects.dedup();
        let (plan, now) = (&self.run.plan, self.now());
        for seq in suspects {
            let Some(cell) = self.cell(seq).filter(|cell| cell.state == StepCode::Blocked && cell.role == Role::Step)
            else {
                continue;
            };
            let Some((known, Some(block))) = cell.live.as_ref().map(|live| (live.severity, live.block.as_ref())) else {
                continue;
            };
            let on_path =
                plan.critical_path_counts() && plan.unfinished_path(self.head.critical).any(|step| step == seq);
            let severity = severity_of(plan, block, cell.deadline(), on_path, now);
            if severity != known
                && let Ok(cell) = self.edit(seq)
            {
                cell.live.get_or_insert_default().severity = severity;
            }
        }
    }

    /// The path's end moves on over what has ended, and back to what was reopened.
    fn follow_critical_path(&mut self) {
        let plan = &self.run.plan;
        let open = |flow: &Self, seq: StepSeq| {
            plan.step(seq).is_some_and(|step| !step.optional)
                && flow.cell(seq).is_some_and(|cell| !cell.is_ended() && cell.role == Role::Step)
        };
        let reopened = self.changed_where(|cell| !cell.is_ended() && cell.role == Role::Step);
        let back = reopened.into_iter().filter(|seq| open(self, *seq)).filter_map(|seq| plan.rank(seq)).min();
        let mut rank = back.map_or(self.head.critical, |back| back.min(self.head.critical));
        while plan.by_rank(rank).is_some_and(|seq| !open(self, seq)) {
            rank += 1;
        }
        self.head.critical = rank;
    }
}
