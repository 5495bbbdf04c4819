//! Checks that what a machine repeats of the floor is unchanged.

use crate::fields::{FieldList, Mapping, list, string};
use crate::problem::{ProblemCode, Problems, enumerated, quoted};
use crate::tree::{Key, Node, Value};
use countersign_kernel::lifecycle::{
    FacetRow, Guard, MachineDef, RollupPolicy, STEP_TRANSITIONS, StateRow, TransitionRow,
};

pub const FACET_FIELDS: FieldList = FieldList {
    required: &["state_code", "facet_code"],
    optional: &["ui_icon_token", "ui_label_i18n_key", "texts", "primary_ordinal"],
};
pub const POLICY_FIELDS: FieldList = FieldList { required: &["policy_code"], optional: &["policy_config", "active"] };

/// What a row of the engine says, field by field; a field that is not here has nothing to say.
pub(super) type Row = Vec<(&'static str, Value)>;

pub(super) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn whole(number: impl TryInto<i64>) -> Value {
    Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let at = crate::problem::Position::START;
    let entry = |(key, value): (&str, Value)| (Key { at, text: key.to_owned() }, Node { at, value });
    Value::Map(entries.into_iter().map(entry).collect())
}

pub(super) fn state_row(row: &StateRow) -> Row {
    let texts = |label: &str, short: &str| map([("label", text(label)), ("short", text(short))]);
    let mut said = vec![
        ("state_code", text(&row.code)),
        ("semantic_class", text(row.semantic_class)),
        ("is_terminal", Value::Bool(row.is_terminal)),
        ("ordinal", whole(row.ordinal)),
        ("ui_color_token", text(row.ui_color_token)),
        ("ui_icon_token", text(&row.ui_icon_token)),
        ("ui_icon", text(row.ui_icon)),
        ("ui_label_i18n_key", text(&format!("state.{}.label", row.code))),
        ("ui_short_message_key", text(&format!("state.{}.short", row.code))),
        ("texts", map([("en", texts(row.label_en, row.short_en)), ("vi", texts(row.label_vi, row.short_vi))])),
        ("is_derived", Value::Bool(row.is_derived)),
    ];
    said.extend(row.floor_equivalent.map(|floor| ("floor_equivalent", text(floor))));
    said.extend(row.justification.map(|why| ("justification", text(why))));
    said
}

/// `named` is the guard that the machine names: a row may be repeated with any of its guards.
pub(super) fn transition_row(row: &TransitionRow, named: Option<Guard>) -> Row {
    let mut said = vec![
        ("id", text(row.id)),
        ("from", text(&row.from)),
        ("from_state", text(&row.from)),
        ("to", text(&row.to)),
        ("to_state", text(&row.to)),
        ("actor_class", text(row.actor_class)),
        ("trigger_kind", text(row.trigger_kind)),
        ("trigger_ref", text(row.trigger_ref)),
        ("audit_required", Value::Bool(row.audit_required)),
        ("proposed", Value::Bool(row.proposed)),
    ];
    let guard = named.filter(|named| asks(row, *named)).or_else(|| row.guards.first().copied());
    said.extend(guard.map(|guard| ("guard_kind", text(guard.kind()))));
    said.extend(guard.into_iter().flat_map(|guard| [("guard", text(guard.name())), ("guard_ref", text(guard.name()))]));
    said.extend(row.emitted_event_type.as_deref().map(|event| ("emitted_event_type", text(event))));
    said.extend(row.rollback_to.as_deref().map(|state| ("rollback_to", text(state))));
    said
}

/// Whether the transition asks about this guard, of whichever class. Before a row had all its guards, those of a run named
/// `approval_where_declared` for the approval that they need.
fn asks(row: &TransitionRow, guard: Guard) -> bool {
    let of_id = STEP_TRANSITIONS.iter().filter(|t| t.id == row.id).flat_map(|t| t.guards);
    let was = guard == Guard::ApprovalWhereDeclared && row.guards.contains(&Guard::ApprovalPresent);
    was || row.guards.contains(&guard) || of_id.map(|asked| asked.guard).any(|asked| asked == guard)
}

fn facet_row(row: &FacetRow) -> Row {
    // As the registry is served: the number of the attempt is filled in by who shows it.
    let label = |label: &str| text(&label.replace("n/N", "{attempt}/{max_attempts}"));
    vec![
        ("state_code", text(row.state)),
        ("facet_code", text(row.facet)),
        ("ui_icon_token", text(row.icon)),
        ("ui_label_i18n_key", text(&format!("facet.{}.label", row.facet))),
        ("texts", map([("en", label(row.label_en)), ("vi", label(row.label_vi))])),
        ("primary_ordinal", whole(row.primary_ordinal)),
    ]
}

fn policy_row(row: &RollupPolicy) -> Row {
    let config = map([
        ("mandatory_only", Value::Bool(row.mandatory_only)),
        ("blocked_escalation_treats_as_red", Value::Bool(row.blocked_escalation_treats_as_red)),
    ]);
    vec![("policy_code", text(row.code)), ("policy_config", config), ("active", Value::Bool(row.active))]
}

/// Reports what is written otherwise than the floor has it. `what` names the row in the message; a field that is none of
/// `known` is reported already.
pub(super) fn verbatim(
    fields: &Mapping<'_>,
    known: &FieldList,
    row: &Row,
    what: &str,
    code: ProblemCode,
    problems: &mut Problems,
) {
    for (key, node) in fields.entries.iter().filter(|(key, _)| known.all().any(|field| field == key.text)) {
        if agrees(row, key, &node.value) || matches!(node.value, Value::Reported) {
            continue;
        }
        let expected = row.iter().find(|(field, _)| *field == key.text).map(|(_, value)| value);
        let floor = match expected {
            Some(Value::String(text)) => format!("the floor says {}", quoted(text)),
            Some(Value::Bool(value)) => format!("the floor says `{value}`"),
            Some(Value::Integer(number)) => format!("the floor says `{number}`"),
            Some(_) => "the floor says otherwise".to_owned(),
            None => "the floor says nothing of it".to_owned(),
        };
        let message = format!("{what} stands as the floor has it; of `{}` {floor}", key.text);
        problems.add(node.at, fields.path_to(&key.text), code, message);
    }
}

/// The row has this field with this value.
fn agrees(row: &Row, key: &Key, value: &Value) -> bool {
    row.iter().any(|(field, expected)| *field == key.text && is_same(value, expected))
}

/// The same value, wherever it is in any order of its keys.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            let found = |key: &Key| b.iter().find(|(other, _)| other.text == key.text);
            a.len() == b.len()
                && a.iter().all(|(key, node)| found(key).is_some_and(|(_, other)| is_same(&node.value, &other.value)))
        }
        (Value::Map(_), _) | (_, Value::Map(_)) => false,
        (a, b) => a == b,
    }
}

