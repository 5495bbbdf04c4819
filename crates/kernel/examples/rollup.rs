//! What one change costs the roll-up of a run of so many steps: `cargo run --release -p countersign-kernel --example rollup`.

use countersign_kernel::plan::StepSeq;
use countersign_kernel::rollup::{Share, Tally};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SHARES: [Share; 3] = [Share::Green, Share::Yellow, Share::Red];
const ROUNDS: u32 = 2_000_000;

/// One change and one look at the outcome.
fn cost(steps: u32) -> Duration {
    let share = |n: u32| SHARES[(n % 3) as usize];
    let mut shares: Vec<Share> = (0..steps).map(share).collect();
    let mut tally = Tally::of(shares.iter().copied());
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let seq = (round.wrapping_mul(7919) % steps) as usize;
        tally.replace(seq as StepSeq, shares[seq], share(round));
        shares[seq] = share(round);
        black_box((tally.colour(), tally.decisive()));
    }
    begun.elapsed() / ROUNDS
}

/// The same from nothing, as it would be if nothing were kept.
fn from_nothing(steps: u32) -> Duration {
    let shares: Vec<Share> = (0..steps).map(|n| SHARES[(n % 3) as usize]).collect();
    let rounds = ROUNDS / 10 / steps;
    let begun = Instant::now();
    for _ in 0..rounds.max(1) {
        let tally = Tally::of(black_box(&shares).iter().copied());
        black_box((tally.colour(), tally.decisive()));
    }
    begun.elapsed() / rounds.max(1)
}

fn main() {
    println!("| steps | a change | counted from nothing |\n| --- | --- | --- |");
    for steps in [10, 100, 1_000, 10_000] {
        println!("| {steps} | {:?} | {:?} |", cost(steps), from_nothing(steps));
    }
}
