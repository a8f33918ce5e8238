//! Files by name in FROM: what they give, who may read them, and what hostile ones do.

use crate::support::{in_memory, refused, run, text};
use rand::Rng;
use serac_sql::{Session, StatementResult};
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder of files, and a session.
struct Files {
    folder: TempDir,
    session: Session,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), session: Session::new(&in_memory()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The statement with the folder in the place of `$`.
    fn in_folder(&self, sql: &str) -> String {
        sql.replace('$', self.folder.path().to_str().unwrap())
    }

    /// The rows of a query: values with bars between them.
    async fn rows(&mut self, sql: &str) -> Vec<String> {
        let sql = self.in_folder(sql);
        let shown = text(&mut self.session, &sql).await;
        let lines = shown.lines().filter(|line| line.starts_with('|')).skip(1);
        lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|")).collect()
    }

    async fn run(&mut self, sql: &str) -> Vec<StatementResult> {
        let sql = self.in_folder(sql);
        run(&mut self.session, &sql).await
    }

    /// The SQLSTATE of an error, and its message and detail.
    async fn error(&mut self, sql: &str) -> (&'static str, String) {
        let sql = self.in_folder(sql);
        let error = refused(&mut self.session, &sql).await;
        (error.sqlstate, format!("{} [{}]", error.message, error.detail.unwrap_or_default()))
    }

    /// That a statement fails with an SQLSTATE and all of these words.
    async fn fails(&mut self, sql: &str, sqlstate: &str, words: &[&str]) {
        let (given, shown) = self.error(sql).await;
        assert_eq!(given, sqlstate, "{sql}: {shown}");
        for word in words {
            assert!(shown.contains(word), "{sql}: {shown} lacks {word}");
        }
    }
}

const PEOPLE: &str = "id,name,born,paid,at\n\
    1,Ada,1815-12-10,1.50,2024-01-01T10:00:00Z\n\
    2,\"Bob, the \"\"2nd\"\"\",,,\n\
    3,Cäcilie,1900-02-28,1000,2024-06-01 12:30:00+02\n";

#[tokio::test]
async fn csv_has_the_columns_and_types_that_its_beginning_tells() {
    let mut files = Files::new();
    files.write("people.csv", PEOPLE);
    let described = files.rows("DESCRIBE '$/people.csv'").await;
    let wanted =
        ["id|bigint|YES|", "name|text|YES|", "born|date|YES|", "paid|numeric|YES|", "at|timestamp with time zone|YES|"];
    assert_eq!(described, wanted);
    let rows = files.rows("SELECT id, name, paid * 2 AS twice FROM '$/people.csv' WHERE born IS NOT NULL").await;
    assert_eq!(rows, ["1|Ada|3.00", "3|Cäcilie|2000"]);
    assert_eq!(files.rows("SELECT people.name FROM '$/people.csv' WHERE id = 2").await, ["Bob, the \"2nd\""]);
    assert_eq!(files.rows("SELECT count(*) FROM '$/people.csv'").await, ["3"]);
    assert_eq!(files.rows("SELECT p.id FROM '$/people.csv' AS p (id) LIMIT 1").await, ["1"]);
    assert_eq!(files.rows("SELECT max(at) = '2024-06-01 10:30:00+00' FROM '$/people.csv'").await, ["true"]);
    // Beside other rows, and twice.
    let joined =
        "SELECT a.id, b.id FROM '$/people.csv' a JOIN read_csv('$/people.csv') b ON a.id = b.id + 1 ORDER BY 1";
    assert_eq!(files.rows(joined).await, ["2|1", "3|2"]);
    let lateral = "SELECT x, id FROM generate_series(1, 2) AS x, read_csv('$/people.csv') WHERE id = x ORDER BY 1";
    assert_eq!(files.rows(lateral).await, ["1|1", "2|2"]);
}

