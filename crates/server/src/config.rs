//! The configuration: built-in defaults, then the TOML file, then the environment (`COUNTERSIGN_…`, with
//! two underscores where a key is nested). A key that nobody knows is an error: a misspelt retention
//! policy must never pass for a configured one. A key that this version cannot honour is an error too.

mod console;
mod duration;
mod governance;
mod metrics;
mod nats;
mod notify;
mod regulated;
mod secrets;
mod sink;
mod tls;
mod webhooks;

pub use console::ConsoleSection;
use duration::DAY_US;
pub use duration::Duration;
pub use governance::{GovernanceSection, ProposalsSection};
pub use metrics::{MetricsSection, MetricsToken};
pub use nats::{Login, NatsSection, NatsTarget};
pub use notify::{Encryption, MailTarget, NotifySection, NotifyTarget, NotifyWay, Occasion};
pub use regulated::{RegulatedSection, Services};
pub use secrets::{SecretSource, SecretStore};
pub use sink::{Secret, Sink, Way};
pub use tls::TlsSection;
pub use webhooks::WebhookSection;

use crate::listen::Limits;
use anyhow::{Context, bail, ensure};
use countersign_engine::retention::{Policies, Policy, UNSET_POLICY};
use countersign_kernel::text::{is_blank, is_invisible};
use figment::error::Kind;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What every variable of ours begins with.
pub const ENV_PREFIX: &str = "COUNTERSIGN_";

/// Variables of the command line, the log and the tests: not configuration.
const OTHER_VARIABLES: &[&str] = &["SERVER", "TOKEN", "PROFILE", "PROFILES", "LOG", "STORE", "BIN"];
const TEST_VARIABLES: &str = "TEST_";

