//! Which columns of a query may stand beside those by which it groups.
//!
//! A query may name columns that depend on a primary key by which it groups. DataFusion knows that
//! from the functional dependencies of a plan's schema. PostgreSQL knows it of tables alone: while
//! names are resolved, what a subquery, a view or a WITH query gives has no dependencies here,
//! either ([`Relations`]).

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::TableFactor;
use serac_query::optimizer::independent;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plans relations as DataFusion does, and takes the dependencies from all but tables.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// Whether the next relation is the one that is being planned. Relaxed: one thread plans.
    is_entered: AtomicBool,
}

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let is_ours = matches!(relation, TableFactor::Table { .. } | TableFactor::Derived { .. });
        if !is_ours || self.is_entered.swap(false, Ordering::Relaxed) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        self.is_entered.store(true, Ordering::Relaxed);
        let plan = context.plan(relation)?;
        let plan = if is_table(&plan) { plan } else { without_dependencies(plan)? };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// Whether a plan gives rows of a single table, each once.
fn is_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_table(&alias.input),
        LogicalPlan::Projection(projection) => is_table(&projection.input),
        _ => false,
    }
}

/// The plan of a relation, whose columns do not depend on each other as far as is known.
fn without_dependencies(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::SubqueryAlias(mut alias) => {
            alias.schema = independent(&alias.schema)?;
            LogicalPlan::SubqueryAlias(alias)
        }
        LogicalPlan::Projection(mut projection) => {
            projection.schema = independent(&projection.schema)?;
            LogicalPlan::Projection(projection)
        }
        other => other,
    })
}
