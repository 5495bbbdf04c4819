//! Which names an actor may be registered under. Names are compared byte for byte, and people compare them by eye: a
//! name that reads like another one would let one actor pass for another in an in-tray, a report or an approval.

use super::Registry;
use crate::refusal::{Code, Refusal};
use crate::text::is_invisible;
use unicode_normalization::UnicodeNormalization;

/// What a name looks like: the skeleton of UTS 39. Two names with one skeleton are confusable.
pub(super) fn look(name: &str) -> String {
    unicode_security::confusable_detection::skeleton(name).collect()
}

/// `Ok` where the name shows itself as it is and reads like no other actor's. Names that are registered already are
/// not asked again.
pub(super) fn require_plain_name(registry: &Registry, name: &str) -> Result<(), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(Code::InvalidRequest, detail).at("actor_ref"));
    if let Some(c) = name.chars().find(|c| is_invisible(*c) || (c.is_whitespace() && *c != ' ')) {
        let detail = format!(
            "the name holds the invisible character U+{:04X}, which would let it pass for another; leave it out",
            u32::from(c)
        );
        return refuse(detail);
    }
    if name.starts_with(' ') || name.ends_with(' ') || name.contains("  ") {
        return refuse(
            "the name begins or ends with a blank (U+0020) or holds two in a row, which nobody sees; leave it out"
                .to_owned(),
        );
    }
    if let Some(c) = name.chars().find(|c| ('\u{334}'..='\u{338}').contains(c)) {
        let detail =
            format!("the name holds U+{:04X}, which is drawn over the letter before it; leave it out", u32::from(c));
        return refuse(detail);
    }
    if let Some((written, normal)) = first_compatibility_form(name) {
        let detail = format!(
            "the name holds `{written}` (U+{:04X}), a compatibility or decomposed form that reads like `{normal}`; \
             write it in its normal form (NFKC)",
            u32::from(written)
        );
        return refuse(detail);
    }
    match registry.looks.get(&look(name)) {
        Some(other) if other != name => refuse(format!(
            "the name reads like that of `{other}`, who is registered already{}; choose one that differs visibly",
            differing(name, other)
        )),
        _ => Ok(()),
    }
}

/// The first character that NFKC would write otherwise, and how.
fn first_compatibility_form(name: &str) -> Option<(char, String)> {
    let normal: String = name.nfkc().collect();
    if normal == name {
        return None;
    }
    let alone = name.chars().find_map(|c| {
        let written: String = std::iter::once(c).nfkc().collect();
        (written.chars().ne(std::iter::once(c))).then_some((c, written))
    });
    // Or no character by itself, but two that belong together.
    alone.or_else(|| {
        let differs = name.chars().zip(normal.chars()).find(|(written, normal)| written != normal);
        differs.map(|(written, normal)| (written, normal.to_string())).or_else(|| Some((name.chars().last()?, normal)))
    })
}

/// Says which character makes the difference, where the two names have the same length.
fn differing(name: &str, other: &str) -> String {
    let differs = name.chars().zip(other.chars()).find(|(a, b)| a != b);
    match differs {
        Some((a, b)) => format!(" (`{a}` U+{:04X} for `{b}` U+{:04X})", u32::from(a), u32::from(b)),
        None => String::new(),
    }
}
