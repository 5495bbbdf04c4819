//! The state machine registry: what states there are, who may move what, what that emits, and how it looks.

mod texts;
mod words;

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Problem, Read};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::store_failure;
use countersign_kernel::lifecycle::{
    EVENT_TYPES, EventType, FacetRow, FailureCategory, FailureClass, Guard, MachineDef, OwnMachine, OwnState,
    OwnTransition, Response, RollupPolicy, StateRow, TOKENS, Token, TransitionRow, machine, machines,
};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use serde_json::json;
use std::sync::Arc;

/// Every machine of the engine and every version of those that were published, with states, transitions, facets and
/// roll-up policies; event types with their schemas, colour tokens, failure classes, vocabularies and the colours of runs; and
/// every text in English and Vietnamese. Needs no scope.
#[utoipa::path(get, path = "/v1/registry", tag = "registry", responses((status = 200, body = wire::Registry), Refused))]
pub async fn read(State(app): State<App>, _: Caller, _: NoQuery) -> Read<wire::Registry> {
    let engine = app.engine()?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let registry = engine.registry();
    Ok(Json(wire::Registry {
        machines: machines().iter().map(to_wire).chain(published(&registry)).collect(),
        event_types: EVENT_TYPES.iter().map(event_type).collect(),
        tokens: TOKENS.iter().map(token).collect(),
        failure_classes: FailureCategory::REGISTRY.iter().map(failure_class).collect(),
        guards: Guard::ALL.iter().copied().map(guard).collect(),
        vocabularies: texts::vocabularies(),
        rollup_colors: texts::rollup_colors(),
        texts: texts::all(own_machines(&registry).iter().map(|machine| &**machine)),
    }))
}

/// One machine: the engine's, or a published one (`name`, or `name@2`). Needs no scope.
#[utoipa::path(get, path = "/v1/registry/{machine}", tag = "registry", params(("machine" = String, Path)),
    responses((status = 200, body = wire::Machine), Refused))]
pub async fn one(State(app): State<App>, _: Caller, address: Address, _: NoQuery) -> Read<wire::Machine> {
    let asked = address.get("machine");
    if let Some(found) = machine(asked) {
        return Ok(Json(to_wire(found)));
    }
    let engine = app.engine()?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let registry = engine.registry();
    let (name, version) = match asked.rsplit_once('@') {
        Some((name, version)) => (name, Some(version.parse::<u32>().unwrap_or(0))),
        None => (asked, None),
    };
    let found = registry.own_machine(name, version).map(|(definition, own)| {
        let newest = registry.definition(name, None).map_or(0, |newest| newest.version);
        own_to_wire(&own.machine, definition.version, definition.version == newest)
    });
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = machines().iter().map(|machine| machine.id).chain(own_names(&registry)).collect();
        Refusal::new(Code::NotKnown, format!("there is no such machine; there are {}", known.join(", "))).at("machine")
    })?;
    Ok(Json(found))
}

fn own_names(registry: &Registry) -> impl Iterator<Item = &str> {
    registry.definition_names().into_iter().filter(|name| registry.own_machine(name, None).is_some())
}

/// Every version of every machine that was published, oldest first.
fn own_machines(registry: &Registry) -> Vec<Arc<OwnMachine>> {
    let versions = own_names(registry).flat_map(|name| registry.definition_versions(name));
    versions.filter_map(|definition| definition.machine.as_ref()).map(|own| own.machine.clone()).collect()
}

/// Every version of every machine that was published; the newest of each is the active one.
fn published(registry: &Registry) -> Vec<wire::Machine> {
    let mut machines = vec![];
    for name in own_names(registry) {
        let versions = registry.definition_versions(name);
        for (at, definition) in versions.iter().enumerate() {
            let own = definition.machine.as_ref();
            machines.extend(own.map(|own| own_to_wire(&own.machine, definition.version, at + 1 == versions.len())));
        }
    }
    machines
}

/// The floor, and what the machine adds to it.
fn own_to_wire(own: &OwnMachine, version: u32, active: bool) -> wire::Machine {
    let floor = own.scope.floor().map(to_wire);
    let (states, transitions) = floor.as_ref().map_or((&[][..], &[][..]), |f| (&f.states[..], &f.transitions[..]));
    wire::Machine {
        state_machine_id: own.name.clone(),
        scope: own.scope.as_str().to_owned(),
        version: version.to_string(),
        active,
        description: own.description.clone(),
        states: states.iter().cloned().chain(own.states.iter().map(own_state)).collect(),
        transitions: transitions.iter().cloned().chain(own.transitions.iter().map(own_transition)).collect(),
        initial_state: floor.as_ref().map_or_else(String::new, |floor| floor.initial_state.clone()),
        facets: floor.as_ref().map_or_else(Vec::new, |floor| floor.facets.clone()),
        rollup_policies: floor.map_or_else(Vec::new, |floor| floor.rollup_policies),
    }
}

pub fn own_state(state: &OwnState) -> wire::StateDef {
    let text = |label: &str, short: &str| wire::StateText { label: label.to_owned(), short: short.to_owned() };
    wire::StateDef {
        state_code: state.code.clone(),
        semantic_class: state.semantic_class.as_str().to_owned(),
        is_terminal: state.is_terminal,
        ordinal: state.ordinal,
        ui_color_token: state.ui_color_token.to_owned(),
        ui_icon_token: state.ui_icon_token.clone(),
        ui_icon: Some(state.ui_icon.clone()),
        ui_label_i18n_key: format!("state.{}.label", state.code),
        ui_short_message_key: format!("state.{}.short", state.code),
        texts: Some(wire::StateTexts {
            en: text(&state.label_en, &state.short_en),
            vi: text(&state.label_vi, &state.short_vi),
        }),
        is_derived: true,
        floor_equivalent: Some(state.floor_equivalent.to_owned()),
        justification: Some(state.justification.clone()),
    }
}

