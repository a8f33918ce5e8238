//! The link between a connection's task and its thread: frames one way, answers the other, and the
//! end of both.
//!
//! One latch guards all fields, and is held for no longer than a push or a swap. The thread waits
//! on a condition variable. The task, which may not block, waits on two `Notify`s, each with one
//! waiter. A `Notify` keeps a wake-up that comes before the wait, so the task looks first and waits
//! then.
//!
//! The flag that cancels is set and cleared under the latch, so that a cancellation meets the
//! intended statement. `begin` clears the flag, unless the connection is ending or the line was
//! cancelled while it waited.

use super::read::Frame;
use parking_lot::{Condvar, Mutex};
use serac_column_language::Cancel;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The most bytes of frames that wait for the thread; below it the next frame is read.
const MOST_FRAME_BYTES: usize = 2 << 20;
/// Bytes that a frame counts beside its body.
const FRAME_COST: usize = 64;
/// Bytes of answers that wait for the client; the thread waits when there are more.
const MOST_ANSWER_BYTES: usize = 256 << 10;
/// The longest part of a result that is taken at a time.
pub(super) const PART_BYTES: usize = 64 << 10;

/// The reason why there are no more frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The client has ended the connection, or takes no answers.
    Client,
    /// The server ends it, for this reason.
    Server(String),
}

/// The place at which the thread asks for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Between two statements.
    Between,
    /// In a load, which can be cancelled.
    Load,
}

/// The answer to the thread when it asks for a frame.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Frame),
    /// The load is cancelled.
    Cancelled,
    End(End),
}

#[derive(Debug)]
struct State {
    frames: VecDeque<Frame>,
    frame_bytes: usize,
    /// Set by the task: after the frames that wait there are no others.
    end: Option<End>,
    /// Set by the task: no statement begins, for this reason.
    stopping: Option<String>,
    answers: Vec<u8>,
    /// Answers are not wanted any more, and no statement runs.
    gone: bool,
    /// The thread has ended.
    finished: bool,
    /// The statement that runs, and since when.
    running: Option<(u64, Instant)>,
    /// The line of the statement that began last.
    begun: u64,
    /// Later lines, which were cancelled while they waited for their turn.
    cancelled: BTreeSet<u64>,
    /// Since when the thread has waited for the client.
    waiting: Option<Instant>,
    /// The line of a `shutdown`, which is answered when the server has ended.
    asked: Option<u64>,
}

/// The link of one connection.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    /// For the thread: frames, room for answers, an end.
    thread: Condvar,
    /// For the task's reader: room for frames.
    room: Notify,
    /// For the task's writer: answers, or the thread's end.
    answers: Notify,
    cancel: Cancel,
}

impl Link {
    /// `cancel`: ends the statement that runs.
    pub(super) fn new(cancel: Cancel) -> Self {
        let state = State {
            frames: VecDeque::new(),
            frame_bytes: 0,
            end: None,
            stopping: None,
            answers: Vec::new(),
            gone: false,
            finished: false,
            running: None,
            begun: 0,
            cancelled: BTreeSet::new(),
            waiting: None,
            asked: None,
        };
        Self { state: Mutex::new(state), thread: Condvar::new(), room: Notify::new(), answers: Notify::new(), cancel }
    }

    fn set_cancel(&self) {
        // Relaxed: the statement that asks learns nothing else by it.
        self.cancel.store(true, Ordering::Relaxed);
        self.thread.notify_all();
    }

    // The thread's side.

    /// The next frame; waits for it.
    pub(super) fn next(&self, place: Place) -> Next {
        let mut state = self.state.lock();
        let next = loop {
            if state.gone {
                break Next::End(End::Client);
            }
            match place {
                Place::Between => {
                    if let Some(why) = &state.stopping {
                        break Next::End(End::Server(why.clone()));
                    }
                }
                // Relaxed: it is set under the latch.
                Place::Load if self.cancel.load(Ordering::Relaxed) => break Next::Cancelled,
                Place::Load => {}
            }
            if let Some(frame) = state.frames.pop_front() {
                state.frame_bytes -= frame.body.len() + FRAME_COST;
                self.room.notify_one();
                break Next::Frame(frame);
            }
            if let Some(end) = &state.end {
                break Next::End(end.clone());
            }
            state.waiting.get_or_insert_with(Instant::now);
            self.thread.wait(&mut state);
        };
        state.waiting = None;
        next
    }

