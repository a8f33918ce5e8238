//! COPY through a session's streams: the output can be read in again, and rows of plain numbers,
//! which have a parser of their own, equal those of texts.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use std::io::{Cursor, Write};
use std::sync::Arc;

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn session() -> Session {
    let database = Database::in_memory().unwrap();
    Session::new(&SqlDatabase::new(database, &SqlOptions::default()).unwrap())
}

async fn out(session: &mut Session, copy: &str) -> String {
    let output = Output::default();
    session.set_copy_output(Box::new(output.clone()));
    session.execute(copy).await.unwrap_or_else(|error| panic!("{copy}: {error}"));
    let bytes = std::mem::take(&mut *output.0.lock());
    String::from_utf8(bytes).unwrap()
}

async fn into(session: &mut Session, copy: &str, text: impl Into<String>) -> Result<u64, SqlError> {
    session.set_copy_input(Box::new(Cursor::new(text.into().into_bytes())));
    match session.execute(copy).await?.pop() {
        Some(StatementResult::Command { rows, .. }) => Ok(rows),
        _ => panic!("{copy} is a command"),
    }
}

#[tokio::test]
async fn what_goes_out_comes_in_again() {
    let mut session = session();
    let columns = "id INT, t TEXT, b BOOLEAN, n NUMERIC(20,3), f DOUBLE PRECISION, d DATE, ts TIMESTAMP, raw BYTEA, \
        i BIGINT, free NUMERIC";
    session.execute(&format!("CREATE TABLE t ({columns}); CREATE TABLE u ({columns})")).await.unwrap();
    let texts = [
        "''",
        "NULL",
        "'NULL'",
        "','",
        "'\"'",
        "E'\\n'",
        "E'a\\r\\nb'",
        "' x '",
        "E'\\\\.'",
        "'\\N'",
        "E'\\t'",
        "'ü'",
        "'\"\"'",
    ];
    for (id, text) in texts.iter().enumerate() {
        let rest = match id % 4 {
            0 => "true, 1.5, 0.1, '2020-02-29', '2020-02-29 12:34:56.789', '\\x00ff', -9223372036854775807, 1.500",
            1 => "false, -0.001, -1e300, '0001-01-01', '9999-12-31 00:00:00', '\\x', 0, 'NaN'",
            2 => "true, 2, 'Infinity', '-infinity', 'infinity', NULL, 1, 'Infinity'",
            _ => "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
        };
        session.execute(&format!("INSERT INTO t VALUES ({id}, {text}, {rest})")).await.unwrap();
    }
    let dump = "COPY (SELECT *, t IS NULL, length(t) FROM {} ORDER BY id) TO STDOUT (FORMAT text)";
    let wanted = out(&mut session, &dump.replace("{}", "t")).await;
    assert!(wanted.lines().count() >= texts.len());
    for options in [
        "(FORMAT csv)",
        "(FORMAT csv, HEADER, DELIMITER ';')",
        "(FORMAT csv, NULL 'NULL', QUOTE '''')",
        "(FORMAT csv, DELIMITER E'\\t')",
        "(FORMAT text)",
        "(FORMAT text, NULL '', HEADER)",
        "(FORMAT binary)",
    ] {
        let output = Output::default();
        session.set_copy_output(Box::new(output.clone()));
        session.execute(&format!("COPY t TO STDOUT {options}")).await.unwrap();
        let bytes = std::mem::take(&mut *output.0.lock());
        session.execute("TRUNCATE u").await.unwrap();
        session.set_copy_input(Box::new(Cursor::new(bytes)));
        session
            .execute(&format!("COPY u FROM STDIN {options}"))
            .await
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        // In the text format without another NULL, an empty text is NULL.
        if !options.contains("NULL ''") {
            assert_eq!(out(&mut session, &dump.replace("{}", "u")).await, wanted, "{options}");
        }
    }
    // A column alone: NULL is an empty line.
    session.execute("CREATE TABLE a (t TEXT); CREATE TABLE b (t TEXT); INSERT INTO a SELECT t FROM t").await.unwrap();
    let lines = out(&mut session, "COPY a TO STDOUT (FORMAT csv)").await;
    assert!(lines.starts_with("\"\"\n\nNULL\n\",\"\n\"\"\"\"\n") && lines.contains("\n\"\\.\"\n"), "{lines}");
    assert_eq!(into(&mut session, "COPY b FROM STDIN (FORMAT csv)", lines).await.unwrap(), texts.len() as u64);
    let missing =
        out(&mut session, "COPY (SELECT count(*) FROM (SELECT t FROM a EXCEPT ALL SELECT t FROM b)) TO STDOUT").await;
    assert_eq!(missing, "0\n");
}

