//! ALTER TABLE.

use super::clauses::{check_collation, freeze_format};
use super::indexes::hidden_values;
use super::without_null_default;
use crate::ast_types::sql_type;
use crate::column_types::of_column;
use crate::ddl::clauses::{check_identity_type, check_key_type, done, text_at};
use crate::dml;
use crate::error::{Result, SqlError};
use crate::expressions::{into_engine, named_columns, renamed};
use crate::generated;
use crate::identifiers::{quote, quote_ident};
use crate::kept_expression::KeptExpression;
use crate::parsed::Source;
use crate::result::StatementResult;
use crate::session::Session;
use crate::table_schema::TARGET;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, ident, not};
use serac_binder::Place;
use serac_engine::catalog::definition::{CheckDefinition, ColumnDefinition, KeyDefinition, SqlType, TableDefinition};
use serac_engine::security::{Object, ObjectKind};
use serac_engine::{EngineError, Table};
use serac_parser::tree::{
    self, AlterAction, AlterActionKind, AlterRelation, ColumnChange, RelationKind, TableConstraint,
};
use serac_pg::CastContext;
use serac_pg::casts::cast;
use serac_query::scan::HiddenColumns;
use std::sync::Arc;

fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote(schema), quote(name))
}

/// The CHECK constraints that name a column.
fn checks_naming(table: &TableDefinition, column: usize) -> Result<Vec<CheckDefinition>> {
    let mut found = Vec::new();
    for check in &table.checks {
        if named_columns(table, &check.expression)?.contains(&column) {
            found.push(check.clone());
        }
    }
    Ok(found)
}

/// The index that has a hidden column to itself, and as the how manieth.
fn key_of_hidden(table: &TableDefinition, column: usize) -> Option<(&KeyDefinition, usize)> {
    let of = |key: &'_ KeyDefinition| key.columns.iter().position(|&c| c == column);
    table.columns[column].hidden.then(|| table.keys.iter().find_map(|key| Some((key, of(key)?)))).flatten()
}

/// Refuses another type for a column whose values are not assigned to such columns.
///
/// # Errors
/// 42804.
fn check_automatic(column: &ColumnDefinition, sql_type: SqlType) -> Result<()> {
    let (given, wanted) = (of_column(column.sql_type).id, of_column(sql_type).id);
    if cast(given, wanted, CastContext::Assignment).is_some() {
        return Ok(());
    }
    let name = &column.name;
    let message = format!("column \"{name}\" cannot be cast automatically to type {wanted}");
    let error = SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(name);
    // No values but those of its expression are possible in a generated column.
    Err(match column.generation {
        Some(_) => error,
        None => error.explained(format!("You might need to specify \"USING {}::{sql_type}\".", quote_ident(name))),
    })
}

/// How many constraints of each kind a definition has, to tell those that a builder adds.
struct Constraints {
    keys: usize,
    checks: usize,
    foreign_keys: usize,
}

impl Constraints {
    fn of(definition: &TableDefinition) -> Self {
        Self {
            keys: definition.keys.len(),
            checks: definition.checks.len(),
            foreign_keys: definition.foreign_keys.len(),
        }
    }
}

/// Whether a change is one of tables alone, and of no other relations.
fn is_of_tables(action: &AlterActionKind) -> bool {
    use AlterActionKind as K;
    match action {
        K::AlterColumn { change, .. } => !matches!(**change, ColumnChange::Default(_)),
        K::AddColumn { .. } | K::DropColumn { .. } | K::AddConstraint(_) | K::DropConstraint { .. } => true,
        _ => false,
    }
}

