//! `run`: who or what carries a step out, and the fields that belong to it.

use super::Reader;
use super::expressions::Place;
use super::values::{integer, literal, some_time, word};
use crate::fields::{FieldList, Mapping, list, string, text, wrong_type};
use crate::gates::inline_entry;
use crate::language::template::is_template;
use crate::names::{is_definition_name, name};
use crate::problem::{ProblemCode, enumerated, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{HttpWork, ShellWork, StatusClass, Template, WaitWork, Work};
use std::collections::HashSet;

/// The kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    Worker,
    Shell,
    Http,
    Approval,
    Wait,
    Workflow,
    Human,
}

pub(super) const RUNS: &[(&str, Run)] = &[
    ("worker", Run::Worker),
    ("shell", Run::Shell),
    ("http", Run::Http),
    ("approval", Run::Approval),
    ("wait", Run::Wait),
    ("workflow", Run::Workflow),
    ("human", Run::Human),
];

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const SHELL_SUCCESS: &[i32] = &[0];
/// EX_TEMPFAIL.
const SHELL_RETRY: &[i32] = &[75];
const HTTP_SUCCESS: &[StatusClass] = &[StatusClass::Hundred(2)];
const HTTP_RETRY: &[StatusClass] =
    &[StatusClass::Code(408), StatusClass::Code(429), StatusClass::Hundred(5), StatusClass::Network];

impl Run {
    pub fn as_str(self) -> &'static str {
        RUNS.iter().find(|(_, run)| *run == self).map_or("", |(name, _)| name)
    }

    /// The fields of a step that belong to this kind of work; the other kinds may share some.
    pub const fn fields(self) -> FieldList {
        match self {
            Run::Worker => FieldList { required: &[], optional: &["queue", "scheduleToStart", "tasks"] },
            Run::Shell => FieldList { required: &["command"], optional: &["env", "artifacts", "success", "retry"] },
            Run::Http => FieldList { required: &["url"], optional: &["method", "headers", "body", "success", "retry"] },
            Run::Approval => {
                FieldList { required: &["scope"], optional: &["approver_ref", "approvers", "quorum", "delegable"] }
            }
            Run::Wait => FieldList { required: &[], optional: &["event", "for", "until"] },
            Run::Workflow => FieldList { required: &["workflow"], optional: &[] },
            Run::Human => FieldList { required: &[], optional: &["pic", "scheduleToStart", "tasks"] },
        }
    }

    /// Whether a field belongs to some kind of work, and not to every step.
    pub fn is_of_some(field: &str) -> bool {
        RUNS.iter().any(|(_, run)| run.fields().all().any(|own| own == field))
    }
}

/// Reports the fields that belong to another kind of work.
pub(super) fn check_fields(fields: &Mapping<'_>, run: Run, reader: &mut Reader<'_>) {
    for (key, _) in fields.entries {
        let field = key.text.as_str();
        if !Run::is_of_some(field) || run.fields().all().any(|own| own == field) {
            continue;
        }
        let owners = RUNS.iter().filter(|(_, other)| other.fields().all().any(|own| own == field));
        let message = format!(
            "`{field}` does not belong to `run: {}` but to {}; remove it, or change `run`",
            run.as_str(),
            enumerated(owners.map(|(name, _)| *name))
        );
        reader.problems.add(key.at, fields.path_to(field), ProblemCode::FieldNotForRun, message);
    }
}

/// The work of a step, a pin or a task, whose fields are checked already.
pub(super) fn work(
    fields: &Mapping<'_>,
    run: Run,
    misspelt: &HashSet<&'static str>,
    place: Place,
    reader: &mut Reader<'_>,
) -> Option<Work> {
    if run != Run::Approval {
        fields.require(run.fields().required, misspelt, reader.problems);
    }
    match run {
        Run::Worker => Some(Work::Worker),
        Run::Shell => shell(fields, place, reader).map(Work::Shell),
        Run::Http => http(fields, place, reader).map(Work::Http),
        Run::Approval => {
            for field in ["approver_ref", "scope"] {
                if let Some(node) = fields.get(field).filter(|node| matches!(node.value, Value::String(_))) {
                    refuse_expression(node, &fields.path_to(field), reader);
                }
            }
            inline_entry(fields, misspelt, reader.problems).map(Work::Approval)
        }
        Run::Wait => wait(fields, misspelt, place, reader).map(Work::Wait),
        Run::Workflow => child(fields, reader),
        Run::Human => Some(Work::Human { pic: pic(fields, misspelt, place, reader) }),
    }
}

/// Who is in charge: as written here, else as the definition says for all.
fn pic(
    fields: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    place: Place,
    reader: &mut Reader<'_>,
) -> Option<Template> {
    if let Some(node) = fields.get("pic") {
        return text_template(fields, "pic", node, place, reader);
    }
    if let Some(node) = reader.pic.clone() {
        return Some(reader.template(&node, "pic", place));
    }
    if !reader.trusted && !misspelt.contains("pic") {
        let message = "nobody is in charge of this work for a person; add `pic` here, or to the definition for all";
        reader.problems.add(fields.at, fields.path_to("pic"), ProblemCode::MissingPic, message);
    }
    None
}

