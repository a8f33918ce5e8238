//! An input as a recipe: numbers and pieces, one after the other.

/// The rest of an input. Numbers behind its end are zero, so every input is a whole recipe.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The unread rest.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// A number of two bytes, the lower one first.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// A number of eight bytes, the lowest one first.
    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// The next `count` bytes, or all that are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A piece with its length in one byte before it.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = self.byte();
        self.bytes(length.into())
    }

    /// A piece with its length in two bytes before it.
    pub fn long_piece(&mut self) -> &'a [u8] {
        let length = self.short();
        self.bytes(length.into())
    }
}

/// Writes a piece that [`Input::long_piece`] reads.
///
/// # Panics
/// When it is longer than 65,535 bytes.
pub fn put_long_piece(out: &mut Vec<u8>, piece: &[u8]) {
    out.extend_from_slice(&u16::try_from(piece.len()).expect("a short piece").to_le_bytes());
    out.extend_from_slice(piece);
}
