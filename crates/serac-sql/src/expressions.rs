//! Evaluation of expressions that stand in no query: defaults, generated columns, checks, indexes
//! and their conditions, all of which tables keep as texts.

use crate::error::{Result, SqlError};
use crate::identifiers::quote;
use crate::kept_expression::KeptExpression;
use crate::limits::{check_statement, keep_statement_here};
use crate::{binding, deep};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use serac_binder::{Definition, Place};
use serac_engine::catalog::definition::{ColumnDefinition, KeyDefinition, TableDefinition};
use serac_engine::{EngineError, ExpressionError, Table};
use serac_functions::with_own_casts;
use serac_numeric_functions::{FREE, keys};
use serac_parser::tree::{Name, Span};
use serac_query::optimizer::{checked, with_common_types, with_guarded_branches, without_lists_of_expressions};
use serac_query::scan::{IndexedExpression, bare};
use serac_storage::ColumnType;
use serac_values::assignment::assign;
use serac_values::text_types::is_text;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl KeptExpression<'_> {
    /// The expression over columns of `schema`, as the binder gives it.
    ///
    /// # Errors
    /// The errors of the expression.
    pub(crate) fn bound(&self, state: &SessionState, schema: &DFSchema) -> Result<Definition> {
        let bound = || {
            let mut bound = binding::definition(state, self, schema)?;
            // Indexes of older versions have the keys of numbers with digits of their own.
            let has_keys = self.column.is_some_and(|column| column.sql_type.column_type == ColumnType::Binary);
            if self.place == Place::Index && has_keys && bound.expr.get_type(schema)? == FREE {
                bound.expr = keys::of_numeric(bound.expr);
            }
            Ok(bound)
        };
        deep::with_room_if(self.text.len() > SHORT, bound)
    }

    /// The same with its types coerced, and simplified as in a query.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn planned(&self, state: &SessionState, schema: &DFSchema) -> Result<Expr> {
        let expr = self.bound(state, schema)?.expr;
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(schema.clone()))
            .with_config_options(state.config_options().clone())
            .with_query_execution_start_time(state.execution_props().query_execution_start_time)
            .build();
        let simplifier = ExprSimplifier::new(context);
        let coerced = simplifier.coerce(with_common_types(expr, schema)?, schema)?;
        // Functions such as `now()` are constants once simplified, and only then.
        let coerced = checked(without_lists_of_expressions(with_own_casts(coerced, schema)?)?, schema)?;
        let is_condition = matches!(self.place, Place::Predicate | Place::CopyFilter);
        Ok(simplifier.simplify(with_guarded_branches(coerced, schema, is_condition)?)?)
    }

    /// Its values for the rows of `batch`, whose columns are those of the table, if the expression
    /// is over a table.
    ///
    /// # Errors
    /// As there, and the errors for a row.
    pub(crate) fn values(&self, state: &SessionState, batch: &RecordBatch) -> Result<ArrayRef> {
        deep::with_room_if(self.text.len() > SHORT, || {
            let schema = DFSchema::try_from(batch.schema().as_ref().clone())?;
            let expr = self.planned(state, &schema)?;
            if expr.is_volatile() {
                keep_statement_here();
            }
            let expr = state.create_physical_expr(expr, &schema)?;
            let [mut most, limit] = PIECES;
            let (mut start, mut pieces) = (0, Vec::new());
            loop {
                // The statement can end between pieces, which do not wait for anything.
                check_statement()?;
                let begun = Instant::now();
                let rows = batch.slice(start, most.min(batch.num_rows() - start));
                pieces.push(expr.evaluate(&rows)?.into_array(rows.num_rows())?);
                start += rows.num_rows();
                if start == batch.num_rows() {
                    break;
                }
                most = if begun.elapsed() < QUICK { limit.min(2 * most) } else { PIECES[0].max(most / 2) };
            }
            match &pieces[..] {
                [all] => Ok(all.clone()),
                pieces => Ok(concat(&pieces.iter().map(|piece| &**piece).collect::<Vec<_>>())?),
            }
        })
    }

    /// Its values as those of the column to which they are assigned.
    ///
    /// # Errors
    /// As there, and those of an assignment.
    pub(crate) fn assigned(&self, state: &SessionState, batch: &RecordBatch) -> Result<ArrayRef> {
        let values = self.values(state, batch)?;
        self.column.map_or(Ok(values.clone()), |column| assign(&values, column.sql_type, &column.name))
    }
}

/// The names of columns in an expression.
fn names_in(expression: &str) -> Result<Vec<Name>> {
    let names = serac_binder::columns_of_definition(expression);
    names.map_err(|_| SqlError::unsupported(format!("the expression {expression}")))
}

