//! Statements that change the catalog.

mod alter;
mod builder;
mod clauses;
mod cluster;
mod comment;
mod dependencies;
mod foreign;
mod functions;
mod generated;
mod indexes;
mod like;
mod materialized;
mod relations;
mod sequence;

use crate::binding;
use crate::column_types::{columns_of, kept_types, of_column};
use crate::ddl::clauses::{done, text_at, words};
use crate::error::{Result, SqlError};
use crate::expressions::{SHORT, column_default, replaced};
use crate::frames::refuse_lent;
use crate::generated::parts;
use crate::identifiers::{TEMPORARY_SCHEMA, quote, resolve};
use crate::kept_expression::KeptExpression;
use crate::notices::Severity;
use crate::parsed::Source;
use crate::query::with_types;
use crate::result::StatementResult;
use crate::session::Session;
use builder::{TableBuilder, names};
use clauses::{check_view_options, freeze_format_of, refuse_any};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::ExprSchemable;
use dependencies::refuse_circle;
use relations::Mentions;
use serac_binder::Place;
use serac_engine::DEFAULT_SCHEMA;
use serac_engine::catalog::definition::{ColumnDefinition, SqlType, TableDefinition, ViewDefinition};
use serac_engine::security::{Object, Privilege};
use serac_parser::tree::{
    CreateSchema, CreateTable, CreateTableAs, CreateView, Drop, Name, ObjectKind, Persistence, Query, Relation, Span,
    StatementKind, TableConstraint, TableElement, TableForm, TableSource, Truncate,
};
use serac_pg::{NO_MODIFIER, TypeId};
use serac_storage::ColumnType;
use serac_values::assignment::check_assignment;
use std::collections::HashSet;
use std::sync::Arc;

/// The number of times that a statement is tried. Each time it gets at least one lock further.
const ATTEMPTS: usize = 16;

/// The comments of columns, by their names.
type ColumnComments = Vec<(String, String)>;

