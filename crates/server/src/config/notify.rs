//! `[[notify]]`: a mail to people, or a webhook to a program, says that a gate waits, that a step is overdue, that a run stopped
//! (`docs/guides/notifications.md`).

use super::sink::{self, Secret, Sink, Way, default_attempts, default_timeout};
use super::webhooks::Address;
use super::{ConsoleSection, Duration};
use anyhow::{Context, bail, ensure};
use countersign_executor::http::Destination;
use lettre::message::Mailbox;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const MAX_ADDRESSES: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifySection {
    /// Under which its deliveries are kept.
    pub name: String,
    /// The events to send; without it, all of them.
    #[serde(default = "Occasion::all")]
    pub on: Vec<Occasion>,
    /// `smtps://host:465`, `smtp://host:587` (STARTTLS), or `smtp+plain://host:25`.
    pub smtp: Option<String>,
    pub from: Option<String>,
    /// Who gets every mail.
    #[serde(default)]
    pub to: Vec<String>,
    /// The address of an actor, who gets what concerns them.
    #[serde(default)]
    pub people: BTreeMap<String, String>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub password_file: Option<PathBuf>,
    /// Besides what the system trusts.
    pub tls_ca_file: Option<PathBuf>,
    pub url: Option<Address>,
    pub secret: Option<Secret>,
    pub secret_file: Option<PathBuf>,
    /// Whether `url` may be a loopback, link-local or private address; without it, as `executors.http` says.
    pub allow_private: Option<bool>,
    #[serde(default = "default_attempts")]
    pub max_attempts: u64,
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
}

/// What notifications are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    GateWaits,
    Overdue,
    Stopped,
}

impl Occasion {
    fn all() -> Vec<Occasion> {
        vec![Occasion::GateWaits, Occasion::Overdue, Occasion::Stopped]
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Occasion::GateWaits => "gate-waits",
            Occasion::Overdue => "overdue",
            Occasion::Stopped => "stopped",
        }
    }

    /// The events of the engine that it is.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Occasion::GateWaits => &["gate.opened"],
            Occasion::Overdue => &["step.overdue", "task.overdue"],
            Occasion::Stopped => &["run.stopped"],
        }
    }

    pub fn of(event_type: &str) -> Option<Occasion> {
        Occasion::all().into_iter().find(|occasion| occasion.types().contains(&event_type))
    }
}

/// How notifications are sent, and where their links lead.
#[derive(Clone, Debug)]
pub struct NotifyTarget {
    /// The console's origin.
    pub origin: Arc<str>,
    pub by: NotifyWay,
}

#[derive(Clone, Debug)]
pub enum NotifyWay {
    Mail(Box<MailTarget>),
    Webhook { to: Destination, secret: Secret },
}

/// A mail server, and who writes to whom.
#[derive(Clone, Debug)]
pub struct MailTarget {
    pub host: String,
    pub port: u16,
    pub encryption: Encryption,
    pub login: Option<(String, Secret)>,
    pub ca_file: Option<PathBuf>,
    pub from: Mailbox,
    pub to: Vec<Mailbox>,
    pub people: BTreeMap<String, Mailbox>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// From the first byte.
    Tls,
    /// After STARTTLS, and never without it.
    StartTls,
    None,
}

pub(super) fn resolved(section: &NotifySection, console: &ConsoleSection, allow_private: bool) -> anyhow::Result<Sink> {
    let timeout = sink::timeout(section.timeout)?;
    let origin = console.origin.as_deref().context("a notification has a link: set `origin` in [console]")?;
    ensure!(!section.on.is_empty(), "on: name at least one of gate-waits, overdue and stopped, or leave the key out");
    let by = match (&section.smtp, &section.url) {
        (Some(smtp), None) => NotifyWay::Mail(Box::new(mail(section, smtp)?)),
        (None, Some(url)) => webhook(section, url, allow_private, timeout)?,
        _ => bail!("give an `smtp` or a `url`: one of them"),
    };
    let types: Vec<String> = section.on.iter().flat_map(|on| on.types()).map(|name| (*name).to_owned()).collect();
    let target = NotifyTarget { origin: origin.into(), by };
    Sink::new(section.name.clone(), &types, section.max_attempts, timeout, Way::Notify(Box::new(target)))
}

