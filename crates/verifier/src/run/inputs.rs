//! What claimed steps were handed (`spec/run.md`, section 6, *Inputs*): every claim says it, and where it is not worked out by
//! an expression it is what the records say. Expressions are not carried out again.

use super::follow::Made;
use super::read::{Handed, Moves, Told};
use super::{Run, Step};
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::process::{Context, Process};
use crate::record::{Action, Header};
use std::collections::BTreeSet;

/// From this edition of `record.md` on, a claim without an input is a fault.
const SINCE: i64 = 3;

impl Run {
    pub(super) fn judge_inputs(
        &self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        process: &Process,
        ctx: &mut Context<'_>,
    ) {
        let by_person = header.action == Action::StepClaimed;
        let is_claim = |made: &&Made| {
            let leased = matches!(made.id, "T2" | "T10" | "X3" | "X15") && moves.leases.contains(&made.seq);
            leased || (by_person && made.person && matches!(made.id, "T2" | "X15"))
        };
        let mut due: BTreeSet<usize> = made.iter().filter(is_claim).map(|made| made.seq).collect();
        for (seq, handed) in &moves.inputs {
            ctx.findings.checked(Claim::Completeness);
            let fault = if due.remove(seq) { self.input_fault(*seq, handed) } else { Some("is not claimed here") };
            if let Some(fault) = fault {
                let detail = format!("the input of step {seq}, which {fault}");
                ctx.findings.find(Code::InputMismatch, header, detail);
            }
        }
        for seq in due.iter().filter(|_| process.rules() >= SINCE) {
            let detail = format!("step {seq} is claimed, and the record does not say what it was handed");
            ctx.findings.find(Code::InputMismatch, header, detail);
        }
    }

    fn input_fault(&self, seq: usize, handed: &Handed) -> Option<&'static str> {
        let (step, begin) = (self.steps.get(seq)?, self.begin.as_ref()?);
        let run_has_one = begin.input != Told::Value(Value::Null);
        match (handed, step.compensates) {
            (Handed::RunInput, _) if !run_has_one => Some("is handed the run's, and the run has none"),
            (Handed::RunInput, Some(_)) => Some("undoes another, and is handed more than the run's"),
            (Handed::RunInput, None) => None,
            (Handed::Own(told), Some(undone)) => self.undo_fault(undone, told),
            (Handed::Own(told), None) => {
                let nothing = !run_has_one && *told == Told::Value(Value::Null);
                (!self.has_own_input(seq, step) && !nothing)
                    .then_some("is handed the run's: its definition says no other")
            }
        }
    }

    /// What undoes a step is handed its output, and its input.
    fn undo_fault(&self, undone: usize, told: &Told) -> Option<&'static str> {
        let Told::Value(value) = told else { return None };
        let step = self.steps.get(undone)?;
        let is = |name: &str, known: Option<&Told>| match known {
            Some(Told::Value(known)) => value.get(name) == Some(known),
            Some(Told::Digest(_)) | None => value.get(name).is_some(),
        };
        if !is("output", step.output.as_ref()) {
            return Some("undoes another, and is not handed its output");
        }
        let input = self.begin.as_ref().map(|begin| &begin.input).filter(|_| !self.has_own_input(undone, step));
        (!is("input", input)).then_some("undoes another, and is not handed its input")
    }

    /// A task is handed what its step is.
    fn has_own_input(&self, seq: usize, step: &Step) -> bool {
        let spec = self.workflow.as_ref().and_then(|workflow| workflow.steps.get(step.task_of.unwrap_or(seq)));
        spec.is_some_and(|spec| spec.has_input)
    }
}
