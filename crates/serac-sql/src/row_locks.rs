//! SELECT … FOR UPDATE and its relatives: a query on one table that claims the rows that it gives.
//!
//! There is one strength: FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE all claim a row for one transaction, as if it were updated. That is never too weak; readers
//! that only share wait for each other. A row that another transaction holds is waited for, or is an error (NOWAIT), or is left out (SKIP LOCKED).

use crate::dml::{RETURNING, TARGET, visible_rows, visible_schema};
use crate::error::{Result, SqlError};
use crate::parts::alias_of;
use crate::query::Output;
use crate::scan::ROW_ID_COLUMN;
use crate::session::{Session, quote};
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, LimitClause, LockClause, NonBlock, ObjectName, Query, SetExpr, Statement, TableFactor,
    Value,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use serac_engine::roles::Privilege;
use serac_engine::{Table, Transaction};
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
    /// Claims the rows that a query on one table gives, and gives them. Its order and limit say which rows these are.
    pub(crate) async fn select_for_update(&mut self, mut query: Query) -> Result<Output> {
        let on_held = OnHeld::of(&std::mem::take(&mut query.locks)).expect("the query has a locking clause");
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
        self.check_privilege(&table, Privilege::Update, &[])?;
        self.check_privilege(&table, Privilege::Select, &[])?;
        self.lend_target(&table)?;
        let filter = select.selection.as_ref().map_or(String::new(), |f| format!(" WHERE {f}"));
        let order = query.order_by.as_ref().map_or(String::new(), |order| format!(" {order}"));
        // Without a limit the order does not matter.
        let order = match &query.limit_clause {
            Some(_) if on_held == OnHeld::Skip => order,
            Some(limit) => format!("{order}{limit}"),
            None => String::new(),
        };
        let name = quote(&alias);
        let find = format!("SELECT {name}.{ROW_ID_COLUMN} FROM {TARGET} AS {name}{filter}{order}");
        let frame = self.frame_of(&find).await?;
        let (ids, _) = self.collect_changes(&table, &[], frame).await?;
        let rows = ids.into_iter().map(RowId::from_u64);
        if on_held != OnHeld::Skip {
            let txn = self.txn_of(&table)?;
            for row in rows {
                on_held.claim(txn, &table, row)?;
            }
            return self.query(Statement::Query(Box::new(query))).await;
        }
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
        select.from[0].relation = claimed_rows(&alias);
        self.query(Statement::Query(Box::new(query))).await
    }
}

/// The rows that were claimed, under the name of their table.
fn claimed_rows(alias: &str) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(vec![Ident::new(RETURNING)]),
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
