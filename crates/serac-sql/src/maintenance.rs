//! `FREEZE TABLE t`, `CHECKPOINT`, `VACUUM`, `ANALYZE` and `SET CONSTRAINTS`, which the parser does
//! not know, and the system views: `serac_blocks`, `serac_indexes`, `serac_passes`, and those of
//! [`backends`].

use crate::backends;
use crate::catalog::View;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::identifiers::resolve;
use crate::parsed::Parsed;
use crate::pipeline;
use crate::session::{Session, SqlDatabase, StatementResult, TransactionStatus};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::sql::sqlparser::ast::{
    CopyTarget, DiscardObject, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Statement,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use serac_engine::roles::{Access, Object};
use serac_engine::{Database, EngineError, Table};
use serac_index::cubit::Statistics;
use serac_storage::block::Block;
use serac_storage::{BlockNo, FreezeFormat};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Views of the system, by names that no schema has.
pub(crate) const SYSTEM_VIEWS: [&str; 6] =
    ["serac_blocks", "serac_indexes", "serac_activity", "serac_locks", "serac_metrics", "serac_passes"];

/// How long FREEZE TABLE waits for transactions that are running.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

/// Functions that the parser gives our statements as, by names that no user has.
const FREEZE: &str = "serac freeze";
const CHECKPOINT: &str = "serac checkpoint";
const VACUUM: &str = "serac vacuum";
const ANALYZE: &str = "serac analyze";
const CONSTRAINTS: &str = "serac set constraints";

/// A statement that the parser does not know, as CALL of a function that no user has, with texts as arguments.
pub(crate) fn call(function: &str, arguments: &[&str]) -> std::result::Result<Statement, ParserError> {
    let quoted = arguments.iter().map(|argument| format!("'{}'", argument.replace('\'', "''")));
    let text = format!("CALL \"{function}\"({})", quoted.collect::<Vec<_>>().join(", "));
    parser(&text)?.parse_statement()
}

/// The arguments, if a statement is such a CALL of the function.
pub(crate) fn arguments_of_call(statement: &Statement, function: &str) -> Option<Vec<String>> {
    let Statement::Call(called) = statement else { return None };
    let FunctionArguments::List(arguments) = &called.args else { return None };
    called.name.0.first().and_then(|part| part.as_ident()).filter(|ident| ident.value == function)?;
    let text = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => value.clone().into_string(),
        _ => None,
    };
    arguments.args.iter().map(text).collect()
}

/// Whether a CALL stands for a statement that the parser does not know.
pub(crate) fn is_ours(function: &Function) -> bool {
    function.name.0.first().and_then(|part| part.as_ident()).is_some_and(|ident| ident.value.starts_with("serac "))
}

/// Whether a statement cannot run in a transaction block.
pub fn runs_outside_of_blocks(statement: &Parsed) -> bool {
    let Some(statement) = statement.other() else { return false };
    let is_all = |statement: &_| matches!(statement, Statement::Discard { object_type: DiscardObject::ALL });
    is_all(statement)
        || [FREEZE, CHECKPOINT, VACUUM].into_iter().any(|name| arguments_of_call(statement, name).is_some())
}

/// Options of VACUUM and ANALYZE.
const OPTIONS: [&str; 10] = [
    "full",
    "freeze",
    "verbose",
    "analyze",
    "disable_page_skipping",
    "skip_locked",
    "index_cleanup",
    "process_toast",
    "truncate",
    "parallel",
];

