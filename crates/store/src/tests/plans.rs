//! No query about runs reads what has ended, and none sorts it: the plans of both databases say so.

use super::place::Place;
use super::samples::run_id;
use crate::governance::{GovernanceSql, problems};
use crate::outbox::{self, OutboxSql};
use crate::postgres::PLANS;
use crate::postgres::read::parameters;
use crate::select::run::{RECEIVED_POSTGRES, RECEIVED_SQLITE, RunSql, runs};
use crate::select::{ByInstance, Dialect, Select, processes};
use crate::statement::{Name, STATEMENTS};
use crate::value::Value;
use countersign_engine::port::outbox::DeliveryState;
use countersign_engine::port::{Beginning, Page, ProblemQuery, ProcessQuery, Range, RunQuery};
use countersign_kernel::Time;
use countersign_kernel::governance::Category;
use tokio_postgres::{Client, NoTls};

const OF_RUNS: [Name; 20] = [
    Name::MoveInstance,
    Name::Run,
    Name::NewRunHead,
    Name::NewRunStep,
    Name::RunEvent,
    Name::Outbox,
    Name::RunHead,
    Name::RunStep,
    Name::TakeRunEvent,
    Name::RedactRunInput,
    Name::RedactRunKeys,
    Name::RedactRunHeadKeys,
    Name::RedactRunStepOutput,
    Name::RedactRunStepError,
    Name::RedactRunStepEvent,
    Name::RedactRunOutput,
    Name::RedactRunError,
    Name::RedactRunbook,
    Name::RedactRunEvent,
    Name::RedactOutbox,
];

/// What may be scanned on SQLite: what was found before, and an index that holds only what is queued, in its order.
const ALLOWED: [&str; 6] = ["s", "h", "d", "q", "CONSTANT ROW", "run_heads USING INDEX run_heads_queued"];

fn queries() -> Vec<RunQuery> {
    let none = RunQuery::default;
    let text = |text: &str| Some(text.to_owned());
    let started = Range { after: Some(Time(1)), before: Some(Time(1_700_000_000_000_000)) };
    let mut all = vec![
        none(),
        RunQuery { instance_id: Some(run_id(1)), ..none() },
        RunQuery { definition: text("rare"), ..none() },
        RunQuery { definitions: Some(vec!["rare".to_owned()]), ..none() },
        RunQuery { subject_ref: text("release:7"), ..none() },
        RunQuery { started, ..none() },
        RunQuery { initiator_ref: text("ann"), ..none() },
        RunQuery { parent: Some(run_id(1)), ..none() },
        RunQuery { pic: text("ann"), ..none() },
        RunQuery { q: Some(Beginning::of("release:7")), ..none() },
        RunQuery { q: Some(Beginning::of("019a0")), state: text("executing"), ..none() },
    ];
    for colour in ["gray", "green", "yellow", "red"] {
        all.push(RunQuery { rollup: text(colour), ..none() });
    }
    for state in ["queued", "executing", "completed", "failed"] {
        all.push(RunQuery { state: text(state), ..none() });
        all.push(RunQuery { state: text(state), definition: text("rare"), ..none() });
        all.push(RunQuery { state: text(state), definitions: Some(vec!["rare".to_owned()]), ..none() });
        all.push(RunQuery { state: text(state), subject_ref: text("release:7"), ..none() });
    }
    all
}

fn in_state() -> ProcessQuery {
    let definitions = Some(vec!["rare".to_owned()]);
    ProcessQuery { current_state: Some("review".to_owned()), definitions, ..ProcessQuery::default() }
}

fn page() -> Page {
    Page { after: Some(run_id(1_000_000_000).0), limit: 20, descending: true }
}

/// What readers ask besides lists.
fn reads(sql: &RunSql) -> Vec<(&str, Vec<Value<'static>>)> {
    let id = Value::Id(run_id(1).0);
    vec![
        (&sql.step_page, vec![id.clone(), Value::Int(3), Value::Int(20)]),
        (&sql.cells, vec![id.clone()]),
        (&sql.held, vec![id.clone()]),
        (&sql.step_errors, vec![id.clone(), Value::Int(3), id.clone(), Value::Int(20)]),
        (&sql.by_correlation, vec![Value::Text("order-1"), Value::Int(20), id.clone()]),
        (&sql.queued, vec![Value::Int(50), Value::Int(20), Value::Int(5), id]),
    ]
}

