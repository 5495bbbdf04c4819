//! `countersign demo`: every story is played as a user plays it. A story says what it expects of each call and fails where that does
//! not happen; its evidence goes to the verifier, where that was built beside the server.

use std::path::Path;
use std::process::Command;

const STORIES: &[&str] = &[
    "batch-release",
    "journal-entry",
    "purchase-order",
    "order-process",
    "order-saga",
    "nightly-report",
    "capa",
    "document-cut",
    "db-migrate",
];

fn plays(story: &str) -> String {
    let evidence = tempfile::tempdir().expect("a directory");
    let countersign = Path::new(env!("CARGO_BIN_EXE_countersign"));
    let mut demo = Command::new(countersign);
    demo.args(["demo", "--no-wait", "--story", story, "--evidence"]).arg(evidence.path());
    let out = demo.output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{story}: {said}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(evidence.path().join("evidence.zip").exists(), "{story}: {said}");
    let verified = said.contains("The evidence verifies");
    assert_eq!(verified, countersign.with_file_name("countersign-verify").exists(), "{story}: {said}");
    assert!(
        said.contains("See it in the console: http://127.0.0.1:") && said.contains("#token=cs_"),
        "{story}: {said}"
    );
    said
}

#[test]
fn every_story_ends_as_it_says() {
    for story in STORIES {
        plays(story);
    }
    // None is left out: the help lists them all, and the Makefile, too.
    let help = Command::new(env!("CARGO_BIN_EXE_countersign")).args(["demo", "--help"]).output().expect("help");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let listed: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    let listed: Vec<&str> = listed.iter().map(|line| line.split(':').next().unwrap_or_default()).collect();
    let named = help.split("[possible values: ").nth(1).and_then(|rest| rest.split(']').next());
    let listed = if listed.is_empty() { named.unwrap_or_default().split(", ").collect() } else { listed };
    assert_eq!(listed, STORIES, "{help}");
    assert!(include_str!("../../../../Makefile").contains(&STORIES.join("|")));
}

#[test]
fn a_runbook_stops_on_drift_and_its_old_approval_counts_no_more() {
    let said = plays("db-migrate");
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text:?} is not in\n{said}"));
    let (drift, resumed) = (at("stopped (drift)"), at(" run_resumed"));
    assert!(drift < resumed && at("moot_gate_recalled") < resumed, "{said}");
    assert_eq!(
        said.matches(" chain_initiated").count() / 2,
        2,
        "asked twice: once live, once in the chain at the end\n{said}"
    );
}
