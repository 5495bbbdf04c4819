//! Sends notices by SMTP. The id of a mail is the event's, so that a mailbox recognises one that it is given again.

use super::backoff::Answer;
use super::notice::Notice;
use crate::config::{Encryption, MailTarget};
use anyhow::Context;
use countersign_engine::port::outbox::Delivery;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::{AsyncSmtpTransport, Error as SmtpError};
use lettre::{AsyncTransport as _, Tokio1Executor};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    target: MailTarget,
    timeout: Duration,
}

impl Mailer {
    /// Connects at each mail. What the certificate file says is looked at now.
    pub fn new(target: &MailTarget, timeout: Duration) -> anyhow::Result<Mailer> {
        let tls = || -> anyhow::Result<TlsParameters> {
            let mut parameters = TlsParameters::builder(target.host.clone());
            if let Some(file) = &target.ca_file {
                let pem = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
                parameters = parameters.add_root_certificate(Certificate::from_pem(&pem)?);
            }
            Ok(parameters.build_rustls()?)
        };
        let tls = match target.encryption {
            Encryption::Tls => Tls::Wrapper(tls()?),
            Encryption::StartTls => Tls::Required(tls()?),
            Encryption::None => Tls::None,
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&target.host)
            .port(target.port)
            .tls(tls)
            .timeout(Some(timeout));
        if let Some((user, password)) = &target.login {
            builder = builder.credentials(Credentials::new(user.clone(), password.reveal_text().to_owned()));
        }
        Ok(Mailer { transport: builder.build(), target: target.clone(), timeout })
    }

    pub async fn send(&self, delivery: &Delivery, notice: &Notice, origin: &str) -> Answer {
        let to = recipients(&self.target, notice);
        if to.is_empty() {
            // Nobody whom it concerns has an address here.
            return Answer::Taken;
        }
        let mail = match mail(&self.target.from, to, delivery, notice, origin) {
            Ok(mail) => mail,
            Err(error) => return Answer::Never(format!("no mail can be made of it: {error:#}")),
        };
        match tokio::time::timeout(self.timeout, self.transport.send(mail)).await {
            Ok(Ok(_)) => Answer::Taken,
            Ok(Err(error)) => failed(&error),
            Err(_) => Answer::later(format!("no answer within {:?}", self.timeout)),
        }
    }
}

/// Each address once.
fn recipients(target: &MailTarget, notice: &Notice) -> Vec<Mailbox> {
    let concerned = notice.people.iter().filter_map(|actor| target.people.get(actor));
    let mut to: Vec<Mailbox> = Vec::new();
    for mailbox in concerned.chain(&target.to) {
        if !to.iter().any(|known| known.email == mailbox.email) {
            to.push(mailbox.clone());
        }
    }
    to
}

fn mail(
    from: &Mailbox,
    to: Vec<Mailbox>,
    delivery: &Delivery,
    notice: &Notice,
    origin: &str,
) -> anyhow::Result<Message> {
    let host = origin.split("://").nth(1).and_then(|rest| rest.split(['/', ':']).next()).unwrap_or("countersign");
    let at = UNIX_EPOCH + Duration::from_micros(u64::try_from(delivery.created_at.0).unwrap_or_default());
    // Nobody's out-of-office note should answer (RFC 3834).
    let automatic = HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned());
    let mut builder = Message::builder()
        .from(from.clone())
        .subject(notice.title.clone())
        .date(at.min(SystemTime::now()))
        .message_id(Some(format!("<{}@{host}>", delivery.outbox_id)))
        .raw_header(automatic)
        .header(ContentType::TEXT_PLAIN);
    for mailbox in to {
        builder = builder.to(mailbox);
    }
    Ok(builder.body(format!("{}\r\n\r\n{}\r\n", notice.text, notice.link))?)
}

/// What a server refuses for good is not asked for again; a server that is away is.
fn failed(error: &SmtpError) -> Answer {
    match error.status() {
        Some(code) if error.is_permanent() => Answer::Never(format!("the mail server refused it: {code}")),
        Some(code) => Answer::later(format!("the mail server does not take it now: {code}")),
        None => Answer::later(format!("the mail server cannot be used: {}", shown(error))),
    }
}

/// The whole chain: the outer error says little.
fn shown(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
