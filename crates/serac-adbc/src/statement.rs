//! Statements: SQL with or without parameters, and rows into a table.

use crate::connection::{Cancel, Reader};
use crate::error::{Result, error, of_sql, unsupported};
use crate::options::{not_found, other_forms, shown, text, truth, unknown};
use crate::parameters::BoundRows;
use adbc_core::error::Status;
use adbc_core::options::{OptionStatement, OptionValue};
use adbc_core::{CancelHandle, PartitionedResult, constants as names};
use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use serac_connection::{Connection, Outcome, RowReader, Statement};
use seracdb::{IfExists, IngestTarget, SqlError, TransactionStatus, wire};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

thread_local! {
    /// The rows that the last statement of the thread has changed; -1 if that is not known.
    pub static CHANGED: Cell<i64> = const { Cell::new(-1) };
}

/// The ways in which rows go into a table: the name in ADBC, whether the table is made, and what
/// happens if it is there.
const MODES: [(&str, bool, IfExists); 4] = [
    (names::ADBC_INGEST_OPTION_MODE_CREATE, true, IfExists::Fail),
    (names::ADBC_INGEST_OPTION_MODE_APPEND, false, IfExists::Append),
    (names::ADBC_INGEST_OPTION_MODE_REPLACE, true, IfExists::Replace),
    (names::ADBC_INGEST_OPTION_MODE_CREATE_APPEND, true, IfExists::Append),
];

/// The action of a statement.
enum Work {
    Nothing,
    Text(String),
    Prepared(Box<Statement>),
    Ingest,
}

/// A statement.
pub struct AdbcStatement {
    connection: Connection,
    work: Work,
    target: IngestTarget,
    bound: Option<Reader>,
}

/// The result of a statement.
enum Given {
    Changed(u64),
    Rows(Reader),
}

impl AdbcStatement {
    /// A statement that does nothing yet.
    pub fn new(connection: &Connection) -> Self {
        let target = IngestTarget { create: true, if_exists: IfExists::Fail, ..IngestTarget::default() };
        Self { connection: connection.clone(), work: Work::Nothing, target, bound: None }
    }

    /// The prepared statement.
    fn prepared(&mut self) -> Result<&mut Statement> {
        if let Work::Text(text) = &self.work {
            let statement = Statement::new(&self.connection, text).map_err(of_sql)?;
            self.work = Work::Prepared(Box::new(statement));
        }
        match &mut self.work {
            Work::Prepared(statement) => Ok(statement),
            _ => Err(error(Status::InvalidState, "the statement has no query")),
        }
    }

    /// Runs the statement. A panic is an error (XX000).
    fn run(&mut self) -> Result<Given> {
        let run = catch_unwind(AssertUnwindSafe(|| self.run_work()));
        run.unwrap_or_else(|panic| Err(of_sql(SqlError::of_panic(&*panic))))
    }

    fn run_work(&mut self) -> Result<Given> {
        let given = |outcome: Outcome| match outcome {
            Outcome::Changed(changed) => Given::Changed(changed.unwrap_or(0)),
            Outcome::Rows(rows) => Given::Rows(Box::new(RowReader::new(rows))),
        };
        let bound = self.bound.take();
        match (&mut self.work, bound) {
            (Work::Nothing, _) => Err(error(Status::InvalidState, "the statement has no query")),
            (Work::Ingest, Some(rows)) => {
                self.connection.ingest(&self.target, rows).map(Given::Changed).map_err(of_sql)
            }
            (Work::Ingest, None) => Err(error(Status::InvalidState, "there are no rows to ingest: bind some")),
            (Work::Text(text), None) => self.connection.execute(text).map(given).map_err(of_sql),
            (Work::Prepared(statement), None) => statement.execute(&[]).map(given).map_err(of_sql),
            (_, Some(rows)) => {
                let mut rows = BoundRows::new(rows);
                let connection = self.connection.clone();
                let statement = self.prepared()?;
                let next = |rows: &mut BoundRows| rows.next().map_err(|error| of_sql(SqlError::from(error)));
                let Some(first) = next(&mut rows)? else {
                    let schema = statement.describe().map_err(of_sql)?.schema.clone();
                    return Ok(schema.map_or(Given::Changed(0), |schema| empty(wire::shown_schema(&schema))));
                };
                let Some(second) = next(&mut rows)? else {
                    return statement.execute(&first).map(given).map_err(of_sql);
                };
                let mut all = All::default();
                in_one_transaction(&connection, || {
                    all.add(statement.execute(&first)?)?;
                    all.add(statement.execute(&second)?)?;
                    while let Some(row) = rows.next()? {
                        all.add(statement.execute(&row)?)?;
                    }
                    Ok(())
                })
                .map_err(of_sql)?;
                Ok(all.given())
            }
        }
    }
}

/// The results of a statement for several rows of parameters.
#[derive(Default)]
struct All {
    changed: u64,
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
}

impl All {
    fn add(&mut self, outcome: Outcome) -> Result<(), SqlError> {
        match outcome {
            Outcome::Changed(changed) => self.changed += changed.unwrap_or(0),
            Outcome::Rows(rows) => {
                let schema = wire::shown_schema(rows.schema());
                let known = self.schema.get_or_insert_with(|| schema.clone());
                if *known != schema {
                    let message = "the columns of the result depend on the parameters: execute one row at a time";
                    return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
                }
                self.batches.extend(RowReader::new(rows).collect_all()?);
            }
        }
        Ok(())
    }

    fn given(self) -> Given {
        match self.schema {
            None => Given::Changed(self.changed),
            Some(schema) => Given::Rows(Box::new(RecordBatchIterator::new(self.batches.into_iter().map(Ok), schema))),
        }
    }
}

