//! Governance: problems that open and resolve on a chain of their own (`spec/governance.md`). Commits leave signals of what
//! went wrong and what was put right; [`weigh`] makes problems of them. Nothing here reads a clock or a store.

use crate::Time;
use crate::id::{EventId, IdSource, InstanceId, ProblemId};
use crate::lifecycle::Guard;
use crate::refusal::{Code, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use uuid::Uuid;

macro_rules! categories {
    ($($name:ident = $text:literal $light:ident,)*) => {
        /// What kind of problem it is. The board shows all of them, always.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Category { $($name,)* }

        impl Category {
            pub const ALL: &'static [Category] = &[$(Category::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Category::$name => $text,)* }
            }

            /// Whether the engine observes by itself what opens or resolves a problem of this category: then its own record of what it
            /// observed is the event.
            pub const fn is_observed(self) -> bool {
                matches!(
                    self,
                    Category::Dlq | Category::SilentWorkers | Category::EventLag | Category::IntegrityWarnings
                )
            }

            /// The light of a category in which a problem is open.
            pub const fn light(self) -> Light {
                match self { $(Category::$name => Light::$light,)* }
            }

            pub fn parse(text: &str) -> Option<Category> {
                Category::ALL.iter().copied().find(|category| category.as_str() == text)
            }
        }
    };
}

// In the order in which they are shown.
categories! {
    Dlq = "dlq" Red,
    SilentWorkers = "silent_workers" Red,
    OverdueSteps = "overdue_steps" Red,
    SchemaViolations = "schema_violations" Yellow,
    EventLag = "event_lag" Yellow,
    IntegrityWarnings = "integrity_warnings" Red,
    FailedRuns = "failed_runs" Red,
    OrphanRuns = "orphan_runs" Yellow,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Light {
    Green,
    Yellow,
    Red,
}

impl Light {
    pub const fn as_str(self) -> &'static str {
        match self {
            Light::Green => "green",
            Light::Yellow => "yellow",
            Light::Red => "red",
        }
    }
}

/// What a problem is about. One problem of a category and key is open at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub category: Category,
    pub key: String,
    pub run_id: Option<InstanceId>,
    pub step: Option<String>,
    pub worker_class: Option<String>,
}

/// What a commit says of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    pub subject: Subject,
    pub at: Time,
    /// The record or event that says it. Absent where the engine has observed it, which it then records.
    pub event_id: Option<EventId>,
    pub opens: bool,
    pub detail: String,
    /// It says what became of a replay: then it opens nothing, for the letter is open.
    pub replay: Option<Replayed>,
}

/// The end of the replay that this request scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub request: InstanceId,
    pub outcome: ReplayOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The delivery arrived.
    Delivered,
    /// The step may be claimed once more; its run says what becomes of it.
    Resumed,
    /// It did not arrive, or there was nothing to be tried again.
    Failed,
}

impl ReplayOutcome {
    pub const ALL: &'static [ReplayOutcome] =
        &[ReplayOutcome::Delivered, ReplayOutcome::Resumed, ReplayOutcome::Failed];

    pub const fn as_str(self) -> &'static str {
        match self {
            ReplayOutcome::Delivered => "delivered",
            ReplayOutcome::Resumed => "resumed",
            ReplayOutcome::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|outcome| outcome.as_str() == text)
    }
}

/// A replay whose request was approved, and of which the outcome is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    pub dead_letter_id: ProblemId,
    /// The step or the chain of the approval.
    pub approval_id: Uuid,
}

/// The replays that are scheduled, by request.
pub type Replays = BTreeMap<InstanceId, Scheduled>;

/// What became of a replay; its record is the event that resolves the problem of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedReplay {
    pub event_id: EventId,
    pub request: InstanceId,
    pub scheduled: Scheduled,
    pub outcome: ReplayOutcome,
    /// The record of the run that took the step up again.
    pub shown_by: Option<EventId>,
    pub at: Time,
    pub detail: String,
}

/// A problem as it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub problem_id: ProblemId,
    pub subject: Subject,
    pub since: Time,
    pub opened_event_id: EventId,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub problem_id: ProblemId,
    pub category: Category,
    pub resolved_event_id: EventId,
}

