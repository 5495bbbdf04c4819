//! The transitions of a machine: those of the floor, which apply whether they are written or not, and its own.

use super::floor::{transition_row, verbatim};
use super::state::States;
use crate::fields::{FieldList, Mapping, list, string};
use crate::names::name;
use crate::problem::{ProblemCode, Problems, enumerated, quoted};
use crate::tree::{Node, Value};
use crate::workflow::values::{boolean, word};
use countersign_kernel::lifecycle::{
    ActorClass, EVENT_TYPES, Guard, MachineDef, MachineScope, OWN_GUARDS, OwnTransition, StepCode, TransitionRow,
    TriggerKind, can_emit, event_type, floor_allows, floor_trigger,
};
use std::collections::HashMap;

/// `from`, `to` and `guard`, as in a process, or `from_state`, `to_state` and `guard_ref`, as the registry shows them.
pub const MACHINE_TRANSITION_FIELDS: FieldList = FieldList {
    required: &["actor_class", "trigger_ref"],
    optional: &[
        "id",
        "from",
        "from_state",
        "to",
        "to_state",
        "trigger_kind",
        "guard",
        "guard_kind",
        "guard_ref",
        "emitted_event_type",
        "audit_required",
        "rollback_to",
        "proposed",
    ],
};

const KINDS: &[(&str, TriggerKind)] = &[
    (TriggerKind::Event.as_str(), TriggerKind::Event),
    (TriggerKind::Rpc.as_str(), TriggerKind::Rpc),
    (TriggerKind::Timer.as_str(), TriggerKind::Timer),
    (TriggerKind::ConditionResolved.as_str(), TriggerKind::ConditionResolved),
];

/// Who may move something of this scope. A task has its own person in charge beside the step's.
fn classes(scope: MachineScope) -> Vec<(&'static str, ActorClass)> {
    let tasks = (scope == MachineScope::Task).then_some(ActorClass::TaskPicHuman);
    ActorClass::ALL.iter().copied().chain(tasks).map(|class| (class.as_str(), class)).collect()
}

pub(super) fn read(
    root: &Mapping<'_>,
    scope: MachineScope,
    base: &'static MachineDef,
    states: &States,
    problems: &mut Problems,
) -> Vec<OwnTransition> {
    let items = root.get("transitions").and_then(|node| list(node, "transitions", "a list of transitions", problems));
    let mut own = Vec::new();
    let mut first: HashMap<Key<'_>, usize> = HashMap::new();
    let reader = Reader { scope, base, states };
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = format!("transitions[{i}]");
        let Some(fields) = Mapping::of(item, path.clone(), "a transition", problems) else { continue };
        fields.check_fields(&MACHINE_TRANSITION_FIELDS, problems);
        let Some(key) = reader.key(&fields, problems) else { continue };
        if let Some(at) = first.insert(key, i) {
            let message = format!(
                "from `{}` to `{}` by {} {} is declared already at transitions[{at}]",
                key.from,
                key.to,
                key.actor.as_str(),
                quoted(key.trigger)
            );
            problems.add(item.at, path, ProblemCode::DuplicateTransition, message);
            continue;
        }
        match base.transitions.iter().find(|row| is_row(row, &key)) {
            Some(row) => {
                let what = format!("`{}` of the floor", row.id);
                let written = ["guard", "guard_ref"].iter().find_map(|field| match &fields.get(field)?.value {
                    Value::String(name) => Guard::named(name),
                    _ => None,
                });
                let row = transition_row(row, written);
                let code = ProblemCode::FloorTransitionChanged;
                verbatim(&fields, &MACHINE_TRANSITION_FIELDS, &row, &what, code, problems);
            }
            None => own.extend(reader.own(&fields, key, problems)),
        }
    }
    own
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    from: &'a str,
    to: &'a str,
    actor: ActorClass,
    trigger: &'a str,
}

fn is_row(row: &TransitionRow, key: &Key<'_>) -> bool {
    row.from == key.from && row.to == key.to && row.actor_class == key.actor.as_str() && row.trigger_ref == key.trigger
}

struct Reader<'s> {
    scope: MachineScope,
    base: &'static MachineDef,
    states: &'s States,
}

