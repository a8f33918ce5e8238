//! ALTER.

use super::{
    ColumnConstraintKind, ColumnDefinition, ColumnType, ConstraintAttributes, DatabaseOption, Expr, ForeignOption,
    FunctionName, FunctionOption, Ident, KeptExpr, Name, Number, PartitionBounds, RoleName, RoutineKind,
    SequenceOption, SettingChange, Span, StorageOption, TableConstraint, Text, TypeName,
};

/// The word for the relation in ALTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// TABLE.
    Table,
    /// INDEX.
    Index,
    /// VIEW.
    View,
    /// MATERIALIZED VIEW.
    MaterializedView,
    /// SEQUENCE.
    Sequence,
}

/// ALTER of a relation.
#[derive(Clone, Debug)]
pub struct AlterRelation {
    /// The word for the relation.
    pub kind: RelationKind,
    /// IF EXISTS.
    pub if_exists: bool,
    /// The relation.
    pub name: Name,
    /// ONLY.
    pub only: bool,
    /// The changes; at least one.
    pub actions: Vec<AlterAction>,
}

/// A change of a relation.
#[derive(Clone, Debug)]
pub struct AlterAction {
    /// Its kind.
    pub kind: AlterActionKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of an [`AlterAction`].
#[derive(Clone, Debug)]
pub enum AlterActionKind {
    /// `ADD [COLUMN] [IF NOT EXISTS] …`.
    AddColumn {
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// The column.
        column: Box<ColumnDefinition>,
    },
    /// `DROP [COLUMN] [IF EXISTS] …`.
    DropColumn {
        /// IF EXISTS.
        if_exists: bool,
        /// The column.
        name: Ident,
        /// CASCADE.
        cascade: bool,
    },
    /// `ALTER [COLUMN] …`.
    AlterColumn {
        /// The column.
        name: Ident,
        /// The change of the column.
        change: Box<ColumnChange>,
    },
    /// `ALTER [COLUMN] 1 SET STATISTICS …`, of an index.
    AlterColumnNumber {
        /// The column's number, from 1.
        number: u32,
        /// SET STATISTICS.
        statistics: Number,
    },
    /// ADD of a constraint.
    AddConstraint(Box<TableConstraint>),
    /// ALTER CONSTRAINT.
    AlterConstraint(Ident, ConstraintAttributes),
    /// VALIDATE CONSTRAINT.
    ValidateConstraint(Ident),
    /// DROP CONSTRAINT.
    DropConstraint {
        /// IF EXISTS.
        if_exists: bool,
        /// Its name.
        name: Ident,
        /// CASCADE.
        cascade: bool,
    },
    /// RENAME TO.
    RenameTo(Ident),
    /// `RENAME [COLUMN] a TO b`.
    RenameColumn(Ident, Ident),
    /// `RENAME CONSTRAINT a TO b`.
    RenameConstraint(Ident, Ident),
    /// SET SCHEMA.
    SetSchema(Ident),
    /// OWNER TO.
    OwnerTo(RoleName),
    /// SET (…).
    SetOptions(Vec<StorageOption>),
    /// RESET (…).
    ResetOptions(Vec<StorageOption>),
    /// SET WITHOUT OIDS.
    SetWithoutOids,
    /// CLUSTER ON.
    ClusterOn(Ident),
    /// SET WITHOUT CLUSTER.
    SetWithoutCluster,
    /// SET LOGGED or SET UNLOGGED.
    SetLogged(bool),
    /// SET ACCESS METHOD.
    SetAccessMethod(Ident),
    /// SET TABLESPACE.
    SetTablespace(Ident),
    /// ENABLE or DISABLE TRIGGER or RULE.
    Enable(Enable),
    /// INHERIT.
    Inherit(Name),
    /// NO INHERIT.
    NoInherit(Name),
    /// OF.
    Of(Name),
    /// NOT OF.
    NotOf,
    /// REPLICA IDENTITY.
    ReplicaIdentity(ReplicaIdentity),
    /// ENABLE or DISABLE ROW LEVEL SECURITY.
    RowSecurity(bool),
    /// FORCE or NO FORCE ROW LEVEL SECURITY.
    ForceRowSecurity(bool),
    /// OPTIONS (…), of foreign tables.
    ForeignOptions(Vec<ForeignOption>),
    /// ATTACH PARTITION. An index has no bounds.
    AttachPartition(Name, Option<PartitionBounds>),
    /// DETACH PARTITION.
    DetachPartition {
        /// The partition.
        name: Name,
        /// CONCURRENTLY.
        concurrently: bool,
        /// FINALIZE.
        finalize: bool,
    },
    /// `[NO] DEPENDS ON EXTENSION e`; false with NO.
    DependsOnExtension(bool, Ident),
}

/// A change of a column.
#[derive(Clone, Debug)]
pub enum ColumnChange {
    /// SET DEFAULT, or `None` for DROP DEFAULT.
    Default(Option<KeptExpr>),
    /// SET NOT NULL, or false for DROP NOT NULL.
    NotNull(bool),
    /// DROP EXPRESSION; true with IF EXISTS.
    DropExpression(bool),
    /// SET STATISTICS.
    Statistics(Number),
    /// SET (…).
    SetOptions(Vec<StorageOption>),
    /// RESET (…).
    ResetOptions(Vec<StorageOption>),
    /// SET STORAGE.
    Storage(Ident),
    /// SET COMPRESSION.
    Compression(Ident),
    /// `ADD GENERATED … AS IDENTITY (…)`.
    AddIdentity {
        /// ALWAYS, not BY DEFAULT.
        always: bool,
        /// Options of its sequence.
        options: Vec<SequenceOption>,
    },
    /// SET GENERATED, SET of a sequence's option, RESTART; at least one.
    Identity(Vec<IdentityChange>),
    /// DROP IDENTITY; true with IF EXISTS.
    DropIdentity(bool),
    /// TYPE.
    Type {
        /// The new type.
        type_name: TypeName,
        /// COLLATE.
        collation: Option<Name>,
        /// USING.
        using: Option<KeptExpr>,
    },
    /// OPTIONS (…), of foreign tables.
    ForeignOptions(Vec<ForeignOption>),
}

/// A change of an identity column.
#[derive(Clone, Debug)]
pub enum IdentityChange {
    /// SET GENERATED ALWAYS, or false for BY DEFAULT.
    Generated(bool),
    /// SET of an option of its sequence, or RESTART.
    Option(SequenceOption),
}

/// ENABLE or DISABLE TRIGGER or RULE.
#[derive(Clone, Debug)]
pub struct Enable {
    /// ENABLE, not DISABLE.
    pub enabled: bool,
    /// ALWAYS or REPLICA, if written.
    pub mode: Option<Ident>,
    /// RULE, not TRIGGER.
    pub is_rule: bool,
    /// The triggers or rules.
    pub which: EnableWhich,
}

/// The triggers or rules of an [`Enable`].
#[derive(Clone, Debug)]
pub enum EnableWhich {
    /// The one with the name.
    Named(Ident),
    /// ALL.
    All,
    /// USER.
    User,
}

/// REPLICA IDENTITY.
#[derive(Clone, Debug)]
pub enum ReplicaIdentity {
    /// NOTHING.
    Nothing,
    /// FULL.
    Full,
    /// DEFAULT.
    Default,
    /// USING INDEX.
    Index(Ident),
}

/// `ALTER TABLE ALL IN TABLESPACE a [OWNED BY r] SET TABLESPACE b [NOWAIT]`, also of indexes and
/// materialized views.
#[derive(Clone, Debug)]
pub struct AlterAllInTablespace {
    /// The kind of the relations.
    pub kind: RelationKind,
    /// The tablespace in which they are.
    pub from: Ident,
    /// OWNED BY.
    pub owners: Vec<RoleName>,
    /// The tablespace to which they move.
    pub to: Ident,
    /// NOWAIT.
    pub nowait: bool,
}

/// ALTER SEQUENCE with options.
#[derive(Clone, Debug)]
pub struct AlterSequence {
    /// IF EXISTS.
    pub if_exists: bool,
    /// The sequence.
    pub name: Name,
    /// In their order; at least one.
    pub options: Vec<SequenceOption>,
}

/// A change that objects of many kinds have.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// RENAME TO.
    RenameTo(Ident),
    /// OWNER TO.
    OwnerTo(RoleName),
    /// SET SCHEMA.
    SetSchema(Ident),
    /// `[NO] DEPENDS ON EXTENSION e`; false with NO.
    DependsOnExtension(bool, Ident),
}

