//! `countersign proposal`: changes that take effect with their approval.

use super::Keyed;
use super::connection::Context;
use super::input::{Document, json_or_file};
use super::output::{self, printable, printable_lines};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::Client;
use countersign_client::wire::{
    CommentOnProposal, DefinitionDiff, EditProposal, MergeProposal, MoveProposal, NewProposal, ProposalDiff,
    ProposalQuery, ProposalSummary, ProposalView,
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Propose changes of definitions, review and merge them
#[derive(Subcommand)]
pub enum ProposalCommand {
    /// Propose a change; it is a draft until it is submitted
    Create(Box<CreateArgs>),
    /// Replace parts of a proposal: it is a draft again, and approvals of it count no more
    Edit(Box<EditArgs>),
    /// Show a proposal with its versions, comments and approvals
    Show(OneArgs),
    /// List proposals, the oldest first
    List(ListArgs),
    /// Submit a draft for review
    Submit(MoveArgs),
    /// Ask the approvers of a submitted proposal
    Review(MoveArgs),
    /// Comment on a proposal
    Comment(CommentArgs),
    /// Show what a proposal changes, against its base and against the newest version
    Diff(OneArgs),
    /// Merge an approved proposal
    Merge(MergeArgs),
    /// Withdraw a proposal
    Withdraw(MoveArgs),
}

#[derive(Args)]
pub struct CreateArgs {
    /// workflow, process or machine; or a kind of your own
    #[arg(long)]
    kind: String,
    /// What is to change: the name of the definition
    #[arg(long)]
    target: String,
    #[command(flatten)]
    content: ContentArgs,
    /// Who proposes, where it is no person and no plain service
    #[arg(long, value_enum, value_name = "CLASS")]
    class: Option<ClassArg>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Clone, Copy, ValueEnum)]
enum ClassArg {
    #[value(name = "kg_feedback")]
    KgFeedback,
    #[value(name = "ai_agent")]
    AiAgent,
}

#[derive(Args)]
struct ContentArgs {
    /// The file with the whole document of the next version
    #[arg(long, value_name = "FILE")]
    document: Option<String>,
    /// The version that it changes, 0 for none [default: the newest]
    #[arg(long, value_name = "VERSION")]
    base: Option<u32>,
    /// What is to be done, for a kind of your own: a JSON object, or a file with one
    #[arg(long, value_name = "JSON")]
    action: Option<String>,
    /// Where the evidence for it is
    #[arg(long, value_name = "REF")]
    evidence: Option<String>,
    /// What else it concerns (may be repeated)
    #[arg(long = "affects", value_name = "REF")]
    affected: Vec<String>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Args)]
pub struct EditArgs {
    /// The proposal
    proposal_id: String,
    #[command(flatten)]
    content: ContentArgs,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct OneArgs {
    /// The proposal
    proposal_id: String,
}

#[derive(Args)]
pub struct ListArgs {
    /// Filter by state
    #[arg(long)]
    state: Option<String>,
    /// Filter by what is to change
    #[arg(long)]
    target: Option<String>,
    /// Filter by kind
    #[arg(long)]
    kind: Option<String>,
    /// List the newest first
    #[arg(long)]
    newest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args)]
