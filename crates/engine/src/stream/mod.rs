//! What a reader follows live (ADR 42): that something moved and to which sequence, never what it says. Whoever hears of
//! it reads again, with their own rights.
//!
//! - [`moves`]: a bounded set of what moved; [`hub`]: from commits and other nodes to subscriptions.
//! - This file: topics, who may follow them, and where they stood when following began.

pub mod hub;
pub mod moves;

pub use hub::{CutOff, News};

use crate::port::InstanceHead;
use crate::{Engine, stopped, store_failure};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{Registry, scopes};
use countersign_kernel::{Digest, InstanceId, Time};
use hub::{NoSubscription, Subscription};
use moves::Key;
use std::sync::Arc;

/// Something to follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Run(InstanceId),
    Process(InstanceId),
    /// Every run that the reader may see.
    Runs,
    /// Every process that the reader may see.
    Processes,
    /// The reader's own.
    Inbox,
    Worklist,
    /// Checkpoints and verifications of the log.
    Ledger,
    /// Governance events and dead deliveries.
    Governance,
}

/// Topics that somebody follows. It ends when this is dropped, and keeps no engine open.
pub struct Follow {
    subscription: Subscription,
    actor_ref: String,
    topics: Vec<(Topic, Option<InstanceHead>)>,
    /// The definitions whose runs the topic `runs` covers.
    runs: Visible,
    /// The same for the topic `processes`.
    processes: Visible,
    /// The approvers whose in-trays the topic `inbox` covers besides: they named the reader as their substitute.
    approvers: Vec<String>,
    /// The registry that the reader's rights were last looked at under.
    registry_sequence: u64,
    /// The session that the reader follows in.
    session: Option<Digest>,
}

/// The number under which a subscription hears of the reader's own session. No topic has it.
const SESSION: usize = usize::MAX;

/// The definitions that a reader may see; `None`: all of them.
pub(crate) type Visible = Option<Vec<String>>;

impl Topic {
    const fn scope(&self) -> Option<&'static str> {
        match self {
            Topic::Run(_) | Topic::Runs => Some(scopes::RUNS_READ),
            Topic::Process(_) | Topic::Processes => Some(scopes::WORKFLOWS_READ),
            Topic::Ledger => Some(scopes::AUDIT_READ),
            Topic::Governance => Some(scopes::GOVERNANCE_READ),
            Topic::Inbox | Topic::Worklist => None,
        }
    }

    const fn instance_id(&self) -> Option<InstanceId> {
        match self {
            Topic::Run(id) | Topic::Process(id) => Some(*id),
            Topic::Runs | Topic::Processes | Topic::Inbox | Topic::Worklist | Topic::Ledger | Topic::Governance => None,
        }
    }

    /// The scope of a topic that is about everything: no finer scope covers a part of it.
    const fn whole_scope(&self) -> Option<&'static str> {
        match self {
            Topic::Ledger | Topic::Governance => self.scope(),
            Topic::Run(_) | Topic::Process(_) | Topic::Runs | Topic::Processes | Topic::Inbox | Topic::Worklist => None,
        }
    }

    fn is_of(&self, head: &InstanceHead) -> bool {
        self.instance_id() == Some(head.instance_id) && matches!(self, Topic::Run(_)) == head.is_run
    }

    /// `visible`: the definitions that a list covers.
    fn keys(&self, actor_ref: &str, visible: &Visible) -> Vec<Key> {
        let of = |all: Key, one: fn(Arc<str>) -> Key| match visible {
            None => vec![all],
            Some(names) => names.iter().map(|name| one(name.as_str().into())).collect(),
        };
        match self {
            Topic::Run(id) | Topic::Process(id) => vec![Key::Instance(*id)],
            Topic::Runs => of(Key::AllRuns, Key::Runs),
            Topic::Processes => of(Key::AllProcesses, Key::Processes),
            Topic::Inbox => vec![Key::Inbox(actor_ref.into())],
            Topic::Worklist => vec![Key::Worklist(actor_ref.into())],
            Topic::Ledger => vec![Key::Ledger],
            Topic::Governance => vec![Key::Governance],
        }
    }
}

