//! SUMMARIZE and DESCRIBE of a query.
//!
//! SUMMARIZE is a query of aggregates over the query: the binder decides their types as it does for
//! any other. A query has a limited number of columns, so that a wide one is read in several turns.
//!
//! The quartiles are estimates (by a t-digest); all other facts are exact. Distinct values are kept
//! in the memory for queries while they are counted. Minimum and maximum are those of the type's
//! order, and are there for the types that have `min` and `max`; average, deviation and quartiles
//! are there for numbers.

use crate::column_types::of_field;
use crate::error::{Result, SqlError};
use crate::explain::{describe_schema, described};
use crate::parsed::Source;
use crate::result::{Output, StatementResult};
use crate::session::Session;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, Int64Builder, RecordBatch, StringBuilder, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use futures::TryStreamExt;
use serac_parser::tree::{
    Alias, Argument, Call, Expr, ExprKind, Ident, Literal, Name, Query, QueryBody, Select, Span, StatementKind,
    TableExpr, TableKind, TypeName,
};
use serac_pg::TypeId;
use std::sync::Arc;

/// The facts on a column, in the order of the result, behind its name and type.
const FACTS: [(&str, DataType); 9] = [
    ("min", DataType::Utf8),
    ("max", DataType::Utf8),
    ("distinct", DataType::Int64),
    ("avg", DataType::Float64),
    ("std", DataType::Float64),
    ("q25", DataType::Float64),
    ("q50", DataType::Float64),
    ("q75", DataType::Float64),
    ("count", DataType::Int64),
];
/// Columns that are summarized in one turn.
const IN_A_TURN: usize = 128;

/// The columns of SUMMARIZE's result.
pub(crate) fn summary_schema() -> SchemaRef {
    let mut fields =
        vec![Field::new("column_name", DataType::Utf8, true), Field::new("column_type", DataType::Utf8, true)];
    fields.extend(FACTS.map(|(name, data_type)| Field::new(name, data_type, true)));
    fields.push(Field::new("null_percentage", DataType::Float64, true));
    Arc::new(Schema::new(fields))
}

/// The kinds of types, by the aggregates that they have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    /// Ordered, and not a number.
    Ordered,
    /// Without `min`, but with an order that its text has, too.
    OrderedAsText,
    Other,
}

fn kind_of(field: &Field) -> Kind {
    match of_field(field).map(|of| of.id) {
        Some(
            TypeId::INT2
            | TypeId::INT4
            | TypeId::INT8
            | TypeId::FLOAT4
            | TypeId::FLOAT8
            | TypeId::NUMERIC
            | TypeId::OID,
        ) => Kind::Number,
        Some(
            TypeId::TEXT
            | TypeId::VARCHAR
            | TypeId::BPCHAR
            | TypeId::DATE
            | TypeId::TIME
            | TypeId::TIMESTAMP
            | TypeId::TIMESTAMPTZ
            | TypeId::INTERVAL,
        ) => Kind::Ordered,
        Some(TypeId::BOOL | TypeId::UUID | TypeId::NAME) => Kind::OrderedAsText,
        _ => Kind::Other,
    }
}

/// The name of a column's type.
pub(crate) fn type_name(field: &Field) -> String {
    of_field(field).map_or_else(|| serac_values::type_names::name_of(field.data_type()), |of| of.to_string())
}

// ---- trees

const NOWHERE: Span = Span { start: 0, end: 0 };

fn ident(name: &str) -> Ident {
    Ident { name: name.to_owned(), span: NOWHERE }
}

fn name(name: &str) -> Name {
    Name { parts: vec![ident(name)], span: NOWHERE }
}

fn tree(kind: ExprKind) -> Expr {
    Expr { kind, span: NOWHERE }
}

fn column(at: usize) -> Expr {
    tree(ExprKind::Name(name(&column_name(at))))
}

/// The name of a column under which the query is read: its own may come twice.
fn column_name(at: usize) -> String {
    format!("c{at}")
}