#[tokio::test]
async fn arguments_say_what_the_beginning_does_not() {
    let mut files = Files::new();
    files.write("odd.txt", "1;'a;b';-\n2;-;3\n");
    let call = "read_csv('$/odd.txt', delim => ';', quote => '''', header => false, nullstr => '-'";
    assert_eq!(files.rows(&format!("SELECT * FROM {call})")).await, ["1|a;b|", "2||3"]);
    let named = format!(
        "SELECT a + c AS sum, b FROM {call}, columns => ARRAY['a', 'b', 'c'], types => ARRAY['int', 'varchar(5)', 'int'])"
    );
    assert_eq!(files.rows(&named).await, ["|a;b", "5|"]);
    let listed = format!("SELECT * FROM {call}) AS t (a smallint, b text, c numeric(5,1))");
    assert_eq!(files.rows(&listed).await, ["1|a;b|", "2||3.0"]);
    let described =
        files.rows(&format!("DESCRIBE SELECT * FROM {call}) AS t (a smallint, b text, c numeric(5,1))")).await;
    assert_eq!(described, ["a|smallint|YES|", "b|text|YES|", "c|numeric(5,1)|YES|"]);
    for (rest, sqlstate, words) in [
        (", colour => 'red')", "42883", &["no argument \"colour\"", "nullstr"][..]),
        (", delim => ',')", "42601", &["more than once"]),
        (", columns => ARRAY['a'])", "22P04", &["1 columns", "has 3"]),
        (", columns => ARRAY['a', 'a', 'b'])", "42701", &["\"a\""]),
        (", types => ARRAY['int', 'odd', 'int'])", "42704", &["odd"]),
        (", types => ARRAY['int', 'int', 'int'])", "22P02", &["line 1", "a;b"]),
        (", sample_size => (SELECT 1))", "0A000", &["constant"]),
        (", 'x')", "42601", &["positional"]),
    ] {
        files.fails(&format!("SELECT * FROM {call}{rest}"), sqlstate, words).await;
    }
    files.fails("SELECT * FROM read_csv()", "42883", &["name of a file"]).await;
    files.fails("SELECT * FROM read_csv(1)", "22023", &["text"]).await;
    files.fails("SELECT read_csv('$/odd.txt')", "42883", &["does not exist"]).await;
    files.fails("SELECT * FROM t, read_csv('$/odd.txt')", "42P01", &["\"t\""]).await;
}

#[tokio::test]
async fn several_files_are_one_relation() {
    let mut files = Files::new();
    files.write("in/1.csv", "id,name\n1,a\n");
    files.write("in/2.csv", "id,name\n2,b\n3,c\n");
    files.write("in/deep/3.csv", "id,name\n4,d\n");
    assert_eq!(files.rows("SELECT id FROM '$/in/*.csv' ORDER BY 1").await, ["1", "2", "3"]);
    assert_eq!(files.rows("SELECT count(*), sum(id) FROM '$/in/**/*.csv'").await, ["4|10"]);
    let list = "SELECT files.id FROM read_csv(ARRAY['$/in/2.csv', '$/in/1.csv']) AS files ORDER BY 1";
    assert_eq!(files.rows(list).await, ["1", "2", "3"]);
    let named = "SELECT id, right(filename, 5) FROM read_csv('$/in/*.csv', filename => true) ORDER BY id";
    assert_eq!(files.rows(named).await, ["1|1.csv", "2|2.csv", "3|2.csv"]);
    files.write("in/4.csv", "id,other\n5,x\n");
    files.fails("SELECT * FROM '$/in/*.csv'", "22P04", &["4.csv", "line 1", "got \"other\", expected \"name\""]).await;
    let united = "SELECT id, name, other FROM read_csv('$/in/*.csv', union_by_name => true) WHERE id > 2 ORDER BY id";
    assert_eq!(files.rows(united).await, ["3|c|", "5||x"]);
    files.fails("SELECT * FROM '$/in/*.json'", "58P01", &["*.json"]).await;
}

