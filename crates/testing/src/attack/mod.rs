//! The attacks of `spec/vectors` on a live store. `tamper.py` breaks a bundle of a whole store in every way that it
//! knows. Each broken bundle is written into a copy of that store, as an attacker with SQL and the log's key would do
//! it, and the server must find it. [`NOT_APPLICABLE`] lists the attacks that concern only the packaging of a bundle,
//! each with its reason.

mod bundle;
mod import;

use crate::place::Place;
use crate::workspace;
use anyhow::{Context, bail, ensure};
use bundle::Bundle;
use countersign_client::{Client, wire};
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, ServeOptions};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const FILES: &str = "how a bundle is divided into files and lines; a store has tables";
const TYPES: &str = "a column has a type: the database does not take it";
const WITNESSES: &str =
    "another history that is right in itself: only a witness shows it, and the auditor names the witnesses";
const TAIL: &str =
    "the end of a bundle, which an export records; a store that ends earlier is another history, see above";

/// Attacks that no store can suffer.
pub const NOT_APPLICABLE: &[(&str, &str)] = &[
    ("file-missing", FILES),
    ("file-added", FILES),
    ("line-not-json", FILES),
    ("bytes-not-utf-8", FILES),
    ("lines-reordered", FILES),
    ("lines-in-the-order-of-the-log", FILES),
    ("registry-lines-last", FILES),
    ("instances-in-another-order", FILES),
    ("manifest-size-edited", FILES),
    ("window-widened", FILES),
    ("duplicate-key-in-stores", FILES),
    ("proof-edited", "a store holds no proofs: it computes them from its tree"),
    ("proof-too-long", "a store holds no proofs: it computes them from its tree"),
    ("store-assignee-not-text", TYPES),
    ("store-guard-not-boolean", TYPES),
    ("log-forked", WITNESSES),
    ("tail-cut-seen-by-witnesses", WITNESSES),
    ("cosignature-dropped", WITNESSES),
    ("cosignature-moved", WITNESSES),
    ("tail-cut-with-export", TAIL),
];

/// The store that is attacked, at rest, and the server's files that go with it.
pub struct Target<'t> {
    pub place: &'t Place,
    pub data_dir: &'t Path,
    pub config: Option<&'t Path>,
    /// A bundle of everything in the store.
    pub bundle: &'t Path,
    /// For `tamper.py`.
    pub keys: &'t Path,
    /// Every how manieth attack is tried: 1 for all.
    pub every: usize,
}

const ELSEWHERE: &str = "a column of processes: it is tried on the store of processes";

/// Attacks that a store of runs cannot suffer.
pub const NOT_FOR_RUNS: &[(&str, &str)] = &[
    ("run-store-input-digest", "no column holds it: it is computed from the input"),
    ("store-current-state", ELSEWHERE),
    ("store-line-added", ELSEWHERE),
    (
        "document-missing",
        "the gate_spec of a run is made from its definition: its row is attacked on the store of processes",
    ),
];

/// Names of the attacks that are tried, separated by commas; all where it is not set. For a quick look at one of them.
pub const ONLY: &str = "COUNTERSIGN_TEST_ATTACKS";

/// Attacks at a time.
const LANES: usize = 3;

/// Python with the signature package; `scripts/venv.sh` makes it where it is missing. Without it nothing is checked, so that is
/// an error.
pub fn python() -> anyhow::Result<PathBuf> {
    static MADE: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
        let venv = target.join("vectors/venv");
        let mut script = Command::new(workspace().join("scripts/venv.sh"));
        let made = script.arg(&venv).arg("spec/requirements.txt").output().map_err(|error| error.to_string())?;
        if made.status.success() {
            return Ok(venv.join("bin/python"));
        }
        Err(String::from_utf8_lossy(&made.stderr).trim().to_owned())
    });
    MADE.clone().map_err(|why| anyhow::anyhow!("the second verifier needs Python with spec/requirements.txt: {why}"))
}

