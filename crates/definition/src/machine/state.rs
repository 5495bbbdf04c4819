//! The states of a machine: all floor states, unchanged, and derived ones.

use super::floor::{state_row, verbatim};
use crate::fields::{FieldList, Mapping, list, string, text};
use crate::names::name;
use crate::problem::{ProblemCode, Problems, enumerated, quoted};
use crate::tree::{Node, Value};
use crate::workflow::values::{boolean, integer, word};
use countersign_kernel::lifecycle::{MachineDef, MachineScope, OwnState, SemanticClass, StateRow, TOKENS};
use std::collections::HashMap;

pub const MACHINE_STATE_FIELDS: FieldList = FieldList {
    required: &["state_code"],
    optional: &[
        "semantic_class",
        "is_terminal",
        "ordinal",
        "ui_color_token",
        "ui_icon_token",
        "ui_icon",
        "ui_label_i18n_key",
        "ui_short_message_key",
        "texts",
        "is_derived",
        "floor_equivalent",
        "justification",
    ],
};

const TEXTS_FIELDS: FieldList = FieldList { required: &[], optional: &["en", "vi"] };
const TEXT_FIELDS: FieldList = FieldList { required: &[], optional: &["label", "short"] };

const CLASSES: &[(&str, SemanticClass)] = &[
    (SemanticClass::Idle.as_str(), SemanticClass::Idle),
    (SemanticClass::Active.as_str(), SemanticClass::Active),
    (SemanticClass::Wait.as_str(), SemanticClass::Wait),
    (SemanticClass::Red.as_str(), SemanticClass::Red),
];

/// What the list of states comes to.
pub(super) struct States {
    pub derived: Vec<OwnState>,
    /// Every state that is written, derived ones with the state of the floor that stands for them, where it is known.
    written: HashMap<String, Option<&'static StateRow>>,
    /// False when a state could not be read: then nobody can say that one is unknown.
    pub all_known: bool,
}

impl States {
    /// The state of the floor that this one is or lies over; the outer `None` where there is no such state.
    pub fn floor_of(&self, base: &'static MachineDef, code: &str) -> Option<Option<&'static StateRow>> {
        let of_floor = base.states.iter().find(|row| row.code == code);
        of_floor.map(Some).or_else(|| self.written.get(code).copied())
    }

    pub fn names<'a>(&'a self, base: &'static MachineDef) -> impl Iterator<Item = &'a str> {
        base.states.iter().map(|row| row.code.as_str()).chain(self.written.keys().map(String::as_str))
    }
}

pub(super) fn read(
    root: &Mapping<'_>,
    scope: MachineScope,
    base: &'static MachineDef,
    problems: &mut Problems,
) -> States {
    let mut states = States { derived: Vec::new(), written: HashMap::new(), all_known: true };
    let node = root.get("states");
    let Some(items) = node.and_then(|node| list(node, "states", "a list of states", problems)) else {
        states.all_known = false;
        return states;
    };
    for (i, item) in items.iter().enumerate() {
        let path = format!("states[{i}]");
        let one = One { base, scope, ordinal: base.states.len() + states.derived.len() + 1 };
        let Some((code, at)) = code_of(item, &path, problems) else {
            states.all_known = false;
            continue;
        };
        if states.written.contains_key(code) {
            problems.add(at, path, ProblemCode::DuplicateState, format!("{} is given twice", quoted(code)));
            continue;
        }
        let (floor, state) = one.read(code, item, path, problems);
        states.written.insert(code.to_owned(), floor);
        states.derived.extend(state);
    }
    if let Some(node) = node {
        missing(node, base, &states, problems);
    }
    states
}

/// The codes that every machine of this scope has.
fn is_of_floor(row: &StateRow) -> bool {
    !row.is_derived
}

fn missing(node: &Node, base: &MachineDef, states: &States, problems: &mut Problems) {
    if !states.all_known {
        return;
    }
    for row in base.states.iter().filter(|row| is_of_floor(row) && !states.written.contains_key(&row.code)) {
        let message = format!("the floor has `{}`, and so has every machine of this scope; add it", row.code);
        problems.add(node.at, "states", ProblemCode::MissingFloorState, message);
    }
}

/// The code of an entry, which may be nothing but a code.
fn code_of<'a>(item: &'a Node, path: &str, problems: &mut Problems) -> Option<(&'a str, crate::problem::Position)> {
    match (&item.value, item.field("state_code")) {
        (Value::String(_), _) => Some((name(item, path, problems)?, item.at)),
        (Value::Map(_), Some(node)) => Some((name(node, &format!("{path}.state_code"), problems)?, node.at)),
        (Value::Map(_), None) => {
            Mapping::of(item, path.to_owned(), "a state", problems)?.check_fields(&MACHINE_STATE_FIELDS, problems);
            None
        }
        _ => {
            crate::fields::wrong_type(item, path, "a state: its code, or a mapping with `state_code`", problems);
            None
        }
    }
}

