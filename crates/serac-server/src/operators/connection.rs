//! A connection's task: its login, then reading, writing and keeping the time until the thread has
//! ended.

use super::link::{End, Link, Place};
use super::login::{LoggedIn, log_in};
use super::read::{ReadError, read_frame};
use super::server::OperatorServerState;
use super::worker::{ENDING, Worker};
use crate::port::Phase;
use serac_column_language::frames::{ClientFrame, Sender, ServerFrame};
use serac_net::admission::Waiting;
use serac_net::listen::Socket;
use serac_sql::CancelHandle;
use serac_sql::activity::{Activity, Client, Wait};
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tracing::debug;

/// The time that a statement may take if its client sends no more.
const LAST_WORD: Duration = Duration::from_secs(1);
/// The time that a client may take for its last message.
const FAREWELL: Duration = Duration::from_secs(1);
/// The bytes of a read from the stream.
const READ_BYTES: usize = 16 << 10;
/// Room for answers that is kept between answers.
const KEPT_BYTES: usize = 64 << 10;
/// The shortest and the longest time between two looks at the clock.
const TICKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Serves a client to its end. `place`: where it waits until it has logged in. `busy`: dropped when
/// nothing of it runs any more.
pub(super) async fn serve(socket: Socket, shared: Arc<OperatorServerState>, place: Waiting, busy: mpsc::Sender<()>) {
    let (address, is_unix) = (socket.peer_address(), socket.is_unix());
    match shared.tls.clone().filter(|_| !is_unix) {
        None => serve_stream(socket, address, shared, place, busy).await,
        Some(acceptor) => {
            let accepted = tokio::select! {
                accepted = acceptor.accept(socket) => accepted.ok(),
                () = place.ends(shared.options.login_timeout) => None,
                () = shared.stopped() => None,
            };
            if let Some(stream) = accepted {
                serve_stream(stream, address, shared, place, busy).await;
            }
        }
    }
}

