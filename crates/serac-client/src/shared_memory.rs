//! Images in shared memory: tables of the process that has the folder open, read in place.
//!
//! ```no_run
//! use serac_client::client::{Client, Options};
//! use serac_client::image::SnapshotRequest;
//!
//! let mut client = Client::connect("my.db".as_ref(), &Options::default())?;
//! let snapshot = client.snapshot(&SnapshotRequest::new([("public", "lineitem")]))?;
//! let rows: usize = snapshot.tables[0].batches.iter().map(|batch| batch.num_rows()).sum();
//! println!("{rows} rows, of which {} bytes were copied", snapshot.copied_bytes);
//! client.end_lease(snapshot.lease)?;
//! # Ok::<(), serac_client::client::Error>(())
//! ```
//!
//! The holder sends descriptors of its data files. Buffers that lie in no file come in one sealed
//! piece of memory, with a descriptor of its own. All are mapped here read-only, into one range of
//! addresses. The range lives as long as any array over it. This process can neither change the
//! holder's data nor make the holder wait.
//!
//! **Trust.** A holder that runs as this process's user, or as root, could change this process's
//! memory anyway. So its data files are mapped ([`map`]), and its values are not checked. The owner
//! of a folder may also be the holder for other users. The owner's process could write to a data
//! file after the values were checked. So the buffers in its files are first copied
//! ([`map_and_copy`]), and then every value is checked.

