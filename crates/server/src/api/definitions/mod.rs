//! Definitions: published as the exact bytes of a document, read back as those bytes.

pub mod diff;
pub mod graph;

use super::auth::Caller;
use super::body::{Address, Posted, PostedBytes};
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::{App, Done, Problem, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_definition::{Definition, Deployment, Severity};
use countersign_engine::retention::UNSET_POLICY;
use countersign_engine::{Command, Engine, Outcome, store_failure};
use countersign_kernel::lifecycle::MachineScope;
use countersign_kernel::plan::Plan;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Registry, scopes};
use countersign_ledger::sha256;
use std::sync::Arc;

pub struct DefinitionList;

impl List for DefinitionList {
    const TAG: u8 = b'd';
    const AXES: &'static [Axis] = &[];
}

/// Publish a definition document (YAML or JSON). Needs `definitions:publish`; one with shell steps `definitions:shell` too.
#[utoipa::path(post, path = "/v1/definitions", tag = "definitions",
    request_body(content((String = "application/yaml"), (Object = "application/json"))),
    responses((status = 201, body = wire::DefinitionPublished, description = "A new version"),
        (status = 200, body = wire::DefinitionPublished, description = "The newest version is identical"), Refused))]
pub async fn publish(State(app): State<App>, caller: Caller, posted: PostedBytes) -> Done<wire::DefinitionPublished> {
    let engine = app.engine()?;
    let (bytes, checked) = checked(&engine, posted.bytes).await?;
    let mut definition = checked.map_err(invalid_definition)?;
    let problems = to_wire(std::mem::take(&mut definition.warnings));
    let source = String::from_utf8(bytes).map_err(|_| Problem::invalid_request("the body is not UTF-8"))?;
    let command = definition.published_as(source, |bytes| sha256(&[bytes]));
    let prepared = command.workflow.as_ref().and_then(|workflow| workflow.document.clone());
    let command = registry::Command::PublishDefinition(command);
    match engine.execute(caller.call(Command::Registry(command), posted.sent)?).await? {
        Outcome::Published { name, version, digest, created } => {
            if let Some(document) = prepared {
                engine.prepare(document);
            }
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Json(wire::DefinitionPublished { name, version, digest, problems })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Retire a definition: its versions up to now start nothing any more, its schedules end, and its live runs and processes go
/// on. Published again, it is a new version that starts. Needs `definitions:publish`.
#[utoipa::path(post, path = "/v1/definitions/{name}/retire", tag = "definitions", params(("name" = String, Path)),
    request_body = wire::RetireDefinition, responses((status = 200, body = wire::DefinitionRetired), Refused))]
pub async fn retire(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::RetireDefinition>,
) -> Done<wire::DefinitionRetired> {
    let engine = app.engine()?;
    let name = address.get("name").to_owned();
    let command =
        registry::MarkDefinition { mark: registry::Mark::Retired, name: name.clone(), reason: posted.body.reason };
    let command = Command::Registry(registry::Command::MarkDefinition(command));
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Done => {
            let version =
                engine.registry().standing(&name).and_then(|standing| Some(standing.retired.as_ref()?.version));
            Ok((StatusCode::OK, Json(wire::DefinitionRetired { name, version: version.unwrap_or_default() })))
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
    let (bytes, checked) = checked(&engine, posted.bytes).await?;
    Ok(Json(match checked {
        Ok(definition) => {
            let graph = Some(graph::of_document(&definition, &bytes));
            wire::Validation { valid: true, problems: to_wire(definition.warnings), graph }
        }
        Err(problems) => wire::Validation { valid: false, problems, graph: None },
    }))
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
    Ok(Json(params.answer_from(newest, |definition| summary(&registry, &definition))))
}

/// The newest version. Needs what listing needs: `workflows:read`, `workflows:start`, `runs:read`, `runs:start` or
/// `definitions:publish`.
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

/// One version. Needs what listing needs: `workflows:read`, `workflows:start`, `runs:read`, `runs:start` or
/// `definitions:publish`.
#[utoipa::path(get, path = "/v1/definitions/{name}/versions/{version}", tag = "definitions",
    params(("name" = String, Path), ("version" = u32, Path)),
    responses((status = 200, body = wire::DefinitionView), Refused))]
pub async fn version(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Read<wire::DefinitionView> {
    view(&app, &caller, address.get("name"), Some(number(address.get("version")))).await
}

/// Versions are written one way only; 0 is never given out.
fn number(text: &str) -> u32 {
    text.parse::<u32>().ok().filter(|version| version.to_string() == text).unwrap_or(0)
}

pub struct VersionList;

impl List for VersionList {
    const TAG: u8 = b'V';
    const AXES: &'static [Axis] = &[];
}

/// Every version of a definition, with digest, publisher and time. Needs what listing needs: `workflows:read`,
/// `workflows:start`, `runs:read`, `runs:start` or `definitions:publish`.
#[utoipa::path(get, path = "/v1/definitions/{name}/versions", tag = "definitions",
    params(("name" = String, Path), Params<VersionList>),
    responses((status = 200, body = wire::Page<wire::DefinitionSummary>), Refused))]
pub async fn versions(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<VersionList>,
) -> Read<wire::Page<wire::DefinitionSummary>> {
    let engine = app.engine()?;
    let name = address.get("name");
    require_sight(&engine, &caller, Some(name)).await?;
    let registry = engine.registry();
    let versions = registry.definition_versions(name);
    if versions.is_empty() {
        return Err(not_known().into());
    }
    let keyed = versions.iter().map(|definition| (definition.version.to_be_bytes().to_vec(), definition.clone()));
    Ok(Json(params.answer_from(keyed.collect(), |definition| summary(&registry, &definition))))
}

