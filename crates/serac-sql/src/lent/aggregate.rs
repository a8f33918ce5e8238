//! Aggregates.
//!
//! The code keeps a state for each group, which the plan does not look into. Plans aggregate in two
//! steps, on several threads: the first gives the states of its groups as columns of Arrow. A state
//! of a program has no such form, so it waits in a table of the call ([`States`]), and its number
//! goes through the plan. Whoever merges the number takes the state out.
//!
//! Code that cannot merge two states, or whose rows have an order, gets its rows at the end: until
//! then a state is the rows of the group ([`GroupRows`]).

use super::function::{CheckedBody, CheckedFunction, Still, in_form, known_rows, returned};
use super::scalar::exactly;
use crate::error::{Result, SqlError};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, UInt64Array, new_empty_array};
use datafusion::arrow::compute::{SortColumn, SortOptions, concat, filter, lexsort_to_indices, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalSortExpr;
use parking_lot::Mutex;
use serac_files::{Assign, ValueType};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The state of a group, which only the code of its aggregate knows.
pub type GroupState = Box<dyn Any + Send + Sync>;

/// Bytes that the state of a group is taken to have: what it refers to is not known.
const STATE_BYTES: usize = 256;

/// The code of an aggregate. A group without a state has had no rows; the code makes it one.
pub trait AggregateBody: Send + Sync {
    /// Whether two states can become one.
    fn merges(&self) -> bool;

    /// Adds rows to the states of their groups. `arguments`: a column for each parameter, as for
    /// [`ScalarBody`](super::ScalarBody); `groups`: for each row the place of its group in
    /// `states`.
    ///
    /// # Errors
    /// Those of the code, and of `check`.
    fn step(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        arguments: &[ArrayRef],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()>;

    /// Adds states to those of their groups, as `step` adds rows. Only if [`merges`](Self::merges).
    ///
    /// # Errors
    /// Those of the code, and of `check`.
    fn merge(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        others: Vec<Option<GroupState>>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()>;

    /// The values of groups. A window asks for the value of a state that then gets more rows.
    /// `returns` is as for [`ScalarBody`](super::ScalarBody).
    ///
    /// # Errors
    /// Those of the code, and of `check`.
    fn finish(
        &self,
        states: &mut [Option<GroupState>],
        returns: &DataType,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<ArrayRef>;
}

/// The states that go through a plan as numbers.
#[derive(Default)]
struct States(Mutex<(HashMap<u64, GroupState>, u64)>);

impl States {
    fn put(&self, state: GroupState) -> u64 {
        let mut states = self.0.lock();
        states.1 += 1;
        let number = states.1;
        states.0.insert(number, state);
        number
    }

    fn take(&self, number: u64) -> Option<GroupState> {
        self.0.lock().0.remove(&number)
    }
}

/// An aggregate in a statement.
struct LentAggregate {
    function: Arc<CheckedFunction>,
    signature: Signature,
    states: Arc<States>,
    assign: Assign,
    still: Still,
}

impl fmt::Debug for LentAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentAggregate").field("name", &self.function.name).finish_non_exhaustive()
    }
}

impl PartialEq for LentAggregate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl Eq for LentAggregate {}

impl Hash for LentAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

/// An aggregate for a statement; `None` for another function.
pub(crate) fn aggregate_of(function: &Arc<CheckedFunction>, assign: Assign, still: Still) -> Option<Arc<AggregateUDF>> {
    let CheckedBody::Aggregate { .. } = &function.body else { return None };
    // A call without arguments is given a constant: a plan has no aggregate of nothing.
    let constant = [DataType::Int64];
    let given: &[DataType] = if function.parameters.is_empty() { &constant } else { &function.parameters };
    let signature = exactly(given, Volatility::Volatile);
    let (function, states) = (function.clone(), Arc::default());
    Some(Arc::new(AggregateUDF::from(LentAggregate { function, signature, states, assign, still })))
}

/// Whether it is an aggregate that the program lends.
pub(crate) fn is_lent_aggregate(function: &AggregateUDF) -> bool {
    function.inner().is::<LentAggregate>()
}

/// Rows of a group, in the order in which they came.
#[derive(Default)]
struct GroupRows(Vec<Vec<ArrayRef>>);

/// The code of an aggregate with what its calls need.
struct Code {
    function: Arc<CheckedFunction>,
    body: Arc<dyn AggregateBody>,
    returns: ValueType,
    is_strict: bool,
    /// The order of the rows of a group, by the columns behind the arguments; empty if they have
    /// none.
    order: Arc<[SortOptions]>,
    states: Arc<States>,
    assign: Assign,
    still: Still,
}

impl Code {
    /// Whether a state is the group's rows until the end.
    fn keeps_rows(&self) -> bool {
        !self.body.merges() || !self.order.is_empty()
    }

    fn width(&self) -> usize {
        self.function.parameters.len()
    }

    /// The columns of the rows that count, and their groups.
    fn counting(
        &self,
        values: &[ArrayRef],
        groups: &[usize],
        wanted: Option<&BooleanArray>,
    ) -> Result<(Vec<ArrayRef>, Vec<usize>)> {
        let count = self.width();
        let arguments = values.iter().take(count).zip(&self.function.parameters);
        let mut columns = arguments.map(|(column, wanted)| in_form(column, wanted)).collect::<Result<Vec<_>>>()?;
        columns.extend(values.iter().skip(count.max(1)).cloned());
        let mut groups = groups.to_vec();
        if let Some(wanted) = wanted {
            let wanted: BooleanArray = wanted.iter().map(|is_wanted| Some(is_wanted == Some(true))).collect();
            columns = columns.iter().map(|column| Ok(filter(column, &wanted)?)).collect::<Result<_>>()?;
            groups = groups.into_iter().zip(wanted.values()).filter_map(|(group, is)| is.then_some(group)).collect();
        }
        if self.is_strict
            && let Some(known) = known_rows(&columns[..count])
        {
            groups = known.iter().map(|row| groups[*row as usize]).collect();
            let known = UInt32Array::from(known);
            columns = columns.iter().map(|column| Ok(take(column, &known, None)?)).collect::<Result<_>>()?;
        }
        Ok((columns, groups))
    }

    fn step(
        &self,
        states: &mut [Option<GroupState>],
        values: &[ArrayRef],
        groups: &[usize],
        wanted: Option<&BooleanArray>,
    ) -> Result<()> {
        (self.still)()?;
        let (columns, groups) = self.counting(values, groups, wanted)?;
        if groups.is_empty() {
            return Ok(());
        }
        if !self.keeps_rows() {
            return self.body.step(states, &groups, &columns, &*self.still);
        }
        if columns.is_empty() {
            // The rows have no columns: how many there are is what counts.
            let rows: ArrayRef = Arc::new(UInt32Array::from(vec![0; groups.len()]));
            return self.keep(states, &[rows], &groups);
        }
        self.keep(states, &columns, &groups)
    }

    /// Adds rows to those of their groups.
    fn keep(&self, states: &mut [Option<GroupState>], columns: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let first = groups[0];
        if groups.iter().all(|group| *group == first) {
            rows_of(&mut states[first])?.0.push(columns.to_vec());
            return Ok(());
        }
        let mut of_group: HashMap<usize, Vec<u32>> = HashMap::new();
        for (row, group) in groups.iter().enumerate() {
            of_group.entry(*group).or_default().push(row as u32);
        }
        for (group, rows) in of_group {
            let rows = UInt32Array::from(rows);
            let own = columns.iter().map(|column| Ok(take(column, &rows, None)?)).collect::<Result<Vec<_>>>()?;
            rows_of(&mut states[group])?.0.push(own);
        }
        Ok(())
    }

    fn merge(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        mut others: Vec<Option<GroupState>>,
    ) -> Result<()> {
        if !self.keeps_rows() {
            return self.body.merge(states, groups, others, &*self.still);
        }
        for (other, group) in others.iter_mut().zip(groups) {
            if other.is_some() {
                let mut own = std::mem::take(&mut rows_of(other)?.0);
                rows_of(&mut states[*group])?.0.append(&mut own);
            }
        }
        Ok(())
    }

    /// The values of groups.
    fn finish(&self, states: &mut [Option<GroupState>]) -> Result<ArrayRef> {
        if states.is_empty() {
            return Ok(new_empty_array(&self.returns.arrow()));
        }
        let given = match self.keeps_rows() {
            false => self.body.finish(states, &self.returns.arrow(), &*self.still)?,
            true => {
                let mut own = self.of_rows(states)?;
                self.body.finish(&mut own, &self.returns.arrow(), &*self.still)?
            }
        };
        let name = &self.function.name;
        if given.len() != states.len() {
            let message = format!("aggregate {name} gave {} values for {} groups", given.len(), states.len());
            return Err(SqlError::new(sqlstate::EXTERNAL_ROUTINE_INVOCATION_EXCEPTION, message).named(name));
        }
        let what = format!("aggregate {name}");
        returned(&given, &self.returns, &what, &self.assign).map_err(|error| error.named(name))
    }

    /// The states of groups of which the rows are known, in one call of the code.
    fn of_rows(&self, states: &mut [Option<GroupState>]) -> Result<Vec<Option<GroupState>>> {
        let mut own: Vec<Option<GroupState>> = states.iter().map(|_| None).collect();
        let (mut parts, mut groups): (Vec<Vec<ArrayRef>>, Vec<usize>) = (Vec::new(), Vec::new());
        for (group, state) in states.iter_mut().enumerate().filter(|(_, state)| state.is_some()) {
            let rows = self.ordered(&rows_of(state)?.0)?;
            groups.resize(groups.len() + rows[0].len(), group);
            parts.push(rows);
        }
        if groups.is_empty() {
            return Ok(own);
        }
        let column = |at: usize| {
            let parts: Vec<&dyn Array> = parts.iter().map(|part| part[at].as_ref()).collect();
            Ok(concat(&parts)?)
        };
        let columns = (0..self.width()).map(column).collect::<Result<Vec<_>>>()?;
        self.body.step(&mut own, &groups, &columns, &*self.still)?;
        Ok(own)
    }

    /// The rows of a group in their order.
    fn ordered(&self, parts: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
        let column = |at: usize| {
            let parts: Vec<&dyn Array> = parts.iter().map(|part| part[at].as_ref()).collect();
            Ok(concat(&parts)?)
        };
        let rows = (0..parts[0].len()).map(column).collect::<Result<Vec<_>>>()?;
        if self.order.is_empty() {
            return Ok(rows);
        }
        let keys = rows[self.width()..].iter().zip(&*self.order);
        let mut keys: Vec<SortColumn> =
            keys.map(|(values, options)| SortColumn { values: values.clone(), options: Some(*options) }).collect();
        // Rows that are alike keep the order in which they came.
        let places: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows[0].len() as u32));
        keys.push(SortColumn { values: places, options: None });
        let sorted = lexsort_to_indices(&keys, None)?;
        rows.iter().map(|column| Ok(take(column, &sorted, None)?)).collect()
    }

    /// The numbers under which states go on through the plan.
    fn put(&self, states: Vec<Option<GroupState>>) -> ArrayRef {
        Arc::new(states.into_iter().map(|state| state.map(|state| self.states.put(state))).collect::<UInt64Array>())
    }

    /// The states of numbers.
    fn taken(&self, numbers: &ArrayRef) -> PlanResult<Vec<Option<GroupState>>> {
        let Some(numbers) = numbers.as_primitive_opt::<UInt64Type>() else {
            return internal_err!("the states of {} have no numbers", self.function.name);
        };
        let state = |number: Option<u64>| match number {
            Some(number) => match self.states.take(number) {
                Some(state) => Ok(Some(state)),
                None => internal_err!("a state of {} is merged twice", self.function.name),
            },
            None => Ok(None),
        };
        numbers.iter().map(state).collect()
    }
}

