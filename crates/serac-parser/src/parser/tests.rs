//! Precedence, errors with their places, bounds, and statements that were changed at random.

use crate::parse;
use crate::tree::{Expr, ExprKind, Literal, Postfix, QueryBody, StatementKind};

/// An expression with all its parentheses.
fn shown(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Literal(Literal::Integer(text) | Literal::Numeric(text)) => text.clone(),
        ExprKind::Literal(Literal::String(text)) => format!("'{text}'"),
        ExprKind::Literal(other) => format!("{other:?}"),
        ExprKind::Name(name) => name.to_string(),
        ExprKind::Or(all) => format!("({})", all.iter().map(shown).collect::<Vec<_>>().join(" OR ")),
        ExprKind::And(all) => format!("({})", all.iter().map(shown).collect::<Vec<_>>().join(" AND ")),
        ExprKind::Not(operand) => format!("(NOT {})", shown(operand)),
        ExprKind::Operators(first, rest) => rest
            .iter()
            .fold(shown(first), |left, (operator, right)| format!("({left} {} {})", operator.symbol, shown(right))),
        ExprKind::Prefix(operators, operand) => {
            operators.iter().rev().fold(shown(operand), |operand, operator| format!("({} {operand})", operator.symbol))
        }
        ExprKind::Postfix(operand, rest) => rest.iter().fold(shown(operand), |operand, postfix| match postfix {
            Postfix::Cast(to, _) => format!("({operand}::{})", to.name),
            Postfix::Index(index) => format!("{operand}[{}]", shown(index)),
            Postfix::Field(field) => format!("({operand}).{}", field.name),
            Postfix::Collate(name) => format!("({operand} COLLATE {name})"),
            Postfix::AtTimeZone(zone, _) => format!("({operand} AT {})", shown(zone)),
            Postfix::Is { negated, test, .. } => {
                let not = if *negated { "NOT " } else { "" };
                match test {
                    crate::tree::IsTest::DistinctFrom(other) => {
                        format!("({operand} IS {not}DISTINCT {})", shown(other))
                    }
                    other => format!("({operand} IS {not}{other:?})"),
                }
            }
            other => format!("{operand}{other:?}"),
        }),
        ExprKind::Between { operand, low, high, .. } => {
            format!("({} BETWEEN {} AND {})", shown(operand), shown(low), shown(high))
        }
        ExprKind::InList { operand, list, .. } => {
            format!("({} IN {})", shown(operand), list.iter().map(shown).collect::<Vec<_>>().join(","))
        }
        ExprKind::Like { operand, pattern, .. } => format!("({} LIKE {})", shown(operand), shown(pattern)),
        ExprKind::Cast { operand, to } => format!("CAST({} AS {})", shown(operand), to.name),
        ExprKind::Row { fields, .. } => format!("ROW({})", fields.iter().map(shown).collect::<Vec<_>>().join(",")),
        ExprKind::Subquery(_) => "(query)".into(),
        ExprKind::InQuery { operand, .. } => format!("({} IN query)", shown(operand)),
        ExprKind::Call(call) => {
            let arguments = call.arguments.iter().map(|argument| shown(&argument.value)).collect::<Vec<_>>();
            format!("{}({})", call.name, arguments.join(","))
        }
        other => format!("{other:?}"),
    }
}

/// The only expression that a SELECT has, with all its parentheses.
fn expression(text: &str) -> String {
    let sql = format!("SELECT {text}");
    let statement = parse(&sql).unwrap_or_else(|error| panic!("{sql}: {error}")).pop().unwrap();
    let StatementKind::Query(query) = statement.kind else { panic!("{sql}") };
    let QueryBody::Select(select) = query.body else { panic!("{sql}") };
    assert_eq!(select.items.len(), 1, "{sql}");
    shown(&select.items[0].expr)
}

/// The message and the place, in bytes from 1, of an error.
fn error(sql: &str) -> (String, u32) {
    let error = parse(sql).expect_err(sql);
    assert_eq!(error.sqlstate, sqlstate::SYNTAX_ERROR, "{sql}");
    (error.message, error.position + 1)
}