fn webhook(
    section: &NotifySection,
    url: &Address,
    allow_private: bool,
    timeout: std::time::Duration,
) -> anyhow::Result<NotifyWay> {
    let of_mail = section.from.is_some()
        || !section.to.is_empty()
        || !section.people.is_empty()
        || section.user.is_some()
        || section.password.is_some()
        || section.password_file.is_some()
        || section.tls_ca_file.is_some();
    ensure!(!of_mail, "`from`, `to`, `people`, `user`, `password` and `tls_ca_file` belong to `smtp`, not to `url`");
    let allow_private = section.allow_private.unwrap_or(allow_private);
    let to = Destination::new(&url.0, timeout, allow_private).map_err(|why| anyhow::anyhow!("url: {why}"))?;
    let secret = sink::secret(("secret", &section.secret), ("secret_file", &section.secret_file))?;
    let secret = secret.context("a `secret` or a `secret_file` is missing: what is sent is signed with it")?;
    Ok(NotifyWay::Webhook { to, secret })
}

fn mail(section: &NotifySection, smtp: &str) -> anyhow::Result<MailTarget> {
    let of_url = section.secret.is_some() || section.secret_file.is_some() || section.allow_private.is_some();
    ensure!(!of_url, "`secret` and `allow_private` belong to `url`, not to `smtp`");
    let (encryption, host, port) = server(smtp)?;
    let password = sink::secret(("password", &section.password), ("password_file", &section.password_file))?;
    let login = match (section.user.clone(), password) {
        (None, None) => None,
        (Some(user), Some(password)) => Some((user, password)),
        _ => bail!("`user` and `password` (or `password_file`) belong together"),
    };
    ensure!(
        encryption != Encryption::None || login.is_none(),
        "smtp: a password goes nowhere without encryption; use smtps:// or smtp://"
    );
    if let Some(file) = &section.tls_ca_file {
        ensure!(encryption != Encryption::None, "tls_ca_file: smtp+plain:// has no use for it");
        ensure!(std::fs::File::open(file).is_ok(), "{} cannot be read", file.display());
    }
    let from = section.from.as_deref().context("`from` is missing: the address that mails come from")?;
    let people = section.people.iter().map(|(actor, text)| Ok((actor.clone(), mailbox("people", text)?)));
    let target = MailTarget {
        host,
        port,
        encryption,
        login,
        ca_file: section.tls_ca_file.clone(),
        from: mailbox("from", from)?,
        to: section.to.iter().map(|text| mailbox("to", text)).collect::<anyhow::Result<_>>()?,
        people: people.collect::<anyhow::Result<_>>()?,
    };
    ensure!(!target.to.is_empty() || !target.people.is_empty(), "`to` or `people` has to name somebody");
    ensure!(target.to.len() <= MAX_ADDRESSES, "to: at most {MAX_ADDRESSES} addresses");
    Ok(target)
}

fn mailbox(key: &str, text: &str) -> anyhow::Result<Mailbox> {
    text.parse().map_err(|error| anyhow::anyhow!("{key}: {text:?} is no address: {error}"))
}