struct One {
    base: &'static MachineDef,
    scope: MachineScope,
    ordinal: usize,
}

impl One {
    fn read(
        &self,
        code: &str,
        item: &Node,
        path: String,
        problems: &mut Problems,
    ) -> (Option<&'static StateRow>, Option<OwnState>) {
        let fields = match &item.value {
            Value::Map(_) => Mapping::of(item, path.clone(), "a state", problems),
            _ => None,
        };
        if let Some(fields) = &fields {
            fields.check_fields(&MACHINE_STATE_FIELDS, problems);
        }
        if let Some(row) = self.base.states.iter().find(|row| row.code == code) {
            if let Some(fields) = &fields {
                let what = format!("`{code}`");
                let row = state_row(row);
                verbatim(fields, &MACHINE_STATE_FIELDS, &row, &what, ProblemCode::FloorStateChanged, problems);
            }
            return (Some(row), None);
        }
        let Some(fields) = fields else {
            let meant = problems.guess(code, self.base.states.iter().map(|row| row.code.as_str()));
            let advice = match meant {
                Some(state) => format!("did you mean `{state}`?"),
                None => "say with a mapping what it is: `floor_equivalent` and `justification`".to_owned(),
            };
            let message = format!("{} is no state of the floor; {advice}", quoted(code));
            problems.add(item.at, path, ProblemCode::DerivedWithoutFloor, message);
            return (None, None);
        };
        let floor = self.floor(code, &fields, problems);
        let state = self.derived(code, &fields, floor, problems);
        (floor, state)
    }

    fn floor(&self, code: &str, fields: &Mapping<'_>, problems: &mut Problems) -> Option<&'static StateRow> {
        let path = fields.path_to("floor_equivalent");
        let of_floor = || self.base.states.iter().filter(|row| is_of_floor(row));
        let Some(node) = fields.get("floor_equivalent").filter(|node| !matches!(node.value, Value::Null)) else {
            let message = format!(
                "{} is derived: name with `floor_equivalent` the state of the floor that stands for it",
                quoted(code)
            );
            problems.add(fields.at, path, ProblemCode::DerivedWithoutFloor, message);
            return None;
        };
        let written = string(node, &path, problems)?;
        let found = of_floor().find(|row| row.code == written);
        if found.is_none() {
            let codes = || of_floor().map(|row| row.code.as_str());
            let advice = match problems.guess(written, codes()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("its states are {}", enumerated(codes())),
            };
            let message = format!("{} is no state of the floor; {advice}", quoted(written));
            problems.add(node.at, path, ProblemCode::DerivedWithoutFloor, message);
        }
        found
    }

    fn derived(
        &self,
        code: &str,
        fields: &Mapping<'_>,
        floor: Option<&'static StateRow>,
        problems: &mut Problems,
    ) -> Option<OwnState> {
        let justification = self.justification(code, fields, problems);
        let ordinal = fields
            .get("ordinal")
            .and_then(|node| integer(node, &fields.path_to("ordinal"), 1..=i64::from(u32::MAX), problems));
        let key = |suffix: &str| format!("state.{code}.{suffix}");
        self.says(fields, "is_derived", true, "it is not of the floor, so it is derived", problems);
        self.says_text(fields, "ui_label_i18n_key", &key("label"), problems);
        self.says_text(fields, "ui_short_message_key", &key("short"), problems);
        let (label_en, short_en) = texts(fields, "en", problems);
        let (label_vi, short_vi) = texts(fields, "vi", problems);
        let icon = self.text(fields, "ui_icon", problems);
        let icon_token = self.text(fields, "ui_icon_token", problems);

        let class = fields
            .get("semantic_class")
            .and_then(|node| Some((node, word(node, &fields.path_to("semantic_class"), CLASSES, problems)?)));
        let floor = floor?;
        if let Some((node, class)) = class
            && class.as_str() != floor.semantic_class
        {
            let message = format!(
                "`{}`, which stands for it, is of the class `{}`; so it counts in the roll-up, and so must it look",
                floor.code, floor.semantic_class
            );
            problems.add(node.at, fields.path_to("semantic_class"), ProblemCode::BadValue, message);
        }
        let ends = format!(
            "`{}`, which stands for it, is {}terminal",
            floor.code,
            if floor.is_terminal { "" } else { "not " }
        );
        self.says(fields, "is_terminal", floor.is_terminal, &ends, problems);
        let token = self.token(fields, floor, problems);

        let label_en = label_en.unwrap_or_else(|| readable(code));
        let label_vi = label_vi.unwrap_or_else(|| label_en.clone());
        Some(OwnState {
            code: code.to_owned(),
            floor_equivalent: &floor.code,
            justification: justification?,
            semantic_class: SemanticClass::parse(floor.semantic_class)?,
            is_terminal: floor.is_terminal,
            ordinal: ordinal.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::try_from(self.ordinal).ok()?),
            ui_color_token: token,
            ui_icon: icon.unwrap_or_else(|| floor.ui_icon.to_owned()),
            ui_icon_token: icon_token.unwrap_or_else(|| floor.ui_icon_token.clone()),
            short_en: short_en.unwrap_or_else(|| label_en.clone()),
            short_vi: short_vi.unwrap_or_else(|| label_vi.clone()),
            label_en,
            label_vi,
        })
    }

