//! `?preview=true` of a command on a run, a step or a task: nothing changes, and the answer says what would happen.

use super::on;
use crate::api::actions::problem;
use crate::api::auth::Caller;
use crate::api::body::Sent;
use crate::api::{App, Problem, mismatched};
use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use countersign_client::wire;
use countersign_engine::{Ask, Call, Command, Outcome, Target};
use countersign_kernel::run;

/// Whether only what would happen is asked for.
pub struct Preview(pub bool);

impl FromRequestParts<App> for Preview {
    type Rejection = Problem;

    /// Takes the query off the address: what follows knows of none.
    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        let preview = match parts.uri.query() {
            None | Some("") => return Ok(Preview(false)),
            Some("preview=true") => true,
            Some("preview=false") => false,
            Some(query) if query.split(['=', '&']).next() == Some("preview") => {
                return Err(Problem::invalid_request("`preview` is `true` or `false`").at("preview"));
            }
            // Refused where the body is read.
            Some(_) => return Ok(Preview(false)),
        };
        parts.uri = Uri::try_from(parts.uri.path()).map_err(|_| Problem::internal())?;
        Ok(Preview(preview))
    }
}

impl Preview {
    /// The command, or the question what it would come to.
    pub fn call(self, caller: Caller, target: Target, command: run::Command, sent: Sent) -> Result<Call, Problem> {
        if !self.0 {
            return caller.call(on(target, command), sent);
        }
        let ask = Ask::Preview(Box::new(command));
        let call = caller.call(Command::Ask { target, ask }, sent)?;
        Ok(Call { idempotency: None, ..call })
    }
}

pub fn previewed(outcome: Outcome) -> Result<wire::Preview, Problem> {
    match outcome {
        Outcome::Previewed { ok, transition_id, emitted_event_type, problems, undoes, leaves } => {
            let problems = problems.into_iter().map(problem).collect();
            Ok(wire::Preview { ok, transition_id, emitted_event_type, problems, undoes, leaves })
        }
        outcome => Err(mismatched(&outcome)),
    }
}
