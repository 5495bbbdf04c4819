//! The permission store (`grants.jsonl`) against the registry's records.

use super::rows::Row;
use crate::finding::{Claim, Code, Findings, Place};
use crate::json::{self, Value};
use crate::record::require_members;
use crate::registry::{Grant, Registry};
use std::collections::HashSet;

const MEMBERS: [&str; 7] =
    ["grant_id", "subject_ref", "action_scope", "granted_at_us", "granted_seq", "revoked_at_us", "revoked_seq"];

#[derive(Debug, Default)]
pub struct Seen {
    grants: HashSet<String>,
    last_seq: i64,
}

/// Takes a line of `grants.jsonl`. False where it cannot be read.
pub fn compare(line: &[u8], registry: &Registry, seen: &mut Seen, findings: &mut Findings) -> bool {
    let read = json::parse_integers(line).and_then(|value| require_members(&value, &MEMBERS, &[]).map(|()| value));
    let value = match read {
        Ok(value) => value,
        Err(fault) => {
            findings.fault(&fault, Code::BundleForm, Place::bundle(), crate::archive::GRANTS);
            return false;
        }
    };
    findings.checked(Claim::Completeness);
    let sequence = value.int("granted_seq").unwrap_or_default();
    if sequence < seen.last_seq {
        findings.find(Code::BundleForm, Place::bundle(), "the grants are not in the order of `granted_seq`");
    }
    seen.last_seq = sequence;
    let id = value.text("grant_id").unwrap_or_default();
    match registry.grants().get(id) {
        Some(grant) if seen.grants.insert(id.to_owned()) => compare_row(&value, id, grant, findings),
        Some(_) => findings.find(Code::RecordMissing, Place::bundle(), format!("the stores hold the grant {id} twice")),
        None => {
            let detail = format!("the stores hold the grant {}, which no `grant_made` tells", json::shortened(id));
            findings.find(Code::RecordMissing, Place::bundle(), detail);
        }
    }
    true
}

fn compare_row(value: &Value, id: &str, grant: &Grant, findings: &mut Findings) {
    let mut row = Row::new(value);
    row.text("subject_ref", Some(&grant.subject_ref));
    row.text("action_scope", Some(&grant.action_scope));
    row.int("granted_at_us", Some(grant.granted_at_us));
    row.natural("granted_seq", Some(grant.span.from));
    row.int("revoked_at_us", grant.revoked_at_us);
    row.natural("revoked_seq", grant.span.until);
    if let Some(difference) = row.difference() {
        findings.find(Code::RowMissing, Place::bundle(), format!("the grant {id}: {difference}"));
    }
}

/// After the last line: grants that have no row.
pub fn finish(registry: &Registry, seen: &Seen, findings: &mut Findings) {
    for id in registry.grants().keys().filter(|id| !seen.grants.contains(*id)) {
        let detail = format!("the grant {id} was made, and the stores do not hold it");
        findings.find(Code::RowMissing, Place::bundle(), detail);
    }
}
