//! The worker against a server that does as it is told: what is sent, how often, and what is left unsaid.

use super::*;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::{Notify, oneshot};

/// Hands out tasks in order and notes everything that is said about them.
#[derive(Default)]
struct Fake {
    tasks: Mutex<VecDeque<Value>>,
    /// (verb, body), in the order of arrival.
    told: Mutex<Vec<(String, Value)>>,
    /// Answers to come in place of the usual ones: (verb, status, code).
    instead: Mutex<VecDeque<(&'static str, u16, &'static str)>>,
    changed: Notify,
}

impl Fake {
    fn told(&self, verb: &str) -> Vec<Value> {
        let told = self.told.lock().expect("told");
        told.iter().filter(|(said, _)| said == verb).map(|(_, body)| body.clone()).collect()
    }

    /// Waits until this has been said this often.
    async fn heard(&self, verb: &str, times: usize) -> Vec<Value> {
        let heard = async {
            loop {
                let changed = self.changed.notified();
                let told = self.told(verb);
                if told.len() >= times {
                    return told;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect("it is said in time")
    }

    fn note(&self, verb: &str, body: Value) -> Option<Response> {
        self.told.lock().expect("told").push((verb.to_owned(), body));
        self.changed.notify_waiters();
        let mut instead = self.instead.lock().expect("instead");
        if instead.front().is_some_and(|(meant, ..)| *meant == verb) {
            let (_, status, code) = instead.pop_front()?;
            let problem = json!({"type": "t", "title": "T", "status": status, "code": code, "detail": "as told"});
            return Some((StatusCode::from_u16(status).expect("a status"), problem.to_string()).into_response());
        }
        None
    }

    fn hand_out(&self, max: usize) -> Vec<Value> {
        let mut tasks = self.tasks.lock().expect("tasks");
        let max = max.min(tasks.len());
        tasks.drain(..max).collect()
    }
}

async fn leave(State(fake): State<Arc<Fake>>, body: String) -> Response {
    let body = serde_json::from_str(&body).expect("JSON");
    fake.note("leave", body).unwrap_or_else(|| json!({"worker_class": "orders:worker"}).to_string().into_response())
}

async fn claim(State(fake): State<Arc<Fake>>, headers: HeaderMap, body: String) -> Response {
    assert!(headers.get("idempotency-key").is_none() && headers["authorization"] == "Bearer tok", "{headers:?}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let (max, wait) = (body["max"].as_u64().expect("max"), body["wait_ms"].as_u64().expect("wait_ms"));
    if let Some(instead) = fake.note("claim", body) {
        return instead;
    }
    let tasks = fake.hand_out(usize::try_from(max).expect("a number"));
    if tasks.is_empty() {
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    json!({ "tasks": tasks }).to_string().into_response()
}

async fn report(
    State(fake): State<Arc<Fake>>,
    Path((task_id, verb)): Path<(String, String)>,
    body: String,
) -> Response {
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["lease_token"], format!("lease of {task_id}"));
    let wants_next = body["claim_next"] == true;
    if let Some(instead) = fake.note(&verb, body) {
        return instead;
    }
    let next = if wants_next { fake.hand_out(1).pop() } else { None };
    let mut answer = json!({"state_code": "completed", "run_state": "executing"});
    if let Some(next) = next {
        answer["next"] = next;
    }
    answer.to_string().into_response()
}

fn task(id: &str, step: &str) -> Value {
    json!({
        "task_id": id, "run_id": "r1", "step": step, "step_seq": 0, "attempt": 2, "max_attempts": 4,
        "task_type": "READY_STEP", "input": {"order": 7}, "idempotency_key": "k1",
        "lease_token": format!("lease of {id}"), "locked_until": "2026-11-15T19:47:28.123456Z",
    })
}

struct Running {
    fake: Arc<Fake>,
    stop: Option<oneshot::Sender<()>>,
    worker: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Running {
    /// A worker, made by `made`, at work on these tasks.
    async fn start(tasks: Vec<Value>, made: impl FnOnce(Worker) -> Worker) -> Self {
        Self::start_with(tasks, &[], made).await
    }

    async fn start_with(
        tasks: Vec<Value>,
        instead: &[(&'static str, u16, &'static str)],
        made: impl FnOnce(Worker) -> Worker,
    ) -> Self {
        let fake = Arc::new(Fake::default());
        fake.tasks.lock().expect("tasks").extend(tasks);
        fake.instead.lock().expect("instead").extend(instead);
        let router = Router::new()
            .route("/v1/queues/{queue}/claim", post(claim))
            .route("/v1/queues/{queue}/leave", post(leave))
            .route("/v1/tasks/{task_id}/{verb}", post(report))
            .with_state(fake.clone());
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = socket.local_addr().expect("an address");
        // The worker is there first and finds nobody.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            axum::serve(socket.listen(128).expect("it listens"), router).await
        });

        let client = Client::new(&format!("http://{address}")).and_then(|client| client.with_token("tok"));
        // A key would have every claim answered like the first: the worker does without it.
        let client = client.and_then(|client| client.with_idempotency_key("k")).expect("a client");
        let worker = made(Worker::new(client, "orders").worker_id("w1").poll(Duration::from_millis(50)));
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = tokio::spawn(worker.run(async { drop(stopped.await) }));
        Running { fake, stop: Some(stop), worker }
    }

    fn stop(&mut self) {
        drop(self.stop.take());
    }

    async fn ended(mut self) -> Result<(), Error> {
        self.stop();
        tokio::time::timeout(Duration::from_secs(20), self.worker).await.expect("it stops").expect("no panic")
    }
}

#[tokio::test]
async fn a_task_is_claimed_handled_and_completed_and_brings_the_next() {
    let running = Running::start(vec![task("t1", "VALIDATE"), task("t2", "SHIP")], |worker| {
        worker
            .lease(Duration::from_secs(9))
            .on("VALIDATE", |task| async move {
                #[derive(serde::Deserialize)]
                struct Order {
                    order: u32,
                }
                let input: Order = task.input()?;
                assert_eq!((task.attempt(), task.idempotency_key(), task.run_id()), (2, "k1", "r1"));
                assert_eq!((task.task_type(), task.is_last_attempt()), (TaskType::ReadyStep, false));
                assert_eq!(task.event::<Value>()?, None);
                Ok(Report::completed(json!({"seen": input.order})).emit("order.validated", json!(1)))
            })
            .fallback(|task| async move { Ok(json!(task.step())) })
    })
    .await;
    let completed = running.fake.heard("complete", 2).await;
    assert_eq!(
        completed[0],
        json!({
            "lease_token": "lease of t1", "output": {"seen": 7}, "claim_next": true, "lease_ms": 9000,
            "outbound_events": [{"type": "order.validated", "data": 1}],
        })
    );
    assert_eq!(completed[1]["output"], "SHIP");
    let claims = running.fake.told("claim");
    assert_eq!(claims[0], json!({"worker_id": "w1", "max": 1, "lease_ms": 9000, "wait_ms": 50}));
    // The second task came with the answer to the first, not by a claim.
    let told: Vec<String> = running.fake.told.lock().expect("told").iter().map(|(verb, _)| verb.clone()).collect();
    assert_eq!(told[..3], ["claim", "complete", "complete"]);
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn every_kind_of_result_has_its_own_report() {
    let tasks = ["wait", "time", "retry", "dead", "unfit", "error", "never", "lacking"]
        .iter()
        .map(|step| task(step, step))
        .collect();
    let running = Running::start(tasks, |worker| {
        worker
            .concurrency(3)
            .on("wait", |_| async {
                let wait = Report::waiting_for("payment").timeout(Duration::from_secs(2)).facet(Facet::Human);
                Ok(wait.emit("asked", Value::Null))
            })
            .on("time", |_| async { Ok(Report::waiting(Duration::from_micros(1))) })
            .on("retry", |_| async {
                Err::<(), _>(Failure::retry("busy").after(Duration::from_secs(3)).category(Category::External))
            })
            .on("dead", |_| async { Err::<(), _>(Failure::dead("no such order")) })
            .on("unfit", |task| async move { task.input::<Vec<String>>().map(|_| ()) })
            .on("error", |_| async { Ok(json!("x".parse::<u8>()?)) })
            .on("never", |_| async { Err::<(), _>(Failure::cannot_complete("TICKET-7")) })
            .on("lacking", |_| async { Err::<(), _>(Failure::blocked(BlockReason::MissingInput)) })
    })
    .await;
    let waits = running.fake.heard("wait", 2).await;
    let find = |said: &[Value], id: &str| {
        said.iter().find(|body| body["lease_token"] == format!("lease of {id}")).cloned().expect("said")
    };
    assert_eq!(
        find(&waits, "wait"),
        json!({
            "lease_token": "lease of wait", "waiting_event_type": "payment", "timeout_ms": 2000,
            "waiting_facet": "waiting_human", "outbound_events": [{"type": "asked", "data": null}],
        })
    );
    assert_eq!(find(&waits, "time"), json!({"lease_token": "lease of time", "timeout_ms": 1}));
    let retries = running.fake.heard("retry", 2).await;
    assert_eq!(
        find(&retries, "retry"),
        json!({"lease_token": "lease of retry", "last_error": "busy", "backoff_ms": 3000, "error_category": "external"})
    );
    let error = find(&retries, "error");
    assert_eq!(error, json!({"lease_token": "lease of error", "last_error": "invalid digit found in string"}));
    let dead = running.fake.heard("dead", 2).await;
    assert_eq!(find(&dead, "dead"), json!({"lease_token": "lease of dead", "last_error": "no such order"}));
    assert_eq!(find(&dead, "unfit")["error_category"], "validation");
    let never = running.fake.heard("cannot-complete", 1).await;
    assert_eq!(never[0], json!({"lease_token": "lease of never", "evidence_ref": "TICKET-7"}));
    let blocked = running.fake.heard("block", 1).await;
    assert_eq!(blocked[0], json!({"lease_token": "lease of lacking", "block_reason": "missing_input"}));
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn heartbeats_run_by_themselves_and_on_demand() {
    let running = Running::start(vec![task("t1", "slow")], |worker| {
        worker.lease(Duration::from_millis(4500)).on("slow", |task| async move {
            task.heartbeat().now().await?;
            assert!(task.heartbeat().remaining() > Duration::from_millis(500));
            // Longer than the lease: only heartbeats carry it so far.
            tokio::time::sleep(Duration::from_millis(7500)).await;
            Ok(())
        })
    })
    .await;
    running.fake.heard("complete", 1).await;
    let beats = running.fake.told("heartbeat");
    assert!((3..=10).contains(&beats.len()), "{} heartbeats", beats.len());
    assert_eq!(beats[0], json!({"lease_token": "lease of t1", "lease_ms": 4500}));
    running.ended().await.expect("a clean end");
}

/// Says when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A handler that never ends, and the news of its end.
fn endless(worker: Worker, step: &str) -> (Worker, Arc<Notify>) {
    let dropped = Arc::new(Notify::new());
    let told = dropped.clone();
    let worker = worker.on(step, move |_| {
        let guard = Dropped(told.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(())
        }
    });
    (worker, dropped)
}

async fn soon(what: &Notify) {
    tokio::time::timeout(Duration::from_secs(20), what.notified()).await.expect("in time");
}

#[tokio::test]
async fn a_lost_lease_drops_the_handler_and_nothing_is_reported() {
    let mut news = None;
    let instead = [("heartbeat", 409, "lease-lost")];
    let running = Running::start_with(vec![task("t1", "endless"), task("t2", "next")], &instead, |worker| {
        let (worker, dropped) = endless(worker.lease(Duration::from_secs(3)), "endless");
        news = Some(dropped);
        worker.on("next", |_| async { Ok(()) })
    })
    .await;
    soon(&news.expect("made")).await;
    // The slot is free again.
    let completed = running.fake.heard("complete", 1).await;
    assert_eq!(completed[0]["lease_token"], "lease of t2");
    for verb in ["retry", "dead", "wait"] {
        assert!(running.fake.told(verb).is_empty(), "{verb}");
    }
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_handler_that_learns_of_the_loss_by_itself_is_not_reported_either() {
    let instead = [("heartbeat", 409, "lease-lost")];
    let running = Running::start_with(vec![task("t1", "careful"), task("t2", "next")], &instead, |worker| {
        worker
            .on("careful", |task| async move {
                task.heartbeat().now().await?;
                Ok(())
            })
            .on("next", |_| async { Ok(()) })
    })
    .await;
    let completed = running.fake.heard("complete", 1).await;
    assert_eq!(completed[0]["lease_token"], "lease of t2");
    assert!(running.fake.told("retry").is_empty());
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_server_that_cannot_be_asked_until_the_lease_is_over_has_taken_the_task_back() {
    let mut news = None;
    let instead = [("heartbeat", 503, "recording-failure"); 100];
    let running = Running::start_with(vec![task("t1", "endless")], &instead, |worker| {
        let (worker, dropped) = endless(worker.lease(Duration::from_secs(3)), "endless");
        news = Some(dropped);
        worker
    })
    .await;
    soon(&news.expect("made")).await;
    assert!(running.fake.told("heartbeat").len() >= 2);
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_report_is_repeated_while_the_server_cannot_take_it() {
    let instead = [
        ("claim", 503, "recording-failure"),
        ("complete", 503, "recording-failure"),
        ("complete", 429, "overloaded"),
        ("complete", 502, "x"),
    ];
    let running =
        Running::start_with(vec![task("t1", "a")], &instead, |worker| worker.on("a", |_| async { Ok(()) })).await;
    let completed = running.fake.heard("complete", 4).await;
    assert!(completed.iter().all(|body| *body == completed[0]), "{completed:?}");
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_report_is_not_repeated_beyond_the_lease_nor_after_a_no() {
    let mut instead = vec![("complete", 503, "recording-failure"); 100];
    let lease = Duration::from_secs(3);
    let made = |worker: Worker| worker.lease(lease).on("a", |_| async { Ok(()) });
    let running = Running::start_with(vec![task("t1", "a")], &instead, made).await;
    running.fake.heard("claim", 2).await;
    let said = running.fake.told("complete").len();
    assert!((1..=10).contains(&said), "{said}");
    running.ended().await.expect("a clean end");

    instead = vec![("complete", 409, "lease-lost")];
    let running = Running::start_with(vec![task("t1", "a")], &instead, made).await;
    running.fake.heard("claim", 2).await;
    assert_eq!((running.fake.told("complete").len(), running.fake.told("retry").len()), (1, 0));
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_result_that_the_server_will_never_take_is_a_failure_of_the_step() {
    let instead = [("complete", 413, "too-large")];
    let running =
        Running::start_with(vec![task("t1", "a")], &instead, |worker| worker.on("a", |_| async { Ok(()) })).await;
    let retry = running.fake.heard("retry", 1).await;
    assert_eq!(retry[0]["last_error"], "the server refused the result: too-large: as told");
    assert_eq!(retry[0]["error_category"], "agent_error");
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_panic_is_an_agent_error_and_ends_nothing_else() {
    let running = Running::start(vec![task("t1", "bad"), task("t2", "good")], |worker| {
        worker
            .on("bad", |task| async move {
                assert!(task.attempt() > 99, "attempt {} is too early", task.attempt());
                Ok(())
            })
            .on("good", |_| async { Ok(()) })
    })
    .await;
    let retry = running.fake.heard("retry", 1).await;
    assert_eq!(retry[0]["last_error"], "the handler panicked: attempt 2 is too early");
    assert_eq!(retry[0]["error_category"], "agent_error");
    assert_eq!(running.fake.heard("complete", 1).await[0]["lease_token"], "lease of t2");
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn undoing_is_never_left_to_the_handler_that_does() {
    let mut undo = task("t1", "account");
    undo["task_type"] = "COMPENSATION".into();
    let mut other = task("t2", "workspace");
    other["task_type"] = "COMPENSATION".into();
    let running = Running::start(vec![undo, other, task("t3", "unknown")], |worker| {
        worker
            .on("account", |_| async { Ok(json!("done")) })
            .on("workspace", |_| async { Ok(json!("done")) })
            .on_compensation("account", |_| async { Ok(json!("undone")) })
    })
    .await;
    assert_eq!(running.fake.heard("complete", 1).await[0]["output"], "undone");
    let retries = running.fake.heard("retry", 2).await;
    let told = "worker `w1` has no handler for this: register one with on_compensation(\"workspace\", …)";
    assert_eq!(retries[0]["last_error"], told);
    assert_eq!(retries[1]["last_error"], "worker `w1` has no handler for this: register one with on(\"unknown\", …)");
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn shutdown_lets_handlers_finish_and_begins_nothing_new() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), go.clone());
    let mut running = Running::start(vec![task("t1", "a"), task("t2", "a")], |worker| {
        worker.on("a", move |_| {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                tell.notify_one();
                wait.notified().await;
                Ok(())
            }
        })
    })
    .await;
    soon(&begun).await;
    running.stop();
    // The worker has to notice before the handler ends, or it may well ask for the next task.
    tokio::time::sleep(Duration::from_millis(100)).await;
    go.notify_one();
    let fake = running.fake.clone();
    running.ended().await.expect("a clean end");
    let completed = fake.told("complete");
    assert_eq!(completed, [json!({"lease_token": "lease of t1", "output": null})]);
    assert_eq!(fake.tasks.lock().expect("tasks").len(), 1, "the second task was not taken");
    let goodbyes = fake.told("leave");
    assert_eq!(
        (goodbyes.len(), &goodbyes[0]["worker_id"]),
        (1, &fake.told("claim")[0]["worker_id"]),
        "it says goodbye"
    );
}

#[tokio::test]
async fn after_the_grace_time_handlers_are_dropped_unreported() {
    let mut news = None;
    let mut running = Running::start(vec![task("t1", "endless")], |worker| {
        let (worker, dropped) =
            endless(worker.grace(Duration::from_millis(100)).lease(Duration::from_secs(3)), "endless");
        news = Some(dropped);
        worker
    })
    .await;
    running.fake.heard("heartbeat", 1).await;
    running.stop();
    soon(&news.expect("made")).await;
    let fake = running.fake.clone();
    running.ended().await.expect("a clean end");
    assert!(fake.told("complete").is_empty() && fake.told("retry").is_empty() && fake.told("dead").is_empty());
}

#[tokio::test]
async fn a_worker_that_may_not_work_says_so_and_ends() {
    let instead = [("claim", 403, "permission-denied")];
    let running = Running::start_with(vec![], &instead, |worker| worker).await;
    let ended =
        tokio::time::timeout(Duration::from_secs(20), running.worker).await.expect("it ends").expect("no panic");
    assert_eq!(ended.expect_err("refused").code(), Some("permission-denied"));
}

#[test]
fn pauses_grow_and_stay_bounded() {
    let mut backoff = Backoff::new();
    assert_eq!(backoff.due(), Duration::ZERO);
    backoff.arm();
    assert!(backoff.due() >= Backoff::FIRST / 2);
    for _ in 0..20 {
        assert!(backoff.next() <= Backoff::LONGEST);
    }
    assert!(backoff.next() >= Backoff::LONGEST / 2);
}

#[test]
fn a_worker_is_named_after_program_host_and_process() {
    let name = default_worker_id();
    assert_eq!(name.split(':').count(), 4, "{name}");
    assert_ne!(name, default_worker_id());
}
