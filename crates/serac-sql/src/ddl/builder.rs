//! Table definitions from the parser's: columns, constraints, and the sequences that columns own.

use super::clauses::{check_attributes, check_collation, check_identity_type, check_key_storage, refuse_any};
use super::sequence::{Options, default_from};
use crate::ast_types::{serial_type, sql_type};
use crate::ddl::clauses::{check_indexed, text_at};
use crate::error::{Result, SqlError};
use crate::expressions::named_columns;
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::parsed::Source;
use crate::statement_snapshot::StatementSnapshot;
use serac_engine::Catalog;
use serac_engine::catalog::definition::{
    CheckDefinition, ColumnDefinition, ForeignKeyDefinition, KeyDefinition, ReferentialAction, SequenceDefinition,
    TableDefinition,
};
use serac_engine::security::Object;
use serac_parser::tree::{
    self, ColumnConstraint, ColumnConstraintKind, Ident, KeptExpr, KeyAction, References, SequenceOption,
    TableConstraint, TableConstraintKind,
};
use std::collections::{BTreeSet, HashSet};

/// A table in the making, with the sequences that its columns own.
pub(super) struct TableBuilder<'s> {
    pub(super) definition: TableDefinition,
    pub(super) sequences: Vec<SequenceDefinition>,
    /// Indexes with expressions, which are made when the table is there.
    pub(super) expression_keys: Vec<KeyDefinition>,
    /// Foreign keys of `definition` whose parents are not resolved yet, and the columns they name.
    unresolved: Vec<(usize, Vec<String>)>,
    /// The texts of expressions that the statement itself has.
    pub(super) written: HashSet<String>,
    /// What the statement sees.
    pub(super) view: StatementSnapshot,
    /// Where the texts of expressions are.
    source: &'s Source,
}

pub(super) fn columns_of(definition: &TableDefinition, names: impl Iterator<Item = String>) -> Result<Vec<usize>> {
    names
        .map(|name| {
            definition.column(&name).ok_or_else(|| {
                SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
                    .named(&name)
            })
        })
        .collect()
}

/// The names of columns.
pub(super) fn names(columns: &[Ident]) -> impl Iterator<Item = String> + '_ {
    columns.iter().map(|column| column.name.clone())
}

fn action(action: Option<&KeyAction>) -> Result<ReferentialAction> {
    Ok(match action {
        None | Some(KeyAction::NoAction) => ReferentialAction::NoAction,
        Some(KeyAction::Restrict) => ReferentialAction::Restrict,
        Some(KeyAction::Cascade) => ReferentialAction::Cascade,
        Some(KeyAction::SetNull(columns)) if columns.is_empty() => ReferentialAction::SetNull,
        Some(KeyAction::SetDefault(columns)) if columns.is_empty() => ReferentialAction::SetDefault,
        Some(KeyAction::SetNull(_) | KeyAction::SetDefault(_)) => {
            return Err(SqlError::unsupported("an action of a foreign key on a part of its columns"));
        }
    })
}

impl<'s> TableBuilder<'s> {
    pub(super) fn new(definition: TableDefinition, view: StatementSnapshot, source: &'s Source) -> Self {
        Self {
            definition,
            sequences: Vec::new(),
            expression_keys: Vec::new(),
            unresolved: Vec::new(),
            written: HashSet::new(),
            view,
            source,
        }
    }

    /// The text of an expression as the user has written it.
    fn text_of(&mut self, kept: &KeptExpr) -> String {
        let text = text_at(self.source, kept.text).to_owned();
        self.written.insert(text.clone());
        text
    }

