//! The server's own keys change: what was recorded and sealed before still verifies, auditors follow from the old log key to
//! the new one, and nothing is signed with a key that has ended.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use anyhow::{Context, ensure};
use countersign_client::{Client, wire};
use countersign_server::rotate::{OwnKey, RotateOptions, Rotated, rotate};
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, Running, ServeOptions};
use countersign_server::witness::{self, RunningWitness, WitnessOptions};
use countersign_testing::attack::python;
use countersign_testing::on_both;
use countersign_testing::place::{Kind, Place};
use countersign_testing::workspace;
use countersign_verifier::{Detail, Trust, Verdict, VerifierKey, verify};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

struct Node {
    place: Place,
    directory: TempDir,
}

impl Node {
    async fn new(kind: Kind) -> anyhow::Result<Node> {
        Ok(Node { place: Place::new(kind).await?, directory: tempfile::tempdir()? })
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn options(&self, data: &Path) -> ServeOptions {
        ServeOptions { listen: "127.0.0.1:0".into(), store: Some(self.place.url.clone()), ..ServeOptions::new(data) }
    }

    async fn start(&self) -> anyhow::Result<Running> {
        serve::start(self.options(&self.data())).await
    }

    fn client(&self, server: &Running) -> anyhow::Result<Client> {
        let token = std::fs::read_to_string(self.data().join(ADMIN_TOKEN_FILE))?;
        Ok(Client::new(&server.url())?.with_token(token.trim())?)
    }

    async fn rotate(&self, which: OwnKey, lost: bool) -> anyhow::Result<Rotated> {
        self.rotate_at(&self.data(), which, lost).await
    }

    async fn rotate_at(&self, data: &Path, which: OwnKey, lost: bool) -> anyhow::Result<Rotated> {
        let (data_dir, store) = (data.to_owned(), Some(self.place.url.clone()));
        rotate(RotateOptions { data_dir, store, config: None, which, lost, key_id: None }).await
    }

    async fn export(&self, client: &Client, id: &str, name: &str) -> anyhow::Result<PathBuf> {
        let mut bundle = Vec::new();
        let take = |piece: &[u8], _| {
            bundle.extend_from_slice(piece);
            Ok(())
        };
        let query = wire::ExportQuery { instance_id: Some(id.to_owned()), ..Default::default() };
        client.export(&query, take).await?;
        let path = self.directory.path().join(name);
        std::fs::write(&path, bundle)?;
        Ok(path)
    }

    async fn witness(&self, logs: &[&str]) -> anyhow::Result<RunningWitness> {
        witness::start(&WitnessOptions {
            data_dir: self.directory.path().join("witness"),
            listen: "127.0.0.1:0".into(),
            name: Some("witness.example".into()),
            logs: logs.iter().map(|key| key.trim().to_owned()).collect(),
        })
        .await
    }
}

/// Two states with a gate that becomes moot when the state is left: the engine writes a record of its own.
async fn begun(client: &Client) -> anyhow::Result<String> {
    let declaration = json!({
        "states": ["a", "b"], "initial_state": "a", "terminal_states": [],
        "transitions": [
            {"from": "a", "action": "sign", "to": "b", "guard": "g"}, {"from": "a", "action": "go", "to": "b"},
            {"from": "b", "action": "back", "to": "a"},
        ],
    });
    let gate_spec = json!({"g": {"approver_ref": "admin", "scope": "s"}});
    let body = json!({"declaration": declaration, "gate_spec": gate_spec, "subject_ref": "BR-1"});
    let id = client.start(&serde_json::from_value(body)?).await?.body.instance_id;
    around(client, &id).await?;
    Ok(id)
}

async fn around(client: &Client, id: &str) -> anyhow::Result<()> {
    client.open_gate(id, &wire::OpenGate { action: "sign".into(), reason: None, request: None }).await?;
    for action in ["go", "back"] {
        client.fire(id, &wire::FireTransition { action: action.into(), reason: None }).await?;
    }
    Ok(())
}

fn judged(path: &Path, key: &str) -> anyhow::Result<Verdict> {
    let key = VerifierKey::parse(key.trim()).map_err(|problem| anyhow::anyhow!(problem))?;
    let file = std::fs::File::open(path)?;
    verify(std::io::BufReader::new(file), &Trust::of_keys(vec![key]), Detail::Verdict)
        .map_err(|unreadable| anyhow::anyhow!("{}", unreadable.0))
}

fn codes(verdict: &Verdict) -> Vec<&'static str> {
    verdict.claims.iter().flat_map(|claim| &claim.findings).map(|finding| finding.code.as_str()).collect()
}