/// The rows in a state.
fn rows_of(state: &mut Option<GroupState>) -> Result<&mut GroupRows> {
    let state = state.get_or_insert_with(|| Box::new(GroupRows::default()) as GroupState);
    let lost = || SqlError::new(sqlstate::INTERNAL_ERROR, "a state of an aggregate is of another kind");
    state.downcast_mut().ok_or_else(lost)
}

/// The states of groups.
struct Groups {
    code: Code,
    states: Vec<Option<GroupState>>,
    /// Bytes of the rows that were kept.
    bytes: usize,
}

impl Groups {
    fn grow(&mut self, count: usize) {
        if self.states.len() < count {
            self.states.resize_with(count, || None);
        }
    }

    fn note_bytes(&mut self, values: &[ArrayRef]) {
        if self.code.keeps_rows() {
            self.bytes += values.iter().map(|values| values.get_array_memory_size()).sum::<usize>();
        }
    }

    fn step(&mut self, values: &[ArrayRef], groups: &[usize], wanted: Option<&BooleanArray>) -> PlanResult<()> {
        self.note_bytes(values);
        self.code.step(&mut self.states, values, groups, wanted).map_err(SqlError::external)
    }

    fn merge(&mut self, numbers: &ArrayRef, groups: &[usize]) -> PlanResult<()> {
        let others = self.code.taken(numbers)?;
        self.code.merge(&mut self.states, groups, others).map_err(SqlError::external)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        wanted: Option<&BooleanArray>,
        count: usize,
    ) -> PlanResult<()> {
        self.grow(count);
        self.step(values, groups, wanted)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> PlanResult<()> {
        self.grow(count);
        self.merge(&values[0], groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        let mut states = emit_to.take_needed(&mut self.states);
        self.code.finish(&mut states).map_err(SqlError::external)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        let states = emit_to.take_needed(&mut self.states);
        Ok(vec![self.code.put(states)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], wanted: Option<&BooleanArray>) -> PlanResult<Vec<ArrayRef>> {
        let groups: Vec<usize> = (0..values.first().map_or(0, |values| values.len())).collect();
        let mut states: Vec<Option<GroupState>> = groups.iter().map(|_| None).collect();
        self.code.step(&mut states, values, &groups, wanted).map_err(SqlError::external)?;
        Ok(vec![self.code.put(states)])
    }

    fn size(&self) -> usize {
        self.bytes + self.states.len() * STATE_BYTES
    }
}

/// The state of a single group: all rows, or those of a window from its first on.
struct One(Groups);

impl One {
    fn groups(values: &[ArrayRef]) -> Vec<usize> {
        vec![0; values.first().map_or(0, |values| values.len())]
    }
}

impl fmt::Debug for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("One").field(&self.0.code.function.name).finish()
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.0.grow(1);
        self.0.step(values, &Self::groups(values), None)
    }

    fn merge_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.0.grow(1);
        self.0.merge(&values[0], &Self::groups(values))
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.0.grow(1);
        let value = self.0.code.finish(&mut self.0.states).map_err(SqlError::external)?;
        ScalarValue::try_from_array(&value, 0)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.0.grow(1);
        let state = self.0.states[0].take();
        Ok(vec![ScalarValue::UInt64(state.map(|state| self.0.code.states.put(state)))])
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(&self.0)
    }
}

