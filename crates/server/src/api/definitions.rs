//! Definitions: published as the exact bytes of a document, read back as those bytes.

use super::auth::Caller;
use super::body::{Address, PostedBytes};
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::{App, Done, Problem, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_definition::{Body, Definition, Kind, ProblemCode};
use countersign_engine::retention::UNSET_POLICY;
use countersign_engine::{Command, Engine, Outcome, store_failure};
use countersign_kernel::lifecycle::MachineScope;
use countersign_kernel::plan::MachineRef;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Registry, scopes};
use countersign_ledger::sha256;
use std::sync::Arc;

pub struct DefinitionList;

impl List for DefinitionList {
    const TAG: u8 = b'd';
    const AXES: &'static [Axis] = &[];
}

/// Publish a definition document (YAML or JSON). Needs `definitions:publish`.
#[utoipa::path(post, path = "/v1/definitions", tag = "definitions",
    request_body(content((String = "application/yaml"), (Object = "application/json"))),
    responses((status = 201, body = wire::DefinitionPublished, description = "A new version"),
        (status = 200, body = wire::DefinitionPublished, description = "The newest version is identical"), Refused))]
pub async fn publish(State(app): State<App>, caller: Caller, posted: PostedBytes) -> Done<wire::DefinitionPublished> {
    let engine = app.engine()?;
    let (bytes, checked) = checked(&engine, posted.bytes).await?;
    let definition = checked.map_err(invalid_definition)?;
    let source = String::from_utf8(bytes).map_err(|_| Problem::invalid_request("the body is not UTF-8"))?;
    let command = registry::Command::PublishDefinition(definition.published_as(source, |bytes| sha256(&[bytes])));
    match engine.execute(caller.call(Command::Registry(command), posted.sent)?).await? {
        Outcome::Published { name, version, digest, created } => {
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Json(wire::DefinitionPublished { name, version, digest })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Check a definition document and publish nothing. Needs no scope.
#[utoipa::path(post, path = "/v1/definitions/validate", tag = "definitions",
    request_body(content((String = "application/yaml"), (Object = "application/json"))),
    responses((status = 200, body = wire::Validation), Refused))]
pub async fn validate(State(app): State<App>, _: Caller, posted: PostedBytes) -> Read<wire::Validation> {
    let engine = app.engine()?;
    let (_, checked) = checked(&engine, posted.bytes).await?;
    let problems = checked.err().unwrap_or_default();
    Ok(Json(wire::Validation { valid: problems.is_empty(), problems }))
}

/// The newest version of each definition, by name. Needs `workflows:read`, `workflows:start` or
/// `definitions:publish`; with a finer scope, the definitions that it names.
#[utoipa::path(get, path = "/v1/definitions", tag = "definitions", params(Params<DefinitionList>),
    responses((status = 200, body = wire::Page<wire::DefinitionSummary>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<DefinitionList>,
) -> Read<wire::Page<wire::DefinitionSummary>> {
    let engine = app.engine()?;
    require_sight(&engine, &caller, None).await?;
    let registry = engine.registry();
    let visible = registry.definition_names().into_iter().filter(|name| sees(&registry, &caller.actor_ref, Some(name)));
    let newest = visible
        .filter_map(|name| registry.definition(name, None))
        .map(|definition| (definition.name.clone().into_bytes(), definition.clone()))
        .collect();
    Ok(Json(params.answer_from(newest, |definition| summary(&definition))))
}

/// The newest version. Needs what listing needs.
#[utoipa::path(get, path = "/v1/definitions/{name}", tag = "definitions", params(("name" = String, Path)),
    responses((status = 200, body = wire::DefinitionView), Refused))]
pub async fn newest(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Read<wire::DefinitionView> {
    view(&app, &caller, address.get("name"), None).await
}

/// The newest version of the definition that is named `validate`, whose address is also that of an action.
pub async fn newest_validate(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::DefinitionView> {
    view(&app, &caller, "validate", None).await
}

/// One version. Needs what listing needs.
#[utoipa::path(get, path = "/v1/definitions/{name}/versions/{version}", tag = "definitions",
    params(("name" = String, Path), ("version" = u32, Path)),
    responses((status = 200, body = wire::DefinitionView), Refused))]
