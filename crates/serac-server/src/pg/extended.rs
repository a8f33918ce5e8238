//! The extended protocol: Parse, Bind, Describe, Execute, Close, Sync.
//!
//! A statement of the point path, and the control of transactions, runs on the spot, by a plain
//! call: its parameters are read from the message, its rows are written to the answer. Every other
//! statement becomes a boxed future, and so does a wait for a commit that is not yet durable or for
//! another transaction. An unboxed future would be as large as all possible work, and would be
//! moved for every message.
//!
//! **Transactions.** The messages between two Syncs are an implicit block, as in PostgreSQL, unless
//! the client has begun a transaction itself. A statement with its Sync right behind it is a
//! transaction anyway; so a block is begun only where more is to come. In a failed transaction, a
//! statement that does not end it is neither parsed nor bound.
//!
//! **Portals.** A portal runs once. A client may ask for a number of rows at a time: the rest of a
//! result is then kept until it asks again. A portal that has given all its rows gives no rows when
//! it is asked again; a portal of a statement without rows is refused. The end of the transaction
//! in which they were bound ends all portals.
//!
//! **DDL.** A statement returns the columns that its client was told, or it is refused
//! ([`serac_sql::Prepared`]): the client could not tell one column's values from another's.

use super::WireError;
use super::connection::Connection;
use super::message::{Body, bare, message, put_i16, put_i32};
use super::rows::{Formats, WireBatch, describe, put_point_row};
use super::simple::{changes, complete_tag, missing, send_rows};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use parking_lot::Mutex;
use serac_engine::values::OwnedValue;
use serac_sql::activity::{StatementKind, Wait};
use serac_sql::tree::{Discard, StatementKind as Tree};
use serac_sql::wire::{Given, TEXT, is_text_of_time, oid, scalar, text, value};
use serac_sql::{
    Blocked, Description, Parsed, PortalPlace, Start, Started, StatementResult, StatementStream, TransactionStatus,
    controls_transaction, ends_transaction, runs_outside_of_blocks,
};
use serac_storage::{ColumnType, Value};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

/// A statement that a client has prepared.
pub(super) struct Prepared {
    /// `None` for an empty text.
    statement: Option<serac_sql::Prepared>,
    text: Arc<str>,
    /// The parameters' types that the client has named; 0 for an unnamed one.
    oids: Vec<u32>,
    /// The number of its parameters; `None` if that is not known.
    wanted: Option<usize>,
    description: Option<Arc<Description>>,
}

/// A statement with parameters.
pub(super) struct Portal {
    statement: Arc<Mutex<Prepared>>,
    /// The Bind message, in which the parameters lie.
    message: Bytes,
    /// The places of the values, and whether they are in binary form.
    parameters: Vec<(Option<Range<usize>>, bool)>,
    formats: Formats,
    rest: Option<Rest>,
    has_run: bool,
    /// Its rows are those of the session's cursor of its name, since FETCH, MOVE or CLOSE have
    /// named it.
    is_cursor: bool,
    /// Its transaction is over. It is not there for the client, and keeps its memory for the next.
    is_closed: bool,
    /// The place in the transaction where it was made, or has begun to run. `None` if no savepoint
    /// can remove it.
    place: Option<Arc<PortalPlace>>,
}

impl Portal {
    /// Whether it is there for the client.
    fn is_open(&self) -> bool {
        !self.is_closed && self.place.as_ref().is_none_or(|place| !place.is_undone())
    }
}

/// The subject of a Describe.
pub(super) struct Described {
    statement: Arc<Mutex<Prepared>>,
    /// The formats of a portal.
    formats: Option<Formats>,
}

/// A statement that could not be run without waiting.
pub(super) struct Execution {
    begun: Begun,
    name: String,
    prepared: Arc<Mutex<Prepared>>,
    limit: Option<usize>,
    kind: StatementKind,
    text: Arc<str>,
    began: Instant,
}

/// The progress of a statement without waiting.
enum Begun {
    /// To its end.
    Done,
    /// It has run and waits for its commit, before the client is told.
    Commits(Started, End),
    /// Another transaction is in the way of it and its parameters.
    Blocked(Blocked, Vec<OwnedValue>),
    /// It is not for the point path.
    Other,
    /// It has rows that the client has not fetched.
    GoesOn,
}

/// The message at the end of a statement.
enum End {
    Tag(String),
    /// The rows of a statement of the point path.
    Rows,
}

/// Rows that a client has not fetched yet.
struct Rest {
    batches: VecDeque<RecordBatch>,
    /// Rows of the first batch that are gone.
    taken: usize,
    /// Rows that the client has.
    gone: u64,
    tag: &'static str,
}

