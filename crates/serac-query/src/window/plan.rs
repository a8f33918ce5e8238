//! What an operator computes: the functions of its windows, as far as they are known here.

use crate::optimizer::MERGED;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::windows::WindowUDFExpr;
use std::sync::Arc;

/// A bound of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The first or the last row of the partition.
    Partition,
    /// The first or the last row that is equal to the present one in the order.
    Peers,
    /// The row at this distance from the present one, which is below 0 for rows before it.
    Row(i64),
}

/// The rows that a function takes for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) start: Bound,
    pub(super) end: Bound,
}

impl Frame {
    fn is_partition(self) -> bool {
        self.start == Bound::Partition && self.end == Bound::Partition
    }
}

/// The rows that have to be there when a function is computed for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// The rows from the first one of the partition up to this one: the function keeps a state.
    Rows,
    /// Its peers, too.
    Peers,
    /// Rows before it and after it, no more than these.
    Near { before: usize, after: usize },
    /// Its whole partition.
    Partition,
}

/// Rows near a row that are held for it. With more, the whole partition is.
const MOST_NEAR: u64 = 8_192;

impl Needs {
    /// The rows near a row, from a first to a last distance.
    fn near(first: i64, last: i64) -> Self {
        let (before, after) = (first.min(0).unsigned_abs(), last.max(0).unsigned_abs());
        match before.saturating_add(after) {
            // The sum fits, and so do both.
            ..=MOST_NEAR => Self::Near { before: before as usize, after: after as usize },
            _ => Self::Partition,
        }
    }
}

/// A row of the frame whose value is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nth {
    /// The row with this number, from 0.
    FromStart(u64),
    /// The row with this number from the end, from 0.
    FromEnd(u64),
    /// No row.
    None,
}

/// A function. Values and frames are places in the [`WindowPlan`].
#[derive(Clone, Debug)]
pub(super) enum Function {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(u64),
    /// `lag` and `lead`: the value of the row at a distance, or a default.
    Shift {
        value: usize,
        distance: i64,
        default: ScalarValue,
    },
    Nth {
        value: usize,
        frame: usize,
        nth: Nth,
    },
    /// The number of values that are not NULL, or of rows.
    Count {
        value: Option<usize>,
        frame: usize,
    },
    /// A sum of integers or decimals.
    ExactSum {
        value: usize,
        frame: usize,
        data_type: DataType,
    },
    /// A sum or an average of floats.
    FloatSum {
        value: usize,
        frame: usize,
        averages: bool,
    },
    Extreme {
        value: usize,
        frame: usize,
        is_greatest: bool,
    },
    /// An aggregate of the partition.
    OfPartition {
        aggregate: Arc<AggregateFunctionExpr>,
        values: Vec<usize>,
    },
}

impl Function {
    /// The places of its arguments.
    pub(super) fn values(&self) -> &[usize] {
        match self {
            Self::OfPartition { values, .. } => values,
            Self::Shift { value, .. }
            | Self::Nth { value, .. }
            | Self::Count { value: Some(value), .. }
            | Self::ExactSum { value, .. }
            | Self::FloatSum { value, .. }
            | Self::Extreme { value, .. } => std::slice::from_ref(value),
            _ => &[],
        }
    }

    /// The place of its frame, if it asks for the frames of rows.
    pub(super) fn frame(&self) -> Option<usize> {
        match self {
            Self::Nth { frame, .. }
            | Self::Count { frame, .. }
            | Self::ExactSum { frame, .. }
            | Self::FloatSum { frame, .. }
            | Self::Extreme { frame, .. } => Some(*frame),
            _ => None,
        }
    }
}

/// A function and the type of its column.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    pub(super) function: Function,
    pub(super) needs: Needs,
    pub(super) data_type: DataType,
}

