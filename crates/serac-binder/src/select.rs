//! SELECT: items, DISTINCT, and the order that ORDER BY gives its rows.
//!
//! ```text
//! FROM → WHERE → [Aggregate → HAVING] → [Window → QUALIFY]
//!      → [Unnest of what functions of rows give]
//!      → Projection of the items, and of what the rows are ordered by or distinct on
//!      → [Distinct, or Window → the first row of each] → Sort → [Projection of the items alone]
//! ```
//!
//! Clauses are bound in PostgreSQL's order, so that the first error is PostgreSQL's, too: items,
//! WHERE, HAVING, ORDER BY, GROUP BY, DISTINCT, WINDOW.

use crate::alike::alike;
use crate::binder::Binder;
use crate::blanks::{given_blanks, keeps_blanks, with_blanks, without_blanks};
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::group::Grouped;
use crate::limits::MOST_IN_A_ROW;
use crate::names::column_name;
use crate::plan_parts::{has_part, repeatable, sorted};
use crate::query::position;
use crate::scope::{AggregatesBelow, Context, Outer, Scope, ScopeColumn};
use crate::selected::Selected;
use crate::statement::OutputColumn;
use crate::types::{comparable_values, is_no_type, ordered_values};
use datafusion::common::tree_node::TransformedResult;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, UnnestOptions};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, lit,
};
use serac_parser::tree::{Distinct, Expr as Tree, ExprKind, OrderItem, Postfix, Query, Select, SelectItem, Span};
use serac_pg::TypeId;
use std::collections::HashMap;

/// Columns that PostgreSQL selects at most.
const MOST_ITEMS: usize = 1664;

/// An item of the select list.
pub(crate) struct Item {
    pub(crate) bound: Bound,
    pub(crate) name: String,
    /// It is a call and nothing else.
    pub(crate) is_call: bool,
    /// All of its text.
    whole: Span,
    /// Whether it has an alias, or the name of a column.
    has_name: bool,
}

impl Item {
    /// A column of a row that the user does not see.
    fn hidden(expr: Expr) -> Self {
        let bound = Bound::new(expr, TypeId::INT8, Span::default());
        Self { bound, name: "#row".into(), is_call: false, whole: Span::default(), has_name: true }
    }

    /// A text, if nothing has told its type.
    pub(crate) fn is_text_if_unknown(&mut self) -> Result<()> {
        if self.bound.id == TypeId::UNKNOWN {
            self.bound = self.bound.clone().into_text()?;
        }
        Ok(())
    }
}

/// The sort or distinct keys of rows.
enum Order {
    /// An output column.
    Item(usize),
    /// An expression over FROM: where it stands, and all of its text.
    Expr(Expr, Span, Span),
}

/// The projected expressions: the items, and further ones that ORDER BY and DISTINCT ON use.
struct Projected {
    exprs: Vec<Expr>,
    spans: Vec<Span>,
    wholes: Vec<Span>,
}

impl Projected {
    /// The position of an expression among them.
    fn add(&mut self, order: &Order) -> usize {
        match order {
            Order::Item(at) => *at,
            Order::Expr(expr, span, whole) => self.exprs.iter().position(|own| alike(own, expr)).unwrap_or_else(|| {
                self.exprs.push(expr.clone());
                self.spans.push(*span);
                self.wholes.push(*whole);
                self.exprs.len() - 1
            }),
        }
    }
}

