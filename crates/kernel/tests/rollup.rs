//! The roll-up that is kept step by step is the one that is counted from nothing, and keeping it costs what changes.

use countersign_kernel::plan::StepSeq;
use countersign_kernel::rollup::{Share, Tally};
use proptest::collection::vec;
use proptest::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SHARES: [Share; 6] = [Share::Nothing, Share::Skipped, Share::Optional, Share::Green, Share::Yellow, Share::Red];

proptest! {
    #[test]
    fn kept_and_counted_from_nothing_are_the_same(
        start in vec(0..6usize, 1..=500),
        moves in vec((0..500usize, 0..6usize), 0..400),
    ) {
        let mut shares: Vec<Share> = start.iter().map(|i| SHARES[*i]).collect();
        let mut tally = Tally::of(shares.iter().copied());
        for (seq, to) in moves {
            let seq = seq % shares.len();
            tally.replace(seq as StepSeq, shares[seq], SHARES[to]);
            shares[seq] = SHARES[to];
            let fresh = Tally::of(shares.iter().copied());
            prop_assert_eq!(&tally, &fresh);
            prop_assert_eq!((tally.colour(), tally.decisive()), (fresh.colour(), fresh.decisive()));
        }
    }
}

/// One change and one look at the outcome, in a run of so many steps.
fn cost(steps: u32) -> Duration {
    let mut shares: Vec<Share> = (0..steps).map(|seq| SHARES[3 + (seq % 3) as usize]).collect();
    let mut tally = Tally::of(shares.iter().copied());
    let rounds = 200_000_u32;
    let begun = Instant::now();
    for round in 0..rounds {
        let seq = (round.wrapping_mul(7919) % steps) as usize;
        let new = SHARES[3 + (round % 3) as usize];
        tally.replace(seq as StepSeq, shares[seq], new);
        shares[seq] = new;
        black_box((tally.colour(), tally.decisive()));
    }
    begun.elapsed() / rounds
}

/// `cargo test --release -p countersign-kernel --test rollup -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: prints what a change costs in runs of 10 to 10,000 steps"]
fn a_change_costs_the_same_in_a_large_run() {
    let small = cost(10);
    for steps in [10, 100, 1_000, 10_000] {
        let one = cost(steps);
        println!("{steps:>6} steps: {one:?} a change, {:.1} times 10 steps", one.as_secs_f64() / small.as_secs_f64());
    }
    // A thousand times the steps may cost a few levels of a tree, never a thousand times the work.
    assert!(cost(10_000) < small * 20);
}
