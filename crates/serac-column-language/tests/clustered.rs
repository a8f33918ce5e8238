//! Selects on a clustered column against scans, while rows come, change, go, freeze and move.

mod common;

use common::{Client, in_memory};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_column_language::Operators;
use serac_engine::Database;
use serac_storage::StorageOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VALUES: i64 = 1_000;

fn table(client: &mut Client, form: &str) {
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"k\",d.t)\ncreate(col,\"v\",d.t)");
    client.ok(&format!("create(idx,d.t.k,{form},clustered)"));
}

fn file(rng: &mut StdRng, rows: usize) -> String {
    let row = |_| format!("{},{}\n", rng.random_range(0..VALUES), rng.random_range(0..9));
    std::iter::once("d.t.k,d.t.v\n".to_owned()).chain((0..rows).map(row)).collect()
}

fn freeze(operators: &Operators) {
    let table = operators.database().catalog().table("d", "t").unwrap().clone();
    operators.database().storage().freeze_table(&table.data, Duration::from_millis(100));
}

/// What a select finds: how many rows, and sums of their values and of their numbers.
fn found(client: &mut Client, access: &str, bounds: &str) -> String {
    client.ok(&format!("set(access,{access})"));
    client.all(&format!("p=select(d.t.k,{bounds})\nk=fetch(d.t.k,p)\nv=fetch(d.t.v,p)\ns=sum(k)\nt=sum(v)"));
    client.all("n=min(k)\nx=max(k)\no=sub(k,k)\nnone=select(o,1,null)\nz=fetch(o,none)\nc=avg(k)\nprint(s,t,n,x,c)")
}

fn check(client: &mut Client, rng: &mut StdRng, what: &str) {
    for round in 0..6 {
        let (low, high) = match round {
            0 => ("null".to_owned(), rng.random_range(0..VALUES + 1).to_string()),
            1 => (rng.random_range(0..VALUES + 1).to_string(), "null".to_owned()),
            2 => ((-VALUES).to_string(), (2 * VALUES).to_string()),
            _ => {
                let low = rng.random_range(-1..VALUES);
                (low.to_string(), (low + rng.random_range(0..VALUES / 2)).to_string())
            }
        };
        let bounds = format!("{low},{high}");
        let wanted = found(client, "scan", &bounds);
        for access in ["index", "auto"] {
            assert_eq!(found(client, access, &bounds), wanted, "{access}, select({bounds}), {what}");
        }
        // The positions themselves, where they are few.
        let few = format!("{low},{}", low.parse::<i64>().unwrap_or(0) + 2);
        client.all(&format!("set(access,scan)\np=select(d.t.k,{few})\nset(access,auto)\nq=select(d.t.k,{few})"));
        assert_eq!(client.all("print(p)"), client.all("print(q)"), "select({few}), {what}");
        client.all("p=time()\nq=time()");
    }
}

#[test]
fn a_clustered_select_is_what_a_scan_finds() {
    let seed = serac_testing::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    for form in ["sorted", "btree"] {
        let operators = in_memory();
        let mut client = Client::new(&operators);
        table(&mut client, form);
        client.load(file(&mut rng, 150_000).as_bytes(), 1 << 20).unwrap();
        check(&mut client, &mut rng, "a load");
        let steps = if serac_testing::stress() { 200 } else { 14 };
        for step in 0..steps {
            let key = rng.random_range(0..VALUES);
            let what = match rng.random_range(0..6) {
                0 => {
                    let rows = [10, 3_000, 70_000][rng.random_range(0..3)];
                    client.load(file(&mut rng, rows).as_bytes(), 1 << 20).unwrap();
                    "another load"
                }
                1 => {
                    for _ in 0..rng.random_range(1..40) {
                        client.ok(&format!("relational_insert(d.t,{},1)", rng.random_range(0..VALUES)));
                    }
                    "inserts"
                }
                2 => {
                    client.all(&format!("p=select(d.t.k,{key},{})", key + rng.random_range(1..4)));
                    client.ok(&format!("relational_update(d.t.k,p,{})", rng.random_range(0..VALUES)));
                    "an update of the key"
                }
                3 => {
                    client.all(&format!("p=select(d.t.k,{key},{})", key + 2));
                    client.ok("relational_update(d.t.v,p,7)");
                    "an update of another column"
                }
                4 => {
                    client.all(&format!("p=select(d.t.k,{key},{})", key + rng.random_range(1..200)));
                    client.ok("relational_delete(d.t,p)");
                    "a delete"
                }
                _ => {
                    // Positions would keep rows where they are.
                    client.ok("p=time()");
                    freeze(&operators);
                    "freezing, and compaction"
                }
            };
            check(&mut client, &mut rng, &format!("{form}, step {step}: {what}, seed {seed}"));
        }
        let txn = operators.database().begin();
        txn.catalog().table("d", "t").unwrap().verify(txn.snapshot());
    }
}

/// A batch sees one snapshot: the rows below a value and those from it on are all rows, whatever
/// writers do to the key meanwhile.
#[test]
fn a_batch_beside_writers_sees_each_row_once() {
    let options = StorageOptions { freeze_after: Some(Duration::from_millis(2)), ..Default::default() };
    let operators = Operators::new(Arc::new(Database::open_with(options).unwrap()));
    let mut client = Client::new(&operators);
    table(&mut client, "sorted");
    let rows = 120_000;
    let file: String = (0..rows).map(|row| format!("{},1\n", row % VALUES)).collect();
    client.load(format!("d.t.k,d.t.v\n{file}").as_bytes(), 1 << 20).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (operators, over) = (&operators, &over);
            scope.spawn(move || {
                let (mut client, mut rng) = (Client::new(operators), StdRng::seed_from_u64(writer));
                while !over.load(Ordering::Relaxed) {
                    let key = rng.random_range(0..VALUES);
                    client.all(&format!("p=select(d.t.k,{key},{})", key + 1));
                    // Two writers may meet.
                    let _ = client.run(&format!("relational_update(d.t.k,p,{})", rng.random_range(0..VALUES)));
                    client.ok("p=time()");
                    std::thread::sleep(Duration::from_millis(rng.random_range(0..4)));
                }
            });
        }
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..60 {
            let key = rng.random_range(0..VALUES);
            client.all(&format!(
                "batch_queries()\na=select(d.t.k,null,{key})\nb=select(d.t.k,{key},null)\nc=fetch(d.t.v,a)\n\
                 e=fetch(d.t.v,b)\nbatch_execute()\ns=sum(c)\nt=sum(e)\nu=add(s,t)"
            ));
            let printed = client.all("print(u)\na=time()\nb=time()");
            if printed != format!("{rows}\n") {
                over.store(true, Ordering::Relaxed);
                panic!("{printed} of {rows}, split at {key}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