#[tokio::test]
async fn options_are_obeyed_or_refused() {
    let mut session = session();
    session.execute("CREATE TABLE t (a TEXT, b INT, c TEXT)").await.unwrap();
    let copy = "COPY t FROM STDIN (FORMAT csv, NULL 'x', FORCE_NULL (a), FORCE_NOT_NULL (c))";
    assert_eq!(into(&mut session, copy, "\"x\",x,x\nx,1,\"x\"\n\"y\",2,\n").await.unwrap(), 3);
    assert_eq!(out(&mut session, "COPY t TO STDOUT (FORMAT csv, NULL '-')").await, "-,-,x\n-,1,x\ny,2,\n");
    for (copy, sqlstate) in [
        ("COPY t (a, a) FROM STDIN", "42701"),
        ("COPY t (a, b) FROM STDIN (FORMAT csv, FORCE_NULL (c))", "42P10"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NOT_NULL (nope))", "42703"),
        ("COPY t (a, a) TO STDOUT", "42701"),
        ("COPY t FROM STDIN (FORMAT text, FORCE_NULL (a))", "0A000"),
        ("COPY t TO STDOUT (FORMAT csv, FORCE_NULL (a))", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_QUOTE (a))", "0A000"),
        ("COPY t TO STDOUT (FORMAT text, FORCE_QUOTE (a))", "0A000"),
        ("COPY t FROM STDIN (FORMAT text, ESCAPE '\\')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, ESCAPE 'ab')", "0A000"),
        ("COPY t TO STDOUT WHERE b > 1", "42601"),
        ("COPY t FROM STDIN WHERE (SELECT true)", "0A000"),
        ("COPY t FROM STDIN WHERE count(*) > 1", "42803"),
        ("COPY t FROM STDIN WHERE b", "42804"),
        ("COPY t FROM STDIN WHERE nope > 1", "42703"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITER '\"')", "22023"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITER 'ab')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITER '')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITER 'ä')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, QUOTE '''''')", "0A000"),
        ("COPY t FROM STDIN DELIMITER AS '||'", "0A000"),
        ("COPY t FROM STDIN (FORMAT text, QUOTE '''')", "0A000"),
        ("COPY t FROM STDIN (FORMAT text, DELIMITER 'a')", "22023"),
        ("COPY t FROM STDIN (FORMAT text, DELIMITER '.')", "22023"),
        ("COPY t FROM STDIN (FORMAT text, DELIMITER E'\\\\')", "22023"),
        ("COPY t FROM STDIN (FORMAT binary, DELIMITER ',')", "42601"),
        ("COPY t FROM STDIN (FORMAT binary, NULL 'x')", "42601"),
        ("COPY t FROM STDIN (FORMAT binary, NULL '')", "42601"),
        ("COPY t FROM STDIN (FORMAT binary, HEADER)", "0A000"),
        ("COPY t TO STDOUT (FORMAT binary, HEADER)", "0A000"),
        ("COPY t TO STDOUT (FORMAT binary, NULL '')", "42601"),
        ("COPY t FROM STDIN (HEADER, NULL '', FORMAT binary)", "42601"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (a, b, a))", "42701"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NOT_NULL (c, c))", "42701"),
        ("COPY t (a, b) FROM STDIN (FORMAT csv, FORCE_NULL (c, c))", "42701"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (nope, nope))", "42703"),
        ("COPY t FROM STDIN (FORMAT text, FORCE_NULL (a, a))", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FREEZE)", "55000"),
        ("COPY t FROM STDIN (FORMAT csv, DELIMITER E'\\n')", "22023"),
        ("COPY t FROM STDIN (FORMAT csv, NULL 'a,b')", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, NULL 'a\"b')", "0A000"),
        ("COPY t FROM STDIN (FORMAT text, NULL E'a\\nb')", "22023"),
    ] {
        session.set_copy_output(Box::new(Output::default()));
        let error = into(&mut session, copy, "").await.unwrap_err();
        assert_eq!(error.sqlstate, sqlstate, "{copy}: {error}");
    }
    let error = into(&mut session, "COPY t FROM STDIN (FORMAT csv)", "a,1,b\nc,2,\"d\ne,3,f\n").await.unwrap_err();
    assert_eq!((error.sqlstate, error.message.as_str()), ("22P04", "unterminated CSV quoted field"));
    assert!(error.detail.unwrap().ends_with("line 2"));
    assert_eq!(out(&mut session, "COPY (SELECT count(*) FROM t) TO STDOUT").await, "3\n");
}