impl Session {
    /// Runs a statement that changes the catalog. In a transaction of its own it tries again when
    /// writers were faster. Each attempt keeps the locks of those before, so the next snapshot has
    /// the rows of those writers.
    pub(crate) async fn define(&mut self, source: &Source) -> Result<StatementResult> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.define_now(source).await {
                Err(error)
                    if error.sqlstate == sqlstate::SERIALIZATION_FAILURE && attempts < ATTEMPTS && self.restart() => {}
                result => {
                    self.refresh_view();
                    return result;
                }
            }
        }
    }

    async fn define_now(&mut self, source: &Source) -> Result<StatementResult> {
        use StatementKind as K;
        match source.statement() {
            K::CreateSchema(create) => self.create_schema(create),
            K::CreateTable(create) => self.create_table(source, create).await,
            K::CreateTableAs(create) => self.create_table_as(source, create).await,
            K::CreateView(create) => self.create_view(source, create).await,
            K::CreateMaterializedView(create) => self.create_materialized(source, create).await,
            K::Refresh(refresh) => self.refresh(refresh).await,
            K::CreateIndex(create) => self.create_index(source, create),
            K::CreateSequence(create) => self.create_sequence(create),
            K::AlterSequence(alter) => self.alter_sequence(alter),
            K::AlterRelation(alter) => self.alter_relation(source, alter).await,
            K::CreateServer(create) => self.create_server(create),
            K::CreateForeignTable(create) => self.create_foreign_table(source, create).await,
            K::ImportForeignSchema(import) => self.import_foreign_schema(import).await,
            K::CreateFunction(create) => self.create_function(create),
            K::DropFunction(drop) => self.drop_functions(drop),
            K::Drop(drop) => self.drop_objects(drop),
            K::Comment(comment) => self.comment(comment).await,
            K::Truncate(truncate) => self.truncate(truncate),
            K::Cluster(cluster) => self.cluster(cluster),
            K::Call(call) => self.call(source, call).await,
            statement => match self.define_roles(statement)? {
                Some(result) => Ok(result),
                None => {
                    let first: Vec<_> = source.text_of_query().split_whitespace().take(2).collect();
                    Err(SqlError::unsupported(first.join(" ").to_uppercase()))
                }
            },
        }
    }

    /// The builder of a table's definition from a statement.
    fn builder<'s>(&self, definition: TableDefinition, source: &'s Source) -> TableBuilder<'s> {
        TableBuilder::new(definition, self.shared.view().expect("a statement is running"), source)
    }

    fn create_schema(&mut self, create: &CreateSchema) -> Result<StatementResult> {
        let CreateSchema { if_not_exists, name, owner, elements } = create;
        refuse_any(&[("elements of CREATE SCHEMA", !elements.is_empty())])?;
        let owner = owner.as_ref().map(|owner| self.role_id(owner)).transpose()?;
        let name = match (name, owner) {
            (Some(name), _) => name.name.clone(),
            (None, Some(owner)) => self.txn()?.catalog().security.name_of(owner).to_owned(),
            (None, None) => return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "a schema has a name or an owner")),
        };
        if name.starts_with("pg_") {
            let message = format!("unacceptable schema name \"{name}\": the prefix \"pg_\" is reserved");
            return Err(SqlError::new(sqlstate::RESERVED_NAME, message));
        }
        if *if_not_exists && self.txn()?.catalog().schemas.contains_key(&name) {
            self.say_exists(sqlstate::DUPLICATE_SCHEMA, &format!("schema \"{name}\""));
        } else {
            self.txn()?.create_schema(&name)?;
            if let Some(owner) = owner {
                self.txn()?.set_owner(&Object::Schema(name), owner)?;
            }
        }
        done("CREATE SCHEMA")
    }

    fn truncate(&mut self, truncate: &Truncate) -> Result<StatementResult> {
        let Truncate { tables, restart_identity, cascade } = truncate;
        // No table has others below it.
        let named = tables.iter().map(|Relation { name, only: _ }| self.locate(name)).collect::<Result<Vec<_>>>()?;
        let (temporary, others): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|(schema, _)| schema == TEMPORARY_SCHEMA);
        for tables in [temporary, others] {
            let Some((schema, _)) = tables.first() else { continue };
            for (schema, name) in &tables {
                let table = self.txn_for(schema)?.catalog().table(schema, name)?;
                if table.definition.materialized.is_some() {
                    return Err(
                        SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")).named(name)
                    );
                }
            }
            for table in self.txn_for(schema)?.truncate(&tables, *cascade, *restart_identity)? {
                self.say(
                    Severity::Notice,
                    sqlstate::SUCCESSFUL_COMPLETION,
                    format!("truncate cascades to table \"{table}\""),
                );
            }
        }
        self.refresh_view();
        done("TRUNCATE TABLE")
    }

    fn drop_objects(&mut self, drop: &Drop) -> Result<StatementResult> {
        // Readers and writers of an index are not kept away longer than by any other.
        let Drop { kind, concurrently: _, if_exists, names, cascade } = drop;
        let all: Vec<_> = names.iter().filter_map(|name| self.locate(name).ok()).collect();
        for name in names {
            match self.drop_one(*kind, name, *cascade, &all) {
                Err(error)
                    if *if_exists
                        && [sqlstate::UNDEFINED_TABLE, sqlstate::INVALID_SCHEMA_NAME, sqlstate::UNDEFINED_OBJECT]
                            .contains(&error.sqlstate) =>
                {
                    let (_, short) = resolve(name)?;
                    self.say_missing(&format!("{} \"{short}\"", words(*kind).to_lowercase()));
                }
                result => result?,
            }
        }
        done(&format!("DROP {}", words(*kind)))
    }

    /// Drops one of the objects `all`.
    fn drop_one(&mut self, kind: ObjectKind, name: &Name, cascade: bool, all: &[(String, String)]) -> Result<()> {
        if kind == ObjectKind::Server {
            return self.drop_server(name, cascade);
        }
        let (mut schema, short) = self.locate(name)?;
        if kind == ObjectKind::Index && name.parts.len() == 1 && self.has_temporary_index(&short) {
            schema = TEMPORARY_SCHEMA.into();
        }
        let txn = self.txn_for(&schema)?;
        let relations = txn.catalog().schema(&schema);
        let is_view = relations.as_ref().is_ok_and(|relations| relations.views.contains_key(&short));
        let is_foreign = relations.as_ref().is_ok_and(|relations| relations.foreign_tables.contains_key(&short));
        let table = relations.ok().and_then(|relations| relations.tables.get(&short));
        let is_materialized = table.map(|table| table.definition.materialized.is_some());
        let other = match kind {
            ObjectKind::Table => is_view || is_foreign || is_materialized == Some(true),
            ObjectKind::MaterializedView => is_view || is_foreign || is_materialized == Some(false),
            ObjectKind::View => is_foreign || is_materialized.is_some(),
            ObjectKind::ForeignTable => is_view || is_materialized.is_some(),
            _ => false,
        };
        if other {
            let wanted = words(kind).to_lowercase();
            return Err(
                SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{short}\" is not a {wanted}")).named(short)
            );
        }
        let relation = (schema.clone(), short.clone());
        match kind {
            ObjectKind::Table | ObjectKind::MaterializedView if is_materialized.is_some() => {
                let what = format!("table \"{short}\"");
                self.drop_readers(&relation, &what, cascade, all)?;
                self.drop_defaults_beside(&relation, None, &what, cascade, all)?;
            }
            ObjectKind::View if is_view => {
                self.drop_readers(&relation, &format!("view \"{short}\""), cascade, all)?;
            }
            ObjectKind::ForeignTable if is_foreign => {
                self.drop_readers(&relation, &format!("foreign table \"{short}\""), cascade, all)?;
            }
            ObjectKind::Sequence if self.txn_for(&schema)?.catalog().sequence(&schema, &short).is_ok() => {
                self.check_not_required(&schema, &short)?;
                self.drop_defaults_of(&relation, cascade)?;
            }
            ObjectKind::Schema if cascade => self.drop_readers_of_schema(&short)?,
            _ => {}
        }
        let txn = self.txn_for(&schema)?;
        match kind {
            ObjectKind::Table | ObjectKind::MaterializedView => {
                let also: &[_] = if kind == ObjectKind::Table { all } else { &[] };
                txn.drop_table_with(&schema, &short, cascade, also)?;
            }
            ObjectKind::View => txn.drop_view(&schema, &short)?,
            ObjectKind::ForeignTable => txn.drop_foreign_table(&schema, &short)?,
            ObjectKind::Index => txn.drop_index(&schema, &short)?,
            ObjectKind::Sequence => txn.drop_sequence(&schema, &short)?,
            ObjectKind::Schema => txn.drop_schema(&short, cascade)?,
            // COMMENT alone is about these, but for servers, which are dropped above.
            ObjectKind::Server | ObjectKind::Database | ObjectKind::Role | ObjectKind::Column => {
                return Err(SqlError::unsupported(format!("DROP {}", words(kind))));
            }
        }
        Ok(())
    }

    /// Drops all temporary tables of the session.
    pub(crate) fn drop_temporary_tables(&mut self) -> Result<()> {
        if self.temporary_catalog().is_none() {
            return Ok(());
        }
        let txn = self.txn_for(TEMPORARY_SCHEMA)?;
        // Also the tables that the transaction has made.
        let catalog = txn.catalog().clone();
        for table in catalog.tables() {
            // Tables that a CASCADE has dropped with it are gone.
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

    /// Schema and name of a new table; `None`, and a notice, if it exists and need not be made.
    fn new_table(
        &mut self,
        name: &Name,
        persistence: Persistence,
        if_not_exists: bool,
    ) -> Result<Option<(String, String)>> {
        let is_temporary = persistence == Persistence::Temporary;
        let (mut schema, short) = if is_temporary { resolve(name)? } else { self.locate_new(name)? };
        if is_temporary {
            if name.parts.len() > 1 && schema != TEMPORARY_SCHEMA {
                return Err(SqlError::new(
                    sqlstate::INVALID_TABLE_DEFINITION,
                    "cannot create temporary relation in non-temporary schema",
                ));
            }
            schema = TEMPORARY_SCHEMA.into();
        }
        if if_not_exists && self.txn_for(&schema)?.catalog().table(&schema, &short).is_ok() {
            self.say_exists(sqlstate::DUPLICATE_TABLE, &format!("relation \"{short}\""));
            return Ok(None);
        }
        Ok(Some((schema, short)))
    }

    async fn create_table(&mut self, source: &Source, create: &CreateTable) -> Result<StatementResult> {
        let CreateTable { persistence, if_not_exists, name, form, elements, inherits, partition_by, storage } = create;
        match form {
            TableForm::Columns => {}
            TableForm::Of(_) => return Err(SqlError::unsupported("a table OF a type")),
            TableForm::PartitionOf(..) => return Err(SqlError::unsupported("a partitioned table")),
        }
        refuse_any(&[("INHERITS", !inherits.is_empty()), ("a partitioned table", partition_by.is_some())])?;
        let freeze_format = freeze_format_of(storage, *persistence)?;
        let Some((schema, name)) = self.new_table(name, *persistence, *if_not_exists)? else {
            return done("CREATE TABLE");
        };
        let mut builder = self.builder(TableDefinition::new(schema.clone(), name, Vec::new()), source);
        builder.definition.freeze_format = freeze_format;
        let (constraints, comments) = self.listed_columns(elements, &mut builder)?;
        for constraint in constraints {
            builder.constraint(constraint)?;
        }
        builder.resolve_parents(self.txn_for(&schema)?.catalog())?;
        builder.definition.cluster = cluster::cluster_key(&builder.definition, &storage.cluster_by)?;
        for sequence in std::mem::take(&mut builder.sequences) {
            self.txn_for(&schema)?.create_sequence(&schema, sequence)?;
        }
        self.with_usual_constants(&mut builder.definition, &builder.written)?;
        for check in &builder.definition.checks {
            self.check_expression(&builder.definition, &check.expression).await?;
        }
        for (at, column) in builder.definition.columns.iter().enumerate() {
            self.check_default(column).await?;
            self.check_generation(&builder.definition, at).await?;
        }
        builder.definition.columns.iter_mut().for_each(without_null_default);
        let mut table = self.txn_for(&schema)?.create_table(builder.definition)?;
        for key in builder.expression_keys {
            self.create_key(&table.definition, key)?;
            table = self.txn_for(&schema)?.catalog().table(&schema, table.name())?.clone();
        }
        for (column, text) in comments {
            self.txn_for(&schema)?.comment(&Object::relation(&schema, table.name()), Some(&column), Some(text))?;
        }
        done("CREATE TABLE")
    }

    /// CREATE TABLE … AS.
    async fn create_table_as(&mut self, source: &Source, create: &CreateTableAs) -> Result<StatementResult> {
        // The query's plan has WITH NO DATA.
        let CreateTableAs { persistence, if_not_exists, name, columns, storage, source: rows, with_data } = create;
        if let TableSource::Execute(_) = rows {
            return Err(SqlError::unsupported("CREATE TABLE … AS EXECUTE"));
        }
        let freeze_format = freeze_format_of(storage, *persistence)?;
        let Some((schema, name)) = self.new_table(name, *persistence, *if_not_exists)? else {
            return done("CREATE TABLE AS");
        };
        let (frame, told) = self.frame_of_relation(source).await?;
        let (found, rows) = self.collect_with_schema(frame).await?;
        let mut definition = TableDefinition::new(schema.clone(), name, columns_of_rows(&with_types(&told, &found))?);
        if columns.len() > definition.columns.len() {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "too many column names were specified"));
        }
        for (column, name) in definition.columns.iter_mut().zip(names(columns)) {
            column.name = name;
        }
        definition.freeze_format = freeze_format;
        definition.cluster = cluster::cluster_key(&definition, &storage.cluster_by)?;
        let table = self.txn_for(&schema)?.create_table(definition)?;
        let rows = self.fill(&table, &rows)?;
        let tag = if *with_data { format!("SELECT {rows}") } else { "CREATE TABLE AS".into() };
        Ok(StatementResult::Command { tag, rows })
    }

    /// Adds the columns of a list, those of LIKE included. The constraints of the list, and the
    /// comments that come with the columns, by column.
    fn listed_columns<'e>(
        &mut self,
        list: &'e [TableElement],
        builder: &mut TableBuilder<'_>,
    ) -> Result<(Vec<&'e TableConstraint>, ColumnComments)> {
        let (mut constraints, mut comments) = (Vec::new(), Vec::new());
        for element in list {
            let like = match element {
                TableElement::Column(column) => {
                    builder.column(column)?;
                    continue;
                }
                TableElement::Constraint(constraint) => {
                    constraints.push(constraint);
                    continue;
                }
                TableElement::Like(like) => like,
            };
            let source = self.table(&like.table)?;
            let all: Vec<usize> = (0..source.definition.visible_columns().len()).collect();
            self.check_privilege(&source, Privilege::Select, &all)?;
            builder.like(like, &source.definition)?;
            if like::takes(like, "comments") {
                let schema = &source.definition.schema;
                let object = Object::relation(schema, source.name());
                let known = self.txn_for(schema)?.catalog().comments.iter().filter(|(about, ..)| **about == object);
                comments.extend(known.filter_map(|(_, column, text)| Some((column?.to_owned(), text.to_owned()))));
            }
        }
        Ok((constraints, comments))
    }

    /// Rewrites the constants of times in expressions of a new definition: their meaning under the
    /// session's settings becomes their meaning without them. Only expressions that the statement
    /// has `written` are changed.
    fn with_usual_constants(&self, definition: &mut TableDefinition, written: &HashSet<String>) -> Result<()> {
        if written.is_empty() || self.time_style().is_none() {
            return Ok(());
        }
        let before = definition.clone();
        let is_written = |text: &Option<String>| text.as_ref().is_some_and(|text| written.contains(text));
        for (at, column) in before.columns.iter().enumerate() {
            if is_written(&column.default) {
                definition.columns[at].default = self.usual_default(column)?;
            }
            if is_written(&column.generation)
                && let Some(kept) = KeptExpression::generation(&before, column)
            {
                definition.columns[at].generation = Some(self.usual_text(&before, &kept)?);
            }
        }
        for (at, check) in before.checks.iter().enumerate().filter(|(_, check)| written.contains(&check.expression)) {
            let kept = KeptExpression::over(&before, &check.expression, Place::Check);
            definition.checks[at].expression = self.usual_text(&before, &kept)?;
        }
        Ok(())
    }

    /// The same of a column's default.
    fn usual_default(&self, column: &ColumnDefinition) -> Result<Option<String>> {
        let kept = KeptExpression::default_of(column);
        kept.map(|kept| binding::usual_text(&self.state(), &kept, &DFSchema::empty())).transpose()
    }

    /// The same of an expression over a table.
    fn usual_text(&self, table: &TableDefinition, kept: &KeptExpression<'_>) -> Result<String> {
        let columns = DFSchema::try_from(table.storage_schema().arrow().project(&parts(table).1)?)?;
        binding::usual_text(&self.state(), kept, &columns)
    }

    /// A default must be plannable. A constant of the column's type, such as a quoted one, is tried
    /// out, apart from the digits that the column has room for. Other defaults are not computed,
    /// because they may have effects. If one cannot be assigned, that is an error when the default
    /// is used.
    async fn check_default(&self, column: &ColumnDefinition) -> Result<()> {
        let Some(default) = &column.default else { return Ok(()) };
        let (bytes, column) = (default.len(), column.clone());
        let check = move |state: &SessionState| {
            let Some(default) = KeptExpression::default_of(&column) else { return Ok(()) };
            let bound = default.bound(state, &DFSchema::empty())?;
            if bound.id != TypeId::UNKNOWN {
                check_assignment(&bound.expr.get_type(&DFSchema::empty())?, column.sql_type, &column.name)?;
            }
            match bound.expr.as_literal() {
                Some(_) if bound.id == of_column(column.sql_type).id => {
                    let sql_type = match column.sql_type.column_type {
                        ColumnType::Decimal { .. } => ColumnType::Numeric.into(),
                        _ => column.sql_type,
                    };
                    column_default(state, &ColumnDefinition { sql_type, ..column.clone() }, 1).map(drop)
                }
                _ => default.planned(state, &DFSchema::empty()).map(drop),
            }
        };
        self.planning_kept(bytes, check).await
    }

    /// A CHECK expression must be plannable and boolean.
    async fn check_expression(&self, definition: &TableDefinition, expression: &str) -> Result<()> {
        let (bytes, definition, expression) = (expression.len(), definition.clone(), expression.to_owned());
        let check = move |state: &SessionState| {
            let empty = RecordBatch::new_empty(definition.storage_schema().arrow());
            KeptExpression::over(&definition, &expression, Place::Check).values(state, &empty).map(drop)
        };
        self.planning_kept(bytes, check).await
    }

    /// The result of work that plans an expression of this many bytes. The work runs on a thread
    /// that plans if it may take long, so that the statement can be cancelled.
    async fn planning_kept<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&SessionState) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let state = self.state();
        if bytes <= SHORT {
            return work(&state);
        }
        self.planning(async move { work(&state) }).await
    }

    async fn create_view(&mut self, source: &Source, create: &CreateView) -> Result<StatementResult> {
        let CreateView { or_replace, persistence, recursive, name, columns, options, query, check } = create;
        refuse_any(&[
            ("a temporary view", *persistence == Persistence::Temporary),
            ("a recursive view", *recursive),
            ("WITH CHECK OPTION", check.is_some()),
        ])?;
        if *persistence == Persistence::Unlogged {
            return Err(SqlError::new(
                sqlstate::SYNTAX_ERROR,
                "views cannot be unlogged because they do not have storage",
            ));
        }
        check_view_options(options)?;
        if source.parameter_count() > 0 {
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let (schema, name) = self.locate_new(name)?;
        let query = self.view_text(source, query, &schema).await?;
        // Planned once, so that a view that cannot work is refused.
        let (planned, told) = self.frame_of_relation(source).await?;
        refuse_lent(planned.logical_plan(), "a view")?;
        let columns: Vec<String> = names(columns).collect();
        if columns.len() > told.fields().len() {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns"));
        }
        let relation = (schema.clone(), name.clone());
        let before = match or_replace {
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
        let definition = ViewDefinition { name, query, columns };
        if *or_replace {
            refuse_circle(self.txn()?.catalog(), &relation, &definition.query)?;
        }
        self.txn()?.create_view(&schema, definition, *or_replace)?;
        if let Some(before) = before {
            let columns: Vec<_> = before.fields().iter().map(|f| (f.name().clone(), f.name().clone())).collect();
            let name = relation.1.clone();
            self.follow(&relation, &name, &columns, readers).await?;
        }
        done("CREATE VIEW")
    }

    /// The text of the query of a view in `schema`, as the user has written it. Names that mean
    /// relations outside of the default schema now get their schemas: under another `search_path`
    /// they would mean others. Constants of times are rewritten to have the same meaning without
    /// the session's settings.
    ///
    /// # Errors
    /// 0A000 for a query that changes or claims rows, and where relations are temporary.
    async fn view_text(&self, source: &Source, query: &Query, schema: &str) -> Result<String> {
        refuse_any(&[("a view whose query changes or claims rows", source.acts())])?;
        let seen = self.shared.view().expect("a statement is running");
        let mut schemas = Vec::new();
        for named in Mentions::of(query).relations {
            let (means, short) = seen.locate(&named.name)?;
            let is_there = seen.catalog.kind_of(&Object::relation(&means, &short)).is_some();
            refuse_any(&[("a view of temporary tables", means == TEMPORARY_SCHEMA)])?;
            if named.name.parts.len() == 1 && means != DEFAULT_SCHEMA && is_there {
                let start = named.name.span.start - query.span.start;
                schemas.push((Span { start, end: start }, format!("{}.", quote(&means))));
            }
        }
        refuse_any(&[("a view of temporary tables", schema == TEMPORARY_SCHEMA)])?;
        if self.time_style().is_some() {
            let (state, span, source) = (self.state(), query.span, source.clone());
            let constants = async move { binding::usual_constants(&state, &source, span).await };
            schemas.extend(self.planning(constants).await?);
        }
        Ok(replaced(text_at(source, query.span), schemas))
    }

    /// The columns of a view, if there is one of the name.
    pub(super) async fn view_columns(&self, (schema, name): &(String, String)) -> Option<SchemaRef> {
        let view = self.shared.view().expect("a statement is running");
        view.catalog.schema(schema).ok()?.views.get(name)?;
        let table = crate::resolver::table_of(&self.shared, schema, name).await.ok()??;
        Some(columns_of(&table))
    }
}

/// Removes a default NULL, which means no default. A column whose type has a length or digits keeps
/// it, because there it is an expression.
fn without_null_default(column: &mut ColumnDefinition) {
    let has_modifier = of_column(column.sql_type).modifier != NO_MODIFIER;
    column.default = column.default.take().filter(|text| {
        let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '(' | ')'));
        has_modifier || !text.eq_ignore_ascii_case("null")
    });
}

/// The columns of a table that has a query's rows.
fn columns_of_rows(columns: &Schema) -> Result<Vec<ColumnDefinition>> {
    let types = kept_types(columns)?;
    let column = |(field, sql_type): (&Arc<Field>, SqlType)| ColumnDefinition {
        name: field.name().clone(),
        sql_type,
        nullable: true,
        default: None,
        always_generated: false,
        identity_by_default: false,
        generation: None,
        hidden: false,
    };
    Ok(columns.fields().iter().zip(types).map(column).collect())
}