async fn serve_stream<S>(
    mut stream: S,
    address: Option<SocketAddr>,
    shared: Arc<OperatorServerState>,
    place: Waiting,
    busy: mpsc::Sender<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let logged_in = tokio::select! {
        logged_in = log_in(&mut stream, &shared, address) => logged_in,
        () = place.ends(shared.options.login_timeout) => None,
        () = shared.stopped() => None,
    };
    drop(place);
    let Some(LoggedIn { user, login, seat }) = logged_in else {
        let _ = tokio::time::timeout(FAREWELL, stream.shutdown()).await;
        return;
    };
    let context = shared.operators.context().with_role(login.role());
    let link = Arc::new(Link::new(context.cancel().clone()));
    let cancel = CancelHandle::default();
    let client = Client { user: user.clone(), database: user.clone(), application: "serac operators".into(), address };
    let activity = shared.db.connections().enter(client, cancel.clone());
    let process = activity.process();
    debug!(user, process, address = address.map(tracing::field::display), "connected");
    let worker = Worker {
        context,
        link: link.clone(),
        activity: activity.activity().clone(),
        slow: shared.options.slow_statement,
        user: user.clone(),
    };
    let spawned = std::thread::Builder::new().name("serac-operators".into()).spawn(move || worker.run());
    if let Err(error) = spawned {
        let _ = link.answer(false, |out| ServerFrame::Bye(&format!("there is no thread: {error}")).put(out));
        link.finish();
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(READ_BYTES, reader);
    attend(&mut reader, &mut writer, &link, activity.activity(), &cancel, &shared).await;
    drop(busy);
    if let Some(line) = link.asked() {
        shared.asked.send_replace(true);
        let mut ended = shared.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        let mut out = Vec::new();
        match ended {
            Some(Ok(())) => ServerFrame::Done { line, ok: true }.put(&mut out),
            Some(Err(why)) => {
                ServerFrame::Report { line, text: &why }.put(&mut out);
                ServerFrame::Done { line, ok: false }.put(&mut out);
            }
            None => ServerFrame::Bye(ENDING).put(&mut out),
        }
        let _ = tokio::time::timeout(FAREWELL, writer.write_all(&out)).await;
    }
    // Closing a connection with unread bytes would take the last answers from the client.
    let _ = tokio::time::timeout(FAREWELL, async {
        let _ = writer.shutdown().await;
        let mut rest = [0; 4 << 10];
        while matches!(reader.read(&mut rest).await, Ok(1..)) {}
    })
    .await;
    drop((seat, login));
    debug!(user, process, "disconnected");
}

/// Reads, writes and keeps the time until the thread has ended, and all that it has said is sent,
/// or cannot be.
async fn attend<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut BufReader<R>,
    writer: &mut W,
    link: &Arc<Link>,
    activity: &Activity,
    cancel: &CancelHandle,
    shared: &OperatorServerState,
) {
    let reading = read(reader, link, activity);
    let writing = write(writer, link, activity, shared.options.write_timeout);
    tokio::pin!(reading, writing);
    let (mut reads, mut last_word) = (true, None);
    // It may have changed already.
    let mut phases = shared.phase.subscribe();
    phases.mark_changed();
    let (mut phase, mut is_terminated) = (Phase::Serving, false);
    let mut ends = activity.ends();
    let mut cancelled = Box::pin(cancel.cancelled());
    let mut ticks = tokio::time::interval(shared.options.tick().clamp(TICKS.0, TICKS.1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let silence = async {
            match last_word {
                Some(until) => tokio::time::sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = &mut writing => break,
            read = &mut reading, if reads => {
                reads = false;
                match read {
                    Ok(()) => last_word = Some(tokio::time::Instant::now() + LAST_WORD),
                    Err(ReadError::Frame(error)) => link.end(End::Server(error.to_string())),
                    Err(ReadError::Io(_)) => link.leave(),
                }
                link.end(End::Client);
            }
            () = silence => {
                last_word = None;
                link.leave();
            }
            // The sender lives as long as `shared`.
            Ok(()) = phases.changed() => {
                phase = *phases.borrow_and_update();
                if phase != Phase::Serving {
                    link.stop(ENDING);
                }
                if phase == Phase::Cancelling {
                    link.leave();
                }
            }
            _ = ends.changed(), if !is_terminated => {
                is_terminated = true;
                link.stop("terminating connection due to administrator command");
                link.cancel(None);
            }
            () = &mut cancelled => {
                // The new one listens before the statement is cancelled.
                cancelled = Box::pin(cancel.cancelled());
                link.cancel(None);
            }
            _ = ticks.tick() => {
                let options = &shared.options;
                let is_over = |limit: Option<Duration>, took: Option<Duration>| {
                    limit.zip(took).is_some_and(|(limit, took)| took >= limit)
                };
                if is_over(options.statement_timeout, link.running_for()) {
                    link.cancel(None);
                }
                match link.waiting_for() {
                    Some((waited, Place::Between)) if is_over(options.idle_timeout, Some(waited)) => {
                        link.stop("terminating connection due to idle-session timeout");
                    }
                    // The rest of a file may never come.
                    Some((waited, Place::Load)) if phase != Phase::Serving && waited >= options.shutdown_timeout => {
                        link.leave();
                    }
                    _ => {}
                }
            }
        }
    }
    link.leave();
}

/// Reads frames up to the stream's end.
async fn read<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    link: &Link,
    activity: &Activity,
) -> Result<(), ReadError> {
    while let Some(frame) = read_frame(reader, Sender::Client).await? {
        activity.received(frame.body.len());
        // It overtakes the others.
        if let Ok(ClientFrame::Cancel { line }) = ClientFrame::read(frame.kind, &frame.body) {
            link.cancel(Some(line));
        } else {
            link.push(frame).await;
        }
    }
    Ok(())
}

/// Writes answers until the thread has ended, or the client has taken nothing for `timeout`.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, link: &Link, activity: &Activity, timeout: Duration) {
    let mut out = Vec::new();
    while link.take_answers(&mut out).await {
        let mut sent = 0;
        while sent < out.len() {
            let progress = wait_noted(activity, writer.write(&out[sent..]));
            match tokio::time::timeout(timeout, progress).await {
                Ok(Ok(count @ 1..)) => sent += count,
                _ => {
                    // The thread is not waited for here: it finds out, and ends by itself.
                    link.leave();
                    return link.finished().await;
                }
            }
        }
        if tokio::time::timeout(timeout, writer.flush()).await.is_err() {
            link.leave();
        }
        activity.sent(out.len());
        out.clear();
        out.shrink_to(KEPT_BYTES);
    }
}

/// Notes, if a write does not end at once, that the client is waited for.
async fn wait_noted(activity: &Activity, write: impl Future<Output = io::Result<usize>>) -> io::Result<usize> {
    tokio::pin!(write);
    if let std::task::Poll::Ready(result) = futures::poll!(write.as_mut()) {
        return result;
    }
    activity.waits(Wait::ClientWrite);
    let result = write.await;
    activity.waits(Wait::Nothing);
    result
}

/// Waits until a watched value is no longer the first.
pub(super) async fn left_first(mut phases: watch::Receiver<Phase>) {
    // The sender lives as long as the server.
    let _ = phases.wait_for(|phase| *phase != Phase::Serving).await;
}
