//! The memory that planning takes is a part of the memory for queries. The test has a binary of its
//! own, whose allocator counts.

use serac_engine::Database;
use serac_sql::{CountingAllocator, Session, SqlDatabase, SqlOptions};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

const LIMIT: usize = 48 << 20;

/// Bytes of the process in memory, at their most.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_charged_and_refused_and_give_their_memory_back() {
    let options = SqlOptions { memory_limit: Some(LIMIT), threads: Some(2), ..SqlOptions::default() };
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &options).unwrap();
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 2)").await.unwrap();
    let conditions = |count: usize, operator: &str| {
        let conditions: Vec<String> = (0..count).map(|i| format!("a + b <> {i}")).collect();
        format!("SELECT * FROM t WHERE {}", conditions.join(operator))
    };
    session.execute(&conditions(100, " OR ")).await.unwrap();
    let before = peak();
    for _ in 0..3 {
        let refused = session.execute(&conditions(40_000, " OR ")).await.unwrap_err();
        assert_eq!(refused.sqlstate, "53200", "{}", refused.message);
        session.execute(&conditions(100, " OR ")).await.unwrap();
    }
    let grown = peak() - before;
    // Between two looks, and in the allocator's caches, there is more. Unbounded, it is gigabytes.
    assert!(grown < 8 * LIMIT, "{grown} bytes more");
    // DataFusion makes a tower of many conditions, for which its recursion had too little stack.
    let refused = session.execute(&conditions(40_000, " AND ")).await.unwrap_err();
    assert_eq!(refused.sqlstate, "53200", "{}", refused.message);
}