/// Both verifiers say that it passes with this key, or that it does not.
fn both_say(path: &Path, key: &str, passes: bool) -> anyhow::Result<()> {
    let verdict = judged(path, key)?;
    ensure!(verdict.passed() == passes, "{}: {:?}", path.display(), codes(&verdict));
    let out = Command::new(python()?)
        .arg(workspace().join("spec/verify.py"))
        .arg(path)
        .args(["--key", key.trim()])
        .output()?;
    let told = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success() == passes, "verify.py {}: {told}", path.display());
    Ok(())
}

async fn nothing_found(client: &Client) -> anyhow::Result<()> {
    let report = client.verify_log(&wire::VerifyLog { instance_id: None }, |_| {}).await?;
    ensure!(report.body.result == wire::VerificationResult::Verified, "{}", report.json);
    Ok(())
}

async fn evidence_over_a_rotated_log_verifies_with_either_key(kind: Kind) -> anyhow::Result<()> {
    let node = Node::new(kind).await?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    let old = client.log_key().await?;
    let id = begun(&client).await?;
    let before = node.export(&client, &id, "before.zip").await?;
    let busy = node.rotate(OwnKey::Application, false).await;
    if kind == Kind::Sqlite {
        let told = format!("{:#}", busy.expect_err("the server runs"));
        ensure!(told.contains("another process uses the store"), "{told}");
    } else {
        busy?;
    }
    server.shutdown().await?;

    let rotated = node.rotate(OwnKey::Log, false).await?;
    node.rotate(OwnKey::Application, false).await?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    let new = client.log_key().await?;
    ensure!(new != old && Some(new.trim()) == rotated.verifier_key.as_deref(), "the log has its new key");
    around(&client, &id).await?;
    let after = node.export(&client, &id, "after.zip").await?;
    nothing_found(&client).await?;
    both_say(&before, &old, true)?;
    both_say(&before, &new, false)?;
    both_say(&after, &old, true)?;
    both_say(&after, &new, true)?;
    let stranger = "example.org/x+f9446b8e+AYqI49LTtuGTqIBVRkwzGc7C/4BdBBxJl8MbO2kcsWBN";
    ensure!(VerifierKey::parse(stranger).is_err() || !judged(&after, stranger)?.passed());

    // The note that hands over is public, and the registry tells of both.
    let rotations = client.rotations().await?;
    ensure!(rotations.json["rotations"].as_array().map(Vec::len) == Some(1), "{}", rotations.json);
    let keys = client.keys("countersign-log").await?.body.keys;
    let statuses: Vec<&str> = keys.iter().map(|key| key.status.as_str()).collect();
    ensure!(statuses == ["revoked", "active"], "{statuses:?}");
    server.shutdown().await?;

    // Once more, so that an auditor goes two steps.
    node.rotate(OwnKey::Log, false).await?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    around(&client, &id).await?;
    let twice = node.export(&client, &id, "twice.zip").await?;
    nothing_found(&client).await?;
    for key in [&old, &new, &client.log_key().await?] {
        both_say(&twice, key, true)?;
    }
    server.shutdown().await?;
    node.place.remove().await
}

/// A witness that knows the old key needs the new one beside it, and its memory goes on.
async fn a_witness_goes_on_with_both_keys(kind: Kind) -> anyhow::Result<()> {
    let node = Node::new(kind).await?;
    let server = node.start().await?;
    let old = node.client(&server)?.log_key().await?;
    server.shutdown().await?;
    let cosigned = async |witness: &RunningWitness| -> anyhow::Result<bool> {
        let options = ServeOptions { witnesses: vec![witness.url()], ..node.options(&node.data()) };
        let server = serve::start(options).await?;
        let client = node.client(&server)?;
        let id = begun(&client).await?;
        node.export(&client, &id, "witnessed.zip").await?;
        let checkpoint = client.checkpoint().await?;
        server.shutdown().await?;
        Ok(checkpoint.contains("witness.example"))
    };
    let witness = node.witness(&[&old]).await?;
    ensure!(cosigned(&witness).await?, "before the rotation");
    let new = node.rotate(OwnKey::Log, false).await?.verifier_key.context("a key")?;
    ensure!(!cosigned(&witness).await?, "it does not know the new key");
    witness.shutdown().await?;
    let witness = node.witness(&[&old, &new]).await?;
    ensure!(cosigned(&witness).await?, "it knows both");
    witness.shutdown().await?;
    node.place.remove().await
}

