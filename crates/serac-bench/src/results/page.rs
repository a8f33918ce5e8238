//! Tables of Markdown, which stand in a page between `<!-- table: NAME -->` and `<!-- end -->`.

use super::data::{Column, Pivot, Question, Row, Run, Series, is_selected};
use serde_json::Value;

const COLUMNS: usize = 100;

/// The names in the markers of a page.
pub fn markers(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix("<!-- table: ")?.strip_suffix(" -->"))
}

/// The page with the texts of `table` between the markers.
pub fn with_tables(page: &str, mut table: impl FnMut(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out += line;
        out += "\n";
        let Some(name) = markers(line).next() else { continue };
        if !lines.any(|line| line == "<!-- end -->") {
            return Err(format!("the table {name} has no end"));
        }
        out += &table(name)?;
        out += "<!-- end -->\n";
    }
    Ok(out)
}

/// The latest run of a series: its command and circumstances, and the table.
pub fn table(question: &Question, series: &Series) -> Result<String, String> {
    let shape = series.table.as_ref().ok_or_else(|| format!("series {} has no table", series.name))?;
    let run = series.latest()?;
    let rows: Vec<&Row> = run.rows.iter().filter(|row| is_selected(row, &shape.only)).collect();
    let lines = match &shape.pivot {
        Some(pivot) => pivoted(series, pivot, &rows)?,
        None => listed(series, &shape.columns, &rows)?,
    };
    let mut out = circumstances(question, series, run);
    out += "\n";
    for (at, line) in lines.cells.iter().enumerate() {
        for cell in line {
            out += "|";
            out += &if cell.is_empty() { " ".into() } else { format!(" {} ", cell.replace('|', "\\|")) };
        }
        out += "|\n";
        if at == 0 {
            let rule: Vec<&str> = lines.is_figure.iter().map(|figure| if *figure { "---:" } else { "---" }).collect();
            out += &format!("|{}|\n", rule.join("|"));
        }
    }
    Ok(out)
}

/// The texts of a table.
struct Lines {
    /// The first line is the header.
    cells: Vec<Vec<String>>,
    /// Whether each column has figures.
    is_figure: Vec<bool>,
}

/// A line for each row.
fn listed(series: &Series, names: &[String], rows: &[&Row]) -> Result<Lines, String> {
    let columns: Vec<&Column> = names.iter().map(|name| series.column(name)).collect::<Result<_, _>>()?;
    let mut cells = vec![columns.iter().map(|column| column.title().to_owned()).collect()];
    cells.extend(rows.iter().map(|row| columns.iter().map(|column| text(column, row.get(&column.name))).collect()));
    Ok(Lines { cells, is_figure: columns.iter().map(|column| column.metric.is_some()).collect() })
}

/// A line for each value of the pivot's labels, and a column for each value of its column.
fn pivoted(series: &Series, pivot: &Pivot, rows: &[&Row]) -> Result<Lines, String> {
    let labels: Vec<&Column> = pivot.rows.iter().map(|name| series.column(name)).collect::<Result<_, _>>()?;
    let (across, figures) = (series.column(&pivot.columns)?, series.column(&pivot.value)?);
    let key_of = |row: &Row| -> Vec<Value> {
        labels.iter().map(|label| row.get(&label.name).cloned().unwrap_or_default()).collect()
    };
    let mut heads: Vec<Option<&Value>> = Vec::new();
    let mut keys: Vec<Vec<Value>> = Vec::new();
    for row in rows {
        if !heads.contains(&row.get(&across.name)) {
            heads.push(row.get(&across.name));
        }
        if !keys.contains(&key_of(row)) {
            keys.push(key_of(row));
        }
    }
    let title = across.title.as_ref().map_or(String::new(), |title| format!("{title} "));
    let unit = across.unit.as_ref().map_or(String::new(), |unit| format!(" {unit}"));
    let header = labels.iter().map(|label| label.title().to_owned());
    let header = header.chain(heads.iter().map(|head| format!("{title}{}{unit}", text(across, *head))));
    let mut cells = vec![header.collect::<Vec<String>>()];
    for key in &keys {
        let figure = |head: &Option<&Value>| {
            let row = rows.iter().find(|row| row.get(&across.name) == *head && key_of(row) == *key);
            text(figures, row.and_then(|row| row.get(&figures.name)))
        };
        let names = labels.iter().zip(key).map(|(label, value)| text(label, Some(value)));
        cells.push(names.chain(heads.iter().map(figure)).collect());
    }
    let is_figure = (0..cells[0].len()).map(|at| at >= labels.len()).collect();
    Ok(Lines { cells, is_figure })
}