pub async fn version(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Read<wire::DefinitionView> {
    let text = address.get("version");
    // Versions are written one way only; 0 is never given out.
    let version = text.parse::<u32>().ok().filter(|version| version.to_string() == text).unwrap_or(0);
    view(&app, &caller, address.get("name"), Some(version)).await
}

async fn view(app: &App, caller: &Caller, name: &str, version: Option<u32>) -> Read<wire::DefinitionView> {
    let engine = app.engine()?;
    require_sight(&engine, caller, Some(name)).await?;
    let registry = engine.registry();
    let definition = registry.definition(name, version).ok_or_else(|| {
        Refusal::new(Code::NotKnown, "there is no such definition, or no such version of it").at("name")
    })?;
    let wire::DefinitionSummary { name, version, kind, digest, published_at, published_by } = summary(definition);
    let document = definition.source.to_string();
    Ok(Json(wire::DefinitionView { name, version, kind, digest, published_at, published_by, document }))
}

fn summary(definition: &registry::Definition) -> wire::DefinitionSummary {
    wire::DefinitionSummary {
        name: definition.name.clone(),
        version: definition.version,
        kind: kind(definition).as_str().to_owned(),
        digest: definition.digest.to_string(),
        published_at: time::format(definition.published_at),
        published_by: definition.published_by.clone(),
    }
}

fn kind(definition: &registry::Definition) -> Kind {
    match (&definition.workflow, &definition.machine) {
        (Some(_), _) => Kind::Workflow,
        (None, Some(_)) => Kind::Machine,
        (None, None) => Kind::Process,
    }
}

/// Whether the actor may see this definition; without a name, whether any at all.
fn sees(registry: &Registry, actor_ref: &str, name: Option<&str>) -> bool {
    let general = [
        scopes::WORKFLOWS_READ,
        scopes::WORKFLOWS_START,
        scopes::RUNS_READ,
        scopes::RUNS_START,
        scopes::DEFINITIONS_PUBLISH,
    ];
    let finer = |scope: &str| match name {
        Some(name) => registry.permitted(actor_ref, &format!("{scope}:{name}")),
        None => registry.grants().active_scopes(actor_ref, &format!("{scope}:")).next().is_some(),
    };
    general.iter().any(|scope| registry.permitted(actor_ref, scope))
        || finer(scopes::WORKFLOWS_READ)
        || finer(scopes::WORKFLOWS_START)
        || finer(scopes::RUNS_READ)
        || finer(scopes::RUNS_START)
}

async fn require_sight(engine: &Engine, caller: &Caller, name: Option<&str>) -> Result<(), Problem> {
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    if sees(&engine.registry(), &caller.actor_ref, name) {
        return Ok(());
    }
    engine.require_scope(&caller.actor_ref, scopes::WORKFLOWS_READ).await.map_err(Problem::from)
}

type Checked = Result<Definition, Vec<wire::DefinitionProblem>>;

/// The document, if this deployment could publish it. A large one takes its time, and nobody else shall
/// wait for it.
async fn checked(engine: &Arc<Engine>, bytes: Vec<u8>) -> Result<(Vec<u8>, Checked), Problem> {
    let engine = engine.clone();
    let checking = tokio::task::spawn_blocking(move || {
        let checked = check(&engine, &bytes);
        (bytes, checked)
    });
    checking.await.map_err(|error| {
        tracing::error!(%error, "a definition could not be checked");
        Problem::internal()
    })
}

fn check(engine: &Engine, bytes: &[u8]) -> Checked {
    // A child's version is fixed now: what is published later does not change what this one runs.
    let mut children = |name: &str, version: Option<u32>| {
        let registry = engine.registry();
        let child = registry.definition(name, version).filter(|child| child.workflow.is_some())?;
        Some(child.version)
    };
    let definition = countersign_definition::parse_resolved(bytes, &mut children).map_err(|problems| {
        let to_wire = |problem: countersign_definition::Problem| wire::DefinitionProblem {
            path: problem.path,
            line: problem.line,
            column: problem.column,
            code: problem.code.as_str().to_owned(),
            message: problem.message,
        };
        problems.into_iter().map(to_wire).collect::<Vec<_>>()
    })?;
    if let Body::Workflow { plan, .. } = &definition.body
        && let Some(named) = &plan.machine
        && let Some(message) = unusable(&engine.registry(), named)
    {
        let (line, column) = line_of(bytes, "machine");
        return Err(vec![wire::DefinitionProblem {
            path: "machine".to_owned(),
            line,
            column,
            code: ProblemCode::BadValue.as_str().to_owned(),
            message,
        }]);
    }
    let policies = &engine.config().policies;
    match &definition.retention {
        Some(policy) if policy == UNSET_POLICY || policies.get(policy).is_none() => {
            let (line, column) = line_of(bytes, "retention");
            let known = policies.names().collect::<Vec<_>>().join(", ");
            Err(vec![wire::DefinitionProblem {
                path: "retention".to_owned(),
                line,
                column,
                code: ProblemCode::BadValue.as_str().to_owned(),
                message: format!("the retention policy `{policy}` is not configured here; configured are {known}"),
            }])
        }
        _ => Ok(definition),
    }
}

/// Why steps cannot move by this machine, if so.
fn unusable(registry: &Registry, named: &MachineRef) -> Option<String> {
    match registry.own_machine(&named.name, named.version) {
        None => {
            Some(format!("no machine `{}` is published here, or not in that version; publish it first", named.name))
        }
        Some((_, own)) if own.machine.scope == MachineScope::WorkflowRun => {
            Some(format!("`{}` is a machine of runs; steps move by one of the scope step or task", named.name))
        }
        Some(_) => None,
    }
}

/// Where the document says this at its top level; the parsed value no longer knows.
fn line_of(bytes: &[u8], field: &str) -> (u32, u32) {
    let text = String::from_utf8_lossy(bytes);
    let at = if text.trim_start().starts_with('{') { in_braces(&text, field) } else { in_block(&text, field) };
    let before = &text[..at.unwrap_or(0)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (u32::try_from(line).unwrap_or(1), u32::try_from(column).unwrap_or(1))
}

fn is_key(text: &str, field: &str) -> bool {
    let bare = text.trim_start_matches(['"', '\'']);
    let rest = bare.strip_prefix(field).map(|rest| rest.trim_start_matches(['"', '\'']).trim_start());
    rest.is_some_and(|rest| rest.starts_with(':'))
}

/// YAML in lines: a key of the document itself is not indented.
fn in_block(text: &str, field: &str) -> Option<usize> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    starts.into_iter().find(|start| is_key(&text[*start..], field))
}

/// JSON, and YAML that is written like it: a key of the outermost braces.
fn in_braces(text: &str, field: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped, mut key_may_follow) = (0_usize, None, false, false);
    for (at, c) in text.char_indices() {
        if let Some(end) = quote {
            (quote, escaped) = (quote.filter(|_| escaped || c != end), c == '\\' && !escaped);
            continue;
        }
        if depth == 1 && key_may_follow && is_key(&text[at..], field) {
            return Some(at);
        }
        key_may_follow = matches!(c, '{' | ',') || (key_may_follow && c.is_whitespace());
        match c {
            '"' | '\'' => quote = Some(c),
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn invalid_definition(problems: Vec<wire::DefinitionProblem>) -> Problem {
    let Some(first) = problems.first() else { return Problem::internal() };
    let more = match problems.len() - 1 {
        0 => String::new(),
        1 => " (and 1 more problem)".to_owned(),
        n => format!(" (and {n} more problems)"),
    };
    let detail = format!("{}:{}: {}: {}{more}", first.line, first.column, first.code, first.message);
    let problem = Problem::new(Code::InvalidDefinition, detail);
    let problem = if first.path.is_empty() { problem } else { problem.at(&first.path) };
    problem.with_problems(problems)
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn the_place_of_a_key_is_that_of_the_document_itself() {
        for (text, place) in [
            ("kind: workflow\nsteps:\n  - name: a\n    machine: x\nmachine: y\n", (5, 1)),
            ("machines: 1\nmachine : y\n", (2, 1)),
            ("# machine: no\n\"machine\": y\n", (2, 1)),
            ("{\"steps\": [{\"machine\": 1}],\n  \"about\": \"machine\",\n  \"machine\": 2}", (3, 3)),
            ("{about: 'x, machine: 1', machine: 2}", (1, 26)),
            ("kind: workflow\n", (1, 1)),
        ] {
            assert_eq!(line_of(text.as_bytes(), "machine"), place, "{text}");
        }
    }
}
