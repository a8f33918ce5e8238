//! Random statements with grouping sets, over keys and aggregates of all types, give the rows that
//! DataFusion's plan gives, and those of one GROUP BY for each set.

use crate::support::{in_memory, run, text};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serac_sql::{Session, SqlError, StatementResult};

/// Keys of all types: columns with NULL, and expressions.
const KEYS: [&str; 29] = [
    "ki",
    "kt",
    "kc",
    "kd",
    "kn",
    "ku",
    "kf",
    "kr",
    "kb",
    "ARRAY[ki % 2, ks]",
    "kx",
    "kz",
    "kv",
    "ky",
    "kj",
    "id",
    "ks",
    "kg",
    "ki + 1",
    "upper(kt)",
    "ki IS NULL",
    "coalesce(ki, 0)",
    "kf * -1",
    "date_trunc('month', kd)",
    "CASE WHEN ki > 2 THEN kt END",
    "ki % 2",
    "kn::NUMERIC(8,1)",
    "(1 + 1)",
    "NULL::INTEGER",
];

/// Aggregates whose states are merged.
const MERGED: [&str; 77] = [
    "count(*)",
    "count(i)",
    "count(n)",
    "count(t)",
    "count(DISTINCT i)",
    "count(DISTINCT b)",
    "count(DISTINCT t)",
    "count(DISTINCT n)",
    "count(DISTINCT u)",
    "count(DISTINCT g)",
    "count(DISTINCT kc)",
    "count(DISTINCT kd)",
    "count(DISTINCT ARRAY[i % 3, NULL])",
    "count(DISTINCT kx)",
    "count(DISTINCT kv)",
    "count(DISTINCT kb)",
    "count(DISTINCT ky)",
    "sum(i)",
    "sum(b)",
    "sum(s)",
    "sum(n)",
    "sum(u)",
    "sum(f)",
    "sum(g)",
    "min(r)",
    "sum(kv)",
    "sum(DISTINCT i)",
    "sum(DISTINCT b)",
    "sum(DISTINCT n)",
    "count(DISTINCT n * 2)",
    "sum(DISTINCT f)",
    "avg(i)",
    "avg(b)",
    "avg(n)",
    "avg(u)",
    "avg(f)",
    "avg(g)",
    "avg(kv)",
    "avg(DISTINCT i)",
    "avg(DISTINCT n)",
    "avg(DISTINCT f)",
    "min(i)",
    "max(b)",
    "min(t)",
    "max(t)",
    "min(kc)",
    "max(kd)",
    "min(n)",
    "max(u)",
    "min(f)",
    "max(g)",
    "min(kz)",
    "max(kv)",
    "min(ARRAY[i, s])",
    "max(kd) - min(kd)",
    "bool_and(o)",
    "bool_or(o)",
    "every(i > 1)",
    "bit_and(i)",
    "bit_or(b)",
    "bit_xor(s)",
    "bit_xor(DISTINCT i)",
    "round(var_pop(i)::numeric, 4)",
    "round(var_samp(n), 4)",
    "round(stddev(f)::numeric, 4)",
    "round(stddev_pop(u), 4)",
    "count(DISTINCT s)",
    "round(stddev_samp(DISTINCT f)::numeric, 4)",
    "round(corr(f, i)::numeric, 4)",
    "round(covar_pop(f, i)::numeric, 4)",
    "round(covar_samp(i, f)::numeric, 4)",
    "round(regr_slope(f, i)::numeric, 4)",
    "round(regr_intercept(f, i)::numeric, 4)",
    "regr_count(f, i)",
    "round(regr_r2(f, i)::numeric, 4)",
    "round(regr_avgx(f, i)::numeric, 4) + round(regr_avgy(f, i)::numeric, 4)",
    "round(regr_sxx(f, i)::numeric, 4) + round(regr_syy(f, i)::numeric, 4) + round(regr_sxy(f, i)::numeric, 4)",
];

