//! Who may do what to whose keys, tokens and grants: every registry command, for every kind of target, by every kind of
//! caller. And which names may be registered.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{
    ActorKey, ActorKind, Bootstrap, Command, Configuration, Context, Event, EventBody, GrantScope, IssueCredential,
    MAX_OPEN_DELEGATIONS, MakeDelegation, Passkey, RegisterActor, RegisterKey, Registry, RevokeCredential,
    RevokeDelegation, RevokeGrant, RevokeKey, RotateKey, credential_id, decide, scopes,
};
use countersign_kernel::{Digest, GrantId, IdSource, Time};

const APPLICATION: &str = "countersign";
const SERVER: &str = "countersign-log";
/// Named by a gate, and holds no scope.
const APPROVER: &str = "approver";

struct World {
    registry: Registry,
    now: i64,
}

fn key(seed: u8) -> ActorKey {
    ActorKey { key_id: format!("{seed:016x}"), public_key: format!("key {seed}"), passkey: None }
}

fn token(seed: u8) -> Digest {
    Digest([seed; 32])
}

impl World {
    fn new() -> World {
        let mut world = World { registry: Registry::default(), now: 0 };
        let bootstrap = Bootstrap {
            admin_ref: "admin".to_owned(),
            admin_token_hash: token(1),
            application_key: Some(key(1)),
            server_actor_ref: SERVER.to_owned(),
            server_key: Some(key(2)),
        };
        world.done(APPLICATION, Command::Bootstrap(bootstrap));
        let configuration = Configuration {
            audit_trail_retention_policy: None,
            regulated: false,
            signatures: None,
            application_actor_ref: APPLICATION.to_owned(),
            server_actor_ref: SERVER.to_owned(),
        };
        world.done(APPLICATION, Command::RecordConfiguration(configuration));
        for (seed, name) in (10..).zip(["manager", "granter", "plain", "officer", APPROVER]) {
            world.register("admin", name, seed).expect("registered");
            world.done("admin", register_key(name, seed));
        }
        world.grant("manager", scopes::ACTORS_MANAGE);
        world.grant("granter", scopes::PERMISSIONS_MANAGE);
        world.grant("officer", "workflows:fire:batch-release");
        world
    }

    fn ask(&mut self, by: &str, signed: bool, command: &Command) -> Result<Vec<Event>, Refusal> {
        self.now += 1;
        let mut ids = IdSource::new(Time(self.now), 7);
        let mut ctx = Context {
            actor_ref: by,
            signed,
            application_actor_ref: APPLICATION,
            server_actor_ref: SERVER,
            now: Time(self.now),
            ids: &mut ids,
        };
        decide(&self.registry, command, &mut ctx)
    }

    /// Decides and applies.
    fn done(&mut self, by: &str, command: Command) -> Vec<Event> {
        let events = self.ask(by, false, &command).unwrap_or_else(|refusal| panic!("{command:?} by {by}: {refusal}"));
        for event in &events {
            self.registry.apply(self.registry.sequence() + 1, event);
        }
        events
    }

    fn register(&mut self, by: &str, name: &str, seed: u8) -> Result<(), Refusal> {
        let command = Command::RegisterActor(RegisterActor {
            actor_ref: name.to_owned(),
            kind: ActorKind::Human,
            display_name: None,
            key: None,
            token_hash: token(seed),
        });
        self.ask(by, false, &command)?;
        self.done(by, command);
        Ok(())
    }

    fn grant(&mut self, subject: &str, scope: &str) -> GrantId {
        let events = self.done("admin", grant(subject, scope));
        match &events[0].body {
            EventBody::GrantMade { grant_id, .. } => *grant_id,
            other => panic!("{other:?}"),
        }
    }
}

fn register_key(name: &str, seed: u8) -> Command {
    Command::RegisterKey(RegisterKey { actor_ref: name.to_owned(), key: key(seed) })
}

fn grant(subject: &str, scope: &str) -> Command {
    Command::GrantScope(GrantScope { subject_ref: subject.to_owned(), action_scope: scope.to_owned() })
}

const TARGETS: [&str; 6] = [APPLICATION, SERVER, "admin", "officer", APPROVER, "plain"];

