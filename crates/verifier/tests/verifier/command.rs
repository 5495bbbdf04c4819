//! The command line: exit status, JSON, and what it says without a key.

use crate::support::{Bundle, path};
use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_countersign-verify")).args(arguments).output().expect("the verifier runs")
}

fn bundle(name: &str) -> String {
    path(&format!("{name}.zip")).display().to_string()
}

fn policy(name: &str) -> String {
    path(&format!("{name}.policy.txt")).display().to_string()
}

#[test]
fn a_good_bundle_exits_0_and_says_so() {
    let out = run(&[&bundle("release"), "--policy", &policy("release")]);
    let text = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.starts_with("VERIFIED\n"), "{text}");
    for part in ["✓ integrity", "✓ identity", "✓ 1 ", "✓ 5 ", "✓ retention", "(6)", "(7)", "(8)", "qp_santos"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour where no terminal is");
}

#[test]
fn json_has_the_form_of_the_specification() {
    let out = run(&[&bundle("purge"), "--policy", &policy("purge"), "--json"]);
    assert_eq!(out.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let members: Vec<&str> = answer.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        members,
        ["result", "origin", "tree_size", "root", "records", "instances", "claims", "notes", "questions"]
    );
    assert_eq!(answer["result"], "verified");
    let claims: Vec<&str> =
        answer["claims"].as_array().expect("claims").iter().filter_map(|c| c["claim"].as_str()).collect();
    assert_eq!(claims, ["integrity", "identity", "1", "2", "3", "4", "5", "retention"]);
    assert_eq!(answer["claims"][1]["result"], "unverifiable");
    let checks: Vec<u64> =
        answer["questions"].as_array().expect("questions").iter().filter_map(|q| q["check"].as_u64()).collect();
    assert_eq!(checks, [6, 7, 8]);
}

#[test]
fn findings_exit_1_and_name_the_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, page) = (directory.path().join("bad.zip"), directory.path().join("report.html"));
    let mut tampered = Bundle::load("release");
    tampered.record("gate_decided", 0).payload["reason"] = "because".into();
    std::fs::write(&file, tampered.naive()).expect("written");
    let (file, report) = (file.display().to_string(), page.display().to_string());
    let out = run(&[&file, "--policy", &policy("release"), "--report", &report]);
    let text = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("payload-digest-mismatch") && text.contains("sequence 4, gate_decided by qp_santos"),
        "{text}"
    );
    let html = std::fs::read_to_string(page).expect("a report");
    for part in [
        "Failed verification",
        "payload-digest-mismatch",
        "What happened",
        "<svg",
        "How to repeat this check",
        "qp-review",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn without_a_key_nothing_is_verified() {
    let out = run(&[&bundle("release")]);
    let text = String::from_utf8(out.stderr).expect("text");
    assert_eq!(out.status.code(), Some(2));
    assert!(text.contains("proves nothing") && text.contains("countersign/892cf57618944873+"), "{text}");
}

#[test]
fn what_cannot_be_read_exits_2() {
    let key = Bundle::load("release").keys["vkey"].as_str().expect("a key").to_owned();
    let not_zip = policy("release");
    for arguments in [
        vec!["/nowhere.zip", "--key", &key],
        vec![&not_zip, "--key", &key],
        vec![&bundle("release"), "--key", "nonsense"],
        vec![&bundle("release"), "--key", "@/nowhere"],
        vec![&bundle("release"), "--policy", &bundle("release")],
        vec![],
    ] {
        assert_eq!(run(&arguments).status.code(), Some(2), "{arguments:?}");
    }
    let out = run(&[&bundle("release"), "--key", &key]);
    assert_eq!(out.status.code(), Some(0), "a key alone will do");
}

/// What a workflow declares are its steps, and what undoes one is not the step itself.
#[test]
fn a_run_is_told_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("report.html").display().to_string();
    let out = run(&[&bundle("run-saga"), "--policy", &policy("run-saga"), "--report", &page]);
    let text = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(0), "{text}");
    for part in ["\nrun 0", " records of 1 run and of the registry", "(worker", "; can be undone: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("ends in nothing"), "{text}");
    let html = std::fs::read_to_string(page).expect("a report");
    assert!(html.contains("undoing of "), "{html}");
}
