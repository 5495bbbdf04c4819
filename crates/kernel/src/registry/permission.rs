//! Grants: exact scopes, deny by absence, never deleted, so that "who could do this at that moment"
//! has an answer for ever.

use crate::Time;
use crate::id::GrantId;
use std::collections::HashMap;

/// The scopes that the engine itself asks for. Grants of other scopes are legal and mean what the
/// deployment says they mean.
pub mod scopes {
    pub const WORKFLOWS_START: &str = "workflows:start";
    pub const WORKFLOWS_OPEN_GATE: &str = "workflows:open-gate";
    pub const WORKFLOWS_FIRE: &str = "workflows:fire";
    pub const WORKFLOWS_READ: &str = "workflows:read";
    pub const ACTORS_MANAGE: &str = "actors:manage";
    pub const PERMISSIONS_MANAGE: &str = "permissions:manage";
    pub const DEFINITIONS_PUBLISH: &str = "definitions:publish";
    pub const DEFINITIONS_SHELL: &str = "definitions:shell";
    pub const RUNS_START: &str = "runs:start";
    pub const RUNS_CONTROL: &str = "runs:control";
    pub const RUNS_READ: &str = "runs:read";
    pub const TASKS_WORK: &str = "tasks:work";
    pub const GOVERNANCE_READ: &str = "governance:read";
    pub const GOVERNANCE_ACT: &str = "governance:act";
    pub const PROPOSALS_WRITE: &str = "proposals:write";
    pub const AUDIT_READ: &str = "audit:read";
    pub const AUDIT_SEAL: &str = "audit:seal";
    pub const AUDIT_PURGE: &str = "audit:purge";
    pub const AUDIT_HOLD: &str = "audit:hold";

    /// What `admin` is given on an empty store.
    pub const ALL: &[&str] = &[
        WORKFLOWS_START,
        WORKFLOWS_OPEN_GATE,
        WORKFLOWS_FIRE,
        WORKFLOWS_READ,
        ACTORS_MANAGE,
        PERMISSIONS_MANAGE,
        DEFINITIONS_PUBLISH,
        DEFINITIONS_SHELL,
        AUDIT_READ,
        AUDIT_SEAL,
        AUDIT_PURGE,
        AUDIT_HOLD,
        RUNS_START,
        RUNS_CONTROL,
        RUNS_READ,
        TASKS_WORK,
        GOVERNANCE_READ,
        GOVERNANCE_ACT,
        PROPOSALS_WRITE,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub grant_id: GrantId,
    pub subject_ref: String,
    pub action_scope: String,
    pub granted_at: Time,
    /// The registry record that made it.
    pub granted_sequence: u64,
    /// When, and by which registry record, it ended.
    pub revoked: Option<(Time, u64)>,
}

impl Grant {
    pub fn is_active(&self) -> bool {
        self.revoked.is_none()
    }

    /// Granted at or before `time` and not revoked by then.
    pub fn is_active_at(&self, time: Time) -> bool {
        self.granted_at <= time && self.revoked.is_none_or(|(revoked_at, _)| time < revoked_at)
    }

