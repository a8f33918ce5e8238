//! Clauses that the parser takes and nothing here carries out. They are refused, never passed over.
//!
//! The parser knows the SQL of many databases. Most of its fields mean nothing here, and some are
//! PostgreSQL's own that SeracDB does not have. [`check`] sees every statement right after it was
//! parsed, before anything else looks at it. It takes apart each type of statement, query and
//! table that is accepted, without `..`: where the parser learns a new field, this module does not
//! compile until somebody has decided what becomes of it.
//!
//! A field is one of three kinds:
//!
//! | the field | here |
//! |---|---|
//! | is read by what runs the statement | `field: _` |
//! | asks for nothing that shows in a result (hints, noise words, CONCURRENTLY) | `field: _` |
//! | asks for something else | an error: 0A000, or PostgreSQL's own for what it refuses too |
//!
//! Statements that are not listed are refused where statements are run.

use crate::error::SqlError;
use crate::identifiers::fold;
use crate::maintenance::is_ours;
use crate::planner;
use crate::visits::visit;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, Assignment, AssignmentTarget, ColumnDef, ColumnOption,
    ConstraintCharacteristics, CreateIndex, CreateTable, CreateTableOptions, CreateView, Cte, Declare,
    DeferrableInitial, Delete, Expr, FromTable, Function, FunctionArgumentClause, FunctionArguments,
    GeneratedExpressionMode, GroupByExpr, HiveDistributionStyle, HiveFormat, Ident, IndexColumn, Insert, Join,
    JoinConstraint, JoinOperator, LimitClause, Merge, MergeAction, NullsDistinctOption, ObjectName, OrderBy,
    OrderByExpr, OrderByKind, Query, SchemaName, Select, SelectFlavor, SelectItem, Set, SetExpr, SqlOption, Statement,
    TableAlias, TableConstraint, TableFactor, TableWithJoins, Truncate, TruncateTableTarget, Update,
    UpdateTableFromKind, Values, Visitor, WildcardAdditionalOptions, With,
};
use std::ops::ControlFlow;

type Checked = Result<(), SqlError>;

/// Refuses what is said in a statement and would not be done.
///
/// # Errors
/// 0A000 for most; PostgreSQL's SQLSTATE for what it refuses as well.
pub(crate) fn check(statement: &Statement) -> Checked {
    match visit(statement, &mut Checker) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// An error, if the clause is there.
fn refuse(clause: &str, is_said: bool) -> Checked {
    if is_said { Err(SqlError::unsupported(clause)) } else { Ok(()) }
}
/// An error for the first clause that is there.
fn refuse_any(clauses: &[(&str, bool)]) -> Checked {
    clauses.iter().try_for_each(|(clause, is_said)| refuse(clause, *is_said))
}
fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new("42601", message)
}

struct Checker;

impl Visitor for Checker {
    type Break = Box<SqlError>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Self::Break> {
        flow(of_statement(statement))
    }
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        flow(of_query(query))
    }
    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        flow(of_select(select))
    }
    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        flow(of_table_factor(factor))
    }
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        flow(of_expr(expr))
    }
}

fn flow(checked: Checked) -> ControlFlow<Box<SqlError>> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

// ---- queries

