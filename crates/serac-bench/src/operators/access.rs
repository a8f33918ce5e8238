//! Figure 8, and selects by each kind of index against scans: is the chosen path the faster one?

use super::Recorder;
use super::language::{Client, bounds, write_csv};
use crate::report::median;
use crate::setup::Folder;
use serde_json::json;
use std::time::Instant;

/// A client with a table `d.t`. Its column `a` has an index if one is given.
fn client(rows: usize, index: Option<(&str, &str)>) -> Result<Client, String> {
    let folder = Folder::new("operators");
    let path = folder.0.join("t.csv");
    write_csv(&path, "t", &["a", "b"], rows)?;
    let mut client = Client::new()?;
    client.create_table("t", &["a", "b"])?;
    client.run(&format!("load(\"{}\")\nset(threads,1)", path.display()))?;
    if let Some((form, kind)) = index {
        client.run(&format!("create(idx,d.t.a,{form},{kind})"))?;
    }
    Ok(client)
}

/// Milliseconds of a select by each of the access paths, which take turns. Before each measured
/// select, the same select runs once: it bears the state of the caches that the path before has
/// left.
fn selects<const N: usize>(
    client: &mut Client,
    recorder: &Recorder<'_>,
    paths: [&str; N],
    share: f64,
) -> Result<[f64; N], String> {
    let (low, high) = bounds(1, 3, share);
    let select = format!("s=select(d.t.a,{low},{high})");
    let mut ms = paths.map(|_| Vec::new());
    for _ in 0..recorder.arguments.runs {
        for (path, ms) in paths.iter().zip(&mut ms) {
            client.run(&format!("set(access,{path})"))?;
            client.run(&select)?;
            let begun = Instant::now();
            client.run(&select)?;
            ms.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(ms.map(median))
}

/// Figure 8: a scan against an unclustered tree.
pub(super) fn crossover(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const REPORT_SCAN: [f64; 16] =
        [42.0, 42.0, 41.0, 42.0, 40.0, 49.0, 46.0, 53.0, 51.0, 56.0, 59.0, 62.0, 55.0, 54.0, 54.0, 64.0];
    const REPORT_TREE: [f64; 16] =
        [1.4, 16.0, 33.0, 51.0, 65.0, 79.0, 95.0, 112.0, 127.0, 145.0, 157.0, 175.0, 192.0, 207.0, 223.0, 237.0];
    let mut client = client(recorder.arguments.rows, Some(("btree", "unclustered")))?;
    recorder.chart("Scan against B+ tree (figure 8, left)", "selectivity", "ms", false);
    for step in 0..16 {
        let share = (step + 1) as f64 * 0.025;
        let [scan, tree] = selects(&mut client, recorder, ["scan", "index"], share)?;
        recorder.row(&[
            ("selectivity", json!(share)),
            ("scan ms", json!(scan)),
            ("tree ms", json!(tree)),
            ("report, scan ms", json!(REPORT_SCAN[step])),
            ("report, tree ms", json!(REPORT_TREE[step])),
        ]);
        for (name, ms) in
            [("scan", scan), ("tree", tree), ("report, scan", REPORT_SCAN[step]), ("report, tree", REPORT_TREE[step])]
        {
            recorder.point(name, share, ms);
        }
    }
    Ok(())
}

/// Measures each path and the chosen one, for each kind of index and from 0.01 to 100 % of the
/// rows.
pub(super) fn kinds(recorder: &mut Recorder<'_>) -> Result<(), String> {
    for index in [("btree", "unclustered"), ("sorted", "unclustered"), ("btree", "clustered"), ("sorted", "clustered")]
    {
        let kind = format!("{} {}", index.0, index.1);
        let mut client = client(recorder.arguments.rows, Some(index))?;
        recorder.chart(&format!("Selects by a {kind} index"), "selectivity", "ms", true);
        for percent in [0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0] {
            let share = percent / 100.0;
            let [scan, by_index, chosen] = selects(&mut client, recorder, ["scan", "index", "auto"], share)?;
            recorder.row(&[
                ("index", json!(kind)),
                ("selectivity %", json!(percent)),
                ("scan ms", json!(scan)),
                ("index ms", json!(by_index)),
                ("chosen ms", json!(chosen)),
                ("chosen / better (goal 1.1)", json!(chosen / scan.min(by_index))),
            ]);
            for (name, ms) in [("scan", scan), ("index", by_index), ("chosen", chosen)] {
                recorder.point(name, share, ms);
            }
        }
        let info = client.run("info()")?;
        info.lines().filter(|line| line.starts_with("index")).for_each(|line| recorder.note(line.into()));
    }
    Ok(())
}
