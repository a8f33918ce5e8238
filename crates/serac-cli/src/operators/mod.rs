//! `serac operators`: a client of the operator language.
//!
//! Statements come line by line from the standard input. A thread reads them, puts frames into a
//! channel, and sends the files of loads behind their statements ([`input`]). A task writes the
//! frames, and another one reads the answers and shows them ([`client`]), so the client sends ahead
//! while it waits. At a terminal each line waits for its answer.
//!
//! With a database instead of a server, the same client talks to a server of this process over a
//! pair of sockets.

mod client;
mod connect;
mod graph;
mod input;

use crate::{OpenOptions, folder};
use client::Ending;
use connect::{Login, Place, TlsOptions};
use serac_net::listen::Socket;
use serac_server::operators::{OperatorsOptions, OperatorsServer};
use std::path::PathBuf;
use tokio::sync::oneshot;

#[derive(clap::Args, Debug)]
pub struct OperatorsArguments {
    /// Folder of a database that no server serves; `:memory:` for one in memory.
    #[arg(required_unless_present = "connect", conflicts_with_all = ["connect", "user", "tls_ca", "tls_name"])]
    path: Option<PathBuf>,
    /// A server: the path of its Unix socket, or HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<String>,
    /// The user's name; without it, SERAC_USER, or the name on this machine. The password is
    /// SERAC_PASSWORD, or PGPASSWORD, or is asked for at a terminal.
    #[arg(long)]
    user: Option<String>,
    /// Talks TLS with the server, whose certificate is, or was signed by, one in this file (PEM).
    #[arg(long, value_name = "FILE", requires = "connect")]
    tls_ca: Option<PathBuf>,
    /// The name in the server's certificate; without it, the host of --connect.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
    #[command(flatten)]
    options: OpenOptions,
}

/// The result of a client's end. The text of an error is empty, because the error was already
/// shown.
fn result_of(ending: Ending) -> Result<(), String> {
    if ending.ok { Ok(()) } else { Err(String::new()) }
}

/// Runs the client.
pub fn run(runtime: &tokio::runtime::Runtime, arguments: &OperatorsArguments) -> Result<(), String> {
    match &arguments.connect {
        Some(address) => {
            let place = Place::new(address);
            let tls = arguments.tls_ca.clone().map(|ca| TlsOptions { ca, name: arguments.tls_name.clone() });
            let ending = runtime.block_on(async {
                let stream = connect::connect(&place, tls.as_ref(), Login::of(arguments.user.clone())).await?;
                Ok::<_, String>(client::run(stream).await)
            })?;
            result_of(ending)
        }
        None => embedded(runtime, arguments),
    }
}

/// Opens a database, and is its only client.
fn embedded(runtime: &tokio::runtime::Runtime, arguments: &OperatorsArguments) -> Result<(), String> {
    let db = arguments.options.open(&folder(&arguments.path)).map_err(|error| match error.contains("in another process") {
        true => format!("{error}\nA server that was started with --operators takes statements of this language: --connect ADDRESS"),
        false => error,
    })?;
    let (ending, farewell) = runtime.block_on(async {
        let (own, other) = tokio::net::UnixStream::pair().map_err(|error| error.to_string())?;
        let mut server = OperatorsServer::new(db.clone(), Vec::new(), OperatorsOptions::default());
        server.adopt(Socket::Unix(other));
        let asked = server.shutdown_asked();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let client = tokio::spawn(async {
            let stream = connect::greet(own, &Login::nobody()).await.map_err(|refusal| refusal.why)?;
            Ok::<_, String>(client::run(stream).await)
        });
        // Either side may end first: the client or, by its `shutdown`, the server.
        let mut client = Some(client);
        let ending = tokio::select! {
            ending = client.as_mut().expect("it was put there") => {
                client = None;
                Some(ending.map_err(|error| error.to_string())??)
            }
            () = asked => None,
        };
        let _ = stop.send(());
        let farewell = serving.await.map_err(|error| error.to_string())?;
        Ok::<_, String>(((ending, client), farewell))
    })?;
    let closed = db.database().close().map_err(|error| error.to_string());
    let (ending, client) = ending;
    let ending = runtime.block_on(async {
        farewell.say(closed.clone()).await;
        match (ending, client) {
            (Some(ending), _) => Ok(ending),
            (None, Some(client)) => client.await.map_err(|error| error.to_string())?,
            (None, None) => unreachable!("one of them is there"),
        }
    })?;
    closed.and_then(|()| result_of(ending))
}
