//! Options of COPY.

use crate::error::{Result, SqlError};
use crate::session::fold;
use datafusion::sql::sqlparser::ast::CopyOption;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Csv,
    Parquet,
    Arrow,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) format: Format,
    pub(super) header: bool,
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) null: String,
}

impl Options {
    /// The options given, for a file of this name.
    pub(super) fn read(path: &str, given: &[CopyOption]) -> Result<Self> {
        let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("csv").to_lowercase();
        let format_of = |name: &str| match name {
            "csv" | "tsv" | "txt" | "tbl" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            "arrow" | "ipc" | "feather" => Ok(Format::Arrow),
            other => Err(SqlError::new("22023", format!("COPY format \"{other}\" not recognized"))),
        };
        let mut options = Self {
            format: format_of(&extension).unwrap_or(Format::Csv),
            header: false,
            delimiter: if extension == "tsv" { b'\t' } else { b',' },
            quote: b'"',
            null: String::new(),
        };
        let byte = |c: char| {
            u8::try_from(c)
                .map_err(|_| SqlError::new("22023", "COPY delimiter and quote must be single one-byte characters"))
        };
        for option in given {
            match option {
                CopyOption::Format(name) => options.format = format_of(&fold(name).to_lowercase())?,
                CopyOption::Header(header) => options.header = *header,
                CopyOption::Delimiter(c) => options.delimiter = byte(*c)?,
                CopyOption::Quote(c) => options.quote = byte(*c)?,
                CopyOption::Null(text) => options.null = text.clone(),
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        Ok(options)
    }
}
