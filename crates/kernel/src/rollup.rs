//! The colour of a whole run (seed 003 §5): red over yellow over green, by its mandatory steps that have entered the
//! graph. What a step counts as is a [`Share`]; a [`Tally`] keeps the shares of all steps in such a way that a command
//! costs what it changes, however many steps there are. A [`Rollup`] is what is shown and stored.

use crate::Time;
use crate::lifecycle::{RollupPolicy, RunState, SemanticClass, StepCode};
use crate::plan::StepSeq;
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Colour {
    /// No mandatory step has begun.
    #[default]
    Gray,
    Green,
    Yellow,
    Red,
}

impl Colour {
    pub const ALL: &'static [Colour] = &[Colour::Gray, Colour::Green, Colour::Yellow, Colour::Red];

    pub const fn as_str(self) -> &'static str {
        match self {
            Colour::Gray => "gray",
            Colour::Green => "green",
            Colour::Yellow => "yellow",
            Colour::Red => "red",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|colour| colour.as_str() == text)
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the roll-up has to know of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub state: StepCode,
    pub optional: bool,
    /// Its `blocked_severity` is red. Nothing else makes a blocked step count as red.
    pub severe: bool,
    /// The roll-up of the run that this step waits for, while that run lives.
    pub child: Option<Colour>,
}

/// What one step counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// It has not entered the graph.
    #[default]
    Nothing,
    /// never pulls.
    Skipped,
    /// never pulls, whatever its state.
    Optional,
    Green,
    /// Green like the others, and completed: progress is counted by these.
    Done,
    Yellow,
    Red,
    /// Red like the others, but as a consequence: it decides only where nothing else is red.
    Cancelled,
}

impl Share {
    pub fn of(facts: &Facts, policy: &RollupPolicy) -> Share {
        if facts.optional && policy.mandatory_only {
            return Share::Optional;
        }
        match (facts.state, facts.state.def().class) {
            (StepCode::Skipped, _) => Share::Skipped,
            (_, SemanticClass::Idle) => Share::Nothing,
            // Sub-workflow: its colour drives the step that waits for it.
            (StepCode::InProgress | StepCode::Waiting, _) if facts.child == Some(Colour::Red) => Share::Red,
            (StepCode::InProgress | StepCode::Waiting, _) if facts.child == Some(Colour::Yellow) => Share::Yellow,
            (StepCode::Completed, _) => Share::Done,
            (_, SemanticClass::Active) => Share::Green,
            (StepCode::Blocked, _) if facts.severe && policy.blocked_escalation_treats_as_red => Share::Red,
            (_, SemanticClass::Wait) => Share::Yellow,
            (StepCode::Cancelled, _) => Share::Cancelled,
            (_, SemanticClass::Red) => Share::Red,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub red: u32,
    pub yellow: u32,
    pub green: u32,
    pub skipped: u32,
    pub optional_excluded: u32,
}

/// How far a run is, by its mandatory steps. Unlike the colour it goes on while the run is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub completed: u32,
    pub skipped: u32,
}

/// The shares of all steps of a run: how many of each, and which are red or yellow. What names a step is open, so that a
/// test can count how often steps are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally<Seq: Ord = StepSeq> {
    counts: Counts,
    done: u32,
    red: BTreeSet<Seq>,
    cancelled: BTreeSet<Seq>,
    yellow: BTreeSet<Seq>,
}

impl Tally {
    /// From scratch: for a run that is loaded, and to compare with.
    pub fn of(shares: impl IntoIterator<Item = Share>) -> Tally {
        let mut tally = Tally::default();
        for (seq, share) in (0..).zip(shares) {
            tally.replace(seq, Share::Nothing, share);
        }
        tally
    }
}

impl<Seq: Ord + Copy> Tally<Seq> {
    /// The step counted as `old` and counts as `new` from now on. O(log n).
    pub fn replace(&mut self, seq: Seq, old: Share, new: Share) {
        if old == new {
            return;
        }
        match old {
            Share::Red => drop(self.red.remove(&seq)),
            Share::Cancelled => drop(self.cancelled.remove(&seq)),
            Share::Yellow => drop(self.yellow.remove(&seq)),
            _ => {}
        }
        match new {
            Share::Red => drop(self.red.insert(seq)),
            Share::Cancelled => drop(self.cancelled.insert(seq)),
            Share::Yellow => drop(self.yellow.insert(seq)),
            _ => {}
        }
        self.done = (self.done + u32::from(new == Share::Done)).saturating_sub(u32::from(old == Share::Done));
        if let Some(count) = self.count(old) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = self.count(new) {
            *count += 1;
        }
    }

