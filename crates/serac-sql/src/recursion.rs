//! Where a recursive WITH may read itself: once, in the last term of its UNION, and nowhere that the rows found so far do not decide
//! for good (subqueries, the far side of outer joins, EXCEPT). PostgreSQL refuses the rest, and so does SeracDB.

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::planner::is_aggregate;
use crate::visits::{visit, visit_expressions};
use datafusion::sql::sqlparser::ast::{
    Expr, Join, JoinConstraint, JoinOperator, LimitClause, ObjectName, Query, Select, SetExpr, SetOperator,
    SetQuantifier, TableFactor, TableWithJoins, Visit, Visitor, With,
};
use std::ops::ControlFlow;

/// Where a query is read.
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

/// Whether anything in a tree reads a relation of a name.
fn reads(tree: &impl Visit, name: &str) -> bool {
    struct Readers<'n>(&'n str);
    impl Visitor for Readers<'_> {
        type Break = ();
        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            if is_named(relation, self.0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    visit(tree, &mut Readers(name)).is_break()
}

fn is_named(relation: &ObjectName, name: &str) -> bool {
    matches!(&relation.0[..], [part] if part.as_ident().is_some_and(|ident| fold(ident) == name))
}

impl Walk<'_> {
    fn refused(&self, place: Place) -> SqlError {
        let message = format!("recursive reference to query \"{}\" must not appear {}", self.name, place.message());
        SqlError::new("42P19", message).named(self.name)
    }
    fn found(&mut self, place: Place) -> Result<()> {
        self.count += 1;
        if place != Place::Allowed || self.count > 1 { Err(self.refused(place)) } else { Ok(()) }
    }
    /// What is no item of FROM: whatever reads the query there is a subquery.
    fn others(&mut self, tree: &impl Visit, place: Place) -> Result<()> {
        match reads(tree, self.name) {
            true => self.found(if place == Place::Allowed { Place::Subquery } else { place }),
            false => Ok(()),
        }
    }
    fn query(&mut self, query: &Query, place: Place) -> Result<()> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            if fold(&table.alias.name) == self.name {
                return Ok(());
            }
            self.query(&table.query, place)?;
        }
        self.body(&query.body, place)?;
        if let Some(order) = &query.order_by {
            self.others(order, place)?;
        }
        Ok(())
    }
    fn body(&mut self, body: &SetExpr, place: Place) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, place),
            SetExpr::Query(query) => self.query(query, place),
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let all = *set_quantifier == SetQuantifier::All;
                let (of_left, of_right) = match op {
                    _ if place != Place::Allowed => (place, place),
                    SetOperator::Intersect if all => (Place::Intersect, Place::Intersect),
                    SetOperator::Except | SetOperator::Minus => {
                        (if all { Place::Except } else { place }, Place::Except)
                    }
                    _ => (place, place),
                };
                self.body(left, of_left)?;
                self.body(right, of_right)
            }
            other => self.others(other, place),
        }
    }
    fn select(&mut self, select: &Select, place: Place) -> Result<()> {
        let before = self.count;
        select.from.iter().try_for_each(|table| self.table(table, place))?;
        let rest = Select { from: Vec::new(), ..select.clone() };
        self.others(&rest, place)?;
        if self.count > before && has_aggregate(&rest) {
            let message = "aggregate functions are not allowed in a recursive query's recursive term";
            return Err(SqlError::new("42P19", message));
        }
        Ok(())
    }
    fn table(&mut self, TableWithJoins { relation, joins }: &TableWithJoins, place: Place) -> Result<()> {
        use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
        let outer = if place == Place::Allowed { Place::OuterJoin } else { place };
        // What stands to the left of a join that keeps the other side's rows.
        let is_optional = |join: &Join| matches!(join.join_operator, FullOuter(_) | Right(_) | RightOuter(_));
        self.factor(relation, if joins.iter().any(is_optional) { outer } else { place })?;
        for (at, join) in joins.iter().enumerate() {
            let is_right_optional = matches!(join.join_operator, FullOuter(_) | Left(_) | LeftOuter(_));
            let is_left_later = joins[at + 1..].iter().any(is_optional);
            self.factor(&join.relation, if is_right_optional || is_left_later { outer } else { place })?;
            if let Some(JoinConstraint::On(condition)) = constraint(&join.join_operator) {
                self.others(condition, place)?;
            }
        }
        Ok(())
    }
    fn factor(&mut self, factor: &TableFactor, place: Place) -> Result<()> {
        match factor {
            TableFactor::Table { name, args: None, .. } if is_named(name, self.name) => self.found(place),
            TableFactor::Table { args: None, .. } => Ok(()),
            TableFactor::Derived { subquery, .. } => self.query(subquery, place),
            TableFactor::NestedJoin { table_with_joins, .. } => self.table(table_with_joins, place),
            other => self.others(other, place),
        }
    }
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    match operator {
        Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) => Some(on),
        _ => None,
    }
}

