//! What starts a run automatically: `schedule` and `on`.

use super::Reader;
use super::expressions::Place;
use super::values::{duration, literal, word};
use crate::cron;
use crate::fields::{FieldList, Mapping, list};
use crate::problem::{Part, ProblemCode, quoted};
use crate::schedule::{ever_comes, time_zone, time_zone_names};
use crate::tree::Node;
use countersign_kernel::plan::{Micros, Overlap, Schedule, Trigger};

pub const SCHEDULE_FIELDS: FieldList =
    FieldList { required: &["cron"], optional: &["timeZone", "input", "overlap", "catchUp"] };
pub const TRIGGER_FIELDS: FieldList = FieldList { required: &["event"], optional: &["input"] };

pub(super) const OVERLAPS: &[(&str, Overlap)] =
    &[("skip", Overlap::Skip), ("queue", Overlap::Queue), ("allow", Overlap::Allow)];

/// How far back missed ticks can be started.
const MAX_CATCH_UP: Micros = 7 * 24 * 3_600_000_000;

const DEFAULT_ZONE: &str = "UTC";

pub(super) fn schedules(node: &Node, reader: &mut Reader<'_>) -> Vec<Schedule> {
    let items = list(node, "schedule", "a list such as `[{cron: 0 6 * * *}]`", reader.problems).unwrap_or_default();
    let each = items.iter().enumerate();
    each.filter_map(|(i, item)| schedule(item, format!("schedule[{i}]"), reader)).collect()
}

fn schedule(node: &Node, path: String, reader: &mut Reader<'_>) -> Option<Schedule> {
    let fields = Mapping::of(node, path, "a mapping with `cron`", reader.problems)?;
    fields.check_fields(&SCHEDULE_FIELDS, reader.problems);
    let cron = fields.get("cron").and_then(|node| pattern(node, &fields.path_to("cron"), reader));
    let zone = match fields.get("timeZone") {
        Some(node) => zone(node, &fields.path_to("timeZone"), reader),
        None => Some(DEFAULT_ZONE.to_owned()),
    };
    let input = fields.get("input").map(|node| reader.template(node, &fields.path_to("input"), Place::Schedule));
    let overlap = match fields.get("overlap") {
        Some(node) => word(node, &fields.path_to("overlap"), OVERLAPS, reader.problems),
        None => Some(Overlap::Skip),
    };
    let catch_up = match fields.get("catchUp") {
        Some(node) => catch_up(node, &fields.path_to("catchUp"), reader),
        None => Some(0),
    };
    Some(Schedule { cron: cron?, time_zone: zone?, input, overlap: overlap?, catch_up: catch_up? })
}

fn catch_up(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<Micros> {
    let length = duration(node, path, reader.problems)?;
    if length > MAX_CATCH_UP {
        let message = "ticks are caught up for at most 7d";
        reader.problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    }
    Some(length)
}

fn pattern(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<String> {
    let text = literal(node, path, reader.problems)?;
    if reader.trusted {
        return Some(text.to_owned());
    }
    match cron::parse(text) {
        Ok(cron) if ever_comes(&cron) => return Some(text.to_owned()),
        Ok(_) => {
            reader.problems.add(node.at, path, ProblemCode::BadCron, "no such day ever comes; change day or month")
        }
        Err(fault) => {
            // All of it is the value itself, with its quotes.
            let part = Part { at: node.at, value: text, part: fault.part.clone() };
            match fault.part == (0..text.len()) {
                true => reader.problems.add(node.at, path, ProblemCode::BadCron, fault.message),
                false => reader.problems.add_inside(part, path, ProblemCode::BadCron, fault.message),
            }
        }
    }
    None
}

fn zone(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<String> {
    let text = literal(node, path, reader.problems)?;
    if !reader.trusted && time_zone(text).is_none() {
        let names = time_zone_names();
        // A guess weighs a few candidates only, so those that begin alike come first.
        let region = text.split('/').next().unwrap_or(text);
        let near = names.iter().map(String::as_str).filter(|name| name.starts_with(region));
        let advice = match reader.problems.guess(text, near) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "write one of the IANA database, such as `Europe/Berlin`".to_owned(),
        };
        let message = format!("there is no time zone {}; {advice}", quoted(text));
        reader.problems.add(node.at, path, ProblemCode::BadTimeZone, message);
        return None;
    }
    Some(text.to_owned())
}

pub(super) fn triggers(node: &Node, reader: &mut Reader<'_>) -> Vec<Trigger> {
    let items = list(node, "on", "a list such as `[{event: order.created}]`", reader.problems).unwrap_or_default();
    let each = items.iter().enumerate();
    each.filter_map(|(i, item)| trigger(item, format!("on[{i}]"), reader)).collect()
}

fn trigger(node: &Node, path: String, reader: &mut Reader<'_>) -> Option<Trigger> {
    let fields = Mapping::of(node, path, "a mapping with `event`", reader.problems)?;
    fields.check_fields(&TRIGGER_FIELDS, reader.problems);
    let event = fields.get("event").and_then(|node| literal(node, &fields.path_to("event"), reader.problems));
    let input = fields.get("input").map(|node| reader.template(node, &fields.path_to("input"), Place::Trigger));
    Some(Trigger { event_type: event?.to_owned(), input })
}