/// ALTER SCHEMA.
#[derive(Clone, Debug)]
pub struct AlterSchema {
    /// The schema.
    pub name: Ident,
    /// RENAME TO or OWNER TO.
    pub change: ObjectChange,
}

/// ALTER DATABASE.
#[derive(Clone, Debug)]
pub struct AlterDatabase {
    /// The database.
    pub name: Ident,
    /// The change.
    pub change: DatabaseChange,
}

/// A change of a database.
#[derive(Clone, Debug)]
pub enum DatabaseChange {
    /// Options.
    Options(Vec<DatabaseOption>),
    /// SET TABLESPACE.
    SetTablespace(Ident),
    /// REFRESH COLLATION VERSION.
    RefreshCollation,
    /// SET or RESET of a setting.
    Setting(SettingChange),
    /// RENAME TO or OWNER TO.
    Object(ObjectChange),
}

/// ALTER TYPE.
#[derive(Clone, Debug)]
pub struct AlterType {
    /// The type.
    pub name: Name,
    /// The change.
    pub change: TypeChange,
}

/// A change of a type.
#[derive(Clone, Debug)]
pub enum TypeChange {
    /// RENAME TO, OWNER TO, SET SCHEMA.
    Object(ObjectChange),
    /// ADD VALUE.
    AddValue {
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// The new value.
        value: Text,
        /// BEFORE (true) or AFTER another one.
        neighbor: Option<(bool, Text)>,
    },
    /// RENAME VALUE.
    RenameValue(Text, Text),
    /// RENAME ATTRIBUTE; true with CASCADE.
    RenameAttribute(Ident, Ident, bool),
    /// Changes of attributes.
    Attributes(Vec<AttributeChange>),
    /// SET (…), of a base type.
    Properties(Vec<StorageOption>),
}