/// The functions of an operator.
#[derive(Debug)]
pub(super) struct WindowPlan {
    /// The expressions of each row: keys and arguments, each once.
    pub(super) expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// The keys of partitions, as places of expressions.
    pub(super) partition_by: Vec<usize>,
    /// The keys of the order.
    pub(super) order_by: Vec<usize>,
    pub(super) frames: Vec<Frame>,
    pub(super) functions: Vec<Computed>,
    /// Whether a function needs whole partitions.
    pub(super) needs_partitions: bool,
    /// Whether a function needs all peers of a row.
    pub(super) needs_all_peers: bool,
    /// Rows before a row, and after it, that functions need.
    pub(super) near: (usize, usize),
    /// Whether a function or a frame asks where peers begin.
    pub(super) needs_peers: bool,
}

/// Whether the least and the greatest value of a type are found here.
fn has_extremes(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::Float32
            | T::Float64
            | T::Decimal64(..)
            | T::Decimal128(..)
            | T::Date32
            | T::Time64(_)
            | T::Timestamp(..)
            | T::Utf8
            | T::LargeUtf8
            | T::Utf8View
    )
}

/// The frame, if it is one of those that are known.
fn frame_of(frame: &WindowFrame) -> Option<Frame> {
    let bound = |bound: &WindowFrameBound| {
        let rows = |value: &ScalarValue| match (frame.units, value) {
            (_, value) if value.is_null() => Some(None),
            (WindowFrameUnits::Rows, ScalarValue::UInt64(Some(rows))) => {
                Some(Some(i64::try_from(*rows).unwrap_or(i64::MAX)))
            }
            _ => None,
        };
        Some(match bound {
            WindowFrameBound::Preceding(value) => rows(value)?.map_or(Bound::Partition, |rows| Bound::Row(-rows)),
            WindowFrameBound::Following(value) => rows(value)?.map_or(Bound::Partition, Bound::Row),
            WindowFrameBound::CurrentRow if frame.units == WindowFrameUnits::Rows => Bound::Row(0),
            WindowFrameBound::CurrentRow => Bound::Peers,
        })
    };
    Some(Frame { start: bound(&frame.start_bound)?, end: bound(&frame.end_bound)? })
}

/// The constant that an argument is; `None` inside if there is no such argument.
fn constant(args: &[Arc<dyn PhysicalExpr>], at: usize) -> Option<Option<ScalarValue>> {
    match args.get(at) {
        None => Some(None),
        Some(arg) => arg.downcast_ref::<Literal>().map(|literal| Some(literal.value().clone())),
    }
}

/// The whole number that an argument is.
fn number(args: &[Arc<dyn PhysicalExpr>], at: usize) -> Option<Option<i64>> {
    match constant(args, at)? {
        None => Some(None),
        Some(ScalarValue::Int64(Some(number))) => Some(Some(number)),
        Some(_) => None,
    }
}

impl WindowPlan {
    /// What the windows of an operator compute; `None` if one of them is not known.
    pub(super) fn of(windows: &[Arc<dyn WindowExpr>], schema: &Schema) -> Result<Option<Self>> {
        let Some(first) = windows.first() else { return Ok(None) };
        let mut plan = Self {
            expressions: Vec::new(),
            partition_by: Vec::new(),
            order_by: Vec::new(),
            frames: Vec::new(),
            functions: Vec::new(),
            needs_partitions: false,
            needs_all_peers: false,
            near: (0, 0),
            needs_peers: false,
        };
        for key in first.partition_by() {
            let Some(at) = plan.value(key) else { return Ok(None) };
            plan.partition_by.push(at);
        }
        for key in first.order_by() {
            let Some(at) = plan.value(&key.expr) else { return Ok(None) };
            plan.order_by.push(at);
        }
        for window in windows {
            if window.partition_by() != first.partition_by() || window.order_by() != first.order_by() {
                return Ok(None);
            }
            let data_type = window.field()?.data_type().clone();
            let Some((function, needs)) = plan.function(window, &data_type, schema)? else { return Ok(None) };
            match needs {
                Needs::Rows => {}
                Needs::Peers => plan.needs_all_peers = true,
                Needs::Near { before, after } => plan.near = (plan.near.0.max(before), plan.near.1.max(after)),
                Needs::Partition => plan.needs_partitions = true,
            }
            plan.functions.push(Computed { function, needs, data_type });
        }
        let of_peers = |frame: &Frame| frame.start == Bound::Peers || frame.end == Bound::Peers;
        plan.needs_peers |= plan.frames.iter().any(of_peers);
        Ok(Some(plan))
    }

