//! Runs that start by the clock (`schedule:`). Every node looks at the same patterns; the key of a tick makes sure that it
//! starts one run, whichever node is first. Ticks that fall while no node is up are lost, except within `catchUp`.

use countersign_definition::next_after;
use countersign_engine::port::{Page, RunQuery, RunView};
use countersign_engine::run::dispatcher::SCHEDULED;
use countersign_engine::{Call, Command, Engine, IdempotencyKey, Proof, Target};
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::{Overlap, Plan, Schedule, Scope, Template};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{Pause, Registry};
use countersign_kernel::run::{self, StartRun};
use countersign_kernel::text::rfc3339;
use countersign_kernel::{Digest, Time};
use countersign_ledger::sha256;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often new definitions are looked for; it costs no query.
const LOOK: Duration = Duration::from_secs(1);
/// How many runs are read at a time.
const PAGE: usize = 100;
const DAY: i64 = 24 * 3_600_000_000;

/// A pattern of a definition's newest version.
#[derive(Clone)]
struct Pattern {
    definition: String,
    version: u32,
    index: usize,
    /// The same in whichever version, at whichever place it stands: nodes may know different ones for a moment.
    name: String,
    schedule: Schedule,
    document_digest: Digest,
    /// Ticks before are not its own.
    since: Time,
    pause: Option<Pause>,
}

impl Pattern {
    fn key(&self, due: Time) -> String {
        format!("schedule/{}/{}/{}", self.definition, self.name, due.0)
    }

    /// From when on a node looks for ticks that sees the pattern for the first time.
    fn first_look(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.schedule.catch_up)).max(self.since).min(now)
    }
}

/// Starts runs until the engine is gone.
pub async fn run(engine: Weak<Engine>) {
    let mut ticker = Ticker::default();
    loop {
        let Some(held) = engine.upgrade() else { return };
        ticker.look(&held).await;
        drop(held);
        tokio::time::sleep(LOOK).await;
    }
}

/// What one node knows of the patterns, and when it has to do something about each.
#[derive(Default)]
pub struct Ticker {
    /// By definition, version and pattern.
    next: HashMap<(String, u32, usize), Time>,
    /// Up to when each definition was looked at: a new version goes on from there.
    seen: HashMap<String, Time>,
}

impl Ticker {
    /// Starts what is due.
    pub async fn look(&mut self, engine: &Arc<Engine>) {
        let now = engine.now();
        let mut patterns = patterns(&engine.registry());
        patterns.retain(|pattern| pattern.pause.is_none());
        let of = |pattern: &Pattern| (pattern.definition.clone(), pattern.version, pattern.index);
        self.next.retain(|known, _| patterns.iter().any(|pattern| of(pattern) == *known));
        for pattern in &patterns {
            let since = self.seen.get(&pattern.definition).copied().unwrap_or(pattern.first_look(now)).min(now);
            let due = *self.next.entry(of(pattern)).or_insert_with(|| following(&pattern.schedule, since));
            let next = until(engine, pattern, due, now).await;
            self.next.insert(of(pattern), next);
        }
        self.seen = patterns.into_iter().map(|pattern| (pattern.definition, now)).collect();
    }
}

/// Starts what is due, and returns when the next tick comes. One that could not be started now stays due.
async fn until(engine: &Arc<Engine>, pattern: &Pattern, mut due: Time, now: Time) -> Time {
    while due <= now {
        if let Err(refusal) = tick(engine, pattern, due).await {
            tracing::warn!(%refusal, definition = pattern.definition, "a scheduled run did not start");
            if refusal.passes() {
                break;
            }
        }
        let missed = Time(now.0.saturating_sub(pattern.schedule.catch_up));
        due = following(&pattern.schedule, missed.max(due));
    }
    due
}

