//! The state that all clients of a database share: the database, the memory of variables, the
//! access paths.

use crate::access::AccessPaths;
use crate::memory::Memory;
use crate::settings::Settings;
use serac_engine::Database;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that the variables of all clients may hold by default.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// The state that all clients of a database share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operators(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    database: Arc<Database>,
    memory: Arc<Memory>,
    paths: Arc<AccessPaths>,
    settings: Settings,
    shutting_down: AtomicBool,
}

impl Operators {
    /// The language on a database.
    pub fn new(database: Arc<Database>) -> Self {
        Self::with(database, DEFAULT_MEMORY, Settings::default())
    }

    /// With a limit for the bytes that the variables of all clients hold, and with the initial
    /// settings of clients.
    pub fn with(database: Arc<Database>, memory_limit: u64, settings: Settings) -> Self {
        let memory = Memory::new(memory_limit);
        Self(Arc::new(Shared {
            database,
            memory,
            paths: Arc::default(),
            settings,
            shutting_down: AtomicBool::new(false),
        }))
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.0.database
    }

    /// The memory of variables.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.0.memory
    }

    /// The known access paths.
    pub(crate) fn paths(&self) -> &Arc<AccessPaths> {
        &self.0.paths
    }

    /// The initial settings of clients.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Prevents further statements.
    pub fn shut_down(&self) {
        // Release: pairs with the Acquire below.
        self.0.shutting_down.store(true, Ordering::Release);
    }

    /// Whether further statements are prevented.
    pub fn is_shutting_down(&self) -> bool {
        self.0.shutting_down.load(Ordering::Acquire)
    }
}
