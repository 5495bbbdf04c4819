//! The live stream (ADR 42): server-sent events that say which topic moved and to which sequence, never what it says. A
//! reader reads again, with its own rights.
//!
//! An event's id says how far every topic of the stream has been told. A reader that comes back with it, to any node, is
//! told of each topic that has moved on since, and of every topic without a sequence. The stream holds no engine.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::session::Console;
use super::{App, Problem};
use crate::listen::Line;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::stream::{CutOff, Follow, News, Topic};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{InstanceId, Time};
use countersign_ledger::sha256;
use futures_util::stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

const LAST_EVENT_ID: &str = "last-event-id";
/// Tells proxies not to collect what is sent.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// How often something is sent where nothing moves.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Between two batches of events: what moves meanwhile shares the next one.
const PACE: Duration = Duration::from_millis(20);
/// When a reader that lost its connection comes back.
const RETRY: Duration = Duration::from_secs(1);
const KNOWN: &str = "run:<id>, process:<id>, runs, processes, inbox, worklist, ledger and governance";

/// How much one stream and one actor may follow.
#[derive(Clone, Copy)]
pub struct StreamLimits {
    pub topics: usize,
    pub per_actor: usize,
}

pub struct StreamTopics;

impl List for StreamTopics {
    const TAG: u8 = b'z';
    const AXES: &'static [Axis] = &[Axis::Text("topics")];
    const PAGED: bool = false;
}

/// Follow topics live, as server-sent events. Needs what the read of each topic needs: `runs:read`,
/// `workflows:read`, or a finer one, `audit:read` for `ledger` and `governance:read` for `governance`; `inbox` and `worklist` are the caller's own. A refusal names the
/// topics that it is about in `refused_topics`. `event: moved` says which topic
/// moved and, for a run or a process, to which sequence; `event: reload` says that events were lost and the stream ends. On
/// every connection each topic is told once, except those that have not moved since `Last-Event-ID`.
#[utoipa::path(get, path = "/v1/stream", tag = "stream",
    params(
        ("topics" = String, Query, description = "With commas between: `run:<id>`, `process:<id>`, `runs`, `processes`, `inbox`, `worklist`, `ledger`, `governance`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was received"),
    ),
    responses((status = 200, content_type = "text/event-stream", body = wire::Moved), Refused))]
pub async fn follow(
    State(app): State<App>,
    caller: Caller,
    params: Params<StreamTopics>,
    headers: HeaderMap,
    line: Option<Extension<Line>>,
) -> Result<Response, Problem> {
    let topics = parse(params.text("topics").as_deref(), app.streams.topics)?;
    let (names, topics): (Vec<String>, Vec<Topic>) = topics.into_iter().unzip();
    let cut_off: CutOff = match line {
        Some(Extension(line)) => Box::new(move || line.cut_off()),
        None => Box::new(|| {}),
    };
    let engine = app.engine()?;
    let session = caller.session.as_ref().map(|session| session.session_hash);
    let follow = match engine.follow(&caller.actor_ref, session, topics.clone(), app.streams.per_actor, cut_off).await {
        Ok(follow) => follow,
        Err(refusal) => return Ok(refused(&engine, &caller, refusal, names, topics).await),
    };
    let last = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let session_ends = caller.session.as_ref().map(|session| in_time(&engine, session.expires_at));
    let live = Live::new(app.engine, app.console, caller, session_ends, follow, names, last);
    let events = Sse::new(stream::unfold(live, Live::next)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([(BUFFERING, "no")], events).into_response())
}

/// A stream that is refused names the topics that it is refused for: without them it would begin.
async fn refused(
    engine: &Engine,
    caller: &Caller,
    refusal: Refusal,
    names: Vec<String>,
    topics: Vec<Topic>,
) -> Response {
    let mut refused_topics = vec![];
    for (name, topic) in names.into_iter().zip(topics) {
        if engine.would_refuse(&caller.actor_ref, topic).await {
            refused_topics.push(name);
        }
    }
    Problem::from(refusal).at("topics").with_members(wire::RefusedTopics { refused_topics })
}