fn of_query(query: &Query) -> Checked {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks: _,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    if let Some(with @ With { with_token: _, recursive: _, cte_tables }) = with {
        crate::recursion::check(with)?;
        for Cte { alias, query: _, from, materialized: _, closing_paren_token: _ } in cte_tables {
            of_alias(alias, false)?;
            refuse("FROM behind a WITH query", from.is_some())?;
        }
    }
    of_set_expr(body)?;
    if let Some(OrderBy { kind, interpolate }) = order_by {
        match kind {
            OrderByKind::All(_) => return Err(SqlError::unsupported("ORDER BY ALL")),
            OrderByKind::Expressions(keys) => of_order(keys)?,
        }
        refuse("INTERPOLATE", interpolate.is_some())?;
    }
    match limit_clause {
        None => {}
        Some(LimitClause::LimitOffset { limit: _, offset: _, limit_by }) => {
            refuse("LIMIT … BY", !limit_by.is_empty())?;
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => return Err(syntax("LIMIT #,# syntax is not supported")),
    }
    if let Some(fetch) = fetch {
        refuse_any(&[("FETCH … WITH TIES", fetch.with_ties), ("FETCH … PERCENT", fetch.percent)])?;
    }
    refuse_any(&[
        ("FOR XML, FOR JSON and FOR BROWSE", for_clause.is_some()),
        ("SETTINGS", settings.is_some()),
        ("FORMAT behind a query", format_clause.is_some()),
        ("an operator |>", !pipe_operators.is_empty()),
    ])
}

fn of_set_expr(body: &SetExpr) -> Checked {
    match body {
        SetExpr::Values(values) => of_values(values),
        SetExpr::SetOperation { left, op: _, set_quantifier: _, right } => {
            of_set_expr(left)?;
            of_set_expr(right)
        }
        // The statements in them are visited.
        SetExpr::Select(_) | SetExpr::Query(_) => Ok(()),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => Ok(()),
        // It is written out before the text is parsed.
        SetExpr::Table(_) => Err(SqlError::unsupported("TABLE in this place")),
    }
}

fn of_values(values: &Values) -> Checked {
    let Values { explicit_row, value_keyword, rows: _ } = values;
    refuse_any(&[("VALUES ROW", *explicit_row), ("VALUE in the place of VALUES", *value_keyword)])
}

fn of_order(keys: &[OrderByExpr]) -> Checked {
    keys.iter().try_for_each(|OrderByExpr { expr: _, options: _, with_fill }| refuse("WITH FILL", with_fill.is_some()))
}

fn of_select(select: &Select) -> Checked {
    let Select {
        select_token: _,
        // They stand in comments.
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    refuse_any(&[
        ("a modifier of SELECT", select_modifiers.is_some()),
        ("TOP", top.is_some()),
        ("EXCLUDE", exclude.is_some()),
        ("SELECT INTO", into.is_some()),
        ("LATERAL VIEW", !lateral_views.is_empty()),
        ("PREWHERE", prewhere.is_some()),
        ("CONNECT BY", !connect_by.is_empty()),
        ("CLUSTER BY", !cluster_by.is_empty()),
        ("DISTRIBUTE BY", !distribute_by.is_empty()),
        ("SORT BY", !sort_by.is_empty()),
        ("SELECT AS STRUCT or VALUE", value_table_mode.is_some()),
        ("FROM before SELECT", !matches!(flavor, SelectFlavor::Standard)),
    ])?;
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    refuse("WITH behind GROUP BY", !modifiers.is_empty())?;
    of_items(projection)?;
    from.iter().try_for_each(of_table)
}

fn of_items(items: &[SelectItem]) -> Checked {
    items.iter().try_for_each(|item| match item {
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { expr: _, alias: _ } => Ok(()),
        SelectItem::ExprWithAliases { expr: _, aliases: _ } => {
            Err(SqlError::unsupported("several aliases of one expression"))
        }
        SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options) => {
            let WildcardAdditionalOptions {
                wildcard_token: _,
                opt_ilike,
                opt_exclude,
                opt_except,
                opt_replace,
                opt_rename,
                opt_alias,
            } = options;
            let is_said = opt_ilike.is_some()
                || opt_exclude.is_some()
                || opt_except.is_some()
                || opt_replace.is_some()
                || opt_rename.is_some()
                || opt_alias.is_some();
            refuse("an option of *", is_said)
        }
    })
}

fn of_table(TableWithJoins { relation: _, joins }: &TableWithJoins) -> Checked {
    joins.iter().try_for_each(|Join { relation: _, global, join_operator }| {
        refuse("GLOBAL JOIN", *global)?;
        match join_operator {
            JoinOperator::CrossJoin(constraint) if *constraint != JoinConstraint::None => {
                Err(syntax("CROSS JOIN takes no condition"))
            }
            // The planner takes them, or says that it does not.
            _ => Ok(()),
        }
    })
}

/// `of_function`: the alias of a function, whose columns may have types.
fn of_alias(alias: &TableAlias, of_function: bool) -> Checked {
    let TableAlias { explicit: _, name: _, columns, at } = alias;
    refuse("AT behind an alias", at.is_some())?;
    if !of_function && columns.iter().any(|column| column.data_type.is_some()) {
        return Err(syntax("a column definition list is only allowed for functions returning \"record\""));
    }
    Ok(())
}

fn of_table_factor(factor: &TableFactor) -> Checked {
    let of_alias = |alias: &Option<TableAlias>, of_function| match alias {
        Some(alias) => of_alias(alias, of_function),
        None => Ok(()),
    };
    match factor {
        TableFactor::Table {
            name,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            refuse_any(&[
                ("WITH behind a table", !with_hints.is_empty()),
                ("a version of a table", version.is_some()),
                ("PARTITION behind a table", !partitions.is_empty()),
                ("a path behind a table", json_path.is_some()),
                ("TABLESAMPLE", sample.is_some()),
                ("an index hint", !index_hints.is_empty()),
            ])?;
            if let Some(args) = args {
                refuse("SETTINGS of a function", args.settings.is_some())?;
            }
            if *with_ordinality {
                of_ordinality(name, args.is_some())?;
            }
            of_alias(alias, args.is_some())
        }
        TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
            refuse("TABLESAMPLE", sample.is_some())?;
            of_alias(alias, false)
        }
        TableFactor::Function { lateral: _, name, args: _, with_ordinality, alias } => {
            if *with_ordinality {
                of_ordinality(name, true)?;
            }
            of_alias(alias, true)
        }
        TableFactor::UNNEST { alias, array_exprs: _, with_offset, with_offset_alias, with_ordinality: _ } => {
            refuse("WITH OFFSET", *with_offset || with_offset_alias.is_some())?;
            of_alias(alias, true)
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            of_table(table_with_joins)?;
            of_alias(alias, false)
        }
        TableFactor::TableFunction { expr: _, alias: _ } => Err(SqlError::unsupported("TABLE (…) in FROM")),
        // The planner says that it does not take them.
        TableFactor::JsonTable { .. }
        | TableFactor::OpenJsonTable { .. }
        | TableFactor::Pivot { .. }
        | TableFactor::Unpivot { .. }
        | TableFactor::MatchRecognize { .. }
        | TableFactor::XmlTable { .. }
        | TableFactor::SemanticView { .. } => Ok(()),
    }
}

