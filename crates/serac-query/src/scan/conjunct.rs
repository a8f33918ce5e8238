//! One conjunct of a scan's filter.
//!
//! A comparison of a number, date, time, timestamp or short decimal column with a constant or
//! another such column runs on the raw values with the operators' select kernels (decimals as
//! scaled 64-bit integers). So do a list of constants, the key filter of a join, and the bound of a
//! top-k. Other conjuncts are DataFusion expressions over just the columns they name. They are
//! evaluated on the words of a dictionary if a block has one ([`super::dictionary_predicate`]).
//! Blocks that have values bit-packed answer comparisons themselves ([`super::packed_predicate`]).

use super::dictionary_predicate::constants_of;
use super::join_keys::KeyFilter;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ByteViewType, DataType, Date32Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr::utils::collect_columns;
use serac_operators::key_set::KeySet;
use serac_operators::select::{Comparison, MAX_VIEW_CONSTANTS, positions_of, select, select_pairs, select_views};
use serac_storage::types::PhysicalType;
use serac_storage::{BlockReader, ColumnForm, ColumnId, ColumnType, TableSchema};
use std::ops::RangeInclusive;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(super) enum Constant {
    Int16(i16),
    Int32(i32),
    Int64(i64),
}

impl From<Constant> for i64 {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Int16(v) => v.into(),
            Constant::Int32(v) => v.into(),
            Constant::Int64(v) => v,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    Compare(Comparison, Constant),
    /// The comparison holds, or the value is NULL.
    CompareOrNull(Comparison, Constant),
    CompareColumns(Comparison),
    Among(Arc<Among>),
    Keys(Arc<KeyFilter>),
    Expression {
        expr: Arc<dyn PhysicalExpr>,
        schema: SchemaRef,
        /// For an expression over one column of variable length: the constants that a value must be
        /// among.
        constants: Option<Vec<Vec<u8>>>,
    },
}

/// The constants that a column must be among.
#[derive(Debug)]
pub(super) struct Among {
    /// Ascending and different.
    list: Vec<i64>,
    set: KeySet,
}

impl Among {
    fn new(mut list: Vec<i64>) -> Self {
        list.sort_unstable();
        list.dedup();
        let set = KeySet::new(std::slice::from_ref(&list));
        Self { list, set }
    }

    fn has_any(&self, values: RangeInclusive<i64>) -> bool {
        self.list.get(self.list.partition_point(|v| v < values.start())).is_some_and(|v| v <= values.end())
    }

    fn select<T: Copy + Into<i64>>(&self, values: &[T], nulls: Option<&NullBuffer>) -> Vec<u32> {
        let mut positions = self.set.select(values, nulls);
        if let KeySet::Bloom { .. } = self.set {
            positions.retain(|&at| self.list.binary_search(&values[at as usize].into()).is_ok());
        }
        positions
    }
}

/// A conjunct: the columns it needs, in which form, and the test.
#[derive(Clone, Debug)]
pub(super) struct Conjunct {
    pub(super) columns: Vec<(usize, ColumnForm)>,
    pub(super) test: Test,
    /// A filter that a join or a top-k found at run time. It only saves work: the join or top-k
    /// applies it again.
    pub(super) optional: bool,
    changing: Option<Box<Changing>>,
    rows_in: usize,
    rows_out: usize,
}

/// Rows after which an optional filter must have shown its use.
const TRIAL_ROWS: usize = 32_768;

