//! `countersign governance dead-letters`: what was given up, and the requests to try it again.

use super::Keyed;
use super::connection::Context;
use super::governance::{StateArg, state_of};
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{
    DeadLetter, DeadLetterView, ProblemsQuery, ReplayRequest, ReplayRequestFilter, ReplayRequestState,
    ReplayRequestsQuery, RequestReplay,
};
use jiff::Timestamp;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DeadLettersArgs {
    #[command(subcommand)]
    command: Option<DeadLettersCommand>,
    /// Filter by state
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<StateArg>,
    /// List the oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Subcommand)]
enum DeadLettersCommand {
    /// Show one with its payload, the errors of its attempts and the requests to replay it
    Show(ShowArgs),
    /// Request a replay, which happens once its approvers agree
    Replay(ReplayArgs),
    /// List requests to replay dead letters, the newest first
    Requests(RequestsArgs),
}

#[derive(Args)]
struct ShowArgs {
    /// The dead letter, as the list shows it
    #[arg(value_name = "ID")]
    dead_letter_id: String,
}

#[derive(Args)]
struct ReplayArgs {
    /// The dead letter, as the list shows it
    #[arg(value_name = "ID")]
    dead_letter_id: String,
    /// Why it should be tried again, for the approvers and the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
struct RequestsArgs {
    /// Filter: open ones wait for a decision or an outcome
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<FilterArg>,
    /// List only requests for this dead letter
    #[arg(long, value_name = "ID")]
    dead_letter: Option<String>,
    /// List the oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum FilterArg {
    Open,
    Closed,
}

pub async fn run(context: &Context, args: DeadLettersArgs) -> anyhow::Result<()> {
    match args.command {
        None => list(context, args).await,
        Some(DeadLettersCommand::Show(show)) => one(context, &show.dead_letter_id).await,
        Some(DeadLettersCommand::Replay(replay)) => request(context, replay).await,
        Some(DeadLettersCommand::Requests(requests)) => list_requests(context, requests).await,
    }
}

async fn list(context: &Context, args: DeadLettersArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(StateArg::wire);
    let order = (!args.oldest_first).then(|| "desc".to_owned());
    let fetch =
        async |limit, cursor| client.dead_letters(&ProblemsQuery { state, order: order.clone(), limit, cursor }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No dead letters.")
}

async fn one(context: &Context, dead_letter_id: &str) -> anyhow::Result<()> {
    let answer = context.client()?.dead_letter(dead_letter_id).await?;
    match context.json() {
        true => output::json(&answer.json),
        false => output::say(&printable_view(&answer.body)),
    }
}

async fn request(context: &Context, args: ReplayArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let answer = client.request_replay(&args.dead_letter_id, &RequestReplay { reason: args.reason }).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let made = &answer.body;
    let approvers = made.gate.approvers.join(", ");
    let told = format!("{}: requested; it waits for the approval of {approvers}", made.dlq_replay_request_id);
    output::say(&printable(&told))
}

async fn list_requests(context: &Context, args: RequestsArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(|state| match state {
        FilterArg::Open => ReplayRequestFilter::Open,
        FilterArg::Closed => ReplayRequestFilter::Closed,
    });
    let order = (!args.oldest_first).then(|| "desc".to_owned());
    let fetch = async |limit, cursor| {
        let dead_letter_id = args.dead_letter.clone();
        let query = ReplayRequestsQuery { state, dead_letter_id, order: order.clone(), limit, cursor };
        client.replay_requests(&query).await
    };
    collect(&args.page, fetch).await?.print(context.json(), requests_table, "No requests.")
}

fn printable_view(view: &DeadLetterView) -> String {
    let payload = view.payload.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let mut lines = vec![
        view.letter.detail.clone(),
        format!("run       {}", view.letter.run_id),
        format!("attempts  {}", view.attempts),
        format!("payload   {payload}"),
    ];
    lines.extend(view.failure_class.as_ref().map(|class| format!("class     {class}")));
    lines.extend(view.last_error.as_ref().map(|error| format!("error     {error}")));
    for attempt in &view.attempt_log {
        lines.push(format!("{}  {}", attempt.at, attempt.error.as_deref().unwrap_or("-")));
    }
    for request in &view.replay_requests {
        let outcome = request.outcome.map(|outcome| format!(", {}", word(outcome))).unwrap_or_default();
        let (id, by) = (&request.dlq_replay_request_id, &request.requested_by);
        lines.push(format!("replay    {id} by {by}: {}{outcome}", word(request.state)));
    }
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

/// As the API writes it.
fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn table(letters: &[DeadLetter]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["dead letter", "state", "since", "run", "step", "what"]);
    for letter in letters {
        table.row([
            printable(&letter.dead_letter_id),
            state_of(letter.state),
            when(&letter.since, now),
            printable(&letter.run_id),
            printable(letter.step.as_deref().unwrap_or_default()),
            printable(&letter.detail),
        ]);
    }
    table
}

fn requests_table(requests: &[ReplayRequest]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["request", "dead letter", "state", "outcome", "by", "when"]);
    for request in requests {
        let shade = match request.state {
            ReplayRequestState::Requested | ReplayRequestState::Approved => Tint::Wait,
            ReplayRequestState::Rejected => Tint::Strong,
            ReplayRequestState::Withdrawn | ReplayRequestState::Completed => Tint::Dim,
        };
        table.row([
            printable(&request.dlq_replay_request_id),
            printable(&request.dead_letter_id),
            tint(shade, &word(request.state)),
            request.outcome.map(word).unwrap_or_default(),
            printable(&request.requested_by),
            when(&request.requested_at, now),
        ]);
    }
    table
}
