//! `start_workflow`: a process begins in its initial state, under a declaration and a gate_spec that
//! never change afterwards.

use super::{Context, DefinitionRef, Event, EventBody, Source, StartWorkflow};
use crate::declaration::Declaration;
use crate::gate_spec::GateSpec;
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::registry::scopes;
use std::sync::Arc;

pub fn decide(command: &StartWorkflow, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_ref("subject_ref", &command.subject_ref)?;
    require_optional_text("reason", command.reason.as_deref())?;
    command.gate_spec.validate_shape()?;
    let name = match &command.source {
        Source::Inline(_) => None,
        Source::Definition { name, .. } => Some(name.as_str()),
    };
    ctx.require_scope(scopes::WORKFLOWS_START, name)?;

    let Resolved { declaration, gate_spec, replaced, definition } = resolve(command, ctx)?;
    gate_spec.validate_coverage(&declaration)?;
    declaration
        .validate()
        .map_err(|refusal| Refusal { field: refusal.field.map(|path| format!("declaration.{path}")), ..refusal })?;
    declaration.validate_names("declaration.")?;
    let instance_id = ctx.ids.make();
    Ok(vec![ctx.by_caller(EventBody::WorkflowStarted {
        instance_id,
        definition,
        subject_ref: command.subject_ref.clone(),
        declaration,
        gate_spec,
        replaced,
        reason: command.reason.clone(),
        attachment: None,
    })])
}

struct Resolved {
    declaration: Arc<Declaration>,
    gate_spec: Arc<GateSpec>,
    replaced: Vec<String>,
    definition: Option<DefinitionRef>,
}

fn resolve(command: &StartWorkflow, ctx: &Context<'_>) -> Result<Resolved, Refusal> {
    match &command.source {
        Source::Inline(declaration) => Ok(Resolved {
            declaration: declaration.clone(),
            gate_spec: Arc::new(command.gate_spec.clone()),
            replaced: vec![],
            definition: None,
        }),
        Source::Definition { name, version } => {
            let definition = ctx.registry.definition(name, *version).ok_or_else(|| {
                let detail = match version {
                    None => format!("no definition `{name}` is published"),
                    Some(version) => format!("no version {version} of the definition `{name}` is published"),
                };
                Refusal::new(Code::NotKnown, detail).at("definition")
            })?;
            definition.require_usable()?;
            ctx.registry.require_live(definition)?;
            if definition.machine.is_some() {
                let detail = format!("`{name}` is a state machine for steps; a process is started from a process");
                return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
            }
            if definition.workflow.is_some() {
                let detail = format!("`{name}` is a workflow: start it with POST /v1/runs");
                return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
            }
            let (gate_spec, replaced) = definition.gate_spec.started_with(&command.gate_spec, ctx.actor_ref)?;
            Ok(Resolved {
                declaration: definition.declaration.clone(),
                gate_spec: Arc::new(gate_spec),
                replaced,
                definition: Some(DefinitionRef { name: definition.name.clone(), version: definition.version }),
            })
        }
    }
}
