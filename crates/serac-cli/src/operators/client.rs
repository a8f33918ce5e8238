//! The client: the sent statements and their answers, and the answers on their way to the user.

use super::connect::Stream;
use super::graph::drawn;
use super::input::Input;
use crate::output::printable;
use serac_column_language::frames::{ClientFrame, Sender, ServerFrame};
use serac_server::operators::read_frame;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};

/// Pieces of input that wait to be sent.
const WAITING: usize = 8;
/// The most bytes of a read from the stream.
const READ_BYTES: usize = 64 << 10;

/// The end of the client.
pub struct Ending {
    /// Whether every statement succeeded.
    pub ok: bool,
}

#[derive(Default)]
struct State {
    /// Statements sent, and those of them that were answered.
    sent: u64,
    answered: u64,
    /// The line that was sent last, and the one that was answered last.
    last_sent: u64,
    last_answered: u64,
    last_ok: bool,
    /// The line of a `shutdown`, behind whose answer the server ends the connection.
    shutdown: Option<u64>,
    /// The line of an `info()`, whose answer is drawn for a person.
    info: Option<u64>,
    /// A statement has failed.
    failed: bool,
    /// No more statements come.
    input_over: bool,
    /// The server has ended the connection.
    gone: bool,
}

impl State {
    fn is_complete(&self) -> bool {
        self.input_over && self.answered == self.sent
    }
}

/// The statements sent and answered. The thread that reads lines shares it with the task that reads
/// answers.
#[derive(Default)]
pub struct Progress {
    state: Mutex<State>,
    /// Wakes the thread when an answer has come.
    answered: Condvar,
    /// Wakes the task at the input's end.
    input_over: Notify,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a line's statement is being sent.
    pub fn sent(&self, line: u64) {
        let mut state = self.state();
        state.sent += 1;
        state.last_sent = line;
    }

    /// Notes that a line that is being sent ends the server.
    pub fn shuts_down(&self, line: u64) {
        self.state().shutdown = Some(line);
    }

    /// Notes that a line asks for the graph of the last batch. It is being sent, and the next line
    /// is sent after its answer.
    pub fn asks_for_graph(&self, line: u64) {
        self.state().info = Some(line);
    }

    /// Notes and shows the error of a line that was not sent.
    pub fn fail(&self, line: u64, text: &str) {
        self.state().failed = true;
        eprintln!("line {line}: {text}");
    }

    /// Whether the file of a line's load is still wanted.
    pub fn wants_file(&self, line: u64) -> bool {
        let state = self.state();
        !state.gone && state.last_answered < line
    }

    /// Waits until all lines are answered; returns whether the last statement succeeded. `None` if
    /// the server has gone.
    pub fn wait(&self) -> Option<bool> {
        let mut state = self.state();
        while !state.gone && state.answered < state.sent {
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.answered == state.sent && !state.gone).then_some(state.last_ok)
    }
}

/// The reason why no more answers come.
enum End {
    Complete,
    Gone(String),
}

