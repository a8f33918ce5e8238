//! DDL: transactional changes of the catalog.
//!
//! Changes that move columns (ADD and DROP COLUMN) and TRUNCATE make new data under a new number
//! and copy the remaining values. Older snapshots keep the table that they have. The table is
//! locked against writers until the end of the transaction.

pub(crate) mod cluster;
mod comments;
pub(crate) mod constraint_ddl;
mod foreign;
mod functions;

use crate::catalog::definition::{
    ColumnDefinition, KeyDefinition, SequenceDefinition, TableDefinition, ViewDefinition,
};
use crate::catalog::sequence::Sequence;
use crate::catalog::{Catalog, MetaRecord, Schema};
use crate::ddl::constraint_ddl::index_foreign_keys;
use crate::error::{EngineError, Result, exists, missing};
use crate::security::{Object, ObjectKind, Privilege};
use crate::table::Table;
use crate::transaction::Transaction;
use crate::watch::go_on;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use serac_storage::{BlockNo, ColumnId, DataTable, FreezeFormat, ScanColumn, StorageError, TableId};
use serac_sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

fn check_unique_names<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return exists(kind, name.clone());
        }
    }
    Ok(())
}

/// The name of the column that tells the places of a table's rows.
const CTID: &str = "ctid";

/// That a name is not the one of a column that each table has.
fn check_column_name(name: &str) -> Result<()> {
    if name == CTID { Err(EngineError::SystemColumn(name.to_owned())) } else { Ok(()) }
}

impl Transaction {
    pub(crate) fn next_id(&self) -> u32 {
        self.db.next_id.fetch_add(1, Ordering::SeqCst)
    }

    /// CREATE SCHEMA.
    ///
    /// # Errors
    /// [`EngineError::Exists`].
    pub fn create_schema(&mut self, name: &str) -> Result<()> {
        self.acting().check(&Object::Database, Privilege::Create)?;
        if self.catalog.schemas.contains_key(name) {
            return exists("schema", name);
        }
        let owner = self.role;
        self.change_catalog(|catalog| {
            catalog.schemas.insert(name.to_owned(), Schema::default());
            catalog.note_created(Object::Schema(name.to_owned()), ObjectKind::Schema, owner);
            Ok(())
        })
    }

    /// DROP SCHEMA.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Dependent`] when it is not empty and `cascade` is
    /// off.
    pub fn drop_schema(&mut self, name: &str, cascade: bool) -> Result<()> {
        let schema = self.catalog.schema(name)?.clone();
        self.acting().check_owner(&Object::Schema(name.to_owned()))?;
        if let (Some(first), false) = (schema.relations().next(), cascade) {
            return Err(EngineError::Dependent {
                what: format!("schema \"{name}\""),
                dependent: format!("relation \"{first}\""),
            });
        }
        for table in schema.tables.keys() {
            if self.catalog.schema(name)?.tables.contains_key(table) {
                self.drop_table(name, table, true)?;
            }
        }
        self.change_catalog(|catalog| {
            catalog.schemas.remove(name);
            Ok(())
        })
    }

    /// CREATE TABLE. Ids in the definition are given here; foreign keys get an index on their
    /// columns.
    ///
    /// # Errors
    /// An invalid definition.
    pub fn create_table(&mut self, mut definition: TableDefinition) -> Result<Arc<Table>> {
        self.catalog.schema(&definition.schema)?;
        self.check_create(&definition.schema)?;
        let schema = self.catalog.schema(&definition.schema)?;
        check_unique_names("column", definition.columns.iter().map(|c| &c.name))?;
        definition.columns.iter().try_for_each(|column| check_column_name(&column.name))?;
        let relations = || std::iter::once(&definition.name).chain(definition.index_names());
        check_unique_names("relation", relations())?;
        relations().try_for_each(|name| schema.check_free(name))?;
        if definition.keys.iter().filter(|k| k.primary).count() > 1 {
            return Err(EngineError::InvalidDefinition(format!(
                "multiple primary keys for table \"{}\" are not allowed",
                definition.name
            )));
        }
        for key in &definition.keys {
            if key.primary {
                key.columns.iter().for_each(|&c| definition.columns[c].nullable = false);
            }
        }
        for i in 0..definition.foreign_keys.len() {
            let foreign_key = self.complete_foreign_key(&definition, definition.foreign_keys[i].clone())?;
            self.check_references(&definition, &foreign_key)?;
            self.lock_parent(&definition, &foreign_key)?;
            definition.foreign_keys[i] = foreign_key;
        }
        let schema = self.catalog.schema(&definition.schema)?;
        index_foreign_keys(&mut definition, schema);
        definition.id = TableId(self.next_id());
        let data = self.db.storage.create_table(definition.id, &definition.name, definition.storage_schema())?;
        self.put_data(definition, data)
    }

