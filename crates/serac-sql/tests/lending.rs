//! What a program lends a session: frames by name, and functions.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use serac_engine::Database;
use serac_sql::{
    AggregateBody, Frame, FrameProvider, FrameRows, FunctionBody, GroupState, LentFunction, Result, ScalarBody,
    ScalarValue, Session, SqlDatabase, SqlError, SqlOptions, StatementResult, Still, TableBody, Volatility,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A frame with one number, which changes.
#[derive(Default)]
struct Changing(AtomicI64);

fn numbers(numbers: impl IntoIterator<Item = i64>) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

struct OneNumber(i64);

impl Frame for OneNumber {
    fn schema(&self) -> SchemaRef {
        numbers([]).schema()
    }

    fn read(&self) -> Result<FrameRows> {
        Ok(Box::new([Ok(numbers([self.0]))].into_iter()))
    }
}

impl FrameProvider for Changing {
    fn frame(&self, name: &str) -> Result<Option<Arc<dyn Frame>>> {
        match name {
            "number" => Ok(Some(Arc::new(OneNumber(self.0.load(Ordering::Relaxed))))),
            "broken" => Err(SqlError::new(sqlstate::EXTERNAL_ROUTINE_EXCEPTION, "it is broken")),
            _ => Ok(None),
        }
    }
}

/// Adds a number.
struct Plus(i64);

impl ScalarBody for Plus {
    fn call(&self, arguments: &[ArrayRef], _: usize, _: &DataType, _: &dyn Fn() -> Result<()>) -> Result<ArrayRef> {
        assert!(arguments[0].null_count() == 0, "the function is strict");
        Ok(Arc::new(arguments[0].as_primitive::<Int64Type>().unary::<_, Int64Type>(|number| number + self.0)))
    }
}

/// The sum of integers; `true` if two states merge.
struct Total(bool);

fn sum(state: &mut Option<GroupState>) -> &mut i64 {
    state.get_or_insert_with(|| Box::new(0i64)).downcast_mut().unwrap()
}

impl AggregateBody for Total {
    fn merges(&self) -> bool {
        self.0
    }

    fn step(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        arguments: &[ArrayRef],
        _: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        for (group, number) in groups.iter().zip(arguments[0].as_primitive::<Int64Type>().values()) {
            *sum(&mut states[*group]) += number;
        }
        Ok(())
    }

    fn merge(
        &self,
        states: &mut [Option<GroupState>],
        groups: &[usize],
        others: Vec<Option<GroupState>>,
        _: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        assert!(self.0, "the states do not merge");
        for (group, mut other) in groups.iter().zip(others) {
            let other = *sum(&mut other);
            *sum(&mut states[*group]) += other;
        }
        Ok(())
    }

    fn finish(&self, states: &mut [Option<GroupState>], _: &DataType, _: &dyn Fn() -> Result<()>) -> Result<ArrayRef> {
        Ok(Arc::new(states.iter_mut().map(|state| Some(*sum(state))).collect::<Int64Array>()))
    }
}

/// The numbers from 0 on.
struct Counted;

impl TableBody for Counted {
    fn rows(&self, arguments: &[ScalarValue], _: &SchemaRef, _: &Still) -> Result<FrameRows> {
        let ScalarValue::Int64(Some(count)) = arguments[0] else { panic!("it is a BIGINT") };
        Ok(Box::new((0..count).map(|number| Ok(numbers([number])))))
    }
}

fn session() -> Session {
    let database = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    Session::new(&database)
}

fn plus(number: i64) -> LentFunction {
    let body = FunctionBody::Scalar {
        returns: "bigint".into(),
        volatility: Volatility::Volatile,
        is_strict: true,
        body: Arc::new(Plus(number)),
    };
    LentFunction { name: "plus_some".into(), parameters: vec!["bigint".into()], body }
}

/// The numbers in the first column of a query's result; NULL is -1.
async fn first_column(session: &mut Session, query: &str) -> Vec<i64> {
    let results = session.execute(query).await.unwrap();
    let Some(StatementResult::Rows { batches, .. }) = results.last() else { panic!("{query} gives no rows") };
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>().clone());
    columns.flat_map(|column| column.iter().map(|number| number.unwrap_or(-1)).collect::<Vec<_>>()).collect()
}

