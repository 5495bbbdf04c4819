//! `countersign audit prove-path`: the regulator's question. Did the process move only through what was declared, was every
//! gate cleared by the person it names, and is all of it recorded and sealed?

use super::case::process::{Approval, Claim, ClaimFinding, Firing, PURGED, Process, Step, permission_findings};
use super::case::{Check, Entry, Evidence, Finding, Permission, counted, mark, seal_findings};
use super::prove_run;
use super::verify::Bar;
use crate::cli::connection::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{self, printable};
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::when;
use crate::cli::view::approval as state_shown;
use clap::Args;
use countersign_client::Client;
use countersign_client::wire::{ApprovalState, AssignmentQuery, AssignmentStatus, Gate, VerificationResult};
use countersign_ledger::sha256;
use jiff::Timestamp;
use serde::Serialize;

/// Prove that a process or run moved only as declared, with approval, permission, record and seal
#[derive(Args)]
pub struct ProvePathArgs {
    /// The process or the run
    instance: String,
}

/// The answer, as `--json` prints it. Of a run it has no `firings`: its path is its steps.
#[derive(Serialize)]
pub struct Proof {
    instance_id: String,
    subject_ref: String,
    declaration_ref: String,
    /// The guards whose approvers the initiator named in place of the definition's.
    replaced: Vec<String>,
    current_state: String,
    /// `proved`, or `not-proved`.
    result: &'static str,
    firings: Vec<Firing>,
    claims: Vec<Verdict>,
}

/// What became of one claim.
#[derive(Serialize)]
pub struct Verdict {
    claim: Claim,
    /// `holds`, `fails`, or `unverifiable` where only a purge stands in the way.
    result: &'static str,
    /// What it rests on, in words.
    basis: String,
    findings: Vec<Finding>,
}

pub async fn run(context: &Context, args: ProvePathArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let mut bar = Bar::new(context);
    let loaded = Process::load(&client, &args.instance, |progress| bar.draw(progress)).await;
    let proof = match loaded {
        // A run is no process, and its records have rules of their own.
        Err(error) if error.code() == Some("not-known") => {
            let proved = prove_run::prove(&client, &args.instance, |progress| bar.draw(progress)).await;
            bar.clear();
            proved?
        }
        loaded => {
            bar.clear();
            prove(&client, &mut loaded?).await?
        }
    };
    if context.json() {
        output::json(&proof)?;
    } else {
        output::say(&rendered(&proof, Timestamp::now()))?;
    }
    if proof.result == "proved" { Ok(()) } else { Err(Failure::Reported.into()) }
}

async fn prove(client: &Client, process: &mut Process) -> anyhow::Result<Proof> {
    let (mut firings, mut findings) = (Vec::new(), Vec::new());
    let mut reached = process.view.declaration.initial_state.clone();
    for at in 0..process.view.transition_history.len() {
        let Some(firing) = process.firing(client, at, &reached).await? else { break };
        reached.clone_from(&firing.to_state);
        findings.extend(firing.findings.iter().cloned());
        firings.push(firing);
    }
    let mut add = |claim, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| ClaimFinding { claim, finding }));
    };
    add(Claim::DeclaredPath, path_findings(process, &reached));
    let (permitted, found) = permissions(client, process).await?;
    add(Claim::PermissionHeld, found);
    let (assigned, found) = assignments(client, process).await?;
    add(Claim::Assigned, found);
    add(Claim::RecordedOneToOne, completeness(process));
    add(Claim::SealedAndVerified, seals(process));

    let view = &process.view;
    let guarded = firings.iter().filter(|firing| firing.guard.is_some()).count();
    let count = |action_ref, name: &str| counted(process.records_of(action_ref).count() as u64, name);
    let all = counted(firings.len() as u64, "firing");
    let bases = [
        (
            Claim::DeclaredPath,
            format!(
                "{all}, each declared; replay from {} ends in {reached}, where the process stands",
                view.declaration.initial_state
            ),
        ),
        (
            Claim::GateCleared,
            format!("{guarded} of {all} guarded; each approved before by whom its gate names, and used once"),
        ),
        (
            Claim::Assigned,
            format!(
                "{}, {assigned} waiting: each of these in the in-tray of its approver alone, no other in any",
                counted(view.gates.len() as u64, "approval step")
            ),
        ),
        (Claim::PermissionHeld, format!("{permitted} starts, gate openings and firings, each under an active grant")),
        (
            Claim::RecordedOneToOne,
            format!(
                "{}, {}, {}: one record each, and no record without its row",
                count("transition_fired", "firing"),
                count("gate_opened", "gate"),
                count("gate_decided", "decision")
            ),
        ),
        (
            Claim::SealedAndVerified,
            format!(
                "{} verified, linked without a gap, under a checkpoint of {} entries",
                counted(process.entries.len() as u64, "record"),
                process.log.size
            ),
        ),
    ];
    let claims: Vec<Verdict> = bases
        .into_iter()
        .map(|(claim, basis)| {
            let against = findings.iter().filter(|found| found.claim == claim).map(|found| &found.finding);
            Verdict::of(claim, basis, against)
        })
        .collect();
    let (id, subject) = (view.instance_id.clone(), view.subject_ref.clone());
    let proof = Proof::of(id, subject, view.declaration_ref.clone(), view.current_state.clone(), claims);
    Ok(Proof { replaced: view.replaced.clone(), firings, ..proof })
}