/// The rows of a window whose start moves. Code cannot take rows back, so each value is computed of
/// all rows of its window.
struct Sliding {
    code: Code,
    /// The batches, and how many rows of the first have left.
    batches: VecDeque<Vec<ArrayRef>>,
    left: usize,
}

impl fmt::Debug for Sliding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sliding").field(&self.code.function.name).finish()
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        if values.first().is_some_and(|values| !values.is_empty()) {
            self.batches.push_back(values.to_vec());
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.left += values.first().map_or(0, |values| values.len());
        while let Some(first) = self.batches.front()
            && self.left >= first[0].len()
        {
            self.left -= first[0].len();
            self.batches.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let mut states = vec![None];
        for (number, batch) in self.batches.iter().enumerate() {
            let from = if number == 0 { self.left } else { 0 };
            let rows: Vec<ArrayRef> = batch.iter().map(|column| column.slice(from, column.len() - from)).collect();
            self.code.step(&mut states, &rows, &One::groups(&rows), None).map_err(SqlError::external)?;
        }
        let value = self.code.finish(&mut states).map_err(SqlError::external)?;
        ScalarValue::try_from_array(&value, 0)
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        internal_err!("a window of {} is merged", self.code.function.name)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        internal_err!("a window of {} has no state", self.code.function.name)
    }

    fn size(&self) -> usize {
        let rows = self.batches.iter().flatten();
        rows.map(|column| column.get_array_memory_size()).sum::<usize>() + STATE_BYTES
    }
}

