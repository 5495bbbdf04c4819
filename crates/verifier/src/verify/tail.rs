//! After the last record: the manifest's counts, the end of what was exported, and the key behind the checkpoint.

use super::{Export, Instance, Run};
use crate::bytes::{Digest, Id};
use crate::chain::ChainHead;
use crate::finding::{Code, Place};
use crate::manifest::Scope;
use crate::note::VerifierKey;
use sha2::{Digest as _, Sha256};

/// The digest over the heads of all processes, line by line as they end.
#[derive(Default)]
pub struct Heads(Sha256);

impl Heads {
    pub fn add(&mut self, id: Id, chain: &ChainHead) {
        self.0.update(format!("{id} {} {}\n", chain.sequence, chain.hash));
    }

    fn digest(&self) -> String {
        Digest(self.0.clone().finalize().into()).to_string()
    }
}

impl Run {
    pub(super) fn check_counts(&mut self) {
        let Some(manifest) = &self.manifest else { return };
        for (name, stated, found) in [
            ("records", manifest.records, self.lines),
            ("instances", manifest.instances, self.instances),
            ("registry_sequence", manifest.registry_sequence, self.registry.sequence),
        ] {
            if stated != found {
                let more = if name == "records" && found > stated { " or more" } else { "" };
                let detail = format!("the manifest says `{name}` is {stated}, the bundle holds {found}{more}");
                self.findings.find(Code::BundleForm, Place::bundle(), detail);
            }
        }
    }

    pub(super) fn check_tail(&mut self) {
        match self.manifest.as_ref().map(|manifest| manifest.scope.clone()) {
            None => {}
            Some(Scope::Instance(id)) => self.check_instance_tail(id),
            Some(Scope::Window { after_us, before_us }) => self.check_window_tail(after_us, before_us),
        }
    }

    /// Whether a process that ended belongs here; its export is kept for the tail.
    pub(super) fn check_scope(&mut self, instance: Instance) {
        let place = Place::instance(instance.id);
        match self.manifest.as_ref().map(|manifest| &manifest.scope) {
            Some(Scope::Instance(id)) if *id == instance.id => self.instance_export = instance.export,
            Some(Scope::Instance(_)) => {
                self.findings.find(Code::BundleForm, place, "the bundle is of another instance than this one");
            }
            Some(Scope::Window { .. }) if !instance.in_window => {
                self.findings.find(Code::TailMissing, place, "no record of it lies in the window");
            }
            _ => {}
        }
    }

    fn check_instance_tail(&mut self, id: Id) {
        let Some(Export { sequence, payload }) = &self.instance_export else {
            let detail = "its chain does not end with the `evidence_exported` of this bundle";
            return self.findings.find(Code::TailMissing, Place::instance(id), detail);
        };
        let expected = sequence - 1;
        let through = payload.int("through_sequence").and_then(|through| u64::try_from(through).ok());
        if through != Some(expected) {
            let stated = through.map_or("nothing".to_owned(), |through| through.to_string());
            let detail = format!("`through_sequence` is {stated}, expected {expected}");
            self.findings.find(Code::TailMissing, Place::instance(id), detail);
        }
    }

    fn check_window_tail(&mut self, after_us: Option<i64>, before_us: Option<i64>) {
        let mut problems = Vec::new();
        if let Some(export) = &self.registry_export {
            let payload = &export.payload;
            if payload.int("after_us") != after_us || payload.int("before_us") != before_us {
                problems.push("the window that was exported is not that of the manifest".to_owned());
            }
            if payload.int("instances") != i64::try_from(self.instances).ok() {
                problems.push(format!("{} instances are here, another number was exported", self.instances));
            }
            let digest = self.heads.digest();
            if payload.text("heads_digest") != Some(&digest) {
                problems
                    .push(format!("the heads of the instances here have the digest {digest}, others were exported"));
            }
        } else {
            problems.push("the registry's chain does not end with the `evidence_exported` of this bundle".to_owned());
        }
        for detail in problems {
            self.findings.find(Code::TailMissing, Place::bundle(), detail);
        }
    }

    /// The key that signed the checkpoint is a key of the server actor, in force.
    pub(super) fn check_checkpoint_key(&mut self) {
        let Some(checkpoint) = &self.checkpoint else { return };
        let signed: Vec<&VerifierKey> = self.log_keys.iter().filter(|key| checkpoint.signed_by(key)).collect();
        let at = self.registry.sequence;
        let server = self.registry.server_actor(at);
        let keys = server.and_then(|server| self.registry.actor(server, at)).map(|actor| actor.keys.as_slice());
        let keys = keys.unwrap_or_default();
        let holds = |key: &&VerifierKey| keys.iter().any(|k| k.public_key == key.public_key && k.span.holds(at));
        if signed.is_empty() || signed.iter().any(holds) {
            return;
        }
        let known = signed.iter().any(|key| keys.iter().any(|k| k.public_key == key.public_key));
        let detail = match (server, known) {
            (None, _) => "no configuration in the registry names the server actor".to_owned(),
            (Some(server), true) => format!("the key that signed the checkpoint was revoked for `{server}`"),
            (Some(server), false) => {
                format!("the key that signed the checkpoint is not a key of `{server}` in the registry")
            }
        };
        self.findings.find(Code::CheckpointKeyUnknown, Place::bundle(), detail);
    }
}
