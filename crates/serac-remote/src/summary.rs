//! Aggregates and first rows that servers compute in the place of a scan's rows.
//!
//! A server gives the groups of a partition with their counts, exact sums and extremes. An
//! [`Aggregated`] scan makes of them what the first step of an aggregation would have made of the
//! rows: the columns of its states, which the last step merges. States are known by the name of the
//! function and the types of the columns:
//!
//! | function | its state | made of |
//! |---|---|---|
//! | `count` | BIGINT | count |
//! | `min`, `max` | a value | min, max |
//! | `sum` | a sum | sum, or an error if it does not fit |
//! | `sum` | the bits of a sum, and the carries beyond them | sum |
//! | `avg` | a count, or NULL for none, and a sum as above or as a double | count, sum |
//!
//! The first form of a sum is DataFusion's, the second SeracDB's. A double is made of a sum of
//! integers only.

use crate::filter::{NUMERIC, postgresql_type};
use crate::scan::RemoteScanExec;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::compute::{CastOptions, cast_with_options, nullif};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, Int64Type, Schema, SchemaRef, TimeUnit, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use serac_client::flight::{Aggregate, AggregateFunction, AggregateName, MOST_FUNCTIONS, MOST_KEYS};
use std::sync::Arc;

/// PostgreSQL's numbers of CHAR and JSON, whose values come as texts, as NUMERIC's.
const OTHER_TEXTS: [&str; 2] = ["1042", "114"];
/// The most digits of decimals whose sums come with 38: there are fewer than 10¹⁹ rows.
pub const SHORT_DIGITS: u8 = 19;

/// Whether equal values of a column are the same, and servers order them as DataFusion does.
/// Servers and their clients agree on it.
pub fn is_exact(field: &Field) -> bool {
    let is_known = matches!(
        field.data_type(),
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
            | DataType::Utf8View
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    );
    is_known && postgresql_type(field).is_none_or(|oid| oid != NUMERIC && !OTHER_TEXTS.contains(&oid))
}

fn has_extremes(field: &Field) -> bool {
    is_exact(field) && !matches!(field.data_type(), DataType::Boolean | DataType::FixedSizeBinary(_))
}

/// The type of the server's sum of a column.
fn sum_of(field: &Field) -> Option<DataType> {
    match field.data_type() {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(DataType::Decimal128(38, 0)),
        DataType::Decimal128(digits, scale) if *digits <= SHORT_DIGITS => Some(DataType::Decimal128(38, *scale)),
        DataType::Decimal128(_, scale) => Some(DataType::Decimal256(76, *scale)),
        _ => None,
    }
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

/// Whether a cast keeps the values of all numbers of a type.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (same, other) if same == other => true,
        (from, DataType::Int64) => is_integer(from),
        (DataType::Int16, DataType::Int32) => true,
        (from, DataType::Decimal128(19.., 0)) if is_integer(from) => true,
        (DataType::Decimal128(digits, scale), DataType::Decimal128(more, same)) => more >= digits && scale == same,
        _ => false,
    }
}

/// The argument of a function: a column of the input, and the cast to the type as which it is
/// aggregated, if it is another.
#[derive(Clone, Debug)]
struct Argument {
    column: usize,
    cast: Option<CastExpr>,
}

impl Argument {
    fn of(argument: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let cast = argument.downcast_ref::<CastExpr>();
        let column = cast.map_or(argument, CastExpr::expr).downcast_ref::<Column>()?.index();
        Some(Self { column, cast: cast.cloned() })
    }

    /// The type as which a column is aggregated.
    fn data_type<'t>(&'t self, column: &'t Field) -> &'t DataType {
        self.cast.as_ref().map_or(column.data_type(), CastExpr::cast_type)
    }

    /// The argument as an expression over an input.
    fn over(&self, input: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(input.field(self.column).name(), self.column));
        match &self.cast {
            Some(cast) => Arc::new(cast.clone()).with_new_children(vec![column]),
            None => Ok(column),
        }
    }
}

/// The first step of an aggregation whose groups and arguments are columns of its input.
#[derive(Clone, Debug)]
pub struct PartialAggregate {
    /// The operator, which has the names and the states.
    step: Arc<AggregateExec>,
    groups: Vec<usize>,
    /// The argument of each function; `None` for a count of rows.
    arguments: Vec<Option<Argument>>,
}