fn of_ordinality(name: &ObjectName, is_function: bool) -> Checked {
    let function = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    if !is_function {
        return Err(syntax("WITH ORDINALITY is for functions"));
    }
    refuse(&format!("WITH ORDINALITY of {function}()"), !crate::pg_catalog::numbers_rows(&function))
}

// ---- expressions

/// Collations by which texts are in the order of their characters' numbers, as all texts are here.
const COLLATIONS: [&str; 6] = ["default", "C", "POSIX", "C.UTF-8", "C.utf8", "ucs_basic"];

/// Refuses a collation that there is not.
fn of_collation(collation: &ObjectName) -> Checked {
    let parts: Vec<String> = collation.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let name = match &parts[..] {
        [name] => name.clone(),
        [schema, name] if schema == "pg_catalog" => name.clone(),
        _ => collation.to_string(),
    };
    if COLLATIONS.contains(&name.as_str()) {
        return Ok(());
    }
    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
    Err(SqlError::new("42704", message).named(name))
}

fn of_expr(expr: &Expr) -> Checked {
    match expr {
        Expr::Collate { expr: _, collation } => of_collation(collation),
        Expr::Cast { kind: _, expr: _, data_type: _, array, format } => {
            refuse_any(&[("CAST … ARRAY", *array), ("CAST … FORMAT", format.is_some())])
        }
        Expr::Function(function) => of_function(function),
        _ => Ok(()),
    }
}

fn of_function(function: &Function) -> Checked {
    let Function { name, uses_odbc_syntax: _, parameters, args, filter, null_treatment, over, within_group } = function;
    refuse("a function with two lists of arguments", *parameters != FunctionArguments::None)?;
    let (mut is_distinct, mut is_ordered) = (false, !within_group.is_empty());
    of_order(within_group)?;
    if let FunctionArguments::List(list) = args {
        is_distinct = list.duplicate_treatment.is_some();
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(keys) => {
                    of_order(keys)?;
                    is_ordered = true;
                    refuse("an aggregate with ORDER BY as a window function", over.is_some())?;
                }
                // The planner knows where it has a meaning.
                FunctionArgumentClause::IgnoreOrRespectNulls(_) => {}
                other => return Err(SqlError::unsupported(format!("{other} in a function's arguments"))),
            }
        }
    }
    let name = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    if planner::is_scalar_function(&name) {
        let said = [
            ("DISTINCT", is_distinct),
            ("ORDER BY", is_ordered),
            ("FILTER", filter.is_some()),
            ("IGNORE or RESPECT NULLS", null_treatment.is_some()),
        ];
        if let Some((clause, _)) = said.into_iter().find(|(_, is_said)| *is_said) {
            let message = format!("{clause} specified, but {name} is not an aggregate function");
            return Err(SqlError::new("42809", message).named(name));
        }
        if over.is_some() {
            let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(SqlError::new("42809", message).named(name));
        }
    }
    Ok(())
}

// ---- statements

