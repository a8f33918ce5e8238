//! Options of COPY in a statement.

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use serac_copy::{Format, Options};

/// The options given, for a file of this name; `otherwise` is the format where neither says which.
pub(super) fn read_options(path: &str, given: &[CopyOption], otherwise: Format) -> Result<Options> {
    let format_of = |name: &str| {
        let unknown = || SqlError::new("22023", format!("COPY format \"{name}\" not recognized"));
        Format::of_name(name).ok_or_else(unknown)
    };
    let mut options = Options::of_file(path, otherwise);
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
    let usual = Options::new(path, options.format);
    options.delimiter = delimiter.unwrap_or(usual.delimiter);
    options.null = null.unwrap_or(usual.null);
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
