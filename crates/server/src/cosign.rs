//! Cosignatures: every new checkpoint is shown to the witnesses, each with a proof that it extends what that witness saw
//! last (`spec/checkpoint.md`, section 4). A witness that does not answer is asked again; nobody waits for it.

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_engine::Engine;
use countersign_engine::port::log::CheckpointRow;
use countersign_ledger::note::{Verifier, split_note};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often a new checkpoint is looked for.
const LOOK: Duration = Duration::from_millis(250);
const ANSWER: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A key, a size, or a few signature lines: far less than this.
const MAX_ANSWER_BYTES: usize = 16 << 10;

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
    // A witness answers itself: it sends us to nobody else.
    let builder = reqwest::Client::builder().timeout(ANSWER).redirect(reqwest::redirect::Policy::none());
    if loopback { builder.no_proxy().build() } else { builder.build() }
}

impl Witness {
    async fn bring_up_to_date(&mut self, engine: &Engine) -> anyhow::Result<()> {
        // Another node shows its own checkpoints.
        let Some(row) = engine.checkpoint().await?.filter(|row| engine.seals() && row.size > self.seen) else {
            return Ok(());
        };
        if self.key.is_none() {
            let text = text_of(self.http.get(&self.url).send().await?.error_for_status()?).await?;
            self.key = Some(Verifier::parse(text.trim()).context("it does not tell its key")?);
        }
        match self.ask(engine, &row).await? {
            Asked::Cosigned(lines) => {
                let key = self.key.as_ref().context("its key is not known")?;
                let line = cosignature(&row.note, &lines, key)?;
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
        let text = text_of(answer).await?;
        match status {
            200 => Ok(Asked::Cosigned(text)),
            409 => Ok(Asked::StandsAt(text.trim().parse().context("it answers a size that is none")?)),
            422 => bail!("it says that this log does not extend what it has seen: a fork, or a tampered log"),
            status => bail!("it answers {status}: {}", text.trim()),
        }
    }
}

enum Asked {
    /// Signature lines, none of them verified.
    Cosigned(String),
    /// It knows the log up to here.
    StandsAt(u64),
}

/// What it answers, if that is short: a witness is somebody else's program.
async fn text_of(mut answer: reqwest::Response) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        bytes.extend_from_slice(&piece);
        ensure!(bytes.len() <= MAX_ANSWER_BYTES, "its answer is longer than {MAX_ANSWER_BYTES} bytes");
    }
    String::from_utf8(bytes).context("its answer is no text")
}

/// The line by which this key cosigns the note. It is verified alone, below the text of the note: nothing else that the
/// witness answers, and no signature that the note bears already, has a say in it.
fn cosignature(note: &str, lines: &str, key: &Verifier) -> anyhow::Result<String> {
    let (text, _) = split_note(note)?;
    let fits = |line: &&str| line.starts_with("— ") && key.open(&format!("{text}\n{line}\n")).is_ok();
    let line = lines.lines().find(fits).context("its cosignature does not fit the checkpoint")?;
    Ok(format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::Digest;
    use countersign_ledger::note::{Checkpoint, NoteSigner};

    #[test]
    fn only_a_line_that_cosigns_this_checkpoint_is_taken() {
        let log = NoteSigner::log("log.example", &[1; 32]).expect("a key");
        let witness = NoteSigner::witness("witness.example", &[2; 32]).expect("a key");
        let key = witness.verifier();
        let text = Checkpoint { origin: "log.example".into(), size: 7, root: Digest([7; 32]) }.text();
        let note = format!("{text}\n{}", log.sign(&text, 0));
        let good = witness.sign(&text, 1_700_000_000);
        let other = NoteSigner::witness("other.example", &[3; 32]).expect("a key").sign(&text, 1);
        assert_eq!(cosignature(&note, &good, &key).ok(), Some(good.clone()));
        assert_eq!(
            cosignature(&note, &format!("{other}{good}"), &key).ok(),
            Some(good.clone()),
            "others may cosign, too"
        );

        // It may sign what it likes with its own key. If that were appended, the log's own signature would be part of the text.
        let moved = format!("{note}\nanother text\n");
        let hijack = format!("\nanother text\n\n{}", witness.sign(&moved, 1));
        assert!(key.open(&format!("{note}{hijack}")).is_ok(), "so it would be taken for a cosignature");
        let earlier = format!("{note}{good}");
        let garbage = good.replace(|c: char| c.is_ascii_lowercase(), "A");
        for (note, lines) in [
            (&note, hijack.as_str()),
            (&note, &other),
            (&note, ""),
            (&note, "— witness.example AAAA\n"),
            // A signature that is there already does not vouch for another one.
            (&earlier, &garbage),
        ] {
            assert!(cosignature(note, lines, &key).is_err(), "{lines}");
        }
    }
}
