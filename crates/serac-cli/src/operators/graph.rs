//! The graph of the last batch, as `info()` writes it, drawn for a person.
//!
//! Statements stand below each other, level by level. The result of a statement is a lane, from its
//! row down to the last row that uses it:
//!
//! ```text
//! ── level 1 ──────────────────
//!  ┌───── a = select(d.t.a)       9 rows  0.050 ms  multiselect
//!  │ ┌─── b = select(d.t.a)       5 rows            ″
//! ── level 2 ──────────────────
//!  └─│─┬─ f = fetch(d.t.b, a)     9 rows  0.010 ms
//!  ┌─┴─│─ g = fetch(d.t.b, b)     5 rows  0.008 ms
//! ── level 3 ──────────────────
//!  │   └─ s = sum(f)               1 row  0.002 ms
//!  └───── m = max(g)               1 row  0.002 ms
//! ```
//! A corner begins or ends a lane, a `├`, `┼` or `┴` uses it, and a line that meets a `│` passes
//! behind it.

use std::collections::HashMap;
use std::fmt::Write;

/// More lanes would leave no room for statements; the names show the other dependencies.
const MOST_LANES: usize = 16;

/// A statement of the batch.
struct Link<'t> {
    level: usize,
    /// The statements whose results it uses, by their places in the text.
    inputs: Vec<usize>,
    text: &'t str,
    outcome: &'t str,
    took: &'t str,
    part: &'t str,
}

/// The statements of the batch, in the order of the text.
fn links<'t>(lines: &mut std::iter::Peekable<std::str::Lines<'t>>) -> Option<Vec<Link<'t>>> {
    let (mut links, mut newest): (Vec<Link<'t>>, HashMap<&str, usize>) = Default::default();
    let (mut took, mut part) = ("", "");
    let is_of_graph = |line: &&str| {
        line.starts_with("level ") || line.starts_with("    line ") || (line.starts_with("  ") && line.ends_with(" ms"))
    };
    while let Some(line) = lines.next_if(is_of_graph) {
        if let Some(link) = line.strip_prefix("    line ") {
            let (_, link) = link.split_once(": ")?;
            let end = link.rfind(')')? + 1;
            let (text, outcome) = (&link[..end], link[end..].trim_start_matches(", "));
            let (outputs, call) = text.split_once(" = ")?;
            let (_, inputs) = call.strip_suffix(')')?.split_once('(')?;
            let inputs: Vec<usize> = inputs.split(", ").filter_map(|input| newest.get(input).copied()).collect();
            let level = 1 + inputs.iter().map(|input| links[*input].level).max().unwrap_or(0);
            newest.extend(outputs.split(", ").map(|output| (output, links.len())));
            links.push(Link { level, inputs, text, outcome, took, part });
            // The time counts for all statements of the part.
            (took, part) = ("", "″");
        } else if let Some((name, time)) = line.trim_start().rsplit_once(" in ") {
            (took, part) = (time, if name == "alone" { "" } else { name });
        }
    }
    Some(links)
}

/// The lanes beside a row: the used lanes, a part of which ends, and the lane that it begins.
fn beside(live: &[bool], used: &[usize], ends: impl Fn(usize) -> bool, begins: Option<usize>) -> String {
    let first = used.iter().copied().chain(begins).min();
    let mut text = String::new();
    for (lane, &is_live) in live.iter().enumerate() {
        let is_passed = first.is_some_and(|first| first < lane);
        let sign = |alone: char, passed: char| if is_passed { passed } else { alone };
        text.push(match (used.contains(&lane), begins == Some(lane)) {
            (true, _) if ends(lane) => sign('└', '┴'),
            (true, _) => sign('├', '┼'),
            (_, true) => sign('┌', '┬'),
            _ if is_live => '│',
            _ => sign(' ', '─'),
        });
        text.push(if first.is_some_and(|first| first <= lane) { '─' } else { ' ' });
    }
    text
}

