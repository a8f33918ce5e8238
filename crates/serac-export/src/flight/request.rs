//! A client's request: a table, a choice of its columns and rows.

use super::status_of;
use crate::lookup;
use arrow_array::{ArrayRef, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_schema::DataType;
use serac_client::flight::{
    Aggregate, AggregateFunction, Condition, Decimals, MOST_CONDITIONS, MOST_FUNCTIONS, MOST_IN_LIST, MOST_KEYS,
    MOST_TOP_ROWS, ScanRequest, Strings, Summary,
};
use serac_engine::{ArrowScan, Catalog, ColumnFilter, Comparison, DEFAULT_SCHEMA, DecimalForm, VarlenForm};
use serac_storage::{ColumnType, Snapshot};
use std::slice;
use std::sync::Arc;
use tonic::Status;

fn from_json(bytes: &[u8]) -> Result<ScanRequest, Status> {
    serde_json::from_slice(bytes)
        .map_err(|error| Status::invalid_argument(format!("the command cannot be read: {error}")))
}

/// The request of a descriptor.
pub(super) fn from_descriptor(descriptor: &FlightDescriptor) -> Result<ScanRequest, Status> {
    if descriptor.r#type() == DescriptorType::Cmd {
        return from_json(&descriptor.cmd);
    }
    match descriptor.path.as_slice() {
        [table] => Ok(ScanRequest::new(DEFAULT_SCHEMA, table)),
        [schema, table] => Ok(ScanRequest::new(schema, table)),
        [schema, table, columns] => {
            let columns = columns.split(',').map(|name| name.trim().to_owned()).collect();
            Ok(ScanRequest { columns: Some(columns), ..ScanRequest::new(schema, table) })
        }
        _ => Err(Status::invalid_argument(
            "a flight is named by the path [table], [schema, table] or [schema, table, \"column,column\"], or by a command in JSON",
        )),
    }
}

/// The summary that a request wants in the place of rows, if its parts go together and are within
/// their limits.
///
/// # Errors
/// INVALID_ARGUMENT.
pub(super) fn summary(request: &ScanRequest) -> Result<Option<Summary>, Status> {
    let bounded = |what: &str, count: usize, most: usize| match count <= most {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("a request has at most {most} {what}, not {count}"))),
    };
    let summary = match (&request.aggregate, &request.top) {
        (None, None) => return Ok(None),
        (Some(aggregate), None) => {
            bounded("groups", aggregate.groups.len(), MOST_KEYS)?;
            bounded("functions", aggregate.functions.len(), MOST_FUNCTIONS)?;
            if aggregate.groups.is_empty() && aggregate.functions.is_empty() {
                return Err(Status::invalid_argument("\"aggregate\" has neither groups nor functions"));
            }
            if request.columns.is_some() {
                return Err(Status::invalid_argument("\"aggregate\" has its own columns: leave out \"columns\""));
            }
            Summary::Aggregate(aggregate.clone())
        }
        (None, Some(top)) => {
            bounded("sort keys", top.by.len(), MOST_KEYS)?;
            if top.by.is_empty() {
                return Err(Status::invalid_argument("\"top\" has no sort key"));
            }
            if !(1..=MOST_TOP_ROWS).contains(&top.rows) {
                let message = format!("\"top\" has 1 to {MOST_TOP_ROWS} rows, not {}", top.rows);
                return Err(Status::invalid_argument(message));
            }
            Summary::Top(top.clone())
        }
        (Some(_), Some(_)) => return Err(Status::invalid_argument("\"aggregate\" and \"top\" do not go together")),
    };
    let has_other_forms = request.decimals != Decimals::default()
        || request.strings != Strings::default()
        || !request.dictionaries.is_empty();
    if has_other_forms || request.limit.is_some() {
        let message =
            "\"aggregate\" and \"top\" do not go with \"limit\", \"decimals\", \"strings\" or \"dictionaries\"";
        return Err(Status::invalid_argument(message));
    }
    Ok(Some(summary))
}

