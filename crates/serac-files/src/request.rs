//! What a query asks for: files, their format, and options.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use serac_engine::catalog::definition::SqlType;
use serac_values::{Result, SqlError};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file of texts that are looked at to find out its columns.
pub(crate) const SAMPLE_BYTES: usize = 1 << 20;
/// Rows of a file of texts that are looked at, unless the query says another number.
const SAMPLE_ROWS: usize = 4_096;

/// Columns that a relation of files may have, as a table may.
pub(crate) const MOST_COLUMNS: usize = 1_600;

/// The error of files that have more.
pub(crate) fn too_many_columns() -> SqlError {
    let message = format!("the files have more than {MOST_COLUMNS} columns");
    SqlError::new(sqlstate::TOO_MANY_COLUMNS, message)
}

/// Values of any Arrow type as those of a column of a type and a name.
pub type Assign = Arc<dyn Fn(&ArrayRef, SqlType, &str) -> Result<ArrayRef> + Send + Sync>;

/// A format of files that queries read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// CSV.
    Csv,
    /// JSON.
    Json,
    /// Parquet.
    Parquet,
    /// Arrow IPC: a file, which is Feather of version 2, or a stream.
    Arrow,
}

impl FileFormat {
    /// The format that a function reads; `None` for another function.
    pub fn of_function(name: &str) -> Option<Self> {
        match name {
            "read_csv" => Some(Self::Csv),
            "read_json" => Some(Self::Json),
            "read_parquet" => Some(Self::Parquet),
            "read_arrow" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// The format that a file's name tells.
    ///
    /// # Errors
    /// 22023 if it tells none, 0A000 for a compressed file.
    pub fn of_path(path: &str) -> Result<Self> {
        let extension = Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_lowercase().as_str() {
            "csv" | "tsv" | "tbl" => Ok(Self::Csv),
            "json" | "jsonl" | "ndjson" => Ok(Self::Json),
            "parquet" | "parq" => Ok(Self::Parquet),
            "arrow" | "arrows" | "ipc" | "feather" => Ok(Self::Arrow),
            "gz" | "zst" | "bz2" | "xz" | "lz4" => {
                Err(SqlError::unsupported(format!("the compressed file \"{path}\"")))
            }
            _ => {
                let message = format!("the format of file \"{path}\" is not known by its name");
                Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message).explained(
                    "The functions read_csv, read_json, read_parquet and read_arrow read files of any name.",
                ))
            }
        }
    }

    /// The function that reads it.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Csv => "read_csv",
            Self::Json => "read_json",
            Self::Parquet => "read_parquet",
            Self::Arrow => "read_arrow",
        }
    }

    /// The named arguments that its function takes.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Csv => &[
                "columns",
                "delim",
                "escape",
                "filename",
                "header",
                "nullstr",
                "quote",
                "sample_size",
                "types",
                "union_by_name",
            ],
            Self::Json => &["columns", "filename", "sample_size", "types"],
            Self::Parquet | Self::Arrow => &["filename", "union_by_name"],
        }
    }
}

/// The columns that a query names, with their types if it says these.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Given {
    /// Their names; empty if the files say them.
    pub names: Vec<String>,
    /// Their types; empty if the files say them, and as many as names otherwise.
    pub types: Vec<SqlType>,
}

/// What a query asks for.
pub struct FileRequest {
    /// The format; `None` if the names of the files tell it.
    pub(crate) format: Option<FileFormat>,
    /// Names and patterns.
    pub(crate) paths: Vec<String>,
    pub(crate) given: Given,
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<u8>,
    /// The quote; 0 for none.
    pub(crate) quote: Option<u8>,
    pub(crate) escape: Option<u8>,
    pub(crate) null: Option<String>,
    pub(crate) sample_rows: usize,
    pub(crate) union_by_name: bool,
    /// Whether a column tells the file of each row.
    pub(crate) filename: bool,
    pub(crate) assign: Assign,
}