impl PartialAggregate {
    /// The first step of an aggregation, or of one that has only one step. `None` if it groups by
    /// other expressions, or has other arguments.
    pub(crate) fn of(aggregate: &AggregateExec) -> Result<Option<Self>> {
        let by = aggregate.group_expr();
        let is_plain = aggregate.limit_options().is_none()
            && aggregate.filter_expr().iter().all(Option::is_none)
            && !by.has_grouping_set()
            && *aggregate.input_order_mode() == InputOrderMode::Linear;
        if !is_plain {
            return Ok(None);
        }
        let group = |(expr, _): &(Arc<dyn PhysicalExpr>, String)| expr.downcast_ref::<Column>().map(Column::index);
        let argument = |function: &Arc<AggregateFunctionExpr>| {
            let arguments = function.expressions();
            let ([argument], false, []) = (&arguments[..], function.is_distinct(), function.order_bys()) else {
                return None;
            };
            match argument.downcast_ref::<Literal>() {
                Some(literal) => (function.fun().name() == "count" && !literal.value().is_null()).then_some(None),
                None => Argument::of(argument).map(Some),
            }
        };
        let groups: Option<Vec<_>> = by.expr().iter().map(group).collect();
        let arguments: Option<Vec<_>> = aggregate.aggr_expr().iter().map(argument).collect();
        let (Some(groups), Some(arguments)) = (groups, arguments) else { return Ok(None) };
        let step = AggregateExec::try_new(
            AggregateMode::Partial,
            by.clone(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            aggregate.input().clone(),
            aggregate.input_schema(),
        )?;
        Ok(Some(Self { step: Arc::new(step), groups, arguments }))
    }

    /// The columns of its rows: the groups, and the states of the functions.
    pub fn schema(&self) -> SchemaRef {
        self.step.schema()
    }

    /// The columns of the input whose values it reads. A count reads none.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let functions = self.step.aggr_expr().iter().zip(&self.arguments);
        let of_functions = functions.filter(|(function, _)| function.fun().name() != "count");
        let of_functions = of_functions.filter_map(|(_, argument)| argument.as_ref().map(|argument| argument.column));
        self.groups.iter().copied().chain(of_functions)
    }

    /// Per column of its rows, the column of the input whose values it has, if it has such.
    pub fn origins(&self) -> Vec<Option<usize>> {
        let mut origins: Vec<_> = self.groups.iter().copied().map(Some).collect();
        for (function, argument) in self.step.aggr_expr().iter().zip(&self.arguments) {
            let is_extreme = matches!(function.fun().name(), "min" | "max");
            let states = function.state_fields().map_or(0, |fields| fields.len());
            let origin = argument.as_ref().filter(|_| is_extreme).map(|argument| argument.column);
            origins.extend(std::iter::repeat_n(origin, states));
        }
        origins
    }

    /// The same over the input of a projection, if it reads columns of that.
    pub(crate) fn below(&self, projection: &ProjectionExec) -> Option<Self> {
        let below = |at: usize| Some(projection.expr().get(at)?.expr.downcast_ref::<Column>()?.index());
        let groups = self.groups.iter().map(|&at| below(at)).collect::<Option<_>>()?;
        let argument = |argument: &Option<Argument>| match argument {
            Some(argument) => Some(Some(Argument { column: below(argument.column)?, cast: argument.cast.clone() })),
            None => Some(None),
        };
        let arguments = self.arguments.iter().map(argument).collect::<Option<_>>()?;
        Some(Self { step: self.step.clone(), groups, arguments })
    }

    /// The operator over another input, whose columns it reads.
    pub(crate) fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = input.schema();
        let names = self.step.group_expr().expr().iter().map(|(_, name)| name.clone());
        let groups = self.groups.iter().zip(names).map(|(&at, name)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
            (column, name)
        });
        let functions = self.step.aggr_expr().iter().zip(&self.arguments).map(|(function, argument)| {
            let Some(argument) = argument else { return Ok(function.clone()) };
            match function.with_new_expressions(vec![argument.over(&schema)?], Vec::new()) {
                Some(function) => Ok(Arc::new(function)),
                None => internal_err!("{} takes no other argument", function.name()),
            }
        });
        Ok(Arc::new(AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(groups.collect()),
            functions.collect::<Result<_>>()?,
            self.step.filter_expr().to_vec(),
            input,
            schema.clone(),
        )?))
    }
}

