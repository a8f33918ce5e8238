//! The table that a change changes.

use crate::binder::Binder;
use crate::blanks::{keeps_blanks, with_blanks};
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::from::{Rows, last_part};
use crate::scope::{ScopeColumn, ScopeItem};
use crate::selected::Selected;
use crate::target::{Target, no_value};
use crate::types::{is_no_type, is_registered, known_type};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder};
use serac_parser::tree::{Alias, Ident, Name};
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};

impl Binder<'_> {
    /// The target's rows under its alias or its name, the first columns under other `names`.
    pub(crate) fn target_rows(
        &self,
        target: &Target,
        name: &Name,
        alias: Option<&Ident>,
        names: &[Ident],
    ) -> Result<Rows> {
        let last = last_part(name)?;
        let (shown, schema) = match (alias, &name.parts[..]) {
            (Some(alias), _) => (alias, None),
            (None, [.., schema, _]) => (last, Some(schema.name.clone())),
            (None, _) => (last, self.environment.schema_of(last)),
        };
        self.reads(1)?;
        self.item_names.borrow_mut().push(last.name.clone());
        let relation = &target.relation;
        let scan = LogicalPlanBuilder::scan(relation.name.clone(), relation.source.clone(), None)?.build()?;
        let columns = relation.columns(&scan, last.span);
        let item = ScopeItem { schema, is_table: true, has_system_columns: true, ..ScopeItem::named(&shown.name) };
        let alias = Alias { name: shown.clone(), columns: names.to_vec() };
        let mut rows = self.named(Selected::new(scan, columns), item, Some(&alias))?;
        rows.scope.items[0].ctid = relation.ctid(&rows.plan).map(ScopeColumn::of_ctid);
        Ok(rows)
    }

    /// A value that is assigned to a column. It becomes one of the column where it is written, with
    /// its length and digits, except for values without a type.
    pub(crate) fn of_column(&self, target: &Target, at: usize, bound: Bound, schema: &DFSchema) -> Result<Bound> {
        let given = bound.id;
        let Some(wanted) = target.type_of(at) else {
            let stored = target.relation.source.schema().field(at).data_type().clone();
            return match (given, &bound.parameter) {
                (TypeId::UNKNOWN, None) => bound.into_text(),
                // A column of the same type.
                (given, _) if is_no_type(given) && bound.expr.get_type(schema)? == stored => Ok(bound),
                _ => Err(no_value(target, at, bound.span)),
            };
        };
        known_type(given, bound.span)?;
        if given == TypeId::UNKNOWN {
            let bound = self.as_type(bound, wanted, CastContext::Assignment, schema)?;
            let expr = if wanted == TypeId::BPCHAR { with_blanks(bound.expr) } else { bound.expr };
            return Ok(Bound { expr, ..bound });
        }
        if given != wanted && cast(given, wanted, CastContext::Assignment).is_none() {
            let name = target.column_name(at);
            let message = format!("column \"{name}\" is of type {wanted} but expression is of type {given}");
            let error = BindError::new(sqlstate::DATATYPE_MISMATCH, message, bound.span);
            return Err(error.hinted("You will need to rewrite or cast the expression."));
        }
        // The number of an object is not its shown form, and a row has no stored form.
        if is_registered(given) && given != wanted {
            return self.assigned(bound, wanted, schema);
        }
        // Both are stored alike, but one of them in a normal form.
        if (given, wanted) == (TypeId::JSON, TypeId::JSONB) {
            return self.as_type(bound, wanted, CastContext::Assignment, schema);
        }
        if given != wanted
            && let Some(expr) = self.environment.cast_by_settings(&bound.expr, given, wanted, bound.span, schema)?
        {
            return Ok(Bound::new(expr, wanted, bound.span));
        }
        bound.exact()?;
        if wanted == TypeId::BPCHAR {
            let bound = match target.relation.types[at].is_some_and(keeps_blanks) {
                true => self.with_own_blanks(bound)?,
                false => bound,
            };
            return Ok(Bound { expr: with_blanks(bound.expr), ..bound });
        }
        Ok(bound)
    }

    /// The column that says which row of the target it is.
    pub(crate) fn row_of(&self, rows: &Rows, target: &Target) -> Expr {
        Expr::Column(Column::from(rows.plan.schema().qualified_field(target.width())))
    }
}
