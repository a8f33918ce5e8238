//! INSERT: its columns, and the rows that it gives.

use crate::binder::Binder;
use crate::blanks::keeps_blanks;
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::expression::depends_on_settings;
use crate::plan_parts::values_plan;
use crate::query::is_body_alone;
use crate::scope::{Context, Scope};
use crate::statement::{BoundInsert, InsertSource};
use crate::target::{Target, no_value};
use crate::types::is_registered;
use crate::visit;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use serac_parser::tree::{Call, Expr as Tree, ExprKind, Insert, Name, Query, QueryBody, Select, Span};
use serac_pg::TypeId;
use serac_pg::functions::of_name;
use std::borrow::Cow;

/// Whether a value is DEFAULT.
fn is_default(tree: &Tree) -> bool {
    matches!(tree.kind, ExprKind::Default)
}

fn more_expressions(span: Span) -> BindError {
    BindError::new(sqlstate::SYNTAX_ERROR, "INSERT has more expressions than target columns", span)
}

impl Binder<'_> {
    pub(super) fn insert(&self, insert: &Insert) -> Result<BoundInsert> {
        check_overriding(insert.overriding_system)?;
        let target = self.environment.target(&insert.table)?;
        let mut columns = target.places(&insert.columns)?;
        let mut defaults = Vec::new();
        let source = match &insert.source {
            None => {
                columns.clear();
                InsertSource::Defaults(1)
            }
            Some(query) => match &query.body {
                // Functions of rows in a single row of values give several.
                QueryBody::Values(rows) if is_body_alone(query) && !matches!(&rows[..], [row] if has_sets(row)) => {
                    self.check_values(rows, insert, columns.len())?;
                    columns.truncate(rows.first().map_or(0, Vec::len));
                    defaults = places_of_defaults(rows, &mut columns);
                    match columns.is_empty() {
                        true => InsertSource::Defaults(rows.len()),
                        false => InsertSource::Plan(self.inserted_values(rows, &target, &columns)?),
                    }
                }
                _ => InsertSource::Plan(self.inserted_query(&as_select(query), insert, &target, &mut columns)?),
            },
        };
        let mut own = self.target_rows(&target, &insert.table, insert.alias.as_ref(), &[])?;
        // The rows to come have no places.
        own.scope.items[0].ctid = None;
        let conflict = match &insert.on_conflict {
            Some(conflict) => Some(self.conflict(conflict, &target, &own)?),
            None => None,
        };
        let schema = own.plan.schema().clone();
        let (returning, _) = self.returning(&insert.returning, &target, &own.scope, &own.scope, &schema)?;
        columns.iter().try_for_each(|column| target.insertable(*column, insert.overriding_system))?;
        let are_named = !insert.columns.is_empty();
        Ok(BoundInsert { target, columns, are_named, source, defaults, conflict, returning })
    }

    /// That the rows of VALUES are of one length, and not longer or shorter than they may be.
    fn check_values(&self, rows: &[Vec<Tree>], insert: &Insert, wanted: usize) -> Result<()> {
        let count = rows.first().map_or(0, Vec::len);
        for row in rows {
            if row.len() != count {
                let span = row.first().map_or(Span::default(), |first| first.span);
                return Err(BindError::new(sqlstate::SYNTAX_ERROR, "VALUES lists must all be the same length", span));
            }
        }
        if let Some(more) = rows.first().and_then(|row| row.get(wanted)) {
            return Err(more_expressions(more.span));
        }
        fewer_expressions(insert, count)
    }

    /// VALUES whose columns become the target's.
    fn inserted_values(&self, rows: &[Vec<Tree>], target: &Target, columns: &[usize]) -> Result<LogicalPlan> {
        let (scope, schema) = (Scope::default(), DFSchema::empty());
        let context = Context::new(&scope, &schema, None).in_clause("VALUES");
        // Columns of defaults alone are left out.
        let kept: Vec<usize> =
            (0..rows.first().map_or(0, Vec::len)).filter(|at| !rows.iter().all(|row| is_default(&row[*at]))).collect();
        let mut by_column: Vec<Vec<Option<Bound>>> = vec![Vec::with_capacity(rows.len()); kept.len()];
        for row in rows {
            for ((at, column), values) in kept.iter().zip(columns).zip(&mut by_column) {
                let tree = &row[*at];
                if is_default(tree) {
                    values.push(None);
                    continue;
                }
                let bound = self.expression(tree, context)?;
                values.push(Some(self.of_column(target, *column, bound, &schema)?));
            }
        }
        let mut all = Vec::with_capacity(kept.len());
        for (column, values) in columns.iter().zip(by_column) {
            all.push(self.of_one_column(target.type_of(*column), values, &schema)?);
        }
        // The caller, which puts the defaults in, finds the rows by their numbers.
        if kept.iter().any(|at| rows.iter().any(|row| is_default(&row[*at]))) {
            all.push((0..rows.len() as i64).map(lit).collect());
        }
        values_plan(all, rows.len())
    }

    /// The values of a column with a single type: their own if they have the same.
    fn of_one_column(
        &self,
        wanted: Option<TypeId>,
        values: Vec<Option<Bound>>,
        schema: &DFSchema,
    ) -> Result<Vec<Expr>> {
        let mut ids = values.iter().flatten().map(|value| value.id);
        let first = ids.next().unwrap_or(TypeId::TEXT);
        let id = match wanted {
            Some(wanted) if ids.any(|id| id != first) => wanted,
            _ => first,
        };
        let mut bound = Vec::with_capacity(values.len());
        for value in values {
            bound.push(match value {
                Some(value) if value.id == id => value,
                Some(value) => self.assigned(value, id, schema)?,
                None => {
                    let null =
                        Bound::new(Expr::Literal(ScalarValue::Utf8(None), None), TypeId::UNKNOWN, Span::default());
                    self.implicitly(null, id, schema)?
                }
            });
        }
        Ok(self.unified("VALUES", bound, schema)?.0)
    }

    /// A query whose columns become the target's, with as many of them as it has.
    fn inserted_query(
        &self,
        query: &Query,
        insert: &Insert,
        target: &Target,
        columns: &mut Vec<usize>,
    ) -> Result<LogicalPlan> {
        let ids: Vec<TypeId> = columns.iter().map(|column| target.type_of(*column).unwrap_or(TypeId::TEXT)).collect();
        let selected = self.query(query, None)?;
        let open: Vec<usize> = selected.open.iter().map(|(at, _)| *at).collect();
        let selected = selected.towards(self, &ids)?.closed()?;
        if let Some(more) = selected.columns.get(columns.len()) {
            return Err(more_expressions(more.span));
        }
        let schema = selected.plan.schema().clone();
        let mut exprs: Vec<Expr> = schema.iter().map(|field| Expr::Column(Column::from(field))).collect();
        let mut has_casts = false;
        for (at, (column, field)) in selected.columns.iter().zip(schema.iter()).enumerate() {
            if target.relation.types[columns[at]].is_none() {
                // A constant may become a value of a type that is not known.
                if open.contains(&at) {
                    continue;
                }
                return Err(no_value(target, columns[at], column.span));
            }
            if is_registered(column.id) {
                let what = format!("a query that gives values of type {} to be inserted", column.id);
                return Err(BindError::unsupported(what, column.span));
            }
            let bound = self.of_column(target, columns[at], column.read(Column::from(field)), &schema)?;
            // Others become values of the columns where they are written.
            // One of both has blanks that the other has not.
            let has_blanks = keeps_blanks(column.modified_type())
                || column.id == TypeId::BPCHAR && target.relation.types[columns[at]].is_some_and(keeps_blanks);
            if (has_blanks || depends_on_settings(column.id, ids[at])) && exprs[at] != bound.expr {
                exprs[at] = bound.expr.alias(field.1.name());
                has_casts = true;
            }
        }
        fewer_expressions(insert, selected.columns.len())?;
        columns.truncate(selected.columns.len());
        match has_casts {
            true => Ok(LogicalPlanBuilder::from(selected.plan).project(exprs)?.build()?),
            false => Ok(selected.plan),
        }
    }
}

