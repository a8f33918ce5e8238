//! Databases and connections.

use crate::error::{SeracError, change, guarded, look, place, text, text_if_any};
use crate::result::{SeracResult, give};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use embedded::{IfExists, IngestTarget, SqlError, TransactionStatus};
use serac_connection::{Connection, DatabaseUse, Options};
use std::ffi::c_char;
use std::path::Path;

/// A database that is open.
#[derive(Debug)]
pub struct SeracDatabase(DatabaseUse);

/// A connection to a database.
#[derive(Debug)]
pub struct SeracConnection(pub Connection);

/// The state of a connection's transaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeracTransaction {
    /// No transaction is open: each statement is one.
    Idle = 0,
    /// A transaction is open.
    Open = 1,
    /// A statement of the open transaction has failed: it can only be rolled back.
    Failed = 2,
}

/// How rows are appended to a table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeracAppend {
    /// The rows are added to the table, which must be there.
    Existing = 0,
    /// The table is made if it is not there.
    CreateIfMissing = 1,
    /// The table is made, and must not be there.
    Create = 2,
    /// The table is made anew.
    Replace = 3,
}

/// The ways to append rows: whether the table is made, and what happens if it is there.
const WAYS: [(SeracAppend, bool, IfExists); 4] = [
    (SeracAppend::Existing, false, IfExists::Append),
    (SeracAppend::CreateIfMissing, true, IfExists::Append),
    (SeracAppend::Create, true, IfExists::Fail),
    (SeracAppend::Replace, true, IfExists::Replace),
];

fn options_of(text: &str) -> Result<Options, SqlError> {
    let mut options = Options::default();
    for part in text.split_ascii_whitespace() {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if !options.set(name, value)? {
            let message = format!("there is no option \"{name}\"");
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
                .explained("There are durability, memory_limit and threads."));
        }
    }
    Ok(options)
}

/// Opens the database in the folder `path`, or makes it. With NULL or `:memory:` it is a new one in
/// memory, which ends with its last connection. A process may open a folder several times.
///
/// `options`: NULL, or `name=value` with blanks between: `durability=full` (or `relaxed`, `off`),
/// `memory_limit=BYTES`, `threads=NUMBER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_open(
    path: *const c_char,
    options: *const c_char,
    database: *mut *mut SeracDatabase,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers, here and below.
        let (database, path, options) =
            unsafe { (place(database, "database")?, text_if_any(path)?, text_if_any(options)?) };
        let options = options_of(options.unwrap_or_default())?;
        let usage = match path.filter(|path| *path != ":memory:") {
            Some(path) => DatabaseUse::in_folder(Path::new(path), options, true)?,
            None => DatabaseUse::in_memory(options)?,
        };
        *database = Box::into_raw(Box::new(SeracDatabase(usage)));
        Ok(())
    })
}

/// Closes a database. Its connections stay, and with them the database. The last of them writes
/// what the database owes to the disk; an error says that it could not. The pointer ends also then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_database_close(database: *mut SeracDatabase) -> *mut SeracError {
    guarded(|| {
        if database.is_null() {
            return Ok(());
        }
        // SAFETY: the rule of pointers: it was made by `serac_open`, and is given back once.
        unsafe { Box::from_raw(database) }.0.close()
    })
}

/// A new connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_connect(
    database: *const SeracDatabase,
    connection: *mut *mut SeracConnection,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        let (connection, database) = unsafe { (place(connection, "connection")?, look(database, "database")?) };
        let new = Connection::new(database.0.another());
        *connection = Box::into_raw(Box::new(SeracConnection(new)));
        Ok(())
    })
}

/// Closes a connection: its transaction is rolled back. Its statements and results must still be
/// closed, and give errors until then. An error says that the database could not write what it owes
/// to the disk. The pointer ends also then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_connection_close(connection: *mut SeracConnection) -> *mut SeracError {
    guarded(|| {
        if connection.is_null() {
            return Ok(());
        }
        // SAFETY: the rule of pointers: it was made by `serac_connect`, and is given back
        // once.
        unsafe { Box::from_raw(connection) }.0.close()
    })
}

