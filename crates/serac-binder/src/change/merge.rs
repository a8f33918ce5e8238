//! MERGE: one join of its table with its source, and for each pair the number of the WHEN that
//! takes it.
//!
//! ```text
//! target ⟗ source → number of the WHEN → those that have one → row, number, values of all WHENs
//! ```
//!
//! A value is computed for rows of its WHEN alone.

use super::assignment::Assignments;
use super::update::numbered;
use super::{BoundAction, BoundMerge, Target};
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::from::Rows;
use crate::query::Selected;
use crate::scope::ScopeItem;
use crate::types::or_no_type;
use crate::{Binder, OutputColumn, Relation};
use datafusion::arrow::datatypes::Field;
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use serac_parser::tree::{ExprKind, Merge, MergeAction, MergeMatch, MergeWhen, TableExpr, TableKind};
use serac_pg::TypeId;
use std::sync::Arc;

fn case(whens: Vec<(Expr, Expr)>) -> Expr {
    let whens = whens.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case::new(None, whens.collect(), None))
}

impl Binder<'_> {
    pub(super) fn merge(&self, merge: &Merge) -> Result<BoundMerge> {
        if merge.table.only {
            return Err(BindError::Unknown("ONLY"));
        }
        if !merge.returning.is_empty() {
            return Err(BindError::Unknown("RETURNING of MERGE"));
        }
        let target = self.environment.target(&merge.table.name)?;
        let own = self.target_rows(&target, &merge.table.name, merge.alias.as_ref(), &[])?;
        let row = self.row_of(&own, &target);
        let source = match self.environment.merge_source() {
            Some(given) => self.given_source(&given, &merge.source)?,
            None => self.from(std::slice::from_ref(&merge.source), None)?,
        };
        if let Some(twice) = source.scope.items.iter().find(|item| item.name == own.scope.items[0].name) {
            let error = BindError::without_place("42712", format!("name \"{}\" specified more than once", twice.name));
            return Err(error.detailed("The name is used both as MERGE target table and data source.".into()));
        }
        // Says of a pair whether there is a row of the source.
        let marker = Column::new(Some(TableReference::bare(self.qualifier("#source"))), "is_there");
        let mut columns: Vec<Expr> = source.plan.schema().columns().into_iter().map(Expr::Column).collect();
        columns.push(lit(true).alias_qualified(marker.relation.clone(), &marker.name));
        let source_plan = LogicalPlanBuilder::from(source.plan).project(columns)?.build()?;
        let has_source = Expr::Column(marker);
        let pairs = own.plan.schema().join(source_plan.schema())?;
        let both = own.scope.clone().beside(source.scope.clone(), merge.source.span)?;
        let on =
            self.condition("JOIN/ON", &merge.on, Context::new(&both, &pairs, None).in_clause("JOIN conditions"))?;
        let is_about = |wanted: MergeMatch| merge.whens.iter().any(|when| when.matched == wanted);
        let kind = match (is_about(MergeMatch::NotMatchedByTarget), is_about(MergeMatch::NotMatchedBySource)) {
            (false, false) => JoinType::Inner,
            (true, false) => JoinType::Right,
            (false, true) => JoinType::Left,
            (true, true) => JoinType::Full,
        };
        let plan = LogicalPlanBuilder::from(own.plan).join_on(source_plan, kind, [on])?.build()?;
        let schema = plan.schema().clone();
        let context = |when: &MergeWhen| {
            let scope = match when.matched {
                MergeMatch::Matched => &both,
                MergeMatch::NotMatchedByTarget => &source.scope,
                MergeMatch::NotMatchedBySource => &own.scope,
            };
            Context::new(scope, &schema, None)
        };
        let mut is_unreachable = [false; 3];
        let mut conditions: [Vec<(Expr, Expr)>; 3] = Default::default();
        let mut numbered_values = Vec::new();
        let mut actions = Vec::new();
        for (number, when) in (0i32..).zip(&merge.whens) {
            let kind = when.matched as usize;
            if std::mem::replace(&mut is_unreachable[kind], when.condition.is_none()) {
                let message = "unreachable WHEN clause specified after unconditional WHEN clause";
                return Err(BindError::without_place("42601", message));
            }
            let condition = match &when.condition {
                Some(tree) => self.condition("WHEN", tree, context(when).in_clause("MERGE WHEN conditions"))?,
                None => lit(true),
            };
            conditions[kind].push((condition, lit(number)));
            let before = numbered_values.len();
            let (action, values) = self.merge_action(when, before, &target, context(when))?;
            let of_action = Expr::Column(Column::new_unqualified("#action")).eq(lit(number));
            numbered_values.extend(values.into_iter().map(|value| case(vec![(of_action.clone(), value)])));
            actions.push(action);
        }
        let [matched, by_target, by_source] = conditions;
        let there = [
            (row.clone().is_not_null().and(has_source.clone().is_not_null()), matched),
            (row.clone().is_null(), by_target),
            (has_source.is_null(), by_source),
        ];
        let whens = there.into_iter().filter(|(_, whens)| !whens.is_empty());
        let number = case(whens.map(|(is_there, whens)| (is_there, case(whens))).collect());
        let mut exprs: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        exprs.push(number.alias("#action"));
        let number = Expr::Column(Column::new_unqualified("#action"));
        let plan = LogicalPlanBuilder::from(plan).project(exprs)?.filter(number.clone().is_not_null())?;
        let mut exprs = vec![row, number];
        exprs.extend(self::numbered("#value", numbered_values));
        Ok(BoundMerge { target, plan: plan.project(exprs)?.build()?, actions })
    }
    /// A source whose rows have been computed.
    fn given_source(&self, given: &Relation, source: &TableExpr) -> Result<Rows> {
        let name = match &source.kind {
            TableKind::Relation { alias: Some(alias), .. } | TableKind::Query { alias: Some(alias), .. } => {
                Some(&alias.name)
            }
            TableKind::Relation { relation, alias: None, .. } => relation.name.parts.last(),
            _ => None,
        };
        let name = name.ok_or(BindError::Unknown("a source of this kind"))?;
        let scan = LogicalPlanBuilder::scan(given.name.clone(), given.source.clone(), None)?.build()?;
        let fields = scan.schema().fields().iter().zip(&given.types);
        let column = |(field, id): (&Arc<Field>, &Option<TypeId>)| OutputColumn {
            name: field.name().clone(),
            id: or_no_type(*id),
            span: name.span,
            text: None,
        };
        let columns = fields.map(column).collect();
        let item = ScopeItem::named(&name.name);
        self.named(Selected::new(scan, columns), item, None)
    }
    /// The action of a WHEN, and the values that it computes, behind `before` others.
    fn merge_action(
        &self,
        when: &MergeWhen,
        before: usize,
        target: &Target,
        context: Context<'_>,
    ) -> Result<(BoundAction, Vec<Expr>)> {
        let wrong = |action: &str| {
            let kind = if when.matched == MergeMatch::NotMatchedByTarget { "NOT MATCHED" } else { "MATCHED" };
            BindError::new("42601", format!("WHEN {kind} cannot {action}"), when.span)
        };
        let is_new = when.matched == MergeMatch::NotMatchedByTarget;
        match &when.action {
            MergeAction::Nothing => Ok((BoundAction::Nothing, Vec::new())),
            MergeAction::Delete if is_new => Err(wrong("DELETE")),
            MergeAction::Delete => Ok((BoundAction::Delete, Vec::new())),
            MergeAction::Update(_) if is_new => Err(wrong("UPDATE")),
            MergeAction::Update(assignments) => {
                let assignments = Assignments::of(assignments, target)?;
                let values = self.assigned_values(&assignments, target, context.in_clause("UPDATE"))?;
                assignments.check_generated(target)?;
                Ok((BoundAction::Update(assignments.set(before)), values))
            }
            MergeAction::Insert { .. } if !is_new => Err(wrong("INSERT")),
            MergeAction::Insert { overriding_system: Some(_), .. } => Err(BindError::Unknown("OVERRIDING")),
            MergeAction::Insert { values: None, .. } => Ok((BoundAction::Insert(Vec::new()), Vec::new())),
            MergeAction::Insert { columns, values: Some(given), .. } => {
                let places = target.places(columns)?;
                if let Some(more) = given.get(places.len()) {
                    return Err(BindError::new("42601", "INSERT has more expressions than target columns", more.span));
                }
                if let Some((column, _)) = columns.get(given.len()) {
                    let message = "INSERT has more target columns than expressions";
                    return Err(BindError::new("42601", message, column.span));
                }
                let (mut set, mut values) = (Vec::new(), Vec::new());
                for (column, tree) in places.into_iter().zip(given) {
                    if let ExprKind::Default = tree.kind {
                        continue;
                    }
                    let bound = self.expression(tree, context.in_clause("VALUES"))?;
                    values.push(self.of_column(target, column, bound, context.schema)?.expr);
                    set.push((column, before + values.len() - 1));
                }
                set.iter().try_for_each(|(column, _)| target.insertable(*column))?;
                Ok((BoundAction::Insert(set), values))
            }
        }
    }
}
