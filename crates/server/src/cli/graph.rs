//! A definition drawn: the steps of a workflow as a table, and any definition as a Mermaid diagram.

use super::output::printable;
use super::table::{Table, Tint, tint};
use countersign_definition::Body;
use countersign_kernel::Declaration;
use countersign_kernel::plan::{Backoff, OnFailure, Order, Plan, RetryPolicy, StepSpec, WaitWork, Work};

/// The steps of a workflow, one row each, indented by how deep in the graph they are. A process draws itself: its
/// transitions are in its document.
pub fn drawn(body: &Body) -> Option<String> {
    match body {
        Body::Process { .. } | Body::Machine { .. } => None,
        Body::Workflow { plan, .. } => Some(steps(plan).to_string()),
    }
}

/// For a Markdown page, or <https://mermaid.live>.
pub fn mermaid(body: &Body) -> String {
    match body {
        Body::Process { declaration, .. } => state_diagram(declaration),
        Body::Workflow { plan, .. } => flowchart(plan),
        Body::Machine { machine, .. } => state_diagram(&machine.declaration()),
    }
}

fn steps(plan: &Plan) -> Table {
    let mut table = Table::new(["#", "step", "run", "after", "what"]);
    let depths = depths(plan);
    for (seq, step) in plan.steps.iter().enumerate() {
        let indent = if plan.order == Order::Linear { 0 } else { depths.get(seq).copied().unwrap_or(0) };
        let after: Vec<String> = names(plan, step).map(printable).collect();
        let optional = if step.optional { tint(Tint::Dim, " (optional)") } else { String::new() };
        table.row([
            seq.to_string(),
            format!("{}{}{optional}", "· ".repeat(indent), tint(Tint::Strong, &step.name)),
            step.work.as_str().to_owned(),
            after.join(", "),
            what(plan, seq, step),
        ]);
        for task in tasks(plan, seq) {
            let name = format!("{}└ {}", "· ".repeat(indent), printable(own_name(task)));
            table.row([String::new(), name, task.work.as_str().to_owned(), String::new(), work(task)]);
        }
    }
    table
}

/// The parts of a step, in their order.
fn tasks(plan: &Plan, step: usize) -> impl Iterator<Item = &StepSpec> {
    let seqs = u32::try_from(step).map_or(0..0, |step| plan.tasks_of(step));
    seqs.filter_map(|seq| plan.step(seq))
}

/// Without its step's, under which it is drawn.
fn own_name(task: &StepSpec) -> &str {
    task.name.split_once('/').map_or(&*task.name, |(_, name)| name)
}

fn names<'p>(plan: &'p Plan, step: &'p StepSpec) -> impl Iterator<Item = &'p str> {
    step.depends_on.iter().filter_map(|seq| plan.step(*seq)).map(|step| &*step.name)
}

