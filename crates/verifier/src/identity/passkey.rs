//! A `passkey_signed` attestation (`spec/record.md`, 5.3): what the authenticator signed, and what its counter says.

use super::statement::{self, Signed};
use crate::bytes::{Digest, Id, sha256};
use crate::finding::{Code, Findings, Place};
use crate::json::{self, Fault, FaultKind, Value};
use crate::note;
use crate::record::{Header, require_members, require_text};
use crate::registry::Passkey;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{DerSignature, VerifyingKey};
use std::collections::{BTreeMap, HashSet};

const MEMBERS: [&str; 9] =
    ["v", "class", "key_id", "statement", "authenticator_data", "client_data_json", "signature", "signed_over", "body"];
const PRESENT_AND_VERIFIED: u8 = 0x05;
/// Statements that were issued within this time of each other may have been taken in either order.
const APART_US: i64 = 20 * 60 * 1_000_000;

pub struct Assertion {
    pub signed: Signed,
    signature: Vec<u8>,
    data: Vec<u8>,
    client_data: Vec<u8>,
    client: Client,
}

struct Client {
    kind: String,
    challenge: String,
    origin: String,
    cross_origin: bool,
}

pub fn read(attestation: &Value) -> Result<Assertion, Fault> {
    require_members(attestation, &MEMBERS, &[])?;
    let bytes = |name: &str| {
        let text = require_text(attestation, name)?;
        STANDARD.decode(text).map_err(|_| form(format!("`{name}` is not base64 with padding")))
    };
    let (data, client_data) = (bytes("authenticator_data")?, bytes("client_data_json")?);
    if data.len() < 37 {
        return Err(form("`authenticator_data` is too short"));
    }
    let client = client(&client_data)?;
    Ok(Assertion {
        signed: statement::read_parts(attestation)?,
        signature: bytes("signature")?,
        data,
        client_data,
        client,
    })
}

fn client(bytes: &[u8]) -> Result<Client, Fault> {
    let value = json::parse(bytes).map_err(|fault| Fault { detail: format!("client_data_json: {fault}"), ..fault })?;
    let text = |name| require_text(&value, name).map(str::to_owned);
    let cross_origin = match value.given("crossOrigin") {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| form("`crossOrigin` of client_data_json is not true or false"))?,
    };
    Ok(Client { kind: text("type")?, challenge: text("challenge")?, origin: text("origin")?, cross_origin })
}

impl Assertion {
    /// What is wrong with it for this passkey.
    pub fn problems(&self, passkey: &Passkey, public_key: &[u8]) -> Vec<String> {
        let statement = sha256(&[&self.signed.statement_bytes]);
        let message = [&self.data[..], &sha256(&[&self.client_data]).0].concat();
        let fits = match passkey.algorithm.as_str() {
            "ES256" => fits_p256(public_key, &message, &self.signature),
            _ => fits_ed25519(public_key, &message, &self.signature),
        };
        let rp_id_hash = sha256(&[passkey.rp_id.as_bytes()]);
        let flags = self.data.get(32).copied().unwrap_or_default();
        let Client { kind, challenge, origin, cross_origin } = &self.client;
        let mut found = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                found.push(problem);
            }
        };
        require(kind == "webauthn.get", format!("the client data are of `{kind}`, not of `webauthn.get`"));
        let expected = URL_SAFE_NO_PAD.encode(statement.0);
        require(*challenge == expected, "the challenge is not the SHA-256 of the statement".to_owned());
        require(
            *origin == passkey.origin && !cross_origin,
            format!("it was made for a page of {origin}, and the passkey is for {}", passkey.origin),
        );
        require(self.data.starts_with(&rp_id_hash.0), "it was made for another rp_id than the passkey's".to_owned());
        require(
            flags & PRESENT_AND_VERIFIED == PRESENT_AND_VERIFIED,
            "the authenticator did not verify its user".to_owned(),
        );
        require(fits, "the signature does not fit the passkey".to_owned());
        found
    }

    fn counter(&self) -> u32 {
        match self.data.get(33..37) {
            Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
            _ => 0,
        }
    }
}

/// ECDSA with P-256 and SHA-256; the signature is DER.
fn fits_p256(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (VerifyingKey::from_sec1_bytes(public_key), DerSignature::try_from(signature))
    else {
        return false;
    };
    key.verify(message, &signature).is_ok()
}

fn fits_ed25519(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (public_key.try_into(), signature.try_into()) else { return false };
    note::verifies(&key, message, &signature)
}

/// The counters of each passkey, by its key_id.
#[derive(Debug, Default)]
pub struct Counters(BTreeMap<String, Vec<Counted>>);

#[derive(Clone, Debug)]
struct Counted {
    issued_at_us: i64,
    counter: u32,
    event_id: Id,
    statement: Digest,
    place: Place,
}

impl Counters {
    pub fn take(&mut self, header: &Header, assertion: &Assertion) {
        let signed = &assertion.signed;
        self.0.entry(signed.key_id.clone()).or_default().push(Counted {
            issued_at_us: signed.statement.issued_at_us,
            counter: assertion.counter(),
            event_id: header.event_id,
            statement: sha256(&[&signed.statement_bytes]),
            place: Place::from(header),
        });
    }

    /// A counter never comes twice, and of two statements that were issued far apart the later one has the higher.
    pub fn check(&mut self, findings: &mut Findings) {
        for (key_id, mut uses) in std::mem::take(&mut self.0) {
            uses.sort_by_key(|used| (used.issued_at_us, used.counter, used.event_id));
            let mut statements = HashSet::new();
            uses.retain(|used| statements.insert(used.statement));
            let (mut counted, mut highest, mut behind) = (HashSet::new(), 0, 0);
            for used in &uses {
                while let Some(earlier) =
                    uses.get(behind).filter(|earlier| earlier.issued_at_us.saturating_add(APART_US) < used.issued_at_us)
                {
                    highest = highest.max(earlier.counter);
                    behind += 1;
                }
                let counter = used.counter;
                let again = counter > 0 && !counted.insert(counter);
                if again || (highest > 0 && counter <= highest) {
                    let detail = format!(
                        "the counter of the passkey {key_id} is {counter}, which it had reached or passed before"
                    );
                    findings.find(Code::PasskeyCounter, used.place.clone(), detail);
                }
            }
        }
    }
}

fn form(detail: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Syntax, detail: detail.into() }
}