    pub(crate) fn put_table(&mut self, table: Arc<Table>) -> Result<()> {
        let owner = self.role;
        self.change_catalog(|catalog| {
            let (schema, name) = (table.definition.schema.clone(), table.definition.name.clone());
            if catalog.schema_mut(&schema)?.tables.insert(name.clone(), table).is_none() {
                catalog.note_created(Object::Relation(schema, name), ObjectKind::Table, owner);
            }
            Ok(())
        })
    }

    fn drop_data_on_abort(&mut self, id: TableId) {
        let storage = Arc::downgrade(&self.db.storage);
        self.storage().on_abort(Box::new(move || {
            if let Some(storage) = storage.upgrade() {
                storage.drop_table(id);
            }
        }));
    }

    fn drop_data_later(&mut self, id: TableId) {
        let storage = Arc::downgrade(&self.db.storage);
        self.storage().on_obsolete(Box::new(move || {
            if let Some(storage) = storage.upgrade() {
                storage.drop_table(id);
            }
        }));
    }

    /// DROP TABLE.
    ///
    /// # Errors
    /// [`EngineError::Dependent`] when another table references it and `cascade` is off (on, the
    /// foreign keys go).
    pub fn drop_table(&mut self, schema: &str, name: &str, cascade: bool) -> Result<()> {
        self.drop_table_with(schema, name, cascade, &[])
    }

    /// As [`drop_table`](Self::drop_table), where foreign keys of the tables `also`, which are
    /// dropped next, are not in the way.
    ///
    /// # Errors
    /// As there.
    pub fn drop_table_with(
        &mut self,
        schema: &str,
        name: &str,
        cascade: bool,
        also: &[(String, String)],
    ) -> Result<()> {
        self.catalog.table(schema, name)?;
        self.check_may_drop(schema, name)?;
        self.drop_known_table(schema, name, cascade, also)
    }

