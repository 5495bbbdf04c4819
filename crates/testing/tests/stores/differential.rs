//! The same seeded commands to both stores must get the same answers and leave the same records. The long
//! form is `make torture`.

use countersign_testing::differential;

/// Several seeds, each a world of its own.
#[tokio::test]
async fn both_stores_answer_and_record_alike() -> anyhow::Result<()> {
    let mut all = differential::Report::default();
    for seed in 1..=6 {
        let report = differential::run(seed, 250).await?;
        all.accepted += report.accepted;
        all.refused += report.refused;
        for (answer, count) in report.answers {
            *all.answers.entry(answer).or_default() += count;
        }
    }
    // Commands that are all refused would prove nothing.
    println!("{all:?}");
    assert!(all.accepted > 400 && all.refused > 100, "{all:?}");
    for answer in [
        "refused: conflict",
        "refused: permission-denied",
        "refused: gate-not-cleared",
        "refused: not-pending",
        "refused: unauthorized",
        "refused: already-open",
        "gate opened: step",
        "chain opened: step",
        "revoked",
    ] {
        assert!(all.answers.contains_key(answer), "nothing was answered with «{answer}»: {all:?}");
    }
    Ok(())
}
