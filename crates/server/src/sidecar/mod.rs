//! The sidecar of a runbook (ADR 37): `state.json`, a report per phase and, where it stopped, how it goes on. Files are made from
//! the run's records alone and are never read back. [`keeper`] keeps them in a directory.

mod fold;
mod keeper;
mod report;
mod state;

pub use keeper::{Keeper, open_dir};

use countersign_engine::Engine;
use countersign_engine::port::RunView;
use countersign_kernel::Time;
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::refusal::{Code, Refusal};
use fold::Fold;

pub const STATE_FILE: &str = "state.json";
pub const STOP_ROUTE_FILE: &str = "stop-route-report.md";

/// All files of one run.
pub struct Sidecar {
    /// `<name>-<YYYYMMDDTHHMMSSZ>-<uuid7>`: the directory they belong into.
    pub run_name: String,
    pub files: Vec<(String, String)>,
    /// The record that they were made at.
    pub sequence: u64,
    pub at: Time,
    /// Its line in the list of all runs.
    pub index_line: String,
}

/// The files of a run that the caller was shown, as they are now or were at this record.
pub async fn files(engine: &Engine, run: &RunView, sequence: Option<u64>) -> Result<Sidecar, Refusal> {
    let plan = engine.plan_of(run).await?;
    if !plan.is_runbook() {
        let detail = "this run is no runbook: only runs of `failurePolicy: fail-closed` have a sidecar";
        return Err(Refusal::new(Code::NotKnown, detail).at("run_id"));
    }
    let newest = run.chain.sequence;
    let through = sequence.unwrap_or(newest);
    if !(1..=newest).contains(&through) {
        let detail = format!("the run has {newest} records");
        return Err(Refusal::new(Code::NotKnown, detail).at("sequence"));
    }
    let records = engine.records_through(run, through).await?;
    let none = || Refusal::new(Code::NotKnown, "the run has no record").at("run_id");
    let mut fold = Fold::of(&plan, &records).ok_or_else(none)?;
    if !fold.purged.is_empty() && through == newest {
        // What a purged record said of the run's state is kept in its row.
        fold.state = RunState::parse(&run.head.state).unwrap_or(fold.state);
        fold.outcome.clone_from(&run.head.outcome);
    }
    let state = format!("{:#}\n", state::state(run, &plan, &fold));
    let mut files = vec![];
    for (seq, (spec, step)) in plan.steps.iter().zip(&fold.steps).enumerate() {
        if step.begun.is_some() {
            files.push((state::phase_file(seq), report::phase(run, seq, spec, step, &fold)));
        }
    }
    files.extend(report::stop_route(run, &plan, &fold, &state).map(|text| (STOP_ROUTE_FILE.to_owned(), text)));
    files.insert(0, (STATE_FILE.to_owned(), state));
    Ok(Sidecar {
        run_name: state::run_name(run),
        files,
        sequence: fold.sequence,
        at: fold.at,
        index_line: state::index_line(run),
    })
}

/// Whether a file of this name is one of ours, in the directory of a run.
pub fn is_own_name(name: &str) -> bool {
    let phase = name.strip_prefix("phase-").and_then(|rest| rest.strip_suffix(".md"));
    let numbered = |digits: &str| digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    name == STATE_FILE || name == STOP_ROUTE_FILE || phase.is_some_and(numbered)
}
