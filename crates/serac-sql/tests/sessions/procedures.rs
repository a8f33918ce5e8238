//! CALL of procedures that the program has registered; DISCARD; notices of sessions.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use serac_engine::catalog::procedure::{Parameter, Procedure};
use serac_engine::values::OwnedValue;
use serac_engine::{ColumnUpdate, Database, EngineError, IndexAccess};
use serac_sql::{Session, Severity, SqlDatabase, SqlError, SqlOptions, StatementResult};
use serac_storage::{ColumnType, RowBuffer, Value};

/// An account gets an amount; returns its balance.
fn deposit() -> Procedure {
    let parameters = vec![Parameter::new("number", ColumnType::Int32), Parameter::new("amount", ColumnType::Int64)];
    Procedure::new(parameters, vec![Parameter::new("balance", ColumnType::Int64)], |txn, given| {
        let catalog = txn.catalog().clone();
        let access = IndexAccess::named(&catalog, "account", "account_pkey", &["balance"])?;
        let update = ColumnUpdate::named(&catalog, "account", &["balance"])?;
        let mut found = RowBuffer::default();
        let Some(row) = txn.get(&access, &given[..1], &mut found)? else {
            return Err(EngineError::Raised("there is no such account".into()));
        };
        let Value::Int64(amount) = given[1] else { return Err(EngineError::Raised("an amount is needed".into())) };
        let balance = found.get::<i64>(0)? + amount;
        txn.update(&update, row, &[balance.into()])?;
        Ok(vec![vec![OwnedValue::Fixed(Value::Int64(balance))]])
    })
}

fn forget() -> Procedure {
    Procedure::new(Vec::new(), Vec::new(), |_, _| Ok(Vec::new()))
}

async fn bank() -> (SqlDatabase, Session) {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    db.database().register_procedure("deposit", deposit());
    db.database().register_procedure("forget", forget());
    let mut session = Session::new(&db);
    session
        .execute(
            "CREATE TABLE account (number INTEGER PRIMARY KEY, balance BIGINT); INSERT INTO account VALUES (1, 10)",
        )
        .await
        .unwrap();
    (db, session)
}

/// The number that a statement gives.
async fn number(session: &mut Session, sql: &str) -> Result<i64, SqlError> {
    let results = session.execute(sql).await?;
    let Some(StatementResult::Rows { batches, .. }) = results.last() else { panic!("{sql} gives rows") };
    Ok(batches[0].column(0).as_primitive::<Int64Type>().value(0))
}

async fn code(session: &mut Session, sql: &str) -> &'static str {
    session.execute(sql).await.expect_err(sql).sqlstate
}

#[tokio::test]
async fn procedures_are_called_with_values_of_any_expression() {
    let (_, mut session) = bank().await;
    assert_eq!(number(&mut session, "CALL deposit(1, 5)").await.unwrap(), 15);
    assert_eq!(number(&mut session, "CALL deposit(amount => 2 * 5, number => 1)").await.unwrap(), 25);
    assert_eq!(number(&mut session, "CALL deposit(1, amount => '7')").await.unwrap(), 32);
    assert_eq!(number(&mut session, "SELECT balance FROM account").await.unwrap(), 32);
    match &session.execute("CALL forget()").await.unwrap()[..] {
        [StatementResult::Command { tag, .. }] => assert_eq!(tag, "CALL"),
        other => panic!("{other:?}"),
    }
    for (sql, expected) in [
        ("CALL nothing()", "42883"),
        ("CALL deposit(1)", "42883"),
        ("CALL deposit(1, 2, 3)", "42883"),
        ("CALL deposit(1, number => 1)", "42883"),
        ("CALL deposit(1, sum => 1)", "42883"),
        ("CALL deposit(number => 1, 1)", "42601"),
        ("CALL deposit(1, 'much')", "22P02"),
        ("CALL deposit(3000000000, 1)", "22003"),
        ("CALL deposit(2, 1)", "P0001"),
        ("CALL deposit(1, NULL)", "P0001"),
    ] {
        assert_eq!(code(&mut session, sql).await, expected, "{sql}");
    }
    assert_eq!(number(&mut session, "SELECT balance FROM account").await.unwrap(), 32);
}

