//! The source of a script's lines: a text, or a pipe whose lines run as they come.
//!
//! ```text
//! standard input ──thread──▶ channel of whole lines ──▶ Script ──▶ statements, and data of COPY
//! ```
//! The script is behind a latch. Two may wait for lines: the shell, for a statement, and the thread
//! that reads a COPY, for data. The shell waits on a `Notify`, which keeps a wake-up that comes
//! before the wait. The thread waits on a condition variable, under the latch. A task that adds a
//! piece to the channel, ends it, or ends the data takes the latch before it wakes the thread. So
//! the thread has either seen that, or waits already.
//!
//! The thread of the standard input may wait for as long as the process lives, which ends without
//! it.

use crate::ending::Interrupts;
use crate::script::{Part, Script, Within};
use parking_lot::{Condvar, Mutex};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use tokio::sync::Notify;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are read ahead of the execution.
const PIECES_AHEAD: usize = 16;

struct Lines {
    script: Script,
    /// Lines that come through a pipe; `None` if all are there.
    pieces: Option<Receiver<io::Result<String>>>,
    /// The number of COPYs that have begun to read data. The thread of a failed COPY may live on.
    copies: u64,
}

struct Shared {
    lines: Mutex<Lines>,
    /// Wakes the shell when a piece has come, or the pipe has ended.
    arrived: Notify,
    /// Wakes the thread of a COPY at the same events, and at the end of its data.
    changed: Condvar,
}

impl Shared {
    /// Wakes all waiters, after a change that was made without the latch.
    fn wake(&self) {
        drop(self.lines.lock());
        self.changed.notify_all();
        self.arrived.notify_one();
    }
}

/// A script and where its lines come from. The data of a COPY is read from it on another thread.
#[derive(Clone)]
pub struct Source(Arc<Shared>);

