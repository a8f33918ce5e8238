//! UPDATE and DELETE: the rows that they change, and the values that these get.

use super::assignment::Assignments;
use crate::binder::Binder;
use crate::error::{BindError, Result};
use crate::from::Rows;
use crate::scope::Context;
use crate::statement::{BoundRows, SetColumn};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use serac_parser::tree::{Assignment, Condition, Delete, Ident, Relation, SelectItem, TableExpr, Update};

/// An UPDATE or a DELETE.
struct Change<'t> {
    table: &'t Relation,
    alias: Option<&'t Ident>,
    /// SET; `None` for a DELETE.
    assignments: Option<&'t [Assignment]>,
    /// FROM or USING.
    from: &'t [TableExpr],
    filter: Option<&'t Condition>,
    returning: &'t [SelectItem],
}

impl Binder<'_> {
    pub(super) fn update(&self, update: &Update) -> Result<BoundRows> {
        let change = Change {
            table: &update.table,
            alias: update.alias.as_ref(),
            assignments: Some(&update.assignments),
            from: &update.from,
            filter: update.filter.as_ref(),
            returning: &update.returning,
        };
        self.rows_changed(&change)
    }

    pub(super) fn delete(&self, delete: &Delete) -> Result<BoundRows> {
        let change = Change {
            table: &delete.table,
            alias: delete.alias.as_ref(),
            assignments: None,
            from: &delete.using,
            filter: delete.filter.as_ref(),
            returning: &delete.returning,
        };
        self.rows_changed(&change)
    }

    /// PostgreSQL's order: FROM, WHERE, RETURNING, SET. ONLY says nothing: no table has others
    /// below it.
    fn rows_changed(&self, change: &Change<'_>) -> Result<BoundRows> {
        let target = self.environment.target(&change.table.name)?;
        let own = self.target_rows(&target, &change.table.name, change.alias, &[])?;
        let row = self.row_of(&own, &target);
        let own_scope = own.scope.clone();
        let (rows, filter) = self.found_rows(own, change)?;
        let schema = rows.plan.schema().clone();
        let (returning, others) = self.returning(change.returning, &target, &own_scope, &rows.scope, &schema)?;
        let mut set: Option<Vec<SetColumn>> = None;
        let mut exprs = vec![row];
        if let Some(assignments) = change.assignments {
            let assignments = Assignments::of(assignments, &target)?;
            let context = Context::new(&rows.scope, &schema, None).in_clause("UPDATE");
            exprs.extend(numbered("#value", self.assigned_values(&assignments, &target, context)?));
            assignments.check_generated(&target)?;
            set = Some(assignments.set());
        }
        exprs.extend(numbered("#other", others.into_iter().map(Expr::Column)));
        let plan = projected(rows.plan, filter, exprs)?;
        Ok(BoundRows { target, plan, set, returning })
    }

    /// The rows of the target beside those of other tables, and WHERE.
    fn found_rows(&self, mut rows: Rows, change: &Change<'_>) -> Result<(Rows, Option<Expr>)> {
        if !change.from.is_empty() {
            let others = self.from(change.from, None)?;
            rows.plan = LogicalPlanBuilder::from(rows.plan).cross_join(others.plan)?.build()?;
            let place = change.from[0].span;
            rows.scope = rows.scope.beside(others.scope, place).map_err(BindError::unplaced)?;
        }
        let schema = rows.plan.schema().clone();
        let context = Context::new(&rows.scope, &schema, None).in_clause("WHERE");
        let filter = match change.filter {
            Some(Condition::Expr(filter)) => Some(self.condition("WHERE", filter, context)?),
            Some(Condition::CurrentOf(cursor)) => {
                return Err(BindError::unsupported("WHERE CURRENT OF", cursor.span));
            }
            None => None,
        };
        Ok((rows, filter))
    }
}

/// Expressions under names with numbers.
pub(super) fn numbered(name: &'static str, exprs: impl IntoIterator<Item = Expr>) -> impl Iterator<Item = Expr> {
    exprs.into_iter().enumerate().map(move |(number, expr)| expr.alias(format!("{name}{number}")))
}

/// Expressions over rows that a condition leaves.
pub(super) fn projected(plan: LogicalPlan, filter: Option<Expr>, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    let mut plan = LogicalPlanBuilder::from(plan);
    if let Some(filter) = filter {
        plan = plan.filter(filter)?;
    }
    Ok(plan.project(exprs)?.build()?)
}
