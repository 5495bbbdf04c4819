//! What the approvers of a gate are asked, and that what they decide is bound to it (`spec/record.md`, section 4).

use super::{Context, Process};
use crate::finding::Code;
use crate::json::Value;
use crate::record::{Action, Record};

impl Process {
    pub(super) fn check_request(&mut self, record: &Record, payload: &Value, ctx: &mut Context<'_>) {
        let header = &record.header;
        let gate = payload.text("chain_id").or(payload.text("step_id")).unwrap_or_default();
        let said = payload.text("request_digest");
        match header.action {
            Action::GateOpened => {
                self.requests.insert(gate.to_owned(), said.map(str::to_owned));
                let found = record.content.as_ref().and_then(|content| content.request_sha256);
                let by_digest = payload.get("request_bytes").is_some();
                let fits = match found {
                    Some(found) => said == Some(&found.to_string()),
                    None => !by_digest || said.is_some(),
                };
                if !fits {
                    let detail = "request_digest is not that of the request";
                    ctx.findings.find(Code::BindingInvalid, header, detail);
                }
            }
            Action::GateDecided if self.requests.get(gate).is_some_and(|asked| asked.as_deref() != said) => {
                let detail = "the decision is not bound to the request of its gate";
                ctx.findings.find(Code::BindingInvalid, header, detail);
            }
            _ => {}
        }
    }
}
