//! Sends committed events to sinks (webhooks, streams of NATS, and notices to people), at least once (`spec/webhooks.md`). One task gives each
//! event its deliveries; each sink has a task of its own, so that a slow one keeps nobody else waiting. Without sinks
//! nothing runs, and events wait.
//!
//! What is taken is sent at once. Between the answer and its being noted lies the only moment at which a crash makes an
//! event arrive twice.

mod backoff;
mod mail;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod notice;

pub use backoff::Pace;

use crate::config::{Encryption, NotifyWay, Secret, Sink, Way};
use anyhow::Context;
use backoff::Answer;
use countersign_engine::Engine;
use countersign_engine::port::outbox::{Delivery, Settled};
use countersign_engine::run::door::{EVENTS, Undelivered};
use countersign_executor::http::{Destination, HttpExecutor};
use mail::Mailer;
use notice::Notice;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Messages on their way to one sink at a time.
const IN_FLIGHT: usize = 16;
/// How long this server may take for an event of its own before another node tries.
const INSIDE_TIMEOUT: Duration = Duration::from_secs(60);
/// Events that are given their deliveries in one transaction.
const SPREAD: usize = 256;
/// How long messages under way may take once we are asked to stop.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often, and how far apart, it is tried to note what became of a delivery.
const NOTES: u32 = 5;
const NOTE_AGAIN: Duration = Duration::from_millis(500);

const DELIVERIES: &str = "countersign_outbox_deliveries_total";

pub fn describe_metrics() {
    metrics::describe_counter!(
        DELIVERIES,
        "Messages to webhooks and NATS by their name (webhook) and result (delivered, postponed, dead)"
    );
}