/// The version that the address names.
async fn published(app: &App, caller: &Caller, address: &Address) -> Result<Arc<registry::Definition>, Problem> {
    one(app, caller, address.get("name"), Some(number(address.get("version")))).await
}

async fn one(
    app: &App,
    caller: &Caller,
    name: &str,
    version: Option<u32>,
) -> Result<Arc<registry::Definition>, Problem> {
    let engine = app.engine()?;
    require_sight(&engine, caller, Some(name)).await?;
    let registry = engine.registry();
    Ok(registry.definition(name, version).ok_or_else(not_known)?.clone())
}

/// The plan of a workflow; the registry keeps a summary alone.
async fn plan(app: &App, definition: &registry::Definition) -> Result<Option<Arc<Plan>>, Problem> {
    match &definition.workflow {
        Some(workflow) => Ok(Some(app.engine()?.published_plan(workflow.document_digest).await?)),
        None => Ok(None),
    }
}

fn not_known() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no such definition, or no such version of it").at("name")
}

async fn view(app: &App, caller: &Caller, name: &str, version: Option<u32>) -> Read<wire::DefinitionView> {
    let definition = one(app, caller, name, version).await?;
    let wire::DefinitionSummary { name, version, kind, digest, published_at, published_by, quarantined, retired } =
        summary(&app.engine()?.registry(), &definition);
    let document = app.engine()?.definition_source(&name, version).await?.ok_or_else(not_known)?.to_string();
    Ok(Json(wire::DefinitionView {
        name,
        version,
        kind,
        digest,
        published_at,
        published_by,
        quarantined,
        retired,
        document,
    }))
}

fn summary(registry: &Registry, definition: &registry::Definition) -> wire::DefinitionSummary {
    let standing =
        registry.standing(&definition.name).filter(|_| registry.is_retired(&definition.name, definition.version));
    let retired = standing.and_then(|standing| standing.retired.as_ref());
    wire::DefinitionSummary {
        name: definition.name.clone(),
        version: definition.version,
        kind: definition.kind().to_owned(),
        digest: definition.digest.to_string(),
        published_at: time::format(definition.published_at),
        published_by: definition.published_by.clone(),
        quarantined: definition.quarantined.as_ref().map(|held| held.why.to_string()),
        retired: retired.map(|retired| wire::Retirement {
            at: time::format(retired.at),
            by: retired.by.clone(),
            reason: retired.reason.clone(),
        }),
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

pub(super) type Checked = Result<Definition, Vec<wire::DefinitionProblem>>;

/// The document, if this deployment could publish it. A large one takes its time, and nobody else shall
/// wait for it.
pub(super) async fn checked(engine: &Arc<Engine>, bytes: Vec<u8>) -> Result<(Vec<u8>, Checked), Problem> {
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
    countersign_definition::parse_resolved(bytes, &mut Here(engine)).map_err(to_wire)
}

pub(super) fn to_wire(problems: Vec<countersign_definition::Problem>) -> Vec<wire::DefinitionProblem> {
    let to_wire = |problem: countersign_definition::Problem| wire::DefinitionProblem {
        path: problem.path,
        line: problem.line,
        column: problem.column,
        code: problem.code.as_str().to_owned(),
        message: problem.message,
        level: (problem.code.severity() == Severity::Warning).then(|| Severity::Warning.as_str().to_owned()),
    };
    problems.into_iter().map(to_wire).collect()
}

/// What this deployment has published and configured.
struct Here<'e>(&'e Engine);

impl Deployment for Here<'_> {
    /// A child's version is fixed now: what is published later does not change what this one runs.
    fn workflow(&mut self, name: &str, version: Option<u32>) -> Option<u32> {
        let registry = self.0.registry();
        let lives = |child: &&Arc<registry::Definition>| !registry.is_retired(&child.name, child.version);
        let child = registry.definition(name, version).filter(lives);
        child.filter(|child| child.workflow.is_some()).map(|child| child.version)
    }

    fn is_fail_closed(&self, name: &str, version: u32) -> bool {
        let registry = self.0.registry();
        let child = registry.definition(name, Some(version)).and_then(|child| child.workflow.as_ref());
        child.is_none_or(|workflow| workflow.outline.is_runbook)
    }

    fn refuses_machine(&self, name: &str, version: Option<u32>) -> Option<String> {
        match self.0.registry().own_machine(name, version) {
            None => Some(format!("no machine `{name}` is published here, or not in that version; publish it first")),
            Some((_, own)) if own.machine.scope == MachineScope::WorkflowRun => {
                Some(format!("`{name}` is a machine of runs; steps move by one of the scope step or task"))
            }
            Some(_) => None,
        }
    }

    fn refuses_retention(&self, policy: &str) -> Option<String> {
        let policies = &self.0.config().policies;
        if policy != UNSET_POLICY && policies.get(policy).is_some() {
            return None;
        }
        let known = policies.names().collect::<Vec<_>>().join(", ");
        Some(format!("the retention policy `{policy}` is not configured here; configured are {known}"))
    }
}

pub(super) fn invalid_definition(problems: Vec<wire::DefinitionProblem>) -> Problem {
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
