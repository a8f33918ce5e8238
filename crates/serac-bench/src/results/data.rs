//! Results as data: a file per question, which holds each of its series with the columns, the shape
//! of the table, the plots, and every run.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Figures of one row by the names of their columns, which are those of `--json`.
pub type Row = BTreeMap<String, Value>;
/// Columns with the values that count; null stands for a column that a row does not have.
pub type Selection = BTreeMap<String, Vec<Value>>;

/// A file of results.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question that the runs answer.
    pub question: String,
    pub series: Vec<Series>,
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Name of the file, without its ending.
    #[serde(skip)]
    pub file: String,
}

/// Runs whose rows have the same columns.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name in the pages' markers, different from those of all other series.
    pub name: String,
    /// The measurement, in a line.
    pub shows: String,
    pub columns: Vec<Column>,
    /// The form in which the pages show the latest run; without it they do not show it.
    #[serde(default)]
    pub table: Option<Table>,
    /// From the oldest to the latest.
    pub runs: Vec<Run>,
}

/// A column of a series.
#[derive(Serialize, Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    /// Heading in tables and legends, where it is not the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The quantity. A column without a quantity names the subject of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The engine, where a column belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Digits behind the point in tables; by default as many as the figure has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decimals: Option<usize>,
}

impl Column {
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

/// The shape of a table.
#[derive(Serialize, Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Columns that are shown, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Rows that are shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: Selection,
    /// One figure of each row, in place of `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pivot: Option<Pivot>,
}

/// A table with a column for each value of a column.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Pivot {
    /// Columns whose values begin a line.
    pub rows: Vec<String>,
    /// The column whose values head the others.
    pub columns: String,
    /// The figure.
    pub value: String,
}

/// One run of a command.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Year, month and day.
    pub date: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    pub machine: String,
    pub command: String,
    /// Versions by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, String>,
    /// The conditions of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether figures of the table are missing, so that the table does not show this run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    pub rows: Vec<Row>,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Bars of the latest run.
    Bars,
    /// Figures of all runs by their dates.
    History,
}

/// A plot of a series.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Name of the SVG file, without its ending.
    pub name: String,
    pub kind: PlotKind,
    pub series: String,
    pub title: String,
    /// The text at the axis of figures, with the unit.
    pub axis: String,
    /// Columns whose values name a bar or a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<String>,
    /// Columns with figures, each a bar or a line of its own.
    pub values: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: Selection,
    /// The value at which a line for comparison is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub logarithmic: bool,
}

impl Series {
    pub fn column(&self, name: &str) -> Result<&Column, String> {
        let column = self.columns.iter().find(|column| column.name == name);
        column.ok_or_else(|| format!("series {} has no column {name:?}", self.name))
    }

    /// The latest run that has all figures of the table.
    pub fn latest(&self) -> Result<&Run, String> {
        let run = self.runs.iter().rev().find(|run| !run.partial);
        run.ok_or_else(|| format!("series {} has no run with all figures", self.name))
    }
}

/// Whether a row is one of the selected.
pub fn is_selected(row: &Row, only: &Selection) -> bool {
    only.iter().all(|(column, values)| values.contains(row.get(column).unwrap_or(&Value::Null)))
}

/// A figure with at most six significant digits. More digits are noise, and six digits read back as
/// the same figure.
pub fn rounded(value: Value) -> Value {
    let Some(figure) = value.as_f64().filter(|_| value.is_f64()) else { return value };
    let short: f64 = format!("{figure:.5e}").parse().unwrap_or(figure);
    if short.fract() == 0.0 && short.abs() < 1e15 {
        return Value::from(short as i64);
    }
    Number::from_f64(short).map_or(Value::Null, Value::Number)
}

impl Question {
    pub fn read(path: &Path) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
        let mut question: Self = serde_json::from_str(&text).map_err(|error| said(&error))?;
        question.file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        question.verify().map_err(|error| said(&error))?;
        Ok(question)
    }

    /// Checks that names refer to series and columns, and that runs are in the order of time.
    fn verify(&self) -> Result<(), String> {
        for series in &self.series {
            let known: HashSet<&str> = series.columns.iter().map(|column| column.name.as_str()).collect();
            for run in &series.runs {
                let names = || run.rows.iter().flat_map(Row::keys);
                if let Some(name) = names().find(|name| !known.contains(name.as_str())) {
                    return Err(format!("series {}, run of {}: no column {name:?} is known", series.name, run.date));
                }
                super::dates::day(&run.date).ok_or_else(|| format!("{:?} is not a date", run.date))?;
            }
            if !series.runs.is_sorted_by(|a, b| a.date <= b.date) {
                return Err(format!("series {}: runs do not follow each other in time", series.name));
            }
            if let Some(table) = &series.table {
                let pivot =
                    table.pivot.iter().flat_map(|pivot| pivot.rows.iter().chain([&pivot.columns, &pivot.value]));
                for name in table.columns.iter().chain(table.only.keys()).chain(pivot) {
                    series.column(name)?;
                }
                series.latest()?;
            }
        }
        for plot in &self.plots {
            let series = self.series(&plot.series)?;
            for name in plot.label.iter().chain(&plot.values).chain(plot.only.keys()) {
                series.column(name)?;
            }
        }
        Ok(())
    }

    pub fn series(&self, name: &str) -> Result<&Series, String> {
        let series = self.series.iter().find(|series| series.name == name);
        series.ok_or_else(|| format!("{} has no series {name:?}", self.file))
    }

    /// The file's text: a row, a column and a plot have a line each.
    pub fn text(&self) -> String {
        let mut out = format!("{{\n  \"question\": {},\n  \"series\": [", json(&self.question));
        for (at, series) in self.series.iter().enumerate() {
            out += if at == 0 { "\n    {\n" } else { ",\n    {\n" };
            out += &format!("      \"name\": {},\n      \"shows\": {},\n", json(&series.name), json(&series.shows));
            out += &format!("      \"columns\": [\n{}\n      ],\n", lines(series.columns.iter().map(json), 8));
            if let Some(table) = &series.table {
                out += &format!("      \"table\": {},\n", json(table));
            }
            let runs: Vec<String> = series.runs.iter().map(|run| run.text(&series.columns)).collect();
            out += &format!("      \"runs\": [\n{}\n      ]\n    }}", runs.join(",\n"));
        }
        let plots = lines(self.plots.iter().map(json), 4);
        out += &format!(
            "\n  ],\n  \"plots\": [{}]\n}}\n",
            if plots.is_empty() { plots } else { format!("\n{plots}\n  ") }
        );
        out
    }
}

