//! Dependencies of views and defaults on other relations.
//!
//! A view is a text. Its dependencies are found in that text, by the names of relations. A relation
//! that a view reads is not dropped without CASCADE, which drops the view, too. If a table changes,
//! the plans of the views that read it are compared before and after it:
//!
//! | change | a view whose plan becomes another one |
//! |---|---|
//! | columns are added, or one gets another name | reads, in the place of `FROM t`, `FROM (SELECT a, b_new AS b FROM t) AS t`: the columns that it may name |
//! | the table gets another name | reads `FROM new AS t` |
//! | a column or a constraint is dropped | is in the way (2BP01), or is dropped, too |
//! | a column's type changes | is in the way (0A000) |

use super::relations::{Mentions, NamedRelation};
use crate::column_types::of_field;
use crate::error::{Result, SqlError};
use crate::expressions::replaced;
use crate::identifiers::{TEMPORARY_SCHEMA, name_of, quote, split_name};
use crate::notices::Severity;
use crate::parsed::Source;
use crate::resolver::planned_for_owner;
use crate::session::Session;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use serac_engine::catalog::definition::TableDefinition;
use serac_engine::security::Object;
use serac_engine::{Catalog, DEFAULT_SCHEMA, EngineError};
use serac_parser::tree::{self, Span};
use std::collections::HashSet;
use std::sync::Arc;

/// Schema and name.
type Name = (String, String);

/// A view that reads a relation.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    name: Name,
    query: String,
    materialized: bool,
}

impl Reader {
    /// As messages call it.
    fn shown(&self) -> String {
        let kind = if self.materialized { "materialized view" } else { "view" };
        format!("{kind} \"{}\"", self.name.1)
    }
}

/// A reader, and its query before a change.
#[derive(Debug)]
pub(super) struct Planned {
    reader: Reader,
    plan: String,
    columns: SchemaRef,
}

/// The replacement for a relation in a query.
enum Instead {
    /// The same.
    Nothing,
    /// A query of a part of its columns, under the names on the right.
    Columns(Vec<(String, String)>),
    /// The relation with another name.
    Renamed(String),
}

/// Whether a name in a view's query means a relation.
fn is_meant(name: &tree::Name, relation: &Name) -> bool {
    match &name.parts[..] {
        // A view's names mean the default schema; others are written out.
        [name] => relation.0 == DEFAULT_SCHEMA && name.name == relation.1,
        [.., schema, name] => schema.name == relation.0 && name.name == relation.1,
        [] => false,
    }
}

/// The text at the place of a relation of the query `text` after the replacement.
fn part_instead(text: &str, named: &NamedRelation, instead: &Instead) -> Vec<(Span, String)> {
    let own = |at: Span| &text[at.start as usize..at.end as usize];
    let (Some(last), name) = (named.name.parts.last(), own(named.name.span)) else { return Vec::new() };
    let called = named.alias.as_ref().map_or(&last.name, |alias| &alias.name.name);
    let whole = |from: String| match named.is_alone {
        true => format!("SELECT * FROM {from}"),
        false => from,
    };
    match instead {
        Instead::Nothing => Vec::new(),
        Instead::Renamed(new) if named.is_alone => {
            let qualifiers = own(Span { start: named.name.span.start, end: last.span.start });
            vec![(named.at, whole(format!("{qualifiers}{} AS {}", quote(new), quote(called))))]
        }
        Instead::Renamed(new) => {
            let mut parts = vec![(last.span, quote(new))];
            if named.alias.is_none() {
                let behind = Span { start: named.at.end, end: named.at.end };
                parts.push((behind, format!(" AS {}", quote(called))));
            }
            parts
        }
        Instead::Columns(columns) => {
            let item = |(column, shown): &(String, String)| match column == shown {
                true => quote(column),
                false => format!("{} AS {}", quote(column), quote(shown)),
            };
            let items = columns.iter().map(item).collect::<Vec<_>>().join(", ");
            let columns = named.alias.iter().flat_map(|alias| &alias.columns);
            let columns = columns.map(|column| quote(&column.name)).collect::<Vec<_>>().join(", ");
            let columns = if columns.is_empty() { columns } else { format!(" ({columns})") };
            vec![(named.at, whole(format!("(SELECT {items} FROM {name}) AS {}{columns}", quote(called))))]
        }
    }
}

