//! What a prepared statement takes and gives, for clients that ask before they run it.

use crate::ddl::parse_expression;
use crate::deep::Roomy;
use crate::dml::{target_of_delete, target_of_insert};
use crate::error::{Result, SqlError};
use crate::explain::{describe_schema, explain_schema};
use crate::generated;
use crate::identifiers::{fold, prepared_name};
use crate::parsed::{Arguments, Parsed, Source};
use crate::query::analyzed;
use crate::session::{Session, with_parameters};
use crate::settings::{all_settings_schema, is_all};
use crate::transactions::OpenStatement;
use crate::visits::{visit, visit_expressions, visit_expressions_mut};
use crate::wire::{of_oid, oid, wire_type};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    Array, AssignmentTarget, CopySource, Expr, LimitClause, Query, SetExpr, Statement, TableWithJoins, Value, Visitor,
};
use serac_engine::Table;
use serac_engine::definition::{SqlType, TableDefinition};
use serac_pg::TypeId;
use serac_storage::ColumnType;
use serac_values::type_names::{array_type, element_type, of_text as type_number};
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

/// The types of parameters, as far as they are known.
struct Parameters {
    types: Vec<Option<ColumnType>>,
    /// The numbers of types that no column has; 0 for others.
    oids: Vec<u32>,
}

impl Parameters {
    /// As many as the statement has. A type that the client has named counts; what is cast is of the type that it is cast to, and a count of rows is a
    /// number.
    fn of(statement: &Statement, named: &[u32]) -> Self {
        let mut count = 0;
        let _ = visit_expressions(statement, |expr| {
            count = count.max(parameter(expr).unwrap_or(0));
            ControlFlow::<()>::Continue(())
        });
        let count = count.min(usize::from(u16::MAX));
        let mut parameters = Self { types: vec![None; count], oids: vec![0; count] };
        for (i, oid) in named.iter().enumerate().take(count) {
            parameters.has_type(i + 1, *oid);
        }
        let _ = visit(statement, &mut parameters);
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
    fn are_of(&mut self, types: &[TypeId]) {
        for (number, id) in (1..).zip(types).take(self.types.len()) {
            self.has_type(number, id.0);
        }
    }
    /// A parameter has elements of the type that has been found for one of them.
    fn has_elements(&mut self, number: usize) {
        if let (Some(known), Some(array @ 0)) = (self.types.get_mut(number - 1), self.oids.get_mut(number - 1)) {
            *array = known.take().and_then(|element| array_type(oid(element))).unwrap_or(0);
        }
    }
    /// NULLs in the parameters' places, of their types: a column that is a parameter alone has no other. Texts are as literals are: what they are
    /// compared with says what they mean.
    fn nulls(&self) -> Result<Vec<Expr>> {
        let null = |column_type| match column_type {
            None | Some(ColumnType::Utf8) => Ok(Expr::value(Value::Null)),
            Some(ColumnType::Uuid) => parse_expression("uuid_in(NULL)"),
            Some(other) => parse_expression(&format!("CAST(NULL AS {})", SqlType::from(other))),
        };
        let each = |(known, array): (&Option<ColumnType>, &u32)| match element_type(*array) {
            Some(element) => Ok(Expr::Array(Array { elem: vec![null(of_oid(element))?], named: true })),
            None => null(*known),
        };
        self.types.iter().zip(&self.oids).map(each).collect()
    }
}

/// The numbers of those types of which the engine's types do not tell: arrays, and texts that are
/// not TEXT; 0 for others.
fn oids_told(types: &[TypeId]) -> Vec<u32> {
    let is_told =
        |id: &TypeId| id.element().is_some() || matches!(*id, TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME);
    types.iter().map(|id| if is_told(id) { id.0 } else { 0 }).collect()
}

impl Visitor for Parameters {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let counts = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                [limit.as_ref(), offset.as_ref().map(|offset| &offset.value)]
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => [Some(limit), Some(offset)],
            None => [None, None],
        };
        let fetched = query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref());
        for count in counts.into_iter().chain([fetched]).flatten() {
            self.assigned(count, ColumnType::Int64);
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Cast { expr, data_type, .. } = expr
            && let Some(number) = parameter(expr).filter(|number| *number <= self.oids.len())
            && let Some(oid) = type_number(&data_type.to_string())
        {
            self.has_type(number, oid);
        }
        ControlFlow::Continue(())
    }
}