fn empty(schema: SchemaRef) -> Given {
    Given::Rows(Box::new(RecordBatchIterator::new(std::iter::empty::<Result<RecordBatch, ArrowError>>(), schema)))
}

/// Runs work as a whole: in the open transaction, or in one of its own.
fn in_one_transaction(connection: &Connection, work: impl FnOnce() -> Result<(), SqlError>) -> Result<(), SqlError> {
    if !connection.autocommit()? || connection.transaction_status()? != TransactionStatus::Idle {
        return work();
    }
    connection.begin()?;
    match work() {
        Ok(()) => connection.commit(),
        Err(error) => {
            connection.rollback()?;
            Err(error)
        }
    }
}

impl adbc_core::Optionable for AdbcStatement {
    type Option = OptionStatement;

    fn set_option(&mut self, key: OptionStatement, value: OptionValue) -> Result<()> {
        let name = key.as_ref().to_owned();
        match key {
            OptionStatement::TargetTable => {
                self.target.table = text(&name, value)?;
                self.work = Work::Ingest;
            }
            OptionStatement::TargetCatalog => self.target.catalog = Some(text(&name, value)?),
            OptionStatement::TargetDbSchema => self.target.schema = Some(text(&name, value)?),
            OptionStatement::Temporary => {
                self.target.temporary = truth(&name, value)?;
                // Temporary tables have a schema of their own. Python's DB-API says `false` each
                // time.
                if self.target.temporary {
                    self.target.schema = None;
                }
            }
            OptionStatement::IngestMode => {
                let mode = text(&name, value)?;
                let known = MODES.iter().find(|(own, ..)| *own == mode);
                let (_, create, if_exists) =
                    *known.ok_or_else(|| unsupported(&format!("the mode of ingestion \"{mode}\"")))?;
                (self.target.create, self.target.if_exists) = (create, if_exists);
            }
            OptionStatement::Incremental if !truth(&name, value)? => {}
            OptionStatement::Incremental => return Err(unsupported("incremental execution")),
            _ => return Err(unknown(&name)),
        }
        Ok(())
    }

    fn get_option_string(&self, key: OptionStatement) -> Result<String> {
        let none = || not_found(key.as_ref());
        match &key {
            OptionStatement::TargetTable => match self.work {
                Work::Ingest => Ok(self.target.table.clone()),
                _ => Err(none()),
            },
            OptionStatement::TargetCatalog => self.target.catalog.clone().ok_or_else(none),
            OptionStatement::TargetDbSchema => self.target.schema.clone().ok_or_else(none),
            OptionStatement::Temporary => Ok(shown(self.target.temporary)),
            OptionStatement::IngestMode => {
                let own = (self.target.create, self.target.if_exists);
                let mode = MODES.iter().find(|(_, create, if_exists)| (*create, *if_exists) == own);
                mode.map(|(name, ..)| (*name).to_owned()).ok_or_else(none)
            }
            OptionStatement::Incremental => Ok(shown(false)),
            _ => Err(none()),
        }
    }

    other_forms!();
}

impl adbc_core::Statement for AdbcStatement {
    fn bind(&mut self, batch: RecordBatch) -> Result<()> {
        self.bind_stream(crate::connection::reader(batch))
    }

    fn bind_stream(&mut self, reader: Reader) -> Result<()> {
        self.bound = Some(reader);
        Ok(())
    }

    fn execute(&mut self) -> Result<Reader> {
        let reader = match self.run()? {
            Given::Rows(rows) => rows,
            Given::Changed(changed) => {
                CHANGED.set(i64::try_from(changed).unwrap_or(i64::MAX));
                match empty(Arc::new(Schema::empty())) {
                    Given::Rows(rows) => rows,
                    Given::Changed(_) => unreachable!("it has rows"),
                }
            }
        };
        Ok(reader)
    }

    fn execute_update(&mut self) -> Result<Option<i64>> {
        Ok(match self.run()? {
            Given::Changed(changed) => i64::try_from(changed).ok(),
            Given::Rows(_) => None,
        })
    }

    fn execute_schema(&mut self) -> Result<Schema> {
        let described = self.prepared()?.describe().map_err(of_sql)?;
        Ok(described.schema.as_ref().map_or_else(Schema::empty, |schema| wire::shown_schema(schema).as_ref().clone()))
    }

    fn execute_partitions(&mut self) -> Result<PartitionedResult> {
        Err(unsupported("a result in partitions"))
    }

    fn get_parameter_schema(&self) -> Result<Schema> {
        let Work::Prepared(statement) = &self.work else {
            return Err(error(Status::InvalidState, "the statement is not prepared"));
        };
        let described = statement.describe().map_err(of_sql)?;
        let field = |(at, column_type): (usize, &Option<seracdb::ColumnType>)| {
            let name = statement.parameter_names().and_then(|names| names.get(at).cloned());
            let data_type = column_type.map_or(DataType::Null, |column_type| column_type.arrow());
            Field::new(name.unwrap_or_else(|| at.to_string()), data_type, true)
        };
        let schema = Schema::new(described.parameters.iter().enumerate().map(field).collect::<Vec<_>>());
        Ok(wire::shown_schema(&Arc::new(schema)).as_ref().clone())
    }

    fn prepare(&mut self) -> Result<()> {
        self.prepared().map(drop)
    }

    fn set_sql_query(&mut self, query: impl AsRef<str>) -> Result<()> {
        self.work = Work::Text(query.as_ref().to_owned());
        Ok(())
    }

    fn set_substrait_plan(&mut self, _: impl AsRef<[u8]>) -> Result<()> {
        Err(unsupported("a plan in Substrait"))
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(Cancel(self.connection.cancel_handle().clone()))
    }
}
