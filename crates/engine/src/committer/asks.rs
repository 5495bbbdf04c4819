//! Questions: what would be accepted, by the very functions that decide it, and what a step works on. Nothing is written.

use super::acts::is_offer_signed;
use super::decide::vouch;
use super::round::Round;
use super::{Committer, Decided, Job};
use crate::outcome::{Ask, Call, Command, Offered, Outcome, Problem, Target};
use countersign_kernel::budget::{Budget, STEPS_PER_COMMAND};
use countersign_kernel::offer::{self, Asked, Candidate, Offer, Supplied};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{self, Context};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{self, Event, RunEvent};
use countersign_kernel::{IdSource, InstanceId, Time};
use std::sync::Arc;

/// What one candidate may be asked for, piece by piece.
const PIECES: usize = 8;

/// What deciding a candidate came to.
struct Would {
    transition_id: Option<String>,
    to_state: Option<String>,
}

impl Committer {
    pub(super) fn decide_ask(&mut self, job: Job, registry: &Registry, round: &mut Round) -> Decided {
        let answer = self.answer_ask(&job.call, registry);
        // It is as true as a refusal: where others write, the store has to say that nothing has moved.
        let confirm = self.confirm_refusal(&job, round);
        Decided { job, answer, confirm }
    }

    fn answer_ask(&mut self, call: &Call, registry: &Registry) -> Result<Outcome, Refusal> {
        let Command::Ask { target, ask } = &call.command else {
            return Err(Refusal::new(Code::InvalidRequest, "not a question"));
        };
        vouch(call, registry)?;
        if let Ask::Preview(command) = ask {
            return self.preview(call, *target, command, registry);
        }
        let Target::Existing(instance_id) = target else { return Err(nothing()) };
        let now = self.moment(self.cache.peek(instance_id));
        let instance = self.cache.peek(instance_id).ok_or_else(nothing)?;
        let (shell, run) = (&instance.process, instance.run.as_deref());
        let candidates = match (ask, run) {
            (Ask::Process, None) => offer::of_process(shell),
            (Ask::Run, Some(run)) => offer::of_run(shell, run),
            (Ask::Step { step, prior }, Some(run)) => {
                offer::of_step(shell, run, named(run, step)?, prior.as_deref().cloned(), now)
            }
            (Ask::Input { step }, Some(run)) => {
                let seq = named(run, step)?;
                let input = self.step_input(call, *instance_id, seq, registry)?;
                return Ok(Outcome::StepInput { input: input.map(|input| input.to_string()) });
            }
            _ => return Err(nothing()),
        };
        let offers = candidates.into_iter().map(|candidate| self.would_offer(call, *target, candidate, registry));
        let offers = offers.collect::<Result<Vec<_>, _>>()?;
        Ok(Outcome::Offers {
            offers: offers.into_iter().flatten().map(|offer| offered(call, offer, registry)).collect(),
        })
    }

    /// What would become of it; nothing where it would be accepted and change nothing.
    fn would_offer(
        &mut self,
        call: &Call,
        target: Target,
        mut candidate: Candidate,
        registry: &Registry,
    ) -> Result<Option<Offer>, Refusal> {
        let mut problems = vec![];
        for _ in 0..PIECES {
            match self.would(call, target, &candidate, registry) {
                Ok(None) => return Ok(None),
                Ok(Some(would)) => {
                    if let Some(to_state) = would.to_state {
                        candidate.to_state = to_state;
                    }
                    return Ok(Some(Offer { candidate, refused: vec![], transition_id: would.transition_id }));
                }
                Err(refusal) if refusal.passes() => return Err(refusal),
                Err(refusal) => {
                    let Target::Existing(id) = target else { return Err(nothing()) };
                    let instance = self.cache.peek(&id);
                    let run = instance.and_then(|instance| Some((&instance.process, instance.run.as_deref()?)));
                    problems = refusal.all();
                    let supplied: Vec<Supplied> = problems.iter().map(|no| candidate.supply(no, run)).collect();
                    if supplied.contains(&Supplied::Put) {
                        continue;
                    }
                    // Whether those hold depends on nothing but what the caller gives.
                    let mut supplied = supplied.iter();
                    problems.retain(|_| supplied.next() == Some(&Supplied::No));
                    return Ok(Some(Offer { candidate, refused: problems, transition_id: None }));
                }
            }
        }
        Ok(Some(Offer { candidate, refused: problems, transition_id: None }))
    }

