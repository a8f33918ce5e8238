//! DDL of constraints and indexes: a new constraint is checked against all rows of its table.

use crate::catalog::Schema;
use crate::catalog::definition::{
    BitmapDefinition, CheckDefinition, ForeignKeyDefinition, KeyDefinition, TableDefinition,
};
use crate::constraint::end_key::{are_comparable, key_at, types_of};
use crate::error::{EngineError, Result, exists, missing};
use crate::security::Privilege;
use crate::table::{Table, TableIndex};
use crate::transaction::Transaction;
use crate::values::display;
use crate::watch::go_on;
use serac_storage::{BlockNo, RowBuffer, RowId};
use std::sync::Arc;

/// Gives each foreign key of a table in `schema` an index on its columns, where no key has them.
pub(crate) fn index_foreign_keys(definition: &mut TableDefinition, schema: &Schema) {
    for at in 0..definition.foreign_keys.len() {
        let ForeignKeyDefinition { name, columns, .. } = &definition.foreign_keys[at];
        if definition.keys.iter().any(|k| k.columns == *columns && k.is_plain()) {
            continue;
        }
        // Tables may have foreign keys of one name.
        let is_free = |index: &String| {
            *index != definition.name && definition.index_names().all(|n| n != index) && schema.is_free(index)
        };
        let mut names = std::iter::once(format!("{name}_idx")).chain((1..).map(|n| format!("{name}_idx{n}")));
        let name = names.find(is_free).expect("numbers do not end");
        let columns = columns.clone();
        definition.keys.push(KeyDefinition { name, columns, constraint: true, ..Default::default() });
    }
}

fn check_constraint_name(definition: &TableDefinition, name: &str) -> Result<()> {
    let checks = definition.checks.iter().map(|c| &c.name);
    let foreign_keys = definition.foreign_keys.iter().map(|k| &k.name);
    let mut taken = checks.chain(foreign_keys).chain(definition.index_names());
    if taken.any(|n| n == name) { exists("constraint", name) } else { Ok(()) }
}

impl Transaction {
    // ---- CHECK

    /// ALTER TABLE … ADD CHECK (the caller has checked the rows).
    ///
    /// # Errors
    /// [`EngineError::Exists`].
    pub fn add_check(&mut self, schema: &str, name: &str, check: CheckDefinition) -> Result<()> {
        self.redefine(schema, name, |_, definition| {
            check_constraint_name(definition, &check.name)?;
            definition.checks.push(check);
            Ok(())
        })
        .map(|_| ())
    }

    // ---- foreign keys

    /// The table that a foreign key of `definition` references: perhaps the table itself.
    fn parent_of(&self, definition: &TableDefinition, foreign_key: &ForeignKeyDefinition) -> Result<TableDefinition> {
        if foreign_key.parent_schema == definition.schema && foreign_key.parent_table == definition.name {
            return Ok(definition.clone());
        }
        Ok(self.catalog.table(&foreign_key.parent_schema, &foreign_key.parent_table)?.definition.clone())
    }

    /// Locks the parent table, so that no transaction deletes parents without looking at the new
    /// foreign key.
    pub(crate) fn lock_parent(&mut self, child: &TableDefinition, foreign_key: &ForeignKeyDefinition) -> Result<()> {
        if foreign_key.parent_schema == child.schema && foreign_key.parent_table == child.name {
            return Ok(());
        }
        let parent = self.catalog.table(&foreign_key.parent_schema, &foreign_key.parent_table)?.clone();
        self.lock_for_ddl(&parent)
    }

    /// Refuses a foreign key to columns that the transaction's role may not reference.
    pub(crate) fn check_references(&self, child: &TableDefinition, foreign_key: &ForeignKeyDefinition) -> Result<()> {
        if foreign_key.parent_schema == child.schema && foreign_key.parent_table == child.name {
            return Ok(());
        }
        let parent = self.catalog.table(&foreign_key.parent_schema, &foreign_key.parent_table)?;
        self.acting().check_columns(&parent.definition, Privilege::References, &foreign_key.parent_columns)
    }

