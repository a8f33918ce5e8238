//! Functions whose results may be far larger than their arguments, within the session's memory.
//!
//! `repeat(s, 2000)` makes of a batch of texts one of thousands of times its size, before any
//! operator can spill or count it. So the functions in [`sizes`] are wrapped: before a call, its
//! result's size is estimated. A value of more than a gigabyte is refused, as PostgreSQL refuses it
//! (54000). A result beyond the call's share of [`FREE`] takes its bytes from the session's memory,
//! or the statement fails (53200). The bytes are given back when the last array in its buffers is
//! dropped. So a query's functions hold no more than the memory for queries and, for each batch
//! that is under way, [`FREE`].
//!
//! Aggregates over window frames whose values grow are wrapped, too ([`windows`]).
//!
//! The operator `||` of texts becomes a wrapped function, too: nested, it doubles its input with
//! every level.
//!
//! Constants are simplified when a statement is planned. A result of more than [`FOLDED`] is left
//! for the execution: as a constant it would lie in the plan, where it is not counted. Long
//! constants of the statement become views, which all rows of a batch share.
//!
//! A function's constant result, which is made once, is given as it is to the function around it.
//! If an operator takes it (as a column of a result, or an argument of an aggregate), it *spreads*:
//! each row of the batch gets a copy, unless it is a view. So a call in such a place counts the
//! copies of all rows.

mod sizes;
mod textcat;
mod windows;

use crate::array_aggregate::bytes_of;
use crate::typed::{flat_condition, map_named};
use datafusion::arrow::array::{ArrayData, ArrayRef, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_values::SqlError;
use serac_values::text_types::is_text;
use sizes::{Arguments, SIZES, Size};
use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

/// The name of the operator `||` of texts as a function, PostgreSQL's.
const TEXTCAT: &str = "textcat";
/// The names of casts as functions ([`super::casts`]): to texts, arrays and documents.
pub(super) const TEXT: &str = "text";
pub(super) const ARRAY: &str = "array_in";
pub(super) const DOCUMENT: &str = "jsonb";
/// Bytes that the functions of a statement share for each batch without asking for them.
const FREE: u64 = 64 << 20;
/// Bytes of a call's share, however many functions there are.
const LEAST_SHARE: u64 = 64 << 10;
/// Bytes that a result may have to become a constant of the plan.
const FOLDED: u64 = 64 << 10;
/// The same where each row of a batch has a copy.
const FOLDED_OF_ROWS: u64 = FREE / 8192;
/// Bytes of a constant text from which on it becomes a view: of others, each row of a batch has a
/// copy.
const LONG: usize = 8 << 10;
/// Bytes that a value may have, as in PostgreSQL.
const LARGEST: u64 = (1 << 30) - 1;

thread_local! {
    /// Whether this thread simplifies constants.
    static FOLDING: Cell<bool> = const { Cell::new(false) };
}

/// A function with the memory that its results take.
struct Accounted {
    function: Arc<ScalarUDF>,
    size: Size,
    /// Bytes of a result that are not taken from `memory`.
    share: u64,
    /// Whether a constant result gets a copy for each row.
    spreads: bool,
    memory: Arc<dyn MemoryPool>,
    signature: Signature,
}

/// The function within `memory`, if its results may be large.
pub fn accounted(function: &Arc<ScalarUDF>, memory: &Arc<dyn MemoryPool>) -> Option<Arc<ScalarUDF>> {
    let names = std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str));
    let (_, size) = SIZES.iter().find(|(name, _)| names.clone().any(|known| known == *name))?;
    Some(wrapped(function.clone(), *size, FREE, memory))
}

fn wrapped(function: Arc<ScalarUDF>, size: Size, share: u64, memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(function.signature().volatility);
    let memory = memory.clone();
    Arc::new(ScalarUDF::from(Accounted { function, size, share, spreads: false, memory, signature }))
}

