//! COPY … FROM and TO files: CSV, Parquet, Arrow IPC.
//!
//! A COPY is one statement: after an error nothing of it is there. Rows are read as a stream and appended to blocks as they come.

use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult, fold};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::sql::sqlparser::ast::{CopyOption, CopySource, CopyTarget};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Csv,
    Parquet,
    Arrow,
}

struct Options {
    format: Format,
    header: bool,
    delimiter: u8,
    quote: u8,
    null: String,
}

impl Options {
    fn read(path: &str, given: &[CopyOption]) -> Result<Self> {
        let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("csv").to_lowercase();
        let format_of = |name: &str| match name {
            "csv" | "tsv" | "txt" | "tbl" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            "arrow" | "ipc" | "feather" => Ok(Format::Arrow),
            other => Err(SqlError::new("22023", format!("COPY format \"{other}\" not recognized"))),
        };
        let mut options = Self {
            format: format_of(&extension).unwrap_or(Format::Csv),
            header: false,
            delimiter: if extension == "tsv" { b'\t' } else { b',' },
            quote: b'"',
            null: String::new(),
        };
        let byte = |c: char| {
            u8::try_from(c)
                .map_err(|_| SqlError::new("22023", "COPY delimiter and quote must be single one-byte characters"))
        };
        for option in given {
            match option {
                CopyOption::Format(name) => options.format = format_of(&fold(name).to_lowercase())?,
                CopyOption::Header(header) => options.header = *header,
                CopyOption::Delimiter(c) => options.delimiter = byte(*c)?,
                CopyOption::Quote(c) => options.quote = byte(*c)?,
                CopyOption::Null(text) => options.null = text.clone(),
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        Ok(options)
    }
}

fn io(path: &str, error: std::io::Error) -> SqlError {
    let sqlstate = if error.kind() == std::io::ErrorKind::NotFound { "58P01" } else { "58030" };
    SqlError::new(sqlstate, format!("could not open file \"{path}\": {error}"))
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The batches of a file; CSV as text, `columns` wide.
fn read_file(path: &str, options: &Options, columns: usize) -> Result<Batches> {
    let file = File::open(path).map_err(|e| io(path, e))?;
    Ok(match options.format {
        Format::Csv => {
            let fields: Vec<Field> =
                (0..columns).map(|i| Field::new(format!("c{i}"), DataType::Utf8View, true)).collect();
            let schema: SchemaRef = Arc::new(Schema::new(fields));
            let null = format!("^{}$", regex_escape(&options.null));
            let reader = csv::ReaderBuilder::new(schema)
                .with_header(options.header)
                .with_delimiter(options.delimiter)
                .with_quote(options.quote)
                .with_batch_size(8192)
                .with_null_regex(regex::Regex::new(&null).map_err(|e| SqlError::new("22023", e.to_string()))?)
                .build_buffered(BufReader::with_capacity(1 << 20, file))?;
            Box::new(reader.map(|batch| batch.map_err(SqlError::from)))
        }
        Format::Parquet => {
            let builder =
                ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| SqlError::new("22P04", e.to_string()))?;
            let reader = builder.with_batch_size(8192).build().map_err(|e| SqlError::new("22P04", e.to_string()))?;
            Box::new(reader.map(|batch| batch.map_err(SqlError::from)))
        }
        Format::Arrow => match ipc::reader::FileReader::try_new_buffered(file, None) {
            Ok(reader) => Box::new(reader.map(|batch| batch.map_err(SqlError::from))),
            // Not a file: then a stream.
            Err(_) => {
                let file = File::open(path).map_err(|e| io(path, e))?;
                let reader = ipc::reader::StreamReader::try_new_buffered(file, None)?;
                Box::new(reader.map(|batch| batch.map_err(SqlError::from)))
            }
        },
    })
}

fn regex_escape(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_alphanumeric() { vec![c] } else { vec!['\\', c] }).collect()
}

impl Session {
    pub(crate) async fn copy(
        &mut self,
        source: CopySource,
        to: bool,
        target: CopyTarget,
        given: Vec<CopyOption>,
    ) -> Result<StatementResult> {
        let CopyTarget::File { filename } = target else {
            return Err(SqlError::unsupported("COPY with STDIN, STDOUT or a program; name a file"));
        };
        let options = Options::read(&filename, &given)?;
        let rows = if to {
            let query = match source {
                CopySource::Query(query) => query.to_string(),
                CopySource::Table { table_name, columns } if columns.is_empty() => {
                    format!("SELECT * FROM {table_name}")
                }
                CopySource::Table { table_name, columns } => {
                    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
                    format!("SELECT {} FROM {table_name}", columns.join(", "))
                }
            };
            self.copy_to(&query, &filename, &options).await?
        } else {
            let CopySource::Table { table_name, columns } = source else {
                return Err(SqlError::new("42601", "COPY FROM needs a table"));
            };
            let table = self.table(&table_name)?;
            let mut targets = Vec::new();
            for column in &columns {
                let name = fold(column);
                let at = table.definition.column(&name);
                targets.push(at.ok_or_else(|| {
                    SqlError::new("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.name()))
                })?);
            }
            if targets.is_empty() {
                targets = (0..table.definition.columns.len()).collect();
            }
            let mut rows = 0u64;
            for batch in read_file(&filename, &options, targets.len())? {
                let batch = batch.map_err(|e| at_row(e, &filename, rows))?;
                if batch.num_columns() != targets.len() {
                    return Err(SqlError::new(
                        "22P04",
                        format!("\"{filename}\" has {} columns, but {} are wanted", batch.num_columns(), targets.len()),
                    ));
                }
                let complete = self.complete_rows(&table, &targets, &batch).map_err(|e| at_row(e, &filename, rows))?;
                self.check_rows(&table, &complete).map_err(|e| at_row(e, &filename, rows))?;
                self.txn()?.insert_batch(&table, &complete)?;
                rows += batch.num_rows() as u64;
                tokio::task::yield_now().await; // cancellation is seen between batches
            }
            rows
        };
        Ok(StatementResult::Command { tag: format!("COPY {rows}"), rows })
    }

    async fn copy_to(&mut self, query: &str, path: &str, options: &Options) -> Result<u64> {
        let frame = self.frame_of(query).await?;
        if options.format == Format::Parquet {
            // DataFusion writes one file because the path names one.
            let write = DataFrameWriteOptions::new().with_single_file_output(true);
            let written = frame.write_parquet(path, write, None).await?;
            let count = written.first().map(|b| b.column(0).to_data().buffers()[0].typed_data::<u64>()[0]);
            return Ok(count.unwrap_or(0));
        }
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
        let mut stream = frame.execute_stream().await?;
        let file = File::create(path).map_err(|e| io(path, e))?;
        let mut rows = 0;
        use futures::StreamExt;
        match options.format {
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new()
                    .with_header(options.header)
                    .with_delimiter(options.delimiter)
                    .with_quote(options.quote)
                    .with_null(options.null.clone())
                    .build(std::io::BufWriter::new(file));
                while let Some(batch) = stream.next().await {
                    let batch = batch?;
                    writer.write(&batch)?;
                    rows += batch.num_rows() as u64;
                }
            }
            _ => {
                let mut writer = ipc::writer::FileWriter::try_new_buffered(file, &schema)?;
                while let Some(batch) = stream.next().await {
                    let batch = batch?;
                    writer.write(&batch)?;
                    rows += batch.num_rows() as u64;
                }
                writer.finish()?;
            }
        }
        Ok(rows)
    }
}

/// Says in which file, and after how many good rows, an error happened.
fn at_row(mut error: SqlError, path: &str, rows: u64) -> SqlError {
    let place = format!("in \"{path}\", after row {rows}");
    error.detail = Some(match error.detail.take() {
        Some(detail) => format!("{detail}; {place}"),
        None => place,
    });
    error
}
