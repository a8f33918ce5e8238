//! Random batches, by each heuristic, against the same statements one by one.

mod common;

use common::{Client, in_memory};
use proptest::prelude::*;
use serac_column_language::parse::parse;
use serac_column_language::{Context, Operators};
use std::collections::HashMap;

const POSITIONS: [&str; 4] = ["p0", "p1", "p2", "p3"];
const VALUES: [&str; 4] = ["w0", "w1", "w2", "w3"];
const SCALARS: [&str; 2] = ["s0", "s1"];
const COLUMNS: [&str; 3] = ["d.t.a", "d.t.b", "d.u.c"];

fn statement() -> impl Strategy<Value = String> {
    let position = || prop_oneof![30 => prop::sample::select(POSITIONS.to_vec()), 1 => Just("w0"), 1 => Just("gone")];
    let value = || prop_oneof![30 => prop::sample::select(VALUES.to_vec()), 1 => Just("p0"), 1 => Just("s0")];
    let column = || prop_oneof![30 => prop::sample::select(COLUMNS.to_vec()), 1 => Just("d.t.none")];
    let source = || prop_oneof![2 => column(), 1 => value()];
    let target = || prop::sample::select(POSITIONS.to_vec());
    let result = || prop::sample::select(VALUES.to_vec());
    let scalar = || prop::sample::select(SCALARS.to_vec());
    let bound = || prop_oneof![1 => Just("null".to_owned()), 5 => (-30i64..60).prop_map(|bound| bound.to_string())];
    let aggregate = || prop::sample::select(vec!["min", "max", "sum", "avg"]);
    prop_oneof![
        8 => (target(), source(), bound(), bound()).prop_map(|(p, x, l, h)| format!("{p}=select({x},{l},{h})")),
        2 => (target(), position(), source(), bound(), bound())
            .prop_map(|(p, q, x, l, h)| format!("{p}=select({q},{x},{l},{h})")),
        8 => (result(), source(), position()).prop_map(|(w, x, p)| format!("{w}=fetch({x},{p})")),
        6 => (scalar(), aggregate(), source()).prop_map(|(s, a, x)| format!("{s}={a}({x})")),
        1 => (target(), scalar(), source()).prop_map(|(p, s, x)| format!("{p},{s}=max(null,{x})")),
        2 => (result(), any::<bool>(), source(), source())
            .prop_map(|(w, add, x, y)| format!("{w}={}({x},{y})", if add { "add" } else { "sub" })),
        1 => (value(), position(), value(), position()).prop_map(|(v, p, w, q)| format!("p0,p1=join({v},{p},{w},{q},hash)")),
    ]
}

fn prepare(operators: &Operators) -> Context {
    let mut context = operators.context();
    let mut out = String::new();
    for line in [
        "p0=select(d.t.a,0,20)",
        "p1=select(d.t.b,5,40)",
        "p2=select(d.u.c,null,9)",
        "w0=fetch(d.t.a,p0)",
        "w1=fetch(d.t.b,p0)",
    ] {
        context.execute(1, line, &mut out).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    context
}

fn dump(context: &mut Context) -> Vec<String> {
    let mut texts = Vec::new();
    for name in POSITIONS.iter().chain(&VALUES).chain(&SCALARS) {
        let mut text = format!("{name}:");
        if let Err(error) = context.execute(1, &format!("print({name})"), &mut text) {
            text.push_str(&error.to_string());
        }
        texts.push(text);
    }
    texts
}

/// What failed, and what variables hold, after the statements one by one; a name whose newest
/// assignment failed is missing.
fn one_by_one(operators: &Operators, statements: &[String]) -> (Vec<String>, Vec<String>) {
    let mut context = prepare(operators);
    let (mut failed, mut reports) = (HashMap::<String, u64>::new(), Vec::new());
    for (statement, line) in statements.iter().zip(1..) {
        let parsed = parse(statement).unwrap().unwrap();
        let missing = parsed.inputs().into_iter().find_map(|name| match failed.get(name) {
            Some(line) => Some(format!("\"{name}\" is missing, because line {line} failed")),
            None => context.variable(name).is_none().then(|| format!("unknown variable \"{name}\"")),
        });
        let outcome = match missing {
            Some(missing) => Err(format!("line {line}: {missing}")),
            None => context.execute(line, statement, &mut String::new()).map(drop).map_err(|error| error.to_string()),
        };
        match outcome {
            Ok(()) => parsed.outputs().iter().for_each(|name| {
                failed.remove(name);
            }),
            Err(report) => {
                reports.push(report);
                failed.extend(parsed.outputs().iter().map(|name| (name.clone(), line)));
            }
        }
    }
    (reports, dump(&mut context))
}

fn as_batch(operators: &Operators, statements: &[String], settings: &[String]) -> (Vec<String>, Vec<String>) {
    let mut context = prepare(operators);
    let mut out = String::new();
    for setting in settings {
        context.execute(1, setting, &mut out).unwrap();
    }
    context.execute(1, "batch_queries()", &mut out).unwrap();
    for (statement, line) in statements.iter().zip(1..) {
        context.execute(line, statement, &mut out).unwrap();
    }
    let reports = match context.execute(0, "batch_execute()", &mut out) {
        Ok(_) => Vec::new(),
        Err(error) => error.reports().iter().map(ToString::to_string).collect(),
    };
    (reports, dump(&mut context))
}

fn settings() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for heuristic in ["default", "breadth", "breadth_multiselect", "smart"] {
        for (threads, multiselect, inverse, selects) in
            [(1, "auto", "auto", 32), (2, "no_block", "on", 1), (3, "block", "off", 2)]
        {
            all.push(vec![
                format!("set(batch_heuristic,{heuristic})"),
                format!("set(threads,{threads})"),
                format!("set(multiselect,{multiselect})"),
                format!("set(inverse,{inverse})"),
                format!("set(selects_per_task,{selects})"),
                format!("set(chunk_kib,{threads})"),
            ]);
        }
    }
    all.last_mut().unwrap().push("single_core()".into());
    all
}

