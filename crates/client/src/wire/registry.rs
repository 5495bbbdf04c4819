//! The state machine registry: machines, event types, tokens and failure classes, as data.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that the engine's machines consist of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registry {
    pub machines: Vec<Machine>,
    pub event_types: Vec<EventTypeDef>,
    pub tokens: Vec<TokenDef>,
    pub failure_classes: Vec<FailureClassDef>,
    /// Every guard, and what must hold.
    #[serde(default)]
    pub guards: Vec<GuardDef>,
    /// The words that a reason is given with.
    #[serde(default)]
    pub vocabularies: Vec<Vocabulary>,
    /// How the colour of a run as a whole is shown.
    #[serde(default)]
    pub rollup_colors: Vec<RollupColor>,
    /// Every text by its key, per language: `en` and `vi`. Where a text holds `{name}`, `args` says what is put there.
    #[serde(default)]
    pub texts: BTreeMap<String, BTreeMap<String, String>>,
}

/// A condition of transitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GuardDef {
    pub guard: String,
    /// config or predicate_fn.
    pub guard_kind: String,
    pub meaning: String,
}

/// A vocabulary: `block_reason` or `correction_reason`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Vocabulary {
    pub vocabulary: String,
    pub words: Vec<VocabularyWord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VocabularyWord {
    pub code: String,
    pub label_key: String,
    pub texts: Texts,
}

/// One text in both languages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Texts {
    pub en: String,
    pub vi: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RollupColor {
    /// gray, green, yellow or red.
    pub state_code: String,
    pub color_token: String,
    pub icon: String,
    pub label_key: String,
    pub texts: Texts,
}

/// One state machine with its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Machine {
    pub state_machine_id: String,
    /// step, task, workflow_run, approval_step, assignment, approval_chain or proposal.
    pub scope: String,
    pub version: String,
    pub active: bool,
    pub description: String,
    pub initial_state: String,
    pub states: Vec<StateDef>,
    pub transitions: Vec<TransitionDef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facets: Vec<FacetDef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollup_policies: Vec<RollupPolicyDef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateDef {
    pub state_code: String,
    /// idle, active, wait or red.
    pub semantic_class: String,
    pub is_terminal: bool,
    pub ordinal: u32,
    pub ui_color_token: String,
    pub ui_icon_token: String,
    /// The icon itself, for a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui_icon: Option<String>,
    pub ui_label_i18n_key: String,
    pub ui_short_message_key: String,
    /// The texts behind the keys, by language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<StateTexts>,
    pub is_derived: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_equivalent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateTexts {
    pub en: StateText,
    pub vi: StateText,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateText {
    pub label: String,
    pub short: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransitionDef {
    pub id: String,
    pub from_state: String,
    pub to_state: String,
    pub actor_class: String,
    /// event, rpc, timer or condition_resolved.
    pub trigger_kind: String,
    pub trigger_ref: String,
    /// config or predicate_fn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_ref: Option<String>,
    /// Every guard that is asked, in this order; `guard_ref` is the first. The registry's `guards` says what each means.
    #[serde(default)]
    pub guards: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted_event_type: Option<String>,
    pub audit_required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<String>,
    /// Declared, and inert until it is approved.
    pub proposed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FacetDef {
    pub state_code: String,
    pub facet_code: String,
    pub ui_icon_token: String,
    pub ui_label_i18n_key: String,
    /// The text behind the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Texts>,
    pub primary_ordinal: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RollupPolicyDef {
    pub policy_code: String,
    pub policy_config: Value,
    pub active: bool,
}

/// An event that a transition may emit, and the JSON Schema of its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventTypeDef {
    pub event_type: String,
    pub version: u32,
    pub schema: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenDef {
    pub token: String,
    pub fg: String,
    pub bg: String,
    /// WCAG 2.1 contrast of the foreground on the background.
    pub contrast_ratio: f64,
    pub high_contrast: HighContrast,
    pub shape_token: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HighContrast {
    pub fg: String,
    pub bg: String,
    pub contrast_ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureClassDef {
    pub error_category: String,
    /// retry, skip, fail or block.
    pub default_response: String,
    /// Whether a step may choose another response (`errors:`).
    pub configurable: bool,
}