/// Aggregates that see all rows of each set.
const LISTED: [&str; 11] = [
    "string_agg(t, ',' ORDER BY t, id)",
    "string_agg(DISTINCT t, ',' ORDER BY t)",
    "array_to_string(array_agg(id ORDER BY id DESC), ' ')",
    "array_to_string(array_agg(DISTINCT i ORDER BY i), ' ')",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY i)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY n)",
    "mode() WITHIN GROUP (ORDER BY i)",
    "json_agg(i ORDER BY id)::text",
    "jsonb_agg(t ORDER BY id)::text",
    "(array_agg(i ORDER BY id))[1]",
    "sum(i ORDER BY id)",
];

const FILTERS: [&str; 5] = ["i > 2", "t IS NOT NULL", "o", "id % 2 = 0 AND f > 0", "false"];

const CREATE: &str = "DROP TABLE IF EXISTS x; CREATE TABLE x (id BIGINT PRIMARY KEY, ki INTEGER, kt TEXT, kc CHAR(4),
    kd DATE, kn NUMERIC(10,2), ku NUMERIC, kf DOUBLE PRECISION, kr REAL, kb BOOLEAN, kx UUID,
    kz TIMESTAMPTZ, kv INTERVAL, ky BYTEA, kj JSONB, ks SMALLINT, kg BIGINT,
    i INTEGER, b BIGINT, s SMALLINT, n NUMERIC(12,3), u NUMERIC, f DOUBLE PRECISION, g DOUBLE PRECISION, r REAL,
    t TEXT, o BOOLEAN)";

/// INSERT of rows numbered from `first` to `last`; few distinct keys, and NULL in each column.
/// Values that are equal are shown alike, as any of them may stand for a group.
fn insert(first: usize, last: usize, spread: usize) -> String {
    let key = |with: usize, of: usize| format!("(x::BIGINT * {with} + x / 7) % {of}");
    let any = |with: usize, values: &[&str]| {
        let arms: String = values.iter().enumerate().map(|(at, value)| format!(" WHEN {at} THEN {value}")).collect();
        format!("CASE {}{arms} END", key(with, values.len() + 1))
    };
    let columns = [
        "x".to_owned(),
        format!("nullif({}, 0)::INTEGER", key(5, spread + 2)),
        any(3, &["'a'", "'a '", "'A'", "''", "'long text that is not inlined'", "'long text that is not there'"]),
        any(4, &["'a'", "'b  '", "'bcde'", "' a'"]),
        format!("DATE '2024-01-01' + ({})::INTEGER * 13", key(2, spread)),
        format!("nullif({}, 3) * 0.25", key(7, spread + 4)),
        any(6, &["1", "1.0", "1.00", "-0.50", "123456789012345678901234567890.1234"]),
        any(
            8,
            &["0.0::DOUBLE PRECISION", "-0.0::DOUBLE PRECISION", "'NaN'", "'Infinity'", "'-Infinity'", "1.5", "1e300"],
        ),
        any(9, &["0.0::REAL", "-0.0::REAL", "'NaN'", "2.5"]),
        any(10, &["true", "false"]),
        any(13, &["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'::UUID"]),
        any(12, &["TIMESTAMPTZ '2024-01-01 00:00:00+00'", "TIMESTAMPTZ '2024-06-01 12:00:00.123456+02'"]),
        any(15, &["INTERVAL '1 day'", "INTERVAL '3 hours'", "INTERVAL '1 month'", "INTERVAL '5 days'"]),
        any(14, &["'\\x00ff'::BYTEA", "''::BYTEA", "'\\x0a'::BYTEA"]),
        any(16, &["'{\"a\": 1}'::JSONB", "'{\"a\": 2}'::JSONB", "'null'::JSONB", "'[1]'::JSONB"]),
        format!("nullif({}, 1)::SMALLINT", key(17, 5)),
        format!("nullif({}, 1) * 1000000007", key(18, spread * spread + 3)),
        format!("nullif({}, 4)::INTEGER - 3", key(19, 11)),
        format!("nullif({}, 4) * 1000000000000000", key(20, 9)),
        format!("nullif({}, 4)::SMALLINT", key(21, 300)),
        format!("nullif({}, 4) * 1.125", key(22, 50)),
        any(23, &["1", "1.0", "2.50", "-0.125", "98765432109876543210.5", "0.00"]),
        format!("nullif({}, 4) / 4.0::DOUBLE PRECISION - 2", key(25, 20)),
        any(24, &["0.0::DOUBLE PRECISION", "1.25", "2", "'NaN'", "'Infinity'", "0.5", "0.25", "8", "16", "32", "64"]),
        format!("(nullif({}, 4) / 4.0)::REAL", key(26, 20)),
        any(27, &["'x'", "'y'", "'yy'", "'another long text of many bytes'", "''"]),
        any(29, &["true", "false", "true"]),
    ];
    format!("INSERT INTO x SELECT {} FROM generate_series({first}, {last}) AS s (x)", columns.join(", "))
}

