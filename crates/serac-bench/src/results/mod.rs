//! `serac-bench report`: the results, kept as data, and the tables and plots made from them.
//!
//! `docs/benchmarks/results` has a file per question, with every run. The pages show the latest run
//! of each series between markers, and `docs/figures` has the plots. This command writes both. A
//! test checks with `--check` that they agree with the data.

mod data;
mod dates;
mod page;

use crate::plot::{Bar, Bars, Days, Line};
use crate::postgres::Installation;
use crate::report::{median, processor};
use crate::setup::text;
use data::{Column, Plot, PlotKind, Question, Row, Run, Series, is_selected};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pages with tables, in the folder of documents.
const PAGES: [&str; 2] = ["benchmarks.md", "benchmarks-storage.md"];

#[derive(clap::Args, Debug)]
pub struct ReportArguments {
    /// Folder of documents: pages, `figures`, and `benchmarks/results`.
    #[arg(long, default_value = "docs")]
    docs: PathBuf,
    /// Fails if a page, a plot or the form of a file of results is not what the data gives, and
    /// writes nothing.
    #[arg(long, conflicts_with = "add")]
    check: bool,
    /// Adds a run: a file with the rows that a subcommand printed with `--json`, or `-` for
    /// standard input.
    #[arg(long, requires_all = ["series", "command"])]
    add: Option<PathBuf>,
    /// The series that the rows belong to.
    #[arg(long, requires = "add")]
    series: Option<String>,
    /// The command that printed the rows.
    #[arg(long, requires = "add")]
    command: Option<String>,
    /// Under what conditions it ran.
    #[arg(long, requires = "add")]
    note: Option<String>,
    /// Rows of the table are missing: the table goes on to show the run before.
    #[arg(long, requires = "add")]
    partial: bool,
    /// A peer and its version, as "NAME=VERSION", in place of the installed one.
    #[arg(long, requires = "add")]
    peer: Vec<String>,
}

/// Adds a run if one is given, and writes or checks all files that are made from the data.
pub fn run(arguments: &ReportArguments) -> Result<(), String> {
    let mut questions = data::read_all(&arguments.docs.join("benchmarks/results"))?;
    if let (Some(file), Some(series), Some(command)) = (&arguments.add, &arguments.series, &arguments.command) {
        add(&mut questions, arguments, file, series, command)?;
    }
    let mut stale = Vec::new();
    for (path, content) in outcome(&arguments.docs, &questions)? {
        if std::fs::read_to_string(&path).is_ok_and(|present| present == content) {
            continue;
        }
        if arguments.check {
            stale.push(path.display().to_string());
        } else {
            std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
            eprintln!("{}", path.display());
        }
    }
    match stale.len() {
        0 => Ok(()),
        _ => Err(format!("not what the data gives (serac-bench report writes it): {}", stale.join(", "))),
    }
}

/// Every file that is made from the data, with its content.
fn outcome(docs: &Path, questions: &[Question]) -> Result<Vec<(PathBuf, String)>, String> {
    let mut files = Vec::new();
    let mut pages = String::new();
    for name in PAGES {
        let path = docs.join(name);
        let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let page = page::with_tables(&page, |name| {
            let of = |question: &Question| question.series(name).is_ok();
            let question = questions.iter().find(|question| of(question));
            let question = question.ok_or_else(|| format!("{}: there is no series {name}", path.display()))?;
            page::table(question, question.series(name)?)
        })?;
        pages += &page;
        files.push((path, page));
    }
    for question in questions {
        files.push((docs.join(format!("benchmarks/results/{}.json", question.file)), question.text()));
        for series in question.series.iter().filter(|series| series.table.is_some()) {
            if !page::markers(&pages).any(|name| name == series.name) {
                return Err(format!("no page has the table of series {}", series.name));
            }
        }
        for plot in &question.plots {
            if !pages.contains(&format!("](figures/{}.svg)", plot.name)) {
                return Err(format!("no page shows the plot {}", plot.name));
            }
            let svg = drawn(plot, question.series(&plot.series)?)?;
            files.push((docs.join(format!("figures/{}.svg", plot.name)), svg));
        }
    }
    Ok(files)
}

/// The name of a row in a plot.
fn label(plot: &Plot, row: &Row) -> String {
    let part = |name: &String| match row.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(format!("{name} {other}")),
    };
    plot.label.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

fn drawn(plot: &Plot, series: &Series) -> Result<String, String> {
    let columns: Vec<&Column> = plot.values.iter().map(|name| series.column(name)).collect::<Result<_, _>>()?;
    let selected =
        |run: &Run| -> Vec<Row> { run.rows.iter().filter(|r| is_selected(r, &plot.only)).cloned().collect() };
    let (title, axis) = (plot.title.clone(), plot.axis.clone());
    if plot.kind == PlotKind::Bars {
        let bar = |row: &Row| Bar {
            name: label(plot, row),
            values: columns.iter().map(|column| row.get(&column.name).and_then(Value::as_f64)).collect(),
        };
        let bars = selected(series.latest()?).iter().map(bar).collect();
        let names = columns.iter().map(|column| column.title().to_owned()).collect();
        let (logarithmic, reference) = (plot.logarithmic, plot.reference);
        return Ok(Bars { title, axis, logarithmic, reference, names, bars }.svg());
    }
    // The figures of each line by day.
    let mut lines: Vec<(String, BTreeMap<i64, Vec<f64>>)> = Vec::new();
    for run in &series.runs {
        let day = dates::day(&run.date).ok_or_else(|| format!("{:?} is not a date", run.date))?;
        for row in selected(run) {
            for column in &columns {
                let Some(figure) = row.get(&column.name).and_then(Value::as_f64) else { continue };
                let name = match (label(plot, &row), columns.len()) {
                    (label, _) if label.is_empty() => column.title().to_owned(),
                    (label, 1) => label,
                    (label, _) => format!("{label}, {}", column.title()),
                };
                let at = lines.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
                    lines.push((name, BTreeMap::new()));
                    lines.len() - 1
                });
                lines[at].1.entry(day).or_default().push(figure);
            }
        }
    }
    if lines.is_empty() {
        return Err(format!("no figure for the plot {}", plot.name));
    }
    let scattered = lines
        .iter()
        .map(|(_, days)| days.iter().flat_map(|(day, all)| all.iter().map(|y| (*day as f64, *y))).collect())
        .collect();
    let medians = lines
        .iter()
        .map(|(name, days)| Line {
            name: name.clone(),
            points: days.iter().map(|(day, all)| (*day as f64, median(all.clone()))).collect(),
        })
        .collect();
    let name = |day: f64| dates::date(day as i64);
    Ok(Days { title, axis, reference: plot.reference, medians, scattered }.svg(name))
}

