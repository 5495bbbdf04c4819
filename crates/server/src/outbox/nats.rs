//! Publishes events to a JetStream (`spec/webhooks.md`, §6). A message is taken when the stream says that it has it; its id
//! is the event's, so that the stream recognises one that it is given again.
//!
//! While there is no connection, nothing is handed to the client: it would keep the message and send it at a time that
//! nobody knows.

use super::backoff::{Answer, is_final};
use super::message;
use crate::config::{Login, NatsTarget};
use anyhow::Context;
use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Request, header};
use countersign_engine::port::outbox::Delivery;
use serde::Deserialize;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The longest pause between two attempts to connect.
const RECONNECT: Duration = Duration::from_secs(2);

pub struct Stream {
    name: Arc<str>,
    target: NatsTarget,
    timeout: Duration,
    client: OnceCell<Client>,
    /// Why there is no connection.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Stream {
    /// Connects at the first message. What the credentials say is looked at now: a file that is none will never be one.
    pub fn new(name: &Arc<str>, target: &NatsTarget, timeout: Duration) -> anyhow::Result<Stream> {
        options(target)?;
        let (client, trouble) = (OnceCell::new(), Arc::default());
        Ok(Stream { name: name.clone(), target: target.clone(), timeout, client, trouble })
    }

    pub async fn publish(&self, delivery: &Delivery, body: String) -> Answer {
        match tokio::time::timeout(self.timeout, self.acknowledged(delivery, body)).await {
            Ok(answer) => answer,
            Err(_) => Answer::later(format!("no answer within {:?}", self.timeout)),
        }
    }

    async fn acknowledged(&self, delivery: &Delivery, body: String) -> Answer {
        let client = match self.client.get_or_try_init(|| self.connect()).await {
            Ok(client) => client,
            Err(error) => return Answer::later(format!("no connection to NATS: {error:#}")),
        };
        if client.connection_state() != State::Connected {
            let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
            return Answer::later(format!("no connection to NATS{trouble}"));
        }
        let subject = subject(&self.target.subject, &delivery.event_type);
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_ID, delivery.outbox_id.to_string());
        headers.insert("content-type", message::MEDIA_TYPE);
        let request = Request::new().headers(headers).payload(body.into()).timeout(Some(self.timeout));
        match client.send_request(subject.clone(), request).await {
            Ok(reply) => judge(&reply.payload),
            Err(error) => failed(&error, &subject),
        }
    }

    /// Once there is a connection, the client restores it by itself.
    async fn connect(&self) -> anyhow::Result<Client> {
        let (name, trouble) = (self.name.clone(), self.trouble.clone());
        let noticed = move |event: Event| {
            match &event {
                Event::Connected => tracing::info!(nats = %name, "connected"),
                _ => tracing::warn!(nats = %name, %event, "NATS"),
            }
            let told = match event {
                Event::Connected => None,
                event => Some(event.to_string()),
            };
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = told;
            std::future::ready(())
        };
        let options = options(&self.target)?
            .name("countersign")
            .event_callback(noticed)
            .connection_timeout(self.timeout)
            .reconnect_delay_callback(|attempts| {
                let doublings = u32::try_from(attempts.min(10)).unwrap_or(10);
                Duration::from_millis(50).saturating_mul(1 << doublings).min(RECONNECT)
            });
        Ok(options.connect(self.target.servers.as_slice()).await?)
    }
}

fn options(target: &NatsTarget) -> anyhow::Result<ConnectOptions> {
    let mut options = ConnectOptions::new().require_tls(target.is_encrypted());
    options = match &target.login {
        Login::Nobody => options,
        // What it says of a bad file is not passed on: it might quote it.
        Login::Credentials(text) => options
            .credentials(text.reveal_text())
            .ok()
            .context("credentials_file: these are no credentials of NATS")?,
        Login::Token(token) => options.token(token.reveal_text().to_owned()),
        Login::Password { user, password } => {
            options.user_and_password(user.clone(), password.reveal_text().to_owned())
        }
    };
    if let Some(file) = &target.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = &target.identity {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

/// The prefix, a dot, and the event's type, of which NATS must not read anything as a wildcard or an end.
fn subject(prefix: &str, event_type: &str) -> String {
    let safe = |c: char| if c.is_whitespace() || c.is_control() || c == '*' || c == '>' { '_' } else { c };
    let tokens = event_type.split('.').map(|token| match token {
        "" => "_".to_owned(),
        token => token.chars().map(safe).collect(),
    });
    std::iter::once(prefix.to_owned()).chain(tokens).collect::<Vec<_>>().join(".")
}

/// What a stream says of a message that it was given.
#[derive(Deserialize)]
struct Reply {
    stream: Option<String>,
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    /// To be read as a status of HTTP.
    code: u16,
    err_code: Option<u64>,
    description: Option<String>,
}

fn judge(reply: &[u8]) -> Answer {
    let Ok(Reply { stream, error }) = serde_json::from_slice(reply) else {
        return Answer::later("somebody answered, and no stream: does another service listen on this subject?");
    };
    match (stream, error) {
        (Some(_), None) => Answer::Taken,
        (_, Some(Refused { code, err_code, description })) => {
            let number = err_code.map(|number| format!(", {number}")).unwrap_or_default();
            let error = format!("the stream answered {code}{number}: {}", description.unwrap_or_default());
            if is_final(code) { Answer::Never(error) } else { Answer::later(error) }
        }
        (None, None) => Answer::later("somebody answered, and no stream: does another service listen on this subject?"),
    }
}

fn failed(error: &RequestError, subject: &str) -> Answer {
    let told = || error.source().map_or_else(|| error.to_string(), ToString::to_string);
    match error.kind() {
        // A server that has just begun says so too, before it has looked what streams it has.
        RequestErrorKind::NoResponders => Answer::later(format!("no stream takes the subject `{subject}`")),
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => Answer::Never(told()),
        RequestErrorKind::TimedOut | RequestErrorKind::Other => Answer::later(told()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, judge, subject};

    #[test]
    fn a_subject_is_one_whatever_the_type_is_called() {
        assert_eq!(subject("countersign", "order.paid"), "countersign.order.paid");
        assert_eq!(subject("a.b", "order .*.>..x\u{7}"), "a.b.order_._._._.x_");
    }

    #[test]
    fn only_a_stream_can_take_a_message() {
        assert_eq!(judge(br#"{"stream":"S","seq":7}"#), Answer::Taken);
        assert_eq!(judge(br#"{"stream":"S","seq":7,"duplicate":true}"#), Answer::Taken);
        for reply in [&b"thank you"[..], b"{}", b"", br#"{"ok":true}"#] {
            assert!(matches!(judge(reply), Answer::Later { .. }));
        }
        let large = br#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}"#;
        assert!(matches!(judge(large), Answer::Never(error) if error.contains("message size exceeds")));
        let full = br#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}"#;
        assert!(matches!(judge(full), Answer::Later { error, .. } if error.contains("maximum messages")));
    }
}
