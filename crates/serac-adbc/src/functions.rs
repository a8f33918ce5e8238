//! Functions in front of those of `adbc_ffi`, which never works again once it has caught a panic.
//!
//! `adbc_ffi` panics where a bound row as a whole is NULL, so batches are taken over here. It does
//! not tell how many rows a statement has changed whose rows the caller takes.

use crate::error::{Result, error, of_sql};
use crate::{SeracDriver, statement};
use adbc_core::error::{AdbcStatusCode, Status};
use adbc_ffi::{FFI_AdbcDriver, FFI_AdbcError, FFI_AdbcStatement, FFIDriver, export_error};
use arrow::array::{Array, RecordBatch, RecordBatchIterator, StructArray};
use arrow::datatypes::DataType;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use seracdb::SqlError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

type ExecuteQuery = unsafe extern "C" fn(
    *mut FFI_AdbcStatement,
    *mut FFI_ArrowArrayStream,
    *mut i64,
    *mut FFI_AdbcError,
) -> AdbcStatusCode;

type BindStream =
    unsafe extern "C" fn(*mut FFI_AdbcStatement, *mut FFI_ArrowArrayStream, *mut FFI_AdbcError) -> AdbcStatusCode;

/// The functions of `adbc_ffi` that are called from here.
struct Behind {
    execute_query: ExecuteQuery,
    bind_stream: BindStream,
}

static BEHIND: OnceLock<Behind> = OnceLock::new();

fn behind() -> &'static Behind {
    BEHIND.get().expect("the driver's table was made before its statements")
}

/// The table of the driver's functions.
pub fn table() -> FFI_AdbcDriver {
    let mut table = SeracDriver::ffi_driver();
    let all = "adbc_ffi fills all places";
    let (execute_query, bind_stream) = (table.StatementExecuteQuery.expect(all), table.StatementBindStream.expect(all));
    BEHIND.get_or_init(|| Behind { execute_query, bind_stream });
    table.StatementExecuteQuery = Some(self::execute_query);
    table.StatementBind = Some(bind);
    table
}

/// Executes a statement, and tells how many rows it has changed also if the caller takes its rows.
///
/// # Safety
/// As for `AdbcStatementExecuteQuery`.
unsafe extern "C" fn execute_query(
    statement: *mut FFI_AdbcStatement,
    rows: *mut FFI_ArrowArrayStream,
    rows_affected: *mut i64,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    statement::CHANGED.set(-1);
    // SAFETY: the caller's arguments are those of this function.
    let status = unsafe { (behind().execute_query)(statement, rows, rows_affected, error) };
    if status == adbc_core::constants::ADBC_STATUS_OK && !rows.is_null() && !rows_affected.is_null() {
        // SAFETY: the caller gives a place for the number.
        unsafe { rows_affected.write_unaligned(statement::CHANGED.get()) };
    }
    status
}

/// Binds a batch, as a stream of this batch alone.
///
/// # Safety
/// As for `AdbcStatementBind`.
unsafe extern "C" fn bind(
    statement: *mut FFI_AdbcStatement,
    values: *mut FFI_ArrowArray,
    schema: *mut FFI_ArrowSchema,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    // SAFETY: the caller's arguments are those of this function.
    let batch = catch_unwind(AssertUnwindSafe(|| unsafe { batch(values, schema) }));
    match batch.unwrap_or_else(|panic| Err(of_sql(SqlError::of_panic(&*panic)))) {
        Ok(batch) => {
            let schema = batch.schema();
            let mut stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
            // SAFETY: the statement and the error are the caller's; the stream is moved out.
            unsafe { (behind().bind_stream)(statement, &raw mut stream, error) }
        }
        Err(refused) => {
            let status = refused.status.into();
            // SAFETY: the caller gives null or an error.
            unsafe { export_error(error, refused) };
            status
        }
    }
}

/// The batch that a caller gives.
///
/// # Safety
/// As for `AdbcStatementBind`.
unsafe fn batch(values: *mut FFI_ArrowArray, schema: *mut FFI_ArrowSchema) -> Result<RecordBatch> {
    let invalid = |message: &str| error(Status::InvalidArguments, message);
    // SAFETY: the caller gives null or a schema.
    let schema = unsafe { schema.as_ref() }.ok_or_else(|| invalid("there is no schema"))?;
    if values.is_null() {
        return Err(invalid("there are no values"));
    }
    // SAFETY: the caller gives an array. It is moved out, and one that has nothing to release is
    // left in its place.
    let values = unsafe { FFI_ArrowArray::from_raw(values) };
    if values.is_released() {
        return Err(invalid("the values have been released"));
    }
    // SAFETY: the array is of this schema, as the caller promises.
    let values = unsafe { from_ffi(values, schema) }?;
    if !matches!(values.data_type(), DataType::Struct(_)) {
        return Err(invalid("the values are no batch: an array of structs is one"));
    }
    let rows = StructArray::from(values);
    if rows.null_count() > 0 {
        return Err(invalid("a row as a whole is NULL: its values may be"));
    }
    Ok(RecordBatch::from(rows))
}
