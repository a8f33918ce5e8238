//! Predicates on texts that are evaluated below joins: where they are, as EXPLAIN shows it, and
//! that results stay the same.

use crate::support::{in_memory, text};
use serac_sql::Session;

/// Queries in which `{}` is the text column, and whether predicates on it move below the join.
const QUERIES: &[(&str, bool)] = &[
    ("SELECT sum(CASE WHEN {} LIKE 'a%' THEN s.n ELSE 0 END) AS a, sum(s.n) AS b FROM s, p WHERE s.pid = p.id", true),
    ("SELECT sum(CASE WHEN {} NOT LIKE '%b' THEN s.n ELSE 0 END) AS a FROM s JOIN p ON s.pid = p.id", true),
    (
        "SELECT s.n, {} IN ('ab', 'b') AS i, NOT ({} > 'a' AND {} <> 'b') AS c FROM s JOIN p ON s.pid = p.id ORDER BY 1, 2, 3",
        true,
    ),
    ("SELECT {} IS DISTINCT FROM 'ab' AS d, count(*) FROM s JOIN p ON s.pid = p.id GROUP BY 1 ORDER BY 1", true),
    (
        "SELECT count(*) FILTER (WHERE {} = 'ab') AS a, count({} = 'b') AS b FROM s JOIN p ON s.pid = p.id JOIN q ON q.id = s.q",
        true,
    ),
    (
        "SELECT q.id, sum(CASE WHEN {} >= 'b' THEN 1 ELSE 0 END) AS a FROM s JOIN p ON s.pid = p.id JOIN q ON q.id = s.q GROUP BY 1 ORDER BY 1",
        true,
    ),
    (
        "SELECT sum(CASE WHEN w = 'ab' THEN n END) AS a FROM (SELECT {} AS w, s.n FROM s JOIN p ON s.pid = p.id) AS x",
        true,
    ),
    // The side that a join keeps, and the one that it completes.
    ("SELECT sum(CASE WHEN {} LIKE 'a%' THEN 1 ELSE 10 END) AS a FROM p LEFT JOIN s ON s.pid = p.id", true),
    ("SELECT sum(CASE WHEN {} LIKE 'a%' THEN 1 ELSE 10 END) AS a FROM s RIGHT JOIN p ON s.pid = p.id", true),
    ("SELECT count(*) FILTER (WHERE {} IS DISTINCT FROM 'ab') AS a FROM s LEFT JOIN p ON s.pid = p.id", false),
    ("SELECT count(*) FILTER (WHERE {} IS DISTINCT FROM 'ab') AS a FROM s FULL JOIN p ON s.pid = p.id", false),
    (
        "SELECT sum(CASE WHEN {} = 'ab' THEN 1 ELSE 10 END) AS a FROM p WHERE EXISTS (SELECT 1 FROM s WHERE s.pid = p.id)",
        true,
    ),
    (
        "SELECT sum(CASE WHEN {} = 'ab' THEN 1 ELSE 10 END) AS a FROM p WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.pid = p.id)",
        true,
    ),
    // The column itself is wanted, too.
    ("SELECT {} AS a, {} = 'ab' AS e FROM s JOIN p ON s.pid = p.id ORDER BY 1, s.n", false),
    ("SELECT max({}) AS m, count(*) FILTER (WHERE {} = 'ab') AS a FROM s JOIN p ON s.pid = p.id", false),
    ("SELECT sum(CASE WHEN {} = 'ab' THEN 1 ELSE 0 END) AS a FROM s JOIN p ON s.t = p.name", false),
    ("SELECT sum(CASE WHEN {} = s.t THEN 1 ELSE 0 END) AS a FROM s JOIN p ON s.pid = p.id", false),
    // A predicate that may fail is not moved.
    (
        "SELECT sum(CASE WHEN {}::bigint > 0 THEN 1 ELSE 0 END) AS a FROM s JOIN p ON s.pid = p.id WHERE p.name IN ('1', '2')",
        false,
    ),
];

#[tokio::test]
async fn are_evaluated_below_joins_with_the_same_results() {
    let mut session = Session::new(&in_memory());
    session
        .execute(
            "CREATE TABLE p (id bigint, name text);
             INSERT INTO p SELECT v, CASE v % 6 WHEN 0 THEN 'ab' WHEN 1 THEN 'b' WHEN 2 THEN 'ba' WHEN 3 THEN NULL WHEN 4 THEN '1' ELSE 'a longer text than a view holds' END
             FROM generate_series(1, 300) AS g(v);
             CREATE TABLE q (id bigint);
             INSERT INTO q SELECT v FROM generate_series(1, 5) AS g(v);
             CREATE TABLE s (pid bigint, q bigint, n bigint, t text);
             INSERT INTO s SELECT v * 7 % 400, v % 7, v, CASE WHEN v % 2 = 0 THEN 'ab' END FROM generate_series(1, 1000) AS g(v)",
        )
        .await
        .unwrap();
    for (query, moves) in QUERIES {
        let moved = query.replace("{}", "p.name");
        let plan = text(&mut session, &format!("EXPLAIN {moved}")).await;
        assert_eq!(plan.contains("__predicate"), *moves, "{moved}\n{plan}");
        // An expression, of which nothing is known, in place of the column.
        let stays = query.replace("{}", "(p.name || '')");
        assert_eq!(text(&mut session, &moved).await, text(&mut session, &stays).await, "{moved}");
    }
}
