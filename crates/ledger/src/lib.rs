//! Record bytes and their hashes: `spec/record.md` in code. Bytes in, hashes out; no clock, no
//! randomness, no store. A record's parts are serialised once, here, and from then on only hashed.

pub mod document;
mod header_scan;
pub mod merkle;
pub mod note;
pub mod passkey;
pub mod record;
pub mod statement;
pub mod tiles;

pub use record::{
    Assurance, Attestation, Content, Draft, Record, RecordError, Retention, ZERO_HASH, check_link, record_hash,
    salted_digest,
};

use countersign_kernel::Digest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A value that cannot be written as JSON. Nothing in its place is hashed or signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be written as JSON, so nothing was hashed or signed: {0}")]
pub struct Unwritable(String);

/// The bytes that are hashed or signed.
fn written<T: Serialize>(value: &T) -> Result<Vec<u8>, Unwritable> {
    serde_json::to_vec(value).map_err(|error| Unwritable(error.to_string()))
}

pub fn sha256(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

/// SHA-256 of what comes piece by piece.
#[derive(Clone, Default)]
pub struct Hashing(Sha256);

impl Hashing {
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Whether the text is this digest, in 64 lower-case hex digits. Says what comparing with [`parse_hex_digest`] would, and
/// is much faster: a digest that is known has one way to be written.
pub fn is_hex_digest(text: &str, digest: &Digest) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0u8; 64];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest.0) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text.as_bytes() == hex
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that is no text cannot be a member's name.
    #[test]
    fn what_cannot_be_written_is_not_hashed_as_nothing() {
        let unwritable = std::collections::BTreeMap::from([((1, 2), "a")]);
        let refused = written(&unwritable).expect_err("no JSON");
        assert!(refused.to_string().contains("nothing was hashed or signed"), "{refused}");
        assert_eq!(written(&[1, 2]), Ok(b"[1,2]".to_vec()));
    }

    #[test]
    fn a_digest_has_one_way_to_be_written() {
        let digest = sha256(&[b"x"]);
        let text = digest.to_string();
        assert!(is_hex_digest(&text, &digest));
        assert_eq!(parse_hex_digest(&text), Some(digest));
        for other in
            [text.to_uppercase(), text[1..].to_owned(), format!("{text}0"), text.replace('2', "3"), String::new()]
        {
            assert!(!is_hex_digest(&other, &digest), "{other}");
            assert_ne!(parse_hex_digest(&other), Some(digest), "{other}");
        }
    }
}
