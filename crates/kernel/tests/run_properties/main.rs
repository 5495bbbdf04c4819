//! Random plans and random histories of their runs. After every command an auditor, written from the requirement, goes over
//! what happened and over what the run holds now.

mod auditor;
mod colour;
mod generate;
mod play;
#[path = "../support/runs.rs"]
mod runs;

use generate::{Op, large_plan, ops, plan};
use play::World;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn a_run_does_only_what_it_may((plan, ops) in (plan(), ops())) {
        let mut world = World::start(plan);
        for op in &ops {
            world.give(op);
        }
        world.replay();
    }

    /// Whoever works on and on, and decides whatever is asked, brings every run to an end.
    #[test]
    fn a_run_that_is_worked_on_ends((plan, ops) in (plan(), ops())) {
        let mut world = World::start(plan);
        for op in &ops {
            world.give(op);
        }
        world.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The roll-up that is kept as the run goes is the one that is counted from nothing, up to 500 steps.
    #[test]
    fn a_large_run_keeps_its_colour((plan, ops) in (large_plan(), ops())) {
        let mut world = World::start(plan);
        for op in &ops {
            world.give(op);
        }
        world.replay();
    }
}

#[test]
fn the_shortest_run() {
    let mut world = World::start(generate::chain(2));
    for _ in 0..2 {
        world.give(&Op::Claim(1));
        world.give(&Op::Report { of: 0, kind: play::Kind::Complete });
    }
    assert!(world.run.head.state.is_ended());
}