/// Whether a SELECT aggregates its rows.
fn has_aggregate(select: &Select) -> bool {
    let aggregates = |expr: &Expr| match expr {
        Expr::Function(function) if function.over.is_none() => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
            name.is_some_and(|name| is_aggregate(&name))
        }
        _ => false,
    };
    let found = visit_expressions(select, |expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(false),
        expr if aggregates(expr) => ControlFlow::Break(true),
        _ => ControlFlow::Continue(()),
    });
    matches!(found, ControlFlow::Break(true))
}

/// Checks the queries of a WITH.
///
/// # Errors
/// 42P19 for a query that reads itself where it must not, 0A000 for what recursive queries do not have.
pub(crate) fn check(with: &With) -> Result<()> {
    for table in with.cte_tables.iter().filter(|_| with.recursive) {
        let name = fold(&table.alias.name);
        let query = &table.query;
        if !reads(query, &name) {
            continue;
        }
        let mut walk = Walk { name: &name, count: 0 };
        for inner in query.with.iter().flat_map(|with| &with.cte_tables) {
            if fold(&inner.alias.name) == name {
                return Ok(());
            }
            walk.others(&inner.query, Place::Subquery)?;
        }
        let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = &*query.body else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(SqlError::new("42P19", message).named(name));
        };
        walk.body(left, Place::FirstTerm)?;
        walk.body(right, Place::Allowed)?;
        let (limit, offset) = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => (limit.is_some(), offset.is_some()),
            _ => (false, false),
        };
        let absent = [
            (query.order_by.is_some(), "ORDER BY"),
            (offset, "OFFSET"),
            (limit || query.fetch.is_some(), "LIMIT"),
            (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
        ];
        if let Some((_, clause)) = absent.iter().find(|(is_said, _)| *is_said) {
            return Err(SqlError::new("0A000", format!("{clause} in a recursive query is not implemented")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn recursion_is_refused_where_postgresql_refuses_it() {
        let state = |term: &str| {
            let sql = format!("WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL {term}) SELECT * FROM x");
            crate::session::parse_one(&sql, (1, 1)).map_or_else(|error| error.sqlstate, |_| "")
        };
        for (term, wanted) in [
            ("SELECT n + 1 FROM x WHERE n < 5", ""),
            ("SELECT n + 1 FROM (SELECT * FROM x) AS y", ""),
            ("SELECT n + 1 FROM t LEFT JOIN u ON true JOIN x ON true", ""),
            ("SELECT n + 1 FROM t WHERE n IN (SELECT n FROM x)", "42P19"),
            ("SELECT x1.n + 1 FROM x AS x1, x AS x2", "42P19"),
            ("SELECT n + 1 FROM t LEFT JOIN x ON true", "42P19"),
            ("SELECT n + 1 FROM x RIGHT JOIN t ON true", "42P19"),
            ("SELECT count(*) FROM x", "42P19"),
            ("(SELECT n FROM x EXCEPT SELECT n FROM t)", ""),
            // Which is (... UNION ALL ...) EXCEPT ....
            ("SELECT n FROM x EXCEPT SELECT n FROM t", "42P19"),
            ("(SELECT n FROM t EXCEPT SELECT n FROM x)", "42P19"),
            ("SELECT n + 1 FROM x ORDER BY 1", "0A000"),
        ] {
            assert_eq!(state(term), wanted, "{term}");
        }
    }
}
