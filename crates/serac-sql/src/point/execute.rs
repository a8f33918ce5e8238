//! Running a [`Plan`] in a transaction. All changes are known before the first row is written, as
//! on the other path.

use super::expression::{Constants, Row, RowExpr, compare, number, of_number};
use super::plan::{Action, After, Aggregate, Change, ConflictUpdate, Find, Insert, OnConflict, Plan, Query};
use super::rows::Rows;
use crate::error::{Result, SqlError};
use crate::row_locks::OnHeld;
use serac_engine::values::OwnedValue;
use serac_engine::{ColumnUpdate, Table, Transaction};
use serac_storage::{ColumnId, RowBuffer, RowId, Snapshot, Value};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Memory that statements reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    buffer: RowBuffer,
    ids: Vec<RowId>,
    values: Rows,
}

impl Plan {
    /// Runs the statement up to its end, without the work that waits for the end of statements;
    /// `rows` are its result. Returns the number of rows that it changed. `None` if it has done
    /// nothing, because it would look at too many rows.
    pub(super) fn run(
        &self,
        txn: &mut Transaction,
        constants: Constants<'_>,
        scratch: &mut Scratch,
        rows: &mut Rows,
    ) -> Result<Option<u64>> {
        rows.clear(self.types.len());
        match &self.action {
            Action::Row(outputs) => {
                let none = constants.row();
                for output in outputs {
                    rows.push(output.evaluate(&none)?);
                }
                rows.end_row();
                Ok(Some(1))
            }
            Action::Select { table, query, lock } => {
                let skip_held = *lock == Some(OnHeld::Skip);
                loop {
                    rows.clear(self.types.len());
                    if !query.run(txn, constants, scratch, rows, skip_held.then_some(&**table))? {
                        return Ok(None);
                    }
                    let Some(lock) = lock else { break };
                    let mut claimed = true;
                    for &row in &scratch.ids {
                        claimed &= lock.claim(txn, table, row)?;
                    }
                    if claimed {
                        break;
                    }
                    // Another transaction was first. The query looks for others; its own claims are
                    // no hindrance.
                }
                Ok(Some(rows.len() as u64))
            }
            Action::Insert { table, insert } => insert.run(table, txn, constants, scratch, rows).map(Some),
            Action::Update { table, find, change, after, update } => {
                if !find.collect(txn, constants, scratch, change)? {
                    return Ok(None);
                }
                change.write(table, txn, update, scratch)?;
                change.follow(table, txn, after, constants, scratch, rows)?;
                Ok(Some(scratch.ids.len() as u64))
            }
            Action::Delete { table, find, change, after } => {
                if !find.collect(txn, constants, scratch, change)? {
                    return Ok(None);
                }
                change.follow(table, txn, after, constants, scratch, rows)?;
                txn.delete_batch(table, &scratch.ids)?;
                Ok(Some(scratch.ids.len() as u64))
            }
        }
    }
}

