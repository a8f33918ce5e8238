//! Follow-ups: differences that an earlier difference has caused.
//!
//! If a statement that makes or changes an object ends differently on the two servers, its names
//! are tainted. A later difference about a tainted name shows nothing new. Taint spreads through
//! views to the statements that read them. Through views, triggers, rules, functions and foreign
//! keys it spreads to the relations that change along with a tainted one.

use super::absent::{NAMES, matches};
use super::lexer::{Kind, Token, next};
use std::collections::{HashMap, HashSet};

/// Words before the kind of an object, or between the kind and its name.
const FILLERS: [&str; 24] = [
    "or",
    "replace",
    "temp",
    "temporary",
    "unlogged",
    "global",
    "local",
    "unique",
    "recursive",
    "materialized",
    "foreign",
    "constraint",
    "event",
    "concurrently",
    "if",
    "not",
    "exists",
    "only",
    "table",
    "default",
    "trusted",
    "procedural",
    "access",
    "user",
];
/// The kinds of objects of CREATE, ALTER and DROP, by the last word of each.
const KINDS: [&str; 30] = [
    "view",
    "index",
    "sequence",
    "schema",
    "type",
    "domain",
    "function",
    "procedure",
    "routine",
    "aggregate",
    "operator",
    "trigger",
    "rule",
    "policy",
    "role",
    "group",
    "cast",
    "collation",
    "conversion",
    "statistics",
    "server",
    "mapping",
    "publication",
    "subscription",
    "language",
    "extension",
    "tablespace",
    "database",
    "method",
    "class",
];
/// Keywords that may stand in place of an omitted name.
const NO_NAMES: [&str; 12] =
    ["on", "as", "select", "insert", "update", "delete", "to", "for", "from", "text", "unbounded", "of"];
/// Words in an ALTER, GRANT or COMMENT that are not names.
const KEYWORDS: [&str; 40] = [
    "add",
    "drop",
    "alter",
    "column",
    "set",
    "to",
    "rename",
    "type",
    "using",
    "as",
    "on",
    "in",
    "all",
    "from",
    "by",
    "grant",
    "revoke",
    "comment",
    "is",
    "null",
    "default",
    "constraint",
    "primary",
    "key",
    "check",
    "references",
    "cascade",
    "with",
    "select",
    "insert",
    "update",
    "delete",
    "owner",
    "and",
    "or",
    "integer",
    "int",
    "text",
    "public",
    "values",
];

/// The effect of a statement on stored objects and on the session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Relations, types, functions, roles, prepared statements and cursors that it makes, changes
    /// or drops.
    pub objects: Vec<String>,
    /// Columns, constraints and others that an ALTER or GRANT names.
    pub parts: Vec<String>,
    /// It makes the objects.
    pub creates: bool,
    /// It drops them.
    pub drops: bool,
    /// It changes their rows.
    pub changes: bool,
    /// It changes the session's role.
    pub role: bool,
}

/// The last part of the name that stands at a place, and the place behind it.
fn name_at(tokens: &[Token], mut at: usize) -> Option<(String, usize)> {
    let keyword = |token: &Token| token.kind == Kind::Word && NO_NAMES.contains(&token.text.as_str());
    let mut name = tokens.get(at).filter(|token| token.is_name() && !keyword(token))?;
    while tokens.get(at + 1).is_some_and(|token| token.is(".")) {
        let Some(part) = tokens.get(at + 2).filter(|token| token.is_name()) else { break };
        (name, at) = (part, at + 2);
    }
    Some((name.text.clone(), at + 1))
}

/// Names at a place with commas between them.
fn names_at(tokens: &[Token], mut at: usize, objects: &mut Vec<String>) {
    while let Some((name, end)) = name_at(tokens, at) {
        objects.push(name);
        if !tokens.get(end).is_some_and(|token| token.is(",")) {
            break;
        }
        at = end + 1;
    }
}

