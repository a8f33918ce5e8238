//! Certificates and keys of servers.

use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Certificate and key of a server.
pub type TlsConfig = Arc<ServerConfig>;

/// Reads the settings of a server for TLS 1.2 and 1.3 from PEM files. `certificate` has the
/// server's certificate and the intermediate ones up to the authority; `key` has the private key.
///
/// # Errors
/// The error of a file, with its path.
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
