//! Passkeys (`spec/record.md`, sections 5.3 and 5.4): the keys of WebAuthn authenticators, the assertions that they
//! make, and the attestation that carries one in a record. An authenticator does not sign the statement itself. The
//! statement's SHA-256 is the challenge in the client data, and the authenticator signs over the client data.

use crate::statement::{SignedOver, Statement, StatementError};
use crate::{Unwritable, sha256, written};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// The bytes before the key in a SubjectPublicKeyInfo: for a point of P-256, uncompressed; for an Ed25519 key (RFC 8410).
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
/// Hash of the rp_id, flags, counter.
const LEAST_DATA: usize = 37;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Es256,
    EdDsa,
}

impl Algorithm {
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    pub fn parse(text: &str) -> Option<Algorithm> {
        [Algorithm::Es256, Algorithm::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == text)
    }

    /// Its number in COSE.
    pub const fn cose(self) -> i64 {
        match self {
            Algorithm::Es256 => -7,
            Algorithm::EdDsa => -8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasskeyError {
    #[error("the passkey's public key is not one of ES256 (P-256) or EdDSA (Ed25519)")]
    Key,
    #[error("the client data are not as they must be: {0}")]
    ClientData(String),
    #[error("the challenge is not the one that was to be signed")]
    Challenge,
    #[error("it was made for a page of {0}")]
    Origin(String),
    #[error("the authenticator data are too short")]
    Data,
    #[error("it was made for another rp_id")]
    RpId,
    #[error("the authenticator did not verify its user (PIN, fingerprint or the like)")]
    NotVerified,
    #[error("the signature does not fit the passkey")]
    Signature,
}

/// The public key of a passkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasskeyKey {
    algorithm: Algorithm,
    bytes: Vec<u8>,
}

impl PasskeyKey {
    /// From a SubjectPublicKeyInfo, as browsers give it.
    pub fn from_spki(spki: &[u8]) -> Result<PasskeyKey, PasskeyError> {
        match (spki.strip_prefix(&P256_SPKI), spki.strip_prefix(&ED25519_SPKI)) {
            (Some(point), _) => PasskeyKey::new(Algorithm::Es256, point),
            (None, Some(key)) => PasskeyKey::new(Algorithm::EdDsa, key),
            (None, None) => Err(PasskeyError::Key),
        }
    }

    /// The form in records.
    pub fn parse(algorithm: &str, base64: &str) -> Result<PasskeyKey, PasskeyError> {
        let algorithm = Algorithm::parse(algorithm).ok_or(PasskeyError::Key)?;
        PasskeyKey::new(algorithm, &BASE64_STANDARD.decode(base64).map_err(|_| PasskeyError::Key)?)
    }

    fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<PasskeyKey, PasskeyError> {
        let fits = match algorithm {
            Algorithm::Es256 => bytes.len() == 65 && bytes[0] == 4,
            Algorithm::EdDsa => bytes.len() == 32,
        };
        if fits { Ok(PasskeyKey { algorithm, bytes: bytes.to_vec() }) } else { Err(PasskeyError::Key) }
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn to_base64(&self) -> String {
        BASE64_STANDARD.encode(&self.bytes)
    }

    /// Names the key, as that of every other key: the first 16 hex digits of the SHA-256 of its bytes.
    pub fn key_id(&self) -> String {
        sha256(&[&self.bytes]).to_string().chars().take(16).collect()
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), PasskeyError> {
        let fits = match self.algorithm {
            Algorithm::Es256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.bytes).verify(message, signature),
            Algorithm::EdDsa => UnparsedPublicKey::new(&ED25519, &self.bytes).verify(message, signature),
        };
        fits.map_err(|_| PasskeyError::Signature)
    }
}

/// What the browser told the authenticator. It may say more.
#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    cross_origin: bool,
}

/// What an assertion or a registration must be about.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub origin: &'a str,
    pub rp_id: &'a str,
}

/// The challenge in client data of this kind (`webauthn.get`, `webauthn.create`), which a page of ours has asked for.
pub fn challenge(client_data_json: &[u8], kind: &str, expected: Expected<'_>) -> Result<Vec<u8>, PasskeyError> {
    let read: ClientData =
        serde_json::from_slice(client_data_json).map_err(|error| PasskeyError::ClientData(error.to_string()))?;
    if read.kind != kind {
        return Err(PasskeyError::ClientData(format!("they are of `{}`, and `{kind}` is expected", read.kind)));
    }
    if read.origin != expected.origin || read.cross_origin {
        return Err(PasskeyError::Origin(read.origin));
    }
    BASE64_URL_SAFE_NO_PAD.decode(&read.challenge).map_err(|_| PasskeyError::Challenge)
}

