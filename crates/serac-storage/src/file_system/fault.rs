//! Files that fail on purpose, for tests.
//!
//! [`FaultFileSystem`] passes everything on to the operating system's files, with faults switched on by number. One made by
//! [`FaultFileSystem::with_disk`] also keeps a model of the disk below the operating system's cache, so that the death of the process and
//! the loss of power can be played:
//!
//! * Written bytes are on the disk once their file is synced. Of what was not synced, each piece of a sector's or a page's size may be there or
//!   not, whatever happened to its neighbours (a torn page); so may each change of the file's length.
//! * A new, renamed or removed name is on the disk once its folder is synced. Of the later changes, the disk holds the first few: file
//!   systems keep a journal of them.

use super::{FileSystem, RealFileSystem, StorageFile};
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
}

/// The switches of a [`FaultFileSystem`].
#[derive(Debug, Default)]
pub struct Faults {
    /// While set, reserving space fails with "no space left".
    pub disk_full: AtomicBool,
    /// The n-th sync from now fails (0: none does), and all later ones.
    pub fail_sync_in: AtomicU64,
    /// The n-th write from now writes only half and fails (0: none does), and all later ones fail.
    pub fail_write_in: AtomicU64,
    /// At the n-th operation from now (0: at none) the process stops: a write still does its first half, anything else does nothing, and all
    /// later operations fail.
    pub halt_in: AtomicU64,
    halted: AtomicBool,
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// Counts `counter` down to one, at which it stays: true from then on.
fn due(counter: &AtomicU64) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |n| (n > 1).then(|| n - 1)).is_err_and(|n| n == 1)
}

impl Faults {
    /// Counts an operation: whether it is the one at which the process stops.
    ///
    /// # Errors
    /// When the process has stopped before.
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
}

impl FaultFileSystem {
    /// One with a model of the disk.
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
    /// Whether [`Faults::halt_in`] has come to its end.
    pub fn halted(&self) -> bool {
        self.faults.halted.load(SeqCst)
    }
    /// After the process has stopped: the next process finds all that was written, synced or not.
    pub fn process_restarts(&self) {
        self.faults.halt_in.store(0, SeqCst);
        self.faults.halted.store(false, SeqCst);
    }
    /// After the process has stopped and the power was off: the next process finds what the disk happens to hold. `seed` chooses. Files that the
    /// old process had open must have been dropped.
    ///
    /// # Errors
    /// When the files cannot be put into that state.
    ///
    /// # Panics
    /// Without a model of the disk.
    pub fn power_returns(&self, seed: u64) -> io::Result<()> {
        let mut disk = self.disk.as_ref().expect("made by `with_disk`").lock();
        disk.lose_power(&mut Chance(seed))?;
        // What is there now is on the disk; it is looked up when it is touched.
        *disk = Disk::default();
        drop(disk);
        self.process_restarts();
        Ok(())
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
        Ok(Arc::new(FaultFile { file, path: path.to_owned(), fs: self.clone(), disk }))
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
        self.file.write_all_at(bytes, offset)
    }
}

impl StorageFile for FaultFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.fs.faults.halts_now()? || due(&self.fs.faults.fail_write_in) {
            self.write(&bytes[..bytes.len() / 2], offset)?;
            return Err(broken());
        }
        self.write(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
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
        if self.fs.faults.disk_full.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.note(|| Change::Allocate(len));
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fs.faults.running()?;
        self.note(|| Change::SetLen(len));
        self.file.set_len(len)
    }
}

impl FileSystem for FaultFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.faults.running()?;
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
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.running()?;
        self.with_model(|disk| {
            disk.know(from)?;
            disk.know(to)
        })?;
        RealFileSystem.rename(from, to)?;
        self.with_model(|disk| {
            disk.rename_later(NameChange::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })?;
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.running()?;
        self.with_model(|disk| disk.know(path))?;
        RealFileSystem.remove(path)?;
        self.with_model(|disk| {
            disk.rename_later(NameChange::Remove(path.to_owned()));
            Ok(())
        })?;
        Ok(())
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.running()?;
        match &self.disk {
            Some(disk) => disk.lock().sync_folder(path),
            None => RealFileSystem.sync_dir(path)?,
        }
        Ok(())
    }
}

/// What the disk holds for certain, and what else was asked of it. Files that were there before are taken in when they are first touched.
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
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NameChange {
    fn folder(&self) -> Option<&Path> {
        let (Self::Add(path, _) | Self::Rename(_, path) | Self::Remove(path)) = self;
        path.parent()
    }
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, no) => {
                names.insert(path.clone(), *no);
            }
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

    /// What is left of the file when the power goes.
    fn torn(&self, chance: &mut Chance) -> Vec<u8> {
        let piece = if chance.one_in(2) { 512 } else { 4_096 };
        // How many pieces in eight arrive: from none to all.
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

    /// Makes the real files what the disk holds after a loss of power.
    fn lose_power(&self, chance: &mut Chance) -> io::Result<()> {
        let mut left = self.synced_names.clone();
        let mut lost_folders = BTreeSet::new();
        for change in &self.unsynced_names {
            if chance.one_in(4) {
                lost_folders.insert(change.folder());
            }
            if !lost_folders.contains(&change.folder()) {
                change.apply(&mut left);
            }
        }
        for path in self.names.keys().filter(|path| !left.contains_key(*path)) {
            std::fs::remove_file(path)?;
        }
        left.iter().try_for_each(|(path, no)| std::fs::write(path, self.files[*no].torn(chance)))
    }
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
