//! The passes that choose the kinds, the order and the distribution of joins change no result:
//! random joins with and without them, and where the passes work, as EXPLAIN shows it.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, lines, run, text};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_sql::{Session, StatementResult};

/// The passes of which results do not depend.
const PASSES: &str = "join_order, outer_joins, join_modes, key_filter_pushdown";

/// Rows as texts, in one order; or an error.
async fn rows(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    let results = session.execute(sql).await.map_err(|error| error.to_string())?;
    let Some(StatementResult::Rows { batches, .. }) = results.into_iter().next_back() else {
        panic!("{sql} gives rows")
    };
    let mut rows = lines(&batches);
    rows.sort_unstable();
    Ok(rows)
}

/// Tables of several sizes, one of them empty, with duplicates and NULL in all columns.
async fn make_tables(session: &mut Session, rng: &mut StdRng) {
    for (table, size) in [0, 3, 12, 30, 60].into_iter().enumerate() {
        let mut statements = format!("CREATE TABLE t{table} (a integer, b bigint, c text, d integer);");
        for _ in 0..size {
            let value = |rng: &mut StdRng, most: i32| match rng.random_range(0..6) {
                0 => "NULL".to_owned(),
                _ => rng.random_range(0..most).to_string(),
            };
            let (a, b, c, d) = (value(rng, 9), value(rng, 14), value(rng, 9), value(rng, 25));
            let c = if c == "NULL" { c } else { format!("'text {c}'") };
            statements += &format!("INSERT INTO t{table} VALUES ({a}, {b}, {c}, {d});");
        }
        run(session, &statements).await;
    }
    run(session, "ANALYZE").await;
}

/// The number of a table, now and then of the empty one.
fn table(rng: &mut StdRng) -> usize {
    if rng.random_range(0..15) == 0 { 0 } else { rng.random_range(1..5) }
}

/// An equality of columns of two relations.
fn key(rng: &mut StdRng, left: &str, right: &str) -> String {
    let numbers = ["a", "b", "d"];
    match rng.random_range(0..8) {
        0 => format!("{left}.c = {right}.c"),
        1 => format!("{left}.a + 1 = {right}.b"),
        _ => {
            format!("{left}.{} = {right}.{}", numbers.choose(rng).unwrap(), numbers.choose(rng).unwrap())
        }
    }
}

/// A condition on one relation.
fn condition(rng: &mut StdRng, relation: &str) -> String {
    let column = ["a", "b", "d"].choose(rng).unwrap();
    let limit = rng.random_range(0..20);
    match rng.random_range(0..9) {
        0 => format!("{relation}.{column} IS NULL"),
        1 => format!("{relation}.{column} IS NOT NULL"),
        2 => format!("{relation}.c LIKE '%{}'", limit % 10),
        3 => format!("({relation}.{column} < {limit} OR {relation}.c IS NULL)"),
        4 => format!("NOT ({relation}.{column} > {limit})"),
        5 => format!("{relation}.{column} IN (1, 3, 5, {limit})"),
        6 => format!("coalesce({relation}.{column}, 3) < {limit}"),
        7 => format!("{relation}.{column} BETWEEN 2 AND {limit}"),
        _ => format!("{relation}.{column} > {limit}"),
    }
}

/// A condition with a subquery about a relation.
fn subquery(rng: &mut StdRng, relation: &str) -> String {
    let table = table(rng);
    let not = if rng.random_bool(0.5) { "NOT " } else { "" };
    let more = if rng.random_bool(0.4) { format!(" AND {}", condition(rng, "s")) } else { String::new() };
    match rng.random_range(0..5) {
        0 | 1 => format!("{not}EXISTS (SELECT 1 FROM t{table} AS s WHERE {}{more})", key(rng, "s", relation)),
        2 => format!(
            "{not}EXISTS (SELECT 1 FROM t{table} AS s WHERE {} AND s.d <> {relation}.d{more})",
            key(rng, "s", relation)
        ),
        3 => format!("{relation}.a {not}IN (SELECT s.b FROM t{table} AS s WHERE s.b IS NOT NULL{more})"),
        _ => format!("{relation}.a {not}IN (SELECT s.a FROM t{table} AS s WHERE true{more})"),
    }
}

