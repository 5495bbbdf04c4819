//! What a transition of a process causes when it fires (`effects`): its expressions name the firing as `event`, and the versions of
//! what it starts are fixed like those of child workflows.

use super::Reader;
use super::expressions::Place;
use super::values::literal;
use super::work::versioned;
use crate::Resolver;
use crate::fields::{FieldList, Mapping, list};
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::Node;
use countersign_kernel::plan::Work;
use countersign_kernel::{Effect, lifecycle};

pub const EFFECT_FIELDS: FieldList = FieldList { required: &[], optional: &["start", "event"] };
pub const START_EFFECT_FIELDS: FieldList = FieldList { required: &["definition"], optional: &["input"] };
pub const EVENT_EFFECT_FIELDS: FieldList = FieldList { required: &["type"], optional: &["data"] };

/// What one firing may cause: its record holds all of it.
const MAX_EFFECTS: usize = 16;

pub(crate) fn effects<'p>(
    node: &Node,
    path: &str,
    resolver: Option<Resolver<'p>>,
    problems: &'p mut Problems,
) -> Vec<Effect> {
    let Some(items) = list(node, path, "a list such as `[{event: {type: order.created}}]`", problems) else {
        return Vec::new();
    };
    if items.len() > MAX_EFFECTS {
        let message = format!("a transition has at most {MAX_EFFECTS} effects");
        problems.add(node.at, path, ProblemCode::BadValue, message);
        return Vec::new();
    }
    let mut reader = Reader::new(problems, resolver, false);
    let each = items.iter().enumerate();
    each.filter_map(|(i, item)| effect(item, format!("{path}[{i}]"), &mut reader)).collect()
}

fn effect(node: &Node, path: String, reader: &mut Reader<'_>) -> Option<Effect> {
    let fields = Mapping::of(node, path.clone(), "a mapping with `start` or `event`", reader.problems)?;
    let misspelt = fields.check_fields(&EFFECT_FIELDS, reader.problems);
    match (fields.get("start"), fields.get("event")) {
        (Some(start), None) => started(start, fields.path_to("start"), reader),
        (None, Some(event)) => sent(event, fields.path_to("event"), reader),
        (None, None) if misspelt.is_empty() => {
            let message = "an effect is a `start` or an `event`";
            reader.problems.add(node.at, path, ProblemCode::MissingField, message);
            None
        }
        (None, None) => None,
        (Some(_), Some(event)) => {
            let message = "an effect is a `start` or an `event`; write two effects";
            reader.problems.add(event.at, fields.path_to("event"), ProblemCode::BadValue, message);
            None
        }
    }
}

fn started(node: &Node, path: String, reader: &mut Reader<'_>) -> Option<Effect> {
    let fields = Mapping::of(node, path, "a mapping with `definition`", reader.problems)?;
    fields.check_fields(&START_EFFECT_FIELDS, reader.problems);
    let input = fields.get("input").map(|node| reader.template(node, &fields.path_to("input"), Place::Trigger));
    let (node, path) = (fields.get("definition")?, fields.path_to("definition"));
    let (name, version) = versioned(node, &path, reader)?;
    match reader.resolve(name, version, node.at, path)? {
        Work::Workflow { name, version } => Some(Effect::Start { definition: name, version, input }),
        _ => None,
    }
}

fn sent(node: &Node, path: String, reader: &mut Reader<'_>) -> Option<Effect> {
    let fields = Mapping::of(node, path, "a mapping with `type`", reader.problems)?;
    fields.check_fields(&EVENT_EFFECT_FIELDS, reader.problems);
    let data = fields.get("data").map(|node| reader.template(node, &fields.path_to("data"), Place::Trigger));
    let (node, path) = (fields.get("type")?, fields.path_to("type"));
    let event_type = literal(node, &path, reader.problems)?;
    if lifecycle::event_type(event_type).is_some() || event_type.starts_with('@') {
        let message = format!("{} is the engine's own; give the event another type", quoted(event_type));
        reader.problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    }
    Some(Effect::Event { event_type: event_type.to_owned(), data })
}
