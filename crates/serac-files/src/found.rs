//! Files that a query reads, the columns that they have together, and where each column is in each
//! file.

use crate::csv::Dialect;
use crate::guess::keeps;
use crate::request::{Assign, FileFormat};
use crate::value_type::ValueType;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::parquet::file::metadata::ParquetMetaData;
use serac_copy::{Format, KnownFile, Options};
use serac_storage::ColumnType;
use serac_values::{Result, SqlError};
use std::fmt;
use std::sync::Arc;

/// Characters of a value in an error.
const SHOWN_CHARACTERS: usize = 64;
/// The name of the column that tells a row's file.
pub(crate) const FILE_NAME: &str = "filename";

/// A column of the relation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FileColumn {
    pub(crate) name: String,
    pub(crate) value_type: ValueType,
    /// Whether it tells the row's file.
    pub(crate) is_file_name: bool,
    /// Whether its type is a guess from samples: then other values may have another one.
    pub(crate) is_guessed: bool,
}

impl FileColumn {
    pub(crate) fn new(name: impl Into<String>, value_type: ValueType) -> Self {
        Self { name: name.into(), value_type, is_file_name: false, is_guessed: false }
    }

    /// Values that have come from a file as values of the column.
    ///
    /// # Errors
    /// The error of a value that is none.
    pub(crate) fn values(&self, came: &ArrayRef, assign: &Assign) -> Result<ArrayRef> {
        let values = self.value_type.values(came, &self.name, assign)?;
        self.check_guess(came)?;
        Ok(values)
    }

    /// That values have the type that was guessed from others, and not one of which the guess loses
    /// something: zeros before a number, the time behind a date.
    fn check_guess(&self, came: &ArrayRef) -> Result<()> {
        let ValueType::Plain(of) = &self.value_type else { return Ok(()) };
        let Some(texts) = came.as_string_view_opt().filter(|_| self.is_guessed) else { return Ok(()) };
        match texts.iter().flatten().find(|text| !keeps(of.column_type, text)) {
            None => Ok(()),
            Some(text) => {
                let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
                let message = format!("\"{shown}\" is no {of} as the values of the sample are");
                let detail = format!("column \"{}\"; the argument types, or a larger sample_size, helps", self.name);
                Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message).explained(detail).named(&self.name))
            }
        }
    }

    /// The column that tells a row's file.
    pub(crate) fn of_file_name() -> Self {
        Self { is_file_name: true, ..Self::new(FILE_NAME, ValueType::Plain(ColumnType::Utf8.into())) }
    }
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) known: KnownFile,
    /// By column of the relation, the column of the file that it is; `None` if the file does not
    /// have it. Empty for Parquet, whose columns are found by name.
    pub(crate) places: Arc<[Option<usize>]>,
    /// The number of the file's columns.
    pub(crate) width: usize,
    /// The names that its header must have, empty if any will do.
    pub(crate) header: Arc<[String]>,
    /// What stands at the end of a file of Parquet, unless there are so many files that it is read
    /// again.
    pub(crate) metadata: Option<Arc<ParquetMetaData>>,
    /// Rows, if they are known.
    pub(crate) rows: Option<usize>,
}

/// How the rows of files are written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Form {
    Csv {
        dialect: Dialect,
        has_header: bool,
    },
    /// Whether a key that is no column is an error.
    Json {
        only_names: bool,
    },
    /// The columns as Parquet's reader gives them.
    Parquet {
        schema: SchemaRef,
    },
    Arrow,
}

/// Files and their columns.
pub(crate) struct Found {
    pub(crate) form: Form,
    pub(crate) files: Vec<FoundFile>,
    pub(crate) columns: Vec<FileColumn>,
    /// The columns as a plan has them.
    pub(crate) schema: SchemaRef,
    pub(crate) assign: Assign,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("files", &self.files.len()).field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Found {
    pub(crate) fn new(form: Form, files: Vec<FoundFile>, columns: Vec<FileColumn>, assign: Assign) -> Self {
        let fields: Vec<_> = columns.iter().map(|column| column.value_type.field(&column.name)).collect();
        Self { form, files, columns, schema: Arc::new(Schema::new(fields)), assign }
    }

    pub(crate) fn format(&self) -> FileFormat {
        match self.form {
            Form::Csv { .. } => FileFormat::Csv,
            Form::Json { .. } => FileFormat::Json,
            Form::Parquet { .. } => FileFormat::Parquet,
            Form::Arrow => FileFormat::Arrow,
        }
    }

    /// How `serac-copy` reads a file of texts, or of Arrow's messages, for some columns.
    pub(crate) fn options(&self, file: &FoundFile, projection: &[usize]) -> Options {
        let mut wanted = vec![false; file.width];
        for at in projection.iter().filter_map(|column| file.places[*column]) {
            wanted[at] = true;
        }
        let skipped = wanted.into_iter().map(|is_wanted| !is_wanted).collect();
        match &self.form {
            Form::Csv { dialect, has_header } => {
                let names = file.header.to_vec();
                Options { header: *has_header, names, skipped, ..dialect.options() }
            }
            Form::Json { only_names } => {
                let own = self.columns.iter().filter(|column| !column.is_file_name);
                let names = own.map(|column| column.name.clone()).collect();
                Options { names, only_names: *only_names, skipped, ..Options::new("", Format::Json) }
            }
            Form::Parquet { .. } | Form::Arrow => Options::new("", Format::Arrow),
        }
    }

    /// The types of a file's columns, for its reader.
    pub(crate) fn types_in(&self, file: &FoundFile) -> Vec<ColumnType> {
        let mut types = vec![ColumnType::Utf8; file.width];
        for (column, place) in self.columns.iter().zip(&*file.places) {
            if let (ValueType::Plain(of), Some(at)) = (&column.value_type, place) {
                types[*at] = of.column_type;
            }
        }
        types
    }
}