impl Run {
    fn text(&self, columns: &[Column]) -> String {
        let mut fields = vec![("date", json(&self.date))];
        fields.extend(self.commit.as_ref().map(|commit| ("commit", json(commit))));
        fields.extend([("machine", json(&self.machine)), ("command", json(&self.command))]);
        fields.extend((!self.peers.is_empty()).then(|| ("peers", json(&self.peers))));
        fields.extend(self.note.as_ref().map(|note| ("note", json(note))));
        fields.extend(self.partial.then(|| ("partial", json(&true))));
        let row = |row: &Row| {
            let figures: Vec<String> = columns
                .iter()
                .filter_map(|column| Some(format!("{}: {}", json(&column.name), json(row.get(&column.name)?))))
                .collect();
            format!("{{{}}}", figures.join(", "))
        };
        fields.push(("rows", format!("[\n{}\n          ]", lines(self.rows.iter().map(row), 12))));
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("          \"{name}\": {value}")).collect();
        format!("        {{\n{}\n        }}", fields.join(",\n"))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("figures, texts and names can be written")
}

fn lines(items: impl Iterator<Item = String>, indent: usize) -> String {
    items.map(|item| format!("{:indent$}{item}", "")).collect::<Vec<_>>().join(",\n")
}

/// All files of results in a folder.
pub fn read_all(folder: &Path) -> Result<Vec<Question>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(said)? {
        paths.push(entry.map_err(said)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let questions: Vec<Question> = paths.iter().map(|path| Question::read(path)).collect::<Result<_, _>>()?;
    let mut names = HashSet::new();
    for name in questions.iter().flat_map(|question| &question.series).map(|series| &series.name) {
        if !names.insert(name) {
            return Err(format!("two series have the name {name}"));
        }
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn figures_keep_six_digits() {
        for (figure, short) in [
            (value!(0.123_456_789), value!(0.123_457)),
            (value!(45_678.912_345), value!(45678.9)),
            (value!(1_234_567.8), value!(1_234_570)),
            (value!(2.0), value!(2)),
            (value!(1_234_567), value!(1_234_567)),
            (value!("text"), value!("text")),
        ] {
            assert_eq!(rounded(figure), short);
        }
    }

    #[test]
    fn null_selects_rows_without_a_column() {
        let only = Selection::from([("version".into(), vec![Value::Null, value!("after")])]);
        let row = |version: Value| Row::from([("version".into(), version)]);
        assert!(is_selected(&Row::new(), &only) && is_selected(&row(value!("after")), &only));
        assert!(!is_selected(&row(value!("before")), &only));
    }

    #[test]
    fn the_text_of_a_file_is_read_as_the_same_file() {
        let text = r#"{"question": "q?", "series": [{"name": "s", "shows": "x", "columns": [{"name": "b"}, {"name": "a"}],
            "table": {"columns": ["a"]}, "runs": [{"date": "2026-01-31", "machine": "m", "command": "c", "note": "n",
            "rows": [{"a": 1.25, "b": "ü"}, {"a": null}]}]}], "plots": []}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        let written = question.text();
        assert!(written.contains("            {\"b\": \"ü\", \"a\": 1.25},\n"), "{written}");
        let again: Question = serde_json::from_str(&written).unwrap();
        assert_eq!(again.text(), written);
        question.verify().unwrap();
    }

    #[test]
    fn a_row_with_a_figure_of_no_column_is_an_error() {
        let text = r#"{"question": "q?", "series": [{"name": "s", "shows": "x", "columns": [{"name": "a"}],
            "runs": [{"date": "2026-01-31", "machine": "m", "command": "c", "rows": [{"b": 1}]}]}]}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        assert!(question.verify().unwrap_err().contains("no column \"b\""));
    }
}
