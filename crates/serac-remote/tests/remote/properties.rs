//! Random columns and filters: the rows are those of the server's SQL.

use crate::server::*;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, col, in_list, lit, not};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serac_export::flight::FlightOptions;

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
