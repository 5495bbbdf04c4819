//! `[[webhooks]]`: where events for the world outside are sent, and the secrets with which they are signed. A secret is
//! shown nowhere: not in an error, not in a log, not where a configuration is printed.

use super::Duration;
use anyhow::{Context, bail, ensure};
use countersign_executor::http::Destination;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

const MAX_NAME_CHARS: usize = 200;
const MAX_TIMEOUT_US: i64 = 300_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSection {
    /// Under which its deliveries are kept; without it, the address without its query.
    pub name: Option<String>,
    pub url: Address,
    /// Which events: `order.paid`, `order.*`, `*`.
    #[serde(default = "every_type")]
    pub types: Vec<String>,
    pub secret: Option<Secret>,
    /// A file that holds it instead.
    pub secret_file: Option<PathBuf>,
    #[serde(default = "default_attempts")]
    pub max_attempts: u64,
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// Whether it may be a loopback, link-local or private address; without it, as `executors.http` says.
    pub allow_private: Option<bool>,
}

fn every_type() -> Vec<String> {
    vec!["*".to_owned()]
}

fn default_attempts() -> u64 {
    12
}

fn default_timeout() -> Duration {
    Duration { us: 10_000_000 }
}

/// The address of a webhook. Its query may be somebody's way to authorise us.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Address(pub String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.split(['?', '#']).next().unwrap_or_default())
    }
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

/// A webhook as it is used.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub name: Arc<str>,
    pub to: Destination,
    pub types: Vec<String>,
    pub secret: Secret,
    pub max_attempts: u64,
}

impl Webhook {
    /// Whether it wants events of this type. `*` is everything that steps send; what the engine emits with every
    /// transition has to be asked for by name (`step.*`, `run.failed`), for it is a lot.
    pub fn wants(&self, event_type: &str) -> bool {
        let emitted = countersign_kernel::lifecycle::event_type(event_type).is_some();
        self.types.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some("") => !emitted,
            Some(prefix) => event_type.starts_with(prefix),
            None => event_type == pattern,
        })
    }
}

/// Checks them and fetches their secrets.
pub fn resolve(sections: &[WebhookSection], allow_private: bool) -> anyhow::Result<Vec<Webhook>> {
    let mut names = BTreeSet::new();
    let mut all = Vec::with_capacity(sections.len());
    for (i, section) in sections.iter().enumerate() {
        let webhook = resolved(section, allow_private).with_context(|| format!("webhooks[{i}]"))?;
        ensure!(
            names.insert(webhook.name.clone()),
            "webhooks[{i}]: another webhook is called {:?} too; give one of them a `name` of its own",
            webhook.name
        );
        all.push(webhook);
    }
    Ok(all)
}

fn resolved(section: &WebhookSection, allow_private: bool) -> anyhow::Result<Webhook> {
    let us = section.timeout.us;
    ensure!((1..=MAX_TIMEOUT_US).contains(&us), "timeout: it must be greater than zero and at most 5m");
    ensure!(section.max_attempts > 0, "max_attempts must be greater than zero");
    let allow_private = section.allow_private.unwrap_or(allow_private);
    let timeout = std::time::Duration::from_micros(us.unsigned_abs());
    let to = Destination::new(&section.url.0, timeout, allow_private).map_err(|why| anyhow::anyhow!("url: {why}"))?;
    let name = section.name.clone().unwrap_or_else(|| to.shown());
    ensure!(
        !name.trim().is_empty() && name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control),
        "name: it has 1 to {MAX_NAME_CHARS} visible characters"
    );
    for pattern in &section.types {
        let stars = pattern.matches('*').count();
        ensure!(
            !pattern.trim().is_empty() && (stars == 0 || stars == 1 && pattern.ends_with('*')),
            "types: {pattern:?} is neither a type nor the beginning of one with `*` behind it"
        );
    }
    ensure!(!section.types.is_empty(), "types: name at least one, or leave the key out to get all");
    let secret = match (&section.secret, &section.secret_file) {
        (Some(secret), None) => secret.clone(),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("secret_file: {} cannot be read", file.display()))?;
            Secret::new(text.trim_end_matches(['\r', '\n']))
        }
        (Some(_), Some(_)) => bail!("give a `secret` or a `secret_file`, not both"),
        (None, None) => bail!("a `secret` or a `secret_file` is missing: what is sent is signed with it"),
    };
    ensure!(!secret.reveal().trim_ascii().is_empty(), "the secret is blank");
    Ok(Webhook { name: name.into(), to, types: section.types.clone(), secret, max_attempts: section.max_attempts })
}