#[tokio::test]
async fn a_call_belongs_to_the_transaction_around_it() {
    let (db, mut session) = bank().await;
    let mut other = Session::new(&db);
    session.execute("BEGIN; UPDATE account SET balance = 100").await.unwrap();
    assert_eq!(number(&mut session, "CALL deposit(1, 1)").await.unwrap(), 101);
    assert_eq!(number(&mut other, "SELECT balance FROM account").await.unwrap(), 10);
    assert_eq!(code(&mut other, "CALL deposit(1, 1)").await, "40001");
    session.execute("SAVEPOINT s").await.unwrap();
    assert_eq!(code(&mut session, "CALL deposit(5, 1)").await, "P0001");
    session.execute("ROLLBACK TO s; COMMIT").await.unwrap();
    assert_eq!(number(&mut other, "CALL deposit(1, 1)").await.unwrap(), 102);
    session.execute("BEGIN READ ONLY").await.unwrap();
    assert_eq!(code(&mut session, "CALL deposit(1, 1)").await, "25006");
    session.execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_call_needs_the_privilege_to_execute() {
    let (db, mut owner) = bank().await;
    owner.execute("CREATE ROLE teller LOGIN; REVOKE EXECUTE ON PROCEDURE deposit FROM PUBLIC").await.unwrap();
    let mut teller = Session::new(&db);
    teller.log_in("teller").unwrap();
    assert_eq!(code(&mut teller, "CALL deposit(1, 1)").await, "42501");
    owner.execute("GRANT EXECUTE ON PROCEDURE deposit TO teller").await.unwrap();
    assert_eq!(number(&mut teller, "CALL deposit(1, 1)").await.unwrap(), 11);
    assert_eq!(
        code(&mut teller, "SELECT * FROM account").await,
        "42501",
        "procedures run with all rights, the role does not"
    );
}

#[tokio::test]
async fn a_procedure_can_keep_what_definitions_say() {
    let (db, mut session) = bank().await;
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER DEFAULT 7 CHECK (n < 100),
        twice INTEGER NOT NULL GENERATED ALWAYS AS (n * 2) STORED, later INTEGER GENERATED ALWAYS AS IDENTITY);
        CREATE UNIQUE INDEX t_half ON t ((n / 2)); CREATE TABLE plain (id INTEGER PRIMARY KEY, n INTEGER)";
    session.execute(table).await.unwrap();
    let parameters = ["how", "id", "n"].map(|name| Parameter::new(name, ColumnType::Int32)).to_vec();
    let change = Procedure::new(parameters, Vec::new(), |txn, given| {
        let catalog = txn.catalog().clone();
        let (t, plain) = (catalog.table("public", "t")?, catalog.table("public", "plain")?);
        match given[0] {
            Value::Int32(0) => txn.insert_given(t, &[0], &given[1..2]).map(drop)?,
            Value::Int32(1) => txn.insert_given(t, &[0, 1], &given[1..]).map(drop)?,
            Value::Int32(2) => txn.insert_given(t, &[2, 0], &given[1..]).map(drop)?,
            Value::Int32(3) => txn.insert_given(plain, &[1, 0], &[given[2], given[1]]).map(drop)?,
            _ => {
                let access = IndexAccess::named(&catalog, "t", "t_pkey", &[])?;
                let row = txn.get(&access, &given[1..2], &mut RowBuffer::default())?.expect("it is there");
                let failed = txn.update_given(&ColumnUpdate::named(&catalog, "t", &["n"])?, row, &given[2..]);
                if let Err(error) = failed {
                    // Nothing of it is left, and the procedure goes on.
                    txn.insert_given(plain, &[0], &given[1..2])?;
                    assert_eq!(error.sqlstate(), "23514");
                }
            }
        }
        Ok(Vec::new())
    });
    db.database().register_procedure("change", change);
    for (call, outcome) in [
        ("CALL change(0, 1, NULL)", None),
        ("CALL change(1, 2, 20)", None),
        ("CALL change(1, 3, 100)", Some("23514")),
        ("CALL change(1, 3, 21)", Some("23505")),
        ("CALL change(2, 9, 3)", Some("428C9")),
        ("CALL change(3, 5, 500)", None),
        ("CALL change(4, 2, 30)", None),
        ("CALL change(4, 1, 100)", None),
    ] {
        assert_eq!(session.execute(call).await.err().map(|error| error.sqlstate), outcome, "{call}");
    }
    let sums = "SELECT sum(id * 1000000 + n * 10000 + twice * 100 + later) FROM t";
    assert_eq!(number(&mut session, &format!("{sums} WHERE id = 1")).await.unwrap(), 1_071_401);
    assert_eq!(number(&mut session, &format!("{sums} WHERE id = 2")).await.unwrap(), 2_306_002);
    assert_eq!(number(&mut session, "SELECT count(*) FROM plain WHERE id IN (1, 5)").await.unwrap(), 2);
    // Without a session nobody evaluates SQL.
    let error = db.database().transact(|txn| {
        let table = txn.catalog().table("public", "t")?.clone();
        txn.insert_given(&table, &[0], &[9.into()])
    });
    assert_eq!(error.unwrap_err().sqlstate(), "0A000");
    assert!(db.database().unregister_procedure("change") && !db.database().unregister_procedure("change"));
    assert_eq!(code(&mut session, "CALL change(0, 9, NULL)").await, "42883");
}