fn own_transition(row: &OwnTransition) -> wire::TransitionDef {
    wire::TransitionDef {
        id: row.id.clone(),
        from_state: row.from.clone(),
        to_state: row.to.clone(),
        actor_class: row.actor.as_str().to_owned(),
        trigger_kind: row.trigger_kind.as_str().to_owned(),
        trigger_ref: row.trigger.clone(),
        guard_kind: row.guard.map(|guard| guard.kind().to_owned()),
        guard_ref: row.guard.map(|guard| guard.name().to_owned()),
        guards: row.guard.iter().map(|guard| guard.name().to_owned()).collect(),
        emitted_event_type: row.emits.map(str::to_owned),
        audit_required: row.audit_required,
        rollback_to: row.rollback_to.clone(),
        proposed: row.proposed,
    }
}

fn to_wire(machine: &MachineDef) -> wire::Machine {
    wire::Machine {
        state_machine_id: machine.id.to_owned(),
        scope: machine.scope.to_owned(),
        version: machine.version.to_owned(),
        active: machine.active,
        description: machine.description.to_owned(),
        initial_state: machine.initial_state.to_owned(),
        states: machine.states.iter().map(state).collect(),
        transitions: machine.transitions.iter().map(transition).collect(),
        facets: machine.facets.iter().map(facet).collect(),
        rollup_policies: machine.rollup_policies.iter().map(policy).collect(),
    }
}

fn guard(guard: Guard) -> wire::GuardDef {
    wire::GuardDef {
        guard: guard.name().to_owned(),
        guard_kind: guard.kind().to_owned(),
        meaning: guard.meaning().to_owned(),
    }
}

fn state(row: &StateRow) -> wire::StateDef {
    let text = |label: &str, short: &str| wire::StateText { label: label.to_owned(), short: short.to_owned() };
    wire::StateDef {
        state_code: row.code.clone(),
        semantic_class: row.semantic_class.to_owned(),
        is_terminal: row.is_terminal,
        ordinal: u32::try_from(row.ordinal).unwrap_or(u32::MAX),
        ui_color_token: row.ui_color_token.to_owned(),
        ui_icon_token: row.ui_icon_token.clone(),
        ui_icon: Some(row.ui_icon.to_owned()),
        ui_label_i18n_key: format!("state.{}.label", row.code),
        ui_short_message_key: format!("state.{}.short", row.code),
        texts: Some(wire::StateTexts { en: text(row.label_en, row.short_en), vi: text(row.label_vi, row.short_vi) }),
        is_derived: row.is_derived,
        floor_equivalent: row.floor_equivalent.map(str::to_owned),
        justification: row.justification.map(str::to_owned),
    }
}

fn transition(row: &TransitionRow) -> wire::TransitionDef {
    wire::TransitionDef {
        id: row.id.to_owned(),
        from_state: row.from.clone(),
        to_state: row.to.clone(),
        actor_class: row.actor_class.to_owned(),
        trigger_kind: row.trigger_kind.to_owned(),
        trigger_ref: row.trigger_ref.to_owned(),
        guard_kind: row.guards.first().map(|guard| guard.kind().to_owned()),
        guard_ref: row.guards.first().map(|guard| guard.name().to_owned()),
        guards: row.guards.iter().map(|guard| guard.name().to_owned()).collect(),
        emitted_event_type: row.emitted_event_type.clone(),
        audit_required: row.audit_required,
        rollback_to: row.rollback_to.clone(),
        proposed: row.proposed,
    }
}

fn facet(row: &FacetRow) -> wire::FacetDef {
    wire::FacetDef {
        state_code: row.state.to_owned(),
        facet_code: row.facet.to_owned(),
        ui_icon_token: row.icon.to_owned(),
        ui_label_i18n_key: format!("facet.{}.label", row.facet),
        texts: Some(texts::of_facet(row)),
        primary_ordinal: row.primary_ordinal,
    }
}

fn policy(row: &RollupPolicy) -> wire::RollupPolicyDef {
    wire::RollupPolicyDef {
        policy_code: row.code.to_owned(),
        policy_config: json!({
            "mandatory_only": row.mandatory_only,
            "blocked_escalation_treats_as_red": row.blocked_escalation_treats_as_red,
        }),
        active: row.active,
    }
}

fn event_type(row: &EventType) -> wire::EventTypeDef {
    wire::EventTypeDef {
        event_type: row.name.to_owned(),
        version: row.version,
        // It is made of our own words and is always JSON.
        schema: serde_json::from_str(&row.schema()).unwrap_or_default(),
    }
}

fn token(row: &Token) -> wire::TokenDef {
    wire::TokenDef {
        token: row.name.to_owned(),
        fg: row.fg.to_owned(),
        bg: row.bg.to_owned(),
        contrast_ratio: f64::from(row.contrast_hundredths) / 100.0,
        high_contrast: wire::HighContrast {
            fg: row.high_contrast_fg.to_owned(),
            bg: row.high_contrast_bg.to_owned(),
            contrast_ratio: f64::from(row.high_contrast_hundredths) / 100.0,
        },
        shape_token: row.shape.to_owned(),
    }
}

fn failure_class(row: &FailureClass) -> wire::FailureClassDef {
    let response = match row.default_response {
        Response::Retry => "retry",
        Response::Skip => "skip",
        Response::Fail => "fail",
        Response::Block => "block",
    };
    wire::FailureClassDef {
        error_category: row.category.as_str().to_owned(),
        default_response: response.to_owned(),
        configurable: row.configurable,
    }
}
