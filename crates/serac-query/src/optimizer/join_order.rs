//! The order of inner joins, by estimated cost.
//!
//! A region of inner joins (seen through projections of bare columns) is taken apart. Its parts are
//! the relations, the classes of expressions that its conditions make equal, and the other
//! conditions. Equality is transitive, so any two members of a class may be joined, also pairs that
//! the query does not name. Dynamic programming over all sets of up to [`MAX_EXACT`] relations
//! finds the cheapest tree. Beyond that, the two parts with the smallest result are joined
//! repeatedly. The cost of a join counts each row that is put into the hash table twice. It counts
//! each row that is looked up once, and each row that comes out once. Smaller inputs become the
//! build side.

use super::estimate;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinConstraint, LogicalPlan, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::HashSet;
use std::sync::Arc;

/// Relations up to which all orders are looked at.
const MAX_EXACT: usize = 10;
/// Relations up to which a region is ordered at all: sets of them are bits of a word.
const MAX_RELATIONS: usize = 64;

/// Chooses the order of inner joins by cost.
#[derive(Debug, Default)]
pub struct JoinOrder;

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &str {
        "join_order"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        order(plan)
    }
}

fn order(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !is_inner_join(&plan) {
        return plan.map_children(order);
    }
    let mut region = Region::default();
    region.take_apart(&plan)?;
    let Some(joining) = region.cheapest() else { return plan.map_children(order) };
    // Relations below the region may hold regions of their own.
    for relation in &mut region.relations {
        *relation = Arc::new(order(Arc::unwrap_or_clone(relation.clone()))?.data);
    }
    Ok(Transformed::yes(region.rebuild(&joining, &plan)?))
}

fn is_inner_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing)
}

/// The inner join below a projection of bare columns, which renames nothing.
fn join_below(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(|e| matches!(e, Expr::Column(_))) => {
            join_below(&projection.input)
        }
        plan if is_inner_join(plan) => Some(plan),
        _ => None,
    }
}

/// A set of relations, by bit.
type Set = u64;

/// Expressions that are equal, each over one relation.
type Class = Vec<(usize, Expr)>;

/// A condition and the relations whose columns it names.
type Condition = (Expr, Set);

#[derive(Default)]
struct Region {
    relations: Vec<Arc<LogicalPlan>>,
    equalities: Vec<(Expr, Expr)>,
    conditions: Vec<Expr>,
}

/// The cost of a set of relations, and its join.
#[derive(Clone)]
struct Candidate {
    cost: f64,
    rows: f64,
    tree: Tree,
}

#[derive(Clone)]
enum Tree {
    Relation(usize),
    Join(Arc<(Tree, Tree)>),
}

/// The plan for joining a region.
struct Joining {
    tree: Tree,
    classes: Vec<Class>,
    conditions: Vec<Condition>,
}

/// A region's data for costing.
struct Costing<'a> {
    classes: &'a [Class],
    /// Different values of each member of each class.
    distinct: Vec<Vec<f64>>,
    rows: Vec<f64>,
    conditions: Vec<Set>,
}

impl Region {
    fn take_apart(&mut self, plan: &LogicalPlan) -> Result<()> {
        let Some(LogicalPlan::Join(join)) = join_below(plan) else {
            self.relations.push(Arc::new(plan.clone()));
            return Ok(());
        };
        self.take_apart(&join.left)?;
        self.take_apart(&join.right)?;
        self.equalities.extend(join.on.iter().cloned());
        self.conditions.extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
        Ok(())
    }

    /// The relations whose columns `expr` names; `None` if a column is unknown or ambiguous.
    fn relations_of(&self, expr: &Expr) -> Option<Set> {
        let mut set = 0;
        for column in expr.column_refs() {
            let mut owners = (0..self.relations.len()).filter(|&i| self.relations[i].schema().has_column(column));
            let owner = owners.next()?;
            if owners.next().is_some() {
                return None;
            }
            set |= 1 << owner;
        }
        Some(set)
    }

