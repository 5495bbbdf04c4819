//! The transitions of steps and of the run, as its record lists them (`spec/run.md`).

use super::{Object, cell_of, list};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::run::{Move, Role, Run, RunEvent};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

/// Moves of one kind.
struct Group<'e> {
    first: &'e Move,
    seqs: BTreeSet<StepSeq>,
}

/// Steps that made the same move stand together, as ranges: ten thousand of them are one line. The moves of any one step
/// keep their order; between steps there is none.
pub(super) fn transitions(run: &Run, event: &RunEvent) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut last: HashMap<StepSeq, usize> = HashMap::new();
    for m in &event.moves {
        let same = |group: &Group<'_>| {
            let first = group.first;
            (m.transition.id, m.from, m.to, m.actor, m.trigger)
                == (first.transition.id, first.from, first.to, first.actor, first.trigger)
        };
        let from = last.get(&m.step_seq).map_or(0, |last| last + 1);
        let at = groups.iter().skip(from).position(same).map_or(groups.len(), |at| at + from);
        match groups.get_mut(at) {
            Some(group) => drop(group.seqs.insert(m.step_seq)),
            None => groups.push(Group { first: m, seqs: BTreeSet::from([m.step_seq]) }),
        }
        if event.moves.len() > 1 {
            last.insert(m.step_seq, at);
        }
    }
    let lines: Vec<String> = groups
        .iter()
        .map(|Group { first, seqs }| {
            let mut line = Object::new();
            line.text("id", first.transition.id);
            if seqs.len() == 1 {
                line.text("step", name_of(run, event, first.step_seq));
                line.int("step_seq", first.step_seq);
            } else {
                line.text("step_seqs", &ranges(seqs.iter().copied()));
            }
            line.text("from", first.from.as_str());
            line.text("to", first.to.as_str());
            line.text("actor_class", first.actor.as_str());
            line.text("trigger", first.trigger);
            line.end()
        })
        .collect();
    list(&lines)
}

/// The step's name; for a compensation, which may be new, that of the step it undoes.
pub(super) fn name_of<'r>(run: &'r Run, event: &RunEvent, seq: StepSeq) -> &'r str {
    let role = cell_of(event, seq).map(|cell| cell.role);
    match role {
        Some(Role::Compensation(step)) => run.step_name(step),
        _ => run.step_name(seq),
    }
}

/// Ascending numbers as `0-3,7,9-12`.
pub(super) fn ranges(seqs: impl Iterator<Item = StepSeq>) -> String {
    let mut text = String::new();
    let mut open: Option<(StepSeq, StepSeq)> = None;
    let mut close = |range: (StepSeq, StepSeq)| {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = if range.0 == range.1 { write!(text, "{}", range.0) } else { write!(text, "{}-{}", range.0, range.1) };
    };
    for seq in seqs {
        open = match open {
            Some((first, last)) if seq == last + 1 => Some((first, seq)),
            Some(range) => {
                close(range);
                Some((seq, seq))
            }
            None => Some((seq, seq)),
        };
    }
    if let Some(range) = open {
        close(range);
    }
    text
}

pub(super) fn run_transitions(event: &RunEvent) -> String {
    let lines: Vec<String> = event
        .run_moves
        .iter()
        .map(|m| {
            let mut line = Object::new();
            line.text("id", m.transition.id);
            line.text("from", m.transition.from.as_str());
            line.text("to", m.transition.to.as_str());
            line.text("trigger", m.transition.trigger);
            line.end()
        })
        .collect();
    list(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_ranges() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8].into_iter()), "0-2,5,7-8");
        assert_eq!(ranges([].into_iter()), "");
    }
}
