//! From a connection's first byte to its first statement.
//!
//! ```text
//! TLS? → who and what → password? → ready
//! ```

use super::WireError;
use super::account::Account;
use super::connection::{Connection, Stop};
use super::message::{
    Body, Startup, Wishes, authentication, message, negotiate, parameter_status, put_i32, startup_length,
};
use super::reactor::Reactor;
use super::report::put_error;
use super::scram::{Exchange, MECHANISM};
use super::server::{Entry, ServerState};
use super::wire::Wire;
use serac_net::admission::Waiting;
use serac_net::listen::Socket;
use serac_sql::activity::{Client, Registered};
use serac_sql::{Identity, Reported, Session, SqlError};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

/// Where a client's stream comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Its address, if it has one.
    pub(super) address: Option<SocketAddr>,
    /// Whether what passes stays on this machine: then there is no TLS, nor need of it.
    pub(super) is_local: bool,
}

impl Origin {
    /// Of a socket.
    pub(super) fn of(socket: &Socket) -> Self {
        Self { address: socket.peer_address(), is_local: socket.is_unix() }
    }
}

/// Serves a client to its end. `place`: where it waits until it has logged in.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    origin: Origin,
    shared: Arc<ServerState>,
    reactor: Arc<Reactor>,
    mut stop: Stop,
    place: Waiting,
) {
    let ends = place.ends(shared.options.login_timeout);
    tokio::pin!(ends);
    let login = async {
        match begin(stream, origin, &shared).await {
            Ok(Some((Opened::Plain(wire), parameters))) => {
                enter(wire, parameters, &shared).await.map(|entered| Entered::Plain(Box::new(entered)))
            }
            Ok(Some((Opened::Encrypted(wire), parameters))) => {
                enter(*wire, parameters, &shared).await.map(|entered| Entered::Encrypted(Box::new(entered)))
            }
            _ => None,
        }
    };
    let entered = tokio::select! {
        entered = login => entered,
        // A client that does not identify itself is left without an answer, as one that sends
        // nonsense.
        () = ends => None,
        () = stop.stopped() => None,
    };
    drop(place);
    match entered {
        Some(Entered::Plain(client)) => client.serve(stop, &shared, &reactor).await,
        Some(Entered::Encrypted(client)) => client.serve(stop, &shared, &reactor).await,
        None => {}
    }
}

type Parameters = Vec<(String, String)>;

/// A client that has logged in.
struct LoggedIn<S> {
    wire: Wire<S>,
    session: Session,
    activity: Registered,
    entry: Entry,
    user: String,
    /// The permit of a connection.
    _seat: OwnedSemaphorePermit,
}

enum Entered<S> {
    Plain(Box<LoggedIn<S>>),
    Encrypted(Box<LoggedIn<tokio_rustls::server::TlsStream<S>>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> LoggedIn<S> {
    /// Serves the client to its end.
    async fn serve(self, stop: Stop, shared: &ServerState, reactor: &Reactor) {
        let Self { wire, session, activity, entry, user, _seat } = self;
        let process = entry.process();
        let connection = Connection::new(wire, session, activity, shared.options.slow_statement);
        Box::new(connection).serve(stop, reactor).await;
        debug!(user, process, "disconnected");
    }
}

enum Opened<S> {
    Plain(Wire<S>),
    Encrypted(Box<Wire<tokio_rustls::server::TlsStream<S>>>),
}

async fn startup<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>) -> Result<Option<Startup>, WireError> {
    loop {
        if let Some(length) = startup_length(&wire.input)?
            && wire.input.len() >= length
        {
            let body = wire.input.split_to(length);
            return Startup::read(&body[4..]).map(Some).map_err(WireError::made_fatal);
        }
        if !wire.fill().await? {
            return Ok(None);
        }
    }
}

/// Reads up to the client's name and wishes. `None` if the client has asked for something else, and
/// has got it.
async fn begin<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    Origin { address, is_local }: Origin,
    shared: &Arc<ServerState>,
) -> Result<Option<(Opened<S>, Parameters)>, WireError> {
    let tls = shared.tls.as_ref().filter(|_| !is_local);
    let needs_tls = shared.options.require_tls && !is_local;
    let mut wire = Wire::new(stream, address);
    let refuse = async |mut wire: Wire<S>, error: WireError| {
        put_error(&mut wire.out, &error, "");
        let _ = wire.flush().await;
        Ok(None)
    };
    loop {
        match startup(&mut wire).await {
            Ok(None) => return Ok(None),
            Err(error) => return refuse(wire, error).await,
            Ok(Some(Startup::Gss)) => wire.out.push(b'N'),
            Ok(Some(Startup::Cancel { process, secret })) => {
                shared.cancel(process, secret);
                return Ok(None);
            }
            Ok(Some(Startup::Tls)) => match tls {
                // Bytes before the handshake were not encrypted, and may come from an attacker.
                Some(_) if !wire.input.is_empty() => return Ok(None),
                Some(acceptor) => {
                    wire.out.push(b'S');
                    wire.flush().await?;
                    let mut wire = Wire::new(acceptor.accept(wire.into_io()).await?, address);
                    return match startup(&mut wire).await? {
                        Some(Startup::Session(wishes)) => {
                            let parameters = heard(&mut wire.out, wishes);
                            Ok(Some((Opened::Encrypted(Box::new(wire)), parameters)))
                        }
                        Some(Startup::Cancel { process, secret }) => {
                            shared.cancel(process, secret);
                            Ok(None)
                        }
                        _ => Ok(None),
                    };
                }
                None => wire.out.push(b'N'),
            },
            Ok(Some(Startup::Session(wishes))) => {
                if needs_tls {
                    let message = "connections without encryption are not allowed";
                    return refuse(wire, WireError::fatal(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message))
                        .await;
                }
                let parameters = heard(&mut wire.out, wishes);
                return Ok(Some((Opened::Plain(wire), parameters)));
            }
        }
        wire.flush().await?;
    }
}

