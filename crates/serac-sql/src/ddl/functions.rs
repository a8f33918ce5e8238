//! CREATE FUNCTION and DROP FUNCTION: jobs that have a name, and columns that are known.

use crate::ast_types::sql_type;
use crate::error::{Result, SqlError};
use crate::result::StatementResult;
use crate::session::Session;
use serac_engine::catalog::function::{FunctionColumn, FunctionDefinition, FunctionLanguage};
use serac_parser::tree::{
    ColumnType, CreateFunction, DropFunction, FunctionName, FunctionOption, FunctionOptionKind, Name, Parameter,
    ParameterMode, Returns, RoutineKind,
};

/// Parameters of a function, and columns that it gives, each.
const MAX_COLUMNS: usize = 1_600;

fn unsupported<T>(what: &str) -> Result<T> {
    Err(SqlError::unsupported(format!("CREATE FUNCTION with {what}")))
}

/// The name of a function, which is in no schema but stands in `public`, where it is said.
fn name_of(name: &Name) -> Result<String> {
    match &name.parts[..] {
        [name] => Ok(name.name.clone()),
        [schema, name] if schema.name == serac_engine::DEFAULT_SCHEMA => Ok(name.name.clone()),
        _ => Err(SqlError::unsupported(format!("a function in another schema than public: {name}"))),
    }
}

fn parameter(parameter: &Parameter) -> Result<FunctionColumn> {
    let Parameter { mode, name, type_name, default } = parameter;
    if !matches!(mode, None | Some(ParameterMode::In)) {
        return unsupported("OUT, INOUT and VARIADIC parameters");
    }
    if default.is_some() {
        return unsupported("defaults of parameters");
    }
    let Some(name) = name else { return unsupported("parameters without names") };
    Ok(FunctionColumn { name: name.name.clone(), sql_type: sql_type(type_name)? })
}

/// The columns of RETURNS TABLE.
fn returned(returns: Option<&Returns>) -> Result<Vec<FunctionColumn>> {
    let Some(Returns::Table(columns)) = returns else { return unsupported("anything but RETURNS TABLE (…)") };
    let column = |ColumnType { name, type_name, collation }: &ColumnType| match collation {
        Some(_) => unsupported("collations of the columns that it gives"),
        None => Ok(FunctionColumn { name: name.name.clone(), sql_type: sql_type(type_name)? }),
    };
    columns.iter().map(column).collect()
}

/// The language and the body that options of a function say.
fn language_and_body(options: &[FunctionOption]) -> Result<(FunctionLanguage, String)> {
    use FunctionOptionKind as K;
    let (mut language, mut body) = (None, None);
    for FunctionOption { kind, span: _ } in options {
        let is_again = match kind {
            K::Language(name) => language.replace(name.name.as_str()).is_some(),
            K::As(text, None) => body.replace(text.text.clone()).is_some(),
            K::As(_, Some(_)) => return unsupported("a file"),
            // They let the planner do more, and it does no more.
            K::Volatility(_) | K::Parallel(_) => false,
            K::Strict(_) | K::SecurityDefiner(_) => return unsupported("STRICT or SECURITY"),
            K::Setting(_) => return unsupported("settings"),
            K::Leakproof(_) | K::Cost(_) | K::Rows(_) | K::Support(_) | K::Window | K::Transform(_) => {
                return unsupported("this option");
            }
        };
        if is_again {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options"));
        }
    }
    let language = match language {
        Some("external") => FunctionLanguage::External,
        Some("wasm") => FunctionLanguage::Wasm,
        Some(other) => {
            let message = format!("language \"{other}\" does not exist");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message)
                .explained("There are external and wasm.")
                .named(other));
        }
        None => return Err(SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, "no language specified")),
    };
    let missing = || {
        SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, "a function's body is the description of a job, as text")
    };
    Ok((language, body.ok_or_else(missing)?))
}

fn check_names(columns: &[FunctionColumn]) -> Result<()> {
    if columns.len() > MAX_COLUMNS {
        return Err(SqlError::new(
            sqlstate::TOO_MANY_ARGUMENTS,
            format!("a function has more than {MAX_COLUMNS} columns"),
        ));
    }
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|other| other.name == column.name) {
            let message = format!("the name \"{}\" is used more than once", column.name);
            return Err(SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, message).named(&column.name));
        }
    }
    Ok(())
}

impl Session {
    /// CREATE FUNCTION.
    pub(super) fn create_function(&mut self, create: &CreateFunction) -> Result<StatementResult> {
        let CreateFunction { or_replace, is_procedure, name, parameters, returns, options, body } = create;
        if *is_procedure {
            return Err(SqlError::unsupported("CREATE PROCEDURE"));
        }
        if body.is_some() {
            return unsupported("a body in SQL");
        }
        let (language, body) = language_and_body(options)?;
        let parameters = parameters.iter().map(parameter).collect::<Result<Vec<_>>>()?;
        let returns = returned(returns.as_ref())?;
        check_names(&parameters)?;
        check_names(&returns)?;
        let name = name_of(name)?;
        if crate::planner::functions(&self.ctx.state()).is_table_function(&name) {
            let message = format!("function \"{name}\" already exists");
            return Err(SqlError::new(sqlstate::DUPLICATE_FUNCTION, message).named(name));
        }
        let programs = self.shared.sql.programs();
        let programs = programs.ok_or_else(|| SqlError::unsupported("functions that run programs, in this process"))?;
        let job = programs.job(&body)?;
        for (_, query) in job.inputs() {
            crate::programs::rows::input_query(&query)?;
        }
        if language == FunctionLanguage::Wasm && job.runs_programs() {
            let message = "a function in the language wasm runs modules, and no programs of the machine";
            return Err(SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, message));
        }
        let function = FunctionDefinition { name, parameters, returns, language, body };
        self.txn()?.create_function(function, *or_replace)?;
        Ok(StatementResult::command("CREATE FUNCTION"))
    }

    /// DROP FUNCTION. A name is one function, so its parameters may be omitted and are not
    /// compared.
    pub(super) fn drop_functions(&mut self, drop: &DropFunction) -> Result<StatementResult> {
        let DropFunction { kind, if_exists, functions, cascade } = drop;
        if *kind != RoutineKind::Function {
            return Err(SqlError::unsupported("DROP PROCEDURE or ROUTINE"));
        }
        if *cascade {
            return Err(SqlError::unsupported("DROP FUNCTION … CASCADE"));
        }
        for FunctionName { name, parameters: _ } in functions {
            let name = name_of(name)?;
            if *if_exists && !self.txn()?.catalog().functions.contains_key(&name) {
                self.say_missing(&format!("function {name}"));
                continue;
            }
            self.txn()?.drop_function(&name)?;
        }
        Ok(StatementResult::command("DROP FUNCTION"))
    }
}