#[test]
fn operators_bind_as_in_postgresql() {
    for (text, expected) in [
        ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)"),
        ("- a ^ b", "((- a) ^ b)"),
        ("2 ^ 3 ^ 4", "((2 ^ 3) ^ 4)"),
        ("~ a + b", "(~ (a + b))"),
        ("@ a - b", "(@ (a - b))"),
        ("~ a | b", "((~ a) | b)"),
        ("- ~ a + b", "(- (~ (a + b)))"),
        ("- - a", "(- (- a))"),
        ("a OR b AND NOT c = d", "(a OR (b AND (NOT (c = d))))"),
        ("a = NOT b = c", "(a = (NOT (b = c)))"),
        ("a IS NULL = b", "((a IS Null) = b)"),
        ("a = b IS NULL", "((a = b) IS Null)"),
        ("a IS NULL IS NOT NULL", "((a IS Null) IS NOT Null)"),
        ("a || b + c", "(a || (b + c))"),
        ("a -> b -> c", "((a -> b) -> c)"),
        ("a < b + c", "(a < (b + c))"),
        ("a LIKE b || c", "(a LIKE (b || c))"),
        ("a IN (1, 2) = b", "((a IN 1,2) = b)"),
        ("a BETWEEN 1 AND 2 AND b", "((a BETWEEN 1 AND 2) AND b)"),
        ("a BETWEEN b = c AND d", "(a BETWEEN (b = c) AND d)"),
        ("a IS DISTINCT FROM b + 1 OR c", "((a IS DISTINCT (b + 1)) OR c)"),
        ("- a::int", "(- (a::int4))"),
        ("- a COLLATE \"C\"", "((- a) COLLATE C)"),
        ("a + b AT TIME ZONE c", "(a + (b AT c))"),
        ("1::int::text", "((1::int4)::text)"),
        ("a[1] + (b).c", "(a[1] + (b).c)"),
        ("(a, b) = (c, d)", "(ROW(a,b) = ROW(c,d))"),
        ("((1)) + 2", "(1 + 2)"),
        ("((a + b) + c)", "((a + b) + c)"),
        ("a + (b + c)", "(a + (b + c))"),
        ("((SELECT 1) + 1)", "((query) + 1)"),
        ("((SELECT 1) UNION SELECT 2)", "(query)"),
        ("a IN ((SELECT 1))", "(a IN query)"),
        ("a IN ((SELECT 1), 2)", "(a IN (query),2)"),
        ("date '2020-01-01'", "CAST('2020-01-01' AS date)"),
        ("double precision '1'", "CAST('1' AS float8)"),
        ("numeric(10,2) '1'", "CAST('1' AS numeric)"),
        ("f(1, g(2))", "f(1,g(2))"),
        ("a OPERATOR(pg_catalog.+) b * c", "(a + (b * c))"),
        ("a IN (1)::text", "((a IN 1)::text)"),
        ("a + b COLLATE \"C\"::text", "(a + ((b COLLATE C)::text))"),
        ("a IS NULL::text = b", "(((a IS Null)::text) = b)"),
        ("- NOT a + b", "(- (NOT (a + b)))"),
        ("a AND", "a"),
        ("treat(a AS int)", "int4(a)"),
        ("char(3) 'a'", "CAST('a' AS bpchar)"),
    ] {
        assert_eq!(expression(text), expected, "{text}");
    }
}

#[test]
fn errors_are_where_postgresql_finds_them() {
    let near = |text: &str| format!("syntax error at or near \"{text}\"");
    for (sql, message, position) in [
        ("SELECT 1 +", "syntax error at end of input".into(), 11),
        ("SELECT 1 FROM", "syntax error at end of input".into(), 14),
        ("SELECT a FROM t WHERE", "syntax error at end of input".into(), 22),
        ("SELECT a = b = c", near("="), 14),
        ("SELECT a < b <= c", near("<="), 14),
        ("SELECT a LIKE b LIKE c", near("LIKE"), 17),
        ("SELECT (1", "syntax error at end of input".into(), 10),
        ("SELECT 1)", near(")"), 9),
        ("SELECT FROM WHERE", near("WHERE"), 13),
        ("SELECT a FROM t GROUP a", near("a"), 23),
        ("SELECT a FROM t ORDER a", near("a"), 23),
        ("SELECT a FROM t LIMIT 1 LIMIT 2", near("LIMIT"), 25),
        ("(SELECT a FROM t LIMIT 1) LIMIT 2", "multiple LIMIT clauses not allowed".into(), 33),
        ("INSERT t VALUES (1)", near("t"), 8),
        ("INSERT INTO t (a) (1)", near("1"), 20),
        ("UPDATE t SET a", "syntax error at end of input".into(), 15),
        ("DELETE t", near("t"), 8),
        ("SELECT array", "syntax error at end of input".into(), 13),
        ("SELECT 'a", "unterminated quoted string at or near \"'a\"".into(), 8),
        ("SELECT \"a", "unterminated quoted identifier at or near \"\"a\"".into(), 8),
        ("SELECT /* a", "unterminated /* comment at or near \"/* a\"".into(), 8),
        ("SELECT $a$ b", "unterminated dollar-quoted string at or near \"$a$ b\"".into(), 8),
        ("SELECT 12ab", "trailing junk after numeric literal at or near \"12ab\"".into(), 8),
        ("SELECT \"\"", "zero-length delimited identifier at or near \"\"\"\"".into(), 8),
        ("SELECT a FROM t FETCH FIRST 1 ROW", "syntax error at end of input".into(), 34),
    ] {
        assert_eq!(error(sql), (message, position), "{sql}");
    }
    assert_eq!(parse("SELECT\n  'é', ,").unwrap_err().line_and_column("SELECT\n  'é', ,"), (2, 8));
}

