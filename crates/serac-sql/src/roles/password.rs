//! A password's verifier: SCRAM-SHA-256 (RFC 5802, RFC 7677), from which the password cannot be
//! computed.

use crate::error::{Result, SqlError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");
/// Iterations that a role may choose: about half a second of hashing for each login attempt.
pub const MAX_ITERATIONS: u32 = 1_000_000;
const PREFIX: &str = "SCRAM-SHA-256$";

fn verifier_with(password: &str, salt: &[u8]) -> String {
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let stored = digest::digest(&digest::SHA256, hmac::sign(&key, b"Client Key").as_ref());
    let (salt, stored) = (BASE64.encode(salt), BASE64.encode(stored.as_ref()));
    let server = BASE64.encode(hmac::sign(&key, b"Server Key").as_ref());
    format!("{PREFIX}{ITERATIONS}:{salt}${stored}:{server}")
}

/// The verifier of a password, with a random salt; a text that is a verifier already is taken as it
/// is, as PostgreSQL does.
///
/// # Errors
/// SQLSTATE 22023 for a verifier that would make the server hash for too long at each login.
pub(super) fn verifier(password: &str) -> Result<String> {
    match iterations(password) {
        Some(1..=MAX_ITERATIONS) => Ok(password.to_owned()),
        Some(_) => {
            let message = format!("a SCRAM verifier may have {MAX_ITERATIONS} iterations at the most");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
        None => {
            let mut salt = [0; 16];
            SystemRandom::new().fill(&mut salt).expect("the system has random numbers");
            Ok(verifier_with(password, &salt))
        }
    }
}

/// The iterations of a verifier; `None` for another text.
fn iterations(text: &str) -> Option<u32> {
    let (head, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
    let ((iterations, salt), (stored, server)) = (head.split_once(':')?, keys.split_once(':')?);
    let is_base64 = |text: &str| {
        let body = text.trim_end_matches('=');
        text.len().is_multiple_of(4)
            && text.len() - body.len() <= 2
            && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    let is_key = |text: &str| text.len() == 44 && text.ends_with('=') && is_base64(text);
    let iterations = iterations.parse().ok().filter(|iterations| *iterations > 0)?;
    (!salt.is_empty() && is_base64(salt) && is_key(stored) && is_key(server)).then_some(iterations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_is_that_of_the_standard() {
        // RFC 7677 §3: the salt and the password of its exchange, whose proofs derive from these
        // keys.
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let text = verifier_with("pencil", &salt);
        assert_eq!(
            text,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn a_verifier_is_made_once() {
        let first = verifier("secret").unwrap();
        assert_eq!(iterations(&first), Some(4096), "{first}");
        assert_ne!(first, verifier("secret").unwrap(), "each has a salt of its own");
        assert_eq!(verifier(&first).unwrap(), first);
        for other in
            ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:c2FsdA==$x:y", &first.replace("4096", "0"), &first[..80]]
        {
            assert_eq!(iterations(other), None, "{other}");
        }
        for (iterations, is_taken) in
            [(1, true), (MAX_ITERATIONS, true), (MAX_ITERATIONS + 1, false), (u32::MAX, false)]
        {
            let text = first.replace("4096", &iterations.to_string());
            let taken = verifier(&text).map_err(|error| error.sqlstate);
            assert_eq!(taken, if is_taken { Ok(text) } else { Err(sqlstate::INVALID_PARAMETER_VALUE) });
        }
    }
}
