//! Statements that change the catalog.

mod alter;
mod builder;
mod cluster;
mod comment;
mod dependencies;
mod functions;
mod indexes;
mod like;
mod materialized;
mod sequence;

pub(crate) use builder::parse_expression;
pub(crate) use cluster::{clause as cluster_clause, statement as cluster_statement};
pub(crate) use like::likes_as_columns;
pub(crate) use materialized::{clause as data_clause, statement as refresh_statement};
pub(crate) use sequence::statement as sequence_statement;

use crate::catalog::View;
use crate::clauses::owner_of_schema;
use crate::column_types::{columns_of, kept_types};
use crate::error::{Result, SqlError};
use crate::expressions::KeptExpression;
use crate::identifiers::{TEMPORARY_SCHEMA, fold, resolve};
use crate::notices::Severity;
use crate::parsed::Source;
use crate::query::with_types;
use crate::session::{Session, StatementResult};
use crate::visits::visit_mut;
use builder::{TableBuilder, freeze_format};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{
    CascadeOption, ColumnDef, CreateTable, CreateTableOptions, CreateView, Ident, ObjectName, ObjectNamePart,
    ObjectType, OnCommit, Query, SchemaName, Statement, Truncate, TruncateIdentityOption, VisitorMut,
};
use dependencies::refuse_circle;
use like::Like;
use serac_binder::Place;
use serac_engine::DEFAULT_SCHEMA;
use serac_engine::definition::{ColumnDefinition, SqlType, TableDefinition, ViewDefinition};
use serac_engine::roles::{Object, Privilege};
use serac_pg::TypeId;
use serac_storage::ColumnType;
use serac_values::assignment::check_assignment;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// How often a statement is tried. Each time it gets at least one lock further.
const ATTEMPTS: usize = 16;

fn done(tag: &str) -> Result<StatementResult> {
    Ok(StatementResult::command(tag))
}