/// The seed of each target's key and token.
fn seeds(target: &str) -> (u8, u8) {
    match target {
        APPLICATION => (1, 90),
        SERVER => (2, 91),
        "admin" => (99, 1),
        "officer" => (13, 13),
        APPROVER => (14, 14),
        _ => (12, 12),
    }
}

/// The command against this target, with everything that it names there.
fn command(name: &str, target: &str, grant_id: GrantId) -> Command {
    let (key_seed, token_seed) = seeds(target);
    let actor_ref = target.to_owned();
    match name {
        "add key" => register_key(target, 200),
        "end key" => Command::RevokeKey(RevokeKey { actor_ref, key_id: key(key_seed).key_id, reason: None }),
        "add token" => Command::IssueCredential(IssueCredential { actor_ref, token_hash: token(201) }),
        "end token" => {
            Command::RevokeCredential(RevokeCredential { actor_ref, credential_id: credential_id(&token(token_seed)) })
        }
        "grant" => grant(target, "anything:at-all"),
        "revoke" => Command::RevokeGrant(RevokeGrant { grant_id: Some(grant_id) }),
        other => panic!("no command {other}"),
    }
}

/// `+` is done, `-` is refused with `permission-denied`; a column per target.
const MATRIX: &[(&str, &str, &str)] = &[
    // caller, command, countersign countersign-log admin officer approver plain
    ("admin", "add key", "--++++"),
    ("admin", "end key", "--++++"),
    ("admin", "add token", "--++++"),
    ("admin", "end token", "--++++"),
    ("admin", "grant", "--++++"),
    ("admin", "revoke", "--++++"),
    ("manager", "add key", "----++"),
    ("manager", "end key", "--++++"),
    ("manager", "add token", "----++"),
    ("manager", "end token", "--++++"),
    ("manager", "grant", "------"),
    ("manager", "revoke", "------"),
    ("granter", "add key", "------"),
    ("granter", "end key", "------"),
    ("granter", "add token", "------"),
    ("granter", "end token", "------"),
    ("granter", "grant", "--++++"),
    ("granter", "revoke", "--++++"),
    ("plain", "add key", "------"),
    ("plain", "end key", "------"),
    ("plain", "add token", "------"),
    ("plain", "end token", "------"),
    ("plain", "grant", "------"),
    ("plain", "revoke", "------"),
    // Each signs for itself with a key of its own; the engine's actors never do by a request, and in the process they
    // look after their own keys and nothing else.
    ("itself, signed", "add key", "++++++"),
    ("itself, signed", "end key", "++++++"),
    ("itself, signed", "add token", "--+---"),
    ("itself, signed", "end token", "--+---"),
    ("itself, signed", "grant", "--+---"),
    ("itself, signed", "revoke", "--+---"),
];

