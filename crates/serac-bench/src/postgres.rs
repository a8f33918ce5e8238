//! PostgreSQL as a peer: a temporary cluster in a given folder, reached over a Unix socket or the
//! loopback interface, and `pgbench` as its client.
//!
//! `scripts/peers` installs two major versions: 15 from the system's packages, and 18 below
//! `target/peers`, which is a server without clients. The clients of 15 serve both.
//!
//! PostgreSQL refuses to run as root. A benchmark that runs as root starts it as the user
//! `postgres`, or `nobody` where there is none.

use crate::setup::text;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The version with whose answers SeracDB is compared by default. Its clients serve servers of any
/// version.
const DEFAULT_MAJOR: u32 = 15;
const SERVER_PROGRAMS: [&str; 2] = ["initdb", "postgres"];
const CLIENT_PROGRAMS: [&str; 3] = ["pg_isready", "psql", "pgbench"];
const DATABASE_USER: &str = "serac";
/// Starting and stopping may take this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The PostgreSQL that takes part.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct PostgresArguments {
    /// Major version of the PostgreSQL to compare with; `scripts/peers` installs 15 and 18.
    #[arg(long = "postgres", value_name = "MAJOR", default_value_t = DEFAULT_MAJOR)]
    pub major: u32,
}

/// The folders that may have programs of a major version: those of packages and of the peers, and
/// `PATH`.
fn folders(major: u32) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = vec![
        format!("/usr/lib/postgresql/{major}/bin").into(),
        format!("/usr/pgsql-{major}/bin").into(),
        format!("/opt/homebrew/opt/postgresql@{major}/bin").into(),
        format!("target/peers/postgresql-{major}/bin").into(),
    ];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders
}

/// The folder with all of `programs`, the last of which tells the version, and that version.
fn find(major: u32, programs: &[&str]) -> Option<(PathBuf, String)> {
    folders(major).into_iter().find_map(|folder| {
        if !programs.iter().all(|program| folder.join(program).is_file()) {
            return None;
        }
        // The programs run in another folder than this one.
        let folder = folder.canonicalize().ok()?;
        let output = Command::new(folder.join(programs.last()?)).arg("--version").output().ok()?;
        // "postgres (PostgreSQL) 15.8 (Debian …)"
        let words = String::from_utf8(output.stdout).ok()?;
        let version = words.split_whitespace().nth(2)?.to_owned();
        (version.split('.').next()?.parse::<u32>() == Ok(major)).then_some((folder, version))
    })
}

/// The programs of one version of PostgreSQL.
pub struct Installation {
    server: PathBuf,
    version: String,
    clients: PathBuf,
    client_version: String,
}

impl Installation {
    /// Finds the server's programs of a major version, and clients: its own, or those of the
    /// default version.
    pub fn find(major: u32) -> Result<Self, String> {
        let missing = |major| format!("PostgreSQL {major} is not installed; scripts/peers installs it");
        let (server, version) = find(major, &SERVER_PROGRAMS).ok_or_else(|| missing(major))?;
        let (clients, client_version) = find(major, &CLIENT_PROGRAMS)
            .or_else(|| find(DEFAULT_MAJOR, &CLIENT_PROGRAMS))
            .ok_or_else(|| missing(DEFAULT_MAJOR))?;
        Ok(Self { server, version, clients, client_version })
    }

    /// "PostgreSQL 15.8".
    pub fn version(&self) -> String {
        format!("PostgreSQL {}", self.version)
    }
}

/// Numbers of a user and its group.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user as which the server runs: this process's, which `None` stands for, unless this
    /// process runs as root.
    fn for_server() -> Result<Option<Self>, String> {
        // SAFETY: the call cannot fail and touches no memory.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").map_err(text)?;
        let find = |name: &str| {
            let fields: Vec<&str> = users
                .lines()
                .map(|line| line.split(':'))
                .find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.collect()))?;
            Some(Self { uid: fields.get(1)?.parse().ok()?, gid: fields.get(2)?.parse().ok()? })
        };
        let user = find("postgres").or_else(|| find("nobody"));
        user.map(Some).ok_or_else(|| "PostgreSQL does not run as root, and there is no user postgres or nobody".into())
    }
}

/// A temporary database cluster. Its folders are removed when it is dropped.
pub struct Cluster {
    installation: Installation,
    user: Option<User>,
    data: PathBuf,
    /// Sockets have short paths, so they have a folder of their own.
    sockets: PathBuf,
}

impl Cluster {
    /// Makes a cluster in `folder`.
    pub fn create(installation: Installation, folder: &Path) -> Result<Self, String> {
        let user = User::for_server()?;
        let folder = folder.canonicalize().map_err(text)?;
        let sockets = std::env::temp_dir().join(format!("serac-bench-{}", std::process::id()));
        let cluster = Self { installation, user, data: folder.join("postgres"), sockets };
        for folder in [&cluster.data, &cluster.sockets] {
            fs::create_dir_all(folder).map_err(text)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(text)?;
            if let Some(User { uid, gid }) = user {
                chown(folder, Some(uid), Some(gid)).map_err(text)?;
            }
        }
        let mut initdb = cluster.command("initdb");
        initdb.arg("-D").arg(&cluster.data).args([
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            // As in SeracDB: texts are ordered by their bytes, and letters beyond ASCII have cases.
            "--lc-ctype=C.UTF-8",
            "-U",
            DATABASE_USER,
        ]);
        succeeded("initdb", initdb.output().map_err(text)?)?;
        Ok(cluster)
    }