/// What the engine has observed: the record of it is the event that opens or resolves a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub event_id: EventId,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub category: Category,
    pub key: String,
    /// `false`: it is there; `true`: it is over.
    pub healed: bool,
    pub at: Time,
    pub detail: String,
}

/// So many conditions stand in one record.
const MOST_CONDITIONS: usize = 100;

/// What signals come to, in order: what was observed, what they open, what they resolve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighed {
    pub observed: Vec<Observed>,
    pub opened: Vec<Problem>,
    pub resolved: Vec<Resolved>,
    pub completed: Vec<CompletedReplay>,
    /// How many of the signals this is. What opens anew after it was resolved among them waits for the next time.
    pub taken: usize,
}

/// What opens or resolves a problem is held to these.
pub const GUARDS: &[Guard] = &[Guard::ResolvingEvent];

/// The problems that are open, by category and key, and since when.
pub type Open = BTreeMap<(Category, String), (ProblemId, Time)>;

/// Weighs signals in their order against what is open. A signal that changes nothing is dropped. One without an event is
/// refused, but for what the engine observes by itself. The end of a replay counts once, and only of one that is scheduled.
///
/// A worker class that is frozen neither becomes silent nor heals, and it heals only by a tick that came after it was found silent.
pub fn weigh(
    mut open: Open,
    mut replays: Replays,
    signals: &[Signal],
    is_frozen: &dyn Fn(&str) -> bool,
    ids: &mut IdSource,
) -> Result<Weighed, Refusal> {
    let (mut weighed, mut resolved) = (Weighed::default(), BTreeSet::new());
    for signal in signals {
        let Signal { subject, at, opens, detail, .. } = signal;
        if signal.event_id.is_none() && !subject.category.is_observed() {
            let what = if *opens { "opened" } else { "resolved" };
            let detail = format!("a problem of `{}` is {what} only by an event, and none is named", subject.category);
            return Err(Refusal::by_guard(Guard::ResolvingEvent, detail));
        }
        let key = (subject.category, subject.key.clone());
        let of_workers = subject.category == Category::SilentWorkers;
        let replayed = match signal.replay {
            Some(replayed) => {
                let completed = weighed.complete(signal, replayed, &mut replays, ids);
                if completed.is_none() || *opens {
                    weighed.taken += 1;
                    continue;
                }
                completed
            }
            None => None,
        };
        match (opens, open.get(&key).copied()) {
            _ if of_workers && is_frozen(&subject.key) => {}
            (false, Some((_, since))) if of_workers && *at <= since => {}
            (true, None) if resolved.contains(&key) => return Ok(weighed),
            (true, None) => {
                let opened_event_id = weighed.event_of(signal, ids);
                let problem_id = ids.make();
                open.insert(key, (problem_id, *at));
                let (subject, detail) = (subject.clone(), detail.clone());
                weighed.opened.push(Problem { problem_id, subject, since: *at, opened_event_id, detail });
            }
            (false, Some((problem_id, _))) => {
                open.remove(&key);
                resolved.insert(key);
                let category = subject.category;
                let resolved_event_id = replayed.unwrap_or_else(|| weighed.event_of(signal, ids));
                weighed.resolved.push(Resolved { problem_id, category, resolved_event_id });
            }
            (true, Some(_)) | (false, None) => {}
        }
        weighed.taken += 1;
    }
    Ok(weighed)
}

impl Weighed {
    /// The record that says what became of a replay; `None` where that is said already, or nothing was scheduled.
    fn complete(
        &mut self,
        signal: &Signal,
        Replayed { request, outcome }: Replayed,
        replays: &mut Replays,
        ids: &mut IdSource,
    ) -> Option<EventId> {
        let scheduled = replays.remove(&request)?;
        let event_id = ids.make();
        let (at, detail, shown_by) = (signal.at, signal.detail.clone(), signal.event_id);
        self.completed.push(CompletedReplay { event_id, request, scheduled, outcome, shown_by, at, detail });
        Some(event_id)
    }

