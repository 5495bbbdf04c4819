//! The stories of runbooks: the world changes in the middle, the run stops, and its sovereign lets it go on.

use super::run_story::{CONTROL, READ, RunAct, RunStory, START, WORK, beat};
use super::story::Beat;
use super::story::Expect::{Accepted, Refused};
use super::story::Role;
use RunAct::{Approve, Claim, Complete, Control, FindNothing, InTray, Look, Reaches, Rehearse, Start, World};

const RESUME: RunAct = Control("resume", r#"{"approval_id": "$approval"}"#);
const NO_APPROVAL: RunAct = Control("resume", "{}");
const BY_GUARD: &str = "transition_refused_by_guard";

pub const DOCUMENT_CUT: RunStory = RunStory {
    title: "A runbook: a document is cut into units, and the ground moves in the middle",
    setting: "Eleven steps, each with its checks. Two need the sovereign's authorization. While the first waits, somebody redeploys the functions that the cut relies on.",
    definition: "document-cut",
    document: include_str!("../../../../../definitions/document-cut.yaml"),
    hurry: None,
    subject: "ICX-LAW-2026-001",
    input: r#"{"document": "ICX-LAW-2026-001", "workspace": "$WORLD"}"#,
    world: Some(
        r#"echo '{"document": "ICX-LAW-2026-001", "regions": 3}' > manifest.json
echo 'CREATE FUNCTION fn_iu_enact() ... -- v1' > functions.sql"#,
    ),
    retention: "sox_7_year",
    cast: &[
        Role { actor: "operator", who: "starts runs, looks at them, resumes them", scopes: &[START, READ, CONTROL] },
        Role { actor: "cutter", who: "the worker that writes", scopes: &[WORK] },
        Role { actor: "cutter_verify", who: "the worker that verifies what was written", scopes: &[WORK] },
        Role { actor: "sovereign", who: "authorizes, and alone lets a stopped run go on", scopes: &[] },
        Role { actor: "release_team", who: "knows nothing of this run", scopes: &[] },
    ],
    beats: CUT,
    ends: ("completed", None),
    steps: &[
        ("source_pin", "completed"),
        ("mark", "completed"),
        ("cutplan", "completed"),
        ("backup", "completed"),
        ("grant_probe", "completed"),
        ("cut_leg_a", "completed"),
        ("structural_verify", "completed"),
        ("leg_b_record", "completed"),
        ("write_verify", "completed"),
        ("lifecycle_enact", "completed"),
        ("closeout", "completed"),
    ],
};

const CUT: &[Beat<RunAct>] = &[
    beat("The operator starts a run.", "operator", Start, Accepted),
    beat("The cutter takes the first step.", "cutter", Claim("cutter", "source_pin"), Accepted),
    beat(
        "The source is as recorded. The server now pins the manifest and the functions.",
        "cutter",
        Complete(
            r#"{"document": "ICX-LAW-2026-001", "source_version_id": "sv-7", "manifest_digest": "9f2c", "recorded_digest": "9f2c", "region_sha": "77aa"}"#,
        ),
        Accepted,
    ),
    beat(
        "From here on the server looks at both pins before every step. They are equal: the next step is there.",
        "cutter",
        Claim("cutter", "mark"),
        Accepted,
    ),
    beat("Three regions are marked.", "cutter", Complete(r#"{"region_sha": "77aa", "rows": 3}"#), Accepted),
    beat("Then the plan …", "cutter", Claim("cutter", "cutplan"), Accepted),
    beat(
        "… which comes out the same when it is made twice.",
        "cutter",
        Complete(
            r#"{"writer_digest": "41ab", "second_writer_digest": "41ab", "rows": 3, "unmapped": [], "distinct_keys": 3, "section_types": {"article": 3}}"#,
        ),
        Accepted,
    ),
    beat("A backup before anything is written …", "cutter", Claim("cutter", "backup"), Accepted),
    beat(
        "… encrypted to the right key.",
        "cutter",
        Complete(r#"{"reachable": true, "fpr": "9F2C41AB", "sha256": "c0ffee", "size_bytes": 48211}"#),
        Accepted,
    ),
    beat("Last, who may do what.", "cutter", Claim("cutter", "grant_probe"), Accepted),
    beat(
        "Nobody may do more than they should.",
        "cutter",
        Complete(
            r#"{"cutter_exec": ["fn_iu_create", "fn_iu_apply_edit_draft", "fn_iu_enact"], "cutter_verify": ["SELECT", "INSERT"], "review_decision_readable": true, "public_execute": []}"#,
        ),
        Accepted,
    ),
    beat(
        "Now the run waits for its authorization.",
        "operator",
        Reaches("blocked", "awaiting_cut_authorization"),
        Accepted,
    ),
    beat("The sovereign sees what is asked, with every pin.", "sovereign", InTray(1), Accepted),
    beat(
        "Meanwhile another team deploys a new version of the functions.",
        "release_team",
        World("echo 'CREATE FUNCTION fn_iu_enact() ... -- v2' > functions.sql"),
        Accepted,
    ),
    beat("The sovereign authorizes the cut, as it was shown.", "sovereign", Approve("cut_leg_a"), Accepted),
    beat(
        "The server looks once more before the step, and stops the run: this is not what was authorized.",
        "operator",
        Reaches("stopped", "grants_probed"),
        Accepted,
    ),
    beat("Nothing can be claimed.", "cutter", FindNothing("cutter"), Accepted),
    beat("The operator alone cannot go on.", "operator", NO_APPROVAL, Refused(BY_GUARD)),
    beat("The stop is in the sovereign's in-tray, with the difference.", "sovereign", InTray(1), Accepted),
    beat(
        "The new version is fine: the sovereign accepts exactly this difference.",
        "sovereign",
        Approve("resume"),
        Accepted,
    ),
    beat("The operator resumes. The new value is pinned.", "operator", RESUME, Accepted),
    beat(
        "The authorization from before the change counts no more: it is asked for again.",
        "operator",
        Reaches("blocked", "awaiting_cut_authorization"),
        Accepted,
    ),
    beat("The sovereign authorizes the cut on the new ground.", "sovereign", Approve("cut_leg_a"), Accepted),
    beat("The cutter takes it …", "cutter", Claim("cutter", "cut_leg_a"), Accepted),
    beat(
        "… writes three units …",
        "cutter",
        World(r#"for n in 1 2 3; do echo "{\"unit\": $n, \"status\": \"draft\"}"; done > units.jsonl"#),
        Accepted,
    ),
    beat(
        "… and reports. The number of units is pinned too.",
        "cutter",
        Complete(r#"{"writer_digest": "41ab", "created": 3, "committed": true, "not_draft": 0}"#),
        Accepted,
    ),
    beat(
        "Another worker verifies what was written.",
        "cutter_verify",
        Claim("verifier", "structural_verify"),
        Accepted,
    ),
    beat(
        "All eleven probes pass.",
        "cutter_verify",
        Complete(r#"{"probes_passed": 11, "section_types": {"article": 3}, "forbidden_ids": 0}"#),
        Accepted,
    ),
    beat("The second leg …", "cutter", Claim("cutter", "leg_b_record"), Accepted),
    beat(
        "… records the change set once.",
        "cutter",
        Complete(
            r#"{"change_set_id": "cs-41", "manifest_envelope_id": "me-1", "executor_signature_id": "es-1", "rows": 3, "duplicates": 0, "lane_overlaps": 0}"#,
        ),
        Accepted,
    ),
    beat("And it is verified …", "cutter_verify", Claim("verifier", "write_verify"), Accepted),
    beat(
        "… by the verifier's own principal.",
        "cutter_verify",
        Complete(
            r#"{"principal": "cutter_verify", "signature_id": "vs-1", "results": 1, "review_decision_id": "rd-9"}"#,
        ),
        Accepted,
    ),
    beat(
        "The second authorization is one of its own.",
        "operator",
        Reaches("blocked", "awaiting_lifecycle_authorization"),
        Accepted,
    ),
    beat("This is what the operator sees.", "operator", Look, Accepted),
    beat("The sovereign gives it.", "sovereign", Approve("lifecycle_enact"), Accepted),
    beat("The units are enacted …", "cutter", Claim("cutter", "lifecycle_enact"), Accepted),
    beat(
        "… all of them, in one transaction.",
        "cutter",
        Complete(r#"{"review_decision_id": "rd-9", "enacted": 3, "partial": 0, "logged": 3, "triggers": ["O", "O"]}"#),
        Accepted,
    ),
    beat("The run is reported.", "cutter", Claim("cutter", "closeout"), Accepted),
    beat("Done.", "cutter", Complete(r#"{"missing_reports": 0, "indexed": true}"#), Accepted),
    beat("Fourteen states, each of them on record.", "operator", Reaches("completed", "closeout_reported"), Accepted),
];

pub const DB_MIGRATE: RunStory = RunStory {
    title: "A runbook: a database is migrated, and somebody else touches it first",
    setting: "A real SQLite file gets a column. The scripts are in the definition; the server carries them out. The migration needs two approvals.",
    definition: "db-migrate",
    document: include_str!("../../../../../definitions/db-migrate.yaml"),
    hurry: None,
    subject: "shop-orders",
    input: r#"{"db": "$WORLD/shop.db"}"#,
    world: Some(concat!(
        r#"python3 -c 'import sqlite3; db = sqlite3.connect("shop.db"); "#,
        r#"db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"); "#,
        r#"db.executemany("INSERT INTO orders (cents) VALUES (?)", [(n * 100,) for n in range(1, 43)]); db.commit()'"#
    )),
    retention: "sox_7_year",
    cast: &[
        Role { actor: "operator", who: "starts runs, looks at them, resumes them", scopes: &[START, READ, CONTROL] },
        Role { actor: "dba_lead", who: "the sovereign of this runbook", scopes: &[] },
        Role { actor: "owner", who: "owns the data", scopes: &[] },
        Role { actor: "night_shift", who: "fights with a slow report", scopes: &[] },
    ],
    beats: &[
        beat("A rehearsal first: what only reads is carried out, and nothing else.", "operator", Rehearse, Accepted),
        beat("Now for real.", "operator", Start, Accepted),
        beat(
            "The file is inspected, its schema is pinned, a backup is kept. The migration waits for two approvals.",
            "operator",
            Reaches("blocked", "awaiting_authz"),
            Accepted,
        ),
        beat("The owner sees what will be changed, and the schema it was planned for.", "owner", InTray(1), Accepted),
        beat("The owner approves.", "owner", Approve("migrate"), Accepted),
        beat(
            "Meanwhile the night shift adds an index by hand.",
            "night_shift",
            World(
                r#"python3 -c 'import sqlite3; sqlite3.connect("shop.db").execute("CREATE INDEX by_cents ON orders (cents)")'"#,
            ),
            Accepted,
        ),
        beat("The DBA lead approves too. That would clear the gate …", "dba_lead", Approve("migrate"), Accepted),
        beat(
            "… but the schema is not the one they approved. The run stops, and the file is not touched.",
            "operator",
            Reaches("stopped", "backed_up"),
            Accepted,
        ),
        beat("The operator alone cannot go on.", "operator", NO_APPROVAL, Refused(BY_GUARD)),
        beat("The DBA lead finds the stop in the in-tray, with the difference.", "dba_lead", InTray(1), Accepted),
        beat(
            "The index does no harm. The DBA lead accepts exactly this difference.",
            "dba_lead",
            Approve("resume"),
            Accepted,
        ),
        beat("The operator resumes. The new schema is pinned.", "operator", RESUME, Accepted),
        beat(
            "Both approvals were for the old schema: they are asked for again.",
            "operator",
            Reaches("blocked", "awaiting_authz"),
            Accepted,
        ),
        beat("The owner approves what is there now.", "owner", Approve("migrate"), Accepted),
        beat("The DBA lead, too.", "dba_lead", Approve("migrate"), Accepted),
        beat(
            "The schema is equal, the migration is carried out once, its own schema is pinned, and all is verified.",
            "operator",
            Reaches("completed", "verified"),
            Accepted,
        ),
    ],
    ends: ("completed", None),
    steps: &[("inspect", "completed"), ("backup", "completed"), ("migrate", "completed"), ("verify", "completed")],
};
