//! Aggregations of the shapes of the database-like ops benchmark: keys of few and of many values,
//! as texts and as integers, alone and together.

use super::columns::Columns;
use super::{Answer, Query, Table};
use crate::random::Random;
use std::ops::Range;

/// Values of a key of few values. A key of many has a value for so many rows.
const FEW: u64 = 100;

pub(super) fn table(rows: u64) -> Table {
    let many = (rows / FEW).max(1);
    Table::new("x", rows, move |range: Range<u64>, mut random: Random| {
        let mut numbers = |limit: u64| range.clone().map(|_| random.below(limit) as i32 + 1).collect::<Vec<_>>();
        let texts = [FEW, FEW, many].map(&mut numbers);
        let [id4, id5, id6, v1, v2] = [FEW, FEW, many, 5, 15].map(&mut numbers);
        let v3 = range.map(|_| random.below(100_000_000) as f64 / 1e6);
        Columns::default()
            .text("id1", texts[0].iter().map(|number| format!("id{number:03}")))
            .text("id2", texts[1].iter().map(|number| format!("id{number:03}")))
            .text("id3", texts[2].iter().map(|number| format!("id{number:010}")))
            .int("id4", id4.into_iter())
            .int("id5", id5.into_iter())
            .int("id6", id6.into_iter())
            .int("v1", v1.into_iter())
            .int("v2", v2.into_iter())
            .float("v3", v3)
            .batch()
    })
}

/// Names, queries, and the aggregates over their answers.
const QUERIES: [(&str, &str, &str); 10] = [
    ("sum by id1", "SELECT id1, sum(v1) AS v1 FROM x GROUP BY id1", "count(*), sum(v1), min(id1), max(id1)"),
    (
        "sum by id1, id2",
        "SELECT id1, id2, sum(v1) AS v1 FROM x GROUP BY id1, id2",
        "count(*), sum(v1), max(v1), min(id1), max(id2)",
    ),
    (
        "sum, mean by id3",
        "SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM x GROUP BY id3",
        "count(*), sum(v1), sum(v3), min(id3)",
    ),
    (
        "means by id4",
        "SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM x GROUP BY id4",
        "count(*), sum(id4), sum(v1), sum(v2), sum(v3)",
    ),
    (
        "sums by id6",
        "SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM x GROUP BY id6",
        "count(*), sum(id6), sum(v1), sum(v2), sum(v3)",
    ),
    (
        "median, deviation by id4, id5",
        "SELECT id4, id5, percentile_cont(0.5) WITHIN GROUP (ORDER BY v3) AS median_v3, stddev_samp(v3) AS sd_v3 \
         FROM x GROUP BY id4, id5",
        "count(*), sum(id4), sum(id5), sum(median_v3), sum(sd_v3)",
    ),
    (
        "range by id3",
        "SELECT id3, max(v1) - min(v2) AS range_v1_v2 FROM x GROUP BY id3",
        "count(*), sum(range_v1_v2), max(id3)",
    ),
    (
        "two largest by id6",
        "SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS place FROM x) \
         AS placed WHERE place <= 2",
        "count(*), sum(id6), sum(v3)",
    ),
    (
        "regression by id2, id4",
        "SELECT id2, id4, power(corr(v1, v2), 2) AS r2 FROM x GROUP BY id2, id4",
        // Where one of the values is constant, DuckDB has NaN, and PostgreSQL NULL.
        "count(*), sum(id4), sum(CASE WHEN r2 BETWEEN 0 AND 1 THEN r2 ELSE 0 END), min(id2)",
    ),
    (
        "sum, count by six keys",
        "SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count(*) AS rows FROM x \
         GROUP BY id1, id2, id3, id4, id5, id6",
        "count(*), sum(id4), sum(id5), sum(id6), sum(v3), sum(rows), min(id1), max(id2), max(id3)",
    ),
];

pub(super) fn queries() -> Vec<Query> {
    QUERIES.iter().map(|(name, sql, sums)| Query::new(*name, *sql, Answer::Sums(sums))).collect()
}
