//! Long or deep statements: they do not overflow a small stack, and time grows linearly with
//! length.

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, TableReference};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{AggregateUDF, BinaryExpr, Expr, Operator, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionContext;
use serac_binder::{BindError, Environment, Generation, Relation, Target, bind_query, bind_statement};
use serac_parser::tree::{Name, StatementKind};
use serac_pg::TypeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session with a table `t` of columns `a`, and `c0` to `c999`.
struct Tables(SessionContext);

impl Environment for Tables {
    fn relation(&self, name: &Name) -> Result<Relation, BindError> {
        let names = std::iter::once("a".to_owned()).chain((0..1000).map(|number| format!("c{number}")));
        let fields: Vec<Field> = names.map(|name| Field::new(name, DataType::Int32, true)).collect();
        let types = vec![Some(TypeId::INT4.into()); fields.len()];
        let source = Arc::new(LogicalTableSource::new(Arc::new(Schema::new(fields))));
        Ok(Relation {
            source,
            name: TableReference::bare(name.to_string()),
            types,
            key: Vec::new(),
            number: 0,
            ctid: None,
            has_system_columns: true,
        })
    }

    fn target(&self, name: &Name) -> Result<Target, BindError> {
        let relation = self.relation(name)?;
        let mut fields: Vec<Field> = relation.source.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
        let generations = vec![Generation::No; fields.len()];
        fields.push(Field::new("row", DataType::UInt64, false));
        let source = Arc::new(LogicalTableSource::new(Arc::new(Schema::new(fields))));
        let relation = Relation { source, ..relation };
        Ok(Target { relation, name: name.to_string(), generations, indexes: Vec::new() })
    }

    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.0.udf(name).ok()
    }

    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.0.udaf(name).ok()
    }

    fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.0.udwf(name).ok()
    }

    fn table_function(&self, _: &str, _: &[Expr]) -> Result<Option<Relation>, BindError> {
        Ok(None)
    }

    fn operate(&self, operator: Operator, left: Expr, right: Expr, _: &DFSchema) -> Result<Expr, BindError> {
        Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))))
    }
}

