//! Commands by number, and the generator that draws them.

use super::calls::DOING;
use super::{ACTIONS, Book, Design, PEOPLE, Rng, design};
use crate::place::ADMIN;
use countersign_kernel::process::Decision;

/// Keys are drawn from so few that many are used again.
const KEYS: usize = 40;
const DESIGNS: usize = 6;
const INSTANCES: usize = 12;

#[derive(Clone, Debug)]
pub enum Ask {
    Start { design: usize, inline: bool, subject_ref: String },
    Open { instance: usize, action: String },
    Decide { instance: usize, action: String, decision: Decision, step: Option<StepAt> },
    Fire { instance: usize, action: String },
    Grant { subject_ref: String, scope: String },
    Revoke { grant: usize },
}

/// A step that the caller names.
#[derive(Clone, Copy, Debug)]
pub enum StepAt {
    /// The nth that was ever opened on the instance.
    Nth(usize),
    /// An id that was never issued.
    Nowhere,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub actor_ref: String,
    pub ask: Ask,
    pub reason: Option<String>,
    pub key: Option<String>,
}

/// Draws commands. What it knows of the instances comes from the book of whoever carries them out.
pub struct Asker {
    rng: Rng,
    pub designs: Vec<Design>,
    asked: usize,
    /// What was asked under keys, to be asked again.
    keyed: Vec<Asked>,
    /// The transition that was last worked on: most work goes on where it was begun.
    focus: Option<(usize, String)>,
    /// Grants and revocations among the commands.
    registry_percent: usize,
}

impl Asker {
    pub fn new(seed: u64, n: u64) -> Self {
        // The designs are everybody's; the draws are one's own.
        let mut shared = Rng::new(seed);
        let designs = (0..DESIGNS).map(|number| design(&mut shared, number)).collect();
        Asker { rng: Rng::fork(seed, n), designs, asked: 0, keyed: vec![], focus: None, registry_percent: 8 }
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub fn next(&mut self, book: &Book) -> Asked {
        self.asked += 1;
        if self.rng.percent(4)
            && let Some(again) = self.rng.pick(&self.keyed)
        {
            return again.clone();
        }
        let mut asked = self.draw(book);
        if self.rng.percent(20) {
            asked.key = Some(format!("key-{}", self.rng.below(KEYS)));
            self.keyed.push(asked.clone());
        }
        asked
    }

    fn draw(&mut self, book: &Book) -> Asked {
        if self.rng.percent(self.registry_percent) {
            return self.draw_registry(book);
        }
        let few = book.instances.len() < 3;
        if few || (book.instances.len() < INSTANCES && self.rng.percent(10)) {
            let subject_ref = format!("subject-{}", self.rng.below(10));
            let ask = Ask::Start { design: self.rng.below(DESIGNS), inline: self.rng.percent(50), subject_ref };
            let doer = self.doer();
            return self.asked(doer, ask);
        }
        if let Some((instance, _)) = self.focus {
            if self.rng.percent(75) {
                return self.draw_on(book, instance);
            }
            self.focus = None;
        }
        // Recent ones more often than old ones.
        let back = self.rng.below(book.instances.len()).min(self.rng.below(book.instances.len()));
        self.draw_on(book, book.instances.len() - 1 - back)
    }

    fn draw_on(&mut self, book: &Book, instance: usize) -> Asked {
        let known = &book.instances[instance];
        let declaration = self.designs[known.design].declaration.clone();
        let spec = self.designs[known.design].gate_spec.clone();
        let from_here: Vec<_> = declaration.transitions.iter().filter(|t| t.from_state == known.state).collect();
        let begun = self.focus.as_ref().filter(|(at, _)| *at == instance).map(|(_, action)| action.as_str());
        let begun = from_here.iter().copied().find(|t| Some(t.action.as_str()) == begun);
        let transition = match begun {
            Some(begun) => Some(begun),
            None if self.rng.percent(88) => self.rng.pick(&from_here).copied(),
            None => None,
        };
        let Some(transition) = transition else {
            let action = ACTIONS[self.rng.below(ACTIONS.len())].to_owned();
            let actor = self.anybody();
            return match self.rng.below(3) {
                0 => self.asked(actor, Ask::Open { instance, action }),
                1 => self.decision(actor, instance, action, known.steps.len()),
                _ => self.asked(actor, Ask::Fire { instance, action }),
            };
        };
        let action = transition.action.clone();
        self.focus = Some((instance, action.clone()));
        let entry = transition.guard.as_ref().and_then(|label| spec.0.get(label));
        let (open, decide) = if entry.is_some() { (25, 80) } else { (5, 10) };
        let draw = self.rng.below(100);
        if draw < open {
            let doer = self.doer();
            self.asked(doer, Ask::Open { instance, action })
        } else if draw < decide {
            let named = entry.and_then(|entry| self.rng.pick(entry.approvers()).cloned());
            let actor = match named {
                Some(named) if self.rng.percent(85) => named,
                _ => self.anybody(),
            };
            self.decision(actor, instance, action, known.steps.len())
        } else {
            let doer = self.doer();
            self.asked(doer, Ask::Fire { instance, action })
        }
    }

    fn decision(&mut self, actor_ref: String, instance: usize, action: String, steps: usize) -> Asked {
        let decision = [Decision::Approve, Decision::Reject, Decision::Withdraw]
            [[0, 0, 0, 0, 0, 0, 1, 2].get(self.rng.below(8)).copied().unwrap_or(0)];
        let step = match self.rng.below(10) {
            0 => Some(StepAt::Nowhere),
            1..=3 if steps > 0 => Some(StepAt::Nth(steps - 1 - self.rng.below(steps.min(4)))),
            _ => None,
        };
        self.asked(actor_ref, Ask::Decide { instance, action, decision, step })
    }

    fn draw_registry(&mut self, book: &Book) -> Asked {
        let scope = DOING[self.rng.below(DOING.len())];
        let scope = match self.rng.below(3) {
            0 => format!("{scope}:{}", self.designs[self.rng.below(DESIGNS)].name),
            _ => scope.to_owned(),
        };
        let revoke = !book.grants.is_empty() && self.rng.percent(50);
        let ask = if revoke {
            Ask::Revoke { grant: self.rng.below(book.grants.len()) }
        } else {
            Ask::Grant { subject_ref: self.anybody(), scope }
        };
        let actor_ref = if self.rng.percent(95) { ADMIN.to_owned() } else { self.anybody() };
        self.asked(actor_ref, ask)
    }

    fn asked(&mut self, actor_ref: String, ask: Ask) -> Asked {
        let reason = match self.rng.below(20) {
            0 => None,
            1 => Some(" ".to_owned()),
            _ => Some(format!("reason {}", self.asked)),
        };
        Asked { actor_ref, ask, reason, key: None }
    }

    /// An actor who has every scope at first.
    fn doer(&mut self) -> String {
        if self.rng.percent(90) { PEOPLE[self.rng.below(2)].to_owned() } else { self.anybody() }
    }

    fn anybody(&mut self) -> String {
        PEOPLE[self.rng.below(PEOPLE.len())].to_owned()
    }
}
