//! What a signed request to replay a dead letter asked, and what was recorded of it (`spec/replay.md`).

use super::agreement::{Agreement, same_members, same_route};
use super::statement::Signed;
use crate::json::Value;
use crate::process::replay::MEMBER;
use crate::record::{Action, Header};

/// A record that begins the chain of a request. `None`: its request is that of any process.
pub fn same_request(header: &Header, payload: &Value, body: &Value, signed: &Signed) -> Option<Agreement> {
    if !matches!(header.action, Action::WorkflowStarted | Action::ChainInitiated | Action::GateOpened) {
        return None;
    }
    // The start and the gate both say of which letter; a chain comes between them.
    let letter = payload.get(MEMBER).or_else(|| payload.get("request"));
    let of = |name: &str| letter.and_then(|letter| letter.text(name));
    let asked = match (of("dead_letter_id"), signed.statement.request.as_deref()) {
        (None, Some(request)) if header.action == Action::ChainInitiated => {
            let path = request.strip_prefix("POST /v1/dead-letters/").unwrap_or_default();
            let id = path.strip_suffix("/replay-requests").unwrap_or_default();
            same_route(signed, "POST", "request_replay", &["v1", "dead-letters", id, "replay-requests"])
        }
        (id, _) => {
            let path = ["v1", "dead-letters", id.unwrap_or_default(), "replay-requests"];
            same_route(signed, "POST", "request_replay", &path)
        }
    };
    Some(match header.action {
        Action::ChainInitiated => asked,
        _ => asked.and_then(|()| same_members(payload, body, &["reason"])).and_then(|()| {
            if of("reason") == body.text("reason") { Ok(()) } else { Err("asked with another `reason`".to_owned()) }
        }),
    })
}
