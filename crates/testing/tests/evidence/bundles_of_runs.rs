//! Runs over HTTP, exported, and verified by two auditors who share no code with the server: every way a run can go leaves
//! records that `spec/run.md` explains.

mod undone;

use anyhow::{Context, bail, ensure};
use countersign_client::{ActorKey, Client, Format, Signing, wire};
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, Running, ServeOptions};
use countersign_testing::attack::{self, Target, python};
use countersign_testing::place::{Kind, Place};
use countersign_testing::workspace;
use countersign_verifier::{Detail, Trust, VerifierKey, report, verify};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

struct Works {
    directory: TempDir,
    server: Running,
    admin: Client,
    /// Signs what they do.
    ines: Client,
    qp: Client,
    /// Their private keys.
    seeds: Vec<(String, String)>,
}

type Person = (Client, (String, String));

async fn person(admin: &Client, url: &str, who: &str, scopes: &[&str]) -> anyhow::Result<Person> {
    let key = ActorKey::generate()?;
    let request = wire::RegisterActor {
        actor_ref: who.to_owned(),
        kind: wire::ActorKind::Human,
        display_name: None,
        public_key: Some(key.public_key()),
    };
    let token = admin.register_actor(&request).await?.body.token.context("a token")?;
    for scope in scopes {
        admin.grant(&wire::GrantScope { subject_ref: who.to_owned(), action_scope: (*scope).to_owned() }).await?;
    }
    let seed = (who.to_owned(), key.to_base64());
    let signing = Signing { actor_ref: who.to_owned(), key, meaning: None, expected_sequence: None };
    Ok((Client::new(url)?.with_token(&token)?.with_signing(signing), seed))
}

