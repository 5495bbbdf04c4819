//! `countersign registry`: the machines that everything moves by, as tables, as YAML and as a diagram, and what differs
//! between two of them.

use super::connection::Context;
use super::failure::usage;
use super::output::{self, printable};
use super::table::{Table, Tint, tint};
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{Machine, Registry, StateDef, TransitionDef};
use countersign_kernel::lifecycle::MachineScope;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Show the state machines of steps, tasks, runs and approvals
#[derive(Subcommand)]
pub enum RegistryCommand {
    /// Print the machines, or one machine with its states, transitions and facets
    Show(ShowArgs),
    /// Print a machine as YAML (a definition that can be applied), as JSON or as a Mermaid diagram
    Export(ExportArgs),
    /// Compare two machines of the server, or JSON files that `export` wrote
    Diff(DiffArgs),
}

#[derive(Args)]
pub struct ShowArgs {
    /// A machine: step, task, workflow_run, approval_step, assignment, approval_chain, proposal, or a published one (NAME or NAME@2)
    machine: Option<String>,
    /// Print the event types with the members of their data instead
    #[arg(long, conflicts_with = "machine")]
    events: bool,
}

#[derive(Args)]
pub struct ExportArgs {
    /// The machine: NAME or NAME@2
    machine: String,
    /// The format of the output
    #[arg(long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
    Mermaid,
}

#[derive(Args)]
pub struct DiffArgs {
    /// A machine of the server (`step`, `mine`, `mine@2`), or a JSON file
    old: String,
    /// A machine of the server (`step`, `mine`, `mine@2`), or a JSON file
    new: String,
}

pub async fn run(context: &Context, command: RegistryCommand) -> anyhow::Result<()> {
    match command {
        RegistryCommand::Show(args) => show(context, args).await,
        RegistryCommand::Export(args) => export(context, args).await,
        RegistryCommand::Diff(args) => diff(context, args).await,
    }
}

async fn show(context: &Context, args: ShowArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    match &args.machine {
        Some(id) => {
            let answer = client.machine(id).await?;
            if context.json() {
                return output::json(&answer.json);
            }
            output::say(&drawn(&answer.body))
        }
        None => {
            let answer = client.registry().await?;
            if context.json() {
                return output::json(&answer.json);
            }
            let table = if args.events { events(&answer.body) } else { overview(&answer.body) };
            output::say(&table.to_string())
        }
    }
}

fn overview(registry: &Registry) -> Table {
    let mut table = Table::new(["machine", "version", "states", "transitions", "what"]);
    for machine in &registry.machines {
        table.row([
            tint(Tint::Strong, &machine.state_machine_id),
            printable(&machine.version),
            machine.states.len().to_string(),
            machine.transitions.len().to_string(),
            printable(&machine.description),
        ]);
    }
    table
}

fn events(registry: &Registry) -> Table {
    let mut table = Table::new(["event", "version", "carries"]);
    for event in &registry.event_types {
        let required = event.schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        table.row([tint(Tint::Strong, &event.event_type), event.version.to_string(), printable(&required.join(", "))]);
    }
    table
}

/// States, transitions and facets, each as a table.
pub fn drawn(machine: &Machine) -> String {
    let title = format!("{} {}", machine.state_machine_id, machine.version);
    let mut sections = vec![format!("{}: {}", tint(Tint::Strong, &title), printable(&machine.description))];
    let mut states = Table::new(["", "state", "label", "class", "colour", "floor", ""]);
    for state in &machine.states {
        states.row([
            printable(state.ui_icon.as_deref().unwrap_or_default()),
            tint(colour(state), &state.state_code),
            printable(state.texts.as_ref().map_or("", |texts| &texts.en.label)),
            printable(&state.semantic_class),
            printable(state.ui_color_token.trim_start_matches("ui.traffic_light.")),
            printable(state.floor_equivalent.as_deref().unwrap_or_default()),
            if state.is_terminal { "terminal".to_owned() } else { String::new() },
        ]);
    }
    sections.push(states.to_string());
    let mut transitions = Table::new(["", "from", "to", "actor", "trigger", "guard", "emits", "audit", "back to"]);
    for row in &machine.transitions {
        transitions.row([
            tint(if row.proposed { Tint::Dim } else { Tint::Strong }, &row.id),
            printable(&row.from_state),
            printable(&row.to_state),
            printable(&row.actor_class),
            printable(&format!("{} {}", row.trigger_kind, row.trigger_ref)),
            printable(&row.guards.join(", ")),
            printable(row.emitted_event_type.as_deref().unwrap_or_default()),
            if row.audit_required { "yes".to_owned() } else { String::new() },
            printable(row.rollback_to.as_deref().unwrap_or_default()),
        ]);
    }
    sections.push(transitions.to_string());
    if !machine.facets.is_empty() {
        let mut facets = Table::new(["facet", "of", "order"]);
        for facet in &machine.facets {
            facets.row([
                tint(Tint::Strong, &facet.facet_code),
                printable(&facet.state_code),
                facet.primary_ordinal.to_string(),
            ]);
        }
        sections.push(facets.to_string());
    }
    for policy in &machine.rollup_policies {
        sections.push(format!(
            "roll-up {} {}",
            tint(Tint::Strong, &policy.policy_code),
            printable(&policy.policy_config.to_string())
        ));
    }
    sections.join("\n\n")
}

