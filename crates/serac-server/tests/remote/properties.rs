//! Random columns and filters: the rows are those of the server's SQL.

use crate::server::*;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, col, in_list, lit, not};
use datafusion::prelude::SessionContext;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_export::flight::FlightOptions;
use std::sync::Arc;

/// Columns that may be asked for beside the first.
const COLUMNS: [&str; 18] =
    ["b", "s", "i", "r", "d", "n", "big", "dt", "tm", "ts", "tz", "v", "x", "y", "u", "free", "j", "c"];

/// A predicate, for DataFusion and for SQL.
#[derive(Clone, Debug)]
struct Predicate(Expr, String);

fn comparison() -> impl Strategy<Value = Predicate> {
    let operator = prop_oneof![Just("="), Just("<>"), Just("<"), Just("<="), Just(">"), Just(">=")];
    let constant = prop_oneof![
        (-100..25_000_i64).prop_map(|n| ("id", lit(n), n.to_string())),
        (-600..600_i16).prop_map(|n| ("s", lit(n), n.to_string())),
        (-80_000..100_i32).prop_map(|n| ("i", lit(n), n.to_string())),
        (-5_000_000..20_000_000_i128).prop_map(|n| (
            "n",
            lit(ScalarValue::Decimal128(Some(n), 12, 3)),
            format!("{n} / 1000.000")
        )),
        (0..30_000_u32).prop_map(|n| ("d", lit(f64::from(n) / 4.0), format!("{n} / 4.0"))),
        (7_000..17_000_i32).prop_map(|n| (
            "dt",
            lit(ScalarValue::Date32(Some(n))),
            format!("(DATE '1970-01-01' + {n})")
        )),
        (0..25_000_i64).prop_map(|n| {
            let instant = 946_684_800_000_000 + n * 1_000_003;
            let instant = ScalarValue::TimestampMicrosecond(Some(instant), Some("UTC".into()));
            ("tz", lit(instant), format!("(TIMESTAMPTZ '2000-01-01Z' + {n} * INTERVAL '1.000003 seconds')"))
        }),
        (0..25_000_i64).prop_map(|n| ("v", lit(format!("v{n}")), format!("'v{n}'"))),
        "[a-c]{0,3}".prop_map(|text| ("x", lit(text.clone()), format!("'{text}'"))),
    ];
    (operator, constant).prop_map(|(operator, (column, constant, sql))| {
        let sql = format!("{column} {operator} {sql}");
        let column = col(column);
        let predicate = match operator {
            "=" => column.eq(constant),
            "<>" => column.not_eq(constant),
            "<" => column.lt(constant),
            "<=" => column.lt_eq(constant),
            ">" => column.gt(constant),
            _ => column.gt_eq(constant),
        };
        Predicate(predicate, sql)
    })
}

fn predicate() -> impl Strategy<Value = Predicate> {
    let list = (prop::collection::vec(0..25_000_i64, 1..40), any::<bool>()).prop_map(|(ids, negated)| {
        let sql = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let not = if negated { "NOT " } else { "" };
        let list = in_list(col("id"), ids.into_iter().map(lit).collect(), negated);
        Predicate(list, format!("id {not}IN ({sql})"))
    });
    let leaf = prop_oneof![
        6 => comparison(),
        1 => list,
        1 => Just(Predicate(col("b"), "b".into())),
        1 => Just(Predicate(col("x").is_null(), "x IS NULL".into())),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Predicate(a.0.and(b.0), format!("({} AND {})", a.1, b.1))),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Predicate(a.0.or(b.0), format!("({} OR {})", a.1, b.1))),
            1 => inner.prop_map(|a| Predicate(not(a.0), format!("(NOT {})", a.1))),
        ]
    })
}

