//! Files that fail on purpose, for tests.
//!
//! [`FaultFileSystem`] passes everything on to the operating system's files, with faults switched
//! on by number. A [`FaultFileSystem::with_disk`] also models the disk below the operating system's
//! cache, to simulate the death of the process and the loss of power:
//!
//! * Written bytes are on the disk once their file is synced. Unsynced bytes fall into pieces of a
//!   sector's or a page's size. Each piece may be there or not, independently of its neighbours (a
//!   torn page). The same holds for each change of the file's length.
//! * A new, renamed or removed name, that of a folder included, is on the disk once the folder in
//!   which it stands is synced. The disk holds a prefix of the later changes: file systems keep a
//!   journal of them. With [`Faults::unordered_removals`], which of the removals it holds is a
//!   matter of chance.

use super::{FileSystem, FolderLock, RealFileSystem, StorageFile};
use arrow_buffer::Buffer;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// A real file system with faults.
#[derive(Debug, Clone, Default)]
pub struct FaultFileSystem {
    faults: Arc<Faults>,
    disk: Option<Arc<Mutex<Disk>>>,
    written: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    /// The lengths of the files that were touched.
    lengths: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
}

/// The switches of a [`FaultFileSystem`].
#[derive(Debug, Default)]
pub struct Faults {
    /// While set, reserving space and making a file longer fail with "no space left".
    pub disk_full: AtomicBool,
    /// The most bytes that all files may have together (0: no limit). A write beyond it fails with
    /// "no space left", after the part for which there is room. Files count from when they are
    /// first touched, until they are removed.
    pub capacity: AtomicU64,
    /// The n-th read from now fails (0: never), and all later ones. Mapping a file is a read.
    pub fail_read_in: AtomicU64,
    /// The n-th change of a name from now fails (0: never), and all later ones: making a file or a
    /// folder, linking, renaming, removing.
    pub fail_name_in: AtomicU64,
    /// While set, syncs of files wait.
    pub hold_syncs: AtomicBool,
    /// While set, syncs of folders wait.
    pub hold_folder_syncs: AtomicBool,
    /// While set, a loss of power may lose a removal although a later one is on the disk.
    pub unordered_removals: AtomicBool,
    /// The n-th sync from now fails (0: never), and all later ones.
    pub fail_sync_in: AtomicU64,
    /// The n-th write from now writes only half and fails (0: never), and all later ones fail.
    pub fail_write_in: AtomicU64,
    /// The process stops at the n-th operation from now (0: never). A write still does its first
    /// half, any other operation does nothing, and all later operations fail.
    pub halt_in: AtomicU64,
    halted: AtomicBool,
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

/// Counts `counter` down to one, where it stays; returns true from then on.
fn due(counter: &AtomicU64) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |n| (n > 1).then(|| n - 1)).is_err_and(|n| n == 1)
}

