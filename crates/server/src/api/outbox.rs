//! The outbox: events for the world outside, and what became of them on their way to webhooks.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::outbox::{DeliveryState, DeliveryView, OutboxView};

pub struct OutboxList;

impl List for OutboxList {
    const TAG: u8 = b'o';
    const AXES: &'static [Axis] = &[Axis::Word("state", &["pending", "delivered", "dead"])];
}

/// Events for the world outside, in the order in which they were sent, each with its deliveries. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/outbox", tag = "outbox", params(Params<OutboxList>),
    responses((status = 200, body = wire::Page<wire::OutboxEvent>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<OutboxList>,
) -> Read<wire::Page<wire::OutboxEvent>> {
    let state = params.text("state").and_then(|state| DeliveryState::parse(&state));
    let events = app.engine()?.read_outbox(&caller.actor_ref, state, &params.page()?).await?;
    params.answer(events, |event| event.outbox_id, |event| Ok(to_wire(event))).map(Json)
}

fn state_to_wire(state: DeliveryState) -> wire::OutboxState {
    match state {
        DeliveryState::Pending => wire::OutboxState::Pending,
        DeliveryState::Delivered => wire::OutboxState::Delivered,
        DeliveryState::Dead => wire::OutboxState::Dead,
    }
}

fn to_wire(event: OutboxView) -> wire::OutboxEvent {
    let (replayed_by, replayed_at) = event.replayed.unzip();
    wire::OutboxEvent {
        outbox_id: event.outbox_id.to_string(),
        run_id: event.instance_id.to_string(),
        event_type: event.event_type,
        step: event.step,
        created_at: time::format(event.created_at),
        state: state_to_wire(event.state),
        replayed_by,
        replayed_at: replayed_at.map(time::format),
        deliveries: event.deliveries.into_iter().map(delivery_to_wire).collect(),
    }
}

fn delivery_to_wire(delivery: DeliveryView) -> wire::OutboxDelivery {
    wire::OutboxDelivery {
        webhook: delivery.webhook,
        state: state_to_wire(delivery.state),
        attempts: delivery.attempts,
        next_attempt_at: delivery.next_attempt_at.map(time::format),
        settled_at: delivery.settled_at.map(time::format),
        last_error: delivery.last_error,
    }
}
