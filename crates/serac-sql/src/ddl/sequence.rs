//! CREATE SEQUENCE and ALTER SEQUENCE, and the sequences of columns.

use super::clauses::refuse_any;
use crate::ast_types::sql_type;
use crate::ddl::clauses::done;
use crate::error::{Result, SqlError};
use crate::notices::Severity;
use crate::result::StatementResult;
use crate::session::Session;
use serac_engine::Catalog;
use serac_engine::catalog::definition::{ColumnDefinition, SequenceDefinition, SqlType, TableDefinition};
use serac_parser::tree::{
    AlterSequence, CreateSequence, Ident, Name, Number, Persistence, SequenceOption, SequenceOptionKind,
};
use serac_storage::ColumnType;

/// The options of a sequence.
#[derive(Default)]
pub(super) struct Options<'o> {
    pub(super) column_type: Option<ColumnType>,
    increment: Option<i64>,
    start: Option<i64>,
    /// An inner `None`: the default.
    min: Option<Option<i64>>,
    max: Option<Option<i64>>,
    pub(super) owned_by: Option<&'o Name>,
    /// An inner `None`: from its start.
    pub(super) restart: Option<Option<i64>>,
}

fn integer(number: &Number) -> Result<i64> {
    let shown = || format!("{}{}", if number.negative { "-" } else { "" }, number.digits);
    number.as_i64().ok_or_else(|| match number.is_whole {
        true => SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{}\" is out of range for type bigint", shown()),
        ),
        false => SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type bigint: \"{}\"", shown()),
        ),
    })
}

/// Notes the value of an option, which may be given once.
fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options")),
    }
}

impl<'o> Options<'o> {
    pub(super) fn of(options: &'o [SequenceOption]) -> Result<Self> {
        use SequenceOptionKind as K;
        let mut said = Self::default();
        for SequenceOption { kind, span: _ } in options {
            match kind {
                K::Type(of) => match sql_type(of)?.column_type {
                    whole @ (ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) => {
                        once(&mut said.column_type, whole)?;
                    }
                    _ => {
                        let message = "sequence type must be smallint, integer, or bigint";
                        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
                    }
                },
                K::Cache(count) if integer(count)? < 1 => {
                    let message = format!("CACHE ({}) must be greater than zero", integer(count)?);
                    return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
                }
                K::Increment(by) => once(&mut said.increment, integer(by)?)?,
                K::Start(with) => once(&mut said.start, integer(with)?)?,
                K::Min(value) => once(&mut said.min, value.as_ref().map(integer).transpose()?)?,
                K::Max(value) => once(&mut said.max, value.as_ref().map(integer).transpose()?)?,
                K::OwnedBy(column) => once(&mut said.owned_by, column)?,
                K::Restart(with) => once(&mut said.restart, with.as_ref().map(integer).transpose()?)?,
                K::Cycle(cycles) => refuse_any(&[("CYCLE", *cycles)])?,
                // The number of values that are taken at once does not show in a result.
                K::Cache(_) => {}
                K::Logged(_) => return Err(SqlError::unsupported("LOGGED or UNLOGGED of a sequence")),
                K::Name(_) => return Err(SqlError::unsupported("SEQUENCE NAME")),
            }
        }
        Ok(said)
    }

    /// A new sequence. Its usual bounds are those of the type and of its direction.
    pub(super) fn make(&self, name: String, column_type: ColumnType) -> SequenceDefinition {
        let increment = self.increment.unwrap_or(1);
        let (least, most) = bounds(increment, self.column_type.unwrap_or(column_type));
        let (min, max) = (self.min.flatten().unwrap_or(least), self.max.flatten().unwrap_or(most));
        let start = self.start.unwrap_or(if increment < 0 { max } else { min });
        SequenceDefinition { id: 0, name, start, increment, min, max, owner: None }
    }

    /// The definition with the new options; the rest stays.
    fn change(&self, known: SequenceDefinition) -> SequenceDefinition {
        let increment = self.increment.unwrap_or(known.increment);
        let (least, most) = bounds(increment, self.column_type.unwrap_or(ColumnType::Int64));
        // If the type changes, a bound of the old type becomes that of the new one.
        let own = self.column_type.map(range);
        let types = [ColumnType::Int16, ColumnType::Int32, ColumnType::Int64].map(range);
        let (is_least, is_most) = (types.iter().any(|of| of.0 == known.min), types.iter().any(|of| of.1 == known.max));
        let min = own.filter(|_| is_least).map_or(known.min, |own| own.0);
        let max = own.filter(|_| is_most).map_or(known.max, |own| own.1);
        SequenceDefinition {
            increment,
            start: self.start.unwrap_or(known.start),
            min: self.min.map_or(min, |min| min.unwrap_or(least)),
            max: self.max.map_or(max, |max| max.unwrap_or(most)),
            ..known
        }
    }