fn as_type(operand: Expr, of: &str) -> Expr {
    let to = TypeName {
        name: name(of),
        modifiers: Vec::new(),
        fields: None,
        dimensions: 0,
        is_set: false,
        of_column: false,
        span: NOWHERE,
    };
    tree(ExprKind::Cast { operand: Box::new(operand), to: Box::new(to) })
}

fn call(function: &str, arguments: Vec<Expr>) -> Expr {
    call_of(function, arguments, false)
}

/// A call, perhaps of an aggregate of distinct values.
fn call_of(function: &str, arguments: Vec<Expr>, distinct: bool) -> Expr {
    tree(ExprKind::Call(Box::new(Call {
        name: name(function),
        star: arguments.is_empty(),
        arguments: arguments.into_iter().map(|value| Argument { name: None, value }).collect(),
        distinct,
        variadic: false,
        order_by: Vec::new(),
        within_group: Vec::new(),
        filter: None,
        ignores_nulls: None,
        over: None,
    })))
}

/// The aggregates of a column; `None` for those that its type has not.
fn aggregates(at: usize, kind: Kind) -> [Option<Expr>; FACTS.len()] {
    let is_number = kind == Kind::Number;
    let extreme = |function: &str| match kind {
        Kind::Number | Kind::Ordered => Some(as_type(call(function, vec![column(at)]), "text")),
        Kind::OrderedAsText => Some(call(function, vec![as_type(column(at), "text")])),
        Kind::Other => None,
    };
    let float = |function: &str| is_number.then(|| call(function, vec![as_type(column(at), "float8")]));
    let quartile = |part: &str| {
        let part = as_type(tree(ExprKind::Literal(Literal::String(part.to_owned()))), "float8");
        is_number.then(|| call("approx_percentile_cont", vec![as_type(column(at), "float8"), part]))
    };
    [
        extreme("min"),
        extreme("max"),
        (kind != Kind::Other).then(|| call_of("count", vec![column(at)], true)),
        float("avg"),
        float("stddev"),
        quartile("0.25"),
        quartile("0.5"),
        quartile("0.75"),
        Some(call("count", vec![column(at)])),
    ]
}

/// The query of these aggregates, and of the number of rows before them.
fn query_of(query: &Query, width: usize, aggregates: Vec<Expr>) -> Query {
    let span = query.span;
    let columns = (0..width).map(|at| ident(&column_name(at))).collect();
    let alias = Some(Alias { name: ident("q"), columns });
    let kind = TableKind::Query { lateral: false, query: Box::new(query.clone()), alias };
    let items = std::iter::once(call("count", Vec::new())).chain(aggregates).collect();
    let select = Select { from: vec![TableExpr { kind, span }], ..Select::of(items, span) };
    Query::of(QueryBody::Select(Box::new(select)), span)
}

/// The columns of a result, as they are filled.
#[derive(Default)]
struct Summary {
    names: StringBuilder,
    types: StringBuilder,
    /// The facts, a list of values each.
    facts: [Vec<ArrayRef>; FACTS.len()],
    nulls: Float64Builder,
}

impl Summary {
    /// A column, with its facts among the values of a row.
    fn add(&mut self, field: &Field, rows: i64, facts: [ArrayRef; FACTS.len()]) {
        self.names.append_value(field.name());
        self.types.append_value(type_name(field));
        let count = facts[FACTS.len() - 1].as_primitive::<Int64Type>().value(0);
        let missing = (rows - count) as f64 * 100.0 / rows as f64;
        self.nulls.append_option((rows > 0).then(|| (missing * 100.0).round() / 100.0));
        self.facts.iter_mut().zip(facts).for_each(|(column, fact)| column.push(fact));
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.names.finish()), Arc::new(self.types.finish())];
        for (facts, (_, data_type)) in self.facts.iter().zip(FACTS) {
            let facts: Vec<Option<&ArrayRef>> = facts.iter().map(Some).collect();
            columns.push(joined(&facts, &data_type)?);
        }
        columns.push(Arc::new(self.nulls.finish()));
        Ok(RecordBatch::try_new(summary_schema(), columns)?)
    }
}

