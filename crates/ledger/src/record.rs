//! One record: header, payload, attestation, salt (`spec/record.md`, sections 1 to 5).

use crate::header_scan::scan;
use crate::{parse_hex_digest, sha256};
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What the first record of an instance names as its predecessor.
pub const ZERO_HASH: Digest = Digest([0; 32]);

/// The largest payload that is recorded.
pub const MAX_PAYLOAD_BYTES: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assurance {
    ServerAttested,
    ActorSigned,
    PasskeySigned,
}

impl Assurance {
    pub const fn as_str(self) -> &'static str {
        match self {
            Assurance::ServerAttested => "server_attested",
            Assurance::ActorSigned => "actor_signed",
            Assurance::PasskeySigned => "passkey_signed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention<'a> {
    pub policy_ref: &'a str,
    pub retention_until: Option<Time>,
    pub purge_deadline: Option<Time>,
}

/// How the actor was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attestation<'a> {
    /// By a bearer token; `credential_id` is absent for callers inside the process.
    Server { credential_id: Option<&'a str> },
    /// By a signature; these are the attestation's bytes ([`crate::statement::attestation`]).
    Signed(std::borrow::Cow<'a, [u8]>),
    /// By a passkey ([`crate::passkey::attestation`]).
    Passkey(&'a [u8]),
}

impl Attestation<'_> {
    pub fn assurance(&self) -> Assurance {
        match self {
            Attestation::Server { .. } => Assurance::ServerAttested,
            Attestation::Signed(_) => Assurance::ActorSigned,
            Attestation::Passkey(_) => Assurance::PasskeySigned,
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Attestation::Signed(bytes) => bytes.into_owned(),
            Attestation::Passkey(bytes) => bytes.to_vec(),
            Attestation::Server { credential_id: None } => {
                br#"{"v":1,"class":"server_attested","credential_id":null}"#.to_vec()
            }
            Attestation::Server { credential_id: Some(id) } => {
                format!(r#"{{"v":1,"class":"server_attested","credential_id":"{id}"}}"#).into_bytes()
            }
        }
    }
}

/// Everything a record says, before it is bytes.
pub struct Draft<'a> {
    pub event_id: EventId,
    pub instance_id: InstanceId,
    pub sequence: u64,
    pub prev: Digest,
    pub action_ref: &'a str,
    pub actor_ref: &'a str,
    pub recorded_at: Time,
    pub registry_seq: u64,
    pub retention: Retention<'a>,
    pub attestation: Attestation<'a>,
    pub payload: Vec<u8>,
    pub salt: [u8; 32],
}

/// A record as it is stored, with the hash that the next one will name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub header: Vec<u8>,
    /// `None` once it has been purged; the header and its hash stay.
    pub content: Option<Content>,
    pub record_hash: Digest,
}

/// What a purge destroys, all of it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub payload: Vec<u8>,
    pub attestation: Vec<u8>,
    pub salt: [u8; 32],
}

impl Record {
    /// What was recorded; `None` once it has been purged.
    pub fn payload(&self) -> Option<&[u8]> {
        self.content.as_ref().map(|content| content.payload.as_slice())
    }

    pub fn is_purged(&self) -> bool {
        self.content.is_none()
    }
}

impl Draft<'_> {
    pub fn into_record(self) -> Result<Record, RecordError> {
        let assurance = self.attestation.assurance();
        let attestation = self.attestation.into_bytes();
        let hex = |digest: Digest| digest.to_string();
        let header = Header {
            v: 1,
            event_id: self.event_id.to_string(),
            instance_id: self.instance_id.to_string(),
            sequence: self.sequence,
            prev: hex(self.prev),
            action_ref: self.action_ref.into(),
            actor_ref: self.actor_ref.into(),
            recorded_at_us: self.recorded_at.0,
            registry_seq: self.registry_seq,
            assurance: assurance.as_str().into(),
            retention: HeaderRetention {
                policy_ref: self.retention.policy_ref.into(),
                retention_until_us: self.retention.retention_until.map(|time| time.0),
                purge_deadline_us: self.retention.purge_deadline.map(|time| time.0),
            },
            payload_digest: hex(salted_digest(&self.salt, &self.payload)),
            attestation_digest: hex(salted_digest(&self.salt, &attestation)),
        };
        let header = serde_json::to_vec(&header).map_err(|e| RecordError::Header(e.to_string()))?;
        let record_hash = record_hash(&header);
        let content = Content { payload: self.payload, attestation, salt: self.salt };
        Ok(Record { header, content: Some(content), record_hash })
    }
}

