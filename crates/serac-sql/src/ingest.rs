//! Record batches into a table, new or there already: no text, no plan, straight to the storage's
//! batch insert. The batches come from outside, or are the rows of files.
//!
//! It is one statement: after an error nothing of it is there, the table included. Columns are
//! matched by their names; those of the table that are not brought take their defaults.

use crate::column_types::{kept_type, of_column};
use crate::error::{Result, SqlError};
use crate::files::{IngestFiles, loaded_files};
use crate::identifiers::{CATALOG, TEMPORARY_SCHEMA, name_of};
use crate::limits::Limits;
use crate::parsed::Source;
use crate::session::Session;
use crate::transactions::OpenStatement;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::DataFrame;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use serac_engine::catalog::definition::{self, SqlType};
use serac_engine::security::Privilege;
use serac_engine::table::Table;
use serac_parser::tree::{
    ColumnConstraint, ColumnConstraintKind, ColumnDefinition, CreateTable, Drop, Expr, ExprKind, Ident, Literal, Name,
    ObjectKind, Persistence, Span, StatementKind, TableElement, TableForm, TableStorage, TypeName,
};
use serac_storage::ColumnType;
use serac_values::arrow_input::given_batch;
use serac_values::assignment::{check_assignment, stored_type};
use serac_values::text_types::is_text;
use std::pin::pin;
use std::sync::Arc;

/// The action if the table exists already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IfExists {
    /// The rows are added to its rows.
    #[default]
    Append,
    /// It is dropped, and made anew.
    Replace,
    /// Fail with SQLSTATE 42P07.
    Fail,
}

/// The target of record batches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IngestTarget {
    /// The catalog, if it is said.
    pub catalog: Option<String>,
    /// The schema, if it is said.
    pub schema: Option<String>,
    /// The table.
    pub table: String,
    /// Whether the table is one of the session's own.
    pub temporary: bool,
    /// Whether the table is made if it is not there; otherwise that is SQLSTATE 42P01.
    pub create: bool,
    /// The action if it exists.
    pub if_exists: IfExists,
}

impl IngestTarget {
    /// The given schema; `None` if the `search_path` decides.
    fn schema(&self) -> Result<Option<&str>> {
        if let Some(other) = self.catalog.as_deref().filter(|name| !name.is_empty() && *name != CATALOG) {
            return Err(SqlError::new(sqlstate::INVALID_CATALOG_NAME, format!("catalog \"{other}\" does not exist"))
                .named(other));
        }
        let schema = self.schema.as_deref().filter(|name| !name.is_empty());
        match (schema, self.temporary) {
            (Some(other), true) if other != TEMPORARY_SCHEMA => Err(SqlError::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                "cannot create temporary relation in non-temporary schema",
            )),
            (_, true) => Ok(Some(TEMPORARY_SCHEMA)),
            (said, false) => Ok(said),
        }
    }
}

impl Session {
    /// Puts record batches into a table. `schema`: that of the batches. Returns the number of rows.
    ///
    /// # Errors
    /// The errors of the table, of the rows, or of `batches`; then nothing is written.
    pub async fn ingest(
        &mut self,
        target: &IngestTarget,
        schema: &Schema,
        batches: impl Stream<Item = Result<RecordBatch>> + Send,
    ) -> Result<u64> {
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let batches = batches.map(|batch| -> Result<RecordBatch> { given_batch(batch?) });
        let result = open.keep_ingesting(&mut limits, target, schema, given_type, batches).await;
        open.into_session().finish_statement(result).await
    }

