//! The stories of workflows, as data: who takes part, what happens, and what must come of it.

use super::story::{Beat, Expect, Role};
use Expect::{Accepted, Refused};
use RunAct::{Claim, ClaimBriefly, Complete, Dead, Event, FindNothing, Look, Retry, Start};

pub struct RunStory {
    pub title: &'static str,
    pub setting: &'static str,
    pub definition: &'static str,
    pub document: &'static str,
    /// A time of the definition that nobody would wait for, and what it is in the story.
    pub hurry: Option<(&'static str, &'static str)>,
    pub subject: &'static str,
    /// JSON; `$WORLD` is the directory of `world`.
    pub input: &'static str,
    /// Makes the files that the run is about, in a directory of their own. The server then carries shell steps out.
    pub world: Option<&'static str>,
    pub retention: &'static str,
    pub cast: &'static [Role],
    pub beats: &'static [Beat<RunAct>],
    /// The state that the run ends in, and its outcome.
    pub ends: (&'static str, Option<&'static str>),
    /// Steps and the states that they end in; one that undoes another bears a `↩`.
    pub steps: &'static [(&'static str, &'static str)],
}

pub enum RunAct {
    Start,
    /// Claims from a queue, and must be given this step.
    Claim(&'static str, &'static str),
    /// The same with a lease of so many milliseconds.
    ClaimBriefly(&'static str, &'static str, i64),
    /// Asks a queue, and must be given nothing.
    FindNothing(&'static str),
    /// Reports on what the actor claimed last: it is done, with this JSON as its output.
    Complete(&'static str),
    /// … it should be tried again after so many milliseconds.
    Retry(&'static str, i64),
    /// … it failed for good.
    Dead(&'static str),
    /// An event for the run's correlation key.
    Event {
        id: &'static str,
        event_type: &'static str,
        key: &'static str,
        data: &'static str,
        wakes: usize,
        duplicate: bool,
    },
    /// What a person does to a step, with this body; `$approval` stands for the approval that was opened last.
    On(&'static str, &'static str, &'static str),
    /// Opens a gate, and approves one.
    Open(&'static str),
    Approve(&'static str),
    /// Looks until the step is in this state: the clock moves it.
    Await(&'static str, &'static str),
    /// Looks until the run is in this state and this phase: the server moves it.
    Reaches(&'static str, &'static str),
    /// Resumes, stops or voids the run, with this body; `$approval` as above, or the one that was approved last.
    Control(&'static str, &'static str),
    /// Looks into the actor's in-tray, which must have so many entries.
    InTray(usize),
    /// Changes the world: a script in the directory of `world`.
    World(&'static str),
    /// Starts a dry run, and looks until it has ended.
    Rehearse,
    /// Draws the run.
    Look,
}

pub const fn beat(say: &'static str, actor: &'static str, act: RunAct, expect: Expect) -> Beat<RunAct> {
    Beat { say, actor, act, expect }
}

pub const START: &str = "runs:start";
pub const READ: &str = "runs:read";
pub const CONTROL: &str = "runs:control";
pub const WORK: &str = "tasks:work";

const PAID: RunAct = payment(1, false);

const fn payment(wakes: usize, duplicate: bool) -> RunAct {
    Event {
        id: "evt-4711",
        event_type: "payment.captured",
        key: "order-1001",
        data: r#"{"amount": 129}"#,
        wakes,
        duplicate,
    }
}

pub const ORDER_PROCESS: RunStory = RunStory {
    title: "An order: a retry, and a payment that is waited for",
    setting: "Order 1001 is validated by a worker, waits for its payment without holding anybody, and is shipped.",
    definition: "order-process",
    document: include_str!("../../../../../definitions/order-process.yaml"),
    hurry: None,
    subject: "order-1001",
    input: r#"{"order_id": "order-1001"}"#,
    world: None,
    retention: "sox_7_year",
    cast: &[
        Role { actor: "shop", who: "starts runs and looks at them", scopes: &[START, READ] },
        Role { actor: "warehouse", who: "a worker of the queue orders", scopes: &[WORK] },
        Role { actor: "payments", who: "knows when money has arrived", scopes: &[WORK] },
        Role { actor: "intern_okafor", who: "holds no grant at all", scopes: &[] },
    ],
    beats: &[
        beat("The shop starts a run.", "shop", Start, Accepted),
        beat(
            "Nobody works without a grant.",
            "intern_okafor",
            Claim("orders", "VALIDATE"),
            Refused("permission-denied"),
        ),
        beat(
            "A worker claims the first step: it is the worker's for 30 seconds.",
            "warehouse",
            Claim("orders", "VALIDATE"),
            Accepted,
        ),
        beat(
            "The stock system does not answer. Try again in half a second.",
            "warehouse",
            Retry("stock system: 503", 500),
            Accepted,
        ),
        beat(
            "The second attempt: the claim waits until it is due.",
            "warehouse",
            Claim("orders", "VALIDATE"),
            Accepted,
        ),
        beat("This time it works.", "warehouse", Complete(r#"{"valid": true}"#), Accepted),
        beat(
            "Now the run waits for its payment. No worker is held up meanwhile.",
            "warehouse",
            FindNothing("orders"),
            Accepted,
        ),
        beat("This is what the shop sees.", "shop", Look, Accepted),
        beat("The payment arrives, and wakes the run.", "payments", PAID, Accepted),
        beat("The same event again wakes nobody twice.", "payments", payment(0, true), Accepted),
        beat("The worker ships it, and knows what was paid.", "warehouse", Claim("orders", "SHIP"), Accepted),
        beat("Done.", "warehouse", Complete(r#"{"parcel": "JD014600003SE"}"#), Accepted),
    ],
    ends: ("completed", None),
    steps: &[("VALIDATE", "completed"), ("PAYMENT", "completed"), ("SHIP", "completed")],
};

pub const ORDER_SAGA: RunStory = RunStory {
    title: "A saga: what was done is undone in reverse order",
    setting: "An account is opened in four steps. The third fails, so the two before it are undone, the last one first.",
    definition: "order-saga",
    document: include_str!("../../../../../definitions/order-saga.yaml"),
    hurry: None,
    subject: "customer-77",
    input: r#"{"customer": "customer-77"}"#,
    world: None,
    retention: "sox_7_year",
    cast: &[
        Role { actor: "sales", who: "starts runs and looks at them", scopes: &[START, READ] },
        Role { actor: "onboarding", who: "the worker of the steps", scopes: &[WORK] },
        Role { actor: "product_analyst", who: "deletes workspaces", scopes: &[WORK] },
        Role { actor: "growth_optimizer", who: "deactivates accounts", scopes: &[WORK] },
    ],
    beats: &[
        beat("Sales starts a run.", "sales", Start, Accepted),
        beat("A worker opens the account.", "onboarding", Claim("default", "create-account"), Accepted),
        beat("Done.", "onboarding", Complete(r#"{"account": "acc-1"}"#), Accepted),
        beat(
            "The workspace is next, and learns which account it is for.",
            "onboarding",
            Claim("default", "provision-workspace"),
            Accepted,
        ),
        beat("Done.", "onboarding", Complete(r#"{"workspace": "ws-9"}"#), Accepted),
        beat("Then the analytics …", "onboarding", Claim("default", "setup-analytics"), Accepted),
        beat(
            "… which nobody sells any more. That is final.",
            "onboarding",
            Dead("the product was discontinued"),
            Accepted,
        ),
        beat("Nothing new is begun.", "onboarding", FindNothing("default"), Accepted),
        beat(
            "The account is not undone yet: the workspace was built on it.",
            "growth_optimizer",
            FindNothing("growth-optimizer"),
            Accepted,
        ),
        beat("The last one first.", "product_analyst", Claim("product-analyst", "provision-workspace"), Accepted),
        beat("Undoing can fail too, and is tried again.", "product_analyst", Retry("workspace is busy", 500), Accepted),
        beat("Half a second later …", "product_analyst", Claim("product-analyst", "provision-workspace"), Accepted),
        beat("… the workspace is gone.", "product_analyst", Complete(r#"{"deleted": "ws-9"}"#), Accepted),
        beat("Now the account.", "growth_optimizer", Claim("growth-optimizer", "create-account"), Accepted),
        beat("Deactivated.", "growth_optimizer", Complete(r#"{"deactivated": "acc-1"}"#), Accepted),
    ],
    ends: ("completed", Some("rolled_back")),
    steps: &[
        ("create-account", "completed"),
        ("provision-workspace", "completed"),
        ("setup-analytics", "failed"),
        ("send-welcome", "not_started"),
        ("↩ provision-workspace", "completed"),
        ("↩ create-account", "completed"),
    ],
};

pub const NIGHTLY_REPORT: RunStory = RunStory {
    title: "A graph: two workers side by side, one of whom dies",
    setting: "Sales and stock are counted at the same time, returns only once a week. The report waits for both.",
    definition: "nightly-report",
    document: include_str!("../../../../../definitions/nightly-report.yaml"),
    hurry: None,
    subject: "report-2026-11-16",
    input: r#"{"weekly": false}"#,
    world: None,
    retention: "sox_7_year",
    cast: &[
        Role { actor: "clock", who: "starts runs and looks at them", scopes: &[START, READ] },
        Role { actor: "counter_1", who: "a worker of the queue reports", scopes: &[WORK] },
        Role { actor: "counter_2", who: "another one", scopes: &[WORK] },
    ],
    beats: &[
        beat("A run is started by hand; the schedule would do it at six.", "clock", Start, Accepted),
        beat("First a snapshot, so that all count the same.", "counter_1", Claim("reports", "snapshot"), Accepted),
        beat(
            "Taken. Sales and stock are ready at once; returns are skipped, for this is not the weekly one.",
            "counter_1",
            Complete(r#"{"at": "2026-11-16T05:00:00Z"}"#),
            Accepted,
        ),
        beat(
            "One worker takes the sales, for a second and a half only.",
            "counter_1",
            ClaimBriefly("reports", "sales", 1500),
            Accepted,
        ),
        beat("The other takes the stock.", "counter_2", Claim("reports", "stock"), Accepted),
        beat("Two at work, one skipped.", "clock", Look, Accepted),
        beat("The stock is counted.", "counter_2", Complete(r#"{"items": 4120}"#), Accepted),
        beat(
            "The first worker has died: its lease ends, and the other takes over.",
            "counter_2",
            Claim("reports", "sales"),
            Accepted,
        ),
        beat(
            "The first one was only slow. It is too late: nothing is done twice.",
            "counter_1",
            Complete(r#"{"orders": 0}"#),
            Refused("lease-lost"),
        ),
        beat("The sales are counted.", "counter_2", Complete(r#"{"orders": 318}"#), Accepted),
        beat(
            "All that was not skipped has ended: the report can be made.",
            "counter_2",
            Claim("reports", "report"),
            Accepted,
        ),
        beat("Here it is.", "counter_2", Complete(r#"{"url": "https://reports.example/2026-11-16"}"#), Accepted),
    ],
    ends: ("completed", None),
    steps: &[
        ("snapshot", "completed"),
        ("sales", "completed"),
        ("stock", "completed"),
        ("returns", "skipped"),
        ("report", "completed"),
    ],
};
