//! Multiselect beside selects one by one.

use super::{DOMAIN, Recorder, milliseconds, uniform};
use serac_operators::multiselect::{Algorithm, Append, Bounds, Inverse, MultiselectSettings, Slices, multiselect};
use serac_operators::range_words::{RangeValue, count};
use serac_operators::selection::{Runs, Selection};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;

/// Rows of a block of a table with a few columns.
const BLOCK: usize = 1 << 15;

struct Column {
    values: Vec<i32>,
    base: Arc<Runs>,
}

impl Column {
    fn new(rows: usize) -> Self {
        let mut base = Runs::default();
        base.push(0..rows as u64);
        Self { values: uniform(rows, 1), base: Arc::new(base) }
    }

    fn select(&self, predicates: &[Bounds], settings: &MultiselectSettings) -> Vec<Selection> {
        let blocks = Slices(self.values.chunks(BLOCK).map(|block| (block, None)).collect());
        let Ok(selections) = multiselect::<_, Infallible>(&blocks, &self.base, predicates, settings, &|_| Ok(()));
        selections
    }
}

/// `selects` ranges with this share of the rows each, spread over the numbers.
fn predicates(selects: usize, share: f64) -> Vec<Bounds> {
    let width = (f64::from(DOMAIN) * share).round() as i64;
    let step = (i64::from(DOMAIN) - width) / selects.max(2) as i64;
    let low = |at: usize| at as i64 * step;
    (0..selects).map(|at| Bounds { low: Some(low(at)), high: Some(low(at) + width) }).collect()
}

fn lists(threads: usize, append: Append) -> MultiselectSettings {
    MultiselectSettings {
        threads,
        append,
        inverse: Inverse::Off,
        bitvectors: false,
        algorithm: Algorithm::Compare,
        ..Default::default()
    }
}

/// The report's milliseconds of figure 6 for chunks and selects of a task, by selectivity from
/// 1e-7 on.
const REPORT_CHUNKS: [(usize, usize, [f64; 8]); 3] = [
    (1024, 1, [52.0, 48.0, 48.0, 48.0, 51.0, 87.0, 360.0, 1950.0]),
    (64, 4, [68.0, 68.0, 68.0, 68.0, 72.0, 100.0, 385.0, 2900.0]),
    (1, 1, [230.0, 225.0, 225.0, 225.0, 230.0, 270.0, 560.0, 990.0]),
];

/// Figure 6: ten selects, position lists alone, NO_BLOCK.
pub(super) fn chunks(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const SELECTS: usize = 10;
    let column = Column::new(recorder.arguments.rows);
    recorder.chart("Chunks of a column / selects of a task, NO_BLOCK (figure 6)", "selectivity", "ms", true);
    for &threads in &recorder.arguments.threads {
        for (chunks, selects_per_task) in [(1024, 1), (64, 4), (1, 1), (1, SELECTS), (0, 1), (0, SELECTS)] {
            // 0 stands for chunks of the default size, 512 KiB.
            let of_chunk = MultiselectSettings::default().chunk_bytes;
            let chunk_bytes = (column.values.len() * 4).checked_div(chunks).unwrap_or(of_chunk);
            let settings = MultiselectSettings { chunk_bytes, selects_per_task, ..lists(threads, Append::NoBlock) };
            let report = REPORT_CHUNKS.iter().find(|report| (report.0, report.1) == (chunks, selects_per_task));
            let name = if chunks == 0 { "512 KiB".into() } else { chunks.to_string() };
            for (at, power) in (-7..=0).enumerate() {
                let share = 10f64.powi(power);
                let predicates = predicates(SELECTS, share);
                let ms = milliseconds(recorder.arguments.runs, || {
                    black_box(column.select(&predicates, &settings));
                    Ok(())
                })?;
                recorder.row(&[
                    ("chunks", json!(name)),
                    ("selects per task", json!(selects_per_task)),
                    ("threads", json!(threads)),
                    ("selectivity", json!(format!("1e{power}"))),
                    ("ms", json!(ms)),
                    ("report ms", report.map_or(Value::Null, |report| json!(report.2[at]))),
                ]);
                recorder.point(&format!("{name}/{selects_per_task}, {threads} threads"), share, ms);
            }
        }
    }
    Ok(())
}

