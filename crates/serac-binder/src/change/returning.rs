//! RETURNING: a result over the rows that were changed.

use super::to_come;
use crate::binder::Binder;
use crate::blanks::given_blanks;
use crate::error::{BindError, NO_PLACE, Result};
use crate::plan_parts::{has_part, of_expr};
use crate::scope::{Context, Scope};
use crate::select::{selected_items, unique_projection};
use crate::statement::BoundReturning;
use crate::target::Target;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableSource};
use serac_parser::tree::SelectItem;
use std::sync::Arc;

impl Binder<'_> {
    /// RETURNING over the rows of `scope`, and the columns of other tables that it names. The first
    /// columns of `scope` are the target's, those of `own`. `None` for no items.
    pub(super) fn returning(
        &self,
        items: &[SelectItem],
        target: &Target,
        own: &Scope,
        scope: &Scope,
        schema: &DFSchema,
    ) -> Result<(Option<BoundReturning>, Vec<Column>)> {
        if items.is_empty() {
            return Ok((None, Vec::new()));
        }
        let context = Context { passes_any: true, ..Context::new(scope, schema, None).in_clause("RETURNING") };
        let mut items = self.items(items, context)?;
        for item in &mut items {
            item.is_text_if_unknown()?;
        }
        let own: Vec<Column> = own.columns.iter().map(|column| column_of(&column.expr)).collect::<Result<_>>()?;
        let others = named_beside(items.iter().map(|item| &item.bound.expr), &own, schema)?;
        let mut fields = target.fields();
        for (number, column) in others.iter().enumerate() {
            let data_type = schema.field_from_column(column)?.data_type().clone();
            fields.push(Field::new(format!("#other{number}"), data_type, true));
        }
        // A plan with subqueries may give rows in another order than they have come in.
        let are_numbered = items.iter().any(|item| has_part(&item.bound.expr, |part| of_expr(part).is_some()));
        if are_numbered {
            fields.push(Field::new(self.qualifier("#row"), DataType::Int64, false));
        }
        let rows = to_come(self.environment, fields, target);
        let columns: Vec<Column> = own.into_iter().chain(others.iter().cloned()).collect();
        let plan = self.over_rows(("#changed", &rows), &columns, are_numbered, unique_projection(&items)?)?;
        Ok((Some(BoundReturning { rows, are_numbered, plan, columns: selected_items(items) }), others))
    }

    /// A projection over rows to come that have these columns, and their numbers behind them if
    /// they `are_numbered`: it is in their order then.
    pub(super) fn over_rows(
        &self,
        (name, rows): (&str, &Arc<dyn TableSource>),
        columns: &[Column],
        are_numbered: bool,
        mut projection: Vec<Expr>,
    ) -> Result<LogicalPlan> {
        let name = TableReference::bare(self.qualifier(name));
        let plan = LogicalPlanBuilder::scan(name, rows.clone(), None)?;
        let given = plan.schema().columns().into_iter().map(Expr::Column);
        // The rows have the names under which the expressions know them.
        let renamed = given.zip(columns);
        let renamed = renamed.map(|(given, column)| given.alias_qualified(column.relation.clone(), &column.name));
        let mut renamed: Vec<Expr> = renamed.collect();
        if !are_numbered {
            return Ok(plan.project(renamed)?.project(projection)?.build()?);
        }
        let number = Column::new_unqualified(self.qualifier("#row"));
        let own = Column::from(plan.schema().qualified_field(columns.len()));
        renamed.push(Expr::Column(own).alias(&number.name));
        projection.push(Expr::Column(number.clone()));
        let plan = plan.project(renamed)?.project(projection)?.sort([Expr::Column(number).sort(true, false)])?;
        let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        columns.pop();
        Ok(plan.project(columns)?.build()?)
    }
}

/// The column that an expression of a scope is.
pub(super) fn column_of(expr: &Expr) -> Result<Column> {
    match given_blanks(expr).unwrap_or(expr) {
        Expr::Column(column) => Ok(column.clone()),
        _ => Err(BindError::unsupported("a column that is computed", NO_PLACE)),
    }
}

/// The columns of `schema` that expressions name, also in their subqueries, but for those of `own`.
pub(super) fn named_beside<'e>(
    exprs: impl Iterator<Item = &'e Expr>,
    own: &[Column],
    schema: &DFSchema,
) -> Result<Vec<Column>> {
    let mut found: Vec<Column> = Vec::new();
    let mut add = |column: &Column| {
        if !own.contains(column) && !found.contains(column) && schema.has_column(column) {
            found.push(column.clone());
        }
    };
    for expr in exprs {
        expr.apply(|part| {
            if let Expr::Column(column) = part {
                add(column);
            }
            for reference in of_expr(part).iter().flat_map(|subquery| &subquery.outer_ref_columns) {
                if let Expr::OuterReferenceColumn(_, column) = reference {
                    add(column);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(found)
}
