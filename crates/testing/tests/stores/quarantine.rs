//! Definitions from before: what an older server published and this one does not read is held back, and nothing else is.

use anyhow::{Context, bail, ensure};
use countersign_definition::Cel;
use countersign_engine::{Command, Config, Engine, Outcome, Target};
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, PublishDefinition, Workflow};
use countersign_kernel::run::{self, StartRun};
use countersign_kernel::{Budget, InstanceId, Time};
use countersign_ledger::sha256;
use countersign_server::schedule::Ticker;
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, on_run, publish, start, state};
use countersign_testing::on_both;
use countersign_testing::place::{Kind, Place, close};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

on_both! {
    a_definition_from_before_is_held_back_and_nothing_else,
    a_damaged_document_stops_nothing_else,
}

const MINUTE: i64 = 60 * SECOND;

/// An older server: it publishes whatever it is given and checks no schema.
struct Older(Cel);

impl Language for Older {
    fn judge(&self, expression: &Expression, scope: &Scope<'_>) -> Result<bool, ExpressionError> {
        self.0.judge(expression, scope)
    }

    fn fill(&self, template: &Template, scope: &Scope<'_>) -> Result<String, ExpressionError> {
        self.0.fill(template, scope)
    }

    fn moment(&self, template: &Template, scope: &Scope<'_>) -> Result<Time, ExpressionError> {
        self.0.moment(template, scope)
    }

    fn conforms(&self, _: &Schema, _: &str) -> Result<(), ExpressionError> {
        Ok(())
    }

    fn plan(&self, document: &[u8]) -> Result<Plan, ExpressionError> {
        self.0.plan(document)
    }

    fn machine(&self, document: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        self.0.machine(document)
    }

    fn prepare(&self, _: &[u8]) {}

    fn metered<'a>(&'a self, _: &'a Budget) -> Box<dyn Language + 'a> {
        Box::new(Older(Cel::new()))
    }
}

