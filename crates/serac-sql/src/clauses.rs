//! Clauses that sqlparser takes and nothing here carries out. They are refused, never passed over.
//!
//! sqlparser knows the SQL of many databases. Most of its fields mean nothing here, and some are
//! PostgreSQL's own that SeracDB does not have. [`check`] sees every statement that is neither a
//! query nor a change right after it was parsed, before anything else looks at it. It takes apart
//! each type of statement that is accepted, without `..`: where sqlparser learns a new field, this
//! module does not compile until somebody has decided what becomes of it. What queries, changes and
//! expressions say is the binder's to refuse.
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
use crate::visits::visit;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, ConstraintCharacteristics,
    CreateIndex, CreateTable, CreateTableOptions, CreateView, Declare, DeferrableInitial, Expr, Function,
    FunctionArguments, GeneratedExpressionMode, HiveDistributionStyle, HiveFormat, Ident, IndexColumn,
    NullsDistinctOption, ObjectName, OrderByExpr, SchemaName, Set, SqlOption, Statement, TableConstraint, Truncate,
    TruncateTableTarget, Visitor,
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

struct Checker;

impl Visitor for Checker {
    type Break = Box<SqlError>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Self::Break> {
        flow(of_statement(statement))
    }
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Collate { expr: _, collation } => flow(of_collation(collation)),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn flow(checked: Checked) -> ControlFlow<Box<SqlError>> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

fn of_order(keys: &[OrderByExpr]) -> Checked {
    keys.iter().try_for_each(|OrderByExpr { expr: _, options: _, with_fill }| refuse("WITH FILL", with_fill.is_some()))
}

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

// ---- statements

fn of_statement(statement: &Statement) -> Checked {
    match statement {
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
