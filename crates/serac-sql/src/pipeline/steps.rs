//! `EXPLAIN (STEPS)`: a query's plan as the binder made it, and after each pass that changed it.
//!
//! A pass has changed a plan if it reads otherwise than before. The last row is the plan that runs,
//! or the error of the pass that failed: of a value, of what is not supported, or of ours. Other
//! errors are the statement's. The point path has no steps.

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
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use serac_query::optimizer::Planner;
use std::sync::Arc;

/// The pass that makes a physical plan.
const PHYSICAL_PLANNER: &str = "physical_planner";

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
    /// The names of the passes that run now, which may run several times.
    running: Vec<String>,
    /// How many of them have run.
    run: usize,
}

impl Steps {
    /// Begins with passes.
    fn begin<'n>(&mut self, passes: impl IntoIterator<Item = &'n str>) {
        self.running = passes.into_iter().map(str::to_owned).collect();
        self.run = 0;
    }

    /// Notes the plan that a pass gave, if the plan has changed.
    fn note(&mut self, stage: Stage, pass: &str, plan: String) {
        self.run += 1;
        if self.plans.last() != Some(&plan) {
            self.push(stage, pass.to_owned(), plan);
        }
    }

    fn push(&mut self, stage: Stage, pass: String, plan: String) {
        self.stages.push(stage.name());
        self.passes.push(pass);
        self.plans.push(plan);
    }

    /// Notes the error of a pass.
    ///
    /// # Errors
    /// The error, if it does not come of the plan.
    fn note_error(&mut self, stage: Stage, error: DataFusionError) -> Result<()> {
        let error = in_planner(error);
        if !["22", "0A", "XX"].iter().any(|class| error.sqlstate.starts_with(class)) {
            return Err(error);
        }
        let pass = self.running.get(self.run % self.running.len().max(1)).cloned().unwrap_or_default();
        self.push(stage, pass, format!("{}: {}", error.sqlstate, error.message));
        Ok(())
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
async fn steps_of(state: &SessionState, plan: LogicalPlan) -> Result<Steps> {
    let mut steps = Steps::default();
    steps.note(Stage::Planner, BIND, logical_text(&plan));
    let mut stage = Stage::Analyzer;
    if let Err(error) = work_off(state, plan, &mut steps, &mut stage).await {
        steps.note_error(stage, error)?;
    }
    Ok(steps)
}

/// Works through the passes of the stages, and notes the plans.
async fn work_off(
    state: &SessionState,
    plan: LogicalPlan,
    steps: &mut Steps,
    stage: &mut Stage,
) -> datafusion::error::Result<()> {
    steps.begin(state.analyzer().rules.iter().map(|rule| rule.name()));
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |plan, rule| {
        steps.note(Stage::Analyzer, rule.name(), logical_text(plan));
    })?;
    *stage = Stage::Logical;
    steps.begin(state.optimizer().rules.iter().map(|rule| rule.name()));
    let optimized = state.optimizer().optimize(analyzed, state, |plan, rule| {
        steps.note(Stage::Logical, rule.name(), logical_text(plan));
    })?;
    *stage = Stage::Physical;
    // Without rules, the plan is that of the physical planner.
    let bare = SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(Vec::new());
    let bare = bare.build();
    steps.begin([PHYSICAL_PLANNER]);
    let planned = bare.query_planner().create_physical_plan(&optimized, &bare).await?;
    steps.note(Stage::Physical, PHYSICAL_PLANNER, physical_text(planned.as_ref()));
    steps.begin(state.physical_optimizers().iter().map(|rule| rule.name()));
    Planner::of_physical_plans().optimize_physical_plan(planned, state, |plan: &dyn ExecutionPlan, rule| {
        steps.note(Stage::Physical, rule.name(), physical_text(plan));
    })?;
    Ok(())
}

impl Session {
    /// The steps of a query's planning.
    pub(crate) async fn planning_steps(&self, query: Source) -> Result<RecordBatch> {
        let (state, postgresql_names) = (self.state(), self.postgresql_names);
        let steps = async move {
            let plan = binding::plan(&state, &query, postgresql_names).await?.plan;
            steps_of(&state, plan).await?.into_batch()
        };
        self.planning(steps).await
    }

    /// The same of a plan that is there.
    pub(crate) async fn steps_of_plan(&self, plan: LogicalPlan) -> Result<RecordBatch> {
        let state = self.state();
        let steps = async move { steps_of(&state, plan).await?.into_batch() };
        self.planning(steps).await
    }
}
