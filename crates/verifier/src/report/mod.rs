//! What people and programs get to read of a verdict: a page of text, an HTML report, or JSON.

mod canvas;
mod html;
mod html_run;
mod html_story;
mod json;
mod layers;
mod svg;
mod svg_run;
mod text;

pub use html::write as html;
pub use json::write as json;
pub use text::write as text;

use crate::finding::{Finding, Place};
use crate::time::utc;
use crate::{Trust, Verdict};

/// What the bundle was checked against, and how to do so again.
pub struct Circumstances<'a> {
    pub bundle: &'a str,
    pub trust: &'a Trust,
    /// The command line, as it can be typed again.
    pub command: &'a str,
}

/// Where a finding is, in the words people search by.
fn place(place: &Place) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(index) = place.log_index {
        parts.push(format!("log index {index}"));
    }
    if let Some(record) = &place.record {
        parts.push(format!("sequence {}", record.sequence));
        parts.push(format!("{} by {}", record.action_ref, record.actor_ref));
        parts.push(utc(record.recorded_at_us));
    }
    if let Some(id) = place.instance_id {
        parts.push(format!("instance {id}"));
    }
    if let Some(id) = place.event_id {
        parts.push(format!("event {id}"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn headline(verdict: &Verdict) -> String {
    if verdict.passed() {
        return "VERIFIED".to_owned();
    }
    let count = verdict.findings().count();
    format!("FAILED VERIFICATION: {count} finding{}", if count == 1 { "" } else { "s" })
}

fn finding_line(finding: &Finding) -> String {
    format!("{}: {}", finding.code.as_str(), finding.detail)
}
