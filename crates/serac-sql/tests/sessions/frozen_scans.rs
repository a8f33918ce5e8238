//! Scans of frozen blocks: without copies, by dictionary codes, and with the answers that hot
//! blocks give.
//!
//! `SERAC_STRESS=1` asks more queries; `SERAC_SEED=n` replays a seed.

use crate::support::{batches, text};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::BlockNo;
use std::collections::HashSet;

fn session() -> (Database, Session) {
    let database = Database::in_memory().unwrap();
    let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).unwrap();
    (database, Session::new(&db))
}

/// The addresses of the array's buffers.
fn addresses(array: &ArrayRef) -> Vec<usize> {
    let data = array.to_data();
    data.buffers().iter().chain(data.nulls().map(|nulls| nulls.buffer())).map(|b| b.as_ptr() as usize).collect()
}

#[tokio::test]
async fn a_scan_gives_the_frozen_blocks_own_buffers() {
    let (database, mut session) = session();
    let create = "CREATE TABLE t (id BIGINT, day DATE, name TEXT, flag SMALLINT);
                  INSERT INTO t SELECT i, DATE '2020-01-01' + (i / 100)::INT, 'a name that needs the heap ' || i, \
                    CASE WHEN i % 3 = 0 THEN 1 END FROM generate_series(1, 100000) AS g (i);
                  FREEZE TABLE t";
    session.execute(create).await.unwrap();
    let table = database.catalog().table("public", "t").unwrap().clone();
    let mut owned = HashSet::new();
    for no in 0..table.data.block_count() {
        // A block whose rows have moved to others is gone.
        let Some(block) = table.data.block(BlockNo(no)) else { continue };
        let frozen = block.frozen().expect("the block is frozen");
        frozen.arrays(table.data.schema()).iter().for_each(|array| owned.extend(addresses(array)));
    }
    let found = batches(&mut session, "SELECT name, id, flag, day FROM t").await;
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
    for (i, array) in found.iter().flat_map(RecordBatch::columns).enumerate() {
        for address in addresses(array) {
            assert!(owned.contains(&address), "column {} was copied", i % 4);
        }
    }
}

#[tokio::test]
async fn blocks_without_the_word_are_skipped() {
    let (_, mut session) = session();
    let create = "CREATE TABLE t (id INT, kind TEXT, data BYTEA) WITH (freeze_format = dictionary);
                  INSERT INTO t SELECT i, CASE WHEN i > 99000 THEN 'the late kind' ELSE 'kind ' || i % 5 END, \
                    CASE WHEN i % 2 = 0 THEN 'even'::BYTEA ELSE 'odd'::BYTEA END FROM generate_series(1, 100000) AS g (i);
                  FREEZE TABLE t";
    session.execute(create).await.unwrap();
    let blocks = text(&mut session, "SELECT count(*) AS n FROM serac_blocks").await;
    let blocks: usize = blocks.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    assert!(blocks > 1);
    for (filter, rows, skipped) in [
        ("kind = 'nowhere'", 0, blocks),
        ("kind = 'the late kind'", 1_000, blocks - 1),
        ("kind IN ('the late kind', 'x', 'y', 'z', 'nowhere')", 1_000, blocks - 1),
        ("kind IN ('the late kind', 'kind 3', 'y', 'z', 'nowhere')", 1_000 + 19_800, 0),
        ("kind = 'nowhere' OR kind = 'kind 1'", 19_800, 0),
        ("data = 'neither'::BYTEA AND kind LIKE '%'", 0, blocks),
        ("kind LIKE '%late%'", 1_000, 0),
        ("kind NOT IN ('nowhere')", 100_000, 0),
    ] {
        let plan = text(&mut session, &format!("EXPLAIN ANALYZE SELECT id FROM t WHERE {filter}")).await;
        // The measurements stand below the scan.
        let scan = plan.lines().skip_while(|line| !line.contains("SeracScanExec")).nth(1).unwrap();
        let found = batches(&mut session, &format!("SELECT id FROM t WHERE {filter}")).await;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{filter}");
        assert!(scan.contains(&format!("blocks_skipped={skipped}")), "{filter}: {skipped} blocks\n{scan}");
    }
}

