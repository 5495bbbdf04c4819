//! Subscriptions of a hub, without an engine.

use super::*;
use countersign_kernel::InstanceId;
use uuid::Uuid;

fn instance(n: u128) -> Key {
    Key::Instance(InstanceId(Uuid::from_u128(n)))
}

fn moved(keys: &[(Key, Option<u64>)]) -> Moves {
    let mut moves = Moves::default();
    keys.iter().for_each(|(key, sequence)| moves.insert(key.clone(), *sequence));
    moves
}

struct Stage {
    hub: Arc<Hub>,
    registry: watch::Sender<u64>,
    pump: tokio::task::JoinHandle<()>,
    cuts: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Stage {
        let (hub, registry) = (Arc::new(Hub::default()), watch::Sender::new(0));
        let pump = tokio::spawn(hub.clone().pump(registry.subscribe()));
        Stage { hub, registry, pump, cuts: Arc::default() }
    }

    fn subscribe(&self, keys: &[Key]) -> Subscription {
        let cuts = self.cuts.clone();
        let cut_off = Box::new(move || {
            cuts.fetch_add(1, Ordering::SeqCst);
        });
        let mut subscription = self.hub.subscribe("ada", 1000, cut_off).expect("a subscription");
        subscription.listen(keys.iter().cloned().zip(0..).collect());
        subscription
    }

    /// Until the pump has nothing left to do.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

#[tokio::test]
async fn a_subscription_hears_its_own_keys_once_with_their_highest_sequence() {
    let stage = Stage::new();
    let mut subscription = stage.subscribe(&[instance(1), Key::Inbox("ada".into()), Key::AllRuns]);
    let mut other = stage.subscribe(&[instance(2), Key::Inbox("bo".into()), Key::Runs("pay".into())]);
    for sequence in [3, 5, 4] {
        stage.hub.committed(moved(&[(instance(1), Some(sequence)), (instance(9), Some(1))]));
    }
    stage.hub.committed(moved(&[(Key::Runs("ship".into()), None)]));
    assert_eq!(subscription.next().await, News::Moved(vec![(0, Some(5)), (2, None)]));
    stage.hub.heard(moved(&[(Key::Inbox("ada".into()), None)]));
    assert_eq!(subscription.next().await, News::Moved(vec![(1, None)]));
    assert_eq!(other.waiting(), 0, "nothing of this was for the other one");
    stage.hub.heard(Moves::anything());
    assert_eq!(other.next().await, News::Moved(vec![(0, None), (1, None), (2, None)]));
}

#[tokio::test]
async fn what_is_not_taken_stays_one_entry_per_topic() {
    let stage = Stage::new();
    let subscription = stage.subscribe(&[instance(1), instance(2), Key::AllRuns]);
    for sequence in 1..=10_000 {
        let runs = (Key::Runs(format!("d{sequence}").into()), None);
        stage.hub.committed(moved(&[(instance(1), Some(sequence)), (instance(2), Some(sequence)), runs]));
        if sequence % 1000 == 0 {
            stage.settle().await;
        }
    }
    assert_eq!(subscription.waiting(), 3);
    assert!(stage.hub.take_leaving().is_empty(), "nobody else is there to be told");
}

#[tokio::test]
async fn a_reader_that_takes_nothing_loses_its_entries_and_is_cut_off_in_the_end() {
    let stage = Stage::new();
    let mut slow = stage.subscribe(&[instance(1)]);
    let mut quiet = stage.subscribe(&[instance(2)]);
    stage.hub.committed(moved(&[(instance(1), Some(1))]));
    stage.settle().await;
    stage.hub.sweep(Instant::now() + SLOW);
    assert_eq!(slow.waiting(), 0);
    stage.hub.committed(moved(&[(instance(1), Some(2)), (instance(2), Some(1))]));
    assert_eq!(quiet.next().await, News::Moved(vec![(0, Some(1))]), "one that has nothing to take is not slow");
    assert_eq!(slow.next().await, News::TooSlow);
    assert_eq!(slow.waiting(), 0, "nothing more is kept for it");
    assert_eq!(stage.cuts.load(Ordering::SeqCst), 0);
    stage.hub.sweep(Instant::now() + SLOW + STUCK);
    assert!(stage.cuts.load(Ordering::SeqCst) > 0);
    drop(slow);
}

#[tokio::test]
async fn the_registry_is_looked_at_before_what_moved_is_passed_on() {
    let stage = Stage::new();
    let mut subscription = stage.subscribe(&[instance(1)]);
    stage.hub.committed(moved(&[(instance(1), Some(4))]));
    stage.registry.send_replace(7);
    stage.settle().await;
    assert_eq!(subscription.next().await, News::LookAgain);
    assert_eq!(subscription.next().await, News::Moved(vec![(0, Some(4))]));
}

#[tokio::test]
async fn an_actor_has_so_many_and_none_after_the_end() {
    let stage = Stage::new();
    let subscribe = |most| stage.hub.subscribe("ada", most, Box::new(|| {}));
    let mut first = subscribe(2).expect("a first");
    let second = subscribe(2).expect("a second");
    assert_eq!(subscribe(2).err(), Some(NoSubscription::TooMany));
    assert!(stage.hub.subscribe("bo", 2, Box::new(|| {})).is_ok(), "another actor has its own");
    drop(second);
    drop(subscribe(2).expect("there is room again"));
    stage.hub.close();
    assert_eq!(first.next().await, News::Closed);
    assert_eq!(subscribe(2).err(), Some(NoSubscription::Closed));
    drop(first);
    assert!(!stage.hub.is_followed());
}

#[tokio::test]
async fn other_nodes_are_told_what_was_committed_here_and_nothing_that_was_heard() {
    let hub = Arc::new(Hub::default());
    assert!(!hub.is_followed());
    hub.set_peers(true);
    hub.heard(moved(&[(instance(1), Some(1))]));
    assert!(hub.take_leaving().is_empty());
    hub.committed(moved(&[(instance(2), Some(1))]));
    let leaving = hub.take_leaving();
    assert_eq!(leaving, moved(&[(instance(2), Some(1))]));
    hub.put_back(leaving);
    hub.committed(moved(&[(instance(2), Some(2))]));
    assert_eq!(hub.take_leaving(), moved(&[(instance(2), Some(2))]), "what could not be said is said later");
}