/// Facets are a vocabulary: a machine may repeat those of the floor, and knows no others.
pub(super) fn facets(root: &Mapping<'_>, base: &MachineDef, problems: &mut Problems) {
    let rows = base.facets.iter().map(|row| (row.facet, facet_row(row))).collect::<Vec<_>>();
    vocabulary(root, ("facets", "facet_code"), &FACET_FIELDS, &rows, problems);
}

pub(super) fn policies(root: &Mapping<'_>, base: &MachineDef, problems: &mut Problems) {
    let rows = base.rollup_policies.iter().map(|row| (row.code, policy_row(row))).collect::<Vec<_>>();
    vocabulary(root, ("rollup_policies", "policy_code"), &POLICY_FIELDS, &rows, problems);
}

fn vocabulary(
    root: &Mapping<'_>,
    (list_name, key): (&str, &str),
    known_fields: &FieldList,
    rows: &[(&'static str, Row)],
    problems: &mut Problems,
) {
    let Some(items) = root.get(list_name).and_then(|node| list(node, list_name, "a list", problems)) else { return };
    for (i, item) in items.iter().enumerate() {
        let path = format!("{list_name}[{i}]");
        let Some(fields) = Mapping::of(item, path, "a mapping", problems) else { continue };
        fields.check_fields(known_fields, problems);
        let path = fields.path_to(key);
        let Some((node, written)) = fields.get(key).and_then(|node| Some((node, string(node, &path, problems)?)))
        else {
            continue;
        };
        // Facets of two states may share a code: the row that is meant differs least.
        let meant = rows.iter().filter(|(code, _)| *code == written);
        match meant
            .min_by_key(|(_, row)| fields.entries.iter().filter(|(key, node)| !agrees(row, key, &node.value)).count())
        {
            Some((code, row)) => {
                verbatim(&fields, known_fields, row, &format!("`{code}`"), ProblemCode::FloorStateChanged, problems);
            }
            None => {
                let advice = match problems.guess(written, rows.iter().map(|(code, _)| *code)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None if rows.is_empty() => "a machine of this scope has none".to_owned(),
                    None => format!("there are {}", enumerated(rows.iter().map(|(code, _)| *code))),
                };
                problems.add(node.at, path, ProblemCode::BadValue, format!("{} is none; {advice}", quoted(written)));
            }
        }
    }
}
