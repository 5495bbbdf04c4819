//! A workflow's definition, as far as a verifier reads it (`spec/run.md`, section 1).

use crate::json::Value;
use std::collections::{HashMap, HashSet};

#[derive(Debug)]
pub struct Workflow {
    pub linear: bool,
    pub steps: Vec<StepSpec>,
    /// The parts of steps, called `step/task`, in the order of their steps; and the step of each.
    pub tasks: Vec<(String, usize)>,
    /// How many steps the longest chain of dependencies has that reaches each.
    pub depth: Vec<usize>,
    /// Steps that can be undone.
    pub compensated: HashSet<usize>,
    /// Those of them whose undo waits for an operator where it fails.
    pub held: HashSet<usize>,
    /// Fail-closed, and a chain.
    pub closed: bool,
    pub hard_cap_us: Option<i64>,
    /// How long a block lasts that is red by the threshold; and one that is escalated without an approval.
    pub red_after_us: i64,
    pub review_after_us: i64,
    /// The machine of one's own that it names: `name`, or `name@2`.
    pub machine: Option<String>,
}

#[derive(Debug)]
pub struct StepSpec {
    pub name: String,
    /// Who or what carries it out.
    pub run: String,
    /// What it waits for, which workflow it is, or who does it.
    pub about: Option<String>,
    pub gate: Option<String>,
    /// Its input is not simply the run's.
    pub has_input: bool,
    pub depends_on: Vec<usize>,
    /// The places of its tasks among all tasks.
    pub tasks: std::ops::Range<usize>,
    /// Names, in the order of the definition.
    pub checks: Vec<String>,
    pub pins: Vec<String>,
    pub soft_cap_us: Option<i64>,
    pub read_only: bool,
}

/// A block is red after four hours, where its definition does not say.
const RED_AFTER_US: i64 = 4 * 3_600_000_000;

/// The names of a mapping.
fn names(value: Option<&Value>) -> Vec<String> {
    let members = value.and_then(Value::members).unwrap_or_default();
    members.iter().map(|(name, _)| name.clone()).collect()
}

/// `1h30m`: whole numbers with their units.
fn micros(value: Option<&Value>) -> Result<Option<i64>, String> {
    let Some(text) = value.and_then(Value::as_text) else { return Ok(None) };
    let unreadable = || format!("`{}` is no duration", crate::json::shortened(text));
    let (mut rest, mut total) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, left) = behind.split_at(letters);
        let length: i64 = match unit {
            "d" => 86_400_000_000,
            "h" => 3_600_000_000,
            "m" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            _ => return Err(unreadable()),
        };
        let number: i64 = number.parse().map_err(|_| unreadable())?;
        total = number.checked_mul(length).and_then(|part| total.checked_add(part)).ok_or_else(unreadable)?;
        rest = left;
    }
    Ok(Some(total))
}

