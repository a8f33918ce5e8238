//! The writers of COPY TO.

use super::binary::BinaryWriter;
use super::options::{Format, Options};
use super::writer::LineWriter;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::errors::ParquetError;
use serac_values::wire::{check_widths, width};
use serac_values::{Result, SqlError};
use std::io::Write;

type Output = Box<dyn Write + Send>;

/// The writers of the formats.
enum Writer {
    Lines(LineWriter<Output>),
    Binary(BinaryWriter<Output>),
    Parquet(Box<ArrowWriter<Output>>),
    ArrowFile(Box<ipc::writer::FileWriter<Output>>),
    ArrowStream(Box<ipc::writer::StreamWriter<Output>>),
}

/// Writes batches in one format.
pub struct Sink(Writer);

fn parquet(error: ParquetError) -> SqlError {
    SqlError::new(sqlstate::IO_ERROR, error.to_string())
}

impl Sink {
    /// A sink of rows of a schema. `stream`: a reader of the output may begin before it is
    /// complete.
    ///
    /// # Errors
    /// 58030 if the output cannot be written, 54000 if a row may have too many blanks.
    pub fn new(output: Output, schema: &SchemaRef, options: &Options, stream: bool) -> Result<Self> {
        let writer = match options.format {
            Format::Csv | Format::Text | Format::Binary => {
                check_widths(schema.fields().iter().map(|field| width(field)))?;
                match options.format {
                    Format::Binary => Writer::Binary(BinaryWriter::new(output, schema)),
                    _ => Writer::Lines(LineWriter::new(output, options, schema)?),
                }
            }
            Format::Json => return Err(SqlError::unsupported("writing JSON")),
            Format::Parquet => {
                let writer = ArrowWriter::try_new(output, schema.clone(), None).map_err(parquet)?;
                Writer::Parquet(Box::new(writer))
            }
            Format::Arrow if stream => {
                Writer::ArrowStream(Box::new(ipc::writer::StreamWriter::try_new(output, schema)?))
            }
            Format::Arrow => Writer::ArrowFile(Box::new(ipc::writer::FileWriter::try_new(output, schema)?)),
        };
        Ok(Self(writer))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.0 {
            Writer::Lines(writer) => writer.write(batch)?,
            Writer::Binary(writer) => writer.write(batch)?,
            Writer::Parquet(writer) => writer.write(batch).map_err(parquet)?,
            Writer::ArrowFile(writer) => writer.write(batch)?,
            Writer::ArrowStream(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Writes the end of the format, and everything that is buffered.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn finish(self) -> Result<()> {
        let mut output = match self.0 {
            Writer::Lines(writer) => writer.finish()?,
            Writer::Binary(writer) => writer.finish()?,
            Writer::Parquet(writer) => writer.into_inner().map_err(parquet)?,
            Writer::ArrowFile(writer) => writer.into_inner()?,
            Writer::ArrowStream(writer) => writer.into_inner()?,
        };
        output.flush().map_err(|e| SqlError::new(sqlstate::IO_ERROR, format!("could not write: {e}")))
    }
}
