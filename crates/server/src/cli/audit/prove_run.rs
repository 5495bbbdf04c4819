//! `countersign audit prove-path` of a run. The path of a run is its steps, whose rules are those of `spec/run.md`; the server
//! checks them with the verifier, and what it finds speaks against one claim or another. The grants are looked at here.

use super::case::gates::{Known, approval};
use super::case::process::{Claim, permission_findings};
use super::case::scopes::Kind;
use super::case::{Check, Entry, Finding, Permission, Registry, counted, entries_of, seal_findings};
use super::prove_path::{Proof, Verdict};
use countersign_client::wire::{LogVerification, Progress, RunView, VerifyLog};
use countersign_client::{Client, Error};

/// What a run is judged by.
struct Evidence {
    run: RunView,
    /// Every record of the run, in order.
    entries: Vec<Entry>,
    known: Known,
    /// `verify-log` for this run alone.
    log: LogVerification,
}

pub async fn prove(client: &Client, run_id: &str, progress: impl FnMut(Progress)) -> Result<Proof, Error> {
    let evidence = Evidence::load(client, run_id, progress).await?;
    let mut findings: Vec<(Claim, Finding)> = evidence.by_claim();
    let (permitted, missing) = evidence.permissions(client).await?;
    findings.extend(missing.into_iter().map(|finding| (Claim::PermissionHeld, finding)));
    let seals = seal_findings(&evidence.entries);
    findings.extend(seals.into_iter().map(|finding| (Claim::SealedAndVerified, finding)));
    let (passed, unapproved) = evidence.gates();
    findings.extend(unapproved.into_iter().map(|finding| (Claim::GateCleared, finding)));

    let records = counted(evidence.entries.len() as u64, "record");
    let steps = evidence.run.gates.len() as u64;
    let bases = [
        (Claim::DeclaredPath, format!("{records} replayed; every step moved as its definition and spec/run.md allow")),
        (Claim::GateCleared, format!("{} passed, each approved before by whom it names", counted(passed, "gate"))),
        (
            Claim::Assigned,
            format!("{}: who has to decide has it in their in-tray, and nobody else", counted(steps, "approval step")),
        ),
        (Claim::PermissionHeld, format!("{} under an active grant", counted(permitted, "act"))),
        (Claim::RecordedOneToOne, "every row has its record, and every record its row".to_owned()),
        (
            Claim::SealedAndVerified,
            format!("{records} verified, linked without a gap, under a checkpoint of {} entries", evidence.log.size),
        ),
    ];
    let claims: Vec<Verdict> = bases
        .into_iter()
        .map(|(claim, basis)| Verdict::of(claim, basis, findings.iter().filter(|(of, _)| *of == claim).map(|(_, f)| f)))
        .collect();
    let run = evidence.run;
    Ok(Proof::of(run.run_id, run.subject_ref, run.definition, run.state, claims))
}

impl Evidence {
    async fn load(client: &Client, run_id: &str, progress: impl FnMut(Progress)) -> Result<Evidence, Error> {
        let run = client.run(run_id).await?.body;
        let entries = entries_of(client, &run.run_id).await?;
        let known = Known::read(client, &run.run_id).await?;
        let request = VerifyLog { instance_id: Some(run.run_id.clone()) };
        let log = client.verify_log(&request, progress).await?.body;
        Ok(Evidence { run, entries, known, log })
    }

    fn by_claim(&self) -> Vec<(Claim, Finding)> {
        let found = self.log.findings.iter();
        found
            .map(|found| {
                (claim_of(&found.code), Finding::new(&found.code, found.event_id.as_deref(), found.detail.clone()))
            })
            .collect()
    }

    /// How many records needed a grant, and what was not granted.
    async fn permissions(&self, client: &Client) -> Result<(u64, Vec<Finding>), Error> {
        let (mut registry, mut needed, mut found) = (Registry::default(), 0, Vec::new());
        let kind = if self.known.kind == Kind::Process { Kind::Run } else { self.known.kind };
        for entry in &self.entries {
            let permission = registry.permission(client, entry, kind, self.known.definition.as_deref()).await?;
            needed += u64::from(matches!(permission, Permission::Held(_) | Permission::Missing { .. }));
            found.extend(permission_findings(Some(&permission), &entry.record.event_id));
        }
        Ok((needed, found))
    }

    /// How many gates were passed, and which without the approvals that they need.
    fn gates(&self) -> (u64, Vec<Finding>) {
        let readable = |entry: &&Entry| entry.check != Check::Purged;
        let fired = || self.entries.iter().filter(|entry| entry.is("transition_fired")).filter(readable);
        let judged = fired().filter_map(|entry| approval(entry, &self.known, entry.gate_id()?).err());
        (fired().count() as u64, judged.collect())
    }
}

/// Against which claim a finding speaks (`spec/checks.md`).
fn claim_of(code: &str) -> Claim {
    match code {
        "gate-not-approved" | "wrong-approver" | "approval-reused" | "unguarded-firing" => Claim::GateCleared,
        "assignment-coverage" | "moot-invalid" => Claim::Assigned,
        "document-mismatch"
        | "undeclared-transition"
        | "replay-mismatch"
        | "runbook-violation"
        | "compensation-order" => Claim::DeclaredPath,
        "record-missing" | "row-missing" | "binding-invalid" | "output-missing" => Claim::RecordedOneToOne,
        "permission-not-held" => Claim::PermissionHeld,
        _ => Claim::SealedAndVerified,
    }
}
