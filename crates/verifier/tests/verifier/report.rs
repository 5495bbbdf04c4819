//! The report for people: what it has to show of every run and process, read from the records of the bundle themselves.

use crate::support::{Bundle, unzip};
use countersign_verifier::{Detail, Trust, parse_policy, report, verify};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

fn good() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/good")
}

fn page(bundle: &[u8], trust: &Trust) -> String {
    let verdict = verify(Cursor::new(bundle), trust, Detail::Report).expect("a bundle that can be opened");
    report::html(&verdict, &report::Circumstances { bundle: "evidence.zip", trust, command: "countersign-verify" })
}

fn vector(name: &str) -> (String, Vec<Value>) {
    let bytes = std::fs::read(good().join(format!("{name}.zip"))).expect("a bundle");
    let policy = std::fs::read_to_string(good().join(format!("{name}.policy.txt"))).expect("a policy");
    let lines = unzip(&bytes).expect("a ZIP file").remove("records.jsonl").expect("records");
    let records =
        String::from_utf8(lines).expect("text").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (page(&bytes, &parse_policy(&policy).expect("a policy")), records)
}

fn part(record: &Value, name: &str) -> Value {
    record[name].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// `2026-03-01 09:30:00.123` of microseconds since 1970, by a way of its own.
fn stamp(us: i64) -> String {
    let (mut day, of_day) = (us / 86_400_000_000, us % 86_400_000_000 / 1_000);
    let (mut year, mut month) = (1970, 0);
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    while day >= if leap(year) { 366 } else { 365 } {
        day -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let months = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    let (s, ms) = (of_day / 1000, of_day % 1000);
    format!("{year}-{:02}-{:02} {:02}:{:02}:{:02}.{ms:03}", month + 1, day + 1, s / 3600, s / 60 % 60, s % 60)
}

/// The rows of the table of steps, in the order of their numbers.
fn rows(page: &str) -> Vec<&str> {
    let table = page.split("<table class=\"steps\">").nth(1).expect("a table of steps");
    table.split("</table>").next().unwrap().split("<tr>").skip(2).collect()
}

/// Ranges as the records write them.
fn seqs(entry: &Value) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().unwrap();
    match (entry["step_seq"].as_u64(), entry["step_seqs"].as_str()) {
        (Some(seq), _) => vec![seq as usize],
        (None, Some(ranges)) => {
            let range = |part: &str| match part.split_once('-') {
                Some((first, last)) => (number(first)..=number(last)).collect::<Vec<_>>(),
                None => vec![number(part)],
            };
            ranges.split(',').flat_map(range).collect()
        }
        _ => vec![],
    }
}

const RUNS: [&str; 11] = [
    "run-inputs",
    "run-linear",
    "run-dag",
    "run-saga",
    "run-gate",
    "run-people",
    "run-tasks",
    "run-together",
    "run-cancelled",
    "run-steered",
    "run-own",
];

#[test]
fn every_step_says_who_did_what_and_when_with_which_input_and_output() {
    let mut inputs = 0;
    for name in RUNS {
        let (page, records) = vector(name);
        let rows = rows(&page);
        let mut began: BTreeSet<usize> = BTreeSet::new();
        let mut shown = 0;
        for record in &records {
            let (header, payload) = (part(record, "header"), part(record, "payload"));
            let who = header["actor_ref"].as_str().unwrap();
            let at = stamp(header["recorded_at_us"].as_i64().unwrap());
            for made in payload["transitions"].as_array().into_iter().flatten() {
                for seq in seqs(made) {
                    let Some(row) = rows.get(seq) else { panic!("{name}: step {seq} has no row") };
                    if made["to"] == "in_progress" {
                        began.insert(seq);
                    }
                    let of_engine = matches!(made["actor_class"].as_str(), Some("system" | "mow_orchestrator"));
                    if of_engine
                        || !matches!(made["to"].as_str(), Some("in_progress" | "completed" | "failed" | "waiting"))
                    {
                        continue;
                    }
                    let told = |act: &str| act.contains(&at) && act.contains(&escaped(who));
                    assert!(row.split("<li>").any(told), "{name}: {who} at {at} in {row}");
                    shown += 1;
                }
            }
            for output in payload["outputs"].as_array().into_iter().flatten() {
                let text = output["output_digest"].as_str().map_or_else(|| output["output"].to_string(), str::to_owned);
                for seq in seqs(output) {
                    assert!(rows[seq].contains(&escaped(&text)), "{name}: {text} in {}", rows[seq]);
                }
            }
            for input in payload["inputs"].as_array().into_iter().flatten() {
                let text = match (input["run_input"] == true, input["input_digest"].as_str()) {
                    (true, _) => "the input of the run".to_owned(),
                    (false, Some(digest)) => digest.to_owned(),
                    (false, None) => escaped(&input["input"].to_string()),
                };
                for seq in seqs(input) {
                    let told = format!("<span class=\"label\">input</span> <code>{text}");
                    let digest = format!("<span class=\"label\">input</span> <code>by its digest alone: sha256:{text}");
                    assert!(
                        rows[seq].contains(&told) || rows[seq].contains(&digest),
                        "{name}: {told} in {}",
                        rows[seq]
                    );
                    inputs += 1;
                }
            }
            if header["action_ref"] == "run_started" {
                let input =
                    payload["input_digest"].as_str().map_or_else(|| payload["input"].to_string(), str::to_owned);
                assert!(page.contains(&format!("<dt>Input</dt><dd><code>{}", escaped(&input))), "{name}: {input}");
            }
        }
        assert!(shown > 1, "{name}: only {shown} acts");
        assert!(name != "run-inputs" || inputs > 3, "{name}: only {inputs} inputs");
        for (seq, row) in rows.iter().enumerate() {
            assert_eq!(
                row.contains("<b>begun</b>"),
                began.contains(&seq),
                "{name}: begun is said of what began: {row}"
            );
            assert_eq!(row.contains("never begun"), !began.contains(&seq), "{name}: {row}");
        }
    }
}

/// The run that a run continues is named, and so is what it took over; a bundle of that run has to show the rest.
#[test]
fn a_run_names_the_run_that_it_continues() {
    let before = "019b8d2b-0000-700e-a000-00109062394f";
    let mut bundle = Bundle::load("run-saga");
    bundle.record("run_started", 0).payload["continues"] = before.into();
    bundle.record("run_started", 0).payload["taken_over"] =
        serde_json::json!({"completed": "0", "skipped": "", "outputs_digest": "0".repeat(64)});
    let page = page(&bundle.sealed(), &bundle.trust());
    let fact = format!("<dt>Continues the run</dt><dd>{before}; completed there: hotel</dd>");
    assert!(page.contains(&fact), "{page}");
    assert!(page.contains("are shown by the bundle of that run"), "{page}");
}

#[derive(Clone, Copy, Debug)]
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn attribute(element: &str, name: &str) -> f64 {
    let at = element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
    element[at..].split('"').next().unwrap().parse().unwrap()
}

/// Points along a path of the commands M, L, H, V and C, close to each other.
fn along(path: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = vec![];
    let mut rest = path;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| end + 1);
        let numbers: Vec<f64> = rest[1..end].split_whitespace().map(|number| number.parse().unwrap()).collect();
        let (x, y) = points.last().copied().unwrap_or_default();
        let handles = match (command, numbers.as_slice()) {
            ('M', [x, y]) => {
                points.push((*x, *y));
                rest = &rest[end..];
                continue;
            }
            ('L', [a, b]) => [(x, y), (*a, *b), (*a, *b)],
            ('H', [a]) => [(x, y), (*a, y), (*a, y)],
            ('V', [b]) => [(x, y), (x, *b), (x, *b)],
            ('C', [a, b, c, d, e, f]) => [(*a, *b), (*c, *d), (*e, *f)],
            other => panic!("{other:?} in {path}"),
        };
        for part in 1..=40 {
            let (t, s) = (f64::from(part) / 40.0, 1.0 - f64::from(part) / 40.0);
            let mix = |p: f64, a: f64, b: f64, c: f64| {
                s * s * s * p + 3.0 * s * s * t * a + 3.0 * s * t * t * b + t * t * t * c
            };
            let [a, b, c] = handles;
            points.push((mix(x, a.0, b.0, c.0), mix(y, a.1, b.1, c.1)));
        }
        rest = &rest[end..];
    }
    points
}