fn of_statement(statement: &Statement) -> Checked {
    match statement {
        Statement::Query(_) => Ok(()),
        Statement::Insert(insert) => of_insert(insert),
        Statement::Update(update) => of_update(update),
        Statement::Delete(delete) => of_delete(delete),
        Statement::Merge(merge) => of_merge(merge),
        Statement::CreateTable(create) => of_create_table(create),
        Statement::CreateView(view) => of_create_view(view),
        Statement::CreateIndex(index) => of_create_index(index),
        Statement::AlterTable(alter) => of_alter_table(alter),
        Statement::Truncate(truncate) => of_truncate(truncate),
        Statement::Set(set) => of_set(set),
        Statement::Explain {
            describe_alias: _,
            analyze: _,
            verbose: _,
            query_plan,
            estimate,
            statement: _,
            // Both are read where it is run, which refuses what it does not know.
            format: _,
            options: _,
        } => refuse_any(&[("EXPLAIN QUERY PLAN", *query_plan), ("EXPLAIN ESTIMATE", *estimate)]),
        Statement::ExplainTable { describe_alias: _, hive_format, has_table_keyword: _, table_name: _ } => {
            refuse("DESCRIBE with a format", hive_format.is_some())
        }
        Statement::CreateSchema { schema_name: _, if_not_exists: _, with, options, default_collate_spec, clone } => {
            refuse_any(&[
                ("CREATE SCHEMA … WITH", with.is_some()),
                ("CREATE SCHEMA … OPTIONS", options.is_some()),
                ("CREATE SCHEMA … COLLATE", default_collate_spec.is_some()),
                ("CREATE SCHEMA … CLONE", clone.is_some()),
            ])
        }
        Statement::Drop {
            object_type: _,
            if_exists: _,
            names: _,
            cascade: _,
            restrict: _,
            purge,
            temporary,
            table,
        } => refuse_any(&[("DROP … PURGE", *purge), ("DROP TEMPORARY", *temporary), ("DROP … ON", table.is_some())]),
        Statement::Execute { name: _, parameters: _, has_parentheses: _, immediate, into, using, output, default } => {
            refuse_any(&[
                ("EXECUTE IMMEDIATE", *immediate),
                ("EXECUTE … INTO", !into.is_empty()),
                ("EXECUTE … USING", !using.is_empty()),
                ("EXECUTE … OUTPUT", *output),
                ("EXECUTE … DEFAULT", *default),
            ])
        }
        Statement::StartTransaction {
            modes: _,
            begin: _,
            transaction: _,
            modifier,
            statements,
            exception,
            has_end_keyword: _,
        } => refuse_any(&[
            ("a kind of transaction", modifier.is_some()),
            ("BEGIN with statements", !statements.is_empty() || exception.is_some()),
        ]),
        Statement::Commit { chain: _, end: _, modifier } => refuse("a kind of transaction", modifier.is_some()),
        Statement::Declare { stmts } => stmts.iter().try_for_each(of_declare),
        Statement::ShowTables { terse, history, extended, full, external, show_options } => {
            let is_filtered = show_options.show_in.is_some()
                || show_options.starts_with.is_some()
                || show_options.limit.is_some()
                || show_options.limit_from.is_some()
                || show_options.filter_position.is_some();
            refuse("a clause of SHOW TABLES", is_filtered || *terse || *history || *extended || *full || *external)
        }
        Statement::Call(function) if !is_ours(function) => {
            let Function {
                name: _,
                uses_odbc_syntax: _,
                parameters: _,
                args,
                filter,
                null_treatment,
                over,
                within_group,
            } = function;
            let has_clauses = match args {
                FunctionArguments::List(list) => list.duplicate_treatment.is_some() || !list.clauses.is_empty(),
                _ => false,
            };
            let is_said = has_clauses
                || filter.is_some()
                || null_treatment.is_some()
                || over.is_some()
                || !within_group.is_empty();
            refuse("a clause of CALL", is_said)
        }
        // All of their fields are read where they are run, which takes them apart.
        _ => Ok(()),
    }
}

fn of_declare(declare: &Declare) -> Checked {
    let Declare {
        names: _,
        data_type,
        assignment,
        declare_type: _,
        binary,
        // A cursor's rows are computed when it is declared: it never sees later changes.
        sensitive,
        scroll: _,
        hold: _,
        for_query: _,
    } = declare;
    refuse_any(&[
        ("DECLARE of a variable", data_type.is_some() || assignment.is_some()),
        ("DECLARE BINARY", *binary == Some(true)),
        ("a cursor that is not INSENSITIVE", *sensitive == Some(true)),
    ])
}

/// Refuses columns that are named by more than their name: `INSERT INTO t (t.a)` is about a field
/// of a column t.
fn of_target_column(name: &ObjectName) -> Checked {
    match &name.0[..] {
        [_] => Ok(()),
        [first, ..] => {
            let first = first.as_ident().map(fold).unwrap_or_default();
            let message =
                format!("column \"{first}\" cannot be assigned to in part: there are no columns of composite types");
            Err(SqlError::new("42703", message).named(first))
        }
        [] => Ok(()),
    }
}

fn of_assignments(assignments: &[Assignment]) -> Checked {
    assignments.iter().try_for_each(|Assignment { target, value: _ }| match target {
        AssignmentTarget::ColumnName(name) => of_target_column(name),
        AssignmentTarget::Tuple(names) => names.iter().try_for_each(of_target_column),
    })
}

