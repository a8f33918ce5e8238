//! Images in shared memory: the descriptors that a process of the same machine gets.
//!
//! ```text
//! buffer of a block ──▶ lies in a data file, and the client may have all of that ──▶ the file's descriptor
//!                  └──▶ everything else ──▶ copied into one sealed memfd
//! ```
//! A data file is given as a whole: its pages are the system's page cache, which this process, the
//! client and every other client share. It also shows all columns, deleted rows and the catalog, so
//! only superusers get files ([`Sharing::gives_files`]). Other roles get copies of the columns that
//! they may read.
//!
//! **State.** No code here waits for a client, and clients cannot change any data here: the memfd
//! is sealed, and the files are open for reading. When a client ends, its mappings end, too. This
//! process keeps for a client only an account of the bytes that it has copied ([`CopiedBytes`]), up
//! to the end of the lease.
//!
//! **Limits.** There are limits for the data files of an image
//! ([`SharedMemoryOptions::most_files`]) and for the descriptors of all images that are made or
//! sent at a time ([`SharedMemoryOptions::most_descriptors`]). Others are for the bytes that are
//! copied for all images at a time ([`SharedMemoryOptions::most_copied_bytes`]) and for the
//! manifest's length.

mod placement;

use crate::image::{ImageBuilder, ImageError, ImageScan, scans};
use arrow_array::RecordBatchReader;
use placement::SharedPlacement;
use serac_client::image::{Manifest, SnapshotRequest};
use serac_engine::Transaction;
use serac_engine::security::Access;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of images.
#[derive(Clone, Debug)]
pub struct SharedMemoryOptions {
    /// Data files of an image. Blocks in more than these are copied.
    pub most_files: usize,
    /// Descriptors of all images together that have not been sent yet. Buffers in further files are
    /// copied. An image for which there is no descriptor at all is refused.
    pub most_descriptors: u64,
    /// Bytes that are copied for images that clients have at a time.
    pub most_copied_bytes: u64,
    /// The time that an image is kept, unless its client gives it back before.
    pub lease: Duration,
}

impl Default for SharedMemoryOptions {
    fn default() -> Self {
        Self {
            most_files: 1024,
            most_descriptors: quarter_of_descriptors(),
            most_copied_bytes: 4 << 30,
            lease: Duration::from_secs(3600),
        }
    }
}

/// A quarter of the descriptors that this process may have: connections and data files need theirs.
fn quarter_of_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    (limit.unwrap_or(u64::MAX) / 4).max(1)
}

/// The settings of images, and an account of the existing ones.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    options: SharedMemoryOptions,
    /// Bytes that are copied for images that clients have. Relaxed: a sum, and nothing hangs on it.
    copied: Arc<AtomicU64>,
    /// Descriptors of images that have not been sent. Relaxed: as above.
    descriptors: Arc<AtomicU64>,
}

/// Open files that an image names, which count against those of all images until they are closed.
#[derive(Debug)]
pub struct Descriptors {
    files: Vec<OwnedFd>,
    /// The number of these that this image has.
    counted: u64,
    all: Arc<AtomicU64>,
}

impl Deref for Descriptors {
    type Target = [OwnedFd];

    fn deref(&self) -> &[OwnedFd] {
        &self.files
    }
}