/// Carries out every attack and returns the names of those that were found, `NAME.FORM`. Fails at the first that was not.
pub async fn all_are_found(target: &Target<'_>, python: &Path) -> anyhow::Result<BTreeSet<String>> {
    let honest = Bundle::read(target.bundle)?;
    ensure!(honest.is_whole(), "the bundle does not hold the whole log");
    let broken = tempfile::tempdir()?;
    let run = Command::new(python)
        .arg(workspace().join("spec/vectors/tamper.py"))
        .args([target.bundle, target.keys, broken.path()])
        .output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let expected: Value = serde_json::from_slice(&std::fs::read(broken.path().join("expected.json"))?)?;
    let cases: Vec<Value> =
        expected["cases"].as_array().context("cases")?.iter().step_by(target.every).cloned().collect();
    let lane = |number: usize| tried(target, &honest, broken.path(), cases.iter().skip(number).step_by(LANES));
    let lanes = tokio::join!(lane(0), lane(1), lane(2));
    let (mut found, mut problems) = (BTreeSet::new(), vec![]);
    for lane in [lanes.0?, lanes.1?, lanes.2?] {
        found.extend(lane.0);
        problems.extend(lane.1);
    }
    if !problems.is_empty() {
        bail!(
            "{} of {} attacks were not found:\n{}",
            problems.len(),
            problems.len() + found.len(),
            problems.join("\n")
        );
    }
    Ok(found)
}

/// The names of the attacks that were found, and what is to be said of the others.
async fn tried(
    target: &Target<'_>,
    honest: &Bundle,
    broken: &Path,
    cases: impl Iterator<Item = &Value>,
) -> anyhow::Result<(BTreeSet<String>, Vec<String>)> {
    let (mut found, mut problems) = (BTreeSet::new(), vec![]);
    let only = std::env::var(ONLY).ok();
    for case in cases {
        let text = |name: &str| case[name].as_str().unwrap_or_default();
        let name = format!("{}.{}", text("name"), text("form"));
        if NOT_APPLICABLE.iter().any(|(known, _)| *known == text("name")) {
            continue;
        }
        // Only the store of runs is kept without a configuration.
        if target.config.is_none() && NOT_FOR_RUNS.iter().any(|(known, _)| *known == text("name")) {
            continue;
        }
        if only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == text("name"))) {
            continue;
        }
        let attacked = Bundle::read(&broken.join(text("file"))).with_context(|| name.clone())?;
        let wanted: Vec<&str> = case["expected"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match attack(target, honest, &attacked, text("form")).await.with_context(|| name.clone())? {
            Some(codes) if !is_found(&codes, &wanted) => problems.push(format!("{name}: {codes:?}, not {wanted:?}")),
            _ => drop(found.insert(name)),
        }
    }
    Ok((found, problems))
}

/// One of the codes, or any where the code speaks of a bundle's form or of a number that a column does not hold. Whoever signs
/// with a key of their own is not known to the server by any other.
fn is_found(codes: &BTreeSet<String>, wanted: &[&str]) -> bool {
    let any = ["bundle-form", "number-out-of-range", "tail-missing"];
    let other_key = wanted.contains(&"checkpoint-key-unknown") && codes.contains("checkpoint-invalid");
    codes.iter().any(|code| wanted.contains(&code.as_str()))
        || other_key
        || (!codes.is_empty() && wanted.iter().any(|wanted| any.contains(wanted)))
}

/// The codes that the server finds in the attacked store. `None`: the database refuses such rows, or the server such a store.
async fn attack(
    target: &Target<'_>,
    honest: &Bundle,
    attacked: &Bundle,
    form: &str,
) -> anyhow::Result<Option<BTreeSet<String>>> {
    let place = target.place.copy().await?;
    let sql = import::statements(place.kind, honest, attacked, form == "naive")?;
    match place.sql(&sql).await {
        Err(error) if is_unique_violation(&error) => {
            place.remove().await?;
            return Ok(None);
        }
        imported => imported?,
    }
    let options = ServeOptions {
        listen: "127.0.0.1:0".into(),
        store: Some(place.url.clone()),
        config: target.config.map(Path::to_owned),
        ..ServeOptions::new(target.data_dir)
    };
    let server = match serve::start(options).await {
        // A registry that cannot be read is noticed before anything is served.
        Err(error) if format!("{error:#}").contains("stored data is damaged") => {
            place.remove().await?;
            return Ok(None);
        }
        started => started?,
    };
    let token = std::fs::read_to_string(target.data_dir.join(ADMIN_TOKEN_FILE))?;
    let admin = Client::new(&server.url())?.with_token(token.trim())?;
    let report = admin.verify_log(&wire::VerifyLog::default(), |_| ()).await;
    server.shutdown().await?;
    place.remove().await?;
    Ok(Some(report?.body.findings.into_iter().map(|finding| finding.code).collect()))
}

fn is_unique_violation(error: &anyhow::Error) -> bool {
    let told = format!("{error:#} {error:?}");
    told.contains("UNIQUE constraint") || told.contains("unique constraint") || told.contains("duplicate key value")
}
