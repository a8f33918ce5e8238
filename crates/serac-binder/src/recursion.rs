//! Recursive queries of WITH: `x AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)`.
//!
//! The second term reads the rows that its last run has given. It may read them once, and only
//! where a row's effect is final: not in subqueries, beside the rows that an outer join keeps, or
//! behind EXCEPT. PostgreSQL refuses the rest before it looks at names and types.

use crate::binder::Binder;
use crate::error::{BindError, NO_PLACE, Result};
use crate::from::rename;
use crate::limits::STACK;
use crate::query::without_search;
use crate::scope::Outer;
use crate::selected::{Selected, WithTable};
use crate::statement::OutputColumn;
use crate::visit;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::TableReference;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use serac_numeric_functions::FREE;
use serac_parser::tree::{
    CommonTable, JoinKind, JoinOn, Name, Query, QueryBody, Select, SetKind, SetOperator, Span, StatementKind,
    TableExpr, TableKind,
};
use serac_pg::{ModifiedType, TypeId};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// The place where a query is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Allowed,
    FirstTerm,
    Subquery,
    OuterJoin,
    Intersect,
    Except,
}

impl Place {
    fn message(self) -> &'static str {
        match self {
            Self::Allowed => "more than once",
            Self::FirstTerm => "within its non-recursive term",
            Self::Subquery => "within a subquery",
            Self::OuterJoin => "within an outer join",
            Self::Intersect => "within INTERSECT",
            Self::Except => "within EXCEPT",
        }
    }
}

/// A walk through the query of a WITH, which counts where that reads itself.
struct Walk<'n> {
    name: &'n str,
    count: usize,
}

fn named<'f>(found: &'f [Name], name: &str) -> Option<&'f Name> {
    found.iter().find(|relation| matches!(&relation.parts[..], [part] if part.name == name))
}

/// The names without a schema of the relations that a query of WITH reads.
pub(crate) fn names_read(table: &CommonTable) -> HashSet<String> {
    let mut found = Vec::new();
    if let StatementKind::Query(query) = &table.statement.kind {
        visit::relations_of(query, &mut found);
    }
    let alone = found.into_iter().filter(|name| name.parts.len() == 1);
    alone.flat_map(|name| name.parts).map(|part| part.name).collect()
}

impl Walk<'_> {
    fn found(&mut self, relation: &Name, place: Place) -> Result<()> {
        self.count += 1;
        if place == Place::Allowed && self.count == 1 {
            return Ok(());
        }
        let message = format!("recursive reference to query \"{}\" must not appear {}", self.name, place.message());
        Err(BindError::new(sqlstate::INVALID_RECURSION, message, relation.span))
    }

    /// The places outside of FROM: a read of the query there is a subquery.
    fn others(&mut self, relations: &[Name], place: Place) -> Result<()> {
        match named(relations, self.name) {
            Some(relation) => self.found(relation, if place == Place::Allowed { Place::Subquery } else { place }),
            None => Ok(()),
        }
    }

    fn query(&mut self, query: &Query, place: Place) -> Result<()> {
        for table in query.with.iter().flat_map(|with| &with.tables) {
            if table.name.name == self.name {
                return Ok(());
            }
            if let StatementKind::Query(query) = &table.statement.kind {
                self.query(query, place)?;
            }
        }
        stacker::maybe_grow(STACK.0, STACK.1, || self.body(&query.body, place))?;
        let mut found = Vec::new();
        visit::relations_of_clauses(query, &mut found);
        self.others(&found, place)
    }

    fn body(&mut self, body: &QueryBody, place: Place) -> Result<()> {
        match body {
            QueryBody::Select(select) => self.select(select, place),
            QueryBody::Nested(query) => self.query(query, place),
            QueryBody::Table(relation, _) if named(std::slice::from_ref(&relation.name), self.name).is_some() => {
                self.found(&relation.name, place)
            }
            QueryBody::Table(..) => Ok(()),
            QueryBody::Values(rows) => {
                let mut found = Vec::new();
                visit::relations_of_rows(rows, &mut found);
                self.others(&found, place)
            }
            QueryBody::SetOperations(first, rest) => {
                let places = |operator: &SetOperator| match operator.kind {
                    _ if place != Place::Allowed => (place, place),
                    SetKind::Intersect if operator.all => (Place::Intersect, Place::Intersect),
                    SetKind::Except => (if operator.all { Place::Except } else { place }, Place::Except),
                    _ => (place, place),
                };
                // Each operator has all before it on its left.
                let of_left = |operators: &[(SetOperator, QueryBody)]| {
                    let mut left = operators.iter().rev().map(|(operator, _)| places(operator).0);
                    left.find(|found| *found != Place::Allowed).unwrap_or(place)
                };
                self.body(first, of_left(rest))?;
                for (at, (operator, body)) in rest.iter().enumerate() {
                    let own = places(operator).1;
                    self.body(body, if own == Place::Allowed { of_left(&rest[at + 1..]) } else { own })?;
                }
                Ok(())
            }
        }
    }

    fn select(&mut self, select: &Select, place: Place) -> Result<()> {
        select.from.iter().try_for_each(|table| self.table(table, place))?;
        let mut found = Vec::new();
        visit::relations_of_expressions(select, &mut found);
        self.others(&found, place)
    }

    fn table(&mut self, table: &TableExpr, place: Place) -> Result<()> {
        let mut found = Vec::new();
        match &table.kind {
            TableKind::Relation { relation, .. } => match named(std::slice::from_ref(&relation.name), self.name) {
                Some(name) => self.found(name, place),
                None => Ok(()),
            },
            TableKind::Query { query, .. } => self.query(query, place),
            TableKind::Nested { table, .. } => self.table(table, place),
            TableKind::Join { left, joins } => {
                let outer = if place == Place::Allowed { Place::OuterJoin } else { place };
                // The left side of a join that keeps the other side's rows.
                let is_optional = |kind: JoinKind| matches!(kind, JoinKind::Full | JoinKind::Right);
                let is_left_optional = joins.iter().any(|join| is_optional(join.kind));
                self.table(left, if is_left_optional { outer } else { place })?;
                for (at, join) in joins.iter().enumerate() {
                    let is_right_optional = matches!(join.kind, JoinKind::Full | JoinKind::Left);
                    let is_left_later = joins[at + 1..].iter().any(|join| is_optional(join.kind));
                    self.table(&join.right, if is_right_optional || is_left_later { outer } else { place })?;
                    if let JoinOn::Condition(condition) = &join.on {
                        visit::relations_of_rows(&[vec![condition.clone()]], &mut found);
                    }
                }
                self.others(&found, place)
            }
            TableKind::Functions { .. } | TableKind::File { .. } => {
                visit::relations_of_table(table, &mut found);
                self.others(&found, place)
            }
        }
    }
}

