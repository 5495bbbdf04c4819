//! What may be done to the registry, and by whom.

use super::{
    Actor, ActorKey, ActorKind, ClassMarked, Configuration, Credential, Definition, Event, EventBody, Machine,
    MakeDelegation, MarkDefinition, Merged, Passkey, RecordExport, Registry, RevokeDelegation, Workflow, delegations,
    holds, names, scopes, standing, workers,
};
use crate::declaration::Declaration;
use crate::id::{GrantId, IdSource};
use crate::plan::{Plan, StepSpec, Work};
use crate::published_gates::{PublishedGate, PublishedGates};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::retention::{PlaceHold, ReleaseHold};
use crate::{Digest, Time};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Command {
    Bootstrap(Bootstrap),
    RegisterActor(RegisterActor),
    RegisterKey(RegisterKey),
    RevokeKey(RevokeKey),
    RotateKey(RotateKey),
    IssueCredential(IssueCredential),
    RevokeCredential(RevokeCredential),
    GrantScope(GrantScope),
    RevokeGrant(RevokeGrant),
    MakeDelegation(MakeDelegation),
    RevokeDelegation(RevokeDelegation),
    PublishDefinition(PublishDefinition),
    MarkDefinition(MarkDefinition),
    MarkWorkerClass(ClassMarked),
    RecordConfiguration(Configuration),
    PlaceHold(PlaceHold),
    ReleaseHold(ReleaseHold),
    RecordExport(RecordExport),
    RecordRefusedAttempt(RecordRefusedAttempt),
}

/// First start on an empty store: the actors of the software itself, and an administrator with every scope.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub admin_ref: String,
    pub admin_token_hash: Digest,
    pub application_key: Option<ActorKey>,
    /// The actor that signs checkpoints, with its key.
    pub server_actor_ref: String,
    pub server_key: Option<ActorKey>,
}

#[derive(Clone, Debug)]
pub struct RegisterActor {
    pub actor_ref: String,
    pub kind: ActorKind,
    pub display_name: Option<String>,
    pub key: Option<ActorKey>,
    pub token_hash: Digest,
}

#[derive(Clone, Debug)]
pub struct RegisterKey {
    pub actor_ref: String,
    pub key: ActorKey,
}

#[derive(Clone, Debug)]
pub struct RevokeKey {
    pub actor_ref: String,
    pub key_id: String,
    pub reason: Option<String>,
}

/// The engine's own: a new key takes the place of another one, in one command.
#[derive(Clone, Debug)]
pub struct RotateKey {
    pub actor_ref: String,
    pub key: ActorKey,
    /// The key that ends.
    pub retires: String,
    pub reason: Option<String>,
}

/// A further token, for an actor who lost the first.
#[derive(Clone, Debug)]
pub struct IssueCredential {
    pub actor_ref: String,
    pub token_hash: Digest,
}

#[derive(Clone, Debug)]
pub struct RevokeCredential {
    pub actor_ref: String,
    pub credential_id: String,
}

#[derive(Clone, Debug)]
pub struct GrantScope {
    pub subject_ref: String,
    pub action_scope: String,
}

#[derive(Clone, Debug)]
pub struct RevokeGrant {
    /// `None` where the text given is no id of ours.
    pub grant_id: Option<GrantId>,
}

/// A checked document: its declaration has no faults, its retention policy exists.
#[derive(Clone, Debug)]
pub struct PublishDefinition {
    pub name: String,
    pub digest: Digest,
    pub source: Arc<str>,
    pub declaration: Arc<Declaration>,
    pub gate_spec: Arc<PublishedGates>,
    pub workflow: Option<Workflow>,
    pub machine: Option<Machine>,
    pub retention: Option<String>,
    /// Who approves its next version.
    pub publish: Option<PublishedGate>,
    /// The approved proposal that this merges.
    pub merged: Option<Merged>,
}

#[derive(Clone, Debug)]
pub struct RecordRefusedAttempt {
    pub attempted: String,
    pub code: Code,
    pub detail: String,
}

/// What a decision may look at beside the registry.
pub struct Context<'a> {
    pub actor_ref: &'a str,
    /// The call bears a signature of one of the actor's keys.
    pub signed: bool,
    pub application_actor_ref: &'a str,
    pub server_actor_ref: &'a str,
    pub now: Time,
    pub ids: &'a mut IdSource,
}

impl Context<'_> {
    /// Whether this is an actor of the software itself.
    pub(super) fn is_engine_actor(&self, registry: &Registry, actor_ref: &str) -> bool {
        actor_ref == self.application_actor_ref
            || actor_ref == self.server_actor_ref
            || registry.is_engine_actor(actor_ref)
    }
}

