//! A run as the process beside it, which carries its gates (`spec/run.md`): a gate of a run is judged as one of a process. Who
//! approves is read from the published definition, and held against what the start of the run committed to.

use super::process::Process;
use super::scopes::Kind;
use super::{Check, Entry, Registry, entries_of};
use anyhow::Context as _;
use countersign_client::Client;
use countersign_client::wire::{
    Declaration, Finding, GateSpec, HistoryEntry, Progress, RunView, VerifyLog, WorkflowView,
};
use countersign_ledger::document::{Document, declaration_document, published_gates_document};
use countersign_ledger::sha256;
use serde_json::Value;

/// The run, and the process beside it.
pub async fn load(client: &Client, run_id: &str, progress: impl FnMut(Progress)) -> anyhow::Result<(RunView, Process)> {
    let run = client.run(run_id).await?.body;
    let entries = entries_of(client, &run.run_id).await?;
    let request = VerifyLog { instance_id: Some(run.run_id.clone()) };
    let mut log = client.verify_log(&request, progress).await?.body;
    let [declaration, gate_spec] = documents(client, &run.definition).await?;
    if let Some(start) = entries.iter().find(|entry| entry.is("run_started") && entry.check != Check::Purged) {
        for (member, document) in [("declaration_digest", &declaration), ("gate_spec_digest", &gate_spec)] {
            if start.text(member) != Some(&document.digest.to_string()) {
                log.findings.push(Finding {
                    code: "document-mismatch".to_owned(),
                    event_id: Some(start.record.event_id.clone()),
                    detail: format!("`{member}` of the start is not that of the published definition"),
                });
            }
        }
    }
    let declaration: Declaration = serde_json::from_slice(&declaration.bytes)?;
    let gate_spec: GateSpec = serde_json::from_slice(&gate_spec.bytes)?;
    let view = WorkflowView {
        instance_id: run.run_id.clone(),
        subject_ref: run.subject_ref.clone(),
        initiator_ref: run.initiator_ref.clone(),
        declaration_ref: run.definition.clone(),
        current_state: declaration.initial_state.clone(),
        declaration,
        gate_spec,
        replaced: vec![],
        started_at: run.started_at.clone(),
        transition_history: entries.iter().filter_map(passed).collect(),
        history_next: None,
        gates: run.gates.clone(),
    };
    let kind = if run.parent_run_id.is_some() { Kind::Child } else { Kind::Run };
    Ok((run, Process { view, kind, entries, registry: Registry::default(), log }))
}

/// Declaration and gate_spec of the process beside a run of this definition, `name@version`.
async fn documents(client: &Client, definition: &str) -> anyhow::Result<[Document; 2]> {
    let (name, version) = definition.rsplit_once('@').context("the run names no version of its definition")?;
    let published = client.definition_version(name, version.parse()?).await?.body;
    let parsed = countersign_definition::parse(published.document.as_bytes()).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        anyhow::anyhow!("{definition} cannot be read: {first}")
    })?;
    let command = parsed.published_as(published.document, |bytes| sha256(&[bytes]));
    Ok([declaration_document(&command.declaration)?, published_gates_document(&command.gate_spec)?])
}

/// A gate that was passed. A purged record no longer says which.
fn passed(entry: &Entry) -> Option<HistoryEntry> {
    let text = |name: &str| entry.text(name).map(str::to_owned);
    let (record, payload) = (&entry.record, &entry.record.payload);
    Some(HistoryEntry {
        transition_id: text("transition_id").filter(|_| entry.is("transition_fired"))?,
        sequence_number: payload.get("sequence_number").and_then(Value::as_u64)?,
        from_state: text("from_state")?,
        action: text("action")?,
        to_state: text("new_state")?,
        fired_at: record.recorded_at.clone(),
        actor_ref: record.actor_ref.clone(),
        guard_satisfied: entry.gate_id().map(|_| true),
        step_id: text("step_id"),
        chain_id: text("chain_id"),
        event_id: record.event_id.clone(),
    })
}
