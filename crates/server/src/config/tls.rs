//! TLS of the listener: a certificate chain and its private key, as PEM files.

use anyhow::{Context, bail, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSection {
    /// The server's certificate, then those between it and a root, in one PEM file.
    pub cert: Option<PathBuf>,
    /// The private key of the first certificate, as PEM.
    pub key: Option<PathBuf>,
}

impl TlsSection {
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(self.cert.is_some() == self.key.is_some(), "tls.cert and tls.key are needed together");
        Ok(())
    }

    /// `None` where none is configured. The files are read once, at the start.
    pub fn acceptor(&self) -> anyhow::Result<Option<TlsAcceptor>> {
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(None) };
        let unusable = || format!("tls.cert {} cannot be used", cert.display());
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).with_context(unusable)?;
        if chain.is_empty() {
            bail!("tls.cert {} holds no certificate", cert.display());
        }
        let unusable = || format!("tls.key {} cannot be used", key.display());
        let private = PrivateKeyDer::from_pem_file(key).with_context(unusable)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .context("tls.cert and tls.key do not go together")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}
