//! EXPLAIN and DESCRIBE, as texts.
//!
//! EXPLAIN gives one column, `QUERY PLAN`, with a line of text a row. Each operator has a line,
//! with the operators that it takes rows from below it and further to the right. With ANALYZE the
//! query runs, its rows are counted and dropped, and the measurements stand below each operator.

use crate::error::{Result, SqlError};
use crate::explain_json::{Json, PlanNode, Relationship};
use crate::parsed::{Source, is_bound};
use crate::pipeline::steps_schema;
use crate::query::Ready;
use crate::result::{Output, StatementResult, tag_of};
use crate::session::Session;
use datafusion::arrow::array::{ArrayRef, LargeStringArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::StreamExt;
use serac_binder::{BoundBody, PartBody};
use serac_parser::tree::{Explain, Ident, Name};
use serac_pg::TypeId;
use serac_values::sql_terms::in_sql_terms;
use serac_values::type_names::name_of as type_name;
use serac_values::wire::with_type;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The options of EXPLAIN.
#[derive(Debug, Default, PartialEq)]
struct Options {
    /// Whether the query runs.
    analyze: bool,
    /// Whether the logical plan is shown, too, and all that was measured.
    verbose: bool,
    /// Whether times are shown.
    timing: bool,
    /// Whether the time of planning, and of all of the query, is shown.
    summary: bool,
    /// Whether the plan is shown after each pass.
    steps: bool,
    /// Whether the binder's result is shown.
    bound: bool,
    /// Whether the result is JSON, and not lines of text.
    json: bool,
}

/// The result of EXPLAIN before its rendering.
#[derive(Default)]
struct Report {
    /// Lines of text.
    lines: Vec<String>,
    /// In JSON, the plans of the statement's parts, that of the statement itself last.
    plans: Vec<PlanNode>,
    /// Fields of the statement that JSON shows beside its plan.
    beside: Vec<(&'static str, Json)>,
}

impl Report {
    /// EXPLAIN's rows.
    fn into_output(self, options: &Options) -> Result<Output> {
        if !options.json {
            return explained_lines(self.lines);
        }
        let mut plans = self.plans;
        let mut plan = plans.pop().unwrap_or_else(|| PlanNode::new("Result"));
        plan.children.splice(0..0, plans.into_iter().map(|part| (Relationship::InitPlan, part)));
        let mut object = vec![("Plan", plan.document(None))];
        object.extend(self.beside);
        let text = Json::List(vec![Json::Object(object)]).text();
        let column = Arc::new(LargeStringArray::from(vec![text])) as ArrayRef;
        Ok(explained(RecordBatch::try_new(json_schema(), vec![column])?))
    }
}

impl Options {
    fn read(given: &[ExplainOption]) -> Result<Self> {
        let mut options = Self::default();
        let (mut summary, mut timing) = (None, None);
        for option in given {
            let (Ident { name, span: _ }, value) = option;
            let switch = || is_on(option);
            match name.as_str() {
                "analyze" => options.analyze = switch()?,
                "verbose" => options.verbose = switch()?,
                "timing" => timing = Some(switch()?),
                "steps" => options.steps = switch()?,
                "bound" => options.bound = switch()?,
                "summary" => summary = Some(switch()?),
                "format" => {
                    let format = value.as_deref().unwrap_or_default();
                    options.json = match format.to_lowercase().as_str() {
                        "text" => false,
                        "json" => true,
                        "xml" | "yaml" => return Err(SqlError::unsupported(format!("EXPLAIN's format {format}"))),
                        _ => {
                            let message = format!("unrecognized value for EXPLAIN option \"{name}\": \"{format}\"");
                            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
                        }
                    };
                }
                // Off is our behaviour.
                "buffers" | "wal" | "settings" | "generic_plan" | "costs" => {
                    if switch()? {
                        return Err(SqlError::unsupported(format!("EXPLAIN's option {}", name.to_uppercase())));
                    }
                }
                _ => {
                    return Err(SqlError::new(
                        sqlstate::SYNTAX_ERROR,
                        format!("unrecognized EXPLAIN option \"{name}\""),
                    ));
                }
            }
        }
        options.summary = summary.unwrap_or(options.analyze);
        options.timing = timing.unwrap_or(true);
        if timing == Some(true) && !options.analyze {
            let message = "EXPLAIN option TIMING requires ANALYZE";
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        let beside = [(options.analyze, "ANALYZE"), (options.verbose, "VERBOSE"), (options.summary, "SUMMARY")];
        let shown = match (options.steps, options.bound) {
            (true, true) => return Err(SqlError::unsupported("EXPLAIN's option STEPS beside BOUND")),
            (true, false) => Some("STEPS"),
            (false, true) => Some("BOUND"),
            (false, false) => None,
        };
        let beside = beside.into_iter().chain([(options.json, "FORMAT JSON")]);
        if let Some(shown) = shown
            && let Some((_, other)) = beside.into_iter().find(|(is_on, _)| *is_on)
        {
            return Err(SqlError::unsupported(format!("EXPLAIN's option {shown} beside {other}")));
        }
        Ok(options)
    }
}

/// An option of EXPLAIN, and its value as it was written.
type ExplainOption = (Ident, Option<String>);

/// Whether a switch is on: it may be said alone.
fn is_on((Ident { name, span: _ }, value): &ExplainOption) -> Result<bool> {
    match value.as_deref().map(str::to_lowercase).as_deref() {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(_) => Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}

/// Whether EXPLAIN runs the statement.
pub fn runs_explained(explain: &Explain) -> bool {
    let analyze = explain.options.iter().rfind(|(option, _)| option.name == "analyze");
    analyze.is_some_and(|option| is_on(option).unwrap_or(true))
}

/// The columns of EXPLAIN's result, with these options.
pub(crate) fn explain_schema(options: &[ExplainOption]) -> SchemaRef {
    let of_steps = options.iter().rfind(|(option, _)| option.name == "steps");
    match of_steps.is_some_and(|option| is_on(option).unwrap_or(false)) {
        true => steps_schema(),
        false if is_json(options) => json_schema(),
        false => plan_schema(),
    }
}

/// Whether the last option that says the format says JSON.
fn is_json(options: &[ExplainOption]) -> bool {
    let format = options.iter().rfind(|(option, _)| option.name == "format").and_then(|(_, value)| value.as_deref());
    format.is_some_and(|format| format.eq_ignore_ascii_case("json"))
}

/// The column of EXPLAIN's result in JSON.
fn json_schema() -> SchemaRef {
    let field = Field::new("QUERY PLAN", DataType::LargeUtf8, false);
    Arc::new(Schema::new(vec![with_type(field, TypeId::JSON.0, -1)]))
}

/// The column of EXPLAIN's result without STEPS.
fn plan_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

/// The columns of DESCRIBE's result.
pub(crate) fn describe_schema() -> SchemaRef {
    let column = |name: &str| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(["column_name", "data_type", "is_nullable", "column_default"].map(column).to_vec()))
}

/// Numbers of columns' places behind their names, which physical plans write, taken out: `a@0` is
/// `a`.
fn without_places(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        let digits = rest[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at - 1);
        let is_place = digits > 0 && !rest[..at].ends_with([' ', '@', '\'', '<']);
        out.push_str(if is_place { "" } else { &rest[at..=at + digits] });
        rest = &rest[at + 1 + digits..];
    }
    out + rest
}

/// A line with an operator's metrics; `None` if it has none.
fn measured(metrics: &MetricsSet, options: &Options) -> Option<String> {
    let metrics = metrics.aggregate_by_name().sorted_for_display().timestamps_removed();
    let milliseconds = |time: &datafusion::physical_plan::metrics::Time| format!("{:.3} ms", time.value() as f64 / 1e6);
    let shown = metrics.iter().filter_map(|metric| {
        let value = metric.value();
        Some(match value {
            MetricValue::OutputRows(rows) => format!("rows={}", rows.value()),
            MetricValue::ElapsedCompute(time) => return options.timing.then(|| format!("time={}", milliseconds(time))),
            MetricValue::Time { name, time } => {
                return options.timing.then(|| format!("{name}={}", milliseconds(time)));
            }
            MetricValue::OutputBytes(_) | MetricValue::OutputBatches(_) if !options.verbose => return None,
            MetricValue::SpillCount(count) | MetricValue::SpilledRows(count) | MetricValue::SpilledBytes(count)
                if count.value() == 0 =>
            {
                return None;
            }
            value => format!("{}={value}", value.name()),
        })
    });
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Adds the lines of an operator, and of those that it takes rows from.
fn add_lines(plan: &dyn ExecutionPlan, depth: usize, options: &Options, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let text = in_sql_terms(&without_places(displayable(plan).one_line().to_string().trim()));
    lines.push(format!("{indent}{text}"));
    if options.analyze
        && let Some(text) = plan.metrics().and_then(|metrics| measured(&metrics, options))
    {
        lines.push(format!("{indent}    {text}"));
    }
    for child in plan.children() {
        add_lines(child.as_ref(), depth + 1, options, lines);
    }
}

/// An operator, and those that it takes rows from.
fn plan_node(plan: &dyn ExecutionPlan, options: &Options) -> PlanNode {
    let details = in_sql_terms(&without_places(displayable(plan).one_line().to_string().trim()));
    let mut node = PlanNode::new(plan.name()).with("Details", details);
    if options.analyze
        && let Some(metrics) = plan.metrics()
    {
        if let Some(time) = metrics.elapsed_compute().filter(|_| options.timing) {
            node.fields.push(("Actual Total Time", milliseconds(Duration::from_nanos(time as u64))));
        }
        if let Some(rows) = metrics.output_rows() {
            node.fields.push(("Actual Rows", Json::Number(rows.to_string())));
        }
        node.fields.push(("Actual Loops", Json::Number("1".into())));
        if let Some(text) = measured(&metrics, options) {
            node = node.with("Metrics", text);
        }
    }
    let children = plan.children();
    let count = children.len();
    let child = |(at, child): (usize, &Arc<dyn ExecutionPlan>)| {
        (Relationship::of_child(at, count), plan_node(child.as_ref(), options))
    };
    node.children = children.into_iter().enumerate().map(child).collect();
    node
}

/// A time as EXPLAIN writes it in JSON.
fn milliseconds(time: Duration) -> Json {
    Json::Number(format!("{:.3}", time.as_secs_f64() * 1e3))
}

/// The operator of a change, or of a claim of rows, above the plan that finds its rows.
fn acting_node(word: &str) -> PlanNode {
    let operation = match word {
        "INSERT" => "Insert",
        "UPDATE" => "Update",
        "DELETE" => "Delete",
        "MERGE" => "Merge",
        claim => return PlanNode::new("LockRows").with("Details", claim),
    };
    PlanNode::new("ModifyTable").with("Operation", operation)
}

/// A physical plan, an operator a line.
pub(crate) fn physical_text(plan: &dyn ExecutionPlan) -> String {
    let mut lines = Vec::new();
    add_lines(plan, 0, &Options::default(), &mut lines);
    lines.join("\n")
}

/// EXPLAIN's or DESCRIBE's rows.
fn explained(batch: RecordBatch) -> Output {
    Output::Done(StatementResult::Rows { tag: "EXPLAIN", schema: batch.schema(), batches: vec![batch] })
}

/// DESCRIBE's rows.
pub(crate) fn described(rows: impl Iterator<Item = [Option<String>; 4]>, schema: SchemaRef) -> Result<Output> {
    let mut columns: [Vec<Option<String>>; 4] = Default::default();
    for row in rows {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let columns = columns.map(|column| Arc::new(StringArray::from(column)) as ArrayRef);
    Ok(explained(RecordBatch::try_new(schema, columns.into())?))
}

fn explained_lines(lines: Vec<String>) -> Result<Output> {
    let column = Arc::new(StringArray::from(lines)) as ArrayRef;
    Ok(explained(RecordBatch::try_new(plan_schema(), vec![column])?))
}

impl Session {
    /// EXPLAIN of the statement at `query`.
    pub(crate) async fn explain(&mut self, explain: &Explain, query: Source) -> Result<Output> {
        let Explain { options, statement: _ } = explain;
        let options = Options::read(options)?;
        if !is_bound(query.kind()) {
            return Err(SqlError::unsupported("EXPLAIN of this statement"));
        }
        let point = if options.analyze || options.steps || options.bound { None } else { self.shown_point(&query) };
        if options.bound {
            return explained_lines(self.bound_lines(query).await?);
        }
        let mut report = Report::default();
        if options.json {
            report.beside.extend(point.map(|point| ("Point Path", Json::Text(point))));
        } else {
            report.lines.extend(point);
        }
        if query.acts() {
            return self.explain_changes(&query, &options, report).await;
        }
        if options.steps {
            return self.planning_steps(query).await.map(explained);
        }
        // The plan on the point path comes before the query's.
        let depth = report.lines.len();
        if depth > 0 {
            report.lines.push("otherwise".into());
        }
        let began = Instant::now();
        let planned = self.planned_to_explain(query, options.verbose).await?;
        self.explain_plan(planned, began, depth, &options, &mut report).await?;
        report.into_output(&options)
    }

    /// The lines of a change: its kind, and the plan that finds its rows; behind the changes that
    /// its WITH has.
    async fn explain_changes(&mut self, source: &Source, options: &Options, mut report: Report) -> Result<Output> {
        let began = Instant::now();
        let bound = self.bound_statement(source).await?;
        if options.analyze {
            let what = match bound.parts.first().map(|part| &part.body) {
                None => tag_of(source.statement()).trim_end_matches(" 0"),
                Some(PartBody::Claim(claim)) => claim.words(),
                Some(_) => "a change in WITH",
            };
            return Err(SqlError::unsupported(format!("EXPLAIN ANALYZE of {what}")));
        }
        if options.steps && !bound.parts.is_empty() {
            return Err(SqlError::unsupported("EXPLAIN's option STEPS of a statement that has parts"));
        }
        let mut all: Vec<(Option<&'static str>, LogicalPlan)> = Vec::new();
        let of_change = |change| self.explained_change(change).map(|(word, plan)| (Some(word), plan));
        for part in bound.parts {
            match part.body {
                PartBody::Query(plan) => all.push((None, plan)),
                PartBody::Claim(claim) => {
                    claim.tables.iter().try_for_each(|table| self.claimable(table).map(|_| ()))?;
                    all.push((Some(claim.words()), claim.plan));
                }
                PartBody::Change(change) => all.push(of_change(change)?),
            }
        }
        match bound.body {
            // The rows of a part.
            BoundBody::Query(LogicalPlan::TableScan(_), _) if !all.is_empty() => {}
            BoundBody::Query(plan, _) => all.push((None, plan)),
            BoundBody::Change(change) => all.push(of_change(change)?),
        }
        for (word, plan) in all {
            if options.steps {
                return self.steps_of_plan(plan).await.map(explained);
            }
            let before = report.lines.len();
            report.lines.extend(word.map(str::to_owned));
            let frame = DataFrame::new(self.state(), plan);
            let planned = self.frame_to_explain(frame, options.verbose).await?;
            let depth = usize::from(before < report.lines.len());
            self.explain_plan(planned, began, depth, options, &mut report).await?;
            if let (Some(word), true) = (word, options.json) {
                let found = report.plans.pop().map(|plan| (Relationship::Outer, plan));
                report.plans.push(PlanNode { children: found.into_iter().collect(), ..acting_node(word) });
            }
        }
        report.into_output(options)
    }

    /// The lines of a plan that was made since `began`.
    async fn explain_plan(
        &self,
        (ready, logical): (Ready, Option<String>),
        began: Instant,
        depth: usize,
        options: &Options,
        report: &mut Report,
    ) -> Result<()> {
        let lines = &mut report.lines;
        if options.json {
            report.beside.extend(logical.map(|logical| ("Logical Plan", Json::Text(logical))));
        } else if let Some(logical) = logical {
            lines.push("Logical plan".into());
            lines.extend(logical.lines().map(|line| format!("  {line}")));
            lines.push("Physical plan".into());
        }
        let depth = depth + usize::from(options.verbose);
        let planned = began.elapsed();
        let plan = ready.plan.clone();
        if options.analyze {
            let mut rows = self.run_ready(ready)?;
            while let Some(batch) = rows.next().await {
                batch?;
            }
        }
        let executed = began.elapsed() - planned;
        if options.json {
            report.plans.push(plan_node(plan.as_ref(), options));
            report.beside.retain(|(key, _)| !key.ends_with("Time") && *key != "Triggers");
            if options.summary {
                report.beside.push(("Planning Time", milliseconds(planned)));
            }
            if options.analyze {
                report.beside.push(("Triggers", Json::List(Vec::new())));
            }
            if options.summary && options.analyze {
                report.beside.push(("Execution Time", milliseconds(executed)));
            }
            return Ok(());
        }
        add_lines(plan.as_ref(), depth, options, lines);
        if options.summary {
            lines.push(format!("Planning Time: {:.3} ms", planned.as_secs_f64() * 1e3));
            if options.analyze {
                lines.push(format!("Execution Time: {:.3} ms", executed.as_secs_f64() * 1e3));
            }
        }
        Ok(())
    }

    /// DESCRIBE: a relation's columns with their types.
    pub(crate) async fn describe_relation(&self, name: &Name) -> Result<Output> {
        let mut columns = Vec::new();
        let mut add = |row: [Option<String>; 4]| columns.push(row);
        let yes = |nullable| Some(if nullable { "YES" } else { "NO" }.to_owned());
        match self.table(name) {
            Ok(table) => {
                for column in table.definition.visible_columns() {
                    let default = column.generation.clone().or_else(|| column.default.clone());
                    add([Some(column.name.clone()), Some(column.sql_type.to_string()), yes(column.nullable), default]);
                }
            }
            // A view, or a table of the system.
            Err(_) => {
                let query = Source::of_relation(name, &[]);
                let (schema, _) = self.bound_columns(&query).await.map_err(SqlError::unplaced)?;
                for field in schema.fields() {
                    add([Some(field.name().clone()), Some(type_name(field.data_type())), yes(true), None]);
                }
            }
        }
        described(columns.into_iter(), describe_schema())
    }
}

#[cfg(test)]
mod tests {
    use super::without_places;

    #[test]
    fn places_of_columns_are_left_out() {
        assert_eq!(without_places("expr=[a@0 as b, c@12], j @> k@3"), "expr=[a as b, c], j @> k");
    }
}
