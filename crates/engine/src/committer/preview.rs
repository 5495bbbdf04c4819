//! Previews: what a command on a run would come to. Nothing is written, and nothing is kept.

use super::Committer;
use crate::outcome::{Call, Outcome, Problem, Target};
use countersign_kernel::IdSource;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{self, Event};

impl Committer {
    /// What would happen, by the very function that decides it.
    pub(super) fn preview(
        &mut self,
        call: &Call,
        target: Target,
        command: &run::Command,
        registry: &Registry,
    ) -> Result<Outcome, Refusal> {
        let decided = self.decide_on_run(call, target, command, registry);
        let (undoes, leaves) = self.reach_of_cancel(target, command);
        match decided.and_then(|(events, ids)| self.would_tell(target, &events, ids).map(|()| events)) {
            Ok(events) => {
                let moves = run::moved_by(command, &events);
                Ok(Outcome::Previewed {
                    ok: true,
                    emitted_event_type: moves.as_ref().and_then(|(_, emits)| emits.map(str::to_owned)),
                    transition_id: moves.map(|(id, _)| id),
                    problems: vec![],
                    undoes,
                    leaves,
                })
            }
            // Whoever may not do it at all learns no more than by trying.
            Err(refusal) if is_about_state(refusal.code) => Ok(Outcome::Previewed {
                ok: false,
                transition_id: None,
                emitted_event_type: None,
                problems: Problem::all(&refusal),
                undoes: vec![],
                leaves: vec![],
            }),
            Err(refusal) => Err(refusal),
        }
    }
}

impl Committer {
    /// What a cancellation undoes, and what it leaves as it is.
    fn reach_of_cancel(&self, target: Target, command: &run::Command) -> (Vec<String>, Vec<String>) {
        let (Target::Existing(run_id), run::Command::Cancel { compensate, .. }) = (target, command) else {
            return (vec![], vec![]);
        };
        let run = self.cache.peek(&run_id).and_then(|instance| instance.run.as_deref());
        let reach = run.map(|run| run.reach_of_cancel(*compensate)).unwrap_or_default();
        let named = |names: Vec<std::sync::Arc<str>>| names.iter().map(|name| name.to_string()).collect();
        (named(reach.undoes), named(reach.leaves))
    }

    /// Whether what it would tell the world fits its schemas.
    pub(super) fn would_tell(&self, target: Target, events: &[Event], mut ids: IdSource) -> Result<(), Refusal> {
        let Target::Existing(run_id) = target else { return Ok(()) };
        let run = self.cache.peek(&run_id).and_then(|instance| instance.run.as_deref());
        for event in events {
            if let (true, Some(run), Event::Run(event)) = (self.config.emitter.is_listened(), run, event) {
                let audit_ref = ids.make();
                self.config.emitter.rows(run, event, audit_ref, &*self.config.language, &mut ids)?;
            }
        }
        Ok(())
    }
}

/// Refusals that say something about the step or the run, and not about whoever asks or how.
const fn is_about_state(code: Code) -> bool {
    matches!(
        code,
        Code::TransitionRefusedByGuard
            | Code::InvalidTransition
            | Code::AlreadyTerminal
            | Code::Conflict
            | Code::GateNotCleared
    )
}