impl Rest {
    /// The end of a result whose rows are all gone.
    fn none(tag: &'static str) -> Self {
        Self { batches: VecDeque::new(), taken: 0, gone: 0, tag }
    }
}

impl Portal {
    fn given(&self, i: usize, oid: u32) -> Given<'_> {
        let (range, binary) = &self.parameters[i];
        Given { bytes: range.clone().map(|range| &self.message[range]), binary: *binary, oid }
    }

    /// The parameters as a statement of the point path wants them; `None` if they are not of its
    /// types. Also `None` if the session's settings decide how their texts are read (`is_styled`).
    fn values(
        &self,
        types: &[ColumnType],
        oids: &[u32],
        is_styled: bool,
    ) -> Result<Option<Vec<OwnedValue>>, WireError> {
        let mut values = Vec::with_capacity(types.len());
        for (i, column_type) in types.iter().enumerate() {
            let given = self.given(i, oids.get(i).copied().unwrap_or(0));
            if is_styled && is_text_of_time(given, Some(*column_type)) {
                return Ok(None);
            }
            match value(given, *column_type)? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    fn scalars(
        &self,
        types: &[Option<ColumnType>],
        oids: &[u32],
        is_styled: bool,
    ) -> Result<Vec<ScalarValue>, WireError> {
        (0..self.parameters.len())
            .map(|i| {
                let oid = oids.get(i).copied().unwrap_or(0);
                let (given, inferred) = (self.given(i, oid), types.get(i).copied().flatten());
                Ok(if is_styled && is_text_of_time(given, inferred) { text(given)? } else { scalar(given, inferred)? })
            })
            .collect()
    }
}

fn protocol(message: String) -> WireError {
    WireError::error(sqlstate::PROTOCOL_VIOLATION, message)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Parse: name, text, types of parameters.
    pub(super) async fn parse(&mut self, body: &Bytes) -> Result<(), WireError> {
        let mut body = Body(body);
        let (name, sql) = (body.string()?, body.string()?);
        let count = body.count(4)?;
        let oids = (0..count).map(|_| Ok(body.int32()? as u32)).collect::<Result<Vec<_>, WireError>>()?;
        body.end()?;
        if !name.is_empty() && (self.statements.get(name).is_some() || self.session.has_prepared(name)) {
            return Err(WireError::error(
                sqlstate::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let Self { wire, session, cancel, .. } = &mut *self;
        let statement = wire.attend(cancel, session.prepare_elsewhere(sql, &oids)).await?;
        let parsed = statement.as_ref().map(serac_sql::Prepared::parsed);
        if !parsed.is_none_or(ends_transaction) {
            self.session.check_not_failed()?;
        }
        // A statement that controls transactions can be described in a failed one.
        let description = parsed.filter(|statement| controls_transaction(statement)).map(|_| Arc::default());
        let wanted = parsed.and_then(Parsed::parameter_count).map(|count| count.max(oids.len()));
        let is_bound = parsed.is_some_and(Parsed::is_query_or_change);
        let prepared = Arc::new(Mutex::new(Prepared { statement, text: sql.into(), oids, wanted, description }));
        if !name.is_empty() {
            // A statement with a name is one of SQL, too, which knows its types.
            if is_bound {
                self.description(&prepared).await?;
            }
            let prepared = prepared.lock();
            if let Some(statement) = &prepared.statement {
                self.session.keep_prepared(name, statement, sql, &prepared.oids);
            }
        }
        self.statements.insert(name, prepared);
        bare(&mut self.wire.out, b'1');
        Ok(())
    }

    /// Bind: portal, statement, formats and values of parameters, formats of columns. Returns the
    /// statement, without a portal, if it has to be [described](Self::bind_described) first: there
    /// are formats for several columns, and the number of columns is not known.
    pub(super) fn bind(&mut self, message: &Bytes) -> Result<Option<Described>, WireError> {
        self.bind_or_ask(message, true)
    }

    /// Bind of a statement that has to be described first.
    pub(super) async fn bind_described(&mut self, described: Described, message: &Bytes) -> Result<(), WireError> {
        self.description(&described.statement).await?;
        self.bind_or_ask(message, false).map(|_| ())
    }

    fn bind_or_ask(&mut self, message: &Bytes, may_ask: bool) -> Result<Option<Described>, WireError> {
        let mut body = Body(message);
        let (name, of) = (body.string()?, body.string()?);
        let statement = self.statement(of)?;
        if !statement.lock().statement.as_ref().is_some_and(|prepared| ends_transaction(prepared.parsed())) {
            self.session.check_not_failed()?;
        }
        let formats = formats(&mut body)?;
        let count = body.count(4)?;
        if formats.binary.len() > 1 && formats.binary.len() != count {
            let given = formats.binary.len();
            return Err(protocol(format!("bind message has {given} parameter formats but {count} parameters")));
        }
        let wanted = statement.lock().wanted;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != count) {
            let message =
                format!("bind message supplies {count} parameters, but prepared statement \"{of}\" requires {wanted}");
            return Err(protocol(message));
        }
        let is_there = self.portals.get(name).is_some_and(Portal::is_open);
        if !name.is_empty() && (is_there || self.session.cursor_schema(name).is_some()) {
            return Err(WireError::error(sqlstate::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let start = message.as_ptr() as usize;
        // A portal's memory is used again.
        let mut parameters = self.portals.remove(name).map(|portal| portal.parameters).unwrap_or_default();
        parameters.clear();
        for i in 0..count {
            let range = body.value()?.map(|bytes| {
                let from = bytes.as_ptr() as usize - start;
                from..from + bytes.len()
            });
            parameters.push((range, formats.is_binary(i)));
        }
        let columns = self::formats(&mut body)?;
        body.end()?;
        match self.known_description(&statement.lock()) {
            Some(description) => {
                if let Some(schema) = &description.schema {
                    check_formats(&columns, schema.fields().len())?;
                }
            }
            None if may_ask && columns.binary.len() > 1 => {
                return Ok(Some(Described { statement: statement.clone(), formats: None }));
            }
            None => {}
        }
        let portal = Portal {
            statement,
            message: message.clone(),
            parameters,
            formats: columns,
            rest: None,
            has_run: false,
            is_cursor: false,
            is_closed: false,
            place: self.session.portal_place(),
        };
        self.portals.insert(name, portal);
        bare(&mut self.wire.out, b'2');
        Ok(None)
    }

    /// DEALLOCATE of a statement that the client has prepared by the protocol; false if there is
    /// more to do.
    pub(super) fn deallocate(&mut self, statement: &Parsed) -> bool {
        let is_all = match statement.statement() {
            Tree::Deallocate(Some(name)) if self.session.transaction_status() != TransactionStatus::Failed => {
                let was_there = self.statements.remove(&name.name).is_some();
                return was_there && self.session.forget_prepared(&name.name);
            }
            Tree::Deallocate(None) => self.session.transaction_status() != TransactionStatus::Failed,
            Tree::Discard(Discard::All) => self.session.transaction_status() == TransactionStatus::Idle,
            _ => false,
        };
        if is_all {
            self.statements.retain_unnamed();
        }
        false
    }

    /// A statement that the client has prepared, by the protocol or by PREPARE.
    fn statement(&mut self, name: &str) -> Result<Arc<Mutex<Prepared>>, WireError> {
        if let Some(known) = self.statements.get(name) {
            return Ok(known.clone());
        }
        let made = self.session.kept_prepared(name).filter(|_| !name.is_empty());
        let (statement, text, oids) =
            made.ok_or_else(|| missing(sqlstate::INVALID_SQL_STATEMENT_NAME, "prepared statement", name))?;
        let wanted = statement.parsed().parameter_count().map(|count| count.max(oids.len()));
        let statement = Some(statement);
        let prepared = Arc::new(Mutex::new(Prepared { statement, text: text.into(), oids, wanted, description: None }));
        self.statements.insert(name, prepared.clone());
        Ok(prepared)
    }

    fn portal(&mut self, name: &str) -> Result<&mut Portal, WireError> {
        let open = self.portals.get_mut(name).filter(|portal| portal.is_open());
        open.ok_or_else(|| missing(sqlstate::INVALID_CURSOR_NAME, "portal", name))
    }

    /// Ends all portals, as their transaction has ended.
    pub(super) fn close_portals(&mut self) {
        self.portals.retain_unnamed();
        if let Some(portal) = self.portals.get_mut("") {
            (portal.rest, portal.is_closed) = (None, true);
        }
    }

    /// Forgets the unnamed statement and portal, which a script replaces.
    pub(super) fn forget_unnamed(&mut self) {
        self.statements.remove("");
        if let Some(portal) = self.portals.get_mut("") {
            (portal.rest, portal.is_closed) = (None, true);
        }
    }

    /// A statement's parameters and columns.
    async fn description(&mut self, statement: &Arc<Mutex<Prepared>>) -> Result<Arc<Description>, WireError> {
        let (prepared, named) = {
            let prepared = statement.lock();
            if let Some(known) = self.known_description(&prepared) {
                return Ok(known);
            }
            (prepared.statement.clone(), prepared.oids.clone())
        };
        let mut described = prepared;
        let description = match &mut described {
            Some(prepared) => {
                let Self { wire, session, cancel, .. } = &mut *self;
                Box::pin(wire.attend(cancel, session.describe(prepared, &named))).await?
            }
            None => Arc::default(),
        };
        let mut prepared = statement.lock();
        prepared.statement = described;
        // The client sends values of the types that it was told, even if the columns change. A
        // number's form is the same for all precisions, of which the statement knows more.
        let types = description.parameters.iter().map(|known| match known {
            Some(ColumnType::Decimal { .. }) | None => 0,
            Some(known) => oid(*known),
        });
        let count = prepared.oids.len().max(description.oids.len()).max(description.parameters.len());
        prepared.oids.resize(count, 0);
        let written = description.oids.iter().copied().chain(std::iter::repeat(0));
        for (named, (written, told)) in prepared.oids.iter_mut().zip(written.zip(types.chain(std::iter::repeat(0)))) {
            *named = [*named, written, told].into_iter().find(|oid| *oid != 0).unwrap_or(0);
        }
        prepared.description = Some(description.clone());
        drop(prepared);
        Ok(description)
    }

    /// The client's description of a statement, if it holds without a new look.
    fn known_description(&self, prepared: &Prepared) -> Option<Arc<Description>> {
        let holds = prepared.statement.as_ref().is_none_or(|statement| self.session.is_as_told(statement));
        prepared.description.clone().filter(|_| holds)
    }

    /// Describe: a statement or a portal. `None` if that has been answered.
    pub(super) fn describe(&mut self, body: &Bytes) -> Result<Option<Described>, WireError> {
        let mut body = Body(body);
        let (kind, name) = (body.byte()?, body.string()?);
        let described = match kind {
            b'S' => Described { statement: self.statement(name)?, formats: None },
            b'P' => {
                if !self.portals.get(name).is_some_and(Portal::is_open)
                    && let Some(schema) = self.session.cursor_schema(name)
                {
                    describe(&mut self.wire.out, &schema, &Formats::default());
                    return Ok(None);
                }
                let portal = self.portal(name)?;
                Described { statement: portal.statement.clone(), formats: Some(portal.formats.clone()) }
            }
            other => return Err(protocol(format!("invalid DESCRIBE message subtype {other}"))),
        };
        let known = self.known_description(&described.statement.lock());
        Ok(match known {
            Some(description) => {
                if description.schema.is_some() {
                    self.session.check_not_failed()?;
                }
                self.put_description(&described, &description)?;
                None
            }
            None => Some(described),
        })
    }

    /// Describes a statement for the first time.
    pub(super) async fn describe_anew(&mut self, described: Described) -> Result<(), WireError> {
        let description = self.description(&described.statement).await?;
        self.put_description(&described, &description)
    }

    fn put_description(&mut self, described: &Described, description: &Description) -> Result<(), WireError> {
        if let (Some(formats), Some(schema)) = (&described.formats, &description.schema) {
            check_formats(formats, schema.fields().len())?;
        }
        let out = &mut self.wire.out;
        if described.formats.is_none() {
            let named = described.statement.lock().oids.clone();
            let count = description.parameters.len().max(named.len());
            message(out, b't', |out| {
                put_i16(out, count as i16);
                for i in 0..count {
                    let inferred = description.parameters.get(i).copied().flatten().map_or(TEXT, oid);
                    let oid = named.get(i).copied().filter(|oid| *oid != 0).unwrap_or(inferred);
                    put_i32(out, oid as i32);
                }
            });
        }
        match &description.schema {
            Some(schema) => describe(out, schema, described.formats.as_ref().unwrap_or(&Formats::default())),
            None => bare(out, b'n'),
        }
        Ok(())
    }

    /// Close: a statement or a portal, which need not be there.
    pub(super) fn close(&mut self, body: &Bytes) -> Result<(), WireError> {
        let mut body = Body(body);
        match (body.byte()?, body.string()?) {
            // Also one that PREPARE has made.
            (b'S', name) => {
                self.statements.remove(name);
                self.session.forget_prepared(name);
            }
            // Also a cursor that DECLARE has made.
            (b'P', name) => {
                if self.portals.remove(name).is_none_or(|portal| portal.is_cursor || !portal.is_open()) {
                    self.session.forget_cursor(name);
                }
            }
            (other, _) => return Err(protocol(format!("invalid CLOSE message subtype {other}"))),
        }
        bare(&mut self.wire.out, b'3');
        Ok(())
    }

    /// Sync: the end of a group of messages.
    pub(super) async fn sync(&mut self) -> Result<(), WireError> {
        let ended = if self.session.is_implicit() { Box::pin(self.commit_implicit()).await } else { Ok(()) };
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.close_portals();
        }
        ended
    }

    async fn commit_implicit(&mut self) -> Result<(), WireError> {
        let ended = self.end_implicit().await;
        let error = match &ended {
            Err(WireError::Sql { error, .. }) => Some(error.sqlstate),
            _ => None,
        };
        self.activity.settled(StatementKind::Commit, self.session.transaction_status(), error);
        ended
    }

    /// Execute: a portal, up to a number of rows. Does the work that needs no waiting; `None` if
    /// that is all.
    pub(super) fn execute(&mut self, body: &Bytes) -> Result<Option<Execution>, WireError> {
        let mut body = Body(body);
        let (name, limit) = (body.string()?, body.int32()?);
        body.end()?;
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
        if !self.portals.get(name).is_some_and(Portal::is_open)
            && let Some(text) = self.session.cursor_text(name)
        {
            self.session.check_not_failed()?;
            let text: Arc<str> = text.into();
            let began = self.activity.begins(&text);
            let none =
                Prepared { statement: None, text: text.clone(), oids: Vec::new(), wanted: None, description: None };
            let prepared = Arc::new(Mutex::new(none));
            let (begun, name, kind) = (Begun::GoesOn, name.to_owned(), StatementKind::Select);
            return Ok(Some(Execution { begun, name, prepared, limit, kind, text, began }));
        }
        let (prepared, goes_on, has_run) = {
            let style = self.session.time_style();
            let portal = self.portal(name)?;
            portal.formats.style = style;
            (portal.statement.clone(), portal.rest.is_some() || portal.is_cursor, portal.has_run)
        };
        let known = {
            let prepared = prepared.lock();
            let statement = prepared.statement.as_ref();
            statement.map(|statement| (StatementKind::of(statement.parsed()), prepared.text.clone()))
        };
        let Some((kind, text)) = known else {
            bare(&mut self.wire.out, b'I');
            return Ok(None);
        };
        let began = self.activity.begins(&text);
        let begun = if goes_on || has_run {
            let again = WireError::error(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("portal \"{name}\" cannot be run"),
            );
            let checked = self.session.check_not_failed().map_err(WireError::from);
            checked.and(if goes_on { Ok(Begun::GoesOn) } else { Err(again) })
        } else {
            let place = self.session.portal_place();
            let portal = self.portal(name)?;
            (portal.has_run, portal.place) = (true, place.or(portal.place.take()));
            self.begin_portal(name, kind, &prepared, limit)
        };
        let result = match begun {
            Ok(Begun::Done) => Ok(()),
            Err(error) => Err(error),
            Ok(begun) => {
                return Ok(Some(Execution { begun, name: name.to_owned(), prepared, limit, kind, text, began }));
            }
        };
        self.note(kind, began, &text, &result);
        result.map(|()| None)
    }

    /// The part of a statement that has to wait. Gives it back if it may take long and that is to
    /// be elsewhere.
    pub(super) async fn finish(
        &mut self,
        mut execution: Execution,
        is_elsewhere: bool,
    ) -> Result<Option<Execution>, WireError> {
        let begun = std::mem::replace(&mut execution.begun, Begun::Other);
        let Execution { name, prepared, limit, kind, text, began, .. } = &execution;
        let result = match self.finish_portal(begun, name, prepared, *limit).await {
            Ok(true) => Ok(()),
            Ok(false) if is_elsewhere => Box::pin(self.execute_other(name, prepared, *limit)).await,
            Ok(false) => return Ok(Some(execution)),
            Err(error) => Err(error),
        };
        self.note(*kind, *began, text, &result);
        result.map(|()| None)
    }

    fn begin_portal(
        &mut self,
        name: &str,
        kind: StatementKind,
        prepared: &Arc<Mutex<Prepared>>,
        limit: Option<usize>,
    ) -> Result<Begun, WireError> {
        match kind {
            StatementKind::Begin | StatementKind::Commit | StatementKind::Rollback => {
                if !self.portal(name)?.parameters.is_empty() {
                    return Ok(Begun::Other);
                }
                let controlled = {
                    let prepared = prepared.lock();
                    self.session.start_control(prepared.statement.as_ref().expect("it is not empty").parsed())
                };
                let Some(controlled) = controlled else { return Ok(Begun::Other) };
                let (result, started) = controlled?;
                let StatementResult::Command { tag, rows } = result else { unreachable!("transactions give no rows") };
                self.row_count = rows;
                return self.settle(started, End::Tag(tag), name, prepared, limit);
            }
            _ => {
                let is_alone = self.wire.has_sync() || {
                    let prepared = prepared.lock();
                    let statement = prepared.statement.as_ref().expect("it is not empty").parsed();
                    runs_outside_of_blocks(statement)
                };
                if !is_alone {
                    self.session.begin_implicit();
                }
            }
        }
        self.begin_point(name, prepared, limit)
    }

    /// Runs a statement of the point path, unless it has to wait.
    fn begin_point(
        &mut self,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        limit: Option<usize>,
    ) -> Result<Begun, WireError> {
        let Self { session, portals, rows, .. } = &mut *self;
        let portal = portals.get(name).expect("it was found");
        let mut guard = prepared.lock();
        let Prepared { statement, oids, .. } = &mut *guard;
        let statement = statement.as_mut().expect("it is not empty");
        let Some(types) = statement.parameter_types() else { return Ok(Begun::Other) };
        if types.len() != portal.parameters.len() {
            let (given, wanted) = (portal.parameters.len(), types.len());
            let message = format!("bind message supplies {given} parameters, but prepared statement requires {wanted}");
            return Err(protocol(message));
        }
        let Some(owned) = portal.values(types, oids, portal.formats.style.is_some())? else { return Ok(Begun::Other) };
        let values: SmallVec<[Value<'_>; 8]> = owned.iter().map(OwnedValue::as_value).collect();
        let started = session.start_prepared(statement, &values, rows)?;
        drop((values, guard));
        match started {
            Start::Ran(started) => self.settle(started, End::Rows, name, prepared, limit),
            Start::Blocked(blocked) => Ok(Begun::Blocked(blocked, owned)),
            Start::Other => Ok(Begun::Other),
        }
    }

    /// Writes the end of a statement, if it is durable.
    fn settle(
        &mut self,
        started: Started,
        end: End,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        limit: Option<usize>,
    ) -> Result<Begun, WireError> {
        if !started.is_durable() {
            return Ok(Begun::Commits(started, end));
        }
        self.put_end(end, name, prepared, started.affected, limit)
    }

    /// Writes the end of a statement.
    fn put_end(
        &mut self,
        end: End,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        affected: u64,
        limit: Option<usize>,
    ) -> Result<Begun, WireError> {
        match end {
            End::Tag(tag) => {
                self.wire.complete(&tag);
                Ok(Begun::Done)
            }
            End::Rows => self.put_point_rows(name, prepared, affected, limit),
        }
    }

    /// Writes the result of a statement of the point path.
    fn put_point_rows(
        &mut self,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        affected: u64,
        limit: Option<usize>,
    ) -> Result<Begun, WireError> {
        let prepared = prepared.lock();
        let statement = prepared.statement.as_ref().expect("it has run");
        let tag = serac_sql::row_tag(statement.parsed());
        let Self { wire, rows, portals, row_count, .. } = &mut *self;
        let portal = portals.get_mut(name).expect("it was found");
        match statement.schema() {
            None => {
                *row_count = affected;
                wire.complete(&complete_tag(tag, affected));
            }
            Some(_) if limit.is_some_and(|limit| limit < rows.len()) => {
                portal.rest = Some(Rest { batches: [statement.batch(rows)?].into(), taken: 0, gone: 0, tag });
                rows.give_back();
                return Ok(Begun::GoesOn);
            }
            Some(_) => {
                let types = (statement.column_types(), statement.column_widths());
                (0..rows.len()).for_each(|row| put_point_row(&mut wire.out, rows, row, types, &portal.formats));
                *row_count = rows.len() as u64;
                rows.give_back();
                wire.complete(&complete_tag(tag, *row_count));
                portal.rest = Some(Rest::none(tag));
            }
        }
        Ok(Begun::Done)
    }

    /// Whether it has come to its end; if not, it is not for the point path.
    async fn finish_portal(
        &mut self,
        mut begun: Begun,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        limit: Option<usize>,
    ) -> Result<bool, WireError> {
        loop {
            begun = match begun {
                Begun::Done => return Ok(true),
                Begun::GoesOn => return self.go_on(name, limit).await.map(|()| true),
                Begun::Other => return Ok(false),
                Begun::Blocked(blocked, values) => {
                    let Self { wire, session, cancel, rows, .. } = &mut *self;
                    // The statement is the session's while it runs.
                    let mut statement = prepared.lock().statement.take().expect("it has begun");
                    let values: Vec<Value<'_>> = values.iter().map(OwnedValue::as_value).collect();
                    let resumed = session.resume_prepared(blocked, &mut statement, &values, rows);
                    let ran = wire.attend(cancel, resumed).await;
                    prepared.lock().statement = Some(statement);
                    ran?.map_or(Begun::Other, |started| Begun::Commits(started, End::Rows))
                }
                Begun::Commits(started, end) => {
                    let affected = started.affected;
                    if !started.is_durable() {
                        // Earlier answers need not wait with this one.
                        self.wire.flush().await?;
                        self.activity.waits(Wait::Commit);
                        let durable = started.durable().await;
                        self.activity.waits(Wait::Nothing);
                        durable?;
                    }
                    self.put_end(end, name, prepared, affected, limit)?
                }
            };
        }
    }

    /// Runs any other statement.
    async fn execute_other(
        &mut self,
        name: &str,
        prepared: &Arc<Mutex<Prepared>>,
        limit: Option<usize>,
    ) -> Result<(), WireError> {
        let mut statement = prepared.lock().statement.clone().expect("it is not empty");
        self.adopt(statement.parsed()).await?;
        if let Some(copy) = self.session.streamed_copy(statement.parsed())? {
            let tag = self.copy(statement.parsed().clone(), copy).await?;
            self.wire.complete(&tag);
            return Ok(());
        }
        if self.deallocate(statement.parsed()) {
            self.wire.complete("DEALLOCATE");
            return Ok(());
        }
        if statement.parsed().shows_changes() {
            self.session.begin_implicit();
        }
        let scalars = self.scalars(name, prepared).await?;
        let Self { wire, session, cancel, portals, row_count, .. } = &mut *self;
        let portal = portals.get_mut(name).expect("it was found");
        if changes(statement.parsed()) && limit.is_none() {
            let formats = portal.formats.clone();
            let result = wire.attend(cancel, session.execute_prepared(&mut statement, &scalars)).await?;
            if let StatementResult::Rows { tag, .. } = &result {
                portal.rest = Some(Rest::none(tag));
            }
            let tag = self.put_rows(result, &formats).await?;
            self.wire.complete(&tag);
            return Ok(());
        }
        let rest = match wire.attend(cancel, session.stream_prepared(&mut statement, &scalars)).await? {
            StatementStream::Command { tag, rows } => {
                *row_count = rows;
                wire.complete(&tag);
                return Ok(());
            }
            StatementStream::Rows(mut rows) if limit.is_none() => {
                let count = send_rows(wire, cancel, &mut rows, &portal.formats).await?;
                wire.complete(&complete_tag(rows.tag(), count));
                *row_count = count;
                portal.rest = Some(Rest::none(rows.tag()));
                return Ok(());
            }
            StatementStream::Rows(mut rows) => {
                let mut batches = VecDeque::new();
                while let Some(batch) = wire.attend(cancel, rows.next()).await? {
                    batches.push_back(batch);
                }
                Rest { batches, taken: 0, gone: 0, tag: rows.tag() }
            }
        };
        portal.rest = Some(rest);
        self.go_on(name, limit).await
    }

    /// The parameters of a portal, whose columns the client was told.
    async fn scalars(&mut self, name: &str, prepared: &Arc<Mutex<Prepared>>) -> Result<Vec<ScalarValue>, WireError> {
        let types = if self.portal(name)?.parameters.is_empty() {
            Vec::new()
        } else {
            self.description(prepared).await?.parameters.clone()
        };
        let (oids, told) = {
            let prepared = prepared.lock();
            (prepared.oids.clone(), prepared.description.as_ref().and_then(|description| description.schema.clone()))
        };
        let portal = self.portal(name)?;
        portal.formats.told = told;
        portal.scalars(&types, &oids, portal.formats.style.is_some())
    }

    /// Makes a cursor of the portal that a FETCH, a MOVE or a CLOSE names, if that is one of the
    /// protocol's, and a query's.
    pub(super) async fn adopt(&mut self, statement: &Parsed) -> Result<(), WireError> {
        let (name, is_closed) = match statement.statement() {
            Tree::Fetch(fetch) => (&fetch.cursor.name, false),
            Tree::CloseCursor(Some(name)) => (&name.name, true),
            Tree::CloseCursor(None) => {
                self.portals.retain_unnamed();
                return Ok(());
            }
            Tree::DeclareCursor(cursor) if self.portals.get(&cursor.name.name).is_some_and(Portal::is_open) => {
                let message = format!("cursor \"{}\" already exists", cursor.name.name);
                return Err(WireError::error(sqlstate::DUPLICATE_CURSOR, message));
            }
            _ => return Ok(()),
        };
        let Some(portal) = self.portals.get(name).filter(|portal| portal.is_open()) else { return Ok(()) };
        self.session.check_not_failed()?;
        let prepared = portal.statement.clone();
        let (mut statement, text) = {
            let prepared = prepared.lock();
            match &prepared.statement {
                Some(statement) if StatementKind::of(statement.parsed()) == StatementKind::Select => {
                    (statement.clone(), prepared.text.clone())
                }
                _ => return Ok(()),
            }
        };
        if !self.portal(name)?.is_cursor {
            let schema = self.description(&prepared).await?.schema.clone();
            if !self.portal(name)?.has_run {
                let scalars = self.scalars(name, &prepared).await?;
                self.session.begin_implicit();
                let Self { wire, session, cancel, portals, .. } = &mut *self;
                let portal = portals.get_mut(name).expect("it was found");
                (portal.has_run, portal.place) = (true, session.portal_place().or(portal.place.take()));
                if let StatementStream::Rows(mut rows) =
                    wire.attend(cancel, session.stream_prepared(&mut statement, &scalars)).await?
                {
                    let mut batches = VecDeque::new();
                    while let Some(batch) = wire.attend(cancel, rows.next()).await? {
                        batches.push_back(batch);
                    }
                    portal.rest = Some(Rest { batches, taken: 0, gone: 0, tag: rows.tag() });
                }
            }
            let portal = self.portal(name)?;
            let (Some(rest), Some(schema)) = (portal.rest.take(), schema) else { return Ok(()) };
            portal.is_cursor = true;
            let Rest { batches, taken, gone, tag: _ } = rest;
            let left = batches.iter().enumerate().map(|(at, batch)| match at {
                0 => batch.slice(taken, batch.num_rows() - taken),
                _ => batch.clone(),
            });
            let (name, left) = (name.clone(), left.collect());
            self.session.keep_portal(&name, &text, gone, schema, left)?;
        }
        if is_closed {
            self.portals.remove(name);
        }
        Ok(())
    }

    /// Sends up to `limit` of the rows that a cursor has left.
    async fn go_on_with_cursor(
        &mut self,
        name: &str,
        limit: Option<usize>,
        formats: &Formats,
    ) -> Result<(), WireError> {
        let Self { wire, row_count, session, .. } = self;
        let (batches, is_at_end) = session.next_of_cursor(name, limit)?;
        *row_count = 0;
        for batch in &batches {
            let piece = WireBatch::new(batch, formats)?;
            for row in 0..piece.rows() {
                piece.put(&mut wire.out, row, formats);
                wire.send_some().await?;
            }
            *row_count += piece.rows() as u64;
        }
        match is_at_end {
            true => wire.complete(&complete_tag("SELECT", *row_count)),
            false => bare(&mut wire.out, b's'),
        }
        Ok(())
    }

    /// Sends up to `limit` of the rows that are left.
    async fn go_on(&mut self, name: &str, limit: Option<usize>) -> Result<(), WireError> {
        let of_cursor = match self.portals.get(name).filter(|portal| portal.is_open()) {
            Some(portal) => portal.is_cursor.then(|| portal.formats.clone()),
            // A cursor that DECLARE has made gives texts.
            None => Some(Formats { style: self.session.time_style(), ..Formats::default() }),
        };
        if let Some(formats) = of_cursor {
            return self.go_on_with_cursor(name, limit, &formats).await;
        }
        let Self { portals, wire, row_count, .. } = self;
        let portal = portals.get_mut(name).expect("it was found");
        let rest = portal.rest.as_mut().expect("there is one");
        let mut left = limit.unwrap_or(usize::MAX);
        let mut sent = 0;
        while let Some(batch) = rest.batches.front() {
            let rows = batch.num_rows();
            let to = rows.min(rest.taken.saturating_add(left));
            let piece = WireBatch::new(&batch.slice(rest.taken, to - rest.taken), &portal.formats)?;
            for row in 0..piece.rows() {
                piece.put(&mut wire.out, row, &portal.formats);
                wire.send_some().await?;
            }
            left -= piece.rows();
            sent += piece.rows() as u64;
            rest.gone += piece.rows() as u64;
            *row_count = sent;
            rest.taken = to;
            if to < rows {
                bare(&mut wire.out, b's');
                return Ok(());
            }
            rest.batches.pop_front();
            rest.taken = 0;
        }
        wire.complete(&complete_tag(rest.tag, sent));
        // It is at its end, and stays there.
        Ok(())
    }
}

/// Refuses a wrong number of formats for the columns: a single format, or an empty list, is for
/// all.
fn check_formats(formats: &Formats, columns: usize) -> Result<(), WireError> {
    let given = formats.binary.len();
    match given > 1 && given != columns {
        true => Err(protocol(format!("bind message has {given} result formats but query has {columns} columns"))),
        false => Ok(()),
    }
}

/// Format codes: 0 for text, 1 for binary.
fn formats(body: &mut Body<'_>) -> Result<Formats, WireError> {
    let count = body.count(2)?;
    let format = |_| match body.int16()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(protocol(format!("invalid format code {other}"))),
    };
    let binary = (0..count).map(format).collect::<Result<_, _>>()?;
    Ok(Formats { binary, ..Formats::default() })
}
