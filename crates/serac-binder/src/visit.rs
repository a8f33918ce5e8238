//! The relations that a statement names, wherever a query may stand.

use crate::limits::STACK;
use serac_parser::tree::{
    Assignment, Call, Condition, ConflictTarget, Distinct, Expr, ExprKind, FrameBound, GroupBy, GroupItem, IsTest,
    JoinOn, MergeAction, Name, OrderItem, Over, Postfix, Quantity, Query, QueryBody, Relation, Select, SelectItem,
    Span, Special, StatementKind, TableExpr, TableKind, Window, With,
};

/// The findings of a walk: its relations, and other parts that are of use.
pub trait Found {
    /// A relation.
    fn push(&mut self, relation: Name);
    /// An item of FROM, before those in it.
    fn table(&mut self, _: &TableExpr) {}
    /// `TABLE t`, and where it stands.
    fn table_alone(&mut self, _: &Relation, _: Span) {}
    /// A name in an expression.
    fn name(&mut self, _: &Name) {}
    /// A call, behind those in it.
    fn call(&mut self, _: &Call) {}
    /// A query, before its parts.
    fn query(&mut self, _: &Query) {}
    /// The end of the query that has begun last and not ended.
    fn query_ends(&mut self) {}
    /// `*` or `t.*`.
    fn wildcard(&mut self) {}
    /// A parameter, by its number.
    fn parameter(&mut self, _: u32) {}
}

impl Found for Vec<Name> {
    fn push(&mut self, relation: Name) {
        self.push(relation);
    }
}

/// Tells `found` of the relations of a query, and of all queries in it.
pub fn relations_of(query: &Query, found: &mut dyn Found) {
    found.query(query);
    of_with(query.with.as_ref(), found);
    stacker::maybe_grow(STACK.0, STACK.1, || of_body(&query.body, found));
    relations_of_clauses(query, found);
    found.query_ends();
}

/// The relations of a query's clauses behind its body.
pub(crate) fn relations_of_clauses(query: &Query, found: &mut dyn Found) {
    of_order(&query.order_by, found);
    query.limit.iter().chain(&query.offset).for_each(|expr| of_expr(expr, found));
}

/// The relations of the subqueries of VALUES.
pub(crate) fn relations_of_rows(rows: &[Vec<Expr>], found: &mut dyn Found) {
    rows.iter().flatten().for_each(|expr| of_expr(expr, found));
}

/// The relations of an item of FROM.
pub(crate) fn relations_of_table(table: &TableExpr, found: &mut dyn Found) {
    of_table(table, found);
}

/// The relations of a query or a change, except its target, or of the arguments of CALL and
/// EXECUTE.
pub(crate) fn relations_of_statement(statement: &StatementKind, found: &mut dyn Found) {
    stacker::maybe_grow(STACK.0, STACK.1, || of_statement(statement, found));
}

fn of_statement(statement: &StatementKind, found: &mut dyn Found) {
    match statement {
        StatementKind::Query(query) => relations_of(query, found),
        StatementKind::Insert(insert) => {
            of_with(insert.with.as_ref(), found);
            insert.source.iter().for_each(|query| relations_of(query, found));
            if let Some(conflict) = &insert.on_conflict {
                if let Some(ConflictTarget::Index(parts, filter)) = &conflict.target {
                    parts.iter().for_each(|part| of_expr(&part.expr, found));
                    filter.iter().for_each(|filter| of_expr(filter, found));
                }
                if let Some((assignments, filter)) = &conflict.update {
                    of_assignments(assignments, found);
                    filter.iter().for_each(|filter| of_expr(filter, found));
                }
            }
            of_items(&insert.returning, found);
        }
        StatementKind::Update(update) => {
            of_with(update.with.as_ref(), found);
            of_assignments(&update.assignments, found);
            update.from.iter().for_each(|table| of_table(table, found));
            of_condition(update.filter.as_ref(), found);
            of_items(&update.returning, found);
        }
        StatementKind::Delete(delete) => {
            of_with(delete.with.as_ref(), found);
            delete.using.iter().for_each(|table| of_table(table, found));
            of_condition(delete.filter.as_ref(), found);
            of_items(&delete.returning, found);
        }
        StatementKind::Merge(merge) => {
            of_with(merge.with.as_ref(), found);
            of_table(&merge.source, found);
            of_expr(&merge.on, found);
            for when in &merge.whens {
                when.condition.iter().for_each(|condition| of_expr(condition, found));
                match &when.action {
                    MergeAction::Update(assignments) => of_assignments(assignments, found),
                    MergeAction::Insert { values, .. } => values.iter().for_each(|values| of_exprs(values, found)),
                    MergeAction::Nothing | MergeAction::Delete => {}
                }
            }
            of_items(&merge.returning, found);
        }
        StatementKind::Call(call) => of_call(call, found),
        StatementKind::Execute(execute) => of_exprs(&execute.arguments, found),
        _ => {}
    }
}

