//! Filters answered by bitmap indexes (the CUBIT paper, §F): bitvector algebra in place of a scan
//! of the columns.
//!
//! Comparisons of an indexed column with constants, combined by AND, OR and NOT, say for which
//! values of each index a row is taken. NOT is pushed down to the comparisons, where it means
//! "false", not "not true": so NULL is treated as SQL wants it. Conditions on the same index become
//! one set of values first (BETWEEN: one range). A set that more than half of the rows have is
//! computed as its complement, and stays inverse as far as it can. Any other expression over one
//! indexed column (LIKE, functions) is evaluated once for each value in the index's directory.
//!
//! Costs decide which of a filter's conjuncts are left to the indexes. The indexes know exactly how
//! many rows have the values. Making a bitvector looks at that many at the most, a scan at all
//! remaining rows.
//!
//! The bitvectors are made for one segment of the table at a time ([`super::segments`]).

use super::conjunct::comparison_of;
use super::lookup::exact;
use super::rows::Rows;
use super::segments::BySegment;
use super::value_set::ValueSet;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::physical_expr::create_physical_expr;
use serac_engine::table::bitmap::BitmapReader;
use serac_engine::values::array_of;
use serac_index::cubit::{Bitvector, Key, Predicate, Selected};
use serac_numeric_functions::keys;
use serac_operators::select::Comparison;
use serac_storage::types::PhysicalType;
use serac_storage::{BlockNo, ColumnType, Value};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::{Arc, OnceLock};

/// Nanoseconds that a scan takes to test a row, by comparison of numbers and by an expression, and
/// that an index takes to put a row into a bitvector. The rows of a frequent value lie in bitmaps,
/// which are combined 64 slots (a word) at a time. All are set so that scans of `serac-bench tpch
/// --bitmap-indexes` that gain nothing stay scans.
const COMPARE_NS: f64 = 0.5;
const EXPRESSION_NS: f64 = 8.0;
const BITVECTOR_NS: f64 = 1.5;
const WORD_NS: f64 = 0.5;
const CONTAINER_NS: f64 = 20.0;
/// If at most one row in this many is left, its value lies in a cache line of its own, …
const ROWS_PER_GATHERED: f64 = 8.0;
/// … which is the least cost of testing it.
const GATHER_NS: f64 = 6.0;
/// The time to find the rows of a join's key.
const KEY_NS: f64 = 200.0;

/// An expression is tried on the values of an index up to this many, …
const MOST_TRIED_VALUES: u64 = 4_096;
/// … if there are at least this many rows for each.
const ROWS_PER_TRIED_VALUE: u64 = 16;

/// The number of join keys that are worth looking up instead of testing `rows` rows.
pub(super) fn most_keys(rows: f64) -> usize {
    (rows * COMPARE_NS / KEY_NS) as usize
}

/// A condition on the values in indexed columns, which says which rows are taken.
#[derive(Clone, Debug)]
enum Condition {
    /// In the index with this number, one of these.
    Values(usize, ValueSet),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

fn is_float(reader: &BitmapReader) -> bool {
    matches!(reader.index().column_type, ColumnType::Float32 | ColumnType::Float64)
}

/// The bitmap indexes of a table, in a snapshot.
pub(super) type Indexes = Arc<[BitmapReader]>;

/// The index that tells with the least effort how many rows there are: every index knows that.
pub(super) fn least(indexes: &[BitmapReader]) -> Option<&BitmapReader> {
    indexes.iter().min_by_key(|index| index.index().entries.leaf_count())
}

/// A table as conditions are made for it.
pub(super) struct Indexed<'a> {
    pub(super) indexes: &'a Indexes,
    /// The table's columns, by their numbers.
    pub(super) schema: &'a Schema,
    pub(super) blocks: u32,
}

impl Indexed<'_> {
    /// An index's number by the column's name in the table.
    fn find(&self, column: &str) -> Option<usize> {
        self.indexes.iter().position(|index| self.schema.field(index.index().definition.column).name() == column)
    }
}

