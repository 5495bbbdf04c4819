//! The story of a workflow that people carry out: they claim, wait, are blocked and late, and correct what was closed.

use super::run_story::{CONTROL, READ, RunAct, RunStory, START, WORK, beat};
use super::story::Expect::{Accepted, Refused};
use super::story::Role;
use RunAct::{Approve, Await, Look, On, Open, Start};

const INVESTIGATE: &str = "investigate";

pub const CAPA: RunStory = RunStory {
    title: "A corrective action: people, a deadline that passes, and a finding that is corrected",
    setting: "Mould on line 3. Kim investigates why, quality assurance agrees on what follows, Lee carries it out. Then the finding turns out to be wrong.",
    definition: "capa",
    document: include_str!("../../../../../definitions/capa.yaml"),
    hurry: Some(("deadline: 3d", "deadline: 3s")),
    subject: "capa-2026-017",
    input: r#"{"finding": "mould on line 3", "investigator": "kim", "owner": "lee"}"#,
    world: None,
    retention: "fda_part_11_predicate_rule",
    cast: &[
        Role { actor: "quality", who: "starts runs, looks at them and reviews them", scopes: &[START, READ, CONTROL] },
        Role { actor: "kim", who: "investigates", scopes: &[WORK] },
        Role { actor: "lee", who: "is in charge of line 3", scopes: &[WORK] },
        Role { actor: "qa_lead", who: "agrees on what is to be done", scopes: &[] },
        Role { actor: "head_of_quality", who: "alone lets what is closed be opened again", scopes: &[] },
    ],
    beats: &[
        beat("A case is opened.", "quality", Start, Accepted),
        beat(
            "Lee would rather do it himself. It is Kim's.",
            "lee",
            On(INVESTIGATE, "claim", "{}"),
            Refused("unauthorized"),
        ),
        beat("Kim claims it, and is told what it is about.", "kim", On(INVESTIGATE, "claim", "{}"), Accepted),
        beat(
            "Samples are at the laboratory: Kim waits, and says for what.",
            "kim",
            On(INVESTIGATE, "wait", r#"{"waiting_facet": "waiting_external"}"#),
            Accepted,
        ),
        beat(
            "The result is there. That it is, is shown.",
            "kim",
            On(INVESTIGATE, "unblock", r#"{"evidence_ref": "lab-report-17"}"#),
            Accepted,
        ),
        beat(
            "The cleaning log is missing: Kim is blocked.",
            "kim",
            On(INVESTIGATE, "block", r#"{"block_reason": "missing_input"}"#),
            Accepted,
        ),
        beat("Everybody sees that the case stands still, and why.", "quality", Look, Accepted),
        beat(
            "The log was found.",
            "kim",
            On(INVESTIGATE, "unblock", r#"{"evidence_ref": "cleaning-log-w46"}"#),
            Accepted,
        ),
        beat(
            "Three days are over; here, three seconds. The step is overdue, and that stays on record.",
            "quality",
            Await(INVESTIGATE, "overdue"),
            Accepted,
        ),
        beat(
            "A result without a severity is none: Kim is told what is missing, and nothing changes.",
            "kim",
            On(INVESTIGATE, "complete", r#"{"output": {"root_cause": "humidity"}}"#),
            Refused("transition_refused_by_guard"),
        ),
        beat(
            "Late, but complete.",
            "kim",
            On(INVESTIGATE, "complete", r#"{"output": {"root_cause": "humidity", "severity": "minor"}}"#),
            Accepted,
        ),
        beat("Quality assurance agrees on the correction.", "qa_lead", Approve("correct"), Accepted),
        beat("Lee begins, and learns what the cause was.", "lee", On("correct", "claim", "{}"), Accepted),
        beat(
            "The laboratory had mixed up two samples. What is closed is not opened just so …",
            "quality",
            On(INVESTIGATE, "reopen", r#"{"correction_reason": "data_error"}"#),
            Refused("transition_refused_by_guard"),
        ),
        beat("… it needs an approval of its own.", "quality", Open("reopen:investigate"), Accepted),
        beat("The head of quality gives it.", "head_of_quality", Approve("reopen:investigate"), Accepted),
        beat(
            "The investigation is open again. What it had found first stays beside it.",
            "quality",
            On(INVESTIGATE, "reopen", r#"{"approval_id": "$approval", "correction_reason": "data_error"}"#),
            Accepted,
        ),
        beat(
            "Kim corrects the finding.",
            "kim",
            On(INVESTIGATE, "complete", r#"{"output": {"root_cause": "a leaking seal", "severity": "major"}}"#),
            Accepted,
        ),
        beat(
            "Lee reports that it is done.",
            "lee",
            On("correct", "complete", r#"{"output": {"done": true}}"#),
            Accepted,
        ),
        beat("Later Kim looks whether it helped.", "kim", On("effectiveness-check", "claim", "{}"), Accepted),
        beat("It did.", "kim", On("effectiveness-check", "complete", r#"{"output": {"effective": true}}"#), Accepted),
    ],
    ends: ("completed", None),
    steps: &[(INVESTIGATE, "completed"), ("correct", "completed"), ("effectiveness-check", "completed")],
};