/// The same files into a table of INTEGER, whose plain rows have a parser of their own, and into
/// one of BIGINT, whose rows are all texts.
#[tokio::test]
async fn plain_rows_are_what_texts_give() {
    let seed = serac_testing::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut session = session();
    let columns = "(a {} NOT NULL, b {} DEFAULT 7, c {} CHECK (c <> 666), s {} GENERATED ALWAYS AS (a + 1) STORED)";
    for (table, column_type) in [("i", "INTEGER"), ("l", "BIGINT")] {
        session.execute(&format!("CREATE TABLE {table} {}", columns.replace("{}", column_type))).await.unwrap();
    }
    for round in 0..60 {
        let rows = if round % 4 == 0 { rng.random_range(0..40_000) } else { rng.random_range(0..40) };
        let (delimiter, quote) = ([',', ';', '|', '\t'][rng.random_range(0..4)], ['"', '\''][rng.random_range(0..2)]);
        let null = ["", "", "x", "-", "0", "-1", "\\N"][rng.random_range(0..7)];
        let list: &[usize] = [&[0, 1, 2][..], &[2, 0, 1], &[0, 2], &[1, 0], &[0]][rng.random_range(0..5)];
        let header = rng.random_bool(0.3);
        let force = ["", ", FORCE_NULL (a)", ", FORCE_NOT_NULL (a)"][rng.random_range(0..3)];
        // The number of rows to one that is odd, or has an error.
        let odd = [5_u64, 50, 5_000, 1 << 30][rng.random_range(0..4)];
        let wrong = [50_u64, 20_000, 1 << 30][rng.random_range(0..3)];
        let end = ["\n", "\n", "\r\n", "\r"][rng.random_range(0..4)];
        let mut text = String::new();
        if header {
            text.push_str(&format!("a line of names{end}"));
        }
        for _ in 0..rows {
            let field = |rng: &mut StdRng, column: usize| {
                let number = rng.random::<i32>() >> rng.random_range(0..31);
                if column > 0 && rng.random_range(0..odd) < 2 {
                    return null.to_owned();
                }
                match rng.random_range(0..odd.saturating_mul(4)) {
                    0 => format!("{quote}{number}{quote}"),
                    1 => format!(" {number}"),
                    2 => format!("{number} "),
                    3 => format!("00000000000{}", number.unsigned_abs() / 2),
                    4 => "+5".into(),
                    5 => "-0".into(),
                    _ => number.to_string(),
                }
            };
            let mut fields: Vec<String> = list.iter().map(|column| field(&mut rng, *column)).collect();
            match rng.random_range(0..wrong * 6) {
                0 => fields.push("1".into()),
                1 => _ = fields.pop(),
                2 => fields[0] = "one".into(),
                3 => fields[0] = null.into(),
                4 => *fields.last_mut().unwrap() = "666".into(),
                // A line without a character, or an end that is not that of other lines.
                5 => text.push_str(["\n", "\r", "\r\n"][rng.random_range(0..3)]),
                _ => {}
            }
            text.push_str(&fields.join(&delimiter.to_string()));
            text.push_str(end);
            if list.len() == 1 && rng.random_range(0..odd) == 0 {
                text.push_str(end);
            }
        }
        if rng.random_bool(0.3) {
            text.pop();
        }
        let names: Vec<&str> = list.iter().map(|column| ["a", "b", "c"][*column]).collect();
        let (constant, delimiter) = (quote.to_string().replace('\'', "''"), delimiter);
        let mut given = Vec::new();
        for table in ["i", "l"] {
            session.execute(&format!("TRUNCATE {table}")).await.unwrap();
            let copy = format!(
                "COPY {table} ({}) FROM STDIN (FORMAT csv, HEADER {header}, DELIMITER '{delimiter}', QUOTE '{constant}', NULL '{null}'{force})",
                names.join(", ")
            );
            let loaded = into(&mut session, &copy, text.clone()).await.map_err(|error| {
                // A type's name is the table's.
                let told = |text: String| text.replace("bigint", "integer").replace("\"l", "\"i");
                (error.sqlstate, told(error.message), error.detail.map(told))
            });
            let dump =
                out(&mut session, &format!("COPY (SELECT a, b, c, s FROM {table} ORDER BY 1, 2, 3) TO STDOUT")).await;
            given.push((loaded, dump));
        }
        if given[0] != given[1] {
            let differing = given[0].1.lines().zip(given[1].1.lines()).find(|(one, other)| one != other);
            panic!(
                "round {round} of seed {seed}: {:?} and {:?}, {differing:?}; quote {quote}, NULL {null:?}, columns {names:?}{force}",
                given[0].0, given[1].0
            );
        }
    }
}

