//! Binds the statements of `answers.txt` and compares columns, rows and errors with PostgreSQL
//! 15's.
//!
//! Each statement stands behind `> `. Below it are the names and types of its columns and its rows,
//! or the error: SQLSTATE, position in characters, message.
//!
//! Behind ` -- ` are the types of parameters as far as they are told, and behind ` = ` their
//! values, without which the statement is not run. The first line has then the types that are
//! found.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array,
    RecordBatch, StringArray, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::TableFunctionArgs;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::{DFSchema, ParamValues, ScalarValue, TableReference};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{AggregateUDF, BinaryExpr, Expr, Operator, ScalarUDF, TableSource, WindowUDF};
use datafusion::prelude::SessionContext;
use serac_binder::{
    BindError, Environment, Generation, Relation, Target, TimeField, arrow_type, bind_query, type_of_arrow,
};
use serac_numeric::Numeric;
use serac_parser::tree::{Name, StatementKind};
use serac_pg::{ModifiedType, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Statements whose plans only DataFusion refuses or gets wrong. Their columns are compared, and no
/// rows.
const REFUSED: &[&str] = &[
    "SELECT g, (SELECT count(*) FROM u WHERE (u.a = 1) = t.g) FROM t GROUP BY g ORDER BY g",
    "SELECT (SELECT (SELECT t.a)) FROM t ORDER BY 1",
    "SELECT a, (SELECT count(*) FROM u WHERE u.x > k.c) FROM k GROUP BY a ORDER BY a",
    "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) FROM t ORDER BY a",
    "SELECT a, a IN (SELECT a FROM u) FROM t ORDER BY a",
    "SELECT a, b IN (SELECT b FROM t WHERE a > 2) FROM t ORDER BY a",
    "SELECT a, (SELECT x FROM u WHERE u.a = t.a) FROM t WHERE a > 2 ORDER BY a",
    "SELECT t.a, s.y FROM t, LATERAL (SELECT t.a + 1 AS y) s ORDER BY 1",
    "SELECT t.a, u.x, s.n FROM t JOIN u ON t.a = u.a, LATERAL (SELECT t.a + u.a AS n) s ORDER BY 1, 2",
];

struct Tables {
    context: SessionContext,
    tables: HashMap<&'static str, Arc<dyn TableSource>>,
}

impl Tables {
    fn new() -> Self {
        let context = SessionContext::new();
        // Operators are bound to calls of these, which DataFusion lacks.
        let inner = ["like_pattern", "ilike_pattern", "date_after", "days_between", "array_key", "record_of"];
        serac_functions::functions()
            .filter(|function| inner.contains(&function.name()))
            .for_each(|function| context.register_udf(function));
        let tables = [("t", rows_of_t()), ("k", rows_of_t()), ("u", rows_of_u()), ("s", row_of_s())];
        let table = |rows: RecordBatch| MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
        let source = |rows| provider_as_source(Arc::new(table(rows)));
        let tables = tables.into_iter().map(|(name, rows)| (name, source(rows))).collect();
        Self { context, tables }
    }
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, values)| (name, values, true))).unwrap()
}

fn views(texts: &[&str]) -> ArrayRef {
    Arc::new(StringViewArray::from(texts.to_vec()))
}

/// Numbers with two digits behind the point, as hundredths.
fn decimals(hundredths: &[i128]) -> ArrayRef {
    Arc::new(Decimal128Array::from(hundredths.to_vec()).with_precision_and_scale(10, 2).unwrap())
}

fn rows_of_t() -> RecordBatch {
    let days = ["2024-01-01", "2024-01-02", "2024-02-29", "1999-12-31"];
    rows(vec![
        ("a", Arc::new(Int32Array::from(vec![1, 2, 3, 4]))),
        ("b", Arc::new(Int64Array::from(vec![Some(10), Some(20), None, Some(40)]))),
        ("c", views(&["apple", "beet", "corn", "date"])),
        ("d", decimals(&[150, 200, 325, -475])),
        ("e", cast(&StringArray::from(days.to_vec()), &DataType::Date32).unwrap()),
        ("f", Arc::new(Float64Array::from(vec![1.5, -2.5, 0.0, 4.25]))),
        ("g", Arc::new(BooleanArray::from(vec![Some(true), Some(false), Some(true), None]))),
        ("h", Arc::new(Int16Array::from(vec![Some(1), Some(2), Some(3), None]))),
    ])
}

fn rows_of_u() -> RecordBatch {
    let keys = Int32Array::from(vec![1, 1, 3, 5]);
    rows(vec![("a", Arc::new(keys)), ("x", views(&["one", "uno", "three", "five"]))])
}

