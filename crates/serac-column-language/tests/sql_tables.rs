//! Tables that SQL has made: NULLs and other numbers.

mod common;

use common::{Client, in_memory};
use serac_column_language::OperatorError;
use serac_engine::definition::{CheckDefinition, ColumnDefinition, TableDefinition};
use serac_storage::{ColumnType, Value};

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
    let column = |(name, column_type): (&str, ColumnType)| ColumnDefinition {
        name: name.into(),
        sql_type: column_type.into(),
        nullable: true,
        default: None,
        always_generated: false,
        generation: None,
        hidden: false,
    };
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