impl Binder<'_> {
    /// A query of WITH that reads itself; `is_first`: it runs before the rest of the statement,
    /// which changes data.
    pub(crate) fn recursive_table(
        &self,
        table: &CommonTable,
        query: &Query,
        outer: Option<&Outer<'_>>,
        is_first: bool,
    ) -> Result<WithTable> {
        let name = &table.name.name;
        let mut walk = Walk { name, count: 0 };
        if walk.query(query, Place::Allowed).is_ok() && walk.count == 0 {
            // Another query has the name.
            return self.with_table(table, query, outer, is_first);
        }
        without_search(table)?;
        if query.with.is_some() {
            return Err(BindError::unsupported("a recursive query with a WITH of its own", NO_PLACE));
        }
        let (first, last, operator) = match &query.body {
            QueryBody::SetOperations(first, rest) => match rest.split_last() {
                Some(((operator, last), before)) if operator.kind == SetKind::Union && !operator.by_name => {
                    let first = match before {
                        [] => first.as_ref().clone(),
                        before => QueryBody::SetOperations(first.clone(), before.to_vec()),
                    };
                    (first, last, operator)
                }
                _ => return Err(of_other_form(name, table.name.span)),
            },
            _ => return Err(of_other_form(name, table.name.span)),
        };
        let mut walk = Walk { name, count: 0 };
        walk.body(&first, Place::FirstTerm)?;
        walk.body(last, Place::Allowed)?;
        let absent = [
            (!query.order_by.is_empty() || query.order_by_all.is_some(), "ORDER BY"),
            (query.offset.is_some(), "OFFSET"),
            (query.limit.is_some(), "LIMIT"),
            (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
        ];
        if let Some((_, clause)) = absent.iter().find(|(is_said, _)| *is_said) {
            let message = format!("{clause} in a recursive query is not implemented");
            return Err(BindError::without_place(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let before = self.relations.get();
        let deepest = self.deepest.replace(self.levels.get());
        let mut selected = self.branch(&first, outer)?.without_blanks()?.closed()?;
        rename(&mut selected.columns, &table.columns, name, table.name.span)?;
        selected.columns.iter_mut().for_each(|column| column.origin = None);
        if operator.all {
            selected = free_numbers(selected)?;
        }
        let (recursive, own) = self.recursive_term(name, &selected, last, outer)?;
        let recursive = self.of_same_types(name, &selected, recursive)?;
        if !operator.all {
            // Equal rows are left out by their bytes.
            let schema = selected.plan.schema();
            for column in schema.columns() {
                if self.own_key(&Expr::Column(column), schema)?.is_some() {
                    return Err(BindError::unsupported(
                        "a recursive query that leaves out equal rows of these values",
                        NO_PLACE,
                    ));
                }
            }
        }
        let builder = LogicalPlanBuilder::from(selected.plan);
        let plan = builder.to_recursive_query(own, recursive.plan, !operator.all)?.build()?;
        let levels = self.deepest.get() - self.levels.get();
        self.deepest.set(deepest.max(self.deepest.get()));
        let relations = self.relations.get() - before;
        // It counts again where it is named.
        self.relations.set(before);
        let mut selected = Selected::new(plan, selected.columns);
        if is_first {
            selected = self.done_first(selected)?;
        }
        let is_volatile = self.shared(&mut selected, table, is_first)?;
        Ok(WithTable::new(name, selected, relations + 1, levels, is_volatile))
    }

    /// The term that reads the rows of the query, and the name under which it reads them.
    fn recursive_term(
        &self,
        name: &str,
        first: &Selected,
        body: &QueryBody,
        outer: Option<&Outer<'_>>,
    ) -> Result<(Selected, String)> {
        let own = self.qualifier("#recursive");
        // Each run may give NULLs.
        let fields = first.plan.schema().fields().iter().enumerate();
        let fields: Vec<Field> =
            fields.map(|(at, field)| Field::new(format!("column{at}"), field.data_type().clone(), true)).collect();
        let source = self.environment.work_table(&own, Arc::new(Schema::new(fields)));
        let source = source.ok_or_else(|| BindError::unsupported("a recursive query", NO_PLACE))?;
        let scan = LogicalPlanBuilder::scan(TableReference::bare(own.as_str()), source, None)?.build()?;
        let rows = Selected::new(scan, first.columns.clone());
        let table = WithTable { is_of_term: true, ..WithTable::new(name, rows, 1, 1, false) };
        self.tables.borrow_mut().push(Rc::new(table));
        let parts = self.done_before.borrow().len();
        let bound = self.branch(body, outer);
        self.tables.borrow_mut().pop();
        // It might read the rows of the query.
        if self.done_before.borrow().len() > parts {
            return Err(BindError::unsupported("a claim of rows in a recursive query", NO_PLACE));
        }
        Ok((bound?.without_blanks()?, own))
    }

    /// The recursive term with columns of the first one's types, which its untyped constants get.
    fn of_same_types(&self, name: &str, first: &Selected, recursive: Selected) -> Result<Selected> {
        if first.columns.len() != recursive.columns.len() {
            let at = recursive.columns.first().map_or(Span::default(), |column| column.span);
            return Err(BindError::new(
                sqlstate::SYNTAX_ERROR,
                "each UNION query must have the same number of columns",
                at,
            ));
        }
        for (at, (one, other)) in first.columns.iter().zip(&recursive.columns).enumerate() {
            let OutputColumn { id, span, .. } = one;
            let overall = serac_pg::resolve::common(&[*id, other.id]).map_err(|_| {
                let message = format!("UNION types {id} and {} cannot be matched", other.id);
                BindError::new(sqlstate::DATATYPE_MISMATCH, message, other.span)
            })?;
            let overall = Some(overall).filter(|overall| *overall != TypeId::UNKNOWN);
            let overall =
                overall.map(|overall| ModifiedType::common(overall, [one.modified_type(), other.modified_type()]));
            if let Some(overall) = overall.filter(|overall| *overall != one.modified_type()) {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {} in non-recursive term but type {overall} overall",
                    at + 1,
                    one.modified_type(),
                );
                let error = BindError::new(sqlstate::DATATYPE_MISMATCH, message, *span);
                return Err(error.hinted("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let ids: Vec<TypeId> = first.columns.iter().map(|column| column.id).collect();
        let recursive = recursive.of_types(self, &ids)?;
        let stored = |selected: &Selected| -> Vec<DataType> {
            selected.plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
        };
        let (wanted, given) = (stored(first), stored(&recursive));
        if wanted == given {
            return Ok(recursive);
        }
        let is_number = |id: &TypeId| *id == TypeId::NUMERIC;
        let is_alike = |at: usize| wanted[at] == given[at] || (is_number(&ids[at]) && wanted[at] == FREE);
        if !(0..ids.len()).all(is_alike) {
            return Err(BindError::unsupported(
                "a recursive query whose terms have numbers of different digits",
                NO_PLACE,
            ));
        }
        recursive.in_forms(&wanted)
    }
}

/// Numbers with digits of their own, which each run of the recursive term may give others of.
fn free_numbers(selected: Selected) -> Result<Selected> {
    let fields = selected.plan.schema().fields().iter();
    let wanted: Vec<DataType> = fields
        .zip(&selected.columns)
        .map(|(field, column)| if column.id == TypeId::NUMERIC { FREE } else { field.data_type().clone() })
        .collect();
    selected.in_forms(&wanted)
}

fn of_other_form(name: &str, span: Span) -> BindError {
    let message =
        format!("recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term");
    BindError::new(sqlstate::INVALID_RECURSION, message, span)
}
