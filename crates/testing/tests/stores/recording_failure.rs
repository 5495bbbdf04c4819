//! Commits that fail, in every form; the long form is `make torture`.

use countersign_testing::place::{Kind, Place};
use countersign_testing::recording_failure::{
    backends_killed_under_load, connection_cut_at_any_byte, every_command_in_both_forms,
};

#[tokio::test]
async fn both_forms_of_failure_on_sqlite() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    every_command_in_both_forms(&place).await?;
    place.remove().await
}

#[tokio::test]
async fn both_forms_of_failure_on_postgres() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    every_command_in_both_forms(&place).await?;
    place.remove().await
}

/// The answer is found out: a commit that took place is acknowledged although its answer was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_may_be_cut_at_any_byte() -> anyhow::Result<()> {
    for seed in 1..=2 {
        let cuts = connection_cut_at_any_byte(seed, 100).await?;
        println!("{cuts:?}");
        assert!(cuts.cut > 50 && cuts.found_out > 10, "{cuts:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_may_be_killed_at_any_moment() -> anyhow::Result<()> {
    let account = backends_killed_under_load(1, 40).await?;
    println!("{account:?}");
    assert!(account.acknowledged > 100, "{account:?}");
    Ok(())
}
