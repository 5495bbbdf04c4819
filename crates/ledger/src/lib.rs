//! Record bytes and their hashes: `spec/record.md` in code. Bytes in, hashes out; no clock, no
//! randomness, no store. A record's parts are serialised once, here, and from then on only hashed.

pub mod document;
pub mod merkle;
pub mod note;
pub mod record;
pub mod statement;
pub mod tiles;

pub use record::{
    Assurance, Attestation, Content, Draft, Record, RecordError, Retention, ZERO_HASH, check_link, record_hash,
    salted_digest,
};

use countersign_kernel::Digest;
use sha2::{Digest as _, Sha256};

pub fn sha256(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

/// 64 lower-case hex digits, or nothing.
pub fn parse_hex_digest(text: &str) -> Option<Digest> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    let nibble = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut digest = [0u8; 32];
    for (byte, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
    }
    Some(Digest(digest))
}