    fn justification(&self, code: &str, fields: &Mapping<'_>, problems: &mut Problems) -> Option<String> {
        let path = fields.path_to("justification");
        let node = fields.get("justification").filter(|node| !matches!(node.value, Value::Null));
        let at = node.map_or(fields.at, |node| node.at);
        let written = match node {
            Some(node) => string(node, &path, problems)?,
            None => "",
        };
        if countersign_kernel::text::is_blank(written) {
            let message = format!("{} is derived: say with `justification` why the floor is not enough", quoted(code));
            problems.add(at, path, ProblemCode::DerivedWithoutJustification, message);
            return None;
        }
        Some(written.to_owned())
    }

    /// A colour of the kind that the state has: the same class, the same light.
    fn token(&self, fields: &Mapping<'_>, floor: &StateRow, problems: &mut Problems) -> &'static str {
        let allowed =
            || TOKENS.iter().map(|token| token.name).filter(|name| light(name) == light(floor.ui_color_token));
        let usual =
            TOKENS.iter().map(|token| token.name).find(|name| *name == floor.ui_color_token).unwrap_or_default();
        let path = fields.path_to("ui_color_token");
        let Some(node) = fields.get("ui_color_token") else { return usual };
        let Some(written) = string(node, &path, problems) else { return usual };
        allowed().find(|name| *name == written).unwrap_or_else(|| {
            let advice = match problems.guess(written, allowed()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("a state of the class `{}` has {}", floor.semantic_class, enumerated(allowed())),
            };
            let message = format!("{} is no token for this state; {advice}", quoted(written));
            problems.add(node.at, path, ProblemCode::BadValue, message);
            usual
        })
    }

    /// A switch that can only stand one way.
    fn says(&self, fields: &Mapping<'_>, field: &str, only: bool, why: &str, problems: &mut Problems) {
        let path = fields.path_to(field);
        let Some(node) = fields.get(field) else { return };
        if boolean(node, &path, problems).is_some_and(|value| value != only) {
            problems.add(node.at, path, ProblemCode::BadValue, format!("{why}; write `{only}`, or leave it out"));
        }
    }

    fn says_text(&self, fields: &Mapping<'_>, field: &str, only: &str, problems: &mut Problems) {
        let path = fields.path_to(field);
        let Some(node) = fields.get(field) else { return };
        if string(node, &path, problems).is_some_and(|written| written != only) {
            let message = format!("the texts of a {} are found under its code; write `{only}`", self.scope.as_str());
            problems.add(node.at, path, ProblemCode::BadValue, message);
        }
    }

    fn text(&self, fields: &Mapping<'_>, field: &str, problems: &mut Problems) -> Option<String> {
        let path = fields.path_to(field);
        fields.get(field).and_then(|node| text(node, &path, problems)).map(str::to_owned)
    }
}

/// The light that a token is a shade of.
fn light(token: &str) -> &str {
    let shade = token.rsplit('.').next().unwrap_or(token);
    shade.split('_').next().unwrap_or(shade)
}

/// `in_review` as people write it.
fn readable(code: &str) -> String {
    let spaced = code.replace(['_', '-'], " ");
    let mut chars = spaced.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

fn texts(fields: &Mapping<'_>, language: &str, problems: &mut Problems) -> (Option<String>, Option<String>) {
    let path = fields.path_to("texts");
    let Some(node) = fields.get("texts") else { return (None, None) };
    // Both languages come here; what is wrong with the whole is said once.
    let mut unsaid = Problems::default();
    let report = if language == "en" { &mut *problems } else { &mut unsaid };
    let Some(all) = Mapping::of(node, path, "a mapping with `en` and `vi`", report) else { return (None, None) };
    all.check_fields(&TEXTS_FIELDS, report);
    let Some(node) = all.get(language) else { return (None, None) };
    let Some(one) = Mapping::of(node, all.path_to(language), "a mapping with `label` and `short`", problems) else {
        return (None, None);
    };
    one.check_fields(&TEXT_FIELDS, problems);
    let mut said = |field: &str| {
        let path = one.path_to(field);
        one.get(field).and_then(|node| text(node, &path, problems)).map(str::to_owned)
    };
    (said("label"), said("short"))
}
