//! Types of parameters and results, as drivers ask for them and write them.

use super::postgresql::columns;
use super::wire::{Client, Message, describe, execute, field, parse, query, sync};
use super::{database, postgresql_server};
use serac_server::PgOptions;

/// Parse with numbers of the parameters' types.
fn parse_typed(sql: &str, types: &[u32]) -> Message {
    let mut body = format!("\0{sql}\0").into_bytes();
    body.extend_from_slice(&(types.len() as i16).to_be_bytes());
    types.iter().for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
    (b'P', body)
}

/// Bind of the unnamed statement. Values and results have one format each.
fn bind(values: &[&[u8]], is_binary: bool, gives_binary: bool) -> Message {
    let mut body = [b"\0\0\0\x01\0", &[u8::from(is_binary)][..], &(values.len() as i16).to_be_bytes()].concat();
    for value in values {
        body.extend_from_slice(&(value.len() as i32).to_be_bytes());
        body.extend_from_slice(value);
    }
    body.extend_from_slice(&[0, 1, 0, u8::from(gives_binary)]);
    (b'B', body)
}

/// The values of the first row among the messages.
fn values(messages: &[Message]) -> Vec<Option<Vec<u8>>> {
    let row = messages.iter().find(|message| message.0 == b'D');
    let (_, body) = row.unwrap_or_else(|| panic!("there is a row: {messages:?}"));
    let (mut rest, mut values) = (&body[2..], Vec::new());
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        values.push(length.map(|length| more[..length].to_vec()));
        rest = &more[length.unwrap_or(0)..];
    }
    values
}

/// The error among the messages: its SQLSTATE and its message.
fn error(messages: &[Message]) -> (String, String) {
    let found = messages.iter().find(|message| message.0 == b'E');
    let (_, body) = found.unwrap_or_else(|| panic!("there is an error: {messages:?}"));
    (field(body, b'C').unwrap(), field(body, b'M').unwrap())
}

