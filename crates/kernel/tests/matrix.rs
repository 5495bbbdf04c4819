//! The whole matrix: every (from, to, actor class, trigger) of the nine states of the floor and the two derived ones is
//! declared as the seed's table has it, or refused. The table is `matrix.txt`, typed in from the seed; the code's own
//! table is what is tested.

use countersign_kernel::lifecycle::{
    ActorClass, EVERY_EMITTED, Facts, Guard, RUN_TRIGGERS, STEP_ACTS, STEP_STATES, STEP_TRANSITIONS, StepCode,
    TransitionRow, evaluate, event_type, fire_step, machine, machines,
};
use countersign_kernel::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// Seed 003 §3.1, in its order: code, semantic class, terminal.
const FLOOR: [(&str, &str, bool); 9] = [
    ("not_started", "idle", false),
    ("ready", "active", false),
    ("in_progress", "active", false),
    ("waiting", "wait", false),
    ("blocked", "wait", false),
    ("overdue", "red", false),
    ("failed", "red", false),
    ("cannot_complete", "red", false),
    ("completed", "active", true),
];
const DERIVED: [(&str, &str); 2] = [("skipped", "completed"), ("cancelled", "cannot_complete")];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: String,
    kind: String,
    guards: Vec<String>,
    event: String,
    audit: bool,
    rollback: Option<String>,
}

type Key = (String, String, String, String);

fn table() -> BTreeMap<Key, Row> {
    let open: Vec<&str> = FLOOR.iter().filter(|(_, _, terminal)| !terminal).map(|(code, ..)| *code).collect();
    let mut table = BTreeMap::new();
    for line in include_str!("matrix.txt").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [id, from, to, actors, kind, triggers, guards, event, audit, rollback] = cells[..] else {
            panic!("ten cells: {line}")
        };
        let mut from: BTreeSet<&str> =
            if from == "any" { open.iter().copied().collect() } else { from.split(" or ").collect() };
        // "Every edge that leaves in_progress also leaves overdue": T7 is T8's, and T5 leads there.
        if from.contains("in_progress") && !matches!(id, "T5" | "T8") {
            from.insert("overdue");
        }
        let row = Row {
            id: id.to_owned(),
            kind: kind.to_owned(),
            guards: vec![],
            event: event.to_owned(),
            audit: audit == "yes",
            rollback: (rollback != "-").then(|| rollback.to_owned()),
        };
        for from in from {
            for actor in actors.split(" or ") {
                for trigger in triggers.split(" or ") {
                    let key = (from.to_owned(), to.to_owned(), actor.to_owned(), trigger.to_owned());
                    let row = Row { guards: guards_for(guards, actor), ..row.clone() };
                    assert_eq!(table.insert(key, row), None, "{line}");
                }
            }
        }
    }
    table
}

/// Those of a cell that are asked of this class.
fn guards_for(cell: &str, actor: &str) -> Vec<String> {
    let asked = cell.split(" and ").map(|guard| guard.split_once(':').unwrap_or((actor, guard)));
    asked.filter(|(of, _)| *of == actor).map(|(_, guard)| guard.to_owned()).collect()
}

#[test]
fn every_pair_is_declared_as_in_the_seed_or_refused() {
    let table = table();
    let mut triggers: BTreeSet<&str> = table.keys().map(|(.., trigger)| trigger.as_str()).collect();
    triggers.extend(["step_teleport", ""]);
    let (mut declared, mut refused) = (0, 0);
    for from in STEP_STATES {
        for to in STEP_STATES {
            for actor in ActorClass::ALL {
                for trigger in &triggers {
                    let key =
                        (from.text.to_owned(), to.text.to_owned(), actor.as_str().to_owned(), (*trigger).to_owned());
                    let fired = fire_step(from.code, to.code, *actor, trigger).map(|t| Row {
                        id: t.id.to_owned(),
                        kind: t.trigger_kind.as_str().to_owned(),
                        guards: t.guards_of(*actor).map(|guard| guard.name().to_owned()).collect(),
                        event: t.emits.to_owned(),
                        audit: t.audit_required,
                        rollback: t.rollback_to().map(|state| state.as_str().to_owned()),
                    });
                    assert_eq!(fired.as_ref(), table.get(&key), "{key:?}");
                    if fired.is_some() { declared += 1 } else { refused += 1 }
                }
            }
        }
    }
    assert_eq!(declared, table.len());
    assert_eq!(declared + refused, 11 * 11 * ActorClass::ALL.len() * triggers.len());
}

#[test]
fn the_floor_stands_verbatim_and_derived_states_are_justified() {
    for id in ["step", "task"] {
        let machine = machine(id).unwrap_or_else(|| panic!("no machine {id}"));
        for (row, (code, class, terminal)) in machine.states.iter().zip(FLOOR) {
            assert_eq!((row.code.as_str(), row.semantic_class, row.is_terminal), (code, class, terminal));
            assert!(!row.is_derived && row.floor_equivalent.is_none(), "{code}");
        }
        let derived: Vec<_> = machine.states[9..].iter().map(|row| (row.code.as_str(), row.floor_equivalent)).collect();
        assert_eq!(derived, DERIVED.map(|(code, floor)| (code, Some(floor))));
        assert!(machine.states[9..].iter().all(|row| row.is_derived && row.justification.is_some()));
    }
}

