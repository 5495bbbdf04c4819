//! What an actor signs (`spec/record.md`, section 5.2): a statement composed by the signer, an Ed25519 signature over
//! its exact bytes, and the attestation that carries both in a record.

use crate::{Unwritable, sha256, written};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// The bytes before the 32 bytes of a key in a SubjectPublicKeyInfo (RFC 8410), as in PEM files.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Reads base64 with and without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);
const MAX_INTEGER: u64 = (1 << 53) - 1;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    #[error("a public key is expected as the base64 of 32 bytes (Ed25519): {0}")]
    Key(&'static str),
    #[error("the statement is not as it must be: {0}")]
    Form(String),
    #[error("the signature does not fit the statement and the key")]
    Signature,
}

/// An Ed25519 public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads base64 (either alphabet, padded or not), 64 hex digits, or PEM.
    pub fn parse(text: &str) -> Result<PublicKey, StatementError> {
        let text: String = text.lines().filter(|line| !line.starts_with("-----")).flat_map(str::chars).collect();
        let bytes = decode(text.trim()).ok_or(StatementError::Key("it is neither base64 nor hex"))?;
        let bytes = bytes.strip_prefix(&SPKI_PREFIX).unwrap_or(&bytes);
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| StatementError::Key("it has not 32 bytes"))?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| StatementError::Key("it is no point of the curve"))?;
        if key.is_weak() { Err(StatementError::Key("it is a weak key")) } else { Ok(PublicKey(key)) }
    }

    /// The form in records.
    pub fn to_base64(&self) -> String {
        BASE64_STANDARD.encode(self.0.as_bytes())
    }

    /// Names the key: the first 16 hex digits of the SHA-256 of its bytes.
    pub fn key_id(&self) -> String {
        sha256(&[self.0.as_bytes()]).to_string().chars().take(16).collect()
    }

    pub fn verify(&self, statement: &[u8], signature: &[u8; 64]) -> Result<(), StatementError> {
        self.0.verify_strict(statement, &Signature::from_bytes(signature)).map_err(|_| StatementError::Signature)
    }
}

/// Base64 or hex, as people and programs write it.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let hex = |text: &str| -> Option<Vec<u8>> {
        let bytes = text.as_bytes();
        if !matches!(bytes.len(), 64 | 128) || !bytes.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
    };
    hex(text).or_else(|| STANDARD.decode(text).ok()).or_else(|| URL_SAFE.decode(text).ok())
}

/// A private key that signs statements. Its bytes are in no message and no log.
#[derive(Clone)]
pub struct Signer(SigningKey);

impl Signer {
    pub fn from_seed(seed: &[u8; 32]) -> Signer {
        Signer(SigningKey::from_bytes(seed))
    }

    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub fn sign(&self, statement: &[u8]) -> [u8; 64] {
        self.0.sign(statement).to_bytes()
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.public_key().key_id())
    }
}

/// The members of a statement. The signed bytes remain what is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub v: u32,
    pub action: String,
    pub actor_ref: String,
    pub key_id: String,
    #[serde(deserialize_with = "Option::deserialize")]
    pub request: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub instance_id: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub step_id: Option<String>,
    pub body_digest: String,
    #[serde(deserialize_with = "Option::deserialize")]
    pub meaning: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub expected_sequence: Option<u64>,
    pub nonce: String,
    pub issued_at_us: i64,
}

impl Statement {
    pub fn parse(bytes: &[u8]) -> Result<Statement, StatementError> {
        let form = |why: &str| StatementError::Form(why.to_owned());
        let statement: Statement = serde_json::from_slice(bytes).map_err(|e| StatementError::Form(e.to_string()))?;
        if statement.v != 1 {
            return Err(form("`v` must be 1"));
        }
        let nonce = statement.nonce.as_bytes();
        let plain = nonce.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !(16..=128).contains(&nonce.len()) || !plain {
            return Err(form("`nonce` must be 16 to 128 characters of A-Z a-z 0-9 - _ ."));
        }
        if crate::parse_hex_digest(&statement.body_digest).is_none() {
            return Err(form("`body_digest` must be 64 lower-case hex digits"));
        }
        if statement.meaning.as_deref().is_some_and(|meaning| meaning.trim().is_empty()) {
            return Err(form("`meaning` is blank; leave it null where there is none"));
        }
        let beyond = statement.expected_sequence.is_some_and(|n| n > MAX_INTEGER)
            || statement.issued_at_us.unsigned_abs() > MAX_INTEGER;
        if beyond { Err(form("a number is beyond 2^53 - 1")) } else { Ok(statement) }
    }