impl fmt::Debug for FileRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRequest").field("format", &self.format).field("paths", &self.paths).finish_non_exhaustive()
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// The texts of a text, or of an array of them.
fn texts(name: &str, value: &ScalarValue) -> Result<Vec<String>> {
    let wrong = || invalid(format!("\"{name}\" must be a text or an array of texts, without NULLs"));
    let array = value.to_array()?;
    let array = match array.data_type() {
        DataType::List(_) if array.is_valid(0) => array.as_list::<i32>().value(0),
        _ => array,
    };
    if !matches!(array.data_type(), DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) {
        return Err(wrong());
    }
    let array = cast(&array, &DataType::Utf8View)?;
    array.as_string_view().iter().map(|text| text.map(str::to_owned).ok_or_else(wrong)).collect()
}

fn text(name: &str, value: &ScalarValue) -> Result<String> {
    match value.try_as_str() {
        Some(Some(text)) => Ok(text.to_owned()),
        _ => Err(invalid(format!("\"{name}\" must be a text"))),
    }
}

fn switch(name: &str, value: &ScalarValue) -> Result<bool> {
    match value {
        ScalarValue::Boolean(Some(switch)) => Ok(*switch),
        _ => Err(invalid(format!("\"{name}\" must be true or false"))),
    }
}

fn byte(name: &str, value: &ScalarValue) -> Result<u8> {
    match text(name, value)?.as_bytes() {
        [byte] if byte.is_ascii() && !b"\r\n\0".contains(byte) => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err(invalid(format!("\"{name}\" must be a single one-byte character"))),
    }
}

impl FileRequest {
    /// A request for files of a format, or of the formats that their names tell.
    ///
    /// # Errors
    /// 22023 for paths that are no text and no array of texts.
    pub fn new(format: Option<FileFormat>, paths: &ScalarValue, given: Given, assign: Assign) -> Result<Self> {
        let paths = texts("the files", paths)?;
        if paths.is_empty() {
            return Err(invalid("the array of files is empty".into()));
        }
        Ok(Self {
            format,
            paths,
            given,
            header: None,
            delimiter: None,
            quote: None,
            escape: None,
            null: None,
            sample_rows: SAMPLE_ROWS,
            union_by_name: false,
            filename: false,
            assign,
        })
    }

