//! Values of options and settings, and the names of roles.

use super::{Ident, Name, Operator, Span, TypeName};

/// A text in quotes, unescaped.
#[derive(Clone, Debug)]
pub struct Text {
    /// The text in the quotes.
    pub text: String,
    /// Its place in the text.
    pub span: Span,
}

/// A number with its sign.
#[derive(Clone, Debug)]
pub struct Number {
    /// `-` before it.
    pub negative: bool,
    /// Its digits, with a point and an exponent perhaps.
    pub digits: String,
    /// Whether it has digits alone.
    pub is_whole: bool,
    /// Its place in the text.
    pub span: Span,
}

impl Number {
    /// The value of a whole number; `None` if it has a fraction or does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        let sign = if self.negative { "-" } else { "" };
        if self.is_whole { format!("{sign}{}", self.digits).parse().ok() } else { None }
    }
}

/// The value of a setting or an option.
#[derive(Clone, Debug)]
pub enum Value {
    /// A word without quotes, or an identifier in double quotes.
    Word(Ident),
    /// A text.
    Text(Text),
    /// A number.
    Number(Number),
}

/// `name`, `name = value` or `namespace.name = value`, of WITH and of definitions in parentheses.
#[derive(Clone, Debug)]
pub struct StorageOption {
    /// `toast` of `toast.autovacuum_enabled`.
    pub namespace: Option<Ident>,
    /// Its name.
    pub name: Ident,
    /// The value behind `=`.
    pub value: Option<StorageValue>,
    /// Its place in the text.
    pub span: Span,
}

/// The value of a [`StorageOption`].
#[derive(Clone, Debug)]
pub enum StorageValue {
    /// A word or a name in double quotes, also one that could be the name of a type.
    Word(Ident),
    /// A type.
    Type(TypeName),
    /// An operator.
    Operator(Operator),
    /// A number.
    Number(Number),
    /// A text.
    Text(Text),
}

/// An option of a command, in parentheses: `name [value]`.
#[derive(Clone, Debug)]
pub struct CommandOption {
    /// Its name.
    pub name: Ident,
    /// Its value.
    pub value: Option<Value>,
    /// Its place in the text.
    pub span: Span,
}

/// `name 'value'` of OPTIONS, which belong to foreign data, with ADD, SET or DROP in ALTER.
#[derive(Clone, Debug)]
pub struct ForeignOption {
    /// ADD, SET, DROP, if written.
    pub action: Option<Ident>,
    /// Its name.
    pub name: Ident,
    /// Its value; `None` for DROP.
    pub value: Option<Text>,
}

/// A role as a statement names it.
#[derive(Clone, Debug)]
pub struct RoleName {
    /// The role.
    pub kind: RoleKind,
    /// Its place in the text.
    pub span: Span,
}

/// The role of a [`RoleName`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// The role with the name.
    Named(String),
    /// PUBLIC: everybody.
    Public,
    /// CURRENT_USER.
    CurrentUser,
    /// CURRENT_ROLE.
    CurrentRole,
    /// SESSION_USER.
    SessionUser,
}

/// A function by its name and perhaps its parameters, in DROP, ALTER, GRANT and COMMENT.
#[derive(Clone, Debug)]
pub struct FunctionName {
    /// Its name.
    pub name: Name,
    /// The parameters in parentheses; `None` without parentheses.
    pub parameters: Option<Vec<super::Parameter>>,
}
