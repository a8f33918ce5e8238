//! The plan of an aggregation: its keys, and the inputs of its aggregates.

use super::keys::{KeyLayout, MIX};
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use std::sync::Arc;

/// The input of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows: the arguments of aggregates, and their filters.
    Rows,
    /// States of groups.
    States,
}

/// An argument of an aggregate.
#[derive(Clone, Copy, Debug)]
enum Argument {
    Column(usize),
    Constant(usize),
}

/// The inputs of an aggregate.
#[derive(Debug)]
pub(super) struct Inputs {
    arguments: Vec<Argument>,
    filter: Option<usize>,
}

impl Inputs {
    pub(super) fn arguments(&self, columns: &[ArrayRef], constants: &[ArrayRef]) -> Vec<ArrayRef> {
        let given = self.arguments.iter().map(|argument| match argument {
            Argument::Column(at) => columns[*at].clone(),
            Argument::Constant(at) => constants[*at].clone(),
        });
        given.collect()
    }

    pub(super) fn filter<'a>(&self, columns: &'a [ArrayRef]) -> Option<&'a BooleanArray> {
        self.filter.map(|at| columns[at].as_boolean())
    }
}

/// An aggregation.
#[derive(Debug)]
pub(super) struct AggregatePlan {
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    pub(super) layout: KeyLayout,
    /// The expressions of the keys, …
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// … and of what aggregates need of rows, each once.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    constants: Vec<ScalarValue>,
    pub(super) inputs: Vec<Inputs>,
    /// The columns of each aggregate's state.
    pub(super) states: Vec<usize>,
    /// Partitions of the plan, and the bits by which each is divided into buckets.
    pub(super) partitions: usize,
    pub(super) bucket_bits: u32,
    /// The columns of states, and of results.
    pub(super) state_schema: SchemaRef,
    pub(super) schema: SchemaRef,
}

impl AggregatePlan {
    /// The plan of an aggregation in two steps; `None` if the operator cannot do it.
    pub(super) fn new(
        first: &AggregateExec,
        last: &AggregateExec,
        partitions: usize,
        bucket_bits: u32,
    ) -> Result<Option<Self>> {
        let keys: Vec<_> = first.group_expr().input_exprs();
        let (state_schema, schema) = (first.schema(), last.schema());
        let key_schema = Schema::new(state_schema.fields()[..keys.len()].to_vec());
        let Some(layout) = KeyLayout::new(Arc::new(key_schema)) else { return Ok(None) };
        let (mut columns, mut constants, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        let mut states = Vec::new();
        let column = |expr: &Arc<dyn PhysicalExpr>, columns: &mut Vec<Arc<dyn PhysicalExpr>>| {
            columns.iter().position(|known| known == expr).unwrap_or_else(|| {
                columns.push(expr.clone());
                columns.len() - 1
            })
        };
        for (aggregate, filter) in first.aggr_expr().iter().zip(first.filter_expr()) {
            if !aggregate.groups_accumulator_supported() || !aggregate.order_bys().is_empty() {
                return Ok(None);
            }
            let arguments = aggregate.expressions();
            let arguments = arguments.iter().map(|argument| match argument.downcast_ref::<Literal>() {
                Some(constant) => {
                    constants.push(constant.value().clone());
                    Argument::Constant(constants.len() - 1)
                }
                None => Argument::Column(column(argument, &mut columns)),
            });
            let arguments = arguments.collect();
            let filter = filter.as_ref().map(|filter| column(filter, &mut columns));
            inputs.push(Inputs { arguments, filter });
            states.push(aggregate.state_fields()?.len());
        }
        let aggregates = first.aggr_expr().to_vec();
        Ok(Some(Self {
            aggregates,
            layout,
            keys,
            columns,
            constants,
            inputs,
            states,
            partitions,
            bucket_bits,
            state_schema,
            schema,
        }))
    }

    pub(super) fn accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        self.aggregates.iter().map(|aggregate| aggregate.create_groups_accumulator()).collect()
    }

    /// The keys of a batch, and the columns that aggregates need.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
        let all = |exprs: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<ArrayRef>> {
            exprs.iter().map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
        };
        Ok((all(&self.keys)?, all(&self.columns)?))
    }

    /// Columns of the aggregates' constants.
    pub(super) fn constants(&self, rows: usize) -> Result<Vec<ArrayRef>> {
        self.constants.iter().map(|constant| constant.to_array_of_size(rows)).collect()
    }

    /// The columns of rows, or of states.
    pub(super) fn column_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Rows => self.columns.len(),
            Kind::States => self.states.iter().sum(),
        }
    }

    /// The buckets of all partitions.
    pub(super) fn bucket_count(&self) -> usize {
        self.partitions << self.bucket_bits
    }

    /// The hashes by which DataFusion's operator distributes rows. Joins above may rely on its
    /// partitions.
    pub(super) fn hash(&self, keys: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) -> Result<()> {
        hashes.clear();
        hashes.resize(rows, 0);
        create_hashes(keys, REPARTITION_RANDOM_STATE.random_state(), hashes)?;
        Ok(())
    }

    /// The bucket of each row.
    pub(super) fn buckets(&self, hashes: &[u64], buckets: &mut Vec<u32>) {
        buckets.clear();
        let (partitions, bits) = (self.partitions as u64, self.bucket_bits);
        let mask = (1 << bits) - 1;
        let bucket =
            |hash: u64, partition: u64| (partition as u32) << bits | (mixed(hash).rotate_left(bits) as u32 & mask);
        match partitions.is_power_of_two() {
            true => buckets.extend(hashes.iter().map(|hash| bucket(*hash, hash & (partitions - 1)))),
            false => buckets.extend(hashes.iter().map(|hash| bucket(*hash, hash % partitions))),
        }
    }

    /// The hash of a row within its bucket, of other bits.
    pub(super) fn within_bucket(&self, hash: u64) -> u32 {
        (mixed(hash) << self.bucket_bits >> 32) as u32
    }
}

/// A hash whose first bits are good, of one that has some good bits.
#[inline]
fn mixed(hash: u64) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(MIX)
}
