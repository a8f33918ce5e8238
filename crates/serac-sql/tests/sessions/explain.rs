//! EXPLAIN and DESCRIBE as texts, and errors in SQL's terms.

use crate::support::in_memory;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_sql::{Session, StatementResult};

/// The columns' names of a result, and its rows, columns with a bar between them.
async fn rows(session: &mut Session, sql: &str) -> (Vec<String>, Vec<String>) {
    let result = session.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}")).pop();
    let Some(StatementResult::Rows { schema, batches, .. }) = result else { panic!("{sql}: no rows") };
    let row = |batch: &datafusion::arrow::array::RecordBatch, row: usize| {
        let values = batch.columns().iter().map(|column| {
            let column = cast(column, &DataType::Utf8).unwrap();
            let column = column.as_string::<i32>();
            if column.is_valid(row) { column.value(row).to_owned() } else { "NULL".into() }
        });
        values.collect::<Vec<_>>().join("|")
    };
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect();
    (schema.fields().iter().map(|field| field.name().clone()).collect(), rows)
}

async fn session() -> Session {
    let db = in_memory();
    let mut session = Session::new(&db);
    let made = "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x', price NUMERIC(8,2)); \
                CREATE VIEW v AS SELECT id, price * 2 AS twice FROM t; \
                INSERT INTO t SELECT g, 'n' || g, g FROM generate_series(1, 1000) AS g (g)";
    session.execute(made).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_an_indented_tree() {
    let mut session = session().await;
    let sql = "SELECT name, count(price)::real AS total FROM t WHERE id > 3 GROUP BY name ORDER BY 2";
    let (names, plan) = rows(&mut session, &format!("EXPLAIN {sql}")).await;
    assert_eq!(names, ["QUERY PLAN"]);
    let text = plan.join("\n");
    let indents: Vec<usize> = plan.iter().map(|line| line.len() - line.trim_start().len()).collect();
    assert!(plan.len() > 2 && indents.iter().enumerate().all(|(at, indent)| *indent == 2 * at), "{text}");
    assert!(text.contains(" AS real)") && !text.contains("Float32") && !text.contains('@'), "{text}");
    for analyzed in ["EXPLAIN ANALYZE", "EXPLAIN (ANALYZE)", "EXPLAIN (ANALYZE on, VERBOSE off, COSTS off)"] {
        let (names, plan) = rows(&mut session, &format!("{analyzed} {sql}")).await;
        let text = plan.join("\n");
        assert_eq!(names, ["QUERY PLAN"]);
        assert!(text.contains(" rows=997") && text.contains("time="), "{analyzed}\n{text}");
        let [.., planning, execution] = &plan[..] else { panic!("{text}") };
        assert!(planning.starts_with("Planning Time: ") && planning.ends_with(" ms"), "{text}");
        assert!(execution.starts_with("Execution Time: ") && execution.ends_with(" ms"), "{text}");
    }
    let (_, plan) = rows(&mut session, &format!("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) {sql}")).await;
    let text = plan.join("\n");
    assert!(text.contains("rows=997") && !text.contains("time=") && !text.contains(" Time: "), "{text}");
    let (_, plan) = rows(&mut session, &format!("EXPLAIN (VERBOSE) {sql}")).await;
    assert!(plan.contains(&"Logical plan".to_owned()) && plan.contains(&"Physical plan".to_owned()), "{plan:?}");
    let (_, plan) = rows(&mut session, "EXPLAIN (FORMAT TEXT) DELETE FROM t WHERE name = 'n1'").await;
    assert_eq!(plan[0], "DELETE");
    for (sql, sqlstate) in [
        ("EXPLAIN (FORMAT XML) SELECT 1", "0A000"),
        ("EXPLAIN (FORMAT JSON, BOUND) SELECT 1", "0A000"),
        ("EXPLAIN (ANALYZE, BUFFERS) SELECT 1", "0A000"),
        ("EXPLAIN (NOTHING) SELECT 1", "42601"),
        ("EXPLAIN (ANALYZE perhaps) SELECT 1", "42601"),
        ("EXPLAIN ANALYZE DELETE FROM t", "0A000"),
        ("EXPLAIN ANALYZE SELECT 1 / (id - 1) FROM t", "22012"),
    ] {
        assert_eq!(session.execute(sql).await.unwrap_err().sqlstate, sqlstate, "{sql}");
    }
}

#[tokio::test]
async fn columns_are_described_with_types_of_sql() {
    let mut session = session().await;
    let (names, columns) = rows(&mut session, "DESCRIBE t").await;
    assert_eq!(names, ["column_name", "data_type", "is_nullable", "column_default"]);
    assert_eq!(columns, ["id|bigint|NO|NULL", "name|character varying(20)|NO|'x'", "price|numeric(8,2)|YES|NULL"]);
    assert_eq!(rows(&mut session, "DESCRIBE v").await.1, ["id|bigint|YES|NULL", "twice|numeric|YES|NULL"]);
    assert_eq!(session.execute("DESCRIBE nothing").await.unwrap_err().sqlstate, "42P01");
}

#[tokio::test]
async fn relations_made_of_queries_have_columns_named_as_by_postgresql() {
    let mut session = session().await;
    for (made, names) in [
        ("TABLE x AS SELECT sum(id), name::text, 1, t.price FROM t GROUP BY name, price", "sum|name|?column?|price"),
        ("VIEW x AS SELECT count(*), max(id) AS n FROM t HAVING count(*) > 0 ORDER BY count(*)", "count|n"),
        ("MATERIALIZED VIEW x AS SELECT max(id) FROM t UNION SELECT 1", "max"),
        ("TABLE x AS SELECT *, lower(name) FROM t", "id|name|price|lower"),
    ] {
        session.execute(&format!("CREATE {made}")).await.unwrap_or_else(|error| panic!("{made}: {error}"));
        let columns = rows(&mut session, "DESCRIBE x").await.1;
        let found: Vec<&str> = columns.iter().map(|row| row.split('|').next().unwrap()).collect();
        assert_eq!(found.join("|"), names, "{made}");
        let kind = made.split(" x ").next().unwrap();
        session.execute(&format!("DROP {kind} x")).await.unwrap();
    }
    assert_eq!(session.execute("CREATE TABLE x AS SELECT 1, 2").await.unwrap_err().sqlstate, "42701");
}

#[tokio::test]
async fn errors_name_types_as_sql_does() {
    let mut session = session().await;
    for (sql, message) in [
        ("SELECT 'a'::int", "invalid input syntax for type integer: \"a\""),
        ("SELECT 'a'::date", "invalid input syntax for type date: \"a\""),
        ("SELECT '99999999999'::int", "value \"99999999999\" is out of range for type integer"),
        ("SELECT abs(name, 2) FROM t", "function abs(character varying, integer) does not exist"),
    ] {
        assert_eq!(session.execute(sql).await.unwrap_err().message, message, "{sql}");
    }
    for sql in ["SELECT date '2020-01-01' + price FROM t", "SELECT sum(name) FROM t", "SELECT id AND true FROM t"] {
        let error = session.execute(sql).await.unwrap_err().to_string();
        for arrow in ["Utf8", "Int64", "Int32", "Decimal128", "Date32"] {
            assert!(!error.contains(arrow), "{sql}: {error}");
        }
    }
}

#[tokio::test]
async fn json_has_the_shape_of_postgresql() {
    let mut session = session().await;
    let query =
        "EXPLAIN (FORMAT JSON, ANALYZE) SELECT a.name FROM t a JOIN t b ON a.price = b.price + 1 WHERE a.id > 0";
    let (names, plan) = rows(&mut session, query).await;
    assert_eq!((names, plan.len()), (vec!["QUERY PLAN".to_owned()], 1));
    let document: serde_json::Value = serde_json::from_str(&plan[0]).unwrap();
    let statement = &document.as_array().unwrap()[0];
    assert!(statement["Planning Time"].is_number() && statement["Execution Time"].is_number());
    assert_eq!(statement["Triggers"], serde_json::json!([]));
    // Each operator has its kind, and says how it stands to the one above it.
    let (mut open, mut count, mut inner, mut given) = (vec![&statement["Plan"]], 0, 0, false);
    while let Some(node) = open.pop() {
        assert!(node["Node Type"].is_string() && node["Details"].is_string(), "{node}");
        assert_eq!(node.get("Parent Relationship").is_some(), count > 0, "{node}");
        inner += usize::from(node["Parent Relationship"] == "Inner");
        count += 1;
        given |= node["Actual Rows"] == 999;
        open.extend(node.get("Plans").and_then(|plans| plans.as_array()).into_iter().flatten());
    }
    assert!(count > 3 && inner == 1 && given, "{document}");
    let (_, plan) = rows(&mut session, "EXPLAIN (FORMAT JSON) DELETE FROM t WHERE price = 4").await;
    let document: serde_json::Value = serde_json::from_str(&plan[0]).unwrap();
    let plan = &document[0]["Plan"];
    assert_eq!((&plan["Node Type"], &plan["Operation"]), (&"ModifyTable".into(), &"Delete".into()));
    assert_eq!(plan["Plans"][0]["Parent Relationship"], "Outer");
    assert!(document[0].get("Planning Time").is_none());
}
