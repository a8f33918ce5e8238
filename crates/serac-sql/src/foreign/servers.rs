//! Other servers: their options, connections to them, the snapshots that they hold for a
//! transaction, and their errors.

use crate::error::{Result, SqlError};
use parking_lot::Mutex;
use serac_engine::catalog::foreign::ServerDefinition;
use serac_remote::{Remote, RemoteError, RemoteOptions, Snapshot};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The foreign data wrapper of SeracDB's servers.
pub(crate) const WRAPPER: &str = "seracdb";
/// The option whose value nobody is shown.
pub(crate) const TOKEN: &str = "token";
/// The longest time to connect, and up to an answer, if the options say no other.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];
/// The longest time that an option can say.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// The most bytes of an authority's file.
const LONGEST_AUTHORITY: u64 = 1 << 20;
/// Attempts of a call.
const ATTEMPTS: usize = 2;

/// The error of an option that does not exist.
pub(crate) fn unknown_option(name: &str, known: &str) -> SqlError {
    let error = SqlError::new(sqlstate::FDW_INVALID_OPTION_NAME, format!("invalid option \"{name}\"")).named(name);
    error.hinted(format!("Valid options in this context are: {known}"))
}

/// Seconds of a timeout.
fn timeout(name: &str, value: &str) -> Result<Duration> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero() && *time <= LONGEST_TIMEOUT).ok_or_else(|| {
        let longest = LONGEST_TIMEOUT.as_secs();
        let message =
            format!("invalid value for option \"{name}\": \"{value}\" is no number of seconds up to {longest}");
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
    })
}

