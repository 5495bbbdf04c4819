//! Columns of a run that repeat others or follow from its definition, computed again: what lists search by, and what each
//! step's row says of its definition. Nothing here reads a record.

use crate::evidence::RunState;
use crate::run::rollup::Basis;
use countersign_kernel::lifecycle::RunState as RunCode;
use countersign_kernel::run::Run;

type Found = (&'static str, String);

/// What lists find the run by must be what the run says itself.
pub fn copies(state: &RunState) -> Vec<Found> {
    let (view, copies) = (&state.view, &state.view.copies);
    let colour =
        view.head.rollup.as_deref().and_then(Basis::parse).map(|basis| basis.rollup.colour.as_str().to_owned());
    let lives = RunCode::parse(&view.head.state).is_some_and(|code| !code.is_ended() && code != RunCode::Idle);
    let wrong = [
        ("colour", copies.colour != colour),
        ("state", copies.state != view.head.state),
        ("moves", copies.moves != state.history.len() as u64),
        ("definition_name", copies.definition_name != view.row.definition_name),
        ("correlation_key", copies.correlation_key != view.row.correlation_key),
        ("concurrency_key", copies.concurrency_key != view.row.concurrency_key),
        ("is_live", copies.is_live != lives),
    ];
    let wrong = wrong.into_iter().filter(|(_, differs)| *differs);
    wrong.map(|(column, _)| ("row-missing", format!("the copy of `{column}` is not what it copies"))).collect()
}

/// What the definition says of each step, as its row has it.
pub fn planned(run: &Run, state: &RunState) -> Vec<Found> {
    let mut found = vec![];
    for step in &state.steps {
        let (seq, new) = (step.step_seq, &step.new);
        let Some(cell) = run.cell(seq) else { continue };
        let same = (&*new.name, &new.queue, new.max_attempts)
            == (run.step_name(seq), &run.queue(seq, cell.role), run.max_attempts(seq));
        if !same {
            found.push(("document-mismatch", format!("step {seq} (`{}`) is not as its definition says", new.name)));
        }
        if step.state.output_needed != (step.state.output.is_some() && run.keeps_output(seq)) {
            found.push(("row-missing", format!("step {seq} says otherwise whether its output is needed")));
        }
    }
    found
}
