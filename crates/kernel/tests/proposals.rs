//! Proposals: who may do what to them, and what follows from a decision.

use countersign_kernel::process::{
    self, Attachment, Command, Context, DecideGate, Decision, FireTransition, MoveProposal, OpenGate, Process,
    ProposalAct, ProposalOf, ProposerClass, Request, merge_proposal,
};
use countersign_kernel::registry::{self, Actor, ActorKind, Registry, scopes};
use countersign_kernel::{Code, Digest, GateEntry, IdSource, QuorumRule, Time};

fn registry() -> Registry {
    let mut registry = Registry::default();
    let mut ids = IdSource::new(Time(1), 1);
    let people = [("ann", ActorKind::Human), ("ben", ActorKind::Human), ("cleo", ActorKind::Human)];
    let actors = people.into_iter().chain([("robot", ActorKind::Service)]).map(|(name, kind)| {
        let actor = Actor { actor_ref: name.to_owned(), kind, display_name: None, key: None, registered_at: Time(1) };
        registry::EventBody::ActorRegistered { actor, credential: None }
    });
    let grants = ["ann", "ben", "robot"].into_iter().map(|name| registry::EventBody::GrantMade {
        grant_id: ids.make(),
        subject_ref: name.to_owned(),
        action_scope: scopes::PROPOSALS_WRITE.to_owned(),
    });
    let bodies: Vec<_> = actors.chain(grants).collect();
    for (sequence, body) in (1..).zip(bodies) {
        registry.apply(sequence, &registry::Event { actor_ref: "countersign".to_owned(), at: Time(1), body });
    }
    registry
}

fn content(class: ProposerClass) -> ProposalOf {
    let board = GateEntry::Quorum {
        approvers: ["ann", "ben", "cleo"].map(str::to_owned).to_vec(),
        rule: QuorumRule::MOfN { m: 2 },
        scope: "s".to_owned(),
        delegable: false,
    };
    ProposalOf {
        kind: "iu_split".to_owned(),
        target: "iu-1".to_owned(),
        base_version: 0,
        class,
        has_evidence: true,
        reason: "r".to_owned(),
        content: Attachment { member: "proposal", text: "{}".into(), document: None },
        approvers: Some(board),
    }
}

struct World {
    registry: Registry,
    process: Option<Process>,
    now: i64,
}

impl World {
    fn new() -> World {
        World { registry: registry(), process: None, now: 10 }
    }

    fn decide(&mut self, who: &str, command: &Command) -> Result<Vec<process::Event>, Code> {
        self.now += 10;
        let ids = IdSource::new(Time(self.now), 7);
        let registry = &self.registry;
        let mut ctx =
            Context { actor_ref: who, now: Time(self.now), registry, application_actor_ref: "countersign", ids };
        process::decide(self.process.as_ref(), command, &mut ctx).map_err(|refusal| refusal.code)
    }

    fn done(&mut self, who: &str, command: &Command) -> String {
        let Ok(events) = self.decide(who, command) else { panic!("{who} was refused {command:?}") };
        let begun = events.first().and_then(Process::begin);
        let Some(process) = begun.or_else(|| self.process.take()) else { panic!("there is no process") };
        let process = events.iter().fold(process, |process, event| process.evolve(event));
        let state = process.current_state.clone();
        self.process = Some(process);
        state
    }

    fn proposed(class: ProposerClass, who: &str) -> World {
        let mut world = World::new();
        assert_eq!(world.done(who, &Command::Propose(Box::new(content(class)))), "draft");
        assert_eq!(world.done(who, &act(ProposalAct::Submit)), "submitted");
        let request = Request { text: "{}".into(), digest: Digest([1; 32]) };
        assert_eq!(world.done("ben", &act(ProposalAct::Review(request))), "review");
        world
    }

    fn merge(&mut self, who: &str, class: ProposerClass) -> Result<(), Code> {
        self.now += 10;
        let (ids, registry) = (IdSource::new(Time(self.now), 7), &self.registry);
        let mut ctx =
            Context { actor_ref: who, now: Time(self.now), registry, application_actor_ref: "countersign", ids };
        let attachment = Attachment { member: "merged", text: "{}".into(), document: None };
        let merged = merge_proposal(self.process.as_ref(), class, None, attachment, &mut ctx);
        merged.map(|_| ()).map_err(|refusal| refusal.code)
    }
}

fn act(act: ProposalAct) -> Command {
    Command::MoveProposal(MoveProposal { act, reason: Some("r".to_owned()), next: None })
}