/// The expression of an operator, with its calls marked as spreading.
fn spread(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| match expr {
        Expr::ScalarFunction(call) => {
            let spreading = call.func.inner().downcast_ref::<Accounted>().filter(|known| !known.spreads);
            let Some(known) = spreading else {
                return Ok(Transformed::new(Expr::ScalarFunction(call), false, TreeNodeRecursion::Jump));
            };
            let (function, size, signature) = (known.function.clone(), known.size, known.signature.clone());
            let (share, memory) = (known.share, known.memory.clone());
            let function = Accounted { function, size, share, spreads: true, memory, signature };
            let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), call.args);
            Ok(Transformed::new(Expr::ScalarFunction(call), true, TreeNodeRecursion::Jump))
        }
        // Casts to the same type do nothing.
        Expr::Alias(_) | Expr::Cast(_) | Expr::Case(_) | Expr::AggregateFunction(_) | Expr::WindowFunction(_) => {
            Ok(Transformed::no(expr))
        }
        other => Ok(Transformed::new(other, false, TreeNodeRecursion::Jump)),
    })
}

impl fmt::Debug for Accounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name())
    }
}
impl PartialEq for Accounted {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.share == other.share && self.spreads == other.spreads
    }
}
impl Eq for Accounted {}
impl Hash for Accounted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// The types to which a function coerces arguments of given types.
pub(super) fn coerced(function: &ScalarUDF, given: &[DataType]) -> Result<Vec<DataType>> {
    let fields: Vec<FieldRef> = given.iter().map(|t| Arc::new(Field::new("", t.clone(), true))).collect();
    Ok(fields_with_udf(&fields, function)?.iter().map(|field| field.data_type().clone()).collect())
}

impl ScalarUDFImpl for Accounted {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = coerced(&self.function, given)?;
        // Views of one long text for many rows share it.
        let view = |t: &DataType| if *t == DataType::Utf8 { DataType::Utf8View } else { t.clone() };
        let views: Vec<DataType> = types.iter().map(view).collect();
        let takes_views = coerced(&self.function, &views).is_ok_and(|taken| taken == views)
            && self.function.return_type(&views).is_ok_and(|t| t == DataType::Utf8View);
        Ok(if takes_views { views } else { types })
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.function.return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.function.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let spreads = is_constant && self.spreads;
        let is_view = *args.return_type() == DataType::Utf8View;
        let enough = match FOLDING.get() {
            true if spreads && !is_view => FOLDED_OF_ROWS,
            true => FOLDED,
            false => self.share,
        };
        let arguments = Arguments::new(&args.args)?;
        // A constant's value is made once.
        let bytes = arguments.results(self.size, args.return_type(), if is_constant { 1 } else { rows }, enough);
        if bytes.largest > LARGEST {
            let message = format!("a result of {}() of more than {LARGEST} bytes", self.name());
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).external());
        }
        if bytes.all <= enough {
            let result = self.function.invoke_with_args(args)?;
            return if spreads { self.spread(result, rows) } else { Ok(result) };
        }
        if FOLDING.get() {
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too large for a constant").external());
        }
        // If texts are no views, each row of a constant gets its own copy.
        let copies = if is_constant && !is_view && !spreads { rows as u64 } else { 1 };
        let needed = bytes.all.saturating_mul(copies);
        let reservation = self.reserved(needed)?;
        let is_short = matches!(args.return_type(), DataType::Utf8 | DataType::Binary);
        if is_short && needed > i32::MAX as u64 {
            let message = format!("the results of {}() for {rows} rows have more than {} bytes", self.name(), i32::MAX);
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).external());
        }
        let result = self.function.invoke_with_args(args)?;
        if spreads && !is_view {
            // `reservation` is of the constant, which goes away with it.
            return self.spread(result, rows);
        }
        Ok(ColumnarValue::Array(with_reservation(result.into_array(rows)?, reservation)))
    }
}

impl Accounted {
    fn reserved(&self, bytes: u64) -> Result<MemoryReservation> {
        let reservation = MemoryConsumer::new(self.name()).register(&self.memory);
        reservation.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(reservation)
    }

