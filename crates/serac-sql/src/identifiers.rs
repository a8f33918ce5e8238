//! Identifiers: how they are folded, quoted and taken apart, and the names of the schemas that are
//! always there.

use crate::error::{Result, SqlError};
use serac_engine::DEFAULT_SCHEMA;
use serac_parser::tree::{Ident, Name, Span};

/// Name of the one catalog.
pub(crate) const CATALOG: &str = "serac";

/// The schema of a session's own tables, which live in a database of the session's own.
pub(crate) const TEMPORARY_SCHEMA: &str = "pg_temp";
/// The schema that stands for unqualified names: temporary tables, then the schemas of the setting
/// `search_path`. No user sees it.
pub(crate) const SEARCH_PATH: &str = "pg_search_path";

/// The schema of the system tables.
pub(crate) const CATALOG_SCHEMA: &str = "pg_catalog";
/// The schema of the standard's views.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// Whether a schema has system tables.
pub(crate) fn is_system_schema(schema: &str) -> bool {
    schema == CATALOG_SCHEMA || schema == INFORMATION_SCHEMA
}

/// Words that must be quoted as names, because they would have another meaning.
pub(crate) const RESERVED: &str = " all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create current_catalog \
    current_date current_role current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign from \
    grant group having in initially intersect into lateral leading limit localtime localtimestamp not null offset on only or order placing primary \
    references returning select session_user some symmetric table then to trailing true union unique user using variadic when where window with \
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like natural notnull outer overlaps right \
    similar tablesample verbose between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int integer \
    interval least national nchar none normalize nullif numeric out overlay position precision real row setof smallint substring time timestamp treat trim \
    values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

/// A parsed name: schema and relation.
pub(crate) fn resolve(name: &Name) -> Result<(String, String)> {
    match &name.parts[..] {
        [name] => Ok((DEFAULT_SCHEMA.into(), name.name.clone())),
        [schema, name] => Ok((schema.name.clone(), name.name.clone())),
        [catalog, schema, name] if catalog.name == CATALOG => Ok((schema.name.clone(), name.name.clone())),
        _ => Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("improper qualified name: {name}"))),
    }
}

/// The name of these parts, which stand in no statement.
pub(crate) fn name_of(parts: impl IntoIterator<Item = String>) -> Name {
    let span = Span::default();
    Name { parts: parts.into_iter().map(|name| Ident { name, span }).collect(), span }
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
    let mut parts = parts_of(text);
    let name = parts.pop().unwrap_or_default();
    (parts.pop(), name)
}

/// The same of a relation, whose database may be named, too.
///
/// # Errors
/// 0A000 for a database that is not the session's own; 42601 for more parts.
pub(crate) fn split_relation_name(
    text: &str,
    is_own_database: impl Fn(&str) -> bool,
) -> Result<(Option<String>, String)> {
    match &parts_of(text)[..] {
        [database, _, _] if !is_own_database(database) => Err(other_database(text)),
        [_, _, _, _, ..] => {
            let message = format!("improper relation name (too many dotted names): {text}");
            Err(SqlError::new(sqlstate::SYNTAX_ERROR, message))
        }
        _ => Ok(split_name(text)),
    }
}

/// The error of a reference to another database.
pub(crate) fn other_database(name: &str) -> SqlError {
    let message = format!("cross-database references are not implemented: \"{name}\"");
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).named(name)
}

/// The parts of a name in a text, at least one.
fn parts_of(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let (mut part, mut quoted) = (String::new(), false);
    let mut notifications = text.trim().chars().peekable();
    while let Some(letter) = notifications.next() {
        match letter {
            '"' if quoted && notifications.peek() == Some(&'"') => {
                notifications.next();
                part.push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            _ if quoted => part.push(letter),
            _ => part.extend(letter.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

/// The names of a list, for example `"$user", public`; `None` if the text is no such list.
pub(crate) fn split_list(text: &str) -> Option<Vec<String>> {
    let (mut rest, mut names) = (text.trim(), Vec::new());
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        let (name, behind) = first_name(rest)?;
        names.push(name);
        rest = behind.trim_start();
        if rest.is_empty() {
            return Some(names);
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// The first name of a text, and the rest.
fn first_name(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == ',' || c == '"' || c.is_whitespace()).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_ascii_lowercase(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        let Some(more) = rest.strip_prefix('"') else { return Some((name, rest)) };
        name.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_are_split() {
        assert_eq!(split_list(r#" A , "B ""c""", $user"#).unwrap(), ["a", "B \"c\"", "$user"]);
        assert_eq!(split_list("").unwrap(), [""; 0]);
        assert_eq!(split_list("\"\"").unwrap(), [""]);
        for wrong in ["a,", "a b", ",a", "a, \"", "a\"b\""] {
            assert_eq!(split_list(wrong), None, "{wrong}");
        }
    }
}
