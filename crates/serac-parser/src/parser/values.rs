//! Common parts of many statements: numbers, texts, options, roles, IF EXISTS, CASCADE.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::keyword::Category;
use crate::lexer::Kind;
use crate::tree::{
    CommandOption, ForeignOption, Ident, Name, Number, Operator, RoleKind, RoleName, Span, StorageOption, StorageValue,
    Text, Value,
};

impl Parser<'_> {
    // ---- words

    /// Whether a word comes that is not reserved.
    pub(super) fn is_unreserved(&self) -> bool {
        self.is_name(0, &[Category::Unreserved, Category::ColumnName, Category::TypeOrFunction])
    }
    pub(super) fn unreserved(&mut self) -> Result<Ident> {
        if self.is_unreserved() { Ok(self.take_ident()) } else { Err(self.unexpected()) }
    }

    /// One of these words, as an identifier.
    pub(super) fn one_of(&mut self, words: &[&str]) -> Result<Ident> {
        if self.is_one_of(words) { Ok(self.take_ident()) } else { Err(self.unexpected()) }
    }

    /// Words that must come, one after the other.
    pub(super) fn expect_words(&mut self, words: &[&str]) -> Result<()> {
        words.iter().try_for_each(|word| self.expect_word(word))
    }

    /// One of two words; returns whether it is the first.
    pub(super) fn either(&mut self, first: &str, second: &str) -> Result<bool> {
        let is_first = self.take_word(first);
        if !is_first {
            self.expect_word(second)?;
        }
        Ok(is_first)
    }

    /// An identifier for a name that the grammar writes in words of its own.
    pub(super) fn named(name: &str, span: Span) -> Ident {
        Ident { name: name.to_owned(), span }
    }
    pub(super) fn if_exists(&mut self) -> bool {
        self.take_words(&["if", "exists"])
    }
    pub(super) fn if_not_exists(&mut self) -> Result<bool> {
        let comes = self.take_words(&["if", "not"]);
        if comes {
            self.expect_word("exists")?;
        }
        Ok(comes)
    }

    /// CASCADE or RESTRICT, if one of them comes.
    pub(super) fn cascade(&mut self) -> bool {
        let cascade = self.take_word("cascade");
        let _ = cascade || self.take_word("restrict");
        cascade
    }

    /// Whether the token behind a name shows that the name is a setting's.
    pub(super) fn is_setting_behind(&self, ahead: usize) -> bool {
        match self.kind_ahead(ahead) {
            Kind::Word(word, _) => matches!(word.as_str(), "to" | "from"),
            Kind::Operator(symbol) => symbol == "=",
            Kind::Sign(sign) => *sign == b'.',
            _ => false,
        }
    }

    // ---- constants

    pub(super) fn text(&mut self) -> Result<Text> {
        let span = self.span();
        match self.kind().clone() {
            Kind::String(text) => {
                self.at += 1;
                Ok(Text { text, span })
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Whether a whole number of 32 bits comes this many tokens ahead.
    pub(super) fn is_integer(&self, ahead: usize) -> bool {
        matches!(self.kind_ahead(ahead), Kind::Integer(digits) if digits.parse::<i32>().is_ok())
    }
    pub(super) fn integer(&mut self) -> Result<u32> {
        match self.kind() {
            Kind::Integer(digits) if self.is_integer(0) => {
                let value = digits.parse().unwrap_or_default();
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected()),
        }
    }
    pub(super) fn is_sign_of_number(&self) -> bool {
        self.is_operator("-") || self.is_operator("+")
    }

    /// Whether a number comes, with a sign perhaps.
    pub(super) fn is_number(&self) -> bool {
        let ahead = usize::from(self.is_sign_of_number());
        matches!(self.kind_ahead(ahead), Kind::Integer(_) | Kind::Numeric(_))
    }
    pub(super) fn number(&mut self) -> Result<Number> {
        let start = self.span();
        let negative = self.is_operator("-");
        if self.is_sign_of_number() {
            self.at += 1;
        }
        let (digits, is_whole) = match self.kind() {
            Kind::Integer(digits) => (digits.clone(), true),
            Kind::Numeric(digits) => (digits.clone(), false),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(Number { negative, digits, is_whole, span: start.to(self.last_span()) })
    }

    /// A whole number of 32 bits, with a sign perhaps.
    pub(super) fn signed_integer(&mut self) -> Result<Number> {
        if !self.is_integer(usize::from(self.is_sign_of_number())) {
            if self.is_sign_of_number() {
                self.at += 1;
            }
            return Err(self.unexpected());
        }
        self.number()
    }

    /// Whether a word or a text comes that may be the value of an option.
    pub(super) fn is_word_or_text(&self) -> bool {
        matches!(self.kind(), Kind::String(_)) || self.is_one_of(&["true", "false", "on"]) || self.is_unreserved()
    }

    /// A word or a text as the value of an option.
    pub(super) fn word_or_text(&mut self) -> Result<Value> {
        match self.kind() {
            Kind::String(_) => Ok(Value::Text(self.text()?)),
            _ if self.is_word_or_text() => Ok(Value::Word(self.take_ident())),
            _ => Err(self.unexpected()),
        }
    }

    /// The value of a setting.
    pub(super) fn value(&mut self) -> Result<Value> {
        if self.is_sign_of_number() || self.is_number() {
            return Ok(Value::Number(self.number()?));
        }
        self.word_or_text()
    }

    /// A word that is not reserved, or a text: such as the name of a language.
    pub(super) fn unreserved_or_text(&mut self) -> Result<Ident> {
        let span = self.span();
        match self.kind().clone() {
            Kind::String(name) => {
                self.at += 1;
                Ok(Ident { name, span })
            }
            _ => self.unreserved(),
        }
    }

    // ---- options

    /// `(name [value], …)` of commands.
    pub(super) fn command_options(&mut self) -> Result<Vec<CommandOption>> {
        self.in_parentheses(|parser| {
            parser.list(|parser| {
                let start = parser.span();
                let name = match parser.is_one_of(&["analyze", "analyse"]) {
                    true => parser.take_option_name(),
                    false => parser.unreserved()?,
                };
                let has_value = !matches!(parser.kind(), Kind::Sign(b',' | b')'));
                let value = if has_value { Some(parser.value()?) } else { None };
                Ok(CommandOption { name, value, span: start.to(parser.last_span()) })
            })
        })
    }

    /// A word that is an option of its own, if it comes.
    pub(super) fn take_option(&mut self, words: &[&str], options: &mut Vec<CommandOption>) {
        if self.is_one_of(words) {
            let span = self.span();
            let name = self.take_option_name();
            options.push(CommandOption { name, value: None, span });
        }
    }

    /// The word that comes; ANALYSE becomes ANALYZE.
    fn take_option_name(&mut self) -> Ident {
        let ident = self.take_ident();
        if ident.name == "analyse" { Self::named("analyze", ident.span) } else { ident }
    }

    /// `(name [= value], …)` of definitions; names with a namespace where these are allowed.
    pub(super) fn storage_options(&mut self, may_have_namespace: bool) -> Result<Vec<StorageOption>> {
        self.in_parentheses(|parser| parser.list(|parser| parser.storage_option(may_have_namespace)))
    }

    /// The same behind WITH, if it comes.
    pub(super) fn with_options(&mut self, may_have_namespace: bool) -> Result<Vec<StorageOption>> {
        if self.take_word("with") { self.storage_options(may_have_namespace) } else { Ok(Vec::new()) }
    }
    pub(super) fn storage_option(&mut self, may_have_namespace: bool) -> Result<StorageOption> {
        let start = self.span();
        let mut name = self.label()?;
        let mut namespace = None;
        if may_have_namespace && self.take_sign(b'.') {
            namespace = Some(std::mem::replace(&mut name, self.label()?));
        }
        let value = if self.take_operator("=") { Some(self.storage_value()?) } else { None };
        Ok(StorageOption { namespace, name, value, span: start.to(self.last_span()) })
    }

    fn storage_value(&mut self) -> Result<StorageValue> {
        match self.kind() {
            Kind::String(_) => return Ok(StorageValue::Text(self.text()?)),
            Kind::Operator(_) if !self.is_number() => {
                let span = self.span();
                let Kind::Operator(symbol) = self.kind().clone() else { return Err(self.unexpected()) };
                self.at += 1;
                return Ok(StorageValue::Operator(Operator { schema: None, symbol, span }));
            }
            Kind::Word(word, _) if word == "operator" && *self.kind_ahead(1) == Kind::Sign(b'(') => {
                return Ok(StorageValue::Operator(self.named_operator()?));
            }
            Kind::Word(_, Some(keyword)) if keyword.category == Category::Reserved => {
                return Ok(StorageValue::Word(self.take_ident()));
            }
            Kind::Word(word, _) if word == "none" => return Ok(StorageValue::Word(self.take_ident())),
            _ if self.is_number() => return Ok(StorageValue::Number(self.number()?)),
            _ => {}
        }
        let goes_on = match self.kind_ahead(1) {
            Kind::Sign(sign) => matches!(sign, b'.' | b'(' | b'['),
            Kind::Word(word, _) => matches!(word.as_str(), "array" | "precision"),
            _ => false,
        };
        if self.is_function_name(0) && !goes_on {
            return Ok(StorageValue::Word(self.take_ident()));
        }
        Ok(StorageValue::Type(self.function_type()?))
    }

    /// `OPTIONS (name 'value', …)`, if it comes; in ALTER with ADD, SET and DROP.
    pub(super) fn foreign_options(&mut self, alters: bool) -> Result<Vec<ForeignOption>> {
        if !self.take_word("options") {
            return Ok(Vec::new());
        }
        self.in_parentheses(|parser| {
            parser.list(|parser| {
                let is_action = alters
                    && parser.is_one_of(&["add", "set", "drop"])
                    && matches!(parser.kind_ahead(1), Kind::Word(..) | Kind::Quoted(_));
                let action = is_action.then(|| parser.take_ident());
                let name = parser.label()?;
                let drops = action.as_ref().is_some_and(|action| action.name == "drop");
                let value = if drops { None } else { Some(parser.text()?) };
                Ok(ForeignOption { action, name, value })
            })
        })
    }

    // ---- names

    /// The name of a relation, which has three parts at the most: a database, a schema, its own.
    pub(super) fn relation_name(&mut self) -> Result<Name> {
        let first = self.ident()?;
        let name = self.indirection(first)?;
        if name.parts.len() > 3 {
            let message = format!("improper qualified name (too many dotted names): {name}");
            return Err(ParseError::at(message, name.span));
        }
        Ok(self.without_database(name, 3))
    }
    pub(super) fn role(&mut self) -> Result<RoleName> {
        let span = self.span();
        let kind = match self.word() {
            Some("current_user") => RoleKind::CurrentUser,
            Some("current_role") => RoleKind::CurrentRole,
            Some("session_user") => RoleKind::SessionUser,
            _ => {
                let ident = self.unreserved()?;
                let kind = match ident.name.as_str() {
                    "public" => RoleKind::Public,
                    "none" => {
                        return Err(ParseError::new(
                            sqlstate::RESERVED_NAME,
                            "role name \"none\" is reserved",
                            span.start,
                        ));
                    }
                    _ => RoleKind::Named(ident.name),
                };
                return Ok(RoleName { kind, span });
            }
        };
        self.at += 1;
        Ok(RoleName { kind, span })
    }
    pub(super) fn roles(&mut self) -> Result<Vec<RoleName>> {
        self.list(Self::role)
    }

    /// The name of a role itself; CURRENT_USER and its like are refused.
    pub(super) fn role_id(&mut self) -> Result<RoleName> {
        let role = self.role()?;
        Self::check_role_id(role)
    }

    /// A role, if the statement names the role itself.
    pub(super) fn check_role_id(role: RoleName) -> Result<RoleName> {
        let message = match role.kind {
            RoleKind::Named(_) => return Ok(role),
            RoleKind::Public => "role name \"public\" is reserved",
            RoleKind::CurrentUser => "CURRENT_USER cannot be used as a role name here",
            RoleKind::CurrentRole => "CURRENT_ROLE cannot be used as a role name here",
            RoleKind::SessionUser => "SESSION_USER cannot be used as a role name here",
        };
        Err(ParseError::new(sqlstate::RESERVED_NAME, message, role.span.start))
    }
}