pub(super) fn comparison_of(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn constant_of(column_type: ColumnType, value: &ScalarValue) -> Option<(Constant, ColumnForm)> {
    let plain = |constant| Some((constant, ColumnForm::Arrow));
    match (column_type, value) {
        (ColumnType::Int16, ScalarValue::Int16(Some(v))) => plain(Constant::Int16(*v)),
        (ColumnType::Int32, ScalarValue::Int32(Some(v))) => plain(Constant::Int32(*v)),
        (ColumnType::Int64, ScalarValue::Int64(Some(v))) => plain(Constant::Int64(*v)),
        (ColumnType::Date, ScalarValue::Date32(Some(v))) => plain(Constant::Int32(*v)),
        (ColumnType::Time, ScalarValue::Time64Microsecond(Some(v))) => plain(Constant::Int64(*v)),
        (ColumnType::Timestamp { utc }, ScalarValue::TimestampMicrosecond(Some(v), zone)) if utc == zone.is_some() => {
            plain(Constant::Int64(*v))
        }
        (ColumnType::Decimal { precision, scale }, ScalarValue::Decimal128(Some(v), _, s))
            if precision <= 18 && *s == scale =>
        {
            Some((Constant::Int64(i64::try_from(*v).ok()?), ColumnForm::Scaled64))
        }
        _ => None,
    }
}

/// The form in which values of a type are compared as integers; `None` if they are not.
fn form_of(column_type: ColumnType) -> Option<ColumnForm> {
    match column_type {
        ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::Date
        | ColumnType::Time
        | ColumnType::Timestamp { .. } => Some(ColumnForm::Arrow),
        ColumnType::Decimal { precision, .. } if precision <= 18 => Some(ColumnForm::Scaled64),
        _ => None,
    }
}

fn compare_columns_of(schema: &TableSchema, binary: &BinaryExpr, comparison: Comparison) -> Option<Conjunct> {
    let (left, right) = (binary.left().downcast_ref::<Column>()?, binary.right().downcast_ref::<Column>()?);
    let column_type = schema.columns.get(left.index())?.column_type;
    if column_type != schema.columns.get(right.index())?.column_type {
        return None;
    }
    let form = form_of(column_type)?;
    Some(Conjunct::with(vec![(left.index(), form), (right.index(), form)], Test::CompareColumns(comparison), false))
}

fn compare_of(schema: &TableSchema, expr: &Arc<dyn PhysicalExpr>) -> Option<Conjunct> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let comparison = comparison_of(*binary.op())?;
    if let Some(conjunct) = compare_columns_of(schema, binary, comparison) {
        return Some(conjunct);
    }
    let (column, literal, comparison) =
        match (binary.left().downcast_ref::<Column>(), binary.right().downcast_ref::<Literal>()) {
            (Some(column), Some(literal)) => (column, literal, comparison),
            _ => (
                binary.right().downcast_ref::<Column>()?,
                binary.left().downcast_ref::<Literal>()?,
                comparison.flipped(),
            ),
        };
    let column_type = schema.columns.get(column.index())?.column_type;
    let (constant, form) = constant_of(column_type, literal.value())?;
    Some(Conjunct::with(vec![(column.index(), form)], Test::Compare(comparison, constant), false))
}

/// The column and the constants of `=`, IN, and OR of these. NULL is equal to nothing.
fn constants_among(
    schema: &TableSchema,
    expr: &Arc<dyn PhysicalExpr>,
    constants: &mut Vec<i64>,
) -> Option<(usize, ColumnForm)> {
    let column_of = |expr: &Arc<dyn PhysicalExpr>| {
        let index = expr.downcast_ref::<Column>()?.index();
        let column_type = schema.columns.get(index)?.column_type;
        Some((index, column_type, form_of(column_type)?))
    };
    if let Some(list) = expr.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let (index, column_type, form) = column_of(list.expr())?;
        for constant in list.list() {
            let value = constant.downcast_ref::<Literal>()?.value();
            if !value.is_null() {
                constants.push(constant_of(column_type, value)?.0.into());
            }
        }
        return Some((index, form));
    }
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Eq => {
            let conjunct = compare_of(schema, expr)?;
            let Test::Compare(_, constant) = conjunct.test else { return None };
            constants.push(constant.into());
            Some(conjunct.columns[0])
        }
        Operator::Or => {
            let left = constants_among(schema, binary.left(), constants)?;
            Some(left).filter(|left| constants_among(schema, binary.right(), constants) == Some(*left))
        }
        _ => None,
    }
}

/// The values of an integer-like column.
enum Raw<'a> {
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Other,
}

fn raw_of(array: &ArrayRef) -> Raw<'_> {
    match array.data_type() {
        DataType::Int16 => Raw::Int16(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => Raw::Int32(array.as_primitive::<Int32Type>().values()),
        DataType::Date32 => Raw::Int32(array.as_primitive::<Date32Type>().values()),
        DataType::Int64 => Raw::Int64(array.as_primitive::<Int64Type>().values()),
        DataType::Time64(TimeUnit::Microsecond) => Raw::Int64(array.as_primitive::<Time64MicrosecondType>().values()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Raw::Int64(array.as_primitive::<TimestampMicrosecondType>().values())
        }
        _ => Raw::Other,
    }
}