fn row_of_s() -> RecordBatch {
    let letters = [("v", "a"), ("w", "b"), ("x", "c"), ("c", "d"), ("e", "e")];
    let numbers = [("n", decimals(&[150])), ("m", decimals(&[200]))];
    rows(letters.into_iter().map(|(name, letter)| (name, views(&[letter]))).chain(numbers).collect())
}

/// The types of the columns of `s`, which have modifiers.
fn types_of_s() -> Vec<ModifiedType> {
    let text = |id, length| ModifiedType::of_length(id, length);
    let (varchar, bpchar) = (TypeId::VARCHAR, TypeId::BPCHAR);
    let texts = [text(varchar, 5), text(varchar, 5), text(varchar, 7), text(bpchar, 3), text(bpchar, 5)];
    texts.into_iter().chain([ModifiedType::of_digits(10, 2); 2]).collect()
}

impl Environment for Tables {
    fn relation(&self, name: &Name) -> Result<Relation, BindError> {
        let Some(table) = self.tables.get(name.to_string().as_str()) else {
            return Err(BindError::new("42P01", format!("relation \"{name}\" does not exist"), name.span));
        };
        let of_field = |field: &Arc<Field>| type_of_arrow(field.data_type()).map(ModifiedType::from);
        let types: Vec<Option<ModifiedType>> = match name.to_string().as_str() {
            "s" => types_of_s().into_iter().map(Some).collect(),
            _ => table.schema().fields().iter().map(of_field).collect(),
        };
        // `k` is `t` with a primary key.
        let key = if name.to_string() == "k" { vec![0] } else { Vec::new() };
        let name = TableReference::bare(name.to_string());
        Ok(Relation { source: table.clone(), name, types, key, number: 0, ctid: None, has_system_columns: true })
    }

    fn target(&self, name: &Name) -> Result<Target, BindError> {
        let relation = self.relation(name)?;
        let schema = relation.source.schema();
        let row = Field::new("row", DataType::UInt64, false);
        let fields: Vec<FieldRef> = schema.fields().iter().cloned().chain([Arc::new(row)]).collect();
        let generations = vec![Generation::No; schema.fields().len()];
        let source = Arc::new(LogicalTableSource::new(Arc::new(Schema::new(fields))));
        let relation = Relation { source, ..relation };
        Ok(Target { relation, name: name.to_string(), generations, indexes: Vec::new() })
    }

    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.context.udf(name).ok()
    }

    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.context.udaf(name).ok()
    }

    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, _: &DFSchema) -> Result<Option<Expr>, BindError> {
        // Texts with numbers alone are cast in the statements.
        let is_known = (from, to) == (TypeId::TEXT, TypeId::INT4);
        Ok(is_known.then(|| datafusion::logical_expr::cast(expr.clone(), DataType::Int32)))
    }

    fn date_part(&self, field: &str, _: bool) -> Option<TimeField> {
        let function = self.context.udf("date_part").ok()?;
        Some(TimeField { function, argument: Some(field.to_owned()), is_endless: false })
    }

    fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.context.udwf(name).ok()
    }

    fn table_function(&self, name: &str, arguments: &[Expr]) -> Result<Option<Relation>, BindError> {
        let Ok(function) = self.context.table_function(name) else { return Ok(None) };
        let state = self.context.state();
        let arguments = TableFunctionArgs::new(arguments, &state);
        let source = provider_as_source(function.create_table_provider_with_args(arguments)?);
        let schema = source.schema();
        let of_field = |field: &FieldRef| type_of_arrow(field.data_type()).map(ModifiedType::from);
        let types = schema.fields().iter().map(of_field).collect();
        Ok(Some(Relation {
            source,
            name: TableReference::bare(name),
            types,
            key: Vec::new(),
            number: 0,
            ctid: None,
            has_system_columns: true,
        }))
    }

    fn work_table(&self, name: &str, schema: SchemaRef) -> Option<Arc<dyn TableSource>> {
        Some(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn operate(&self, operator: Operator, left: Expr, right: Expr, _: &DFSchema) -> Result<Expr, BindError> {
        Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))))
    }
}

/// The elements of an array, as PostgreSQL writes them.
fn list_text(elements: &ArrayRef) -> String {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(elements.as_ref(), &options).unwrap();
    let element = |row: usize| match elements.data_type() {
        _ if elements.is_null(row) => "NULL".to_owned(),
        DataType::List(_) => list_text(&elements.as_list::<i32>().value(row)),
        DataType::Boolean => formatter.value(row).to_string()[..1].to_owned(),
        _ => {
            let text = formatter.value(row).to_string();
            let is_quoted = text.is_empty() || text == "NULL" || text.contains([' ', ',', '"', '\\', '{', '}']);
            if is_quoted { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) } else { text }
        }
    };
    format!("{{{}}}", (0..elements.len()).map(element).collect::<Vec<_>>().join(","))
}

fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    let options = FormatOptions::default().with_null("NULL");
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| match column.data_type() {
                // As PostgreSQL writes them.
                DataType::Boolean => {
                    let texts = column.as_any().downcast_ref::<datafusion::arrow::array::BooleanArray>().unwrap();
                    let short = texts.iter().map(|value| value.map(|value| if value { "t" } else { "f" }));
                    Arc::new(short.collect::<datafusion::arrow::array::StringArray>()) as ArrayRef
                }
                DataType::Timestamp(..) => {
                    let texts = cast(column, &DataType::Utf8).unwrap();
                    let texts = texts.as_any().downcast_ref::<datafusion::arrow::array::StringArray>().unwrap().clone();
                    let spaced = texts.iter().map(|text| text.map(|text| text.replace('T', " ")));
                    Arc::new(spaced.collect::<datafusion::arrow::array::StringArray>())
                }
                DataType::LargeBinary => {
                    let numbers = column.as_any().downcast_ref::<datafusion::arrow::array::LargeBinaryArray>().unwrap();
                    Arc::new(serac_numeric_functions::values::texts(numbers).unwrap())
                }
                DataType::List(_) => {
                    let one = |row| column.is_valid(row).then(|| list_text(&column.as_list::<i32>().value(row)));
                    Arc::new((0..column.len()).map(one).collect::<StringArray>())
                }
                _ => column.clone(),
            })
            .collect();
        let formatters: Vec<_> =
            columns.iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = formatters.iter().map(|column| column.value(row).to_string()).collect();
            // Floats without a fraction have no point in PostgreSQL's texts.
            let values = values.into_iter().zip(batch.columns()).map(|(value, column)| match column.data_type() {
                DataType::Float64 | DataType::Float32 => value.strip_suffix(".0").map(str::to_owned).unwrap_or(value),
                _ => value,
            });
            lines.push(values.collect::<Vec<_>>().join(" | "));
        }
    }
    lines
}

/// The binder's result for a statement, as the file has it.
async fn answer(tables: &Tables, text: &str) -> Vec<String> {
    let (text, parameters) = match text.split_once(" -- ") {
        Some((text, parameters)) => (text, Some(parameters)),
        None => (text, None),
    };
    let (types, values) = match parameters.map(|all| all.split_once(" = ")) {
        Some(Some((types, values))) => (types, Some(values)),
        _ => (parameters.unwrap_or_default(), None),
    };
    let words = |list| str::split(list, ',').map(str::trim).filter(|word| !word.is_empty());
    let known: Vec<TypeId> = words(types).map(|name| TypeId::by_name(name).unwrap_or(TypeId::UNKNOWN)).collect();
    let statement = serac_parser::parse(text).expect(text).pop().expect(text);
    let StatementKind::Query(query) = &statement.kind else { panic!("{text} is no query") };
    match bind_query(tables, query, &known, false) {
        Ok(bound) => {
            let mut lines = Vec::new();
            let mut plan = bound.plan;
            let head: Vec<String> =
                bound.columns.iter().map(|column| format!("{} {}", column.name, column.id.name())).collect();
            if parameters.is_some() {
                let types: Vec<&str> = bound.parameters.iter().map(|id| id.name()).collect();
                lines.push(format!("parameters {}", types.join(", ")));
            }
            lines.push(head.join("| "));
            if parameters.is_some() {
                let Some(values) = values else { return lines };
                let values = words(values).zip(&bound.parameters).map(|(word, id)| {
                    let text = ScalarValue::Utf8((word != "NULL").then(|| word.to_owned()));
                    match (*id, &text) {
                        (TypeId::NUMERIC, ScalarValue::Utf8(Some(digits))) => {
                            let number: Numeric = digits.parse().unwrap();
                            ScalarValue::LargeBinary(Some(number.to_stored())).into()
                        }
                        _ => text.cast_to(&arrow_type(*id).unwrap()).unwrap().into(),
                    }
                });
                plan = plan.with_param_values(ParamValues::List(values.collect())).unwrap();
            }
            let rows = match tables.context.execute_logical_plan(plan).await {
                Ok(rows) => rows.collect().await,
                Err(error) => Err(error),
            };
            match rows {
                Ok(rows) => lines.extend(texts(&rows)),
                Err(error) => lines.push(format!("FAILED {error}")),
            }
            lines
        }
        Err(BindError::Statement(error)) => {
            let position = error
                .span
                .filter(|span| span.end > 0)
                .map_or_else(|| "-".to_owned(), |span| (text[..span.start as usize].chars().count() + 1).to_string());
            vec![format!("ERROR {} {position} {}", error.sqlstate, error.message)]
        }
        Err(BindError::Plan(error)) => vec![format!("PLAN {error}")],
    }
}