pub struct MoveArgs {
    /// The proposal
    proposal_id: String,
    /// Why
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct CommentArgs {
    /// The proposal
    proposal_id: String,
    /// The comment
    text: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct MergeArgs {
    /// The proposal
    proposal_id: String,
    /// Where the evidence is that it was applied, for a kind of your own
    #[arg(long, value_name = "REF")]
    evidence: Option<String>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

pub async fn run(context: &Context, command: ProposalCommand) -> anyhow::Result<()> {
    match command {
        ProposalCommand::Create(args) => create(context, *args).await,
        ProposalCommand::Edit(args) => edit(context, *args).await,
        ProposalCommand::Show(args) => show(context, &args.proposal_id).await,
        ProposalCommand::List(args) => list(context, args).await,
        ProposalCommand::Submit(args) => step(context, args, "submit").await,
        ProposalCommand::Review(args) => step(context, args, "review").await,
        ProposalCommand::Withdraw(args) => step(context, args, "withdraw").await,
        ProposalCommand::Comment(args) => comment(context, args).await,
        ProposalCommand::Diff(args) => diff(context, &args.proposal_id).await,
        ProposalCommand::Merge(args) => merge(context, args).await,
    }
}

fn text_of(file: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let document = Document::read(file)?;
    let text = String::from_utf8(document.bytes);
    Ok(Some(text.map_err(|_| super::failure::usage(format!("{} is not UTF-8", document.name)))?))
}

fn action_of(given: Option<&str>) -> anyhow::Result<Option<Map<String, Value>>> {
    given.map(json_or_file).transpose()
}

async fn newest(client: &Client, name: &str) -> anyhow::Result<u32> {
    match client.definition(name).await {
        Ok(answer) => Ok(answer.body.version),
        Err(error) if error.code() == Some("not-known") => Ok(0),
        Err(error) => Err(error.into()),
    }
}

async fn create(context: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let ContentArgs { document, base, action, evidence, affected, reason } = args.content;
    let is_definition = ["workflow", "process", "machine"].contains(&args.kind.as_str());
    let base_version = match base {
        Some(base) => base,
        None if is_definition => newest(&client, &args.target).await?,
        None => 0,
    };
    let request = NewProposal {
        proposal_kind: args.kind,
        target: args.target,
        base_version,
        document: text_of(document.as_deref())?,
        proposed_action: action_of(action.as_deref())?,
        evidence_ref: evidence,
        affected,
        reason: reason.unwrap_or_default(),
        proposer_class: args.class.map(|class| {
            match class {
                ClassArg::KgFeedback => "kg_feedback",
                ClassArg::AiAgent => "ai_agent",
            }
            .to_owned()
        }),
    };
    let answer = client.propose(&request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let id = printable(&answer.body.proposal_id);
    output::say(&format!("{} proposal {}", printable(&answer.body.state), tint(Tint::Strong, &id)))?;
    output::next([format!("countersign proposal submit {id}")])
}

async fn edit(context: &Context, args: EditArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let now = client.proposal(&args.proposal_id).await?.body;
    let ContentArgs { document, base, action, evidence, affected, reason } = args.content;
    let request = EditProposal {
        base_version: base.or(now.base_version).unwrap_or_default(),
        document: text_of(document.as_deref())?.or(now.document),
        proposed_action: action_of(action.as_deref())?.or(now.proposed_action),
        evidence_ref: evidence.or(now.evidence_ref),
        affected: if affected.is_empty() { now.affected } else { affected },
        reason: reason.or(now.reason).unwrap_or_default(),
    };
    let answer = client.edit_proposal(&args.proposal_id, &request).await?;
    told(context, &answer.json, &args.proposal_id, &answer.body.state)
}

async fn step(context: &Context, args: MoveArgs, how: &str) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let answer = client.move_proposal(&args.proposal_id, how, &MoveProposal { reason: args.reason }).await?;
    told(context, &answer.json, &args.proposal_id, &answer.body.state)
}

async fn comment(context: &Context, args: CommentArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let answer = client.comment_on_proposal(&args.proposal_id, &CommentOnProposal { text: args.text }).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    output::say("commented")
}

fn told(context: &Context, json: &Value, id: &str, state: &str) -> anyhow::Result<()> {
    if context.json() {
        return output::json(json);
    }
    output::say(&format!("{} {}", tinted(state), printable(id)))
}

async fn merge(context: &Context, args: MergeArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let request = MergeProposal { reason: args.reason, evidence_ref: args.evidence };
    let answer = client.merge_proposal(&args.proposal_id, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let merged = &answer.body;
    match (&merged.name, merged.version) {
        (Some(name), Some(version)) => {
            let name = tint(Tint::Strong, &format!("{name}@{version}"));
            output::say(&format!("{} {name}", tint(Tint::Good, "published")))
        }
        _ => told(context, &answer.json, &args.proposal_id, &merged.state),
    }
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let order = args.newest_first.then(|| "desc".to_owned());
    let fetch = async |limit, cursor| {
        let (state, target, kind) = (args.state.clone(), args.target.clone(), args.kind.clone());
        client.proposals(&ProposalQuery { state, target, kind, limit, cursor, order: order.clone() }).await
    };
    collect(&args.page, fetch).await?.print(context.json(), table, "No proposals.")
}

fn tinted(state: &str) -> String {
    let how = match state {
        "approved" | "merged" => Tint::Good,
        "rejected" => Tint::Bad,
        "withdrawn" => Tint::Dim,
        _ => Tint::Wait,
    };
    tint(how, state)
}

fn table(proposals: &[ProposalSummary]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["proposal", "kind", "target", "state", "by", "made"]);
    for one in proposals {
        table.row([
            printable(&one.proposal_id),
            printable(&one.proposal_kind),
            tint(Tint::Strong, &one.target),
            tinted(&one.state),
            printable(&one.proposer_ref),
            when(&one.created_at, now),
        ]);
    }
    table
}

async fn show(context: &Context, id: &str) -> anyhow::Result<()> {
    let answer = context.client()?.proposal(id).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&shown(&answer.body, Timestamp::now()))
}

fn shown(view: &ProposalView, now: Timestamp) -> String {
    let mut text =
        format!("{} {} {}\n", tinted(&view.state), printable(&view.proposal_kind), tint(Tint::Strong, &view.target));
    let class = view.proposer_class.as_deref().unwrap_or("purged");
    let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:<10} {value}\n"));
    line("proposal", &printable(&view.proposal_id));
    line("by", &format!("{} ({})", printable(&view.proposer_ref), printable(class)));
    line("made", &when(&view.created_at, now));
    if let Some(base) = view.base_version {
        let newest = view.newest_version.filter(|newest| *newest != base);
        line("base", &newest.map_or(base.to_string(), |newest| format!("{base}, and {newest} is the newest")));
    }
    for (name, value) in [("digest", &view.digest), ("evidence", &view.evidence_ref), ("reason", &view.reason)] {
        value.iter().for_each(|value| line(name, &printable(value)));
    }
    if let Some(action) = &view.proposed_action {
        line("action", &printable(&Value::Object(action.clone()).to_string()));
    }
    line("affects", &printable(&view.affected.join(", ")));
    line("approvers", &printable(&view.approvers.join(", ")));
    if let Some(merged) = &view.merged {
        line("merged", &printable(&Value::Object(merged.clone()).to_string()));
    }
    for gate in &view.gates {
        let who = gate.decided_by.as_ref().unwrap_or(&gate.approver_ref);
        line("approval", &format!("{:?} {}", gate.state, printable(who)));
    }
    for comment in &view.comments {
        line(
            "comment",
            &format!("{}, {}: {}", printable(&comment.by), when(&comment.at, now), printable(&comment.text)),
        );
    }
    if let Some(document) = &view.document {
        text.push('\n');
        text.push_str(&printable_lines(document));
    }
    text.trim_end().to_owned()
}

async fn diff(context: &Context, id: &str) -> anyhow::Result<()> {
    let answer = context.client()?.proposal_diff(id).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&compared(&answer.body))
}

