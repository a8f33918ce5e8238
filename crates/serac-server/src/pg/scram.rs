//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.
//!
//! The server keeps a password as a [`Verifier`]: neither the password nor a client's proof can be
//! computed from it.

use super::WireError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2, rand};
use serac_sql::MAX_ITERATIONS;
use std::num::NonZeroU32;

/// The name of the mechanism.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");
const NONCE_BYTES: usize = 18;
const SALT_BYTES: usize = 16;

type Key = [u8; 32];

fn hmac(key: &[u8], text: &[u8]) -> Key {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("32 bytes")
}
fn sha256(text: &[u8]) -> Key {
    digest::digest(&digest::SHA256, text).as_ref().try_into().expect("32 bytes")
}

/// The server's form of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Verifier {
    /// The verifier of a password, with a random salt.
    pub fn new(password: &str) -> Self {
        let mut salt = [0; SALT_BYTES];
        rand::SystemRandom::new().fill(&mut salt).expect("the system has random numbers");
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, password.as_bytes(), &mut salted);
        let salt = salt.to_vec();
        Self {
            iterations: ITERATIONS.get(),
            salt,
            stored_key: sha256(&hmac(&salted, b"Client Key")),
            server_key: hmac(&salted, b"Server Key"),
        }
    }
}

impl Verifier {
    /// Whether it is of this password. A wrong password takes as long as the right one.
    pub(crate) fn is_of(&self, password: &str) -> bool {
        let Some(iterations) = NonZeroU32::new(self.iterations) else { return false };
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &self.salt, password.as_bytes(), &mut salted);
        let own = sha256(&hmac(&salted, b"Client Key"));
        own.iter().zip(&self.stored_key).fold(0, |all, (a, b)| all | a ^ b) == 0
    }

    /// The verifier of a role, as the catalog keeps it:
    /// `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`. `None` if the text is no verifier.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let ((iterations, salt), (stored, server)) = (head.split_once(':')?, keys.split_once(':')?);
        // Newer roles cannot have more iterations; an older role must not make the server hash for
        // hours.
        let iterations = iterations.parse().ok().filter(|iterations| (1..=MAX_ITERATIONS).contains(iterations))?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Self { iterations, salt: BASE64.decode(salt).ok()?, stored_key: key(stored)?, server_key: key(server)? })
    }
}

/// Verifiers of unknown names: each name always gets the same one, so that it looks like any other.
pub(crate) struct Mock(hmac::Key);

impl Default for Mock {
    /// With a secret of its own.
    fn default() -> Self {
        let random = rand::SystemRandom::new();
        Self(hmac::Key::generate(hmac::HMAC_SHA256, &random).expect("the system has random numbers"))
    }
}

impl Mock {
    pub(crate) fn verifier(&self, name: &str) -> Verifier {
        let of = |what: &str| -> Key {
            let tag = hmac::sign(&self.0, format!("{what}:{name}").as_bytes());
            tag.as_ref().try_into().expect("32 bytes")
        };
        Verifier {
            iterations: ITERATIONS.get(),
            salt: of("salt")[..SALT_BYTES].to_vec(),
            stored_key: of("stored"),
            server_key: of("server"),
        }
    }
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub(super) struct Exchange {
    verifier: Verifier,
    client_first: String,
    server_first: String,
    nonce: String,
    gs2_header: String,
    /// Whether the name is unknown: then the exchange goes on as usual, and fails at its end.
    is_unknown: bool,
}

fn invalid() -> WireError {
    WireError::fatal(sqlstate::PROTOCOL_VIOLATION, "malformed SCRAM message")
}
fn attribute(text: Option<&str>, name: char) -> Result<&str, WireError> {
    text.and_then(|text| text.strip_prefix(name)?.strip_prefix('=')).ok_or_else(invalid)
}

impl Exchange {
    /// Reads the client's first message. `is_unknown`: the name is unknown, and the verifier is a
    /// mock.
    pub(super) fn begin(message: &str, verifier: Verifier, is_unknown: bool) -> Result<Self, WireError> {
        let mut random = [0; NONCE_BYTES];
        rand::SystemRandom::new().fill(&mut random).expect("the system has random numbers");
        Self::with_nonce(message, verifier, is_unknown, &BASE64.encode(random))
    }

