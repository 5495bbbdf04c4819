//! `countersign watch`: a run as it moves. On a terminal the picture is drawn in place; elsewhere every change is a line,
//! with `--json` a line of JSON.

mod changes;
mod screen;

use super::connection::Context;
use super::failure::Failure;
use super::ids;
use super::output;
use super::run_view::{is_ended, render, succeeded, whole};
use super::terminal::has_cursor;
use changes::Changes;
use clap::Args;
use countersign_client::wire::RunView;
use countersign_client::{Answer, Client, Error, EventStream, StreamEvent};
use jiff::Timestamp;
use screen::Screen;
use std::time::{Duration, Instant};

/// Between two tries to reach a server that is away.
const AWAY: Duration = Duration::from_secs(1);
/// How often a server without a stream is asked.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Reading a large run may take no more than a fifth of the time.
const IDLE_SHARE: u32 = 4;
/// How often a picture is drawn again although nothing moved: "in 12 s" becomes "in 11 s".
const REDRAW: Duration = Duration::from_secs(1);

/// Watch a run until it ends: exit code 0 when it completed, 1 when it failed, was cancelled or rolled back, 130 after
/// Ctrl-C
#[derive(Args)]
pub struct WatchArgs {
    /// The run
    run: String,
}

pub async fn run(context: &Context, args: WatchArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let run = ids::run(&client, &args.run).await?;
    follow(context, &client, &run).await
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

/// Reads the run whenever the stream says that it moved.
async fn watch(client: &Client, run_id: &str, shown: &mut Shown) -> anyhow::Result<RunView> {
    let mut source = Source::new(client, run_id);
    let (mut lost, mut seen) = (false, false);
    loop {
        let asked = Instant::now();
        match whole(client, run_id).await {
            Ok(answer) => {
                (lost, seen) = (false, true);
                shown.show(&answer)?;
                if is_ended(&answer.body.state) {
                    return Ok(answer.body);
                }
                tokio::time::sleep(asked.elapsed() * IDLE_SHARE).await;
                let moved = source.moved();
                tokio::pin!(moved);
                loop {
                    tokio::select! {
                        moved = &mut moved => {
                            moved?;
                            break;
                        }
                        // A lease that was prolonged leaves no record: it is read again once it seems to have run out.
                        () = tokio::time::sleep(REDRAW), if shown.is_picture() => {
                            if lease_seems_over(&answer.body, Timestamp::now()) {
                                break;
                            }
                            shown.show(&answer)?;
                        }
                    }
                }
            }
            // A server that is restarted in between is no reason to stop watching.
            Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. })) if seen => {
                if !lost {
                    output::complain(&format!("{error}; still trying"));
                }
                lost = true;
                tokio::time::sleep(AWAY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a lease that the picture shows has ended by the clock.
fn lease_seems_over(run: &RunView, now: Timestamp) -> bool {
    let ends = run.steps.iter().filter_map(|step| step.locked_until.as_deref()?.parse::<Timestamp>().ok());
    ends.min().is_some_and(|end| end <= now)
}

/// What says that a run moved.
struct Source<'c> {
    client: &'c Client,
    topic: String,
    stream: Option<EventStream>,
    last_event_id: Option<String>,
    /// The server is older than the stream.
    polls: bool,
}

impl<'c> Source<'c> {
    fn new(client: &'c Client, run_id: &str) -> Self {
        Source { client, topic: format!("run:{run_id}"), stream: None, last_event_id: None, polls: false }
    }

    /// Returns when there may be something to read. A stream that ends is opened again; its first event comes where
    /// anything moved meanwhile.
    async fn moved(&mut self) -> anyhow::Result<()> {
        if self.polls {
            tokio::time::sleep(POLL_EVERY).await;
            return Ok(());
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => match self.client.follow(&[&self.topic], self.last_event_id.as_deref()).await {
                Ok(opened) => none.insert(opened),
                // The run itself was read a moment ago.
                Err(error) if error.code() == Some("not-known") => {
                    output::complain("this server has no live stream; asking every 2 s instead");
                    self.polls = true;
                    return Ok(());
                }
                // Reading the run says what is wrong.
                Err(Error::Unreachable { .. } | Error::NoAnswer { .. }) => return Ok(()),
                Err(error) if error.code() == Some("overloaded") => {
                    tokio::time::sleep(POLL_EVERY).await;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
        };
        let event = stream.next().await;
        self.last_event_id = stream.last_event_id().map(str::to_owned);
        if !matches!(event, Some(StreamEvent::Moved(_))) {
            self.stream = None;
            tokio::time::sleep(AWAY).await;
        }
        Ok(())
    }
}

/// Where the run is shown.
enum Shown {
    Picture(Screen),
    Lines { changes: Changes, json: bool },
}

impl Shown {
    fn new(context: &Context) -> Self {
        if has_cursor() && !context.json() {
            Shown::Picture(Screen::default())
        } else {
            Shown::Lines { changes: Changes::default(), json: context.json() }
        }
    }

    const fn is_picture(&self) -> bool {
        matches!(self, Shown::Picture(_))
    }

    fn show(&mut self, answer: &Answer<RunView>) -> anyhow::Result<()> {
        let now = Timestamp::now();
        match self {
            Shown::Picture(screen) => screen.draw(|rows| render(&answer.body, rows, now)),
            Shown::Lines { changes, json } => {
                for change in changes.take(answer, now) {
                    if *json {
                        output::say_verbatim(&change.json(&answer.body, now).to_string())?;
                    } else {
                        output::say(&change.line(&answer.body, now))?;
                    }
                }
                Ok(())
            }
        }
    }
}
