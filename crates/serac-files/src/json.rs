//! What a sample tells about JSON: the keys of its objects, and what their values may be.

use crate::guess::Guess;
use serac_copy::{JsonDocuments, json_members};
use serac_values::{Result, SqlError};
use std::collections::HashMap;

/// Keys that the objects of a file may have.
const MOST_KEYS: usize = 1_600;

/// The keys that have been seen, in the order in which they came first.
#[derive(Debug, Default)]
pub(crate) struct JsonLook {
    pub(crate) keys: Vec<(String, Guess)>,
    places: HashMap<String, usize>,
}

impl JsonLook {
    /// Looks at the beginning of a file.
    ///
    /// # Errors
    /// 22P02 and 22P04 for what is no list of objects, 54011 for too many keys.
    pub(crate) fn look(&mut self, sample: &[u8], is_whole: bool, most: usize) -> Result<()> {
        let mut documents = JsonDocuments::new(sample);
        let mut document = Vec::new();
        for number in 0..most {
            let line = match documents.read(&mut document) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                // The sample may end within a document, or between two.
                Err(_) if !is_whole && number > 0 => break,
                Err(error) => return Err(error),
            };
            for (key, value) in json_members(&document, line)? {
                let at = match self.places.get(key.as_ref()) {
                    Some(at) => *at,
                    None => {
                        if self.keys.len() == MOST_KEYS {
                            let message = format!("the objects have more than {MOST_KEYS} different keys");
                            return Err(SqlError::new(sqlstate::TOO_MANY_COLUMNS, message));
                        }
                        self.places.insert(key.to_string(), self.keys.len());
                        self.keys.push((key.into_owned(), Guess::default()));
                        self.keys.len() - 1
                    }
                };
                if !value.starts_with('n') {
                    self.keys[at].1.see_json(value);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_storage::ColumnType;

    fn looked(text: &str, is_whole: bool) -> Result<Vec<(String, ColumnType)>> {
        let mut look = JsonLook::default();
        look.look(text.as_bytes(), is_whole, 100)?;
        Ok(look.keys.into_iter().map(|(key, guess)| (key, guess.column_type())).collect())
    }

    #[test]
    fn keys_come_in_the_order_in_which_they_are_met() {
        let text = "{\"b\": 1, \"a\": null}\n{\"c\": [1], \"b\": 2.5}\n{\"a\": \"x\"";
        let wanted = [("b", ColumnType::Numeric), ("a", ColumnType::Utf8), ("c", ColumnType::Json)];
        assert_eq!(looked(text, false).unwrap(), wanted.map(|(key, of)| (key.to_owned(), of)));
        assert_eq!(looked(text, true).unwrap_err().sqlstate, sqlstate::BAD_COPY_FILE_FORMAT);
        assert_eq!(looked("", true).unwrap(), []);
        let many: String = (0..2_000).map(|key| format!("{{\"k{key}\": 1}}")).collect();
        let mut look = JsonLook::default();
        assert_eq!(look.look(many.as_bytes(), true, 5_000).unwrap_err().sqlstate, sqlstate::TOO_MANY_COLUMNS);
    }
}