/// The output of `info()`, with the graph of the last batch drawn.
pub fn drawn(info: &str) -> String {
    let begins = if info.starts_with("last batch: ") { Some(0) } else { info.find("\nlast batch: ").map(|at| at + 1) };
    let Some((catalog, graph)) = begins.map(|at| info.split_at(at)) else { return info.to_owned() };
    let mut lines = graph.lines().peekable();
    let title = lines.next().unwrap_or_default();
    let Some(links) = links(&mut lines) else { return info.to_owned() };
    // Level by level, independently of the heuristic.
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_by_key(|link| links[*link].level);
    // The last row that uses each statement.
    let mut last_use = vec![0; links.len()];
    for (row, &link) in order.iter().enumerate() {
        links[link].inputs.iter().for_each(|input| last_use[*input] = row);
    }
    // The statement whose result each lane shows.
    let mut lanes: Vec<Option<usize>> = Vec::new();
    let mut rows = Vec::with_capacity(links.len());
    for (row, &link) in order.iter().enumerate() {
        let is_used = |lane: &usize| lanes[*lane].is_some_and(|given| links[link].inputs.contains(&given));
        let used: Vec<usize> = (0..lanes.len()).filter(is_used).collect();
        let free = lanes.iter().position(Option::is_none).unwrap_or(lanes.len());
        let begins = (last_use[link] > row && free < MOST_LANES).then_some(free);
        if begins == Some(lanes.len()) {
            lanes.push(None);
        }
        let ends = |lane: usize| lanes[lane].is_none_or(|given| last_use[given] <= row);
        let live: Vec<bool> = lanes.iter().map(Option::is_some).collect();
        rows.push(beside(&live, &used, ends, begins));
        for lane in &mut lanes {
            if lane.is_some_and(|given| last_use[given] <= row) {
                *lane = None;
            }
        }
        if let Some(lane) = begins {
            lanes[lane] = Some(link);
        }
    }
    let width = |of: &dyn Fn(&Link<'_>) -> usize| links.iter().map(of).max().unwrap_or(0);
    let text_width = width(&|link| link.text.chars().count());
    let outcome_width = width(&|link| link.outcome.chars().count());
    let took_width = width(&|link| link.took.chars().count());
    let lanes = 2 * lanes.len();
    let mut out = format!("{catalog}{title}\n");
    let mut level = 0;
    for (link, row) in order.iter().map(|link| &links[*link]).zip(&rows) {
        // Writing to a string does not fail.
        if link.level != level {
            level = link.level;
            let _ = writeln!(out, "── level {level} {}", "─".repeat((lanes + text_width).saturating_sub(8)));
        }
        let fill = if row.ends_with('─') { '─' } else { ' ' };
        let fill: String = std::iter::repeat_n(fill, lanes - row.chars().count()).collect();
        let Link { text, outcome, took, part, .. } = link;
        let line = format!(" {row}{fill} {text:text_width$}  {outcome:>outcome_width$}  {took:>took_width$}  {part}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    lines.for_each(|line| _ = writeln!(out, "{line}"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_column_language::Operators;
    use serac_engine::Database;
    use std::sync::Arc;

    fn info_after(batch: &[&str]) -> String {
        let mut context = Operators::new(Arc::new(Database::in_memory().unwrap())).context();
        let table = ["create(db,\"d\")", "create(tbl,\"t\",d,2)", "create(col,\"a\",d.t)", "create(col,\"b\",d.t)"];
        let rows = ["relational_insert(d.t,1,10)", "relational_insert(d.t,2,20)", "relational_insert(d.t,3,30)"];
        let mut shown = String::new();
        for (at, line) in table.iter().chain(&rows).chain(batch).enumerate() {
            // Statements of the batch may fail.
            let _ = context.execute(at as u64 + 1, line, &mut shown);
        }
        context.execute(99, "info()", &mut shown).unwrap();
        shown
    }

    /// The rows of the drawing, without times.
    fn rows(info: &str) -> Vec<String> {
        let drawn = drawn(info);
        let (_, graph) = drawn.split_once("last batch: ").unwrap();
        let of_row =
            |line: &str| line.split("  ").take_while(|part| !part.ends_with(" ms")).collect::<Vec<_>>().join("  ");
        graph.lines().skip(1).map(|line| of_row(line).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_example_of_the_report_is_drawn() {
        for heuristic in ["default", "breadth", "smart"] {
            let set = format!("set(batch_heuristic,{heuristic})");
            let info = info_after(&[
                &set,
                "batch_queries()",
                "s1=select(d.t.a,0,10)",
                "f1=fetch(d.t.a,s1)",
                "s2=select(d.t.a,2,20)",
                "f2=fetch(d.t.b,s2)",
                "s3=select(d.t.b,0,1)",
                "f3=fetch(d.t.b,s3)",
                "n=add(f2,f2)",
                "batch_execute()",
            ]);
            let drawn = rows(&info);
            let has =
                |row: &str| assert!(drawn.iter().any(|line| line.trim_start().starts_with(row)), "{row}\n{drawn:#?}");
            assert_eq!(drawn.iter().filter(|line| line.starts_with("── level ")).count(), 3, "{drawn:#?}");
            has("┌───── s1 = select(d.t.a)");
            has("│ ┌─── s2 = select(d.t.a)");
            has("│ │ ┌─ s3 = select(d.t.b)");
            has("└─│─│─ f1 = fetch(d.t.a, s1)");
            has("┌─┴─│─ f2 = fetch(d.t.b, s2)");
            has("│   └─ f3 = fetch(d.t.b, s3)");
            has("└───── n = add(f2, f2)");
            assert!(drawn.iter().any(|line| line.contains("2 rows")), "{drawn:#?}");
        }
    }

    #[test]
    fn what_is_no_graph_stays_as_it_is() {
        for text in ["", "database d\n", "database d\nlast batch: ?\n    line x\n"] {
            assert_eq!(drawn(text), text);
        }
        assert!(drawn(&info_after(&[])).starts_with("database "));
        let info = info_after(&["batch_queries()", "f=fetch(d.t.a,no)", "s=sum(f)", "batch_execute()"]);
        let rows = rows(&info);
        assert!(rows.iter().any(|row| row.contains("failed")), "{rows:#?}");
    }

    /// Many lanes, names that are assigned again, and more statements than are described.
    #[test]
    fn large_graphs_are_drawn() {
        let mut batch = vec!["batch_queries()".to_owned()];
        batch.extend((0..1_200).map(|at| format!("s{at}=select(d.t.a,{},5)", at % 4)));
        batch.extend((0..40).map(|at| format!("a=fetch(d.t.b,s{at})")));
        batch.push("batch_execute()".into());
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        let drawn = drawn(&info_after(&batch));
        assert!(drawn.contains("… and 240 more"), "{drawn}");
        assert!(drawn.lines().all(|line| line.chars().count() < 200));
    }
}
