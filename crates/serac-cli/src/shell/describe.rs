//! `\d`: the columns, indexes and constraints of relations.

mod elsewhere;

use super::Shell;
use crate::output::printable;
use crate::quoting::identifier;
use comfy_table::{Table, presets};
use serac_engine::Catalog;
use serac_engine::catalog::definition::{KeyDefinition, TableDefinition};
use serac_engine::security::Object;
use serac_sql::{Session, StatementResult};

/// A table of texts, one row below the other.
fn shown(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = Table::new();
    out.load_style(presets::UTF8_BORDERS_ONLY);
    out.set_header(header);
    out.add_rows(rows.into_iter().map(|row| row.iter().map(|text| printable(text, true)).collect::<Vec<_>>()));
    format!("{out}\n")
}

/// The columns of an index, those that are expressions included.
fn shown_columns(key: &KeyDefinition, table: &TableDefinition) -> String {
    (0..key.columns.len()).map(|i| key.shown(i, table)).collect::<Vec<_>>().join(", ")
}

fn kind_of(key: &KeyDefinition) -> &'static str {
    match (key.primary, key.unique) {
        (true, _) => "PRIMARY KEY",
        (_, true) => "UNIQUE",
        _ => "index",
    }
}

fn names(columns: &[usize], of: &TableDefinition) -> String {
    columns.iter().map(|&c| of.columns[c].name.clone()).collect::<Vec<_>>().join(", ")
}

/// An index with its columns, as it is written below its table.
fn index_line(key: &KeyDefinition, definition: &TableDefinition) -> String {
    let include = match &key.include[..] {
        [] => String::new(),
        include => format!(" INCLUDE ({})", names(include, definition)),
    };
    let columns = shown_columns(key, definition);
    let condition = key.predicate.as_ref().map_or(String::new(), |text| format!(" WHERE {text}"));
    format!("\"{}\" {} ({columns}){include}{condition}", key.name, kind_of(key))
}

/// The comment on an object, or on a column of it.
fn comment(catalog: &Catalog, schema: &str, name: &str, column: Option<&str>) -> String {
    let object = Object::Relation(schema.into(), name.into());
    let found = catalog.comments.iter().find(|(of, at, _)| **of == object && *at == column);
    found.map_or(String::new(), |(_, _, text)| text.to_owned())
}

impl Shell {
    /// Indexes, schemas or sequences.
    pub(super) fn listed(catalog: &Catalog, command: &str) -> String {
        match command {
            "\\dn" => shown(&["schema"], catalog.schemas.keys().map(|name| vec![name.clone()])),
            "\\di" => {
                let rows = catalog.tables().flat_map(|table| {
                    let definition = &table.definition;
                    let row = |name: &str, method: &str, columns: String, unique: bool| {
                        let unique = if unique { "yes" } else { "no" };
                        vec![name.to_owned(), table.name().to_owned(), method.to_owned(), columns, unique.to_owned()]
                    };
                    let keys = definition.keys.iter();
                    let keys = keys.map(|key| row(&key.name, "btree", shown_columns(key, definition), key.unique));
                    let bitmaps = definition.bitmaps.iter();
                    let bitmaps =
                        bitmaps.map(|bitmap| row(&bitmap.name, "bitmap", names(&[bitmap.column], definition), false));
                    keys.chain(bitmaps).collect::<Vec<_>>()
                });
                shown(&["index", "table", "method", "columns", "unique"], rows)
            }
            _ => {
                let sequences = catalog.schemas.values().flat_map(|s| s.sequences.values());
                let rows = sequences.map(|sequence| {
                    let last = sequence.last().map_or("-".into(), |v| v.to_string());
                    vec![sequence.definition.name.clone(), last]
                });
                shown(&["sequence", "last value"], rows)
            }
        }
    }

    /// Describes a table, view, index or sequence; with `more`, also its comment and its size.
    pub(super) async fn describe(&mut self, name: &str, more: bool) -> Result<String, String> {
        let name = name.trim_end_matches(';');
        let fold = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => quoted.to_owned(),
            None => name.to_lowercase(),
        };
        let (schema, short) = match name.split_once('.') {
            Some((schema, short)) => (fold(schema), fold(short)),
            None => ("public".to_owned(), fold(name)),
        };
        let found = match self.session.here() {
            Some(session) => describe_here(session, &schema, &short, name.contains('.'), more).await?,
            None => elsewhere::describe(&mut self.session, &schema, &short, name.contains('.'), more).await?,
        };
        found.ok_or_else(|| format!("there is no relation \"{name}\""))
    }
}

