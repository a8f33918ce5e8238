//! Arrow IPC streams as files in memory, which several processes can map.

use super::account::{Account, Charge, Unlimited};
use super::error::{ComputeError, PassedLimit, Result};
use arrow_array::RecordBatch;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, Schema};
use memmap2::Mmap;
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Buffers of a stream begin at multiples of this, as in a block.
const ALIGNMENT: usize = 64;
/// Bytes that are written at a time.
const WRITE_BUFFER: usize = 1 << 20;

/// A sealed file in memory that holds a stream of Arrow IPC. It cannot be changed any more.
#[derive(Debug)]
pub struct StreamFile {
    file: Arc<File>,
    length: u64,
    /// The charge for its bytes, which exist as long as the file or a map of it.
    charge: Arc<Charge>,
}

/// A file in memory that can be sealed.
pub(super) fn memory_file(name: &str) -> Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags).map_err(|error| ComputeError::io("no file in memory", error))?;
    Ok(File::from(file))
}

impl StreamFile {
    /// Writes batches that have the columns of `schema`. At most `most` bytes.
    ///
    /// # Errors
    /// [`ComputeError::Io`] for an error of `batches`, of Arrow or of the system, and
    /// [`ComputeError::Limit`] for more bytes.
    pub fn write(
        schema: &Schema,
        batches: impl IntoIterator<Item = std::result::Result<RecordBatch, ArrowError>>,
        most: u64,
    ) -> Result<Self> {
        let mut writer = StreamFileWriter::new(schema, most)?;
        for batch in batches {
            writer.write(&batch.map_err(|error| ComputeError::io("an input cannot be read", error))?)?;
        }
        writer.finish()
    }

    /// Seals a written file whose bytes are charged for.
    ///
    /// # Errors
    /// [`ComputeError::Io`] if it cannot be sealed, because it may still be written to.
    pub(super) fn seal(file: File, charge: Charge) -> Result<Self> {
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(|error| ComputeError::io("the file cannot be sealed", error))?;
        let length = file.metadata().map_err(|error| ComputeError::io("the file has no length", error))?.len();
        Ok(Self { file: Arc::new(file), length, charge: Arc::new(charge) })
    }

    /// The same file.
    pub(super) fn try_clone(&self) -> Result<Self> {
        Ok(Self { file: self.file.clone(), length: self.length, charge: self.charge.clone() })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it is empty, even without a schema.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The descriptor. Its position has no meaning: others may share it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The bytes, in place.
    ///
    /// # Errors
    /// [`ComputeError::Io`] if the file cannot be mapped.
    pub fn map(&self) -> Result<MappedStream> {
        let charge = self.charge.clone();
        if self.length == 0 {
            return Ok(MappedStream { map: None, _charge: charge });
        }
        // SAFETY: the file is sealed against writes and changes of its length, so its bytes stay.
        let map = unsafe { Mmap::map(&*self.file) };
        let map = map.map_err(|error| ComputeError::io("the output cannot be mapped", error))?;
        Ok(MappedStream { map: Some(map), _charge: charge })
    }
}

/// The bytes of a [`StreamFile`], in place.
#[derive(Debug)]
pub struct MappedStream {
    map: Option<Mmap>,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for MappedStream {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// The reason why bytes were refused: Arrow does not pass on a [`ComputeError`].
type Refusal = Arc<Mutex<Option<ComputeError>>>;

/// Counts the written bytes, charges for them before they are written, and refuses too many.
struct Bounded {
    file: File,
    left: u64,
    most: u64,
    charge: Charge,
    refusal: Refusal,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let wanted = bytes.len() as u64;
        let room = match wanted <= self.left {
            true => self.charge.grow(wanted),
            false => {
                let (program, limit) = ("the job".to_owned(), PassedLimit::Input(self.most));
                Err(ComputeError::Limit { program, limit, errors: String::new() })
            }
        };
        if let Err(error) = room {
            let message = error.to_string();
            // Later bytes are refused, too. The first says why.
            self.refusal.lock().get_or_insert(error);
            return Err(std::io::Error::other(message));
        }
        self.file.write_all(bytes)?;
        self.left -= wanted;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes a [`StreamFile`], batch by batch.
pub struct StreamFileWriter {
    writer: StreamWriter<BufWriter<Bounded>>,
    refusal: Refusal,
}

impl std::fmt::Debug for StreamFileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamFileWriter")
    }
}

fn unwritten(error: impl std::fmt::Display, refusal: &Refusal) -> ComputeError {
    refusal.lock().take().unwrap_or_else(|| ComputeError::io("an input cannot be written", error))
}

impl StreamFileWriter {
    /// A writer for batches that have the columns of `schema`, of at most `most` bytes altogether.
    /// No account is charged.
    ///
    /// # Errors
    /// [`ComputeError::Io`].
    pub fn new(schema: &Schema, most: u64) -> Result<Self> {
        let nobody: Arc<dyn Account> = Arc::new(Unlimited);
        Self::charged(schema, most, &nobody)
    }

    /// As [`new`](Self::new). The account is charged for the bytes before they are written, and
    /// until the file is unreferenced.
    ///
    /// # Errors
    /// [`ComputeError::Io`], and the errors of the account.
    pub fn charged(schema: &Schema, most: u64, account: &Arc<dyn Account>) -> Result<Self> {
        let refusal = Refusal::default();
        let (file, charge) = (memory_file("serac-input")?, Charge::new(account));
        let bounded = Bounded { file, left: most, most, charge, refusal: refusal.clone() };
        let file = BufWriter::with_capacity(WRITE_BUFFER, bounded);
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, arrow_ipc::MetadataVersion::V5);
        let options = options.map_err(|error| unwritten(error, &refusal))?;
        let writer = StreamWriter::try_new_with_options(file, schema, options);
        Ok(Self { writer: writer.map_err(|error| unwritten(error, &refusal))?, refusal })
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// [`ComputeError::Io`], [`ComputeError::Limit`], and the errors of the account.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(|error| unwritten(error, &self.refusal))
    }

    /// Seals the file.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(self) -> Result<StreamFile> {
        let Self { writer, refusal } = self;
        let file = writer.into_inner().map_err(|error| unwritten(error, &refusal))?;
        let file = file.into_inner().map_err(|error| unwritten(error.error(), &refusal))?;
        StreamFile::seal(file.file, file.charge)
    }
}
