//! Aggregates over window frames whose values grow with the frame, within the session's memory.
//!
//! `string_agg(x, ',') OVER (ORDER BY id)` gives each row a text of its own, the longer the later
//! it comes. So 10,000 rows of 10 bytes have values of half a gigabyte together, before an operator
//! can count them. Here each value takes its bytes from the session's memory as it is made, or the
//! statement fails (53200). A window that gives its rows batch by batch holds the values of some
//! thousand rows at a time: these count. Another window holds all values of a partition. If its
//! frame is the whole partition, the value is computed once, and each row gets a copy.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature, WindowFunctionDefinition,
};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Aggregates whose values hold all values of their rows. Documents are made of arrays.
const GROWING: [&str; 2] = ["array_agg", "string_agg"];
/// Values that a window holds which gives its rows batch by batch.
const HELD: usize = 8_192;

/// Whether the values of a window function grow, and are not counted yet.
pub(super) fn is_growing(window: &WindowFunction) -> bool {
    match &window.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            GROWING.contains(&function.name()) && !function.inner().is::<Growing>()
        }
        WindowFunctionDefinition::WindowUDF(_) => false,
    }
}

/// The window function within `memory`.
pub(super) fn counted(mut window: WindowFunction, memory: &Arc<dyn MemoryPool>) -> WindowFunction {
    if let WindowFunctionDefinition::AggregateUDF(function) = &window.fun {
        let frame = &window.params.window_frame;
        // DataFusion gives the rows of a frame without an end once the whole partition is there.
        let held = match (frame.start_bound.is_unbounded(), frame.end_bound.is_unbounded()) {
            (_, false) => Held::Newest,
            (false, true) => Held::All,
            (true, true) => Held::Copies,
        };
        let function = Growing { function: function.clone(), held, memory: memory.clone() };
        window.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(AggregateUDF::from(function)));
    }
    window
}

/// The values that an operator holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Those of some thousand rows.
    Newest,
    /// Those of all rows of a partition.
    All,
    /// A copy of one value for each row of a partition.
    Copies,
}

/// An aggregate over frames whose values are counted.
struct Growing {
    function: Arc<AggregateUDF>,
    held: Held,
    memory: Arc<dyn MemoryPool>,
}

impl fmt::Debug for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name())
    }
}
impl PartialEq for Growing {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.held == other.held
    }
}
impl Eq for Growing {}
impl Hash for Growing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

impl AggregateUDFImpl for Growing {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.function.inner().coerce_types(given)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.function.inner().return_type(given)
    }

    fn return_field(&self, given: &[FieldRef]) -> Result<FieldRef> {
        self.function.inner().return_field(given)
    }

    fn is_nullable(&self) -> bool {
        self.function.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.function.inner().state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.values(self.function.accumulator(args)?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.values(self.function.create_sliding_accumulator(args)?))
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.function.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function.inner().supports_null_handling_clause()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}

impl Growing {
    fn values(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let reservation = MemoryConsumer::new(self.name()).register(&self.memory);
        Box::new(Values { inner, held: self.held, rows: 0, newest: VecDeque::new(), reservation })
    }
}

/// An accumulator whose values are counted for as long as an operator may hold them.
#[derive(Debug)]
struct Values {
    inner: Box<dyn Accumulator>,
    held: Held,
    /// The rows so far.
    rows: usize,
    /// The bytes of the newest values, if only these are held.
    newest: VecDeque<usize>,
    /// Given back when the accumulator is dropped, with its partition.
    reservation: MemoryReservation,
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values.first().map_or(0, |values| values.len());
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        let bytes = value.size();
        let copies = match self.held {
            // Rows share a text.
            Held::Copies if !matches!(value, ScalarValue::Utf8View(_) | ScalarValue::BinaryView(_)) => self.rows,
            _ => 1,
        };
        self.reservation.try_grow(bytes.saturating_mul(copies))?;
        if self.held == Held::Newest {
            self.newest.push_back(bytes);
            if self.newest.len() > HELD
                && let Some(oldest) = self.newest.pop_front()
            {
                self.reservation.shrink(oldest);
            }
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    /// Each value is a text of a thousand bytes.
    #[derive(Debug)]
    struct Thousands;

    impl Accumulator for Thousands {
        fn update_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
            Ok(())
        }

        fn evaluate(&mut self) -> Result<ScalarValue> {
            Ok(ScalarValue::Utf8View(Some("x".repeat(1_000))))
        }

        fn size(&self) -> usize {
            0
        }

        fn state(&mut self) -> Result<Vec<ScalarValue>> {
            Ok(Vec::new())
        }

        fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_count_while_they_are_held() {
        let function = datafusion::functions_aggregate::string_agg::string_agg_udaf();
        for (held, most) in [(Held::Newest, None), (Held::All, Some(20_000))] {
            let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(20_000_000));
            let growing = Growing { function: function.clone(), held, memory: memory.clone() };
            let mut values = growing.values(Box::new(Thousands));
            let failed = (0..30_000).find(|_| values.evaluate().is_err());
            assert_eq!(failed.is_some(), most.is_some());
            assert!(failed.is_none_or(|failed| most.is_some_and(|most| failed < most)));
            assert!(memory.reserved() > 8_000_000);
            drop(values);
            assert_eq!(memory.reserved(), 0);
        }
    }
}