fn of_with(with: Option<&With>, found: &mut dyn Found) {
    for table in with.iter().flat_map(|with| &with.tables) {
        relations_of_statement(&table.statement.kind, found);
    }
}

fn of_assignments(assignments: &[Assignment], found: &mut dyn Found) {
    assignments.iter().for_each(|assignment| of_expr(&assignment.value, found));
}

fn of_condition(condition: Option<&Condition>, found: &mut dyn Found) {
    if let Some(Condition::Expr(filter)) = condition {
        of_expr(filter, found);
    }
}

fn of_items(items: &[SelectItem], found: &mut dyn Found) {
    for item in items {
        of_expr(&item.expr, found);
        item.replace.iter().for_each(|(expr, _)| of_expr(expr, found));
    }
}

fn of_body(body: &QueryBody, found: &mut dyn Found) {
    match body {
        QueryBody::Select(select) => of_select(select, found),
        QueryBody::Values(rows) => relations_of_rows(rows, found),
        QueryBody::Table(relation, at) => {
            found.table_alone(relation, *at);
            found.push(relation.name.clone());
        }
        QueryBody::Nested(query) => relations_of(query, found),
        QueryBody::SetOperations(first, rest) => {
            of_body(first, found);
            rest.iter().for_each(|(_, body)| of_body(body, found));
        }
    }
}

fn of_select(select: &Select, found: &mut dyn Found) {
    select.from.iter().for_each(|table| of_table(table, found));
    relations_of_expressions(select, found);
}

/// The relations of the subqueries of a SELECT, except those of FROM.
pub(crate) fn relations_of_expressions(select: &Select, found: &mut dyn Found) {
    if let Distinct::On(exprs) = &select.distinct {
        of_exprs(exprs, found);
    }
    of_items(&select.items, found);
    select.filter.iter().chain(&select.having).chain(&select.qualify).for_each(|expr| of_expr(expr, found));
    if let GroupBy::Items { items, .. } = &select.group_by {
        items.iter().for_each(|item| of_group(item, found));
    }
    select.windows.iter().for_each(|(_, window)| of_window(window, found));
}

fn of_group(item: &GroupItem, found: &mut dyn Found) {
    match item {
        GroupItem::Empty => {}
        GroupItem::Expr(expr) => of_expr(expr, found),
        GroupItem::Rollup(exprs) | GroupItem::Cube(exprs) => of_exprs(exprs, found),
        GroupItem::Sets(items) => items.iter().for_each(|item| of_group(item, found)),
    }
}

fn of_window(window: &Window, found: &mut dyn Found) {
    of_exprs(&window.partition_by, found);
    of_order(&window.order_by, found);
    if let Some(frame) = &window.frame {
        for bound in [Some(&frame.start), frame.end.as_ref()].into_iter().flatten() {
            if let FrameBound::Preceding(expr) | FrameBound::Following(expr) = bound {
                of_expr(expr, found);
            }
        }
    }
}

fn of_table(table: &TableExpr, found: &mut dyn Found) {
    found.table(table);
    let walk = || match &table.kind {
        TableKind::Relation { relation, sample, .. } => {
            found.push(relation.name.clone());
            if let Some(sample) = sample {
                of_exprs(&sample.arguments, found);
                sample.seed.iter().for_each(|seed| of_expr(seed, found));
            }
        }
        TableKind::Query { query, .. } => relations_of(query, found),
        TableKind::Join { left, joins } => {
            of_table(left, found);
            for join in joins {
                of_table(&join.right, found);
                if let JoinOn::Condition(condition) = &join.on {
                    of_expr(condition, found);
                }
            }
        }
        TableKind::Nested { table, .. } => of_table(table, found),
        TableKind::Functions { calls, .. } => calls.iter().for_each(|(call, _)| of_expr(call, found)),
        TableKind::File { .. } => {}
    };
    stacker::maybe_grow(STACK.0, STACK.1, walk);
}

fn of_order(items: &[OrderItem], found: &mut dyn Found) {
    items.iter().for_each(|item| of_expr(&item.expr, found));
}

fn of_exprs(exprs: &[Expr], found: &mut dyn Found) {
    exprs.iter().for_each(|expr| of_expr(expr, found));
}

/// The relations of an expression.
pub(crate) fn of_expr(expr: &Expr, found: &mut dyn Found) {
    stacker::maybe_grow(STACK.0, STACK.1, || of_kind(&expr.kind, found));
}