impl Binder<'_> {
    /// SELECT, its rows in the order of `query`.
    pub(crate) fn select(&self, select: &Select, query: &Query, outer: Option<&Outer<'_>>) -> Result<Selected> {
        if select.into.is_some() {
            return Err(BindError::unsupported("SELECT INTO", NO_PLACE));
        }
        // Each may go on from the one before, to the first.
        if select.windows.len() > MOST_IN_A_ROW {
            return Err(BindError::unsupported(format!("a query of more than {MOST_IN_A_ROW} windows"), NO_PLACE));
        }
        let rows = self.from(&select.from, outer)?;
        let mut plan = rows.plan;
        let schema = plan.schema().clone();
        let below = AggregatesBelow::default();
        let context = Context {
            named_windows: &select.windows,
            may_have_sets: true,
            aggregates: Some(&below),
            ..Context::new(&rows.scope, &schema, outer)
        };
        let mut items = match self.items(&select.items, context) {
            Err(error) if self.is_late.take() => {
                // An error of WHERE comes before one of a window.
                if let Some(filter) = &select.filter {
                    self.condition("WHERE", filter, context.in_clause("WHERE"))?;
                }
                return Err(error);
            }
            items => items?,
        };
        let filter = match &select.filter {
            Some(filter) => Some(self.condition("WHERE", filter, context.in_clause("WHERE"))?),
            None => None,
        };
        let mut having = match &select.having {
            Some(having) => Some(self.condition("HAVING", having, context.without_windows("HAVING"))?),
            None => None,
        };
        let without_sets = Context { may_have_sets: false, ..context };
        let mut qualify = match &select.qualify {
            // Names of items may stand there, too.
            Some(qualify) => {
                let mut scope = rows.scope.clone();
                for item in items.iter().filter(|item| scope_has_no(&rows.scope, &item.name)) {
                    let of = item.bound.modified_type();
                    let of = if of.id == TypeId::UNKNOWN { TypeId::TEXT.into() } else { of };
                    let (name, expr) = (item.name.clone(), item.projected()?);
                    scope.columns.push(ScopeColumn { item: None, name, expr, of, is_merged: false, origin: None });
                }
                Some(self.condition("QUALIFY", qualify, Context { scope: &scope, ..without_sets })?)
            }
            None => None,
        };
        let mut sorts: Vec<(OrderItem, Order)> = Vec::new();
        for item in &query.order_by {
            sorts.push((item.clone(), self.order(("ORDER BY", &item.expr), &mut items, context)?));
        }
        if let Some((descending, nulls_first)) = query.order_by_all {
            let item = |at: usize| {
                let expr = Tree { kind: ExprKind::Default, span: Span::default() };
                (OrderItem { expr, descending, using: None, nulls_first }, Order::Item(at))
            };
            sorts.extend((0..items.len()).map(item));
        }
        let mut groups = self.groups(&select.group_by, &mut items, context)?;
        let mut on = Vec::new();
        match &select.distinct {
            Distinct::All => {}
            Distinct::Rows => {
                items.iter_mut().try_for_each(Item::is_text_if_unknown)?;
                items.iter().try_for_each(|item| comparable_values(item.bound.id))?;
            }
            Distinct::On(trees) => {
                for tree in trees {
                    on.push((tree.span, self.order(("DISTINCT ON", tree), &mut items, context)?));
                }
            }
        }
        for (_, order) in &sorts {
            if let Order::Item(at) = order {
                items[*at].is_text_if_unknown()?;
                ordered_values(items[*at].bound.id)?;
            }
        }
        self.named_windows(context)?;
        let claimed = self.claims.borrow().as_ref().map(|claims| claims.rows(&schema)).transpose()?;
        items.extend(claimed.into_iter().flatten().map(Item::hidden));

        let open: Vec<(usize, Bound)> = (0..items.len())
            .filter(|at| items[*at].bound.id == TypeId::UNKNOWN)
            .map(|at| (at, items[at].bound.clone()))
            .collect();
        let mut projected = Projected {
            exprs: items.iter().map(Item::projected).collect::<Result<_>>()?,
            spans: items.iter().map(|item| item.bound.span).collect(),
            wholes: items.iter().map(|item| item.whole).collect(),
        };
        let shown = projected.exprs.len();
        let order_columns: Vec<usize> = sorts.iter().map(|(_, order)| projected.add(order)).collect();
        let is_distinct = matches!(select.distinct, Distinct::Rows);
        if is_distinct && projected.exprs.len() > shown {
            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
            return Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, projected.spans[shown]));
        }
        let on_columns: Vec<(Span, usize)> = on.iter().map(|(span, order)| (*span, projected.add(order))).collect();
        distinct_on_order(&on_columns, &order_columns)?;

        if let Some(filter) = filter {
            plan = LogicalPlanBuilder::from(plan).filter(filter)?.build()?;
        }
        // Rows of functions by which rows are grouped come before the groups.
        if let Some(groups) = &mut groups {
            let sets = groups.sets_of_rows()?;
            let all = groups.exprs_mut().chain(&mut projected.exprs).chain(&mut having).chain(&mut qualify);
            plan = self.with_sets(plan, sets, all.collect())?;
        }
        let is_aggregate = |part: &Expr| matches!(part, Expr::AggregateFunction(_));
        let all = projected.exprs.iter().chain(&having).chain(&qualify);
        let has_aggregates = all.clone().any(|expr| has_part(expr, is_aggregate));
        if let Some(claims) = self.claims.borrow().as_ref() {
            claims.check(select, groups.is_some(), &projected.exprs)?;
        }
        let below = below.into_inner();
        if (has_aggregates || !below.is_empty()) && rows.scope.items.iter().any(|item| item.is_of_term) {
            let message = "aggregate functions are not allowed in a recursive query's recursive term";
            return Err(BindError::without_place(sqlstate::INVALID_RECURSION, message));
        }
        if has_aggregates || groups.is_some() || having.is_some() || !below.is_empty() {
            let wholes = projected.wholes.iter().copied();
            let of_items = projected.exprs.iter_mut().zip(wholes).map(|(expr, span)| Grouped { expr, span });
            let others = [(&mut having, &select.having), (&mut qualify, &select.qualify)];
            let others = others
                .into_iter()
                .filter_map(|(expr, tree)| Some(Grouped { expr: expr.as_mut()?, span: tree.as_ref()?.span }));
            let exprs = of_items.chain(others).collect();
            plan = self.grouped(plan, groups.unwrap_or_default(), exprs, below, &rows.scope)?;
        }
        if let Some(having) = having {
            plan = LogicalPlanBuilder::from(plan).filter(having)?.build()?;
        }
        plan = self.windowed(plan, projected.exprs.iter_mut().chain(&mut qualify).collect())?;
        if let Some(qualify) = qualify {
            plan = LogicalPlanBuilder::from(plan).filter(qualify)?.build()?;
        }

        let sets = sets_of_rows(projected.exprs.iter())?;
        plan = self.with_sets(plan, sets, projected.exprs.iter_mut().collect())?;
        let shows_blanks = |(at, item): (usize, &Item)| match given_blanks(&projected.exprs[at]) {
            Some(given) if keeps_blanks(item.bound.modified_type()) => Some((at, given.clone())),
            _ => None,
        };
        let texts: Vec<(usize, Expr)> = items.iter().enumerate().filter_map(shows_blanks).collect();
        texts.iter().for_each(|(at, given)| projected.exprs[*at] = given.clone());
        let names = unique_names(&items, &projected.exprs);
        let exprs = projected.exprs.into_iter().zip(&names).map(|(expr, name)| named(expr, name));
        let mut builder = LogicalPlanBuilder::from(plan).project(exprs.collect::<Vec<_>>())?;
        if is_distinct {
            let chars: Vec<bool> = (0..shown).map(|at| texts.iter().any(|(own, _)| *own == at)).collect();
            builder = LogicalPlanBuilder::from(self.distinct(builder.build()?, &chars)?);
        }
        let schema = builder.schema().clone();
        let column = |at: usize| Expr::Column(Column::from(schema.qualified_field(at)));
        let value = |at: usize| match texts.iter().any(|(own, _)| *own == at) {
            true => without_blanks(column(at)),
            false => column(at),
        };
        let sort = sorts.iter().zip(&order_columns).map(|((item, _), at)| sorted(item, self.key(value(*at), &schema)?));
        let sort = sort.collect::<Result<Vec<_>>>()?;
        let mut is_wider = names.len() > shown;
        if !on_columns.is_empty() {
            let on = on_columns.iter().map(|(_, at)| self.key(value(*at), &schema)).collect::<Result<_>>()?;
            builder = LogicalPlanBuilder::from(self.first_of_each(builder.build()?, on, sort.clone())?);
            is_wider = true;
        }
        if !sort.is_empty() {
            builder = builder.sort(sort)?;
        }
        if is_wider {
            builder = builder.project((0..shown).map(column).collect::<Vec<_>>())?;
        }
        Ok(Selected { plan: builder.build()?, columns: selected_items(items), open })
    }

    /// For each group of rows that are equal in `on`, the first one of an order.
    fn first_of_each(&self, plan: LogicalPlan, on: Vec<Expr>, order: Vec<SortExpr>) -> Result<LogicalPlan> {
        let function = self.known_window("row_number")?;
        let mut window = WindowFunction::new(WindowFunctionDefinition::WindowUDF(function), Vec::new());
        window.params.partition_by = on;
        if !order.is_empty() {
            let all = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
            let rows = WindowFrame::new_bounds(WindowFrameUnits::Rows, all, WindowFrameBound::CurrentRow);
            window.params.window_frame = rows;
            window.params.order_by = order;
        }
        let name = self.qualifier("#row");
        let builder = LogicalPlanBuilder::from(plan).window(vec![Expr::from(window).alias(&name)])?;
        Ok(builder.filter(Expr::Column(Column::new_unqualified(name)).eq(lit(1u64)))?.build()?)
    }

    /// The plan with the elements of lists as columns, side by side, which are then in the places
    /// of functions that give rows.
    fn with_sets(&self, plan: LogicalPlan, sets: Vec<Expr>, exprs: Vec<&mut Expr>) -> Result<LogicalPlan> {
        if sets.is_empty() {
            return Ok(plan);
        }
        let mut below: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let mut columns = Vec::new();
        for set in &sets {
            let Expr::Unnest(set) = set else { continue };
            let name = self.qualifier("#rows");
            below.push(set.expr.as_ref().clone().alias(&name));
            columns.push(Column::new_unqualified(name));
        }
        for expr in exprs {
            let over = std::mem::take(expr).transform_down(|part| match sets.iter().position(|set| *set == part) {
                Some(at) => Ok(Transformed::new(Expr::Column(columns[at].clone()), true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(part)),
            });
            *expr = over.data()?;
        }
        let options = UnnestOptions::new().with_preserve_nulls(false);
        let builder = LogicalPlanBuilder::from(plan).project(below)?;
        Ok(builder.unnest_columns_with_options(columns, options)?.build()?)
    }

    /// The items of SELECT or RETURNING.
    pub(crate) fn items(&self, trees: &[SelectItem], context: Context<'_>) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for item in trees {
            match &item.expr.kind {
                ExprKind::Wildcard(name) => items.extend(self.wildcard(name.as_ref(), item, context)?),
                ExprKind::Postfix(operand, rest) if matches!(rest.last(), Some(Postfix::AllFields(_))) => {
                    items.extend(self.fields_of_value(operand, rest, &item.expr, context)?);
                }
                _ => {
                    let bound = match self.passed(&item.expr, context)? {
                        Some(passed) => passed,
                        None => self.expression(&item.expr, context)?,
                    };
                    bound.is_shown()?;
                    let name = match &item.alias {
                        Some(alias) => alias.name.clone(),
                        None => column_name(&item.expr, &self.subquery_names.borrow()),
                    };
                    items.push(Item {
                        bound,
                        name,
                        is_call: matches!(item.expr.kind, ExprKind::Call(_)),
                        whole: item.expr.span,
                        has_name: item.alias.is_some() || matches!(item.expr.kind, ExprKind::Name(_)),
                    });
                }
            }
        }
        if items.len() > MOST_ITEMS {
            let message = format!("target lists can have at most {MOST_ITEMS} entries");
            return Err(BindError::without_place(sqlstate::TOO_MANY_COLUMNS, message));
        }
        Ok(items)
    }

    /// A column of a type that is not known, where it may be selected as it is.
    pub(crate) fn passed(&self, tree: &Tree, context: Context<'_>) -> Result<Option<Bound>> {
        let ExprKind::Name(name) = &tree.kind else { return Ok(None) };
        if !context.passes_any {
            return Ok(None);
        }
        let found = context.scope.lookup_column(name)?;
        Ok(found.filter(|column| is_no_type(column.of.id)).map(|column| column.passed(name.span)))
    }

    /// `*` and `t.*`, perhaps without a few columns, and with replacements for others.
    fn wildcard(
        &self,
        name: Option<&serac_parser::tree::Name>,
        item: &SelectItem,
        context: Context<'_>,
    ) -> Result<Vec<Item>> {
        let span = item.expr.span;
        let columns: Vec<&ScopeColumn> = match name {
            None if context.scope.items.is_empty() => {
                return Err(BindError::new(
                    sqlstate::SYNTAX_ERROR,
                    "SELECT * with no tables specified is not valid",
                    span,
                ));
            }
            None => context.scope.all().collect(),
            Some(name) => match context.scope.of_item(name)? {
                Some(columns) => columns,
                None => {
                    let around = ExprKind::Wildcard(Some(name.clone()));
                    let columns = self.columns_of_row(&Tree { kind: around, span }, context)?;
                    let Some(row) = columns else { return Err(self.missing_item(name)) };
                    if !item.exclude.is_empty() || !item.replace.is_empty() {
                        return Err(BindError::unsupported("EXCLUDE and REPLACE of a query around", NO_PLACE));
                    }
                    return Ok(row.columns.into_iter().map(|(name, bound)| Item::field(name, bound, span)).collect());
                }
            },
        };
        let is_there = |name: &serac_parser::tree::Ident| columns.iter().any(|column| column.name == name.name);
        if !item.exclude.iter().chain(item.replace.iter().map(|(_, name)| name)).all(is_there) {
            return Err(BindError::new(
                sqlstate::UNDEFINED_COLUMN,
                "a column of EXCLUDE or REPLACE does not exist",
                span,
            ));
        }
        let mut items = Vec::new();
        for column in columns {
            if item.exclude.iter().any(|name| name.name == column.name) {
                continue;
            }
            let bound = match item.replace.iter().find(|(_, name)| name.name == column.name) {
                Some((expr, _)) => {
                    let bound = self.expression(expr, context)?;
                    bound.is_shown()?;
                    bound
                }
                None if context.passes_any => column.passed(span),
                None => column.bound(span)?,
            };
            if let Expr::Column(column) = given_blanks(&bound.expr).unwrap_or(&bound.expr) {
                self.references.borrow_mut().push((column.clone(), span));
            }
            items.push(Item { bound, name: column.name.clone(), is_call: false, whole: span, has_name: true });
        }
        Ok(items)
    }

    /// `(r).*`: the fields of a row.
    fn fields_of_value(
        &self,
        operand: &Tree,
        rest: &[Postfix],
        whole: &Tree,
        context: Context<'_>,
    ) -> Result<Vec<Item>> {
        let rest = &rest[..rest.len() - 1];
        let span = whole.span;
        if rest.is_empty()
            && let Some(row) = self.columns_of_row(operand, context)?
        {
            return Ok(row.columns.into_iter().map(|(name, bound)| Item::field(name, bound, span)).collect());
        }
        let operand = Tree { kind: ExprKind::Postfix(Box::new(operand.clone()), rest.to_vec()), span: operand.span };
        let row = self.expression(&operand, context)?;
        repeatable(&row.expr)?;
        let fields = self.fields_of_row(&row, context.schema)?;
        for _ in &fields {
            self.copy(&row)?;
        }
        Ok(fields.into_iter().map(|(name, bound)| Item::field(name, bound, span)).collect())
    }

    /// The key of an item of ORDER BY: an output column, by its name or number, or an expression
    /// over FROM.
    fn order(&self, (clause, tree): (&str, &Tree), items: &mut [Item], context: Context<'_>) -> Result<Order> {
        let check = if clause == "ORDER BY" { ordered_values } else { comparable_values };
        if let Some(at) = position(tree, clause, items.len())? {
            items[at].is_text_if_unknown()?;
            check(items[at].bound.id)?;
            return Ok(Order::Item(at));
        }
        if let ExprKind::Name(name) = &tree.kind
            && let [name] = &name.parts[..]
        {
            let mut found = (0..items.len()).filter(|at| items[*at].name == name.name);
            if let Some(first) = found.next() {
                if found.any(|other| items[other].bound.expr != items[first].bound.expr) {
                    let message = format!("{clause} \"{}\" is ambiguous", name.name);
                    return Err(BindError::new(sqlstate::AMBIGUOUS_COLUMN, message, tree.span));
                }
                items[first].is_text_if_unknown()?;
                check(items[first].bound.id)?;
                return Ok(Order::Item(first));
            }
        }
        let bound = self.expression(tree, context)?;
        check(bound.id)?;
        let bound = bound.into_text()?;
        Ok(Order::Expr(bound.expr, bound.span, tree.span))
    }
}