/// GROUP BY: its text, and its sets as places of keys.
struct Clause {
    text: String,
    sets: Vec<Vec<usize>>,
}

fn with_all(set: &[usize], other: &[usize]) -> Vec<usize> {
    let mut all = set.to_vec();
    all.extend(other.iter().filter(|at| !set.contains(at)));
    all
}

/// Keys, or keys in parentheses, as ROLLUP and CUBE list them.
fn listed(rng: &mut StdRng, keys: &[&str], most: usize) -> Vec<(String, Vec<usize>)> {
    let count = rng.random_range(1..=most);
    let all: Vec<usize> = (0..keys.len()).collect();
    (0..count)
        .map(|_| {
            let parts = if rng.random_bool(0.25) { 2 } else { 1 };
            let set: Vec<usize> = (0..parts).map(|_| *all.choose(rng).unwrap()).collect();
            let shown: Vec<&str> = set.iter().map(|key| keys[*key]).collect();
            let mut distinct = Vec::new();
            set.iter().for_each(|key| distinct = with_all(&distinct, &[*key]));
            match parts {
                1 => (shown[0].to_owned(), distinct),
                _ => (format!("({})", shown.join(", ")), distinct),
            }
        })
        .collect()
}

/// One item of GROUP BY.
fn item(rng: &mut StdRng, keys: &[&str], depth: usize) -> Clause {
    let shown =
        |listed: &[(String, Vec<usize>)]| listed.iter().map(|(shown, _)| shown.clone()).collect::<Vec<_>>().join(", ");
    match rng.random_range(0..5) {
        0 => {
            let listed = listed(rng, keys, 4);
            let mut sets = vec![Vec::new()];
            for (_, set) in &listed {
                sets.push(with_all(sets.last().unwrap(), set));
            }
            Clause { text: format!("ROLLUP ({})", shown(&listed)), sets }
        }
        1 => {
            let listed = listed(rng, keys, 3);
            let mut sets = vec![Vec::new()];
            for (_, set) in &listed {
                let with: Vec<_> = sets.iter().map(|other| with_all(other, set)).collect();
                sets.extend(with);
            }
            Clause { text: format!("CUBE ({})", shown(&listed)), sets }
        }
        2 | 3 if depth < 2 => {
            let (mut texts, mut sets) = (Vec::new(), Vec::new());
            for _ in 0..rng.random_range(1..5) {
                if rng.random_bool(0.3) {
                    let inner = item(rng, keys, depth + 1);
                    texts.push(inner.text);
                    sets.extend(inner.sets);
                } else if rng.random_bool(0.2) {
                    texts.push("()".to_owned());
                    sets.push(Vec::new());
                } else {
                    let listed = listed(rng, keys, 3);
                    let mut set = Vec::new();
                    listed.iter().for_each(|(_, other)| set = with_all(&set, other));
                    let list: Vec<&str> = set.iter().map(|key| keys[*key]).collect();
                    texts.push(format!("({})", list.join(", ")));
                    sets.push(set);
                }
            }
            Clause { text: format!("GROUPING SETS ({})", texts.join(", ")), sets }
        }
        _ => {
            let (shown, set) = listed(rng, keys, 1).remove(0);
            Clause { text: shown, sets: vec![set] }
        }
    }
}

