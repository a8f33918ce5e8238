//! CREATE FUNCTION and DROP FUNCTION: jobs that have a name, and columns that are known.

use crate::ast_types::sql_type;
use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::session::{Session, StatementResult};
use datafusion::sql::sqlparser::ast::{
    ArgMode, CreateFunction, CreateFunctionBody, DataType, DropBehavior, DropFunction, Expr, FunctionReturnType,
    ObjectName, OperateFunctionArg, Value,
};
use serac_engine::function::{FunctionColumn, FunctionDefinition, FunctionLanguage};

/// Parameters of a function, and columns that it gives, each.
const MAX_COLUMNS: usize = 1_600;

fn unsupported<T>(what: &str) -> Result<T> {
    Err(SqlError::unsupported(format!("CREATE FUNCTION with {what}")))
}

/// The name of a function, which is in no schema but stands in `public`, where it is said.
fn name_of(name: &ObjectName) -> Result<String> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    match &parts[..] {
        [name] => Ok(name.clone()),
        [schema, name] if schema == serac_engine::DEFAULT_SCHEMA => Ok(name.clone()),
        _ => Err(SqlError::unsupported(format!("a function in another schema than public: {name}"))),
    }
}

fn parameter(given: &OperateFunctionArg) -> Result<FunctionColumn> {
    let OperateFunctionArg { mode, name, data_type, default_expr } = given;
    if !matches!(mode, None | Some(ArgMode::In)) {
        return unsupported("OUT and INOUT parameters");
    }
    if default_expr.is_some() {
        return unsupported("defaults of parameters");
    }
    let Some(name) = name else { return unsupported("parameters without names") };
    Ok(FunctionColumn { name: fold(name), sql_type: sql_type(data_type)? })
}

/// The columns of RETURNS TABLE.
fn returned(given: Option<&FunctionReturnType>) -> Result<Vec<FunctionColumn>> {
    let Some(FunctionReturnType::DataType(DataType::Table(Some(columns)))) = given else {
        return unsupported("anything but RETURNS TABLE (…)");
    };
    let column = |column: &datafusion::sql::sqlparser::ast::ColumnDef| {
        if !column.options.is_empty() {
            return unsupported("constraints of the columns that it gives");
        }
        Ok(FunctionColumn { name: fold(&column.name), sql_type: sql_type(&column.data_type)? })
    };
    columns.iter().map(column).collect()
}

fn text_of(body: Option<&CreateFunctionBody>) -> Result<String> {
    let text = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            Value::DollarQuotedString(text) => Some(text.value.clone()),
            _ => None,
        },
        _ => None,
    };
    let found = match body {
        Some(CreateFunctionBody::AsBeforeOptions { body, link_symbol: None }) => text(body),
        Some(CreateFunctionBody::AsAfterOptions(body)) => text(body),
        _ => None,
    };
    found.ok_or_else(|| SqlError::new("42P13", "a function's body is the description of a job, as text"))
}

fn check_names(columns: &[FunctionColumn]) -> Result<()> {
    if columns.len() > MAX_COLUMNS {
        return Err(SqlError::new("54023", format!("a function has more than {MAX_COLUMNS} columns")));
    }
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|other| other.name == column.name) {
            let message = format!("the name \"{}\" is used more than once", column.name);
            return Err(SqlError::new("42P13", message).named(&column.name));
        }
    }
    Ok(())
}

impl Session {
    /// CREATE FUNCTION.
    pub(crate) fn create_function(&mut self, create: &CreateFunction) -> Result<StatementResult> {
        let CreateFunction {
            or_alter,
            or_replace,
            temporary,
            if_not_exists,
            name,
            args,
            return_type,
            function_body,
            behavior: _,
            called_on_null,
            parallel: _,
            security,
            set_params,
            using,
            language,
            determinism_specifier,
            options,
            remote_connection,
        } = create;
        if *or_alter || *temporary || *if_not_exists || using.is_some() || determinism_specifier.is_some() {
            return unsupported("this form");
        }
        if options.is_some() || remote_connection.is_some() || !set_params.is_empty() {
            return unsupported("settings");
        }
        if called_on_null.is_some() || security.is_some() {
            return unsupported("STRICT or SECURITY");
        }
        let language = match language.as_ref().map(fold).as_deref() {
            Some("external") => FunctionLanguage::External,
            Some("wasm") => FunctionLanguage::Wasm,
            Some(other) => {
                let message = format!("language \"{other}\" does not exist");
                return Err(SqlError::new("42704", message).explained("There are external and wasm.").named(other));
            }
            None => return Err(SqlError::new("42P13", "no language specified")),
        };
        let parameters = args.iter().flatten().map(parameter).collect::<Result<Vec<_>>>()?;
        let returns = returned(return_type.as_ref())?;
        check_names(&parameters)?;
        check_names(&returns)?;
        let (name, body) = (name_of(name)?, text_of(function_body.as_ref())?);
        if crate::planner::is_table_function(&name) {
            let message = format!("function \"{name}\" already exists");
            return Err(SqlError::new("42723", message).named(name));
        }
        let programs = self.shared.sql.programs();
        let programs = programs.ok_or_else(|| SqlError::unsupported("functions that run programs, in this process"))?;
        let job = programs.job(&body)?;
        for (_, query) in job.inputs() {
            crate::programs::input_query(&query)?;
        }
        if language == FunctionLanguage::Wasm && job.runs_programs() {
            let message = "a function in the language wasm runs modules, and no programs of the machine";
            return Err(SqlError::new("42P13", message));
        }
        let function = FunctionDefinition { name, parameters, returns, language, body };
        self.txn()?.create_function(function, *or_replace)?;
        Ok(StatementResult::command("CREATE FUNCTION"))
    }

    /// DROP FUNCTION. A name is one function, so what it takes need not be said and says nothing.
    pub(crate) fn drop_functions(&mut self, drop: &DropFunction) -> Result<StatementResult> {
        let DropFunction { if_exists, func_desc, drop_behavior } = drop;
        if matches!(drop_behavior, Some(DropBehavior::Cascade)) {
            return Err(SqlError::unsupported("DROP FUNCTION … CASCADE"));
        }
        for function in func_desc {
            let name = name_of(&function.name)?;
            if *if_exists && !self.txn()?.catalog().functions.contains_key(&name) {
                self.say_missing(&format!("function {name}"));
                continue;
            }
            self.txn()?.drop_function(&name)?;
        }
        Ok(StatementResult::command("DROP FUNCTION"))
    }
}
