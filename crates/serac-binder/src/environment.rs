//! The binder's questions to the session.

use crate::error::{BindError, Result};
use crate::statement::{ColumnOrigin, OutputColumn};
use crate::target::Target;
use crate::types::or_no_type;
use datafusion::arrow::datatypes::{Field, FieldRef, SchemaRef};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, Operator, ScalarUDF, TableSource, WindowUDF};
use serac_parser::tree;
use serac_pg::{ModifiedType, Signature, TypeId};
use std::sync::Arc;

/// A table or a view, as the binder sees it.
#[derive(Clone)]
pub struct Relation {
    /// The source of a scan.
    pub source: Arc<dyn TableSource>,
    /// The name under which it is scanned.
    pub name: datafusion::common::TableReference,
    /// The types of its columns, in their order; `None` for a type without a counterpart in
    /// PostgreSQL. A statement may pass such a column on, but not compute with it (0A000).
    pub types: Vec<Option<ModifiedType>>,
    /// The columns of its primary key, by their places; empty without a key.
    pub key: Vec<usize>,
    /// Its number (`pg_class.oid`); 0 without one.
    pub number: u32,
    /// The column of its source that has the places of rows; `None` if it has none.
    pub ctid: Option<usize>,
    /// Whether it has system columns in PostgreSQL: a view has none.
    pub has_system_columns: bool,
}

impl Relation {
    /// The system column `ctid`, over a plan whose columns are those of its scan.
    pub(crate) fn ctid(&self, plan: &LogicalPlan) -> Option<Expr> {
        Some(Expr::Column(Column::from(plan.schema().qualified_field(self.ctid?))))
    }

    /// The columns of its scan, named at a place in the statement.
    pub(crate) fn columns(&self, scan: &LogicalPlan, span: tree::Span) -> Vec<OutputColumn> {
        let columns = scan.schema().fields().iter().zip(&self.types).enumerate();
        let column = |(at, (field, of)): (usize, (&FieldRef, &Option<ModifiedType>))| {
            OutputColumn::new(field.name(), or_no_type(*of), span).from(ColumnOrigin::at(self.number, at))
        };
        columns.map(column).collect()
    }
}

/// A call that reads files, or a file's name in FROM.
pub struct FileCall<'t> {
    /// The function; `None` where a name stands in FROM.
    pub function: Option<&'t str>,
    /// Its arguments, with their names.
    pub arguments: Vec<(Option<&'t str>, Expr)>,
    /// The columns that the query gives it: `AS t(a int, b text)`.
    pub columns: &'t [tree::ColumnType],
    /// Its place in the text.
    pub span: tree::Span,
}

/// The implementation of a field of a time.
pub struct TimeField {
    /// The function of a time. It refuses an infinite time if the field is endless.
    pub function: Arc<ScalarUDF>,
    /// The field, if the function takes it as its first argument.
    pub argument: Option<String>,
    /// Whether the field of an infinite time is infinite: a year is, a month is not.
    pub is_endless: bool,
}

/// A function that the program around the database lends the session. Its types are exact: its name
/// is its own.
#[derive(Clone)]
pub struct LentFunction {
    /// The types of its arguments and of its value.
    pub signature: Signature,
    /// The code that computes it.
    pub computed_by: LentImplementation,
}

/// The code that computes a function that the program lends.
#[derive(Clone)]
pub enum LentImplementation {
    /// A function of rows.
    Scalar(Arc<ScalarUDF>),
    /// An aggregate.
    Aggregate(Arc<AggregateUDF>),
    /// Rows in FROM ([`Environment::lent_rows`]).
    Rows,
}

/// When a query of WITH is computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// If it is named several times, and that is worthwhile.
    Worthwhile,
    /// In any case, without regard to the conditions of those that read it: AS MATERIALIZED, and
    /// queries with volatile functions.
    Always,
}

/// The binder's questions to the session.
pub trait Environment {
    /// The relation of a name.
    ///
    /// # Errors
    /// If it does not exist, or if the binder cannot use it.
    fn relation(&self, name: &tree::Name) -> Result<Relation>;
    /// The schema in which the relation of a name without a schema is found, by which columns may
    /// name it as well: `s.t.a`. `None` if it stands in no schema.
    fn schema_of(&self, name: &tree::Ident) -> Option<String> {
        let _ = name;
        None
    }

    /// The table of a name that is to be changed.
    ///
    /// # Errors
    /// If it does not exist.
    fn target(&self, name: &tree::Name) -> Result<Target> {
        Err(BindError::unsupported("a change", name.span))
    }

