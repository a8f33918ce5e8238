//! Rows in expressions: `(a, b) = (c, d)`, `(a, b) IN ((1, 2), (3, 4))`, `ROW(a, b) IS NULL`.

use crate::Binder;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::{Context, NO_PLACE, joined, resolved};
use crate::subquery::{all_of, repeatable};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use serac_parser::tree::{Expr as Tree, ExprKind, Span};
use serac_pg::TypeId;

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Pairs of values, each of one type, compared as rows: the first pair that differs decides.
pub(crate) fn compared(pairs: Vec<(Expr, Expr)>, operator: &str) -> Result<Expr> {
    let each = |operator: Operator| -> Vec<Expr> {
        pairs.iter().cloned().map(|(left, right)| binary(left, operator, right)).collect()
    };
    let (strict, last) = match operator {
        "=" => return all_of(each(Operator::Eq)),
        "<>" => return joined(each(Operator::NotEq), Operator::Or).ok_or(BindError::Unknown("nothing to compare")),
        "<" => (Operator::Lt, Operator::Lt),
        "<=" => (Operator::Lt, Operator::LtEq),
        ">" => (Operator::Gt, Operator::Gt),
        ">=" => (Operator::Gt, Operator::GtEq),
        _ => return Err(BindError::Unknown("this operator of rows")),
    };
    for (left, right) in &pairs {
        repeatable(left)?;
        repeatable(right)?;
    }
    if pairs.len() > 20 {
        return Err(BindError::Unknown("rows of so many values"));
    }
    let mut pairs = pairs.into_iter().rev();
    let Some((left, right)) = pairs.next() else { return Err(BindError::Unknown("nothing to compare")) };
    Ok(pairs.fold(binary(left, last, right), |rest, (left, right)| {
        let decides = binary(left.clone(), strict, right.clone());
        let goes_on = binary(binary(left, Operator::Eq, right), Operator::And, rest);
        binary(decides, Operator::Or, goes_on)
    }))
}

/// The values of a row; none if it is no row.
pub(crate) fn fields(tree: &Tree) -> Option<&[Tree]> {
    match &tree.kind {
        ExprKind::Row { fields, .. } => Some(fields),
        _ => None,
    }
}

impl Binder<'_> {
    /// `(a, b) = (c, d)`.
    pub(crate) fn compare_rows(
        &self,
        symbol: &str,
        at: Span,
        left: &[Tree],
        right: &[Tree],
        context: Context<'_>,
    ) -> Result<Bound> {
        if !matches!(symbol, "=" | "<>" | "<" | "<=" | ">" | ">=") {
            return Err(BindError::Unknown("this operator of rows"));
        }
        if left.len() != right.len() {
            return Err(BindError::new("42601", "unequal number of entries in row expressions", at));
        }
        if left.is_empty() {
            return Err(BindError::new("0A000", "cannot compare rows of zero length", at));
        }
        let left = left.iter().map(|one| self.expression(one, context)).collect::<Result<Vec<_>>>()?;
        let right = right.iter().map(|one| self.expression(one, context)).collect::<Result<Vec<_>>>()?;
        let start = left.first().map_or(at, |first| first.span);
        let mut pairs = Vec::new();
        for (one, other) in left.into_iter().zip(right) {
            let signature = resolved(symbol, at, &[one.id, other.id])?;
            let [one, other] = self.alike(vec![one, other], &signature, context.schema)?;
            pairs.push((one, other));
        }
        Ok(Bound::new(compared(pairs, symbol)?, TypeId::BOOL, start))
    }
    /// `(a, b) IN ((1, 2), …)`.
    pub(crate) fn row_in_list(
        &self,
        left: &[Tree],
        list: &[Tree],
        negated: bool,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let (symbol, join) = if negated { ("<>", Operator::And) } else { ("=", Operator::Or) };
        let mut all = Vec::new();
        for item in list {
            let right = fields(item).ok_or(BindError::Unknown("a row beside something else"))?;
            if left.len() != right.len() {
                return Err(BindError::Unknown("the place of an error"));
            }
            all.push(self.compare_rows(symbol, NO_PLACE, left, right, context)?.expr);
        }
        let expr = joined(all, join).ok_or(BindError::Unknown("an empty list"))?;
        Ok(Bound::new(expr, TypeId::BOOL, span))
    }
    /// `(a, b) IS [NOT] DISTINCT FROM (c, d)`.
    pub(crate) fn row_is_distinct(
        &self,
        left: &[Tree],
        right: &[Tree],
        negated: bool,
        at: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        if left.len() != right.len() {
            return Err(BindError::new("42601", "unequal number of entries in row expressions", at));
        }
        let (operator, join) = match negated {
            true => (Operator::IsNotDistinctFrom, Operator::And),
            false => (Operator::IsDistinctFrom, Operator::Or),
        };
        let mut all = Vec::new();
        for (one, other) in left.iter().zip(right) {
            let (one, other) = (self.expression(one, context)?, self.expression(other, context)?);
            let signature = resolved("=", at, &[one.id, other.id])?;
            let [one, other] = self.alike(vec![one, other], &signature, context.schema)?;
            all.push(binary(one, operator, other));
        }
        let expr = joined(all, join).ok_or(BindError::Unknown("nothing to compare"))?;
        Ok(Bound::new(expr, TypeId::BOOL, at))
    }
    /// `ROW(a, b) IS [NOT] NULL`: whether all of its values are, or none is.
    pub(crate) fn row_is_null(&self, row: &[Tree], negated: bool, at: Span, context: Context<'_>) -> Result<Bound> {
        let mut all = Vec::new();
        for field in row {
            if fields(field).is_some() {
                return Err(BindError::Unknown("a row in a row"));
            }
            let value = Box::new(self.expression(field, context)?.expr);
            all.push(if negated { Expr::IsNotNull(value) } else { Expr::IsNull(value) });
        }
        Ok(Bound::new(all_of(all)?, TypeId::BOOL, at))
    }
}
