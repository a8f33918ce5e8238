//! ON CONFLICT: the arbiter index, and the action.

use super::assignment::Assignments;
use super::returning::column_of;
use super::to_come;
use super::update::{numbered, projected};
use crate::binder::Binder;
use crate::blanks::{read, with_blanks};
use crate::error::{BindError, Result};
use crate::from::Rows;
use crate::scope::{Context, Scope, ScopeColumn, ScopeItem};
use crate::statement::{BoundConflict, ConflictUpdate, SetColumn};
use crate::target::{IndexPart, Target, UniqueIndex};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use serac_parser::tree::{Assignment, ConflictTarget, Expr as Tree, ExprKind, IndexElement, OnConflict};

impl Binder<'_> {
    pub(super) fn conflict(&self, conflict: &OnConflict, target: &Target, own: &Rows) -> Result<BoundConflict> {
        let index = match &conflict.target {
            None if conflict.update.is_some() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                let error = BindError::new(sqlstate::SYNTAX_ERROR, message, conflict.span);
                return Err(error.hinted("For example, ON CONFLICT (column_name)."));
            }
            None => None,
            Some(ConflictTarget::Constraint(name)) => {
                let is_meant = |index: &UniqueIndex| index.is_constraint && index.name == name.name;
                match target.indexes.iter().position(is_meant) {
                    Some(index) => Some(index),
                    None => {
                        let message =
                            format!("constraint \"{}\" for table \"{}\" does not exist", name.name, target.name);
                        return Err(BindError::without_place(sqlstate::UNDEFINED_OBJECT, message));
                    }
                }
            }
            Some(ConflictTarget::Index(parts, filter)) => {
                Some(self.conflict_index(parts, filter.as_ref(), target, own)?)
            }
        };
        let update = match &conflict.update {
            Some((assignments, filter)) => {
                Some(self.conflict_update(assignments, filter.as_ref(), target, own, conflict)?)
            }
            None => None,
        };
        Ok(BoundConflict { index, update })
    }

    /// The unique index over exactly the named parts, whose condition is implied by the given one.
    fn conflict_index(
        &self,
        parts: &[IndexElement],
        filter: Option<&Tree>,
        target: &Target,
        own: &Rows,
    ) -> Result<usize> {
        let schema = own.plan.schema().clone();
        let context = Context::new(&own.scope, &schema, None).in_clause("ON CONFLICT");
        let mut named = Vec::with_capacity(parts.len());
        for part in parts {
            named.push(self.conflict_element(part, context)?);
        }
        let given = match filter {
            Some(filter) => self.conjuncts(filter, context)?,
            None => Vec::new(),
        };
        let definition = |text: &str| serac_parser::parse_expression(text).ok();
        for (at, index) in target.indexes.iter().enumerate() {
            let part = |part: &IndexPart| match part {
                IndexPart::Column(column) => Some(own.scope.columns.get(*column)?.expr.clone()),
                // An unknown expression is not the named one.
                IndexPart::Expression(text) => Some(self.expression(&definition(text)?, context).ok()?.expr),
            };
            let Some(over) = index.parts.iter().map(part).collect::<Option<Vec<Expr>>>() else { continue };
            let conditions = match &index.predicate {
                None => Some(Vec::new()),
                Some(text) => definition(text).and_then(|tree| self.conjuncts(&tree, context).ok()),
            };
            let Some(conditions) = conditions else { continue };
            let is_over_it = named.iter().all(|n| over.contains(n)) && over.iter().all(|part| named.contains(part));
            if is_over_it && conditions.iter().all(|condition| given.contains(condition)) {
                return Ok(at);
            }
        }
        let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
        Err(BindError::without_place(sqlstate::INVALID_COLUMN_REFERENCE, message))
    }

    /// A column or an expression of an index, without its order.
    fn conflict_element(&self, part: &IndexElement, context: Context<'_>) -> Result<Expr> {
        let ordered = [(part.descending.is_some(), "ASC/DESC"), (part.nulls_first.is_some(), "NULLS FIRST/LAST")];
        if let Some((_, what)) = ordered.into_iter().find(|(is_said, _)| *is_said) {
            let message = format!("{what} is not allowed in ON CONFLICT clause");
            return Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, part.span));
        }
        match &part.class {
            Some(class) if !class.to_string().ends_with("_ops") => {
                let message = format!("operator class \"{class}\" does not exist for access method \"btree\"");
                return Err(BindError::without_place(sqlstate::UNDEFINED_OBJECT, message));
            }
            Some(_) => return Err(BindError::unsupported("an operator class in ON CONFLICT", part.span)),
            None if part.collation.is_some() => {
                return Err(BindError::unsupported("a collation in ON CONFLICT", part.span));
            }
            None => {}
        }
        Ok(self.expression(&part.expr, context)?.expr)
    }

    /// Conditions that must all be true.
    fn conjuncts(&self, tree: &Tree, context: Context<'_>) -> Result<Vec<Expr>> {
        match &tree.kind {
            ExprKind::And(trees) => {
                let mut all = Vec::new();
                for tree in trees {
                    all.extend(self.deeper(1, || self.conjuncts(tree, context))?);
                }
                Ok(all)
            }
            _ => Ok(vec![self.condition("WHERE", tree, context)?]),
        }
    }

    fn conflict_update(
        &self,
        assignments: &[Assignment],
        filter: Option<&Tree>,
        target: &Target,
        own: &Rows,
        conflict: &OnConflict,
    ) -> Result<ConflictUpdate> {
        let qualifier = TableReference::bare(self.qualifier("excluded"));
        let mut excluded = Scope::default();
        excluded.items.push(ScopeItem::named("excluded"));
        excluded.columns = own
            .scope
            .columns
            .iter()
            .map(|column| ScopeColumn {
                expr: read(Expr::Column(Column::new(Some(qualifier.clone()), &column.name)), column.of),
                ..column.clone()
            })
            .collect();
        let of_excluded: Vec<Expr> = excluded.columns.iter().map(|column| with_blanks(column.expr.clone())).collect();
        self.item_names.borrow_mut().push("excluded".into());
        let excluded_schema = DFSchema::try_from_qualified_schema(qualifier, &Schema::new(target.fields()))?;
        let schema = own.plan.schema().join(&excluded_schema)?;
        let scope = own.scope.clone().beside(excluded, conflict.span).map_err(BindError::unplaced)?;
        let context = Context::new(&scope, &schema, None);
        let assignments = Assignments::of(assignments, target)?;
        let values = self.assigned_values(&assignments, target, context.in_clause("UPDATE"))?;
        let filter = match filter {
            Some(filter) => Some(self.condition("WHERE", filter, context.in_clause("WHERE"))?),
            None => None,
        };
        assignments.check_generated(target)?;
        let mut fields = target.fields();
        for field in target.fields() {
            let name = format!("excluded:{}", field.name());
            fields.push(field.with_name(name));
        }
        fields.push(Field::new("#row", DataType::Int64, false));
        let rows = to_come(self.environment, fields, target);
        let name = TableReference::bare(self.qualifier("#conflicting"));
        let plan = LogicalPlanBuilder::scan(name, rows.clone(), None)?;
        let given: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let number = given[scope.columns.len()].clone();
        let mut renamed = Vec::with_capacity(given.len());
        for (given, column) in given.iter().zip(&scope.columns) {
            let column = column_of(&column.expr)?;
            renamed.push(given.clone().alias_qualified(column.relation, column.name));
        }
        renamed.push(number.alias("#row"));
        let plan = plan.project(renamed)?.build()?;
        let mut exprs = vec![Expr::Column(Column::new_unqualified("#row"))];
        let set = assignments.set();
        let is_excluded = |set: &&SetColumn| match set.value {
            Some(value) => values.get(value).is_some_and(|value| of_excluded.get(set.column) == Some(value)),
            None => false,
        };
        let as_excluded = set.iter().filter(is_excluded).map(|set| set.column).collect();
        exprs.extend(numbered("#value", values));
        Ok(ConflictUpdate { rows, plan: projected(plan, filter, exprs)?, set, as_excluded })
    }
}