/// Every drawing of every good bundle: it has a box for each step or state, and no edge passes through a box.
#[test]
fn drawings_show_every_step_and_no_edge_crosses_a_box() {
    let (mut drawings, mut edges) = (0, 0);
    let mut names: Vec<String> =
        std::fs::read_dir(good()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in names.iter().filter_map(|name| name.strip_suffix(".zip")) {
        let (page, _) = vector(name);
        for svg in page.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap()) {
            drawings += 1;
            let rect = |element: &str| Rect {
                x: attribute(element, "x"),
                y: attribute(element, "y"),
                width: attribute(element, "width"),
                height: attribute(element, "height"),
            };
            let rects: Vec<Rect> = svg.split("<rect").skip(1).map(rect).collect();
            for path in svg.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                edges += 1;
                for (x, y) in along(path) {
                    let inside = |rect: &&Rect| {
                        x > rect.x + 0.2
                            && x < rect.x + rect.width - 0.2
                            && y > rect.y + 0.2
                            && y < rect.y + rect.height - 0.2
                    };
                    assert!(!rects.iter().any(|rect| inside(&rect)), "{name}: {path} passes through a box at {x} {y}");
                }
            }
        }
    }
    assert!(drawings > 15 && edges > 50, "{drawings} drawings with {edges} edges");
    let (page, _) = vector("run-dag");
    let svg = page.split("<svg").nth(1).and_then(|rest| rest.split("</svg>").next()).expect("a drawing of the graph");
    for (step, state) in [("collect", "completed"), ("slow", "skipped"), ("close", "completed"), ("appeal", "skipped")]
    {
        assert!(svg.contains(&format!(">{step}</text><text class=\"in-box\"")), "{step}");
        assert!(svg.contains(&format!("worker, {state}")), "{state}");
    }
}

