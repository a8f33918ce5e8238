//! SET: the columns that are assigned to, and their values.

use crate::binder::Binder;
use crate::blanks::read;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::limits::PARTS_OF_SUBQUERY;
use crate::plan_parts::subquery;
use crate::row;
use crate::scope::Context;
use crate::statement::SetColumn;
use crate::target::Target;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use serac_parser::tree::{Assignment, Expr as Tree, ExprKind, Query};

/// The source of a value.
enum Value<'t> {
    Default,
    Expr(&'t Tree),
    /// Column `at` of a query that gives the values of several columns.
    Query {
        query: &'t Query,
        tree: &'t Tree,
        at: usize,
        of: usize,
    },
}

/// The assignments of SET, before their values are bound.
pub(crate) struct Assignments<'t>(Vec<(usize, Value<'t>)>);

impl<'t> Assignments<'t> {
    /// The assignments in `list`.
    ///
    /// # Errors
    /// An error of the columns, or of their number.
    pub(crate) fn of(list: &'t [Assignment], target: &Target) -> Result<Self> {
        let mut all = Vec::new();
        for Assignment { targets, in_parentheses, value } in list {
            let places = targets.iter().map(|column| target.assigned(column)).collect::<Result<Vec<_>>>()?;
            let count = places.len();
            let wrong_count = || {
                BindError::new(sqlstate::SYNTAX_ERROR, "number of columns does not match number of values", value.span)
            };
            match (in_parentheses, &value.kind) {
                (false, _) => all.extend(places.into_iter().map(|place| (place, of_tree(value)))),
                (true, ExprKind::Subquery(query)) => {
                    let of_query = |(at, place)| (place, Value::Query { query, tree: value, at, of: count });
                    all.extend(places.into_iter().enumerate().map(of_query));
                }
                (true, _) => match row::fields(value) {
                    Some(fields) if fields.len() != count => return Err(wrong_count()),
                    Some(fields) => all.extend(places.into_iter().zip(fields.iter().map(of_tree))),
                    None if count == 1 && matches!(value.kind, ExprKind::Default) => {
                        all.push((places[0], Value::Default));
                    }
                    None => {
                        let message =
                            "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                        return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, value.span));
                    }
                },
            }
        }
        let mut is_set = vec![false; target.width()];
        for (column, _) in &all {
            if std::mem::replace(&mut is_set[*column], true) {
                let message = format!("multiple assignments to same column \"{}\"", target.column_name(*column));
                return Err(BindError::without_place(sqlstate::SYNTAX_ERROR, message));
            }
        }
        Ok(Self(all))
    }

    /// Refuses values for generated columns.
    pub(crate) fn check_generated(&self, target: &Target) -> Result<()> {
        let given = self.0.iter().filter(|(_, value)| !matches!(value, Value::Default));
        given.map(|(column, _)| *column).try_for_each(|column| {
            target.generated(column, |name| format!("column \"{name}\" can only be updated to DEFAULT"))
        })
    }

    /// The columns.
    pub(crate) fn set(&self) -> Vec<SetColumn> {
        let mut next = 0..;
        let mut value = |value: &Value<'_>| if let Value::Default = value { None } else { next.next() };
        self.0.iter().map(|(column, given)| SetColumn { column: *column, value: value(given) }).collect()
    }
}

fn of_tree(tree: &Tree) -> Value<'_> {
    if let ExprKind::Default = tree.kind { Value::Default } else { Value::Expr(tree) }
}

impl Binder<'_> {
    /// The values of SET, but for defaults.
    pub(crate) fn assigned_values(
        &self,
        assignments: &Assignments<'_>,
        target: &Target,
        context: Context<'_>,
    ) -> Result<Vec<Expr>> {
        let mut values = Vec::new();
        for (column, value) in &assignments.0 {
            let bound = match value {
                Value::Default => continue,
                Value::Expr(tree) => match self.passed(tree, Context { passes_any: true, ..context })? {
                    Some(passed) => passed,
                    None => self.expression(tree, context)?,
                },
                Value::Query { query, tree, at, of } => self.column_of_query(query, tree, (*at, *of), context)?,
            };
            values.push(self.of_column(target, *column, bound, context.schema)?.expr);
        }
        Ok(values)
    }

    /// A column of a query of a single row. The query stands in the plan once for each.
    fn column_of_query(
        &self,
        query: &Query,
        tree: &Tree,
        (at, of): (usize, usize),
        context: Context<'_>,
    ) -> Result<Bound> {
        let selected = self.query(query, Some(&context.around()))?;
        if selected.columns.len() != of {
            return Err(BindError::new(
                sqlstate::SYNTAX_ERROR,
                "number of columns does not match number of values",
                tree.span,
            ));
        }
        if of > 1 {
            self.makes(PARTS_OF_SUBQUERY)?;
            if crate::plan_parts::is_volatile(&selected.plan)? {
                return Err(BindError::unsupported("a volatile query for several columns", tree.span));
            }
        }
        if let Some((_, open)) = selected.open.iter().find(|(open, _)| *open == at)
            && open.parameter.is_some()
        {
            let what = "a parameter whose type is not told in a query for several columns";
            return Err(BindError::unsupported(what, tree.span));
        }
        let selected = selected.closed()?;
        let column = &selected.columns[at];
        let only = Expr::Column(Column::from(selected.plan.schema().qualified_field(at)));
        let plan = LogicalPlanBuilder::from(selected.plan.clone()).project(vec![only])?.build()?;
        let value = read(Expr::ScalarSubquery(subquery(plan)), column.modified_type());
        Ok(Bound::of_type(value, column.modified_type(), tree.span))
    }
}