    /// A relation of these columns whose rows appear while the statement runs. The first columns
    /// are those of `target`, if given: a role that may not read them there may not read them here.
    fn rows_to_come(&self, schema: SchemaRef, target: Option<&Target>) -> Arc<dyn TableSource> {
        let _ = target;
        Arc::new(LogicalTableSource::new(schema))
    }

    /// The digits, all and those behind the point, of NUMERIC parameters whose values all have
    /// these: they are then fixed numbers. By number from `$1` on.
    fn digits_of_parameters(&self) -> Vec<Option<(u8, i8)>> {
        Vec::new()
    }

    /// The type of a field of a row, or of a column, if it tells one that Arrow does not have.
    fn type_of_field(&self, field: &Field) -> Option<ModifiedType> {
        let _ = field;
        None
    }

    /// The dimensions of parameters that are arrays, by number from `$1` on; one for those that are
    /// missing at the end.
    fn dimensions_of_parameters(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The implementation of a function of single rows.
    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>>;
    /// The implementation of an aggregate.
    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>>;
    /// The function for arguments of these types, where DataFusion's own has other rules:
    /// `to_char`, `round` of floats. `None` if no implementation equals PostgreSQL's.
    fn scalar_of(&self, name: &str, signature: &Signature) -> Option<Arc<ScalarUDF>> {
        let _ = (name, signature);
        None
    }

    /// A value of a type as one of another type, by PostgreSQL's rules, if Arrow's cast has others:
    /// a float as a text, a text as a date. `None` if there is no implementation.
    ///
    /// # Errors
    /// The errors of the planner.
    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, schema: &DFSchema) -> Result<Option<Expr>> {
        let _ = (expr, from, to, schema);
        Ok(None)
    }

    /// A value of a type as one of another type, if the session's settings of times count: its time
    /// zone, `DateStyle` and `IntervalStyle`. `None` if they do not count, or have their defaults.
    /// A quoted constant stands at `span`.
    ///
    /// # Errors
    /// A constant is wrong: the error says how.
    fn cast_by_settings(
        &self,
        expr: &Expr,
        from: TypeId,
        to: TypeId,
        span: tree::Span,
        schema: &DFSchema,
    ) -> Result<Option<Expr>> {
        let _ = (expr, from, to, span, schema);
        Ok(None)
    }

    /// The implementation of a window function.
    fn window(&self, name: &str) -> Option<Arc<WindowUDF>>;
    /// The implementation of a field of a time, for `extract` or `date_part`. `None` if no
    /// implementation equals PostgreSQL's.
    fn date_part(&self, field: &str, is_extract: bool) -> Option<TimeField> {
        let _ = (field, is_extract);
        None
    }

    /// Whether it is the name of a table function in FROM that PostgreSQL does not have, or has
    /// with types that are not here.
    fn has_table_function(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The rows of a table function; `arguments` are constants. `None` if there is no such function
    /// for these.
    ///
    /// # Errors
    /// If the function exists but cannot be called with these arguments.
    fn table_function(&self, name: &str, arguments: &[Expr]) -> Result<Option<Relation>>;

    /// The function of a name that the program lends the session, if it lends one.
    ///
    /// # Errors
    /// If it cannot be called at this place of a statement, or in what is kept.
    fn lent_function(&self, name: &str, span: tree::Span) -> Result<Option<LentFunction>> {
        let _ = (name, span);
        Ok(None)
    }

    /// The rows of such a function in FROM, for arguments of its types.
    ///
    /// # Errors
    /// If the arguments are no constants.
    fn lent_rows(&self, name: &str, arguments: &[Expr], span: tree::Span) -> Result<Relation> {
        let _ = arguments;
        Err(BindError::unsupported(format!("function {name} in FROM"), span))
    }

    /// Whether it is the name of a function that reads files in FROM.
    fn reads_files(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The rows of files.
    ///
    /// # Errors
    /// If they cannot be read, or if the arguments do not fit them.
    fn files(&self, call: &FileCall<'_>) -> Result<Relation> {
        Err(BindError::unsupported("a file in FROM", call.span))
    }

    /// The rows that the last run of a recursive query has given, under its name in the plan.
    fn work_table(&self, name: &str, schema: SchemaRef) -> Option<Arc<dyn TableSource>> {
        let _ = (name, schema);
        None
    }

    /// The plan of a query of WITH, so marked that all places that name it can have the rows of one
    /// computation. It refers to no query around it.
    /// `None` if each place computes it.
    fn shared_query(&self, name: &str, plan: &LogicalPlan, sharing: Sharing) -> Option<LogicalPlan> {
        let _ = (name, plan, sharing);
        None
    }

    /// An operator's application to operands of the types that it takes. Numbers are there in their
    /// fixed form alone, and not divided.
    ///
    /// # Errors
    /// The errors of the planner.
    fn operate(&self, operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr>;
}