const MAX_BODY_BYTES: usize = 1 << 30;
const MIN_CACHE_BYTES: usize = 1 << 20;
/// A hundred years: the times that a record states stay readable everywhere.
const MAX_RETENTION: Duration = Duration { us: 36_525 * DAY_US };
const DEFAULT_PURGE_DELAY: Duration = Duration { us: 30 * DAY_US };

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The policy under which records are kept where their definition does not ask for longer.
    pub audit_trail_retention_policy: Option<String>,
    /// The actor in whose name the engine itself acts.
    pub application_actor_ref: String,
    /// The actor that signs the log's checkpoints.
    pub server_actor_ref: String,
    /// Acts must be signed.
    pub regulated: RegulatedSection,
    pub retention: RetentionSection,
    pub seal: SealSection,
    pub log: LogSection,
    pub executors: ExecutorsSection,
    pub limits: LimitsSection,
    pub audit: AuditSection,
    pub metrics: MetricsSection,
    /// Where events for the world outside are sent.
    pub webhooks: Vec<WebhookSection>,
    pub nats: Vec<NatsSection>,
    /// Notifications to people.
    pub notify: Vec<NotifySection>,
    /// What `${secrets.NAME}` stands for.
    pub secrets: BTreeMap<String, SecretSource>,
    pub artifacts: ArtifactsSection,
    /// For browsers.
    pub console: ConsoleSection,
    pub tls: TlsSection,
    pub sidecar: SidecarSection,
    pub governance: GovernanceSection,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            audit_trail_retention_policy: None,
            application_actor_ref: countersign_engine::Config::default().application_actor_ref,
            server_actor_ref: countersign_engine::Config::default().server_actor_ref,
            regulated: RegulatedSection::default(),
            retention: RetentionSection::default(),
            seal: SealSection::default(),
            log: LogSection::default(),
            executors: ExecutorsSection::default(),
            limits: LimitsSection::default(),
            audit: AuditSection::default(),
            metrics: MetricsSection::default(),
            webhooks: vec![],
            nats: vec![],
            notify: vec![],
            secrets: BTreeMap::new(),
            artifacts: ArtifactsSection::default(),
            console: ConsoleSection::default(),
            tls: TlsSection::default(),
            sidecar: SidecarSection::default(),
            governance: GovernanceSection::default(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSection {
    /// Added to the built-in ones; one of the same name replaces it.
    pub policies: BTreeMap<String, PolicySection>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySection {
    pub duration: Duration,
    #[serde(default = "default_purge_delay")]
    pub max_purge_delay: Duration,
}

fn default_purge_delay() -> Duration {
    DEFAULT_PURGE_DELAY
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SealSection {
    pub every: Duration,
    pub records: u64,
}

impl Default for SealSection {
    fn default() -> Self {
        SealSection { every: Duration { us: 1_000_000 }, records: 1000 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// The log's name for ever, chosen before its first start; otherwise one is made.
    pub origin: Option<String>,
    /// The addresses of witnesses that cosign its checkpoints.
    pub witnesses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutorsSection {
    pub shell: ShellSection,
    pub http: HttpSection,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShellSection {
    pub enabled: bool,
    /// Another server on this store carries shell steps out: they are left to it.
    pub elsewhere: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSection {
    pub enabled: bool,
    /// Another server on this store carries http steps out: they are left to it.
    pub elsewhere: bool,
    /// Whether steps may reach loopback, link-local and private addresses.
    pub allow_private: bool,
}

impl Default for HttpSection {
    fn default() -> Self {
        HttpSection { enabled: true, elsewhere: false, allow_private: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// The largest request body that is read.
    pub body_bytes: usize,
    /// The memory that cached instances may take, about. Plans of definitions take up to a quarter of it besides.
    pub cache_bytes: usize,
    /// Connections at a time, in all and from one address.
    pub connections: usize,
    pub connections_per_address: usize,
    /// Topics of one live stream, and live streams of one actor.
    pub stream_topics: usize,
    pub streams_per_actor: usize,
}

impl Default for LimitsSection {
    fn default() -> Self {
        LimitsSection {
            body_bytes: 1_048_576,
            cache_bytes: 256 << 20,
            connections: Limits::default().connections,
            connections_per_address: Limits::default().per_address,
            stream_topics: 100,
            streams_per_actor: 32,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSection {
    /// Record attempts that were refused for want of authority.
    pub failed_attempts: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactsSection {
    /// Where the files that steps leave are kept; without it, `artifacts` in the data directory.
    pub dir: Option<PathBuf>,
    /// The largest file that is kept.
    pub max_bytes: u64,
}

impl Default for ArtifactsSection {
    fn default() -> Self {
        ArtifactsSection { dir: None, max_bytes: 256 * 1024 * 1024 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SidecarSection {
    /// Where the files of runbooks are kept up to date; without it, they are nowhere but behind the API.
    pub dir: Option<PathBuf>,
}

impl Config {
    /// From this file, where one is given, and the environment of this process.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Config> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Config::from_sources(file, variables)
    }

    /// As [`Config::load`], with the variables given.
    pub fn from_sources(file: Option<&Path>, variables: Vec<(String, String)>) -> anyhow::Result<Config> {
        let mut figment = Figment::new();
        if let Some(file) = file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("the configuration file {} cannot be read", file.display()))?;
            let parsed: Dict = Toml::from_str(&text).map_err(|error| {
                anyhow::anyhow!("{}: {}", file.display(), sink::unrevealing(&error.to_string(), &text))
            })?;
            figment = figment.merge(Source { name: file.display().to_string(), dict: parsed });
        }
        for (key, dict) in environment(variables)? {
            figment = figment.merge(Source { name: format!("the variable {key}"), dict });
        }
        let config: Config = figment.extract().map_err(|errors| explained(&figment, errors))?;
        config.validate()?;
        config.sinks()?;
        config.metrics_token()?;
        Ok(config)
    }

    fn validate(&self) -> anyhow::Result<()> {
        let own =
            [("application_actor_ref", &self.application_actor_ref), ("server_actor_ref", &self.server_actor_ref)];
        for (key, actor) in own {
            ensure!(
                !is_blank(actor) && !actor.chars().any(is_invisible),
                "{key} = {actor:?}: a name needs visible characters and no invisible ones"
            );
        }
        ensure!(
            self.application_actor_ref != self.server_actor_ref,
            "application_actor_ref and server_actor_ref must be two different names"
        );
        let body_bytes = self.limits.body_bytes;
        ensure!(
            (1..=MAX_BODY_BYTES).contains(&body_bytes),
            "limits.body_bytes = {body_bytes}: it must be between 1 and {MAX_BODY_BYTES}"
        );
        let LimitsSection {
            cache_bytes, connections, connections_per_address, stream_topics, streams_per_actor, ..
        } = self.limits;
        ensure!(
            cache_bytes >= MIN_CACHE_BYTES,
            "limits.cache_bytes = {cache_bytes}: it must be at least {MIN_CACHE_BYTES}"
        );
        ensure!(
            connections > 0 && connections_per_address > 0,
            "limits.connections and limits.connections_per_address must be greater than zero"
        );
        ensure!(
            stream_topics > 0 && streams_per_actor > 0,
            "limits.stream_topics and limits.streams_per_actor must be greater than zero"
        );
        ensure!(self.artifacts.max_bytes > 0, "artifacts.max_bytes must be greater than zero");
        secrets::check(&self.secrets)?;
        self.console.validate()?;
        self.tls.validate()?;
        self.governance.check()?;
        let seal = &self.seal;
        ensure!(seal.every.us > 0 && seal.records > 0, "seal.every and seal.records must be greater than zero");
        if let Some(origin) = &self.log.origin {
            let fits =
                !is_blank(origin) && !origin.contains(|c: char| c.is_whitespace() || is_invisible(c) || c == '+');
            ensure!(fits, "log.origin = {origin:?}: the name of a log has no blanks and no `+`");
        }
        for witness in &self.log.witnesses {
            let usable = reqwest::Url::parse(witness).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            ensure!(usable, "log.witnesses: {witness:?} is no address: write it like http://witness.example:7434");
        }
        for (name, policy) in &self.retention.policies {
            let key = format!("retention.policies.{name}");
            ensure!(!is_blank(name), "{key}: a policy needs a name");
            ensure!(name != UNSET_POLICY, "{key}: `{UNSET_POLICY}` stands for no policy at all; choose another name");
            ensure!(policy.duration.us > 0, "{key}.duration must be greater than zero");
            let longest = policy.duration.us.max(policy.max_purge_delay.us);
            ensure!(
                longest <= MAX_RETENTION.us,
                "{key}: duration and max_purge_delay are at most 36525d each; records without a policy are kept without end"
            );
        }
        self.validate_policy()
    }

    fn validate_policy(&self) -> anyhow::Result<()> {
        let Some(policy) = &self.audit_trail_retention_policy else { return Ok(()) };
        let policies = self.policies();
        if policy == UNSET_POLICY || policies.get(policy).is_none() {
            let known = policies.names().collect::<Vec<_>>().join(", ");
            bail!("audit_trail_retention_policy = {policy:?}: no such policy; known are {known}");
        }
        Ok(())
    }

    /// The built-in policies with those of this configuration.
    pub fn policies(&self) -> Policies {
        let mut policies = Policies::default();
        for (name, policy) in &self.retention.policies {
            let policy =
                Policy { duration_us: Some(policy.duration.us), max_purge_delay_us: policy.max_purge_delay.us };
            policies.insert(name, policy);
        }
        policies
    }

    /// Where events go, with their secrets.
    pub fn sinks(&self) -> anyhow::Result<Vec<Sink>> {
        sink::resolve(self)
    }

    /// What `${secrets.NAME}` stands for, as it is read.
    pub fn secrets(&self) -> SecretStore {
        SecretStore::new(self.secrets.clone(), self.regulated.enabled)
    }

    /// What the sealer is told, with the key of this node.
    pub fn log(&self, seed: [u8; 32]) -> countersign_engine::LogConfig {
        countersign_engine::LogConfig {
            origin: self.log.origin.clone(),
            every: std::time::Duration::from_micros(self.seal.every.us.unsigned_abs()),
            records: self.seal.records,
            ..countersign_engine::LogConfig::new(seed)
        }
    }

    /// The share of the caches that compiled definitions, expressions and schemas have.
    pub fn definition_cache_bytes(&self) -> usize {
        self.limits.cache_bytes / 4
    }

    /// What the engine is told.
    pub fn engine(&self) -> countersign_engine::Config {
        countersign_engine::Config {
            application_actor_ref: self.application_actor_ref.clone(),
            server_actor_ref: self.server_actor_ref.clone(),
            regulated: self.regulated.enabled,
            signatures: self.regulated.signatures(),
            audit_trail_retention_policy: self.audit_trail_retention_policy.clone(),
            policies: self.policies(),
            audit_failed_attempts: self.audit.failed_attempts,
            cache_bytes: self.limits.cache_bytes,
            definition_cache_bytes: self.definition_cache_bytes(),
            ..countersign_engine::Config::default()
        }
    }
}

/// The variables that are configuration, each as a dictionary with one key.
fn environment(mut variables: Vec<(String, String)>) -> anyhow::Result<Vec<(String, Dict)>> {
    variables.sort();
    let mut sources = Vec::new();
    for (variable, text) in variables {
        let Some(key) = variable.strip_prefix(ENV_PREFIX) else { continue };
        if OTHER_VARIABLES.contains(&key) || key.starts_with(TEST_VARIABLES) {
            continue;
        }
        let mut path: Vec<String> = key.split("__").map(str::to_lowercase).collect();
        let first = path.remove(0);
        ensure!(
            !first.is_empty() && path.iter().all(|part| !part.is_empty()),
            "{variable}: this is no configuration key; nested keys are joined by two underscores"
        );
        let value = path.into_iter().rev().fold(scalar(&text), |value, part| Dict::from([(part, value)]).into());
        sources.push((variable, Dict::from([(first, value)])));
    }
    Ok(sources)
}

/// Variables hold text; truth values and whole numbers are recognised.
fn scalar(text: &str) -> Value {
    match (text.parse::<bool>(), text.parse::<u64>()) {
        (Ok(truth), _) => Value::from(truth),
        (_, Ok(number)) => Value::from(number),
        _ => Value::from(text),
    }
}

/// One place that keys come from.
struct Source {
    name: String,
    dict: Dict,
}

impl Provider for Source {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

/// Every error with its key and the place where that key was set.
fn explained(figment: &Figment, errors: figment::Error) -> anyhow::Error {
    let lines: Vec<String> = errors
        .into_iter()
        .map(|error| {
            let mut path = error.path.clone();
            let what = match &error.kind {
                Kind::UnknownField(name, known) => {
                    if path.last() != Some(name) {
                        path.push(name.clone());
                    }
                    format!("this key is not known; known here: {}", known.join(", "))
                }
                Kind::MissingField(name) => {
                    path.push(name.to_string());
                    "this key is missing".to_owned()
                }
                kind => crate::wording::plain(&kind.to_string()),
            };
            let key = path.join(".");
            let set_by = figment.find_metadata(&key).map(|metadata| metadata.name.to_string());
            match set_by.or_else(|| error.metadata.map(|metadata| metadata.name.to_string())) {
                Some(place) => format!("{key} ({place}): {what}"),
                None => format!("{key}: {what}"),
            }
        })
        .collect();
    anyhow::anyhow!("the configuration is not usable: {}", lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn load(toml: &str, variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, toml)?;
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::from_sources(Some(&file), variables)
    }

    fn refusal(toml: &str, variables: &[(&str, &str)]) -> String {
        load(toml, variables).expect_err(toml).to_string()
    }

    /// What the documents show can be copied as it stands.
    #[test]
    fn every_configuration_in_the_documents_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = vec![root.join("README.md")];
        for directory in ["docs", "docs/guides", "spec"] {
            let listed = std::fs::read_dir(root.join(directory)).expect("a directory");
            files.extend(listed.map(|entry| entry.expect("an entry").path()));
        }
        let mut found = 0;
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
            let text = std::fs::read_to_string(file).expect("text");
            for block in text.split("```toml\n").skip(1) {
                // Files with secrets and keys are elsewhere.
                let block = block.split("```").next().expect("an end").replace("secret_file", "secret");
                let block = block.replace("password_file", "password");
                let lines = block.lines();
                let lines: Vec<&str> =
                    lines.filter(|line| !line.contains("_file") && !line.contains("token = { file")).collect();
                let block = &lines.join("\n");
                let understood = load(block, &[]);
                assert!(understood.is_ok(), "{}: {:#}\n{block}", file.display(), understood.expect_err("a refusal"));
                found += 1;
            }
        }
        assert!(found >= 4, "{found}");
    }

    #[test]
    fn the_documented_file_is_understood() {
        let config = load(
            r#"
            audit_trail_retention_policy = "sox_7_year"
            regulated = false
            application_actor_ref = "engine"
            [retention.policies.sox_7_year]
            duration = "2600d"
            max_purge_delay = "10d"
            [retention.policies.short]
            duration = "1d"
            [seal]
            every = "1s"
            records = 1000
            [executors.shell]
            enabled = false
            [executors.http]
            allow_private = false
            [limits]
            body_bytes = 4096
            [audit]
            failed_attempts = true
            "#,
            &[],
        )
        .expect("a configuration");
        assert_eq!(config.limits.body_bytes, 4096);
        let engine = config.engine();
        assert_eq!(engine.deployment_policy(), "sox_7_year");
        assert_eq!(engine.application_actor_ref, "engine");
        assert!(engine.audit_failed_attempts);
        let policy = |name: &str| engine.policies.get(name).cloned();
        let days =
            |duration, delay| Some(Policy { duration_us: Some(duration * DAY_US), max_purge_delay_us: delay * DAY_US });
        assert_eq!(policy("sox_7_year"), days(2600, 10));
        assert_eq!(policy("short"), days(1, 30));
        assert_eq!(policy("hipaa_6_year"), days(2192, 30));
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config = load(
            "[limits]\nbody_bytes = 1\n[retention.policies.sox_7_year]\nduration = \"1d\"\n",
            &[
                ("COUNTERSIGN_LIMITS__BODY_BYTES", "77"),
                ("COUNTERSIGN_AUDIT__FAILED_ATTEMPTS", "true"),
                ("COUNTERSIGN_RETENTION__POLICIES__SOX_7_YEAR__DURATION", "3d"),
                ("COUNTERSIGN_AUDIT_TRAIL_RETENTION_POLICY", "sox_7_year"),
                ("COUNTERSIGN_SERVER", "http://x"),
                ("COUNTERSIGN_TOKEN", "t"),
                ("COUNTERSIGN_PROFILES", "p"),
                ("COUNTERSIGN_LOG", "debug"),
                ("COUNTERSIGN_TEST_POSTGRES", "postgres://"),
                ("PATH", "/bin"),
            ],
        )
        .expect("a configuration");
        assert_eq!((config.limits.body_bytes, config.audit.failed_attempts), (77, true));
        assert_eq!(config.retention.policies["sox_7_year"].duration, Duration { us: 3 * DAY_US });
        assert_eq!(config.audit_trail_retention_policy.as_deref(), Some("sox_7_year"));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        for (toml, variables, key, place) in [
            ("regulatd = true", &[][..], "regulatd", "countersign.toml"),
            ("[limits]\nbody = 1", &[], "limits.body", "countersign.toml"),
            (
                "[retention.policies.x]\nduration = \"1d\"\nkeep = 1",
                &[],
                "retention.policies.x.keep",
                "countersign.toml",
            ),
            ("[executors.ftp]\nenabled = true", &[], "executors.ftp", "countersign.toml"),
            ("", &[("COUNTERSIGN_LIMITS__BODY", "1")], "limits.body", "COUNTERSIGN_LIMITS__BODY"),
            ("regulated = false", &[("COUNTERSIGN_REGULATD", "true")], "regulatd", "COUNTERSIGN_REGULATD"),
            ("[limits]\nbody_bytes = \"many\"", &[], "limits.body_bytes", "countersign.toml"),
            ("[retention.policies.x]\nduration = \"1y\"", &[], "retention.policies.x.duration", "countersign.toml"),
            (
                "[retention.policies.x]\nmax_purge_delay = \"1d\"",
                &[],
                "retention.policies.x.duration",
                "countersign.toml",
            ),
            ("[governance]\nverify = \"1h\"", &[], "governance.verify", "countersign.toml"),
            ("x = ", &[], "x = ", "countersign.toml"),
            ("[regulated]\nservces = \"token\"", &[], "servces", "countersign.toml"),
            ("[regulated]\nservices = \"tokens\"", &[], "regulated.services", "countersign.toml"),
            ("regulated = \"yes\"", &[], "regulated", "countersign.toml"),
        ] {
            let told = refusal(toml, variables);
            assert!(told.contains(key) && told.contains(place), "{toml:?} {variables:?}: {told}");
        }
        let missing = Config::from_sources(Some(Path::new("no/such/file.toml")), vec![]).expect_err("no file");
        assert!(missing.to_string().contains("no/such/file.toml"));
    }

    #[test]
    fn what_this_version_cannot_honour_is_refused() {
        for (toml, told) in [
            ("server_actor_ref = \"countersign\"", "two different"),
            ("audit_trail_retention_policy = \"sox\"", "sox_7_year"),
            ("audit_trail_retention_policy = \"unset\"", "no such policy"),
            ("[retention.policies.unset]\nduration = \"1d\"", "choose another name"),
            ("[retention.policies.x]\nduration = \"0s\"", "greater than zero"),
            ("[retention.policies.x]\nduration = \"36526d\"", "at most 36525d"),
            ("[retention.policies.x]\nduration = \"1d\"\nmax_purge_delay = \"36526d\"", "at most 36525d"),
            ("[retention.policies.x]\nduration = \"1d\"\nmax_purge_delay = \"-1d\"", "no length of time"),
            ("[limits]\nbody_bytes = 0", "between 1 and"),
            ("[seal]\nevery = \"0s\"", "greater than zero"),
            ("[governance]\nverify_every = \"59s\"", "at least 1m"),
            ("[log]\norigin = \"two words\"", "no blanks"),
            ("application_actor_ref = \" \"", "visible"),
            ("application_actor_ref = \"a\u{200B}\"", "invisible"),
        ] {
            let answer = refusal(toml, &[]);
            assert!(answer.contains(told), "{toml}: {answer}");
        }
        assert_eq!(Config::from_sources(None, vec![]).expect("defaults"), Config::default());
    }
}
