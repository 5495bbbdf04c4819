//! `countersign runs`: list, show and steer runs.

mod sidecar;

use super::Keyed;
use super::connection::Context;
use super::failure::{Failure, advised, usage};
use super::ids;
use super::input;
use super::output::{self, printable, shell_word};
use super::page::{PageArgs, collect};
use super::run::{InputArgs, told};
use super::run_view::{MAX_ROWS, is_ended, render, rollup_tint, state_text, whole, why};
use super::schedule::idle_table;
use super::table::{Fitted, Tint, tint};
use super::terminal;
use super::time::{self, Instant, ago, at};
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{
    ControlRun, DeclareEffect, DeclaredResult, EvidencedStep, FromStep, RunMoved, RunQuery, RunSummary, RunView,
    StartRun, StepView,
};
use countersign_client::{Answer, Client};
use jiff::Timestamp;
use std::collections::HashSet;

/// List, show and control runs
#[derive(Subcommand)]
pub enum RunsCommand {
    /// List runs, the newest first
    List(ListArgs),
    /// Show a run: its state, steps, gates and possible next commands
    Show(ShowArgs),
    /// Cancel a run: revoke its leases; completed steps stay as they are, or are undone with --compensate
    Cancel(CancelArgs),
    /// Pause a run: begin no further step; work under way may finish
    Pause(HaltArgs),
    /// Resume a paused or stopped run
    Resume(ResumeArgs),
    /// Stop a run: revoke its leases and return its steps to ready
    Stop(HaltArgs),
    /// Void a run: end it and free its idempotency and concurrency keys
    Void(EndArgs),
    /// Start a new run that begins behind the finished steps of this one
    Retry(RetryArgs),
    /// Unblock a step: return it to its queue
    Unblock(UnblockArgs),
    /// Declare the effect of an attempt that left no verdict
    DeclareEffect(DeclareArgs),
    /// Write the files of a runbook's run: state.json, a report per phase, and a report of a stop
    Sidecar(sidecar::SidecarArgs),
}

#[derive(Args)]
pub struct ListArgs {
    /// List only those in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// List only those of this definition
    #[arg(long, value_name = "NAME")]
    definition: Option<String>,
    /// List only those with this subject
    #[arg(long, value_name = "REF")]
    subject: Option<String>,
    /// List only those started at or after this time: RFC 3339, a day, or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    after: Option<Instant>,
    /// List only those started at or before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    before: Option<Instant>,
    /// List the oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateArg {
    Idle,
    Queued,
    Executing,
    Blocked,
    Paused,
    Stopped,
    Compensating,
    Completed,
    Failed,
    Cancelled,
    Voided,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The run
    run: String,
    /// Show every step, also of a long run
    #[arg(long)]
    all_steps: bool,
    /// Also show the inputs and outputs of the steps
    #[arg(long)]
    full: bool,
}