    /// Refuses bounds that the type does not have.
    fn check_bounds(&self, definition: &SequenceDefinition) -> Result<()> {
        let Some(column_type) = self.column_type else { return Ok(()) };
        let (least, most) = range(column_type);
        let wrong = |what: &str, value: i64| {
            let sql_type = SqlType::from(column_type);
            let message = format!("{what} ({value}) is out of range for sequence data type {sql_type}");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        };
        match (definition.min, definition.max) {
            (_, max) if !(least..=most).contains(&max) => wrong("MAXVALUE", max),
            (min, _) if !(least..=most).contains(&min) => wrong("MINVALUE", min),
            _ => Ok(()),
        }
    }
}

/// The numbers of a type.
fn range(column_type: ColumnType) -> (i64, i64) {
    match column_type {
        ColumnType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The default of a column that takes its values from a sequence of its own.
pub(super) fn default_from(schema: &str, sequence: &str) -> String {
    format!("nextval('{schema}.{sequence}')")
}

/// Whether a column is the identity whose values the sequence of a name gives.
fn is_identity_from(column: &ColumnDefinition, schema: &str, sequence: &str) -> bool {
    column.is_identity() && column.default.as_ref().is_some_and(|text| *text == default_from(schema, sequence))
}

/// The sequence that gives the values of an identity column, of a table in the same schema.
pub(super) fn identity_sequence<'c>(
    catalog: &'c Catalog,
    schema: &str,
    column: &ColumnDefinition,
) -> Result<Option<&'c SequenceDefinition>> {
    let mut definitions = catalog.schema(schema)?.sequences.values().map(|sequence| &sequence.definition);
    Ok(definitions.find(|sequence| is_identity_from(column, schema, &sequence.name)))
}

/// The usual bounds of a sequence.
fn bounds(increment: i64, column_type: ColumnType) -> (i64, i64) {
    let (least, most) = range(column_type);
    if increment < 0 { (least, -1) } else { (1, most) }
}

