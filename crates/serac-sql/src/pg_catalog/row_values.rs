//! Comparisons of rows, `(a, b) > (x, y)`, as comparisons of their columns (PostgreSQL 15, section 9.24.5).
//!
//! | written | becomes |
//! |---|---|
//! | `(a, b) = (x, y)` | `a = x AND b = y` |
//! | `(a, b) <> (x, y)` | `a <> x OR b <> y` |
//! | `(a, b) > (x, y)` | `a >= x AND (a > x OR b > y)`, whose first condition is a range of an index |
//! | `(a, b) IN ((1, 2), (3, 4))` | an OR of equalities |
//! | `(a, b) IS NULL`, `(a, b) IS NOT NULL` | `a IS NULL AND b IS NULL`, `a IS NOT NULL AND b IS NOT NULL` |
//! | `(a, b) IN (SELECT …)` | `EXISTS` with the equality in it; where NULL and false are not the same, a CASE that tells them apart |
//!
//! A row is written `(a, b)` or `ROW(a, b)`. All forms give NULL where PostgreSQL's do: `a >= x AND (a > x OR b > y)` is NULL if `a` is, and decided by `a`
//! alone where that differs from `x`.

use crate::identifiers::fold;
use crate::query::query_of;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, CaseWhen, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Insert,
    JoinConstraint, JoinOperator, OnConflict, OnConflictAction, OnInsert, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, UnaryOperator, Value,
};

/// The relation that a subquery's rows are in, and the start of its columns' names: names that nobody has.
const ROWS: &str = "serac_rows";

/// The fields of a row that is written out: more than one, in parentheses.
fn fields(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(fields) => Some(fields),
        Expr::Nested(inner) => fields(inner),
        _ => None,
    }
}

/// `ROW(a, b)` as `(a, b)`.
fn row_call(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else { return None };
    let [name] = &function.name.0[..] else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let name = name.as_ident().filter(|name| name.quote_style.is_none())?;
    if fold(name) != "row" || list.args.is_empty() || function.over.is_some() {
        return None;
    }
    let field = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(field).collect::<Option<Vec<_>>>().map(Expr::Tuple)
}

/// A row, however it is written.
fn row(expr: &Expr) -> Option<Vec<Expr>> {
    match row_call(expr) {
        Some(Expr::Tuple(fields)) => Some(fields),
        _ => fields(expr).map(<[Expr]>::to_vec),
    }
}

/// `SET (a, b) = (SELECT x, y …)` and `= ROW(x, y)` as a row that is written out: each column has a subquery of its own.
pub(crate) fn write_out_assignments(statement: &mut Statement) {
    let assignments = match statement {
        Statement::Update(update) => &mut update.assignments,
        Statement::Insert(Insert {
            on: Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })),
            ..
        }) => &mut update.assignments,
        _ => return,
    };
    for assignment in assignments {
        let AssignmentTarget::Tuple(columns) = &assignment.target else { continue };
        let row = match &assignment.value {
            Expr::Subquery(query) => columns_of(query).filter(|row| row.len() == columns.len()).map(Expr::Tuple),
            value => row_call(value),
        };
        if let Some(row) = row {
            assignment.value = row;
        }
    }
}

/// A subquery for each column of one whose columns are written out.
fn columns_of(query: &Query) -> Option<Vec<Expr>> {
    let SetExpr::Select(select) = &*query.body else { return None };
    // A position means another column where there is only one.
    let by_position = query.order_by.iter().any(|order| match &order.kind {
        OrderByKind::Expressions(keys) => keys.iter().any(|key| matches!(key.expr, Expr::Value(_))),
        OrderByKind::All(_) => true,
    });
    let is_expression =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if select.distinct.is_some() || by_position || !select.projection.iter().all(is_expression) {
        return None;
    }
    let column = |item: &SelectItem| {
        let mut query = query.clone();
        if let SetExpr::Select(select) = &mut *query.body {
            select.projection = vec![item.clone()];
        }
        Expr::Subquery(Box::new(query))
    };
    Some(select.projection.iter().map(column).collect())
}

fn nested(expr: Expr) -> Expr {
    match expr {
        simple @ (Expr::Nested(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) => simple,
        other => Expr::Nested(Box::new(other)),
    }
}
fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(nested(left)), op, right: Box::new(nested(right)) }
}
fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(expr)) }
}

