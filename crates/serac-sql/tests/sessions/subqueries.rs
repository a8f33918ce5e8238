//! Correlated subqueries equal runs for each outer row, with its values in place of the references.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::in_memory;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_sql::{Session, SqlError, StatementResult};

/// A row of numbers; truth values are 0 and 1.
type Row = Vec<Option<i64>>;
/// Whether an outer row stays, given the subquery's value.
type Keeps<'a> = dyn Fn(&Row, Option<i64>) -> bool + 'a;

async fn rows(session: &mut Session, sql: &str) -> Result<Vec<Row>, SqlError> {
    let Some(StatementResult::Rows { batches, .. }) = session.execute(sql).await?.pop() else { panic!("{sql}") };
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch.columns().iter().map(|c| cast(c, &DataType::Int64).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let value =
                |c: &std::sync::Arc<dyn Array>| (!c.is_null(row)).then(|| c.as_primitive::<Int64Type>().value(row));
            rows.push(columns.iter().map(value).collect());
        }
    }
    Ok(rows)
}

fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(rng).unwrap()
}

/// A condition on `i`, the inner table, in which `{a}` is a column of the outer one.
fn condition(rng: &mut StdRng) -> String {
    const CONDITIONS: [&str; 14] = [
        "i.a = {a}",
        "i.a = {a}",
        "i.b = {b}",
        "i.a > {a}",
        "i.b <= {b}",
        "i.a + i.b < {a}",
        "i.k <> {id}",
        "({b} IS NULL OR i.a = {b})",
        "i.a IN ({a}, {b})",
        "i.a = 1",
        "{a} > 1",
        "EXISTS (SELECT 1 FROM i j WHERE j.a = i.a AND j.k > {id})",
        "i.b > (SELECT min(j.b) FROM i j WHERE j.a >= {a} AND j.k <> i.k)",
        "i.b NOT IN (SELECT j.b FROM i j WHERE j.a = {a} AND j.k > i.k)",
    ];
    let first = pick(rng, &CONDITIONS);
    match rng.random_range(0..4) {
        0 => format!("({first} OR {})", pick(rng, &CONDITIONS)),
        1 => format!("{first} AND {}", pick(rng, &CONDITIONS)),
        _ => first.to_owned(),
    }
}

