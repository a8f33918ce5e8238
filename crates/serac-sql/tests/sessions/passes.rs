//! The passes of the pipeline: optional ones change no result, and EXPLAIN (STEPS) shows each.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions, StatementResult};

async fn session() -> Session {
    let options = SqlOptions { threads: Some(2), ..Default::default() };
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap();
    let mut session = Session::new(&db);
    let made = "CREATE TABLE c (id BIGINT PRIMARY KEY, name TEXT NOT NULL, region INTEGER);
        CREATE TABLE o (id BIGINT PRIMARY KEY, c BIGINT, day DATE, price NUMERIC(10,2), f DOUBLE PRECISION, state TEXT);
        CREATE TABLE l (o BIGINT, n INTEGER, amount INTEGER, PRIMARY KEY (o, n));
        CREATE TABLE nothing (a BIGINT);
        INSERT INTO c SELECT g, 'name ' || g % 7, CASE WHEN g % 5 > 0 THEN g % 5 END FROM generate_series(1, 100) AS g (g);
        INSERT INTO o SELECT g, CASE WHEN g % 11 > 0 THEN g * 7 % 120 END, DATE '2024-01-01' + (g % 90)::INTEGER,
            g % 1000 / 4.0, CASE g % 3 WHEN 0 THEN 0.0 WHEN 1 THEN -0.0 ELSE g % 13 END, 's' || g % 4
            FROM generate_series(1, 1500) AS g (g);
        INSERT INTO l SELECT g % 1600, g / 1600, g % 17 FROM generate_series(0, 4000) AS g (g);
        CREATE INDEX ON o USING bitmap (state); CREATE INDEX ON o (day); ANALYZE";
    session.execute(made).await.unwrap();
    session
}

