//! Connections.

use crate::error::{Result, error, of_sql, unsupported};
use crate::options::{not_found, other_forms, shown, text, truth, unknown};
use crate::statement::AdbcStatement;
use crate::{info, objects};
use adbc_core::CancelHandle;
use adbc_core::constants as names;
use adbc_core::error::Status;
use adbc_core::options::{InfoCode, ObjectDepth, OptionConnection, OptionValue};
use adbc_core::schemas::GET_TABLE_TYPES_SCHEMA;
use arrow::array::{AsArray, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use serac_connection::{Connection, Outcome, RowReader, Statement};
use seracdb::wire;
use std::collections::HashSet;
use std::sync::Arc;

/// The one catalog.
pub const CATALOG: &str = "serac";

/// Levels of isolation: the name in ADBC, and SQL's. A snapshot is what REPEATABLE READ has.
const LEVELS: [(&str, &str); 5] = [
    (names::ADBC_OPTION_ISOLATION_LEVEL_READ_UNCOMMITTED, "read uncommitted"),
    (names::ADBC_OPTION_ISOLATION_LEVEL_READ_COMMITTED, "read committed"),
    (names::ADBC_OPTION_ISOLATION_LEVEL_SNAPSHOT, "repeatable read"),
    (names::ADBC_OPTION_ISOLATION_LEVEL_REPEATABLE_READ, "repeatable read"),
    (names::ADBC_OPTION_ISOLATION_LEVEL_SERIALIZABLE, "serializable"),
];

/// A reader of some batches.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// A reader of one batch.
pub fn reader(batch: RecordBatch) -> Reader {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Cancels the statement of a connection.
pub struct Cancel(pub seracdb::CancelHandle);

impl CancelHandle for Cancel {
    fn try_cancel(&self) -> Result<()> {
        self.0.cancel();
        Ok(())
    }
}

/// A connection. It ends when it is dropped, with all that was made by it.
pub struct AdbcConnection {
    connection: Connection,
}

impl AdbcConnection {
    /// A connection with the defaults of ADBC: each statement is a transaction.
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Runs a statement. Returns the first value of its first row, as a text.
    fn run(&self, statement: &str) -> Result<Option<String>> {
        let Outcome::Rows(rows) = self.connection.execute(statement).map_err(of_sql)? else { return Ok(None) };
        let Some(batch) = RowReader::new(rows).next().transpose()? else { return Ok(None) };
        let first = cast(batch.column(0), &DataType::Utf8)?;
        Ok(first.as_string::<i32>().iter().next().flatten().map(ToOwned::to_owned))
    }

    fn setting(&self, name: &str) -> Result<String> {
        self.run(&format!("SHOW {name}"))?.ok_or_else(|| not_found(name))
    }
}

impl Drop for AdbcConnection {
    fn drop(&mut self) {
        // There is nobody who would take the error; the database's own end writes what it owes.
        let _ = self.connection.close();
    }
}

impl adbc_core::Optionable for AdbcConnection {
    type Option = OptionConnection;

    fn set_option(&mut self, key: OptionConnection, value: OptionValue) -> Result<()> {
        let name = key.as_ref().to_owned();
        match key {
            OptionConnection::AutoCommit => {
                self.connection.set_autocommit(truth(&name, value)?).map_err(of_sql)?;
            }
            OptionConnection::ReadOnly => {
                let state = if truth(&name, value)? { "on" } else { "off" };
                self.run(&format!("SET default_transaction_read_only = {state}"))?;
            }
            OptionConnection::CurrentCatalog => match text(&name, value)?.as_str() {
                CATALOG => {}
                other => return Err(error(Status::NotFound, format!("catalog \"{other}\" does not exist"))),
            },
            OptionConnection::CurrentSchema => {
                self.run(&format!("SET search_path = {}", quoted(&text(&name, value)?)))?;
            }
            OptionConnection::IsolationLevel => {
                let level = text(&name, value)?;
                if level == names::ADBC_OPTION_ISOLATION_LEVEL_DEFAULT {
                    self.run("RESET default_transaction_isolation")?;
                    return Ok(());
                }
                let known = LEVELS.iter().find(|(own, _)| *own == level);
                let (_, level) = known.ok_or_else(|| unsupported(&format!("the isolation level \"{level}\"")))?;
                self.run(&format!("SET default_transaction_isolation = '{level}'"))?;
            }
            _ => return Err(unknown(&name)),
        }
        Ok(())
    }

    fn get_option_string(&self, key: OptionConnection) -> Result<String> {
        match key {
            OptionConnection::AutoCommit => self.connection.autocommit().map(shown).map_err(of_sql),
            OptionConnection::ReadOnly => Ok(shown(self.setting("default_transaction_read_only")? == "on")),
            OptionConnection::CurrentCatalog => Ok(CATALOG.to_owned()),
            OptionConnection::CurrentSchema => {
                self.run("SELECT current_schema()")?.ok_or_else(|| not_found("adbc.connection.db_schema"))
            }
            OptionConnection::IsolationLevel => {
                let level = self.setting("default_transaction_isolation")?;
                let known = LEVELS.iter().find(|(_, own)| *own == level);
                known.map(|(name, _)| (*name).to_owned()).ok_or_else(|| not_found("isolation level"))
            }
            other => Err(not_found(other.as_ref())),
        }
    }

    other_forms!();
}

impl adbc_core::Connection for AdbcConnection {
    type StatementType = AdbcStatement;

    fn new_statement(&mut self) -> Result<AdbcStatement> {
        Ok(AdbcStatement::new(&self.connection))
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(Cancel(self.connection.cancel_handle().clone()))
    }

    fn get_info(&self, codes: Option<HashSet<InfoCode>>) -> Result<Reader> {
        info::info(codes.as_ref()).map(reader)
    }

    fn get_objects(
        &self,
        depth: ObjectDepth,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: Option<&str>,
        table_type: Option<Vec<&str>>,
        column_name: Option<&str>,
    ) -> Result<Reader> {
        let wanted = objects::Wanted {
            depth,
            catalog,
            schema: db_schema,
            table: table_name,
            types: table_type.as_deref(),
            column: column_name,
        };
        objects::objects(&self.connection, &wanted).map(reader)
    }

    fn get_table_schema(&self, catalog: Option<&str>, db_schema: Option<&str>, table_name: &str) -> Result<Schema> {
        if let Some(other) = catalog.filter(|name| !name.is_empty() && *name != CATALOG) {
            return Err(error(Status::NotFound, format!("catalog \"{other}\" does not exist")));
        }
        let schema = db_schema.filter(|name| !name.is_empty()).map(|schema| quoted(schema) + ".");
        let query = format!("SELECT * FROM {}{}", schema.unwrap_or_default(), quoted(table_name));
        let described = Statement::new(&self.connection, &query).and_then(|statement| statement.describe());
        let described = described.map_err(|error| of_sql(error.unplaced()))?;
        let schema = described.schema.as_ref().expect("a query has columns");
        Ok(wire::shown_schema(schema).as_ref().clone())
    }

    fn get_table_types(&self) -> Result<Reader> {
        let types = StringArray::from_iter_values(objects::TABLE_TYPES);
        Ok(reader(RecordBatch::try_new(GET_TABLE_TYPES_SCHEMA.clone(), vec![Arc::new(types)])?))
    }

    fn get_statistic_names(&self) -> Result<Reader> {
        Err(unsupported("a list of statistics"))
    }

    fn get_statistics(&self, _: Option<&str>, _: Option<&str>, _: Option<&str>, _: bool) -> Result<Reader> {
        Err(unsupported("a list of statistics"))
    }

    fn commit(&mut self) -> Result<()> {
        self.check_manual("commit")?;
        self.connection.commit().map_err(of_sql)
    }

    fn rollback(&mut self) -> Result<()> {
        self.check_manual("rollback")?;
        self.connection.rollback().map_err(of_sql)
    }

    fn read_partition(&self, _: impl AsRef<[u8]>) -> Result<Reader> {
        Err(unsupported("a result in partitions"))
    }
}

impl AdbcConnection {
    /// Refuses what ADBC allows only where statements are no transactions.
    fn check_manual(&self, what: &str) -> Result<()> {
        if self.connection.autocommit().map_err(of_sql)? {
            let message = format!("there is nothing to {what}: each statement is a transaction");
            return Err(error(Status::InvalidState, message));
        }
        Ok(())
    }
}