/// What a change gives of each row, of which there are no groups and no windows.
fn of_returning(items: &[SelectItem]) -> Checked {
    of_items(items)?;
    let found = crate::visits::visit_expressions(&items.to_vec(), |expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(None),
        Expr::Function(function) if function.over.is_some() => {
            ControlFlow::Break(Some(("42P20", "window functions are not allowed in RETURNING")))
        }
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(crate::identifiers::fold);
            match name.is_some_and(|name| crate::planner::is_aggregate(&name)) {
                true => ControlFlow::Break(Some(("42803", "aggregate functions are not allowed in RETURNING"))),
                false => ControlFlow::Continue(()),
            }
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(Some((sqlstate, message))) => Err(SqlError::new(sqlstate, message)),
        _ => Ok(()),
    }
}

fn of_insert(insert: &Insert) -> Checked {
    let Insert {
        insert_token: _,
        optimizer_hints: _,
        or,
        ignore,
        into,
        table: _,
        table_alias: _,
        columns,
        overwrite,
        source: _,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword,
        // A clause other than ON CONFLICT is refused where the statement runs.
        on: _,
        returning,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    refuse_any(&[
        ("INSERT OR", or.is_some()),
        ("INSERT IGNORE", *ignore),
        ("INSERT without INTO", !into),
        ("INSERT OVERWRITE", *overwrite),
        ("INSERT … SET", !assignments.is_empty()),
        ("INSERT … PARTITION", partitioned.is_some() || !after_columns.is_empty()),
        ("INSERT INTO TABLE", *has_table_keyword),
        ("OUTPUT", output.is_some()),
        ("REPLACE INTO", *replace_into),
        ("a priority of INSERT", priority.is_some()),
        ("an alias of inserted rows", insert_alias.is_some()),
        ("SETTINGS", settings.is_some()),
        ("FORMAT of INSERT", format_clause.is_some()),
        ("INSERT into several tables", multi_table_insert_type.is_some()),
        ("INSERT into several tables", !multi_table_into_clauses.is_empty() || !multi_table_when_clauses.is_empty()),
        ("INSERT into several tables", multi_table_else_clause.is_some()),
    ])?;
    columns.iter().try_for_each(of_target_column)?;
    of_returning(returning.as_deref().unwrap_or_default())
}

fn of_update(update: &Update) -> Checked {
    let Update {
        update_token: _,
        optimizer_hints: _,
        table,
        assignments,
        from,
        selection: _,
        returning,
        output,
        or,
        // Refused where it is run.
        order_by: _,
        limit: _,
    } = update;
    refuse_any(&[
        ("OUTPUT", output.is_some()),
        ("UPDATE OR", or.is_some()),
        ("FROM before SET", matches!(from, Some(UpdateTableFromKind::BeforeSet(_)))),
    ])?;
    of_target(table)?;
    if let Some(UpdateTableFromKind::AfterSet(tables)) = from {
        tables.iter().try_for_each(of_table)?;
    }
    of_assignments(assignments)?;
    of_returning(returning.as_deref().unwrap_or_default())
}

/// The table that is changed: a table, whose alias gives its columns no other names.
fn of_target(table: &TableWithJoins) -> Checked {
    of_table(table)?;
    match &table.relation {
        TableFactor::Table { alias: Some(alias), .. } if !alias.columns.is_empty() => {
            Err(syntax("the table that is changed cannot have other names of columns"))
        }
        TableFactor::Table { args: Some(_), .. } => Err(SqlError::unsupported("changing what a function gives")),
        _ => Ok(()),
    }
}

fn of_delete(delete: &Delete) -> Checked {
    let Delete {
        delete_token: _,
        optimizer_hints: _,
        tables,
        from,
        using,
        selection: _,
        returning,
        output,
        // Refused where it is run.
        order_by: _,
        limit: _,
    } = delete;
    refuse_any(&[("DELETE from named tables", !tables.is_empty()), ("OUTPUT", output.is_some())])?;
    match from {
        FromTable::WithFromKeyword(targets) => targets.iter().try_for_each(of_target)?,
        FromTable::WithoutKeyword(_) => return Err(syntax("DELETE without FROM")),
    }
    using.iter().flatten().try_for_each(of_table)?;
    of_returning(returning.as_deref().unwrap_or_default())
}

fn of_merge(merge: &Merge) -> Checked {
    let Merge {
        merge_token: _,
        optimizer_hints: _,
        into: _,
        table,
        source: _,
        on: _,
        clauses,
        // Refused where it is run, as are conditions inside of actions.
        output: _,
    } = merge;
    of_target(&TableWithJoins { relation: table.clone(), joins: Vec::new() })?;
    clauses.iter().try_for_each(|clause| match &clause.action {
        MergeAction::Insert(insert) => insert.columns.iter().try_for_each(of_target_column),
        MergeAction::Update(update) => of_assignments(&update.assignments),
        MergeAction::Delete { delete_token: _ } => Ok(()),
    })
}

// ---- definitions

fn of_characteristics(characteristics: &Option<ConstraintCharacteristics>) -> Checked {
    let Some(ConstraintCharacteristics { deferrable, initially, enforced }) = characteristics else { return Ok(()) };
    refuse_any(&[
        ("a constraint that is DEFERRABLE", *deferrable == Some(true)),
        ("a constraint that is INITIALLY DEFERRED", *initially == Some(DeferrableInitial::Deferred)),
        ("a constraint that is NOT ENFORCED", *enforced == Some(false)),
    ])
}

fn of_index_columns(columns: &[IndexColumn]) -> Checked {
    columns.iter().try_for_each(|IndexColumn { column, operator_class }| {
        of_order(std::slice::from_ref(column))?;
        match operator_class {
            Some(class) => of_operator_class(class),
            None => Ok(()),
        }
    })
}

/// Refuses operator classes that order values otherwise than they are ordered here.
fn of_operator_class(class: &ObjectName) -> Checked {
    let name = class.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    let of_type = name.strip_suffix("_ops").unwrap_or_default();
    let of_type = of_type.strip_suffix("_pattern").unwrap_or(of_type);
    let types = [
        "bool",
        "bpchar",
        "bytea",
        "date",
        "float4",
        "float8",
        "int2",
        "int4",
        "int8",
        "interval",
        "jsonb",
        "numeric",
        "text",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
        "varchar",
    ];
    if types.contains(&of_type) {
        return Ok(());
    }
    let message = format!("operator class \"{name}\" does not exist for access method \"btree\"");
    Err(SqlError::new("42704", message).named(name))
}

fn of_constraint(constraint: &TableConstraint) -> Checked {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            of_index_columns(&key.columns)?;
            refuse("an option of a primary key", key.index_type.is_some() || !key.index_options.is_empty())?;
            of_characteristics(&key.characteristics)
        }
        TableConstraint::Unique(key) => {
            of_index_columns(&key.columns)?;
            refuse_any(&[
                ("NULLS NOT DISTINCT", key.nulls_distinct == NullsDistinctOption::NotDistinct),
                ("an option of a unique constraint", key.index_type.is_some() || !key.index_options.is_empty()),
            ])?;
            of_characteristics(&key.characteristics)
        }
        TableConstraint::ForeignKey(key) => {
            refuse("an index of a foreign key", key.index_name.is_some())?;
            of_characteristics(&key.characteristics)
        }
        TableConstraint::Check(check) => refuse("a constraint that is NOT ENFORCED", check.enforced == Some(false)),
        // Refused where it is run.
        TableConstraint::Index(_)
        | TableConstraint::FulltextOrSpatial(_)
        | TableConstraint::PrimaryKeyUsingIndex(_)
        | TableConstraint::UniqueUsingIndex(_) => Ok(()),
    }
}