#[test]
fn random_columns_and_filters_give_the_rows_of_sql() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (db, ctx, _served) = runtime.block_on(async {
        let db = database();
        every(&db, 20_000).await;
        let served = serve(&db, FlightOptions::default()).await;
        let ctx = session_of(&remote(&served), &["every"]).await;
        (db, ctx, served)
    });
    let cases = if serac_testing::stress() { 1_000 } else { 60 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let columns = prop::sample::subsequence(COLUMNS.to_vec(), 0..=6).prop_shuffle();
    TestRunner::new(config)
        .run(&(columns, prop::collection::vec(predicate(), 0..3)), |(columns, predicates)| {
            let names: Vec<&str> = std::iter::once("id").chain(columns).collect();
            let sql = predicates.iter().fold("true".to_owned(), |all, Predicate(_, sql)| format!("{all} AND {sql}"));
            let sql = format!("SELECT {} FROM every WHERE {sql} ORDER BY id", names.join(", "));
            runtime.block_on(async {
                let mut frame = ctx.table("every").await.unwrap();
                for Predicate(predicate, _) in predicates {
                    frame = frame.filter(predicate).unwrap();
                }
                let found = rows(frame.select_columns(&names).unwrap()).await;
                let wanted = query(&db, &sql).await;
                prop_assert_eq!(found.num_rows(), wanted.num_rows(), "{}", sql);
                prop_assert_eq!(found.columns(), wanted.columns(), "{}", sql);
                Ok(())
            })
        })
        .unwrap();
}