/// The positions of the values for which the comparison holds.
fn select_compared(array: &ArrayRef, comparison: Comparison, constant: Constant) -> Result<Vec<u32>> {
    let nulls = array.nulls();
    match (raw_of(array), constant) {
        (Raw::Int16(values), Constant::Int16(v)) => Ok(select(values, nulls, comparison, v)),
        (Raw::Int32(values), Constant::Int32(v)) => Ok(select(values, nulls, comparison, v)),
        (Raw::Int64(values), Constant::Int64(v)) => Ok(select(values, nulls, comparison, v)),
        _ => Err(different_types()),
    }
}

/// The bound of a column that a condition needs: if the condition is true, the comparison of the
/// column with the constant is, or the value is NULL.
#[derive(Clone, Copy)]
struct Bound {
    column: (usize, ColumnForm),
    comparison: Comparison,
    constant: Constant,
    or_null: bool,
}

impl Bound {
    /// The bound that a filter of a top-k has for its first key; its columns are places in
    /// `columns`.
    ///
    /// ```text
    /// a < 7                      a < 7
    /// a < 7 OR a = 7 AND b < 9   a <= 7
    /// a IS NULL OR a < 7         a < 7, or NULL
    /// ```
    fn of(schema: &TableSchema, columns: &[usize], expr: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let column_of = |expr: &Arc<dyn PhysicalExpr>| columns.get(expr.downcast_ref::<Column>()?.index()).copied();
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => Self::of(schema, columns, left).or_else(|| Self::of(schema, columns, right)),
            Operator::Or => {
                if let Some(null) = left.downcast_ref::<IsNullExpr>() {
                    let bound = Self::of(schema, columns, right)?;
                    return (column_of(null.arg())? == bound.column.0).then_some(Self { or_null: true, ..bound });
                }
                Self::of(schema, columns, left)?.or(Self::of(schema, columns, right)?)
            }
            operator => {
                let (comparison, column) = (comparison_of(*operator)?, column_of(left)?);
                let column_type = schema.columns.get(column)?.column_type;
                let (constant, form) = constant_of(column_type, right.downcast_ref::<Literal>()?.value())?;
                Some(Self { column: (column, form), comparison, constant, or_null: false })
            }
        }
    }

    /// The bound that is needed if one of two is.
    fn or(self, other: Self) -> Option<Self> {
        if self.column != other.column || i64::from(self.constant) != i64::from(other.constant) {
            return None;
        }
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let comparison = match (self.comparison, other.comparison) {
            (a, b) if a == b => a,
            (Less | LessOrEqual, Equal | LessOrEqual) => LessOrEqual,
            (Greater | GreaterOrEqual, Equal | GreaterOrEqual) => GreaterOrEqual,
            _ => return None,
        };
        Some(Self { comparison, or_null: self.or_null || other.or_null, ..self })
    }
}

/// A filter that an operator above changes while it runs.
#[derive(Clone, Debug)]
struct Changing {
    filter: Arc<dyn PhysicalExpr>,
    generation: u64,
    /// The columns of the whole filter, and its test.
    columns: Vec<(usize, ColumnForm)>,
    test: Test,
}

/// The positions of the views of a column that equal one of the constants; `None` if views do not
/// decide that.
fn select_constants(array: &ArrayRef, constants: &[Vec<u8>]) -> Option<Vec<u32>> {
    fn of<T: ByteViewType>(array: &GenericByteViewArray<T>, constants: &[Vec<u8>]) -> Vec<u32> {
        select_views(array.views(), array.nulls(), constants, |at| array.value(at).as_ref())
    }
    match array.data_type() {
        _ if constants.len() > MAX_VIEW_CONSTANTS => None,
        DataType::Utf8View => Some(of(array.as_string_view(), constants)),
        DataType::BinaryView => Some(of(array.as_binary_view(), constants)),
        _ => None,
    }
}

fn different_types() -> DataFusionError {
    DataFusionError::Internal("a conjunct was given a column of another type".into())
}

impl Conjunct {
    fn with(columns: Vec<(usize, ColumnForm)>, test: Test, optional: bool) -> Self {
        Self { columns, test, optional, changing: None, rows_in: 0, rows_out: 0 }
    }

