//! The description of a pass of the pipeline.

use crate::work_memory::WorkMemory;
use serac_query::optimizer::{Analyzing, Optimizing, Physical};
use serac_query::shared::LogicalRules;
use std::sync::Arc;

/// The form that a pass works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// The parser's tree, of which a logical plan is made.
    Planner,
    /// The logical plan, until its types are PostgreSQL's.
    Analyzer,
    /// The logical plan.
    Logical,
    /// The physical plan.
    Physical,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Analyzer => "analyzer",
            Self::Logical => "logical",
            Self::Physical => "physical",
        }
    }
}

/// A pass: a row of the table.
pub(crate) struct Pass {
    pub(super) name: &'static str,
    pub(super) is_optional: bool,
    pub(super) description: &'static str,
    pub(super) work: Work,
}

/// The rule behind a pass.
pub(crate) enum Work {
    /// A function that other modules call at this place.
    Elsewhere(Stage),
    /// A rule of the analyzer.
    Analyzer(Origin<Analyzing>),
    /// A rule of the optimizer for logical plans.
    Logical(Origin<Optimizing>),
    /// A rule of the optimizer for physical plans.
    Physical(Origin<Physical>),
}

/// The origin of a rule.
pub(crate) enum Origin<R> {
    /// DataFusion's own list.
    DataFusion,
    /// DataFusion's own list; ours stands around it.
    Around(fn(R) -> R),
    /// We make it. It may have the name of the DataFusion rule that it replaces.
    Ours(fn(&Resources) -> R),
}

impl Pass {
    pub(super) fn stage(&self) -> Stage {
        match self.work {
            Work::Elsewhere(stage) => stage,
            Work::Analyzer(_) => Stage::Analyzer,
            Work::Logical(_) => Stage::Logical,
            Work::Physical(_) => Stage::Physical,
        }
    }
}

/// The parts of a session that rules need.
pub(crate) struct Resources {
    /// The memory of the session's queries.
    pub(crate) work_memory: Arc<WorkMemory>,
    /// The rules for logical plans, once all are made, without the one that works with them.
    pub(crate) logical_rules: LogicalRules,
}

impl Resources {
    pub(crate) fn new(work_memory: Arc<WorkMemory>) -> Self {
        Self { work_memory, logical_rules: LogicalRules::default() }
    }
}
