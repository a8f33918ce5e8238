//! Table definitions from the parser's: columns, constraints, and the sequences that columns own.

use crate::ast_types::{serial_type, sql_type};
use crate::catalog::View;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::identifiers::{TEMPORARY_SCHEMA, fold};
use crate::nesting;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ConstraintReferenceMatchKind, DataType, DeferrableInitial, Expr, ForeignKeyConstraint,
    GeneratedAs, IndexColumn, NullsDistinctOption, ReferentialAction as ParsedAction, SequenceOptions, SqlOption,
    TableConstraint,
};
use serac_engine::Catalog;
use serac_engine::definition::{
    CheckDefinition, ColumnDefinition, ForeignKeyDefinition, KeyDefinition, ReferentialAction, SequenceDefinition,
    TableDefinition,
};
use serac_storage::FreezeFormat;
use std::collections::{BTreeSet, HashSet};

/// Parses an expression on its own.
pub(crate) fn parse_expression(sql: &str) -> Result<Expr> {
    let mut expr = parser(sql)?.parse_expr()?;
    nesting::balance(&mut expr);
    Ok(expr)
}

/// A table in the making, with the sequences that its columns own.
pub(super) struct TableBuilder {
    pub(super) definition: TableDefinition,
    pub(super) sequences: Vec<SequenceDefinition>,
    /// Indexes with expressions, which are made when the table is there.
    pub(super) expression_keys: Vec<KeyDefinition>,
    /// Foreign keys of `definition` whose parents are not looked up yet, and the columns they name.
    unresolved: Vec<(usize, Vec<String>)>,
    /// What the statement sees.
    view: View,
}

pub(super) fn columns_of(definition: &TableDefinition, names: impl Iterator<Item = String>) -> Result<Vec<usize>> {
    names
        .map(|name| {
            definition.column(&name).ok_or_else(|| {
                SqlError::new("42703", format!("column \"{name}\" named in key does not exist")).named(&name)
            })
        })
        .collect()
}

fn index_columns(columns: &[IndexColumn]) -> Result<Vec<String>> {
    columns
        .iter()
        .map(|column| match &column.column.expr {
            Expr::Identifier(ident) => Ok(fold(ident)),
            other => Err(SqlError::unsupported(format!("a key with the expression {other}"))),
        })
        .collect()
}

pub(super) fn integer(expr: &Expr) -> Result<i64> {
    expr.to_string().replace(' ', "").parse().map_err(|_| SqlError::new("22P02", format!("{expr} is not an integer")))
}

pub(super) fn sequence(
    name: String,
    options: &[SequenceOptions],
    column_type: serac_storage::ColumnType,
) -> Result<SequenceDefinition> {
    let mut definition = SequenceDefinition { id: 0, name, start: 0, increment: 1, min: 1, max: i64::MAX, owner: None };
    match column_type {
        serac_storage::ColumnType::Int16 => definition.max = i16::MAX.into(),
        serac_storage::ColumnType::Int32 => definition.max = i32::MAX.into(),
        _ => {}
    }
    let (mut start, mut min, mut max) = (None, None, None);
    for option in options {
        match option {
            SequenceOptions::IncrementBy(by, _) => definition.increment = integer(by)?,
            SequenceOptions::StartWith(with, _) => start = Some(integer(with)?),
            SequenceOptions::MinValue(Some(value)) => min = Some(integer(value)?),
            SequenceOptions::MaxValue(Some(value)) => max = Some(integer(value)?),
            SequenceOptions::MinValue(None) | SequenceOptions::MaxValue(None) | SequenceOptions::Cache(_) => {}
            SequenceOptions::Cycle(no) => {
                if !no {
                    return Err(SqlError::unsupported("CYCLE"));
                }
            }
        }
    }
    if definition.increment < 0 {
        (definition.min, definition.max) = (i64::MIN, -1);
    }
    definition.min = min.unwrap_or(definition.min);
    definition.max = max.unwrap_or(definition.max);
    definition.start = start.unwrap_or(if definition.increment < 0 { definition.max } else { definition.min });
    Ok(definition)
}

