//! `countersign gate show`: one gate of a run, with all that its approvers decide on.

use crate::cli::asked::{Asked, artifacts_of, checks_of};
use crate::cli::connection::Context;
use crate::cli::failure::advised;
use crate::cli::output::{self, printable, shell_word};
use crate::cli::run_view::whole;
use crate::cli::table::{Tint, tint};
use crate::cli::view::gates_table;
use anyhow::bail;
use clap::Args;
use countersign_client::wire::{ApprovalState, Binding, Gate};
use jiff::Timestamp;
use serde_json::{Value, json};

#[derive(Args)]
pub struct ShowArgs {
    /// The run
    run: String,
    /// The step's name, or resume, void, cancel
    step: String,
}

pub async fn run(context: &Context, args: ShowArgs) -> anyhow::Result<()> {
    let answer = whole(&context.client()?, &args.run).await.map_err(|error| {
        advised(error, |problem| {
            let is_denied = problem.code == "permission-denied";
            is_denied.then(|| "countersign inbox --full shows what you are asked, without runs:read".to_owned())
        })
    })?;
    let run = &answer.body;
    let current = |gate: &Gate| gate.action == args.step && gate.binding == Binding::Current;
    let gates: Vec<Gate> = run.gates.iter().filter(|gate| current(gate)).cloned().collect();
    let Some(first) = gates.first() else {
        let open: Vec<&str> = run.gates.iter().map(|gate| gate.action.as_str()).collect();
        let known = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
        bail!("no gate of `{}` was opened in this run; opened were: {}", printable(&args.step), printable(&known));
    };
    let (checks, artifacts) = (checks_of(run), artifacts_of(run));
    if context.json() {
        let all = answer.json.get("gates").and_then(Value::as_array).cloned().unwrap_or_default();
        let shown: Vec<Value> =
            all.into_iter().zip(&run.gates).filter(|(_, gate)| current(gate)).map(|(json, _)| json).collect();
        return output::json(&json!({"gates": shown, "checks": checks, "artifacts": artifacts}));
    }
    let (request, request_digest) = (first.request.as_ref(), first.request_digest.as_deref());
    let asked = Asked { request, request_digest, checks, artifacts };
    output::say(&format!("{} of run {}", tint(Tint::Strong, &first.action), printable(&run.run_id)))?;
    output::say(&gates_table(&gates, Timestamp::now()).to_string())?;
    let text = asked.render();
    if !text.is_empty() {
        output::say(&format!("\n{text}\n"))?;
    }
    if gates.iter().any(|gate| gate.state == ApprovalState::Pending) {
        let digest = request_digest.map_or_else(String::new, |digest| format!(" --request-digest {digest}"));
        let (run, action) = (shell_word(&run.run_id), shell_word(&first.action));
        output::next([format!("countersign gate decide {run} {action} approve{digest}")])?;
    }
    Ok(())
}
