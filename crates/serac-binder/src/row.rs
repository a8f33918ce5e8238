//! Rows in expressions: `(a, b) = (c, d)`, `(a, b) IN ((1, 2), (3, 4))`, `ROW(a, b) IS NULL`, and
//! rows of items of FROM: `t = u`, `t IS NULL`.
//!
//! A row that is a value is a structure of Arrow.

use crate::binder::Binder;
use crate::blanks::read;
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::LEVELS_OF_COPIES;
use crate::operators::{resolved, symbol};
use crate::plan_parts::{binary, joined, repeatable, subquery};
use crate::scope::Context;
use crate::types::{comparable_values, is_registered, type_of_arrow};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, Operator, lit};
use serac_parser::tree::{Expr as Tree, ExprKind, Ident, Operator as Symbol, Query, Span};
use serac_pg::{ModifiedType, TypeId};
use std::collections::HashSet;

/// The function that makes a row. Its arguments for a field are the field's name, the number and
/// the modifier of its type, and its value.
const RECORD_OF: &str = "record_of";
/// The arguments for a field.
const ARGUMENTS: usize = 4;

/// A row as its values.
pub(crate) struct Record {
    values: Vec<Bound>,
    /// True if the row is there, and NULL otherwise; `None` if it always is.
    present: Option<Expr>,
    /// Whether that is not known.
    may_be_missing: bool,
}

/// Pairs of values, each of one type, compared as rows: the first pair that differs decides.
pub(crate) fn compared(pairs: Vec<(Expr, Expr)>, operator: &str) -> Result<Expr> {
    let each = |operator: Operator| -> Vec<Expr> {
        pairs.iter().cloned().map(|(left, right)| binary(left, operator, right)).collect()
    };
    let (strict, last) = match operator {
        "=" => return Ok(joined(each(Operator::Eq), Operator::And)),
        "<>" => return Ok(joined(each(Operator::NotEq), Operator::Or)),
        "<" => (Operator::Lt, Operator::Lt),
        "<=" => (Operator::Lt, Operator::LtEq),
        ">" => (Operator::Gt, Operator::Gt),
        _ => (Operator::Gt, Operator::GtEq),
    };
    for (left, right) in &pairs {
        repeatable(left)?;
        repeatable(right)?;
    }
    if pairs.len() > 20 {
        return Err(BindError::unsupported("a comparison of rows of so many values", NO_PLACE));
    }
    let compared = pairs.into_iter().rev().fold(None, |rest, (left, right)| {
        let Some(rest) = rest else { return Some(binary(left, last, right)) };
        let decides = binary(left.clone(), strict, right.clone());
        let goes_on = binary(binary(left, Operator::Eq, right), Operator::And, rest);
        Some(binary(decides, Operator::Or, goes_on))
    });
    Ok(joined(compared.into_iter().collect(), Operator::And))
}

/// The values of a row; `None` if it is no row.
pub(crate) fn fields(tree: &Tree) -> Option<&[Tree]> {
    match &tree.kind {
        ExprKind::Row { fields, .. } => Some(fields),
        _ => None,
    }
}

/// A row that is written as its values.
impl FromIterator<Bound> for Record {
    fn from_iter<I: IntoIterator<Item = Bound>>(values: I) -> Self {
        Self { values: values.into_iter().collect(), present: None, may_be_missing: false }
    }
}

