//! A witness: somebody else's small program that remembers how far it has seen a log, and cosigns a checkpoint only when
//! it is shown that the log it knows is its beginning (`spec/checkpoint.md`, section 4). It keeps one key and one state
//! file, and trusts the log for nothing.

mod state;

use crate::{keys, listen};
use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_kernel::Digest;
use countersign_ledger::merkle::{empty_root, verify_consistency};
use countersign_ledger::note::{Checkpoint, NoteSigner, Verifier, split_note};
use state::{Seen, StateFile};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const KEY_FILE: &str = "witness.key";
const STATE_FILE: &str = "witness.json";
/// Far more than a proof and a note can be.
const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_PROOF: usize = 63;

pub struct WitnessOptions {
    pub data_dir: PathBuf,
    pub listen: String,
    /// The name under which it cosigns; without one it is made from the key.
    pub name: Option<String>,
    /// The verifier keys of the logs it watches.
    pub logs: Vec<String>,
}

/// What a witness says to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The cosignature line.
    Cosigned(String),
    Malformed(&'static str),
    /// No signature of a key that was given for this origin.
    NotSigned,
    UnknownOrigin,
    /// The size that the witness has.
    OtherSize(u64),
    BadProof,
}

pub struct Witness {
    signer: NoteSigner,
    logs: BTreeMap<String, Vec<Verifier>>,
    /// Held while a checkpoint is judged, written and cosigned: two requests cannot both extend one state.
    state: Mutex<StateFile>,
}

impl Witness {
    pub fn open(options: &WitnessOptions) -> anyhow::Result<Witness> {
        crate::serve::make_data_dir(&options.data_dir)?;
        let seed = keys::load_or_make(&options.data_dir.join(KEY_FILE))?;
        let mut state = StateFile::load(&options.data_dir.join(STATE_FILE))?;
        let name = state.settle_name(options.name.as_deref(), &seed)?;
        let mut logs: BTreeMap<String, Vec<Verifier>> = BTreeMap::new();
        for text in &options.logs {
            let key = Verifier::parse(text).with_context(|| format!("`{text}` is no verifier key of a log"))?;
            logs.entry(key.name.clone()).or_default().push(key);
        }
        anyhow::ensure!(!logs.is_empty(), "a witness needs the verifier key of at least one log: --log KEY");
        let signer = NoteSigner::witness(&name, &seed)?;
        Ok(Witness { signer, logs, state: Mutex::new(state) })
    }

    /// The key by which its cosignatures are verified.
    pub fn verifier(&self) -> Verifier {
        self.signer.verifier()
    }

    /// Judges a request and, if it holds, remembers the checkpoint before it answers.
    pub fn add_checkpoint(&self, body: &str, now_s: u64) -> anyhow::Result<Reply> {
        let Ok(Request { old, proof, note }) = Request::parse(body) else {
            return Ok(Reply::Malformed(
                "the body is `old SIZE`, the hashes of the proof, an empty line, and the note",
            ));
        };
        let Ok((text, _)) = split_note(note) else { return Ok(Reply::Malformed("the note is not in its form")) };
        let Ok(checkpoint) = Checkpoint::parse(text) else { return Ok(Reply::Malformed("this is no checkpoint")) };
        let Some(keys) = self.logs.get(&checkpoint.origin) else { return Ok(Reply::UnknownOrigin) };
        if !keys.iter().any(|key| key.open(note).is_ok()) {
            return Ok(Reply::NotSigned);
        }
        if old > checkpoint.size {
            return Ok(Reply::Malformed("`old` is above the checkpoint's size"));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = state.seen(&checkpoint.origin).unwrap_or(Seen { size: 0, root: empty_root() });
        if seen.size != old {
            return Ok(Reply::OtherSize(seen.size));
        }
        if seen.size == checkpoint.size && seen.root != checkpoint.root {
            tracing::error!(origin = checkpoint.origin, size = seen.size, "a fork: another root for the same size");
            return Ok(Reply::OtherSize(seen.size));
        }
        if !verify_consistency(old, checkpoint.size, &seen.root, &checkpoint.root, &proof) {
            tracing::error!(
                origin = checkpoint.origin,
                old,
                new = checkpoint.size,
                "the consistency proof does not hold"
            );
            return Ok(Reply::BadProof);
        }
        state.remember(&checkpoint.origin, Seen { size: checkpoint.size, root: checkpoint.root })?;
        Ok(Reply::Cosigned(self.signer.sign(text, now_s)))
    }
}

struct Request<'b> {
    old: u64,
    proof: Vec<Digest>,
    note: &'b str,
}