    fn count(&mut self, share: Share) -> Option<&mut u32> {
        match share {
            Share::Nothing => None,
            Share::Skipped => Some(&mut self.counts.skipped),
            Share::Optional => Some(&mut self.counts.optional_excluded),
            Share::Green | Share::Done => Some(&mut self.counts.green),
            Share::Yellow => Some(&mut self.counts.yellow),
            Share::Red | Share::Cancelled => Some(&mut self.counts.red),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How far the mandatory steps are: completed ones, and those that were skipped and never will be.
    pub fn progress(&self) -> Progress {
        Progress { completed: self.done, skipped: self.counts.skipped }
    }

    /// and gray where nothing counts.
    pub fn colour(&self) -> Colour {
        match self.counts {
            Counts { red: 1.., .. } => Colour::Red,
            Counts { yellow: 1.., .. } => Colour::Yellow,
            Counts { green: 1.., .. } => Colour::Green,
            _ => Colour::Gray,
        }
    }

    /// The step that decides: the first of those that make the run red, or else yellow; what was only cancelled comes
    /// behind what failed. Green is nobody's doing.
    pub fn decisive(&self) -> Option<Seq> {
        self.red.first().or_else(|| self.cancelled.first()).or_else(|| self.yellow.first()).copied()
    }
}

/// The roll-up with its basis, as of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    pub colour: Colour,
    pub counts: Counts,
    pub decisive: Option<(StepSeq, StepCode)>,
    pub computed_at: Time,
    /// Since when it stands still: the run is paused.
    pub frozen_at: Option<Time>,
}

impl Rollup {
    /// What is shown after a command: computed anew, or frozen at its last value while the run is paused.
    pub fn after(
        self,
        tally: &Tally,
        state_of: impl FnOnce(StepSeq) -> Option<StepCode>,
        run: RunState,
        at: Time,
    ) -> Rollup {
        if run == RunState::Paused {
            return Rollup { frozen_at: self.frozen_at.or(Some(at)), ..self };
        }
        let decisive = tally.decisive().and_then(|seq| Some((seq, state_of(seq)?)));
        Rollup { colour: tally.colour(), counts: tally.counts(), decisive, computed_at: at, frozen_at: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{ROLLUP_POLICY, STEP_STATES};

    fn share(state: StepCode) -> Share {
        Share::of(&Facts { state, optional: false, severe: false, child: None }, &ROLLUP_POLICY)
    }

    fn colour(states: &[StepCode]) -> Colour {
        Tally::of(states.iter().map(|state| share(*state))).colour()
    }

    use StepCode::{
        Blocked, Cancelled, CannotComplete, Completed, Failed, InProgress, NotStarted, Overdue, Ready, Skipped, Waiting,
    };

    #[test]
    fn r1_red_overrides_yellow_overrides_green() {
        for red in [Failed, Overdue, CannotComplete, Cancelled] {
            assert_eq!(colour(&[Completed, Waiting, red, InProgress]), Colour::Red, "{red}");
        }
    }

    #[test]
    fn what_failed_decides_over_what_was_cancelled_because_of_it() {
        let decisive = |states: &[StepCode]| Tally::of(states.iter().map(|state| share(*state))).decisive();
        assert_eq!(decisive(&[Completed, Cancelled, Failed, Waiting]), Some(2));
        assert_eq!(decisive(&[Waiting, Cancelled, Cancelled]), Some(1));
        assert_eq!(Tally::of([Cancelled, Failed].map(share)).counts().red, 2);
    }

    #[test]
    fn r2_wait_class_without_red_is_at_most_yellow() {
        for wait in [Waiting, Blocked] {
            assert_eq!(colour(&[Completed, wait, InProgress, NotStarted]), Colour::Yellow, "{wait}");
        }
    }

    #[test]
    fn r3_what_was_skipped_or_never_entered_does_not_count() {
        assert_eq!(colour(&[Completed, Skipped, NotStarted]), Colour::Green);
        assert_eq!(colour(&[Skipped, Skipped, NotStarted]), Colour::Gray);
    }

    #[test]
    fn r4_optional_steps_never_pull() {
        for def in STEP_STATES {
            let facts = Facts { state: def.code, optional: true, severe: true, child: Some(Colour::Red) };
            let tally = Tally::of([Share::of(&facts, &ROLLUP_POLICY), share(InProgress)]);
            assert_eq!(tally.colour(), Colour::Green, "{}", def.text);
            assert_eq!(tally.counts().optional_excluded, 1);
        }
    }

    /// Were the policy another one, the colour would be another one.
    #[test]
    fn r5_the_policy_decides() {
        let severe = Facts { state: Blocked, optional: false, severe: true, child: None };
        let lenient = RollupPolicy { blocked_escalation_treats_as_red: false, ..ROLLUP_POLICY };
        let all = RollupPolicy { mandatory_only: false, ..ROLLUP_POLICY };
        let optional = Facts { state: Failed, optional: true, severe: false, child: None };
        assert_eq!(Share::of(&severe, &ROLLUP_POLICY), Share::Red);
        assert_eq!(Share::of(&severe, &lenient), Share::Yellow);
        assert_eq!(Share::of(&optional, &ROLLUP_POLICY), Share::Optional);
        assert_eq!(Share::of(&optional, &all), Share::Red);
    }

    #[test]
    fn r6_all_completed_is_green() {
        assert_eq!(colour(&[Completed, Completed, Skipped]), Colour::Green);
        assert_eq!(colour(&[Completed, Ready]), Colour::Green);
    }

    #[test]
    fn no_mandatory_active_step_is_gray() {
        assert_eq!(colour(&[]), Colour::Gray);
        assert_eq!(colour(&[NotStarted, NotStarted]), Colour::Gray);
    }

    /// §5.3: red and yellow of a sub-workflow drive its step; a green one does not hide what the step itself says.
    #[test]
    fn a_sub_workflow_drives_its_step() {
        let of = |state, child| Share::of(&Facts { state, optional: false, severe: false, child }, &ROLLUP_POLICY);
        assert_eq!(of(InProgress, Some(Colour::Red)), Share::Red);
        assert_eq!(of(InProgress, Some(Colour::Yellow)), Share::Yellow);
        assert_eq!(of(InProgress, Some(Colour::Green)), Share::Green);
        assert_eq!(of(InProgress, Some(Colour::Gray)), Share::Green);
        assert_eq!(of(Waiting, Some(Colour::Green)), Share::Yellow);
        assert_eq!(of(Completed, Some(Colour::Red)), Share::Done, "it is over");
    }

    #[test]
    fn a_paused_run_keeps_its_colour_and_says_since_when() {
        let state = |_| Some(Failed);
        let green = Rollup::default().after(&Tally::of([Share::Green]), state, RunState::Executing, Time(5));
        let red = Tally::of([Share::Red]);
        let frozen = green.after(&red, state, RunState::Paused, Time(7));
        assert_eq!(frozen, Rollup { frozen_at: Some(Time(7)), ..green });
        assert_eq!(frozen.after(&red, state, RunState::Paused, Time(9)), frozen, "it stays as it was frozen");
        let thawed = frozen.after(&red, state, RunState::Executing, Time(11));
        assert_eq!((thawed.colour, thawed.frozen_at, thawed.computed_at), (Colour::Red, None, Time(11)));
        assert_eq!(thawed.decisive, Some((0, Failed)));
    }

    #[test]
    fn progress_counts_what_is_completed_and_goes_back_with_a_correction() {
        let mut tally = Tally::of([Completed, Completed, Skipped, InProgress].map(share));
        assert_eq!(tally.progress(), Progress { completed: 2, skipped: 1 });
        tally.replace(0, share(Completed), share(InProgress));
        tally.replace(3, share(InProgress), share(Completed));
        assert_eq!(tally.progress(), Progress { completed: 2, skipped: 1 });
        assert_eq!(tally.counts(), Counts { green: 3, skipped: 1, ..Counts::default() });
    }

    #[test]
    fn the_first_of_the_worst_decides() {
        let tally = Tally::of([Share::Green, Share::Yellow, Share::Red, Share::Red]);
        assert_eq!(tally.decisive(), Some(2));
        assert_eq!(Tally::of([Share::Green, Share::Yellow, Share::Yellow]).decisive(), Some(1));
        assert_eq!(Tally::of([Share::Green]).decisive(), None);
    }
}