async fn failing(session: &mut Session, statement: &str) -> &'static str {
    session.execute(statement).await.unwrap_err().sqlstate
}

#[tokio::test]
async fn frames_are_found_behind_the_database_and_seen_as_they_are() {
    let mut session = session();
    let frames = Arc::new(Changing::default());
    session.lend_frames(frames.clone());
    session.execute("PREPARE q AS SELECT n FROM number").await.unwrap();
    for value in 1..4 {
        frames.0.store(value, Ordering::Relaxed);
        assert_eq!(first_column(&mut session, "EXECUTE q").await, [value]);
        assert_eq!(first_column(&mut session, "SELECT a.n + b.n FROM number a, number b").await, [2 * value]);
    }
    assert_eq!(first_column(&mut session, "WITH number AS (SELECT 9::bigint AS n) SELECT n FROM number").await, [9]);
    assert_eq!(failing(&mut session, "SELECT * FROM public.number").await, sqlstate::UNDEFINED_TABLE);
    assert_eq!(failing(&mut session, "SELECT * FROM other").await, sqlstate::UNDEFINED_TABLE);
    assert_eq!(failing(&mut session, "SELECT * FROM broken").await, sqlstate::EXTERNAL_ROUTINE_EXCEPTION);
    assert_eq!(failing(&mut session, "DELETE FROM number").await, sqlstate::WRONG_OBJECT_TYPE);
    assert_eq!(failing(&mut session, "CREATE VIEW v AS TABLE number").await, sqlstate::FEATURE_NOT_SUPPORTED);
    session.execute("CREATE TABLE number (n BIGINT)").await.unwrap();
    assert!(first_column(&mut session, "SELECT n FROM number").await.is_empty());
}

#[tokio::test]
async fn functions_are_called_in_statements_and_not_kept() {
    let mut session = session();
    session.lend_function(plus(1)).unwrap();
    session.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)").await.unwrap();
    session.execute("INSERT INTO t VALUES (plus_some(1)), (plus_some(5))").await.unwrap();
    session.execute("PREPARE q AS SELECT plus_some(a) FROM t WHERE a = $1").await.unwrap();
    assert_eq!(first_column(&mut session, "EXECUTE q(6)").await, [7]);
    session.lend_function(plus(100)).unwrap();
    assert_eq!(first_column(&mut session, "EXECUTE q(6)").await, [106]);
    assert_eq!(first_column(&mut session, "SELECT plus_some(a) FROM (VALUES (1), (NULL)) v (a)").await, [101, -1]);
    assert_eq!(failing(&mut session, "SELECT plus_some('a'::text)").await, sqlstate::UNDEFINED_FUNCTION);
    assert_eq!(failing(&mut session, "CREATE INDEX ON t (plus_some(a))").await, sqlstate::FEATURE_NOT_SUPPORTED);
    assert_eq!(
        failing(&mut session, "CREATE VIEW v AS SELECT plus_some(a) FROM t").await,
        sqlstate::FEATURE_NOT_SUPPORTED
    );
    assert!(session.take_function_back("plus_some"));
    assert!(!session.take_function_back("plus_some"));
    assert_eq!(failing(&mut session, "EXECUTE q(6)").await, sqlstate::UNDEFINED_FUNCTION);
    let taken = LentFunction { name: "Abs".into(), ..plus(1) };
    assert_eq!(session.lend_function(taken).unwrap_err().sqlstate, sqlstate::DUPLICATE_FUNCTION);
}

/// Has no value.
struct Broken;

impl ScalarBody for Broken {
    fn call(&self, _: &[ArrayRef], _: usize, _: &DataType, _: &dyn Fn() -> Result<()>) -> Result<ArrayRef> {
        Err(SqlError::new(sqlstate::EXTERNAL_ROUTINE_EXCEPTION, "it is broken"))
    }
}

