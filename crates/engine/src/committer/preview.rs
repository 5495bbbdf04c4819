//! Previews: what somebody's act on a step would come to. Nothing is written, and nothing is kept.

use super::Committer;
use crate::outcome::{Call, Outcome, Target};
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
        match self.decide_on_run(call, target, command, registry) {
            Ok((events, _)) => {
                let moves = events.iter().find_map(|event| match event {
                    Event::Run(event) => match event.acted.as_deref().and_then(|acted| acted.own.as_ref()) {
                        Some(own) => Some((own.id.clone(), own.emits)),
                        None => event.moves.first().map(|m| (m.transition.id.to_owned(), Some(event.emits(m)))),
                    },
                    Event::Gate(_) => None,
                });
                Ok(Outcome::Previewed {
                    ok: true,
                    emitted_event_type: moves.as_ref().and_then(|(_, emits)| emits.map(str::to_owned)),
                    transition_id: moves.map(|(id, _)| id),
                    problems: vec![],
                })
            }
            // Whoever may not do it at all learns no more than by trying.
            Err(refusal) if is_about_state(refusal.code) => Ok(Outcome::Previewed {
                ok: false,
                transition_id: None,
                emitted_event_type: None,
                problems: vec![refusal.to_string()],
            }),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Refusals that say something about the step or the run, and not about whoever asks or how.
fn is_about_state(code: Code) -> bool {
    matches!(code, Code::TransitionRefusedByGuard | Code::InvalidTransition | Code::AlreadyTerminal)
}