impl LentAggregate {
    fn code(&self, order: &[PhysicalSortExpr]) -> PlanResult<Code> {
        let CheckedBody::Aggregate { returns, is_strict, body } = &self.function.body else {
            return internal_err!("{} is no aggregate", self.function.name);
        };
        Ok(Code {
            function: self.function.clone(),
            body: body.clone(),
            returns: returns.clone(),
            is_strict: *is_strict,
            order: order.iter().map(|order| order.options).collect(),
            states: self.states.clone(),
            assign: self.assign.clone(),
            still: self.still.clone(),
        })
    }
}

impl AggregateUDFImpl for LentAggregate {
    fn name(&self) -> &str {
        &self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        match &self.function.body {
            CheckedBody::Aggregate { returns, .. } => Ok(returns.arrow()),
            _ => internal_err!("{} is no aggregate", self.function.name),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[state]", args.name), DataType::UInt64, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let code = self.code(args.order_bys)?;
        Ok(Box::new(One(Groups { code, states: Vec::new(), bytes: 0 })))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        let code = self.code(args.order_bys)?;
        Ok(Box::new(Groups { code, states: Vec::new(), bytes: 0 }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let code = self.code(args.order_bys)?;
        Ok(Box::new(Sliding { code, batches: VecDeque::new(), left: 0 }))
    }

    /// The value of no rows.
    fn default_value(&self, _: &DataType) -> PlanResult<ScalarValue> {
        let code = self.code(&[])?;
        let value = code.finish(&mut [None]).map_err(SqlError::external)?;
        ScalarValue::try_from_array(&value, 0)
    }
}
