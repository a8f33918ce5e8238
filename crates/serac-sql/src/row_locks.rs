//! SELECT … FOR UPDATE and its relatives: a query on one table that claims the rows that it gives.
//!
//! There is one strength: FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE all claim a row for one transaction, as if it were updated. That is never too weak; readers
//! that only share wait for each other. A row that another transaction holds is waited for, or is an error (NOWAIT), or is left out (SKIP LOCKED).

use crate::dml::{RETURNING, TARGET, visible_rows, visible_schema};
use crate::error::{Result, SqlError};
use crate::identifiers::{fold, quote, resolve};
use crate::parts::alias_of;
use crate::query::Output;
use crate::session::Session;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, LimitClause, LockClause, NonBlock, ObjectName, OrderBy, OrderByKind, Query, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, Value, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use futures::TryStreamExt;
use serac_engine::roles::Privilege;
use serac_engine::{Table, Transaction};
use serac_query::scan::ROW_ID_COLUMN;
use serac_storage::RowId;
use std::sync::Arc;

/// What a claim (SELECT … FOR UPDATE) does at a row that a running transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnHeld {
    Wait,
    /// NOWAIT.
    Fail,
    /// SKIP LOCKED.
    Skip,
}

impl OnHeld {
    /// What the locking clauses of a query on one table say; none without any. All strengths mean the same.
    pub(crate) fn of(clauses: &[LockClause]) -> Option<Self> {
        let says = |wanted: NonBlock| clauses.iter().any(|clause| clause.nonblock == Some(wanted));
        match clauses {
            [] => None,
            _ if says(NonBlock::Nowait) => Some(Self::Fail),
            _ if says(NonBlock::SkipLocked) => Some(Self::Skip),
            _ => Some(Self::Wait),
        }
    }
    /// Claims a row for a transaction; false if it is to be left out.
    pub(crate) fn claim(self, txn: &mut Transaction, table: &Arc<Table>, row: RowId) -> Result<bool> {
        match (txn.lock_row(table, row), self) {
            (Ok(()), _) => Ok(true),
            (Err(error), Self::Fail) if error.blocker().is_some() => {
                let message = format!("could not obtain lock on row in relation \"{}\"", table.name());
                Err(SqlError::new("55P03", message))
            }
            (Err(error), Self::Skip) if error.blocker().is_some() => Ok(false),
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// The strengths FOR NO KEY UPDATE and FOR KEY SHARE, which the parser does not know, as FOR UPDATE and FOR SHARE.
pub(crate) fn row_locks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let word = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    };
    let words: Vec<usize> = (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    for at in 0..words.len() {
        let next = |i: usize| words.get(at + i).and_then(|&i| word(&tokens[i]));
        if next(0).as_deref() != Some("for") {
            continue;
        }
        let between = match (next(1).as_deref(), next(2).as_deref(), next(3).as_deref()) {
            (Some("no"), Some("key"), Some("update")) => 2,
            (Some("key"), Some("share"), _) => 1,
            _ => continue,
        };
        for &i in &words[at + 1..=at + between] {
            tokens[i].token = Token::Whitespace(Whitespace::Space);
        }
    }
    tokens
}

/// OFFSET and LIMIT, where they are numbers.
fn bounds(clause: Option<&LimitClause>) -> Result<(usize, usize)> {
    let number = |expr: Option<&Expr>, default: usize| match expr {
        None => Ok(default),
        Some(Expr::Value(value)) => match &value.value {
            Value::Number(number, _) => number.parse().map_err(|_| limits()),
            Value::Null => Ok(default),
            _ => Err(limits()),
        },
        Some(_) => Err(limits()),
    };
    fn limits() -> SqlError {
        SqlError::unsupported("SKIP LOCKED with a LIMIT or OFFSET that is not a number")
    }
    match clause {
        None => Ok((0, usize::MAX)),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            Ok((number(offset.as_ref().map(|offset| &offset.value), 0)?, number(limit.as_ref(), usize::MAX)?))
        }
        Some(_) => Err(limits()),
    }
}

impl Session {
    /// Claims the rows that a query on one table gives, and gives them: the query runs once, so
    /// that these are the same rows, whatever it leaves open (LIMIT without an order, equal keys,
    /// volatile functions).
    pub(crate) async fn select_for_update(&mut self, mut query: Query) -> Result<Output> {
        let locks = std::mem::take(&mut query.locks);
        let on_held = OnHeld::of(&locks).expect("the query has a locking clause");
        let unsupported = || SqlError::unsupported("FOR UPDATE of anything but rows of a single table");
        let SetExpr::Select(select) = query.body.as_mut() else { return Err(unsupported()) };
        let [from] = &select.from[..] else { return Err(unsupported()) };
        let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        if query.with.is_some()
            || query.fetch.is_some()
            || grouped
            || select.distinct.is_some()
            || select.having.is_some()
        {
            return Err(unsupported());
        }
        let (table, alias) = self.target(from)?;
        let named = locks.iter().filter_map(|lock| lock.of.as_ref()).map(|of| match &of.0[..] {
            [name] => name.as_ident().map(fold).unwrap_or_default(),
            _ => of.to_string(),
        });
        if let Some(other) = named.into_iter().find(|name| *name != alias) {
            let message = format!("relation \"{other}\" in FOR UPDATE clause not found in FROM clause");
            return Err(SqlError::new("42P01", message).named(other));
        }
        self.check_privilege(&table, Privilege::Update, &[])?;
        self.check_privilege(&table, Privilege::Select, &[])?;
        self.lend_target(&table)?;
        select.projection = without_wildcards(std::mem::take(&mut select.projection), &table, &alias)?;
        if on_held != OnHeld::Skip {
            select.projection.push(SelectItem::ExprWithAlias {
                expr: column_of(&alias, ROW_ID_COLUMN),
                alias: Ident::new(ROW_ID_COLUMN),
            });
            select.from[0].relation = lent_table(TARGET, &alias);
            let (schema, rows) = self.rows(Statement::Query(Box::new(query)).into()).await?;
            let rows: Vec<RecordBatch> = rows.try_collect().await?;
            let shown: Vec<usize> = (0..schema.fields().len() - 1).collect();
            let txn = self.txn_of(&table)?;
            for batch in &rows {
                for &row in batch.column(shown.len()).as_primitive::<UInt64Type>().values() {
                    on_held.claim(txn, &table, RowId::from_u64(row))?;
                }
            }
            let schema = Arc::new(schema.project(&shown)?);
            let rows = rows.into_iter().map(move |batch| Ok(batch.project(&shown)?));
            let stream = RecordBatchStreamAdapter::new(schema.clone(), futures::stream::iter(rows));
            return Ok(Output::Rows { schema, stream: Box::pin(stream) });
        }
        let filter = select.selection.as_ref().map_or(String::new(), |f| format!(" WHERE {f}"));
        let mut order = query.order_by.clone();
        write_keys_out(&mut order, &select.projection);
        // Without a limit the order does not matter.
        let order = match (&query.limit_clause, order) {
            (Some(_), Some(order)) => format!(" {order}"),
            _ => String::new(),
        };
        let name = quote(&alias);
        let find = format!("SELECT {name}.{ROW_ID_COLUMN} FROM {TARGET} AS {name}{filter}{order}");
        let frame = self.frame_of(&find).await?;
        let rows = self.rows_found(frame).await?;
        let (mut skip, limit) = bounds(query.limit_clause.take().as_ref())?;
        let txn = self.txn_of(&table)?;
        let mut claimed = Vec::new();
        for row in rows {
            if claimed.len() == limit {
                break;
            }
            if txn.is_held_by_other(&table, row) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
            } else if on_held.claim(txn, &table, row)? {
                claimed.push(row);
            }
        }
        // The query gives these rows.
        let schema = visible_schema(&table);
        let batch = visible_rows(&table, &self.rows_now(&table, &claimed)?)?;
        let claimed = self.readable_rows(&table, Arc::new(MemTable::try_new(schema, vec![vec![batch]])?));
        self.lend(RETURNING, claimed);
        select.selection = None;
        select.from[0].relation = lent_table(RETURNING, &alias);
        self.query(Statement::Query(Box::new(query)).into()).await
    }
}

