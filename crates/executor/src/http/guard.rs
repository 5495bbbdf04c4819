//! Resolves names to addresses, checks the addresses, and connects to exactly these. So a name server gains nothing
//! by a different second answer.

use super::address::is_public;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

pub type Looked = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
pub type Lookup = Arc<dyn Fn(String) -> Looked + Send + Sync>;

/// The system's own resolver.
pub fn system_lookup() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// The target is one that steps may not reach.
#[derive(Debug)]
pub struct Forbidden(pub String);

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Forbidden {}

impl Forbidden {
    fn new(host: &str, address: IpAddr) -> Self {
        Forbidden(format!(
            "`{host}` is at {address}, which is not a public address: executors.http.allow_private permits such targets"
        ))
    }

    /// The refusal inside an error of the HTTP client, if that is what it is about.
    pub fn within(error: &reqwest::Error) -> Option<String> {
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
                return Some(forbidden.to_string());
            }
            source = cause.source();
        }
        None
    }
}

/// A resolver that gives out public addresses only. A name that also has others is refused as a whole: an honest one has not.
pub struct Guard {
    pub lookup: Lookup,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let looked = (self.lookup)(name.as_str().to_owned());
        Box::pin(async move {
            let addresses = looked.await?;
            if let Some(closed) = addresses.iter().map(SocketAddr::ip).find(|ip| !is_public(*ip)) {
                return Err(Forbidden::new(name.as_str(), closed).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A host that is an address is never resolved, so it is looked at before every hop.
pub fn check_literal(url: &Url) -> Result<(), Forbidden> {
    let Some(host) = url.host_str() else { return Err(Forbidden("the url names no host".to_owned())) };
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(address) if !is_public(address) => Err(Forbidden::new(host, address)),
        _ => Ok(()),
    }
}
