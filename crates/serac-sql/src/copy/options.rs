//! Options of COPY in a statement.

use crate::error::{Result, SqlError};
use serac_copy::{ForceQuote, Format, Options};
use serac_parser::tree::{CopyOption, CopyValue, Ident, Text};

/// The options given, for a file of this name; `otherwise` is the format where neither says which.
pub(super) fn read_options(path: &str, given: &[CopyOption], otherwise: Format) -> Result<Options> {
    let format_of = |name: &str| {
        let unknown =
            || SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("COPY format \"{name}\" not recognized"));
        Format::of_name(name).ok_or_else(unknown)
    };
    let mut options = Options::of_file(path, otherwise);
    let (mut delimiter, mut null, mut has_quote, mut escape_byte) = (None, None, false, None);
    for (at, option) in given.iter().enumerate() {
        let name = option.name.name.as_str();
        if given[..at].iter().any(|earlier| earlier.name.name == name) {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options"));
        }
        match name {
            "format" => options.format = format_of(&text_of(option)?.to_lowercase())?,
            "header" => options.header = is_on(option)?,
            "delimiter" => delimiter = Some(byte_of(option)?),
            "quote" => (options.quote, has_quote) = (byte_of(option)?, true),
            "null" => null = Some(text_of(option)?),
            "force_null" => options.force_null = columns_of(option)?,
            "force_not_null" => options.force_not_null = columns_of(option)?,
            // It says which tables are copied into, and nothing else: rows are never visible to
            // anybody before the commit, and then to all.
            "freeze" => options.freeze = is_on(option)?,
            "encoding" if text_of(option)?.to_lowercase().replace('-', "") == "utf8" => {}
            "escape" => escape_byte = Some(byte_of(option)?),
            "force_quote" => {
                options.force_quote = match &option.value {
                    Some(CopyValue::Star) => ForceQuote::All,
                    _ => ForceQuote::Columns(columns_of(option)?),
                }
            }
            "encoding" => {
                return Err(SqlError::unsupported(format!("the COPY option {}", name.to_uppercase())));
            }
            _ => return Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("option \"{name}\" not recognized"))),
        }
    }
    options.escape = escape_byte.unwrap_or(options.quote);
    let is_text = options.format == Format::Text;
    let usual = Options::new(path, options.format);
    options.delimiter = delimiter.unwrap_or(usual.delimiter);
    if options.format == Format::Binary {
        let refused = [
            ("DELIMITER", delimiter.is_some(), sqlstate::SYNTAX_ERROR),
            ("NULL", null.is_some(), sqlstate::SYNTAX_ERROR),
            ("HEADER", options.header, sqlstate::FEATURE_NOT_SUPPORTED),
        ];
        if let Some((option, _, sqlstate)) = refused.into_iter().find(|(_, is_said, _)| *is_said) {
            return Err(SqlError::new(sqlstate, format!("cannot specify {option} in BINARY mode")));
        }
    }
    options.null = null.unwrap_or(usual.null);
    if has_quote && options.format != Format::Csv {
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "COPY quote available only in CSV mode"));
    }
    if escape_byte.is_some() && options.format != Format::Csv {
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "COPY escape available only in CSV mode"));
    }
    if is_text && (options.delimiter.is_ascii_lowercase() || b"\\.0123456789".contains(&options.delimiter)) {
        let delimiter = char::from(options.delimiter);
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("COPY delimiter cannot be \"{delimiter}\""),
        ));
    }
    let (is_csv, null) = (options.format == Format::Csv, options.null.as_bytes());
    let (sqlstate, refused) = if b"\r\n".contains(&options.delimiter) {
        (sqlstate::INVALID_PARAMETER_VALUE, "COPY delimiter cannot be newline or carriage return")
    } else if null.iter().any(|byte| b"\r\n".contains(byte)) {
        (sqlstate::INVALID_PARAMETER_VALUE, "COPY null representation cannot use newline or carriage return")
    } else if is_csv && options.delimiter == options.quote {
        (sqlstate::INVALID_PARAMETER_VALUE, "COPY delimiter and quote must be different")
    } else if (is_text || is_csv) && null.contains(&options.delimiter) {
        (sqlstate::FEATURE_NOT_SUPPORTED, "COPY delimiter must not appear in the NULL specification")
    } else if is_csv && null.contains(&options.quote) {
        (sqlstate::FEATURE_NOT_SUPPORTED, "CSV quote character must not appear in the NULL specification")
    } else {
        return Ok(options);
    };
    Err(SqlError::new(sqlstate, refused))
}

/// The value of an option, as text.
fn text_of(option: &CopyOption) -> Result<String> {
    match &option.value {
        Some(CopyValue::Word(Ident { name, span: _ })) => Ok(name.clone()),
        Some(CopyValue::Text(Text { text, span: _ })) => Ok(text.clone()),
        Some(CopyValue::Number(number)) => Ok(format!("{}{}", if number.negative { "-" } else { "" }, number.digits)),
        Some(CopyValue::Star | CopyValue::List(_)) | None => {
            Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("{} requires a parameter", option.name.name)))
        }
    }
}

/// Whether a switch is on: it may be said alone.
fn is_on(option: &CopyOption) -> Result<bool> {
    if option.value.is_none() {
        return Ok(true);
    }
    match text_of(option)?.to_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        "match" if option.name.name == "header" => Err(SqlError::unsupported("the COPY option HEADER MATCH")),
        _ => Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("{} requires a Boolean value", option.name.name))),
    }
}

/// The one byte that an option is set to.
fn byte_of(option: &CopyOption) -> Result<u8> {
    match text_of(option)?.as_bytes() {
        [byte] => Ok(*byte),
        _ => {
            let message = format!("COPY {} must be a single one-byte character", option.name.name);
            Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

/// The columns that an option names.
fn columns_of(option: &CopyOption) -> Result<Vec<String>> {
    match &option.value {
        Some(CopyValue::List(names)) => Ok(names.iter().map(|name| name.name.clone()).collect()),
        _ => {
            let message = format!("argument to option \"{}\" must be a list of column names", option.name.name);
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}