/// What starts by the clock; the retired does not.
fn patterns(registry: &Registry) -> Vec<Pattern> {
    let mut all = Vec::new();
    for definition in registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None)) {
        let Some(workflow) = &definition.workflow else { continue };
        if registry.is_retired(&definition.name, definition.version) {
            continue;
        }
        let standing = registry.standing(&definition.name);
        let resumed_at = standing.and_then(|standing| standing.resumed_at);
        let mut before: HashMap<String, u32> = HashMap::new();
        for (index, schedule) in workflow.outline.schedule.iter().enumerate() {
            let said = format!("{} {}", schedule.cron, schedule.time_zone);
            let nth = before.entry(said.clone()).or_default();
            *nth += 1;
            all.push(Pattern {
                definition: definition.name.clone(),
                version: definition.version,
                index,
                name: format!("{said}/{nth}"),
                schedule: schedule.clone(),
                document_digest: workflow.document_digest,
                since: resumed_at.map_or(definition.published_at, |at| at.max(definition.published_at)),
                pause: standing.and_then(|standing| standing.paused.clone()),
            });
        }
    }
    all
}

/// When a pattern starts its next run.
pub struct Upcoming {
    pub definition: String,
    pub version: u32,
    /// Its place among the definition's schedules.
    pub index: usize,
    pub schedule: Schedule,
    pub pause: Option<Pause>,
    /// `None`: never again, or not while it is paused.
    pub next_at: Option<Time>,
}

/// Every pattern of every definition's newest version, by the name of the definition.
pub fn upcoming(engine: &Engine) -> Vec<Upcoming> {
    let now = engine.now();
    let of = |Pattern { definition, version, index, schedule, pause, .. }: Pattern| {
        let next_at = next_after(&schedule, now.0).map(Time).filter(|_| pause.is_none());
        Upcoming { definition, version, index, schedule, pause, next_at }
    };
    patterns(&engine.registry()).into_iter().map(of).collect()
}

/// The run that a tick of this schedule would start now. Without an index, the definition has one schedule.
pub async fn by_hand(engine: &Engine, definition: &str, index: Option<usize>) -> Result<StartRun, Refusal> {
    let mut found = patterns(&engine.registry());
    found.retain(|pattern| pattern.definition == definition);
    let place = match index {
        None if found.len() > 1 => {
            let detail = format!("`{definition}` has {} schedules: say which one starts a run", found.len());
            return Err(Refusal::new(Code::InvalidRequest, detail).at("index"));
        }
        index => index.unwrap_or(0),
    };
    if place >= found.len() {
        let detail = format!("`{definition}` has no such schedule; GET /v1/schedules lists them");
        return Err(Refusal::new(Code::NotKnown, detail).at(if index.is_some() { "index" } else { "definition" }));
    }
    let pattern = found.swap_remove(place);
    let unfilled = |error: String| {
        let detail = format!("the schedule's input cannot be worked out: {error}");
        Refusal::new(Code::InvalidRequest, detail)
    };
    let start = start_of(engine, &pattern).await?.map_err(unfilled)?;
    Ok(StartRun { by_itself: false, ..start })
}

/// The run that a tick starts, or why it cannot be worked out.
async fn start_of(engine: &Engine, pattern: &Pattern) -> Result<Result<StartRun, String>, Refusal> {
    let plan = match pattern.schedule.overlap {
        Overlap::Queue => Some(engine.published_plan(pattern.document_digest).await?),
        Overlap::Skip | Overlap::Allow => None,
    };
    Ok(input(engine, pattern).and_then(|input| {
        Ok(StartRun {
            version: Some(pattern.version),
            concurrency_key: concurrency_key(engine, pattern, plan.as_deref(), &input)?,
            by_itself: true,
            ..StartRun::new(pattern.definition.clone(), input)
        })
    }))
}

fn following(schedule: &Schedule, after: Time) -> Time {
    next_after(schedule, after.0).map_or(Time(i64::MAX), Time)
}