    /// Puts the rows of files into a table, all of them or none. Returns the number of rows.
    /// `progress` is told the number of rows so far after each batch, and whether these are all
    /// before the statement ends. It may end the load.
    ///
    /// # Errors
    /// The errors of the table, of the files, of their rows, or of `progress`; then nothing is
    /// written.
    pub async fn ingest_files(
        &mut self,
        target: &IngestTarget,
        files: &IngestFiles,
        progress: impl FnMut(u64, bool) -> Result<()> + Send,
    ) -> Result<u64> {
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let found = limits.keep(open.rows_of_files(target, files)).await;
        let result = match found {
            Ok(rows) => {
                let (schema, progress) = (rows.schema(), Mutex::new((progress, 0)));
                let batches = rows.map(|batch| -> Result<RecordBatch> {
                    let batch = batch?;
                    let (progress, rows) = &mut *progress.lock();
                    *rows += batch.num_rows() as u64;
                    progress(*rows, false)?;
                    Ok(batch)
                });
                let loaded = open.keep_ingesting(&mut limits, target, &schema, kept_type, batches).await;
                loaded.and_then(|rows| (progress.lock().0)(rows, true).map(|()| rows))
            }
            Err(error) => Err(error),
        };
        open.into_session().finish_statement(result).await
    }

    /// The rows of files as they come.
    async fn rows_of_files(&self, target: &IngestTarget, files: &IngestFiles) -> Result<SendableRecordBatchStream> {
        let (shared, files) = (self.shared.clone(), files.clone());
        let view = shared.view().expect("a statement is running");
        let (_, table) = self.table_of(target)?;
        let table = table.filter(|_| target.if_exists == IfExists::Append);
        let read = async move {
            let files = loaded_files(&shared, &view, &files)?;
            Ok(match table {
                Some(table) => files.for_table(|name| {
                    let at = table.definition.column(name)?;
                    Some(table.definition.columns[at].sql_type)
                }),
                None => files,
            })
        };
        let table = self.planning(read).await?;
        let plan = LogicalPlanBuilder::scan("files", provider_as_source(Arc::new(table)), None)?.build()?;
        self.stream(DataFrame::new(self.storing_state(), plan)).await
    }

    async fn keep_ingesting(
        &mut self,
        limits: &mut Limits,
        target: &IngestTarget,
        schema: &Schema,
        type_of: TypeOf,
        batches: impl Stream<Item = Result<RecordBatch>> + Send,
    ) -> Result<u64> {
        let ingest = async {
            let table = self.ingest_table(target, schema, type_of).await?;
            let table = self.table(&table)?;
            let column =
                |name: &String| table.definition.column(name).ok_or_else(|| SqlError::no_column(name, table.name()));
            let targets = schema.fields().iter().map(|field| column(field.name())).collect::<Result<Vec<_>>>()?;
            if let Some(at) = (1..targets.len()).find(|&at| targets[..at].contains(&targets[at])) {
                let name = schema.field(at).name();
                return Err(SqlError::new(
                    sqlstate::DUPLICATE_COLUMN,
                    format!("column \"{name}\" specified more than once"),
                )
                .named(name));
            }
            self.check_privilege(&table, Privilege::Insert, &targets)?;
            let mut rows = 0;
            let mut batches = pin!(batches);
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                for (values, &at) in batch.columns().iter().zip(&targets) {
                    check_given(values.data_type(), &table.definition.columns[at])?;
                }
                let complete = self.complete_many_rows(&table, &targets, &batch).await?;
                self.check_many_rows(&table, &complete).await?;
                self.txn_of(&table)?.insert_batch(&table, &complete)?;
                rows += batch.num_rows() as u64;
                // Cancellation is seen between batches.
                tokio::task::yield_now().await;
            }
            self.running.as_mut().expect("it runs").check_statement_end()?;
            Ok(rows)
        };
        limits.keep(ingest).await
    }

    /// The schema of a target, and its table if that is there.
    fn table_of(&self, target: &IngestTarget) -> Result<(String, Option<Arc<Table>>)> {
        let view = self.shared.view().expect("a statement is running");
        let schema = match target.schema()? {
            Some(schema) => schema,
            None => {
                let has_table = |schema: &&String| view.catalog.table(schema, &target.table).is_ok();
                let found = view.path.iter().find(has_table).or(view.path.first());
                found.ok_or_else(|| {
                    SqlError::new(sqlstate::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
                })?
            }
        };
        Ok((schema.to_owned(), view.of(schema).0.table(schema, &target.table).ok().cloned()))
    }

    /// Makes sure of the table; its name.
    async fn ingest_table(&mut self, target: &IngestTarget, columns: &Schema, type_of: TypeOf) -> Result<Name> {
        let (schema, table) = self.table_of(target)?;
        let is_there = table.is_some();
        let name = name_of([schema, target.table.clone()]);
        if is_there && target.if_exists == IfExists::Fail {
            let message = format!("relation \"{}\" already exists", target.table);
            return Err(SqlError::new(sqlstate::DUPLICATE_TABLE, message).named(&target.table));
        }
        if !is_there && !target.create {
            let message = format!("relation \"{}\" does not exist", target.table);
            return Err(SqlError::new(sqlstate::UNDEFINED_TABLE, message).named(&target.table));
        }
        if is_there && target.if_exists == IfExists::Replace {
            let names = vec![name.clone()];
            let drop = Drop { kind: ObjectKind::Table, concurrently: false, if_exists: false, names, cascade: false };
            self.define_tree(StatementKind::Drop(drop)).await?;
        }
        if !is_there || target.if_exists == IfExists::Replace {
            let persistence = if target.temporary { Persistence::Temporary } else { Persistence::Permanent };
            let create = CreateTable {
                persistence,
                if_not_exists: false,
                name: name.clone(),
                form: TableForm::Columns,
                elements: columns
                    .fields()
                    .iter()
                    .map(|field| Ok(column(field, type_of(field)?)))
                    .collect::<Result<_>>()?,
                inherits: Vec::new(),
                partition_by: None,
                storage: TableStorage::default(),
            };
            self.define_tree(StatementKind::CreateTable(Box::new(create))).await?;
        }
        Ok(name)
    }

    async fn define_tree(&mut self, kind: StatementKind) -> Result<()> {
        self.define(&Source::of_tree(kind)).await.map(|_| ()).map_err(SqlError::unplaced)
    }
}

