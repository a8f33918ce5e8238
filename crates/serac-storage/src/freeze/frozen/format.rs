//! The target format of a table's frozen blocks (§4.4, "alternative formats").

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The form of a block's variable-length columns once it is frozen. Columns of a fixed width are
/// plain Arrow arrays in every format but `compact`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreezeFormat {
    /// Arrow views (Utf8View, BinaryView): the form of a hot block, so that the least is copied.
    #[default]
    View,
    /// Arrow Utf8 and Binary with 32-bit offsets. A column with more than 2 GiB in a block keeps
    /// its views.
    Utf8,
    /// A sorted dictionary per block and 16-bit codes. A column whose dictionary would not pay (see
    /// [`crate::freeze::frozen`]) keeps its views.
    Dictionary,
    /// The fewest bytes: numbers, dates and times in as few bits as their range in the block needs,
    /// texts as a dictionary with codes of as few bits, or with offsets. Readers get decoded
    /// arrays.
    Compact,
    /// Blocks stay hot.
    Never,
}

impl FreezeFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::View, Self::Utf8, Self::Dictionary, Self::Compact, Self::Never];

    /// The name, as SQL has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Utf8 => "utf8",
            Self::Dictionary => "dictionary",
            Self::Compact => "compact",
            Self::Never => "never",
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL[number as usize]
    }
}

impl fmt::Display for FreezeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FreezeFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|format| name.eq_ignore_ascii_case(format.name()))
            .ok_or_else(|| format!("\"{name}\" is not one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}
