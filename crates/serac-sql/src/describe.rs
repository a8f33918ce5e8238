//! What a prepared statement takes and gives, for clients that ask before they run it.

use crate::deep::Roomy;
use crate::error::{Result, SqlError};
use crate::explain::{describe_schema, explain_schema};
use crate::generated;
use crate::identifiers::prepared_name;
use crate::parsed::{Arguments, Parsed, Source};
use crate::query::analyzed;
use crate::session::Session;
use crate::settings::{all_settings_schema, is_all};
use crate::transactions::OpenStatement;
use crate::visits::visit_expressions;
use crate::wire::of_oid;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{CopySource, Expr, Statement, Value};
use serac_engine::definition::TableDefinition;
use serac_pg::TypeId;
use serac_storage::ColumnType;
use serac_values::type_names::element_type;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a statement takes and gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The types of its parameters; none where any will do.
    pub parameters: Vec<Option<ColumnType>>,
    /// The numbers of the types of which those of `parameters` do not tell: arrays, VARCHAR and CHAR;
    /// 0 for others.
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

/// The greatest number of a parameter in a statement that is neither a query nor a change; 0 if it
/// has none.
pub(crate) fn placeholders(statement: &Statement) -> usize {
    let mut count = 0;
    let _ = visit_expressions(statement, |expr| {
        count = count.max(parameter(expr).unwrap_or(0));
        ControlFlow::<()>::Continue(())
    });
    count
}

/// The types of the parameters of a statement that is neither a query nor a change, as far as they
/// are known.
struct Parameters {
    types: Vec<Option<ColumnType>>,
    /// The numbers of types that no column has; 0 for others.
    oids: Vec<u32>,
}

impl Parameters {
    /// Those of `count` parameters, of types that the client has named.
    fn named(count: usize, named: &[u32]) -> Self {
        let count = count.min(usize::from(u16::MAX));
        let mut parameters = Self { types: vec![None; count], oids: vec![0; count] };
        parameters.are_of(named.iter().copied());
        parameters
    }
    /// An expression becomes a column's value.
    fn assigned(&mut self, expr: &Expr, column_type: ColumnType) {
        if let Some(number) = parameter(expr) {
            self.learn(number, column_type);
        }
    }
    fn has_type(&mut self, number: usize, oid: u32) {
        match of_oid(oid) {
            Some(column_type) => self.learn(number, column_type),
            None if element_type(oid).is_some() => self.oids[number - 1] = oid,
            None => {}
        }
    }
    fn learn(&mut self, number: usize, column_type: ColumnType) {
        if let (Some(known), Some(0)) = (self.types.get_mut(number - 1), self.oids.get(number - 1)) {
            known.get_or_insert(column_type);
        }
    }
    /// The first ones have these types.
    fn are_of(&mut self, types: impl Iterator<Item = u32>) {
        for (number, oid) in (1..).zip(types).take(self.types.len()) {
            self.has_type(number, oid);
        }
    }
}

/// The numbers of those types of which the engine's types do not tell: arrays, and texts that are
/// not TEXT; 0 for others.
fn oids_told(types: &[TypeId]) -> Vec<u32> {
    let is_told =
        |id: &TypeId| id.element().is_some() || matches!(*id, TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME);
    types.iter().map(|id| if is_told(id) { id.0 } else { 0 }).collect()
}

impl Session {
    /// Says what a statement that has not been prepared takes and gives; `named` as in [`describe`](Self::describe).
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn describe_statement(&mut self, statement: Parsed, named: &[u32]) -> Result<Description> {
        let is_deep = statement.is_deep();
        let look = self.looking(async |session: &mut Self| session.description_of(statement, named).await);
        Roomy::new(is_deep, look).await
    }

