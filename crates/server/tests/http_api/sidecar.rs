//! The files of a runbook's run: behind the API, in a directory, and against the ledger. On SQLite and on a real PostgreSQL
//! (`scripts/with-postgres.sh`).

use crate::run_commands::{as_actor, countersign};
use crate::runbook_executors::{SHELL, approve_resume, started, until, until_state};
use crate::support::{Actor, Server};
use crate::webhooks::{PACE, database, on_both};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

on_both! {
    files_tell_what_the_records_tell,
    a_stop_has_its_report_and_the_command_that_goes_on,
    who_may_read_the_run_may_read_its_files,
    the_directory_follows_the_run,
    after_a_restart_files_are_brought_up_to_date,
    a_directory_that_cannot_be_written_fails_no_command,
    purged_content_leaves_the_files,
}

const DUMP: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

/// A migration whose world is this file: pinned, backed up, approved, carried out.
fn migration(manifest: &Path) -> Value {
    let pin = json!({"run": "shell", "command": ["cat", manifest]});
    json!({
        "kind": "workflow", "name": "db-migrate", "order": "linear", "failurePolicy": "fail-closed", "hardCap": "60m",
        "gate_spec": {"sovereign": {"approver_ref": "owner", "scope": "prod:resume"},
            "authz": {"approver_ref": "owner", "scope": "prod:migrate"}},
        "steps": [
            {"name": "pin", "run": "shell", "readOnly": true, "softCap": "2m", "state": "source_pinned",
                "command": "echo '{\"rows\": 2}'", "pins": {"schema": pin}, "checks": {"some": "${output.rows > 0}"}},
            {"name": "backup", "run": "shell", "state": "backup_taken", "command": "echo hello > dump.bin",
                "artifacts": ["dump.bin"]},
            {"name": "migrate", "run": "shell", "gate": "authz", "state": "migrated",
                "request": {"rows": "${steps.pin.output.rows}"}, "command": "echo '{\"applied\": 2}'",
                "checks": {"all": "${output.applied == steps.pin.output.rows}", "any": "${output.applied > 0}"}},
        ],
    })
}

struct World {
    server: Server,
    /// Kept for as long as the server runs.
    outside: TempDir,
}

impl World {
    /// With the files kept in a directory of their own.
    async fn start(store: Option<String>, more: &str) -> World {
        let outside = tempfile::tempdir().expect("a directory");
        let sidecars = outside.path().join("runs");
        let config = format!("{more}{SHELL}[sidecar]\ndir = \"{}\"\n", sidecars.display());
        let world = World { server: Server::with(Some(config), store, PACE).await, outside };
        std::fs::write(world.manifest(), "v1\n").expect("a manifest");
        world
    }

    fn manifest(&self) -> PathBuf {
        self.outside.path().join("manifest")
    }

    fn sidecars(&self) -> PathBuf {
        self.outside.path().join("runs")
    }

    /// A run that waits for the approval of its last step.
    async fn at_the_gate(&self) -> String {
        let admin = self.server.admin();
        let run_id = started(&admin, migration(&self.manifest())).await;
        until(&admin, &run_id, "no gate", |run| run["phase"] == "awaiting_authz").await;
        run_id
    }

    async fn files(&self, run_id: &str) -> Value {
        self.server.admin().get(&format!("/v1/runs/{run_id}/sidecar")).await.ok()["files"].clone()
    }

    async fn state(&self, run_id: &str) -> Value {
        state(&self.files(run_id).await)
    }

    fn place(&self, state: &Value) -> PathBuf {
        self.sidecars().join(state["run_id"].as_str().expect("a name"))
    }

