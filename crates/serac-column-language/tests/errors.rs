//! Every kind of error, and that nothing is left of a statement that fails.

mod common;

use common::{Client, in_memory};
use serac_column_language::OperatorError::*;
use serac_column_language::{Cancel, Operators, Output, Settings};
use serac_engine::Database;
use std::sync::Arc;
use std::sync::atomic::Ordering;

macro_rules! refused {
    ($client:expr, $($line:expr => $error:pat),* $(,)?) => {
        $(let error = $client.fails($line);
        assert!(matches!(error, $error), "{}: {error:?}", $line);)*
    };
}

#[test]
fn every_kind_is_told_apart() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)");
    refused!(client,
        "relational_insert(d.t,1)" => TableIncomplete { missing: 1, .. },
        "relational_insert(d.t,1,2)" => TableIncomplete { .. });
    client.all("create(col,\"b\",d.t)\nrelational_insert(d.t,1,2)\nrelational_insert(d.t,3,4)");
    client.all("p=select(d.t.a,null,null)\nv=fetch(d.t.a,p)\none=select(d.t.a,1,2)\ns=sum(v)\nt=time()");
    refused!(client,
        "select(" => Syntax(_),
        "jump()" => UnknownCommand(_),
        "select(d.t.a,1)" => WrongArgumentCount { .. },
        "relational_insert(d.t,1)" => WrongArgumentCount { .. },
        "a,b=fetch(d.t.a,p)" => WrongResultCount { .. },
        "select(d.t.a,1x,2)" => BadNumber(_),
        "relational_insert(d.t,2147483648,0)" => OutOfRange(..),
        "relational_update(d.t.a,p,-2147483649)" => OutOfRange(..),
        "create(tbl,\"u\",d,0)" => OutOfRange(..),
        "create(tbl,\"u\",d,1601)" => OutOfRange(..),
        "create(tbl,\"u\",nope,1)" => UnknownDatabase(_),
        "select(nope.t.a,1,2)" => UnknownDatabase(_),
        "select(d.nope.a,1,2)" => UnknownTable(_),
        "create(col,\"a\",d.nope)" => UnknownTable(_),
        "select(d.t.nope,1,2)" => UnknownColumn(_),
        "relational_update(d.t.nope,p,1)" => UnknownColumn(_),
        "create(idx,d.t.nope,btree)" => UnknownColumn(_),
        "fetch(d.t.a,nope)" => UnknownVariable(_),
        "print(nope)" => UnknownVariable(_),
        "relational_delete(d.t,nope)" => UnknownVariable(_),
        "set(nope,1)" => UnknownSetting(_),
        "fetch(d.t.a,v)" => WrongKind { .. },
        "sum(p)" => WrongKind { .. },
        "relational_delete(d.t,v)" => WrongKind { .. },
        "time(v)" => WrongKind { .. },
        "add(v,s)" => LengthsDiffer(2, 1),
        "print(v,s)" => LengthsDiffer(2, 1),
        "select(one,v,1,2)" => LengthsDiffer(2, 1),
        "x,y=join(v,one,v,p,hash)" => LengthsDiffer(2, 1),
        "create(db,\"d\")" => Exists("database", _),
        "create(db,\"public\")" => Exists("database", _),
        "create(tbl,\"t\",d,1)" => Exists("table", _),
        "create(col,\"a\",d.t)" => Exists("column", _),
        "create(col,\"c\",d.t)" => TableFull(_),
        "create(db,\"1d\")" => BadName(..),
        "create(db,\"pg_d\")" => BadName(..),
        "load(\"/no/such/file\")" => NoSuchFile(..),
        "batch_execute()" => NotHere(_),
        "single_core_execute()" => NotHere(_));
    // What needs a state of its own.
    client.all("create(idx,d.t.b,sorted)\nq=select(d.t.a,3,4)");
    refused!(client, "create(idx,d.t.b,sorted)" => Exists("index", _));
    client.all("create(tbl,\"u\",d,1)\ncreate(col,\"a\",d.u)\nrelational_insert(d.u,7)");
    refused!(client, "fetch(d.u.a,q)" => PositionOutOfRange(1, 1), "fetch(s,q)" => PositionOutOfRange(1, 1));
    client.ok("relational_delete(d.t,q)");
    refused!(client,
        "fetch(d.t.a,q)" => RowDeleted,
        "relational_update(d.t.a,q,1)" => RowDeleted,
        "relational_delete(d.t,q)" => RowDeleted,
        "fetch(d.u.a,q)" => RowDeleted,
        "print(q)" => RowDeleted);
    client.ok("create(idx,d.t.a,btree,clustered)");
    refused!(client, "fetch(d.t.a,one)" => RowsGone(_), "print(one)" => RowsGone(_));
    assert_eq!(client.all("print(d.t.a,d.t.b)\nprint(v)"), "1,2\n1\n3\n");
    client.ok("batch_queries()");
    refused!(client, "print(v)" => InBatch("print"), "batch_queries()" => InBatch(_), "time()" => InBatch(_));
    client.ok("n=sum(nope)");
    let error = client.run("batch_execute()").unwrap_err();
    assert!(matches!(error.reports()[0].error, UnknownVariable(_)));
    // Doubled 62 times, 1 is 2^62; the next sum does not fit.
    client.ok("x=sum(d.t.a)");
    (0..62).for_each(|_| client.ok("x=add(x,x)"));
    refused!(client, "add(x,x)" => Overflow("add"));
    assert_eq!(client.all("print(x)"), "4611686018427387904\n");
}

