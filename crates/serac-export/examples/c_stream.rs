//! A library for other languages: `serac_example_stream` fills an ArrowArrayStream with the rows of
//! a table. Python reads it with `pyarrow.RecordBatchReader._import_from_c(address)`; see
//! tests/readers.py.

#[path = "../tests/common/every.rs"]
mod every;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};
use serac_engine::{Database, EngineError, VarlenForm};
use serac_export::c_stream;
use serac_storage::{ColumnType, FreezeFormat};
use std::time::Duration;

/// Half of the rows lie in blocks that are frozen as the form wants them, half in hot ones.
fn stream(rows: i64, form: VarlenForm) -> Result<FFI_ArrowArrayStream, EngineError> {
    let batch = every::every(0..rows);
    let column = |field: &arrow_schema::FieldRef| ColumnDefinition {
        nullable: field.is_nullable(),
        ..ColumnDefinition::new(
            field.name().clone(),
            ColumnType::from_arrow(field.data_type()).expect("a type of tables"),
        )
    };
    let columns: Vec<_> = batch.schema().fields().iter().map(column).collect();
    let db = Database::in_memory()?;
    let mut txn = db.begin();
    let freeze_format = match form {
        VarlenForm::View => FreezeFormat::View,
        VarlenForm::Offsets => FreezeFormat::Utf8,
        VarlenForm::Dictionary => FreezeFormat::Dictionary,
    };
    txn.create_table(TableDefinition { freeze_format, ..TableDefinition::new("public", "every", columns) })?;
    let table = txn.catalog().table("public", "every")?.clone();
    let half = batch.num_rows() / 2;
    txn.insert_batch(&table, &batch.slice(0, half))?;
    txn.commit()?.wait()?;
    db.storage().freeze_table(&table.data, Duration::from_secs(20));
    let mut txn = db.begin();
    txn.insert_batch(&table, &batch.slice(half, batch.num_rows() - half))?;
    txn.commit()?.wait()?;
    let all: Vec<usize> = (0..batch.num_columns()).collect();
    // The stream keeps its memory: the database may go.
    Ok(c_stream(db.begin().scan_arrow(&table, &all, &[])?.with_varlen(form)))
}

/// Fills `*out` with a stream of `rows` rows, whose texts are views (`form` 0), have offsets (1) or
/// are dictionaries (2). Leaves it released if that fails.
///
/// # Safety
/// `out` points to room for an ArrowArrayStream, which the caller owns and releases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn serac_example_stream(rows: i64, form: i32, out: *mut FFI_ArrowArrayStream) {
    let form = [VarlenForm::View, VarlenForm::Offsets, VarlenForm::Dictionary][form.clamp(0, 2) as usize];
    let stream = stream(rows, form).unwrap_or_else(|error| {
        eprintln!("{error}");
        FFI_ArrowArrayStream::empty()
    });
    // SAFETY: the caller gives room for it; the place holds no value yet.
    unsafe { out.write(stream) };
}