/// The parameters of a session; writes the unsupported parts of the client's protocol.
fn heard(out: &mut Vec<u8>, wishes: Wishes) -> Parameters {
    if let Some(unknown) = &wishes.unknown {
        negotiate(out, unknown);
    }
    wishes.parameters
}

/// Logs a client in; `None` if it was refused, and has been told why.
async fn enter<S: AsyncRead + AsyncWrite + Unpin>(
    mut wire: Wire<S>,
    parameters: Parameters,
    shared: &Arc<ServerState>,
) -> Option<LoggedIn<S>> {
    let address = wire.address;
    let parameter = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let user = parameter("user").unwrap_or_default().to_owned();
    let login = async {
        if shared.seats.available_permits() == 0 {
            return Err(too_many());
        }
        if user.is_empty() {
            return Err(WireError::fatal(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            ));
        }
        if let Some(encoding) = parameter("client_encoding")
            && !matches!(
                encoding.to_lowercase().replace(['-', '_', '\''], "").as_str(),
                "utf8" | "unicode" | "auto" | "sqlascii"
            )
        {
            return Err(WireError::fatal(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("client_encoding {encoding} is not supported: use UTF8"),
            ));
        }
        let account = || Account::of(&user, &shared.options.users, shared.db.database());
        let begun = account();
        if !log_in(&mut wire, &user, &begun, shared).await? {
            return Ok(None);
        }
        // The exchange took as long as the client liked.
        let account = account();
        if account.is(&begun) { Ok(Some(account)) } else { Err(wrong_password(&user)) }
    };
    let login = login.await;
    let mut session = Session::new(&shared.db);
    let result = match login {
        Ok(Some(account)) => {
            let seat = shared.seats.clone().try_acquire_owned().map_err(|_| too_many());
            let entered = account.enter(&mut session, &user).map_err(|error| WireError::Sql { error, fatal: true });
            seat.and_then(|seat| entered.map(|()| seat))
        }
        Ok(None) => return None,
        Err(error) => Err(error),
    };
    let seat = result.inspect_err(|error| {
        if let WireError::Sql { error, .. } = error {
            let (sqlstate, message, address) = (error.sqlstate, &error.message, address.map(tracing::field::display));
            warn!(sqlstate, message, user, address, "login refused");
        }
    });
    let ready = seat.and_then(|seat| {
        authentication(&mut wire.out, 0, &[]);
        session.as_for_postgresql();
        let set = set_parameters(&mut session, &parameters).map_err(|error| WireError::Sql { error, fatal: true });
        set.map(|()| seat)
    });
    let seat = match ready {
        Ok(seat) => seat,
        Err(error) => {
            put_error(&mut wire.out, &error, "");
            let _ = wire.flush().await;
            return None;
        }
    };
    let client = Client {
        user: user.clone(),
        database: parameter("database").filter(|name| !name.is_empty()).unwrap_or(&user).to_owned(),
        application: session.application_name(),
        address,
    };
    let activity = shared.db.connections().enter(client.clone(), session.cancel_handle());
    let entry = shared.enter(activity.activity().clone());
    let Client { database, application, .. } = client;
    session.identify(Identity { user: user.clone(), database, process: activity.process() });
    greet(&mut wire.out, session.reported(), &entry);
    wire.admit(shared.options.max_message, activity.activity().clone());
    debug!(
        user,
        application,
        process = activity.process(),
        address = address.map(tracing::field::display),
        "connected"
    );
    Some(LoggedIn { wire, session, activity, entry, user, _seat: seat })
}

fn too_many() -> WireError {
    WireError::fatal(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
}

/// Takes the settings that a client gives with its name: those in its options, and roles, must be
/// right, others are wishes.
fn set_parameters(session: &mut Session, parameters: &Parameters) -> Result<(), SqlError> {
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" | "replication" | "client_encoding" => {}
            "options" => {
                for (name, value) in options(value)? {
                    session.set_parameter(&name, &value)?;
                }
            }
            "role" | "session_authorization" => session.set_parameter(name, value)?,
            _ => {
                let _ = session.set_parameter(&name.to_lowercase(), value);
            }
        }
    }
    session.note_initial_settings();
    Ok(())
}

