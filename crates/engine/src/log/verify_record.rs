//! `verify_record`: whether a record is what was recorded, attested and sealed. Its payload is presented by whoever
//! asks and compared as a JSON value; what is hashed is what is stored.

use super::attestation::check_attestation;
use super::keys::LogKeys;
use super::verify_log::PAGE;
use super::{failed, tree};
use crate::Engine;
use crate::port::log::CheckpointRow;
use crate::port::{Page, RecordQuery, StoreError};
use crate::rows::RecordRow;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::retention::DESTRUCTION;
use countersign_kernel::{Digest, EventId};
use countersign_ledger::note::{Checkpoint, Verifier};
use countersign_ledger::record::{Content, Header};
use countersign_ledger::{merkle, parse_hex_digest, salted_digest};
use serde_json::Value;

/// What is said of a record that no checkpoint covers yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strictness {
    /// It has failed: `unsealed`.
    #[default]
    Strict,
    /// It is verified as far as it goes.
    Lenient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    Verified,
    Failed(&'static str),
}

const PURGED: Verification = Verification::Failed("purged");
const UNSEALED: Verification = Verification::Failed("unsealed");
const MISMATCH: Verification = Verification::Failed("seal-record-set-mismatch");
const PROOF_INVALID: Verification = Verification::Failed("seal-proof-invalid");

impl Engine {
    /// Retention first, then existence, attestation, covering seal, what was sealed, and the seal's own proof.
    pub async fn verify_record(
        &self,
        actor_ref: &str,
        event_id: Option<EventId>,
        presented: &[u8],
        strictness: Strictness,
    ) -> Result<Verification, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        let row = match event_id {
            Some(event_id) => self.stored_record(event_id).await?,
            None => None,
        };
        let Some(row) = row else {
            return Err(Refusal::new(Code::NotKnown, "there is no record with this event_id").at("event_id"));
        };
        let Some(content) = &row.record.content else {
            // Content that is gone without a lawful purge is not what was sealed.
            return Ok(if self.was_purged(&row).await? { PURGED } else { MISMATCH });
        };
        let Ok(header) = Header::parse(&row.record.header) else { return Ok(MISMATCH) };
        // Who is named there may have been registered on another node a moment ago.
        if self.registry().sequence() < header.registry_seq {
            self.refresh_registry().await.map_err(failed)?;
        }
        let attested =
            parse_hex_digest(&header.attestation_digest) == Some(salted_digest(&content.salt, &content.attestation));
        if !attested {
            return Ok(Verification::Failed("attestation-proof-invalid"));
        }
        let application = &self.config.application_actor_ref;
        let (attestation, payload) = (&content.attestation, &content.payload);
        if let Err(fault) = check_attestation((&header).into(), attestation, payload, &self.registry(), application) {
            return Ok(Verification::Failed(fault.as_str()));
        }
        let seal = self.seal_over(row.event_id).await?;
        if seal.is_none() && strictness == Strictness::Strict {
            return Ok(UNSEALED);
        }
        if !says_the_same(row.event_id, content, &header, presented) {
            return Ok(MISMATCH);
        }
        match seal {
            None => Ok(Verification::Verified),
            Some(seal) => self.verify_seal(&row, &seal).await,
        }
    }

    async fn stored_record(&self, event_id: EventId) -> Result<Option<RecordRow>, Refusal> {
        let query = RecordQuery { event_id: Some(event_id), ..RecordQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        Ok(self.reader.records(&query, &page).await.map_err(failed)?.pop())
    }

    /// Whether a later record of the same instance says that this one was purged.
    async fn was_purged(&self, row: &RecordRow) -> Result<bool, Refusal> {
        let query = RecordQuery {
            instance_id: Some(row.instance_id),
            action_ref: Some(DESTRUCTION.to_owned()),
            ..RecordQuery::default()
        };
        let mut after = None;
        loop {
            let page = Page { after, limit: PAGE, descending: false };
            let found = self.reader.records(&query, &page).await.map_err(failed)?;
            if found.iter().any(|purge| tells_of(purge, row)) {
                return Ok(true);
            }
            let Some(last) = found.last() else { return Ok(false) };
            after = Some(last.event_id.0);
        }
    }

    /// That the record's header is the leaf, and that the leaf leads to a root that was signed.
    async fn verify_seal(&self, row: &RecordRow, seal: &CheckpointRow) -> Result<Verification, Refusal> {
        let Some(Some(log_index)) = self.log_indices(&[row.event_id]).await?.into_iter().next() else {
            return Ok(PROOF_INVALID);
        };
        let question = |tiles: &mut countersign_ledger::tiles::Tiles| {
            let leaf = merkle::Subtrees::hash(tiles, 0, log_index)?;
            Ok((leaf, merkle::inclusion_proof(tiles, log_index, seal.size)?))
        };
        let (leaf, proof) = match tree::ask(&*self.log, seal.size, question).await {
            Err(StoreError::Corrupt(_)) => return Ok(PROOF_INVALID),
            answer => answer.map_err(failed)?,
        };
        if leaf != row.record.record_hash {
            return Ok(MISMATCH);
        }
        let included = merkle::verify_inclusion(&leaf, log_index, seal.size, &proof, &seal.root);
        let Some(keys) = self.trusted_keys().await? else { return Ok(PROOF_INVALID) };
        Ok(if included && is_signed(seal, keys.at(seal.size)) { Verification::Verified } else { PROOF_INVALID })
    }

    /// The keys that checkpoints must be signed with: this node's own where it has one, else what the store says; and
    /// those that handed over to it. `None` where they contradict each other, or one was lost and the registry does
    /// not know its successor.
    pub(super) async fn trusted_keys(&self) -> Result<Option<LogKeys>, Refusal> {
        let Some(identity) = self.log_identity().await? else { return Ok(None) };
        let own = self.config.log.as_ref().filter(|_| self.seals());
        let own = own.and_then(|own| super::signer(&identity.origin, own).ok()).map(|signer| signer.verifier());
        let keys = match super::keys::read(&*self.log, own).await {
            Err(StoreError::Corrupt(_)) => None,
            keys => keys.map_err(failed)?,
        };
        let known = |key: &Verifier| {
            let registry = self.registry();
            registry.keys().get(&self.config.server_actor_ref, &key.public_key_id()).is_some()
        };
        Ok(keys.filter(|keys| keys.lost().all(|size| known(keys.at(size + 1)))))
    }
}