/// The store says that the new key is in force, and the files were not changed any more.
async fn a_rotation_that_was_cut_off_is_finished_by_the_next_start(kind: Kind) -> anyhow::Result<()> {
    let node = Node::new(kind).await?;
    let server = node.start().await?;
    let id = begun(&node.client(&server)?).await?;
    server.shutdown().await?;
    for (which, name) in [(OwnKey::Application, "application.key"), (OwnKey::Log, "log.key")] {
        let file = node.data().join(name);
        let next = node.data().join(format!("{name}.next"));
        let old = std::fs::read(&file)?;
        node.rotate(which, false).await?;
        std::fs::rename(&file, &next)?;
        std::fs::write(&file, old)?;
        let server = node.start().await?;
        ensure!(!next.exists(), "{name} is the new one");
        let client = node.client(&server)?;
        around(&client, &id).await?;
        nothing_found(&client).await?;
        server.shutdown().await?;
    }
    node.place.remove().await
}

async fn a_lost_key_is_replaced_and_the_record_says_so(kind: Kind) -> anyhow::Result<()> {
    let node = Node::new(kind).await?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    let (id, old) = (begun(&client).await?, client.log_key().await?);
    server.shutdown().await?;
    let told = format!("{:#}", node.rotate(OwnKey::Application, true).await.expect_err("it is there"));
    ensure!(told.contains("is here and in force"), "{told}");
    for name in ["application.key", "log.key"] {
        std::fs::remove_file(node.data().join(name))?;
    }
    ensure!(node.start().await.is_err(), "no key appears by itself");
    node.rotate(OwnKey::Application, true).await?;
    let told = format!("{:#}", node.rotate(OwnKey::Log, false).await.expect_err("the old key is gone"));
    ensure!(told.contains("rotate log --lost"), "{told}");
    node.rotate(OwnKey::Log, true).await?;

    let server = node.start().await?;
    let client = node.client(&server)?;
    around(&client, &id).await?;
    nothing_found(&client).await?;
    let query = wire::RecordQuery { action_ref: Some("key_revoked".into()), ..Default::default() };
    let ended = client.records(&query).await?.json;
    let reasons: Vec<&Value> =
        ended["items"].as_array().context("records")?.iter().map(|r| &r["payload"]["reason"]).collect();
    ensure!(reasons == ["the private key was lost", "the private key was lost"], "{ended}");
    let bundle = node.export(&client, &id, "lost.zip").await?;
    // Nobody signed for the new key who trusted the old one: auditors need it from the organisation.
    both_say(&bundle, &old, false)?;
    let new = client.log_key().await?;
    both_say(&bundle, &new, true)?;
    let noted = judged(&bundle, &new)?.notes.iter().any(|note| note.code == "log-key-lost");
    ensure!(noted, "a note says that the log's key was lost");
    server.shutdown().await?;
    node.place.remove().await
}

on_both! {
    evidence_over_a_rotated_log_verifies_with_either_key,
    a_witness_goes_on_with_both_keys,
    a_rotation_that_was_cut_off_is_finished_by_the_next_start,
    a_lost_key_is_replaced_and_the_record_says_so,
}

/// Where nodes share a store, one may rotate while another runs: the other signs nothing with the key that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_key_has_ended_signs_nothing_more() -> anyhow::Result<()> {
    let node = Node::new(Kind::Postgres).await?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    let id = begun(&client).await?;
    let other = node.directory.path().join("other");
    std::fs::create_dir(&other)?;
    std::fs::copy(node.data().join("application.key"), other.join("application.key"))?;
    node.rotate_at(&other, OwnKey::Application, false).await?;
    // The gate that becomes moot would be told in the engine's name.
    client.open_gate(&id, &wire::OpenGate { action: "sign".into(), reason: None, request: None }).await?;
    let fire = wire::FireTransition { action: "go".into(), reason: None };
    let told = client.fire(&id, &fire).await.expect_err("its key has ended").to_string();
    ensure!(told.contains("application.key"), "{told}");
    server.shutdown().await?;
    ensure!(node.start().await.is_err(), "it does not start with the old key");
    std::fs::copy(other.join("application.key"), node.data().join("application.key"))?;
    let server = node.start().await?;
    let client = node.client(&server)?;
    client.fire(&id, &fire).await?;
    nothing_found(&client).await?;
    server.shutdown().await?;
    node.place.remove().await
}
