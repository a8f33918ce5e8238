//! Tables that SQL has made: NULLs and other numbers.

mod common;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions};
use common::{Client, in_memory};
use serac_column_language::OperatorError;
use serac_engine::catalog::definition::{
    CheckDefinition, ColumnDefinition, ColumnOrder, ForeignKeyDefinition, KeyDefinition, ReferentialAction,
    TableDefinition,
};
use serac_storage::{ColumnType, Value};
use std::sync::Arc;

#[test]
fn numbers_of_all_types_are_selected_fetched_and_aggregated() {
    let operators = in_memory();
    let types = [
        ("s", ColumnType::Int16),
        ("l", ColumnType::Int64),
        ("f", ColumnType::Float64),
        ("r", ColumnType::Float32),
        ("m", ColumnType::Decimal { precision: 10, scale: 2 }),
        ("w", ColumnType::Decimal { precision: 30, scale: 1 }),
        ("t", ColumnType::Utf8),
    ];
    let column = |(name, column_type): (&str, ColumnType)| ColumnDefinition::new(name, column_type);
    let mut txn = operators.database().begin();
    txn.create_table(TableDefinition::new("public", "n", types.map(column).into())).unwrap();
    let mut checked = TableDefinition::new("public", "c", vec![column(types[1])]);
    checked.checks.push(CheckDefinition { name: "c".into(), expression: "l > 0".into() });
    txn.create_table(checked).unwrap();
    let table = txn.catalog().table("public", "n").unwrap().clone();
    let all = |n: i64| {
        [
            Value::Int16(n as i16),
            Value::Int64(n << 40),
            Value::Float64(n as f64 + 0.5),
            Value::Float32(n as f32 + 0.25),
            Value::Int64(n * 100 + 25),
            Value::Int128(i128::from(n) * 10),
            Value::Bytes(b"x"),
        ]
    };
    for n in [1, 2, 3] {
        txn.insert(&table, &all(n)).unwrap();
    }
    txn.insert(&table, &[Value::Null; 7]).unwrap();
    txn.commit().unwrap();
    let mut client = Client::new(&operators);
    client.all("p=select(public.n.s,null,null)\nq=select(public.n.m,2,null)\nr=select(public.n.f,2,3)");
    client.all("t=select(public.n.w,2,3)\nu=select(public.n.r,null,2)");
    assert_eq!(client.all("print(p)\nprint(q)\nprint(r)\nprint(t)\nprint(u)"), "0\n1\n2\n1\n2\n1\n1\n0\n");
    client.all("a=sum(public.n.s)\nb=max(public.n.l)\nc=sum(public.n.f)\nd=sum(public.n.m)\ne=avg(public.n.m)\nf=min(public.n.w)");
    assert_eq!(client.all("print(a,b,c,d,e,f)"), format!("6,{},7.5,6.75,2.25,1.0\n", 3i64 << 40));
    assert_eq!(
        client.all("print(public.n.s,public.n.m,public.n.f)"),
        "1,1.25,1.5\n2,2.25,2.5\n3,3.25,3.5\nnull,null,null\n"
    );
    client.all("x=fetch(public.n.m,q)\ny=fetch(public.n.s,q)\nz=add(x,y)\nk,v=max(q,public.n.f)");
    assert_eq!(client.all("print(z)\nprint(k,v)"), "4.25\n6.25\n2,3.5\n");
    assert!(matches!(client.fails("select(public.n.t,1,2)"), OperatorError::WrongKind { .. }));
    assert!(matches!(client.fails("relational_insert(public.c,1)"), OperatorError::Refused(..)));
    client.fails("relational_insert(public.n,1,2,3,4,5,6,7)");
}

#[test]
fn rules_of_sql_are_kept() {
    let operators = in_memory();
    let column = |name: &str| ColumnDefinition { nullable: false, ..ColumnDefinition::new(name, ColumnType::Int32) };
    let mut txn = operators.database().begin();
    for name in ["parent", "other"] {
        let mut parent = TableDefinition::new("public", name, vec![column("id"), column("n")]);
        parent.keys.push(KeyDefinition {
            name: format!("{name}_key"),
            columns: vec![0],
            unique: true,
            primary: true,
            constraint: true,
            ..Default::default()
        });
        txn.create_table(parent).unwrap();
    }
    let mut child = TableDefinition::new("public", "child", vec![column("p"), column("o")]);
    for (at, parent, action) in [(0, "parent", ReferentialAction::NoAction), (1, "other", ReferentialAction::Cascade)] {
        child.foreign_keys.push(ForeignKeyDefinition {
            name: format!("child_{parent}"),
            columns: vec![at],
            parent_schema: "public".into(),
            parent_table: parent.into(),
            parent_columns: vec![0],
            on_delete: action,
            on_update: action,
        });
    }
    txn.create_table(child).unwrap();
    txn.commit().unwrap();
    let mut client = Client::new(&operators);
    client.all("relational_insert(public.parent,1,1)\nrelational_insert(public.other,1,1)");
    client.all("relational_insert(public.child,1,1)\np=select(public.parent.id,1,2)\no=select(public.other.id,1,2)");
    for line in [
        "relational_insert(public.parent,1,5)",
        "relational_insert(public.child,2,1)",
        "relational_delete(public.parent,p)",
        "relational_update(public.parent.id,p,7)",
    ] {
        assert!(matches!(client.fails(line), OperatorError::Engine(_)), "{line}");
    }
    for line in ["relational_delete(public.other,o)", "relational_update(public.other.id,o,7)"] {
        assert!(matches!(client.fails(line), OperatorError::Refused(..)), "{line}");
    }
    client
        .all("relational_update(public.other.n,o,7)\nc=select(public.child.p,1,2)\nrelational_delete(public.child,c)");
    client.ok("relational_delete(public.parent,p)");
    assert_eq!(client.all("print(public.other.id,public.other.n)\nprint(public.parent.id)"), "1,7\n");
}

