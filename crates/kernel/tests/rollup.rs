//! The roll-up that is kept step by step is the one that is counted from nothing, and keeping it costs what changes.

use countersign_kernel::plan::StepSeq;
use countersign_kernel::rollup::{Share, Tally};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;
use std::cmp::Ordering;

const SHARES: [Share; 8] = [
    Share::Nothing,
    Share::Skipped,
    Share::Optional,
    Share::Green,
    Share::Done,
    Share::Yellow,
    Share::Red,
    Share::Cancelled,
];

proptest! {
    #[test]
    fn kept_and_counted_from_nothing_are_the_same(
        start in vec(0..7usize, 1..=500),
        moves in vec((0..500usize, 0..7usize), 0..400),
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

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// A step whose comparisons are counted: whoever looks at a step among others compares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted(u32);

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The most steps that any one change and the look at its outcome compared, in a run of so many steps.
fn most_compared(steps: u32) -> u64 {
    let mut shares: Vec<Share> = (0..steps).map(|seq| SHARES[3 + (seq % 3) as usize]).collect();
    let mut tally: Tally<Counted> = Tally::default();
    for (seq, share) in (0..).zip(&shares) {
        tally.replace(Counted(seq), Share::Nothing, *share);
    }
    let mut most = 0;
    for round in 0..20_000_u32 {
        let seq = round.wrapping_mul(7919) % steps;
        let new = SHARES[3 + (round % 3) as usize];
        COMPARED.with(|compared| compared.set(0));
        tally.replace(Counted(seq), shares[seq as usize], new);
        let outcome = (tally.colour(), tally.decisive(), tally.counts());
        most = most.max(COMPARED.with(Cell::get));
        shares[seq as usize] = new;
        assert_eq!(outcome.1.is_some(), outcome.0 != countersign_kernel::rollup::Colour::Green);
    }
    most
}

/// "O(changed steps), not O(steps)": a thousand times the steps are a few levels of a tree more.
#[test]
fn a_change_looks_at_as_many_steps_in_a_large_run() {
    let compared = [10, 100, 1_000, 10_000].map(most_compared);
    println!("steps compared at most by one change in 10, 100, 1,000, 10,000 steps: {compared:?}");
    // Of a tree's level at most eleven are looked at, once to take a step out and once to put it in.
    for (levels, compared) in (2..).zip(compared) {
        assert!(compared <= 2 * 11 * levels, "{compared}");
    }
}