/// What the outbox asks and writes.
fn of_outbox(dialect: Dialect) -> Vec<String> {
    let sql = OutboxSql::new(dialect);
    let mut all = vec![
        sql.unspread,
        sql.spread,
        sql.unwanted,
        sql.due,
        sql.lease,
        sql.lock,
        sql.delivered,
        sql.postponed,
        sql.dead,
        sql.conclude,
        sql.revive,
        sql.replayed,
        sql.claim,
        sql.standing,
        sql.data,
        sql.deliveries,
    ];
    let states = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Dead];
    all.extend(states.map(|state| outbox::list(dialect, Some(state), &page()).sql));
    all
}

#[test]
fn sqlite_searches_and_never_scans() {
    let place = Place::sqlite();
    drop(crate::sqlite::SqliteStore::open(place.url.strip_prefix("sqlite:").unwrap()).unwrap());
    let connection = rusqlite::Connection::open(place.url.strip_prefix("sqlite:").unwrap()).unwrap();
    let plan = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let count = statement.parameter_count();
        let nothing = vec![rusqlite::types::Null; count];
        let rows = statement.query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let sql = RunSql::new(Dialect::Sqlite);
    let mut all: Vec<String> = [&sql.runs, &sql.steps, &sql.kept, &sql.due].map(String::clone).to_vec();
    all.push(RECEIVED_SQLITE.to_owned());
    all.extend(reads(&sql).into_iter().map(|(sql, _)| sql.to_owned()));
    all.extend(OF_RUNS.map(|name| STATEMENTS[name as usize].sqlite()));
    all.extend(of_outbox(Dialect::Sqlite));
    all.extend(queries().iter().map(|query| runs(Dialect::Sqlite, query, &page()).sql));
    all.push(sql.some_cells.clone());
    all.push(processes(Dialect::Sqlite, &in_state(), &page()).sql);
    all.push(ByInstance::new(Dialect::Sqlite).firings);
    all.extend([GovernanceSql::new(Dialect::Sqlite).open, GovernanceSql::new(Dialect::Sqlite).scheduled]);
    for open in [Some(true), Some(false), None] {
        let query = ProblemQuery { category: Category::FailedRuns, open };
        for page in [page(), Page { after: None, ..page() }] {
            all.push(problems(Dialect::Sqlite, &query, &page).sql);
        }
    }
    for sql in all {
        let plan = plan(&sql);
        let scanned = |line: &str| line.starts_with("SCAN ") && !ALLOWED.contains(&&line[5..]);
        assert!(!plan.iter().any(|line| scanned(line)), "{sql}\n{plan:#?}");
        // What is few by its nature is sorted: what is due, what one person has to do, what begins like a text.
        let few =
            sql.contains("s.pic = ") || sql.contains("UNION ALL SELECT instance_id") || sql.contains("subject_ref < ");
        let sorts = sql == RunSql::new(Dialect::Sqlite).due || few;
        assert!(sorts || !plan.iter().any(|line| line.contains("FOR ORDER BY")), "{sql}\n{plan:#?}");
    }
}