/// A column of the table.
fn column_of(alias: &str, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![Ident::with_quote('"', alias), Ident::with_quote('"', name)])
}

/// A select list with the columns that its wildcards stand for.
fn without_wildcards(items: Vec<SelectItem>, table: &Table, alias: &str) -> Result<Vec<SelectItem>> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let (of, options) = match &item {
            SelectItem::Wildcard(options) => (None, options),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                (Some(resolve(name)?.1), options)
            }
            _ => {
                all.push(item);
                continue;
            }
        };
        if *options != WildcardAdditionalOptions::default() {
            return Err(SqlError::unsupported("a wildcard with more than its columns in a query FOR UPDATE"));
        }
        if let Some(other) = of.filter(|of| of != alias) {
            return Err(SqlError::new("42P01", format!("missing FROM-clause entry for table \"{other}\"")).named(other));
        }
        let columns = table.definition.visible_columns().iter();
        all.extend(columns.map(|column| SelectItem::UnnamedExpr(column_of(alias, &column.name))));
    }
    Ok(all)
}

/// Writes out the keys of ORDER BY that name results of the select list, or number them.
fn write_keys_out(order: &mut Option<OrderBy>, items: &[SelectItem]) {
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order else { return };
    for key in keys {
        let named = match &key.expr {
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) => {
                    let at = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                    match at.and_then(|at| items.get(at)) {
                        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Some(expr),
                        _ => None,
                    }
                }
                _ => None,
            },
            Expr::Identifier(name) => items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if fold(alias) == fold(name) => Some(expr),
                _ => None,
            }),
            _ => None,
        };
        if let Some(expr) = named.cloned() {
            key.expr = Expr::Nested(Box::new(expr));
        }
    }
}

/// A table that was lent to the statement, in the place of its own.
fn lent_table(name: &str, alias: &str) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(vec![Ident::new(name)]),
        alias: Some(alias_of(Ident::with_quote('"', alias))),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}