fn numbers(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_of_several_dimensions_are_parameters() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    let (text, binary) = (&b"{{1,2},{NULL,4}}"[..], numbers(&[2, 1, 23, 2, 1, 2, 1, 4, 1, 4, 2, -1, 4, 4]));
    // int[], told or not, and a text that is cast.
    for (sql, types, value, is_binary) in [
        ("SELECT $1::int[]", &[1007][..], text, false),
        ("SELECT $1::int[]", &[1007], &binary, true),
        ("SELECT $1::int[]", &[], text, false),
        ("SELECT $1::int[]", &[0], &binary, true),
        ("SELECT $1::text::int[]", &[25], text, false),
        ("SELECT $1::text[]::int[]", &[1009], text, false),
        ("SELECT $1::int8[]::int[]", &[], text, false),
    ] {
        for gives_binary in [false, true] {
            // A statement of no array is described before it is bound to one.
            for is_described in [false, true] {
                let mut sent = vec![parse_typed(sql, types)];
                sent.extend(is_described.then(|| describe(b'S', "")));
                sent.extend([bind(&[value], is_binary, gives_binary), execute("", 0), sync()]);
                let given = values(&client.exchange(&sent).await);
                let expected = if gives_binary { &binary[..] } else { text };
                assert_eq!(given, [Some(expected.to_vec())], "{sql} {types:?}");
            }
        }
    }
    // The same statement takes arrays of any dimensions.
    client.exchange(&[parse_typed("SELECT $1::text[] = $2::text[], $1::text", &[1009, 1009]), sync()]).await;
    for text in ["{{{{{{a}}}}}}", "{{{{{{NULL}}}}}}", "{a,b}", "{}", r#"{{"a{b","c}d"},{"ba\"z","qu'x"}}"#] {
        let given = client.exchange(&[bind(&[text.as_bytes(); 2], false, false), execute("", 0), sync()]).await;
        let shown = if text.contains("qu'x") { text.replace("\"qu'x\"", "qu'x") } else { text.to_owned() };
        assert_eq!(values(&given), [Some(b"t".to_vec()), Some(shown.into_bytes())], "{text}");
    }
    client.exchange(&[parse_typed("SELECT $1::int[]", &[1007]), sync()]).await;
    for (value, sqlstate) in [
        (&b"{{{{{{{1}}}}}}}"[..], "54000"),
        (b"{{1},{2,3}}", "22P02"),
        (b"{{1},2}", "22P02"),
        (b"[2:2][1:1]={{1}}", "0A000"),
    ] {
        let given = client.exchange(&[bind(&[value], false, false), execute("", 0), sync()]).await;
        assert_eq!(error(&given).0, sqlstate, "{}", String::from_utf8_lossy(value));
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_tell_their_tables() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)").await;
    client.run("CREATE TABLE u (a INT, d INT)").await;
    client.run("CREATE VIEW v AS SELECT b, a FROM t").await;
    client.run("CREATE TEMPORARY TABLE w (x INT)").await;
    let mut numbers = Vec::new();
    for name in ["t", "u", "v", "w", "pg_class"] {
        let number: i32 = client.run(&format!("SELECT '{name}'::regclass::oid")).await[1].parse().unwrap();
        numbers.push((number, name));
    }
    let origins = |messages: &[Message]| {
        let (_, body) = messages.iter().find(|message| message.0 == b'T').expect("the columns are described");
        let (mut rest, mut found) = (&body[2..], Vec::new());
        while let Some(end) = rest.iter().position(|byte| *byte == 0) {
            let relation = i32::from_be_bytes(rest[end + 1..end + 5].try_into().unwrap());
            let column = i16::from_be_bytes(rest[end + 5..end + 7].try_into().unwrap());
            let name = numbers.iter().find(|(number, _)| *number == relation).map_or("-", |(_, name)| name);
            found.push(format!("{name}.{column}"));
            rest = &rest[end + 19..];
        }
        found.join(" ")
    };
    for (sql, expected) in [
        ("SELECT a, b, a + 1, b::varchar, (a), a::int FROM t", "t.1 t.2 -.0 -.0 t.1 t.1"),
        ("SELECT * FROM t WHERE a = 1", "t.1 t.2"),
        ("SELECT * FROM v", "v.1 v.2"),
        ("SELECT x FROM w", "w.1"),
        ("SELECT oid, relname FROM pg_class LIMIT 1", "pg_class.1 pg_class.2"),
        ("SELECT * FROM t JOIN u USING (a)", "t.1 t.2 u.2"),
        ("SELECT * FROM t RIGHT JOIN u USING (a)", "u.1 t.2 u.2"),
        ("SELECT * FROM t FULL JOIN u USING (a)", "-.0 t.2 u.2"),
        ("SELECT x.* FROM (SELECT a AS z, b || '' FROM t) x", "t.1 -.0"),
        ("WITH w AS (SELECT b, a FROM t) SELECT * FROM w", "t.2 t.1"),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", "-.0"),
        ("SELECT a, count(*) FROM t GROUP BY a", "t.1 -.0"),
        ("SELECT DISTINCT b FROM t ORDER BY b", "t.2"),
        ("SELECT (SELECT a FROM t), max(a) FROM t", "-.0 -.0"),
        ("SELECT * FROM t, LATERAL (SELECT t.b AS q) s", "t.1 t.2 t.2"),
        ("INSERT INTO t VALUES (1) RETURNING b, a, a + 1", "t.2 t.1 -.0"),
        ("UPDATE t SET b = 'x' WHERE a = 1 RETURNING *", "t.1 t.2"),
        ("SELECT a FROM t FOR UPDATE", "t.1"),
        ("DELETE FROM t RETURNING t.b", "t.2"),
        ("SELECT t FROM t", "t.0"),
        ("WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT a + 1 FROM r WHERE a < 1) SELECT a FROM r", "-.0"),
        ("VALUES (1)", "-.0"),
    ] {
        assert_eq!(origins(&client.exchange(&[query(sql)]).await), expected, "{sql}");
        let described = client.exchange(&[parse("", sql), describe(b'S', ""), sync()]).await;
        assert_eq!(origins(&described), expected, "{sql}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_rows_tell_their_types() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (v VARCHAR(5), c CHAR(3), j JSON, d JSONB, n NAME, k NUMERIC(4,2))").await;
    client.run("INSERT INTO t VALUES ('ab', 'a', '{}', '[]', 'x', 1.5)").await;
    let mut fields = async |sql: &str| {
        let given = client.exchange(&[parse("", sql), bind(&[], false, true), execute("", 0), sync()]).await;
        let row = values(&given).remove(0).expect("a row");
        let (mut rest, mut found) = (&row[4..], Vec::new());
        while let Some((head, more)) = rest.split_first_chunk::<8>() {
            let (oid, length) = head.split_at(4);
            let oid = u32::from_be_bytes(oid.try_into().unwrap());
            let length = usize::try_from(i32::from_be_bytes(length.try_into().unwrap())).unwrap_or(0);
            found.push((oid, String::from_utf8_lossy(&more[..length]).into_owned()));
            rest = &more[length..];
        }
        let count = u32::from_be_bytes(row[..4].try_into().unwrap());
        assert_eq!(count as usize, found.len(), "{sql}");
        found
    };
    let of = |all: &[(u32, &str)]| all.iter().map(|(oid, text)| (*oid, (*text).to_owned())).collect::<Vec<_>>();
    assert_eq!(fields("SELECT row('a', NULL, 'b'::text)").await, of(&[(705, "a"), (705, ""), (25, "b")]));
    assert_eq!(
        fields("SELECT row('a'::varchar, 'a'::char(3), 'a'::name)").await,
        of(&[(1043, "a"), (1042, "a  "), (19, "a")])
    );
    assert_eq!(fields("SELECT row(pg_sleep(0), 'x'::\"char\")").await, of(&[(2278, ""), (18, "x")]));
    let json = "\u{1}[]";
    assert_eq!(
        fields("SELECT t FROM t").await[..5],
        of(&[(1043, "ab"), (1042, "a  "), (114, "{}"), (3802, json), (19, "x")])
    );
    assert_eq!(
        fields("SELECT row(ARRAY['a'::varchar], ARRAY['a'])").await.iter().map(|field| field.0).collect::<Vec<_>>(),
        [1015, 1009]
    );
    assert!(fields("SELECT row()").await.is_empty());
    assert_eq!(client.run("SELECT row(), row('a'::char(3)), NULL::record").await[1], "()|(\"a  \")|");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn char_is_any_byte() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    let described = client.exchange(&[parse("", "SELECT $1::\"char\" AS c"), describe(b'S', ""), sync()]).await;
    assert_eq!(columns(&described), ["c 18 1 -1"]);
    let (_, types) = described.iter().find(|message| message.0 == b't').expect("parameters are described");
    assert_eq!(types[2..], 18u32.to_be_bytes());
    for byte in 0..=u8::MAX {
        let given = client.exchange(&[bind(&[&[byte]], true, true), execute("", 0), sync()]).await;
        assert_eq!(values(&given), [Some(vec![byte])]);
    }
    for (text, expected) in [("x", "x"), ("xyz", "x"), ("", ""), ("é", "\\303"), ("\\303", "\\303")] {
        let given = client.exchange(&[bind(&[text.as_bytes()], false, false), execute("", 0), sync()]).await;
        assert_eq!(values(&given), [Some(expected.as_bytes().to_vec())]);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn casts_tell_their_modifiers() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (i INTERVAL(0), j INTERVAL)").await;
    for (sql, expected) in [
        ("SELECT NULL::interval(2) AS a", "a 1186 16 2147418114"),
        ("SELECT NULL::interval day to second(2) AS a", "a 1186 16 470286338"),
        ("SELECT INTERVAL '1' YEAR AS a", "a 1186 16 327679"),
        ("SELECT NULL::interval AS a", "a 1186 16 -1"),
        ("SELECT i AS a FROM t", "a 1186 16 2147418112"),
        ("SELECT NULL::numeric(2,-3) AS a", "a 1700 -1 133121"),
        ("SELECT NULL::numeric(5,2)[] AS a", "a 1231 -1 327686"),
        ("SELECT NULL::varchar(3)[] AS a", "a 1015 -1 7"),
        ("SELECT ARRAY['a']::bpchar[] AS a", "a 1014 -1 -1"),
    ] {
        assert_eq!(columns(&client.exchange(&[query(sql)]).await), [expected], "{sql}");
    }
    client.run("INSERT INTO t VALUES ('1.5 seconds', '1.5 seconds')").await;
    assert_eq!(client.run("SELECT i, j FROM t").await[1], "00:00:02|00:00:01.5");
    assert_eq!(client.run("SELECT '{abcd,{}}'::varchar(3)[]").await[0], "22P02");
    assert_eq!(
        client.run("SELECT '{abcd,NULL}'::text::varchar(3)[], '{{abcd}}'::varchar(3)[]").await[1],
        "{abc,NULL}|{{abc}}"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_without_a_type_are_refused_and_void_ones_left_out() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    for sql in [
        "SELECT concat($1, 'a')",
        "SELECT concat_ws(',', $1)",
        "SELECT format('%s', $1)",
        "SELECT num_nulls($1)",
        "SELECT jsonb_build_array($1)",
        "SELECT json_build_object('k', $1)",
        "SELECT row($1)",
        "SELECT count($1)",
    ] {
        let given = client.exchange(&[parse("", sql), describe(b'S', ""), sync()]).await;
        let expected = ("42P18".to_owned(), "could not determine data type of parameter $1".to_owned());
        assert_eq!(error(&given), expected, "{sql}");
    }
    let sql = "SELECT length(now($1::void)::text) > 10, abs($2::void, -3)";
    let sent = [parse("", sql), bind(&[b"", b""], false, false), execute("", 0), sync()];
    assert_eq!(values(&client.exchange(&sent).await), [Some(b"t".to_vec()), Some(b"3".to_vec())]);
    let given = client.exchange(&[parse_typed("SELECT $1", &[869]), describe(b'S', ""), sync()]).await;
    assert_eq!(error(&given).0, "0A000");
    assert!(error(&given).1.contains("869"), "{}", error(&given).1);
    // A statement of more parameters than a Bind gives is prepared.
    let many: Vec<String> = (1..=65_536).map(|number| format!("(${number}::text)")).collect();
    let given = client.told(&[parse("", &format!("VALUES {}", many.join(", "))), sync()]).await;
    assert_eq!(given, ["1", "ZI"]);
    let given = client.exchange(&[bind(&[], false, false), sync()]).await;
    assert_eq!(error(&given).0, "08P01");
    served.end().await;
}
