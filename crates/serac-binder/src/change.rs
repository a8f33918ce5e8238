//! UPDATE and DELETE: the rows that they change, and the values that these get.

use crate::Binder;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::query::Selected;
use crate::scope::ScopeItem;
use crate::types::or_no_type;
use crate::{OutputColumn, Relation, row};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use serac_parser::tree::{self, Alias, Assignment, Condition, Ident, StatementKind, TableExpr};
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};

/// An UPDATE or a DELETE.
pub(crate) struct Change<'t> {
    table: &'t tree::Relation,
    alias: Option<&'t Ident>,
    /// Of SET; none of a DELETE.
    assignments: &'t [Assignment],
    /// FROM or USING.
    pub(crate) from: &'t [TableExpr],
    pub(crate) filter: Option<&'t Condition>,
}

impl<'t> Change<'t> {
    /// What a statement changes; none if it is another, or has a WITH.
    pub(crate) fn of(statement: &'t StatementKind) -> Option<Self> {
        Some(match statement {
            StatementKind::Update(update) if update.with.is_none() => Self {
                table: &update.table,
                alias: update.alias.as_ref(),
                assignments: &update.assignments,
                from: &update.from,
                filter: update.filter.as_ref(),
            },
            StatementKind::Delete(delete) if delete.with.is_none() => Self {
                table: &delete.table,
                alias: delete.alias.as_ref(),
                assignments: &[],
                from: &delete.using,
                filter: delete.filter.as_ref(),
            },
            _ => return None,
        })
    }
    /// The columns of SET, each with its value.
    pub(crate) fn assigned(&self) -> Result<Vec<(&'t Ident, &'t tree::Expr)>> {
        let mut all = Vec::new();
        for Assignment { targets, in_parentheses, value } in self.assignments {
            if targets.iter().any(|(_, behind)| !behind.is_empty()) {
                return Err(BindError::Unknown("a part of a column"));
            }
            match (in_parentheses, &targets[..]) {
                (false, [(target, _)]) => all.push((target, value)),
                _ => {
                    let values = row::fields(value).filter(|values| values.len() == targets.len());
                    let values = values.ok_or(BindError::Unknown("values for these columns"))?;
                    all.extend(targets.iter().map(|(target, _)| target).zip(values));
                }
            }
        }
        Ok(all)
    }
}

impl Binder<'_> {
    /// The rows of `target` that a statement changes: of each the column behind those of
    /// [`Relation::types`], which says which row it is, and the values of SET in their order. A
    /// row may come several times if there are other tables.
    pub(crate) fn change(&self, change: &Change<'_>, target: &Relation) -> Result<LogicalPlan> {
        if change.table.only {
            return Err(BindError::Unknown("ONLY"));
        }
        let name = &change.table.name;
        let Some(last) = name.parts.last() else { return Err(BindError::Unknown("an empty name")) };
        let (shown, schema) = match (change.alias, &name.parts[..]) {
            (Some(alias), _) => (alias, None),
            (None, [.., schema, _]) => (last, Some(schema.name.clone())),
            (None, _) => (last, None),
        };
        self.item_names.borrow_mut().insert(last.name.clone());
        let scan = LogicalPlanBuilder::scan(target.name.clone(), target.source.clone(), None)?.build()?;
        let fields = scan.schema().fields().iter().zip(&target.types);
        let column = |name: &str, id: TypeId| OutputColumn { name: name.to_owned(), id, span: last.span, text: None };
        let columns = fields.map(|(field, id)| column(field.name(), or_no_type(*id))).collect();
        let item = ScopeItem { name: shown.name.clone(), schema, key: Vec::new() };
        let alias = Alias { name: shown.clone(), columns: Vec::new() };
        let mut rows = self.named(Selected::new(scan, columns), item, Some(&alias))?;
        let row = Expr::Column(Column::from(rows.plan.schema().qualified_field(target.types.len())));
        let own = rows.scope.clone();
        if !change.from.is_empty() {
            let others = self.from(change.from, None)?;
            rows.plan = LogicalPlanBuilder::from(rows.plan).cross_join(others.plan)?.build()?;
            rows.scope = rows.scope.beside(others.scope, last.span).map_err(BindError::of_unknown_place)?;
        }
        let schema = rows.plan.schema().clone();
        let context = Context::new(&rows.scope, &schema, None);
        let mut exprs = vec![row];
        for (number, (column, value)) in change.assigned()?.into_iter().enumerate() {
            let found = own.column(&column.name, column.span)?;
            let wanted = found.ok_or(BindError::Unknown("a column of SET that is not there"))?.id;
            let bound = self.expression(value, context.in_clause("UPDATE"))?;
            let (given, span) = (bound.id, bound.span);
            if given != wanted && cast(given, wanted, CastContext::Assignment).is_none() {
                let message =
                    format!("column \"{}\" is of type {wanted} but expression is of type {given}", column.name);
                let error = BindError::new("42804", message, span);
                return Err(error.hinted("You will need to rewrite or cast the expression."));
            }
            // Others become values of the column where they are written, with its length and digits.
            let bound = match given {
                TypeId::UNKNOWN => bound.into_type(wanted, CastContext::Assignment, &schema)?,
                _ => bound,
            };
            exprs.push(bound.expr.alias(format!("#value{number}")));
        }
        let filter = match change.filter {
            Some(Condition::Expr(filter)) => Some(self.condition("WHERE", filter, context.in_clause("WHERE"))?),
            Some(Condition::CurrentOf(_)) => return Err(BindError::Unknown("CURRENT OF")),
            None => None,
        };
        let mut plan = LogicalPlanBuilder::from(rows.plan);
        if let Some(filter) = filter {
            plan = plan.filter(filter)?;
        }
        Ok(plan.project(exprs)?.build()?)
    }
}
