//! Databases: what the options of one say, opened.
//!
//! | option | value |
//! |---|---|
//! | `uri` | `seracdb:PATH?durability=…&threads=…`, or the path alone |
//! | `path` | the folder; without it, or with `:memory:`, the database is in memory |
//! | `adbc.seracdb.durability` | `full`, `relaxed`, `off` |
//! | `adbc.seracdb.memory_limit` | bytes that all queries together may use |
//! | `adbc.seracdb.threads` | threads of a query |

use crate::connection::AdbcConnection;
use crate::error::{Result, error, of_sql, unsupported};
use crate::options::{not_found, other_forms, text, unknown};
use adbc_core::error::Status;
use adbc_core::options::{OptionConnection, OptionDatabase, OptionValue};
use serac_connection::{Connection, DatabaseUse, Options};
use std::collections::HashMap;
use std::path::Path;

/// The path of a database in memory.
const IN_MEMORY: &str = ":memory:";
/// The prefix of options that only this driver has.
const PREFIX: &str = "adbc.seracdb.";

/// An open database.
pub struct AdbcDatabase {
    usage: DatabaseUse,
    options: HashMap<String, String>,
}

/// The path in an URI, and its options.
fn parts(uri: &str) -> Result<(String, Vec<(String, String)>)> {
    let Some(rest) = uri.strip_prefix("seracdb:") else { return Ok((uri.to_owned(), Vec::new())) };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.strip_prefix("//").unwrap_or(path);
    let option = |part: &str| match part.split_once('=') {
        Some((name, value)) => Ok((decoded(name)?, decoded(value)?)),
        None => Err(error(Status::InvalidArguments, format!("\"{part}\" in the uri has no value"))),
    };
    let options = query.split('&').filter(|part| !part.is_empty()).map(option).collect::<Result<_>>()?;
    Ok((decoded(path)?, options))
}

/// A part of an URI without its `%XX`.
fn decoded(part: &str) -> Result<String> {
    let wrong = || error(Status::InvalidArguments, format!("\"{part}\" is no part of an uri"));
    let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, others) = others.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = others;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

impl AdbcDatabase {
    /// Opens a database, or uses it if the process has it open.
    ///
    /// # Errors
    /// The error of an option, or of opening it.
    pub fn open(given: impl IntoIterator<Item = (OptionDatabase, OptionValue)>) -> Result<Self> {
        let (mut path, mut options, mut told) = (None, Options::default(), HashMap::new());
        let mut set = |name: &str, key: &str, value: &str| match options.set(name, value).map_err(of_sql)? {
            true => Ok(()),
            false => Err(unknown(key)),
        };
        for (key, value) in given {
            let value = text(key.as_ref(), value)?;
            told.insert(key.as_ref().to_owned(), value.clone());
            match &key {
                OptionDatabase::Uri => {
                    let (folder, options) = parts(&value)?;
                    path = Some(folder);
                    for (name, value) in options {
                        set(&name, &name, &value)?;
                    }
                }
                OptionDatabase::Username | OptionDatabase::Password => {
                    return Err(unsupported("a login to a database in the own process"));
                }
                OptionDatabase::Other(name) if name == "path" => path = Some(value),
                other => {
                    let name = other.as_ref().strip_prefix(PREFIX).ok_or_else(|| unknown(other.as_ref()))?;
                    set(name, other.as_ref(), &value)?;
                }
            }
        }
        let path = path.filter(|path| !path.is_empty() && path != IN_MEMORY);
        let usage = match &path {
            Some(path) => DatabaseUse::in_folder(Path::new(path), options, true),
            None => DatabaseUse::in_memory(options),
        };
        Ok(Self { usage: usage.map_err(of_sql)?, options: told })
    }
}

impl adbc_core::Optionable for AdbcDatabase {
    type Option = OptionDatabase;

    fn set_option(&mut self, key: OptionDatabase, _: OptionValue) -> Result<()> {
        let message = format!("the option \"{}\" cannot be changed: the database is open", key.as_ref());
        Err(error(Status::InvalidState, message))
    }

    fn get_option_string(&self, key: OptionDatabase) -> Result<String> {
        self.options.get(key.as_ref()).cloned().ok_or_else(|| not_found(key.as_ref()))
    }

    other_forms!();
}

impl adbc_core::Database for AdbcDatabase {
    type ConnectionType = AdbcConnection;

    fn new_connection(&self) -> Result<AdbcConnection> {
        self.new_connection_with_opts([])
    }

    fn new_connection_with_opts(
        &self,
        options: impl IntoIterator<Item = (OptionConnection, OptionValue)>,
    ) -> Result<AdbcConnection> {
        let mut connection = AdbcConnection::new(Connection::new(self.usage.another()));
        for (key, value) in options {
            adbc_core::Optionable::set_option(&mut connection, key, value)?;
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_paths_and_options() {
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parts("a b.db").unwrap(), ("a b.db".into(), vec![]));
        assert_eq!(parts("seracdb:").unwrap(), (String::new(), vec![]));
        assert_eq!(
            parts("seracdb:///tmp/a%20b?threads=2&durability=off").unwrap(),
            ("/tmp/a b".into(), vec![option("threads", "2"), option("durability", "off")])
        );
        for wrong in ["seracdb:a%", "seracdb:a%zz", "seracdb:%ff", "seracdb:a?threads"] {
            assert_eq!(parts(wrong).unwrap_err().status, Status::InvalidArguments, "{wrong}");
        }
    }
}