    /// Sets a named argument. `types_of` gives the types that texts name.
    ///
    /// # Errors
    /// 42883 for an argument that the function does not have, 22023 for a wrong value.
    pub fn set(&mut self, name: &str, value: &ScalarValue, type_of: impl Fn(&str) -> Result<SqlType>) -> Result<()> {
        let known = self.format.map_or(&[][..], FileFormat::options);
        if !known.contains(&name) {
            let function = self.format.map_or("", FileFormat::function);
            let message = format!("function {function} has no argument \"{name}\"");
            let detail = format!("Its named arguments are {}.", known.join(", "));
            return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).explained(detail));
        }
        match name {
            "columns" => self.given.names = texts(name, value)?,
            "types" => {
                self.given.types = texts(name, value)?.iter().map(|name| type_of(name)).collect::<Result<_>>()?;
            }
            "delim" => self.delimiter = Some(byte(name, value)?),
            "quote" if text(name, value)?.is_empty() => self.quote = Some(0),
            "quote" => self.quote = Some(byte(name, value)?),
            "escape" => self.escape = Some(byte(name, value)?),
            "nullstr" => self.null = Some(text(name, value)?),
            "header" => self.header = Some(switch(name, value)?),
            "filename" => self.filename = switch(name, value)?,
            "union_by_name" => self.union_by_name = switch(name, value)?,
            "sample_size" => {
                let rows = value.cast_to(&DataType::Int64).ok();
                let rows = match rows {
                    Some(ScalarValue::Int64(Some(rows))) => usize::try_from(rows).ok().filter(|rows| *rows > 0),
                    _ => None,
                };
                self.sample_rows = rows.ok_or_else(|| invalid("\"sample_size\" must be a positive number".into()))?;
            }
            _ => return Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("nothing takes the argument \"{name}\""))),
        }
        Ok(())
    }

    /// Checks what arguments say together.
    ///
    /// # Errors
    /// 22023.
    pub(crate) fn check(&self) -> Result<()> {
        let Given { names, types } = &self.given;
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SqlError::column_twice(twice[0]));
        }
        if !names.is_empty() && !types.is_empty() && names.len() != types.len() {
            return Err(invalid(format!("there are {} columns and {} types", names.len(), types.len())));
        }
        if self.format == Some(FileFormat::Json) && names.is_empty() && !types.is_empty() {
            return Err(invalid("\"types\" of JSON needs \"columns\"".into()));
        }
        let delimiter = self.delimiter;
        if delimiter.is_some() && (delimiter == self.quote || delimiter == self.escape) {
            return Err(invalid("the delimiter and the quote must be different".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(format: FileFormat) -> FileRequest {
        let assign: Assign = Arc::new(serac_values::assignment::assign);
        FileRequest::new(Some(format), &ScalarValue::from("a"), Given::default(), assign).unwrap()
    }

    #[test]
    fn arguments_are_taken_or_refused() {
        let no_type = |_: &str| Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, "no type"));
        let mut csv = request(FileFormat::Csv);
        csv.set("delim", &ScalarValue::from("\\t"), no_type).unwrap();
        csv.set("header", &ScalarValue::from(true), no_type).unwrap();
        csv.set("quote", &ScalarValue::from(""), no_type).unwrap();
        assert_eq!((csv.delimiter, csv.header, csv.quote), (Some(b'\t'), Some(true), Some(0)));
        for (name, value, wanted) in [
            ("delim", ScalarValue::from("ab"), sqlstate::INVALID_PARAMETER_VALUE),
            ("delim", ScalarValue::from("\n"), sqlstate::INVALID_PARAMETER_VALUE),
            ("header", ScalarValue::from("x"), sqlstate::INVALID_PARAMETER_VALUE),
            ("sample_size", ScalarValue::from(0i64), sqlstate::INVALID_PARAMETER_VALUE),
            ("columns", ScalarValue::Utf8(None), sqlstate::INVALID_PARAMETER_VALUE),
            ("types", ScalarValue::from("odd"), sqlstate::UNDEFINED_OBJECT),
            ("colour", ScalarValue::from("red"), sqlstate::UNDEFINED_FUNCTION),
        ] {
            assert_eq!(csv.set(name, &value, no_type).unwrap_err().sqlstate, wanted, "{name}");
        }
        let header = request(FileFormat::Parquet).set("header", &ScalarValue::from(true), no_type);
        assert_eq!(header.unwrap_err().sqlstate, sqlstate::UNDEFINED_FUNCTION);
        // Each argument that a function lists has a branch.
        for format in [FileFormat::Csv, FileFormat::Json, FileFormat::Parquet, FileFormat::Arrow] {
            for name in format.options() {
                let error = request(format).set(name, &ScalarValue::Int64(None), no_type).unwrap_err();
                assert_eq!(error.sqlstate, sqlstate::INVALID_PARAMETER_VALUE, "{name}");
            }
        }
    }

    #[test]
    fn names_tell_formats() {
        assert_eq!(FileFormat::of_path("a/b.NDJSON").unwrap(), FileFormat::Json);
        assert_eq!(FileFormat::of_path("*.parquet").unwrap(), FileFormat::Parquet);
        assert_eq!(FileFormat::of_path("a.csv.gz").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
        assert_eq!(FileFormat::of_path("a").unwrap_err().sqlstate, sqlstate::INVALID_PARAMETER_VALUE);
    }
}
