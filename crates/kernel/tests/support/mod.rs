//! What the kernel's tests share: short ways to write down a declaration, a registry and a decision.

use countersign_kernel::process::{self, Command, Context, Event, Process};
use countersign_kernel::registry::{self, Registry};
use countersign_kernel::{Declaration, IdSource, Refusal, Time, Transition};

/// The actor in whose name the engine itself acts.
pub const APPLICATION: &str = "countersign";

/// States and transitions as text: `from action to` or `from action to guard`.
pub fn declaration(states: &str, initial: &str, terminal: &str, transitions: &[&str]) -> Declaration {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    Declaration {
        states: words(states),
        transitions: transitions.iter().map(|line| transition(&words(line))).collect(),
        initial_state: initial.to_owned(),
        terminal_states: words(terminal),
    }
}

fn transition(words: &[String]) -> Transition {
    let [from_state, action, to_state, guard @ ..] = words else { panic!("not a transition: {words:?}") };
    Transition {
        from_state: from_state.clone(),
        action: action.clone(),
        to_state: to_state.clone(),
        guard: guard.first().cloned(),
        effects: vec![],
    }
}

/// A registry in which these (subject, scope) grants are active, and nothing else.
pub fn registry_with(grants: &[(&str, &str)]) -> Registry {
    let mut registry = Registry::default();
    let mut ids = IdSource::new(Time(1), 1);
    for (sequence, (subject_ref, action_scope)) in (1..).zip(grants) {
        let body = registry::EventBody::GrantMade {
            grant_id: ids.make(),
            subject_ref: (*subject_ref).to_owned(),
            action_scope: (*action_scope).to_owned(),
        };
        registry.apply(sequence, &registry::Event { actor_ref: "admin".to_owned(), at: Time(1), body });
    }
    registry
}

/// The kernel's own decision, with ids made for `now`.
pub fn decide(
    registry: &Registry,
    process: Option<&Process>,
    actor_ref: &str,
    now: Time,
    command: &Command,
) -> Result<Vec<Event>, Refusal> {
    let ids = IdSource::new(now, 1);
    let mut ctx = Context { actor_ref, now, registry, application_actor_ref: APPLICATION, ids };
    process::decide(process, command, &mut ctx)
}