/// An empty list of events is a success that changes nothing (the same definition again).
pub fn decide(registry: &Registry, command: &Command, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (actor_ref, now) = (ctx.actor_ref, ctx.now);
    require_ref("actor_ref", actor_ref)?;
    let bodies = match command {
        Command::Bootstrap(command) => bootstrap(registry, command, ctx.application_actor_ref, now, ctx.ids)?,
        Command::RegisterActor(command) => vec![register_actor(registry, command, ctx)?],
        Command::RegisterKey(command) => vec![register_key(registry, command, ctx)?],
        Command::RevokeKey(command) => vec![revoke_key(registry, command, ctx)?],
        Command::RotateKey(command) => rotate_key(registry, command, ctx)?,
        Command::IssueCredential(command) => vec![issue_credential(registry, command, ctx)?],
        Command::RevokeCredential(command) => vec![revoke_credential(registry, command, ctx)?],
        Command::GrantScope(command) => vec![grant(registry, command, ctx)?],
        Command::RevokeGrant(command) => vec![revoke(registry, command, ctx)?],
        Command::MakeDelegation(command) => vec![delegations::make(registry, command, ctx)?],
        Command::RevokeDelegation(command) => vec![delegations::revoke(registry, command, ctx)?],
        Command::PublishDefinition(command) => publish(registry, command, actor_ref, now)?,
        Command::MarkDefinition(command) => standing::decide(registry, command, actor_ref)?,
        Command::MarkWorkerClass(command) => workers::decide(registry, command, actor_ref)?,
        Command::RecordConfiguration(command) => record_configuration(registry, command),
        Command::PlaceHold(command) => vec![holds::place(registry, command, actor_ref, ctx.ids)?],
        Command::ReleaseHold(command) => vec![holds::release(registry, command, actor_ref)?],
        Command::RecordExport(command) => vec![holds::export(registry, command, actor_ref)?],
        Command::RecordRefusedAttempt(command) => vec![EventBody::AttemptRefused {
            attempted: command.attempted.clone(),
            code: command.code.as_str().to_owned(),
            detail: command.detail.clone(),
        }],
    };
    Ok(bodies.into_iter().map(|body| Event { actor_ref: actor_ref.to_owned(), at: now, body }).collect())
}

pub(crate) fn require_permission(registry: &Registry, actor_ref: &str, scope: &str) -> Result<(), Refusal> {
    if registry.permitted(actor_ref, scope) { Ok(()) } else { Err(denied(actor_ref, scope)) }
}

pub(crate) fn denied(actor_ref: &str, scope: &str) -> Refusal {
    Refusal::new(Code::PermissionDenied, format!("`{actor_ref}` holds no active grant of `{scope}`"))
}

fn bootstrap(
    registry: &Registry,
    command: &Bootstrap,
    application_actor_ref: &str,
    now: Time,
    ids: &mut IdSource,
) -> Result<Vec<EventBody>, Refusal> {
    if registry.sequence() != 0 {
        return Err(Refusal::new(Code::Conflict, "the registry has been set up already"));
    }
    let actor = |actor_ref: &str, kind, display_name: &str, key: &Option<ActorKey>| Actor {
        actor_ref: actor_ref.to_owned(),
        kind,
        display_name: Some(display_name.to_owned()),
        key: key.clone(),
        registered_at: now,
    };
    let service = |actor_ref: &str, display_name: &str, key: &Option<ActorKey>| EventBody::ActorRegistered {
        actor: actor(actor_ref, ActorKind::Service, display_name, key),
        credential: None,
    };
    let mut bodies = vec![
        service(application_actor_ref, "Countersign itself", &command.application_key),
        service(&command.server_actor_ref, "The log of this server", &command.server_key),
        EventBody::ActorRegistered {
            actor: actor(&command.admin_ref, ActorKind::Human, "Administrator", &None),
            credential: Some(Credential { token_hash: command.admin_token_hash, actor_ref: command.admin_ref.clone() }),
        },
    ];
    bodies.extend(scopes::ALL.iter().map(|scope| EventBody::GrantMade {
        grant_id: ids.make(),
        subject_ref: command.admin_ref.clone(),
        action_scope: (*scope).to_owned(),
    }));
    Ok(bodies)
}

