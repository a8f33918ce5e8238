//! Passwords that come in clear, and are hashed to be compared with the stored verifier.
//!
//! A hash takes milliseconds, or as long as the role's own verifier demands. It is made on a thread
//! for such work, never on a connection's loop. Few are made at a time, and one for each user: a
//! client that shows many passwords waits for its own, and others are served in between. An unknown
//! name costs the same time, and all unknown names count as one.

use crate::pg::{Account, Mock, Verifier};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use parking_lot::Mutex;
use serac_export::flight::Token;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// With or without padding: a few clients, ADBC's driver among them, send no padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Name and password of `authorization: Basic …`.
pub(crate) fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64.decode(Token::shown(headers, "Basic ")?).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Checks passwords, a few at a time.
pub(crate) struct Passwords {
    threads: Arc<Semaphore>,
    /// By users' names; empty for unknown names.
    turns: Mutex<HashMap<String, Turn>>,
    mock: Mock,
}

impl Default for Passwords {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        Self { threads: Arc::new(Semaphore::new(threads)), turns: Mutex::default(), mock: Mock::default() }
    }
}

impl Passwords {
    /// Whether a password is that of a user's account.
    pub(crate) async fn is_of(&self, user: &str, account: &Account, password: String) -> bool {
        match &account.verifier {
            Some(verifier) => self.hash(user, verifier.clone(), password).await,
            None => {
                self.hash("", self.mock.verifier(user), password).await;
                false
            }
        }
    }

    async fn hash(&self, name: &str, verifier: Verifier, password: String) -> bool {
        let turn = self.turns.lock().entry(name.to_owned()).or_default().clone();
        let own = turn.clone().lock_owned().await;
        let thread = self.threads.clone().acquire_owned().await.expect("it is never closed");
        let hashed = tokio::task::spawn_blocking(move || {
            // Held until the work is done, also without a waiter.
            let _held = (own, thread);
            verifier.is_of(&password)
        });
        let is_of = hashed.await.unwrap_or(false);
        let mut turns = self.turns.lock();
        // The map's and this one: there is no waiter.
        if Arc::strong_count(&turn) == 2 {
            turns.remove(name);
        }
        is_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_engine::Database;

    #[tokio::test]
    async fn names_that_nobody_has_have_no_password() {
        let database = Database::in_memory().unwrap();
        let users = [("ada".to_owned(), Verifier::new("secret"))].into();
        let passwords = Passwords::default();
        for (user, password, good) in [("ada", "secret", true), ("ada", "other", false), ("bob", "secret", false)] {
            let account = Account::of(user, &users, &database);
            assert_eq!(passwords.is_of(user, &account, password.into()).await, good, "{user} {password}");
        }
        assert!(passwords.turns.lock().is_empty());
    }
}
