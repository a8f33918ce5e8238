//! Listeners of a server, on TCP addresses and Unix sockets, and the connections that they accept.
//!
//! A Unix socket is a file. A file that an ended server has left behind is replaced; a file at
//! which a server answers is not. The file is removed when its listener is dropped.

use socket2::{SockRef, TcpKeepalive};
use std::fs;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A client that sends nothing for so long is probed (TCP keepalive).
const SILENCE: Duration = Duration::from_secs(60);
/// The time between two probes.
const PROBES: Duration = Duration::from_secs(10);
/// A client that leaves so many probes unanswered is taken for gone, and its locks are released:
/// two minutes after it has vanished.
const MOST_PROBES: u32 = 6;

/// The most connections that wait to be accepted at the socket of a folder.
const FOLDER_BACKLOG: i32 = 1_024;

/// The flags of a send that more will follow.
#[cfg(target_os = "linux")]
const MORE_FOLLOWS: i32 = libc::MSG_MORE | libc::MSG_NOSIGNAL;
/// Other systems have no such hint. Programs ignore SIGPIPE, as those of Rust and Python do.
#[cfg(not(target_os = "linux"))]
const MORE_FOLLOWS: i32 = 0;

/// A place where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Listens on an address (port 0: any that is free).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self::Tcp)
    }

    /// Listens on a Unix socket at `path`. Every user who may enter its folder may connect, as with
    /// PostgreSQL's socket.
    ///
    /// # Errors
    /// When another server answers there, the file is not a socket, or the socket cannot be made.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if let Ok(found) = fs::symlink_metadata(path) {
            let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            if !found.file_type().is_socket() {
                return in_use("there is a file that is no socket");
            }
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return in_use("another server answers there");
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        Ok(Self::Unix(listener, SocketFile { path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino() }))
    }

    /// Listens on the socket of a database's folder. Only this user and root may connect: the file
    /// has the mode 0600. A socket that is already there was left behind, because the caller holds
    /// the folder's lock.
    ///
    /// # Errors
    /// When the file is not a socket, or the socket cannot be made.
    pub fn folder(folder: &Path) -> io::Result<Self> {
        let path = folder.join(serac_client::wire::SOCKET);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                let why = format!("{} is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
        // The address goes through the descriptor of the folder, so that a long path fits.
        let opened = serac_client::client::open_folder(folder)?;
        let (socket, address) = serac_client::client::socket_in(&opened)?;
        // The file gets the mode that the socket has when it is bound, so that it never has
        // another.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, FOLDER_BACKLOG)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let inode = fs::symlink_metadata(&path)?.ino();
        Ok(Self::Unix(UnixListener::from_std(socket.into())?, SocketFile { path, inode }))
    }

    /// The first TCP address of the listeners.
    ///
    /// # Errors
    /// When no listener has one, or the system call fails.
    pub fn address_of(listeners: &[Self]) -> io::Result<SocketAddr> {
        let address = listeners.iter().find_map(|listener| match listener {
            Self::Tcp(listener) => Some(listener.local_addr()),
            Self::Unix(..) => None,
        });
        address.unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into()))
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(context).map_ok(|(socket, _)| {
                // Small answers are sent at once, without waiting for more bytes.
                let _ = socket.set_nodelay(true);
                let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES).with_retries(MOST_PROBES);
                let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
                Socket::Tcp(socket)
            }),
            Self::Unix(listener, _) => listener.poll_accept(context).map_ok(|(socket, _)| Socket::Unix(socket)),
        }
    }

    /// The next connection on any of the listeners. They are polled from a random one on, so that a
    /// busy listener does not starve the others. Only one task may wait at a time.
    ///
    /// # Errors
    /// When a connection cannot be taken (no file descriptors left, for example).
    pub async fn accept(listeners: &[Self]) -> io::Result<Socket> {
        let (before, rest) = listeners.split_at(rand::random::<u32>() as usize % listeners.len().max(1));
        poll_fn(|context| {
            let all = rest.iter().chain(before);
            let ready = all.map(|listener| listener.poll_accept(context)).find(Poll::is_ready);
            ready.unwrap_or(Poll::Pending)
        })
        .await
    }
}

