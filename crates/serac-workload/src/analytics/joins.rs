//! Joins of the shapes of the database-like ops benchmark: a table with three others, of a
//! millionth, a thousandth, and all of its rows. Nine keys of ten have a partner on the other side.

use super::columns::Columns;
use super::{Answer, Query, Table};
use crate::random::{Random, mixed};
use arrow::array::RecordBatch;
use std::ops::Range;

/// The keys of a join, numbers from 1 on. Nine tenths of `count` are on both sides, one tenth only
/// on the left, and as many only on the right.
#[derive(Clone, Copy)]
struct Keys {
    count: u64,
}

impl Keys {
    fn new(rows: u64, part: u64) -> Self {
        Self { count: (rows / part).max(10) }
    }

    /// One of the keys of the left side.
    fn left(self, random: &mut Random) -> i32 {
        self.number(random.below(self.count))
    }

    /// The key of a row of the right side, which has each key once.
    fn right(self, row: u64) -> i32 {
        let only_left = self.count - self.count * 9 / 10;
        self.number(if row < self.count * 9 / 10 { row } else { row + only_left })
    }

    /// Spreads the keys over all numbers, so that rows are in no order and sides are mixed.
    fn number(self, key: u64) -> i32 {
        let all = self.count + self.count - self.count * 9 / 10;
        // A prime above all numbers of keys, which therefore divides none of them.
        (key * 2_147_483_647 % all) as i32 + 1
    }
}

fn name(number: i32) -> String {
    format!("id{number}")
}

/// A random number for each row, with six digits behind the point.
fn values(range: Range<u64>, random: &mut Random) -> Vec<f64> {
    range.map(|_| random.below(100_000_000) as f64 / 1e6).collect()
}

pub(super) fn tables(rows: u64) -> Vec<Table> {
    let keys = [Keys::new(rows, 1_000_000), Keys::new(rows, 1_000), Keys::new(rows, 1)];
    let left = move |range: Range<u64>, mut random: Random| {
        let ids = keys.map(|keys| range.clone().map(|_| keys.left(&mut random)).collect::<Vec<_>>());
        with_keys(&ids, "v1", values(range, &mut random))
    };
    let right = move |level: usize| {
        move |range: Range<u64>, mut random: Random| {
            // The keys of the smaller joins, of which nothing depends, and its own.
            let id = |of: usize| -> Vec<i32> {
                range
                    .clone()
                    .map(|row| match of == level {
                        true => keys[of].right(row),
                        false => keys[of].left(&mut Random::new(mixed(row * 3 + of as u64))),
                    })
                    .collect()
            };
            with_keys(&(0..=level).map(id).collect::<Vec<_>>(), "v2", values(range.clone(), &mut random))
        }
    };
    vec![
        Table::new("x", rows, left),
        Table::new("small", keys[0].count, right(0)),
        Table::new("medium", keys[1].count, right(1)),
        Table::new("big", keys[2].count, right(2)),
    ]
}

/// The keys as integers and as texts, and a value.
fn with_keys(ids: &[Vec<i32>], value: &'static str, values: Vec<f64>) -> RecordBatch {
    let mut columns = Columns::default();
    for (id, name) in ids.iter().zip(["id1", "id2", "id3"]) {
        columns = columns.int(name, id.iter().copied());
    }
    for (id, text) in ids.iter().zip(["id4", "id5", "id6"]) {
        columns = columns.text(text, id.iter().map(|number| name(*number)));
    }
    columns.float(value, values.into_iter()).batch()
}

pub(super) fn queries() -> Vec<Query> {
    let sums = "count(*), sum(v1), sum(v2)";
    let query = |name: &str, sql: &str| Query::new(name, sql, Answer::Sums(sums));
    vec![
        query(
            "small inner on integer",
            "SELECT x.*, small.id4 AS small_id4, v2 FROM x JOIN small ON x.id1 = small.id1",
        ),
        query(
            "medium inner on integer",
            "SELECT x.*, medium.id1 AS medium_id1, medium.id4 AS medium_id4, medium.id5 AS medium_id5, v2 \
             FROM x JOIN medium ON x.id2 = medium.id2",
        ),
        query(
            "medium outer on integer",
            "SELECT x.*, medium.id1 AS medium_id1, medium.id4 AS medium_id4, medium.id5 AS medium_id5, v2 \
             FROM x LEFT JOIN medium ON x.id2 = medium.id2",
        ),
        query(
            "medium inner on text",
            "SELECT x.*, medium.id1 AS medium_id1, medium.id2 AS medium_id2, medium.id4 AS medium_id4, v2 \
             FROM x JOIN medium ON x.id5 = medium.id5",
        ),
        query(
            "big inner on integer",
            "SELECT x.*, big.id1 AS big_id1, big.id2 AS big_id2, big.id4 AS big_id4, big.id5 AS big_id5, \
             big.id6 AS big_id6, v2 FROM x JOIN big ON x.id3 = big.id3",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nine_keys_of_ten_are_on_both_sides() {
        for count in [10, 1_000, 12_345] {
            let keys = Keys { count };
            let left: HashSet<i32> = (0..count).map(|key| keys.number(key)).collect();
            let right: HashSet<i32> = (0..count).map(|row| keys.right(row)).collect();
            assert_eq!((left.len() as u64, right.len() as u64), (count, count));
            assert_eq!(left.intersection(&right).count() as u64, count * 9 / 10);
        }
    }
}
