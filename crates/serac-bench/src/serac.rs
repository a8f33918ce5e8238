//! `serac serve` as a process of its own.

use crate::setup::text;
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starting may take this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `serac serve`. It is stopped when this is dropped.
pub struct Serac(Child);

impl Serac {
    /// Starts it on an address, and with a Unix socket in a folder. The binary is the one beside
    /// this one, unless another is given.
    pub fn start(binary: Option<&Path>, database: &Path, address: SocketAddr, sockets: &Path) -> Result<Self, String> {
        let pg = address.to_string();
        let arguments = ["--pg".as_ref(), pg.as_ref(), "--pg-socket".as_ref(), sockets.as_os_str()];
        Self::start_with(binary, database, &[address], &arguments)
    }

    /// Starts it with arguments, and waits until it listens on the addresses.
    pub fn start_with(
        binary: Option<&Path>,
        database: &Path,
        addresses: &[SocketAddr],
        arguments: &[&OsStr],
    ) -> Result<Self, String> {
        let beside = || std::env::current_exe().ok().map(|path| path.with_file_name("serac"));
        let binary = binary.map(Path::to_owned).or_else(beside).ok_or("there is no serac binary: use --serac")?;
        let mut command = Command::new(&binary);
        command.arg("serve").arg(database).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        #[cfg(target_os = "linux")]
        // SAFETY: between fork and exec only a system call is made. It lets the server stop when
        // this process dies.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let process = command.spawn().map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let mut serac = Self(process);
        let deadline = Instant::now() + PATIENCE;
        while addresses.iter().any(|address| TcpStream::connect(address).is_err()) {
            if serac.0.try_wait().map_err(text)?.is_some() || Instant::now() > deadline {
                return Err(format!("{} serve does not start", binary.display()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(serac)
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Serac {
    fn drop(&mut self) {
        // SAFETY: the process is this one's child and has not been waited for, so the number is
        // still its own.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The process is this one's child, and has had its time.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of the loopback interface on which nobody listens.
pub fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(text)
}
