//! Positions stay those of their rows, whatever becomes of the blocks.

mod common;

use common::Client;
use serac_column_language::Operators;
use serac_engine::Database;
use serac_storage::{StorageOptions, TableId};
use std::sync::Arc;
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
