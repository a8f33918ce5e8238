//! The order of joins, by estimated cost.
//!
//! A region of joins (seen through projections of bare columns) is taken apart. Its parts are the
//! relations, the classes of expressions that inner joins make equal, and the other conditions.
//! Equality is transitive, so any two members of a class may be joined, also pairs that the query
//! does not name. Dynamic programming over all sets of up to [`MAX_EXACT`] relations finds the
//! cheapest tree. Beyond that, the two parts with the smallest result are joined repeatedly. The
//! cost of a join counts each row that is put into the hash table twice. It counts each row that is
//! looked up once, and each row that comes out once. Smaller inputs become the build side.
//!
//! A left outer, semi- or anti-join keeps its left side in the region, and its right side becomes a
//! relation that is [`Attached`]. What such a join makes of a row depends on that row alone, and so
//! does what an inner join makes of it. So these joins may stand in any order, as long as each has
//! the columns that its condition names. A condition of the region on columns of an attached
//! relation would have to stay above its join. Such a join is a relation of its own.

use super::estimate;
use super::guarded_branches::has_hazard;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, NullEquality, Result};
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
    if !is_inner_join(&plan) && Attaching::of(&plan).is_none() {
        return plan.map_children(order);
    }
    let mut region = Region::of(&plan);
    let mut joining = region.cheapest();
    if joining.is_none() && region.relations.iter().any(|relation| relation.attached.is_some()) && is_inner_join(&plan)
    {
        region = Region::within(&plan, None);
        joining = region.cheapest();
    }
    let Some(joining) = joining else { return plan.map_children(order) };
    // Relations below the region may hold regions of their own.
    for relation in &mut region.relations {
        relation.plan = Arc::new(order(Arc::unwrap_or_clone(relation.plan.clone()))?.data);
    }
    Ok(Transformed::yes(region.rebuild(&joining, &plan)?))
}

fn is_inner_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing)
}

/// The join below a projection of bare columns, which renames nothing.
fn join_below(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(|e| matches!(e, Expr::Column(_))) => {
            join_below(&projection.input)
        }
        LogicalPlan::Join(join) => Some(join),
        _ => None,
    }
}

/// A left outer, semi- or anti-join whose left side may be joined with others first, or the mirror
/// of a left outer join.
struct Attaching<'a> {
    kept: &'a Arc<LogicalPlan>,
    other: &'a Arc<LogicalPlan>,
    attached: Attached,
}

impl<'a> Attaching<'a> {
    fn of(plan: &'a LogicalPlan) -> Option<Self> {
        match plan {
            LogicalPlan::Join(join) => Self::of_join(join),
            _ => None,
        }
    }

    fn of_join(join: &'a Join) -> Option<Self> {
        let is_mirrored = join.join_type == JoinType::Right;
        let join_type = match join.join_type {
            JoinType::Left | JoinType::Right => JoinType::Left,
            other @ (JoinType::LeftSemi | JoinType::LeftAnti) => other,
            _ => return None,
        };
        let sides = || {
            let both = join.left.schema().join(join.right.schema());
            both.unwrap_or_else(|_| join.schema.as_ref().clone())
        };
        // A condition that may fail, or has side effects, is asked for the rows that it is asked
        // for now.
        let is_fixed = |condition: &Expr| condition.is_volatile() || has_hazard(condition, &sides());
        let keys = || join.on.iter().flat_map(|(left, right)| [left, right]);
        if join.null_aware || join.on.is_empty() || keys().chain(&join.filter).any(is_fixed) {
            return None;
        }
        let on = join.on.iter().cloned().map(|(left, right)| if is_mirrored { (right, left) } else { (left, right) });
        let (kept, other) = if is_mirrored { (&join.right, &join.left) } else { (&join.left, &join.right) };
        let attached =
            Attached { join_type, on: on.collect(), filter: join.filter.clone(), null_equality: join.null_equality };
        Some(Self { kept, other, attached })
    }
}

/// A set of relations, by bit.
type Set = u64;

/// Expressions that are equal, each over one relation.
type Class = Vec<(usize, Expr)>;

/// A condition and the relations whose columns it names.
type Condition = (Expr, Set);

/// How a relation is joined that inner joins do not join: the columns that its condition names
/// come first.
#[derive(Clone, Debug)]
struct Attached {
    /// Left, LeftSemi or LeftAnti; the relation is on the right.
    join_type: JoinType,
    /// Expressions of the others, and of the relation.
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    null_equality: NullEquality,
}

struct Relation {
    plan: Arc<LogicalPlan>,
    attached: Option<Attached>,
}

impl Relation {
    /// Whether the region's rows have its columns.
    fn is_seen(&self) -> bool {
        self.attached.as_ref().is_none_or(|attached| attached.join_type == JoinType::Left)
    }
}

#[derive(Default)]
struct Region {
    relations: Vec<Relation>,
    equalities: Vec<(Expr, Expr)>,
    conditions: Vec<Expr>,
}

/// The joins of a region beside inner joins: `None` for none, or all that can be attached but those
/// of these relations, by their [`identity`].
type Attachable<'a> = Option<&'a HashSet<usize>>;