fn register_actor(registry: &Registry, command: &RegisterActor, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_ref("actor_ref", &command.actor_ref)?;
    require_optional_text("display_name", command.display_name.as_deref())?;
    require_permission(registry, ctx.actor_ref, scopes::ACTORS_MANAGE)?;
    if registry.actor(&command.actor_ref).is_some() {
        let detail = format!("an actor `{}` is registered already; names are never reused", command.actor_ref);
        return Err(Refusal::new(Code::Conflict, detail).at("actor_ref"));
    }
    names::require_plain_name(registry, &command.actor_ref)?;
    require_out_of_engine(registry, ctx, &command.actor_ref)?;
    // A name may hold scopes before it is registered.
    require_scopes_of(registry, ctx.actor_ref, &command.actor_ref)?;
    if let Some(key) = &command.key {
        require_new_key(registry, key)?;
    }
    Ok(EventBody::ActorRegistered {
        actor: Actor {
            actor_ref: command.actor_ref.clone(),
            kind: command.kind,
            display_name: command.display_name.clone(),
            key: command.key.clone(),
            registered_at: ctx.now,
        },
        credential: Some(Credential { token_hash: command.token_hash, actor_ref: command.actor_ref.clone() }),
    })
}

/// A key names one actor for ever, or a signature would not say whose it is.
fn require_new_key(registry: &Registry, key: &ActorKey) -> Result<(), Refusal> {
    let same = |passkey: &Passkey| registry.keys().passkey(&passkey.credential_id).map(|(owner, _)| owner);
    let owner = registry.keys().owner(&key.key_id).or_else(|| key.passkey.as_ref().and_then(same));
    let Some(owner) = owner else { return Ok(()) };
    let detail = format!("the key {} is registered already, for `{owner}`; make a new one", key.key_id);
    Err(Refusal::new(Code::Conflict, detail).at("public_key"))
}

/// The engine's own actors are out of reach of every scope: who could add a key or token to them, or take one away,
/// could act as the engine or stop it.
fn require_out_of_engine(registry: &Registry, ctx: &Context<'_>, actor_ref: &str) -> Result<(), Refusal> {
    if !ctx.is_engine_actor(registry, actor_ref) {
        return Ok(());
    }
    let detail = format!(
        "`{actor_ref}` is an actor of the engine itself: no scope reaches its keys, tokens and grants. \
         `countersign keys rotate` renews its keys, on the server's machine"
    );
    Err(Refusal::new(Code::PermissionDenied, detail).at("actor_ref"))
}

/// Who adds a key or token to an actor can act as that actor, so it takes every scope that the actor holds.
fn require_scopes_of(registry: &Registry, by: &str, actor_ref: &str) -> Result<(), Refusal> {
    if by == actor_ref {
        return Ok(());
    }
    let missing = registry.grants().active_scopes(actor_ref, "").filter(|scope| !registry.covers(by, scope)).min();
    match missing {
        None => Ok(()),
        Some(scope) => {
            let detail = format!(
                "`{by}` holds no active grant of `{scope}`, which `{actor_ref}` holds: who adds a key or token to an \
                 actor must hold every scope of that actor"
            );
            Err(Refusal::new(Code::PermissionDenied, detail).at("actor_ref"))
        }
    }
}

/// Keys of others need `actors:manage`. An actor's own need a signature by an earlier one; a passkey may be the first key
/// of an actor who has none. The engine looks after its own, and nobody else does.
fn require_key_authority(
    registry: &Registry,
    ctx: &Context<'_>,
    owner: &str,
    new: Option<&ActorKey>,
) -> Result<(), Refusal> {
    if ctx.is_engine_actor(registry, ctx.actor_ref) && ctx.is_engine_actor(registry, owner) {
        return Ok(());
    }
    let rotates_own = ctx.signed && ctx.actor_ref == owner;
    let is_first = || !registry.keys().of(owner).iter().any(|known| known.is_active());
    let begins_own = ctx.actor_ref == owner && new.is_some_and(|key| key.passkey.is_some()) && is_first();
    if !rotates_own && !begins_own {
        require_permission(registry, ctx.actor_ref, scopes::ACTORS_MANAGE)?;
    }
    require_out_of_engine(registry, ctx, owner)
}

pub(super) fn require_known_actor(registry: &Registry, actor_ref: &str) -> Result<(), Refusal> {
    match registry.actor(actor_ref) {
        Some(_) => Ok(()),
        None => Err(Refusal::new(Code::NotKnown, format!("there is no actor `{actor_ref}`")).at("actor_ref")),
    }
}

fn register_key(registry: &Registry, command: &RegisterKey, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_ref("actor_ref", &command.actor_ref)?;
    let label = command.key.passkey.as_ref().and_then(|passkey| passkey.label.as_deref());
    require_optional_text("label", label)?;
    require_key_authority(registry, ctx, &command.actor_ref, Some(&command.key))?;
    require_known_actor(registry, &command.actor_ref)?;
    if !ctx.is_engine_actor(registry, &command.actor_ref) {
        require_scopes_of(registry, ctx.actor_ref, &command.actor_ref)?;
    }
    require_new_key(registry, &command.key)?;
    Ok(EventBody::KeyRegistered { actor_ref: command.actor_ref.clone(), key: command.key.clone() })
}

