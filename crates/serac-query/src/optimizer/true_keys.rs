//! Rules that conclude from keys, restricted to true keys.
//!
//! DataFusion derives from a plan's functional dependencies which sort keys, groups, DISTINCTs and
//! joins are superfluous. Two of its derivations are false:
//! - A key among the columns of an aggregation decides *all* of its columns there. DataFusion has
//!   that also for the key of one of several joined relations, or of one of several inner
//!   aggregations.
//! - A key of a row counts as a key of the rows that `unnest` makes of it.
//!
//! `SELECT c.id, o.state FROM c JOIN o … GROUP BY 1, 2 ORDER BY 1, 2` would lose its second sort
//! key.
//!
//! [`TrueKeys`] puts an [`Unknown`] above each such node while a rule works that concludes from
//! keys. It has no known properties, so no false conclusion is possible.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, FunctionalDependencies, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A schema without dependencies.
///
/// # Errors
/// DataFusion's.
fn independent(schema: &DFSchema) -> Result<DFSchemaRef> {
    schema.clone().with_functional_dependencies(FunctionalDependencies::empty()).map(Arc::new)
}

/// The rules that conclude from keys.
const CONCLUDING: [&str; 4] =
    ["eliminate_duplicated_expr", "eliminate_join", "optimize_projections", "replace_distinct_aggregate"];

/// A rule that concludes from keys.
#[derive(Debug)]
pub struct TrueKeys(Arc<dyn OptimizerRule + Send + Sync>);

impl TrueKeys {
    /// The rule, which concludes nothing that is not true.
    pub fn of(rule: Arc<dyn OptimizerRule + Send + Sync>) -> Arc<dyn OptimizerRule + Send + Sync> {
        match CONCLUDING.contains(&rule.name()) {
            true => Arc::new(Self(rule)),
            false => rule,
        }
    }
}

impl OptimizerRule for TrueKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // A rule that is shown every node concludes at these alone.
        let concludes = self.apply_order().is_none() || matches!(plan, LogicalPlan::Sort(_) | LogicalPlan::Distinct(_));
        if !concludes || !has_overstated(&plan)? {
            return self.0.rewrite(plan, config);
        }
        let hidden = plan.transform_up_with_subqueries(|plan| {
            let plan = plan.recompute_schema()?;
            Ok(Transformed::yes(match is_overstated(&plan) {
                true => Unknown::above(plan)?,
                false => plan,
            }))
        })?;
        self.0.rewrite(hidden.data, config)?.map_data(|plan| {
            let shown = plan.transform_up_with_subqueries(|plan| match Unknown::beneath(&plan) {
                Some(input) => Ok(Transformed::yes(input)),
                None => Ok(Transformed::yes(plan.recompute_schema()?)),
            })?;
            Ok(shown.data)
        })
    }
}

fn has_overstated(plan: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    plan.apply_with_subqueries(|plan| {
        has |= is_overstated(plan);
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has)
}

/// Whether the schema of a plan has false dependencies.
fn is_overstated(plan: &LogicalPlan) -> bool {
    let aggregate = match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate,
        LogicalPlan::Unnest(unnest) => return !unnest.schema.functional_dependencies().is_empty(),
        _ => return false,
    };
    let schema = aggregate.input.schema();
    if schema.functional_dependencies().is_empty() {
        return false;
    }
    let fields = schema.field_names();
    let names = aggregate.group_expr.iter().map(|group| group.schema_name().to_string());
    let groups: Vec<Option<usize>> = names.map(|name| fields.iter().position(|field| *field == name)).collect();
    schema.functional_dependencies().iter().any(|dependency| {
        let is_group = |source: &usize| groups.contains(&Some(*source));
        let depends = |group: &Option<usize>| group.is_some_and(|group| dependency.target_indices.contains(&group));
        dependency.source_indices.iter().all(is_group) && !groups.iter().all(depends)
    })
}

/// A plan's rows, of which no column is known to depend on others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Unknown {
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl Unknown {
    fn above(input: LogicalPlan) -> Result<LogicalPlan> {
        let schema = independent(input.schema())?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(Self { input, schema }) }))
    }

    /// The plan beneath such an operator; `None` for another plan.
    fn beneath(plan: &LogicalPlan) -> Option<LogicalPlan> {
        let LogicalPlan::Extension(extension) = plan else { return None };
        extension.node.as_any().downcast_ref::<Self>().map(|unknown| unknown.input.clone())
    }
}

impl PartialOrd for Unknown {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for Unknown {
    fn name(&self) -> &str {
        "Unknown"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(input), true) = (inputs.pop(), inputs.is_empty()) else {
            return internal_err!("it has one input");
        };
        let schema = independent(input.schema())?;
        Ok(Self { input, schema })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}
