//! What a signed request asked of a proposal, and what was recorded of it (`spec/proposal.md`).

use super::agreement::{Agreement, same_members, same_route};
use super::statement::Signed;
use crate::bytes::{Id, sha256};
use crate::json::Value;
use crate::process::proposal::same;
use crate::record::{Action, Header};

/// The proposal that a published version merges.
pub fn merged_by(action: Action, payload: Option<&Value>) -> Option<Id> {
    let published = payload.filter(|_| action == Action::DefinitionPublished)?;
    Id::parse(published.given("proposal")?.text("instance_id")?)
}

/// The request that a version was merged by.
pub fn same_merge(proposal: Id, signed: &Signed) -> Agreement {
    same_route(signed, "POST", "merge_proposal", &["v1", "proposals", &proposal.to_string(), "merge"])
}

/// A record in the chain of a proposal. `None`: its request is that of any process.
pub fn same_request(header: &Header, payload: &Value, body: &Value, signed: &Signed) -> Option<Agreement> {
    let id = header.instance_id.to_string();
    let asks = |action: &str, what: &str| same_route(signed, "POST", action, &["v1", "proposals", &id, what]);
    let reason = |asked: Agreement| asked.and_then(|()| same_members(payload, body, &["reason"]));
    Some(match header.action {
        Action::WorkflowStarted => {
            let asked = same_route(signed, "POST", "propose", &["v1", "proposals"]);
            asked.and_then(|()| same_content(payload, body, &["proposal_kind", "target"]))
        }
        Action::ChainInitiated => asks("review_proposal", "review"),
        Action::GateOpened => reason(asks("review_proposal", "review")),
        Action::TransitionFired => match payload.text("action")? {
            "edit" => {
                let asked = same_route(signed, "PUT", "edit_proposal", &["v1", "proposals", &id]);
                asked.and_then(|()| same_content(payload, body, &[]))
            }
            "comment" => asks("comment_proposal", "comments").and_then(|()| same_comment(payload, body)),
            "merge" => reason(asks("merge_proposal", "merge")).and_then(|()| same_evidence(payload, body)),
            action @ ("submit" | "review" | "withdraw") => reason(asks(&format!("{action}_proposal"), action)),
            _ => return None,
        },
        _ => return None,
    })
}

fn differs(name: &str) -> Agreement {
    Err(format!("asked for another `{name}` than was recorded"))
}

fn same_content(payload: &Value, body: &Value, besides: &[&str]) -> Agreement {
    let content = payload.get("proposal").unwrap_or(&Value::Null);
    // It stands in what is proposed.
    if payload.given("reason").is_some() {
        return differs("reason");
    }
    let said = ["base_version", "evidence_ref", "affected", "proposed_action", "reason"];
    for name in said.iter().chain(besides) {
        let is_same = match (body.given(name), content.given(name)) {
            (Some(asked), Some(recorded)) => same(asked, recorded),
            (asked, recorded) => asked == recorded,
        };
        if !is_same {
            return differs(name);
        }
    }
    let digest = body.text("document").map(|document| sha256(&[document.as_bytes()]).to_string());
    if digest.as_deref() != content.text("digest") {
        return differs("document");
    }
    match body.given("proposer_class") {
        Some(class) if class.as_text() != content.text("proposer_class") => differs("proposer_class"),
        _ => Ok(()),
    }
}

fn same_comment(payload: &Value, body: &Value) -> Agreement {
    if body.text("text") == payload.text("reason") { Ok(()) } else { differs("text") }
}

fn same_evidence(payload: &Value, body: &Value) -> Agreement {
    let recorded = payload.get("merged").and_then(|merged| merged.text("evidence_ref"));
    if body.text("evidence_ref") == recorded { Ok(()) } else { differs("evidence_ref") }
}
