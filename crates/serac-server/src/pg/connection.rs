//! A connection, from its first byte to its last.
//!
//! ```text
//! TLS? → who and what → password? → ready ⇄ statements → end
//! ```
//! All that has arrived is worked off before the answers are sent, in one write; large results are sent as they come. While a statement waits or runs elsewhere,
//! the connection listens: a client that goes away cancels it.

use super::WireError;
use super::extended::{Portal, Prepared};
use super::message::{
    Body, Startup, authentication, bare, command_complete, message, message_length, parameter_status, put_i32, report,
    startup_length,
};
use super::rows::{Formats, WireBatch, describe};
use super::scram::{Exchange, MECHANISM};
use super::server::{Entry, Shared};
use bytes::{Buf, Bytes, BytesMut};
use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;
use serac_sql::{
    CancelHandle, Identity, RowStream, Rows, Session, SqlError, StatementResult, StatementStream, TransactionStatus,
    parse,
};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Answers of this size are sent before there are more.
pub(super) const SEND_BYTES: usize = 64 << 10;
/// What is read ahead while a statement runs.
const READ_AHEAD: usize = 64 << 10;
/// Room for what is read at a time: a statement's messages shall come together.
const READ_BYTES: usize = 8 << 10;
/// Largest message of a client that has not said who it is.
const MAX_LOGIN_MESSAGE: usize = 8 << 10;

/// Says when the server stops.
#[derive(Clone)]
pub(super) struct Stop(pub(super) watch::Receiver<bool>);

impl Stop {
    async fn stopped(&mut self) {
        // The sender lives as long as the server.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// The two directions of a connection.
pub(super) struct Wire<S> {
    io: S,
    pub(super) input: BytesMut,
    pub(super) out: Vec<u8>,
    /// The client is gone.
    closed: bool,
    limit: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    fn new(io: S) -> Self {
        Self { io, input: BytesMut::new(), out: Vec::new(), closed: false, limit: MAX_LOGIN_MESSAGE }
    }

    /// Sends what has been written.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        if !self.out.is_empty() {
            let sent = self.io.write_all(&self.out).await;
            self.out.clear();
            // A large result shall not be kept in mind for ever.
            self.out.shrink_to(2 * SEND_BYTES);
            sent?;
            self.io.flush().await?;
        }
        Ok(())
    }
    /// Sends what has been written if it is much.
    pub(super) async fn send_some(&mut self) -> Result<(), WireError> {
        if self.out.len() >= SEND_BYTES { self.flush().await } else { Ok(()) }
    }
    /// Reads more; false if there is no more.
    async fn fill(&mut self) -> Result<bool, WireError> {
        self.input.reserve(READ_BYTES);
        self.closed = self.closed || self.io.read_buf(&mut self.input).await? == 0;
        Ok(!self.closed)
    }

    /// A message that has arrived.
    pub(super) fn take(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        match message_length(&self.input, self.limit)? {
            Some(length) if self.input.len() >= length => {
                let mut message = self.input.split_to(length).freeze();
                let tag = message[0];
                message.advance(5);
                Ok(Some((tag, message)))
            }
            Some(length) => {
                // So much as is there already again, not what the client promises.
                self.input.reserve((length - self.input.len()).min(self.input.len().max(4_096)));
                Ok(None)
            }
            None => Ok(None),
        }
    }
    /// The next message; none if the client has gone.
    pub(super) async fn next(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            self.flush().await?;
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Runs a part of a statement, and cancels it if the client goes away meanwhile.
    pub(super) async fn attend<T>(&mut self, cancel: &CancelHandle, part: impl Future<Output = T>) -> T {
        tokio::pin!(part);
        loop {
            self.input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                result = &mut part => return result,
                read = self.io.read_buf(&mut self.input), if !self.closed && self.input.len() < READ_AHEAD => {
                    if !matches!(read, Ok(1..)) {
                        self.closed = true;
                        cancel.cancel();
                    }
                }
            }
        }
    }
}

