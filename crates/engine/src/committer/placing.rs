//! What was committed goes back into the agenda, and what the store says is due comes into it.

use super::limits::limit_in;
use super::{Committer, Instance, Job};
use crate::outcome::{Command, Target};
use crate::port::{Batch, Due, Unit};
use crate::rows::Write;
use crate::run::children::left_behind;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{Time, run};
use std::sync::Arc;

impl Committer {
    /// What a committed unit leaves to be done goes into the agenda; workers that lost a lease by it are notified.
    pub(super) fn place(&mut self, unit: &Unit) {
        let clock = self.now();
        self.book.leases.written(unit.instance_id, &unit.steps);
        self.tally.count(unit);
        self.tell_monitor(unit.instance_id);
        let Some(instance) = self.cache.peek(&unit.instance_id) else { return };
        // As the next claim will be judged: clocks may have been set back since the last record.
        let now = self.moment(Some(instance));
        let Some(run) = instance.run.as_deref() else { return };
        if let Some(book) = run.runbook() {
            let lease = book.survey.as_ref().and_then(|survey| survey.lease).map(|(token, _)| token);
            self.book.leases.surveyed(run.run_id, lease);
        }
        let moved = unit.writes.iter().any(|write| matches!(write, Write::NewRunHead(_) | Write::RunHead(_)));
        for seq in unit.steps.keys() {
            // Most steps of a plan have not begun; the agenda never heard of them.
            let begun = run.cell(*seq).is_some_and(|cell| cell.live.is_some() || cell.is_ended());
            if begun || run.runbook().is_some() {
                self.place_step(instance, *seq, &run.agenda(*seq), now);
            }
        }
        self.open_freed(run, definition_of(instance), unit);
        for child in unit.steps.values().filter_map(|write| left_behind(&write.state)) {
            self.book.remind((child, None), Some(now));
        }
        if moved {
            for seq in run.live.iter().filter(|seq| !unit.steps.contains_key(seq)) {
                self.place_step(instance, *seq, &run.agenda(*seq), now);
            }
            match (&run.head.parent, run.due_at()) {
                (None, due_at) => self.book.remind((run.run_id, None), due_at),
                // It may have been told to ask after its parent.
                (Some(_), due_at) => due_at.into_iter().for_each(|at| self.book.remind_by((run.run_id, None), at)),
            }
            // A runbook that stops or goes on, and the children that do its work, hear of each other at once.
            let awaits = |seq: &&StepSeq| {
                run.runbook().is_some() && run.cell(**seq).is_some_and(|cell| cell.awaited().is_some())
            };
            for seq in run.live.iter().filter(awaits) {
                self.book.remind_by((run.run_id, Some(*seq)), clock);
            }
            if run.head.concurrency_key.is_some() {
                self.book.slots.notify_one();
            }
            if let (true, Some(parent)) = (run.head.state.is_ended(), &run.head.parent) {
                self.book.remind((parent.run_id, Some(parent.step_seq)), Some(clock));
            }
        }
        self.tell_parent(unit.instance_id, clock);
    }

    pub(super) fn place_step(&self, instance: &Instance, step_seq: StepSeq, agenda: &run::Agenda, now: Time) {
        let claim = instance.run.as_deref().zip(agenda.claim.as_ref());
        // Who looks at pins takes no slot.
        let claim = claim.filter(|(run, _)| run.survey_of(step_seq).is_none());
        let limit = claim.and_then(|(run, claim)| limit_in(&run.plan, &claim.queue));
        let step = (instance.process.instance_id, step_seq);
        self.book.place(step, agenda, definition_of(instance), limit, now);
    }

    /// After the clock has looked at steps, what those that did not change wait for next goes back into the agenda. What was
    /// `written` has been placed.
    pub(super) fn place_again(&mut self, job: &Job, written: Option<&Unit>) {
        let Command::Run { target: Target::Existing(run_id), command: run::Command::Due { steps, run: whole } } =
            &job.call.command
        else {
            return;
        };
        let Some(instance) = self.cache.peek(run_id) else { return };
        let Some(run) = instance.run.as_deref() else { return };
        let now = self.moment(Some(instance));
        // What has been looked at is not due again in the same breath; what came due since then is.
        let unseen = |at: &Time| *at > job.looked_at;
        for seq in steps.iter().filter(|seq| written.is_none_or(|unit| !unit.steps.contains_key(seq))) {
            let mut agenda = run.agenda(*seq);
            agenda.timer = agenda.timer.filter(unseen);
            self.place_step(instance, *seq, &agenda, now);
        }
        match run.due_at() {
            Some(at) if unseen(&at) || !whole => self.book.remind_by((*run_id, None), at),
            _ => {}
        }
    }