/// Refuses values of an Arrow type for a column to which SQL would not assign them. Texts are read,
/// and some packages have no bytes of a fixed length.
fn check_given(given: &DataType, column: &definition::ColumnDefinition) -> Result<()> {
    let is_uuid = column.sql_type.column_type == ColumnType::Uuid;
    match given {
        DataType::Dictionary(_, values) => check_given(values, column),
        text if is_text(text) => Ok(()),
        DataType::Binary | DataType::BinaryView if is_uuid => Ok(()),
        other => check_assignment(other, column.sql_type, &column.name),
    }
}

/// The type in which a new table keeps the values of a column of batches.
type TypeOf = fn(&Field) -> Result<SqlType>;

/// The same of batches from outside.
fn given_type(field: &Field) -> Result<SqlType> {
    match field.extension_type_name() {
        Some("arrow.json") => Ok(ColumnType::Json.into()),
        _ => stored_type(field.data_type()),
    }
}

/// The column of a new table in which the values of a column of batches are kept.
fn column(field: &Field, sql_type: SqlType) -> TableElement {
    let span = Span::default();
    let not_null = ColumnConstraint { name: None, kind: ColumnConstraintKind::NotNull, span };
    TableElement::Column(ColumnDefinition {
        name: Ident { name: field.name().clone(), span },
        type_name: Some(type_name(sql_type)),
        compression: None,
        foreign_options: Vec::new(),
        constraints: if field.is_nullable() { Vec::new() } else { vec![not_null] },
        span,
    })
}

/// The name of a type in a statement.
fn type_name(of: SqlType) -> TypeName {
    let span = Span::default();
    let number = |number: i16| Expr { kind: ExprKind::Literal(Literal::Integer(number.to_string())), span };
    let modifiers = match of.column_type {
        ColumnType::Decimal { precision, scale } => vec![number(precision.into()), number(scale.into())],
        _ => Vec::new(),
    };
    let name = name_of([of_column(of).id.name().to_owned()]);
    TypeName { name, modifiers, fields: None, dimensions: 0, is_set: false, of_column: false, span }
}