impl Session {
    /// DDL. In a transaction of its own it tries again when writers were faster: each attempt keeps the locks of those before, so that the next
    /// snapshot has what they have written.
    pub(crate) async fn define(&mut self, statement: Statement, source: Option<&Source>) -> Result<StatementResult> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.define_now(statement.clone(), source).await {
                Err(error) if error.sqlstate == "40001" && attempts < ATTEMPTS && self.restart() => {}
                result => {
                    self.refresh_view();
                    return result;
                }
            }
        }
    }

    async fn define_now(&mut self, statement: Statement, source: Option<&Source>) -> Result<StatementResult> {
        if let Some(result) = self.define_roles(&statement)? {
            return Ok(result);
        }
        if let Some(result) = self.cluster(&statement)? {
            return Ok(result);
        }
        if let Some(result) = self.alter_sequence(&statement)? {
            return Ok(result);
        }
        if let Some(result) = self.refresh(&statement).await? {
            return Ok(result);
        }
        match statement {
            Statement::CreateSchema { schema_name, if_not_exists, .. } => {
                let name = match &schema_name {
                    SchemaName::Simple(name) | SchemaName::NamedAuthorization(name, _) => resolve(name)?.1,
                    SchemaName::UnnamedAuthorization(ident) => fold(ident),
                };
                if name.starts_with("pg_") {
                    let message = format!("unacceptable schema name \"{name}\": the prefix \"pg_\" is reserved");
                    return Err(SqlError::new("42939", message));
                }
                let owner = owner_of_schema(&schema_name).map(|owner| self.role_of(owner)).transpose()?;
                if if_not_exists && self.txn()?.catalog().schemas.contains_key(&name) {
                    self.say_exists("42P06", &format!("schema \"{name}\""));
                } else {
                    self.txn()?.create_schema(&name)?;
                    if let Some(owner) = owner {
                        self.txn()?.set_owner(&Object::Schema(name), owner)?;
                    }
                }
                done("CREATE SCHEMA")
            }
            Statement::CreateTable(create) => self.create_table(create, source).await,
            Statement::CreateView(view) if view.materialized => self.create_materialized(view, source).await,
            Statement::CreateView(view) => self.create_view(view, source).await,
            Statement::CreateIndex(index) => self.create_index(index),
            create @ Statement::CreateSequence { .. } => self.create_sequence(create),
            Statement::Drop { object_type, if_exists, names, cascade, .. } => {
                let all: Vec<_> = names.iter().filter_map(|name| self.locate(name).ok()).collect();
                for name in &names {
                    match self.drop_one(&object_type, name, cascade, &all) {
                        Err(error) if if_exists && ["42P01", "3F000", "42704"].contains(&error.sqlstate) => {
                            let (_, short) = resolve(name)?;
                            self.say_missing(&format!("{} \"{short}\"", object_type.to_string().to_lowercase()));
                        }
                        result => result?,
                    }
                }
                done(&format!("DROP {object_type}"))
            }
            Statement::Call(function) => self.call(&function),
            Statement::CreateFunction(create) => self.create_function(&create),
            Statement::DropFunction(drop) => self.drop_functions(&drop),
            Statement::Comment { object_type, object_name, comment, if_exists: false } => {
                self.comment(object_type, &object_name, comment)
            }
            Statement::Truncate(truncate) => self.truncate(&truncate),
            Statement::AlterTable(alter) => {
                let (schema, mut name) = self.locate(&alter.name)?;
                if alter.if_exists && self.txn_for(&schema)?.catalog().table(&schema, &name).is_err() {
                    self.say_missing(&format!("relation \"{name}\""));
                    return done("ALTER TABLE");
                }
                for operation in &alter.operations {
                    self.alter_table(&schema, &mut name, operation).await?;
                    self.refresh_view();
                }
                done("ALTER TABLE")
            }
            other => {
                let text = other.to_string();
                let first: Vec<_> = text.split_whitespace().take(2).collect();
                Err(SqlError::unsupported(first.join(" ")))
            }
        }
    }

    /// What makes a table's definition of what is said of it.
    fn builder(&self, definition: TableDefinition) -> TableBuilder {
        TableBuilder::new(definition, self.shared.view().expect("a statement is running"))
    }

    fn truncate(&mut self, truncate: &Truncate) -> Result<StatementResult> {
        let named = truncate.table_names.iter().map(|target| self.locate(&target.name)).collect::<Result<Vec<_>>>()?;
        let cascade = matches!(truncate.cascade, Some(CascadeOption::Cascade));
        let restart = matches!(truncate.identity, Some(TruncateIdentityOption::Restart));
        let (temporary, others): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|(schema, _)| schema == TEMPORARY_SCHEMA);
        for tables in [temporary, others] {
            let Some((schema, _)) = tables.first() else { continue };
            for (schema, name) in &tables {
                let table = self.txn_for(schema)?.catalog().table(schema, name)?;
                if table.definition.materialized.is_some() {
                    return Err(SqlError::new("42809", format!("\"{name}\" is not a table")).named(name));
                }
            }
            for table in self.txn_for(schema)?.truncate(&tables, cascade, restart)? {
                self.say(Severity::Notice, "00000", format!("truncate cascades to table \"{table}\""));
            }
        }
        self.refresh_view();
        done("TRUNCATE TABLE")
    }

    /// Drops one of the objects `all`.
    fn drop_one(
        &mut self,
        kind: &ObjectType,
        name: &ObjectName,
        cascade: bool,
        all: &[(String, String)],
    ) -> Result<()> {
        let (mut schema, short) = self.locate(name)?;
        if *kind == ObjectType::Index && name.0.len() == 1 && self.has_temporary_index(&short) {
            schema = TEMPORARY_SCHEMA.into();
        }
        let txn = self.txn_for(&schema)?;
        let relations = txn.catalog().schema(&schema);
        let is_view = relations.as_ref().is_ok_and(|relations| relations.views.contains_key(&short));
        let table = relations.ok().and_then(|relations| relations.tables.get(&short));
        let is_materialized = table.map(|table| table.definition.materialized.is_some());
        let other = match kind {
            ObjectType::Table => is_view || is_materialized == Some(true),
            ObjectType::MaterializedView => is_view || is_materialized == Some(false),
            ObjectType::View => is_materialized.is_some(),
            _ => false,
        };
        if other {
            let wanted = kind.to_string().to_lowercase();
            return Err(SqlError::new("42809", format!("\"{short}\" is not a {wanted}")).named(short));
        }
        let relation = (schema.clone(), short.clone());
        match kind {
            ObjectType::Table | ObjectType::MaterializedView if is_materialized.is_some() => {
                self.drop_readers(&relation, &format!("table \"{short}\""), cascade, all)?;
            }
            ObjectType::View if is_view => {
                self.drop_readers(&relation, &format!("view \"{short}\""), cascade, all)?;
            }
            ObjectType::Sequence if self.txn_for(&schema)?.catalog().sequence(&schema, &short).is_ok() => {
                self.drop_defaults_of(&relation, cascade)?;
            }
            ObjectType::Schema if cascade => self.drop_readers_of_schema(&short)?,
            _ => {}
        }
        let txn = self.txn_for(&schema)?;
        match kind {
            ObjectType::Table | ObjectType::MaterializedView => txn.drop_table(&schema, &short, cascade)?,
            ObjectType::View => txn.drop_view(&schema, &short)?,
            ObjectType::Index => txn.drop_index(&schema, &short)?,
            ObjectType::Sequence => txn.drop_sequence(&schema, &short)?,
            ObjectType::Schema => txn.drop_schema(&short, cascade)?,
            other => return Err(SqlError::unsupported(format!("DROP {other}"))),
        }
        Ok(())
    }

    /// Drops all temporary tables of the session.
    pub(crate) fn drop_temporary_tables(&mut self) -> Result<()> {
        if self.temporary_catalog().is_none() {
            return Ok(());
        }
        let txn = self.txn_for(TEMPORARY_SCHEMA)?;
        // Those that the transaction has made, too.
        let catalog = txn.catalog().clone();
        for table in catalog.tables() {
            // Those that a CASCADE has taken with it are gone.
            if txn.catalog().table(TEMPORARY_SCHEMA, table.name()).is_ok() {
                txn.drop_table(TEMPORARY_SCHEMA, table.name(), true)?;
            }
        }
        Ok(())
    }

    fn has_temporary_index(&self, name: &str) -> bool {
        let view = self.shared.view().expect("a statement is running");
        let mut tables = view.temporary.iter().flat_map(|(catalog, ..)| catalog.tables());
        tables.any(|table| table.definition.index_names().any(|index| index == name))
    }

    async fn create_table(&mut self, create: CreateTable, source: Option<&Source>) -> Result<StatementResult> {
        refuse_forms(&create)?;
        let (mut schema, name) = if create.temporary { resolve(&create.name)? } else { self.locate_new(&create.name)? };
        if create.temporary {
            if create.name.0.len() > 1 && schema != TEMPORARY_SCHEMA {
                return Err(SqlError::new("42P16", "cannot create temporary relation in non-temporary schema"));
            }
            schema = TEMPORARY_SCHEMA.into();
        }
        if create.if_not_exists && self.txn_for(&schema)?.catalog().table(&schema, &name).is_ok() {
            self.say_exists("42P07", &format!("relation \"{name}\""));
            return done("CREATE TABLE");
        }
        let mut builder = self.builder(TableDefinition::new(schema.clone(), name, Vec::new()));
        if let CreateTableOptions::With(options) = &create.table_options {
            builder.definition.freeze_format = freeze_format(options)?.unwrap_or_default();
        }
        let comments = self.listed_columns(&create.columns, &mut builder)?;
        for constraint in &create.constraints {
            builder.constraint(constraint)?;
        }
        builder.resolve_parents(self.txn_for(&schema)?.catalog())?;
        let rows = match create.query {
            None => None,
            Some(_) => {
                let (frame, told) = self.frame_of_relation(text_of(source)?).await?;
                let (columns, rows) = self.collect_with_schema(frame).await?;
                let known = builder.definition.columns.len();
                let columns = columns_of_rows(&with_types(&told, &columns), &rows, true)?;
                builder.definition.columns.extend(columns.into_iter().skip(known));
                Some(rows)
            }
        };
        if let Some(by) = &create.cluster_by {
            builder.definition.cluster = cluster::cluster_key(&builder.definition, by)?;
        }
        for sequence in builder.sequences {
            self.txn_for(&schema)?.create_sequence(&schema, sequence)?;
        }
        for check in &builder.definition.checks {
            self.check_expression(&builder.definition, &check.expression)?;
        }
        for (at, column) in builder.definition.columns.iter().enumerate() {
            self.check_default(column)?;
            self.check_generation(&builder.definition, at)?;
        }
        let mut table = self.txn_for(&schema)?.create_table(builder.definition)?;
        for key in builder.expression_keys {
            self.create_key(&table.definition, key)?;
            table = self.txn_for(&schema)?.catalog().table(&schema, table.name())?.clone();
        }
        for (column, text) in comments {
            self.txn_for(&schema)?.comment(&Object::relation(&schema, table.name()), Some(&column), Some(text))?;
        }
        let Some(batches) = rows else { return done("CREATE TABLE") };
        let rows = self.fill(&table, &batches)?;
        Ok(StatementResult::Command { tag: format!("SELECT {rows}"), rows })
    }

    /// Adds the columns of a list, those of LIKE included. The comments that come with them, by column.
    fn listed_columns(&mut self, list: &[ColumnDef], builder: &mut TableBuilder) -> Result<Vec<(String, String)>> {
        let mut comments = Vec::new();
        for column in list {
            let Some(like) = Like::of(column)? else {
                builder.column(column)?;
                continue;
            };
            let source = self.table(&like.table)?;
            let all: Vec<usize> = (0..source.definition.visible_columns().len()).collect();
            self.check_privilege(&source, Privilege::Select, &all)?;
            builder.like(&like, &source.definition)?;
            if like.has("comments") {
                let schema = &source.definition.schema;
                let object = Object::relation(schema, source.name());
                let known = self.txn_for(schema)?.catalog().comments.iter().filter(|(about, ..)| **about == object);
                comments.extend(known.filter_map(|(_, column, text)| Some((column?.to_owned(), text.to_owned()))));
            }
        }
        Ok(comments)
    }

    /// A default must be plannable. A constant is tried out; anything else is not computed, for it may have effects.
    fn check_default(&self, column: &ColumnDefinition) -> Result<()> {
        let Some(default) = KeptExpression::default_of(column) else { return Ok(()) };
        let bound = default.bound(&self.state(), &DFSchema::empty())?;
        if bound.id != TypeId::UNKNOWN {
            check_assignment(&bound.expr.get_type(&DFSchema::empty())?, column.sql_type, &column.name)?;
        }
        self.column_default(column, usize::from(bound.expr.as_literal().is_some()))?;
        Ok(())
    }

    /// A CHECK expression must be plannable and boolean.
    fn check_expression(&self, definition: &TableDefinition, expression: &str) -> Result<()> {
        let empty = RecordBatch::new_empty(definition.storage_schema().arrow());
        KeptExpression::over(definition, expression, Place::Check).values(&self.state(), &empty).map(drop)
    }

    async fn create_view(&mut self, mut view: CreateView, source: Option<&Source>) -> Result<StatementResult> {
        if view.temporary {
            return Err(SqlError::unsupported("a temporary view"));
        }
        let (schema, name) = self.locate_new(&view.name)?;
        if view.if_not_exists && self.txn()?.catalog().schema(&schema)?.views.contains_key(&name) {
            self.say_exists("42P07", &format!("relation \"{name}\""));
            return done("CREATE VIEW");
        }
        self.refuse_temporary(&view, &schema)?;
        // Planned once, so that a view that cannot work is refused.
        let (_, told) = self.frame_of_relation(text_of(source)?).await?;
        let columns: Vec<String> = view.columns.iter().map(|c| fold(&c.name)).collect();
        if columns.len() > told.fields().len() {
            return Err(SqlError::new("42601", "CREATE VIEW specifies more column names than columns"));
        }
        let relation = (schema.clone(), name.clone());
        let before = match view.or_replace {
            true => self.view_columns(&relation).await,
            false => None,
        };
        let readers = match &before {
            Some(before) => {
                let mut after: Vec<Field> = told.fields().iter().map(|f| f.as_ref().clone()).collect();
                after.iter_mut().zip(&columns).for_each(|(field, name)| field.set_name(name.clone()));
                Self::same_view_columns(before, &Schema::new(after))?;
                self.planned_readers(&relation).await?
            }
            None => Vec::new(),
        };
        let seen = self.shared.view().expect("a statement is running");
        let mut writer = SchemaWriter { seen: &seen, expressions: HashSet::new() };
        let _ = visit_mut(&mut view.query, &mut writer);
        let definition = ViewDefinition { name, query: view.query.to_string(), columns };
        if view.or_replace {
            refuse_circle(&seen.catalog, &relation, &definition.query)?;
        }
        self.txn()?.create_view(&schema, definition, view.or_replace)?;
        if let Some(before) = before {
            let columns: Vec<_> = before.fields().iter().map(|f| (f.name().clone(), f.name().clone())).collect();
            let name = relation.1.clone();
            self.follow(&relation, &name, &columns, readers).await?;
        }
        done("CREATE VIEW")
    }

    /// The columns of a view, if there is one of the name.
    async fn view_columns(&self, (schema, name): &(String, String)) -> Option<SchemaRef> {
        let view = self.shared.view().expect("a statement is running");
        view.catalog.schema(schema).ok()?.views.get(name)?;
        let table = crate::catalog::table_of(&self.shared, schema, name).await.ok()??;
        Some(columns_of(&table))
    }
}