    /// A child that its parent will not hear of asks after it: the step that it was for may have ended already.
    pub(super) fn send_child_to_parent(&self, job: &Job) {
        if let Command::Run { command: run::Command::ChildStarted { child, .. }, .. } = &job.call.command {
            self.book.remind_by((*child, None), self.now());
        }
    }

    /// Whether a batch was written is not known: if it was, this is what it left to be done.
    pub(super) fn look_at_all(&self, batch: &Batch) {
        let now = self.now();
        for unit in &batch.units {
            for (seq, _) in unit.steps.iter().filter(|(_, step)| step.state.due_at.is_some()) {
                self.book.remind((unit.instance_id, Some(*seq)), Some(now));
            }
            if unit.writes.iter().any(|write| matches!(write, Write::NewRunHead(_) | Write::RunHead(_))) {
                self.book.remind((unit.instance_id, None), Some(now));
            }
        }
    }

    /// What is to be done, as the store says: a page of it at a time. Where nobody else writes, until all of it has been seen;
    /// where other nodes share the store, again and again: what they left undone.
    pub(super) async fn look_for_due(&mut self) {
        const LIMIT: usize = 500;
        const SLACK_US: i64 = 10_000_000;
        /// By so much another node's clock may be ahead.
        const AHEAD_US: i64 = 50_000;
        if !self.book.is_opened() {
            return;
        }
        let now = self.moment(None);
        let again = self.book.take_forgot() | std::mem::take(&mut self.from_start);
        let from = if again { Due::from(Time(0)) } else { self.low_water.clone() };
        let until = if self.exclusive { Time(i64::MAX) } else { Time(now.0 + AHEAD_US) };
        self.look_failed = false;
        match self.writer.due(&from, until, LIMIT).await {
            Ok(found) => {
                // Where no more timers are taken, what is due later waits in the store.
                let enough = self.book.is_full() && found.last().is_some_and(|last| last.due_at > now);
                let more = found.last().filter(|_| found.len() == LIMIT && !enough).cloned();
                // Another node may have brought it about: what is known of it here does not count, until it was looked at.
                let before = std::mem::take(&mut self.told);
                for due in found {
                    let item = (due.instance_id, due.step_seq);
                    let looked_at = self.exclusive || before.get(&item) == Some(&due.due_at);
                    if !self.book.knows(&item) && self.place_ready(&due, now) {
                        continue;
                    }
                    self.book.told(item, if self.exclusive { due.due_at } else { due.due_at.min(now) }, looked_at);
                    if !self.exclusive {
                        self.told.insert(item, due.due_at);
                    }
                }
                // Only now: callers of `until_loaded` expect to find all of it in the agenda.
                self.low_water = match more {
                    Some(last) => {
                        self.book.look.notify_one();
                        last
                    }
                    None => {
                        self.book.set_loaded();
                        Due::from(Time(now.0 - SLACK_US))
                    }
                };
            }
            Err(error) => {
                tracing::warn!(%error, "what is due could not be read");
                self.look_failed = true;
            }
        }
    }

    /// A step that is plainly ready goes into its queue by what its definition says; the run is loaded when it is claimed.
    fn place_ready(&self, due: &Due, now: Time) -> bool {
        let (Some(ready), Some(step_seq)) = (&due.ready, due.step_seq) else { return false };
        let plan = {
            let registry = self.registry.read();
            let definition = registry.definition(&ready.definition_name, Some(ready.definition_version));
            let workflow = definition.and_then(|definition| definition.workflow.as_ref());
            workflow.and_then(|workflow| self.registry.plan_at_hand(&workflow.document_digest))
        };
        // Its run is loaded, and its plan with it.
        let Some(plan) = plan else { return false };
        let Some(spec) = plan.step(step_seq).filter(|spec| spec.is_claimed()) else { return false };
        let queue = spec.work.queue().map_or_else(|| spec.queue.clone(), Arc::from);
        let limit = limit_in(&plan, &queue);
        let claim = run::Claim { at: due.due_at, queue, priority: spec.priority.unwrap_or(ready.priority) };
        let agenda = run::Agenda { claim: Some(claim), timer: None };
        self.book.place((due.instance_id, step_seq), &agenda, &ready.definition_name, limit, now);
        true
    }
}

/// The definition that a run came from, by name: grants may be for it alone.
fn definition_of(instance: &Instance) -> &str {
    instance.process.definition.as_ref().map_or("", |definition| definition.name.as_str())
}