/// A connection whose client is known.
pub(super) struct Connection<S> {
    pub(super) wire: Wire<S>,
    pub(super) session: Session,
    pub(super) cancel: CancelHandle,
    pub(super) statements: HashMap<String, Arc<Mutex<Prepared>>>,
    pub(super) portals: HashMap<String, Portal>,
    /// The rows of the point statement that has run last.
    pub(super) rows: Rows,
    /// After an error in the extended protocol, up to the next Sync.
    skipping: bool,
    /// The open transaction was not begun by the client: it has sent statements without a Sync between them.
    pub(super) implicit: bool,
    idle_timeout: Option<Duration>,
}

/// What a message leads to.
enum Next {
    Goes,
    Ends,
}

impl Connection<TcpStream> {
    /// Serves a client to its end. `is_full`: there is no room for it.
    pub(super) async fn serve(socket: TcpStream, shared: Arc<Shared>, stop: Stop, is_full: bool) {
        let login = tokio::time::timeout(shared.options.login_timeout, begin(socket, &shared));
        // A client that does not say who it is is left without a word, as one that sends nonsense before.
        let Ok(Ok(Some((wire, parameters)))) = login.await else { return };
        match wire {
            Opened::Plain(wire) => converse(wire, parameters, shared, stop, is_full).await,
            Opened::Encrypted(wire) => converse(*wire, parameters, shared, stop, is_full).await,
        }
    }
}

type Parameters = Vec<(String, String)>;

enum Opened {
    Plain(Wire<TcpStream>),
    Encrypted(Box<Wire<tokio_rustls::server::TlsStream<TcpStream>>>),
}

async fn startup<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>) -> Result<Option<Startup>, WireError> {
    loop {
        if let Some(length) = startup_length(&wire.input)?
            && wire.input.len() >= length
        {
            let body = wire.input.split_to(length);
            return Startup::read(&body[4..]).map(Some);
        }
        if !wire.fill().await? {
            return Ok(None);
        }
    }
}

/// Up to the client's name and wishes; none if it wanted something else, and has got it.
async fn begin(socket: TcpStream, shared: &Arc<Shared>) -> Result<Option<(Opened, Parameters)>, WireError> {
    let mut wire = Wire::new(socket);
    let refuse = async |mut wire: Wire<TcpStream>, error: WireError| {
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
            Ok(Some(Startup::Tls)) => match &shared.tls {
                // Anything before the handshake was not encrypted, and may be another's.
                Some(_) if !wire.input.is_empty() => return Ok(None),
                Some(acceptor) => {
                    wire.out.push(b'S');
                    wire.flush().await?;
                    let mut wire = Wire::new(acceptor.accept(wire.io).await?);
                    return match startup(&mut wire).await? {
                        Some(Startup::Session(parameters)) => Ok(Some((Opened::Encrypted(Box::new(wire)), parameters))),
                        Some(Startup::Cancel { process, secret }) => {
                            shared.cancel(process, secret);
                            Ok(None)
                        }
                        _ => Ok(None),
                    };
                }
                None => wire.out.push(b'N'),
            },
            Ok(Some(Startup::Session(parameters))) => {
                if shared.options.require_tls {
                    let message = "connections without encryption are not allowed";
                    return refuse(wire, WireError::fatal("28000", message)).await;
                }
                return Ok(Some((Opened::Plain(wire), parameters)));
            }
        }
        wire.flush().await?;
    }
}