impl Follow {
    /// Where each topic stood when following began, in the order of the topics; `None` where it has no sequence.
    pub fn sequences(&self) -> Vec<Option<u64>> {
        self.topics.iter().map(|(_, head)| head.as_ref().map(|head| head.sequence)).collect()
    }

    /// Waits for news. Before it passes on what moved, the caller asks [`Engine::may_follow`].
    pub async fn next(&mut self) -> News {
        match self.subscription.next().await {
            News::Moved(mut moved) if moved.last().is_some_and(|(n, _)| *n == SESSION) => {
                moved.pop();
                moved.into_iter().for_each(|(n, sequence)| self.subscription.mark(n, sequence));
                News::SessionMoved
            }
            news => news,
        }
    }

    /// How many topics have moved that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.subscription.waiting()
    }

    fn listen(&mut self) {
        let keys = |(n, (topic, _)): (usize, &(Topic, _))| {
            let others = self.approvers.iter().filter(|_| *topic == Topic::Inbox);
            let others = others.map(|approver| Key::Inbox(approver.as_str().into()));
            let visible = if *topic == Topic::Processes { &self.processes } else { &self.runs };
            let keys = topic.keys(&self.actor_ref, visible).into_iter().chain(others);
            keys.map(move |key| (key, n)).collect::<Vec<_>>()
        };
        let session = self.session.map(|hash| (Key::Session(hash), SESSION));
        let keys = self.topics.iter().enumerate().flat_map(keys).chain(session).collect();
        self.subscription.listen(keys);
    }
}

impl Engine {
    /// Follows these topics, of which an actor has at most `most` streams. A topic is refused as the read of it would be.
    pub async fn follow(
        &self,
        actor_ref: &str,
        session: Option<Digest>,
        topics: Vec<Topic>,
        most: usize,
        cut_off: CutOff,
    ) -> Result<Follow, Refusal> {
        let subscription = self.hub.subscribe(actor_ref, most, cut_off).map_err(|no| no_subscription(&no, most))?;
        let (registry_sequence, approvers) = {
            let registry = self.registry();
            (registry.sequence(), delegators(&registry, actor_ref, self.now()))
        };
        let topics = topics.into_iter().map(|topic| (topic, None)).collect();
        let mut follow = Follow {
            subscription,
            actor_ref: actor_ref.to_owned(),
            topics,
            runs: None,
            processes: None,
            approvers,
            registry_sequence,
            session,
        };
        for scope in follow.topics.iter().filter_map(|(topic, _)| topic.whole_scope()) {
            self.require_scope(actor_ref, scope).await?;
        }
        for scope in [scopes::RUNS_READ, scopes::WORKFLOWS_READ] {
            if follow.topics.iter().any(|(topic, _)| topic.scope() == Some(scope)) {
                let visible = self.visible_definitions(actor_ref, scope).await?;
                match scope {
                    scopes::RUNS_READ => follow.runs = visible,
                    _ => follow.processes = visible,
                }
            }
        }
        // Before anything is read: what moves from here on is heard.
        follow.listen();
        let ids: Vec<InstanceId> = follow.topics.iter().filter_map(|(topic, _)| topic.instance_id()).collect();
        let heads =
            if ids.is_empty() { vec![] } else { self.reader.heads(&ids).await.map_err(|e| store_failure(&e))? };
        for (topic, head) in &mut follow.topics {
            let (Some(scope), Some(_)) = (topic.scope(), topic.instance_id()) else { continue };
            *head = Some(self.seen(actor_ref, scope, heads.iter().find(|head| topic.is_of(head)))?);
        }
        Ok(follow)
    }

    /// Whether a stream would be refused for this topic.
    pub async fn would_refuse(&self, actor_ref: &str, topic: Topic) -> bool {
        let Some(scope) = topic.scope() else { return false };
        let Some(id) = topic.instance_id() else {
            return match topic.whole_scope() {
                Some(scope) => self.require_scope(actor_ref, scope).await.is_err(),
                None => self.visible_definitions(actor_ref, scope).await.is_err(),
            };
        };
        match self.reader.heads(&[id]).await {
            Ok(heads) => self.seen(actor_ref, scope, heads.iter().find(|head| topic.is_of(head))).is_err(),
            Err(_) => false,
        }
    }