fn compared(diff: &ProposalDiff) -> String {
    let mut text = String::new();
    for problem in &diff.problems {
        let (path, message) = (printable(&problem.path), printable(&problem.message));
        let _ = writeln!(text, "{} {path}: {message}", tint(Tint::Bad, "problem"));
    }
    match &diff.base {
        Some(base) => changes(&mut text, &format!("against version {}", diff.base_version), base),
        None if diff.base_version == 0 => text.push_str("the first version\n"),
        None => {}
    }
    if let (true, Some(newest)) = (diff.needs_rebase, &diff.newest) {
        changes(&mut text, &format!("against version {}, the newest", diff.newest_version), newest);
    }
    if diff.needs_rebase {
        let _ = writeln!(text, "the newest version is {}: change the base before the merge", diff.newest_version);
    }
    text.trim_end().to_owned()
}

fn changes(text: &mut String, title: &str, diff: &DefinitionDiff) {
    let _ = writeln!(text, "{}", tint(Tint::Strong, title));
    for (sign, names) in [("+", &diff.added), ("-", &diff.removed)] {
        names.iter().for_each(|name| text.push_str(&format!("  {sign} {}\n", printable(name))));
    }
    for change in &diff.changed {
        let (path, from, to) = (printable(&change.path), change.from.to_string(), change.to.to_string());
        let _ = writeln!(text, "  ~ {path}: {} → {}", printable(&from), printable(&to));
    }
    for (sign, edges) in [("+", &diff.edges.added), ("-", &diff.edges.removed)] {
        for edge in edges {
            let label = edge.label.as_deref().map_or_else(String::new, |label| format!(" ({})", printable(label)));
            let _ = writeln!(text, "  {sign} {} → {}{label}", printable(&edge.from), printable(&edge.to));
        }
    }
}