    /// "PostgreSQL 15.8", and the version of the clients if it is another one.
    pub fn version(&self) -> String {
        let Installation { version, client_version, .. } = &self.installation;
        let clients =
            if client_version == version { String::new() } else { format!(" with clients of {client_version}") };
        format!("{}{clients}", self.installation.version())
    }

    /// The folder of the server's socket.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// A program of the installation, to be run as the cluster's user and without the caller's
    /// environment.
    fn command(&self, program: &str) -> Command {
        let is_client = CLIENT_PROGRAMS.contains(&program);
        let folder = if is_client { &self.installation.clients } else { &self.installation.server };
        let mut command = Command::new(folder.join(program));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        // The user may have no access to the current folder.
        command.current_dir("/").stdin(Stdio::null());
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// A client program, with the place of the server as its arguments.
    fn client(&self, program: &str) -> Command {
        self.client_at(program, &self.sockets.display().to_string(), 5432)
    }

    /// A client program, with the host of a server, or the folder of its Unix socket, and its port
    /// as arguments.
    pub fn client_at(&self, program: &str, host: &str, port: u16) -> Command {
        let mut command = self.command(program);
        command.args(["-h", host, "-p", &port.to_string(), "-U", DATABASE_USER]);
        command
    }

    /// Starts the server on a Unix socket: everything as PostgreSQL has it by default, every commit
    /// synced.
    pub fn start(&self) -> Result<Server<'_>, String> {
        let server = self.start_with(&["listen_addresses=", "port=5432"])?;
        let mut psql = self.client("psql");
        psql.args(["-q", "-d", "postgres", "-c", "CREATE TABLE IF NOT EXISTS t (a BIGINT)"]);
        succeeded("psql", psql.output().map_err(text)?)?;
        Ok(server)
    }

    /// As [`start`](Self::start), with other settings, on an address of the loopback interface.
    pub fn start_at(&self, address: SocketAddr, settings: &[&str]) -> Result<Server<'_>, String> {
        let (listen, port) = (format!("listen_addresses={}", address.ip()), format!("port={}", address.port()));
        let mut all = vec![listen.as_str(), port.as_str()];
        all.extend_from_slice(settings);
        self.start_with(&all)
    }

    fn start_with(&self, settings: &[&str]) -> Result<Server<'_>, String> {
        let log = fs::File::create(self.sockets.join("log")).map_err(text)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data);
        let sockets = format!("unix_socket_directories={}", self.sockets.display());
        for setting in ["fsync=on", "synchronous_commit=on", &sockets].iter().chain(settings) {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone().map_err(text)?).stderr(log);
        #[cfg(target_os = "linux")]
        // SAFETY: between fork and exec only a system call is made. It lets the server stop when
        // this process dies.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let port = settings.iter().find_map(|setting| setting.strip_prefix("port=")).unwrap_or("5432").to_owned();
        let mut server = Server { cluster: self, process: command.spawn().map_err(text)?, port };
        server.wait_until_ready()?;
        Ok(server)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.data);
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

/// The output of a program that succeeded, or an error with its messages.
pub fn succeeded(program: &str, output: Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed ({}): {}", output.status, said.trim()))
}

/// A running server. It is stopped when this is dropped.
pub struct Server<'a> {
    cluster: &'a Cluster,
    process: Child,
    port: String,
}

impl Server<'_> {
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.cluster.client("pg_isready").args(["-q", "-p", &self.port]).status().map_err(text)?.success() {
                return Ok(());
            }
            let ended = self.process.try_wait().map_err(text)?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.cluster.sockets.join("log")).unwrap_or_default();
                return Err(format!("PostgreSQL does not start: {}", log.trim()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes a table and fills it from a file of CSV.
    pub fn load(&self, create: &str, table: &str, csv: &Path) -> Result<(), String> {
        let copy = format!("COPY {table} FROM STDIN (FORMAT csv)");
        let mut psql = self.cluster.client("psql");
        psql.args(["-p", &self.port, "-q", "-d", "postgres", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-c", create, "-c", &copy, "-c", "VACUUM ANALYZE"]);
        psql.stdin(fs::File::open(csv).map_err(text)?);
        succeeded("psql", psql.output().map_err(text)?).map(|_| ())
    }

    /// Inserts rows, each in a transaction of its own, through prepared statements on `connections`
    /// connections.
    pub fn commits_per_second(&self, connections: usize, time: Duration) -> Result<f64, String> {
        let script = self.cluster.sockets.join("insert.sql");
        fs::write(&script, "INSERT INTO t VALUES (1);\n").map_err(text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).map_err(text)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(connections);
        let mut pgbench = self.cluster.client("pgbench");
        pgbench
            .args(["--no-vacuum", "--protocol=prepared"])
            .arg("--file")
            .arg(&script)
            .arg(format!("--client={connections}"))
            .arg(format!("--jobs={threads}"))
            .arg(format!("--time={}", time.as_secs_f64().ceil().max(1.0)))
            .arg("postgres");
        let output = succeeded("pgbench", pgbench.output().map_err(text)?)?;
        // "tps = 1234.567890 (without initial connection time)"
        output
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok())
            .ok_or_else(|| format!("pgbench gave no rate: {output}"))
    }
}

impl Drop for Server<'_> {
    /// A fast shutdown; if that hangs, an immediate one. Both let the server end its own processes.
    fn drop(&mut self) {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            // SAFETY: the process is this one's child and has not been waited for, so the number is
            // still its own.
            unsafe { libc::kill(self.process.id() as libc::pid_t, signal) };
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        eprintln!("PostgreSQL (process {}) does not stop", self.process.id());
    }
}
