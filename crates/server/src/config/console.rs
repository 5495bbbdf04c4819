//! What browsers need: the origin that they see, and how long they stay signed in.

use super::Duration;
use anyhow::{bail, ensure};
use countersign_engine::sessions::Lifetimes;
use reqwest::Url;
use serde::Deserialize;
use std::net::IpAddr;

/// Longer sessions are not sessions any more.
const MAX_ABSOLUTE: Duration = Duration { us: 30 * super::DAY_US };
const MIN_IDLE: Duration = Duration { us: 10_000_000 };

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleSection {
    /// Scheme, host and port by which browsers reach this server, as they write them: `https://console.example`.
    pub origin: Option<String>,
    /// What passkeys are bound to: the host of `origin`, unless it says a domain above it.
    pub rp_id: Option<String>,
    /// A session ends when it was not used for so long.
    pub idle: Duration,
    /// It ends then, however much it is used.
    pub absolute: Duration,
}

impl Default for ConsoleSection {
    fn default() -> Self {
        ConsoleSection {
            origin: None,
            rp_id: None,
            idle: Duration { us: 15 * 60_000_000 },
            absolute: Duration { us: 12 * 3_600_000_000 },
        }
    }
}

impl ConsoleSection {
    pub fn lifetimes(&self) -> Lifetimes {
        Lifetimes { idle_us: self.idle.us, absolute_us: self.absolute.us }
    }

    /// Whether browsers come by HTTPS: served here, or by a proxy in front.
    pub fn is_https(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.starts_with("https://"))
    }

    /// `None` where passkeys are not possible: there is no origin, or it names its host by a number.
    pub fn rp_id(&self) -> Option<String> {
        let url = Url::parse(self.origin.as_ref()?).ok()?;
        let host = url.domain()?;
        Some(self.rp_id.clone().unwrap_or_else(|| host.to_owned()))
    }

    pub fn validate(&self) -> anyhow::Result<()> {
        let (idle, absolute) = (self.idle, self.absolute);
        ensure!(idle >= MIN_IDLE, "console.idle must be at least 10s");
        ensure!(absolute >= idle && absolute <= MAX_ABSOLUTE, "console.absolute must be between console.idle and 30d");
        let Some(origin) = &self.origin else {
            ensure!(self.rp_id.is_none(), "console.rp_id needs console.origin");
            return Ok(());
        };
        let Some(url) = Url::parse(origin).ok().filter(|url| url.host_str().is_some()) else {
            bail!("console.origin = {origin:?}: write it like https://console.example");
        };
        let plain = url.origin().ascii_serialization();
        ensure!(plain == *origin, "console.origin = {origin:?}: browsers write it as {plain:?}");
        if let Some(rp_id) = &self.rp_id {
            let host = url.domain().unwrap_or_default();
            let above =
                host.strip_suffix(rp_id.as_str()).is_some_and(|rest| rest.ends_with('.') && rp_id.contains('.'));
            ensure!(
                host == rp_id || above,
                "console.rp_id = {rp_id:?}: it must be the host of console.origin, or a domain above it"
            );
        }
        match url.scheme() {
            "https" => Ok(()),
            "http" if is_loopback(&url) => Ok(()),
            _ => bail!("console.origin = {origin:?}: it must be https, or http on this machine"),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(origin: &str) -> ConsoleSection {
        ConsoleSection { origin: Some(origin.to_owned()), ..ConsoleSection::default() }
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for good in [
            "https://console.example",
            "https://c.example:8443",
            "http://localhost:7433",
            "http://127.0.0.1",
            "http://[::1]:80",
        ] {
            let result = section(good).validate();
            let default_port = good.ends_with(":80");
            assert_eq!(result.is_ok(), !default_port, "{good}: {result:?}");
        }
        for bad in [
            "https://console.example/",
            "https://console.example:443",
            "https://Console.example",
            "https://u@console.example",
            "https://console.example/app",
            "http://console.example",
            "http://10.0.0.1",
            "ftp://console.example",
            "console.example",
            "null",
            "",
        ] {
            assert!(section(bad).validate().is_err(), "{bad}");
        }
    }

    #[test]
    fn passkeys_belong_to_the_host_or_a_domain_above_it() {
        let with = |origin: Option<&str>, rp_id: &str| ConsoleSection {
            origin: origin.map(str::to_owned),
            rp_id: Some(rp_id.to_owned()),
            ..ConsoleSection::default()
        };
        let origin = Some("https://c.firm.example");
        for good in ["c.firm.example", "firm.example"] {
            assert!(with(origin, good).validate().is_ok(), "{good}");
        }
        for bad in ["example", "irm.example", "evil.example", "c.c.firm.example", ""] {
            assert!(with(origin, bad).validate().is_err(), "{bad}");
        }
        assert!(with(None, "c.firm.example").validate().is_err());
        assert!(with(Some("http://127.0.0.1:7433"), "127.0.0.1").validate().is_err());
        assert_eq!(section("https://c.firm.example").rp_id().as_deref(), Some("c.firm.example"));
        assert_eq!(section("http://localhost:7433").rp_id().as_deref(), Some("localhost"));
        assert_eq!(section("http://127.0.0.1:7433").rp_id(), None);
    }

    #[test]
    fn time_outs_have_bounds() {
        let with = |idle: &str, absolute: &str| ConsoleSection {
            idle: Duration::parse(idle).expect("a duration"),
            absolute: Duration::parse(absolute).expect("a duration"),
            ..ConsoleSection::default()
        };
        assert!(with("15m", "12h").validate().is_ok());
        assert!(with("10s", "10s").validate().is_ok());
        for (idle, absolute) in [("0s", "12h"), ("9s", "12h"), ("15m", "14m"), ("15m", "31d")] {
            assert!(with(idle, absolute).validate().is_err(), "{idle} {absolute}");
        }
    }
}
