//! Functions in FROM: `generate_series(1, 3)`, `unnest(ARRAY[a, b])`, and those of a single row.
//!
//! A function may name columns of the items before it. Then its values are a list beside their row,
//! which is unnested:
//!
//! ```text
//! FROM t, generate_series(1, t.a) g
//! Projection(t.*, g) → Unnest(list) → Projection(t.*, generate_series(1, t.a) AS list) → t
//! ```
//!
//! A series of constants is the environment's table, if it has one: a list would be in memory as a
//! whole.

use crate::Binder;
use crate::OutputColumn;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::from::{Rows, rename};
use crate::names::column_name;
use crate::scope::Outer;
use crate::scope::{Scope, ScopeColumn, ScopeItem};
use crate::subquery::levels_of;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue, TableReference, UnnestOptions};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, cast, lit};
use serac_parser::tree::{Alias, Call, Expr as Tree, ExprKind, Span, TableExpr, TableKind};
use serac_pg::TypeId;
use serac_pg::functions::{Function, of_name};
use serac_pg::resolve::{self, Resolved};

/// Numbers whose differences are numbers of 64 bits.
const HALF: i64 = 1 << 62;

/// The values of a function, over the rows that it stands beside.
enum Values {
    /// A list that an expression gives, and what the number of a value is, of the value.
    List { list: Expr, id: TypeId, number: Number },
    /// A table of one column, without columns of other items.
    Table { plan: LogicalPlan, id: TypeId, number: Number },
    /// Rows of values and their numbers, without columns of other items.
    Rows { values: Vec<Expr>, id: TypeId },
    /// A single value.
    One(Bound),
}

