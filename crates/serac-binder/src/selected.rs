//! The columns that a query selects, and the queries of WITH.

use crate::binder::Binder;
use crate::blanks::{keeps_blanks, with_blanks};
use crate::bound::Bound;
use crate::error::Result;
use crate::number_forms::in_form;
use crate::statement::OutputColumn;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use serac_pg::{CastContext, TypeId};
use std::cell::Cell;

/// The columns that a query selects.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    pub(crate) plan: LogicalPlan,
    pub(crate) columns: Vec<OutputColumn>,
    /// The columns of type UNKNOWN: constants, and parameters of no type. The plan has texts in
    /// their places.
    pub(crate) open: Vec<(usize, Bound)>,
}

impl Selected {
    pub(crate) fn new(plan: LogicalPlan, columns: Vec<OutputColumn>) -> Self {
        Self { plan, columns, open: Vec::new() }
    }

    /// The same with columns of unknown type converted to `targets`.
    pub(crate) fn towards(self, binder: &Binder<'_>, targets: &[TypeId]) -> Result<Self> {
        if self.open.is_empty() || targets.is_empty() {
            return Ok(self);
        }
        let own = |(at, column): (usize, &OutputColumn)| match column.id {
            TypeId::UNKNOWN => targets.get(at).copied().unwrap_or(TypeId::TEXT),
            known => known,
        };
        let ids: Vec<TypeId> = self.columns.iter().enumerate().map(own).collect();
        self.of_types(binder, &ids)
    }

    /// The same with texts for the columns of unknown type.
    pub(crate) fn closed(mut self) -> Result<Self> {
        if self.open.is_empty() {
            return Ok(self);
        }
        if self.open.iter().all(|(_, bound)| bound.parameter.is_none()) {
            self.open.iter().for_each(|(at, _)| self.columns[*at].id = TypeId::TEXT);
            return Ok(Self { open: Vec::new(), ..self });
        }
        let ids: Vec<TypeId> = self.columns.iter().map(|column| column.id).collect();
        let ids = ids.into_iter().map(|id| if id == TypeId::UNKNOWN { TypeId::TEXT } else { id }).collect::<Vec<_>>();
        self.converted(&ids, |bound, to, schema| bound.into_type(to, CastContext::Implicit, schema))
    }

    /// The same with columns in other forms of their types.
    pub(crate) fn in_forms(self, wanted: &[DataType]) -> Result<Self> {
        let schema = self.plan.schema().clone();
        if schema.fields().iter().zip(wanted).all(|(field, wanted)| field.data_type() == wanted) {
            return Ok(self);
        }
        let exprs = schema.iter().zip(wanted).map(|(field, wanted)| {
            let column = Expr::Column(Column::from(field));
            match field.1.data_type() == wanted {
                true => Ok(column),
                false => Ok(in_form(column, wanted, &schema)?.alias(field.1.name())),
            }
        });
        let plan = LogicalPlanBuilder::from(self.plan).project(exprs.collect::<Result<Vec<_>>>()?)?.build()?;
        Ok(Self { plan, ..self })
    }

    /// The same with texts without blanks for all that are CHAR without a length, so that rows are
    /// equal where they should be.
    pub(crate) fn without_blanks(self) -> Result<Self> {
        if !self.columns.iter().any(|column| keeps_blanks(column.modified_type())) {
            return Ok(self);
        }
        let columns = self.plan.schema().iter().zip(&self.columns);
        let exprs = columns.map(|(field, column)| match column.read(Column::from(field)).expr {
            column @ Expr::Column(_) => column,
            computed => computed.alias(field.1.name()),
        });
        let exprs: Vec<Expr> = exprs.collect();
        let plan = LogicalPlanBuilder::from(self.plan).project(exprs)?.build()?;
        Ok(Self { plan, ..self })
    }

    /// The same with the blanks of each CHAR(n) that is a CHAR without a length in `columns`.
    pub(crate) fn with_own_blanks(self, binder: &Binder<'_>, columns: &[OutputColumn]) -> Result<Self> {
        let is_padded = |(own, wanted): (&OutputColumn, &OutputColumn)| {
            keeps_blanks(wanted.modified_type()) && own.modified_type().length().is_some()
        };
        if !self.columns.iter().zip(columns).any(is_padded) {
            return Ok(self);
        }
        let all = self.plan.schema().iter().zip(self.columns.iter().zip(columns));
        let exprs = all.map(|(field, pair)| match is_padded(pair) {
            true => {
                let text = binder.with_own_blanks(pair.0.read(Column::from(field)))?;
                Ok(with_blanks(text.expr).alias(field.1.name()))
            }
            false => Ok(Expr::Column(Column::from(field))),
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let plan = LogicalPlanBuilder::from(self.plan).project(exprs)?.build()?;
        let columns = self.columns.into_iter().zip(columns).map(|(own, wanted)| OutputColumn {
            modifier: if is_padded((&own, wanted)) { wanted.modifier } else { own.modifier },
            ..own
        });
        Ok(Self { plan, columns: columns.collect(), ..self })
    }

    /// The same as columns of other types.
    pub(crate) fn of_types(self, binder: &Binder<'_>, ids: &[TypeId]) -> Result<Self> {
        self.converted(ids, |bound, to, schema| binder.implicitly(bound, to, schema))
    }

    /// The same as columns of other types, by `convert`.
    fn converted(self, ids: &[TypeId], convert: impl Fn(Bound, TypeId, &DFSchema) -> Result<Bound>) -> Result<Self> {
        if self.columns.iter().zip(ids).all(|(column, id)| column.id == *id) {
            return Ok(self);
        }
        let schema = self.plan.schema().clone();
        let mut exprs = Vec::new();
        for (at, (field, (own, wanted))) in schema.iter().zip(self.columns.iter().zip(ids)).enumerate() {
            let bound = match self.open.iter().find(|(open, _)| *open == at) {
                Some((_, constant)) => constant.clone(),
                None => own.read(Column::from(field)),
            };
            let name = field.1.name().clone();
            let expr = convert(bound, *wanted, &schema)?.expr;
            exprs.push(match &expr {
                Expr::Column(_) => expr,
                _ => expr.alias(name),
            });
        }
        let plan = LogicalPlanBuilder::from(self.plan).project(exprs)?.build()?;
        let columns = self.columns.into_iter().zip(ids).map(|(column, id)| column.of_type(*id));
        Ok(Self::new(plan, columns.collect()))
    }
}

/// A query of WITH.
#[derive(Debug)]
pub(crate) struct WithTable {
    pub(crate) name: String,
    pub(crate) selected: Selected,
    /// The relations that it reads.
    pub(crate) relations: usize,
    /// The depth.
    pub(crate) levels: usize,
    /// It may give other rows at each place that names it.
    pub(crate) is_volatile: bool,
    /// It is a change without RETURNING, whose rows cannot be read.
    pub(crate) is_silent: bool,
    /// It has been named.
    pub(crate) is_used: Cell<bool>,
    /// It is the reference of the recursive term to its query.
    pub(crate) is_of_term: bool,
}

impl WithTable {
    pub(crate) fn new(name: &str, selected: Selected, relations: usize, levels: usize, is_volatile: bool) -> Self {
        let (name, is_used) = (name.to_owned(), Cell::new(false));
        Self { name, selected, relations, levels, is_volatile, is_silent: false, is_used, is_of_term: false }
    }
}