/// Sends the lines of a stream, as many together as there are. `arrived` is called after each
/// piece.
fn send_lines(mut stream: impl Read, pieces: SyncSender<io::Result<String>>, arrived: impl Fn()) {
    let (mut buffer, mut begun) = (vec![0; PIECE_BYTES], Vec::new());
    loop {
        let (bytes, is_last) = match stream.read(&mut buffer) {
            Ok(0) => (Ok(std::mem::take(&mut begun)), true),
            Ok(count) => {
                let lines = buffer[..count].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                if lines == 0 {
                    begun.extend_from_slice(&buffer[..count]);
                    continue;
                }
                begun.extend_from_slice(&buffer[..lines]);
                (Ok(std::mem::replace(&mut begun, buffer[lines..count].to_vec())), false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => (Err(error), true),
        };
        let piece = bytes.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
        let is_last = is_last || piece.is_err();
        if pieces.send(piece).is_err() || is_last {
            return;
        }
        arrived();
    }
}

impl Lines {
    /// Takes lines that have come. `None` if no line has come yet; false at the end of the stream.
    fn take(&mut self) -> Option<io::Result<bool>> {
        let piece = match &self.pieces {
            None => return Some(Ok(false)),
            Some(pieces) => pieces.try_recv(),
        };
        match piece {
            Ok(Ok(lines)) => {
                self.script.push(&lines);
                Some(Ok(true))
            }
            Err(TryRecvError::Empty) => None,
            ended => {
                self.pieces = None;
                Some(ended.unwrap_or_else(|_| Ok(String::new())).map(|_| false))
            }
        }
    }
}

impl Source {
    fn new(script: Script, pieces: Option<Receiver<io::Result<String>>>) -> Self {
        let lines = Mutex::new(Lines { script, pieces, copies: 0 });
        Self(Arc::new(Shared { lines, arrived: Notify::new(), changed: Condvar::new() }))
    }

    /// A script whose text is complete.
    pub fn text(script: impl Into<String>) -> Self {
        Self::new(Script::new(script), None)
    }

    /// A script whose lines come from a stream.
    ///
    /// # Errors
    /// When no thread can be started to read it.
    pub fn stream(stream: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let source = Self::new(Script::default(), Some(pieces));
        // Weak: a source that is dropped ends the channel, and so the thread.
        let shared = Arc::downgrade(&source.0);
        std::thread::Builder::new().name("serac-script".into()).spawn(move || {
            let wake = || _ = shared.upgrade().as_deref().map(Shared::wake);
            send_lines(stream, sender, wake);
            // The sender is gone: the woken waiters see the end.
            wake();
        })?;
        Ok(source)
    }

    /// Adds a line that a user has typed.
    pub fn push(&self, line: &str) {
        self.0.lines.lock().script.push(line);
    }

    /// Forgets the parts that have not run yet.
    pub fn clear(&self) {
        self.0.lines.lock().script = Script::default();
    }

    /// Puts the beginning of a statement before all that is left.
    pub fn put_back(&self, statement: &str) {
        self.0.lines.lock().script.put_back(statement);
    }

    /// An incomplete statement, and the token in whose middle it is.
    pub fn incomplete(&self) -> Option<(String, Within)> {
        let script = &mut self.0.lines.lock().script;
        let within = script.within();
        script.incomplete().map(|text| (text.to_owned(), within))
    }

    /// The next complete part of the lines so far.
    pub fn next_complete(&self) -> Option<Part> {
        self.0.lines.lock().script.next_complete()
    }

    /// Waits until `look` finds a match in the lines so far; `None` at the end of the input.
    async fn until<T>(&self, mut look: impl FnMut(&mut Script) -> Option<T>) -> io::Result<Option<T>> {
        let mut interrupts = Interrupts::listen();
        loop {
            {
                // Once more after each wake-up: the thread of a COPY may have taken the piece.
                let mut lines = self.0.lines.lock();
                loop {
                    if let Some(found) = look(&mut lines.script) {
                        return Ok(Some(found));
                    }
                    match lines.take().transpose()? {
                        Some(true) => {}
                        Some(false) => return Ok(None),
                        None => break,
                    }
                }
            }
            tokio::select! {
                () = self.0.arrived.notified() => {}
                () = interrupts.next() => return Err(io::Error::other("interrupted")),
            }
        }
    }

    /// The next part. The last statement need not end in a semicolon.
    pub async fn next(&self) -> io::Result<Option<Part>> {
        match self.until(Script::next_complete).await? {
            None => Ok(self.0.lines.lock().script.last()),
            part => Ok(part),
        }
    }

    /// The data behind the last statement, up to a line `\.`.
    pub fn data(&self) -> impl Read + Send + 'static {
        let mut lines = self.0.lines.lock();
        lines.script.begin_data();
        lines.copies += 1;
        Data { source: self.clone(), copy: lines.copies, piece: io::Cursor::default() }
    }

    /// Drops unread data.
    pub async fn skip_data(&self) -> io::Result<()> {
        let dropped = |script: &mut Script| {
            script.data();
            (!script.is_in_data()).then_some(())
        };
        self.until(dropped).await?;
        self.0.changed.notify_all();
        Ok(())
    }
}

/// The data of a COPY.
struct Data {
    source: Source,
    /// The number of its COPY among the source's.
    copy: u64,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Data {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let shared = &self.source.0;
            let mut lines = shared.lines.lock();
            let piece = loop {
                // Lines behind the end of this COPY's data belong to others.
                if lines.copies != self.copy {
                    return Ok(0);
                }
                let piece = lines.script.data().as_bytes().to_vec();
                if !piece.is_empty() {
                    break piece;
                }
                if !lines.script.is_in_data() {
                    return Ok(0);
                }
                match lines.take().transpose()? {
                    Some(true) => {}
                    Some(false) => return Ok(0),
                    None => shared.changed.wait(&mut lines),
                }
            };
            self.piece = io::Cursor::new(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_the_last_one_as_it_is() {
        /// Gives a few bytes at a time.
        struct Drops(&'static [u8]);
        impl Read for Drops {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(3);
                out[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let pieces = |bytes: &'static [u8]| {
            let (sender, pieces) = sync_channel(100);
            send_lines(Drops(bytes), sender, || {});
            pieces.into_iter().map(|piece| piece.map_err(|error| error.kind())).collect::<Vec<_>>()
        };
        let text = "ü; long line\nshort\n\nlast";
        let given: Vec<_> = pieces(text.as_bytes()).into_iter().map(Result::unwrap).collect();
        assert_eq!(given.concat(), text);
        let (last, whole) = given.split_last().unwrap();
        assert!(last == "last" && whole.iter().all(|piece| piece.ends_with('\n')), "{given:?}");
        assert_eq!(pieces(b"a\n\xff\nb\n").last(), Some(&Err(io::ErrorKind::InvalidData)));
    }

    /// The thread of a COPY that has failed may take the piece in which the data ends.
    #[tokio::test]
    async fn the_end_of_data_is_seen_whoever_takes_it() {
        for _ in 0..50 {
            let (reader, mut writer) = io::pipe().unwrap();
            let source = Source::stream(reader).unwrap();
            io::Write::write_all(&mut writer, b"COPY t FROM STDIN;\n").unwrap();
            source.next().await.unwrap();
            let mut data = source.data();
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                data.read_to_string(&mut text).map(|_| text)
            });
            let skips = {
                let source = source.clone();
                tokio::spawn(async move { source.skip_data().await })
            };
            tokio::task::yield_now().await;
            io::Write::write_all(&mut writer, b"1\n\\.\n").unwrap();
            // The pipe stays open: nothing else comes.
            skips.await.unwrap().unwrap();
            let text = reader.join().unwrap().unwrap();
            assert!(text.is_empty() || text == "1\n", "{text}");
        }
    }

    /// The thread of a failed COPY may ask for data when the next one has begun.
    #[tokio::test]
    async fn data_is_for_its_own_copy_only() {
        let script = "COPY t FROM STDIN;\n1\n\\.\nCOPY t FROM STDIN;\n2\n\\.\nSELECT 3;\n";
        let source = Source::text(script);
        let read = |mut data: Box<dyn Read>| {
            let mut text = String::new();
            data.read_to_string(&mut text).unwrap();
            text
        };
        source.next().await.unwrap();
        let failed = source.data();
        source.skip_data().await.unwrap();
        source.next().await.unwrap();
        let next = source.data();
        assert_eq!(read(Box::new(failed)), "");
        assert_eq!(read(Box::new(next)), "2\n");
        assert_eq!(source.next().await.unwrap(), Some(Part::Statement("SELECT 3".into())));
    }

    #[tokio::test]
    async fn data_is_read_as_it_comes_and_what_is_left_of_it_is_skipped() {
        let (reader, mut writer) = io::pipe().unwrap();
        let source = Source::stream(reader).unwrap();
        io::Write::write_all(&mut writer, b"COPY t FROM STDIN;\n1\n").unwrap();
        assert_eq!(source.next().await.unwrap(), Some(Part::Statement("COPY t FROM STDIN".into())));
        let mut data = source.data();
        let mut bytes = [0; 2];
        data.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"1\n");
        io::Write::write_all(&mut writer, b"2\n\\.\nSELECT 1").unwrap();
        let mut rest = String::new();
        data.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "2\n");
        io::Write::write_all(&mut writer, b";\nCOPY t FROM STDIN;\n1\n\\.\nSELECT 2").unwrap();
        drop(writer);
        assert_eq!(source.next().await.unwrap(), Some(Part::Statement("SELECT 1".into())));
        source.next().await.unwrap();
        let _unread = source.data();
        source.skip_data().await.unwrap();
        assert_eq!(source.next().await.unwrap(), Some(Part::Statement("SELECT 2".into())));
        assert_eq!(source.next().await.unwrap(), None);
    }
}
