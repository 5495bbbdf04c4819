//! `countersign events`: tell runs what happened outside, and start the runs that an event starts.

use super::Keyed;
use super::connection::Context;
use super::ids;
use super::input;
use super::output::{self, printable, shell_word};
use super::table::{Tint, tint};
use clap::{Args, Subcommand};
use countersign_client::wire::{SendEvent, TriggerRuns};
use serde_json::{Value, json};

/// Send events to runs, or start runs with them
#[derive(Subcommand)]
pub enum EventsCommand {
    /// Send an event to one run, or to all live runs with a correlation key
    Send(SendArgs),
    /// Start a run of every definition whose `on` names this event
    Trigger(TriggerArgs),
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["run", "key"]))]
pub struct SendArgs {
    /// The type of the event, e.g. payment.captured
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The run that receives it
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// The correlation key of the runs that receive it
    #[arg(long)]
    key: Option<String>,
    /// The id of the event: a second event with the same id has no effect [default: a new id]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Args)]
pub struct TriggerArgs {
    /// The type of the event, e.g. order.created
    #[arg(value_name = "TYPE")]
    event_type: String,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct DataArgs {
    /// The data of the event: one JSON value, or a field: NAME=TEXT, NAME:=JSON (may be repeated)
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    data: Vec<String>,
}

pub async fn run(context: &Context, command: EventsCommand) -> anyhow::Result<()> {
    match command {
        EventsCommand::Send(args) => send(context, args).await,
        EventsCommand::Trigger(args) => trigger(context, args).await,
    }
}

async fn send(context: &Context, args: SendArgs) -> anyhow::Result<()> {
    let id = match args.id {
        Some(id) => id,
        None => fresh_id()?,
    };
    let client = context.client()?;
    let run_id = match &args.run {
        Some(text) => Some(ids::run(&client, text).await?),
        None => None,
    };
    let request = SendEvent {
        id,
        event_type: args.event_type,
        run_id,
        correlation_key: args.key,
        data: input::value(&args.data.data)?,
    };
    let mut answer = client.send_event(&request).await?;
    if context.json() {
        // The id may be ours: whoever has to send the event again needs it.
        if let Value::Object(fields) = &mut answer.json {
            fields.insert("id".to_owned(), json!(request.id));
        }
        return output::json(&answer.json);
    }
    let sent = answer.body;
    let what = if sent.duplicate { tint(Tint::Dim, "known already") } else { tint(Tint::Good, "sent") };
    output::say(&format!("{what} {} {}", tint(Tint::Strong, &request.event_type), printable(&request.id)))?;
    for woken in &sent.woken {
        output::say(&format!("  woke {} of {}", tint(Tint::Strong, &woken.step), printable(&woken.run_id)))?;
    }
    for run_id in &sent.run_ids {
        output::say(&format!("  started {}", tint(Tint::Strong, run_id)))?;
    }
    if sent.woken.is_empty() && sent.run_ids.is_empty() && !sent.duplicate {
        output::say(&format!("  {}", unawaited(sent.reached, &request)))?;
    }
    Ok(())
}

/// It woke nothing: who has it then.
fn unawaited(reached: u32, request: &SendEvent) -> String {
    match (reached, &request.correlation_key) {
        (0, Some(key)) => {
            tint(Tint::Bad, &format!("no live run that you may reach has the key {key}: nothing keeps it"))
        }
        (0, None) => tint(Tint::Bad, "the run has ended: nothing keeps it"),
        (1, _) => "nothing waits for it now; 1 live run keeps it for its next wait of this type".to_owned(),
        (n, _) => format!("nothing waits for it now; {n} live runs keep it for their next wait of this type"),
    }
}

async fn trigger(context: &Context, args: TriggerArgs) -> anyhow::Result<()> {
    let data = input::value(&args.data.data)?;
    let request = TriggerRuns { id: None, event_type: args.event_type, run_id: None, correlation_key: None, data };
    let answer = context.client_keyed(&args.keyed)?.trigger_runs(&request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    if answer.body.run_ids.is_empty() {
        return output::say("No definition starts with this event.");
    }
    for run_id in &answer.body.run_ids {
        output::say(&format!("started {}", tint(Tint::Strong, run_id)))?;
        output::say(&tint(Tint::Dim, &format!("countersign watch {}", shell_word(run_id))))?;
    }
    Ok(())
}

fn fresh_id() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no id can be made: {error}"))?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}