    fn drop_known_table(&mut self, schema: &str, name: &str, cascade: bool, also: &[(String, String)]) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.lock_for_ddl(&table)?;
        let children: Vec<Arc<Table>> = self
            .catalog
            .children_of(&table.definition)
            .filter(|(child, _)| child.definition.id != table.definition.id)
            .map(|(child, _)| child.clone())
            .collect();
        let stays = |child: &&Arc<Table>| {
            let definition = &child.definition;
            !also.iter().any(|(schema, name)| (schema, name) == (&definition.schema, &definition.name))
        };
        if let (Some(child), false) = (children.iter().find(stays), cascade) {
            return Err(EngineError::Dependent {
                what: format!("table \"{name}\""),
                dependent: format!("a foreign key of table \"{}\"", child.name()),
            });
        }
        for child in children {
            let mut definition = child.definition.clone();
            definition.foreign_keys.retain(|k| k.parent_schema != schema || k.parent_table != name);
            self.put_table(Arc::new(child.redefined(definition)))?;
        }
        self.drop_data_later(table.definition.id);
        self.change_catalog(|catalog| {
            let entry = catalog.schema_mut(schema)?;
            entry.tables.remove(name);
            entry.sequences.retain(|_, s| s.definition.owner.as_ref().is_none_or(|(owner, _)| owner != name));
            Ok(())
        })
    }

    /// Changes the definition of a table whose columns and keys stay where they are.
    pub(crate) fn redefine(
        &mut self,
        schema: &str,
        name: &str,
        change: impl FnOnce(&Catalog, &mut TableDefinition) -> Result<()>,
    ) -> Result<Arc<Table>> {
        self.catalog.table(schema, name)?;
        self.check_owner(schema, name)?;
        self.redefine_known(schema, name, change)
    }

    fn redefine_known(
        &mut self,
        schema: &str,
        name: &str,
        change: impl FnOnce(&Catalog, &mut TableDefinition) -> Result<()>,
    ) -> Result<Arc<Table>> {
        let table = self.catalog.table(schema, name)?.clone();
        self.lock_for_ddl(&table)?;
        let mut definition = table.definition.clone();
        change(&self.catalog, &mut definition)?;
        let renamed = definition.name != name;
        if renamed {
            let own =
                definition.foreign_keys.iter_mut().filter(|k| k.parent_schema == schema && k.parent_table == name);
            own.for_each(|key| key.parent_table.clone_from(&definition.name));
        }
        let columns = |definition: &TableDefinition| definition.columns.iter().map(|c| c.name.clone()).collect();
        let (before, after): (Vec<String>, Vec<String>) = (columns(&table.definition), columns(&definition));
        let table = Arc::new(table.redefined(definition));
        self.change_catalog(|catalog| {
            for (old, new) in before.iter().zip(&after).filter(|(old, new)| old != new) {
                let object = Object::relation(schema, name);
                Arc::make_mut(&mut catalog.security).column_renamed(&object, old, new);
                catalog.comments.column_renamed(&object, old, new);
                for sequence in catalog.schema_mut(schema)?.sequences.values_mut() {
                    let mut definition = sequence.definition.clone();
                    if let Some((owner, column)) = &mut definition.owner
                        && (owner.as_str(), &*column) == (name, old)
                    {
                        column.clone_from(new);
                        *sequence = Arc::new(sequence.redefined(definition));
                    }
                }
            }
            let new_name = table.definition.name.clone();
            if renamed {
                let (old, new) = (Object::relation(schema, name), Object::relation(schema, &new_name));
                catalog.comments.renamed(&old, &new);
                Arc::make_mut(&mut catalog.security).renamed(&old, new);
                let entry = catalog.schema_mut(schema)?;
                entry.tables.remove(name);
                for sequence in entry.sequences.values_mut() {
                    if sequence.definition.owner.as_ref().is_some_and(|(owner, _)| owner == name) {
                        let mut definition = sequence.definition.clone();
                        definition.owner = definition.owner.map(|(_, column)| (new_name.clone(), column));
                        *sequence = Arc::new(sequence.redefined(definition));
                    }
                }
                for entry in catalog.schemas.values_mut() {
                    for other in entry.tables.values_mut() {
                        let mut definition = other.definition.clone();
                        for key in &mut definition.foreign_keys {
                            if key.parent_schema == schema && key.parent_table == name {
                                key.parent_table = new_name.clone();
                            }
                        }
                        if definition != other.definition {
                            *other = Arc::new(other.redefined(definition));
                        }
                    }
                }
            }
            catalog.schema_mut(schema)?.tables.insert(new_name, table.clone());
            Ok(())
        })?;
        Ok(table)
    }

    /// ALTER TABLE … RENAME TO.
    ///
    /// # Errors
    /// [`EngineError::Exists`].
    pub fn rename_table(&mut self, schema: &str, name: &str, new_name: &str) -> Result<()> {
        self.check_create(schema)?;
        self.redefine(schema, name, |catalog, definition| {
            catalog.schema(schema)?.check_free(new_name)?;
            definition.name = new_name.to_owned();
            Ok(())
        })
        .map(|_| ())
    }

    /// ALTER TABLE … RENAME COLUMN. The caller first drops the CHECK constraints that name the
    /// column, and adds them again afterwards.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Exists`].
    pub fn rename_column(&mut self, schema: &str, name: &str, column: &str, new_name: &str) -> Result<()> {
        self.redefine(schema, name, |_, definition| {
            check_column_name(new_name)?;
            if definition.column(new_name).is_some() {
                return exists("column", new_name);
            }
            let Some(at) = definition.column(column) else { return missing("column", column) };
            definition.columns[at].name = new_name.to_owned();
            Ok(())
        })
        .map(|_| ())
    }

    /// ALTER TABLE … ALTER COLUMN: `change` may set default and nullability (the caller has checked
    /// the rows).
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn alter_column(
        &mut self,
        schema: &str,
        name: &str,
        column: &str,
        change: impl FnOnce(&mut ColumnDefinition),
    ) -> Result<()> {
        self.redefine(schema, name, |_, definition| {
            let mut columns = definition.columns.iter_mut();
            let Some(found) = columns.find(|found| found.name == column) else { return missing("column", column) };
            change(found);
            Ok(())
        })
        .map(|_| ())
    }

    /// Changes the text of an index definition whose meaning stays: after RENAME COLUMN, the texts
    /// of its expressions.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn alter_key(
        &mut self,
        schema: &str,
        name: &str,
        key: &str,
        change: impl FnOnce(&mut KeyDefinition),
    ) -> Result<()> {
        self.redefine(schema, name, |_, definition| {
            let Some(found) = definition.keys.iter_mut().find(|found| found.name == key) else {
                return missing("index", key);
            };
            change(found);
            Ok(())
        })
        .map(|_| ())
    }

    /// ALTER TABLE … SET (freeze_format = …): holds for blocks that freeze after the commit.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn set_freeze_format(&mut self, schema: &str, name: &str, format: FreezeFormat) -> Result<()> {
        self.redefine(schema, name, |_, definition| {
            definition.freeze_format = format;
            Ok(())
        })
        .map(|_| ())
    }

    /// Empties a materialized view for new rows of its query, or, if it is not to be `populated`,
    /// so that it cannot be read.
    ///
    /// # Errors
    /// [`EngineError::InvalidDefinition`] for a table that is no materialized view.
    pub fn empty_materialized(&mut self, schema: &str, name: &str, populated: bool) -> Result<Arc<Table>> {
        let table = self.redefine(schema, name, |_, definition| match &mut definition.materialized {
            Some(materialized) => {
                materialized.populated = populated;
                Ok(())
            }
            None => Err(EngineError::InvalidDefinition(format!("\"{name}\" is not a materialized view"))),
        })?;
        self.replace_data(&table, table.definition.clone())
    }

    /// Puts new data without rows in the place of a table's, under `definition`.
    pub(crate) fn replace_data(&mut self, table: &Arc<Table>, mut definition: TableDefinition) -> Result<Arc<Table>> {
        self.lock_for_rewrite(table)?;
        self.drop_data_later(table.definition.id);
        definition.id = TableId(self.next_id());
        let data = self.db.storage.create_table(definition.id, &definition.name, definition.storage_schema())?;
        self.put_data(definition, data)
    }

    /// Puts a table with new data into the catalog.
    fn put_data(&mut self, definition: TableDefinition, data: Arc<DataTable>) -> Result<Arc<Table>> {
        self.drop_data_on_abort(definition.id);
        // Before its rows.
        self.storage().log_meta(&MetaRecord::NewData(definition.clone()).to_bytes());
        let table = Arc::new(Table::new(definition, data, self.db.storage.manager()));
        table.fill_bitmaps(self.snapshot())?;
        self.put_table(table.clone())?;
        Ok(table)
    }

    /// The visible rows of a block, and whether they are a copy.
    fn rows_of_block(&self, table: &Table, no: u32) -> Result<Option<(RecordBatch, bool)>> {
        let Some(mut reader) = table.data.read_block(self.snapshot(), BlockNo(no)) else { return Ok(None) };
        let visible = reader.visible().clone();
        let columns: Vec<ScanColumn> =
            (0..table.definition.columns.len() as u16).map(|c| ScanColumn::arrow(ColumnId(c))).collect();
        let arrays = reader.columns(&columns, &visible)?;
        let options = RecordBatchOptions::new().with_row_count(Some(visible.len()));
        let batch = RecordBatch::try_new_with_options(table.definition.storage_schema().arrow(), arrays, &options);
        Ok(Some((batch.map_err(StorageError::from)?, !reader.stats().frozen)))
    }

    /// All visible rows, a batch for each block, and the bytes that copies of them take: those of
    /// frozen blocks are not copied.
    pub(crate) fn all_rows(&self, table: &Table) -> Result<(Vec<RecordBatch>, u64)> {
        let (mut batches, mut copied) = (Vec::new(), 0);
        for no in 0..table.data.block_count() {
            go_on(self.watch.as_deref(), copied)?;
            let Some((batch, is_copied)) = self.rows_of_block(table, no)? else { continue };
            copied += if is_copied { batch.get_array_memory_size() as u64 } else { 0 };
            batches.push(batch);
        }
        Ok((batches, copied))
    }

    /// Copies the visible rows into new data under `definition`; `convert` turns a batch of old
    /// columns into one of new columns.
    fn rewrite(
        &mut self,
        table: &Arc<Table>,
        definition: TableDefinition,
        convert: impl Fn(&RecordBatch) -> Result<Vec<ArrayRef>>,
    ) -> Result<()> {
        let new = self.replace_data(table, definition)?;
        let arrow = new.data.schema().arrow();
        for no in 0..table.data.block_count() {
            go_on(self.watch.as_deref(), 0)?;
            let Some((old, _)) = self.rows_of_block(table, no)? else { continue };
            let columns = convert(&old)?;
            let mut given = new.definition.columns.iter().zip(&columns);
            if let Some((column, _)) = given.find(|(column, array)| !column.nullable && array.null_count() > 0) {
                return Err(table.null_in(&column.name));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(old.num_rows()));
            let batch =
                RecordBatch::try_new_with_options(arrow.clone(), columns, &options).map_err(StorageError::from)?;
            self.insert_batch(&new, &batch)?;
        }
        Ok(())
    }

    /// ALTER TABLE … ADD COLUMN; a visible column comes before the hidden ones. `fill` gives the
    /// new column's values for a batch of old rows.
    ///
    /// # Errors
    /// [`EngineError::Exists`], and NOT NULL without values.
    pub fn add_column(
        &mut self,
        schema: &str,
        name: &str,
        column: ColumnDefinition,
        fill: impl Fn(&RecordBatch) -> Result<ArrayRef>,
    ) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        check_column_name(&column.name)?;
        if table.definition.column(&column.name).is_some() {
            return exists("column", column.name);
        }
        let mut definition = table.definition.clone();
        let at = if column.hidden { definition.columns.len() } else { definition.visible_columns().len() };
        definition.columns.insert(at, column);
        definition.renumber(|c| c + usize::from(c >= at));
        self.rewrite(&table, definition, |old| {
            let mut columns = old.columns().to_vec();
            columns.insert(at, fill(old)?);
            Ok(columns)
        })
    }

    /// Defines the next of the columns that a table was declared with
    /// ([`TableDefinition::unnamed_columns`]).
    ///
    /// # Errors
    /// [`EngineError::Exists`]; [`EngineError::InvalidDefinition`] for a table that has all its
    /// columns; [`EngineError::NotNull`] where SQL has put rows into it.
    pub fn define_column(&mut self, schema: &str, name: &str, column: ColumnDefinition) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        check_column_name(&column.name)?;
        if table.definition.column(&column.name).is_some() {
            return exists("column", column.name);
        }
        let mut definition = table.definition.clone();
        let Some(left) = definition.unnamed_columns.checked_sub(1) else {
            return Err(EngineError::InvalidDefinition(format!("table \"{name}\" has all its columns")));
        };
        definition.unnamed_columns = left;
        let at = definition.visible_columns().len();
        let arrow_type = column.sql_type.column_type.arrow();
        definition.columns.insert(at, column);
        definition.renumber(|c| c + usize::from(c >= at));
        self.rewrite(&table, definition, |old| {
            let mut columns = old.columns().to_vec();
            columns.insert(at, new_null_array(&arrow_type, old.num_rows()));
            Ok(columns)
        })
    }

    /// ALTER TABLE … ALTER COLUMN … TYPE: puts `changed` in the place of a column; `convert` gives
    /// its values for a batch of old rows.
    ///
    /// # Errors
    /// [`EngineError::Missing`], the errors of `convert`, and constraints that the new values
    /// violate.
    pub fn change_column(
        &mut self,
        schema: &str,
        name: &str,
        column: &str,
        changed: ColumnDefinition,
        convert: impl Fn(&RecordBatch) -> Result<ArrayRef>,
    ) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        let Some(at) = table.definition.column(column) else { return missing("column", column) };
        let mut definition = table.definition.clone();
        definition.columns[at] = changed;
        self.rewrite(&table, definition, |old| {
            let mut columns = old.columns().to_vec();
            columns[at] = convert(old)?;
            Ok(columns)
        })
    }

    /// ALTER TABLE … DROP COLUMN. The column's own sequences are dropped with it. Keys over it are
    /// dropped if `cascade` is on or they have no other column. Foreign keys that depend on these
    /// are dropped only if `cascade` is on.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Dependent`].
    pub fn drop_column(&mut self, schema: &str, name: &str, column: &str, cascade: bool) -> Result<()> {
        let table = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        let Some(at) = table.definition.column(column) else { return missing("column", column) };
        let what = format!("column \"{column}\" of table \"{name}\"");
        let wide = table.definition.keys.iter().find(|k| k.columns.contains(&at) && k.columns.len() > 1);
        if let (Some(key), false) = (wide, cascade) {
            return Err(EngineError::Dependent { what, dependent: format!("constraint \"{}\"", key.name) });
        }
        let mut definition = table.definition.clone();
        let mut gone = vec![at];
        let goes = |key: &KeyDefinition| key.columns.contains(&at) || key.include.contains(&at);
        gone.extend(definition.keys.iter().filter(|key| goes(key)).flat_map(|key| definition.hidden_columns(key)));
        definition.keys.retain(|key| !goes(key));
        definition.bitmaps.retain(|b| b.column != at);
        definition.foreign_keys.retain(|k| !k.columns.contains(&at));
        self.drop_unsupported(&table, &mut definition, &what, cascade)?;
        self.remove_columns(&table, definition, &gone)?;
        // Foreign keys of other tables name this table's columns by position. Hidden columns, which
        // may have gone, too, are behind these.
        let children: BTreeSet<TableId> = self
            .catalog
            .children_of(&table.definition)
            .filter(|(child, _)| !table.definition.is(&child.definition.schema, child.name()))
            .map(|(child, _)| child.definition.id)
            .collect();
        for id in children {
            let child = self.catalog.tables().find(|child| child.definition.id == id).expect("it is there").clone();
            let mut definition = child.definition.clone();
            let own = definition.foreign_keys.iter_mut();
            let keys = own.filter(|key| table.definition.is(&key.parent_schema, &key.parent_table));
            keys.flat_map(|key| &mut key.parent_columns).for_each(|c| *c -= usize::from(*c > at));
            if definition != child.definition {
                self.put_table(Arc::new(child.redefined(definition)))?;
            }
        }
        let is_owned = |sequence: &Sequence| {
            sequence.definition.owner.as_ref().is_some_and(|owner| (&*owner.0, &*owner.1) == (name, column))
        };
        if self.catalog.schema(schema)?.sequences.values().any(|sequence| is_owned(sequence)) {
            self.change_catalog(|catalog| {
                catalog.schema_mut(schema)?.sequences.retain(|_, sequence| !is_owned(sequence));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Removes columns that nothing else in `definition` names any more, from it and from the
    /// table's rows.
    pub(crate) fn remove_columns(
        &mut self,
        table: &Arc<Table>,
        mut definition: TableDefinition,
        gone: &[usize],
    ) -> Result<()> {
        let kept: Vec<usize> = (0..definition.columns.len()).filter(|at| !gone.contains(at)).collect();
        definition.columns = kept.iter().map(|&at| definition.columns[at].clone()).collect();
        if definition.cluster.iter().any(|(column, _)| gone.contains(column)) {
            definition.cluster.clear();
        }
        definition.renumber(|column| kept.iter().position(|&at| at == column).expect("it is kept"));
        self.rewrite(table, definition, |old| Ok(kept.iter().map(|&at| old.column(at).clone()).collect()))
    }

    /// TRUNCATE of tables, with `cascade` also of those whose foreign keys refer to them; gives the
    /// names of the latter. With `restart`, the sequences of their columns begin again.
    ///
    /// # Errors
    /// [`EngineError::TruncatesReferenced`] for a foreign key of a table that stays.
    /// [`EngineError::Denied`] without TRUNCATE on a table, or for a role that does not own a
    /// sequence that is to restart.
    pub fn truncate(&mut self, tables: &[(String, String)], cascade: bool, restart: bool) -> Result<Vec<String>> {
        let mut emptied: Vec<Arc<Table>> = Vec::new();
        let put = |emptied: &mut Vec<Arc<Table>>, table: &Arc<Table>| {
            if emptied.iter().all(|other| other.definition.id != table.definition.id) {
                emptied.push(table.clone());
            }
        };
        for (schema, name) in tables {
            put(&mut emptied, self.catalog.table(schema, name)?);
        }
        let (named, mut at) = (emptied.len(), 0);
        while let Some(table) = emptied.get(at).cloned() {
            let definition = &table.definition;
            self.acting().check(&Object::relation(&definition.schema, &definition.name), Privilege::Truncate)?;
            for (child, _) in self.catalog.children_of(definition) {
                put(&mut emptied, child);
            }
            if let Some(child) = emptied.get(named).filter(|_| !cascade) {
                let detail = format!("Table \"{}\" references \"{}\".", child.name(), table.name());
                return Err(EngineError::TruncatesReferenced { detail });
            }
            at += 1;
        }
        let mut restarted: Vec<(String, SequenceDefinition)> = Vec::new();
        for table in emptied.iter().filter(|_| restart) {
            let schema = &table.definition.schema;
            for sequence in self.catalog.schema(schema)?.sequences.values() {
                if sequence.definition.owner.as_ref().is_some_and(|(owner, _)| owner == table.name()) {
                    self.check_owner(schema, &sequence.definition.name)?;
                    restarted.push((schema.clone(), sequence.definition.clone()));
                }
            }
        }
        for table in &emptied {
            self.replace_data(table, table.definition.clone())?;
        }
        for (schema, definition) in restarted {
            let start = definition.start;
            self.put_sequence(&schema, definition, Some(start))?;
        }
        Ok(emptied[named..].iter().map(|table| table.name().to_owned()).collect())
    }

    /// CREATE [OR REPLACE] VIEW.
    ///
    /// # Errors
    /// [`EngineError::Exists`].
    pub fn create_view(&mut self, schema: &str, view: ViewDefinition, replace: bool) -> Result<()> {
        let entry = self.catalog.schema(schema)?;
        self.check_create(schema)?;
        if replace && entry.views.contains_key(&view.name) {
            self.check_owner(schema, &view.name)?;
        } else {
            entry.check_free(&view.name)?;
        }
        let owner = self.role;
        self.change_catalog(|catalog| {
            let name = view.name.clone();
            if catalog.schema_mut(schema)?.views.insert(name.clone(), Arc::new(view)).is_none() {
                catalog.note_created(Object::relation(schema, &name), ObjectKind::View, owner);
            }
            Ok(())
        })
    }

    /// ALTER VIEW … RENAME TO. Definitions that name the view are not changed.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Exists`].
    pub fn rename_view(&mut self, schema: &str, name: &str, new_name: &str) -> Result<()> {
        let entry = self.catalog.schema(schema)?;
        let Some(view) = entry.views.get(name) else { return missing("view", name) };
        let view = ViewDefinition { name: new_name.to_owned(), ..ViewDefinition::clone(view) };
        self.check_owner(schema, name)?;
        self.check_create(schema)?;
        self.catalog.schema(schema)?.check_free(new_name)?;
        self.change_catalog(|catalog| {
            let (old, new) = (Object::relation(schema, name), Object::relation(schema, new_name));
            catalog.comments.renamed(&old, &new);
            Arc::make_mut(&mut catalog.security).renamed(&old, new);
            let views = &mut catalog.schema_mut(schema)?.views;
            views.remove(name);
            views.insert(new_name.to_owned(), Arc::new(view));
            Ok(())
        })
    }

    /// DROP VIEW.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn drop_view(&mut self, schema: &str, name: &str) -> Result<()> {
        if !self.catalog.schema(schema)?.views.contains_key(name) {
            return missing("view", name);
        }
        self.check_may_drop(schema, name)?;
        self.drop_dependent(schema, name)
    }

    /// Drops a view, a materialized one, or a foreign table that depends on a dropped object: a
    /// role that may drop the object may do this.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn drop_dependent(&mut self, schema: &str, name: &str) -> Result<()> {
        if self.catalog.schema(schema)?.tables.contains_key(name) {
            return self.drop_known_table(schema, name, true, &[]);
        }
        self.change_catalog(|catalog| {
            let entry = catalog.schema_mut(schema)?;
            entry.views.remove(name);
            entry.foreign_tables.remove(name);
            Ok(())
        })
    }

    /// Drops the default of a column that depends on a dropped object.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn drop_default(&mut self, schema: &str, table: &str, column: &str) -> Result<()> {
        self.redefine_known(schema, table, |_, definition| {
            let Some(at) = definition.column(column) else { return missing("column", column) };
            definition.columns[at].default = None;
            Ok(())
        })
        .map(|_| ())
    }

    /// Replaces the text of a view's query, or a materialized view's, by one with the same meaning
    /// after a change of an object that it reads. A role that may change the object may do this.
    ///
    /// # Errors
    /// [`EngineError::Missing`].
    pub fn reword_view(&mut self, schema: &str, name: &str, query: String) -> Result<()> {
        if self.catalog.schema(schema)?.tables.contains_key(name) {
            let change = |_: &Catalog, definition: &mut TableDefinition| {
                if let Some(materialized) = &mut definition.materialized {
                    materialized.query = query;
                }
                Ok(())
            };
            return self.redefine_known(schema, name, change).map(|_| ());
        }
        self.change_catalog(|catalog| {
            let views = &mut catalog.schema_mut(schema)?.views;
            let Some(view) = views.get_mut(name) else { return missing("view", name) };
            Arc::make_mut(view).query = query;
            Ok(())
        })
    }

    /// CREATE SEQUENCE. The id in the definition is given here.
    ///
    /// # Errors
    /// [`EngineError::Exists`], or the error in the definition.
    pub fn create_sequence(&mut self, schema: &str, mut definition: SequenceDefinition) -> Result<()> {
        self.catalog.schema(schema)?;
        self.check_create(schema)?;
        self.catalog.schema(schema)?.check_free(&definition.name)?;
        definition.check()?;
        definition.id = self.next_id();
        let owner = self.role;
        self.change_catalog(|catalog| {
            let sequence = Arc::new(Sequence::new(definition));
            let name = sequence.definition.name.clone();
            catalog.schema_mut(schema)?.sequences.insert(name.clone(), sequence);
            catalog.note_created(Object::relation(schema, &name), ObjectKind::Sequence, owner);
            Ok(())
        })
    }

    /// ALTER SEQUENCE: changes the definition of the sequence with its name, which goes on with the
    /// value `restart`, if given. Undone by a rollback.
    ///
    /// # Errors
    /// [`EngineError::Missing`], or the error in the definition.
    pub fn alter_sequence(&mut self, schema: &str, definition: SequenceDefinition, restart: Option<i64>) -> Result<()> {
        self.catalog.sequence(schema, &definition.name)?;
        self.check_owner(schema, &definition.name)?;
        definition.check()?;
        if let Some(value) = restart {
            definition.check_value(value)?;
        }
        self.put_sequence(schema, definition, restart)
    }

    /// Puts a sequence in the place of the one with its name. A restarted sequence has an id of its
    /// own: reservations of the old one by concurrent transactions do not concern it.
    fn put_sequence(&mut self, schema: &str, mut definition: SequenceDefinition, restart: Option<i64>) -> Result<()> {
        if restart.is_some() {
            definition.id = self.next_id();
        }
        self.change_catalog(|catalog| {
            let known = catalog.sequence(schema, &definition.name)?;
            let sequence = match restart {
                Some(first) => Sequence::going_on_with(definition, first),
                None => known.redefined(definition),
            };
            catalog.schema_mut(schema)?.sequences.insert(sequence.definition.name.clone(), Arc::new(sequence));
            Ok(())
        })
    }

    /// DROP SEQUENCE.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Dependent`] when a column that owns it takes its
    /// values from it.
    pub fn drop_sequence(&mut self, schema: &str, name: &str) -> Result<()> {
        let Some(sequence) = self.catalog.schema(schema)?.sequences.get(name) else { return missing("sequence", name) };
        self.check_may_drop(schema, name)?;
        let has_default = |(table, column): &&(String, String)| {
            let table = self.catalog.table(schema, table).ok();
            let at = table.and_then(|table| table.definition.column(column).map(|at| &table.definition.columns[at]));
            at.is_some_and(|column| column.default.is_some())
        };
        if let Some((table, column)) = sequence.definition.owner.as_ref().filter(has_default) {
            return Err(EngineError::Dependent {
                what: format!("sequence \"{name}\""),
                dependent: format!("default value for column {column} of table {table}"),
            });
        }
        self.change_catalog(|catalog| {
            catalog.schema_mut(schema)?.sequences.remove(name);
            Ok(())
        })
    }
}
