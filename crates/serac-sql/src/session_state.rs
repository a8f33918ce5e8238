//! Whether a session has state of its own, which no new session of the same client would have.
//!
//! A client whose connection ends may go on in a new session. Its statements mean the same there
//! only if the old session had no state: settings, roles, temporary tables, prepared statements,
//! cursors, channels, advisory locks. Values that sequences have given (`currval`) do not count: a
//! new session refuses to return them, rather than return wrong ones.

use crate::beginning::Beginning;
use crate::session::Session;
use crate::setting_list::{compared, is_of_users};
use std::sync::atomic::Ordering;

impl Session {
    /// Notes that the session's present state is that of a new session of its client.
    pub fn begins(&mut self) {
        let (version, values) = (self.settings_version(), self.compared_settings());
        let roles = self.shared.roles.read().clone();
        self.beginning = Some(Box::new(Beginning { version, values, roles }));
    }

    /// Whether the session has state of its own: a statement may have another meaning in a new one.
    /// False before [`begins`](Self::begins).
    pub fn has_state(&self) -> bool {
        let Some(beginning) = &self.beginning else { return false };
        let temporary = || self.temporary_catalog().is_some_and(|catalog| catalog.tables().next().is_some());
        !self.prepared.is_empty()
            || self.has_engine_setting
            || self.notifications().listens()
            || self.shared.advisory_locks.has_of_session()
            || self.shared.cursors.lock().iter().next().is_some()
            || temporary()
            || (beginning.version != self.settings_version()
                && (beginning.values != self.compared_settings() || beginning.roles != *self.shared.roles.read()))
    }

    fn compared_settings(&self) -> Vec<Option<String>> {
        let of_users = |(name, value): (&String, &String)| is_of_users(name).then(|| format!("{name} = {value}"));
        let mut made: Vec<_> = self.shared.client_settings.read().iter().filter_map(of_users).collect();
        made.sort();
        compared().map(|name| self.setting(name)).chain(made.into_iter().map(Some)).collect()
    }

    /// Another number whenever a setting or a role may have changed.
    fn settings_version(&self) -> u64 {
        // Relaxed: as in `set_for_client`. Roles are noted as settings are.
        self.shared.settings() + self.shared.client_changes.load(Ordering::Relaxed)
    }
}