/// How a column of a state is made of a column of the server's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The value, in the type of the state.
    Value,
    /// A number of values, which is NULL where there is none: by any other, a sum is divided.
    Divisor,
    /// The lower bits of a sum, as many as the type of the state has.
    Bits,
    /// The carries beyond those bits.
    Carry(u32),
}

/// A column of the states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StateColumn {
    /// The column of the answer.
    pub(crate) answer: usize,
    pub(crate) form: Form,
}

/// The groups that servers compute for a scan.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Aggregated {
    pub(crate) request: Aggregate,
    /// The groups as columns of the server's table, for filters on them.
    pub(crate) groups: SchemaRef,
    /// The columns of the functions in answers.
    pub(crate) functions: Vec<DataType>,
    /// The columns of the states, behind the groups.
    pub(crate) states: Vec<StateColumn>,
}

/// The functions that are asked for, each once.
#[derive(Default)]
struct Wanted {
    functions: Vec<AggregateFunction>,
    types: Vec<DataType>,
}

impl Wanted {
    /// The number of a function among those that are asked for.
    fn add(&mut self, name: AggregateName, column: Option<&Field>, data_type: DataType) -> usize {
        let function = AggregateFunction(name, column.map(|field| field.name().clone()));
        self.functions.iter().position(|known| *known == function).unwrap_or_else(|| {
            self.functions.push(function);
            self.types.push(data_type);
            self.functions.len() - 1
        })
    }

    /// The columns of a function's state; `None` if the answers do not make them.
    fn states(
        &mut self,
        function: &AggregateFunctionExpr,
        argument: Option<&Argument>,
        scan: &Schema,
    ) -> Option<Vec<(usize, Form)>> {
        let states = function.state_fields().ok()?;
        let types: Vec<&DataType> = states.iter().map(|field| field.data_type()).collect();
        let field = argument.map(|argument| scan.field(argument.column));
        let of_type = argument.zip(field).map(|(argument, field)| argument.data_type(field));
        let is_own = of_type == field.map(|field| field.data_type());
        match (function.fun().name(), field, &types[..]) {
            ("count", field, [DataType::Int64]) if is_own => {
                Some(vec![(self.add(AggregateName::Count, field, DataType::Int64), Form::Value)])
            }
            ("min" | "max", Some(field), [value]) if is_own && has_extremes(field) && *value == field.data_type() => {
                let is_least = function.fun().name() == "min";
                let name = if is_least { AggregateName::Min } else { AggregateName::Max };
                Some(vec![(self.add(name, Some(field), field.data_type().clone()), Form::Value)])
            }
            ("sum", Some(field), types) => self.sum(field, of_type?, &states, types),
            ("avg", Some(field), [DataType::UInt64, types @ ..]) => {
                let count = self.add(AggregateName::Count, Some(field), DataType::Int64);
                let sum = match types {
                    // Integers are averaged as doubles.
                    [DataType::Float64] if is_integer(field.data_type()) && of_type == Some(&DataType::Float64) => {
                        vec![(self.add(AggregateName::Sum, Some(field), sum_of(field)?), Form::Value)]
                    }
                    types => self.sum(field, of_type?, &states[1..], types)?,
                };
                Some([(count, Form::Divisor)].into_iter().chain(sum).collect())
            }
            _ => None,
        }
    }

    fn sum(
        &mut self,
        field: &Field,
        of_type: &DataType,
        states: &[Arc<Field>],
        types: &[&DataType],
    ) -> Option<Vec<(usize, Form)>> {
        let data_type = sum_of(field)?;
        let scale = match &data_type {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
            _ => return None,
        };
        let bits = match types.first()? {
            DataType::Int64 if scale == 0 => i64::BITS,
            DataType::Decimal128(_, same) if *same == scale => i128::BITS,
            _ => return None,
        };
        if !keeps_values(field.data_type(), of_type) {
            return None;
        }
        let forms = match types {
            [_] => vec![Form::Value],
            [_, DataType::Int64] if states[1].name().ends_with("[carry]") => vec![Form::Bits, Form::Carry(bits)],
            _ => return None,
        };
        let sum = self.add(AggregateName::Sum, Some(field), data_type);
        Some(forms.into_iter().map(|form| (sum, form)).collect())
    }
}

