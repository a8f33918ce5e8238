//! RETURNING: a result over the rows that were changed.

use super::{BoundReturning, Target, to_come};
use crate::Binder;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::scope::Scope;
use crate::select::{selected_items, unique_projection};
use crate::subquery::of_expr;
use datafusion::arrow::datatypes::Field;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use serac_parser::tree::SelectItem;

impl Binder<'_> {
    /// RETURNING over the rows of `scope`, the first columns of which are the target's, those of
    /// `own`; and the columns of other tables that it names. None for no items.
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
        let (schema, rows) = to_come(self.environment, fields, target);
        let name = TableReference::bare(self.qualifier("#changed"));
        let plan = LogicalPlanBuilder::scan(name.clone(), rows.clone(), None)?;
        // The rows have the names under which the items know them.
        let renamed = schema.fields().iter().zip(own.iter().chain(&others)).map(|(field, column)| {
            let given = Expr::Column(Column::new(Some(name.clone()), field.name()));
            given.alias_qualified(column.relation.clone(), &column.name)
        });
        let plan = plan.project(renamed.collect::<Vec<_>>())?.project(unique_projection(&items)?)?.build()?;
        Ok((Some(BoundReturning { rows, plan, columns: selected_items(items) }), others))
    }
}

/// The column that an expression of a scope is.
pub(super) fn column_of(expr: &Expr) -> Result<Column> {
    match expr {
        Expr::Column(column) => Ok(column.clone()),
        _ => Err(BindError::Unknown("a column that is computed")),
    }
}

/// The columns of `schema` that expressions name, also in their subqueries, but for those of `own`.
fn named_beside<'e>(exprs: impl Iterator<Item = &'e Expr>, own: &[Column], schema: &DFSchema) -> Result<Vec<Column>> {
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
