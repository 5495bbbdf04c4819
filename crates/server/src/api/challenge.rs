//! Challenges for passkeys. They are not stored: a challenge carries its end and a code that only the nodes of this store can
//! make, bound to what it is for. So asking for one writes nothing, and any node accepts what another gave out.

use super::{App, Problem};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use countersign_kernel::Time;
use countersign_kernel::refusal::Code;
use countersign_ledger::sha256;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How long a person may take to answer.
pub const LASTS_US: i64 = 5 * 60 * 1_000_000;
const RANDOM_BYTES: usize = 16;
const HEAD_BYTES: usize = RANDOM_BYTES + 8;
const KEY_NAME: &[u8] = b"countersign: challenges for passkeys";

/// What the answer to a challenge is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    SignIn,
    /// A new passkey of this actor.
    Register(&'a str),
}

/// A fresh challenge, as WebAuthn writes it.
pub fn make(app: &App, purpose: Purpose<'_>) -> Result<String, Problem> {
    let mut head = [0; HEAD_BYTES];
    let (random, end) = head.split_at_mut(RANDOM_BYTES);
    getrandom::fill(random).map_err(|error| {
        tracing::error!(%error, "no randomness");
        Problem::new(Code::RecordingFailure, "the system gives no randomness; nothing was written")
    })?;
    end.copy_from_slice(&app.engine()?.now().0.saturating_add(LASTS_US).to_be_bytes());
    let code = code(app, purpose, &head)?.finalize().into_bytes();
    Ok(BASE64_URL_SAFE_NO_PAD.encode([&head[..], &code].concat()))
}

/// When it ends, where it is one that was given out for this and has not ended.
pub fn check(app: &App, purpose: Purpose<'_>, challenge: &[u8]) -> Result<Time, Problem> {
    let refuse = || {
        Problem::new(Code::InvalidCredential, "the challenge was not given out for this, or is too old").at("challenge")
    };
    let (head, given) = challenge.split_at_checked(HEAD_BYTES).ok_or_else(refuse)?;
    code(app, purpose, head)?.verify_slice(given).map_err(|_| refuse())?;
    let end = head.last_chunk::<8>().map(|bytes| Time(i64::from_be_bytes(*bytes))).ok_or_else(refuse)?;
    if app.engine()?.now() < end { Ok(end) } else { Err(refuse()) }
}

fn code(app: &App, purpose: Purpose<'_>, head: &[u8]) -> Result<Hmac<Sha256>, Problem> {
    let engine = app.engine()?;
    // All nodes of a store have this key; what is derived from it signs nothing.
    let signer = engine.config().application_key.as_ref().ok_or_else(Problem::internal)?;
    let key = sha256(&[&signer.sign(KEY_NAME)]);
    let mut code = Hmac::<Sha256>::new_from_slice(&key.0).map_err(|_| Problem::internal())?;
    match purpose {
        Purpose::SignIn => code.update(b"sign in\0"),
        Purpose::Register(actor_ref) => {
            code.update(b"register\0");
            code.update(actor_ref.as_bytes());
            code.update(b"\0");
        }
    }
    code.update(head);
    Ok(code)
}
