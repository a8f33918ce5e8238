//! Roles beyond the reach of scripts: statements that were prepared before a REVOKE, transactions
//! with old snapshots, restarts, and random grants against a small model.

use rand::prelude::*;
use serac_engine::Database;
use serac_sql::{Session, SqlDatabase, SqlOptions};
use std::collections::BTreeSet;

fn sql(database: Database) -> SqlDatabase {
    SqlDatabase::new(database, &SqlOptions { threads: Some(1), ..Default::default() }).unwrap()
}

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
/// The rows of a statement, or the SQLSTATE of its error.
async fn rows(session: &mut Session, sql: &str) -> Result<usize, &'static str> {
    let result = session.execute(sql).await.map_err(|error| error.sqlstate)?;
    Ok(result.last().map_or(0, |result| result.row_count()))
}

async fn prepared_world() -> (SqlDatabase, Session, Session) {
    let db = sql(Database::in_memory().unwrap());
    let mut owner = Session::new(&db);
    run(
        &mut owner,
        "CREATE ROLE r LOGIN; CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    .await;
    run(&mut owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO r").await;
    let mut session = Session::new(&db);
    session.log_in("r").unwrap();
    (db, owner, session)
}

#[tokio::test]
async fn a_revoke_is_felt_at_the_next_statement_on_every_path() {
    let statements = [
        "SELECT v FROM t WHERE k = 1",
        "UPDATE t SET v = 'c' WHERE k = 1",
        "DELETE FROM t WHERE k = 5",
        "INSERT INTO t VALUES (7, 'x') ON CONFLICT (k) DO NOTHING",
        "SELECT count(*) FROM t",
    ];
    for isolation in [
        "",
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
    ] {
        for statement in statements {
            for form in ["text", "PREPARE", "typed"] {
                let (_db, mut owner, mut session) = prepared_world().await;
                let mut typed = session.prepare(statement).unwrap();
                run(&mut session, &format!("PREPARE p AS {statement}")).await;
                let before = session.point_executions();
                for _ in 0..3 {
                    run(&mut session, statement).await;
                    run(&mut session, "EXECUTE p").await;
                    session.execute_prepared(&mut typed, &[]).await.unwrap();
                }
                let is_point = statement != statements[4];
                assert_eq!(
                    session.point_executions() > before + 4,
                    is_point,
                    "{statement} is meant to be of the point path"
                );
                run(&mut session, isolation).await;
                if !isolation.is_empty() {
                    run(&mut session, statement).await;
                }
                run(&mut owner, "REVOKE ALL ON t FROM r").await;
                let refused = match form {
                    "text" => session.execute(statement).await.map(|_| ()),
                    "PREPARE" => session.execute("EXECUTE p").await.map(|_| ()),
                    _ => session.execute_prepared(&mut typed, &[]).await.map(|_| ()),
                };
                let refused = refused.expect_err(&format!("{isolation}: {form} {statement}"));
                assert_eq!(
                    refused.to_string(),
                    "ERROR 42501: permission denied for table t",
                    "{isolation}: {form} {statement}"
                );
            }
        }
    }
}

/// The details of these errors name values; a role that may change but not read must not get them,
/// on neither path.
#[tokio::test]
async fn errors_tell_no_values_that_may_not_be_read() {
    let db = sql(Database::in_memory().unwrap());
    let mut owner = Session::new(&db);
    run(&mut owner, "CREATE ROLE r; CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (4711, 'a')")
        .await;
    run(&mut owner, "CREATE TABLE c (k BIGINT REFERENCES t (k)); GRANT INSERT ON t, c TO r").await;
    let mut session = Session::new(&db);
    run(&mut session, "SET ROLE r").await;
    for (statement, sqlstate) in
        [("INSERT INTO t VALUES (4711, 'b')", "23505"), ("INSERT INTO c VALUES (4712)", "23503")]
    {
        for round in 0..4 {
            let before = session.point_executions();
            let error = session.execute(statement).await.unwrap_err();
            assert_eq!((error.sqlstate, &error.detail), (sqlstate, &None), "round {round}");
            assert_eq!(session.point_executions(), before, "what fails is not counted");
            let error = owner.execute(statement).await.unwrap_err();
            assert!(error.detail.is_some_and(|detail| detail.contains("471")));
        }
    }
}

#[tokio::test]
async fn another_role_gets_another_plan() {
    let db = sql(Database::in_memory().unwrap());
    let mut session = Session::new(&db);
    run(&mut session, "CREATE ROLE r; CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a')")
        .await;
    let statement = "SELECT v FROM t WHERE k = 1";
    let mut prepared = session.prepare(statement).unwrap();
    for _ in 0..3 {
        assert_eq!(rows(&mut session, statement).await, Ok(1));
        session.execute_prepared(&mut prepared, &[]).await.unwrap();
    }
    assert!(prepared.is_point());
    run(&mut session, "SET ROLE r").await;
    assert_eq!(rows(&mut session, statement).await, Err("42501"));
    assert_eq!(session.execute_prepared(&mut prepared, &[]).await.unwrap_err().sqlstate, "42501");
    // A dropped role has no rights, not even those of everybody.
    run(&mut session, "RESET ROLE; GRANT SELECT ON t TO PUBLIC").await;
    let mut other = Session::new(&db);
    run(&mut other, "SET ROLE r").await;
    assert_eq!(rows(&mut other, statement).await, Ok(1));
    run(&mut session, "DROP ROLE r").await;
    assert_eq!(rows(&mut other, statement).await, Err("42501"));
    // A superuser does not stay one either.
    run(&mut session, "CREATE ROLE s SUPERUSER").await;
    run(&mut other, "RESET ROLE; SET ROLE s; SELECT * FROM t; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t")
        .await;
    run(&mut session, "ALTER ROLE s NOSUPERUSER; REVOKE SELECT ON t FROM PUBLIC").await;
    assert_eq!(rows(&mut other, statement).await, Err("42501"));
}

#[tokio::test]
async fn logins_are_limited() {
    let db = sql(Database::in_memory().unwrap());
    let mut owner = Session::new(&db);
    run(&mut owner, "CREATE ROLE two LOGIN CONNECTION LIMIT 2; CREATE ROLE group_role; CREATE ROLE out LOGIN").await;
    let log_in = |role: &str| {
        let mut session = Session::new(&db);
        session.log_in(role).map(|()| session).map_err(|error| error.sqlstate)
    };
    let (first, second) = (log_in("two").unwrap(), log_in("two").unwrap());
    assert_eq!(log_in("two").err(), Some("53300"));
    drop(first);
    let third = log_in("two").unwrap();
    drop((second, third));
    assert_eq!(log_in("group_role").err(), Some("28000"));
    assert_eq!(log_in("nobody").err(), Some("28000"));
    run(&mut owner, "REVOKE CONNECT ON DATABASE serac FROM PUBLIC").await;
    assert_eq!(log_in("out").err(), Some("42501"));
    run(&mut owner, "GRANT CONNECT ON DATABASE serac TO out").await;
    assert!(log_in("out").is_ok());
    run(&mut owner, "REVOKE TEMPORARY ON DATABASE serac FROM PUBLIC").await;
    assert_eq!(rows(&mut log_in("out").unwrap(), "CREATE TEMP TABLE x (n INT)").await, Err("42501"));
    // An expired password, or a missing one.
    run(&mut owner, "ALTER ROLE out PASSWORD 'x' VALID UNTIL '2001-01-01'").await;
    assert!(db.database().password_verifier("out").is_none() && db.database().password_verifier("two").is_none());
    run(&mut owner, "ALTER ROLE out VALID UNTIL 'infinity'").await;
    assert!(db.database().password_verifier("out").unwrap().starts_with("SCRAM-SHA-256$4096:"));
}

/// After statements that were not followed by a checkpoint, and after a checkpoint, the roles are
/// there again.
#[tokio::test]
async fn roles_survive_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let check = async |db: &SqlDatabase| {
        let mut session = Session::new(db);
        session.log_in("reader").unwrap();
        assert_eq!(rows(&mut session, "SELECT a FROM t").await, Ok(1));
        assert_eq!(rows(&mut session, "SELECT b FROM t").await, Err("42501"));
        assert_eq!(rows(&mut session, "SELECT * FROM made").await, Err("42501"));
        assert_eq!(rows(&mut session, "SELECT * FROM v").await, Ok(1));
        let mut session = Session::new(db);
        session.log_in("maker").unwrap();
        assert_eq!(rows(&mut session, "SELECT * FROM made").await, Ok(0));
        assert_eq!(rows(&mut session, "SET ROLE reader; SELECT a FROM t").await, Ok(1));
        let role = db.database().catalog().security.role_named("reader").unwrap().clone();
        assert!(role.verifier.is_some() && role.connection_limit == Some(3) && !role.superuser);
    };
    {
        let db = sql(Database::open(&path).unwrap());
        let mut owner = Session::new(&db);
        run(
            &mut owner,
            "CREATE ROLE reader LOGIN PASSWORD 'x' CONNECTION LIMIT 3; CREATE ROLE maker LOGIN IN ROLE reader;
             CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2); GRANT SELECT (a) ON t TO reader;
             CREATE VIEW v AS SELECT b FROM t; GRANT SELECT ON v TO reader; GRANT CREATE ON SCHEMA public TO maker;
             SET ROLE maker; CREATE TABLE made (n INT); RESET ROLE; BEGIN; GRANT SELECT ON t TO PUBLIC; ROLLBACK",
        )
        .await;
        check(&db).await;
        // Not closed: the roles must be found in the log.
    }
    for checkpoint in [true, false] {
        let db = sql(Database::open(&path).unwrap());
        check(&db).await;
        if checkpoint {
            db.database().checkpoint().unwrap();
        }
        db.database().close().unwrap();
    }
}

