//! DataFusion's rule that drops operators over empty relations. Here the only branch left of a
//! UNION keeps the UNION's columns: their names and qualifiers, by which the operators above know
//! them, and their types.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, which keeps the columns of a UNION.
#[derive(Debug, Default)]
pub struct EmptyBranches(PropagateEmptyRelation);

impl OptimizerRule for EmptyBranches {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Union(union) = &plan else { return self.0.rewrite(plan, config) };
        let is_empty = |plan: &LogicalPlan| matches!(plan, LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row);
        let mut branches = union.inputs.iter().filter(|branch| !is_empty(branch));
        let (Some(left), None) = (branches.next(), branches.next()) else { return self.0.rewrite(plan, config) };
        let columns = left.schema().columns().into_iter().zip(left.schema().fields()).zip(union.schema.iter());
        let columns = columns.map(|((column, field), (qualifier, wanted))| {
            let value = match field.data_type() == wanted.data_type() {
                true => Expr::Column(column),
                false => cast(Expr::Column(column), wanted.data_type().clone()),
            };
            value.alias_qualified(qualifier.cloned(), wanted.name())
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(Transformed::yes(LogicalPlanBuilder::from(left.as_ref().clone()).project(columns)?.build()?))
    }
}
