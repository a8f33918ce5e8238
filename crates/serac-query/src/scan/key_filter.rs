//! Key filters: a hash join tells the scans of its probe side which keys its build side has.
//!
//! DataFusion finds out which scans a join's dynamic filter reaches. [`key_path`] finds those that
//! it does not: because columns share a name, or because a join below has the key on both sides.
//! [`KeyFilterPushdown`] uses our filters instead, for those keys that are integers or dates.
//! [`KeyFilterBuildExec`], in the build side, notes the keys that pass by. When all partitions have
//! ended, they become a [`KeySet`](serac_operators::key_set::KeySet). From then on the scan tests
//! its rows against it before it reads other columns. A filter that never becomes known (a build
//! side that is given up half-way) lets all rows pass; the join decides in any case.
//!
//! If the scan has a bitmap index on the key, a filter keeps the keys themselves, too, up to as
//! many as the scan would look up (the CUBIT join, §F). The scan then takes the union of their
//! bitvectors instead of testing every row.

use super::exec::SeracScanExec;
use super::join_keys::{KeyFilter, is_key_type, note_keys};
use super::key_path;
use super::plan::replace_nodes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::apply_expression_roots;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::TryStreamExt;
use std::fmt;
use std::sync::Arc;

/// Hands its input on and notes the keys in it.
#[derive(Debug)]
pub(super) struct KeyFilterBuildExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<(Arc<dyn PhysicalExpr>, Arc<KeyFilter>)>,
}

impl DisplayAs for KeyFilterBuildExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(|(key, _)| key.to_string()).collect();
        write!(f, "KeyFilterBuildExec: keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for KeyFilterBuildExec {
    fn name(&self) -> &str {
        "KeyFilterBuildExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.keys.iter().map(|(key, _)| key), f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { input: children[0].clone(), keys: self.keys.clone() }))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.keys.iter().for_each(|(_, filter)| filter.reset());
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        struct Noting {
            input: SendableRecordBatchStream,
            /// `None` once memory has run short.
            noted: Option<Vec<Vec<i64>>>,
        }
        let schema: SchemaRef = self.schema();
        let reservation = MemoryConsumer::new("KeyFilterBuild").register(context.memory_pool());
        let noting =
            Noting { input: self.input.execute(partition, context)?, noted: Some(vec![Vec::new(); self.keys.len()]) };
        let keys = self.keys.clone();
        let batches = futures::stream::try_unfold((noting, reservation), move |(mut noting, reservation)| {
            let keys = keys.clone();
            async move {
                let Some(batch) = noting.input.try_next().await? else {
                    for ((_, filter), noted) in keys.iter().zip(noting.noted.into_iter().flatten()) {
                        filter.finish_partition(noted);
                    }
                    return Ok(None);
                };
                // The keys themselves, and the set of them.
                let bytes = 2 * 8 * batch.num_rows() * keys.len();
                if noting.noted.is_some() && reservation.try_grow(bytes).is_err() {
                    noting.noted = None;
                    reservation.free();
                }
                for ((key, _), noted) in keys.iter().zip(noting.noted.iter_mut().flatten()) {
                    note_keys(&key.evaluate(&batch)?.into_array(batch.num_rows())?, noted);
                }
                Ok(Some((batch, (noting, reservation))))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Puts key filters in the place of DataFusion's dynamic join filters; see the module.
#[derive(Debug, Default)]
pub struct KeyFilterPushdown;

impl PhysicalOptimizerRule for KeyFilterPushdown {
    fn name(&self) -> &str {
        "key_filter_pushdown"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !config.optimizer.enable_join_dynamic_filter_pushdown {
            return Ok(plan);
        }
        replace_nodes(plan, push_down)
    }
}

/// The key columns of the scan for the dynamic filter `id`, if they can all be tested against key
/// sets.
fn scan_keys(scan: &SeracScanExec, id: u64) -> Option<Vec<usize>> {
    let filter = scan.filters().iter().find(|filter| filter.expression_id() == Some(id))?;
    let filter = filter.downcast_ref::<DynamicFilterPhysicalExpr>()?;
    let schema = scan.full_schema();
    filter
        .children()
        .into_iter()
        .map(|key| {
            key.downcast_ref::<Column>().map(Column::index).filter(|&i| is_key_type(schema.field(i).data_type()))
        })
        .collect()
}

fn push_down(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(id) = join.dynamic_expressions_produced().first().and_then(|filter| filter.expression_id()) else {
        return Ok(None);
    };
    let build_schema = join.left().schema();
    let build_keys: Vec<_> = join.on().iter().map(|(build, _)| build.clone()).collect();
    let of_key_type =
        |key: &Arc<dyn PhysicalExpr>| key.data_type(&build_schema).is_ok_and(|data_type| is_key_type(&data_type));
    let is_known: Vec<bool> = build_keys.iter().map(of_key_type).collect();
    let (all_known, none_known) = (!is_known.contains(&false), !is_known.contains(&true));
    if join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing || none_known {
        return Ok(None);
    }
    // Below the distribution of rows: all of these partitions end before any of those above, so
    // that the probe side begins with the filter.
    let dealt = join.left().downcast_ref::<RepartitionExec>().filter(|dealt| !dealt.preserve_order());
    let noted = dealt.map_or(join.left(), |dealt| dealt.input());
    let partitions = noted.output_partitioning().partition_count();
    let filters: Vec<_> = build_keys.iter().map(|_| Arc::new(KeyFilter::new(partitions))).collect();
    let probe = join.right().clone().transform_up(|plan| {
        let scan = plan.downcast_ref::<SeracScanExec>().filter(|_| all_known);
        Ok(match scan.and_then(|scan| Some((scan, scan_keys(scan, id)?))) {
            Some((scan, columns)) => {
                let key_filters = columns.into_iter().zip(filters.iter().cloned());
                Transformed::yes(Arc::new(scan.with_key_filters(id, key_filters)) as _)
            }
            None => Transformed::no(plan),
        })
    })?;
    let columns: key_path::Keys = (join.on().iter().enumerate())
        .filter(|(key, _)| is_known[*key])
        .filter_map(|(key, (_, probe))| Some((probe.downcast_ref::<Column>()?.index(), key)))
        .collect();
    let with_filters = |scan: &SeracScanExec, keys: &[(usize, usize)]| {
        let schema = scan.full_schema();
        let is_new = |(column, filter): &(usize, Arc<KeyFilter>)| {
            is_key_type(schema.field(*column).data_type()) && !scan.has_key_filter(*column, filter)
        };
        let columns = keys.iter().filter_map(|&(output, key)| Some((scan.table_column(output)?, filters[key].clone())));
        let new: Vec<_> = columns.filter(is_new).collect();
        (!new.is_empty()).then(|| scan.with_key_filters(id, new))
    };
    let probe = match key_path::replace_scans(&probe.data, &columns, &with_filters)? {
        Some(reached) => reached,
        None if probe.transformed => probe.data,
        None => return Ok(None),
    };
    let keys = build_keys.into_iter().zip(filters).zip(is_known);
    let keys = keys.filter(|(_, is_known)| *is_known).map(|(key, _)| key).collect();
    let mut build: Arc<dyn ExecutionPlan> = Arc::new(KeyFilterBuildExec { input: noted.clone(), keys });
    if let Some(dealt) = dealt {
        build = Arc::new(RepartitionExec::try_new(build, dealt.partitioning().clone())?);
    }
    Ok(Some(join.builder().with_new_children(vec![build, probe])?.build_exec()?))
}