/// The query with a replacement for a relation; `None` if it does not read that.
fn with_instead(query: &str, relation: &Name, mut instead: Instead) -> Result<Option<String>> {
    let source = Source::of_query(query)?;
    let mentions = source.query().map(Mentions::of).unwrap_or_default();
    let named: Vec<_> = mentions.relations.iter().filter(|named| is_meant(&named.name, relation)).collect();
    if named.is_empty() {
        return Ok(None);
    }
    if let Instead::Columns(columns) = &mut instead {
        // Others may be dropped later.
        columns.retain(|(_, shown)| mentions.may_read(shown));
    }
    let parts = named.into_iter().flat_map(|named| part_instead(query, named, &instead)).collect();
    Ok(Some(replaced(query, parts)))
}

/// The views that read a relation.
fn readers(catalog: &Catalog, relation: &Name) -> Vec<Reader> {
    let mut all = Vec::new();
    for (schema, entry) in &catalog.schemas {
        all.extend(entry.views.values().map(|view| Reader {
            name: (schema.clone(), view.name.clone()),
            query: view.query.clone(),
            materialized: false,
        }));
        all.extend(entry.tables.values().filter_map(|table| {
            let materialized = table.definition.materialized.as_ref()?;
            let name = (schema.clone(), table.name().to_owned());
            Some(Reader { name, query: materialized.query.clone(), materialized: true })
        }));
    }
    all.retain(|reader| {
        reader.name != *relation && matches!(with_instead(&reader.query, relation, Instead::Nothing), Ok(Some(_)))
    });
    all
}

/// Refuses a query for a view that reads the view itself, or views that do.
///
/// # Errors
/// 42P17.
pub(super) fn refuse_circle(catalog: &Catalog, view: &Name, query: &str) -> Result<()> {
    let (mut known, mut left) = (HashSet::new(), vec![view.clone()]);
    while let Some(relation) = left.pop() {
        if with_instead(query, &relation, Instead::Nothing)?.is_some() {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", view.1);
            return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message).named(&view.1));
        }
        let views = readers(catalog, &relation).into_iter().filter(|reader| !reader.materialized);
        left.extend(views.map(|reader| reader.name).filter(|name| known.insert(name.clone())));
    }
    Ok(())
}

/// The names of the sequences from which a default takes values.
fn sequences_of(default: &str) -> Vec<tree::Name> {
    let texts = serac_binder::sequences_of_definition(default).unwrap_or_default();
    let name = |text: &String| {
        let (schema, name) = split_name(text);
        name_of(schema.into_iter().chain([name]))
    };
    texts.iter().map(name).collect()
}

fn in_the_way(what: String, dependent: String) -> SqlError {
    EngineError::Dependent { what, dependent }.into()
}

impl Session {
    /// Drops the views that read a relation, and those that read them.
    ///
    /// # Errors
    /// 2BP01 for a view that is not among `also`, which are dropped anyhow, if `cascade` is off.
    /// `what` is the dropped object in messages.
    pub(crate) fn drop_readers(&mut self, relation: &Name, what: &str, cascade: bool, also: &[Name]) -> Result<()> {
        if relation.0 == TEMPORARY_SCHEMA {
            return Ok(());
        }
        for reader in readers(self.txn()?.catalog(), relation) {
            if also.contains(&reader.name) {
                continue;
            }
            if !cascade {
                return Err(in_the_way(what.to_owned(), reader.shown()));
            }
            self.drop_reader(&reader)?;
        }
        Ok(())
    }

    fn drop_reader(&mut self, reader: &Reader) -> Result<()> {
        self.drop_readers(&reader.name, "", true, &[])?;
        let (schema, name) = &reader.name;
        // It may have gone with another.
        if self.txn()?.catalog().kind_of(&Object::relation(schema, name)).is_none() {
            return Ok(());
        }
        self.say(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, format!("drop cascades to {}", reader.shown()));
        Ok(self.txn()?.drop_dependent(schema, name)?)
    }