    fn with_nonce(message: &str, verifier: Verifier, is_unknown: bool, own: &str) -> Result<Self, WireError> {
        // n,,n=user,r=nonce: the first part says that the client does no channel binding, or that
        // it thinks the server cannot.
        let bare_at = message.match_indices(',').nth(1).ok_or_else(invalid)?.0 + 1;
        let (gs2_header, bare) = message.split_at(bare_at);
        if !gs2_header.starts_with("n,") && !gs2_header.starts_with("y,") {
            return Err(WireError::fatal(sqlstate::FEATURE_NOT_SUPPORTED, "channel binding is not supported"));
        }
        let mut parts = bare.split(',');
        attribute(parts.next(), 'n')?;
        let nonce = attribute(parts.next(), 'r')?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
            return Err(invalid());
        }
        let nonce = format!("{nonce}{own}");
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        Ok(Self { verifier, client_first: bare.into(), server_first, nonce, gs2_header: gs2_header.into(), is_unknown })
    }

    /// The server's first message.
    pub(super) fn challenge(&self) -> &str {
        &self.server_first
    }

    /// Reads the client's last message. Returns the server's last one if the client knows the
    /// password, otherwise `None`.
    pub(super) fn finish(&self, message: &str) -> Result<Option<String>, WireError> {
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(invalid)?;
        let mut parts = without_proof.split(',');
        let binding = attribute(parts.next(), 'c')?;
        let nonce = attribute(parts.next(), 'r')?;
        let proof: Key = BASE64.decode(proof).ok().and_then(|proof| proof.try_into().ok()).ok_or_else(invalid)?;
        if BASE64.decode(binding).ok().as_deref() != Some(self.gs2_header.as_bytes()) || nonce != self.nonce {
            return Err(invalid());
        }
        let text = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let signature = hmac(&self.verifier.stored_key, text.as_bytes());
        let client_key: Key = std::array::from_fn(|i| proof[i] ^ signature[i]);
        let differences = sha256(&client_key).iter().zip(&self.verifier.stored_key).fold(0, |all, (a, b)| all | a ^ b);
        let known = differences == 0;
        if !known || self.is_unknown {
            return Ok(None);
        }
        Ok(Some(format!("v={}", BASE64.encode(hmac(&self.verifier.server_key, text.as_bytes())))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's side.
    fn proof(password: &str, exchange: &Exchange, client_first: &str) -> String {
        let mut fields = exchange.challenge().split(',');
        let nonce = attribute(fields.next(), 'r').unwrap();
        let salt = BASE64.decode(attribute(fields.next(), 's').unwrap()).unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, password.as_bytes(), &mut salted);
        let client_key = hmac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let text = format!("{client_first},{},{without_proof}", exchange.challenge());
        let signature = hmac(&sha256(&client_key), text.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", BASE64.encode(proof))
    }

    #[test]
    fn the_right_password_is_known_and_others_are_not() {
        let verifier = Verifier::new("secret");
        for (password, is_unknown, good) in [("secret", false, true), ("Secret", false, false), ("secret", true, false)]
        {
            if !is_unknown {
                assert_eq!(verifier.is_of(password), good);
            }
            let exchange = Exchange::begin("n,,n=,r=abc", verifier.clone(), is_unknown).unwrap();
            let answer = exchange.finish(&proof(password, &exchange, "n=,r=abc")).unwrap();
            assert_eq!(answer.is_some(), good, "{password}");
        }
    }

    #[test]
    fn the_example_of_rfc_7677_comes_out() {
        let salt: [u8; 16] = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, b"pencil", &mut salted);
        let verifier = Verifier {
            iterations: ITERATIONS.get(),
            salt: salt.to_vec(),
            stored_key: sha256(&hmac(&salted, b"Client Key")),
            server_key: hmac(&salted, b"Server Key"),
        };
        let exchange =
            Exchange::with_nonce("n,,n=user,r=rOprNGfwEbeRWgbNEkqO", verifier, false, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
                .unwrap();
        assert_eq!(
            exchange.challenge(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let answer = exchange.finish(last).unwrap();
        assert_eq!(answer.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for first in ["", "n,,", "n,,n=", "n,,n=,r=", "p=tls-unique,,n=,r=abc", "n,,n=,x=abc", "n,,n=,r=a\u{1}b"] {
            assert!(Exchange::begin(first, Mock::default().verifier("x"), true).is_err(), "{first:?}");
        }
        let exchange = Exchange::begin("n,,n=,r=abc", Verifier::new("x"), false).unwrap();
        let nonce = exchange.nonce.clone();
        for last in ["", "c=biws", "c=biws,r=abc,p=AAAA", &format!("c=eSws,r={nonce},p={}", BASE64.encode([0; 32]))] {
            assert!(exchange.finish(last).is_err(), "{last:?}");
        }
    }
}
