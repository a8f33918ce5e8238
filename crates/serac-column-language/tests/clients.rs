//! Several clients at once, beside the storage's own threads.

mod common;

use common::Client;
use serac_column_language::{Context, Load, OperatorError, Operators, Snapshot, Variable};
use serac_engine::Database;
use serac_storage::StorageOptions;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn what_threads_share_may_be_shared() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Operators>();
    shared::<Snapshot>();
    shared::<Variable>();
    sent::<Context>();
    sent::<Load>();
}

/// Each client has rows of its own in one table: it inserts, updates and deletes them through
/// positions, while blocks are compacted, frozen and thawed. What it does not change must stay what
/// it was.
#[test]
fn clients_do_not_disturb_each_other() {
    let options = StorageOptions { freeze_after: Some(Duration::from_millis(2)), ..Default::default() };
    let operators = Operators::new(Arc::new(Database::open_with(options).unwrap()));
    let mut setup = Client::new(&operators);
    setup.all("create(db,\"d\")\ncreate(tbl,\"t\",d,3)\ncreate(col,\"owner\",d.t)\ncreate(col,\"k\",d.t)\ncreate(col,\"v\",d.t)");
    setup.all("create(idx,d.t.owner,btree,unclustered)\ncreate(idx,d.t.k,sorted,unclustered)");
    let rounds = if serac_testing::stress() { 200 } else { 12 };
    std::thread::scope(|scope| {
        for owner in 0..3i64 {
            let operators = &operators;
            scope.spawn(move || {
                let mut client = Client::new(operators);
                // What it owns: k and v.
                let mut rows: Vec<(i64, i64)> = Vec::new();
                let mut next = 0;
                for round in 0..rounds {
                    let mut file = String::from("d.t.owner,d.t.k,d.t.v\n");
                    for _ in 0..if round % 4 == 0 { 3_000 } else { 40 } {
                        file.push_str(&format!("{owner},{next},{}\n", next * 3));
                        rows.push((next, next * 3));
                        next += 1;
                    }
                    client.load(file.as_bytes(), 999).unwrap();
                    let lower = (round as i64 * 37) % next;
                    client.all(&format!("o=select(d.t.owner,{owner},{})", owner + 1));
                    client.all(&format!("p=select(o,d.t.k,{lower},{})", lower + 20));
                    client.ok(&format!("relational_update(d.t.v,p,{round})"));
                    rows.iter_mut()
                        .filter(|(k, _)| (lower..lower + 20).contains(k))
                        .for_each(|row| row.1 = round as i64);
                    if round % 2 == 0 {
                        client.all(&format!("q=select(o,d.t.k,{},null)", next - 2_500));
                        client.ok("relational_delete(d.t,q)");
                        rows.retain(|(k, _)| *k < next - 2_500);
                        assert!(matches!(client.fails("x=fetch(d.t.k,q)"), OperatorError::RowDeleted));
                        client.ok(&format!("o=select(d.t.owner,{owner},{})", owner + 1));
                    }
                    std::thread::sleep(Duration::from_millis(3));
                    client.all("k=fetch(d.t.k,o)\nv=fetch(d.t.v,o)");
                    let printed = client.all("print(k,v)");
                    let mut found: Vec<(i64, i64)> = printed
                        .lines()
                        .map(|line| {
                            let (k, v) = line.split_once(',').unwrap();
                            (k.parse().unwrap(), v.parse().unwrap())
                        })
                        .collect();
                    found.sort_unstable();
                    let mut expected = rows.clone();
                    expected.sort_unstable();
                    assert!(found == expected, "client {owner}, round {round}: {} and {}", found.len(), expected.len());
                    if round % 3 == 0 {
                        client.all("o=time()\np=time()\nq=time()");
                    }
                }
            });
        }
    });
    let txn = operators.database().begin();
    txn.catalog().table("d", "t").unwrap().verify(txn.snapshot());
}