/// The columns of an aggregate, each once.
fn columns_of(Aggregate { groups, functions }: &Aggregate) -> Vec<String> {
    let of_functions = functions.iter().filter_map(|AggregateFunction(_, column)| column.as_ref());
    let mut columns: Vec<String> = Vec::new();
    for column in groups.iter().chain(of_functions) {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    columns
}

/// The scan that a request asks for, in a snapshot with its catalog. The scan of an aggregate has
/// the aggregate's columns.
pub(super) fn scan(request: &ScanRequest, snapshot: &Snapshot, catalog: &Catalog) -> Result<ArrowScan, Status> {
    let of_aggregate = request.aggregate.as_ref().map(columns_of);
    let wanted = of_aggregate.as_deref().or(request.columns.as_deref());
    let found = lookup::table_and_columns(catalog, &request.schema, &request.table, wanted);
    let (table, columns) = found.map_err(|error| status_of(&error))?;
    if request.filter.len() > MOST_CONDITIONS {
        let message = format!("a request has at most {MOST_CONDITIONS} conditions, not {}", request.filter.len());
        return Err(Status::invalid_argument(message));
    }
    let position = |name: &String| lookup::column(&table, name).map_err(|error| status_of(&error));
    let filter = request
        .filter
        .iter()
        .map(|Condition(name, operator, constant)| {
            let column = position(name)?;
            let column_type = table.data.schema().columns[column].column_type;
            if column_type == ColumnType::Numeric {
                let message = format!("column \"{name}\": no condition compares NUMERIC without a precision");
                return Err(Status::invalid_argument(message));
            }
            let (comparison, constants) = match (operator.as_str(), constant) {
                ("in", serde_json::Value::Array(constants)) => (Comparison::Equal, constants.as_slice()),
                ("in", _) => return Err(Status::invalid_argument("\"in\" takes a list of constants")),
                (operator, constant) => (comparison_of(operator)?, slice::from_ref(constant)),
            };
            if constants.len() > MOST_IN_LIST {
                let message = format!("\"in\" takes at most {MOST_IN_LIST} constants, not {}", constants.len());
                return Err(Status::invalid_argument(message));
            }
            let constant = constants_of(constants, &column_type.arrow())
                .map_err(|error| Status::invalid_argument(format!("column \"{name}\": {error}")))?;
            Ok(ColumnFilter { column, comparison, constant })
        })
        .collect::<Result<Vec<_>, Status>>()?;
    let is_varlen = |&column: &usize| {
        matches!(table.data.schema().columns[column].column_type, ColumnType::Utf8 | ColumnType::Binary)
    };
    let dictionaries = request.dictionaries.iter().map(|name| {
        let column = position(name)?;
        let at = columns.iter().position(|&c| c == column).filter(|_| is_varlen(&column));
        at.ok_or_else(|| {
            let message =
                format!("column \"{name}\" is not one of the columns asked for, or not of a type with dictionaries");
            Status::invalid_argument(message)
        })
    });
    let dictionaries = dictionaries.collect::<Result<Vec<_>, Status>>()?;
    let scan = ArrowScan::new(snapshot, &table, &columns, &filter).map_err(|error| status_of(&error))?;
    let scan = match request.limit {
        Some(limit) => scan.first(usize::try_from(limit).unwrap_or(usize::MAX)),
        None => scan,
    };
    Ok(scan
        .with_decimals(match request.decimals {
            Decimals::Decimal128 => DecimalForm::Decimal128,
            Decimals::Decimal64 => DecimalForm::Decimal64,
        })
        .with_varlen(match request.strings {
            Strings::View => VarlenForm::View,
            Strings::Utf8 => VarlenForm::Offsets,
            Strings::Dictionary => VarlenForm::Dictionary,
        })
        .with_varlen_where(VarlenForm::Dictionary, |at| dictionaries.contains(&at)))
}

fn comparison_of(operator: &str) -> Result<Comparison, Status> {
    Ok(match operator {
        "=" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        other => {
            return Err(Status::invalid_argument(format!("\"{other}\" is none of the operators = <> < <= > >= in")));
        }
    })
}

fn constants_of(values: &[serde_json::Value], data_type: &DataType) -> Result<ArrayRef, String> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::Null => Ok(None),
        serde_json::Value::String(text) => Ok(Some(text.clone())),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Ok(Some(value.to_string())),
        other => Err(format!("{other} is no constant")),
    };
    let texts = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&texts, data_type, &options).map_err(|error| error.to_string())
}
