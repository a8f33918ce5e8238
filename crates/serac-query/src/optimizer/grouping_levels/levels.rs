//! The grouping sets of an aggregation: their keys, the sets that they are made from, and the plans
//! that merge their states.

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy, evaluate_group_by};
use datafusion::physical_plan::empty::EmptyExec;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// A grouping set.
#[derive(Debug)]
pub(super) struct Level {
    /// The places of its keys among all keys, in ascending order.
    pub(super) keys: Vec<usize>,
    grouping_id: ScalarValue,
    /// Merges rows of states with these keys; its input is replaced by them.
    merge: OnceLock<Arc<AggregateExec>>,
    /// The levels from whose states this one may be made, beside the finest: they have all its
    /// keys, and no other such level has fewer than they.
    pub(super) parents: Vec<usize>,
    /// The last level that has this one among its parents; itself if there is none.
    pub(super) last_child: usize,
}

/// The sets of an aggregation, and the columns of their states.
#[derive(Debug)]
pub(super) struct Levels {
    /// The names of all keys.
    pub(super) names: Vec<String>,
    /// The places of the keys of the finest level.
    pub(super) finest_keys: Vec<usize>,
    /// The sets, those of most keys first.
    pub(super) all: Vec<Level>,
    /// The first step of the aggregation that this replaces, over no rows: a set without keys has a
    /// group then, too.
    pub(super) of_no_rows: Arc<AggregateExec>,
    /// Merges rows of states of any sets; its input is replaced by them.
    merge: OnceLock<Arc<AggregateExec>>,
    pub(super) schema: SchemaRef,
}

impl Levels {
    /// The sets of the first step of an aggregation.
    pub(super) fn new(first: &AggregateExec) -> Result<Self> {
        let by = first.group_expr();
        let level = |(is_null, grouping_id): (&Vec<bool>, ScalarValue)| Level {
            keys: (0..is_null.len()).filter(|key| !is_null[*key]).collect(),
            grouping_id,
            merge: OnceLock::new(),
            parents: Vec::new(),
            last_child: 0,
        };
        let mut all: Vec<Level> = by.groups().iter().zip(grouping_ids(by)?).map(level).collect();
        all.sort_by_key(|level| usize::MAX - level.keys.len());
        find_parents(&mut all);
        let is_used = |key: &usize| by.groups().iter().any(|is_null| !is_null[*key]);
        let nothing = Arc::new(EmptyExec::new(first.input().schema()));
        Ok(Self {
            names: by.expr().iter().map(|(_, name)| name.clone()).collect(),
            finest_keys: (0..by.expr().len()).filter(is_used).collect(),
            all,
            of_no_rows: Arc::new(with_mode(first, AggregateMode::Partial, by.clone(), nothing)?),
            merge: OnceLock::new(),
            schema: first.schema(),
        })
    }

    /// The first step of the aggregation by the keys of all sets.
    pub(super) fn finest(&self, first: &AggregateExec) -> Result<AggregateExec> {
        let by = self.finest_keys.iter().map(|key| first.group_expr().expr()[*key].clone()).collect();
        with_mode(first, AggregateMode::Partial, PhysicalGroupBy::new_single(by), first.input().clone())
    }

    /// Whether a set has the keys of all.
    pub(super) fn has_finest(&self) -> bool {
        self.all[0].keys.len() == self.finest_keys.len()
    }

    /// Keys by name, in parentheses.
    pub(super) fn shown(&self, keys: &[usize]) -> String {
        let names: Vec<&str> = keys.iter().map(|key| self.names[*key].as_str()).collect();
        format!("({})", names.join(", "))
    }

    /// The merge of rows of states, whose first columns are keys. It has no rows yet.
    fn merge(&self, keys: usize, states: SchemaRef) -> Result<Arc<AggregateExec>> {
        let name = |at: usize| states.field(at).name().clone();
        let key = |at: usize| (Arc::new(Column::new(&name(at), at)) as Arc<dyn PhysicalExpr>, name(at));
        let aggregates = self.of_no_rows.aggr_expr().to_vec();
        Ok(Arc::new(AggregateExec::try_new(
            AggregateMode::PartialReduce,
            PhysicalGroupBy::new_single((0..keys).map(key).collect()),
            aggregates.clone(),
            vec![None; aggregates.len()],
            Arc::new(EmptyExec::new(states)),
            self.of_no_rows.input_schema(),
        )?))
    }

