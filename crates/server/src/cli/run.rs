//! `countersign run`: starts a run of a published workflow.

use super::Keyed;
use super::connection::Context;
use super::failure::{Failure, advised, usage};
use super::input::{self, Document};
use super::output::{self, printable, shell_word};
use super::run_view::{error_text, is_ended, next, succeeded};
use super::table::{Tint, tint};
use super::time::{self, Instant, is_past, when};
use super::watch;
use clap::Args;
use countersign_client::wire::{Problem, RunStarted, StartRun};
use countersign_client::{Answer, Client};
use jiff::Timestamp;
use serde_json::Value;

/// Start a run of a published workflow
#[derive(Args)]
pub struct RunArgs {
    /// A published workflow: NAME for the newest version, NAME@2 for that one
    definition: String,
    #[command(flatten)]
    input: InputArgs,
    /// The subject of the run: an order, a customer, a document
    #[arg(long, value_name = "REF")]
    subject: Option<String>,
    /// The priority, 0 to 9; 9 goes first [default: the definition's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// Start not before this time: RFC 3339, a day, or a delay such as "in 5m"
    #[arg(long, value_name = "TIME", value_parser = time::parse_ahead)]
    at: Option<Instant>,
    /// The run that this one corrects
    #[arg(long, value_name = "RUN")]
    corrects: Option<String>,
    /// For a runbook: carry out only surveys, checks and read-only steps, and open no gate
    #[arg(long)]
    dry_run: bool,
    /// Watch the run until it ends
    #[arg(long)]
    watch: bool,
    /// Print only the id of the run
    #[arg(long, short, conflicts_with_all = ["watch", "json"])]
    quiet: bool,
    #[command(flatten)]
    keyed: Keyed,
}

/// What a run works on.
#[derive(Args)]
pub struct InputArgs {
    /// The input: one JSON value, or a field: NAME=TEXT, NAME:=JSON (may be repeated)
    #[arg(long, value_name = "JSON|NAME=TEXT", conflicts_with = "input_file")]
    input: Vec<String>,
    /// The input, from a JSON file; - is stdin
    #[arg(long, value_name = "FILE")]
    input_file: Option<String>,
}

impl InputArgs {
    pub fn value(&self) -> anyhow::Result<Option<Value>> {
        match &self.input_file {
            Some(file) => Document::read(file)?.json().map(Some),
            None => input::value(&self.input),
        }
    }
}

pub async fn run(context: &Context, args: RunArgs) -> anyhow::Result<()> {
    if args.definition.trim().is_empty() {
        return Err(usage("the name of the workflow is blank: `countersign definition list` lists the published ones"));
    }
    let request = StartRun {
        definition: args.definition,
        input: args.input.value()?,
        subject_ref: args.subject,
        priority: args.priority,
        start_at: args.at.map(Instant::to_wire),
        corrects: args.corrects,
        from_step: None,
        dry_run: args.dry_run,
    };
    let answer = context.client_keyed(&args.keyed)?.start_run(&request).await;
    let answer = answer.map_err(|error| advised(error, |problem| elsewhere(problem, &request.definition)))?;
    if args.quiet {
        return output::say_verbatim(&answer.body.run_id);
    }
    told(context, &context.client()?, &request, &answer, args.watch).await
}

/// Where what was asked for is to be found.
fn elsewhere(problem: &Problem, definition: &str) -> Option<String> {
    match (problem.code.as_str(), problem.field.as_deref()) {
        ("not-known", Some("definition")) => Some("countersign definition list shows what is published".to_owned()),
        ("invalid-request", Some("definition")) if problem.detail.contains("is a process") => {
            Some(format!("countersign start {} --subject REF", shell_word(definition)))
        }
        _ => None,
    }
}

/// Says what was started and what to do next, or goes on to watch it.
pub async fn told(
    context: &Context,
    client: &Client,
    request: &StartRun,
    answer: &Answer<RunStarted>,
    watches: bool,
) -> anyhow::Result<()> {
    let run_id = &answer.body.run_id;
    if context.json() {
        // Watching is lines of JSON, and this is the first.
        if watches { output::say_verbatim(&answer.json.to_string())? } else { output::json(&answer.json)? }
    } else {
        let now = Timestamp::now();
        let at = request.start_at.as_deref().filter(|at| !is_past(at, now));
        let at = at.map_or_else(String::new, |at| format!(", not before {}", when(at, now)));
        let dry = if request.dry_run { ", a dry run" } else { "" };
        output::say(&format!("started {}{dry}{at}", tint(Tint::Strong, run_id)))?;
    }
    if watches {
        return watch::follow(context, client, run_id).await;
    }
    if context.json() {
        return Ok(());
    }
    // Who may start runs may not be allowed to read them: then to watch has to do.
    let view = client.run(run_id).await.ok().map(|answer| answer.body);
    let further = view.iter().flat_map(|view| next(view, Timestamp::now())).map(|(_, command)| command);
    let ended = view.as_ref().filter(|view| is_ended(&view.state) && !succeeded(view));
    if let Some(view) = ended {
        let why = view.last_error.as_deref().map_or_else(String::new, |error| error_text(view, error));
        output::complain(&format!("{} {}", tint(Tint::Bad, &format!("{} at once:", view.state)), printable(&why)));
        output::next(further)?;
        return Err(Failure::Reported.into());
    }
    output::next([format!("countersign watch {}", shell_word(run_id))].into_iter().chain(further))
}
