//! A workflow that somebody may start, control and work on, and the kernel's decisions about its run.

use countersign_kernel::gate_spec::GateSpec;
use countersign_kernel::plan::{BlockedEscalation, FailurePolicy, Graph, Language, Order, Plan, StepSpec};
use countersign_kernel::process::{self, Process};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::registry::{self, ActorKind, Definition, Registry, Workflow};
use countersign_kernel::run::{self, Command, Context, Event, Run};
use countersign_kernel::{Digest, IdSource, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const WHO: &str = "ann";

/// One step after the other, and nothing declared beside them.
pub fn plan_of(steps: Vec<StepSpec>) -> Plan {
    Plan {
        order: Order::Linear,
        steps,
        compensation: vec![],
        failure_policy: FailurePolicy::Abort,
        timeout: None,
        hard_cap: None,
        priority: 5,
        correlation_key: None,
        concurrency: None,
        queues: BTreeMap::new(),
        schedule: vec![],
        on: vec![],
        gate_spec: GateSpec(BTreeMap::new()),
        blocked_escalation: BlockedEscalation::default(),
        machine: None,
        input_schema: None,
        output: None,
        referenced: vec![],
        graph: Graph::default(),
    }
}

/// The plan is published as `wf`.
pub fn registry_of(plan: &Arc<Plan>) -> Registry {
    let mut registry = Registry::default();
    let mut ids = IdSource::new(Time(1), 1);
    let (declaration, gate_spec) = run::shell_declaration(plan);
    let workflow = Workflow::new(plan.clone(), Arc::from(&b""[..]), Digest([0; 32]));
    let mut bodies = vec![registry::EventBody::ActorRegistered {
        actor: registry::Actor {
            actor_ref: WHO.to_owned(),
            kind: ActorKind::Human,
            display_name: None,
            key: None,
            registered_at: Time(1),
        },
        credential: None,
    }];
    bodies.extend(["runs:start", "runs:control", "tasks:work", "governance:act"].iter().map(|scope| {
        registry::EventBody::GrantMade {
            grant_id: ids.make(),
            subject_ref: WHO.to_owned(),
            action_scope: (*scope).to_owned(),
        }
    }));
    bodies.push(registry::EventBody::DefinitionPublished(Definition {
        name: "wf".to_owned(),
        version: 1,
        digest: Digest([0; 32]),
        source: None,
        declaration: Arc::new(declaration),
        gate_spec: Arc::new(gate_spec.into()),
        workflow: Some(workflow),
        machine: None,
        quarantined: None,
        retention: None,
        publish: None,
        merged: None,
        published_at: Time(1),
        published_by: WHO.to_owned(),
    }));
    for (sequence, body) in (1..).zip(bodies) {
        registry.apply(sequence, &registry::Event { actor_ref: WHO.to_owned(), at: Time(1), body });
    }
    registry
}

/// What [`WHO`] asks for, with ids made for `now`.
pub fn decide(
    registry: &Registry,
    target: Option<(&Process, &Run)>,
    now: i64,
    command: &Command,
    language: &dyn Language,
) -> Result<Vec<Event>, Refusal> {
    let ids = IdSource::new(Time(now), 1);
    let base = process::Context { actor_ref: WHO, now: Time(now), registry, application_actor_ref: "countersign", ids };
    run::decide(target, command, &mut Context { base, language, secrets: None, digest })
}

/// Not SHA-256, but different for different texts: that is all that the kernel relies on.
pub fn digest(text: &str) -> countersign_kernel::Digest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut bytes = [0; 32];
    for (n, place) in bytes.chunks_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (n, text).hash(&mut hasher);
        place.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    countersign_kernel::Digest(bytes)
}