fn action(parsed: Option<ParsedAction>) -> ReferentialAction {
    match parsed {
        None | Some(ParsedAction::NoAction) => ReferentialAction::NoAction,
        Some(ParsedAction::Restrict) => ReferentialAction::Restrict,
        Some(ParsedAction::Cascade) => ReferentialAction::Cascade,
        Some(ParsedAction::SetNull) => ReferentialAction::SetNull,
        Some(ParsedAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

impl TableBuilder {
    pub(super) fn new(definition: TableDefinition, view: View) -> Self {
        Self { definition, sequences: Vec::new(), expression_keys: Vec::new(), unresolved: Vec::new(), view }
    }

    pub(super) fn own_sequence(&mut self, at: usize, options: &[SequenceOptions]) -> Result<()> {
        let table = &self.definition;
        let column = &table.columns[at];
        let name = format!("{}_{}_seq", table.name, column.name);
        let mut sequence = sequence(name.clone(), options, column.sql_type.column_type)?;
        sequence.owner = Some((table.name.clone(), column.name.clone()));
        let default = format!("nextval('{}.{name}')", table.schema);
        let column = &mut self.definition.columns[at];
        column.default = Some(default);
        column.nullable = false;
        self.sequences.push(sequence);
        Ok(())
    }

    pub(super) fn column(&mut self, column: &ColumnDef) -> Result<()> {
        let at = self.definition.columns.len();
        self.definition.columns.push(ColumnDefinition {
            name: fold(&column.name),
            sql_type: sql_type(&column.data_type)?,
            nullable: true,
            default: None,
            always_generated: false,
            generation: None,
            hidden: false,
        });
        if let DataType::Custom(custom, _) = &column.data_type
            && serial_type(&custom.to_string().to_lowercase()).is_some()
        {
            self.own_sequence(at, &[])?;
        }
        for option in &column.options {
            let constraint = option.name.as_ref().map(fold);
            match &option.option {
                // There is one collation.
                ColumnOption::Null | ColumnOption::Collation(_) => {}
                ColumnOption::NotNull => self.definition.columns[at].nullable = false,
                ColumnOption::Default(expr) => self.definition.columns[at].default = Some(expr.to_string()),
                ColumnOption::PrimaryKey(_) => self.key(constraint, vec![at], true),
                ColumnOption::Unique(_) => self.key(constraint, vec![at], false),
                ColumnOption::Check(check) => self.check(constraint, &check.expr)?,
                ColumnOption::ForeignKey(key) => self.foreign_key(constraint, vec![at], key)?,
                ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                    self.own_sequence(at, sequence_options.as_deref().unwrap_or_default())?;
                    self.definition.columns[at].always_generated = matches!(generated_as, GeneratedAs::Always);
                }
                ColumnOption::Generated { generation_expr: Some(expression), .. } => {
                    self.definition.columns[at].generation = Some(expression.to_string());
                }
                ColumnOption::Comment(_) => {}
                other => return Err(SqlError::unsupported(format!("the column option {other}"))),
            }
        }
        Ok(())
    }

    /// `base`, or `base` with the first number that makes it the name of a new constraint and of a new relation of the schema.
    pub(super) fn free_name(&self, base: String) -> String {
        let definition = &self.definition;
        let checks = definition.checks.iter().map(|c| &c.name);
        let foreign_keys = definition.foreign_keys.iter().map(|k| &k.name);
        let later = self.expression_keys.iter().map(|k| &k.name);
        let known = checks.chain(foreign_keys).chain(definition.index_names()).chain(later);
        let taken: HashSet<&String> = known.collect();
        let schema = self.view.schema(&definition.schema);
        let is_free = |name: &String| !taken.contains(name) && schema.is_none_or(|schema| schema.is_free(name));
        let numbered = (1..).map(|n| format!("{base}{n}"));
        std::iter::once(base.clone()).chain(numbered).find(is_free).expect("numbers do not end")
    }
    fn column_names(&self, columns: &[usize]) -> String {
        let names: Vec<_> = columns.iter().map(|&c| self.definition.columns[c].name.as_str()).collect();
        names.join("_")
    }

    /// The name of an index that is given none.
    pub(super) fn index_name(&self, columns: &[usize], primary: bool, constraint: bool) -> String {
        let (table, columns) = (&self.definition.name, self.column_names(columns));
        self.free_name(match (primary, constraint) {
            (true, _) => format!("{table}_pkey"),
            (_, true) => format!("{table}_{columns}_key"),
            _ => format!("{table}_{columns}_idx"),
        })
    }
    fn key(&mut self, name: Option<String>, columns: Vec<usize>, primary: bool) {
        let name = name.unwrap_or_else(|| self.index_name(&columns, primary, true));
        self.definition.keys.push(KeyDefinition {
            name,
            columns,
            unique: true,
            primary,
            constraint: true,
            ..Default::default()
        });
    }
    fn check(&mut self, name: Option<String>, expr: &Expr) -> Result<()> {
        let expression = expr.to_string();
        let table = &self.definition.name;
        let named: BTreeSet<usize> = named_columns(&self.definition, &expression)?.into_iter().collect();
        let base = match named.first().filter(|_| named.len() == 1) {
            Some(&only) => format!("{table}_{}_check", self.definition.columns[only].name),
            None => format!("{table}_check"),
        };
        let name = name.unwrap_or_else(|| self.free_name(base));
        self.definition.checks.push(CheckDefinition { name, expression });
        Ok(())
    }
    fn foreign_key(&mut self, name: Option<String>, columns: Vec<usize>, key: &ForeignKeyConstraint) -> Result<()> {
        if let Some(characteristics) = key.characteristics.as_ref().filter(|c| {
            c.deferrable == Some(true) || c.enforced == Some(false) || c.initially == Some(DeferrableInitial::Deferred)
        }) {
            return Err(SqlError::unsupported(format!("a foreign key that is {characteristics}")));
        }
        match key.match_kind {
            Some(ConstraintReferenceMatchKind::Partial) => return Err(SqlError::unsupported("MATCH PARTIAL")),
            Some(ConstraintReferenceMatchKind::Full) if columns.len() > 1 => {
                return Err(SqlError::unsupported("MATCH FULL over several columns"));
            }
            _ => {}
        }
        let name = name.unwrap_or_else(|| {
            self.free_name(format!("{}_{}_fkey", self.definition.name, self.column_names(&columns)))
        });
        let (mut parent_schema, parent_table) = self.view.locate(&key.foreign_table)?;
        let temporary = self.definition.schema == TEMPORARY_SCHEMA;
        if temporary && key.foreign_table.0.len() == 1 {
            parent_schema = TEMPORARY_SCHEMA.into();
        }
        if temporary != (parent_schema == TEMPORARY_SCHEMA) {
            let kind = if temporary { "temporary" } else { "permanent" };
            let message = format!("constraints on {kind} tables may reference only {kind} tables");
            return Err(SqlError::new("42P16", message));
        }
        self.unresolved.push((self.definition.foreign_keys.len(), key.referred_columns.iter().map(fold).collect()));
        self.definition.foreign_keys.push(ForeignKeyDefinition {
            name,
            columns,
            parent_schema,
            parent_table,
            parent_columns: Vec::new(),
            on_delete: action(key.on_delete),
            on_update: action(key.on_update),
        });
        Ok(())
    }

    /// Looks up the columns that foreign keys reference, once the whole table is known.
    pub(super) fn resolve_parents(&mut self, catalog: &Catalog) -> Result<()> {
        for (at, columns) in std::mem::take(&mut self.unresolved) {
            let key = &self.definition.foreign_keys[at];
            let own = key.parent_schema == self.definition.schema && key.parent_table == self.definition.name;
            let parent =
                if own { &self.definition } else { &catalog.table(&key.parent_schema, &key.parent_table)?.definition };
            let columns = if columns.is_empty() {
                let key = parent.primary_key().ok_or_else(|| {
                    SqlError::new("42704", format!("there is no primary key for referenced table \"{}\"", parent.name))
                })?;
                key.columns.clone()
            } else {
                columns_of(parent, columns.into_iter())?
            };
            if columns.len() != key.columns.len() {
                let message = "number of referencing and referenced columns for foreign key disagree";
                return Err(SqlError::new("42830", message));
            }
            self.definition.foreign_keys[at].parent_columns = columns;
        }
        Ok(())
    }

    pub(super) fn constraint(&mut self, constraint: &TableConstraint) -> Result<()> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = columns_of(&self.definition, index_columns(&key.columns)?.into_iter())?;
                self.key(key.name.as_ref().map(fold), columns, true);
            }
            TableConstraint::Unique(key) => {
                if key.nulls_distinct == NullsDistinctOption::NotDistinct {
                    return Err(SqlError::unsupported("NULLS NOT DISTINCT"));
                }
                let columns = columns_of(&self.definition, index_columns(&key.columns)?.into_iter())?;
                self.key(key.name.as_ref().map(fold), columns, false);
            }
            TableConstraint::Check(check) => self.check(check.name.as_ref().map(fold), &check.expr)?,
            TableConstraint::ForeignKey(key) => {
                let columns = columns_of(&self.definition, key.columns.iter().map(fold))?;
                self.foreign_key(key.name.as_ref().map(fold), columns, key)?;
            }
            other => return Err(SqlError::unsupported(format!("the constraint {other}"))),
        }
        Ok(())
    }
}