/// A Unix socket's file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have put its own socket there meanwhile.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection with a client.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// Evaluates the same expression for either kind of socket.
macro_rules! either {
    ($socket:expr, $inner:ident => $does:expr) => {
        match $socket {
            Socket::Tcp($inner) => $does,
            Socket::Unix($inner) => $does,
        }
    };
}

impl Socket {
    /// The client's address; `None` on a Unix socket.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Whether this is a Unix socket, whose data stays on this machine.
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Writes bytes that more will follow. The kernel may hold back the last of them until more are
    /// written, or until [`push`](Self::push).
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn poll_write_more(&self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        either!(self, socket => loop {
            ready!(socket.poll_write_ready(context))?;
            let send = || SockRef::from(socket).send_vectored_with_flags(slices, MORE_FOLLOWS);
            match socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        })
    }

    /// Sends the bytes that the kernel holds back.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn push(&self) -> io::Result<()> {
        match self {
            // Setting the option again pushes.
            Self::Tcp(socket) => socket.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// The user and the process of a client on a Unix socket, as they were when it connected.
    pub fn peer(&self) -> Option<(u32, Option<i32>)> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(socket) => socket.peer_cred().ok().map(|peer| (peer.uid(), peer.pid())),
        }
    }

    /// The socket without the runtime that accepted it, for [`Unbound::bind`] in another runtime.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn unbound(self) -> io::Result<Unbound> {
        match self {
            Self::Tcp(socket) => socket.into_std().map(Unbound::Tcp),
            Self::Unix(socket) => socket.into_std().map(Unbound::Unix),
        }
    }

    /// The socket, and a second handle that keeps it open.
    ///
    /// # Errors
    /// When the system gives no second descriptor.
    pub fn twice(self) -> io::Result<(Self, Self)> {
        let first = self.unbound()?;
        let second = match &first {
            Unbound::Tcp(socket) => Unbound::Tcp(socket.try_clone()?),
            Unbound::Unix(socket) => Unbound::Unix(socket.try_clone()?),
        };
        Ok((first.bind()?, second.bind()?))
    }
}

/// A connection that no runtime serves yet.
#[derive(Debug)]
pub enum Unbound {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Unbound {
    /// The connection, served by the runtime in which this is called.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn bind(self) -> io::Result<Socket> {
        match self {
            Self::Tcp(socket) => TcpStream::from_std(socket).map(Socket::Tcp),
            Self::Unix(socket) => UnixStream::from_std(socket).map(Socket::Unix),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), socket => Pin::new(socket).poll_read(context, out))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), socket => Pin::new(socket).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), socket => Pin::new(socket).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, socket => socket.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), socket => Pin::new(socket).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), socket => Pin::new(socket).poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_at_one_place_keeps_nobody_from_another() {
        let folder = tempfile::tempdir().unwrap();
        let (path, local) = (folder.path().join("socket"), SocketAddr::from(([127, 0, 0, 1], 0)));
        let listeners = [Listener::tcp(local).await.unwrap(), Listener::unix(&path).unwrap()];
        let address = Listener::address_of(&listeners).unwrap();
        let mut flood = Vec::new();
        for _ in 0..50 {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        let _client = UnixStream::connect(&path).await.unwrap();
        let mut before = 0;
        while !Listener::accept(&listeners).await.unwrap().is_unix() {
            before += 1;
        }
        assert!(before < 40, "{before} of the flood came first");
    }

    #[tokio::test]
    async fn clients_that_have_vanished_are_found_out() {
        let listeners = [Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()];
        let _client = TcpStream::connect(Listener::address_of(&listeners).unwrap()).await.unwrap();
        let Socket::Tcp(socket) = Listener::accept(&listeners).await.unwrap() else { panic!("it is TCP") };
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        let option = |name: libc::c_int| {
            let (mut value, mut length) = (0i32, size_of::<i32>() as libc::socklen_t);
            // SAFETY: The descriptor is open, and the kernel writes an integer of this length at
            // the most.
            let got = unsafe {
                libc::getsockopt(
                    std::os::fd::AsRawFd::as_raw_fd(&*socket),
                    libc::IPPROTO_TCP,
                    name,
                    (&raw mut value).cast(),
                    &raw mut length,
                )
            };
            (got, value)
        };
        assert_eq!(
            [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT].map(option),
            [(0, 60), (0, 10), (0, 6)]
        );
    }
}
