//! How a command that did not succeed says so: on stderr, with what to do next, and the exit code.

use super::connection::Context;
use super::output::{self, printable, printable_lines};
use super::table::{Tint, tint};
use countersign_client::Error as ClientError;
use countersign_client::wire::{DefinitionProblem, Problem};
use serde_json::{Value, json};
use std::error::Error as _;
use std::io::ErrorKind;
use std::process::ExitCode;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// As a shell has it: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// A failure that is the command's own.
#[derive(Debug)]
pub enum Failure {
    /// The command cannot be meant as it was given.
    Usage(String),
    /// It failed, and everything there is to say has been said.
    Reported,
    /// Somebody pressed Ctrl-C, and was told what that means.
    Interrupted,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(message) => f.write_str(message),
            Failure::Reported => f.write_str("failed"),
            Failure::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Failure {}

/// What this command line can do about a refusal, beside what the server says.
#[derive(Debug)]
pub struct Advice(String);

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error, with advice where there is some.
pub fn advised(error: ClientError, advice: impl FnOnce(&Problem) -> Option<String>) -> anyhow::Error {
    let advice = error.refusal().and_then(advice);
    let error = anyhow::Error::new(error);
    match advice {
        Some(advice) => error.context(Advice(advice)),
        None => error,
    }
}

pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Failure::Usage(message.into()).into()
}

/// Prints the error and gives the exit code that belongs to it.
pub fn report(context: &Context, error: &anyhow::Error) -> ExitCode {
    // Nobody reads any more (`countersign list | head`): that is not a failure.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let code = match (error.downcast_ref::<Failure>(), error.downcast_ref::<ClientError>()) {
        (Some(Failure::Reported), _) => return ExitCode::from(FAILED),
        (Some(Failure::Interrupted), _) => return ExitCode::from(INTERRUPTED),
        (Some(Failure::Usage(_)), _) | (_, Some(ClientError::Unusable(_))) => USAGE,
        _ => FAILED,
    };
    if context.json() {
        output::complain_verbatim(&format!("{:#}", as_json(error)));
    } else {
        output::complain(&as_text(context, error));
    }
    ExitCode::from(code)
}

/// A refusal is the server's problem document; anything else is `{"error": …}`.
fn as_json(error: &anyhow::Error) -> Value {
    let problem = error.downcast_ref::<ClientError>().and_then(ClientError::refusal);
    match problem.map(serde_json::to_value) {
        Some(Ok(json)) => json,
        Some(Err(_)) | None => json!({"error": format!("{error:#}")}),
    }
}

fn as_text(context: &Context, error: &anyhow::Error) -> String {
    let client_error = error.downcast_ref::<ClientError>();
    let mut text = match client_error {
        Some(ClientError::Refused(problem)) => refusal(problem),
        // The source of a client's error says how it failed; its message says what to do.
        Some(client_error) => format!("{} {}", tint(Tint::Bad, "error:"), printable(&client_error.to_string())),
        None => format!("{} {}", tint(Tint::Bad, "error:"), printable_lines(&format!("{error:#}"))),
    };
    if let Some(Advice(advice)) = error.downcast_ref() {
        text.push_str(&format!("\n  {} {}", tint(Tint::Dim, "hint:"), printable(advice)));
    }
    if let Some(cause) = client_error.and_then(|error| error.source()).map(root_cause) {
        text.push_str(&format!("\n  {} {}", tint(Tint::Dim, "cause:"), printable(&cause)));
    }
    if let Some(note) = client_error.and_then(|error| context.token_note(error)) {
        text.push_str(&format!("\n  {} {}", tint(Tint::Dim, "note:"), printable(&note)));
    }
    text
}

fn root_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root_cause)
}

/// A refusal for people: the code, what was wrong, where, and how to learn more.
pub fn refusal(problem: &Problem) -> String {
    let mut lines = vec![
        format!("{} {}", tint(Tint::Bad, "refused:"), tint(Tint::Strong, &problem.code)),
        format!("  {}", printable(&problem.detail)),
    ];
    // The detail tells the first.
    for DefinitionProblem { line, column, code, message, .. } in problem.problems.iter().skip(1) {
        lines.push(format!("  {line}:{column}: {}", printable(&format!("{code}: {message}"))));
    }
    if let Some(field) = &problem.field {
        lines.push(format!("  {} {}", tint(Tint::Dim, "at:"), printable(field)));
    }
    let hint = format!("countersign explain {}", problem.code);
    lines.push(format!("  {} {}", tint(Tint::Dim, "hint:"), printable(&hint)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(field: Option<&str>) -> Problem {
        Problem {
            type_uri: "/errors/gate-not-cleared".into(),
            title: "t".into(),
            status: 409,
            code: "gate-not-cleared".into(),
            detail: "The gate waits.\u{1b}[2J".into(),
            field: field.map(str::to_owned),
            problems: vec![],
        }
    }

    #[test]
    fn a_refused_document_is_told_with_all_its_faults() {
        let fault = |line, message: &str| DefinitionProblem {
            path: String::new(),
            line,
            column: 3,
            code: "bad-value".into(),
            message: message.into(),
            level: None,
        };
        let faults = vec![fault(2, "the first"), fault(7, "the second")];
        let problem = Problem { detail: "2:3: bad-value: the first".into(), problems: faults, ..problem(None) };
        let text = output::plain(&refusal(&problem));
        assert_eq!(
            (text.matches("the first").count(), text.contains("7:3: bad-value: the second")),
            (1, true),
            "{text}"
        );
        let json = as_json(&anyhow::Error::new(ClientError::Refused(Box::new(problem))));
        assert_eq!(json["problems"][1]["line"], 7);
    }

    #[test]
    fn a_refusal_names_code_detail_field_and_page() {
        assert_eq!(
            output::plain(&refusal(&problem(Some("action")))),
            "refused: gate-not-cleared\n  The gate waits.\\u{1b}[2J\n  at: action\n  hint: countersign explain gate-not-cleared"
        );
        assert!(!refusal(&problem(None)).contains("at:"));
    }

    #[test]
    fn a_refusal_as_json_is_the_problem_document() {
        let error = anyhow::Error::new(ClientError::Refused(Box::new(problem(None)))).context("apply a.yaml");
        let json = as_json(&error);
        assert_eq!((json["code"].as_str(), json["status"].as_u64()), (Some("gate-not-cleared"), Some(409)));
        assert_eq!(as_json(&usage("no such profile")), json!({"error": "no such profile"}));
    }
}