/// Approvers and scopes are names and never computed.
pub(super) fn refuse_expression(node: &Node, path: &str, reader: &mut Reader<'_>) {
    if let Value::String(text) = &node.value
        && is_template(text)
    {
        let message = "no expression is evaluated here; write the text out";
        reader.problems.add(node.at, path, ProblemCode::BadExpression, message);
    }
}

fn text_template(
    fields: &Mapping<'_>,
    field: &str,
    node: &Node,
    place: Place,
    reader: &mut Reader<'_>,
) -> Option<Template> {
    let path = fields.path_to(field);
    text(node, &path, reader.problems)?;
    Some(reader.computed(node, &path, place))
}

fn shell(fields: &Mapping<'_>, place: Place, reader: &mut Reader<'_>) -> Option<ShellWork> {
    let command =
        fields.get("command").and_then(|node| command(node, &fields.path_to("command"), place.command(), reader));
    let env = fields.get("env").and_then(|node| texts_by_name(node, &fields.path_to("env"), place, reader));
    let success = codes(fields, "success", SHELL_SUCCESS, exit_code, reader);
    let retry = codes(fields, "retry", SHELL_RETRY, exit_code, reader);
    Some(ShellWork { command: command?, env, success: success?, retry: retry? })
}

/// A text for `sh -c`, or a list of texts that is run as it is.
fn command(node: &Node, path: &str, place: Place, reader: &mut Reader<'_>) -> Option<Template> {
    match &node.value {
        Value::Seq(items) if !items.is_empty() => {
            let mut sound = true;
            for (i, item) in items.iter().enumerate() {
                sound &= string(item, &format!("{path}[{i}]"), reader.problems).is_some();
            }
            sound.then(|| reader.template(node, path, place))
        }
        Value::String(_) => {
            text(node, path, reader.problems)?;
            Some(reader.template(node, path, place))
        }
        Value::Seq(_) => {
            reader.problems.add(node.at, path, ProblemCode::BadValue, "the command is empty; write what is to be run");
            None
        }
        _ => {
            wrong_type(node, path, "a command: a text, or a list of texts", reader.problems);
            None
        }
    }
}

/// A mapping from names to texts, which may use `secrets`.
fn texts_by_name(node: &Node, path: &str, place: Place, reader: &mut Reader<'_>) -> Option<Template> {
    let entries = Mapping::of(node, path.to_owned(), "a mapping from names to texts", reader.problems)?;
    let mut sound = true;
    for (key, value) in entries.entries {
        let path = entries.path_to(&key.text);
        let well_named = !key.text.is_empty() && !key.text.contains(['=', ':', ' ', '\r', '\n']);
        if !well_named {
            let message = format!("{} cannot be a name here", quoted(&key.text));
            reader.problems.add(key.at, path.clone(), ProblemCode::BadValue, message);
        }
        sound &= well_named && string(value, &path, reader.problems).is_some();
    }
    sound.then(|| reader.template(node, path, place.sent()))
}

fn http(fields: &Mapping<'_>, place: Place, reader: &mut Reader<'_>) -> Option<HttpWork> {
    let method = match fields.get("method") {
        Some(node) => {
            let methods: Vec<(&str, &str)> = METHODS.iter().map(|method| (*method, *method)).collect();
            word(node, &fields.path_to("method"), &methods, reader.problems)
        }
        None => Some("GET"),
    };
    let url = fields.get("url").and_then(|node| url(fields, node, place, reader));
    let headers = fields.get("headers").and_then(|node| texts_by_name(node, &fields.path_to("headers"), place, reader));
    let body = fields.get("body").map(|node| reader.template(node, &fields.path_to("body"), place.sent()));
    let success = codes(fields, "success", HTTP_SUCCESS, status, reader);
    let retry = codes(fields, "retry", HTTP_RETRY, status_or_network, reader);
    Some(HttpWork { method: method?.to_owned(), url: url?, headers, body, success: success?, retry: retry? })
}

fn url(fields: &Mapping<'_>, node: &Node, place: Place, reader: &mut Reader<'_>) -> Option<Template> {
    let path = fields.path_to("url");
    let text = text(node, &path, reader.problems)?;
    let computed = text.starts_with("${");
    if !computed && !text.starts_with("http://") && !text.starts_with("https://") {
        let message = format!("{} is not a URL; begin with `https://` or `http://`", quoted(text));
        reader.problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    }
    Some(reader.template(node, &path, place))
}