/// One statement, ours included.
pub(crate) fn parse_statement(parser: &mut Parser<'_>) -> std::result::Result<Statement, ParserError> {
    let is = |parser: &Parser<'_>, word: &str| matches!(&parser.peek_token_ref().token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word));
    if is(parser, "freeze") {
        parser.next_token();
        parser.expect_keyword(Keyword::TABLE)?;
        let name = parser.parse_object_name(false)?;
        return call(FREEZE, &[&name.to_string()]);
    }
    if is(parser, "checkpoint") {
        parser.next_token();
        return call(CHECKPOINT, &[""]);
    }
    let vacuum = is(parser, "vacuum");
    if vacuum || is(parser, "analyze") || is(parser, "analyse") {
        parser.next_token();
        // What PostgreSQL's options ask for is done anyway, or has no meaning here.
        let mut depth = 0;
        while depth > 0
            || parser.peek_token_ref().token == Token::LParen
            || ["full", "freeze", "verbose", "analyze", "analyse"].iter().any(|word| is(parser, word))
        {
            match parser.next_token().token {
                open @ (Token::LParen | Token::Comma) => {
                    depth += i32::from(open == Token::LParen);
                    if !OPTIONS.iter().any(|word| is(parser, word)) {
                        let command = if vacuum { "VACUUM" } else { "ANALYZE" };
                        let option = parser.peek_token_ref().token.to_string().to_lowercase();
                        return Err(ParserError::ParserError(format!("unrecognized {command} option \"{option}\"")));
                    }
                }
                Token::RParen => depth -= 1,
                Token::EOF => return parser.expected("the end of the options", parser.peek_token()),
                _ => {}
            }
        }
        let tables = match parser.peek_token_ref().token {
            Token::EOF | Token::SemiColon => Vec::new(),
            _ => parser.parse_comma_separated(|parser| parser.parse_object_name(false))?,
        };
        let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
        return call(if vacuum { VACUUM } else { ANALYZE }, &[&tables.join(", ")]);
    }
    if is(parser, "set")
        && matches!(&parser.peek_nth_token_ref(1).token, Token::Word(w) if w.value.eq_ignore_ascii_case("constraints"))
    {
        parser.next_token();
        parser.next_token();
        let names = match is(parser, "all") {
            true => {
                parser.next_token();
                Vec::new()
            }
            false => parser.parse_comma_separated(|parser| parser.parse_object_name(false))?,
        };
        parser.expect_one_of_keywords(&[Keyword::DEFERRED, Keyword::IMMEDIATE])?;
        return call(CONSTRAINTS, &[&names.first().map(ToString::to_string).unwrap_or_default()]);
    }
    if let Some(statement) = crate::roles::statement(parser)? {
        return Ok(statement);
    }
    if let Some(statement) = crate::cursors::statement(parser)? {
        return Ok(statement);
    }
    if let Some(statement) = crate::ddl::sequence_statement(parser)? {
        return Ok(statement);
    }
    if let Some(statement) = crate::ddl::cluster_statement(parser)? {
        return Ok(statement);
    }
    if let Some(statement) = crate::ddl::refresh_statement(parser)? {
        return Ok(statement);
    }
    let start = parser.index();
    let mut statement = parser.parse_statement()?;
    if let Statement::Copy { target: CopyTarget::File { .. }, .. } = statement {
        check_file_name(parser, start)?;
    }
    crate::ddl::cluster_clause(parser, &mut statement)?;
    crate::ddl::data_clause(parser, &mut statement)?;
    Ok(statement)
}

/// That a COPY, which begins at the token `start`, has its file's name in quotes: the parser takes a word for one as well.
fn check_file_name(parser: &Parser<'_>, start: usize) -> std::result::Result<(), ParserError> {
    let tokens = (start..parser.index()).map(|at| parser.token_at(at));
    let mut tokens = tokens.filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut depth = 0;
    while let Some(token) = tokens.next() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::Word(word) if depth == 0 && matches!(word.keyword, Keyword::TO | Keyword::FROM) => {
                return match tokens.next() {
                    Some(name) if matches!(name.token, Token::Word(_)) => {
                        parser.expected("the name of a file in quotes, STDIN or STDOUT", name.clone())
                    }
                    _ => Ok(()),
                };
            }
            _ => {}
        }
    }
    Ok(())
}

impl Session {
    /// Runs a statement of this module; none if it is another.
    pub(crate) async fn maintain(&mut self, statement: &Statement) -> Option<Result<StatementResult>> {
        let ours = [FREEZE, CHECKPOINT, VACUUM, ANALYZE, CONSTRAINTS].into_iter();
        let (name, argument) =
            ours.filter_map(|name| Some((name, arguments_of_call(statement, name)?.pop()?))).next()?;
        if self.transaction_status() == TransactionStatus::Failed {
            return None;
        }
        if name == CONSTRAINTS {
            // Which are all checked at the end of each statement.
            return Some(match argument.as_str() {
                "" => Ok(StatementResult::command("SET CONSTRAINTS")),
                named => {
                    let message = format!("constraint \"{named}\" is not deferrable");
                    Err(SqlError::new("42809", message).named(named))
                }
            });
        }
        if name == ANALYZE {
            // Statistics are sampled when a query is planned: nothing is out of date.
            return Some(self.own_tables(&argument).map(|_| StatementResult::command("ANALYZE")));
        }
        if self.transaction_status() != TransactionStatus::Idle {
            let statement = match name {
                FREEZE => "FREEZE TABLE",
                VACUUM => "VACUUM",
                _ => "CHECKPOINT",
            };
            let message = format!("{statement} cannot run inside a transaction block");
            return Some(Err(SqlError::new("25001", message)));
        }
        let database = self.database().clone();
        if name == CHECKPOINT {
            if let Err(error) = self.access_now().check_superuser("do CHECKPOINT") {
                return Some(Err(error.into()));
            }
            return Some(
                blocking(move || database.checkpoint().map_err(SqlError::from))
                    .await
                    .map(|_| StatementResult::command("CHECKPOINT")),
            );
        }
        if name == VACUUM {
            let tables = match self.own_tables(&argument) {
                Ok(tables) => tables,
                Err(error) => return Some(Err(error)),
            };
            let storage = database.storage().clone();
            let work = move || {
                storage.run_gc();
                tables.iter().for_each(|table| storage.vacuum_table(&table.data));
                Ok(StatementResult::command("VACUUM"))
            };
            return Some(blocking(work).await);
        }
        Some(self.freeze(database, &argument).await)
    }