use crate::client::{Client, Error};
use crate::image::{ImageError, Manifest, PIECE_ALIGNMENT, Piece, SnapshotRequest, Source, Table};
use crate::wire::Failure;
use arrow_buffer::Buffer;
use rustix::fs::{FileType, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The seals that memory must have: they keep its bytes and its length as they are.
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Tables as they were at one moment. The batches live as long as anybody holds them, even after
/// the lease, the connection and the holder have ended.
#[derive(Debug)]
pub struct Snapshot {
    /// The tables, in the order of the request.
    pub tables: Vec<Table>,
    /// The number of the lease, for [`Client::end_lease`].
    pub lease: u64,
    /// By this time the holder has ended the lease by itself. The batches stay readable afterwards.
    pub until: Instant,
    /// Bytes of buffers that lie in the holder's data files.
    pub shared_bytes: u64,
    /// Bytes of buffers that the holder has copied for this snapshot.
    pub copied_bytes: u64,
}

impl Client {
    /// Reads tables as they are now, or as the open transaction sees them. Buffers in data files of
    /// a trusted holder are not copied. The lease counts against the holder's limits: end it with
    /// [`end_lease`](Self::end_lease) when the batches are not needed any more.
    ///
    /// # Errors
    /// The error of the request: 42P01 for a missing table, 42703 for a missing column, 42501 for a
    /// table or column that the role may not read, 53400 and 54000 above the holder's limits.
    pub fn snapshot(&mut self, request: &SnapshotRequest) -> Result<Snapshot, Error> {
        let image = self.snapshot_bytes(&request.encode())?;
        let read = || -> Result<_, ImageError> {
            let manifest = Manifest::decode(image.manifest)?;
            let tables = if self.trusts_holder() {
                // SAFETY: the holder is a process of this one's user or of root. It changes no data
                // file that it has given away.
                let range = unsafe { map(&manifest, &image.descriptors) }?;
                // SAFETY: such a holder gives arrays that it has checked itself, in those files and
                // in memory that nobody can change.
                unsafe { manifest.read_trusted(&range) }?
            } else {
                manifest.read(&map_and_copy(&manifest, &image.descriptors)?)?
            };
            Ok((manifest, tables))
        };
        match read() {
            Ok((manifest, tables)) => Ok(Snapshot {
                tables,
                lease: image.lease,
                until: later(manifest.lease),
                shared_bytes: manifest.shared_bytes,
                copied_bytes: manifest.copied_bytes,
            }),
            Err(error) => {
                self.end_lease(image.lease)?;
                let sqlstate = if matches!(error, ImageError::Map(_)) {
                    sqlstate::INSUFFICIENT_RESOURCES
                } else {
                    sqlstate::INTERNAL_ERROR
                };
                Err(Error::Statement(Failure::new(sqlstate, error.to_string())))
            }
        }
    }
}

/// The end of a period that begins now.
fn later(time: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(LONG)
}

/// A range of addresses. It is unmapped when the last buffer over it is dropped.
struct Range {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: any thread may read this memory.
unsafe impl Send for Range {}
// SAFETY: as above; nobody writes to it.
unsafe impl Sync for Range {}
impl std::panic::RefUnwindSafe for Range {}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: these are its addresses, and no buffer is left that lies there.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// How the pieces that lie in data files come into the range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataFiles {
    Mapped,
    Copied,
}

/// Maps the pieces of an image, read-only, into one range of addresses. The bytes between pieces
/// can be read, too, and are zero. The manifest need not have come from [`Manifest::decode`].
///
/// # Safety
/// Nobody may write to the files of [`Source::File`], or shorten them, as long as anybody holds the
/// buffer or an array over it. This function checks that memory of [`Source::Memory`] is sealed.
///
/// # Errors
/// When the descriptors do not match the manifest, a piece cannot lie at its place, or the system
/// has no room.
pub unsafe fn map(manifest: &Manifest, descriptors: &[OwnedFd]) -> Result<Buffer, ImageError> {
    lay_out(manifest, descriptors, DataFiles::Mapped)
}

/// As [`map`], but copies the tables' buffers that lie in files. So nobody can change the bytes of
/// the result.
///
/// # Errors
/// As for [`map`].
pub fn map_and_copy(manifest: &Manifest, descriptors: &[OwnedFd]) -> Result<Buffer, ImageError> {
    lay_out(manifest, descriptors, DataFiles::Copied)
}

fn lay_out(manifest: &Manifest, descriptors: &[OwnedFd], data_files: DataFiles) -> Result<Buffer, ImageError> {
    let malformed = |what: &str| ImageError::Malformed(what.into());
    manifest.check_pieces()?;
    let bytes = usize::try_from(manifest.range_bytes).map_err(|_| malformed("its range is too long"))?;
    if bytes == 0 {
        return Ok(Buffer::from(&[]));
    }
    let file_of = |source: &Source| match *source {
        Source::File { descriptor, bytes } | Source::Memory { descriptor, bytes } => {
            let file = descriptors.get(descriptor as usize);
            let file = file.ok_or_else(|| malformed("it names a descriptor that has not come"))?;
            let is_memory = matches!(source, Source::Memory { .. });
            check(file, bytes, is_memory)?;
            Ok((file, is_memory || data_files == DataFiles::Mapped))
        }
        Source::Remote { .. } | Source::Placed { .. } => Err(malformed("it lies in no memory of this machine")),
    };
    let files = manifest.sources.iter().map(file_of).collect::<Result<Vec<_>, ImageError>>()?;
    let places = match files.iter().all(|(_, is_mapped)| *is_mapped) {
        true => Vec::new(),
        false => manifest.buffer_places()?,
    };
    let protection = if places.is_empty() { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
    // SAFETY: new addresses. Pages of zeros lie there, which take memory once they are written to.
    let start = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE | MapFlags::NORESERVE)
    };
    let start = NonNull::new(start.map_err(io::Error::from)?).ok_or_else(|| malformed("it lies nowhere"))?;
    let range = Range { start, bytes };
    let mut free_from = 0;
    for piece in &manifest.pieces {
        let end = (piece.offset + piece.bytes).next_multiple_of(PIECE_ALIGNMENT);
        let is_aligned =
            piece.offset.is_multiple_of(PIECE_ALIGNMENT) && piece.source_offset.is_multiple_of(PIECE_ALIGNMENT);
        let file = files.get(piece.source as usize).filter(|_| is_aligned && piece.offset >= free_from);
        let &(file, is_mapped) = file.ok_or_else(|| malformed("a piece does not lie where pages do"))?;
        free_from = end;
        if !is_mapped {
            copy_buffers(&range, piece, &places, file)?;
            continue;
        }
        // SAFETY: the pages lie within the range, which is ours, and in no other piece:
        // `check_pieces` has made sure of the first, and `free_from` of the second.
        unsafe {
            rustix::mm::mmap(
                range.start.as_ptr().byte_add(piece.offset as usize),
                piece.bytes as usize,
                ProtFlags::READ,
                // Private: these pages are never written, so none of them is ever copied.
                MapFlags::PRIVATE | MapFlags::FIXED,
                file,
                piece.source_offset,
            )
        }
        .map_err(io::Error::from)?;
    }
    let start = range.start.cast();
    // SAFETY: the addresses stay as long as the buffer, and all of them can be read: a piece lies
    // within its file, which `check` has found to be as long, and pages of zeros lie elsewhere.
    Ok(unsafe { Buffer::from_custom_allocation(start, bytes, Arc::new(range)) })
}

