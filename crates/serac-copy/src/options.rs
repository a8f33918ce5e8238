//! How files and streams of COPY are written.

use datafusion::arrow::datatypes::Schema;
use serac_engine::Table;
use serac_values::{Result, SqlError, TimeStyle};
use std::path::Path;
use std::sync::Arc;

/// A format of COPY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// CSV.
    Csv,
    /// PostgreSQL's text format.
    Text,
    /// PostgreSQL's binary format.
    Binary,
    /// Parquet.
    Parquet,
    /// Arrow IPC.
    Arrow,
    /// JSON: documents one after another, or in an array. COPY does not have it.
    Json,
}

impl Format {
    /// The format of a name, which is one of FORMAT or a file's extension.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "csv" | "tsv" | "txt" | "tbl" => Some(Self::Csv),
            "text" => Some(Self::Text),
            "binary" => Some(Self::Binary),
            "parquet" => Some(Self::Parquet),
            "arrow" | "ipc" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// The rule by which fields with the text of NULL are NULL, for a column of CSV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nulls {
    /// Whether quoted fields are: FORCE_NULL.
    pub quoted: bool,
    /// Whether unquoted fields are; false with FORCE_NOT_NULL.
    pub bare: bool,
}

impl Default for Nulls {
    fn default() -> Self {
        Self { quoted: false, bare: true }
    }
}

/// Finds the bytes of CSV that stand within quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quotes {
    quote: u8,
    escape: u8,
    is_within: bool,
    /// Whether the last byte was an escape within quotes, which takes the next quote's meaning
    /// away.
    is_escaped: bool,
}

impl Quotes {
    /// At the beginning of data.
    pub fn new(quote: u8, escape: u8) -> Self {
        Self { quote, escape, is_within: false, is_escaped: false }
    }

    /// Goes past a byte; returns whether the next one stands within quotes.
    pub fn pass(&mut self, byte: u8) -> bool {
        let is_escape = byte == self.escape && self.escape != self.quote && self.is_within;
        if byte == self.quote && !self.is_escaped {
            self.is_within = !self.is_within;
        }
        self.is_escaped = is_escape && !self.is_escaped;
        self.is_within
    }
}

/// The columns whose values COPY TO puts into quotes, wherever they are not NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceQuote {
    /// All.
    All,
    /// Those of these names.
    Columns(Vec<String>),
}

impl Default for ForceQuote {
    fn default() -> Self {
        Self::Columns(Vec::new())
    }
}

/// The form of the input, or the output, of a COPY.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// Whether the first line has names, and not values.
    pub header: bool,
    /// The byte between fields.
    pub delimiter: u8,
    /// The byte around quoted fields of CSV.
    pub quote: u8,
    /// The byte before a quote within quotes, and before itself.
    pub escape: u8,
    /// The text of NULL.
    pub null: String,
    /// Whether the table must have been created or truncated in the same transaction.
    pub freeze: bool,
    /// The columns of FORCE_NULL.
    pub force_null: Vec<String>,
    /// The columns of FORCE_NOT_NULL.
    pub force_not_null: Vec<String>,
    /// The columns of FORCE_QUOTE.
    pub force_quote: ForceQuote,
    /// By column of the input; columns that are missing here have the default.
    pub nulls: Vec<Nulls>,
    /// The columns' names: those that the header of CSV must have, if any are given, and the keys
    /// of JSON's members.
    pub names: Vec<String>,
    /// Whether a member of JSON with another key is an error. It is left out otherwise.
    pub only_names: bool,
    /// By column of the input, whether its values are left out: they are NULL. Columns that are
    /// missing here are read.
    pub skipped: Vec<bool>,
    /// The session's settings of times, by which texts are written; `None` for the defaults.
    pub style: Option<Arc<TimeStyle>>,
}

/// The part of a file's name behind the last point, in lower case.
fn extension(path: &str) -> String {
    Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or("").to_lowercase()
}

impl Options {
    /// The defaults for a file of this name in a format.
    pub fn new(path: &str, format: Format) -> Self {
        let is_text = format == Format::Text;
        Self {
            format,
            header: false,
            delimiter: if is_text || extension(path) == "tsv" { b'\t' } else { b',' },
            quote: b'"',
            escape: b'"',
            null: if is_text { "\\N".into() } else { String::new() },
            freeze: false,
            force_null: Vec::new(),
            force_not_null: Vec::new(),
            force_quote: ForceQuote::default(),
            nulls: Vec::new(),
            names: Vec::new(),
            only_names: false,
            skipped: Vec::new(),
            style: None,
        }
    }