    /// The decision itself, by the way that the command would take.
    fn would(
        &mut self,
        call: &Call,
        target: Target,
        candidate: &Candidate,
        registry: &Registry,
    ) -> Result<Option<Would>, Refusal> {
        match &candidate.asked {
            Asked::Run(command) => {
                let (events, ids) = self.decide_on_run(call, target, command, registry)?;
                self.would_tell(target, &events, ids)?;
                Ok((!events.is_empty()).then(|| would_move(&events, candidate)))
            }
            Asked::Process(command) => {
                let entropy = u64::from_le_bytes(self.random()?);
                let Target::Existing(instance_id) = target else { return Err(nothing()) };
                let now = self.moment(self.cache.peek(&instance_id));
                let instance = self.cache.peek(&instance_id);
                let mut ctx = Context {
                    actor_ref: &call.actor_ref,
                    now,
                    registry,
                    application_actor_ref: &self.config.application_actor_ref,
                    ids: IdSource::new(now, entropy),
                };
                process::decide(instance.map(|instance| &instance.process), command, &mut ctx)?;
                Ok(Some(Would { transition_id: None, to_state: None }))
            }
        }
    }

    /// What the step works on: JSON text. Nothing before its turn, or where it cannot be worked out.
    fn step_input(
        &mut self,
        call: &Call,
        run_id: InstanceId,
        seq: StepSeq,
        registry: &Registry,
    ) -> Result<Option<Arc<str>>, Refusal> {
        let entropy = u64::from_le_bytes(self.random()?);
        let (language, budget) = (self.config.language.clone(), Budget::default());
        let language = language.metered(&budget);
        let mut ctx = self.run_context(call, registry, &*language, IdSource::new(Time(0), entropy));
        let instance = self.cache.peek(&run_id);
        let known = instance.and_then(|instance| Some((&instance.process, instance.run.as_deref()?)));
        let (shell, run) = known.ok_or_else(nothing)?;
        let input = run::input_of_step(shell, run, seq, &mut ctx);
        self.round_steps = self.round_steps.saturating_add(STEPS_PER_COMMAND - budget.left());
        Ok(input)
    }
}

fn offered(call: &Call, offer: Offer, registry: &Registry) -> Offered {
    let Offer { candidate, refused, transition_id } = offer;
    let command = match &candidate.asked {
        Asked::Process(command) => command.name(),
        Asked::Run(command) => command.name(),
    };
    let mut needs: Vec<String> = candidate.needs.iter().map(|field| (*field).to_owned()).collect();
    if is_offer_signed(&call.actor_ref, &candidate.asked, registry) {
        needs.push("signature".to_owned());
    }
    Offered {
        approval_id: candidate.approval().map(str::to_owned),
        action: candidate.action,
        command: command.to_owned(),
        transition_id,
        to_state: candidate.to_state,
        problems: refused.iter().flat_map(Problem::all).collect(),
        needs,
        gate: candidate.gate,
    }
}

fn nothing() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no such process and no such run")
}

fn named(run: &run::Run, step: &str) -> Result<StepSeq, Refusal> {
    let unknown = || Refusal::new(Code::NotKnown, format!("the run has no step named `{step}`")).at("step");
    run.cell_named(step).ok_or_else(unknown)
}

fn would_move(events: &[Event], candidate: &Candidate) -> Would {
    let event: Option<&RunEvent> = events.iter().find_map(|event| match event {
        Event::Run(event) => Some(&**event),
        Event::Gate(_) => None,
    });
    let Some(event) = event else { return Would { transition_id: None, to_state: None } };
    let Some(seq) = candidate.step_seq else {
        let transition_id = event.run_moves.first().map(|m| m.transition.id.to_owned());
        return Would { transition_id, to_state: Some(event.head.state.as_str().to_owned()) };
    };
    let own = event.acted.as_deref().and_then(|acted| acted.own.as_ref());
    let mut moves = event.moves.iter().filter(|m| m.step_seq == seq);
    let cell = event.cells.binary_search_by_key(&seq, |(of, _)| *of).ok().map(|at| &event.cells[at].1);
    Would {
        transition_id: own.map(|own| own.id.clone()).or_else(|| moves.next().map(|m| m.transition.id.to_owned())),
        to_state: cell.map(|cell| cell.shown_state().to_owned()),
    }
}