/// From the login to the end.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut wire: Wire<S>,
    parameters: Parameters,
    shared: Arc<Shared>,
    mut stop: Stop,
    is_full: bool,
) {
    let parameter = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let user = parameter("user").unwrap_or_default().to_owned();
    let login = async {
        if is_full {
            return Err(WireError::fatal("53300", "sorry, too many clients already"));
        }
        if user.is_empty() {
            return Err(WireError::fatal("28000", "no PostgreSQL user name specified in startup packet"));
        }
        if let Some(encoding) = parameter("client_encoding")
            && !matches!(encoding.to_lowercase().replace('-', "").as_str(), "utf8" | "unicode" | "auto" | "sql_ascii")
        {
            return Err(WireError::fatal("22023", format!("client_encoding {encoding} is not supported: use UTF8")));
        }
        log_in(&mut wire, &user, &shared).await
    };
    let result = tokio::time::timeout(shared.options.login_timeout, login).await;
    match result {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) | Err(_) => return,
        Ok(Err(error)) => {
            put_error(&mut wire.out, &error, "");
            let _ = wire.flush().await;
            return;
        }
    }
    let mut session = Session::new(&shared.db);
    session.as_for_postgresql();
    let cancel = session.cancel_handle();
    let entry = shared.enter(cancel.clone());
    let database = parameter("database").filter(|name| !name.is_empty()).unwrap_or(&user).to_owned();
    session.identify(Identity { user: user.clone(), database, process: entry.process });
    greet(&mut wire.out, &user, parameter("application_name").unwrap_or_default(), &entry);
    wire.limit = shared.options.max_message;
    let idle_timeout = shared.options.idle_in_transaction_timeout;
    let mut connection = Connection {
        wire,
        session,
        cancel,
        statements: HashMap::new(),
        portals: HashMap::new(),
        rows: Rows::default(),
        skipping: false,
        implicit: false,
        idle_timeout,
    };
    if let Err(error @ WireError::Sql { .. }) = connection.work(&mut stop).await {
        put_error(&mut connection.wire.out, &error, "");
        let _ = connection.wire.flush().await;
    }
    let _ = connection.wire.io.shutdown().await;
}

/// Asks for the password, if one is needed; false if the client has gone.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    user: &str,
    shared: &Shared,
) -> Result<bool, WireError> {
    if !shared.options.users.is_empty() {
        authentication(&mut wire.out, 10, format!("{MECHANISM}\0\0").as_bytes());
        let Some((b'p', body)) = wire.next().await? else { return Ok(false) };
        let mut body = Body(&body);
        if body.string()? != MECHANISM {
            return Err(WireError::fatal("08P01", "the client has chosen a mechanism that it was not offered"));
        }
        let text = |bytes: Option<&[u8]>| {
            let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.map(str::to_owned).ok_or_else(|| WireError::fatal("08P01", "malformed SCRAM message"))
        };
        let exchange = Exchange::begin(&text(body.value()?)?, shared.options.users.get(user).cloned())?;
        authentication(&mut wire.out, 11, exchange.challenge().as_bytes());
        let Some((b'p', body)) = wire.next().await? else { return Ok(false) };
        match exchange.finish(&text(Some(&body))?)? {
            Some(answer) => authentication(&mut wire.out, 12, answer.as_bytes()),
            None => {
                let message = format!("password authentication failed for user \"{user}\"");
                return Err(WireError::fatal("28P01", message));
            }
        }
    }
    authentication(&mut wire.out, 0, &[]);
    Ok(true)
}

/// What a client is told when it may begin.
fn greet(out: &mut Vec<u8>, user: &str, application: &str, entry: &Entry) {
    for (name, value) in [
        ("server_version", "15.0"),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
        ("session_authorization", user),
        ("application_name", application),
    ] {
        parameter_status(out, name, value);
    }
    message(out, b'K', |out| {
        put_i32(out, entry.process);
        put_i32(out, entry.secret);
    });
    message(out, b'Z', |out| out.push(b'I'));
}

/// Writes an error; its place in `sql` is counted in characters.
fn put_error(out: &mut Vec<u8>, error: &WireError, sql: &str) {
    let WireError::Sql { error, fatal } = error else { return };
    let severity = if *fatal { "FATAL" } else { "ERROR" };
    let position = error.position.filter(|_| !sql.is_empty()).map(|place| position_of(sql, place).to_string());
    let mut fields = vec![(b'S', severity), (b'V', severity), (b'C', error.sqlstate), (b'M', &error.message)];
    fields.extend(error.detail.as_deref().map(|detail| (b'D', detail)));
    fields.extend(position.as_deref().map(|position| (b'P', position)));
    let of_constraint = error.sqlstate.starts_with("23");
    fields.extend(error.name.as_deref().filter(|_| of_constraint).map(|name| (b'n', name)));
    report(out, b'E', &fields);
}