/// Reads the parts of a piece at these places from its file into the range.
fn copy_buffers(
    range: &Range,
    piece: &Piece,
    places: &[std::ops::Range<u64>],
    file: &OwnedFd,
) -> Result<(), ImageError> {
    let piece_end = piece.offset + piece.bytes;
    let first = places.partition_point(|place| place.end <= piece.offset);
    for place in places[first..].iter().take_while(|place| place.start < piece_end) {
        let (mut from, end) = (place.start.max(piece.offset), place.end.min(piece_end));
        while from < end {
            // SAFETY: the bytes lie in the range. The range is ours and writable, and no other
            // reference leads into it yet.
            let wanted = unsafe {
                std::slice::from_raw_parts_mut(
                    range.start.as_ptr().cast::<u8>().add(from as usize),
                    (end - from) as usize,
                )
            };
            match rustix::io::pread(file, wanted, piece.source_offset + (from - piece.offset)) {
                Ok(0) => return Err(ImageError::Malformed("a file has become shorter".into())),
                Ok(count) => from += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
    Ok(())
}

/// Refuses files that are shorter than the manifest says, and memory that could change.
fn check(file: &OwnedFd, bytes: u64, is_memory: bool) -> Result<(), ImageError> {
    let found = rustix::fs::fstat(file).map_err(io::Error::from)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || (found.st_size as u64) < bytes {
        return Err(ImageError::Malformed("a descriptor is of another file than it says".into()));
    }
    if is_memory && !rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(ImageError::Malformed("the memory is not sealed".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{TableManifest, put_message};
    use arrow_array::{Int64Array, RecordBatch};
    use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
    use rustix::fs::MemfdFlags;

    fn memory(bytes: usize, seals: SealFlags) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::pwrite(&file, &vec![7; bytes], 0).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn manifest(source: Source, pieces: &[(u64, u64, u64)]) -> Manifest {
        let piece = |&(offset, bytes, source_offset)| Piece { offset, bytes, source: 0, source_offset };
        let range_bytes = 1 << 17;
        Manifest {
            range_bytes,
            sources: vec![source],
            pieces: pieces.iter().map(piece).collect(),
            ..Manifest::default()
        }
    }

    #[test]
    fn pieces_lie_where_the_manifest_says() {
        let file = memory(70_000, SEALS);
        let source = Source::Memory { descriptor: 0, bytes: 70_000 };
        let pieces = [(0, 10_000, 0), (64 << 10, 4_464, 64 << 10)];
        let range = map_and_copy(&manifest(source, &pieces), &[file]).unwrap();
        assert_eq!(range.len(), 1 << 17);
        // The bytes between pieces can be read, too.
        assert!(range[16 << 10..64 << 10].iter().all(|&byte| byte == 0));
        assert!(range[..10_000].iter().chain(&range[64 << 10..][..4_464]).all(|&byte| byte == 7));
    }

    #[test]
    fn forged_descriptors_and_places_are_refused() {
        let refused = |manifest: &Manifest, file: OwnedFd| {
            assert!(matches!(map_and_copy(manifest, &[file]), Err(ImageError::Malformed(_))), "{manifest:?}");
        };
        let of = |bytes| Source::Memory { descriptor: 0, bytes };
        for seal in [SealFlags::SEAL, SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE] {
            refused(&manifest(of(4_096), &[(0, 4_096, 0)]), memory(4_096, SEALS.difference(seal)));
        }
        refused(&manifest(of(4_097), &[(0, 4_096, 0)]), memory(4_096, SEALS));
        refused(&manifest(Source::Memory { descriptor: 1, bytes: 1 }, &[]), memory(4_096, SEALS));
        refused(&manifest(Source::Placed { bytes: 9 }, &[]), memory(4_096, SEALS));
        let folder = rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        refused(&manifest(Source::File { descriptor: 0, bytes: 0 }, &[]), folder);
        let long = 1 << 20;
        for pieces in [
            &[(8, 4_096, 0)][..],
            &[(0, 4_096, 64)],
            &[(1 << 17, 4_096, 0)],
            &[(0, 70_000, 0), (64 << 10, 4_096, 0)],
            &[(u64::MAX - 65_535, 4_096, 0)],
        ] {
            refused(&manifest(of(long), pieces), memory(long as usize, SEALS));
        }
    }

    #[test]
    fn a_manifest_made_by_hand_maps_nothing_outside_of_its_range_or_of_its_files() {
        let of = |bytes| Source::Memory { descriptor: 0, bytes };
        let whole = manifest(of(1 << 16), &[(0, 1 << 16, 0)]);
        assert!(map_and_copy(&whole, &[memory(1 << 16, SEALS)]).is_ok());
        // Its pages would lie behind the range's.
        let short = Manifest { range_bytes: 4_096, ..whole.clone() };
        // Pages that the file does not have.
        let long = manifest(of(1 << 16), &[(0, (1 << 16) + 4_096, 0)]);
        let behind = manifest(of(1 << 16), &[(0, 4_096, 1 << 16)]);
        let empty = manifest(of(1 << 16), &[(0, 0, 0)]);
        for wrong in [short, long, behind, empty] {
            let refused = map_and_copy(&wrong, &[memory(1 << 16, SEALS)]);
            assert!(matches!(refused, Err(ImageError::Malformed(_))), "{wrong:?}");
            assert!(matches!(wrong.read(&Buffer::from(&[])), Err(ImageError::Malformed(_))), "{wrong:?}");
        }
    }

    /// A manifest of one table with one column, whose values lie at the beginning of a file.
    fn of_numbers(file_bytes: u64) -> Manifest {
        let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![7; 100])) as _)]).unwrap();
        let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
        let (generator, mut messages) = (IpcDataGenerator::default(), Vec::new());
        let schema = generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
        put_message(&mut messages, &schema.ipc_message);
        let mut context = IpcWriteContext::default();
        let (_, encoded) = generator.encode(&batch, &mut tracker, &options, &mut context).unwrap();
        put_message(&mut messages, &encoded.ipc_message);
        let table = TableManifest { namespace: "public".into(), name: "t".into(), messages: messages.into() };
        let whole = manifest(Source::File { descriptor: 0, bytes: file_bytes }, &[(0, file_bytes, 0)]);
        Manifest { tables: vec![table], ..whole }
    }

    #[test]
    fn what_is_copied_out_of_a_file_stays_when_somebody_writes_to_the_file() {
        // Without seals it is a file that anybody may write to.
        let file = memory(4_096, SealFlags::empty());
        let manifest = of_numbers(4_096);
        let range = map_and_copy(&manifest, std::slice::from_ref(&file)).unwrap();
        let before = manifest.read(&range).unwrap();
        rustix::io::pwrite(&file, &[9; 4_096], 0).unwrap();
        assert_eq!(manifest.read(&range).unwrap()[0].batches, before[0].batches);
        assert_eq!(before[0].batches[0].num_rows(), 100);
        let places = manifest.buffer_places().unwrap();
        let is_named = |at: u64| places.iter().any(|place| place.contains(&at));
        assert!((0..4_096).all(|at| range[at as usize] == if is_named(at) { 7 } else { 0 }));
        assert!(places.iter().map(|place| place.end - place.start).sum::<u64>() >= 800);
        // SAFETY: nobody writes to it any more.
        let mapped = unsafe { map(&manifest, &[file]) }.unwrap();
        assert!(mapped[..4_096].iter().all(|&byte| byte == 9));
    }
}
