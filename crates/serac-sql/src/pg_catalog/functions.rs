//! The functions that clients ask about the system with, row by row: their arguments are few and
//! their rows are objects.

use super::definitions::{self, relation_of};
use super::fixed::{self, database_oid};
use super::image::{Object, PG_CLASS, PG_DATABASE, PG_NAMESPACE, Relation};
use super::layout::list_of;
use super::relations::{PAGE_BYTES, pages_of, size};
use super::routines;
use super::system_table;
use crate::error::SqlError;
use crate::identifiers::{quote_ident, split_name};
use crate::pg_catalog::scope::Scope;
use crate::session_env::SessionEnv;
use crate::setting_values::unrecognized;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::catalog::{MemTable, TableFunction, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use serac_engine::catalog::function::{FunctionColumn, FunctionDefinition};
use serac_engine::json;
use serac_engine::security::{self, Privilege, RoleId};
use serac_numeric::Numeric;
use serac_pg::functions as registry;
use serac_values::type_names;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The arguments of one row.
struct Row<'r>(&'r [ScalarValue]);

impl Row<'_> {
    fn has_null(&self) -> bool {
        self.0.iter().any(ScalarValue::is_null)
    }

    fn get(&self, i: usize) -> Option<&ScalarValue> {
        self.0.get(i).filter(|value| !value.is_null())
    }

    fn text(&self, i: usize) -> Option<String> {
        let value = self.get(i)?;
        match value.try_as_str() {
            Some(text) => text.map(str::to_owned),
            None => Some(value.to_string()),
        }
    }

    /// A value as results are written.
    fn told(&self, i: usize) -> Result<Option<String>, SqlError> {
        let Some(value) = self.get(i) else { return Ok(None) };
        if let Some(text) = value.try_as_str() {
            return Ok(text.map(str::to_owned));
        }
        let texts = crate::wire::as_told(&value.to_array()?, &DataType::Utf8View)?;
        let text = ScalarValue::try_from_array(&texts, 0)?;
        Ok(text.try_as_str().flatten().map(str::to_owned))
    }

    fn int(&self, i: usize) -> Option<i64> {
        let value = self.get(i)?;
        match value.try_as_str() {
            Some(text) => text?.trim().parse().ok(),
            None => value.cast_to(&DataType::Int64).ok().and_then(|v| match v {
                ScalarValue::Int64(v) => v,
                _ => None,
            }),
        }
    }

    /// A whole number, or a NUMERIC in either form.
    fn numeric(&self, i: usize) -> Result<Option<Numeric>, SqlError> {
        Ok(match self.get(i) {
            Some(ScalarValue::LargeBinary(Some(stored))) => Some(Numeric::of_stored(stored)?),
            Some(ScalarValue::Decimal128(Some(unscaled), _, scale)) => Some(Numeric::of_decimal(*unscaled, *scale)),
            _ => self.int(i).map(Numeric::from_integer),
        })
    }

    fn oid(&self, i: usize) -> Option<u32> {
        self.int(i).and_then(|oid| u32::try_from(oid).ok())
    }

    fn is_true(&self, i: usize) -> bool {
        matches!(self.get(i), Some(ScalarValue::Boolean(Some(true))))
    }

    /// The elements of an array.
    fn bool(&self, i: usize) -> Option<bool> {
        if let ScalarValue::Boolean(truth) = self.get(i)? { *truth } else { None }
    }

    fn list(&self, i: usize) -> Option<ArrayRef> {
        match self.get(i)? {
            ScalarValue::List(list) => Some(list.value(0)),
            ScalarValue::LargeList(list) => Some(list.value(0)),
            _ => None,
        }
    }

    fn is_vector(&self, i: usize) -> bool {
        matches!(self.0.get(i), Some(ScalarValue::LargeList(_)))
    }

    /// The relation that an argument means: by its number, or by its name.
    fn relation<'s>(&self, i: usize, scope: &Scope<'s>) -> Result<Option<&'s Relation>, SqlError> {
        match (self.oid(i), self.text(i)) {
            (Some(oid), _) => Ok(scope.image.relation(oid)),
            (None, Some(name)) => relation_of(scope, &name),
            (None, None) => Ok(None),
        }
    }
}

type Outcome = Result<ScalarValue, SqlError>;
type Body = fn(&Scope<'_>, &Row<'_>) -> Outcome;

/// The result type of a function.
#[derive(Clone, Copy)]
enum Gives {
    Text,
    Bool,
    Int4,
    Int8,
    Oid,
    Oids,
    Texts,
    Numbers,
    /// The type of the first argument.
    First,
    /// An element of the first argument.
    Element,
    /// Elements of the first argument with their numbers.
    Expanded,
}

fn text(value: impl Into<String>) -> Outcome {
    Ok(ScalarValue::Utf8(Some(value.into())))
}
fn maybe(value: Option<String>) -> Outcome {
    Ok(ScalarValue::Utf8(value))
}
fn nothing(_: &Scope<'_>, _: &Row<'_>) -> Outcome {
    Ok(ScalarValue::Utf8(None))
}
/// The user's comment on an object or a column.
fn comment(scope: &Scope<'_>, place: (u32, u32, i32)) -> Option<String> {
    if let Some(text) = scope.image.comments.get(&place) {
        return Some(text.clone());
    }
    let (PG_CLASS, oid, column) = place else { return None };
    let comments = scope.comments_in_view(oid);
    comments.into_iter().find(|(number, _)| *number == column).map(|(_, text)| text.to_owned())
}
fn yes(_: &Scope<'_>, row: &Row<'_>) -> Outcome {
    Ok(ScalarValue::Boolean(row.get(0).map(|_| true)))
}
fn texts(values: impl IntoIterator<Item = String>) -> Outcome {
    let values: StringArray = values.into_iter().map(Some).collect();
    Ok(SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar())
}

