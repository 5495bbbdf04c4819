//! `countersign step`: what people and operators do to one step, and `countersign worklist`: what a person has to do.

use super::Keyed;
use super::connection::Context;
use super::failure::Failure;
use super::ids;
use super::input;
use super::output::{self, printable, shell_word};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::{Instant, parse_ahead, parse_millis, when};
use clap::{Args, Subcommand};
use countersign_client::wire::{
    ActOnStep, ActionProblem, BlockStep, CompleteStep, EscalateBlock, EvidencedStep, ExtendDeadline, InboxQuery,
    Preview, ReopenStep, StepHistory, TransitionStep, WaitStep, WorklistItem,
};
use jiff::Timestamp;
use serde::Serialize;

/// Change one step of a run, as its person in charge, operator or reviewer
#[derive(Subcommand)]
pub enum StepCommand {
    /// Claim a step that you are in charge of
    Claim(PlainArgs),
    /// Release a claimed step
    Release(PlainArgs),
    /// Put a step into waiting until an event or a time
    Wait(WaitArgs),
    /// Block a step, with a reason
    Block(BlockArgs),
    /// Unblock a blocked or waiting step, with evidence
    Unblock(EvidenceArgs),
    /// Complete a step
    Complete(CompleteArgs),
    /// Declare that a step cannot be completed; the run continues, red
    CannotComplete(EvidenceArgs),
    /// Escalate: stop retrying a failed step
    Escalate(PlainArgs),
    /// Escalate a block: make it red
    BlockEscalate(BlockEscalateArgs),
    /// Reopen a closed step for correction, with an approval of its gate `reopen:STEP`
    Reopen(ReopenArgs),
    /// Retry a failed step that is on hold
    Retry(PlainArgs),
    /// Extend the deadline of a step
    ExtendDeadline(ExtendArgs),
    /// Re-engage with your overdue step: its deadline starts again
    ReEngage(PlainArgs),
    /// Make a transition of the run's custom machine
    Transition(TransitionArgs),
    /// Show every state that a step had, with time and actor
    History(HistoryArgs),
}

#[derive(Args)]
pub struct HistoryArgs {
    /// The run
    run: String,
    /// The step's name, or STEP/TASK
    step: String,
}