/// All terms joined by `op`, as a tree that is as flat as it can be.
fn joined(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    match terms.len() {
        0 | 1 => terms.pop().unwrap_or_else(|| Expr::value(Value::Boolean(*op == BinaryOperator::And))),
        n => {
            let right = terms.split_off(n / 2);
            binary(joined(terms, op), op.clone(), joined(right, op))
        }
    }
}

/// Rows of the same width, field by field. None if `op` does not compare.
fn comparison(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let each = |op: &BinaryOperator, by: &BinaryOperator| {
        let pairs = left.iter().zip(right);
        joined(pairs.map(|(l, r)| binary(l.clone(), op.clone(), r.clone())).collect(), by)
    };
    let (strict, weak) = match op {
        Eq => return Some(each(&Eq, &And)),
        NotEq => return Some(each(&NotEq, &Or)),
        Lt | LtEq => (Lt, LtEq),
        Gt | GtEq => (Gt, GtEq),
        _ => return None,
    };
    let mut fields = left.iter().zip(right).rev();
    let (l, r) = fields.next()?;
    let last = binary(l.clone(), op.clone(), r.clone());
    Some(fields.fold(last, |rest, (l, r)| {
        let decided = binary(l.clone(), strict.clone(), r.clone());
        binary(binary(l.clone(), weak.clone(), r.clone()), And, binary(decided, Or, rest))
    }))
}

/// An OR of equalities with the rows of a list.
fn in_list(left: &[Expr], list: &[Expr], negated: bool) -> Option<Expr> {
    let equal = |item: &Expr| {
        let item = row(item).filter(|item| item.len() == left.len())?;
        comparison(left, &BinaryOperator::Eq, &item)
    };
    let any = nested(joined(list.iter().map(equal).collect::<Option<Vec<_>>>()?, &BinaryOperator::Or));
    Some(if negated { not(any) } else { any })
}

/// EXISTS over the rows of `subquery` for which `condition` of their equality with `left` holds.
fn exists(left: &[Expr], subquery: &Query, condition: impl FnOnce(Expr) -> Expr) -> Option<Expr> {
    let column = |i: usize| Ident::with_quote('"', format!("{ROWS}_{i}"));
    let rows = || Ident::with_quote('"', ROWS);
    let names: Vec<Expr> = (0..left.len()).map(|i| Expr::CompoundIdentifier(vec![rows(), column(i)])).collect();
    let equal = comparison(left, &BinaryOperator::Eq, &names)?;
    let mut query = query_of("SELECT 1 FROM x WHERE y").ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let columns = (0..left.len()).map(|i| TableAliasColumnDef { name: column(i), data_type: None }).collect();
    select.from = vec![TableWithJoins {
        relation: TableFactor::Derived {
            lateral: false,
            subquery: Box::new(subquery.clone()),
            alias: Some(TableAlias { explicit: true, name: rows(), columns, at: None }),
            sample: None,
        },
        joins: Vec::new(),
    }];
    select.selection = Some(condition(equal));
    Some(Expr::Exists { subquery: Box::new(query), negated: false })
}

/// A row's place among a subquery's rows, with NULL where that is not known.
fn in_subquery(left: &[Expr], subquery: &Query, negated: bool) -> Option<Expr> {
    if !has_width(&subquery.body, left.len()) {
        return None;
    }
    let when = |condition, result: Value| CaseWhen { condition, result: Expr::value(result) };
    let found = exists(left, subquery, |equal| equal)?;
    let unknown = exists(left, subquery, |equal| Expr::IsNull(Box::new(nested(equal))))?;
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when(found, Value::Boolean(!negated)), when(unknown, Value::Null)],
        else_result: Some(Box::new(Expr::value(Value::Boolean(negated)))),
    })
}

/// Whether a query gives so many columns, as far as the text tells.
fn has_width(body: &SetExpr, width: usize) -> bool {
    match body {
        SetExpr::Select(select) => {
            let wildcard = |i: &SelectItem| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
            select.projection.iter().any(wildcard) || select.projection.len() == width
        }
        SetExpr::Query(query) => has_width(&query.body, width),
        SetExpr::SetOperation { left, .. } => has_width(left, width),
        SetExpr::Values(values) => values.rows.first().is_some_and(|row| row.len() == width),
        _ => true,
    }
}

