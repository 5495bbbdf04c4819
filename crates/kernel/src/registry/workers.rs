//! Worker classes: the workers of one queue and one kind. A frozen class claims nothing, on any node, until it is thawed.

use super::{EventBody, Registry, denied, scopes};
use crate::Time;
use crate::refusal::{Code, Refusal, require_ref, require_text};
use std::collections::BTreeMap;

/// The kind of workers whose id does not say one.
pub const DEFAULT_KIND: &str = "worker";

/// The kind of a worker: its id up to the first `:`.
pub fn worker_kind(worker_id: &str) -> &str {
    match worker_id.split_once(':') {
        Some((kind, _)) if !kind.is_empty() => kind,
        _ => DEFAULT_KIND,
    }
}

/// `<queue>:<kind>`. A kind has no `:`, so the last one parts them.
pub fn worker_class(queue: &str, worker_id: &str) -> String {
    format!("{queue}:{}", worker_kind(worker_id))
}

/// What an actor said about a worker class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClassMark {
    Frozen,
    Thawed,
}

impl ClassMark {
    pub const ALL: [ClassMark; 2] = [ClassMark::Frozen, ClassMark::Thawed];

    pub const fn as_str(self) -> &'static str {
        match self {
            ClassMark::Frozen => "frozen",
            ClassMark::Thawed => "thawed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        ClassMark::ALL.into_iter().find(|mark| mark.as_str() == text)
    }

    /// The action of its record.
    pub const fn action(self) -> &'static str {
        match self {
            ClassMark::Frozen => "worker_class_frozen",
            ClassMark::Thawed => "worker_class_thawed",
        }
    }

    /// The name of the command.
    pub const fn command(self) -> &'static str {
        match self {
            ClassMark::Frozen => "freeze_workers",
            ClassMark::Thawed => "thaw_workers",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassMarked {
    pub mark: ClassMark,
    pub worker_class: String,
    pub reason: String,
}

/// A freeze that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    pub at: Time,
    pub by: String,
    pub reason: String,
}

/// The classes that are frozen, and when the others were last thawed.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    frozen: BTreeMap<String, Freeze>,
    thawed: BTreeMap<String, Time>,
}

impl Classes {
    pub(super) fn apply(&mut self, marked: &ClassMarked, at: Time, by: &str) {
        let class = marked.worker_class.clone();
        match marked.mark {
            ClassMark::Frozen => {
                let freeze = Freeze { at, by: by.to_owned(), reason: marked.reason.clone() };
                self.frozen.insert(class, freeze);
            }
            ClassMark::Thawed => {
                self.frozen.remove(&class);
                self.thawed.insert(class, at);
            }
        }
    }
}

impl Registry {
    pub fn has_frozen(&self) -> bool {
        !self.classes.frozen.is_empty()
    }

    /// Whether this worker may claim nothing of this queue. Costs nothing while no class is frozen.
    pub fn is_frozen(&self, queue: &str, worker_id: &str) -> bool {
        self.has_frozen() && self.classes.frozen.contains_key(&worker_class(queue, worker_id))
    }

    pub fn freeze_of(&self, worker_class: &str) -> Option<&Freeze> {
        self.classes.frozen.get(worker_class)
    }

    pub fn frozen_classes(&self) -> impl Iterator<Item = (&str, &Freeze)> {
        self.classes.frozen.iter().map(|(class, freeze)| (class.as_str(), freeze))
    }

    /// When the class was last thawed.
    pub fn thawed_at(&self, worker_class: &str) -> Option<Time> {
        self.classes.thawed.get(worker_class).copied()
    }
}

/// An empty list: it is so already.
pub(super) fn decide(registry: &Registry, command: &ClassMarked, actor_ref: &str) -> Result<Vec<EventBody>, Refusal> {
    let ClassMarked { mark, worker_class, reason } = command;
    require_ref("worker_class", worker_class)?;
    require_text("reason", reason)?;
    if !registry.permitted(actor_ref, scopes::GOVERNANCE_ACT) {
        return Err(denied(actor_ref, scopes::GOVERNANCE_ACT));
    }
    if !worker_class.rsplit_once(':').is_some_and(|(queue, kind)| !queue.is_empty() && !kind.is_empty()) {
        let detail =
            format!("`{worker_class}` is no worker class: write `<queue>:<kind>`, such as `orders:{DEFAULT_KIND}`");
        return Err(Refusal::new(Code::InvalidRequest, detail).at("worker_class"));
    }
    let frozen = registry.freeze_of(worker_class).is_some();
    match mark {
        ClassMark::Frozen if frozen => Ok(vec![]),
        ClassMark::Thawed if !frozen => Ok(vec![]),
        ClassMark::Frozen | ClassMark::Thawed => Ok(vec![EventBody::WorkerClassMarked(command.clone())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_queue_and_the_kind_of_the_worker() {
        assert_eq!(worker_class("orders", "shop:host7:4711:9f3a"), "orders:shop");
        for plain in ["w-1", "", ":x"] {
            assert_eq!(worker_class("a:b", plain), "a:b:worker");
        }
    }
}
