//! The access of a point statement to its rows: a range of keys of an ordered index, made of the
//! values that the filter fixes. If the filter allows a list of values for one column, one such
//! range for each of them.

use super::compiler::Compiler;
use super::expression::{Constants, RowExpr, Typed, bounds_of, compare, number, of_number, scale_of};
use crate::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, SortExpr};
use serac_engine::{Catalog, IndexAccess, KeyRange, Table, TableIndex, Transaction};
use serac_storage::{ColumnType, RowBuffer, RowId, Value};
use smallvec::SmallVec;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Rows that a point statement looks at: a statement that needs more is a query.
const MOST_ROWS: usize = 4_096;

/// A value with which a key column is compared.
#[derive(Debug)]
struct KeyValue {
    expr: RowExpr,
    source: ColumnType,
    target: ColumnType,
}

/// The position of a value among the values of a column's type.
enum Place<'a> {
    Null,
    At(Value<'a>),
    /// Between this value and the next.
    Behind(Value<'static>),
    Below,
    Above,
}

fn place<'a>(value: Value<'a>, source: ColumnType, target: ColumnType) -> Place<'a> {
    if value.is_null() {
        return Place::Null;
    }
    if source == target {
        return Place::At(value);
    }
    let (Some(from), Some(to), Some(number)) = (scale_of(source), scale_of(target), number(value)) else {
        return Place::At(value);
    };
    let factor = 10i128.pow(u32::from(from.abs_diff(to)));
    let (whole, rest) = if from >= to {
        (number.div_euclid(factor), number.rem_euclid(factor))
    } else {
        (number.saturating_mul(factor), 0)
    };
    match of_number(whole, target) {
        Some(value) if rest == 0 => Place::At(value),
        Some(value) => Place::Behind(value),
        None if number < 0 => Place::Below,
        None => Place::Above,
    }
}

/// The least and the greatest value of an exact numeric type; only these types are compared with
/// values beyond them.
fn least(target: ColumnType) -> Value<'static> {
    bounds_of(target).and_then(|(least, _)| of_number(least, target)).expect("an exact numeric type")
}
fn greatest(target: ColumnType) -> Value<'static> {
    bounds_of(target).and_then(|(_, greatest)| of_number(greatest, target)).expect("an exact numeric type")
}

/// A conjunct that compares a column with a constant.
struct Compared {
    column: usize,
    operator: Operator,
    value: KeyValue,
    /// The conjunct that it is part of.
    conjunct: usize,
}

/// A conjunct that says which constants a column may be equal to.
struct Listed {
    column: usize,
    values: Vec<KeyValue>,
    conjunct: usize,
}

/// A point statement's access to its rows.
#[derive(Debug)]
pub(super) struct Access {
    index: Arc<TableIndex>,
    /// The values of the first key columns, without the listed one.
    equal: Vec<KeyValue>,
    /// A key column among these, and the values that it may have.
    list: Option<(usize, Vec<KeyValue>)>,
    /// Bounds of the next key column, and whether they are included.
    low: Option<(KeyValue, bool)>,
    high: Option<(KeyValue, bool)>,
    reverse: bool,
}

/// A column behind casts that lose nothing, and its position.
fn column_of(compiler: &Compiler<'_>, expr: &Expr) -> Option<(usize, bool)> {
    match expr {
        Expr::Column(column) => {
            let at = compiler.schema.index_of_column(column).ok()?;
            (at < compiler.columns).then_some((at, false))
        }
        Expr::Cast(cast) => {
            let (at, _) = column_of(compiler, &cast.expr)?;
            let from = super::expression::column_type_of(compiler.schema.field(at).data_type())?;
            let to = super::expression::column_type_of(cast.field.data_type())?;
            let digits = |column_type| match column_type {
                ColumnType::Int16 => Some(5),
                ColumnType::Int32 => Some(10),
                ColumnType::Int64 => Some(19),
                ColumnType::Decimal { precision, scale } => Some(i16::from(precision) - i16::from(scale)),
                _ => None,
            };
            // At least as many digits on both sides of the point.
            let wider = scale_of(to)? >= scale_of(from)? && digits(to)? >= digits(from)?;
            wider.then_some((at, true))
        }
        _ => None,
    }
}