    /// Notes that a statement begins; false if it may not.
    pub(super) fn begin(&self, line: u64) -> bool {
        let mut state = self.state.lock();
        let may = !state.gone && state.stopping.is_none();
        if may {
            state.running = Some((line, Instant::now()));
            state.begun = line;
            // Relaxed, as in `set_cancel`.
            state.cancelled = state.cancelled.split_off(&line);
            self.cancel.store(state.cancelled.remove(&line), Ordering::Relaxed);
        }
        may
    }

    /// Notes that the statement has ended.
    pub(super) fn ended(&self) {
        self.state.lock().running = None;
    }

    /// Writes a part of an answer, once there is room. With `can_be_cancelled`, a cancelled
    /// statement does not wait.
    ///
    /// # Errors
    /// When it is not wanted any more.
    pub(super) fn answer(&self, can_be_cancelled: bool, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state.lock();
        while !state.gone && state.answers.len() >= MOST_ANSWER_BYTES {
            // Relaxed: it is set under the latch.
            if can_be_cancelled && self.cancel.load(Ordering::Relaxed) {
                return Err(io::Error::other("cancelled"));
            }
            self.thread.wait(&mut state);
        }
        if state.gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        write(&mut state.answers);
        self.answers.notify_one();
        Ok(())
    }

    /// Notes that the client has asked for the server's end.
    pub(super) fn ask(&self, line: u64) {
        self.state.lock().asked = Some(line);
    }

