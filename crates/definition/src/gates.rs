//! `gate_spec`: who approves what, label by label. Each entry names one approver, or several and the
//! quorum among them.

use crate::duration::parse_duration;
use crate::fields::{FieldList, Mapping, list, string, text, wrong_type};
use crate::problem::{ProblemCode, Problems, enumerated, quoted, segment};
use crate::tree::{Key, Node, Value};
use crate::workflow::values::{boolean, some_time};
use countersign_kernel::plan::Micros;
use countersign_kernel::text::is_blank;
use countersign_kernel::{GateEntry, GateSpec, PublishedGate, PublishedGates, QuorumRule};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Labels of a gate_spec that govern the definition: who approves its next version, and who approves that a dead letter is
/// sent again. They need no guard and no step.
pub(crate) const GOVERNANCE: &[&str] = &[countersign_kernel::process::PUBLISH, "replay"];

/// What a process says of an entry beyond who approves: whether a start may name other approvers, and herself among them.
const REPLACEABLE: &str = "replaceable";
const SELF_APPROVAL: &str = "selfApproval";
/// Whether an approver may name a substitute ahead.
const DELEGABLE: &str = "delegable";
/// By when somebody is asked to decide, counted from the opening of the gate.
const DUE: &str = "due";

/// An entry of a process that names one approver.
pub const PUBLISHED_SINGLE_FIELDS: FieldList =
    FieldList { required: &["approver_ref", "scope"], optional: &[REPLACEABLE, SELF_APPROVAL, DUE, DELEGABLE] };
/// An entry of a process that names several.
pub const PUBLISHED_QUORUM_FIELDS: FieldList =
    FieldList { required: &["approvers", "quorum", "scope"], optional: &[REPLACEABLE, SELF_APPROVAL, DUE, DELEGABLE] };
/// An entry of a process that leaves the approvers to the start.
pub const OPEN_ENTRY_FIELDS: FieldList =
    FieldList { required: &[REPLACEABLE, "scope"], optional: &[SELF_APPROVAL, DUE, DELEGABLE] };

/// An entry that names one approver.
pub const SINGLE_ENTRY_FIELDS: FieldList =
    FieldList { required: &["approver_ref", "scope"], optional: &[DUE, DELEGABLE] };
/// An entry that names several.
pub const QUORUM_ENTRY_FIELDS: FieldList =
    FieldList { required: &["approvers", "quorum", "scope"], optional: &[DUE, DELEGABLE] };
pub const QUORUM_FIELDS: FieldList = FieldList { required: &["rule"], optional: &["m"] };
pub const QUORUM_RULES: &[&str] = &["all-of-n", "m-of-n", "one-of-n"];

/// The entries of a workflow that have no problem of their own.
pub(crate) fn gate_spec(node: &Node, path: &str, problems: &mut Problems) -> GateSpec {
    GateSpec(labelled(node, path, entry, problems))
}

/// The entries of a process that have no problem of their own.
pub(crate) fn published_gates(node: &Node, path: &str, problems: &mut Problems) -> PublishedGates {
    PublishedGates(labelled(node, path, published_entry, problems))
}

fn labelled<T>(
    node: &Node,
    path: &str,
    read: impl Fn(&Node, String, &mut Problems) -> Option<T>,
    problems: &mut Problems,
) -> BTreeMap<String, T> {
    let mut entries = BTreeMap::new();
    let Some(spec) = Mapping::of(node, path.to_owned(), "a mapping from guard labels to approvers", problems) else {
        return entries;
    };
    for (label, node) in spec.entries {
        if is_blank(&label.text) {
            problems.add(
                label.at,
                spec.path_to(&label.text),
                ProblemCode::Blank,
                "a blank label; write the guard it is for",
            );
        }
        if let Some(entry) = read(node, spec.path_to(&label.text), problems) {
            entries.insert(label.text.clone(), entry);
        }
    }
    entries
}

/// How a kind of definition says that a label serves nothing.
pub(crate) struct Unused {
    /// "no transition has the guard"
    pub complaint: &'static str,
    pub advice: &'static str,
}

/// Reports the entries whose label is none of `used`.
pub(crate) fn report_unused(node: &Node, path: &str, used: &[&str], words: &Unused, problems: &mut Problems) {
    let Value::Map(entries) = &node.value else { return };
    let known: HashSet<&str> = used.iter().chain(GOVERNANCE).copied().collect();
    let labels = entries.iter().map(|(label, _)| label);
    for label in labels.filter(|label| !is_blank(&label.text) && !known.contains(label.text.as_str())) {
        let advice = match problems.guess(&label.text, used.iter().copied()) {
            Some(meant) => format!("did you mean {}?", quoted(meant)),
            None => words.advice.to_owned(),
        };
        let message = format!("{} {}; {advice}", words.complaint, quoted(&label.text));
        problems.add(label.at, format!("{path}.{}", segment(&label.text)), ProblemCode::UnusedGate, message);
    }
}

