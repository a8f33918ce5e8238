//! Aggregates of many groups give what each group gives by itself, and many sums of one integer
//! what each sum gives by itself, errors included. `SERAC_SEED=n` replays a seed.

use crate::support::{in_memory, refused, run, text};
use rand::Rng;
use rand::rngs::StdRng;
use serac_sql::Session;

/// Aggregates whose result does not depend on the order of rows.
const AGGREGATES: [&str; 26] = [
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY f)",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY i DESC)",
    "percentile_cont(NULL) WITHIN GROUP (ORDER BY f)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY f) FILTER (WHERE i > 0)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY t)",
    "percentile_disc(0.9) WITHIN GROUP (ORDER BY d DESC)",
    "percentile_disc(0.1) WITHIN GROUP (ORDER BY n)",
    "percentile_disc(0) WITHIN GROUP (ORDER BY i) FILTER (WHERE t IS NULL)",
    "mode() WITHIN GROUP (ORDER BY i)",
    "mode() WITHIN GROUP (ORDER BY t DESC)",
    "mode() WITHIN GROUP (ORDER BY u) + 0.000",
    "stddev_samp(i)",
    "var_pop(b)",
    "variance(n) FILTER (WHERE i < 3)",
    "stddev(u)",
    "sum(u)",
    "avg(u)",
    "min(u) + 0.000",
    "max(u) + 0.000",
    "min(c)",
    "max(c) FILTER (WHERE i <> 2)",
    "round(corr(f, i)::numeric, 6)",
    "round(regr_slope(i, f) FILTER (WHERE f < 9)::numeric, 6)",
    "regr_count(f, i)",
    "round(covar_pop(f, i)::numeric, 6)",
    "any_value(i) IS NULL",
];

