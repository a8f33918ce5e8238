//! The mark of a query that may be computed once, in logical plans.

use crate::optimizer::has_volatile;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};

/// The last number that a query got.
static LAST: AtomicU64 = AtomicU64::new(0);

/// When a query is computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// If it is named several times, and is not cheap.
    Worthwhile,
    /// In any case, and no filter gets into it: AS MATERIALIZED, and queries with volatile
    /// functions.
    Always,
}

/// A plan's rows, which are the same at all places with this number.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Greater than those of the queries that the plan reads.
    pub(super) number: u64,
    pub(super) name: Arc<str>,
    pub(super) sharing: Sharing,
    /// It has been decided that the rows are computed once.
    pub(super) is_chosen: bool,
    pub(super) input: Arc<LogicalPlan>,
}

fn new_number() -> u64 {
    // Relaxed: the numbers differ. A plan is there before the plans that read it are made.
    LAST.fetch_add(1, AtomicOrdering::Relaxed) + 1
}

/// The plan of a query with this name, marked at each place where it is named.
pub fn shared(name: &str, plan: LogicalPlan, sharing: Sharing) -> LogicalPlan {
    let node = Shared { number: new_number(), name: name.into(), sharing, is_chosen: false, input: Arc::new(plan) };
    node.into_plan()
}

/// The plan without the marks of queries that are named once.
///
/// # Errors
/// DataFusion's.
pub fn settled(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counts = counts(&plan)?;
    if counts.is_empty() {
        return Ok(plan);
    }
    let is_kept =
        |node: &Shared| node.sharing == Sharing::Always || counts.get(&node.number).is_some_and(|count| *count > 1);
    unmarked(plan, &is_kept)
}

/// The plan with other numbers for the queries in it, so that they are computed once more.
///
/// # Errors
/// DataFusion's.
pub fn anew(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut numbers = HashMap::new();
    // From below: a query gets its number after those that it reads.
    plan.transform_up_with_subqueries(|plan| match Shared::of(&plan) {
        Some(node) => {
            let number = *numbers.entry(node.number).or_insert_with(new_number);
            Ok(Transformed::yes(Shared { number, ..node.clone() }.into_plan()))
        }
        None => Ok(Transformed::no(plan)),
    })
    .data()
}

/// The numbers of the queries with volatile functions that a plan reads.
///
/// # Errors
/// DataFusion's.
pub fn volatile_queries(plan: &LogicalPlan) -> Result<HashSet<u64>> {
    let mut found = HashSet::new();
    plan.apply_with_subqueries(|plan| {
        let node = Shared::of(plan).filter(|node| node.sharing != Sharing::Worthwhile);
        found.extend(node.filter(|node| has_volatile(&node.input)).map(|node| node.number));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// How often each query is named. A name in a query that is itself named several times counts once.
pub(super) fn counts(plan: &LogicalPlan) -> Result<HashMap<u64, usize>> {
    let mut counts = HashMap::new();
    plan.apply_with_subqueries(|plan| {
        let Some(node) = Shared::of(plan) else { return Ok(TreeNodeRecursion::Continue) };
        let count = counts.entry(node.number).or_insert(0);
        *count += 1;
        Ok(if *count > 1 { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    })?;
    Ok(counts)
}

/// The plan with nothing but the queries themselves in the place of marks that are not kept.
pub(super) fn unmarked(plan: LogicalPlan, is_kept: &dyn Fn(&Shared) -> bool) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| match Shared::of(&plan) {
        Some(node) if !is_kept(node) => Ok(Transformed::yes(node.input.as_ref().clone())),
        _ => Ok(Transformed::no(plan)),
    })
    .data()
}

impl Shared {
    /// The mark at the top of a plan.
    pub(crate) fn of(plan: &LogicalPlan) -> Option<&Self> {
        let LogicalPlan::Extension(extension) = plan else { return None };
        extension.node.as_any().downcast_ref::<Self>()
    }

    pub(super) fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// Whether the rows are the same at all places, whatever the query is.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_chosen || self.sharing != Sharing::Worthwhile
    }

    /// The query's plan.
    pub(crate) fn input(&self) -> &LogicalPlan {
        &self.input
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        (self.number, self.is_chosen) == (other.number, other.is_chosen) && self.input == other.input
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
        self.is_chosen.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared: {}", self.name)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(input), true) = (inputs.pop(), inputs.is_empty()) else {
            return internal_err!("it has one input");
        };
        Ok(Self { input: Arc::new(input), ..self.clone() })
    }
}
