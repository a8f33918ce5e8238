//! MERGE: one join of its table with its source, and for each pair the number of the WHEN that
//! takes it.
//!
//! ```text
//! target ⟗ source → number of the WHEN → those that have one → row, number, values of all WHENs
//! ```
//!
//! A value is computed for rows of its WHEN alone. The values of a WHEN with subqueries are a plan
//! of their own, over the rows that the WHEN has taken. Otherwise a subquery would be computed for
//! other rows, too.

use super::assignment::Assignments;
use super::insert::check_overriding;
use super::returning::named_beside;
use super::update::numbered;
use crate::binder::Binder;
use crate::error::{BindError, Result};
use crate::plan_parts::{has_part, of_expr};
use crate::scope::Context;
use crate::statement::{ActionValues, BoundAction, BoundMerge};
use crate::target::Target;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, TableReference};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use serac_parser::tree::{ExprKind, Merge, MergeAction, MergeMatch, MergeWhen};
use std::sync::Arc;

fn case(whens: Vec<(Expr, Expr)>) -> Expr {
    let whens = whens.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case::new(None, whens.collect(), None))
}

impl Binder<'_> {
    /// A MERGE. ONLY says nothing: no table has others below it.
    pub(super) fn merge(&self, merge: &Merge) -> Result<BoundMerge> {
        if let Some(item) = merge.returning.first() {
            return Err(BindError::unsupported("RETURNING of MERGE", item.expr.span));
        }
        let target = self.environment.target(&merge.table.name)?;
        let own = self.target_rows(&target, &merge.table.name, merge.alias.as_ref(), &[])?;
        let row = self.row_of(&own, &target);
        let source = self.from(std::slice::from_ref(&merge.source), None)?;
        if let Some(twice) = source.scope.items.iter().find(|item| item.name == own.scope.items[0].name) {
            let error = BindError::without_place(
                sqlstate::DUPLICATE_ALIAS,
                format!("name \"{}\" specified more than once", twice.name),
            );
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
        let (mut actions, mut own_values, mut carried) = (Vec::new(), Vec::new(), Vec::new());
        for (number, when) in (0i32..).zip(&merge.whens) {
            let kind = when.matched as usize;
            if std::mem::replace(&mut is_unreachable[kind], when.condition.is_none()) {
                let message = "unreachable WHEN clause specified after unconditional WHEN clause";
                return Err(BindError::without_place(sqlstate::SYNTAX_ERROR, message));
            }
            let condition = match &when.condition {
                Some(tree) => self.condition("WHEN", tree, context(when).in_clause("MERGE WHEN conditions"))?,
                None => lit(true),
            };
            conditions[kind].push((condition, lit(number)));
            let (action, values) = self.merge_action(when, &target, context(when))?;
            if values.iter().any(|value| has_part(value, |part| of_expr(part).is_some())) {
                own_values.push(Some(self.values_of_action(values, &schema, &mut carried)?));
                actions.push(action);
                continue;
            }
            let of_action = Expr::Column(Column::new_unqualified("#action")).eq(lit(number));
            own_values.push(None);
            actions.push(action.behind(numbered_values.len()));
            numbered_values.extend(values.into_iter().map(|value| case(vec![(of_action.clone(), value)])));
        }
        let before = numbered_values.len();
        own_values.iter_mut().flatten().flat_map(|own| &mut own.columns).for_each(|column| *column += before);
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
        exprs.extend(self::numbered("#pair", carried.into_iter().map(Expr::Column)));
        Ok(BoundMerge { target, plan: plan.project(exprs)?.build()?, actions, values: own_values })
    }

    /// The plan of values over `pairs` that have subqueries. The columns that they name are put to
    /// those that are `carried`.
    fn values_of_action(&self, values: Vec<Expr>, pairs: &DFSchema, carried: &mut Vec<Column>) -> Result<ActionValues> {
        let named = named_beside(values.iter(), &[], pairs)?;
        let (mut fields, mut columns) = (Vec::with_capacity(named.len() + 1), Vec::with_capacity(named.len()));
        for (number, column) in named.iter().enumerate() {
            let data_type = pairs.field_from_column(column)?.data_type().clone();
            fields.push(Field::new(format!("#pair{number}"), data_type, true));
            columns.push(carried.iter().position(|known| known == column).unwrap_or_else(|| {
                carried.push(column.clone());
                carried.len() - 1
            }));
        }
        fields.push(Field::new("#row", DataType::Int64, false));
        let rows = self.environment.rows_to_come(Arc::new(Schema::new(fields)), None);
        let plan = self.over_rows(("#pairs", &rows), &named, true, numbered("#value", values).collect())?;
        Ok(ActionValues { rows, columns, plan })
    }

    /// The action of a WHEN, and the values that it computes.
    fn merge_action(
        &self,
        when: &MergeWhen,
        target: &Target,
        context: Context<'_>,
    ) -> Result<(BoundAction, Vec<Expr>)> {
        let wrong = |action: &str| {
            let kind = if when.matched == MergeMatch::NotMatchedByTarget { "NOT MATCHED" } else { "MATCHED" };
            BindError::new(sqlstate::SYNTAX_ERROR, format!("WHEN {kind} cannot {action}"), when.span)
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
                Ok((BoundAction::Update(assignments.set()), values))
            }
            MergeAction::Insert { .. } if !is_new => Err(wrong("INSERT")),
            MergeAction::Insert { values: None, .. } => Ok((BoundAction::Insert(Vec::new()), Vec::new())),
            MergeAction::Insert { columns, values: Some(given), overriding_system } => {
                check_overriding(*overriding_system)?;
                let places = target.places(columns)?;
                if let Some(more) = given.get(places.len()) {
                    return Err(BindError::new(
                        sqlstate::SYNTAX_ERROR,
                        "INSERT has more expressions than target columns",
                        more.span,
                    ));
                }
                if let Some((column, _)) = columns.get(given.len()) {
                    let message = "INSERT has more target columns than expressions";
                    return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, column.span));
                }
                let (mut set, mut values) = (Vec::new(), Vec::new());
                for (column, tree) in places.into_iter().zip(given) {
                    if let ExprKind::Default = tree.kind {
                        continue;
                    }
                    let bound = self.expression(tree, context.in_clause("VALUES"))?;
                    values.push(self.of_column(target, column, bound, context.schema)?.expr);
                    set.push((column, values.len() - 1));
                }
                set.iter().try_for_each(|(column, _)| target.insertable(*column, *overriding_system))?;
                Ok((BoundAction::Insert(set), values))
            }
        }
    }
}
