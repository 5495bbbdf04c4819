//! Limits of the whole definition: concurrency, queues, caps, and when a block is escalated.

use super::Reader;
use super::expressions::Place;
use super::values::{boolean, count, some_time};
use crate::fields::{FieldList, Mapping, text};
use crate::names::{is_name, not_a_name};
use crate::problem::{ProblemCode, Problems};
use crate::tree::Node;
use countersign_kernel::gate_spec::GateSpec;
use countersign_kernel::plan::{BlockedEscalation, Concurrency, Micros, QueueLimit, Rate};
use countersign_kernel::run::ESCALATE;
use std::collections::BTreeMap;

pub const CONCURRENCY_FIELDS: FieldList = FieldList { required: &["key", "limit"], optional: &[] };
pub const QUEUE_FIELDS: FieldList = FieldList { required: &[], optional: &["limit", "rateLimit"] };
pub const RATE_FIELDS: FieldList = FieldList { required: &["count", "per"], optional: &[] };
pub const ESCALATION_FIELDS: FieldList =
    FieldList { required: &[], optional: &["after", "reviewAfter", "criticalPath"] };

pub(super) fn cap(fields: &Mapping<'_>, field: &str, problems: &mut Problems) -> Option<Micros> {
    some_time(fields.get(field)?, &fields.path_to(field), ProblemCode::BadCap, problems)
}

pub(super) fn concurrency(node: &Node, reader: &mut Reader<'_>) -> Option<Concurrency> {
    let fields = Mapping::of(node, "concurrency".into(), "a mapping with `key` and `limit`", reader.problems)?;
    fields.check_fields(&CONCURRENCY_FIELDS, reader.problems);
    let key = fields.get("key").and_then(|node| {
        let path = fields.path_to("key");
        text(node, &path, reader.problems)?;
        Some(reader.computed(node, &path, Place::Start))
    });
    let limit = fields.get("limit").and_then(|node| count(node, &fields.path_to("limit"), reader.problems));
    Some(Concurrency { key: key?, limit: limit? })
}

pub(super) fn queues(node: &Node, problems: &mut Problems) -> BTreeMap<String, QueueLimit> {
    let mut found = BTreeMap::new();
    let Some(queues) = Mapping::of(node, "queues".into(), "a mapping from queues to their limits", problems) else {
        return found;
    };
    for (key, node) in queues.entries {
        let path = queues.path_to(&key.text);
        if !is_name(&key.text) {
            problems.add(key.at, path.clone(), ProblemCode::BadValue, not_a_name(&key.text));
        }
        let Some(fields) = Mapping::of(node, path, "a mapping such as `{limit: 5}`", problems) else { continue };
        fields.check_fields(&QUEUE_FIELDS, problems);
        let limit = fields.get("limit").and_then(|node| count(node, &fields.path_to("limit"), problems));
        let rate = fields.get("rateLimit").and_then(|node| rate(node, fields.path_to("rateLimit"), problems));
        found.insert(key.text.clone(), QueueLimit { limit, rate });
    }
    found
}

fn rate(node: &Node, path: String, problems: &mut Problems) -> Option<Rate> {
    let fields = Mapping::of(node, path, "a mapping such as `{count: 10, per: 1s}`", problems)?;
    fields.check_fields(&RATE_FIELDS, problems);
    let count = fields.get("count").and_then(|node| count(node, &fields.path_to("count"), problems));
    let per =
        fields.get("per").and_then(|node| some_time(node, &fields.path_to("per"), ProblemCode::BadValue, problems));
    Some(Rate { count: count?, per: per? })
}

pub(super) fn escalation(node: &Node, problems: &mut Problems) -> BlockedEscalation {
    let default = BlockedEscalation::default();
    let path = "blockedEscalation".to_owned();
    let Some(fields) = Mapping::of(node, path, "a mapping such as `{after: 4h}`", problems) else { return default };
    fields.check_fields(&ESCALATION_FIELDS, problems);
    let after =
        fields.get("after").and_then(|node| some_time(node, &fields.path_to("after"), ProblemCode::BadValue, problems));
    let critical_path =
        fields.get("criticalPath").and_then(|node| boolean(node, &fields.path_to("criticalPath"), problems));
    let after = after.unwrap_or(default.after);
    let path = fields.path_to("reviewAfter");
    let review_after = fields.get("reviewAfter").and_then(|node| {
        let review_after = some_time(node, &path, ProblemCode::BadValue, problems)?;
        if review_after >= after {
            let message = "must be shorter than `after`: from there on the block is red without anybody's approval";
            problems.add(node.at, &path, ProblemCode::BadValue, message);
        }
        Some(review_after)
    });
    BlockedEscalation { after, review_after, critical_path }
}

/// Whoever asks for a review names who makes it.
pub(super) fn require_reviewer(
    fields: &Mapping<'_>,
    escalation: &BlockedEscalation,
    gate_spec: &GateSpec,
    problems: &mut Problems,
) {
    if let (Some(node), Some(_)) = (fields.get("blockedEscalation"), escalation.review_after)
        && !gate_spec.0.contains_key(ESCALATE)
    {
        let message = "needs `gate_spec.escalate`, which names who approves an escalation; add it";
        problems.add(node.at, "blockedEscalation.reviewAfter", ProblemCode::BadValue, message);
    }
}
