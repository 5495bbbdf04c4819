//! The outbox: an event becomes a delivery per webhook, one node at a time takes a delivery, and its result is kept.

use super::on_both;
use super::place::{Place, commit};
use super::samples::{run_id, small_head, small_run, start};
use countersign_engine::port::outbox::{Delivery, DeliveryReplay, DeliveryState, Outbox, OutboxView, Settled};
use countersign_engine::port::{Page, Store, Writer};
use countersign_engine::rows::{GovernanceWrite, OutboxRow, ReplayRow, Write};
use countersign_kernel::governance::{Category, Subject};
use countersign_kernel::process::ReplayState;
use countersign_kernel::{InstanceId, ProblemId, Time};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

on_both! {
    an_event_goes_to_every_webhook_that_wants_it,
    what_is_taken_is_due_again_only_after_its_lease,
    two_nodes_take_different_deliveries,
    what_is_postponed_waits_and_what_is_given_up_is_dead,
    a_late_answer_changes_only_what_is_still_open,
    only_an_approved_request_has_it_tried_again_once,
    a_unit_that_lost_sends_nothing,
}

const LEASE: Duration = Duration::from_secs(60);
const ALL: Page = Page { after: None, limit: 100, descending: false };

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time(i64::try_from(since.as_micros()).unwrap())
}

fn event_id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn event(n: u128, event_type: &str) -> OutboxRow {
    OutboxRow {
        outbox_id: event_id(n),
        instance_id: run_id(1),
        event_type: event_type.to_owned(),
        step: (n == 1).then(|| Arc::from("PAY")),
        data: Arc::from("{\"n\":1}"),
        // Ahead of every clock: an event is due when it is there.
        created_at: Time(9_000_000_000_000_000),
        inside: false,
    }
}

/// A store with these events in its outbox; the writer keeps it open.
async fn store_with(place: &Place, events: Vec<OutboxRow>) -> (Box<dyn Outbox>, Box<dyn Outbox>, Box<dyn Writer>) {
    let store: Box<dyn Store> = crate::open(&place.url).await.unwrap();
    let (one, other) = (store.outbox().unwrap(), store.outbox().unwrap());
    let (mut writer, _) = store.into_parts();
    let mut unit = start(small_run(run_id(1)), small_head(run_id(1), "executing"), []);
    unit.writes.extend(events.into_iter().map(Write::Outbox));
    commit(&mut *writer, vec![unit]).await;
    (one, other, writer)
}

fn wanted(event_type: &str) -> Vec<Arc<str>> {
    match event_type {
        "nobody's" => vec![],
        "a's" => vec!["a".into()],
        _ => vec!["a".into(), "b".into()],
    }
}

async fn all(outbox: &mut dyn Outbox) -> Vec<OutboxView> {
    outbox.list(None, &ALL).await.unwrap()
}

fn ids(taken: &[Delivery]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = taken.iter().map(|delivery| delivery.outbox_id).collect();
    ids.sort_unstable();
    ids
}

async fn an_event_goes_to_every_webhook_that_wants_it(place: &Place) {
    let events = vec![event(1, "both's"), event(2, "a's"), event(3, "nobody's")];
    let (mut outbox, _, _writer) = store_with(place, events).await;
    assert!(outbox.take("a", now(), LEASE, 10).await.unwrap().is_empty());
    assert_eq!(outbox.spread(&wanted, 2).await.unwrap(), 2);
    assert_eq!(outbox.spread(&wanted, 2).await.unwrap(), 1);
    assert_eq!(outbox.spread(&wanted, 2).await.unwrap(), 0);
    let a = outbox.take("a", now(), LEASE, 10).await.unwrap();
    let b = outbox.take("b", now(), LEASE, 10).await.unwrap();
    assert_eq!((ids(&a), ids(&b)), (vec![event_id(1), event_id(2)], vec![event_id(1)]));
    let expected = Delivery {
        outbox_id: event_id(1),
        webhook: "b".into(),
        instance_id: run_id(1),
        event_type: "both's".to_owned(),
        step: Some("PAY".to_owned()),
        created_at: Time(9_000_000_000_000_000),
        data: "{\"n\":1}".to_owned(),
        attempt: 1,
        replay: None,
    };
    assert_eq!(b, vec![expected]);
    let state = async |outbox: &mut dyn Outbox, i: usize| all(outbox).await[i].state;
    assert_eq!(state(&mut *outbox, 2).await, DeliveryState::Delivered);
    assert!(outbox.settle(&b[0], &Settled::Delivered, now()).await.unwrap());
    assert_eq!(state(&mut *outbox, 0).await, DeliveryState::Pending);
    for delivery in &a {
        assert!(outbox.settle(delivery, &Settled::Delivered, now()).await.unwrap());
    }
    let views = all(&mut *outbox).await;
    assert!(views.iter().all(|view| view.state == DeliveryState::Delivered), "{views:#?}");
    assert!(views[0].deliveries.iter().all(|delivery| delivery.settled_at.is_some() && delivery.attempts == 1));
    assert_eq!(outbox.list(Some(DeliveryState::Delivered), &ALL).await.unwrap().len(), 3);
    let page = Page { after: Some(event_id(2)), limit: 1, descending: true };
    let page = outbox.list(Some(DeliveryState::Delivered), &page).await.unwrap();
    assert_eq!(page.iter().map(|view| view.outbox_id).collect::<Vec<_>>(), vec![event_id(1)]);
    assert!(outbox.list(Some(DeliveryState::Pending), &ALL).await.unwrap().is_empty());
}