/// Forms of DuckDB's that PostgreSQL does not have, each with an equivalent one.
const ALIKE: &[(&str, &str)] = &[
    (
        "SELECT g, count(*), max(a) FROM t GROUP BY ALL ORDER BY g",
        "SELECT g, count(*), max(a) FROM t GROUP BY g ORDER BY g",
    ),
    (
        "SELECT a % 2, count(*) FROM t GROUP BY ALL ORDER BY ALL",
        "SELECT a % 2, count(*) FROM t GROUP BY 1 ORDER BY 1, 2",
    ),
    ("SELECT count(*) FROM t GROUP BY ALL", "SELECT count(*) FROM t"),
    ("SELECT g, a FROM t ORDER BY ALL DESC", "SELECT g, a FROM t ORDER BY 1 DESC, 2 DESC"),
    ("SELECT g, a FROM t ORDER BY ALL NULLS FIRST", "SELECT g, a FROM t ORDER BY 1 NULLS FIRST, 2 NULLS FIRST"),
    ("SELECT * EXCLUDE (b, c, d, e, f) FROM t ORDER BY a", "SELECT a, g, h FROM t ORDER BY a"),
    (
        "SELECT * REPLACE (a + 1 AS a, upper(x) AS x) FROM u ORDER BY u.a, u.x",
        "SELECT a + 1 AS a, upper(x) AS x FROM u ORDER BY u.a, u.x",
    ),
    (
        "SELECT a, g FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY a) = 1 ORDER BY a",
        "SELECT DISTINCT ON (g) a, g FROM t ORDER BY g, a",
    ),
    (
        "SELECT g, count(*) FROM t GROUP BY g QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1",
        "SELECT true AS g, 2::bigint AS count",
    ),
    ("FROM u ORDER BY x", "SELECT * FROM u ORDER BY x"),
    ("FROM u SELECT x ORDER BY x", "SELECT x FROM u ORDER BY x"),
];

#[tokio::test]
async fn forms_of_duckdb_mean_what_others_do() {
    let tables = Tables::new();
    for (form, other) in ALIKE {
        let sorted = |mut lines: Vec<String>| {
            lines[1..].sort();
            lines
        };
        let (form_lines, other_lines) = (answer(&tables, form).await, answer(&tables, other).await);
        assert_eq!(sorted(form_lines.clone()), sorted(other_lines.clone()), "{form}");
        assert!(form_lines.len() > 1, "{form}");
        if form.contains("ORDER BY") && !form.contains("QUALIFY") {
            assert_eq!(answer(&tables, form).await, other_lines, "{form}");
        }
    }
}

/// Whether both are one error, for which PostgreSQL gives no place.
fn is_same_error(answer: &[String], expected: &[&str]) -> bool {
    let parts = |line: &str| {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let [word, sqlstate, position, message] = [(); 4].map(|()| words.next().unwrap_or_default());
        (word == "ERROR").then_some((sqlstate, position, message))
    };
    match (answer, expected) {
        ([ours], [theirs]) => match (parts(ours), parts(theirs)) {
            (Some((sqlstate, _, message)), Some((other, position, text))) => {
                position == "-" && sqlstate == other && message == text
            }
            _ => false,
        },
        _ => false,
    }
}