fn no_relation(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")).named(name)
}

/// The number of the object that a text names, or that a number is.
fn registered(scope: &Scope<'_>, kind: &str, row: &Row<'_>, at: usize) -> Result<Option<u32>, SqlError> {
    if row.get(at).is_none() {
        return Ok(None);
    }
    if let Some(oid) = row.oid(at) {
        return Ok(Some(oid));
    }
    let written = row.text(at).unwrap_or_default();
    if written == "-" {
        return Ok(Some(0));
    }
    let missing = |what: &str| {
        SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("{what} \"{written}\" does not exist")).named(&written)
    };
    let found = match kind {
        "regclass" => {
            return relation_of(scope, &written)?.map(|r| Some(r.oid)).ok_or_else(|| no_relation(&written));
        }
        "regtype" => type_names::of_text(&written).ok_or_else(|| {
            let plain = written.trim().trim_end_matches("[]");
            let relation = |name: &str| relation_of(scope, name).ok().flatten();
            let of_rows = relation(plain).or_else(|| plain.strip_prefix('_').and_then(relation));
            match of_rows {
                Some(_) => SqlError::unsupported(format!("the type of the rows of relation \"{plain}\"")),
                None => missing("type"),
            }
        }),
        "regnamespace" => {
            let name = split_name(&written).1;
            let found = scope.image.namespaces.iter().find(|namespace| namespace.name == name);
            found.map(|n| n.oid).ok_or_else(|| {
                SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
            })
        }
        "regrole" => scope.role_named(&split_name(&written).1).ok_or_else(|| missing("role")),
        "regcollation" => {
            let name = split_name(&written).1;
            let found = fixed::COLLATIONS.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(&name));
            found.map(|(oid, ..)| *oid).ok_or_else(|| missing("collation"))
        }
        "regproc" => function_named(scope, &written),
        _ => Err(missing("object")),
    };
    found.map(Some)
}

/// The function that a name means; users' functions come before others.
fn function_named(scope: &Scope<'_>, written: &str) -> Result<u32, SqlError> {
    let name = split_name(written).1;
    if fixed::made_functions(scope).iter().any(|function| function.name == name) {
        return Ok(fixed::made_function_oid(&name));
    }
    let mut numbers = registry::numbers_of(&name);
    let missing =
        || SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function \"{written}\" does not exist")).named(written);
    let number = numbers.next().ok_or_else(missing)?;
    match numbers.all(|other| other == number) {
        true => Ok(number),
        false => {
            Err(SqlError::new(sqlstate::AMBIGUOUS_FUNCTION, format!("more than one function named \"{written}\""))
                .named(written))
        }
    }
}

/// The name of an object, as the type of its number writes it.
fn registered_name(scope: &Scope<'_>, kind: &str, oid: u32) -> String {
    let name = match kind {
        "regclass" => scope.image.relation(oid).map(|relation| definitions::relation_name(scope.image, relation)),
        "regtype" => type_names::find(oid).map(|_| type_names::format(oid, None)),
        "regnamespace" => scope.image.namespace(oid).map(|namespace| quote_ident(&namespace.name)),
        "regrole" => scope.role_name(oid).map(|name| quote_ident(&name)),
        "regcollation" => {
            let found = fixed::COLLATIONS.iter().find(|(known, ..)| *known == oid);
            found.map(|(_, name, _)| quote_ident(name))
        }
        "regproc" => made_function(scope, oid).map(|made| quote_ident(&made.name)).or_else(|| routines::name_of(oid)),
        _ => None,
    };
    name.unwrap_or_else(|| if oid == 0 { "-".into() } else { oid.to_string() })
}

fn to_registered(scope: &Scope<'_>, kind: &str, row: &Row<'_>) -> Outcome {
    match registered(scope, kind, row, 0) {
        // Another database, or too many parts.
        Err(error) if kind == "regclass" && error.sqlstate != sqlstate::UNDEFINED_TABLE => Err(error),
        found => Ok(ScalarValue::UInt32(found.unwrap_or(None))),
    }
}

/// The object of a privilege function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Table,
    Sequence,
    /// A column of a table, which is an argument of its own.
    Column,
    AnyColumn,
    Schema,
    Database,
}

impl Asked {
    /// The privileges on objects of this kind.
    fn privileges(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "RULE"],
            Self::Sequence => &["SELECT", "UPDATE", "USAGE"],
            Self::Column | Self::AnyColumn => &["SELECT", "INSERT", "UPDATE", "REFERENCES"],
            Self::Schema => &["CREATE", "USAGE"],
            Self::Database => &["CREATE", "TEMPORARY", "TEMP", "CONNECT"],
        }
    }
}

/// A privilege as functions name it, and whether it is about granting it.
fn privilege_of(asked: Asked, told: &str) -> Result<(String, bool), SqlError> {
    let upper = told.trim().to_uppercase();
    let (name, grants) = match upper.strip_suffix(" WITH GRANT OPTION") {
        Some(name) => (name.trim_end(), true),
        None => (upper.as_str(), false),
    };
    match asked.privileges().contains(&name) {
        true => Ok((name.to_owned(), grants)),
        false => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("unrecognized privilege type: \"{}\"", told.trim()),
        )),
    }
}