    /// Whether it is about this content: what an attestation gives as `signed_over` and `body`, and its record's payload.
    pub fn is_over(&self, over: &str, body: Option<&[u8]>, payload: &[u8]) -> Result<(), StatementError> {
        let digest = match (over, body) {
            ("body", Some(body)) => sha256(&[body]).to_string(),
            ("payload", None) => sha256(&[payload]).to_string(),
            ("document", None) => document_digest(payload)?,
            _ => return Err(StatementError::Form("`signed_over` and `body` do not go together".to_owned())),
        };
        if digest == self.body_digest {
            Ok(())
        } else {
            Err(StatementError::Form("the statement is about other content".to_owned()))
        }
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>, Unwritable> {
        written(self)
    }
}

/// What `body_digest` is a digest of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedOver<'a> {
    /// The request's body, which the attestation carries.
    Body(&'a [u8]),
    /// The published document, whose digest the payload states.
    Document,
    /// The record's own payload.
    Payload,
}

impl SignedOver<'_> {
    /// As an attestation states it: `signed_over` and `body`.
    pub(crate) fn members(self) -> (&'static str, Option<String>) {
        match self {
            SignedOver::Body(body) => ("body", Some(BASE64_STANDARD.encode(body))),
            SignedOver::Document => ("document", None),
            SignedOver::Payload => ("payload", None),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedAttestation {
    v: u32,
    class: String,
    key_id: String,
    statement: String,
    signature: String,
    signed_over: String,
    #[serde(deserialize_with = "Option::deserialize")]
    body: Option<String>,
}

/// The bytes of an `actor_signed` attestation.
pub fn attestation(
    key_id: &str,
    statement: &[u8],
    signature: &[u8; 64],
    over: SignedOver<'_>,
) -> Result<Vec<u8>, Unwritable> {
    let (signed_over, body) = over.members();
    let attestation = SignedAttestation {
        v: 1,
        class: "actor_signed".to_owned(),
        key_id: key_id.to_owned(),
        statement: BASE64_STANDARD.encode(statement),
        signature: BASE64_STANDARD.encode(signature),
        signed_over: signed_over.to_owned(),
        body,
    };
    written(&attestation)
}

/// A signature that the engine gives in the application actor's name, over a record's own payload.
pub struct OwnSignature<'a> {
    pub signer: &'a Signer,
    pub action_ref: &'a str,
    pub actor_ref: &'a str,
    pub instance_id: Option<String>,
    pub nonce: String,
    pub issued_at_us: i64,
}

impl OwnSignature<'_> {
    pub fn attest(self, payload: &[u8]) -> Result<Vec<u8>, Unwritable> {
        let key_id = self.signer.public_key().key_id();
        let statement = Statement {
            v: 1,
            action: self.action_ref.to_owned(),
            actor_ref: self.actor_ref.to_owned(),
            key_id: key_id.clone(),
            request: None,
            instance_id: self.instance_id,
            step_id: None,
            body_digest: sha256(&[payload]).to_string(),
            meaning: None,
            expected_sequence: None,
            nonce: self.nonce,
            issued_at_us: self.issued_at_us,
        }
        .to_bytes()?;
        attestation(&key_id, &statement, &self.signer.sign(&statement), SignedOver::Payload)
    }
}

/// An `actor_signed` attestation, read back.
pub struct Signed {
    pub key_id: String,
    pub statement: Statement,
    statement_bytes: Vec<u8>,
    signature: [u8; 64],
    over: String,
    body: Option<Vec<u8>>,
}

impl Signed {
    pub fn parse(attestation: &[u8]) -> Result<Signed, StatementError> {
        let form = |why: &str| StatementError::Form(why.to_owned());
        let read: SignedAttestation =
            serde_json::from_slice(attestation).map_err(|e| StatementError::Form(e.to_string()))?;
        let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| form("a member is not base64"));
        let statement_bytes = bytes(&read.statement)?;
        let signature = bytes(&read.signature)?.try_into().map_err(|_| form("the signature has not 64 bytes"))?;
        let statement = Statement::parse(&statement_bytes)?;
        let body = read.body.as_deref().map(bytes).transpose()?;
        if read.v != 1 || read.class != "actor_signed" || read.key_id != statement.key_id {
            return Err(form("the attestation and its statement name different keys or classes"));
        }
        Ok(Signed { key_id: read.key_id, statement, statement_bytes, signature, over: read.signed_over, body })
    }

