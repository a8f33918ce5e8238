//! The readers of COPY FROM: batches, made on a thread of their own.

use super::binary::BinaryReader;
use super::csv::CsvReader;
use super::file::{CopyFile, KnownFile, Want, Wanted};
use super::json::JsonReader;
use super::options::{Format, Options};
use super::text::TextReader;
use crate::arrival::CopyInput;
use crate::arrow_messages::ArrowStream;
use crate::file::io;
use crate::progress::CopyProgress;
use crate::rows::{BATCH_ROWS, Rows};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serac_storage::ColumnType;
use serac_values::arrow_input::given_batch;
use serac_values::{Result, SqlError};
use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::sync::mpsc::Receiver;

/// Batches that reading may be ahead of writing.
const BATCHES_AHEAD: usize = 4;

/// The origin of the bytes.
pub enum Input {
    /// The file of this name.
    File(String),
    /// A file that must not have changed, nor change while it is read.
    Known(KnownFile),
    /// The data that a client sends.
    Stream(Box<dyn CopyInput + Send>),
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    progress: Arc<CopyProgress>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        // Relaxed: a figure to be shown.
        self.progress.done.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: CopyInput> CopyInput for Counted<R> {
    fn comes_soon(&mut self) -> bool {
        self.inner.comes_soon()
    }
}

type Batches = Box<dyn Iterator<Item = Result<Rows>>>;

/// Batches of a reader of Arrow's types.
fn without_lines<E>(reader: impl Iterator<Item = Result<RecordBatch, E>> + 'static) -> Batches
where
    SqlError: From<E>,
{
    Box::new(reader.map(|batch| Ok(given_batch(batch?)?.into())))
}

fn buffered<R: Read>(input: R) -> BufReader<R> {
    BufReader::with_capacity(1 << 20, input)
}

/// The batches of a format whose rows come one by one; `None` for another format.
fn row_batches(input: impl CopyInput + 'static, options: &Options, types: &[ColumnType]) -> Option<Batches> {
    match options.format {
        Format::Csv => Some(Box::new(CsvReader::new(input, options, types))),
        Format::Text => Some(Box::new(TextReader::new(buffered(input), options, types.len()))),
        Format::Binary => {
            Some(Box::new(BinaryReader::new(buffered(input), types.to_vec()).map(|batch| Ok(batch?.into()))))
        }
        Format::Json => Some(Box::new(JsonReader::new(input, options, types))),
        Format::Parquet | Format::Arrow => None,
    }
}

fn file_batches(
    path: &str,
    file: CopyFile,
    options: &Options,
    types: &[ColumnType],
    progress: Arc<CopyProgress>,
) -> Result<Batches> {
    progress.total.store(file.length().map_err(|e| io(path, e))?, Ordering::Relaxed);
    let counted = |file| Counted { inner: file, progress: progress.clone() };
    Ok(match options.format {
        Format::Csv | Format::Text | Format::Binary | Format::Json => {
            row_batches(counted(file), options, types).expect("its rows come one by one")
        }
        Format::Parquet => {
            let invalid = |e: datafusion::parquet::errors::ParquetError| {
                SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, e.to_string())
            };
            let file = file.into_regular(path)?;
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(invalid)?;
            progress.total.store(builder.metadata().file_metadata().num_rows() as u64, Ordering::Relaxed);
            let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(invalid)?;
            Box::new(reader.map(move |batch| {
                let batch = given_batch(batch?)?;
                progress.done.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                Ok(batch.into())
            }))
        }
        Format::Arrow => without_lines(ArrowStream::new(buffered(counted(file)))?),
    })
}

/// The batches of a file that must stay as it is.
fn known_batches(
    known: &KnownFile,
    options: &Options,
    types: &[ColumnType],
    progress: Arc<CopyProgress>,
    wanted: Wanted,
) -> Result<Batches> {
    let path = known.path();
    let file = known.open()?;
    let kept = file.try_clone().map_err(|error| io(path, error))?;
    let read = CopyFile::of_open(file, wanted).map_err(|error| io(path, error))?;
    let batches = file_batches(path, read, options, types, progress)?;
    let check = Arc::new({
        let known = known.clone();
        move || known.check(&kept).err()
    });
    let at_end = check.clone();
    // An error may be a consequence of the change.
    let batches = batches.map(move |batch| batch.map_err(|error| check().unwrap_or(error)));
    Ok(Box::new(batches.chain(std::iter::once_with(move || at_end().map(Err)).flatten())))
}

/// The columns of a file that COPY FROM would read, by its name's extension.
///
/// # Errors
/// SQLSTATE 58P01 for a file that does not exist, 58030 for one that cannot be opened, 22P04 for
/// one that is not of its format, 0A000 for a format that does not describe columns.
pub fn file_schema(path: &str) -> Result<SchemaRef> {
    let options = Options::of_file(path, Format::Csv);
    let file = File::open(path).map_err(|e| io(path, e))?;
    let invalid = |e: &dyn std::fmt::Display| {
        SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, format!("\"{path}\" cannot be read: {e}"))
    };
    Ok(match options.format {
        Format::Parquet => ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| invalid(&e))?.schema().clone(),
        Format::Arrow => ArrowStream::new(buffered(file)).map_err(|e| invalid(&e))?.schema().clone(),
        Format::Csv | Format::Text | Format::Binary | Format::Json => {
            return Err(SqlError::unsupported("columns from a file of this format"));
        }
    })
}