/// Adds the rows of a run to their series, with the day, the commit, the machine and the peers'
/// versions.
fn add(
    questions: &mut [Question],
    arguments: &ReportArguments,
    file: &Path,
    series: &str,
    command: &str,
) -> Result<(), String> {
    let all = questions.iter_mut().flat_map(|question| &mut question.series);
    let series = all.into_iter().find(|of| of.name == series).ok_or_else(|| format!("there is no series {series}"))?;
    let rows = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map_err(text)?
    } else {
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?
    };
    let mut peers = BTreeMap::new();
    for name in series.runs.last().iter().flat_map(|run| run.peers.keys()) {
        let given = arguments.peer.iter().filter_map(|peer| peer.split_once('=')).find(|(peer, _)| peer == name);
        let version = given.map_or_else(|| installed_version(name, command), |(_, version)| Ok(version.to_owned()))?;
        peers.insert(name.clone(), version);
    }
    series.runs.push(Run {
        date: dates::today(),
        commit: commit().ok(),
        machine: processor(),
        command: command.to_owned(),
        peers,
        note: arguments.note.clone(),
        partial: arguments.partial,
        rows: known_rows(series, &rows)?,
    });
    Ok(())
}

/// Reads rows as `--json` prints them, one a line. An error if the series lacks one of their
/// columns.
fn known_rows(series: &Series, text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let row: Row = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        for name in row.keys() {
            series.column(name)?;
        }
        let says_what = |name: &str| series.columns.iter().any(|column| column.name == name && column.metric.is_some());
        if !row.keys().any(|name| says_what(name)) {
            return Err(format!("{line}: no figure of series {}", series.name));
        }
        rows.push(row.into_iter().map(|(name, value)| (name, data::rounded(value))).collect());
    }
    if rows.is_empty() { Err("there are no rows".into()) } else { Ok(rows) }
}

/// The version of a peer that the benchmarks would use now.
fn installed_version(peer: &str, command: &str) -> Result<String, String> {
    match peer {
        "SQLite" => Ok(rusqlite::version().into()),
        "PostgreSQL" => {
            let mut words = command.split_whitespace().skip_while(|word| *word != "--postgres").skip(1);
            let major = words.next().map_or(Ok(15), str::parse).map_err(text)?;
            Ok(Installation::find(major)?.version().trim_start_matches("PostgreSQL ").to_owned())
        }
        _ => {
            let script = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
            said(Command::new("target/peers/bin/python").args(["-c", script, peer]))
                .map_err(|error| format!("the version of {peer} is not known; give it with --peer ({error})"))
        }
    }
}

/// The commit, and whether the sources differ from it; an error where Git cannot tell.
fn commit() -> Result<String, String> {
    let hash = said(Command::new("git").args(["rev-parse", "--short=10", "HEAD"]))?;
    let changes = said(Command::new("git").args(["status", "--porcelain", "--untracked-files=no", "--", "crates"]))?;
    Ok(if changes.is_empty() { hash } else { format!("{hash}, changed") })
}

/// The output of a program that ends well.
fn said(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    crate::postgres::succeeded(&program, output).map(|output| output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        serde_json::from_str(
            r#"{"name": "s", "shows": "x", "columns": [{"name": "way"}, {"name": "ms", "metric": "time"}],
            "runs": [{"date": "2026-01-31", "machine": "m", "command": "c", "rows": [{"way": "a", "ms": 2}]},
            {"date": "2026-02-02", "machine": "m", "command": "c", "rows": [{"way": "a", "ms": 4}, {"way": "b", "ms": 8}]}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn rows_that_a_series_does_not_know_are_refused() {
        let series = series();
        let rows =
            known_rows(&series, "{\"way\": \"a\", \"ms\": 1.23456789}\n\n{\"way\": \"b\", \"ms\": null}\n").unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["ms"], 1.23457);
        assert!(known_rows(&series, "{\"way\": \"a\", \"s\": 1}").unwrap_err().contains("no column \"s\""));
        assert!(known_rows(&series, "{\"way\": \"a\"}").unwrap_err().contains("no figure"));
        assert!(known_rows(&series, "\n").unwrap_err().contains("no rows"));
        assert!(known_rows(&series, "way, ms").is_err());
    }

    #[test]
    fn a_history_has_a_line_for_each_label() {
        let plot = |kind: &str| -> Plot {
            let text = format!(
                r#"{{"name": "p", "kind": "{kind}", "series": "s", "title": "t", "axis": "time, ms", "label": ["way"],
                "values": ["ms"]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let svg = drawn(&plot("history"), &series()).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("2026-01-31") && svg.contains("2026-02-02") && svg.contains("time, ms"));
        let svg = drawn(&plot("bars"), &series()).unwrap();
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
    }
}
