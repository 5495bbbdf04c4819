//! Every scenario at every level. `cargo test -p countersign-testing moot_gates::http` runs one of them.

use countersign_kernel::refusal::Code;
use countersign_testing::drive::{Driver, EngineDriver, Failure, HttpDriver, KernelDriver, Level};
use countersign_testing::postgres::Database;
use countersign_testing::scenario::{Act, Expected, Pace, Scenario, What, parse, run};
use countersign_testing::workspace;
use std::collections::BTreeSet;
use std::future::Future;

macro_rules! scenarios {
    ($($name:ident)*) => {
        const ALL: &[&str] = &[$(stringify!($name)),*];

        $(mod $name {
            const NAME: &str = stringify!($name);

            #[test]
            fn kernel() {
                super::block_on(super::at_kernel(NAME));
            }

            #[test]
            fn sqlite() {
                super::block_on(super::at_sqlite(NAME, super::Pace::Straight));
            }

            #[test]
            fn sqlite_restarting() {
                super::block_on(super::at_sqlite(NAME, super::Pace::RestartBeforeEveryLine));
            }

            #[test]
            fn postgres() {
                super::block_on(super::at_postgres(NAME));
            }

            #[test]
            fn http() {
                super::block_on(super::at_http(NAME));
            }
        })*
    };
}

scenarios! {
    blocked_severity
    corrections
    deadlines
    decide_gate
    finer_scopes
    finer_work
    fire_transition
    happy_path
    holds_and_purges
    moot_gates
    named_readers
    one_approval_one_firing
    open_gate
    opened_by_another
    own_machines
    people
    previews
    quorum_all_of_n
    quorum_leaving
    quorum_m_of_n
    quorum_one_of_n
    quorum_trailing
    quorum_withdrawal
    read_workflow
    registry
    rejection_paths
    reopening
    replaceable_gates
    revocation
    rollup
    run_again
    run_approvals
    run_cancel_compensate
    run_claim_next
    run_compensation
    run_control
    run_dag
    run_dead
    run_effect_unknown
    run_errors
    run_fail_closed
    run_inputs
    run_leases
    run_limits
    run_linear
    run_on_failure
    run_priorities
    run_refusals
    run_retries
    run_rows
    run_states
    run_timeouts
    run_values
    run_waits
    runbook_again
    runbook_caps
    runbook_children
    runbook_dry_run
    runbook_effects
    runbook_pins
    runbook_resume
    runbook_rows
    runbook_void
    self_approval
    settlement_application_actor
    settlement_commit_is_the_record
    settlement_declaration_in_evidence
    settlement_evidence
    settlement_only_approvals_guard
    settlement_order_of_checks
    settlement_quorum_starts_when_opened
    settlement_terminal_first
    start_workflow
    step_operators
    steps_of_earlier_states
    sub_workflows
    tasks
    unclaimed
    walkthrough
    workers_verbs
}

fn scenario(name: &str) -> Scenario {
    let file = format!("scenarios/{name}.txt");
    let text = std::fs::read_to_string(workspace().join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let shipped = |name: &str| std::fs::read_to_string(workspace().join(format!("definitions/{name}.yaml"))).ok();
    parse(&file, &text, shipped).unwrap_or_else(|complaint| panic!("{complaint}"))
}

fn block_on(test: impl Future<Output = Result<(), String>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    if let Err(message) = runtime.block_on(test) {
        panic!("{message}");
    }
}

fn works(failure: Failure) -> String {
    failure.to_string()
}

async fn play(name: &str, driver: &mut dyn Driver, pace: Pace) -> Result<(), String> {
    run(&scenario(name), driver, pace).await
}

async fn at_kernel(name: &str) -> Result<(), String> {
    let mut driver = KernelDriver::new().map_err(works)?;
    play(name, &mut driver, Pace::Straight).await
}

async fn at_sqlite(name: &str, pace: Pace) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let url = format!("sqlite:{}", directory.path().join("scenario.sqlite").display());
    let mut driver = EngineDriver::open(Level::Sqlite, &url).await.map_err(works)?;
    play(name, &mut driver, pace).await?;
    driver.close().await.map_err(works)
}

async fn at_postgres(name: &str) -> Result<(), String> {
    let database = Database::create().await?;
    let mut driver = EngineDriver::open(Level::Postgres, &database.url).await.map_err(works)?;
    let played = play(name, &mut driver, Pace::Straight).await;
    driver.close().await.map_err(works)?;
    database.drop().await?;
    played
}

async fn at_http(name: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut driver = HttpDriver::open(directory.path()).await.map_err(works)?;
    play(name, &mut driver, Pace::Straight).await?;
    // Whatever happened, an outside auditor can prove it.
    let (bundle, key) = driver.evidence().await.map_err(works)?;
    proven(&bundle, &key)?;
    driver.close().await.map_err(works)
}

fn proven(bundle: &[u8], key: &str) -> Result<(), String> {
    use countersign_verifier::{Detail, Trust, VerifierKey, report, verify};
    let mut trust = Trust::default();
    trust.log_keys.push(VerifierKey::parse(key)?);
    let verdict = verify(std::io::Cursor::new(bundle), &trust, Detail::Verdict).map_err(|unreadable| unreadable.0)?;
    if verdict.passed() {
        return Ok(());
    }
    let circumstances = report::Circumstances { bundle: "the bundle", trust: &trust, command: "" };
    Err(report::text(&verdict, &circumstances, false))
}

#[test]
fn every_file_is_run() {
    let mut files: Vec<String> = std::fs::read_dir(workspace().join("scenarios"))
        .expect("the scenarios")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, ALL, "add the new file to the list above");
}

