//! `countersign definition` over files: what is wrong is shown in its file, once, whoever found it.

use crate::run_commands::{Said, countersign};
use crate::support::Server;
use serde_json::Value;

const PARENT: &str = "kind: workflow\nname: parent\nsteps:\n  - {name: a, run: workflow, workflow: child}\n";
const CHILD: &str = "kind: workflow\nname: child\nsteps: [{name: b}]\n";
const SCHEDULED: &str = "\
kind: workflow
name: nightly
schedule: [{cron: 0 6 * * MON-FRI, timeZone: Europe/Berlin}]
concurrency: {key: \"${input.customer}\", limit: 1}
queues: {q: {limit: 5}}
timeout: 30m
steps: [{name: count}]
";

async fn definition(server: &Server, command: &str, files: &[(&str, &str)], options: &[&str]) -> Said {
    let mut paths = Vec::new();
    for (name, content) in files {
        let path = server.directory.path().join(name);
        if !content.is_empty() {
            std::fs::write(&path, content).expect("a file");
        }
        paths.push(path.to_str().expect("a path").to_owned());
    }
    let mut arguments = vec!["definition", command];
    arguments.extend(paths.iter().map(String::as_str));
    countersign(server, &[&arguments, options].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_server_knows_is_shown_in_the_file() {
    let server = Server::start().await;
    let machine = CHILD.replace("steps", "retention: eternal\nmachine: nowhere\nsteps");
    for (text, place, line) in [
        (PARENT, "d.yaml:4:40", "  |                                        ^^^^^ steps[0].workflow"),
        (machine.as_str(), "d.yaml:3:12", "  |            ^^^^^^^ retention"),
        (machine.as_str(), "d.yaml:4:10", "  |          ^^^^^^^ machine"),
    ] {
        let said = definition(&server, "apply", &[("d.yaml", text)], &[]).await;
        said.says(1, &[place, line, "not published:"]);
        assert!(!said.err.contains("refused:"), "{}", said.err);
    }
    let said = definition(&server, "apply", &[("d.yaml", PARENT)], &["--json"]).await;
    let told: Value = serde_json::from_str(&said.err).expect("one JSON value");
    assert!(told["file"].as_str().is_some_and(|file| file.ends_with("d.yaml")), "{told}");
    assert_eq!((said.code, &told["problems"][0]["code"]), (1, &Value::from("unknown-workflow")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_file_is_told_once() {
    let server = Server::start().await;
    let broken = CHILD.replace("name: b", "name: b, when: \"${input.x = 3}\"");
    let said = definition(&server, "apply", &[("d.yaml", &broken), ("after.yaml", PARENT)], &[]).await;
    said.says(1, &["d.yaml:3:36", "did you mean `==`?", "not published: "]);
    assert_eq!(said.err.matches("did you mean").count(), 1, "{}", said.err);
    assert!(said.err.contains(", nor ") && said.err.contains("after.yaml"), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_published_before_what_runs_it() {
    let server = Server::start().await;
    let said = definition(&server, "apply", &[("parent.yaml", PARENT), ("child.yaml", CHILD)], &[]).await;
    said.says(0, &["published child@1", "published parent@1", "in this order"]);
    assert!(said.out.find("child@1") < said.out.find("parent@1"), "{}", said.out);
    // Nothing is said of an order that is the one given.
    let again = definition(&server, "apply", &[("child.yaml", CHILD), ("parent.yaml", PARENT)], &[]).await;
    again.says(0, &["unchanged child@1", "unchanged parent@1"]);
    assert!(!again.err.contains("order"), "{}", again.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_does_not_hide_the_next() {
    let server = Server::start().await;
    let files = [("a.yaml", CHILD), ("nosuch.yaml", ""), ("b.yaml", PARENT)];
    let said = definition(&server, "validate", &files, &[]).await;
    said.says(1, &["a.yaml", "nosuch.yaml cannot be read", "b.yaml"]);
    assert_eq!(said.out.matches("valid ").count(), 2, "{}", said.out);
    let said = definition(&server, "validate", &files, &["--json"]).await;
    let told: Vec<Value> =
        serde_json::Deserializer::from_str(&said.out).into_iter().map(|value| value.expect("JSON")).collect();
    let valid: Vec<&Value> = told.iter().map(|file| &file["valid"]).collect();
    assert_eq!(valid, [true, false, true], "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_is_shown_with_what_starts_and_bounds_its_runs() {
    let server = Server::start().await;
    definition(&server, "apply", &[("d.yaml", SCHEDULED)], &[]).await.says(0, &["published nightly@1"]);
    let said = countersign(&server, &["definition", "show", "nightly"]).await;
    let above = said.out.split("kind: workflow").next().unwrap_or_default();
    for part in ["0 6 * * MON-FRI Europe/Berlin, next 20", "1 at a time per ${input.customer}", "q: 5 at a time", "30m"]
    {
        assert!(above.contains(part), "{part}: {}", said.out);
    }
    assert!(above.lines().any(|line| line.split_whitespace().eq(["priority", "5"])), "{}", said.out);
}
