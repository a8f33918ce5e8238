//! Rules that end when the plan is abandoned: each asks at every node before it works
//! ([`crate::deep`]).

use crate::deep;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizerContext;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Any rule of the analyzer.
pub type Analyzing = Arc<dyn AnalyzerRule + Send + Sync>;
/// Any rule of the optimizer.
pub type Optimizing = Arc<dyn OptimizerRule + Send + Sync>;
/// Any rule for physical plans.
pub type Physical = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A rule of the analyzer.
#[derive(Debug)]
pub struct AskingAnalyzer(Analyzing);

impl AskingAnalyzer {
    /// The rule, which asks.
    pub fn of(rule: Analyzing) -> Analyzing {
        Arc::new(Self(rule))
    }
}

impl AnalyzerRule for AskingAnalyzer {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        deep::check()?;
        self.0.analyze(plan, config)
    }
}

/// A rule of the optimizer.
#[derive(Debug)]
pub struct AskingRule(Optimizing);

impl AskingRule {
    /// The rule, which asks.
    pub fn of(rule: Optimizing) -> Optimizing {
        Arc::new(Self(rule))
    }
}

impl OptimizerRule for AskingRule {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        deep::check()?;
        self.0.rewrite(plan, config)
    }
}

/// A rule for physical plans.
#[derive(Debug)]
pub struct AskingPhysical(Physical);

impl AskingPhysical {
    /// The rule, which asks.
    pub fn of(rule: Physical) -> Physical {
        Arc::new(Self(rule))
    }
}

impl PhysicalOptimizerRule for AskingPhysical {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        deep::check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        deep::check()?;
        self.0.optimize_with_context(plan, context)
    }
}
