//! Constraints that salvaged rows violate. No row is deleted for them: only the owner of the rows
//! can say which row is wrong or missing.

use crate::catalog::Catalog;
use crate::constraint::end_key::{key_at, types_of};
use crate::error::Result;
use crate::table::{Table, TableIndex};
use serac_storage::{BlockNo, RowBuffer, RowId, Snapshot, Value};

/// Names the unique keys that have several rows, and the foreign keys that have rows without a
/// parent. The indexes have just been filled: they have exactly the rows that `snapshot` sees.
///
/// # Errors
/// An error when a row lies in a damaged file.
pub(crate) fn violations(catalog: &Catalog, snapshot: &Snapshot) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for table in catalog.tables() {
        let name = table.name();
        for index in table.indexes.iter().filter(|index| index.definition.unique) {
            let is_double = |key: &[u8], _: &[Value<'_>]| index.entries.rows(key).len() > 1;
            let rows = count(table, index, snapshot, is_double)?;
            if rows > 0 {
                let key = &index.definition.name;
                found.push(format!(
                    "that rows of table \"{name}\" went: {rows} have keys of \"{key}\" that others have, too"
                ));
            }
        }
        for (i, foreign_key) in table.definition.foreign_keys.iter().enumerate() {
            let parent = catalog.table(&foreign_key.parent_schema, &foreign_key.parent_table)?;
            let parents = parent.index_for_key(&foreign_key.parent_columns);
            let is_orphan = |key: &[u8], values: &[Value<'_>]| {
                let types = types_of(table, &foreign_key.columns);
                let key = key_at(parent, &foreign_key.parent_columns, key, || values.iter().copied(), types);
                key.is_none_or(|key| parents.entries.rows(&key).is_empty())
            };
            let rows = count(table, table.index_of_foreign_key(i), snapshot, is_orphan)?;
            if rows > 0 {
                let (of, key) = (parent.name(), &foreign_key.name);
                found.push(format!("rows of table \"{of}\": {rows} of table \"{name}\" reference them by \"{key}\""));
            }
        }
    }
    Ok(found)
}

/// The rows with a key without NULLs in `index` that `is_wrong`.
fn count(
    table: &Table,
    index: &TableIndex,
    snapshot: &Snapshot,
    is_wrong: impl Fn(&[u8], &[Value<'_>]) -> bool,
) -> Result<usize> {
    let (columns, mut buffer, mut rows) = (index.column_ids(), RowBuffer::default(), 0);
    for no in (0..table.data.block_count()).map(BlockNo) {
        let Some(reader) = table.data.read_block(snapshot, no) else { continue };
        for row in reader.row_ids(reader.visible()).values().iter().map(|&row| RowId::from_u64(row)) {
            if table.data.read(snapshot, row, &columns, &mut buffer)? {
                let values = buffer.values();
                let (key, has_null) = index.encode_key(values.iter().copied());
                rows += usize::from(!has_null && is_wrong(&key, &values));
            }
        }
    }
    Ok(rows)
}
