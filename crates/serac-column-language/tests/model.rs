//! Random statements against rows in a vector.

mod common;

use common::{Client, in_memory};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Insert(i32, i32),
    Load(Vec<(i32, i32)>),
    /// Select on a column, keep the positions.
    Select(usize, Option<i32>, Option<i32>),
    /// Narrow the kept positions.
    Narrow(usize, Option<i32>, Option<i32>),
    Update(usize, i32),
    Delete,
    Index(usize, bool),
    Freeze,
}

fn value() -> impl Strategy<Value = i32> {
    prop_oneof![8 => -6i32..6, 1 => Just(i32::MAX), 1 => Just(i32::MIN)]
}

fn step() -> impl Strategy<Value = Step> {
    let bound = || prop::option::weighted(0.8, value());
    prop_oneof![
        6 => (value(), value()).prop_map(|(a, b)| Step::Insert(a, b)),
        2 => prop::collection::vec((value(), value()), 0..20).prop_map(Step::Load),
        6 => (0usize..2, bound(), bound()).prop_map(|(c, l, u)| Step::Select(c, l, u)),
        4 => (0usize..2, bound(), bound()).prop_map(|(c, l, u)| Step::Narrow(c, l, u)),
        3 => (0usize..2, value()).prop_map(|(c, v)| Step::Update(c, v)),
        2 => Just(Step::Delete),
        1 => (0usize..2, any::<bool>()).prop_map(|(c, f)| Step::Index(c, f)),
        1 => Just(Step::Freeze),
    ]
}

fn shown(bound: Option<i32>) -> String {
    bound.map_or("null".into(), |bound| bound.to_string())
}

fn within(value: i32, lower: Option<i32>, upper: Option<i32>) -> bool {
    lower.is_none_or(|lower| lower <= value) && upper.is_none_or(|upper| value < upper)
}

