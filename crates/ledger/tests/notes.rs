//! Any text as a note, a checkpoint or a key: an answer, never a panic, and nothing passes that was not signed. What once
//! broke something is kept in `corpus/notes.txt` and read first.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail the test")]

use countersign_ledger::note::{Checkpoint, NoteSigner, Verifier, split_note};
use countersign_ledger::sha256;
use proptest::prelude::*;

const ORIGIN: &str = "example.org/countersign";

/// A JSON string on each line; `#` begins a comment.
const CORPUS: &str = include_str!("corpus/notes.txt");

/// Pieces of which notes, sound and unsound, are made.
const PIECES: &[&str] = &[
    "\n",
    "\n\n",
    "\r\n",
    " ",
    "+",
    "— ",
    "—",
    "-- ",
    "0",
    "00",
    "-1",
    "+1",
    "18446744073709551615",
    "18446744073709551616",
    "1e3",
    "AAAA",
    "=",
    "==",
    "nQ==",
    "\u{0}",
    "\u{FEFF}",
    "\u{2028}",
    "\u{1F600}",
    "cosignature/v1\ntime 0\n",
    ORIGIN,
    "a+00000000+AAAA",
];

fn log() -> NoteSigner {
    NoteSigner::log(ORIGIN, &[1; 32]).unwrap()
}

fn signed(size: u64) -> (String, String) {
    let text = Checkpoint { origin: ORIGIN.into(), size, root: sha256(&[b"root"]) }.text();
    let witness = NoteSigner::witness("witness.example", &[2; 32]).unwrap();
    let note = format!("{text}\n{}{}", log().sign(&text, 0), witness.sign(&text, 1_700_000_000));
    (text, note)
}

/// What every answer to any text must hold to.
fn check(text: &str) {
    let _ = split_note(text);
    if let Ok(checkpoint) = Checkpoint::parse(text) {
        assert!(text.starts_with(&checkpoint.text()), "it says something else than what was read: {text:?}");
    }
    if let Ok(key) = Verifier::parse(text) {
        assert_eq!(key.to_string(), text.trim(), "a key has one form");
        assert!(key.open(text).is_err());
    }
    if let Ok((opened, _)) = log().verifier().open(text) {
        assert!(text.starts_with(opened));
        assert!(opened == signed(42).0, "nobody signed {opened:?}");
    }
}

fn place(text: &str, at: usize) -> usize {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    places[at % places.len()]
}

/// Cuts a piece out, and puts another one in.
fn edited(text: &str, at: usize, cut: usize, piece: &str) -> String {
    let from = place(text, at);
    let to = place(text, at.saturating_add(cut)).max(from);
    format!("{}{piece}{}", &text[..from], &text[to..])
}

#[test]
fn what_once_broke_something_is_answered() {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let texts: Vec<String> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(texts.len() > 5, "the corpus is read");
    texts.iter().for_each(|text| check(text));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30), more in any::<String>()) {
        check(&format!("{}{more}", pieces.concat()));
        check(&more);
    }

    #[test]
    fn an_edited_note_says_what_was_signed_or_nothing(
        edits in prop::collection::vec((0..400_usize, 0..6_usize, prop::sample::select(PIECES)), 1..6)
    ) {
        let mut note = signed(42).1;
        for (at, cut, piece) in edits {
            note = edited(&note, at, cut, piece);
        }
        check(&note);
    }

    #[test]
    fn an_edited_key_is_the_same_key_or_none(at in 0..80_usize, cut in 0..3_usize, piece in prop::sample::select(PIECES)) {
        let key = log().verifier().to_string();
        let changed = edited(&key, at, cut, piece);
        check(&changed);
        if changed.trim() != key {
            prop_assert!(Verifier::parse(&changed).ok() != Some(log().verifier()));
        }
    }
}
