//! The figures of a database, from all its parts: for Prometheus as text, and for SQL as the view
//! `serac_metrics`.

use crate::activity::{BOUNDS, Histogram};
use crate::database::SqlDatabase;
use serac_engine::Table;
use serac_storage::BlockNo;
use serac_storage::block::Block;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations by class.
    Histogram,
}

impl MetricKind {
    /// Its name, as Prometheus writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The suffix of the figure's name: "_bucket", "_sum" and "_count" in histograms.
    pub suffix: &'static str,
    /// The labels that tell it from others of its name.
    pub labels: Vec<(&'static str, String)>,
    /// The value. Durations are in seconds.
    pub value: f64,
}

/// A figure with its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub help: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// Its values.
    pub samples: Vec<Sample>,
}

type Labels<'a> = [(&'static str, &'a str)];

#[derive(Default)]
struct Metrics(Vec<Metric>);

impl Metrics {
    fn add(&mut self, kind: MetricKind, name: &'static str, help: &'static str) -> &mut Self {
        self.0.push(Metric { name, help, kind, samples: Vec::new() });
        self
    }

    fn sample(&mut self, suffix: &'static str, labels: &Labels<'_>, value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.0.last_mut().expect("a figure has been added").samples.push(Sample { suffix, labels, value });
    }

    fn with(&mut self, labels: &Labels<'_>, value: impl Into<u64>) {
        self.sample("", labels, value.into() as f64);
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(MetricKind::Counter, name, help).with(&[], value);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: usize) {
        self.add(MetricKind::Gauge, name, help).with(&[], value as u64);
    }

    fn histogram(&mut self, labels: &Labels<'_>, counts: &[u64], sum: Duration) {
        let mut total = 0;
        for (i, count) in counts.iter().enumerate() {
            total += count;
            let bound = BOUNDS.get(i).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.sample("_bucket", &labels, total as f64);
        }
        self.sample("_sum", labels, sum.as_secs_f64());
        self.sample("_count", labels, total as f64);
    }
}

impl SqlDatabase {
    /// The figures as they are now. Walks the blocks' heads and the bitmap indexes.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Metrics::default();
        self.of_connections(&mut metrics);
        self.of_storage(&mut metrics);
        of_tables(self, &mut metrics);
        metrics.0
    }

    fn of_connections(&self, metrics: &mut Metrics) {
        use MetricKind::{Counter, Gauge, Histogram as Classes};
        let (figures, rows) = (self.connections().figures(), self.connections().rows());
        let aborted: u64 = figures.aborted.values().sum();
        let running = rows.iter().filter(|row| row.transaction.is_some()).count() as u64;
        metrics.counter(
            "serac_transactions_begun_total",
            "Transactions that clients have begun, single statements included.",
            figures.committed + aborted + running,
        );
        metrics.counter("serac_transactions_committed_total", "Transactions of clients committed.", figures.committed);
        let help = "Transactions of clients rolled back, by the class of the SQLSTATE, or rollback, or disconnect.";
        metrics.add(Counter, "serac_transactions_aborted_total", help);
        figures.aborted.iter().for_each(|(cause, count)| metrics.with(&[("cause", cause)], *count));
        let help = "Durations of clients' statements, up to the last row sent.";
        metrics.add(Classes, "serac_statement_duration_seconds", help);
        for (kind, Histogram { counts, sum }) in &figures.statements {
            metrics.histogram(&[("kind", kind.name())], counts, *sum);
        }
        metrics.add(Gauge, "serac_connections", "Connections by state.");
        for state in ["active", "idle", "idle in transaction", "idle in transaction (aborted)"] {
            metrics.with(&[("state", state)], rows.iter().filter(|row| row.state == state).count() as u64);
        }
        metrics.counter("serac_connections_total", "Connections so far.", figures.connections);
        metrics.add(Counter, "serac_network_bytes_total", "Bytes from and to clients.");
        metrics.with(&[("direction", "in")], figures.bytes_in);
        metrics.with(&[("direction", "out")], figures.bytes_out);
        metrics.gauge("serac_query_memory_bytes", "Memory that running queries hold.", self.query_memory());
        let scans = self.convoys.figures();
        metrics.gauge("serac_shared_scans", "Scans that go with others now, or could.", scans.now() as usize);
        metrics.counter("serac_shared_scans_total", "Scans so far that went with others, or could.", scans.attached());
        let help = "Blocks that such scans have taken: followed, as another scan had just read them, or led.";
        metrics.add(Counter, "serac_shared_scan_blocks_total", help);
        metrics.with(&[("taken", "followed")], scans.followed());
        metrics.with(&[("taken", "led")], scans.led());
        let help = "How often such scans have left the others because they were slow.";
        metrics.counter("serac_shared_scan_left_total", help, scans.left());
    }

    fn of_storage(&self, metrics: &mut Metrics) {
        let storage = self.database().metrics();
        let help = "Transactions of the storage committed, those included that move rows in the background.";
        metrics.counter("serac_storage_commits_total", help, storage.commits);
        let help = "Transactions of the storage rolled back that had written something.";
        metrics.counter("serac_storage_aborts_total", help, storage.aborts);
        metrics.gauge("serac_snapshots", "Snapshots held.", storage.active_snapshots);
        let help = "Transactions and actions that wait for the garbage collector.";
        metrics.gauge("serac_gc_backlog", help, storage.gc_backlog);
        metrics.counter("serac_gc_unlinked_total", "Undo records unlinked.", storage.gc_unlinked);
        metrics.gauge("serac_undo_bytes", "Bytes of undo segments in use.", storage.undo_bytes);
        metrics.gauge("serac_block_memory_bytes", "Memory of blocks.", storage.block_memory_bytes);
        let help = "Memory kept for blocks and not used yet.";
        metrics.gauge("serac_idle_block_memory_bytes", help, storage.idle_block_memory_bytes);
        if let Some(log) = self.database().storage().manager().log() {
            let counts = log.figures();
            metrics.counter("serac_wal_bytes_total", "Bytes written to the log.", counts.bytes);
            metrics.counter("serac_wal_syncs_total", "Syncs of the log.", counts.syncs);
            let help =
                "Commits and parts of transactions written to the log: divided by the syncs, the size of a group.";
            metrics.counter("serac_wal_frames_total", help, counts.frames);
            let help = "Durations of writing and syncing a group.";
            metrics.add(MetricKind::Counter, "serac_wal_flush_seconds_total", help);
            metrics.sample("", &[], counts.flushing.as_secs_f64());
            metrics.gauge("serac_wal_live_bytes", "Bytes of log that a restart would read.", log.live_bytes() as usize);
            metrics.counter("serac_checkpoints_total", "Checkpoints written.", storage.checkpoints);
            metrics.add(MetricKind::Counter, "serac_checkpoint_seconds_total", "Time spent on checkpoints.");
            metrics.sample("", &[], storage.checkpoint_time.as_secs_f64());
        }
    }
}