    /// Notes that the thread has ended.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock();
        state.finished = true;
        state.running = None;
        state.frames = VecDeque::new();
        state.frame_bytes = 0;
        self.answers.notify_one();
        self.room.notify_one();
    }

    // The task's side.

    /// Hands a frame over, once there is room.
    pub(super) async fn push(&self, frame: Frame) {
        loop {
            {
                let mut state = self.state.lock();
                if state.finished || state.gone {
                    return;
                }
                if state.frame_bytes < MOST_FRAME_BYTES {
                    state.frame_bytes += frame.body.len() + FRAME_COST;
                    state.frames.push_back(frame);
                    self.thread.notify_all();
                    return;
                }
            }
            self.room.notified().await;
        }
    }

    /// Says that no more frames come.
    pub(super) fn end(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
        self.thread.notify_all();
    }

    /// Prevents further statements, and waits for the client's next one.
    pub(super) fn stop(&self, why: &str) {
        self.state.lock().stopping.get_or_insert_with(|| why.to_owned());
        self.thread.notify_all();
    }

    /// Cancels the running statement, if there is one; with a line, that line's, which may still
    /// wait.
    pub(super) fn cancel(&self, line: Option<u64>) {
        let mut state = self.state.lock();
        if state.running.is_some_and(|(running, _)| line.is_none_or(|line| line == running)) {
            self.set_cancel();
        } else if let Some(line) = line
            && line > state.begun
            // At most as many lines wait as frames, plus one that is about to begin: so a client
            // cannot make the server keep more.
            && state.cancelled.len() <= state.frames.len()
        {
            state.cancelled.insert(line);
        }
    }

    /// Notes that the client has gone: the running statement is cancelled, and no other begins.
    pub(super) fn leave(&self) {
        let mut state = self.state.lock();
        state.gone = true;
        self.set_cancel();
        self.answers.notify_one();
        self.room.notify_one();
    }

    /// Takes the bytes to send into an empty buffer; waits for them. False after the last ones: the
    /// thread has ended.
    pub(super) async fn take_answers(&self, out: &mut Vec<u8>) -> bool {
        debug_assert!(out.is_empty());
        loop {
            {
                let mut state = self.state.lock();
                if !state.answers.is_empty() {
                    std::mem::swap(&mut state.answers, out);
                    self.thread.notify_all();
                    return true;
                }
                if state.finished {
                    return false;
                }
            }
            self.answers.notified().await;
        }
    }

    /// Waits until the thread has ended; drops its answers.
    pub(super) async fn finished(&self) {
        let mut dropped = Vec::new();
        while self.take_answers(&mut dropped).await {
            dropped.clear();
        }
    }

    /// The line in which the client has asked for the server's end.
    pub(super) fn asked(&self) -> Option<u64> {
        self.state.lock().asked
    }

    /// The time that the running statement has run.
    pub(super) fn running_for(&self) -> Option<Duration> {
        self.state.lock().running.map(|(_, since)| since.elapsed())
    }

    /// The time that the thread has waited for the client, with a load open or not.
    pub(super) fn waiting_for(&self) -> Option<(Duration, Place)> {
        let state = self.state.lock();
        let place = if state.running.is_some() { Place::Load } else { Place::Between };
        state.waiting.map(|since| (since.elapsed(), place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn frame(bytes: usize) -> Frame {
        Frame { kind: b'd', body: vec![0; bytes] }
    }

    #[tokio::test]
    async fn full_sides_wait_and_go_on() {
        let link = Arc::new(Link::new(Cancel::default()));
        link.push(frame(MOST_FRAME_BYTES)).await;
        let more = tokio::time::timeout(Duration::from_millis(20), link.push(frame(1)));
        assert!(more.await.is_err(), "there is no room");
        let thread = {
            let link = link.clone();
            std::thread::spawn(move || {
                let mut bytes = 0;
                while let Next::Frame(frame) = link.next(Place::Between) {
                    bytes += frame.body.len();
                    for _ in 0..8 {
                        link.answer(true, |out| out.extend_from_slice(&[0; PART_BYTES])).unwrap();
                    }
                }
                link.finish();
                bytes
            })
        };
        link.push(frame(1)).await;
        link.end(End::Client);
        let (mut out, mut sent) = (Vec::new(), 0);
        while link.take_answers(&mut out).await {
            assert!(out.len() < MOST_ANSWER_BYTES + PART_BYTES);
            sent += out.len();
            out.clear();
        }
        assert_eq!((thread.join().unwrap(), sent), (MOST_FRAME_BYTES + 1, 16 * PART_BYTES));
    }

    #[test]
    fn a_cancellation_meets_the_statement_that_it_means() {
        let cancel = Cancel::default();
        let link = Link::new(cancel.clone());
        let is_cancelled = || cancel.load(Ordering::Relaxed);
        link.cancel(None);
        assert!(!is_cancelled(), "nothing runs");
        assert!(link.begin(7));
        link.cancel(Some(6));
        assert!(!is_cancelled());
        link.cancel(Some(7));
        assert!(is_cancelled() && matches!(link.next(Place::Load), Next::Cancelled));
        link.ended();
        assert!(link.begin(8) && !is_cancelled());
        link.cancel(Some(9));
        link.ended();
        assert!(link.begin(9) && is_cancelled(), "it waited when it was cancelled");
        link.ended();
        assert!(link.begin(10) && !is_cancelled());
        link.leave();
        assert!(is_cancelled() && !link.begin(11));
        assert!(matches!(link.next(Place::Load), Next::End(End::Client)));
        assert!(link.answer(false, |_| {}).is_err());
    }

    #[test]
    fn each_line_that_waits_can_be_cancelled() {
        let cancel = Cancel::default();
        let link = Link::new(cancel.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        (2..8).for_each(|_| runtime.block_on(link.push(frame(1))));
        assert!(link.begin(1));
        [6, 3, 4].into_iter().for_each(|line| link.cancel(Some(line)));
        let mut cancelled = Vec::new();
        for line in [2, 3, 5, 6, 7] {
            link.ended();
            assert!(matches!(link.next(Place::Between), Next::Frame(_)) && link.begin(line));
            if cancel.load(Ordering::Relaxed) {
                cancelled.push(line);
            }
        }
        assert_eq!(cancelled, [3, 6]);
        // Lines that no frame can have are not kept.
        (100..10_000).for_each(|line| link.cancel(Some(line)));
        assert!(link.state.lock().cancelled.len() < 4);
    }

    #[test]
    fn a_stop_lets_a_load_go_on() {
        let link = Link::new(Cancel::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(link.push(frame(1)));
        assert!(link.begin(1));
        link.stop("it ends");
        assert!(matches!(link.next(Place::Load), Next::Frame(_)));
        link.ended();
        assert!(!link.begin(2));
        assert!(matches!(link.next(Place::Between), Next::End(End::Server(why)) if why == "it ends"));
    }
}