    /// As `read_runs` and `read_workflow` answer.
    fn seen(&self, actor_ref: &str, scope: &str, head: Option<&InstanceHead>) -> Result<InstanceHead, Refusal> {
        let registry = self.registry();
        let definition = head.and_then(|head| head.definition.as_deref());
        if !registry.permitted_on(actor_ref, scope, definition) {
            return Err(Engine::unseen(actor_ref, scope));
        }
        let what = if scope == scopes::RUNS_READ { "run" } else { "process" };
        head.cloned().ok_or_else(|| Refusal::new(Code::NotKnown, format!("there is no {what} with this id")))
    }

    /// Whether the reader still may see all that it follows. Asks the registry of this node only, and only where that has
    /// moved.
    pub fn may_follow(&self, follow: &mut Follow) -> bool {
        let registry = self.registry();
        if registry.sequence() == follow.registry_sequence {
            return true;
        }
        follow.registry_sequence = registry.sequence();
        let actor_ref = &follow.actor_ref;
        let allowed = follow.topics.iter().all(|(topic, head)| match (topic.scope(), head) {
            (Some(scope), Some(head)) => registry.permitted_on(actor_ref, scope, head.definition.as_deref()),
            (Some(scope), None) if topic.whole_scope().is_some() => registry.permitted(actor_ref, scope),
            (Some(scope), None) => visible(&registry, actor_ref, scope).is_some(),
            (None, _) => true,
        });
        let lists = [(Topic::Runs, scopes::RUNS_READ), (Topic::Processes, scopes::WORKFLOWS_READ)];
        let lists = lists.map(|(list, scope)| (list, visible(&registry, actor_ref, scope)));
        let approvers = delegators(&registry, actor_ref, self.now());
        drop(registry);
        if !allowed {
            return false;
        }
        for (list, now) in lists {
            let Some(n) = follow.topics.iter().position(|(topic, _)| *topic == list) else { continue };
            let covers = if list == Topic::Runs { &mut follow.runs } else { &mut follow.processes };
            if let Some(now) = now.filter(|now| now != covers) {
                // More or fewer of them are to be seen: the list is another one.
                *covers = now;
                follow.listen();
                follow.subscription.mark(n, None);
            }
        }
        if approvers != follow.approvers {
            follow.approvers = approvers;
            follow.listen();
            let inbox = follow.topics.iter().position(|(topic, _)| *topic == Topic::Inbox);
            inbox.into_iter().for_each(|n| follow.subscription.mark(n, None));
        }
        true
    }
}

/// The approvers who named this actor as their substitute, now or for a period to come.
fn delegators(registry: &Registry, actor_ref: &str, now: Time) -> Vec<String> {
    let open = registry.delegations().to_delegate(actor_ref).filter(|known| known.is_open(now));
    let mut names: Vec<String> = open.map(|known| known.delegation.delegator_ref.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The definitions that this actor may see by this scope; `None`: nothing at all.
pub(crate) fn visible(registry: &Registry, actor_ref: &str, scope: &str) -> Option<Visible> {
    if registry.permitted(actor_ref, scope) {
        return Some(None);
    }
    let finer = format!("{scope}:");
    let grants = registry.grants().active_scopes(actor_ref, &finer);
    let mut names: Vec<String> = grants.map(|scope| scope[finer.len()..].to_owned()).collect();
    names.sort_unstable();
    (!names.is_empty()).then_some(Some(names))
}

fn no_subscription(no: &NoSubscription, most: usize) -> Refusal {
    match no {
        NoSubscription::Closed => stopped(),
        NoSubscription::TooMany => {
            let detail = format!(
                "this actor follows {most} streams already, and no more are allowed (limits.streams_per_actor): close one, \
                 or follow more topics in one stream"
            );
            Refusal::new(Code::Overloaded, detail)
        }
    }
}
