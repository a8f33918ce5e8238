//! Figures 9 and 10: hash tables under insertion, search and removal.

use super::hash_tables::{Chained, FALLING, Hashbrown, IntegerTable, RobinHood};
use super::{Recorder, milliseconds};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Distinct keys in an order that favours no table: multiplication by an odd number permutes.
fn key(at: usize) -> i32 {
    (at as u32).wrapping_mul(0x9e37_79b1).rotate_left(7).cast_signed()
}

fn filled<T: IntegerTable>(entries: usize, capacity: usize) -> T {
    let mut table = T::with_capacity(capacity);
    (0..entries).for_each(|at| table.insert(key(at), at as i32));
    table
}

/// The report's times for 50 million entries, in seconds: insert presized and growing, get, remove.
type OfReport = Option<[f64; 4]>;

fn measure<T: IntegerTable>(name: &str, report: OfReport, recorder: &mut Recorder<'_>) -> Result<(), String> {
    let (entries, runs) = (recorder.arguments.rows, recorder.arguments.runs);
    let presized = milliseconds(runs, || {
        black_box(filled::<T>(entries, entries));
        Ok(())
    })?;
    let growing = milliseconds(runs, || {
        black_box(filled::<T>(entries, 0));
        Ok(())
    })?;
    let table: T = filled(entries, entries);
    // One in ten is absent.
    let get = milliseconds(runs, || {
        let found = (0..entries).filter(|at| table.get(key(at + entries / 10)).is_some()).count();
        if found != entries - entries / 10 {
            return Err(format!("{name} has found {found} keys"));
        }
        Ok(())
    })?;
    let bytes = table.bytes();
    let mut table = table;
    let begun = Instant::now();
    let removed = (0..entries).filter(|at| table.remove(key(*at)).is_some()).count();
    let remove = begun.elapsed().as_secs_f64() * 1e3;
    if removed != entries {
        return Err(format!("{name} has removed {removed} keys"));
    }
    recorder.row(&[
        ("table", json!(name)),
        ("entries", json!(entries)),
        ("insert presized ms", json!(presized)),
        ("insert growing ms", json!(growing)),
        ("get ms", json!(get)),
        ("remove ms", json!(remove)),
        ("bytes an entry", json!(bytes as f64 / entries.max(1) as f64)),
        ("report s, 50 M entries", report.map_or(Value::Null, |report| json!(report.map(|s| s.to_string()).join(" ")))),
    ]);
    for (x, ms) in [presized, growing, get, remove].into_iter().enumerate() {
        recorder.point(name, x as f64 + 1.0, ms);
    }
    Ok(())
}

pub(super) fn operations(recorder: &mut Recorder<'_>) -> Result<(), String> {
    recorder.chart("Hash tables (figure 9)", "1 insert presized, 2 insert growing, 3 get, 4 remove", "ms", false);
    measure::<Chained>("chained, pool, 90 %", Some([3.4, 13.3, 5.1, 7.2]), recorder)?;
    measure::<RobinHood<20>>("Robin Hood, 20 %", None, recorder)?;
    measure::<RobinHood<50>>("Robin Hood, 50 %", Some([1.8, 2.3, 3.9, 3.2]), recorder)?;
    measure::<RobinHood<90>>("Robin Hood, 90 %", None, recorder)?;
    measure::<RobinHood<FALLING>>("Robin Hood, 90 to 20 %", None, recorder)?;
    measure::<Hashbrown>("hashbrown", None, recorder)
}

/// Total milliseconds and bytes at `points` points while a table grows.
fn growth<T: IntegerTable>(entries: usize, points: usize) -> Vec<(usize, f64, usize)> {
    let mut table = T::with_capacity(0);
    let (mut at, begun) = (0, Instant::now());
    (1..=points)
        .map(|point| {
            let to = entries * point / points;
            (at..to).for_each(|at| table.insert(key(at), at as i32));
            at = to;
            (to, begun.elapsed().as_secs_f64() * 1e3, table.bytes())
        })
        .collect()
}

pub(super) fn maximum_load(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const POINTS: usize = 50;
    let entries = recorder.arguments.rows;
    let curves = [
        ("20 %", growth::<RobinHood<20>>(entries, POINTS)),
        ("50 %", growth::<RobinHood<50>>(entries, POINTS)),
        ("90 %", growth::<RobinHood<90>>(entries, POINTS)),
        ("90 to 20 %", growth::<RobinHood<FALLING>>(entries, POINTS)),
    ];
    /// Seconds in all, by millions of entries.
    const REPORT: [(&str, [(f64, f64); 5]); 3] = [
        ("report, 20 %", [(10.0, 0.9), (25.0, 2.9), (50.0, 4.9), (75.0, 7.0), (99.0, 9.0)]),
        ("report, 50 %", [(10.0, 1.0), (25.0, 2.7), (50.0, 4.9), (75.0, 9.0), (99.0, 11.0)]),
        ("report, 90 %", [(10.0, 1.6), (25.0, 4.0), (50.0, 8.3), (75.0, 14.9), (99.0, 17.5)]),
    ];
    recorder.chart("Maximum load of growing Robin Hood tables (figure 10)", "entries", "ms in all", false);
    for (name, curve) in &curves {
        for &(entries, ms, bytes) in curve {
            recorder.row(&[
                ("maximum load", json!(name)),
                ("entries", json!(entries)),
                ("ms in all", json!(ms)),
                ("MiB", json!(bytes as f64 / f64::from(1 << 20))),
            ]);
            recorder.point(name, entries as f64, ms);
        }
    }
    for (name, points) in REPORT {
        for (millions, seconds) in points {
            recorder.row(&[
                ("maximum load", json!(name)),
                ("entries", json!(millions * 1e6)),
                ("ms in all", json!(seconds * 1e3)),
                ("MiB", Value::Null),
            ]);
            recorder.point(name, millions * 1e6, seconds * 1e3);
        }
    }
    recorder.chart("Memory of growing Robin Hood tables (figure 10)", "entries", "MiB", false);
    for (name, curve) in &curves {
        curve
            .iter()
            .for_each(|&(entries, _, bytes)| recorder.point(name, entries as f64, bytes as f64 / f64::from(1 << 20)));
    }
    Ok(())
}
