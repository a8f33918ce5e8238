//! Files by name in FROM, and the functions that read them: `serac-files`, in a session.
//!
//! **Rights.** A role reads files if it may COPY from files ([`check_server_files`]). In a view,
//! its owner must have that right, as with the view's tables. A session of a program that embeds
//! the database, and of the shell, is a superuser's unless it has said otherwise.
//!
//! **When.** Files are looked at while a statement is planned, on a thread that plans: it may wait
//! for a disk. Plans with files are not kept, so that an execution sees the files as they are then.

use crate::ast_types::sql_type;
use crate::deep;
use crate::error::{Result, SqlError};
use crate::frames::assignment;
use crate::parsed::syntax_error;
use crate::planner::computed;
use crate::session_env::SessionEnv;
use crate::session_roles::check_server_files;
use crate::statement_snapshot::StatementSnapshot;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use serac_binder::FileCall;
use serac_engine::catalog::definition::SqlType;
use serac_engine::security::RoleId;
use serac_files::{FileFormat, FileRequest, FileTable, Given};
use serac_parser::tree::ColumnType;
use std::sync::Arc;

/// Files that are loaded into a table.
#[derive(Clone, Debug, Default)]
pub struct IngestFiles {
    /// Their names, and patterns of names.
    pub paths: Vec<String>,
    /// The function of FROM that reads them, as `read_csv`; `None` if their names tell.
    pub function: Option<String>,
    /// Its named arguments.
    pub options: Vec<(String, ScalarValue)>,
}

/// Files that are loaded, as they are now.
///
/// # Errors
/// As for [`files`].
pub(crate) fn loaded_files(
    shared: &SessionEnv,
    view: &StatementSnapshot,
    IngestFiles { paths, function, options }: &IngestFiles,
) -> Result<FileTable> {
    check_server_files(&shared.access(view), RoleId::READ_SERVER_FILES, "read files")?;
    let unknown = |name: &String| {
        SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name} reads no files")).named(name)
    };
    let format = match (function, paths.first()) {
        (Some(name), _) => Some(FileFormat::of_function(name).ok_or_else(|| unknown(name))?),
        // The format says which arguments there are.
        (None, Some(path)) if !options.is_empty() => Some(FileFormat::of_path(path)?),
        (None, _) => None,
    };
    let paths: Vec<ScalarValue> = paths.iter().map(|path| ScalarValue::from(path.as_str())).collect();
    let paths = ScalarValue::List(ScalarValue::new_list_nullable(&paths, &DataType::Utf8));
    let mut request = FileRequest::new(format, &paths, Given::default(), assignment(shared))?;
    for (name, value) in options {
        request.set(name, value, type_named)?;
    }
    FileTable::open(&request, &|| Ok(deep::check()?))
}

/// The type that a text names.
fn type_named(text: &str) -> Result<SqlType> {
    sql_type(&serac_parser::parse_type(text).map_err(|error| syntax_error(error, text).unplaced())?)
}

/// Whether a function reads files.
pub(crate) fn reads_files(function: &str) -> bool {
    FileFormat::of_function(function).is_some()
}

/// The columns that a query gives files.
fn given(columns: &[ColumnType]) -> Result<Given> {
    let names = columns.iter().map(|column| column.name.name.clone()).collect();
    let types = columns.iter().map(|column| sql_type(&column.type_name)).collect::<Result<_>>()?;
    Ok(Given { names, types })
}

/// A constant argument.
fn constant(state: &SessionState, name: &str, argument: &Expr) -> Result<ScalarValue> {
    match computed(state, vec![argument.clone()])?.pop() {
        Some(Expr::Literal(value, _)) => Ok(value),
        _ => {
            let message = format!("the argument \"{name}\" of a function that reads files must be a constant");
            Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

/// The files of a call, as they are now.
///
/// # Errors
/// 42501, the errors of the arguments, and those of the files.
pub(crate) fn files(
    state: &SessionState,
    shared: &Arc<SessionEnv>,
    view: &StatementSnapshot,
    call: &FileCall<'_>,
) -> Result<FileTable> {
    check_server_files(&shared.access(view), RoleId::READ_SERVER_FILES, "read files")?;
    let format = call.function.and_then(FileFormat::of_function);
    let assign = assignment(shared);
    let positional = call.arguments.iter().filter(|(name, _)| name.is_none()).count();
    let function = call.function.unwrap_or_default();
    let [(None, paths), named @ ..] = &call.arguments[..] else {
        let message = format!("function {function} needs the name of a file");
        return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).named(function));
    };
    if positional > 1 {
        let message = format!("function {function} takes one argument without a name, but {positional} were given");
        return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).named(function));
    }
    if matches!(format, Some(FileFormat::Parquet | FileFormat::Arrow)) && !call.columns.is_empty() {
        return Err(SqlError::unsupported(format!("a list of columns for {function}, whose files have types,")));
    }
    let mut request = FileRequest::new(format, &constant(state, "files", paths)?, given(call.columns)?, assign)?;
    for (name, argument) in named {
        let name = name.unwrap_or_default();
        if matches!(name, "columns" | "types") && !call.columns.is_empty() {
            let message = format!("\"{name}\" is said beside a list of columns");
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        request.set(name, &constant(state, name, argument)?, type_named)?;
    }
    FileTable::open(&request, &|| Ok(deep::check()?))
}