/// Whether a value calls a function of rows.
fn has_sets(row: &[Tree]) -> bool {
    #[derive(Default)]
    struct Sets(bool);
    impl visit::Found for Sets {
        fn push(&mut self, _: Name) {}
        fn call(&mut self, call: &Call) {
            let name = call.name.parts.last().map_or("", |name| &name.name);
            self.0 |= of_name(name).iter().any(|function| function.returns_set);
        }
    }
    let mut found = Sets::default();
    row.iter().for_each(|tree| visit::of_expr(tree, &mut found));
    found.0
}

/// A query with a single row of VALUES, as a SELECT of its values.
fn as_select(query: &Query) -> Cow<'_, Query> {
    match &query.body {
        QueryBody::Values(rows) if is_body_alone(query) && rows.len() == 1 => {
            let select = Select::of(rows[0].clone(), query.span);
            Cow::Owned(Query { body: QueryBody::Select(Box::new(select)), ..query.clone() })
        }
        _ => Cow::Borrowed(query),
    }
}

/// Refuses OVERRIDING USER VALUE, which would give identity columns other values than those that
/// are written.
pub(super) fn check_overriding(system: Option<bool>) -> Result<()> {
    match system {
        Some(false) => Err(BindError::unsupported("OVERRIDING USER VALUE", NO_PLACE)),
        Some(true) | None => Ok(()),
    }
}

/// That all columns that are named get a value.
fn fewer_expressions(insert: &Insert, given: usize) -> Result<()> {
    match insert.columns.get(given) {
        Some((column, _)) => {
            Err(BindError::new(sqlstate::SYNTAX_ERROR, "INSERT has more target columns than expressions", column.span))
        }
        None => Ok(()),
    }
}

/// The rows of VALUES that say DEFAULT, for each column. Columns for which all do are taken out.
fn places_of_defaults(rows: &[Vec<Tree>], columns: &mut Vec<usize>) -> Vec<Vec<usize>> {
    let of_column = |at: usize| (0..rows.len()).filter(|row| is_default(&rows[*row][at])).collect::<Vec<_>>();
    let mut defaults: Vec<Vec<usize>> = (0..columns.len()).map(of_column).collect();
    for at in (0..columns.len()).rev() {
        if defaults[at].len() == rows.len() {
            columns.remove(at);
            defaults.remove(at);
        }
    }
    defaults
}
