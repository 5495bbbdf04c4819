//! `countersign definition`: check, publish and read definitions.

use super::connection::Context;
use super::failure::{Failure, usage};
use super::input::Document;
use super::output::{self, printable, printable_lines};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use countersign_client::wire::{DefinitionProblem, DefinitionQuery, DefinitionSummary, DefinitionView};
use countersign_client::{Client, Error};
use jiff::Timestamp;

/// Check, publish and read definitions
#[derive(Subcommand)]
pub enum DefinitionCommand {
    /// Check definition files without publishing them
    Validate(FilesArgs),
    /// Publish definition files; an identical one makes no new version
    Apply(FilesArgs),
    /// List the newest version of every definition
    List(PageArgs),
    /// Show a definition and its document
    Show {
        /// NAME for the newest version, NAME@2 for that one
        #[arg(value_name = "NAME[@VERSION]")]
        definition: String,
    },
}

#[derive(Args)]
pub struct FilesArgs {
    /// YAML or JSON files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

pub async fn run(context: &Context, command: DefinitionCommand) -> anyhow::Result<()> {
    match command {
        DefinitionCommand::Validate(args) => validate(context, args).await,
        DefinitionCommand::Apply(args) => apply(context, args).await,
        DefinitionCommand::List(page) => list(context, page).await,
        DefinitionCommand::Show { definition } => show(context, &definition).await,
    }
}

/// Checks every file, so that one run tells everything.
async fn validate(context: &Context, args: FilesArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let mut all_valid = true;
    for file in &args.files {
        let document = Document::read(file)?;
        let answer = client.validate_definition(document.format(), &document.bytes).await;
        let answer = answer.with_context(|| format!("validate {file}"))?;
        all_valid &= answer.body.valid;
        if context.json() {
            output::json(&answer.json)?;
        } else if answer.body.valid {
            output::say(&format!("{} {}", tint(Tint::Good, "valid"), printable(&document.name)))?;
        } else {
            output::say(&problems(&document, &answer.body.problems))?;
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
            Err(error) => return Err(explained(context, &client, document, error).await),
        };
        if context.json() {
            output::json(&answer.json)?;
            continue;
        }
        let published = &answer.body;
        let name = format!("{}@{}", published.name, published.version);
        let done = if answer.status == 201 { tint(Tint::Good, "published") } else { tint(Tint::Dim, "unchanged") };
        let told = format!("{done} {} {}", tint(Tint::Strong, &name), tint(Tint::Dim, &format!("({})", published.digest)));
        output::say(&told)?;
    }
    Ok(())
}

/// A document that is refused for what it says is shown with everything that is wrong with it.
async fn explained(context: &Context, client: &Client, document: &Document, error: Error) -> anyhow::Error {
    if error.code() == Some("invalid-definition") && !context.json() {
        if let Ok(answer) = client.validate_definition(document.format(), &document.bytes).await {
            output::complain(&problems(document, &answer.body.problems));
        }
    }
    anyhow::Error::new(error).context(format!("publish {}", document.name))
}

async fn list(context: &Context, page: PageArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let fetch = async |limit, cursor| client.definitions(&DefinitionQuery { limit, cursor }).await;
    collect(&page, fetch).await?.print(context.json(), table, "No definitions. `countersign definition apply FILE` publishes one.")
}

async fn show(context: &Context, definition: &str) -> anyhow::Result<()> {
    let client = context.client()?;
    let answer = match definition.split_once('@') {
        None => client.definition(definition).await?,
        Some((name, version)) => {
            let version = version.parse().map_err(|_| usage(format!("`{version}` is no version: write NAME@2")))?;
            client.definition_version(name, version).await?
        }
    };
    if context.json() { output::json(&answer.json) } else { output::say(&view(&answer.body)) }
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

fn view(definition: &DefinitionView) -> String {
    let heading = format!("{}@{}", definition.name, definition.version);
    let published = when(&definition.published_at, Timestamp::now());
    [
        format!("{} {}", tint(Tint::Strong, &heading), printable(&definition.kind)),
        format!("  {} {published} by {}", tint(Tint::Dim, "published"), printable(&definition.published_by)),
        format!("  {} {}", tint(Tint::Dim, "digest   "), printable(&definition.digest)),
        String::new(),
        printable_lines(&definition.document),
    ]
    .join("\n")
}

/// Every problem with its place in the file: the line itself and a caret under the column.
fn problems(document: &Document, problems: &[DefinitionProblem]) -> String {
    let text = String::from_utf8_lossy(&document.bytes);
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for problem in problems {
        let place = format!("{}:{}:{}", document.name, problem.line, problem.column);
        let path = if problem.path.is_empty() { String::new() } else { format!(" ({})", problem.path) };
        out.push(format!(
            "{} {} {}{}",
            tint(Tint::Strong, &place),
            tint(Tint::Bad, &problem.code),
            printable(&problem.message),
            tint(Tint::Dim, &path)
        ));
        if let Some(line) = lines.get((problem.line as usize).saturating_sub(1)) {
            let before: String = line.chars().take((problem.column as usize).saturating_sub(1)).collect();
            let indent: String = printable_lines(&before).chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
            out.push(format!("  {}", printable_lines(line)));
            out.push(format!("  {indent}{}", tint(Tint::Bad, "^")));
        }
    }
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_points_at_its_place() {
        let document = Document { name: "a.yaml".into(), bytes: b"kind: process\nstats: [a]\n".to_vec() };
        let found = [
            ("", 2, 1, "unknown-field", "did you mean `states`?"),
            ("name", 9, 1, "missing-field", "a name is missing"),
        ]
        .map(|(path, line, column, code, message)| DefinitionProblem {
            path: path.into(),
            line,
            column,
            code: code.into(),
            message: message.into(),
        });
        assert_eq!(
            output::plain(&problems(&document, &found)),
            "a.yaml:2:1 unknown-field did you mean `states`?\n  stats: [a]\n  ^\n\
             a.yaml:9:1 missing-field a name is missing (name)"
        );
    }
}
