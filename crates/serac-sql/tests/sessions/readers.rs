//! Sessions that only read.

use crate::support::{in_memory, refused, run};
use serac_sql::Session;

#[tokio::test]
async fn a_session_that_only_reads_stays_one() {
    let db = in_memory();
    let mut session = Session::new(&db);
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY); CREATE SEQUENCE s").await;
    let mut reader = Session::new(&db);
    reader.only_read();
    let insert = "INSERT INTO t VALUES (1)";
    let mut prepared = reader.prepare(insert).unwrap();
    for taken_back in [
        "SET default_transaction_read_only = off",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "BEGIN READ WRITE",
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE",
        "BEGIN; SET TRANSACTION READ WRITE",
        "BEGIN; SET transaction_read_only = off",
        "BEGIN; SET LOCAL default_transaction_read_only = off",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
    ] {
        assert_eq!(refused(&mut reader, taken_back).await.sqlstate, "25006", "{taken_back}");
        run(&mut reader, "ROLLBACK").await;
    }
    for harmless in
        ["RESET ALL", "DISCARD ALL", "RESET default_transaction_read_only", "BEGIN", "SAVEPOINT a; ROLLBACK TO a"]
    {
        run(&mut reader, harmless).await;
        run(&mut reader, "SELECT * FROM t").await;
    }
    run(&mut reader, "COMMIT").await;
    for change in [insert, "CREATE TABLE u (a INT)", "SELECT nextval('s')", "DELETE FROM t", "CREATE ROLE r"] {
        assert_eq!(refused(&mut reader, change).await.sqlstate, "25006", "{change}");
    }
    assert_eq!(reader.execute_prepared(&mut prepared, &[]).await.unwrap_err().sqlstate, "25006");
    assert_eq!(reader.set_parameter("default_transaction_read_only", "off").unwrap_err().sqlstate, "25006");
    run(&mut reader, "CREATE TEMP TABLE own (a INT); INSERT INTO own VALUES (1)").await;
    run(&mut session, insert).await;
}
