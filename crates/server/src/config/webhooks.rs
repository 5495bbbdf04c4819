//! `[[webhooks]]`: addresses to which events for the world outside are sent, signed (`spec/webhooks.md`).

use super::Duration;
use super::sink::{self, Secret, Sink, Way, default_attempts, default_timeout, every_type};
use anyhow::Context;
use countersign_executor::http::Destination;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

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

/// The address of a webhook. Its query may be somebody's way to authorise us.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Address(pub String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.split(['?', '#']).next().unwrap_or_default())
    }
}

pub(super) fn resolved(section: &WebhookSection, allow_private: bool) -> anyhow::Result<Sink> {
    let timeout = sink::timeout(section.timeout)?;
    let allow_private = section.allow_private.unwrap_or(allow_private);
    let to = Destination::new(&section.url.0, timeout, allow_private).map_err(|why| anyhow::anyhow!("url: {why}"))?;
    let name = section.name.clone().unwrap_or_else(|| to.shown());
    let secret = sink::secret(("secret", &section.secret), ("secret_file", &section.secret_file))?;
    let secret = secret.context("a `secret` or a `secret_file` is missing: what is sent is signed with it")?;
    Sink::new(name, &section.types, section.max_attempts, timeout, Way::Webhook { to, secret })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    impl super::Way {
        fn allows_private(&self) -> bool {
            matches!(self, super::Way::Webhook { to, .. } if to.allow_private)
        }
    }

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
        let webhooks = config.sinks().expect("webhooks");
        assert_eq!((&*webhooks[0].name, webhooks[0].max_attempts), ("https://example.org/in", 12));
        assert_eq!((webhooks[0].timeout.as_secs(), webhooks[0].way.allows_private()), (10, false));
        assert!(webhooks[0].wants("anything") && webhooks[1].way.allows_private());
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
            |toml: String| load(&toml).expect("a configuration").sinks().expect("webhooks")[0].way.allows_private();
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
            (format!("{url}\nsecret = \"s\"\n[[webhooks]]\n{url}\nsecret = \"s\""), "is called"),
        ] {
            let answer = format!("{:#}", load(&format!("[[webhooks]]\n{keys}")).expect_err(&keys));
            assert!(answer.contains(told), "{keys}: {answer}");
            assert!(!answer.contains(HIDDEN) && !answer.contains("4711"), "{answer}");
        }
    }
}
