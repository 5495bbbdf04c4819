//! Substitutes that approvers name ahead: for a period and a scope, by a signed command of their own. What a delegation
//! lets its delegate decide is the process's to say ([`crate::process`]).

use super::{Context, EventBody, Registry, require_known_actor};
use crate::Time;
use crate::id::DelegationId;
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use std::collections::HashMap;

/// Delegations of one approver that have not ended: nobody needs more, and each is a record of the registry.
pub const MAX_OPEN: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    pub delegation_id: DelegationId,
    /// The approver.
    pub delegator_ref: String,
    /// The substitute.
    pub delegate_ref: String,
    /// That of the gates, exactly.
    pub scope: String,
    /// The period: `from` belongs to it, `until` does not.
    pub from: Time,
    pub until: Time,
    pub reason: Option<String>,
}

/// A delegation, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDelegation {
    pub delegation: Delegation,
    pub made_at: Time,
    /// When, and by which registry record, it was revoked.
    pub revoked: Option<(Time, u64)>,
}

impl KnownDelegation {
    pub fn is_in_force(&self, now: Time) -> bool {
        self.is_open(now) && self.delegation.from <= now
    }

    /// Neither revoked nor past.
    pub fn is_open(&self, now: Time) -> bool {
        self.revoked.is_none() && now < self.delegation.until
    }
}

#[derive(Clone, Debug, Default)]
pub struct Delegations {
    by_id: HashMap<DelegationId, KnownDelegation>,
    of_delegator: HashMap<String, Vec<DelegationId>>,
    to_delegate: HashMap<String, Vec<DelegationId>>,
}

impl Delegations {
    pub fn get(&self, id: DelegationId) -> Option<&KnownDelegation> {
        self.by_id.get(&id)
    }

    /// All that this approver ever made, in that order.
    pub fn of_delegator(&self, actor_ref: &str) -> impl Iterator<Item = &KnownDelegation> {
        self.of_delegator.get(actor_ref).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    /// All that ever named this substitute, in the order in which they were made.
    pub fn to_delegate(&self, actor_ref: &str) -> impl Iterator<Item = &KnownDelegation> {
        self.to_delegate.get(actor_ref).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    /// What lets `delegate_ref` decide for `delegator_ref` in this scope now; the oldest, where there are several.
    pub fn in_force(&self, delegator_ref: &str, delegate_ref: &str, scope: &str, now: Time) -> Option<&Delegation> {
        let fits = |known: &&KnownDelegation| {
            let delegation = &known.delegation;
            delegation.delegator_ref == delegator_ref && delegation.scope == scope && known.is_in_force(now)
        };
        self.to_delegate(delegate_ref).find(fits).map(|known| &known.delegation)
    }

    pub(super) fn add(&mut self, delegation: &Delegation, made_at: Time) {
        let id = delegation.delegation_id;
        self.of_delegator.entry(delegation.delegator_ref.clone()).or_default().push(id);
        self.to_delegate.entry(delegation.delegate_ref.clone()).or_default().push(id);
        self.by_id.insert(id, KnownDelegation { delegation: delegation.clone(), made_at, revoked: None });
    }

    pub(super) fn revoke(&mut self, id: DelegationId, at: Time, sequence: u64) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.revoked.get_or_insert((at, sequence));
        }
    }
}

/// An approver names a substitute.
#[derive(Clone, Debug)]
pub struct MakeDelegation {
    pub delegator_ref: String,
    pub delegate_ref: String,
    pub scope: String,
    pub from: Time,
    pub until: Time,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub struct RevokeDelegation {
    pub delegator_ref: String,
    /// `None` where the text given is no id of ours.
    pub delegation_id: Option<DelegationId>,
}

pub(super) fn make(registry: &Registry, command: &MakeDelegation, ctx: &mut Context<'_>) -> Result<EventBody, Refusal> {
    let MakeDelegation { delegator_ref, delegate_ref, scope, from, until, reason } = command;
    for (name, text) in [("actor_ref", delegator_ref), ("delegate_ref", delegate_ref), ("scope", scope)] {
        require_ref(name, text)?;
    }
    require_optional_text("reason", reason.as_deref())?;
    require_delegator(delegator_ref, ctx)?;
    if !ctx.signed {
        let detail = "an approver names a substitute with a signature (Countersign-Statement and Countersign-Signature, \
                      or a passkey), not with a bearer token alone";
        return Err(Refusal::new(Code::InvalidCredential, detail));
    }
    require_period(*from, *until, ctx.now)?;
    require_delegate(registry, delegator_ref, delegate_ref, ctx)?;
    let now = ctx.now;
    let mine = || registry.delegations().of_delegator(delegator_ref).filter(|known| known.is_open(now));
    if mine().count() >= MAX_OPEN {
        let detail = format!("`{delegator_ref}` has {MAX_OPEN} delegations that have not ended: revoke one first");
        return Err(Refusal::new(Code::Conflict, detail));
    }
    Ok(EventBody::DelegationMade(Delegation {
        delegation_id: ctx.ids.make(),
        delegator_ref: delegator_ref.clone(),
        delegate_ref: delegate_ref.clone(),
        scope: scope.clone(),
        from: *from,
        until: *until,
        reason: reason.clone(),
    }))
}

fn require_delegator(delegator_ref: &str, ctx: &Context<'_>) -> Result<(), Refusal> {
    if ctx.actor_ref == delegator_ref {
        return Ok(());
    }
    let detail = format!("only `{delegator_ref}` names and dismisses their substitutes; you are `{}`", ctx.actor_ref);
    Err(Refusal::new(Code::Unauthorized, detail).at("actor_ref"))
}

fn require_period(from: Time, until: Time, now: Time) -> Result<(), Refusal> {
    let detail = if until <= from {
        "the period ends before it begins: `until` comes after `from`"
    } else if until <= now {
        "the period is over already: `until` lies in the future"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::InvalidRequest, detail).at("until"))
}

fn require_delegate(
    registry: &Registry,
    delegator_ref: &str,
    delegate_ref: &str,
    ctx: &Context<'_>,
) -> Result<(), Refusal> {
    require_known_actor(registry, delegate_ref).map_err(|refusal| refusal.at("delegate_ref"))?;
    let detail = if delegate_ref == delegator_ref {
        "nobody is their own substitute: name another actor".to_owned()
    } else if ctx.is_engine_actor(registry, delegate_ref) {
        format!("`{delegate_ref}` is an actor of the engine itself, which decides nothing: name another actor")
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::InvalidRequest, detail).at("delegate_ref"))
}

pub(super) fn revoke(registry: &Registry, command: &RevokeDelegation, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_ref("actor_ref", &command.delegator_ref)?;
    require_delegator(&command.delegator_ref, ctx)?;
    let known = command
        .delegation_id
        .and_then(|id| registry.delegations().get(id))
        .filter(|known| known.delegation.delegator_ref == command.delegator_ref)
        .ok_or_else(|| Refusal::new(Code::NotKnown, "this actor made no such delegation").at("delegation_id"))?;
    if !known.is_open(ctx.now) {
        let detail = "this delegation has ended already";
        return Err(Refusal::new(Code::NotActive, detail).at("delegation_id"));
    }
    let Delegation { delegation_id, delegator_ref, delegate_ref, scope, .. } = known.delegation.clone();
    Ok(EventBody::DelegationRevoked { delegation_id, delegator_ref, delegate_ref, scope })
}