/// How WITH ORDINALITY numbers values.
#[derive(Clone)]
enum Number {
    /// By their distance from the first.
    Series { start: Expr, step: Expr },
    /// By a list beside theirs.
    List(Expr),
    /// It is not known.
    Unknown,
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

impl Binder<'_> {
    /// A function in FROM, beside the rows before it.
    pub(crate) fn functions(&self, table: &TableExpr, before: Option<Rows>, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let TableKind::Functions { calls, rows_from: false, ordinality, alias, columns, .. } = &table.kind else {
            return Err(BindError::Unknown("ROWS FROM"));
        };
        let [(call, types)] = &calls[..] else { return Err(BindError::Unknown("several functions in FROM")) };
        if !columns.is_empty() || !types.is_empty() {
            return Err(BindError::Unknown("a function with a list of columns"));
        }
        self.reads(1)?;
        let rows = match before {
            Some(rows) => rows,
            None => Rows { plan: LogicalPlanBuilder::empty(true).build()?, scope: Scope::default() },
        };
        let schema = rows.plan.schema().clone();
        let context = Context::new(&rows.scope, &schema, outer).in_clause("functions in FROM");
        let values = self.values_of(call, context)?;
        let name = column_name(call, &self.subquery_names.borrow());
        let shown = alias.as_ref().map_or(&name, |alias| &alias.name.name);
        let qualifier = TableReference::bare(self.qualifier(shown));
        self.item_names.borrow_mut().insert(shown.clone());
        let (plan, added) = beside(self, rows.plan, values, *ordinality, &qualifier)?;
        let span = alias.as_ref().map_or(Span::default(), |alias: &Alias| alias.name.span);
        let mut columns = vec![OutputColumn { name: shown.clone(), id: added[0].1, span, text: None }];
        if *ordinality {
            columns.push(OutputColumn { name: "ordinality".into(), id: TypeId::INT8, span, text: None });
        }
        let names = alias.as_ref().map_or(&[][..], |alias| &alias.columns);
        rename(&mut columns, names, shown, span)?;
        let columns = columns.into_iter().zip(added).map(|(column, (expr, _))| ScopeColumn {
            item: Some(0),
            name: column.name,
            expr,
            id: column.id,
            is_merged: false,
        });
        let item = ScopeItem { name: shown.clone(), schema: None, key: Vec::new() };
        let own = Scope { items: vec![item], columns: columns.collect() };
        Ok(Rows { plan, scope: rows.scope.beside(own, table.span)? })
    }
    fn values_of(&self, tree: &Tree, context: Context<'_>) -> Result<Values> {
        if let ExprKind::Call(call) = &tree.kind {
            let name = match &call.name.parts[..] {
                [name] => &name.name,
                [schema, name] if schema.name == "pg_catalog" => &name.name,
                _ => return Err(BindError::Unknown("a function of another schema")),
            };
            let is_plain = !call.star
                && !call.distinct
                && !call.variadic
                && call.order_by.is_empty()
                && call.within_group.is_empty()
                && call.filter.is_none()
                && call.over.is_none()
                && call.arguments.iter().all(|argument| argument.name.is_none());
            match name.as_str() {
                "generate_series" if is_plain => return self.series(call, context),
                "unnest" if is_plain => return self.unnested(call, context),
                "generate_series" | "unnest" => return Err(BindError::Unknown("a call of this form")),
                _ => {}
            }
        }
        let bound = self.expression(tree, context)?;
        bound.exact()?;
        Ok(Values::One(bound))
    }
    fn series(&self, call: &Call, context: Context<'_>) -> Result<Values> {
        let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
        let arguments: Vec<Bound> = arguments.collect::<Result<_>>()?;
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
        let takes = |function: &&Function| function.signature.arguments.len() == given.len() && function.returns_set;
        let candidates = of_name("generate_series").iter().filter(takes).map(|function| &function.signature);
        let Resolved::One(signature) = resolve::function(candidates.collect(), &given) else {
            return Err(BindError::Unknown("a series of these types"));
        };
        let id = signature.result;
        if !matches!(id, TypeId::INT4 | TypeId::INT8) {
            return Err(BindError::Unknown("a series of these types"));
        }
        let mut exprs = Vec::new();
        for argument in arguments {
            exprs.push(argument.implicitly(id, context.schema)?.implicitly(TypeId::INT8, context.schema)?.expr);
        }
        if exprs.len() == 2 {
            exprs.push(lit(1i64));
        }
        let literals: Option<Vec<Option<i64>>> = exprs.iter().map(literal).collect();
        if let Some([.., Some(0)]) = literals.as_deref() {
            return Err(BindError::without_place("22023", "step size cannot equal zero"));
        }
        let is_small = |number: &Option<i64>| number.is_some_and(|number| (-HALF..HALF).contains(&number));
        let number = match &literals {
            Some(literals) if literals.iter().all(is_small) => {
                Number::Series { start: exprs[0].clone(), step: exprs[2].clone() }
            }
            None if id == TypeId::INT4 => Number::Series { start: exprs[0].clone(), step: exprs[2].clone() },
            _ => Number::Unknown,
        };
        if literals.is_some()
            && let Some(source) = self.environment.table_function("generate_series", &exprs)
        {
            let name = self.qualifier("series");
            let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?.build()?;
            return Ok(Values::Table { plan, id, number });
        }
        let function = self.environment.scalar("generate_series").ok_or(BindError::Unknown("a series"))?;
        Ok(Values::List { list: function.call(exprs), id, number })
    }
    fn unnested(&self, call: &Call, context: Context<'_>) -> Result<Values> {
        let [argument] = &call.arguments[..] else { return Err(BindError::Unknown("several arrays")) };
        let ExprKind::Array(items) = &argument.value.kind else { return Err(BindError::Unknown("an array")) };
        let is_array = |item: &Tree| matches!(item.kind, ExprKind::Array(_) | ExprKind::ArrayQuery(_));
        if items.is_empty() || items.iter().any(is_array) {
            return Err(BindError::Unknown("an array of this form"));
        }
        let items: Vec<Bound> = items.iter().map(|item| self.expression(item, context)).collect::<Result<_>>()?;
        let (values, id) = self.unified("ARRAY", items, context.schema)?;
        if levels_of(&values, context.schema) == (false, false) {
            return Ok(Values::Rows { values, id });
        }
        let array = self.environment.scalar("make_array").ok_or(BindError::Unknown("an array"))?;
        let numbers = (1..=values.len() as i64).map(lit).collect();
        Ok(Values::List { number: Number::List(array.call(numbers)), list: array.call(values), id })
    }
}

/// A constant number, which may be NULL; none if it is something else.
fn literal(expr: &Expr) -> Option<Option<i64>> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => Some(*number),
        _ => None,
    }
}

