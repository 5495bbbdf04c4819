//! What is written about a run is what is loaded and read.

use super::on_both;
use super::place::{Place, commit, load};
use super::samples::*;
use countersign_engine::port::{LoadedBody, StoredRunHead, Unit};
use countersign_engine::rows::{
    AssignmentRow, GateRow, HeadText, HoldRow, OutboxRow, RunEventRow, RunHeadRow, StepRow, StepState, StepText, Write,
};
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::machine::{AssignmentStatus, StepState as ApprovalState};
use countersign_kernel::process::Fate;
use countersign_kernel::{AssignmentId, EventId, HoldId, InstanceId, StepId, Time};
use std::sync::Arc;
use uuid::Uuid;

on_both! {
    every_column_comes_back,
    steps_change_and_are_added,
    outputs_that_nobody_needs_stay_on_disk,
    events_are_kept_until_they_are_taken,
    several_runs_load_at_once,
    gates_and_holds_of_a_run,
    a_hundred_thousand_steps,
    redactions,
    an_outbox_row_waits_for_delivery,
    the_last_of_several_heads_is_written,
}

fn stored(head: &RunHeadRow) -> StoredRunHead {
    StoredRunHead {
        state: head.state.to_owned(),
        outcome: head.outcome.map(str::to_owned),
        last_error: head.last_error.clone(),
        priority: head.priority,
        start_at: head.start_at,
        executing_since: head.executing_since,
        completed_at: head.completed_at,
        failed_at: head.failed_at,
        output: head.output.clone(),
        rollup: None,
        runbook: head.runbook.clone(),
        undoing: head.undoing,
        called_off: head.called_off,
    }
}

