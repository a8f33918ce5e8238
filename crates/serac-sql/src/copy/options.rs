//! Options of COPY.

use crate::error::{Result, SqlError};
use crate::session::fold;
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, Ident};
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Csv,
    /// PostgreSQL's text format.
    Text,
    /// PostgreSQL's binary format.
    Binary,
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
    /// The options given, for a file of this name; `otherwise` is the format where neither says which.
    pub(super) fn read(path: &str, given: &[CopyOption], otherwise: Format) -> Result<Self> {
        let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("").to_lowercase();
        let format_of = |name: &str| match name {
            "csv" | "tsv" | "txt" | "tbl" => Ok(Format::Csv),
            "text" => Ok(Format::Text),
            "binary" => Ok(Format::Binary),
            "parquet" => Ok(Format::Parquet),
            "arrow" | "ipc" | "feather" => Ok(Format::Arrow),
            other => Err(SqlError::new("22023", format!("COPY format \"{other}\" not recognized"))),
        };
        let mut options = Self {
            format: format_of(&extension).unwrap_or(otherwise),
            header: false,
            delimiter: 0,
            quote: b'"',
            null: String::new(),
        };
        let (mut delimiter, mut null) = (None, None);
        let byte = |c: char| {
            u8::try_from(c)
                .map_err(|_| SqlError::new("22023", "COPY delimiter and quote must be single one-byte characters"))
        };
        for option in given {
            match option {
                CopyOption::Format(name) => options.format = format_of(&fold(name).to_lowercase())?,
                CopyOption::Header(header) => options.header = *header,
                CopyOption::Delimiter(c) => delimiter = Some(byte(*c)?),
                CopyOption::Quote(c) => options.quote = byte(*c)?,
                CopyOption::Null(text) => null = Some(text.clone()),
                // Rows are never visible to anybody before the commit, and then to all.
                CopyOption::Freeze(_) => {}
                CopyOption::Encoding(name) if name.to_lowercase().replace('-', "") == "utf8" => {}
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        let is_text = options.format == Format::Text;
        let usual = if is_text || extension == "tsv" { b'\t' } else { b',' };
        options.delimiter = delimiter.unwrap_or(usual);
        options.null = null.unwrap_or_else(|| if is_text { "\\N".into() } else { String::new() });
        if is_text && (options.delimiter.is_ascii_alphanumeric() || b"\\.\r\n".contains(&options.delimiter)) {
            return Err(SqlError::new(
                "22023",
                "COPY delimiter cannot be a letter, a digit, a point, a backslash or a line's end",
            ));
        }
        Ok(options)
    }
}

/// The options of a COPY, those of the syntax without parentheses included.
pub(crate) fn all_options(mut options: Vec<CopyOption>, legacy: &[CopyLegacyOption]) -> Result<Vec<CopyOption>> {
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => options.push(CopyOption::Format(Ident::new("binary"))),
            CopyLegacyOption::Delimiter(c) => options.push(CopyOption::Delimiter(*c)),
            CopyLegacyOption::Null(text) => options.push(CopyOption::Null(text.clone())),
            CopyLegacyOption::Csv(of_csv) => {
                options.push(CopyOption::Format(Ident::new("csv")));
                for option in of_csv {
                    options.push(match option {
                        CopyLegacyCsvOption::Header => CopyOption::Header(true),
                        CopyLegacyCsvOption::Quote(c) => CopyOption::Quote(*c),
                        other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
                    });
                }
            }
            other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
        }
    }
    Ok(options)
}