impl Session {
    /// ALTER of a relation.
    pub(super) async fn alter_relation(&mut self, source: &Source, alter: &AlterRelation) -> Result<StatementResult> {
        // No table has others below it.
        let AlterRelation { kind, if_exists, name, only: _, actions } = alter;
        let (schema, mut short) = self.locate(name)?;
        let object = Object::relation(&schema, &short);
        let found = self.txn_for(&schema)?.catalog().kind_of(&object);
        let (word, owned) = match kind {
            // Views and sequences count as tables.
            RelationKind::Table if matches!(found, Some(ObjectKind::View | ObjectKind::Sequence)) => {
                ("TABLE", found.expect("just seen"))
            }
            RelationKind::Table => ("TABLE", ObjectKind::Table),
            RelationKind::MaterializedView => ("MATERIALIZED VIEW", ObjectKind::Table),
            RelationKind::View => ("VIEW", ObjectKind::View),
            RelationKind::Sequence => ("SEQUENCE", ObjectKind::Sequence),
            RelationKind::Index => return Err(SqlError::unsupported("ALTER INDEX")),
        };
        let tag = format!("ALTER {word}");
        let is_table = owned == ObjectKind::Table;
        if *if_exists && found.is_none() {
            self.say_missing(&format!("relation \"{short}\""));
            return done(&tag);
        }
        for AlterAction { kind: action, span } in actions {
            match action {
                AlterActionKind::OwnerTo(role) => self.change_owner(owned, name, role)?,
                AlterActionKind::RenameTo(_) if owned == ObjectKind::View && found == Some(ObjectKind::Table) => {
                    return Err(
                        SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{short}\" is not a view")).named(short)
                    );
                }
                AlterActionKind::RenameTo(new) if owned == ObjectKind::View => {
                    let relation = (schema.clone(), short.clone());
                    let views = self.planned_readers(&relation).await?;
                    self.txn_for(&schema)?.rename_view(&schema, &short, &new.name)?;
                    short.clone_from(&new.name);
                    self.follow(&relation, &short, &[], views).await?;
                }
                action if is_table => {
                    let catalog = self.txn_for(&schema)?.catalog();
                    let is_materialized = catalog.table(&schema, &short)?.definition.materialized.is_some();
                    if *kind == RelationKind::MaterializedView && !is_materialized {
                        let message = format!("\"{short}\" is not a materialized view");
                        return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).named(short));
                    }
                    self.alter_table(source, &schema, &mut short, action, text_at(source, *span)).await?;
                }
                action if *kind == RelationKind::Table && is_of_tables(action) => {
                    return Err(
                        SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{short}\" is not a table")).named(short)
                    );
                }
                _ => return Err(SqlError::unsupported(format!("{tag} … {}", text_at(source, *span)))),
            }
            self.refresh_view();
        }
        done(&tag)
    }

    /// Carries out a change of a table, which is written as `text`.
    async fn alter_table(
        &mut self,
        source: &Source,
        schema: &str,
        name: &mut String,
        action: &AlterActionKind,
        text: &str,
    ) -> Result<()> {
        use AlterActionKind as K;
        let definition = self.txn_for(schema)?.catalog().table(schema, name)?.definition.clone();
        let allowed = matches!(action, K::RenameTo(_) | K::RenameColumn(..) | K::SetOptions(_));
        if definition.materialized.is_some() && !allowed {
            return Err(
                SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")).named(name.as_str())
            );
        }
        let relation = (schema.to_owned(), name.clone());
        let visible = || definition.visible_columns().iter().map(|column| (column.name.clone(), column.name.clone()));
        match action {
            K::AddColumn { if_not_exists, column } => {
                let added = &column.name.name;
                if *if_not_exists && definition.column(added).is_some() {
                    self.say_exists(sqlstate::DUPLICATE_COLUMN, &format!("column \"{added}\" of relation \"{name}\""));
                    return Ok(());
                }
                let views = self.planned_readers(&relation).await?;
                self.add_column(source, &definition, column).await?;
                self.follow(&relation, name, &visible().collect::<Vec<_>>(), views).await
            }
            K::DropColumn { if_exists, name: tree::Ident { name: column, .. }, cascade } => {
                if *if_exists && definition.column(column).is_none() {
                    self.say_missing(&format!("column \"{column}\" of relation \"{name}\""));
                    return Ok(());
                }
                let views = self.planned_readers(&relation).await?;
                let what = format!("column \"{column}\" of table \"{name}\"");
                self.drop_what_names(schema, name, column, *cascade)?;
                self.drop_defaults_beside(&relation, Some(column), &what, *cascade, &[])?;
                self.txn_for(schema)?.drop_column(schema, name, column, *cascade)?;
                self.still_plannable(views, &what, *cascade).await
            }
            K::RenameColumn(old, new) => {
                let views = self.planned_readers(&relation).await?;
                let (old, new) = (&old.name, &new.name);
                self.rename_column(&definition, old, new)?;
                let renamed = |(now, shown)| if now == *old { (new.clone(), shown) } else { (now, shown) };
                self.follow(&relation, name, &visible().map(renamed).collect::<Vec<_>>(), views).await
            }
            K::RenameTo(new) => {
                let views = self.planned_readers(&relation).await?;
                self.txn_for(schema)?.rename_table(schema, name, &new.name)?;
                name.clone_from(&new.name);
                self.follow(&relation, name, &[], views).await
            }
            K::AlterColumn { name: column, change } => {
                let views = match **change {
                    ColumnChange::Type { .. } => self.planned_readers(&relation).await?,
                    _ => Vec::new(),
                };
                self.alter_column(source, &definition, &column.name, change, text).await?;
                self.still_of_types(views, &column.name).await
            }
            K::AddConstraint(constraint) => self.add_constraint(source, definition, constraint).await,
            K::DropConstraint { if_exists, name: tree::Ident { name: constraint, .. }, cascade } => {
                let views = self.planned_readers(&relation).await?;
                let dropped = match self.txn_for(schema)?.drop_constraint(schema, name, constraint, *cascade) {
                    Err(EngineError::Missing { kind: "constraint", .. }) if *if_exists => {
                        self.say_missing(&format!("constraint \"{constraint}\" of relation \"{name}\""));
                        return Ok(());
                    }
                    result => result,
                };
                dropped?;
                let what = format!("constraint \"{constraint}\" of table \"{name}\"");
                self.still_plannable(views, &what, *cascade).await
            }
            K::SetOptions(options) => {
                if let Some(format) = freeze_format(options)? {
                    self.txn_for(schema)?.set_freeze_format(schema, name, format)?;
                }
                Ok(())
            }
            K::AlterColumnNumber { .. }
            | K::AlterConstraint(..)
            | K::ValidateConstraint(_)
            | K::RenameConstraint(..)
            | K::SetSchema(_)
            | K::OwnerTo(_)
            | K::ResetOptions(_)
            | K::SetWithoutOids
            | K::ClusterOn(_)
            | K::SetWithoutCluster
            | K::SetLogged(_)
            | K::SetAccessMethod(_)
            | K::SetTablespace(_)
            | K::Enable(_)
            | K::Inherit(_)
            | K::NoInherit(_)
            | K::Of(_)
            | K::NotOf
            | K::ReplicaIdentity(_)
            | K::RowSecurity(_)
            | K::ForceRowSecurity(_)
            | K::ForeignOptions(_)
            | K::AttachPartition(..)
            | K::DetachPartition { .. }
            | K::DependsOnExtension(..) => Err(SqlError::unsupported(format!("ALTER TABLE … {text}"))),
        }
    }

    /// Refuses a change of columns after which a CHECK constraint cannot be evaluated.
    async fn checks_still_work(&mut self, schema: &str, name: &str, what: &str) -> Result<()> {
        let now = self.txn_for(schema)?.catalog().table(schema, name)?.definition.clone();
        for check in &now.checks {
            self.check_expression(&now, &check.expression).await.map_err(|_| {
                let message = format!("cannot {what} because constraint \"{}\" depends on it", check.name);
                SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message)
            })?;
        }
        Ok(())
    }

    /// Drops the parts of a table that name a column that is to be dropped. These are the CHECK
    /// constraints that name it and the generated columns computed from it; without `cascade`, the
    /// generated columns are an error.
    fn drop_what_names(&mut self, schema: &str, name: &str, column: &str, cascade: bool) -> Result<()> {
        let definition = self.txn_for(schema)?.catalog().table(schema, name)?.definition.clone();
        let Some(at) = definition.column(column) else { return Ok(()) };
        for other in generated::changing(&definition, &[at])?.into_iter().filter(|&other| other != at) {
            // The index uses the column, and loses that part.
            if let Some((key, _)) = key_of_hidden(&definition, other) {
                let index = key.name.clone();
                if self.txn_for(schema)?.catalog().table(schema, name)?.definition.index_names().any(|n| *n == index) {
                    self.txn_for(schema)?.drop_index(schema, &index)?;
                }
                continue;
            }
            let other = &definition.columns[other].name;
            if !cascade {
                let message =
                    format!("cannot drop column \"{column}\" because generated column \"{other}\" depends on it");
                return Err(SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
            self.drop_what_names(schema, name, other, cascade)?;
            self.txn_for(schema)?.drop_column(schema, name, other, cascade)?;
        }
        for check in checks_naming(&definition, at)? {
            self.txn_for(schema)?.drop_constraint(schema, name, &check.name, false)?;
        }
        Ok(())
    }

    /// Renames a column, also where expressions of the table name it.
    fn rename_column(&mut self, table: &TableDefinition, old: &str, new: &str) -> Result<()> {
        let (schema, name) = (&table.schema, &table.name);
        let (mut checks, mut computed) = (Vec::new(), Vec::new());
        if let Some(at) = table.column(old) {
            checks = checks_naming(table, at)?;
            computed = generated::changing(table, &[at])?.into_iter().filter(|&other| other != at).collect();
        }
        let txn = self.txn_for(schema)?;
        for check in &checks {
            txn.drop_constraint(schema, name, &check.name, false)?;
        }
        txn.rename_column(schema, name, old, new)?;
        for check in checks {
            let expression = renamed(&check.expression, old, new)?;
            txn.add_check(schema, name, CheckDefinition { expression, ..check })?;
        }
        for at in computed {
            let column = &table.columns[at];
            if let Some((key, i)) = key_of_hidden(table, at) {
                let mut key = key.clone();
                for text in key.expressions.iter_mut().flatten().chain(&mut key.predicate) {
                    *text = renamed(text, old, new)?;
                }
                let values = hidden_values(&key, i);
                txn.alter_column(schema, name, &column.name, |column| column.generation = values)?;
                txn.alter_key(schema, name, &key.name, |now| {
                    (now.expressions, now.predicate) = (key.expressions.clone(), key.predicate.clone());
                })?;
                continue;
            }
            let expression = column.generation.as_deref().map(|text| renamed(text, old, new)).transpose()?;
            txn.alter_column(schema, name, &column.name, |column| column.generation = expression)?;
        }
        Ok(())
    }

    /// A table as the statement has made it so far.
    fn table_now(&self, table: &TableDefinition) -> Result<Arc<Table>> {
        let view = self.shared.view().expect("a statement is running");
        Ok(view.of(&table.schema).0.table(&table.schema, &table.name)?.clone())
    }

    /// Whether a table has rows for which a condition over its columns is true.
    async fn has_rows(&self, table: &Arc<Table>, condition: Expr) -> Result<bool> {
        let rows = {
            let view = self.shared.view().expect("a statement is running");
            let source = provider_as_source(Arc::new(self.shared.provider(&view, table, HiddenColumns::default())));
            LogicalPlanBuilder::scan(TARGET, source, None)?.filter(condition)?.limit(0, Some(1))?.build()?
        };
        let found = self.collect(DataFrame::new(self.state(), rows)).await?;
        Ok(found.iter().any(|b| b.num_rows() > 0))
    }

    async fn add_column(
        &mut self,
        source: &Source,
        table: &TableDefinition,
        column: &tree::ColumnDefinition,
    ) -> Result<()> {
        let (schema, name) = (&table.schema, &table.name);
        if table.column(&column.name.name).is_some() {
            return Err(EngineError::Exists { kind: "column", name: column.name.name.clone() }.into());
        }
        // Without the hidden columns, which come behind it.
        let mut visible = table.clone();
        visible.keys.retain(|key| table.hidden_columns(key).is_empty());
        visible.columns.truncate(table.visible_columns().len());
        let known = Constraints::of(&visible);
        let at = visible.columns.len();
        let mut builder = self.builder(visible, source);
        builder.column(column)?;
        builder.resolve_parents(self.txn_for(schema)?.catalog())?;
        self.with_usual_constants(&mut builder.definition, &builder.written)?;
        builder.definition.columns.iter_mut().for_each(without_null_default);
        for sequence in std::mem::take(&mut builder.sequences) {
            self.txn_for(schema)?.create_sequence(schema, sequence)?;
            self.refresh_view();
        }
        self.txn_for(schema)?.lock_table(schema, name)?;
        // Values first, outside of the engine's borrow: one per row, because a default may differ
        // from row to row.
        let count = self.frame_of(&format!("SELECT count(*) FROM {}", qualified(schema, name))).await?;
        let count = self.collect(count).await?[0].column(0).as_primitive::<Int64Type>().value(0);
        let column = builder.definition.columns.last().expect("one was added").clone();
        let values = self.column_default(&column, count as usize)?;
        let taken = std::cell::Cell::new(0);
        self.check_generation(&builder.definition, at).await?;
        let (state, definition) = (self.state(), &builder.definition);
        self.txn_for(schema)?.add_column(schema, name, column, |old| {
            if definition.columns[at].generation.is_some() {
                return generated::compute_one(&state, definition, at, old).map_err(into_engine);
            }
            let rows = old.num_rows();
            let from = taken.replace(taken.get() + rows);
            Ok(values.slice(from, rows))
        })?;
        self.add_constraints(builder.definition, &known).await
    }

    /// Carries out a change of a column, which is written as `text`.
    async fn alter_column(
        &mut self,
        source: &Source,
        table: &TableDefinition,
        column: &str,
        change: &ColumnChange,
        text: &str,
    ) -> Result<()> {
        let (schema, name) = (&table.schema, &table.name);
        let Some(at) = table.column(column) else {
            return Err(SqlError::no_column(column, name));
        };
        match change {
            ColumnChange::NotNull(false) | ColumnChange::Default(_) if table.columns[at].is_identity() => {
                let message = format!("column \"{column}\" of relation \"{name}\" is an identity column");
                let error = SqlError::new(sqlstate::SYNTAX_ERROR, message);
                return Err(match change {
                    ColumnChange::Default(None) => {
                        error.explained("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.")
                    }
                    _ => error,
                });
            }
            ColumnChange::NotNull(true) => self.set_not_null(table, at).await?,
            ColumnChange::NotNull(false) => {
                if table.primary_key().is_some_and(|key| key.columns.contains(&at)) {
                    return Err(SqlError::new(
                        sqlstate::INVALID_TABLE_DEFINITION,
                        format!("column \"{column}\" is in a primary key"),
                    ));
                }
                self.txn_for(schema)?.alter_column(schema, name, column, |c| c.nullable = true)?;
            }
            ColumnChange::Default(_) if table.columns[at].generation.is_some() => {
                let message = format!("column \"{column}\" of relation \"{name}\" is a generated column");
                return Err(SqlError::new(sqlstate::SYNTAX_ERROR, message));
            }
            ColumnChange::Default(Some(value)) => {
                let mut definition = table.columns[at].clone();
                definition.default = Some(text_at(source, value.text).to_owned());
                definition.default = self.usual_default(&definition)?;
                self.check_default(&definition).await?;
                without_null_default(&mut definition);
                self.txn_for(schema)?.alter_column(schema, name, column, |c| c.default = definition.default)?;
            }
            ColumnChange::Default(None) => {
                self.txn_for(schema)?.alter_column(schema, name, column, |c| c.default = None)?;
            }
            ColumnChange::Type { type_name, collation, using } => {
                collation.as_ref().map_or(Ok(()), check_collation)?;
                let using = using.as_ref().map(|using| text_at(source, using.text));
                self.change_type(table, at, sql_type(type_name)?, using).await?;
            }
            ColumnChange::DropIdentity(if_exists) => self.drop_identity(table, at, *if_exists)?,
            ColumnChange::DropExpression(_)
            | ColumnChange::Statistics(_)
            | ColumnChange::SetOptions(_)
            | ColumnChange::ResetOptions(_)
            | ColumnChange::Storage(_)
            | ColumnChange::Compression(_)
            | ColumnChange::AddIdentity { .. }
            | ColumnChange::Identity(_)
            | ColumnChange::ForeignOptions(_) => {
                return Err(SqlError::unsupported(format!("ALTER TABLE … {text}")));
            }
        }
        Ok(())
    }

    /// Gives a column another type. Its values become those of `using`, or are converted by
    /// assignment.
    async fn change_type(
        &mut self,
        table: &TableDefinition,
        at: usize,
        sql_type: SqlType,
        using: Option<&str>,
    ) -> Result<()> {
        let (schema, name) = (&table.schema, &table.name);
        let column = &table.columns[at];
        let is_indexed = table.keys.iter().any(|key| key.columns.contains(&at))
            || table.bitmaps.iter().any(|bitmap| bitmap.column == at);
        if is_indexed {
            check_key_type(sql_type)?;
        }
        if column.is_identity() {
            check_identity_type(sql_type)?;
        }
        if using.is_none() {
            check_automatic(column, sql_type)?;
        }
        let changed = ColumnDefinition { sql_type, ..column.clone() };
        let is_wider = sql_type.length.is_none_or(|most| column.sql_type.length.is_some_and(|length| length <= most));
        if using.is_none()
            && sql_type.column_type == column.sql_type.column_type
            && is_wider
            && !sql_type.fixed_length
            // Its values may have blanks at their end, which the other type does not get.
            && !(column.sql_type.fixed_length && column.sql_type.length.is_none())
            && sql_type != SqlType::NAME
        {
            let redefined = self.txn_for(schema)?.alter_column(schema, name, &column.name, |c| c.sql_type = sql_type);
            return Ok(redefined?);
        }
        if generated::changing(table, &[at])?.iter().any(|&other| other != at) {
            let what = "the type of a column from which a generated column or an index is computed";
            return Err(SqlError::unsupported(what));
        }
        let catalog = self.txn_for(schema)?.catalog().clone();
        let is_referenced =
            catalog.children_of(table).any(|(child, i)| child.definition.foreign_keys[i].parent_columns.contains(&at));
        if is_referenced || table.foreign_keys.iter().any(|key| key.columns.contains(&at)) {
            let message = format!("the type of column \"{}\", which a foreign key uses: drop that first", column.name);
            return Err(SqlError::unsupported(message));
        }
        self.check_default(&changed).await.map_err(|_| {
            let wanted = of_column(sql_type).id;
            let message =
                format!("default for column \"{}\" cannot be cast automatically to type {wanted}", column.name);
            SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
        })?;
        let (text, place) = match (using, &column.generation) {
            (Some(_), Some(_)) => {
                let message = "cannot specify USING when altering type of generated column";
                let error = SqlError::new(sqlstate::INVALID_COLUMN_DEFINITION, message).named(&column.name);
                return Err(error.explained(format!("Column \"{}\" is a generated column.", column.name)));
            }
            (Some(using), None) => (using.to_owned(), Place::Transform),
            (None, Some(expression)) => (expression.clone(), Place::Generation),
            (None, None) => (quote(&column.name), Place::Transform),
        };
        // The column itself may become one that takes no assigned values.
        let assigned = (using.is_some() || column.generation.is_some()).then_some(&changed);
        let expression = KeptExpression { text: &text, place, table: Some(table), column: assigned };
        self.txn_for(schema)?.lock_table(schema, name)?;
        let (state, shared) = (self.state(), self.shared.clone());
        let convert = |old: &RecordBatch| {
            let values = expression.values(&state, old);
            values.and_then(|values| dml::assigned(&shared, &values, &changed)).map_err(into_engine)
        };
        // What cannot be meant is an error without rows, too.
        convert(&RecordBatch::new_empty(table.storage_schema().arrow())).map_err(|error| match column.generation {
            Some(_) if error.sqlstate() == sqlstate::DATATYPE_MISMATCH => {
                let (column, wanted) = (&column.name, of_column(sql_type).id);
                let what = format!("generation expression for column \"{column}\"");
                let message = format!("{what} cannot be cast automatically to type {wanted}");
                SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(column)
            }
            _ => error.into(),
        })?;
        self.txn_for(schema)?.change_column(schema, name, &column.name, changed.clone(), convert)?;
        self.retype_identity(table, at, sql_type.column_type)?;
        self.checks_still_work(schema, name, &format!("alter type of column \"{}\"", column.name)).await?;
        self.refresh_view();
        for check in &table.checks {
            self.holds_for_all(table, check).await?;
        }
        Ok(())
    }

    async fn set_not_null(&mut self, table: &TableDefinition, column: usize) -> Result<()> {
        let column = &table.columns[column].name;
        self.txn_for(&table.schema)?.lock_table(&table.schema, &table.name)?;
        if self.has_rows(&self.table_now(table)?, ident(column).is_null()).await? {
            let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
            return Err(SqlError::new(sqlstate::NOT_NULL_VIOLATION, message)
                .named(column)
                .of_table(&table.schema, &table.name));
        }
        Ok(self.txn_for(&table.schema)?.alter_column(&table.schema, &table.name, column, |c| c.nullable = false)?)
    }

    async fn add_constraint(
        &mut self,
        source: &Source,
        table: TableDefinition,
        constraint: &TableConstraint,
    ) -> Result<()> {
        let known = Constraints::of(&table);
        let schema = table.schema.clone();
        let mut builder = self.builder(table, source);
        builder.constraint(constraint)?;
        builder.resolve_parents(self.txn_for(&schema)?.catalog())?;
        self.with_usual_constants(&mut builder.definition, &builder.written)?;
        for at in 0..builder.definition.columns.len() {
            self.check_generation(&builder.definition, at).await?;
        }
        self.add_constraints(builder.definition, &known).await
    }

    /// Adds the constraints of `table` that are not `known`, each checked against the rows.
    async fn add_constraints(&mut self, mut table: TableDefinition, known: &Constraints) -> Result<()> {
        for key in table.keys.split_off(known.keys) {
            if key.primary {
                if table.primary_key().is_some() {
                    let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
                    return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
                }
                self.refresh_view();
                for &c in &key.columns {
                    self.set_not_null(&table, c).await?;
                }
            }
            self.txn_for(&table.schema)?.create_index(&table.schema, &table.name, key)?;
        }
        for check in table.checks.split_off(known.checks) {
            self.refresh_view();
            self.add_check(&table, check).await?;
        }
        for foreign_key in table.foreign_keys.split_off(known.foreign_keys) {
            self.txn_for(&table.schema)?.add_foreign_key(&table.schema, &table.name, foreign_key)?;
        }
        Ok(())
    }

    async fn holds_for_all(&self, table: &TableDefinition, check: &CheckDefinition) -> Result<()> {
        let now = self.table_now(table)?;
        let schema = DFSchema::try_from(now.definition.storage_schema().arrow())?;
        let kept = KeptExpression::over(&now.definition, &check.expression, Place::Check);
        let expression = kept.bound(&self.state(), &schema)?.expr;
        if self.has_rows(&now, not(expression)).await? {
            let name = &check.name;
            let message = format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name);
            return Err(SqlError::new(sqlstate::CHECK_VIOLATION, message)
                .named(name)
                .of_table(&table.schema, &table.name));
        }
        Ok(())
    }

    async fn add_check(&mut self, table: &TableDefinition, check: CheckDefinition) -> Result<()> {
        self.check_expression(table, &check.expression).await?;
        self.txn_for(&table.schema)?.lock_table(&table.schema, &table.name)?;
        self.holds_for_all(table, &check).await?;
        Ok(self.txn_for(&table.schema)?.add_check(&table.schema, &table.name, check)?)
    }
}