    /// Checks a foreign key of `definition` and puts its columns into the order of the parent's
    /// key.
    pub(crate) fn complete_foreign_key(
        &self,
        definition: &TableDefinition,
        foreign_key: ForeignKeyDefinition,
    ) -> Result<ForeignKeyDefinition> {
        let parent = self.parent_of(definition, &foreign_key)?;
        let (columns, parent_columns) = (&foreign_key.columns, &foreign_key.parent_columns);
        let key = parent.keys.iter().find(|key| {
            key.unique
                && key.is_plain()
                && key.columns.len() == parent_columns.len()
                && key.columns.iter().all(|c| parent_columns.contains(c))
        });
        let is_table = parent.materialized.is_none();
        let Some(key) = key.filter(|_| is_table && columns.len() == parent_columns.len()) else {
            return Err(EngineError::ForeignKeyTarget { table: parent.name });
        };
        for (&c, &p) in columns.iter().zip(parent_columns) {
            let (c, p) = (&definition.columns[c], &parent.columns[p]);
            if !are_comparable(c.sql_type.column_type, p.sql_type.column_type) {
                let (of_child, of_parent) = (c.sql_type, p.sql_type);
                let detail = format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {of_child} and {of_parent}.",
                    c.name, p.name
                );
                return Err(EngineError::ForeignKeyTypes { constraint: foreign_key.name, detail });
            }
        }
        let ordered = key
            .columns
            .iter()
            .map(|p| columns[parent_columns.iter().position(|c| c == p).expect("it matches")])
            .collect();
        Ok(ForeignKeyDefinition { columns: ordered, parent_columns: key.columns.clone(), ..foreign_key })
    }

    /// ALTER TABLE … ADD FOREIGN KEY.
    ///
    /// # Errors
    /// An invalid definition; [`EngineError::ForeignKey`] when a row has no parent.
    pub fn add_foreign_key(&mut self, schema: &str, name: &str, foreign_key: ForeignKeyDefinition) -> Result<()> {
        let old = self.catalog.table(schema, name)?.clone();
        self.check_owner(schema, name)?;
        self.lock_rows_for_ddl(&old)?;
        check_constraint_name(&old.definition, &foreign_key.name)?;
        let foreign_key = self.complete_foreign_key(&old.definition, foreign_key)?;
        self.check_references(&old.definition, &foreign_key)?;
        self.lock_parent(&old.definition, &foreign_key)?;
        let mut definition = old.definition.clone();
        definition.foreign_keys.push(foreign_key);
        index_foreign_keys(&mut definition, self.catalog.schema(schema)?);
        let at = definition.foreign_keys.len() - 1;
        let new = Arc::new(old.redefined(definition));
        for index in &new.indexes[old.indexes.len()..] {
            new.fill_index(index, self.snapshot(), self.watch.as_deref())?;
        }
        self.check_all_children(&new, at)?;
        self.put_table(new)
    }

    fn check_all_children(&self, table: &Arc<Table>, foreign_key: usize) -> Result<()> {
        let definition = &table.definition.foreign_keys[foreign_key];
        let own = definition.parent_schema == table.definition.schema && definition.parent_table == table.name();
        let parent =
            if own { table } else { self.catalog.table(&definition.parent_schema, &definition.parent_table)? };
        let index = table.index_of_foreign_key(foreign_key);
        let (ids, mut buffer) = (index.column_ids(), RowBuffer::default());
        for no in 0..table.data.block_count() {
            let Some(reader) = table.data.read_block(self.snapshot(), BlockNo(no)) else { continue };
            for &row in reader.row_ids(reader.visible()).values() {
                table.data.read(self.snapshot(), RowId::from_u64(row), &ids, &mut buffer)?;
                let values = buffer.values();
                let (key, has_null) = index.encode_key(values.iter().copied());
                if has_null {
                    continue;
                }
                let types = types_of(table, &definition.columns);
                let wanted = key_at(parent, &definition.parent_columns, &key, || values.iter().copied(), types);
                let found = wanted.map(|wanted| self.find_latest(parent, &definition.parent_columns, &wanted));
                if found.transpose()?.flatten().is_none() {
                    let shown = values.iter().zip(types_of(table, &definition.columns));
                    let shown: Vec<String> = shown.map(|(value, of)| display(value, of)).collect();
                    return Err(self.missing_parent(table, definition, &shown.join(", ")));
                }
            }
        }
        Ok(())
    }

    // ---- any constraint

    /// ALTER TABLE … DROP CONSTRAINT. With `cascade`, foreign keys that rest on the constraint go
    /// with it.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Dependent`].
    pub fn drop_constraint(&mut self, schema: &str, table: &str, name: &str, cascade: bool) -> Result<()> {
        let old = self.catalog.table(schema, table)?.clone();
        self.check_owner(schema, table)?;
        self.lock_for_ddl(&old)?;
        let mut definition = old.definition.clone();
        if let Some(at) = definition.checks.iter().position(|c| c.name == name) {
            definition.checks.remove(at);
        } else if let Some(at) = definition.foreign_keys.iter().position(|k| k.name == name) {
            let columns = definition.foreign_keys.remove(at).columns;
            // The index that was made for it; another foreign key on the same columns gets its own.
            definition.keys.retain(|k| !(k.constraint && !k.unique && k.columns == columns));
        } else if let Some(at) = definition.keys.iter().position(|k| k.name == name && k.constraint && k.unique) {
            definition.keys.remove(at);
        } else {
            return missing("constraint", name);
        }
        self.drop_key(&old, definition, &format!("constraint \"{name}\" of table \"{table}\""), cascade)
    }

    /// Puts `definition`, which may lack keys that `old` has, in place of `old`.
    fn drop_key(&mut self, old: &Arc<Table>, mut definition: TableDefinition, what: &str, cascade: bool) -> Result<()> {
        self.drop_unsupported(old, &mut definition, what, cascade)?;
        self.put_table(Arc::new(old.redefined(definition)))
    }

    /// Refuses foreign keys whose parent key `old` has and its replacement `definition` lacks. With
    /// `cascade` they are dropped. Foreign keys of `definition` itself get the indexes that they
    /// need.
    pub(crate) fn drop_unsupported(
        &mut self,
        old: &Arc<Table>,
        definition: &mut TableDefinition,
        what: &str,
        cascade: bool,
    ) -> Result<()> {
        let has_key = |definition: &TableDefinition, columns: &[usize]| {
            definition.keys.iter().any(|k| k.unique && k.is_plain() && k.columns == columns)
        };
        let mut children: Vec<(Arc<Table>, usize)> = Vec::new();
        for (child, at) in self.catalog.children_of(&old.definition) {
            let foreign_key = &child.definition.foreign_keys[at];
            let gone = child.definition.id == definition.id && !definition.foreign_keys.contains(foreign_key);
            if gone || has_key(definition, &foreign_key.parent_columns) {
                continue;
            }
            if !cascade {
                let dependent = format!("constraint \"{}\" of table \"{}\"", foreign_key.name, child.name());
                return Err(EngineError::Dependent { what: what.into(), dependent });
            }
            children.push((child.clone(), at));
        }
        for (child, at) in children {
            let name = &child.definition.foreign_keys[at].name;
            if child.definition.id == definition.id {
                definition.foreign_keys.retain(|k| k.name != *name);
            } else {
                self.drop_constraint(&child.definition.schema, child.name(), name, false)?;
            }
        }
        index_foreign_keys(definition, self.catalog.schema(&old.definition.schema)?);
        Ok(())
    }

    // ---- indexes

    /// CREATE \[UNIQUE\] INDEX, or a constraint's index on a table with rows.
    ///
    /// # Errors
    /// [`EngineError::Exists`]; [`EngineError::Unique`] when the rows are not unique.
    pub fn create_index(&mut self, schema: &str, table: &str, key: KeyDefinition) -> Result<()> {
        let old = self.catalog.table(schema, table)?.clone();
        self.check_owner(schema, table)?;
        self.lock_rows_for_ddl(&old)?;
        self.catalog.schema(schema)?.check_free(&key.name)?;
        let mut definition = old.definition.clone();
        definition.keys.push(key.clone());
        let index = Arc::new(TableIndex::new(&key, &definition));
        let mut new = old.redefined(definition);
        *new.indexes.last_mut().expect("one was added") = index.clone();
        let new = Arc::new(new);
        new.fill_index(&index, self.snapshot(), self.watch.as_deref())?;
        if key.unique {
            self.check_all_unique(&new, &index)?;
        }
        self.put_table(new)
    }

    /// CREATE INDEX … USING bitmap.
    ///
    /// # Errors
    /// [`EngineError::Exists`].
    pub fn create_bitmap_index(&mut self, schema: &str, table: &str, bitmap: BitmapDefinition) -> Result<()> {
        let old = self.catalog.table(schema, table)?.clone();
        self.check_owner(schema, table)?;
        self.lock_rows_for_ddl(&old)?;
        self.catalog.schema(schema)?.check_free(&bitmap.name)?;
        let mut definition = old.definition.clone();
        definition.bitmaps.push(bitmap);
        let new = Arc::new(old.redefined(definition));
        new.bitmaps.last().expect("one was added").fill(&new.data, self.snapshot())?;
        self.put_table(new)
    }

    fn check_all_unique(&self, table: &Arc<Table>, index: &TableIndex) -> Result<()> {
        let mut buffer = serac_storage::RowBuffer::default();
        let snapshot = self.snapshot();
        for no in 0..table.data.block_count() {
            go_on(self.watch.as_deref(), 0)?;
            let Some(reader) = table.data.read_block(snapshot, BlockNo(no)) else { continue };
            for &row in reader.row_ids(reader.visible()).values() {
                self.read_row(table, serac_storage::RowId::from_u64(row), &mut buffer)?;
                let values = buffer.values();
                let (key, has_null) = index.key_of(&values);
                if !has_null && index.entries.rows(&key).len() > 1 {
                    return Err(self.duplicate(table, index, &values));
                }
            }
        }
        Ok(())
    }

    /// DROP INDEX.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Dependent`] for a constraint's index.
    pub fn drop_index(&mut self, schema: &str, name: &str) -> Result<()> {
        let mut tables = self.catalog.schema(schema)?.tables.values();
        if let Some(table) = tables.find(|t| t.definition.bitmaps.iter().any(|b| b.name == name)).cloned() {
            self.check_may_drop(schema, table.name())?;
            self.lock_for_ddl(&table)?;
            let mut definition = table.definition.clone();
            definition.bitmaps.retain(|b| b.name != name);
            return self.put_table(Arc::new(table.redefined(definition)));
        }
        let found = self
            .catalog
            .schema(schema)?
            .tables
            .values()
            .find_map(|t| t.definition.keys.iter().find(|k| k.name == name).map(|k| (t.clone(), k.constraint)));
        let Some((table, constraint)) = found else { return missing("index", name) };
        self.check_may_drop(schema, table.name())?;
        if constraint {
            return Err(EngineError::Dependent {
                what: format!("index \"{name}\""),
                dependent: format!("a constraint of table \"{}\"", table.name()),
            });
        }
        self.lock_for_ddl(&table)?;
        let mut definition = table.definition.clone();
        let keys = definition.keys.iter().filter(|key| key.name == name);
        let hidden: Vec<usize> = keys.flat_map(|key| definition.hidden_columns(key)).collect();
        definition.keys.retain(|k| k.name != name);
        if !hidden.is_empty() {
            return self.remove_columns(&table, definition, &hidden);
        }
        self.drop_key(&table, definition, &format!("index \"{name}\""), false)
    }
}
