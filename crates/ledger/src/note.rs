//! Signed notes and checkpoints in the form of C2SP (signed-note, tlog-checkpoint, tlog-cosignature). A checkpoint
//! states the size of the log and its root. The log signs it, witnesses cosign it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_kernel::Digest;
use countersign_kernel::text::hex;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// The kind of a signature, as it enters the key's id.
const ED25519: u8 = 0x01;
const COSIGNATURE: u8 = 0x04;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("the note is not in the form of a signed note: {0}")]
    Form(&'static str),
    #[error("the note bears no signature of `{0}`")]
    Unsigned(String),
    #[error("the signature of `{0}` does not fit the note")]
    Signature(String),
    #[error("the key is not readable: {0}")]
    Key(&'static str),
}

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Digest,
}

impl Checkpoint {
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64_STANDARD.encode(self.root.0))
    }

    /// Reads the text above the signatures. Lines after the root are extensions, which we do not use and do not mind.
    pub fn parse(text: &str) -> Result<Checkpoint, NoteError> {
        let mut lines = text.lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(NoteError::Form("a checkpoint has three lines"));
        };
        let canonical = size == "0" || (!size.starts_with('0') && size.bytes().all(|b| b.is_ascii_digit()));
        let size = size.parse().ok().filter(|_| canonical).ok_or(NoteError::Form("the size is no number"))?;
        let root = BASE64_STANDARD.decode(root).ok().and_then(|bytes| bytes.try_into().ok());
        let root = root.map(Digest).ok_or(NoteError::Form("the root is no hash"))?;
        if origin.is_empty() {
            return Err(NoteError::Form("the origin is blank"));
        }
        let checkpoint = Checkpoint { origin: origin.to_owned(), size, root };
        // A carriage return at the end of a line belongs to it: this would be another text with the same meaning.
        if !text.starts_with(&checkpoint.text()) {
            return Err(NoteError::Form("a line ends with something else than a line feed"));
        }
        Ok(checkpoint)
    }
}

/// Another key takes over the log: a checkpoint with two lines more, signed by the old key and by the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub checkpoint: Checkpoint,
    pub from: Verifier,
    pub to: Verifier,
}

const ROTATED_FROM: &str = "rotated-from ";
const ROTATED_TO: &str = "rotated-to ";

impl Rotation {
    pub fn text(&self) -> String {
        format!("{}{ROTATED_FROM}{}\n{ROTATED_TO}{}\n", self.checkpoint.text(), self.from, self.to)
    }

    /// Reads a note that the new key has signed, and says whether the old one has. It has not where it was lost.
    pub fn open(note: &str) -> Result<(Rotation, bool), NoteError> {
        let (text, _) = split_note(note)?;
        let lines: Vec<&str> = text.lines().collect();
        let [_, _, _, from, to] = lines.as_slice() else {
            return Err(NoteError::Form("the note of a rotation has five lines"));
        };
        let key = |line: &str, prefix: &str| {
            let key = line.strip_prefix(prefix).ok_or(NoteError::Form("a line does not name a key"))?;
            Verifier::parse(key)
        };
        let (from, to) = (key(from, ROTATED_FROM)?, key(to, ROTATED_TO)?);
        let rotation = Rotation { checkpoint: Checkpoint::parse(text)?, from, to };
        let named = [&rotation.from, &rotation.to].into_iter().all(|key| key.name == rotation.checkpoint.origin);
        if !named || rotation.text() != text {
            return Err(NoteError::Form("the keys are not those of this log"));
        }
        rotation.to.open(note)?;
        match rotation.from.open(note) {
            Ok(_) => Ok((rotation, true)),
            Err(NoteError::Unsigned(_)) => Ok((rotation, false)),
            Err(error) => Err(error),
        }
    }
}

fn key_id(name: &str, kind: u8, key: &VerifyingKey) -> [u8; 4] {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    hasher.update([b'\n', kind]);
    hasher.update(key.as_bytes());
    let digest: [u8; 32] = hasher.finalize().into();
    [digest[0], digest[1], digest[2], digest[3]]
}

/// A public key with its name: `name+<id in hex>+<base64 of kind and key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    pub name: String,
    kind: u8,
    key: VerifyingKey,
}

/// A private key with the name it signs under.
pub struct NoteSigner {
    name: String,
    kind: u8,
    key: SigningKey,
}

impl NoteSigner {
    /// Signs as the log itself.
    pub fn log(name: &str, seed: &[u8; 32]) -> Result<NoteSigner, NoteError> {
        NoteSigner::new(name, ED25519, seed)
    }