fn stream_batches(
    input: Box<dyn CopyInput + Send>,
    options: &Options,
    types: &[ColumnType],
    progress: Arc<CopyProgress>,
) -> Result<Batches> {
    let input = Counted { inner: input, progress };
    match options.format {
        Format::Csv => Ok(Box::new(CsvReader::new(input, options, types).until_mark())),
        Format::Text | Format::Binary | Format::Json => {
            Ok(row_batches(input, options, types).expect("its rows come one by one"))
        }
        Format::Parquet => Err(SqlError::unsupported("COPY FROM STDIN in the format parquet")),
        Format::Arrow => Ok(without_lines(ArrowStream::new(buffered(input))?)),
    }
}

/// Batches of an input as they are read. Batches of the text format are texts, batches of CSV are
/// texts or integers.
pub struct Source {
    batches: Receiver<Result<Rows>>,
    reader: Option<JoinHandle<()>>,
    _want: Want,
}

impl Source {
    /// Begins to read columns of these types.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(input: Input, options: Options, types: Vec<ColumnType>, progress: Arc<CopyProgress>) -> Result<Self> {
        let (sender, batches) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
        let want = Want::default();
        let wanted = Wanted::by(&want);
        let read = move || {
            let opened = match input {
                Input::File(path) => CopyFile::open(&path, wanted)
                    .map_err(|error| io(&path, error))
                    .and_then(|file| file_batches(&path, file, &options, &types, progress)),
                Input::Known(known) => known_batches(&known, &options, &types, progress, wanted),
                Input::Stream(input) => stream_batches(input, &options, &types, progress),
            };
            match opened {
                Ok(batches) => {
                    for batch in batches {
                        let failed = batch.is_err();
                        // After an error or a cancellation nobody takes batches.
                        if sender.blocking_send(batch).is_err() || failed {
                            break;
                        }
                    }
                }
                Err(error) => drop(sender.blocking_send(Err(error))),
            }
        };
        // No thread of the runtime's blocking pool: the runtime would wait for its end, while this
        // thread waits for a terminal.
        let reader = std::thread::Builder::new().name("serac-copy".into()).spawn(read);
        let reader = reader
            .map_err(|e| SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, format!("no thread for reading: {e}")))?;
        Ok(Self { batches, reader: Some(reader), _want: want })
    }

    /// The next rows; `None` behind the last.
    ///
    /// # Errors
    /// The errors of the input.
    pub async fn next(&mut self) -> Result<Option<Rows>> {
        if let Some(batch) = self.batches.recv().await {
            return batch.map(Some);
        }
        // The channel is closed: the thread has ended, or is about to.
        match self.reader.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, "the input could not be read")),
            _ => Ok(None),
        }
    }
}