fn of_column(column: &ColumnDef) -> Checked {
    let ColumnDef { name: _, data_type: _, options } = column;
    options.iter().try_for_each(|option| match &option.option {
        ColumnOption::PrimaryKey(key) => of_constraint(&TableConstraint::PrimaryKey(key.clone())),
        ColumnOption::Unique(key) => of_constraint(&TableConstraint::Unique(key.clone())),
        ColumnOption::ForeignKey(key) => of_constraint(&TableConstraint::ForeignKey(key.clone())),
        ColumnOption::Check(check) => of_constraint(&TableConstraint::Check(check.clone())),
        ColumnOption::Collation(collation) => of_collation(collation),
        ColumnOption::Generated {
            generated_as: _,
            sequence_options: _,
            generation_expr: _,
            generation_expr_mode,
            generated_keyword: _,
        } => refuse(
            "a generated column that is not STORED",
            matches!(generation_expr_mode, Some(GeneratedExpressionMode::Virtual)),
        ),
        ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Default(_) => Ok(()),
        // Those of other databases are refused where the statement is run, but for what LIKE is
        // written as.
        _ => Ok(()),
    })
}

fn of_create_table(create: &CreateTable) -> Checked {
    let CreateTable {
        or_replace,
        temporary: _,
        external,
        dynamic,
        global,
        if_not_exists: _,
        transient,
        volatile,
        iceberg,
        snapshot,
        name: _,
        columns,
        constraints,
        hive_distribution,
        hive_formats,
        table_options,
        file_format,
        location,
        query: _,
        without_rowid,
        like,
        clone,
        version,
        comment,
        // All but PRESERVE ROWS is refused where it is run.
        on_commit: _,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by: _,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
    } = create;
    let is_formatted = |format: &HiveFormat| {
        format.row_format.is_some()
            || format.serde_properties.is_some()
            || format.storage.is_some()
            || format.location.is_some()
    };
    refuse_any(&[
        ("CREATE OR REPLACE TABLE", *or_replace),
        ("an external table", *external || location.is_some() || file_format.is_some() || external_volume.is_some()),
        ("an external table", base_location.is_some() || hive_formats.as_ref().is_some_and(is_formatted)),
        ("a dynamic table", *dynamic || target_lag.is_some() || warehouse.is_some() || refresh_mode.is_some()),
        ("a dynamic table", initialize.is_some() || *require_user),
        ("a transient table", *transient || *volatile || *iceberg || *snapshot),
        ("a distributed table", !matches!(hive_distribution, HiveDistributionStyle::NONE) || on_cluster.is_some()),
        ("a distributed table", diststyle.is_some() || distkey.is_some() || sortkey.is_some()),
        ("CREATE TABLE … WITHOUT ROWID", *without_rowid),
        ("STRICT", *strict),
        ("LIKE without parentheses", like.is_some()),
        ("CREATE TABLE … CLONE", clone.is_some() || version.is_some()),
        ("a comment inside of CREATE TABLE", comment.is_some()),
        ("PRIMARY KEY or ORDER BY behind a table", primary_key.is_some() || order_by.is_some()),
        ("a partitioned table", partition_by.is_some() || partition_of.is_some() || for_values.is_some()),
        ("CLUSTERED BY", clustered_by.is_some()),
        ("INHERITS", inherits.is_some()),
        ("COPY GRANTS", *copy_grants),
        ("an option of CREATE TABLE", enable_schema_evolution.is_some() || change_tracking.is_some()),
        ("an option of CREATE TABLE", data_retention_time_in_days.is_some()),
        ("an option of CREATE TABLE", max_data_extension_time_in_days.is_some() || default_ddl_collation.is_some()),
        ("a policy of a table", with_aggregation_policy.is_some() || with_row_access_policy.is_some()),
        ("a policy of a table", with_storage_lifecycle_policy.is_some() || with_tags.is_some()),
        ("an option of CREATE TABLE", catalog.is_some() || catalog_sync.is_some() || backup.is_some()),
        ("an option of CREATE TABLE", storage_serialization_policy.is_some() || *global == Some(true)),
        ("options of a table in this form", !is_with(table_options)),
    ])?;
    columns.iter().try_for_each(of_column)?;
    constraints.iter().try_for_each(of_constraint)
}

