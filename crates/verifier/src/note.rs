//! Signed notes: verifier keys, checkpoints and the signatures below them (`spec/checkpoint.md`, sections 3 and 4).

use crate::bytes::{Digest, hex, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use std::fmt;

/// The signature type in a key: what the key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Log = 0x01,
    Witness = 0x04,
}

/// A key that somebody trusts: `<name>+<key id>+<base64(kind ‖ public key)>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    pub name: String,
    pub kind: KeyKind,
    pub public_key: [u8; 32],
    id: [u8; 4],
}

impl VerifierKey {
    pub fn parse(text: &str) -> Result<VerifierKey, String> {
        let text = text.trim();
        let form = "a verifier key is `<name>+<8 hex digits>+<base64>`";
        let (name, rest) = text.split_once('+').ok_or(form)?;
        let (id, encoded) = rest.split_once('+').ok_or(form)?;
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(form.to_owned());
        }
        let bytes = STANDARD.decode(encoded).map_err(|_| "the last part of the verifier key is not base64")?;
        let (kind, public_key) = match bytes.split_first() {
            Some((1, key)) => (KeyKind::Log, key),
            Some((4, key)) => (KeyKind::Witness, key),
            _ => return Err("the verifier key is of an unknown kind: 0x01 (log) or 0x04 (witness) is known".to_owned()),
        };
        let public_key: [u8; 32] =
            public_key.try_into().map_err(|_| "the verifier key does not hold 32 bytes of an Ed25519 key")?;
        let computed = key_id(name, kind, &public_key);
        if hex(&computed) != id {
            return Err(format!("the verifier key names the key id {id}, but its id is {}", hex(&computed)));
        }
        Ok(VerifierKey { name: name.to_owned(), kind, public_key, id: computed })
    }

    fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        verifies(&self.public_key, message, signature)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![self.kind as u8];
        bytes.extend(self.public_key);
        write!(f, "{}+{}+{}", self.name, hex(&self.id), STANDARD.encode(bytes))
    }
}

fn key_id(name: &str, kind: KeyKind, public_key: &[u8; 32]) -> [u8; 4] {
    let Digest([a, b, c, d, ..]) = sha256(&[name.as_bytes(), b"\n", &[kind as u8], public_key]);
    [a, b, c, d]
}

/// Ed25519 as RFC 8032 asks for it, weak keys refused.
pub fn verifies(public_key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(public_key) else { return false };
    key.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
}

/// A checkpoint with all the signatures it bears; none of them is checked yet.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Digest,
    /// What is signed: three lines with their line feeds.
    text: String,
    signatures: Vec<SignatureLine>,
}

#[derive(Clone, Debug)]
struct SignatureLine {
    name: String,
    id: [u8; 4],
    bytes: Vec<u8>,
}

impl Checkpoint {
    pub fn parse(bytes: &[u8]) -> Result<Checkpoint, String> {
        let note = std::str::from_utf8(bytes).map_err(|_| "the note is not UTF-8")?;
        Ok(Checkpoint::with_lines::<0>(note)?.0)
    }

    /// A checkpoint whose text has so many lines more, which are signed like the others.
    fn with_lines<const MORE: usize>(note: &str) -> Result<(Checkpoint, [&str; MORE]), String> {
        let (text, signatures) = note.split_once("\n\n").ok_or("the note has no empty line before its signatures")?;
        let lines: Vec<&str> = text.split('\n').collect();
        let wrong = || format!("the note's text has {} lines, not {}", lines.len(), 3 + MORE);
        let (Some([origin, size, root]), Some(more)) = (lines.first_chunk::<3>(), lines.get(3..)) else {
            return Err(wrong());
        };
        let more = <[&str; MORE]>::try_from(more).map_err(|_| wrong())?;
        if origin.is_empty() {
            return Err("the note names no origin".to_owned());
        }
        let body = signatures.strip_suffix('\n').ok_or("the note does not end with a line feed")?;
        let checkpoint = Checkpoint {
            origin: (*origin).to_owned(),
            size: decimal(size).ok_or("the size is not a decimal number without leading zeros")?,
            root: decode_root(root).ok_or("the root is not the base64 of 32 bytes")?,
            text: format!("{text}\n"),
            signatures: body.split('\n').map(SignatureLine::parse).collect::<Result<_, _>>()?,
        };
        Ok((checkpoint, more))
    }

    /// The root as the note writes it.
    pub fn root_text(&self) -> String {
        STANDARD.encode(self.root.0)
    }

    /// Whether the log key signed it. The key's name is the origin.
    pub fn signed_by(&self, key: &VerifierKey) -> bool {
        key.kind == KeyKind::Log
            && key.name == self.origin
            && self.lines_of(key).any(|line| {
                <&[u8; 64]>::try_from(line.bytes.as_slice()).is_ok_and(|s| key.verifies(self.text.as_bytes(), s))
            })
    }

    /// When the witness cosigned it, in seconds; None where it did not.
    pub fn cosigned_by(&self, key: &VerifierKey) -> Option<u64> {
        if key.kind != KeyKind::Witness {
            return None;
        }
        self.lines_of(key).find_map(|line| {
            let (timestamp, signature) = line.bytes.split_first_chunk::<8>()?;
            let timestamp = u64::from_be_bytes(*timestamp);
            let message = format!("cosignature/v1\ntime {timestamp}\n{}", self.text);
            let signature = <&[u8; 64]>::try_from(signature).ok()?;
            key.verifies(message.as_bytes(), signature).then_some(timestamp)
        })
    }