#[test]
fn rows_of_a_table_without_columns_are_deleted() {
    let operators = in_memory();
    let mut txn = operators.database().begin();
    txn.create_table(TableDefinition::new("public", "none", Vec::new())).unwrap();
    let table = txn.catalog().table("public", "none").unwrap().clone();
    txn.insert(&table, &[]).unwrap();
    txn.commit().unwrap();
    let mut client = Client::new(&operators);
    client.all("create(tbl,\"t\",public,1)\ncreate(col,\"a\",public.t)\nrelational_insert(public.t,1)");
    client.all("p=select(public.t.a,1,2)\nrelational_delete(public.none,p)");
    assert!(matches!(client.fails("relational_delete(public.none,p)"), OperatorError::PositionOutOfRange(0, 0)));
}

#[test]
fn an_incomplete_table_takes_no_rows_of_anybody() {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.ok("create(tbl,\"t\",public,2)");
    let refused = |columns: usize| {
        let mut txn = operators.database().begin();
        let table = txn.catalog().table("public", "t").unwrap().clone();
        let row = vec![Value::Int32(1); columns];
        let error = txn.insert(&table, &row).unwrap_err();
        assert_eq!(error.sqlstate(), "55000", "{error}");
        let schema = table.data.schema().arrow();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let arrays = (0..columns).map(|_| Arc::new(Int32Array::from(vec![1])) as ArrayRef).collect();
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options).unwrap();
        let error = txn.insert_batch(&table, &batch).unwrap_err();
        assert_eq!(error.sqlstate(), "55000", "{error}");
    };
    refused(0);
    client.ok("create(col,\"a\",public.t)");
    refused(1);
    client.all("create(col,\"b\",public.t)\nrelational_insert(public.t,1,2)");
    assert_eq!(client.all("print(public.t.a,public.t.b)"), "1,2\n");
}

/// Bounds at and beyond the ends of each integer type, on columns with NULLs, through ascending and
/// descending indexes: alone and in a batch, by each heuristic, as a scan gives them.
#[test]
fn all_ways_to_select_agree_at_the_ends_of_integers() {
    let operators = in_memory();
    let mut txn = operators.database().begin();
    let mut tables = Vec::new();
    for (column_type, min, max) in [
        (ColumnType::Int16, i64::from(i16::MIN), i64::from(i16::MAX)),
        (ColumnType::Int32, i64::from(i32::MIN), i64::from(i32::MAX)),
        (ColumnType::Int64, i64::MIN, i64::MAX),
    ] {
        for order in [ColumnOrder::default(), ColumnOrder { descending: true, nulls_first: true }] {
            let name = format!("t{}", tables.len());
            let column = ColumnDefinition::new("a", column_type);
            let mut definition = TableDefinition::new("public", &name, vec![column]);
            let key = KeyDefinition {
                name: format!("{name}_key"),
                columns: vec![0],
                orders: vec![order],
                ..Default::default()
            };
            definition.keys.push(key);
            txn.create_table(definition).unwrap();
            let table = txn.catalog().table("public", &name).unwrap().clone();
            for number in [Some(min), None, Some(-1), Some(0), Some(1), None, Some(max), Some(max)] {
                let value = number.map_or(Value::Null, |number| match column_type {
                    ColumnType::Int16 => Value::Int16(number as i16),
                    ColumnType::Int32 => Value::Int32(number as i32),
                    _ => Value::Int64(number),
                });
                txn.insert(&table, &[value]).unwrap();
            }
            tables.push(name);
        }
    }
    txn.commit().unwrap();
    let numbers = [i64::MIN, i64::MIN + 1, -2_147_483_649, -2_147_483_648, -32_769, -32_768, -1, 0, 1, 2, 32_767];
    let numbers = numbers.into_iter().chain([32_768, 2_147_483_647, 2_147_483_648, i64::MAX]);
    let bounds: Vec<String> = std::iter::once("null".into()).chain(numbers.map(|n| n.to_string())).collect();
    let pairs: Vec<(&String, &String)> = bounds.iter().flat_map(|l| bounds.iter().map(move |u| (l, u))).collect();
    for table in tables {
        let mut client = Client::new(&operators);
        client.ok("set(access,scan)");
        let select = |name: &str, (l, u): (&String, &String)| format!("{name}=select(public.{table}.a,{l},{u})");
        let mut wanted = Vec::new();
        for pair in &pairs {
            client.ok(&select("p", *pair));
            wanted.push(client.all("print(p)"));
        }
        for access in ["scan", "index", "auto"] {
            for heuristic in [None, Some("default"), Some("breadth_multiselect"), Some("smart")] {
                client.all(&format!("set(access,{access})\nset(threads,2)"));
                if let Some(heuristic) = heuristic {
                    client.all(&format!("set(batch_heuristic,{heuristic})\nbatch_queries()"));
                }
                for (at, pair) in pairs.iter().enumerate() {
                    client.ok(&select(&format!("q{at}"), *pair));
                }
                if heuristic.is_some() {
                    client.ok("batch_execute()");
                }
                for (at, wanted) in wanted.iter().enumerate() {
                    let found = client.all(&format!("print(q{at})"));
                    assert_eq!(&found, wanted, "{table} {access} {heuristic:?} {:?}", pairs[at]);
                }
            }
        }
    }
}