fn wait_while(hold: &AtomicBool) {
    while hold.load(SeqCst) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl Faults {
    /// Counts an operation: whether it is the one at which the process stops.
    ///
    /// # Errors
    /// An error when the process has stopped before.
    fn halts_now(&self) -> io::Result<bool> {
        if !due(&self.halt_in) && !self.halted.load(SeqCst) {
            return Ok(false);
        }
        if self.halted.swap(true, SeqCst) { Err(broken()) } else { Ok(true) }
    }

    /// As [`halts_now`](Self::halts_now), for an operation that then does nothing.
    fn running(&self) -> io::Result<()> {
        if self.halts_now()? { Err(broken()) } else { Ok(()) }
    }

    /// As [`running`](Self::running), for a change of a name.
    fn may_change_names(&self) -> io::Result<()> {
        self.running()?;
        if due(&self.fail_name_in) { Err(broken()) } else { Ok(()) }
    }

    /// Whether the process may read. Reading changes nothing, so it is no moment of its own at
    /// which the process could stop.
    fn may_read(&self) -> io::Result<()> {
        if self.halted.load(SeqCst) || due(&self.fail_read_in) { Err(broken()) } else { Ok(()) }
    }
}

impl FaultFileSystem {
    /// A file system with a model of the disk.
    pub fn with_disk() -> Self {
        Self { disk: Some(Arc::default()), ..Self::default() }
    }

    /// The switches.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Bytes written to the files of a folder so far.
    pub fn bytes_written(&self, folder: &Path) -> u64 {
        self.written.lock().iter().filter(|(path, _)| path.parent() == Some(folder)).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of the files that were touched and are there.
    pub fn bytes_in_use(&self) -> u64 {
        self.lengths.lock().values().sum()
    }

    /// Whether [`Faults::halt_in`] has come to its end.
    pub fn halted(&self) -> bool {
        self.faults.halted.load(SeqCst)
    }

    /// After the process has stopped: the next process finds all that was written, synced or not.
    pub fn process_restarts(&self) {
        self.faults.halt_in.store(0, SeqCst);
        self.faults.halted.store(false, SeqCst);
    }

    /// After the process has stopped and the power was off: makes the state of the disk that the
    /// next process finds. `seed` chooses. Files that the old process had open must have been
    /// dropped.
    ///
    /// # Errors
    /// An error when the files cannot be put into that state.
    ///
    /// # Panics
    /// If there is no model of the disk.
    pub fn power_returns(&self, seed: u64) -> io::Result<()> {
        let mut disk = self.disk.as_ref().expect("made by `with_disk`").lock();
        disk.lose_power(&mut Chance(seed), self.faults.unordered_removals.load(SeqCst), |path| Some(path.to_owned()))?;
        self.lengths.lock().clear();
        // The present content is on the disk; it is read when it is first touched.
        *disk = Disk::default();
        drop(disk);
        self.process_restarts();
        Ok(())
    }

    /// Copies to the folder `target` the state of the folder `root` that a new process would find
    /// if this one died now; this process continues. With `power_loss`, the power goes, too, and
    /// the seed chooses the state of the disk.
    ///
    /// # Errors
    /// An error when files cannot be read or written.
    ///
    /// # Panics
    /// With `power_loss`, without a model of the disk.
    pub fn image(&self, root: &Path, target: &Path, power_loss: Option<u64>) -> io::Result<()> {
        copy_folder(root, target)?;
        let Some(seed) = power_loss else { return Ok(()) };
        let disk = self.disk.as_ref().expect("made by `with_disk`").lock();
        let copy = |path: &Path| path.strip_prefix(root).ok().map(|path| target.join(path));
        disk.lose_power(&mut Chance(seed), self.faults.unordered_removals.load(SeqCst), copy)
    }

    fn file(&self, path: &Path, file: Arc<dyn StorageFile>, create: bool) -> io::Result<Arc<dyn StorageFile>> {
        let disk = match &self.disk {
            None => None,
            Some(disk) => {
                let no = disk.lock().file(path)?;
                if create {
                    disk.lock().files[no].unsynced.push(Change::SetLen(0));
                }
                Some((disk.clone(), no))
            }
        };
        self.lengths.lock().insert(path.to_owned(), file.length()?);
        Ok(Arc::new(FaultFile { file, path: path.to_owned(), fs: self.clone(), disk }))
    }

    /// The number of the `len` bytes for which the file at `path` has room.
    fn room(&self, path: &Path, len: u64) -> u64 {
        let lengths = self.lengths.lock();
        let now = lengths.get(path).copied().unwrap_or(0);
        let capacity = self.faults.capacity.load(SeqCst);
        if self.faults.disk_full.load(SeqCst) {
            len.min(now)
        } else if capacity > 0 {
            len.min(now + capacity.saturating_sub(lengths.values().sum()))
        } else {
            len
        }
    }

    fn note_length(&self, path: &Path, at_least: u64) {
        let mut lengths = self.lengths.lock();
        let length = lengths.entry(path.to_owned()).or_default();
        *length = at_least.max(*length);
    }

    fn with_model<T>(&self, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<Option<T>> {
        self.disk.as_ref().map(|disk| change(&mut disk.lock())).transpose()
    }
}

#[derive(Debug)]
struct FaultFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    fs: FaultFileSystem,
    /// The model, and the file's number in it.
    disk: Option<(Arc<Mutex<Disk>>, usize)>,
}

impl FaultFile {
    fn note(&self, change: impl FnOnce() -> Change) {
        if let Some((disk, no)) = &self.disk {
            disk.lock().files[*no].unsynced.push(change());
        }
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        *self.fs.written.lock().entry(self.path.clone()).or_default() += bytes.len() as u64;
        self.note(|| Change::Write { offset, bytes: bytes.to_vec() });
        self.file.write_all_at(bytes, offset)?;
        self.fs.note_length(&self.path, offset + bytes.len() as u64);
        Ok(())
    }
}

impl StorageFile for FaultFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.fs.faults.halts_now()? || due(&self.fs.faults.fail_write_in) {
            self.write(&bytes[..bytes.len() / 2], offset)?;
            return Err(broken());
        }
        let fits = self.fs.room(&self.path, offset + bytes.len() as u64).saturating_sub(offset) as usize;
        if fits < bytes.len() {
            self.write(&bytes[..fits], offset)?;
            return Err(full());
        }
        self.write(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.faults.may_read()?;
        self.file.read_at(bytes, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.fs.faults.may_read()?;
        self.file.length()
    }

    fn sync(&self) -> io::Result<()> {
        wait_while(&self.fs.faults.hold_syncs);
        self.fs.faults.running()?;
        if due(&self.fs.faults.fail_sync_in) {
            return Err(broken());
        }
        match &self.disk {
            // The model is the disk.
            Some((disk, no)) => disk.lock().files[*no].sync(),
            None => self.file.sync()?,
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.fs.faults.running()?;
        if self.fs.faults.disk_full.load(SeqCst) || self.fs.room(&self.path, len) < len {
            return Err(full());
        }
        self.note(|| Change::Allocate(len));
        self.file.allocate(len)?;
        self.fs.note_length(&self.path, len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fs.faults.running()?;
        if self.fs.room(&self.path, len) < len {
            return Err(full());
        }
        self.note(|| Change::SetLen(len));
        self.file.set_len(len)?;
        self.fs.lengths.lock().insert(self.path.clone(), len);
        Ok(())
    }
}

impl FileSystem for FaultFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.faults.may_change_names()?;
        self.with_model(|disk| disk.know(path))?;
        let file = RealFileSystem.create(path)?;
        self.with_model(|disk| {
            if !disk.names.contains_key(path) {
                disk.add(path, Vec::new());
                disk.rename_later(NameChange::Add(path.to_owned(), disk.names[path]));
            }
            Ok(())
        })?;
        self.file(path, file, true)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.faults.running()?;
        self.with_model(|disk| disk.know(path))?;
        self.file(path, RealFileSystem.open(path)?, false)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.faults.may_read()?;
        let file = RealFileSystem.open_to_read(path)?;
        Ok(Arc::new(FaultFile { file, path: path.to_owned(), fs: self.clone(), disk: None }))
    }

    fn map(&self, path: &Path) -> io::Result<Buffer> {
        self.faults.may_read()?;
        RealFileSystem.map(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.faults.may_read()?;
        RealFileSystem.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.faults.may_read()?;
        RealFileSystem.exists(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.faults.may_change_names()?;
        RealFileSystem.create_folder(path)?;
        self.with_model(|disk| {
            disk.rename_later(NameChange::AddFolder(path.to_owned()));
            Ok(())
        })?;
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.may_change_names()?;
        self.with_model(|disk| disk.know(from))?;
        RealFileSystem.link(from, to)?;
        let length = self.lengths.lock().get(from).copied().unwrap_or(0);
        self.lengths.lock().insert(to.to_owned(), length);
        self.with_model(|disk| {
            let no = disk.file(from)?;
            disk.rename_later(NameChange::Add(to.to_owned(), no));
            Ok(())
        })?;
        Ok(())
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Arc<dyn FolderLock>, String>> {
        self.faults.may_read()?;
        RealFileSystem.lock(path, holder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.may_change_names()?;
        self.with_model(|disk| {
            disk.know(from)?;
            disk.know(to)
        })?;
        RealFileSystem.rename(from, to)?;
        let length = self.lengths.lock().remove(from);
        self.lengths.lock().insert(to.to_owned(), length.unwrap_or(0));
        self.with_model(|disk| {
            disk.rename_later(NameChange::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.may_change_names()?;
        self.with_model(|disk| disk.know(path))?;
        RealFileSystem.remove(path)?;
        self.lengths.lock().remove(path);
        self.with_model(|disk| {
            disk.rename_later(NameChange::Remove(path.to_owned()));
            Ok(())
        })?;
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        wait_while(&self.faults.hold_folder_syncs);
        self.faults.running()?;
        match &self.disk {
            Some(disk) => disk.lock().sync_folder(path),
            None => RealFileSystem.sync_dir(path)?,
        }
        Ok(())
    }
}

/// The durable content of the disk, and the operations that are not durable yet. Files that were
/// there before are taken in when they are first touched.
#[derive(Debug, Default)]
struct Disk {
    files: Vec<ModelFile>,
    /// As the process sees them.
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
}

#[derive(Debug)]
struct ModelFile {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Allocate(u64),
    SetLen(u64),
}

#[derive(Debug, Clone)]
enum NameChange {
    Add(PathBuf, usize),
    AddFolder(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NameChange {
    fn folder(&self) -> Option<&Path> {
        let (Self::Add(path, _) | Self::AddFolder(path) | Self::Rename(_, path) | Self::Remove(path)) = self;
        path.parent()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, no) => {
                names.insert(path.clone(), *no);
            }
            // Without the folder, its content is lost, see `lose_power`.
            Self::AddFolder(_) => {}
            Self::Rename(from, to) => {
                if let Some(no) = names.remove(from) {
                    names.insert(to.clone(), no);
                }
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(image, *offset as usize, bytes),
            Self::Allocate(len) => image.resize(image.len().max(*len as usize), 0),
            Self::SetLen(len) => image.resize(*len as usize, 0),
        }
    }
}

fn put(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    image.resize(image.len().max(offset + bytes.len()), 0);
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl ModelFile {
    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// The file's content after the power goes.
    fn torn(&self, chance: &mut Chance) -> Vec<u8> {
        let piece = if chance.one_in(2) { 512 } else { 4_096 };
        // The share of pieces that arrive, in eighths.
        let share = chance.below(9);
        let mut image = self.synced.clone();
        for change in &self.unsynced {
            let Change::Write { offset, bytes } = change else {
                if chance.below(8) < share {
                    change.apply(&mut image);
                }
                continue;
            };
            let (mut from, offset) = (0, *offset as usize);
            while from < bytes.len() {
                // To the next boundary in the file.
                let to = bytes.len().min((offset + from) / piece * piece + piece - offset);
                if chance.below(8) < share {
                    put(&mut image, offset + from, &bytes[from..to]);
                }
                from = to;
            }
        }
        image
    }
}

impl Disk {
    fn add(&mut self, path: &Path, synced: Vec<u8>) {
        self.names.insert(path.to_owned(), self.files.len());
        self.files.push(ModelFile { synced, unsynced: Vec::new() });
    }

    /// Takes in a file that was there before the model.
    fn know(&mut self, path: &Path) -> io::Result<()> {
        if self.names.contains_key(path) || self.synced_names.contains_key(path) {
            return Ok(());
        }
        match std::fs::read(path) {
            Ok(bytes) => {
                self.add(path, bytes);
                self.synced_names.insert(path.to_owned(), self.names[path]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn rename_later(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn sync_folder(&mut self, folder: &Path) {
        let Self { synced_names, unsynced_names, .. } = self;
        unsynced_names.retain(|change| {
            let here = change.folder() == Some(folder);
            if here {
                change.apply(synced_names);
            }
            !here
        });
    }

    /// Gives the real files, or their copies at the `place` of each, the content of the disk after
    /// a loss of power.
    fn lose_power(
        &self,
        chance: &mut Chance,
        unordered_removals: bool,
        place: impl Fn(&Path) -> Option<PathBuf>,
    ) -> io::Result<()> {
        let mut left = self.synced_names.clone();
        let (mut lost_journals, mut lost_folders) = (BTreeSet::new(), Vec::new());
        for change in &self.unsynced_names {
            if chance.one_in(4) {
                lost_journals.insert(change.folder());
            }
            let removal = unordered_removals && matches!(change, NameChange::Remove(_));
            let lost = if removal { chance.one_in(2) } else { lost_journals.contains(&change.folder()) };
            match change {
                NameChange::AddFolder(folder) if lost => lost_folders.push(folder),
                change if !lost => change.apply(&mut left),
                _ => {}
            }
        }
        left.retain(|path, _| !lost_folders.iter().any(|folder| path.starts_with(folder)));
        for path in self.names.keys().filter(|path| !left.contains_key(*path)).filter_map(|path| place(path)) {
            std::fs::remove_file(path)?;
        }
        for folder in lost_folders.into_iter().filter_map(|folder| place(folder)).filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(folder)?;
        }
        left.iter().try_for_each(|(path, no)| {
            let bytes = self.files[*no].torn(chance);
            let Some(path) = &place(path) else { return Ok(()) };
            // A file that is mapped, or that has two names, must not change in place.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::fs::write(path, bytes)
        })
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, to) = (entry?.path(), to.to_owned());
        let to = to.join(entry.file_name().expect("an entry of a folder has a name"));
        if entry.is_dir() { copy_folder(&entry, &to)? } else { _ = std::fs::copy(&entry, &to)? }
    }
    Ok(())
}

/// Random choices that a seed repeats (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_loss_of_power_synced_bytes_are_there_and_others_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut kept = BTreeSet::new();
        for seed in 0..200 {
            let files = FaultFileSystem::with_disk();
            let file = files.create(&path).unwrap();
            file.write_all_at(&[1; 1_000], 0).unwrap();
            file.sync().unwrap();
            files.sync_dir(folder.path()).unwrap();
            file.write_all_at(&[2; 1_600], 1_000).unwrap();
            files.power_returns(seed).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                bytes[..1_000].iter().all(|&b| b == 1),
                "synced bytes stay, also in a sector that is written again"
            );
            let pieces = [1_000..1_024, 1_024..1_536, 1_536..2_048, 2_048..2_560, 2_560..2_600];
            kept.insert(pieces.map(|range| {
                let piece: BTreeSet<u8> = range.map(|at| bytes.get(at).copied().unwrap_or(0)).collect();
                assert_eq!(piece.len(), 1, "a sector is written wholly or not at all");
                piece.contains(&2)
            }));
        }
        assert!(kept.len() > 20, "all, none and many subsets: {kept:?}");
        assert!(kept.contains(&[true; 5]) && kept.contains(&[false; 5]));
    }

    #[test]
    fn after_a_loss_of_power_unsynced_names_are_old_or_new() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        let mut outcomes = BTreeSet::new();
        for seed in 0..50 {
            std::fs::write(&old, "old").unwrap();
            let files = FaultFileSystem::with_disk();
            let file = files.create(&new).unwrap();
            file.write_all_at(b"new", 0).unwrap();
            file.sync().unwrap();
            files.rename(&new, &old).unwrap();
            files.power_returns(seed).unwrap();
            outcomes.insert((std::fs::read_to_string(&old).unwrap(), new.exists()));
            let _ = std::fs::remove_file(&new);
        }
        let expected = [("old", false), ("old", true), ("new", false)].map(|(text, left)| (text.to_owned(), left));
        assert_eq!(outcomes, BTreeSet::from(expected));
    }

    #[test]
    fn after_a_loss_of_power_an_unsynced_folder_is_gone_with_all_that_is_in_it() {
        let above = tempfile::tempdir().unwrap();
        let (folder, mut outcomes) = (above.path().join("folder"), BTreeSet::new());
        for seed in 0..50 {
            let files = FaultFileSystem::with_disk();
            files.create_folder(&folder).unwrap();
            let file = files.create(&folder.join("file")).unwrap();
            file.write_all_at(b"text", 0).unwrap();
            file.sync().unwrap();
            files.sync_dir(&folder).unwrap();
            if seed % 2 == 0 {
                files.sync_dir(above.path()).unwrap();
            }
            files.power_returns(seed).unwrap();
            outcomes.insert((seed % 2 == 0, folder.join("file").exists()));
            let _ = std::fs::remove_dir_all(&folder);
        }
        assert_eq!(outcomes, BTreeSet::from([(true, true), (false, true), (false, false)]));
    }

    #[test]
    fn removals_may_arrive_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["one", "two"].map(|name| folder.path().join(name));
        for unordered in [false, true] {
            let mut outcomes = BTreeSet::new();
            for seed in 0..50 {
                names.iter().for_each(|name| std::fs::write(name, "text").unwrap());
                let files = FaultFileSystem::with_disk();
                files.faults().unordered_removals.store(unordered, SeqCst);
                names.iter().for_each(|name| files.remove(name).unwrap());
                files.power_returns(seed).unwrap();
                outcomes.insert(names.each_ref().map(|name| name.exists()));
            }
            assert_eq!(outcomes.contains(&[true, false]), unordered, "{outcomes:?}");
            assert!(outcomes.contains(&[false, true]) && outcomes.contains(&[false, false]), "{outcomes:?}");
        }
    }

    #[test]
    fn a_disk_of_some_bytes_takes_so_many_and_has_room_again_when_a_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let files = FaultFileSystem::default();
        files.faults().capacity.store(100, SeqCst);
        let (first, second) = (files.create(&one).unwrap(), files.create(&two).unwrap());
        first.write_all_at(&[1; 70], 0).unwrap();
        let full = |result: io::Result<()>| super::super::is_disk_full(&result.unwrap_err());
        assert!(full(second.write_all_at(&[2; 40], 0)) && full(second.allocate(40)) && full(first.set_len(80)));
        assert_eq!((std::fs::read(&two).unwrap(), files.bytes_in_use()), (vec![2; 30], 100), "what fits is written");
        first.write_all_at(&[3; 70], 0).unwrap();
        files.remove(&one).unwrap();
        second.write_all_at(&[2; 100], 0).unwrap();
        files.faults().fail_read_in.store(2, SeqCst);
        assert_eq!(files.list(folder.path()).unwrap(), ["two"]);
        assert!(files.read(&two).is_err() && files.map(&two).is_err());
        files.faults().fail_name_in.store(1, SeqCst);
        assert!(files.rename(&two, &one).is_err() && files.remove(&two).is_err() && two.exists());
    }

    #[test]
    fn a_stopped_process_does_half_of_its_last_write_and_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let files = FaultFileSystem::with_disk();
        let file = files.create(&path).unwrap();
        files.faults().halt_in.store(2, SeqCst);
        file.write_all_at(b"one", 0).unwrap();
        assert!(!files.halted() && file.write_all_at(b"four", 3).is_err() && files.halted());
        assert!(file.sync().is_err() && files.remove(&path).is_err());
        files.process_restarts();
        assert_eq!(std::fs::read(&path).unwrap(), b"onefo");
        files.remove(&path).unwrap();
    }
}
