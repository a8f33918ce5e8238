//! Loads: the same rows however the file is cut, and all or nothing.

mod common;

use common::{Client, in_memory, open};
use proptest::prelude::*;
use serac_column_language::OperatorError;

const TABLE: &str = "create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)";

#[test]
fn a_file_may_be_cut_anywhere() {
    let file = b" d.t.b ,\td.t.a\r\n\r\n1,2\n 3\t,-4 \r\n\n-2147483648,2147483647";
    for chunk in 1..=file.len() {
        let operators = in_memory();
        let mut client = Client::new(&operators);
        client.all(TABLE);
        client.load(file, chunk).unwrap();
        assert_eq!(client.all("print(d.t.a,d.t.b)"), "2,1\n-4,3\n2147483647,-2147483648\n", "chunks of {chunk}");
    }
}

#[test]
fn a_second_load_adds_and_a_header_alone_loads_nothing() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all(TABLE);
    for file in ["d.t.a,d.t.b\n1,2\n", "d.t.a,d.t.b", "d.t.a,d.t.b\n3,4\n"] {
        client.load(file.as_bytes(), 5).unwrap();
    }
    assert_eq!(client.all("print(d.t.a,d.t.b)"), "1,2\n3,4\n");
}

#[test]
fn a_file_may_begin_with_a_mark_of_its_byte_order() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all(TABLE);
    for chunk in [1, 2, 64] {
        client.load("\u{feff}d.t.b,d.t.a\r\n2,1\r\n".as_bytes(), chunk).unwrap();
    }
    assert_eq!(client.all("print(d.t.a,d.t.b)"), "1,2\n1,2\n1,2\n");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_nothing_is_loaded() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all(TABLE);
    client.all("create(tbl,\"half\",d,2)\ncreate(col,\"a\",d.half)");
    let long = format!("d.t.a,d.t.b\n{}1,2\n", " ".repeat((1 << 20) + 1));
    for (file, line, field) in [
        ("d.t.a,d.t.b\n1,2\n3,x\n", 3, 2),
        ("d.t.a,d.t.b\n1,2,3\n", 2, 3),
        ("d.t.a,d.t.b\n\n1\n", 3, 2),
        ("d.t.a,d.t.b\n1,\n", 2, 2),
        ("d.t.a,d.t.b\n,1\n", 2, 1),
        ("d.t.a,d.t.b\n1,2,\n", 2, 3),
        ("d.t.a,d.t.b\n1 2,3\n", 2, 1),
        ("d.t.a,d.t.b\n1,2147483648\n", 2, 2),
        ("d.t.a,d.t.b\n-2147483649,1\n", 2, 1),
        ("d.t.a,d.t.b\n99999999999999999999999,1\n", 2, 1),
        ("d.t.a,d.t.b\n-,1\n", 2, 1),
        ("d.t.a,d.t.b\n+1,1\n", 2, 1),
        ("d.t.a,d.t.b\n\"1\",1\n", 2, 1),
        ("d.t.a,d.t.b\n1.5,1\n", 2, 1),
        ("d.t.a,d.t.b\n1,2\n\u{fffd},1\n", 3, 1),
        (&long, 2, 1),
    ] {
        for chunk in [1, 3, 1 << 16] {
            if file.len() > 1_000 && chunk < 1_000 {
                continue;
            }
            let error = client.load(file.as_bytes(), chunk).unwrap_err();
            match &error.reports()[0].error {
                OperatorError::BadRow { line: l, field: f, .. } => assert_eq!((*l, *f), (line, field), "{error}"),
                other => panic!("{file:?}: {other}"),
            }
        }
    }
    for file in [
        "",
        "\n\n",
        "1,2\n",
        "d.t.a\n1\n",
        "d.t.a,d.t.a\n",
        "d.t.a,d.t.c\n",
        "d.t.a,e.t.b\n",
        "d.u.a,d.u.b\n",
        "a,b\n",
        "d.t.a,d.t.b,\n",
    ] {
        let error = client.load(file.as_bytes(), 4).unwrap_err();
        assert!(matches!(error.reports()[0].error, OperatorError::BadHeader { .. }), "{file:?}: {error}");
    }
    let error = client.load(b"d.half.a\n1\n", 4).unwrap_err();
    assert!(matches!(error.reports()[0].error, OperatorError::TableIncomplete { .. }));
    assert_eq!(client.all("print(d.t.a)"), "");
    for (row, problem) in [
        ("1,2,", "there are more than 2 fields"),
        ("-,1", "the field is no integer"),
        ("1,-", "the field is no integer"),
        (",1", "the field is empty"),
        ("\u{feff}1,2", "the field is no integer"),
    ] {
        let error = client.load(format!("d.t.a,d.t.b\n{row}\n").as_bytes(), 64).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{row:?}: {error}");
    }
    // A load that is given up leaves nothing, either.
    let mut load = client.context.begin_load(1, "x");
    load.push(b"d.t.a,d.t.b\n1,2\n").unwrap();
    load.abort();
    assert_eq!(client.all("print(d.t.a)"), "");
}