fn clause(rng: &mut StdRng, keys: &[&str]) -> Clause {
    let mut all = Clause { text: String::new(), sets: vec![Vec::new()] };
    let items = if rng.random_bool(0.7) { 1 } else { 2 };
    for at in 0..items {
        let own = item(rng, keys, 0);
        if at > 0 {
            all.text.push_str(", ");
        }
        all.text.push_str(&own.text);
        all.sets = all.sets.iter().flat_map(|set| own.sets.iter().map(|other| with_all(set, other))).collect();
    }
    all
}

/// A query over groups, with the same as UNION ALL of queries with one set each.
struct Query {
    grouped: String,
    union: String,
    columns: usize,
}

fn query(rng: &mut StdRng, from: &str) -> Query {
    let key_count = rng.random_range(1..=4);
    let chosen: Vec<&str> = KEYS.choose_multiple(rng, key_count).copied().collect();
    let clause = loop {
        let clause = clause(rng, &chosen);
        if clause.sets.len() <= 24 {
            break clause;
        }
    };
    // Keys that no set has are no keys.
    let keys: Vec<usize> = (0..chosen.len()).filter(|key| clause.sets.iter().flatten().any(|of| of == key)).collect();
    let mut aggregates: Vec<String> = Vec::new();
    for _ in 0..rng.random_range(0..6) {
        let aggregate = MERGED.choose(rng).unwrap();
        let is_plain = aggregate.ends_with(')') && !aggregate.contains("round(");
        aggregates.push(match is_plain && rng.random_bool(0.2) {
            true => format!("{aggregate} FILTER (WHERE {})", FILTERS.choose(rng).unwrap()),
            false => (*aggregate).to_owned(),
        });
    }
    if rng.random_bool(0.1) {
        aggregates.push((*LISTED.choose(rng).unwrap()).to_owned());
    }
    let having = *["", "", "", " HAVING count(*) > 2", " HAVING sum(i) > 20 OR max(n) IS NULL", " HAVING bool_or(o)"]
        .choose(rng)
        .unwrap();
    let condition = [" WHERE n > 3", " WHERE false", " WHERE id > 5 AND o"];
    let condition = if rng.random_bool(0.25) { condition.choose(rng).unwrap() } else { "" };
    let number = |set: Option<&Vec<usize>>| match set {
        None if keys.is_empty() => "0".to_owned(),
        None => format!("grouping({})", keys.iter().map(|key| chosen[*key]).collect::<Vec<_>>().join(", ")),
        Some(set) => keys.iter().fold(0, |all, key| all << 1 | usize::from(!set.contains(key))).to_string(),
    };
    let list = |items: Vec<String>| items.join(", ");
    let items: Vec<String> = keys
        .iter()
        .map(|key| chosen[*key].to_owned())
        .chain([number(None)])
        .chain(aggregates.iter().cloned())
        .enumerate()
        .map(|(at, item)| format!("{item} AS c{at}"))
        .collect();
    let columns = items.len();
    let grouped = format!("SELECT {} FROM {from}{condition} GROUP BY {}{having}", list(items), clause.text);
    let single = |set: &Vec<usize>| {
        let key = |key: &usize| match set.contains(key) {
            true => chosen[*key].to_owned(),
            // NULL with the type of the key, without which UNION ALL would make it a text.
            false => format!("CASE WHEN false THEN (SELECT {} FROM x LIMIT 1) END", chosen[*key]),
        };
        let items = keys.iter().map(key).chain([number(Some(set))]).chain(aggregates.iter().cloned());
        let items = items.enumerate().map(|(at, item)| format!("{item} AS c{at}")).collect();
        let by = match set.is_empty() {
            true => "()".to_owned(),
            false => set.iter().map(|key| chosen[*key]).collect::<Vec<_>>().join(", "),
        };
        format!("SELECT {} FROM {from}{condition} GROUP BY {by}{having}", list(items))
    };
    let union = clause.sets.iter().map(single).collect::<Vec<_>>().join(" UNION ALL ");
    Query { grouped, union, columns }
}