async fn postgres_with_many_ended_runs() -> (Place, Client) {
    let place = Place::postgres().await;
    drop(place.open().await);
    let (client, connection) = tokio_postgres::connect(&place.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let ended = "CASE WHEN n % 500 = 0 THEN 'executing' WHEN n % 501 = 0 THEN 'queued' WHEN n % 20 = 0 THEN 'failed' ELSE 'completed' END";
    client
        .batch_execute(&format!(
            "CREATE TEMP TABLE made AS SELECT n, gen_random_uuid() AS id, {ended} AS state FROM generate_series(1, 30000) AS n;
             INSERT INTO instances (instance_id, sequence, head, last_time_us, state, moves, policy_ref) SELECT id, 1, '', 1, '', 0, '' FROM made;
             INSERT INTO runs SELECT id, CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'deploy' END, 1, '', 'subject:' || n % 5000, 'ann', 'order-' || n % 10, 'eu',
                 NULL, NULL, NULL, NULL, 1, '{{}}' FROM made;
             INSERT INTO run_heads SELECT id, CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'deploy' END, 'order-' || n % 10, 'eu', state, NULL, 5, NULL, NULL, NULL, NULL,
                 CASE WHEN state = 'executing' THEN n END, state IN ('queued', 'executing'), NULL, NULL FROM made;
             INSERT INTO run_steps SELECT id, s, 'step', NULL, 'default', 3, 'completed', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false,
                 NULL, NULL, false, CASE WHEN state = 'executing' AND s = 0 THEN n END, NULL, NULL, '{{}}', NULL FROM made, generate_series(0, 5) AS s;
             INSERT INTO run_events SELECT id, 'e' || s, 'paid', 1, true, '{{}}' FROM made, generate_series(0, 2) AS s;
             INSERT INTO outbox SELECT gen_random_uuid(), id, 'x', 1, CASE WHEN n % 3 = 0 THEN 'pending' ELSE 'delivered' END, 1, 9223372036854775807, NULL, '{{}}' FROM made;
             INSERT INTO deliveries SELECT outbox_id, 'w' || substr(outbox_id::text, 1, 1), state, 1, 9000000000000000, 1, NULL FROM outbox;
             ANALYZE"
        ))
        .await
        .unwrap();
    (place, client)
}

#[tokio::test]
async fn postgres_reads_by_index() {
    let (_place, client) = postgres_with_many_ended_runs().await;
    let sql = RunSql::new(Dialect::Postgres);
    let mut all: Vec<(String, Vec<Value<'_>>)> =
        reads(&sql).into_iter().map(|(sql, values)| (sql.to_owned(), values)).collect();
    let queries = queries();
    for query in &queries {
        let Select { sql, values, .. } = runs(Dialect::Postgres, query, &page());
        all.push((sql, values));
    }
    let in_state = in_state();
    let Select { sql, values, .. } = processes(Dialect::Postgres, &in_state, &page());
    all.push((sql, values));
    for (sql, values) in all {
        // The store has no processes and no failed attempts, and what is empty is scanned, unless there is no other way.
        let scans = if sql.contains("step_errors") || sql.contains("processes") { "off" } else { "on" };
        client.batch_execute(&format!("SET enable_seqscan = {scans}")).await.unwrap();
        let rows = client.query(&format!("EXPLAIN (COSTS OFF) {sql}"), &parameters(&values)).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{sql}\n{plan:#?}");
    }
}

/// A search for due rows reads no pending row that is not due.
#[tokio::test]
async fn postgres_finds_what_is_to_be_delivered_by_its_time() {
    let (_place, client) = postgres_with_many_ended_runs().await;
    client.batch_execute(PLANS).await.unwrap();
    let OutboxSql { unspread, due, .. } = OutboxSql::new(Dialect::Postgres);
    for (sql, values, index, condition) in [
        (unspread, "1", "outbox_pending", "next_attempt_at_us < "),
        (due, "'w1', 1, 1000", "deliveries_pending", "next_attempt_at_us <= "),
    ] {
        client.batch_execute(&format!("PREPARE asked AS {sql}")).await.unwrap();
        let rows = client.query(&format!("EXPLAIN (COSTS OFF) EXECUTE asked({values})"), &[]).await.unwrap();
        client.batch_execute("DEALLOCATE asked").await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let at = plan.iter().position(|line| line.contains(index)).unwrap_or_else(|| panic!("{sql}\n{plan:#?}"));
        assert!(plan[at + 1].contains("Index Cond") && plan[at + 1].contains(condition), "{sql}\n{plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("Sort")), "{sql}\n{plan:#?}");
    }
}

#[tokio::test]
async fn postgres_writes_by_key() {
    let (_place, client) = postgres_with_many_ended_runs().await;
    writes_by_key(&client).await;
}

/// A server makes its plans when the store is new, long before PostgreSQL analyses it.
#[tokio::test]
async fn postgres_writes_by_key_from_the_first_row() {
    let place = Place::postgres().await;
    drop(place.open().await);
    let (client, connection) = tokio_postgres::connect(&place.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    writes_by_key(&client).await;
}

async fn writes_by_key(client: &Client) {
    client.batch_execute(PLANS).await.unwrap();
    let sql = RunSql::new(Dialect::Postgres);
    let mut all = vec![sql.runs, sql.steps, sql.kept, sql.due, RECEIVED_POSTGRES.to_owned()];
    all.extend(OF_RUNS.map(|name| STATEMENTS[name as usize].postgres()));
    all.extend(of_outbox(Dialect::Postgres));
    for sql in all {
        // The plan is the same whatever the parameters are.
        let count = (1..).take_while(|n| sql.contains(&format!("${n}"))).count();
        let nothing = vec!["NULL"; count].join(", ");
        client.batch_execute(&format!("PREPARE asked AS {sql}")).await.unwrap();
        let rows = client.query(&format!("EXPLAIN (COSTS OFF) EXECUTE asked({nothing})"), &[]).await.unwrap();
        client.batch_execute("DEALLOCATE asked").await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let is_bounded = |(i, line): (usize, &String)| {
            let by_index = line.contains("Index Scan") || line.contains("Index Only Scan");
            !by_index || plan.get(i + 1).is_some_and(|next| next.contains("Index Cond"))
        };
        assert!(plan.iter().enumerate().all(is_bounded), "{sql}\n{plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{sql}\n{plan:#?}");
    }
}
