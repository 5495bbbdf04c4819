//! Warnings: patterns that the guidelines for workflows advise against (seed 004 §6). They never prevent publishing,
//! and a published definition is not checked again.

use crate::problem::{Position, Problem, ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{FailurePolicy, Order, Plan, StepSpec, WaitWork, Work};
use std::collections::HashSet;

/// How many names a warning shows.
const MAX_SHOWN: usize = 4;
/// With more steps than this, a picture without groups is hard to read.
const MAX_UNGROUPED: usize = 10;
/// Requests that change nothing, by the definition of HTTP.
const SAFE_METHODS: &[&str] = &["GET", "HEAD", "OPTIONS"];

/// The warnings of a sound plan, by line and column. `root` is the document that it was read from.
pub(super) fn warnings(root: &Node, plan: &Plan) -> Vec<Problem> {
    let mut problems = Problems::default();
    let steps = Steps { root, plan };
    no_timeout(&steps, &mut problems);
    compensation_not_idempotent(root, &mut problems);
    ungated_effect(&steps, &mut problems);
    large_ungrouped(&steps, &mut problems);
    problems.into_sorted()
}

/// The steps of the plan beside those of the document.
struct Steps<'a> {
    root: &'a Node,
    plan: &'a Plan,
}

impl Steps<'_> {
    fn at(&self, seq: usize, field: &str) -> Position {
        let step = self.root.nearest(&format!("steps[{seq}]"));
        step.field(field).or_else(|| step.field("name")).map_or(step.at, |node| node.at)
    }

    /// `a`, `b`, `c`, `d` and 3 more
    fn shown(&self, seqs: &[usize]) -> String {
        let named: Vec<String> = seqs.iter().take(MAX_SHOWN).map(|seq| quoted(&self.plan.steps[*seq].name)).collect();
        match seqs.len().saturating_sub(MAX_SHOWN) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }

    fn those(&self, which: impl Fn(&StepSpec) -> bool) -> Vec<usize> {
        self.plan.steps.iter().enumerate().filter(|(_, step)| which(step)).map(|(seq, _)| seq).collect()
    }
}

fn no_timeout(steps: &Steps<'_>, problems: &mut Problems) {
    if steps.plan.timeout.is_some() || steps.plan.hard_cap.is_some() {
        return;
    }
    let unbounded = steps.those(|step| {
        let by_itself = match &step.work {
            Work::Wait(WaitWork::Event { timeout, .. }) => timeout.is_some(),
            // A child's steps are bounded by its own definition.
            Work::Wait(WaitWork::For(_) | WaitWork::Until(_)) | Work::Workflow { .. } => true,
            _ => false,
        };
        !by_itself && step.timeout.is_none() && step.deadline.is_none() && step.soft_cap.is_none()
    });
    if let Some(first) = unbounded.first() {
        let message = format!(
            "nothing bounds how long {} may take; add `timeout` to the step or to the definition",
            steps.shown(&unbounded)
        );
        problems.add(steps.at(*first, "name"), format!("steps[{first}].timeout"), ProblemCode::NoTimeout, message);
    }
}

/// A compensation is run again after a lost lease, whatever became of the first attempt.
fn compensation_not_idempotent(root: &Node, problems: &mut Problems) {
    let Some(Node { value: Value::Seq(entries), .. }) = root.field("compensation") else { return };
    for (i, entry) in entries.iter().enumerate() {
        if matches!(entry.field("idempotent").map(|node| &node.value), Some(Value::Bool(true))) {
            continue;
        }
        let message = "a compensation may run twice, after a lost lease; when that is safe, say `idempotent: true`";
        let at = entry.field("step").map_or(entry.at, |node| node.at);
        problems.add(at, format!("compensation[{i}].idempotent"), ProblemCode::CompensationNotIdempotent, message);
    }
}

/// Commands and requests that change something, with no approval in front and no compensation behind.
fn ungated_effect(steps: &Steps<'_>, problems: &mut Problems) {
    let plan = steps.plan;
    let approved = approved(plan);
    let undone: HashSet<usize> = plan.compensation.iter().map(|entry| entry.step as usize).collect();
    for (seq, step) in plan.steps.iter().enumerate() {
        let effect = match &step.work {
            Work::Shell(_) => "command",
            Work::Http(http) if !SAFE_METHODS.contains(&http.method.as_str()) => "request",
            _ => continue,
        };
        if step.read_only || approved[seq] || undone.contains(&seq) {
            continue;
        }
        let undo = if plan.failure_policy == FailurePolicy::FailClosed { "" } else { ", or a compensation" };
        let message = format!(
            "no approval comes before this {effect}, which nothing undoes; add a `gate`{undo}, or say `readOnly: true` where it changes nothing"
        );
        problems.add(steps.at(seq, "run"), format!("steps[{seq}].gate"), ProblemCode::UngatedEffect, message);
    }
}

/// For each step, whether it has a gate or comes after an approval.
fn approved(plan: &Plan) -> Vec<bool> {
    let own = |step: &StepSpec| step.gate.is_some() || matches!(step.work, Work::Approval(_));
    let mut approved: Vec<bool> = plan.steps.iter().map(own).collect();
    let order = match plan.order {
        Order::Linear => (0..).take(plan.steps.len()).collect(),
        Order::Dag => {
            let edges: Vec<_> = plan.steps.iter().map(|step| step.depends_on.clone()).collect();
            super::graph::topological(&edges)
        }
    };
    for seq in order {
        let before = &plan.steps[seq as usize].depends_on;
        approved[seq as usize] |= before.iter().any(|before| approved[*before as usize]);
    }
    approved
}

fn large_ungrouped(steps: &Steps<'_>, problems: &mut Problems) {
    let ungrouped = steps.those(|step| step.category.is_none());
    if ungrouped.len() > MAX_UNGROUPED {
        let message = format!(
            "{} steps are in no group; give them a `category`, or move some into a workflow of their own",
            ungrouped.len()
        );
        let at = steps.root.field("steps").map_or(steps.root.at, |node| node.at);
        problems.add(at, "steps", ProblemCode::LargeUngrouped, message);
    }
}
