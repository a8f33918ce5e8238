//! Random GROUP BY with ROLLUP, CUBE and GROUPING SETS gives the rows of one GROUP BY for each set.

use crate::support::{in_memory, refused, run, sorted_lines, text};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::time::{Duration, Instant};

/// Keys: columns of several types, with NULL, and expressions.
const KEYS: [&str; 7] = ["i", "t", "d", "n", "f", "i % 3", "lower(t)"];

/// Aggregates whose states are merged, and that give the same in any order.
const MERGED: [&str; 25] = [
    "count(*)",
    "count(n)",
    "sum(i)",
    "sum(n)",
    "avg(n)",
    "sum(b)",
    "min(t)",
    "max(d)",
    "min(f)",
    "bool_and(i > 2)",
    "bit_xor(i)",
    "count(*) FILTER (WHERE n > 4)",
    "sum(i) FILTER (WHERE t IS NOT NULL)",
    "count(DISTINCT i)",
    "sum(DISTINCT n)",
    "round(var_pop(i)::numeric, 3)",
    "round(stddev_samp(n), 3)",
    "round(var_samp(DISTINCT f)::numeric, 3)",
    "round(corr(n, i)::numeric, 3)",
    "round(regr_slope(n, i)::numeric, 3)",
    "sum(f)",
    "avg(f)",
    "sum(i * 1.25::NUMERIC)",
    "bool_or(i > 8) FILTER (WHERE f > 0)",
    "max(b) - min(b)",
];

/// Aggregates that see all rows of each set.
const LISTED: [&str; 3] = [
    "string_agg(t, ',' ORDER BY t, id)",
    "array_to_string(array_agg(id ORDER BY id DESC), ' ')",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY i)",
];

/// The sets of a clause, as places of keys, and the clause.
fn clause(rng: &mut StdRng, keys: &[&str]) -> (Vec<Vec<usize>>, String) {
    let all: Vec<usize> = (0..keys.len()).collect();
    let listed = |set: &[usize]| set.iter().map(|key| keys[*key]).collect::<Vec<_>>().join(", ");
    match rng.random_range(0..4) {
        0 => (
            all.iter().rev().map(|last| all[..=*last].to_vec()).chain([vec![]]).collect(),
            format!("ROLLUP ({})", listed(&all)),
        ),
        1 => {
            let set = |bits: usize| all.iter().copied().filter(|key| bits >> key & 1 == 1).collect();
            ((0..1 << keys.len()).map(set).collect(), format!("CUBE ({})", listed(&all)))
        }
        // A key beside a set stands in each.
        2 if keys.len() > 1 => {
            let sets = all.iter().rev().map(|last| all[..=*last].to_vec()).collect();
            (sets, format!("{}, ROLLUP ({})", keys[0], listed(&all[1..])))
        }
        _ => {
            let set = |rng: &mut StdRng| all.iter().copied().filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>();
            let mut sets: Vec<Vec<usize>> = (0..rng.random_range(1..5)).map(|_| set(rng)).collect();
            sets.push(sets.choose(rng).unwrap().clone());
            sets.push(all.iter().copied().filter(|key| !sets.iter().flatten().any(|of| of == key)).collect());
            let shown = sets.iter().map(|set| format!("({})", listed(set))).collect::<Vec<_>>().join(", ");
            (sets, format!("GROUPING SETS ({shown})"))
        }
    }
}

/// A query with sets, and the same as UNION ALL of queries with one set each.
fn queries(rng: &mut StdRng, source: &str) -> (String, String) {
    let (key_count, aggregate_count) = (rng.random_range(1..=4), rng.random_range(0..5));
    let keys: Vec<&str> = KEYS.choose_multiple(rng, key_count).copied().collect();
    let (sets, clause) = clause(rng, &keys);
    let mut aggregates: Vec<&str> = MERGED.choose_multiple(rng, aggregate_count).copied().collect();
    if rng.random_bool(0.1) {
        aggregates.extend(LISTED.choose(rng));
    }
    let having = ["", " HAVING count(*) > 2", " HAVING sum(i) > 20 OR max(n) IS NULL"].choose(rng).unwrap();
    let source =
        format!("{source}{}", ["", " WHERE n > 3", " WHERE false"][rng.random_range(0..20usize).saturating_sub(17)]);
    let list = |items: Vec<String>| items.join(", ");
    let of_all = keys.iter().map(|key| (*key).to_owned()).chain([format!("grouping({})", keys.join(", "))]);
    let items = of_all.chain(aggregates.iter().map(|aggregate| (*aggregate).to_owned())).collect();
    let grouped = format!("SELECT {} FROM {source} GROUP BY {clause}{having}", list(items));
    let single = |set: &Vec<usize>| {
        let missing = (0..keys.len()).fold(0, |number, key| number << 1 | usize::from(!set.contains(&key)));
        let key = |(at, key): (usize, &&str)| match set.contains(&at) {
            true => (*key).to_owned(),
            // NULL with the type of the key, without which UNION ALL would make it a text.
            false => format!("CASE WHEN false THEN (SELECT {key} FROM g LIMIT 1) END"),
        };
        let items = keys.iter().enumerate().map(key).chain([missing.to_string()]);
        let items = items.chain(aggregates.iter().map(|aggregate| (*aggregate).to_owned())).collect();
        let by = match set.is_empty() {
            true => "()".to_owned(),
            false => set.iter().map(|key| keys[*key]).collect::<Vec<_>>().join(", "),
        };
        format!("SELECT {} FROM {source} GROUP BY {by}{having}", list(items))
    };
    (grouped, sets.iter().map(single).collect::<Vec<_>>().join(" UNION ALL "))
}