/// The positions of the columns that an expression names.
pub(crate) fn named_columns(table: &TableDefinition, expression: &str) -> Result<Vec<usize>> {
    let names = names_in(expression)?;
    Ok(names.iter().filter_map(|name| table.column(&name.parts.last()?.name)).collect())
}

/// A text with disjoint parts replaced.
pub(crate) fn replaced(text: &str, mut parts: Vec<(Span, String)>) -> String {
    let mut text = text.to_owned();
    // From behind, so that the places before stay.
    parts.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(at.start));
    for (at, part) in parts {
        text.replace_range(at.start as usize..at.end as usize, &part);
    }
    text
}

/// The expression with another name for a column.
pub(crate) fn renamed(expression: &str, from: &str, to: &str) -> Result<String> {
    let names = names_in(expression)?;
    let places = names.iter().filter_map(|name| name.parts.last()).filter(|last| last.name == from);
    Ok(replaced(expression, places.map(|last| (last.span, quote(to))).collect()))
}

/// Rows for which an expression is evaluated at a time, at first and at the most. There may be more
/// if the last ones took less than [`QUICK`].
const PIECES: [usize; 2] = [16, 1024];
const QUICK: Duration = Duration::from_millis(5);

/// Bytes of an expression that cannot be deep, and takes no time to plan.
pub(crate) const SHORT: usize = 64;

/// The expressions of a table's indexes, as they are planned in queries. An expression that cannot
/// be planned now is left out.
pub(crate) fn indexed_expressions(state: &SessionState, table: &TableDefinition) -> Vec<IndexedExpression> {
    let Ok(schema) = DFSchema::try_from(table.storage_schema().arrow()) else { return Vec::new() };
    let plan = |text: &str, place: Place, column: Option<&ColumnDefinition>| {
        let kept = KeptExpression { column, ..KeptExpression::over(table, text, place) };
        bare(kept.planned(state, &schema).ok()?).ok()
    };
    let of_column = |key: &KeyDefinition, i: usize| {
        let text = key.expressions.get(i)?.as_deref()?;
        let predicate = key.predicate.as_deref().filter(|_| i == 0);
        let conditions = predicate.map_or(Some(Vec::new()), |predicate| {
            Some(split_conjunction(&plan(predicate, Place::Predicate, None)?).into_iter().cloned().collect())
        })?;
        let hidden = &table.columns[key.columns[i]];
        let expression = plan(text, Place::Index, Some(hidden))?;
        // The column may have been made when the expression had another type.
        let data_type = expression.get_type(&schema).ok()?;
        // Queries compare the keys of such numbers.
        let expression = if data_type == FREE { keys::of_numeric(expression) } else { expression };
        let is_same = data_type == hidden.sql_type.column_type.arrow()
            || is_text(&data_type)
            || (data_type == DataType::Binary && hidden.sql_type.column_type == ColumnType::Binary);
        let hidden = Expr::Column(Column::new_unqualified(&hidden.name));
        is_same.then_some(IndexedExpression { expression, conditions, hidden })
    };
    table.keys.iter().flat_map(|key| (0..key.columns.len()).filter_map(move |i| of_column(key, i))).collect()
}

/// A column's default for `rows` rows.
pub(crate) fn column_default(state: &SessionState, definition: &ColumnDefinition, rows: usize) -> Result<ArrayRef> {
    match KeptExpression::default_of(definition) {
        None => Ok(new_null_array(&definition.sql_type.column_type.arrow(), rows)),
        Some(default) => {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
            default.assigned(state, &empty)
        }
    }
}

/// Checks the table's CHECK constraints on whole rows.
///
/// # Errors
/// That of the first row that violates one, and of the first that it violates.
pub(crate) fn check_rows(state: &SessionState, table: &Table, rows: &RecordBatch) -> Result<()> {
    let (mut rows, mut error) = (rows.clone(), None);
    for check in &table.definition.checks {
        if rows.num_rows() == 0 {
            break;
        }
        let outcome = KeptExpression::over(&table.definition, &check.expression, Place::Check).values(state, &rows)?;
        let violated = match outcome.as_boolean_opt() {
            Some(held) => held.iter().position(|held| held == Some(false)),
            None => Some(0),
        };
        if let Some(row) = violated {
            // Rows before it may violate the checks that follow.
            error = Some(table.check_violated(&check.name).of_row(table, &table.row_of(&rows, row)));
            rows = rows.slice(0, row);
        }
    }
    error.map_or(Ok(()), |error| Err(error.into()))
}

pub(crate) fn into_engine(error: SqlError) -> EngineError {
    let (table, row) = match error.table {
        Some(table) => (Some((table.schema, table.name)), table.row),
        None => (None, None),
    };
    let SqlError { sqlstate, message, detail, hint, name, .. } = error;
    EngineError::Expression(Box::new(ExpressionError { sqlstate, message, detail, hint, name, table, row }))
}
