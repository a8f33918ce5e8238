//! Prepared statements, cursors, LISTEN and NOTIFY.

use super::Parser;
use crate::error::Result;
use crate::lexer::Kind;
use crate::tree::{DeclareCursor, Execute, Fetch, FetchDirection, Ident, Prepare, StatementKind, Transaction};

impl Parser<'_> {
    // ---- prepared statements

    pub(super) fn prepare(&mut self) -> Result<StatementKind> {
        self.at += 1;
        if self.is_word("transaction") && self.is_text(1) {
            self.at += 1;
            return Ok(StatementKind::Transaction(Transaction::Prepare(self.text()?)));
        }
        let name = self.ident()?;
        let types = match self.is_sign(b'(') {
            true => self.in_parentheses(|parser| parser.list(Self::type_name))?,
            false => Vec::new(),
        };
        self.expect_word("as")?;
        let start = self.start();
        // SeracDB prepares CALL, too.
        let statement = match self.is_word("call") {
            true => {
                let kind = self.call_statement()?;
                self.read_since(start, kind)
            }
            false => self.preparable()?,
        };
        let statement = Box::new(statement);
        Ok(StatementKind::Prepare(Prepare { name, types, statement }))
    }
    pub(super) fn execute(&mut self) -> Result<Execute> {
        self.at += 1;
        let name = self.ident()?;
        let arguments = if self.is_sign(b'(') { self.in_parentheses(Self::exprs)? } else { Vec::new() };
        Ok(Execute { name, arguments })
    }
    pub(super) fn deallocate(&mut self) -> Result<StatementKind> {
        self.at += 1;
        if !matches!(self.kind_ahead(1), Kind::End | Kind::Sign(_)) {
            self.take_word("prepare");
        }
        Ok(StatementKind::Deallocate(self.ident_or_all()?))
    }

    /// A name, or `None` for ALL.
    fn ident_or_all(&mut self) -> Result<Option<Ident>> {
        if self.take_word("all") { Ok(None) } else { self.ident().map(Some) }
    }

    // ---- cursors

    pub(super) fn declare(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let name = self.ident()?;
        let (mut binary, mut scroll, mut insensitive, mut asensitive) = (false, None, false, false);
        loop {
            match self.one_of(&["no", "scroll", "binary", "asensitive", "insensitive", "cursor"])?.name.as_str() {
                "no" => {
                    self.expect_word("scroll")?;
                    scroll = Some(false);
                }
                "scroll" => scroll = Some(true),
                "binary" => binary = true,
                "asensitive" => asensitive = true,
                "insensitive" => insensitive = true,
                _ => break,
            }
        }
        let hold = self.take_word("with");
        if hold || self.take_word("without") {
            self.expect_word("hold")?;
        }
        self.expect_word("for")?;
        let query = Box::new(self.query()?);
        let cursor = DeclareCursor { name, binary, scroll, insensitive, asensitive, hold, query };
        Ok(StatementKind::DeclareCursor(Box::new(cursor)))
    }
    pub(super) fn fetch_or_move(&mut self) -> Result<StatementKind> {
        let moves = self.take_ident().name == "move";
        let direction = self.direction()?;
        let _ = self.take_word("from") || self.take_word("in");
        Ok(StatementKind::Fetch(Fetch { moves, direction, cursor: self.ident()? }))
    }

    fn direction(&mut self) -> Result<FetchDirection> {
        use FetchDirection as D;
        if self.is_sign_of_number() || self.is_number() {
            return Ok(D::Forward(self.rows()?));
        }
        if self.take_word("all") {
            return Ok(D::ForwardAll);
        }
        // A cursor may have such a name.
        let is_name = matches!(self.kind_ahead(1), Kind::End | Kind::Sign(_));
        let word = match self.word() {
            Some(word) if !is_name => word.to_owned(),
            _ => return Ok(D::Forward(1)),
        };
        let is_direction = matches!(
            word.as_str(),
            "next" | "prior" | "first" | "last" | "absolute" | "relative" | "forward" | "backward"
        );
        if !is_direction {
            return Ok(D::Forward(1));
        }
        self.at += 1;
        Ok(match word.as_str() {
            "next" => D::Forward(1),
            "prior" => D::Forward(-1),
            "first" => D::Absolute(1),
            "last" => D::Absolute(-1),
            "absolute" => D::Absolute(self.rows()?),
            "relative" => D::Relative(self.rows()?),
            _ => {
                let is_back = word == "backward";
                if self.take_word("all") {
                    if is_back { D::BackwardAll } else { D::ForwardAll }
                } else {
                    let has_count = self.is_sign_of_number() || self.is_number();
                    let count = if has_count { self.rows()? } else { 1 };
                    D::Forward(if is_back { -count } else { count })
                }
            }
        })
    }

    /// A number of rows, which has 32 bits.
    fn rows(&mut self) -> Result<i64> {
        Ok(self.signed_integer()?.as_i64().unwrap_or_default())
    }
    pub(super) fn close(&mut self) -> Result<StatementKind> {
        self.at += 1;
        Ok(StatementKind::CloseCursor(self.ident_or_all()?))
    }

    // ---- channels

    pub(super) fn listen(&mut self) -> Result<StatementKind> {
        self.at += 1;
        Ok(StatementKind::Listen(self.ident()?))
    }
    pub(super) fn unlisten(&mut self) -> Result<StatementKind> {
        self.at += 1;
        Ok(StatementKind::Unlisten(if self.take_operator("*") { None } else { Some(self.ident()?) }))
    }
    pub(super) fn notify(&mut self) -> Result<StatementKind> {
        self.at += 1;
        let channel = self.ident()?;
        let payload = if self.take_sign(b',') { Some(self.text()?) } else { None };
        Ok(StatementKind::Notify(channel, payload))
    }
}
