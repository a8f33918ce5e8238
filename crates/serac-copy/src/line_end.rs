//! Ends of the lines that COPY FROM reads. PostgreSQL's rule: all lines end as the first one does.

/// The bytes that end each line of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LineEnd {
    /// No line has ended yet.
    #[default]
    Unknown,
    /// A newline.
    Newline,
    /// A carriage return.
    Return,
    /// A carriage return with a newline behind it.
    ReturnNewline,
}

impl LineEnd {
    /// Whether a carriage return and the newline behind it may end a line together.
    pub(super) fn may_be_pair(self) -> bool {
        matches!(self, Self::Unknown | Self::ReturnNewline)
    }

    /// Notes the end of a line; false if earlier lines end otherwise.
    #[must_use]
    pub(super) fn takes(&mut self, end: Self) -> bool {
        if *self == Self::Unknown {
            *self = end;
        }
        *self == end
    }

    /// The message about this end in an input whose lines end otherwise. `kind` is the format's
    /// word for the newline.
    pub(super) fn misplaced(self, kind: &str) -> String {
        let name = if self == Self::Newline { "newline" } else { "carriage return" };
        format!("{kind} {name} found in data")
    }
}