/// Whether options are in parentheses behind WITH, or not there: those are read.
fn is_with(options: &CreateTableOptions) -> bool {
    matches!(options, CreateTableOptions::None | CreateTableOptions::With(_))
}

fn of_create_view(view: &CreateView) -> Checked {
    let CreateView {
        or_alter,
        or_replace,
        materialized,
        secure,
        name: _,
        name_before_not_exists: _,
        columns,
        query: _,
        options,
        cluster_by,
        comment,
        // In a materialized view it stands for WITH NO DATA.
        with_no_schema_binding,
        if_not_exists: _,
        temporary: _,
        copy_grants,
        to,
        params,
    } = view;
    refuse_any(&[
        ("CREATE OR ALTER VIEW", *or_alter),
        ("CREATE OR REPLACE MATERIALIZED VIEW", *or_replace && *materialized),
        ("a secure view", *secure),
        ("CLUSTER BY of a view", !cluster_by.is_empty()),
        ("a comment inside of CREATE VIEW", comment.is_some()),
        ("WITH NO SCHEMA BINDING", *with_no_schema_binding && !materialized),
        ("COPY GRANTS", *copy_grants),
        ("a view into a table", to.is_some()),
        ("an algorithm, definer or security of a view", params.is_some()),
        ("options of a view in this form", !is_with(options)),
        ("types of a view's columns", columns.iter().any(|c| c.data_type.is_some() || c.options.is_some())),
    ])?;
    // Those of a materialized view are a table's.
    match options {
        CreateTableOptions::With(options) if !materialized => options.first().map_or(Ok(()), |option| match option {
            SqlOption::KeyValue { key, .. } | SqlOption::Ident(key) => Err(of_view_option(key)),
            other => Err(SqlError::unsupported(format!("the option {other} of a view"))),
        }),
        _ => Ok(()),
    }
}

