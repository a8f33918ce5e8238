//! The statements of a session: texts and prepared statements come in, each is dispatched to its
//! implementation, and its transaction ends with it.

use crate::conflicts::Conflicts;
use crate::deep::{self, Roomy};
use crate::error::{Result, SqlError};
use crate::error_position::located;
use crate::identifiers::other_database;
use crate::limits::Limits;
use crate::parsed::{Arguments, Parsed, Source, is_bound, parse, transaction_word};
use crate::point::prepared::Prepared;
use crate::repeated_texts::RepeatedTexts;
use crate::result::{Output, PendingResult, StatementResult, durable, row_tag};
use crate::row_stream::{RowStream, StatementStream};
use crate::session::Session;
use crate::session_env::PreparedStatement;
use crate::transaction::TransactionStatus;
use crate::transactions::OpenStatement;
use crate::{binding, programs};
use futures::TryStreamExt;
use serac_parser::tree::{Discard, Execute, Prepare, Reset, Show, StatementKind, Transaction};
use serac_pg::TypeId;
use std::time::SystemTime;

/// Bytes of a text that is parsed where it has come from: that takes less than a millisecond.
pub(crate) const SHORT_TEXT: usize = 8 << 10;

impl Session {
    /// Parses a script for this session: an error of syntax is one of the open transaction.
    ///
    /// # Errors
    /// As for [`parse`].
    pub fn parse(&mut self, sql: &str) -> Result<Vec<Parsed>> {
        if let Some(known) = self.repeated_texts.find(sql) {
            return Ok(vec![known]);
        }
        let statements = parse(sql).and_then(|statements| self.of_own_database(statements));
        let statements = self.failing(statements)?;
        Ok(self.repeated_texts.noted(statements))
    }

    /// Refuses statements about another database.
    fn of_own_database(&self, statements: Vec<Parsed>) -> Result<Vec<Parsed>> {
        let mut named = statements.iter().flat_map(Parsed::databases);
        let other = named.find(|named| !self.shared.is_own_database(&named.name));
        match other {
            Some(other) => Err(other_database(&other.name)),
            None => Ok(statements),
        }
    }

    /// As [`parse`](Self::parse), on another thread if the text is long: it can be cancelled, and
    /// takes no longer than a statement may.
    ///
    /// # Errors
    /// As there, and 57014.
    pub async fn parse_elsewhere(&mut self, sql: &str) -> Result<Vec<Parsed>> {
        if sql.len() <= SHORT_TEXT {
            return self.parse(sql);
        }
        let text = sql.to_owned();
        let memory = self.work_memory.of_all();
        let statements = self.limits().keep(deep::elsewhere(Some(memory), move || parse(&text))).await;
        let statements = statements.and_then(|statements| self.of_own_database(statements));
        self.failing(statements)
    }