/// The model's state: the privileges of roles on tables, and the memberships.
#[derive(Default)]
struct Model {
    grants: BTreeSet<(usize, usize, usize)>,
    members: BTreeSet<(usize, usize)>,
}

const ROLES: usize = 5;
const TABLES: usize = 3;
/// Grantee of everything that is granted to PUBLIC.
const PUBLIC: usize = ROLES;
const PRIVILEGES: [(&str, &str); 4] = [
    ("SELECT", "SELECT * FROM t"),
    ("INSERT", "INSERT INTO t VALUES (1)"),
    ("UPDATE", "UPDATE t SET n = 1"),
    ("DELETE", "DELETE FROM t"),
];

impl Model {
    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.members.iter().any(|&(member, role)| member == from && self.reaches(role, to))
    }

    fn may(&self, role: usize, table: usize, privilege: usize) -> bool {
        let granted = |to: usize| self.grants.contains(&(to, table, privilege));
        granted(PUBLIC) || (0..ROLES).any(|other| self.reaches(role, other) && granted(other))
    }
}

#[tokio::test]
async fn random_grants_allow_what_a_model_says() {
    let mut random = serac_testing::rng();
    let steps = if serac_testing::stress() { 3_000 } else { 150 };
    let db = sql(Database::in_memory().unwrap());
    let mut owner = Session::new(&db);
    for role in 0..ROLES {
        run(&mut owner, &format!("CREATE ROLE r{role} LOGIN")).await;
    }
    for table in 0..TABLES {
        run(&mut owner, &format!("CREATE TABLE t{table} (n INT)")).await;
    }
    let mut sessions: Vec<Session> = Vec::new();
    for role in 0..ROLES {
        let mut session = Session::new(&db);
        session.log_in(&format!("r{role}")).unwrap();
        sessions.push(session);
    }
    let (mut model, mut allowed, mut refused) = (Model::default(), 0, 0);
    for _ in 0..steps {
        let (to, table, privilege) =
            (random.random_range(0..=ROLES), random.random_range(0..TABLES), random.random_range(0..4));
        let name = if to == PUBLIC { "PUBLIC".to_owned() } else { format!("r{to}") };
        let word = PRIVILEGES[privilege].0;
        match random.random_range(0..10) {
            0..3 => {
                run(&mut owner, &format!("GRANT {word} ON t{table} TO {name}")).await;
                model.grants.insert((to, table, privilege));
            }
            3..6 => {
                run(&mut owner, &format!("REVOKE {word} ON t{table} FROM {name}")).await;
                model.grants.remove(&(to, table, privilege));
            }
            6 => {
                let (member, role) = (random.random_range(0..ROLES), random.random_range(0..ROLES));
                let cycle = model.reaches(role, member);
                let made = owner.execute(&format!("GRANT r{role} TO r{member}")).await;
                assert_eq!(made.map(|_| ()).map_err(|error| error.sqlstate), if cycle { Err("0LP01") } else { Ok(()) });
                if !cycle {
                    model.members.insert((member, role));
                }
            }
            7 => {
                if let Some(&(member, role)) = model.members.iter().choose(&mut random) {
                    run(&mut owner, &format!("REVOKE r{role} FROM r{member}")).await;
                    model.members.remove(&(member, role));
                }
            }
            8 => {
                run(&mut owner, &format!("DROP TABLE t{table}; CREATE TABLE t{table} (n INT)")).await;
                model.grants.retain(|grant| grant.1 != table);
            }
            _ => {
                run(
                    &mut owner,
                    &format!(
                        "BEGIN; REVOKE ALL ON t{table} FROM PUBLIC, r0, r1; GRANT SELECT ON t{table} TO r2; ROLLBACK"
                    ),
                )
                .await;
            }
        }
        for _ in 0..4 {
            let (role, table, privilege) =
                (random.random_range(0..ROLES), random.random_range(0..TABLES), random.random_range(0..4));
            let statement = PRIVILEGES[privilege].1.replace(" t", &format!(" t{table}"));
            let expected = model.may(role, table, privilege);
            let got = rows(&mut sessions[role], &statement).await;
            assert_eq!(got.map(|_| ()), if expected { Ok(()) } else { Err("42501") }, "r{role}: {statement}");
            *if expected { &mut allowed } else { &mut refused } += 1;
        }
    }
    assert!(allowed > steps / 4 && refused > steps / 4, "{allowed} allowed, {refused} refused");
}