#[tokio::test]
async fn functions_run_for_no_rows_of_other_branches() {
    let mut session = session();
    let body = FunctionBody::Scalar {
        returns: "boolean".into(),
        volatility: Volatility::Immutable,
        is_strict: false,
        body: Arc::new(Broken),
    };
    session.lend_function(LentFunction { name: "broken".into(), parameters: vec!["bigint".into()], body }).unwrap();
    session.execute("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1), (2)").await.unwrap();
    for (query, numbers) in [
        ("SELECT a FROM t WHERE CASE WHEN a > 0 THEN true ELSE broken(a) END ORDER BY a", vec![1, 2]),
        ("SELECT CASE WHEN a = 1 THEN 3::bigint WHEN a > 5 AND broken(a) THEN 4 END FROM t ORDER BY a", vec![3, -1]),
        ("SELECT CASE WHEN a > 5 THEN (SELECT broken(1))::int ELSE 0::bigint END FROM t", vec![0, 0]),
        ("SELECT coalesce(a, (SELECT max(a) FROM t WHERE broken(a))) FROM t ORDER BY 1", vec![1, 2]),
    ] {
        assert_eq!(first_column(&mut session, query).await, numbers, "{query}");
    }
    for query in [
        "SELECT CASE WHEN a > 1 THEN broken(a) END FROM t",
        "SELECT CASE WHEN a > 1 THEN (SELECT broken(1)) END FROM t",
    ] {
        assert_eq!(failing(&mut session, query).await, sqlstate::EXTERNAL_ROUTINE_EXCEPTION, "{query}");
    }
}

#[tokio::test]
async fn aggregates_merge_or_keep_their_rows() {
    let mut session = session();
    for (name, merges) in [("total_merged", true), ("total_kept", false)] {
        let body = FunctionBody::Aggregate { returns: "bigint".into(), is_strict: true, body: Arc::new(Total(merges)) };
        session.lend_function(LentFunction { name: name.into(), parameters: vec!["bigint".into()], body }).unwrap();
    }
    session.execute("CREATE TABLE t AS SELECT i, i % 50 AS k FROM generate_series(1, 20000) g (i)").await.unwrap();
    for call in ["total_merged(i)", "total_kept(i)", "total_merged(i ORDER BY k, i DESC)"] {
        for rest in ["", "WHERE false", "GROUP BY k ORDER BY k", "GROUP BY i / 2 ORDER BY i / 2 LIMIT 100"] {
            let wanted = format!("SELECT coalesce(sum(i), 0)::bigint FROM t {rest}");
            let wanted = first_column(&mut session, &wanted).await;
            assert_eq!(
                first_column(&mut session, &format!("SELECT {call} FROM t {rest}")).await,
                wanted,
                "{call} {rest}"
            );
        }
        if !call.contains("ORDER") {
            let window = |call: &str| {
                let over = "OVER (PARTITION BY k ORDER BY i ROWS 2 PRECEDING)";
                format!("SELECT {call} {over} FROM t WHERE i < 500 ORDER BY k, i")
            };
            let wanted = first_column(&mut session, &window("sum(i)")).await;
            assert_eq!(first_column(&mut session, &window(call)).await, wanted, "{call}");
        }
    }
}

#[tokio::test]
async fn functions_in_from_take_constants_and_parameters() {
    let mut session = session();
    let columns = vec![("n".to_owned(), "integer".to_owned())];
    let body = FunctionBody::Table { columns, body: Arc::new(Counted) };
    session.lend_function(LentFunction { name: "counted".into(), parameters: vec!["bigint".into()], body }).unwrap();
    assert_eq!(first_column(&mut session, "SELECT sum(n) FROM counted(2 + 2)").await, [6]);
    session.execute("PREPARE q AS SELECT count(*) FROM counted($1)").await.unwrap();
    assert_eq!(first_column(&mut session, "EXECUTE q(3)").await, [3]);
    assert_eq!(first_column(&mut session, "EXECUTE q(5)").await, [5]);
    assert_eq!(failing(&mut session, "SELECT counted(1)").await, sqlstate::WRONG_OBJECT_TYPE);
    let lateral = "SELECT * FROM generate_series(1, 2) g (i), counted(g.i)";
    assert_eq!(failing(&mut session, lateral).await, sqlstate::FEATURE_NOT_SUPPORTED);
}
