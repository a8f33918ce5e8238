//! The paths in a crate's sources, read from its tokens: the modules that a file declares, the
//! names that it imports and defines, and the paths that it writes out. Items below `#[cfg(test)]`
//! are left out. The output of macros is not known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A path as it is written: `["crate", "point", "Prepared"]`.
pub type Written = Vec<String>;

/// A module that has a file.
#[derive(Default)]
pub struct Module {
    /// The file, below the crate's `src`.
    pub file: PathBuf,
    /// The module that declares it.
    pub parent: Option<usize>,
    /// The modules with files that it declares.
    pub children: BTreeMap<String, usize>,
    /// The paths that its `use` items import, by their names here.
    pub imports: BTreeMap<String, Written>,
    /// The paths of its `use` items that end in `*`.
    pub globs: Vec<Written>,
    /// The items that it defines.
    pub definitions: BTreeSet<String>,
    /// The paths that are written out, and those of imports.
    pub paths: Vec<Written>,
    /// The names here and the paths that it re-exports by `pub use`.
    pub passed_on: Vec<(String, Written)>,
    /// All identifiers outside of `use` items.
    pub words: BTreeSet<String>,
}

/// Reads the modules of a crate; the first is its root.
///
/// # Errors
/// If a file cannot be read.
pub fn modules(src: &Path) -> io::Result<Vec<Module>> {
    let mut modules = Vec::new();
    read(src, PathBuf::from("lib.rs"), Path::new(""), None, &mut modules)?;
    Ok(modules)
}

/// Reads the module of a file, and its child modules, whose files lie in `folder`.
fn read(
    src: &Path,
    file: PathBuf,
    folder: &Path,
    parent: Option<usize>,
    modules: &mut Vec<Module>,
) -> io::Result<usize> {
    let path = src.join(&file);
    let text = fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let mut reader = Reader { tokens: tokens(&text), ..Reader::default() };
    reader.run();
    let at = modules.len();
    modules.push(Module {
        file,
        parent,
        children: BTreeMap::new(),
        imports: reader.imports,
        globs: reader.globs,
        definitions: reader.definitions,
        paths: reader.paths,
        passed_on: reader.passed_on,
        words: reader.words,
    });
    for child in reader.declared {
        let beside = folder.join(format!("{child}.rs"));
        let file = if src.join(&beside).exists() { beside } else { folder.join(&child).join("mod.rs") };
        let id = read(src, file, &folder.join(&child), Some(at), modules)?;
        modules[at].children.insert(child, id);
    }
    Ok(at)
}

/// The identifiers and symbols of a text; `::` is one symbol. Comments, literals and lifetimes are
/// left out.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        at += match bytes[at] {
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => block_comment(rest),
            b'"' => string(rest),
            b'\'' => quote(rest),
            b'r' | b'b' | b'c' if let Some(length) = prefixed_literal(rest) => length,
            b'r' if rest.starts_with("r#") => 2,
            b':' if byte(at + 1) == b':' => {
                tokens.push("::");
                2
            }
            b'0'..=b'9' => rest.bytes().take_while(|byte| is_word(*byte)).count(),
            first if is_word(first) => {
                let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
                tokens.push(&rest[..length]);
                length
            }
            first if first.is_ascii_whitespace() => 1,
            _ => {
                tokens.push(&rest[..1]);
                1
            }
        };
    }
    tokens
}

/// The length of the block comment that begins a text.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < text.len() {
        let rest = &text.as_bytes()[at..];
        depth = match (rest.starts_with(b"/*"), rest.starts_with(b"*/")) {
            (true, _) => depth + 1,
            (_, true) => depth - 1,
            _ => {
                at += 1;
                continue;
            }
        };
        at += 2;
    }
    at
}

/// The length of the string that begins a text.
fn string(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of the character or the lifetime that begins a text.
fn quote(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => 3 + text[3..].find('\'').map_or(0, |end| end + 1),
        (_, Some((end, '\''))) => end + 1,
        _ => 1 + text[1..].bytes().take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric()).count(),
    }
}

/// The length of a literal with a prefix (`b"…"`, `r#"…"#`, `b'…'`) that begins a text.
fn prefixed_literal(text: &str) -> Option<usize> {
    let prefix = text.bytes().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    let rest = &text[prefix..];
    if prefix > 2 {
        return None;
    }
    if text[..prefix].ends_with('r') {
        let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
        rest[hashes..].starts_with('"').then_some(())?;
        let end = format!("\"{}", "#".repeat(hashes));
        let body = prefix + hashes + 1;
        return Some(body + text[body..].find(&end).map_or(0, |at| at + end.len()));
    }
    match rest.as_bytes().first()? {
        b'"' => Some(prefix + string(rest)),
        b'\'' if text.starts_with("b'") => Some(prefix + quote(rest)),
        _ => None,
    }
}

#[derive(Default)]
struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    /// Braces that are open.
    depth: usize,
    /// The depths at which the bodies of modules without files began.
    inline: Vec<usize>,
    declared: Vec<String>,
    imports: BTreeMap<String, Written>,
    globs: Vec<Written>,
    definitions: BTreeSet<String>,
    paths: Vec<Written>,
    passed_on: Vec<(String, Written)>,
    words: BTreeSet<String>,
    /// Whether the `use` item that is being read is a `pub use`.
    passes_on: bool,
}

impl<'a> Reader<'a> {
    fn token(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or("")
    }

