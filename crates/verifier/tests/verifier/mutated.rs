//! Bundles that were edited with a purpose: whole lines and members are cut, doubled, nested and swapped for values that a
//! reader may stumble over. The verifier answers, and passes only what says the same. What once broke something is kept in
//! `tests/corpus/edits.txt` and read first.

use crate::hostile::says_the_same;
use crate::support::{Bundle, SCENARIOS, zip_up};
use countersign_verifier::{Detail, VerifierKey, bundled_key, parse_policy, verify};
use proptest::prelude::*;
use std::io::Cursor;

/// `scenario | file | place | bytes cut | piece as a JSON string` on each line; `#` begins a comment.
const CORPUS: &str = include_str!("../corpus/edits.txt");

const PIECES: &[&str] = &[
    "",
    "\n",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "0",
    "-1",
    "-0",
    "1e400",
    "1e-400",
    "0.1",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "\"\":1,",
    "\"a\":1,\"a\":2,",
    "\u{0}",
    "\u{FEFF}",
    "\u{202e}",
    "— a AAAA\n",
    "— ",
    "{}\n",
    "[]\n",
    "null\n",
    "{\"header\":null}\n",
    "\"log_index\":-1,",
    "\"sequence\":1e9,",
];

fn deep() -> String {
    format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))
}

fn apply(content: &mut Vec<u8>, at: usize, cut: usize, piece: &str) {
    let from = at % (content.len() + 1);
    let to = (from + cut).min(content.len());
    content.splice(from..to, piece.bytes());
}

/// Verifies the edited bundle; it may pass only where it says what it said before.
fn check(scenario: &str, edits: &[(usize, usize, usize, String)]) {
    let mut bundle = Bundle::load(scenario);
    let original = bundle.naive();
    let names: Vec<String> = bundle.files.keys().cloned().collect();
    for (file, at, cut, piece) in edits {
        apply(bundle.files.get_mut(&names[file % names.len()]).unwrap(), *at, *cut, piece);
    }
    let bytes = zip_up(&bundle.files);
    let _ = bundled_key(Cursor::new(&bytes));
    let verdict = verify(Cursor::new(&bytes), &bundle.policy(), Detail::Report);
    if verdict.is_ok_and(|verdict| verdict.passed()) {
        assert!(says_the_same(&original, &bytes), "{scenario}: {edits:?}");
    }
}

#[test]
fn what_once_broke_something_is_answered() {
    let mut read = 0;
    for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.splitn(5, '|').map(str::trim).collect();
        let [scenario, file, at, cut, piece] = parts[..] else { panic!("five parts: {line}") };
        let number = |text: &str| text.parse::<usize>().unwrap();
        let piece = if piece == "deep" { deep() } else { serde_json::from_str(piece).unwrap() };
        check(scenario, &[(number(file), number(at), number(cut), piece)]);
        read += 1;
    }
    assert!(read > 5, "the corpus is read");
}

/// A line is repeated, or lines change places.
fn rearranged(scenario: &str, file: usize, first: usize, second: usize, double: bool) {
    let mut bundle = Bundle::load(scenario);
    let original = bundle.naive();
    let names: Vec<String> = bundle.files.keys().filter(|name| name.ends_with(".jsonl")).cloned().collect();
    let name = &names[file % names.len()];
    let content = bundle.files.get_mut(name).unwrap();
    let mut lines: Vec<Vec<u8>> = content.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let (first, second) = (first % lines.len(), second % lines.len());
    if double {
        let line = lines[first].clone();
        lines.insert(second, line);
    } else {
        lines.swap(first, second);
    }
    *content = lines.concat();
    let bytes = zip_up(&bundle.files);
    let verdict = verify(Cursor::new(&bytes), &bundle.policy(), Detail::Verdict);
    // Only records have an order (`spec/bundle.md`, section 1).
    let free = !double && name != "records.jsonl";
    if verdict.is_ok_and(|verdict| verdict.passed()) && !free {
        assert!(says_the_same(&original, &bytes), "{scenario}: {name} {first} {second} {double}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn an_edited_bundle_never_passes_for_the_truth(
        scenario in prop::sample::select(&SCENARIOS[..]),
        edits in prop::collection::vec((0..8_usize, 0..50_000_usize, 0..40_usize, prop::sample::select(PIECES)), 1..4)
    ) {
        let edits: Vec<_> = edits.into_iter().map(|(file, at, cut, piece)| (file, at, cut, piece.to_owned())).collect();
        check(scenario, &edits);
    }

    #[test]
    fn rearranged_lines_never_pass_for_the_truth(
        scenario in prop::sample::select(&SCENARIOS[..]), file in 0..4_usize, first in 0..60_usize, second in 0..60_usize, double: bool
    ) {
        rearranged(scenario, file, first, second, double);
    }

    #[test]
    fn any_text_is_answered_as_a_key_and_as_a_policy(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12), more in any::<String>()) {
        let text = format!("{}{more}", pieces.concat());
        if let Ok(key) = VerifierKey::parse(&text) {
            prop_assert_eq!(key.to_string(), text.trim());
        }
        let _ = parse_policy(&text);
    }

    #[test]
    fn any_bytes_are_no_bundle(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let trust = Bundle::load("release").policy();
        prop_assert!(!verify(Cursor::new(&bytes), &trust, Detail::Report).is_ok_and(|verdict| verdict.passed()));
    }
}
