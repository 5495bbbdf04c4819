//! What a proposal says (`spec/proposal.md`): the member `proposal` of its records, and the request of its approval.

use countersign_kernel::Digest;
use countersign_kernel::process::{Attachment, PUBLISHED_KINDS, ProposerClass, Request};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_ledger::{parse_hex_digest, sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The member of a record with what is proposed, and the one with what became of it.
pub const PROPOSAL: &str = "proposal";
pub const MERGED: &str = "merged";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    pub proposal_kind: String,
    pub target: String,
    pub base_version: u32,
    /// Of the proposed document, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub proposer_class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    pub affected: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed_action: Option<Map<String, Value>>,
    pub reason: String,
}

impl Content {
    /// Reads what a record or a request holds.
    pub fn parse(text: &str) -> Result<Content, Refusal> {
        serde_json::from_str(text).map_err(|error| broken(&error.to_string()))
    }

    /// As it is recorded and hashed.
    pub fn text(&self) -> Result<String, Refusal> {
        serde_json::to_string(self).map_err(|error| broken(&error.to_string()))
    }

    pub fn attachment(&self, document: Option<Arc<str>>) -> Result<Attachment, Refusal> {
        let document = self.document().zip(document);
        Ok(Attachment { member: PROPOSAL, text: self.text()?.into(), document })
    }

    /// What the approvers are asked.
    pub fn request(&self) -> Result<Request, Refusal> {
        let text = self.text()?;
        Ok(Request { digest: sha256(&[text.as_bytes()]), text: text.into() })
    }

    pub fn document(&self) -> Option<Digest> {
        self.digest.as_deref().and_then(parse_hex_digest)
    }

    pub fn class(&self) -> Result<ProposerClass, Refusal> {
        ProposerClass::parse(&self.proposer_class).ok_or_else(|| broken("an unknown proposer_class"))
    }

    /// Whether its merge publishes a version of a definition.
    pub fn is_of_definition(&self) -> bool {
        PUBLISHED_KINDS.contains(&&*self.proposal_kind)
    }

    /// The version that its merge publishes.
    pub fn next_version(&self) -> u32 {
        self.base_version.saturating_add(1)
    }
}

fn broken(why: &str) -> Refusal {
    Refusal::new(Code::RecordingFailure, format!("what is proposed cannot be read: {why}"))
}