async fn session() -> Session {
    let mut session = Session::new(&in_memory());
    run(
        &mut session,
        "CREATE TABLE g (id BIGINT PRIMARY KEY, i INTEGER, t TEXT, d DATE, n NUMERIC(10,2), f DOUBLE PRECISION, b BIGINT);
        INSERT INTO g SELECT x, nullif(x * 7 % 11, 0), nullif('T' || x * 5 % 7, 'T0'),
            DATE '2024-01-01' + (x * 3 % 9)::INTEGER, nullif(x % 13, 5), (x % 4) / 2.0, x * 100000000000
            FROM generate_series(1, 3000) AS s (x);
        CREATE TABLE h (i INTEGER, w TEXT); INSERT INTO h SELECT x, 'w' || x % 3 FROM generate_series(1, 8) AS s (x);
        ANALYZE",
    )
    .await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_give_the_rows_of_one_group_by_each() {
    let mut rng = serac_testing::rng();
    let mut session = session().await;
    let sources = ["g", "(SELECT g.* FROM g JOIN h USING (i)) AS q", "(SELECT * FROM g ORDER BY t, id) AS q"];
    let mut in_levels = 0;
    for _ in 0..if serac_testing::stress() { 2_000 } else { 80 } {
        let source = sources.choose(&mut rng).unwrap();
        let (grouped, union) = queries(&mut rng, source);
        let plan = text(&mut session, &format!("EXPLAIN {grouped}")).await;
        in_levels += usize::from(plan.contains("GroupingLevelsExec"));
        let expected = sorted_lines(&mut session, &union).await;
        assert_eq!(sorted_lines(&mut session, &grouped).await, expected, "{grouped}");
        run(&mut session, "SET serac.disabled_passes = 'grouping_levels'").await;
        assert_eq!(sorted_lines(&mut session, &grouped).await, expected, "{grouped}, without the pass");
        run(&mut session, "RESET serac.disabled_passes").await;
    }
    assert!(in_levels > 40, "{in_levels} plans have levels");
}

/// Many groups in little memory: what does not fit is merged later, or goes to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_take_no_more_memory_than_there_is() {
    let options = SqlOptions { memory_limit: Some(24 << 20), threads: Some(2), ..SqlOptions::default() };
    let mut session = Session::new(&SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap());
    let sql = "SELECT count(*), sum(n) FROM (SELECT count(*) AS n, sum(x) AS s, max(x::TEXT) AS m \
        FROM generate_series(1, 100000) AS g (x) GROUP BY ROLLUP (x % 7, x % 1000, x)) AS q";
    assert!(text(&mut session, &format!("EXPLAIN {sql}")).await.contains("GroupingLevelsExec"));
    assert_eq!(sorted_lines(&mut session, sql).await, ["107008|400000"]);
}

/// States for which there is no memory to merge them are handed on, and levels leave memory to the
/// step above. A single thread has the same memory at every step of each run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_need_no_more_memory_than_there_is() {
    let mut session = Session::new(&in_memory());
    run(
        &mut session,
        "CREATE TABLE t AS SELECT x % 7 AS a, x % 1000 AS b, x::BIGINT * 7919 % 100003 AS c, 'text of ' || x AS d
            FROM generate_series(1, 60000) AS s (x); SET threads = 1; SET work_mem = '9MB'",
    )
    .await;
    let sql = "SELECT count(*), sum(n), max(m) FROM (SELECT count(*) AS n, max(d) AS m FROM t \
        GROUP BY ROLLUP (c, b, a)) AS q";
    assert!(text(&mut session, &format!("EXPLAIN {sql}")).await.contains("GroupingLevelsExec"));
    assert_eq!(sorted_lines(&mut session, sql).await, ["180001|240000|text of 9999"]);
}

/// Levels are made for a long time without any row that comes out of the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_can_be_cancelled() {
    let mut session = Session::new(&in_memory());
    let sql = "SELECT count(*) FROM (SELECT 1 FROM generate_series(1, 1000000000000) AS g (x) \
        GROUP BY CUBE (x, x % 1000, x % 1001, x % 1003, x % 1007)) AS q";
    let handle = session.cancel_handle();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        handle.cancel();
    });
    let began = Instant::now();
    assert_eq!(refused(&mut session, sql).await.sqlstate, "57014");
    assert!(began.elapsed() < Duration::from_secs(25), "cancelled after {:?}", began.elapsed());
    canceller.await.unwrap();
}
