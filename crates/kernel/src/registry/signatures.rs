//! Whose acts a regulated deployment takes only with a signature.

use super::{ActorKind, Registry};

/// Whose acts must be signed, whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Actors of kind `service` may use tokens.
    People,
    All,
}

impl Signatures {
    pub const fn as_str(self) -> &'static str {
        match self {
            Signatures::People => "people",
            Signatures::All => "all",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Signatures::People, Signatures::All].into_iter().find(|one| one.as_str() == text)
    }
}

impl Registry {
    /// Whether the recorded configuration wants every act of this actor signed. The engine signs what it does itself.
    pub fn must_sign(&self, actor_ref: &str) -> bool {
        let configuration = self.configuration().filter(|configuration| configuration.regulated);
        let Some(signatures) = configuration.and_then(|configuration| configuration.signatures) else { return false };
        let is_service = self.actor(actor_ref).is_some_and(|actor| actor.kind == ActorKind::Service);
        !self.is_engine_actor(actor_ref) && (signatures == Signatures::All || !is_service)
    }
}