    /// Runs a script, statement by statement, up to the first error. Nothing runs of a script with
    /// an error of syntax.
    ///
    /// # Errors
    /// The error of the first statement that fails.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        if let Some(outcome) = self.execute_text(sql).await? {
            return Ok(vec![self.acknowledged(outcome).await?.shown()?]);
        }
        if let Some(statement) = transaction_word(sql)
            && let Some(result) = self.start_control(statement)
        {
            let (result, started) = result?;
            return started.durable().await.map(|()| vec![result]);
        }
        // Boxed: the state of other statements need not be moved for the callers.
        Box::pin(self.execute_script(sql)).await
    }

    async fn execute_script(&mut self, sql: &str) -> Result<Vec<StatementResult>> {
        let mut results = Vec::new();
        for (i, statement) in self.parse_elsewhere(sql).await?.into_iter().enumerate() {
            let result = self.execute_statement(statement).await.map_err(|error| located(error, sql, i))?;
            results.push(result.shown()?);
        }
        Ok(results)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// The errors of the statement, which then has no effect.
    pub async fn execute_statement(&mut self, statement: Parsed) -> Result<StatementResult> {
        let is_deep = statement.is_deep();
        self.execute_of_depth(statement, is_deep).await
    }

    /// The same where it is known whether the statement `is_deep`.
    pub(crate) async fn execute_of_depth(&mut self, statement: Parsed, is_deep: bool) -> Result<StatementResult> {
        if statement.query_or_change().is_none() {
            if let Some(result) = self.control(&statement).await {
                return result;
            }
            if let Some(outcome) = self.execute_named(&statement).await? {
                return self.acknowledged(outcome).await;
            }
        }
        // Boxed: the planning future is about 100 KB, and would be moved for BEGIN and COMMIT, too.
        Roomy::new(is_deep, self.execute_other(statement)).await
    }

    async fn execute_other(&mut self, mut statement: Parsed) -> Result<StatementResult> {
        let tag = row_tag(&statement);
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let mut conflicts = Conflicts::default();
        let result = loop {
            let again = open.may_wait(&statement).then(|| statement.clone());
            let run = async {
                match open.run(statement).await? {
                    Output::Done(result) => Ok(result),
                    Output::Rows { schema, stream } => {
                        Ok(StatementResult::Rows { tag, schema, batches: stream.try_collect().await? })
                    }
                }
            };
            match (limits.keep(run).await, again) {
                (Err(error), Some(again)) => {
                    let claims = open.claims(&again);
                    match open.make_way(error, claims, &mut conflicts, &mut limits).await {
                        Ok(()) => statement = again,
                        Err(error) => break Err(error),
                    }
                }
                (result, _) => break result,
            }
        };
        open.into_session().finish_statement(result).await
    }

    /// The limits of a statement that starts now.
    pub fn limits(&self) -> Limits {
        Limits::new(&self.cancel, self.shared.values.statement_timeout())
    }

    /// Runs one statement and gives the rows of a query as they come. The statement ends with the
    /// last row, or when the stream is dropped.
    ///
    /// # Errors
    /// The errors of the statement; errors of a query may also come later, from the stream.
    pub async fn stream_statement(&mut self, statement: Parsed) -> Result<StatementStream<'_>> {
        let is_deep = statement.is_deep();
        self.stream_of_depth(statement, is_deep).await
    }

    /// The same where it is known whether the statement `is_deep`.
    pub(crate) async fn stream_of_depth(&mut self, statement: Parsed, is_deep: bool) -> Result<StatementStream<'_>> {
        if statement.query_or_change().is_none()
            && let Some(result) = self.control(&statement).await
        {
            return result.map(|result| StatementStream::done(self, result));
        }
        if !self.only_shows(&statement) {
            // As a whole, so that it can be begun again at a conflict.
            let result = self.execute_of_depth(statement, is_deep).await?;
            return Ok(StatementStream::done(self, result));
        }
        if let Some(outcome) = self.execute_named(&statement).await? {
            let result = self.acknowledged(outcome).await?;
            return Ok(StatementStream::done(self, result));
        }
        Roomy::new(is_deep, self.stream_other(statement)).await
    }

    async fn stream_other(&mut self, statement: Parsed) -> Result<StatementStream<'_>> {
        let tag = row_tag(&statement);
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let result = limits
            .keep(async {
                let output = open.run(statement).await?;
                if matches!(output, Output::Rows { .. }) {
                    // Rows are shown before the transaction ends, so the state that they show must
                    // be durable before.
                    open.snapshot_is_durable().await?;
                }
                Ok(output)
            })
            .await;
        let session = open.into_session();
        match result {
            Ok(Output::Rows { schema, stream }) => {
                Ok(StatementStream::Rows(RowStream::new(session, tag, schema, stream, limits)))
            }
            Ok(Output::Done(result)) => {
                let result = session.finish_statement(Ok(result)).await?;
                Ok(StatementStream::done(session, result))
            }
            Err(error) => Err(session.finish_statement::<()>(Err(error)).await.expect_err("it has failed")),
        }
    }

    /// Whether a statement neither changes nor claims rows. Then no transaction can be in its way,
    /// and its rows may be streamed.
    fn only_shows(&self, statement: &Parsed) -> bool {
        match statement.statement() {
            StatementKind::Execute(execute) => {
                let prepared = self.prepared.get(&execute.name.name);
                prepared.is_some_and(|prepared| self.only_shows(prepared.parsed()))
            }
            StatementKind::Explain(_) | StatementKind::Describe(_) | StatementKind::Show(_) => true,
            StatementKind::DescribeQuery(_) | StatementKind::Summarize(_) => true,
            _ => statement.only_shows(),
        }
    }

    /// Begins a statement, in a transaction of its own if there is no open one, and gives queries
    /// its snapshot.
    pub(crate) fn start_statement(&mut self) -> Result<()> {
        self.open_statement()?;
        self.memory_before = self.work_memory.used();
        self.shared.statement_time();
        self.scan_progress.restart();
        self.shared.statement_begins();
        self.refresh_view();
        Ok(())
    }

    /// Ends a statement: commits its own transaction and waits until the commit is durable, or
    /// undoes a failed statement.
    pub(crate) async fn finish_statement<T>(&mut self, result: Result<T>) -> Result<T> {
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let error = self.close_failed_statement(error);
                self.work_memory.given_back(self.memory_before).await;
                return Err(self.shown(error).await);
            }
        };
        match self.close_statement()? {
            Some(ticket) => {
                let durable = durable(ticket).await;
                self.failing(durable).map(|()| result)
            }
            None => Ok(result),
        }
    }

    /// Waits for the memory of the last query, if its rows were not wanted to their end.
    pub(crate) async fn abandoned_has_ended(&mut self) {
        if std::mem::take(&mut self.has_abandoned) {
            self.work_memory.given_back(self.memory_before).await;
        }
    }

    /// Ends a query whose rows are not wanted any more.
    pub(crate) fn abandon_query(&mut self) {
        self.has_abandoned = true;
        self.abandon_statement();
    }

    /// Ends a statement without effects.
    pub(crate) fn abandon_statement(&mut self) {
        if self.transaction_status() == TransactionStatus::Idle {
            self.end();
        }
    }

    /// Waits until everything that the transaction may see is durable.
    pub(crate) async fn snapshot_is_durable(&self) -> Result<()> {
        let ticket = self.shared.view().expect("a statement is running").snapshot.ticket();
        durable(ticket).await
    }

    /// Waits until all reads of the transaction so far are durable. Rows that a query gives after
    /// [that](Self::snapshot_is_durable) may show newer state than its snapshot, for example a
    /// sequence's next value.
    pub(crate) async fn reads_are_durable(&self) -> Result<()> {
        match self.running.as_ref().and_then(|running| running.txn.snapshot().unacknowledged_reads()) {
            Some(ticket) => durable(ticket).await,
            None => Ok(()),
        }
    }

    // ---- statements

    pub(crate) async fn run(&mut self, statement: Parsed) -> Result<Output> {
        let source = statement.into_source();
        if let StatementKind::Set(_) | StatementKind::Reset(_) | StatementKind::Show(Show::Setting(_)) = source.kind()
            && let Some(running) = &mut self.running
        {
            running.unstart();
        }
        match source.kind() {
            kind if is_bound(kind) => self.run_bound(source).await,
            StatementKind::Show(shown) => self.show(shown).await,
            StatementKind::Describe(name) => self.describe_relation(name).await,
            StatementKind::DescribeQuery(_) => self.describe_query(&source).await,
            StatementKind::Summarize(_) => self.summarize(source).await,
            StatementKind::Explain(explain) => Box::pin(self.explain(explain, source.clone().inside())).await,
            StatementKind::Execute(execute) => {
                let statement = self.executed(execute, &source).await?;
                // Its text is another statement's.
                Box::pin(self.run(statement)).await.map_err(SqlError::unplaced)
            }
            _ => {
                let result = self.run_command(source).await?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                Ok(Output::Done(result))
            }
        }
    }

    /// Runs a query or a change.
    pub(crate) async fn run_bound(&mut self, source: Source) -> Result<Output> {
        if !source.acts() {
            return self.query(source).await;
        }
        if let StatementKind::Insert(insert) = source.statement()
            && let Some(result) = self.insert_constants(insert).await?
        {
            self.running.as_mut().expect("it runs").check_statement_end()?;
            return Ok(Output::Done(result));
        }
        // Boxed: the state of a change need not be moved for other statements.
        Box::pin(self.run_changes(&source)).await
    }

    /// Runs a statement that gives no rows but those of FETCH, CALL and RETURNING.
    async fn run_command(&mut self, mut source: Source) -> Result<StatementResult> {
        if source.acts() {
            match source.kind() {
                StatementKind::CreateTableAs(_) | StatementKind::Copy(_) => {
                    source = Box::pin(self.run_changes_of_query(&source)).await?;
                }
                StatementKind::CreateView(_) | StatementKind::CreateMaterializedView(_) => {
                    return Err(SqlError::unsupported("a view whose query changes or claims rows"));
                }
                _ => {}
            }
        }
        match source.kind() {
            StatementKind::Copy(copy) => self.copy(copy, &source).await,
            StatementKind::Prepare(prepare) => self.prepare_named(prepare, &source).await,
            StatementKind::Deallocate(None) => {
                self.forget_all_prepared();
                Ok(StatementResult::command("DEALLOCATE ALL"))
            }
            StatementKind::Deallocate(Some(name)) => match self.forget_prepared(&name.name) {
                true => Ok(StatementResult::command("DEALLOCATE")),
                false => Err(not_prepared(&name.name)),
            },
            StatementKind::Call(call) if programs::call::is_run(call) => self.call_job(call, &source).await,
            StatementKind::Set(set) => self.set(set).await,
            StatementKind::Reset(reset) => self.reset(reset),
            StatementKind::DeclareCursor(cursor) => self.declare(cursor, &source).await,
            StatementKind::Fetch(fetch) => self.fetch(fetch),
            StatementKind::CloseCursor(name) => self.close_cursor(name.as_ref()),
            StatementKind::Discard(what) => self.discard(*what),
            StatementKind::Listen(channel) => self.listen(&channel.name),
            StatementKind::Unlisten(channel) => self.unlisten(channel.as_ref()),
            StatementKind::Notify(channel, payload) => self.notify(&channel.name, payload.as_ref()),
            StatementKind::Transaction(Transaction::Prepare(_)) => Err(SqlError::unsupported("PREPARE TRANSACTION")),
            StatementKind::Transaction(Transaction::CommitPrepared(_)) => Err(SqlError::unsupported("COMMIT PREPARED")),
            StatementKind::Transaction(Transaction::RollbackPrepared(_)) => {
                Err(SqlError::unsupported("ROLLBACK PREPARED"))
            }
            _ => self.define(&source).await,
        }
    }

    /// PREPARE.
    ///
    /// # Errors
    /// 42P05, and the error of the statement.
    async fn prepare_named(&mut self, prepare: &Prepare, source: &Source) -> Result<StatementResult> {
        let Prepare { name, types, statement: _ } = prepare;
        if self.prepared.contains_key(&name.name) {
            let message = format!("prepared statement \"{}\" already exists", name.name);
            return Err(SqlError::new(sqlstate::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let types = types.iter().map(|declared| binding::named_type(declared, source).map(|id| id.0));
        let mut prepared = Prepared::new(Parsed::of_source(source.clone().inside()), types.collect::<Result<_>>()?);
        prepared.count_arguments();
        let parameters = match prepared.parsed().query_or_change() {
            Some(bound) => self.parameter_types(bound).await?,
            None => prepared.parsed().source().types(),
        };
        let (statement, made) = (source.text_of_statement().to_owned(), SystemTime::now());
        let shown = PreparedStatement { statement, is_of_sql: true, made, parameters };
        self.shared.prepared_statements.lock().insert(name.name.clone(), shown);
        self.prepared.insert(name.name.clone(), prepared);
        Ok(StatementResult::command("PREPARE"))
    }

    /// Keeps a statement that a client has prepared by the protocol, so that EXECUTE and DEALLOCATE
    /// know it, too. Its parameters have types of the numbers `types`.
    pub fn keep_prepared(&mut self, name: &str, prepared: &Prepared, text: &str, types: &[u32]) {
        let parameters = types.iter().copied().map(TypeId).collect();
        let shown =
            PreparedStatement { statement: text.to_owned(), is_of_sql: false, made: SystemTime::now(), parameters };
        self.shared.prepared_statements.lock().insert(name.to_owned(), shown);
        let mut prepared = prepared.clone();
        prepared.count_arguments();
        self.prepared.insert(name.to_owned(), prepared);
    }

    /// Whether there is a prepared statement of this name.
    pub fn has_prepared(&self, name: &str) -> bool {
        self.prepared.contains_key(name)
    }

    /// The prepared statement of a name, its text, and the numbers of its parameters' types: for a
    /// client that binds by the protocol what PREPARE has made.
    pub fn kept_prepared(&self, name: &str) -> Option<(Prepared, String, Vec<u32>)> {
        let prepared = self.prepared.get(name)?.clone();
        let shown = self.shared.prepared_statements.lock();
        let PreparedStatement { statement, parameters, .. } = shown.get(name)?;
        Some((prepared, statement.clone(), parameters.iter().map(|id| id.0).collect()))
    }

    /// Forgets the prepared statement of a name; whether there was one.
    pub fn forget_prepared(&mut self, name: &str) -> bool {
        self.shared.prepared_statements.lock().remove(name);
        self.prepared.remove(name).is_some()
    }

    /// Forgets all prepared statements.
    fn forget_all_prepared(&mut self) {
        self.prepared.clear();
        self.shared.prepared_statements.lock().clear();
    }

    /// DISCARD: drops the session's state. A pool runs DISCARD ALL before it gives a connection to
    /// another client.
    fn discard(&mut self, what: Discard) -> Result<StatementResult> {
        let word = match what {
            // Plans are made anew for other settings.
            Discard::Plans => {
                self.shared.note_setting();
                self.repeated_texts = RepeatedTexts::default();
                "PLANS"
            }
            Discard::Sequences => {
                *self.shared.sequence_values.write() = Default::default();
                "SEQUENCES"
            }
            Discard::Temporary => {
                self.drop_temporary_tables()?;
                "TEMP"
            }
            Discard::All => {
                if self.transaction_status() != TransactionStatus::Idle {
                    return Err(SqlError::new(
                        sqlstate::ACTIVE_SQL_TRANSACTION,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.close_cursor(None)?;
                self.shared.listener.unlisten_all();
                self.shared.advisory_locks.release_session();
                self.forget_all_prepared();
                self.repeated_texts = RepeatedTexts::default();
                *self.shared.sequence_values.write() = Default::default();
                self.reset(&Reset::All)?;
                self.reset_roles()?;
                self.drop_temporary_tables()?;
                "ALL"
            }
        };
        Ok(StatementResult::command(format!("DISCARD {word}")))
    }

    /// EXECUTE of a statement of the point path; `None` for others.
    async fn execute_named(&mut self, statement: &Parsed) -> Result<Option<PendingResult>> {
        let StatementKind::Execute(execute) = statement.statement() else { return Ok(None) };
        let Some(prepared) = self.prepared.remove_entry(&execute.name.name) else { return Ok(None) };
        let mut executed = Executed { session: self, prepared: Some(prepared) };
        let Executed { session, prepared: Some((name, prepared)) } = &mut executed else { unreachable!("it is there") };
        // The error is one of the statement, which is run on the other path.
        if prepared.check_arguments(name, execute.arguments.len()).is_err() {
            return Ok(None);
        }
        let values = statement.source().arguments().values.as_deref().unwrap_or_default();
        session.execute_point(prepared, &execute.arguments, values).await.map_err(SqlError::unplaced)
    }

    /// Whether a statement claims rows.
    pub(crate) fn claims(&self, statement: &Parsed) -> bool {
        match statement.statement() {
            StatementKind::Execute(execute) => {
                self.prepared.get(&execute.name.name).is_some_and(|prepared| prepared.parsed().claims())
            }
            _ => statement.claims(),
        }
    }

    /// A statement that PREPARE has made, for this number of arguments.
    pub(crate) fn prepared(&self, name: &str, arguments: usize) -> Result<&Prepared> {
        let prepared = self.prepared.get(name).ok_or_else(|| not_prepared(name))?;
        prepared.check_arguments(name, arguments)?;
        Ok(prepared)
    }

    /// The statement that the EXECUTE at `text` runs.
    async fn executed(&self, execute: &Execute, text: &Source) -> Result<Parsed> {
        let Execute { name, arguments } = execute;
        let source = self.prepared(&name.name, arguments.len())?.parsed().source().clone();
        if arguments.is_empty() {
            return Ok(Parsed::of_source(source));
        }
        let given = match source.kind() {
            StatementKind::Call(call) => {
                let types = self.parameters_of_call(call, &source).await?;
                let values = self.arguments_of(text, arguments, &types).await?;
                Arguments { types: types.iter().map(|id| id.0).collect(), values: Some(values.into()) }
            }
            _ => self.given(&source, text, arguments).await?,
        };
        Ok(Parsed::of_source(source.with(given)))
    }
}

/// A prepared statement that is out of the session's way while this runs it.
pub(crate) struct Executed<'s> {
    session: &'s mut Session,
    prepared: Option<(String, Prepared)>,
}

impl Drop for Executed<'_> {
    fn drop(&mut self) {
        self.session.prepared.extend(self.prepared.take());
    }
}

pub(crate) fn not_prepared(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}
