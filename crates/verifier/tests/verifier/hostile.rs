//! Hostile bundles: whatever a byte was turned into, the verifier answers, and never with a wrong "verified".

use crate::support::{Bundle, check, unzip};
use countersign_verifier::{Detail, report, verify};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Cursor;

/// What the verifier says nothing about: the key for convenience, and who says they made the bundle, when and with what.
fn judged(files: &BTreeMap<String, Vec<u8>>) -> Option<BTreeMap<String, Vec<u8>>> {
    let mut files = files.clone();
    files.remove("log.vkey");
    let mut manifest: Value = serde_json::from_slice(files.get("bundle.json")?).ok()?;
    for name in ["made_at_us", "made_by", "software"] {
        manifest[name] = Value::Null;
    }
    files.insert("bundle.json".into(), manifest.to_string().into_bytes());
    Some(files)
}

/// A line as a value.
fn line(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(json!(text))
}

/// A signature line that is not needed, and equivalent encodings, may change; what they say may not.
pub fn says_the_same(original: &[u8], changed: &[u8]) -> bool {
    let values = |bytes: &[u8]| -> Option<Vec<Value>> {
        let mut files = judged(&unzip(bytes)?)?;
        files.remove("checkpoint");
        let texts: Vec<String> =
            files.into_values().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
        Some(texts.iter().flat_map(|text| text.lines()).map(line).collect())
    };
    let original = values(original);
    original.is_some() && original == values(changed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A byte of the ZIP file is turned into another one.
    #[test]
    fn a_flipped_byte_never_passes_for_the_truth(at in any::<prop::sample::Index>(), turn in 1_u8..=255, name in 0..5_usize) {
        let mut bundle = Bundle::load(crate::support::SCENARIOS[name]);
        let original = bundle.naive();
        let mut bytes = original.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= turn;
        let verdict = verify(Cursor::new(&bytes), &bundle.policy(), Detail::Report);
        if verdict.is_ok_and(|verdict| verdict.passed()) {
            prop_assert!(says_the_same(&original, &bytes), "byte {at} of {}", original.len());
        }
    }

    /// A byte of a file inside is turned, with checksums that fit again.
    #[test]
    fn a_flipped_byte_inside_never_passes_for_the_truth(
        at in any::<prop::sample::Index>(), turn in 1_u8..=255, file in any::<prop::sample::Index>()
    ) {
        let mut bundle = Bundle::load("quorum");
        let original = bundle.naive();
        let names: Vec<String> = bundle.files.keys().filter(|name| *name != "log.vkey").cloned().collect();
        let content = bundle.files.get_mut(&names[file.index(names.len())]).expect("a file");
        let at = at.index(content.len());
        content[at] ^= turn;
        let bytes = crate::support::zip_up(&bundle.files);
        let verdict = check(&bytes, &bundle.policy());
        if verdict.passed() {
            prop_assert!(says_the_same(&original, &bytes), "byte {at} of {}", names[file.index(names.len())]);
        }
    }

    #[test]
    fn a_truncated_bundle_never_passes(at in any::<prop::sample::Index>()) {
        let mut bundle = Bundle::load("purge");
        let bytes = bundle.naive();
        let cut = &bytes[..at.index(bytes.len())];
        let verdict = verify(Cursor::new(cut), &bundle.policy(), Detail::Report);
        prop_assert!(!verdict.is_ok_and(|verdict| verdict.passed()));
    }
}

#[test]
fn a_report_shows_hostile_texts_and_obeys_none() {
    let hostile = "<script>alert(1)</script><img src=x onerror=\"y\">'&\u{1b}[31m\u{202e}";
    let mut bundle = Bundle::load("release");
    for record in &mut bundle.records {
        if !record.payload.is_null() {
            record.payload["reason"] = json!(hostile);
            if record.payload.get("subject_ref").is_some() {
                record.payload["subject_ref"] = json!(hostile);
            }
        }
    }
    bundle.record("gate_decided", 0).head["actor_ref"] = json!(hostile);
    bundle.state[0]["subject_ref"] = json!(hostile);
    bundle.manifest["software"] = json!(hostile);
    let trust = bundle.trust();
    let verdict = check(&bundle.sealed(), &trust);
    let circumstances = report::Circumstances { bundle: hostile, trust: &trust, command: hostile };
    let page = report::html(&verdict, &circumstances);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the text is shown");
    for forbidden in ["<script", "<img", "onerror=\"", "\u{1b}", "\u{202e}", "http://", "https://", "src="] {
        let harmless = page.replace("&lt;img src=x", "").contains(forbidden);
        assert!(!harmless, "{forbidden} in the page");
    }
    let text = report::text(&verdict, &circumstances, false);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
}

#[test]
fn a_line_without_end_costs_no_memory() {
    let mut bundle = Bundle::load("release");
    bundle.naive();
    bundle.files.insert("records.jsonl".into(), vec![b' '; 64 << 20]);
    let bytes = crate::support::zip_up(&bundle.files);
    assert!(bytes.len() < 1 << 20, "it is a bomb");
    assert!(crate::support::codes(&check(&bytes, &bundle.policy())).contains("bundle-form"));
}