    /// Cosigns as a witness, with the time at which it saw the log.
    pub fn witness(name: &str, seed: &[u8; 32]) -> Result<NoteSigner, NoteError> {
        NoteSigner::new(name, COSIGNATURE, seed)
    }

    fn new(name: &str, kind: u8, seed: &[u8; 32]) -> Result<NoteSigner, NoteError> {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '+') {
            return Err(NoteError::Key("a key's name has neither white space nor `+`"));
        }
        Ok(NoteSigner { name: name.to_owned(), kind, key: SigningKey::from_bytes(seed) })
    }

    pub fn verifier(&self) -> Verifier {
        Verifier { name: self.name.clone(), kind: self.kind, key: self.key.verifying_key() }
    }

    /// A signature line for this text. `time_s` enters a cosignature and nothing else.
    pub fn sign(&self, text: &str, time_s: u64) -> String {
        let mut blob = key_id(&self.name, self.kind, &self.key.verifying_key()).to_vec();
        if self.kind == COSIGNATURE {
            blob.extend_from_slice(&time_s.to_be_bytes());
        }
        let signature: Signature = self.key.sign(message(self.kind, text, time_s).as_bytes());
        blob.extend_from_slice(&signature.to_bytes());
        format!("— {} {}\n", self.name, BASE64_STANDARD.encode(blob))
    }
}

fn message(kind: u8, text: &str, time_s: u64) -> String {
    if kind == COSIGNATURE { format!("cosignature/v1\ntime {time_s}\n{text}") } else { text.to_owned() }
}

impl std::fmt::Display for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = hex(&key_id(&self.name, self.kind, &self.key));
        let mut blob = vec![self.kind];
        blob.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{id}+{}", self.name, BASE64_STANDARD.encode(blob))
    }
}

impl Verifier {
    /// How the registry names this key (`spec/record.md`, 5.2).
    pub fn public_key_id(&self) -> String {
        hex(&Sha256::digest(self.key.as_bytes())[..8])
    }

    pub fn parse(text: &str) -> Result<Verifier, NoteError> {
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(_), Some(blob)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key("it has three parts, joined by `+`"));
        };
        let blob = BASE64_STANDARD.decode(blob).map_err(|_| NoteError::Key("its last part is not base64"))?;
        let (kind, key) = match blob.as_slice() {
            [kind @ (ED25519 | COSIGNATURE), key @ ..] => (*kind, key),
            _ => return Err(NoteError::Key("its kind is not known")),
        };
        let key: [u8; 32] = key.try_into().map_err(|_| NoteError::Key("it is not 32 bytes long"))?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| NoteError::Key("it is no point of the curve"))?;
        let verifier = Verifier { name: name.to_owned(), kind, key };
        if verifier.to_string() == text.trim() { Ok(verifier) } else { Err(NoteError::Key("its id does not fit")) }
    }

    /// The text of a note that this key has signed; for a witness also when (seconds since 1970).
    pub fn open<'n>(&self, note: &'n str) -> Result<(&'n str, Option<u64>), NoteError> {
        let (text, signatures) = split_note(note)?;
        let id = key_id(&self.name, self.kind, &self.key);
        for line in signatures.lines() {
            let Some((name, blob)) = line.strip_prefix("— ").and_then(|rest| rest.rsplit_once(' ')) else {
                return Err(NoteError::Form("a line among the signatures is none"));
            };
            let blob = BASE64_STANDARD.decode(blob).map_err(|_| NoteError::Form("a signature is not base64"))?;
            if name != self.name || !blob.starts_with(&id) {
                continue;
            }
            let bad = || NoteError::Signature(self.name.clone());
            let (time_s, signature) = match (self.kind, &blob[4..]) {
                (COSIGNATURE, rest) if rest.len() == 72 => {
                    let (time, signature) = rest.split_at(8);
                    (Some(u64::from_be_bytes(time.try_into().map_err(|_| bad())?)), signature)
                }
                (ED25519, rest) if rest.len() == 64 => (None, rest),
                _ => return Err(bad()),
            };
            let signature = Signature::from_slice(signature).map_err(|_| bad())?;
            let message = message(self.kind, text, time_s.unwrap_or(0));
            self.key.verify_strict(message.as_bytes(), &signature).map_err(|_| bad())?;
            return Ok((text, time_s));
        }
        Err(NoteError::Unsigned(self.name.clone()))
    }
}

