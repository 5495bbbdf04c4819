//! What a runbook's run and its steps show besides.

use super::value;
use crate::api::process_view::digest;
use crate::api::time;
use countersign_client::wire;
use countersign_engine::run::runbook::shown;
use countersign_kernel::Time;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::run::{Drift, Pin, Runbook};

pub fn run(view: wire::RunView, book: Option<&Runbook>, plan: &Plan, now: Time) -> wire::RunView {
    let Some(book) = book else { return view };
    let name = |seq: StepSeq| plan.step(seq).map_or_else(String::new, |spec| spec.name.to_string());
    let codes: Vec<StepCode> = view.steps.iter().filter_map(|step| StepCode::parse(&step.state_code)).collect();
    let drift = |drift: &Drift| wire::DriftView {
        pin: drift.pin.to_string(),
        pinned: value(&shown(&drift.pinned)),
        live: drift.live.as_deref().map_or(serde_json::Value::Null, |live| value(&shown(live))),
    };
    wire::RunView {
        phase: Some(book.phase(plan, &codes).to_string()),
        dry_run: book.dry_run,
        pins: book.pins.iter().map(|kept| pin(kept, plan)).collect(),
        drift: book.drift.iter().map(drift).collect(),
        pin_errors: book
            .unseen
            .iter()
            .map(|(pin, why)| wire::PinError { pin: pin.to_string(), error: why.to_string() })
            .collect(),
        surveying: book.survey.as_ref().map(|survey| name(survey.step_seq)),
        executing_ms: Some(book.used_at(now) / 1000),
        hard_cap_ms: plan.hard_cap.map(|cap| cap / 1000),
        ..view
    }
}

pub fn pin(pin: &Pin, plan: &Plan) -> wire::PinView {
    wire::PinView {
        pin: pin.name.to_string(),
        step: plan.step(pin.step_seq).map_or_else(String::new, |spec| spec.name.to_string()),
        value: value(&shown(&pin.value)),
        digest: digest(&pin.value),
    }
}

pub fn step(view: wire::StepView, book: Option<&Runbook>, plan: &Plan) -> wire::StepView {
    let Some(book) = book else { return view };
    let seq = view.step_seq;
    let verdicts = book.checks.iter().find(|(of, _)| *of == seq).map_or(&[][..], |(_, verdicts)| verdicts);
    let check = |verdict: &countersign_kernel::run::Verdict| wire::CheckView {
        name: verdict.name.to_string(),
        held: verdict.held,
    };
    let artifacts = book.artifacts.iter().filter(|(of, _)| *of == seq).map(|(_, left)| wire::ArtifactView {
        path: left.path.to_string(),
        sha256: left.sha256.to_string(),
        size_bytes: left.size_bytes,
    });
    let claimed = book.claimed.filter(|(claimed, _)| *claimed == seq).map(|(_, at)| at);
    let cap = plan.step(seq).and_then(|spec| spec.soft_cap);
    wire::StepView {
        checks: verdicts.iter().map(check).collect(),
        artifacts: artifacts.collect(),
        soft_cap_at: claimed.zip(cap).map(|(at, cap)| time::format(at.after(cap))),
        ..view
    }
}
