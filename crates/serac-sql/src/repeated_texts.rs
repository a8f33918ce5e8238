//! Texts of queries that a session sees again: from the second time on they are statements like
//! prepared ones, whose plans are kept ([`crate::kept_plans`]).

use crate::parsed::Parsed;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Longer texts are parsed each time.
const MOST_BYTES: usize = 8 << 10;
/// Texts that are kept, and their bytes together. A plan may have some hundred times the bytes of
/// its text.
const MOST_TEXTS: usize = 64;
const MOST_TEXT: usize = 64 << 10;
/// Texts that are known to have been seen once.
const MOST_SEEN: usize = 256;

/// The texts of a session, the last used ones.
#[derive(Default)]
pub(crate) struct RepeatedTexts {
    hasher: RandomState,
    /// Hashes of texts that have been seen once.
    seen: VecDeque<u64>,
    kept: VecDeque<Parsed>,
    /// The bytes of the texts that are kept.
    bytes: usize,
}

impl RepeatedTexts {
    /// The statement of a text that is kept.
    pub(crate) fn find(&mut self, sql: &str) -> Option<Parsed> {
        let at = self.kept.iter().position(|kept| kept.text() == sql)?;
        let found = self.kept.remove(at)?;
        self.kept.push_back(found.clone());
        Some(found)
    }

    /// The statements of a text that is not kept. It is kept if it is seen for the second time, and
    /// is a query that only shows rows.
    pub(crate) fn noted(&mut self, mut statements: Vec<Parsed>) -> Vec<Parsed> {
        let [statement] = &mut statements[..] else { return statements };
        let text = statement.text();
        if text.len() > MOST_BYTES || !statement.only_shows() {
            return statements;
        }
        let hash = self.hasher.hash_one(text);
        match self.seen.iter().position(|seen| *seen == hash) {
            None => {
                self.seen.push_back(hash);
                if self.seen.len() > MOST_SEEN {
                    self.seen.pop_front();
                }
            }
            Some(at) => {
                self.seen.remove(at);
                self.bytes += text.len();
                *statement = statement.clone().prepared();
                self.kept.push_back(statement.clone());
                while self.kept.len() > MOST_TEXTS || self.bytes > MOST_TEXT {
                    self.bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.text().len());
                }
            }
        }
        statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{SqlDatabase, SqlOptions};
    use crate::session::Session;
    use serac_engine::Database;

    #[tokio::test]
    async fn optimized_plans_are_kept_of_what_is_the_same_at_each_run() {
        let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
        let mut session = Session::new(&db);
        session.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").await.unwrap();
        for (sql, is_kept) in [
            ("SELECT sum(a) FROM t", true),
            ("WITH w AS (SELECT a, count(*) FROM t GROUP BY a) SELECT * FROM w x, w y", true),
            ("SELECT a FROM t WHERE a > (SELECT min(a) FROM t)", true),
            ("SELECT sum(a), random() FROM t", true),
            ("SELECT sum(a), now() FROM t", false),
            ("SELECT sum(a), 'today'::date FROM t", false),
            ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t WHERE now() > '2000-01-01')", false),
            ("SELECT count(*) FROM pg_class", false),
        ] {
            for _ in 0..3 {
                session.execute(sql).await.unwrap();
            }
            let kept = session.repeated_texts.find(sql).unwrap();
            let is_optimized = || kept.source().kept().unwrap().has_optimized();
            assert_eq!(is_optimized(), is_kept, "{sql}");
            // More rows than there were: the order of joins may be another.
            if is_kept {
                session.execute("INSERT INTO t SELECT 1 FROM t").await.unwrap();
                assert!(!is_optimized(), "{sql}");
            }
        }
    }

    fn note(texts: &mut RepeatedTexts, sql: &str) {
        texts.noted(Parsed::of_script(sql).unwrap());
    }

    #[test]
    fn queries_that_come_again_are_kept() {
        let mut texts = RepeatedTexts::default();
        for sql in ["SELECT 1", "SELECT 1; SELECT 2", "DELETE FROM t", "SELECT 1 FROM t FOR UPDATE", "EXPLAIN SELECT 1"]
        {
            note(&mut texts, sql);
            assert!(texts.find(sql).is_none(), "{sql} has been seen once");
            note(&mut texts, sql);
            assert_eq!(texts.find(sql).is_some(), sql == "SELECT 1", "{sql}");
        }
        assert!(texts.find("SELECT  1").is_none());
    }

    #[test]
    fn the_last_used_ones_are_kept() {
        let mut texts = RepeatedTexts::default();
        let text = |number: usize| format!("SELECT {number}, '{}'", "x".repeat(2_000));
        for number in 0..100 {
            (0..2).for_each(|_| note(&mut texts, &text(number)));
            assert!(texts.find(&text(0)).is_some(), "{number}");
        }
        assert!(texts.bytes <= MOST_TEXT && texts.kept.len() <= MOST_TEXTS);
        assert_eq!(texts.bytes, texts.kept.iter().map(|kept| kept.text().len()).sum::<usize>());
        assert!(texts.find(&text(99)).is_some() && texts.find(&text(1)).is_none());
        note(&mut texts, &text(1));
        note(&mut texts, &format!("SELECT '{}'", "x".repeat(MOST_BYTES)));
        assert!(texts.seen.len() <= 1);
    }
}