impl Session {
    /// CREATE SEQUENCE.
    pub(super) fn create_sequence(&mut self, create: &CreateSequence) -> Result<StatementResult> {
        // All sequences are logged.
        let CreateSequence { persistence, if_not_exists, name, options } = create;
        refuse_any(&[("a temporary sequence", *persistence == Persistence::Temporary)])?;
        let options = Options::of(options)?;
        if options.restart.is_some() {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "RESTART is an option of ALTER SEQUENCE"));
        }
        let (schema, name) = self.locate_new(name)?;
        if *if_not_exists && self.txn()?.catalog().sequence(&schema, &name).is_ok() {
            self.say_exists(sqlstate::DUPLICATE_TABLE, &format!("relation \"{name}\""));
            return done("CREATE SEQUENCE");
        }
        let mut definition = options.make(name, ColumnType::Int64);
        options.check_bounds(&definition)?;
        definition.owner = self.sequence_owner(options.owned_by, &schema, None)?;
        self.txn()?.create_sequence(&schema, definition)?;
        done("CREATE SEQUENCE")
    }

    /// The table and column of OWNED BY; where that is not said, those of before.
    fn sequence_owner(
        &self,
        owned_by: Option<&Name>,
        schema: &str,
        before: Option<(String, String)>,
    ) -> Result<Option<(String, String)>> {
        let Some(owned_by) = owned_by else { return Ok(before) };
        let Some((Ident { name: column, .. }, table)) = owned_by.parts.split_last() else { return Ok(None) };
        if table.is_empty() && column == "none" {
            return Ok(None);
        }
        if table.is_empty() {
            let error = SqlError::new(sqlstate::SYNTAX_ERROR, "invalid OWNED BY option");
            return Err(error.explained("Specify OWNED BY table.column or OWNED BY NONE."));
        }
        let table = self.table(&Name { parts: table.to_vec(), span: owned_by.span })?;
        if table.definition.schema != schema {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "sequence must be in same schema as table it is linked to",
            ));
        }
        match table.definition.column(column) {
            Some(_) => Ok(Some((table.name().to_owned(), column.clone()))),
            None => Err(SqlError::no_column(column, table.name())),
        }
    }

    /// The table and the column of the identity whose values a sequence gives.
    fn identity_of(&mut self, schema: &str, sequence: &str) -> Result<Option<(String, String)>> {
        let catalog = self.txn_for(schema)?.catalog();
        let Some((table, name)) = &catalog.sequence(schema, sequence)?.definition.owner else { return Ok(None) };
        let columns = &catalog.table(schema, table)?.definition.columns;
        let is_identity = |column: &&ColumnDefinition| is_identity_from(column, schema, sequence);
        let column = columns.iter().filter(|column| column.name == *name).find(is_identity);
        Ok(column.map(|column| (table.clone(), column.name.clone())))
    }

    /// Refuses to drop a sequence without which an identity column cannot be.
    ///
    /// # Errors
    /// 2BP01.
    pub(super) fn check_not_required(&mut self, schema: &str, sequence: &str) -> Result<()> {
        let Some((table, column)) = self.identity_of(schema, sequence)? else { return Ok(()) };
        let column = format!("column \"{column}\" of table \"{table}\"");
        let message = format!("cannot drop sequence \"{sequence}\" because {column} requires it");
        let error = SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message);
        Err(error.explained(format!("You can drop {column} instead.")))
    }

    /// The sequence that gives the values of an identity column.
    fn identity_sequence(&mut self, table: &TableDefinition, at: usize) -> Result<Option<SequenceDefinition>> {
        let catalog = self.txn_for(&table.schema)?.catalog();
        Ok(identity_sequence(catalog, &table.schema, &table.columns[at])?.cloned())
    }

    /// Gives the sequence of an identity column the column's new type.
    pub(super) fn retype_identity(
        &mut self,
        table: &TableDefinition,
        at: usize,
        column_type: ColumnType,
    ) -> Result<()> {
        let Some(known) = self.identity_sequence(table, at)? else { return Ok(()) };
        let options = Options { column_type: Some(column_type), ..Options::default() };
        let definition = options.change(known);
        options.check_bounds(&definition)?;
        Ok(self.txn_for(&table.schema)?.alter_sequence(&table.schema, definition, None)?)
    }

    /// ALTER COLUMN … DROP IDENTITY: the sequence goes, and NOT NULL stays.
    pub(super) fn drop_identity(&mut self, table: &TableDefinition, at: usize, if_exists: bool) -> Result<()> {
        let (schema, name, column) = (&table.schema, &table.name, &table.columns[at].name);
        if !table.columns[at].is_identity() {
            let message = format!("column \"{column}\" of relation \"{name}\" is not an identity column");
            if !if_exists {
                return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            self.say(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
            return Ok(());
        }
        let sequence = self.identity_sequence(table, at)?;
        self.txn_for(schema)?.alter_column(schema, name, column, |column| {
            column.default = None;
            (column.always_generated, column.identity_by_default) = (false, false);
        })?;
        let Some(SequenceDefinition { name: sequence, .. }) = sequence else { return Ok(()) };
        self.drop_defaults_of(&(schema.clone(), sequence.clone()), false)?;
        Ok(self.txn_for(schema)?.drop_sequence(schema, &sequence)?)
    }

    /// ALTER SEQUENCE with options.
    pub(super) fn alter_sequence(&mut self, alter: &AlterSequence) -> Result<StatementResult> {
        let AlterSequence { if_exists, name, options } = alter;
        let options = Options::of(options)?;
        let (schema, name) = self.locate(name)?;
        let known = match self.txn()?.catalog().sequence(&schema, &name) {
            Ok(known) => known.definition.clone(),
            Err(_) if *if_exists => {
                self.say_missing(&format!("relation \"{name}\""));
                return done("ALTER SEQUENCE");
            }
            Err(error) => return Err(error.into()),
        };
        if let (Some(_), Some((table, _))) = (options.owned_by, self.identity_of(&schema, &name)?) {
            let message = "cannot change ownership of identity sequence";
            let error = SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message);
            return Err(error.explained(format!("Sequence \"{name}\" is linked to table \"{table}\".")));
        }
        let owner = self.sequence_owner(options.owned_by, &schema, known.owner.clone())?;
        let definition = options.change(known);
        options.check_bounds(&definition)?;
        let restart = options.restart.map(|with| with.unwrap_or(definition.start));
        self.txn()?.alter_sequence(&schema, SequenceDefinition { owner, ..definition }, restart)?;
        done("ALTER SEQUENCE")
    }
}
