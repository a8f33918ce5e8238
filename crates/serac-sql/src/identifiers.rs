//! Identifiers: how they are folded, quoted and taken apart, and the names of the schemas that are
//! always there.

use crate::error::{Result, SqlError};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use serac_engine::DEFAULT_SCHEMA;
use serac_parser::tree::Name;

/// Name of the one catalog.
pub(crate) const CATALOG: &str = "serac";

/// The schema of a session's own tables, which live in a database of the session's own.
pub(crate) const TEMPORARY_SCHEMA: &str = "pg_temp";
/// The schema that stands for unqualified names: temporary tables, then the schemas of the setting `search_path`. No user sees it.
pub(crate) const SEARCH_PATH: &str = "pg_search_path";

/// The schema of the system tables.
pub(crate) const CATALOG_SCHEMA: &str = "pg_catalog";
/// The schema of the standard's views.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// Whether a schema has system tables.
pub(crate) fn is_system_schema(schema: &str) -> bool {
    schema == CATALOG_SCHEMA || schema == INFORMATION_SCHEMA
}

/// Words that must be quoted as names, because they would be read as something else.
pub(crate) const RESERVED: &str = " all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create current_catalog \
    current_date current_role current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign from \
    grant group having in initially intersect into lateral leading limit localtime localtimestamp not null offset on only or order placing primary \
    references returning select session_user some symmetric table then to trailing true union unique user using variadic when where window with \
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like natural notnull outer overlaps right \
    similar tablesample verbose between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int integer \
    interval least national nchar none normalize nullif numeric out overlay position precision real row setof smallint substring time timestamp treat trim \
    values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

/// A parsed name: schema and relation.
pub(crate) fn resolve(name: &ObjectName) -> Result<(String, String)> {
    let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident()).map(fold).collect();
    match &parts[..] {
        [name] => Ok((DEFAULT_SCHEMA.into(), name.clone())),
        [schema, name] => Ok((schema.clone(), name.clone())),
        [catalog, schema, name] if catalog == CATALOG => Ok((schema.clone(), name.clone())),
        _ => Err(SqlError::new("42601", format!("improper qualified name: {name}"))),
    }
}

/// A name of the parser's tree as one of sqlparser's.
pub(crate) fn object_name(name: &Name) -> ObjectName {
    ObjectName::from(name.parts.iter().map(|part| Ident::with_quote('"', &part.name)).collect::<Vec<_>>())
}

/// An identifier as the catalog has it: the letters A to Z folded to lower case unless it is quoted.
pub fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// The name of a statement that EXECUTE names.
pub(crate) fn prepared_name(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default()
}

/// A name as it must be written in SQL text.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name as it is written in SQL: quoted only where it must be.
pub(crate) fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$')
        && !RESERVED.contains(&format!(" {name} "));
    if plain { name.into() } else { quote(name) }
}

/// Schema and name in a text such as `public.orders` or `"Orders"`.
pub(crate) fn split_name(text: &str) -> (Option<String>, String) {
    let mut parts: Vec<String> = Vec::new();
    let (mut part, mut quoted) = (String::new(), false);
    let mut letters = text.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                part.push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            _ if quoted => part.push(letter),
            _ => part.extend(letter.to_lowercase()),
        }
    }
    (parts.pop(), part)
}
