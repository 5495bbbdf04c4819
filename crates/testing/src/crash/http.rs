//! Steady work over HTTP, at any server that is running.

use super::server::Nodes;
use crate::load::steady::{APPROVER, BACK, CLERK, Caller, SIGN, Said, Stand};
use anyhow::Context;
use async_trait::async_trait;
use countersign_client::wire::{
    ActorKind, ApprovalState, Binding, DecideGate, Decision, Declaration, FireTransition, GateEntry, GateFate,
    GrantScope, OpenGate, RegisterActor, StartProcess, Transition, WorkflowView,
};
use countersign_client::{Answer, Client, Error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the answer says when nothing was written.
const NOTHING_WRITTEN: &str = "nothing was written";

/// The credentials of the three who act.
#[derive(Clone)]
pub struct Tokens {
    admin: String,
    clerk: String,
    approver: String,
}

impl Tokens {
    /// Registers the clerk, who may do everything but approve, and the approver.
    pub async fn set_up(url: &str, admin: &str) -> anyhow::Result<Tokens> {
        let client = Client::new(url)?.with_token(admin)?;
        let register = async |actor_ref: &str| {
            let request = RegisterActor {
                actor_ref: actor_ref.to_owned(),
                kind: ActorKind::Human,
                display_name: None,
                public_key: None,
            };
            client.register_actor(&request).await?.body.token.context("no token")
        };
        let (clerk, approver) = (register(CLERK).await?, register(APPROVER).await?);
        for action_scope in crate::load::calls::DOING.map(str::to_owned) {
            client.grant(&GrantScope { subject_ref: CLERK.to_owned(), action_scope }).await?;
        }
        Ok(Tokens { admin: admin.to_owned(), clerk, approver })
    }
}

/// Clients of one server, one per actor.
#[derive(Clone)]
struct At {
    url: String,
    admin: Client,
    clerk: Client,
    approver: Client,
}

pub struct HttpCaller {
    tokens: Tokens,
    nodes: Arc<Nodes>,
    /// Where this caller asks first.
    first: usize,
    at: Mutex<Option<At>>,
}

impl HttpCaller {
    pub fn new(tokens: Tokens, nodes: Arc<Nodes>, first: usize) -> HttpCaller {
        HttpCaller { tokens, nodes, first, at: Mutex::new(None) }
    }

    /// The clients of the server that is there; `None` while none is.
    fn at(&self) -> Option<At> {
        let url = self.nodes.url(self.first)?;
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = at.as_ref().filter(|known| known.url == url) {
            return Some(known.clone());
        }
        let client = |token: &str| Client::new(&url).and_then(|client| client.with_token(token)).ok();
        let (admin, clerk) = (client(&self.tokens.admin)?, client(&self.tokens.clerk)?);
        let made = At { approver: client(&self.tokens.approver)?, admin, clerk, url };
        Some(at.insert(made).clone())
    }
}

fn keyed(client: Client, tag: &str) -> Result<Client, Error> {
    client.with_idempotency_key(tag)
}

fn said<T>(answer: &Result<Answer<T>, Error>) -> Said {
    match answer {
        Ok(_) => Said::Yes,
        Err(Error::Refused(problem)) => {
            let told = format!("{}: {}", problem.code, problem.detail);
            let unsure = problem.status == 500
                || (problem.code == "recording-failure" && !problem.detail.contains(NOTHING_WRITTEN));
            if unsure { Said::Unknown(told) } else { Said::No(told) }
        }
        Err(Error::Unreachable { .. } | Error::Unusable(_)) => Said::Unsent,
        Err(Error::NoAnswer { .. }) => Said::Unknown("no answer".to_owned()),
        Err(Error::Unexpected { status, .. }) => Said::Unknown(format!("unexpected answer, status {status}")),
    }
}

fn declaration() -> Declaration {
    let transition = |from: &str, action: &str, to: &str, guard: Option<&str>| Transition {
        from: from.to_owned(),
        action: action.to_owned(),
        to: to.to_owned(),
        guard: guard.map(str::to_owned),
        effects: vec![],
    };
    Declaration {
        states: vec!["draft".to_owned(), "signed".to_owned()],
        transitions: vec![
            transition("draft", SIGN, "signed", Some("by-name")),
            transition("signed", BACK, "draft", None),
        ],
        initial_state: "draft".to_owned(),
        terminal_states: vec![],
    }
}

#[async_trait]
impl Caller for HttpCaller {
    async fn start(&self, tag: &str) -> (Said, Option<String>) {
        let Some(at) = self.at() else { return (Said::Unsent, None) };
        let (approver_ref, scope) = (Some(APPROVER.to_owned()), "quality".to_owned());
        let entry = GateEntry { approver_ref, approvers: None, quorum: None, scope, delegable: None };
        let request = StartProcess {
            declaration: Some(declaration()),
            definition: None,
            subject_ref: tag.to_owned(),
            gate_spec: Some(BTreeMap::from([("by-name".to_owned(), entry)])),
            reason: Some(tag.to_owned()),
        };
        let answer = match keyed(at.clerk, tag) {
            Ok(client) => client.start(&request).await,
            Err(error) => Err(error),
        };
        (said(&answer), answer.ok().map(|answer| answer.body.instance_id))
    }

    async fn open(&self, instance_id: &str, tag: &str) -> Said {
        let Some(at) = self.at() else { return Said::Unsent };
        let request = OpenGate { action: SIGN.to_owned(), reason: Some(tag.to_owned()), request: None };
        match keyed(at.clerk, tag) {
            Ok(client) => said(&client.open_gate(instance_id, &request).await),
            Err(error) => said::<()>(&Err(error)),
        }
    }

    async fn approve(&self, instance_id: &str, tag: &str) -> Said {
        let Some(at) = self.at() else { return Said::Unsent };
        let request = DecideGate {
            decision: Decision::Approve,
            reason: Some(tag.to_owned()),
            step_id: None,
            request_digest: None,
        };
        match keyed(at.approver, tag) {
            Ok(client) => said(&client.decide_gate(instance_id, SIGN, &request).await),
            Err(error) => said::<()>(&Err(error)),
        }
    }

    async fn fire(&self, instance_id: &str, action: &str, tag: &str) -> Said {
        let Some(at) = self.at() else { return Said::Unsent };
        let request = FireTransition { action: action.to_owned(), reason: Some(tag.to_owned()) };
        match keyed(at.clerk, tag) {
            Ok(client) => said(&client.fire(instance_id, &request).await),
            Err(error) => said::<()>(&Err(error)),
        }
    }

    async fn stand(&self, instance_id: &str) -> anyhow::Result<Option<Stand>> {
        let Some(at) = self.at() else { return Ok(None) };
        match at.admin.process(instance_id).await {
            Ok(answer) => Ok(Some(stand(&answer.body))),
            Err(Error::Unreachable { .. } | Error::NoAnswer { .. }) => Ok(None),
            Err(Error::Refused(problem)) if problem.status == 503 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{instance_id} was started and cannot be read")),
        }
    }

    /// Waits until some server is there.
    async fn recover(&self) -> bool {
        loop {
            // Also the pace of asking a server that has just gone.
            tokio::time::sleep(Duration::from_millis(5)).await;
            if self.nodes.ended() {
                return false;
            }
            if self.nodes.url(self.first).is_some() {
                return true;
            }
        }
    }
}

fn stand(view: &WorkflowView) -> Stand {
    if view.current_state != "draft" {
        return Stand::Signed;
    }
    let current = view.gates.iter().find(|gate| gate.binding == Binding::Current && gate.fate == GateFate::Unspent);
    match current.map(|gate| gate.state) {
        Some(ApprovalState::Pending) => Stand::Waiting,
        Some(ApprovalState::Approved) => Stand::Cleared,
        Some(ApprovalState::Rejected | ApprovalState::Withdrawn) | None => Stand::Draft,
    }
}