fn passes(filters: &[RowExpr], row: &Row<'_>) -> Result<bool> {
    for filter in filters {
        if filter.truth(row)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Find {
    /// Calls `f` with the rows that pass the filter; false if there are too many to look at.
    fn for_each(
        &self,
        txn: &Transaction,
        constants: Constants<'_>,
        buffer: &mut RowBuffer,
        mut f: impl FnMut(RowId, &Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        self.access.for_each(txn, &self.index_access, constants, buffer, |id, stored| {
            let row = constants.with_stored(stored, &[]);
            if passes(&self.filters, &row)? { f(id, &row) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    /// Collects the rows and their changes.
    fn collect(
        &self,
        txn: &Transaction,
        constants: Constants<'_>,
        scratch: &mut Scratch,
        change: &Change,
    ) -> Result<bool> {
        let Scratch { buffer, ids, values } = scratch;
        ids.clear();
        change.clear(values);
        self.for_each(txn, constants, buffer, |id, row| {
            ids.push(id);
            change.collect(row, values)?;
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl Change {
    fn clear(&self, values: &mut Rows) {
        values.clear(self.set.len() + self.kept.len());
    }

    /// Collects the new values of a row, and the old ones that are needed afterwards.
    fn collect(&self, row: &Row<'_>, values: &mut Rows) -> Result<()> {
        for assignment in &self.set {
            values.push(assignment.evaluate(row)?);
        }
        self.kept.iter().for_each(|&at| values.push(row.column(at)));
        values.end_row();
        Ok(())
    }

    /// Writes the new values to the collected rows.
    fn write(&self, table: &Table, txn: &mut Transaction, plan: &ColumnUpdate, scratch: &mut Scratch) -> Result<()> {
        let Scratch { ids, values, .. } = scratch;
        // A value that does not fit fails the statement before any row is written.
        for row in 0..ids.len() {
            for (at, &column) in self.columns.iter().enumerate() {
                let mut value = values.value(row, at);
                if value.is_null() {
                    continue;
                }
                table.fit_value(column, &mut value)?;
                if let Value::Bytes(bytes) = value {
                    let len = bytes.len();
                    values.cut(row, at, len);
                }
            }
        }
        // NOT NULL comes after the values of all columns.
        for (row, &id) in ids.iter().enumerate() {
            let is_missing = |(at, column): (usize, &usize)| {
                let definition = &table.definition.columns[*column];
                (!definition.nullable && values.value(row, at).is_null()).then_some((*column, &definition.name))
            };
            if let Some((_, name)) = self.columns.iter().enumerate().filter_map(is_missing).min() {
                let new: SmallVec<[Value<'_>; 8]> = (0..self.set.len()).map(|at| values.value(row, at)).collect();
                return Err(txn.of_changed_row(table.null_in(name), table, id, &self.columns, &new).into());
            }
        }
        let mut update = txn.start_update(plan)?;
        let mut new: SmallVec<[Value<'_>; 8]> = SmallVec::new();
        for (row, &id) in ids.iter().enumerate() {
            new.clear();
            new.extend((0..self.set.len()).map(|at| values.value(row, at)));
            txn.update_row(&mut update, id, &new)?;
        }
        Ok(txn.finish_update(update)?)
    }

    /// Checks the new forms of the collected rows, and gives the rows of RETURNING.
    fn follow(
        &self,
        table: &Table,
        txn: &Transaction,
        after: &After,
        constants: Constants<'_>,
        scratch: &Scratch,
        rows: &mut Rows,
    ) -> Result<()> {
        for (row, &id) in scratch.ids.iter().enumerate() {
            let row = constants.with_collected(&scratch.values, row, &self.seen);
            if let Some(violated) = after.violated(&row)? {
                // It is written already.
                return Err(txn.of_changed_row(table.check_violated(violated), table, id, &[], &[]).into());
            }
            after.give(&row, rows)?;
        }
        Ok(())
    }
}

fn all_columns(table: &Table) -> Vec<ColumnId> {
    (0..table.definition.columns.len() as u16).map(ColumnId).collect()
}

/// Makes a value what the column keeps; whether it may be NULL is another question.
fn fit(table: &Table, column: usize, value: &mut Value<'_>) -> Result<()> {
    if value.is_null() { Ok(()) } else { Ok(table.fit_value(column, value)?) }
}

impl After {
    /// The name of the first CHECK constraint that does not hold.
    fn violated(&self, row: &Row<'_>) -> Result<Option<&str>> {
        for (name, condition) in &self.checks {
            if condition.truth(row)? == Some(false) {
                return Ok(Some(name.as_str()));
            }
        }
        Ok(None)
    }

    fn give(&self, row: &Row<'_>, rows: &mut Rows) -> Result<()> {
        if let Some(returning) = &self.returning {
            for output in returning {
                rows.push(output.evaluate(row)?);
            }
            rows.end_row();
        }
        Ok(())
    }
}

impl Insert {
    fn run(
        &self,
        table: &Arc<Table>,
        txn: &mut Transaction,
        constants: Constants<'_>,
        scratch: &mut Scratch,
        rows: &mut Rows,
    ) -> Result<u64> {
        let none = constants.row();
        let width = table.definition.columns.len();
        let is_generated = |c: usize| self.generated.iter().any(|(generated, _)| *generated == c);
        // Row after row: an error of an expression comes before one of a value that does not fit.
        let mut fitting: SmallVec<[Value<'_>; 16]> = SmallVec::from_elem(Value::Null, self.rows.len() * width);
        for (place, assignment) in fitting.iter_mut().zip(self.rows.iter().flatten()) {
            *place = assignment.evaluate(&none)?;
        }
        for (at, value) in fitting.iter_mut().enumerate() {
            let column = at % width;
            // Generated values follow.
            let is_given = self.generated.is_empty() || !is_generated(column);
            if is_given {
                fit(table, column, value)?;
            } else {
                *value = Value::Null;
            }
        }
        let mut computed: Vec<OwnedValue> = Vec::new();
        for row in (0..self.rows.len()).filter(|_| !self.generated.is_empty()) {
            let row = constants.with_values(&fitting[row * width..][..width]);
            for (_, assignment) in &self.generated {
                computed.push(OwnedValue::from(&assignment.evaluate(&row)?));
            }
        }
        for (at, value) in computed.iter().enumerate() {
            let (row, generated) = (at / self.generated.len(), at % self.generated.len());
            let column = self.generated[generated].0;
            let place = &mut fitting[row * width + column];
            *place = constants.keep(value);
            fit(table, column, place)?;
        }
        let fitting = |row: usize| &fitting[row * width..][..width];
        for values in (0..self.rows.len()).map(fitting) {
            let mut given = values.iter().zip(&table.definition.columns);
            if let Some((_, column)) = given.find(|(value, column)| value.is_null() && !column.nullable) {
                return Err(table.null_in(&column.name).of_row(table, values).into());
            }
            if let Some(violated) = self.after.violated(&constants.with_values(values))? {
                return Err(table.check_violated(violated).of_row(table, values).into());
            }
        }
        let mut affected = 0;
        for values in (0..self.rows.len()).map(fitting) {
            let conflict = match &self.on_conflict {
                None => {
                    txn.insert_row(table, values)?;
                    None
                }
                Some(on) => match txn.find_conflict(table, on.index.as_deref(), values)? {
                    None => {
                        txn.insert_free_row(table, on.index.as_deref(), values)?;
                        None
                    }
                    Some(row) => Some((row, on)),
                },
            };
            match conflict {
                None => {
                    self.after.give(&constants.with_values(values), rows)?;
                    affected += 1;
                }
                // At READ COMMITTED, the statement is begun again with a new snapshot.
                Some((row, OnConflict { update: None, .. })) => txn.check_newest(table, row)?,
                Some((row, OnConflict { update: Some(update), .. })) => {
                    if update.collect(table, txn.snapshot(), row, values, constants, scratch)? {
                        update.change.write(table, txn, &update.update, scratch)?;
                        update.change.follow(table, txn, &self.after, constants, scratch, rows)?;
                        affected += 1;
                    } else {
                        // Claimed all the same, as in PostgreSQL: the filter has seen its newest
                        // state.
                        txn.lock_row(table, row)?;
                    }
                }
            }
        }
        Ok(affected)
    }
}

impl ConflictUpdate {
    /// Collects the row and its changes, unless the filter excludes it.
    fn collect(
        &self,
        table: &Table,
        snapshot: &Snapshot,
        id: RowId,
        excluded: &[Value<'_>],
        constants: Constants<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let Scratch { buffer, ids, values } = scratch;
        ids.clear();
        self.change.clear(values);
        if !table.data.read(snapshot, id, &all_columns(table), buffer)? {
            return Ok(false);
        }
        let row = constants.with_stored(buffer, excluded);
        if !passes(&self.filters, &row)? {
            return Ok(false);
        }
        ids.push(id);
        self.change.collect(&row, values).map(|()| true)
    }
}

/// The state of an aggregate.
#[derive(Debug)]
enum State {
    Count(i64),
    Sum(Option<i128>),
    Extreme(OwnedValue),
}

impl State {
    fn is_known(&self) -> bool {
        !matches!(self, Self::Extreme(extreme) if extreme.as_value().is_null())
    }
}

impl Aggregate {
    fn start(&self) -> State {
        match self {
            Self::Count(_) => State::Count(0),
            Self::Sum(..) => State::Sum(None),
            Self::Min(_) | Self::Max(_) => State::Extreme(OwnedValue::Fixed(Value::Null)),
        }
    }

    fn add(&self, state: &mut State, row: &Row<'_>) -> Result<()> {
        match (self, state) {
            (Self::Count(None), State::Count(count)) => *count += 1,
            (Self::Count(Some(expr)), State::Count(count)) => {
                *count += i64::from(!expr.evaluate(row)?.is_null());
            }
            (Self::Sum(expr, column_type), State::Sum(sum)) => {
                let value = match expr.integer(row) {
                    Some(value) => Some(value.into()),
                    None => number(expr.evaluate(row)?),
                };
                if let Some(value) = value {
                    let sum_of_all = sum.unwrap_or(0).checked_add(value);
                    *sum = Some(sum_of_all.ok_or_else(|| SqlError::out_of_range(*column_type))?);
                }
            }
            (Self::Min(expr) | Self::Max(expr), State::Extreme(extreme)) => {
                let (value, now) = (expr.evaluate(row)?, extreme.as_value());
                let wanted = if matches!(self, Self::Min(_)) { Ordering::Less } else { Ordering::Greater };
                if !value.is_null() && (now.is_null() || compare(value, now) == wanted) {
                    *extreme = OwnedValue::from(&value);
                }
            }
            _ => unreachable!("the state is the aggregate's"),
        }
        Ok(())
    }

    fn result<'s>(&self, state: &'s State) -> Result<Value<'s>> {
        Ok(match (self, state) {
            (_, State::Count(count)) => Value::Int64(*count),
            (Self::Sum(_, column_type), State::Sum(Some(sum))) => {
                of_number(*sum, *column_type).ok_or_else(|| SqlError::out_of_range(*column_type))?
            }
            (_, State::Sum(_)) => Value::Null,
            (_, State::Extreme(extreme)) => extreme.as_value(),
        })
    }
}

impl Query {
    /// A bound of LIMIT or OFFSET; `None` if the other path must report its error.
    fn bound(expr: &Option<RowExpr>, constants: Constants<'_>, default: usize) -> Result<Option<usize>> {
        let Some(expr) = expr else { return Ok(Some(default)) };
        Ok(number(expr.evaluate(&constants.row())?).and_then(|n| usize::try_from(n).ok()))
    }

    /// The rows of the query; false if there are too many to look at. Their ids are collected.
    /// `skip_held`: rows of the table that others hold are left out.
    fn run(
        &self,
        txn: &Transaction,
        constants: Constants<'_>,
        scratch: &mut Scratch,
        rows: &mut Rows,
        skip_held: Option<&Table>,
    ) -> Result<bool> {
        let bounds = (Self::bound(&self.skip, constants, 0)?, Self::bound(&self.fetch, constants, usize::MAX)?);
        let (Some(skip), Some(fetch)) = bounds else { return Ok(false) };
        let Scratch { buffer, ids, .. } = scratch;
        ids.clear();
        if let Some(aggregates) = &self.aggregates {
            let mut states: Vec<State> = aggregates.iter().map(Aggregate::start).collect();
            let all = self.find.for_each(txn, constants, buffer, |_, row| {
                aggregates.iter().zip(&mut states).try_for_each(|(aggregate, state)| aggregate.add(state, row))?;
                // NULL is no extreme.
                let enough = self.first_is_enough && states.iter().all(State::is_known);
                Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if all {
                let results = aggregates.iter().zip(&states).map(|(aggregate, state)| aggregate.result(state));
                let results = results.collect::<Result<Vec<_>>>()?;
                let row = constants.with_values(&results);
                for output in &self.outputs {
                    rows.push(output.evaluate(&row)?);
                }
                rows.end_row();
            }
            return Ok(all);
        }
        let width = self.outputs.len();
        rows.clear(width + self.order.len());
        let ordered = self.order.is_empty();
        if ordered && fetch == 0 {
            return Ok(true);
        }
        let mut skipped = 0;
        let all = self.find.for_each(txn, constants, buffer, |id, row| {
            if skip_held.is_some_and(|table| txn.is_held_by_other(table, id)) {
                return Ok(ControlFlow::Continue(()));
            }
            if ordered && skipped < skip {
                skipped += 1;
                return Ok(ControlFlow::Continue(()));
            }
            ids.push(id);
            for expr in self.outputs.iter().chain(self.order.iter().map(|(expr, ..)| expr)) {
                rows.push(expr.evaluate(row)?);
            }
            rows.end_row();
            Ok(if ordered && rows.len() == fetch { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if !all {
            return Ok(false);
        }
        if !ordered {
            let mut order: Vec<usize> = (0..rows.len()).collect();
            order.sort_by(|&a, &b| {
                let keys = self.order.iter().enumerate();
                keys.fold(Ordering::Equal, |order, (i, &(_, asc, nulls_first))| {
                    order.then_with(|| {
                        let (a, b) = (rows.value(a, width + i), rows.value(b, width + i));
                        match (a.is_null(), b.is_null()) {
                            (true, true) => Ordering::Equal,
                            (true, false) if nulls_first => Ordering::Less,
                            (true, false) => Ordering::Greater,
                            (false, true) if nulls_first => Ordering::Greater,
                            (false, true) => Ordering::Less,
                            (false, false) if asc => compare(a, b),
                            (false, false) => compare(b, a),
                        }
                    })
                })
            });
            let kept: Vec<usize> = order.into_iter().skip(skip).take(fetch).collect();
            rows.reorder(&kept);
            *ids = kept.iter().map(|&at| ids[at]).collect();
        }
        rows.narrow(width);
        Ok(true)
    }
}
