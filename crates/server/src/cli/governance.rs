//! `countersign governance`: what went wrong and is not put right yet.

use super::connection::Context;
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use super::workers::{self, ControlArgs, LagArgs, WorkersArgs};
use crate::cli::dead_letters::{self, DeadLettersArgs};
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{ProblemBoard, ProblemItem, ProblemState, ProblemsQuery, TrafficLight};
use jiff::Timestamp;

/// Show problems and what resolved them, watch workers and lag, freeze workers
#[derive(Subcommand)]
pub enum GovernanceCommand {
    /// Show how many problems of each category are open, or list the problems of one category
    Problems(ProblemsArgs),
    /// Show worker classes: who was heard of, and what they did within the last hour
    Workers(WorkersArgs),
    /// Freeze a worker class: its workers claim nothing until it is thawed
    Freeze(ControlArgs),
    /// Thaw a worker class: its workers claim again
    Thaw(ControlArgs),
    /// Show how long events, steps, timers and records waited
    Lag(LagArgs),
    /// List deliveries that were given up and dead steps of held runs
    DeadLetters(DeadLettersArgs),
}

#[derive(Args)]
pub struct ProblemsArgs {
    /// List the problems of this category
    #[arg(value_enum)]
    category: Option<CategoryArg>,
    /// Filter by state
    #[arg(long, value_enum, ignore_case = true, requires = "category")]
    state: Option<StateArg>,
    /// List the oldest first
    #[arg(long, requires = "category")]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CategoryArg {
    Dlq,
    SilentWorkers,
    OverdueSteps,
    SchemaViolations,
    EventLag,
    IntegrityWarnings,
    FailedRuns,
    OrphanRuns,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum StateArg {
    Open,
    Resolved,
}

impl StateArg {
    pub fn wire(self) -> ProblemState {
        match self {
            StateArg::Open => ProblemState::Open,
            StateArg::Resolved => ProblemState::Resolved,
        }
    }
}

pub async fn run(context: &Context, command: GovernanceCommand) -> anyhow::Result<()> {
    let args = match command {
        GovernanceCommand::Problems(args) => args,
        GovernanceCommand::DeadLetters(args) => return dead_letters::run(context, args).await,
        GovernanceCommand::Workers(args) => return workers::workers(context, args).await,
        GovernanceCommand::Freeze(args) => return workers::freeze(context, args).await,
        GovernanceCommand::Thaw(args) => return workers::thaw(context, args).await,
        GovernanceCommand::Lag(args) => return workers::lag(context, args).await,
    };
    let category = args.category.and_then(|category| category.to_possible_value());
    match category {
        Some(category) => list(context, category.get_name(), args).await,
        None => board(context).await,
    }
}

async fn board(context: &Context) -> anyhow::Result<()> {
    let answer = context.client()?.problem_board().await?;
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&board_table(&answer.body).to_string())
}

fn board_table(board: &ProblemBoard) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["light", "open", "oldest", "what"]);
    for row in &board.items {
        let light = match row.light {
            TrafficLight::Green => tint(Tint::Dim, "green"),
            TrafficLight::Yellow => tint(Tint::Wait, "yellow"),
            TrafficLight::Red => tint(Tint::Strong, "red"),
        };
        let name = serde_json::to_value(row.category).unwrap_or_default();
        let name = name.as_str().unwrap_or_default().to_owned();
        let what = row.summary.as_ref().map_or(name.clone(), |summary| format!("{name}: {}", summary.text));
        let oldest = row.oldest_at.as_deref().map_or_else(String::new, |at| when(at, now));
        table.row([light, row.count.to_string(), oldest, printable(&what)]);
    }
    table
}

async fn list(context: &Context, category: &str, args: ProblemsArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(StateArg::wire);
    let order = (!args.oldest_first).then(|| "desc".to_owned());
    let fetch = async |limit, cursor| {
        client.problems(category, &ProblemsQuery { state, order: order.clone(), limit, cursor }).await
    };
    collect(&args.page, fetch).await?.print(context.json(), table, "No problems.")
}

pub fn state_of(state: ProblemState) -> String {
    match state {
        ProblemState::Open => tint(Tint::Strong, "open"),
        ProblemState::Resolved => tint(Tint::Dim, "resolved"),
    }
}

fn table(problems: &[ProblemItem]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["problem", "state", "since", "run", "step", "what"]);
    for problem in problems {
        let run = problem.run_id.as_deref().unwrap_or_default();
        let step = problem.step.as_deref().or(problem.worker_class.as_deref()).unwrap_or_default();
        table.row([
            printable(&problem.problem_id),
            state_of(problem.state),
            when(&problem.since, now),
            printable(run),
            printable(step),
            printable(&problem.detail),
        ]);
    }
    table
}