impl Works {
    async fn open(place: &Place) -> anyhow::Result<Works> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        let server = serve::start(ServeOptions {
            listen: "127.0.0.1:0".into(),
            store: Some(place.url.clone()),
            ..ServeOptions::new(&data)
        })
        .await?;
        let token = std::fs::read_to_string(data.join(ADMIN_TOKEN_FILE))?.trim().to_owned();
        let admin = Client::new(&server.url())?.with_token(&token)?;
        let (ines, of_ines) = person(
            &admin,
            &server.url(),
            "ines",
            &["runs:start", "runs:control", "runs:read", "tasks:work", "governance:act"],
        )
        .await?;
        let (qp, of_qp) = person(&admin, &server.url(), "qp", &[]).await?;
        Ok(Works { directory, server, admin, ines, qp, seeds: vec![of_ines, of_qp] })
    }

    async fn publish(&self, text: &str) -> anyhow::Result<()> {
        self.admin.publish_definition(Format::Yaml, text.as_bytes()).await?;
        Ok(())
    }

    async fn start(&self, definition: &str, input: Value) -> anyhow::Result<String> {
        let request = wire::StartRun { definition: definition.to_owned(), input: Some(input), ..Default::default() };
        Ok(self.ines.start_run(&request).await?.body.run_id)
    }

    async fn claim(&self, queue: &str) -> anyhow::Result<wire::Task> {
        self.claim_for(queue, 60_000).await
    }

    async fn claim_for(&self, queue: &str, lease_ms: i64) -> anyhow::Result<wire::Task> {
        let request = wire::ClaimTasks {
            worker_id: "w-1".to_owned(),
            max: Some(1),
            lease_ms: Some(lease_ms),
            wait_ms: Some(20_000),
        };
        let tasks = self.admin.claim_tasks(queue, &request).await?.body.tasks;
        tasks.into_iter().next().with_context(|| format!("no task came in {queue}"))
    }

    async fn complete(&self, task: &wire::Task, output: Value) -> anyhow::Result<wire::TaskReported> {
        let request = wire::CompleteTask {
            lease_token: task.lease_token.clone(),
            output: Some(output),
            claim_next: Some(true),
            ..Default::default()
        };
        Ok(self.admin.complete_task(&task.task_id, &request).await?.body)
    }

    async fn dead(&self, task: &wire::Task, category: Option<&str>) -> anyhow::Result<()> {
        let request = wire::DeadTask {
            lease_token: task.lease_token.clone(),
            last_error: "it cannot be done".to_owned(),
            error_category: category.map(str::to_owned),
        };
        self.admin.dead_task(&task.task_id, &request).await?;
        Ok(())
    }

    async fn control(&self, run_id: &str, action: &str) -> anyhow::Result<()> {
        let request =
            wire::ControlRun { reason: Some(format!("to {action} it")), approval_id: None, compensate: false };
        self.ines.control_run(run_id, action, &request).await?;
        Ok(())
    }

    async fn decide(&self, run_id: &str, action: &str, decision: wire::Decision) -> anyhow::Result<()> {
        let request =
            wire::DecideGate { decision, reason: Some("looked at".to_owned()), step_id: None, request_digest: None };
        self.qp.clone().with_meaning("I have reviewed it")?.decide_run_gate(run_id, action, &request).await?;
        Ok(())
    }

    async fn state(&self, run_id: &str, wanted: &str) -> anyhow::Result<()> {
        for _ in 0..2400 {
            let state = self.admin.run(run_id).await?.body.state;
            if state == wanted {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        bail!("{run_id} did not become {wanted}: {:?}", self.admin.run(run_id).await?.body)
    }

    async fn export(&self, instance_id: Option<&str>, name: &str) -> anyhow::Result<PathBuf> {
        let mut bundle = Vec::new();
        let take = |piece: &[u8], _| {
            bundle.extend_from_slice(piece);
            Ok(())
        };
        let query = wire::ExportQuery { instance_id: instance_id.map(str::to_owned), ..Default::default() };
        self.admin.export(&query, take).await?;
        let path = self.directory.path().join(name);
        std::fs::write(&path, bundle)?;
        Ok(path)
    }
}

const CHAIN: &str = "
kind: workflow
name: order
order: linear
output: {big: '${9007199254740993 + 1}'}
steps:
  - {name: VALIDATE, retryPolicy: {maxRetries: 4, initialDelay: 1ms}}
  - {name: PAYMENT, run: wait, event: payment.captured}
  - {name: PAUSE, run: wait, for: 1ms}
  - {name: SHIP}
";
const GRAPH: &str = "
kind: workflow
name: screening
steps:
  - {name: a}
  - {name: b, dependsOn: [a]}
  - {name: c, dependsOn: [a], when: '${input.thorough}'}
  - {name: d, dependsOn: [c]}
  - {name: e, dependsOn: [b, c], onFailure: skip}
  - {name: f, dependsOn: [e]}
  - {name: g, dependsOn: [b]}
";
const GATED: &str = "
kind: workflow
name: change
steps:
  - {name: board, run: approval, approvers: [qp, ines, admin], quorum: {rule: m-of-n, m: 2}, scope: 'change:board'}
  - {name: build}
  - {name: deploy, dependsOn: [build], gate: cab}
gate_spec:
  cab: {approver_ref: qp, scope: 'change:cab'}
  cancel: {approver_ref: qp, scope: 'change:cancel'}
";

const PEOPLE: &str = "
kind: workflow
name: inquiry
order: linear
queue: lab
gate_spec:
  reopen: {approver_ref: qp, scope: 'inquiry:reopen'}
  escalate: {approver_ref: qp, scope: 'inquiry:escalate'}
blockedEscalation: {after: 1ms}
steps:
  - {name: look, run: human, pic: '${input.who}', outputSchema: {type: object}}
  - {name: test, onFailure: hold, retryPolicy: {maxRetries: 0}}
  - {name: answer, run: human, pic: ines, deadline: 50ms}
  - {name: file, run: wait, event: filed}
";

/// Every act of a person, an operator and a reviewer, signed.
async fn people(works: &Works) -> anyhow::Result<String> {
    works.publish(PEOPLE).await?;
    let run_id = works.start("inquiry", json!({"who": "ines"})).await?;
    let act = async |step: &str, act: &str, body: Value, wanted: &str| {
        let state = works.ines.act_on_step(&run_id, step, act, &body).await?.body.state_code;
        ensure!(state == wanted, "{act} of {step}: {state}");
        Ok(())
    };
    let approved = async |gate: &str| -> anyhow::Result<String> {
        let request = wire::OpenGate { action: gate.to_owned(), reason: None, request: None };
        let opened = works.ines.open_run_gate(&run_id, &request).await?.body;
        works.decide(&run_id, gate, wire::Decision::Approve).await?;
        opened.step_id.context("one step")
    };
    let evidence = json!({"evidence_ref": "note-1"});
    act("look", "claim", json!({}), "in_progress").await?;
    act("look", "release", json!({"reason": "lunch"}), "ready").await?;
    act("look", "claim", json!({}), "in_progress").await?;
    act("look", "wait", json!({"waiting_facets": ["waiting_external", "waiting_human"]}), "waiting").await?;
    act("look", "unblock", evidence.clone(), "in_progress").await?;
    act("look", "block", json!({"block_reason": "missing_input"}), "blocked").await?;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let urgent = approved("escalate:look").await?;
    act("look", "block-escalate", json!({"approval_id": urgent}), "blocked").await?;
    act("look", "unblock", evidence.clone(), "in_progress").await?;
    act("look", "complete", json!({"output": {"seen": 1}}), "completed").await?;

    works.dead(&works.claim("lab").await?, None).await?;
    act("test", "retry", json!({"reason": "once more"}), "failed").await?;
    works.dead(&works.claim("lab").await?, None).await?;
    act("test", "escalate", json!({}), "cannot_complete").await?;
    let again = approved("reopen:test").await?;
    act("test", "reopen", json!({"approval_id": again, "correction_reason": "policy_change"}), "ready").await?;
    works.complete(&works.claim("lab").await?, json!({"ph": 7})).await?;

    // Its deadline counts from when it was ready: it may have passed already.
    let state = works.ines.act_on_step(&run_id, "answer", "claim", &json!({})).await?.body.state_code;
    ensure!(["in_progress", "overdue"].contains(&state.as_str()), "claim of answer: {state}");
    for n in 0.. {
        let steps = works.admin.run(&run_id).await?.body.steps;
        if steps.iter().any(|step| step.name == "answer" && step.state_code == "overdue") {
            break;
        }
        ensure!(n < 2400, "it was never overdue");
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    let ahead = json!({"deadline": "2199-01-01T00:00:00Z", "reason": "the lab was closed"});
    act("answer", "extend-deadline", ahead, "in_progress").await?;
    act("answer", "cannot-complete", evidence, "cannot_complete").await?;
    let first = approved("reopen:answer").await?;
    act("answer", "reopen", json!({"approval_id": first, "correction_reason": "data_error"}), "in_progress").await?;
    tokio::time::sleep(std::time::Duration::from_millis(80)).await;
    act("answer", "complete", json!({"output": "late"}), "completed").await?;
    let second = approved("reopen:answer").await?;
    act("answer", "reopen", json!({"approval_id": second, "correction_reason": "data_error"}), "in_progress").await?;
    act("answer", "complete", json!({"output": "better"}), "completed").await?;
    let view = works.admin.run(&run_id).await?.body;
    let answer = view.steps.iter().find(|step| step.name == "answer").context("no answer")?;
    ensure!(answer.completed_after_deadline == Some(true) && answer.corrections.len() == 2, "{answer:?}");
    ensure!(answer.corrections[1].original_output == Some(json!("late")), "{answer:?}");
    Ok(run_id)
}

const TASKS: &str = "
kind: workflow
name: filing
order: linear
queue: desk
failurePolicy: compensate
retryPolicy: {maxRetries: 0}
steps:
  - {name: file, run: human, pic: ines, tasks: [{name: count, pic: ines}, {name: scan}]}
  - {name: check, tasks: [{name: read}, {name: sign, pic: ines}]}
compensation: [{step: file, action: Unfile, agent: undo}]
";

/// Parts of steps, by a person and by workers: one run in which all of them end well, and one that is undone.
async fn tasks(works: &Works) -> anyhow::Result<(String, String)> {
    works.publish(TASKS).await?;
    let mut runs = vec![];
    for ends_well in [true, false] {
        let run_id = works.start("filing", json!({"page": 3})).await?;
        let act = async |step: &str, act: &str, body: Value, wanted: &str| {
            let state = works.ines.act_on_step(&run_id, step, act, &body).await?.body.state_code;
            ensure!(state == wanted, "{act} of {step}: {state}");
            Ok(())
        };
        act("file", "claim", json!({}), "in_progress").await?;
        act("file/count", "claim", json!({}), "in_progress").await?;
        act("file/count", "block", json!({"block_reason": "missing_input"}), "blocked").await?;
        act("file/count", "unblock", json!({"evidence_ref": "note-1"}), "in_progress").await?;
        act("file/count", "complete", json!({"output": 3}), "completed").await?;
        let read = works.complete(&works.claim("desk").await?, json!("page-3")).await?.next.context("the next task")?;
        if ends_well {
            works.complete(&read, json!("seen")).await?;
            act("check/sign", "claim", json!({}), "in_progress").await?;
            act("check/sign", "complete", json!({}), "completed").await?;
        } else {
            works.dead(&read, None).await?;
            works.complete(&works.claim("undo").await?, json!(null)).await?;
        }
        works.state(&run_id, "completed").await?;
        runs.push(run_id);
    }
    let undone = runs.pop().context("two runs")?;
    Ok((runs.pop().context("two runs")?, undone))
}

/// Tried twice, woken by an event and by the clock, put down and taken up again.
async fn chain(works: &Works) -> anyhow::Result<String> {
    works.publish(CHAIN).await?;
    let run_id = works.start("order", json!({"order": 7, "weight": 1.5})).await?;
    let task = works.claim("default").await?;
    let retry = wire::RetryTask {
        lease_token: task.lease_token.clone(),
        last_error: "not yet".to_owned(),
        ..Default::default()
    };
    works.admin.retry_task(&task.task_id, &retry).await?;
    works.complete(&works.claim("default").await?, json!({"score": 0.25})).await?;
    let event = wire::SendEvent {
        id: "evt-1".to_owned(),
        event_type: "payment.captured".to_owned(),
        run_id: Some(run_id.clone()),
        correlation_key: None,
        data: Some(json!({"amount": 12.5, "note": "x".repeat(20_000)})),
    };
    works.ines.send_event(&event).await?;
    let task = works.claim("default").await?;
    let wait = wire::WaitTask { lease_token: task.lease_token, timeout_ms: Some(1), ..Default::default() };
    works.admin.wait_task(&task.task_id, &wait).await?;
    works.complete(&works.claim("default").await?, json!("shipped")).await?;
    works.state(&run_id, "completed").await?;
    Ok(run_id)
}

/// One branch is skipped, one step is skipped for its failure; paused, stopped and resumed on the way.
async fn graph(works: &Works) -> anyhow::Result<String> {
    works.publish(GRAPH).await?;
    let run_id = works.start("screening", json!({"thorough": false})).await?;
    works.control(&run_id, "pause").await?;
    works.control(&run_id, "resume").await?;
    let task = works.claim("default").await?;
    works.control(&run_id, "stop").await?;
    works.control(&run_id, "resume").await?;
    let again = works.claim("default").await?;
    ensure!(again.step_seq == task.step_seq, "another step came");
    let mut next = works.complete(&again, json!([1, 2.5, null])).await?.next;
    while let Some(task) = next {
        next = match task.step.as_str() {
            "e" => {
                works.dead(&task, None).await?;
                None
            }
            "g" => {
                // Blocked, and cleared by an operator.
                works.dead(&task, Some("governance")).await?;
                let request =
                    wire::ControlRun { reason: Some("it may".to_owned()), approval_id: None, compensate: false };
                works.ines.act_on_step(&run_id, "g", "unblock", &request).await?;
                Some(works.claim("default").await?)
            }
            _ => works.complete(&task, json!({"by": task.step})).await?.next,
        };
        if next.is_none() && works.admin.run(&run_id).await?.body.state == "executing" {
            next = Some(works.claim("default").await?);
            if next.as_ref().is_some_and(|task| task.step == "g") {
                works.complete(next.as_ref().context("a task")?, json!(true)).await?;
                next = None;
            }
        }
    }
    works.state(&run_id, "completed").await?;
    Ok(run_id)
}

const HOUSE: &str = "
kind: workflow
name: house
queue: house
failurePolicy: compensate
steps:
  - {name: workspace, dependsOn: [account]}
  - {name: account}
  - {name: last, dependsOn: [workspace]}
compensation:
  - {step: workspace, action: remove, agent: house}
  - {step: account, action: close, agent: house}
";

/// One goes on behind what another has finished, and is undone for an error that is longer than a record; what builds on
/// something else is undone before it, wherever it stands in the definition.
async fn continued(works: &Works) -> anyhow::Result<Vec<String>> {
    works.publish(HOUSE).await?;
    let old = works.start("house", json!({})).await?;
    let account = works.claim("house").await?;
    let workspace = works.complete(&account, json!(1)).await?.next.context("the next step")?;
    works.complete(&workspace, json!(2)).await?;
    works.control(&old, "cancel").await?;
    let request = wire::StartRun {
        definition: "house".to_owned(),
        corrects: Some(old.clone()),
        from_step: Some(wire::FromStep { run_id: old.clone(), step: "last".to_owned() }),
        ..Default::default()
    };
    let run_id = works.ines.start_run(&request).await?.body.run_id;
    let last = works.claim("house").await?;
    let request = wire::DeadTask {
        lease_token: last.lease_token.clone(),
        last_error: "grün ".repeat(20_000),
        error_category: None,
    };
    works.ines.dead_task(&last.task_id, &request).await?;
    let first = works.claim("house").await?;
    let second = works.complete(&first, json!(null)).await?.next.context("the next one")?;
    ensure!((&*first.step, &*second.step) == ("workspace", "account"), "{} is undone first", first.step);
    works.complete(&second, json!(null)).await?;
    works.state(&run_id, "completed").await?;
    Ok(vec![old, run_id])
}

/// A quorum, a gate, and a cancellation that needs one while another is open.
async fn gates(works: &Works) -> anyhow::Result<(String, String)> {
    works.publish(GATED).await?;
    let approved = works.start("change", json!({"tag": "v3"})).await?;
    works.decide(&approved, "board", wire::Decision::Approve).await?;
    let request =
        wire::DecideGate { decision: wire::Decision::Approve, reason: None, step_id: None, request_digest: None };
    works.ines.clone().with_meaning("I agree")?.decide_run_gate(&approved, "board", &request).await?;
    works.complete(&works.claim("default").await?, json!({"image": "…"})).await?;
    works.decide(&approved, "deploy", wire::Decision::Approve).await?;
    works.complete(&works.claim("default").await?, json!({"deployed": true})).await?;
    works.state(&approved, "completed").await?;

    let cancelled = works.start("change", json!({"tag": "v4"})).await?;
    works.complete(&works.claim("default").await?, json!({"image": "…"})).await?;
    works.decide(&cancelled, "board", wire::Decision::Approve).await?;
    works
        .ines
        .open_run_gate(&cancelled, &wire::OpenGate { action: "cancel".to_owned(), reason: None, request: None })
        .await?;
    works.decide(&cancelled, "cancel", wire::Decision::Approve).await?;
    works.control(&cancelled, "cancel").await?;

    let voided = works.start("change", json!({"tag": "v4"})).await?;
    works
        .ines
        .open_run_gate(&voided, &wire::OpenGate { action: "cancel".to_owned(), reason: None, request: None })
        .await?;
    ensure!(works.control(&voided, "void").await.is_err(), "voided without an approval");
    works.decide(&voided, "cancel", wire::Decision::Approve).await?;
    works.control(&voided, "void").await?;

    let rejected = works.start("change", json!({"tag": "v5"})).await?;
    works.complete(&works.claim("default").await?, json!({"image": "…"})).await?;
    works.decide(&rejected, "deploy", wire::Decision::Reject).await?;
    works.state(&rejected, "failed").await?;
    Ok((approved, cancelled))
}

const REVIEWED: &str = "
kind: machine
name: reviewed
scope: step
states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed,
  {state_code: in_review, floor_equivalent: waiting, justification: Whose turn it is is asked daily},
  {state_code: sent_back, floor_equivalent: waiting, justification: The author has it again},
  {state_code: accepted, floor_equivalent: completed, justification: Somebody looked at it first}]
transitions:
  - {from: in_progress, to: in_review, actor_class: pic_human, trigger_kind: rpc, trigger_ref: submit}
  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: send_back}
  - {from: sent_back, to: in_review, actor_class: pic_human, trigger_kind: rpc, trigger_ref: resubmit}
  - {id: A1, from: in_progress, to: accepted, actor_class: pic_human, trigger_kind: rpc, trigger_ref: accept}
