//! `countersign audit investigate`: everything that happened in a window of time, in order: who did it, with which
//! credential and under which grant, whether the record verifies, and whether what was guarded had been approved. It
//! prints page by page and keeps no more than a page, the grants, and a line per actor.

use super::case::gates::{Known, approval};
use super::case::scopes::Kind;
use super::case::{Check, Entry, Evidence, Finding, Pager, Permission, REGISTRY, Registry, counted, mark, verified};
use super::verify::Bar;
use crate::cli::connection::Context;
use crate::cli::failure::{Failure, usage};
use crate::cli::output::{self, printable};
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::{self, Instant, at, when};
use clap::Args;
use countersign_client::wire::{self, LogVerification, RecordQuery, VerificationResult, VerifyLog};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Processes and runs whose gates are remembered at once.
const REMEMBERED: usize = 256;

/// List every action in a time window, with its grant, its approval and its verification
#[derive(Args)]
pub struct InvestigateArgs {
    /// The begin of the window: RFC 3339, a day, or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    from: Instant,
    /// The end of the window [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    to: Option<Instant>,
    /// List only actions of this actor
    #[arg(long, value_name = "REF")]
    actor: Option<String>,
    /// List only actions on this process or run
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
}

/// A line of `--json`: one object each, records first, then the log, then the summary.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line<'l> {
    Record(&'l Happened),
    Log(&'l LogVerification),
    Summary(&'l Summary),
}

/// One record of the window.
#[derive(Serialize)]
struct Happened {
    instance_id: String,
    #[serde(flatten)]
    record: Evidence,
    /// What it says, in a few words.
    detail: String,
    permission: Permission,
    findings: Vec<Finding>,
}

#[derive(Default, Serialize)]
struct Summary {
    from: String,
    to: String,
    records: u64,
    /// Not sealed yet, and purged: neither is a finding.
    unsealed: u64,
    purged: u64,
    failing: u64,
    without_grant: u64,
    findings: u64,
    log: Option<VerificationResult>,
    actors: BTreeMap<String, Tally>,
}

/// What one actor did in the window.
#[derive(Default, Serialize)]
struct Tally {
    records: u64,
    started: u64,
    opened: u64,
    decided: u64,
    fired: u64,
    refused: u64,
    failing: u64,
    without_grant: u64,
    credentials: BTreeSet<String>,
    first_at: String,
    last_at: String,
}

pub async fn run(context: &Context, args: InvestigateArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let to = args.to.map_or_else(|| format!("{:.6}", Timestamp::now()), Instant::to_wire);
    let from = args.from.to_wire();
    if to < from {
        return Err(usage("the window ends before it begins: --from comes before --to"));
    }
    let query = RecordQuery {
        instance_id: args.instance,
        actor_ref: args.actor,
        after: Some(from.clone()),
        before: Some(to.clone()),
        ..RecordQuery::default()
    };
    let mut inquiry = Inquiry {
        client: &client,
        registry: Registry::default(),
        processes: HashMap::new(),
        summary: Summary { from, to, ..Summary::default() },
    };
    inquiry.window(context, query).await?;
    inquiry.log(context).await?;
    let summary = &inquiry.summary;
    if context.json() {
        line(&Line::Summary(summary))?;
    } else {
        output::say(&told(summary, Timestamp::now()))?;
    }
    let sound = summary.findings == 0 && summary.log == Some(VerificationResult::Verified);
    if sound { Ok(()) } else { Err(Failure::Reported.into()) }
}

fn line(line: &Line) -> anyhow::Result<()> {
    output::say_verbatim(&serde_json::to_string(line)?)
}

struct Inquiry<'c> {
    client: &'c Client,
    registry: Registry,
    processes: HashMap<String, Known>,
    summary: Summary,
}

impl Inquiry<'_> {
    async fn window(&mut self, context: &Context, query: RecordQuery) -> anyhow::Result<()> {
        let mut pager = Pager::new(self.client, query);
        loop {
            let page = match pager.next().await {
                Ok(page) if page.is_empty() => return Ok(()),
                Ok(page) => verified(self.client, page).await?,
                Err(Error::Refused(problem)) if problem.status >= 500 => {
                    self.summary.findings += 1;
                    self.summary.failing += 1;
                    let told = format!("the window cannot be read on from here: {}", problem.detail);
                    output::complain(&Finding::new(&problem.code, None, told).shown());
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let mut happened = Vec::with_capacity(page.len());
            for entry in &page {
                happened.push(self.examine(entry).await?);
            }
            if context.json() {
                happened.iter().try_for_each(|one| line(&Line::Record(one)))?;
            } else {
                output::say(&table(&happened, Timestamp::now()).to_string())?;
            }
        }
    }

    async fn examine(&mut self, entry: &Entry) -> Result<Happened, Error> {
        let record = &entry.record;
        let (kind, definition) = match record.instance_id.as_str() {
            REGISTRY => (Kind::Process, None),
            instance_id => {
                let known = self.known(instance_id, None).await?;
                (known.kind, known.definition.clone())
            }
        };
        let permission = self.registry.permission(self.client, entry, kind, definition.as_deref()).await?;
        let (mut findings, event_id) = (Vec::new(), Some(record.event_id.as_str()));
        if let Some(code) = entry.check.failed() {
            findings.push(Finding::new(code, event_id, "the record does not verify"));
        }
        match &permission {
            Permission::Missing { scope } => {
                let detail = format!("{} had no active grant of {scope}", record.actor_ref);
                findings.push(Finding::new("permission-not-held", event_id, detail));
            }
            Permission::Held(held) => {
                if let Some(code) = held.verification.failed() {
                    findings.push(Finding::new(code, Some(&held.event_id), "the record of the grant does not verify"));
                }
            }
            Permission::NotNeeded { .. } => {}
        }
        let mut detail = detail(entry);
        if let Some(gate_id) = entry.gate_id().filter(|_| entry.is("gate_decided") || entry.is("transition_fired")) {
            let known = self.known(&record.instance_id, Some(gate_id)).await?;
            match approval(entry, known, gate_id) {
                Ok(approved) => detail.push_str(&approved),
                Err(finding) => findings.push(finding),
            }
        }
        self.summary.count(entry, &permission, &findings);
        let (instance_id, record) = (record.instance_id.clone(), entry.evidence());
        Ok(Happened { instance_id, record, detail, permission, findings })
    }

    /// What is known of a process; read again where it does not know the gate.
    async fn known(&mut self, instance_id: &str, gate_id: Option<&str>) -> Result<&Known, Error> {
        let stale = self.processes.get(instance_id).is_none_or(|known| {
            gate_id.is_some_and(|gate_id| known.gates.get(gate_id).is_none_or(|gate| !gate.is_cleared()))
        });
        if self.processes.len() >= REMEMBERED {
            self.processes.clear();
        }
        if stale {
            let known = Known::read(self.client, instance_id).await?;
            self.processes.insert(instance_id.to_owned(), known);
        }
        Ok(self.processes.entry(instance_id.to_owned()).or_default())
    }

    /// The whole log, whatever the window was: a record that was cut out of it shows nowhere else.
    async fn log(&mut self, context: &Context) -> anyhow::Result<()> {
        let mut bar = Bar::new(context);
        let answer = self.client.verify_log(&VerifyLog::default(), |progress| bar.draw(progress)).await;
        bar.clear();
        let log = answer?.body;
        self.summary.log = Some(log.result);
        if context.json() {
            return line(&Line::Log(&log));
        }
        if log.result == VerificationResult::Verified {
            return output::say(&format!(
                "\n{} the whole log: {} records, {} under a signed checkpoint.",
                tint(Tint::Good, "✓ Verified:"),
                log.records,
                log.size
            ));
        }
        let mut table = Table::new(["finding in the log", "record", "what"]);
        for finding in &log.findings {
            let event_id = finding.event_id.as_deref().unwrap_or("–");
            table.row([tint(Tint::Bad, &finding.code), printable(event_id), printable(&finding.detail)]);
        }
        let count = counted(log.findings.len() as u64, "finding");
        let title = tint(Tint::Bad, "✗ The log fails verification:");
        output::say(&format!("\n{title} {count} in {} records.\n{table}", log.records))
    }
}

/// A record in a few words.
fn detail(entry: &Entry) -> String {
    if entry.check == Check::Purged {
        return "content destroyed".to_owned();
    }
    let text = |name: &str| entry.text(name).unwrap_or("?");
    let reason = entry.text("reason").map_or_else(String::new, |reason| format!(": “{reason}”"));
    match entry.record.action_ref.as_str() {
        "workflow_started" => {
            format!("{} as {}", text("subject_ref"), entry.text("definition").unwrap_or("its own declaration"))
        }
        "gate_opened" => {
            format!("{}, for {}{reason}", text("action"), entry.text("approver_ref").unwrap_or("a quorum"))
        }
        "gate_decided" => {
            let meaning = entry.meaning().map_or_else(String::new, |meaning| format!(", signed as “{meaning}”"));
            let place = entry.in_place_of();
            format!("{} {}{place}{reason}{meaning}", text("decision"), text("action"))
        }
        "transition_fired" => format!("{}: {} → {}", text("action"), text("from_state"), text("new_state")),
        "moot_gate_recalled" => format!("{}: {}", text("moot_action"), text("moot_kind")),
        "chain_resolved" => format!("{}: {}", text("action"), text("outcome")),
        "attempt_refused" => format!("{}: {}", text("attempted"), text("code")),
        "hold_placed" | "hold_released" => format!("{}{reason}", text("record_ref")),
        "record_purged" => format!("{} {}", text("action_ref"), text("event_id")),
        "key_registered" | "key_revoked" => format!("{}, key {}{reason}", text("actor_ref"), text("key_id")),
        "credential_issued" | "credential_revoked" => format!("{}, token {}", text("actor_ref"), text("credential_id")),
        "actor_registered" => format!("{} ({})", text("actor_ref"), text("kind")),
        "grant_made" => format!("{} to {}", text("action_scope"), text("subject_ref")),
        "grant_revoked" => format!("{} of {}", text("action_scope"), text("subject_ref")),
        "delegation_made" => {
            format!("{} substitutes for {}, {}", text("delegate_ref"), text("delegator_ref"), text("scope"))
        }
        "delegation_revoked" => format!("{} no longer substitutes for {}", text("delegate_ref"), text("delegator_ref")),
        "definition_published" => text("name").to_owned(),
        "definition_retired" | "schedule_paused" | "schedule_resumed" => format!("{}{reason}", text("name")),
        "worker_class_frozen" | "worker_class_thawed" => format!("{}{reason}", text("worker_class")),
        "run_started" => format!("{} as {}", text("subject_ref"), text("definition")),
        "pins_captured" | "pins_surveyed" => surveyed(entry),
        "run_cancelled" | "run_paused" | "run_resumed" | "run_stopped" | "run_voided" => {
            let approved = entry.text("approval_id").map_or_else(String::new, |id| format!(" by approval {id}"));
            format!("{}{approved}{reason}", moved(entry))
        }
        "effect_declared" => {
            let done =
                entry.record.payload.get("effect").and_then(|effect| effect.get("done")).and_then(Value::as_bool);
            format!("{}{reason}", if done == Some(true) { "it was done" } else { "nothing was done" })
        }
        action_ref if action_ref.starts_with("step") || action_ref == "time_passed" => moved(entry),
        _ => entry.text("action").unwrap_or_default().to_owned(),
    }
}

/// What was looked at, and what differed.
fn surveyed(entry: &Entry) -> String {
    let list = |name: &str| entry.record.payload.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let pins: Vec<String> = list("pins").iter().filter_map(|pin| Some(pin.get("pin")?.as_str()?.to_owned())).collect();
    let differs = |drift: &Value| format!("; {} pinned {} live {}", drift["pin"], drift["pinned"], drift["live"]);
    let drift: String = list("drift").iter().map(differs).collect();
    let verdict = if drift.is_empty() && entry.is("pins_surveyed") { ", equal" } else { "" };
    format!("{}{verdict}{drift}", pins.join(", "))
}

/// The steps that moved and where to, the run's own move, and how it stands.
fn moved(entry: &Entry) -> String {
    let list = |name: &str| entry.record.payload.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let step = |one: &Value| format!("{} → {}", text(one, "step"), text(one, "to"));
    let run = |one: &Value| format!("run → {}", text(one, "to"));
    let mut all: Vec<String> = list("transitions").iter().map(step).collect();
    all.extend(list("run_transitions").iter().map(run));
    all.extend(entry.text("outcome").map(str::to_owned));
    all.join(", ")
}

impl Summary {
    fn count(&mut self, entry: &Entry, permission: &Permission, findings: &[Finding]) {
        let record = &entry.record;
        let failing = u64::from(entry.check.failed().is_some());
        let without_grant = u64::from(permission.is_missing());
        self.records += 1;
        self.unsealed += u64::from(entry.check == Check::Unsealed);
        self.purged += u64::from(entry.check == Check::Purged);
        self.failing += failing;
        self.without_grant += without_grant;
        self.findings += findings.len() as u64;
        let tally = self.actors.entry(record.actor_ref.clone()).or_default();
        if tally.records == 0 {
            tally.first_at.clone_from(&record.recorded_at);
        }
        tally.last_at.clone_from(&record.recorded_at);
        tally.records += 1;
        tally.started += u64::from(entry.is("workflow_started") || entry.is("run_started"));
        tally.opened += u64::from(entry.is("gate_opened"));
        tally.decided += u64::from(entry.is("gate_decided"));
        tally.fired += u64::from(entry.is("transition_fired"));
        tally.refused += u64::from(entry.is("attempt_refused"));
        tally.failing += failing;
        tally.without_grant += without_grant;
        tally.credentials.extend(entry.credential());
    }
}

fn table(happened: &[Happened], now: Timestamp) -> Table {
    let mut table = Table::new(["", "recorded", "who", "what, under which grant, in which record"]);
    for one in happened {
        let record = &one.record;
        let credential = record.credential.as_deref().unwrap_or(&record.assurance);
        let place = if one.instance_id == REGISTRY { "registry" } else { one.instance_id.as_str() };
        let mut what = vec![
            format!("{}  {}", tint(Tint::Strong, &record.action_ref), printable(&one.detail)),
            under(&one.permission),
            format!("{}  {}", record.shown(), tint(Tint::Dim, &format!("in {place}"))),
        ];
        what.extend(one.findings.iter().map(Finding::shown));
        table.row([
            mark(one.findings.is_empty()),
            when(&record.recorded_at, now).replace(" · ", "\n"),
            format!("{}\n{}", tint(Tint::Strong, &record.actor_ref), tint(Tint::Dim, credential)),
            what.join("\n"),
        ]);
    }
    table
}

fn under(permission: &Permission) -> String {
    match permission {
        Permission::NotNeeded { why } => tint(Tint::Dim, &format!("none needed: {why}")),
        Permission::Missing { scope } => tint(Tint::Bad, &format!("NONE: no active grant of {scope}")),
        Permission::Held(held) => {
            let since = match &held.revoked_at {
                None => tint(Tint::Dim, &format!("since {}", at(&held.granted_at))),
                Some(revoked) => tint(Tint::Wait, &format!("{} – revoked {}", at(&held.granted_at), at(revoked))),
            };
            format!("{}, grant {}, {since}", printable(&held.scope), printable(&held.grant_id))
        }
    }
}

fn told(summary: &Summary, now: Timestamp) -> String {
    if summary.records == 0 {
        return format!("Nothing was recorded from {} to {}.", at(&summary.from), at(&summary.to));
    }
    let mut table = Table::new([
        "",
        "actor",
        "records",
        "started",
        "opened",
        "decided",
        "fired",
        "refused",
        "no grant",
        "failing",
        "last",
        "credentials",
    ]);
    for (actor, tally) in &summary.actors {
        let credentials: Vec<String> = tally.credentials.iter().map(|credential| printable(credential)).collect();
        table.row([
            mark(tally.failing == 0 && tally.without_grant == 0),
            tint(Tint::Strong, actor),
            tally.records.to_string(),
            tally.started.to_string(),
            tally.opened.to_string(),
            tally.decided.to_string(),
            tally.fired.to_string(),
            tally.refused.to_string(),
            tally.without_grant.to_string(),
            tally.failing.to_string(),
            when(&tally.last_at, now),
            credentials.join("\n"),
        ]);
    }
    let mut rest = Vec::new();
    for (count, what) in [(summary.unsealed, "not sealed yet"), (summary.purged, "purged")] {
        if count > 0 {
            rest.push(format!(", {count} {what}"));
        }
    }
    let sound = summary.findings == 0 && summary.log == Some(wire::VerificationResult::Verified);
    let verdict = if sound { tint(Tint::Good, "✓ Nothing amiss:") } else { tint(Tint::Bad, "✗ Findings:") };
    format!(
        "\n{table}\n\n{verdict} {} to {}: {}, {} failing verification, {} without a grant, {}{}.",
        at(&summary.from),
        at(&summary.to),
        counted(summary.records, "record"),
        summary.failing,
        summary.without_grant,
        counted(summary.findings, "finding"),
        rest.concat()
    )
}
