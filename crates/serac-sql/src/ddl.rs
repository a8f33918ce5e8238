//! Statements that change the catalog.

use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult, fold, resolve};
use crate::types::{serial_type, sql_type};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, CreateView, DataType,
    DropBehavior, Expr, ForeignKeyConstraint, GeneratedAs, Ident, IndexColumn, ObjectName, ObjectType,
    ReferentialAction, RenameTableNameKind, SchemaName, SequenceOptions, Statement, TableConstraint,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use serac_engine::EngineError;
use serac_engine::definition::{
    CheckDefinition, ColumnDefinition, ForeignKeyDefinition, KeyDefinition, SequenceDefinition, SqlType,
    TableDefinition, ViewDefinition,
};

/// Parses an expression on its own.
pub(crate) fn parse_expression(sql: &str) -> Result<Expr> {
    Ok(Parser::new(&PostgreSqlDialect {}).try_with_sql(sql)?.parse_expr()?)
}

/// A table in the making, with the sequences that its columns own.
struct TableBuilder {
    definition: TableDefinition,
    sequences: Vec<(SequenceDefinition, usize)>,
}

fn columns_of(definition: &TableDefinition, names: impl Iterator<Item = String>) -> Result<Vec<usize>> {
    names
        .map(|name| {
            definition
                .column(&name)
                .ok_or_else(|| SqlError::new("42703", format!("column \"{name}\" named in key does not exist")))
        })
        .collect()
}

fn index_columns(columns: &[IndexColumn]) -> Result<Vec<String>> {
    columns
        .iter()
        .map(|column| match &column.column.expr {
            Expr::Identifier(ident) => Ok(fold(ident)),
            other => Err(SqlError::unsupported(format!("an index on the expression {other}"))),
        })
        .collect()
}

fn integer(expr: &Expr) -> Result<i64> {
    expr.to_string().replace(' ', "").parse().map_err(|_| SqlError::new("22P02", format!("{expr} is not an integer")))
}

fn sequence(
    name: String,
    options: &[SequenceOptions],
    column_type: serac_storage::ColumnType,
) -> Result<SequenceDefinition> {
    let mut definition = SequenceDefinition { id: 0, name, start: 0, increment: 1, min: 1, max: i64::MAX, owner: None };
    match column_type {
        serac_storage::ColumnType::Int16 => definition.max = i16::MAX.into(),
        serac_storage::ColumnType::Int32 => definition.max = i32::MAX.into(),
        _ => {}
    }
    let (mut start, mut min, mut max) = (None, None, None);
    for option in options {
        match option {
            SequenceOptions::IncrementBy(by, _) => definition.increment = integer(by)?,
            SequenceOptions::StartWith(with, _) => start = Some(integer(with)?),
            SequenceOptions::MinValue(Some(value)) => min = Some(integer(value)?),
            SequenceOptions::MaxValue(Some(value)) => max = Some(integer(value)?),
            SequenceOptions::MinValue(None) | SequenceOptions::MaxValue(None) | SequenceOptions::Cache(_) => {}
            SequenceOptions::Cycle(no) => {
                if !no {
                    return Err(SqlError::unsupported("CYCLE"));
                }
            }
        }
    }
    if definition.increment < 0 {
        (definition.min, definition.max) = (i64::MIN, -1);
    }
    definition.min = min.unwrap_or(definition.min);
    definition.max = max.unwrap_or(definition.max);
    definition.start = start.unwrap_or(if definition.increment < 0 { definition.max } else { definition.min });
    Ok(definition)
}

impl TableBuilder {
    fn new(schema: String, name: String) -> Self {
        Self { definition: TableDefinition::new(schema, name, Vec::new()), sequences: Vec::new() }
    }

    fn own_sequence(&mut self, at: usize, options: &[SequenceOptions]) -> Result<()> {
        let table = &self.definition;
        let column = &table.columns[at];
        let name = format!("{}_{}_seq", table.name, column.name);
        let mut sequence = sequence(name.clone(), options, column.sql_type.column_type)?;
        sequence.owner = Some((table.name.clone(), column.name.clone()));
        let default = format!("nextval('{}.{name}')", table.schema);
        let column = &mut self.definition.columns[at];
        column.default = Some(default);
        column.nullable = false;
        self.sequences.push((sequence, at));
        Ok(())
    }