/// The topics, each once, in the order of their names: in which order they were given makes no difference.
fn parse(text: Option<&str>, most: usize) -> Result<Vec<(String, Topic)>, Problem> {
    let refuse = |detail: String| Problem::invalid_query("topics", detail);
    let text = text.ok_or_else(|| refuse(format!("`topics` is missing; there are {KNOWN}")))?;
    let mut topics = Vec::new();
    for name in text.split(',') {
        let topic = topic(name).ok_or_else(|| {
            refuse(format!("`{}` is no topic; there are {KNOWN}", super::problem::shortened(name, 64)))
        })?;
        topics.push((name.to_owned(), topic));
        if topics.len() > most {
            return Err(refuse(format!("a stream has at most {most} topics (limits.stream_topics)")));
        }
    }
    topics.sort_unstable();
    topics.dedup_by(|a, b| a.1 == b.1);
    Ok(topics)
}

fn topic(name: &str) -> Option<Topic> {
    // Text that is no id of ours is like an id that is not there.
    let id = |text: &str| InstanceId::parse(text).unwrap_or(InstanceId(uuid::Uuid::max()));
    match (name, name.split_once(':')) {
        ("runs", _) => Some(Topic::Runs),
        ("processes", _) => Some(Topic::Processes),
        ("inbox", _) => Some(Topic::Inbox),
        ("worklist", _) => Some(Topic::Worklist),
        ("ledger", _) => Some(Topic::Ledger),
        ("governance", _) => Some(Topic::Governance),
        (_, Some(("run", text))) if !text.is_empty() => Some(Topic::Run(id(text))),
        (_, Some(("process", text))) if !text.is_empty() => Some(Topic::Process(id(text))),
        _ => None,
    }
}

/// A stream under way.
struct Live {
    engine: Weak<Engine>,
    console: Arc<Console>,
    caller: Caller,
    /// When the session that it was begun in ends, unless it is used. A stream alone uses no session.
    session_ends: Option<Instant>,
    follow: Follow,
    /// The topics as the reader wrote them.
    names: Vec<String>,
    /// The sequence that each topic was last told with.
    told: Vec<Option<u64>>,
    /// What every event id of these topics begins with.
    id_head: String,
    due: VecDeque<Event>,
    paces: bool,
    ends: bool,
}