impl Item {
    /// A field of a row.
    fn field(name: String, bound: Bound, whole: Span) -> Self {
        Self { bound, name, is_call: false, whole, has_name: true }
    }

    /// Its expression in the plan: a text, if it has no type.
    fn projected(&self) -> Result<Expr> {
        match (&self.bound.id, &self.bound.parameter) {
            (&TypeId::UNKNOWN, Some(_)) => Ok(Expr::Literal(ScalarValue::Utf8View(None), None)),
            (&TypeId::UNKNOWN, None) => Ok(self.bound.clone().into_text()?.expr),
            _ => Ok(self.bound.expr.clone()),
        }
    }
}

/// Items as columns of a result.
pub(crate) fn selected_items(items: Vec<Item>) -> Vec<OutputColumn> {
    let column = |item: Item| OutputColumn {
        name: item.name,
        id: item.bound.id,
        modifier: item.bound.modifier,
        span: item.bound.span,
        text: (!item.has_name).then_some(item.whole),
        origin: item.bound.origin,
    };
    items.into_iter().map(column).collect()
}

/// Items under names that differ.
pub(crate) fn unique_projection(items: &[Item]) -> Result<Vec<Expr>> {
    let shown = |item: &Item| {
        let expr = item.projected()?;
        Ok(if keeps_blanks(item.bound.modified_type()) { with_blanks(expr) } else { expr })
    };
    let exprs = items.iter().map(shown).collect::<Result<Vec<_>>>()?;
    let names = unique_names(items, &exprs);
    Ok(exprs.into_iter().zip(&names).map(|(expr, name)| named(expr, name)).collect())
}