    /// In force for what was decided under this registry sequence.
    pub fn is_active_under(&self, registry_sequence: u64) -> bool {
        self.granted_sequence <= registry_sequence
            && self.revoked.is_none_or(|(_, revoked_by)| registry_sequence < revoked_by)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Grants {
    by_id: HashMap<GrantId, Grant>,
    by_subject: HashMap<String, Vec<GrantId>>,
    /// subject → scope → how many active grants: revoking one of two leaves the other.
    active: HashMap<String, HashMap<String, u32>>,
}

impl Grants {
    pub fn get(&self, grant_id: GrantId) -> Option<&Grant> {
        self.by_id.get(&grant_id)
    }

    /// All grants ever made, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.by_id.values()
    }

    pub fn permitted(&self, subject_ref: &str, scope: &str) -> bool {
        self.active.get(subject_ref).and_then(|scopes| scopes.get(scope)).is_some_and(|count| *count > 0)
    }

    /// Whether the scope was held at that moment; the status today plays no part.
    pub fn permitted_at(&self, subject_ref: &str, scope: &str, time: Time) -> bool {
        self.of_subject(subject_ref).any(|grant| grant.action_scope == scope && grant.is_active_at(time))
    }

    pub fn permitted_under(&self, subject_ref: &str, scope: &str, registry_sequence: u64) -> bool {
        self.of_subject(subject_ref)
            .any(|grant| grant.action_scope == scope && grant.is_active_under(registry_sequence))
    }

    /// All grants ever made to a subject, in the order they were made.
    pub fn of_subject(&self, subject_ref: &str) -> impl Iterator<Item = &Grant> {
        self.by_subject.get(subject_ref).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    /// The active scopes of a subject that begin with `prefix`.
    pub fn active_scopes<'g>(&'g self, subject_ref: &str, prefix: &'g str) -> impl Iterator<Item = &'g str> {
        self.active
            .get(subject_ref)
            .into_iter()
            .flatten()
            .filter(move |(scope, count)| **count > 0 && scope.starts_with(prefix))
            .map(|(scope, _)| scope.as_str())
    }

    pub(super) fn add(&mut self, grant: Grant) {
        *self.active.entry(grant.subject_ref.clone()).or_default().entry(grant.action_scope.clone()).or_default() += 1;
        self.by_subject.entry(grant.subject_ref.clone()).or_default().push(grant.grant_id);
        self.by_id.insert(grant.grant_id, grant);
    }

    pub(super) fn revoke(&mut self, grant_id: GrantId, at: Time, sequence: u64) {
        let Some(grant) = self.by_id.get_mut(&grant_id).filter(|grant| grant.is_active()) else { return };
        grant.revoked = Some((at, sequence));
        if let Some(count) =
            self.active.get_mut(&grant.subject_ref).and_then(|scopes| scopes.get_mut(&grant.action_scope))
        {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::IdSource;

    fn made(at: i64, sequence: u64) -> Grant {
        Grant {
            grant_id: IdSource::new(Time(at), sequence).make(),
            subject_ref: "qa".to_owned(),
            action_scope: scopes::WORKFLOWS_FIRE.to_owned(),
            granted_at: Time(at),
            granted_sequence: sequence,
            revoked: None,
        }
    }

    /// Granted at 10 (record 1) and at 30 (record 3), the first revoked at 20 (record 2).
    #[test]
    fn what_was_permitted_at_a_moment_does_not_depend_on_today() {
        let mut grants = Grants::default();
        let (first, second) = (made(10, 1), made(30, 3));
        let first_id = first.grant_id;
        grants.add(first);
        grants.revoke(first_id, Time(20), 2);
        grants.add(second);
        for (time, held) in [(9, false), (10, true), (19, true), (20, false), (29, false), (30, true), (99, true)] {
            assert_eq!(grants.permitted_at("qa", scopes::WORKFLOWS_FIRE, Time(time)), held, "at {time}");
        }
        for (sequence, held) in [(0, false), (1, true), (2, false), (3, true), (9, true)] {
            assert_eq!(grants.permitted_under("qa", scopes::WORKFLOWS_FIRE, sequence), held, "under {sequence}");
        }
        assert!(!grants.permitted_at("qa", scopes::WORKFLOWS_START, Time(15)));
        assert!(!grants.permitted_at("other", scopes::WORKFLOWS_FIRE, Time(15)));
    }

    #[test]
    fn of_two_grants_one_may_go() {
        let mut grants = Grants::default();
        let (first, second) = (made(10, 1), made(11, 2));
        let (first_id, second_id) = (first.grant_id, second.grant_id);
        grants.add(first);
        grants.add(second);
        grants.revoke(first_id, Time(20), 3);
        assert!(grants.permitted("qa", scopes::WORKFLOWS_FIRE));
        grants.revoke(second_id, Time(21), 4);
        assert!(!grants.permitted("qa", scopes::WORKFLOWS_FIRE));
    }
}