/// A table `t` with groups `k`; some values are NULL.
async fn table(session: &mut Session, rng: &mut StdRng, rows: usize, groups: i64) {
    run(session, "DROP TABLE IF EXISTS t").await;
    let columns =
        "k BIGINT, i INTEGER, b BIGINT, f DOUBLE PRECISION, n NUMERIC(9, 2), u NUMERIC, t TEXT, d DATE, c CHAR(5)";
    run(session, &format!("CREATE TABLE t ({columns})")).await;
    let mut values = Vec::new();
    for _ in 0..rows {
        let mut number = |below: i64| match rng.random_bool(0.85) {
            true => rng.random_range(-below..below).to_string(),
            false => "NULL".to_owned(),
        };
        let row = [number(groups), number(4), number(i64::MAX), number(20), number(999), number(30), number(4)];
        let [k, i, b, f, n, u, t] = row;
        let scale = ["1", "1.00", "1e25", "0.001"][rng.random_range(0..4)];
        values.push(format!(
            "({k}, {i}, {b}, {f}::DOUBLE PRECISION / 4, {n} / 7.0, {u} * {scale}, 'a text that is long ' || {t}, \
             DATE '2024-01-31' + {i}::int, ({t})::text)"
        ));
    }
    for values in values.chunks(500) {
        run(session, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_as_one_by_one() {
    let mut rng = serac_testing::rng();
    let mut session = Session::new(&in_memory());
    for (rows, groups) in [(0, 1), (40, 3), (1500, 8), (3000, 2000)] {
        table(&mut session, &mut rng, rows, groups).await;
        for aggregates in AGGREGATES.chunks(7) {
            let named = aggregates.iter().enumerate().map(|(at, aggregate)| format!("{aggregate} AS a{at}"));
            let aggregates = named.collect::<Vec<_>>().join(", ");
            run(&mut session, "DROP TABLE IF EXISTS r").await;
            run(&mut session, &format!("CREATE TABLE r AS SELECT k, {aggregates} FROM t GROUP BY k")).await;
            for k in -groups.min(9)..groups.min(9) {
                // Each group by itself, without GROUP BY.
                let alone = format!("SELECT {k}::bigint AS k, {aggregates} FROM t WHERE k = {k} HAVING count(*) > 0");
                let alone = text(&mut session, &alone).await;
                let of_group = text(&mut session, &format!("SELECT * FROM r WHERE k = {k}")).await;
                assert_eq!(of_group, alone, "{aggregates} of {k}");
            }
        }
    }
}

#[tokio::test]
async fn fractions_are_checked_for_rows() {
    let mut session = Session::new(&in_memory());
    run(&mut session, "CREATE TABLE t (k INT, f DOUBLE PRECISION)").await;
    let query = "SELECT k, percentile_cont(2) WITHIN GROUP (ORDER BY f) FROM t GROUP BY k";
    run(&mut session, query).await;
    run(&mut session, "INSERT INTO t VALUES (1, 2)").await;
    let error = refused(&mut session, query).await;
    assert_eq!(error.sqlstate, "22003", "{error}");
}

/// Sums of `column` with constants added, as many as become one aggregate.
fn sums(column: &str, constants: impl Iterator<Item = i64>) -> String {
    let sums = constants.enumerate().map(|(at, n)| match (at % 3, n) {
        (0, n) => format!("sum({column} + ({n}))"),
        (1, n) if n != i64::MIN => format!("sum({column} - ({}))", -n),
        _ => format!("sum(({n}) + {column})"),
    });
    sums.collect::<Vec<_>>().join(", ")
}

const OFF: &str = "SET serac.disabled_passes = 'shifted_sums'";

/// Runs a query with and without the pass. Both give the same rows or the same error.
async fn same(session: &mut Session, query: &str) -> Result<String, String> {
    let mut results = Vec::new();
    for setting in ["RESET serac.disabled_passes", OFF] {
        run(session, setting).await;
        let result = match session.execute(query).await {
            Ok(_) => Ok(text(session, query).await),
            Err(error) => Err(format!("{} {error}", error.sqlstate)),
        };
        results.push(result);
    }
    run(session, "RESET serac.disabled_passes").await;
    // Without the pass, sums by group are computed of rows, too, that FILTER leaves out.
    if !(query.contains("FILTER") && query.contains("GROUP BY") && results[1].is_err()) {
        assert_eq!(results[0], results[1], "{query}");
    }
    results.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sums_of_one_integer_are_as_each_of_them() {
    let mut rng = serac_testing::rng();
    let mut session = Session::new(&in_memory());
    run(&mut session, "CREATE TABLE s (k INT, a SMALLINT, b INT, c BIGINT)").await;
    let empty = format!("SELECT {} FROM s", sums("b", -4..5));
    let found = same(&mut session, &empty).await.unwrap();
    let row = found.lines().nth(3).unwrap_or_default();
    assert!(row.starts_with('|') && !row.contains(|character: char| character.is_ascii_digit()), "{found}");
    let grouped = format!("SELECT k, {} FROM s GROUP BY k", sums("b", -4..5));
    same(&mut session, &grouped).await.unwrap();
    for _ in 0..400 {
        let mut value = |most: i64| match rng.random_range(0..40) {
            0 => "NULL".to_owned(),
            1..3 => (most - rng.random_range(0..3)).to_string(),
            3 => (-most + rng.random_range(0..3)).to_string(),
            _ => rng.random_range(-999..999).to_string(),
        };
        let (a, b, c) = (value(32_767), value(2_147_483_647), value(i64::MAX));
        let k = rng.random_range(0..40);
        run(&mut session, &format!("INSERT INTO s VALUES ({k}, {a}, {b}, {c})")).await;
    }
    let plan = text(&mut session, &format!("EXPLAIN {grouped}")).await;
    assert!(plan.contains("shifted_sums"), "{plan}");
    let few = text(&mut session, &format!("EXPLAIN SELECT {} FROM s", sums("b", 0..3))).await;
    assert!(!few.contains("shifted_sums"), "{few}");
    let (mut failed, mut succeeded) = (0, 0);
    for at in 0..120 {
        let column = ["a", "b", "c", "(a::int)", "(b / 3)"][at % 5];
        let last = rng.random_range(0..6);
        let shifts = (0..9).map(|n| (n % 5) - last);
        let all = sums(column, shifts.collect::<Vec<_>>().into_iter());
        let filter = ["", " FILTER (WHERE k < 20)", " FILTER (WHERE a < 0)"][rng.random_range(0..3)];
        let all = all.split(", ").map(|sum| format!("{sum}{filter}")).collect::<Vec<_>>().join(", ");
        let more = ["", ", count(*)", ", sum(b), sum(DISTINCT a)", ", max(c) - min(c)"][rng.random_range(0..4)];
        let bound = ["", " WHERE b BETWEEN -2000 AND 2000 AND c BETWEEN -2000 AND 2000"][rng.random_range(0..2)];
        let query = match rng.random_range(0..4) {
            0 => format!("SELECT {all}{more} FROM s{bound}"),
            1 => format!("SELECT k, {all}{more} FROM s{bound} GROUP BY k ORDER BY k"),
            2 => format!("SELECT k, {all}{more} FROM s{bound} GROUP BY k HAVING count(*) > 12 ORDER BY k"),
            _ => format!("SELECT k % 3 AS k, {all}{more} FROM s{bound} GROUP BY ROLLUP (1) ORDER BY 1"),
        };
        match same(&mut session, &query).await {
            Ok(_) => succeeded += 1,
            Err(error) => {
                assert!(error.contains("22003"), "{error} of {query}");
                failed += 1;
            }
        }
    }
    assert!(failed > 10 && succeeded > 10, "{failed} failed, {succeeded} succeeded");
}

#[tokio::test]
async fn errors_of_many_sums_are_those_of_arithmetic() {
    let mut session = Session::new(&in_memory());
    run(&mut session, "CREATE TABLE s (k INT, b INT, c BIGINT)").await;
    run(&mut session, "INSERT INTO s VALUES (1, 2147483640, 9223372036854775800), (2, 5, 5)").await;
    for (column, message) in [("b", "integer out of range"), ("c", "bigint out of range")] {
        let fit = format!("SELECT {} FROM s", sums(column, -1..8));
        run(&mut session, &fit).await;
        let query = format!("SELECT k, {} FROM s GROUP BY k HAVING k > 1 LIMIT 1", sums(column, 0..9));
        run(&mut session, &query).await;
        // A group that no filter drops before it is summed up raises the error, also below LIMIT.
        let query = format!("SELECT k, {} FROM s GROUP BY k HAVING count(*) > 1 LIMIT 1", sums(column, 0..9));
        let error = refused(&mut session, &query).await;
        assert_eq!((error.sqlstate, error.message.as_str()), ("22003", message));
    }
}