#[test]
fn texts_are_read_as_in_postgresql() {
    for (text, expected) in [
        ("'a''b'", "'a'b'"),
        ("'a' \n 'b'", "'ab'"),
        (r"E'\n\x41\101\u0042\\'", "'\nAAB\\'"),
        (r"U&'d\0061t\+000061'", "'data'"),
        ("U&'d!0061' UESCAPE '!'", "'da'"),
        (r"E'\uD83D\uDE00'", "'😀'"),
        ("$$it's$$", "'it's'"),
        ("$x$a$$b$x$", "'a$$b'"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        (".5e-3", ".5e-3"),
        ("\"A b\"", "A b"),
        ("ÄB", "Äb"),
        ("a.\"B\".c", "a.B.c"),
        ("1 /* /* a */ */ + 2 -- b", "(1 + 2)"),
        ("1 <> 2", "(1 <> 2)"),
        ("1 != 2", "(1 <> 2)"),
        ("1 *-2", "(1 * (- 2))"),
        ("a @- b", "(a @- b)"),
    ] {
        assert_eq!(expression(text), expected, "{text}");
    }
    assert_eq!(parse(r"SELECT E'\u12'").unwrap_err().sqlstate, sqlstate::INVALID_ESCAPE_SEQUENCE);
    assert_eq!(parse(r"SELECT E'\xff'").unwrap_err().sqlstate, sqlstate::CHARACTER_NOT_IN_REPERTOIRE);
}

#[test]
fn statements_have_their_kinds() {
    let kinds = |sql: &str| -> Vec<String> {
        let statements = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let name = |kind: &StatementKind| match kind {
            StatementKind::Other(word) => word.clone(),
            kind => format!("{kind:?}").split('(').next().unwrap_or_default().to_owned(),
        };
        statements.iter().map(|statement| name(&statement.kind)).collect()
    };
    assert_eq!(kinds("SELECT 1; ; CREATE TABLE t (a int); FROM t"), ["Query", "CreateTable", "Query"]);
    assert_eq!(kinds("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a RETURNING *"), ["Insert"]);
    assert_eq!(kinds("UPDATE t SET (a, b) = (1, 2), c[1] = 3 WHERE CURRENT OF d"), ["Update"]);
    assert_eq!(kinds("DELETE FROM ONLY t USING u WHERE t.a = u.a"), ["Delete"]);
    assert_eq!(
        kinds(
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND b THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (1)"
        ),
        ["Merge"]
    );
    assert_eq!(kinds("EXPLAIN (ANALYZE, FORMAT TEXT) SELECT 1"), ["Explain"]);
    assert_eq!(kinds("INSERT INTO t (a) VALUES (1) ON CONFLICT (lower(a)) WHERE b DO UPDATE SET a = 2"), ["Insert"]);
    for sql in [
        "SELECT DISTINCT ON (a) a, b AS c, d e FROM t, u JOIN v USING (a) AS w, LATERAL f(1) WITH ORDINALITY AS g(h, i)",
        "SELECT * FROM ROWS FROM (f(1) AS (a int, b text), g(2)) AS h, (VALUES (1)) v(a), ((t JOIN u ON true)) JOIN w ON a",
        "SELECT * FROM a JOIN b JOIN c ON b.x = c.x ON a.x = b.x",
        "SELECT sum(a) FILTER (WHERE b) OVER (PARTITION BY c ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
        "SELECT a FROM t GROUP BY ROLLUP (a, b), GROUPING SETS ((a), (), CUBE (b)) HAVING true WINDOW w AS (ORDER BY a)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SEARCH DEPTH FIRST BY n SET o TABLE r",
        "SELECT 1 UNION SELECT 2 INTERSECT SELECT 3 ORDER BY 1 LIMIT 1 OFFSET 2 FOR UPDATE OF t SKIP LOCKED",
        "SELECT EXTRACT(year FROM a), SUBSTRING(a FROM 1 FOR 2), TRIM(LEADING 'x' FROM a), OVERLAY(a PLACING b FROM 1)",
        "SELECT a, b FROM t GROUP BY ALL ORDER BY ALL DESC",
        "SELECT * EXCLUDE (a) REPLACE (b + 1 AS b) FROM 'file.parquet' QUALIFY true",
        "SELECT interval '1' day to second(3), timestamp(3) with time zone '2020-01-01', ARRAY[[1], [2]], a[1:2], (f(1)).b",
    ] {
        assert_eq!(kinds(sql), ["Query"], "{sql}");
    }
}

#[test]
fn statements_that_change_or_claim_rows_act() {
    let quiet = ["SELECT 1", "WITH a AS (SELECT 1) TABLE a", "SELECT * FROM t FOR READ ONLY", "(VALUES (1))"];
    let acting = [
        "DELETE FROM t",
        "SELECT * FROM t FOR UPDATE",
        "SELECT (SELECT a FROM (SELECT a FROM t FOR SHARE) x)",
        "WITH a AS (WITH b AS (INSERT INTO t VALUES (1) RETURNING a) TABLE b) SELECT * FROM a",
        "(SELECT 1 FROM t FOR KEY SHARE)",
        "PREPARE p AS UPDATE t SET a = 1",
    ];
    let cases = quiet.iter().map(|sql| (sql, false)).chain(acting.iter().map(|sql| (sql, true)));
    let cases: Vec<_> = cases.collect();
    for (sql, acts) in &cases {
        let statement = &parse(sql).unwrap()[0];
        assert_eq!((statement.acts, statement.claims), (*acts, sql.contains(" FOR ") && *acts), "{sql}");
    }
    // Each statement of a script is told apart from the ones before it.
    let script: Vec<&str> = cases.iter().rev().map(|(sql, _)| **sql).collect();
    let told = |sql: &str| -> Vec<(bool, bool)> {
        parse(sql).unwrap().iter().map(|statement| (statement.acts, statement.claims)).collect()
    };
    assert_eq!(told(&script.join(";")), script.iter().flat_map(|sql| told(sql)).collect::<Vec<_>>());
}

#[test]
fn names_lose_their_database() {
    let sql = "SELECT d.s.t.a, e.s.t.*, s.t.a FROM d.s.t, s.t; COMMENT ON COLUMN s.t.a IS 'x'; DROP VIEW d.s.v";
    let statements = parse(sql).unwrap();
    let databases = |at: usize| -> Vec<&str> { statements[at].databases.iter().map(|d| d.name.as_str()).collect() };
    assert_eq!((databases(0), databases(1), databases(2)), (vec!["d", "e"], vec![], vec!["d"]));
    let StatementKind::Drop(dropped) = &statements[2].kind else { panic!("no DROP") };
    assert_eq!(dropped.names[0].to_string(), "s.v");
}

#[test]
fn spans_are_those_of_the_text() {
    let sql = "SELECT a + lower(b) FROM t";
    let statement = parse(sql).unwrap().pop().unwrap();
    let StatementKind::Query(query) = &statement.kind else { panic!("no query") };
    let QueryBody::Select(select) = &query.body else { panic!("no SELECT") };
    let text = |span: crate::tree::Span| &sql[span.start as usize..span.end as usize];
    let ExprKind::Operators(first, rest) = &select.items[0].expr.kind else { panic!("no operator") };
    let parts = [text(first.span), text(rest[0].0.span), text(rest[0].1.span), text(select.items[0].expr.span)];
    assert_eq!(parts, ["a", "+", "lower(b)", "a + lower(b)"]);
    assert_eq!(text(statement.span), sql);
}

/// Chains are lists, so that they may be long on a small stack.
#[test]
fn chains_are_as_long_as_they_are() {
    let run = || {
        let chain = |first: &str, next: &str| format!("{first}{}", next.repeat(30_000));
        for sql in [
            chain("SELECT 1", " + 1"),
            chain("SELECT a", " || b"),
            chain("SELECT a = 1", " OR a = 2"),
            chain("SELECT a = 1", " AND a = 2"),
            chain("SELECT 1", "::int"),
            chain("SELECT 1", " IS NULL"),
            chain("SELECT 1", " UNION ALL SELECT 1"),
            format!("SELECT a IN ({})", chain("1", ", 1")),
            chain("VALUES (1)", ", (1)"),
            format!("SELECT {}a", "NOT ".repeat(30_000)),
            format!("SELECT {}a", "- ".repeat(30_000)),
            chain("SELECT 1 FROM a", " JOIN b ON true"),
        ] {
            let tree = parse(&sql).unwrap_or_else(|error| panic!("{}: {error}", &sql[..40]));
            drop(tree.clone());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// What is nested is parsed, or refused, and dropped, on a small stack. Clones need more room.
#[test]
fn nesting_is_bounded() {
    let run = || {
        let nested = |open: &str, inside: &str, close: &str, depth: usize| {
            format!("SELECT {}{inside}{}", open.repeat(depth), close.repeat(depth))
        };
        for (open, inside, close) in [
            ("(", "1", ")"),
            ("f(", "1", ")"),
            ("a[", "1", "]"),
            ("ROW(", "1", ")"),
            ("ARRAY[", "1", "]"),
            ("CASE WHEN ", "a", " THEN 1 END"),
            ("(SELECT ", "1", ")"),
            ("coalesce(", "1", ")"),
            ("CAST(", "1", " AS int)"),
            ("(((", "1", ") + 1) + 1)"),
            ("1 + (", "1", ")"),
            ("EXISTS (SELECT * FROM t WHERE ", "a", ")"),
            ("~ ", "a", ""),
            ("* FROM (SELECT ", "1", ") AS a"),
            ("* FROM ((t JOIN u ON true) JOIN (SELECT ", "1", ") AS a ON true)"),
        ] {
            let shallow = nested(open, inside, close, 1_000 / open.matches('(').count().max(1));
            drop(parse(&shallow).unwrap_or_else(|error| panic!("{open}: {error}")));
            // And the deepest that is accepted.
            let deepest = (1..=25).rev().find_map(|share| parse(&nested(open, inside, close, 200 * share)).ok());
            drop(deepest.unwrap_or_else(|| panic!("{open} is never accepted")));
            match parse(&nested(open, inside, close, 30_000)) {
                Ok(_) => panic!("{open} is nested without bounds"),
                Err(error) => assert_eq!(error.sqlstate, sqlstate::STATEMENT_TOO_COMPLEX, "{open}"),
            }
        }
        let tables = format!("SELECT * FROM {}t{}", "(SELECT * FROM ".repeat(1_000), ") a".repeat(1_000));
        drop(parse(&tables).unwrap());
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// Whatever comes ends in a tree or an error.
#[test]
fn changed_statements_end_in_a_result() {
    let corpus = [
        "SELECT a, b FROM t JOIN u USING (a) WHERE a = 1 AND b IN (1, 2) GROUP BY a HAVING count(*) > 1 ORDER BY a LIMIT 5",
        "WITH x AS (SELECT 1) INSERT INTO t (a, b) SELECT * FROM x ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *",
        "UPDATE t AS s SET (a, b) = (SELECT 1, 2), c = DEFAULT FROM u WHERE s.a = u.a RETURNING s.a AS x",
        "MERGE INTO t USING (VALUES (1)) v(a) ON t.a = v.a WHEN MATCHED THEN UPDATE SET a = 1 WHEN NOT MATCHED THEN DO NOTHING",
        "SELECT CASE a WHEN 1 THEN 'x' ELSE E'\\n' END, interval '1' day, $1::numeric(10,2)[], x'1F', (a).b[1:2], U&'\\0041'",
        "EXPLAIN (ANALYZE) SELECT row_number() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST RANGE UNBOUNDED PRECEDING) FROM f(1) g(h)",
    ];
    let parts = [
        "(", ")", "[", "]", ",", ".", "::", "'", "\"", "$$", "/*", "--", "SELECT", "FROM", "NOT", "*", ";", "=", "é",
        "\\", "1e",
    ];
    let seed = 0x5eed_u64;
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut characters: Vec<char> = corpus[round % corpus.len()].chars().collect();
        for _ in 0..=random(4) {
            let at = random(characters.len().max(1));
            if characters.is_empty() {
                break;
            }
            match random(3) {
                0 => drop(characters.remove(at)),
                1 => drop(characters.splice(at..at, parts[random(parts.len())].chars())),
                _ => characters.truncate(at.max(1)),
            }
        }
        let sql: String = characters.into_iter().collect();
        match parse(&sql) {
            Ok(_) => accepted += 1,
            Err(error) => {
                assert!(error.position as usize <= sql.len(), "seed {seed}, round {round}: {sql}");
                assert!(sql.is_char_boundary(error.position as usize), "seed {seed}, round {round}: {sql}");
            }
        }
    }
    assert!((500..19_500).contains(&accepted), "seed {seed}: {accepted}");
}
