//! What a prepared statement takes and gives, for clients that ask before they run it.

use crate::dml::nullable_schema;
use crate::error::{Result, SqlError};
use crate::point::Prepared;
use crate::session::{Session, StatementResult, fold, with_parameters};
use crate::wire::{of_oid, wire_type};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, CopySource, Expr, FromTable, SelectItem, SetExpr, Statement, TableObject, TableWithJoins, Value,
    visit_expressions,
};
use serac_engine::Table;
use serac_storage::ColumnType;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a statement takes and gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The types of its parameters; none where any will do.
    pub parameters: Vec<Option<ColumnType>>,
    /// The numbers of the types that casts of parameters name and that no column has, as arrays; 0 for others.
    pub oids: Vec<u32>,
    /// The columns of its rows; none if it gives none.
    pub schema: Option<SchemaRef>,
}

/// The number of a parameter, from 1.
fn parameter(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(id) => id.trim_start_matches('$').parse().ok().filter(|number| *number > 0),
            _ => None,
        },
        Expr::Nested(inner) => parameter(inner),
        _ => None,
    }
}

/// The types of parameters, as far as they are known.
#[derive(Default)]
struct Parameters(Vec<Option<ColumnType>>);

impl Parameters {
    /// As many as the statement has.
    fn of(statement: &Statement) -> Self {
        let mut count = 0;
        let _ = visit_expressions(statement, |expr| {
            count = count.max(parameter(expr).unwrap_or(0));
            ControlFlow::<()>::Continue(())
        });
        Self(vec![None; count.min(usize::from(u16::MAX))])
    }
    /// An expression becomes a column's value.
    fn assigned(&mut self, expr: &Expr, column_type: ColumnType) {
        if let Some(known) = parameter(expr).and_then(|number| self.0.get_mut(number - 1)) {
            known.get_or_insert(column_type);
        }
    }
}

/// A parameter that is cast is of the type that it is cast to; the numbers of those types that no column has.
fn cast_types(statement: &Statement, parameters: &mut Parameters) -> Vec<u32> {
    let mut oids = vec![0; parameters.0.len()];
    let _ = visit_expressions(statement, |expr| {
        if let Expr::Cast { expr, data_type, .. } = expr
            && let Some(number) = parameter(expr).filter(|number| *number <= parameters.0.len())
            && let Some(oid) = crate::pg_catalog::type_number(&data_type.to_string())
        {
            match of_oid(oid) {
                Some(column_type) => parameters.assigned(expr, column_type),
                None if crate::pg_catalog::element_type(oid).is_some() => oids[number - 1] = oid,
                None => {}
            }
        }
        ControlFlow::<()>::Continue(())
    });
    oids
}

