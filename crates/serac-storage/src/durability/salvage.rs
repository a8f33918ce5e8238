//! The place where a salvaging opening keeps the parts that it leaves out: a folder `salvaged-<n>`
//! of its own in the database's folder.
//!
//! The folder repeats the database's: `MANIFEST`, `data/`, `log/`. It is made when there is a file
//! to keep; no later process reads or removes it. Files that stay in use get a second name there
//! (they are never changed, only replaced). A part that is about to be cut is copied; an unneeded
//! file is moved.

use crate::durability::file_system::{FileSystem, create_folders};
use crate::error::{Result, StorageError};
use std::io;
use std::path::{Path, PathBuf};

/// The folder, once it exists.
#[derive(Debug)]
pub(crate) struct Aside<'a> {
    database: &'a Path,
    files: &'a dyn FileSystem,
    folder: Option<PathBuf>,
}

impl<'a> Aside<'a> {
    /// For the database in the folder `database`.
    pub(crate) fn new(database: &'a Path, files: &'a dyn FileSystem) -> Self {
        Self { database, files, folder: None }
    }

    /// The folder, if a file was kept.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Keeps a file that stays in use, or is about to be removed.
    pub(crate) fn link(&mut self, file: &Path) -> Result<()> {
        self.keep(file, |files, to| match files.link(file, to) {
            // Not all file systems have hard links.
            Err(error) if error.kind() != io::ErrorKind::NotFound => copy(files, file, to),
            result => result,
        })
    }

    /// Keeps a file as it is now; the original may be changed afterwards.
    pub(crate) fn copy(&mut self, file: &Path) -> Result<()> {
        self.keep(file, |files, to| copy(files, file, to))
    }

    /// Keeps a file that nothing needs.
    pub(crate) fn take(&mut self, file: &Path) -> Result<()> {
        self.keep(file, |files, to| files.rename(file, to))
    }

    /// Lets `put` give a file its place in the folder, and makes that durable. A missing file, and
    /// a file that is kept already, are skipped.
    fn keep(&mut self, file: &Path, put: impl FnOnce(&dyn FileSystem, &Path) -> io::Result<()>) -> Result<()> {
        let keep = || -> io::Result<()> {
            if !self.files.exists(file)? {
                return Ok(());
            }
            let folder = match &self.folder {
                Some(folder) => folder.clone(),
                None => {
                    let mut n = 1;
                    while self.files.exists(&self.database.join(format!("salvaged-{n}")))? {
                        n += 1;
                    }
                    self.folder.insert(self.database.join(format!("salvaged-{n}"))).clone()
                }
            };
            let to = folder.join(file.strip_prefix(self.database).unwrap_or(file));
            let above = to.parent().expect("it is in the folder");
            create_folders(self.files, above)?;
            if !self.files.exists(&to)? {
                put(self.files, &to)?;
            }
            self.files.sync_dir(above)
        };
        keep().map_err(|e| StorageError::io(format!("cannot keep {} aside", file.display()), e))
    }
}

fn copy(files: &dyn FileSystem, from: &Path, to: &Path) -> io::Result<()> {
    let bytes = files.read(from)?;
    let file = files.create(to)?;
    file.write_all_at(&bytes, 0)?;
    file.sync()
}
