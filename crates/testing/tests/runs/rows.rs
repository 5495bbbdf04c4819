//! A run that is assembled from its rows is the run that the events have made: random plans under random histories, whose
//! rows are kept as a store would keep them.

#[path = "../../../kernel/tests/run_properties/auditor.rs"]
mod auditor;
#[path = "../../../kernel/tests/run_properties/colour.rs"]
mod colour;
#[path = "../../../kernel/tests/run_properties/generate.rs"]
mod generate;
#[path = "../../../kernel/tests/run_properties/play.rs"]
mod play;
#[path = "../../../kernel/tests/support/runs.rs"]
mod runs;

use countersign_engine::port::{LoadedRun, StoredRunHead, Unit};
use countersign_engine::rows::{RunEventRow, RunHeadRow, RunRow, StepState, Write};
use countersign_engine::run::assemble::assemble;
use countersign_engine::run::project::run_writes;
use countersign_engine::run::rollup::Basis;
use countersign_kernel::plan::{Order, StepSeq};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{Event, Run};
use countersign_kernel::{Digest, IdSource, Time};
use generate::{Op, large_plan, ops, plan};
use play::World;
use proptest::prelude::*;
use std::sync::Arc;

/// The tables, as far as one run is concerned.
#[derive(Default)]
struct Rows {
    run: Option<RunRow>,
    head: Option<RunHeadRow>,
    steps: Vec<(Option<StepSeq>, StepState)>,
    kept: Vec<RunEventRow>,
}

impl Rows {
    fn take(&mut self, unit: Unit) {
        for write in unit.writes {
            match write {
                Write::Run(row) => self.run = Some(row),
                Write::NewRunHead(row) | Write::RunHead(row) => self.head = Some(row),
                Write::RunEvent(row) => self.kept.push(row),
                Write::TakeRunEvent { event_id, .. } => {
                    self.kept.iter_mut().filter(|row| row.event_id == event_id).for_each(|row| row.taken = true);
                }
                _ => {}
            }
        }
        for (seq, write) in unit.steps {
            let compensates = match &write.new {
                Some(new) => new.compensates,
                None => self.steps[seq as usize].0,
            };
            match self.steps.get_mut(seq as usize) {
                Some(place) => *place = (compensates, write.state),
                None => self.steps.push((compensates, write.state)),
            }
        }
    }

    fn loaded(&self, world: &World) -> LoadedRun {
        let head = self.head.clone().unwrap_or_else(|| panic!("no head"));
        LoadedRun {
            row: self.run.clone().unwrap_or_else(|| panic!("no run")),
            head: StoredRunHead {
                state: head.state.to_owned(),
                outcome: head.outcome.map(str::to_owned),
                last_error: head.last_error,
                priority: head.priority,
                start_at: head.start_at,
                executing_since: head.executing_since,
                completed_at: head.completed_at,
                failed_at: head.failed_at,
                output: head.output,
                rollup: Some(Basis::of(&world.run).to_json().into()),
                runbook: head.runbook,
                undoing: head.undoing,
                called_off: head.called_off,
            },
            document: Arc::from(&b""[..]),
            machine: None,
            moves: world.shell.next_sequence_number - 1,
            gates: world.shell.gates.clone(),
            holds: world.shell.holds.clone(),
            steps: self.steps.clone(),
            kept: self.kept.iter().filter(|row| !row.taken).cloned().collect(),
        }
    }
}

/// The rows of everything that happened, event by event.
fn rows(world: &World) -> Rows {
    let mut rows = Rows::default();
    let mut ids = IdSource::new(Time(1), 1);
    let (_, mut run) = Run::begun_by(&world.events[0]).unwrap_or_else(|| panic!("no start"));
    for event in &world.events {
        let Event::Run(event) = event else { continue };
        run.apply(event);
        let mut unit = Unit::new(run.run_id, 0);
        let event_id = ids.make();
        run_writes(&run, event, event_id, Some(Digest([0; 32])), &Registry::default(), &mut ids, &mut unit);
        rows.take(unit);
    }
    rows
}

/// What no decision asks for may differ: the pointer of a DAG, and what is open once the run is undone or over.
fn comparable(mut run: Run) -> Run {
    let undone = run.head.undoing;
    if run.plan.order == Order::Dag || undone || run.head.state.is_ended() {
        run.head.current = 0;
    }
    if undone || run.head.state.is_ended() {
        run.head.open = 0;
        for cell in &mut run.cells {
            (cell.open_deps, cell.fed) = (0, false);
        }
    }
    run
}

fn compare(world: &World) {
    let loaded = rows(world).loaded(world);
    let (shell, run) = assemble(loaded, world.run.plan.clone(), None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(shell, world.shell);
    assert_eq!(comparable(run), comparable(world.run.clone()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_run_from_its_rows_is_the_run((plan, ops) in (plan(), ops())) {
        let mut world = World::start(plan);
        for (i, op) in ops.iter().enumerate() {
            world.give(op);
            if i.is_multiple_of(7) || i + 1 == ops.len() {
                compare(&world);
            }
        }
        world.replay();
        world.finish();
        compare(&world);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn a_large_run_from_its_rows_is_the_run((plan, ops) in (large_plan(), ops())) {
        let mut world = World::start(plan);
        for op in &ops {
            world.give(op);
        }
        compare(&world);
    }
}

#[test]
fn an_empty_history() {
    let mut world = World::start(generate::chain(1));
    world.give(&Op::Pass(1));
    compare(&world);
}
