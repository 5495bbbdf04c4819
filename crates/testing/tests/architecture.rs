//! House rules that would otherwise be argued about: which crate may see which, how a file begins and how
//! long it may be, that every refusal code has its page, and what we may depend on (`deny.toml`).

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
    // The verifier judges what the engine stores (ADR 31); it sees nothing of ours itself.
    ("engine", &["kernel", "ledger", "verifier"]),
    ("store", &["kernel", "ledger", "engine"]),
    ("client", &[]),
    // Carries out and knows nothing of what follows.
    ("executor", &["kernel"]),
    ("server", &["kernel", "definition", "ledger", "engine", "store", "client", "executor"]),
    // Written from the specification alone: a fault of ours must not hide itself in its own check.
    ("verifier", &[]),
    ("verifier-wasm", &["verifier"]),
    // For developers: they may see everything, and nothing sees them.
    ("bench", &["kernel", "definition", "ledger", "engine", "store", "client", "executor", "server"]),
    ("testing", &["kernel", "definition", "ledger", "engine", "store", "client", "executor", "server", "verifier"]),
];

/// Pure functions need nothing but ids, and the tables that tell which names look alike (ADR 29).
const KERNEL_NEEDS: &[&str] = &["unicode-normalization", "unicode-security", "uuid"];

const MAX_LINES: usize = 700;

const OURS: &str = "countersign-";

fn metadata(arguments: &[&str]) -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(arguments)
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Crate (without its prefix) → (dependency, kind) as the manifests state them.
fn manifests() -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let metadata = metadata(&["--no-deps"]);
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

/// What checks us depends on nothing of ours, not even in its tests. The engine uses it to verify its own store (ADR 31), and
/// our tests run it.
#[test]
fn the_verifier_stands_alone() {
    let manifests = manifests();
    let ours: Vec<&String> =
        manifests["verifier"].iter().map(|(name, _)| name).filter(|name| name.starts_with(OURS)).collect();
    assert!(ours.is_empty(), "the verifier depends on {ours:?}");
    for (name, dependencies) in &manifests {
        for (_, kind) in dependencies.iter().filter(|(dependency, _)| dependency == "countersign-verifier") {
            let known = [("testing", Some("dev")), ("engine", None), ("verifier-wasm", None)];
            assert!(known.contains(&(name.as_str(), kind.as_deref())), "{name} depends on the verifier");
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

/// Whether a licence expression (SPDX, or the older form with `/`) can be met with licences of this list.
fn licensed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = expression.split_whitespace().peekable();
    let met = either(&mut words, allowed);
    met && words.next().is_none()
}

type Words<'e> = std::iter::Peekable<std::str::SplitWhitespace<'e>>;

fn either(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = both(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= both(words, allowed);
    }
    met
}

fn both(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = single(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= single(words, allowed);
    }
    met
}

fn single(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = either(words, allowed);
        return words.next_if_eq(&")").is_some() && met;
    }
    let mut licence = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    allowed.contains(&licence)
}

/// The part of `cargo deny` that needs no other tool: it always runs.
#[test]
fn what_we_depend_on_is_licensed_and_comes_from_the_registry_and_comes_once() {
    let text = std::fs::read_to_string(workspace().join("deny.toml")).expect("deny.toml");
    let policy: toml::Value = toml::from_str(&text).expect("TOML");
    let list = |section: &str, key: &str| policy[section][key].as_array().expect("a list").clone();
    let text_of = |value: &toml::Value| value.as_str().expect("text").to_owned();
    let allowed: BTreeSet<String> = list("licenses", "allow").iter().map(text_of).collect();
    let registries: Vec<String> = list("sources", "allow-registry").iter().map(text_of).collect();
    let skipped: BTreeSet<String> = list("bans", "skip").iter().map(|entry| text_of(&entry["crate"])).collect();

    let metadata = metadata(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let (mut wrong, mut versions) = (vec![], BTreeMap::<String, BTreeSet<String>>::new());
    let mut unused = skipped.clone();
    for package in metadata["packages"].as_array().expect("packages") {
        let part = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let (name, version) = (part("name"), part("version"));
        let version = version.split('+').next().unwrap_or_default().to_owned();
        if !licensed(&part("license"), &allowed) {
            wrong.push(format!("{name} {version}: its licence is {:?}", part("license")));
        }
        let source = part("source");
        let ours = name.starts_with(OURS) && source.is_empty();
        if !ours && !registries.iter().any(|registry| source == format!("registry+{registry}")) {
            wrong.push(format!("{name} {version}: it comes from {source:?}"));
        }
        if !unused.remove(&format!("{name}@{version}")) {
            versions.entry(name).or_default().insert(version);
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        wrong.push(format!("{name}: in the versions {versions:?}; where that cannot be helped, add it to deny.toml"));
    }
    wrong.extend(unused.iter().map(|entry| format!("{entry}: deny.toml skips it, and nothing needs it any more")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "A WITH B"].map(str::to_owned).into();
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND Zlib", false),
        ("GPL-3.0 AND ISC OR MIT", true),
        ("A WITH B", true),
        ("A", false),
        ("", false),
        ("MIT)", false),
    ] {
        assert_eq!(licensed(expression, &allowed), met, "{expression}");
    }
}
