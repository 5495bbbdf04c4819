//! Definitions: the registry of versioned, immutable documents. They are published as the bytes of a
//! YAML or JSON document, so there is no request type.

use serde::{Deserialize, Serialize};

/// What was published, or found to be published already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionPublished {
    pub name: String,
    pub version: u32,
    /// SHA-256 of the document's exact bytes, in hex.
    pub digest: String,
    /// Warnings about the document, in document order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<DefinitionProblem>,
}

/// Whether a document could be published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Validation {
    pub valid: bool,
    /// Everything that is wrong, in document order; warnings where it is valid.
    pub problems: Vec<DefinitionProblem>,
    /// What it would look like; only of a valid one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<super::Graph>,
}

/// One fault of a document, at the place where its author would look for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionProblem {
    /// The path into the document: `transitions[2].to`.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// In characters, counted from 1.
    pub column: u32,
    /// The kind of fault: `unknown-state`.
    pub code: String,
    pub message: String,
    /// `warning` where it does not keep the document from being published; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// One version of a definition, without its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionSummary {
    pub name: String,
    pub version: u32,
    /// `process`, `workflow` or `machine`.
    pub kind: String,
    /// SHA-256 of the document's exact bytes, in hex.
    pub digest: String,
    pub published_at: String,
    /// The actor who published it.
    pub published_by: String,
    /// Why nothing is started from it, where this version of the server does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Set where this version is retired: it starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Retirement>,
}

/// One version of a definition with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionView {
    pub name: String,
    pub version: u32,
    /// `process`, `workflow` or `machine`.
    pub kind: String,
    /// SHA-256 of the document's exact bytes, in hex.
    pub digest: String,
    pub published_at: String,
    /// The actor who published it.
    pub published_by: String,
    /// Why nothing is started from it, where this version of the server does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Set where this version is retired: it starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Retirement>,
    /// The document exactly as it was published.
    pub document: String,
}

/// Who retired a definition, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retirement {
    pub at: String,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Retire a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetireDefinition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// This version and all before it start nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionRetired {
    pub name: String,
    pub version: u32,
}

/// Which definitions to list: the newest version of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct DefinitionQuery {
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