/// A query of one column.
fn subquery(rng: &mut StdRng) -> String {
    let w = condition(rng);
    let v = pick(rng, &["i.b", "i.a", "i.k", "i.b + {b}", "{a}"]);
    let offset = pick(rng, &["", "", " OFFSET 1"]);
    match rng.random_range(0..13) {
        0..3 => format!("SELECT {}({v}) FROM i WHERE {w}", pick(rng, &["max", "min", "sum", "count"])),
        3 => format!("SELECT count(*) + coalesce({{a}}, 0) FROM i WHERE {w}"),
        4 => format!("SELECT count(*) FROM i WHERE {w} HAVING count(*) > 1"),
        5 => format!("SELECT {v} FROM i WHERE {w} ORDER BY i.b NULLS FIRST, i.k LIMIT 1{offset}"),
        6 => format!("SELECT {v} FROM i WHERE {w}"),
        7 => format!("SELECT max(x.n) FROM (SELECT i.a, count(*) AS n FROM i WHERE {w} GROUP BY i.a) x"),
        8 => format!(
            "SELECT count(y.k) FROM i LEFT JOIN (SELECT i.k, i.a FROM i WHERE {w}) y ON y.a = i.a AND y.k > {{id}}"
        ),
        9 => format!("SELECT count(*) FROM (SELECT i.a FROM i WHERE {w} UNION SELECT i.b FROM i WHERE i.a = {{b}}) x"),
        10 => format!("SELECT DISTINCT {v} FROM i WHERE {w}"),
        11 => format!(
            "SELECT x.r FROM (SELECT i.k, row_number() OVER (ORDER BY i.k DESC) AS r FROM i WHERE {w}) x WHERE x.k > {{id}}"
        ),
        _ => format!(
            "SELECT sum(s.z) FROM i, LATERAL (SELECT j.b + i.k AS z FROM i j WHERE j.a < i.a AND j.k <> {{id}}) s WHERE {w}"
        ),
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Scalar,
    Exists { negated: bool },
    In { negated: bool },
    Greater { all: bool },
}

impl Form {
    fn sql(self, subquery: &str) -> String {
        match self {
            Self::Scalar => format!("({subquery})"),
            Self::Exists { negated } => format!("{}EXISTS ({subquery})", if negated { "NOT " } else { "" }),
            Self::In { negated } => format!("o.a {}IN ({subquery})", if negated { "NOT " } else { "" }),
            Self::Greater { all } => format!("o.a > {} ({subquery})", if all { "ALL" } else { "ANY" }),
        }
    }

    /// The value, given the subquery's rows. An error if there are too many.
    fn value(self, a: Option<i64>, rows: &[Row]) -> Result<Option<i64>, ()> {
        let holds = |test: fn(i64, i64) -> bool| {
            let tests = || rows.iter().map(|row| Some(test(a?, row[0]?)));
            if tests().any(|t| t == Some(true)) { Some(true) } else { tests().all(|t| t.is_some()).then_some(false) }
        };
        let truth = match self {
            Self::Scalar if rows.len() > 1 => return Err(()),
            Self::Scalar => return Ok(rows.first().and_then(|row| row[0])),
            Self::Exists { negated } => Some(rows.is_empty() == negated),
            Self::In { negated } => holds(|a, v| a == v).map(|found| found != negated),
            Self::Greater { all: false } => holds(|a, v| a > v),
            Self::Greater { all: true } => holds(|a, v| a <= v).map(|found| !found),
        };
        Ok(truth.map(i64::from))
    }
}

fn with_values(sql: &str, outer: &Row) -> String {
    let literal = |v: Option<i64>| v.map_or("CAST(NULL AS INT)".into(), |v| format!("CAST({v} AS INT)"));
    let names = ["{id}", "{a}", "{b}"];
    names.iter().zip(outer).fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, &literal(*value)))
}
fn with_columns(sql: &str) -> String {
    sql.replace("{id}", "o.id").replace("{a}", "o.a").replace("{b}", "o.b")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn correlated_subqueries_give_what_they_give_row_by_row() {
    let mut rng = serac_testing::rng();
    let queries = if serac_testing::stress() { 3_000 } else { 60 };
    let mut session = Session::new(&in_memory());
    session
        .execute("CREATE TABLE o (id INT PRIMARY KEY, a INT, b INT); CREATE TABLE i (k INT PRIMARY KEY, a INT, b INT)")
        .await
        .unwrap();
    for (table, count) in [("o", 8), ("i", 10)] {
        for key in 0..count {
            let mut value = || if rng.random_bool(0.2) { "NULL".into() } else { rng.random_range(0..5).to_string() };
            let (a, b) = (value(), value());
            session.execute(&format!("INSERT INTO {table} VALUES ({key}, {a}, {b})")).await.unwrap();
        }
    }
    let outer = rows(&mut session, "SELECT id, a, b FROM o ORDER BY id").await.unwrap();
    let mut answered = 0;
    for _ in 0..queries {
        let inner = subquery(&mut rng);
        let mut inner_rows = Vec::new();
        for row in &outer {
            inner_rows.push(rows(&mut session, &with_values(&inner, row)).await.unwrap());
        }
        let negated = rng.random_bool(0.5);
        let form = match rng.random_range(0..5) {
            0 | 1 => Form::Scalar,
            2 => Form::Exists { negated },
            3 => Form::In { negated },
            _ => Form::Greater { all: negated },
        };
        let expr = with_columns(&form.sql(&inner));
        let values: Vec<_> = outer.iter().zip(&inner_rows).map(|(o, rows)| form.value(o[1], rows)).collect();
        let condition = if matches!(form, Form::Scalar) { format!("{expr} > 1") } else { expr.clone() };
        let truth = |value: Option<i64>| match form {
            Form::Scalar => value.map(|v| v > 1),
            _ => value.map(|v| v == 1),
        };
        let or = |l: Option<bool>, r: Option<bool>| match (l, r) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let (sql, kept): (String, Box<Keeps<'_>>) = match rng.random_range(0..6) {
            0 => (condition, Box::new(|_, v| truth(v) == Some(true))),
            1 => (format!("NOT ({condition})"), Box::new(|_, v| truth(v) == Some(false))),
            2 => (format!("{condition} OR o.b = 1"), Box::new(|o, v| or(truth(v), o[2].map(|b| b == 1)) == Some(true))),
            3 => (
                format!("NOT ({condition} OR o.b = 1)"),
                Box::new(|o, v| or(truth(v), o[2].map(|b| b == 1)) == Some(false)),
            ),
            _ => (String::new(), Box::new(|_, _| true)),
        };
        let (sql, expected): (String, Vec<Row>) = match sql.is_empty() {
            true => {
                let expected = outer.iter().zip(&values).map(|(o, v)| vec![o[0], v.unwrap_or(None)]).collect();
                (format!("SELECT o.id, {expr} AS v FROM o ORDER BY o.id"), expected)
            }
            false => {
                let kept = outer.iter().zip(&values).filter(|(o, v)| kept(o, v.unwrap_or(None)));
                (format!("SELECT o.id FROM o WHERE {sql} ORDER BY o.id"), kept.map(|(o, _)| vec![o[0]]).collect())
            }
        };
        match rows(&mut session, &sql).await {
            Ok(found) => {
                answered += 1;
                // A condition need not be evaluated for rows that others exclude.
                if values.iter().all(Result::is_ok) {
                    assert_eq!(found, expected, "{sql}");
                } else {
                    assert!(sql.contains("o.b = 1"), "21000 is missing: {sql}");
                }
            }
            // An aggregate of outer columns alone is one of the query around.
            Err(error) if error.sqlstate == "42803" => assert!(sql.contains("(o."), "{sql}: {error}"),
            Err(error) if values.iter().any(Result::is_err) => assert_eq!(error.sqlstate, "21000", "{sql}: {error}"),
            Err(error) => assert_eq!(error.sqlstate, "0A000", "{sql}: {error}"),
        }
        // All rows, beside the outer ones.
        let left = rng.random_bool(0.5);
        let join = if left { "LEFT JOIN LATERAL" } else { "JOIN LATERAL" };
        let sql = format!("SELECT o.id, s.v FROM o {join} ({}) AS s(v) ON true", with_columns(&inner));
        match rows(&mut session, &sql).await {
            Ok(mut found) => {
                answered += 1;
                let mut expected: Vec<Row> = Vec::new();
                for (o, rows) in outer.iter().zip(&inner_rows) {
                    expected.extend(rows.iter().map(|row| vec![o[0], row[0]]));
                    if rows.is_empty() && left {
                        expected.push(vec![o[0], None]);
                    }
                }
                expected.sort();
                found.sort();
                assert_eq!(found, expected, "{sql}");
            }
            Err(error) if error.sqlstate == "42803" => assert!(sql.contains("(o."), "{sql}: {error}"),
            Err(error) => assert_eq!(error.sqlstate, "0A000", "{sql}: {error}"),
        }
    }
    assert!(answered * 10 > queries * 16, "{answered} of {} answered", queries * 2);
}