#[tokio::test]
async fn lines_are_those_of_postgresql() {
    let mut session = session();
    session.execute("CREATE TABLE t (a INT, b TEXT)").await.unwrap();
    let (newline, carriage_return) = ("newline found in data", "carriage return found in data");
    let missing = "missing data for column 2";
    for (options, text, wanted) in [
        ("FORMAT text, HEADER", "a\tb\r1\tx\r2\t\\N\r", Ok("1,x\n2,\n")),
        ("FORMAT text", "1\tx\\\ny\n2\tz\\\\\n", Ok("1,\"x\ny\"\n2,z\\\n")),
        ("FORMAT text", "1\tx\n2\ty\rz\n", Err(carriage_return)),
        ("FORMAT text", "1\tx\r\n2\ty\n", Err(newline)),
        ("FORMAT csv", "1,x\r2,y\r", Ok("1,x\n2,y\n")),
        ("FORMAT csv", "1,\"x\r\ny\"\n2,y\n", Ok("1,\"x\r\ny\"\n2,y\n")),
        ("FORMAT csv", "1,x\n2,y\r\n", Err(carriage_return)),
        ("FORMAT csv", "1,x\r\n2,y\n", Err(newline)),
        ("FORMAT csv", "1,x\n\n2,y\n", Err(missing)),
        ("FORMAT csv", "\n1,x\n", Err(missing)),
        ("FORMAT csv, HEADER", "\n1,x\n2,y\n", Ok("1,x\n2,y\n")),
    ] {
        session.execute("TRUNCATE t").await.unwrap();
        let read = into(&mut session, &format!("COPY t FROM STDIN ({options})"), text).await;
        let rows = out(&mut session, "COPY (SELECT * FROM t ORDER BY a) TO STDOUT (FORMAT csv)").await;
        match (read, wanted) {
            (Ok(_), Ok(wanted)) => assert_eq!(rows, wanted, "{options}: {text:?}"),
            (Err(error), Err(wanted)) => {
                assert_eq!(error.sqlstate, "22P04", "{text:?}");
                assert!(error.message.ends_with(wanted), "{text:?}: {error}");
                assert_eq!(rows, "", "{text:?}");
            }
            (read, wanted) => panic!("{options}: {text:?} gives {read:?}, not {wanted:?}"),
        }
    }
}

