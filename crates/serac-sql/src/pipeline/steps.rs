//! `EXPLAIN (STEPS)`: a query's plan as the binder made it, and after each pass that changed it.
//!
//! A pass has changed a plan if it reads otherwise than before. The last row is the plan that runs.
//! If a pass fails, the statement fails with its error, and the steps before it are lost. The point
//! path has no steps.

use crate::binding::{self, BIND};
use crate::error::Result;
use crate::explain::physical_text;
use crate::parsed::Source;
use crate::pipeline::pass::Stage;
use crate::plan_text::logical_text;
use crate::planner::in_planner;
use crate::session::Session;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use serac_query::optimizer::Planner;
use std::sync::Arc;

/// The columns of the result.
pub(crate) fn steps_schema() -> SchemaRef {
    let column = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(["stage", "pass", "plan"].map(column).to_vec()))
}

/// The passes that have changed a plan so far, with the plan after each.
#[derive(Default)]
struct Steps {
    stages: Vec<&'static str>,
    passes: Vec<String>,
    plans: Vec<String>,
}

impl Steps {
    /// Notes the plan that a pass gave, if the plan has changed.
    fn note(&mut self, stage: Stage, pass: &str, plan: String) {
        if self.plans.last() != Some(&plan) {
            self.stages.push(stage.name());
            self.passes.push(pass.to_owned());
            self.plans.push(plan);
        }
    }

    fn into_batch(self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(self.stages)),
            Arc::new(StringArray::from(self.passes)),
            Arc::new(StringArray::from(self.plans)),
        ];
        Ok(RecordBatch::try_new(steps_schema(), columns)?)
    }
}

/// Works through all passes from the binder's plan on, as
/// [`SessionState::create_physical_plan`] does.
async fn steps_of(state: &SessionState, plan: LogicalPlan) -> datafusion::error::Result<Steps> {
    let mut steps = Steps::default();
    steps.note(Stage::Planner, BIND, logical_text(&plan));
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |plan, rule| {
        steps.note(Stage::Analyzer, rule.name(), logical_text(plan));
    })?;
    let optimized = state.optimizer().optimize(analyzed, state, |plan, rule| {
        steps.note(Stage::Logical, rule.name(), logical_text(plan));
    })?;
    // Without rules, the plan is that of the physical planner.
    let bare = SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(Vec::new());
    let bare = bare.build();
    let planned = bare.query_planner().create_physical_plan(&optimized, &bare).await?;
    steps.note(Stage::Physical, "physical_planner", physical_text(planned.as_ref()));
    Planner::of_physical_plans().optimize_physical_plan(planned, state, |plan: &dyn ExecutionPlan, rule| {
        steps.note(Stage::Physical, rule.name(), physical_text(plan));
    })?;
    Ok(steps)
}

impl Session {
    /// The steps of a query's planning.
    pub(crate) async fn planning_steps(&self, query: Source) -> Result<RecordBatch> {
        let (state, postgresql_names) = (self.state(), self.postgresql_names);
        let steps = async move {
            let plan = binding::plan(&state, &query, postgresql_names).await?.plan;
            steps_of(&state, plan).await.map_err(in_planner)?.into_batch()
        };
        self.planning(steps).await
    }

    /// The same of a plan that is there.
    pub(crate) async fn steps_of_plan(&self, plan: LogicalPlan) -> Result<RecordBatch> {
        let state = self.state();
        let steps = async move { steps_of(&state, plan).await.map_err(in_planner)?.into_batch() };
        self.planning(steps).await
    }
}
