//! Privileges, their objects, and grants with grantor and grantee.

use super::RoleId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A privilege of a role on an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// Read rows of a table or view; the last value of a sequence.
    Select,
    /// Insert rows.
    Insert,
    /// Change rows; set a sequence.
    Update,
    /// Delete rows.
    Delete,
    /// Empty a table.
    Truncate,
    /// Make a foreign key that references a table.
    References,
    /// Find the objects of a schema; draw from a sequence.
    Usage,
    /// Make an object in a schema, or a schema in the database.
    Create,
    /// Connect to the database.
    Connect,
    /// Make temporary tables.
    Temporary,
    /// Call a procedure or a function.
    Execute,
}

impl Privilege {
    /// All, in the order in which PostgreSQL shows them.
    pub const ALL: [Self; 11] = [
        Self::Insert,
        Self::Select,
        Self::Update,
        Self::Delete,
        Self::Truncate,
        Self::References,
        Self::Execute,
        Self::Usage,
        Self::Create,
        Self::Temporary,
        Self::Connect,
    ];

    /// The word in GRANT.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::References => "REFERENCES",
            Self::Usage => "USAGE",
            Self::Create => "CREATE",
            Self::Connect => "CONNECT",
            Self::Temporary => "TEMPORARY",
            Self::Execute => "EXECUTE",
        }
    }

    /// The letter in PostgreSQL's lists of privileges.
    pub const fn letter(self) -> char {
        match self {
            Self::Select => 'r',
            Self::Insert => 'a',
            Self::Update => 'w',
            Self::Delete => 'd',
            Self::Truncate => 'D',
            Self::References => 'x',
            Self::Usage => 'U',
            Self::Create => 'C',
            Self::Connect => 'c',
            Self::Temporary => 'T',
            Self::Execute => 'X',
        }
    }

    /// The privilege with this word in GRANT, in capitals or not.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("temp") { "temporary" } else { name };
        Self::ALL.into_iter().find(|privilege| privilege.name().eq_ignore_ascii_case(name))
    }
}

/// A set of privileges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Privileges(u16);

impl Privileges {
    /// No privilege.
    pub const NONE: Self = Self(0);
    /// The set of these privileges.
    pub const fn of(privileges: &[Privilege]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < privileges.len() {
            bits |= 1 << privileges[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// Whether `privilege` is in the set.
    pub const fn contains(self, privilege: Privilege) -> bool {
        self.0 & (1 << privilege as u16) != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The privileges that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The privileges that are in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The privileges without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The single privileges.
    pub fn iter(self) -> impl Iterator<Item = Privilege> {
        Privilege::ALL.into_iter().filter(move |privilege| self.contains(*privilege))
    }
}

impl fmt::Debug for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// An object that privileges are on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Object {
    /// The database.
    Database,
    /// A schema.
    Schema(String),
    /// A table, view or sequence, by its schema and name.
    Relation(String, String),
    /// A stored procedure.
    Procedure(String),
    /// A function that a user has made.
    Function(String),
}

impl Object {
    /// A table, view or sequence.
    pub fn relation(schema: &str, name: &str) -> Self {
        Self::Relation(schema.to_owned(), name.to_owned())
    }

    /// The last part of its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Database => "serac",
            Self::Schema(name) | Self::Relation(_, name) | Self::Procedure(name) | Self::Function(name) => name,
        }
    }
}

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObjectKind {
    /// The database.
    Database,
    /// A schema.
    Schema,
    /// A table.
    Table,
    /// A view.
    View,
    /// A sequence.
    Sequence,
    /// A table of another server.
    ForeignTable,
    /// A stored procedure.
    Procedure,
    /// A function that a user has made.
    Function,
}

impl ObjectKind {
    /// The privileges that there are on it.
    pub const fn privileges(self) -> Privileges {
        use Privilege::{
            Connect, Create, Delete, Execute, Insert, References, Select, Temporary, Truncate, Update, Usage,
        };
        match self {
            Self::Database => Privileges::of(&[Create, Connect, Temporary]),
            Self::Schema => Privileges::of(&[Usage, Create]),
            Self::Table | Self::View | Self::ForeignTable => {
                Privileges::of(&[Select, Insert, Update, Delete, Truncate, References])
            }
            Self::Sequence => Privileges::of(&[Usage, Select, Update]),
            Self::Procedure | Self::Function => Privileges::of(&[Execute]),
        }
    }

    /// The privileges that may be granted on columns.
    pub const fn column_privileges(self) -> Privileges {
        use Privilege::{Insert, References, Select, Update};
        match self {
            Self::Table | Self::View | Self::ForeignTable => Privileges::of(&[Select, Insert, Update, References]),
            _ => Privileges::NONE,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Schema => "schema",
            Self::Table => "table",
            Self::View => "view",
            Self::Sequence => "sequence",
            Self::ForeignTable => "foreign table",
            Self::Procedure => "procedure",
            Self::Function => "function",
        })
    }
}

/// Privileges on an object, or on one of its columns, that one role has from another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The role that has the privileges; [`RoleId::PUBLIC`] stands for everybody.
    pub grantee: RoleId,
    /// The role that gave them: the owner, or a role that had them with grant option.
    pub grantor: RoleId,
    /// The column, if they are on a single one.
    pub column: Option<String>,
    /// The granted privileges.
    pub privileges: Privileges,
    /// The part of them that the grantee may grant to others.
    pub grantable: Privileges,
}

/// Default privileges: granted on objects that a role will make (ALTER DEFAULT PRIVILEGES).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultGrant {
    /// The role that makes the objects.
    pub owner: RoleId,
    /// The schema; `None` for all.
    pub schema: Option<String>,
    /// The objects' kind; tables stand for views, too.
    pub kind: ObjectKind,
    /// The role that gets the privileges.
    pub grantee: RoleId,
    /// The privileges.
    pub privileges: Privileges,
    /// The part of the privileges that the grantee may grant to others.
    pub grantable: Privileges,
}
