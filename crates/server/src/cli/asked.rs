//! What an approver is asked: the request that the decision is bound to, the pins in it, how checks held and which files were left.

use super::output::printable;
use super::run_view::{drift_lines, plain, short};
use super::table::{Table, Tint, tint};
use countersign_client::wire::{DriftView, RunView, StepArtifact, StepCheck};
use serde_json::{Map, Value};

/// What is known of a request.
pub struct Asked<'a> {
    pub request: Option<&'a Value>,
    pub request_digest: Option<&'a str>,
    pub checks: Vec<StepCheck>,
    pub artifacts: Vec<StepArtifact>,
}

/// Of a run that the caller may read.
pub fn checks_of(run: &RunView) -> Vec<StepCheck> {
    let of = |step: &countersign_client::wire::StepView| {
        let name = step.name.clone();
        step.checks.clone().into_iter().map(move |check| StepCheck {
            step: name.clone(),
            name: check.name,
            held: check.held,
        })
    };
    run.steps.iter().flat_map(of).collect()
}

pub fn artifacts_of(run: &RunView) -> Vec<StepArtifact> {
    let of = |step: &countersign_client::wire::StepView| {
        let name = step.name.clone();
        step.artifacts.clone().into_iter().map(move |left| StepArtifact {
            step: name.clone(),
            path: left.path,
            sha256: left.sha256,
            size_bytes: left.size_bytes,
        })
    };
    run.steps.iter().flat_map(of).collect()
}

impl Asked<'_> {
    /// Blocks of lines, each with its title.
    pub fn render(&self) -> String {
        let mut blocks = vec![];
        let empty = Map::new();
        let request = self.request.and_then(Value::as_object).unwrap_or(&empty);
        let members: Vec<(&String, &Value)> =
            request.iter().filter(|(name, _)| !matches!(name.as_str(), "pins" | "drift")).collect();
        let widest = members.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut lines: Vec<String> = members
            .into_iter()
            .map(|(name, value)| format!("  {}  {}", tint(Tint::Dim, &format!("{name:<widest$}")), plain(value)))
            .collect();
        if let Some(digest) = self.request_digest {
            lines.push(format!("  {} {}", tint(Tint::Dim, "sha256 of the request"), printable(digest)));
        }
        blocks.extend(block("Request", lines));
        blocks.extend(block("Drift", drift_of(request).into_iter().map(|line| format!("  {line}")).collect()));
        let pins = request.get("pins").and_then(Value::as_object).unwrap_or(&empty);
        let mut table = Table::new(["pin", "value"]);
        pins.iter().for_each(|(pin, value)| table.row([tint(Tint::Strong, pin), plain(value)]));
        blocks.extend(titled("Pins", &table, !pins.is_empty()));
        let mut table = Table::new(["step", "check", "held"]);
        for check in &self.checks {
            let held = if check.held { tint(Tint::Good, "✓ yes") } else { tint(Tint::Bad, "✕ no") };
            table.row([printable(&check.step), printable(&check.name), held]);
        }
        blocks.extend(titled("Checks", &table, !self.checks.is_empty()));
        let mut table = Table::new(["step", "file", "bytes", "sha256"]);
        for left in &self.artifacts {
            let size = left.size_bytes.to_string();
            table.row([printable(&left.step), printable(&left.path), size, printable(&left.sha256)]);
        }
        blocks.extend(titled("Artifacts", &table, !self.artifacts.is_empty()));
        blocks.join("\n\n")
    }
}

fn block(title: &str, lines: Vec<String>) -> Option<String> {
    (!lines.is_empty()).then(|| format!("{}\n{}", tint(Tint::Strong, title), lines.join("\n")))
}

fn titled(title: &str, table: &Table, shown: bool) -> Option<String> {
    shown.then(|| format!("{}\n{table}", tint(Tint::Strong, title)))
}

fn drift_of(request: &Map<String, Value>) -> Vec<String> {
    let drift = request.get("drift").cloned().and_then(|drift| serde_json::from_value::<Vec<DriftView>>(drift).ok());
    drift.map(|drift| drift_lines(&drift, &[])).unwrap_or_default()
}

/// One line that tells requests apart.
pub fn gist(request: &Value) -> String {
    let Some(members) = request.as_object() else { return short(request) };
    let shown = members.iter().filter(|(name, _)| name.as_str() != "pins");
    shown.map(|(name, value)| format!("{} {}", printable(name), short(value))).collect::<Vec<_>>().join(", ")
}
