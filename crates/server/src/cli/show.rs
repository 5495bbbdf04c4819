//! `countersign show`: one process or run, once or as it moves.

use super::connection::Context;
use super::ids;
use super::instance::process_or_run;
use super::next::is_terminal;
use super::output;
use super::run_view::{MAX_ROWS, whole};
use super::runs;
use super::terminal::has_cursor;
use super::view::render;
use super::watch::follow;
use clap::Args;
use countersign_client::wire::{RunView, WorkflowView};
use countersign_client::{Answer, Client, Error};
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

const POLL_EVERY: Duration = Duration::from_secs(1);
/// Erases the screen and goes to its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Show a process or a run: its state, path, gates and possible next commands
#[derive(Args)]
pub struct ShowArgs {
    /// The process or the run
    instance: String,
    /// Show it again after every change, until it ends or Ctrl-C
    #[arg(long)]
    watch: bool,
}

enum Found {
    Process(Box<Answer<WorkflowView>>),
    Run(Box<Answer<RunView>>),
}

pub async fn run(context: &Context, args: ShowArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let instance = ids::instance(&client, &args.instance).await?;
    let of_process = async { client.process(&instance).await.map(|found| Found::Process(Box::new(found))) };
    let of_run = async { whole(&client, &instance).await.map(|run| Found::Run(Box::new(run))) };
    match process_or_run(of_process, of_run).await? {
        Found::Process(process) if !args.watch => return print(context, &process, ""),
        Found::Process(_) => {}
        Found::Run(run) if !args.watch => return runs::print(context, &run, MAX_ROWS),
        Found::Run(_) => return follow(context, &client, &instance).await,
    }
    tokio::select! {
        watched = watch(context, &client, &instance) => watched,
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
    }
}

async fn watch(context: &Context, client: &Client, instance: &str) -> anyhow::Result<()> {
    // On a terminal each picture replaces the one before, elsewhere it follows it.
    let clear = has_cursor() && !context.json();
    let mut shown: Option<Value> = None;
    let mut lost = false;
    loop {
        match client.process(instance).await {
            Ok(answer) => {
                lost = false;
                if shown.as_ref() != Some(&answer.json) {
                    let before = match (clear, &shown) {
                        (true, _) => CLEAR,
                        (false, Some(_)) => "\n",
                        (false, None) => "",
                    };
                    print(context, &answer, before)?;
                    let ended = is_terminal(&answer.body);
                    shown = Some(answer.json);
                    if ended {
                        return Ok(());
                    }
                }
            }
            // A server that is restarted in between is no reason to stop watching.
            Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. })) if shown.is_some() => {
                if !lost {
                    output::complain(&format!("{error}; still trying"));
                }
                lost = true;
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn print(context: &Context, answer: &Answer<WorkflowView>, before: &str) -> anyhow::Result<()> {
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&format!("{before}{}", render(&answer.body, Timestamp::now())))
}