/// Sends statements from the standard input, and shows the answers.
pub async fn run(stream: impl Stream) -> Ending {
    let progress = Arc::new(Progress::default());
    let (frames, mut waiting) = mpsc::channel::<Vec<u8>>(WAITING);
    // Cancellations have a channel of their own, because a load fills the other channel.
    let (cancels, mut cancelled) = mpsc::channel::<Vec<u8>>(1);
    let is_terminal = std::io::stdin().is_terminal();
    let spawned = {
        let progress = progress.clone();
        // A thread outside of the runtime: the end of the runtime would wait for a line.
        std::thread::Builder::new().name("serac-input".into()).spawn(move || {
            let mut input = Input::new(&progress, frames, is_terminal, is_terminal && std::io::stdout().is_terminal());
            if is_terminal {
                if let Err(error) = input.terminal() {
                    progress.fail(1, &error);
                }
            } else {
                input.stream(std::io::stdin());
            }
            progress.state().input_over = true;
            progress.input_over.notify_one();
        })
    };
    if let Err(error) = spawned {
        eprintln!("there is no thread: {error}");
        return Ending { ok: false };
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let writing = async {
        loop {
            let out = tokio::select! {
                biased;
                Some(out) = cancelled.recv() => out,
                Some(out) = waiting.recv() => out,
            };
            // A server that ends the connection sends the reason. The reading side shows it.
            if write(&mut writer, &out).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let reading = read(BufReader::with_capacity(READ_BYTES, reader), &progress);
    tokio::pin!(writing, reading);
    let end = loop {
        tokio::select! {
            end = &mut reading => break end,
            () = &mut writing => unreachable!("it writes until it is dropped"),
            () = progress.input_over.notified() => {
                if progress.state().is_complete() {
                    break End::Complete;
                }
            }
            // At a terminal, the running statement is cancelled; elsewhere the signal ends the
            // process.
            _ = tokio::signal::ctrl_c(), if is_terminal => {
                let mut out = Vec::new();
                ClientFrame::Cancel { line: progress.state().last_sent }.put(&mut out);
                // A cancellation that already waits does the same.
                let _ = cancels.try_send(out);
            }
        }
    };
    if let End::Gone(why) = end {
        eprintln!("{}", printable(&why, true));
        progress.state().gone = true;
        progress.state().failed = true;
        progress.answered.notify_all();
    }
    // The line editor owns the terminal until its line ends.
    while is_terminal && !progress.state().input_over {
        progress.input_over.notified().await;
    }
    Ending { ok: !progress.state().failed }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), out: &[u8]) -> std::io::Result<()> {
    writer.write_all(out).await?;
    writer.flush().await
}

/// The standard output. A closed output (head, less) is no error of ours.
struct Shown {
    out: std::io::BufWriter<std::io::Stdout>,
    failed: bool,
}

impl Shown {
    /// Notes an error of the output.
    fn note(&mut self, result: std::io::Result<()>, progress: &Progress) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.failed, true)
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            eprintln!("the standard output cannot be written: {error}");
            progress.state().failed = true;
        }
    }

    fn write(&mut self, text: &[u8], progress: &Progress) {
        if !self.failed {
            let result = self.out.write_all(text);
            self.note(result, progress);
        }
    }

    fn flush(&mut self, progress: &Progress) {
        if !self.failed {
            let result = self.out.flush();
            self.note(result, progress);
        }
    }
}

/// Shows answers until all are there, or the server goes.
async fn read(mut reader: BufReader<impl AsyncRead + Unpin>, progress: &Progress) -> End {
    let mut shown = Shown { out: std::io::BufWriter::new(std::io::stdout()), failed: false };
    let gone = |why: &str| End::Gone(why.to_owned());
    let mut info = Vec::new();
    loop {
        let frame = match read_frame(&mut reader, Sender::Server).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return gone("the server went away"),
            Err(error) => return gone(&format!("the server went away: {error}")),
        };
        match ServerFrame::read(frame.kind, &frame.body) {
            Ok(ServerFrame::Rows(text)) if progress.state().info.is_some() => info.extend_from_slice(text),
            Ok(ServerFrame::Rows(text)) => shown.write(text, progress),
            Ok(ServerFrame::Report { line, text }) => {
                shown.flush(progress);
                eprintln!("line {line}: {}", printable(text, false));
            }
            Ok(ServerFrame::Done { line, ok }) => {
                if progress.state().info.take_if(|info| *info == line).is_some() {
                    let info = std::mem::take(&mut info);
                    shown.write(drawn(&String::from_utf8_lossy(&info)).as_bytes(), progress);
                }
                if reader.buffer().is_empty() {
                    shown.flush(progress);
                }
                let mut state = progress.state();
                state.answered += 1;
                (state.last_answered, state.last_ok) = (line, ok);
                state.failed |= !ok;
                let is_complete = state.is_complete() || (ok && state.shutdown == Some(line));
                drop(state);
                progress.answered.notify_all();
                if is_complete {
                    shown.flush(progress);
                    return End::Complete;
                }
            }
            Ok(ServerFrame::Bye(why)) => {
                shown.flush(progress);
                return gone(why);
            }
            Ok(ServerFrame::Welcome { .. } | ServerFrame::Refused { .. }) => {
                return gone("the server sent a message out of place");
            }
            Err(error) => return gone(&format!("the server sent a message that is no answer: {error}")),
        }
    }
}
