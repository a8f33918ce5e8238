//! Indexes on expressions, and partial ones: the parts of a filter that their hidden columns
//! replace.
//!
//! A part of a filter that is the expression of an index becomes the hidden column that keeps its
//! values, and so finds rows as any other indexed column does. For a partial index, the filter must
//! contain all of its condition; the column that the condition hides is then the hidden one. The
//! filter itself is tested on the rows that are found, so a lookup only has to find enough of them.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::split_conjunction;
use serac_numeric_functions::keys;

/// An expression whose values a hidden column has.
#[derive(Clone, Debug)]
pub struct IndexedExpression {
    /// The expression over columns of bare names.
    pub expression: Expr,
    /// The conditions under which it applies.
    pub conditions: Vec<Expr>,
    /// The column.
    pub hidden: Expr,
}

/// An expression with bare column names.
///
/// # Errors
/// DataFusion's.
pub fn bare(expr: Expr) -> Result<Expr> {
    let bare = expr.transform(|expr| match expr {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(bare.data)
}

/// An expression with columns of numbers in the place of their keys. Indexes on the columns have
/// these keys. `None` if the expression has no such key.
fn with_columns_for_keys(expr: &Expr) -> Option<Expr> {
    let of_key = |expr: Expr| {
        Ok(match keys::number_of_key(&expr) {
            Some(column @ Expr::Column(_)) => Transformed::yes(column.clone()),
            _ => Transformed::no(expr),
        })
    };
    expr.clone().transform_down(of_key).ok().filter(|found| found.transformed).map(|found| found.data)
}

/// The filters as they are, and the filters with columns in the place of their parts: columns of
/// numbers for the numbers' keys, hidden columns for indexed expressions.
pub(super) fn with_columns_of_indexes(expressions: &[IndexedExpression], filters: &[Expr]) -> Vec<Expr> {
    let mut all = filters.to_vec();
    all.extend(filters.iter().filter_map(with_columns_for_keys));
    if expressions.is_empty() {
        return all;
    }
    let conjuncts = filters.iter().flat_map(split_conjunction);
    let Ok(conjuncts) = conjuncts.cloned().map(bare).collect::<Result<Vec<_>>>() else { return all };
    for IndexedExpression { expression, conditions, hidden } in expressions {
        if !conditions.iter().all(|condition| conjuncts.contains(condition)) {
            continue;
        }
        for conjunct in &conjuncts {
            let with_hidden = conjunct.clone().transform_down(|expr| {
                Ok(if expr == *expression { Transformed::yes(hidden.clone()) } else { Transformed::no(expr) })
            });
            all.extend(with_hidden.ok().filter(|found| found.transformed).map(|found| found.data));
        }
    }
    all
}
