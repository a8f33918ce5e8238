//! Certificates.

use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Certificate and key of a server.
pub type TlsConfig = Arc<ServerConfig>;

/// What a server needs for TLS 1.2 and 1.3, from files in PEM: its certificate, with those between
/// it and the authority, and its key.
///
/// # Errors
/// What is wrong with the files.
pub fn tls_config(certificate: &Path, key: &Path) -> Result<TlsConfig, String> {
    let of = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| of(certificate, &error))?;
    if chain.is_empty() {
        return Err(of(certificate, &"no certificate in it"));
    }
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| of(key, &error))?;
    Ok(Arc::new(config))
}