/// A random query over joins.
fn query(rng: &mut StdRng) -> String {
    let mut relations = vec!["x0".to_owned()];
    let mut from = format!("t{} AS x0", rng.random_range(1..5));
    for i in 1..rng.random_range(2..7) {
        let kind =
            ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"].choose(rng).unwrap();
        let own = format!("x{i}");
        let other = relations.choose(rng).unwrap().clone();
        let mut on = key(rng, &other, &own);
        if rng.random_bool(0.2) {
            on += &format!(" AND {}", key(rng, &other, &own));
        }
        if *kind != "FULL JOIN" && rng.random_bool(0.3) {
            let about = if rng.random_bool(0.5) { &own } else { &other };
            on += &format!(" AND {}", condition(rng, about));
        }
        let table = table(rng);
        if rng.random_bool(0.2) {
            let inner = ["JOIN", "LEFT JOIN"].choose(rng).unwrap();
            let nested = format!("y{i}");
            from += &format!(
                " {kind} (t{table} AS {own} {inner} t{} AS {nested} ON {}) ON {on}",
                rng.random_range(1..5),
                key(rng, &own, &nested)
            );
            relations.push(nested);
        } else {
            from += &format!(" {kind} t{table} AS {own} ON {on}");
        }
        relations.push(own);
    }
    let mut conditions = Vec::new();
    for _ in 0..rng.random_range(0..3) {
        let relation = relations.choose(rng).unwrap().clone();
        conditions.push(match rng.random_range(0..6) {
            0 | 1 => subquery(rng, &relation),
            2 => {
                let other = relations.choose(rng).unwrap().clone();
                key(rng, &relation, &other)
            }
            _ => condition(rng, &relation),
        });
    }
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let columns: Vec<String> = (0..rng.random_range(1..5))
        .map(|_| format!("{}.{}", relations.choose(rng).unwrap(), ["a", "b", "c", "d"].choose(rng).unwrap()))
        .collect();
    match rng.random_range(0..3) {
        0 => {
            let (group, sum) = (&columns[0], relations.choose(rng).unwrap());
            format!("SELECT {group} AS g, count(*), count({sum}.a), sum({sum}.b) FROM {from}{filter} GROUP BY 1")
        }
        1 => {
            let columns: Vec<String> = columns.iter().enumerate().map(|(i, c)| format!("{c} AS c{i}")).collect();
            let inner = format!("SELECT {} FROM {from}{filter}", columns.join(", "));
            let kind = ["JOIN", "LEFT JOIN", "RIGHT JOIN"].choose(rng).unwrap();
            let wanted = if rng.random_bool(0.5) { " WHERE q.c0 IS NOT NULL" } else { "" };
            format!("SELECT q.*, z.d FROM ({inner}) AS q {kind} t3 AS z ON z.c = q.c0::text{wanted}")
        }
        _ => format!("SELECT {} FROM {from}{filter}", columns.join(", ")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_joins_have_the_same_rows_without_them() {
    let seed = serac_testing::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let queries = if serac_testing::stress() { 20_000 } else { 200 };
    let mut session = Session::new(&in_memory());
    make_tables(&mut session, &mut rng).await;
    let (mut answered, mut with_rows) = (0, 0);
    for _ in 0..queries {
        let sql = query(&mut rng);
        // Some regions have very many rows.
        let counted = format!("SELECT count(*) FROM (SELECT 1 FROM ({sql}) AS q LIMIT 20001) AS l");
        run(&mut session, &format!("SET serac.disabled_passes = '{PASSES}'")).await;
        if rows(&mut session, &counted).await.is_ok_and(|count| count == ["20001"]) {
            continue;
        }
        let expected = rows(&mut session, &sql).await;
        run(&mut session, "RESET serac.disabled_passes").await;
        let found = rows(&mut session, &sql).await;
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                assert!(expected == found, "SERAC_SEED={seed}: {sql}\n{} rows, not {}", found.len(), expected.len());
                answered += 1;
                with_rows += usize::from(!expected.is_empty());
            }
            (Err(_), Err(_)) => {}
            _ => panic!("SERAC_SEED={seed}: {sql}\n{found:?}, not {expected:?}"),
        }
    }
    assert!(answered > queries / 2 && with_rows > queries / 4, "{answered} answered, {with_rows} with rows");
}

/// Joins, and how often their plans have outer joins and anti-joins.
const PLANS: &[(&str, usize, usize)] = &[
    // A join above refuses the rows that the one below adds.
    ("f LEFT JOIN d ON d.id = f.d JOIN e ON e.id = d.e", 0, 0),
    ("f LEFT JOIN d ON d.id = f.d LEFT JOIN e ON e.id = d.e WHERE e.w > 3", 0, 0),
    ("(SELECT d.e AS k, f.v FROM f LEFT JOIN d ON d.id = f.d) AS q JOIN e ON e.id = q.k", 0, 0),
    ("f FULL JOIN d ON d.id = f.d JOIN e ON e.id = d.e", 1, 0),
    ("f LEFT JOIN d ON d.id = f.d WHERE EXISTS (SELECT 1 FROM e WHERE e.id = d.e)", 0, 0),
    // It does not.
    ("f LEFT JOIN d ON d.id = f.d WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.id = d.e)", 1, 1),
    ("f LEFT JOIN d ON d.id = f.d JOIN e ON e.id = coalesce(d.e, 0)", 1, 0),
    ("f LEFT JOIN d ON d.id = f.d LEFT JOIN e ON e.id = d.e", 2, 0),
    // Nothing that has met another is wanted.
    ("f LEFT JOIN d ON d.id = f.d WHERE d.id IS NULL", 0, 1),
    ("d RIGHT JOIN f ON d.id = f.d WHERE d.id IS NULL", 0, 1),
    ("f LEFT JOIN d ON d.id = f.d AND d.e > 3 WHERE d.e IS NULL AND f.v > 7", 0, 1),
    // Something may be.
    ("f LEFT JOIN d ON d.id = f.d WHERE d.e IS NULL", 1, 0),
    ("f LEFT JOIN d ON d.id = f.d WHERE d.id IS NULL OR f.v > 3", 1, 0),
];

async fn star() -> Session {
    let mut session = Session::new(&in_memory());
    let made = "CREATE TABLE e (id integer, w integer); INSERT INTO e SELECT g, g % 7 FROM generate_series(1, 20) AS g (g);
        CREATE TABLE d (id integer, e integer);
        INSERT INTO d SELECT g, CASE WHEN g % 9 > 0 THEN g % 25 END FROM generate_series(1, 150000) AS g (g);
        CREATE TABLE f (d integer, r integer, v integer);
        INSERT INTO f SELECT CASE WHEN g % 11 > 0 THEN g * 7 % 180000 END, g, g % 100 FROM generate_series(1, 400000) AS g (g);
        CREATE TABLE r (r integer, n integer); INSERT INTO r SELECT g * 5, g FROM generate_series(1, 60000) AS g (g); ANALYZE";
    run(&mut session, made).await;
    session
}

/// The plan of a query, whose rows are the same without passes.
async fn plan_of(session: &mut Session, query: &str, passes: &str) -> String {
    let plan = text(session, &format!("EXPLAIN {query}")).await;
    let found = rows(session, query).await.unwrap();
    run(session, &format!("SET serac.disabled_passes = '{passes}'")).await;
    assert_eq!(found, rows(session, query).await.unwrap(), "{query}");
    run(session, "RESET serac.disabled_passes").await;
    plan
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outer_joins_become_simpler_ones() {
    let mut session = star().await;
    for (joins, outer, anti) in PLANS {
        let plan = plan_of(&mut session, &format!("SELECT count(*) FROM {joins}"), PASSES).await;
        let count = |kinds: &[&str]| kinds.iter().map(|kind| plan.matches(&format!("join_type={kind},")).count()).sum();
        assert_eq!((*outer, *anti), (count(&["Left", "Right", "Full"]), count(&["LeftAnti", "RightAnti"])), "{plan}");
    }
}

/// A selective inner join stands below an outer, a semi- and an anti-join, which do not need it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selective_joins_come_before_others() {
    let mut session = star().await;
    let few = "JOIN d ON d.id = f.d JOIN e ON e.id = d.e WHERE e.w = 3 AND e.id < 5";
    let queries = [
        format!("f LEFT JOIN r ON r.r = f.r {few}"),
        format!("r RIGHT JOIN f ON r.r = f.r {few}"),
        format!("f {few} AND EXISTS (SELECT 1 FROM r WHERE r.r = f.r)"),
        format!("f {few} AND NOT EXISTS (SELECT 1 FROM r WHERE r.r = f.r)"),
        format!("f LEFT JOIN r ON r.r = f.r {few} AND r.r IS NULL"),
    ];
    for joins in queries {
        let query = format!("SELECT count(*), sum(f.v), min(f.r) FROM {joins}");
        let plan = plan_of(&mut session, &query, PASSES).await;
        let kinds: Vec<&str> = plan.split("join_type=").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
        assert!(kinds.len() == 3 && kinds[0] != "Inner" && kinds[1..] == ["Inner", "Inner"], "{query}\n{plan}");
    }
}

/// With two threads, one of them builds a table that is small beside the other side. It does not if
/// both sides are as large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_not_distributed_for_a_smaller_side() {
    let mut session = star().await;
    let queries = [
        ("SELECT sum(f.v), sum(d.e), count(*) FROM f LEFT JOIN d ON d.id = f.d", "CollectLeft"),
        ("SELECT sum(f.v), sum(d.e), count(*) FROM f FULL JOIN d ON d.id = f.d", "CollectLeft"),
        ("SELECT count(*) FROM f WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.id = f.d AND d.e <> f.v)", "CollectLeft"),
        ("SELECT sum(f.v), sum(g.v), count(*) FROM f JOIN f AS g ON g.r = f.r", "Partitioned"),
    ];
    for (query, mode) in queries {
        let plan = plan_of(&mut session, query, "join_modes").await;
        assert!(plan.contains(&format!("mode={mode}, ")), "{query}\n{plan}");
        run(&mut session, "SET serac.disabled_passes = 'join_modes'").await;
        let plan = text(&mut session, &format!("EXPLAIN {query}")).await;
        assert!(plan.contains("mode=Partitioned, "), "{query}\n{plan}");
        run(&mut session, "RESET serac.disabled_passes").await;
    }
}

