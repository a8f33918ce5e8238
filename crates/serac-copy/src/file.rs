//! Files of COPY. Opening, reading and writing them blocks no thread that others need.
//!
//! Opening a named pipe takes until somebody opens its other end. Reading or writing a pipe or a
//! device takes as long as its other end likes. So a thread of its own opens, reads and writes each
//! file, and the session waits for that thread as it waits for rows. Pipes and devices are opened
//! without blocking (O_NONBLOCK) and polled every [`ASKED`]. If the statement was cancelled, its
//! thread finds at the next poll that nobody wants the file ([`Wanted`]), and ends. Only a file
//! system that does not answer can hold the thread up for longer. It then holds up nothing else.

use super::options::Options;
use super::sink::Sink;
use crate::arrival::{COPY_PATIENCE, CopyInput};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use rustix::event::{PollFd, PollFlags, Timespec};
use serac_values::{Result, SqlError};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Time between two questions whether a pipe or a device is still wanted.
const ASKED: Duration = Duration::from_millis(100);
/// Time between two tries to open a pipe that nobody reads.
const PAUSE: Duration = Duration::from_millis(20);
/// Batches that the query may be ahead of the file.
const BATCHES_AHEAD: usize = 4;

/// The error of a file that cannot be opened.
pub(super) fn io(path: &str, error: std::io::Error) -> SqlError {
    let sqlstate =
        if error.kind() == std::io::ErrorKind::NotFound { sqlstate::UNDEFINED_FILE } else { sqlstate::IO_ERROR };
    SqlError::new(sqlstate, format!("could not open file \"{path}\": {error}"))
}

/// Opens a regular file to be read.
///
/// # Errors
/// 58P01 for a file that does not exist, 42809 for a directory, a pipe or a device, 58030 for one
/// that cannot be opened.
pub fn open_regular(path: &str) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path).map_err(|error| io(path, error))?;
    let is_file = file.metadata().map_err(|error| io(path, error))?.is_file();
    let wrong = || SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{path}\" is no regular file"));
    if is_file { Ok(file) } else { Err(wrong()) }
}

/// A regular file as a statement has found it. Its reader is told if it is another by then, or
/// becomes one while it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFile {
    path: String,
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds of its last change.
    modified: (i64, i64),
}

impl KnownFile {
    /// The file that is open, whose name this is.
    ///
    /// # Errors
    /// 58030.
    pub fn of(path: &str, file: &File) -> Result<Self> {
        let found = file.metadata().map_err(|error| io(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }

    /// Its name.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Opens it again.
    ///
    /// # Errors
    /// As [`open_regular`]; 55000 if the file has changed.
    pub fn open(&self) -> Result<File> {
        let file = open_regular(&self.path)?;
        self.check(&file)?;
        Ok(file)
    }

    /// That the open file is the known one, unchanged.
    ///
    /// # Errors
    /// 55000 if it is not.
    pub fn check(&self, file: &File) -> Result<()> {
        if Self::of(&self.path, file)? == *self {
            return Ok(());
        }
        let message = format!("file \"{}\" has changed since the statement was planned", self.path);
        Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    }
}

/// Held by the statement that wants a file.
pub(super) type Want = Arc<()>;

/// Whether the statement that wants a file is still there.
#[derive(Clone)]
pub(super) struct Wanted(Weak<()>);

impl Wanted {
    pub(super) fn by(want: &Want) -> Self {
        Self(Arc::downgrade(want))
    }

    fn check(&self) -> std::io::Result<()> {
        match self.0.strong_count() {
            0 => Err(std::io::Error::other("the statement has ended")),
            _ => Ok(()),
        }
    }
}

/// A file that is read or written no longer than it is wanted.
pub(super) struct CopyFile {
    file: File,
    /// Whether reads and writes may block: for a pipe or a device.
    is_polled: bool,
    wanted: Wanted,
}

/// The flags with which all files are opened.
const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

impl CopyFile {
    fn new(file: File, wanted: Wanted) -> std::io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let is_polled = kind.is_fifo() || kind.is_char_device() || kind.is_socket();
        Ok(Self { file, is_polled, wanted })
    }

    /// Opens a file to be read.
    pub(super) fn open(path: &str, wanted: Wanted) -> std::io::Result<Self> {
        Self::new(OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?, wanted)
    }

    /// A file that is open already.
    pub(super) fn of_open(file: File, wanted: Wanted) -> std::io::Result<Self> {
        Self::new(file, wanted)
    }

    /// Opens a file to be written, and empties it. Waits until somebody reads a pipe.
    pub(super) fn create(path: &str, wanted: Wanted) -> std::io::Result<Self> {
        let is_pipe = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        loop {
            let opened = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(FLAGS).open(path);
            match opened {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe() => {
                    wanted.check()?;
                    std::thread::sleep(PAUSE);
                }
                opened => return Self::new(opened?, wanted),
            }
        }
    }
    pub(super) fn length(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The file itself, which must not be a pipe or a device.
    pub(super) fn into_regular(self, path: &str) -> Result<File> {
        let message = || format!("\"{path}\" is a pipe or a device, which cannot be read in this format");
        if self.is_polled { Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message())) } else { Ok(self.file) }
    }

