//! The second of two conflicting batches writes nothing, whether the first one left a record or only extended a
//! lease.

use super::on_both;
use super::place::{Place, commit, load, verdicts};
use super::samples::*;
use countersign_engine::port::{Batch, Check, Committed, Due, StoreError, Unit, Verdict};
use countersign_engine::rows::StepState;
use countersign_kernel::Time;

on_both! {
    a_heartbeat_leaves_no_record,
    beats_are_compared_like_the_sequence,
    a_heartbeat_with_a_key_that_was_used,
    units_that_stand_together_win_or_lose_together,
    what_is_due_comes_soonest_first,
}

fn leased(until: i64) -> StepState {
    StepState { locked_until: Some(Time(until)), due_at: Some(Time(until)), ..full_step() }
}

async fn a_heartbeat_leaves_no_record(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let id = run_id(1);
    let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(100)), added(1, small_step())]);
    commit(&mut *writer, vec![begun.clone()]).await;
    commit(&mut *writer, vec![heartbeat(&begun, 1, [changed(0, leased(200))])]).await;
    commit(&mut *writer, vec![heartbeat(&begun, 2, [changed(0, leased(300))])]).await;
    let (loaded, run) = load(&mut *writer, id).await;
    assert_eq!((loaded.head, loaded.beats), (begun.head, 2));
    assert_eq!(run.steps, [(None, leased(300)), (None, small_step())]);
    assert_eq!(reader.chains(id, id).await.unwrap().len(), 1);
}

async fn beats_are_compared_like_the_sequence(place: &Place) {
    let (mut writer, _) = place.open().await;
    let (id, other) = (run_id(1), run_id(2));
    let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(100))]);
    let neighbour = start(small_run(other), small_head(other, "executing"), [added(0, leased(100))]);
    commit(&mut *writer, vec![begun.clone(), neighbour.clone()]).await;
    // On PostgreSQL the second comes from another node.
    let second = if place.is_postgres { Some(place.open().await.0) } else { None };
    let mut second = second.unwrap_or(writer);
    commit(&mut *second, vec![heartbeat(&begun, 1, [changed(0, leased(200))])]).await;

    // Decided before that beat: neither a heartbeat nor a record counts, the neighbour's does.
    let stale_beat = heartbeat(&begun, 1, [changed(0, leased(900))]);
    let beside = heartbeat(&neighbour, 1, [changed(0, leased(250))]);
    assert_eq!(verdicts(&mut *second, vec![stale_beat, beside]).await, [Verdict::Lost, Verdict::Won]);
    let stale_record = Unit { steps: [changed(0, leased(901))].into(), ..unit(id, 1, vec![]) };
    assert_eq!(verdicts(&mut *second, vec![stale_record.clone()]).await, [Verdict::Lost]);

    let record = Unit { expected_beats: 1, beats: 1, ..stale_record };
    commit(&mut *second, vec![record.clone()]).await;
    // Decided before that record, on the right beat.
    let stale = heartbeat(&begun, 2, [changed(0, leased(902))]);
    assert_eq!(verdicts(&mut *second, vec![stale]).await, [Verdict::Lost]);
    commit(&mut *second, vec![heartbeat(&record, 2, [changed(0, leased(300))])]).await;
    let (loaded, run) = load(&mut *second, id).await;
    assert_eq!((loaded.head.sequence, loaded.beats), (2, 2));
    assert_eq!(run.steps, [(None, leased(300))]);

    // A check asks for the sequence alone.
    let check = |expected_sequence| Check { instance_id: id, expected_sequence };
    let checks = vec![check(2), check(1)];
    let batch = Batch { registry_sequence: 0, changes_registry: false, units: vec![], checks };
    assert_eq!(second.commit(&batch).await.unwrap(), Committed::Done(vec![Verdict::Won, Verdict::Lost]));
}

async fn a_heartbeat_with_a_key_that_was_used(place: &Place) {
    let (mut writer, _) = place.open().await;
    let id = run_id(1);
    let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(100))]);
    commit(&mut *writer, vec![begun.clone()]).await;
    let beat = |beats, until| Unit {
        idempotency: vec![key(id, "once")],
        ..heartbeat(&begun, beats, [changed(0, leased(until))])
    };
    commit(&mut *writer, vec![beat(1, 200)]).await;
    assert_eq!(verdicts(&mut *writer, vec![beat(2, 300)]).await, [Verdict::KeyTaken]);
    assert_eq!(load(&mut *writer, id).await.0.beats, 1);
}

async fn units_that_stand_together_win_or_lose_together(place: &Place) {
    let (mut writer, _) = place.open().await;
    let begun: Vec<Unit> = (1..=4)
        .map(|n| start(small_run(run_id(n)), small_head(run_id(n), "executing"), [added(0, leased(100))]))
        .collect();
    commit(&mut *writer, begun.clone()).await;
    let beat = |n: usize, beats, with: &[u64]| Unit {
        stands_with: with.iter().map(|n| run_id(*n)).collect(),
        idempotency: vec![key(run_id(n as u64), &format!("{n}/{beats}"))],
        ..heartbeat(&begun[n - 1], beats, [changed(0, leased(200))])
    };
    commit(&mut *writer, vec![beat(1, 1, &[])]).await;
    // The first was decided before that beat; the second depends on it, the third on the second, the fourth on none.
    let stale = Unit { expected_beats: 0, ..beat(1, 2, &[]) };
    let units = vec![beat(3, 1, &[2]), beat(4, 1, &[]), stale, beat(2, 1, &[1])];
    assert_eq!(verdicts(&mut *writer, units).await, [Verdict::Lost, Verdict::Won, Verdict::Lost, Verdict::Lost]);
    assert_eq!(load(&mut *writer, run_id(3)).await.0.beats, 0);
    // Nothing of theirs was kept, their keys included.
    let units = vec![beat(1, 2, &[]), beat(2, 1, &[1]), beat(3, 1, &[2])];
    commit(&mut *writer, units).await;
}

