//! The stories, as data: who takes part, what happens, and what must come of it.

use Act::{Approve, Fire, InTray, Open, Reject, Start};
use Expect::{Accepted, Refused};

pub struct Story {
    pub title: &'static str,
    pub setting: &'static str,
    pub definition: &'static str,
    pub document: &'static str,
    pub subject: &'static str,
    pub retention: &'static str,
    pub cast: &'static [Role],
    pub beats: &'static [Beat<Act>],
}

pub struct Role {
    pub actor: &'static str,
    pub who: &'static str,
    pub scopes: &'static [&'static str],
}

pub struct Beat<A> {
    pub say: &'static str,
    pub actor: &'static str,
    pub act: A,
    pub expect: Expect,
}

pub enum Act {
    Start,
    Fire(&'static str),
    Open(&'static str),
    Approve(&'static str, &'static str),
    Reject(&'static str, &'static str),
    /// Look into the actor's in-tray.
    InTray,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Accepted,
    Refused(&'static str),
    /// This many entries in the in-tray.
    Entries(usize),
}

const fn beat(say: &'static str, actor: &'static str, act: Act, expect: Expect) -> Beat<Act> {
    Beat { say, actor, act, expect }
}

const START: &str = "workflows:start";
const OPEN: &str = "workflows:open-gate";
const FIRE: &str = "workflows:fire";
const READ: &str = "workflows:read";

pub const BATCH_RELEASE: Story = Story {
    title: "Pharmaceutical batch release (FDA 21 CFR Part 11 and 211)",
    setting: "Batch BR-2026-0412 may be released only after the Qualified Person has signed off.",
    definition: "batch-release",
    document: include_str!("../../../../../definitions/batch-release.yaml"),
    subject: "br-2026-0412",
    retention: "fda_part_11_predicate_rule",
    cast: &[
        Role { actor: "qa_manager", who: "quality assurance", scopes: &[START, OPEN, FIRE, READ] },
        Role { actor: "lab_tech_rivera", who: "laboratory", scopes: &[FIRE] },
        Role {
            actor: "qp_director_santos",
            who: "the Qualified Person: holds no grant, the gate names her",
            scopes: &[],
        },
        Role { actor: "intern_okafor", who: "holds no grant at all", scopes: &[] },
    ],
    beats: &[
        beat("The QA manager starts the process.", "qa_manager", Start, Accepted),
        beat(
            "An intern without a grant tries to move it.",
            "intern_okafor",
            Fire("begin-testing"),
            Refused("permission-denied"),
        ),
        beat(
            "The lab begins testing. This transition has no guard.",
            "lab_tech_rivera",
            Fire("begin-testing"),
            Accepted,
        ),
        beat(
            "Releasing straight from testing is not declared.",
            "qa_manager",
            Fire("release"),
            Refused("invalid-transition"),
        ),
        beat("The tests are complete.", "qa_manager", Fire("complete-tests"), Accepted),
        beat(
            "Releasing needs the QP's approval, and nobody has asked for it: no gate.",
            "qa_manager",
            Fire("release"),
            Refused("gate-not-cleared"),
        ),
        beat("So the QA manager opens the gate.", "qa_manager", Open("release"), Accepted),
        beat("It lies in the QP's in-tray now.", "qp_director_santos", InTray, Expect::Entries(1)),
        beat(
            "Asked, but not answered: the gate is pending.",
            "qa_manager",
            Fire("release"),
            Refused("gate-not-cleared"),
        ),
        beat(
            "The QA manager may not approve in the QP's place.",
            "qa_manager",
            Approve("release", "looks fine to me"),
            Refused("unauthorized"),
        ),
        beat("One gate at a time.", "qa_manager", Open("release"), Refused("already-open")),
        beat(
            "The QP reviews the certificate of analysis and signs off.",
            "qp_director_santos",
            Approve("release", "Batch specification limits met; COA reviewed; QP sign-off granted under 21 CFR 211.68"),
            Accepted,
        ),
        beat("Her in-tray is empty again.", "qp_director_santos", InTray, Expect::Entries(0)),
        beat("Now, and only now, the batch can be released.", "qa_manager", Fire("release"), Accepted),
        beat("What has ended stays ended.", "qa_manager", Fire("release"), Refused("terminal")),
        beat("No gate can be opened on it either.", "qa_manager", Open("reject-batch"), Refused("gate-not-available")),
        beat(
            "And an approval cannot be taken back.",
            "qp_director_santos",
            Reject("release", "second thoughts"),
            Refused("not-pending"),
        ),
    ],
};

pub const JOURNAL_ENTRY: Story = Story {
    title: "Posting a journal entry (SOX §404)",
    setting: "Entry JE-2026-0441 is above the materiality threshold: the controller signs before it is posted.",
    definition: "journal-entry",
    document: include_str!("../../../../../definitions/journal-entry.yaml"),
    subject: "JE-2026-0441",
    retention: "sox_7_year",
    cast: &[
        Role { actor: "preparer_lindqvist", who: "prepares entries", scopes: &[START, OPEN, FIRE, READ] },
        Role { actor: "controller_morgan", who: "the controller", scopes: &[] },
    ],
    beats: &[
        beat("The preparer starts the process.", "preparer_lindqvist", Start, Accepted),
        beat("The entry is submitted.", "preparer_lindqvist", Fire("submit"), Accepted),
        beat(
            "Posting it without the controller is refused.",
            "preparer_lindqvist",
            Fire("post"),
            Refused("gate-not-cleared"),
        ),
        beat("The preparer asks for the sign-off.", "preparer_lindqvist", Open("post"), Accepted),
        beat(
            "The controller rejects at first, and must say why.",
            "controller_morgan",
            Reject("post", "Supporting schedule is missing"),
            Accepted,
        ),
        beat("A rejected gate clears nothing.", "preparer_lindqvist", Fire("post"), Refused("gate-not-cleared")),
        beat("With the schedule attached, a new gate is opened.", "preparer_lindqvist", Open("post"), Accepted),
        beat(
            "The preparer cannot sign for the controller.",
            "preparer_lindqvist",
            Approve("post", "schedule attached"),
            Refused("unauthorized"),
        ),
        beat(
            "The controller approves.",
            "controller_morgan",
            Approve("post", "Schedule reviewed; entry agrees with the subledger"),
            Accepted,
        ),
        beat("The entry is posted.", "preparer_lindqvist", Fire("post"), Accepted),
        beat("A posted entry is final.", "preparer_lindqvist", Fire("reject"), Refused("terminal")),
    ],
};

pub const PURCHASE_ORDER: Story = Story {
    title: "A purchase order is cancelled while its approval is pending",
    setting: "Leaving a state makes the gates that wait there moot: they are withdrawn, recalled and recorded.",
    definition: "purchase-order",
    document: include_str!("../../../../../definitions/purchase-order.yaml"),
    subject: "po-2026-1187",
    retention: "sox_7_year",
    cast: &[
        Role { actor: "process_manager", who: "runs purchasing", scopes: &[START, OPEN, FIRE, READ] },
        Role { actor: "finance_director", who: "approves expenditure", scopes: &[] },
    ],
    beats: &[
        beat("The process manager starts the order.", "process_manager", Start, Accepted),
        beat("It is submitted for approval.", "process_manager", Fire("submit"), Accepted),
        beat("The gate is opened.", "process_manager", Open("approve"), Accepted),
        beat("The finance director finds it in the in-tray.", "finance_director", InTray, Expect::Entries(1)),
        beat(
            "Before the decision the order is cancelled. That transition has no guard.",
            "process_manager",
            Fire("cancel"),
            Accepted,
        ),
        beat(
            "The in-tray is empty: nobody is asked for a decision that no longer matters.",
            "finance_director",
            InTray,
            Expect::Entries(0),
        ),
        beat(
            "A late approval changes nothing.",
            "finance_director",
            Approve("approve", "fine"),
            Refused("not-pending"),
        ),
    ],
};