/// `= ANY` of a parameter becomes a comparison with an element of it, of whose type the planner knows; the parameters' numbers.
fn one_element_of_each(query: &mut Statement) -> Vec<usize> {
    let mut arrays = Vec::new();
    let _ = visit_expressions_mut(query, |expr| {
        if let Expr::AnyOp { left, compare_op, right, .. } | Expr::AllOp { left, compare_op, right } = expr
            && let Some(number) = parameter(right)
        {
            arrays.push(number);
            *expr = Expr::BinaryOp { left: left.clone(), op: compare_op.clone(), right: right.clone() };
        }
        ControlFlow::<()>::Continue(())
    });
    arrays
}

impl Session {
    /// Says what a statement that has not been prepared takes and gives; `named` as in [`describe`](Self::describe).
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn describe_statement(&mut self, statement: impl Into<Parsed>, named: &[u32]) -> Result<Description> {
        let statement = statement.into();
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
            CopySource::Query(query) => {
                let query = Statement::Query(query);
                let columns = async |session: &mut Self| Ok(session.plan(query).await?.schema().fields().len());
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
        session.shared.lent.write().clear();
        if idle {
            session.end();
        }
        session.failing(result)
    }

    pub(crate) async fn description_of(&mut self, statement: Parsed, named: &[u32]) -> Result<Description> {
        if let Some(Statement::Execute { name: Some(name), parameters: given, .. }) = statement.other() {
            let prepared = self.prepared(&prepared_name(name), given.len())?;
            if let Some(source) = prepared.source().filter(|source| !source.acts())
                && let Some((schema, _)) = self.bound_columns(source).await?
            {
                let Parameters { types: parameters, oids } = Parameters::of(&*statement.older()?, named);
                return Ok(Description { parameters, oids, schema: Some(schema) });
            }
            let prepared = self.prepared(&prepared_name(name), given.len())?;
            if let Some(source) = prepared.source().filter(|source| source.acts()) {
                let (schema, _) = self.changed_columns(source).await?;
                let Parameters { types: parameters, oids } = Parameters::of(&*statement.older()?, named);
                return Ok(Description { parameters, oids, schema });
            }
            let statement = prepared.with_expressions(given)?;
            return Box::pin(self.description_of(statement, named)).await;
        }
        let statement = statement.with_arguments(Arguments { types: named.into(), values: None });
        if let Some(source) = statement.source_of_query()
            && let Some((schema, types)) = self.bound_columns(source).await?
        {
            let parameters: Vec<_> = types.iter().map(|id| of_oid(id.0)).collect();
            return Ok(Description { parameters, oids: oids_told(&types), schema: Some(schema) });
        }
        let changes = statement.source_of_changes().cloned();
        let statement = statement.into_older()?.0;
        let mut parameters = Parameters::of(&statement, named);
        if let Some(source) = changes {
            let (schema, types) = self.changed_columns(&source).await?;
            if types.iter().all(|id| *id != TypeId::UNKNOWN) {
                let parameters: Vec<_> = types.iter().map(|id| of_oid(id.0)).collect();
                return Ok(Description { parameters, oids: oids_told(&types), schema });
            }
            // The binder does not know the types of all parameters.
            parameters.are_of(&types);
            self.columns_of(statement, &mut parameters).await?;
            return Ok(Description { parameters: parameters.types, oids: parameters.oids, schema });
        }
        let schema = self.columns_of(statement, &mut parameters).await?;
        Ok(Description { parameters: parameters.types, oids: parameters.oids, schema })
    }

    /// The columns of the rows of a statement that changes or claims rows, none if it gives none, and the types of
    /// its parameters: UNKNOWN for those that the binder does not know.
    async fn changed_columns(&self, source: &Source) -> Result<(Option<SchemaRef>, Vec<TypeId>)> {
        let bound = self.bound_statement(source).await?;
        let bound = bound.map_err(|what| SqlError::unsupported(format!("binding {what}")))?;
        let Some(plan) = bound.result().cloned() else { return Ok((None, bound.parameters)) };
        let (state, names) = (self.state(), bound.names);
        let schema = self.planning(async move { analyzed(&state, plan, &names) }).await?;
        Ok((Some(schema), bound.parameters))
    }

    /// The columns of a statement's rows; learns what it says of the parameters.
    async fn columns_of(&mut self, statement: Statement, parameters: &mut Parameters) -> Result<Option<SchemaRef>> {
        Ok(match &statement {
            Statement::Query(_) | Statement::ShowTables { .. } | Statement::ShowColumns { .. } => {
                Some(self.describe_query(statement, parameters).await?)
            }
            Statement::Explain { options, .. } => Some(explain_schema(options.as_deref().unwrap_or_default())),
            Statement::ExplainTable { .. } => Some(describe_schema()),
            Statement::ShowVariable { variable } if is_all(variable) => Some(all_settings_schema()),
            Statement::ShowVariable { variable } => match self.shown_setting(variable) {
                Some((name, _)) => Some(Arc::new(Schema::new(vec![Field::new(&name, DataType::Utf8, true)]))),
                None => Some(self.describe_query(statement, parameters).await?),
            },
            Statement::Fetch { .. } => self.fetched_schema(&statement)?,
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
            Statement::Declare { stmts } => {
                for query in stmts.iter().filter_map(|declared| declared.for_query.clone()) {
                    self.describe_query(Statement::Query(query), parameters).await?;
                }
                None
            }
            Statement::Insert(insert) => {
                let table = self.table(target_of_insert(insert)?)?;
                let named = |name: &_| column_of_name(&table, name);
                let targets: Vec<usize> = match &insert.columns[..] {
                    [] => (0..table.definition.visible_columns().len()).collect(),
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
                        self.describe_query(Statement::Query(source), parameters).await?;
                    }
                    None => {}
                }
                None
            }
            Statement::Update(update) => {
                let (table, _) = self.target(&update.table)?;
                for assignment in &update.assignments {
                    if let AssignmentTarget::ColumnName(name) = &assignment.target
                        && let Some(column) = column_of_name(&table, name)
                    {
                        let column_type = table.definition.columns[column].sql_type.column_type;
                        parameters.assigned(&assignment.value, column_type);
                    }
                }
                self.describe_condition(&update.table, update.selection.as_ref(), parameters).await;
                None
            }
            Statement::Delete(delete) => {
                let target = target_of_delete(delete)?;
                self.describe_condition(target, delete.selection.as_ref(), parameters).await;
                None
            }
            _ => None,
        })
    }