    /// The quotes of CSV; `None` in another format.
    pub fn quotes(&self) -> Option<Quotes> {
        (self.format == Format::Csv).then(|| Quotes::new(self.quote, self.escape))
    }

    /// The defaults for a file of this name, in the format of its extension, or else in
    /// `otherwise`.
    pub fn of_file(path: &str, otherwise: Format) -> Self {
        Self::new(path, Format::of_name(&extension(path)).unwrap_or(otherwise))
    }

    /// The options that force NULLs, and their columns.
    fn forced(&self) -> [(&'static str, &'static str, &[String]); 2] {
        [("FORCE_NULL", "force null", &self.force_null), ("FORCE_NOT_NULL", "force not null", &self.force_not_null)]
    }

    /// Checks that quotes are forced in CSV alone.
    fn check_force_quote(&self) -> Result<()> {
        match self.force_quote == ForceQuote::default() || self.format == Format::Csv {
            true => Ok(()),
            false => Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "COPY force quote available only in CSV mode")),
        }
    }

    /// Whether the values of each column of the output are in quotes.
    ///
    /// # Errors
    /// 42703 and 42701 for columns that are not there, or are named twice.
    pub(super) fn quoted_columns(&self, schema: &Schema) -> Result<Vec<bool>> {
        let ForceQuote::Columns(names) = &self.force_quote else { return Ok(vec![true; schema.fields().len()]) };
        let mut quoted = vec![false; schema.fields().len()];
        for name in names {
            let missing = || {
                let message = format!("column \"{name}\" does not exist");
                SqlError::new(sqlstate::UNDEFINED_COLUMN, message).named(name)
            };
            let at = schema.fields().iter().position(|field| field.name() == name).ok_or_else(missing)?;
            if std::mem::replace(&mut quoted[at], true) {
                return Err(SqlError::column_twice(name));
            }
        }
        Ok(quoted)
    }

    /// Checks options for COPY TO, which forces no NULLs.
    ///
    /// # Errors
    /// 0A000.
    pub fn check_output(&self) -> Result<()> {
        self.check_force_quote()?;
        match self.forced().into_iter().find(|(.., names)| !names.is_empty()) {
            Some((_, option, _)) => Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("COPY {option} only available using COPY FROM"),
            )),
            None => Ok(()),
        }
    }

    /// The options of a COPY FROM into some columns of a table.
    ///
    /// # Errors
    /// 0A000, 42703, 42701 and 42P10 for columns that force NULLs and cannot.
    pub fn for_columns(mut self, table: &Table, columns: &[&str]) -> Result<Self> {
        self.check_force_quote()?;
        if self.force_quote != ForceQuote::default() {
            let message = "COPY force quote only available using COPY TO";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        for (option, shown, names) in self.forced() {
            if !names.is_empty() && self.format != Format::Csv {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    format!("COPY {shown} available only in CSV mode"),
                ));
            }
            for (at, name) in names.iter().enumerate() {
                if table.definition.column(name).is_none() {
                    return Err(SqlError::no_column(name, table.name()));
                }
                if names[..at].contains(name) {
                    return Err(SqlError::column_twice(name));
                }
            }
            if let Some(name) = names.iter().find(|name| !columns.contains(&name.as_str())) {
                return Err(SqlError::new(
                    sqlstate::INVALID_COLUMN_REFERENCE,
                    format!("{option} column \"{name}\" not referenced by COPY"),
                ));
            }
        }
        let nulls = |name: &&str| Nulls {
            quoted: self.force_null.iter().any(|forced| forced == name),
            bare: !self.force_not_null.iter().any(|forced| forced == name),
        };
        self.nulls = columns.iter().map(nulls).collect();
        Ok(self)
    }

    /// The options of CSV, for tests.
    #[cfg(test)]
    pub(super) fn csv(header: bool, delimiter: u8, null: &str) -> Self {
        Self { header, delimiter, null: null.to_owned(), ..Self::new("", Format::Csv) }
    }
}