    fn column(&mut self, column: &ColumnDef) -> Result<()> {
        let name = fold(&column.name);
        let at = self.definition.columns.len();
        self.definition.columns.push(ColumnDefinition {
            name: name.clone(),
            sql_type: sql_type(&column.data_type)?,
            nullable: true,
            default: None,
            always_generated: false,
        });
        if let DataType::Custom(custom, _) = &column.data_type
            && serial_type(&custom.to_string().to_lowercase()).is_some()
        {
            self.own_sequence(at, &[])?;
        }
        for option in &column.options {
            let constraint = option.name.as_ref().map(fold);
            match &option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => self.definition.columns[at].nullable = false,
                ColumnOption::Default(expr) => self.definition.columns[at].default = Some(expr.to_string()),
                ColumnOption::PrimaryKey(_) => self.key(constraint, vec![at], true),
                ColumnOption::Unique(_) => self.key(constraint, vec![at], false),
                ColumnOption::Check(check) => self.check(constraint, &check.expr, Some(&name)),
                ColumnOption::ForeignKey(key) => self.foreign_key(constraint, vec![at], key)?,
                ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                    self.own_sequence(at, sequence_options.as_deref().unwrap_or_default())?;
                    self.definition.columns[at].always_generated = matches!(generated_as, GeneratedAs::Always);
                }
                ColumnOption::Comment(_) => {}
                other => return Err(SqlError::unsupported(format!("the column option {other}"))),
            }
        }
        Ok(())
    }

    fn key(&mut self, name: Option<String>, columns: Vec<usize>, primary: bool) {
        let names: Vec<_> = columns.iter().map(|&c| self.definition.columns[c].name.as_str()).collect();
        let table = &self.definition.name;
        let name = name.unwrap_or_else(|| {
            if primary { format!("{table}_pkey") } else { format!("{table}_{}_key", names.join("_")) }
        });
        self.definition.keys.push(KeyDefinition { name, columns, unique: true, primary, constraint: true });
    }
    fn check(&mut self, name: Option<String>, expr: &Expr, column: Option<&str>) {
        let table = &self.definition.name;
        let base = column.map_or(format!("{table}_check"), |c| format!("{table}_{c}_check"));
        let taken = |name: &String| self.definition.checks.iter().any(|c| c.name == *name);
        let name = name.unwrap_or_else(|| {
            let numbered = (1..).map(|n| format!("{base}{n}"));
            std::iter::once(base.clone()).chain(numbered).find(|name| !taken(name)).expect("numbers do not end")
        });
        self.definition.checks.push(CheckDefinition { name, expression: expr.to_string() });
    }
    fn foreign_key(&mut self, name: Option<String>, columns: Vec<usize>, key: &ForeignKeyConstraint) -> Result<()> {
        for action in [&key.on_delete, &key.on_update].into_iter().flatten() {
            if !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict) {
                return Err(SqlError::unsupported(format!("the referential action {action}")));
            }
        }
        let names: Vec<_> = columns.iter().map(|&c| self.definition.columns[c].name.as_str()).collect();
        let name = name.unwrap_or_else(|| format!("{}_{}_fkey", self.definition.name, names.join("_")));
        let (parent_schema, parent_table) = resolve(&key.foreign_table)?;
        self.definition.foreign_keys.push(ForeignKeyDefinition {
            name,
            columns,
            parent_schema,
            parent_table,
            parent_columns: Vec::new(),
        });
        Ok(())
    }

    fn constraint(&mut self, constraint: &TableConstraint) -> Result<()> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = columns_of(&self.definition, index_columns(&key.columns)?.into_iter())?;
                self.key(key.name.as_ref().map(fold), columns, true);
            }
            TableConstraint::Unique(key) => {
                let columns = columns_of(&self.definition, index_columns(&key.columns)?.into_iter())?;
                self.key(key.name.as_ref().map(fold), columns, false);
            }
            TableConstraint::Check(check) => self.check(check.name.as_ref().map(fold), &check.expr, None),
            TableConstraint::ForeignKey(key) => {
                let columns = columns_of(&self.definition, key.columns.iter().map(fold))?;
                self.foreign_key(key.name.as_ref().map(fold), columns, key)?;
            }
            other => return Err(SqlError::unsupported(format!("the constraint {other}"))),
        }
        Ok(())
    }
}