    fn lines_of<'c>(&'c self, key: &'c VerifierKey) -> impl Iterator<Item = &'c SignatureLine> {
        self.signatures.iter().filter(|line| line.name == key.name && line.id == key.id)
    }

    /// Names under which it is signed, for a message.
    pub fn signers(&self) -> Vec<String> {
        self.signatures.iter().map(|line| format!("{} ({})", line.name, hex(&line.id))).collect()
    }
}

/// One log key took over from another: a checkpoint with two lines more, signed by the new key and, unless it was lost, by
/// the old one.
#[derive(Clone, Debug)]
pub struct Rotation {
    pub checkpoint: Checkpoint,
    pub from: VerifierKey,
    pub to: VerifierKey,
}

impl Rotation {
    /// Reads a note and checks the signatures that it bears.
    pub fn parse(note: &str) -> Result<Rotation, String> {
        let (checkpoint, [from, to]) = Checkpoint::with_lines::<2>(note)?;
        let key = |line: &str, word: &str| {
            let text = line.strip_prefix(word).ok_or_else(|| format!("a line does not begin with `{word}`"))?;
            let key = VerifierKey::parse(text)?;
            let exact = key.kind == KeyKind::Log && key.name == checkpoint.origin && key.to_string() == text;
            if exact { Ok(key) } else { Err(format!("`{text}` is no key of this log")) }
        };
        let (from, to) = (key(from, "rotated-from ")?, key(to, "rotated-to ")?);
        let rotation = Rotation { checkpoint, from, to };
        if !rotation.checkpoint.signed_by(&rotation.to) {
            return Err("the new key has not signed the note of the rotation".to_owned());
        }
        let bears_old = rotation.checkpoint.lines_of(&rotation.from).next().is_some();
        if bears_old && !rotation.signed_by_old() {
            return Err("the old key's signature does not fit the note of the rotation".to_owned());
        }
        Ok(rotation)
    }

    pub fn signed_by_old(&self) -> bool {
        self.checkpoint.signed_by(&self.from)
    }
}

impl SignatureLine {
    fn parse(line: &str) -> Result<SignatureLine, String> {
        let form = "a signature line is not `— <name> <base64>`";
        let (name, encoded) = line.strip_prefix("\u{2014} ").and_then(|rest| rest.split_once(' ')).ok_or(form)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| form)?;
        let (id, signature) = bytes.split_first_chunk::<4>().ok_or(form)?;
        if name.is_empty() || signature.is_empty() {
            return Err(form.to_owned());
        }
        Ok(SignatureLine { name: name.to_owned(), id: *id, bytes: signature.to_vec() })
    }
}

fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn decode_root(text: &str) -> Option<Digest> {
    STANDARD.decode(text).ok()?.try_into().ok().map(Digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer, SigningKey};

    fn key(name: &str, kind: KeyKind, seed: u8) -> (SigningKey, VerifierKey) {
        let signing = SigningKey::from_bytes(&[seed; 32]);
        let public_key = signing.verifying_key().to_bytes();
        (signing, VerifierKey { name: name.to_owned(), kind, public_key, id: key_id(name, kind, &public_key) })
    }

    fn line(key: &VerifierKey, bytes: &[u8]) -> String {
        let mut all = key.id.to_vec();
        all.extend(bytes);
        format!("\u{2014} {} {}\n", key.name, STANDARD.encode(all))
    }

    #[test]
    fn a_verifier_key_is_read_back_as_it_was_written() {
        let (_, vkey) = key("countersign/0011223344556677", KeyKind::Log, 1);
        assert_eq!(VerifierKey::parse(&vkey.to_string()), Ok(vkey.clone()));
        let other = vkey.to_string().replace("countersign/00", "countersign/01");
        assert!(VerifierKey::parse(&other).is_err(), "the id belongs to the name");
        for wrong in ["", "a", "a+b", "a+00000000+AA==", "a b+00000000+AA=="] {
            assert!(VerifierKey::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn signatures_and_cosignatures_count_only_for_their_own_text_and_key() {
        let text = format!("log\n7\n{}\n", STANDARD.encode([9; 32]));
        let (log, log_key) = key("log", KeyKind::Log, 1);
        let (witness, witness_key) = key("w", KeyKind::Witness, 2);
        let mut cosignature = 1_700_000_000_u64.to_be_bytes().to_vec();
        let message = format!("cosignature/v1\ntime 1700000000\n{text}");
        cosignature.extend(witness.sign(message.as_bytes()).to_bytes());
        let note = format!(
            "{text}\n{}{}",
            line(&log_key, &log.sign(text.as_bytes()).to_bytes()),
            line(&witness_key, &cosignature)
        );
        let checkpoint = Checkpoint::parse(note.as_bytes()).expect("a note");
        assert_eq!((checkpoint.size, checkpoint.root), (7, Digest([9; 32])));
        assert!(checkpoint.signed_by(&log_key));
        assert!(!checkpoint.signed_by(&key("log", KeyKind::Log, 3).1));
        assert_eq!(checkpoint.cosigned_by(&witness_key), Some(1_700_000_000));
        assert_eq!(checkpoint.cosigned_by(&log_key), None);
        let changed = Checkpoint::parse(note.replacen("\n7\n", "\n8\n", 1).as_bytes()).expect("a note");
        assert!(!changed.signed_by(&log_key) && changed.cosigned_by(&witness_key).is_none());
        for wrong in ["", "log\n7\n", "log\n07\nAA==\n\n", &note.replacen("\n7\n", "\n7\nmore\n", 1), note.trim_end()] {
            assert!(Checkpoint::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