    async fn describe_query(&mut self, query: Statement, parameters: &mut Parameters) -> Result<SchemaRef> {
        if !parameters.types.is_empty() {
            let mut asked = query.clone();
            let arrays = one_element_of_each(&mut asked);
            if let Ok(plan) = self.plan(asked).await
                && let Ok(types) = plan.get_parameter_types()
            {
                for (id, data_type) in types {
                    let number = id.trim_start_matches('$').parse::<usize>().ok().filter(|number| *number > 0);
                    if let (Some(number), Some(data_type)) = (number, data_type) {
                        parameters.learn(number, wire_type(&data_type));
                    }
                }
                arrays.into_iter().for_each(|number| parameters.has_elements(number));
            }
        }
        self.shown_columns(with_parameters(&query, &parameters.nulls()?)?.into()).await
    }

    /// What is compared with columns of the table is of their types. A condition that cannot be planned is an error when it runs.
    async fn describe_condition(
        &mut self,
        target: &TableWithJoins,
        condition: Option<&Expr>,
        parameters: &mut Parameters,
    ) {
        if let Some(condition) = condition.filter(|_| !parameters.types.is_empty())
            && let Ok(query) = crate::query::query_of(&format!("SELECT 1 FROM {target} WHERE {condition}"))
        {
            let _ = self.describe_query(Statement::Query(Box::new(query)), parameters).await;
        }
    }
}

fn column_of_name(table: &Table, name: &datafusion::sql::sqlparser::ast::ObjectName) -> Option<usize> {
    table.definition.column(&name.0.last()?.as_ident().map(fold)?)
}