/// Whether a field is NULL, or is not: a row is none.
fn null_test(field: Expr, of_null: bool) -> Expr {
    match (row(&field), of_null) {
        (Some(_), _) => Expr::value(Value::Boolean(!of_null)),
        (None, true) => Expr::IsNull(Box::new(nested(field))),
        (None, false) => Expr::IsNotNull(Box::new(nested(field))),
    }
}

/// What stands in the place of an expression that compares rows.
pub(super) fn replacement(test: &Expr) -> Option<Expr> {
    match test {
        Expr::BinaryOp { left, op, right } => {
            let (left, right) = (row(left)?, row(right)?);
            (left.len() == right.len()).then(|| comparison(&left, op, &right).map(nested))?
        }
        Expr::IsDistinctFrom(left, right) => {
            let (left, right) = (row(left)?, row(right)?);
            let distinct = |(l, r)| Expr::IsDistinctFrom(Box::new(nested(l)), Box::new(nested(r)));
            (left.len() == right.len())
                .then(|| nested(joined(left.into_iter().zip(right).map(distinct).collect(), &BinaryOperator::Or)))
        }
        Expr::IsNotDistinctFrom(left, right) => {
            let (left, right) = (row(left)?, row(right)?);
            let same = |(l, r)| Expr::IsNotDistinctFrom(Box::new(nested(l)), Box::new(nested(r)));
            (left.len() == right.len())
                .then(|| nested(joined(left.into_iter().zip(right).map(same).collect(), &BinaryOperator::And)))
        }
        Expr::Between { expr, negated, low, high } => {
            let (row, low, high) = (row(expr)?, row(low)?, row(high)?);
            if low.len() != row.len() || high.len() != row.len() {
                return None;
            }
            let from = comparison(&row, &BinaryOperator::GtEq, &low)?;
            let within = nested(binary(from, BinaryOperator::And, comparison(&row, &BinaryOperator::LtEq, &high)?));
            Some(if *negated { not(within) } else { within })
        }
        Expr::IsNull(expr) | Expr::IsNotNull(expr) => {
            let of_null = matches!(test, Expr::IsNull(_));
            let tests = row(expr)?.into_iter().map(|field| null_test(field, of_null)).collect();
            Some(nested(joined(tests, &BinaryOperator::And)))
        }
        Expr::InList { expr, list, negated } => in_list(&row(expr)?, list, *negated),
        Expr::InSubquery { expr, subquery, negated } => in_subquery(&row(expr)?, subquery, *negated),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => match &**right {
            Expr::Subquery(subquery) => in_subquery(&row(left)?, subquery, false),
            _ => None,
        },
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => match &**right {
            Expr::Subquery(subquery) => in_subquery(&row(left)?, subquery, true),
            _ => None,
        },
        _ => None,
    }
}

/// Replaces the rows' IN over subqueries in a condition for which NULL is as good as false.
pub(super) fn in_condition(condition: &mut Expr) {
    match condition {
        Expr::Nested(inner) => in_condition(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            in_condition(left);
            in_condition(right);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            let mut inner = &mut **expr;
            while let Expr::Nested(nested) = inner {
                inner = nested;
            }
            if let Expr::InSubquery { expr, subquery, negated } = inner
                && let Some(condition_of_rows) = row(expr).and_then(|row| is_in(&row, subquery, !*negated))
            {
                *condition = condition_of_rows;
            }
        }
        Expr::InSubquery { expr, subquery, negated } => {
            if let Some(condition_of_rows) = row(expr).and_then(|row| is_in(&row, subquery, *negated)) {
                *condition = condition_of_rows;
            }
        }
        _ => {}
    }
}

/// A row's place among a subquery's rows: what is not known is false.
fn is_in(left: &[Expr], subquery: &Query, negated: bool) -> Option<Expr> {
    if !has_width(&subquery.body, left.len()) {
        return None;
    }
    match negated {
        true => Some(not(exists(left, subquery, |equal| Expr::IsNotFalse(Box::new(nested(equal))))?)),
        false => exists(left, subquery, |equal| equal),
    }
}

/// The same in the conditions of a SELECT.
pub(super) fn in_select(select: &mut Select) {
    for from in &mut select.from {
        for join in &mut from.joins {
            use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
            if let Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) =
                &mut join.join_operator
                && let JoinConstraint::On(condition) = on
            {
                in_condition(condition);
            }
        }
    }
    select.selection.iter_mut().chain(&mut select.having).for_each(in_condition);
}
