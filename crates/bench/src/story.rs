//! The work: one gated process after the other, each four commands (start, open, approve, fire).

use crate::report::quantile_ms;
use crate::target::Target;
use anyhow::anyhow;
use async_trait::async_trait;
use countersign_client::{Client, Format, wire};
use countersign_engine::{Call, Command, Engine, Outcome, Proof, Target as At};
use countersign_kernel::process::{self, DecideGate, Decision, FireTransition, OpenGate, Source, StartWorkflow};
use countersign_kernel::registry::{self, GrantScope, scopes};
use countersign_kernel::{GateSpec, InstanceId};
use countersign_ledger::sha256;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const DEFINITION: &str = "kind: process
name: bench
states: [review, released]
initial_state: review
terminal_states: [released]
transitions:
  - {from: review, action: release, to: released, guard: sign-off}
gate_spec:
  sign-off: {approver_ref: approver, scope: \"bench:release\"}
";

/// One way of giving the four commands.
#[async_trait]
pub trait Caller: Send + Sync {
    async fn start(&self, subject: String) -> anyhow::Result<String>;
    async fn open(&self, instance_id: &str) -> anyhow::Result<()>;
    async fn approve(&self, instance_id: &str) -> anyhow::Result<()>;
    async fn fire(&self, instance_id: &str) -> anyhow::Result<()>;
}

pub struct Story {
    pub caller: Arc<dyn Caller>,
}

#[derive(Default)]
pub struct Run {
    pub samples: Vec<u32>,
    pub elapsed: Duration,
}

impl Run {
    pub fn add(&mut self, more: Run) {
        self.samples.extend(more.samples);
        self.elapsed += more.elapsed;
    }

    /// The middle of each of the four commands, of a run of whole processes.
    pub fn by_command(&self) -> String {
        let middle = |(n, name): (usize, &str)| {
            let mut samples: Vec<u32> = self.samples.iter().skip(n).step_by(COMMANDS.len()).copied().collect();
            samples.sort_unstable();
            format!("{name} {:.3} ms", quantile_ms(&samples, 0.5))
        };
        COMMANDS.into_iter().enumerate().map(middle).collect::<Vec<_>>().join(", ")
    }
}

/// In the order of their samples.
const COMMANDS: [&str; 4] = ["start", "open", "approve", "fire"];

impl Story {
    pub async fn in_process(target: &Target) -> anyhow::Result<Story> {
        Story::of(target.engine.clone().ok_or_else(|| anyhow!("no engine"))?).await
    }

    pub async fn of(engine: Arc<Engine>) -> anyhow::Result<Story> {
        engine.bootstrap("admin", sha256(&[b"bench"])).await?;
        let definition = countersign_definition::parse(DEFINITION.as_bytes()).map_err(|p| anyhow!("{p:?}"))?;
        let publish = definition.published_as(DEFINITION, |bytes| sha256(&[bytes]));
        let admin = |command| Call {
            actor_ref: "admin".into(),
            proof: Proof::InProcess,
            command: Command::Registry(command),
            idempotency: None,
        };
        engine.execute(admin(registry::Command::PublishDefinition(publish))).await?;
        for scope in [scopes::WORKFLOWS_START, scopes::WORKFLOWS_OPEN_GATE, scopes::WORKFLOWS_FIRE] {
            let grant = GrantScope { subject_ref: "clerk".into(), action_scope: scope.into() };
            engine.execute(admin(registry::Command::GrantScope(grant))).await?;
        }
        Ok(Story { caller: Arc::new(InProcess { engine }) })
    }

    pub async fn over_http(target: &Target) -> anyhow::Result<Story> {
        let server = target.server.as_ref().ok_or_else(|| anyhow!("no server"))?;
        let url = format!("http://{}", server.addr);
        let admin = Client::new(&url)?.with_token(&target.admin_token()?)?;
        admin.publish_definition(Format::Yaml, DEFINITION.as_bytes()).await?;
        let mut tokens = Vec::new();
        for actor in ["clerk", "approver"] {
            let request = wire::RegisterActor {
                actor_ref: actor.into(),
                kind: wire::ActorKind::Human,
                display_name: None,
                public_key: None,
            };
            let registered = admin.register_actor(&request).await?;
            tokens.push(registered.body.token.ok_or_else(|| anyhow!("no token"))?);
        }
        for scope in [scopes::WORKFLOWS_START, scopes::WORKFLOWS_OPEN_GATE, scopes::WORKFLOWS_FIRE] {
            admin.grant(&wire::GrantScope { subject_ref: "clerk".into(), action_scope: scope.into() }).await?;
        }
        let approver = tokens.pop().ok_or_else(|| anyhow!("no token"))?;
        let clerk = tokens.pop().ok_or_else(|| anyhow!("no token"))?;
        Ok(Story {
            caller: Arc::new(OverHttp {
                clerk: Client::new(&url)?.with_token(&clerk)?,
                approver: Client::new(&url)?.with_token(&approver)?,
            }),
        })
    }

    /// Whole processes until the time is over.
    pub async fn run(&self, clients: usize, time: Duration) -> anyhow::Result<Run> {
        // Warm up: connections, caches, prepared statements.
        self.drive(clients, |caller, client, _| Box::pin(one_process(caller, client, 0)), Stop::Count(clients * 4))
            .await?;
        self.drive(clients, |caller, client, n| Box::pin(one_process(caller, client, n)), Stop::After(time)).await
    }

    /// A number of commands, four to a process; returns how many it were.
    pub async fn run_count(&self, clients: usize, commands: usize) -> anyhow::Result<usize> {
        let run = self
            .drive(clients, |caller, client, n| Box::pin(one_process(caller, client, n)), Stop::Count(commands / 4))
            .await?;
        Ok(run.samples.len())
    }

    /// Starts processes until the store holds `goal`; returns some that are spread over all of them.
    pub async fn fill(&self, goal: u64) -> anyhow::Result<Vec<String>> {
        let ids = Arc::new(std::sync::Mutex::new(Vec::new()));
        let keep = ids.clone();
        let every = (goal / 40_000).max(1);
        let step: Step = Arc::new(move |caller, client, n| {
            let keep = keep.clone();
            Box::pin(async move {
                let id = caller.start(format!("old-{client}-{n}")).await?;
                if (n as u64).is_multiple_of(every) {
                    keep.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(id);
                }
                Ok(vec![0])
            })
        });
        self.drive_step(512, step, Stop::Count(usize::try_from(goal)?)).await?;
        let mut ids = std::mem::take(&mut *ids.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        // Old ones first, in no order that a cache would like.
        ids.sort_by_key(|id| sha256(&[id.as_bytes()]));
        Ok(ids)
    }

    /// Commands on processes that were started long ago.
    pub async fn run_cold(&self, ids: &[String], clients: usize, time: Duration) -> anyhow::Result<Run> {
        let (ids, next) = (Arc::new(ids.to_vec()), Arc::new(AtomicUsize::new(0)));
        let step: Step = Arc::new(move |caller, _, _| {
            let (ids, next) = (ids.clone(), next.clone());
            Box::pin(async move {
                let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(vec![]) };
                let mut samples = Vec::with_capacity(3);
                timed(&mut samples, caller.open(id)).await?;
                timed(&mut samples, caller.approve(id)).await?;
                timed(&mut samples, caller.fire(id)).await?;
                Ok(samples)
            })
        });
        self.drive_step(clients, step, Stop::After(time)).await
    }

    async fn drive<F>(&self, clients: usize, step: F, stop: Stop) -> anyhow::Result<Run>
    where
        F: Fn(Arc<dyn Caller>, usize, usize) -> BoxFuture + Send + Sync + 'static,
    {
        self.drive_step(clients, Arc::new(step), stop).await
    }

    async fn drive_step(&self, clients: usize, step: Step, stop: Stop) -> anyhow::Result<Run> {
        let done = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let mut tasks = Vec::new();
        for client in 0..clients {
            let (caller, step, done) = (self.caller.clone(), step.clone(), done.clone());
            tasks.push(tokio::spawn(async move {
                let mut samples = Vec::new();
                let mut n = 0;
                loop {
                    let over = match stop {
                        Stop::After(time) => start.elapsed() >= time,
                        Stop::Count(count) => done.fetch_add(1, Ordering::Relaxed) >= count,
                    };
                    if over {
                        return anyhow::Ok(samples);
                    }
                    n += 1;
                    let more = step(caller.clone(), client, n).await?;
                    if more.is_empty() {
                        return Ok(samples);
                    }
                    samples.extend(more);
                }
            }));
        }
        let mut samples = Vec::new();
        for task in tasks {
            samples.extend(task.await??);
        }
        Ok(Run { samples, elapsed: start.elapsed() })
    }
}

type BoxFuture = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<Vec<u32>>> + Send>>;
type Step = Arc<dyn Fn(Arc<dyn Caller>, usize, usize) -> BoxFuture + Send + Sync>;

#[derive(Clone, Copy)]
enum Stop {
    After(Duration),
    Count(usize),
}

async fn timed<T>(samples: &mut Vec<u32>, call: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let before = Instant::now();
    let result = call.await?;
    samples.push(u32::try_from(before.elapsed().as_micros()).unwrap_or(u32::MAX));
    Ok(result)
}

async fn one_process(caller: Arc<dyn Caller>, client: usize, n: usize) -> anyhow::Result<Vec<u32>> {
    let mut samples = Vec::with_capacity(4);
    let id = timed(&mut samples, caller.start(format!("subject-{client}-{n}"))).await?;
    timed(&mut samples, caller.open(&id)).await?;
    timed(&mut samples, caller.approve(&id)).await?;
    timed(&mut samples, caller.fire(&id)).await?;
    Ok(samples)
}

struct InProcess {
    engine: Arc<Engine>,
}

impl InProcess {
    async fn call(&self, actor_ref: &str, target: At, command: process::Command) -> anyhow::Result<Outcome> {
        let command = Command::Process { target, command };
        Ok(self
            .engine
            .execute(Call { actor_ref: actor_ref.into(), proof: Proof::InProcess, command, idempotency: None })
            .await?)
    }

    fn at(instance_id: &str) -> At {
        InstanceId::parse(instance_id).map_or(At::Nowhere, At::Existing)
    }
}

#[async_trait]
impl Caller for InProcess {
    async fn start(&self, subject_ref: String) -> anyhow::Result<String> {
        let source = Source::Definition { name: "bench".into(), version: None };
        let command = process::Command::StartWorkflow(StartWorkflow {
            source,
            subject_ref,
            gate_spec: GateSpec::default(),
            reason: None,
        });
        match self.call("clerk", At::New, command).await? {
            Outcome::Started { instance_id } => Ok(instance_id),
            other => Err(anyhow!("{other:?}")),
        }
    }

    async fn open(&self, instance_id: &str) -> anyhow::Result<()> {
        let command = process::Command::OpenGate(OpenGate { action: "release".into(), reason: None, request: None });
        self.call("clerk", Self::at(instance_id), command).await.map(|_| ())
    }

    async fn approve(&self, instance_id: &str) -> anyhow::Result<()> {
        let reason = Some("specification limits met".to_owned());
        let decide = DecideGate {
            action: "release".into(),
            decision: Decision::Approve,
            reason,
            step: None,
            request_digest: None,
        };
        self.call("approver", Self::at(instance_id), process::Command::DecideGate(decide)).await.map(|_| ())
    }

    async fn fire(&self, instance_id: &str) -> anyhow::Result<()> {
        let command = process::Command::FireTransition(FireTransition { action: "release".into(), reason: None });
        self.call("clerk", Self::at(instance_id), command).await.map(|_| ())
    }
}

struct OverHttp {
    clerk: Client,
    approver: Client,
}

#[async_trait]
impl Caller for OverHttp {
    async fn start(&self, subject_ref: String) -> anyhow::Result<String> {
        let request = wire::StartProcess {
            declaration: None,
            definition: Some("bench".to_owned()),
            subject_ref,
            gate_spec: None,
            reason: None,
        };
        Ok(self.clerk.start(&request).await?.body.instance_id)
    }

    async fn open(&self, instance_id: &str) -> anyhow::Result<()> {
        let request = wire::OpenGate { action: "release".to_owned(), reason: None, request: None };
        self.clerk.open_gate(instance_id, &request).await?;
        Ok(())
    }

    async fn approve(&self, instance_id: &str) -> anyhow::Result<()> {
        let reason = Some("specification limits met".to_owned());
        let request =
            wire::DecideGate { decision: wire::Decision::Approve, reason, step_id: None, request_digest: None };
        self.approver.decide_gate(instance_id, "release", &request).await?;
        Ok(())
    }

    async fn fire(&self, instance_id: &str) -> anyhow::Result<()> {
        let request = wire::FireTransition { action: "release".to_owned(), reason: None };
        self.clerk.fire(instance_id, &request).await?;
        Ok(())
    }
}