#[test]
fn a_concurrent_transaction_is_a_conflict() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\nrelational_insert(d.t,1)");
    client.ok("p=select(d.t.a,null,null)");
    let mut other = operators.database().begin();
    let table = other.catalog().table("d", "t").unwrap().clone();
    let row = table.data.read_block(other.snapshot(), serac_storage::BlockNo(0)).unwrap();
    let row = serac_storage::RowId::from_u64(row.row_ids(row.visible()).value(0));
    let plan = serac_engine::ColumnUpdate::new(other.catalog(), &table, &[0]);
    other.update(&plan, row, &[serac_storage::Value::Int32(5)]).unwrap();
    refused!(client, "relational_update(d.t.a,p,9)" => Conflict(_), "relational_delete(d.t,p)" => Conflict(_));
    other.commit().unwrap();
    assert_eq!(client.all("print(d.t.a)\nrelational_update(d.t.a,p,9)\nprint(d.t.a)"), "5\n9\n");
}

#[test]
fn variables_have_a_limit() {
    let operators = Operators::with(Arc::new(Database::in_memory().unwrap()), 5_000, Settings::default());
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)");
    (0..300).for_each(|n| client.ok(&format!("relational_insert(d.t,{})", n % 3)));
    client.all("p=select(d.t.a,null,null)\nv=fetch(d.t.a,p)");
    refused!(client,
        "w=fetch(d.t.a,p)" => OutOfMemory { .. },
        "w=add(v,v)" => OutOfMemory { .. },
        "x,y=join(v,p,v,p,hash)" => OutOfMemory { .. });
    let used = operators.memory().used();
    assert!(used > 2_400, "{used}");
    client.all("v=sum(v)\nw=fetch(d.t.a,p)");
    drop(client);
    assert_eq!(operators.memory().used(), 0);
}

/// A join lists the positions of its sides, which may be short ranges as variables.
#[test]
fn the_sides_of_a_join_count() {
    let operators = Operators::with(Arc::new(Database::in_memory().unwrap()), 2_500_000, Settings::default());
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
    let rows: String = (0..100_000).map(|row| format!("{row},{}\n", -1 - row)).collect();
    client.load(format!("d.t.a,d.t.b\n{rows}").as_bytes(), 1 << 16).unwrap();
    client.all("p=select(d.t.a,null,null)\nv=fetch(d.t.a,p)\nw=fetch(d.t.b,p)");
    refused!(client, "x,y=join(v,p,w,p,hash)" => OutOfMemory { .. });
    client.all("v=time()\nw=time()\nq=select(d.t.a,0,10000)\nv=fetch(d.t.a,q)\nx,y=join(v,q,v,q,hash)");
}