    /// The conjunct that leaves the rows whose `column` may be among a join's keys.
    pub(super) fn keys(column: usize, filter: Arc<KeyFilter>) -> Self {
        Self::with(vec![(column, ColumnForm::Arrow)], Test::Keys(filter), true)
    }

    /// The conjunct for an expression over the table's columns.
    pub(super) fn new(schema: &TableSchema, arrow: &Schema, expr: &Arc<dyn PhysicalExpr>) -> Result<Self> {
        if let Some(compare) = compare_of(schema, expr) {
            return Ok(compare);
        }
        let mut constants = Vec::new();
        if let Some(column) = constants_among(schema, expr, &mut constants) {
            return Ok(Self::with(vec![column], Test::Among(Arc::new(Among::new(constants))), false));
        }
        let optional = expr.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
        let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let expr = expr
            .clone()
            .transform(|e| {
                Ok(match e.downcast_ref::<Column>() {
                    Some(column) => {
                        let at = columns.binary_search(&column.index()).expect("it was collected");
                        Transformed::yes(Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>)
                    }
                    None => Transformed::no(e),
                })
            })?
            .data;
        let constants = match columns[..] {
            [column] if schema.columns.get(column).is_some_and(|c| c.column_type.physical() == PhysicalType::View) => {
                constants_of(&expr)
            }
            _ => None,
        };
        let schema = Arc::new(arrow.project(&columns)?);
        let columns: Vec<_> = columns.into_iter().map(|c| (c, ColumnForm::Arrow)).collect();
        let test = Test::Expression { expr: expr.clone(), schema, constants };
        let changing = optional
            .then(|| Box::new(Changing { filter: expr, generation: 0, columns: columns.clone(), test: test.clone() }));
        Ok(Self { changing, ..Self::with(columns, test, optional) })
    }

    /// Takes the bound of a filter that has changed, if it has one.
    pub(super) fn refresh(&mut self, schema: &TableSchema) {
        let Some(changing) = &mut self.changing else { return };
        let Some(filter) = changing.filter.downcast_ref::<DynamicFilterPhysicalExpr>() else { return };
        let generation = filter.snapshot_generation();
        if std::mem::replace(&mut changing.generation, generation) == generation {
            return;
        }
        let columns: Vec<usize> = changing.columns.iter().map(|(column, _)| *column).collect();
        let bound = filter.current().ok().and_then(|filter| Bound::of(schema, &columns, &filter));
        (self.columns, self.test) = match bound {
            Some(Bound { column, comparison, constant, or_null: false }) => {
                (vec![column], Test::Compare(comparison, constant))
            }
            Some(Bound { column, comparison, constant, or_null: true }) => {
                (vec![column], Test::CompareOrNull(comparison, constant))
            }
            None => (changing.columns.clone(), changing.test.clone()),
        };
    }

    /// Whether the conjunct need not be tested any more: it is optional and keeps nearly
    /// everything.
    pub(super) fn is_idle(&self) -> bool {
        self.optional && self.rows_in >= TRIAL_ROWS && self.rows_out * 10 > self.rows_in * 8
    }

    /// Whether no row of a block can qualify, by the smallest and the largest value of its column.
    pub(super) fn excludes(&self, reader: &BlockReader<'_>) -> bool {
        let column = |at: usize| ColumnId(self.columns[at].0 as u16);
        let zone = |at: usize| reader.zone(column(at));
        match &self.test {
            Test::Compare(comparison, constant) => {
                let constant = i64::from(*constant);
                zone(0).is_some_and(|values| comparison.never_holds(values.min..=values.max, constant..=constant))
            }
            Test::CompareOrNull(comparison, constant) => {
                let constant = i64::from(*constant);
                zone(0).is_some_and(|values| comparison.never_holds(values.min..=values.max, constant..=constant))
                    && !reader.may_have_nulls(column(0))
            }
            Test::CompareColumns(comparison) => match (zone(0), zone(1)) {
                (Some(left), Some(right)) => comparison.never_holds(left.min..=left.max, right.min..=right.max),
                _ => false,
            },
            Test::Among(among) => zone(0).is_some_and(|values| !among.has_any(values.min..=values.max)),
            Test::Keys(filter) => match (zone(0), filter.keys()) {
                (Some(zone), Some(keys)) => !keys.may_hold(zone.min, zone.max),
                _ => false,
            },
            Test::Expression { .. } => false,
        }
    }