/// Files that count against nothing.
impl FromIterator<OwnedFd> for Descriptors {
    fn from_iter<T: IntoIterator<Item = OwnedFd>>(files: T) -> Self {
        Self { files: files.into_iter().collect(), counted: 0, all: Arc::default() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // Other images may have descriptors when these are closed.
        self.files.clear();
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// The right to open files. All images together have at most `most` files open.
struct DescriptorRoom {
    counted: Descriptors,
    most: u64,
}

impl DescriptorRoom {
    /// Room for the copies of an image.
    fn new(all: &Arc<AtomicU64>, most: u64) -> Result<Self, ImageError> {
        let counted = Descriptors { files: Vec::new(), counted: 0, all: all.clone() };
        let mut room = Self { counted, most };
        if room.take() {
            return Ok(room);
        }
        Err(ImageError::NoRoom(format!("images that have not been sent have all of {most} descriptors: try again")))
    }

    /// Whether there is room for another file.
    fn is_left(&self) -> bool {
        self.counted.all.load(Ordering::Relaxed) < self.most
    }

    /// Takes room for another file; false if there is no room.
    fn take(&mut self) -> bool {
        let taken = |before: u64| (before < self.most).then(|| before + 1);
        let has_room = self.counted.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok();
        self.counted.counted += u64::from(has_room);
        has_room
    }

    /// Gives back room for one file.
    fn give_back(&mut self) {
        self.counted.counted -= 1;
        self.counted.all.fetch_sub(1, Ordering::Relaxed);
    }

    /// The image's files, for which there is room.
    fn with(self, files: Vec<OwnedFd>) -> Descriptors {
        let mut counted = self.counted;
        assert!(files.len() as u64 <= counted.counted, "each has taken room");
        let surplus = counted.counted - files.len() as u64;
        counted.counted -= surplus;
        counted.all.fetch_sub(surplus, Ordering::Relaxed);
        counted.files = files;
        counted
    }
}

/// Bytes that an image has copied, as long as it is kept.
#[derive(Debug)]
pub struct CopiedBytes {
    all: Arc<AtomicU64>,
    own: u64,
    most: u64,
}

impl CopiedBytes {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.own
    }

    /// Accounts for more.
    fn add(&mut self, bytes: u64) -> Result<(), ImageError> {
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        self.own += bytes;
        if before.saturating_add(bytes) <= self.most {
            return Ok(());
        }
        let most = self.most;
        Err(ImageError::NoRoom(format!(
            "images of at most {most} bytes are copied at a time: ask for less, end other leases, or read after a checkpoint"
        )))
    }
}

impl Drop for CopiedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// The settings of an image for one client.
#[derive(Clone, Copy)]
pub struct Sharing<'c> {
    /// Whether the client may have data files, with all that is in them.
    pub gives_files: bool,
    /// Fails when the image is not wanted any more.
    pub check: &'c (dyn Fn() -> Result<(), ImageError> + 'c),
}

impl std::fmt::Debug for Sharing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("gives_files", &self.gives_files).finish_non_exhaustive()
    }
}

/// An image that is ready to be sent.
#[derive(Debug)]
pub struct SharedImage {
    /// The places of the data.
    pub manifest: Manifest,
    /// The files that the manifest names by their numbers in this list.
    pub descriptors: Descriptors,
    /// The account of the copied bytes, to be kept as long as the lease.
    pub copied: CopiedBytes,
}

impl SharedMemory {
    /// Images with these limits.
    pub fn new(options: SharedMemoryOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Descriptors of images that have not been sent.
    pub fn open_descriptors(&self) -> u64 {
        self.descriptors.load(Ordering::Relaxed)
    }

    /// Bytes that are copied for images that clients have.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Makes the image of a request, as the transaction sees it. All of that must be durable.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn image(
        &self,
        request: &SnapshotRequest,
        txn: &Transaction,
        access: &Access,
        check: &dyn Fn() -> Result<(), ImageError>,
    ) -> Result<SharedImage, ImageError> {
        let sharing = Sharing { gives_files: access.is_superuser(), check };
        let copied = CopiedBytes { all: self.copied.clone(), own: 0, most: self.options.most_copied_bytes };
        let room = DescriptorRoom::new(&self.descriptors, self.options.most_descriptors)?;
        let mut placement = SharedPlacement::new(sharing, self.options.most_files, room, copied);
        let mut builder = ImageBuilder::default();
        for ImageScan { namespace, name, scan } in scans(txn, access, request)? {
            builder.add_table(&namespace, &name, &scan.schema(), scan, &mut placement)?;
        }
        let lease = request.lease_ms.map_or(self.options.lease, |ms| self.options.lease.min(Duration::from_millis(ms)));
        placement.finish(builder, lease)
    }
}