/// The results of an expression over one column for each of these values.
fn evaluated(expr: &Expr, column: &Field, values: ArrayRef) -> Option<BooleanArray> {
    let schema = Arc::new(Schema::new(vec![column.clone().with_nullable(true)]));
    let (of_columns, context) = (DFSchema::try_from(schema.clone()).ok()?, PhysicalPlanningContext::default());
    let expr = create_physical_expr(expr, &of_columns, &ExecutionProps::new(), &context).ok()?;
    let batch = RecordBatch::try_new(schema, vec![values]).ok()?;
    // If it fails, the reason may be a value whose rows other conjuncts exclude.
    let outcome = expr.evaluate(&batch).ok()?.into_array(batch.num_rows()).ok()?;
    outcome.as_boolean_opt().cloned()
}

impl Condition {
    /// The rows for which `expr` is true (`negated`: false); `None` if indexes cannot tell.
    fn new(expr: &Expr, negated: bool, table: &Indexed<'_>) -> Option<Self> {
        Self::by_comparison(expr, negated, table).or_else(|| Self::by_values(expr, negated, table))
    }

    /// An expression over one indexed column, tried on each of the column's values.
    fn by_values(expr: &Expr, negated: bool, table: &Indexed<'_>) -> Option<Self> {
        let columns = expr.column_refs();
        let name = columns.iter().next().filter(|_| columns.len() == 1)?;
        let at = table.find(&name.name)?;
        let reader = &table.indexes[at];
        // The index has one zero for two, and one of 1.0 and 1.00.
        if is_float(reader) || reader.index().column_type == ColumnType::Numeric {
            return None;
        }
        let values = reader.index().entries.value_count();
        if values > MOST_TRIED_VALUES || values * ROWS_PER_TRIED_VALUE > reader.row_count() {
            return None;
        }
        // All that the snapshot sees, in order.
        let keys = reader.counts(Predicate::Range(Bound::Unbounded, Bound::Unbounded)).into_iter().map(|(key, _)| key);
        let keys: Vec<Key> = keys.collect();
        let values: Vec<_> = keys.iter().map(|key| reader.index().value(key)).collect();
        let field = table.schema.field(reader.index().definition.column);
        let outcome = evaluated(expr, field, array_of(&values, reader.index().column_type))?;
        let taken = outcome.iter().map(|holds| holds.is_some_and(|holds| holds != negated));
        Some(Self::Values(at, ValueSet::of_all(keys.into_iter().zip(taken))))
    }

