//! Sessions, spent challenges and counters: rows that two nodes share, and that are deleted when they are over.

use super::on_both;
use super::place::Place;
use countersign_engine::port::sessions::{SessionRow, Sessions};
use countersign_kernel::{Digest, Time};

on_both! {
    a_session_is_there_until_it_ends,
    the_sessions_of_an_actor_are_listed_by_use,
    what_is_over_is_deleted,
    a_challenge_is_spent_once,
    a_counter_only_goes_up,
}

/// Two of the same store, as two nodes have them.
async fn two(place: &Place) -> (Box<dyn Sessions>, Box<dyn Sessions>) {
    let store = crate::open(&place.url).await.unwrap();
    (store.sessions(), store.sessions())
}

fn session(n: u8, ends_at: i64) -> SessionRow {
    SessionRow {
        session_hash: Digest([n; 32]),
        actor_ref: format!("actor {n}"),
        credential_id: "0123456789abcdef".to_owned(),
        seen_at: Time(10),
        ends_at: Time(ends_at),
        begun_at: Some(Time(5)),
        user_agent: (n != 4).then(|| "Firefox".to_owned()),
    }
}

async fn a_session_is_there_until_it_ends(place: &Place) {
    let (one, other) = two(place).await;
    let row = session(1, 100);
    assert_eq!(one.find(&row.session_hash).await.unwrap(), None);
    one.begin(&row).await.unwrap();
    assert!(one.begin(&row).await.is_err(), "an id is given out once");
    assert_eq!(other.find(&row.session_hash).await.unwrap().as_ref(), Some(&row));
    other.touch(&row.session_hash, Time(20)).await.unwrap();
    one.touch(&row.session_hash, Time(15)).await.unwrap();
    let seen = SessionRow { seen_at: Time(20), ..row.clone() };
    assert_eq!(one.find(&row.session_hash).await.unwrap(), Some(seen), "a slow node does not turn it back");
    other.end(&row.session_hash).await.unwrap();
    other.end(&row.session_hash).await.unwrap();
    one.touch(&row.session_hash, Time(30)).await.unwrap();
    assert_eq!(one.find(&row.session_hash).await.unwrap(), None, "a touch brings nothing back");
}

async fn the_sessions_of_an_actor_are_listed_by_use(place: &Place) {
    let (one, other) = two(place).await;
    let of_maria = |n: u8| SessionRow { actor_ref: "maria".to_owned(), ..session(n, 100) };
    for n in 1..=3 {
        one.begin(&of_maria(n)).await.unwrap();
    }
    one.begin(&session(4, 100)).await.unwrap();
    one.touch(&Digest([2; 32]), Time(20)).await.unwrap();
    let listed = other.of_actor("maria").await.unwrap();
    assert_eq!(listed.iter().map(|row| row.session_hash.0[0]).collect::<Vec<_>>(), [2, 1, 3]);
    assert_eq!(listed[0], SessionRow { seen_at: Time(20), ..of_maria(2) });
    assert!(other.of_actor("nobody").await.unwrap().is_empty());
}

async fn what_is_over_is_deleted(place: &Place) {
    let (one, other) = two(place).await;
    for (n, ends_at) in [(1, 100), (2, 101)] {
        one.begin(&session(n, ends_at)).await.unwrap();
        assert!(one.spend(&Digest([n; 32]), Time(ends_at)).await.unwrap());
    }
    other.forget(Time(100)).await.unwrap();
    assert_eq!(one.find(&Digest([1; 32])).await.unwrap(), None);
    assert!(one.find(&Digest([2; 32])).await.unwrap().is_some());
    assert!(one.spend(&Digest([1; 32]), Time(200)).await.unwrap(), "it is over, and so forgotten");
    assert!(!one.spend(&Digest([2; 32]), Time(200)).await.unwrap());
}

async fn a_challenge_is_spent_once(place: &Place) {
    let (one, other) = two(place).await;
    let challenge = Digest([7; 32]);
    let (first, second) = tokio::join!(one.spend(&challenge, Time(1)), other.spend(&challenge, Time(1)));
    assert_eq!(u8::from(first.unwrap()) + u8::from(second.unwrap()), 1);
}

async fn a_counter_only_goes_up(place: &Place) {
    let (one, other) = two(place).await;
    let (a, b) = (Digest([1; 32]), Digest([2; 32]));
    assert!(one.count("key", 0, &a).await.unwrap());
    assert!(other.count("key", 0, &b).await.unwrap(), "it does not count");
    assert!(one.count("key", 5, &a).await.unwrap());
    assert!(other.count("key", 5, &a).await.unwrap(), "the same assertion again");
    assert!(!other.count("key", 5, &b).await.unwrap());
    assert!(!one.count("key", 4, &b).await.unwrap());
    assert!(!one.count("key", 0, &b).await.unwrap(), "one that has counted goes on counting");
    let (first, second) = tokio::join!(one.count("key", 6, &a), other.count("key", 6, &b));
    assert_eq!(u8::from(first.unwrap()) + u8::from(second.unwrap()), 1);
    assert!(other.count("key", u32::MAX, &b).await.unwrap());
    assert!(one.count("another", 1, &a).await.unwrap());
}