/// Rows with the values at which comparisons differ: both zeros and NaNs, infinities, texts that
/// end with blanks, the ends of types.
fn odd_rows(ids: std::ops::Range<i64>, random: &mut StdRng) -> RecordBatch {
    let doubles =
        [0.0, -0.0, 1.5, -1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324];
    let texts = ["", " ", "a", "a ", "A", "ä", "a longer text than a view holds", "\u{1}", "'", "\"\\", "1"];
    let decimals = [0, 1, -1, 999_999_999_999, -999_999_999_999, 150, -150];
    let wide = [0, 1, -1, 10_i128.pow(38) - 1, 1 - 10_i128.pow(38), 1 << 64, 15_000_000_000];
    let (days, micros) =
        ([0, 1, -1, i32::MAX, i32::MIN, -719_162, 18_262], [0, 1, -1, i64::MAX, i64::MIN, 1_577_836_800_000_000]);
    let (shorts, longs) = ([0, 1, -1, i16::MAX, i16::MIN], [0, 1, -1, i64::MAX, i64::MIN, 1 << 53]);
    let count = (ids.end - ids.start) as usize;
    let mut pick = |of: usize| -> Vec<Option<usize>> {
        (0..count).map(|_| (random.random_range(0..6) > 0).then(|| random.random_range(0..of))).collect()
    };
    let decimal = |picked: Vec<Option<usize>>, from: &[i128], precision, scale| -> ArrayRef {
        let array: Decimal128Array = picked.into_iter().map(|at| at.map(|at| from[at])).collect();
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone())), false),
        ("b", Arc::new(pick(2).into_iter().map(|at| at.map(|at| at == 1)).collect::<BooleanArray>()), true),
        ("s", Arc::new(pick(5).into_iter().map(|at| at.map(|at| shorts[at])).collect::<Int16Array>()), true),
        ("l", Arc::new(pick(6).into_iter().map(|at| at.map(|at| longs[at])).collect::<Int64Array>()), true),
        ("r", Arc::new(pick(10).into_iter().map(|at| at.map(|at| doubles[at] as f32)).collect::<Float32Array>()), true),
        ("d", Arc::new(pick(10).into_iter().map(|at| at.map(|at| doubles[at])).collect::<Float64Array>()), true),
        ("n", decimal(pick(7), &decimals, 12, 2), true),
        ("w", decimal(pick(7), &wide, 38, 10), true),
        ("t", Arc::new(pick(11).into_iter().map(|at| at.map(|at| texts[at])).collect::<StringViewArray>()), true),
        (
            "y",
            Arc::new(pick(11).into_iter().map(|at| at.map(|at| texts[at].as_bytes())).collect::<BinaryViewArray>()),
            true,
        ),
        ("dt", Arc::new(pick(7).into_iter().map(|at| at.map(|at| days[at])).collect::<Date32Array>()), true),
        (
            "ts",
            Arc::new(pick(6).into_iter().map(|at| at.map(|at| micros[at])).collect::<TimestampMicrosecondArray>()),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A random predicate on columns of `rows`, with its values as constants.
fn odd_predicate(rows: &RecordBatch, depth: usize, random: &mut StdRng) -> Expr {
    if depth > 0 && random.random_range(0..3) == 0 {
        let left = odd_predicate(rows, depth - 1, random);
        let right = odd_predicate(rows, depth - 1, random);
        return match random.random_range(0..4) {
            0 => left.and(right),
            1 | 2 => left.or(right),
            _ => not(left),
        };
    }
    let at = random.random_range(0..rows.num_columns());
    let (schema, column) = (rows.schema(), rows.column(at));
    let mut constant = || lit(ScalarValue::try_from_array(column, random.random_range(0..column.len())).unwrap());
    let (one, other) = (constant(), constant());
    let many: Vec<Expr> = (0..5).map(|_| constant()).collect();
    let column = || col(schema.field(at).name());
    match random.random_range(0..12) {
        0 => column().eq(one),
        1 => column().not_eq(one),
        2 => column().lt(one),
        3 => column().lt_eq(one),
        4 => one.gt(column()),
        5 => one.gt_eq(column()),
        6 => column().between(one, other),
        7 => in_list(column(), many, false),
        8 => in_list(column(), many, true),
        9 => many.into_iter().fold(column().eq(one), |all, next| all.or(column().eq(next))),
        10 => column().is_null(),
        _ => column().gt(one),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_tests_conditions_as_datafusion_does() {
    let seed = serac_testing::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let db = database();
    execute(
        &db,
        "CREATE TABLE odd (id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, l BIGINT, r REAL, d DOUBLE PRECISION,
         n NUMERIC(12,2), w NUMERIC(38,10), t TEXT, y BYTEA, dt DATE, ts TIMESTAMP)",
    )
    .await;
    let rows = [odd_rows(0..40_000, &mut random), odd_rows(40_000..50_000, &mut random)];
    let table = db.database().catalog().table("public", "odd").unwrap().clone();
    for (number, batch) in rows.iter().enumerate() {
        let mut txn = db.database().begin();
        txn.insert_batch(&table, batch).unwrap();
        txn.commit().unwrap().wait().unwrap();
        if number == 0 {
            freeze(&db, "odd");
        }
    }
    let served = serve(&db, FlightOptions::default()).await;
    let ctx = session_of(&remote(&served), &["odd"]).await;
    // The rows as the server has them, in memory.
    let here = SessionContext::new();
    let whole = ctx.table("odd").await.unwrap().collect().await.unwrap();
    here.register_table("odd", Arc::new(MemTable::try_new(whole[0].schema(), vec![whole]).unwrap())).unwrap();
    for round in 0..if serac_testing::stress() { 2_000 } else { 60 } {
        let predicate = odd_predicate(&rows[0], 2, &mut random);
        let limit = (random.random_range(0..4) == 0).then(|| random.random_range(0..3_000));
        let of = async |ctx: &SessionContext| {
            let frame = ctx.table("odd").await.unwrap().filter(predicate.clone()).unwrap();
            rows_of_ids(frame.select_columns(&["id"]).unwrap()).await
        };
        let (found, wanted) = (of(&ctx).await, of(&here).await);
        assert!(
            found == wanted,
            "seed {seed}, round {round}: {predicate} gives {} rows, not {}",
            found.len(),
            wanted.len()
        );
        if let Some(limit) = limit {
            let frame =
                ctx.table("odd").await.unwrap().filter(predicate.clone()).unwrap().limit(0, Some(limit)).unwrap();
            let some = rows_of_ids(frame.select_columns(&["id"]).unwrap()).await;
            assert_eq!(some.len(), wanted.len().min(limit), "seed {seed}, round {round}: {predicate}");
            assert!(some.iter().all(|id| wanted.binary_search(id).is_ok()), "seed {seed}, round {round}: {predicate}");
        }
    }
}

/// The values of a BIGINT column, in order.
async fn rows_of_ids(frame: datafusion::prelude::DataFrame) -> Vec<i64> {
    let batches = frame.collect().await.unwrap();
    let ids = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    ids
}