impl Proof {
    /// Proved where every claim holds.
    pub fn of(
        instance_id: String,
        subject_ref: String,
        declaration_ref: String,
        current_state: String,
        claims: Vec<Verdict>,
    ) -> Proof {
        let result = if claims.iter().all(|verdict| verdict.result == "holds") { "proved" } else { "not-proved" };
        let (replaced, firings) = (Vec::new(), Vec::new());
        Proof { instance_id, subject_ref, declaration_ref, replaced, current_state, result, firings, claims }
    }
}

impl Verdict {
    /// What becomes of a claim that these findings speak against, each named once.
    pub fn of<'f>(claim: Claim, basis: String, findings: impl Iterator<Item = &'f Finding>) -> Verdict {
        let mut found: Vec<Finding> = Vec::new();
        for finding in findings {
            if !found.contains(finding) {
                found.push(finding.clone());
            }
        }
        let result = match found.iter().all(|finding| finding.code == PURGED) {
            _ if found.is_empty() => "holds",
            true => "unverifiable",
            false => "fails",
        };
        Verdict { claim, result, basis, findings: found }
    }
}

/// Replay ends where the process stands, and the documents are those that the start committed to.
fn path_findings(process: &Process, reached: &str) -> Vec<Finding> {
    let view = &process.view;
    let mut found = Vec::new();
    if view.current_state != reached {
        let detail = format!("replay ends in {reached}, but the process is said to be in {}", view.current_state);
        found.push(Finding::new("replay-mismatch", None, detail));
    }
    let Some(start) = process.records_of("workflow_started").next() else { return found };
    let event_id = Some(start.record.event_id.as_str());
    if start.check == Check::Purged {
        found.push(Finding::new(PURGED, event_id, "which documents the start committed to was destroyed"));
        return found;
    }
    // The server writes documents so (`spec/record.md`, section 6), and the wire keeps their order.
    for (name, member, document) in [
        ("declaration", "declaration_digest", serde_json::to_vec(&view.declaration)),
        ("gate_spec", "gate_spec_digest", serde_json::to_vec(&view.gate_spec)),
    ] {
        let digest = document.ok().map(|bytes| sha256(&[&bytes]).to_string());
        if start.text(member) != digest.as_deref() {
            let detail = format!("the {name} is not the one that the process was started with");
            found.push(Finding::new("document-mismatch", event_id, detail));
        }
    }
    found
}