/// Values are kept without the blanks that the length of CHAR(n) adds.
#[tokio::test]
async fn values_of_char_are_written_with_their_blanks() {
    let mut session = session();
    let table = "CREATE TABLE t (id INT, c CHAR(4), d TEXT); CREATE TABLE u (id INT, c CHAR(4), d TEXT)";
    session
        .execute(&format!("{table}; INSERT INTO t VALUES (1, 'ab', 'x'), (2, 'äö', NULL), (3, NULL, 'z')"))
        .await
        .unwrap();
    let rows = "(SELECT c, d FROM t ORDER BY id)";
    for (options, wanted) in [
        ("FORMAT text", "ab  \tx\näö  \t\\N\n\\N\tz\n"),
        ("FORMAT csv", "ab  ,x\näö  ,\n,z\n"),
        ("FORMAT csv, HEADER", "c,d\nab  ,x\näö  ,\n,z\n"),
        ("FORMAT csv, NULL 'ab'", "ab  ,x\näö  ,ab\nab,z\n"),
        ("FORMAT csv, NULL 'ab  '", "\"ab  \",x\näö  ,ab  \nab  ,z\n"),
        ("FORMAT csv, DELIMITER ' '", "\"ab  \" x\n\"äö  \" \n z\n"),
        ("FORMAT text, DELIMITER ' '", "ab\\ \\  x\näö\\ \\  \\N\n\\N z\n"),
    ] {
        assert_eq!(out(&mut session, &format!("COPY {rows} TO STDOUT ({options})")).await, wanted, "{options}");
    }
    assert_eq!(out(&mut session, "COPY t (c) TO STDOUT (FORMAT text)").await, "ab  \näö  \n\\N\n");
    let literals = "COPY (SELECT '   '::CHAR(2), ''::CHAR(3), 'a'::CHAR(3)::TEXT) TO STDOUT (FORMAT csv)";
    assert_eq!(out(&mut session, literals).await, "  ,   ,a\n");
    let output = Output::default();
    session.set_copy_output(Box::new(output.clone()));
    session.execute(&format!("COPY {rows} TO STDOUT (FORMAT binary)")).await.unwrap();
    let bytes = output.0.lock().clone();
    let wanted = [
        &b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0"[..],
        b"\0\x02\0\0\0\x04ab  \0\0\0\x01x",
        "\0\u{2}\0\0\0\u{6}äö  ".as_bytes(),
        b"\xff\xff\xff\xff",
        b"\0\x02\xff\xff\xff\xff\0\0\0\x01z\xff\xff",
    ];
    assert_eq!(bytes, wanted.concat());
    for options in ["FORMAT text", "FORMAT csv"] {
        let written = out(&mut session, &format!("COPY t TO STDOUT ({options})")).await;
        session.execute("TRUNCATE u").await.unwrap();
        assert_eq!(into(&mut session, &format!("COPY u FROM STDIN ({options})"), written).await.unwrap(), 3);
        let missing = "COPY (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE u)) TO STDOUT";
        assert_eq!(out(&mut session, missing).await, "0\n", "{options}");
    }
}

#[tokio::test]
async fn numbers_are_read_as_by_insert() {
    let mut session = session();
    session.execute("CREATE TABLE t (n NUMERIC(10,2))").await.unwrap();
    for (text, wanted) in [
        ("1e3", Ok("1000.00\n")),
        (" 1.5e1 ", Ok("15.00\n")),
        ("-25E-1", Ok("-2.50\n")),
        ("1e-3", Ok("0.00\n")),
        ("1e-400", Ok("0.00\n")),
        ("12345678.995", Ok("12345679.00\n")),
        ("1e30", Err("22003")),
        ("1e400", Err("22003")),
        ("99999999.995", Err("22003")),
        ("123456789012345678901234567890123456789012345.5", Err("22003")),
        ("Infinity", Err("22003")),
        // A column with a precision has no NaN.
        ("NaN", Err("22003")),
        ("0x10", Err("22P02")),
        ("1_000", Err("22P02")),
        ("1e", Err("22P02")),
        ("abc", Err("22P02")),
    ] {
        for way in ["INSERT", "FORMAT text", "FORMAT csv"] {
            session.execute("TRUNCATE t").await.unwrap();
            let read = match way {
                "INSERT" => session.execute(&format!("INSERT INTO t VALUES ('{text}')")).await.map(drop),
                // The number stands among others, which are read together.
                format => {
                    let copy = format!("COPY t FROM STDIN ({format}) WHERE n <> 7");
                    into(&mut session, &copy, format!("7.00\n{text}\n7\n")).await.map(drop)
                }
            };
            let rows = out(&mut session, "COPY t TO STDOUT (FORMAT text)").await;
            assert_eq!(read.map(|()| rows.as_str()).map_err(|error| error.sqlstate), wanted, "{way}: {text:?}");
        }
    }
    let error = into(&mut session, "COPY t FROM STDIN (FORMAT text)", "1e3\n2\nabc\n").await.unwrap_err();
    assert_eq!(error.message, "invalid input syntax for type numeric: \"abc\"");
    assert!(error.detail.as_deref().is_some_and(|detail| detail.contains("line 3")), "{:?}", error.detail);
}

