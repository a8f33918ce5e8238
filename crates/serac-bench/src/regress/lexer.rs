//! PostgreSQL's lexical rules, as far as psql and a comparison need them: the ends of quoted texts,
//! comments and names.

/// The kind of a piece of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Space,
    Comment,
    /// A literal in single quotes or between dollars.
    Literal,
    QuotedName,
    Word,
    Number,
    /// One character that belongs to no other kind.
    Symbol,
}

fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn in_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit() || byte == b'$'
}

/// The first place from `at` on where the condition does not hold.
fn while_at(sql: &[u8], at: usize, holds: impl Fn(u8) -> bool) -> usize {
    sql[at..].iter().position(|&byte| !holds(byte)).map_or(sql.len(), |count| at + count)
}

/// The place behind the closing quote. Two quotes stand for one that belongs to the text.
fn quoted(sql: &[u8], mut at: usize, quote: u8, escapes: bool) -> usize {
    while at < sql.len() {
        match sql[at] {
            b'\\' if escapes => at += 2,
            byte if byte != quote => at += 1,
            _ if sql.get(at + 1) == Some(&quote) => at += 2,
            _ => return at + 1,
        }
    }
    sql.len()
}

/// The place behind a comment, which may contain others.
fn comment(sql: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < sql.len() {
        match &sql[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    sql.len()
}

/// The place behind a text between dollars, if one begins here.
fn between_dollars(sql: &[u8], at: usize) -> Option<usize> {
    let tag_end = match sql.get(at + 1) {
        Some(&byte) if starts_name(byte) => while_at(sql, at + 1, |byte| in_name(byte) && byte != b'$'),
        _ => at + 1,
    };
    let tag = sql.get(at..tag_end + 1).filter(|tag| tag.ends_with(b"$"))?;
    let body = &sql[tag_end + 1..];
    let length = body.windows(tag.len()).position(|window| window == tag);
    Some(length.map_or(sql.len(), |length| tag_end + 1 + length + tag.len()))
}

/// The kind of the piece that begins at `at`, and its end.
///
/// `standard_strings`: a backslash in `'…'` is an ordinary character
/// (`standard_conforming_strings`). A piece that is not closed goes up to the end.
pub fn next(sql: &[u8], at: usize, standard_strings: bool) -> (Kind, usize) {
    let rest = &sql[at..];
    match rest {
        [b'-', b'-', ..] => (Kind::Comment, while_at(sql, at, |byte| byte != b'\n')),
        [b'/', b'*', ..] => (Kind::Comment, comment(sql, at)),
        [b'\'', ..] => (Kind::Literal, quoted(sql, at + 1, b'\'', !standard_strings)),
        [b'e' | b'E', b'\'', ..] => (Kind::Literal, quoted(sql, at + 2, b'\'', true)),
        [b'u' | b'U', b'&', b'\'', ..] => (Kind::Literal, quoted(sql, at + 3, b'\'', false)),
        [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] => (Kind::Literal, quoted(sql, at + 2, b'\'', false)),
        [b'"', ..] => (Kind::QuotedName, quoted(sql, at + 1, b'"', false)),
        [b'u' | b'U', b'&', b'"', ..] => (Kind::QuotedName, quoted(sql, at + 3, b'"', false)),
        [b'$', ..] => match between_dollars(sql, at) {
            Some(end) => (Kind::Literal, end),
            None => (Kind::Symbol, at + 1),
        },
        [byte, ..] if byte.is_ascii_whitespace() => (Kind::Space, while_at(sql, at, |byte| byte.is_ascii_whitespace())),
        [byte, ..] if byte.is_ascii_digit() => {
            (Kind::Number, while_at(sql, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'))
        }
        [byte, ..] if starts_name(*byte) => (Kind::Word, while_at(sql, at, in_name)),
        _ => (Kind::Symbol, at + 1),
    }
}

/// A name, keyword, literal, number or symbol of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    /// Words in lower case, quoted names without their quotes.
    pub text: String,
    /// The number of parentheses that are open around it.
    pub depth: usize,
}

impl Token {
    /// Whether it is this keyword or symbol.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Symbol) && self.text == text
    }

    pub fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::QuotedName)
    }
}

/// The tokens of a statement: all but blanks and comments.
pub fn tokens(sql: &str) -> Vec<Token> {
    let (bytes, mut at, mut depth, mut tokens) = (sql.as_bytes(), 0, 0_usize, Vec::new());
    while at < bytes.len() {
        let (kind, end) = next(bytes, at, true);
        let raw = String::from_utf8_lossy(&bytes[at..end]);
        at = end;
        let text = match kind {
            Kind::Space | Kind::Comment => continue,
            Kind::Word => raw.to_lowercase(),
            Kind::QuotedName => raw.trim_start_matches(['u', 'U', '&']).trim_matches('"').replace("\"\"", "\""),
            _ => raw.into_owned(),
        };
        let closes = kind == Kind::Symbol && text == ")";
        depth = depth.saturating_sub(usize::from(closes));
        tokens.push(Token { kind, depth, text });
        depth += usize::from(tokens.last().is_some_and(|token| token.is("(")));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<String> {
        tokens(sql).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn quotes_and_comments_end_where_postgresql_ends_them() {
        assert_eq!(texts("a /* b /* c */ d */ 'it''s' -- e\nF"), ["a", "'it''s'", "f"]);
        assert_eq!(texts(r"e'a\'b' 'c\' d"), [r"e'a\'b'", r"'c\'", "d"]);
        assert_eq!(texts("$x$ $$ ; $x$ $$'$$ $1"), ["$x$ $$ ; $x$", "$$'$$", "$", "1"]);
        assert_eq!(texts("\"A\"\"b\" c$d$e"), ["A\"b", "c$d$e"]);
    }

    #[test]
    fn a_backslash_escapes_where_strings_are_not_standard() {
        let sql = br"'a\'b'";
        assert_eq!(next(sql, 0, true), (Kind::Literal, 4));
        assert_eq!(next(sql, 0, false), (Kind::Literal, 6));
    }

    #[test]
    fn parentheses_make_depth() {
        let depths: Vec<usize> = tokens("a (b (c)) d").iter().map(|token| token.depth).collect();
        assert_eq!(depths, [0, 0, 1, 1, 2, 1, 0, 0]);
    }
}