#[tokio::test]
async fn a_file_of_one_row_has_a_header_if_the_others_have() {
    let mut files = Files::new();
    for (folder, first) in [("empty_first", "1.csv"), ("empty_last", "3.csv")] {
        files.write(&format!("{folder}/{first}"), "id,name\n");
        files.write(&format!("{folder}/2.csv"), "id,name\n1,a\n2,b\n");
        let both = files.rows(&format!("SELECT id + 1, name FROM '$/{folder}/*.csv' ORDER BY 1")).await;
        assert_eq!(both, ["2|a", "3|b"], "{folder}");
        let united = format!("SELECT id + 1, name FROM read_csv('$/{folder}/*.csv', union_by_name => true) ORDER BY 1");
        assert_eq!(files.rows(&united).await, ["2|a", "3|b"], "{folder}");
    }
    // Of values alone.
    files.write("values/1.csv", "1,a\n");
    files.write("values/2.csv", "2,b\n3,c\n");
    assert_eq!(files.rows("SELECT * FROM '$/values/*.csv' ORDER BY 1").await, ["1|a", "2|b", "3|c"]);
    // A row of values among headers is no row that is left out, and a header among values no row.
    files.write("mixed/1.csv", "1,a\n");
    files.write("mixed/2.csv", "id,name\n2,b\n");
    files.fails("SELECT * FROM '$/mixed/*.csv'", "22P04", &["1.csv", "expected \"id\""]).await;
    files.write("mixed/1.csv", "1,a\n7,x\n");
    files.fails("SELECT * FROM '$/mixed/*.csv'", "22P04", &["2.csv", "has a header", "header => false"]).await;
}

#[tokio::test]
async fn quotes_within_fields_are_characters_of_files_without_quotes() {
    let mut files = Files::new();
    files.write("pipes.csv", "size,price\n5\" pipe,2\n6\" pipe,3\n");
    assert_eq!(files.rows("SELECT * FROM '$/pipes.csv' ORDER BY 1").await, ["5\" pipe|2", "6\" pipe|3"]);
    files.write("quoted.csv", "size,price\n\"5\"\" pipe\",2\n");
    assert_eq!(files.rows("SELECT * FROM '$/quoted.csv'").await, ["5\" pipe|2"]);
    // Bytes that are no text are errors, also where there is no quote.
    files.write("bytes.csv", b"a,b\n1,x\xffy,z\xff\n");
    files.fails("SELECT * FROM read_csv('$/bytes.csv', quote => '', header => true)", "22021", &["0xff"]).await;
}

#[tokio::test]
async fn values_behind_the_sample_lose_nothing() {
    let mut files = Files::new();
    for (name, first, later) in [
        ("code", "1", "007"),
        ("day", "2024-01-01", "2024-01-02 10:30:00"),
        ("moment", "2024-01-01 10:00:00", "2024-01-01 10:00:00+05"),
        ("ratio", "1e5", "9007199254740993"),
    ] {
        files.write(&format!("{name}.csv"), format!("id,{name}\n1,{first}\n2,{later}\n"));
        let call = format!("read_csv('$/{name}.csv', sample_size => 1");
        files.fails(&format!("SELECT * FROM {call})"), "22P02", &["line 3", later, "sample_size"]).await;
        // Of columns that are read alone, and with a type that is no guess.
        assert_eq!(files.rows(&format!("SELECT count(*), max(id) FROM {call})")).await, ["2|2"]);
        let typed = format!("SELECT {name} FROM {call}, types => ARRAY['int', 'text']) WHERE id = 2");
        assert_eq!(files.rows(&typed).await, [later]);
        let whole = format!("SELECT {name}::text FROM '$/{name}.csv' WHERE id = 2");
        let whole = files.rows(&whole).await;
        assert!(whole[0].starts_with(later) || name == "moment", "{whole:?}");
    }
    files.write("days.json", "{\"day\": \"2024-01-01\"}\n{\"day\": \"2024-01-02T10:30:00\"}\n");
    files.fails("SELECT * FROM read_json('$/days.json', sample_size => 1)", "22P02", &["line 2", "T10:30"]).await;
}