/// The header as its members; the stored bytes remain what is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub v: u32,
    pub event_id: String,
    pub instance_id: String,
    pub sequence: u64,
    pub prev: String,
    pub action_ref: String,
    pub actor_ref: String,
    pub recorded_at_us: i64,
    pub registry_seq: u64,
    pub assurance: String,
    pub retention: HeaderRetention,
    pub payload_digest: String,
    pub attestation_digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRetention {
    pub policy_ref: String,
    pub retention_until_us: Option<i64>,
    pub purge_deadline_us: Option<i64>,
}

/// A header as its members, borrowed from its bytes, for reading millions of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderView<'h> {
    pub v: u32,
    #[serde(borrow)]
    pub event_id: Cow<'h, str>,
    #[serde(borrow)]
    pub instance_id: Cow<'h, str>,
    pub sequence: u64,
    #[serde(borrow)]
    pub prev: Cow<'h, str>,
    #[serde(borrow)]
    pub action_ref: Cow<'h, str>,
    #[serde(borrow)]
    pub actor_ref: Cow<'h, str>,
    pub recorded_at_us: i64,
    pub registry_seq: u64,
    #[serde(borrow)]
    pub assurance: Cow<'h, str>,
    #[serde(borrow)]
    pub retention: RetentionView<'h>,
    #[serde(borrow)]
    pub payload_digest: Cow<'h, str>,
    #[serde(borrow)]
    pub attestation_digest: Cow<'h, str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionView<'h> {
    #[serde(borrow)]
    pub policy_ref: Cow<'h, str>,
    pub retention_until_us: Option<i64>,
    pub purge_deadline_us: Option<i64>,
}

