//! The caller and its session. A caller is the bearer of the server's token, or a user who has
//! shown the password and got a token for it.
//!
//! A user shows name and password (`authorization: Basic …`) at the handshake, or with any call,
//! and gets a token back in the header `authorization`. The token stands for the role and its
//! password verifier, not for the name: each call compares both with their present state. It ends
//! after a time without use, and at an absolute time.
//!
//! Every client is offered a cookie. A client that sends it back has a session, which keeps
//! settings and temporary tables between calls.

use super::expiring_map::{Owner, hex, random_id};
use super::session_lease::{Kind, SessionLease};
use super::status::{error, status_of};
use super::{FlightSql, form};
use crate::passwords::basic;
use crate::pg::Account;
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use serac_engine::Catalog;
use serac_engine::security::RoleId;
use serac_export::flight::{Caller, Token};
use serac_sql::{Identity, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tonic::Status;

const SESSION_COOKIE: &str = "serac_session";

/// A token that a user got for the password.
#[derive(Clone)]
pub(super) struct Login {
    user: Arc<str>,
    account: Account,
    until: Instant,
}

/// Whether a token has the form of those that users get.
fn is_of_user(shown: &[u8]) -> bool {
    shown.len() == 32 && shown.iter().all(u8::is_ascii_hexdigit)
}

/// The session that the client's cookie names.
fn session_of(headers: &HeaderMap) -> Option<Arc<str>> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (_, id) = pairs.find(|(name, _)| *name == SESSION_COOKIE)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.into())
}

impl FlightSql {
    pub(super) async fn who_calls(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let (login, role) = self.user(headers).await?;
        let (session, form) = (session_of(headers), form::wanted(headers));
        let user = login.as_ref().map(|login| login.user.clone());
        let proof = login.map(|login| Arc::new(login) as _);
        let mut caller = Caller { user, role, session, form, proof, ..Caller::default() };
        if caller.session.is_none() {
            let cookie = format!("{SESSION_COOKIE}={}; Path=/; HttpOnly", hex(&random_id()));
            caller.headers.insert(SET_COOKIE, HeaderValue::try_from(cookie).expect("it is ASCII"));
        }
        Ok(caller)
    }

    /// The user's login, if a user is named, and the role.
    async fn user(&self, headers: &HeaderMap) -> Result<(Option<Login>, RoleId), Status> {
        let has_passwords = !self.options.users.is_empty() || self.db.database().catalog().security.has_passwords();
        let is_open = self.options.token.is_none() && !has_passwords;
        if let Some((user, password)) = basic(headers) {
            let account = self.account(&user);
            let is_known = match account.wants_password {
                // It may have become another while the password was hashed.
                true => self.passwords.is_of(&user, &account, password).await && self.account(&user).is(&account),
                false => is_open && !user.is_empty(),
            };
            if !is_known {
                return Err(error(
                    sqlstate::INVALID_PASSWORD,
                    format!("password authentication failed for user \"{user}\""),
                ));
            }
            let role = self.admitted(&user, &account)?;
            let until = Instant::now() + self.options.longest_login;
            return Ok((Some(Login { user: user.into(), account, until }), role));
        }
        let shown = Token::shown(headers, "Bearer ");
        if let Some(token) = shown
            && let Some(login) = self.logins.find_any(token)
        {
            let account = self.account(&login.user);
            if Instant::now() >= login.until || !account.is(&login.account) {
                self.logins.remove_any(token);
                let message = format!("the login of user \"{}\" is over: log in again", login.user);
                return Err(error(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message));
            }
            let role = self.admitted(&login.user, &account)?;
            return Ok((Some(login), role));
        }
        let nobody = || match &self.options.role {
            Some(role) => {
                let role = self.db.database().catalog().security.role_named(role).map(|role| role.id);
                role.map_err(|error| status_of(&error.into()))
            }
            None => Ok(RoleId::BOOTSTRAP),
        };
        match (&self.options.token, shown) {
            (Some(token), Some(shown)) if token.is(shown) => Ok((None, nobody()?)),
            // A user's expired token does not permit a call as another user.
            (_, shown) if is_open && !shown.is_some_and(is_of_user) => Ok((None, nobody()?)),
            (_, Some(_)) => Err(error(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "the token is not the server's, or its time is over",
            )),
            (None, None) => Err(error(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "the server wants a user and a password: make a handshake with them, and send the token that it gives",
            )),
            (Some(_), None) => Err(error(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "the server wants a token: send the header \"authorization: Bearer <token>\"",
            )),
        }
    }