/// The role that an argument means, by its name or its number; `None` for a NULL.
fn role_of(scope: &Scope<'_>, row: &Row<'_>, at: usize) -> Result<Option<RoleId>, SqlError> {
    Ok(match (row.oid(at), row.text(at)) {
        (Some(number), _) => Some(RoleId(number)),
        (None, Some(role)) => match scope.role_named(&role) {
            Some(number) => Some(RoleId(number)),
            None => Some(scope.access.security().role_named(&role)?.id),
        },
        (None, None) => None,
    })
}

/// Whether a role, by default the current user, has one of the privileges in a list.
fn has_privilege(scope: &Scope<'_>, row: &Row<'_>, asked: Asked) -> Outcome {
    let unknown = Ok(ScalarValue::Boolean(None));
    let others = usize::from(asked == Asked::Column);
    let at = row.0.len().saturating_sub(2 + others);
    let (Some(name), Some(wanted)) = (row.text(at), row.text(row.0.len().saturating_sub(1))) else {
        return unknown;
    };
    let access = match at {
        0 => scope.access.clone(),
        _ => match role_of(scope, row, 0)? {
            Some(role) => scope.access.of(role),
            None => return unknown,
        },
    };
    let wanted = wanted.split(',').map(|told| privilege_of(asked, told)).collect::<Result<Vec<_>, _>>()?;
    let number = row.oid(at);
    let (mut relation, mut column) = (None, None);
    let object = match asked {
        Asked::Schema => {
            let found = scope.image.namespaces.iter().find(|n| number.map_or(n.name == name, |oid| n.oid == oid));
            let missing = || SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"));
            match found {
                Some(found) => security::Object::Schema(found.name.clone()),
                // For a number that no object has, the answer is unknown.
                None if number.is_some() => return unknown,
                None => return Err(missing()),
            }
        }
        Asked::Database => match number {
            Some(number) if number != fixed::database_oid(scope) => return unknown,
            None if name != scope.database() => {
                return Err(SqlError::new(
                    sqlstate::INVALID_CATALOG_NAME,
                    format!("database \"{name}\" does not exist"),
                ));
            }
            _ => security::Object::Database,
        },
        _ => {
            relation = row.relation(at, scope)?;
            match relation {
                Some(relation) => security::Object::relation(&relation.schema, &relation.name),
                None if number.is_some() => return unknown,
                None => return Err(no_relation(&name)),
            }
        }
    };
    if let (Asked::Column, Some(relation)) = (asked, relation) {
        let attributes = scope.attributes(relation);
        column = match (row.get(at + 1), row.int(at + 1)) {
            (None, _) => return unknown,
            (Some(value), Some(number)) if value.try_as_str().is_none() => {
                let place = usize::try_from(number - 1).ok();
                match place.and_then(|place| attributes.get(place)) {
                    Some(attribute) => Some(attribute.name.clone()),
                    None => return unknown,
                }
            }
            _ => {
                let told = row.text(at + 1).unwrap_or_default();
                if !attributes.iter().any(|attribute| attribute.name == told) {
                    return Err(SqlError::no_column(&told, &relation.name));
                }
                Some(told)
            }
        };
    }
    let is_system = match (&object, relation) {
        (_, Some(relation)) => relation.is_system(),
        (security::Object::Schema(name), _) => crate::identifiers::is_system_schema(name),
        _ => false,
    };
    let columns = || match relation {
        Some(relation) => scope.attributes(relation).into_iter().map(|attribute| attribute.name).collect(),
        None => Vec::new(),
    };
    let has = |(name, grants): &(String, bool)| {
        let privilege = match name.as_str() {
            // An obsolete privilege of PostgreSQL.
            "RULE" => return false,
            "TRIGGER" if is_system => return access.is_superuser(),
            "TRIGGER" => return access.owns(&object),
            name => Privilege::of_name(name).expect("it is one of those that there are"),
        };
        if is_system {
            let guard = relation.and_then(|relation| system_table::guard(&relation.name));
            let reads = matches!(privilege, Privilege::Select | Privilege::Usage) && !grants;
            return access.is_superuser() || reads && guard.is_none_or(|guard| access.has_privileges_of(guard));
        }
        let may = |column: Option<&str>| match (grants, column) {
            (true, column) => access.may_grant(&object, column, privilege),
            (false, Some(column)) => access.may_column(&object, column, privilege),
            (false, None) => access.may(&object, privilege),
        };
        may(column.as_deref()) || asked == Asked::AnyColumn && columns().iter().any(|column: &String| may(Some(column)))
    };
    Ok(ScalarValue::Boolean(Some(wanted.iter().any(has))))
}