/// The codes that no scenario can provoke, and where they are provoked instead.
const ELSEWHERE: &[(Code, &str)] = &[
    (Code::RecordingFailure, "needs a store that fails: tested at the engine"),
    (Code::Overloaded, "needs a full queue: overloaded.rs"),
    (Code::NothingToSeal, "needs a log and time that stands still: log.rs"),
    (Code::TooLarge, "needs a body beyond the limit: tested with the server"),
];

/// The rejections of seed 000's five actions, of what is done to records, and of what is done with runs. None of them may lose its scenario.
const OF_THE_ACTIONS: &[(&str, &[Code])] = &[
    ("starts", &[Code::PermissionDenied, Code::InvalidDeclaration, Code::InvalidRequest]),
    (
        "opens",
        &[
            Code::PermissionDenied,
            Code::NotKnown,
            Code::InvalidTransition,
            Code::NotGuarded,
            Code::GateNotAvailable,
            Code::AlreadyOpen,
        ],
    ),
    ("decides", &[Code::NotKnown, Code::GateNotOpen, Code::NotPending, Code::Unauthorized, Code::InvalidRequest]),
    ("fires", &[Code::PermissionDenied, Code::NotKnown, Code::Terminal, Code::InvalidTransition, Code::GateNotCleared]),
    ("reads", &[Code::PermissionDenied, Code::InvalidQuery]),
    ("holds", &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown]),
    ("releases", &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown, Code::AlreadyReleased]),
    (
        "purges",
        &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown, Code::NotEligible, Code::UnderLegalHold],
    ),
    ("starts run", &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown]),
    ("reads run", &[Code::PermissionDenied, Code::NotKnown]),
    ("claims", &[Code::InvalidRequest, Code::PermissionDenied]),
    ("completes", &[Code::PermissionDenied, Code::NotKnown, Code::LeaseLost, Code::Conflict]),
    ("waits", REPORT),
    ("retries", REPORT),
    ("dies", REPORT),
    ("beats", REPORT),
    ("sends", &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown]),
    ("pause", CONTROL),
    ("pause", &[Code::TransitionRefusedByGuard]),
    ("resume", CONTROL),
    ("cancel", CONTROL),
    ("cancel", &[Code::GateNotCleared, Code::TransitionRefusedByGuard]),
    // Whatever has not ended can be stopped, a run that is undone too.
    (
        "stop",
        &[
            Code::InvalidRequest,
            Code::PermissionDenied,
            Code::NotKnown,
            Code::AlreadyTerminal,
            Code::TransitionRefusedByGuard,
        ],
    ),
    ("void", CONTROL),
    ("void", &[Code::GateNotCleared, Code::TransitionRefusedByGuard]),
    ("unblocks", CONTROL),
    ("unblocks", &[Code::TransitionRefusedByGuard]),
    (
        "declares",
        &[
            Code::InvalidRequest,
            Code::PermissionDenied,
            Code::NotKnown,
            Code::AlreadyTerminal,
            Code::TransitionRefusedByGuard,
        ],
    ),
    ("acts", CONTROL),
    ("acts", &[Code::Unauthorized, Code::TransitionRefusedByGuard]),
    (
        "opens run gate",
        &[
            Code::InvalidRequest,
            Code::PermissionDenied,
            Code::NotKnown,
            Code::InvalidTransition,
            Code::GateNotAvailable,
            Code::AlreadyOpen,
        ],
    ),
    (
        "decides run gate",
        &[Code::InvalidRequest, Code::NotKnown, Code::GateNotOpen, Code::NotPending, Code::Unauthorized],
    ),
];

const REPORT: &[Code] = &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown, Code::LeaseLost];
const CONTROL: &[Code] =
    &[Code::InvalidRequest, Code::PermissionDenied, Code::NotKnown, Code::AlreadyTerminal, Code::InvalidTransition];

#[test]
fn every_code_has_a_scenario() {
    let mut provoked: BTreeSet<(&str, Code)> = BTreeSet::new();
    let mut codes: BTreeSet<Code> = BTreeSet::new();
    for scenario in ALL.iter().map(|name| scenario(name)) {
        for line in scenario.lines {
            let What::Act { act, expected: Expected::Refused { code, .. }, .. } = line.what else { continue };
            codes.insert(code);
            let action = match &act {
                Act::Start { .. } => "starts",
                Act::Open { .. } => "opens",
                Act::Decide { .. } => "decides",
                Act::Fire { .. } => "fires",
                Act::Read { .. } | Act::Get { .. } => "reads",
                Act::Hold { .. } => "holds",
                Act::Release { .. } => "releases",
                Act::Purge { .. } => "purges",
                Act::Run(act) => act.name(),
                Act::Grant { .. } | Act::Revoke { .. } | Act::Post { .. } => continue,
            };
            provoked.insert((action, code));
        }
    }
    let lost: Vec<String> = OF_THE_ACTIONS
        .iter()
        .flat_map(|(action, codes)| codes.iter().map(move |code| (*action, *code)))
        .filter(|pair| !provoked.contains(pair))
        .map(|(action, code)| format!("{action} -> {code}"))
        .collect();
    assert!(lost.is_empty(), "without a scenario: {lost:?}");

    for code in Code::ALL {
        let elsewhere = ELSEWHERE.iter().find(|(excepted, _)| excepted == code);
        assert!(codes.contains(code) != elsewhere.is_some(), "{code}: scenario or exception? {elsewhere:?}");
    }
}
