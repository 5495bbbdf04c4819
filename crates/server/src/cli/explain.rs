//! `countersign explain`: the page of a refusal code, compiled in so that it is there when no server is.

use super::connection::Context;
use super::failure::usage;
use super::output;
use super::table::{Table, Tint, tint};
use clap::Args;
use countersign_server::pages::{all, find, summary_of};
use serde_json::json;

/// Explain a refusal code: its causes and fixes; without a code, list all codes
#[derive(Args)]
pub struct ExplainArgs {
    /// A code, e.g. gate-not-cleared
    code: Option<String>,
}

pub fn run(context: &Context, args: &ExplainArgs) -> anyhow::Result<()> {
    let Some(name) = &args.code else { return list(context) };
    let Some((code, page)) = find(name.trim()) else {
        return Err(usage(format!("there is no code `{name}`: `countersign explain` lists all codes")));
    };
    if context.json() {
        return output::json(&json!({"code": code, "summary": summary_of(page), "page": page}));
    }
    output::say_verbatim(page.trim_end())
}

fn list(context: &Context) -> anyhow::Result<()> {
    if context.json() {
        let items: Vec<_> = all().map(|(code, page)| json!({"code": code, "summary": summary_of(page)})).collect();
        return output::json(&json!({"items": items, "next": null}));
    }
    let mut table = Table::new(["code", "meaning"]);
    for (code, page) in all() {
        table.row([tint(Tint::Strong, code), summary_of(page).to_owned()]);
    }
    output::say(&table.to_string())
}