";
const PAPER: &str = "
kind: workflow
name: paper
order: linear
machine: reviewed
steps: [{name: write, run: human, pic: ines}, {name: print, run: human, pic: ines}]
";

/// Transitions of a machine of one's own, signed: over one state of the floor, and with the floor's own act.
async fn own(works: &Works) -> anyhow::Result<String> {
    works.publish(REVIEWED).await?;
    works.publish(PAPER).await?;
    let run_id = works.start("paper", json!({})).await?;
    let act = async |step: &str, act: &str, body: Value, wanted: &str, over: Option<&str>| {
        let done = works.ines.act_on_step(&run_id, step, act, &body).await?.body;
        ensure!(done.state_code == wanted && done.derived_state.as_deref() == over, "{act} of {step}: {done:?}");
        Ok(())
    };
    let review = json!({"to": "in_review", "waiting_facet": "waiting_human", "reason": "ready"});
    act("write", "claim", json!({}), "in_progress", None).await?;
    act("write", "transition", review.clone(), "waiting", Some("in_review")).await?;
    let back = json!({"to": "sent_back", "evidence_ref": "note-1", "reason": "no sources"});
    act("write", "transition", back, "waiting", Some("sent_back")).await?;
    act("write", "transition", json!({"to": "in_review"}), "waiting", Some("in_review")).await?;
    act("write", "unblock", json!({"evidence_ref": "note-2"}), "in_progress", None).await?;
    let accepted = json!({"to": "accepted", "output": {"pages": 3}});
    act("write", "transition", accepted, "completed", Some("accepted")).await?;
    act("print", "claim", json!({}), "in_progress", None).await?;
    act("print", "transition", review, "waiting", Some("in_review")).await?;
    let view = works.admin.run(&run_id).await?.body;
    ensure!(view.machine.as_deref() == Some("reviewed@1"), "{:?}", view.machine);
    ensure!(view.steps[1].appearance.label == "In review", "{:?}", view.steps[1].appearance);
    Ok(run_id)
}

