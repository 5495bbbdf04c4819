//! `[[nats]]`: JetStream servers to which events for the world outside are published (`spec/webhooks.md`, §6).

use super::Duration;
use super::sink::{self, Secret, Sink, Way, default_attempts, default_timeout, every_type};
use anyhow::{bail, ensure};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

const MAX_SUBJECT_CHARS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsSection {
    /// Under which its deliveries are kept; without it, the first address.
    pub name: Option<String>,
    /// `nats://host:port` or `tls://host:port`; several servers of one cluster with commas between them.
    pub url: Servers,
    /// What the subjects begin with; the event's type follows.
    #[serde(default = "default_subject")]
    pub subject: String,
    #[serde(default = "every_type")]
    pub types: Vec<String>,
    /// A `.creds` file: a JWT and the seed that signs for it.
    pub credentials_file: Option<PathBuf>,
    pub token: Option<Secret>,
    pub token_file: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub password_file: Option<PathBuf>,
    /// Besides what the system trusts.
    pub tls_ca_file: Option<PathBuf>,
    /// For servers that ask who we are.
    pub tls_cert_file: Option<PathBuf>,
    pub tls_key_file: Option<PathBuf>,
    #[serde(default = "default_attempts")]
    pub max_attempts: u64,
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
}

fn default_subject() -> String {
    "countersign".to_owned()
}

/// Addresses as they were written: somebody may have put a password where none belongs.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Servers(pub String);

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.0.split(',').map(|url| url.rsplit('@').next().unwrap_or_default()).collect();
        write!(f, "{shown:?}")
    }
}

/// A JetStream as it is used.
#[derive(Clone, Debug)]
pub struct NatsTarget {
    pub servers: Vec<String>,
    pub subject: String,
    pub login: Login,
    pub ca_file: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug)]
pub enum Login {
    Nobody,
    /// The text of a `.creds` file.
    Credentials(Secret),
    Token(Secret),
    Password {
        user: String,
        password: Secret,
    },
}

impl NatsTarget {
    /// Whether every server is reached encrypted, whatever it offers.
    pub fn is_encrypted(&self) -> bool {
        self.servers.iter().all(|server| server.starts_with("tls://"))
    }
}

pub(super) fn resolved(section: &NatsSection) -> anyhow::Result<Sink> {
    ensure!(cfg!(feature = "nats"), "this program was built without NATS (the feature `nats`)");
    let timeout = sink::timeout(section.timeout)?;
    let servers: Vec<String> = section.url.0.split(',').map(|url| url.trim().to_owned()).collect();
    for server in &servers {
        check_server(server)?;
    }
    check_subject(&section.subject)?;
    let identity = match (&section.tls_cert_file, &section.tls_key_file) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => bail!("`tls_cert_file` and `tls_key_file` belong together"),
    };
    let files = [&section.tls_ca_file, &section.tls_cert_file, &section.tls_key_file];
    for file in files.into_iter().flatten() {
        ensure!(std::fs::File::open(file).is_ok(), "{} cannot be read", file.display());
    }
    let target = NatsTarget {
        subject: section.subject.clone(),
        login: login(section)?,
        ca_file: section.tls_ca_file.clone(),
        identity,
        servers,
    };
    let name = section.name.clone().or_else(|| target.servers.first().cloned()).unwrap_or_default();
    Sink::new(name, &section.types, section.max_attempts, timeout, Way::Nats(Box::new(target)))
}

/// The address is shown in logs, so what it says must not be told in a message before it was looked at.
fn check_server(server: &str) -> anyhow::Result<()> {
    let rest = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
    let Some(rest) = rest else { bail!("url: every address begins with nats:// or tls://") };
    ensure!(
        !rest.contains('@'),
        "url: credentials do not belong into an address; use `credentials_file`, `token_file`, or `user` and `password_file`"
    );
    let fits = !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || "/?#".contains(c));
    ensure!(fits, "url: an address is nats://host:port or tls://host:port");
    Ok(())
}

fn check_subject(subject: &str) -> anyhow::Result<()> {
    let token = |token: &str| {
        !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>')
    };
    ensure!(
        subject.chars().count() <= MAX_SUBJECT_CHARS && subject.split('.').all(token) && !subject.starts_with('$'),
        "subject: {subject:?} is none; it is a name, or several with dots between them, without blanks, `*` and `>`"
    );
    Ok(())
}