#[tokio::test]
async fn rows_are_written_beside_sql_as_by_a_statement() {
    let (db, mut session) = bank().await;
    session.execute("CREATE ROLE teller LOGIN; GRANT SELECT ON account TO teller").await.unwrap();
    let mut teller = Session::new(&db);
    teller.log_in("teller").unwrap();
    let add = |txn: &mut serac_engine::Transaction, access: &serac_engine::security::Access| {
        let table = txn.catalog().table("public", "account")?.clone();
        access.check_columns(&table.definition, serac_engine::security::Privilege::Insert, &[0])?;
        txn.insert_given(&table, &[0], &[5.into()]).map(drop)
    };
    session.run_on_rows(true, add).await.unwrap();
    assert_eq!(session.run_on_rows(true, add).await.unwrap_err().sqlstate, "23505");
    assert_eq!(teller.run_on_rows(true, add).await.unwrap_err().sqlstate, "42501");
    session.execute("BEGIN READ ONLY").await.unwrap();
    assert_eq!(session.run_on_rows(true, add).await.unwrap_err().sqlstate, "25006");
    assert_eq!(session.run_on_rows(false, |_, _| Ok(())).await.unwrap_err().sqlstate, "25P02");
    session.execute("ROLLBACK").await.unwrap();
    let count = |txn: &mut serac_engine::Transaction, _: &_| Ok(txn.catalog().table("public", "account").is_ok());
    assert!(session.run_on_rows(false, count).await.unwrap());
    assert_eq!(number(&mut session, "SELECT count(*) FROM account").await.unwrap(), 2);
}

#[tokio::test]
async fn calls_are_described_and_prepared() {
    let (_, mut session) = bank().await;
    let mut call = session.prepare("CALL deposit($1, $2)").unwrap();
    let description = session.describe(&mut call, &[]).await.unwrap();
    assert_eq!(description.parameters, [Some(ColumnType::Int32), Some(ColumnType::Int64)]);
    assert_eq!(description.schema.as_ref().unwrap().field(0).name(), "balance");
    session.execute("PREPARE d AS CALL deposit($1, $2)").await.unwrap();
    assert_eq!(number(&mut session, "EXECUTE d(1, 32)").await.unwrap(), 42);
    let listed = "SELECT CAST(pronargs AS BIGINT) FROM pg_proc WHERE prokind = 'p' AND proname = 'deposit'";
    assert_eq!(number(&mut session, listed).await.unwrap(), 2);
}