/// The signature counter in authenticator data, once the rp_id and the flags are found right.
pub fn counter(authenticator_data: &[u8], expected: Expected<'_>) -> Result<u32, PasskeyError> {
    let Some((rp_id_hash, rest)) =
        authenticator_data.split_at_checked(32).filter(|_| authenticator_data.len() >= LEAST_DATA)
    else {
        return Err(PasskeyError::Data);
    };
    if rp_id_hash != sha256(&[expected.rp_id.as_bytes()]).0 {
        return Err(PasskeyError::RpId);
    }
    let wanted = USER_PRESENT | USER_VERIFIED;
    match rest {
        [flags, a, b, c, d, ..] if flags & wanted == wanted => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(PasskeyError::NotVerified),
    }
}

/// What an authenticator signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    pub authenticator_data: Vec<u8>,
    pub client_data_json: Vec<u8>,
    pub signature: Vec<u8>,
}

impl Assertion {
    /// Checks it for this challenge, and returns its signature counter.
    pub fn verify(&self, key: &PasskeyKey, signed: &[u8], expected: Expected<'_>) -> Result<u32, PasskeyError> {
        if challenge(&self.client_data_json, "webauthn.get", expected)? != signed {
            return Err(PasskeyError::Challenge);
        }
        let counter = counter(&self.authenticator_data, expected)?;
        let message = [&self.authenticator_data[..], &sha256(&[&self.client_data_json]).0].concat();
        key.verify(&message, &self.signature)?;
        Ok(counter)
    }