    /// Cost per row that it excludes, by the rows so far: conjuncts run in ascending order of this.
    pub(super) fn rank(&self) -> f64 {
        let cost = match &self.test {
            Test::Compare(..) | Test::CompareOrNull(..) => 1.0,
            Test::CompareColumns(..) | Test::Among(_) | Test::Keys(_) => 2.0,
            Test::Expression { .. } => 8.0,
        };
        let left = if self.rows_in == 0 { 0.5 } else { self.rows_out as f64 / self.rows_in as f64 };
        cost / (1.0 - left).max(1e-3)
    }

    /// The positions, among `rows` rows, at which the conjunct holds; `None` if it holds for all.
    pub(super) fn select(&mut self, arrays: Vec<ArrayRef>, rows: usize) -> Result<Option<Vec<u32>>> {
        let positions = match &self.test {
            Test::Compare(comparison, constant) => select_compared(&arrays[0], *comparison, *constant)?,
            Test::CompareOrNull(comparison, constant) => {
                let mut positions = select_compared(&arrays[0], *comparison, *constant)?;
                if let Some(nulls) = arrays[0].nulls().filter(|nulls| nulls.null_count() > 0) {
                    positions.extend((0..rows as u32).filter(|row| nulls.is_null(*row as usize)));
                    positions.sort_unstable();
                }
                positions
            }
            Test::CompareColumns(comparison) => {
                let nulls = NullBuffer::union(arrays[0].nulls(), arrays[1].nulls());
                match (raw_of(&arrays[0]), raw_of(&arrays[1])) {
                    (Raw::Int16(l), Raw::Int16(r)) => select_pairs(l, r, nulls.as_ref(), *comparison),
                    (Raw::Int32(l), Raw::Int32(r)) => select_pairs(l, r, nulls.as_ref(), *comparison),
                    (Raw::Int64(l), Raw::Int64(r)) => select_pairs(l, r, nulls.as_ref(), *comparison),
                    _ => return Err(different_types()),
                }
            }
            Test::Among(among) => {
                let nulls = arrays[0].nulls();
                match raw_of(&arrays[0]) {
                    Raw::Int16(values) => among.select(values, nulls),
                    Raw::Int32(values) => among.select(values, nulls),
                    Raw::Int64(values) => among.select(values, nulls),
                    Raw::Other => return Err(different_types()),
                }
            }
            Test::Keys(filter) => {
                // Not known yet: no trial.
                let Some(keys) = filter.keys() else { return Ok(None) };
                let nulls = arrays[0].nulls();
                match raw_of(&arrays[0]) {
                    Raw::Int16(values) => keys.select(values, nulls),
                    Raw::Int32(values) => keys.select(values, nulls),
                    Raw::Int64(values) => keys.select(values, nulls),
                    Raw::Other => return Err(different_types()),
                }
            }
            Test::Expression { constants: Some(constants), .. }
                if let Some(positions) = select_constants(&arrays[0], constants) =>
            {
                positions
            }
            Test::Expression { expr, schema, .. } => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
                let outcome = expr.evaluate(&batch)?;
                if let datafusion::logical_expr::ColumnarValue::Scalar(ScalarValue::Boolean(value)) = outcome {
                    // A filter that is not known yet says "true": that is no trial.
                    return Ok((value != Some(true)).then(Vec::new));
                }
                let outcome = outcome.into_array(rows)?;
                let outcome = outcome.as_boolean();
                positions_of(outcome.values(), outcome.nulls())
            }
        };
        Ok(self.selected(positions, rows))
    }

    /// Notes that `positions` of `rows` rows are left; `None` if that is all.
    pub(super) fn selected(&mut self, positions: Vec<u32>, rows: usize) -> Option<Vec<u32>> {
        self.note(rows, positions.len());
        (positions.len() < rows).then_some(positions)
    }

    /// Notes that it left so many of `rows` rows.
    pub(super) fn note(&mut self, rows: usize, left: usize) {
        self.rows_in += rows;
        self.rows_out += left;
    }
}