    /// A result for `rows` rows; each row gets a copy of a constant.
    fn spread(&self, result: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        let ColumnarValue::Scalar(value) = result else { return Ok(result) };
        let needed = sizes::copied(&value.to_array()?).saturating_mul(rows as u64);
        if needed <= self.share {
            return Ok(ColumnarValue::Scalar(value));
        }
        let reservation = self.reserved(needed)?;
        Ok(ColumnarValue::Array(with_reservation(value.to_array_of_size(rows)?, reservation)))
    }
}

/// A value for `rows` rows. If they have copies that are large together, these are taken from
/// `memory`.
///
/// # Errors
/// 53200 if there is not enough memory, 54000 if an array cannot hold the elements of all rows.
pub fn for_rows(value: ScalarValue, rows: usize, memory: &Arc<dyn MemoryPool>) -> Result<ColumnarValue> {
    let (of_one, elements) = match &value {
        ScalarValue::List(list) => (bytes_of(list.as_ref()), list.values().len()),
        ScalarValue::Utf8View(_) | ScalarValue::BinaryView(_) => (0, 0),
        other => (other.size(), 0),
    };
    let needed = of_one.saturating_mul(rows);
    if needed as u64 <= FREE {
        return Ok(ColumnarValue::Scalar(value));
    }
    let reservation = MemoryConsumer::new("the value of a subquery").register(memory);
    reservation.try_grow(needed)?;
    if elements.saturating_mul(rows) > i32::MAX as usize {
        let message = format!("the arrays of {rows} rows have more than {} elements", i32::MAX);
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).external());
    }
    Ok(ColumnarValue::Array(with_reservation(value.to_array_of_size(rows)?, reservation)))
}

/// Bytes in use, and the memory that they have been taken from.
struct Reserved {
    bytes: Buffer,
    _reservation: AssertUnwindSafe<MemoryReservation>,
}

/// An array that gives `reservation` back when the last that lies in its buffers is dropped.
fn with_reservation(array: ArrayRef, reservation: MemoryReservation) -> ArrayRef {
    let data = array.to_data();
    drop(array);
    let used = data.get_array_memory_size();
    if used < reservation.size() {
        reservation.shrink(reservation.size() - used);
    }
    make_array(with_owner(data, &mut Some(reservation)))
}

/// The data, whose largest buffer holds `reservation`.
fn with_owner(data: ArrayData, reservation: &mut Option<MemoryReservation>) -> ArrayData {
    let own = data.buffers().iter().enumerate().max_by_key(|(_, buffer)| buffer.len());
    let of_own = own.map_or(0, |(_, buffer)| buffer.len());
    let child = data.child_data().iter().enumerate().max_by_key(|(_, child)| child.get_array_memory_size());
    if let Some((at, child)) = child.filter(|(_, child)| child.get_array_memory_size() > of_own) {
        let child = with_owner(child.clone(), reservation);
        let mut children = data.child_data().to_vec();
        children[at] = child;
        // SAFETY: the child has the values that it had.
        return unsafe { data.into_builder().child_data(children).build_unchecked() };
    }
    let (Some((at, _)), Some(reservation)) = (own, reservation.take()) else { return data };
    let mut buffers = data.buffers().to_vec();
    let bytes = buffers[at].clone();
    let (start, len) = (NonNull::from(bytes.as_slice()).cast::<u8>(), bytes.len());
    let owner = Arc::new(Reserved { bytes, _reservation: AssertUnwindSafe(reservation) });
    debug_assert_eq!(owner.bytes.len(), len);
    // SAFETY: the owner has the buffer, whose bytes neither move nor change, for as long as the new
    // one lives.
    buffers[at] = unsafe { Buffer::from_custom_allocation(start, len, owner) };
    // SAFETY: the buffers have the bytes that they had.
    unsafe { data.into_builder().buffers(buffers).build_unchecked() }
}

/// Replaces the planners' functions, and the operator `||` of texts, by functions within a
/// session's memory, and gives each its share of the free memory.
#[derive(Debug)]
pub struct Accounts(pub Arc<dyn MemoryPool>);