    fn by_comparison(expr: &Expr, negated: bool, table: &Indexed<'_>) -> Option<Self> {
        let indexes = table.indexes;
        let again = |expr, negated| Self::new(expr, negated, table);
        let find = |column: &Expr| match keys::number_of_key(column).unwrap_or(column) {
            Expr::Column(column) => table.find(&column.name),
            _ => None,
        };
        let key = |index: usize, constant: &Expr| -> Option<Key> {
            let Expr::Literal(value, _) = constant else { return None };
            let index = indexes[index].index();
            Some(index.key(exact(value, index.column_type)?.as_value()))
        };
        let values = |index, set: ValueSet| Some(Self::Values(index, if negated { set.others() } else { set }));
        match expr {
            Expr::Not(inner) => again(inner, !negated),
            Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
                let parts = vec![again(&binary.left, negated)?, again(&binary.right, negated)?];
                Some(if (binary.op == Operator::And) != negated { Self::all(parts) } else { Self::any(parts) })
            }
            Expr::BinaryExpr(binary) => {
                let comparison = comparison_of(binary.op)?;
                let (column, constant, comparison) = match keys::number_of_key(&binary.left).unwrap_or(&binary.left) {
                    Expr::Column(_) => (&binary.left, &binary.right, comparison),
                    _ => (&binary.right, &binary.left, comparison.flipped()),
                };
                let index = find(column)?;
                values(index, ValueSet::compared(comparison, key(index, constant)?))
            }
            Expr::Between(between) => {
                let index = find(&between.expr)?;
                let low = ValueSet::compared(Comparison::GreaterOrEqual, key(index, &between.low)?);
                let high = ValueSet::compared(Comparison::LessOrEqual, key(index, &between.high)?);
                let set = low.and(&high);
                values(index, if between.negated { set.others() } else { set })
            }
            Expr::InList(list) => {
                let index = find(&list.expr)?;
                let keys: Vec<Key> = list.list.iter().map(|constant| key(index, constant)).collect::<Option<_>>()?;
                // A search in lists of floating-point numbers distinguishes the two zeros.
                let is_zero = |key: &Key| match indexes[index].index().value(key).as_value() {
                    Value::Float32(v) => v == 0.0,
                    Value::Float64(v) => v == 0.0,
                    _ => false,
                };
                if is_float(&indexes[index]) && keys.iter().any(is_zero) {
                    return None;
                }
                let set = ValueSet::of(keys);
                values(index, if list.negated { set.others() } else { set })
            }
            Expr::IsNull(column) | Expr::IsNotNull(column) => {
                let null = matches!(expr, Expr::IsNull(_)) != negated;
                Some(Self::Values(find(column)?, if null { ValueSet::null() } else { ValueSet::not_null() }))
            }
            // A column of type BOOLEAN.
            Expr::Column(_) => {
                let index = find(expr)?;
                let truth = Expr::Literal(ScalarValue::Boolean(Some(true)), None);
                values(index, ValueSet::of(vec![key(index, &truth)?]))
            }
            _ => None,
        }
    }

    fn all(parts: Vec<Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| if let Self::All(parts) = part { parts } else { vec![part] });
        let mut parts = merged(flat, ValueSet::and);
        if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) }
    }

    fn any(parts: Vec<Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| if let Self::Any(parts) = part { parts } else { vec![part] });
        let mut parts = merged(flat, ValueSet::or);
        if parts.len() == 1 { parts.remove(0) } else { Self::Any(parts) }
    }

    /// Rows that the condition takes (exactly, for values of one index) out of `total`, and the
    /// nanoseconds that it takes to find them.
    fn estimate(&self, indexes: &Indexes, total: f64, blocks: f64) -> (f64, f64) {
        let parts =
            |parts: &[Self]| -> Vec<(f64, f64)> { parts.iter().map(|p| p.estimate(indexes, total, blocks)).collect() };
        match self {
            Self::Values(index, set) => {
                let index = &indexes[*index];
                let rows = set.count(index) as f64;
                let vector_ns = CONTAINER_NS * blocks + WORD_NS * total / 64.0;
                let effort = |set: &ValueSet| set.effort(index, vector_ns, BITVECTOR_NS);
                (rows, if rows * 2.0 > total { effort(&set.complement()) } else { effort(set) })
            }
            Self::All(all) => {
                parts(all).into_iter().fold((total, 0.0), |(rows, work), (r, w)| (rows * r / total.max(1.0), work + w))
            }
            Self::Any(any) => {
                let (rows, work) = parts(any).into_iter().fold((0.0, 0.0), |(rows, work), (r, w)| (rows + r, work + w));
                (rows.min(total), work)
            }
        }
    }

    /// The cost of a row in a scan.
    fn scan_ns(&self, indexes: &Indexes) -> f64 {
        match self {
            Self::Values(index, _) if indexes[*index].index().column_type.physical() == PhysicalType::View => {
                EXPRESSION_NS
            }
            Self::Values(..) => COMPARE_NS,
            // Everything but a comparison is an expression.
            Self::All(parts) | Self::Any(parts) => EXPRESSION_NS * parts.len() as f64,
        }
    }

    /// The condition with its values looked up.
    fn find(&self, indexes: &Indexes, total: u64) -> Found {
        let of_all = |parts: &[Self]| parts.iter().map(|part| part.find(indexes, total)).collect();
        match self {
            Self::Values(index, set) => {
                let index = &indexes[*index];
                let inverse = inverse(set, index, total);
                Found::Values(if inverse { set.complement().select(index) } else { set.select(index) }, inverse)
            }
            Self::All(parts) => Found::All(of_all(parts)),
            Self::Any(parts) => Found::Any(of_all(parts)),
        }
    }

    fn describe(&self, indexes: &Indexes, total: u64) -> String {
        let list = |parts: &[Self], word: &str| -> String {
            let parts: Vec<String> = parts.iter().map(|part| part.describe(indexes, total)).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Self::Values(index, set) => {
                let index = &indexes[*index];
                let name = &index.index().definition.name;
                if inverse(set, index, total) {
                    format!("NOT ({name}: {})", set.complement().describe(index))
                } else {
                    format!("{name}: {}", set.describe(index))
                }
            }
            Self::All(parts) => list(parts, " AND "),
            Self::Any(parts) => list(parts, " OR "),
        }
    }
}

