//! What a substitute sees: the approvals that wait for approvers who named them, where the gate_spec allows it. Whether a
//! decision is accepted the kernel says alone; this reads by the same rules.

use crate::port::{Page, Past, ProcessQuery, Waiting, due_key};
use crate::{Engine, store_failure};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::Refusal;
use countersign_ledger::document::parse_gate_spec;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How many entries of an approver are looked at together.
const PAGE: usize = 200;

/// Where a list goes on: behind when it is due, and which assignment.
type Behind = Option<(i64, Uuid)>;

fn place(waiting: &Waiting) -> (i64, Uuid) {
    (due_key(waiting.due_at), waiting.assignment.assignment_id.0)
}

impl Engine {
    /// What waits for this actor, soonest due first: their own, and what they may decide as a substitute, which is assigned
    /// to somebody else. Everybody may see it.
    pub async fn inbox(&self, actor_ref: &str, after: Behind, limit: usize) -> Result<Vec<Waiting>, Refusal> {
        let failed = |error| store_failure(&error);
        let mut waiting = self.reader.inbox(actor_ref, actor_ref, after, limit).await.map_err(failed)?;
        for (approver, scopes) in self.stands_in_for(actor_ref) {
            waiting.extend(self.open_to_substitute(actor_ref, &approver, &scopes, after, limit).await?);
        }
        waiting.sort_by_key(place);
        waiting.truncate(limit);
        Ok(waiting)
    }

    pub async fn inbox_count(&self, actor_ref: &str) -> Result<u64, Refusal> {
        let mut count = self.reader.inbox_count(actor_ref).await.map_err(|error| store_failure(&error))?;
        for (approver, scopes) in self.stands_in_for(actor_ref) {
            let found = self.open_to_substitute(actor_ref, &approver, &scopes, None, usize::MAX).await?;
            count += found.len() as u64;
        }
        Ok(count)
    }

    /// Whether this actor may decide a step of this instance as a substitute.
    pub(crate) async fn is_substitute_at(&self, actor_ref: &str, instance_id: InstanceId) -> Result<bool, Refusal> {
        for (approver, scopes) in self.stands_in_for(actor_ref) {
            let found = self.open_to_substitute(actor_ref, &approver, &scopes, None, usize::MAX).await?;
            if found.iter().any(|waiting| waiting.step.instance_id == instance_id) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The approvers who named this actor, each with the scopes, now.
    fn stands_in_for(&self, actor_ref: &str) -> BTreeMap<String, BTreeSet<String>> {
        let (registry, now) = (self.registry(), self.now());
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for known in registry.delegations().to_delegate(actor_ref).filter(|known| known.is_in_force(now)) {
            let delegation = &known.delegation;
            found.entry(delegation.delegator_ref.clone()).or_default().insert(delegation.scope.clone());
        }
        found
    }

    /// What of this approver's in-tray the substitute may decide.
    async fn open_to_substitute(
        &self,
        actor_ref: &str,
        approver: &str,
        scopes: &BTreeSet<String>,
        mut after: Behind,
        limit: usize,
    ) -> Result<Vec<Waiting>, Refusal> {
        let mut found = vec![];
        loop {
            let page = self.reader.inbox(approver, actor_ref, after, PAGE).await.map_err(|e| store_failure(&e))?;
            let is_last = page.len() < PAGE;
            after = page.last().map(place).or(after);
            for waiting in page {
                let of_scope = scopes.contains(&waiting.step.scope);
                let is_apart = !waiting.is_involved && waiting.step.submitter_ref != actor_ref;
                if of_scope && is_apart && self.is_delegable(&waiting).await? {
                    found.push(waiting);
                }
            }
            if is_last || found.len() >= limit {
                return Ok(found);
            }
        }
    }

    async fn is_delegable(&self, waiting: &Waiting) -> Result<bool, Refusal> {
        if waiting.is_run {
            let Some((name, version)) = &waiting.definition else { return Ok(false) };
            let registry = self.registry();
            let gates = registry.definition(name, Some(*version)).map(|definition| definition.gate_spec.clone());
            return Ok(gates.is_some_and(|gates| gates.0.get(&waiting.guard).is_some_and(|gate| gate.is_delegable())));
        }
        let instance_id = Some(waiting.step.instance_id);
        let query = ProcessQuery { instance_id, past: Past::Nothing, ..ProcessQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let Some(view) = self.own_processes(&query, &page).await?.into_iter().next() else { return Ok(false) };
        let spec = parse_gate_spec(&view.gate_spec).unwrap_or_default();
        Ok(spec.0.get(&waiting.guard).is_some_and(|entry| entry.is_delegable()))
    }
}