/// A change of a composite type's attribute.
#[derive(Clone, Debug)]
pub enum AttributeChange {
    /// ADD ATTRIBUTE; true with CASCADE.
    Add(ColumnType, bool),
    /// DROP ATTRIBUTE.
    Drop {
        /// IF EXISTS.
        if_exists: bool,
        /// The attribute.
        name: Ident,
        /// CASCADE.
        cascade: bool,
    },
    /// ALTER ATTRIBUTE … TYPE.
    Type {
        /// The attribute.
        name: Ident,
        /// The new type.
        type_name: TypeName,
        /// COLLATE.
        collation: Option<Name>,
        /// CASCADE.
        cascade: bool,
    },
}

/// ALTER DOMAIN.
#[derive(Clone, Debug)]
pub struct AlterDomain {
    /// The domain.
    pub name: Name,
    /// The change.
    pub change: DomainChange,
}

/// A change of a domain.
#[derive(Clone, Debug)]
pub enum DomainChange {
    /// RENAME TO, OWNER TO, SET SCHEMA.
    Object(ObjectChange),
    /// SET DEFAULT, or `None` for DROP DEFAULT.
    Default(Option<Expr>),
    /// SET NOT NULL, or false for DROP NOT NULL.
    NotNull(bool),
    /// ADD of a constraint.
    AddConstraint(TableConstraint),
    /// DROP CONSTRAINT.
    DropConstraint {
        /// IF EXISTS.
        if_exists: bool,
        /// Its name.
        name: Ident,
        /// CASCADE.
        cascade: bool,
    },
    /// VALIDATE CONSTRAINT.
    ValidateConstraint(Ident),
    /// RENAME CONSTRAINT.
    RenameConstraint(Ident, Ident),
}

/// ALTER FUNCTION, PROCEDURE or ROUTINE.
#[derive(Clone, Debug)]
pub struct AlterFunction {
    /// The word for the routine.
    pub kind: RoutineKind,
    /// The routine.
    pub function: FunctionName,
    /// The change.
    pub change: FunctionChange,
}

/// A change of a function.
#[derive(Clone, Debug)]
pub enum FunctionChange {
    /// Options.
    Options(Vec<FunctionOption>),
    /// RENAME TO, OWNER TO, SET SCHEMA, DEPENDS ON EXTENSION.
    Object(ObjectChange),
}

impl ColumnConstraintKind {
    /// Whether it is an attribute of the constraint before it.
    pub fn is_attribute(&self) -> bool {
        matches!(self, Self::Deferrable(_) | Self::InitiallyDeferred(_))
    }
}