/// The target format that the storage parameters of a table name, if they do.
pub(super) fn freeze_format(options: &[SqlOption]) -> Result<Option<FreezeFormat>> {
    let mut format = None;
    for option in options {
        let (key, value) = match option {
            SqlOption::KeyValue { key, value } => (fold(key), value),
            other => return Err(SqlError::new("42601", format!("the storage parameter {other} has no value"))),
        };
        if key == "fillfactor" {
            // How full PostgreSQL makes its pages; rows are changed in place here.
            let percent = value.to_string().trim_matches('\'').parse().ok();
            match percent {
                Some(10..=100u8) => continue,
                _ => {
                    let message = format!("value {value} out of bounds for option \"fillfactor\": from 10 to 100");
                    return Err(SqlError::new("22023", message));
                }
            }
        }
        if key != "freeze_format" {
            return Err(SqlError::new("22023", format!("unrecognized parameter \"{key}\"")));
        }
        let name = match value {
            Expr::Identifier(name) => fold(name),
            Expr::Value(value) => value.value.clone().into_string().unwrap_or_else(|| value.to_string()),
            other => other.to_string(),
        };
        let parsed = name.parse().map_err(|detail| {
            SqlError::new("22023", format!("invalid value for parameter \"freeze_format\": {detail}"))
        })?;
        format = Some(parsed);
    }
    Ok(format)
}