#[derive(Args)]
pub struct ResumeArgs {
    /// The run
    run: String,
    /// The approval of this stop, required for a runbook: `runs show` names it
    #[arg(long, value_name = "STEP_ID")]
    approval: Option<String>,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct HaltArgs {
    /// The run
    run: String,
    /// The reason, for the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct EndArgs {
    #[command(flatten)]
    halt: HaltArgs,
    /// The approval to use, if a gate guards the command: `runs show` names it [default for cancel: the approved one]
    #[arg(long, value_name = "STEP_ID")]
    approval: Option<String>,
}

#[derive(Args)]
pub struct CancelArgs {
    #[command(flatten)]
    end: EndArgs,
    /// Undo the completed steps by their compensations, the last one first; then the run is cancelled
    #[arg(long)]
    compensate: bool,
}

#[derive(Args)]
pub struct RetryArgs {
    /// The run to start from
    run: String,
    /// The first step to run again [default: the first that did not complete]
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    #[command(flatten)]
    input: InputArgs,
    /// Watch the new run until it ends
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct UnblockArgs {
    /// The run
    run: String,
    /// The step's name
    step: String,
    /// Reference to what shows that the block is resolved
    #[arg(long, value_name = "REF")]
    evidence: Option<String>,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct DeclareArgs {
    /// The run
    run: String,
    /// The step's name
    step: String,
    /// The effect of the attempt
    #[arg(value_enum)]
    result: ResultArg,
    /// The evidence for it, for the record
    #[arg(long)]
    reason: String,
    /// The output of the step: JSON, or NAME=TEXT, NAME:=JSON (may be repeated)
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    output: Vec<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ResultArg {
    /// The attempt had its effect
    Completed,
    /// The attempt had no effect
    NotDone,
}

pub async fn run(context: &Context, command: RunsCommand) -> anyhow::Result<()> {
    match command {
        RunsCommand::List(args) => list(context, args).await,
        RunsCommand::Show(args) => show(context, &args).await,
        RunsCommand::Cancel(args) => cancel(context, args).await,
        RunsCommand::Pause(args) => control(context, "pause", args).await,
        RunsCommand::Resume(args) => resume(context, args).await,
        RunsCommand::Stop(args) => control(context, "stop", args).await,
        RunsCommand::Void(args) => end(context, "void", args, false).await,
        RunsCommand::Retry(args) => retry(context, args).await,
        RunsCommand::Unblock(args) => {
            let request = EvidencedStep { evidence_ref: args.evidence, reason: args.reason };
            let client = context.client_keyed(&args.keyed)?;
            let run = ids::run(&client, &args.run).await?;
            let answer = client.act_on_step(&run, &args.step, "unblock", &request).await?;
            let state = answer.body.state.clone();
            moved(context, &run, &Answer { body: RunMoved { state }, json: answer.json, status: answer.status })
        }
        RunsCommand::DeclareEffect(args) => declare_effect(context, args).await,
        RunsCommand::Sidecar(args) => sidecar::run(context, args).await,
    }
}

async fn resume(context: &Context, args: ResumeArgs) -> anyhow::Result<()> {
    let request = ControlRun { reason: args.reason, approval_id: args.approval, compensate: false };
    let client = context.client_keyed(&args.keyed)?;
    let run = ids::run(&client, &args.run).await?;
    let show = format!("countersign runs show {}", shell_word(&run));
    let answer = client.control_run(&run, "resume", &request).await;
    let answer = answer.map_err(|error| {
        advised(error, |problem| {
            let guarded = problem.code == "transition_refused_by_guard";
            guarded.then(|| format!("{show} says who decides, and what comes first"))
        })
    })?;
    moved(context, &run, &answer)?;
    if answer.body.state == "stopped" && !context.json() {
        output::complain("stopped again: the pins are not as they were approved; a new approval was asked for");
        output::next([show])?;
        return Err(Failure::Reported.into());
    }
    Ok(())
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    if let Some(StateArg::Idle) = args.state {
        return idle(context, &client, args.definition.as_deref()).await;
    }
    let state = args.state.and_then(|state| state.to_possible_value().map(|value| value.get_name().to_owned()));
    let query = RunQuery {
        state,
        definition: args.definition.clone(),
        subject_ref: args.subject,
        started_after: args.after.map(Instant::to_wire),
        started_before: args.before.map(Instant::to_wire),
        order: (!args.oldest_first).then(|| "desc".to_owned()),
        ..RunQuery::default()
    };
    let fetch = async |limit, cursor| client.runs(&RunQuery { limit, cursor, ..query.clone() }).await;
    let listed = collect(&args.page, fetch).await?;
    let none = match args.definition.filter(|_| listed.items.is_empty() && !context.json()) {
        Some(definition) => none_of(&client, &definition).await,
        None => "No runs. `countersign run NAME` starts one.".to_owned(),
    };
    listed.print(context.json(), table, &none)
}

/// What waits for its next tick or event has no run yet.
async fn idle(context: &Context, client: &Client, definition: Option<&str>) -> anyhow::Result<()> {
    let answer = client.idle_runs(definition).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let idle = answer.body.idle.unwrap_or_default();
    if idle.is_empty() {
        return output::say("Nothing waits for a tick or an event.");
    }
    output::say(&idle_table(&idle).to_string())
}

/// A definition without such runs, or no definition at all.
async fn none_of(client: &Client, definition: &str) -> String {
    let name = definition.split('@').next().unwrap_or_default();
    match client.definition(name).await {
        Err(error) if error.code() == Some("not-known") => {
            format!("No workflow {name} is published here; `countersign definition list` shows what is.")
        }
        _ => format!("No such runs of {definition}."),
    }
}

fn table(runs: &[RunSummary]) -> Fitted {
    let (now, width) = (Timestamp::now(), terminal::width());
    // Somebody who looks asks how long ago; in a file that would soon be wrong.
    let time = |text: &str| if width.is_some() { ago(text, now) } else { at(text) };
    // In the order in which they are given up where there is no room for them: the last first.
    let mut table = Fitted::new(&["run", "state", "definition", "subject", "started", "ended", "initiator"])
        .keeping(&["definition", "subject"]);
    let short = width.is_some_and(|width| width < WIDE) && are_told_apart(runs);
    for run in runs {
        table.row(vec![
            printable(if short { run.run_id.get(..SHORT_ID).unwrap_or(&run.run_id) } else { &run.run_id }),
            coloured(run),
            printable(&run.definition),
            // A run that was started without a subject is about itself.
            tint(
                Tint::Strong,
                Some(&*run.subject_ref).filter(|s| s.strip_prefix("run:") != Some(&run.run_id)).unwrap_or(""),
            ),
            time(&run.started_at),
            run.ended_at.as_deref().map_or_else(String::new, time),
            printable(&run.initiator_ref),
        ]);
    }
    table.within(width)
}

/// With less room than this, ids are shown by their beginning, which commands take too.
const WIDE: usize = 120;
const SHORT_ID: usize = 18;

fn are_told_apart(runs: &[RunSummary]) -> bool {
    let short: HashSet<&str> = runs.iter().filter_map(|run| run.run_id.get(..SHORT_ID)).collect();
    short.len() == runs.len()
}

/// `executing, red`: the colour where the state does not say it.
fn coloured(run: &RunSummary) -> String {
    let (state, colour) = (state_text(&run.state, run.outcome.as_deref()), &*run.rollup.state_code);
    if is_ended(&run.state) || !matches!(colour, "red" | "yellow") {
        return state;
    }
    format!("{state}, {}", tint(rollup_tint(colour), colour))
}

async fn show(context: &Context, args: &ShowArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let answer = whole(&client, &ids::run(&client, &args.run).await?).await?;
    let rows = if args.all_steps { usize::MAX } else { MAX_ROWS };
    print(context, &answer, rows)?;
    if context.json() {
        return Ok(());
    }
    let details = why::details(&client, &answer.body, args.full, rows).await?;
    match why::section(&answer.body, &details, args.full, Timestamp::now()) {
        Some(section) => output::say(&format!("\n{section}")),
        None => Ok(()),
    }
}

pub fn print(context: &Context, answer: &Answer<RunView>, rows: usize) -> anyhow::Result<()> {
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&render(&answer.body, rows, Timestamp::now()))
}

async fn control(context: &Context, action: &str, halt: HaltArgs) -> anyhow::Result<()> {
    end(context, action, EndArgs { halt, approval: None }, false).await
}

async fn end(context: &Context, action: &str, args: EndArgs, compensate: bool) -> anyhow::Result<()> {
    let EndArgs { halt, approval } = args;
    let request = ControlRun { reason: Some(halt.reason), approval_id: approval, compensate };
    let client = context.client_keyed(&halt.keyed)?;
    let run = ids::run(&client, &halt.run).await?;
    moved(context, &run, &client.control_run(&run, action, &request).await?)
}

/// What was completed before stays so, or is undone. The person who cancels sees which.
async fn cancel(context: &Context, args: CancelArgs) -> anyhow::Result<()> {
    let CancelArgs { end: args, compensate } = args;
    let client = context.client()?;
    let run = ids::run(&client, &args.halt.run).await?;
    let halt = HaltArgs { run: run.clone(), ..args.halt };
    end(context, "cancel", EndArgs { halt, ..args }, compensate).await?;
    if context.json() {
        return Ok(());
    }
    // Whoever may cancel may not always read.
    match whole(&client, &run).await {
        Ok(answer) => why::reach_of_cancel(&answer.body, compensate).iter().try_for_each(|line| output::say(line)),
        Err(_) => Ok(()),
    }
}

fn moved(context: &Context, run_id: &str, answer: &Answer<RunMoved>) -> anyhow::Result<()> {
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&format!("{} is {}", tint(Tint::Strong, run_id), state_text(&answer.body.state, None)))
}

/// The same definition in the same version, the same subject and, unless another is given, the same input.
async fn retry(context: &Context, args: RetryArgs) -> anyhow::Result<()> {
    let client: Client = context.client()?;
    let old = whole(&client, &ids::run(&client, &args.run).await?).await?.body;
    let step = match args.from {
        Some(step) => step,
        None => first_undone(&old)
            .ok_or_else(|| usage("every step of this run completed: name one with --from"))?
            .to_owned(),
    };
    let input = args.input.value()?;
    let request = StartRun {
        definition: old.definition,
        input: input.or(old.input),
        // One that was about itself alone would be about the old run.
        subject_ref: Some(old.subject_ref).filter(|subject| *subject != format!("run:{}", old.run_id)),
        priority: Some(old.priority),
        from_step: Some(FromStep { run_id: old.run_id, step }),
        ..StartRun::default()
    };
    let answer = context.client_keyed(&args.keyed)?.start_run(&request).await?;
    told(context, &client, &request, &answer, args.watch).await
}

fn first_undone(run: &RunView) -> Option<&str> {
    let was_undone = |name: &str| {
        let undoing = |step: &&StepView| step.compensates.as_deref() == Some(name);
        run.steps.iter().filter(undoing).any(|undoing| undoing.state_code != "not_started")
    };
    let done = |step: &StepView| matches!(&*step.state_code, "completed" | "skipped") && !was_undone(&step.name);
    Some(&run.steps.iter().find(|step| step.role == "step" && !done(step))?.name)
}

async fn declare_effect(context: &Context, args: DeclareArgs) -> anyhow::Result<()> {
    let result = match args.result {
        ResultArg::Completed => DeclaredResult::Completed,
        ResultArg::NotDone => DeclaredResult::NotDone,
    };
    let request = DeclareEffect { result, output: input::value(&args.output)?, reason: args.reason };
    let client = context.client_keyed(&args.keyed)?;
    let run = ids::run(&client, &args.run).await?;
    moved(context, &run, &client.declare_effect(&run, &args.step, &request).await?)
}