    fn before(&self) -> &'a str {
        self.at.checked_sub(1).map_or("", |at| self.tokens[at])
    }

    fn run(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" if self.tokens[self.at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) => {
                    self.skip_item();
                    continue;
                }
                "pub" if self.token(1) == "(" => {
                    self.skip_group(1);
                    continue;
                }
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inline.last() == Some(&self.depth) {
                        self.inline.pop();
                    }
                }
                // `use<'a>` is a bound.
                "use" if self.token(1) != "<" => {
                    self.passes_on = matches!(self.before(), "pub" | ")");
                    self.at += 1;
                    self.import(Vec::new());
                    continue;
                }
                "mod" if self.token(2) == ";" => self.declared.push(self.token(1).to_owned()),
                "mod" if self.token(2) == "{" => {
                    self.definitions.insert(self.token(1).to_owned());
                    self.inline.push(self.depth);
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                    if self.depth == self.inline.len() =>
                {
                    let name = if self.token(1) == "mut" { self.token(2) } else { self.token(1) };
                    self.definitions.insert(name.to_owned());
                }
                "macro_rules" => {
                    self.definitions.insert(self.token(2).to_owned());
                }
                word if is_identifier(word) && self.token(1) == "::" && !matches!(self.before(), "::" | ".") => {
                    self.path();
                    continue;
                }
                word if is_identifier(word) && !matches!(self.before(), "::" | ".") => {
                    self.words.insert(word.to_owned());
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Adds the path that begins here.
    fn path(&mut self) {
        let mut path = vec![self.token(0).to_owned()];
        self.words.insert(path[0].clone());
        self.at += 1;
        while self.token(0) == "::" && is_identifier(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        let path = self.path_in_file(path);
        self.paths.push(path);
    }

    /// Adds the paths of a `use` item, behind `prefix`.
    fn import(&mut self, mut prefix: Written) {
        loop {
            match self.token(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.import(prefix.clone());
                    }
                    self.at += 1;
                    if matches!(self.token(0), "," | ";") {
                        self.at += 1;
                    }
                    return;
                }
                "*" => {
                    let path = self.path_in_file(std::mem::take(&mut prefix));
                    self.globs.push(path);
                    self.at += 1;
                }
                "," | ";" | "}" | "" => {
                    self.bring_in(prefix, None);
                    if matches!(self.token(0), "," | ";") {
                        self.at += 1;
                    }
                    return;
                }
                "as" => {
                    let name = self.token(1).to_owned();
                    self.at += 2;
                    self.bring_in(std::mem::take(&mut prefix), Some(name));
                }
                "::" => self.at += 1,
                segment => {
                    prefix.push(segment.to_owned());
                    self.at += 1;
                }
            }
        }
    }

    fn bring_in(&mut self, mut path: Written, name: Option<String>) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return };
        let path = self.path_in_file(path);
        let name = name.unwrap_or(last);
        match self.passes_on {
            true => self.passed_on.push((name.clone(), path.clone())),
            false => self.paths.push(path.clone()),
        }
        self.imports.insert(name, path);
    }

    /// A path as the file's own module would write it: modules without files belong to their file.
    fn path_in_file(&self, mut path: Written) -> Written {
        for _ in &self.inline {
            if path.first().is_some_and(|first| first == "super") {
                path[0] = "self".to_owned();
                if path.get(1).is_some_and(|second| second == "super") {
                    path.remove(0);
                }
            }
        }
        path
    }

    /// Skips the item that begins here, and its attributes.
    fn skip_item(&mut self) {
        while self.token(0) == "#" {
            self.at += 1;
            self.skip_group(0);
        }
        let is_import = self.token(0) == "use" || self.token(1) == "use";
        while self.at < self.tokens.len() {
            match self.token(0) {
                ";" => {
                    self.at += 1;
                    return;
                }
                "(" | "[" => self.skip_group(0),
                "{" => {
                    self.skip_group(0);
                    if !is_import {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips everything up to the end of the brackets that begin `ahead` tokens from here.
    fn skip_group(&mut self, ahead: usize) {
        self.at += ahead;
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }
}

fn is_identifier(token: &str) -> bool {
    token.bytes().next().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphabetic() || !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reader<'_> {
        let mut reader = Reader { tokens: tokens(text), ..Reader::default() };
        reader.run();
        reader
    }

    fn paths(text: &str) -> Vec<String> {
        read(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_single_paths() {
        assert_eq!(
            paths("use crate::a::{self, B as C, d::{E, F}};"),
            ["crate::a", "crate::a::B", "crate::a::d::E", "crate::a::d::F",]
        );
        assert_eq!(
            paths("pub(crate) use a::B; fn f() -> super::C { crate::d::E::new::<u8>() }"),
            ["super::C", "crate::d::E::new",]
        );
        assert_eq!(read("pub use a::B; use c::*;").passed_on, [("B".to_owned(), vec!["a".into(), "B".into()])]);
    }

    #[test]
    fn comments_literals_and_tests_are_left_out() {
        let text = r##"
            // crate::a
            /* crate::b /* crate::c */ */
            fn f<'a>(_: &'a str) -> char { let _ = ("crate::d", r#"crate::"e"#, b'"', '"', '\u{1}'); 'x' }
            pub(in crate::g) fn g() {}
            #[cfg(test)]
            mod tests { use crate::h; }
            use crate::i;
        "##;
        assert_eq!(paths(text), ["crate::i"]);
    }

    #[test]
    fn modules_without_files_belong_to_their_file() {
        assert_eq!(paths("mod inner { use super::a; use super::super::b; }"), ["self::a", "super::b"]);
    }
}
