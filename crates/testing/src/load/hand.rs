//! Gives generated commands to an engine and keeps the mapping: which id belongs to which number, and the state of
//! each instance.

use super::{Ask, Asked, Design, PEOPLE, StepAt, calls};
use crate::place;
use anyhow::bail;
use countersign_engine::{Call, Engine, IdempotencyKey, Outcome};
use countersign_kernel::process::StepChoice;
use countersign_kernel::{GrantId, InstanceId, Refusal, StepId};
use countersign_ledger::sha256;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Default)]
pub struct Book {
    pub instances: Vec<Known>,
    pub grants: Vec<GrantId>,
}

#[derive(Clone, Debug)]
pub struct Known {
    pub instance_id: InstanceId,
    pub design: usize,
    /// As the last firing said; with several hands at work it may have moved on.
    pub state: String,
    pub steps: Vec<StepId>,
}

/// One client of an engine. Several may share a book.
#[derive(Clone)]
pub struct Hand {
    pub engine: Arc<Engine>,
    designs: Arc<Vec<Design>>,
    book: Arc<Mutex<Book>>,
}

impl Hand {
    /// Publishes the designs and gives the first two people every scope.
    pub async fn new(engine: Arc<Engine>, designs: &[Design]) -> anyhow::Result<Hand> {
        for design in designs {
            engine.execute(calls::publish(design)).await?;
        }
        for subject_ref in &PEOPLE[..2] {
            for scope in calls::DOING {
                engine.execute(calls::grant(subject_ref, scope)).await?;
            }
        }
        Ok(Hand { engine, designs: Arc::new(designs.to_vec()), book: Arc::default() })
    }

    /// Closes the engine; no other reference to it may exist.
    pub async fn put_down(self) -> anyhow::Result<IdleHand> {
        let Hand { engine, designs, book } = self;
        place::close(engine).await?;
        Ok(IdleHand { designs, book })
    }

    /// The same client at another engine of the same store, with the same book.
    pub fn at(&self, engine: Arc<Engine>) -> Hand {
        Hand { engine, ..self.clone() }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the engine answered, in words that are the same on every store.
    pub async fn give(&self, asked: &Asked) -> anyhow::Result<String> {
        let call = self.call(asked);
        let answer = self.engine.execute(call).await;
        self.note(asked, answer)
    }

    fn call(&self, asked: &Asked) -> Call {
        let (actor_ref, reason) = (asked.actor_ref.as_str(), asked.reason.as_deref());
        let book = self.book();
        let at = |instance: &usize| book.instances.get(*instance).map(|known| known.instance_id);
        let call = match &asked.ask {
            Ask::Start { design, inline: true, subject_ref } => {
                calls::start(actor_ref, &self.designs[*design], subject_ref, reason)
            }
            Ask::Start { design, inline: false, subject_ref } => {
                calls::start_published(actor_ref, &self.designs[*design], subject_ref, reason)
            }
            Ask::Open { instance, action } => calls::open(actor_ref, at(instance), action, reason),
            Ask::Decide { instance, action, decision, step } => {
                let steps = book.instances.get(*instance).map_or(&[][..], |known| &known.steps);
                let step = step.map(|step| match step {
                    StepAt::Nth(n) => steps.get(n).map_or(StepChoice::Unknown, |id| StepChoice::Id(*id)),
                    StepAt::Nowhere => StepChoice::Unknown,
                });
                calls::decide(actor_ref, at(instance), action, *decision, reason, step)
            }
            Ask::Fire { instance, action } => calls::fire(actor_ref, at(instance), action, reason),
            Ask::Grant { subject_ref, scope } => {
                Call { actor_ref: actor_ref.to_owned(), ..calls::grant(subject_ref, scope) }
            }
            Ask::Revoke { grant } => {
                Call { actor_ref: actor_ref.to_owned(), ..calls::revoke(book.grants.get(*grant).copied()) }
            }
        };
        // The request by its numbers, which are the same on every store.
        let request = format!("{:?} {reason:?}", asked.ask);
        let key = |key: &String| IdempotencyKey { key: key.clone(), request_digest: sha256(&[request.as_bytes()]) };
        Call { idempotency: asked.key.as_ref().map(key), ..call }
    }

    fn note(&self, asked: &Asked, answer: Result<Outcome, Refusal>) -> anyhow::Result<String> {
        let mut book = self.book();
        Ok(match answer {
            Err(refusal) => format!("refused: {}", refusal.code),
            Ok(Outcome::Started { instance_id }) => {
                let Some(id) = InstanceId::parse(&instance_id) else { bail!("no id: {instance_id}") };
                // A repeated key names one that is known.
                let known = book.instances.iter().position(|known| known.instance_id == id);
                let number = known.unwrap_or_else(|| {
                    let design = if let Ask::Start { design, .. } = &asked.ask { *design } else { 0 };
                    let state = self.designs[design].declaration.initial_state.clone();
                    book.instances.push(Known { instance_id: id, design, state, steps: vec![] });
                    book.instances.len() - 1
                });
                format!("started instance {number}")
            }
            Ok(Outcome::GateOpened { step_id, .. }) => {
                format!("gate opened: {}", note_step(&mut book, asked, &step_id)?)
            }
            Ok(Outcome::ChainOpened { steps, .. }) => {
                let numbers: Vec<String> =
                    steps.iter().map(|step| note_step(&mut book, asked, &step.step_id)).collect::<Result<_, _>>()?;
                format!("chain opened: {}", numbers.join(", "))
            }
            Ok(Outcome::Decided { outcome, chain_state, .. }) => format!("{outcome}, chain {chain_state:?}"),
            Ok(Outcome::Fired { new_state, sequence_number, .. }) => {
                if let Ask::Fire { instance, .. } = &asked.ask {
                    book.instances[*instance].state.clone_from(&new_state);
                }
                format!("fired #{sequence_number}, now {new_state}")
            }
            Ok(Outcome::Granted { grant_id }) => {
                let Some(id) = GrantId::parse(&grant_id) else { bail!("no id: {grant_id}") };
                let known = book.grants.iter().position(|known| *known == id);
                let number = known.unwrap_or_else(|| {
                    book.grants.push(id);
                    book.grants.len() - 1
                });
                format!("granted {number}")
            }
            Ok(Outcome::Revoked) => "revoked".to_owned(),
            Ok(other) => bail!("an answer to something else: {other:?}"),
        })
    }
}

/// A hand without an engine: it still has its book.
pub struct IdleHand {
    designs: Arc<Vec<Design>>,
    book: Arc<Mutex<Book>>,
}

impl IdleHand {
    pub fn take_up(self, engine: Arc<Engine>) -> Hand {
        Hand { engine, designs: self.designs, book: self.book }
    }
}

fn note_step(book: &mut Book, asked: &Asked, step_id: &str) -> anyhow::Result<String> {
    let Some(id) = StepId::parse(step_id) else { bail!("no id: {step_id}") };
    let Ask::Open { instance, .. } = &asked.ask else { bail!("a gate was opened that nobody asked for") };
    let steps = &mut book.instances[*instance].steps;
    let number = steps.iter().position(|known| *known == id).unwrap_or_else(|| {
        steps.push(id);
        steps.len() - 1
    });
    Ok(format!("step {number}"))
}