/// Whether a role, by default the current user, is a member of another. USAGE: it has the other's
/// privileges. MEMBER: it may SET ROLE to it. WITH ADMIN OPTION: it may make others members.
fn has_role(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    let at = row.0.len().saturating_sub(2);
    let Some(wanted) = row.text(at + 1) else { return Ok(ScalarValue::Boolean(None)) };
    let member = if at == 0 { Some(scope.access.role()) } else { role_of(scope, row, 0)? };
    let (Some(member), Some(role)) = (member, role_of(scope, row, at)?) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let security = scope.access.security();
    let is_admin = || {
        let gives = |of: &security::Role| of.member_of.iter().any(|m| m.role == role && m.admin);
        security.is_superuser(member) || security.roles().any(|of| gives(of) && security.is_member(member, of.id))
    };
    let mut any = false;
    for told in wanted.split(',') {
        let upper = told.trim().to_uppercase();
        let plain = [" WITH GRANT OPTION", " WITH ADMIN OPTION"].iter().find_map(|suffix| upper.strip_suffix(suffix));
        any |= match (plain.unwrap_or(&upper), plain.is_some()) {
            ("USAGE" | "MEMBER", true) => is_admin(),
            ("USAGE", false) => security.is_superuser(member) || security.inherited(member).contains(&role),
            ("MEMBER", false) => security.is_member(member, role),
            _ => {
                let message = format!("unrecognized privilege type: \"{}\"", told.trim());
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        };
    }
    Ok(ScalarValue::Boolean(Some(any)))
}

/// Bytes of a table's pages.
fn bytes_of_pages(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    told_of(scope, row, |relation| pages_of(relation) * PAGE_BYTES)
}

/// Bytes of a table.
fn bytes_of(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    told_of(scope, row, |relation| size(relation).1)
}

/// A number of bytes that is told of a relation.
fn told_of(scope: &Scope<'_>, row: &Row<'_>, bytes: impl Fn(&Relation) -> u64) -> Outcome {
    if row.get(0).is_none() {
        return Ok(ScalarValue::Int64(None));
    }
    match (row.relation(0, scope)?, row.oid(0)) {
        (Some(relation), _) => Ok(ScalarValue::Int64(Some(bytes(relation) as i64))),
        (None, Some(_)) => Ok(ScalarValue::Int64(None)),
        (None, None) => Err(no_relation(&row.text(0).unwrap_or_default())),
    }
}
fn index_bytes(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    let bytes = row.relation(0, scope)?.map(|relation| match &relation.object {
        Object::Table(table) => table.bitmaps.iter().map(|index| index.entries.statistics().bytes as i64).sum(),
        _ => 0i64,
    });
    Ok(ScalarValue::Int64(bytes))
}

/// Bytes in the largest unit in which they are ten thousand at the most, as PostgreSQL rounds them.
fn pretty(bytes: &Numeric) -> Result<String, SqlError> {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let is_below = |size: &Numeric, limit: i64| size.absolute() < Numeric::from_integer(limit);
    if is_below(bytes, 10_240) {
        return Ok(format!("{bytes} bytes"));
    }
    // With an additional binary digit, by which it is rounded.
    let mut halves = bytes.divided_whole(&Numeric::from_integer(512))?;
    for unit in UNITS {
        if is_below(&halves, 20_480 - 1) || unit == "PB" {
            let rounded = halves.plus(&halves.sign())?.divided_whole(&Numeric::from_integer(2))?;
            return Ok(format!("{rounded} {unit}"));
        }
        halves = halves.divided_whole(&Numeric::from_integer(1_024))?;
    }
    unreachable!("the last unit takes all")
}

/// `%s`, `%I` and `%L` of a text with values: `%1$s` takes the first of these, `%-10s` and `%*s`
/// fill up with blanks.
fn formatted(row: &Row<'_>) -> Outcome {
    let Some(pattern) = row.text(0) else { return maybe(None) };
    let wrong = |message: &str| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    let unterminated =
        || wrong("unterminated format() type specifier").explained("A single \"%\" is written as \"%%\".");
    let (mut out, mut last) = (String::new(), 0);
    let mut notifications = pattern.chars().peekable();
    let number = |notifications: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<usize>, SqlError> {
        let mut digits = String::new();
        while let Some(digit) = notifications.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        match digits.parse::<i32>() {
            _ if digits.is_empty() => Ok(None),
            Ok(number) => Ok(Some(number as usize)),
            Err(_) => Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range")),
        }
    };
    // The numbered value, or the next one.
    let mut taken = |place: Option<usize>| {
        let place = place.unwrap_or(last + 1);
        match place {
            0 => Err(wrong("format specifies argument 0, but arguments are numbered from 1")),
            place if place >= row.0.len() => Err(wrong("too few arguments for format()")),
            place => {
                last = place;
                Ok(place)
            }
        }
    };
    while let Some(letter) = notifications.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        if notifications.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let (mut place, mut width) = (None, number(&mut notifications)?);
        if width.is_some() && notifications.next_if_eq(&'$').is_some() {
            (place, width) = (width, None);
        }
        let mut to_left = false;
        if width.is_none() {
            while notifications.next_if_eq(&'-').is_some() {
                to_left = true;
            }
            width = number(&mut notifications)?;
            if notifications.next_if_eq(&'*').is_some() {
                let of_width = number(&mut notifications)?;
                if of_width.is_some() && notifications.next_if_eq(&'$').is_none() {
                    return Err(wrong("width argument position must be ended by \"$\""));
                }
                let given = row.int(taken(of_width)?).unwrap_or(0);
                to_left |= given < 0;
                width = Some(given.unsigned_abs() as usize);
            }
        }
        let kind = notifications.next().ok_or_else(unterminated)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(wrong(&format!("unrecognized format() type specifier \"{kind}\""))
                .explained("A single \"%\" is written as \"%%\"."));
        }
        let value = row.told(taken(place)?)?;
        let text = match kind {
            's' => value.unwrap_or_default(),
            'I' => {
                let null = || {
                    SqlError::new(
                        sqlstate::NULL_VALUE_NOT_ALLOWED,
                        "null values cannot be formatted as an SQL identifier",
                    )
                };
                quote_ident(&value.ok_or_else(null)?)
            }
            _ => value.map_or("NULL".into(), |value| quote_literal(&value)),
        };
        let blanks = width.unwrap_or(0).saturating_sub(text.chars().count());
        if blanks > MOST_BLANKS {
            return Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "the width of a value in format() is too large",
            ));
        }
        if to_left {
            out.push_str(&text);
        }
        out.extend(std::iter::repeat_n(' ', blanks));
        if !to_left {
            out.push_str(&text);
        }
    }
    text(out)
}