/// The text, with its last line end, and the signature lines below the blank line.
pub fn split_note(note: &str) -> Result<(&str, &str), NoteError> {
    let at = note.rfind("\n\n").ok_or(NoteError::Form("there is no blank line above the signatures"))?;
    let (text, signatures) = (&note[..=at], &note[at + 2..]);
    if signatures.is_empty() || !signatures.ends_with('\n') {
        return Err(NoteError::Form("it does not end with a signature line"));
    }
    Ok((text, signatures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha256;

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "example.org/countersign".into(), size: 42, root: sha256(&[b"root"]) }
    }

    #[test]
    fn a_signed_checkpoint_opens_with_its_key_and_with_no_other() {
        let log = NoteSigner::log("example.org/countersign", &[1; 32]).unwrap();
        let witness = NoteSigner::witness("witness.example", &[2; 32]).unwrap();
        let text = checkpoint().text();
        let note = format!("{text}\n{}{}", log.sign(&text, 0), witness.sign(&text, 1_700_000_000));
        let key = Verifier::parse(&log.verifier().to_string()).unwrap();
        let (opened, time) = key.open(&note).unwrap();
        assert_eq!((Checkpoint::parse(opened).unwrap(), time), (checkpoint(), None));
        assert_eq!(witness.verifier().open(&note).unwrap().1, Some(1_700_000_000));

        let other = NoteSigner::log("example.org/countersign", &[3; 32]).unwrap().verifier();
        assert_eq!(other.open(&note), Err(NoteError::Unsigned("example.org/countersign".into())));
        for edited in
            [note.replace("\n42\n", "\n43\n"), note.replacen("example.org/countersign\n", "example.org/other\n", 1)]
        {
            assert_eq!(key.open(&edited), Err(NoteError::Signature("example.org/countersign".into())));
            assert!(witness.verifier().open(&edited).is_err());
        }
    }

    #[test]
    fn a_rotation_is_signed_by_the_new_key_and_tells_whether_the_old_one_signed() {
        let (old, new, other) =
            (signer("example.org/countersign", 1), signer("example.org/countersign", 2), signer("other", 2));
        let rotation = Rotation { checkpoint: checkpoint(), from: old.verifier(), to: new.verifier() };
        let text = rotation.text();
        let both = format!("{text}\n{}{}", old.sign(&text, 0), new.sign(&text, 0));
        assert_eq!(Rotation::open(&both), Ok((rotation.clone(), true)));
        assert_eq!(Rotation::open(&format!("{text}\n{}", new.sign(&text, 0))), Ok((rotation.clone(), false)));
        assert!(Rotation::open(&format!("{text}\n{}", old.sign(&text, 0))).is_err(), "the new key has not signed");
        assert!(Rotation::open(&both.replace("\n42\n", "\n43\n")).is_err());
        let foreign = Rotation { to: other.verifier(), ..rotation };
        let text = foreign.text();
        assert!(Rotation::open(&format!("{text}\n{}", other.sign(&text, 0))).is_err(), "a key of another log");
        let plain = checkpoint().text();
        assert!(Rotation::open(&format!("{plain}\n{}", new.sign(&plain, 0))).is_err(), "a checkpoint is no rotation");
    }

    fn signer(name: &str, seed: u8) -> NoteSigner {
        NoteSigner::log(name, &[seed; 32]).unwrap()
    }

    /// The example key and note of the signed-note specification's first implementation (Go's sumdb/note).
    #[test]
    fn a_note_of_another_implementation_opens() {
        let key = Verifier::parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW").unwrap();
        let note = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
                    — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        assert_eq!(key.to_string(), "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW");
        assert!(key.open(note).is_ok());
        assert!(key.open(&note.replace("problem is", "problem was")).is_err());
    }

    #[test]
    fn malformed_notes_and_keys_are_refused() {
        for text in ["", "a", "a\n1\n", "a\n01\nAAAA\n", "a\n1\nAAAA\n", "\n1\nnQ==\n", "a\n-1\nAAAA\n"] {
            assert!(Checkpoint::parse(text).is_err(), "{text:?}");
        }
        let key = NoteSigner::log("a", &[1; 32]).unwrap().verifier();
        for note in
            ["", "\n\n", "text\n", "text\n\n", "text\n\nnot a signature\n", "text\n\n— a AAAA", "text\n\n— a ?\n"]
        {
            assert!(key.open(note).is_err(), "{note:?}");
        }
        for bad in ["", "a", "a+00000000+AAAA", "a+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"] {
            assert!(Verifier::parse(bad).is_err(), "{bad:?}");
        }
        assert!(NoteSigner::log("two words", &[0; 32]).is_err());
    }
}