fn revoke_key(registry: &Registry, command: &RevokeKey, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_ref("actor_ref", &command.actor_ref)?;
    require_optional_text("reason", command.reason.as_deref())?;
    require_key_authority(registry, ctx, &command.actor_ref, None)?;
    require_known_actor(registry, &command.actor_ref)?;
    require_active_key(registry, &command.actor_ref, &command.key_id)?;
    Ok(EventBody::KeyRevoked {
        actor_ref: command.actor_ref.clone(),
        key_id: command.key_id.clone(),
        reason: command.reason.clone(),
    })
}

fn require_active_key(registry: &Registry, actor_ref: &str, key_id: &str) -> Result<(), Refusal> {
    match registry.keys().get(actor_ref, key_id) {
        None => Err(Refusal::new(Code::NotKnown, "this actor has no such key").at("key_id")),
        Some(known) if known.is_active() => Ok(()),
        Some(_) => Err(Refusal::new(Code::NotActive, "this key has been revoked already").at("key_id")),
    }
}

/// The new key first: both records are decided, and signed, under the registry before them.
fn rotate_key(registry: &Registry, command: &RotateKey, ctx: &Context<'_>) -> Result<Vec<EventBody>, Refusal> {
    let RotateKey { actor_ref, key, retires, reason } = command;
    if ctx.actor_ref != ctx.application_actor_ref || !ctx.is_engine_actor(registry, actor_ref) {
        let detail = "only the engine rotates keys, and only those of its own actors";
        return Err(Refusal::new(Code::PermissionDenied, detail).at("actor_ref"));
    }
    require_known_actor(registry, actor_ref)?;
    require_new_key(registry, key)?;
    require_active_key(registry, actor_ref, retires)?;
    Ok(vec![
        EventBody::KeyRegistered { actor_ref: actor_ref.clone(), key: key.clone() },
        EventBody::KeyRevoked { actor_ref: actor_ref.clone(), key_id: retires.clone(), reason: reason.clone() },
    ])
}

/// What everything about the tokens of an actor asks first.
fn require_token_authority(registry: &Registry, ctx: &Context<'_>, owner: &str) -> Result<(), Refusal> {
    require_ref("actor_ref", owner)?;
    require_permission(registry, ctx.actor_ref, scopes::ACTORS_MANAGE)?;
    require_out_of_engine(registry, ctx, owner)?;
    require_known_actor(registry, owner)
}

fn issue_credential(registry: &Registry, command: &IssueCredential, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_token_authority(registry, ctx, &command.actor_ref)?;
    require_scopes_of(registry, ctx.actor_ref, &command.actor_ref)?;
    let credential = Credential { token_hash: command.token_hash, actor_ref: command.actor_ref.clone() };
    Ok(EventBody::CredentialIssued(credential))
}

fn revoke_credential(registry: &Registry, command: &RevokeCredential, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_token_authority(registry, ctx, &command.actor_ref)?;
    let token = registry
        .keys()
        .token_by_id(&command.actor_ref, &command.credential_id)
        .ok_or_else(|| Refusal::new(Code::NotKnown, "this actor has no such token").at("credential_id"))?;
    if !token.is_active() {
        return Err(Refusal::new(Code::NotActive, "this token has been revoked already").at("credential_id"));
    }
    let credential = Credential { token_hash: token.token_hash, actor_ref: command.actor_ref.clone() };
    Ok(EventBody::CredentialRevoked(credential))
}

fn grant(registry: &Registry, command: &GrantScope, ctx: &mut Context<'_>) -> Result<EventBody, Refusal> {
    require_ref("subject_ref", &command.subject_ref)?;
    require_ref("action_scope", &command.action_scope)?;
    require_permission(registry, ctx.actor_ref, scopes::PERMISSIONS_MANAGE)?;
    require_out_of_engine(registry, ctx, &command.subject_ref).map_err(|refusal| refusal.at("subject_ref"))?;
    Ok(EventBody::GrantMade {
        grant_id: ctx.ids.make(),
        subject_ref: command.subject_ref.clone(),
        action_scope: command.action_scope.clone(),
    })
}

