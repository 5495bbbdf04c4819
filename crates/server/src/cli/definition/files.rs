//! Definition files, checked and published. What is wrong with one is shown in the file itself, whoever found it.

use crate::cli::connection::Context;
use crate::cli::failure::Failure;
use crate::cli::input::Document;
use crate::cli::output::{self, printable};
use crate::cli::table::{Tint, tint};
use countersign_client::Error;
use countersign_client::wire::DefinitionProblem;
use countersign_definition::{Body, Problem, ProblemCode, Severity, parse};
use countersign_kernel::plan::Work;
use serde_json::{Value, json};

/// Checks every file, so that one run tells everything. Needs no server: what only a deployment knows
/// is checked when the definition is applied.
pub fn validate(context: &Context, files: &[String]) -> anyhow::Result<()> {
    let mut all_valid = true;
    for file in files {
        let document = match Document::read(file) {
            Ok(document) => document,
            Err(error) => {
                all_valid = false;
                report_unreadable(context, file, &error)?;
                continue;
            }
        };
        let (valid, problems) = match parse(&document.bytes) {
            Ok(definition) => (true, definition.warnings),
            Err(problems) => (false, problems),
        };
        all_valid &= valid;
        if context.json() {
            let problems = problems.iter().map(to_wire).collect::<Vec<_>>();
            output::json(&json!({"file": document.name, "valid": valid, "problems": problems}))?;
            continue;
        }
        if !problems.is_empty() {
            output::say_verbatim(&rendered(&document, &problems))?;
        }
        if valid {
            output::say(&format!("{} {}", tint(Tint::Good, "valid"), printable(&document.name)))?;
        }
    }
    if all_valid { Ok(()) } else { Err(Failure::Reported.into()) }
}

fn report_unreadable(context: &Context, file: &str, error: &anyhow::Error) -> anyhow::Result<()> {
    if context.json() {
        return output::json(&json!({"file": file, "valid": false, "problems": [], "error": error.to_string()}));
    }
    output::complain(&format!("{} {}", tint(Tint::Bad, "error:"), printable(&error.to_string())));
    Ok(())
}

/// Publishes the files, each after those that it runs, and stops at the first that is refused.
pub async fn apply(context: &Context, files: &[String]) -> anyhow::Result<()> {
    let given = files.iter().map(|file| Document::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let order = order(&given);
    let documents: Vec<&Document> = order.iter().map(|place| &given[*place]).collect();
    if !order.is_sorted() && !context.json() {
        let names: Vec<String> = documents.iter().map(|document| printable(&document.name)).collect();
        let told = format!("in this order, since some run others: {}", names.join(", "));
        output::complain(&tint(Tint::Dim, &told));
    }
    let client = context.client()?;
    for (i, document) in documents.iter().enumerate() {
        let answer = match client.publish_definition(document.format(), &document.bytes).await {
            Ok(answer) => answer,
            Err(error) => return Err(refused(context, document, &documents[i + 1..], error)),
        };
        if context.json() {
            output::json(&with_file(answer.json, &document.name))?;
            continue;
        }
        let published = &answer.body;
        let own = problems_of(document);
        let warnings: Vec<Problem> = published.problems.iter().filter_map(|problem| from_wire(problem, &own)).collect();
        if !warnings.is_empty() {
            output::complain_verbatim(&format!("{}\n", rendered(document, &warnings)));
        }
        let name = format!("{}@{}", published.name, published.version);
        let done = if answer.status == 201 { tint(Tint::Good, "published") } else { tint(Tint::Dim, "unchanged") };
        let told =
            format!("{done} {} {}", tint(Tint::Strong, &name), tint(Tint::Dim, &format!("({})", published.digest)));
        output::say(&told)?;
    }
    Ok(())
}

/// The places of the documents, those that another runs or moves by before it; otherwise as they were given.
fn order(documents: &[Document]) -> Vec<usize> {
    let parsed: Vec<_> = documents.iter().map(|document| parse(&document.bytes).ok()).collect();
    let needs: Vec<Vec<usize>> = parsed
        .iter()
        .map(|definition| {
            let Some(Body::Workflow { plan, .. }) = definition.as_ref().map(|definition| &definition.body) else {
                return Vec::new();
            };
            let children = plan.steps.iter().filter_map(|step| match &step.work {
                Work::Workflow { name, .. } => Some(name),
                _ => None,
            });
            let named: Vec<&String> = children.chain(plan.machine.as_ref().map(|machine| &machine.name)).collect();
            let is_named = |place: &usize| parsed[*place].as_ref().is_some_and(|other| named.contains(&&other.name));
            (0..documents.len()).filter(is_named).collect()
        })
        .collect();
    let (mut order, mut seen) = (Vec::new(), vec![false; documents.len()]);
    for place in 0..documents.len() {
        visit(place, &needs, &mut seen, &mut order);
    }
    order
}

/// Those that need one another stay as they are: the server says what is wrong with that.
fn visit(place: usize, needs: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[place], true) {
        return;
    }
    needs[place].iter().for_each(|needed| visit(*needed, needs, seen, order));
    order.push(place);
}