#[test]
fn a_table_that_is_changed_beside_a_load_refuses_it() {
    for change in ["drop", "truncate", "drop_column", "cluster", "index"] {
        let operators = in_memory();
        let mut client = Client::new(&operators);
        client.all(TABLE);
        let mut load = client.context.begin_load(1, "x");
        load.push(b"d.t.a,d.t.b\n1,2\n").unwrap();
        let mut txn = operators.database().begin();
        match change {
            "drop" => txn.drop_table("d", "t", false).unwrap(),
            "truncate" => drop(txn.truncate(&[("d".into(), "t".into())], false, false).unwrap()),
            "drop_column" => txn.drop_column("d", "t", "a", false).unwrap(),
            "cluster" => txn.cluster("d", "t", vec![(1, Default::default())]).unwrap(),
            _ => {
                let key = serac_engine::catalog::definition::KeyDefinition {
                    name: "k".into(),
                    columns: vec![0],
                    ..Default::default()
                };
                txn.create_index("d", "t", key).unwrap();
            }
        }
        txn.commit().unwrap().wait().unwrap();
        load.push(b"3,4\n").unwrap();
        let error = load.finish().unwrap_err();
        assert!(matches!(error.reports()[0].error, OperatorError::Conflict(_)), "{change}: {error}");
        if change != "drop" {
            assert_eq!(client.all("print(d.t.b)"), "", "{change}");
            let txn = operators.database().begin();
            txn.catalog().table("d", "t").unwrap().verify(txn.snapshot());
        }
    }
}

#[test]
fn long_files_keep_their_order_and_fill_all_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let rows = 150_000;
    let mut file = String::from("d.t.a,d.t.b\n");
    (0..rows).for_each(|row| file.push_str(&format!("{},{}\n", row, (row * 7_919) % rows)));
    let mut operators = open(folder.path());
    let mut client = Client::new(&operators);
    client.all(TABLE);
    client.all("create(idx,d.t.b,btree,unclustered)");
    client.load(b"d.t.a,d.t.b\n-2,0\n-1,0\n", 9).unwrap();
    client.load(file.as_bytes(), 100_000).unwrap();
    client.all("relational_insert(d.t,150000,-1)\nrelational_insert(d.t,150001,-1)");
    client.load(b"d.t.a,d.t.b\n150002,-1\n", 9).unwrap();
    for restart in [false, true] {
        if restart {
            drop(client);
            operators.database().close().unwrap();
            operators = open(folder.path());
            client = Client::new(&operators);
            client.ok("relational_insert(d.t,150003,-1)");
        }
        let printed = client.all("print(d.t.a)");
        let last = if restart { 150_004 } else { 150_003 };
        assert!(printed.lines().map(|line| line.parse::<i32>().unwrap()).eq(-2..last), "restarted: {restart}");
        for access in ["scan", "index"] {
            client.ok(&format!("set(access,{access})"));
            assert_eq!(
                client.all("p=select(d.t.b,7919,7921)\nv=fetch(d.t.a,p)\nprint(v)"),
                "1\n101329\n"
                    .replace("101329", &((0..rows).find(|row| (row * 7_919) % rows == 7_920).unwrap()).to_string()),
                "{access}"
            );
        }
    }
}

#[test]
fn a_load_sorts_the_rows_of_a_clustered_table() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all(TABLE);
    client.ok("create(idx,d.t.a,sorted,clustered)");
    let mut file = String::from("d.t.a,d.t.b\n");
    (0..100_000u32).for_each(|row| file.push_str(&format!("{},{row}\n", row.wrapping_mul(2_654_435_761) % 1_000_003)));
    client.load(file.as_bytes(), 1 << 16).unwrap();
    let printed = client.all("print(d.t.a)");
    let values: Vec<u32> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), 100_000);
    assert!(values.is_sorted());
    // A range of the key is a range of rows.
    client.all("set(access,index)\np=select(d.t.a,1000,30000)");
    let Some(serac_column_language::Variable::Positions(positions)) = client.context.variable("p") else { panic!() };
    assert_eq!(positions.selection.representation(), "range");
    assert!(operators.memory().used() > 0);
}

/// Rows with equal keys stay in the order of insertion: of a load, and of rows that are there when
/// the index is made.
#[test]
fn equal_keys_of_a_clustered_table_keep_their_order() {
    for loaded_first in [false, true] {
        let operators = in_memory();
        let mut client = Client::new(&operators);
        client.all(TABLE);
        let index = "create(idx,d.t.a,sorted,clustered)";
        if !loaded_first {
            client.ok(index);
        }
        let mut file = String::from("d.t.a,d.t.b\n");
        (0..70_000u32).for_each(|row| file.push_str(&format!("{},{row}\n", row * 7 % 10)));
        client.load(file.as_bytes(), 1 << 16).unwrap();
        if loaded_first {
            client.ok(index);
        }
        let mut expected: Vec<(u32, u32)> = (0..70_000).map(|row| (row * 7 % 10, row)).collect();
        expected.sort();
        let printed = client.all("print(d.t.a,d.t.b)");
        assert!(printed.lines().eq(expected.iter().map(|(a, b)| format!("{a},{b}"))), "loaded first: {loaded_first}");
    }
}