/// What rests on a token, who has no key, whom the registry does not know, and where it ends.
#[test]
fn a_report_says_what_the_checks_do_not_cover() {
    for name in ["release", "quorum", "run-saga", "passkey"] {
        let (page, records) = vector(name);
        let mut by_token: BTreeMap<String, u64> = BTreeMap::new();
        for header in records.iter().map(|record| part(record, "header")) {
            if header["assurance"] == "server_attested" {
                *by_token.entry(header["actor_ref"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        let count: u64 = by_token.values().sum();
        assert!(count > 0, "{name}");
        let said =
            page.split("What these checks do not cover").nth(1).and_then(|rest| rest.split("</ul>").next()).unwrap();
        assert!(said.contains(&format!("{count} of {} records are server-attested", records.len())), "{name}: {said}");
        for (actor, count) in &by_token {
            assert!(said.contains(&format!("{actor} ({count})")), "{name}: {actor} in {said}");
        }
        let keyed: BTreeSet<String> = records
            .iter()
            .filter(|record| {
                let action = part(record, "header")["action_ref"].clone();
                action == "key_registered"
                    || (action == "actor_registered" && part(record, "payload")["public_key"].is_string())
            })
            .map(|record| part(record, "payload")["actor_ref"].as_str().unwrap().to_owned())
            .collect();
        let keyless =
            said.split("No key is registered for ").nth(1).map_or("", |rest| rest.split(". ").next().unwrap());
        for actor in by_token.keys() {
            let listed = keyless.split(", ").any(|listed| listed == actor);
            assert_eq!(listed, !keyed.contains(actor), "{name}: {actor} in {said}");
        }
        let last = records
            .iter()
            .filter(|r| part(r, "header")["instance_id"] == part(&records[0], "header")["instance_id"])
            .count();
        assert!(said.contains(&format!("up to its record {last}.")), "{name}: {said}");
    }
    let mut late = Bundle::load("release");
    late.record("workflow_started", 0).head["registry_seq"] = 1.into();
    let said = page(&late.sealed(), &late.trust());
    assert!(said.contains("registered only after what names them had begun: qp_santos ("), "{said}");
    assert!(said.contains("No witness was asked for"), "{said}");
    let mut unknown = Bundle::load("release");
    let nth = (0..).find(|nth| unknown.record("actor_registered", *nth).payload["actor_ref"] == "qp_santos").unwrap();
    unknown.record("actor_registered", nth).payload["actor_ref"] = "qp_other".into();
    let said = page(&unknown.sealed(), &unknown.trust());
    assert!(said.contains("does not know these approvers: qp_santos."), "{said}");
}
