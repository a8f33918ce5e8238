//! Connections of a Flight server: HTTP/2, with or without TLS.

use super::FlightOptions;
use super::corked::Corked;
use super::door::Door;
use super::extension::{Caller, Extension};
use super::service::Flights;
use crate::rdma::RdmaOptions;
use crate::rdma::transport::Transport;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serac_engine::{ArrowScan, Database};
use serac_net::admission::Admission;
use serac_net::listen::{Listener, Socket};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::Status;

/// The time that streams may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// The time that a client may take to close a connection that has ended.
const LINGER: Duration = Duration::from_secs(1);
/// Wait after a failed accept (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A connection that is silent for so long gets a ping. It is closed if the client does not answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The least number of places for connections without a call yet.
const LEAST_WAITING: usize = 64;

/// Numbers of connections.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// A Flight server that listens.
pub struct FlightServer {
    listeners: Vec<Listener>,
    flights: Flights,
    tls: Option<TlsAcceptor>,
    max_connections: usize,
    login_timeout: Duration,
}

impl std::fmt::Debug for FlightServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlightServer").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl FlightServer {
    /// Listens on `address` (port 0: any that is free). Nothing is answered before
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(database: Database, address: SocketAddr, options: FlightOptions) -> io::Result<Self> {
        Ok(Self::new(database, vec![Listener::tcp(address).await?], options))
    }

    /// Answers clients of any of the listeners. On Unix sockets there is no TLS.
    #[must_use]
    pub fn new(database: Database, listeners: Vec<Listener>, options: FlightOptions) -> Self {
        let (max_connections, login_timeout) = (options.max_connections, options.login_timeout);
        let tls = options.tls.as_ref().map(|config| {
            let mut config = config.as_ref().clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        Self { listeners, flights: Flights::new(database, options), tls, max_connections, login_timeout }
    }

    /// Lets an extension answer, too, and check the callers.
    #[must_use]
    pub fn with_extension(mut self, extension: Arc<dyn Extension>) -> Self {
        self.flights.extend(extension);
        self
    }

    /// Lets clients that have the same transport read frozen blocks where they lie, and have
    /// blocks written into their own memory. See [`crate::rdma`].
    #[must_use]
    pub fn with_rdma(mut self, transport: Arc<dyn Transport>, options: RdmaOptions) -> Self {
        self.flights.share_memory(transport, options);
        self
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// When there is no listener, or the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Listener::address_of(&self.listeners)
    }

    /// The scan that a DoGet of this ticket streams to an admitted caller.
    ///
    /// # Errors
    /// The error of the ticket; PERMISSION_DENIED for a column that the caller may not read.
    pub async fn scan(&self, caller: &Caller, ticket: &[u8]) -> Result<ArrowScan, Status> {
        self.flights.scan(caller, ticket).await
    }

    /// Answers until `stop` is ready; then takes no new calls, lets streams end for a few seconds,
    /// and closes the connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let admission = Admission::new(self.max_connections.max(LEAST_WAITING));
        let seats = Arc::new(Semaphore::new(self.max_connections.min(Semaphore::MAX_PERMITS)));
        let mut sweep = tokio::time::interval(self.flights.leases().sweep_interval());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = sweep.tick() => self.flights.sweep(),
                Some(_) = connections.join_next() => {}
                accepted = Listener::accept(&self.listeners) => match accepted {
                    Ok(socket) => {
                        let place = admission.enter(socket.peer_address().map(|address| address.ip()));
                        let door = Door::new(Some(place), seats.clone());
                        let tls = self.tls.clone().filter(|_| !socket.is_unix());
                        let (flights, stopped, time) = (self.flights.clone(), stopped.clone(), self.login_timeout);
                        connections.spawn(async move {
                            let shut = door.stays_shut(time, stopped.clone());
                            tokio::select! {
                                () = serve(socket, tls, flights, door.clone(), stopped) => {}
                                () = shut => {}
                            }
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        let _ = stopping.send(true);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, all_ended).await;
    }
}

async fn serve(
    socket: Socket,
    tls: Option<TlsAcceptor>,
    flights: Flights,
    door: Arc<Door>,
    stopped: watch::Receiver<bool>,
) {
    let Ok((socket, second)) = socket.twice() else { return };
    let has_stopped = match tls {
        None => converse(Corked::new(socket), flights, door, stopped).await,
        Some(acceptor) => match acceptor.accept(socket).await {
            Ok(socket) => converse(socket, flights, door, stopped).await,
            // Without encryption the client cannot be told.
            Err(_) => return,
        },
    };
    if has_stopped {
        linger(second).await;
    }
}

/// Answers on a connection until it ends. Returns whether it ends because the server stops.
async fn converse(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    flights: Flights,
    door: Arc<Door>,
    mut stopped: watch::Receiver<bool>,
) -> bool {
    // Relaxed: numbers need only differ.
    let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let answer = service_fn(move |request| {
        let (flights, door) = (flights.clone(), door.clone());
        async move { Ok::<_, Infallible>(flights.answer(connection, &door, request).await) }
    });
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).max_concurrent_streams(128);
    let connection = http.serve_connection(TokioIo::new(socket), answer);
    tokio::pin!(connection);
    let stop = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    // An error ends this connection, which its client knows.
    tokio::select! {
        _ = &mut connection => false,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
            true
        }
    }
}

/// Reads on until the client closes, for a bounded time. Closing a socket with unread input (a
/// window update is enough) resets the connection, and the client loses its unread bytes.
async fn linger(mut socket: Socket) {
    let _ = socket.shutdown().await;
    let drained = async {
        let mut bytes = [0; 4096];
        while socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(LINGER, drained).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, ArrayRef, Decimal64Array, Int64Array, RecordBatch, StringViewArray};
    use arrow_data::ArrayData;
    use arrow_flight::{FlightClient, FlightDescriptor};
    use futures::TryStreamExt;
    use serac_engine::catalog::definition::{ColumnDefinition, TableDefinition};
    use serac_storage::{BlockNo, ColumnType, FreezeFormat};
    use std::io::IoSlice;
    use std::ops::Range;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};
    use tokio::io::ReadBuf;
    use tokio::net::{TcpListener, TcpStream};

    /// Bytes that the kernel took, by where they lay.
    #[derive(Default)]
    struct Taken {
        from_blocks: AtomicUsize,
        from_elsewhere: AtomicUsize,
    }

    /// A connection that notes the addresses of the bytes that it writes.
    struct Watched {
        socket: TcpStream,
        blocks: Arc<Vec<Range<usize>>>,
        taken: Arc<Taken>,
    }

    impl Watched {
        fn note(&self, bytes: &[u8], count: usize) {
            let address = bytes.as_ptr() as usize;
            let in_block = self.blocks.iter().any(|block| block.contains(&address));
            let counter = if in_block { &self.taken.from_blocks } else { &self.taken.from_elsewhere };
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    impl AsyncRead for Watched {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_read(cx, out)
        }
    }
    impl AsyncWrite for Watched {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let written = std::task::ready!(Pin::new(&mut self.socket).poll_write(cx, bytes))?;
            self.note(bytes, written);
            Poll::Ready(Ok(written))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let written = std::task::ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, slices))?;
            let mut rest = written;
            for slice in slices {
                let count = rest.min(slice.len());
                self.note(slice, count);
                rest -= count;
            }
            Poll::Ready(Ok(written))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_shutdown(cx)
        }
    }

    /// A table with blocks frozen in a format.
    fn frozen(format: FreezeFormat) -> Database {
        const ROWS: i64 = 150_000;
        let db = Database::in_memory().unwrap();
        let column = |name: &str, column_type: ColumnType| ColumnDefinition::new(name, column_type);
        let price = ColumnType::Decimal { precision: 15, scale: 2 };
        let columns = [("id", ColumnType::Int64), ("price", price), ("text", ColumnType::Utf8)];
        let mut txn = db.begin();
        let columns = columns.map(|(name, column_type)| column(name, column_type)).to_vec();
        txn.create_table(TableDefinition { freeze_format: format, ..TableDefinition::new("public", "t", columns) })
            .unwrap();
        let table = txn.catalog().table("public", "t").unwrap().clone();
        let prices: Decimal64Array = (0..ROWS).map(|i| (i % 3 != 0).then_some(i * 7)).collect();
        let texts: StringViewArray = (0..ROWS).map(|i| Some(format!("one of many texts: {}", i % 5_000))).collect();
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(0..ROWS)) as ArrayRef),
            ("price", arrow_cast::cast(&prices.with_precision_and_scale(15, 2).unwrap(), &price.arrow()).unwrap()),
            ("text", Arc::new(texts)),
        ]);
        txn.insert_batch(&table, &batch.unwrap()).unwrap();
        txn.commit().unwrap().wait().unwrap();
        let (frozen, blocks) = db.storage().freeze_table(&table.data, Duration::from_secs(20));
        assert!(frozen == blocks && blocks > 2, "{frozen} of {blocks} blocks are frozen");
        db
    }

    fn memory(data: &ArrayData, out: &mut Vec<Range<usize>>) {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            out.push(buffer.as_ptr() as usize..buffer.as_ptr() as usize + buffer.len());
        }
        data.child_data().iter().for_each(|child| memory(child, out));
    }

    /// Streams table t over a watched connection; returns the bytes by source.
    async fn stream(db: &Database, command: &str) -> (usize, usize) {
        let table = db.catalog().table("public", "t").unwrap().clone();
        let mut blocks = Vec::new();
        for no in 0..table.data.block_count() {
            let block = table.data.block(BlockNo(no)).unwrap();
            let arrays = block.frozen().unwrap().arrays(table.data.schema());
            arrays.iter().for_each(|array| memory(&array.to_data(), &mut blocks));
        }
        let taken = Arc::new(Taken::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        let (flights, blocks, noted) =
            (Flights::new(db.clone(), FlightOptions::default()), Arc::new(blocks), taken.clone());
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let door = Door::new(None, Arc::new(Semaphore::new(1)));
            converse(Watched { socket, blocks, taken: noted }, flights, door, stopped).await;
        });
        let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap();
        let mut client = FlightClient::new(channel.connect().await.unwrap());
        let info = client.get_flight_info(FlightDescriptor::new_cmd(command.to_owned())).await.unwrap();
        let mut rows = 0;
        for endpoint in info.endpoint {
            let batches = client.do_get(endpoint.ticket.unwrap()).await.unwrap();
            rows += batches.try_collect::<Vec<_>>().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        assert_eq!(rows, 150_000);
        (taken.from_blocks.load(Ordering::Relaxed), taken.from_elsewhere.load(Ordering::Relaxed))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_kernel_takes_frozen_blocks_from_their_own_memory() {
        for (format, strings) in
            [(FreezeFormat::View, "view"), (FreezeFormat::Utf8, "utf8"), (FreezeFormat::Dictionary, "dictionary")]
        {
            let db = frozen(format);
            let command = format!(r#"{{"table": "t", "decimals": "decimal64", "strings": "{strings}"}}"#);
            let (lent, copied) = stream(&db, &command).await;
            // Blocks that go in one message get common offsets. HTTP/2 puts the first bytes of each
            // of its frames, of 16 KiB or more, behind the frame's head: 256 in all.
            let offsets = if strings == "utf8" { 4 * 150_000 } else { 0 };
            assert!((copied - offsets) * 50 < lent, "{strings}: {lent} bytes from the blocks, {copied} from elsewhere");
            // Decimals that are widened are made for the stream.
            let (lent, made) = stream(&db, &command.replace("decimal64", "decimal128")).await;
            assert!(made > 16 * 150_000 && lent > 8 * 150_000, "{lent} bytes from the blocks, {made} from elsewhere");
        }
    }
}
