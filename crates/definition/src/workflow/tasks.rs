//! `tasks`: the parts of a step that people and workers do one by one; the step is done when all are.

use super::Reader;
use super::expressions::Place;
use super::values::{some_time, word};
use super::work::{Run, work};
use crate::fields::{FieldList, Mapping, list};
use crate::names::name;
use crate::problem::{ProblemCode, quoted};
use crate::tree::Node;
use countersign_kernel::plan::TaskSpec;
use std::collections::HashSet;

pub const TASK_FIELDS: FieldList = FieldList { required: &["name"], optional: &["run", "pic", "deadline"] };

pub(super) const TASK_RUNS: &[(&str, Run)] = &[("human", Run::Human), ("worker", Run::Worker)];

pub(super) fn tasks(fields: &Mapping<'_>, place: Place, reader: &mut Reader<'_>) -> Vec<TaskSpec> {
    let Some(node) = fields.get("tasks") else { return Vec::new() };
    let path = fields.path_to("tasks");
    let Some(items) = list(node, &path, "a list of tasks", reader.problems) else { return Vec::new() };
    let mut names = HashSet::new();
    let mut tasks = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(task) = task(item, path.clone(), place, reader) else { continue };
        if !names.insert(task.name.clone()) {
            let message = format!("{} is the name of a task of this step already", quoted(&task.name));
            let at = item.field("name").map_or(item.at, |node| node.at);
            reader.problems.add(at, format!("{path}.name"), ProblemCode::BadValue, message);
        }
        tasks.push(task);
    }
    tasks
}

/// A task with a person in charge is a person's task, unless `run` says otherwise.
fn task(node: &Node, path: String, place: Place, reader: &mut Reader<'_>) -> Option<TaskSpec> {
    let fields = Mapping::of(node, path, "a mapping with the `name` of a task", reader.problems)?;
    let misspelt = fields.check_fields(&TASK_FIELDS, reader.problems);
    let task_name = fields.get("name").and_then(|node| name(node, &fields.path_to("name"), reader.problems));
    let run = match fields.get("run") {
        Some(node) => word(node, &fields.path_to("run"), TASK_RUNS, reader.problems)?,
        None if fields.get("pic").is_some() => Run::Human,
        None => Run::Worker,
    };
    super::work::check_fields(&fields, run, reader);
    let work = work(&fields, run, &misspelt, place, reader);
    let deadline = fields
        .get("deadline")
        .and_then(|node| some_time(node, &fields.path_to("deadline"), ProblemCode::BadValue, reader.problems));
    Some(TaskSpec { name: task_name?.to_owned(), work: work?, deadline })
}