/// The certificates in the file of an authority.
fn authority(file: &Path) -> io::Result<Vec<u8>> {
    // A pipe or a device would not end.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut certificates = Vec::new();
    File::open(file)?.take(LONGEST_AUTHORITY + 1).read_to_end(&mut certificates)?;
    if certificates.len() as u64 > LONGEST_AUTHORITY {
        let message = format!("it has more than {LONGEST_AUTHORITY} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(certificates)
}

/// A server by its options. Nothing is sent.
///
/// # Errors
/// HV00D for an unknown option, 22023 for a value that cannot be used, 58P01 and 58030 for the file
/// of an authority.
pub(crate) fn remote_of(server: &ServerDefinition) -> Result<Remote> {
    let option = |name: &str| server.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let addresses: Vec<&str> = option("address").into_iter().flat_map(|all| all.split(',')).map(str::trim).collect();
    if addresses.is_empty() {
        let message = format!("server \"{}\" needs the option \"address\"", server.name);
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    let is_tls = |address: &&str| address.starts_with("grpc+tls://") || address.starts_with("https://");
    let of_tls = ["authority", "domain"].into_iter().find(|&name| option(name).is_some());
    if let Some(name) = of_tls.filter(|_| !addresses.iter().all(is_tls)) {
        let message = format!("the option \"{name}\" needs addresses with TLS, as in grpc+tls://host:port");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    let [connect, call] = TIMEOUTS;
    let mut options = RemoteOptions::new(addresses)
        .named(&server.name)
        .with_attempts(ATTEMPTS)
        .with_connect_timeout(connect)
        .with_call_timeout(call);
    for (name, value) in &server.options {
        options = match name.as_str() {
            "address" => options,
            TOKEN => options.with_token(value),
            "authority" => options.with_authority(authority(Path::new(value)).map_err(|error| {
                let code = match error.kind() {
                    io::ErrorKind::NotFound => sqlstate::UNDEFINED_FILE,
                    _ => sqlstate::IO_ERROR,
                };
                SqlError::new(code, format!("could not read the authority \"{value}\": {error}"))
            })?),
            "domain" => options.with_domain(value),
            "connect_timeout" => options.with_connect_timeout(timeout(name, value)?),
            "call_timeout" => options.with_call_timeout(timeout(name, value)?),
            _ => {
                return Err(unknown_option(name, "address, token, authority, domain, connect_timeout, call_timeout"));
            }
        };
    }
    Remote::new(options).map_err(|error| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, error.to_string()))
}

/// The servers that a database has connections to, by name.
#[derive(Debug, Default)]
pub(crate) struct Servers(Mutex<HashMap<String, (Arc<ServerDefinition>, Remote)>>);

impl Servers {
    /// The server of a definition, with the connections that there are.
    ///
    /// # Errors
    /// As for [`remote_of`].
    pub(crate) fn get(&self, server: &Arc<ServerDefinition>) -> Result<Remote> {
        let known = self.0.lock().get(&server.name).filter(|(known, _)| known == server).cloned();
        if let Some((_, remote)) = known {
            return Ok(remote);
        }
        let remote = remote_of(server)?;
        let mut servers = self.0.lock();
        // A definition that nobody else has is in no catalog any more.
        servers.retain(|_, (definition, _)| Arc::strong_count(definition) > 1);
        servers.insert(server.name.clone(), (server.clone(), remote.clone()));
        Ok(remote)
    }
}

/// A snapshot, once a scan has asked for it.
type SnapshotCell = Arc<OnceCell<Arc<Snapshot>>>;

/// The snapshots of servers in which a transaction, or one of its statements, reads foreign tables.
/// Each is held from its first use on, until this and all plans that read it have gone.
#[derive(Debug, Default)]
pub(crate) struct ServerSnapshots(Mutex<Vec<(Arc<ServerDefinition>, SnapshotCell)>>);

impl ServerSnapshots {
    /// The snapshot of a server.
    ///
    /// # Errors
    /// Those of the server. The next call asks it again.
    pub(crate) async fn of(
        &self,
        server: &Arc<ServerDefinition>,
        remote: &Remote,
    ) -> Result<Arc<Snapshot>, RemoteError> {
        let cell = {
            let mut known = self.0.lock();
            match known.iter().find(|(other, _)| other == server) {
                Some((_, cell)) => cell.clone(),
                None => {
                    let cell = SnapshotCell::default();
                    known.push((server.clone(), cell.clone()));
                    cell
                }
            }
        };
        cell.get_or_try_init(|| remote.snapshot()).await.cloned()
    }

    /// Lets all snapshots go. Plans that read one keep it.
    pub(crate) fn release(&self) {
        self.0.lock().clear();
    }
}

/// The error of a foreign table's server.
pub(crate) fn told(error: &RemoteError, table: &str) -> SqlError {
    let code = match error {
        RemoteError::Options(_) | RemoteError::Protocol { .. } => sqlstate::FDW_ERROR,
        RemoteError::Unreachable { .. } => sqlstate::SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
        RemoteError::LeaseLost { .. } => sqlstate::CONNECTION_FAILURE,
        RemoteError::Changed { detail, .. } => {
            let message = format!("foreign table \"{table}\" does not have the columns of its server's table");
            return SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(table).explained(format!("{detail}."));
        }
        RemoteError::Refused { status, .. } => match status.code() {
            tonic::Code::NotFound => sqlstate::FDW_TABLE_NOT_FOUND,
            tonic::Code::Unauthenticated => sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            tonic::Code::PermissionDenied => sqlstate::INSUFFICIENT_PRIVILEGE,
            tonic::Code::ResourceExhausted => sqlstate::INSUFFICIENT_RESOURCES,
            _ => sqlstate::FDW_ERROR,
        },
    };
    SqlError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(options: &[(&str, &str)]) -> ServerDefinition {
        let options = options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        ServerDefinition { name: "s".into(), options }
    }

    #[test]
    fn options_are_obeyed_or_refused() {
        let address = ("address", "grpc://a:1, grpc://b:2");
        let several = [address, ("token", "t"), ("connect_timeout", "0.5"), ("call_timeout", "60")];
        assert_eq!(remote_of(&server(&several)).unwrap().name(), "s");
        for (options, code) in [
            (&[][..], sqlstate::INVALID_PARAMETER_VALUE),
            (&[("address", "a:1")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("host", "a")], sqlstate::FDW_INVALID_OPTION_NAME),
            (&[address, ("token", "two\nlines")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("call_timeout", "-1")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("call_timeout", "NaN")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("call_timeout", "1e9")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("authority", "/no/such/file")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[address, ("domain", "a")], sqlstate::INVALID_PARAMETER_VALUE),
            (&[("address", "grpc+tls://a:1"), ("authority", "/no/such/file")], sqlstate::UNDEFINED_FILE),
            (&[("address", "grpc+tls://a:1"), ("authority", "/dev/zero")], sqlstate::IO_ERROR),
        ] {
            assert_eq!(remote_of(&server(options)).unwrap_err().sqlstate, code, "{options:?}");
        }
    }

    #[test]
    fn connections_are_those_of_the_definition() {
        let servers = Servers::default();
        let one = Arc::new(server(&[("address", "grpc://a:1")]));
        let first = servers.get(&one).unwrap();
        assert_eq!(first.name(), "s");
        let two = Arc::new(server(&[("address", "grpc://b:1")]));
        servers.get(&two).unwrap();
        assert!(servers.0.lock()["s"].0 == two);
        drop(two);
        servers.get(&Arc::new(ServerDefinition { name: "t".into(), ..ServerDefinition::clone(&one) })).unwrap();
        assert_eq!(servers.0.lock().len(), 1);
    }

    #[test]
    fn a_definition_does_not_show_values_of_options() {
        assert!(!format!("{:?}", server(&[("token", "a-secret")])).contains("a-secret"));
    }
}