const WORDS: [&str; 7] =
    ["", "short", "exactly 12 b", "thirteen byte", "a word that needs the heap", "a word that differs late", "ßé 中"];

/// A comparison of a number, date or time with a constant.
fn comparison_of_numbers(rng: &mut StdRng) -> String {
    let constant = |rng: &mut StdRng, column: &str| match (column, rng.random_range(-10..110i64)) {
        ("s", n) => format!("{}::SMALLINT", n - 50),
        ("n", n) if n % 10 == 0 => {
            ["'-9223372036854775808'::BIGINT", "9223372036854775807"][rng.random_range(0..2)].into()
        }
        ("n", n) => format!("{}", n * 1_000_000_007),
        ("price", n) => format!("{}.25", n),
        ("wide", n) => format!("{}", n * 100_000),
        ("day", n) => format!("DATE '2024-01-01' + {n}"),
        ("at", n) => format!("TIMESTAMP '2024-01-01' + {n} * INTERVAL '1 hour'"),
        (_, n) => format!("{}", 30 * n),
    };
    let columns = ["id", "s", "n", "price", "wide", "day", "at"];
    let column = columns[rng.random_range(0..columns.len())];
    match rng.random_range(0..4) {
        0 => format!("{column} BETWEEN {} AND {}", constant(rng, column), constant(rng, column)),
        1 => format!("{column} IN ({}, {})", constant(rng, column), constant(rng, column)),
        _ => {
            let operator = ["=", "<>", "<", "<=", ">", ">="][rng.random_range(0..6)];
            format!("{column} {operator} {}", constant(rng, column))
        }
    }
}

/// A condition on one column or a few.
fn condition(rng: &mut StdRng, depth: u32) -> String {
    let pick = |rng: &mut StdRng| match rng.random_range(0..8) {
        0 => "nowhere".to_owned(),
        1 => format!("name {}", rng.random_range(0..3_000)),
        _ => WORDS[rng.random_range(0..WORDS.len())].to_owned(),
    };
    if rng.random_bool(0.5) {
        return comparison_of_numbers(rng);
    }
    let column = ["kind", "kind", "name", "data"][rng.random_range(0..4)];
    let literal = |rng: &mut StdRng| {
        let text = pick(rng);
        if column == "data" { format!("CAST('{text}' AS BYTEA)") } else { format!("'{text}'") }
    };
    match rng.random_range(0..if depth > 0 { 12 } else { 9 }) {
        0 | 1 => format!("{column} = {}", literal(rng)),
        2 => format!("{column} <> {}", literal(rng)),
        3 => {
            let list: Vec<String> = (0..rng.random_range(1..7)).map(|_| literal(rng)).collect();
            let not = if rng.random_bool(0.3) { "NOT " } else { "" };
            format!("{column} {not}IN ({})", list.join(", "))
        }
        4 => format!("{column} {} {}", ["<", "<=", ">", ">="][rng.random_range(0..4)], literal(rng)),
        5 => format!("{column} IS {}NULL", if rng.random_bool(0.5) { "NOT " } else { "" }),
        6 => format!("id % {} = 0", rng.random_range(1..5)),
        7 if column != "data" => {
            let word = pick(rng);
            let part: String = word.chars().skip(1).take(6).collect();
            let not = if rng.random_bool(0.3) { "NOT " } else { "" };
            format!("{column} {not}LIKE '%{part}%'")
        }
        7 | 8 if column == "data" => format!("({column} IS NOT DISTINCT FROM {})", literal(rng)),
        7 | 8 => format!("coalesce({column}, {}) = {}", literal(rng), literal(rng)),
        9 => format!("({} OR {})", condition(rng, depth - 1), condition(rng, depth - 1)),
        10 => format!("({} AND {})", condition(rng, depth - 1), condition(rng, depth - 1)),
        _ => format!("NOT ({})", condition(rng, depth - 1)),
    }
}

