//! Gates as the records tell them, kept small: the state comparison needs them after the chain is read.

use super::quorum::{Rule, State};
use crate::bytes::{Id, sha256};
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Unspent,
    Consumed,
    Mooted,
}

impl Fate {
    pub const fn as_str(self) -> &'static str {
        match self {
            Fate::Unspent => "unspent",
            Fate::Consumed => "consumed",
            Fate::Mooted => "mooted",
        }
    }
}

#[derive(Debug)]
pub struct Gate {
    /// The step's id, or the chain's.
    pub id: Id,
    pub from_state: Rc<str>,
    pub action: Rc<str>,
    pub guard: Rc<str>,
    pub scope: Rc<str>,
    pub opened_at_us: i64,
    pub opened_seq: u64,
    pub opened_by: Rc<str>,
    /// A chain's rule; None for a single gate.
    pub rule: Option<Rule>,
    pub chain_state: State,
    pub fate: Fate,
    pub current: bool,
    /// False: records that were purged may have decided, resolved, spent or mooted it.
    pub sure: bool,
    pub steps: Vec<Step>,
}

#[derive(Debug)]
pub struct Step {
    pub step_id: Id,
    pub assignment_id: Id,
    pub approver: Rc<str>,
    pub state: State,
    pub end: Option<End>,
    /// A record that was purged may have ended it: where it stands, and since when, is not known.
    pub assumed: bool,
    /// When the entry in the in-tray was recalled.
    pub recalled_at_us: Option<i64>,
    /// A record that was purged may have recalled it earlier.
    pub recall_unknown: bool,
    /// A substitute decided: the entry in the in-tray became theirs.
    pub transfer: Option<Transfer>,
}

#[derive(Clone, Debug)]
pub struct Transfer {
    pub assignment_id: Id,
    pub to: Rc<str>,
    pub at_us: i64,
}

#[derive(Clone, Debug)]
pub struct End {
    pub by: Rc<str>,
    pub at_us: i64,
    pub reason: Reason,
}

/// Why a step ended, as far as a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    None,
    /// A hash of the text is enough to tell.
    Stated([u8; 16]),
}

/// Why a step of a moot gate was withdrawn, in the engine's own words (`spec/bundle.md`, section 2).
pub const MOOT: &str = "Gate moot: workflow left the gate's from_state by firing a different transition";
/// Why the undecided rest of a chain was withdrawn whose quorum was out of reach.
pub const UNREACHABLE: &str = "Chain withdrawn: its quorum can no longer be reached";

impl Reason {
    pub fn of(reason: Option<&str>) -> Reason {
        match reason {
            None => Reason::None,
            Some(text) => Reason::Stated(sha256(&[text.as_bytes()]).short()),
        }
    }
}

impl Gate {
    pub fn is_chain(&self) -> bool {
        self.rule.is_some()
    }

    /// Where it stands: a chain by its recorded outcome, a single gate by its step.
    pub fn status(&self) -> State {
        match self.rule {
            Some(_) => self.chain_state,
            None => self.steps.first().map_or(State::Withdrawn, |step| step.state),
        }
    }

    /// Approved by its own steps, whatever was recorded as outcome.
    pub fn rule_met(&self) -> bool {
        let states: Vec<State> = self.steps.iter().map(|step| step.state).collect();
        self.rule.unwrap_or(Rule::All).met(&states)
    }

    /// Bound, and still waiting or approved for a firing.
    pub fn is_live(&self) -> bool {
        self.current && self.fate == Fate::Unspent && matches!(self.status(), State::Pending | State::Approved)
    }