/// The longest way to each step. Steps may depend on later ones, so it takes as many rounds as the way is long.
fn depths(plan: &Plan) -> Vec<usize> {
    let mut depths = vec![0_usize; plan.steps.len()];
    for _ in 0..plan.steps.len() {
        let mut moved = false;
        for (seq, step) in plan.steps.iter().enumerate() {
            let before = step.depends_on.iter().filter_map(|seq| depths.get(*seq as usize)).max();
            let depth = before.map_or(0, |before| before + 1);
            if depth > depths[seq] {
                depths[seq] = depth;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    depths
}

/// Everything that is not as usual.
fn what(plan: &Plan, seq: usize, step: &StepSpec) -> String {
    let mut parts = vec![work(step)];
    if let Some(when) = &step.when {
        parts.push(format!("when {}", printable(&when.0)));
    }
    if let Some(gate) = &step.gate {
        parts.push(format!("gate {}", printable(gate)));
    }
    if step.retry != RetryPolicy::DEFAULT && matches!(step.work, Work::Worker | Work::Shell(_) | Work::Http(_)) {
        parts.push(retry(&step.retry));
    }
    if let Some(timeout) = step.timeout {
        parts.push(format!("timeout {}", duration(timeout)));
    }
    match step.on_failure {
        OnFailure::Abort => {}
        OnFailure::Skip => parts.push("failed: skipped".to_owned()),
        OnFailure::Compensate => parts.push("failed: the run is undone".to_owned()),
        OnFailure::Hold => parts.push("failed: the run waits".to_owned()),
    }
    if let Some(entry) = u32::try_from(seq).ok().and_then(|seq| plan.compensation_of(seq)) {
        parts.push(format!("undone by {}", printable(entry.claim_queue())));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

fn work(step: &StepSpec) -> String {
    match &step.work {
        Work::Worker => format!("queue {}", printable(&step.queue)),
        Work::Shell(shell) => printable(&shell.command.0),
        Work::Http(http) => format!("{} {}", printable(&http.method), printable(&http.url.0)),
        Work::Approval(_) => String::new(),
        Work::Wait(WaitWork::Event { event_type, timeout }) => {
            let within = timeout.map_or_else(String::new, |timeout| format!(" within {}", duration(timeout)));
            format!("for {}{within}", printable(event_type))
        }
        Work::Wait(WaitWork::For(time)) => format!("for {}", duration(*time)),
        Work::Wait(WaitWork::Until(time)) => format!("until {}", printable(&time.0)),
        Work::Workflow { name, version } => {
            let version = version.map_or_else(String::new, |version| format!("@{version}"));
            format!("{}{version}", printable(name))
        }
        Work::Human { pic } => pic.as_ref().map_or_else(String::new, |pic| format!("by {}", printable(&pic.0))),
    }
}

fn retry(policy: &RetryPolicy) -> String {
    let backoff = match policy.backoff {
        Backoff::Constant => "constant",
        Backoff::Linear => "linear",
        Backoff::Exponential => "exponential",
    };
    match policy.max_retries {
        0 => "no retry".to_owned(),
        retries => {
            format!("{retries} retries, {backoff} {}–{}", duration(policy.initial_delay), duration(policy.max_delay))
        }
    }
}

/// As a definition writes it: `1h30m`.
pub fn duration(micros: i64) -> String {
    const UNITS: [(&str, i64); 5] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1000)];
    let (mut rest, mut text) = (micros, String::new());
    for (unit, size) in UNITS {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn flowchart(plan: &Plan) -> String {
    let mut lines = vec!["flowchart TD".to_owned()];
    for (seq, step) in plan.steps.iter().enumerate() {
        let (open, close) = match step.work {
            Work::Approval(_) | Work::Human { .. } => ("{{", "}}"),
            Work::Wait(_) => ("([", "])"),
            Work::Workflow { .. } => ("[[", "]]"),
            Work::Worker | Work::Shell(_) | Work::Http(_) => ("[", "]"),
        };
        let kind = match step.work {
            Work::Worker => String::new(),
            _ => format!("<br><small>{}</small>", escaped(&shown(step))),
        };
        lines.push(format!("  s{seq}{open}\"{}{kind}\"{close}", escaped(&step.name)));
        for (part, task) in tasks(plan, seq).enumerate() {
            let shown = format!("{}<br><small>{}</small>", escaped(own_name(task)), escaped(&shown(task)));
            lines.push(format!("  s{seq} --- s{seq}t{part}(\"{shown}\")"));
        }
    }
    for (seq, step) in plan.steps.iter().enumerate() {
        let label = step.when.as_ref().map_or_else(String::new, |when| format!("|\"{}\"|", escaped(&when.0)));
        for before in &step.depends_on {
            lines.push(format!("  s{before} -->{label} s{seq}"));
        }
    }
    for entry in &plan.compensation {
        lines.push(format!("  s{0} -.-> u{0}(\"↩ {1}\")", entry.step, escaped(&entry.action)));
    }
    lines.join("\n")
}

fn shown(step: &StepSpec) -> String {
    let work = work(step);
    if work.is_empty() { step.work.as_str().to_owned() } else { format!("{} {work}", step.work.as_str()) }
}

fn state_diagram(declaration: &Declaration) -> String {
    let mut lines = vec!["stateDiagram-v2".to_owned()];
    let id = |state: &str| declaration.states.iter().position(|known| known == state).map_or(0, |place| place);
    for (place, state) in declaration.states.iter().enumerate() {
        lines.push(format!("  state \"{}\" as s{place}", escaped(state)));
    }
    lines.push(format!("  [*] --> s{}", id(&declaration.initial_state)));
    for transition in &declaration.transitions {
        let guard = transition.guard.as_deref().map_or_else(String::new, |guard| format!(" [{}]", escaped(guard)));
        let action = escaped(&transition.action);
        lines.push(format!("  s{} --> s{}: {action}{guard}", id(&transition.from_state), id(&transition.to_state)));
    }
    for state in &declaration.terminal_states {
        lines.push(format!("  s{} --> [*]", id(state)));
    }
    lines.join("\n")
}

/// Text inside a diagram: what Mermaid or HTML would take for its own is written as an entity.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '"' | '#' | '<' | '>' | '&' | ';' | '|' | '`' => out.push_str(&format!("#{};", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::output::plain;
    use super::*;

    fn body(text: &str) -> Body {
        countersign_definition::parse(text.as_bytes()).expect("a definition").body
    }

    #[test]
    fn a_graph_is_a_table() {
        let text = include_str!("../../../../definitions/nightly-report.yaml");
        let drawn = plain(&drawn(&body(text)).expect("a workflow"));
        for part in ["· · report", "sales, stock, returns", "when has(input.weekly) && input.weekly", "queue reports"]
        {
            assert!(drawn.contains(part), "{part:?} is not in\n{drawn}");
        }
    }

    #[test]
    fn a_saga_names_what_undoes_it() {
        let text = include_str!("../../../../definitions/order-saga.yaml");
        let saga = body(text);
        let table = plain(&drawn(&saga).expect("a workflow"));
        assert!(table.contains("failed: the run is undone, undone by growth-optimizer"), "{table}");
        assert!(table.contains("send-welcome (optional)"), "{table}");
        let diagram = mermaid(&saga);
        assert!(diagram.starts_with("flowchart TD\n  s0[\"create-account\"]"), "{diagram}");
        assert!(diagram.contains("  s0 --> s1\n") && diagram.contains("s2 -.-> u2(\"↩ Remove"), "{diagram}");
    }

    #[test]
    fn a_step_is_drawn_with_its_tasks() {
        let text = "kind: workflow\nname: w\nqueue: q\nsteps: [{name: A, run: human, pic: kim, tasks: [{name: count, pic: lee}, {name: scan, run: worker}]}, {name: B, dependsOn: [A]}]\n";
        let filing = body(text);
        let table = plain(&drawn(&filing).expect("a workflow"));
        let lines: Vec<&str> = table.lines().collect();
        let at = lines.iter().position(|line| line.contains("└ count")).expect("the first task");
        assert!(lines[at].contains("human") && lines[at].contains("lee"), "{table}");
        assert!(lines[at + 1].contains("└ scan") && lines[at + 1].contains("queue q"), "{table}");
        assert!(lines[at + 2].contains('B'), "{table}");
        let diagram = mermaid(&filing);
        assert!(
            diagram.contains("  s0 --- s0t0(\"count<br>") && diagram.contains("  s0 --- s0t1(\"scan<br>"),
            "{diagram}"
        );
        assert!(diagram.contains("  s0 --> s1"), "{diagram}");
    }

    #[test]
    fn a_process_is_a_state_diagram() {
        let batch = body(include_str!("../../../../definitions/batch-release.yaml"));
        assert_eq!(drawn(&batch), None);
        let diagram = mermaid(&batch);
        assert!(diagram.contains("  s2 --> s3: release [QP-sign-off]\n"), "{diagram}");
        assert!(diagram.contains("[*] --> s0") && diagram.contains("s4 --> [*]"), "{diagram}");
    }

    #[test]
    fn nothing_in_a_definition_can_leave_its_box() {
        assert_eq!(escaped("a\"]; click <b>"), "a#34;]#59; click #60;b#62;");
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["1h30m", "250ms", "7d", "5s"] {
            assert_eq!(duration(countersign_definition::parse_duration(text).expect("a duration")), text);
        }
    }
}