    pub(super) fn own_sequence(&mut self, at: usize, options: &[SequenceOption]) -> Result<()> {
        let options = Options::of(options)?;
        refuse_any(&[
            ("AS of an identity column", options.column_type.is_some()),
            ("OWNED BY of an identity column", options.owned_by.is_some()),
            ("RESTART of a new column", options.restart.is_some()),
        ])?;
        let table = &self.definition;
        let column = &table.columns[at];
        let column_type = column.sql_type.column_type;
        check_identity_type(column.sql_type)?;
        if column.default.is_some() {
            let what = format!("for column \"{}\" of table \"{}\"", column.name, table.name);
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("both default and identity specified {what}")));
        }
        let name = format!("{}_{}_seq", table.name, column.name);
        let mut sequence = options.make(name.clone(), column_type);
        sequence.owner = Some((table.name.clone(), column.name.clone()));
        let default = default_from(&table.schema, &name);
        let column = &mut self.definition.columns[at];
        column.default = Some(default);
        column.nullable = false;
        self.sequences.push(sequence);
        Ok(())
    }

    pub(super) fn column(&mut self, column: &tree::ColumnDefinition) -> Result<()> {
        let tree::ColumnDefinition { name, type_name, compression, foreign_options, constraints, span: _ } = column;
        refuse_any(&[("COMPRESSION", compression.is_some()), ("OPTIONS of a column", !foreign_options.is_empty())])?;
        let Some(type_name) = type_name else { return Err(SqlError::unsupported("a column without a type")) };
        let serial = serial_type(type_name);
        let at = self.definition.columns.len();
        let of_relation = |error: SqlError| {
            let found = self.view.locate(&type_name.name);
            let is_there = found.is_ok_and(|(schema, short)| {
                self.view.of(&schema).0.kind_of(&Object::relation(&schema, &short)).is_some()
            });
            match error.sqlstate == sqlstate::UNDEFINED_OBJECT && is_there {
                true => SqlError::unsupported(format!("a column of rows of relation \"{}\"", type_name.name)),
                false => error,
            }
        };
        let sql_type = match serial {
            Some(integer) => integer.into(),
            None => sql_type(type_name).map_err(of_relation)?,
        };
        self.definition.columns.push(ColumnDefinition {
            name: name.name.clone(),
            sql_type,
            nullable: true,
            default: None,
            always_generated: false,
            identity_by_default: false,
            generation: None,
            hidden: false,
        });
        if serial.is_some() {
            self.own_sequence(at, &[])?;
        }
        for ColumnConstraint { name, kind, span: _ } in constraints {
            let name = name.as_ref().map(|name| name.name.clone());
            match kind {
                ColumnConstraintKind::Null => {}
                ColumnConstraintKind::NotNull => self.definition.columns[at].nullable = false,
                ColumnConstraintKind::Collate(collation) => check_collation(collation)?,
                ColumnConstraintKind::Default(value) => self.default(at, value)?,
                ColumnConstraintKind::PrimaryKey(storage) => {
                    check_key_storage(storage)?;
                    self.key(name, vec![at], true)?;
                }
                ColumnConstraintKind::Unique { nulls_distinct, storage } => {
                    check_key_storage(storage)?;
                    refuse_any(&[("NULLS NOT DISTINCT", *nulls_distinct == Some(false))])?;
                    self.key(name, vec![at], false)?;
                }
                ColumnConstraintKind::Check { condition, no_inherit } => {
                    refuse_any(&[("NO INHERIT", *no_inherit)])?;
                    self.check(name, condition)?;
                }
                ColumnConstraintKind::References(references) => self.foreign_key(name, vec![at], references)?,
                ColumnConstraintKind::Identity { always, options } => {
                    self.own_sequence(at, options)?;
                    let column = &mut self.definition.columns[at];
                    (column.always_generated, column.identity_by_default) = (*always, !*always);
                }
                ColumnConstraintKind::Generated(value) => {
                    self.definition.columns[at].generation = Some(self.text_of(value));
                }
                ColumnConstraintKind::Deferrable(deferrable) => {
                    refuse_any(&[("a constraint that is DEFERRABLE", *deferrable)])?;
                }
                ColumnConstraintKind::InitiallyDeferred(deferred) => {
                    refuse_any(&[("a constraint that is INITIALLY DEFERRED", *deferred)])?;
                }
            }
        }
        Ok(())
    }

    fn default(&mut self, at: usize, value: &KeptExpr) -> Result<()> {
        let text = self.text_of(value);
        let table = &self.definition.name;
        let column = &self.definition.columns[at];
        if column.default.is_some() {
            let what = format!("for column \"{}\" of table \"{table}\"", column.name);
            let twice = match column.is_identity() {
                true => "both default and identity",
                false => "multiple default values",
            };
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("{twice} specified {what}")));
        }
        self.definition.columns[at].default = Some(text);
        Ok(())
    }

    /// `base`, or `base` with the first number that makes it the name of a new constraint and of a
    /// new relation of the schema.
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

    /// The name of an index without a given one.
    pub(super) fn index_name(&self, columns: &[usize], primary: bool, constraint: bool) -> String {
        let (table, columns) = (&self.definition.name, self.column_names(columns));
        self.free_name(match (primary, constraint) {
            (true, _) => format!("{table}_pkey"),
            (_, true) => format!("{table}_{columns}_key"),
            _ => format!("{table}_{columns}_idx"),
        })
    }

    fn key(&mut self, name: Option<String>, columns: Vec<usize>, primary: bool) -> Result<()> {
        check_indexed(&self.definition, &columns)?;
        let name = name.unwrap_or_else(|| self.index_name(&columns, primary, true));
        self.definition.keys.push(KeyDefinition {
            name,
            columns,
            unique: true,
            primary,
            constraint: true,
            ..Default::default()
        });
        Ok(())
    }

    fn check(&mut self, name: Option<String>, condition: &KeptExpr) -> Result<()> {
        let expression = self.text_of(condition);
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

    fn foreign_key(&mut self, name: Option<String>, columns: Vec<usize>, references: &References) -> Result<()> {
        let References { table, columns: referred, match_full, on_update, on_delete } = references;
        refuse_any(&[("MATCH FULL over several columns", *match_full && columns.len() > 1)])?;
        let name = name.unwrap_or_else(|| {
            self.free_name(format!("{}_{}_fkey", self.definition.name, self.column_names(&columns)))
        });
        let (mut parent_schema, parent_table) = self.view.locate(table)?;
        let temporary = self.definition.schema == TEMPORARY_SCHEMA;
        if temporary && table.parts.len() == 1 {
            parent_schema = TEMPORARY_SCHEMA.into();
        }
        if temporary != (parent_schema == TEMPORARY_SCHEMA) {
            let kind = if temporary { "temporary" } else { "permanent" };
            let message = format!("constraints on {kind} tables may reference only {kind} tables");
            return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
        }
        self.unresolved.push((self.definition.foreign_keys.len(), names(referred).collect()));
        self.definition.foreign_keys.push(ForeignKeyDefinition {
            name,
            columns,
            parent_schema,
            parent_table,
            parent_columns: Vec::new(),
            on_delete: action(on_delete.as_ref())?,
            on_update: action(on_update.as_ref())?,
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
                    SqlError::new(
                        sqlstate::UNDEFINED_OBJECT,
                        format!("there is no primary key for referenced table \"{}\"", parent.name),
                    )
                })?;
                key.columns.clone()
            } else {
                columns_of(parent, columns.into_iter())?
            };
            if columns.len() != key.columns.len() {
                let message = "number of referencing and referenced columns for foreign key disagree";
                return Err(SqlError::new(sqlstate::INVALID_FOREIGN_KEY, message));
            }
            self.definition.foreign_keys[at].parent_columns = columns;
        }
        Ok(())
    }

    pub(super) fn constraint(&mut self, constraint: &TableConstraint) -> Result<()> {
        let TableConstraint { name, kind, attributes, span: _ } = constraint;
        check_attributes(attributes)?;
        let name = name.as_ref().map(|name| name.name.clone());
        match kind {
            TableConstraintKind::PrimaryKey { columns, include, storage } => {
                check_key_storage(storage)?;
                refuse_any(&[("INCLUDE of a primary key", !include.is_empty())])?;
                let columns = columns_of(&self.definition, names(columns))?;
                self.key(name, columns, true)?;
            }
            TableConstraintKind::Unique { nulls_distinct, columns, include, storage } => {
                check_key_storage(storage)?;
                refuse_any(&[
                    ("NULLS NOT DISTINCT", *nulls_distinct == Some(false)),
                    ("INCLUDE of a unique constraint", !include.is_empty()),
                ])?;
                let columns = columns_of(&self.definition, names(columns))?;
                self.key(name, columns, false)?;
            }
            TableConstraintKind::Check(condition) => self.check(name, condition)?,
            TableConstraintKind::ForeignKey { columns, references } => {
                let columns = columns_of(&self.definition, names(columns))?;
                self.foreign_key(name, columns, references)?;
            }
            TableConstraintKind::UniqueUsing(_) | TableConstraintKind::PrimaryKeyUsing(_) => {
                return Err(SqlError::unsupported("a constraint USING INDEX"));
            }
            TableConstraintKind::Exclude(_) => return Err(SqlError::unsupported("EXCLUDE")),
        }
        Ok(())
    }
}