/// One by one, in the way that is best for one select, and together.
pub(super) fn selects(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const SELECTS: usize = 100;
    let column = Column::new(recorder.arguments.rows);
    recorder.chart("100 selects: one by one against one multiselect", "selectivity", "ms", true);
    for share in [0.001, 0.01, 0.1, 0.5, 0.9] {
        let predicates = predicates(SELECTS, share);
        for &threads in &recorder.arguments.threads {
            let settings = MultiselectSettings { threads, ..Default::default() };
            let apart = milliseconds(recorder.arguments.runs, || {
                let one = |predicate| black_box(column.select(std::slice::from_ref(predicate), &settings));
                predicates.iter().for_each(|predicate| drop(one(predicate)));
                Ok(())
            })?;
            let together = |settings: &MultiselectSettings| {
                milliseconds(recorder.arguments.runs, || {
                    black_box(column.select(&predicates, settings));
                    Ok(())
                })
            };
            let compared = together(&MultiselectSettings { algorithm: Algorithm::Compare, ..settings.clone() })?;
            let encoded = together(&MultiselectSettings { algorithm: Algorithm::Encode, ..settings.clone() })?;
            let handed_out = together(&MultiselectSettings { algorithm: Algorithm::HandOut, ..settings.clone() })?;
            let shared = together(&settings)?;
            let no_block = together(&MultiselectSettings { append: Append::NoBlock, ..settings.clone() })?;
            let block = together(&MultiselectSettings { append: Append::Block, ..settings.clone() })?;
            recorder.row(&[
                ("selectivity", json!(share)),
                ("threads", json!(threads)),
                ("one by one ms", json!(apart)),
                ("together ms", json!(shared)),
                ("factor", json!(apart / shared)),
                ("compare ms", json!(compared)),
                ("encode ms", json!(encoded)),
                ("hand out ms", json!(handed_out)),
                ("NO_BLOCK ms", json!(no_block)),
                ("BLOCK ms", json!(block)),
            ]);
            recorder.point(&format!("one by one, {threads} threads"), share, apart);
            recorder.point(&format!("together, {threads} threads"), share, shared);
        }
    }
    Ok(())
}

/// Counts the rows that each of k predicates selects. The only result is a number, so that nothing
/// but the reading differs.
pub(super) fn ceiling(recorder: &mut Recorder<'_>) -> Result<(), String> {
    const INSIDE: usize = 2_000_000;
    for (place, rows) in [("inside", INSIDE.min(recorder.arguments.rows)), ("outside", recorder.arguments.rows)] {
        let values = uniform(rows, 1);
        recorder.chart(&format!("Shared scan, {place} the last-level cache"), "predicates", "ms", true);
        for &threads in &recorder.arguments.threads {
            for selects in [1, 2, 4, 8, 16, 32, 64] {
                let predicates: Vec<(i32, i32)> = (0..selects).map(|i| (i * 1_000, i * 1_000 + DOMAIN / 100)).collect();
                let pass = |values: &[i32], predicates: &[(i32, i32)]| {
                    let mut words = [0; BLOCK / 64];
                    for block in values.chunks(BLOCK) {
                        for &(low, high) in predicates {
                            let words = &mut words[..block.len().div_ceil(64)];
                            i32::range_words(block, low, high, words);
                            black_box(count(words));
                        }
                    }
                };
                let share = values.len().div_ceil(threads).max(1);
                let on_threads = |work: &(dyn Fn(&[i32]) + Sync)| {
                    std::thread::scope(|scope| {
                        values.chunks(share).for_each(|part| drop(scope.spawn(move || work(part))));
                    });
                };
                let apart = milliseconds(recorder.arguments.runs, || {
                    on_threads(&|part| predicates.chunks(1).for_each(|predicate| pass(part, predicate)));
                    Ok(())
                })?;
                let shared = milliseconds(recorder.arguments.runs, || {
                    on_threads(&|part| pass(part, &predicates));
                    Ok(())
                })?;
                recorder.row(&[
                    ("cache", json!(place)),
                    ("rows", json!(rows)),
                    ("threads", json!(threads)),
                    ("predicates", json!(selects)),
                    ("k passes ms", json!(apart)),
                    ("one pass ms", json!(shared)),
                    ("factor", json!(apart / shared)),
                    ("GB/s of k passes", json!(rows as f64 * 4.0 * f64::from(selects) / apart / 1e6)),
                ]);
                recorder.point(&format!("k passes, {threads} threads"), selects.into(), apart);
                recorder.point(&format!("one pass, {threads} threads"), selects.into(), shared);
            }
        }
    }
    Ok(())
}

/// Measures each method by the number of selects and the rows of each. The costs in
/// `serac_operators::multiselect` come from these figures.
pub(super) fn classify(recorder: &mut Recorder<'_>) -> Result<(), String> {
    let column = Column::new(recorder.arguments.rows);
    recorder.chart("Compare, encode, hand out", "selects", "ms", true);
    for share in [0.0001, 0.001, 0.01, 0.1] {
        for selects in [2, 4, 8, 16, 32, 64, 128] {
            let predicates = predicates(selects, share);
            let figure = |algorithm| {
                let settings = MultiselectSettings { algorithm, ..Default::default() };
                milliseconds(recorder.arguments.runs, || {
                    black_box(column.select(&predicates, &settings));
                    Ok(())
                })
            };
            let (compare, encode) = (figure(Algorithm::Compare)?, figure(Algorithm::Encode)?);
            let hand_out = figure(Algorithm::HandOut)?;
            let auto = figure(Algorithm::Auto)?;
            let per_row = |ms: f64| ms * 1e6 / column.values.len() as f64;
            recorder.row(&[
                ("selects", json!(selects)),
                ("selectivity", json!(share)),
                ("compare ns/row", json!(per_row(compare))),
                ("encode ns/row", json!(per_row(encode))),
                ("hand out ns/row", json!(per_row(hand_out))),
                ("chosen ns/row", json!(per_row(auto))),
            ]);
            recorder.point(&format!("compare, {share}"), selects as f64, compare);
            recorder.point(&format!("encode, {share}"), selects as f64, encode);
            recorder.point(&format!("hand out, {share}"), selects as f64, hand_out);
        }
    }
    Ok(())
}