/// Blanks that `format` puts beside a value.
const MOST_BLANKS: usize = 1 << 20;

/// A text as a constant; a backslash makes it an escape constant.
fn quote_literal(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// A value as a text constant: as a cast to TEXT writes it.
fn quoted(row: &Row<'_>) -> Result<Option<String>, SqlError> {
    let text = match row.get(0) {
        Some(ScalarValue::Boolean(Some(value))) => Some(value.to_string()),
        _ => row.told(0)?,
    };
    Ok(text.map(|text| quote_literal(&text)))
}

/// An element of an array, counted from 1, or of a vector, counted from 0; or a part of a document.
fn element(row: &Row<'_>) -> Result<Option<ScalarValue>, SqlError> {
    if let Some(ScalarValue::LargeUtf8(Some(document))) = row.get(0) {
        let part = match row.get(1).and_then(ScalarValue::try_as_str) {
            Some(key) => key.and_then(|key| json::member(document, key)),
            None => row.int(1).and_then(|number| json::element(document, number)),
        };
        return Ok(Some(ScalarValue::LargeUtf8(part.map(str::to_owned))));
    }
    let (Some(list), Some(number)) = (row.list(0), row.int(1)) else { return Ok(None) };
    let at = if row.is_vector(0) { number } else { number - 1 };
    match usize::try_from(at).ok().filter(|at| *at < list.len()) {
        Some(at) => Ok(Some(ScalarValue::try_from_array(&list, at)?)),
        None => Ok(None),
    }
}
/// The number of elements that an array has in a dimension; `None` if it lacks the dimension.
fn length_of(list: &ArrayRef, dimension: i64) -> Option<i32> {
    match dimension {
        1 => i32::try_from(list.len()).ok(),
        2.. if !list.is_empty() => length_of(&list.as_list_opt::<i32>()?.value(0), dimension - 1),
        _ => None,
    }
}

fn numbers(values: impl Iterator<Item = i32>) -> Outcome {
    let values: datafusion::arrow::array::Int32Array = values.map(Some).collect();
    Ok(SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar())
}

const EXPANDED: [&str; 2] = ["x", "n"];

fn expanded(row: &Row<'_>) -> Outcome {
    let list = row.list(0).unwrap_or_else(|| new_empty_array(&DataType::Int16));
    let positions: datafusion::arrow::array::Int32Array = (1..=list.len() as i32).map(Some).collect();
    let field = |name: &str, array: &dyn Array| Field::new(name, array.data_type().clone(), true);
    let fields = Fields::from(vec![field(EXPANDED[0], &list), field(EXPANDED[1], &positions)]);
    let pairs = datafusion::arrow::array::StructArray::new(fields, vec![list, Arc::new(positions)], None);
    Ok(SingleRowListArrayBuilder::new(Arc::new(pairs)).build_list_scalar())
}

fn setting(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    // Strict, as most functions are.
    let Some(name) = row.text(0).filter(|_| !row.has_null()) else { return maybe(None) };
    let lower = name.to_lowercase();
    match scope.shared.setting(&lower).or_else(|| scope.shared.engine_setting(&lower)) {
        Some(value) => text(value),
        None if row.is_true(1) => maybe(None),
        None => Err(unrecognized(&name)),
    }
}
/// The schemas that unqualified names are looked up in.
fn search_path(scope: &Scope<'_>, implicit: bool) -> Vec<String> {
    let path = scope.shared.view().map(|view| view.path.to_vec()).unwrap_or_default();
    implicit.then(|| crate::identifiers::CATALOG_SCHEMA.to_owned()).into_iter().chain(path).collect()
}
fn set_config(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    let name =
        row.text(0).ok_or_else(|| SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "SET requires parameter name"))?;
    let value = row.text(1);
    text(scope.shared.set_config(&name.to_lowercase(), value.as_deref(), row.is_true(2))?)
}

fn definition(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    let constraint = row.oid(0).and_then(|oid| scope.image.constraint(oid));
    maybe(constraint.map(|constraint| {
        let definition = definitions::constraint(scope.image, constraint);
        // Written for people, a check has one pair of parentheses.
        match definition.strip_prefix("CHECK ((").and_then(|rest| rest.strip_suffix("))")) {
            Some(check) if row.is_true(1) => format!("CHECK ({check})"),
            _ => definition,
        }
    }))
}

/// The parameters of a function.
fn arguments_of_function(scope: &Scope<'_>, row: &Row<'_>) -> Outcome {
    let Some(oid) = row.oid(0) else { return maybe(None) };
    let made = made_function(scope, oid).map(|function| columns_text(&function.parameters));
    maybe(made.or_else(|| registry::of_number(oid).map(registry::Function::arguments_text)))
}

