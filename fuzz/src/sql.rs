//! The text of SQL: tokens, parser, and the binder, which describes every statement against a small
//! catalog. Nothing runs.

use crate::{check_sqlstate, memory};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use tokio::runtime::{Builder, Runtime};

/// The catalog: tables with columns of most types, and the other things that a name may mean.
pub(crate) const CATALOG: &str = "
    CREATE TABLE t (a INT PRIMARY KEY, b BIGINT, c TEXT, d NUMERIC(12, 2), e DOUBLE PRECISION, f BOOLEAN);
    CREATE TABLE u (a INT REFERENCES t, at TIMESTAMP, z TIMESTAMPTZ, day DATE, i INTERVAL, bits BYTEA, id UUID,
        j JSONB, n NUMERIC, CHECK (a > 0));
    CREATE INDEX ON t (c, b);
    CREATE VIEW v AS SELECT t.a, c, count(*) AS n FROM t JOIN u USING (a) GROUP BY t.a, c;
    CREATE SEQUENCE s;
    INSERT INTO t SELECT n, n * 7, 'text ' || n, n / 4.0, n / 3.0, n % 2 = 0 FROM generate_series(1, 20) n;
    INSERT INTO u (a, at, day, n) SELECT n, '2024-02-29', '2024-02-29', n / 3.0 FROM generate_series(1, 9) n;
";

/// A session on the catalog, and the runtime of its futures.
struct Shell {
    runtime: Runtime,
    session: Session,
}

fn shell() -> &'static Mutex<Shell> {
    static SHELL: OnceLock<Mutex<Shell>> = OnceLock::new();
    SHELL.get_or_init(|| {
        let database = Database::in_memory().expect("a database opens");
        let options = SqlOptions { threads: Some(1), memory_limit: Some(256 << 20), ..SqlOptions::default() };
        let sql = SqlDatabase::new(database, &options).expect("SQL runs on it");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let mut session = Session::new(&sql);
        runtime.block_on(session.execute(CATALOG)).unwrap_or_else(|error| panic!("{error}"));
        Mutex::new(Shell { runtime, session })
    })
}

/// The bytes of memory that parsing may take for each byte of text: as a token, and as a level of
/// the tree.
const BYTES_PER_BYTE: usize = 2_000;

fn check_error(error: &SqlError, text: &str) {
    check_sqlstate(error.sqlstate, error);
    if let Some((line, column)) = error.position {
        let lines = text.split('\n').count();
        assert!(line >= 1 && line as usize <= lines, "line {line} of {lines}: {error}");
        let letters = text.split('\n').nth(line as usize - 1).map_or(0, |line| line.chars().count());
        assert!(column >= 1 && column as usize <= letters + 1, "letter {column} of {letters}: {error}");
    }
}

/// Parses a text, as a script and as an expression, and describes its statements.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let limit = (64 << 10) + BYTES_PER_BYTE * text.len();
    let tokens = memory::bounded(limit, || serac_parser::plain_tokens(text));
    if let Ok(tokens) = &tokens {
        let mut end = 0;
        for token in tokens {
            let (from, to) = (token.span.start as usize, token.span.end as usize);
            assert!(end <= from && from < to && text.get(from..to).is_some(), "{token:?} behind byte {end}");
            end = to;
        }
    }
    let tree = memory::bounded(limit, || serac_parser::parse(text).map(drop));
    let expression = memory::bounded(limit, || serac_parser::parse_expression(text).map(drop));
    for parsed in [&tree, &expression] {
        match parsed {
            Ok(()) => assert!(tokens.is_ok(), "it has been parsed, and has no tokens: {tokens:?}"),
            Err(error) => {
                check_sqlstate(error.sqlstate, error);
                assert!(text.is_char_boundary(error.position as usize), "byte {}: {error}", error.position);
                error.line_and_column(text);
            }
        }
    }
    let statements = match serac_sql::parse(text) {
        Ok(statements) => statements,
        Err(error) => {
            assert!(tree.is_err(), "{error}");
            return check_error(&error, text);
        }
    };
    assert!(tree.is_ok());
    let mut shell = shell().lock().unwrap_or_else(PoisonError::into_inner);
    let Shell { runtime, session } = &mut *shell;
    for statement in statements.into_iter().take(8) {
        if let Err(error) = runtime.block_on(session.describe_statement(statement, &[])) {
            check_error(&error, text);
        }
    }
}