fn decision(decision: Decision) -> Command {
    let reason = Some("r".to_owned());
    Command::DecideGate(DecideGate { action: "approve".to_owned(), decision, reason, step: None, request_digest: None })
}

#[test]
fn the_decision_that_clears_the_gate_approves_the_proposal() {
    let mut world = World::proposed(ProposerClass::Human, "ann");
    // The proposer is no approver, although the deployment names her.
    assert_eq!(world.decide("ann", &decision(Decision::Approve)), Err(Code::Unauthorized));
    assert_eq!(world.merge("ben", ProposerClass::Human), Err(Code::InvalidTransition));
    assert_eq!(world.done("ben", &decision(Decision::Approve)), "review");
    let last = world.decide("cleo", &decision(Decision::Approve)).expect("accepted").pop().expect("an event");
    assert_eq!(last.actor_ref, "countersign", "the engine follows the gate");
    assert_eq!(world.done("cleo", &decision(Decision::Approve)), "approved");
    assert_eq!(world.merge("ann", ProposerClass::Human), Ok(()));
    // Changed, it is a draft again, and its approval is gone.
    assert_eq!(world.done("ann", &act(ProposalAct::Edit(Box::new(content(ProposerClass::Human))))), "draft");
    assert_eq!(world.merge("ann", ProposerClass::Human), Err(Code::InvalidTransition));
}

#[test]
fn a_quorum_that_cannot_be_reached_rejects_the_proposal() {
    let mut world = World::proposed(ProposerClass::Human, "ann");
    assert_eq!(world.done("ben", &decision(Decision::Reject)), "rejected");
    assert_eq!(world.decide("ann", &act(ProposalAct::Withdraw)), Err(Code::Terminal));
}

#[test]
fn no_other_command_moves_a_proposal() {
    let mut world = World::proposed(ProposerClass::Human, "ann");
    for scope in [scopes::WORKFLOWS_FIRE, scopes::WORKFLOWS_OPEN_GATE] {
        let body = registry::EventBody::GrantMade {
            grant_id: IdSource::new(Time(2), 2).make(),
            subject_ref: "ann".to_owned(),
            action_scope: scope.to_owned(),
        };
        let sequence = world.registry.sequence() + 1;
        world.registry.apply(sequence, &registry::Event { actor_ref: "ann".to_owned(), at: Time(2), body });
    }
    for action in ["reject", "withdraw", "edit", "comment"] {
        let fire = Command::FireTransition(FireTransition { action: action.to_owned(), reason: None });
        assert_eq!(world.decide("ann", &fire), Err(Code::InvalidTransition), "{action}");
    }
    let open = Command::OpenGate(OpenGate { action: "approve".to_owned(), reason: None, request: None });
    assert_eq!(world.decide("ann", &open), Err(Code::InvalidTransition));
    let of_proposer = [ProposalAct::Edit(Box::new(content(ProposerClass::Human))), ProposalAct::Withdraw];
    for act_of in of_proposer {
        assert_eq!(world.decide("ben", &act(act_of)), Err(Code::Unauthorized));
    }
    assert_eq!(world.decide("cleo", &act(ProposalAct::Comment)), Err(Code::PermissionDenied));
    let late =
        Command::MoveProposal(MoveProposal { act: ProposalAct::Comment, reason: Some("r".into()), next: Some(9) });
    assert_eq!(world.decide("ben", &late), Err(Code::Conflict));
}

#[test]
fn a_service_poses_as_nobody_and_never_merges() {
    let mut world = World::new();
    let propose = |class| Command::Propose(Box::new(content(class)));
    assert_eq!(world.decide("robot", &propose(ProposerClass::Human)), Err(Code::InvalidRequest));
    assert_eq!(world.decide("ann", &propose(ProposerClass::Service)), Err(Code::InvalidRequest));
    let without = ProposalOf { has_evidence: false, ..content(ProposerClass::AiAgent) };
    assert_eq!(world.decide("robot", &Command::Propose(Box::new(without))), Err(Code::InvalidRequest));
    for (class, proposer) in [
        (ProposerClass::AiAgent, "robot"),
        (ProposerClass::Service, "robot"),
        // A person who spoke for an agent.
        (ProposerClass::AiAgent, "ann"),
    ] {
        let mut world = World::proposed(class, proposer);
        world.done("ben", &decision(Decision::Approve));
        assert_eq!(world.done("cleo", &decision(Decision::Approve)), "approved");
        assert_eq!(world.merge("robot", class), Err(Code::Unauthorized));
        assert_eq!(world.merge(proposer, class), Err(Code::Unauthorized));
        assert_eq!(world.merge("ben", class), Ok(()));
    }
}