fn skip(tokens: &[Token], at: usize, words: &[&str]) -> usize {
    at + tokens[at.min(tokens.len())..].iter().take_while(|token| words.iter().any(|word| token.is(word))).count()
}

/// The effect of a statement, as far as its text shows it.
pub fn effect(tokens: &[Token]) -> Effect {
    let mut effect = Effect::default();
    let first = tokens.first().map_or("", |token| token.text.as_str());
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
    match first {
        "create" | "drop" | "alter" => {
            (effect.creates, effect.drops) = (first == "create", first == "drop");
            let words: Vec<&str> = FILLERS.iter().chain(&KINDS).copied().collect();
            names_at(tokens, skip(tokens, 1, &words), &mut effect.objects);
            // A CREATE SCHEMA may contain the objects of the schema.
            for at in 2..tokens.len() {
                if tokens[at].is("create") && tokens[at].depth == 0 {
                    names_at(tokens, skip(tokens, at + 1, &words), &mut effect.objects);
                }
            }
            // Rows of a child are its parents', too.
            if let Some(at) = (1..tokens.len()).find(|&at| is(at, "inherits") && is(at + 1, "(")) {
                names_at(tokens, at + 2, &mut effect.objects);
            }
            // An index, trigger, rule or policy is a part of a table; a partition, a part of its
            // parent.
            for at in 1..tokens.len() {
                if is(at, "on") || (is(at, "of") && is(at.wrapping_sub(1), "partition")) {
                    // A rule is on an event, and to a table.
                    let end = if is(at + 2, "to") { at + 3 } else { at + 1 };
                    effect.objects.extend(name_at(tokens, skip(tokens, end, &["only"])).map(|(name, _)| name));
                    break;
                }
            }
        }
        "prepare" | "declare" | "savepoint" | "deallocate" | "close" => {
            effect.objects.extend(name_at(tokens, 1).map(|(name, _)| name));
            effect.creates = matches!(first, "prepare" | "declare" | "savepoint");
        }
        "truncate" | "refresh" | "copy" | "lock" | "cluster" => {
            let at = skip(tokens, 1, &["table", "only", "materialized", "view", "concurrently"]);
            names_at(tokens, at, &mut effect.objects);
            effect.changes = matches!(first, "truncate" | "copy");
        }
        // SHOW returns the settings with which a transaction begins.
        "begin" | "start" => {
            let settings = ["transaction_isolation", "transaction_read_only", "transaction_deferrable"];
            effect.objects.extend(settings.map(str::to_owned));
        }
        "set" | "reset" => effect.role = is(1, "role") || is(2, "authorization"),
        _ => {}
    }
    // Changes may stand within WITH, too.
    for at in 0..tokens.len() {
        let target = match tokens[at].text.as_str() {
            "into" if is(at.wrapping_sub(1), "insert") || is(at.wrapping_sub(1), "merge") => at + 1,
            "into" if first == "select" || first == "with" => {
                effect.creates = true;
                skip(tokens, at + 1, &["temp", "temporary", "unlogged", "table"])
            }
            "from" if is(at.wrapping_sub(1), "delete") => at + 1,
            "update" if at == 0 || is(at - 1, "(") => at + 1,
            _ => continue,
        };
        let target = skip(tokens, target, &["only"]);
        effect.objects.extend(name_at(tokens, target).map(|(name, _)| name));
        effect.changes = !effect.creates;
    }
    if matches!(first, "alter" | "grant" | "revoke" | "comment" | "reassign") {
        let named = tokens.iter().filter(|token| token.is_name() && !KEYWORDS.contains(&token.text.as_str()));
        effect.parts.extend(named.map(|token| token.text.clone()));
    }
    effect
}

