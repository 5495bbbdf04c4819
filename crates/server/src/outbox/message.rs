//! What a webhook receives: a CloudEvent 1.0 in structured mode, and a signature over it (`spec/webhooks.md`).

use crate::api::format_time;
use crate::config::Secret;
use countersign_engine::port::outbox::Delivery;
use countersign_kernel::lifecycle;
use countersign_kernel::text::hex;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

pub const MEDIA_TYPE: &str = "application/cloudevents+json";
pub const SIGNATURE: &str = "countersign-signature";

/// The event, always in the same bytes, however often it is sent.
pub fn body(delivery: &Delivery) -> String {
    let text = |text: &str| Value::String(text.to_owned());
    let mut event = Map::new();
    event.insert("specversion".to_owned(), text("1.0"));
    event.insert("id".to_owned(), text(&delivery.outbox_id.to_string()));
    event.insert("source".to_owned(), text(&source(delivery)));
    event.insert("type".to_owned(), text(&delivery.event_type));
    if let Some(step) = &delivery.step {
        event.insert("subject".to_owned(), text(step));
    }
    event.insert("time".to_owned(), text(&format_time(delivery.created_at)));
    event.insert("datacontenttype".to_owned(), text("application/json"));
    let mut json = Value::Object(event).to_string();
    // The data as they were committed: numbers and the order of members stay as they are.
    json.pop();
    json.push_str(",\"data\":");
    json.push_str(&delivery.data);
    json.push('}');
    json
}

/// What sent it: a run, or a process. What gates tell names the one whose gate it is.
pub fn source(delivery: &Delivery) -> String {
    let of_process = ["process.started", "gate.opened", "gate.decided", "transition.fired"];
    let names_process = || {
        let data: Option<Map<String, Value>> = serde_json::from_str(&delivery.data).ok();
        data.is_some_and(|data| data.contains_key("instance_id"))
    };
    // A run's steps send what the engine does not emit; what nobody's step sends is an effect of a transition.
    let is_effect = delivery.step.is_none() && lifecycle::event_type(&delivery.event_type).is_none();
    let is_process = is_effect || of_process.contains(&delivery.event_type.as_str()) && names_process();
    let kind = if is_process { "processes" } else { "runs" };
    format!("/{kind}/{}", delivery.instance_id)
}

/// `t=<unix seconds>,v1=<HMAC-SHA-256 of "<t>.<body>", hex>`
pub fn signature(secret: &Secret, unix_seconds: u64, body: &str) -> String {
    // Keys of any length are good.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.reveal()) else { return String::new() };
    mac.update(format!("{unix_seconds}.").as_bytes());
    mac.update(body.as_bytes());
    format!("t={unix_seconds},v1={}", hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::{InstanceId, Time};
    use uuid::Uuid;

    fn delivery() -> Delivery {
        Delivery {
            outbox_id: Uuid::from_u128(1),
            webhook: "w".into(),
            instance_id: InstanceId(Uuid::from_u128(2)),
            event_type: "order.\"paid\"".to_owned(),
            step: Some("PAYMENT".to_owned()),
            created_at: Time(1_700_000_000_123_456),
            data: r#"{"z":1,"a":10.50}"#.to_owned(),
            attempt: 1,
            replay: None,
        }
    }

    #[test]
    fn an_event_is_a_cloud_event() {
        let expected = concat!(
            r#"{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000001","#,
            r#""source":"/runs/00000000-0000-0000-0000-000000000002","type":"order.\"paid\"","subject":"PAYMENT","#,
            r#""time":"2023-11-14T22:13:20.123456Z","datacontenttype":"application/json","data":{"z":1,"a":10.50}}"#
        );
        assert_eq!(body(&delivery()), expected);
        let without = Delivery { step: None, ..delivery() };
        let parsed: Value = serde_json::from_str(&body(&without)).expect("JSON");
        assert!(parsed.get("subject").is_none());
    }

    #[test]
    fn a_signature_is_what_others_compute() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 'a secret'
        let expected = "t=1700000000,v1=b4c5d5c08194254de18b80695176335ee482a5907fb5e68f7bd993b1b00b018d";
        let signed = signature(&Secret::new("a secret"), 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signed, expected);
    }
}