    /// The event that the signal names, or else the record of what was observed.
    fn event_of(&mut self, signal: &Signal, ids: &mut IdSource) -> EventId {
        if let Some(event_id) = signal.event_id {
            return event_id;
        }
        let condition = Condition {
            category: signal.subject.category,
            key: signal.subject.key.clone(),
            healed: !signal.opens,
            at: signal.at,
            detail: signal.detail.clone(),
        };
        match self.observed.last_mut() {
            // What opens and is resolved at once does so by two events.
            Some(last)
                if last.conditions.len() < MOST_CONDITIONS
                    && last.conditions.iter().all(|known| known.key != condition.key) =>
            {
                last.conditions.push(condition);
                last.event_id
            }
            _ => {
                let event_id = ids.make();
                self.observed.push(Observed { event_id, conditions: vec![condition] });
                event_id
            }
        }
    }
}

/// Only the engine opens and resolves problems.
pub fn require_engine(actor_ref: &str, application_actor_ref: &str) -> Result<(), Refusal> {
    if actor_ref == application_actor_ref {
        return Ok(());
    }
    Err(Refusal::new(Code::PermissionDenied, "only the engine opens and resolves problems"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(key: &str, opens: bool, event: Option<u128>) -> Signal {
        let subject = Subject {
            category: Category::FailedRuns,
            key: key.to_owned(),
            run_id: None,
            step: None,
            worker_class: None,
        };
        let event_id = event.map(|id| EventId(uuid::Uuid::from_u128(id)));
        Signal { subject, at: Time(1), event_id, opens, detail: String::new(), replay: None }
    }

    fn observed(opens: bool, at: i64) -> Signal {
        let mut signal = signal("q:http", opens, None);
        signal.subject.category = Category::SilentWorkers;
        signal.at = Time(at);
        signal
    }

    fn ids() -> IdSource {
        IdSource::new(Time(1), 7)
    }

    #[test]
    fn there_are_eight_categories() {
        let all: Vec<&str> = Category::ALL.iter().map(|category| category.as_str()).collect();
        assert_eq!(
            all,
            [
                "dlq",
                "silent_workers",
                "overdue_steps",
                "schema_violations",
                "event_lag",
                "integrity_warnings",
                "failed_runs",
                "orphan_runs"
            ]
        );
    }

    #[test]
    fn a_problem_opens_once_and_resolves_with_the_event_that_resolved_it() {
        let signals = [
            signal("a", true, Some(1)),
            signal("a", true, Some(2)),
            signal("b", false, Some(3)),
            signal("a", false, Some(4)),
            signal("a", false, Some(5)),
        ];
        let weighed = weigh(Open::new(), Replays::new(), &signals, &|_| false, &mut ids()).expect("weighed");
        assert_eq!(weighed.opened.len(), 1);
        assert_eq!(weighed.opened[0].opened_event_id, EventId(uuid::Uuid::from_u128(1)));
        assert_eq!(weighed.resolved.len(), 1);
        assert_eq!(weighed.resolved[0].problem_id, weighed.opened[0].problem_id);
        assert_eq!(weighed.resolved[0].resolved_event_id, EventId(uuid::Uuid::from_u128(4)));
        let open = Open::from([((Category::FailedRuns, "a".to_owned()), (weighed.opened[0].problem_id, Time(1)))]);
        let again = weigh(open, Replays::new(), &signals[..2], &|_| false, &mut ids()).expect("weighed");
        assert_eq!((again.opened.len(), again.resolved.len(), again.taken), (0, 0, 2));
        // It opens anew in the next round.
        let anew = [signal("a", true, Some(1)), signal("a", false, Some(2)), signal("a", true, Some(3))];
        assert_eq!(weigh(Open::new(), Replays::new(), &anew, &|_| false, &mut ids()).expect("weighed").taken, 2);
    }

    #[test]
    fn what_the_engine_observes_is_recorded_and_its_record_is_the_event() {
        let observed = [observed(true, 1), observed(false, 2)];
        let weighed = weigh(Open::new(), Replays::new(), &observed, &|_| false, &mut ids()).expect("weighed");
        let [breached, healed] = weighed.observed.as_slice() else { panic!("{weighed:?}") };
        assert_eq!(weighed.opened[0].opened_event_id, breached.event_id);
        assert_eq!(weighed.resolved[0].resolved_event_id, healed.event_id);
        assert!(!breached.conditions[0].healed && healed.conditions[0].healed);
    }

    /// Seed 003, 7.5: false-heal protection.
    #[test]
    fn a_silent_class_heals_only_by_a_later_tick_and_not_while_it_is_frozen() {
        let opened = weigh(Open::new(), Replays::new(), &[observed(true, 5)], &|_| false, &mut ids()).expect("weighed");
        let problem_id = opened.opened[0].problem_id;
        let open = Open::from([((Category::SilentWorkers, "q:http".to_owned()), (problem_id, Time(5)))]);
        let ends = |at, frozen: bool| {
            let weighed = weigh(open.clone(), Replays::new(), &[observed(false, at)], &|_| frozen, &mut ids());
            let weighed = weighed.expect("weighed");
            assert_eq!(weighed.taken, 1, "it is weighed either way");
            weighed.resolved.len()
        };
        assert_eq!((ends(5, false), ends(6, true), ends(6, false)), (0, 0, 1));
        let frozen = weigh(Open::new(), Replays::new(), &[observed(true, 5)], &|_| true, &mut ids()).expect("weighed");
        assert!(frozen.opened.is_empty() && frozen.observed.is_empty());
    }

    /// Seed 003, 7.3: no problem is resolved without a source event.
    #[test]
    fn nothing_resolves_without_an_event() {
        for opens in [true, false] {
            let refused = weigh(Open::new(), Replays::new(), &[signal("a", opens, None)], &|_| false, &mut ids())
                .expect_err("refused");
            assert!(refused.is_by_guard(Guard::ResolvingEvent), "{refused}");
        }
    }

    fn replayed(request: u128, outcome: ReplayOutcome) -> Signal {
        let opens = outcome != ReplayOutcome::Delivered;
        let mut signal = signal("letter", opens, None);
        signal.subject.category = Category::Dlq;
        signal.replay = Some(Replayed { request: InstanceId(Uuid::from_u128(request)), outcome });
        signal
    }

    fn scheduled(request: u128) -> Replays {
        let scheduled = Scheduled { dead_letter_id: ProblemId(Uuid::from_u128(9)), approval_id: Uuid::from_u128(8) };
        Replays::from([(InstanceId(Uuid::from_u128(request)), scheduled)])
    }

    fn letter() -> Open {
        Open::from([((Category::Dlq, "letter".to_owned()), (ProblemId(Uuid::from_u128(9)), Time(1)))])
    }

    #[test]
    fn an_arrival_is_recorded_once_and_resolves_its_letter() {
        let signals = [replayed(7, ReplayOutcome::Delivered), replayed(7, ReplayOutcome::Delivered)];
        let weighed = weigh(letter(), scheduled(7), &signals, &|_| false, &mut ids()).expect("weighed");
        let [completed] = weighed.completed.as_slice() else { panic!("{weighed:?}") };
        assert_eq!((completed.outcome, completed.scheduled.approval_id.as_u128()), (ReplayOutcome::Delivered, 8));
        assert_eq!(weighed.resolved.len(), 1);
        assert_eq!(weighed.resolved[0].resolved_event_id, completed.event_id);
        assert!(weighed.observed.is_empty());
        assert_eq!(weighed.taken, 2);
    }

    #[test]
    fn a_replay_that_fails_leaves_its_letter_open_and_opens_none() {
        for open in [letter(), Open::new()] {
            let weighed = weigh(open, scheduled(7), &[replayed(7, ReplayOutcome::Failed)], &|_| false, &mut ids());
            let weighed = weighed.expect("weighed");
            assert_eq!((weighed.completed.len(), weighed.opened.len(), weighed.resolved.len()), (1, 0, 0));
        }
    }

    /// Seed 003, 7.4: every replay has a request and an approval.
    #[test]
    fn what_nobody_approved_resolves_nothing() {
        let signals = [replayed(7, ReplayOutcome::Delivered)];
        let weighed = weigh(letter(), scheduled(6), &signals, &|_| false, &mut ids()).expect("weighed");
        assert_eq!((weighed.completed.len(), weighed.resolved.len(), weighed.taken), (0, 0, 1));
    }
}