/// The number, from 1, of the character in a line and a column.
fn position_of(sql: &str, (line, column): (u64, u64)) -> usize {
    let before: usize =
        sql.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(|l| l.chars().count()).sum();
    before + column.max(1) as usize
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Works off messages until the client goes, or the server stops.
    async fn work(&mut self, stop: &mut Stop) -> Result<(), WireError> {
        loop {
            while let Some((tag, body)) = self.wire.take()? {
                match self.handle(tag, &body).await? {
                    Next::Goes => self.wire.send_some().await?,
                    Next::Ends => return self.wire.flush().await,
                }
            }
            self.wire.flush().await?;
            let limit = self.idle_timeout.filter(|_| self.session.transaction_status() != TransactionStatus::Idle);
            let idle = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                more = self.wire.fill() => if !more? { return Ok(()) },
                () = stop.stopped() => {
                    let message = "terminating connection due to administrator command";
                    return Err(WireError::fatal("57P01", message));
                }
                () = idle => {
                    let message = "terminating connection due to idle-in-transaction timeout";
                    return Err(WireError::fatal("25P03", message));
                }
            }
        }
    }

    async fn handle(&mut self, tag: u8, body: &Bytes) -> Result<Next, WireError> {
        let extended = matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'H');
        if self.skipping && extended {
            return Ok(Next::Goes);
        }
        let result = match tag {
            b'Q' => {
                let sql = Body(body).string()?;
                // In a box, as all that is seldom or takes long: what a message's future holds is moved for each message.
                let result = Box::pin(self.simple(sql)).await;
                self.answer(result, sql)?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'P' => self.parse(body),
            b'B' => self.bind(body),
            b'D' => self.describe(body).await,
            b'E' => self.execute(body).await,
            b'C' => self.close(body),
            b'H' => self.wire.flush().await,
            b'S' => {
                self.skipping = false;
                let result = self.sync().await;
                self.answer(result, "")?;
                return self.ready().await.map(|()| Next::Goes);
            }
            b'X' => return Ok(Next::Ends),
            // The rest of a COPY that has failed.
            b'd' | b'c' | b'f' => return Ok(Next::Goes),
            other => {
                let message = format!("invalid frontend message type {other}");
                return Err(WireError::fatal("08P01", message));
            }
        };
        self.skipping |= result.is_err();
        self.answer(result, "")?;
        Ok(Next::Goes)
    }

    /// Tells the client of an error; an error again if that ends the connection.
    fn answer(&mut self, result: Result<(), WireError>, sql: &str) -> Result<(), WireError> {
        match result {
            Err(error @ WireError::Sql { fatal: false, .. }) => {
                put_error(&mut self.wire.out, &error, sql);
                Ok(())
            }
            other => other,
        }
    }

    /// The client may go on.
    async fn ready(&mut self) -> Result<(), WireError> {
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        message(&mut self.wire.out, b'Z', |out| out.push(status));
        Ok(())
    }

    /// A script, of the simple protocol. Several statements are one transaction, unless they say otherwise.
    async fn simple(&mut self, sql: &str) -> Result<(), WireError> {
        self.end_implicit().await?;
        if let Some(result) = self.session.execute_known(sql).await? {
            let tag = match sql.trim_start().as_bytes().first() {
                Some(b'i' | b'I') => "INSERT 0",
                Some(b'u' | b'U') => "UPDATE",
                Some(b'd' | b'D') => "DELETE",
                _ => "SELECT",
            };
            return self.put_result(result, tag);
        }
        let statements = parse(sql)?;
        if statements.is_empty() {
            bare(&mut self.wire.out, b'I');
            return Ok(());
        }
        let controls = |statement: &Statement| {
            matches!(
                statement,
                Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. }
            )
        };
        let block = statements.len() > 1
            && !statements.iter().any(controls)
            && self.session.transaction_status() == TransactionStatus::Idle;
        if block {
            self.begin_implicit().await?;
        }
        for (i, statement) in statements.into_iter().enumerate() {
            match self.run(statement).await {
                Ok(()) => {}
                Err(WireError::Sql { error, fatal }) => {
                    if block {
                        self.end_implicit().await?;
                    }
                    return Err(WireError::Sql { error: error.located(sql, i), fatal });
                }
                Err(error) => return Err(error),
            }
        }
        self.end_implicit().await
    }

    /// Begins a transaction of which the client does not know.
    pub(super) async fn begin_implicit(&mut self) -> Result<(), WireError> {
        Box::pin(self.session.execute("BEGIN")).await?;
        self.implicit = true;
        Ok(())
    }
    /// Ends it, if there is one.
    pub(super) async fn end_implicit(&mut self) -> Result<(), WireError> {
        if std::mem::take(&mut self.implicit) {
            let end = match self.session.transaction_status() {
                TransactionStatus::Idle => return Ok(()),
                TransactionStatus::Open => "COMMIT",
                TransactionStatus::Failed => "ROLLBACK",
            };
            Box::pin(self.session.execute(end)).await?;
        }
        Ok(())
    }

    /// Runs a statement and sends what it gives, as text.
    async fn run(&mut self, statement: Statement) -> Result<(), WireError> {
        if let Some(copy) = self.session.streamed_copy(&statement)? {
            return self.copy(statement, copy).await;
        }
        let tag = row_tag(&statement);
        let Self { wire, session, cancel, .. } = self;
        if changes(&statement) {
            let result = wire.attend(cancel, session.execute_statement(statement)).await?;
            return self.put_result(result, tag);
        }
        match wire.attend(cancel, session.stream_statement(statement)).await? {
            StatementStream::Command { tag, .. } => command_complete(&mut wire.out, &tag),
            StatementStream::Rows(mut rows) => {
                let formats = Formats::default();
                describe(&mut wire.out, rows.schema(), &formats);
                let count = send_rows(wire, cancel, &mut rows, &formats).await?;
                command_complete(&mut wire.out, &complete_tag(tag, count));
            }
        }
        Ok(())
    }

    /// Writes a whole result, as text.
    fn put_result(&mut self, result: StatementResult, tag: &str) -> Result<(), WireError> {
        let formats = Formats::default();
        if let StatementResult::Rows { schema, .. } = &result {
            describe(&mut self.wire.out, schema, &formats);
        }
        self.put_rows(result, tag, &formats)
    }
    /// Writes the rows of a whole result, and its tag.
    pub(super) fn put_rows(&mut self, result: StatementResult, tag: &str, formats: &Formats) -> Result<(), WireError> {
        let out = &mut self.wire.out;
        match result {
            StatementResult::Command { tag, .. } => command_complete(out, &tag),
            StatementResult::Rows { batches, .. } => {
                let mut count = 0;
                for batch in &batches {
                    let batch = WireBatch::new(batch)?;
                    (0..batch.rows()).for_each(|row| batch.put(out, row, formats));
                    count += batch.rows() as u64;
                }
                command_complete(out, &complete_tag(tag, count));
            }
        }
        Ok(())
    }
}