/// Index builds and clustering end when the statement is cancelled, or when there is no memory for
/// them, and leave nothing.
#[test]
fn an_index_build_can_be_cancelled_and_is_bounded() {
    let database = std::sync::Arc::new(serac_engine::Database::in_memory().unwrap());
    let operators = serac_column_language::Operators::new(database.clone());
    let mut client = Client::new(&operators);
    client.all(TABLE);
    let mut file = String::from("d.t.a,d.t.b\n");
    (0..100_000u32).for_each(|row| file.push_str(&format!("{},{row}\n", row * 7 % 1_000)));
    client.load(file.as_bytes(), 1 << 16).unwrap();
    let few = serac_column_language::Operators::with(database, 200_000, Default::default());
    let mut poor = Client::new(&few);
    for index in ["create(idx,d.t.a,btree,unclustered)", "create(idx,d.t.a,sorted,clustered)"] {
        client.context.cancel().store(true, std::sync::atomic::Ordering::Relaxed);
        let error = client.fails(index);
        assert!(matches!(error, OperatorError::Cancelled), "{error}");
        client.context.cancel().store(false, std::sync::atomic::Ordering::Relaxed);
        let error = poor.fails(index);
        assert!(matches!(error, OperatorError::OutOfMemory { limit: 200_000, .. }), "{error}");
        assert_eq!((few.memory().used(), operators.memory().used()), (0, 0));
        client.ok(index);
        assert_eq!(operators.memory().used(), 0);
    }
    client.all("p=select(d.t.a,5,6)\nv=fetch(d.t.a,p)\ns=sum(v)");
    assert_eq!(client.all("print(s)"), "500\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Blanks before each line send it the careful way, which must find what the short way finds:
    /// the same rows, or the same place of the first mistake.
    #[test]
    fn the_short_way_and_the_careful_way_agree(
        rows in prop::collection::vec((any::<i32>(), -20i64..20, 0usize..12), 0..60),
        wrong in prop::option::weighted(0.5, (0usize..600, prop::sample::select(b"x,- 9\n\r\"".to_vec()))),
        chunk in 1usize..80,
        unix in any::<bool>(),
    ) {
        let mut lines = Vec::new();
        for (a, b, zeros) in rows {
            lines.push(format!("{a},{}{}{}", if b < 0 { "-" } else { "" }, "0".repeat(zeros), b.abs()).into_bytes());
        }
        let end: &[u8] = if unix { b"\n" } else { b"\r\n" };
        let mut body = lines.join(end);
        if let Some((at, byte)) = wrong
            && at < body.len()
        {
            body[at] = byte;
        }
        let short = [b"d.t.a,d.t.b\n".to_vec(), body.clone()].concat();
        let mut careful = b" d.t.a,d.t.b\n".to_vec();
        for line in body.split(|byte| *byte == b'\n') {
            careful.extend_from_slice(b" ");
            careful.extend_from_slice(line);
            careful.push(b'\n');
        }
        let load = |file: &[u8]| {
            let operators = in_memory();
            let mut client = Client::new(&operators);
            client.all(TABLE);
            match client.load(file, chunk) {
                Ok(()) => client.all("print(d.t.a,d.t.b)"),
                Err(error) => error.to_string(),
            }
        };
        prop_assert_eq!(load(&short), load(&careful));
    }
}

#[test]
fn threads_share_a_chunk_and_stop_at_the_first_mistake() {
    let operators = in_memory();
    let rows = 120_000;
    let file = |wrong: Option<usize>, blank: usize| {
        let mut file = String::from("d.t.b,d.t.a\n");
        for row in 0..rows {
            let blank = if row % blank == 1 { " " } else { "" };
            let wrong = if wrong == Some(row) { "x" } else { "" };
            file.push_str(&format!("{blank}{},{row}{wrong}\n", row * 3));
        }
        file
    };
    let mut client = Client::new(&operators);
    client.all(TABLE);
    for threads in [1, 2, 5] {
        client.ok(&format!("set(threads,{threads})"));
        for wrong in [5, 60_000, rows - 1] {
            for blank in [usize::MAX, 40_000] {
                let error = client.load(file(Some(wrong), blank).as_bytes(), 1 << 20).unwrap_err();
                match &error.reports()[0].error {
                    OperatorError::BadRow { line, field: 2, .. } => assert_eq!(*line, wrong as u64 + 2),
                    other => panic!("{other}"),
                }
            }
        }
    }
    for (threads, blank) in [(2, usize::MAX), (3, 1_000)] {
        client.ok(&format!("set(threads,{threads})"));
        client.load(file(None, blank).as_bytes(), 1 << 20).unwrap();
    }
    let printed = client.all("print(d.t.a,d.t.b)");
    assert!(printed.lines().eq((0..2 * rows).map(|row| format!("{},{}", row % rows, row % rows * 3))));
}