/// The text of a statement that has a query.
fn text_of(source: Option<&Source>) -> Result<&Source> {
    source.ok_or_else(|| SqlError::new("XX000", "a query without a text"))
}

/// Puts the schemas into names that mean relations outside of the default schema now: under another `search_path` they would mean others.
struct SchemaWriter<'v> {
    seen: &'v View,
    /// Names of common table expressions.
    expressions: HashSet<String>,
}

impl VisitorMut for SchemaWriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.expressions.extend(tables.map(|table| fold(&table.alias.name)));
        ControlFlow::Continue(())
    }
    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        let [ObjectNamePart::Identifier(name)] = &relation.0[..] else { return ControlFlow::Continue(()) };
        let name = fold(name);
        let schema = self.seen.schema_of(&name);
        let is_there = self.seen.catalog.kind_of(&Object::relation(schema, &name)).is_some();
        if schema != DEFAULT_SCHEMA && is_there && !self.expressions.contains(&name) {
            relation.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', schema)));
        }
        ControlFlow::Continue(())
    }
}

/// Refuses what of CREATE TABLE means something that there is not, but for what [`crate::clauses`] has refused.
fn refuse_forms(create: &CreateTable) -> Result<()> {
    match &create.on_commit {
        None | Some(OnCommit::PreserveRows) => Ok(()),
        Some(_) => Err(SqlError::unsupported("ON COMMIT DROP or DELETE ROWS")),
    }
}