/// Command, day, machine, peers, and a link to all runs.
fn circumstances(question: &Question, series: &Series, run: &Run) -> String {
    let mut parts = vec![format!("`{}`", run.command), run.date.clone(), run.machine.clone()];
    parts.extend(run.commit.as_ref().map(|commit| format!("commit {commit}")));
    let peers: Vec<String> = run.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    parts.extend((!peers.is_empty()).then(|| peers.join(", ")));
    let runs = match series.runs.len() {
        1 => "1 run".into(),
        runs => format!("{runs} runs"),
    };
    parts.push(format!("[{runs}]"));
    let mut out = String::from("\n");
    let mut width = 0;
    let text = parts.join("; ");
    let words: Vec<&str> = text.split(' ').collect();
    for (at, word) in words.iter().enumerate() {
        // The target of a link takes no columns, but the brackets around it do.
        let columns = word.chars().count() + if at + 1 == words.len() { "().".len() } else { 0 };
        if width > 0 && width + 1 + columns > COLUMNS {
            out += "\n";
            width = 0;
        } else if width > 0 {
            out += " ";
            width += 1;
        }
        out += word;
        width += columns;
    }
    out + &format!("(benchmarks/results/{}.json).\n", question.file)
}

/// A figure or a text in a table.
fn text(column: &Column, value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Null) => "–".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => {
            let figure = match (column.decimals, number.as_f64()) {
                (Some(decimals), Some(figure)) => format!("{figure:.decimals$}"),
                (None, Some(figure)) if number.is_f64() => short(figure),
                _ => number.to_string(),
            };
            with_thousands(&figure)
        }
        Some(other) => other.to_string(),
    }
}

/// A figure with a number of decimals that suits its size.
fn short(figure: f64) -> String {
    let decimals = match figure.abs() {
        1000.0.. => return format!("{figure:.0}"),
        1.0.. => 2,
        _ => 4,
    };
    format!("{figure:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// "1234567.5" as "1,234,567.5".
fn with_thousands(figure: &str) -> String {
    let (whole, part) = figure.split_at(figure.find('.').unwrap_or(figure.len()));
    if !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return figure.to_owned();
    }
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(table: &str) -> Question {
        let text = format!(
            r#"{{"question": "q?", "series": [{{"name": "s", "shows": "x", "table": {table}, "columns": [
            {{"name": "way"}}, {{"name": "hot", "title": "hot", "unit": "%"}}, {{"name": "ms", "title": "time, ms", "metric": "time", "decimals": 1}}],
            "runs": [{{"date": "2026-01-31", "machine": "m", "command": "c", "peers": {{"P": "1"}}, "rows": [
            {{"way": "a", "hot": 0, "ms": 1234.56}}, {{"way": "a", "hot": 50, "ms": null}}, {{"way": "b|", "hot": 50, "ms": 3}}]}},
            {{"date": "2026-02-01", "machine": "m", "command": "c", "partial": true, "rows": [{{"way": "a", "hot": 0, "ms": 9}}]}}]}}]}}"#
        );
        Question { file: "f".into(), ..serde_json::from_str(&text).unwrap() }
    }

    #[test]
    fn a_table_shows_the_latest_run_that_has_all() {
        let question = question(r#"{"columns": ["way", "ms"], "only": {"hot": [0]}}"#);
        let expected = "\n`c`; 2026-01-31; m; P 1; [2 runs](benchmarks/results/f.json).\n\n\
            | way | time, ms |\n|---|---:|\n| a | 1,234.6 |\n";
        assert_eq!(table(&question, &question.series[0]).unwrap(), expected);
    }

    #[test]
    fn a_pivot_has_a_column_for_each_value() {
        let question = question(r#"{"pivot": {"rows": ["way"], "columns": "hot", "value": "ms"}}"#);
        let expected = "| way | hot 0 % | hot 50 % |\n|---|---:|---:|\n| a | 1,234.6 | – |\n| b\\| | | 3.0 |\n";
        let table = table(&question, &question.series[0]).unwrap();
        assert!(table.ends_with(expected), "{table}");
    }

    #[test]
    fn figures_have_the_digits_that_matter() {
        let column = Column { name: "a".into(), title: None, metric: None, unit: None, engine: None, decimals: None };
        let said = |value: f64| text(&column, Some(&value.into()));
        assert_eq!([8000.12, 67.128, 12.0, 0.00321].map(said), ["8,000", "67.13", "12", "0.0032"]);
        assert_eq!(text(&Column { decimals: Some(1), ..column }, Some(&1183.into())), "1,183.0");
    }

    #[test]
    fn tables_stand_between_their_markers() {
        let page = "# P\n<!-- table: a -->\nold\n<!-- end -->\ntext\n";
        let written = with_tables(page, |name| Ok(format!("new {name}\n"))).unwrap();
        assert_eq!(written, "# P\n<!-- table: a -->\nnew a\n<!-- end -->\ntext\n");
        assert_eq!(with_tables(&written, |name| Ok(format!("new {name}\n"))).unwrap(), written);
        assert!(with_tables("<!-- table: a -->\n", |_| Ok(String::new())).unwrap_err().contains("no end"));
        assert!(with_tables(page, |name| Err(name.into())).is_err());
    }
}
