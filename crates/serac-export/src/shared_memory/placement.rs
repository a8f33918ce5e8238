//! Places of buffers: in data files, or in a memfd that is sealed in the end.

use super::{CopiedBytes, DescriptorRoom, SharedImage, Sharing};
use crate::image::{ImageBuilder, ImageError, Place, Placement};
use arrow_buffer::Buffer;
use rustix::fs::{MemfdFlags, SealFlags};
use serac_client::image::{ALIGNMENT, Manifest, PIECE_ALIGNMENT, Piece, Source};
use serac_storage::{MappedFile, mapped_file};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 4 << 20;
/// Buffers that wait to be written.
const WRITE_PARTS: usize = 500;
/// Parts that the system takes at a time.
const MOST_SLICES: usize = 1024;
static PADDING: [u8; ALIGNMENT as usize] = [0; ALIGNMENT as usize];

/// The region of the memfd. File `i` is region `i + 1`.
const MEMORY: u32 = 0;

/// A data file that buffers lie in.
#[derive(Clone)]
struct File {
    file: Arc<MappedFile>,
    /// Its region; `None` if it cannot be given.
    region: Option<u32>,
}

pub(super) struct SharedPlacement<'c> {
    sharing: Sharing<'c>,
    most_files: usize,
    /// Files by their mappings' addresses.
    files: HashMap<*const MappedFile, File>,
    /// The file in which the last buffer lay. The buffers of a block lie in the same file.
    last: Option<File>,
    /// Descriptors of the files that are given, by their regions, and their lengths.
    given: Vec<(OwnedFd, u64)>,
    /// Room for descriptors of files and of the memory.
    room: DescriptorRoom,
    memory: Memory,
    copied: CopiedBytes,
    shared_bytes: u64,
    copied_bytes: u64,
}

impl<'c> SharedPlacement<'c> {
    pub(super) fn new(sharing: Sharing<'c>, most_files: usize, room: DescriptorRoom, copied: CopiedBytes) -> Self {
        Self {
            sharing,
            most_files,
            files: HashMap::new(),
            last: None,
            given: Vec::new(),
            room,
            memory: Memory::default(),
            copied,
            shared_bytes: 0,
            copied_bytes: 0,
        }
    }

    /// The entry of a file; a file that is not known yet gets one.
    fn enter(&mut self, file: Arc<MappedFile>) -> File {
        if let Some(known) = self.files.get(&Arc::as_ptr(&file)) {
            return known.clone();
        }
        let mut region = None;
        // A removed file is copied, and so is one for which there is no descriptor.
        if self.given.len() < self.most_files && self.room.take() {
            match file.open() {
                Ok(Some(descriptor)) => {
                    self.given.push((descriptor, file.len() as u64));
                    region = Some(self.given.len() as u32);
                }
                _ => self.room.give_back(),
            }
        }
        let entered = File { file: file.clone(), region };
        self.files.insert(Arc::as_ptr(&file), entered.clone());
        entered
    }

    /// The place of a buffer in a file that the client gets, if it lies in one.
    fn place_in_file(&mut self, buffer: &Buffer) -> Option<Place> {
        if !self.sharing.gives_files {
            return None;
        }
        let lies_there = |last: &File| last.file.offset_of(buffer).is_some();
        if !self.last.as_ref().is_some_and(lies_there) {
            self.last = mapped_file(buffer).map(|file| self.enter(file));
        }
        let File { file, region } = self.last.as_ref()?;
        Some(Place { region: (*region)?, offset: file.offset_of(buffer)? })
    }

    pub(super) fn finish(self, builder: ImageBuilder, lease: Duration) -> Result<SharedImage, ImageError> {
        (self.sharing.check)()?;
        let mut manifest =
            Manifest { shared_bytes: self.shared_bytes, copied_bytes: self.copied_bytes, lease, ..Manifest::default() };
        let (mut descriptors, mut bases) = (Vec::new(), Vec::new());
        let mut put = |file: OwnedFd, source: fn(u32, u64) -> Source, bytes: u64| {
            let offset = manifest.range_bytes;
            manifest.pieces.push(Piece { offset, bytes, source: manifest.sources.len() as u32, source_offset: 0 });
            manifest.sources.push(source(descriptors.len() as u32, bytes));
            manifest.range_bytes = (offset + bytes).next_multiple_of(PIECE_ALIGNMENT);
            descriptors.push(file);
            offset
        };
        bases.push(match self.memory.finish()? {
            Some((file, bytes)) => put(file, |descriptor, bytes| Source::Memory { descriptor, bytes }, bytes),
            // The memory is empty.
            None => 0,
        });
        for (file, bytes) in self.given {
            bases.push(put(file, |descriptor, bytes| Source::File { descriptor, bytes }, bytes));
        }
        manifest.tables = builder.finish(&bases, manifest.range_bytes);
        Ok(SharedImage { manifest, descriptors: self.room.with(descriptors), copied: self.copied })
    }
}

