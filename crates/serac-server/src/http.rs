//! `/metrics`, `/ready` and `/live` over HTTP, for monitors of the server.
//!
//! A connection is for one request, and has a time for all of it: the request, the answer, and the
//! client's reading. So a client that does not read, or does not ask, holds no place for longer.
//! The clients of one address hold no more than half of the places.
//!
//! On a port that other machines reach, `/metrics` needs the server's token, or the name and
//! password of a superuser, as the view `serac_metrics` does. `/ready` and `/live`, which say one
//! word, are for everybody.

use crate::passwords::{Passwords, basic};
use crate::pg::{Account, Verifier};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serac_engine::security::RoleId;
use serac_export::flight::Token;
use serac_net::admission::Admission;
use serac_sql::{SqlDatabase, prometheus_text};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Connections at a time.
const MAX_CONNECTIONS: usize = 32;
/// The time that a client may take for a request, and until it has read the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether the server takes clients. Shared by the server and the HTTP port.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Sets whether the server takes clients.
    pub fn set(&self, ready: bool) {
        // Relaxed, as below: no other data depends on it.
        self.0.store(ready, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A server of HTTP that listens.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    shared: Arc<HttpState>,
    timeout: Duration,
}

/// The access to figures, if it is restricted.
#[derive(Clone, Debug, Default)]
pub struct HttpAccess {
    /// The server's token.
    pub token: Option<Token>,
    /// Passwords besides those of roles.
    pub users: HashMap<String, Verifier>,
}

/// The state that all connections share.
struct HttpState {
    db: SqlDatabase,
    readiness: Readiness,
    /// `None` if everybody may see figures.
    access: Option<HttpAccess>,
    passwords: Passwords,
    /// Figures are collected for one client at a time.
    collecting: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for HttpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("readiness", &self.readiness).finish_non_exhaustive()
    }
}

impl HttpState {
    /// Whether a request with these headers may see figures; otherwise the refusal.
    async fn check(&self, headers: &HeaderMap) -> Result<(), Response<String>> {
        let Some(access) = &self.access else { return Ok(()) };
        let shown = Token::shown(headers, "Bearer ");
        if access.token.as_ref().zip(shown).is_some_and(|(token, shown)| token.is(shown)) {
            return Ok(());
        }
        if let Some((user, password)) = basic(headers) {
            let database = self.db.database();
            let account = Account::of(&user, &access.users, database);
            let is_known = account.verifier.is_some() || account.wants_password;
            if is_known && self.passwords.is_of(&user, &account, password).await {
                let account_now = Account::of(&user, &access.users, database);
                let role = account_now.role(&user).ok().filter(|_| account_now.is(&account));
                let may =
                    |role: RoleId| database.check_login(role).is_ok() && database.catalog().security.is_superuser(role);
                return match role {
                    Some(role) if may(role) => Ok(()),
                    _ => Err(plain(StatusCode::FORBIDDEN, "metrics are for superusers\n")),
                };
            }
        }
        let mut response =
            plain(StatusCode::UNAUTHORIZED, "show the server's token, or a superuser's name and password\n");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"serac\""));
        Err(response)
    }
}

impl HttpServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(db: SqlDatabase, address: SocketAddr, readiness: Readiness) -> io::Result<Self> {
        // On an address that other machines reach, figures need a login or token by default.
        let access = (!address.ip().is_loopback()).then(HttpAccess::default);
        let (passwords, collecting) = (Passwords::default(), tokio::sync::Mutex::default());
        let shared = HttpState { db, readiness, access, passwords, collecting };
        Ok(Self { listener: TcpListener::bind(address).await?, shared: Arc::new(shared), timeout: CONNECTION_TIMEOUT })
    }

    /// Restricts the figures to these callers, on any address.
    #[must_use]
    pub fn with_access(mut self, access: HttpAccess) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.access = Some(access);
        }
        self
    }

    /// Sets the time that a connection may last.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        let admission = Admission::new(MAX_CONNECTIONS);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, address)) => {
                        let place = admission.enter(Some(address.ip()));
                        let (shared, timeout) = (self.shared.clone(), self.timeout);
                        let service = service_fn(move |request| answer(request, shared.clone()));
                        connections.spawn(async move {
                            let mut http = http1::Builder::new();
                            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).max_buf_size(16 << 10);
                            http.keep_alive(false);
                            tokio::select! {
                                // A client that breaks off needs no handling.
                                _ = http.serve_connection(TokioIo::new(socket), service) => {}
                                () = place.ends(timeout) => {}
                            }
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
    }
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn answer(request: Request<Incoming>, shared: Arc<HttpState>) -> Result<Response<String>, Infallible> {
    let db = shared.db.clone();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header's value"));
        return Ok(response);
    }
    Ok(match request.uri().path() {
        "/live" => plain(StatusCode::OK, "live\n"),
        "/ready" if !shared.readiness.get() => plain(StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n"),
        "/ready" if !db.can_commit() => plain(StatusCode::SERVICE_UNAVAILABLE, "the log has failed\n"),
        "/ready" => plain(StatusCode::OK, "ready\n"),
        "/metrics" => {
            if let Err(refused) = shared.check(request.headers()).await {
                return Ok(refused);
            }
            let _one = shared.collecting.lock().await;
            // Walking the blocks and indexes of a large database takes a while.
            match tokio::task::spawn_blocking(move || prometheus_text(&db.metrics())).await {
                Ok(text) => {
                    let mut response = plain(StatusCode::OK, &text);
                    let version = "text/plain; version=0.0.4; charset=utf-8".parse().expect("a header's value");
                    response.headers_mut().insert(CONTENT_TYPE, version);
                    response
                }
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
            }
        }
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /ready and /live\n"),
    })
}