fn colour(state: &StateDef) -> Tint {
    match state.semantic_class.as_str() {
        "active" => Tint::Good,
        "wait" => Tint::Wait,
        "red" => Tint::Bad,
        _ => Tint::Dim,
    }
}

async fn export(context: &Context, args: ExportArgs) -> anyhow::Result<()> {
    let answer = context.client()?.machine(&args.machine).await?;
    match args.format {
        _ if context.json() => output::json(&answer.json),
        Format::Json => output::json(&answer.json),
        Format::Yaml if is_definable(&answer.body) => {
            output::say_verbatim(document(&answer.body, &answer.json).trim_end())
        }
        Format::Yaml => output::say_verbatim(yaml(&answer.json).trim_end()),
        Format::Mermaid => output::say_verbatim(mermaid(&answer.body).trim_end()),
    }
}

/// Whether a machine of this scope can be declared by a definition.
fn is_definable(machine: &Machine) -> bool {
    MachineScope::ALL.iter().any(|scope| scope.as_str() == machine.scope)
}

/// The machine as a definition of its own: everything that it consists of, the floor's part included.
fn document(machine: &Machine, json: &Value) -> String {
    let mut out = String::from("kind: machine\n");
    member(&mut out, "name", &Value::from(machine.state_machine_id.as_str()), 0);
    for part in ["scope", "description", "initial_state", "states", "transitions", "facets", "rollup_policies"] {
        let Some(mut value) = json.get(part).cloned() else { continue };
        // A document names one guard of a row; the engine asks them all.
        for row in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            row.remove("guards");
        }
        member(&mut out, part, &value, 0);
    }
    out
}

/// Block YAML; texts are quoted as JSON has them, which YAML understands.
fn yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| member(&mut out, name, value, 0)),
        other => out.push_str(&other.to_string()),
    }
    out
}

fn member(out: &mut String, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let _ = match value {
        Value::Array(items) if !items.is_empty() => {
            let _ = writeln!(out, "{indent}{name}:");
            items.iter().try_for_each(|item| writeln!(out, "{indent}  - {item}"))
        }
        Value::Object(members) if !members.is_empty() => {
            let _ = writeln!(out, "{indent}{name}:");
            members.iter().for_each(|(name, value)| member(out, name, value, depth + 1));
            Ok(())
        }
        other => writeln!(out, "{indent}{name}: {other}"),
    };
}

pub fn mermaid(machine: &Machine) -> String {
    let mut edges: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in machine.transitions.iter().filter(|row| !row.proposed) {
        let ids = edges.entry((&row.from_state, &row.to_state)).or_default();
        if !ids.contains(&row.id.as_str()) {
            ids.push(&row.id);
        }
    }
    let mut text = format!("stateDiagram-v2\n    [*] --> {}\n", machine.initial_state);
    for ((from, to), ids) in edges {
        let _ = writeln!(text, "    {from} --> {to}: {}", ids.join(", "));
    }
    for state in machine.states.iter().filter(|state| state.is_terminal) {
        let _ = writeln!(text, "    {} --> [*]", state.state_code);
    }
    text
}

async fn diff(context: &Context, args: DiffArgs) -> anyhow::Result<()> {
    let (old, new) = (named(context, &args.old).await?, named(context, &args.new).await?);
    let lines = differences(&old, &new);
    if context.json() {
        let items: Vec<Value> = lines
            .iter()
            .map(|(change, what, detail)| serde_json::json!({"change": change, "what": what, "detail": detail}))
            .collect();
        return output::json(&Value::Array(items));
    }
    if lines.is_empty() {
        return output::say("The same states and the same transitions.");
    }
    let drawn: Vec<String> = lines
        .iter()
        .map(|(change, what, detail)| {
            let (mark, colour) = match *change {
                "added" => ("+", Tint::Good),
                "removed" => ("-", Tint::Bad),
                _ => ("~", Tint::Wait),
            };
            format!("{} {} {}", tint(colour, mark), tint(Tint::Strong, what), printable(detail))
        })
        .collect();
    output::say(&drawn.join("\n"))
}