/// The rows with a function's values beside them, and what its columns are.
fn beside(
    binder: &Binder<'_>,
    plan: LogicalPlan,
    values: Values,
    ordinality: bool,
    qualifier: &TableReference,
) -> Result<(LogicalPlan, Vec<(Expr, TypeId)>)> {
    let shown = |column: &str| Column::new(Some(qualifier.clone()), column);
    let named = |expr: Expr, column: &str| expr.alias_qualified(Some(qualifier.clone()), column);
    let mut added = vec![(Expr::Column(shown("value")), TypeId::INT8)];
    let before: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let is_alone = before.is_empty();
    let of_number = |number: Number, value: Expr| match number {
        _ if !ordinality => Ok(None),
        Number::Series { start, step } => {
            let distance = binary(value, Operator::Minus, start);
            let number = binary(binary(distance, Operator::Divide, step), Operator::Plus, lit(1i64));
            Ok(Some(number))
        }
        Number::List(_) | Number::Unknown => Err(BindError::Unknown("the numbers of these values")),
    };
    let plan = match values {
        Values::One(bound) => {
            added[0].1 = bound.id;
            if bound.id == TypeId::UNKNOWN {
                return Err(BindError::Unknown("a value of no type"));
            }
            let mut exprs = before;
            exprs.push(named(bound.expr, "value"));
            if ordinality {
                exprs.push(named(lit(1i64), "ordinality"));
            }
            LogicalPlanBuilder::from(plan).project(exprs)?.build()?
        }
        Values::Rows { values, id } => {
            added[0].1 = id;
            let rows = values.into_iter().zip(1i64..).map(|(value, number)| match ordinality {
                true => vec![value, lit(number)],
                false => vec![value],
            });
            let rows = LogicalPlanBuilder::values(rows.collect())?;
            let columns = rows.schema().columns().into_iter().map(Expr::Column);
            let columns = columns.zip(["value", "ordinality"]).map(|(column, name)| named(column, name));
            let rows = rows.project(columns.collect::<Vec<_>>())?.build()?;
            if is_alone { rows } else { LogicalPlanBuilder::from(plan).cross_join(rows)?.build()? }
        }
        Values::Table { plan: rows, id, number } => {
            added[0].1 = id;
            let value = Expr::Column(Column::from(rows.schema().qualified_field(0)));
            let number = of_number(number, value.clone())?;
            let value = if id == TypeId::INT4 { cast(value, DataType::Int32) } else { value };
            let exprs = [Some(named(value, "value")), number.map(|number| named(number, "ordinality"))];
            let rows =
                LogicalPlanBuilder::from(rows).project(exprs.into_iter().flatten().collect::<Vec<_>>())?.build()?;
            if is_alone { rows } else { LogicalPlanBuilder::from(plan).cross_join(rows)?.build()? }
        }
        Values::List { list, id, number } => {
            added[0].1 = id;
            let (list_name, numbers_name) = (binder.qualifier("#list"), binder.qualifier("#numbers"));
            let mut exprs = before.clone();
            exprs.push(list.alias(&list_name));
            let mut unnested = vec![Column::new_unqualified(&list_name)];
            let value = Expr::Column(Column::new_unqualified(&list_name));
            let number = match number {
                Number::List(numbers) if ordinality => {
                    exprs.push(numbers.alias(&numbers_name));
                    unnested.push(Column::new_unqualified(&numbers_name));
                    Some(Expr::Column(Column::new_unqualified(&numbers_name)))
                }
                number => of_number(number, value.clone())?,
            };
            let options = UnnestOptions::new().with_preserve_nulls(false);
            let rows = LogicalPlanBuilder::from(plan).project(exprs)?.unnest_columns_with_options(unnested, options)?;
            let value = if id == TypeId::INT4 { cast(value, DataType::Int32) } else { value };
            let mut exprs = before;
            exprs.push(named(value, "value"));
            exprs.extend(number.map(|number| named(number, "ordinality")));
            rows.project(exprs)?.build()?
        }
    };
    if ordinality {
        added.push((Expr::Column(shown("ordinality")), TypeId::INT8));
    }
    Ok((plan, added))
}