/// What is shown is what is asked: the registry's rows and `fire_step` agree both ways.
#[test]
fn the_registry_shows_what_fires() {
    let step = machine("step").unwrap_or_else(|| panic!("no step machine"));
    let code = |text: &str| StepCode::parse(text).unwrap_or_else(|| panic!("{text}"));
    for row in &step.transitions {
        let actor = ActorClass::ALL.iter().find(|actor| actor.as_str() == row.actor_class);
        let actor = *actor.unwrap_or_else(|| panic!("{}", row.actor_class));
        let fired = fire_step(code(&row.from), code(&row.to), actor, row.trigger_ref);
        assert_eq!(fired.map(|t| t.id), Some(row.id));
    }
    let keys: BTreeSet<Key> = step
        .transitions
        .iter()
        .map(|row| (row.from.clone(), row.to.clone(), row.actor_class.to_owned(), row.trigger_ref.to_owned()))
        .collect();
    assert_eq!(keys, table().into_keys().collect());
}

/// §4.3: a task's own person in charge may do what the step's may, and events are the task's own.
#[test]
fn a_task_is_the_same_machine_one_level_down() {
    let of = |id| machine(id).unwrap_or_else(|| panic!("no machine {id}"));
    let pic = |row: &&TransitionRow| row.actor_class == "pic_human";
    let own = |row: &&TransitionRow| row.actor_class == "task_pic_human";
    assert_eq!(of("step").transitions.iter().filter(pic).count(), of("task").transitions.iter().filter(own).count());
    let completed =
        of("task").transitions.iter().find(|row| row.id == "T8").and_then(|row| row.emitted_event_type.clone());
    assert_eq!(completed.as_deref(), Some("task.completed"));
}

#[test]
fn every_machine_is_whole() {
    for machine in machines() {
        let known = |state: &str| machine.states.iter().any(|row| row.code == state);
        assert!(known(machine.initial_state), "{}", machine.id);
        let mut keys = BTreeSet::new();
        for row in &machine.transitions {
            assert!(known(&row.from) && known(&row.to), "{} {}", machine.id, row.id);
            assert!(row.rollback_to.as_deref().is_none_or(known), "{} {}", machine.id, row.id);
            assert!(keys.insert((&row.from, &row.to, row.actor_class, row.trigger_ref)), "{} {}", machine.id, row.id);
            if matches!(machine.id, "step" | "workflow_run") {
                let event = row.emitted_event_type.as_deref().unwrap_or_default();
                assert!(event_type(event).is_some(), "{event} is not registered");
                assert!(machine.id == "workflow_run" || !row.guards.is_empty(), "{} has no guard", row.id);
            }
        }
    }
}

/// Facts that refuse these guards, and say which they were asked about.
struct Asked {
    refuse: Vec<Guard>,
    asked: std::cell::RefCell<Vec<Guard>>,
}

impl Facts for Asked {
    fn check(&self, guard: Guard) -> Result<(), Refusal> {
        self.asked.borrow_mut().push(guard);
        if self.refuse.contains(&guard) { Err(Refusal::by_guard(guard, "no")) } else { Ok(()) }
    }
}

/// Every row asks exactly about the guards that the registry shows of it; whichever of them does not hold refuses, and all
/// that do not are told.
#[test]
fn every_guard_of_a_row_is_asked_and_no_other() {
    for row in machines().iter().flat_map(|machine| &machine.transitions) {
        let asked = |refuse: Vec<Guard>| {
            let facts = Asked { refuse, asked: std::cell::RefCell::default() };
            let said = evaluate(row.guards.iter().copied(), &facts);
            assert_eq!(facts.asked.into_inner(), row.guards, "{}", row.id);
            said
        };
        assert_eq!(asked(vec![]), Ok(()));
        for guard in &row.guards {
            let refusal = asked(vec![*guard]).expect_err("refused");
            assert!(refusal.is_by_guard(*guard) && refusal.also.is_empty(), "{}: {refusal}", row.id);
        }
        if let Err(refusal) = asked(row.guards.clone()) {
            let told: Vec<&str> = refusal.problems().map(|(guard, _)| guard).collect();
            let all: Vec<&str> = row.guards.iter().map(|guard| guard.name()).collect();
            assert_eq!(told, all, "{}", row.id);
        }
    }
}

/// A guard that no table names is asked by nothing.
#[test]
fn every_guard_stands_in_a_table() {
    let steps = STEP_TRANSITIONS.iter().flat_map(|row| row.guards).map(|asked| asked.guard);
    let runs = RUN_TRIGGERS.iter().flat_map(|row| row.guards).copied();
    let acts = STEP_ACTS.iter().flat_map(|(_, guards)| *guards).copied();
    let shown = machines().iter().flat_map(|machine| &machine.transitions).flat_map(|row| row.guards.clone());
    let all: BTreeSet<Guard> =
        steps.chain(runs).chain(acts).chain(shown).chain(EVERY_EMITTED.iter().copied()).collect();
    assert_eq!(all, Guard::ALL.iter().copied().collect());
    let names: BTreeSet<&str> = Guard::ALL.iter().map(|guard| guard.name()).collect();
    assert_eq!(names.len(), Guard::ALL.len());
}

/// Code that refuses by a guard beside the tables would be found here: only the place that fires does, and the engine, which
/// composes events.
#[test]
fn guards_refuse_in_one_place() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let allowed = ["kernel/src/run/guard.rs", "engine/src/run/emit.rs"];
    let mut found = BTreeSet::new();
    for part in ["kernel/src", "engine/src", "server/src"] {
        let mut folders = vec![crates.join(part)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if std::fs::read_to_string(&entry).is_ok_and(|text| text.contains("Refusal::by_guard(")) {
                    let path = entry.strip_prefix(&crates).expect("below").to_string_lossy().replace('\\', "/");
                    found.insert(path);
                }
            }
        }
    }
    assert_eq!(found, allowed.map(str::to_owned).into());
}