#[tokio::test]
async fn json_comes_in_lines_and_in_an_array() {
    let mut files = Files::new();
    let objects =
        ["{\"id\": 1, \"at\": \"2024-01-01 10:00:00\", \"tags\": [\"a\"]}", "{\"id\": 2.5, \"tags\": {\"b\": null}}"];
    files.write("lines.ndjson", objects.join("\n"));
    files.write("array.json", format!("[{},\n {}]", objects[0], objects[1]));
    for name in ["lines.ndjson", "array.json"] {
        let rows = files.rows(&format!("SELECT id, at, tags FROM '$/{name}' ORDER BY id")).await;
        assert_eq!(rows, ["1|2024-01-01T10:00:00|[\"a\"]", "2.5||{\"b\": null}"], "{name}");
    }
    assert_eq!(files.rows("SELECT tags ->> 0 FROM '$/lines.ndjson' WHERE id = 1").await, ["a"]);
    let listed = "SELECT * FROM read_json('$/array.json') AS t (tags json, id numeric) ORDER BY id";
    assert_eq!(files.rows(listed).await, ["[\"a\"]|1", "{\"b\": null}|2.5"]);
    let chosen = "SELECT * FROM read_json('$/array.json', columns => ARRAY['id', 'missing'])";
    assert_eq!(files.rows(chosen).await, ["1|", "2.5|"]);
    // A key behind the sample is an error, not a lost value.
    let call = "SELECT * FROM read_json('$/lines.ndjson', sample_size => 1)";
    files.write("lines.ndjson", "{\"id\": 1}\n{\"id\": 2, \"late\": 3}\n");
    files.fails(call, "22P04", &["lines.ndjson", "line 2", "\"late\""]).await;
    files.write("lines.ndjson", "{\"id\": 1}\n{\"id\": \"x\"}\n");
    files.fails(call, "22P02", &["lines.ndjson", "line 2", "\"x\""]).await;
    files.write("lines.ndjson", "{\"id\": 1}\n{\"id\": 2");
    files.fails("SELECT * FROM '$/lines.ndjson'", "22P04", &["line 2", "unterminated"]).await;
}

