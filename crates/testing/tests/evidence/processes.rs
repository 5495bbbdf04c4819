//! The whole way: a regulated server with a witness, people who sign, an export, and auditors who share no code with
//! it. What they accept is what happened; of everything that an attacker can make of it they accept nothing.

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_client::{ActorKey, Client, Signing, wire};
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, Running, ServeOptions};
use countersign_server::witness::{self, RunningWitness, WitnessOptions};
use countersign_testing::attack::{self, Target, python};
use countersign_testing::place::{Kind, Place};
use countersign_testing::workspace;
use countersign_verifier::{Detail, Trust, Verdict, VerifierKey, parse_policy, report, verify};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A server, its witness, and people with keys.
struct Works {
    directory: TempDir,
    server: Running,
    witness: RunningWitness,
    keys: BTreeMap<String, Vec<ActorKey>>,
    tokens: BTreeMap<String, String>,
}

impl Works {
    async fn open(place: &Place) -> anyhow::Result<Works> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        let config = directory.path().join("countersign.toml");
        std::fs::write(&config, "regulated = true\naudit_trail_retention_policy = \"sox_7_year\"\n")?;
        let options = || ServeOptions {
            listen: "127.0.0.1:0".into(),
            store: Some(place.url.clone()),
            config: Some(config.clone()),
            ..ServeOptions::new(&data)
        };
        // The first start makes the log's key, which the witness is given before it sees the log.
        let first = serve::start(options()).await?;
        let token = std::fs::read_to_string(data.join(ADMIN_TOKEN_FILE))?.trim().to_owned();
        let key = Client::new(&first.url())?.with_token(&token)?.log_key().await?;
        first.shutdown().await?;
        let witness = witness::start(&WitnessOptions {
            data_dir: directory.path().join("witness"),
            listen: "127.0.0.1:0".into(),
            name: Some("witness.example".into()),
            logs: vec![key.trim().to_owned()],
        })
        .await?;
        let server = serve::start(ServeOptions { witnesses: vec![witness.url()], ..options() }).await?;
        let tokens = BTreeMap::from([("admin".to_owned(), token)]);
        let mut works = Works { directory, server, witness, keys: BTreeMap::new(), tokens };
        // The first key of an actor is registered with a token; from then on everything is signed.
        let key = ActorKey::generate()?;
        let first = wire::RegisterKey { public_key: key.public_key() };
        works.client("admin")?.register_key("admin", &first).await?;
        works.keys.insert("admin".to_owned(), vec![key]);
        Ok(works)
    }

    fn client(&self, who: &str) -> anyhow::Result<Client> {
        let client = Client::new(&self.server.url())?.with_token(&self.tokens[who])?;
        Ok(match self.keys.get(who).and_then(|keys| keys.last()) {
            Some(key) => client.with_signing(Signing {
                actor_ref: who.to_owned(),
                key: key.clone(),
                meaning: None,
                expected_sequence: None,
            }),
            None => client,
        })
    }

    async fn person(&mut self, who: &str, scopes: &[&str]) -> anyhow::Result<()> {
        let key = ActorKey::generate()?;
        let admin = self.client("admin")?;
        let request = wire::RegisterActor {
            actor_ref: who.to_owned(),
            kind: wire::ActorKind::Human,
            display_name: Some(format!("{who} (QA)")),
            public_key: Some(key.public_key()),
        };
        let made = admin.register_actor(&request).await?.body;
        self.tokens.insert(who.to_owned(), made.token.context("a token")?);
        self.keys.insert(who.to_owned(), vec![key]);
        for scope in scopes {
            let grant = wire::GrantScope { subject_ref: who.to_owned(), action_scope: (*scope).to_owned() };
            admin.grant(&grant).await?;
        }
        Ok(())
    }

    async fn start(&self, who: &str, body: Value) -> anyhow::Result<String> {
        let request: wire::StartProcess = serde_json::from_value(body)?;
        Ok(self.client(who)?.start(&request).await?.body.instance_id)
    }

    async fn open_gate(&self, who: &str, id: &str, action: &str) -> anyhow::Result<()> {
        self.client(who)?.open_gate(id, &wire::OpenGate { action: action.into(), reason: None, request: None }).await?;
        Ok(())
    }

    async fn decide(&self, who: &str, id: &str, action: &str, decision: wire::Decision) -> anyhow::Result<()> {
        let request = wire::DecideGate {
            decision,
            reason: Some(format!("{who} has looked at it")),
            step_id: None,
            request_digest: None,
        };
        self.client(who)?.with_meaning("I have reviewed the records")?.decide_gate(id, action, &request).await?;
        Ok(())
    }

    async fn fire(&self, who: &str, id: &str, action: &str) -> anyhow::Result<()> {
        self.client(who)?.fire(id, &wire::FireTransition { action: action.into(), reason: None }).await?;
        Ok(())
    }

    /// Gives somebody a new key, signed for with the old one, which is then revoked.
    async fn rotate(&mut self, who: &str) -> anyhow::Result<()> {
        let key = ActorKey::generate()?;
        let old = self.keys[who].last().context("a key")?.key_id();
        self.client(who)?.register_key(who, &wire::RegisterKey { public_key: key.public_key() }).await?;
        self.keys.entry(who.to_owned()).or_default().push(key);
        let reason = Some("a new year, a new key".to_owned());
        self.client(who)?.revoke_key(who, &old, &wire::RevokeKey { reason }).await?;
        Ok(())
    }

    async fn export(&self, query: wire::ExportQuery, name: &str) -> anyhow::Result<PathBuf> {
        let mut bundle = Vec::new();
        let take = |piece: &[u8], _| {
            bundle.extend_from_slice(piece);
            Ok(())
        };
        self.client("admin")?.export(&query, take).await?;
        let path = self.directory.path().join(name);
        std::fs::write(&path, bundle)?;
        Ok(path)
    }

    /// What an auditor trusts: the log's key and this witness.
    async fn policy(&self) -> anyhow::Result<String> {
        let log = self.client("admin")?.log_key().await?;
        Ok(format!("log {}\nwitness w {}\nquorum w\n", log.trim(), self.witness.verifier))
    }

    /// All keys, for whoever plays the attacker.
    async fn keyfile(&self) -> anyhow::Result<PathBuf> {
        let seed = |file: &str| -> anyhow::Result<String> {
            let text = std::fs::read_to_string(self.directory.path().join("data").join(file))?;
            hex(&text)
        };
        let vkey = self.client("admin")?.log_key().await?.trim().to_owned();
        let origin = vkey.split('+').next().context("a name")?;
        let mut actors = BTreeMap::new();
        for (who, keys) in &self.keys {
            let seeds: Vec<String> = keys.iter().map(|key| hex(&key.to_base64())).collect::<anyhow::Result<_>>()?;
            actors.insert(who, seeds);
        }
        let keys = json!({
            "vkey": vkey, "log": {"name": origin, "seed": seed("log.key")?},
            "application": {"actor_ref": "countersign", "seed": seed("application.key")?},
            "actors": actors, "policy": self.policy().await?,
        });
        let path = self.directory.path().join("keys.json");
        std::fs::write(&path, keys.to_string())?;
        Ok(path)
    }
}