#[test]
fn every_registry_command_against_every_kind_of_target_by_every_kind_of_caller() {
    let mut faults = vec![];
    for (caller, name, row) in MATRIX {
        for (target, expected) in TARGETS.iter().zip(row.chars()) {
            let mut world = World::new();
            world.done("admin", register_key("admin", 99));
            // Older stores may hold tokens and grants of the engine's actors.
            for (actor_ref, seed) in [(APPLICATION, 90), (SERVER, 91)] {
                let body = EventBody::CredentialIssued(countersign_kernel::registry::Credential {
                    token_hash: token(seed),
                    actor_ref: actor_ref.to_owned(),
                });
                let event = Event { actor_ref: "admin".to_owned(), at: Time(world.now), body };
                world.registry.apply(world.registry.sequence() + 1, &event);
            }
            let grant_id: GrantId = IdSource::new(Time(5), 55).make();
            let body = EventBody::GrantMade {
                grant_id,
                subject_ref: (*target).to_owned(),
                action_scope: "workflows:read:x".to_owned(),
            };
            let event = Event { actor_ref: "admin".to_owned(), at: Time(world.now), body };
            if *name == "revoke" {
                world.registry.apply(world.registry.sequence() + 1, &event);
            }
            let signed = *caller == "itself, signed";
            let by = if signed { target } else { caller };
            let answer = world.ask(by, signed, &command(name, target, grant_id));
            let fits = match (&answer, expected) {
                (Ok(_), '+') => true,
                (Err(refusal), '-') => refusal.code == Code::PermissionDenied,
                _ => false,
            };
            if !fits {
                faults.push(format!("{caller}, {name}, {target}: {answer:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_refusal_names_the_scope_that_is_missing() {
    let mut world = World::new();
    let refusal = world.ask("manager", false, &register_key("officer", 200)).expect_err("refused");
    assert!(refusal.detail.contains("`workflows:fire:batch-release`"), "{}", refusal.detail);
    // The general scope covers the finer one; the finer one of another definition does not.
    world.grant("manager", "workflows:fire:another");
    assert!(world.ask("manager", false, &register_key("officer", 200)).is_err());
    world.grant("manager", scopes::WORKFLOWS_FIRE);
    assert!(world.ask("manager", false, &register_key("officer", 200)).is_ok());
    // Scopes that the engine does not know count as well.
    world.grant("officer", "finance:post");
    let refusal = world.ask("manager", false, &register_key("officer", 200)).expect_err("refused");
    assert!(refusal.detail.contains("`finance:post`"), "{}", refusal.detail);
    assert_eq!(refusal.field.as_deref(), Some("actor_ref"));
}

#[test]
fn a_name_that_holds_scopes_already_is_registered_by_who_holds_them() {
    let mut world = World::new();
    world.grant("heir", scopes::AUDIT_PURGE);
    assert_eq!(world.register("manager", "heir", 60).expect_err("refused").code, Code::PermissionDenied);
    world.register("admin", "heir", 60).expect("registered");
    world.register("manager", "stranger", 61).expect("registered");
}

#[test]
fn a_token_of_the_engine_opens_nothing() {
    let mut world = World::new();
    for (actor_ref, seed) in [(APPLICATION, 90), (SERVER, 91)] {
        let body = EventBody::CredentialIssued(countersign_kernel::registry::Credential {
            token_hash: token(seed),
            actor_ref: actor_ref.to_owned(),
        });
        let event = Event { actor_ref: "admin".to_owned(), at: Time(world.now), body };
        world.registry.apply(world.registry.sequence() + 1, &event);
        assert_eq!(world.registry.authenticate(&token(seed)), None);
    }
    assert_eq!(world.registry.authenticate(&token(1)), Some("admin"));
}

#[test]
fn the_engine_rotates_its_own_keys_in_one_command_and_nobody_elses() {
    let mut world = World::new();
    let rotate = |actor_ref: &str, retires: u8| {
        let (actor_ref, key) = (actor_ref.to_owned(), key(150));
        Command::RotateKey(RotateKey { actor_ref, key, retires: self::key(retires).key_id, reason: None })
    };
    for by in ["admin", "manager", SERVER] {
        assert_eq!(world.ask(by, true, &rotate(APPLICATION, 1)).expect_err("refused").code, Code::PermissionDenied);
    }
    assert_eq!(world.ask(APPLICATION, true, &rotate("plain", 12)).expect_err("refused").code, Code::PermissionDenied);
    assert_eq!(world.ask(APPLICATION, true, &rotate(APPLICATION, 77)).expect_err("refused").code, Code::NotKnown);
    let events = world.done(APPLICATION, rotate(APPLICATION, 1));
    assert_eq!(events.len(), 2);
    let keys = world.registry.keys();
    assert!(!keys.get(APPLICATION, &key(1).key_id).expect("known").is_active());
    assert!(keys.get(APPLICATION, &key(150).key_id).expect("known").is_active());
    assert_eq!(world.ask(APPLICATION, true, &rotate(APPLICATION, 1)).expect_err("refused").code, Code::Conflict);
}

#[test]
fn what_others_added_to_an_actor_is_counted() {
    let mut world = World::new();
    // The key that admin added after the registration.
    assert_eq!(world.registry.added_by_others(APPROVER), 1);
    world.done(
        "manager",
        Command::IssueCredential(IssueCredential { actor_ref: APPROVER.into(), token_hash: token(70) }),
    );
    assert_eq!(world.registry.added_by_others(APPROVER), 2);
    let added = &world.registry.keys().token_by_id(APPROVER, &credential_id(&token(70))).expect("known").added;
    assert_eq!((added.by.as_str(), added.with_actor), ("manager", false));
    // The one it was registered with is no news.
    let first = &world.registry.keys().token_by_id(APPROVER, &credential_id(&token(14))).expect("known").added;
    assert_eq!((first.by.as_str(), first.with_actor), ("admin", true));
    world.done(
        "manager",
        Command::RevokeCredential(RevokeCredential {
            actor_ref: APPROVER.into(),
            credential_id: credential_id(&token(70)),
        }),
    );
    assert_eq!(world.registry.added_by_others(APPROVER), 1);
}

#[test]
fn names_that_pass_for_others_are_not_registered() {
    let mut world = World::new();
    world.register("admin", "qp_santos", 30).expect("registered");
    world.register("admin", "Inês Sá", 31).expect("an accent is no disguise");
    for (name, told) in [
        (" qp", "blank"),
        ("qp ", "blank"),
        ("q  p", "blank"),
        ("qp\u{a0}x", "U+00A0"),
        ("qp\u{2028}x", "U+2028"),
        ("qp\u{200b}", "U+200B"),
        ("qp\u{feff}", "U+FEFF"),
        ("\u{202e}qp", "U+202E"),
        ("\u{ff51}p", "U+FF51"),
        ("\u{fb01}le", "U+FB01"),
        ("Ine\u{302}s", "NFKC"),
        ("qp_s\u{430}ntos", "`qp_santos`"),
        ("qp_sant\u{3bf}s", "`qp_santos`"),
        ("\u{430}dmin", "`admin`"),
        ("adm\u{131}n", "`admin`"),
        ("c\u{3bf}untersign", "`countersign`"),
    ] {
        let refusal = world.register("admin", name, 40).expect_err(name);
        assert_eq!((refusal.code, refusal.field.as_deref()), (Code::InvalidRequest, Some("actor_ref")), "{name}");
        assert!(refusal.detail.contains(told), "{name}: {}", refusal.detail);
    }
    // Another script by itself, and names that only share letters, are fine.
    for (seed, name) in (50..).zip(["Иван", "山田", "admin2", "qp_santos.2", "a b"]) {
        world.register("admin", name, seed).expect(name);
    }
}

#[test]
fn the_last_manager_of_permissions_is_somebody_who_can_act() {
    let mut world = World::new();
    // A grant of the engine's own, from an older store: nobody can act with it.
    let body = EventBody::GrantMade {
        grant_id: IdSource::new(Time(3), 3).make(),
        subject_ref: APPLICATION.to_owned(),
        action_scope: scopes::PERMISSIONS_MANAGE.to_owned(),
    };
    let event = Event { actor_ref: "admin".to_owned(), at: Time(world.now), body };
    world.registry.apply(world.registry.sequence() + 1, &event);
    let of = |world: &World, name: &str| {
        let mine = world.registry.grants().of_subject(name);
        mine.filter(|g| g.action_scope == scopes::PERMISSIONS_MANAGE).map(|g| g.grant_id).next().expect("a grant")
    };
    let (admins, granters) = (of(&world, "admin"), of(&world, "granter"));
    world.done("admin", Command::RevokeGrant(RevokeGrant { grant_id: Some(granters) }));
    let last = Command::RevokeGrant(RevokeGrant { grant_id: Some(admins) });
    assert_eq!(world.ask("admin", false, &last).expect_err("refused").code, Code::Conflict);
}

fn passkey(seed: u8) -> ActorKey {
    let passkey = Passkey {
        algorithm: "ES256".to_owned(),
        credential_id: format!("credential {seed}"),
        rp_id: "c.example".to_owned(),
        origin: "https://c.example".to_owned(),
        label: None,
    };
    ActorKey { passkey: Some(passkey), ..key(seed) }
}

/// Without a signature a passkey is added as the first key of its owner, and never otherwise.
#[test]
fn a_token_adds_the_first_passkey_and_no_other() {
    let mut world = World::new();
    world.register("admin", "newcomer", 90).expect("registered");
    let add = |name: &str, key: ActorKey| Command::RegisterKey(RegisterKey { actor_ref: name.to_owned(), key });
    let refused = |answer: Result<Vec<Event>, Refusal>| answer.map(|_| ()).expect_err("a refusal").code;
    assert_eq!(refused(world.ask("newcomer", false, &add("newcomer", key(91)))), Code::PermissionDenied, "no passkey");
    assert_eq!(refused(world.ask("plain", false, &add("plain", passkey(92)))), Code::PermissionDenied, "has a key");
    assert_eq!(refused(world.ask("plain", false, &add("newcomer", passkey(92)))), Code::PermissionDenied, "another's");
    world.done("newcomer", add("newcomer", passkey(93)));
    assert_eq!(refused(world.ask("newcomer", false, &add("newcomer", passkey(94)))), Code::PermissionDenied);
    assert!(world.ask("newcomer", true, &add("newcomer", passkey(94))).is_ok(), "signed with the first");
    let twin = ActorKey { key_id: format!("{:016x}", 95), ..passkey(93) };
    assert_eq!(refused(world.ask("newcomer", true, &add("newcomer", twin))), Code::Conflict, "the same credential");
    // Who lost the only one has it revoked, and begins again.
    let revoke = RevokeKey { actor_ref: "newcomer".to_owned(), key_id: passkey(93).key_id, reason: None };
    world.done("admin", Command::RevokeKey(revoke));
    assert!(world.ask("newcomer", false, &add("newcomer", passkey(96))).is_ok());
}

fn delegation(delegator: &str, delegate: &str, from: i64, until: i64) -> Command {
    Command::MakeDelegation(MakeDelegation {
        delegator_ref: delegator.to_owned(),
        delegate_ref: delegate.to_owned(),
        scope: "s".to_owned(),
        from: Time(from),
        until: Time(until),
        reason: None,
    })
}

/// No scope makes one, an unsigned call does not, and a period that is none is refused.
#[test]
fn a_delegation_is_made_by_the_approver_alone() {
    let mut world = World::new();
    let now = world.now;
    let (begun, later) = (now - 5, now + 10_000);
    for (by, signed, command, code) in [
        (APPROVER, false, delegation(APPROVER, "plain", begun, later), Code::InvalidCredential),
        ("admin", true, delegation(APPROVER, "plain", begun, later), Code::Unauthorized),
        ("manager", true, delegation(APPROVER, "plain", begun, later), Code::Unauthorized),
        ("plain", true, delegation(APPROVER, "plain", begun, later), Code::Unauthorized),
        (APPROVER, true, delegation(APPROVER, APPROVER, begun, later), Code::InvalidRequest),
        (APPROVER, true, delegation(APPROVER, APPLICATION, begun, later), Code::InvalidRequest),
        (APPROVER, true, delegation(APPROVER, SERVER, begun, later), Code::InvalidRequest),
        (APPROVER, true, delegation(APPROVER, "nobody", begun, later), Code::NotKnown),
        (APPROVER, true, delegation(APPROVER, "plain", later, later), Code::InvalidRequest),
        (APPROVER, true, delegation(APPROVER, "plain", begun - 1, begun), Code::InvalidRequest),
    ] {
        let refused = world.ask(by, signed, &command).expect_err("refused");
        assert_eq!(refused.code, code, "{by} {signed} {command:?}");
    }
    for _ in 0..MAX_OPEN_DELEGATIONS {
        let events = world.ask(APPROVER, true, &delegation(APPROVER, "plain", begun, later)).expect("made");
        world.registry.apply(world.registry.sequence() + 1, &events[0]);
    }
    let full = world.ask(APPROVER, true, &delegation(APPROVER, "plain", begun, later)).expect_err("too many");
    assert_eq!(full.code, Code::Conflict);
    let delegation_id =
        world.registry.delegations().of_delegator(APPROVER).next().map(|known| known.delegation.delegation_id);
    let revoke =
        |whose: &str| Command::RevokeDelegation(RevokeDelegation { delegator_ref: whose.to_owned(), delegation_id });
    assert_eq!(world.ask("admin", true, &revoke(APPROVER)).expect_err("not theirs").code, Code::Unauthorized);
    assert_eq!(world.ask("plain", true, &revoke("plain")).expect_err("not theirs").code, Code::NotKnown);
    world.done(APPROVER, revoke(APPROVER));
    assert_eq!(world.ask(APPROVER, false, &revoke(APPROVER)).expect_err("ended").code, Code::NotActive);
    let in_force = |at: i64| world.registry.delegations().in_force(APPROVER, "plain", "s", Time(at)).is_some();
    assert!(!in_force(begun - 1) && in_force(begun) && in_force(later - 1) && !in_force(later));
    assert!(world.registry.delegations().in_force(APPROVER, "plain", "s:finer", Time(begun)).is_none());
}