#[tokio::test]
async fn every_format_gives_the_answers_of_hot_blocks() {
    let seed = serac_testing::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let (_, mut session) = session();
    let formats = ["never", "view", "utf8", "dictionary", "compact"];
    let rows: Vec<String> = (0..3_000)
        .map(|id| {
            let word = |rng: &mut StdRng| match rng.random_range(0..10) {
                0 => "NULL".to_owned(),
                _ => format!("'{}'", WORDS[rng.random_range(0..WORDS.len())]),
            };
            let kind = word(&mut rng);
            let name = if id % 50 == 0 { "NULL".into() } else { format!("'name {id}'") };
            let data = word(&mut rng);
            let s = if id % 9 == 0 { "NULL".into() } else { format!("{}", id % 100 - 50) };
            let n = match id % 700 {
                5 => "NULL".into(),
                6 => format!("{}", i64::MIN),
                7 => format!("{}", i64::MAX),
                _ => format!("{}", i64::from(id % 100) * 1_000_000_007),
            };
            let price = format!("{}.{}", id % 90, ["25", "00", "5"][id as usize % 3]);
            let wide = if id % 4 == 0 { "NULL".into() } else { format!("{}", id % 70 * 100_000) };
            let at = format!("TIMESTAMP '2024-01-01' + {} * INTERVAL '1 hour'", id % 60);
            let numbers = format!("{s}, {n}, {price}, {wide}, DATE '2024-01-01' + {}, {at}", id / 40);
            format!("({id}, {kind}, {name}, {data}::BYTEA, {numbers})")
        })
        .collect();
    for format in formats {
        let create = format!(
            "CREATE TABLE {format}_t (id INT, kind TEXT, name TEXT, data BYTEA, s SMALLINT, n BIGINT,
               price NUMERIC(12, 2), wide NUMERIC(30, 2), day DATE, at TIMESTAMP) WITH (freeze_format = {format});
             INSERT INTO {format}_t VALUES {};
             DELETE FROM {format}_t WHERE id % 11 = 3",
            rows.join(", ")
        );
        session.execute(&create).await.unwrap();
        if format != "never" {
            session.execute(&format!("FREEZE TABLE {format}_t")).await.unwrap();
        }
    }
    let states = text(&mut session, "SELECT DISTINCT state, format FROM serac_blocks ORDER BY 1, 2").await;
    assert!(formats[1..].iter().all(|format| states.contains(format)) && states.contains("hot"), "{states}");
    for _ in 0..if serac_testing::stress() { 3_000 } else { 120 } {
        let filter = condition(&mut rng, 2);
        let columns = [
            "id, kind, name, encode(data, 'hex') AS hex, s, n, price, wide, day, at",
            "id, n",
            "count(*), sum(s), sum(price), sum(wide), min(day), max(n), max(kind), count(at)",
        ];
        let columns = columns[rng.random_range(0..3)];
        let order = if columns.starts_with("id") { ["ORDER BY id", "ORDER BY n, id DESC LIMIT 7"] } else { ["", ""] };
        let order = order[usize::from(rng.random_bool(0.3))];
        let mut expected = None;
        for format in formats {
            let sql = format!("SELECT {columns} FROM {format}_t WHERE {filter} {order}");
            let answer = text(&mut session, &sql).await;
            let expected = expected.get_or_insert_with(|| answer.clone());
            assert!(answer == *expected, "SERAC_SEED={seed}: {sql}\n{answer}\n{expected}");
        }
    }
}