impl<'h> HeaderView<'h> {
    pub fn parse(bytes: &'h [u8]) -> Result<HeaderView<'h>, RecordError> {
        if let Some(header) = scan(bytes) {
            return Ok(header);
        }
        let header: HeaderView<'h> = serde_json::from_slice(bytes).map_err(|e| RecordError::Header(e.to_string()))?;
        if header.v == 1 { Ok(header) } else { Err(RecordError::Header(format!("version {} is not known", header.v))) }
    }
}

impl Header {
    pub fn parse(bytes: &[u8]) -> Result<Header, RecordError> {
        let header: Header = serde_json::from_slice(bytes).map_err(|e| RecordError::Header(e.to_string()))?;
        if header.v == 1 { Ok(header) } else { Err(RecordError::Header(format!("version {} is not known", header.v))) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the header is not readable: {0}")]
    Header(String),
    #[error("record {sequence}: {what}")]
    Broken { sequence: u64, what: String },
}

pub fn record_hash(header: &[u8]) -> Digest {
    sha256(&[&[0x00], header])
}

pub fn salted_digest(salt: &[u8; 32], part: &[u8]) -> Digest {
    sha256(&[salt, part])
}

/// One stored record against its predecessor: sequence, link, digests. Returns its own hash. Of a purged record the
/// header is checked, which is what its neighbours are linked to.
pub fn check_link(previous: Option<(u64, Digest)>, stored: &Record) -> Result<(Header, Digest), RecordError> {
    let header = Header::parse(&stored.header)?;
    let broken = |what: String| RecordError::Broken { sequence: header.sequence, what };
    let (last, prev) = previous.unwrap_or((0, ZERO_HASH));
    if header.sequence != last + 1 {
        return Err(broken(format!("follows record {last}")));
    }
    if parse_hex_digest(&header.prev) != Some(prev) {
        return Err(broken("does not name the hash of its predecessor".into()));
    }
    if let Some(Content { payload, attestation, salt }) = &stored.content {
        for (part, bytes, claimed) in
            [("payload", payload, &header.payload_digest), ("attestation", attestation, &header.attestation_digest)]
        {
            if parse_hex_digest(claimed) != Some(salted_digest(salt, bytes)) {
                return Err(broken(format!("the {part} is not the one that the header commits to")));
            }
        }
    }
    let hash = record_hash(&stored.header);
    Ok((header, hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::IdSource;

    fn draft(sequence: u64, prev: Digest) -> Draft<'static> {
        Draft {
            event_id: IdSource::new(Time(1_000_000), sequence).make(),
            instance_id: IdSource::new(Time(1), 1).make(),
            sequence,
            prev,
            action_ref: "transition_fired",
            actor_ref: "q\"a",
            recorded_at: Time(1_000_000),
            registry_seq: 20,
            retention: Retention { policy_ref: "sox_7_year", retention_until: Some(Time(2)), purge_deadline: None },
            attestation: Attestation::Server { credential_id: Some("0123456789abcdef") },
            payload: br#"{"action":"release"}"#.to_vec(),
            salt: [7; 32],
        }
    }

    fn content(record: &mut Record) -> &mut Content {
        record.content.as_mut().unwrap()
    }

    #[test]
    fn a_purged_record_keeps_its_place_in_the_chain() {
        let mut first = draft(1, ZERO_HASH).into_record().unwrap();
        let second = draft(2, first.record_hash).into_record().unwrap();
        first.content = None;
        let (_, hash) = check_link(None, &first).unwrap();
        assert!(first.is_purged() && first.payload().is_none());
        assert!(check_link(Some((1, hash)), &second).is_ok());
    }

    #[test]
    fn a_chain_of_records_checks_and_every_edit_shows() {
        let first = draft(1, ZERO_HASH).into_record().unwrap();
        let second = draft(2, first.record_hash).into_record().unwrap();
        let (_, hash) = check_link(None, &first).unwrap();
        assert_eq!(hash, first.record_hash);
        assert!(check_link(Some((1, hash)), &second).is_ok());

        assert!(check_link(None, &second).is_err(), "a missing first record");
        assert!(check_link(Some((1, ZERO_HASH)), &second).is_err(), "another predecessor");
        let mut edited = second.clone();
        content(&mut edited).payload[3] ^= 1;
        assert!(check_link(Some((1, hash)), &edited).is_err(), "an edited payload");
        let mut edited = second.clone();
        content(&mut edited).attestation = Attestation::Server { credential_id: None }.into_bytes();
        assert!(check_link(Some((1, hash)), &edited).is_err(), "an edited attestation");
        let mut edited = first.clone();
        edited.header = String::from_utf8(edited.header).unwrap().replace("q\\\"a", "mallory").into_bytes();
        let (_, other) = check_link(None, &edited).unwrap();
        assert!(check_link(Some((1, other)), &second).is_err(), "an edited header shows in its successor");
    }

    /// The exact bytes of spec/record.md section 2. A change here breaks every stored record.
    #[test]
    fn the_header_has_the_specified_bytes() {
        let record = draft(1, ZERO_HASH).into_record().unwrap();
        assert_eq!(
            String::from_utf8(record.header).unwrap(),
            concat!(
                r#"{"v":1,"event_id":"00000000-03e8-7000-8000-000000000001","instance_id":"00000000-0000-7004-8000-000000000001","#,
                r#""sequence":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","#,
                r#""action_ref":"transition_fired","actor_ref":"q\"a","recorded_at_us":1000000,"registry_seq":20,"assurance":"server_attested","#,
                r#""retention":{"policy_ref":"sox_7_year","retention_until_us":2,"purge_deadline_us":null},"#,
                r#""payload_digest":"cf9c731ecbee61bbb3f1a4beb6c1a874225bf34c9071124e6a544e28147db3c0","#,
                r#""attestation_digest":"a5ff2232830252f86740e51c2a1c8db5bb0cd0fb86b3c1613fe35dae126bba8a"}"#
            )
        );
    }

    #[test]
    fn a_header_with_a_repeated_or_unknown_member_is_refused() {
        let record = draft(1, ZERO_HASH).into_record().unwrap();
        let text = String::from_utf8(record.header).unwrap();
        assert!(Header::parse(text.as_bytes()).is_ok());
        let escaped = HeaderView::parse(text.as_bytes()).unwrap();
        assert_eq!((&*escaped.actor_ref, escaped.registry_seq), ("q\"a", 20));
        assert!(HeaderView::parse(text.replacen("{\"v\":1", "{\"v\":1,\"v\":1", 1).as_bytes()).is_err());
        assert!(HeaderView::parse(text.replacen("{\"v\":1", "{\"v\":1,\"x\":1", 1).as_bytes()).is_err());
        assert!(HeaderView::parse(text.replacen("{\"v\":1", "{\"v\":2", 1).as_bytes()).is_err());
        assert!(Header::parse(text.replacen("{\"v\":1", "{\"v\":1,\"v\":1", 1).as_bytes()).is_err());
        assert!(Header::parse(text.replacen("{\"v\":1", "{\"v\":1,\"x\":1", 1).as_bytes()).is_err());
        assert!(Header::parse(text.replacen("{\"v\":1", "{\"v\":2", 1).as_bytes()).is_err());
    }
}
