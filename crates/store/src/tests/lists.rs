//! Lists of runs, what is queued, whom an event concerns, and workflows in the registry.

use super::on_both;
use super::place::{Place, commit};
use super::samples::*;
use countersign_engine::port::{Batch, Committed, Head, Page, Range, RunQuery, Unit, Verdict};
use countersign_engine::rows::{RunHeadRow, RunRow, Write};
use countersign_kernel::plan::{BlockedEscalation, FailurePolicy, Graph, Order, Plan};
use countersign_kernel::registry::{Definition, EventBody, Workflow};
use countersign_kernel::{Declaration, Digest, GateSpec, InstanceId, Time};
use countersign_ledger::document::{declaration_document, gate_spec_document};
use std::collections::BTreeMap;
use std::sync::Arc;

on_both! {
    runs_are_listed_by_what_they_are,
    queued_runs_with_what_is_under_way,
    an_event_finds_live_runs,
    a_workflow_comes_back_with_its_document,
}

async fn runs_are_listed_by_what_they_are(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let states = ["completed", "executing", "failed", "completed", "queued", "completed"];
    for (n, state) in (1..).zip(states) {
        let row = RunRow {
            definition_name: if n % 2 == 0 { "even" } else { "odd" }.to_owned(),
            subject_ref: format!("subject:{}", n / 3),
            ..small_run(run_id(n))
        };
        commit(&mut *writer, vec![start(row, small_head(run_id(n), state), [])]).await;
    }
    let list = async |query: RunQuery, after: Option<u64>, limit, descending| -> Vec<u64> {
        let page = Page { after: after.map(|n| run_id(n).0), limit, descending };
        let found = reader.runs(&query, &page).await.unwrap();
        found.iter().map(|view| (1..=6).find(|n| run_id(*n) == view.row.instance_id).unwrap()).collect()
    };
    let none = RunQuery::default;
    let state = |state: &str| Some(state.to_owned());
    assert_eq!(list(none(), None, 10, true).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(none(), Some(5), 2, true).await, [4, 3]);
    assert_eq!(list(none(), Some(3), 2, false).await, [4, 5]);
    let completed = RunQuery { state: state("completed"), ..none() };
    assert_eq!(list(completed.clone(), None, 10, true).await, [6, 4, 1]);
    assert_eq!(list(completed.clone(), Some(6), 1, true).await, [4]);
    assert_eq!(list(RunQuery { state: state("no such state"), ..none() }, None, 10, true).await, [0; 0]);
    let odd = Some("odd".to_owned());
    assert_eq!(list(RunQuery { definition: odd.clone(), ..none() }, None, 10, true).await, [5, 3, 1]);
    assert_eq!(list(RunQuery { definition: odd, ..completed.clone() }, None, 10, true).await, [1]);
    let even = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(list(RunQuery { definitions: even(&["even", "x"]), ..none() }, None, 10, true).await, [6, 4, 2]);
    assert_eq!(list(RunQuery { definitions: even(&["even"]), ..completed.clone() }, None, 10, true).await, [6, 4]);
    assert_eq!(list(RunQuery { definitions: even(&[]), ..none() }, None, 10, true).await, [0; 0]);
    let subject = RunQuery { subject_ref: Some("subject:1".to_owned()), ..none() };
    assert_eq!(list(subject, None, 10, true).await, [5, 4, 3]);
    assert_eq!(list(RunQuery { instance_id: Some(run_id(4)), ..completed.clone() }, None, 10, true).await, [4]);
    let started = Range { after: Some(Time(1_700_000_000_000_000)), before: None };
    assert_eq!(list(RunQuery { started, ..completed.clone() }, None, 10, true).await, [6, 4, 1]);
    let started = Range { after: None, before: Some(Time(1_600_000_000_000_000)) };
    assert_eq!(list(RunQuery { started, ..completed }, None, 10, true).await, [0; 0]);
}

async fn queued_runs_with_what_is_under_way(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let mut n = 0;
    let mut add = async |definition: &str, key: Option<&str>, state, priority, start_at: Option<i64>| {
        n += 1;
        let row = RunRow {
            definition_name: definition.to_owned(),
            concurrency_key: key.map(Arc::from),
            ..small_run(run_id(n))
        };
        let head = RunHeadRow { priority, start_at: start_at.map(Time), ..small_head(run_id(n), state) };
        commit(&mut *writer, vec![start(row, head, [])]).await;
        run_id(n)
    };
    for state in ["executing", "blocked", "paused", "stopped", "compensating"] {
        add("a", Some("eu"), state, 5, None).await;
    }
    for state in ["completed", "failed", "cancelled", "voided", "idle"] {
        add("a", Some("eu"), state, 5, None).await;
    }
    add("a", Some("us"), "executing", 5, None).await;
    add("b", Some("eu"), "executing", 5, None).await;
    add("a", None, "executing", 5, None).await;
    let eu = add("a", Some("eu"), "queued", 5, None).await;
    let us = add("a", Some("us"), "queued", 5, Some(100)).await;
    let b = add("b", Some("eu"), "queued", 7, None).await;
    let delayed = add("a", None, "queued", 9, Some(101)).await;
    let eu_again = add("a", Some("eu"), "queued", 6, None).await;
    let found = async |now, limit| -> Vec<(InstanceId, u64)> {
        let found = reader.queued_runs(Time(now), None, limit).await.unwrap();
        found.into_iter().map(|run| (run.instance_id, run.under_way)).collect()
    };
    assert_eq!(found(100, 10).await, [(b, 1), (eu_again, 5), (eu, 5), (us, 1)]);
    assert_eq!(found(99, 10).await, [(b, 1), (eu_again, 5), (eu, 5)]);
    assert_eq!(found(101, 2).await, [(delayed, 0), (b, 1)]);
    let behind = async |priority, run_id| -> Vec<InstanceId> {
        let found = reader.queued_runs(Time(100), Some((priority, run_id)), 10).await.unwrap();
        found.into_iter().map(|run| run.instance_id).collect()
    };
    assert_eq!(behind(7, b).await, [eu_again, eu, us]);
    assert_eq!(behind(5, eu).await, [us]);
    let first = reader.queued_runs(Time(100), None, 1).await.unwrap().remove(0);
    assert_eq!((first.definition_name.as_str(), first.concurrency_key.as_deref()), ("b", Some("eu")));
    assert_eq!(first.definition_version, small_run(run_id(1)).definition_version);
}