/// Acceptance check 4: how many steps wait, and what is wrong with the in-trays. A step that waits has one active assignment, to
/// its approver; one that has ended has none; and no gate waits for a state that the process has left.
async fn assignments(client: &Client, process: &Process) -> anyhow::Result<(usize, Vec<Finding>)> {
    let (mut waiting, mut found) = (0, Vec::new());
    let view = &process.view;
    for gate in &view.gates {
        let mut query = AssignmentQuery {
            task_ref: Some(gate.step_id.clone()),
            status: Some(AssignmentStatus::Active),
            ..AssignmentQuery::default()
        };
        let mut active = Vec::new();
        loop {
            let page = client.assignments(&query).await?.body;
            active.extend(page.items);
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        // What is left of a chain that is resolved waits for nobody.
        let waits = gate.state == ApprovalState::Pending
            && gate.chain.as_ref().is_none_or(|chain| chain.state == ApprovalState::Pending);
        waiting += usize::from(waits);
        let fits = match (waits, active.as_slice()) {
            (true, [one]) => one.assignee_ref == gate.approver_ref,
            (waits, all) => !waits && all.is_empty(),
        };
        if !fits {
            let who: Vec<&str> = active.iter().map(|one| one.assignee_ref.as_str()).collect();
            let whose = if who.is_empty() { "nobody".to_owned() } else { who.join(", ") };
            let detail = format!("step {} is {:?}, in the in-tray of {whose}", gate.step_id, gate.state);
            found.push(Finding::new("assignment-coverage", None, detail));
        }
        if waits && gate.from_state != view.current_state {
            let detail = format!("step {} waits, and the process has left {}", gate.step_id, gate.from_state);
            found.push(Finding::new("moot-invalid", None, detail));
        }
    }
    Ok((waiting, found))
}

/// How many records needed a grant, and what was not granted. Firings have been looked at already.
async fn permissions(client: &Client, process: &mut Process) -> anyhow::Result<(usize, Vec<Finding>)> {
    let (mut needed, mut found) = (process.records_of("transition_fired").count(), Vec::new());
    let asked: Vec<String> = ["workflow_started", "chain_initiated", "gate_opened"]
        .into_iter()
        .flat_map(|action_ref| process.records_of(action_ref))
        .map(|entry| entry.record.event_id.clone())
        .collect();
    for event_id in asked {
        let permission = process.permission(client, &event_id).await?;
        needed += usize::from(matches!(permission, Some(Permission::Held(_) | Permission::Missing { .. })));
        found.extend(permission_findings(permission.as_ref(), &event_id));
    }
    Ok((needed, found))
}

/// Every row has its record and every record its row. Firings have been looked at from their side.
fn completeness(process: &Process) -> Vec<Finding> {
    let view = &process.view;
    let mut found = Vec::new();
    let count =
        |action_ref, is: &dyn Fn(&Entry) -> bool| process.records_of(action_ref).filter(|entry| is(entry)).count();
    let mut one = |what: String, records: usize, action_ref: &'static str| {
        // A purged record no longer says which row it belongs to.
        let purged = process.records_of(action_ref).any(|entry| entry.check == Check::Purged);
        match records {
            1 => {}
            0 if purged => found.push(Finding::new(PURGED, None, format!("the record of {what} may be a purged one"))),
            n => found.push(Finding::new("record-missing", None, format!("{what} has {n} records of {action_ref}"))),
        }
    };
    one("the start".to_owned(), count("workflow_started", &|_| true), "workflow_started");
    for id in process.gate_ids() {
        one(format!("gate {id}"), count("gate_opened", &|entry| entry.gate_id() == Some(&id)), "gate_opened");
    }
    let decided = |gate: &&Gate| matches!(gate.state, ApprovalState::Approved | ApprovalState::Rejected);
    for gate in view.gates.iter().filter(decided) {
        let records = count("gate_decided", &|entry| {
            entry.text("step_id") == Some(&gate.step_id) && Some(&entry.record.actor_ref) == gate.decided_by.as_ref()
        });
        one(format!("the decision on step {}", gate.step_id), records, "gate_decided");
    }
    let mut orphan = |entry: &Entry, has_row: bool| {
        if !has_row && entry.check != Check::Purged {
            let detail = format!("a {} that no row of the process knows", entry.record.action_ref);
            found.push(Finding::new("row-missing", Some(&entry.record.event_id), detail));
        }
    };
    for entry in &process.entries {
        match entry.record.action_ref.as_str() {
            "transition_fired" => {
                orphan(entry, view.transition_history.iter().any(|fired| fired.event_id == entry.record.event_id));
            }
            "gate_opened" | "gate_decided" => {
                orphan(entry, process.gate_ids().iter().any(|id| entry.gate_id() == Some(id)));
            }
            _ => {}
        }
    }
    found
}

/// Each record by itself, and the chain as a whole.
fn seals(process: &Process) -> Vec<Finding> {
    let mut found = seal_findings(&process.entries);
    if process.log.result == VerificationResult::FailedVerification {
        found.extend(
            process
                .log
                .findings
                .iter()
                .map(|finding| Finding::new(&finding.code, finding.event_id.as_deref(), finding.detail.clone())),
        );
    }
    found
}

fn rendered(proof: &Proof, now: Timestamp) -> String {
    let mut lines =
        vec![format!("{} is in {}", tint(Tint::Strong, &proof.subject_ref), tint(Tint::Strong, &proof.current_state))];
    for (name, value) in [("process", &proof.instance_id), ("definition", &proof.declaration_ref)] {
        lines.push(format!("  {} {}", tint(Tint::Dim, &format!("{name:<10}")), printable(value)));
    }
    let approvers = match (proof.declaration_ref.contains('@'), proof.replaced.is_empty()) {
        (false, _) => "declared by the initiator".to_owned(),
        (true, true) => "as the definition fixes them".to_owned(),
        (true, false) => format!("named by the initiator for {}", printable(&proof.replaced.join(", "))),
    };
    lines.push(format!("  {} {approvers}", tint(Tint::Dim, &format!("{:<10}", "approvers"))));
    for firing in &proof.firings {
        lines.push(String::new());
        lines.extend(firing_lines(firing, now));
    }
    let mut table = Table::new(["", "claim", "because"]);
    for verdict in &proof.claims {
        let because = match verdict.result {
            "holds" => printable(&verdict.basis),
            _ => verdict.findings.iter().map(Finding::shown).collect::<Vec<_>>().join("\n"),
        };
        table.row([mark(verdict.result == "holds"), tint(Tint::Strong, title(verdict.claim)), because]);
    }
    lines.push(format!("\n{table}\n"));
    lines.push(match proof.result {
        "proved" => format!("{} every claim holds, from the records alone.", tint(Tint::Good, "Proved:")),
        _ => format!("{} see the claims marked ✗.", tint(Tint::Bad, "Not proved:")),
    });
    lines.join("\n")
}