#[tokio::test]
async fn what_copy_writes_is_read_back_with_its_types() {
    let mut files = Files::new();
    let columns = "i INT, b BIGINT, t TEXT, n NUMERIC(12,2), f DOUBLE PRECISION, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, \
        ok BOOLEAN, raw BYTEA, tm TIME";
    files.run(&format!("CREATE TABLE all_types ({columns})")).await;
    let row = "(1, 2, 'x', 3.25, 0.5, '2024-02-29', '2024-02-29 10:00:00.5', '2024-02-29 10:00:00+01', true, '\\x00ff', \
        '12:30:00')";
    let nulls = "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
    files.run(&format!("INSERT INTO all_types VALUES {row}, {nulls}")).await;
    let wanted = files.rows("SELECT * FROM all_types ORDER BY i").await;
    for name in ["all.parquet", "all.arrow", "all.feather"] {
        files.run(&format!("COPY all_types TO '$/{name}'")).await;
        assert_eq!(files.rows(&format!("SELECT * FROM '$/{name}' ORDER BY i")).await, wanted, "{name}");
        files.run(&format!("CREATE TABLE again AS SELECT * FROM '$/{name}'")).await;
        assert_eq!(files.rows("SELECT * FROM again ORDER BY i").await, wanted, "{name}");
        let types = |described: Vec<String>| -> Vec<String> {
            described.iter().map(|line| line.split('|').take(2).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(types(files.rows("DESCRIBE again").await), types(files.rows("DESCRIBE all_types").await), "{name}");
        files.run("INSERT INTO again SELECT * FROM all_types; DROP TABLE again").await;
        let function = if name.ends_with("parquet") { "read_parquet" } else { "read_arrow" };
        let rows = files.rows(&format!("SELECT f, i FROM {function}('$/{name}', filename => true) WHERE i = 1")).await;
        assert_eq!(rows, ["0.5|1"]);
    }
    files.write(
        "all.csv",
        "1,2,x,3.25,0.5,2024-02-29,2024-02-29 10:00:00.5,2024-02-29 10:00:00+01,true,\\x00ff,12:30:00\n",
    );
    files.run("INSERT INTO all_types SELECT * REPLACE (column10::bytea AS column10) FROM '$/all.csv'").await;
    assert_eq!(files.rows("SELECT count(DISTINCT t), count(t) FROM all_types").await, ["1|2"]);
}

#[tokio::test]
async fn parquet_leaves_out_what_filters_exclude() {
    let mut files = Files::new();
    files.run("CREATE TABLE many AS SELECT n AS id, n % 10 AS digit, 'row ' || n AS name FROM generate_series(1, 50000) AS g (n)").await;
    files.run("COPY many TO '$/many.parquet'").await;
    assert_eq!(files.rows("SELECT count(*), sum(id) FROM '$/many.parquet' WHERE digit = 3").await, ["5000|124990000"]);
    assert_eq!(files.rows("SELECT name FROM '$/many.parquet' WHERE id = 49999").await, ["row 49999"]);
    assert_eq!(files.rows("SELECT count(*) FROM '$/many.parquet' WHERE id > 60000").await, ["0"]);
    assert_eq!(files.rows("SELECT id FROM '$/many.parquet' ORDER BY id DESC LIMIT 2").await, ["50000", "49999"]);
    let plan = files.rows("EXPLAIN SELECT name FROM '$/many.parquet' WHERE id = 7").await.join("\n");
    assert!(plan.contains("FileValuesExec: format=parquet, files=1, columns=[id, name]"), "{plan}");
    assert!(plan.contains("many.parquet") && plan.contains("predicate=id"), "{plan}");
    // NaN is greater than all numbers, and statistics do not have it.
    files.run("CREATE TABLE ratios (x DOUBLE PRECISION); INSERT INTO ratios VALUES (1), (2), ('NaN')").await;
    files.run("COPY ratios TO '$/ratios.parquet'").await;
    for (filter, count) in [("x > 5", "1"), ("5 <= x", "1"), ("NOT x < 5", "1"), ("x = 'NaN'", "1"), ("x <> 1", "2")] {
        let counted = files.rows(&format!("SELECT count(*) FROM '$/ratios.parquet' WHERE {filter}")).await;
        assert_eq!(counted, [count], "{filter}");
    }
    for filter in ["x < 1", "0 >= x", "x = 7"] {
        let sql = format!("FROM '$/ratios.parquet' WHERE {filter}");
        assert_eq!(files.rows(&format!("SELECT count(*) {sql}")).await, ["0"], "{filter}");
        let plan = files.rows(&format!("EXPLAIN SELECT * {sql}")).await.join("\n");
        assert!(plan.contains("predicate=x"), "{plan}");
    }
    files.write("many.csv", "a,b,c\n1,2,3\n");
    let plan = files.rows("EXPLAIN SELECT b FROM '$/many.csv'").await.join("\n");
    assert!(plan.contains("FileScanExec: format=csv, files=1") && plan.contains("columns=[b]"), "{plan}");
}

#[tokio::test]
async fn a_file_that_changes_is_an_error_or_read_anew() {
    let mut files = Files::new();
    files.write("a.csv", "id\n1\n");
    let prepared = files.in_folder("PREPARE p AS SELECT * FROM '$/a.csv'");
    run(&mut files.session, &prepared).await;
    assert_eq!(files.rows("EXECUTE p").await, ["1"]);
    files.write("a.csv", "id\n2\n3\n");
    assert_eq!(files.rows("EXECUTE p").await, ["2", "3"]);
    std::fs::remove_file(files.path("a.csv")).unwrap();
    files.fails("EXECUTE p", "58P01", &["a.csv"]).await;
    // A cursor is planned when it is declared, and reads when it is asked.
    let lines: String = (0..200_000).map(|n| format!("{n},{n}\n")).collect();
    files.write("b.csv", &lines);
    files.run("BEGIN; DECLARE c CURSOR FOR SELECT * FROM '$/b.csv'").await;
    files.write("b.csv", lines.replace('7', "8"));
    let sql = "FETCH ALL FROM c";
    let fetched = files.session.execute(sql).await;
    match fetched {
        Err(error) => assert_eq!(error.sqlstate, "55000", "{error}"),
        Ok(_) => assert_eq!(files.rows("SELECT 1").await, ["1"]),
    }
    files.run("ROLLBACK").await;
}

#[tokio::test]
async fn files_are_for_those_who_may_read_them() {
    let mut files = Files::new();
    files.write("a.csv", "id\n1\n");
    files.run("CREATE ROLE plain; CREATE ROLE reader; GRANT pg_read_server_files TO reader").await;
    files.run("CREATE VIEW shared AS SELECT id FROM '$/a.csv'; GRANT SELECT ON shared TO plain").await;
    files.run("SET ROLE plain").await;
    for sql in [
        "SELECT * FROM '$/a.csv'",
        "SELECT * FROM read_csv('$/a.csv')",
        "SELECT * FROM '$/missing.csv'",
        "DESCRIBE '$/a.csv'",
        "SUMMARIZE '$/a.csv'",
        "EXPLAIN SELECT * FROM '$/a.csv'",
    ] {
        files.fails(sql, "42501", &["permission denied to read files", "pg_read_server_files"]).await;
    }
    // A view has the rights of its owner.
    assert_eq!(files.rows("SELECT * FROM shared").await, ["1"]);
    files.run("RESET ROLE; SET ROLE reader").await;
    assert_eq!(files.rows("SELECT * FROM '$/a.csv'").await, ["1"]);
}

#[tokio::test]
async fn hostile_files_are_errors() {
    let mut files = Files::new();
    files.fails("SELECT * FROM '$/missing.csv'", "58P01", &["missing.csv"]).await;
    files.fails("SELECT * FROM read_csv('$')", "42809", &["no regular file"]).await;
    files.fails("SELECT * FROM read_csv('/dev/zero')", "42809", &["no regular file"]).await;
    files.fails("SELECT * FROM '$/a.xyz'", "22023", &["not known", "read_csv"]).await;
    files.fails("SELECT * FROM '$/a.csv.gz'", "0A000", &["compressed"]).await;
    files.write("empty.csv", "");
    files.fails("SELECT * FROM '$/empty.csv'", "22P04", &["empty"]).await;
    assert_eq!(files.rows("SELECT count(*) FROM read_csv('$/empty.csv') AS t (a int)").await, ["0"]);
    files.write("empty.json", "");
    files.fails("SELECT * FROM '$/empty.json'", "22P04", &["empty.json"]).await;
    for (name, function) in [("empty.csv", "read_parquet"), ("empty.csv", "read_arrow")] {
        files.fails(&format!("SELECT * FROM {function}('$/{name}')"), "22P04", &["empty.csv"]).await;
    }
    files.write("bytes.csv", b"a,b\n\xff\xfe,1\n");
    files.fails("SELECT * FROM '$/bytes.csv'", "22021", &["bytes.csv"]).await;
    // Behind the sample: a type that does not fit, a row that is too short, an open quote.
    let many = |last: &str| format!("id,n\n{}{last}", "1,2\n".repeat(400_000));
    files.write("late.csv", many("x,3\n"));
    files.fails("SELECT sum(id) FROM '$/late.csv'", "22P02", &["late.csv", "line 400002", "\"x\""]).await;
    assert_eq!(files.rows("SELECT sum(n) FROM '$/late.csv'").await, ["800003"]);
    files.write("late.csv", many("3\n"));
    files.fails("SELECT sum(n) FROM '$/late.csv'", "22P04", &["line 400002", "missing data"]).await;
    files.write("late.csv", many("\"3,4\n"));
    files.fails("SELECT sum(n) FROM '$/late.csv'", "22P04", &["line 400002", "unterminated"]).await;
    assert_eq!(files.rows("SELECT id FROM '$/late.csv' LIMIT 1").await, ["1"]);
}

/// Bytes of a good file that are changed, and parts of it: no panic, and an error of the file.
#[tokio::test]
async fn damaged_files_are_errors() {
    let mut files = Files::new();
    files.run("CREATE TABLE good AS SELECT n AS id, n::TEXT AS name, n * 1.5 AS half, now() AS at FROM generate_series(1, 500) AS g (n)").await;
    let mut rng = serac_testing::rng();
    for (name, function) in [("good.parquet", "read_parquet"), ("good.arrow", "read_arrow")] {
        files.run(&format!("COPY good TO '$/{name}'")).await;
        let good = std::fs::read(files.path(name)).unwrap();
        for round in 0..60 {
            let mut bytes = good.clone();
            if round % 3 == 0 {
                bytes.truncate(rng.random_range(0..good.len()));
            } else {
                for _ in 0..rng.random_range(1..8) {
                    // Headers and footers more often than values.
                    let near_end = rng.random_range(0..good.len().min(600));
                    let at =
                        if rng.random_bool(0.6) { good.len() - 1 - near_end } else { rng.random_range(0..good.len()) };
                    bytes[at] = rng.random();
                }
            }
            files.write("bad", &bytes);
            let sql = files.in_folder(&format!("SELECT count(name), sum(half), max(at) FROM {function}('$/bad')"));
            if let Err(error) = files.session.execute(&sql).await {
                assert!(!error.message.contains("internal error"), "{name}: {error}");
                assert!(!error.sqlstate.starts_with("XX"), "{name}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn what_has_no_type_is_named() {
    use datafusion::arrow::array::{ArrayRef, Int32Array, ListArray, RecordBatch, StructArray};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
    use datafusion::parquet::arrow::ArrowWriter;
    use std::sync::Arc;
    let mut files = Files::new();
    let id: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let inner = (Arc::new(Field::new("a", DataType::Int32, true)), id.clone());
    let odd: ArrayRef = Arc::new(StructArray::from(vec![inner]));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    let batch = RecordBatch::try_from_iter([("id", id), ("odd", odd), ("list", Arc::new(lists) as ArrayRef)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(files.path("odd.parquet")).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    files.fails("SELECT * FROM '$/odd.parquet'", "0A000", &["\"odd\""]).await;
    assert_eq!(files.rows("SELECT id, list[1], list FROM '$/odd.parquet'").await, ["1|1|[1, ]", "2||"]);
    assert_eq!(files.rows("SELECT count(*) FROM '$/odd.parquet'").await, ["2"]);
}

#[tokio::test]
async fn summaries_have_the_facts_of_each_column() {
    let mut files = Files::new();
    files.write("people.csv", PEOPLE);
    let rows = files.rows("SUMMARIZE '$/people.csv'").await;
    assert!(rows[0].starts_with("id|bigint|1|3|3|2.0|1.0|") && rows[0].ends_with("|3|0.0"), "{}", rows[0]);
    assert_eq!(rows[2], "born|date|1815-12-10|1900-02-28|2||||||2|33.33");
    assert_eq!(rows.len(), 5);
    let rows = files.rows("SUMMARIZE SELECT true AS ok, '{}'::jsonb AS doc, 1 AS ok WHERE false").await;
    assert_eq!(rows[0], "ok|boolean|||0||||||0|");
    assert_eq!((rows.len(), rows[1].split('|').next()), (3, Some("doc")));
    let wide: Vec<String> = (0..300).map(|n| format!("{n} AS c{n}")).collect();
    let rows = files.rows(&format!("SUMMARIZE SELECT {}", wide.join(", "))).await;
    assert_eq!((rows.len(), rows[299].as_str()), (300, "c299|integer|299|299|1|299.0||299.0|299.0|299.0|1|0.0"));
    files.run("CREATE TABLE t (a INT)").await;
    files
        .fails("SUMMARIZE WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x", "0A000", &["SUMMARIZE"])
        .await;
    files
        .fails("DESCRIBE WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x", "0A000", &["DESCRIBE"])
        .await;
    files.fails("SUMMARIZE missing", "42P01", &["missing"]).await;
}