/// A constant with which a column is compared, and that column, if keys can be made of it.
fn key_value(compiler: &mut Compiler<'_>, column: &Expr, value: &Expr) -> Option<(usize, KeyValue)> {
    let (at, is_cast) = column_of(compiler, column)?;
    let target = super::expression::column_type_of(compiler.schema.field(at).data_type())?;
    // It uses a constant, so it adds no column.
    let used = compiler.used.clone();
    let Typed { expr, column_type: source } = compiler.compile(value)?;
    if !expr.is_constant() {
        compiler.used = used;
        return None;
    }
    (is_cast || source == target).then_some((at, KeyValue { expr, source, target }))
}

fn bounds(compiler: &mut Compiler<'_>, conjuncts: &[Expr]) -> Vec<Compared> {
    let mut bounds = Vec::new();
    let mut add = |compiler: &mut Compiler<'_>, conjunct: usize, column: &Expr, operator: Operator, value: &Expr| {
        let (column, value) = key_value(compiler, column, value)?;
        bounds.push(Compared { column, operator, value, conjunct });
        Some(())
    };
    for (i, conjunct) in conjuncts.iter().enumerate() {
        match conjunct {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let swapped = match op {
                    Operator::Eq => Operator::Eq,
                    Operator::Lt => Operator::Gt,
                    Operator::LtEq => Operator::GtEq,
                    Operator::Gt => Operator::Lt,
                    Operator::GtEq => Operator::LtEq,
                    _ => continue,
                };
                if add(compiler, i, left, *op, right).is_none() {
                    add(compiler, i, right, swapped, left);
                }
            }
            Expr::Between(between) if !between.negated => {
                add(compiler, i, &between.expr, Operator::GtEq, &between.low);
                add(compiler, i, &between.expr, Operator::LtEq, &between.high);
            }
            _ => {}
        }
    }
    bounds
}

/// The column, and its values, of `c IN (…)`, which is simplified to `c = … OR c = …` if it is
/// short; an equality by itself is a list of one.
fn list(compiler: &mut Compiler<'_>, expr: &Expr) -> Option<(usize, Vec<KeyValue>)> {
    let of_one = |(column, value)| (column, vec![value]);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (column, mut values) = list(compiler, left)?;
            let (other, more) = list(compiler, right)?;
            values.extend(more);
            (other == column).then_some((column, values))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            key_value(compiler, left, right).or_else(|| key_value(compiler, right, left)).map(of_one)
        }
        Expr::InList(in_list) if !in_list.negated => {
            let values = in_list.list.iter().map(|value| key_value(compiler, &in_list.expr, value));
            let (columns, values): (Vec<usize>, Vec<KeyValue>) =
                values.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            Some((*columns.first()?, values))
        }
        _ => None,
    }
}

fn lists(compiler: &mut Compiler<'_>, conjuncts: &[Expr]) -> Vec<Listed> {
    let all = conjuncts.iter().enumerate().filter_map(|(conjunct, expr)| {
        let (column, values) = list(compiler, expr)?;
        (values.len() > 1).then_some(Listed { column, values, conjunct })
    });
    all.collect()
}

/// The order that a query wants, as columns; `None` if it is by expressions.
fn order_columns(compiler: &Compiler<'_>, order: &[SortExpr]) -> Option<Vec<(usize, bool, bool)>> {
    let column = |key: &SortExpr| match column_of(compiler, &key.expr) {
        Some((at, false)) => Some((at, key.asc, key.nulls_first)),
        _ => None,
    };
    order.iter().map(column).collect()
}

/// Whether an index whose first `equal` columns are fixed gives the order: `None` if not, otherwise
/// whether it is read backwards.
fn gives_order(table: &Table, index: &TableIndex, equal: usize, order: &[(usize, bool, bool)]) -> Option<bool> {
    let columns = &index.definition.columns;
    let (mut at, mut reverse) = (equal, None);
    for (column, asc, nulls_first) in order.iter().filter(|(column, ..)| !columns[..equal].contains(column)) {
        if index.definition.unique && equal == columns.len() {
            break;
        }
        let kept = index.definition.order(at);
        let backwards = *asc == kept.descending;
        let nulls_fit = !table.definition.columns[*column].nullable || (*nulls_first != kept.nulls_first) == backwards;
        if columns.get(at) != Some(column) || !nulls_fit || *reverse.get_or_insert(backwards) != backwards {
            return None;
        }
        at += 1;
    }
    Some(reverse.unwrap_or(false))
}

