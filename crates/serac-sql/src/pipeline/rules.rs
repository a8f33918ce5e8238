//! The rules of a session, and the view of all passes.

use crate::pipeline::pass::{Origin, Pass, Resources, Work};
use crate::pipeline::table::{PASSES, WITH_QUERIES};
use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::error::ArrowError;
use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, Optimizer};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use serac_query::optimizer::{
    Analyzing, AskingAnalyzer, AskingPhysical, AskingRule, Optimizing, Physical, Planner, TrueKeys,
};
use std::sync::Arc;

/// The rules of a session.
pub(crate) struct Rules {
    analyzer: Vec<Analyzing>,
    logical: Vec<Optimizing>,
    physical: Vec<Physical>,
}

impl Rules {
    /// The rules of the table, without those of these names.
    pub(crate) fn new(resources: &Resources, disabled: &[&str]) -> Self {
        let resources = &Resources::new(resources.work_memory.clone());
        let passes = || PASSES.iter().filter(|pass| !disabled.contains(&pass.name));
        let analyzer = passes().filter_map(|pass| match &pass.work {
            Work::Analyzer(origin) => Some((pass.name, origin)),
            _ => None,
        });
        let logical = passes().filter_map(|pass| match &pass.work {
            Work::Logical(origin) => Some((pass.name, origin)),
            _ => None,
        });
        let physical = passes().filter_map(|pass| match &pass.work {
            Work::Physical(origin) => Some((pass.name, origin)),
            _ => None,
        });
        let analyzer = made(analyzer, Analyzer::new().rules, |rule| rule.name(), resources);
        let logical = made(logical, Optimizer::new().rules, |rule| rule.name(), resources);
        let physical = made(physical, PhysicalOptimizer::new().rules, |rule| rule.name(), resources);
        let logical: Vec<Optimizing> = logical.into_iter().map(TrueKeys::of).map(AskingRule::of).collect();
        // The pass does not work with itself, which would keep it forever.
        let others = logical.iter().filter(|rule| rule.name() != WITH_QUERIES).cloned().collect();
        let _ = resources.logical_rules.set(others);
        Self {
            analyzer: analyzer.into_iter().map(AskingAnalyzer::of).collect(),
            logical,
            physical: physical.into_iter().map(AskingPhysical::of).collect(),
        }
    }

    /// A state with these rules and no others, and the planner that knows their operators.
    pub(crate) fn put_into(self, state: SessionStateBuilder) -> SessionStateBuilder {
        state
            .with_query_planner(Arc::new(Planner))
            .with_analyzer_rules(self.analyzer)
            .with_optimizer_rules(self.logical)
            .with_physical_optimizer_rules(self.physical)
    }
}

/// Rules in the order of their passes. A name that stands twice takes DataFusion's rules of that
/// name in their order.
pub(crate) fn made<'p, R: 'p>(
    passes: impl Iterator<Item = (&'static str, &'p Origin<R>)>,
    mut of_datafusion: Vec<R>,
    name_of: fn(&R) -> &str,
    resources: &Resources,
) -> Vec<R> {
    let mut taken = |name: &str| {
        let at = of_datafusion.iter().position(|rule| name_of(rule) == name);
        of_datafusion.remove(at.expect("a test looks for each of DataFusion's"))
    };
    let rule = |(name, origin): (&'static str, &Origin<R>)| match origin {
        Origin::DataFusion => taken(name),
        Origin::Around(around) => around(taken(name)),
        Origin::Ours(make) => make(resources),
    };
    passes.map(rule).collect()
}

/// The rows of the view `serac_passes`: the table.
pub(crate) fn view() -> Result<RecordBatch, ArrowError> {
    let texts = |text: fn(&Pass) -> &'static str| Arc::new(StringArray::from_iter_values(PASSES.iter().map(text)));
    RecordBatch::try_from_iter_with_nullable([
        ("name", texts(|pass| pass.name) as _, false),
        ("stage", texts(|pass| pass.stage().name()) as _, false),
        ("position", Arc::new(Int64Array::from_iter_values(1..=PASSES.len() as i64)) as _, false),
        ("optional", Arc::new(BooleanArray::from_iter(PASSES.iter().map(|pass| Some(pass.is_optional)))) as _, false),
        ("description", texts(|pass| pass.description) as _, false),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::pass::Stage;
    use crate::work_memory::WorkMemory;
    use std::collections::HashMap;

    /// Rules of DataFusion's that we do not use: `optimize_unions` finds columns by name in
    /// branches that have them by position, and `common_types` does its work. The two others read a
    /// field of a row below a projection that gives another column its name.
    const LEFT_OUT: [&str; 3] = ["optimize_unions", "extract_leaf_expressions", "push_down_leaf_projections"];

    fn names(stage: Stage) -> Vec<&'static str> {
        PASSES.iter().filter(|pass| pass.stage() == stage).map(|pass| pass.name).collect()
    }

    /// Checks that a stage of the table has DataFusion's rules, in its order.
    fn check(stage: Stage, of_datafusion: Vec<&str>) {
        let mut rest = names(stage).into_iter();
        for name in of_datafusion.into_iter().filter(|name| !LEFT_OUT.contains(name)) {
            assert!(rest.any(|known| known == name), "{name} is not at its place in the table of passes");
        }
    }

    #[test]
    fn the_table_has_all_rules_of_datafusion() {
        check(Stage::Analyzer, Analyzer::new().rules.iter().map(|rule| rule.name()).collect());
        check(Stage::Logical, Optimizer::new().rules.iter().map(|rule| rule.name()).collect());
        check(Stage::Physical, PhysicalOptimizer::new().rules.iter().map(|rule| rule.name()).collect());
    }

    #[test]
    fn rules_have_the_names_of_their_passes() {
        let work_memory =
            Arc::new(WorkMemory::new(Arc::new(datafusion::execution::memory_pool::UnboundedMemoryPool::default())));
        let resources = Resources::new(work_memory);
        let rules = Rules::new(&resources, &[]);
        assert_eq!(rules.analyzer.iter().map(|rule| rule.name()).collect::<Vec<_>>(), names(Stage::Analyzer));
        assert_eq!(rules.logical.iter().map(|rule| rule.name()).collect::<Vec<_>>(), names(Stage::Logical));
        let physical: Vec<&str> = rules.physical.iter().map(|rule| rule.name()).collect();
        // The first is the planner.
        assert_eq!(physical, names(Stage::Physical)[1..]);
        let optional: Vec<&str> = PASSES.iter().filter(|pass| pass.is_optional).map(|pass| pass.name).collect();
        let rules = Rules::new(&resources, &optional);
        assert!(rules.physical.iter().all(|rule| !optional.contains(&rule.name())));
        assert!(rules.logical.iter().all(|rule| !optional.contains(&rule.name())));
    }

    #[test]
    fn stages_follow_each_other_and_equal_names_are_optional_together() {
        assert!(PASSES.iter().is_sorted_by_key(|pass| pass.stage()));
        let mut known = HashMap::new();
        for pass in PASSES {
            assert_eq!(*known.entry(pass.name).or_insert(pass.is_optional), pass.is_optional, "{}", pass.name);
        }
    }
}
