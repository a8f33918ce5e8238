//! Evaluation of the SQL texts that definitions keep: defaults, generated columns and checks.

use crate::binding;
use crate::catalog::Shared;
use crate::ddl::parse_expression;
use crate::deep;
use crate::error::{Result, SqlError};
use crate::generated;
use crate::identifiers::fold;
use crate::planner;
use crate::visits::{visit_expressions, visit_expressions_mut};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{Column, DFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{Expr as Ast, Ident};
use serac_engine::definition::{ColumnDefinition, KeyDefinition, TableDefinition};
use serac_engine::{EngineError, Expressions, Table};
use serac_functions::with_own_casts;
use serac_query::optimizer::{checked, with_common_types, without_lists_of_expressions};
use serac_query::scan::{IndexedExpression, bare, fetch_rows};
use serac_storage::{RowId, Snapshot};
use serac_values::assignment::assign;
use serac_values::text_types::is_text;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

/// An SQL expression over columns of a table, if it is over any, as it is planned.
pub(crate) fn logical(
    state: &SessionState,
    sql: &str,
    columns: &Schema,
    table: Option<&TableDefinition>,
) -> Result<Expr> {
    let schema = DFSchema::try_from(columns.clone())?;
    match binding::definition(state, sql, &schema, table)? {
        Some(expr) => Ok(expr),
        None => planner::expression(state, sql, &schema).map_err(|e| SqlError::from(e).unplaced()),
    }
}

/// The positions of the columns that an expression names.
pub(crate) fn named_columns(table: &TableDefinition, expression: &str) -> Result<Vec<usize>> {
    let mut named = Vec::new();
    let _ = visit_expressions(&parse_expression(expression)?, |expr| {
        let name = match expr {
            Ast::Identifier(name) => Some(name),
            Ast::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        named.extend(name.and_then(|name| table.column(&fold(name))));
        ControlFlow::<()>::Continue(())
    });
    Ok(named)
}

/// The expression with another name for a column.
pub(crate) fn renamed(expression: &str, from: &str, to: &str) -> Result<String> {
    let mut parsed = parse_expression(expression)?;
    let _ = visit_expressions_mut(&mut parsed, |expr| {
        if let Ast::Identifier(name) = expr
            && fold(name) == from
        {
            *name = Ident::with_quote('"', to);
        }
        ControlFlow::<()>::Continue(())
    });
    Ok(parsed.to_string())
}

/// Bytes of an expression that cannot be deep.
const SHORT: usize = 64;

/// Evaluates an SQL expression for every row of `batch`, whose columns are those of a table, if it
/// has any.
pub(crate) fn evaluate(
    state: &SessionState,
    sql: &str,
    batch: &RecordBatch,
    table: Option<&TableDefinition>,
) -> Result<ArrayRef> {
    let evaluate = || {
        let schema = DFSchema::try_from(batch.schema().as_ref().clone())?;
        let expr = state.create_physical_expr(planned(state, sql, &schema, table)?, &schema)?;
        Ok(expr.evaluate(batch)?.into_array(batch.num_rows())?)
    };
    if sql.len() > SHORT { deep::with_room(evaluate) } else { evaluate() }
}

/// An SQL expression over columns of a table, its types coerced, and simplified as in a query.
pub(crate) fn planned(
    state: &SessionState,
    sql: &str,
    schema: &DFSchema,
    table: Option<&TableDefinition>,
) -> Result<Expr> {
    let expr = logical(state, sql, schema.as_arrow(), table)?;
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(state.config_options().clone())
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(with_common_types(expr, schema)?, schema)?;
    // Functions such as `now()` are constants once simplified, and only then.
    let coerced = checked(without_lists_of_expressions(with_own_casts(coerced, schema)?)?, schema)?;
    Ok(simplifier.simplify(coerced)?)
}

/// The expressions of a table's indexes, as they are planned in queries. One that cannot be planned now helps nobody.
pub(crate) fn indexed_expressions(state: &SessionState, table: &TableDefinition) -> Vec<IndexedExpression> {
    let Ok(schema) = DFSchema::try_from(table.storage_schema().arrow()) else { return Vec::new() };
    let plan = |text: &str| bare(planned(state, text, &schema, Some(table)).ok()?).ok();
    let of_column = |key: &KeyDefinition, i: usize| {
        let text = key.expressions.get(i)?.as_deref()?;
        let predicate = key.predicate.as_deref().filter(|_| i == 0);
        let conditions = predicate.map_or(Some(Vec::new()), |predicate| {
            Some(split_conjunction(&plan(predicate)?).into_iter().cloned().collect())
        })?;
        let hidden = &table.columns[key.columns[i]];
        let expression = plan(text)?;
        // The column may have been made when the expression had another type.
        let data_type = expression.get_type(&schema).ok()?;
        let is_same = data_type == hidden.sql_type.column_type.arrow() || is_text(&data_type);
        let hidden = Expr::Column(Column::new_unqualified(&hidden.name));
        is_same.then_some(IndexedExpression { expression, conditions, hidden })
    };
    table.keys.iter().flat_map(|key| (0..key.columns.len()).filter_map(move |i| of_column(key, i))).collect()
}

/// A column's default for `rows` rows.
pub(crate) fn column_default(state: &SessionState, definition: &ColumnDefinition, rows: usize) -> Result<ArrayRef> {
    match &definition.default {
        None => Ok(new_null_array(&definition.sql_type.column_type.arrow(), rows)),
        Some(default) => {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
            assign(&evaluate(state, default, &empty, None)?, definition.sql_type, &definition.name)
        }
    }
}

/// Checks the table's CHECK constraints on whole rows.
pub(crate) fn check_rows(state: &SessionState, table: &Table, rows: &RecordBatch) -> Result<()> {
    for check in &table.definition.checks {
        let outcome = evaluate(state, &check.expression, rows, Some(&table.definition))?;
        let violated = outcome.as_boolean_opt().is_none_or(|b| b.iter().any(|held| held == Some(false)));
        if violated {
            return Err(EngineError::Check { table: table.name().into(), constraint: check.name.clone() }.into());
        }
    }
    Ok(())
}

/// Evaluates for the engine, with a session's functions.
#[derive(Debug)]
pub(crate) struct SessionExpressions(pub(crate) Arc<Shared>);

impl SessionExpressions {
    fn state(&self) -> Result<SessionState> {
        let state = self.0.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| SqlError::new("XX000", "the session has ended"))?;
        Ok(self.0.at_its_time(&state))
    }
}

pub(crate) fn into_engine(error: SqlError) -> EngineError {
    EngineError::Expression { sqlstate: error.sqlstate, message: error.message }
}

impl Expressions for SessionExpressions {
    fn default_value(&self, column: &ColumnDefinition) -> serac_engine::Result<ArrayRef> {
        self.state().and_then(|state| column_default(&state, column, 1)).map_err(into_engine)
    }
    fn generated_values(
        &self,
        table: &Table,
        snapshot: &Snapshot,
        rows: &[RowId],
        changed: &[usize],
    ) -> serac_engine::Result<Option<(Vec<usize>, RecordBatch)>> {
        let values = || {
            let now = fetch_rows(table, snapshot, rows)?;
            generated::changes(&self.state()?, table, changed, &now.project(changed)?, || Ok(now))
        };
        values().map_err(into_engine)
    }
    fn check_rows(&self, table: &Table, snapshot: &Snapshot, rows: &[RowId]) -> serac_engine::Result<()> {
        let check = || check_rows(&self.state()?, table, &fetch_rows(table, snapshot, rows)?);
        check().map_err(into_engine)
    }
}
