//! Options of COPY.

use crate::error::{Result, SqlError};
use crate::session::fold;
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use serac_engine::Table;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Csv,
    /// PostgreSQL's text format.
    Text,
    /// PostgreSQL's binary format.
    Binary,
    Parquet,
    Arrow,
}

/// Which fields of a column that have the text of NULL are NULL, in CSV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nulls {
    /// Those in quotes: FORCE_NULL.
    pub(super) quoted: bool,
    /// Those without; not with FORCE_NOT_NULL.
    pub(super) bare: bool,
}

impl Default for Nulls {
    fn default() -> Self {
        Self { quoted: false, bare: true }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) format: Format,
    pub(super) header: bool,
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) null: String,
    /// The columns of FORCE_NULL and of FORCE_NOT_NULL.
    force_null: Vec<String>,
    force_not_null: Vec<String>,
    /// By column of the input; those that are not there have what is usual.
    pub(super) nulls: Vec<Nulls>,
}

impl Options {
    /// The options given, for a file of this name; `otherwise` is the format where neither says which.
    pub(super) fn read(path: &str, given: &[CopyOption], otherwise: Format) -> Result<Self> {
        let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("").to_lowercase();
        let format_of = |name: &str| match name {
            "csv" | "tsv" | "txt" | "tbl" => Ok(Format::Csv),
            "text" => Ok(Format::Text),
            "binary" => Ok(Format::Binary),
            "parquet" => Ok(Format::Parquet),
            "arrow" | "ipc" | "feather" => Ok(Format::Arrow),
            other => Err(SqlError::new("22023", format!("COPY format \"{other}\" not recognized"))),
        };
        let mut options = Self {
            format: format_of(&extension).unwrap_or(otherwise),
            header: false,
            delimiter: 0,
            quote: b'"',
            null: String::new(),
            force_null: Vec::new(),
            force_not_null: Vec::new(),
            nulls: Vec::new(),
        };
        let (mut delimiter, mut null, mut has_quote) = (None, None, false);
        let byte = |what: &str, c: char| u8::try_from(c).ok().filter(u8::is_ascii).ok_or_else(|| not_one_byte(what));
        for (at, option) in given.iter().enumerate() {
            let is_again = |earlier: &CopyOption| std::mem::discriminant(earlier) == std::mem::discriminant(option);
            if given[..at].iter().any(is_again) {
                return Err(SqlError::new("42601", "conflicting or redundant options"));
            }
            match option {
                CopyOption::Format(name) => options.format = format_of(&fold(name).to_lowercase())?,
                CopyOption::Header(header) => options.header = *header,
                CopyOption::Delimiter(c) => delimiter = Some(byte("delimiter", *c)?),
                CopyOption::Quote(c) => (options.quote, has_quote) = (byte("quote", *c)?, true),
                CopyOption::Null(text) => null = Some(text.clone()),
                CopyOption::ForceNull(names) => options.force_null.extend(names.iter().map(fold)),
                CopyOption::ForceNotNull(names) => options.force_not_null.extend(names.iter().map(fold)),
                // Rows are never visible to anybody before the commit, and then to all.
                CopyOption::Freeze(_) => {}
                CopyOption::Encoding(name) if name.to_lowercase().replace('-', "") == "utf8" => {}
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        let is_text = options.format == Format::Text;
        let usual = if is_text || extension == "tsv" { b'\t' } else { b',' };
        options.delimiter = delimiter.unwrap_or(usual);
        options.null = null.unwrap_or_else(|| if is_text { "\\N".into() } else { String::new() });
        if options.format == Format::Binary {
            let refused = [("DELIMITER", delimiter.is_some()), ("NULL", !options.null.is_empty())];
            if let Some((option, _)) = refused.into_iter().find(|(_, is_said)| *is_said) {
                return Err(SqlError::new("42601", format!("cannot specify {option} in BINARY mode")));
            }
        }
        if has_quote && options.format != Format::Csv {
            return Err(SqlError::new("0A000", "COPY quote available only in CSV mode"));
        }
        if is_text && (options.delimiter.is_ascii_lowercase() || b"\\.0123456789".contains(&options.delimiter)) {
            let delimiter = char::from(options.delimiter);
            return Err(SqlError::new("22023", format!("COPY delimiter cannot be \"{delimiter}\"")));
        }
        let (is_csv, null) = (options.format == Format::Csv, options.null.as_bytes());
        let (sqlstate, refused) = if b"\r\n".contains(&options.delimiter) {
            ("22023", "COPY delimiter cannot be newline or carriage return")
        } else if null.iter().any(|byte| b"\r\n".contains(byte)) {
            ("22023", "COPY null representation cannot use newline or carriage return")
        } else if is_csv && options.delimiter == options.quote {
            ("22023", "COPY delimiter and quote must be different")
        } else if (is_text || is_csv) && null.contains(&options.delimiter) {
            ("0A000", "COPY delimiter must not appear in the NULL specification")
        } else if is_csv && null.contains(&options.quote) {
            ("0A000", "CSV quote character must not appear in the NULL specification")
        } else {
            return Ok(options);
        };
        Err(SqlError::new(sqlstate, refused))
    }

    /// The options that force NULLs, and their columns.
    fn forced(&self) -> [(&'static str, &'static str, &[String]); 2] {
        [("FORCE_NULL", "force null", &self.force_null), ("FORCE_NOT_NULL", "force not null", &self.force_not_null)]
    }
    /// For COPY TO, which forces no NULLs.
    pub(super) fn check_output(&self) -> Result<()> {
        match self.forced().into_iter().find(|(.., names)| !names.is_empty()) {
            Some((_, option, _)) => {
                Err(SqlError::new("0A000", format!("COPY {option} only available using COPY FROM")))
            }
            None => Ok(()),
        }
    }
    /// For COPY FROM into some columns of a table.
    pub(super) fn for_columns(mut self, table: &Table, columns: &[&str]) -> Result<Self> {
        for (option, shown, names) in self.forced() {
            if !names.is_empty() && self.format != Format::Csv {
                return Err(SqlError::new("0A000", format!("COPY {shown} available only in CSV mode")));
            }
            if let Some(name) = names.iter().find(|name| !columns.contains(&name.as_str())) {
                return Err(match table.definition.column(name) {
                    None => SqlError::no_column(name, table.name()),
                    Some(_) => SqlError::new("42P10", format!("{option} column \"{name}\" not referenced by COPY")),
                });
            }
        }
        let nulls = |name: &&str| Nulls {
            quoted: self.force_null.iter().any(|forced| forced == name),
            bare: !self.force_not_null.iter().any(|forced| forced == name),
        };
        self.nulls = columns.iter().map(nulls).collect();
        Ok(self)
    }

    /// Of CSV, for tests.
    #[cfg(test)]
    pub(super) fn csv(header: bool, delimiter: u8, null: &str) -> Self {
        let (force_null, force_not_null, nulls) = (Vec::new(), Vec::new(), Vec::new());
        let (format, null) = (Format::Csv, null.to_owned());
        Self { format, header, delimiter, quote: b'"', null, force_null, force_not_null, nulls }
    }
}

fn not_one_byte(what: &str) -> SqlError {
    SqlError::new("0A000", format!("COPY {what} must be a single one-byte character"))
}

/// What is wrong with a COPY that begins at the token `start` and that the parser has refused, if
/// it is a delimiter, a quote or an escape of another length.
pub(crate) fn wrong_character(parser: &Parser<'_>, start: usize) -> Option<SqlError> {
    let mut tokens = (start..)
        .map(|at| &parser.token_at(at).token)
        .take_while(|token| !matches!(token, Token::EOF | Token::SemiColon))
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    let is_keyword = |token: &Token, wanted| matches!(token, Token::Word(word) if word.keyword == wanted);
    if !is_keyword(tokens.next()?, Keyword::COPY) {
        return None;
    }
    let options = [(Keyword::DELIMITER, "delimiter"), (Keyword::QUOTE, "quote"), (Keyword::ESCAPE, "escape")];
    let mut option = None;
    for token in tokens {
        match (token, option) {
            (Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text), Some(what)) if text.len() != 1 => {
                return Some(not_one_byte(what));
            }
            // DELIMITER AS ','
            (token, Some(_)) if is_keyword(token, Keyword::AS) => {}
            _ => option = options.iter().find(|(keyword, _)| is_keyword(token, *keyword)).map(|(_, what)| *what),
        }
    }
    None
}

/// The options of a COPY, those of the syntax without parentheses included.
pub(crate) fn all_options(mut options: Vec<CopyOption>, legacy: &[CopyLegacyOption]) -> Result<Vec<CopyOption>> {
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => options.push(CopyOption::Format(Ident::new("binary"))),
            CopyLegacyOption::Delimiter(c) => options.push(CopyOption::Delimiter(*c)),
            CopyLegacyOption::Null(text) => options.push(CopyOption::Null(text.clone())),
            CopyLegacyOption::Csv(of_csv) => {
                options.push(CopyOption::Format(Ident::new("csv")));
                for option in of_csv {
                    options.push(match option {
                        CopyLegacyCsvOption::Header => CopyOption::Header(true),
                        CopyLegacyCsvOption::Quote(c) => CopyOption::Quote(*c),
                        CopyLegacyCsvOption::ForceNotNull(names) => CopyOption::ForceNotNull(names.clone()),
                        other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
                    });
                }
            }
            other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
        }
    }
    Ok(options)
}