/// The step, and how to go about it.
#[derive(Args)]
pub struct Which {
    /// The run
    run: String,
    /// The step's name, or STEP/TASK
    step: String,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    /// Show what would happen, or which guard refuses (exit code 1), without changing anything
    #[arg(long)]
    preview: bool,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct PlainArgs {
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
pub struct WaitArgs {
    #[command(flatten)]
    which: Which,
    /// The reason for waiting: waiting_dependency, waiting_human, waiting_external or waiting_time_gate (may be repeated)
    #[arg(long, value_name = "FACET")]
    facet: Vec<String>,
    /// The type of the event to wait for
    #[arg(long, value_name = "TYPE")]
    event: Option<String>,
    /// The longest wait
    #[arg(long, value_name = "DURATION", value_parser = parse_millis)]
    timeout: Option<i64>,
}

#[derive(Args)]
pub struct BlockArgs {
    #[command(flatten)]
    which: Which,
    /// The reason of the block: missing_input, missing_approval or config_error
    #[arg(long, value_name = "REASON")]
    block_reason: String,
}

#[derive(Args)]
pub struct EvidenceArgs {
    #[command(flatten)]
    which: Which,
    /// The reference of the evidence: a document, a ticket, a record
    #[arg(long, value_name = "REF")]
    evidence: Option<String>,
}

#[derive(Args)]
pub struct CompleteArgs {
    #[command(flatten)]
    which: Which,
    /// The output: one JSON value, or a field: NAME=TEXT, NAME:=JSON (may be repeated)
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    output: Vec<String>,
}

#[derive(Args)]
pub struct BlockEscalateArgs {
    #[command(flatten)]
    which: Which,
    /// The approval of the gate `escalate:STEP`, required after the threshold
    #[arg(long, value_name = "ID")]
    approval: Option<String>,
}

#[derive(Args)]
pub struct ReopenArgs {
    #[command(flatten)]
    which: Which,
    /// The approval: the step_id of the gate `reopen:STEP`
    #[arg(long, value_name = "ID")]
    approval: String,
    /// The reason of the correction: data_error, policy_change, downstream_dependency_failed or regulatory_recall
    #[arg(long, value_name = "REASON")]
    correction_reason: String,
}

#[derive(Args)]
pub struct ExtendArgs {
    #[command(flatten)]
    which: Which,
    /// The new deadline: RFC 3339, a day, or a delay such as "in 2h"
    #[arg(long, value_name = "TIME", value_parser = parse_ahead)]
    to: Instant,
}

#[derive(Args)]
pub struct TransitionArgs {
    #[command(flatten)]
    which: Which,
    /// The new state
    #[arg(long, value_name = "STATE")]
    to: String,
    /// The trigger of the transition, if several lead to that state
    #[arg(long, value_name = "TRIGGER")]
    trigger: Option<String>,
    /// The reference of the evidence: a document, a ticket, a record
    #[arg(long, value_name = "REF")]
    evidence: Option<String>,
    /// For a waiting state: the reason for waiting (may be repeated)
    #[arg(long, value_name = "FACET")]
    facet: Vec<String>,
    /// For a waiting state: the type of the event to wait for
    #[arg(long, value_name = "TYPE")]
    event: Option<String>,
    /// For a waiting state: the longest wait
    #[arg(long, value_name = "DURATION", value_parser = parse_millis)]
    timeout: Option<i64>,
    /// For a blocked state: missing_input, missing_approval or config_error
    #[arg(long, value_name = "REASON")]
    block_reason: Option<String>,
    /// For a completed state: the output of the step
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    output: Vec<String>,
}

pub async fn run(context: &Context, command: StepCommand) -> anyhow::Result<()> {
    match command {
        StepCommand::Claim(PlainArgs { which }) => plain(context, which, "claim").await,
        StepCommand::Release(PlainArgs { which }) => plain(context, which, "release").await,
        StepCommand::Escalate(PlainArgs { which }) => plain(context, which, "escalate").await,
        StepCommand::Retry(PlainArgs { which }) => plain(context, which, "retry").await,
        StepCommand::ReEngage(PlainArgs { which }) => plain(context, which, "re-engage").await,
        StepCommand::Wait(WaitArgs { which, facet, event, timeout }) => {
            let waiting_facets = (!facet.is_empty()).then_some(facet);
            let reason = which.reason.clone();
            let request = WaitStep {
                waiting_event_type: event,
                timeout_ms: timeout,
                waiting_facet: None,
                waiting_facets,
                reason,
            };
            act(context, which, "wait", &request).await
        }
        StepCommand::Block(BlockArgs { which, block_reason }) => {
            let request = BlockStep { block_reason: Some(block_reason), reason: which.reason.clone() };
            act(context, which, "block", &request).await
        }
        StepCommand::Unblock(args) => evidenced(context, args, "unblock").await,
        StepCommand::CannotComplete(args) => evidenced(context, args, "cannot-complete").await,
        StepCommand::Complete(CompleteArgs { which, output }) => {
            let reason = which.reason.clone();
            let request = CompleteStep { output: input::value(&output)?, outbound_events: None, reason };
            act(context, which, "complete", &request).await
        }
        StepCommand::BlockEscalate(BlockEscalateArgs { which, approval }) => {
            let request = EscalateBlock { approval_id: approval, reason: which.reason.clone() };
            act(context, which, "block-escalate", &request).await
        }
        StepCommand::Reopen(ReopenArgs { which, approval, correction_reason }) => {
            let reason = which.reason.clone();
            let request =
                ReopenStep { approval_id: Some(approval), correction_reason: Some(correction_reason), reason };
            act(context, which, "reopen", &request).await
        }
        StepCommand::ExtendDeadline(ExtendArgs { which, to }) => {
            let request = ExtendDeadline { deadline: to.to_wire(), reason: which.reason.clone() };
            act(context, which, "extend-deadline", &request).await
        }
        StepCommand::Transition(args) => {
            let request = TransitionStep {
                to: args.to,
                trigger_ref: args.trigger,
                evidence_ref: args.evidence,
                waiting_event_type: args.event,
                timeout_ms: args.timeout,
                waiting_facet: None,
                waiting_facets: (!args.facet.is_empty()).then_some(args.facet),
                block_reason: args.block_reason,
                output: input::value(&args.output)?,
                outbound_events: None,
                reason: args.which.reason.clone(),
            };
            act(context, args.which, "transition", &request).await
        }
        StepCommand::History(HistoryArgs { run, step }) => {
            let client = context.client()?;
            let answer = client.step_history(&ids::run(&client, &run).await?, &step).await?;
            if context.json() { output::json(&answer.json) } else { output::say(&told(&answer.body)) }
        }
    }
}

async fn plain(context: &Context, which: Which, verb: &str) -> anyhow::Result<()> {
    let request = ActOnStep { reason: which.reason.clone() };
    act(context, which, verb, &request).await
}

async fn evidenced(context: &Context, args: EvidenceArgs, verb: &str) -> anyhow::Result<()> {
    let request = EvidencedStep { evidence_ref: args.evidence, reason: args.which.reason.clone() };
    act(context, args.which, verb, &request).await
}

async fn act(context: &Context, which: Which, verb: &str, request: &impl Serialize) -> anyhow::Result<()> {
    let Which { run, step, preview, keyed, .. } = which;
    let client = context.client_keyed(&keyed)?;
    let run = ids::run(&client, &run).await?;
    if preview {
        let answer = context.client()?.preview_step(&run, &step, verb, request).await?;
        if context.json() {
            output::json(&answer.json)?
        } else {
            output::say(&foreseen(&step, &answer.body))?
        }
        return if answer.body.ok { Ok(()) } else { Err(Failure::Reported.into()) };
    }
    let answer = client.act_on_step(&run, &step, verb, request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    if verb == "retry" {
        return output::say(&format!("{} will be tried again", tint(Tint::Strong, &step)));
    }
    let state = answer.body.derived_state.as_deref().unwrap_or(&answer.body.state_code).replace('_', " ");
    output::say(&format!(
        "{} is {}; the run is {}",
        tint(Tint::Strong, &step),
        tint(Tint::Strong, &state),
        printable(&answer.body.state)
    ))
}

/// One line for each visit, a reopening beside what it reopens.
fn told(history: &StepHistory) -> String {
    let now = Timestamp::now();
    if history.visits.is_empty() {
        return format!("{} has not begun.", tint(Tint::Strong, &history.step));
    }
    let mut table = Table::new(["when", "state", "by", "transition", "record", "what"]);
    for visit in &history.visits {
        let mut what: Vec<String> = visit.reason.iter().map(|reason| printable(reason)).collect();
        if let Some(closed) = &visit.reopens {
            let why = visit.correction_reason.as_deref().unwrap_or("a correction").replace('_', " ");
            what.push(format!("↺ reopens {} for {}", printable(closed), printable(&why)));
        }
        what.extend(visit.reopened_by.iter().map(|by| format!("↻ reopened by {}", printable(by))));
        let colour = match visit.state_code.as_str() {
            "failed" | "cannot_complete" | "cancelled" | "overdue" => Tint::Bad,
            "waiting" | "blocked" => Tint::Wait,
            "not_started" | "skipped" => Tint::Dim,
            _ => Tint::Good,
        };
        table.row([
            when(&visit.at, now),
            tint(colour, &visit.state_code.replace('_', " ")),
            printable(&visit.actor_ref),
            tint(Tint::Dim, &format!("{} {}", visit.transition_id, visit.trigger_ref)),
            tint(Tint::Dim, &visit.event_id),
            what.join(", "),
        ]);
    }
    if history.purged {
        return format!(
            "{table}\n{}",
            tint(Tint::Dim, "Records of the run were purged; what they said is missing here.")
        );
    }
    table.to_string()
}

/// What would happen, or what refuses.
fn foreseen(step: &str, preview: &Preview) -> String {
    if preview.ok {
        let by = preview.transition_id.as_deref().map_or("no change of its state", |id| id);
        return format!("{} would go on by {}", tint(Tint::Strong, step), tint(Tint::Good, by));
    }
    let problem = |problem: &ActionProblem| format!("  {}: {}", tint(Tint::Bad, &problem.guard), problem.message);
    let problems: Vec<String> = preview.problems.iter().map(problem).collect();
    format!("{} would stay as it is\n{}", tint(Tint::Strong, step), problems.join("\n"))
}

/// List the steps that you are in charge of
#[derive(Args)]
pub struct WorklistArgs {
    #[command(flatten)]
    page: PageArgs,
}

pub async fn worklist(context: &Context, args: WorklistArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let fetch = async |limit, cursor| client.worklist(&InboxQuery { limit, cursor }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No step waits for you.")
}

fn table(items: &[WorklistItem]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["subject", "step", "state", "deadline", "go on with"]);
    for item in items {
        let verb = match item.state_code.as_str() {
            "ready" => "claim",
            "waiting" | "blocked" => "unblock",
            _ => "complete",
        };
        let command = format!("countersign step {verb} {} {}", shell_word(&item.run_id), shell_word(&item.step));
        let late = item.state_code == "overdue";
        table.row([
            tint(Tint::Strong, &item.subject_ref),
            printable(&item.step),
            tint(
                if late { Tint::Bad } else { Tint::Good },
                &item.derived_state.as_ref().unwrap_or(&item.state_code).replace('_', " "),
            ),
            item.deadline.as_deref().map_or_else(String::new, |deadline| when(deadline, now)),
            tint(Tint::Dim, &command),
        ]);
    }
    table
}
