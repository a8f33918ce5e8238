//! CREATE TABLE, and CREATE TABLE … AS.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{
    ColumnDefinition, CreateTable, CreateTableAs, Ident, OnCommit, Persistence, StatementKind, TableElement, TableForm,
    TableLike, TableSource, TableStorage,
};

/// The properties that LIKE may copy.
const LIKE_OPTIONS: [&str; 10] = [
    "comments",
    "compression",
    "constraints",
    "defaults",
    "generated",
    "identity",
    "indexes",
    "statistics",
    "storage",
    "all",
];

impl Parser<'_> {
    /// CREATE TABLE, of which the words up to TABLE have been read. With `only_as` it must be one
    /// with AS.
    pub(super) fn create_table(&mut self, persistence: Persistence, only_as: bool) -> Result<StatementKind> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.relation_name()?;
        let mut create = CreateTable {
            persistence,
            if_not_exists,
            name,
            form: TableForm::Columns,
            elements: Vec::new(),
            inherits: Vec::new(),
            partition_by: None,
            storage: TableStorage::default(),
        };
        if !only_as && self.take_word("of") {
            create.form = TableForm::Of(self.name()?);
            create.elements = self.typed_elements()?;
        } else if !only_as && self.take_word("partition") {
            self.expect_word("of")?;
            let parent = self.relation_name()?;
            create.elements = self.typed_elements()?;
            create.form = TableForm::PartitionOf(parent, self.partition_bounds()?);
        } else if !only_as && self.is_sign(b'(') && (self.in_schema || !self.are_names_alone()) {
            create.elements = self.in_parentheses(|parser| match parser.is_sign(b')') {
                true => Ok(Vec::new()),
                false => parser.list(Self::table_element),
            })?;
            if self.take_word("inherits") {
                create.inherits = self.in_parentheses(|parser| parser.list(Self::relation_name))?;
            }
        } else if self.in_schema {
            return Err(self.unexpected());
        } else {
            return Ok(StatementKind::CreateTableAs(Box::new(self.table_as(create)?)));
        }
        create.partition_by = self.partition_by()?;
        create.storage = self.table_storage(true)?;
        self.cluster_by(&mut create.storage)?;
        Ok(StatementKind::CreateTable(Box::new(create)))
    }

    /// Whether the parenthesis that comes has names without types.
    fn are_names_alone(&self) -> bool {
        self.is_column_name(1) && matches!(self.kind_ahead(2), Kind::Sign(b',' | b')'))
    }

    fn table_as(&mut self, create: CreateTable) -> Result<CreateTableAs> {
        let CreateTable { persistence, if_not_exists, name, .. } = create;
        let columns = self.column_list()?;
        let mut storage = self.table_storage(true)?;
        self.cluster_by(&mut storage)?;
        self.expect_word("as")?;
        let source = match self.is_word("execute") {
            true => TableSource::Execute(self.execute()?),
            false => TableSource::Query(Box::new(self.query()?)),
        };
        let with_data = self.with_data()?;
        self.cluster_by(&mut storage)?;
        Ok(CreateTableAs { persistence, if_not_exists, name, columns, storage, source, with_data })
    }

    /// WITH DATA (true, as without it) or WITH NO DATA.
    pub(super) fn with_data(&mut self) -> Result<bool> {
        if !self.take_word("with") {
            return Ok(true);
        }
        let is_not = self.take_word("no");
        self.expect_word("data")?;
        Ok(!is_not)
    }

    /// USING, WITH, ON COMMIT and TABLESPACE.
    pub(super) fn table_storage(&mut self, may_commit: bool) -> Result<TableStorage> {
        let mut storage = TableStorage::default();
        if self.take_word("using") {
            storage.method = Some(self.ident()?);
        }
        if may_commit && self.take_word("without") {
            self.expect_word("oids")?;
        } else {
            storage.options = self.with_options(true)?;
        }
        if may_commit && self.take_word("on") {
            self.expect_word("commit")?;
            let word = self.one_of(&["drop", "delete", "preserve"])?;
            storage.on_commit = Some(match word.name.as_str() {
                "drop" => OnCommit::Drop,
                "delete" => OnCommit::DeleteRows,
                _ => OnCommit::PreserveRows,
            });
            if word.name != "drop" {
                self.expect_word("rows")?;
            }
        }
        storage.tablespace = self.tablespace()?;
        Ok(storage)
    }
    pub(super) fn tablespace(&mut self) -> Result<Option<Ident>> {
        if self.take_word("tablespace") { self.ident().map(Some) } else { Ok(None) }
    }

    /// SeracDB's CLUSTER BY, if it comes.
    fn cluster_by(&mut self, storage: &mut TableStorage) -> Result<()> {
        if storage.cluster_by.is_empty() && self.take_words(&["cluster", "by"]) {
            storage.cluster_by = self.in_parentheses(|parser| parser.list(Self::ident))?;
        }
        Ok(())
    }

    pub(super) fn table_element(&mut self) -> Result<TableElement> {
        if self.is_word("like") {
            return Ok(TableElement::Like(self.table_like()?));
        }
        if self.is_table_constraint() {
            return Ok(TableElement::Constraint(self.table_constraint()?));
        }
        Ok(TableElement::Column(self.column_definition()?))
    }
    pub(super) fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let start = self.span();
        let name = self.ident()?;
        let type_name = Some(self.type_name()?);
        let compression = if self.take_word("compression") { Some(self.ident_or_default()?) } else { None };
        let foreign_options = self.foreign_options(false)?;
        let constraints = self.column_constraints()?;
        Ok(ColumnDefinition {
            name,
            type_name,
            compression,
            foreign_options,
            constraints,
            span: start.to(self.last_span()),
        })
    }

    /// A name, or DEFAULT.
    pub(super) fn ident_or_default(&mut self) -> Result<Ident> {
        if self.is_word("default") { Ok(self.take_ident()) } else { self.ident() }
    }

    fn table_like(&mut self) -> Result<TableLike> {
        let start = self.span();
        self.at += 1;
        let table = self.relation_name()?;
        let mut options = Vec::new();
        while self.is_one_of(&["including", "excluding"]) {
            let includes = self.take_ident().name == "including";
            options.push((includes, self.one_of(&LIKE_OPTIONS)?));
        }
        Ok(TableLike { table, options, span: start.to(self.last_span()) })
    }

    /// The columns' constraints in a table of a type or in a partition, if a parenthesis comes.
    fn typed_elements(&mut self) -> Result<Vec<TableElement>> {
        if !self.is_sign(b'(') {
            return Ok(Vec::new());
        }
        self.in_parentheses(|parser| {
            parser.list(|parser| {
                if parser.is_table_constraint() {
                    return Ok(TableElement::Constraint(parser.table_constraint()?));
                }
                let start = parser.span();
                let name = parser.ident()?;
                if parser.take_word("with") {
                    parser.expect_word("options")?;
                }
                let constraints = parser.column_constraints()?;
                let span = start.to(parser.last_span());
                let (type_name, compression, foreign_options) = (None, None, Vec::new());
                let column = ColumnDefinition { name, type_name, compression, foreign_options, constraints, span };
                Ok(TableElement::Column(column))
            })
        })
    }
}