fn tables(rows: usize, indexed: bool) -> Operators {
    let operators = in_memory();
    let mut client = Client::new(&operators);
    client.all("create(db,\"d\")\ncreate(tbl,\"t\",d,2)\ncreate(col,\"a\",d.t)\ncreate(col,\"b\",d.t)\ncreate(tbl,\"u\",d,1)\ncreate(col,\"c\",d.u)");
    if indexed {
        client.ok("create(idx,d.t.a,btree,unclustered)");
    }
    let mut file = String::from("d.t.a,d.t.b\n");
    (0..rows).for_each(|i| file.push_str(&format!("{},{}\n", i * 7919 % 53, (i * 31) % 47)));
    client.load(file.as_bytes(), 4096).unwrap();
    let mut file = String::from("d.u.c\n");
    (0..rows / 2 + 3).for_each(|i| file.push_str(&format!("{}\n", i % 19)));
    client.load(file.as_bytes(), 4096).unwrap();
    operators
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_heuristic_gives_what_statements_give_one_by_one(
        statements in prop::collection::vec(statement(), 0..40), rows in prop_oneof![Just(0), 1usize..300], indexed: bool,
    ) {
        let operators = tables(rows, indexed);
        let expected = one_by_one(&operators, &statements);
        for settings in settings() {
            let found = as_batch(&operators, &statements, &settings);
            prop_assert_eq!(&found, &expected, "{:?}", settings);
        }
    }
}

/// Several blocks, and more selects than are classified together.
#[test]
fn many_selects_on_a_long_column() {
    let operators = tables(150_000, false);
    let mut statements = Vec::new();
    for i in 0..150 {
        statements.push(format!(
            "p{}=select(d.t.{},{},{})",
            i % 4,
            if i % 5 == 0 { "b" } else { "a" },
            i % 50,
            i % 50 + 1 + i / 100
        ));
        statements.push(format!("w{}=fetch(d.t.b,p{})", i % 4, i % 4));
        statements.push(format!("s{}=sum(w{})", i % 2, i % 4));
    }
    let expected = one_by_one(&operators, &statements);
    assert!(expected.0.is_empty());
    for settings in settings() {
        assert!(as_batch(&operators, &statements, &settings) == expected, "{settings:?}");
    }
}

#[test]
fn info_shows_the_last_graph() {
    let operators = tables(10, false);
    let mut client = Client::new(&operators);
    client.all("batch_queries()\na=select(d.t.a,0,9)\nb=select(d.t.a,5,null)\nf=fetch(d.t.b,a)\ng=fetch(d.t.a,a)\ns=sum(f)\nm=max(f)\nbatch_execute()");
    let shown = client.all("info()");
    for wanted in [
        "last batch: 6 statements, 3 levels, heuristic smart",
        "level 1\n",
        "a = select(d.t.a)",
        "one fetch",
        "one aggregation",
        "f = fetch(d.t.b, a), ",
        "s = sum(f), 1 row\n",
    ] {
        assert!(shown.contains(wanted), "{wanted} in {shown}");
    }
}