    /// Takes away the defaults that need a sequence, and the views that read it.
    ///
    /// # Errors
    /// 2BP01 if there is one and `cascade` is off.
    pub(crate) fn drop_defaults_of(&mut self, sequence: &Name, cascade: bool) -> Result<()> {
        let what = format!("sequence \"{}\"", sequence.1);
        self.drop_readers(sequence, &what, cascade, &[])?;
        self.drop_defaults(sequence, &what, cascade, &|_, _| false)
    }

    /// The same of the sequences that go with a table, or with `column` of it. Defaults of the
    /// table, or the column, and of the tables `also`, which are dropped anyhow, are not in the
    /// way. `what` is how messages call what is to be dropped.
    ///
    /// # Errors
    /// 2BP01 if there is one and `cascade` is off.
    pub(crate) fn drop_defaults_beside(
        &mut self,
        relation: &Name,
        column: Option<&str>,
        what: &str,
        cascade: bool,
        also: &[Name],
    ) -> Result<()> {
        let (schema, name) = relation;
        let is_owner = |owner: &(String, String)| owner.0 == *name && column.is_none_or(|column| owner.1 == column);
        let sequences = self.txn_for(schema)?.catalog().schema(schema)?.sequences.values();
        let owned = sequences.filter(|sequence| sequence.definition.owner.as_ref().is_some_and(is_owner));
        let owned: Vec<Name> = owned.map(|sequence| (schema.clone(), sequence.definition.name.clone())).collect();
        let goes = |table: &TableDefinition, of: &str| match column {
            Some(column) => table.is(schema, name) && of == column,
            None => table.is(schema, name) || also.iter().any(|(schema, name)| table.is(schema, name)),
        };
        for sequence in &owned {
            self.drop_readers(sequence, what, cascade, also)?;
            self.drop_defaults(sequence, what, cascade, &goes)?;
        }
        Ok(())
    }

    /// Takes away the defaults that need a sequence. `goes` tells which columns are dropped anyhow,
    /// by their tables and names.
    fn drop_defaults(
        &mut self,
        sequence: &Name,
        what: &str,
        cascade: bool,
        goes: &dyn Fn(&TableDefinition, &str) -> bool,
    ) -> Result<()> {
        let mut tables: Vec<_> = self.txn()?.catalog().tables().cloned().collect();
        if self.temporary_catalog().is_some() {
            tables.extend(self.txn_for(TEMPORARY_SCHEMA)?.catalog().tables().cloned());
        }
        for table in tables {
            for column in &table.definition.columns {
                let named = column.default.as_deref().map(sequences_of).unwrap_or_default();
                let mut meant = named.iter().filter_map(|name| self.locate(name).ok());
                if !meant.any(|name| name == *sequence) || goes(&table.definition, &column.name) {
                    continue;
                }
                let dependent = format!("default value for column \"{}\" of table \"{}\"", column.name, table.name());
                if !cascade {
                    return Err(in_the_way(what.to_owned(), dependent));
                }
                self.say(Severity::Notice, sqlstate::SUCCESSFUL_COMPLETION, format!("drop cascades to {dependent}"));
                let (schema, name) = (&table.definition.schema, table.name());
                self.txn_for(schema)?.drop_default(schema, name, &column.name)?;
            }
        }
        Ok(())
    }

    /// Objects of other schemas that depend on a schema are dropped with it.
    pub(crate) fn drop_readers_of_schema(&mut self, schema: &str) -> Result<()> {
        let Ok(entry) = self.txn()?.catalog().schema(schema).cloned() else { return Ok(()) };
        for name in entry.relations() {
            let relation = (schema.to_owned(), name.clone());
            for reader in readers(self.txn()?.catalog(), &relation) {
                if reader.name.0 != schema {
                    self.drop_reader(&reader)?;
                }
            }
        }
        for name in entry.sequences.keys() {
            let sequence = (schema.to_owned(), name.clone());
            self.drop_defaults(&sequence, "", true, &|table, _| table.schema == schema)?;
        }
        Ok(())
    }

    async fn planned(&self, reader: &Reader) -> Result<(String, SchemaRef)> {
        let (schema, name) = &reader.name;
        let plan = planned_for_owner(&self.shared, &Object::relation(schema, name), &reader.query).await?.plan;
        Ok((plan.display_indent().to_string(), Arc::new(plan.schema().as_arrow().clone())))
    }

