//! What COPY TO writes.

use super::binary::BinaryWriter;
use super::options::{Format, Options};
use super::writer::LineWriter;
use crate::error::{Result, SqlError};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::errors::ParquetError;
use std::io::Write;

type Output = Box<dyn Write + Send>;

/// Writes batches in one format.
pub(super) enum Sink {
    Lines(LineWriter<Output>),
    Binary(BinaryWriter<Output>),
    Parquet(Box<ArrowWriter<Output>>),
    ArrowFile(Box<ipc::writer::FileWriter<Output>>),
    ArrowStream(Box<ipc::writer::StreamWriter<Output>>),
}

fn parquet(error: ParquetError) -> SqlError {
    SqlError::new("58030", error.to_string())
}

impl Sink {
    /// `stream`: what reads the output may do so before it is complete.
    pub(super) fn new(output: Output, schema: &SchemaRef, options: &Options, stream: bool) -> Result<Self> {
        Ok(match options.format {
            Format::Csv | Format::Text => {
                let names = schema.fields().iter().map(|field| field.name().clone()).collect();
                Self::Lines(LineWriter::new(output, options, names))
            }
            Format::Binary => Self::Binary(BinaryWriter::new(output)),
            Format::Parquet => {
                let writer = ArrowWriter::try_new(output, schema.clone(), None).map_err(parquet)?;
                Self::Parquet(Box::new(writer))
            }
            Format::Arrow if stream => Self::ArrowStream(Box::new(ipc::writer::StreamWriter::try_new(output, schema)?)),
            Format::Arrow => Self::ArrowFile(Box::new(ipc::writer::FileWriter::try_new(output, schema)?)),
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Lines(writer) => writer.write(batch)?,
            Self::Binary(writer) => writer.write(batch)?,
            Self::Parquet(writer) => writer.write(batch).map_err(parquet)?,
            Self::ArrowFile(writer) => writer.write(batch)?,
            Self::ArrowStream(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Writes what ends the format, and everything that is buffered.
    pub(super) fn finish(self) -> Result<()> {
        let mut output = match self {
            Self::Lines(writer) => writer.finish()?,
            Self::Binary(writer) => writer.finish()?,
            Self::Parquet(writer) => writer.into_inner().map_err(parquet)?,
            Self::ArrowFile(writer) => writer.into_inner()?,
            Self::ArrowStream(writer) => writer.into_inner()?,
        };
        output.flush().map_err(|e| SqlError::new("58030", format!("could not write: {e}")))
    }
}