impl Placement for SharedPlacement<'_> {
    fn place(&mut self, parts: &[Buffer]) -> Result<Place, ImageError> {
        if let [whole] = parts
            && let Some(place) = self.place_in_file(whole)
        {
            self.shared_bytes += whole.len() as u64;
            return Ok(place);
        }
        let bytes = parts.iter().map(Buffer::len).sum::<usize>();
        self.copied.add((bytes as u64).next_multiple_of(ALIGNMENT))?;
        self.copied_bytes += bytes as u64;
        let offset = self.memory.put(parts, bytes)?;
        Ok(Place { region: MEMORY, offset })
    }

    fn lends(&self, buffer: &Buffer) -> bool {
        if !self.sharing.gives_files {
            return false;
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.file.offset_of(buffer).is_some()) {
            return last.region.is_some();
        }
        let Some(file) = mapped_file(buffer) else { return false };
        match self.files.get(&Arc::as_ptr(&file)) {
            Some(known) => known.region.is_some(),
            None => self.given.len() < self.most_files && self.room.is_left(),
        }
    }

    fn check(&self) -> Result<(), ImageError> {
        (self.sharing.check)()
    }
}

/// The copied buffers, one behind the other in a memfd.
#[derive(Default)]
struct Memory {
    file: Option<OwnedFd>,
    /// Bytes that have a place.
    bytes: u64,
    /// Bytes that are written.
    written: u64,
    /// Buffers that are not written yet, each with the bytes that are left free behind it.
    waiting: Vec<(Buffer, usize)>,
}

fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> ImageError {
    move |error| ImageError::System(what, error.into())
}

impl Memory {
    /// Appends a buffer of `bytes` bytes, which stands in several parts. Returns its offset.
    fn put(&mut self, parts: &[Buffer], bytes: usize) -> Result<u64, ImageError> {
        let offset = self.bytes;
        self.waiting.extend(parts.iter().map(|part| (part.clone(), 0)));
        if let Some((_, free)) = self.waiting.last_mut() {
            *free = bytes.next_multiple_of(ALIGNMENT as usize) - bytes;
        }
        self.bytes += (bytes as u64).next_multiple_of(ALIGNMENT);
        if self.bytes - self.written >= WRITE_BYTES as u64 || self.waiting.len() >= WRITE_PARTS {
            self.write()?;
        }
        Ok(offset)
    }

    /// Writes the waiting buffers.
    fn write(&mut self) -> Result<(), ImageError> {
        if self.file.is_none() {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let made = rustix::fs::memfd_create("serac image", flags);
            self.file = Some(made.map_err(system("there is no shared memory for the image"))?);
        }
        let file = self.file.as_ref().expect("it has just been made");
        let waiting = std::mem::take(&mut self.waiting);
        let slices = waiting.iter().flat_map(|(part, free)| [IoSlice::new(part), IoSlice::new(&PADDING[..*free])]);
        let mut slices: Vec<IoSlice<'_>> = slices.filter(|slice| !slice.is_empty()).collect();
        let mut slices = &mut slices[..];
        while self.written < self.bytes {
            match rustix::io::pwritev(file, &slices[..slices.len().min(MOST_SLICES)], self.written) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => {
                    return Err(ImageError::System("the image cannot be written", io::ErrorKind::WriteZero.into()));
                }
                Ok(count) => {
                    self.written += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(error) => return Err(system("the image cannot be written")(error)),
            }
        }
        Ok(())
    }

    /// The memory, sealed against any change, and its length; `None` if no buffer was copied.
    fn finish(mut self) -> Result<Option<(OwnedFd, u64)>, ImageError> {
        if self.written < self.bytes {
            self.write()?;
        }
        let Some(file) = self.file else { return Ok(None) };
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(system("the image cannot be sealed"))?;
        Ok(Some((file, self.bytes)))
    }
}