impl Aggregated {
    /// The first step of an aggregation over a scan with these columns, if servers can do it.
    fn new(partial: &PartialAggregate, scan: &Schema) -> Option<Self> {
        let groups: Vec<&Field> = partial.groups.iter().map(|&at| scan.field(at)).collect();
        let mut names: Vec<&String> = groups.iter().map(|field| field.name()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != groups.len() || groups.len() > MOST_KEYS || !groups.iter().all(|field| is_exact(field)) {
            return None;
        }
        let (mut wanted, mut states) = (Wanted::default(), Vec::new());
        for (function, argument) in partial.step.aggr_expr().iter().zip(&partial.arguments) {
            let of_function = wanted.states(function, argument.as_ref(), scan)?;
            states.extend(
                of_function.into_iter().map(|(function, form)| StateColumn { answer: groups.len() + function, form }),
            );
        }
        let Wanted { functions, types } = wanted;
        let columns = groups.len() + states.len();
        let has_all = columns > 0 && columns == partial.schema().fields().len();
        (has_all && functions.len() <= MOST_FUNCTIONS).then(|| Self {
            request: Aggregate { groups: groups.iter().map(|field| field.name().clone()).collect(), functions },
            groups: Arc::new(Schema::new(groups.into_iter().cloned().collect::<Vec<_>>())),
            functions: types,
            states,
        })
    }

    /// The states of a server's answer, as columns of `schema`.
    ///
    /// # Errors
    /// For an answer that has other columns; an overflow for a sum that does not fit.
    pub(crate) fn states(
        &self,
        answer: &RecordBatch,
        schema: &SchemaRef,
    ) -> std::result::Result<RecordBatch, ArrowError> {
        let groups = self.groups.fields().iter().map(|field| field.data_type());
        let wanted: Vec<&DataType> = groups.chain(&self.functions).collect();
        let given: Vec<&DataType> = answer.columns().iter().map(|column| column.data_type()).collect();
        if given != wanted {
            return Err(ArrowError::SchemaError(format!("the columns {given:?} instead of {wanted:?}")));
        }
        let states = self.states.iter().zip(schema.fields().iter().skip(self.groups.fields().len()));
        let states = states.map(|(state, field)| state.of(answer.column(state.answer), field.data_type()));
        let groups = answer.columns()[..self.groups.fields().len()].iter().map(|group| Ok(group.clone()));
        let columns = groups.chain(states).collect::<std::result::Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(answer.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
    }

    /// As EXPLAIN shows it.
    pub(crate) fn shown(&self) -> String {
        let function = |AggregateFunction(name, column): &AggregateFunction| {
            format!("{}({})", name.name(), column.as_deref().unwrap_or("*"))
        };
        let parts = self.request.groups.iter().cloned().chain(self.request.functions.iter().map(function));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// The lower bits of a sum, and the carries beyond them.
fn split(sum: i256, bits: u32) -> (i128, i64) {
    let (low, _) = sum.to_parts();
    let low = if bits == i64::BITS { i128::from(low as i64) } else { low as i128 };
    let carry = sum.wrapping_sub(i256::from_i128(low)) >> bits as u8;
    (low, carry.as_i128() as i64)
}

/// A sum's values as whole numbers.
fn whole(sums: &ArrayRef) -> Box<dyn Iterator<Item = Option<i256>> + '_> {
    match sums.data_type() {
        DataType::Decimal256(..) => Box::new(sums.as_primitive::<Decimal256Type>().iter()),
        _ => Box::new(sums.as_primitive::<Decimal128Type>().iter().map(|sum| sum.map(i256::from_i128))),
    }
}

impl StateColumn {
    fn of(&self, column: &ArrayRef, data_type: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
        Ok(match (self.form, data_type) {
            (Form::Value, same) if column.data_type() == same => column.clone(),
            (Form::Value, other) => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                let cast = cast_with_options(column, other, &options);
                cast.map_err(|error| ArrowError::ArithmeticOverflow(format!("a sum is out of range: {error}")))?
            }
            (Form::Divisor, other) => {
                let is_none = eq(&column.as_primitive::<Int64Type>(), &Int64Array::new_scalar(0))?;
                cast_with_options(&nullif(column, &is_none)?, other, &CastOptions::default())?
            }
            (Form::Carry(bits), _) => {
                Arc::new(whole(column).map(|sum| sum.map(|sum| split(sum, bits).1)).collect::<Int64Array>())
            }
            (Form::Bits, DataType::Int64) => {
                let bits = |sum| split(sum, i64::BITS).0 as i64;
                Arc::new(whole(column).map(|sum| sum.map(bits)).collect::<Int64Array>())
            }
            (Form::Bits, _) => {
                let bits = |sum| split(sum, i128::BITS).0;
                let sums: Decimal128Array = whole(column).map(|sum| sum.map(bits)).collect();
                Arc::new(sums.with_data_type(data_type.clone()))
            }
        })
    }
}

impl RemoteScanExec {
    /// A scan that gives the states of an aggregation's first step, made by the servers. `None` if
    /// they cannot, or would send no fewer rows.
    pub fn aggregated(&self, partial: &PartialAggregate) -> Option<Self> {
        if !self.can_summarize() || !self.shrinks(&partial.groups) {
            return None;
        }
        let aggregated = Aggregated::new(partial, &self.schema)?;
        // Filters that come later hold for rows. Those of groups hold for the groups, too.
        let dynamic = self.dynamic.iter().filter_map(|filter| of_groups(filter, &partial.groups)).collect();
        Some(self.with_aggregated(aggregated, partial.schema(), dynamic))
    }

    /// Whether the servers have fewer groups than rows, as far as estimates tell.
    fn shrinks(&self, groups: &[usize]) -> bool {
        let distinct: Option<Vec<u64>> = groups.iter().map(|&group| self.distinct[group]).collect();
        let Some(distinct) = distinct.filter(|distinct| !distinct.is_empty()) else { return true };
        let each = distinct.into_iter().map(|distinct| distinct.max(1)).fold(1, u64::saturating_mul);
        each.saturating_mul(self.partitions.len() as u64) <= self.estimated_rows() / 2
    }
}

/// A filter whose columns are all groups, as one of the groups' columns.
pub(crate) fn of_groups(filter: &Arc<dyn PhysicalExpr>, groups: &[usize]) -> Option<Arc<dyn PhysicalExpr>> {
    let place = |column: &Column| groups.iter().position(|&group| group == column.index());
    if !collect_columns(filter).iter().all(|column| place(column).is_some()) {
        return None;
    }
    let moved = filter.clone().transform_up(|expr| {
        Ok(match expr.downcast_ref::<Column>().and_then(|column| Some((column.name(), place(column)?))) {
            Some((name, at)) => Transformed::yes(Arc::new(Column::new(name, at)) as _),
            None => Transformed::no(expr),
        })
    });
    moved.data().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_its_bits_and_carries() {
        let two = |power: u8| i256::from_i128(1) << power;
        for sum in [
            i256::from_i128(0),
            i256::from_i128(-1),
            i256::from_i128(i64::MAX.into()),
            i256::from_i128(i64::MIN.into()),
            two(63),
            two(64),
            two(64).wrapping_neg(),
            two(64).wrapping_sub(i256::from_i128(5)),
            two(63).wrapping_neg().wrapping_sub(i256::from_i128(1)),
            two(120).wrapping_add(i256::from_i128(7)),
        ] {
            let (low, carry) = split(sum, 64);
            assert!(i64::try_from(low).is_ok(), "{sum}");
            let whole = (i256::from_i128(carry.into()) << 64_u8).wrapping_add(i256::from_i128(low));
            assert_eq!(whole, sum);
        }
        for sum in [two(127), two(127).wrapping_neg(), two(128), two(180), two(180).wrapping_neg(), i256::from_i128(-3)]
        {
            let (low, carry) = split(sum, 128);
            let whole = (i256::from_i128(carry.into()) << 128_u8).wrapping_add(i256::from_i128(low));
            assert_eq!(whole, sum);
        }
    }

    #[test]
    fn only_casts_that_keep_all_values_are_looked_through() {
        use DataType::{Decimal128, Float64, Int16, Int32, Int64};
        for (from, to, keeps) in [
            (Int16, Int64, true),
            (Int64, Int64, true),
            (Int64, Int32, false),
            (Int32, Decimal128(38, 0), true),
            (Int64, Decimal128(10, 0), false),
            (Int64, Decimal128(38, 2), false),
            (Decimal128(12, 2), Decimal128(22, 2), true),
            (Decimal128(12, 2), Decimal128(22, 3), false),
            (Decimal128(12, 2), Decimal128(10, 2), false),
            (Int64, Float64, false),
        ] {
            assert_eq!(keeps_values(&from, &to), keeps, "{from} as {to}");
        }
    }
}
