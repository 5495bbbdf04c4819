//! What a runbook's run shows besides: its phase, its caps as time left, its pins, and what changed under it.

use crate::cli::output::printable;
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::left;
use countersign_client::wire::{DriftView, PinError, RunView, StepView};
use countersign_kernel::text::length;
use jiff::Timestamp;
use serde_json::Value;

/// A value up to this long is shown as it is.
const SHOWN: usize = 40;
/// So much of a digest tells it from others.
const DIGEST: usize = 12;

/// Lines of the header.
pub fn header(run: &RunView) -> Vec<(&'static str, String)> {
    let mut lines = vec![];
    if let Some(phase) = &run.phase {
        lines.push(("phase", tint(Tint::Strong, phase)));
    }
    if run.dry_run {
        lines.push(("dry run", "only surveys, checks and read-only steps are carried out".to_owned()));
    }
    if let (Some(used), Some(cap)) = (run.executing_ms, run.hard_cap_ms) {
        let (rest, whole) = (seconds(cap.saturating_sub(used).max(0)), seconds(cap));
        let tinted = if used >= cap { Tint::Bad } else { Tint::Strong };
        lines.push(("hard cap", format!("{} of {whole} executing time left", tint(tinted, &rest))));
    }
    // What made it stop stands with the drift.
    for pin in run.pin_errors.iter().filter(|pin| run.drift.iter().all(|drift| drift.pin != pin.pin)) {
        lines.push(("pin", tint(Tint::Bad, &format!("{} could not be looked at: {}", pin.pin, pin.error))));
    }
    if let Some(step) = &run.surveying {
        lines.push(("survey", format!("the pins are being looked at, for {}", tint(Tint::Strong, step))));
    }
    lines
}

/// In whole seconds.
fn seconds(ms: i64) -> String {
    let us = ms / 1000 * 1_000_000;
    if us == 0 { "0s".to_owned() } else { length(us) }
}

/// Text as it is, all else as JSON.
pub fn plain(value: &Value) -> String {
    printable(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// A value, or its beginning; of a digest little says enough.
pub fn short(value: &Value) -> String {
    let text = plain(value);
    let (first, rest) = text.find(' ').map_or((&*text, ""), |at| text.split_at(at));
    let digest = first.strip_prefix("sha256:").unwrap_or(first);
    let is_digest = digest.len() >= 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `sha256sum` prints the file's name behind it.
    let text = if is_digest { format!("{}…{rest}", &digest[..DIGEST]) } else { text };
    if text.chars().count() <= SHOWN {
        return text;
    }
    format!("{}…", text.chars().take(SHOWN).collect::<String>())
}

/// `schema  pinned 9f2c…  live 41ab…`, a line for each pin that differs, with why it has no value.
pub fn drift_lines(drift: &[DriftView], errors: &[PinError]) -> Vec<String> {
    let widest = drift.iter().map(|entry| entry.pin.chars().count()).max().unwrap_or(0);
    let line = |entry: &DriftView| {
        let (mut pinned, mut live) = (short(&entry.pinned), short(&entry.live));
        if pinned == live {
            (pinned, live) = (plain(&entry.pinned), plain(&entry.live));
        }
        if entry.live.is_null() {
            let why = errors.iter().find(|failed| failed.pin == entry.pin);
            let why = why.map_or_else(String::new, |failed| format!(" ({})", printable(&failed.error)));
            live = format!("no value{why}");
        }
        let pin = format!("{:<widest$}", entry.pin);
        format!("{}  pinned {}  live {}", tint(Tint::Strong, &pin), pinned, tint(Tint::Bad, &live))
    };
    drift.iter().map(line).collect()
}

/// The pins with their digests, and what differs.
pub fn sections(run: &RunView) -> Vec<String> {
    let mut sections = vec![];
    if !run.drift.is_empty() {
        let lines: Vec<String> =
            drift_lines(&run.drift, &run.pin_errors).into_iter().map(|line| format!("  {line}")).collect();
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Drift"), lines.join("\n")));
    }
    if !run.pins.is_empty() {
        let mut table = Table::new(["pin", "value", "sha256", "pinned by"]);
        for pin in &run.pins {
            let digest: String = pin.digest.chars().take(DIGEST).collect();
            table.row([tint(Tint::Strong, &pin.pin), short(&pin.value), format!("{digest}…"), printable(&pin.step)]);
        }
        sections.push(format!("{}\n{table}", tint(Tint::Strong, "Pins")));
    }
    sections
}

/// How a step's checks held, what it left, and how long it may take.
pub fn facts(step: &StepView, now: Timestamp) -> Vec<String> {
    let mut parts = vec![];
    for check in &step.checks {
        let (mark, tinted) = if check.held { ("✓", Tint::Good) } else { ("✕", Tint::Bad) };
        parts.push(tint(tinted, &format!("{mark} {}", check.name)));
    }
    for left in &step.artifacts {
        let digest: String = left.sha256.chars().take(DIGEST).collect();
        parts.push(format!("left {} ({} bytes, {digest}…)", printable(&left.path), left.size_bytes));
    }
    if let Some(at) = step.soft_cap_at.as_deref().filter(|_| matches!(&*step.state_code, "in_progress" | "waiting")) {
        parts.push(format!("soft cap: {}", left(at, now)));
    }
    parts
}
