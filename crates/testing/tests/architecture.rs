//! House rules that would otherwise be argued about: which crate may see which, how a file begins and how
//! long it may be, and that every refusal code has its page.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use countersign_kernel::refusal::Code;
use countersign_testing::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arrows point inward: kernel ← ledger ← engine ← store ← server. A new one is the rarest change.
const MAY_SEE: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("definition", &["kernel"]),
    ("ledger", &["kernel"]),
    ("engine", &["kernel", "ledger"]),
    ("store", &["kernel", "ledger", "engine"]),
    ("client", &[]),
    // Carries out and knows nothing of what follows.
    ("executor", &["kernel"]),
    ("server", &["kernel", "definition", "ledger", "engine", "store", "client", "executor"]),
    // Written from the specification alone: a fault of ours must not hide itself in its own check.
    ("verifier", &[]),
    // For developers: they may see everything, and nothing sees them.
    ("bench", &["kernel", "definition", "ledger", "engine", "store", "client", "executor", "server"]),
    ("testing", &["kernel", "definition", "ledger", "engine", "store", "client", "executor", "server", "verifier"]),
];

/// Pure functions need nothing but ids.
const KERNEL_NEEDS: &[&str] = &["uuid"];

const MAX_LINES: usize = 700;

const OURS: &str = "countersign-";

/// Crate (without its prefix) → (dependency, kind) as the manifests state them.
fn manifests() -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let name = text(&package["name"]).expect("a name");
            let name = name.strip_prefix(OURS).expect("every crate bears our name").to_owned();
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let dependency = |d: &serde_json::Value| (text(&d["name"]).expect("a name"), text(&d["kind"]));
            (name, dependencies.iter().map(dependency).collect())
        })
        .collect()
}

#[test]
fn arrows_between_crates_point_inward() {
    let manifests = manifests();
    let known: BTreeSet<&str> = MAY_SEE.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate came or went: say here what it may see");

    let mut wrong = vec![];
    for (name, allowed) in MAY_SEE {
        for (dependency, kind) in &manifests[*name] {
            let Some(dependency) = dependency.strip_prefix(OURS) else { continue };
            if !allowed.contains(&dependency) {
                wrong.push(format!("{name} → {dependency} ({})", kind.as_deref().unwrap_or("normal")));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that should not be: {wrong:#?}");
}

/// What checks us shares nothing with us, not even in its tests; only our own tests may run it.
#[test]
fn the_verifier_stands_alone() {
    let manifests = manifests();
    let ours: Vec<&String> =
        manifests["verifier"].iter().map(|(name, _)| name).filter(|name| name.starts_with(OURS)).collect();
    assert!(ours.is_empty(), "the verifier depends on {ours:?}");
    for (name, dependencies) in &manifests {
        for (_, kind) in dependencies.iter().filter(|(dependency, _)| dependency == "countersign-verifier") {
            assert_eq!((name.as_str(), kind.as_deref()), ("testing", Some("dev")), "who depends on the verifier");
        }
    }
}

#[test]
fn the_kernel_needs_nothing_that_could_make_it_impure() {
    let normal: Vec<String> =
        manifests()["kernel"].iter().filter(|(_, kind)| kind.is_none()).map(|(name, _)| name.clone()).collect();
    assert_eq!(normal, KERNEL_NEEDS);
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// (path within the workspace, text) of every Rust file of ours.
fn sources() -> Vec<(String, String)> {
    let root = workspace();
    let mut files = vec![];
    rust_files(&root.join("crates"), &mut files);
    files.sort();
    let shown = |path: &Path| path.strip_prefix(&root).unwrap_or(path).display().to_string();
    files.iter().map(|path| (shown(path), std::fs::read_to_string(path).expect("text"))).collect()
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let without: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.lines().next().is_some_and(|first| first.starts_with("//! ")))
        .map(|(path, _)| path)
        .collect();
    assert!(without.is_empty(), "without a //! header: {without:#?}");
}

#[test]
fn no_file_is_longer_than_can_be_read_in_one_sitting() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "longer than {MAX_LINES} lines: {long:#?}");
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let directory = workspace().join("docs/errors");
    let pages: BTreeSet<String> = std::fs::read_dir(&directory)
        .expect("docs/errors")
        .map(|entry| entry.expect("a page").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| name != "README")
        .collect();
    let mut codes: BTreeSet<String> = Code::ALL.iter().map(ToString::to_string).collect();
    // The one answer that refuses nothing.
    codes.insert("internal-error".to_owned());
    assert_eq!(pages, codes, "pages (left) and codes (right) differ");

    let index = std::fs::read_to_string(directory.join("README.md")).expect("the index");
    let unlisted: Vec<&String> = codes.iter().filter(|code| !index.contains(&format!("{code}.md"))).collect();
    assert!(unlisted.is_empty(), "not in docs/errors/README.md: {unlisted:?}");
    for code in &codes {
        let page = std::fs::read_to_string(directory.join(format!("{code}.md"))).expect("a page");
        assert!(
            page.lines().next().is_some_and(|title| title.contains(code)),
            "docs/errors/{code}.md has another title"
        );
    }
}
