//! Clauses that PostgreSQL takes and nothing here carries out. They are refused, never passed over.
//!
//! A function that runs a definition takes each node of its tree apart without `..`. If the parser
//! learns a new field, the module does not compile until a developer has handled the field. A field
//! is one of three kinds:
//!
//! | the field | here |
//! |---|---|
//! | is carried out | read |
//! | asks for nothing that shows in a result (CONCURRENTLY, ONLY, CACHE) | `field: _` |
//! | asks for something else | an error: 0A000, or PostgreSQL's own for what it refuses too |

use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::result::StatementResult;
use serac_engine::catalog::definition::{SqlType, TableDefinition};
use serac_parser::tree::{
    ConstraintAttributes, Ident, KeyStorage, Name, ObjectKind, OnCommit, Persistence, Span, StorageOption,
    StorageValue, TableStorage,
};
use serac_storage::{ColumnType, FreezeFormat};

/// An error for the first clause that is there.
pub(super) fn refuse_any(clauses: &[(&str, bool)]) -> Result<()> {
    match clauses.iter().find(|(_, is_said)| *is_said) {
        Some((clause, _)) => Err(SqlError::unsupported(clause)),
        None => Ok(()),
    }
}

/// Collations by which texts are in the order of their characters' numbers, as all texts are here.
const COLLATIONS: [&str; 6] = ["default", "C", "POSIX", "C.UTF-8", "C.utf8", "ucs_basic"];

/// Refuses a collation that does not exist.
pub(super) fn check_collation(collation: &Name) -> Result<()> {
    let name = match &collation.parts[..] {
        [schema, name] if schema.name == "pg_catalog" => name.name.clone(),
        _ => collation.to_string(),
    };
    if COLLATIONS.contains(&name.as_str()) {
        return Ok(());
    }
    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
    Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).named(name))
}

/// Refuses a type that an identity column cannot have.
///
/// # Errors
/// 22023.
pub(super) fn check_identity_type(sql_type: SqlType) -> Result<()> {
    match sql_type.column_type {
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => Ok(()),
        _ => {
            let message = "identity column type must be smallint, integer, or bigint";
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Types that have operator classes.
const ORDERED_TYPES: [&str; 19] = [
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
    "name",
    "numeric",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "varchar",
];

/// Refuses operator classes that order values otherwise than they are ordered here.
pub(super) fn check_operator_class(class: &Name) -> Result<()> {
    let name = class.parts.last().map_or("", |part| part.name.as_str());
    let of_type = name.strip_suffix("_ops").unwrap_or_default();
    let of_type = of_type.strip_suffix("_pattern").unwrap_or(of_type);
    if ORDERED_TYPES.contains(&of_type) {
        return Ok(());
    }
    let message = format!("operator class \"{name}\" does not exist for access method \"btree\"");
    Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).named(name))
}

/// Refuses attributes of a constraint that are not supported.
pub(super) fn check_attributes(attributes: &ConstraintAttributes) -> Result<()> {
    let ConstraintAttributes { deferrable, initially_deferred, not_valid, no_inherit, span: _ } = attributes;
    refuse_any(&[
        ("a constraint that is DEFERRABLE", *deferrable == Some(true)),
        ("a constraint that is INITIALLY DEFERRED", *initially_deferred == Some(true)),
        ("NOT VALID", *not_valid),
        ("NO INHERIT", *no_inherit),
    ])
}

/// Refuses options of a key's index that are not supported.
pub(super) fn check_key_storage(storage: &KeyStorage) -> Result<()> {
    let KeyStorage { options, tablespace } = storage;
    check_index_storage(options, tablespace.as_ref())
}

/// The same of an index that is made by itself.
pub(super) fn check_index_storage(options: &[StorageOption], tablespace: Option<&Ident>) -> Result<()> {
    refuse_any(&[("TABLESPACE", tablespace.is_some())])?;
    options.iter().try_for_each(|option| match option_name(option)? {
        // The fill of PostgreSQL's pages, and its storage of equal keys, show in no result.
        "fillfactor" | "deduplicate_items" => Ok(()),
        other => Err(unrecognized(other)),
    })
}

/// The options of a view, which have no effect.
pub(super) fn check_view_options(options: &[StorageOption]) -> Result<()> {
    let Some(first) = options.first() else { return Ok(()) };
    Err(match option_name(first)? {
        known @ ("security_barrier" | "security_invoker" | "check_option") => {
            SqlError::unsupported(format!("the option {known} of a view"))
        }
        other => unrecognized(other),
    })
}

/// The target format that the options of a new table name, if they do. All but its CLUSTER BY is
/// looked at.
pub(super) fn freeze_format_of(storage: &TableStorage, persistence: Persistence) -> Result<FreezeFormat> {
    let TableStorage { method, options, on_commit, tablespace, cluster_by: _ } = storage;
    if let Some(Ident { name, .. }) = method.as_ref().filter(|method| method.name != "heap") {
        return Err(
            SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("access method \"{name}\" does not exist")).named(name)
        );
    }
    if on_commit.is_some() && persistence != Persistence::Temporary {
        return Err(SqlError::new(
            sqlstate::INVALID_TABLE_DEFINITION,
            "ON COMMIT can only be used on temporary tables",
        ));
    }
    refuse_any(&[
        ("ON COMMIT DROP or DELETE ROWS", !matches!(on_commit, None | Some(OnCommit::PreserveRows))),
        ("TABLESPACE", tablespace.is_some()),
    ])?;
    Ok(freeze_format(options)?.unwrap_or_default())
}

