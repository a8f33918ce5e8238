//! Changes of settings by their names: SET, RESET, `set_config` and the parameters of a connection
//! all come here.

use crate::error::{Result, SqlError};
use crate::session_env::SessionEnv;
use crate::setting_list::{DISABLED_PASSES, is_of_users, set_for_client};
use crate::setting_values::{Progress, invalid, is_of_transaction, memory_of, switch, unrecognized};
use serac_query::scan::SharedScans;
use std::sync::atomic::Ordering;

impl SessionEnv {
    /// Sets a setting by its name in lower case. `None` resets it to its value when the client had
    /// connected. `progress` is that of the running transaction.
    ///
    /// # Errors
    /// 42704 if there is no such setting, 22023 for a wrong value, 55P02 for a setting that cannot
    /// be changed, 25001 for a mode of the transaction that cannot change any more.
    pub(crate) fn set_parameter(&self, name: &str, value: Option<&str>, progress: Progress) -> Result<()> {
        let initial = || self.initial_settings.read().get(name).cloned();
        let initial = if value.is_none() { initial() } else { None };
        let value = value.or(initial.as_deref());
        // Relaxed: the session's own statements read it.
        self.client_changes.fetch_add(1, Ordering::Relaxed);
        if self.values.set(name, value, &self.sql.defaults, progress)? {
            return Ok(());
        }
        let invalid = || invalid(name, value.unwrap_or_default());
        match name {
            "work_mem" => {
                let wanted = match value {
                    Some(value) => memory_of(name, value)?,
                    None => self.sql.defaults.work_mem,
                };
                if let Some(most) = self.sql.defaults.max_work_mem
                    && value.is_some()
                    && wanted.is_none_or(|bytes| bytes > most)
                {
                    let detail = Some(format!("The server allows {}kB at the most.", most >> 10));
                    return Err(SqlError { detail, ..invalid() });
                }
                self.set_work_memory(wanted);
            }
            // Relaxed: only this session reads it.
            "enable_bitmap_index" => self.bitmap_indexes.store(switch(name, value, true)?, Ordering::Relaxed),
            "shared_scans" => {
                let detail = || Some("It can be auto, on or off.".into());
                let wanted = value.map_or(Some(SharedScans::Auto), SharedScans::of_name);
                self.scan_sharing.set(wanted.ok_or_else(|| SqlError { detail: detail(), ..invalid() })?);
            }
            DISABLED_PASSES => self.disable_passes(value.unwrap_or_default())?,
            "threads" => {
                let threads = match value {
                    Some(value) => value.parse::<usize>().map_err(|_| invalid())?.clamp(1, 1024),
                    None => self.sql.threads,
                };
                self.change_state(|state| state.config_mut().options_mut().execution.target_partitions = threads);
            }
            _ => return set_for_client(self, name, value).ok_or_else(|| unrecognized(name))?,
        }
        Ok(())
    }

    /// Limits the memory of the session's queries.
    pub(crate) fn set_work_memory(&self, limit: Option<usize>) {
        // A bound of the server holds for sessions that ask for no limit, too.
        let most = self.sql.defaults.max_work_mem;
        let Some(limit) = self.work_memory.set_limit(limit.or(most), most) else { return };
        self.change_state(|state| {
            let options = state.config_mut().options_mut();
            // The memory that sorts reserve for merging must leave most of it for sorting.
            let share = limit / (5 * options.execution.target_partitions.max(1));
            options.execution.sort_spill_reservation_bytes = options.execution.sort_spill_reservation_bytes.min(share);
        });
    }

    /// The value of a setting before a statement of a transaction changes it.
    pub(crate) fn setting_before(&self, name: &str) -> Option<String> {
        // A user-defined setting that was not set yet is empty.
        self.setting(name).or_else(|| is_of_users(name).then(String::new))
    }

    /// Notes that the transaction has changed a setting, so that its end can take that back.
    pub(crate) fn note_change(&self, name: &str, before: Option<String>, local: bool) {
        // The modes of a transaction end with it.
        if is_of_transaction(name) {
            return;
        }
        if let (Some(before), Some(now)) = (before, self.setting(name)) {
            self.changed_settings.note(name, before, &now, local);
        }
    }

    /// `set_config`: SET, or SET LOCAL, in the running transaction, and RESET for no value. Returns
    /// the new value.
    ///
    /// # Errors
    /// As [`set_parameter`](Self::set_parameter).
    pub(crate) fn set_config(&self, name: &str, value: Option<&str>, local: bool) -> Result<String> {
        if matches!(name, "role" | "session_authorization") || name.starts_with("datafusion.") {
            return Err(SqlError::unsupported(format!("set_config of \"{name}\"")));
        }
        let before = self.setting_before(name);
        self.set_parameter(name, value, Progress { is_started: true, has_savepoint: false })?;
        self.note_change(name, before, local);
        Ok(self.setting(name).unwrap_or_default())
    }
}