/// FREEZE is for tables that were created or truncated behind the newest savepoint.
#[tokio::test]
async fn freeze_is_for_new_data() {
    let mut session = session();
    session.execute("CREATE TABLE t (a INT); CREATE TEMPORARY TABLE old_temporary (a INT)").await.unwrap();
    for (before, table, is_new) in [
        ("SELECT 1", "t", false),
        ("CREATE TABLE f (a INT)", "f", true),
        ("CREATE TABLE f AS SELECT 1 AS a", "f", true),
        ("CREATE TABLE f (a INT)", "t", false),
        ("TRUNCATE t", "t", true),
        ("INSERT INTO t VALUES (1); TRUNCATE t; INSERT INTO t VALUES (2)", "t", true),
        ("TRUNCATE t; SAVEPOINT s", "t", false),
        ("SAVEPOINT s; TRUNCATE t", "t", true),
        ("SAVEPOINT s; TRUNCATE t; RELEASE s", "t", true),
        ("SAVEPOINT s; TRUNCATE t; ROLLBACK TO s", "t", false),
        ("SAVEPOINT r; CREATE TABLE f (a INT); SAVEPOINT s", "f", false),
        ("CREATE TEMPORARY TABLE f (a INT)", "f", true),
        ("SAVEPOINT s; CREATE TEMPORARY TABLE f (a INT)", "f", true),
        ("CREATE TEMPORARY TABLE f (a INT); SAVEPOINT s", "f", false),
        ("SELECT 1", "old_temporary", false),
        ("TRUNCATE old_temporary", "old_temporary", true),
    ] {
        session.execute(&format!("BEGIN; {before}")).await.unwrap();
        let copy = format!("COPY {table} FROM STDIN (FORMAT csv, FREEZE)");
        let given = into(&mut session, &copy, "7\n").await.map_err(|error| error.sqlstate);
        assert_eq!(given, if is_new { Ok(1) } else { Err("55000") }, "{before}: {table}");
        session.execute("ROLLBACK").await.unwrap();
    }
    // What is not frozen may be old, and COPY TO freezes nothing.
    assert_eq!(into(&mut session, "COPY t FROM STDIN (FORMAT csv, FREEZE off)", "7\n").await.unwrap(), 1);
    assert_eq!(out(&mut session, "COPY t TO STDOUT (FORMAT csv, FREEZE)").await, "7\n");
}

