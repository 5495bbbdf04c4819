//! Large runs on both stores; their full size is part of `make torture`.

use countersign_testing::large::{Shape, run};
use countersign_testing::place::Kind;

async fn both_shapes(kind: Kind) -> anyhow::Result<()> {
    println!("{}", run(kind, Shape::Parallel, 1000).await?);
    println!("{}", run(kind, Shape::Sequential, 2000).await?);
    Ok(())
}

/// What has to be undone does not fit into one record: 256 steps, and 2048 in each further one.
async fn many_steps_are_undone(kind: Kind) -> anyhow::Result<()> {
    println!("{}", run(kind, Shape::Undone, 3000).await?);
    Ok(())
}

countersign_testing::on_both! {
    both_shapes,
    many_steps_are_undone,
}