/// A key filter reaches the scans of both sides of a join below that has the key on both, and those
/// of a union.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_filter_both_sides_of_joins_below() {
    let mut session = star().await;
    let few = "e.w = 3";
    let queries = [
        (format!("f JOIN f AS g ON g.r = f.r JOIN e ON e.id = g.r WHERE {few}"), 2),
        (
            format!(
                "(SELECT f.r, count(g.v) AS n FROM f LEFT JOIN f AS g ON g.r = f.r GROUP BY f.r) AS q JOIN e ON e.id = q.r WHERE {few} AND q.n >= 0"
            ),
            2,
        ),
        (
            format!(
                "(SELECT r FROM f UNION ALL SELECT r + 0 FROM f UNION ALL SELECT d FROM f) AS q JOIN e ON e.id = q.r WHERE {few}"
            ),
            2,
        ),
        (format!("(SELECT f.r FROM f WHERE f.r NOT IN (SELECT id FROM d)) AS q JOIN e ON e.id = q.r WHERE {few}"), 1),
    ];
    for (joins, scans) in queries {
        let query = format!("SELECT count(*), max(e.w) FROM {joins}");
        let plan = plan_of(&mut session, &query, PASSES).await;
        let big = plan.lines().filter(|line| line.contains("table=f") || line.contains("table=d"));
        assert!(big.filter(|line| line.contains("key_filters=[")).count() == scans, "{query}\n{plan}");
    }
}