fn revoke(registry: &Registry, command: &RevokeGrant, ctx: &Context<'_>) -> Result<EventBody, Refusal> {
    require_permission(registry, ctx.actor_ref, scopes::PERMISSIONS_MANAGE)?;
    let grant = command
        .grant_id
        .and_then(|id| registry.grants().get(id))
        .ok_or_else(|| Refusal::new(Code::NotKnown, "there is no such grant").at("grant_id"))?;
    require_out_of_engine(registry, ctx, &grant.subject_ref).map_err(|refusal| refusal.at("grant_id"))?;
    if !grant.is_active() {
        return Err(Refusal::new(Code::NotActive, "this grant has been revoked already").at("grant_id"));
    }
    // Somebody who exists must still be able to grant afterwards.
    let manages = |g: &&super::Grant| g.is_active() && g.action_scope == scopes::PERMISSIONS_MANAGE;
    let can_act = |actor_ref: &str| registry.actor(actor_ref).is_some() && !ctx.is_engine_actor(registry, actor_ref);
    let others = |g: &super::Grant| g.grant_id != grant.grant_id && can_act(&g.subject_ref);
    let last_manager = manages(&grant) && !registry.grants().iter().filter(manages).any(others);
    if last_manager {
        let detail = "this is the last active grant of `permissions:manage`: nobody could grant anything again. Grant it to somebody else first";
        return Err(Refusal::new(Code::Conflict, detail).at("grant_id"));
    }
    Ok(EventBody::GrantRevoked {
        grant_id: grant.grant_id,
        subject_ref: grant.subject_ref.clone(),
        action_scope: grant.action_scope.clone(),
    })
}

fn publish(
    registry: &Registry,
    command: &PublishDefinition,
    actor_ref: &str,
    now: Time,
) -> Result<Vec<EventBody>, Refusal> {
    require_ref("name", &command.name)?;
    require_permission(registry, actor_ref, scopes::DEFINITIONS_PUBLISH)?;
    // What a pin looks at is run as well, and so is what undoes a step.
    let is_shell = |work: &Work| matches!(work, Work::Shell(_));
    let runs_shell = |plan: &Arc<Plan>| {
        let pins = |step: &StepSpec| step.pins.iter().any(|pin| is_shell(&pin.work));
        plan.steps.iter().any(|step| is_shell(&step.work) || pins(step))
            || plan.compensation.iter().any(|entry| is_shell(&entry.work))
    };
    if command.workflow.as_ref().and_then(|workflow| workflow.plan.as_ref()).is_some_and(runs_shell) {
        require_permission(registry, actor_ref, scopes::DEFINITIONS_SHELL)?;
    }
    let checked = command.declaration.validate().and_then(|()| command.declaration.validate_names(""));
    checked.map_err(|refusal| Refusal { code: Code::InvalidDefinition, ..refusal })?;
    let newest = registry.definition(&command.name, None);
    // One that is retired lives again, as a version of its own.
    let lives = |definition: &&Arc<Definition>| !registry.is_retired(&definition.name, definition.version);
    if newest.filter(lives).is_some_and(|definition| definition.digest == command.digest) {
        return Ok(vec![]);
    }
    if command.merged.is_none() && newest.is_some_and(|newest| newest.publish.is_some()) {
        let detail = format!(
            "the next version of `{}` needs the approval that its gate_spec names under `publish`: propose it with \
             POST /v1/proposals",
            command.name
        );
        return Err(Refusal::new(Code::GateNotCleared, detail).at("name"));
    }
    // Whoever starts it by its name means what it was when they learnt the name.
    let given = super::kind(command.workflow.is_some(), command.machine.is_some());
    if let Some(taken) = newest.map(|newest| newest.kind())
        && taken != given
    {
        let detail = format!("`{}` is the name of a {taken}; a {given} needs a name of its own", command.name);
        return Err(Refusal::new(Code::Conflict, detail).at("name"));
    }
    Ok(vec![EventBody::DefinitionPublished(Definition {
        name: command.name.clone(),
        version: newest.map_or(1, |definition| definition.version + 1),
        digest: command.digest,
        source: Some(command.source.clone()),
        declaration: command.declaration.clone(),
        gate_spec: command.gate_spec.clone(),
        workflow: command.workflow.clone(),
        machine: command.machine.clone(),
        quarantined: None,
        retention: command.retention.clone(),
        publish: command.publish.clone(),
        merged: command.merged,
        published_at: now,
        published_by: actor_ref.to_owned(),
    })])
}

/// Recorded when it differs from what was recorded last, the unset policy included.
fn record_configuration(registry: &Registry, configuration: &Configuration) -> Vec<EventBody> {
    if registry.configuration() == Some(configuration) {
        return vec![];
    }
    vec![EventBody::ConfigurationRecorded(configuration.clone())]
}