fn of_view_option(key: &Ident) -> SqlError {
    match fold(key).as_str() {
        known @ ("security_barrier" | "security_invoker" | "check_option") => {
            SqlError::unsupported(format!("the option {known} of a view"))
        }
        other => SqlError::new("22023", format!("unrecognized parameter \"{other}\"")),
    }
}

fn of_create_index(index: &CreateIndex) -> Checked {
    let CreateIndex {
        name: _,
        table_name: _,
        using: _,
        columns,
        unique: _,
        // Readers and writers are not kept away longer than by any other.
        concurrently: _,
        if_not_exists: _,
        include: _,
        nulls_distinct,
        with,
        predicate: _,
        index_options,
        alter_options,
    } = index;
    refuse_any(&[
        ("NULLS NOT DISTINCT", *nulls_distinct == Some(false)),
        ("an option behind an index", !index_options.is_empty() || !alter_options.is_empty()),
    ])?;
    of_index_columns(columns)?;
    with.iter().try_for_each(|option| {
        let name = match option {
            Expr::BinaryOp { left, .. } => left.to_string().to_lowercase(),
            other => other.to_string().to_lowercase(),
        };
        // The fill of PostgreSQL's pages, and its storage of equal keys, show in no result.
        match name.as_str() {
            "fillfactor" | "deduplicate_items" => Ok(()),
            _ => Err(SqlError::new("22023", format!("unrecognized parameter \"{name}\""))),
        }
    })
}

fn of_alter_table(alter: &AlterTable) -> Checked {
    let AlterTable { name: _, if_exists: _, only: _, operations, location, on_cluster, table_type, end_token: _ } =
        alter;
    refuse_any(&[
        ("ALTER TABLE … LOCATION", location.is_some()),
        ("ALTER TABLE … ON CLUSTER", on_cluster.is_some()),
        ("ALTER of another kind of table", table_type.is_some()),
    ])?;
    operations.iter().try_for_each(|operation| match operation {
        AlterTableOperation::AddColumn { column_keyword: _, if_not_exists: _, column_def, column_position } => {
            refuse("a place of a new column", column_position.is_some())?;
            of_column(column_def)
        }
        AlterTableOperation::AddConstraint { constraint, not_valid: _ } => of_constraint(constraint),
        AlterTableOperation::AlterColumn {
            column_name: _,
            op:
                AlterColumnOperation::SetNotNull
                | AlterColumnOperation::DropNotNull
                | AlterColumnOperation::SetDefault { value: _ }
                | AlterColumnOperation::DropDefault
                | AlterColumnOperation::SetDataType { data_type: _, using: _, had_set: _ }
                | AlterColumnOperation::AddGenerated { generated_as: _, sequence_options: _ },
        } => Ok(()),
        // Each that is not known is refused where it is run.
        _ => Ok(()),
    })
}

fn of_truncate(truncate: &Truncate) -> Checked {
    let Truncate { table_names, partitions, table: _, if_exists, identity: _, cascade: _, on_cluster } = truncate;
    // No table has others below it.
    let read = |TruncateTableTarget { name: _, only: _, has_asterisk: _ }: &TruncateTableTarget| ();
    table_names.iter().for_each(read);
    refuse_any(&[
        ("TRUNCATE … PARTITION", partitions.is_some()),
        ("TRUNCATE IF EXISTS", *if_exists),
        ("TRUNCATE … ON CLUSTER", on_cluster.is_some()),
    ])
}

fn of_set(set: &Set) -> Checked {
    match set {
        Set::SingleAssignment { scope, hivevar, variable: _, values: _ } => refuse_any(&[
            ("SET HIVEVAR", *hivevar),
            ("SET GLOBAL", matches!(scope, Some(datafusion::sql::sqlparser::ast::ContextModifier::Global))),
        ]),
        Set::ParenthesizedAssignments { .. } | Set::MultipleAssignments { .. } => {
            Err(SqlError::unsupported("SET of several parameters"))
        }
        Set::SetSessionParam(_) => Err(SqlError::unsupported("SET without =")),
        Set::SetNames { charset_name: _, collation_name } => refuse("SET NAMES … COLLATE", collation_name.is_some()),
        Set::SetTransaction { modes: _, snapshot, session: _ } => {
            refuse("SET TRANSACTION SNAPSHOT", snapshot.is_some())
        }
        Set::SetSessionAuthorization(_) | Set::SetRole { .. } | Set::SetTimeZone { .. } | Set::SetNamesDefault {} => {
            Ok(())
        }
    }
}

/// The role that a new schema is to belong to, if it is said.
pub(crate) fn owner_of_schema(name: &SchemaName) -> Option<&Ident> {
    match name {
        SchemaName::Simple(_) => None,
        SchemaName::UnnamedAuthorization(owner) | SchemaName::NamedAuthorization(_, owner) => Some(owner),
    }
}
