//! Filters on their way down a physical plan.
//!
//! DataFusion's rules hand filters, and the dynamic filters of joins and sorts, from node to node
//! and find their columns by name. By name, that may be another column: if two columns of joined
//! tables have one name, also where one of them goes no further, if the inputs of a union call it
//! otherwise, or if an aggregation groups by an expression that has the name of a column below.
//! While a rule works, [`ByNames`] puts a [`Barrier`] above such nodes, which filters that name
//! such a column do not pass.

use crate::optimizer::Physical;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// A rule that finds columns by name; see the module.
#[derive(Debug)]
pub struct ByNames(Physical);

impl ByNames {
    /// The rule, with barriers in the plan while it works.
    pub fn around(rule: Physical) -> Physical {
        Arc::new(Self(rule))
    }
}

impl PhysicalOptimizerRule for ByNames {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let with_barriers = plan.transform_up(|node| {
            let passing = columns_by_name(node.as_ref());
            Ok(if passing.len() == node.schema().fields().len() {
                Transformed::no(node)
            } else {
                Transformed::yes(Arc::new(Barrier { node, passing }) as _)
            })
        })?;
        let optimized = self.0.optimize(with_barriers.data, config)?;
        if !with_barriers.transformed {
            return Ok(optimized);
        }
        let without = optimized.transform_up(|node| {
            Ok(match node.downcast_ref::<Barrier>() {
                Some(barrier) => Transformed::yes(barrier.node.clone()),
                None => Transformed::no(node),
            })
        });
        without.data()
    }
}

/// The places of a node's columns whose names mean the same columns to DataFusion's rules.
fn columns_by_name(node: &dyn ExecutionPlan) -> HashSet<usize> {
    let schema = node.schema();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for field in schema.fields() {
        *counts.entry(field.name()).or_default() += 1;
    }
    let (union, aggregate) = (node.downcast_ref::<UnionExec>(), node.downcast_ref::<AggregateExec>());
    // The inputs of a join: a column that it leaves out may have the name of another that it gives.
    let inputs: Vec<SchemaRef> = match (union, &node.children()[..]) {
        (None, inputs @ [_, _, ..]) => inputs.iter().map(|input| input.schema()).collect(),
        _ => Vec::new(),
    };
    let in_inputs_once =
        |name: &str| inputs.iter().flat_map(|input| input.fields()).filter(|field| field.name() == name).count() <= 1;
    let is_plain = |&at: &usize| {
        let name = schema.field(at).name();
        let in_inputs = |union: &UnionExec| union.inputs().iter().all(|input| input.schema().field(at).name() == name);
        let grouped = aggregate.and_then(|aggregate| aggregate.group_expr().expr().get(at));
        let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().is_some_and(|c| c.name() == name);
        counts[name.as_str()] == 1
            && in_inputs_once(name)
            && union.is_none_or(in_inputs)
            && grouped.is_none_or(|(expr, _)| is_column(expr))
    };
    (0..schema.fields().len()).filter(is_plain).collect()
}

/// A node that only lets filters pass that name nothing but certain columns of the node below.
#[derive(Debug)]
struct Barrier {
    node: Arc<dyn ExecutionPlan>,
    passing: HashSet<usize>,
}

impl DisplayAs for Barrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier")
    }
}

impl ExecutionPlan for Barrier {
    fn name(&self) -> &str {
        "Barrier"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.node.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.node]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { node: children[0].clone(), passing: self.passing.clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.node.execute(partition, context)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let child =
            ChildFilterDescription::from_child_with_allowed_indices(&filters, self.passing.clone(), &self.node)?;
        Ok(FilterDescription::new().with_child(child))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}