/// The address of a plan that is borrowed.
fn identity(plan: &Arc<LogicalPlan>) -> usize {
    Arc::as_ptr(plan) as usize
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
    /// Of each relation that is attached.
    attached: Vec<Option<AttachedCosting>>,
}

/// The data of an attached relation.
struct AttachedCosting {
    join_type: JoinType,
    /// The relations that must be there before.
    needs: Set,
    /// Different values of each key, among the others and in the relation.
    keys: Vec<(f64, f64)>,
    /// There are no more different combinations of keys.
    most: f64,
    /// The share of the others' rows that meet rows of the relation.
    met: f64,
    has_filter: bool,
}

impl Region {
    /// The region of joins at the top of `plan`.
    fn of(plan: &LogicalPlan) -> Self {
        let mut fixed = HashSet::new();
        loop {
            let region = Self::within(plan, Some(&fixed));
            if region.has_hazards(plan) {
                return Self::within(plan, None);
            }
            let found = region.fixed();
            if found.is_empty() {
                return region;
            }
            fixed.extend(found);
        }
    }

    fn within(plan: &LogicalPlan, attachable: Attachable<'_>) -> Self {
        let mut region = Self::default();
        if let LogicalPlan::Join(join) = plan {
            region.take_join_apart(join, attachable);
        }
        region
    }

    fn take_apart(&mut self, plan: &Arc<LogicalPlan>, attachable: Attachable<'_>) {
        if !join_below(plan).is_some_and(|join| self.take_join_apart(join, attachable)) {
            self.relations.push(Relation { plan: plan.clone(), attached: None });
        }
    }

    /// Whether it is a join of the region.
    fn take_join_apart(&mut self, join: &Join, attachable: Attachable<'_>) -> bool {
        if join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing {
            self.take_apart(&join.left, attachable);
            self.take_apart(&join.right, attachable);
            self.equalities.extend(join.on.iter().cloned());
            self.conditions.extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
            return true;
        }
        let Some(fixed) = attachable else { return false };
        let attaching = Attaching::of_join(join).filter(|attaching| !fixed.contains(&identity(attaching.other)));
        let Some(attaching) = attaching else { return false };
        self.take_apart(attaching.kept, attachable);
        self.relations.push(Relation { plan: attaching.other.clone(), attached: Some(attaching.attached) });
        true
    }

    /// Whether inner joins have conditions that may fail, or have side effects. They are asked for
    /// no other rows than those that other kinds of joins leave.
    fn has_hazards(&self, plan: &LogicalPlan) -> bool {
        let mut schema = plan.schema().as_ref().clone();
        for relation in &self.relations {
            schema.merge(relation.plan.schema());
        }
        let equalities = self.equalities.iter().flat_map(|(left, right)| [left, right]);
        equalities.chain(&self.conditions).any(|condition| condition.is_volatile() || has_hazard(condition, &schema))
    }

    /// The attached relations whose columns conditions of the region name.
    fn fixed(&self) -> Vec<usize> {
        let equalities = self.equalities.iter().flat_map(|(left, right)| [left, right]);
        let names: HashSet<&Column> = equalities.chain(&self.conditions).flat_map(Expr::column_refs).collect();
        let is_named = |relation: &&Relation| {
            relation.attached.is_some()
                && relation.is_seen()
                && names.iter().any(|column| relation.plan.schema().has_column(column))
        };
        self.relations.iter().filter(is_named).map(|relation| identity(&relation.plan)).collect()
    }

    /// The relations whose columns `expr` names; `None` if a column is unknown or ambiguous.
    fn relations_of(&self, expr: &Expr) -> Option<Set> {
        self.relations_among(expr, Relation::is_seen)
    }

    fn relations_among(&self, expr: &Expr, is_among: impl Fn(&Relation) -> bool) -> Option<Set> {
        let mut set = 0;
        for column in expr.column_refs() {
            let has = |&i: &usize| {
                let relation = &self.relations[i];
                is_among(relation) && relation.plan.schema().has_column(column)
            };
            let mut owners = (0..self.relations.len()).filter(has);
            let owner = owners.next()?;
            if owners.next().is_some() {
                return None;
            }
            set |= 1 << owner;
        }
        Some(set)
    }