impl Session {
    /// Says what a statement takes and gives.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn describe(&mut self, prepared: &mut Prepared) -> Result<Description> {
        if let Some(types) = prepared.parameter_types() {
            let parameters = types.iter().copied().map(Some).collect();
            return Ok(Description { parameters, oids: Vec::new(), schema: prepared.schema().cloned() });
        }
        self.describe_statement(prepared.statement().clone()).await
    }

    /// Says what a statement that has not been prepared takes and gives.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn describe_statement(&mut self, statement: Statement) -> Result<Description> {
        self.looking(async |session: &mut Self| session.description_of(statement).await).await
    }

    /// How many columns the data of a COPY has.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn copied_columns(&mut self, statement: &Statement) -> Result<usize> {
        let Statement::Copy { source, .. } = statement else { return Ok(0) };
        match source.clone() {
            CopySource::Table { columns, .. } if !columns.is_empty() => Ok(columns.len()),
            CopySource::Table { table_name, .. } => {
                let columns = async |session: &mut Self| Ok(session.table(&table_name)?.definition.columns.len());
                self.looking(columns).await
            }
            CopySource::Query(query) => {
                let query = Statement::Query(query);
                let columns = async |session: &mut Self| Ok(session.plan(query).await?.schema().fields().len());
                self.looking(columns).await
            }
        }
    }

    /// Looks at the catalog as the next statement would see it, and changes nothing.
    async fn looking<T>(&mut self, look: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let idle = self.running.is_none();
        if idle {
            self.begin_statement();
        } else if self.running.as_ref().is_some_and(|running| running.failed) {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new("25P02", message));
        }
        self.refresh_view();
        let result = look(self).await;
        self.shared.lent.write().clear();
        if idle {
            self.end();
        }
        result
    }

    async fn description_of(&mut self, statement: Statement) -> Result<Description> {
        let mut parameters = Parameters::of(&statement);
        let oids = cast_types(&statement, &mut parameters);
        let schema = match &statement {
            Statement::Query(_)
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ExplainTable { .. } => Some(self.describe_query(statement, &mut parameters).await?),
            Statement::Explain { .. } => {
                let text = |name: &str| Field::new(name, DataType::Utf8, false);
                Some(Arc::new(Schema::new(vec![text("plan_type"), text("plan")])))
            }
            Statement::ShowVariable { variable } => {
                let name = variable.iter().map(|i| i.value.to_lowercase()).collect::<Vec<_>>().join("_");
                match self.setting(&name) {
                    Some(_) => Some(Arc::new(Schema::new(vec![Field::new(&name, DataType::Utf8, true)]))),
                    None => Some(self.describe_query(statement, &mut parameters).await?),
                }
            }
            Statement::Fetch { .. } => self.fetched_schema(&statement)?,
            Statement::Call(function) if !crate::maintenance::is_ours(function) => {
                let (_, procedure, given) = self.called(function)?;
                for (known, expr) in procedure.parameters.iter().zip(given) {
                    parameters.assigned(expr, known.column_type);
                }
                (!procedure.returns.is_empty()).then(|| Arc::new(procedure.schema()))
            }
            Statement::Declare { stmts } => {
                for query in stmts.iter().filter_map(|declared| declared.for_query.clone()) {
                    self.describe_query(Statement::Query(query), &mut parameters).await?;
                }
                None
            }
            Statement::Insert(insert) => {
                let TableObject::TableName(name) = &insert.table else {
                    return Err(SqlError::unsupported("INSERT into a function"));
                };
                let table = self.table(name)?;
                let alias = insert.table_alias.as_ref().map_or_else(|| table.name().to_owned(), |a| fold(&a.alias));
                let named = |name: &_| column_of_name(&table, name);
                let targets: Vec<usize> = match &insert.columns[..] {
                    [] => (0..table.definition.columns.len()).collect(),
                    columns => columns.iter().filter_map(named).collect(),
                };
                match insert.source.as_ref().map(|source| source.body.as_ref()) {
                    Some(SetExpr::Values(values)) => {
                        for (expr, &column) in values.rows.iter().flat_map(|row| row.iter().zip(&targets)) {
                            parameters.assigned(expr, table.definition.columns[column].sql_type.column_type);
                        }
                    }
                    Some(_) => {
                        let source = insert.source.clone().expect("there is one");
                        self.describe_query(Statement::Query(source), &mut parameters).await?;
                    }
                    None => {}
                }
                self.describe_returning(&table, &alias, insert.returning.as_deref()).await?
            }
            Statement::Update(update) => {
                let (table, alias) = self.target(&update.table)?;
                for assignment in &update.assignments {
                    if let AssignmentTarget::ColumnName(name) = &assignment.target
                        && let Some(column) = column_of_name(&table, name)
                    {
                        let column_type = table.definition.columns[column].sql_type.column_type;
                        parameters.assigned(&assignment.value, column_type);
                    }
                }
                self.describe_condition(&update.table, update.selection.as_ref(), &mut parameters).await;
                self.describe_returning(&table, &alias, update.returning.as_deref()).await?
            }
            Statement::Delete(delete) => {
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
                let [target] = &from[..] else { return Err(SqlError::unsupported("DELETE from several tables")) };
                let (table, alias) = self.target(target)?;
                self.describe_condition(target, delete.selection.as_ref(), &mut parameters).await;
                self.describe_returning(&table, &alias, delete.returning.as_deref()).await?
            }
            Statement::Execute { name: Some(name), parameters: given, .. } => {
                let bound = self.bind(&name.to_string().to_lowercase(), given)?;
                return Box::pin(self.description_of(bound)).await;
            }
            _ => None,
        };
        Ok(Description { parameters: parameters.0, oids, schema })
    }

    async fn describe_query(&mut self, query: Statement, parameters: &mut Parameters) -> Result<SchemaRef> {
        if !parameters.0.is_empty()
            && let Ok(plan) = self.plan(query.clone()).await
            && let Ok(types) = plan.get_parameter_types()
        {
            for (id, data_type) in types {
                let number = id.trim_start_matches('$').parse::<usize>().ok();
                let known = number.and_then(|number| parameters.0.get_mut(number.checked_sub(1)?));
                if let (Some(known), Some(data_type)) = (known, data_type) {
                    known.get_or_insert(wire_type(&data_type));
                }
            }
        }
        // Of which type a column is that is a parameter alone nobody knows before it has a value.
        let nulls = vec![Expr::value(Value::Null); parameters.0.len()];
        Ok(self.shown_frame(with_parameters(&query, &nulls)?).await?.1)
    }

    /// What is compared with columns of the table is of their types. A condition that cannot be planned is an error when it runs.
    async fn describe_condition(
        &mut self,
        target: &TableWithJoins,
        condition: Option<&Expr>,
        parameters: &mut Parameters,
    ) {
        if let Some(condition) = condition.filter(|_| !parameters.0.is_empty())
            && let Ok(query) = crate::query::query_of(&format!("SELECT 1 FROM {target} WHERE {condition}"))
        {
            let _ = self.describe_query(Statement::Query(Box::new(query)), parameters).await;
        }
    }

    async fn describe_returning(
        &mut self,
        table: &Arc<Table>,
        alias: &str,
        items: Option<&[SelectItem]>,
    ) -> Result<Option<SchemaRef>> {
        let Some(items) = items else { return Ok(None) };
        let none = datafusion::arrow::array::RecordBatch::new_empty(nullable_schema(table));
        match self.returning("SELECT", table, alias, items, vec![none]).await? {
            StatementResult::Rows { schema, .. } => Ok(Some(schema)),
            StatementResult::Command { .. } => Ok(None),
        }
    }
}

fn column_of_name(table: &Table, name: &datafusion::sql::sqlparser::ast::ObjectName) -> Option<usize> {
    table.definition.column(&name.0.last()?.as_ident().map(fold)?)
}