impl Accounts {
    fn rewritten(&self, expr: Expr, schema: &DFSchema, share: u64) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                let (is, other) = (left.get_type(schema)?, right.get_type(schema)?);
                if is != other || !is_text(&is) {
                    return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr {
                        left,
                        op: Operator::StringConcat,
                        right,
                    })));
                }
                let (function, size) = (textcat::function(), Size::Factor(1));
                let function = wrapped(function, size, share, &self.0);
                // A chain is one call.
                let mut parts = Vec::new();
                for part in [*left, *right] {
                    match part {
                        Expr::ScalarFunction(call) if textcat::is(&call.func) => parts.extend(call.args),
                        other => parts.push(other),
                    }
                }
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, parts))))
            }
            Expr::ScalarFunction(call) => {
                let (function, size) = match call.func.inner().downcast_ref::<Accounted>() {
                    Some(known) if known.share == share => return Ok(Transformed::no(Expr::ScalarFunction(call))),
                    Some(known) => (known.function.clone(), known.size),
                    None => match SIZES.iter().find(|(name, _)| *name == call.func.name()) {
                        Some((_, size)) => (call.func.clone(), *size),
                        None => return Ok(Transformed::no(Expr::ScalarFunction(call))),
                    },
                };
                let function = wrapped(function, size, share, &self.0);
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args))))
            }
            Expr::WindowFunction(window) if windows::is_growing(&window) => {
                let counted = windows::counted(*window, &self.0);
                Ok(Transformed::yes(Expr::WindowFunction(Box::new(counted))))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Whether a part of an expression may have results that are far larger than its arguments.
fn may_be_large(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => *op == Operator::StringConcat,
        Expr::ScalarFunction(call) => {
            call.func.inner().is::<Accounted>() || SIZES.iter().any(|(name, _)| *name == call.func.name())
        }
        Expr::WindowFunction(window) => windows::is_growing(window),
        _ => false,
    }
}

impl AnalyzerRule for Accounts {
    fn name(&self) -> &str {
        "accounts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        plan.apply_with_subqueries(|plan| {
            plan.apply_expressions(|expr| {
                expr.apply(|part| {
                    count += u64::from(may_be_large(part));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        if count == 0 {
            return Ok(plan);
        }
        let share = (FREE / count).max(LEAST_SHARE);
        let counted =
            crate::typed::rewrite_typed(plan, may_be_large, |expr, schema| self.rewritten(expr, schema, share))?;
        Ok(counted.transform_up_with_subqueries(|plan| plan.map_expressions(spread))?.data)
    }
}

/// DataFusion's rule that simplifies expressions, which makes no large constants.
#[derive(Debug, Default)]
pub struct SmallConstants(SimplifyExpressions);

impl OptimizerRule for SmallConstants {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, mut plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &mut plan {
            LogicalPlan::Filter(filter) => {
                filter.predicate = flat_condition(std::mem::take(&mut filter.predicate));
            }
            LogicalPlan::Join(join) => join.filter = join.filter.take().map(flat_condition),
            _ => {}
        }
        folding(|| self.0.rewrite(plan, config))
    }
}

/// Runs what simplifies expressions, so that it makes no large constants.
pub fn folding<T>(simplify: impl FnOnce() -> T) -> T {
    /// Says it again, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            FOLDING.set(self.0);
        }
    }
    let _before = Before(FOLDING.replace(true));
    simplify()
}

/// Whether this thread [simplifies](folding) expressions. A function that must not become a
/// constant fails then.
pub fn is_folding() -> bool {
    FOLDING.get()
}

/// Makes views of long constant texts, which the rows of a batch share.
#[derive(Debug)]
pub struct LongTexts;

fn as_view(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) if text.len() >= LONG => {
            Transformed::yes(Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata))
        }
        other => Transformed::no(other),
    }
}

impl AnalyzerRule for LongTexts {
    fn name(&self) -> &str {
        "long_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            // The rows of VALUES have the types in its schema, and no copies.
            if matches!(plan, LogicalPlan::Values(_)) {
                return Ok(Transformed::no(plan));
            }
            map_named(plan, |_| true, |expr| expr.transform_up(|expr| Ok(as_view(expr))))?
                .map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(plan.data)
    }
}