/// A parser's message without the line that it quotes, where that may hold a secret.
pub fn unrevealing(told: &str) -> String {
    if !told.contains("secret") {
        return told.to_owned();
    }
    let quotes = |line: &&str| !line.contains('|');
    let kept: Vec<&str> = told.lines().filter(quotes).collect();
    format!("{} (the line is not shown: it may hold a secret)", kept.join("; "))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const HIDDEN: &str = "hunter2hunter2";

    fn load(toml: &str) -> anyhow::Result<Config> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, toml)?;
        Config::from_sources(Some(&file), vec![])
    }

    #[test]
    fn a_webhook_needs_an_address_and_a_secret() {
        let config = load(&format!(
            "[[webhooks]]\nurl = \"https://example.org/in?key={HIDDEN}\"\nsecret = \"{HIDDEN}\"\n\
             [[webhooks]]\nname = \"b\"\nurl = \"https://example.org/in\"\nsecret = \"{HIDDEN}\"\ntypes = [\"order.*\", \"paid\"]\n\
             max_attempts = 3\ntimeout = \"1s\"\nallow_private = true"
        ))
        .expect("a configuration");
        let webhooks = config.webhooks().expect("webhooks");
        assert_eq!((&*webhooks[0].name, webhooks[0].max_attempts), ("https://example.org/in", 12));
        assert_eq!((webhooks[0].to.timeout.as_secs(), webhooks[0].to.allow_private), (10, false));
        assert!(webhooks[0].wants("anything") && webhooks[1].to.allow_private);
        for (event_type, wanted) in [("order.paid", true), ("order", false), ("paid", true), ("paid.twice", false)] {
            assert_eq!(webhooks[1].wants(event_type), wanted, "{event_type}");
        }
        for shown in [format!("{config:?}"), format!("{webhooks:?}")] {
            assert!(!shown.contains(HIDDEN), "{shown}");
        }
    }

    #[test]
    fn private_addresses_follow_the_http_executor_unless_said() {
        let one = "[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nsecret = \"s\"\n";
        let private =
            |toml: String| load(&toml).expect("a configuration").webhooks().expect("webhooks")[0].to.allow_private;
        assert!(private(format!("{one}[executors.http]\nallow_private = true")));
        assert!(!private(format!("{one}allow_private = false\n[executors.http]\nallow_private = true")));
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_no_secret_is_told() {
        let url = "url = \"https://example.org/\"";
        for (keys, told) in [
            (url.to_owned(), "secret_file"),
            (format!("secret = \"{HIDDEN}\""), "url"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\nsecret_file = \"x\""), "not both"),
            (format!("{url}\nsecret_file = \"/no/such/file\""), "/no/such/file"),
            (format!("{url}\nsecret = \" \""), "blank"),
            (format!("{url}\nsecret = 4711471147114711"), "a secret is a text"),
            (format!("{url}\nsecret = \"{HIDDEN}"), "not shown"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\ntype = [\"x\"]"), "known here"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\ntypes = [\"*.paid\"]"), "types"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\ntypes = []"), "types"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\ntimeout = \"0s\""), "timeout"),
            (format!("{url}\nsecret = \"{HIDDEN}\"\nmax_attempts = 0"), "max_attempts"),
            (format!("url = \"ftp://example.org/\"\nsecret = \"{HIDDEN}\""), "http://"),
            (format!("url = \"https://a:{HIDDEN}@example.org/\"\nsecret = \"s\""), "credential"),
            (format!("{url}\nsecret = \"s\"\n[[webhooks]]\n{url}\nsecret = \"s\""), "another webhook"),
        ] {
            let answer = format!("{:#}", load(&format!("[[webhooks]]\n{keys}")).expect_err(&keys));
            assert!(answer.contains(told), "{keys}: {answer}");
            assert!(!answer.contains(HIDDEN) && !answer.contains("4711"), "{answer}");
        }
    }
}
