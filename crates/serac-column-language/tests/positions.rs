//! Positions stay those of their rows, whatever becomes of the blocks.

mod common;

use common::{Client, in_memory};
use serac_column_language::statement::TableName;
use serac_column_language::{Cancel, OperatorError, Operators, Settings, Snapshot, Variable, column};
use serac_engine::Database;
use serac_engine::catalog::definition::{ColumnDefinition, ColumnOrder};
use serac_engine::security::RoleId;
use serac_storage::{ColumnType, StorageOptions, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ROWS: usize = 200_000;

fn table() -> (Operators, Client) {
    let database = Database::open_with(StorageOptions::default()).unwrap();
    let operators = Operators::new(Arc::new(database));
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
    let mut file = String::from("d.t.a,d.t.b\n");
    (0..ROWS).for_each(|row| file.push_str(&format!("{row},{}\n", row % 10)));
    client.load(file.as_bytes(), 1 << 16).unwrap();
    (operators, client)
}

fn freeze(operators: &Operators) -> (u32, u32) {
    let database = operators.database();
    let data = database.catalog().table("d", "t").unwrap().data.clone();
    database.storage().freeze_table(&data, Duration::from_secs(2))
}

fn id(operators: &Operators) -> TableId {
    operators.database().catalog().table("d", "t").unwrap().data.id()
}

#[test]
fn compaction_waits_for_those_who_keep_positions() {
    let (operators, mut client) = table();
    // Nine rows in ten go, so blocks are to be emptied.
    client.all("gone=select(d.t.b,1,null)\nrelational_delete(d.t,gone)\ngone=sum(d.t.a)");
    client.all("p=select(d.t.a,100000,100100)");
    let before = id(&operators);
    let blocks = |operators: &Operators| operators.database().catalog().table("d", "t").unwrap().data.metrics().blocks;
    let many = blocks(&operators);
    assert!(many > 1);
    freeze(&operators);
    assert_eq!(blocks(&operators), many, "a pinned table keeps its blocks");
    let expected: String = (100_000..100_100).step_by(10).map(|row| format!("{row}\n")).collect();
    assert_eq!(client.all("f=fetch(d.t.a,p)\nprint(f)"), expected);
    // Rows that are inserted now do not come to the places of those that went.
    client.all("relational_insert(d.t,-1,-1)\nf=fetch(d.t.a,p)");
    assert_eq!(client.all("print(f)"), expected);
    client.all("p=sum(f)");
    freeze(&operators);
    assert_eq!(id(&operators), before);
    assert!(blocks(&operators) < many, "nobody keeps positions any more");
    let sum: usize = (0..ROWS).step_by(10).sum();
    assert_eq!(client.all("s=sum(d.t.a)\nprint(s)"), format!("{}\n", sum - 1));
}

#[test]
fn a_client_that_goes_takes_its_pins_along() {
    let (operators, mut client) = table();
    let mut other = Client::new(&operators);
    other.all("p=select(d.t.a,5,9)\nq=select(p,d.t.b,6,7)\nbatch_queries()\nr=select(d.t.a,1,2)\nbatch_execute()");
    client.all("gone=select(d.t.b,1,null)\nrelational_delete(d.t,gone)\ngone=sum(d.t.a)");
    let data = operators.database().catalog().table("d", "t").unwrap().data.clone();
    let many = data.metrics().blocks;
    freeze(&operators);
    assert_eq!(data.metrics().blocks, many);
    drop(other);
    freeze(&operators);
    assert!(data.metrics().blocks < many);
}

#[test]
fn frozen_blocks_are_read_and_written_through_positions() {
    let (operators, mut client) = table();
    client.all("p=select(d.t.b,3,5)\nq=select(d.t.a,199990,null)\none=select(d.t.a,77777,77778)");
    let (frozen, blocks) = freeze(&operators);
    assert!(frozen > 0 && blocks > 1, "{frozen} of {blocks}");
    for access in ["scan", "index"] {
        client.ok(&format!("set(access,{access})"));
        client.all("p2=select(d.t.b,3,5)\nx=fetch(d.t.a,p)\ny=fetch(d.t.a,p2)\nd=sub(x,y)\nm=max(d)\nn=min(d)");
        assert_eq!(client.all("print(m,n)"), "0,0\n");
    }
    client.all("relational_update(d.t.b,one,-5)\nv=select(d.t.b,-5,-4)\nw=fetch(d.t.a,v)");
    assert_eq!(client.all("print(w)\nf=fetch(d.t.a,q)\ns=sum(f)\nprint(s)"), "77777\n1999945\n");
    client.all("relational_delete(d.t,one)");
    client.fails("g=fetch(d.t.a,one)");
    client.all("rest=select(d.t.a,77770,77785)\nf=fetch(d.t.a,rest)\nc=sub(f,f)\np,s=max(rest,f)");
    assert_eq!(client.all("print(p,s)"), "77783,77784\n");
}

#[test]
fn rows_in_any_order_and_more_than_once() {
    let (operators, mut client) = table();
    freeze(&operators);
    client.all("p=select(d.t.a,0,5)\nk=fetch(d.t.b,p)\nq=select(d.t.a,199000,199030)\nl=fetch(d.t.b,q)");
    for how in ["hash", "nested-loop", "naive-hash", "grace-hash"] {
        client
            .all(&format!("x,y=join(k,p,l,q,{how})\nf=fetch(d.t.b,x)\ng=fetch(d.t.b,y)\nh=fetch(d.t.a,y)\ni=sub(f,g)"));
        client.all("m=max(i)\nn=min(i)\ns=sum(h)\nt=sum(f)");
        let sum: usize = (199_000..199_030).filter(|row| row % 10 < 5).sum();
        assert_eq!(client.all("print(m,n,s,t)"), format!("0,0,{sum},{}\n", 3 * 10), "{how}");
    }
}

/// The statements that change a table's rows or columns, each between two uses of positions.
#[test]
fn positions_of_a_table_that_was_dropped_or_rewritten_are_refused() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.ok("create(db,\"d\")");
    for change in ["drop", "recreate", "truncate", "drop_column", "add_column", "cluster", "rename"] {
        client.all("create(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
        let rows: String = (0..3_000).map(|row| format!("{row},{}\n", 3_000 - row)).collect();
        client.load(format!("d.t.a,d.t.b\n{rows}").as_bytes(), 1 << 16).unwrap();
        client.all("p=select(d.t.a,10,13)\nnone=select(d.t.a,5,5)\nall=select(d.t.a,null,null)");
        let data = Arc::downgrade(&operators.database().catalog().table("d", "t").unwrap().data);
        let mut txn = operators.database().begin();
        let added = ColumnDefinition::new("z", ColumnType::Int64);
        let nulls = |old: &arrow_array::RecordBatch| {
            Ok(arrow_array::new_null_array(&ColumnType::Int64.arrow(), old.num_rows()))
        };
        match change {
            "drop" | "recreate" => txn.drop_table("d", "t", false).unwrap(),
            "truncate" => drop(txn.truncate(&[("d".into(), "t".into())], false, false).unwrap()),
            "drop_column" => txn.drop_column("d", "t", "a", false).unwrap(),
            "add_column" => txn.add_column("d", "t", added, nulls).unwrap(),
            "cluster" => txn.cluster("d", "t", vec![(1, ColumnOrder::default())]).unwrap(),
            _ => txn.rename_table("d", "t", "other").unwrap(),
        }
        txn.commit().unwrap().wait().unwrap();
        if change == "recreate" {
            client
                .all("create(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)\nrelational_insert(d.t,1,2)");
        }
        if change == "rename" {
            // The rows are the same, whatever their table is called.
            assert_eq!(client.all("v=fetch(d.other.b,p)\nprint(v)"), "2990\n2989\n2988\n");
        } else {
            for positions in ["p", "none", "all"] {
                let error = client.fails(&format!("print({positions})"));
                assert!(matches!(error, OperatorError::RowsGone(_)), "{change}: {error}");
                for line in ["v=fetch(d.t.b,P)", "relational_delete(d.t,P)", "relational_update(d.t.b,P,3)"] {
                    let error = client.fails(&line.replace('P', positions));
                    let gone = matches!(error, OperatorError::RowsGone(_));
                    assert!(gone || (change == "drop" && matches!(error, OperatorError::UnknownTable(_))), "{error}");
                }
            }
            // The variables are there, but not the rows' memory.
            let is_freed = (0..1_000).any(|_| {
                operators.database().storage().run_gc();
                std::thread::sleep(Duration::from_millis(1));
                data.upgrade().is_none()
            });
            assert!(is_freed, "{change}");
        }
        let name = if change == "rename" { "other" } else { "t" };
        if change != "drop" {
            let mut txn = operators.database().begin();
            txn.drop_table("d", name, false).unwrap();
            txn.commit().unwrap().wait().unwrap();
        }
    }
}

#[test]
fn an_update_of_the_clustering_column_keeps_positions() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
    client.all("create(idx,d.t.a,sorted,clustered)\ncreate(idx,d.t.b,btree,unclustered)");
    let rows: String = (0..5_000).map(|row| format!("{row},{}\n", 5_000 - row)).collect();
    client.load(format!("d.t.a,d.t.b\n{rows}").as_bytes(), 1 << 16).unwrap();
    client.all("p=select(d.t.a,10,13)\nrelational_update(d.t.a,p,-5)\nf=fetch(d.t.b,p)\ng=fetch(d.t.a,p)");
    assert_eq!(client.all("print(g,f)"), "-5,4990\n-5,4989\n-5,4988\n");
    assert_eq!(client.all("q=select(d.t.a,-5,-4)\nh=fetch(d.t.b,q)\ns=sum(h)\nprint(s)"), "14967\n");
}

/// To look up the numbers of many rows takes long, so it is asked now and then whether to go on.
#[test]
fn the_numbers_of_positions_can_be_cancelled() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)");
    client.load(format!("d.t.a\n{}", "1\n".repeat(200)).as_bytes(), 1 << 16).unwrap();
    // 40,000 pairs, in no order.
    client.all("p=select(d.t.a,null,null)\nv=fetch(d.t.a,p)\nx,y=join(v,p,v,p,nested-loop)");
    let Some(Variable::Positions(positions)) = client.context.variable("y") else { panic!() };
    let (cancel, name) = (Cancel::default(), TableName { database: "d".into(), table: "t".into() });
    let names = std::iter::once(&name);
    let opened = Snapshot::open(&operators, RoleId::BOOTSTRAP, names, &Settings::default(), &cancel);
    let (snapshot, _txn) = opened.unwrap();
    assert_eq!(column::numbers(&snapshot, positions).unwrap().len(), 40_000);
    cancel.store(true, Ordering::Relaxed);
    assert!(matches!(column::numbers(&snapshot, positions), Err(OperatorError::Cancelled)));
}
