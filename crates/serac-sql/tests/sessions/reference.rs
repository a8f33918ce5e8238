//! The reference of functions and operators has their results, and all callable ones.

use crate::support::in_memory;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_pg::functions::{self, Function, FunctionKind};
use serac_pg::reference::{self, Entry, Example};
use serac_pg::{TypeId, casts, operators, resolve};
use serac_sql::{Session, SqlError, StatementResult, wire};

/// A value as the reference writes it.
fn shown(value: Option<&str>, is_boolean: bool) -> &str {
    match value {
        None => "NULL",
        Some("") => "''",
        Some("t") if is_boolean => "true",
        Some("f") if is_boolean => "false",
        Some(value) => value,
    }
}

/// The values of a column as the reference writes them.
fn texts(column: &ArrayRef) -> Vec<String> {
    let told = wire::as_told(column, &DataType::Utf8View).unwrap();
    let told = cast(&told, &DataType::Utf8View).unwrap();
    let is_boolean = *column.data_type() == DataType::Boolean;
    told.as_string_view().iter().map(|value| shown(value, is_boolean).to_owned()).collect()
}

/// The rows of the last of several statements, which are undone.
async fn asked(session: &mut Session, statements: &str) -> Result<String, SqlError> {
    session.execute("BEGIN").await.unwrap();
    let results = session.execute(statements).await;
    session.execute("ROLLBACK").await.unwrap();
    let Some(StatementResult::Rows { batches, .. }) = results?.pop() else { panic!("{statements} gives no rows") };
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<Vec<String>> = batch.columns().iter().map(texts).collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            let values: Vec<&str> = columns.iter().map(|column| column[row].as_str()).collect();
            values.join(" | ")
        }));
    }
    Ok(rows.join("; "))
}

/// The statements of an example for each name of an entry.
fn forms(entry: &Entry, example: &Example) -> Vec<String> {
    let (first, statements) = (entry.names[0], example.statements());
    let others = entry.names[1..].iter().map(|name| {
        let of_other = statements.replace(&format!("{first}("), &format!("{name}("));
        assert_ne!(of_other, statements, "{first} is not called");
        of_other
    });
    [statements.clone()].into_iter().chain(others).collect()
}

