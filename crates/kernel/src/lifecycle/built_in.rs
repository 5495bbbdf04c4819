//! The states of a built-in declaration (`proposal`, `replay`), as the registry shows them.

use super::SemanticClass;
use super::registry::StateRow;

/// Class, colour, icon, and the label in English and Vietnamese of a state.
pub(super) type Look = (SemanticClass, &'static str, &'static str, &'static str, &'static str);

/// In the order of the declaration. `icons` begins the tokens of their icons.
pub(super) fn states(codes: &[&str], terminal: &[&str], icons: &str, look: fn(&str) -> Look) -> Vec<StateRow> {
    let row = |(ordinal, code): (_, &&str)| {
        let (class, color, icon, label_en, label_vi) = look(code);
        StateRow {
            code: (*code).to_owned(),
            semantic_class: class.as_str(),
            is_terminal: terminal.contains(code),
            ordinal,
            ui_color_token: color,
            ui_icon: icon,
            ui_icon_token: format!("icon.{icons}_{code}"),
            label_en,
            label_vi,
            short_en: label_en,
            short_vi: label_vi,
            is_derived: false,
            floor_equivalent: None,
            justification: None,
        }
    };
    (1..).zip(codes).map(row).collect()
}