/// How long somebody has to decide.
fn due(entry: &Mapping<'_>, problems: &mut Problems) -> Option<Micros> {
    some_time(entry.get(DUE)?, &entry.path_to(DUE), ProblemCode::BadValue, problems)
}

/// Whether an approver may name a substitute; not, where nothing is said.
fn delegable(entry: &Mapping<'_>, problems: &mut Problems) -> Option<bool> {
    match entry.get(DELEGABLE) {
        None => Some(false),
        Some(node) => boolean(node, &entry.path_to(DELEGABLE), problems),
    }
}

/// How long the approvers of each label have to decide, where a definition that was checked says so.
pub(crate) fn dues(node: &Node) -> BTreeMap<String, Micros> {
    let Value::Map(entries) = &node.value else { return BTreeMap::new() };
    let of = |(label, node): &(Key, Node)| match &node.field(DUE)?.value {
        Value::String(text) => Some((label.text.clone(), parse_duration(text)?)),
        _ => None,
    };
    entries.iter().filter_map(of).collect()
}

fn published_entry(node: &Node, path: String, problems: &mut Problems) -> Option<PublishedGate> {
    let entry = Mapping::of(node, path, "a mapping with an approver and a scope", problems)?;
    let mut flag = |name: &str| match entry.get(name) {
        None => Some(false),
        Some(node) => boolean(node, &entry.path_to(name), problems),
    };
    let (replaceable, self_approval) = (flag(REPLACEABLE), flag(SELF_APPROVAL));
    if let (Some(node), Some(false)) = (entry.get(SELF_APPROVAL), replaceable) {
        let message = "`selfApproval` says whom a start may name; it needs `replaceable: true`";
        problems.add(node.at, entry.path_to(SELF_APPROVAL), ProblemCode::BadValue, message);
    }
    due(&entry, problems);
    let several = entry.get("approvers").is_some() || entry.get("quorum").is_some();
    let named = if several {
        entry.check_fields(&PUBLISHED_QUORUM_FIELDS, problems);
        read_quorum(&entry, problems)?
    } else if entry.get("approver_ref").is_some() || replaceable == Some(false) {
        entry.check_fields(&PUBLISHED_SINGLE_FIELDS, problems);
        read_single(&entry, problems)?
    } else {
        entry.check_fields(&OPEN_ENTRY_FIELDS, problems);
        let scope = field_text(&entry, "scope", problems)?;
        let delegable = delegable(&entry, problems)?;
        return Some(PublishedGate::Open { scope, self_approval: self_approval?, delegable });
    };
    match replaceable? {
        true => Some(PublishedGate::Replaceable { preset: named, self_approval: self_approval? }),
        false => Some(PublishedGate::Fixed(named)),
    }
}

fn entry(node: &Node, path: String, problems: &mut Problems) -> Option<GateEntry> {
    let entry = Mapping::of(node, path, "a mapping with an approver and a scope", problems)?;
    due(&entry, problems);
    let several = entry.get("approvers").is_some() || entry.get("quorum").is_some();
    if several { quorum_entry(&entry, problems) } else { single_entry(&entry, problems) }
}

/// The entry that stands among the fields of something larger, whose fields are checked already.
pub(crate) fn inline_entry(
    fields: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    problems: &mut Problems,
) -> Option<GateEntry> {
    let several = fields.get("approvers").is_some() || fields.get("quorum").is_some();
    if let (true, Some(one)) = (several, fields.get("approver_ref")) {
        let message =
            "one approver and several contradict each other; keep `approver_ref`, or `approvers` and `quorum`";
        problems.add(one.at, fields.path_to("approver_ref"), ProblemCode::BadQuorum, message);
    }
    let required = if several { QUORUM_ENTRY_FIELDS.required } else { SINGLE_ENTRY_FIELDS.required };
    fields.require(required, misspelt, problems);
    if several { read_quorum(fields, problems) } else { read_single(fields, problems) }
}

fn single_entry(entry: &Mapping<'_>, problems: &mut Problems) -> Option<GateEntry> {
    entry.check_fields(&SINGLE_ENTRY_FIELDS, problems);
    read_single(entry, problems)
}

fn read_single(entry: &Mapping<'_>, problems: &mut Problems) -> Option<GateEntry> {
    let approver_ref = field_text(entry, "approver_ref", problems);
    let scope = field_text(entry, "scope", problems);
    let delegable = delegable(entry, problems);
    Some(GateEntry::Single { approver_ref: approver_ref?, scope: scope?, delegable: delegable? })
}