    /// The place of an expression among those that are evaluated; `None` if its values may differ
    /// from one evaluation to the next.
    fn value(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        if is_volatile(expr) {
            return None;
        }
        Some(self.expressions.iter().position(|known| known == expr).unwrap_or_else(|| {
            self.expressions.push(expr.clone());
            self.expressions.len() - 1
        }))
    }

    fn frame(&mut self, frame: Frame) -> usize {
        self.frames.iter().position(|known| *known == frame).unwrap_or_else(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        })
    }

    fn function(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        data_type: &DataType,
        schema: &Schema,
    ) -> Result<Option<(Function, Needs)>> {
        let any = window.as_any();
        if let Some(standard) = any.downcast_ref::<StandardWindowExpr>() {
            let Some(function) = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>() else {
                return Ok(None);
            };
            return self.of_rows(function, window.get_window_frame(), data_type, schema);
        }
        let aggregate =
            match (any.downcast_ref::<PlainAggregateWindowExpr>(), any.downcast_ref::<SlidingAggregateWindowExpr>()) {
                (Some(plain), _) => plain.get_aggregate_expr(),
                (_, Some(sliding)) => sliding.get_aggregate_expr(),
                (None, None) => return Ok(None),
            };
        // DataFusion does not lend the filter, but shows it.
        if !format!("{window:?}").ends_with("filter: None }") {
            return Ok(None);
        }
        self.aggregate(aggregate, window.get_window_frame(), data_type, schema)
    }

    /// A function that is no aggregate.
    fn of_rows(
        &mut self,
        call: &WindowUDFExpr,
        frame: &WindowFrame,
        data_type: &DataType,
        schema: &Schema,
    ) -> Result<Option<(Function, Needs)>> {
        // DataFusion does not lend these, but shows them.
        let shown = format!("{call:?}");
        let is_reversed = match () {
            () if shown.ends_with("is_reversed: false, ignore_nulls: false }") => false,
            () if shown.ends_with("is_reversed: true, ignore_nulls: false }") => true,
            () => return Ok(None),
        };
        let (name, args) = (call.fun().name(), call.args());
        if call.fun().signature().volatility != Volatility::Immutable {
            return Ok(None);
        }
        let has_number = matches!(data_type, DataType::Int32 | DataType::Int64 | DataType::UInt64);
        Ok(match name {
            "row_number" if has_number => Some((Function::RowNumber, Needs::Rows)),
            "rank" | "dense_rank" if has_number => {
                self.needs_peers = true;
                Some((if name == "rank" { Function::Rank } else { Function::DenseRank }, Needs::Rows))
            }
            "percent_rank" | "cume_dist" if *data_type == DataType::Float64 => {
                self.needs_peers = true;
                let function = if name == "cume_dist" { Function::CumeDist } else { Function::PercentRank };
                Some((function, Needs::Partition))
            }
            "ntile" if has_number => match number(args, 0) {
                Some(Some(tiles @ 1..)) => Some((Function::Ntile(tiles.unsigned_abs()), Needs::Partition)),
                _ => None,
            },
            "lag" | "lead" => {
                let (Some(distance), Some(default)) = (number(args, 1), constant(args, 2)) else { return Ok(None) };
                let distance = distance.unwrap_or(1);
                if args.is_empty() || args[0].data_type(schema)? != *data_type || distance == i64::MIN {
                    return Ok(None);
                }
                let default = match default {
                    Some(default) if !default.is_null() => default.cast_to(data_type)?,
                    _ => ScalarValue::try_from(data_type)?,
                };
                let distance = if (name == "lag") != is_reversed { -distance } else { distance };
                let function = self.value(&args[0]).map(|value| Function::Shift { value, distance, default });
                function.map(|function| (function, Needs::near(distance, distance)))
            }
            "first_value" | "last_value" | "nth_value" => {
                let (Some(frame), Some(value)) = (frame_of(frame), args.first()) else { return Ok(None) };
                if value.data_type(schema)? != *data_type {
                    return Ok(None);
                }
                let nth = match name {
                    "first_value" => Nth::FromStart(0),
                    "last_value" => Nth::FromEnd(0),
                    _ => match number(args, 1) {
                        Some(Some(i64::MIN)) | Some(None) | None => return Ok(None),
                        Some(Some(number)) => {
                            let from_zero = number.unsigned_abs().wrapping_sub(1);
                            match number.signum() * if is_reversed { -1 } else { 1 } {
                                0 => Nth::None,
                                1 => Nth::FromStart(from_zero),
                                _ => Nth::FromEnd(from_zero),
                            }
                        }
                    },
                };
                let needs = match (nth, needs_of(frame)) {
                    // Rows before those that are there may be asked for.
                    (Nth::FromEnd(1..), Needs::Rows | Needs::Peers) => Needs::Partition,
                    (_, needs) => needs,
                };
                let (value, frame) = (self.value(value), self.frame(frame));
                value.map(|value| (Function::Nth { value, frame, nth }, needs))
            }
            _ => None,
        })
    }

    fn aggregate(
        &mut self,
        aggregate: &AggregateFunctionExpr,
        frame: &WindowFrame,
        data_type: &DataType,
        schema: &Schema,
    ) -> Result<Option<(Function, Needs)>> {
        let (function, args) = (aggregate.fun(), aggregate.expressions());
        let is_plain = !aggregate.is_distinct()
            && !aggregate.ignore_nulls()
            && aggregate.order_bys().is_empty()
            && function.signature().volatility == Volatility::Immutable;
        let Some(frame) = frame_of(frame).filter(|_| is_plain && MERGED.contains(&function.name())) else {
            return Ok(None);
        };
        if frame.is_partition() {
            let values: Option<Vec<usize>> = args.iter().map(|arg| self.value(arg)).collect();
            let Some(values) = values else { return Ok(None) };
            let function = Function::OfPartition { aggregate: Arc::new(aggregate.clone()), values };
            return Ok(Some((function, Needs::Partition)));
        }
        let [arg] = &args[..] else { return Ok(None) };
        let given = arg.data_type(schema)?;
        let at = self.frame(frame);
        let is_row = arg.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null());
        if function.name() == "count" && is_row && *data_type == DataType::Int64 {
            return Ok(Some((Function::Count { value: None, frame: at }, needs_of(frame))));
        }
        let Some(value) = self.value(arg) else { return Ok(None) };
        let function = match (function.name(), &given, data_type) {
            ("count", _, DataType::Int64) => Function::Count { value: Some(value), frame: at },
            ("sum", DataType::Int64, DataType::Int64) => {
                Function::ExactSum { value, frame: at, data_type: data_type.clone() }
            }
            ("sum", DataType::Decimal128(_, from), DataType::Decimal128(_, to)) if from == to => {
                Function::ExactSum { value, frame: at, data_type: data_type.clone() }
            }
            ("sum" | "avg", DataType::Float64, DataType::Float64) => {
                Function::FloatSum { value, frame: at, averages: function.name() == "avg" }
            }
            ("min" | "max", given, result) if given == result && has_extremes(given) => {
                Function::Extreme { value, frame: at, is_greatest: function.name() == "max" }
            }
            _ => return Ok(None),
        };
        Ok(Some((function, needs_of(frame))))
    }
}

/// The rows that a function over a frame needs. One over a frame that grows from the first row of a
/// partition keeps a state.
fn needs_of(frame: Frame) -> Needs {
    match (frame.start, frame.end) {
        (Bound::Partition, Bound::Row(0)) => Needs::Rows,
        (Bound::Partition, Bound::Peers) => Needs::Peers,
        (Bound::Row(first), Bound::Row(last)) => Needs::near(first, last),
        _ => Needs::Partition,
    }
}