/// One key for nearly all rows, and no rows at all, by each algorithm.
#[test]
fn joins_of_skewed_and_empty_sides_agree() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
    let key = |row: i32| if row % 10 == 0 { row } else { i32::MIN };
    let rows: String = (0..3_000).map(|row| format!("{},{row}\n", key(row))).collect();
    client.load(format!("d.t.a,d.t.b\n{rows}").as_bytes(), 1 << 16).unwrap();
    client.all("p=select(d.t.b,0,500)\nq=select(d.t.b,500,2000)\ne=select(d.t.b,5,5)");
    client.all("v=fetch(d.t.a,p)\nw=fetch(d.t.a,q)\nn=fetch(d.t.a,e)");
    let (left, right) = (0..500, 500..2_000);
    let pairs = left.clone().flat_map(|l| right.clone().map(move |r| (l, r))).filter(|(l, r)| key(*l) == key(*r));
    let (sum_left, sum_right) = pairs.fold((0, 0), |(a, b), (l, r)| (a + i64::from(l), b + i64::from(r)));
    for how in ["hash", "nested-loop", "naive-hash", "grace-hash"] {
        for threads in [1, 3] {
            client.all(&format!("set(threads,{threads})\nx,y=join(v,p,w,q,{how})\nf=fetch(d.t.b,x)\ng=fetch(d.t.b,y)"));
            assert_eq!(client.all("s=sum(f)\nt=sum(g)\nprint(s,t)"), format!("{sum_left},{sum_right}\n"), "{how}");
            for sides in ["v,p,n,e", "n,e,v,p", "n,e,n,e"] {
                assert_eq!(client.all(&format!("x,y=join({sides},{how})\nprint(x,y)")), "", "{how} {sides}");
            }
        }
    }
}

#[test]
fn what_is_cancelled_ends() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\nrelational_insert(d.t,1)");
    client.context.cancel().store(true, Ordering::Relaxed);
    refused!(client, "sum(d.t.a)" => Cancelled, "print(d.t.a)" => Cancelled);
    client.context.cancel().store(false, Ordering::Relaxed);
    assert_eq!(client.all("print(d.t.a)"), "1\n");
}

/// A client that reads nothing until its statement is cancelled.
struct Stalled(Cancel);

impl Output for Stalled {
    fn write(&mut self, _: &str) -> std::io::Result<()> {
        self.0.store(true, Ordering::Relaxed);
        Err(std::io::Error::other("it waits no longer"))
    }
}

#[test]
fn a_result_that_waits_for_its_client_is_cancelled() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\nrelational_insert(d.t,1)");
    let mut stalled = Stalled(client.context.cancel().clone());
    let error = client.context.execute(1, "print(d.t.a)", &mut stalled).unwrap_err();
    assert!(matches!(error.reports()[0].error, Cancelled), "{error}");
}

struct Gone;

impl Output for Gone {
    fn write(&mut self, _: &str) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_client_that_has_gone_is_an_error() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\nrelational_insert(d.t,1)");
    let error = client.context.execute(1, "print(d.t.a)", &mut Gone).unwrap_err();
    assert!(matches!(error.reports()[0].error, Output(_)));
}

#[test]
fn nothing_begins_after_a_shutdown() {
    let operators = in_memory();
    let (mut client, mut other) = (Client::new(&operators), Client::new(&operators));
    client.all("create(db,\"d\")\nshutdown");
    refused!(other, "create(db,\"e\")" => ShuttingDown);
}

#[test]
fn a_batch_has_a_limit() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\nbatch_queries()");
    let most = serac_column_language::context::MOST_BATCH_STATEMENTS;
    (0..most).for_each(|_| client.ok("s=sum(d.t.a)"));
    refused!(client, "s=sum(d.t.a)" => BatchTooLong(_));
    assert_eq!(client.all("batch_execute()\nprint(s)"), "0\n");
}