/// Rows of texts, columns with a bar between them.
async fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    tried_rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The same; an error is a text.
async fn tried_rows(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    let results = session.execute(sql).await.map_err(|error| error.to_string())?;
    let Some(StatementResult::Rows { batches, .. }) = results.into_iter().next_back() else {
        panic!("{sql} gives rows")
    };
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch.columns().iter().map(|column| cast(column, &DataType::Utf8).unwrap()).collect();
        let text = |column: &dyn Array, row: usize| match column.is_null(row) {
            true => "NULL".to_owned(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        let row = |row| columns.iter().map(|column| text(column, row)).collect::<Vec<_>>().join("|");
        rows.extend((0..batch.num_rows()).map(row));
    }
    Ok(rows)
}

/// Queries, each with one order of rows.
const QUERIES: &[&str] = &[
    // Filters, indexes, limits, sorts.
    "SELECT id, state FROM o WHERE day >= TIMESTAMP '2024-03-01 12:00:00' AND state IN ('s0', 's2') ORDER BY id",
    "SELECT count(*), min(id), max(price) FROM o WHERE state IN ('s1', 's2') AND price BETWEEN 10 AND 200",
    "SELECT id FROM o ORDER BY price DESC, id LIMIT 7 OFFSET 3",
    "SELECT * FROM (SELECT id, price FROM o ORDER BY id LIMIT 50) AS s WHERE price > 3 ORDER BY id LIMIT 5",
    "SELECT count(*) FROM (SELECT id FROM o LIMIT 10) AS s",
    "SELECT id FROM c WHERE false OR id > 95 AND true ORDER BY 1",
    "SELECT f, count(*) FROM o GROUP BY f ORDER BY f",
    "SELECT DISTINCT f FROM o ORDER BY f LIMIT 3",
    "SELECT count(DISTINCT f), count(DISTINCT state) FROM o",
    "SELECT count(DISTINCT f) FROM o",
    // Aggregates.
    "SELECT state, count(*), sum(price), avg(price) > 104.1 FROM o GROUP BY state ORDER BY state",
    "SELECT state, count(*) FROM o GROUP BY state HAVING count(*) > 10 ORDER BY 1 LIMIT 2",
    "SELECT 1, state, 2, count(DISTINCT c) FROM o GROUP BY 1, 2, 3 ORDER BY state",
    "SELECT string_agg(name, ',' ORDER BY id) FROM c WHERE id < 12",
    "SELECT array_agg(id ORDER BY id DESC) FROM c WHERE id < 12",
    "SELECT state, region, count(*) FROM o JOIN c ON c.id = o.c GROUP BY ROLLUP (state, region) ORDER BY 1, 2, 3",
    "SELECT sum(price + 1), sum(price + 1) * 2, avg(price + 1) > 107.4 FROM o WHERE price + 1 > 5",
    // Joins.
    "SELECT count(*), sum(amount) FROM o, c, l WHERE o.c = c.id AND l.o = o.id AND c.region = 2 AND o.state <> 's0'",
    "SELECT c.id, o.id FROM c LEFT JOIN o ON o.c = c.id AND o.price > 240 WHERE c.id < 30 ORDER BY 1, 2",
    "SELECT c.id, o.id FROM c LEFT JOIN o ON o.c = c.id WHERE o.price > 245 ORDER BY 1, 2",
    "SELECT count(*), count(c.id), count(o.id) FROM c FULL JOIN o ON o.c = c.id",
    "SELECT count(*) FROM o AS a JOIN o AS b ON a.f = b.f AND a.id < 50 AND b.id < 50",
    "SELECT count(*) FROM c AS a JOIN c AS b ON a.region IS NOT DISTINCT FROM b.region AND a.name = b.name",
    "SELECT count(*) FROM c CROSS JOIN nothing",
    "SELECT c.id, a FROM c LEFT JOIN nothing ON a = c.id WHERE c.id < 4 ORDER BY 1",
    "SELECT sum(CASE WHEN c.name LIKE '%3' THEN l.amount END) FROM l JOIN o ON o.id = l.o JOIN c ON c.id = o.c",
    "SELECT count(*) FROM c AS a, c AS b WHERE a.id + b.id = 50 AND a.id < b.id",
    // Subqueries.
    "SELECT count(*) FROM c WHERE id IN (SELECT c FROM o WHERE state = 's1')",
    "SELECT count(*) FROM c WHERE id NOT IN (SELECT c FROM o WHERE state = 's1')",
    "SELECT count(*) FROM c WHERE id NOT IN (SELECT c FROM o WHERE c IS NOT NULL AND state = 's1')",
    "SELECT count(*) FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.c = c.id AND price > 200)",
    "SELECT count(*) FROM o WHERE price > (SELECT avg(price) FROM o)",
    "SELECT id, (SELECT max(price) FROM o WHERE o.c = c.id) FROM c WHERE id < 9 ORDER BY id",
    "SELECT c.id, s.id FROM c, LATERAL (SELECT id FROM o WHERE o.c = c.id ORDER BY id LIMIT 2) AS s WHERE c.id < 30 ORDER BY 1, 2",
    "SELECT count(*) FROM o WHERE id > ALL (SELECT id FROM c)",
    "SELECT id, (SELECT 1 WHERE false) FROM c WHERE id < 3 ORDER BY id",
    "SELECT count(*) FROM (VALUES (0::FLOAT8), ('-0'::FLOAT8)) AS t (v) WHERE v = 0 AND v = '-0'::FLOAT8",
    // Unions, windows, and further operators.
    "SELECT id FROM c WHERE id < 3 UNION ALL SELECT id FROM o WHERE id < 3 ORDER BY 1",
    "SELECT name FROM c WHERE region = 1 UNION SELECT name FROM c WHERE region = 2 ORDER BY 1",
    "SELECT name FROM c EXCEPT ALL SELECT state FROM o ORDER BY 1 LIMIT 5",
    "SELECT id, rank FROM (SELECT id, row_number() OVER (PARTITION BY state ORDER BY price, id) AS rank FROM o) AS s WHERE rank <= 2 ORDER BY 1",
    "SELECT id, sum(price) OVER (ORDER BY id) FROM o ORDER BY id LIMIT 4",
    "WITH s AS (SELECT state, sum(price) AS p FROM o GROUP BY state) SELECT a.state FROM s AS a JOIN s AS b ON a.p <= b.p GROUP BY 1 ORDER BY 1",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT sum(n) FROM r",
    "SELECT (jsonb_build_object('a', id) -> 'a')::TEXT FROM c WHERE id < 4 ORDER BY id",
];

async fn results(session: &mut Session) -> Vec<Vec<String>> {
    let mut results = Vec::new();
    for query in QUERIES {
        results.push(rows(session, query).await);
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_the_same_without_optional_passes() {
    let mut session = session().await;
    let expected = results(&mut session).await;
    for (query, rows) in QUERIES.iter().zip(&expected) {
        assert!(!rows.is_empty(), "{query}");
    }
    let mut disabled = rows(&mut session, "SELECT DISTINCT name FROM serac_passes WHERE optional ORDER BY 1").await;
    assert!(disabled.len() > 25, "{disabled:?}");
    disabled.push(disabled.join(", "));
    let mut failures = Vec::new();
    for names in &disabled {
        session.execute(&format!("SET serac.disabled_passes = '{names}'")).await.unwrap();
        for (query, expected) in QUERIES.iter().zip(&expected) {
            let found = tried_rows(&mut session, query).await;
            if found.as_ref() != Ok(expected) {
                failures.push(format!("{query} without {names}: {found:?}, not {expected:?}"));
            }
        }
        let steps = rows(&mut session, &format!("EXPLAIN (STEPS) {}", QUERIES[17])).await;
        let is_disabled = |step: &String| names.split(", ").any(|name| step.split('|').nth(1) == Some(name));
        assert!(!steps.iter().any(is_disabled), "{names}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    session.execute("RESET serac.disabled_passes").await.unwrap();
    assert_eq!(results(&mut session).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_that_results_need_cannot_be_disabled() {
    let mut session = session().await;
    let needed = rows(&mut session, "SELECT DISTINCT name FROM serac_passes WHERE NOT optional").await;
    assert!(needed.contains(&"type_coercion".to_owned()));
    for name in needed {
        let error = session.execute(&format!("SET serac.disabled_passes = '{name}'")).await.unwrap_err();
        assert_eq!(error.sqlstate, "22023", "{name}");
    }
    assert_eq!(rows(&mut session, "SHOW serac.disabled_passes").await, [""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_lead_from_the_planner_to_the_plan_that_runs() {
    let mut session = session().await;
    let by =
        "SELECT name, count(*) FROM c JOIN o ON o.c = c.id WHERE price > 1 + 1 GROUP BY name ORDER BY 2, 1 LIMIT 3";
    let steps = rows(&mut session, &format!("EXPLAIN (STEPS) {by}")).await;
    let split = |row: &String| {
        let [stage, pass, plan] = row.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        (stage.to_owned(), pass.to_owned(), plan.to_owned())
    };
    let steps: Vec<_> = steps.iter().map(split).collect();
    let known = rows(&mut session, "SELECT stage || '|' || name FROM serac_passes ORDER BY position").await;
    for (at, (stage, pass, plan)) in steps.iter().enumerate() {
        assert!(known.contains(&format!("{stage}|{pass}")), "{stage} {pass}");
        assert!(at == 0 || steps[at - 1].2 != *plan, "{stage} {pass}");
    }
    let stages: Vec<&str> = steps.iter().map(|step| step.0.as_str()).collect();
    let mut different = stages.clone();
    different.dedup();
    assert_eq!(different, ["planner", "analyzer", "logical", "physical"]);
    let has = |pass: &str| steps.iter().any(|step| step.1 == pass);
    for pass in ["bind", "simplify_expressions", "push_down_filter", "physical_planner"] {
        assert!(has(pass), "{pass}");
    }
    assert!(!has("replace_distinct_aggregate") && !has("SanityCheckPlan"));
    let plan = rows(&mut session, &format!("EXPLAIN {by}")).await;
    assert_eq!(steps.last().unwrap().2, plan.join("\n"));
    let plan = "DataSourceExec: partitions=1, partition_sizes=[1]";
    let expected = [
        "planner|bind|Values: (1 + 2)".to_owned(),
        "analyzer|checked_arithmetic|Values: (checked_plus(1, 2))".to_owned(),
        "logical|simplify_expressions|Values: (3 AS 1 + 2)".to_owned(),
        format!("physical|physical_planner|{plan}"),
        format!("physical|OutputRequirements|OutputRequirementExec: order_by=[], dist_by=Unspecified\n  {plan}"),
        format!("physical|OutputRequirements|{plan}"),
    ];
    assert_eq!(rows(&mut session, "EXPLAIN (STEPS) VALUES (1 + 2)").await, expected);
    // A pass that fails is the last step, with its error; the rights of a role are the statement's.
    let steps = rows(&mut session, "EXPLAIN (STEPS) SELECT id, 1 / 0 FROM c").await;
    assert!(steps[0].starts_with("planner|bind|Projection: "), "{steps:?}");
    assert_eq!(steps.last().unwrap(), "logical|constant_errors|22012: division by zero");
    session.execute("CREATE ROLE steps_reader; SET ROLE steps_reader").await.unwrap();
    let refused = tried_rows(&mut session, "EXPLAIN (STEPS) SELECT id FROM c").await.unwrap_err();
    assert!(refused.contains("permission denied"), "{refused}");
    session.execute("RESET ROLE").await.unwrap();
    // A change is explained as the query that finds its rows.
    let steps = rows(&mut session, "EXPLAIN (STEPS on, FORMAT TEXT) DELETE FROM o WHERE price > 3").await;
    assert!(steps[0].starts_with("planner|bind|") && steps.last().unwrap().contains("Scan"), "{steps:?}");
    // A description names its columns.
    let statement = serac_sql::parse("EXPLAIN (STEPS) SELECT 1").unwrap().pop().unwrap();
    let schema = session.describe_statement(statement, &[]).await.unwrap().schema.unwrap();
    assert_eq!(
        schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["stage", "pass", "plan"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_plans_follow_the_setting() {
    let mut session = session().await;
    let explained = "EXPLAIN SELECT c, count(*) FROM o WHERE price > 3 GROUP BY c";
    let mut seen = Vec::new();
    session.execute("PREPARE p (BIGINT) AS SELECT name FROM c WHERE id = $1").await.unwrap();
    for setting in ["", "block_aggregation", ""] {
        session.execute(&format!("SET serac.disabled_passes = '{setting}'")).await.unwrap();
        let before = session.point_executions();
        for _ in 0..2 {
            assert_eq!(rows(&mut session, "EXECUTE p (8)").await, ["name 1"]);
        }
        assert_eq!(session.point_executions(), before + 2);
        seen.push(rows(&mut session, explained).await.join("\n").contains("BlockAggregateExec"));
    }
    assert_eq!(seen, [true, false, true]);
}