    /// How many columns the data of a COPY has.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn copied_columns(&mut self, statement: &Parsed) -> Result<usize> {
        let Some(Statement::Copy { source, .. }) = statement.other() else { return Ok(0) };
        self.check_not_failed()?;
        match source.clone() {
            CopySource::Table { columns, .. } if !columns.is_empty() => Ok(columns.len()),
            CopySource::Table { table_name, .. } => {
                let given = |table: &TableDefinition| generated::parts(table).1.len();
                let columns = async |session: &mut Self| Ok(given(&session.table(&table_name)?.definition));
                self.looking(columns).await
            }
            CopySource::Query(_) => {
                let Some(source) = statement.source().cloned() else { return Ok(0) };
                let columns = async |session: &mut Self| Ok(session.bound_columns(&source).await?.0.fields().len());
                self.looking(columns).await
            }
        }
    }

    /// Looks at the catalog as the next statement would see it, and changes nothing.
    pub(crate) async fn looking<T>(&mut self, look: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_not_failed()?;
        let idle = self.running.is_none();
        if idle {
            self.begin_statement();
        }
        self.refresh_view();
        let mut limits = self.limits();
        let mut open = OpenStatement::new(self);
        let result = limits.keep(look(&mut *open)).await;
        let session = open.into_session();
        if idle {
            session.end();
        }
        session.failing(result)
    }

    pub(crate) async fn description_of(&mut self, statement: Parsed, named: &[u32]) -> Result<Description> {
        let statement = statement.with_arguments(Arguments { types: named.into(), values: None });
        let Some(other) = statement.other() else {
            let source = statement.query_or_change().expect("it is a query or a change");
            let (schema, types) = self.described(source).await?;
            let parameters = types.iter().map(|id| of_oid(id.0)).collect();
            return Ok(Description { parameters, oids: oids_told(&types), schema });
        };
        // Those of a query or a change inside.
        let held = match statement.source().filter(|source| source.parameter_count() > 0) {
            Some(source) => self.described(source).await?.1,
            None => Vec::new(),
        };
        let mut parameters = Parameters::named(placeholders(other).max(held.len()), named);
        parameters.are_of(held.iter().map(|id| id.0));
        let schema = self.columns_of(other, &mut parameters).await?;
        Ok(Description { parameters: parameters.types, oids: parameters.oids, schema })
    }

    /// The columns of the rows of a query or a change, none if it gives none, and the types of its
    /// parameters.
    async fn described(&self, source: &Source) -> Result<(Option<SchemaRef>, Vec<TypeId>)> {
        if !source.acts() {
            let (schema, types) = self.bound_columns(source).await?;
            return Ok((Some(schema), types));
        }
        let bound = self.bound_statement(source).await?;
        let Some(plan) = bound.result().cloned() else { return Ok((None, bound.parameters)) };
        let (state, names) = (self.state(), bound.names);
        let schema = self.planning(async move { analyzed(&state, plan, &names) }).await?;
        Ok((Some(schema), bound.parameters))
    }

    /// The columns of the rows of a statement that is neither a query nor a change; learns what it
    /// says of the parameters.
    async fn columns_of(&mut self, statement: &Statement, parameters: &mut Parameters) -> Result<Option<SchemaRef>> {
        Ok(match statement {
            Statement::Execute { name: Some(name), parameters: given, .. } => {
                let prepared = self.prepared(&prepared_name(name), given.len())?;
                match prepared.source().cloned() {
                    Some(source) => self.described(&source).await?.0,
                    None => {
                        let called = prepared.with_expressions(given)?;
                        Box::pin(self.description_of(called, &[])).await?.schema
                    }
                }
            }
            Statement::ShowTables { .. } | Statement::ShowColumns { .. } => {
                let query = self.shown_relations(statement).await?;
                self.described(&query).await?.0
            }
            Statement::Explain { options, .. } => Some(explain_schema(options.as_deref().unwrap_or_default())),
            Statement::ExplainTable { .. } => Some(describe_schema()),
            Statement::ShowVariable { variable } if is_all(variable) => Some(all_settings_schema()),
            Statement::ShowVariable { variable } => match self.shown_setting(variable) {
                Some((name, _)) => Some(Arc::new(Schema::new(vec![Field::new(&name, DataType::Utf8, true)]))),
                None => self.described(&self.shown_engine_setting(variable)?).await?.0,
            },
            Statement::Fetch { .. } => self.fetched_schema(statement)?,
            Statement::Call(function) if crate::programs::is_run(function) => {
                let message = "the columns that serac_run gives are not known before it has run";
                return Err(SqlError::new("0A000", message).explained("A simple query takes them as they come."));
            }
            Statement::Call(function) if !crate::maintenance::is_ours(function) => {
                let (_, procedure, given) = self.called(function)?;
                for (known, expr) in procedure.parameters.iter().zip(given) {
                    parameters.assigned(expr, known.column_type);
                }
                (!procedure.returns.is_empty()).then(|| Arc::new(procedure.schema()))
            }
            _ => None,
        })
    }
}