const LEG: &str = "
kind: workflow
name: leg
steps: [{name: fly}]
";
const TRIP: &str = "
kind: workflow
name: trip
steps:
  - {name: out, run: workflow, workflow: leg, errors: {external: retry}, retryPolicy: {maxRetries: 1, initialDelay: 1ms}}
";

/// Runs that are steps of others: one fails and is followed by another; one is cancelled with the run that waited for it.
async fn children(works: &Works) -> anyhow::Result<Vec<String>> {
    works.publish(LEG).await?;
    works.publish(TRIP).await?;
    let trip = works.start("trip", json!({})).await?;
    let first = works.claim("default").await?;
    works.dead(&first, None).await?;
    let second = works.claim("default").await?;
    ensure!(first.run_id != second.run_id, "the same child again");
    works.complete(&second, json!({})).await?;
    works.state(&trip, "completed").await?;
    let left = works.start("trip", json!({})).await?;
    let child = works.claim("default").await?.run_id;
    works.control(&left, "cancel").await?;
    works.state(&child, "cancelled").await?;
    Ok(vec![trip, first.run_id, second.run_id, left, child])
}

/// The page of its report.
fn judged(path: &Path, trust: &Trust) -> anyhow::Result<String> {
    let file = std::fs::File::open(path)?;
    let verdict = verify(std::io::BufReader::new(file), trust, Detail::Report)
        .map_err(|unreadable| anyhow::anyhow!("{}: {}", path.display(), unreadable.0))?;
    let circumstances = report::Circumstances { bundle: "the bundle", trust, command: "" };
    ensure!(verdict.passed(), "{}: {}", path.display(), report::text(&verdict, &circumstances, false));
    Ok(report::html(&verdict, &circumstances))
}

