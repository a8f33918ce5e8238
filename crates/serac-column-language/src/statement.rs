//! The statements of the language: a variant for each kind, with its arguments.

pub use serac_engine::catalog::definition::IndexForm;
use std::fmt;

/// A table in full.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableName {
    /// The database.
    pub database: String,
    /// The table.
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.table)
    }
}

/// A column in full.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ColumnName {
    /// Its table.
    pub table: TableName,
    /// The column.
    pub column: String,
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.column)
    }
}

/// The source of values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A variable.
    Variable(String),
    /// All rows of a column.
    Column(ColumnName),
}

/// lo ≤ x < hi.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The smallest value that qualifies; `None` for no lower bound.
    pub lower: Option<i64>,
    /// The smallest value above those that qualify; `None` for no upper bound.
    pub upper: Option<i64>,
}

/// An aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The sum.
    Sum,
    /// The mean.
    Avg,
}

/// An operation on two vectors, element by element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combination {
    /// The sum.
    Add,
    /// The first less the second.
    Sub,
}

/// The algorithm of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinAlgorithm {
    /// The system chooses among the hash joins.
    Hash,
    /// Each with each.
    NestedLoop,
    /// Partitioned.
    GraceHash,
    /// One table.
    NaiveHash,
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// `create(db,"D")`
    CreateDatabase {
        /// Its name.
        name: String,
    },
    /// `create(tbl,"T",D,n)`
    CreateTable {
        /// Its name.
        name: TableName,
        /// The number of its columns.
        columns: u32,
    },
    /// `create(col,"C",D.T)`
    CreateColumn {
        /// Its name.
        name: ColumnName,
        /// `create(col,"C",D.T,sorted)`: with a clustered sorted index.
        sorted: bool,
    },
    /// `create(idx,D.T.C,F,K)`
    CreateIndex {
        /// Its column.
        column: ColumnName,
        /// Its form.
        form: IndexForm,
        /// Whether all columns follow its order.
        clustered: bool,
    },
    /// `load("path")`
    Load {
        /// The client's file.
        path: String,
    },
    /// `relational_insert(D.T,v1,…,vn)`
    Insert {
        /// The table.
        table: TableName,
        /// A value for each column.
        values: Vec<i64>,
    },
    /// `relational_delete(D.T,P)`
    Delete {
        /// The table.
        table: TableName,
        /// A position vector.
        positions: String,
    },
    /// `relational_update(D.T.C,P,v)`
    Update {
        /// The column.
        column: ColumnName,
        /// A position vector.
        positions: String,
        /// The new value.
        value: i64,
    },
    /// `P=select(X,lo,hi)`
    Select {
        /// The position vector.
        output: Option<String>,
        /// The values to select on.
        source: Operand,
        /// The values that qualify.
        bounds: Bounds,
    },
    /// `P=select(P0,V,lo,hi)`
    SelectAt {
        /// The position vector.
        output: Option<String>,
        /// A position vector.
        positions: String,
        /// Values that stand beside the positions, or a column.
        source: Operand,
        /// The values that qualify.
        bounds: Bounds,
    },
    /// `V=fetch(X,P)`
    Fetch {
        /// The value vector.
        output: Option<String>,
        /// The source of the values.
        source: Operand,
        /// A position vector.
        positions: String,
    },
    /// `s=min(V)`, and the like
    Aggregate {
        /// The scalar.
        output: Option<String>,
        /// The aggregate.
        aggregate: Aggregate,
        /// The values.
        source: Operand,
    },
    /// `P,s=min(P0,V)`, `P,s=max(P0,V)`
    Extreme {
        /// The position vector and the scalar.
        outputs: Option<[String; 2]>,
        /// Whether it is the largest value.
        largest: bool,
        /// A position vector; `None` for places within the values.
        positions: Option<String>,
        /// The values.
        source: Operand,
    },
    /// `V=add(V1,V2)`, `V=sub(V1,V2)`
    Combine {
        /// The value vector.
        output: Option<String>,
        /// The operation.
        operation: Combination,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
    },
    /// `P1,P2=join(V1,Q1,V2,Q2,how)`
    Join {
        /// The position vectors.
        outputs: Option<[String; 2]>,
        /// Values and a position vector.
        left: (Operand, String),
        /// Values and a position vector.
        right: (Operand, String),
        /// The algorithm.
        algorithm: JoinAlgorithm,
    },
    /// `print(a,b,…)`
    Print {
        /// The vectors.
        arguments: Vec<Operand>,
    },
    /// `batch_queries()`
    BatchQueries,
    /// `batch_execute()`
    BatchExecute,
    /// `single_core()`
    SingleCore,
    /// `single_core_execute()`
    SingleCoreExecute,
    /// `t=time()`, `d=time(t)`
    Time {
        /// The instant, or the duration.
        output: Option<String>,
        /// The instant from which the duration is measured.
        since: Option<String>,
    },
    /// `set(name,value)`
    Set {
        /// The setting's name.
        name: String,
        /// Its new value.
        value: String,
    },
    /// `info()`
    Info,
    /// `shutdown`
    Shutdown,
}

