//! Who calls: the bearer of the server's token, or a user who has shown the password and got a token for it; and which session is the client's.
//!
//! A user shows name and password (`authorization: Basic …`) at the handshake, or with any call, and gets a token back in the header `authorization`.
//! Every client is offered a cookie; one that sends it back has a session, which keeps settings and temporary tables between calls.

use super::shelf::{hex, random_id};
use super::{FlightSql, form, status_of};
use crate::pg::Account;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use serac_engine::Catalog;
use serac_engine::roles::RoleId;
use serac_export::flight::{Caller, Token};
use serac_sql::{Session, SqlError};
use std::sync::Arc;
use tonic::Status;

const SESSION_COOKIE: &str = "serac_session";

/// With padding or without: some clients, ADBC's driver among them, send none.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Name and password of `authorization: Basic …`.
fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64.decode(Token::shown(headers, "Basic ")?).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The session that the client's cookie names.
fn session_of(headers: &HeaderMap) -> Option<Arc<str>> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (_, id) = pairs.find(|(name, _)| *name == SESSION_COOKIE)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.into())
}

impl FlightSql {
    pub(super) fn who_calls(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let (user, session, form) = (self.user(headers)?, session_of(headers), form::wanted(headers));
        let mut caller = Caller { user, session, form, ..Caller::default() };
        if caller.session.is_none() {
            let cookie = format!("{SESSION_COOKIE}={}; Path=/; HttpOnly", hex(&random_id()));
            caller.headers.insert(SET_COOKIE, HeaderValue::try_from(cookie).expect("it is ASCII"));
        }
        Ok(caller)
    }

    fn user(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Status> {
        let has_passwords = !self.options.users.is_empty() || self.db.database().catalog().security.has_passwords();
        let is_open = self.options.token.is_none() && !has_passwords;
        if let Some((user, password)) = basic(headers) {
            let account = self.account(&user);
            let is_known = match &account.verifier {
                Some(verifier) if account.wants_password => verifier.is_of(&password),
                _ => is_open && !user.is_empty(),
            };
            if !is_known {
                return Err(super::error("28P01", format!("password authentication failed for user \"{user}\"")));
            }
            return Ok(Some(user.into()));
        }
        let shown = Token::shown(headers, "Bearer ");
        if let Some(user) = shown.and_then(|shown| self.logins.find(shown)) {
            return Ok(Some(user));
        }
        match (&self.options.token, shown) {
            (Some(token), Some(shown)) if token.is(shown) => Ok(None),
            _ if is_open => Ok(None),
            (_, Some(_)) => Err(super::error("28000", "the token is not the server's, or its time is over")),
            (None, None) => Err(super::error(
                "28000",
                "the server wants a user and a password: make a handshake with them, and send the token that it gives",
            )),
            (Some(_), None) => Err(super::error(
                "28000",
                "the server wants a token: send the header \"authorization: Bearer <token>\"",
            )),
        }
    }

    fn account(&self, user: &str) -> Account {
        Account::of(user, &self.options.users, self.db.database())
    }

    /// The role that the caller has in the database.
    pub(super) fn role_of(&self, caller: &Caller, catalog: &Catalog) -> Result<RoleId, Status> {
        let role = match (&caller.user, &self.options.role) {
            (Some(user), _) => self.account(user).role(user, catalog),
            (None, Some(role)) => catalog.security.role_named(role).map(|role| role.id).map_err(SqlError::from),
            (None, None) => Ok(RoleId::BOOTSTRAP),
        };
        role.map_err(|error| status_of(&error))
    }

    /// Makes a session that of the caller's role.
    pub(super) fn enter(&self, caller: &Caller, session: &mut Session) -> Result<(), Status> {
        let entered = match (&caller.user, &self.options.role) {
            (Some(user), _) => self.account(user).enter(session, user),
            (None, Some(role)) => session.log_in(role),
            (None, None) => Ok(()),
        };
        entered.map_err(|error| status_of(&error))
    }

    /// A token for a user who has shown the password. Others get none, and may call if the server is open to all.
    pub(super) fn log_in(&self, caller: &Caller) -> Result<HeaderMap, Status> {
        let mut headers = HeaderMap::new();
        if let Some(user) = &caller.user {
            let token = hex(&random_id());
            self.logins.keep(token.as_bytes(), user.clone())?;
            let value = HeaderValue::try_from(format!("Bearer {token}")).expect("it is ASCII");
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}
