//! Whether `/metrics` asks for a token, and which.

use super::Config;
use super::sink::{self, Secret};
use anyhow::Context;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSection {
    /// What `/metrics` asks for; without it, nothing.
    pub token: Option<MetricsToken>,
}

/// The token itself, or the file that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum MetricsToken {
    Text(Secret),
    File { file: PathBuf },
}

impl Config {
    /// What `/metrics` asks for.
    pub fn metrics_token(&self) -> anyhow::Result<Option<Secret>> {
        let (given, file) = match &self.metrics.token {
            None => (None, None),
            Some(MetricsToken::Text(token)) => (Some(token.clone()), None),
            Some(MetricsToken::File { file }) => (None, Some(file.clone())),
        };
        sink::secret(("token", &given), ("token.file", &file)).context("metrics")
    }

    /// The file with that token, where it is in one.
    pub fn metrics_token_file(&self) -> Option<PathBuf> {
        match &self.metrics.token {
            Some(MetricsToken::File { file }) => Some(file.clone()),
            Some(MetricsToken::Text(_)) | None => None,
        }
    }
}
