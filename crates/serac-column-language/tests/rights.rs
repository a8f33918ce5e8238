//! What a client may do and see by its role: what SQL would allow.

mod common;

use common::{Client, in_memory};
use serac_column_language::{OperatorError, Operators};
use serac_engine::EngineError;
use serac_engine::security::{Object, Privilege, Privileges, RoleId, RoleOptions, Terms};

const TABLES: &str = "create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)\n\
    create(idx,d.t.a,btree,unclustered)\nrelational_insert(d.t,1,2)\n\
    create(tbl,\"secret\",d,1)\ncreate(col,\"x\",d.secret)\nrelational_insert(d.secret,7)\n\
    create(db,\"hidden\")\ncreate(tbl,\"h\",hidden,1)\ncreate(col,\"x\",hidden.h)";

/// A database with tables of the superuser's, and a role without rights.
fn with_role() -> (Operators, RoleId) {
    let operators = in_memory();
    Client::new(&operators).all(TABLES);
    let mut txn = operators.database().begin();
    let role = txn.create_role("reader", &RoleOptions { login: Some(true), ..RoleOptions::default() }).unwrap();
    txn.commit().unwrap();
    grant(&operators, role, &Object::Schema("d".into()), None, Privilege::Usage);
    (operators, role)
}

fn grant(operators: &Operators, role: RoleId, object: &Object, column: Option<&str>, privilege: Privilege) {
    let mut txn = operators.database().begin();
    let terms = Terms { object, column, privileges: Privileges::of(&[privilege]), grantees: &[role] };
    txn.grant(&terms, false).unwrap();
    txn.commit().unwrap();
}

fn client_of(operators: &Operators, role: RoleId) -> Client {
    let mut client = Client::new(operators);
    client.context = operators.context().with_role(role);
    client
}

fn is_denied(error: &OperatorError) -> bool {
    matches!(error, OperatorError::Engine(EngineError::Denied(_)))
}

#[test]
fn every_statement_asks_for_the_privilege_that_sql_asks_for() {
    let (operators, role) = with_role();
    let table = Object::relation("d", "t");
    let all = [
        "p=select(d.t.a,null,null)",
        "s=sum(d.t.b)",
        "v=add(d.t.a,d.t.b)",
        "q,m=max(null,d.t.a)",
        "print(d.t.a)",
        "relational_insert(d.t,3,4)",
        "create(idx,d.t.b,btree,unclustered)",
        "create(col,\"c\",d.t)",
        "create(tbl,\"u\",d,1)",
        "create(db,\"e\")",
        "shutdown",
    ];
    let mut client = client_of(&operators, role);
    for line in all {
        assert!(is_denied(&client.fails(line)), "{line}");
    }
    let error = client.load(b"d.t.a,d.t.b\n1,2\n", 99).unwrap_err();
    assert!(is_denied(&error.reports()[0].error), "{error}");
    // SELECT on a column gives this column alone, also in a batch.
    grant(&operators, role, &table, Some("a"), Privilege::Select);
    client.all("p=select(d.t.a,null,null)\nv=fetch(d.t.a,p)");
    for line in ["w=fetch(d.t.b,p)", "p2=select(p,d.t.b,0,9)", "print(d.t.a,d.t.b)", "w=add(v,d.t.b)"] {
        assert!(is_denied(&client.fails(line)), "{line}");
    }
    for heuristic in ["default", "breadth", "breadth_multiselect", "smart"] {
        client.all(&format!("set(batch_heuristic,{heuristic})\nbatch_queries()"));
        client.all("x=select(d.t.b,0,9)\ny=select(d.t.b,0,8)\nz=select(d.t.a,0,9)\nw=fetch(d.t.b,p)\nu=fetch(d.t.a,p)");
        let error = client.run("batch_execute()").unwrap_err();
        assert_eq!(error.reports().len(), 3, "{heuristic}: {error}");
        assert!(error.reports().iter().all(|report| is_denied(&report.error)), "{heuristic}: {error}");
        assert!(client.context.variable("x").is_none() && client.context.variable("z").is_some());
    }
    // Positions are no right to change anything.
    for line in ["relational_update(d.t.a,p,5)", "relational_delete(d.t,p)"] {
        assert!(is_denied(&client.fails(line)), "{line}");
    }
    grant(&operators, role, &table, Some("b"), Privilege::Update);
    client.ok("relational_update(d.t.b,p,5)");
    assert!(is_denied(&client.fails("relational_update(d.t.a,p,5)")));
    // As in SQL, INSERT on each of the columns is as good as on the table.
    grant(&operators, role, &table, Some("a"), Privilege::Insert);
    assert!(is_denied(&client.fails("relational_insert(d.t,3,4)")));
    grant(&operators, role, &table, Some("b"), Privilege::Insert);
    client.ok("relational_insert(d.t,3,4)");
    client.load(b"d.t.b,d.t.a\n6,5\n", 99).unwrap();
    grant(&operators, role, &table, None, Privilege::Delete);
    client.ok("relational_delete(d.t,p)");
    assert_eq!(client.all("print(d.t.a)"), "3\n5\n");
    // Without USAGE on the schema, nothing of it.
    grant(&operators, role, &Object::relation("hidden", "h"), None, Privilege::Select);
    assert!(is_denied(&client.fails("print(hidden.h.x)")));
}

#[test]
fn info_shows_what_a_role_may_see() {
    let (operators, role) = with_role();
    grant(&operators, role, &Object::relation("d", "t"), Some("a"), Privilege::Select);
    let shown = client_of(&operators, role).all("info()");
    assert!(shown.contains("database d\n") && shown.contains("table d.t (a integer)"), "{shown}");
    for hidden in ["secret", "hidden", "(b", ", b"] {
        assert!(!shown.contains(hidden), "{hidden}: {shown}");
    }
    assert!(shown.contains("index d.t (a) btree unclustered"), "{shown}");
    let all = Client::new(&operators).all("info()");
    assert!(all.contains("secret") && all.contains("hidden.h") && all.contains("(a integer, b integer)"), "{all}");
}