    /// Once the directory of the run holds exactly what the API gives.
    async fn until_kept(&self, run_id: &str) -> Value {
        let (mut files, mut kept) = (Value::Null, Value::Null);
        for _ in 0..1200 {
            files = self.files(run_id).await;
            kept = read_all(&self.place(&state(&files)));
            if kept == files {
                return state(&files);
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the directory does not follow: {kept:#}\n{files:#}");
    }

    fn listed(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.sidecars().join("runs.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        lines.map(|line| line["run_id"].as_str().expect("a name").to_owned()).collect()
    }
}

fn state(files: &Value) -> Value {
    serde_json::from_str(files["state.json"].as_str().expect("a state")).expect("JSON")
}

fn read_all(place: &Path) -> Value {
    let Ok(entries) = std::fs::read_dir(place) else { return Value::Null };
    let entries = entries.map(|entry| entry.expect("an entry"));
    let file = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut files: Vec<(String, Value)> =
        entries.map(|entry| (entry.file_name().into_string().expect("a name"), file(&entry.path()).into())).collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(files.into_iter().collect())
}

async fn decide(owner: &Actor, run_id: &str, action: &str) {
    let decision = json!({"decision": "approve", "reason": "seen"});
    owner.post(&format!("/v1/runs/{run_id}/gates/{action}/decision"), decision).await.ok();
}

async fn files_tell_what_the_records_tell(store: Option<String>) {
    let world = World::start(store, "").await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let run_id = world.at_the_gate().await;
    let waiting = world.state(&run_id).await;
    assert_eq!(
        (&waiting["state"], &waiting["status"], &waiting["mode"]),
        (&json!("awaiting_authz"), &json!("running"), &json!("live")),
        "{waiting:#}"
    );
    assert_eq!((&waiting["last_error"], &waiting["sovereign_approvals"]), (&Value::Null, &json!([])));
    assert!(waiting["phases"].get("migrate").is_none(), "it has not begun: {waiting:#}");

    decide(&owner, &run_id, "migrate").await;
    let run = until_state(&admin, &run_id, "completed").await;
    let files = world.files(&run_id).await;
    let state = state(&files);
    let stamp = run["started_at"].as_str().expect("a time").replace(['-', ':'], "");
    let name = format!("db-migrate-{}Z-{run_id}", &stamp[..15]);
    let records = admin.get(&format!("/v1/ledger/records?instance_id={run_id}&limit=500")).await.ok();
    let last = records["items"].as_array().and_then(|items| items.last()).expect("a record").clone();
    for (field, value) in [
        ("run_id", json!(name)),
        ("created_utc", run["started_at"].clone()),
        ("created_by", json!("admin")),
        ("document_id", run["subject_ref"].clone()),
        ("source_document_id", Value::Null),
        ("source_version_id", Value::Null),
        ("mode", json!("live")),
        ("status", json!("success")),
        ("state", json!("migrated")),
        ("context_pins", json!({"schema": "v1"})),
        ("last_error", Value::Null),
        ("schema_version", json!(1)),
        ("sequence", last["sequence"].clone()),
        ("record_hash", last["record_hash"].clone()),
        (
            "idempotency_keys",
            json!({"pin": format!("{run_id}.0"), "backup": format!("{run_id}.1"), "migrate": format!("{run_id}.2")}),
        ),
    ] {
        assert_eq!(state[field], value, "{field}: {state:#}");
    }
    assert_eq!(state["context_pin_digests"]["schema"], run["pins"][0]["digest"]);
    let phase = |name: &str, field: &str| state["phases"][name][field].clone();
    assert_eq!(phase("pin", "gate_invariants"), json!({"some": true}));
    assert_eq!(phase("migrate", "gate_invariants"), json!({"all": true, "any": true}));
    assert_eq!(phase("backup", "artifacts"), json!([{"path": "dump.bin", "sha256": DUMP, "size_bytes": 6}]));
    for (seq, name) in ["pin", "backup", "migrate"].into_iter().enumerate() {
        assert_eq!((phase(name, "phase"), phase(name, "result")), (json!(name), json!("passed")));
        // A step that waited at its gate began to wait before its phase began.
        assert!(phase(name, "started_utc").as_str() >= run["steps"][seq]["started_at"].as_str(), "{name}");
        assert_eq!(phase(name, "finished_utc"), run["steps"][seq]["completed_at"], "{name}");
    }
    let approval = &state["sovereign_approvals"][0];
    let gate = &run["gates"][0];
    assert_eq!((&approval["gate"], &approval["action"]), (&json!("authz"), &json!("migrate")));
    assert_eq!((&approval["approval_kb_id"], &approval["decided_by"]), (&gate["step_id"], &json!("owner")));
    assert_eq!(
        (&approval["request_digest"], &approval["requested_utc"]),
        (&gate["request_digest"], &gate["submitted_at"])
    );
    let decided = admin.get(&format!("/v1/ledger/records?instance_id={run_id}&action_ref=gate_decided")).await.ok();
    assert_eq!(approval["review_decision_id"], decided["items"][0]["event_id"]);
    assert!(approval["validated_utc"].as_str() >= approval["decided_utc"].as_str(), "{approval:#}");

    let names: Vec<&String> = files.as_object().expect("files").keys().collect();
    assert_eq!(names, ["phase-01.md", "phase-02.md", "phase-03.md", "state.json"]);
    for (file, parts) in [
        ("phase-01.md", vec!["# Phase 01: `pin`", "| `some` | yes |", "| `schema` | `\"v1\"` |", "`source_pinned`"]),
        ("phase-02.md", vec!["## Surveys before it", "| 1 | equal |", DUMP]),
        ("phase-03.md", vec!["## Gate `authz`", "| `owner` | approved |", "`seen`", "\"applied\": 2"]),
    ] {
        let text = files[file].as_str().expect("a report");
        parts.into_iter().for_each(|part| assert!(text.contains(part), "{part} is not in {text}"));
    }
}

async fn a_stop_has_its_report_and_the_command_that_goes_on(store: Option<String>) {
    let mut world = World::start(store, "").await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let run_id = world.at_the_gate().await;
    std::fs::write(world.manifest(), "v2\n").expect("a change");
    decide(&owner, &run_id, "migrate").await;
    let stopped = until_state(&admin, &run_id, "stopped").await;
    let gate =
        stopped["gates"].as_array().expect("gates").iter().find(|gate| gate["action"] == "resume").expect("a gate");
    let files = world.files(&run_id).await;
    let at_stop = state(&files);
    assert_eq!((&at_stop["state"], &at_stop["status"]), (&json!("stopped_drift"), &json!("stopped")));
    let error = &at_stop["last_error"];
    assert_eq!((&error["code"], &error["phase"]), (&json!("STOP_DRIFT_schema"), &json!("migrate")), "{error:#}");
    assert_eq!(error["drift"], json!([{"pin": "schema", "pinned": "v1", "live": "v2"}]));
    let report = files["stop-route-report.md"].as_str().expect("a report");
    let resume = format!("countersign runs resume {run_id} --approval {}", gate["step_id"].as_str().expect("an id"));
    for part in [
        "| `schema` | `v1` | `v2` |",
        "`owner` decides:",
        &format!("countersign gate decide {run_id} resume approve"),
        &resume,
        files["state.json"].as_str().expect("a state"),
    ] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
    world.until_kept(&run_id).await;

    // The command of the report is the one that goes on.
    approve_resume(&admin, &owner, &run_id).await;
    let arguments: Vec<&str> = resume.split(' ').skip(1).collect();
    let said = countersign(&world.server, &arguments).await;
    said.says(0, &[&run_id]);
    until(&admin, &run_id, "it does not ask again", |run| {
        run["phase"] == "awaiting_authz" && run["state"] == "blocked"
    })
    .await;
    let resumed = world.until_kept(&run_id).await;
    assert_eq!(resumed["context_pins"], json!({"schema": "v2"}));
    assert!(!world.place(&resumed).join("stop-route-report.md").exists(), "the stop is over");
    decide(&owner, &run_id, "migrate").await;
    until_state(&admin, &run_id, "completed").await;
    let done = world.until_kept(&run_id).await;
    assert_eq!((&done["status"], done["sovereign_approvals"].as_array().map(Vec::len)), (&json!("success"), Some(3)));
    // At an earlier record, the files are what they were then.
    let then = format!("/v1/runs/{run_id}/sidecar?sequence={}", at_stop["sequence"]);
    assert_eq!(admin.get(&then).await.ok()["files"], files);
    world.server.stop().await;
}

async fn who_may_read_the_run_may_read_its_files(store: Option<String>) {
    let world = World::start(store, "").await;
    let run_id = world.at_the_gate().await;
    let admin = world.server.admin();
    let plain = json!({"kind": "workflow", "name": "plain", "steps": [{"name": "s", "queue": "q"}]});
    let plain = started(&admin, plain).await;
    let path = format!("/v1/runs/{run_id}/sidecar");
    let (reader, finer, other, nobody) = (
        world.server.actor("reader", &["runs:read"]).await,
        world.server.actor("finer", &["runs:read:db-migrate"]).await,
        world.server.actor("other", &["runs:read:plain"]).await,
        world.server.actor("nobody", &["audit:read", "runs:control"]).await,
    );
    reader.get(&path).await.ok();
    finer.get(&path).await.ok();
    other.get(&path).await.refused(403, "permission-denied");
    nobody.get(&path).await.refused(403, "permission-denied");
    world.server.nobody().get(&path).await.refused(401, "invalid-credential");
    admin.get(&format!("/v1/runs/{plain}/sidecar")).await.refused_at(404, "not-known", "run_id");
    admin.get("/v1/runs/unheard-of/sidecar").await.refused_at(404, "not-known", "run_id");
    for sequence in ["0", "9999", "18446744073709551615"] {
        admin.get(&format!("{path}?sequence={sequence}")).await.refused_at(404, "not-known", "sequence");
    }
    for sequence in ["-1", "x", "01", "18446744073709551616"] {
        admin.get(&format!("{path}?sequence={sequence}")).await.refused_at(400, "invalid-query", "sequence");
    }
    admin.get(&format!("{path}?limit=1")).await.refused_at(400, "invalid-query", "limit");
}

async fn the_directory_follows_the_run(store: Option<String>) {
    let nodes = store.is_some();
    let world = World::start(store, "").await;
    // On PostgreSQL a second node keeps the same directory.
    let beside = if nodes { Some(world.server.beside().await) } else { None };
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let plain =
        json!({"kind": "workflow", "name": "plain", "steps": [{"name": "s", "run": "shell", "command": "true"}]});
    until_state(&admin, &started(&admin, plain).await, "completed").await;
    let first = world.at_the_gate().await;
    let waiting = world.until_kept(&first).await;
    assert_eq!(waiting["state"], "awaiting_authz");
    decide(&owner, &first, "migrate").await;
    until_state(&admin, &first, "completed").await;
    let done = world.until_kept(&first).await;
    let again = admin.post("/v1/runs", json!({"definition": "db-migrate", "dry_run": true})).await.created();
    let again = again["run_id"].as_str().expect("an id").to_owned();
    until_state(&admin, &again, "completed").await;
    let dry = world.until_kept(&again).await;
    assert_eq!((&dry["mode"], &dry["state"]), (&json!("dryrun"), &json!("source_pinned")), "{dry:#}");
    assert_eq!(world.listed(), [&done, &dry].map(|state| state["run_id"].as_str().expect("a name")));
    let mut there: Vec<String> = std::fs::read_dir(world.sidecars())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    there.retain(|name| !name.starts_with("runs."));
    assert_eq!(there.len(), 2, "only runbooks have files: {there:?}");
    drop(beside);
}

async fn after_a_restart_files_are_brought_up_to_date(store: Option<String>) {
    let mut world = World::start(store, "").await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let (gone, old) = (world.at_the_gate().await, {
        let started = admin.post("/v1/runs", json!({"definition": "db-migrate"})).await.created();
        started["run_id"].as_str().expect("an id").to_owned()
    });
    until(&admin, &old, "no gate", |run| run["phase"] == "awaiting_authz").await;
    let (first, second) = (world.until_kept(&gone).await, world.until_kept(&old).await);
    decide(&owner, &old, "migrate").await;
    until_state(&admin, &old, "completed").await;
    let file = world.place(&second).join("state.json");
    world.until_kept(&old).await;
    world.server.stop().await;
    // As a server that was killed leaves it: one run's files were never written, another's are those of an earlier record.
    std::fs::remove_dir_all(world.place(&first)).expect("removed");
    std::fs::write(&file, format!("{second:#}\n")).expect("an old file");
    std::fs::write(world.sidecars().join("runs.jsonl"), "{\"run_id\": \"half a li").expect("a torn list");
    let World { server, outside } = world;
    let world = World { server: server.resumed().await, outside };
    world.until_kept(&gone).await;
    assert_eq!(world.until_kept(&old).await["status"], "success");
    let mut listed = world.listed();
    listed.sort();
    let mut expected = [&first, &second].map(|state| state["run_id"].as_str().expect("a name").to_owned());
    expected.sort();
    assert_eq!(listed, expected);
}

async fn a_directory_that_cannot_be_written_fails_no_command(store: Option<String>) {
    let world = World::start(store, "").await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let run_id = world.at_the_gate().await;
    let place = world.place(&world.until_kept(&run_id).await);
    // A file stands where the directory belongs.
    std::fs::remove_dir_all(&place).expect("removed");
    std::fs::write(&place, "in the way").expect("a file");
    decide(&owner, &run_id, "migrate").await;
    until_state(&admin, &run_id, "completed").await;
    for _ in 0..1200 {
        if admin.get("/metrics").await.text.contains("countersign_sidecar_failures_total") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let metrics = admin.get("/metrics").await.text;
    assert!(metrics.contains("countersign_sidecar_failures_total"), "the failure is counted");
    std::fs::remove_file(&place).expect("removed");
    // The next record of the run brings them back.
    let opened = json!({"action": "void", "reason": "not needed"});
    let _ = admin.post(&format!("/v1/runs/{run_id}/gates"), opened).await;
    admin.get(&format!("/v1/ledger/export?instance_id={run_id}")).await;
    assert_eq!(world.until_kept(&run_id).await["status"], "success");
}

async fn purged_content_leaves_the_files(store: Option<String>) {
    const YEAR: &str = "audit_trail_retention_policy = \"year\"\n\
        [retention.policies.year]\nduration = \"365d\"\nmax_purge_delay = \"0s\"\n";
    let world = World::start(store, YEAR).await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    std::fs::write(world.manifest(), "of Mrs Smith\n").expect("a manifest");
    let run_id = world.at_the_gate().await;
    decide(&owner, &run_id, "migrate").await;
    until_state(&admin, &run_id, "completed").await;
    let before = world.until_kept(&run_id).await;
    assert_eq!(before["context_pins"]["schema"], "of Mrs Smith");
    let kept = world.server.directory.path().join("artifacts/58").join(DUMP);
    let file = std::fs::File::options().write(true).open(&kept).expect("a kept file");
    // A file of the last hour may belong to a step that is about to report it.
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200)).expect("an older file");
    world.server.pass_days(366);
    let records = admin.get(&format!("/v1/ledger/records?instance_id={run_id}&limit=500")).await.ok();
    for record in records["items"].as_array().expect("records") {
        let path = format!("/v1/ledger/records/{}/purge", record["event_id"].as_str().expect("an id"));
        admin.post(&path, json!({})).await.ok();
    }
    let after = world.until_kept(&run_id).await;
    assert_eq!((&after["status"], &after["state"]), (&json!("success"), &json!("migrated")), "{after:#}");
    assert_eq!(after["purged"].as_array().map(Vec::len), records["items"].as_array().map(Vec::len));
    let text = read_all(&world.place(&after)).to_string();
    assert!(!text.contains("Mrs Smith"), "{text}");
    assert!(!kept.exists(), "the file that a step left is purged with the record that names it");
    let edited = world.outside.path().join("before.json");
    std::fs::write(&edited, format!("{before:#}\n")).expect("a file");
    let said = countersign(&world.server, &["audit", "verify", "--sidecar", edited.to_str().expect("a path")]).await;
    said.says(1, &["was purged"]);
}

/// Every leaf of a value, by the way to it.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, value)| leaves(value, &format!("{path}/{at}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::Bool(held) => json!(!held),
        Value::Number(number) => json!(number.as_u64().unwrap_or(0) + 1),
        Value::String(text) => {
            // The last character: of a run's id, one of another run.
            let last = if text.ends_with('0') { '1' } else { '0' };
            json!(format!("{}{last}", &text[..text.len().saturating_sub(1)]))
        }
        Value::Null => json!("something"),
        Value::Array(_) => json!([1]),
        Value::Object(_) => json!({"a": 1}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edit_of_the_state_is_found() {
    let world = World::start(None, "").await;
    let (admin, owner) = (world.server.admin(), world.server.actor("owner", &[]).await);
    let run_id = world.at_the_gate().await;
    std::fs::write(world.manifest(), "v2\n").expect("a change");
    decide(&owner, &run_id, "migrate").await;
    until_state(&admin, &run_id, "stopped").await;
    let file = world.outside.path().join("state.json");
    let name = file.to_str().expect("a path");
    let verify = async |text: &str| {
        std::fs::write(&file, text).expect("a file");
        countersign(&world.server, &["audit", "verify", "--sidecar", name]).await
    };
    let text = world.files(&run_id).await["state.json"].as_str().expect("a state").to_owned();
    verify(&text).await.says(0, &["Unchanged:", "Verified:"]);
    // Later records change nothing about it.
    approve_resume(&admin, &owner, &run_id).await;
    verify(&text).await.says(0, &["Unchanged:"]);

    let state: Value = serde_json::from_str(&text).expect("JSON");
    let mut paths = vec![];
    leaves(&state, "", &mut paths);
    assert!(paths.len() > 40, "{paths:?}");
    for path in &paths {
        let mut edited = state.clone();
        let leaf = edited.pointer_mut(path).expect("a leaf");
        *leaf = other(leaf);
        let field = path.trim_start_matches('/').replace('/', ".");
        let said = verify(&format!("{edited:#}\n")).await;
        said.says(1, &["Edited:"]);
        // Another record has another hash.
        let told = if field == "sequence" { "record_hash" } else { &field };
        assert!(said.out.contains(told), "{field}: {}", said.out);
    }
    for field in state.as_object().expect("members").keys() {
        let mut edited = state.clone();
        edited.as_object_mut().expect("members").shift_remove(field);
        verify(&format!("{edited:#}\n")).await.says(1, &["Edited:", field]);
    }
    let mut added = state.clone();
    added["more"] = json!(1);
    verify(&format!("{added:#}\n")).await.says(1, &["Edited:", "more", "(absent)"]);
    // The same content in another form is an edit, too.
    verify(&state.to_string()).await.says(1, &["Edited:", "(bytes)"]);
    let twice = text.replacen("{\n", "{\n  \"state\": \"migrated\",\n", 1);
    verify(&twice).await.says(1, &["Edited:", "(bytes)"]);
    verify("not JSON").await.says(1, &[]);
    let said = countersign(&world.server, &["audit", "verify", "--sidecar", name, "--json"]).await;
    assert_eq!(said.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_writes_the_files_and_no_others() {
    let world = World::start(None, "").await;
    let (admin, run_id) = (world.server.admin(), world.at_the_gate().await);
    let dir = world.outside.path().join("out");
    let out = dir.to_str().expect("a path");
    let said = countersign(&world.server, &["runs", "sidecar", &run_id, "-o", out]).await;
    said.says(0, &["state.json", "phase-01.md", "countersign audit verify --sidecar"]);
    assert_eq!(read_all(&dir), world.files(&run_id).await);
    // What is there of this run is replaced, what no longer holds goes, and foreign files stay.
    std::fs::write(dir.join("phase-09.md"), "of an earlier cycle").expect("a file");
    std::fs::write(dir.join("notes.txt"), "mine").expect("a file");
    admin.post(&format!("/v1/runs/{run_id}/stop"), json!({"reason": "look first"})).await.ok();
    let said = countersign(&world.server, &["runs", "sidecar", &run_id, "-o", out, "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&said.out).expect("JSON")["files"].as_array().map(Vec::len), Some(4));
    let mut there = read_all(&dir);
    assert_eq!(there.as_object_mut().expect("files").shift_remove("notes.txt"), Some(json!("mine")));
    assert_eq!(there, world.files(&run_id).await);
    // A directory of another run is left alone.
    let other = admin.post("/v1/runs", json!({"definition": "db-migrate", "dry_run": true})).await.created();
    let other = other["run_id"].as_str().expect("an id").to_owned();
    let said = countersign(&world.server, &["runs", "sidecar", &other, "-o", out]).await;
    said.says(1, &["holds files that are not of this run", "--force"]);
    assert_eq!(read_all(&dir)["state.json"], there["state.json"]);
    countersign(&world.server, &["runs", "sidecar", &other, "-o", out, "--force"]).await.says(0, &[]);
    assert_ne!(read_all(&dir)["state.json"], there["state.json"]);
    let nobody = world.server.actor("nobody", &[]).await;
    drop(nobody);
    as_actor(&world.server, "no-token", &["runs", "sidecar", &run_id, "-o", out]).await.says(1, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_what_an_operator_and_an_approver_need() {
    let world = World::start(None, "").await;
    let (admin, server) = (world.server.admin(), &world.server);
    let made = admin.post("/v1/actors", json!({"actor_ref": "owner", "kind": "human"})).await.created();
    let owner = made["token"].as_str().expect("a token").to_owned();
    admin.post("/v1/definitions", migration(&world.manifest())).await.created();
    let dry = countersign(server, &["run", "db-migrate", "--dry-run", "--watch"]).await;
    dry.says(0, &["a dry run", "phase source_pinned", "run is completed (dry_run)"]);

    let said = countersign(server, &["run", "db-migrate", "--subject", "orders"]).await;
    said.says(0, &["started "]);
    let run_id = said.out.split_whitespace().nth(1).expect("an id").to_owned();
    until(&admin, &run_id, "no gate", |run| run["phase"] == "awaiting_authz").await;
    let shown = countersign(server, &["runs", "show", &run_id]).await;
    shown.says(
        0,
        &["phase      awaiting_authz", "✓ some", "left dump.bin (6 bytes, 5891b5b522d5…)", "executing time left"],
    );
    shown.says(
        0,
        &["schema  v1", "owner decides on migrate", &format!("countersign gate decide {run_id} migrate approve")],
    );

    // The approver reads no run, and sees what is asked.
    as_actor(server, &owner, &["inbox"]).await.says(0, &["orders", "rows 2"]);
    let full = as_actor(server, &owner, &["inbox", "--full"]).await;
    full.says(
        0,
        &["migrate of orders", "rows  2", "schema  v1", "some", "✓ yes", "dump.bin", DUMP, "--request-digest "],
    );
    let json = as_actor(server, &owner, &["inbox", "--full", "--json"]).await;
    let item = serde_json::from_str::<Value>(&json.out).expect("JSON")["items"][0].clone();
    assert_eq!(item["checks"], json!([{"step": "pin", "name": "some", "held": true}]));
    assert_eq!(item["artifacts"][0]["sha256"], DUMP);
    as_actor(server, &owner, &["gate", "show", &run_id, "migrate"]).await.says(0, &["authz", "owner", "Pending", DUMP]);
    let gate = countersign(server, &["gate", "show", &run_id, "migrate"]).await;
    gate.says(0, &["authz", "owner", "Pending", "schema  v1", DUMP, "--request-digest "]);
    let gate = countersign(server, &["gate", "show", &run_id, "migrate", "--json"]).await;
    let gate: Value = serde_json::from_str(&gate.out).expect("JSON");
    assert_eq!((&gate["gates"][0]["state"], &gate["checks"][0]["name"]), (&json!("Pending"), &json!("some")));
    countersign(server, &["gate", "show", &run_id, "nothing"]).await.says(1, &["opened were: migrate"]);

    // A decision on another request decides nothing.
    let stale = "0".repeat(64);
    let decide = ["gate", "decide", &run_id, "migrate", "approve", "--request-digest"];
    as_actor(server, &owner, &[&decide[..], &[&stale]].concat()).await.says(1, &["conflict"]);
    std::fs::write(world.manifest(), "v2\n").expect("a change");
    let digest = item["request_digest"].as_str().expect("a digest");
    as_actor(server, &owner, &[&decide[..], &[digest]].concat()).await.says(0, &["Approved"]);
    until_state(&admin, &run_id, "stopped").await;
    let shown = countersign(server, &["runs", "show", &run_id]).await;
    shown.says(0, &["stopped (drift)", "schema  pinned v1  live v2", "owner decides on resume", "--approval "]);
    countersign(server, &["runs", "resume", &run_id]).await.says(1, &["transition_refused_by_guard", "runs show"]);
    as_actor(server, &owner, &["inbox", "--full"]).await.says(0, &["resume of orders", "schema  pinned v1  live v2"]);
    as_actor(server, &owner, &["gate", "decide", &run_id, "resume", "approve"]).await.says(0, &["Approved"]);
    // It changes once more: the approval was of another difference.
    std::fs::write(world.manifest(), "v3\n").expect("a change");
    let shown = countersign(server, &["runs", "show", &run_id]).await;
    let approved = shown.out.lines().find(|line| line.contains("runs resume")).expect("a command").trim().to_owned();
    let arguments: Vec<&str> = approved.split(' ').skip(1).collect();
    countersign(server, &arguments).await.says(1, &["stopped again"]);
    // Voided with the sovereign's approval.
    countersign(server, &["gate", "open", &run_id, "void", "--reason", "wrong"]).await.says(0, &["opened"]);
    as_actor(server, &owner, &["gate", "decide", &run_id, "void", "approve"]).await.says(0, &["Approved"]);
    let gates = admin.get(&format!("/v1/runs/{run_id}")).await.ok()["gates"].clone();
    let void = gates.as_array().expect("gates").iter().find(|gate| gate["action"] == "void").expect("a gate").clone();
    let approval = void["step_id"].as_str().expect("an id");
    let void = ["runs", "void", &run_id, "--approval", approval, "--reason", "Wrong database!"];
    countersign(server, &void).await.says(0, &["voided"]);
    assert_eq!(world.state(&run_id).await["state"], "voided_wrong_database");
}
