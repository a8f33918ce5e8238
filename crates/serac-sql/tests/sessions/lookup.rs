//! Which statements look keys up in an index instead of scanning, as EXPLAIN shows it.

use crate::bitmap_queries::text;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};

#[tokio::test]
async fn equality_on_all_columns_of_an_index_is_a_lookup() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let mut session = Session::new(&db);
    session
        .execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, a INTEGER, b TEXT, n NUMERIC(10,2) UNIQUE, g INTEGER, UNIQUE (b, a));
             CREATE INDEX t_g ON t (g);
             INSERT INTO t SELECT value, value % 7, 'b' || value, value + 0, value % 10 \
               FROM generate_series(1, 20000) AS s (value);
             UPDATE t SET g = 77 WHERE id = 5",
        )
        .await
        .unwrap();
    let many: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let lookups = [
        ("SELECT b FROM t WHERE id = 7", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE 7 = id AND a > 3", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE id = 1 + 6", "index=t_pkey, keys=1"),
        ("SELECT b FROM t WHERE id IN (7, 8, 9, 10, 11)", "index=t_pkey, keys=5"),
        ("SELECT b FROM t WHERE id = 7 OR id = 8", "index=t_pkey, keys=2"),
        ("SELECT b FROM t WHERE a IN (1, 2, 3, 4, 5) AND b = 'b7'", "index=t_b_a_key, keys=5"),
        ("SELECT b FROM t WHERE n = 12.5", "index=t_n_key, keys=1"),
        ("SELECT b FROM t WHERE g = 77", "index=t_g, keys=1"),
        ("SELECT b FROM t WHERE id IN (1, 2, 3) AND n = 4", "index=t_n_key, keys=1"),
        ("SELECT x.b FROM t AS x WHERE x.id = 7", "index=t_pkey, keys=1"),
        ("UPDATE t SET a = a + 1 WHERE id = 7", "index=t_pkey, keys=1"),
        ("UPDATE t AS x SET a = 1 WHERE x.id IN (7, 8)", "index=t_pkey, keys=2"),
        ("DELETE FROM t WHERE b = 'b9' AND a = 2", "index=t_b_a_key, keys=1"),
    ];
    for (sql, wanted) in lookups {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains(&format!("SeracLookupExec: table=t, {wanted},")), "{sql}\n{plan}");
        assert!(!plan.contains("SeracScanExec"), "{sql}\n{plan}");
    }
    let scans = [
        "SELECT b FROM t WHERE id > 7".to_owned(),
        "SELECT b FROM t WHERE b = 'b7'".into(),
        "SELECT b FROM t WHERE g = 3".into(),
        "SELECT b FROM t WHERE id NOT IN (1, 2)".into(),
        "SELECT b FROM t WHERE id = 7 OR a = 3".into(),
        "SELECT b FROM t WHERE id = a".into(),
        format!("SELECT b FROM t WHERE id IN ({})", many.join(", ")),
    ];
    for sql in scans {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains("SeracScanExec") && !plan.contains("SeracLookupExec"), "{sql}\n{plan}");
    }
    let points = [
        ("SELECT b FROM t WHERE id = 7", "index=t_pkey, equal=1"),
        ("SELECT b FROM t WHERE id > 7 AND a = 3 ORDER BY id DESC LIMIT 2", "index=t_a, equal=1, filters=1, sorted"),
        ("SELECT b FROM t WHERE id > 7 ORDER BY id DESC LIMIT 2", "index=t_pkey, equal=0, range, backwards"),
        ("SELECT a FROM t ORDER BY a DESC LIMIT 3", "index=t_a, equal=0"),
        ("SELECT a FROM t ORDER BY a LIMIT 3", "index=t_a, equal=0, backwards"),
        ("SELECT a FROM t ORDER BY g DESC, a NULLS FIRST, id LIMIT 3", "index=t_g_a, equal=0"),
        ("SELECT a FROM t ORDER BY g, a DESC NULLS LAST, id DESC LIMIT 3", "index=t_g_a, equal=0, backwards"),
        ("SELECT a FROM t WHERE g = 1 ORDER BY a NULLS FIRST LIMIT 3", "index=t_g_a, equal=1"),
        ("SELECT a FROM t WHERE b = 'b7' AND a > 1 ORDER BY g", "index=t_b_a_key, equal=1, range, sorted"),
        ("DELETE FROM t WHERE b = 'b9' AND a = 2", "index=t_b_a_key, equal=2"),
    ];
    session
        .execute("CREATE INDEX t_a ON t (a DESC); CREATE INDEX t_g_a ON t (g DESC, a NULLS FIRST, id)")
        .await
        .unwrap();
    for (sql, wanted) in points {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains(&format!("SeracPointExec: table=t, {wanted} ")), "{sql}\n{plan}");
    }
    for sql in ["SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 3", "SELECT a FROM t ORDER BY b DESC, g LIMIT 3"] {
        let plan = text(&mut session, &format!("EXPLAIN {sql}")).await;
        assert!(!plan.contains("SeracPointExec"), "{sql}\n{plan}");
    }
    let analyzed = text(&mut session, "EXPLAIN ANALYZE SELECT b FROM t WHERE id IN (1, 2, 3, -1) AND b <> 'b2'").await;
    assert!(analyzed.contains("rows_found=3") && analyzed.contains("output_rows=2"), "{analyzed}");
}