/// Arrays of one value each as one array.
fn joined(facts: &[Option<&ArrayRef>], data_type: &DataType) -> Result<ArrayRef> {
    let valid = |fact: &&ArrayRef| fact.is_valid(0);
    let facts = facts.iter().map(|fact| fact.filter(valid));
    Ok(match data_type {
        DataType::Int64 => {
            let mut builder = Int64Builder::new();
            facts.for_each(|fact| builder.append_option(fact.map(|fact| fact.as_primitive::<Int64Type>().value(0))));
            Arc::new(builder.finish())
        }
        DataType::Float64 => {
            let mut builder = Float64Builder::new();
            facts.for_each(|fact| builder.append_option(fact.map(|fact| fact.as_primitive::<Float64Type>().value(0))));
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = StringBuilder::new();
            facts.for_each(|fact| builder.append_option(fact.map(|fact| fact.as_string::<i32>().value(0))));
            Arc::new(builder.finish())
        }
    })
}

impl Session {
    /// SUMMARIZE: a row of facts for each column of a query.
    pub(crate) async fn summarize(&mut self, source: Source) -> Result<Output> {
        let query = match source.query() {
            Some(query) if !source.acts() => query.clone(),
            _ => return Err(SqlError::unsupported("SUMMARIZE of a query that changes or claims rows")),
        };
        let (schema, _) = self.bound_columns(&source).await?;
        let kinds: Vec<Kind> = schema.fields().iter().map(|field| kind_of(field)).collect();
        let mut summary = Summary::default();
        for first in (0..kinds.len()).step_by(IN_A_TURN) {
            let turn = first..kinds.len().min(first + IN_A_TURN);
            let asked: Vec<_> = turn.clone().map(|at| aggregates(at, kinds[at])).collect();
            let wanted = asked.iter().flatten().flatten().cloned().collect();
            let whole = query_of(&query, kinds.len(), wanted);
            let facts = source.replaced(StatementKind::Query(Box::new(whole)));
            let batches: Vec<RecordBatch> = self.rows(facts).await?.1.try_collect().await?;
            let row = batches.iter().find(|batch| batch.num_rows() > 0);
            let row = row.ok_or_else(|| SqlError::new(sqlstate::INTERNAL_ERROR, "aggregates give a row"))?;
            let mut given = row.columns().iter();
            let rows = given.next().map_or(0, |rows| rows.as_primitive::<Int64Type>().value(0));
            for (at, asked) in turn.zip(asked) {
                let mut facts: [ArrayRef; FACTS.len()] = FACTS.map(|(_, data_type)| new_null_array(&data_type, 1));
                for ((fact, (_, data_type)), _) in
                    facts.iter_mut().zip(FACTS).zip(asked).filter(|(_, asked)| asked.is_some())
                {
                    if let Some(value) = given.next() {
                        *fact = cast(&value.slice(0, 1), &data_type)?;
                    }
                }
                summary.add(schema.field(at), rows, facts);
            }
        }
        let batch = summary.finish()?;
        let rows = StatementResult::Rows { tag: "SELECT", schema: batch.schema(), batches: vec![batch] };
        Ok(Output::Done(rows))
    }

    /// DESCRIBE of a query: the columns of its result with their types.
    pub(crate) async fn describe_query(&self, source: &Source) -> Result<Output> {
        if source.acts() {
            return Err(SqlError::unsupported("DESCRIBE of a query that changes or claims rows"));
        }
        let (schema, _) = self.bound_columns(source).await?;
        let row =
            |field: &Arc<Field>| [Some(field.name().clone()), Some(type_name(field)), Some("YES".to_owned()), None];
        described(schema.fields().iter().map(row), describe_schema())
    }
}
