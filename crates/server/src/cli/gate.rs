//! `countersign gate`: ask for approvals, give them, and see which are open.

mod show;

use super::Keyed;
use super::connection::Context;
use super::failure::advised;
use super::instance::process_or_run;
use super::output::{self, printable, shell_word};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use super::view::{approval, gates_table};
use super::{ids, input};
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{
    ApprovalState, ApprovalStep, ApprovalStepQuery, Binding, DecideGate, Decision, Gate, OpenGate, Outcome,
};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Open, decide and list the gates of processes and runs
#[derive(Subcommand)]
pub enum GateCommand {
    /// Open the gate of a guarded transition, or a gate of a run such as `cancel`
    Open(OpenArgs),
    /// Approve, reject or withdraw an open gate
    Decide(DecideArgs),
    /// Show one gate: its request, its approvers, and for a run the pins, checks and files
    Show(show::ShowArgs),
    /// List the gates of one process or run, or the approval steps of all
    List(ListArgs),
}

#[derive(Args)]
pub struct OpenArgs {
    /// The process or the run
    instance: String,
    /// The transition's action; in a run the step's name, or cancel
    action: String,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    /// The request that the approver sees and decides on: NAME=TEXT or NAME:=JSON (may be repeated), or one JSON object
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    request: Vec<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct DecideArgs {
    /// The process or the run
    instance: String,
    /// The transition's action; in a run the step's name, or cancel
    action: String,
    /// The decision
    #[arg(value_enum)]
    decision: DecisionArg,
    /// The reason, for the record; required to reject or withdraw
    #[arg(long)]
    reason: Option<String>,
    /// In a quorum: decide this approval step instead of your own
    #[arg(long, value_name = "STEP_ID")]
    step: Option<String>,
    /// The SHA-256 of the request that you decide on; refused if the gate has another request [default: that of the current request, if you may read it]
    #[arg(long, value_name = "HEX")]
    request_digest: Option<String>,
    /// The meaning of your signature, if your profile signs [default: approval, rejection or withdrawal]
    #[arg(long, value_name = "TEXT")]
    meaning: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct ListArgs {
    /// List only the gates of this process or run
    #[arg(conflicts_with_all = ["state", "approver", "limit", "all", "cursor"])]
    instance: Option<String>,
    /// List only approval steps in this state
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<StateArg>,
    /// List only approval steps of this approver
    #[arg(long, value_name = "REF")]
    approver: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum DecisionArg {
    Approve,
    Reject,
    Withdraw,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateArg {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
}

pub async fn run(context: &Context, command: GateCommand) -> anyhow::Result<()> {
    match command {
        GateCommand::Open(args) => open(context, args).await,
        GateCommand::Decide(args) => decide(context, args).await,
        GateCommand::Show(args) => show::run(context, args).await,
        GateCommand::List(args) => match &args.instance {
            Some(instance) => list_of_one(context, instance).await,
            None => list(context, args).await,
        },
    }
}

async fn open(context: &Context, args: OpenArgs) -> anyhow::Result<()> {
    let asked = input::value(&args.request)?;
    let request = OpenGate { action: args.action, reason: args.reason, request: asked };
    let client = context.client_keyed(&args.keyed)?;
    let instance = ids::instance(&client, &args.instance).await?;
    let of_run = client.open_run_gate(&instance, &request);
    let answer = process_or_run(client.open_gate(&instance, &request), of_run).await;
    let answer = answer.map_err(|error| {
        advised(error, |problem| {
            let needless = request.action == "cancel" && problem.code == "invalid-transition";
            let cancel = format!("countersign runs cancel {}", shell_word(&instance));
            needless.then(|| format!("cancelling this run needs no approval: {cancel}"))
        })
    })?;
    if context.json() {
        return output::json(&answer.json);
    }
    let opened = answer.body;
    let id = opened.chain_id.or(opened.step_id).unwrap_or_default();
    output::say(&format!("opened the gate of {} ({})", tint(Tint::Strong, &request.action), printable(&id)))?;
    for step in opened.steps.unwrap_or_default() {
        output::say(&format!("  waits for {} ({})", tint(Tint::Strong, &step.approver_ref), printable(&step.step_id)))?;
    }
    let decide = format!("countersign gate decide {} {} approve", shell_word(&instance), shell_word(&request.action));
    output::next([decide])
}

async fn decide(context: &Context, args: DecideArgs) -> anyhow::Result<()> {
    let decision = match args.decision {
        DecisionArg::Approve => Decision::Approve,
        DecisionArg::Reject => Decision::Reject,
        DecisionArg::Withdraw => Decision::Withdraw,
    };
    let mut client = context.client_keyed(&args.keyed)?;
    let instance = ids::instance(&client, &args.instance).await?;
    let request_digest = match args.request_digest {
        Some(given) => Some(given),
        None => present_digest(&client, &instance, &args.action, args.step.as_deref()).await,
    };
    let request = DecideGate { decision, reason: args.reason, step_id: args.step, request_digest };
    if let Some(meaning) = &args.meaning {
        client = client.with_meaning(meaning)?;
    }
    let of_run = client.decide_run_gate(&instance, &args.action, &request);
    let answer = process_or_run(client.decide_gate(&instance, &args.action, &request), of_run).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let outcome = match answer.body.outcome {
        Outcome::Approved => approval(ApprovalState::Approved),
        Outcome::RejectedOutcome => approval(ApprovalState::Rejected),
        Outcome::Withdrawn => approval(ApprovalState::Withdrawn),
    };
    let chain =
        answer.body.chain_state.map_or_else(String::new, |state| format!(", the quorum is {}", approval(state)));
    output::say(&format!("{}: {outcome}{chain}", tint(Tint::Strong, &args.action)))
}

/// What the gate asks now. Who may not read the instance decides without naming it.
async fn present_digest(client: &Client, instance: &str, action: &str, step: Option<&str>) -> Option<String> {
    let gates = gates_of(client, instance).await.ok()?.0;
    let meant = |gate: &&Gate| {
        gate.action == action && step.map_or(gate.binding == Binding::Current, |step| gate.step_id == step)
    };
    gates.iter().rev().find(meant)?.request_digest.clone()
}

/// The gates of a process or a run, typed and as they came.
async fn gates_of(client: &Client, instance: &str) -> Result<(Vec<Gate>, Value), Error> {
    let of_process = async { client.process(instance).await.map(|answer| (answer.body.gates, answer.json)) };
    let of_run = async { client.run(instance).await.map(|answer| (answer.body.gates, answer.json)) };
    process_or_run(of_process, of_run).await
}

async fn list_of_one(context: &Context, instance: &str) -> anyhow::Result<()> {
    let client = context.client()?;
    let (gates, mut json) = gates_of(&client, &ids::instance(&client, instance).await?).await?;
    if context.json() {
        let gates = json.get_mut("gates").map_or(json!([]), Value::take);
        return output::json(&json!({"items": gates, "next": null}));
    }
    if gates.is_empty() {
        return output::say("No gate of it has been opened.");
    }
    output::say(&gates_table(&gates, Timestamp::now()).to_string())
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(|state| match state {
        StateArg::Pending => ApprovalState::Pending,
        StateArg::Approved => ApprovalState::Approved,
        StateArg::Rejected => ApprovalState::Rejected,
        StateArg::Withdrawn => ApprovalState::Withdrawn,
    });
    let query = ApprovalStepQuery { state, approver_ref: args.approver, ..ApprovalStepQuery::default() };
    let fetch =
        async |limit, cursor| client.approval_steps(&ApprovalStepQuery { limit, cursor, ..query.clone() }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No approval steps.")
}

fn table(steps: &[ApprovalStep]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["subject", "approver", "state", "when", "scope", "process or run", "step"]);
    for step in steps {
        let at = step.decided_at.as_ref().or(step.withdrawn_at.as_ref()).unwrap_or(&step.submitted_at);
        table.row([
            tint(Tint::Strong, &step.subject_ref),
            printable(&step.approver_ref),
            approval(step.state),
            when(at, now),
            printable(&step.scope),
            printable(step.instance_id.as_deref().unwrap_or_default()),
            printable(&step.step_id),
        ]);
    }
    table
}