    /// What was asked for, where the statement is over a request's body.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// Whether this key signed the statement, and the statement is about this content.
    pub fn verify(&self, key: &PublicKey, payload: &[u8]) -> Result<(), StatementError> {
        key.verify(&self.statement_bytes, &self.signature)?;
        self.statement.is_over(&self.over, self.body.as_deref(), payload)
    }
}

fn document_digest(payload: &[u8]) -> Result<String, StatementError> {
    let payload: serde_json::Value =
        serde_json::from_slice(payload).map_err(|e| StatementError::Form(e.to_string()))?;
    let digest = payload.get("digest").and_then(serde_json::Value::as_str);
    digest.map(str::to_owned).ok_or_else(|| StatementError::Form("the payload names no document".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(signer: &Signer, payload: &[u8]) -> Vec<u8> {
        OwnSignature {
            signer,
            action_ref: "moot_gate_recalled",
            actor_ref: "countersign",
            instance_id: Some("i".into()),
            nonce: "0123456789abcdef".into(),
            issued_at_us: 7,
        }
        .attest(payload)
        .expect("JSON")
    }

    #[test]
    fn a_signature_is_good_for_its_key_and_content_only() {
        let (signer, other) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let signed = Signed::parse(&own(&signer, b"{}")).expect("readable");
        assert_eq!(signed.key_id, signer.public_key().key_id());
        assert_eq!(signed.verify(&signer.public_key(), b"{}"), Ok(()));
        assert_eq!(signed.verify(&other.public_key(), b"{}"), Err(StatementError::Signature));
        assert!(signed.verify(&signer.public_key(), b"{ }").is_err(), "another payload");
    }

    #[test]
    fn a_signed_body_travels_with_the_signature() {
        let signer = Signer::from_seed(&[1; 32]);
        let statement = Statement { body_digest: sha256(&[b"{\"a\":1}"]).to_string(), ..sample() };
        let statement = statement.to_bytes().expect("JSON");
        let with = |body: &'static [u8]| {
            attestation(&sample().key_id, &statement, &signer.sign(&statement), SignedOver::Body(body)).expect("JSON")
        };
        let good = Signed::parse(&with(b"{\"a\":1}")).expect("readable");
        assert_eq!(good.verify(&signer.public_key(), b"anything"), Ok(()));
        let bad = Signed::parse(&with(b"{\"a\":2}")).expect("readable");
        assert!(bad.verify(&signer.public_key(), b"anything").is_err());
    }

    fn sample() -> Statement {
        Signed::parse(&own(&Signer::from_seed(&[1; 32]), b"{}")).expect("readable").statement
    }

    #[test]
    fn a_statement_has_exactly_its_members() {
        let text = String::from_utf8(sample().to_bytes().expect("JSON")).expect("text");
        assert!(Statement::parse(text.as_bytes()).is_ok());
        for broken in [
            text.replacen("\"meaning\":null,", "", 1),
            text.replacen("{\"v\":1", "{\"v\":1,\"v\":1", 1),
            text.replacen("{\"v\":1", "{\"v\":2", 1),
            text.replacen("{\"v\":1", "{\"v\":1,\"x\":1", 1),
            text.replacen("0123456789abcdef", "short", 1),
            text.replacen("\"meaning\":null", "\"meaning\":\" \"", 1),
            text.replacen("\"expected_sequence\":null", "\"expected_sequence\":9007199254740992", 1),
            text.replacen("\"expected_sequence\":null", "\"expected_sequence\":4.0", 1),
        ] {
            assert!(Statement::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn keys_are_read_in_the_forms_people_have_them() {
        let key = Signer::from_seed(&[1; 32]).public_key();
        let base64 = key.to_base64();
        let hex: String = key.0.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let spki = BASE64_STANDARD.encode([&SPKI_PREFIX[..], key.0.as_bytes()].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{spki}\n-----END PUBLIC KEY-----\n");
        let url = base64.replace('+', "-").replace('/', "_").replace('=', "");
        for text in [&base64, &hex, &spki, &pem, &url] {
            assert_eq!(PublicKey::parse(text).as_ref(), Ok(&key), "{text}");
        }
        let weak = BASE64_STANDARD.encode([0; 32]);
        for text in ["", "key 1", "AAAA", &weak, &base64[..40]] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }
}
