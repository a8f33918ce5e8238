//! The mark at which clients of PostgreSQL up to version 17 end COPY's data.

use crate::arrival::CopyInput;
use crate::options::Quotes;
use std::io::{BufRead, BufReader, Read};

/// Input that ends before a line `\.` outside of quotes. Clients of PostgreSQL up to version 17
/// mark the end of the data so.
pub(super) struct UntilMark<R> {
    inner: BufReader<R>,
    quotes: Quotes,
    /// What of the mark the present line begins with: at most `\.` and a carriage return.
    begun: Vec<u8>,
    /// Bytes of `begun` that turned out not to be the mark and are still to be given.
    given: usize,
    /// Whether the present line may still be the mark.
    may_be_mark: bool,
    ended: bool,
}

impl<R: Read> UntilMark<R> {
    pub(super) fn new(inner: R, quotes: Quotes) -> Self {
        let inner = BufReader::with_capacity(1 << 16, inner);
        Self { inner, quotes, begun: Vec::new(), given: 0, may_be_mark: true, ended: false }
    }

    /// Gives what has been kept back.
    fn give_begun(&mut self, buffer: &mut [u8]) -> usize {
        let count = (self.begun.len() - self.given).min(buffer.len());
        buffer[..count].copy_from_slice(&self.begun[self.given..self.given + count]);
        self.given += count;
        if self.given == self.begun.len() {
            self.begun.clear();
            self.given = 0;
        }
        count
    }
}

impl<R: Read> Read for UntilMark<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if !self.may_be_mark && !self.begun.is_empty() {
                return Ok(self.give_begun(buffer));
            }
            if self.ended || buffer.is_empty() {
                return Ok(0);
            }
            let available = self.inner.fill_buf()?;
            if available.is_empty() {
                self.ended = true;
                // A last line that is the mark and has no end.
                if self.begun.starts_with(b"\\.") {
                    self.begun.clear();
                }
                self.may_be_mark = false;
                continue;
            }
            if self.may_be_mark {
                let byte = available[0];
                match (&self.begun[..], byte) {
                    (b"\\." | b"\\.\r", b'\n') => {
                        self.begun.clear();
                        self.ended = true;
                        return Ok(0);
                    }
                    (b"", b'\\') | (b"\\", b'.') | (b"\\.", b'\r') => {
                        self.begun.push(byte);
                        self.inner.consume(1);
                    }
                    _ => self.may_be_mark = false,
                }
                continue;
            }
            // Up to a line that may be the mark.
            let mut count = 0;
            for &byte in available.iter().take(buffer.len()) {
                buffer[count] = byte;
                count += 1;
                let is_within = self.quotes.pass(byte);
                if byte == b'\n' && !is_within && available.get(count).is_none_or(|next| *next == b'\\') {
                    self.may_be_mark = true;
                    break;
                }
            }
            self.inner.consume(count);
            return Ok(count);
        }
    }
}

impl<R: CopyInput> CopyInput for UntilMark<R> {
    fn comes_soon(&mut self) -> bool {
        !self.inner.buffer().is_empty() || self.inner.get_mut().comes_soon()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::options::Options;

    /// Gives few bytes at a time.
    pub(in super::super) struct Pieces<'b>(pub &'b [u8], pub usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    impl CopyInput for Pieces<'_> {}

    #[test]
    fn data_ends_at_its_mark_outside_of_quotes() {
        for (text, wanted) in [
            ("a,b\n\\.\nSELECT", "a,b\n"),
            ("a\r\n\\.\r\n", "a\r\n"),
            ("\\.", ""),
            ("a\n\\.", "a\n"),
            ("\\.x\n\\\n\\..\n \\.\n", "\\.x\n\\\n\\..\n \\.\n"),
            ("\"\n\\.\n\",b\n\\.\nc", "\"\n\\.\n\",b\n"),
            ("a\n\\", "a\n\\"),
            ("", ""),
        ] {
            for size in 1..=text.len().max(1) {
                let mut read = String::new();
                let quotes = Options::csv(false, b',', "").quotes().unwrap();
                UntilMark::new(Pieces(text.as_bytes(), size), quotes).read_to_string(&mut read).unwrap();
                assert_eq!(read, wanted, "{text:?} in pieces of {size}");
            }
        }
    }
}
