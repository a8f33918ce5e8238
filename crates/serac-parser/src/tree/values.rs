//! What options and settings are set to, and the names of roles.

use super::{Ident, Name, Operator, Span, TypeName};

/// A text in quotes, unescaped.
#[derive(Clone, Debug)]
pub struct Text {
    /// What stands in the quotes.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A number with its sign.
#[derive(Clone, Debug)]
pub struct Number {
    /// `-` before it.
    pub negative: bool,
    /// Its digits, with a point and an exponent perhaps.
    pub digits: String,
    /// It has digits alone.
    pub is_whole: bool,
    /// Where it stands.
    pub span: Span,
}

impl Number {
    /// The value of a whole number; none if it has a fraction or does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        let sign = if self.negative { "-" } else { "" };
        if self.is_whole { format!("{sign}{}", self.digits).parse().ok() } else { None }
    }
}

/// What a setting or an option is set to.
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
    /// Behind `=`.
    pub value: Option<StorageValue>,
    /// Where it stands.
    pub span: Span,
}

/// The value of a [`StorageOption`].
#[derive(Clone, Debug)]
pub enum StorageValue {
    /// A word or a name in double quotes: what would be a type without anything behind it is here,
    /// too.
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
    /// Where it stands.
    pub span: Span,
}

/// `name 'value'` of OPTIONS, which belong to foreign data, with ADD, SET or DROP in ALTER.
#[derive(Clone, Debug)]
pub struct ForeignOption {
    /// ADD, SET, DROP, if said.
    pub action: Option<Ident>,
    /// Its name.
    pub name: Ident,
    /// Its value; none of DROP.
    pub value: Option<Text>,
}

/// A role, where it is named.
#[derive(Clone, Debug)]
pub struct RoleName {
    /// Which.
    pub kind: RoleKind,
    /// Where it stands.
    pub span: Span,
}

/// Which role a [`RoleName`] is.
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
    /// What stands in the parentheses; none without them.
    pub parameters: Option<Vec<super::Parameter>>,
}
