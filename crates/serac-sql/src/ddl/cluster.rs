//! `CLUSTER t [USING i]`, and `CREATE TABLE … CLUSTER BY (…)`, of which the parser does not know.

use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::maintenance::{arguments_of_call, call};
use crate::session::{Session, StatementResult};
use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Statement, WrappedCollection};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use serac_engine::definition::{ColumnOrder, TableDefinition};
use serac_engine::{EngineError, Table};

/// What the parser gives the statement as: a function that no user has.
const CLUSTER: &str = "serac cluster";

fn is_cluster(parser: &Parser<'_>) -> bool {
    matches!(&parser.peek_token_ref().token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("cluster"))
}

/// CLUSTER, if it comes next.
pub(crate) fn statement(parser: &mut Parser<'_>) -> std::result::Result<Option<Statement>, ParserError> {
    if !is_cluster(parser) {
        return Ok(None);
    }
    parser.next_token();
    let table = parser.parse_object_name(false)?.to_string();
    let index =
        if parser.parse_keyword(Keyword::USING) { parser.parse_identifier()?.to_string() } else { String::new() };
    call(CLUSTER, &[&table, &index]).map(Some)
}

/// CLUSTER BY after CREATE TABLE.
pub(crate) fn clause(parser: &mut Parser<'_>, statement: &mut Statement) -> std::result::Result<(), ParserError> {
    let Statement::CreateTable(create) = statement else { return Ok(()) };
    if is_cluster(parser) {
        parser.next_token();
        parser.expect_keyword(Keyword::BY)?;
        parser.expect_token(&Token::LParen)?;
        let columns: Vec<Ident> = parser.parse_comma_separated(Parser::parse_identifier)?;
        parser.expect_token(&Token::RParen)?;
        create.cluster_by = Some(WrappedCollection::Parentheses(columns.into_iter().map(Expr::Identifier).collect()));
    }
    Ok(())
}

/// The key of CLUSTER BY.
pub(super) fn cluster_key(
    definition: &TableDefinition,
    by: &WrappedCollection<Vec<Expr>>,
) -> Result<Vec<(usize, ColumnOrder)>> {
    let (WrappedCollection::Parentheses(columns) | WrappedCollection::NoWrapping(columns)) = by;
    let column = |expr: &Expr| match expr {
        Expr::Identifier(name) => {
            let name = fold(name);
            let at = definition.column(&name);
            let at =
                at.ok_or_else(|| SqlError::new("42703", format!("column \"{name}\" does not exist")).named(name))?;
            Ok((at, ColumnOrder::default()))
        }
        other => Err(SqlError::unsupported(format!("CLUSTER BY the expression {other}"))),
    };
    columns.iter().map(column).collect()
}

impl Session {
    /// Runs CLUSTER; none if the statement is another.
    pub(super) fn cluster(&mut self, statement: &Statement) -> Result<Option<StatementResult>> {
        let Some(arguments) = arguments_of_call(statement, CLUSTER) else { return Ok(None) };
        let [table, index] = &arguments[..] else { return Ok(None) };
        let (schema, name) = self.locate(&parser(table)?.parse_object_name(false)?)?;
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &name)?.definition.clone();
        let key = if index.is_empty() {
            definition.cluster.clone()
        } else {
            let index = fold(&parser(index)?.parse_identifier()?);
            let key = definition.keys.iter().find(|key| key.name == index);
            let key = key.ok_or_else(|| SqlError::from(EngineError::Missing { kind: "index", name: index.clone() }))?;
            key.columns.iter().enumerate().map(|(i, &column)| (column, key.order(i))).collect()
        };
        if key.is_empty() {
            let message = format!("there is no previously clustered index for table \"{name}\"");
            return Err(SqlError::new("42704", message).named(name));
        }
        self.txn_for(&schema)?.cluster(&schema, &name, key)?;
        Ok(Some(StatementResult::command("CLUSTER")))
    }

    /// Rows that are to be inserted, in the order of the table's key, if it has one.
    pub(crate) fn clustered(&self, table: &Table, rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        match &table.definition.cluster[..] {
            [] => Ok(rows),
            key => Ok(serac_engine::sorted(&rows, key, None)?.collect::<serac_engine::Result<_>>()?),
        }
    }
}