impl<'b> Request<'b> {
    fn parse(body: &'b str) -> Result<Self, ()> {
        let (head, note) = body.split_once("\n\n").ok_or(())?;
        let mut lines = head.split('\n');
        let old = lines.next().and_then(|line| line.strip_prefix("old ")).ok_or(())?;
        let canonical = old == "0" || (!old.starts_with('0') && old.bytes().all(|b| b.is_ascii_digit()));
        let old = old.parse().ok().filter(|_| canonical).ok_or(())?;
        let hash = |line: &str| {
            let bytes: Option<[u8; 32]> = BASE64_STANDARD.decode(line).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.map(Digest)
        };
        let proof: Vec<Digest> = lines.map(hash).collect::<Option<_>>().ok_or(())?;
        if proof.len() > MAX_PROOF { Err(()) } else { Ok(Request { old, proof, note }) }
    }
}

/// A witness in this process. Dropping it stops it.
pub struct RunningWitness {
    pub addr: SocketAddr,
    pub verifier: Verifier,
    stop: watch::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl RunningWitness {
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub async fn shutdown(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(self.server.await??)
    }
}

pub async fn start(options: &WitnessOptions) -> anyhow::Result<RunningWitness> {
    let witness = Arc::new(Witness::open(options)?);
    let listener =
        TcpListener::bind(&options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
    let (addr, verifier) = (listener.local_addr()?, witness.verifier());
    let router = Router::new()
        .route("/add-checkpoint", post(add_checkpoint))
        .route("/", get(about))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(witness);
    let (stop, mut stopped) = watch::channel(());
    let signal = async move {
        let _ = stopped.changed().await;
    };
    let server = tokio::spawn(listen::serve(listener, router, listen::Limits::default().within_files(), None, signal));
    Ok(RunningWitness { addr, verifier, stop, server })
}

async fn about(State(witness): State<Arc<Witness>>) -> String {
    format!("{}\n", witness.verifier())
}

async fn add_checkpoint(State(witness): State<Arc<Witness>>, body: String) -> Response {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let judged = tokio::task::spawn_blocking(move || witness.add_checkpoint(&body, now_s)).await;
    let reply = match judged.map_err(anyhow::Error::from).and_then(|reply| reply) {
        Ok(reply) => reply,
        Err(error) => {
            tracing::error!(%error, "the state could not be kept; nothing was cosigned");
            return (StatusCode::INTERNAL_SERVER_ERROR, "the state could not be kept; nothing was cosigned\n")
                .into_response();
        }
    };
    match reply {
        Reply::Cosigned(line) => line.into_response(),
        Reply::Malformed(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        Reply::NotSigned => (StatusCode::FORBIDDEN, "not signed by a key of this log\n").into_response(),
        Reply::UnknownOrigin => (StatusCode::NOT_FOUND, "this log is not watched here\n").into_response(),
        Reply::OtherSize(size) => {
            (StatusCode::CONFLICT, [(CONTENT_TYPE, "text/x.tlog.size")], format!("{size}\n")).into_response()
        }
        Reply::BadProof => (StatusCode::UNPROCESSABLE_ENTITY, "the consistency proof does not hold\n").into_response(),
    }
}

#[cfg(test)]
mod tests;