    fn classes(&self) -> Option<(Vec<Class>, Vec<Condition>)> {
        let mut classes: Vec<Class> = Vec::new();
        let mut conditions = Vec::new();
        for (left, right) in &self.equalities {
            let (l, r) = (self.relations_of(left)?, self.relations_of(right)?);
            if l.count_ones() != 1 || r.count_ones() != 1 || l == r {
                conditions.push((left.clone().eq(right.clone()), l | r));
                continue;
            }
            let mut merged =
                vec![(l.trailing_zeros() as usize, left.clone()), (r.trailing_zeros() as usize, right.clone())];
            let (touched, rest): (Vec<Class>, Vec<Class>) =
                classes.into_iter().partition(|class| class.iter().any(|member| merged.contains(member)));
            merged.extend(touched.into_iter().flatten());
            let mut seen = HashSet::new();
            merged.retain(|member| seen.insert(member.clone()));
            classes = rest;
            classes.push(merged);
        }
        for condition in &self.conditions {
            conditions.push((condition.clone(), self.relations_of(condition)?));
        }
        // Joins test one member per relation; that a relation's own members are equal is a
        // condition on it alone.
        for class in &mut classes {
            let mut firsts: Class = Vec::new();
            for (i, expr) in class.drain(..) {
                match firsts.iter().find(|(first, _)| *first == i) {
                    Some((_, first)) => conditions.push((first.clone().eq(expr), 1 << i)),
                    None => firsts.push((i, expr)),
                }
            }
            *class = firsts;
        }
        Some((classes, conditions))
    }

    /// The cheapest tree, if there is a choice and every two parts of it are joined by a condition.
    fn cheapest(&self) -> Option<Joining> {
        let n = self.relations.len();
        if !(3..=MAX_RELATIONS).contains(&n) {
            return None;
        }
        let (classes, conditions) = self.classes()?;
        let rows: Vec<f64> = self.relations.iter().map(|plan| estimate::rows(plan).max(1.0)).collect();
        let distinct = classes
            .iter()
            .map(|class| {
                class.iter().map(|(i, expr)| estimate::distinct_of(&self.relations[*i], rows[*i], expr)).collect()
            })
            .collect();
        let sets = conditions.iter().map(|(_, set)| *set).collect();
        let costing = Costing { classes: &classes, distinct, rows, conditions: sets };
        let tree = if n <= MAX_EXACT { costing.exact() } else { costing.greedy() }?;
        Some(Joining { tree, classes, conditions })
    }

    /// The region joined as `joining` says, giving the columns of `original`.
    fn rebuild(&self, joining: &Joining, original: &LogicalPlan) -> Result<LogicalPlan> {
        let (plan, _) = self.build(&joining.tree, joining)?;
        let plan = filtered(plan, &joining.conditions, |set| set == 0)?;
        let columns: Vec<Expr> = original.schema().columns().into_iter().map(Expr::Column).collect();
        let same = plan.schema().columns().into_iter().map(Expr::Column).eq(columns.iter().cloned());
        if same {
            return Ok(plan);
        }
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
    }

    fn build(&self, tree: &Tree, joining: &Joining) -> Result<(LogicalPlan, Set)> {
        let Joining { classes, conditions, .. } = joining;
        let (left, right) = match tree {
            Tree::Relation(i) => {
                let relation = filtered(self.relations[*i].as_ref().clone(), conditions, |set| set == 1 << i)?;
                return Ok((relation, 1 << i));
            }
            Tree::Join(sides) => (self.build(&sides.0, joining)?, self.build(&sides.1, joining)?),
        };
        let ((left, l), (right, r)) = (left, right);
        let member = |class: &Class, set: Set| class.iter().find(|(i, _)| set >> i & 1 == 1).map(|(_, e)| e.clone());
        let on = classes.iter().filter_map(|class| Some((member(class, l)?, member(class, r)?))).collect();
        let filter = conditions
            .iter()
            .filter(|(_, set)| set.count_ones() > 1 && set & !(l | r) == 0 && set & !l != 0 && set & !r != 0)
            .map(|(expr, _)| expr.clone());
        let filter = conjunction(filter);
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok((LogicalPlan::Join(join), l | r))
    }
}

/// `plan` with the conditions whose relations are `wanted`.
fn filtered(plan: LogicalPlan, conditions: &[Condition], wanted: impl Fn(Set) -> bool) -> Result<LogicalPlan> {
    Ok(match conjunction(conditions.iter().filter(|(_, set)| wanted(*set)).map(|(expr, _)| expr.clone())) {
        Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?),
        None => plan,
    })
}