impl Workflow {
    pub fn read(value: &Value) -> Result<Workflow, String> {
        let listed = value.get("steps").and_then(Value::as_list).ok_or("`steps` is not a list")?;
        let linear = match value.get("order").map(|order| order.as_text()) {
            None | Some(Some("dag")) => false,
            Some(Some("linear")) => true,
            _ => return Err("`order` is none".to_owned()),
        };
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (seq, step) in listed.iter().enumerate() {
            let name = step.text("name").ok_or("a step has no name")?;
            if places.insert(name, seq).is_some() {
                return Err(format!("two steps are named `{}`", crate::json::shortened(name)));
            }
        }
        let place = |name: &str| {
            places.get(name).copied().ok_or_else(|| format!("there is no step `{}`", crate::json::shortened(name)))
        };
        let mut steps = Vec::with_capacity(listed.len());
        for (seq, step) in listed.iter().enumerate() {
            let depends_on = match (linear, step.given("dependsOn")) {
                (true, _) => seq.checked_sub(1).into_iter().collect(),
                (false, None) => vec![],
                (false, Some(_)) => {
                    let names = step.texts("dependsOn").ok_or("`dependsOn` is not a list of names")?;
                    names.into_iter().map(place).collect::<Result<_, _>>()?
                }
            };
            steps.push(StepSpec {
                name: step.text("name").unwrap_or_default().to_owned(),
                run: step.text("run").unwrap_or("worker").to_owned(),
                about: ["event", "for", "until", "workflow", "pic"]
                    .iter()
                    .find_map(|field| step.text(field))
                    .map(str::to_owned),
                gate: step.text("gate").map(str::to_owned),
                has_input: step.get("input").is_some(),
                depends_on,
                tasks: 0..0,
                checks: names(step.given("checks")),
                pins: names(step.given("pins")),
                soft_cap_us: micros(step.given("softCap"))?,
                read_only: step.get("readOnly").and_then(Value::as_bool).unwrap_or(false),
            });
        }
        let mut tasks = vec![];
        for (seq, step) in listed.iter().enumerate() {
            let own = match step.given("tasks") {
                None => &[][..],
                Some(list) => list.as_list().ok_or("`tasks` is not a list")?,
            };
            for task in own {
                let name = task.text("name").ok_or("a task has no name")?;
                tasks.push((format!("{}/{name}", step.text("name").unwrap_or_default()), seq));
            }
            if let Some(spec) = steps.get_mut(seq) {
                spec.tasks = tasks.len() - own.len()..tasks.len();
            }
        }
        let depth = depths(&steps);
        let entries = match value.given("compensation") {
            None => &[][..],
            Some(list) => list.as_list().ok_or("`compensation` is not a list")?,
        };
        let undone = |entry: &Value| place(entry.text("step").ok_or("a compensation names no step")?);
        let compensated = entries.iter().map(undone).collect::<Result<_, String>>()?;
        let holds = |entry: &&Value| entry.text("onFailure") == Some("hold");
        let held = entries.iter().filter(holds).map(undone).collect::<Result<_, String>>()?;
        let machine = match value.given("machine") {
            None => None,
            Some(named) => Some(named.as_text().ok_or("`machine` is no name")?.to_owned()),
        };
        let closed = linear && value.text("failurePolicy") == Some("fail-closed");
        let hard_cap_us = micros(value.given("hardCap"))?;
        let escalation = value.given("blockedEscalation");
        let of = |name: &str| micros(escalation.and_then(|escalation| escalation.given(name)));
        let red_after_us = of("after")?.unwrap_or(RED_AFTER_US);
        let reviewed = value.given("gate_spec").is_some_and(|labels| labels.given("escalate").is_some());
        let unsaid = if reviewed { red_after_us / 2 } else { red_after_us };
        let review_after_us = of("reviewAfter")?.unwrap_or(unsaid);
        Ok(Workflow {
            linear,
            steps,
            tasks,
            depth,
            compensated,
            held,
            closed,
            hard_cap_us,
            red_after_us,
            review_after_us,
            machine,
        })
    }
}

/// What stands in a circle, or behind one, has no depth that matters: no such step ever begins.
fn depths(steps: &[StepSpec]) -> Vec<usize> {
    let mut followers = vec![vec![]; steps.len()];
    for (seq, step) in steps.iter().enumerate() {
        step.depends_on.iter().for_each(|earlier| followers[*earlier].push(seq));
    }
    let mut open: Vec<usize> = steps.iter().map(|step| step.depends_on.len()).collect();
    let mut ahead: Vec<usize> = (0..steps.len()).filter(|seq| open[*seq] == 0).collect();
    let mut depth = vec![0; steps.len()];
    while let Some(seq) = ahead.pop() {
        for later in &followers[seq] {
            depth[*later] = depth[*later].max(depth[seq] + 1);
            open[*later] -= 1;
            if open[*later] == 0 {
                ahead.push(*later);
            }
        }
    }
    depth
}
