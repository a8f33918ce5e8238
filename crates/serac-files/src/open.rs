//! From what a query asks for to files and columns.
//!
//! Files of Parquet and Arrow say their columns. Of CSV and JSON, the beginnings of the first
//! [`LOOKED_AT`] files are looked at; those of all files of CSV, if columns are united by name. A
//! column of several files has a type that has the values of all. Without `union_by_name`, files of
//! CSV must have the same header, and files of Parquet and Arrow the columns of the first one.

use crate::csv::{self, CsvLook, Dialect};
use crate::found::{FILE_NAME, FileColumn, Form, Found, FoundFile};
use crate::guess::Guess;
use crate::json::JsonLook;
use crate::parquet::columns_of_parquet;
use crate::pattern::files_of;
use crate::request::{FileFormat, FileRequest, Given, MOST_COLUMNS, SAMPLE_BYTES, too_many_columns};
use crate::value_type::{ValueType, united};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use serac_copy::{ArrowStream, KnownFile, in_file, open_regular};
use serac_engine::catalog::definition::SqlType;
use serac_values::{Result, SqlError};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;

/// Files that a statement may read.
const MOST_FILES: usize = 10_000;
/// Files of texts whose beginnings tell the types of columns.
const LOOKED_AT: usize = 8;
/// Files of Parquet whose metadata is kept.
const KEPT_METADATA: usize = 64;

/// Whether somebody still waits.
type Check<'c> = &'c dyn Fn() -> Result<()>;

fn bad(message: String) -> SqlError {
    SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, message)
}

