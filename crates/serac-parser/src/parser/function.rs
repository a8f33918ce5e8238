//! CREATE, ALTER and DROP of functions and procedures, CALL and DO.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{
    AlterFunction, ColumnType, CreateFunction, Do, DropFunction, FunctionBody, FunctionChange, FunctionName,
    FunctionOption, FunctionOptionKind, FunctionStatement, Name, ObjectChange, Parameter, ParameterMode, Returns,
    RoutineKind, SettingChange, StatementKind,
};

/// Words of types that are no names, by which a type may begin.
const TYPE_WORDS: [&str; 20] = [
    "bigint",
    "bit",
    "boolean",
    "char",
    "character",
    "dec",
    "decimal",
    "float",
    "int",
    "integer",
    "interval",
    "national",
    "nchar",
    "numeric",
    "real",
    "setof",
    "smallint",
    "time",
    "timestamp",
    "varchar",
];

impl Parser<'_> {
    /// FUNCTION, PROCEDURE or ROUTINE.
    pub(super) fn routine_kind(&mut self) -> Result<RoutineKind> {
        Ok(match self.one_of(&["function", "procedure", "routine"])?.name.as_str() {
            "function" => RoutineKind::Function,
            "procedure" => RoutineKind::Procedure,
            _ => RoutineKind::Routine,
        })
    }
    pub(super) fn create_function(&mut self, or_replace: bool, is_procedure: bool) -> Result<StatementKind> {
        self.at += 1;
        let name = self.function_name()?;
        let parameters = self.parameters(true)?;
        let returns = match !is_procedure && self.is_word("returns") && self.word_ahead(1) != Some("null") {
            true => {
                self.at += 1;
                Some(self.returns()?)
            }
            false => None,
        };
        let mut options = Vec::new();
        while let Some(option) = self.function_option(true)? {
            options.push(option);
        }
        let body = if self.take_word("return") {
            Some(FunctionBody::Return(self.expr()?))
        } else if self.take_word("begin") {
            self.expect_word("atomic")?;
            Some(FunctionBody::Atomic(self.deeper(Self::atomic)?))
        } else {
            None
        };
        let create = CreateFunction { or_replace, is_procedure, name, parameters, returns, options, body };
        Ok(StatementKind::CreateFunction(Box::new(create)))
    }

    fn atomic(&mut self) -> Result<Vec<FunctionStatement>> {
        let mut statements = Vec::new();
        while !self.take_word("end") {
            if !self.is_sign(b';') {
                statements.push(match self.take_word("return") {
                    true => FunctionStatement::Return(self.expr()?),
                    false => FunctionStatement::Statement(self.inner_statement()?),
                });
            }
            self.sign(b';')?;
        }
        Ok(statements)
    }

    fn returns(&mut self) -> Result<Returns> {
        if !self.take_word("table") {
            return Ok(Returns::Type(self.function_type()?));
        }
        let columns = self.in_parentheses(|parser| {
            parser.list(|parser| {
                if !parser.is_parameter_name() {
                    return Err(parser.unexpected());
                }
                let name = parser.take_ident();
                Ok(ColumnType { name, type_name: parser.function_type()?, collation: None })
            })
        })?;
        Ok(Returns::Table(columns))
    }

    fn parameters(&mut self, may_have_defaults: bool) -> Result<Vec<Parameter>> {
        self.in_parentheses(|parser| match parser.is_sign(b')') {
            true => Ok(Vec::new()),
            false => parser.list(|parser| parser.parameter(may_have_defaults)),
        })
    }

    /// Whether the word that comes may be a parameter's name. PostgreSQL refuses words such as
    /// LEAST, which its grammar has for expressions; SeracDB takes those that begin no type.
    fn is_parameter_name(&self) -> bool {
        let is_mode = self.is_one_of(&["out", "inout"]);
        let is_type = is_mode || self.is_word("precision") || self.is_one_of(&TYPE_WORDS);
        self.is_function_name(0) || self.is_column_name(0) && !is_type
    }

    fn parameter_mode(&mut self) -> Option<ParameterMode> {
        let mode = match self.word()? {
            "in" if self.word_ahead(1) == Some("out") => {
                self.at += 1;
                ParameterMode::InOut
            }
            "in" => ParameterMode::In,
            "out" => ParameterMode::Out,
            "inout" => ParameterMode::InOut,
            "variadic" => ParameterMode::Variadic,
            _ => return None,
        };
        self.at += 1;
        Some(mode)
    }

    fn parameter(&mut self, may_have_defaults: bool) -> Result<Parameter> {
        let mut mode = self.parameter_mode();
        let starts_type = match self.kind_ahead(1) {
            Kind::Quoted(_) => true,
            Kind::Word(word, _) => self.is_function_name(1) || TYPE_WORDS.contains(&word.as_str()),
            _ => false,
        };
        let is_mode_behind = mode.is_none() && matches!(self.word_ahead(1), Some("in" | "out" | "inout" | "variadic"));
        let has_name = self.is_parameter_name() && (starts_type || is_mode_behind);
        let name = has_name.then(|| self.take_ident());
        if has_name && mode.is_none() {
            mode = self.parameter_mode();
        }
        let type_name = self.function_type()?;
        let has_default = may_have_defaults && (self.take_word("default") || self.take_operator("="));
        let default = if has_default { Some(self.expr()?) } else { None };
        Ok(Parameter { mode, name, type_name, default })
    }

    /// An option of a function, if one comes.
    fn function_option(&mut self, creates: bool) -> Result<Option<FunctionOption>> {
        use FunctionOptionKind as K;
        let start = self.span();
        let Some(word) = self.word().map(str::to_owned) else { return Ok(None) };
        let is_known = match word.as_str() {
            "as" | "language" | "transform" | "window" => creates,
            "called" | "returns" | "strict" | "immutable" | "stable" | "volatile" | "external" | "security"
            | "leakproof" | "not" | "cost" | "rows" | "support" | "set" | "reset" | "parallel" => true,
            _ => false,
        };
        if !is_known {
            return Ok(None);
        }
        let ident = self.take_ident();
        let kind = match word.as_str() {
            "as" => {
                let body = self.text()?;
                K::As(body, if self.take_sign(b',') { Some(self.text()?) } else { None })
            }
            "language" => K::Language(self.unreserved_or_text()?),
            "transform" => K::Transform(self.list(|parser| {
                parser.expect_words(&["for", "type"])?;
                parser.type_name()
            })?),
            "window" => K::Window,
            "called" => {
                self.expect_words(&["on", "null", "input"])?;
                K::Strict(false)
            }
            "returns" => {
                self.expect_words(&["null", "on", "null", "input"])?;
                K::Strict(true)
            }
            "strict" => K::Strict(true),
            "immutable" | "stable" | "volatile" => K::Volatility(ident),
            "external" => {
                self.expect_word("security")?;
                K::SecurityDefiner(self.either("definer", "invoker")?)
            }
            "security" => K::SecurityDefiner(self.either("definer", "invoker")?),
            "leakproof" => K::Leakproof(true),
            "not" => {
                self.expect_word("leakproof")?;
                K::Leakproof(false)
            }
            "cost" => K::Cost(self.number()?),
            "rows" => K::Rows(self.number()?),
            "support" => K::Support(self.name()?),
            "set" => K::Setting(SettingChange::Set(self.setting()?)),
            "reset" => K::Setting(SettingChange::Reset(self.reset()?)),
            _ => K::Parallel(self.ident()?),
        };
        Ok(Some(FunctionOption { kind, span: start.to(self.last_span()) }))
    }

    /// A function by its name, and perhaps the types of its parameters.
    pub(super) fn function_with_types(&mut self) -> Result<FunctionName> {
        if !self.is_column_name(0) && !self.is_function_name(0) {
            return Err(self.unexpected());
        }
        let (is_column, is_function) = (self.is_column_name(0), self.is_function_name(0));
        let first = self.take_ident();
        let name = match is_column {
            true => self.indirection(first)?,
            false => Name { span: first.span, parts: vec![first] },
        };
        let may_have_types = is_function || name.parts.len() > 1;
        let parameters = match may_have_types && self.is_sign(b'(') {
            true => Some(self.parameters(false)?),
            false => None,
        };
        Ok(FunctionName { name, parameters })
    }

    /// ALTER, whose word has been read.
    pub(super) fn alter_function(&mut self) -> Result<StatementKind> {
        let kind = self.routine_kind()?;
        let function = self.function_with_types()?;
        let sets_schema = self.are_words(&["set", "schema"]) && !matches!(self.kind_ahead(2), Kind::String(_));
        let is_object =
            sets_schema || self.is_one_of(&["rename", "owner", "depends"]) || self.are_words(&["no", "depends"]);
        let change = if is_object {
            FunctionChange::Object(self.object_change(&["rename", "owner", "set", "depends"])?)
        } else {
            let mut options = Vec::new();
            while let Some(option) = self.function_option(false)? {
                options.push(option);
            }
            if options.is_empty() {
                if self.take_word("no") {
                    self.expect_word("depends")?;
                }
                return Err(self.unexpected());
            }
            self.take_word("restrict");
            FunctionChange::Options(options)
        };
        Ok(StatementKind::AlterFunction(Box::new(AlterFunction { kind, function, change })))
    }

    /// A change that objects of many kinds have. The first words in `allowed` say which changes
    /// this kind has.
    pub(super) fn object_change(&mut self, allowed: &[&str]) -> Result<ObjectChange> {
        if allowed.contains(&"depends") && self.is_one_of(&["no", "depends"]) {
            let is_not = self.take_word("no");
            self.expect_words(&["depends", "on", "extension"])?;
            return Ok(ObjectChange::DependsOnExtension(!is_not, self.ident()?));
        }
        Ok(match self.one_of(allowed)?.name.as_str() {
            "rename" => {
                self.expect_word("to")?;
                ObjectChange::RenameTo(self.ident()?)
            }
            "owner" => {
                self.expect_word("to")?;
                ObjectChange::OwnerTo(self.role()?)
            }
            _ => {
                self.expect_word("schema")?;
                ObjectChange::SetSchema(self.ident()?)
            }
        })
    }

    /// DROP, whose word has been read.
    pub(super) fn drop_function(&mut self) -> Result<StatementKind> {
        let kind = self.routine_kind()?;
        let if_exists = self.if_exists();
        let functions = self.list(Self::function_with_types)?;
        let cascade = self.cascade();
        Ok(StatementKind::DropFunction(DropFunction { kind, if_exists, functions, cascade }))
    }
    pub(super) fn call_statement(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.function_name()?;
        Ok(StatementKind::Call(Box::new(self.windowless_call(name)?)))
    }
    pub(super) fn do_statement(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let mut block = Do { code: Vec::new(), languages: Vec::new() };
        loop {
            if self.take_word("language") {
                block.languages.push(self.unreserved_or_text()?);
            } else if matches!(self.kind(), Kind::String(_)) || block.code.len() + block.languages.len() == 0 {
                block.code.push(self.text()?);
            } else {
                return Ok(StatementKind::Do(block));
            }
        }
    }
}