async fn runs_are_proven(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let works = Works::open(&place).await?;
    let one = chain(&works).await?;
    let graph = graph(&works).await?;
    let [undone, called_off] = undone::runs(&works).await?;
    let (approved, cancelled) = gates(&works).await?;
    let people = people(&works).await?;
    let (filed, unfiled) = tasks(&works).await?;
    let own = own(&works).await?;
    let continued = continued(&works).await?;
    let children = children(&works).await?;
    let key = works.admin.log_key().await?.trim().to_owned();
    let mut trust = Trust::default();
    trust.log_keys.push(VerifierKey::parse(&key).map_err(|problem| anyhow::anyhow!(problem))?);
    let mut bundles = vec![];
    let alone = [&one, &graph, &undone, &called_off, &approved, &cancelled, &people, &filed, &unfiled, &own];
    for (i, run_id) in alone.into_iter().chain(&continued).chain(&children).enumerate() {
        bundles.push(works.export(Some(run_id), &format!("{i}.zip")).await?);
    }
    bundles.push(works.export(None, "window.zip").await?);
    let [before, after] = continued.as_slice() else { bail!("{continued:?}") };
    let place_of_last = alone.len() + 1;
    let python = python()?;
    for (i, bundle) in bundles.iter().enumerate() {
        let page = judged(bundle, &trust)?;
        let fact = format!("<dt>Continues the run</dt><dd>{before}; completed there: workspace, account</dd>");
        ensure!(page.contains(&fact) == (i == place_of_last), "{i}, of {after}: {page}");
        ensure!(page.contains("What these checks do not cover"), "{i}: {page}");
        let out =
            Command::new(&python).arg(workspace().join("spec/verify.py")).arg(bundle).args(["--key", &key]).output()?;
        let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success(), "{}: {told}", bundle.display());
    }
    let report = works.admin.verify_log(&wire::VerifyLog::default(), |_| ()).await?.body;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    let Works { directory, server, seeds, .. } = works;
    server.shutdown().await?;
    let data_dir = directory.path().join("data");
    derived_rows_are_proved(&place, &data_dir).await?;
    let keys = keyfile(&data_dir, &key, &seeds)?;
    let window = bundles.last().context("a window")?;
    // A database for each attack takes its time; the rows are the same on both.
    let every = if kind == Kind::Sqlite { 1 } else { 4 };
    let target = Target { place: &place, data_dir: &data_dir, config: None, bundle: window, keys: &keys, every };
    let found = attack::all_are_found(&target, &python).await?;
    eprintln!("{} attacks on the store: all found", found.len());
    let all = std::env::var_os(attack::ONLY).is_none();
    ensure!(!all || found.len() * every > 100, "only {} attacks were tried on the store", found.len());
    place.remove().await
}

