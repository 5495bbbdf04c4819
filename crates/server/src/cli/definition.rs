//! `countersign definition`: check, publish and read definitions.

mod facts;
mod files;

use super::Keyed;
use super::connection::Context;
use super::failure::usage;
use super::graph::{drawn, mermaid};
use super::output::{self, printable, printable_lines};
use super::page::{PageArgs, collect};
use super::registry;
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand};
use countersign_client::wire::{DefinitionQuery, DefinitionSummary, DefinitionView, RetireDefinition, Retirement};
use countersign_definition::{Definition, Kind};
use jiff::Timestamp;

/// Check, publish and read definitions
#[derive(Subcommand)]
pub enum DefinitionCommand {
    /// Check definition files, without a server and without publishing
    Validate(FilesArgs),
    /// Publish definition files, each after those that it needs; an identical file creates no new version
    Apply(FilesArgs),
    /// Retire a definition: it starts nothing; running instances continue
    Retire(RetireArgs),
    /// List the newest version of every definition
    List(PageArgs),
    /// Show a definition: what starts and bounds its runs, its steps, or the states and transitions of a machine, and
    /// its document
    Show(ShowArgs),
}

#[derive(Args)]
pub struct FilesArgs {
    /// YAML or JSON files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Args)]
pub struct RetireArgs {
    /// The definition
    name: String,
    /// The reason, for the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
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
        DefinitionCommand::Validate(args) => files::validate(context, &args.files),
        DefinitionCommand::Apply(args) => files::apply(context, &args.files).await,
        DefinitionCommand::Retire(args) => retire(context, args).await,
        DefinitionCommand::List(page) => list(context, page).await,
        DefinitionCommand::Show(args) => show(context, &args).await,
    }
}

async fn retire(context: &Context, args: RetireArgs) -> anyhow::Result<()> {
    let request = RetireDefinition { reason: Some(args.reason) };
    let answer = context.client_keyed(&args.keyed)?.retire_definition(&args.name, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let retired = tint(Tint::Strong, &format!("{}@{}", answer.body.name, answer.body.version));
    output::say(&format!(
        "retired {retired}: it starts nothing; to use it again, publish it with `countersign definition apply`"
    ))
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
            let version = version.parse().map_err(|_| usage(format!("`{version}` is not a version: write NAME@2")))?;
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
            false => output::say(&view(&answer.body, None, Some(registry::drawn(&machine)))),
        };
    }
    // A newer server may have published what this version cannot read.
    let parsed = countersign_definition::parse(answer.body.document.as_bytes()).ok();
    match parsed.as_ref().filter(|_| args.mermaid) {
        Some(definition) => output::say_verbatim(&mermaid(&definition.body)),
        None if args.mermaid => Err(usage("this version of countersign cannot read the document")),
        None => {
            let drawn = parsed.as_ref().and_then(|definition| drawn(&definition.body));
            output::say(&view(&answer.body, parsed.as_ref(), drawn))
        }
    }
}

fn table(definitions: &[DefinitionSummary]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["definition", "version", "kind", "published", "by", "digest"]);
    for definition in definitions {
        table.row([
            tint(Tint::Strong, &definition.name),
            definition.version.to_string(),
            match (&definition.quarantined, &definition.retired) {
                (Some(_), _) => format!("{}, quarantined", printable(&definition.kind)),
                (None, Some(_)) => format!("{}, retired", printable(&definition.kind)),
                (None, None) => printable(&definition.kind),
            },
            when(&definition.published_at, now),
            printable(&definition.published_by),
            tint(Tint::Dim, &definition.digest.chars().take(12).collect::<String>()),
        ]);
    }
    table
}

fn retirement(retired: &Retirement, now: Timestamp) -> String {
    let reason = retired.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    tint(Tint::Bad, &format!("{} by {}{reason}", when(&retired.at, now), retired.by))
}

fn view(definition: &DefinitionView, parsed: Option<&Definition>, drawn: Option<String>) -> String {
    let heading = format!("{}@{}", definition.name, definition.version);
    let now = Timestamp::now();
    let published = format!("{} by {}", when(&definition.published_at, now), printable(&definition.published_by));
    let mut facts = vec![("published", published), ("digest", printable(&definition.digest))];
    facts.extend(definition.quarantined.as_ref().map(|why| ("quarantined", tint(Tint::Bad, &printable(why)))));
    facts.extend(definition.retired.as_ref().map(|retired| ("retired", retirement(retired, now))));
    facts.extend(parsed.into_iter().flat_map(|definition| facts::of(definition, now)));
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut parts = vec![format!("{} {}", tint(Tint::Strong, &heading), printable(&definition.kind))];
    parts.extend(facts.iter().map(|(name, value)| format!("  {} {value}", tint(Tint::Dim, &format!("{name:width$}")))));
    parts.push(String::new());
    parts.extend(drawn.into_iter().flat_map(|drawn| [drawn, String::new()]));
    parts.push(printable_lines(&definition.document));
    parts.join("\n")
}