/// Looks at the files that a query asks for.
///
/// # Errors
/// 58P01 and 58030 for files that cannot be read, 42809 for what is no regular file, 22P04 and its
/// kin for their contents, 22023 for arguments that do not fit them, and the errors of `check`.
pub(crate) fn find(request: &FileRequest, check: Check<'_>) -> Result<Found> {
    request.check()?;
    let mut paths = Vec::new();
    for path in &request.paths {
        paths.extend(files_of(path, check)?);
        if paths.len() > MOST_FILES {
            let message = format!("a statement reads at most {MOST_FILES} files of one relation");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
    }
    let format = match request.format {
        Some(format) => format,
        None => {
            let format = FileFormat::of_path(&paths[0])?;
            let other = paths.iter().find(|path| FileFormat::of_path(path).ok() != Some(format));
            if let Some(other) = other {
                return Err(SqlError::unsupported(format!("reading \"{}\" and \"{other}\" together", paths[0])));
            }
            format
        }
    };
    let mut found = match format {
        FileFormat::Csv => csv_files(request, &paths, check),
        FileFormat::Json => json_files(request, &paths, check),
        FileFormat::Parquet => typed_files(request, &paths, check, FileFormat::Parquet),
        FileFormat::Arrow => typed_files(request, &paths, check, FileFormat::Arrow),
    }?;
    if found.columns.len() > MOST_COLUMNS {
        return Err(too_many_columns());
    }
    if request.filename {
        if found.columns.iter().any(|column| column.name == FILE_NAME) {
            return Err(SqlError::column_twice(FILE_NAME));
        }
        found.columns.push(FileColumn::of_file_name());
        for file in &mut found.files {
            file.places = file.places.iter().copied().chain([None]).collect();
        }
    }
    Ok(Found::new(found.form, found.files, found.columns, found.assign))
}

/// The beginning of a file of texts.
struct Sample {
    known: KnownFile,
    bytes: Vec<u8>,
    is_whole: bool,
}

fn sample(path: &str) -> Result<Sample> {
    let file = open_regular(path)?;
    let known = KnownFile::of(path, &file)?;
    let mut bytes = Vec::new();
    let read = file.take(SAMPLE_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| SqlError::new(sqlstate::IO_ERROR, format!("could not read file \"{path}\": {error}")))?;
    let is_whole = bytes.len() <= SAMPLE_BYTES;
    bytes.truncate(SAMPLE_BYTES);
    Ok(Sample { known, bytes, is_whole })
}

fn known(path: &str) -> Result<(KnownFile, File)> {
    let file = open_regular(path)?;
    Ok((KnownFile::of(path, &file)?, file))
}

/// A file of texts whose columns are the relation's.
fn same_columns(known: KnownFile, width: usize, header: &Arc<[String]>) -> FoundFile {
    let places = (0..width).map(Some).collect();
    FoundFile { known, places, width, header: header.clone(), metadata: None, rows: None }
}

/// The types of columns: those that the query gives, or guesses.
fn types_of(given: &Given, guesses: &[Guess]) -> Vec<SqlType> {
    match given.types.is_empty() {
        true => guesses.iter().map(|guess| guess.column_type().into()).collect(),
        false => given.types.clone(),
    }
}

/// The columns of files of texts: with the types that the query gives, or with guessed ones.
fn columns(names: Vec<String>, given: &Given, guesses: &[Guess]) -> Vec<FileColumn> {
    let is_guessed = given.types.is_empty();
    let column = |(name, of)| FileColumn { is_guessed, ..FileColumn::new(name, ValueType::Plain(of)) };
    names.into_iter().zip(types_of(given, guesses)).map(column).collect()
}

/// Adds what another file tells to what the files before have told.
fn add_look(first: &mut Option<CsvLook>, look: CsvLook) {
    match first {
        // The number of fields, and the header, are compared when the file is read.
        Some(first) if look.width == first.width => {
            first.guesses.iter_mut().zip(look.guesses).for_each(|(guess, more)| guess.and(more));
        }
        Some(_) => {}
        None => *first = Some(look),
    }
}

fn csv_files(request: &FileRequest, paths: &[String], check: Check<'_>) -> Result<Found> {
    if request.union_by_name {
        return csv_files_by_name(request, paths, check);
    }
    let mut files = Vec::new();
    let mut first: Option<CsvLook> = None;
    // Files of one row, which is what the other files tell: a header, or values.
    let mut of_one_row: Vec<CsvLook> = Vec::new();
    let (mut dialect, mut has_header, mut looked_at): (Option<Dialect>, Option<bool>, usize) = (None, None, 0);
    for path in paths {
        check()?;
        if looked_at >= LOOKED_AT {
            files.push(known(path)?.0);
            continue;
        }
        let Sample { known, bytes, is_whole } = sample(path)?;
        files.push(known);
        let look = csv::look(&bytes, is_whole, request, dialect.as_ref(), has_header);
        let Some(look) = look.map_err(|error| in_file(error, path))? else { continue };
        dialect.get_or_insert_with(|| look.dialect.clone());
        if look.only_row.is_some() {
            of_one_row.push(look);
            continue;
        }
        looked_at += 1;
        has_header = Some(look.header.is_some());
        add_look(&mut first, look);
    }
    if has_header != Some(true) {
        of_one_row.into_iter().for_each(|look| add_look(&mut first, look));
    }
    let look = match first {
        Some(look) => look,
        None if request.given.types.is_empty() => {
            return Err(in_file(bad("an empty file has no columns".into()), &paths[0]));
        }
        None => empty_look(request),
    };
    let Given { names, types } = &request.given;
    let given = names.len().max(types.len());
    if given != 0 && given != look.width {
        let message = format!("the query names {given} columns, but the file has {}", look.width);
        return Err(in_file(bad(message), &paths[0]));
    }
    let header: Arc<[String]> = match (&look.header, names.is_empty()) {
        (Some(header), true) => header.clone().into(),
        _ => Arc::default(),
    };
    let names = match names.is_empty() {
        true => csv::names_of(look.header.as_deref(), look.width),
        false => names.clone(),
    };
    let columns = columns(names, &request.given, &look.guesses);
    let form = Form::Csv { dialect: look.dialect, has_header: look.header.is_some() };
    let files = files.into_iter().map(|known| same_columns(known, look.width, &header)).collect();
    Ok(Found::new(form, files, columns, request.assign.clone()))
}

/// What is known about empty files whose columns the query gives.
fn empty_look(request: &FileRequest) -> CsvLook {
    let width = request.given.types.len();
    let quote = request.quote.filter(|quote| *quote != 0).unwrap_or(b'"');
    let dialect = Dialect {
        delimiter: request.delimiter.unwrap_or(b','),
        quote,
        escape: request.escape.unwrap_or(quote),
        null: request.null.clone().unwrap_or_default(),
    };
    CsvLook { dialect, header: None, width, guesses: vec![Guess::default(); width], only_row: None }
}

/// Columns that come by name, in the order in which they are met.
#[derive(Default)]
struct ByName {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl ByName {
    /// The place of a name, and whether it is new.
    fn place(&mut self, name: &str) -> (usize, bool) {
        if let Some(at) = self.places.get(name) {
            return (*at, false);
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        (self.names.len() - 1, true)
    }

    /// Where the columns are in a file that has these names.
    fn in_file(&self, names: &[String]) -> Arc<[Option<usize>]> {
        let own: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        self.names.iter().map(|name| own.get(name.as_str()).copied()).collect()
    }
}

fn csv_files_by_name(request: &FileRequest, paths: &[String], check: Check<'_>) -> Result<Found> {
    let Given { names, types } = &request.given;
    if !names.is_empty() || !types.is_empty() {
        return Err(SqlError::unsupported("union_by_name with given columns"));
    }
    let (mut by_name, mut guesses, mut dialect) = (ByName::default(), Vec::<Guess>::new(), None);
    let mut looked = Vec::new();
    for path in paths {
        check()?;
        let Sample { known, bytes, is_whole } = sample(path)?;
        let look = csv::look(&bytes, is_whole, request, dialect.as_ref(), None);
        let Some(mut look) = look.map_err(|error| in_file(error, path))? else { continue };
        if look.only_row.is_some() {
            // Without rows.
            (look.header, look.guesses) = (look.only_row, vec![Guess::default(); look.width]);
        }
        let Some(header) = look.header else {
            let error = bad("union_by_name needs files with a header".into());
            return Err(in_file(error, path));
        };
        dialect.get_or_insert(look.dialect);
        let names = csv::names_of(Some(&header), look.width);
        for (name, guess) in names.iter().zip(look.guesses) {
            match by_name.place(name) {
                (_, true) => guesses.push(guess),
                (at, false) => guesses[at].and(guess),
            }
        }
        looked.push((known, header, names));
    }
    let Some(dialect) = dialect else {
        return Err(in_file(bad("an empty file has no columns".into()), &paths[0]));
    };
    let file = |(known, header, names): (KnownFile, Vec<String>, Vec<String>)| FoundFile {
        known,
        places: by_name.in_file(&names),
        width: names.len(),
        header: header.into(),
        metadata: None,
        rows: None,
    };
    let files = looked.into_iter().map(file).collect();
    let columns = columns(by_name.names, &request.given, &guesses);
    Ok(Found::new(Form::Csv { dialect, has_header: true }, files, columns, request.assign.clone()))
}

fn json_files(request: &FileRequest, paths: &[String], check: Check<'_>) -> Result<Found> {
    let Given { names, types } = &request.given;
    let mut files = Vec::new();
    let mut look = JsonLook::default();
    for (number, path) in paths.iter().enumerate() {
        check()?;
        if number >= LOOKED_AT || !types.is_empty() {
            files.push(known(path)?.0);
            continue;
        }
        let Sample { known, bytes, is_whole } = sample(path)?;
        files.push(known);
        look.look(&bytes, is_whole, request.sample_rows).map_err(|error| in_file(error, path))?;
    }
    let guessed: HashMap<&str, Guess> = look.keys.iter().map(|(key, guess)| (key.as_str(), *guess)).collect();
    let only_names = names.is_empty();
    let names = match only_names {
        true => look.keys.iter().map(|(key, _)| key.clone()).collect(),
        false => names.clone(),
    };
    if names.is_empty() {
        return Err(in_file(bad("there is no object with a key, and so no column".into()), &paths[0]));
    }
    let guesses: Vec<Guess> =
        names.iter().map(|name| guessed.get(name.as_str()).copied().unwrap_or_default()).collect();
    let header = Arc::default();
    let files = files.into_iter().map(|known| same_columns(known, names.len(), &header)).collect();
    let columns = columns(names, &request.given, &guesses);
    Ok(Found::new(Form::Json { only_names }, files, columns, request.assign.clone()))
}

/// The columns of an Arrow file or stream.
fn columns_of_arrow(file: File) -> Result<SchemaRef> {
    Ok(ArrowStream::new(BufReader::new(file))?.schema().clone())
}

/// A file that says its columns.
struct TypedFile {
    known: KnownFile,
    names: Vec<String>,
    metadata: Option<Arc<datafusion::parquet::file::metadata::ParquetMetaData>>,
    rows: Option<usize>,
}

/// That each column of a file has a name of its own.
fn check_names(schema: &Schema) -> Result<()> {
    let mut seen = HashSet::new();
    match schema.fields().iter().find(|field| !seen.insert(field.name())) {
        Some(twice) => Err(bad(format!("the file has the column \"{}\" twice", twice.name()))),
        None => Ok(()),
    }
}

fn typed_files(request: &FileRequest, paths: &[String], check: Check<'_>, format: FileFormat) -> Result<Found> {
    let (mut by_name, mut fields) = (ByName::default(), Vec::<Field>::new());
    let mut files: Vec<TypedFile> = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        check()?;
        let (known, file) = known(path)?;
        let (schema, metadata, rows) = match format {
            FileFormat::Parquet => {
                let (schema, metadata) = columns_of_parquet(file).map_err(|error| in_file(error, path))?;
                let rows = usize::try_from(metadata.file_metadata().num_rows()).ok();
                (schema, Some(metadata).filter(|_| paths.len() <= KEPT_METADATA), rows)
            }
            _ => (columns_of_arrow(file).map_err(|error| in_file(error, path))?, None, None),
        };
        check_names(&schema).map_err(|error| in_file(error, path))?;
        for field in schema.fields() {
            let (at, is_new) = by_name.place(field.name());
            if !is_new {
                let of = united(fields[at].data_type(), field.data_type()).ok_or_else(|| {
                    let (a, b) = (fields[at].data_type(), field.data_type());
                    let message = format!("column \"{}\" is {a} in one file and {b} in another", field.name());
                    in_file(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).named(field.name()), path)
                })?;
                fields[at] = fields[at].clone().with_data_type(of);
            } else if number == 0 || request.union_by_name {
                fields.push(field.as_ref().clone().with_nullable(true));
            } else {
                return Err(other_columns(path, field.name(), "has"));
            }
        }
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        if !request.union_by_name && names.len() < by_name.names.len() {
            let own: HashSet<&String> = names.iter().collect();
            let missing = by_name.names.iter().find(|name| !own.contains(name)).map_or("", String::as_str);
            return Err(other_columns(path, missing, "lacks"));
        }
        files.push(TypedFile { known, names, metadata, rows });
    }
    let column = |field: &Field| FileColumn::new(field.name(), ValueType::of_arrow(field.data_type()));
    let columns = fields.iter().map(column).collect();
    let form = match format {
        FileFormat::Parquet => Form::Parquet { schema: Arc::new(Schema::new(fields)) },
        _ => Form::Arrow,
    };
    let file = |TypedFile { known, names, metadata, rows }| FoundFile {
        known,
        places: by_name.in_file(&names),
        width: names.len(),
        header: Arc::default(),
        metadata,
        rows,
    };
    let files = files.into_iter().map(file).collect();
    Ok(Found::new(form, files, columns, request.assign.clone()))
}

/// The error of a file with other columns than the first.
fn other_columns(path: &str, column: &str, verb: &str) -> SqlError {
    let error = bad(format!("the file {verb} the column \"{column}\", unlike the first one"));
    in_file(error, path).also("union_by_name => true reads files with different columns.")
}