/// Whether this is the destruction record of that record, and itself as it was recorded.
fn tells_of(purge: &RecordRow, destroyed: &RecordRow) -> bool {
    let (Some(content), Ok(header)) = (&purge.record.content, Header::parse(&purge.record.header)) else {
        return false;
    };
    let Ok(said) = serde_json::from_slice::<Value>(&content.payload) else { return false };
    let says = |name: &str, text: String| said.get(name).and_then(Value::as_str) == Some(&text);
    purge.sequence > destroyed.sequence
        && says("event_id", destroyed.event_id.to_string())
        && says("record_hash", destroyed.record.record_hash.to_string())
        && parse_hex_digest(&header.payload_digest) == Some(salted_digest(&content.salt, &content.payload))
}

/// Whether a note says what its row says, and the log has signed it.
pub(super) fn is_signed(row: &CheckpointRow, key: &Verifier) -> bool {
    let expected = Checkpoint { origin: key.name.clone(), size: row.size, root: row.root };
    key.open(&row.note).is_ok_and(|(text, _)| Checkpoint::parse(text) == Ok(expected))
}

/// The value with each number as an object that no payload holds, around its digits: two numbers that a reader would take
/// for the same are still two.
fn with_numbers_as_text(json: &[u8]) -> Option<Value> {
    let mut marked = Vec::with_capacity(json.len() + json.len() / 4);
    let (mut in_text, mut escaped, mut in_number) = (false, false, false);
    for byte in json {
        let is_digit = !in_text && matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.');
        let goes_on = in_number && (is_digit || matches!(byte, b'e' | b'E'));
        if is_digit && !in_number {
            marked.extend_from_slice(br#"{"\u0000":""#);
        }
        if in_number && !goes_on {
            marked.extend_from_slice(br#""}"#);
        }
        in_number = is_digit || goes_on;
        if *byte == b'"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && *byte == b'\\' && !escaped;
        marked.push(*byte);
    }
    if in_number {
        marked.extend_from_slice(br#""}"#);
    }
    serde_json::from_slice(&marked).ok()
}

/// The presented payload is the stored one (as a value, numbers by their text), the stored one is what the header commits to,
/// and the header is that of this record.
fn says_the_same(event_id: EventId, content: &Content, header: &Header, presented: &[u8]) -> bool {
    let digest: Digest = salted_digest(&content.salt, &content.payload);
    let stored = with_numbers_as_text(&content.payload);
    stored.is_some()
        && stored == with_numbers_as_text(presented)
        && parse_hex_digest(&header.payload_digest) == Some(digest)
        && EventId::parse(&header.event_id) == Some(event_id)
}

#[cfg(test)]
mod tests {
    use super::with_numbers_as_text as read;

    #[test]
    fn numbers_are_compared_by_their_digits_and_all_else_by_value() {
        for (one, other, same) in [
            (r#"{"a": [1, -2.5e+3], "b": "1"}"#, r#"{"b":"\u0031","a":[1,-2.5e+3]}"#, true),
            (r#"{"a": 0.1}"#, r#"{"a": 0.10000000000000000555}"#, false),
            ("0.1", "0.10", false),
            ("10", "10", true),
            ("1", "1.0", false),
            (r#""a\\" "#, r#""a\\""#, true),
            (r#"{"a\"1": 2}"#, r#"{"a\"1": 2}"#, true),
            ("true", "true", true),
        ] {
            assert!(read(one.as_bytes()).is_some(), "{one}");
            assert_eq!(read(one.as_bytes()) == read(other.as_bytes()), same, "{one} and {other}");
        }
    }
}
