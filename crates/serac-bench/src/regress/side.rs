//! The two servers that a statement goes to, each with a session and psql's variables for it.

use super::client::{Client, Outcome};
use super::script::Variables;
use crate::serac::Serac;
use crate::setup::text;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A server as one session sees it.
pub struct Side {
    address: SocketAddr,
    pub database: String,
    pub user: String,
    /// Settings that each session begins with.
    pub settings: Vec<(String, String)>,
    client: Option<Client>,
    pub variables: Variables,
}

impl Side {
    pub fn new(address: SocketAddr, database: &str) -> Self {
        Self {
            address,
            database: database.into(),
            user: "serac".into(),
            settings: Vec::new(),
            client: None,
            variables: Variables::new(),
        }
    }

    /// Begins a new session.
    pub fn connect(&mut self) -> Result<(), String> {
        self.client = None;
        let mut parameters = vec![("user", self.user.as_str()), ("database", self.database.as_str())];
        parameters.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.client = Some(Client::connect(self.address, &parameters)?);
        Ok(())
    }

    pub fn disconnect(&mut self) {
        self.client = None;
    }

    pub fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    pub fn query(&mut self, sql: &str, copy_data: &mut dyn FnMut() -> Option<String>) -> Outcome {
        let Some(client) = &mut self.client else { return Outcome::Lost("there is no connection".into()) };
        let outcome = client.query(sql, copy_data);
        if client.broken {
            self.client = None;
        }
        outcome
    }

    /// Runs a statement that must succeed.
    pub fn run(&mut self, sql: &str) -> Result<(), String> {
        match self.query(sql, &mut || None) {
            outcome if outcome.succeeded() => Ok(()),
            outcome => Err(format!("{sql}: {outcome:?}")),
        }
    }

    /// The first column of a query's rows.
    pub fn values(&mut self, sql: &str) -> Vec<String> {
        let Outcome::Answered(answer) = self.query(sql, &mut || None) else { return Vec::new() };
        let rows = answer.results.into_iter().flat_map(|result| result.rows);
        rows.filter_map(|row| row.into_iter().next().flatten()).collect()
    }

    /// State of the transaction.
    pub fn status(&self) -> u8 {
        self.client.as_ref().map_or(b'I', |client| client.status)
    }

    pub fn standard_strings(&self) -> bool {
        self.client.as_ref().is_none_or(|client| client.standard_strings)
    }
}

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(text)?;
    for entry in fs::read_dir(from).map_err(text)? {
        let entry = entry.map_err(text)?;
        let (kind, target) = (entry.file_type().map_err(text)?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target).map_err(text)?;
        }
    }
    Ok(())
}

/// SeracDB's server on a folder. It can be started again.
pub struct SeracServer {
    pub binary: Option<PathBuf>,
    pub address: SocketAddr,
    pub sockets: PathBuf,
    pub folder: PathBuf,
    process: Option<Serac>,
}

impl SeracServer {
    pub fn new(binary: Option<PathBuf>, address: SocketAddr, sockets: &Path, folder: PathBuf) -> Self {
        Self { binary, address, sockets: sockets.into(), folder, process: None }
    }

    pub fn start(&mut self) -> Result<(), String> {
        self.stop();
        self.process = Some(Serac::start(self.binary.as_deref(), &self.folder, self.address, &self.sockets)?);
        Ok(())
    }

    pub fn stop(&mut self) {
        self.process = None;
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Serac::is_running)
    }

    /// Starts on a copy of a folder, which replaces the server's former folder.
    pub fn start_from(&mut self, template: &Path) -> Result<(), String> {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
        copy_folder(template, &self.folder)?;
        self.start()
    }
}