/// Logs show the address, so it is checked before any message quotes it.
fn server(smtp: &str) -> anyhow::Result<(Encryption, String, u16)> {
    const FORMS: &str = "smtp: write it like smtps://host:465, smtp://host:587 (STARTTLS), or smtp+plain://host:25";
    let (scheme, rest) = smtp.split_once("://").context(FORMS)?;
    let (encryption, port) = match scheme {
        "smtps" => (Encryption::Tls, 465),
        "smtp" => (Encryption::StartTls, 587),
        "smtp+plain" => (Encryption::None, 25),
        _ => bail!(FORMS),
    };
    ensure!(!rest.contains('@'), "smtp: credentials do not belong into an address; use `user` and `password_file`");
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, digits)) => (host, digits.parse().ok().context(FORMS)?),
        None => (rest, port),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    ensure!(!host.is_empty() && host.chars().all(fits), FORMS);
    Ok((encryption, host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const HIDDEN: &str = "hunter2hunter2";
    const CONSOLE: &str = "[console]\norigin = \"https://console.example\"\n";
    const MAIL: &str = "name = \"m\"\nsmtp = \"smtps://mail.example\"\nfrom = \"Countersign <c@example.org>\"\n";

    fn load(toml: &str) -> anyhow::Result<Config> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, toml)?;
        Config::from_sources(Some(&file), vec![])
    }

    #[test]
    fn mail_and_webhooks_are_told_apart() {
        let config = load(&format!(
            "{CONSOLE}[[notify]]\n{MAIL}to = [\"ops@example.org\"]\npeople = {{qp = \"QP <qp@example.org>\"}}\nuser = \"u\"\n\
             password = \"{HIDDEN}\"\n[[notify]]\nname = \"w\"\nurl = \"https://example.org/in?key={HIDDEN}\"\n\
             secret = \"{HIDDEN}\"\non = [\"overdue\"]\nmax_attempts = 3"
        ))
        .expect("a configuration");
        let sinks = config.sinks().expect("sinks");
        let (Way::Notify(first), Way::Notify(second)) = (&sinks[0].way, &sinks[1].way) else { panic!("{sinks:?}") };
        let NotifyWay::Mail(mail) = &first.by else { panic!("{first:?}") };
        assert_eq!((&*mail.host, mail.port, mail.encryption), ("mail.example", 465, Encryption::Tls));
        assert!(matches!(second.by, NotifyWay::Webhook { .. }) && sinks[1].max_attempts == 3);
        for event_type in ["gate.opened", "step.overdue", "task.overdue", "run.stopped"] {
            assert!(sinks[0].wants(event_type), "{event_type}");
            assert_eq!(sinks[1].wants(event_type), event_type.ends_with("overdue"), "{event_type}");
        }
        assert!(!sinks[0].wants("order.paid") && !sinks[0].wants("gate.decided"));
        for shown in [format!("{config:?}"), format!("{sinks:?}")] {
            assert!(!shown.contains(HIDDEN), "{shown}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_no_secret_is_told() {
        let to = format!("{MAIL}to = [\"ops@example.org\"]\n");
        let plain = to.replace("smtps://mail.example", "smtp+plain://mail.example");
        for (keys, told) in [
            (MAIL.to_owned(), "to"),
            ("name = \"m\"".to_owned(), "one of them"),
            (format!("{to}url = \"https://example.org/\""), "one of them"),
            (to.replace("smtps://", "http://"), "smtps://"),
            (to.replace("mail.example", &format!("u:{HIDDEN}@mail.example")), "credentials do not belong"),
            (to.replace("mail.example", "mail.example:x"), "smtps://"),
            (to.replace("ops@", "ops at "), "no address"),
            (to.replace("from = ", "to_nobody = "), "known here"),
            (format!("{to}user = \"u\""), "belong together"),
            (format!("{plain}user = \"u\"\npassword = \"{HIDDEN}\""), "without encryption"),
            (format!("{plain}tls_ca_file = \"/no/such/file\""), "no use"),
            (format!("{to}tls_ca_file = \"/no/such/file\""), "/no/such/file"),
            (format!("{to}secret = \"{HIDDEN}\""), "belong to `url`"),
            (format!("{to}on = []"), "on:"),
            (format!("{to}on = [\"started\"]"), "started"),
            (
                format!("name = \"w\"\nurl = \"https://example.org/\"\nsecret = \"{HIDDEN}\"\nfrom = \"a@b.c\""),
                "belong to `smtp`",
            ),
            ("name = \"w\"\nurl = \"https://example.org/\"".to_owned(), "secret_file"),
            (format!("name = \"w\"\nurl = \"ftp://example.org/\"\nsecret = \"{HIDDEN}\""), "http://"),
            (format!("{to}[[notify]]\n{to}"), "is called"),
        ] {
            let answer = format!("{:#}", load(&format!("{CONSOLE}[[notify]]\n{keys}")).expect_err(&keys));
            assert!(answer.contains(told), "{keys}: {answer}");
            assert!(!answer.contains(HIDDEN), "{answer}");
        }
        let answer = format!("{:#}", load(&format!("[[notify]]\n{to}")).expect_err("without an origin"));
        assert!(answer.contains("origin"), "{answer}");
    }
}