/// DISTINCT ON must be ordered by its own expressions first, and may be ordered by any others
/// behind them.
fn distinct_on_order(on: &[(Span, usize)], order: &[usize]) -> Result<()> {
    let wrong = |span: Span| {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, span))
    };
    if on.is_empty() {
        return Ok(());
    }
    let mut is_other = false;
    // A repeated sort key has no effect.
    let order: Vec<usize> =
        (0..order.len()).filter(|at| !order[..*at].contains(&order[*at])).map(|at| order[at]).collect();
    for at in &order {
        match on.iter().find(|(_, own)| own == at) {
            Some((span, _)) if is_other => return wrong(*span),
            Some(_) => {}
            None => is_other = true,
        }
    }
    match on.iter().find(|(_, own)| !order.contains(own)) {
        Some((span, _)) if is_other => wrong(*span),
        _ => Ok(()),
    }
}

/// The results of set-returning functions in expressions, each once.
pub(crate) fn sets_of_rows<'e>(exprs: impl Iterator<Item = &'e Expr>) -> Result<Vec<Expr>> {
    let mut sets: Vec<Expr> = Vec::new();
    for expr in exprs {
        expr.apply(|part| {
            if matches!(part, Expr::Unnest(_)) && !sets.contains(part) {
                sets.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(sets)
}

fn scope_has_no(scope: &Scope, name: &str) -> bool {
    scope.all().all(|column| column.name != name)
}

/// A name for each column of the projection, which differs from all others.
fn unique_names(items: &[Item], exprs: &[Expr]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    // The number of times that a name has been wanted.
    let mut taken: HashMap<String, usize> = HashMap::new();
    for at in 0..exprs.len() {
        let wanted = items.get(at).map_or("order", |item| &item.name);
        let mut name = wanted.to_owned();
        while taken.contains_key(&name) {
            let number = taken.entry(wanted.to_owned()).or_default();
            *number += 1;
            name = format!("{wanted}:{number}");
        }
        taken.insert(name.clone(), 0);
        names.push(name);
    }
    names
}

/// An expression under a name. A column that has it stays as it is.
fn named(expr: Expr, name: &str) -> Expr {
    match &expr {
        Expr::Column(column) if column.name == name => expr,
        _ => expr.alias(name),
    }
}
