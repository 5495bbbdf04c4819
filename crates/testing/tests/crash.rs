//! The real server, killed and stopped under load; the long form is `make torture`.

use countersign_testing::crash;
use countersign_testing::place::Kind;

const KILLS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_on_sqlite() -> anyhow::Result<()> {
    let report = crash::killed(Kind::Sqlite, 1, 1, KILLS).await?;
    println!("{report}");
    assert!(report.account.acknowledged > KILLS, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_on_postgres() -> anyhow::Result<()> {
    let report = crash::killed(Kind::Postgres, 1, 1, KILLS).await?;
    println!("{report}");
    assert!(report.account.acknowledged > KILLS, "{report}");
    Ok(())
}

/// One of two nodes on one database is killed; the other goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_on_two_nodes() -> anyhow::Result<()> {
    let report = crash::killed(Kind::Postgres, 2, 1, KILLS).await?;
    println!("{report}");
    assert!(report.account.acknowledged > KILLS, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_told_to_stop_answers_first_on_sqlite() -> anyhow::Result<()> {
    let report = crash::terminated(Kind::Sqlite, 1, 6).await?;
    println!("{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_told_to_stop_answers_first_on_postgres() -> anyhow::Result<()> {
    let report = crash::terminated(Kind::Postgres, 1, 6).await?;
    println!("{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_is_whole_or_not_at_all_on_sqlite() -> anyhow::Result<()> {
    let summary = crash::killed_while_purging(Kind::Sqlite, 1, KILLS).await?;
    println!("{summary}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_is_whole_or_not_at_all_on_postgres() -> anyhow::Result<()> {
    let summary = crash::killed_while_purging(Kind::Postgres, 1, KILLS).await?;
    println!("{summary}");
    Ok(())
}

/// Of servers and of workers, on one store each.
const RUN_KILLS: usize = 6;

async fn no_result_is_lost(kind: Kind, nodes: usize) -> anyhow::Result<()> {
    let worker = std::path::Path::new(env!("CARGO_BIN_EXE_countersign-torture"));
    let report = crash::killed_with_runs(worker, kind, nodes, 1, RUN_KILLS).await?;
    println!("{report}");
    assert!(report.servers_killed > 0 && report.workers_killed > 0 && report.acknowledged > RUN_KILLS, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_result_of_a_step_is_lost_on_sqlite() -> anyhow::Result<()> {
    no_result_is_lost(Kind::Sqlite, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_result_of_a_step_is_lost_on_postgres() -> anyhow::Result<()> {
    no_result_is_lost(Kind::Postgres, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_result_of_a_step_is_lost_on_two_nodes() -> anyhow::Result<()> {
    no_result_is_lost(Kind::Postgres, 2).await
}

/// No step with effects begins twice unless somebody has declared that it did nothing.
async fn nothing_begins_twice(kind: Kind, nodes: usize) -> anyhow::Result<()> {
    let worker = std::path::Path::new(env!("CARGO_BIN_EXE_countersign-torture"));
    let report = crash::killed_with_runbooks(worker, kind, nodes, 1, RUN_KILLS).await?;
    println!("{report}");
    assert!(report.servers_killed > 0 && report.workers_killed > 0 && report.completed > 0, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_step_of_a_runbook_begins_twice_on_sqlite() -> anyhow::Result<()> {
    nothing_begins_twice(Kind::Sqlite, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_step_of_a_runbook_begins_twice_on_postgres() -> anyhow::Result<()> {
    nothing_begins_twice(Kind::Postgres, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_step_of_a_runbook_begins_twice_on_two_nodes() -> anyhow::Result<()> {
    nothing_begins_twice(Kind::Postgres, 2).await
}

/// A reader that comes back with its `Last-Event-ID` is told of all that was acknowledged.
async fn no_reader_misses_anything(kind: Kind, nodes: usize) -> anyhow::Result<()> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_countersign-torture"));
    let report = crash::killed_with_streams(program, kind, nodes, 1, RUN_KILLS).await?;
    println!("{report:?}");
    assert!(report.acknowledged > RUN_KILLS as u64, "{report:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_misses_anything_on_sqlite() -> anyhow::Result<()> {
    no_reader_misses_anything(Kind::Sqlite, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_misses_anything_on_postgres() -> anyhow::Result<()> {
    no_reader_misses_anything(Kind::Postgres, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_misses_anything_on_two_nodes() -> anyhow::Result<()> {
    no_reader_misses_anything(Kind::Postgres, 2).await
}

/// Counted on a server in a process of its own: reads of the store, and memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_read_nothing_on_sqlite() -> anyhow::Result<()> {
    crash::followed_by_many(std::path::Path::new(env!("CARGO_BIN_EXE_countersign-torture")), Kind::Sqlite).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_read_nothing_on_postgres() -> anyhow::Result<()> {
    crash::followed_by_many(std::path::Path::new(env!("CARGO_BIN_EXE_countersign-torture")), Kind::Postgres).await
}

/// What was approved is replayed once, whenever the server is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_replay_happens_once_on_sqlite() -> anyhow::Result<()> {
    crash::killed_after_approvals(Kind::Sqlite, 1, 6).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_replay_happens_once_on_postgres() -> anyhow::Result<()> {
    crash::killed_after_approvals(Kind::Postgres, 1, 6).await
}