/// The target format that the storage parameters of a table name, if they do.
pub(super) fn freeze_format(options: &[StorageOption]) -> Result<Option<FreezeFormat>> {
    let mut format = None;
    for option in options {
        let name = option_name(option)?;
        if name == "oids" {
            // Rows have no numbers of their own.
            match option.value.as_ref().map_or("true".into(), shown_value).to_lowercase().as_str() {
                "false" | "off" | "no" | "0" => continue,
                _ => {
                    return Err(SqlError::new(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        "tables declared WITH OIDS are not supported",
                    ));
                }
            }
        }
        if !["fillfactor", "freeze_format"].contains(&name) {
            return Err(unrecognized(name));
        }
        let missing = || SqlError::new(sqlstate::SYNTAX_ERROR, format!("the storage parameter {name} has no value"));
        let value = shown_value(option.value.as_ref().ok_or_else(missing)?);
        if name == "fillfactor" {
            // The fill of PostgreSQL's pages; rows are changed in place here.
            if !matches!(value.parse::<u8>(), Ok(10..=100)) {
                let message = format!("value {value} out of bounds for option \"fillfactor\": from 10 to 100");
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
            continue;
        }
        let parsed = value.parse::<FreezeFormat>().map_err(|detail| {
            SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"freeze_format\": {detail}"),
            )
        })?;
        format = Some(parsed);
    }
    Ok(format)
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\""))
}

/// The name of an option. Options with a namespace are refused.
fn option_name(option: &StorageOption) -> Result<&str> {
    match &option.namespace {
        None => Ok(&option.name.name),
        Some(namespace) => {
            let message = format!("unrecognized parameter namespace \"{}\"", namespace.name);
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

fn shown_value(value: &StorageValue) -> String {
    match value {
        StorageValue::Word(word) => word.name.clone(),
        StorageValue::Text(text) => text.text.clone(),
        StorageValue::Number(number) => format!("{}{}", if number.negative { "-" } else { "" }, number.digits),
        StorageValue::Type(of) => of.name.to_string(),
        StorageValue::Operator(operator) => operator.symbol.clone(),
    }
}

pub(crate) fn done(tag: &str) -> Result<StatementResult> {
    Ok(StatementResult::command(tag))
}

/// The part of a statement's script that stands at a place.
pub(crate) fn text_at(source: &Source, at: Span) -> &str {
    &source.text()[at.start as usize..at.end as usize]
}

/// The words for a kind of object.
pub(crate) fn words(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Table => "TABLE",
        ObjectKind::Index => "INDEX",
        ObjectKind::View => "VIEW",
        ObjectKind::MaterializedView => "MATERIALIZED VIEW",
        ObjectKind::Sequence => "SEQUENCE",
        ObjectKind::Schema => "SCHEMA",
        ObjectKind::Server => "SERVER",
        ObjectKind::ForeignTable => "FOREIGN TABLE",
        ObjectKind::Database => "DATABASE",
        ObjectKind::Role => "ROLE",
        ObjectKind::Column => "COLUMN",
    }
}

/// That values of a type may be compared, as those of an index are.
///
/// # Errors
/// 42704.
pub(crate) fn check_key_type(sql_type: SqlType) -> Result<()> {
    if sql_type.column_type != ColumnType::JsonText {
        return Ok(());
    }
    let message = format!("data type {sql_type} has no default operator class for access method \"btree\"");
    let hint = "You must specify an operator class for the index or define a default operator class for the data type.";
    Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).hinted(hint))
}

/// The same of columns of a table.
///
/// # Errors
/// 42704.
pub(crate) fn check_indexed(table: &TableDefinition, columns: &[usize]) -> Result<()> {
    columns.iter().try_for_each(|at| check_key_type(table.columns[*at].sql_type))
}