async fn what_is_due_comes_soonest_first(place: &Place) {
    let (mut writer, _) = place.open().await;
    let at = |time| StepState { due_at: Some(Time(time)), ..small_step() };
    let head = |n, time| countersign_engine::rows::RunHeadRow {
        due_at: Some(Time(time)),
        ..small_head(run_id(n), "executing")
    };
    let steps = [added(0, at(50)), added(1, at(10)), added(2, small_step()), added(3, at(90))];
    let first = start(small_run(run_id(1)), head(1, 40), steps);
    let second = start(small_run(run_id(2)), head(2, 60), [added(0, at(30)), added(1, at(50))]);
    let third = start(small_run(run_id(3)), small_head(run_id(3), "executing"), [added(0, small_step())]);
    commit(&mut *writer, vec![first, second, third]).await;
    let mut due = async |from, until, limit| -> Vec<(u64, Option<u32>, i64)> {
        let found = writer.due(&Due::from(Time(from)), Time(until), limit).await.unwrap();
        let number = |id| (1..=3).find(|n| run_id(*n) == id).unwrap();
        found.into_iter().map(|due| (number(due.instance_id), due.step_seq, due.due_at.0)).collect()
    };
    let all = [
        (1, Some(1), 10),
        (2, Some(0), 30),
        (1, None, 40),
        (1, Some(0), 50),
        (2, Some(1), 50),
        (2, None, 60),
        (1, Some(3), 90),
    ];
    assert_eq!(due(i64::MIN, i64::MAX, 100).await, all);
    assert_eq!(due(0, 1000, 3).await, all[..3]);
    assert_eq!(due(30, 60, 100).await, all[1..6]);
    assert_eq!(due(31, 59, 100).await, all[2..5]);
    assert_eq!(due(91, 1000, 100).await, []);
    assert_eq!(due(0, 9, 100).await, []);
    // Reading page by page returns each due row once, however many are due at one time.
    let many: Vec<_> = (0..7).map(|seq| added(seq, at(500))).collect();
    commit(&mut *writer, vec![start(small_run(run_id(4)), head(4, 500), many)]).await;
    let (mut after, mut seen) = (Due::from(Time(100)), Vec::new());
    while let [.., last] = &writer.due(&after, Time(1000), 3).await.unwrap()[..] {
        let page = writer.due(&after, Time(1000), 3).await.unwrap();
        after = last.clone();
        seen.extend(page.into_iter().map(|due| due.step_seq));
    }
    assert_eq!(seen, [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(6)]);
}

/// What another node holds is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_another_node_changes_are_not_due() {
    let place = Place::postgres().await;
    let (mut writer, _) = place.open().await;
    let id = run_id(1);
    let head = countersign_engine::rows::RunHeadRow { due_at: Some(Time(5)), ..small_head(id, "executing") };
    commit(&mut *writer, vec![start(small_run(id), head, [added(0, leased(10)), added(1, leased(20))])]).await;
    let (mut client, connection) = tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("UPDATE run_steps SET attempts = 9 WHERE step_seq = 0", &[]).await.unwrap();
    transaction.execute("UPDATE run_heads SET priority = 1", &[]).await.unwrap();
    let due = writer.due(&Due::from(Time(0)), Time(100), 10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.step_seq).collect::<Vec<_>>(), [Some(1)]);
    transaction.rollback().await.unwrap();
    assert_eq!(writer.due(&Due::from(Time(0)), Time(100), 10).await.unwrap().len(), 3);
}

/// Two nodes prolong a lease from the same beat at the same time: one of them does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_beat_at_once() {
    let place = Place::postgres().await;
    let ((mut one, _), (mut two, _)) = (place.open().await, place.open().await);
    let id = run_id(1);
    let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(0)), added(1, leased(0))]);
    commit(&mut *one, vec![begun.clone()]).await;
    for beats in 1..=50 {
        let until = 10 + i64::try_from(beats).unwrap();
        let (first, second) = tokio::join!(
            verdicts(&mut *one, vec![heartbeat(&begun, beats, [changed(0, leased(until))])]),
            verdicts(&mut *two, vec![heartbeat(&begun, beats, [changed(1, leased(until))])]),
        );
        let (loaded, run) = load(&mut *one, id).await;
        assert_eq!(loaded.beats, beats);
        let written = run.steps.iter().map(|(_, step)| step.locked_until == Some(Time(until)));
        assert!(written.eq([&first, &second].map(|verdicts| verdicts[0] == Verdict::Won)));
        assert_ne!(first, second);
    }
}

/// A node goes on when a newer one adds a column: its batch is decided again, and written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_gets_a_column_under_a_running_node() {
    let place = Place::postgres().await;
    let (mut writer, _) = place.open().await;
    let id = run_id(1);
    let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(0))]);
    commit(&mut *writer, vec![begun.clone()]).await;
    let (client, connection) = tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("ALTER TABLE run_steps ADD COLUMN newer TEXT").await.unwrap();
    let beat = heartbeat(&begun, 1, [changed(0, leased(7))]);
    let units = vec![beat.clone()];
    let batch = Batch { registry_sequence: 0, changes_registry: false, units, checks: vec![] };
    assert!(matches!(writer.commit(&batch).await, Err(StoreError::Conflict(_))));
    commit(&mut *writer, vec![beat]).await;
    let (_, run) = load(&mut *writer, id).await;
    assert_eq!(run.steps[0].1.locked_until, Some(Time(7)));
}