    /// The tables with these names, which must be the current user's; all of the user's if there are none.
    fn own_tables(&self, names: &str) -> Result<Vec<Arc<Table>>> {
        let access = self.access_now();
        let object = |table: &Table| Object::relation(&table.definition.schema, table.name());
        if names.is_empty() {
            let catalog = self.database().catalog();
            return Ok(catalog.tables().filter(|table| access.owns(&object(table))).cloned().collect());
        }
        let mut parser = parser(names)?;
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        let table = |name| {
            let table = self.find_table(name, &access)?;
            access.check_usage(&table.definition.schema)?;
            access.check_owner(&object(&table))?;
            Ok(table)
        };
        names.iter().map(table).collect()
    }

    fn find_table(&self, name: &ObjectName, access: &Access) -> Result<Arc<Table>> {
        let catalog = self.database().catalog();
        let (schema, table) = resolve(name)?;
        if name.0.len() > 1 {
            return Ok(catalog.table(&schema, &table)?.clone());
        }
        let path = self.path(&catalog, access);
        let found = path.iter().find_map(|schema| catalog.table(schema, &table).ok());
        found.cloned().ok_or_else(|| EngineError::Missing { kind: "relation", name: table }.into())
    }

    async fn freeze(&mut self, database: Database, table: &str) -> Result<StatementResult> {
        let table = self.own_tables(table)?.pop().expect("one is named");
        if table.data.freeze_format() == FreezeFormat::Never {
            let message = format!("table \"{}\" does not freeze: its freeze_format is never", table.name());
            return Err(SqlError::new("55000", message));
        }
        let storage = database.storage().clone();
        let (frozen, blocks) = blocking(move || Ok(storage.freeze_table(&table.data, FREEZE_PATIENCE))).await?;
        let tag = if frozen == blocks {
            format!("FREEZE TABLE {blocks}")
        } else {
            format!("FREEZE TABLE {frozen} of {blocks}")
        };
        Ok(StatementResult::Command { tag, rows: frozen.into() })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SqlError::new("XX000", format!("the work ended early: {error}"))),
    }
}

/// One of [`SYSTEM_VIEWS`], or PostgreSQL's view of sessions, if it has the name.
pub(crate) fn system_view(
    name: &str,
    view: &View,
    sql: &SqlDatabase,
) -> datafusion::error::Result<Option<Arc<dyn TableProvider>>> {
    match name {
        "serac_blocks" => blocks_view(view).map(Some),
        "serac_indexes" => indexes_view(view).map(Some),
        "serac_activity" => backends::activity_view(sql, &view.access).map(Some),
        "serac_locks" => backends::locks_view(sql, view).map(Some),
        "serac_metrics" => backends::metrics_view(sql, &view.access).map(Some),
        "serac_passes" => {
            let passes = pipeline::view()?;
            Ok(Some(Arc::new(MemTable::try_new(passes.schema(), vec![vec![passes]])?)))
        }
        "pg_stat_activity" => backends::pg_stat_activity(sql, &view.access).map(Some),
        _ => Ok(None),
    }
}