async fn named(context: &Context, name: &str) -> anyhow::Result<Machine> {
    if !std::path::Path::new(name).is_file() {
        return Ok(context.client()?.machine(name).await?.body);
    }
    let text = std::fs::read_to_string(name)?;
    serde_json::from_str(&text)
        .map_err(|error| usage(format!("{name} is no machine that `export --format json` wrote: {error}")))
}

type Difference = (&'static str, String, String);

fn differences(old: &Machine, new: &Machine) -> Vec<Difference> {
    let mut lines = vec![];
    let state_key = |state: &StateDef| state.state_code.clone();
    let row_key = |row: &TransitionDef| {
        format!("{} {} → {} by {} {}", row.id, row.from_state, row.to_state, row.actor_class, row.trigger_ref)
    };
    compare(&mut lines, "state", &old.states, &new.states, state_key);
    compare(&mut lines, "transition", &old.transitions, &new.transitions, row_key);
    compare(&mut lines, "facet", &old.facets, &new.facets, |facet| facet.facet_code.clone());
    lines
}

fn compare<T: serde::Serialize>(
    lines: &mut Vec<Difference>,
    kind: &str,
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> String,
) {
    let members = |rows: &[T]| -> BTreeMap<String, Value> {
        rows.iter().map(|row| (key(row), serde_json::to_value(row).unwrap_or_default())).collect()
    };
    let (old, new) = (members(old), members(new));
    for (name, row) in &old {
        match new.get(name) {
            None => lines.push(("removed", format!("{kind} {name}"), String::new())),
            Some(other) => {
                let changed: Vec<String> = changed_members(row, other);
                if !changed.is_empty() {
                    lines.push(("changed", format!("{kind} {name}"), changed.join(", ")));
                }
            }
        }
    }
    for name in new.keys().filter(|name| !old.contains_key(*name)) {
        lines.push(("added", format!("{kind} {name}"), String::new()));
    }
}

fn changed_members(old: &Value, new: &Value) -> Vec<String> {
    let (Some(a), Some(b)) = (old.as_object(), new.as_object()) else { return vec![] };
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let differs = |name: &&String| a.get(*name) != b.get(*name);
    names.into_iter().filter(differs).map(|n| format!("{n}: {} → {}", text(a.get(n)), text(b.get(n)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(json: Value) -> Machine {
        serde_json::from_value(json).expect("a machine")
    }

    fn small() -> Value {
        serde_json::json!({
            "state_machine_id": "m", "scope": "step", "version": "1.0.0", "active": true, "description": "d",
            "initial_state": "a",
            "states": [{"state_code": "a", "semantic_class": "idle", "is_terminal": false, "ordinal": 1,
                "ui_color_token": "ui.traffic_light.gray", "ui_icon_token": "i", "ui_label_i18n_key": "k",
                "ui_short_message_key": "s", "is_derived": false}],
            "transitions": [{"id": "T1", "from_state": "a", "to_state": "a", "actor_class": "system",
                "trigger_kind": "timer", "trigger_ref": "t", "audit_required": false, "proposed": false}],
        })
    }

    #[test]
    fn what_differs_is_named() {
        let mut other = small();
        other["states"][0]["semantic_class"] = "wait".into();
        other["transitions"][0]["trigger_ref"] = "u".into();
        let lines = differences(&machine(small()), &machine(other));
        let told: Vec<&str> = lines.iter().map(|(change, ..)| *change).collect();
        assert_eq!(told, ["changed", "removed", "added"]);
        assert_eq!(lines[0].2, "semantic_class: \"idle\" → \"wait\"");
        assert_eq!(differences(&machine(small()), &machine(small())), vec![]);
    }

    #[test]
    fn a_diagram_and_a_document() {
        assert_eq!(mermaid(&machine(small())), "stateDiagram-v2\n    [*] --> a\n    a --> a: T1\n");
        let own = document(&machine(small()), &small());
        assert!(own.starts_with("kind: machine\nname: \"m\"\nscope: \"step\"\n"), "{own}");
        assert!(!own.contains("version") && !own.contains("active"), "{own}");
        let text = yaml(&small());
        assert!(text.contains("states:\n  - {\"") && text.contains("version: \"1.0.0\""), "{text}");
    }
}
