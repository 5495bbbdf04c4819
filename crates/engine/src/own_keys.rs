//! The keys of the engine's own actors: whether this node's are those that the registry names, and how others take
//! their place. No request reaches them; `countersign keys rotate` does, on the server's machine.

use crate::log::LogKeys;
use crate::outcome::{Command, Outcome};
use crate::{Config, Engine, OpenError, actor_key};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, ActorKey, RegisterKey, RevokeKey, RotateKey};
use countersign_ledger::statement::{PublicKey, Signer};

const ROTATED: &str = "rotated: another key took its place";
/// What the registry keeps of a key whose private part is gone.
const LOST: &str = "the private key was lost";

impl Engine {
    /// Whether this is an actor of the software itself. Nobody authenticates as one, and no request acts as one.
    pub fn is_engine_actor(&self, actor_ref: &str) -> bool {
        let Config { application_actor_ref, server_actor_ref, .. } = &*self.config;
        actor_ref == application_actor_ref
            || actor_ref == server_actor_ref
            || self.registry().is_engine_actor(actor_ref)
    }

    /// This node's keys are those that the registry names, or it does not start: a key that appears by itself would be
    /// what an intruder does. A log key that took over by a cross-signed note is registered here, and the one before
    /// it ends.
    pub async fn settle_own_keys(&self) -> Result<(), OpenError> {
        if let Some(key) = self.config.application_key.as_ref().map(Signer::public_key) {
            self.settle_application_key(&actor_key(&key)).await?;
        }
        if let Some(key) = self.config.server_key.as_ref().filter(|_| self.seals()) {
            self.settle_server_key(actor_key(key)).await?;
        }
        Ok(())
    }

    async fn settle_application_key(&self, key: &ActorKey) -> Result<(), OpenError> {
        let actor_ref = &self.config.application_actor_ref;
        let (known, first, active) = {
            let registry = self.registry();
            let keys = registry.keys().of(actor_ref);
            let active: Vec<String> = keys.iter().filter(|k| k.is_active()).map(|k| k.key.key_id.clone()).collect();
            let known = registry.keys().get(actor_ref, &key.key_id).map(registry::KnownKey::is_active);
            (known, keys.is_empty(), active.join(", "))
        };
        match known {
            Some(true) => Ok(()),
            Some(false) => Err(OpenError::Key(format!(
                "the key {} in application.key has ended: another one took its place ({active}). Put that one's file \
                 into the data directory",
                key.key_id
            ))),
            None if first || self.config.application_key_is_new => {
                let command = RegisterKey { actor_ref: actor_ref.clone(), key: key.clone() };
                self.own_registry(registry::Command::RegisterKey(command)).await?;
                Ok(())
            }
            None => Err(OpenError::Key(format!(
                "application.key holds the key {}, which is not one of `{actor_ref}` in this store: those are {active}. \
                 Restore the file from a backup, or copy it from the data directory of another node. If it is lost: \
                 `countersign keys rotate application --lost`, which leaves a record of that",
                key.key_id
            ))),
        }
    }

    async fn settle_server_key(&self, key: ActorKey) -> Result<(), OpenError> {
        let actor_ref = self.config.server_actor_ref.clone();
        let keys = self.log_keys().await?;
        let known = self.registry().keys().get(&actor_ref, &key.key_id).map(registry::KnownKey::is_active);
        match known {
            Some(true) => return Ok(()),
            Some(false) => {
                let detail = format!("the key {} in log.key has ended by a record of the registry", key.key_id);
                return Err(OpenError::Key(detail));
            }
            None => {}
        }
        let retires = keys
            .as_ref()
            .and_then(LogKeys::before_the_last)
            .map(|(before, handed_over)| (before.public_key_id(), if handed_over { ROTATED } else { LOST }))
            .filter(|(id, _)| self.registry().keys().get(&actor_ref, id).is_some_and(registry::KnownKey::is_active));
        let command = match retires {
            Some((retires, reason)) => {
                let reason = Some(reason.to_owned());
                registry::Command::RotateKey(RotateKey { actor_ref, key, retires, reason })
            }
            None => registry::Command::RegisterKey(RegisterKey { actor_ref, key }),
        };
        self.own_registry(command).await?;
        Ok(())
    }

    /// A new key takes the place of this node's application key: both records are signed with the old one. From here on
    /// this engine signs nothing more. Returns the id of the key that ended.
    pub async fn rotate_application_key(&self, next: &PublicKey) -> Result<String, Refusal> {
        let Some(old) = self.config.application_key.as_ref().map(|signer| signer.public_key().key_id()) else {
            return Err(Refusal::new(Code::InvalidRequest, "this engine has no application key"));
        };
        self.own_registry(registry::Command::RotateKey(RotateKey {
            actor_ref: self.config.application_actor_ref.clone(),
            key: actor_key(next),
            retires: old.clone(),
            reason: Some(ROTATED.to_owned()),
        }))
        .await?;
        Ok(old)
    }

    /// Ends a key of the application actor whose private part is gone; this node's own key signs the record.
    pub async fn end_lost_application_key(&self, key_id: &str) -> Result<(), Refusal> {
        self.own_registry(registry::Command::RevokeKey(RevokeKey {
            actor_ref: self.config.application_actor_ref.clone(),
            key_id: key_id.to_owned(),
            reason: Some(LOST.to_owned()),
        }))
        .await?;
        Ok(())
    }

    /// The active keys of the application actor, by id.
    pub fn application_keys(&self) -> Vec<String> {
        let registry = self.registry();
        let keys = registry.keys().of(&self.config.application_actor_ref).iter();
        keys.filter(|known| known.is_active()).map(|known| known.key.key_id.clone()).collect()
    }

    async fn own_registry(&self, command: registry::Command) -> Result<Outcome, Refusal> {
        self.execute(self.own_call(Command::Registry(command))).await
    }
}