/// Statements of the SQL scripts. They are not all of them, so that a minute is enough for other
/// inputs, too.
pub fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/serac-sql/tests/slt");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).expect("there are SQL scripts").flatten().collect();
    paths.sort_by_key(std::fs::DirEntry::file_name);
    let mut seeds: Vec<Vec<u8>> = OWN.iter().map(|text| text.as_bytes().to_vec()).collect();
    for entry in paths.iter().filter(|entry| entry.path().extension().is_some_and(|ending| ending == "slt")) {
        let script = std::fs::read_to_string(entry.path()).expect("it is a text");
        let statements = script.split("\n\n").filter_map(|record| {
            let (head, text) = record.trim_start().split_once('\n')?;
            let is_statement = head.starts_with("statement") || head.starts_with("query");
            let text = text.split("\n----").next().unwrap_or_default();
            (is_statement && text.len() < 400).then(|| text.as_bytes().to_vec())
        });
        seeds.extend(statements.step_by(STEP));
    }
    seeds
}

/// Every so many statements of a script, one becomes a seed.
const STEP: usize = 6;

/// Statements on the target's own tables.
const OWN: [&str; 24] = [
    "SELECT a, c || 'x' FROM t WHERE b BETWEEN 1 AND 7 AND c LIKE 't%' ORDER BY d DESC NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT t.*, u.at FROM t LEFT JOIN u ON t.a = u.a AND u.day > DATE '2024-01-01'",
    "SELECT c, sum(d) FILTER (WHERE f), count(DISTINCT b) FROM t GROUP BY ROLLUP (c, f) HAVING max(e) > 0.5e1",
    "SELECT a, rank() OVER (PARTITION BY f ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT * FROM r, LATERAL (SELECT n) x",
    "INSERT INTO t (a, b) VALUES (1, 2), (3, DEFAULT) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *",
    "UPDATE t SET (b, c) = (SELECT 1, 'x'), d = d + $1 FROM u WHERE u.a = t.a AND t.a = ANY ($2::int[]) RETURNING d",
    "DELETE FROM t USING u WHERE t.a = u.a AND EXISTS (SELECT FROM v WHERE v.n > t.b)",
    "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND f THEN UPDATE SET b = 0 WHEN NOT MATCHED THEN INSERT (a) VALUES (u.a)",
    "SELECT E'\\u00e4\\n', $$ dollar $$, U&'\\0041', X'1F', B'01', 1_000, 0x1F, 1.5e-3, 'a' 'b'",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE c END, coalesce(b, 0), nullif(a, b), a::numeric(5, 1), CAST(c AS varchar(3)) FROM t",
    "SELECT (ARRAY[a, 2])[1], (ARRAY[a, 2])[1:2], ARRAY[n] || n, ARRAY[[1, 2], [3, 4]], j -> 'a' ->> 0, j #>> '{a,b}', j @> '{}' FROM u",
    "SELECT extract(year FROM at), at + INTERVAL '1 day 2 hours', z AT TIME ZONE 'Europe/Vienna', date_trunc('month', at) FROM u",
    "SELECT * FROM (SELECT a FROM t UNION SELECT a FROM u EXCEPT ALL VALUES (1), (2)) x INTERSECT SELECT 3 ORDER BY 1",
    "SELECT a FROM t WHERE (a, b) IN (SELECT a, 1 FROM u) AND c SIMILAR TO 'a|b' AND c ~ '^t.*[0-9]$' FOR UPDATE SKIP LOCKED",
    "EXPLAIN (ANALYZE FALSE, COSTS OFF) SELECT * FROM v",
    "CREATE TABLE w (LIKE t INCLUDING ALL, k INT GENERATED ALWAYS AS (a * 2) STORED, EXCLUDE USING gist (a WITH =))",
    "ALTER TABLE t ADD COLUMN g INT DEFAULT 3 NOT NULL, ALTER COLUMN b TYPE TEXT USING b::text, DROP CONSTRAINT t_pkey",
    "COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'x') WHERE a > 1",
    "SELECT generate_series(1, 3), unnest(ARRAY[1, 2]) WITH ORDINALITY",
    "SELECT count(*) FROM t TABLESAMPLE BERNOULLI (10) REPEATABLE (1); SELECT 1; ",
    "GRANT SELECT (a, b), UPDATE ON t TO PUBLIC WITH GRANT OPTION",
    "PREPARE p (int, text) AS SELECT $1 + a, $2 FROM t; EXECUTE p (1, 'x'); DEALLOCATE p",
    "SELECT \"a\".\"a\" FROM t AS \"a\" -- to the end\n /* and /* nested */ on */ WHERE a.f IS NOT TRUE",
];