/// Runs a text: one statement, or a script, of which the last result counts. `result` may be NULL
/// if it is not wanted; then a query runs as far as its first rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_execute(
    connection: *const SeracConnection,
    sql: *const c_char,
    result: *mut *mut SeracResult,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        unsafe {
            let give = give(result);
            let (connection, sql) = (look(connection, "connection")?, text(sql, "sql")?);
            give(connection.0.execute(sql)?);
        }
        Ok(())
    })
}

/// Cancels the statement that another thread runs on the connection: it ends with an error (57014).
/// Without one, nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_cancel(connection: *const SeracConnection) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers.
        unsafe { look(connection, "connection")? }.0.cancel_handle().cancel();
        Ok(())
    })
}

/// Begins a transaction. In one it is an error (25001).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_begin(connection: *const SeracConnection) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    guarded(|| unsafe { look(connection, "connection")? }.0.begin())
}

/// Commits the open transaction. Without one, nothing happens. If a statement of it has failed, it
/// is rolled back, which is an error (25P02).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_commit(connection: *const SeracConnection) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    guarded(|| unsafe { look(connection, "connection")? }.0.commit())
}

/// Rolls back the open transaction. Without one, nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_rollback(connection: *const SeracConnection) -> *mut SeracError {
    // SAFETY: the rule of pointers.
    guarded(|| unsafe { look(connection, "connection")? }.0.rollback())
}

/// Tells the state of the connection's transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_transaction(
    connection: *const SeracConnection,
    transaction: *mut SeracTransaction,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers. The place is written, and not read.
        let connection = unsafe { look(connection, "connection")? };
        // SAFETY: the same.
        let place = unsafe { change(transaction.cast::<std::mem::MaybeUninit<SeracTransaction>>(), "transaction")? };
        place.write(match connection.0.transaction_status()? {
            TransactionStatus::Idle => SeracTransaction::Idle,
            TransactionStatus::Open => SeracTransaction::Open,
            TransactionStatus::Failed => SeracTransaction::Failed,
        });
        Ok(())
    })
}

/// Puts the rows of a stream of Arrow into a table, all of them or none. Columns are matched by
/// their names. `schema` may be NULL: then the search path decides. `how` is a value of
/// `SeracAppend`. `count`, which may be NULL, gets the number of rows.
///
/// The stream is moved into the call, also if it fails: its `release` is NULL afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_append(
    connection: *const SeracConnection,
    schema: *const c_char,
    table: *const c_char,
    how: u32,
    rows: *mut FFI_ArrowArrayStream,
    count: *mut u64,
) -> *mut SeracError {
    guarded(|| {
        // SAFETY: the rule of pointers. The struct is moved out, and one that has nothing to
        // release is left in its place.
        let rows = unsafe { FFI_ArrowArrayStream::from_raw(change(rows, "rows")?) };
        // SAFETY: the rule of pointers.
        let (connection, schema, table) =
            unsafe { (look(connection, "connection")?, text_if_any(schema)?, text(table, "table")?) };
        let way = WAYS.into_iter().find(|(way, ..)| *way as u32 == how);
        let (_, create, if_exists) = way.ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("there is no way {how} to append rows"))
        })?;
        let rows = ArrowArrayStreamReader::try_new(rows)?;
        let target = IngestTarget {
            schema: schema.map(ToOwned::to_owned),
            table: table.to_owned(),
            create,
            if_exists,
            ..IngestTarget::default()
        };
        let written = connection.0.ingest(&target, rows)?;
        if !count.is_null() {
            // SAFETY: the rule of pointers.
            unsafe { count.write(written) };
        }
        Ok(())
    })
}