    pub fn pending(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.state == State::Pending)
    }

    /// Ends every pending step with its gate. What a purged record may have ended before stays in doubt.
    pub fn withdraw_pending(&mut self, by: &Rc<str>, at_us: i64, reason: Reason) {
        for step in self.steps.iter_mut().filter(|step| step.state == State::Pending) {
            let assumed = step.assumed;
            step.settle(State::Withdrawn, End { by: by.clone(), at_us, reason });
            step.assumed = assumed;
        }
    }

    /// A record without content may have done anything to it that was still to be done.
    pub fn doubt(&mut self, fired: bool) {
        let pending = self.steps.iter().any(|step| step.state == State::Pending || step.assumed);
        if fired || pending || self.fate == Fate::Unspent {
            self.sure = false;
        }
        for step in &mut self.steps {
            step.assumed |= step.state == State::Pending;
            step.recall_unknown |= step.recalled_at_us.is_none();
        }
    }
}

impl Step {
    pub fn settle(&mut self, state: State, end: End) {
        self.state = state;
        self.assumed = false;
        self.recall(end.at_us);
        self.end = Some(end);
    }

    /// It left the in-tray with its chain's outcome, and ended only then.
    pub fn is_trailing(&self) -> bool {
        self.end.as_ref().zip(self.recalled_at_us).is_some_and(|(end, recalled_at_us)| end.at_us > recalled_at_us)
    }

    pub fn recall(&mut self, at_us: i64) {
        self.recalled_at_us.get_or_insert(at_us);
    }
}

/// All gates of a process, found by gate, by step and by the transition they are bound to.
#[derive(Debug, Default)]
pub struct Gates {
    list: Vec<Gate>,
    by_id: HashMap<Id, usize>,
    by_step: HashMap<Id, usize>,
    bound: HashMap<(Rc<str>, Rc<str>), usize>,
    /// Gates that leaving their state may still concern.
    waiting: Vec<usize>,
}

impl Gates {
    pub fn get(&self, id: Id) -> Option<&Gate> {
        self.list.get(*self.by_id.get(&id)?)
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut Gate> {
        self.list.get_mut(*self.by_id.get(&id)?)
    }

    pub fn of_step(&self, step_id: Id) -> Option<&Gate> {
        self.list.get(*self.by_step.get(&step_id)?)
    }

    pub fn step_mut(&mut self, step_id: Id) -> Option<&mut Step> {
        let gate = self.list.get_mut(*self.by_step.get(&step_id)?)?;
        gate.steps.iter_mut().find(|step| step.step_id == step_id)
    }

    /// The current binding of a transition.
    pub fn bound(&self, from_state: &Rc<str>, action: &Rc<str>) -> Option<&Gate> {
        self.list.get(*self.bound.get(&(from_state.clone(), action.clone()))?)
    }

    /// Whether the id of the gate or one of its steps was used before.
    pub fn knows(&self, gate: &Gate) -> bool {
        self.by_id.contains_key(&gate.id) || gate.steps.iter().any(|step| self.by_step.contains_key(&step.step_id))
    }

    /// Binds a new gate in place of the one before it.
    pub fn bind(&mut self, gate: Gate) {
        let at = self.list.len();
        let key = (gate.from_state.clone(), gate.action.clone());
        if let Some(old) = self.bound.insert(key, at).and_then(|old| self.list.get_mut(old)) {
            old.current = false;
        }
        self.by_id.insert(gate.id, at);
        self.by_step.extend(gate.steps.iter().map(|step| (step.step_id, at)));
        super::push_tight(&mut self.waiting, at);
        super::push_tight(&mut self.list, gate);
    }

    /// Gates of a state that was left and still wait for something, after which nothing waits there any more.
    pub fn left_waiting(&mut self, from_state: &str) -> Vec<Id> {
        let list = &self.list;
        let of_state = |i: &usize| list.get(*i).filter(|gate| &*gate.from_state == from_state);
        let found =
            self.waiting.iter().filter_map(of_state).filter(|gate| gate.is_live()).map(|gate| gate.id).collect();
        self.waiting.retain(|i| of_state(i).is_none());
        found
    }

    pub fn doubt(&mut self, fired: bool) {
        self.list.iter_mut().for_each(|gate| gate.doubt(fired));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Gate> {
        self.list.iter()
    }
}