#[tokio::test]
async fn an_escape_takes_the_meaning_of_a_quote_away() {
    let mut session = session();
    session.execute("CREATE TABLE t (a INT, b TEXT, c TEXT)").await.unwrap();
    let copy = r"COPY t FROM STDIN (FORMAT csv, ESCAPE '\')";
    let text = "1,\"a\\\"b\\\\c\\d\",\\\n2,\"x\n\\\"y,\",\"\\\\\"\n";
    assert_eq!(into(&mut session, copy, text).await.unwrap(), 2);
    let rows = out(&mut session, "COPY (SELECT b, c FROM t ORDER BY a) TO STDOUT (FORMAT text)").await;
    assert_eq!(rows, "a\"b\\\\c\\\\d\t\\\\\nx\\n\"y,\t\\\\\n");
    // An escape alone needs no quotes.
    let copy_out = r"COPY (SELECT * FROM t ORDER BY a) TO STDOUT (FORMAT csv, ESCAPE '\')";
    assert_eq!(out(&mut session, copy_out).await, "1,\"a\\\"b\\\\c\\\\d\",\\\n2,\"x\n\\\"y,\",\\\n");
    // Without an escape character, it is the quote.
    let quoted = out(&mut session, "COPY (SELECT 'it''s', 'a') TO STDOUT (FORMAT csv, QUOTE '''')").await;
    assert_eq!(quoted, "'it''s',a\n");
    let unended = into(&mut session, copy, "1,\"a\\\",b\n").await.unwrap_err();
    assert_eq!((unended.sqlstate, unended.message.as_str()), ("22P04", "unterminated CSV quoted field"));
}

#[tokio::test]
async fn a_condition_leaves_rows_out() {
    let mut session = session();
    let table = "CREATE TABLE t (a INT NOT NULL, b TEXT DEFAULT 'd', g INT GENERATED ALWAYS AS (a * 2) STORED)";
    session.execute(table).await.unwrap();
    let copy = "COPY t (a, b) FROM STDIN (FORMAT text) WHERE a > 1 AND b <> 'z'";
    assert_eq!(into(&mut session, copy, "1\tx\n2\ty\n3\tz\n").await.unwrap(), 1);
    // Defaults are there before it, and constraints come after it.
    let copy = "COPY t (a) FROM STDIN (FORMAT text) WHERE b = 'd' AND a IS NOT NULL";
    assert_eq!(into(&mut session, copy, "\\N\n4\n").await.unwrap(), 1);
    assert_eq!(out(&mut session, "COPY (SELECT * FROM t ORDER BY a) TO STDOUT (FORMAT csv)").await, "2,y,4\n4,d,8\n");
    let error = into(&mut session, "COPY t (a, b) FROM STDIN WHERE g > 1", "").await.unwrap_err();
    assert_eq!(error.sqlstate, "42P10");
    assert_eq!(error.message, "generated columns are not supported in COPY FROM WHERE conditions");
    // A whole row has the generated column, but a field of it need not be that.
    for whole in ["t IS NOT NULL", "t.* IS NOT NULL", "row(t.*) IS NOT NULL", "t = t", "(t).g > 1", "t.g > 1"] {
        let copy = format!("COPY t (a, b) FROM STDIN (FORMAT text) WHERE {whole}");
        let error = into(&mut session, &copy, "1\tx\n").await.unwrap_err();
        assert_eq!(error.sqlstate, "42P10", "{whole}: {error}");
        assert_eq!(error.detail.as_deref(), Some("Column \"g\" is a generated column."), "{whole}");
    }
    session.execute("TRUNCATE t").await.unwrap();
    let copy = "COPY t (a, b) FROM STDIN (FORMAT text) WHERE (t).a > 1 AND t.b IS NOT NULL";
    assert_eq!(into(&mut session, copy, "1\tx\n2\ty\n3\t\\N\n").await.unwrap(), 1);
    // Nor has it the values that an index has of its own.
    session.execute("CREATE TABLE u (a INT, b TEXT); CREATE INDEX i ON u (upper(b))").await.unwrap();
    let copy = "COPY u FROM STDIN (FORMAT text) WHERE u IS NOT NULL";
    assert_eq!(into(&mut session, copy, "1\tx\n2\t\\N\n").await.unwrap(), 1);
    assert_eq!(out(&mut session, "COPY (SELECT * FROM u WHERE upper(b) = 'X') TO STDOUT").await, "1,x\n");
    let copy = "COPY t (a, b) FROM STDIN (FORMAT text) WHERE 10 / a > 0";
    let error = into(&mut session, copy, "1\tx\n0\ty\n").await.unwrap_err();
    assert_eq!(error.sqlstate, "22012");
    assert!(error.detail.as_deref().is_some_and(|detail| detail.contains("line 2")), "{:?}", error.detail);
}