/// The tasks that deliver. Dropping it ends them at once; [`Deliveries::finish`] lets them end what they began.
pub struct Deliveries {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Deliveries {
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        let until = Instant::now() + FAREWELL;
        for task in std::mem::take(&mut self.tasks) {
            let abort = task.abort_handle();
            if tokio::time::timeout_at(until, task).await.is_err() {
                abort.abort();
            }
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Starts delivering: what steps send to this server itself, and all else where there is anywhere to deliver to.
pub fn start(engine: &Arc<Engine>, sinks: Vec<Sink>, pace: Pace) -> anyhow::Result<Deliveries> {
    let (stop, stopped) = watch::channel(false);
    let wake = engine.outbox_wake();
    if sinks.is_empty() {
        let route = Route::inside(engine, pace);
        return Ok(Deliveries { stop, tasks: vec![tokio::spawn(deliver(route, wake, stopped))] });
    }
    let mut tasks = Vec::new();
    let http = HttpExecutor::new().map_err(anyhow::Error::msg).context("nothing can be sent to webhooks")?;
    let inside = Arc::new(Notify::new());
    tasks.push(tokio::spawn(deliver(Route::inside(engine, pace), inside.clone(), stopped.clone())));
    let mut mailmen = vec![inside];
    for sink in &sinks {
        let carrier = Carrier::to(sink, &http).with_context(|| format!("events cannot be sent to {:?}", sink.name))?;
        let (name, engine) = (sink.name.clone(), Arc::downgrade(engine));
        let route =
            Arc::new(Route { name, timeout: sink.timeout, max_attempts: sink.max_attempts, carrier, engine, pace });
        let wake = Arc::new(Notify::new());
        tasks.push(tokio::spawn(deliver(route, wake.clone(), stopped.clone())));
        mailmen.push(wake);
    }
    tasks.push(tokio::spawn(spread(Arc::downgrade(engine), sinks, wake, mailmen, pace, stopped)));
    Ok(Deliveries { stop, tasks })
}

/// What takes messages to a sink.
enum Carrier {
    Http {
        http: HttpExecutor,
        to: Destination,
        secret: Secret,
    },
    #[cfg(feature = "nats")]
    Nats(Box<nats::Stream>),
    /// Notices to people, with links below this origin.
    Mail {
        mailer: Box<Mailer>,
        origin: Arc<str>,
    },
    Notices {
        http: HttpExecutor,
        to: Destination,
        secret: Secret,
        origin: Arc<str>,
    },
    /// What this server's own steps send, to what listens here.
    Inside(Weak<Engine>),
}

impl Carrier {
    fn to(sink: &Sink, http: &HttpExecutor) -> anyhow::Result<Carrier> {
        let encrypted = match &sink.way {
            Way::Webhook { to, .. } => {
                tracing::info!(webhook = %sink.name, to = to.shown(), "events are sent to this webhook");
                to.is_encrypted()
            }
            Way::Nats(target) => {
                tracing::info!(nats = %sink.name, to = ?target.servers, subject = target.subject, "events are published to NATS");
                target.is_encrypted()
            }
            Way::Notify(target) => match &target.by {
                NotifyWay::Mail(mail) => {
                    tracing::info!(notify = %sink.name, host = mail.host, port = mail.port, "notifications go out by mail");
                    mail.encryption != Encryption::None
                }
                NotifyWay::Webhook { to, .. } => {
                    tracing::info!(notify = %sink.name, to = to.shown(), "notices are sent to this webhook");
                    to.is_encrypted()
                }
            },
        };
        if !encrypted {
            tracing::warn!(sink = %sink.name, "events may leave without encryption");
        }
        match &sink.way {
            Way::Webhook { to, secret } => {
                Ok(Carrier::Http { http: http.clone(), to: to.clone(), secret: secret.clone() })
            }
            #[cfg(feature = "nats")]
            Way::Nats(target) => {
                let stream = nats::Stream::new(&sink.name, target, sink.timeout)?;
                Ok(Carrier::Nats(Box::new(stream)))
            }
            Way::Notify(target) => {
                let origin = target.origin.clone();
                Ok(match &target.by {
                    NotifyWay::Mail(mail) => {
                        Carrier::Mail { mailer: Box::new(Mailer::new(mail, sink.timeout)?), origin }
                    }
                    NotifyWay::Webhook { to, secret } => {
                        Carrier::Notices { http: http.clone(), to: to.clone(), secret: secret.clone(), origin }
                    }
                })
            }
            #[cfg(not(feature = "nats"))]
            Way::Nats(_) => anyhow::bail!("this program was built without NATS"),
        }
    }

    async fn carry(&self, delivery: &Delivery) -> Answer {
        match self {
            Carrier::Http { http, to, secret } => post(http, to, secret, delivery, message::body(delivery)).await,
            #[cfg(feature = "nats")]
            Carrier::Nats(stream) => stream.publish(delivery, message::body(delivery)).await,
            Carrier::Mail { .. } | Carrier::Notices { .. } if Notice::is_repeated(delivery) => Answer::Taken,
            Carrier::Mail { mailer, origin } => match Notice::of(delivery, origin) {
                Some(notice) => mailer.send(delivery, &notice, origin).await,
                None => Answer::Never(NO_NOTICE.to_owned()),
            },
            Carrier::Notices { http, to, secret, origin } => match Notice::of(delivery, origin) {
                Some(notice) => post(http, to, secret, delivery, notice.body(delivery)).await,
                None => Answer::Never(NO_NOTICE.to_owned()),
            },
            Carrier::Inside(engine) => match engine.upgrade() {
                Some(engine) => inside(&engine, delivery).await,
                None => Answer::later("the server is stopping"),
            },
        }
    }
}

async fn inside(engine: &Arc<Engine>, delivery: &Delivery) -> Answer {
    match engine.deliver_inside(delivery).await {
        Ok(()) => Answer::Taken,
        Err(Undelivered { error, passes: true }) => Answer::later(error),
        Err(Undelivered { error, passes: false }) => Answer::Never(error),
    }
}

const NO_NOTICE: &str = "no notification is about this event";

/// Signed, and with the event's id, by which a receiver knows what it has seen before.
async fn post(http: &HttpExecutor, to: &Destination, secret: &Secret, delivery: &Delivery, body: String) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let headers = [
        ("content-type", message::MEDIA_TYPE.to_owned()),
        (message::SIGNATURE, message::signature(secret, now, &body)),
        ("idempotency-key", delivery.outbox_id.to_string()),
    ];
    http.post(to, &headers, body.into_bytes()).await.into()
}

/// Gives events their deliveries as they are committed, and wakes whoever makes these.
async fn spread(
    engine: Weak<Engine>,
    sinks: Vec<Sink>,
    wake: Arc<Notify>,
    mailmen: Vec<Arc<Notify>>,
    pace: Pace,
    mut stopped: watch::Receiver<bool>,
) {
    let wanted = |event_type: &str| -> Vec<Arc<str>> {
        sinks.iter().filter(|sink| sink.wants(event_type)).map(|sink| sink.name.clone()).collect()
    };
    while !*stopped.borrow() {
        let Some(held) = engine.upgrade() else { return };
        let spread = held.spread_outbox(&wanted, SPREAD).await;
        drop(held);
        match spread {
            Ok(0) => {}
            Ok(count) => {
                mailmen.iter().for_each(|mailman| mailman.notify_one());
                if count == SPREAD {
                    continue;
                }
            }
            Err(error) => tracing::warn!(%error, "the outbox cannot be read; it is tried again"),
        }
        tokio::select! {
            _ = stopped.changed() => return,
            // A replay makes no new deliveries, but old ones are due again.
            () = wake.notified() => mailmen.iter().for_each(|mailman| mailman.notify_one()),
            () = tokio::time::sleep(pace.look) => {}
        }
    }
}

/// One sink and the way there.
struct Route {
    name: Arc<str>,
    timeout: Duration,
    max_attempts: u64,
    carrier: Carrier,
    engine: Weak<Engine>,
    pace: Pace,
}

/// Takes what is due and sends it, for as long as the engine lives.
async fn deliver(route: Arc<Route>, wake: Arc<Notify>, mut stopped: watch::Receiver<bool>) {
    let mut sending = JoinSet::new();
    // Whether something may be due; and when it is looked for at the latest.
    let (mut hungry, mut look_at) = (true, Instant::now());
    while !*stopped.borrow() {
        let room = IN_FLIGHT - sending.len();
        if hungry && room > 0 {
            let Some(taken) = route.take(room).await else { return };
            hungry = taken.len() == room;
            look_at = Instant::now() + route.pace.look;
            for delivery in taken {
                let route = route.clone();
                sending.spawn(async move { route.send(&delivery).await });
            }
        }
        tokio::select! {
            _ = stopped.changed() => {}
            Some(_) = sending.join_next() => {}
            () = wake.notified(), if !hungry => hungry = true,
            () = tokio::time::sleep_until(look_at), if !hungry => hungry = true,
        }
    }
    // What was taken is sent; whoever stops us says how long that may take.
    while sending.join_next().await.is_some() {}
}

impl Route {
    /// The way back into this server.
    fn inside(engine: &Arc<Engine>, pace: Pace) -> Arc<Route> {
        let engine = Arc::downgrade(engine);
        let carrier = Carrier::Inside(engine.clone());
        Arc::new(Route { name: EVENTS.into(), timeout: INSIDE_TIMEOUT, max_attempts: u64::MAX, carrier, engine, pace })
    }

