//! Whether a definition may start anything: retirement, and the pause of what starts by itself.

use super::{Definition, EventBody, Registry, denied, scopes};
use crate::Time;
use crate::refusal::{Code, Refusal, require_optional_text, require_ref, require_text};
use std::sync::Arc;

/// What an actor said about a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Its versions up to now start nothing any more.
    Retired,
    /// Neither its schedules nor its events start runs.
    Paused,
    Resumed,
}

impl Mark {
    pub const ALL: [Mark; 3] = [Mark::Retired, Mark::Paused, Mark::Resumed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Mark::Retired => "retired",
            Mark::Paused => "paused",
            Mark::Resumed => "resumed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Mark::ALL.into_iter().find(|mark| mark.as_str() == text)
    }

    /// The action of its record.
    pub const fn action(self) -> &'static str {
        match self {
            Mark::Retired => "definition_retired",
            Mark::Paused => "schedule_paused",
            Mark::Resumed => "schedule_resumed",
        }
    }

    /// The name of the command.
    pub const fn command(self) -> &'static str {
        match self {
            Mark::Retired => "retire_definition",
            Mark::Paused => "pause_schedule",
            Mark::Resumed => "resume_schedule",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub mark: Mark,
    pub name: String,
    /// The newest version at that time.
    pub version: u32,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub struct MarkDefinition {
    pub mark: Mark,
    pub name: String,
    pub reason: Option<String>,
}

/// A pause that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub at: Time,
    pub by: String,
    pub reason: Option<String>,
}

/// A retirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// This version and all before it start nothing.
    pub version: u32,
    pub at: Time,
    pub by: String,
    pub reason: Option<String>,
}

/// What was last said about a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub retired: Option<Retirement>,
    pub paused: Option<Pause>,
    pub resumed_at: Option<Time>,
}

impl Standing {
    pub(super) fn apply(&mut self, marked: &Marked, at: Time, by: &str) {
        let (by, reason) = (by.to_owned(), marked.reason.clone());
        match marked.mark {
            // What was published anew is not paused.
            Mark::Retired => {
                let retired = Some(Retirement { version: marked.version, at, by, reason });
                *self = Standing { retired, ..Standing::default() };
            }
            Mark::Paused => self.paused = Some(Pause { at, by, reason }),
            Mark::Resumed => (self.paused, self.resumed_at) = (None, Some(at)),
        }
    }
}

impl Registry {
    pub fn standing(&self, name: &str) -> Option<&Standing> {
        self.standing.get(name)
    }

    pub fn is_retired(&self, name: &str, version: u32) -> bool {
        self.standing(name).and_then(|standing| standing.retired.as_ref()).is_some_and(|it| version <= it.version)
    }

    /// The pause of what starts this definition's runs by itself.
    pub fn pause_of(&self, name: &str) -> Option<&Pause> {
        self.standing(name)?.paused.as_ref()
    }

    /// Refuses what is retired.
    pub fn require_live(&self, definition: &Definition) -> Result<(), Refusal> {
        if !self.is_retired(&definition.name, definition.version) {
            return Ok(());
        }
        let (name, version) = (&definition.name, definition.version);
        let detail = format!("version {version} of `{name}` is retired: it starts nothing. Publish it again to use it");
        Err(Refusal::new(Code::NotActive, detail).at("definition"))
    }

    /// Refuses what would start by itself while that is paused.
    pub(crate) fn require_unpaused(&self, name: &str) -> Result<(), Refusal> {
        let Some(pause) = self.pause_of(name) else { return Ok(()) };
        let detail = format!("`{name}` is paused by `{}`: neither its schedules nor events start it", pause.by);
        Err(Refusal::new(Code::NotActive, detail).at("definition"))
    }
}

/// An empty list: it is so already.
pub(super) fn decide(
    registry: &Registry,
    command: &MarkDefinition,
    actor_ref: &str,
) -> Result<Vec<EventBody>, Refusal> {
    let MarkDefinition { mark, name, reason } = command;
    require_ref("definition", name)?;
    match mark {
        Mark::Resumed => require_optional_text("reason", reason.as_deref())?,
        Mark::Retired | Mark::Paused => require_text("reason", reason.as_deref().unwrap_or_default())?,
    }
    let (scope, finer) = match mark {
        Mark::Retired => (scopes::DEFINITIONS_PUBLISH, None),
        Mark::Paused | Mark::Resumed => (scopes::RUNS_CONTROL, Some(name.as_str())),
    };
    if !registry.permitted_on(actor_ref, scope, finer) {
        return Err(denied(actor_ref, scope));
    }
    let definition = registry
        .definition(name, None)
        .ok_or_else(|| Refusal::new(Code::NotKnown, format!("no definition `{name}` is published")).at("definition"))?;
    registry.require_live(definition)?;
    let refuse = |detail: String| Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
    let paused = registry.pause_of(name).is_some();
    match mark {
        Mark::Retired if definition.machine.is_some() => {
            return refuse(format!("`{name}` is a state machine, which starts nothing: retire what names it"));
        }
        Mark::Paused | Mark::Resumed if !definition.starts_by_itself() && !paused => {
            return refuse(format!("`{name}` has neither `schedule` nor `on`: nothing starts it by itself"));
        }
        Mark::Paused if paused => return Ok(vec![]),
        Mark::Resumed if !paused => return Ok(vec![]),
        Mark::Retired | Mark::Paused | Mark::Resumed => {}
    }
    let marked = Marked { mark: *mark, name: name.clone(), version: definition.version, reason: reason.clone() };
    Ok(vec![EventBody::DefinitionMarked(marked)])
}

impl Registry {
    /// The definitions of which an event of this type starts runs now: in their newest version, neither retired nor paused.
    pub fn started_by(&self, event_type: &str) -> impl Iterator<Item = &Definition> {
        let newest = self.definitions.values().filter_map(|versions| versions.last().map(Arc::as_ref));
        newest.filter(move |definition: &&Definition| {
            let workflow = definition.workflow.as_ref();
            workflow.is_some_and(|workflow| workflow.outline.started_by.iter().any(|known| **known == *event_type))
                && !self.is_retired(&definition.name, definition.version)
                && self.pause_of(&definition.name).is_none()
        })
    }
}

impl Definition {
    /// Whether the clock or an event starts it.
    pub fn starts_by_itself(&self) -> bool {
        let outline = self.workflow.as_ref().map(|workflow| &workflow.outline);
        outline.is_some_and(|outline| !outline.schedule.is_empty() || !outline.started_by.is_empty())
    }
}
