//! Keys that took over from others (`spec/checkpoint.md`, section 6): which keys a trusted one leads to.

use crate::archive::{self, Archive};
use crate::bytes::Digest;
use crate::finding::{Code, Findings, LOG_KEY_LOST, Place};
use crate::json::{self, Value};
use crate::note::{Checkpoint, Rotation, VerifierKey};
use crate::record::require_members;
use crate::tree;
use std::io::{Read, Seek};

/// The trusted keys, and those that they lead to by the notes of this bundle.
pub(super) fn follow<R: Read + Seek>(
    archive: &mut Archive<R>,
    checkpoint: Option<&Checkpoint>,
    trusted: &[VerifierKey],
    findings: &mut Findings,
) -> Vec<VerifierKey> {
    let mut keys = trusted.to_vec();
    let mut before: Option<Rotation> = None;
    let Some(mut lines) = archive.lines(archive::ROTATIONS, findings) else { return keys };
    while let Some(line) = lines.next(findings) {
        let (note, proof) = match read(line) {
            Ok(read) => read,
            Err(fault) => {
                findings.fault(&fault, Code::BundleForm, Place::bundle(), archive::ROTATIONS);
                lines.bad(findings);
                continue;
            }
        };
        match check(&note, &proof, before.as_ref(), checkpoint) {
            Err(detail) => findings.find(Code::RotationInvalid, Place::bundle(), detail),
            Ok(rotation) => {
                if !rotation.signed_by_old() {
                    let detail = format!(
                        "the log's key was replaced at {} entries without the old key's signature: it was lost. Who \
                         trusted the old key got the new one from the organisation",
                        rotation.checkpoint.size
                    );
                    findings.note(LOG_KEY_LOST, None, detail);
                } else if keys.contains(&rotation.from) && !keys.contains(&rotation.to) {
                    keys.push(rotation.to.clone());
                }
                before = Some(rotation);
            }
        }
    }
    keys
}

fn read(line: &[u8]) -> Result<(String, Vec<Digest>), json::Fault> {
    let value = json::parse(line)?;
    require_members(&value, &["note", "proof"], &[])?;
    let form = |detail: &str| json::Fault { kind: json::FaultKind::Syntax, detail: detail.to_owned() };
    let note = value.text("note").ok_or_else(|| form("`note` is not text"))?.to_owned();
    let hash = |value: &Value| value.as_text().and_then(Digest::parse);
    let proof = match value.get("proof") {
        Some(Value::List(hashes)) => hashes.iter().map(hash).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    Ok((note, proof.ok_or_else(|| form("`proof` is not a list of hashes"))?))
}

fn check(
    note: &str,
    proof: &[Digest],
    before: Option<&Rotation>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Rotation, String> {
    let rotation = Rotation::parse(note)?;
    let at = format!("the rotation at {} entries", rotation.checkpoint.size);
    if before.is_some_and(|before| before.to != rotation.from || before.checkpoint.size >= rotation.checkpoint.size) {
        return Err(format!("{at} does not go on from the one before it"));
    }
    let Some(sealed) = checkpoint else { return Ok(rotation) };
    if rotation.checkpoint.origin != sealed.origin || rotation.checkpoint.size > sealed.size {
        return Err(format!("{at} is of another log, or beyond the checkpoint"));
    }
    let (old, new) = (&rotation.checkpoint, sealed);
    if !tree::is_consistent(old.size, new.size, &old.root, &new.root, proof) {
        return Err(format!("the log of the checkpoint does not go on from {at}"));
    }
    Ok(rotation)
}