    /// `None`: the engine is gone.
    async fn take(&self, room: usize) -> Option<Vec<Delivery>> {
        let lease = self.timeout + self.pace.margin;
        match self.engine.upgrade()?.take_deliveries(&self.name, lease, room).await {
            Ok(taken) => Some(taken),
            Err(error) => {
                tracing::warn!(%error, "the outbox cannot be read; it is tried again");
                Some(vec![])
            }
        }
    }

    async fn send(&self, delivery: &Delivery) {
        let answer = self.carrier.carry(delivery).await;
        let settled = self.pace.judge(answer, delivery.attempt, self.max_attempts);
        let (webhook, outbox_id, attempt) = (&self.name, delivery.outbox_id, delivery.attempt);
        let result = match &settled {
            Settled::Delivered => {
                tracing::debug!(%webhook, %outbox_id, attempt, "delivered");
                "delivered"
            }
            Settled::Postponed { error, pause } => {
                tracing::info!(%webhook, %outbox_id, attempt, error, ?pause, "not delivered; it is tried again");
                "postponed"
            }
            Settled::Dead { error } => {
                tracing::warn!(%webhook, %outbox_id, attempt, error, "not delivered, and not tried again");
                "dead"
            }
        };
        metrics::counter!(DELIVERIES, "webhook" => webhook.to_string(), "result" => result).increment(1);
        self.note(delivery, &settled).await;
    }

    /// What cannot be noted is sent again when its lease is over.
    async fn note(&self, delivery: &Delivery, settled: &Settled) {
        for _ in 0..NOTES {
            let Some(engine) = self.engine.upgrade() else { return };
            match engine.settle_delivery(delivery, settled).await {
                Ok(_) => return,
                Err(error) => {
                    let outbox_id = delivery.outbox_id;
                    tracing::warn!(%error, %outbox_id, "what became of a delivery could not be noted");
                }
            }
            drop(engine);
            tokio::time::sleep(NOTE_AGAIN).await;
        }
    }
}
