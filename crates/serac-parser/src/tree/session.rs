//! SET, SHOW, transactions, prepared statements, cursors, LISTEN.

use super::{Expr, Ident, IntervalFields, Name, Query, Span, Statement, Text, TypeName, Value};

/// SET.
#[derive(Clone, Debug)]
pub struct Set {
    /// LOCAL or SESSION, if written.
    pub scope: Option<SetScope>,
    /// The setting or the modes.
    pub change: SetChange,
}

/// The scope of SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetScope {
    /// LOCAL: the transaction.
    Local,
    /// SESSION.
    Session,
}

/// The subject of SET.
#[derive(Clone, Debug)]
pub enum SetChange {
    /// TRANSACTION …
    Transaction(Vec<TransactionMode>),
    /// TRANSACTION SNAPSHOT.
    Snapshot(Text),
    /// SESSION CHARACTERISTICS AS TRANSACTION …
    Characteristics(Vec<TransactionMode>),
    /// Any other.
    Setting(SetSetting),
}

/// A setting and its new value. Settings for which the grammar has words of its own have names
/// here: TIME ZONE is `timezone`, NAMES `client_encoding`, SCHEMA `search_path`, SESSION
/// AUTHORIZATION `session_authorization`, XML OPTION `xmloption`.
#[derive(Clone, Debug)]
pub struct SetSetting {
    /// `datafusion.execution.batch_size`.
    pub name: Name,
    /// The new value.
    pub value: SetValue,
}

/// The new value of a setting.
#[derive(Clone, Debug)]
pub enum SetValue {
    /// Values, at least one.
    List(Vec<Value>),
    /// DEFAULT, and LOCAL of TIME ZONE.
    Default,
    /// FROM CURRENT.
    Current,
    /// `INTERVAL '-08:00' HOUR TO MINUTE`, of TIME ZONE.
    Interval {
        /// The text in the quotes.
        text: Text,
        /// HOUR, MINUTE or HOUR TO MINUTE.
        fields: Option<IntervalFields>,
        /// Digits of seconds.
        precision: Option<u32>,
    },
}

/// RESET.
#[derive(Clone, Debug)]
pub enum Reset {
    /// ALL.
    All,
    /// One setting, with names as in [`SetSetting`]; TRANSACTION ISOLATION LEVEL is
    /// `transaction_isolation`.
    Setting(Name),
}

/// SET or RESET of a setting as part of another statement.
#[derive(Clone, Debug)]
pub enum SettingChange {
    /// SET.
    Set(SetChange),
    /// RESET.
    Reset(Reset),
}

/// SHOW.
#[derive(Clone, Debug)]
pub enum Show {
    /// ALL.
    All,
    /// One setting, with names as in [`Reset`].
    Setting(Name),
    /// `COLUMNS FROM t`, which is SeracDB's.
    Columns(Name),
}

/// SET CONSTRAINTS.
#[derive(Clone, Debug)]
pub struct SetConstraints {
    /// The constraints; empty for ALL.
    pub names: Vec<Name>,
    /// DEFERRED, not IMMEDIATE.
    pub deferred: bool,
}

/// A mode of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionMode {
    /// Its kind.
    pub kind: TransactionModeKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`TransactionMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionModeKind {
    /// ISOLATION LEVEL.
    Isolation(IsolationLevel),
    /// READ ONLY, or false for READ WRITE.
    ReadOnly(bool),
    /// DEFERRABLE or NOT DEFERRABLE.
    Deferrable(bool),
}

/// Levels of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SeracDB's SNAPSHOT.
    Snapshot,
    /// SERIALIZABLE.
    Serializable,
}

/// BEGIN, COMMIT and their kin.
#[derive(Clone, Debug)]
pub enum Transaction {
    /// BEGIN (false) or START TRANSACTION (true).
    Begin {
        /// START TRANSACTION.
        start: bool,
        /// Its modes.
        modes: Vec<TransactionMode>,
    },
    /// COMMIT or END.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK or ABORT.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT.
    Savepoint(Ident),
    /// RELEASE.
    Release(Ident),
    /// ROLLBACK TO.
    RollbackTo(Ident),
    /// PREPARE TRANSACTION.
    Prepare(Text),
    /// COMMIT PREPARED.
    CommitPrepared(Text),
    /// ROLLBACK PREPARED.
    RollbackPrepared(Text),
}

/// PREPARE.
#[derive(Clone, Debug)]
pub struct Prepare {
    /// Its name.
    pub name: Ident,
    /// Types of the first parameters.
    pub types: Vec<TypeName>,
    /// A query or a change.
    pub statement: Box<Statement>,
}

/// EXECUTE.
#[derive(Clone, Debug)]
pub struct Execute {
    /// Its name.
    pub name: Ident,
    /// Values of the parameters.
    pub arguments: Vec<Expr>,
}

/// DECLARE.
#[derive(Clone, Debug)]
pub struct DeclareCursor {
    /// Its name.
    pub name: Ident,
    /// BINARY.
    pub binary: bool,
    /// SCROLL or NO SCROLL, if written.
    pub scroll: Option<bool>,
    /// INSENSITIVE.
    pub insensitive: bool,
    /// ASENSITIVE.
    pub asensitive: bool,
    /// WITH HOLD.
    pub hold: bool,
    /// Its query.
    pub query: Box<Query>,
}

/// FETCH or MOVE.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// MOVE.
    pub moves: bool,
    /// The direction.
    pub direction: FetchDirection,
    /// The cursor.
    pub cursor: Ident,
}

/// The rows to which a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    /// This many rows on; back if negative. NEXT is 1, PRIOR is -1.
    Forward(i64),
    /// ALL, FORWARD ALL.
    ForwardAll,
    /// BACKWARD ALL.
    BackwardAll,
    /// To the row with the number, from the end if negative. FIRST is 1, LAST is -1.
    Absolute(i64),
    /// The one row that is this many rows on.
    Relative(i64),
}

/// DISCARD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// ALL.
    All,
    /// PLANS.
    Plans,
    /// SEQUENCES.
    Sequences,
    /// TEMPORARY.
    Temporary,
}

/// DO.
#[derive(Clone, Debug)]
pub struct Do {
    /// The code; PostgreSQL refuses more or fewer than one text later.
    pub code: Vec<Text>,
    /// LANGUAGE.
    pub languages: Vec<Ident>,
}
