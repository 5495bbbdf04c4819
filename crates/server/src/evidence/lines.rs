//! The lines of a bundle's files that are not rows of the stores, member by member as `spec/bundle.md` lists them.

use anyhow::Context;
use countersign_engine::evidence::lines::{line, object, us};
use countersign_engine::evidence::{Placed, Scope, Sealed};
use countersign_engine::port::log::RotationRow;
use countersign_kernel::{Digest, Time};
use serde_json::{Value, json};

/// The exact bytes, as the text that they are.
fn text(bytes: &[u8]) -> anyhow::Result<Value> {
    Ok(std::str::from_utf8(bytes).context("a stored part is not UTF-8")?.into())
}

pub fn record(placed: &Placed) -> anyhow::Result<String> {
    let record = &placed.row.record;
    let (payload, attestation, salt) = match &record.content {
        Some(content) => {
            (text(&content.payload)?, text(&content.attestation)?, Digest(content.salt).to_string().into())
        }
        None => (Value::Null, Value::Null, Value::Null),
    };
    Ok(line(&object([
        ("log_index", placed.log_index.into()),
        ("header", text(&record.header)?),
        ("payload", payload),
        ("attestation", attestation),
        ("salt", salt),
        ("proof", placed.inclusion.iter().map(Digest::to_string).collect::<Vec<_>>().into()),
    ])))
}

pub fn document(digest: &Digest, body: &[u8]) -> String {
    line(&object([("digest", digest.to_string().into()), ("body", String::from_utf8_lossy(body).into())]))
}

/// Another key took over, and the log went on from there.
pub fn rotation(row: &RotationRow, proof: &[Digest]) -> String {
    line(&object([
        ("note", row.note.as_str().into()),
        ("proof", proof.iter().map(Digest::to_string).collect::<Vec<_>>().into()),
    ]))
}

/// Who made the bundle, and how much is in it.
pub struct Made<'a> {
    pub by: &'a str,
    pub at: Time,
    pub instances: u64,
    pub records: u64,
}

pub fn manifest(scope: &Scope, sealed: &Sealed, made: &Made<'_>) -> String {
    let scope = match scope {
        Scope::Instance(instance_id) => json!({"instance_id": instance_id.to_string()}),
        Scope::Window(window) => object([("after_us", us(window.after)), ("before_us", us(window.before))]),
    };
    line(&object([
        ("v", 1.into()),
        ("kind", "countersign-evidence".into()),
        ("scope", scope),
        ("origin", sealed.origin.as_str().into()),
        ("tree_size", sealed.checkpoint.size.into()),
        ("registry_sequence", sealed.registry_sequence.into()),
        ("instances", made.instances.into()),
        ("records", made.records.into()),
        ("made_at_us", made.at.0.into()),
        ("made_by", made.by.into()),
        ("software", concat!("countersign ", env!("CARGO_PKG_VERSION")).into()),
    ]))
}