/// The names in an error: words in quotes, before a parenthesis, or behind `column`.
pub fn names_in_error(message: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| names.extend(name.split('.').map(|part| part.to_lowercase()));
    message.split('"').skip(1).step_by(2).for_each(&mut add);
    let words: Vec<&str> = message.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| words[at]);
        match word.split_once('(') {
            Some((name, _)) if !name.is_empty() => add(name),
            _ if word.starts_with('"') => {}
            _ if matches!(before, "column" | "type" | "function" | "relation" | "table") => {
                add(word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '.'));
            }
            _ => {}
        }
    }
    names
}

/// The reason if an error is about a type or function that is absent.
pub fn absent_name(message: &str) -> Option<&'static str> {
    let mut names = names_in_error(message);
    if let Some(operator) = message.strip_prefix("operator does not exist: ") {
        names.extend(operator.split_whitespace().map(str::to_owned));
    }
    // A type may have a length, or be an array of itself.
    let bare = |name: &String| name.split(['(', '[']).next().unwrap_or_default().trim().to_owned();
    let names: Vec<String> = names.iter().map(bare).collect();
    NAMES.iter().find(|(entry, _)| names.iter().any(|name| matches(entry, name))).map(|(_, why)| *why)
}

/// The setting that a SET, SHOW or RESET is about.
pub fn setting(tokens: &[Token]) -> Option<&str> {
    let sets = match tokens.first()?.text.as_str() {
        "set" => true,
        "show" | "reset" => false,
        _ => return None,
    };
    let at = skip(tokens, 1, &["session", "local"]);
    let name = tokens.get(at)?.text.as_str();
    match (name, tokens.get(at + 1).map(|next| next.text.as_str())) {
        ("time", Some("zone")) => Some("timezone"),
        (name, Some("=" | "to")) => Some(name),
        (name, None) if !sets => Some(name),
        _ => None,
    }
}

/// A statement with the type `text` where it has the type `name`.
pub fn names_as_texts(sql: &str) -> String {
    let (mut text, mut at, mut after_word) = (String::new(), 0, false);
    while at < sql.len() {
        let (kind, end) = next(sql.as_bytes(), at, true);
        let piece = &sql[at..end];
        // The first word in a definition is the column's own name.
        let is_type = kind == Kind::Word && after_word && piece.eq_ignore_ascii_case("name");
        text.push_str(if is_type { "text" } else { piece });
        if !matches!(kind, Kind::Space | Kind::Comment) {
            after_word = matches!(kind, Kind::Word | Kind::QuotedName);
        }
        at = end;
    }
    text
}

/// Relations that statements have made, and their dependencies.
#[derive(Clone, Default)]
struct Relations {
    made: HashSet<String>,
    /// The relations that a view reads.
    read_by: HashMap<String, Vec<String>>,
    /// The relations that change along with another one, or where a function is called.
    changed_by: HashMap<String, Vec<String>>,
}

impl Relations {
    /// Notes the relations of a statement that PostgreSQL has carried out.
    fn learn(&mut self, tokens: &[Token], effect: &Effect) {
        if effect.drops {
            for name in &effect.objects {
                self.read_by.remove(name);
                self.changed_by.remove(name);
            }
        }
        let Some(name) = effect.objects.first().filter(|_| effect.creates) else { return };
        let kind = tokens.iter().take(6).find(|token| KINDS.iter().chain(&["table"]).any(|kind| token.is(kind)));
        match kind.map(|token| token.text.as_str()) {
            Some("view") => {
                let read = self.named(tokens, name);
                self.read_by.insert(name.clone(), read);
                self.made.insert(name.clone());
            }
            Some("function" | "procedure") => {
                let changed = self.named(tokens, name);
                self.changed_by.insert(name.clone(), changed);
            }
            Some("rule") => {
                let Some(table) = effect.objects.get(1) else { return };
                let changed = self.named(tokens, table);
                self.changed_by.entry(table.clone()).or_default().extend(changed);
            }
            Some("trigger") => {
                let Some(table) = effect.objects.get(1) else { return };
                let called = tokens.iter().rposition(|token| token.is("function") || token.is("procedure"));
                let function = called.and_then(|at| name_at(tokens, at + 1));
                let changed = function.and_then(|(name, _)| self.changed_by.get(&name).cloned());
                self.changed_by.entry(table.clone()).or_default().extend(changed.unwrap_or_default());
            }
            _ => {
                // Rows that refer to others change with them.
                for at in 1..tokens.len() {
                    if tokens[at - 1].is("references")
                        && let Some((referenced, _)) = name_at(tokens, at)
                    {
                        self.changed_by.entry(referenced).or_default().push(name.clone());
                    }
                }
                self.made.insert(name.clone());
            }
        }
    }