    /// The views that read a relation which is to be changed. Views that cannot be planned are left
    /// alone.
    pub(super) async fn planned_readers(&mut self, relation: &Name) -> Result<Vec<Planned>> {
        if relation.0 == TEMPORARY_SCHEMA {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for reader in readers(self.txn()?.catalog(), relation) {
            if let Ok((plan, columns)) = self.planned(&reader).await {
                all.push(Planned { reader, plan, columns });
            }
        }
        Ok(all)
    }

    /// Keeps the meaning of the views that read a relation, after the relation has got columns, new
    /// names for them, or a new name itself. `columns` are its former columns, with their present
    /// and former names.
    pub(super) async fn follow(
        &mut self,
        relation: &Name,
        now: &str,
        columns: &[(String, String)],
        views: Vec<Planned>,
    ) -> Result<()> {
        self.refresh_view();
        let renamed = relation.1 != now;
        for Planned { mut reader, plan, columns: shown } in views {
            if !renamed && self.planned(&reader).await.is_ok_and(|(now, _)| now == plan) {
                continue;
            }
            let instead = match renamed {
                true => Instead::Renamed(now.to_owned()),
                false => Instead::Columns(columns.to_vec()),
            };
            reader.query = with_instead(&reader.query, relation, instead)?.unwrap_or(reader.query);
            match self.planned(&reader).await {
                Ok((_, after)) if same_columns(&after, &shown) => {}
                _ => {
                    let message = format!("changing \"{}\", of which {} names a part", relation.1, reader.shown());
                    return Err(SqlError::unsupported(message));
                }
            }
            self.txn()?.reword_view(&reader.name.0, &reader.name.1, reader.query)?;
            self.refresh_view();
        }
        Ok(())
    }

    /// Drops the views that depend on a dropped part of a relation.
    ///
    /// # Errors
    /// 2BP01 if there is one and `cascade` is off. `what` is the dropped object in messages.
    pub(super) async fn still_plannable(&mut self, views: Vec<Planned>, what: &str, cascade: bool) -> Result<()> {
        self.refresh_view();
        for Planned { reader, plan, .. } in views {
            if self.planned(&reader).await.is_ok_and(|(now, _)| now == plan) {
                continue;
            }
            if !cascade {
                return Err(in_the_way(what.to_owned(), reader.shown()));
            }
            self.drop_reader(&reader)?;
        }
        Ok(())
    }

    /// # Errors
    /// 0A000 if a column's new type changes the meaning of a view.
    pub(super) async fn still_of_types(&mut self, views: Vec<Planned>, column: &str) -> Result<()> {
        self.refresh_view();
        for Planned { reader, plan, columns } in views {
            match self.planned(&reader).await {
                Ok((now, shown)) if now == plan && same_columns(&shown, &columns) => {}
                _ => {
                    let message = "cannot alter type of a column used by a view or rule";
                    let detail = Some(format!("{} depends on column \"{column}\"", reader.shown()));
                    return Err(SqlError {
                        detail,
                        ..SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).named(column)
                    });
                }
            }
        }
        Ok(())
    }

    /// Refuses to replace a view by one that lacks its columns. The old names and types are
    /// `before`.
    ///
    /// # Errors
    /// 42P16.
    pub(super) fn same_view_columns(before: &ArrowSchema, after: &ArrowSchema) -> Result<()> {
        if after.fields().len() < before.fields().len() {
            return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, "cannot drop columns from view"));
        }
        let type_name = |field: &datafusion::arrow::datatypes::Field| match of_field(field) {
            Some(of) => of.to_string(),
            None => field.data_type().to_string(),
        };
        for (old, new) in before.fields().iter().zip(after.fields()) {
            if old.name() != new.name() {
                let message = format!("cannot change name of view column \"{}\" to \"{}\"", old.name(), new.name());
                return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
            }
            let (from, to) = (type_name(old), type_name(new));
            if from != to {
                let message = format!("cannot change data type of view column \"{}\" from {from} to {to}", old.name());
                return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
            }
        }
        Ok(())
    }
}

/// Whether both have the same names and types.
fn same_columns(a: &ArrowSchema, b: &ArrowSchema) -> bool {
    let told = |schema: &ArrowSchema| -> Vec<_> {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    told(a) == told(b)
}
