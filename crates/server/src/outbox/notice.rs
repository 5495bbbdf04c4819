//! What people read: that a gate waits for them, that a step is overdue, that a run stopped. Nothing but names, ids and a link: no
//! input, no output, no error and no reason, for a mail goes where no permission reaches.

use super::message;
use crate::api::format_time;
use crate::config::Occasion;
use countersign_engine::port::outbox::Delivery;
use serde_json::{Value, json};

const MOST_CHARS: usize = 200;

/// A message about one event, the same however often it is made.
#[derive(Debug, PartialEq, Eq)]
pub struct Notice {
    pub occasion: Occasion,
    pub title: String,
    pub text: String,
    pub link: String,
    /// The actors whom it concerns.
    pub people: Vec<String>,
}

impl Notice {
    /// People know of it already: the step was overdue before it was claimed, and still is.
    pub fn is_repeated(delivery: &Delivery) -> bool {
        serde_json::from_str::<Value>(&delivery.data).is_ok_and(|data| data["repeated"] == true)
    }

    /// `None`: no notification is about this event.
    pub fn of(delivery: &Delivery, origin: &str) -> Option<Notice> {
        let occasion = Occasion::of(&delivery.event_type)?;
        let data: Value = serde_json::from_str(&delivery.data).ok()?;
        let text = |name: &str| data[name].as_str().map(visible);
        let whose = match text("definition") {
            Some(definition) => format!(" of {definition}"),
            None => String::new(),
        };
        let run = format!("{origin}/runs/{}", delivery.instance_id);
        let step = text("step").unwrap_or_default();
        let notice = match occasion {
            Occasion::GateWaits => {
                let (action, guard) = (text("action").unwrap_or_default(), text("guard").unwrap_or_default());
                let people = names(&data["approver_refs"]);
                let link = match text("step_id") {
                    Some(step_id) => format!("{origin}/gate/{step_id}"),
                    None => format!("{origin}/inbox"),
                };
                Notice {
                    occasion,
                    title: format!("A gate waits for you: {action}{whose}"),
                    text: format!("The gate \"{guard}\" for \"{action}\"{whose} waits for {}.", people.join(", ")),
                    link,
                    people,
                }
            }
            Occasion::Overdue => {
                let pic = text("pic");
                let charge = pic.as_ref().map_or_else(String::new, |pic| format!(" In charge of it is {pic}."));
                Notice {
                    occasion,
                    title: format!("Overdue: {step}"),
                    text: format!("The step \"{step}\" of run {} is overdue.{charge}", delivery.instance_id),
                    link: run,
                    people: pic.into_iter().collect(),
                }
            }
            Occasion::Stopped => Notice {
                occasion,
                title: format!("Stopped: run {}", delivery.instance_id),
                text: format!(
                    "Run {} stopped ({}). It goes on when an operator resumes it.",
                    delivery.instance_id,
                    text("outcome").unwrap_or_else(|| "no outcome".to_owned())
                ),
                link: run,
                people: vec![],
            },
        };
        Some(notice)
    }

    /// What a program receives: a CloudEvent like those of webhooks, with the text and the link as its data.
    pub fn body(&self, delivery: &Delivery) -> String {
        json!({
            "specversion": "1.0", "id": delivery.outbox_id.to_string(), "source": message::source(delivery),
            "type": format!("notify.{}", self.occasion.as_str()), "time": format_time(delivery.created_at),
            "datacontenttype": "application/json",
            "data": {"title": self.title, "text": self.text, "link": self.link, "people": self.people},
        })
        .to_string()
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(visible).collect()
}

/// One line of bounded length, whatever a name holds.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::{InstanceId, Time};
    use uuid::Uuid;

    fn delivery(event_type: &str, data: Value) -> Delivery {
        Delivery {
            outbox_id: Uuid::from_u128(7),
            webhook: "mail".into(),
            instance_id: InstanceId(Uuid::from_u128(9)),
            event_type: event_type.to_owned(),
            step: None,
            created_at: Time(1_700_000_000_000_000),
            data: data.to_string(),
            attempt: 1,
            replay: None,
        }
    }

    #[test]
    fn a_notice_names_whom_it_concerns_and_where_to_go() {
        let data = json!({"action": "release", "guard": "qp", "definition": "batch@1", "approver_refs": ["ann"], "step_id": "s-1"});
        let notice = Notice::of(&delivery("gate.opened", data), "https://c.example").expect("a notice");
        assert_eq!((&*notice.link, &*notice.people), ("https://c.example/gate/s-1", &["ann".to_owned()][..]));
        assert_eq!(notice.title, "A gate waits for you: release of batch@1");
        let data = json!({"action": "cut", "guard": "b", "approver_refs": ["ann", "ben"], "chain_id": "c-1"});
        let notice = Notice::of(&delivery("gate.opened", data), "https://c.example").expect("a notice");
        assert_eq!((&*notice.link, notice.people.len()), ("https://c.example/inbox", 2));
        let notice = Notice::of(&delivery("step.overdue", json!({"step": "A", "pic": "kim"})), "o").expect("a notice");
        assert_eq!(
            (&*notice.link, &*notice.people),
            ("o/runs/00000000-0000-0000-0000-000000000009", &["kim".to_owned()][..])
        );
        assert!(Notice::of(&delivery("order.paid", json!({})), "o").is_none());
    }

    #[test]
    fn a_notice_is_one_line_and_tells_nothing_that_only_readers_may_know() {
        let data = json!({"step": "A\r\nBcc: x@y.z", "last_error": "secret", "input": "secret", "reason": "secret", "outcome": "drift"});
        for event_type in ["step.overdue", "task.overdue", "run.stopped"] {
            let event = delivery(event_type, data.clone());
            let notice = Notice::of(&event, "o").expect("a notice");
            assert!(!notice.title.contains(['\r', '\n']) && !notice.text.contains(['\r', '\n']), "{notice:?}");
            let body = notice.body(&event);
            assert!(!body.contains("secret") && !format!("{notice:?}").contains("secret"), "{body}");
            assert_eq!(body, notice.body(&event), "the same in every attempt");
        }
    }
}