/// Whether a statement changes rows. It is run as a whole, so that READ COMMITTED can begin it again at a conflict.
pub(super) fn changes(statement: &Statement) -> bool {
    matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_))
}

/// The word before the number of rows.
pub(super) fn row_tag(statement: &Statement) -> &'static str {
    match statement {
        Statement::Insert(_) => "INSERT 0",
        Statement::Update(_) => "UPDATE",
        Statement::Delete(_) => "DELETE",
        Statement::Merge(_) => "MERGE",
        Statement::ShowVariable { .. } | Statement::ShowTables { .. } | Statement::ShowColumns { .. } => "SHOW",
        Statement::Explain { .. } | Statement::ExplainTable { .. } => "EXPLAIN",
        _ => "SELECT",
    }
}

/// The tag of a statement that has given rows.
pub(super) fn complete_tag(tag: &str, count: u64) -> String {
    if matches!(tag, "SHOW" | "EXPLAIN") { tag.into() } else { format!("{tag} {count}") }
}

/// Sends rows as they come; how many.
pub(super) async fn send_rows<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    cancel: &CancelHandle,
    rows: &mut RowStream<'_>,
    formats: &Formats,
) -> Result<u64, WireError> {
    let mut count = 0;
    while let Some(batch) = wire.attend(cancel, rows.next()).await? {
        let batch = WireBatch::new(&batch)?;
        for row in 0..batch.rows() {
            batch.put(&mut wire.out, row, formats);
            wire.send_some().await?;
        }
        count += batch.rows() as u64;
    }
    Ok(count)
}

/// What is missing: a statement or portal of this name.
pub(super) fn missing(sqlstate: &'static str, what: &str, name: &str) -> WireError {
    WireError::Sql { error: SqlError::new(sqlstate, format!("{what} \"{name}\" does not exist")), fatal: false }
}