#[tokio::test]
async fn examples_give_what_the_reference_says() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let (mut asked_for, mut wrong) = (0, Vec::new());
    for entry in reference::sections().flat_map(|section| &section.entries) {
        for example in &entry.examples {
            for statements in forms(entry, example) {
                asked_for += 1;
                match asked(&mut session, &statements).await {
                    Ok(rows) if rows == example.result => {}
                    Ok(rows) => wrong.push(format!("{statements}: {rows}, not {}", example.result)),
                    Err(error) => wrong.push(format!("{statements}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked_for}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The call of a function that an example begins with, and FROM behind it, if that is all.
fn call_at_start(name: &str, text: &'static str) -> Option<(&'static str, &'static str)> {
    let arguments = text.strip_prefix(name).filter(|rest| rest.starts_with('('))?;
    let (mut open, mut is_quoted) = (0, false);
    let is_end = |letter: char| {
        is_quoted ^= letter == '\'';
        open += match letter {
            '(' if !is_quoted => 1,
            ')' if !is_quoted => -1,
            _ => 0,
        };
        open == 0
    };
    let end = name.len() + arguments.find(is_end)? + 1;
    let (call, behind) = text.split_at(end);
    (behind.is_empty() || behind.starts_with(" FROM ")).then_some((call, behind))
}

#[tokio::test]
async fn results_have_the_types_that_the_registry_tells() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let (mut seen, mut wrong) = (0, Vec::new());
    for entry in reference::functions().iter().flat_map(|section| &section.entries) {
        let results: Vec<TypeId> =
            functions::named(entry.names[0]).filter(|f| !f.returns_set).map(|f| f.signature.result).collect();
        let calls = entry.examples.iter().filter_map(|example| call_at_start(entry.names[0], example.text));
        // A result with the type of an argument, or a row, may be of any type.
        let is_any = |id: &TypeId| resolve::is_polymorphic(*id) || *id == TypeId::RECORD;
        if results.is_empty() || results.iter().any(is_any) {
            continue;
        }
        for (call, behind) in calls {
            let query = format!("SELECT pg_typeof({call}){behind} LIMIT 1");
            let given = asked(&mut session, &query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
            seen += 1;
            if results.iter().all(|id| id.to_string() != given) {
                wrong.push(format!("{call}: {given}, not {results:?}"));
            }
        }
    }
    assert!(wrong.is_empty() && seen > 100, "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A value of a type, NULL where it can be.
fn value(id: TypeId) -> String {
    match id {
        TypeId::ANY | TypeId::ANYELEMENT | TypeId::ANYNONARRAY | TypeId::ANYCOMPATIBLE => "NULL::integer".to_owned(),
        TypeId::ANYCOMPATIBLENONARRAY => "NULL::integer".to_owned(),
        TypeId::ANYARRAY | TypeId::ANYCOMPATIBLEARRAY => "NULL::integer[]".to_owned(),
        TypeId::RECORD => "ROW(1, 2)".to_owned(),
        id => format!("NULL::{id}"),
    }
}

/// A query with a call of a function.
fn call(function: &Function) -> String {
    let mut arguments: Vec<String> = function.signature.arguments.iter().map(|id| value(*id)).collect();
    let rows = "FROM (VALUES (1)) AS t(x)";
    if let Some(within) = function.within_group {
        let ordered = arguments.split_off(usize::from(within.direct).min(arguments.len() - 1)).join(", ");
        return format!("SELECT {}({}) WITHIN GROUP (ORDER BY {ordered}) {rows}", function.name, arguments.join(", "));
    }
    let call = format!("\"{}\"({})", function.name, arguments.join(", "));
    match function.kind {
        FunctionKind::Aggregate => format!("SELECT {call} {rows}"),
        FunctionKind::Window => format!("SELECT {call} OVER (ORDER BY x) {rows}"),
        FunctionKind::Scalar | FunctionKind::Syntax => format!("SELECT {call}"),
    }
}

/// Whether the function or operator does not exist, or is not supported.
fn is_refused(result: &Result<String, SqlError>) -> bool {
    result.as_ref().is_err_and(|error| ["0A000", "42883"].contains(&error.sqlstate))
}

#[tokio::test]
async fn what_the_reference_leaves_out_cannot_be_called() {
    let db = in_memory();
    let mut session = Session::new(&db);
    let mut taken = Vec::new();
    for function in functions::all().filter(|function| reference::of_function(function.name).is_none()) {
        let query = call(function);
        if !is_refused(&asked(&mut session, &query).await) {
            taken.push(query);
        }
    }
    for operator in operators::all().iter().filter(|operator| reference::of_operator(operator).is_none()) {
        let operands: Vec<String> = operator.signature.arguments.iter().map(|id| value(*id)).collect();
        let symbol = format!(" {} ", operator.symbol);
        let query = match &operands[..] {
            [operand] => format!("SELECT {symbol}{operand}"),
            operands => format!("SELECT {}", operands.join(&symbol)),
        };
        if !is_refused(&asked(&mut session, &query).await) {
            taken.push(query);
        }
    }
    let left_out = |cast: &&casts::Cast| casts::callable().all(|other| other != *cast);
    for cast in casts::all().filter(left_out) {
        let query = format!("SELECT CAST({} AS {})", value(cast.from), cast.to);
        if !is_refused(&asked(&mut session, &query).await) {
            taken.push(query);
        }
    }
    assert!(taken.is_empty(), "not in the reference:\n{}", taken.join("\n"));
}

#[tokio::test]
async fn system_tables_are_those_of_the_registry() {
    let db = in_memory();
    let mut session = Session::new(&db);
    for (query, rows) in [
        (
            "SELECT oid, proargtypes, pronargs, prorettype::regtype, provolatile, proisstrict, proretset, prokind \
             FROM pg_proc WHERE proname = 'mod' ORDER BY oid",
            "940 | 21 21 | 2 | smallint | i | true | false | f; 941 | 23 23 | 2 | integer | i | true | false | f; \
             947 | 20 20 | 2 | bigint | i | true | false | f; 1728 | 1700 1700 | 2 | numeric | i | true | false | f",
        ),
        (
            "SELECT oid, provariadic::regtype, pronargdefaults, provolatile FROM pg_proc \
             WHERE proname IN ('concat_ws', 'make_interval') ORDER BY 1",
            "3059 | \"any\" | 0 | s; 3464 | - | 7 | i",
        ),
        (
            "SELECT o.oid, o.oprname, o.oprkind, o.oprleft::regtype, o.oprright::regtype, o.oprresult::regtype, o.oprcode, \
             c.oprname, n.oprname FROM pg_operator o JOIN pg_operator c ON c.oid = o.oprcom \
             JOIN pg_operator n ON n.oid = o.oprnegate WHERE o.oid = 97",
            "97 | < | b | integer | integer | boolean | int4lt | > | >=",
        ),
        (
            "SELECT castsource::regtype, casttarget::regtype, castfunc, castcontext, castmethod FROM pg_cast \
             WHERE castsource = 'integer'::regtype AND casttarget IN (20, 26) ORDER BY 2",
            "integer | bigint | 481 | i | f; integer | oid | 0 | i | b",
        ),
        (
            "SELECT a.aggfnoid, p.proname, aggkind, aggnumdirectargs, pg_get_function_arguments(p.oid) \
             FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid \
             WHERE p.oid IN (2147, 3984, 3972) ORDER BY p.oid",
            "pg_catalog.count | count | n | 0 | \"any\"; \
             pg_catalog.percentile_disc | percentile_disc | o | 1 | double precision ORDER BY anyelement; \
             mode | mode | o | 0 | ORDER BY anyelement",
        ),
        (
            "SELECT typinput, typinput::oid, typreceive::text FROM pg_type WHERE typname = 'int4'",
            "int4in | 42 | int4recv",
        ),
        ("SELECT 'int4in'::regproc::oid, 1397::regproc, 0::oid::regproc", "42 | pg_catalog.abs | -"),
        ("SELECT 100::regcollation, 950::regcollation, '\"C\"'::regcollation::oid", "\"default\" | \"C\" | 950"),
        ("SELECT obj_description(1397, 'pg_proc') = description FROM pg_description WHERE objoid = 1397", "true"),
        ("SELECT count(*) FROM pg_proc WHERE prorettype = 0 OR oid = 0", "0"),
        (
            "SELECT count(*) FROM (SELECT oprcode::oid AS f FROM pg_operator UNION ALL SELECT castfunc FROM pg_cast \
             UNION ALL SELECT typinput::oid FROM pg_type UNION ALL SELECT typsend::oid FROM pg_type \
             UNION ALL SELECT oprjoin::oid FROM pg_operator UNION ALL SELECT amhandler::oid FROM pg_am) AS t \
             WHERE f <> 0 AND f NOT IN (SELECT oid FROM pg_proc)",
            "0",
        ),
        (
            "SELECT proname, proargtypes, prorettype FROM pg_proc \
             WHERE prorettype NOT IN (SELECT oid FROM pg_type) OR pronargs <> cardinality(proargtypes) LIMIT 1",
            "",
        ),
        ("SELECT count(*) FROM pg_proc GROUP BY oid HAVING count(*) > 1 UNION ALL SELECT 0", "0"),
        (
            "SELECT routine_name, data_type, is_deterministic FROM information_schema.routines \
             WHERE specific_name = 'chr_1621'",
            "chr | text | YES",
        ),
    ] {
        assert_eq!(asked(&mut session, query).await.map_err(|error| error.to_string()), Ok(rows.to_owned()), "{query}");
    }
    for (query, sqlstate) in [("SELECT 'abs'::regproc", "42725"), ("SELECT 'nothing'::regproc", "42883")] {
        assert_eq!(asked(&mut session, query).await.unwrap_err().sqlstate, sqlstate, "{query}");
    }
}