fn login(section: &NatsSection) -> anyhow::Result<Login> {
    let credentials = sink::secret(("credentials", &None), ("credentials_file", &section.credentials_file))?;
    let token = sink::secret(("token", &section.token), ("token_file", &section.token_file))?;
    let password = sink::secret(("password", &section.password), ("password_file", &section.password_file))?;
    match (credentials, token, section.user.clone(), password) {
        (None, None, None, None) => Ok(Login::Nobody),
        (Some(credentials), None, None, None) => Ok(Login::Credentials(credentials)),
        (None, Some(token), None, None) => Ok(Login::Token(token)),
        (None, None, Some(user), Some(password)) => Ok(Login::Password { user, password }),
        (None, None, _, _) => bail!("`user` and `password` (or `password_file`) belong together"),
        _ => bail!("give a `credentials_file`, a `token`, or a `user` with a `password`: one of them"),
    }
}

#[cfg(all(test, feature = "nats"))]
mod tests {
    use super::*;
    use crate::config::Config;

    const HIDDEN: &str = "hunter2hunter2";
    const URL: &str = "url = \"tls://nats.example:4222\"";

    fn load(toml: &str) -> anyhow::Result<Config> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, toml)?;
        Config::from_sources(Some(&file), vec![])
    }

    #[test]
    fn a_stream_needs_no_more_than_an_address() {
        let config = load(&format!(
            "[[nats]]\n{URL}\n[[nats]]\nname = \"b\"\nurl = \"nats://a:1, nats://b:2\"\nsubject = \"shop.events\"\n\
             user = \"u\"\npassword = \"{HIDDEN}\"\ntypes = [\"order.*\"]\nmax_attempts = 3\ntimeout = \"1s\""
        ))
        .expect("a configuration");
        let sinks = config.sinks().expect("sinks");
        assert_eq!((&*sinks[0].name, sinks[0].max_attempts), ("tls://nats.example:4222", 12));
        let (Way::Nats(first), Way::Nats(second)) = (&sinks[0].way, &sinks[1].way) else { panic!("{sinks:?}") };
        assert_eq!((first.subject.as_str(), first.is_encrypted()), ("countersign", true));
        assert_eq!((second.servers.len(), second.is_encrypted(), sinks[1].timeout.as_secs()), (2, false, 1));
        assert!(sinks[1].wants("order.paid") && !sinks[1].wants("paid"));
        for shown in [format!("{config:?}"), format!("{sinks:?}")] {
            assert!(!shown.contains(HIDDEN), "{shown}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_no_secret_is_told() {
        for (keys, told) in [
            (format!("token = \"{HIDDEN}\""), "url"),
            (format!("url = \"nats://u:{HIDDEN}@h:1\""), "credentials do not belong"),
            (format!("url = \"http://h/{HIDDEN}\""), "nats:// or tls://"),
            (format!("{URL}\ntoken = \"{HIDDEN}\"\ntoken_file = \"x\""), "not both"),
            (format!("{URL}\ntoken = \" \""), "blank"),
            (format!("{URL}\ntoken = 4711471147114711"), "a secret is a text"),
            (format!("{URL}\npassword = \"{HIDDEN}"), "not shown"),
            (format!("{URL}\npassword = \"{HIDDEN}\""), "belong together"),
            (format!("{URL}\nuser = \"u\""), "belong together"),
            (format!("{URL}\nuser = \"u\"\npassword = \"{HIDDEN}\"\ntoken = \"{HIDDEN}\""), "one of them"),
            (format!("{URL}\ncredentials_file = \"/no/such/file\""), "/no/such/file"),
            (format!("{URL}\ntls_ca_file = \"/no/such/file\""), "/no/such/file"),
            (format!("{URL}\ntls_cert_file = \"/no/such/file\""), "belong together"),
            (format!("{URL}\nsubject = \"a..b\""), "subject"),
            (format!("{URL}\nsubject = \"a.*\""), "subject"),
            (format!("{URL}\nsubject = \"$JS.API\""), "subject"),
            (format!("{URL}\nmax_attempts = 0"), "max_attempts"),
            (format!("{URL}\n[[nats]]\n{URL}"), "is called"),
            (
                format!("{URL}\nname = \"x\"\n[[webhooks]]\nname = \"x\"\nurl = \"https://e.org/\"\nsecret = \"s\""),
                "is called",
            ),
        ] {
            let answer = format!("{:#}", load(&format!("[[nats]]\n{keys}")).expect_err(&keys));
            assert!(answer.contains(told), "{keys}: {answer}");
            assert!(!answer.contains(HIDDEN) && !answer.contains("4711"), "{answer}");
        }
    }
}