fn hex(base64: &str) -> anyhow::Result<String> {
    Ok(BASE64_STANDARD.decode(base64.trim())?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A batch that is released, with a detour: another gate is open when the state is left, a decision is refused and asked
/// for again, a quorum decides, keys change on the way, a record is held.
async fn story(works: &mut Works) -> anyhow::Result<String> {
    works.person("starter", &["workflows:start", "workflows:open-gate", "workflows:fire"]).await?;
    for approver in ["qp", "qa", "site", "sponsor"] {
        works.person(approver, &[]).await?;
    }
    let declaration = json!({
        "states": ["draft", "review", "board", "released", "rejected"], "initial_state": "draft",
        "terminal_states": ["released", "rejected"],
        "transitions": [
            {"from": "draft", "action": "submit", "to": "review"},
            {"from": "review", "action": "pass", "to": "board", "guard": "qa"},
            {"from": "review", "action": "reject", "to": "rejected", "guard": "qp"},
            {"from": "board", "action": "back", "to": "review"},
            {"from": "board", "action": "release", "to": "released", "guard": "all"},
        ],
    });
    let gate_spec = json!({
        "qa": {"approver_ref": "qa", "scope": "quality"}, "qp": {"approver_ref": "qp", "scope": "release"},
        "all": {"approvers": ["qp", "site", "sponsor"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "release"},
    });
    let body = json!({"declaration": declaration, "gate_spec": gate_spec, "subject_ref": "BR-2026-0412"});
    let id = works.start("starter", body).await?;
    works.fire("starter", &id, "submit").await?;
    works.open_gate("starter", &id, "pass").await?;
    works.open_gate("starter", &id, "reject").await?;
    works.decide("qa", &id, "pass", wire::Decision::Reject).await?;
    works.open_gate("starter", &id, "pass").await?;
    works.decide("qa", &id, "pass", wire::Decision::Approve).await?;
    works.fire("starter", &id, "pass").await?;
    works.fire("starter", &id, "back").await?;
    works.rotate("qa").await?;
    works.open_gate("starter", &id, "pass").await?;
    works.decide("qa", &id, "pass", wire::Decision::Approve).await?;
    works.fire("starter", &id, "pass").await?;
    works.open_gate("starter", &id, "release").await?;
    works.decide("qp", &id, "release", wire::Decision::Approve).await?;
    works.decide("sponsor", &id, "release", wire::Decision::Approve).await?;
    works.fire("starter", &id, "release").await?;
    let admin = works.client("admin")?;
    let records = admin.records(&wire::RecordQuery { instance_id: Some(id.clone()), ..Default::default() }).await?.body;
    let held = records.items.first().context("a record")?.event_id.clone();
    let hold = wire::PlaceHold { record_ref: held, reason: "litigation".into(), case_ref: Some("C-1".into()) };
    let hold = admin.place_hold(&hold).await?.body.hold_id;
    admin.release_hold(&hold, &wire::ReleaseHold { reason: Some("settled".into()) }).await?;
    Ok(id)
}

fn judged(path: &Path, trust: &Trust) -> anyhow::Result<Verdict> {
    let file = std::fs::File::open(path)?;
    verify(std::io::BufReader::new(file), trust, Detail::Verdict)
        .map_err(|unreadable| anyhow::anyhow!("{}: {}", path.display(), unreadable.0))
}

fn must_pass(path: &Path, trust: &Trust) -> anyhow::Result<()> {
    let verdict = judged(path, trust)?;
    if verdict.passed() {
        return Ok(());
    }
    let circumstances = report::Circumstances { bundle: "the bundle", trust, command: "" };
    bail!("{}", report::text(&verdict, &circumstances, false))
}

fn policy(text: &str) -> anyhow::Result<Trust> {
    parse_policy(text).map_err(|problem| anyhow::anyhow!(problem))
}

async fn exported_evidence_is_proven(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let mut works = Works::open(&place).await?;
    let id = story(&mut works).await?;
    let one = works.export(wire::ExportQuery { instance_id: Some(id), ..Default::default() }, "one.zip").await?;
    let all = works.export(wire::ExportQuery::default(), "all.zip").await?;
    let trust = policy(&works.policy().await?)?;
    must_pass(&one, &trust)?;
    must_pass(&all, &trust)?;
    let keys = works.keyfile().await?;
    let python = python()?;
    auditors_agree(&python, &[&one, &all], &keys, &works)?;
    let Works { directory, server, witness, .. } = works;
    server.shutdown().await?;
    witness.shutdown().await?;
    let (data_dir, config) = (directory.path().join("data"), directory.path().join("countersign.toml"));
    let target =
        Target { place: &place, data_dir: &data_dir, config: Some(&config), bundle: &all, keys: &keys, every: 1 };
    let found = attack::all_are_found(&target, &python).await?;
    eprintln!("{} attacks on the store: all found", found.len());
    let all = std::env::var_os(attack::ONLY).is_none();
    ensure!(!all || found.len() > 120, "only {} attacks were tried on the store", found.len());
    place.remove().await?;
    Ok(())
}

/// The second verifier accepts the same, and both see through every attack of the corpus.
fn auditors_agree(python: &Path, bundles: &[&PathBuf], keys: &Path, works: &Works) -> anyhow::Result<()> {
    let run = |script: &str, args: &[&Path]| -> anyhow::Result<()> {
        let out = Command::new(python).arg(workspace().join("spec").join(script)).args(args).output()?;
        let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success(), "{script}: {told}");
        Ok(())
    };
    let (mut attacked, mut forms) = (0, std::collections::BTreeSet::new());
    for bundle in bundles {
        run("vectors/test_vectors.py", &[Path::new("--bundle"), bundle, Path::new("--keys"), keys])?;
        let out = works.directory.path().join(bundle.file_stem().context("a name")?);
        run("vectors/tamper.py", &[bundle, keys, &out])?;
        let expected: Value = serde_json::from_slice(&std::fs::read(out.join("expected.json"))?)?;
        for case in expected["cases"].as_array().context("cases")? {
            let text = |name: &str| case[name].as_str().map(str::to_owned);
            let mut trust = match text("policy") {
                Some(file) => policy(&std::fs::read_to_string(out.join(file))?)?,
                None => Trust::default(),
            };
            let key = text("key").or(expected["vkey"].as_str().map(str::to_owned)).context("a key")?;
            trust.log_keys.push(VerifierKey::parse(&key).map_err(|problem| anyhow::anyhow!(problem))?);
            let verdict = judged(&out.join(text("file").context("a file")?), &trust)?;
            let found: Vec<&str> =
                verdict.claims.iter().flat_map(|claim| &claim.findings).map(|finding| finding.code.as_str()).collect();
            let wanted: Vec<&str> =
                case["expected"].as_array().context("codes")?.iter().filter_map(Value::as_str).collect();
            ensure!(found.iter().any(|code| wanted.contains(code)), "{}: {found:?}, not {wanted:?}", case["name"]);
            attacked += 1;
            forms.insert((text("name"), text("form")));
        }
    }
    ensure!(attacked > 100, "only {attacked} attacks were tried");
    eprintln!("{attacked} attacks, {} kinds: all found", forms.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() -> anyhow::Result<()> {
    exported_evidence_is_proven(Kind::Sqlite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() -> anyhow::Result<()> {
    exported_evidence_is_proven(Kind::Postgres).await
}