/// The columns of a table that has a query's rows. `may_grow` is as for [`kept_types`].
fn columns_of_rows(columns: &Schema, rows: &[RecordBatch], may_grow: bool) -> Result<Vec<ColumnDefinition>> {
    let types = kept_types(columns, rows, may_grow)?;
    let column = |(field, sql_type): (&Arc<Field>, SqlType)| ColumnDefinition {
        name: field.name().clone(),
        sql_type,
        nullable: true,
        default: None,
        always_generated: false,
        generation: None,
        hidden: false,
    };
    Ok(columns.fields().iter().zip(types).map(column).collect())
}

/// The column type in which values of an Arrow type are stored (CREATE TABLE AS, and record batches for a new table): of large texts, which only in
/// results are documents, texts.
pub(crate) fn stored_type(data_type: &DataType) -> Result<SqlType> {
    use DataType as Arrow;
    let column_type = match data_type {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Null => ColumnType::Utf8,
        Arrow::Binary | Arrow::LargeBinary | Arrow::FixedSizeBinary(0..=15 | 17..) => ColumnType::Binary,
        Arrow::Int8 | Arrow::UInt8 => ColumnType::Int16,
        Arrow::UInt16 => ColumnType::Int32,
        Arrow::UInt32 => ColumnType::Int64,
        Arrow::UInt64 => ColumnType::Decimal { precision: 20, scale: 0 },
        Arrow::Float16 => ColumnType::Float32,
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            ColumnType::Decimal { precision: *precision, scale: *scale }
        }
        Arrow::Date64 | Arrow::Timestamp(_, None) => ColumnType::Timestamp { utc: false },
        Arrow::Timestamp(_, Some(_)) => ColumnType::Timestamp { utc: true },
        Arrow::Time32(_) | Arrow::Time64(_) => ColumnType::Time,
        Arrow::Interval(_) => ColumnType::Interval,
        Arrow::Dictionary(_, value) => return stored_type(value),
        other => ColumnType::from_arrow(other)
            .ok_or_else(|| SqlError::unsupported(format!("storing values of the Arrow type {other}")))?,
    };
    Ok(column_type.into())
}
