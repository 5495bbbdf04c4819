//! `receive_event`: an event from outside. The same id wakes once; one that finds nobody waiting is kept for the next
//! wait of its type.

use super::flow::Flow;
use super::{Action, Context, Event, KeptEvent, Run, permitted};
use crate::lifecycle::StepCode;
use crate::process::Process;
use crate::refusal::{Code, Refusal, require_ref};
use crate::registry::scopes;
use std::sync::Arc;

pub fn decide(
    target: Option<(&Process, &Run)>,
    event: &KeptEvent,
    seen: bool,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_ref("id", &event.id)?;
    require_ref("type", &event.event_type)?;
    let (shell, run) = match permitted(target, scopes::RUNS_CONTROL, ctx) {
        Err(refusal) if refusal.code == Code::PermissionDenied => permitted(target, scopes::TASKS_WORK, ctx)?,
        known => known?,
    };
    if seen || run.head.state.is_ended() {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.kept = Some(event.clone());
    let waiting = run.live.iter().copied().find(|seq| waits_for(run, *seq, &event.event_type));
    if let Some(seq) = waiting {
        flow.taken.push(event.id.clone());
        flow.woken(seq, &event.data)?;
        flow.advance()?;
    }
    Ok(flow.finish(Action::EventReceived, &actor_ref, None))
}

fn waits_for(run: &Run, seq: crate::plan::StepSeq, event_type: &Arc<str>) -> bool {
    run.cell(seq).is_some_and(|cell| {
        let waiting = cell.live.as_ref().and_then(|live| live.waiting.as_ref());
        cell.state == StepCode::Waiting
            && waiting.is_some_and(|waiting| waiting.event_type.as_ref() == Some(event_type))
    })
}