/// Describes a relation of a database that this process has open; `None` if it does not exist.
async fn describe_here(
    session: &mut Session,
    schema: &str,
    short: &str,
    is_qualified: bool,
    more: bool,
) -> Result<Option<String>, String> {
    let catalog = session.database().catalog();
    let temporary = session.temporary_catalog().filter(|_| schema == "pg_temp" || !is_qualified);
    let temporary = temporary.and_then(|catalog| catalog.table("pg_temp", short).ok().cloned());
    let in_schema = catalog.schemas.get(schema);
    if let Some(table) = temporary.or_else(|| catalog.table(schema, short).ok().cloned()) {
        let mut text = table_text(&catalog, &table.definition, more);
        if more {
            let m = table.data.metrics();
            text.push_str(&format!(
                "{} blocks ({} frozen), {:.1} MB\n",
                m.blocks,
                m.frozen_blocks,
                m.bytes as f64 / 1e6
            ));
        }
        return Ok(Some(text));
    }
    if let Some(table) = in_schema.and_then(|schema| schema.foreign_tables.get(short)) {
        let place = [&table.remote_schema, &table.remote_table].map(|name| printable(name, false));
        let mut text = table_text(&catalog, &table.definition, more);
        text.push_str(&format!("Server: {}, table {}\n", printable(&table.server, false), place.join(".")));
        return Ok(Some(text));
    }
    if let Some(view) = in_schema.and_then(|schema| schema.views.get(short)) {
        let mut text = format!("View \"{schema}.{short}\"\n");
        let columns = format!("DESCRIBE {}.{}", identifier(schema), identifier(short));
        let result = session.execute(&columns).await.map_err(|error| error.to_string())?;
        if let Some(StatementResult::Rows { batches, .. }) = result.into_iter().next() {
            let rows = batches.iter().flat_map(|batch| crate::output::texts(batch, ""));
            let rows = rows.map(|mut row| {
                row.truncate(2);
                if more {
                    row.push(comment(&catalog, schema, short, Some(&row[0])));
                }
                row
            });
            text.push_str(&shown(&["column", "type", "description"][..if more { 3 } else { 2 }], rows));
        }
        let said = comment(&catalog, schema, short, None);
        if more && !said.is_empty() {
            text.push_str(&format!("Description: {}\n", printable(&said, true)));
        }
        return Ok(Some(text + &format!("View definition:\n  {};\n", printable(&view.query, true))));
    }
    if let Some(sequence) = in_schema.and_then(|schema| schema.sequences.get(short)) {
        let d = &sequence.definition;
        let header = ["start", "minimum", "maximum", "increment", "last value"];
        let last = sequence.last().map_or("-".into(), |v| v.to_string());
        let row = [d.start, d.min, d.max, d.increment].map(|number| number.to_string());
        let mut text = format!("Sequence \"{schema}.{short}\"\n");
        text.push_str(&shown(&header, [row.into_iter().chain([last]).collect()]));
        if let Some((table, column)) = &d.owner {
            text.push_str(&format!("Owned by: {table}.{column}\n"));
        }
        return Ok(Some(text));
    }
    for table in in_schema.iter().flat_map(|schema| schema.tables.values()) {
        let definition = &table.definition;
        if let Some(key) = definition.keys.iter().find(|key| key.name == short) {
            let line = index_line(key, definition);
            return Ok(Some(format!("Index \"{schema}.{short}\" on table \"{}\"\n  {line}\n", table.name())));
        }
        if let Some(bitmap) = definition.bitmaps.iter().find(|bitmap| bitmap.name == short) {
            let column = names(&[bitmap.column], definition);
            return Ok(Some(format!(
                "Index \"{schema}.{short}\" on table \"{}\"\n  \"{short}\" index USING bitmap ({column})\n",
                table.name()
            )));
        }
    }
    Ok(None)
}

/// A table: its columns, keys and constraints.
fn table_text(catalog: &Catalog, definition: &TableDefinition, more: bool) -> String {
    let (schema, short) = (&definition.schema, &definition.name);
    let rows = definition.visible_columns().iter().map(|c| {
        let mut row = vec![
            c.name.clone(),
            c.sql_type.to_string(),
            if c.nullable { "" } else { "not null" }.to_owned(),
            match &c.generation {
                Some(expression) => format!("generated always as ({expression}) stored"),
                None => c.default.clone().unwrap_or_default(),
            },
        ];
        if more {
            row.push(comment(catalog, schema, short, Some(&c.name)));
        }
        row
    });
    let header = ["column", "type", "nullable", "default", "description"];
    let is_foreign = catalog.foreign_table(schema, short).is_ok();
    let kind = match definition.materialized.is_some() {
        true => "Materialized view",
        false if is_foreign => "Foreign table",
        false => "Table",
    };
    let mut text = format!("{kind} \"{schema}.{short}\"\n{}", shown(&header[..if more { 5 } else { 4 }], rows));
    for key in &definition.keys {
        text.push_str(&format!("  {}\n", index_line(key, definition)));
    }
    for bitmap in &definition.bitmaps {
        let column = &definition.columns[bitmap.column].name;
        text.push_str(&format!("  \"{}\" index USING bitmap ({column})\n", bitmap.name));
    }
    for check in &definition.checks {
        text.push_str(&format!("  \"{}\" CHECK ({})\n", check.name, check.expression));
    }
    for key in &definition.foreign_keys {
        let columns = names(&key.columns, definition);
        text.push_str(&format!(
            "  \"{}\" FOREIGN KEY ({columns}) REFERENCES {} ON DELETE {} ON UPDATE {}\n",
            key.name, key.parent_table, key.on_delete, key.on_update
        ));
    }
    if definition.freeze_format != Default::default() {
        text.push_str(&format!("  WITH (freeze_format = {})\n", definition.freeze_format));
    }
    if let Some(materialized) = &definition.materialized {
        text.push_str(&format!("View definition:\n  {};\n", materialized.query));
    }
    let said = comment(catalog, schema, short, None);
    if more && !said.is_empty() {
        text.push_str(&format!("Description: {said}\n"));
    }
    printable(&text, true)
}
