//! `countersign gate show`: one gate, with all that its approvers decide on.

use crate::cli::asked::{Asked, artifacts_of, checks_of};
use crate::cli::connection::Context;
use crate::cli::failure::advised;
use crate::cli::ids;
use crate::cli::instance::process_or_run;
use crate::cli::output::{self, printable, shell_word};
use crate::cli::run_view::whole;
use crate::cli::table::{Tint, tint};
use crate::cli::view::gates_table;
use anyhow::bail;
use clap::Args;
use countersign_client::wire::{Binding, Gate, StepArtifact, StepCheck};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::{Value, json};

#[derive(Args)]
pub struct ShowArgs {
    /// The process or the run
    instance: String,
    /// The transition's action; in a run the step's name, or resume, void, cancel
    action: String,
}

/// What a gate belongs to.
struct Of {
    /// `run` or `process`.
    kind: &'static str,
    id: String,
    gates: Vec<Gate>,
    json: Value,
    checks: Vec<StepCheck>,
    artifacts: Vec<StepArtifact>,
}

async fn look(client: &Client, instance: &str) -> Result<Of, Error> {
    let process = async {
        let answer = client.process(instance).await?;
        let (id, gates) = (answer.body.instance_id, answer.body.gates);
        Ok(Of { kind: "process", id, gates, json: answer.json, checks: vec![], artifacts: vec![] })
    };
    let run = async {
        let answer = whole(client, instance).await?;
        let (checks, artifacts) = (checks_of(&answer.body), artifacts_of(&answer.body));
        let (id, gates) = (answer.body.run_id, answer.body.gates);
        Ok(Of { kind: "run", id, gates, json: answer.json, checks, artifacts })
    };
    process_or_run(process, run).await
}

pub async fn run(context: &Context, args: ShowArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let instance = ids::instance(&client, &args.instance).await?;
    let looked = look(&client, &instance).await.map_err(|error| {
        advised(error, |problem| {
            let is_denied = problem.code == "permission-denied";
            is_denied.then(|| "countersign inbox --full shows what you are asked, without runs:read".to_owned())
        })
    })?;
    let Of { kind, id, gates, json, checks, artifacts } = looked;
    let current = |gate: &Gate| gate.action == args.action && gate.binding == Binding::Current;
    let shown: Vec<Gate> = gates.iter().filter(|gate| current(gate)).cloned().collect();
    let Some(first) = shown.first() else {
        let open: Vec<&str> = gates.iter().map(|gate| gate.action.as_str()).collect();
        let known = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
        let action = printable(&args.action);
        bail!("no gate of `{action}` was opened in this {kind}; opened were: {}", printable(&known));
    };
    if context.json() {
        let all = json.get("gates").and_then(Value::as_array).cloned().unwrap_or_default();
        let shown: Vec<Value> =
            all.into_iter().zip(&gates).filter(|(_, gate)| current(gate)).map(|(json, _)| json).collect();
        return output::json(&json!({"gates": shown, "checks": checks, "artifacts": artifacts}));
    }
    let (request, request_digest) = (first.request.as_ref(), first.request_digest.as_deref());
    let asked = Asked { request, request_digest, checks, artifacts };
    output::say(&format!("{} of {kind} {}", tint(Tint::Strong, &first.action), printable(&id)))?;
    output::say(&gates_table(&shown, Timestamp::now()).to_string())?;
    let text = asked.render();
    if !text.is_empty() {
        output::say(&format!("\n{text}\n"))?;
    }
    if shown.iter().any(Gate::waits) {
        let digest = request_digest.map_or_else(String::new, |digest| format!(" --request-digest {digest}"));
        let (id, action) = (shell_word(&id), shell_word(&first.action));
        output::next([format!("countersign gate decide {id} {action} approve{digest}")])?;
    }
    Ok(())
}
