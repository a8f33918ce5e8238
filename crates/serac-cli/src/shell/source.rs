//! Where the lines of a script come from: a text, or a pipe whose lines run as they come.
//!
//! ```text
//! standard input ──thread──▶ channel of whole lines ──▶ Script ──▶ statements, and data of COPY
//! ```
//! The thread may wait for input for as long as the process lives, which ends without it.

use crate::script::{Part, Script, Within};
use parking_lot::Mutex;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are read ahead of what runs.
const PIECES_AHEAD: usize = 16;
/// How long a COPY waits for data before it looks whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(50);

/// Lines that come through a pipe.
struct Pipe {
    pieces: Receiver<io::Result<String>>,
    /// Notified after each piece and at the end.
    arrived: Arc<Notify>,
}

struct Lines {
    script: Script,
    /// None if all lines are there.
    pipe: Option<Pipe>,
}

/// A script and where its lines come from. The data of a COPY is read from it on another thread.
#[derive(Clone)]
pub struct Source(Arc<Mutex<Lines>>);

/// Sends the lines of a stream, as many together as there are.
fn send_lines(mut stream: impl Read, pieces: SyncSender<io::Result<String>>, arrived: &Notify) {
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
        arrived.notify_one();
    }
}

impl Lines {
    /// Takes lines that have come. None if there are none yet; false if there will be none.
    fn take(&mut self, wait: Duration) -> Option<io::Result<bool>> {
        let Some(pipe) = &self.pipe else { return Some(Ok(false)) };
        let piece = if wait.is_zero() {
            pipe.pieces.try_recv().map_err(|error| error == TryRecvError::Disconnected)
        } else {
            pipe.pieces.recv_timeout(wait).map_err(|error| error == RecvTimeoutError::Disconnected)
        };
        match piece {
            Ok(Ok(lines)) => {
                self.script.push(&lines);
                Some(Ok(true))
            }
            Ok(Err(error)) => {
                self.pipe = None;
                Some(Err(error))
            }
            Err(false) => None,
            Err(true) => {
                self.pipe = None;
                Some(Ok(false))
            }
        }
    }
}

impl Source {
    /// A script that is all there.
    pub fn text(script: impl Into<String>) -> Self {
        Self(Arc::new(Mutex::new(Lines { script: Script::new(script), pipe: None })))
    }
    /// A script whose lines come from a stream.
    ///
    /// # Errors
    /// When there is no thread to read it.
    pub fn stream(stream: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let arrived = Arc::<Notify>::default();
        let pipe = Pipe { pieces, arrived: arrived.clone() };
        std::thread::Builder::new().name("serac-script".into()).spawn(move || {
            send_lines(stream, sender, &arrived);
            // The sender is gone: whoever is woken sees the end.
            arrived.notify_one();
        })?;
        Ok(Self(Arc::new(Mutex::new(Lines { script: Script::default(), pipe: Some(pipe) }))))
    }

    /// Adds a line that a user has typed.
    pub fn push(&self, line: &str) {
        self.0.lock().script.push(line);
    }
    /// Forgets what has not run yet.
    pub fn clear(&self) {
        self.0.lock().script = Script::default();
    }
    /// Puts the beginning of a statement before all that is left.
    pub fn put_back(&self, statement: &str) {
        self.0.lock().script.put_back(statement);
    }
    /// What has begun, and of which token it is in the middle.
    pub fn incomplete(&self) -> Option<(String, Within)> {
        let script = &mut self.0.lock().script;
        let within = script.within();
        script.incomplete().map(|text| (text.to_owned(), within))
    }
    /// The next complete part of what has come.
    pub fn next_complete(&self) -> Option<Part> {
        self.0.lock().script.next_complete()
    }
    /// Waits for more lines; false if there are none.
    async fn more(&self) -> io::Result<bool> {
        loop {
            let arrived = {
                let mut lines = self.0.lock();
                match lines.take(Duration::ZERO) {
                    Some(result) => return result,
                    None => lines.pipe.as_ref().expect("more may come").arrived.clone(),
                }
            };
            tokio::select! {
                () = arrived.notified() => {}
                _ = tokio::signal::ctrl_c() => return Err(io::Error::other("interrupted")),
            }
        }
    }
    /// The next part. The last statement may do without a semicolon.
    pub async fn next(&self) -> io::Result<Option<Part>> {
        loop {
            if let Some(part) = self.next_complete() {
                return Ok(Some(part));
            }
            if !self.more().await? {
                return Ok(self.0.lock().script.last());
            }
        }
    }

    /// The data behind the last statement, up to a line `\.`.
    pub fn data(&self) -> impl Read + Send + 'static {
        self.0.lock().script.begin_data();
        Data { source: self.clone(), piece: io::Cursor::default() }
    }
    /// Drops the data that nobody has read.
    pub async fn skip_data(&self) -> io::Result<()> {
        loop {
            {
                let script = &mut self.0.lock().script;
                script.data();
                if !script.is_in_data() {
                    return Ok(());
                }
            }
            if !self.more().await? {
                return Ok(());
            }
        }
    }
}

/// The data of a COPY.
struct Data {
    source: Source,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Data {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let mut lines = self.source.0.lock();
            let piece = lines.script.data().as_bytes().to_vec();
            if piece.is_empty() && (!lines.script.is_in_data() || lines.take(PATIENCE).transpose()? == Some(false)) {
                return Ok(0);
            }
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
            send_lines(Drops(bytes), sender, &Notify::new());
            pieces.into_iter().map(|piece| piece.map_err(|error| error.kind())).collect::<Vec<_>>()
        };
        let text = "ü; long line\nshort\n\nlast";
        let given: Vec<_> = pieces(text.as_bytes()).into_iter().map(Result::unwrap).collect();
        assert_eq!(given.concat(), text);
        let (last, whole) = given.split_last().unwrap();
        assert!(last == "last" && whole.iter().all(|piece| piece.ends_with('\n')), "{given:?}");
        assert_eq!(pieces(b"a\n\xff\nb\n").last(), Some(&Err(io::ErrorKind::InvalidData)));
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