fn of_tables(db: &SqlDatabase, metrics: &mut Metrics) {
    use MetricKind::Gauge;
    let catalog = db.database().catalog();
    let tables: Vec<(&str, &str, &Table)> = catalog
        .schemas
        .iter()
        .flat_map(|(schema, entry)| entry.tables.iter().map(move |(name, table)| (&**schema, &**name, &**table)))
        .collect();
    metrics.add(Gauge, "serac_blocks", "Blocks by state.");
    for (schema, table, of) in &tables {
        let mut states: BTreeMap<String, u64> = BTreeMap::new();
        for block in (0..of.data.block_count()).filter_map(|no| of.data.block(BlockNo(no))) {
            let state = match &*block {
                Block::Hot(hot) => format!("{:?}", hot.temperature()).to_lowercase(),
                Block::Frozen(_) => "frozen".into(),
            };
            *states.entry(state).or_default() += 1;
        }
        for (state, count) in states {
            metrics.with(&[("schema", schema), ("table", table), ("state", &state)], count);
        }
    }
    let figures: Vec<_> = tables.iter().map(|(schema, table, of)| (*schema, *table, of.data.metrics())).collect();
    metrics.add(Gauge, "serac_table_rows", "Rows, as inserts less deletes.");
    for (schema, table, of) in &figures {
        metrics.with(&[("schema", schema), ("table", table)], of.rows.max(0) as u64);
    }
    metrics.add(Gauge, "serac_table_bytes", "Bytes of a table's blocks.");
    for (schema, table, of) in &figures {
        metrics.with(&[("schema", schema), ("table", table)], of.bytes as u64);
    }
    metrics.add(Gauge, "serac_index_entries", "Entries of an index; of a bitmap index, rows in its vectors.");
    let mut bytes = Vec::new();
    for (schema, table, of) in &tables {
        let labels = |index| [("schema", *schema), ("table", *table), ("index", index)];
        for index in &of.indexes {
            metrics.with(&labels(&index.definition.name), index.entries.len() as u64);
        }
        for index in &of.bitmaps {
            let statistics = index.entries.statistics();
            let labels = labels(&index.definition.name);
            metrics.with(&labels, statistics.rows);
            bytes.push((labels, statistics.bytes));
        }
    }
    metrics.add(Gauge, "serac_bitmap_index_bytes", "Bytes of a bitmap index.");
    bytes.into_iter().for_each(|(labels, bytes)| metrics.with(&labels, bytes));
}

/// A label's value, with the format's special characters escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Sample {
    /// The labels as Prometheus writes them, without braces: `kind="select",le="0.5"`.
    pub fn labels_text(&self) -> String {
        let labels: Vec<_> = self.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        labels.join(",")
    }
}

/// Figures in Prometheus's text format, version 0.0.4.
pub fn prometheus_text(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric { name, help, kind, samples } in metrics {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        for sample in samples {
            let labels = sample.labels_text();
            let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
            let _ = writeln!(text, "{name}{}{open}{labels}{close} {}", sample.suffix, sample.value);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus_s() {
        let mut metrics = Metrics::default();
        metrics.counter("a_total", "A.", 3);
        metrics.add(MetricKind::Gauge, "b", "B.").with(&[("x", "say \"no\"\\\n")], 4u64);
        let mut counts = [0; BOUNDS.len() + 1];
        (counts[0], counts[BOUNDS.len()]) = (2, 1);
        metrics.add(MetricKind::Histogram, "c", "C.").histogram(&[("k", "v")], &counts, Duration::from_millis(1500));
        let text = prometheus_text(&metrics.0);
        let head = "# HELP a_total A.\n# TYPE a_total counter\na_total 3\n# HELP b B.\n# TYPE b gauge\nb{x=\"say \\\"no\\\"\\\\\\n\"} 4\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("c_bucket{k=\"v\",le=\"0.0001\"} 2\n"), "{text}");
        assert!(text.ends_with(
            "c_bucket{k=\"v\",le=\"60\"} 2\nc_bucket{k=\"v\",le=\"+Inf\"} 3\nc_sum{k=\"v\"} 1.5\nc_count{k=\"v\"} 3\n"
        ));
    }
}
