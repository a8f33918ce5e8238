//! Results in the form that the client wants. Texts and binary values are Arrow's views or, for
//! clients that do not know these, have offsets, which costs a copy. Texts of few distinct values
//! may be dictionaries. Decimals of up to 18 digits have 64 bits for clients that know that form,
//! otherwise 128. Numbers with digits of their own are texts.
//!
//! A client states its form with the headers `serac-strings: view`, `utf8` or `dictionary` (other
//! texts with offsets) and `serac-decimals: decimal128` or `decimal64` (parameters of these names
//! in JDBC's URL). Arrow's JDBC driver does not know views, and sends no header: a client that uses
//! gRPC's library for Java gets offsets unless it asks otherwise.
//!
//! The first rows decide which columns are dictionaries. So a FlightInfo has no schema for a client
//! that wants them: the stream has it.

use super::result_dictionary::ResultDictionary;
use super::status::of_arrow;
use arrow_flight::{FlightInfo, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DECIMAL64_MAX_PRECISION, DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures::{StreamExt, stream};
use http::HeaderMap;
use http::header::USER_AGENT;
use serac_engine::{DecimalForm, into_form};
use serac_export::flight::{Batches, Caller, Form};
use serac_sql::free_numbers::{shown, shown_schema};
use serac_storage::marked;
use std::sync::Arc;
use tonic::Status;

const STRINGS: &str = "serac-strings";
const DECIMALS: &str = "serac-decimals";

/// The form that the client of a call wants.
pub(super) fn wanted(headers: &HeaderMap) -> Form {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let views = match value(STRINGS) {
        Some(form) => !matches!(form, "utf8" | "dictionary"),
        None => !value(USER_AGENT.as_str()).is_some_and(|agent| agent.contains("grpc-java")),
    };
    let dictionaries = value(STRINGS) == Some("dictionary");
    Form { views, dictionaries, short_decimals: value(DECIMALS) == Some("decimal64") }
}

/// The caller's form of decimals of up to 18 digits.
pub(super) fn decimals(caller: &Caller) -> DecimalForm {
    if caller.form.short_decimals { DecimalForm::Decimal64 } else { DecimalForm::Decimal128 }
}

fn formed(form: Form, data_type: &DataType) -> DataType {
    let item = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(formed(form, field.data_type())));
    match data_type {
        DataType::Utf8View if !form.views => DataType::Utf8,
        DataType::BinaryView if !form.views => DataType::Binary,
        DataType::Decimal128(digits @ ..=DECIMAL64_MAX_PRECISION, scale) if form.short_decimals => {
            DataType::Decimal64(*digits, *scale)
        }
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        other => other.clone(),
    }
}

/// The columns as the caller gets them.
pub(super) fn schema(caller: &Caller, schema: SchemaRef) -> SchemaRef {
    let schema = shown_schema(&schema);
    let has_documents = schema.fields().iter().any(|field| *field.data_type() == DataType::LargeUtf8);
    if caller.form == Form::default() && !has_documents {
        return schema;
    }
    let field = |field: &Arc<Field>| {
        let data_type = formed(caller.form, field.data_type());
        marked(field.as_ref().clone().with_data_type(data_type))
    };
    let fields: Vec<Field> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A schema as bytes that stand for themselves.
pub(super) fn bytes_of(schema: &Schema) -> Result<Bytes, Status> {
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into().map_err(of_arrow)?;
    Ok(bytes)
}

/// A schema in bytes as the caller gets it.
pub(super) fn schema_bytes(caller: &Caller, bytes: Bytes) -> Result<Bytes, Status> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let known = Arc::new(Schema::try_from(IpcMessage(bytes.clone())).map_err(of_arrow)?);
    let wanted = schema(caller, known.clone());
    if wanted == known { Ok(bytes) } else { bytes_of(&wanted) }
}

pub(super) fn info(caller: &Caller, mut info: FlightInfo) -> Result<FlightInfo, Status> {
    // A result without an endpoint has no stream that could give its schema.
    if caller.form.dictionaries && !info.endpoint.is_empty() {
        info.schema = Bytes::new();
    } else {
        info.schema = schema_bytes(caller, info.schema)?;
    }
    Ok(info)
}

/// Rows as the caller gets them.
pub(super) async fn rows(
    caller: &Caller,
    (known, mut batches): (SchemaRef, Batches),
) -> Result<(SchemaRef, Batches), Status> {
    let mut wanted = schema(caller, known.clone());
    let mut words: Vec<Option<ResultDictionary>> = Vec::new();
    if caller.form.dictionaries {
        let Some(first) = batches.next().await.transpose()? else { return Ok((wanted, batches)) };
        words = first.columns().iter().map(ResultDictionary::of).collect();
        let fields = wanted.fields().iter().zip(&words).map(|(field, words)| match words {
            Some(words) => Arc::new(field.as_ref().clone().with_data_type(words.data_type())),
            None => field.clone(),
        });
        wanted = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), wanted.metadata().clone()));
        batches = stream::iter([Ok(first)]).chain(batches).boxed();
    }
    if wanted == known {
        return Ok((known, batches));
    }
    let target = wanted.clone();
    let mut convert = move |batch: &RecordBatch| {
        let batch = shown(batch.clone()).map_err(|error| ArrowError::from_external_error(error.into()))?;
        let columns = batch.columns().iter().zip(target.fields()).enumerate();
        let columns = columns.map(|(i, (column, field))| match words.get_mut(i) {
            Some(Some(words)) => words.encode(column),
            _ => into_form(column, field.data_type()),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(target.clone(), columns, &options)
    };
    // A batch, or, where its texts are too many for a dictionary, its parts.
    let pieces = move |batch: Result<RecordBatch, Status>| {
        let (mut pieces, mut rest) = (Vec::new(), Vec::new());
        match batch {
            Ok(batch) => rest.push(batch),
            Err(status) => pieces.push(Err(status)),
        }
        while let Some(batch) = rest.pop() {
            match convert(&batch) {
                Err(ArrowError::DictionaryKeyOverflowError) if batch.num_rows() > 1 => {
                    let half = batch.num_rows() / 2;
                    rest.extend([batch.slice(half, batch.num_rows() - half), batch.slice(0, half)]);
                }
                piece => pieces.push(piece.map_err(of_arrow)),
            }
        }
        stream::iter(pieces)
    };
    Ok((wanted, batches.flat_map(pieces).boxed()))
}