    /// The merge of states with the keys of a level, given the columns of the finest.
    pub(super) fn merge_of_level(&self, level: &Level, finest: &Schema) -> Result<Arc<AggregateExec>> {
        if let Some(merge) = level.merge.get() {
            return Ok(merge.clone());
        }
        let columns = columns_of(&self.finest_keys, finest.fields().len(), &level.keys);
        let merge = self.merge(level.keys.len(), Arc::new(finest.project(&columns)?))?;
        Ok(level.merge.get_or_init(|| merge).clone())
    }

    /// The merge of states in the form in which they go out.
    pub(super) fn merge_of_all(&self) -> Result<Arc<AggregateExec>> {
        if let Some(merge) = self.merge.get() {
            return Ok(merge.clone());
        }
        let merge = self.merge(self.names.len() + 1, self.schema.clone())?;
        Ok(self.merge.get_or_init(|| merge).clone())
    }

    /// States of a level as the step above reads them: with all keys, NULL where the set does not
    /// have them, and with the number of the set. The states have the keys `given`.
    pub(super) fn shaped(&self, batch: &RecordBatch, given: &[usize], level: &Level) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for key in 0..self.names.len() {
            let place = given.iter().position(|of| *of == key).filter(|_| level.keys.contains(&key));
            columns.push(match place {
                Some(place) => batch.column(place).clone(),
                None => new_null_array(self.schema.field(key).data_type(), rows),
            });
        }
        columns.push(level.grouping_id.to_array_of_size(rows)?);
        columns.extend_from_slice(&batch.columns()[given.len()..]);
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

/// A step of an aggregation in another mode, with other groups and rows.
pub(super) fn with_mode(
    step: &AggregateExec,
    mode: AggregateMode,
    by: PhysicalGroupBy,
    rows: Arc<dyn ExecutionPlan>,
) -> Result<AggregateExec> {
    let (aggregates, filters) = (step.aggr_expr().to_vec(), step.filter_expr().to_vec());
    AggregateExec::try_new(mode, by, aggregates, filters, rows, step.input_schema())
}

/// The numbers of grouping sets, as DataFusion gives them.
fn grouping_ids(by: &PhysicalGroupBy) -> Result<Vec<ScalarValue>> {
    let null =
        |(_, name): &(Arc<dyn PhysicalExpr>, String)| (Arc::new(Literal::new(ScalarValue::Null)) as _, name.clone());
    let keys: Vec<(Arc<dyn PhysicalExpr>, String)> = by.expr().iter().map(null).collect();
    let by = PhysicalGroupBy::new(keys.clone(), keys, by.groups().to_vec(), true);
    let number = |columns: &Vec<ArrayRef>| match columns.last() {
        Some(number) => ScalarValue::try_from_array(number, 0),
        None => Err(internal_datafusion_err!("a grouping set without a number")),
    };
    evaluate_group_by(&by, &one_row()?)?.iter().map(number).collect()
}

/// A row without columns.
pub(super) fn one_row() -> Result<RecordBatch> {
    let of_one_row = RecordBatchOptions::new().with_row_count(Some(1));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &of_one_row)?)
}

/// The places of some keys in states with more keys, and of the states themselves behind them.
pub(super) fn columns_of(given: &[usize], columns: usize, wanted: &[usize]) -> Vec<usize> {
    let place = |key: &usize| given.iter().position(|of| of == key);
    wanted.iter().filter_map(place).chain(given.len()..columns).collect()
}

/// Sets the parents of levels, which come in descending order of their numbers of keys.
fn find_parents(levels: &mut [Level]) {
    // No more than 64 keys: the number of a set has a bit for each.
    let masks: Vec<u64> = levels.iter().map(|level| level.keys.iter().fold(0, |mask, key| mask | 1 << key)).collect();
    let has_all = |mask: u64, of: u64| of & !mask == 0;
    // A set that stands again is made from the first of its kind, and is nobody's parent.
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = masks.iter().map(|mask| seen.insert(*mask)).collect();
    for at in 0..levels.len() {
        let mut parents: Vec<usize> = Vec::new();
        for other in (0..at).rev() {
            let is_least = || !parents.iter().any(|parent| has_all(masks[other], masks[*parent]));
            if is_first[other] && has_all(masks[other], masks[at]) && is_least() {
                parents.push(other);
            }
        }
        parents.iter().for_each(|parent| levels[*parent].last_child = at);
        levels[at].last_child = at;
        levels[at].parents = parents;
    }
}