fn text(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// Every index of every table, with the figures of the bitmap indexes as they are now.
fn indexes_view(view: &View) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let mut texts: [Vec<String>; 5] = Default::default();
    let mut numbers: [Vec<Option<i64>>; 11] = Default::default();
    let mut row = |names: [&str; 5], figures: [Option<u64>; 11]| {
        texts.iter_mut().zip(names).for_each(|(column, name)| column.push(name.to_owned()));
        numbers.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure.map(|n| n as i64)));
    };
    for (schema, entry) in &view.catalog.schemas {
        for (name, table) in entry.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            let columns = &table.definition.columns;
            for index in &table.indexes {
                let key = &index.definition;
                let names: Vec<_> = (0..key.columns.len()).map(|i| key.shown(i, &table.definition)).collect();
                let mut figures = [None; 11];
                figures[1] = Some(index.entries.len() as u64);
                row([schema, name, &index.definition.name, "btree", &names.join(", ")], figures);
            }
            for index in &table.bitmaps {
                let Statistics {
                    values,
                    rows,
                    bytes,
                    log_entries,
                    log_bits,
                    pending_bits,
                    publications,
                    merges,
                    helps,
                    longest_chain,
                    versions,
                    ..
                } = index.entries.statistics();
                let names = [schema, name, &index.definition.name, "bitmap", &columns[index.definition.column].name];
                let contents = [values, rows, bytes, log_entries, log_bits, pending_bits];
                let work = [publications, merges, helps, longest_chain, versions];
                let mut figures = contents.into_iter().chain(work);
                row(names, std::array::from_fn(|_| figures.next()));
            }
        }
    }
    let names = ["schema_name", "table_name", "index_name", "method", "columns"];
    let texts = names.into_iter().zip(texts).map(|(name, values)| (name, text(values), false));
    let names = [
        "values",
        "entries",
        "bytes",
        "log_entries",
        "log_bits",
        "pending_bits",
        "publications",
        "merges",
        "helps",
        "longest_chain",
        "versions",
    ];
    let numbers =
        names.into_iter().zip(numbers).map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as _, true));
    let batch = RecordBatch::try_from_iter_with_nullable(texts.chain(numbers))?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Every block of every table, as it is now.
fn blocks_view(view: &View) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let (mut schemas, mut tables, mut states, mut touched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut numbers: [Vec<i64>; 8] = Default::default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut formats: Vec<Option<&'static str>> = Vec::new();
    for (schema_name, schema) in &view.catalog.schemas {
        for (table_name, table) in schema.tables.iter().filter(|(_, table)| view.may_look_into(table)) {
            for no in 0..table.data.block_count() {
                let Some(block) = table.data.block(BlockNo(no)) else { continue };
                // The block table has it, and this function.
                let pins = Arc::strong_count(&block).saturating_sub(2);
                let (state, rows, versions, heap, garbage, bytes, idle) = match &*block {
                    Block::Hot(hot) => {
                        let versions = hot.versioned().load(std::sync::atomic::Ordering::Relaxed);
                        let (heap, garbage) = (hot.heap().bytes(), hot.heap().garbage_bytes());
                        let state = format!("{:?}", hot.temperature()).to_lowercase();
                        (state, hot.rows(), versions, heap, garbage, hot.bytes(), Some(hot.idle()))
                    }
                    Block::Frozen(frozen) => {
                        ("frozen".to_owned(), frozen.rows(), 0, frozen.heap_bytes(), 0, frozen.bytes(), None)
                    }
                };
                schemas.push(schema_name.clone());
                tables.push(table_name.clone());
                states.push(state);
                formats.push(block.frozen().map(|frozen| frozen.format().name()));
                touched.push(idle.map(|idle| now.saturating_sub(idle).as_micros() as i64));
                let empty = block.slot_limit() - rows;
                let counts = [no, rows, empty, versions].map(i64::from);
                let sizes = [heap, garbage, bytes, pins].map(|size| size as i64);
                numbers.iter_mut().zip(counts.into_iter().chain(sizes)).for_each(|(column, value)| column.push(value));
            }
        }
    }
    let [block, rows, empty, versions, heap, garbage, bytes, pins] =
        numbers.map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
    let touched = TimestampMicrosecondArray::from(touched).with_timezone("UTC");
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("schema_name", text(schemas), false),
        ("table_name", text(tables), false),
        ("block", block, false),
        ("state", text(states), false),
        ("format", Arc::new(StringArray::from(formats)) as ArrayRef, true),
        ("rows", rows, false),
        ("empty_slots", empty, false),
        ("versions", versions, false),
        ("heap_bytes", heap, false),
        ("garbage_bytes", garbage, false),
        ("bytes", bytes, false),
        ("pins", pins, false),
        ("last_touched", Arc::new(touched), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}
