//! The rows and charts of one figure: as a table, and as files.

use crate::plot::{Chart, Line};
use crate::report::{Report, median};
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;
use std::time::Instant;

/// The folder and the kinds of files for the results.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Directory for the results as JSON and, with --plot, the charts.
    #[arg(long, global = true)]
    pub out: Option<PathBuf>,
    /// Write charts as SVG.
    #[arg(long, global = true, requires = "out")]
    pub plot: bool,
}

/// Collects the rows and lines of one figure.
pub struct Recorder<'r, A> {
    name: &'static str,
    pub arguments: &'r A,
    output: &'r Output,
    report: &'r mut Report,
    rows: Vec<Json>,
    charts: Vec<Chart>,
}

impl<'r, A> Recorder<'r, A> {
    pub fn new(name: &'static str, arguments: &'r A, output: &'r Output, report: &'r mut Report) -> Self {
        Self { name, arguments, output, report, rows: Vec::new(), charts: Vec::new() }
    }

    pub fn row(&mut self, figures: &[(&str, Json)]) {
        self.report.row(figures);
        self.rows.push(Json::Object(figures.iter().map(|(n, v)| (n.to_string(), v.clone())).collect::<Map<_, _>>()));
    }

    pub fn note(&mut self, note: String) {
        self.report.note(note);
    }

    pub fn chart(&mut self, title: &str, x: &str, y: &str, log_x: bool) {
        let (title, x, y) = (title.to_owned(), x.to_owned(), y.to_owned());
        self.charts.push(Chart { title, x, y, log_x, lines: Vec::new() });
    }

    /// Adds a point to a line of the last chart.
    pub fn point(&mut self, line: &str, x: f64, y: f64) {
        let Some(chart) = self.charts.last_mut() else { return };
        match chart.lines.iter_mut().find(|other| other.name == line) {
            Some(line) => line.points.push((x, y)),
            None => chart.lines.push(Line { name: line.into(), points: vec![(x, y)] }),
        }
    }

    pub fn write(self) -> Result<(), String> {
        let Some(directory) = &self.output.out else { return Ok(()) };
        let said = |error: std::io::Error| format!("{}: {error}", directory.display());
        std::fs::create_dir_all(directory).map_err(said)?;
        let command: Vec<String> = std::env::args().collect();
        let result = json!({ "command": command.join(" "), "machine": crate::report::machine(), "rows": self.rows });
        let text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
        std::fs::write(directory.join(format!("{}.json", self.name)), text).map_err(said)?;
        if self.output.plot {
            for (at, chart) in self.charts.iter().enumerate() {
                let number = if self.charts.len() > 1 { format!("-{}", at + 1) } else { String::new() };
                std::fs::write(directory.join(format!("{}{number}.svg", self.name)), chart.svg()).map_err(said)?;
            }
        }
        Ok(())
    }
}

/// The median of `runs` runs in milliseconds, after one that is not counted.
pub fn milliseconds(runs: usize, mut run: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..runs.max(1) {
        let begun = Instant::now();
        run()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}