fn done(tag: &str) -> Result<StatementResult> {
    Ok(StatementResult::command(tag))
}

impl Session {
    pub(crate) async fn define(&mut self, statement: Statement) -> Result<StatementResult> {
        let result = self.define_now(statement).await?;
        self.refresh_view();
        Ok(result)
    }

    async fn define_now(&mut self, statement: Statement) -> Result<StatementResult> {
        match statement {
            Statement::CreateSchema { schema_name, if_not_exists, .. } => {
                let name = match &schema_name {
                    SchemaName::Simple(name) | SchemaName::NamedAuthorization(name, _) => resolve(name)?.1,
                    SchemaName::UnnamedAuthorization(ident) => fold(ident),
                };
                if !(if_not_exists && self.txn()?.catalog().schemas.contains_key(&name)) {
                    self.txn()?.create_schema(&name)?;
                }
                done("CREATE SCHEMA")
            }
            Statement::CreateTable(create) => self.create_table(create).await,
            Statement::CreateView(view) => self.create_view(view).await,
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::CreateSequence { name, if_not_exists, data_type, sequence_options, .. } => {
                let (schema, name) = resolve(&name)?;
                if !(if_not_exists && self.txn()?.catalog().sequence(&schema, &name).is_ok()) {
                    let column_type = match data_type {
                        Some(data_type) => sql_type(&data_type)?.column_type,
                        None => serac_storage::ColumnType::Int64,
                    };
                    let definition = sequence(name, &sequence_options, column_type)?;
                    self.txn()?.create_sequence(&schema, definition)?;
                }
                done("CREATE SEQUENCE")
            }
            Statement::Drop { object_type, if_exists, names, cascade, .. } => {
                for name in &names {
                    match self.drop_one(&object_type, name, cascade) {
                        Err(error) if if_exists && ["42P01", "3F000", "42704"].contains(&error.sqlstate) => {}
                        result => result?,
                    }
                }
                done(&format!("DROP {object_type}"))
            }
            Statement::Truncate(truncate) => {
                for target in &truncate.table_names {
                    let (schema, name) = resolve(&target.name)?;
                    self.txn()?.truncate(&schema, &name)?;
                    self.refresh_view();
                }
                done("TRUNCATE TABLE")
            }
            Statement::AlterTable(alter) => {
                let (schema, mut name) = resolve(&alter.name)?;
                if alter.if_exists && self.txn()?.catalog().table(&schema, &name).is_err() {
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

    fn drop_one(&mut self, kind: &ObjectType, name: &ObjectName, cascade: bool) -> Result<()> {
        let (schema, short) = resolve(name)?;
        let txn = self.txn()?;
        match kind {
            ObjectType::Table => {
                if txn.catalog().schema(&schema)?.views.contains_key(&short) {
                    return Err(SqlError::new("42809", format!("\"{short}\" is not a table")));
                }
                txn.drop_table(&schema, &short, cascade)?;
            }
            ObjectType::View => txn.drop_view(&schema, &short)?,
            ObjectType::Index => txn.drop_index(&schema, &short)?,
            ObjectType::Sequence => txn.drop_sequence(&schema, &short)?,
            ObjectType::Schema => txn.drop_schema(&short, cascade)?,
            other => return Err(SqlError::unsupported(format!("DROP {other}"))),
        }
        Ok(())
    }

    async fn create_table(&mut self, create: CreateTable) -> Result<StatementResult> {
        if create.temporary || create.or_replace {
            return Err(SqlError::unsupported("CREATE TEMPORARY or OR REPLACE TABLE"));
        }
        let (schema, name) = resolve(&create.name)?;
        if create.if_not_exists && self.txn()?.catalog().table(&schema, &name).is_ok() {
            return done("CREATE TABLE");
        }
        let mut builder = TableBuilder::new(schema.clone(), name);
        for column in &create.columns {
            builder.column(column)?;
        }
        for constraint in &create.constraints {
            builder.constraint(constraint)?;
        }
        let references: Vec<&ForeignKeyConstraint> = create
            .columns
            .iter()
            .flat_map(|c| &c.options)
            .filter_map(|o| match &o.option {
                ColumnOption::ForeignKey(key) => Some(key),
                _ => None,
            })
            .chain(create.constraints.iter().filter_map(|c| match c {
                TableConstraint::ForeignKey(key) => Some(key),
                _ => None,
            }))
            .collect();
        for (i, key) in references.into_iter().enumerate() {
            self.resolve_parent(&mut builder, i, &key.referred_columns)?;
        }
        let source = match create.query {
            None => None,
            Some(query) => {
                let frame = self.frame(*query).await?;
                for (i, field) in frame.schema().fields().iter().enumerate() {
                    let sql_type = stored_type(field.data_type())?;
                    match builder.definition.columns.get_mut(i) {
                        Some(_) => {}
                        None => builder.definition.columns.push(ColumnDefinition {
                            name: field.name().clone(),
                            sql_type,
                            nullable: true,
                            default: None,
                            always_generated: false,
                        }),
                    }
                }
                Some(frame.collect().await?)
            }
        };
        for (sequence, _) in builder.sequences {
            self.txn()?.create_sequence(&schema, sequence)?;
        }
        for check in &builder.definition.checks {
            self.check_expression(&builder.definition, &check.expression)?;
        }
        let table = self.txn()?.create_table(builder.definition)?;
        let Some(batches) = source else { return done("CREATE TABLE") };
        let targets: Vec<usize> = (0..table.definition.columns.len()).collect();
        let mut rows = 0;
        for batch in batches {
            let batch = self.complete_rows(&table, &targets, &batch)?;
            self.txn()?.insert_batch(&table, &batch)?;
            rows += batch.num_rows() as u64;
        }
        Ok(StatementResult::Command { tag: format!("SELECT {rows}"), rows })
    }

    /// A CHECK expression must be plannable and boolean.
    fn check_expression(&self, definition: &TableDefinition, expression: &str) -> Result<()> {
        let empty = RecordBatch::new_empty(definition.storage_schema().arrow());
        if self.evaluate(expression, &empty)?.as_boolean_opt().is_none() {
            return Err(SqlError::new("42804", "argument of CHECK must be type boolean"));
        }
        Ok(())
    }

    fn resolve_parent(&mut self, builder: &mut TableBuilder, i: usize, columns: &[Ident]) -> Result<()> {
        let (schema, name) = {
            let key = &builder.definition.foreign_keys[i];
            (key.parent_schema.clone(), key.parent_table.clone())
        };
        let own = schema == builder.definition.schema && name == builder.definition.name;
        let parent = if own {
            builder.definition.clone()
        } else {
            self.txn()?.catalog().table(&schema, &name)?.definition.clone()
        };
        builder.definition.foreign_keys[i].parent_columns = if columns.is_empty() {
            let key = parent.primary_key().ok_or_else(|| {
                SqlError::new("42830", format!("there is no primary key for referenced table \"{name}\""))
            })?;
            key.columns.clone()
        } else {
            columns_of(&parent, columns.iter().map(fold))?
        };
        Ok(())
    }

    async fn create_view(&mut self, view: CreateView) -> Result<StatementResult> {
        if view.materialized || view.temporary {
            return Err(SqlError::unsupported("a materialized or temporary view"));
        }
        let (schema, name) = resolve(&view.name)?;
        if view.if_not_exists && self.txn()?.catalog().schema(&schema)?.views.contains_key(&name) {
            return done("CREATE VIEW");
        }
        // Planned once, so that a view that cannot work is refused.
        let frame = self.frame((*view.query).clone()).await?;
        let columns: Vec<String> = view.columns.iter().map(|c| fold(&c.name)).collect();
        if columns.len() > frame.schema().fields().len() {
            return Err(SqlError::new("42601", "CREATE VIEW specifies more column names than columns"));
        }
        let definition = ViewDefinition { name, query: view.query.to_string(), columns };
        self.txn()?.create_view(&schema, definition, view.or_replace)?;
        done("CREATE VIEW")
    }

    fn create_index(&mut self, index: CreateIndex) -> Result<StatementResult> {
        let (schema, table) = resolve(&index.table_name)?;
        if let Some(kind) = index.using.as_ref().filter(|k| !k.to_string().eq_ignore_ascii_case("btree")) {
            return Err(SqlError::unsupported(format!("an index of type {kind}")));
        }
        if index.predicate.is_some() || !index.include.is_empty() {
            return Err(SqlError::unsupported("a partial or covering index"));
        }
        let definition = self.txn()?.catalog().table(&schema, &table)?.definition.clone();
        let names = index_columns(&index.columns)?;
        let columns = columns_of(&definition, names.iter().cloned())?;
        let name = match &index.name {
            Some(name) => resolve(name)?.1,
            None => format!("{table}_{}_idx", names.join("_")),
        };
        let key = KeyDefinition { name, columns, unique: index.unique, primary: false, constraint: false };
        match self.txn()?.create_index(&schema, &table, key) {
            Err(EngineError::Exists { .. }) if index.if_not_exists => {}
            result => result?,
        }
        done("CREATE INDEX")
    }

    async fn alter_table(&mut self, schema: &str, name: &mut String, operation: &AlterTableOperation) -> Result<()> {
        let table = self.txn()?.catalog().table(schema, name)?.clone();
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
                if *if_not_exists && table.definition.column(&fold(&column_def.name)).is_some() {
                    return Ok(());
                }
                let mut builder = TableBuilder::new(schema.into(), name.clone());
                builder.column(column_def)?;
                let column = builder.definition.columns.remove(0);
                for (sequence, _) in builder.sequences {
                    self.txn()?.create_sequence(schema, sequence)?;
                    self.refresh_view();
                }
                if !builder.definition.foreign_keys.is_empty() {
                    return Err(SqlError::unsupported("adding a column with REFERENCES"));
                }
                // Values first, outside of the engine's borrow: one per row, because a default may differ from row to row.
                let count = self.frame_of(&format!("SELECT count(*) FROM {}", qualified(schema, name))).await?;
                let count = count.collect().await?[0]
                    .column(0)
                    .as_primitive::<datafusion::arrow::datatypes::Int64Type>()
                    .value(0);
                let values = self.column_default(&column, count as usize)?;
                let taken = std::cell::Cell::new(0);
                self.txn()?.add_column(schema, name, column.clone(), |rows| {
                    let from = taken.replace(taken.get() + rows);
                    Ok(values.slice(from, rows))
                })?;
                let at = table.definition.columns.len();
                for mut key in builder.definition.keys {
                    key.columns = vec![at];
                    self.txn()?.create_index(schema, name, key)?;
                }
                for check in builder.definition.checks {
                    self.refresh_view();
                    self.add_check(schema, name, check).await?;
                }
            }
            AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                for column in column_names.iter().map(fold) {
                    if *if_exists && table.definition.column(&column).is_none() {
                        continue;
                    }
                    let cascade = matches!(drop_behavior, Some(DropBehavior::Cascade));
                    self.txn()?.drop_column(schema, name, &column, cascade)?;
                    let remaining = self.txn()?.catalog().table(schema, name)?.clone();
                    for check in &remaining.definition.checks {
                        self.check_expression(&remaining.definition, &check.expression).map_err(|_| {
                            SqlError::new(
                                "2BP01",
                                format!(
                                    "cannot drop column \"{column}\" because constraint \"{}\" depends on it",
                                    check.name
                                ),
                            )
                        })?;
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.txn()?.rename_column(schema, name, &fold(old_column_name), &fold(new_column_name))?;
                let renamed = self.txn()?.catalog().table(schema, name)?.clone();
                for check in &renamed.definition.checks {
                    self.check_expression(&renamed.definition, &check.expression).map_err(|_| {
                        SqlError::new(
                            "2BP01",
                            format!("cannot rename the column because constraint \"{}\" depends on it", check.name),
                        )
                    })?;
                }
            }
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new),
            } => {
                let new = resolve(new)?.1;
                self.txn()?.rename_table(schema, name, &new)?;
                *name = new;
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let column = fold(column_name);
                match op {
                    AlterColumnOperation::SetNotNull => {
                        let nulls = self
                            .frame_of(&format!(
                                "SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1",
                                qualified(schema, name),
                                crate::session::quote(&column)
                            ))
                            .await?
                            .collect()
                            .await?;
                        if nulls.iter().any(|b| b.num_rows() > 0) {
                            return Err(SqlError::new(
                                "23502",
                                format!("column \"{column}\" of relation \"{name}\" contains null values"),
                            ));
                        }
                        self.txn()?.alter_column(schema, name, &column, |c| c.nullable = false)?;
                    }
                    AlterColumnOperation::DropNotNull => {
                        self.txn()?.alter_column(schema, name, &column, |c| c.nullable = true)?;
                    }
                    AlterColumnOperation::SetDefault { value } => {
                        self.txn()?.alter_column(schema, name, &column, |c| c.default = Some(value.to_string()))?;
                    }
                    AlterColumnOperation::DropDefault => {
                        self.txn()?.alter_column(schema, name, &column, |c| c.default = None)?;
                    }
                    other => return Err(SqlError::unsupported(format!("ALTER COLUMN {other}"))),
                }
            }
            AlterTableOperation::AddConstraint { constraint, .. } => {
                let mut builder = TableBuilder::new(schema.into(), name.clone());
                builder.definition = table.definition.clone();
                let (keys, checks) = (builder.definition.keys.len(), builder.definition.checks.len());
                builder.constraint(constraint)?;
                for key in builder.definition.keys.split_off(keys) {
                    if key.primary {
                        if table.definition.primary_key().is_some() {
                            return Err(SqlError::new(
                                "42P16",
                                format!("multiple primary keys for table \"{name}\" are not allowed"),
                            ));
                        }
                        for &c in &key.columns {
                            let set = AlterColumnOperation::SetNotNull;
                            let column_name = Ident::with_quote('"', &table.definition.columns[c].name);
                            let alter = AlterTableOperation::AlterColumn { column_name, op: set };
                            Box::pin(self.alter_table(schema, name, &alter)).await?;
                        }
                    }
                    self.txn()?.create_index(schema, name, key)?;
                }
                for check in builder.definition.checks.split_off(checks) {
                    self.add_check(schema, name, check).await?;
                }
                if builder.definition.foreign_keys.len() > table.definition.foreign_keys.len() {
                    return Err(SqlError::unsupported("adding a foreign key to an existing table"));
                }
            }
            other => return Err(SqlError::unsupported(format!("ALTER TABLE … {other}"))),
        }
        Ok(())
    }

    async fn add_check(&mut self, schema: &str, name: &str, check: CheckDefinition) -> Result<()> {
        let violating = format!("SELECT 1 FROM {} WHERE NOT ({}) LIMIT 1", qualified(schema, name), check.expression);
        let rows = self.frame_of(&violating).await?.collect().await?;
        if rows.iter().any(|b| b.num_rows() > 0) {
            return Err(SqlError::new(
                "23514",
                format!("check constraint \"{}\" of relation \"{name}\" is violated by some row", check.name),
            ));
        }
        Ok(self.txn()?.add_check(schema, name, check)?)
    }
}

fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", crate::session::quote(schema), crate::session::quote(name))
}

/// The column type in which a query's result is stored (CREATE TABLE AS).
fn stored_type(data_type: &datafusion::arrow::datatypes::DataType) -> Result<SqlType> {
    use datafusion::arrow::datatypes::DataType as Arrow;
    use serac_storage::ColumnType;
    let column_type = match data_type {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Null => ColumnType::Utf8,
        Arrow::Binary | Arrow::LargeBinary => ColumnType::Binary,
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
