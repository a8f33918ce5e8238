//! `\\d NAME` of a database that another process has open: by SQL on the system tables.

use super::shown;
use crate::output::{printable, texts};
use crate::quoting::constant;
use serac_server::folder::FolderSession;

/// The rows of a query, as texts.
async fn rows(session: &mut FolderSession, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let batches = session.query(sql).await.map_err(|failure| failure.to_string())?;
    Ok(batches.iter().flat_map(|batch| texts(batch, "")).collect())
}

/// Describes a relation; `None` if it does not exist.
pub(super) async fn describe(
    session: &mut FolderSession,
    schema: &str,
    short: &str,
    is_qualified: bool,
    more: bool,
) -> Result<Option<String>, String> {
    let mut schemas = constant(schema);
    if !is_qualified {
        schemas.push_str(", 'pg_temp'");
    }
    let found = format!(
        "SELECT c.oid, c.relkind, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relname = {} AND n.nspname IN ({schemas}) ORDER BY n.nspname <> 'pg_temp'",
        constant(short)
    );
    let found = rows(session, &found).await?;
    let Some([oid, kind, schema]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    match kind.as_str() {
        "v" => view(session, oid, schema, short, more).await.map(Some),
        "S" => sequence(session, schema, short).await.map(Some),
        "i" => index(session, schema, short).await.map(Some),
        _ => table(session, oid, kind == "m", schema, short, more).await.map(Some),
    }
}

/// A relation's columns: names, types, nullability, defaults and comments.
async fn columns(session: &mut FolderSession, oid: &str) -> Result<Vec<Vec<String>>, String> {
    let sql = format!(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' ELSE '' END, \
         CASE WHEN a.attgenerated = 's' THEN concat('generated always as (', pg_get_expr(d.adbin, d.adrelid), ') stored') \
         ELSE pg_get_expr(d.adbin, d.adrelid) END, col_description(a.attrelid, a.attnum) \
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    );
    rows(session, &sql).await
}

/// The comment on a relation, as a line.
async fn description(session: &mut FolderSession, oid: &str, more: bool) -> Result<String, String> {
    if !more {
        return Ok(String::new());
    }
    let said = rows(session, &format!("SELECT obj_description({oid}, 'pg_class')")).await?;
    let said = said.into_iter().flatten().next().filter(|said| !said.is_empty());
    Ok(said.map_or(String::new(), |said| format!("Description: {}\n", printable(&said, true))))
}

async fn table(
    session: &mut FolderSession,
    oid: &str,
    is_materialized: bool,
    schema: &str,
    short: &str,
    more: bool,
) -> Result<String, String> {
    let shown_columns = if more { 5 } else { 4 };
    let columns = columns(session, oid).await?.into_iter().map(|mut row| {
        row.truncate(shown_columns);
        row
    });
    let header = ["column", "type", "nullable", "default", "description"];
    let kind = if is_materialized { "Materialized view" } else { "Table" };
    let mut text = format!("{kind} \"{schema}.{short}\"\n{}", shown(&header[..shown_columns], columns));
    let constraints = format!(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = {oid} \
         ORDER BY position(contype IN 'pucf'), conname"
    );
    let constraints = rows(session, &constraints).await?;
    for constraint in &constraints {
        text.push_str(&format!("  \"{}\" {}\n", constraint[0], constraint[1]));
    }
    let (of_schema, of_table) = (constant(schema), constant(short));
    let indexes = format!(
        "SELECT index_name, method, columns FROM serac_indexes \
         WHERE schema_name = {of_schema} AND table_name = {of_table} ORDER BY 1"
    );
    for index in rows(session, &indexes).await? {
        if constraints.iter().all(|constraint| constraint[0] != index[0]) {
            text.push_str(&format!("  {}\n", index_line(&index)));
        }
    }
    if is_materialized {
        text.push_str(&definition(session, oid).await?);
    }
    text.push_str(&description(session, oid, more).await?);
    if more {
        let size = format!(
            "SELECT count(*), count(*) FILTER (WHERE state = 'frozen'), coalesce(sum(bytes), 0) / 1e6 FROM serac_blocks \
             WHERE schema_name = {of_schema} AND table_name = {of_table}"
        );
        for size in rows(session, &size).await? {
            let megabytes: f64 = size[2].parse().unwrap_or_default();
            text.push_str(&format!("{} blocks ({} frozen), {megabytes:.1} MB\n", size[0], size[1]));
        }
    }
    Ok(printable(&text, true))
}

/// The line of an index below its table, from its name, method and columns.
fn index_line(index: &[String]) -> String {
    let method = if index[1] == "bitmap" { " USING bitmap" } else { "" };
    format!("\"{}\" index{method} ({})", index[0], index[2])
}

async fn definition(session: &mut FolderSession, oid: &str) -> Result<String, String> {
    let definition = rows(session, &format!("SELECT pg_get_viewdef({oid})")).await?;
    let query = definition.into_iter().flatten().next().unwrap_or_default();
    Ok(format!("View definition:\n  {};\n", printable(query.trim().trim_end_matches(';'), true)))
}

async fn view(session: &mut FolderSession, oid: &str, schema: &str, short: &str, more: bool) -> Result<String, String> {
    let columns = columns(session, oid).await?.into_iter().map(|mut row| {
        // The name, the type and the comment.
        let said = row.pop().filter(|_| more);
        row.truncate(2);
        row.extend(said);
        row
    });
    let header = &["column", "type", "description"][..if more { 3 } else { 2 }];
    let mut text = format!("View \"{schema}.{short}\"\n{}", shown(header, columns));
    text.push_str(&description(session, oid, more).await?);
    Ok(text + &definition(session, oid).await?)
}

async fn sequence(session: &mut FolderSession, schema: &str, short: &str) -> Result<String, String> {
    let sql = format!(
        "SELECT start_value, min_value, max_value, increment_by, coalesce(last_value::text, '-') FROM pg_sequences \
         WHERE schemaname = {} AND sequencename = {}",
        constant(schema),
        constant(short)
    );
    let header = ["start", "minimum", "maximum", "increment", "last value"];
    Ok(format!("Sequence \"{schema}.{short}\"\n{}", shown(&header, rows(session, &sql).await?)))
}

async fn index(session: &mut FolderSession, schema: &str, short: &str) -> Result<String, String> {
    let sql = format!(
        "SELECT index_name, method, columns, table_name FROM serac_indexes WHERE schema_name = {} AND index_name = {}",
        constant(schema),
        constant(short)
    );
    let found = rows(session, &sql).await?;
    let lines = found
        .iter()
        .map(|index| format!("Index \"{schema}.{short}\" on table \"{}\"\n  {}\n", index[3], index_line(index)));
    Ok(printable(&lines.collect::<String>(), true))
}