fn of_kind(kind: &ExprKind, found: &mut dyn Found) {
    match kind {
        ExprKind::Literal(_) | ExprKind::Default => {}
        ExprKind::Wildcard(_) => found.wildcard(),
        ExprKind::Parameter(number) => found.parameter(*number),
        ExprKind::Name(name) => found.name(name),
        ExprKind::Call(call) => {
            of_call(call, found);
            found.call(call);
        }
        ExprKind::Or(exprs) | ExprKind::And(exprs) | ExprKind::Array(exprs) | ExprKind::Grouping(exprs) => {
            of_exprs(exprs, found);
        }
        ExprKind::Row { fields, .. } => of_exprs(fields, found),
        ExprKind::Not(operand) | ExprKind::Prefix(_, operand) | ExprKind::Cast { operand, .. } => {
            of_expr(operand, found);
        }
        ExprKind::Operators(first, rest) => {
            of_expr(first, found);
            rest.iter().for_each(|(_, operand)| of_expr(operand, found));
        }
        ExprKind::Quantified { left, right, .. } => {
            of_expr(left, found);
            match right {
                Quantity::Query(query) => relations_of(query, found),
                Quantity::Array(array) => of_expr(array, found),
            }
        }
        ExprKind::Postfix(operand, rest) => {
            of_expr(operand, found);
            rest.iter().for_each(|postfix| of_postfix(postfix, found));
        }
        ExprKind::Between { operand, low, high, .. } => {
            [operand, low, high].into_iter().for_each(|expr| of_expr(expr, found));
        }
        ExprKind::InList { operand, list, .. } => {
            of_expr(operand, found);
            of_exprs(list, found);
        }
        ExprKind::InQuery { operand, query, .. } => {
            of_expr(operand, found);
            relations_of(query, found);
        }
        ExprKind::Like { operand, pattern, escape, .. } => {
            [Some(operand), Some(pattern), escape.as_ref()].into_iter().flatten().for_each(|expr| of_expr(expr, found));
        }
        ExprKind::Case { operand, whens, otherwise } => {
            operand.iter().chain(otherwise).for_each(|expr| of_expr(expr, found));
            whens.iter().flat_map(|(when, then)| [when, then]).for_each(|expr| of_expr(expr, found));
        }
        ExprKind::Exists(query) | ExprKind::Subquery(query) | ExprKind::ArrayQuery(query) => relations_of(query, found),
        ExprKind::Special(special) => of_special(special, found),
    }
}

fn of_call(call: &Call, found: &mut dyn Found) {
    call.arguments.iter().for_each(|argument| of_expr(&argument.value, found));
    of_order(&call.order_by, found);
    of_order(&call.within_group, found);
    call.filter.iter().for_each(|filter| of_expr(filter, found));
    if let Some(Over::Window(window)) = &call.over {
        of_window(window, found);
    }
}

fn of_postfix(postfix: &Postfix, found: &mut dyn Found) {
    match postfix {
        Postfix::Index(expr) | Postfix::AtTimeZone(expr, _) => of_expr(expr, found),
        Postfix::Slice(from, to) => from.iter().chain(to).for_each(|expr| of_expr(expr, found)),
        Postfix::Is { test: IsTest::DistinctFrom(other), .. } => of_expr(other, found),
        Postfix::Cast(..) | Postfix::Field(_) | Postfix::AllFields(_) | Postfix::Collate(_) | Postfix::Is { .. } => {}
    }
}

fn of_special(special: &Special, found: &mut dyn Found) {
    match special {
        Special::Extract(_, expr) | Special::Normalize(expr, _) | Special::CollationFor(expr) => of_expr(expr, found),
        Special::Overlay(exprs)
        | Special::Trim { arguments: exprs, .. }
        | Special::Coalesce(exprs)
        | Special::Greatest(exprs)
        | Special::Least(exprs)
        | Special::Overlaps(exprs) => of_exprs(exprs, found),
        Special::Position(first, second) | Special::NullIf(first, second) => {
            of_expr(first, found);
            of_expr(second, found);
        }
        Special::Substring { operand, from, length } => {
            of_expr(operand, found);
            from.iter().chain(length).for_each(|expr| of_expr(expr, found));
        }
        Special::SubstringSimilar(text, pattern, escape) => {
            [text, pattern, escape].into_iter().for_each(|expr| of_expr(expr, found));
        }
        Special::CurrentTime(digits)
        | Special::CurrentTimestamp(digits)
        | Special::LocalTime(digits)
        | Special::LocalTimestamp(digits) => digits.iter().for_each(|expr| of_expr(expr, found)),
        Special::CurrentDate
        | Special::CurrentUser
        | Special::User
        | Special::SessionUser
        | Special::CurrentRole
        | Special::CurrentCatalog
        | Special::CurrentSchema => {}
    }
}