    /// The same for a statement: its SHA-256 is the challenge.
    pub fn verify_statement(
        &self,
        key: &PasskeyKey,
        statement: &[u8],
        expected: Expected<'_>,
    ) -> Result<u32, PasskeyError> {
        self.verify(key, &sha256(&[statement]).0, expected)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PasskeyAttestation {
    v: u32,
    class: String,
    key_id: String,
    statement: String,
    authenticator_data: String,
    client_data_json: String,
    signature: String,
    signed_over: String,
    #[serde(deserialize_with = "Option::deserialize")]
    body: Option<String>,
}

const CLASS: &str = "passkey_signed";

/// The bytes of a `passkey_signed` attestation.
pub fn attestation(
    key_id: &str,
    statement: &[u8],
    assertion: &Assertion,
    over: SignedOver<'_>,
) -> Result<Vec<u8>, Unwritable> {
    let (signed_over, body) = over.members();
    let attestation = PasskeyAttestation {
        v: 1,
        class: CLASS.to_owned(),
        key_id: key_id.to_owned(),
        statement: BASE64_STANDARD.encode(statement),
        authenticator_data: BASE64_STANDARD.encode(&assertion.authenticator_data),
        client_data_json: BASE64_STANDARD.encode(&assertion.client_data_json),
        signature: BASE64_STANDARD.encode(&assertion.signature),
        signed_over: signed_over.to_owned(),
        body,
    };
    written(&attestation)
}

/// A `passkey_signed` attestation, read back.
pub struct SignedByPasskey {
    pub key_id: String,
    pub statement: Statement,
    pub statement_bytes: Vec<u8>,
    pub assertion: Assertion,
    pub signed_over: String,
    pub body: Option<Vec<u8>>,
}

impl SignedByPasskey {
    pub fn parse(attestation: &[u8]) -> Result<SignedByPasskey, StatementError> {
        let form = |why: &str| StatementError::Form(why.to_owned());
        let read: PasskeyAttestation =
            serde_json::from_slice(attestation).map_err(|e| StatementError::Form(e.to_string()))?;
        let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| form("a member is not base64"));
        let statement_bytes = bytes(&read.statement)?;
        let statement = Statement::parse(&statement_bytes)?;
        if read.v != 1 || read.class != CLASS || read.key_id != statement.key_id {
            return Err(form("the attestation and its statement name different keys or classes"));
        }
        let assertion = Assertion {
            authenticator_data: bytes(&read.authenticator_data)?,
            client_data_json: bytes(&read.client_data_json)?,
            signature: bytes(&read.signature)?,
        };
        let body = read.body.as_deref().map(bytes).transpose()?;
        Ok(SignedByPasskey {
            key_id: read.key_id,
            statement,
            statement_bytes,
            assertion,
            signed_over: read.signed_over,
            body,
        })
    }

    /// Whether the signature fits, and the statement is about this content.
    pub fn verify(&self, key: &PasskeyKey, expected: Expected<'_>, payload: &[u8]) -> bool {
        self.assertion.verify_statement(key, &self.statement_bytes, expected).is_ok()
            && self.statement.is_over(&self.signed_over, self.body.as_deref(), payload).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

    const EXPECTED: Expected<'_> = Expected { origin: "https://c.example", rp_id: "c.example" };

    fn client_data(kind: &str, challenge: &[u8], origin: &str) -> Vec<u8> {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(challenge);
        format!(r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false,"more":1}}"#)
            .into_bytes()
    }

    fn data(rp_id: &str, flags: u8, counter: u32) -> Vec<u8> {
        [&sha256(&[rp_id.as_bytes()]).0[..], &[flags], &counter.to_be_bytes()].concat()
    }

    fn signed(key: &EcdsaKeyPair, authenticator_data: Vec<u8>, client_data_json: Vec<u8>) -> Assertion {
        let message = [&authenticator_data[..], &sha256(&[&client_data_json]).0].concat();
        let signature = key.sign(&SystemRandom::new(), &message).expect("a signature").as_ref().to_vec();
        Assertion { authenticator_data, client_data_json, signature }
    }

    fn pair() -> EcdsaKeyPair {
        let rng = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &rng).expect("a key");
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &rng).expect("a key")
    }

    #[test]
    fn an_assertion_is_good_for_its_challenge_page_and_key_only() {
        let (pair, other) = (pair(), pair());
        let key = |pair: &EcdsaKeyPair| {
            PasskeyKey::from_spki(&[&P256_SPKI[..], pair.public_key().as_ref()].concat()).expect("a key")
        };
        let statement = b"a statement";
        let challenge = sha256(&[statement]).0;
        let made = |kind: &str, challenge: &[u8], origin: &str, rp_id: &str, flags: u8| {
            signed(&pair, data(rp_id, flags, 7), client_data(kind, challenge, origin))
        };
        let good = made("webauthn.get", &challenge, "https://c.example", "c.example", 5);
        assert_eq!(good.verify_statement(&key(&pair), statement, EXPECTED), Ok(7));
        assert_eq!(good.verify_statement(&key(&other), statement, EXPECTED), Err(PasskeyError::Signature));
        assert_eq!(good.verify_statement(&key(&pair), b"another", EXPECTED), Err(PasskeyError::Challenge));
        let edited = Assertion { authenticator_data: data("c.example", 5, 8), ..good.clone() };
        assert_eq!(edited.verify_statement(&key(&pair), statement, EXPECTED), Err(PasskeyError::Signature));
        for (assertion, error) in [
            (
                made("webauthn.get", &challenge, "https://evil.example", "c.example", 5),
                PasskeyError::Origin("https://evil.example".into()),
            ),
            (made("webauthn.get", &challenge, "https://c.example", "example", 5), PasskeyError::RpId),
            (made("webauthn.get", &challenge, "https://c.example", "c.example", 1), PasskeyError::NotVerified),
            (made("webauthn.get", &challenge, "https://c.example", "c.example", 4), PasskeyError::NotVerified),
            (made("webauthn.get", b"", "https://c.example", "c.example", 5), PasskeyError::Challenge),
        ] {
            assert_eq!(assertion.verify_statement(&key(&pair), statement, EXPECTED), Err(error));
        }
        let create = made("webauthn.create", &challenge, "https://c.example", "c.example", 5);
        assert!(matches!(create.verify_statement(&key(&pair), statement, EXPECTED), Err(PasskeyError::ClientData(_))));
        let short = signed(&pair, vec![0; 36], client_data("webauthn.get", &challenge, "https://c.example"));
        assert_eq!(short.verify_statement(&key(&pair), statement, EXPECTED), Err(PasskeyError::Data));
        let text = String::from_utf8(good.client_data_json.clone()).expect("text");
        let framed = signed(&pair, data("c.example", 5, 7), text.replace("false", "true").into_bytes());
        assert!(matches!(framed.verify_statement(&key(&pair), statement, EXPECTED), Err(PasskeyError::Origin(_))));
    }

    #[test]
    fn keys_are_read_as_browsers_and_records_have_them() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
        let key = PasskeyKey::from_spki(&[&ED25519_SPKI[..], pair.public_key().as_ref()].concat()).expect("a key");
        assert_eq!(key.algorithm(), Algorithm::EdDsa);
        assert_eq!(PasskeyKey::parse("EdDSA", &key.to_base64()), Ok(key.clone()));
        assert_eq!(key.key_id().len(), 16);
        assert_eq!(PasskeyKey::parse("ES256", &key.to_base64()), Err(PasskeyError::Key));
        assert_eq!(PasskeyKey::parse("RS256", &key.to_base64()), Err(PasskeyError::Key));
        assert_eq!(PasskeyKey::from_spki(&[0; 91]), Err(PasskeyError::Key));
        assert_eq!(PasskeyKey::from_spki(&[]), Err(PasskeyError::Key));
    }
}