/// In a table that is clustered by a key, a range of the key is in few blocks, and the scan skips
/// the others.
#[tokio::test]
async fn ranges_of_a_clustered_table_are_in_few_blocks() {
    let fill = "INSERT INTO t SELECT i * 7919 % 200000, i % 5, 'something that makes rows a little longer ' || i FROM generate_series(1, 200000) AS g (i)";
    // The other actions, and whether the rows are in order afterwards.
    let ways = [
        ("CREATE TABLE t (k BIGINT, n BIGINT, pad TEXT)", "", false),
        ("CREATE TABLE t (k BIGINT, n BIGINT, pad TEXT) CLUSTER BY (k)", "", true),
        ("CREATE TABLE t (k BIGINT, n BIGINT, pad TEXT) CLUSTER BY (n, k)", "", false),
        ("CREATE TABLE t (k BIGINT, n BIGINT, pad TEXT)", "CREATE INDEX i ON t (k DESC); CLUSTER t USING i", true),
        (
            "CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT, pad TEXT)",
            "CLUSTER t USING t_pkey; UPDATE t SET k = 200000 - k; CLUSTER t",
            true,
        ),
    ];
    for (create, after, in_order) in ways {
        let (_database, mut session) = session();
        session.execute(&format!("{create}; {fill}; {after}; FREEZE TABLE t")).await.unwrap();
        let blocks = batches(&mut session, "SELECT block FROM serac_blocks WHERE rows > 0").await;
        let blocks: usize = blocks.iter().map(RecordBatch::num_rows).sum();
        assert!(blocks > 4, "{blocks}");
        let range = "SELECT pad FROM t WHERE k BETWEEN 70000 AND 70999";
        let found = batches(&mut session, range).await;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1_000, "{create}; {after}");
        let plan = text(&mut session, &format!("EXPLAIN ANALYZE {range}")).await;
        let skipped = plan.split("blocks_skipped=").nth(1).unwrap_or_else(|| panic!("{plan}"));
        let skipped: usize = skipped.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
        if in_order {
            assert!(blocks - skipped <= 2, "{create}; {after}: {skipped} of {blocks} blocks are skipped\n{plan}");
        } else {
            assert!(skipped * 2 < blocks, "{create}; {after}: {skipped} of {blocks} blocks are skipped");
        }
    }
    let (_database, mut session) = session();
    for (statement, sqlstate) in [
        ("CREATE TABLE t (k BIGINT) CLUSTER BY (nothing)", "42703"),
        ("CREATE TABLE t (k BIGINT); CLUSTER t", "42704"),
        ("CLUSTER t USING nothing", "42704"),
        ("CLUSTER nothing", "42P01"),
        ("CREATE ROLE r; SET ROLE r; CLUSTER t", "42704"),
        ("RESET ROLE; CREATE INDEX i ON t (k); SET ROLE r; CLUSTER t USING i", "42501"),
    ] {
        assert_eq!(session.execute(statement).await.unwrap_err().sqlstate, sqlstate, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_threads_are_stored_in_runs() {
    let (_, mut session) = session();
    let create = "CREATE TABLE t (id INTEGER, other INTEGER);
                  INSERT INTO t SELECT i, 1000000 - i FROM generate_series(1, 600000) AS g (i);
                  FREEZE TABLE t;
                  CREATE TABLE copy AS SELECT * FROM t WHERE other > 0;
                  CREATE TABLE inserted (id INTEGER, other INTEGER);
                  INSERT INTO inserted SELECT id + 1, other FROM t";
    session.execute(create).await.unwrap();
    for table in ["copy", "inserted"] {
        let sql = format!(
            "SELECT count(*) FROM (SELECT id, lag(id) OVER (ORDER BY ctid) AS before FROM {table}) AS x \
             WHERE id <> before + 1"
        );
        let breaks = batches(&mut session, &sql).await;
        let breaks = breaks[0].column(0).as_primitive::<Int64Type>().value(0);
        // Batches of two threads by turns would break the order some seventy times.
        assert!(breaks < 30, "{table}: {breaks}");
    }
}
