//! The processes of a cluster on this machine, and the networks between them.
//!
//! With network namespaces each process has an interface of its own, so its bytes can be counted:
//! they are joined by a bridge, whose other side this process sees. Without them, all listen on the
//! loopback interface. Whatever was started ends when its owner is dropped.

use crate::Result;
use crate::measure;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a process may take until it answers.
const START: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// The ports of a process that has an address for itself.
const FIRST_PORT: u16 = 7_400;

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// The interfaces of a cluster.
pub struct Network {
    /// What names of namespaces and interfaces begin with; `None` for the loopback interface.
    prefix: Option<String>,
    subnet: u8,
    next: AtomicU8,
}

impl Network {
    /// Namespaces, which only root can make, or the loopback interface.
    pub fn new(with_namespaces: bool) -> Result<Arc<Self>> {
        let pid = std::process::id();
        let prefix = with_namespaces.then(|| format!("sc{}", pid % 100_000));
        let network = Self { prefix, subnet: (pid % 250) as u8 + 1, next: AtomicU8::new(2) };
        if let Some(prefix) = &network.prefix {
            let (bridge, address) = (format!("{prefix}b"), format!("{}/24", network.address(1)));
            run("ip", &["link", "add", &bridge, "type", "bridge"])?;
            run("ip", &["address", "add", &address, "dev", &bridge])?;
            run("ip", &["link", "set", &bridge, "up"])?;
        }
        Ok(Arc::new(network))
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.subnet, host)
    }

    /// A place for a process.
    pub fn place(self: &Arc<Self>) -> Result<Place> {
        let Some(prefix) = &self.prefix else {
            return Ok(Place { network: self.clone(), address: Ipv4Addr::LOCALHOST.into(), interface: None, next: 0 });
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number == u8::MAX {
            return Err("the network has no address left".into());
        }
        let (name, inner) = (format!("{prefix}h{number}"), format!("{prefix}n{number}"));
        let address = self.address(number);
        // From here on, dropping it takes away what is there of it.
        let place =
            Place { network: self.clone(), address: address.into(), interface: Some(name.clone()), next: FIRST_PORT };
        run("ip", &["netns", "add", &name])?;
        run("ip", &["link", "add", &name, "type", "veth", "peer", "name", &inner, "netns", &name])?;
        run("ip", &["link", "set", &name, "master", &format!("{prefix}b"), "up"])?;
        run("ip", &["-n", &name, "address", "add", &format!("{address}/24"), "dev", &inner])?;
        run("ip", &["-n", &name, "link", "set", &inner, "up"])?;
        run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        Ok(place)
    }

    /// Takes a namespace away, and its interface.
    fn remove(&self, name: &str) {
        let _ = run("ip", &["netns", "delete", name]);
        let _ = run("ip", &["link", "delete", name]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(prefix) = &self.prefix {
            let _ = run("ip", &["link", "delete", &format!("{prefix}b")]);
        }
    }
}

/// Where a process runs.
pub struct Place {
    network: Arc<Network>,
    pub address: IpAddr,
    /// The namespace, and this side's interface to it, which have one name.
    interface: Option<String>,
    next: u16,
}

impl Place {
    /// A port that is free here.
    pub fn port(&mut self) -> Result<SocketAddr> {
        if self.interface.is_none() {
            return Ok(TcpListener::bind((self.address, 0))?.local_addr()?);
        }
        self.next += 1;
        Ok(SocketAddr::new(self.address, self.next))
    }

    /// Bytes that the process of this place has sent, if it has an interface for itself.
    pub fn sent_bytes(&self) -> Option<u64> {
        measure::received_bytes(self.interface.as_ref()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(name) = &self.interface {
            self.network.remove(name);
        }
    }
}

/// A process that ends when this is dropped.
pub struct Process {
    pub name: String,
    child: Mutex<Option<Child>>,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    pub place: Place,
}

impl Process {
    /// A process that does not run yet; its output goes to `FOLDER/NAME.log`.
    pub fn new(name: String, program: &Path, arguments: Vec<String>, place: Place, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, child: Mutex::default(), program: program.into(), arguments, environment: Vec::new(), log, place }
    }

    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it, also once more after its end.
    pub fn start(&self) -> Result<()> {
        self.kill();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = match &self.place.interface {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        *self.child.lock().unwrap() = Some(child);
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().map_or(0, Child::id)
    }

    pub fn cpu_seconds(&self) -> f64 {
        measure::cpu_seconds(self.pid())
    }

    /// Ends it at once, as a broken machine would.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until `is_ready` says so.
    ///
    /// # Errors
    /// When the process has ended, with the end of its log, or is not ready in time.
    pub async fn until(&self, is_ready: impl AsyncFn() -> bool) -> Result<()> {
        let end = Instant::now() + START;
        while !is_ready().await {
            let has_ended = match &mut *self.child.lock().unwrap() {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if has_ended || Instant::now() > end {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let tail: Vec<_> = log.lines().rev().take(8).collect();
                let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(format!("{} does not answer:\n{tail}", self.name).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Waits until it listens on a port.
    pub async fn until_listening(&self, address: SocketAddr) -> Result<()> {
        self.until(async || TcpStream::connect(address).await.is_ok()).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
