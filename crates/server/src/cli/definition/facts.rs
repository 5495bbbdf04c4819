//! What a definition says of its runs as a whole: when they start, and how many there may be.

use crate::cli::graph::duration;
use crate::cli::output::printable;
use countersign_definition::{Body, Definition, next_after};
use countersign_kernel::plan::{FailurePolicy, Overlap, Plan, QueueLimit, Schedule, Template};
use jiff::Timestamp;

type Fact = (&'static str, String);

/// The facts of a workflow, in the order in which one asks for them.
pub fn of(definition: &Definition, now: Timestamp) -> Vec<Fact> {
    let mut facts = match &definition.body {
        Body::Workflow { plan, .. } => of_plan(plan, now),
        Body::Process { .. } | Body::Machine { .. } => Vec::new(),
    };
    facts.extend(definition.retention.as_deref().map(|policy| ("retention", printable(policy))));
    facts
}

fn of_plan(plan: &Plan, now: Timestamp) -> Vec<Fact> {
    let mut facts: Vec<Fact> = plan.schedule.iter().map(|one| ("schedule", schedule(one, now))).collect();
    facts.extend(plan.on.iter().map(|trigger| ("on", printable(&trigger.event_type))));
    if let Some(key) = &plan.correlation_key {
        facts.push(("correlation", text(key)));
    }
    if let Some(concurrency) = &plan.concurrency {
        facts.push(("concurrency", format!("{} at a time per {}", concurrency.limit, text(&concurrency.key))));
    }
    facts.extend(plan.queues.iter().map(|(name, limit)| ("queues", queue(name, limit))));
    facts.push(("priority", plan.priority.to_string()));
    facts.extend(plan.timeout.map(|timeout| ("timeout", duration(timeout))));
    facts.extend(plan.hard_cap.map(|cap| ("hardCap", duration(cap))));
    match plan.failure_policy {
        FailurePolicy::Abort => {}
        FailurePolicy::Compensate => facts.push(("on failure", "compensate".to_owned())),
        FailurePolicy::FailClosed => facts.push(("on failure", "fail-closed".to_owned())),
    }
    if let Some(machine) = &plan.machine {
        let version = machine.version.map_or_else(String::new, |version| format!("@{version}"));
        facts.push(("machine", format!("{}{version}", printable(&machine.name))));
    }
    facts
}

/// `0 6 * * MON-FRI Europe/Berlin, next 2026-11-17 05:00Z`
fn schedule(schedule: &Schedule, now: Timestamp) -> String {
    let next = next_after(schedule, now.as_microsecond()).and_then(|at| Timestamp::from_microsecond(at).ok());
    let next = next.map_or_else(|| "never again".to_owned(), |at| at.strftime("next %Y-%m-%d %H:%MZ").to_string());
    let overlap = match schedule.overlap {
        Overlap::Skip => "",
        Overlap::Queue => ", queued while one runs",
        Overlap::Allow => ", also while one runs",
    };
    format!("{} {}, {next}{overlap}", printable(&schedule.cron), printable(&schedule.time_zone))
}

fn queue(name: &str, limit: &QueueLimit) -> String {
    let at_once = limit.limit.map(|limit| format!("{limit} at a time"));
    let rate = limit.rate.map(|rate| format!("{} per {}", rate.count, duration(rate.per)));
    let bounds: Vec<String> = at_once.into_iter().chain(rate).collect();
    format!("{}: {}", printable(name), bounds.join(", "))
}

/// A template that is a text, as it is written.
fn text(template: &Template) -> String {
    let text = serde_json::from_str::<String>(&template.0);
    printable(text.as_deref().unwrap_or(&template.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_and_bounds_the_runs_is_told() {
        let text = "\
kind: workflow
name: onboarding
schedule: [{cron: 0 6 * * MON-FRI, timeZone: Europe/Berlin}, {cron: '@daily', overlap: queue}]
on: [{event: order.created}]
concurrency: {key: '${input.customer}', limit: 1}
queues: {q: {limit: 5, rateLimit: {count: 10, per: 1s}}}
priority: 7
timeout: 30m
steps: [{name: a}]
";
        let definition = countersign_definition::parse(text.as_bytes()).expect("a definition");
        let now = "2026-11-16T18:00:00Z".parse().expect("a time");
        let told: Vec<String> = of(&definition, now).into_iter().map(|(name, fact)| format!("{name} {fact}")).collect();
        assert_eq!(
            told,
            [
                "schedule 0 6 * * MON-FRI Europe/Berlin, next 2026-11-17 05:00Z",
                "schedule @daily UTC, next 2026-11-17 00:00Z, queued while one runs",
                "on order.created",
                "concurrency 1 at a time per ${input.customer}",
                "queues q: 5 at a time, 10 per 1s",
                "priority 7",
                "timeout 30m",
            ]
        );
    }
}
