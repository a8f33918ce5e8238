//! TRUNCATE, LOCK, VACUUM, ANALYZE, CLUSTER, REINDEX, and SeracDB's FREEZE TABLE and DESCRIBE.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{Cluster, LockMode, LockTable, Reindex, ReindexTarget, StatementKind, Truncate, Vacuum};

impl Parser<'_> {
    pub(super) fn truncate(&mut self) -> Result<StatementKind> {
        self.at += 1;
        self.take_word("table");
        let tables = self.list(Self::relation)?;
        let restart_identity = self.take_word("restart");
        if restart_identity || self.take_word("continue") {
            self.expect_word("identity")?;
        }
        let cascade = self.cascade();
        Ok(StatementKind::Truncate(Truncate { tables, restart_identity, cascade }))
    }
    pub(super) fn lock_table(&mut self) -> Result<StatementKind> {
        self.at += 1;
        self.take_word("table");
        let tables = self.list(Self::relation)?;
        let mode = if self.take_word("in") { self.lock_mode()? } else { LockMode::AccessExclusive };
        let nowait = self.take_word("nowait");
        Ok(StatementKind::LockTable(LockTable { tables, mode, nowait }))
    }

    fn lock_mode(&mut self) -> Result<LockMode> {
        let mode = match self.one_of(&["access", "row", "share", "exclusive"])?.name.as_str() {
            "access" => match self.either("share", "exclusive")? {
                true => LockMode::AccessShare,
                false => LockMode::AccessExclusive,
            },
            "row" => match self.either("share", "exclusive")? {
                true => LockMode::RowShare,
                false => LockMode::RowExclusive,
            },
            "share" if self.take_word("update") => {
                self.expect_word("exclusive")?;
                LockMode::ShareUpdateExclusive
            }
            "share" if self.take_word("row") => {
                self.expect_word("exclusive")?;
                LockMode::ShareRowExclusive
            }
            "share" => LockMode::Share,
            _ => LockMode::Exclusive,
        };
        self.expect_word("mode")?;
        Ok(mode)
    }

    /// VACUUM or ANALYZE.
    pub(super) fn vacuum(&mut self) -> Result<StatementKind> {
        let is_vacuum = self.take_ident().name == "vacuum";
        let mut options = Vec::new();
        if self.is_sign(b'(') {
            options = self.command_options()?;
        } else if is_vacuum {
            for words in [&["full"][..], &["freeze"], &["verbose"], &["analyze", "analyse"]] {
                self.take_option(words, &mut options);
            }
        } else {
            self.take_option(&["verbose"], &mut options);
        }
        let has_tables = !matches!(self.kind(), Kind::End | Kind::Sign(b';'));
        let tables = match has_tables {
            true => self.list(|parser| Ok((parser.relation_name()?, parser.column_list()?)))?,
            false => Vec::new(),
        };
        let vacuum = Vacuum { options, tables };
        Ok(if is_vacuum { StatementKind::Vacuum(vacuum) } else { StatementKind::Analyze(vacuum) })
    }
    pub(super) fn cluster(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let mut options = Vec::new();
        let in_parentheses = self.is_sign(b'(');
        if in_parentheses {
            options = self.command_options()?;
        } else {
            self.take_option(&["verbose"], &mut options);
            if matches!(self.kind(), Kind::End | Kind::Sign(b';')) {
                return Ok(StatementKind::Cluster(Cluster { options, table: None, index: None }));
            }
        }
        let mut name = self.relation_name()?;
        // As it was before version 8.3: CLUSTER i ON t.
        if !in_parentheses && name.parts.len() == 1 && self.take_word("on") {
            let table = self.relation_name()?;
            let index = name.parts.pop();
            return Ok(StatementKind::Cluster(Cluster { options, table: Some(table), index }));
        }
        let index = if self.take_word("using") { Some(self.ident()?) } else { None };
        Ok(StatementKind::Cluster(Cluster { options, table: Some(name), index }))
    }
    pub(super) fn reindex(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let options = if self.is_sign(b'(') { self.command_options()? } else { Vec::new() };
        let word = self.one_of(&["index", "table", "schema", "system", "database"])?;
        let concurrently = self.take_word("concurrently");
        let target = match word.name.as_str() {
            "index" => ReindexTarget::Index(self.relation_name()?),
            "table" => ReindexTarget::Table(self.relation_name()?),
            "schema" => ReindexTarget::Schema(self.ident()?),
            "system" => ReindexTarget::System(self.ident()?),
            _ => ReindexTarget::Database(self.ident()?),
        };
        Ok(StatementKind::Reindex(Reindex { options, concurrently, target }))
    }
    pub(super) fn freeze(&mut self) -> Result<StatementKind> {
        self.expect_words(&["freeze", "table"])?;
        Ok(StatementKind::FreezeTable(self.relation_name()?))
    }
    pub(super) fn describe(&mut self) -> Result<StatementKind> {
        self.at += 1;
        if self.is_query_or_rows() {
            return Ok(StatementKind::DescribeQuery(Box::new(self.query_or_table()?)));
        }
        self.take_word("table");
        Ok(StatementKind::Describe(self.relation_name()?))
    }
}
