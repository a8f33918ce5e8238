//! `/metrics`, `/ready` and `/live` over HTTP, for who watches the server.

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serac_sql::{SqlDatabase, prometheus_text};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Connections at a time; what comes above that is closed at once.
const MAX_CONNECTIONS: usize = 32;
/// How long a client may take for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether the server takes clients. Shared by who knows and who is asked.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Says so.
    pub fn set(&self, ready: bool) {
        // Relaxed, as below: nothing else hangs on it.
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
    db: SqlDatabase,
    readiness: Readiness,
}

impl HttpServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(db: SqlDatabase, address: SocketAddr, readiness: Readiness) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, db, readiness })
    }
    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) if connections.len() < MAX_CONNECTIONS => {
                        let (db, readiness) = (self.db.clone(), self.readiness.clone());
                        let service = service_fn(move |request| answer(request, db.clone(), readiness.clone()));
                        connections.spawn(async move {
                            let mut http = http1::Builder::new();
                            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).max_buf_size(16 << 10);
                            // A client that breaks off is no business of ours.
                            let _ = http.serve_connection(TokioIo::new(socket), service).await;
                        });
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    db: SqlDatabase,
    readiness: Readiness,
) -> Result<Response<String>, Infallible> {
    let plain = |status: StatusCode, text: &str| {
        let mut response = Response::new(text.to_owned());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, "text/plain; charset=utf-8".parse().expect("a header's value"));
        response
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header's value"));
        return Ok(response);
    }
    Ok(match request.uri().path() {
        "/live" => plain(StatusCode::OK, "live\n"),
        "/ready" if !readiness.get() => plain(StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n"),
        "/ready" if !db.can_commit() => plain(StatusCode::SERVICE_UNAVAILABLE, "the log has failed\n"),
        "/ready" => plain(StatusCode::OK, "ready\n"),
        "/metrics" => {
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
