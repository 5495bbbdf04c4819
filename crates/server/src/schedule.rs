//! Runs that start by the clock (`schedule:`). Every node looks at the same patterns; the key of a tick makes sure that it
//! starts one run, whoever is first. Ticks that fall while no node is up are lost.

use countersign_definition::next_after;
use countersign_engine::port::{Page, RunQuery};
use countersign_engine::{Call, Command, Engine, IdempotencyKey, Proof, Target};
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::{Overlap, Schedule, Scope};
use countersign_kernel::run::{self, StartRun};
use countersign_kernel::{Time, refusal::Refusal};
use countersign_ledger::sha256;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often new definitions are looked for; it costs no query.
const LOOK: Duration = Duration::from_secs(1);

/// One pattern of a definition's newest version.
type Pattern = (String, u32, usize);

/// Starts runs until the engine is gone.
pub async fn run(engine: Weak<Engine>) {
    let mut next: HashMap<Pattern, Time> = HashMap::new();
    loop {
        let Some(held) = engine.upgrade() else { return };
        let now = held.now();
        let patterns = patterns(&held);
        next.retain(|pattern, _| patterns.iter().any(|(known, _)| known == pattern));
        for (pattern, schedule) in &patterns {
            let due = *next.entry(pattern.clone()).or_insert_with(|| following(schedule, now));
            if due > now {
                continue;
            }
            next.insert(pattern.clone(), following(schedule, now.max(due)));
            match tick(&held, pattern, schedule, due).await {
                Ok(()) => {}
                Err(refusal) => tracing::warn!(%refusal, definition = pattern.0, "a scheduled run did not start"),
            }
        }
        drop(held);
        tokio::time::sleep(LOOK).await;
    }
}

fn patterns(engine: &Engine) -> Vec<(Pattern, Schedule)> {
    let registry = engine.registry();
    let newest = registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None));
    newest
        .filter_map(|definition| Some((definition, definition.workflow.as_ref()?)))
        .flat_map(|(definition, workflow)| {
            let of = |(i, schedule): (usize, &Schedule)| {
                ((definition.name.clone(), definition.version, i), schedule.clone())
            };
            workflow.plan.schedule.iter().enumerate().map(of).collect::<Vec<_>>()
        })
        .collect()
}

fn following(schedule: &Schedule, after: Time) -> Time {
    next_after(schedule, after.0).map_or(Time(i64::MAX), Time)
}

async fn tick(
    engine: &Arc<Engine>,
    (name, version, index): &Pattern,
    schedule: &Schedule,
    due: Time,
) -> Result<(), Refusal> {
    if schedule.overlap == Overlap::Skip && is_under_way(engine, name).await? {
        tracing::info!(definition = name, "a scheduled run is skipped: the one before it is under way");
        return Ok(());
    }
    let input = match &schedule.input {
        None => Arc::from("null"),
        Some(template) => match engine.config().language.fill(template, &Scope::default()) {
            Ok(input) => input.into(),
            Err(error) => {
                tracing::error!(%error, definition = name, "the input of a scheduled run cannot be worked out");
                return Ok(());
            }
        },
    };
    let key = format!("schedule/{name}@{version}/{index}/{}", due.0);
    let queued = (schedule.overlap == Overlap::Queue).then(|| Arc::from(format!("@schedule/{index}")));
    let command = run::Command::Start(Box::new(StartRun {
        definition: name.clone(),
        version: Some(*version),
        input,
        subject_ref: None,
        priority: None,
        start_at: None,
        corrects: None,
        from_step: None,
        parent: None,
        concurrency_key: queued,
        trace_id: None,
    }));
    let call = Call {
        actor_ref: engine.config().application_actor_ref.clone(),
        proof: Proof::InProcess,
        command: Command::Run { target: Target::New, command },
        idempotency: Some(IdempotencyKey { request_digest: sha256(&[key.as_bytes()]), key }),
    };
    engine.execute(call).await.map(|_| ())
}

/// Whether a run of this definition has begun and not ended.
async fn is_under_way(engine: &Engine, name: &str) -> Result<bool, Refusal> {
    let page = Page { after: None, limit: 1, descending: true };
    for state in RunState::ALL.iter().filter(|state| !state.is_ended() && **state != RunState::Idle) {
        let query = RunQuery {
            state: Some(state.as_str().to_owned()),
            definition: Some(name.to_owned()),
            ..RunQuery::default()
        };
        if !engine.own_runs(&query, &page).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