impl Costing<'_> {
    /// The member of a class in `set` with the fewest different values, and how many.
    fn narrowest(&self, class: usize, set: Set) -> Option<(usize, f64)> {
        let members = self.classes[class].iter().zip(&self.distinct[class]);
        members
            .filter(|((i, _), _)| set >> i & 1 == 1)
            .map(|((i, _), distinct)| (*i, *distinct))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Rows of the join of two sets; `None` if no condition joins them.
    fn join_rows(&self, (a, a_rows): (Set, f64), (b, b_rows): (Set, f64)) -> Option<f64> {
        /// A class that both sets have: the narrowest member of each.
        struct Shared {
            relations: [usize; 2],
            distinct: f64,
        }
        let shared: Vec<Shared> = (0..self.classes.len())
            .filter_map(|class| {
                let ((i, x), (j, y)) = (self.narrowest(class, a)?, self.narrowest(class, b)?);
                Some(Shared { relations: [i, j], distinct: x.min(a_rows).max(y.min(b_rows)) })
            })
            .collect();
        let spans = |set: &&Set| **set & !(a | b) == 0 && **set & !a != 0 && **set & !b != 0;
        let conditions = self.conditions.iter().filter(spans).count();
        if shared.is_empty() && conditions == 0 {
            return None;
        }
        let product: f64 = shared.iter().map(|s| s.distinct).product();
        let largest = shared.iter().map(|s| s.distinct).fold(1.0, f64::max);
        // Several columns of one relation have no more different combinations than it has rows.
        let cap = |side: usize| match shared.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other.relations[side] == first.relations[side]) => {
                self.rows[first.relations[side]]
            }
            _ => f64::INFINITY,
        };
        let combinations = product.min(cap(0)).min(cap(1)).max(largest);
        Some((a_rows * b_rows / combinations * estimate::UNKNOWN_SELECTIVITY.powi(conditions as i32)).max(1.0))
    }

    fn joined(a: &Candidate, b: &Candidate, rows: f64) -> Candidate {
        let (build, probe) = if b.rows < a.rows { (b, a) } else { (a, b) };
        Candidate {
            cost: a.cost + b.cost + 2.0 * build.rows + probe.rows + rows,
            rows,
            tree: Tree::Join(Arc::new((build.tree.clone(), probe.tree.clone()))),
        }
    }

    fn relations(&self) -> impl Iterator<Item = (Set, Candidate)> + '_ {
        self.rows.iter().enumerate().map(|(i, &rows)| (1 << i, Candidate { cost: 0.0, rows, tree: Tree::Relation(i) }))
    }

    fn exact(&self) -> Option<Tree> {
        let all: Set = (1 << self.rows.len()) - 1;
        let mut best: Vec<Option<Candidate>> = vec![None; all as usize + 1];
        for (set, candidate) in self.relations() {
            best[set as usize] = Some(candidate);
        }
        for set in 1..=all {
            let lowest = set & set.wrapping_neg();
            // Every split into two parts once: the first part has the lowest relation.
            let mut part = (set - 1) & set;
            while part > 0 {
                let (a, b) = (part, set & !part);
                part = (part - 1) & set;
                if a & lowest == 0 {
                    continue;
                }
                let (Some(x), Some(y)) = (&best[a as usize], &best[b as usize]) else { continue };
                let Some(rows) = self.join_rows((a, x.rows), (b, y.rows)) else { continue };
                // The row count of a set does not depend on its join order: the first estimate
                // stays.
                let rows = best[set as usize].as_ref().map_or(rows, |known| known.rows);
                let candidate = Self::joined(x, y, rows);
                if best[set as usize].as_ref().is_none_or(|known| candidate.cost < known.cost) {
                    best[set as usize] = Some(candidate);
                }
            }
        }
        best.pop().flatten().map(|candidate| candidate.tree)
    }

    fn greedy(&self) -> Option<Tree> {
        let mut parts: Vec<(Set, Candidate)> = self.relations().collect();
        while parts.len() > 1 {
            let mut next: Option<(f64, usize, usize)> = None;
            for i in 0..parts.len() {
                for j in i + 1..parts.len() {
                    let (a, b) = (&parts[i], &parts[j]);
                    if let Some(rows) = self.join_rows((a.0, a.1.rows), (b.0, b.1.rows))
                        && next.is_none_or(|(fewest, ..)| rows < fewest)
                    {
                        next = Some((rows, i, j));
                    }
                }
            }
            let (rows, i, j) = next?;
            let (b_set, b) = parts.swap_remove(j);
            let (a_set, a) = &parts[i];
            parts[i] = (a_set | b_set, Self::joined(a, &b, rows));
        }
        parts.pop().map(|(_, candidate)| candidate.tree)
    }
}