    /// Relations other than `own` that a definition names, in the bodies of functions, too.
    fn named(&self, tokens: &[Token], own: &str) -> Vec<String> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let words = tokens.iter().flat_map(|token| token.text.split(move |c: char| !is_part(c)));
        let known = |word: &String| word != own && self.made.contains(word);
        words.map(str::to_lowercase).filter(known).collect::<HashSet<_>>().into_iter().collect()
    }

    /// The names, and all names that the maps reach from them.
    fn closure(&self, names: &[String], by: &[&HashMap<String, Vec<String>>]) -> Vec<String> {
        let mut found: Vec<String> = names.to_vec();
        let mut at = 0;
        while let Some(name) = found.get(at).cloned() {
            for next in by.iter().filter_map(|map| map.get(&name)).flatten() {
                if !found.contains(next) {
                    found.push(next.clone());
                }
            }
            at += 1;
        }
        found
    }
}

/// The tainted names in a session.
#[derive(Clone, Default)]
pub struct Taint {
    objects: HashSet<String>,
    parts: HashSet<String>,
    relations: Relations,
    /// SeracDB's session has another role than PostgreSQL's.
    role: bool,
    /// The objects that SeracDB has changed in the open block.
    block: Vec<String>,
    /// Temporary objects, which end with the connection.
    temporary: Vec<String>,
}

impl Taint {
    /// Notes a statement that PostgreSQL has carried out.
    pub fn learn(&mut self, tokens: &[Token], effect: &Effect) {
        self.relations.learn(tokens, effect);
    }

    /// Notes a statement that has ended differently.
    pub fn add(&mut self, tokens: &[Token], effect: &Effect) {
        self.taint(effect);
        // A function that is absent has changed nothing here.
        let called: Vec<String> =
            tokens.iter().filter(|token| self.objects.contains(&token.text)).map(|token| token.text.clone()).collect();
        if !effect.creates && !effect.drops {
            let changed = self.relations.closure(&called, &[&self.relations.changed_by]);
            self.objects.extend(changed);
        }
        self.parts.extend(effect.parts.iter().cloned());
        self.role |= effect.role;
    }

    /// Notes a statement that has succeeded on both sides in the same way.
    pub fn succeeded(&mut self, tokens: &[Token], effect: &Effect) {
        if self.mentioned(tokens).is_some() && !effect.creates && !effect.drops {
            // A value that is computed from tainted rows is tainted.
            self.taint(effect);
        }
        if effect.drops {
            effect.objects.iter().for_each(|name| _ = self.objects.remove(name));
        }
        self.role &= !effect.role;
        self.block.extend(effect.objects.iter().cloned());
        if effect.creates && tokens.iter().take(4).any(|token| token.is("temp") || token.is("temporary")) {
            self.temporary.extend(effect.objects.iter().cloned());
        }
    }

    fn taint(&mut self, effect: &Effect) {
        self.objects.extend(effect.objects.iter().cloned());
        if effect.changes {
            let Relations { read_by, changed_by, .. } = &self.relations;
            self.objects.extend(self.relations.closure(&effect.objects, &[read_by, changed_by]));
        }
    }

    /// Notes the end of a block. `differently`: only one side has undone it.
    pub fn block_ended(&mut self, differently: bool) {
        let block = std::mem::take(&mut self.block);
        if differently {
            self.objects.extend(block);
        }
    }

