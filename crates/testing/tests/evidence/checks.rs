//! `spec/checks.md` lists what is checked, and the three programs that check hold to it.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use countersign_testing::attack::{NOT_APPLICABLE, NOT_FOR_RUNS};
use countersign_testing::workspace;
use countersign_verifier::finding::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).expect(path)
}

/// Code → by whom, as the page says.
fn listed() -> BTreeMap<String, String> {
    let page = read("spec/checks.md");
    let row = |line: &str| -> Option<(String, String)> {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let by = cells.iter().rev().find(|cell| !cell.is_empty())?;
        Some((cells.first()?.trim_end_matches('`').to_owned(), (*by).to_owned()))
    };
    page.lines().filter_map(row).collect()
}

fn texts(directory: &Path, ending: &str) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.push_str(&texts(&path, ending));
        } else if path.extension().is_some_and(|found| found == ending) {
            all.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
    all
}

/// Quoted words of a text that look like codes.
fn quoted(text: &str) -> BTreeSet<String> {
    let is_code = |word: &&str| {
        word.contains('-')
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.split('"').filter(is_code).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_what_the_rust_verifier_finds() {
    let known: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    let listed: BTreeSet<String> = listed().into_keys().collect();
    assert_eq!(listed, known);
}

#[test]
fn the_python_verifier_finds_every_code_and_no_other() {
    let listed = listed();
    let claims = read("spec/verifier/found.py");
    let known: BTreeSet<String> = quoted(&claims);
    let listed_codes: BTreeSet<String> = listed.keys().cloned().collect();
    assert_eq!(known, listed_codes);
    // Where it finds them; two are put together from the part that they are about.
    let finds = texts(&workspace().join("spec/verifier"), "py").replace(&claims, "") + &read("spec/verify.py");
    let found = |code: &str| finds.contains(&format!("\"{code}\"")) || code.ends_with("-digest-mismatch");
    let missing: Vec<&String> = listed.keys().filter(|code| !found(code)).collect();
    assert!(missing.is_empty() && finds.contains("-digest-mismatch\""), "not in spec/verifier: {missing:?}");
}

#[test]
fn the_server_uses_codes_of_the_page_and_leaves_out_only_what_a_bundle_alone_has() {
    let listed = listed();
    let source = texts(&workspace().join("crates/engine/src/log"), "rs");
    let find = source.split(".find(").skip(1).filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    let used: BTreeSet<&str> = find.collect();
    assert!(used.len() > 8, "{used:?}");
    let unknown: Vec<&&str> = used.iter().filter(|code| !listed.contains_key(**code)).collect();
    assert!(unknown.is_empty(), "not on the page: {unknown:?}");
    let bundles_alone: Vec<&str> =
        listed.iter().filter(|(_, by)| !by.contains('S')).map(|(code, _)| code.as_str()).collect();
    assert_eq!(bundles_alone, ["rotation-invalid", "tail-missing", "witness-quorum"]);
}

#[test]
fn every_attack_that_is_left_out_exists_and_says_why() {
    let attacks = texts(&workspace().join("spec/vectors/attacks"), "py");
    for (name, reason) in NOT_APPLICABLE.iter().chain(NOT_FOR_RUNS) {
        assert!(attacks.contains(&format!("\"{name}\"")), "{name} is no attack of the corpus");
        assert!(reason.len() > 20, "{name}: {reason}");
    }
}