/// A document that is refused for what it says is shown with everything that is wrong with it; any other refusal is
/// told as usual, with the file that it is about.
fn refused(context: &Context, document: &Document, rest: &[&Document], error: Error) -> anyhow::Error {
    let Some(problem) = error.refusal() else { return error.into() };
    if context.json() {
        let problem = serde_json::to_value(problem).unwrap_or_default();
        output::complain_verbatim(&format!("{:#}", with_file(problem, &document.name)));
        return Failure::Reported.into();
    }
    let own = problems_of(document);
    let shown: Vec<Problem> = problem.problems.iter().filter_map(|problem| from_wire(problem, &own)).collect();
    let all_shown = !shown.is_empty() && shown.len() == problem.problems.len();
    if all_shown {
        output::complain_verbatim(&format!("{}\n", rendered(document, &shown)));
    }
    let rest: Vec<String> = rest.iter().map(|document| printable(&document.name)).collect();
    let rest = if rest.is_empty() { String::new() } else { format!(", nor {}", rest.join(", ")) };
    let told = format!("{} {}{rest}", tint(Tint::Bad, "not published:"), printable(&document.name));
    output::complain(&told);
    if all_shown { Failure::Reported.into() } else { error.into() }
}

fn with_file(mut json: Value, file: &str) -> Value {
    if let Value::Object(fields) = &mut json {
        fields.insert("file".to_owned(), file.into());
    }
    json
}

/// What is found here: problems, or warnings alone.
fn problems_of(document: &Document) -> Vec<Problem> {
    parse(&document.bytes).map_or_else(|problems| problems, |definition| definition.warnings)
}

/// With colour, which the way to the terminal takes out again where it is not wanted.
fn rendered(document: &Document, problems: &[Problem]) -> String {
    let text = String::from_utf8_lossy(&document.bytes);
    countersign_definition::render(&document.name, &text, problems, true).trim_end().to_owned()
}

fn to_wire(problem: &Problem) -> DefinitionProblem {
    DefinitionProblem {
        path: problem.path.clone(),
        line: problem.line,
        column: problem.column,
        code: problem.code.as_str().to_owned(),
        message: problem.message.clone(),
        level: (problem.code.severity() == Severity::Warning).then(|| Severity::Warning.as_str().to_owned()),
    }
}

/// None where a newer server has found what this version has no name for. How much is meant, only a problem that was
/// found here knows.
fn from_wire(problem: &DefinitionProblem, own: &[Problem]) -> Option<Problem> {
    let own = own.iter().find(|own| own.line == problem.line && to_wire(own) == *problem);
    let code = ProblemCode::named(&problem.code)?;
    let DefinitionProblem { path, line, column, message, .. } = problem.clone();
    Some(Problem { path, line, column, width: own.and_then(|own| own.width), code, message })
}