async fn every_column_comes_back(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let with_all = (full_run(run_id(1)), full_head(run_id(1), "executing"), full_step());
    let with_none = (small_run(run_id(2)), small_head(run_id(2), "queued"), small_step());
    for (row, head, step) in [with_all, with_none] {
        let id = row.instance_id;
        let mut compensation = added(1, step.clone());
        if let Some(new) = &mut compensation.1.new {
            new.compensates = Some(0);
            new.queue = Arc::from("undo");
        }
        let unit = start(row.clone(), head.clone(), [added(0, step.clone()), compensation]);
        commit(&mut *writer, vec![unit.clone()]).await;

        let (loaded, run) = load(&mut *writer, id).await;
        assert_eq!((&loaded.head, loaded.policy_ref.as_str(), loaded.beats), (&unit.head, "policy", 0));
        assert_eq!((&run.row, &run.head, run.moves), (&row, &stored(&head), 2));
        assert_eq!(&*run.document, DOCUMENT);
        assert_eq!(run.steps, [(None, step.clone()), (Some(0), step.clone())]);
        assert!(run.gates.is_empty() && run.holds.is_empty() && run.kept.is_empty());

        let page = countersign_engine::port::Page { after: None, limit: 10, descending: true };
        let query = countersign_engine::port::RunQuery { instance_id: Some(id), ..Default::default() };
        let views = reader.runs(&query, &page).await.unwrap();
        assert_eq!(views.len(), 1);
        assert_eq!((&views[0].row, &views[0].head, &views[0].chain), (&row, &stored(&head), &unit.head));
        let steps = reader.run_steps(id, 0, 10).await.unwrap();
        assert_eq!(steps.iter().map(|step| step.step_seq).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(steps[0].new, new_step(0));
        assert_eq!((steps[1].new.compensates, &*steps[1].new.queue), (Some(0), "undo"));
        assert!(steps.iter().all(|view| view.state == step));
        assert_eq!(reader.run_steps(id, 1, 10).await.unwrap().len(), 1);
        assert_eq!(reader.run_steps(id, 0, 1).await.unwrap().len(), 1);
    }
}

async fn steps_change_and_are_added(place: &Place) {
    let (mut writer, _reader) = place.open().await;
    let id = run_id(1);
    let steps = [added(0, full_step()), added(1, small_step()), added(2, small_step())];
    commit(&mut *writer, vec![start(small_run(id), small_head(id, "executing"), steps)]).await;
    let done = StepState { state: StepCode::Completed, ..small_step() };
    let head = full_head(id, "completed");
    let mut next = unit(id, 1, vec![Write::RunHead(head.clone())]);
    // Everything that was set is unset, and the other way round; one more is added.
    next.steps.extend([changed(0, done.clone()), changed(1, full_step()), added(3, full_step())]);
    commit(&mut *writer, vec![next]).await;
    let (loaded, run) = load(&mut *writer, id).await;
    assert_eq!(loaded.head.sequence, 2);
    assert_eq!(run.head, stored(&head));
    assert_eq!(run.steps, [(None, done), (None, full_step()), (None, small_step()), (None, full_step())]);
}

async fn outputs_that_nobody_needs_stay_on_disk(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let id = run_id(1);
    let unneeded = StepState { output_needed: false, ..full_step() };
    let steps = [added(0, unneeded.clone()), added(1, full_step())];
    commit(&mut *writer, vec![start(small_run(id), small_head(id, "executing"), steps)]).await;
    let (_, run) = load(&mut *writer, id).await;
    assert_eq!(run.steps[0].1, StepState { output: None, ..unneeded.clone() });
    assert_eq!(run.steps[1].1, full_step());
    assert_eq!(reader.run_steps(id, 0, 1).await.unwrap()[0].state, unneeded);
}

async fn events_are_kept_until_they_are_taken(place: &Place) {
    let (mut writer, _) = place.open().await;
    let (id, other) = (run_id(1), run_id(2));
    for id in [id, other] {
        commit(&mut *writer, vec![start(small_run(id), small_head(id, "executing"), [])]).await;
    }
    let events = [event(id, "late", 30), event(id, "b", 20), event(id, "a", 20), event(id, "first", 10)];
    let taken_at_once = RunEventRow { taken: true, ..event(id, "taken", 5) };
    let writes = events.iter().chain([&taken_at_once]).cloned().map(Write::RunEvent).collect();
    commit(&mut *writer, vec![unit(id, 1, writes)]).await;
    let (_, run) = load(&mut *writer, id).await;
    let names = |run: &countersign_engine::port::LoadedRun| -> Vec<String> {
        run.kept.iter().map(|event| event.event_id.to_string()).collect()
    };
    assert_eq!(names(&run), ["first", "a", "b", "late"]);
    assert_eq!(run.kept[3], events[0]);

    // One that is received and taken in the same unit, besides one that was kept.
    let take = |event_id: &str| Write::TakeRunEvent { instance_id: id, event_id: Arc::from(event_id) };
    let writes = vec![take("a"), Write::RunEvent(event(id, "quick", 40)), take("quick")];
    commit(&mut *writer, vec![unit(id, 2, writes)]).await;
    assert_eq!(names(&load(&mut *writer, id).await.1), ["first", "b", "late"]);

    let asked = [(id, "a"), (id, "nothing"), (other, "a"), (id, "quick"), (id, "taken"), (id, "a")];
    let asked = asked.map(|(id, name)| (id, Arc::from(name)));
    assert_eq!(writer.received(&asked).await.unwrap(), [true, false, false, true, true, true]);
    assert!(writer.received(&[]).await.unwrap().is_empty());
}

async fn several_runs_load_at_once(place: &Place) {
    let (mut writer, _) = place.open().await;
    let steps = |n: u32| -> Vec<_> { (0..n).map(|seq| added(seq, small_step())).collect() };
    let units = (1..=3).map(|n| start(small_run(run_id(n)), small_head(run_id(n), "executing"), steps(n as u32)));
    commit(&mut *writer, units.collect()).await;
    let ids: Vec<InstanceId> = (1..=4).map(run_id).collect();
    let mut found: Vec<(InstanceId, usize)> = writer
        .load(&ids)
        .await
        .unwrap()
        .into_iter()
        .map(|loaded| match loaded.body {
            LoadedBody::Run(run) => (run.row.instance_id, run.steps.len()),
            LoadedBody::Process(_) => panic!("no process"),
        })
        .collect();
    found.sort();
    assert_eq!(found, [(run_id(1), 1), (run_id(2), 2), (run_id(3), 3)]);
}

async fn gates_and_holds_of_a_run(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let (id, step_id) = (run_id(1), StepId(run_id(2).0));
    let gate = GateRow {
        gate_id: step_id.0,
        instance_id: id,
        from_state: "open".to_owned(),
        action: "go".to_owned(),
        guard: "go".to_owned(),
        scope: "release".to_owned(),
        opened_at: Time(1),
        opened_by: "ann".to_owned(),
        rule: None,
        chain_state: None,
        chain_terminal_at: None,
        fate: Fate::Unspent,
        current: true,
    };
    let step = StepRow {
        step_id,
        gate_id: step_id.0,
        instance_id: id,
        slot: 0,
        action: "go".to_owned(),
        subject_ref: "release:7".to_owned(),
        approver_ref: "bob".to_owned(),
        submitter_ref: "ann".to_owned(),
        scope: "release".to_owned(),
        submitted_at: Time(1),
        state: ApprovalState::Pending,
        ended: None,
        request: Some("{\"rows\":7}".into()),
    };
    let assignment = AssignmentRow {
        assignment_id: AssignmentId(run_id(3).0),
        task_ref: step_id,
        assignee_ref: "bob".to_owned(),
        assigned_at: Time(1),
        taken_over: None,
        status: AssignmentStatus::Active,
        ended_at: None,
    };
    let hold = HoldRow {
        hold_id: HoldId(run_id(4).0),
        record_ref: EventId(run_id(5).0),
        instance_id: id,
        placed_at: Time(1),
        placed_by: "ann".to_owned(),
        reason: "a case".to_owned(),
        case_ref: None,
        released: None,
    };
    let mut unit = start(small_run(id), small_head(id, "executing"), [added(0, small_step())]);
    unit.writes.extend([
        Write::Gate(gate.clone()),
        Write::Step(step.clone()),
        Write::Assignment(assignment.clone()),
        Write::Hold(hold.clone()),
    ]);
    commit(&mut *writer, vec![unit]).await;
    let (_, run) = load(&mut *writer, id).await;
    assert_eq!(run.gates.len(), 1);
    assert_eq!(run.gates[0].steps[0].step_id, step_id);
    assert_eq!(run.holds.into_iter().collect::<Vec<_>>(), [(hold.hold_id, hold.record_ref)]);
    assert_eq!(reader.run_gates(id, None).await.unwrap(), [(gate, vec![(step, assignment)])]);
}

async fn a_hundred_thousand_steps(place: &Place) {
    const MANY: u32 = 100_000;
    let (mut writer, reader) = place.open().await;
    let (id, small) = (run_id(1), run_id(2));
    let steps = (0..MANY).map(|seq| {
        let ready = StepState { state: StepCode::Ready, due_at: Some(Time(i64::from(seq))), ..small_step() };
        added(seq, if seq % 10 == 0 { ready } else { full_step() })
    });
    let unit_of_many = start(small_run(id), small_head(id, "executing"), steps);
    let unit_of_one = start(small_run(small), small_head(small, "executing"), [added(0, full_step())]);
    let begun = std::time::Instant::now();
    commit(&mut *writer, vec![unit_of_one, unit_of_many.clone()]).await;
    let written = begun.elapsed();
    let (_, run) = load(&mut *writer, id).await;
    println!("{}: {MANY} steps written in {written:?}, loaded in {:?}", place.url, begun.elapsed() - written);
    assert_eq!(run.steps.len(), MANY as usize);
    for ((seq, write), (compensates, state)) in unit_of_many.steps.iter().zip(&run.steps) {
        assert_eq!((None, &write.state), (*compensates, state), "step {seq}");
    }
    assert_eq!(load(&mut *writer, small).await.1.steps.len(), 1);

    // All of them change, and as many again are added behind them.
    let mut next = unit(id, 1, vec![]);
    next.steps.extend((0..MANY).map(|seq| changed(seq, small_step())));
    next.steps.extend((MANY..2 * MANY).map(|seq| added(seq, small_step())));
    commit(&mut *writer, vec![next]).await;
    assert_eq!(reader.run_steps(id, 0, 10 * MANY as usize).await.unwrap().len(), 2 * MANY as usize);
    assert_eq!(load(&mut *writer, id).await.1.steps.len(), 2 * MANY as usize);
}

async fn redactions(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let id = run_id(1);
    let without_error = StepState { last_error: None, event_data: None, ..full_step() };
    let steps = [added(0, full_step()), added(1, without_error.clone()), added(2, full_step())];
    commit(&mut *writer, vec![start(full_run(id), full_head(id, "completed"), steps)]).await;
    let text = "purged: \"record\" 1".to_owned();
    let mut writes = vec![
        Write::PurgeRecord { event_id: record(id, 1).event_id },
        Write::RedactRunInput { instance_id: id, text: text.clone() },
        Write::RedactRunKeys { instance_id: id, text: text.clone() },
        Write::RedactRunHeadKeys { instance_id: id, text: text.clone() },
        Write::RedactRunHead { instance_id: id, what: HeadText::Output, text: text.clone() },
        Write::RedactRunHead { instance_id: id, what: HeadText::Error, text: text.clone() },
        Write::RedactRunEvent { instance_id: id, event_id: "nobody".to_owned(), text: text.clone() },
        Write::RedactOutbox { instance_id: id, created_at: Time(1), text: text.clone() },
    ];
    for (step_seq, what) in
        (0..3).flat_map(|seq| [StepText::Output, StepText::Error, StepText::Event].map(|what| (seq, what)))
    {
        writes.push(Write::RedactRunStep { instance_id: id, step_seq, what, text: text.clone() });
    }
    let mut purge = unit(id, 1, writes);
    // A redaction wins over what the same unit writes to the step.
    purge.steps.extend([changed(2, StepState { attempts: 7, ..full_step() })]);
    commit(&mut *writer, vec![purge]).await;
    let (_, run) = load(&mut *writer, id).await;
    let json: Arc<str> = Arc::from("\"purged: \\\"record\\\" 1\"");
    assert_eq!((&run.row.subject_ref, &run.row.input), (&text, &json));
    let redacted = StepState {
        output: Some(json.clone()),
        event_data: Some(json.clone()),
        last_error: Some(Arc::from(text.as_str())),
        // It may be the mark of the output.
        lease_token: None,
        ..full_step()
    };
    let steps = reader.run_steps(id, 0, 10).await.unwrap();
    assert_eq!(steps[0].state, redacted);
    // Nothing is put where nothing was.
    assert_eq!(steps[1].state, StepState { output: Some(json), lease_token: None, ..without_error });
    assert_eq!(steps[2].state, StepState { attempts: 7, ..redacted });
}

async fn an_outbox_row_waits_for_delivery(place: &Place) {
    let (mut writer, _) = place.open().await;
    let id = run_id(1);
    let row = OutboxRow {
        outbox_id: Uuid::from_u128(1),
        instance_id: id,
        event_type: "shipped".to_owned(),
        step: None,
        data: Arc::from("{}"),
        created_at: Time(77),
        inside: false,
    };
    let mut unit = start(small_run(id), small_head(id, "executing"), []);
    unit.writes.push(Write::Outbox(row));
    commit(&mut *writer, vec![unit]).await;
    let sql = "SELECT COUNT(*) FROM outbox WHERE state = 'pending' AND attempts = 0 AND next_attempt_at_us = 77 AND event_type = 'shipped'";
    assert_eq!(count(place, sql).await, 1);
}

async fn the_last_of_several_heads_is_written(place: &Place) {
    let (mut writer, _) = place.open().await;
    let id = run_id(1);
    let mut first: Unit = start(small_run(id), small_head(id, "idle"), []);
    first.writes.extend([
        Write::RunHead(small_head(id, "queued")),
        Write::RunHead(small_head(id, "executing")),
        Write::RunHead(full_head(id, "completed")),
    ]);
    commit(&mut *writer, vec![first]).await;
    assert_eq!(load(&mut *writer, id).await.1.head, stored(&full_head(id, "completed")));
}

async fn count(place: &Place, sql: &str) -> i64 {
    if place.is_postgres {
        let (client, connection) = tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        return client.query_one(sql, &[]).await.unwrap().get(0);
    }
    let path = place.url.strip_prefix("sqlite:").unwrap();
    rusqlite::Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}