fn lines(values: impl Iterator<Item = i32>) -> String {
    values.map(|value| format!("{value}\n")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn statements_do_what_the_model_does(steps in prop::collection::vec(step(), 1..60), batched: bool, access in 0usize..3) {
        let operators = in_memory();
        let mut client = Client::new(&operators);
        client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
        client.ok(["set(access,scan)", "set(access,index)", "set(access,auto)"][access]);
        const COLUMNS: [&str; 2] = ["d.t.a", "d.t.b"];
        // A row that was deleted is none. No clustered index: the order is that of insertion.
        let mut rows: Vec<Option<[i32; 2]>> = Vec::new();
        let mut kept: Vec<usize> = Vec::new();
        client.ok("p=select(d.t.a,null,null)");
        let mut indexes = Vec::new();
        for step in steps {
            match step {
                Step::Insert(a, b) => {
                    client.ok(&format!("relational_insert(d.t,{a},{b})"));
                    rows.push(Some([a, b]));
                }
                Step::Load(added) => {
                    let mut file = String::from("d.t.b,d.t.a\n");
                    added.iter().for_each(|(a, b)| file.push_str(&format!("{b},{a}\n")));
                    client.load(file.as_bytes(), 11).unwrap();
                    rows.extend(added.into_iter().map(|(a, b)| Some([a, b])));
                }
                Step::Select(column, lower, upper) => {
                    let select = format!("p=select({},{},{})", COLUMNS[column], shown(lower), shown(upper));
                    if batched {
                        client.all(&format!("batch_queries()\n{select}\nbatch_execute()"));
                    } else {
                        client.ok(&select);
                    }
                    let qualifies = |row: &usize| rows[*row].is_some_and(|row| within(row[column], lower, upper));
                    kept = (0..rows.len()).filter(qualifies).collect();
                }
                Step::Narrow(column, lower, upper) => {
                    let narrow = format!("p=select(p,{},{},{})", COLUMNS[column], shown(lower), shown(upper));
                    if kept.iter().any(|row| rows[*row].is_none()) {
                        client.fails(&narrow);
                    } else {
                        client.ok(&narrow);
                        kept.retain(|row| rows[*row].is_some_and(|row| within(row[column], lower, upper)));
                    }
                }
                Step::Update(column, value) => {
                    let update = format!("relational_update({},p,{value})", COLUMNS[column]);
                    if kept.iter().any(|row| rows[*row].is_none()) {
                        client.fails(&update);
                    } else {
                        client.ok(&update);
                        kept.iter().for_each(|row| rows[*row].as_mut().unwrap()[column] = value);
                    }
                }
                Step::Delete => {
                    if kept.iter().any(|row| rows[*row].is_none()) {
                        client.fails("relational_delete(d.t,p)");
                    } else {
                        client.ok("relational_delete(d.t,p)");
                        kept.iter().for_each(|row| rows[*row] = None);
                    }
                }
                Step::Index(column, btree) => {
                    let create = format!("create(idx,{},{})", COLUMNS[column], if btree { "btree" } else { "sorted" });
                    if indexes.contains(&(column, btree)) {
                        client.fails(&create);
                    } else {
                        client.ok(&create);
                        indexes.push((column, btree));
                    }
                }
                Step::Freeze => {
                    let table = operators.database().catalog().table("d", "t").unwrap().clone();
                    operators.database().storage().freeze_table(&table.data, Duration::from_millis(50));
                }
            }
            // While there are positions no row moves, so the order stays that of insertion, also
            // where rows went.
            for (at, column) in COLUMNS.iter().enumerate() {
                let printed = client.all(&format!("print({column})"));
                prop_assert_eq!(printed, lines(rows.iter().flatten().map(|row| row[at])));
                let aggregates = client.all(&format!("n=min({column})\nx=max({column})\ns=sum({column})\nprint(n,x,s)"));
                let all = || rows.iter().flatten().map(|row| i64::from(row[at]));
                let (min, max) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
                prop_assert_eq!(aggregates, format!("{min},{max},{}\n", all().sum::<i64>()));
                if kept.iter().all(|row| rows[*row].is_some()) {
                    let fetched = client.all(&format!("f=fetch({column},p)\nprint(f)"));
                    prop_assert_eq!(fetched, lines(kept.iter().map(|row| rows[*row].unwrap()[at])));
                } else {
                    client.fails(&format!("f=fetch({column},p)"));
                }
            }
            if kept.iter().all(|row| rows[*row].is_some()) {
                let rank = |row: usize| rows[..row].iter().flatten().count() as i32;
                prop_assert_eq!(client.all("print(p)"), lines(kept.iter().map(|row| rank(*row))));
            }
        }
        let txn = operators.database().begin();
        txn.catalog().table("d", "t").unwrap().verify(txn.snapshot());
    }
}

/// As above, for what a clustered table promises: a bag of rows, and positions of rows. With
/// restarts.
#[derive(Clone, Debug)]
enum ClusteredStep {
    Insert(i32, i32),
    Load(Vec<(i32, i32)>),
    Update(usize, i32, usize, i32),
    Delete(usize, i32),
    Index(usize),
    Reopen,
    Freeze,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_clustered_table_is_the_bag_of_its_rows(steps in prop::collection::vec(prop_oneof![
        4 => (value(), value()).prop_map(|(a, b)| ClusteredStep::Insert(a, b)),
        3 => prop::collection::vec((value(), value()), 0..40).prop_map(ClusteredStep::Load),
        4 => (0usize..2, value(), 0usize..2, value()).prop_map(|(c, v, d, w)| ClusteredStep::Update(c, v, d, w)),
        2 => (0usize..2, value()).prop_map(|(c, v)| ClusteredStep::Delete(c, v)),
        1 => (0usize..2).prop_map(ClusteredStep::Index),
        1 => Just(ClusteredStep::Reopen),
        1 => Just(ClusteredStep::Freeze),
    ], 1..40), access in 0usize..3) {
        const ACCESS: [&str; 3] = ["set(access,scan)", "set(access,index)", "set(access,auto)"];
        const COLUMNS: [&str; 2] = ["d.t.a", "d.t.b"];
        let folder = tempfile::tempdir().unwrap();
        let mut operators = common::open(folder.path());
        let mut client = Client::new(&operators);
        client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)");
        client.ok(ACCESS[access]);
        let mut rows: Vec<[i32; 2]> = Vec::new();
        let mut indexes = Vec::new();
        let select = |column: usize, value: i32| {
            format!("p=select({},{value},{})", COLUMNS[column], i64::from(value) + 1)
        };
        for step in steps {
            match step {
                ClusteredStep::Insert(a, b) => {
                    client.ok(&format!("relational_insert(d.t,{a},{b})"));
                    rows.push([a, b]);
                }
                ClusteredStep::Load(added) => {
                    let mut file = String::from("d.t.a,d.t.b\n");
                    added.iter().for_each(|(a, b)| file.push_str(&format!("{a},{b}\n")));
                    client.load(file.as_bytes(), 13).unwrap();
                    rows.extend(added.into_iter().map(|(a, b)| [a, b]));
                }
                ClusteredStep::Update(column, wanted, changed, value) => {
                    client.ok(&select(column, wanted));
                    client.ok(&format!("relational_update({},p,{value})", COLUMNS[changed]));
                    rows.iter_mut().filter(|row| row[column] == wanted).for_each(|row| row[changed] = value);
                }
                ClusteredStep::Delete(column, wanted) => {
                    client.ok(&select(column, wanted));
                    client.ok("relational_delete(d.t,p)");
                    rows.retain(|row| row[column] != wanted);
                }
                ClusteredStep::Index(column) => {
                    let create = format!("create(idx,{},sorted,clustered)", COLUMNS[column]);
                    if indexes.contains(&column) {
                        client.fails(&create);
                    } else {
                        client.ok(&create);
                        indexes.push(column);
                    }
                }
                ClusteredStep::Reopen => {
                    drop(client);
                    operators.database().close().unwrap();
                    drop(operators);
                    operators = common::open(folder.path());
                    client = Client::new(&operators);
                    client.ok(ACCESS[access]);
                }
                ClusteredStep::Freeze => {
                    let table = operators.database().catalog().table("d", "t").unwrap().clone();
                    operators.database().storage().freeze_table(&table.data, Duration::from_millis(50));
                }
            }
            let bag = |printed: &str| {
                let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            let expected = |wanted: &dyn Fn(&[i32; 2]) -> bool| {
                let mut lines: Vec<String> =
                    rows.iter().filter(|row| wanted(row)).map(|[a, b]| format!("{a},{b}")).collect();
                lines.sort();
                lines
            };
            prop_assert_eq!(bag(&client.all("print(d.t.a,d.t.b)")), expected(&|_| true));
            for (column, name) in COLUMNS.iter().enumerate() {
                for (lower, upper) in [(-2, 3), (i32::MIN, 0), (5, i32::MAX)] {
                    client.all(&format!("p=select({name},{lower},{upper})\nx=fetch(d.t.a,p)\ny=fetch(d.t.b,p)"));
                    let found = bag(&client.all("print(x,y)"));
                    prop_assert_eq!(found, expected(&|row| lower <= row[column] && row[column] < upper));
                }
            }
        }
        let txn = operators.database().begin();
        txn.catalog().table("d", "t").unwrap().verify(txn.snapshot());
    }
}
