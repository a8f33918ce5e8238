//! The way to the server: socket, TLS, login.

use console::Term;
use serac_column_language::frames::{ClientFrame, Sender, ServerFrame, VERSION};
use serac_server::operators::read_frame;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Both directions of a connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The address of a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// HOST:PORT
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Place {
    /// A text with a slash or without a colon is a path, as for `serac serve --operators`.
    pub fn new(text: &str) -> Self {
        if text.contains('/') || !text.contains(':') { Self::Unix(text.into()) } else { Self::Tcp(text.into()) }
    }
}

/// The check of the server's identity.
pub struct TlsOptions {
    pub ca: PathBuf,
    pub name: Option<String>,
}

/// The client's identity.
pub struct Login {
    user: String,
    password: Option<String>,
}

impl Login {
    /// A user, with the password of the environment.
    pub fn of(user: Option<String>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let user = user.or_else(|| variable("SERAC_USER")).or_else(|| variable("USER"));
        Self { user: user.unwrap_or_default(), password: variable("SERAC_PASSWORD").or_else(|| variable("PGPASSWORD")) }
    }

    /// The login at a server without logins, such as a server in this process: access to the folder
    /// implies all rights.
    pub fn nobody() -> Self {
        Self { user: String::new(), password: None }
    }
}

/// The reason why the server refuses the client.
pub struct Refusal {
    pub wants_password: bool,
    pub why: String,
}

impl Refusal {
    fn other(why: impl ToString) -> Self {
        Self { wants_password: false, why: why.to_string() }
    }
}

/// Sends the client's identity, and reads the answer.
pub async fn greet<S: Stream>(mut stream: S, login: &Login) -> Result<S, Refusal> {
    let mut out = Vec::new();
    ClientFrame::Hello { version: VERSION, user: &login.user, password: login.password.as_deref() }.put(&mut out);
    stream.write_all(&out).await.map_err(Refusal::other)?;
    stream.flush().await.map_err(Refusal::other)?;
    let Some(frame) = read_frame(&mut stream, Sender::Server).await.map_err(Refusal::other)? else {
        return Err(Refusal::other("the server has ended the connection"));
    };
    match ServerFrame::read(frame.kind, &frame.body) {
        Ok(ServerFrame::Welcome { .. }) => Ok(stream),
        Ok(ServerFrame::Refused { wants_password, why }) => Err(Refusal { wants_password, why: why.into() }),
        _ => Err(Refusal::other("no server of the operator language answers there")),
    }
}

/// A stream to the server, without a login.
async fn open(place: &Place, tls: Option<&TlsOptions>) -> Result<Box<dyn Stream>, String> {
    let (socket, host): (Box<dyn Stream>, &str) = match place {
        Place::Unix(path) => {
            let socket = UnixStream::connect(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
            (Box::new(socket), "localhost")
        }
        Place::Tcp(address) => {
            let socket = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
            let _ = socket.set_nodelay(true);
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            (Box::new(socket), host.trim_start_matches('[').trim_end_matches(']'))
        }
    };
    let Some(tls) = tls else { return Ok(socket) };
    let name = tls.name.as_deref().unwrap_or(host);
    let server = ServerName::try_from(name.to_owned()).map_err(|_| format!("\"{name}\" is no name of a server"))?;
    let connected = connector(&tls.ca)?.connect(server, socket).await;
    connected.map(|stream| Box::new(stream) as _).map_err(|error| format!("TLS with {name}: {error}"))
}

fn connector(ca: &Path) -> Result<TlsConnector, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", ca.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| wrong(&error))? {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"no certificate in it"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects and logs in. A password that is missing is asked for at a terminal.
pub async fn connect(place: &Place, tls: Option<&TlsOptions>, login: Login) -> Result<Box<dyn Stream>, String> {
    match greet(open(place, tls).await?, &login).await {
        Ok(stream) => Ok(stream),
        Err(refusal) if refusal.wants_password && std::io::stdin().is_terminal() => {
            eprint!("Password for user {}: ", login.user);
            let typed = Term::stderr().read_secure_line().map_err(|error| error.to_string())?;
            let login = Login { password: Some(typed), ..login };
            greet(open(place, tls).await?, &login).await.map_err(|refusal| refusal.why)
        }
        Err(refusal) if refusal.wants_password => {
            Err(format!("{}: say it in the variable SERAC_PASSWORD", refusal.why))
        }
        Err(refusal) => Err(refusal.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_slash_or_no_colon_is_a_path() {
        for (text, place) in [
            ("serac.sock", Place::Unix("serac.sock".into())),
            ("/run/a:b", Place::Unix("/run/a:b".into())),
            ("localhost:5555", Place::Tcp("localhost:5555".into())),
            ("[::1]:5555", Place::Tcp("[::1]:5555".into())),
        ] {
            assert_eq!(Place::new(text), place, "{text}");
        }
    }
}