    /// The data of an attached relation; `None` if its condition is not understood.
    fn attached_costing(&self, i: usize, attached: &Attached, rows: &[f64]) -> Option<AttachedCosting> {
        let own = &self.relations[i];
        let mut needs = 0;
        let (mut keys, mut all) = (Vec::new(), Vec::new());
        for (other, key) in &attached.on {
            let set = self.relations_of(other).filter(|set| *set != 0 && set >> i & 1 == 0)?;
            needs |= set;
            let owner = set.trailing_zeros() as usize;
            let owner =
                Some(owner).filter(|_| set.count_ones() == 1).map(|owner| (&self.relations[owner].plan, rows[owner]));
            let others = owner.map_or(f64::INFINITY, |(plan, rows)| estimate::distinct_of(plan, rows, other));
            keys.push((others, estimate::distinct_of(&own.plan, rows[i], key)));
            all.push(owner.and_then(|(plan, _)| estimate::domain_of(plan, other)).ok_or(others));
        }
        let others = if needs.count_ones() == 1 { rows[needs.trailing_zeros() as usize] } else { f64::INFINITY };
        if let Some(filter) = &attached.filter {
            let set = self.relations_among(filter, |relation| relation.is_seen() || std::ptr::eq(relation, own))?;
            needs |= set & !(1 << i);
        }
        let own = keys.iter().map(|(_, own)| own).product::<f64>().min(rows[i]);
        let has_filter = attached.filter.is_some();
        let met = estimate::met(own, estimate::combinations(all.into_iter()), has_filter);
        Some(AttachedCosting { join_type: attached.join_type, needs, keys, most: others.min(rows[i]), met, has_filter })
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
        let rows: Vec<f64> = self.relations.iter().map(|relation| estimate::rows(&relation.plan).max(1.0)).collect();
        let distinct = classes
            .iter()
            .map(|class| {
                class.iter().map(|(i, expr)| estimate::distinct_of(&self.relations[*i].plan, rows[*i], expr)).collect()
            })
            .collect();
        let sets = conditions.iter().map(|(_, set)| *set).collect();
        let mut attached = Vec::new();
        for (i, relation) in self.relations.iter().enumerate() {
            attached.push(match &relation.attached {
                Some(attached) => Some(self.attached_costing(i, attached, &rows)?),
                None => None,
            });
        }
        let costing = Costing { classes: &classes, distinct, rows, conditions: sets, attached };
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
                let relation = filtered(self.relations[*i].plan.as_ref().clone(), conditions, |set| set == 1 << i)?;
                return Ok((relation, 1 << i));
            }
            Tree::Join(sides) => (self.build(&sides.0, joining)?, self.build(&sides.1, joining)?),
        };
        let ((left, l), (right, r)) = (left, right);
        let attached = match r.count_ones() {
            1 => self.relations[r.trailing_zeros() as usize].attached.clone(),
            _ => None,
        };
        if let Some(Attached { join_type, on, filter, null_equality }) = attached {
            let (left, right) = (Arc::new(left), Arc::new(right));
            let join = Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, null_equality, false)?;
            return Ok((LogicalPlan::Join(join), l | r));
        }
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

impl AttachedCosting {
    /// Rows of the join of a set with the relation, which has `own` rows; `None` if the set lacks
    /// relations.
    fn rows(&self, (set, rows): (Set, f64), own: f64) -> Option<f64> {
        if self.needs & !set != 0 {
            return None;
        }
        Some(
            match self.join_type {
                JoinType::LeftSemi => rows * self.met,
                JoinType::LeftAnti => (rows * (1.0 - self.met)).max(rows * estimate::LEAST_UNMET),
                _ => {
                    let keys = || self.keys.iter().map(|(others, own)| others.min(rows).max(*own));
                    let largest = keys().fold(1.0, f64::max);
                    let combinations = keys().product::<f64>().min(self.most).max(largest);
                    let share = if self.has_filter { estimate::UNKNOWN_SELECTIVITY } else { 1.0 };
                    rows.max(rows * own / combinations * share)
                }
            }
            .max(1.0),
        )
    }
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

    /// The relation that a set is, if it is attached.
    fn attached(&self, set: Set) -> Option<&AttachedCosting> {
        if set.count_ones() == 1 { self.attached[set.trailing_zeros() as usize].as_ref() } else { None }
    }

    /// Rows of the join of two sets; `None` if no condition joins them.
    fn join_rows(&self, a: (Set, f64), b: (Set, f64)) -> Option<f64> {
        match (self.attached(a.0), self.attached(b.0)) {
            (Some(_), Some(_)) => None,
            (Some(attached), None) => attached.rows(b, a.1),
            (None, Some(attached)) => attached.rows(a, b.1),
            (None, None) => self.inner_rows(a, b),
        }
    }

    fn inner_rows(&self, (a, a_rows): (Set, f64), (b, b_rows): (Set, f64)) -> Option<f64> {
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

    fn joined(&self, (a_set, a): (Set, &Candidate), (b_set, b): (Set, &Candidate), rows: f64) -> Candidate {
        let (build, probe) = if b.rows < a.rows { (b, a) } else { (a, b) };
        let cost = a.cost + b.cost + 2.0 * build.rows + probe.rows + rows;
        // An attached relation stays on the right.
        let (left, right) = match (self.attached(a_set), self.attached(b_set)) {
            (Some(_), _) => (b, a),
            (_, Some(_)) => (a, b),
            _ => (build, probe),
        };
        Candidate { cost, rows, tree: Tree::Join(Arc::new((left.tree.clone(), right.tree.clone()))) }
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
                let candidate = self.joined((a, x), (b, y), rows);
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
            parts[i] = (a_set | b_set, self.joined((*a_set, a), (b_set, &b), rows));
        }
        parts.pop().map(|(_, candidate)| candidate.tree)
    }
}