async fn tick(engine: &Arc<Engine>, pattern: &Pattern, due: Time) -> Result<(), Refusal> {
    let Pattern { definition, schedule, .. } = pattern;
    let key = pattern.key(due);
    let may_be_missed = schedule.catch_up > 0;
    if may_be_missed && engine.has_done(&key).await? {
        return Ok(());
    }
    if schedule.overlap == Overlap::Skip
        && let Some(run) = under_way(engine, definition).await?
    {
        // Where another node was quicker, it is the run of this very tick.
        let own = run.row.started_at >= due && run.row.initiator_ref == engine.config().application_actor_ref;
        if !own {
            let run_id = run.row.instance_id;
            tracing::info!(definition, at = rfc3339(due), %run_id, "a scheduled run is skipped: another one is under way");
            count("skipped");
        }
        // Or the next server would take it for one that was missed.
        if may_be_missed {
            engine.set_done(&key, Time(engine.now().0.saturating_add(schedule.catch_up + DAY))).await?;
        }
        return Ok(());
    }
    let start = start_of(engine, pattern)
        .await?
        .inspect_err(|error| tracing::error!(error, definition, "a scheduled run cannot be worked out"));
    let Ok(start) = start else {
        count("failed");
        return Ok(());
    };
    let call = Call {
        actor_ref: engine.config().application_actor_ref.clone(),
        proof: Proof::InProcess,
        command: Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) },
        idempotency: Some(IdempotencyKey { request_digest: sha256(&[key.as_bytes()]), key }),
    };
    let answer = engine.execute(call).await.map(|_| ());
    match &answer {
        Ok(()) => count("started"),
        // Paused or retired meanwhile.
        Err(refusal) if refusal.code == Code::NotActive => return Ok(()),
        Err(refusal) if refusal.passes() => {}
        Err(_) => count("failed"),
    }
    answer
}

fn input(engine: &Engine, pattern: &Pattern) -> Result<Arc<str>, String> {
    match &pattern.schedule.input {
        None => Ok(Arc::from("null")),
        Some(template) => fill(engine, template, &Scope::default()).map(Arc::from),
    }
}

/// Runs of one pattern that wait for each other wait for those of the definition's own key as well. `None`: the definition
/// says.
fn concurrency_key(
    engine: &Engine,
    pattern: &Pattern,
    plan: Option<&Plan>,
    input: &str,
) -> Result<Option<Arc<str>>, String> {
    let Some(plan) = plan else { return Ok(None) };
    let queue = format!("{SCHEDULED}{}", pattern.index);
    let Some(own) = &plan.concurrency else { return Ok(Some(queue.into())) };
    let own = fill(engine, &own.key, &Scope { input: Some(input), ..Scope::default() })?;
    // As the kernel has it: a string is its own key; anything else is its JSON.
    let own = serde_json::from_str::<String>(&own).unwrap_or(own);
    Ok(Some(format!("{queue}/{own}").into()))
}

fn fill(engine: &Engine, template: &Template, scope: &Scope<'_>) -> Result<String, String> {
    engine.config().language.fill(template, scope).map_err(|error| error.to_string())
}

/// A run of this definition that has begun, or is about to, and has not ended. One that is to start later is none.
async fn under_way(engine: &Engine, name: &str) -> Result<Option<RunView>, Refusal> {
    let now = engine.now();
    for state in RunState::ALL.iter().filter(|state| !state.is_ended() && **state != RunState::Idle) {
        let query = RunQuery {
            state: Some(state.as_str().to_owned()),
            definition: Some(name.to_owned()),
            ..RunQuery::default()
        };
        let mut page = Page { after: None, limit: PAGE, descending: true };
        loop {
            let found = engine.own_runs(&query, &page).await?;
            page.after = found.last().map(|run| run.row.instance_id.0).filter(|_| found.len() == PAGE);
            let begun = |run: &RunView| run.head.start_at.is_none_or(|at| at <= now);
            if let Some(run) = found.into_iter().find(begun) {
                return Ok(Some(run));
            }
            if page.after.is_none() {
                break;
            }
        }
    }
    Ok(None)
}

const TICKS: &str = "countersign_schedule_ticks_total";

pub fn describe_metrics() {
    metrics::describe_counter!(TICKS, "Ticks of schedules by what became of them: started, skipped or failed");
}

fn count(result: &'static str) {
    metrics::counter!(TICKS, "result" => result).increment(1);
}