/// What readers see and no record says is computed again: the colour of a run, what a step waits for.
async fn derived_rows_are_proved(place: &Place, data_dir: &Path) -> anyhow::Result<()> {
    for edit in [
        r#"UPDATE instances SET rollup = replace(rollup, '"state_code":"red"', '"state_code":"green"') WHERE rollup LIKE '%"red"%'"#,
        r#"UPDATE instances SET rollup = replace(rollup, '"counts":[', '"counts":[1') WHERE rollup IS NOT NULL"#,
        r#"UPDATE instances SET rollup = replace(rollup, '"decisive":[', '"decisive":[1') WHERE rollup LIKE '%decisive%'"#,
        r#"UPDATE instances SET rollup = replace(rollup, '"current":', '"current":1') WHERE state = 'completed' AND rollup LIKE '%"current":%'"#,
        "UPDATE run_steps SET waiting_facet = 'waiting_external' WHERE waiting_facet = 'waiting_human'",
        "UPDATE run_steps SET pic = 'somebody else' WHERE pic IS NOT NULL",
        "UPDATE run_steps SET cycle = 7 WHERE pic IS NOT NULL",
    ] {
        let copy = place.copy().await?;
        copy.sql(edit).await?;
        let server = serve::start(ServeOptions {
            listen: "127.0.0.1:0".into(),
            store: Some(copy.url.clone()),
            ..ServeOptions::new(data_dir)
        })
        .await?;
        let token = std::fs::read_to_string(data_dir.join(ADMIN_TOKEN_FILE))?;
        let admin = Client::new(&server.url())?.with_token(token.trim())?;
        let report = admin.verify_log(&wire::VerifyLog::default(), |_| ()).await?.body;
        ensure!(!report.findings.is_empty(), "{edit}: nothing was found");
        server.shutdown().await?;
        copy.remove().await?;
    }
    Ok(())
}

/// All keys, for whoever plays the attacker.
fn keyfile(data_dir: &Path, vkey: &str, people: &[(String, String)]) -> anyhow::Result<PathBuf> {
    let hex = |base64: &str| -> anyhow::Result<String> {
        let bytes = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, base64.trim())?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let seed = |file: &str| hex(&std::fs::read_to_string(data_dir.join(file))?);
    let mut actors = serde_json::Map::new();
    for (who, key) in people {
        actors.insert(who.clone(), json!([hex(key)?]));
    }
    let origin = vkey.split('+').next().context("a name")?;
    let keys = json!({
        "vkey": vkey, "log": {"name": origin, "seed": seed("log.key")?},
        "application": {"actor_ref": "countersign", "seed": seed("application.key")?}, "actors": actors,
    });
    let path = data_dir.join("keys.json");
    std::fs::write(&path, keys.to_string())?;
    Ok(path)
}

countersign_testing::on_both! {
    runs_are_proven,
}
