//! `countersign schedule`: what starts by itself, when next, and how to hold it back.

use super::Keyed;
use super::connection::Context;
use super::output::{self, printable, shell_word};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand};
use countersign_client::wire::{ControlSchedule, IdleRun, PauseView, ScheduleView, TriggerSchedule};
use jiff::Timestamp;

/// List, pause, resume and trigger schedules
#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// List the definitions that start by the clock or by events, with the next tick
    List,
    /// Pause a definition: its schedules and events start no runs, and ticks during the pause are lost
    Pause(PauseArgs),
    /// End the pause of a definition
    Resume(ResumeArgs),
    /// Start the run of a schedule now, also during a pause
    Trigger(TriggerArgs),
}

#[derive(Args)]
pub struct PauseArgs {
    /// The definition
    definition: String,
    /// The reason, for the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct ResumeArgs {
    /// The definition
    definition: String,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct TriggerArgs {
    /// The definition
    definition: String,
    /// The number of the schedule, if there are several (`schedule list`)
    #[arg(long, value_name = "NUMBER")]
    index: Option<usize>,
    #[command(flatten)]
    keyed: Keyed,
}

pub async fn run(context: &Context, command: ScheduleCommand) -> anyhow::Result<()> {
    match command {
        ScheduleCommand::List => list(context).await,
        ScheduleCommand::Pause(PauseArgs { definition, reason, keyed }) => {
            control(context, &definition, "pause", Some(reason), &keyed).await
        }
        ScheduleCommand::Resume(ResumeArgs { definition, reason, keyed }) => {
            control(context, &definition, "resume", reason, &keyed).await
        }
        ScheduleCommand::Trigger(args) => trigger(context, args).await,
    }
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let client = context.client()?;
    let schedules = client.schedules().await?;
    if context.json() {
        return output::json(&schedules.json);
    }
    let mut idle = client.idle_runs(None).await?.body.idle.unwrap_or_default();
    idle.retain(|run| !run.events.is_empty());
    if schedules.body.items.is_empty() && idle.is_empty() {
        return output::say("Nothing starts by itself. A workflow with `schedule:` or `on:` does.");
    }
    output::say(&table(&schedules.body.items, &idle).to_string())
}

fn table(schedules: &[ScheduleView], idle: &[IdleRun]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["definition", "#", "starts", "state", "next", "catches up"]);
    for one in schedules {
        table.row([
            tint(Tint::Strong, &format!("{}@{}", one.definition, one.version)),
            one.index.to_string(),
            printable(&format!("{} {}", one.cron, one.time_zone)),
            state(&one.state, one.paused.as_ref()),
            next(one.next_at.as_deref(), now),
            one.catch_up.as_deref().map(printable).unwrap_or_default(),
        ]);
    }
    for one in idle {
        table.row([
            tint(Tint::Strong, &one.definition),
            String::new(),
            printable(&format!("on {}", one.events.join(", "))),
            state(&one.state, one.paused.as_ref()),
            String::new(),
            String::new(),
        ]);
    }
    table
}

/// Definitions that wait, as `runs list --state idle` shows them.
pub fn idle_table(idle: &[IdleRun]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["definition", "state", "next tick", "on"]);
    for one in idle {
        table.row([
            tint(Tint::Strong, &one.definition),
            state(&one.state, one.paused.as_ref()),
            next(one.next_at.as_deref(), now),
            printable(&one.events.join(", ")),
        ]);
    }
    table
}

fn state(state: &str, paused: Option<&PauseView>) -> String {
    match paused {
        None => printable(state),
        Some(pause) => {
            let reason = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            tint(Tint::Wait, &format!("paused by {}{reason}", pause.by))
        }
    }
}

fn next(at: Option<&str>, now: Timestamp) -> String {
    at.map(|at| when(at, now)).unwrap_or_default()
}

async fn control(
    context: &Context,
    definition: &str,
    action: &str,
    reason: Option<String>,
    keyed: &Keyed,
) -> anyhow::Result<()> {
    let request = ControlSchedule { reason };
    let answer = context.client_keyed(keyed)?.control_schedule(definition, action, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let moved = answer.body;
    output::say(&format!("{} is {}", tint(Tint::Strong, &moved.definition), printable(&moved.state)))
}

async fn trigger(context: &Context, args: TriggerArgs) -> anyhow::Result<()> {
    let request = TriggerSchedule { index: args.index };
    let answer = context.client_keyed(&args.keyed)?.trigger_schedule(&args.definition, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let run_id = &answer.body.run_id;
    output::say(&format!("started {}", tint(Tint::Strong, run_id)))?;
    output::say(&tint(Tint::Dim, &format!("countersign watch {}", shell_word(run_id))))
}