/// A [`Condition`] whose values are looked up.
#[derive(Debug)]
enum Found {
    /// The rows with these values, or all others.
    Values(Vec<Selected>, bool),
    All(Vec<Found>),
    Any(Vec<Found>),
}

impl Found {
    /// The rows in a range of blocks.
    fn rows(&self, blocks: Range<u32>) -> Rows {
        match self {
            Self::Values(selected, inverse) => {
                let mut parts: Vec<Bitvector> = selected.iter().map(|part| part.rows(blocks.clone())).collect();
                let rows = match parts.len() {
                    1 => parts.remove(0),
                    _ => Bitvector::or_many(&parts.iter().collect::<Vec<_>>()),
                };
                if *inverse { Rows::Except(rows) } else { Rows::Only(rows) }
            }
            Self::All(parts) => {
                let parts = parts.iter().map(|part| part.rows(blocks.clone()));
                parts.reduce(Rows::and).expect("a conjunction has parts")
            }
            Self::Any(parts) => {
                let parts = parts.iter().map(|part| part.rows(blocks.clone()));
                parts.reduce(Rows::or).expect("a disjunction has parts")
            }
        }
    }
}

/// Whether fewer rows have the values that are not in the set.
fn inverse(set: &ValueSet, index: &BitmapReader, total: u64) -> bool {
    set.count(index) * 2 > total
}

/// The parts, those on the same index combined.
fn merged(
    parts: impl Iterator<Item = Condition>,
    combine: impl Fn(&ValueSet, &ValueSet) -> ValueSet,
) -> Vec<Condition> {
    let mut result: Vec<Condition> = Vec::new();
    for part in parts {
        if let Condition::Values(index, set) = &part {
            let known = result.iter_mut().find_map(|known| match known {
                Condition::Values(other, known) if other == index => Some(known),
                _ => None,
            });
            if let Some(known) = known {
                *known = combine(known, set);
                continue;
            }
        }
        result.push(part);
    }
    result
}

/// A filter, or a part of one, that bitmap indexes answer.
#[derive(Debug)]
pub(super) struct BitmapFilter {
    indexes: Indexes,
    condition: Condition,
    /// Rows of the table.
    total: u64,
    estimated_rows: f64,
    /// Made when first asked for: one snapshot has one answer.
    found: OnceLock<Found>,
    rows: BySegment<Rows>,
}

