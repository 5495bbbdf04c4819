//! Every visit of a step to a state (`step_run_state_history`), as its run's records tell it. What a purge destroys it leaves
//! behind in this respect ([`crate::rows::Write::Visits`]), so that nobody's way is shortened by it; there is no second table
//! that could disagree with the records that stand.

use crate::port::{Page, RecordQuery, RunView};
use crate::purge::places;
use crate::rows::RecordRow;
use crate::{Engine, store_failure};
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{EventId, Time};
use serde_json::Value;
use std::collections::HashMap;

/// Records that are read at once.
const BATCH: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    pub event_id: EventId,
    pub at: Time,
    pub actor_ref: String,
    pub transition_id: String,
    pub from: String,
    pub to: String,
    pub actor_class: String,
    pub trigger: String,
    pub reason: Option<String>,
    /// How often the step had been reopened, this visit included.
    pub cycle: u32,
    pub correction: Option<Reopening>,
}

/// What a reopening names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reopening {
    pub prior_event_id: Option<EventId>,
    pub correction_reason: Option<String>,
    pub approval_id: Option<String>,
}

pub struct History {
    pub visits: Vec<Visit>,
    /// Records of the run were purged before visits were kept: what they said of the step is not known.
    pub is_purged: bool,
}

impl Engine {
    /// The history of one step, or task, of a run that the caller was shown.
    pub async fn step_history(&self, run: &RunView, seq: StepSeq) -> Result<History, Refusal> {
        let query = RecordQuery { instance_id: Some(run.row.instance_id), ..RecordQuery::default() };
        let mut page = Page { after: None, limit: BATCH, descending: false };
        let mut history = History { visits: vec![], is_purged: false };
        let mut kept: Option<HashMap<EventId, String>> = None;
        loop {
            let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
            for row in &rows {
                if let Some(payload) = row.record.payload() {
                    history.take(row, payload, seq);
                    continue;
                }
                if kept.is_none() {
                    let visits =
                        self.reader.visits(run.row.instance_id).await.map_err(|error| store_failure(&error))?;
                    kept = Some(visits.into_iter().collect());
                }
                if let Some(visits) = kept.as_ref().and_then(|kept| kept.get(&row.event_id)) {
                    history.take(row, visits.as_bytes(), seq);
                }
            }
            match rows.last() {
                Some(last) if rows.len() == BATCH => page.after = Some(last.event_id.0),
                _ => break,
            }
        }
        if kept.is_some() {
            let steps = self.read_run_steps(run, seq, 1).await?;
            let now = steps.first().map_or(StepCode::NotStarted, |step| step.state.state);
            history.is_purged = !history.is_whole(run.row.continues.is_some(), now);
        }
        Ok(history)
    }
}

impl History {
    /// Each visit begins where the one before it ended, and the last one is where the step stands.
    fn is_whole(&self, taken_over: bool, now: StepCode) -> bool {
        let first = self.visits.first().map_or(now.as_str(), |visit| &visit.from);
        let begins = taken_over || first == StepCode::NotStarted.as_str();
        let linked = self.visits.windows(2).all(|pair| pair[0].to == pair[1].from);
        begins && linked && self.visits.last().is_none_or(|last| last.to == now.as_str())
    }

    fn take(&mut self, row: &RecordRow, payload: &[u8], seq: StepSeq) {
        let Ok(payload) = serde_json::from_slice::<Value>(payload) else { return };
        let payload = &payload;
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let limit = seq as usize + 1;
        let moves = payload.get("transitions").and_then(Value::as_array).into_iter().flatten();
        for (_, made) in moves.flat_map(|made| places(made, limit)).filter(|(of, _)| *of == seq as usize) {
            let transition_id = text(made, "id").unwrap_or_default();
            let correction = payload.get("correction").filter(|_| matches!(transition_id.as_str(), "T8r" | "T12r"));
            let before = self.visits.last().map_or(0, |visit| visit.cycle);
            self.visits.push(Visit {
                event_id: row.event_id,
                at: row.recorded_at,
                actor_ref: row.actor_ref.clone(),
                from: text(made, "from").unwrap_or_default(),
                to: text(made, "to").unwrap_or_default(),
                actor_class: text(made, "actor_class").unwrap_or_default(),
                trigger: text(made, "trigger").unwrap_or_default(),
                reason: text(payload, "reason"),
                cycle: before + u32::from(correction.is_some()),
                correction: correction.map(|correction| Reopening {
                    prior_event_id: text(correction, "prior_event_id").and_then(|id| EventId::parse(&id)),
                    correction_reason: text(correction, "correction_reason"),
                    approval_id: text(payload, "approval_id"),
                }),
                transition_id,
            });
        }
        let of_step = payload.get("step_seq").and_then(Value::as_u64) == Some(u64::from(seq));
        if let Some(own) = payload.get("own_transition").filter(|_| of_step) {
            self.visits.push(Visit {
                event_id: row.event_id,
                at: row.recorded_at,
                actor_ref: row.actor_ref.clone(),
                transition_id: text(own, "id").unwrap_or_default(),
                from: text(own, "from").unwrap_or_default(),
                to: text(own, "to").unwrap_or_default(),
                actor_class: text(own, "actor_class").unwrap_or_default(),
                trigger: text(own, "trigger").unwrap_or_default(),
                reason: text(payload, "reason"),
                cycle: self.visits.last().map_or(0, |visit| visit.cycle),
                correction: None,
            });
        }
    }
}