    /// Waits until a pipe or a device can be read or written. It cannot be before somebody has
    /// opened its other end.
    fn wait(&self, flags: PollFlags) -> std::io::Result<()> {
        let pause = Timespec::try_from(ASKED).map_err(std::io::Error::other)?;
        if !self.is_polled {
            return Ok(());
        }
        loop {
            self.wanted.check()?;
            match rustix::event::poll(&mut [PollFd::new(&self.file, flags)], Some(&pause)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for CopyFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            self.wait(PollFlags::IN)?;
            match self.file.read(buffer) {
                // Another reader was faster.
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_polled => {}
                read => return read,
            }
        }
    }
}

impl CopyInput for CopyFile {
    fn comes_soon(&mut self) -> bool {
        let pause = Timespec::try_from(COPY_PATIENCE);
        let mut asked = [PollFd::new(&self.file, PollFlags::IN)];
        // If polling fails, the next read reports the error.
        !self.is_polled || pause.is_err() || rustix::event::poll(&mut asked, pause.as_ref().ok()) != Ok(0)
    }
}

impl Write for CopyFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            self.wait(PollFlags::OUT)?;
            match self.file.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_polled => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// A file that COPY TO writes, on a thread of its own.
pub struct FileSink {
    /// Batches, and `None` for the end. If the channel ends without `None`, the statement is
    /// cancelled.
    parts: mpsc::Sender<Option<RecordBatch>>,
    ended: oneshot::Receiver<Result<()>>,
    _want: Want,
}

impl FileSink {
    /// Opens the file.
    pub async fn create(path: &str, schema: SchemaRef, options: Options) -> Result<Self> {
        let want = Want::default();
        let (parts, mut taken) = mpsc::channel::<Option<RecordBatch>>(BATCHES_AHEAD);
        let (opens, opened) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let (wanted, path) = (Wanted::by(&want), path.to_owned());
        let write = move || {
            let begin = || {
                let file = CopyFile::create(&path, wanted).map_err(|error| io(&path, error))?;
                Sink::new(Box::new(BufWriter::with_capacity(1 << 20, file)), &schema, &options, false)
            };
            let mut sink = match begin() {
                Ok(sink) => sink,
                Err(error) => return drop(opens.send(Err(error))),
            };
            // A statement that has gone meanwhile sends nothing.
            let _ = opens.send(Ok(()));
            let result = loop {
                match taken.blocking_recv() {
                    Some(Some(batch)) => {
                        if let Err(error) = sink.write(&batch) {
                            break Err(error);
                        }
                    }
                    Some(None) => break sink.finish(),
                    None => return,
                }
            };
            let _ = ends.send(result);
        };
        let writer = std::thread::Builder::new().name("serac-copy".into()).spawn(write);
        writer.map_err(|error| {
            SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, format!("no thread for writing: {error}"))
        })?;
        opened.await.unwrap_or_else(|_| Err(Self::broken()))?;
        Ok(Self { parts, ended, _want: want })
    }

    fn broken() -> SqlError {
        SqlError::new(sqlstate::INTERNAL_ERROR, "the output could not be written")
    }

    /// The thread's result: it has ended, or is about to.
    async fn end(&mut self) -> Result<()> {
        (&mut self.ended).await.unwrap_or_else(|_| Err(Self::broken()))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// 58030 for an error of the file system.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.parts.send(Some(batch.clone())).await {
            Ok(()) => Ok(()),
            Err(_) => self.end().await,
        }
    }

    /// Writes the end of the format, and everything that is buffered.
    pub async fn finish(mut self) -> Result<()> {
        // Without a receiver there is an error already.
        let _ = self.parts.send(None).await;
        self.end().await
    }
}