/// The schema that ended servers: 10,000 references, one after the other.
fn chain() -> Value {
    let mut defs: serde_json::Map<String, Value> =
        (0..10_000).map(|i| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}))).collect();
    defs.insert("d10000".to_owned(), json!({}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// The command as an older server made it of a document with this schema.
fn from_before(name: &str, schema: &Value) -> anyhow::Result<PublishDefinition> {
    let text =
        format!("kind: workflow\nname: {name}\nqueue: q\nschedule: [{{cron: \"* * * * *\"}}]\nsteps: [{{name: A}}]\n");
    let definition =
        countersign_definition::parse(text.as_bytes()).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let mut command = definition.published_as(format!("{text}inputSchema: {schema}\n"), |bytes| sha256(&[bytes]));
    let workflow = command.workflow.as_mut().context("a workflow")?;
    let mut document: Value = serde_json::from_slice(workflow.document.as_deref().context("a document")?)?;
    document["inputSchema"] = schema.clone();
    let document = document.to_string().into_bytes();
    let digest = sha256(&[&document]);
    let mut plan = Plan::clone(workflow.plan.as_deref().context("a plan")?);
    plan.input_schema = Some(Schema(schema.to_string().into()));
    *workflow = Workflow::new(Arc::new(plan), document.into(), digest);
    Ok(command)
}

async fn start_of(engine: &Engine, definition: &str) -> Result<Outcome, Refusal> {
    let command = run::Command::Start(Box::new(StartRun::new(definition, "{}")));
    engine.execute(call(Command::Run { target: Target::New, command })).await
}

fn refused(answer: Result<Outcome, Refusal>, part: &str) -> anyhow::Result<()> {
    match answer {
        Err(refusal) => {
            ensure!(refusal.code == Code::InvalidDefinition, "{refusal}");
            ensure!(refusal.detail.contains("quarantined") && refusal.detail.contains(part), "{refusal}");
            Ok(())
        }
        Ok(outcome) => bail!("{outcome:?}"),
    }
}

struct Before {
    place: Place,
    hand: Hand,
    /// Runs of the definition that will be held back, and of the other one.
    held: InstanceId,
    sound: InstanceId,
}

async fn before(kind: Kind, command: PublishDefinition) -> anyhow::Result<Before> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let (name, language) = (command.name.clone(), Arc::new(Older(Cel::new())));
    let engine = place.engine(Config { language, clock: hand.clock(), ..Config::default() }).await?;
    publish(&engine, "kind: workflow\nname: sound\nqueue: q\nsteps: [{name: A}, {name: B, dependsOn: [A]}]\n").await?;
    engine.execute(call(Command::Registry(registry::Command::PublishDefinition(command)))).await?;
    let (held, sound) = (start(&engine, &name, "{}").await?, start(&engine, "sound", "{}").await?);
    close(engine).await?;
    Ok(Before { place, hand, held, sound })
}

async fn a_definition_from_before_is_held_back_and_nothing_else(kind: Kind) -> anyhow::Result<()> {
    let Before { place, hand, held, sound } = before(kind, from_before("hostile", &chain())?).await?;
    let config = || Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() };
    // It starts, as often as it likes.
    close(place.engine(config()).await?).await?;
    let engine = place.engine(config()).await?;
    {
        let registry = engine.registry();
        let definition = registry.definition("hostile", None).context("it is there")?;
        let quarantine = definition.quarantined.as_ref().context("it is held back")?;
        ensure!(quarantine.why.contains("inputSchema"), "{}", quarantine.why);
        ensure!(definition.kind() == "workflow" && definition.workflow.is_none());
        ensure!(registry.definition("sound", None).is_some_and(|sound| sound.quarantined.is_none()));
    }
    refused(start_of(&engine, "hostile").await, "262144")?;

    // Its schedule starts nothing.
    let mut ticker = Ticker::default();
    for _ in 0..3 {
        ticker.look(&engine).await;
        hand.turn(MINUTE);
        engine.tick().await;
    }

    // Its run goes nowhere and says why; it holds up no neighbour, not even in the same claim.
    let cancel = run::Command::Cancel { reason: Some("so decided".to_owned()), approval_id: None, compensate: false };
    refused(engine.execute(on_run(held, cancel.clone())).await, "inputSchema")?;
    for _ in 0..2 {
        let tasks = claim(&engine, 5, LEASE, Duration::from_secs(5)).await?;
        ensure!(tasks.len() == 1 && tasks[0].run_id == sound.to_string(), "{tasks:?}");
        complete(&engine, &tasks[0], false).await?;
    }
    ensure!(state(&engine, sound).await? == "completed");
    start_of(&engine, "sound").await?;

    // A version that keeps to the bounds takes its place.
    publish(&engine, "kind: workflow\nname: hostile\nqueue: q\nsteps: [{name: A}]\n").await?;
    start_of(&engine, "hostile").await?;
    let old = StartRun { version: Some(1), ..StartRun::new("hostile", "{}") };
    let command = run::Command::Start(Box::new(old));
    refused(engine.execute(call(Command::Run { target: Target::New, command })).await, "version 1")?;
    close(engine).await?;
    place.remove().await
}

/// What cannot be read at all is held back as well.
async fn a_damaged_document_stops_nothing_else(kind: Kind) -> anyhow::Result<()> {
    let mut command = from_before("broken", &json!({}))?;
    let workflow = command.workflow.as_mut().context("a workflow")?;
    let nested = format!("{{\"kind\":\"workflow\",\"steps\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let nested = nested.into_bytes();
    workflow.document_digest = sha256(&[&nested]);
    workflow.document = Some(nested.into());
    let Before { place, hand, held, .. } = before(kind, command).await?;
    let language = Arc::new(Cel::default());
    let engine = place.engine(Config { language, clock: hand.clock(), ..Config::default() }).await?;
    refused(start_of(&engine, "broken").await, "not JSON")?;
    refused(
        engine
            .execute(on_run(
                held,
                run::Command::Cancel { reason: Some("so decided".to_owned()), approval_id: None, compensate: false },
            ))
            .await,
        "not JSON",
    )?;
    start_of(&engine, "sound").await?;
    close(engine).await?;
    place.remove().await
}