impl Live {
    fn new(
        engine: Weak<Engine>,
        console: Arc<Console>,
        caller: Caller,
        session_ends: Option<Instant>,
        follow: Follow,
        names: Vec<String>,
        last: Option<&str>,
    ) -> Live {
        let head: String = sha256(&[names.join(",").as_bytes()]).to_string().chars().take(12).collect();
        let now = follow.sequences();
        let known = last.and_then(|last| known(last, &head, now.len())).unwrap_or_else(|| vec![None; now.len()]);
        // A topic that has no sequence may have moved.
        let is_told = |(now, known): (&Option<u64>, &Option<u64>)| now.is_some() && now <= known;
        let moved: Vec<usize> =
            (0..).zip(now.iter().zip(&known)).filter(|(_, pair)| !is_told(*pair)).map(|(n, _)| n).collect();
        let (due, told) = (VecDeque::new(), now);
        let mut live = Live {
            engine,
            console,
            caller,
            session_ends,
            follow,
            names,
            told,
            id_head: head,
            due,
            paces: false,
            ends: false,
        };
        let moved = moved.into_iter().map(|n| (n, live.told[n])).collect();
        live.push(moved);
        live
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Live)> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return Some((Ok(event), self));
            }
            if self.ends {
                return None;
            }
            if std::mem::take(&mut self.paces) {
                tokio::time::sleep(PACE).await;
            }
            let news = tokio::select! {
                news = self.follow.next() => news,
                () = until(self.session_ends) => News::SessionMoved,
            };
            match news {
                News::Moved(moved) => {
                    self.is_allowed().then_some(())?;
                    // What was committed while following began was told with the beginning.
                    let is_news =
                        |(n, sequence): &(usize, Option<u64>)| sequence.is_none() || *sequence > self.told[*n];
                    let moved = moved.into_iter().filter(is_news).collect();
                    self.push(moved);
                }
                News::LookAgain => self.is_allowed().then_some(())?,
                News::SessionMoved => self.is_signed_in().await.then_some(())?,
                News::TooSlow => {
                    self.due.push_back(Event::default().event("reload").data("{}"));
                    self.ends = true;
                }
                News::Closed => return None,
            }
        }
    }

    /// Whether the caller is still known by what it came with, and may still see all that it follows. Where not, the stream
    /// ends; who comes back is refused.
    fn is_allowed(&mut self) -> bool {
        let Some(engine) = self.engine.upgrade() else { return false };
        let is_known = self.caller.is_still_known(&engine.registry());
        is_known && engine.may_follow(&mut self.follow)
    }

    /// Whether the session goes on that the stream was begun in. Where not, the stream ends, as every request would be refused.
    async fn is_signed_in(&mut self) -> bool {
        let (Some(engine), Some(session)) = (self.engine.upgrade(), &self.caller.session) else { return false };
        match engine.look_at_session(&session.session_hash, self.console.lifetimes()).await {
            Ok(Some(session)) => self.session_ends = Some(in_time(&engine, session.expires_at)),
            Ok(None) => return false,
            Err(refusal) => {
                tracing::warn!(%refusal, "a session could not be looked at");
                self.session_ends = Some(Instant::now() + RETRY);
            }
        }
        true
    }

    /// The last one of a batch bears the id: who loses the connection within a batch is told all of it again.
    fn push(&mut self, moved: Vec<(usize, Option<u64>)>) {
        for (n, sequence) in &moved {
            self.told[*n] = self.told[*n].max(*sequence);
        }
        let id = self.id();
        let last = moved.len().saturating_sub(1);
        for (i, (n, sequence)) in moved.into_iter().enumerate() {
            let moved = wire::Moved { topic: self.names[n].clone(), sequence };
            let event = Event::default().event("moved").data(serde_json::json!(moved).to_string());
            self.due.push_back(if i == last { event.id(&id).retry(RETRY) } else { event });
            self.paces = true;
        }
    }

    fn id(&self) -> String {
        let told = self.told.iter().map(|sequence| sequence.map_or_else(|| "-".to_owned(), |n| n.to_string()));
        std::iter::once(self.id_head.clone()).chain(told).collect::<Vec<_>>().join(".")
    }
}

/// The engine's time as one that the runtime can wait for.
fn in_time(engine: &Engine, at: Time) -> Instant {
    let left = u64::try_from(at.0.saturating_sub(engine.now().0)).unwrap_or(0);
    Instant::now() + Duration::from_micros(left)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What an event id says of each topic; `None` where it is none of these topics.
fn known(id: &str, head: &str, topics: usize) -> Option<Vec<Option<u64>>> {
    let told: Vec<Option<u64>> =
        id.strip_prefix(head)?.strip_prefix('.')?.split('.').map(|text| text.parse().ok()).collect();
    (told.len() == topics).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_named_exactly_and_each_counts_once() {
        let names = |text: &str| parse(Some(text), 3).map(|topics| topics.into_iter().map(|(name, _)| name).collect());
        let ok = |text: &str| -> Vec<String> { names(text).unwrap_or_else(|_| panic!("{text}")) };
        assert_eq!(ok("worklist,inbox"), ["inbox", "worklist"]);
        assert_eq!(ok("inbox,inbox"), ["inbox"]);
        assert_eq!(ok("run:nonsense"), ["run:nonsense"], "like an id that is not there");
        for bad in
            ["", ",", "inbox,", " inbox", "run", "run:", "governance:1", "Runs", "runs:1", "inbox,runs,worklist,inbox"]
        {
            let refused: Result<Vec<String>, Problem> = names(bad);
            assert!(refused.is_err(), "{bad}");
        }
        assert!(parse(None, 3).is_err());
    }

    #[test]
    fn an_id_counts_for_the_topics_that_it_was_given_for() {
        assert_eq!(known("abc.5.-.12", "abc", 3), Some(vec![Some(5), None, Some(12)]));
        for other in ["", "abc", "abc.5", "abd.5.-.12", "abc.5.-.12.1", "5.-.12"] {
            assert_eq!(known(other, "abc", 3), None, "{other}");
        }
    }
}
