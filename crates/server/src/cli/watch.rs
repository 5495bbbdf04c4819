//! `countersign watch`: a run as it moves. On a terminal the picture is drawn in place; elsewhere every change is a line,
//! with `--json` a line of JSON.

mod changes;
mod screen;

use super::connection::Context;
use super::failure::Failure;
use super::output;
use super::run_view::{is_ended, render, succeeded, whole};
use super::terminal::has_cursor;
use changes::Changes;
use clap::Args;
use countersign_client::wire::RunView;
use countersign_client::{Answer, Client, Error};
use jiff::Timestamp;
use screen::Screen;
use std::time::{Duration, Instant};

const POLL_EVERY: Duration = Duration::from_millis(500);
/// When nothing has moved for a while.
const POLL_QUIET: Duration = Duration::from_secs(2);
const QUIET_AFTER: u32 = 20;
/// Reading a large run may take no more than a fifth of the time.
const IDLE_SHARE: u32 = 4;

/// Watch a run until it ends: exit code 0 when it completed, 1 when it failed, was cancelled or rolled back, 130 after
/// Ctrl-C
#[derive(Args)]
pub struct WatchArgs {
    /// The run
    run: String,
}

pub async fn run(context: &Context, args: WatchArgs) -> anyhow::Result<()> {
    follow(context, &context.client()?, &args.run).await
}

/// Shows the run until it ends or somebody presses Ctrl-C.
pub async fn follow(context: &Context, client: &Client, run_id: &str) -> anyhow::Result<()> {
    let mut shown = Shown::new(context);
    let ended = tokio::select! {
        ended = watch(client, run_id, &mut shown) => Some(ended),
        stopped = tokio::signal::ctrl_c() => {
            stopped?;
            None
        }
    };
    match ended {
        Some(Ok(run)) if succeeded(&run) => Ok(()),
        Some(Ok(_)) => Err(Failure::Reported.into()),
        Some(Err(error)) => Err(error),
        None => {
            output::complain("no longer watched; the run goes on");
            Err(Failure::Interrupted.into())
        }
    }
}

async fn watch(client: &Client, run_id: &str, shown: &mut Shown) -> anyhow::Result<RunView> {
    let (mut lost, mut quiet, mut seen) = (false, 0_u32, false);
    loop {
        let asked = Instant::now();
        match whole(client, run_id).await {
            Ok(answer) => {
                (lost, seen) = (false, true);
                quiet = if shown.show(&answer)? { 0 } else { quiet.saturating_add(1) };
                if is_ended(&answer.body.state) {
                    return Ok(answer.body);
                }
            }
            // A server that is restarted in between is no reason to stop watching.
            Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. })) if seen => {
                if !lost {
                    output::complain(&format!("{error}; still trying"));
                }
                lost = true;
            }
            Err(error) => return Err(error.into()),
        }
        let every = if quiet < QUIET_AFTER { POLL_EVERY } else { POLL_QUIET };
        tokio::time::sleep(every.max(asked.elapsed() * IDLE_SHARE)).await;
    }
}

/// Where the run is shown.
enum Shown {
    Picture(Screen, Changes),
    Lines { changes: Changes, json: bool },
}

impl Shown {
    fn new(context: &Context) -> Self {
        if has_cursor() && !context.json() {
            Shown::Picture(Screen::default(), Changes::default())
        } else {
            Shown::Lines { changes: Changes::default(), json: context.json() }
        }
    }

    /// Shows it, and says whether anything has changed.
    fn show(&mut self, answer: &Answer<RunView>) -> anyhow::Result<bool> {
        let now = Timestamp::now();
        match self {
            // Drawn again even where nothing moved: "in 12 s" becomes "in 11 s".
            Shown::Picture(screen, changes) => {
                screen.draw(|rows| render(&answer.body, rows, now))?;
                Ok(changes.take(answer, now).next().is_some())
            }
            Shown::Lines { changes, json } => {
                let mut changed = false;
                for change in changes.take(answer, now) {
                    changed = true;
                    if *json {
                        output::say_verbatim(&change.json(&answer.body, now).to_string())?;
                    } else {
                        output::say(&change.line(&answer.body, now))?;
                    }
                }
                Ok(changed)
            }
        }
    }
}
