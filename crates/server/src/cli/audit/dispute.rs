//! `countersign audit dispute`: somebody says that a transition fired without its approval, or by somebody who was not
//! allowed to. Each firing of the action with the life of its gate, record by record; or why it never fired.

use super::case::process::{Approval, Firing, PURGED, Process, Step};
use super::case::run;
use super::case::scopes::Kind;
use super::case::{Check, Entry, Evidence, Finding, Permission, mark};
use super::prove_path::step_lines;
use super::verify::Bar;
use crate::cli::connection::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{self, printable};
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::when;
use clap::Args;
use countersign_client::Client;
use countersign_client::wire::{ApprovalState, Binding, GateFate, QuorumRule, RunView, WorkflowView};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Show the evidence for or against the claim that a transition fired without its approval
#[derive(Args)]
pub struct DisputeArgs {
    /// The process or the run
    instance: String,
    /// The transition's action; for a run the step, or an operator's command (cancel, resume, void, reopen:STEP)
    action: String,
}

/// The answer, as `--json` prints it.
#[derive(Serialize)]
struct Answer {
    instance_id: String,
    subject_ref: String,
    /// `process` or `run`.
    #[serde(skip)]
    noun: &'static str,
    action: String,
    /// `refuted`: it fired, and as it had to; `no-approval-needed`: the same, and nothing guards it; `upheld`: it fired, and not as it had to, or its records do not verify;
    /// `unverifiable`: it fired, and what would tell was purged; `never-fired`.
    result: &'static str,
    /// In one sentence.
    conclusion: String,
    firings: Vec<Disputed>,
    /// Of a step of a run that no gate guards: the records in which it moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    work: Vec<Moment>,
    /// Gates of the action that no firing used.
    unused_gates: Vec<Approval>,
    refused_attempts: Vec<Attempt>,
    /// What `verify-log` found in the chain of the process.
    chain_findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Disputed {
    #[serde(flatten)]
    firing: Firing,
    timeline: Vec<Moment>,
    conclusion: String,
}

/// One record in the life of a gate.
#[derive(Serialize)]
struct Moment {
    /// `opened`, `decided`, `resolved`, `fired`, `recalled`, of a run also `used` (by what an operator did) and `worked`.
    what: &'static str,
    detail: String,
    record: Evidence,
    permission: Option<Permission>,
}

#[derive(Serialize)]
struct Attempt {
    code: Option<String>,
    detail: Option<String>,
    record: Evidence,
}

pub async fn run(context: &Context, args: DisputeArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let mut bar = Bar::new(context);
    let loaded = Process::load(&client, &args.instance, |progress| bar.draw(progress)).await;
    bar.clear();
    let mut of_run = None;
    let mut process = match loaded {
        // Its gates are those of the process beside it.
        Err(error) if error.code() == Some("not-known") => {
            let loaded = run::load(&client, &args.instance, |progress| bar.draw(progress)).await;
            bar.clear();
            let (run, process) = loaded?;
            of_run = Some(run);
            process
        }
        loaded => loaded?,
    };
    let mut answer = answer(&client, &mut process, args.action).await?;
    if let Some(run) = &of_run {
        unguarded(&client, &mut process, run, &mut answer).await?;
    }
    if context.json() {
        output::json(&answer)?;
    } else {
        output::say(&rendered(&answer, Timestamp::now()))?;
    }
    match answer.result {
        "refuted" | "no-approval-needed" | "never-fired" => Ok(()),
        _ => Err(Failure::Reported.into()),
    }
}

async fn answer(client: &Client, process: &mut Process, action: String) -> anyhow::Result<Answer> {
    let mut reached = process.view.declaration.initial_state.clone();
    let log = process.log.findings.iter();
    let chain_findings: Vec<Finding> =
        log.map(|found| Finding::new(&found.code, found.event_id.as_deref(), found.detail.clone())).collect();
    let mut firings = Vec::new();
    for at in 0..process.view.transition_history.len() {
        let Some(firing) = process.firing(client, at, &reached).await? else { break };
        reached.clone_from(&firing.to_state);
        if firing.action == action {
            let timeline = timeline(client, process, &firing).await?;
            let conclusion = conclusion(&firing, &timeline, &chain_findings);
            firings.push(Disputed { firing, timeline, conclusion });
        }
    }
    let mut unused_gates = Vec::new();
    for id in process.gate_ids() {
        if let Some(gate) = process.approval(client, &id).await?
            && gate.action == action
            && gate.fate != GateFate::Consumed
        {
            unused_gates.push(gate);
        }
    }
    let refused = process.records_of("attempt_refused");
    let refused_attempts: Vec<Attempt> = refused
        .filter(|entry| entry.text("attempted") == Some("fire_transition"))
        .map(|entry| Attempt {
            code: entry.text("code").map(str::to_owned),
            detail: entry.text("detail").map(str::to_owned),
            record: entry.evidence(),
        })
        .collect();
    let faults = |one: &Disputed| {
        one.firing.findings.iter().any(|found| found.finding.code != PURGED)
            || doubt(&one.timeline, &chain_findings).is_some()
    };
    let purged = |one: &Disputed| !one.firing.findings.is_empty();
    let result = match firings.as_slice() {
        // Records that do not verify refute nobody who says that one of them is missing.
        [] if !chain_findings.is_empty() => "upheld",
        [] if process.kind != Kind::Process && process.purged("transition_fired") => "unverifiable",
        [] => "never-fired",
        all if all.iter().any(faults) => "upheld",
        all if all.iter().any(purged) => "unverifiable",
        all if all.iter().all(|one| one.firing.guard.is_none()) => "no-approval-needed",
        _ => "refuted",
    };
    let conclusion = match firings.as_slice() {
        [] if !chain_findings.is_empty() => {
            format!("The claim stands: no record says that {action} fired, and the records are not beyond doubt.")
        }
        [] if result == "unverifiable" => {
            format!("The record that would tell whether {action} fired may be a purged one.")
        }
        [] => never(&process.view, &action, &unused_gates),
        [one] => one.conclusion.clone(),
        all => {
            let bad = all.iter().filter(|one| faults(one) || purged(one)).count();
            format!("{action} fired {} times; {bad} of them are not as they had to be.", all.len())
        }
    };
    Ok(Answer {
        instance_id: process.view.instance_id.clone(),
        subject_ref: process.view.subject_ref.clone(),
        noun: if process.kind == Kind::Process { "process" } else { "run" },
        action,
        result,
        conclusion,
        firings,
        work: vec![],
        unused_gates,
        refused_attempts,
        chain_findings,
    })
}

/// A step of a run that no gate guards needs no approval: then it is told who worked on it, and under which grant.
async fn unguarded(client: &Client, process: &mut Process, run: &RunView, answer: &mut Answer) -> anyhow::Result<()> {
    let declared = process.view.declaration.transitions.iter().any(|transition| transition.action == answer.action);
    let Some(state) = run.steps.iter().find(|step| step.name == answer.action).map(|step| step.state_code.clone())
    else {
        return Ok(());
    };
    if declared || answer.result != "never-fired" {
        return Ok(());
    }
    let moves = |entry: &&Entry| {
        let moved = entry.record.payload.get("transitions").and_then(Value::as_array);
        moved.into_iter().flatten().any(|one| one.get("step").and_then(Value::as_str) == Some(&answer.action))
    };
    let records: Vec<Evidence> = process.entries.iter().filter(moves).map(Entry::evidence).collect();
    let mut fine = true;
    for record in records {
        let permission = process.permission(client, &record.event_id).await?;
        let held = match &permission {
            Some(Permission::Held(held)) => format!("who then held {} (grant {})", held.scope, held.grant_id),
            Some(Permission::NotNeeded { why }) => (*why).to_owned(),
            _ => "without a grant".to_owned(),
        };
        fine &= !permission.as_ref().is_some_and(Permission::is_missing) && record.verification.failed().is_none();
        let detail = format!("{} by {}, {held}", record.action_ref, record.actor_ref);
        answer.work.push(Moment { what: "worked", detail, record, permission });
    }
    let action = &answer.action;
    answer.result = if fine { "no-approval-needed" } else { "upheld" };
    answer.conclusion = match fine {
        true => format!("{action} needed no approval: its definition names no gate for it. It is {state}."),
        false => {
            format!("The claim stands: {action} needed no approval, but not all who worked on it are beyond doubt.")
        }
    };
    Ok(())
}

/// Why the records of a firing cannot be relied on: one of them does not verify, by itself or in its chain, or the rows of
/// the process are not what its records say.
fn doubt(timeline: &[Moment], chain: &[Finding]) -> Option<String> {
    let of_record = timeline.iter().map(|moment| &moment.record).find_map(|record| {
        let in_chain = chain.iter().find(|found| found.event_id.as_ref() == Some(&record.event_id));
        let code = record.verification.failed().or(in_chain.map(|found| found.code.as_str()))?;
        Some(format!("its {} does not verify ({code})", record.action_ref))
    });
    let of_grant = || {
        let missing = timeline.iter().find(|moment| moment.permission.as_ref().is_some_and(Permission::is_missing));
        missing.map(|moment| {
            let Evidence { actor_ref, action_ref, .. } = &moment.record;
            format!("{actor_ref} had no grant for its {action_ref} (permission-not-held)")
        })
    };
    let of_rows = || chain.iter().find(|found| found.event_id.is_none());
    of_record.or_else(of_grant).or_else(|| of_rows().map(|found| format!("{} ({})", found.detail, found.code)))
}

/// Every record that speaks of the firing or of its gate, in order.
async fn timeline(client: &Client, process: &mut Process, firing: &Firing) -> anyhow::Result<Vec<Moment>> {
    let gate = firing.approval.as_ref().map(|approval| approval.gate_id.as_str());
    let step_ids: Vec<&str> =
        firing.approval.iter().flat_map(|gate| &gate.steps).map(|step| step.step_id.as_str()).collect();
    let fired = firing.record.as_ref().map(|record| record.event_id.as_str());
    let concerns = |entry: &&Entry| {
        let record = Some(entry.record.event_id.as_str());
        let of_gate = gate.is_some() && entry.gate_id() == gate;
        // A purged record no longer says which gate it spoke of; the rows still do.
        let named = entry.text("step_id").or(entry.text("approval_id"));
        record == fired || of_gate || named.is_some_and(|id| step_ids.contains(&id))
    };
    let moments: Vec<(&'static str, String, Evidence)> = process
        .entries
        .iter()
        .filter(concerns)
        .filter_map(|entry| told(entry).map(|(what, detail)| (what, detail, entry.evidence())))
        .collect();
    let mut timeline = Vec::new();
    for (what, detail, record) in moments {
        let permission = process.permission(client, &record.event_id).await?;
        timeline.push(Moment { what, detail, record, permission });
    }
    Ok(timeline)
}

/// A record in a few words. The chain's own records repeat what those of its gate say.
fn told(entry: &Entry) -> Option<(&'static str, String)> {
    let actor = &entry.record.actor_ref;
    let text = |name: &str| entry.text(name).unwrap_or("(purged)");
    let reason = entry.text("reason").map_or_else(String::new, |reason| format!(": “{reason}”"));
    Some(match entry.record.action_ref.as_str() {
        "gate_opened" => ("opened", format!("{actor} asked for {}{reason}", text("guard"))),
        "gate_decided" => {
            let verb = match text("decision") {
                "approve" => "approved",
                "reject" => "rejected",
                "withdraw" => "withdrew",
                other => other,
            };
            let meaning = entry.meaning().map_or_else(String::new, |meaning| format!(", signed as “{meaning}”"));
            let place = entry.in_place_of();
            ("decided", format!("{actor} {verb}{place}{reason}{meaning}"))
        }
        "chain_resolved" => ("resolved", format!("the quorum is {}", text("outcome"))),
        "transition_fired" => ("fired", format!("{actor} fired {}{reason}", text("action"))),
        action_ref if entry.text("approval_id").is_some() => ("used", format!("{actor}: {action_ref}{reason}")),
        "moot_gate_recalled" => ("recalled", text("moot_kind").to_owned()),
        _ => return None,
    })
}

/// What is to be said of one firing, in one sentence.
fn conclusion(firing: &Firing, timeline: &[Moment], chain: &[Finding]) -> String {
    let what = format!("{} ({} → {})", firing.action, firing.from_state, firing.to_state);
    if let Some(found) = firing.findings.iter().find(|found| found.finding.code != PURGED) {
        return format!(
            "The claim stands: {what} is not beyond doubt, because {} ({}).",
            found.finding.detail, found.finding.code
        );
    }
    if let Some(why) = doubt(timeline, chain) {
        return format!("The claim stands: {what} is not beyond doubt, because {why}.");
    }
    if !firing.findings.is_empty() {
        return format!("Records that would tell whether {what} was approved have been purged.");
    }
    let permitted = match &firing.permission {
        Some(Permission::Held(held)) => {
            format!("{}, who then held {} (grant {})", firing.actor_ref, held.scope, held.grant_id)
        }
        _ => firing.actor_ref.clone(),
    };
    let approved = match &firing.approval {
        None => "and needed no approval: no guard is declared for it".to_owned(),
        Some(approval) => {
            let by: Vec<String> =
                approval.steps.iter().filter(|step| step.state == ApprovalState::Approved).map(decided).collect();
            format!("after the approval that {} asks for, by {}", approval.guard, by.join(" and "))
        }
    };
    let sealed = timeline.iter().all(|moment| moment.record.verification == Check::Verified);
    let records =
        if sealed { "every record of it verifies" } else { "its records are unchanged, but not all sealed yet" };
    format!("{what} was fired by {permitted}, {approved}; {records}.")
}

fn decided(step: &Step) -> String {
    let (by, at) = (step.decided_by.as_deref().unwrap_or("nobody"), step.decided_at.as_deref().unwrap_or("?"));
    let place = step.on_behalf_of.as_ref().map_or_else(String::new, |approver| format!(" for {approver}"));
    format!("{by}{place} at {at}")
}

/// Why it never fired, as far as the process can tell.
fn never(view: &WorkflowView, action: &str, unused: &[Approval]) -> String {
    let declared: Vec<_> =
        view.declaration.transitions.iter().filter(|transition| transition.action == action).collect();
    if declared.is_empty() {
        return format!("{action} never fired, and never could: the declaration has no such action.");
    }
    let was_in = |state: &String| {
        *state == view.declaration.initial_state || view.transition_history.iter().any(|fired| fired.to_state == *state)
    };
    let from: Vec<&str> = declared.iter().map(|transition| transition.from.as_str()).collect();
    if !declared.iter().any(|transition| was_in(&transition.from)) {
        return format!("{action} never fired: it starts in {}, where the process has never been.", from.join(" or "));
    }
    let here = declared.iter().find(|transition| transition.from == view.current_state);
    let gate = unused.iter().rev().find(|gate| gate.binding == Binding::Current).or(unused.last());
    let guard = declared.iter().find_map(|transition| transition.guard.as_deref());
    let why = match (guard, gate) {
        (None, _) => "it needs no approval, and nobody fired it".to_owned(),
        (Some(guard), None) => format!("nobody ever asked for the approval that it needs ({guard})"),
        (Some(guard), Some(gate)) => {
            let by = gate.steps.iter().find_map(|step| step.decided_by.as_deref());
            let by = by.map_or_else(String::new, |by| format!(" by {by}"));
            match gate.state {
                ApprovalState::Pending => format!("its gate ({guard}) still waits"),
                ApprovalState::Approved => format!("its gate ({guard}) was approved{by}, but nobody fired it"),
                ApprovalState::Rejected => format!("its gate ({guard}) was rejected{by}"),
                ApprovalState::Withdrawn => format!("its gate ({guard}) was withdrawn"),
            }
        }
    };
    let now = if here.is_some() { "" } else { ", and the process has left that state" };
    format!("{action} never fired: {why}{now}.")
}

fn rendered(answer: &Answer, now: Timestamp) -> String {
    let mut lines =
        vec![format!("{} of {}", tint(Tint::Strong, &answer.action), tint(Tint::Strong, &answer.subject_ref))];
    let noun = answer.noun;
    lines.push(format!("  {} {}", tint(Tint::Dim, &format!("{noun:<10}")), printable(&answer.instance_id)));
    for one in &answer.firings {
        let firing = &one.firing;
        lines.push(format!(
            "\n{} {} → {} by {}, {}",
            tint(Tint::Strong, &format!("Firing {}:", firing.sequence_number)),
            printable(&firing.from_state),
            printable(&firing.to_state),
            tint(Tint::Strong, &firing.actor_ref),
            when(&firing.fired_at, now)
        ));
        lines.push(table(&one.timeline, now));
        lines.extend(firing.findings.iter().map(|found| format!("  {}", found.finding.shown())));
    }
    if !answer.work.is_empty() {
        lines.push(format!("\n{}", table(&answer.work, now)));
    }
    for gate in &answer.unused_gates {
        lines.push(format!("\n{} {}", tint(Tint::Strong, "Gate not used:"), gate_told(gate)));
        if let Some(opened) = &gate.opened {
            let who = printable(&opened.actor_ref);
            lines.push(format!("  opened by {who}, {}; {}", when(&opened.recorded_at, now), opened.shown()));
        }
        lines.extend(gate.steps.iter().flat_map(|step| step_lines(step, now)).map(|line| format!("  {line}")));
    }
    for attempt in &answer.refused_attempts {
        let code = attempt.code.as_deref().unwrap_or("(purged)");
        lines.push(format!(
            "\n{} {} tried to fire a transition of this {noun} ({}), {}; {}",
            tint(Tint::Wait, "Refused attempt:"),
            tint(Tint::Strong, &attempt.record.actor_ref),
            printable(code),
            when(&attempt.record.recorded_at, now),
            attempt.record.shown()
        ));
    }
    if !answer.chain_findings.is_empty() {
        lines.push(format!("\n{}", tint(Tint::Bad, &format!("The chain of this {noun} does not verify:"))));
        lines.extend(answer.chain_findings.iter().map(|finding| format!("  {}", finding.shown())));
    }
    let colour = match answer.result {
        "refuted" | "no-approval-needed" => Tint::Good,
        "never-fired" => Tint::Strong,
        _ => Tint::Bad,
    };
    lines.push(format!("\n{} {}", tint(colour, verdict(answer.result)), printable(&answer.conclusion)));
    lines.join("\n")
}

fn table(moments: &[Moment], now: Timestamp) -> String {
    let mut table = Table::new(["", "when", "what", "who and why, under which grant, in which record"]);
    for moment in moments {
        let permission = moment.permission.as_ref();
        let fine = moment.record.verification == Check::Verified && !permission.is_some_and(Permission::is_missing);
        let mut told = vec![printable(&moment.detail)];
        told.extend(permission.map(|permission| permission.shown(now)));
        told.push(moment.record.shown());
        table.row([
            mark(fine),
            when(&moment.record.recorded_at, now).replace(" · ", "\n"),
            tint(Tint::Strong, moment.what),
            told.join("\n"),
        ]);
    }
    table.to_string()
}

fn verdict(result: &str) -> &'static str {
    match result {
        "refuted" => "✓ Refuted:",
        "no-approval-needed" => "✓ No approval needed:",
        "never-fired" => "Nothing to dispute:",
        "unverifiable" => "✗ Unverifiable:",
        _ => "✗ Upheld:",
    }
}

fn gate_told(gate: &Approval) -> String {
    let state = match gate.state {
        ApprovalState::Pending => "still waits",
        ApprovalState::Approved => "approved",
        ApprovalState::Rejected => "rejected",
        ApprovalState::Withdrawn => "withdrawn",
    };
    let fate = match (gate.binding, gate.fate) {
        (Binding::Superseded, _) => ", superseded by a later one",
        (_, GateFate::Mooted) => ", moot: the process left the state without it",
        _ => "",
    };
    let rule = match gate.rule {
        Some(QuorumRule::AllOfN | QuorumRule::MOfN | QuorumRule::OneOfN) => {
            format!(" ({} of {})", gate.needed, gate.steps.len())
        }
        None => String::new(),
    };
    format!("{} {}: {state}{fate}{rule}", printable(&gate.guard), printable(&gate.gate_id))
}
