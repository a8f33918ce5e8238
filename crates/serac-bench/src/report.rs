//! Rows of figures, as a table or as JSON lines.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value};

pub struct Report {
    json: bool,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

/// The processor on which this is measured.
pub fn processor() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map_or("unknown CPU", |l| l.trim_start_matches(['\t', ' ', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores")
}

/// The program that is measured, and the machine that it runs on.
pub fn machine() -> String {
    format!("SeracDB {} on {}", env!("CARGO_PKG_VERSION"), processor())
}

impl Report {
    pub fn new(json: bool) -> Self {
        eprintln!("{}", machine());
        Self { json, columns: Vec::new(), rows: Vec::new(), notes: Vec::new() }
    }

    /// A row of named figures; the first row names the columns.
    pub fn row(&mut self, figures: &[(&str, Value)]) {
        if self.json {
            let object: Map<String, Value> = figures.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
            println!("{}", Value::Object(object));
            return;
        }
        self.columns = figures.iter().map(|(n, _)| n.to_string()).collect();
        let text = |value: &Value| match value {
            Value::String(s) => s.clone(),
            Value::Null => "–".into(),
            Value::Number(n) if n.is_f64() => {
                let n = n.as_f64().unwrap_or_default();
                if n.abs() >= 1000.0 { format!("{n:.0}") } else { format!("{n:.2}") }
            }
            other => other.to_string(),
        };
        self.rows.push(figures.iter().map(|(_, v)| text(v)).collect());
    }

    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn finish(self) {
        if !self.json {
            let mut table = Table::new();
            table.load_style(presets::UTF8_BORDERS_ONLY);
            table.set_header(&self.columns);
            for i in 1..self.columns.len() {
                table.column_mut(i).expect("as many as headers").set_cell_alignment(CellAlignment::Right);
            }
            table.add_rows(self.rows);
            println!("{table}");
        }
        for note in self.notes {
            eprintln!("{note}");
        }
    }
}

/// The middle of some measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