/// A cell as text. Equal numbers are alike, and so are values of CHAR with blanks and without.
fn alike(value: &str) -> &str {
    let value = value.trim_end_matches(' ');
    let is_decimal = value.contains('.') && value.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
    let value = if is_decimal { value.trim_end_matches('0').trim_end_matches('.') } else { value };
    if value == "-0" { "0" } else { value }
}

/// The rows of the last statement in order.
async fn rows(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let mut rows = Vec::new();
    let Some(StatementResult::Rows { batches, .. }) = session.execute(sql).await?.pop() else {
        panic!("{sql} gives no rows");
    };
    for batch in batches {
        let shown = |column: &dyn Array| match cast(column, &DataType::Utf8) {
            Ok(texts) => {
                let texts = texts.as_string::<i32>();
                (0..texts.len())
                    .map(|row| if texts.is_null(row) { "NULL".to_owned() } else { alike(texts.value(row)).to_owned() })
                    .collect::<Vec<_>>()
            }
            Err(_) => (0..column.len()).map(|row| format!("{:?}", column.slice(row, 1))).collect(),
        };
        let columns: Vec<Vec<String>> = batch.columns().iter().map(|column| shown(column.as_ref())).collect();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| column[row].as_str()).collect::<Vec<_>>().join("|")),
        );
    }
    Ok(rows)
}

async fn sorted(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    let mut rows = rows(session, sql).await.map_err(|error| format!("{}: {error}", error.sqlstate))?;
    rows.sort_unstable();
    Ok(rows)
}

/// A statement that has the query in it.
fn around(rng: &mut StdRng, query: &Query, sql: &str) -> String {
    let all = (1..=query.columns).map(|at| at.to_string()).collect::<Vec<_>>().join(", ");
    match rng.random_range(0..9) {
        0 => format!("SELECT count(*), count(c0) FROM ({sql}) AS q"),
        1 => format!("SELECT * FROM ({sql}) AS q ORDER BY {all} LIMIT 7 OFFSET 1"),
        2 => format!("SELECT q.*, h.w FROM ({sql}) AS q JOIN h ON q.c0::TEXT = h.w"),
        3 => format!("SELECT h.w, (SELECT count(*) FROM ({sql}) AS q WHERE q.c0::TEXT = h.w) FROM h"),
        4 => format!("SELECT q.c0, count(*), max(q.c{}) FROM ({sql}) AS q GROUP BY ROLLUP (q.c0)", query.columns - 1),
        5 => format!("SELECT DISTINCT c0 FROM ({sql}) AS q"),
        6 => format!("WITH q AS ({sql}) SELECT a.c0, b.c0 FROM q AS a LEFT JOIN q AS b ON a.c0 = b.c0"),
        _ => format!("SELECT * FROM ({sql}) AS q"),
    }
}

/// The statements that a run has tried.
#[derive(Debug, Default)]
struct Tried {
    statements: usize,
    explained: usize,
    in_levels: usize,
    failed: usize,
    rows: usize,
}

async fn tables(session: &mut Session, rng: &mut StdRng) {
    let count = *[0, 1, 2, 10, 10, 100, 100, 600, 2500].choose(rng).unwrap();
    let spread = *[1, 3, 8, 60].choose(rng).unwrap();
    run(session, CREATE).await;
    if count > 0 {
        run(session, &insert(1, count, spread)).await;
    }
    if rng.random_bool(0.5) {
        run(session, "ANALYZE").await;
    }
    if rng.random_bool(0.2) {
        run(session, "CREATE INDEX ON x USING bitmap (ki); CREATE INDEX ON x USING bitmap (kt)").await;
    }
}