impl Statement {
    /// The command.
    pub fn command(&self) -> &'static str {
        match self {
            Self::CreateDatabase { .. }
            | Self::CreateTable { .. }
            | Self::CreateColumn { .. }
            | Self::CreateIndex { .. } => "create",
            Self::Load { .. } => "load",
            Self::Insert { .. } => "relational_insert",
            Self::Delete { .. } => "relational_delete",
            Self::Update { .. } => "relational_update",
            Self::Select { .. } | Self::SelectAt { .. } => "select",
            Self::Fetch { .. } => "fetch",
            Self::Aggregate { aggregate: Aggregate::Min, .. } | Self::Extreme { largest: false, .. } => "min",
            Self::Aggregate { aggregate: Aggregate::Max, .. } | Self::Extreme { largest: true, .. } => "max",
            Self::Aggregate { aggregate: Aggregate::Sum, .. } => "sum",
            Self::Aggregate { aggregate: Aggregate::Avg, .. } => "avg",
            Self::Combine { operation: Combination::Add, .. } => "add",
            Self::Combine { operation: Combination::Sub, .. } => "sub",
            Self::Join { .. } => "join",
            Self::Print { .. } => "print",
            Self::BatchQueries => "batch_queries",
            Self::BatchExecute => "batch_execute",
            Self::SingleCore => "single_core",
            Self::SingleCoreExecute => "single_core_execute",
            Self::Time { .. } => "time",
            Self::Set { .. } => "set",
            Self::Info => "info",
            Self::Shutdown => "shutdown",
        }
    }

    /// Whether it may stand in a batch: it reads, and changes nothing but variables.
    pub fn is_batchable(&self) -> bool {
        matches!(
            self,
            Self::Select { .. }
                | Self::SelectAt { .. }
                | Self::Fetch { .. }
                | Self::Aggregate { .. }
                | Self::Extreme { .. }
                | Self::Combine { .. }
                | Self::Join { .. }
        )
    }

    fn parts(&self) -> (Vec<&Operand>, Vec<&String>) {
        match self {
            Self::Select { source, .. } | Self::Aggregate { source, .. } => (vec![source], Vec::new()),
            Self::SelectAt { positions, source, .. } | Self::Fetch { positions, source, .. } => {
                (vec![source], vec![positions])
            }
            Self::Extreme { positions, source, .. } => (vec![source], positions.iter().collect()),
            Self::Combine { left, right, .. } => (vec![left, right], Vec::new()),
            Self::Join { left, right, .. } => (vec![&left.0, &right.0], vec![&left.1, &right.1]),
            Self::Print { arguments } => (arguments.iter().collect(), Vec::new()),
            Self::Delete { positions, .. } | Self::Update { positions, .. } => (Vec::new(), vec![positions]),
            Self::Time { since, .. } => (Vec::new(), since.iter().collect()),
            _ => Default::default(),
        }
    }

    /// The names of the variables that it reads: first those that stand for values, then those that
    /// stand for positions. Each group has the order of the text, with repeats.
    pub fn inputs(&self) -> Vec<&str> {
        let (operands, positions) = self.parts();
        let named = operands.into_iter().filter_map(|operand| match operand {
            Operand::Variable(name) => Some(name.as_str()),
            Operand::Column(_) => None,
        });
        named.chain(positions.into_iter().map(String::as_str)).collect()
    }

    /// The columns that it reads as a whole, or at positions, in the order in which they are
    /// written.
    pub fn columns(&self) -> Vec<&ColumnName> {
        let columns = self.parts().0.into_iter().filter_map(|operand| match operand {
            Operand::Column(column) => Some(column),
            Operand::Variable(_) => None,
        });
        columns.collect()
    }

    /// The names of the variables that it assigns.
    pub fn outputs(&self) -> &[String] {
        match self {
            Self::Select { output, .. }
            | Self::SelectAt { output, .. }
            | Self::Fetch { output, .. }
            | Self::Aggregate { output, .. }
            | Self::Combine { output, .. }
            | Self::Time { output, .. } => output.as_slice(),
            Self::Extreme { outputs, .. } | Self::Join { outputs, .. } => outputs.as_ref().map_or(&[], |names| names),
            _ => &[],
        }
    }
}
