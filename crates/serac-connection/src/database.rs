//! Open databases. Connections to one folder share its database; a database in memory belongs to
//! its connections alone.

use crate::process::{PerProcess, watch_forks};
use parking_lot::Mutex;
use seracdb::{Builder, Durability, SqlDatabase, SqlError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a database is opened. What is not said is the default, or what the first connection said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// When a commit is acknowledged.
    pub durability: Option<Durability>,
    /// Bytes that all queries together may use.
    pub memory_limit: Option<usize>,
    /// Threads of a query.
    pub threads: Option<usize>,
}

impl Options {
    /// Sets an option by its name: `durability` (`full`, `relaxed`, `off`), `memory_limit` (bytes)
    /// or `threads`. Returns whether there is such an option.
    ///
    /// # Errors
    /// 22023 for a value that the option cannot have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SqlError> {
        let wrong = |wanted: &str| {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message).explained(format!("It is {wanted}.")))
        };
        match name {
            "durability" => match value {
                "full" => self.durability = Some(Durability::Full),
                "relaxed" => self.durability = Some(Durability::Relaxed),
                "off" => self.durability = Some(Durability::Off),
                _ => return wrong("full, relaxed or off"),
            },
            "memory_limit" => match value.parse() {
                Ok(bytes) => self.memory_limit = Some(bytes),
                Err(_) => return wrong("a number of bytes"),
            },
            "threads" => match value.parse() {
                Ok(threads) if threads > 0 => self.threads = Some(threads),
                _ => return wrong("a number from 1"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether these options ask for nothing that `open` does not have.
    fn fit(&self, open: &Self) -> bool {
        fn fits<T: PartialEq>(asked: Option<T>, open: Option<T>) -> bool {
            asked.is_none() || asked == open
        }
        fits(self.durability, open.durability)
            && fits(self.memory_limit, open.memory_limit)
            && fits(self.threads, open.threads)
    }

    fn open(&self, path: Option<&Path>) -> Result<SqlDatabase, SqlError> {
        let mut builder = Builder::new();
        if let Some(path) = path {
            builder = builder.path(path);
        }
        if let Some(durability) = self.durability {
            builder = builder.durability(durability);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        builder.open()
    }
}

/// A database that this process has open.
struct Open {
    database: SqlDatabase,
    options: Options,
    uses: usize,
}

/// The databases in folders, by their real path. Held while one is opened or closed, so that a
/// folder is never opened while it is being closed.
type Folders = HashMap<PathBuf, Open>;

/// The folders that this process has open.
static FOLDERS: PerProcess<Mutex<Folders>> = PerProcess::new();

fn with_folders<T>(work: impl FnOnce(&mut Folders) -> T) -> T {
    work(&mut FOLDERS.get().lock())
}

/// The use of a database by a connection. The last one closes it.
#[derive(Debug)]
pub struct DatabaseUse {
    database: SqlDatabase,
    /// The real path; `None` of a database in memory.
    folder: Option<Arc<Path>>,
}

impl DatabaseUse {
    /// The database.
    pub fn database(&self) -> &SqlDatabase {
        &self.database
    }

    /// Opens a database in memory.
    ///
    /// # Errors
    /// If it has no folder for spilling.
    pub fn in_memory(options: Options) -> Result<Self, SqlError> {
        watch_forks();
        Ok(Self { database: options.open(None)?, folder: None })
    }

    /// Opens the database in a folder, or uses it if this process has it open. `creates`: whether
    /// it is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be opened, or is open with other options (55006).
    pub fn in_folder(path: &Path, options: Options, creates: bool) -> Result<Self, SqlError> {
        watch_forks();
        with_folders(|folders| {
            // A folder that is to be made has no real path yet.
            let real = path.canonicalize();
            if let Ok(real) = &real
                && let Some(open) = folders.get_mut(real)
            {
                if !options.fit(&open.options) {
                    let message = format!("the database \"{}\" is open with other options", path.display());
                    return Err(SqlError::new(sqlstate::OBJECT_IN_USE, message)
                        .explained("All connections of a process to a folder share the options of the first one."));
                }
                open.uses += 1;
                return Ok(Self { database: open.database.clone(), folder: Some(real.as_path().into()) });
            }
            if real.is_err() && !creates {
                let message = format!("there is no database \"{}\", and a reader does not make one", path.display());
                return Err(SqlError::new(sqlstate::INVALID_CATALOG_NAME, message));
            }
            let database = options.open(Some(path))?;
            let real = path
                .canonicalize()
                .map_err(|error| SqlError::new(sqlstate::IO_ERROR, format!("{}: {error}", path.display())))?;
            let open = Open { database: database.clone(), options, uses: 1 };
            let folder = Some(real.as_path().into());
            folders.insert(real, open);
            Ok(Self { database, folder })
        })
    }

    /// One more use of the same database.
    pub fn another(&self) -> Self {
        if let Some(folder) = &self.folder {
            with_folders(|folders| {
                if let Some(open) = folders.get_mut(&**folder) {
                    open.uses += 1;
                }
            });
        }
        Self { database: self.database.clone(), folder: self.folder.clone() }
    }

    /// Ends the use. The last one closes the database.
    ///
    /// # Errors
    /// If the log or the last checkpoint cannot be written.
    pub fn close(mut self) -> Result<(), SqlError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), SqlError> {
        let Some(folder) = self.folder.take() else { return Ok(()) };
        with_folders(|folders| {
            let Some(open) = folders.get_mut(&*folder) else { return Ok(()) };
            open.uses -= 1;
            if open.uses > 0 {
                return Ok(());
            }
            let open = folders.remove(&*folder);
            open.map_or(Ok(()), |open| Ok(open.database.database().close()?))
        })
    }
}

impl Drop for DatabaseUse {
    fn drop(&mut self) {
        // Whoever wants to know of an error closes it.
        let _ = self.end();
    }
}

/// Closes all databases in folders, at the end of the process.
///
/// # Errors
/// The first error of closing one.
pub fn close_all() -> Result<(), SqlError> {
    with_folders(|folders| {
        let mut result = Ok(());
        for (_, open) in folders.drain() {
            let closed = open.database.database().close().map_err(SqlError::from);
            result = result.and(closed);
        }
        result
    })
}