fn quorum_entry(entry: &Mapping<'_>, problems: &mut Problems) -> Option<GateEntry> {
    entry.check_fields(&QUORUM_ENTRY_FIELDS, problems);
    read_quorum(entry, problems)
}

fn read_quorum(entry: &Mapping<'_>, problems: &mut Problems) -> Option<GateEntry> {
    let path = entry.path_to("approvers");
    let approvers = entry.get("approvers").and_then(|node| approvers(node, &path, problems));
    let count = approvers.as_ref().map(|approvers| approvers.len());
    let path = entry.path_to("quorum");
    let rule = entry.get("quorum").and_then(|node| quorum(node, path, count, problems));
    let scope = field_text(entry, "scope", problems);
    let delegable = delegable(entry, problems);
    Some(GateEntry::Quorum { approvers: approvers?, rule: rule?, scope: scope?, delegable: delegable? })
}

fn field_text(entry: &Mapping<'_>, field: &str, problems: &mut Problems) -> Option<String> {
    let node = entry.get(field)?;
    text(node, &entry.path_to(field), problems).map(str::to_owned)
}

/// The approvers, when all of them can be read; a name that stands there twice is kept twice, so
/// that the quorum is measured against what was written.
fn approvers(node: &Node, path: &str, problems: &mut Problems) -> Option<Vec<String>> {
    let items = list(node, path, "a list of strings such as `[a, b]`", problems)?;
    if items.is_empty() {
        problems.add(node.at, path, ProblemCode::BadQuorum, "a quorum needs at least one approver; name them here");
        return None;
    }
    let mut first_at = HashMap::new();
    let mut names = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(name) = text(item, &path, problems) else { continue };
        if let Some(first) = first_at.get(name) {
            let message =
                format!("{} is named already at approvers[{first}]; nobody counts twice in one quorum", quoted(name));
            problems.add(item.at, path, ProblemCode::BadQuorum, message);
        } else {
            first_at.insert(name, i);
        }
        names.push(name.to_owned());
    }
    (names.len() == items.len()).then_some(names)
}

/// `count` is the number of approvers, unless those are at fault themselves.
fn quorum(node: &Node, path: String, count: Option<usize>, problems: &mut Problems) -> Option<QuorumRule> {
    let quorum = Mapping::of(node, path, "a mapping such as `{rule: m-of-n, m: 2}`", problems)?;
    let misspelt = quorum.check_fields(&QUORUM_FIELDS, problems);
    let rule_node = quorum.get("rule")?;
    let rule = string(rule_node, &quorum.path_to("rule"), problems)?;
    match (rule, quorum.get("m")) {
        ("m-of-n", Some(m)) => {
            required_approvals(m, &quorum.path_to("m"), count, problems).map(|m| QuorumRule::MOfN { m })
        }
        ("m-of-n", None) => {
            if !misspelt.contains("m") {
                let message = "the rule `m-of-n` needs `m`: how many of the approvers must approve";
                problems.add(quorum.at, quorum.path_to("m"), ProblemCode::BadQuorum, message);
            }
            None
        }
        ("all-of-n" | "one-of-n", Some(m)) => {
            let message = format!("the rule `{rule}` has no `m`; remove it, or use `m-of-n`");
            problems.add(m.at, quorum.path_to("m"), ProblemCode::BadQuorum, message);
            None
        }
        ("all-of-n", None) => Some(QuorumRule::AllOfN),
        ("one-of-n", None) => Some(QuorumRule::OneOfN),
        (unknown, _) => {
            let message = format!(
                "unknown quorum rule {}; the rules are {}",
                quoted(unknown),
                enumerated(QUORUM_RULES.iter().copied())
            );
            problems.add(rule_node.at, quorum.path_to("rule"), ProblemCode::BadQuorum, message);
            None
        }
    }
}

fn required_approvals(node: &Node, path: &str, count: Option<usize>, problems: &mut Problems) -> Option<u32> {
    let Value::Integer(m) = node.value else {
        wrong_type(node, path, "a whole number", problems);
        return None;
    };
    let in_range = m >= 1 && count.is_none_or(|count| usize::try_from(m).is_ok_and(|m| m <= count));
    if !in_range {
        let most = count.map_or(String::new(), |count| format!(" and at most {count}, the number of approvers"));
        problems.add(node.at, path, ProblemCode::BadQuorum, format!("`m` is {m}; it must be at least 1{most}"));
        return None;
    }
    u32::try_from(m).ok()
}
