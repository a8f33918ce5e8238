//! The token that a client must show: `authorization: Bearer <token>` with every call.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::fmt;
use std::hint::black_box;
use tonic::Status;

/// A secret that clients know. It is not printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// `None` if the text is empty, or has characters that a header cannot hold: only visible ASCII
    /// characters are allowed.
    pub fn new(token: impl Into<String>) -> Option<Self> {
        let token = token.into();
        (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())).then_some(Self(token))
    }

    /// Whether this is the token. The time depends only on the length of `given`.
    pub fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let unlike = |(i, byte): (usize, &u8)| byte ^ own[i % own.len()];
        let difference = given.iter().enumerate().map(unlike).fold(0, |all, one| black_box(all | one));
        // Not short-circuited.
        (difference == 0) & (given.len() == own.len())
    }

    /// The credential of a call after the name of a scheme, which ends with a blank.
    pub fn shown<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h [u8]> {
        let (name, shown) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(scheme.len())?;
        // The scheme's name is not case-sensitive (RFC 7235 §2.1).
        name.eq_ignore_ascii_case(scheme.as_bytes()).then_some(shown)
    }

    /// # Errors
    /// UNAUTHENTICATED, unless the headers of the call have the token.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        match Self::shown(headers, "Bearer ") {
            Some(given) if self.is(given) => Ok(()),
            Some(_) => Err(Status::unauthenticated("the token is not the server's")),
            None => Err(Status::unauthenticated(
                "the server wants a token: send the header \"authorization: Bearer <token>\"",
            )),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_passes() {
        let token = Token::new("a-long.secret").unwrap();
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            token.check(&headers).map_err(|status| status.code())
        };
        assert_eq!(check("Bearer a-long.secret"), Ok(()));
        assert_eq!(check("bearer a-long.secret"), Ok(()));
        let others = [
            "",
            "Bearer",
            "Bearer ",
            "a-long.secret",
            "Basic a-long.secret",
            "Bearer a-long.secre",
            "Bearer a-long.secret ",
            "Bearer a-long.secreT",
            "Bearer b-long.secret",
            "Bearer a-long.secreta-long.secret",
        ];
        for other in others {
            assert_eq!(check(other), Err(tonic::Code::Unauthenticated), "{other:?}");
        }
        assert_eq!(token.check(&HeaderMap::new()).unwrap_err().code(), tonic::Code::Unauthenticated);
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(Token::new("").is_none() && Token::new("two words").is_none() && Token::new("ü").is_none());
    }
}