impl Reader<'_> {
    fn key<'a>(&self, fields: &Mapping<'a>, problems: &mut Problems) -> Option<Key<'a>> {
        let from = self.end(fields, ("from", "from_state"), problems);
        let to = self.end(fields, ("to", "to_state"), problems);
        let classes = classes(self.scope);
        let actor =
            fields.get("actor_class").and_then(|node| word(node, &fields.path_to("actor_class"), &classes, problems));
        let trigger = fields.get("trigger_ref").and_then(|node| name(node, &fields.path_to("trigger_ref"), problems));
        Some(Key { from: from?, to: to?, actor: actor?, trigger: trigger? })
    }

    /// One end of a transition, under either of its two names.
    fn end<'a>(
        &self,
        fields: &Mapping<'a>,
        (short, long): (&'static str, &'static str),
        problems: &mut Problems,
    ) -> Option<&'a str> {
        let (field, node) = either(fields, (short, long), problems)?;
        let path = fields.path_to(field);
        let code = string(node, &path, problems)?;
        if self.states.floor_of(self.base, code).is_none() {
            if self.states.all_known {
                let advice = match problems.guess(code, self.states.names(self.base)) {
                    Some(meant) => format!("; did you mean `{meant}`?"),
                    None => String::new(),
                };
                let message = format!("{} is not one of the declared states{advice}", quoted(code));
                problems.add(node.at, path, ProblemCode::UnknownState, message);
            }
            return None;
        }
        Some(code)
    }

    fn own(&self, fields: &Mapping<'_>, key: Key<'_>, problems: &mut Problems) -> Option<OwnTransition> {
        let before = problems.len();
        let id = self.id(fields, key.trigger, problems);
        let kind = match fields.get("trigger_kind") {
            Some(node) => word(node, &fields.path_to("trigger_kind"), KINDS, problems),
            None => {
                fields.require(&["trigger_kind"], &Default::default(), problems);
                None
            }
        };
        let guard = self.guard(fields, problems);
        let flag = |field: &str, problems: &mut Problems| {
            fields.get(field).and_then(|node| boolean(node, &fields.path_to(field), problems))
        };
        // Whoever acts is accountable for it, unless it is said that nobody asks.
        let audit_required = flag("audit_required", problems).unwrap_or(true);
        let proposed = flag("proposed", problems).unwrap_or(false);
        let rollback_to = self.rollback(fields, problems);
        let floor_from = self.states.floor_of(self.base, key.from)?;
        let floor_to = self.states.floor_of(self.base, key.to)?;
        // Where a derived state's equivalent is not known, that has been said.
        let (from, to) = (floor_from?, floor_to?);
        let emits = self.event(fields, &to.code, problems);
        if from.is_terminal {
            let (_, node) = either(fields, ("from", "from_state"), &mut Problems::default())?;
            let message = format!("`{}` is terminal: nothing may leave it", key.from);
            problems.add(node.at, fields.path_to("from"), ProblemCode::ExitFromTerminal, message);
        } else if key.from == key.to {
            let message = format!("it leads from `{}` to itself; nothing would change", key.from);
            problems.add(fields.at, fields.path_to("to"), ProblemCode::BadValue, message);
        } else if from.code != to.code && !floor_allows(self.scope, &from.code, &to.code, key.actor) {
            let message = format!(
                "the floor knows no way from `{}` to `{}` for {}; a derived state goes only where its floor equivalent may go",
                from.code,
                to.code,
                key.actor.as_str()
            );
            problems.add(fields.at, fields.path.clone(), ProblemCode::NoFloorTransition, message);
        } else if let (false, Some(kind)) = (proposed, kind)
            && let Some(why) = self.never_fires(key.actor, kind, guard.flatten(), (&from.code, &to.code))
        {
            let message = format!("{why}; change it, or declare it with `proposed: true`");
            problems.add(fields.at, fields.path.clone(), ProblemCode::NeverFires, message);
        }
        if problems.len() > before {
            return None;
        }
        Some(OwnTransition {
            id,
            from: key.from.to_owned(),
            to: key.to.to_owned(),
            actor: key.actor,
            trigger_kind: kind?,
            trigger: key.trigger.to_owned(),
            guard: guard?,
            emits,
            audit_required,
            rollback_to,
            proposed,
        })
    }

    fn id(&self, fields: &Mapping<'_>, trigger: &str, problems: &mut Problems) -> String {
        let path = fields.path_to("id");
        let Some(node) = fields.get("id") else { return trigger.to_owned() };
        let Some(id) = name(node, &path, problems) else { return trigger.to_owned() };
        if self.base.transitions.iter().any(|row| row.id == id) {
            let message = format!("`{id}` is a transition of the floor, and this is another; give it an id of its own");
            problems.add(node.at, path, ProblemCode::BadValue, message);
        }
        id.to_owned()
    }

    /// Nothing where what is written cannot be read.
    fn guard(&self, fields: &Mapping<'_>, problems: &mut Problems) -> Option<Option<Guard>> {
        let named = either_if(fields, ("guard", "guard_ref"), problems);
        let kind = fields.get("guard_kind").and_then(|node| string(node, &fields.path_to("guard_kind"), problems));
        let Some((field, node)) = named else {
            if let (Some(_), Some(node)) = (kind, fields.get("guard_kind")) {
                let message = "this says what kind of guard it is, and nothing says which; add `guard_ref`";
                problems.add(node.at, fields.path_to("guard_kind"), ProblemCode::MissingField, message);
            }
            return Some(None);
        };
        let path = fields.path_to(field);
        let written = string(node, &path, problems)?;
        let Some(guard) = Guard::named(written) else {
            let advice = match problems.guess(written, own_guards()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("a transition of one's own can have {}", enumerated(own_guards())),
            };
            problems.add(
                node.at,
                path,
                ProblemCode::BadValue,
                format!("there is no guard {}; {advice}", quoted(written)),
            );
            return None;
        };
        if let (Some(kind), Some(node)) = (kind, fields.get("guard_kind"))
            && guard.kind() != kind
        {
            let message = format!("`{written}` is of the kind `{}`", guard.kind());
            problems.add(node.at, fields.path_to("guard_kind"), ProblemCode::BadValue, message);
        }
        Some(Some(guard))
    }

    fn rollback(&self, fields: &Mapping<'_>, problems: &mut Problems) -> Option<String> {
        let node = fields.get("rollback_to").filter(|node| !matches!(node.value, Value::Null))?;
        let path = fields.path_to("rollback_to");
        let code = string(node, &path, problems)?;
        if self.states.all_known && self.states.floor_of(self.base, code).is_none() {
            let message = format!("{} is not one of the declared states", quoted(code));
            problems.add(node.at, path, ProblemCode::UnknownState, message);
        }
        Some(code.to_owned())
    }

    fn event(&self, fields: &Mapping<'_>, floor_to: &str, problems: &mut Problems) -> Option<&'static str> {
        let node = fields.get("emitted_event_type").filter(|node| !matches!(node.value, Value::Null))?;
        let path = fields.path_to("emitted_event_type");
        let written = string(node, &path, problems)?;
        let message = match event_type(written) {
            Some(row) if can_emit(self.scope, floor_to, written) => return Some(row.name),
            Some(_) => format!("{} cannot be emitted here: what it must carry is not at hand", quoted(written)),
            None => {
                let advice = match problems.guess(written, EVENT_TYPES.iter().map(|row| row.name)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "`countersign registry show --events` lists them".to_owned(),
                };
                format!("no event type {} is registered, with a schema; {advice}", quoted(written))
            }
        };
        problems.add(node.at, path, ProblemCode::BadValue, message);
        None
    }

    /// Why nobody could ever fire it, if so.
    fn never_fires(
        &self,
        actor: ActorClass,
        kind: TriggerKind,
        guard: Option<Guard>,
        (from, to): (&str, &str),
    ) -> Option<String> {
        let askers = self.scope.askers();
        if askers.is_empty() {
            return Some("a transition of one's own between states of a run is fired by nothing yet".to_owned());
        }
        if !askers.contains(&actor) {
            let askers = enumerated(askers.iter().map(|class| class.as_str()));
            return Some(format!("{} asks for no transition of one's own: {askers} do", actor.as_str()));
        }
        if kind != TriggerKind::Rpc {
            return Some(format!("nothing fires a `{}` of one's own: it is asked for, by `rpc`", kind.as_str()));
        }
        if let Some(guard) = guard
            && !OWN_GUARDS.contains(&guard)
        {
            let (name, known) = (guard.name(), enumerated(own_guards()));
            return Some(format!("`{name}` is known only of the floor's own transitions; here there are {known}"));
        }
        let (from, to) = (StepCode::parse(from)?, StepCode::parse(to)?);
        if from != to && floor_trigger(from, to, actor).is_none() {
            return Some(format!(
                "the floor's way from `{from}` to `{to}` is an act of its own, with its own approval"
            ));
        }
        None
    }
}

fn own_guards() -> impl Iterator<Item = &'static str> + Clone {
    OWN_GUARDS.iter().map(|guard| guard.name())
}

/// The field under either of its names; neither is a problem, and so are both.
fn either<'a>(
    fields: &Mapping<'a>,
    names: (&'static str, &'static str),
    problems: &mut Problems,
) -> Option<(&'static str, &'a Node)> {
    let found = either_if(fields, names, problems);
    if found.is_none() {
        fields.require(&[names.0], &Default::default(), problems);
    }
    found
}

fn either_if<'a>(
    fields: &Mapping<'a>,
    (short, long): (&'static str, &'static str),
    problems: &mut Problems,
) -> Option<(&'static str, &'a Node)> {
    let present = |name| fields.get(name).filter(|node| !matches!(node.value, Value::Null));
    match (present(short), present(long)) {
        (Some(_), Some(node)) => {
            let message = format!("`{short}` and `{long}` are the same field; keep one of the two");
            problems.add(node.at, fields.path_to(long), ProblemCode::BadValue, message);
            None
        }
        (Some(node), None) => Some((short, node)),
        (None, Some(node)) => Some((long, node)),
        (None, None) => None,
    }
}