#[tokio::test]
async fn what_need_not_be_done_is_said() {
    let (_, mut session) = bank().await;
    let notices = session.notices();
    let cases = [
        ("DROP TABLE IF EXISTS x", Severity::Notice, "00000", "table \"x\" does not exist, skipping"),
        ("DROP VIEW IF EXISTS v", Severity::Notice, "00000", "view \"v\" does not exist, skipping"),
        ("DROP ROLE IF EXISTS r", Severity::Notice, "00000", "role \"r\" does not exist, skipping"),
        (
            "CREATE TABLE IF NOT EXISTS account (a INTEGER)",
            Severity::Notice,
            "42P07",
            "relation \"account\" already exists, skipping",
        ),
        ("CREATE SCHEMA IF NOT EXISTS public", Severity::Notice, "42P06", "schema \"public\" already exists, skipping"),
        (
            "ALTER TABLE account DROP COLUMN IF EXISTS x",
            Severity::Notice,
            "00000",
            "column \"x\" of relation \"account\" does not exist, skipping",
        ),
        (
            "ALTER TABLE account ADD COLUMN IF NOT EXISTS balance BIGINT",
            Severity::Notice,
            "42701",
            "column \"balance\" of relation \"account\" already exists, skipping",
        ),
        ("COMMIT", Severity::Warning, "25P01", "there is no transaction in progress"),
        ("ROLLBACK", Severity::Warning, "25P01", "there is no transaction in progress"),
        ("BEGIN; BEGIN", Severity::Warning, "25001", "there is already a transaction in progress"),
    ];
    for (sql, severity, sqlstate, message) in cases {
        session.execute(sql).await.unwrap();
        let said = notices.take();
        let [notice] = &said[..] else { panic!("{sql}: {said:?}") };
        assert_eq!((notice.severity, notice.sqlstate, notice.message.as_str()), (severity, sqlstate, message), "{sql}");
    }
    session.execute("COMMIT; SELECT 1; DROP TABLE IF EXISTS x").await.unwrap();
    assert_eq!(notices.take().len(), 1);
    session.execute("SET client_min_messages = warning; DROP TABLE IF EXISTS x").await.unwrap();
    assert!(notices.take().is_empty());
    session.execute("COMMIT; SET client_min_messages = error; COMMIT").await.unwrap();
    assert_eq!(notices.take().len(), 1);
}

#[tokio::test]
async fn a_discarded_session_is_as_a_new_one() {
    let (_, mut session) = bank().await;
    let dirt = "CREATE TEMP TABLE mine (a INTEGER); CREATE TEMP TABLE yours (a INTEGER PRIMARY KEY);
        CREATE TEMP TABLE child (a INTEGER REFERENCES yours); CREATE SEQUENCE s; SELECT nextval('s');
        PREPARE p AS SELECT 1; SET statement_timeout = 5000; CREATE ROLE r; SET ROLE r; RESET ROLE;
        BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT; SET ROLE r";
    session.execute(dirt).await.unwrap();
    session.execute("BEGIN").await.unwrap();
    assert_eq!(code(&mut session, "DISCARD ALL").await, "25001");
    session.execute("ROLLBACK; DISCARD ALL").await.unwrap();
    for (sql, expected) in [
        ("SELECT * FROM mine", "42P01"),
        ("SELECT * FROM yours", "42P01"),
        ("SELECT * FROM child", "42P01"),
        ("SELECT currval('s')", "55000"),
        ("EXECUTE p", "26000"),
        ("FETCH c", "34000"),
    ] {
        assert_eq!(code(&mut session, sql).await, expected, "{sql}");
    }
    let plain = "SELECT CASE WHEN current_user = 'serac' THEN 1 ELSE 0 END::BIGINT";
    assert_eq!(number(&mut session, plain).await.unwrap(), 1);
    assert_eq!(session.execute("SHOW statement_timeout").await.unwrap()[0].row_count(), 1);
    session.execute("CREATE TEMP TABLE mine (a INTEGER); DISCARD TEMP").await.unwrap();
    assert_eq!(code(&mut session, "SELECT * FROM mine").await, "42P01");
}