async fn an_event_finds_live_runs(place: &Place) {
    let (mut writer, reader) = place.open().await;
    for (n, state) in (1..).zip(["completed", "executing", "queued", "idle", "blocked"]) {
        commit(&mut *writer, vec![start(full_run(run_id(n)), small_head(run_id(n), state), [])]).await;
    }
    let other = RunRow { correlation_key: text("order-2"), ..full_run(run_id(6)) };
    commit(&mut *writer, vec![start(other, small_head(run_id(6), "executing"), [])]).await;
    commit(&mut *writer, vec![start(small_run(run_id(7)), small_head(run_id(7), "executing"), [])]).await;
    let found = async |key, after, limit| -> Vec<InstanceId> {
        let found = reader.runs_by_correlation(key, after, limit).await.unwrap();
        assert!(found.iter().all(|(_, definition)| *definition == full_run(run_id(1)).definition_name));
        found.into_iter().map(|(run_id, _)| run_id).collect()
    };
    assert_eq!(found("order-1", None, 10).await, [run_id(2), run_id(3), run_id(5)]);
    assert_eq!(found("order-1", None, 1).await, [run_id(2)]);
    assert_eq!(found("order-1", Some(run_id(2)), 1).await, [run_id(3)]);
    assert!(found("order-3", None, 10).await.is_empty());
    // It ends, and is found no more.
    commit(&mut *writer, vec![unit(run_id(2), 1, vec![Write::RunHead(small_head(run_id(2), "completed"))])]).await;
    assert_eq!(found("order-1", None, 10).await, [run_id(3), run_id(5)]);
}

async fn a_workflow_comes_back_with_its_document(place: &Place) {
    let (mut writer, reader) = place.open().await;
    let declaration = Declaration {
        states: vec!["open".to_owned()],
        transitions: vec![],
        initial_state: "open".to_owned(),
        terminal_states: vec![],
    };
    let plan = Plan {
        order: Order::Linear,
        steps: vec![],
        compensation: vec![],
        failure_policy: FailurePolicy::Abort,
        timeout: None,
        hard_cap: None,
        priority: 5,
        correlation_key: None,
        concurrency: None,
        queues: BTreeMap::new(),
        schedule: vec![],
        on: vec![],
        gate_spec: GateSpec(BTreeMap::new()),
        blocked_escalation: BlockedEscalation::default(),
        machine: None,
        input_schema: None,
        output: None,
        referenced: vec![],
        graph: Graph::default(),
    };
    let workflow = Workflow::new(Arc::new(plan), Arc::from(DOCUMENT), DOCUMENT_DIGEST);
    let (declared, gates) = (
        declaration_document(&declaration).expect("JSON"),
        gate_spec_document(&GateSpec(BTreeMap::new())).expect("JSON"),
    );
    let mut published = vec![];
    for (sequence, workflow) in (1..).zip([None, Some(workflow)]) {
        let definition = Definition {
            name: format!("definition-{sequence}"),
            version: 1,
            digest: Digest([5; 32]),
            source: Some(Arc::from("source")),
            declaration: Arc::new(declaration.clone()),
            gate_spec: Arc::default(),
            workflow,
            machine: None,
            quarantined: None,
            retention: None,
            publish: None,
            merged: None,
            published_at: Time(1),
            published_by: "ann".to_owned(),
        };
        let document = |digest, bytes: &[u8]| Write::Document { digest, bytes: bytes.to_vec() };
        let writes = vec![
            document(declared.digest, &declared.bytes),
            document(gates.digest, &gates.bytes),
            document(DOCUMENT_DIGEST, DOCUMENT),
            Write::Definition {
                definition: Box::new(definition.clone()),
                declaration_digest: declared.digest,
                gate_spec_digest: gates.digest,
                publish: None,
                registry_sequence: sequence,
            },
        ];
        let unit = unit(InstanceId::REGISTRY, sequence - 1, writes);
        let unit = Unit { head: Head { last_time: Time(1), ..unit.head }, ..unit };
        let batch =
            Batch { registry_sequence: sequence - 1, changes_registry: true, units: vec![unit], checks: vec![] };
        assert_eq!(writer.commit(&batch).await.unwrap(), Committed::Done(vec![Verdict::Won]));
        published.push(Definition { workflow: None, ..definition });
    }
    for delta in [writer.registry_since(0).await.unwrap(), reader.registry_since(0).await.unwrap()] {
        assert_eq!(delta.workflows, [(2, Arc::from(DOCUMENT))]);
        let definitions: Vec<Definition> = delta
            .events
            .into_iter()
            .map(|(_, event)| match event.body {
                EventBody::DefinitionPublished(definition) => definition,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(definitions, published);
    }
    assert!(writer.registry_since(2).await.unwrap().workflows.is_empty());
}