/// What there is to take once its time has come.
async fn taken_later(outbox: &mut dyn Outbox, sink: &str) -> Vec<Delivery> {
    for _ in 0..600 {
        let taken = outbox.take(sink, now(), LEASE, 10).await.unwrap();
        if !taken.is_empty() {
            return taken;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing was due");
}

async fn what_is_taken_is_due_again_only_after_its_lease(place: &Place) {
    let (mut outbox, mut other, _writer) = store_with(place, vec![event(1, "a's")]).await;
    outbox.spread(&wanted, 10).await.unwrap();
    let first = outbox.take("a", now(), Duration::from_secs(5), 10).await.unwrap();
    assert_eq!(first.len(), 1);
    assert!(other.take("a", now(), LEASE, 10).await.unwrap().is_empty());
    // The node that took it died before it reported the result.
    let again = taken_later(&mut *other, "a").await;
    assert_eq!((ids(&again), again[0].attempt), (ids(&first), 2));
}

async fn two_nodes_take_different_deliveries(place: &Place) {
    let events = (1..=200).map(|n| event(n, "a's")).collect();
    let (mut one, mut other, _writer) = store_with(place, events).await;
    let spread = async |outbox: &mut dyn Outbox| {
        let mut count = 0;
        loop {
            match outbox.spread(&wanted, 7).await.unwrap() {
                0 => return count,
                more => count += more,
            }
        }
    };
    // On SQLite one process has the file, and one task of it spreads.
    let spread = if place.is_postgres {
        let (a, b) = tokio::join!(spread(&mut *one), spread(&mut *other));
        a + b + spread(&mut *one).await
    } else {
        spread(&mut *one).await
    };
    assert_eq!(spread, 200);
    let take = async |outbox: &mut dyn Outbox| {
        let mut taken = Vec::new();
        for _ in 0..60 {
            taken.extend(outbox.take("a", now(), LEASE, 5).await.unwrap());
        }
        taken
    };
    let (mut a, b) = tokio::join!(take(&mut *one), take(&mut *other));
    a.extend(b);
    let mut seen = ids(&a);
    seen.dedup();
    assert_eq!((a.len(), seen.len()), (200, 200));
}

async fn what_is_postponed_waits_and_what_is_given_up_is_dead(place: &Place) {
    let (mut outbox, _, _writer) = store_with(place, vec![event(1, "both's")]).await;
    outbox.spread(&wanted, 10).await.unwrap();
    let a = outbox.take("a", now(), LEASE, 1).await.unwrap().remove(0);
    let pause = Duration::from_secs(5);
    assert!(outbox.settle(&a, &Settled::Postponed { error: "busy".to_owned(), pause }, now()).await.unwrap());
    assert!(outbox.take("a", now(), LEASE, 1).await.unwrap().is_empty());
    let b = outbox.take("b", now(), LEASE, 1).await.unwrap().remove(0);
    assert!(outbox.settle(&b, &Settled::Dead { error: "gone".to_owned() }, now()).await.unwrap());
    // One of its deliveries is still on its way.
    let view = all(&mut *outbox).await.remove(0);
    assert_eq!(view.state, DeliveryState::Pending);
    let shown: Vec<_> = view.deliveries.iter().map(|d| (d.state, d.last_error.as_deref())).collect();
    assert_eq!(shown, vec![(DeliveryState::Pending, Some("busy")), (DeliveryState::Dead, Some("gone"))]);
    assert!(view.deliveries[0].next_attempt_at.is_some() && view.deliveries[1].next_attempt_at.is_none());
    let a = taken_later(&mut *outbox, "a").await.remove(0);
    assert_eq!(a.attempt, 2);
    assert!(outbox.settle(&a, &Settled::Delivered, now()).await.unwrap());
    let dead = outbox.list(Some(DeliveryState::Dead), &ALL).await.unwrap();
    assert_eq!((dead.len(), dead[0].deliveries[0].last_error.as_deref()), (1, None));
}

async fn a_late_answer_changes_only_what_is_still_open(place: &Place) {
    let (mut outbox, _, _writer) = store_with(place, vec![event(1, "a's"), event(2, "a's")]).await;
    outbox.spread(&wanted, 10).await.unwrap();
    let first = outbox.take("a", now(), Duration::ZERO, 10).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = outbox.take("a", now(), LEASE, 10).await.unwrap();
    assert_eq!((first.len(), second.len()), (2, 2));
    // It is another node's now, which says whether it failed; but what was delivered was delivered.
    for late in [Settled::Dead { error: "x".to_owned() }, Settled::Postponed { error: "x".to_owned(), pause: LEASE }] {
        assert!(!outbox.settle(&first[0], &late, now()).await.unwrap());
    }
    assert!(outbox.settle(&first[0], &Settled::Delivered, now()).await.unwrap());
    let same = second.iter().find(|delivery| delivery.outbox_id == first[0].outbox_id).unwrap();
    assert!(!outbox.settle(same, &Settled::Dead { error: "x".to_owned() }, now()).await.unwrap());
    let delivered = outbox.list(Some(DeliveryState::Delivered), &ALL).await.unwrap();
    assert_eq!(delivered.len(), 1);
}

/// A request of this number for the delivery of event 1 to `b`, as far as its gate has brought it.
async fn requested(writer: &mut dyn Writer, n: u128, state: ReplayState) -> DeliveryReplay {
    let request_id = InstanceId(Uuid::from_u128(1_000 + n));
    let row = ReplayRow {
        request_id,
        dead_letter_id: ProblemId(Uuid::from_u128(n)),
        requested_by: "ann".to_owned(),
        requested_at: Time(4),
        state: ReplayState::Requested,
        approval_id: None,
        completed: None,
    };
    let approval_id = Some(Uuid::from_u128(8));
    let writes = vec![
        Write::Governance(GovernanceWrite::RequestReplay(row)),
        Write::Governance(GovernanceWrite::DecideReplay { request_id, state, approval_id }),
    ];
    commit(writer, vec![super::samples::unit(request_id, 0, writes)]).await;
    let subject = Subject {
        category: Category::Dlq,
        key: format!("{}.b", event_id(1)),
        run_id: Some(run_id(1)),
        step: None,
        worker_class: None,
    };
    let (requested_by, webhook) = ("ann".to_owned(), "b".to_owned());
    DeliveryReplay { request_id, requested_by, outbox_id: event_id(1), webhook, subject }
}

async fn only_an_approved_request_has_it_tried_again_once(place: &Place) {
    let (mut outbox, mut other, mut writer) = store_with(place, vec![event(1, "both's")]).await;
    outbox.spread(&wanted, 10).await.unwrap();
    let a = outbox.take("a", now(), LEASE, 1).await.unwrap().remove(0);
    let b = outbox.take("b", now(), LEASE, 1).await.unwrap().remove(0);
    outbox.settle(&a, &Settled::Delivered, now()).await.unwrap();
    outbox.settle(&b, &Settled::Dead { error: "gone".to_owned() }, now()).await.unwrap();
    for (n, state) in [(1, ReplayState::Requested), (2, ReplayState::Rejected), (3, ReplayState::Withdrawn)] {
        let replay = requested(&mut *writer, n, state).await;
        assert!(!outbox.replay(&replay, Time(5)).await.unwrap(), "{state:?}");
    }
    assert!(outbox.take("b", now(), LEASE, 1).await.unwrap().is_empty());
    let replay = requested(&mut *writer, 4, ReplayState::Approved).await;
    let (one, two) = tokio::join!(outbox.replay(&replay, Time(5)), other.replay(&replay, Time(6)));
    assert!(one.unwrap() != two.unwrap(), "one of two nodes does it");
    assert!(!outbox.replay(&replay, Time(7)).await.unwrap());
    assert!(outbox.take("a", now(), LEASE, 1).await.unwrap().is_empty());
    let again = outbox.take("b", now(), LEASE, 1).await.unwrap().remove(0);
    assert_eq!((again.attempt, again.data.as_str()), (1, "{\"n\":1}"));
    assert_eq!(again.replay, Some(replay.request_id));
    outbox.settle(&again, &Settled::Dead { error: "gone again".to_owned() }, now()).await.unwrap();
    assert!(!outbox.replay(&replay, Time(8)).await.unwrap(), "that needs another request");
    assert!(outbox.take("b", now(), LEASE, 1).await.unwrap().is_empty());
    let view = all(&mut *outbox).await.remove(0);
    assert_eq!((view.state, view.replayed.map(|(by, _)| by)), (DeliveryState::Dead, Some("ann".to_owned())));
}

async fn a_unit_that_lost_sends_nothing(place: &Place) {
    let (mut outbox, _, mut writer) = store_with(place, vec![]).await;
    let mut unit = super::samples::unit(run_id(1), 7, vec![]);
    unit.writes.push(Write::Outbox(event(1, "a's")));
    let verdicts = super::place::verdicts(&mut *writer, vec![unit]).await;
    assert_eq!(verdicts, vec![countersign_engine::port::Verdict::Lost]);
    assert_eq!(outbox.spread(&wanted, 10).await.unwrap(), 0);
}