/// Binds a statement on a stack of 2 MiB, and drops the plan there. Tells the time, and whether it
/// is within the limits.
fn bound(text: String) -> (Duration, bool) {
    let bind = move || {
        let tables = Tables(SessionContext::new());
        let shown = text.get(..60).unwrap_or(&text).to_owned();
        let mut statements = serac_parser::parse(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let kind = statements.pop().unwrap().kind;
        let start = Instant::now();
        let bound = match &kind {
            StatementKind::Query(query) => {
                serac_binder::relations(query);
                bind_query(&tables, query, &[], true).map(|_| ())
            }
            change => {
                serac_binder::relations_of_statement(change);
                bind_statement(&tables, change, &[]).map(|_| ())
            }
        };
        let is_known = match bound {
            Ok(()) => true,
            Err(BindError::Statement(error)) if matches!(error.sqlstate, "0A000" | "54001") => false,
            Err(other) => panic!("{shown}: {other:?}"),
        };
        (start.elapsed(), is_known)
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(bind).unwrap().join().unwrap()
}

fn repeated(count: usize, separator: &str, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(separator)
}

#[test]
fn deep_statements_keep_the_stack() {
    let nested = |count: usize, before: &str, inner: &str, after: &str| {
        format!("SELECT {}{inner}{} FROM t", before.repeat(count), after.repeat(count))
    };
    for count in [10, 200, 1000] {
        bound(nested(count, "(", "a", ")"));
        bound(nested(count, "NOT (a = 1 AND ", "true", ")"));
        bound(nested(count, "- (1 + ", "a", ")"));
        bound(nested(count, "abs(", "a", ")"));
        bound(nested(count, "CASE WHEN true THEN ", "a", " END"));
        // Windows, each of which goes on from the one before.
        let windows = repeated(20 * count, ", ", |at| format!("w{} AS (w{at})", at + 1));
        bound(format!("SELECT count(*) OVER w{} FROM t WINDOW w0 AS (ORDER BY a), {windows}", 20 * count));
        bound(nested(count, "coalesce(1, ", "a", ")"));
        bound(nested(count, "(SELECT ", "a", ")"));
        bound(nested(count, "(1, ", "(2, 3) IS NULL", ") IS NULL"));
        bound(nested(count, "nullif(", "a", ", 1)"));
        bound(nested(count, "(", "a BETWEEN 1 AND 2", ") BETWEEN false AND true"));
        bound(nested(count, "(", "a = 1", ") IN (true, a = 2)"));
        bound(nested(count, "EXISTS (SELECT 1 FROM t WHERE ", "true", ")"));
        bound(nested(count, "a IN (SELECT a FROM t WHERE ", "true", ")"));
        bound(format!("SELECT * FROM {}t{}", "(SELECT a FROM ".repeat(count), ") s".repeat(count)));
        bound(nested(count, "a IN (SELECT a FROM t WHERE ", "true", " FOR UPDATE)"));
        bound(format!("SELECT * FROM {}t{}", "(SELECT a FROM ".repeat(count), " FOR UPDATE) s".repeat(count)));
        bound(format!("SELECT a FROM t FOR UPDATE OF {}", repeated(100 * count, ", ", |_| "t".into())));
        let joined = repeated(count, "", |number| format!(" CROSS JOIN t x{number})"));
        bound(format!("SELECT 1 FROM {}t{joined}", "(".repeat(count)));
        let joined = repeated(count, "", |number| format!(" CROSS JOIN t x{number}"));
        bound(format!("SELECT 1 FROM t{joined}"));
        bound(format!("{}SELECT 1{}", "(".repeat(count), ")".repeat(count)));
        bound(format!("{}SELECT 1{}", "(SELECT 2 UNION ".repeat(count), ")".repeat(count)));
        bound(format!("SELECT a {} FROM t", "::bigint".repeat(count)));
        bound(format!("SELECT count(*) FROM t GROUP BY {}a{}", "GROUPING SETS (".repeat(count), ")".repeat(count)));
        let chain = |number: usize| format!("x{} AS (SELECT a FROM x{number})", number + 1);
        bound(format!("WITH x0 AS (SELECT a FROM t), {} SELECT a FROM x{count}", repeated(count, ", ", chain)));
        let (open, close) = ("(".repeat(count), ")".repeat(count));
        bound(format!("UPDATE t SET a = {open}1{close} WHERE {open}true{close} RETURNING {open}a{close}"));
        bound(format!("INSERT INTO t (a) VALUES ({open}1{close}), ({}(SELECT 1){})", "abs(".repeat(count), close));
        bound(format!("INSERT INTO t (a) {}SELECT 1{}", "(".repeat(count), ")".repeat(count)));
        bound(format!(
            "INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING RETURNING {}a{close}",
            "abs(".repeat(count)
        ));
        let queries = "(SELECT ".repeat(count);
        bound(format!("UPDATE t SET (a, c1) = (SELECT {queries}1{close}, 2) FROM t AS u"));
        bound(format!(
            "DELETE FROM t USING {}t AS u{} WHERE true",
            "(".repeat(count),
            " CROSS JOIN t AS v)".to_owned()
                + &(1..count).map(|at| format!(" CROSS JOIN t AS v{at})")).collect::<String>()
        ));
        let condition = format!("{}true{}", "NOT (".repeat(count), ")".repeat(count));
        bound(format!("MERGE INTO t USING t AS u ON {condition} WHEN MATCHED AND {condition} THEN DELETE"));
        let changes = repeated(count, ", ", |at| format!("x{at} AS (DELETE FROM t WHERE a = {at} RETURNING a)"));
        bound(format!("WITH {changes} SELECT * FROM x0"));
        let tables = |number: usize| format!("x{} AS (SELECT p.a FROM x{number} p, x{number} q)", number + 1);
        bound(format!("WITH x0 AS (SELECT a FROM t), {} SELECT 1", repeated(count, ", ", tables)));
    }
}

/// A name, a statement of a length, and whether the binder knows it.
type Statement<'s> = (&'s str, &'s dyn Fn(usize) -> String, bool);

#[test]
fn time_grows_with_length() {
    let statements: [Statement<'_>; 22] = [
        ("OR", &|n| format!("SELECT a FROM t WHERE {}", repeated(n, " OR ", |i| format!("a = {i}"))), true),
        ("AND", &|n| format!("SELECT a FROM t WHERE {}", repeated(n, " AND ", |i| format!("a <> {i}"))), true),
        ("IN", &|n| format!("SELECT a FROM t WHERE a IN ({})", repeated(n, ", ", |i| i.to_string())), true),
        ("plus", &|n| format!("SELECT {} FROM t", repeated(n, " + ", |_| "a".into())), false),
        (
            "CASE",
            &|n| format!("SELECT CASE {} END FROM t", repeated(n, " ", |i| format!("WHEN a = {i} THEN {i}"))),
            true,
        ),
        ("VALUES", &|n| format!("VALUES {}", repeated(n, ", ", |i| format!("({i}, 'x')"))), true),
        (
            "INSERT",
            &|n| format!("INSERT INTO t (a, c1) VALUES {}", repeated(n, ", ", |i| format!("({i}, DEFAULT)"))),
            true,
        ),
        ("DEFAULT", &|n| format!("INSERT INTO t (a) VALUES (1), {}", repeated(n, ", ", |_| "(DEFAULT)".into())), true),
        ("SET", &|n| format!("UPDATE t SET {}", repeated(n / 20, ", ", |i| format!("c{i} = c{i} + 1"))), true),
        ("RETURNING", &|n| format!("DELETE FROM t RETURNING {}", repeated(n / 10, ", ", |i| format!("a + {i}"))), true),
        (
            "MERGE",
            &|n| {
                let whens =
                    repeated(n / 100, " ", |i| format!("WHEN MATCHED AND u.a = {i} THEN UPDATE SET c{i} = {i}"));
                format!("MERGE INTO t USING t AS u ON t.a = u.c1 {whens}")
            },
            true,
        ),
        ("UNION", &|n| repeated(n / 10, " UNION ALL ", |i| format!("SELECT {i}")), true),
        ("coalesce", &|n| format!("SELECT coalesce({}) FROM t", repeated(n, ", ", |_| "a".into())), true),
        ("columns", &|n| format!("SELECT {} FROM t", repeated(n / 10, ", ", |i| format!("c{i}"))), true),
        ("same names", &|n| format!("SELECT {} FROM t", repeated(n / 10, ", ", |_| "a".into())), true),
        (
            "parameters",
            &|n| format!("SELECT a FROM t WHERE a IN ({})", repeated(n, ", ", |i| format!("${}", i + 1))),
            true,
        ),
        (
            "rows",
            &|n| format!("SELECT a FROM t WHERE (a, c1) IN ({})", repeated(n / 5, ", ", |i| format!("({i}, 2)"))),
            true,
        ),
        ("WITH", &|n| format!("WITH {} SELECT 1", repeated(n / 20, ", ", |i| format!("x{i} AS (SELECT {i})"))), true),
        (
            "wide VALUES",
            &|n| {
                let row = format!("({})", repeated(100, ", ", |i| i.to_string()));
                format!("VALUES {}", repeated(n / 50, ", ", |_| row.clone()))
            },
            true,
        ),
        (
            "subqueries",
            &|n| {
                let all = repeated(n / 100, " + ", |i| format!("(SELECT count(*) FROM t x WHERE x.c{i} = t.a)"));
                format!("SELECT {all} FROM t")
            },
            true,
        ),
        (
            "groups",
            &|n| {
                let columns = repeated(n / 20, ", ", |i| format!("c{i}"));
                format!("SELECT {columns} FROM t GROUP BY {columns} ORDER BY {columns}")
            },
            true,
        ),
        (
            "windows",
            &|n| {
                let calls = repeated(n / 20, ", ", |i| format!("max(c{i}) OVER (ORDER BY c{})", i % 9));
                format!("SELECT {calls} FROM t")
            },
            true,
        ),
    ];
    for (name, statement, is_known) in statements {
        let (short, known) = bound(statement(2_500));
        assert_eq!(known, is_known, "{name}");
        let (long, _) = bound(statement(10_000));
        println!("{name}: {short:?}, {long:?}");
        // Four times the length must cost less than the sixteen times of a quadratic algorithm;
        // quick statements are not measured.
        let most = short * 10 + Duration::from_millis(500);
        assert!(long < most, "{name}: {short:?}, {long:?}");
    }
}