/// Switches of PostgreSQL's server process that are not settings here.
const OTHER_SWITCHES: &str = "BbCDdEeFfhijklNnOPprsTtvW";

/// The settings in a text such as `-c statement_timeout=5s --work-mem=1MB -S 1024`, in which a
/// backslash takes away a space's meaning.
///
/// # Errors
/// 42601 for what is no switch, or a setting without a value; 0A000 for other switches of
/// PostgreSQL.
fn options(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let (mut words, mut word, mut letters) = (Vec::new(), String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.extend(letters.next()),
            letter if letter.is_whitespace() => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    let mut words = words.iter().map(String::as_str).filter(|word| !word.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let wrong = || {
            let message = format!("invalid command-line argument for server process: {word}");
            SqlError::new(sqlstate::SYNTAX_ERROR, message)
        };
        let mut rest = word.strip_prefix('-').ok_or_else(wrong)?.chars();
        let switch = rest.next().ok_or_else(wrong)?;
        if word == "--" {
            // The end of the switches, behind which nothing may stand.
            match words.next() {
                None => break,
                Some(word) => {
                    let message = format!("invalid command-line argument for server process: {word}");
                    return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
                }
            }
        }
        // A value stands behind the letter, or is the next word.
        let mut value = || Some(rest.as_str()).filter(|rest| !rest.is_empty()).or_else(|| words.next());
        match switch {
            'c' | '-' => {
                let setting = value().ok_or_else(wrong)?;
                let Some((name, value)) = setting.split_once('=') else {
                    let switch = if switch == 'c' { "-c " } else { "--" };
                    let message = format!("{switch}{setting} requires a value");
                    return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
                };
                settings.push((name.to_lowercase().replace('-', "_"), value.to_owned()));
            }
            'S' => settings.push(("work_mem".to_owned(), value().ok_or_else(wrong)?.to_owned())),
            other if OTHER_SWITCHES.contains(other) => {
                return Err(SqlError::unsupported(format!("the switch -{other}")));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(settings)
}

/// Asks for the password, if it is needed; false if the client has gone.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    user: &str,
    account: &Account,
    shared: &ServerState,
) -> Result<bool, WireError> {
    if account.wants_password {
        authentication(&mut wire.out, 10, format!("{MECHANISM}\0\0").as_bytes());
        let Some((b'p', body)) = wire.next().await? else { return Ok(false) };
        let mut body = Body(&body);
        if body.string()? != MECHANISM {
            return Err(WireError::fatal(
                sqlstate::PROTOCOL_VIOLATION,
                "the client has chosen a mechanism that it was not offered",
            ));
        }
        let text = |bytes: Option<&[u8]>| {
            let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.map(str::to_owned)
                .ok_or_else(|| WireError::fatal(sqlstate::PROTOCOL_VIOLATION, "malformed SCRAM message"))
        };
        let verifier = account.verifier.clone().unwrap_or_else(|| shared.mock.verifier(user));
        let exchange = Exchange::begin(&text(body.value()?)?, verifier, account.verifier.is_none())?;
        authentication(&mut wire.out, 11, exchange.challenge().as_bytes());
        let Some((b'p', body)) = wire.next().await? else { return Ok(false) };
        match exchange.finish(&text(Some(&body))?)? {
            Some(answer) => authentication(&mut wire.out, 12, answer.as_bytes()),
            None => return Err(wrong_password(user)),
        }
    }
    Ok(true)
}
fn wrong_password(user: &str) -> WireError {
    WireError::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// The greeting of a client that may begin.
fn greet(out: &mut Vec<u8>, reported: Reported, entry: &Entry) {
    let fixed = [
        ("server_version", "15.0"),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
    ];
    for (name, value) in fixed.into_iter().chain(reported.iter().map(|(name, value)| (*name, value.as_str()))) {
        parameter_status(out, name, value);
    }
    message(out, b'K', |out| {
        put_i32(out, entry.process());
        put_i32(out, entry.secret);
    });
    message(out, b'Z', |out| out.push(b'I'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let given = options(
            r"-c statement_timeout=5s  -cwork_mem=1MB --idle-session-timeout=0 -c application_name=a\ b -S 64 --",
        );
        let given = given.unwrap();
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            given,
            [
                of("statement_timeout", "5s"),
                of("work_mem", "1MB"),
                of("idle_session_timeout", "0"),
                of("application_name", "a b"),
                of("work_mem", "64")
            ]
        );
        assert!(options(" ").unwrap().is_empty());
        let invalid = |word: &str| format!("invalid command-line argument for server process: {word}");
        for (text, message) in [
            ("foo", invalid("foo")),
            ("-c work_mem=1MB foo", invalid("foo")),
            ("-x", invalid("-x")),
            ("-", invalid("-")),
            ("-c", invalid("-c")),
            ("-- foo", invalid("foo")),
            ("-c work_mem", "-c work_mem requires a value".into()),
            ("--work-mem", "--work-mem requires a value".into()),
        ] {
            let error = options(text).unwrap_err();
            assert_eq!((error.sqlstate, error.message), (sqlstate::SYNTAX_ERROR, message), "{text}");
        }
        assert_eq!(options("-fs").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
    }
}
