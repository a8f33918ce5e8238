//! Filters on their way down a physical plan.
//!
//! DataFusion's rules hand filters, and the dynamic filters of joins and sorts, from node to node and find their columns by name. That is another column where
//! two have one name (of tables that are joined), where the inputs of a union call it otherwise, and where an aggregation groups by an expression that is
//! called like a column below. [`ByNames`] has a [`Barrier`] stand above such nodes while a rule works, which no filter passes that names such a column.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::fmt;
use std::sync::Arc;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// DataFusion's rules for physical plans, those that hand filters down among barriers.
pub fn physical_rules() -> Vec<Rule> {
    let careful =
        |rule: Rule| if rule.name().starts_with("FilterPushdown") { Arc::new(ByNames(rule)) as Rule } else { rule };
    PhysicalOptimizer::new().rules.into_iter().map(careful).collect()
}

/// A rule that finds columns by name; see the module.
#[derive(Debug)]
struct ByNames(Rule);

impl PhysicalOptimizerRule for ByNames {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let with_barriers = plan.transform_up(|node| {
            let misleading = misleading_names(node.as_ref());
            Ok(if misleading.is_empty() {
                Transformed::no(node)
            } else {
                Transformed::yes(Arc::new(Barrier { node, misleading: misleading.into() }) as _)
            })
        });
        let optimized = self.0.optimize(with_barriers.data()?, config)?;
        let without = optimized.transform_up(|node| {
            Ok(match node.downcast_ref::<Barrier>() {
                Some(barrier) => Transformed::yes(barrier.node.clone()),
                None => Transformed::no(node),
            })
        });
        without.data()
    }
}

/// Names of a node's columns that mean other ones to DataFusion's rules.
fn misleading_names(node: &dyn ExecutionPlan) -> Vec<String> {
    let schema = node.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let is_misleading = |&(at, name): &(usize, &&str)| {
        if names.iter().filter(|other| *other == name).count() > 1 {
            return true;
        }
        if let Some(union) = node.downcast_ref::<UnionExec>() {
            return union.inputs().iter().any(|input| input.schema().field(at).name() != name);
        }
        let grouped = node.downcast_ref::<AggregateExec>().and_then(|aggregate| aggregate.group_expr().expr().get(at));
        grouped.is_some_and(|(expr, _)| expr.downcast_ref::<Column>().is_none_or(|column| column.name() != *name))
    };
    names.iter().enumerate().filter(is_misleading).map(|(_, name)| name.to_string()).collect()
}

/// What no filter passes that names certain columns of the node below.
#[derive(Debug)]
struct Barrier {
    node: Arc<dyn ExecutionPlan>,
    misleading: Arc<[String]>,
}

impl DisplayAs for Barrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier: names=[{}]", self.misleading.join(", "))
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
        Ok(Arc::new(Self { node: children[0].clone(), misleading: self.misleading.clone() }))
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
        let schema = self.node.schema();
        let is_misleading = |at: &usize| self.misleading.iter().any(|name| name == schema.field(*at).name());
        let others = (0..schema.fields().len()).filter(|at| !is_misleading(at)).collect();
        let child = ChildFilterDescription::from_child_with_allowed_indices(&filters, others, &self.node)?;
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