/// The best way to the rows that `conjuncts` leave, the conjuncts that are left to test, and
/// whether the rows come in `order`. `None` if no index helps.
pub(super) fn find(
    compiler: &mut Compiler<'_>,
    table: &Arc<Table>,
    conjuncts: Vec<Expr>,
    order: &[SortExpr],
    limited: bool,
) -> Option<(Access, Vec<Expr>, bool)> {
    let mut all = bounds(compiler, &conjuncts);
    let mut lists = lists(compiler, &conjuncts);
    let order = order_columns(compiler, order);
    // The number of first key columns that are fixed, and the one of them that is fixed by a list,
    // if any.
    let fixed = |columns: &[usize]| {
        let mut list = None;
        let equal = columns.iter().enumerate().take_while(|(at, column)| {
            if all.iter().any(|b| b.column == **column && b.operator == Operator::Eq) {
                return true;
            }
            let listed = list.is_none() && lists.iter().any(|listed| listed.column == **column);
            list = if listed { Some(*at) } else { list };
            listed
        });
        (equal.count(), list)
    };
    // The ranges of a list's values are read in turn, so they have no common order.
    let reverse_for = |index: &TableIndex, equal: usize, list: Option<usize>| {
        let order = order.as_ref().filter(|order| list.is_none() || order.is_empty())?;
        gives_order(table, index, equal, order)
    };
    let (_, index, equal, list) = table
        .indexes
        .iter()
        .filter_map(|index| {
            let columns = &index.definition.columns;
            let (equal, list) = fixed(columns);
            let ranged = columns.get(equal).is_some_and(|next| all.iter().any(|b| b.column == *next));
            let ordered = order.as_ref().is_some_and(|order| !order.is_empty() || limited)
                && reverse_for(index, equal, list).is_some();
            let whole = equal == columns.len() && index.definition.unique;
            if equal == 0 && !ranged && !(ordered && limited) {
                return None;
            }
            Some(((whole, equal, list.is_none(), ranged, ordered), index.clone(), equal, list))
        })
        .max_by_key(|(score, ..)| *score)?;
    let reverse = reverse_for(&index, equal, list);
    let mut take = |column: usize, operators: &[Operator]| {
        let at = all.iter().position(|b| b.column == column && operators.contains(&b.operator))?;
        Some(all.swap_remove(at))
    };
    let mut used: Vec<usize> = Vec::new();
    let mut equal_values = Vec::new();
    let list = list.map(|at| {
        let column = index.definition.columns[at];
        let listed = lists.iter().position(|listed| listed.column == column).expect("just seen");
        let Listed { values, conjunct, .. } = lists.swap_remove(listed);
        used.push(conjunct);
        (at, values)
    });
    let listed = list.as_ref().map(|(at, _)| *at);
    for (_, &column) in index.definition.columns[..equal].iter().enumerate().filter(|(at, _)| Some(*at) != listed) {
        let bound = take(column, &[Operator::Eq]).expect("just seen");
        used.push(bound.conjunct);
        equal_values.push(bound.value);
    }
    let (mut low, mut high) = (None, None);
    if let Some(&next) = index.definition.columns.get(equal) {
        if let Some(bound) = take(next, &[Operator::Gt, Operator::GtEq]) {
            used.push(bound.conjunct);
            low = Some((bound.value, bound.operator == Operator::GtEq));
        }
        if let Some(bound) = take(next, &[Operator::Lt, Operator::LtEq]) {
            used.push(bound.conjunct);
            high = Some((bound.value, bound.operator == Operator::LtEq));
        }
    }
    // Tested again: the values that were not used, or not wholly.
    let mut taken = vec![0; conjuncts.len()];
    used.into_iter().for_each(|conjunct| taken[conjunct] += 1);
    let parts = |conjunct: &Expr| if matches!(conjunct, Expr::Between(_)) { 2 } else { 1 };
    let rest = conjuncts.into_iter().zip(taken);
    let rest = rest.filter(|(conjunct, taken)| *taken < parts(conjunct));
    let rest = rest.map(|(conjunct, _)| conjunct).collect();
    let access = Access { index, equal: equal_values, list, low, high, reverse: reverse.unwrap_or(false) };
    Some((access, rest, reverse.is_some()))
}

impl Access {
    /// Whether the rows come in the order of a column, the next key column; if so they come in
    /// descending order if `reverse`.
    pub(super) fn order_by(&mut self, column: usize, reverse: bool) -> bool {
        let (definition, next) = (&self.index.definition, self.equal.len());
        let is_next = self.list.is_none() && definition.columns.get(next) == Some(&column);
        self.reverse = if is_next { reverse != definition.order(next).descending } else { self.reverse };
        is_next
    }