const FUNCTIONS: &[(&str, Gives, Body)] = &[
    ("format_type", Gives::Text, |_, row| {
        maybe(
            row.oid(0).map(|oid| type_names::format(oid, row.int(1).and_then(|modifier| i32::try_from(modifier).ok()))),
        )
    }),
    ("pg_get_indexdef", Gives::Text, |scope, row| {
        let column = row.int(1).and_then(|column| usize::try_from(column).ok()).unwrap_or(0);
        maybe(row.oid(0).and_then(|oid| definitions::index(scope.image, oid, column)))
    }),
    ("pg_get_constraintdef", Gives::Text, definition),
    ("pg_get_expr", Gives::Text, |_, row| maybe(row.text(0))),
    ("pg_get_viewdef", Gives::Text, |scope, row| {
        maybe(row.relation(0, scope)?.and_then(|relation| definitions::view(scope.image, relation.oid)))
    }),
    ("pg_get_ruledef", Gives::Text, nothing),
    ("pg_get_triggerdef", Gives::Text, nothing),
    ("pg_get_functiondef", Gives::Text, nothing),
    ("pg_get_partkeydef", Gives::Text, nothing),
    ("pg_get_statisticsobjdef", Gives::Text, nothing),
    ("pg_get_statisticsobjdef_columns", Gives::Text, nothing),
    ("pg_get_function_result", Gives::Text, |scope, row| {
        let Some(oid) = row.oid(0) else { return maybe(None) };
        let made = made_function(scope, oid).map(|function| format!("TABLE({})", columns_text(&function.returns)));
        maybe(made.or_else(|| registry::of_number(oid).map(registry::Function::result_text)))
    }),
    ("pg_get_function_arguments", Gives::Text, arguments_of_function),
    ("pg_get_function_identity_arguments", Gives::Text, arguments_of_function),
    ("pg_get_function_arg_default", Gives::Text, nothing),
    ("pg_get_userbyid", Gives::Text, |scope, row| {
        maybe(row.oid(0).map(|oid| scope.role_name(oid).unwrap_or_else(|| format!("unknown (OID={oid})"))))
    }),
    ("pg_get_serial_sequence", Gives::Text, |scope, row| {
        let (Some(name), Some(column)) = (row.text(0), row.text(1)) else { return maybe(None) };
        let table = relation_of(scope, &name)?.ok_or_else(|| no_relation(&name))?;
        if !scope.attributes(table).iter().any(|attribute| attribute.name == column) {
            return Err(SqlError::no_column(&column, &table.name));
        }
        maybe(definitions::owned_sequence(scope.image, table, &column))
    }),
    ("pg_table_is_visible", Gives::Bool, |scope, row| {
        let relation = row.oid(0).and_then(|oid| scope.image.relation(oid));
        Ok(ScalarValue::Boolean(relation.map(|relation| scope.image.is_visible(relation))))
    }),
    ("pg_type_is_visible", Gives::Bool, yes),
    ("pg_function_is_visible", Gives::Bool, yes),
    ("pg_operator_is_visible", Gives::Bool, yes),
    ("pg_opclass_is_visible", Gives::Bool, yes),
    ("pg_opfamily_is_visible", Gives::Bool, yes),
    ("pg_collation_is_visible", Gives::Bool, yes),
    ("pg_conversion_is_visible", Gives::Bool, yes),
    ("pg_statistics_obj_is_visible", Gives::Bool, yes),
    ("pg_ts_config_is_visible", Gives::Bool, yes),
    ("pg_ts_dict_is_visible", Gives::Bool, yes),
    ("pg_ts_parser_is_visible", Gives::Bool, yes),
    ("pg_ts_template_is_visible", Gives::Bool, yes),
    ("has_table_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::Table)),
    ("has_any_column_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::AnyColumn)),
    ("has_column_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::Column)),
    ("has_sequence_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::Sequence)),
    ("has_schema_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::Schema)),
    ("has_database_privilege", Gives::Bool, |scope, row| has_privilege(scope, row, Asked::Database)),
    ("has_function_privilege", Gives::Bool, yes),
    ("has_type_privilege", Gives::Bool, yes),
    ("has_language_privilege", Gives::Bool, yes),
    ("has_tablespace_privilege", Gives::Bool, yes),
    ("has_server_privilege", Gives::Bool, yes),
    ("has_foreign_data_wrapper_privilege", Gives::Bool, yes),
    ("pg_has_role", Gives::Bool, has_role),
    ("pg_relation_is_publishable", Gives::Bool, |_, row| Ok(ScalarValue::Boolean(row.get(0).map(|_| false)))),
    ("pg_is_other_temp_schema", Gives::Bool, |_, row| Ok(ScalarValue::Boolean(row.get(0).map(|_| false)))),
    ("pg_my_temp_schema", Gives::Oid, |scope, _| {
        let temporary = scope.image.namespaces.iter().find(|n| n.name == crate::identifiers::TEMPORARY_SCHEMA);
        Ok(ScalarValue::UInt32(Some(temporary.map_or(0, |namespace| namespace.oid))))
    }),
    ("current_schemas", Gives::Texts, |scope, row| texts(search_path(scope, row.is_true(0)))),
    ("obj_description", Gives::Text, |scope, row| {
        // Without a table's name, any object with the number.
        let classes = match row.text(1).as_deref() {
            Some("pg_class") => &[PG_CLASS][..],
            Some("pg_namespace") => &[PG_NAMESPACE],
            Some(class) => {
                return maybe(row.oid(0).and_then(|oid| routines::description(class, oid)).map(str::to_owned));
            }
            None => &[PG_CLASS, PG_NAMESPACE],
        };
        maybe(classes.iter().find_map(|class| comment(scope, (*class, row.oid(0)?, 0))))
    }),
    ("col_description", Gives::Text, |scope, row| {
        let column = row.int(1).and_then(|column| i32::try_from(column).ok());
        maybe(row.oid(0).zip(column).and_then(|(oid, column)| comment(scope, (PG_CLASS, oid, column))))
    }),
    ("shobj_description", Gives::Text, |scope, row| {
        let is_ours = row.oid(0) == Some(database_oid(scope)) && row.text(1).as_deref() == Some("pg_database");
        maybe(if is_ours { comment(scope, (PG_DATABASE, 0, 0)) } else { None })
    }),
    ("pg_encoding_to_char", Gives::Text, |_, row| {
        maybe(row.int(0).map(|number| if number == 6 { "UTF8".into() } else { String::new() }))
    }),
    ("pg_char_to_encoding", Gives::Int4, |_, row| {
        let number = |name: String| if name.to_lowercase().replace(['-', '_'], "") == "utf8" { 6 } else { -1 };
        Ok(ScalarValue::Int32(row.text(0).map(number)))
    }),
    ("pg_client_encoding", Gives::Text, |_, _| text("UTF8")),
    ("getdatabaseencoding", Gives::Text, |_, _| text("UTF8")),
    // It is not counted how often an index is used, and a session does not know where the server
    // listens.
    ("pg_stat_get_numscans", Gives::Int8, |_, _| Ok(ScalarValue::Int64(None))),
    ("inet_server_addr", Gives::Text, nothing),
    ("inet_server_port", Gives::Int4, |_, _| Ok(ScalarValue::Int32(None))),
    ("pg_relation_size", Gives::Int8, bytes_of_pages),
    ("pg_table_size", Gives::Int8, bytes_of),
    ("pg_indexes_size", Gives::Int8, index_bytes),
    ("pg_total_relation_size", Gives::Int8, |scope, row| match (bytes_of(scope, row)?, index_bytes(scope, row)?) {
        (ScalarValue::Int64(Some(table)), ScalarValue::Int64(Some(indexes))) => {
            Ok(ScalarValue::Int64(Some(table + indexes)))
        }
        (table, _) => Ok(table),
    }),
    ("pg_database_size", Gives::Int8, |scope, _| {
        let bytes = scope.image.relations.iter().map(|relation| size(relation).1 as i64).sum();
        Ok(ScalarValue::Int64(Some(bytes)))
    }),
    ("pg_size_pretty", Gives::Text, |_, row| maybe(row.numeric(0)?.as_ref().map(pretty).transpose()?)),
    ("pg_tablespace_location", Gives::Text, |_, row| maybe(row.get(0).map(|_| String::new()))),
    ("quote_ident", Gives::Text, |_, row| maybe(row.text(0).map(|name| quote_ident(&name)))),
    ("quote_literal", Gives::Text, |_, row| maybe(quoted(row)?)),
    ("quote_nullable", Gives::Text, |_, row| text(quoted(row)?.unwrap_or_else(|| "NULL".into()))),
    ("format", Gives::Text, |_, row| formatted(row)),
    ("txid_current", Gives::Int8, |scope, _| {
        let view = scope.shared.view();
        Ok(ScalarValue::Int64(view.map(|view| view.transaction as i64)))
    }),
    ("pg_listening_channels", Gives::Texts, |scope, _| texts(scope.shared.listener.names())),
    ("current_setting", Gives::Text, setting),
    ("set_config", Gives::Text, set_config),
    ("to_regclass", Gives::Oid, |scope, row| to_registered(scope, "regclass", row)),
    ("to_regtype", Gives::Oid, |scope, row| to_registered(scope, "regtype", row)),
    ("to_regnamespace", Gives::Oid, |scope, row| to_registered(scope, "regnamespace", row)),
    ("to_regrole", Gives::Oid, |scope, row| to_registered(scope, "regrole", row)),
    ("pg_partition_ancestors", Gives::Oids, |_, _| {
        let none = new_empty_array(&DataType::UInt32);
        Ok(SingleRowListArrayBuilder::new(none).build_list_scalar())
    }),
    ("array_upper", Gives::Int4, |_, row| {
        let length = row.list(0).zip(row.int(1)).and_then(|(list, dimension)| length_of(&list, dimension));
        let length = length.filter(|length| *length > 0);
        Ok(ScalarValue::Int32(length.map(|length| if row.is_vector(0) { length - 1 } else { length })))
    }),
    ("array_lower", Gives::Int4, |_, row| {
        let length = row.list(0).zip(row.int(1)).and_then(|(list, dimension)| length_of(&list, dimension));
        let any = length.filter(|length| *length > 0);
        Ok(ScalarValue::Int32(any.map(|_| if row.is_vector(0) { 0 } else { 1 })))
    }),
    ("generate_subscripts", Gives::Numbers, |_, row| {
        let (dimension, is_reversed) = (row.int(1), if row.0.len() > 2 { row.bool(2) } else { Some(false) });
        let (Some(dimension), Some(is_reversed)) = (dimension, is_reversed) else { return numbers(0..0) };
        let length = row.list(0).and_then(|list| length_of(&list, dimension)).unwrap_or(0);
        match (row.is_vector(0), is_reversed) {
            (true, false) => numbers(0..length),
            (true, true) => numbers((0..length).rev()),
            (false, false) => numbers(1..=length),
            (false, true) => numbers((1..=length).rev()),
        }
    }),
    ("_pg_expandarray", Gives::Expanded, |_, row| expanded(row)),
    // Functions that the binder calls for casts and subscripts.
    ("pg_array", Gives::First, |_, row| {
        // ARRAY(…) of no rows is an empty array.
        Ok(match row.0.first() {
            Some(ScalarValue::List(list)) if list.is_null(0) => {
                SingleRowListArrayBuilder::new(new_empty_array(&list.value_type())).build_list_scalar()
            }
            other => other.cloned().unwrap_or(ScalarValue::Null),
        })
    }),
    ("pg_element", Gives::Element, |_, row| Ok(element(row)?.unwrap_or(ScalarValue::Null))),
    ("pg_reg_oid", Gives::Oid, |scope, row| {
        let kind = row.text(0).unwrap_or_default();
        Ok(ScalarValue::UInt32(registered(scope, &kind, row, 1)?))
    }),
    ("pg_reg_text", Gives::Text, |scope, row| {
        let kind = row.text(0).unwrap_or_default();
        maybe(registered(scope, &kind, row, 1)?.map(|oid| registered_name(scope, &kind, oid)))
    }),
    ("pg_reg_texts", Gives::Texts, |scope, row| {
        let Some(ScalarValue::List(objects)) = row.get(1) else {
            return Ok(ScalarValue::new_null_list(DataType::Utf8, true, 1));
        };
        let objects = objects.value(0);
        let kind = row.text(0).unwrap_or_default();
        let objects = objects.as_any().downcast_ref::<UInt32Array>();
        let objects =
            objects.ok_or_else(|| SqlError::unsupported("an array of arrays of the names of catalog objects"))?;
        let names = objects.iter().map(|oid| ScalarValue::Utf8(oid.map(|oid| registered_name(scope, &kind, oid))));
        Ok(ScalarValue::List(ScalarValue::new_list_nullable(&names.collect::<Vec<_>>(), &DataType::Utf8)))
    }),
];

struct SystemFunction {
    name: &'static str,
    gives: Gives,
    body: Body,
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl std::fmt::Debug for SystemFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
impl PartialEq for SystemFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.shared, &other.shared)
    }
}
impl Eq for SystemFunction {}
impl Hash for SystemFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    let function = |(name, gives, body): &(&'static str, Gives, Body)| {
        let arguments = vec![TypeSignature::VariadicAny, TypeSignature::Nullary];
        let volatility = if matches!(*name, "set_config" | "pg_listening_channels") {
            Volatility::Volatile
        } else {
            Volatility::Stable
        };
        let signature = Signature::one_of(arguments, volatility);
        ScalarUDF::from(SystemFunction { name, gives: *gives, body: *body, signature, shared: shared.clone() })
    };
    FUNCTIONS.iter().map(function).collect()
}

impl ScalarUDFImpl for SystemFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let element = || match arguments.first() {
            Some(DataType::List(element) | DataType::LargeList(element)) => element.data_type().clone(),
            Some(DataType::LargeUtf8) => DataType::LargeUtf8,
            _ => DataType::Utf8,
        };
        Ok(match self.gives {
            Gives::Text => DataType::Utf8,
            Gives::Bool => DataType::Boolean,
            Gives::Int4 => DataType::Int32,
            Gives::Int8 => DataType::Int64,
            Gives::Oid => DataType::UInt32,
            Gives::Oids => list_of(DataType::UInt32),
            Gives::Texts => list_of(DataType::Utf8),
            Gives::Numbers => list_of(DataType::Int32),
            Gives::First => arguments.first().cloned().unwrap_or(DataType::Null),
            Gives::Element => element(),
            Gives::Expanded => {
                let field = |name: &str, data_type| Field::new(name, data_type, true);
                let fields = vec![field(EXPANDED[0], element()), field(EXPANDED[1], DataType::Int32)];
                list_of(DataType::Struct(Fields::from(fields)))
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let view = self.shared.view().ok_or_else(|| DataFusionError::Internal("there is no transaction".into()))?;
        let scope = Scope::new(&self.shared, &view);
        let wanted = args.return_field.data_type();
        let constant = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        if rows == 0 {
            return Ok(ColumnarValue::Array(new_empty_array(wanted)));
        }
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            let arguments = arrays.iter().map(|a| ScalarValue::try_from_array(a, row)).collect::<Result<Vec<_>>>()?;
            let value = (self.body)(&scope, &Row(&arguments)).map_err(|e| DataFusionError::External(Box::new(e)))?;
            values.push(if value.is_null() { ScalarValue::try_from(wanted)? } else { value });
        }
        Ok(match constant {
            true => ColumnarValue::Scalar(values.swap_remove(0)),
            false => ColumnarValue::Array(ScalarValue::iter_to_array(values)?),
        })
    }
}

/// `pg_get_keywords()`: the words that SQL reserves.
#[derive(Debug)]
struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call(&self, _: &[Expr]) -> Result<Arc<dyn TableProvider>> {
        let words: Vec<&str> = crate::identifiers::RESERVED.split_whitespace().collect();
        let column = |value: &'static str| Arc::new(StringArray::from(vec![value; words.len()])) as ArrayRef;
        let columns = [
            ("word", Arc::new(StringArray::from(words.clone())) as ArrayRef),
            ("catcode", column("R")),
            ("catdesc", column("reserved")),
        ];
        let fields: Vec<Field> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, array)| array).collect())?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}

/// The function of a user that has this number.
fn made_function(scope: &Scope<'_>, oid: u32) -> Option<Arc<FunctionDefinition>> {
    fixed::made_functions(scope).into_iter().find(|function| fixed::made_function_oid(&function.name) == oid)
}

/// Parameters, or columns, with their types.
fn columns_text(columns: &[FunctionColumn]) -> String {
    columns.iter().map(|column| format!("{} {}", column.name, column.sql_type)).collect::<Vec<_>>().join(", ")
}

/// The functions of a session that give tables.
pub(crate) fn table_functions() -> Vec<TableFunction> {
    vec![TableFunction::new("pg_get_keywords".into(), Arc::new(Keywords))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_postgresql_does() {
        let cases = [
            (0_i64, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_752, "11 kB"),
            (20_000_000, "19 MB"),
            (-10_485_247, "-10239 kB"),
            (-1_000_000_000_000, "-931 GB"),
        ];
        for (bytes, pretty_text) in cases {
            assert_eq!(pretty(&Numeric::from_integer(bytes)).unwrap(), pretty_text);
        }
        assert_eq!(pretty(&"10.5".parse().unwrap()).unwrap(), "10.5 bytes");
    }
}
