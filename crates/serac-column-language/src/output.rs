//! Where statements print to.

/// Takes the text that a statement prints.
pub trait Output {
    /// Takes a part of the text.
    ///
    /// # Errors
    /// When nobody takes the text any more; the statement ends then.
    fn write(&mut self, text: &str) -> std::io::Result<()>;
}

impl Output for String {
    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.push_str(text);
        Ok(())
    }
}