#[tokio::test]
async fn answers_are_postgresqls() {
    let tables = Tables::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    // Another file may be named, while statements are added.
    let path = std::env::var("SERAC_ANSWERS");
    let path = path.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers.txt").into());
    let file = std::fs::read_to_string(path).unwrap();
    for entry in format!("\n{file}").split("\n> ").filter(|entry| !entry.is_empty()) {
        let mut lines = entry.lines();
        let text = lines.next().unwrap();
        let expected: Vec<&str> = lines.collect();
        count += 1;
        match answer(&tables, text).await {
            answer if REFUSED.contains(&text) => {
                // The head is right; the rows are refused, or they are wrong.
                let heads = if text.contains(" -- ") { 2 } else { 1 };
                if answer[..heads] != expected[..heads] || answer == expected {
                    wrong.push(format!("{text}\n  is not refused: {}", answer.join("\n  ")));
                }
            }
            answer if answer == expected || is_same_error(&answer, &expected) => {}
            answer => {
                wrong.push(format!("{text}\n  {}\n  in PostgreSQL:\n  {}", answer.join("\n  "), expected.join("\n  ")))
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Queries over `s`, and the types of their columns in PostgreSQL.
const MODIFIED: &[(&str, &[&str])] = &[
    (
        "SELECT v, v::varchar, v::varchar(5), v::varchar(3), v::text, c::varchar, c::bpchar, c::char, 'x'::varchar(3) FROM s",
        &[
            "character varying(5)",
            "character varying",
            "character varying(5)",
            "character varying(3)",
            "text",
            "character varying",
            "bpchar",
            "character(1)",
            "character varying(3)",
        ],
    ),
    (
        "SELECT n, n::numeric, n + 1, -n, +n, 1.5, 1.50::numeric(5,1), round(n, 1), 3::numeric(8,2) FROM s",
        &[
            "numeric(10,2)",
            "numeric",
            "numeric",
            "numeric",
            "numeric",
            "numeric",
            "numeric(5,1)",
            "numeric",
            "numeric(8,2)",
        ],
    ),
    (
        "SELECT coalesce(v, w), coalesce(v, x), coalesce(v, 'x'), greatest(v, w), least(v, x), nullif(v, w), (SELECT v) FROM s",
        &[
            "character varying(5)",
            "character varying",
            "character varying",
            "character varying(5)",
            "character varying",
            "text",
            "character varying(5)",
        ],
    ),
    (
        "SELECT CASE WHEN true THEN v ELSE w END, CASE WHEN true THEN v END, CASE WHEN true THEN c ELSE e END FROM s",
        &["character varying(5)", "character varying", "bpchar"],
    ),
    (
        "SELECT coalesce(c, 'x'), coalesce(c, v), coalesce(v, c), coalesce(n, m), coalesce(n, 1), nullif(n, 1) FROM s",
        &["bpchar", "bpchar", "character varying", "numeric(10,2)", "numeric", "numeric(10,2)"],
    ),
    ("SELECT v FROM s UNION ALL SELECT w FROM s", &["character varying(5)"]),
    ("SELECT v FROM s UNION ALL SELECT x FROM s", &["character varying"]),
    ("SELECT v FROM s UNION SELECT 'x'", &["character varying"]),
    ("SELECT v FROM s UNION ALL SELECT w FROM s UNION ALL SELECT x FROM s", &["character varying"]),
    ("SELECT v FROM s INTERSECT SELECT w FROM s", &["character varying(5)"]),
    ("SELECT c FROM s UNION ALL SELECT e FROM s", &["bpchar"]),
    ("SELECT n FROM s UNION ALL SELECT m FROM s", &["numeric(10,2)"]),
    ("SELECT n FROM s UNION ALL SELECT 1.5", &["numeric"]),
    ("VALUES ('a'::varchar(3)), ('b'::varchar(3))", &["character varying(3)"]),
    ("VALUES ('a'::varchar(3)), ('b'::varchar(4))", &["character varying"]),
    ("SELECT max(v), min(c), max(n), string_agg(v, ',') FROM s", &["text", "bpchar", "numeric", "text"]),
    ("SELECT v, c, n FROM s GROUP BY v, c, n ORDER BY v", &["character varying(5)", "character(3)", "numeric(10,2)"]),
    ("SELECT DISTINCT v, c FROM s ORDER BY v", &["character varying(5)", "character(3)"]),
    (
        "SELECT upper(v), v || 'x', c || 'x', lag(v) OVER (), v COLLATE \"C\" FROM s",
        &["text", "text", "text", "character varying", "character varying(5)"],
    ),
    ("SELECT v, a.n FROM s a JOIN (SELECT w AS v FROM s) b USING (v)", &["character varying(5)", "numeric(10,2)"]),
    ("SELECT v FROM s a FULL JOIN (SELECT x AS v FROM s) b USING (v)", &["character varying"]),
    ("WITH q(a, b) AS (SELECT v, n FROM s) SELECT * FROM q", &["character varying(5)", "numeric(10,2)"]),
    ("SELECT z FROM (SELECT v AS z FROM s) t", &["character varying(5)"]),
];

#[tokio::test]
async fn modifiers_are_postgresqls() {
    let tables = Tables::new();
    for (text, expected) in MODIFIED {
        let statement = serac_parser::parse(text).expect(text).pop().expect(text);
        let StatementKind::Query(query) = &statement.kind else { panic!("{text} is no query") };
        let bound = bind_query(&tables, query, &[], false).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let types: Vec<String> = bound.columns.iter().map(|column| column.modified_type().to_string()).collect();
        assert_eq!(types, *expected, "{text}");
    }
}