    /// Notes that SeracDB has a new session.
    pub fn reconnected(&mut self) {
        self.objects.extend(self.temporary.drain(..).chain(self.block.drain(..)));
    }

    /// A tainted object that a statement mentions.
    pub fn mentioned(&self, tokens: &[Token]) -> Option<&str> {
        // A name may stand in a literal, too: nextval('s'), 't'::regclass.
        let name = |token: &Token| match token.kind {
            Kind::Word | Kind::QuotedName => Some(token.text.clone()),
            Kind::Literal => token.text.trim_matches('\'').rsplit('.').next().map(str::to_lowercase),
            _ => None,
        };
        tokens.iter().filter_map(name).find_map(|name| {
            let read = self.relations.closure(&[name], &[&self.relations.read_by]);
            read.iter().find_map(|name| self.objects.get(name).map(String::as_str))
        })
    }

    /// A tainted name that an error is about.
    pub fn in_error(&self, message: &str) -> Option<String> {
        let names = names_in_error(message);
        names.into_iter().find(|name| self.objects.contains(name) || self.parts.contains(name))
    }

    pub fn role_differs(&self) -> bool {
        self.role
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn objects(sql: &str) -> Vec<String> {
        effect(&tokens(sql)).objects
    }

    #[test]
    fn statements_name_what_they_change() {
        assert_eq!(objects("CREATE TEMP TABLE IF NOT EXISTS s.\"T\" (a int)"), ["T"]);
        assert_eq!(objects("CREATE UNIQUE INDEX i ON ONLY t (a)"), ["i", "t"]);
        assert_eq!(objects("CREATE INDEX ON t (a)"), ["t"]);
        assert_eq!(objects("CREATE RULE r AS ON INSERT TO t DO NOTHING"), ["r", "t"]);
        assert_eq!(objects("CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)"), ["p1", "p"]);
        assert_eq!(objects("CREATE OR REPLACE FUNCTION f(int) RETURNS int AS 'x' LANGUAGE sql"), ["f"]);
        assert_eq!(objects("CREATE SCHEMA s CREATE TABLE t (a int) CREATE VIEW v AS SELECT 1"), ["s", "t", "v"]);
        assert_eq!(objects("CREATE TABLE c () INHERITS (a, b)"), ["c", "a", "b"]);
        assert_eq!(objects("DROP TABLE a, s.b CASCADE"), ["a", "b"]);
        assert_eq!(objects("WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x"), ["t"]);
        assert_eq!(objects("UPDATE ONLY t SET a = 1"), ["t"]);
        assert_eq!(objects("SELECT a INTO u FROM t"), ["u"]);
        assert_eq!(objects("SELECT a FROM t FOR UPDATE"), [""; 0]);
    }

    #[test]
    fn errors_name_things_in_three_ways() {
        assert_eq!(names_in_error("relation \"s.t\" does not exist"), ["s", "t"]);
        assert_eq!(names_in_error("function f(integer) does not exist"), ["f"]);
        assert_eq!(names_in_error("column t.a does not exist"), ["t", "a"]);
        assert_eq!(absent_name("type \"point\" does not exist"), Some("geometric types"));
        assert_eq!(absent_name("operator does not exist: integer <-> point"), Some("geometric types"));
        assert_eq!(absent_name("type \"pointed\" does not exist"), None);
    }

    #[test]
    fn settings_and_types_are_found() {
        assert_eq!(setting(&tokens("SET LOCAL x TO 1")), Some("x"));
        assert_eq!(setting(&tokens("SET TIME ZONE 'UTC'")), Some("timezone"));
        assert_eq!(setting(&tokens("SHOW x")), Some("x"));
        assert_eq!(setting(&tokens("SET TRANSACTION READ ONLY")), None);
        assert_eq!(names_as_texts("CREATE TABLE t (name NAME, b name);"), "CREATE TABLE t (name text, b text);");
    }

    #[test]
    fn taint_goes_with_names_and_ends_with_a_drop() {
        let mut taint = Taint::default();
        let alter = tokens("ALTER TABLE t ADD COLUMN extra int");
        taint.add(&alter, &effect(&alter));
        assert_eq!(taint.mentioned(&tokens("SELECT * FROM t")), Some("t"));
        assert_eq!(taint.mentioned(&tokens("SELECT 's.t'::regclass, 'not t'")), Some("t"));
        assert_eq!(taint.mentioned(&tokens("SELECT extra FROM other WHERE a = 'not t'")), None);
        assert_eq!(taint.in_error("column \"extra\" does not exist"), Some("extra".into()));
        let copy = tokens("INSERT INTO u SELECT * FROM t");
        taint.succeeded(&copy, &effect(&copy));
        assert_eq!(taint.mentioned(&tokens("SELECT * FROM u")), Some("u"));
        let drop = tokens("DROP TABLE t");
        taint.succeeded(&drop, &effect(&drop));
        assert_eq!(taint.mentioned(&tokens("SELECT * FROM t")), None);
    }

    #[test]
    fn taint_goes_through_views_triggers_and_functions() {
        let mut taint = Taint::default();
        let learn = |taint: &mut Taint, sql: &str| {
            let tokens = tokens(sql);
            taint.learn(&tokens, &effect(&tokens));
        };
        let fail = |taint: &mut Taint, sql: &str| {
            let tokens = tokens(sql);
            taint.add(&tokens, &effect(&tokens));
        };
        let follows = |taint: &Taint, sql: &str| taint.mentioned(&tokens(sql)).is_some();
        for table in ["t", "u", "w", "x", "y"] {
            learn(&mut taint, &format!("CREATE TABLE {table} (a int)"));
        }
        learn(&mut taint, "CREATE VIEW v AS SELECT * FROM t");
        learn(&mut taint, "CREATE VIEW v2 AS SELECT * FROM u");
        fail(&mut taint, "SELECT * FROM v");
        assert!(!follows(&taint, "SELECT * FROM t"));
        fail(&mut taint, "INSERT INTO v VALUES (1)");
        assert!(follows(&taint, "SELECT * FROM t") && !follows(&taint, "SELECT * FROM v2"));
        learn(&mut taint, "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN INSERT INTO u VALUES (1); END $$");
        fail(&mut taint, "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN INSERT INTO u VALUES (1); END $$");
        learn(&mut taint, "CREATE TRIGGER g AFTER INSERT ON w EXECUTE FUNCTION f()");
        fail(&mut taint, "CREATE TRIGGER g AFTER INSERT ON w EXECUTE FUNCTION f()");
        assert!(!follows(&taint, "SELECT * FROM v2"));
        let insert = tokens("INSERT INTO w VALUES (1)");
        taint.succeeded(&insert, &effect(&insert));
        assert!(follows(&taint, "SELECT * FROM v2") && !follows(&taint, "SELECT * FROM x"));
        learn(&mut taint, "CREATE FUNCTION h() RETURNS int AS 'DELETE FROM x RETURNING a'");
        fail(&mut taint, "CREATE FUNCTION h() RETURNS int AS 'DELETE FROM x RETURNING a'");
        assert!(!follows(&taint, "SELECT * FROM x"));
        fail(&mut taint, "SELECT h()");
        assert!(follows(&taint, "SELECT * FROM x") && !follows(&taint, "SELECT * FROM y"));
    }

    #[test]
    fn what_one_side_has_undone_is_tainted() {
        let mut taint = Taint::default();
        let create = tokens("CREATE TABLE t (a int)");
        taint.succeeded(&create, &effect(&create));
        taint.block_ended(false);
        assert_eq!(taint.mentioned(&create), None);
        taint.succeeded(&create, &effect(&create));
        taint.block_ended(true);
        assert_eq!(taint.mentioned(&create), Some("t"));
    }
}
