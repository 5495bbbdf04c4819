//! Where events for the world outside are sent, whichever way, and the secrets that this takes. A secret is shown
//! nowhere: not in an error, not in a log, not where a configuration is printed.

use super::nats::NatsTarget;
use super::notify::NotifyTarget;
use super::{Config, Duration, nats, notify, webhooks};
use anyhow::{Context, bail, ensure};
use countersign_executor::http::Destination;
use countersign_kernel::run::ESCALATED;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

const MAX_NAME_CHARS: usize = 200;
const MAX_TIMEOUT_US: i64 = 300_000_000;

pub(super) fn every_type() -> Vec<String> {
    vec!["*".to_owned()]
}

pub(super) fn default_attempts() -> u64 {
    12
}

pub(super) fn default_timeout() -> Duration {
    Duration { us: 10_000_000 }
}

/// Somewhere that events are sent to, as it is used.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Under which its deliveries are kept.
    pub name: Arc<str>,
    pub types: Vec<String>,
    pub max_attempts: u64,
    pub timeout: std::time::Duration,
    pub way: Way,
}

#[derive(Clone, Debug)]
pub enum Way {
    Webhook { to: Destination, secret: Secret },
    Nats(Box<NatsTarget>),
    Notify(Box<NotifyTarget>),
}

impl Sink {
    pub(super) fn new(
        name: String,
        types: &[String],
        max_attempts: u64,
        timeout: std::time::Duration,
        way: Way,
    ) -> anyhow::Result<Sink> {
        ensure!(max_attempts > 0, "max_attempts must be greater than zero");
        ensure!(
            !name.trim().is_empty() && name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control),
            "name: it has 1 to {MAX_NAME_CHARS} visible characters"
        );
        for pattern in types {
            let stars = pattern.matches('*').count();
            ensure!(
                !pattern.trim().is_empty() && (stars == 0 || stars == 1 && pattern.ends_with('*')),
                "types: {pattern:?} is neither a type nor the beginning of one with `*` behind it"
            );
        }
        ensure!(!types.is_empty(), "types: name at least one, or leave the key out to get all");
        Ok(Sink { name: name.into(), types: types.to_vec(), max_attempts, timeout, way })
    }

    /// Whether it wants events of this type. `*` is everything that steps send, and what is escalated; what the engine emits
    /// with every transition has to be asked for by name (`step.*`, `run.failed`), for it is a lot.
    pub fn wants(&self, event_type: &str) -> bool {
        let emitted = event_type != ESCALATED && countersign_kernel::lifecycle::event_type(event_type).is_some();
        self.types.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some("") => !emitted,
            Some(prefix) => event_type.starts_with(prefix),
            None => event_type == pattern,
        })
    }
}

/// Checks them all and fetches their secrets.
pub(super) fn resolve(config: &Config) -> anyhow::Result<Vec<Sink>> {
    let allow_private = config.executors.http.allow_private;
    let webhooks = config.webhooks.iter().enumerate().map(|(i, section)| {
        let key = format!("webhooks[{i}]");
        webhooks::resolved(section, allow_private).map(|sink| (key.clone(), sink)).context(key)
    });
    let nats = config.nats.iter().enumerate().map(|(i, section)| {
        let key = format!("nats[{i}]");
        nats::resolved(section).map(|sink| (key.clone(), sink)).context(key)
    });
    let notify = config.notify.iter().enumerate().map(|(i, section)| {
        let key = format!("notify[{i}]");
        notify::resolved(section, &config.console, allow_private).map(|sink| (key.clone(), sink)).context(key)
    });
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for sink in webhooks.chain(nats).chain(notify) {
        let (key, sink) = sink?;
        ensure!(
            names.insert(sink.name.clone()),
            "{key}: another one is called {:?} too; give one of them a `name` of its own",
            sink.name
        );
        all.push(sink);
    }
    Ok(all)
}

pub(super) fn timeout(given: Duration) -> anyhow::Result<std::time::Duration> {
    ensure!((1..=MAX_TIMEOUT_US).contains(&given.us), "timeout: it must be greater than zero and at most 5m");
    Ok(std::time::Duration::from_micros(given.us.unsigned_abs()))
}

/// A secret from the configuration itself, or from a file that it names.
pub(super) fn secret(
    (key, given): (&str, &Option<Secret>),
    (file_key, file): (&str, &Option<PathBuf>),
) -> anyhow::Result<Option<Secret>> {
    let secret = match (given, file) {
        (Some(secret), None) => secret.clone(),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("{file_key}: {} cannot be read", file.display()))?;
            Secret::new(text.trim_end_matches(['\r', '\n']))
        }
        (Some(_), Some(_)) => bail!("give a `{key}` or a `{file_key}`, not both"),
        (None, None) => return Ok(None),
    };
    ensure!(!secret.reveal().trim_ascii().is_empty(), "the {key} is blank");
    Ok(Some(secret))
}

/// A text that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub fn reveal_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

/// Takes texts. Of anything else it says that it is none, and not what it is.
struct Text;

const NO_TEXT: &str = "a secret is a text in quotation marks";

impl Visitor<'_> for Text {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NO_TEXT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret::new(text))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Secret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom(NO_TEXT))
    }
}

/// A parser's message without the line that it quotes, where that may hold a secret.
pub(super) fn unrevealing(told: &str, file: &str) -> String {
    let may_hold = |text: &str| ["secret", "password", "token"].iter().any(|word| text.contains(word));
    if !may_hold(told) && !file.contains("[secrets") {
        return told.to_owned();
    }
    let quotes = |line: &&str| !line.contains('|');
    let kept: Vec<&str> = told.lines().filter(quotes).collect();
    format!("{} (the line is not shown: it may hold a secret)", kept.join("; "))
}