async fn check(session: &mut Session, rng: &mut StdRng, tried: &mut Tried, in_transaction: bool) {
    let tables =
        ["x", "x", "x", "(SELECT x.* FROM x JOIN h ON x.i = h.i) AS q", "(SELECT * FROM x ORDER BY kt, id) AS q"];
    let from = *tables.choose(rng).unwrap();
    let query = query(rng, from);
    let mut around_rng = StdRng::seed_from_u64(rng.random());
    let mut same = around_rng.clone();
    let statement = around(&mut around_rng, &query, &query.grouped);
    let union = around(&mut same, &query, &query.union);
    let threads = rng.random_range(1..=2);
    run(session, &format!("SET threads = {threads}")).await;
    let shown = format!("SET threads = {threads}; {statement}");
    if !in_transaction && rng.random_bool(0.3) {
        tried.explained += 1;
        let plan = text(session, &format!("EXPLAIN {}", query.grouped)).await;
        tried.in_levels += usize::from(plan.contains("GroupingLevelsExec"));
    }
    let levels = if rng.random_bool(0.1) {
        match session.execute(&format!("PREPARE p AS {statement}")).await {
            Ok(_) => {
                let first = sorted(session, "EXECUTE p").await;
                let second = sorted(session, "EXECUTE p").await;
                run(session, "DEALLOCATE p").await;
                assert_eq!(first, second, "{shown}, executed twice");
                first
            }
            Err(error) => Err(error.to_string()),
        }
    } else {
        sorted(session, &statement).await
    };
    if let (Err(error), true) = (&levels, in_transaction) {
        tried.failed += 1;
        println!("{error} of {shown}");
        return;
    }
    run(session, "SET serac.disabled_passes = 'grouping_levels'").await;
    let usual = sorted(session, &statement).await;
    assert_eq!(levels.as_ref().ok(), usual.as_ref().ok(), "{shown}: {levels:?} {usual:?}");
    run(session, "RESET serac.disabled_passes").await;
    if levels.is_ok() {
        let sets = sorted(session, &union).await;
        assert_eq!(levels, sets, "{shown}\nis not\n{union}");
    }
    tried.statements += 1;
    match levels {
        Ok(rows) => tried.rows += rows.len(),
        Err(error) => {
            tried.failed += 1;
            println!("{error} of {shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_grouping_sets_give_the_rows_of_other_plans() {
    let mut rng = serac_testing::rng();
    let mut session = Session::new(&in_memory());
    run(&mut session, "CREATE TABLE h (i INTEGER, w TEXT); INSERT INTO h SELECT x, x::TEXT FROM generate_series(1, 8) AS s (x); INSERT INTO h VALUES (NULL, 'a'), (9, 'true'), (10, '1.5')").await;
    let mut tried = Tried::default();
    let tables_count = serac_testing::number("SERAC_TABLES").unwrap_or(if serac_testing::stress() { 400 } else { 8 });
    for _ in 0..tables_count {
        tables(&mut session, &mut rng).await;
        for _ in 0..if serac_testing::stress() { 40 } else { 8 } {
            check(&mut session, &mut rng, &mut tried, false).await;
        }
        // As a transaction sees it that has changed rows.
        run(&mut session, "BEGIN").await;
        run(&mut session, "UPDATE x SET ki = ki + 1, n = n + 1 WHERE id % 3 = 0; DELETE FROM x WHERE id % 5 = 0").await;
        run(&mut session, &insert(100_001, 100_004, 3)).await;
        let failed = tried.failed;
        for _ in 0..2 {
            if tried.failed == failed {
                check(&mut session, &mut rng, &mut tried, true).await;
            }
        }
        run(&mut session, "ROLLBACK").await;
    }
    println!("{tried:?}");
    assert!(tried.in_levels > 0, "{tried:?}");
}
