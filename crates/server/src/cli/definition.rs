//! `countersign definition`: check, publish and read definitions.

use super::connection::Context;
use super::failure::{Failure, usage};
use super::graph::{drawn, mermaid};
use super::input::Document;
use super::output::{self, printable, printable_lines};
use super::page::{PageArgs, collect};
use super::registry;
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand};
use countersign_client::Error;
use countersign_client::wire::{DefinitionProblem, DefinitionQuery, DefinitionSummary, DefinitionView};
use countersign_definition::{Kind, Problem};
use jiff::Timestamp;
use serde_json::json;

/// Check, publish and read definitions
#[derive(Subcommand)]
pub enum DefinitionCommand {
    /// Check definition files; needs no server and publishes nothing
    Validate(FilesArgs),
    /// Publish definition files; an identical one makes no new version
    Apply(FilesArgs),
    /// List the newest version of every definition
    List(PageArgs),
    /// Show a definition: its steps, or the states and transitions of a machine, and its document
    Show(ShowArgs),
}

#[derive(Args)]
pub struct FilesArgs {
    /// YAML or JSON files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Args)]
pub struct ShowArgs {
    /// NAME for the newest version, NAME@2 for that one
    #[arg(value_name = "NAME[@VERSION]")]
    definition: String,
    /// Print a Mermaid diagram instead
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
}

pub async fn run(context: &Context, command: DefinitionCommand) -> anyhow::Result<()> {
    match command {
        DefinitionCommand::Validate(args) => validate(context, &args),
        DefinitionCommand::Apply(args) => apply(context, args).await,
        DefinitionCommand::List(page) => list(context, page).await,
        DefinitionCommand::Show(args) => show(context, &args).await,
    }
}

/// Checks every file, so that one run tells everything. Needs no server: what only a deployment knows
/// is checked when the definition is applied.
fn validate(context: &Context, args: &FilesArgs) -> anyhow::Result<()> {
    let mut all_valid = true;
    for file in &args.files {
        let document = Document::read(file)?;
        let problems = problems_of(&document);
        all_valid &= problems.is_empty();
        if context.json() {
            let problems = problems.iter().map(to_wire).collect::<Vec<_>>();
            output::json(&json!({"file": document.name, "valid": problems.is_empty(), "problems": problems}))?;
        } else if problems.is_empty() {
            output::say(&format!("{} {}", tint(Tint::Good, "valid"), printable(&document.name)))?;
        } else {
            output::say_verbatim(&rendered(&document, &problems))?;
        }
    }
    if all_valid { Ok(()) } else { Err(Failure::Reported.into()) }
}

/// Publishes the files in the order given, and stops at the first that is refused.
async fn apply(context: &Context, args: FilesArgs) -> anyhow::Result<()> {
    let documents = args.files.iter().map(|file| Document::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let client = context.client()?;
    for document in &documents {
        let answer = match client.publish_definition(document.format(), &document.bytes).await {
            Ok(answer) => answer,
            Err(error) => return Err(explained(context, document, error)),
        };
        if context.json() {
            output::json(&answer.json)?;
            continue;
        }
        let published = &answer.body;
        let name = format!("{}@{}", published.name, published.version);
        let done = if answer.status == 201 { tint(Tint::Good, "published") } else { tint(Tint::Dim, "unchanged") };
        let told =
            format!("{done} {} {}", tint(Tint::Strong, &name), tint(Tint::Dim, &format!("({})", published.digest)));
        output::say(&told)?;
    }
    Ok(())
}

/// A document that is refused for what it says is shown with everything that is wrong with it.
fn explained(context: &Context, document: &Document, mut error: Error) -> anyhow::Error {
    let problems = problems_of(document);
    if error.code() == Some("invalid-definition") && !problems.is_empty() && !context.json() {
        output::complain_verbatim(&rendered(document, &problems));
        // They have been told.
        if let Error::Refused(problem) = &mut error {
            problem.problems.clear();
        }
    }
    anyhow::Error::new(error).context(format!("publish {}", document.name))
}

fn problems_of(document: &Document) -> Vec<Problem> {
    countersign_definition::parse(&document.bytes).err().unwrap_or_default()
}

/// With colour, which the way to the terminal takes out again where it is not wanted.
fn rendered(document: &Document, problems: &[Problem]) -> String {
    let text = String::from_utf8_lossy(&document.bytes);
    countersign_definition::render(&document.name, &text, problems, true).trim_end().to_owned()
}

fn to_wire(problem: &Problem) -> DefinitionProblem {
    DefinitionProblem {
        path: problem.path.clone(),
        line: problem.line,
        column: problem.column,
        code: problem.code.as_str().to_owned(),
        message: problem.message.clone(),
    }
}

async fn list(context: &Context, page: PageArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let fetch = async |limit, cursor| client.definitions(&DefinitionQuery { limit, cursor }).await;
    collect(&page, fetch).await?.print(
        context.json(),
        table,
        "No definitions. `countersign definition apply FILE` publishes one.",
    )
}

async fn show(context: &Context, args: &ShowArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let answer = match args.definition.split_once('@') {
        None => client.definition(&args.definition).await?,
        Some((name, version)) => {
            let version = version.parse().map_err(|_| usage(format!("`{version}` is no version: write NAME@2")))?;
            client.definition_version(name, version).await?
        }
    };
    if context.json() {
        return output::json(&answer.json);
    }
    if answer.body.kind == Kind::Machine.as_str() {
        let machine = client.machine(&format!("{}@{}", answer.body.name, answer.body.version)).await?.body;
        return match args.mermaid {
            true => output::say_verbatim(registry::mermaid(&machine).trim_end()),
            false => output::say(&view(&answer.body, Some(registry::drawn(&machine)))),
        };
    }
    // A newer server may have published what this version cannot read.
    let parsed = countersign_definition::parse(answer.body.document.as_bytes()).ok();
    match parsed.as_ref().filter(|_| args.mermaid) {
        Some(definition) => output::say_verbatim(&mermaid(&definition.body)),
        None if args.mermaid => Err(usage("this version of countersign cannot read the document")),
        None => output::say(&view(&answer.body, parsed.and_then(|definition| drawn(&definition.body)))),
    }
}

fn table(definitions: &[DefinitionSummary]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["definition", "version", "kind", "published", "by", "digest"]);
    for definition in definitions {
        table.row([
            tint(Tint::Strong, &definition.name),
            definition.version.to_string(),
            printable(&definition.kind),
            when(&definition.published_at, now),
            printable(&definition.published_by),
            tint(Tint::Dim, &definition.digest.chars().take(12).collect::<String>()),
        ]);
    }
    table
}

fn view(definition: &DefinitionView, drawn: Option<String>) -> String {
    let heading = format!("{}@{}", definition.name, definition.version);
    let published = when(&definition.published_at, Timestamp::now());
    let mut parts = vec![
        format!("{} {}", tint(Tint::Strong, &heading), printable(&definition.kind)),
        format!("  {} {published} by {}", tint(Tint::Dim, "published"), printable(&definition.published_by)),
        format!("  {} {}", tint(Tint::Dim, "digest   "), printable(&definition.digest)),
        String::new(),
    ];
    parts.extend(drawn.into_iter().flat_map(|drawn| [drawn, String::new()]));
    parts.push(printable_lines(&definition.document));
    parts.join("\n")
}