impl Binder<'_> {
    /// A row of the keys of its values, by which rows are told apart.
    pub(crate) fn key_of_row(&self, row: &Expr, schema: &DFSchema) -> Result<Expr> {
        let unknown = || BindError::unsupported("a comparison of these rows", NO_PLACE);
        match row {
            Expr::Case(case) if case.expr.is_none() && case.else_expr.is_none() => {
                let [(present, row)] = &case.when_then_expr[..] else { return Err(unknown()) };
                let whens = vec![(present.clone(), Box::new(self.key_of_row(row, schema)?))];
                Ok(Expr::Case(Case::new(None, whens, None)))
            }
            Expr::ScalarFunction(call) if call.name() == RECORD_OF => {
                let mut call = call.clone();
                for arguments in call.args.chunks_exact_mut(ARGUMENTS) {
                    let [_, Expr::Literal(ScalarValue::UInt32(Some(id)), _), _, value] = arguments else {
                        return Err(unknown());
                    };
                    // The fields of a row in it are compared below.
                    if TypeId(*id) != TypeId::RECORD {
                        comparable_values(TypeId(*id))?;
                    }
                    *value = match value.get_type(schema)? {
                        DataType::Struct(_) => self.key_of_row(value, schema)?,
                        _ => self.key(value.clone(), schema)?,
                    };
                }
                Ok(Expr::ScalarFunction(call))
            }
            _ => Err(unknown()),
        }
    }

    /// `(a, b) = (c, d)`.
    pub(crate) fn compare_rows(
        &self,
        symbol: &str,
        at: Span,
        left: &[Tree],
        right: &[Tree],
        context: Context<'_>,
    ) -> Result<Bound> {
        let (left, right) = (self.values_of_row(left, context)?, self.values_of_row(right, context)?);
        self.compare_values(symbol, at, left, right, context)
    }

    /// Values of two rows, pair by pair.
    fn compare_values(
        &self,
        symbol: &str,
        at: Span,
        left: Vec<Bound>,
        right: Vec<Bound>,
        context: Context<'_>,
    ) -> Result<Bound> {
        if !is_comparison(symbol) {
            return Err(BindError::unsupported(format!("the operator {symbol} of rows"), NO_PLACE));
        }
        if left.len() != right.len() {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, "unequal number of entries in row expressions", at));
        }
        if left.is_empty() {
            return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot compare rows of zero length", at));
        }
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
            let right =
                fields(item).ok_or_else(|| BindError::unsupported("a row beside a value that is none", NO_PLACE))?;
            all.push(self.compare_rows(symbol, span, left, right, context).map_err(BindError::unplaced)?.expr);
        }
        Ok(Bound::new(joined(all, join), TypeId::BOOL, span))
    }

    /// `(a, b) IS [NOT] DISTINCT FROM (c, d)`.
    pub(crate) fn row_is_distinct(
        &self,
        left: Record,
        right: Record,
        negated: bool,
        at: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        if left.values.len() != right.values.len() {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, "unequal number of entries in row expressions", at));
        }
        let (left_present, right_present) = (self.present(&left)?, self.present(&right)?);
        let same = self.same_values(left.values, right.values, at, context)?;
        let is_there = |present: Expr| Expr::IsTrue(Box::new(present));
        let same = match (left_present, right_present) {
            (None, None) => same,
            (Some(one), None) | (None, Some(one)) => binary(is_there(one), Operator::And, same),
            (Some(one), Some(other)) => {
                let (one, other) = (is_there(one), is_there(other));
                let both = binary(one.clone(), Operator::Eq, other);
                let either = binary(Expr::Not(Box::new(one)), Operator::Or, same);
                binary(both, Operator::And, either)
            }
        };
        let expr = if negated { same } else { Expr::Not(Box::new(same)) };
        Ok(Bound::new(expr, TypeId::BOOL, at))
    }

    /// Whether no value of one row is distinct from that of the other.
    fn same_values(&self, left: Vec<Bound>, right: Vec<Bound>, at: Span, context: Context<'_>) -> Result<Expr> {
        let mut all = Vec::new();
        for (one, other) in left.into_iter().zip(right) {
            let signature = resolved("=", at, &[one.id, other.id])?;
            let [one, other] = self.alike(vec![one, other], &signature, context.schema)?;
            all.push(binary(one, Operator::IsNotDistinctFrom, other));
        }
        Ok(joined(all, Operator::And))
    }

    /// `ROW(a, b) IS [NOT] NULL`: whether all of its values are NULL, or all are not.
    pub(crate) fn row_is_null(row: Record, negated: bool, at: Span) -> Result<Bound> {
        let mut all = Vec::new();
        for value in row.values {
            if value.id == TypeId::RECORD {
                return Err(BindError::unsupported("whether a row in a row is NULL", NO_PLACE));
            }
            let value = Box::new(value.expr);
            all.push(if negated { Expr::IsNotNull(value) } else { Expr::IsNull(value) });
        }
        Ok(Bound::new(joined(all, Operator::And), TypeId::BOOL, at))
    }

    /// The row that a tree is, as its values: one that is written, or one of an item of FROM.
    /// `None` for another expression.
    pub(crate) fn record(&self, tree: &Tree, context: Context<'_>) -> Result<Option<Record>> {
        if let Some(fields) = fields(tree) {
            return Ok(Some(self.values_of_row(fields, context)?.into_iter().collect()));
        }
        let Some(row) = self.columns_of_row(tree, context)? else { return Ok(None) };
        let values = row.columns.into_iter().map(|(_, value)| value).collect();
        Ok(Some(Record { values, present: row.present, may_be_missing: row.may_be_missing }))
    }

    /// The values of a row that is written. `t.*` stands for all columns of `t`.
    fn values_of_row(&self, fields: &[Tree], context: Context<'_>) -> Result<Vec<Bound>> {
        let mut values = Vec::new();
        for field in fields {
            match &field.kind {
                ExprKind::Wildcard(_) => match self.columns_of_row(field, context)? {
                    Some(row) => values.extend(row.columns.into_iter().map(|(_, value)| value)),
                    None => return Err(BindError::unsupported("this part of a row", NO_PLACE)),
                },
                _ => values.push(self.expression(field, context)?),
            }
        }
        Ok(values)
    }

    /// As [`Record::present`].
    fn present(&self, row: &Record) -> Result<Option<Expr>> {
        if row.may_be_missing && row.present.is_none() {
            self.lacks_marks.set(true);
            return Err(BindError::unsupported("a whole row of a side of an outer join", NO_PLACE));
        }
        Ok(row.present.clone().filter(|_| row.may_be_missing))
    }

    /// An operator's application whose operands are rows; `None` if they are not.
    pub(crate) fn rows_operated(
        &self,
        left: &Tree,
        operator: &Symbol,
        right: &Tree,
        context: Context<'_>,
    ) -> Result<Option<Bound>> {
        let name = symbol(operator)?;
        match (fields(left), fields(right), &right.kind) {
            (Some(left), Some(right), _) => {
                let compare = || self.compare_rows(name, operator.span, left, right, context);
                return self.deeper(LEVELS_OF_COPIES, compare).map(Some);
            }
            (Some(left), None, ExprKind::Subquery(query)) if is_comparison(name) => {
                let compare = || self.compare_with_row_of(left, name, operator.span, query, context);
                // The query stands in the plan once for each value.
                return self.deeper(2 * LEVELS_OF_COPIES, compare).map(Some);
            }
            _ => {}
        }
        let is_row =
            |tree: &Tree| Ok::<_, BindError>(fields(tree).is_some() || self.columns_of_row(tree, context)?.is_some());
        if !is_comparison(name) || !is_row(left)? || !is_row(right)? {
            return Ok(None);
        }
        self.deeper(LEVELS_OF_COPIES, || {
            let Some((left, right)) = self.record(left, context)?.zip(self.record(right, context)?) else {
                return Ok(None);
            };
            self.compare_records(name, left, right, context).map(Some)
        })
    }

    /// `(a, b) = (SELECT …)`, whose query has at most one row.
    fn compare_with_row_of(
        &self,
        left: &[Tree],
        symbol: &str,
        at: Span,
        query: &Query,
        context: Context<'_>,
    ) -> Result<Bound> {
        let left = self.values_of_row(left, context)?;
        let selected = self.inner(query, context)?;
        let wrong = match left.len().cmp(&selected.columns.len()) {
            std::cmp::Ordering::Less => Some("subquery has too many columns"),
            std::cmp::Ordering::Greater => Some("subquery has too few columns"),
            std::cmp::Ordering::Equal => None,
        };
        if let Some(wrong) = wrong {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, wrong, at));
        }
        if left.len() > 20 {
            return Err(BindError::unsupported("a comparison of rows of so many values", NO_PLACE));
        }
        if crate::plan_parts::is_volatile(&selected.plan)? {
            return Err(BindError::unsupported("a row beside a volatile query", NO_PLACE));
        }
        let mut right = Vec::new();
        for (field, column) in selected.plan.schema().iter().zip(&selected.columns) {
            let value = Expr::Column(Column::from(field));
            let plan = LogicalPlanBuilder::from(selected.plan.clone()).project(vec![value])?.build()?;
            let value = read(Expr::ScalarSubquery(subquery(plan)), column.modified_type());
            right.push(Bound::new(value, column.id, column.span));
        }
        self.compare_values(symbol, at, left, right, context)
    }

    /// Rows that are not both lists of values: NULL is equal to NULL, and larger than every other
    /// value.
    fn compare_records(&self, symbol: &str, left: Record, right: Record, context: Context<'_>) -> Result<Bound> {
        let start = left.values.first().map_or(NO_PLACE, |first| first.span);
        if left.values.len() != right.values.len() {
            let message = "cannot compare record types with different numbers of columns";
            return Err(BindError::without_place(sqlstate::DATATYPE_MISMATCH, message));
        }
        let different = left.values.iter().zip(&right.values).position(|(one, other)| one.id != other.id);
        if let Some(at) = different {
            let (one, other) = (left.values[at].id, right.values[at].id);
            let message =
                format!("cannot compare dissimilar column types {one} and {other} at record column {}", at + 1);
            return Err(BindError::without_place(sqlstate::DATATYPE_MISMATCH, message));
        }
        let present: Vec<Expr> = [self.present(&left)?, self.present(&right)?].into_iter().flatten().collect();
        let expr = match symbol {
            "=" => self.same_values(left.values, right.values, NO_PLACE, context)?,
            "<>" => Expr::Not(Box::new(self.same_values(left.values, right.values, NO_PLACE, context)?)),
            "<" | "<=" => self.ordered_values(left.values, right.values, symbol == "<=", context)?,
            _ => self.ordered_values(right.values, left.values, symbol == ">=", context)?,
        };
        let expr = match present.is_empty() {
            true => expr,
            false => {
                let present = Box::new(joined(present, Operator::And));
                Expr::Case(Case::new(None, vec![(present, Box::new(expr))], None))
            }
        };
        Ok(Bound::new(expr, TypeId::BOOL, start))
    }

    /// Whether values come before others, or are the same if that is enough.
    fn ordered_values(&self, left: Vec<Bound>, right: Vec<Bound>, or_same: bool, context: Context<'_>) -> Result<Expr> {
        if left.len() > 20 {
            return Err(BindError::unsupported("a comparison of rows of so many values", NO_PLACE));
        }
        let mut pairs = Vec::new();
        for (one, other) in left.into_iter().zip(right) {
            repeatable(&one.expr)?;
            repeatable(&other.expr)?;
            let signature = resolved("<", NO_PLACE, &[one.id, other.id])?;
            pairs.push(self.alike(vec![one, other], &signature, context.schema)?);
        }
        Ok(pairs.into_iter().rev().fold(lit(or_same), |rest, [one, other]| {
            let less = Expr::IsTrue(Box::new(binary(one.clone(), Operator::Lt, other.clone())));
            let (is_value, is_null) = (Expr::IsNotNull(Box::new(one.clone())), Expr::IsNull(Box::new(other.clone())));
            let before = binary(less, Operator::Or, binary(is_value, Operator::And, is_null));
            let goes_on = binary(binary(one, Operator::IsNotDistinctFrom, other), Operator::And, rest);
            binary(before, Operator::Or, goes_on)
        }))
    }

    /// `ROW(a, b)` as a value.
    pub(crate) fn row_value(&self, fields: &[Tree], span: Span, context: Context<'_>) -> Result<Bound> {
        let values = self.values_of_row(fields, context)?;
        let columns = (1..).zip(values).map(|(number, value)| (format!("f{number}"), value));
        self.row(columns.collect(), span, context.schema)
    }

    /// Values under names as one value.
    pub(crate) fn row(&self, columns: Vec<(String, Bound)>, span: Span, schema: &DFSchema) -> Result<Bound> {
        let mut names = HashSet::new();
        if !columns.iter().all(|(name, _)| names.insert(name)) {
            return Err(BindError::unsupported("a row with two columns of one name", NO_PLACE));
        }
        let mut arguments = Vec::new();
        for (name, value) in &columns {
            let value = value.clone();
            // A constant of no type keeps that: it is a text that is not told as one.
            let (of, value) = match (value.id, &value.parameter) {
                (TypeId::UNKNOWN, Some(parameter)) => return Err(parameter.undetermined(value.span)),
                (TypeId::UNKNOWN, None) => (TypeId::UNKNOWN.into(), value.into_text()?),
                (id, _) if is_registered(id) => (TypeId::TEXT.into(), self.cast(value, TypeId::TEXT, schema)?),
                _ => (value.modified_type(), value),
            };
            if value.id != TypeId::RECORD {
                value.exact()?;
            }
            arguments.extend([lit(name.clone()), lit(of.id.0), lit(of.modifier), value.expr]);
        }
        Ok(Bound::new(self.known_scalar(RECORD_OF)?.call(arguments), TypeId::RECORD, span))
    }

    /// A row as PostgreSQL shows it: `(1,a,)`.
    pub(crate) fn row_text(&self, row: Bound) -> Result<Bound> {
        let function = self.environment.scalar("record_out");
        let function = function.ok_or_else(|| BindError::unsupported("a row as a text", NO_PLACE))?;
        Ok(Bound::new(function.call(vec![row.expr]), TypeId::TEXT, row.span))
    }

    /// The fields of a row that is a value, by their names.
    pub(crate) fn fields_of_row(&self, row: &Bound, schema: &DFSchema) -> Result<Vec<(String, Bound)>> {
        let given = row.expr.get_type(schema)?;
        let (TypeId::RECORD, DataType::Struct(fields)) = (row.id, &given) else {
            let message = format!("type {} is not composite", row.id);
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, row.span));
        };
        let function = self.environment.scalar("get_field");
        let function = function.ok_or_else(|| BindError::unsupported("a field of a row", NO_PLACE))?;
        let field = |field: &datafusion::arrow::datatypes::FieldRef| {
            let unknown = || BindError::unsupported("a field of a row of this type", NO_PLACE);
            let value = function.call(vec![row.expr.clone(), lit(field.name().clone())]);
            let of = match (field.data_type(), self.environment.type_of_field(field)) {
                (DataType::Struct(_), _) => TypeId::RECORD.into(),
                (_, Some(ModifiedType { id: TypeId::UNKNOWN, .. })) => TypeId::TEXT.into(),
                (_, Some(of)) => of,
                (other, None) => type_of_arrow(other).ok_or_else(unknown)?.into(),
            };
            Ok::<_, BindError>((field.name().clone(), Bound::of_type(value, of, row.span)))
        };
        fields.iter().map(field).collect()
    }

    /// `(r).a`.
    pub(crate) fn field_of_row(&self, row: &Bound, name: &Ident, context: Context<'_>) -> Result<Bound> {
        if row.id != TypeId::RECORD {
            let message =
                format!("column notation .{} applied to type {}, which is not a composite type", name.name, row.id);
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, row.span));
        }
        let found = self.fields_of_row(row, context.schema)?.into_iter().find(|(own, _)| *own == name.name);
        found.map(|(_, value)| value).ok_or_else(|| {
            let message = format!("could not identify column \"{}\" in record data type", name.name);
            BindError::new(sqlstate::UNDEFINED_COLUMN, message, row.span)
        })
    }
}

fn is_comparison(symbol: &str) -> bool {
    matches!(symbol, "=" | "<>" | "<" | "<=" | ">" | ">=")
}

/// A cheaper expression that is NULL where a row is NULL.
pub(crate) fn presence_of(row: &Expr) -> Expr {
    match row {
        Expr::Case(case) if case.else_expr.is_none() && case.when_then_expr.iter().all(|(_, row)| is_made(row)) => {
            let whens = case.when_then_expr.iter().map(|(when, _)| (when.clone(), Box::new(lit(true))));
            Expr::Case(Case::new(case.expr.clone(), whens.collect(), None))
        }
        row if is_made(row) => lit(true),
        other => other.clone(),
    }
}

/// Whether a row is made of its values, so that it is never NULL.
fn is_made(row: &Expr) -> bool {
    matches!(row, Expr::ScalarFunction(call) if call.name() == RECORD_OF)
}