    fn account(&self, user: &str) -> Account {
        Account::of(user, &self.options.users, self.db.database())
    }

    /// The role of an account, which may connect.
    fn admitted(&self, user: &str, account: &Account) -> Result<RoleId, Status> {
        let role = account.role(user).map_err(|error| status_of(&error))?;
        self.db.database().check_login(role).map_err(|error| status_of(&error.into()))?;
        Ok(role)
    }

    /// The role that the caller has in the database.
    pub(super) fn role_of(&self, caller: &Caller, catalog: &Catalog) -> Result<RoleId, Status> {
        let gone = || error(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, "the role does not exist any more");
        catalog.security.role(caller.role).map(|role| role.id).ok_or_else(gone)
    }

    /// Makes a session that of the caller's role.
    pub(super) fn enter(&self, caller: &Caller, session: &mut Session) -> Result<(), Status> {
        let catalog = self.db.database().catalog();
        let entered = match (&caller.user, &self.options.role) {
            (None, None) => Ok(()),
            (user, _) => {
                let is_other = |user: &&str| *user != catalog.security.name_of(caller.role);
                session.log_in_as(caller.role, user.as_deref().filter(is_other))
            }
        };
        entered.map_err(|error| status_of(&error))
    }

    /// A token for a user who has shown the password, or a token; it ends with that one. Other
    /// callers get no token, and may call if the server is open to all.
    pub(super) fn log_in(&self, caller: &Caller) -> Result<HeaderMap, Status> {
        let mut headers = HeaderMap::new();
        if let Some(login) = caller.proof.as_ref().and_then(|proof| proof.downcast_ref::<Login>()) {
            let token = hex(&random_id());
            self.logins.keep_instead(Owner::of(caller), token.as_bytes(), login.clone(), |_| true)?;
            let value = HeaderValue::try_from(format!("Bearer {token}")).expect("it is ASCII");
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
    // ---- sessions

    pub(super) fn new_seat(&self, caller: &Caller, kind: Kind) -> Result<Arc<SessionLease>, Status> {
        let mut session = Session::new(&self.db);
        self.enter(caller, &mut session)?;
        // Relaxed: numbers need only differ.
        let process = self.sessions.fetch_add(1, Ordering::Relaxed);
        let user = caller.user.as_deref().map_or_else(|| Identity::default().user, str::to_owned);
        session.identify(Identity { user, process, ..Identity::default() });
        Ok(Arc::new(SessionLease::new(session, kind)))
    }

    /// The key of the client's session. It includes the user and the role: the same name means
    /// another session for another user, or for another role of the same name.
    pub(super) fn session_key(caller: &Caller) -> Option<Vec<u8>> {
        let session = caller.session.as_deref()?;
        let user = caller.user.as_deref().unwrap_or_default();
        Some(format!("{session}{}/{user}", caller.role.0).into_bytes())
    }

    /// The client's own session, if it has one.
    pub(super) fn client_seat(&self, caller: &Caller) -> Result<Option<Arc<SessionLease>>, Status> {
        let Some(key) = Self::session_key(caller) else { return Ok(None) };
        let owner = Owner::of(caller);
        if let Some(seat) = self.clients.find(&owner, &key) {
            return Ok(Some(seat));
        }
        let seat = self.new_seat(caller, Kind::Client)?;
        // A client may make up any number of cookies: the user's own sessions make room for that.
        self.clients.keep_instead(owner, key, seat.clone(), |seat| seat.is_idle())?;
        Ok(Some(seat))
    }

    /// The session for a statement: its transaction's, the client's, or one of its own.
    pub(super) fn seat(&self, caller: &Caller, transaction: Option<&[u8]>) -> Result<Arc<SessionLease>, Status> {
        if let Some(id) = transaction.filter(|id| !id.is_empty()) {
            return Ok(self.transactions.get(&Owner::of(caller), id)?.seat);
        }
        match self.client_seat(caller)? {
            Some(seat) => Ok(seat),
            None => self.new_seat(caller, Kind::Lone),
        }
    }
}
