//! `countersign explain`: the page of a refusal code, compiled in so that it is there when no server is.

use super::connection::Context;
use super::failure::usage;
use super::output;
use super::table::{Table, Tint, tint};
use clap::Args;
use countersign_kernel::Code;
use serde_json::json;

/// Explain a refusal code: when it is given and what to do; alone, lists all codes
#[derive(Args)]
pub struct ExplainArgs {
    /// A code, e.g. gate-not-cleared
    code: Option<String>,
}

macro_rules! pages {
    ($($code:ident = $name:literal,)*) => {
        /// The page of a code. A code without a page does not compile.
        const fn page(code: Code) -> &'static str {
            match code {
                $(Code::$code => include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/", $name, ".md"
                )),)*
            }
        }
    };
}

pages! {
    InvalidRequest = "invalid-request",
    InvalidQuery = "invalid-query",
    InvalidDeclaration = "invalid-declaration",
    InvalidDefinition = "invalid-definition",
    InvalidCredential = "invalid-credential",
    PermissionDenied = "permission-denied",
    Unauthorized = "unauthorized",
    NotKnown = "not-known",
    Terminal = "terminal",
    InvalidTransition = "invalid-transition",
    NotGuarded = "not-guarded",
    GateNotAvailable = "gate-not-available",
    AlreadyOpen = "already-open",
    GateNotOpen = "gate-not-open",
    GateNotCleared = "gate-not-cleared",
    NotPending = "not-pending",
    NotActive = "not-active",
    Conflict = "conflict",
    TooLarge = "too-large",
    Overloaded = "overloaded",
    RecordingFailure = "recording-failure",
}

pub fn run(context: &Context, args: &ExplainArgs) -> anyhow::Result<()> {
    let Some(name) = &args.code else { return list(context) };
    let Some(code) = Code::parse(name.trim()) else {
        return Err(usage(format!("there is no code `{name}`; `countersign explain` lists them all")));
    };
    if context.json() {
        return output::json(&json!({"code": code.as_str(), "summary": summary(code), "page": page(code)}));
    }
    output::say_verbatim(page(code).trim_end())
}

fn list(context: &Context) -> anyhow::Result<()> {
    if context.json() {
        let items: Vec<_> =
            Code::ALL.iter().map(|code| json!({"code": code.as_str(), "summary": summary(*code)})).collect();
        return output::json(&json!({"items": items, "next": null}));
    }
    let mut table = Table::new(["code", "meaning"]);
    for code in Code::ALL {
        table.row([tint(Tint::Strong, code.as_str()), summary(*code).to_owned()]);
    }
    output::say(&table.to_string())
}

/// The first line under the page's title.
fn summary(code: Code) -> &'static str {
    page(code).lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_page() {
        for code in Code::ALL {
            assert_eq!(page(*code).lines().next(), Some(format!("# {code}").as_str()));
            assert!(summary(*code).ends_with('.'), "{code}: {}", summary(*code));
        }
    }
}
