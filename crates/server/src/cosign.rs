//! Cosignatures: every new checkpoint is shown to the witnesses, each with a proof that it extends what that witness saw
//! last (`spec/checkpoint.md`, section 4). A witness that does not answer is asked again; nobody waits for it.

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_engine::Engine;
use countersign_engine::port::log::CheckpointRow;
use countersign_ledger::note::Verifier;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often a new checkpoint is looked for.
const LOOK: Duration = Duration::from_millis(250);
const ANSWER: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// One task per witness; they end with the engine.
pub fn start(engine: &Arc<Engine>, witnesses: &[String]) -> Vec<JoinHandle<()>> {
    let follow = |url: &String| tokio::spawn(follow(Arc::downgrade(engine), url.trim_end_matches('/').to_owned()));
    witnesses.iter().map(follow).collect()
}

/// What is known of one witness.
struct Witness {
    url: String,
    http: reqwest::Client,
    /// By which its cosignatures are verified before they are kept.
    key: Option<Verifier>,
    /// The size it cosigned last.
    seen: u64,
}

async fn follow(engine: Weak<Engine>, url: String) {
    let Ok(http) = client(&url) else {
        tracing::error!(url, "no HTTP client can be made for this witness");
        return;
    };
    let mut witness = Witness { url, http, key: None, seen: 0 };
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let Some(engine) = engine.upgrade() else { return };
        match witness.bring_up_to_date(&engine).await {
            Ok(()) => {
                pause = LOOK;
                metrics::gauge!("countersign_witness_size", "witness" => witness.url.clone()).set(witness.seen as f64);
            }
            Err(error) => {
                pause = (pause * 2).min(LONGEST_PAUSE);
                let error = format!("{error:#}");
                tracing::warn!(url = witness.url, error, "a witness did not cosign; it is asked again");
                metrics::counter!("countersign_witness_failures_total", "witness" => witness.url.clone()).increment(1);
            }
        }
    }
}

fn client(url: &str) -> reqwest::Result<reqwest::Client> {
    let loopback = url.contains("//127.") || url.contains("//localhost") || url.contains("//[::1]");
    let builder = reqwest::Client::builder().timeout(ANSWER);
    if loopback { builder.no_proxy().build() } else { builder.build() }
}

impl Witness {
    async fn bring_up_to_date(&mut self, engine: &Engine) -> anyhow::Result<()> {
        // Another node shows its own checkpoints.
        let Some(row) = engine.checkpoint().await?.filter(|row| engine.seals() && row.size > self.seen) else {
            return Ok(());
        };
        if self.key.is_none() {
            let text = self.http.get(&self.url).send().await?.error_for_status()?.text().await?;
            self.key = Some(Verifier::parse(text.trim()).context("it does not tell its key")?);
        }
        match self.ask(engine, &row).await? {
            Asked::Cosigned(line) => {
                let key = self.key.as_ref().context("its key is not known")?;
                key.open(&format!("{}{line}", row.note)).context("its cosignature does not fit the checkpoint")?;
                engine.add_cosignature(row.size, &line).await?;
                self.seen = row.size;
            }
            Asked::StandsAt(size) if size > row.size => {
                bail!("it has seen {size} entries, and this log has {}: was it restored from an old copy?", row.size)
            }
            Asked::StandsAt(size) => self.seen = size,
        }
        Ok(())
    }

    async fn ask(&self, engine: &Engine, row: &CheckpointRow) -> anyhow::Result<Asked> {
        let consistency = engine.consistency(self.seen, row.size).await?;
        let proof: String =
            consistency.proof.iter().map(|hash| format!("{}\n", BASE64_STANDARD.encode(hash.0))).collect();
        // The log's own signature is all that a witness needs.
        let body = format!("old {}\n{proof}\n{}", self.seen, row.note);
        let answer = self.http.post(format!("{}/add-checkpoint", self.url)).body(body).send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        match status {
            200 => Ok(Asked::Cosigned(format!("{}\n", text.trim_end()))),
            409 => Ok(Asked::StandsAt(text.trim().parse().context("it answers a size that is none")?)),
            422 => bail!("it says that this log does not extend what it has seen: a fork, or a tampered log"),
            status => bail!("it answers {status}: {}", text.trim()),
        }
    }
}

enum Asked {
    Cosigned(String),
    /// It knows the log up to here.
    StandsAt(u64),
}