impl BitmapFilter {
    /// The filter for those conjuncts of `filters` that indexes answer at less cost than a scan,
    /// and the other conjuncts.
    pub(super) fn find(table: &Indexed<'_>, filters: &[Expr]) -> Option<(Self, Vec<Expr>)> {
        /// Conjuncts that become one condition.
        struct Part {
            condition: Condition,
            conjuncts: Vec<usize>,
            scan_ns: f64,
        }
        let indexes = table.indexes;
        let conjuncts: Vec<&Expr> = filters.iter().flat_map(split_conjunction).collect();
        let mut parts: Vec<Part> = Vec::new();
        for (i, conjunct) in conjuncts.iter().enumerate() {
            let found = match Condition::by_comparison(conjunct, false, table) {
                Some(condition) => Some((condition.scan_ns(indexes), condition)),
                None => Condition::by_values(conjunct, false, table).map(|condition| (EXPRESSION_NS, condition)),
            };
            let Some((scan_ns, condition)) = found else { continue };
            let same = parts.iter_mut().find(|part| match (&part.condition, &condition) {
                (Condition::Values(a, _), Condition::Values(b, _)) => a == b,
                _ => false,
            });
            match same {
                Some(part) => {
                    part.condition = Condition::all(vec![part.condition.clone(), condition]);
                    part.conjuncts.push(i);
                    part.scan_ns += scan_ns;
                }
                None => parts.push(Part { condition, conjuncts: vec![i], scan_ns }),
            }
        }
        if parts.is_empty() {
            return None;
        }
        let total = least(indexes).expect("there is a condition").row_count();
        let (all, blocks) = (total as f64, f64::from(table.blocks));
        let mut parts: Vec<(Part, f64, f64)> = parts
            .into_iter()
            .map(|part| {
                let (rows, work) = part.condition.estimate(indexes, all, blocks);
                (part, rows, work)
            })
            .collect();
        parts.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (mut taken, mut left) = (Vec::new(), all);
        let mut answered = Vec::new();
        for (part, rows, work) in parts {
            let gathered = left * ROWS_PER_GATHERED < all;
            let scan_ns = if gathered { part.scan_ns.max(GATHER_NS) } else { part.scan_ns };
            if work < left * scan_ns {
                left *= rows / all;
                answered.extend(part.conjuncts);
                taken.push(part.condition);
            }
        }
        if taken.is_empty() {
            return None;
        }
        let others = (0..conjuncts.len()).filter(|i| !answered.contains(i)).map(|i| conjuncts[i].clone()).collect();
        let condition = Condition::all(taken);
        let rows = BySegment::new(table.blocks);
        let filter =
            Self { indexes: indexes.clone(), condition, total, estimated_rows: left, found: OnceLock::new(), rows };
        Some((filter, others))
    }

    /// About how many rows the filter leaves; exact where it is about one index.
    pub(super) fn estimated_rows(&self) -> f64 {
        self.estimated_rows
    }

    /// The rows that it leaves, in the segment of a block.
    pub(super) fn rows(&self, no: BlockNo) -> &Rows {
        self.segment(self.rows.of(no))
    }

    /// The number of parts that [`segment`](Self::segment) gives.
    pub(super) fn segments(&self) -> usize {
        self.rows.len()
    }

    /// The rows that it leaves in a segment.
    pub(super) fn segment(&self, segment: usize) -> &Rows {
        self.rows.get(segment, |blocks| {
            self.found.get_or_init(|| self.condition.find(&self.indexes, self.total)).rows(blocks)
        })
    }

    /// Rows of the table.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The number of rows that it leaves, if that is known without their bitvectors.
    pub(super) fn count(&self) -> Option<u64> {
        match &self.condition {
            Condition::Values(index, set) => Some(set.count(&self.indexes[*index])),
            _ => None,
        }
    }

    /// The values that it takes, if it is about this index alone.
    pub(super) fn values_of(&self, index: &BitmapReader) -> Option<&ValueSet> {
        match &self.condition {
            Condition::Values(at, set) if Arc::ptr_eq(self.indexes[*at].index(), index.index()) => Some(set),
            _ => None,
        }
    }
}

impl fmt::Display for BitmapFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, about {} of {} rows",
            self.condition.describe(&self.indexes, self.total),
            self.estimated_rows.ceil(),
            self.total
        )
    }
}