    /// Its description, for EXPLAIN.
    pub(super) fn shown(&self) -> String {
        let range = if self.low.is_some() || self.high.is_some() { ", range" } else { "" };
        let backwards = if self.reverse { ", backwards" } else { "" };
        let list = self.list.as_ref().map_or_else(String::new, |(_, values)| format!(", one of {}", values.len()));
        format!("index={}, equal={}{list}{range}{backwards}", self.index.definition.name, self.equal.len())
    }

    /// The way to the rows for the engine, which reads `columns` of them.
    pub(super) fn index_access(&self, catalog: &Arc<Catalog>, table: &Arc<Table>, columns: &[usize]) -> IndexAccess {
        IndexAccess::new(catalog, table, &self.index, columns)
    }

    /// Calls `f` with the rows that the transaction sees, in key order. False if there are too many
    /// for a point statement.
    pub(super) fn for_each(
        &self,
        txn: &Transaction,
        access: &IndexAccess,
        constants: Constants<'_>,
        buffer: &mut RowBuffer,
        mut f: impl FnMut(RowId, &RowBuffer) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        let row = constants.row();
        let mut values: SmallVec<[Value<'_>; 4]> = SmallVec::new();
        for part in &self.equal {
            let value = part.expr.evaluate(&row)?;
            if part.source == part.target && !value.is_null() {
                values.push(value);
                continue;
            }
            match place(value, part.source, part.target) {
                Place::At(value) => values.push(value),
                _ => return Ok(true),
            }
        }
        let low = self.low.as_ref().map(|(part, _)| part.expr.evaluate(&row)).transpose()?;
        let high = self.high.as_ref().map(|(part, _)| part.expr.evaluate(&row)).transpose()?;
        let lower = match (&self.low, low) {
            (Some((part, included)), Some(value)) => match place(value, part.source, part.target) {
                Place::Null | Place::Above => return Ok(true),
                // No value is less, and NULL is no value.
                Place::Below => Bound::Included(least(part.target)),
                Place::At(value) if *included => Bound::Included(value),
                Place::At(value) => Bound::Excluded(value),
                Place::Behind(value) => Bound::Excluded(value),
            },
            _ => Bound::Unbounded,
        };
        let upper = match (&self.high, high) {
            (Some((part, included)), Some(value)) => match place(value, part.source, part.target) {
                Place::Null | Place::Below => return Ok(true),
                Place::Above => Bound::Included(greatest(part.target)),
                Place::At(value) if *included => Bound::Included(value),
                Place::At(value) => Bound::Excluded(value),
                Place::Behind(value) => Bound::Included(value),
            },
            _ => Bound::Unbounded,
        };
        // An error or a break ends the reading early.
        let (mut rows, mut end) = (0, None);
        let mut scan = |equal: &[Value<'_>]| -> Result<bool> {
            let range = KeyRange { equal, lower, upper, reverse: self.reverse };
            txn.scan(access, &range, buffer, |row, buffer| {
                rows += 1;
                end = if rows > MOST_ROWS {
                    Some(Ok(false))
                } else {
                    match f(row, buffer) {
                        Ok(ControlFlow::Continue(())) => return Ok(ControlFlow::Continue(())),
                        Ok(ControlFlow::Break(())) => Some(Ok(true)),
                        Err(error) => Some(Err(error)),
                    }
                };
                Ok(ControlFlow::Break(()))
            })?;
            Ok(end.is_some())
        };
        match &self.list {
            None => scan(&values).map(drop)?,
            Some((at, list)) => {
                let mut keys = Vec::with_capacity(list.len());
                for part in list {
                    if let Place::At(value) = place(part.expr.evaluate(&row)?, part.source, part.target) {
                        keys.push(value);
                    }
                }
                keys.sort_unstable_by(|a, b| compare(*a, *b));
                keys.dedup_by(|a, b| compare(*a, *b).is_eq());
                values.insert(*at, Value::Null);
                let whole = keys.iter().map(|key| {
                    let mut whole = values.clone();
                    whole[*at] = *key;
                    whole
                });
                txn.look_ahead(access, whole);
                for key in keys {
                    values[*at] = key;
                    if scan(&values)? {
                        break;
                    }
                }
            }
        }
        end.unwrap_or(Ok(true))
    }
}