/// A list of codes, or the format's own.
fn codes<T: Copy>(
    fields: &Mapping<'_>,
    field: &str,
    default: &[T],
    read: impl Fn(&Node, &str, &mut Reader<'_>) -> Option<T>,
    reader: &mut Reader<'_>,
) -> Option<Vec<T>> {
    let Some(node) = fields.get(field) else { return Some(default.to_vec()) };
    let path = fields.path_to(field);
    let items = list(node, &path, "a list of codes such as `[0]`", reader.problems)?;
    let mut found = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        found.extend(read(item, &format!("{path}[{i}]"), reader));
    }
    (found.len() == items.len()).then_some(found)
}

fn exit_code(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<i32> {
    integer(node, path, 0..=255, reader.problems).and_then(|code| i32::try_from(code).ok())
}

fn status(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<StatusClass> {
    match &node.value {
        Value::String(text) => {
            const CLASSES: &[(&str, StatusClass)] = &[
                ("1xx", StatusClass::Hundred(1)),
                ("2xx", StatusClass::Hundred(2)),
                ("3xx", StatusClass::Hundred(3)),
                ("4xx", StatusClass::Hundred(4)),
                ("5xx", StatusClass::Hundred(5)),
            ];
            let found = CLASSES.iter().find(|(class, _)| class == text).map(|(_, class)| *class);
            if found.is_none() {
                let message =
                    format!("{} is not a status; write one such as `429`, or a class such as `5xx`", quoted(text));
                reader.problems.add(node.at, path, ProblemCode::BadValue, message);
            }
            found
        }
        _ => integer(node, path, 100..=599, reader.problems)
            .and_then(|code| u16::try_from(code).ok())
            .map(StatusClass::Code),
    }
}

fn status_or_network(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<StatusClass> {
    match &node.value {
        Value::String(text) if text == "network" => Some(StatusClass::Network),
        _ => status(node, path, reader),
    }
}

/// `event` with its timeout, `for`, or `until`: one of them.
fn wait(
    fields: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    place: Place,
    reader: &mut Reader<'_>,
) -> Option<WaitWork> {
    let given: Vec<(&str, &Node)> =
        ["event", "for", "until"].into_iter().filter_map(|field| Some((field, fields.get(field)?))).collect();
    let Some((field, node)) = given.first().copied() else {
        if !["event", "for", "until"].iter().any(|field| misspelt.contains(field)) {
            let message = "a wait needs `event`, `for` or `until`; add what it waits for";
            reader.problems.add(fields.at, fields.path_to("event"), ProblemCode::MissingField, message);
        }
        return None;
    };
    if let Some((second, node)) = given.get(1) {
        let message =
            format!("a wait has one of `event`, `for` and `until`, and here is `{field}` already; remove one");
        reader.problems.add(node.at, fields.path_to(second), ProblemCode::BadValue, message);
        return None;
    }
    let path = fields.path_to(field);
    match field {
        "event" => {
            let event_type = literal(node, &path, reader.problems)?.to_owned();
            let path = fields.path_to("timeout");
            let timeout =
                fields.get("timeout").map(|node| some_time(node, &path, ProblemCode::BadValue, reader.problems));
            Some(WaitWork::Event { event_type, timeout: timeout.map_or(Some(None), |read| read.map(Some))? })
        }
        "for" => some_time(node, &path, ProblemCode::BadValue, reader.problems).map(WaitWork::For),
        _ => until(node, &path, place, reader).map(WaitWork::Until),
    }
}

fn until(node: &Node, path: &str, place: Place, reader: &mut Reader<'_>) -> Option<Template> {
    let text = text(node, path, reader.problems)?;
    if !is_template(text) && text.parse::<jiff::Timestamp>().is_err() {
        let message = format!("{} is not a time; write it as `2026-01-31T09:00:00Z`", quoted(text));
        reader.problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    }
    Some(reader.template(node, path, place))
}

/// `name` or `name@2`. Whether there is such a definition is known where definitions are published.
fn child(fields: &Mapping<'_>, reader: &mut Reader<'_>) -> Option<Work> {
    let node = fields.get("workflow")?;
    let path = fields.path_to("workflow");
    let (name, version) = versioned(node, &path, reader)?;
    reader.resolve(name, version, node.at, path)
}

/// `name` or `name@2`
pub(super) fn versioned<'a>(node: &'a Node, path: &str, reader: &mut Reader<'_>) -> Option<(&'a str, Option<u32>)> {
    let written = literal(node, path, reader.problems)?;
    let (name, version) = match written.split_once('@') {
        None => (written, Some(None)),
        Some((name, digits)) => {
            let version = digits.parse::<u32>().ok().filter(|version| *version > 0 && version.to_string() == digits);
            (name, version.map(Some))
        }
    };
    let Some(version) = version.filter(|_| is_definition_name(name)) else {
        let message =
            format!("{} does not name a definition; write `name`, or `name@2` for a version", quoted(written));
        reader.problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    };
    Some((name, version))
}

/// The queue of a step.
pub(super) fn queue<'a>(fields: &Mapping<'a>, reader: &mut Reader<'_>) -> Option<&'a str> {
    let node = fields.get("queue")?;
    name(node, &fields.path_to("queue"), reader.problems)
}