fn title(claim: Claim) -> &'static str {
    match claim {
        Claim::DeclaredPath => "declared path",
        Claim::GateCleared => "gates cleared",
        Claim::Assigned => "assigned",
        Claim::PermissionHeld => "permission held",
        Claim::RecordedOneToOne => "recorded one to one",
        Claim::SealedAndVerified => "sealed and verified",
    }
}

fn firing_lines(firing: &Firing, now: Timestamp) -> Vec<String> {
    let fine = |claim| !firing.findings.iter().any(|found| found.claim == claim);
    let mut lines = vec![format!(
        "{} {}: {} → {}, by {}, {}",
        tint(Tint::Strong, &format!("{}.", firing.sequence_number)),
        tint(Tint::Strong, &firing.action),
        printable(&firing.from_state),
        printable(&firing.to_state),
        tint(Tint::Strong, &firing.actor_ref),
        when(&firing.fired_at, now)
    )];
    let line = |good: bool, name: &str, text: String| {
        format!("   {} {} {text}", mark(good), tint(Tint::Dim, &format!("{name:<9}")))
    };
    lines.push(line(firing.declared, "declared", "as the declaration has it".to_owned()));
    match (&firing.guard, &firing.approval) {
        (None, _) => lines.push(line(fine(Claim::GateCleared), "gate", tint(Tint::Dim, "none: this move is free"))),
        (Some(guard), approval) => {
            let gate = approval.as_ref().map_or_else(|| "no approval".to_owned(), gate_shown);
            lines.push(line(fine(Claim::GateCleared), "gate", format!("guarded by {}: {gate}", printable(guard))));
        }
    }
    let steps = firing.approval.as_ref().map_or(&[][..], |approval| &approval.steps);
    for text in steps.iter().flat_map(|step| step_lines(step, now)) {
        lines.push(format!("               {text}"));
    }
    let permission = firing.permission.as_ref().map_or_else(|| "unknown".to_owned(), |held| held.shown(now));
    lines.push(line(fine(Claim::PermissionHeld), "permitted", permission));
    let recorded = firing.record.as_ref();
    let verified = recorded.is_some_and(|record| record.verification == Check::Verified);
    let record = recorded.map_or_else(|| "no record".to_owned(), Evidence::shown);
    lines.push(line(fine(Claim::RecordedOneToOne) && verified, "recorded", record));
    lines
}

fn gate_shown(approval: &Approval) -> String {
    let rule = match approval.rule {
        None => String::new(),
        Some(_) => format!(", {} of {} approvers", approval.needed, approval.steps.len()),
    };
    format!("{} {} is {}{rule}", approval.kind, printable(&approval.gate_id), state_shown(approval.state))
}

/// Who decided, when, with which words, and what the signature means.
pub fn step_lines(step: &Step, now: Timestamp) -> Vec<String> {
    let asked = match (step.named_in_gate_spec, step.gate_spec_of) {
        (false, _) => "whom the gate_spec does not name",
        (true, "start") => "named by the initiator in place of the definition",
        (true, "declaration") => "as the gate_spec names, declared by the initiator",
        (true, _) => "as the gate_spec names",
    };
    let (Some(by), Some(at)) = (&step.decided_by, &step.decided_at) else {
        return vec![format!("{} ({asked}): {}", printable(&step.approver_ref), state_shown(step.state))];
    };
    let words =
        step.reason.as_ref().map_or_else(|| "without a reason".to_owned(), |reason| format!("“{}”", printable(reason)));
    let asked = match &step.on_behalf_of {
        None => asked.to_owned(),
        Some(approver) => format!("on behalf of {}, {asked}", printable(approver)),
    };
    let mut lines = vec![format!(
        "{} by {} ({asked}), {}: {words}",
        state_shown(step.state),
        tint(Tint::Strong, by),
        when(at, now)
    )];
    if let Some(record) = &step.record {
        let credential = record.credential.as_deref().unwrap_or("no credential");
        let meaning =
            step.meaning.as_ref().map_or_else(String::new, |meaning| format!(", meaning “{}”", printable(meaning)));
        lines.push(format!("{} with {}{meaning}", printable(&record.assurance), printable(credential)));
        lines.push(record.shown());
    }
    lines
}
