//! All settings with their values, as SHOW ALL, `pg_settings` and `current_setting` give them.
//!
//! A setting is in one of three places: a field of the session ([`SessionValues`] is a copy of
//! these for queries, which do not see the session), a setting that clients of PostgreSQL make
//! ([`crate::settings`]), or an option of DataFusion's, whose name begins with `datafusion.`. A
//! test checks that what SET takes is listed.

use crate::catalog::Shared;
use crate::limits::SessionDefaults;
use crate::pipeline::DISABLED_PASSES;
use crate::settings::{on_or_off, shown_time, usual_setting};
use crate::transactions::{Isolation, Modes};
use datafusion::execution::context::SessionState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a setting's values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Switch,
    Number,
    /// In milliseconds.
    Time,
    /// In kB.
    Memory,
    Text,
    /// One of these.
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// PostgreSQL's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Switch => "bool",
            Self::Number | Self::Time | Self::Memory => "integer",
            Self::Text => "string",
            Self::OneOf(_) => "enum",
        }
    }
    pub(crate) fn unit(self) -> Option<&'static str> {
        match self {
            Self::Time => Some("ms"),
            Self::Memory => Some("kB"),
            _ => None,
        }
    }
}

/// A setting.
struct Setting {
    /// As PostgreSQL writes it.
    name: &'static str,
    kind: Kind,
    category: &'static str,
    /// Whether SET changes it.
    is_set: bool,
    /// What it is.
    description: &'static str,
}

const PRESET: &str = "Preset Options";
const STATEMENT: &str = "Client Connection Defaults / Statement Behavior";
const LOCALE: &str = "Client Connection Defaults / Locale and Formatting";
const PLANNER: &str = "Query Tuning / Planner Method Configuration";
const OTHER_PLANNER: &str = "Query Tuning / Other Planner Options";
const COMPATIBILITY: &str = "Version and Platform Compatibility / Previous PostgreSQL Versions";

const LEVELS: Kind = Kind::OneOf(&["serializable", "repeatable read", "read committed", "read uncommitted"]);

const fn set(name: &'static str, kind: Kind, category: &'static str, description: &'static str) -> Setting {
    Setting { name, kind, category, is_set: true, description }
}
const fn preset(name: &'static str, kind: Kind, description: &'static str) -> Setting {
    Setting { name, kind, category: PRESET, is_set: false, description }
}

/// In the order of their names, whatever their case.
#[rustfmt::skip]
const SETTINGS: &[Setting] = &[
    set("application_name", Kind::Text, "Reporting and Logging / What to Log", "What the client calls itself."),
    preset("block_size", Kind::Number, "Size of the disk blocks in which sizes are told."),
    set("bytea_output", Kind::OneOf(&["hex"]), STATEMENT, "The output format for bytea."),
    set("check_function_bodies", Kind::Switch, STATEMENT, "Changes nothing: the bodies of procedures are checked."),
    set("client_encoding", Kind::Text, LOCALE, "The client's character set encoding."),
    set("client_min_messages", Kind::Text, STATEMENT, "The least severe messages that are sent."),
    set("DateStyle", Kind::Text, LOCALE, "The display format for date and time values."),
    preset("default_table_access_method", Kind::Text, "The access method of tables."),
    preset("default_tablespace", Kind::Text, "The default tablespace to create tables and indexes in."),
    set("default_transaction_isolation", LEVELS, STATEMENT, "The isolation level of new transactions."),
    set("default_transaction_read_only", Kind::Switch, STATEMENT, "Whether new transactions only read."),
    preset("durability", Kind::OneOf(&["full", "relaxed", "off"]), "When a commit is acknowledged."),
    set("enable_bitmap_index", Kind::Switch, PLANNER, "Whether queries use bitmap indexes."),
    set("enable_point_path", Kind::Switch, PLANNER, "Whether short statements on a key run without planning."),
    set("extra_float_digits", Kind::Number, LOCALE, "Floats have as many digits as tell them apart."),
    set("idle_in_transaction_session_timeout", Kind::Time, STATEMENT, "How long a session may be idle in a transaction."),
    set("idle_session_timeout", Kind::Time, STATEMENT, "How long a session may be idle."),
    set("integer_datetimes", Kind::Switch, PRESET, "Times are integers."),
    set("IntervalStyle", Kind::OneOf(&["postgres"]), LOCALE, "The display format for interval values."),
    set("jit", Kind::Switch, OTHER_PLANNER, "Changes nothing: queries are not compiled to machine code."),
    preset("lc_collate", Kind::Text, "The collation order."),
    preset("lc_ctype", Kind::Text, "The character classification."),
    set("lock_timeout", Kind::Time, STATEMENT, "How long a statement waits for another transaction."),
    preset("max_identifier_length", Kind::Number, "The length of names that PostgreSQL keeps."),
    preset("max_index_keys", Kind::Number, "The number of columns of an index."),
    set("row_security", Kind::Switch, STATEMENT, "There is no row security."),
    set("search_path", Kind::Text, STATEMENT, "The schemas in which unqualified names are looked up."),
    set(DISABLED_PASSES, Kind::Text, PLANNER, "Optional passes over statements that do not work (serac_passes)."),
    preset("server_encoding", Kind::Text, "The database's character set encoding."),
    preset("server_version", Kind::Text, "The version of PostgreSQL whose catalog this is."),
    preset("server_version_num", Kind::Number, "The same as a number."),
    set("shared_scans", Kind::OneOf(&["auto", "on", "off"]), PLANNER, "Whether scans of a table go together."),
    set("standard_conforming_strings", Kind::Switch, COMPATIBILITY, "Backslashes in strings are letters."),
    set("statement_timeout", Kind::Time, STATEMENT, "How long a statement may take."),
    set("threads", Kind::Number, "Resource Usage / Asynchronous Behavior", "How many threads a query may use."),
    set("TimeZone", Kind::Text, LOCALE, "The time zone."),
    preset("transaction_deferrable", Kind::Switch, "Whether the transaction waits for a safe snapshot."),
    preset("transaction_isolation", LEVELS, "The isolation level of the transaction."),
    set("transaction_read_only", Kind::Switch, STATEMENT, "Whether the transaction only reads."),
    set("work_mem", Kind::Memory, "Resource Usage / Memory", "The memory of a session's queries."),
];

/// The settings that are fields of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionValues {
    /// The modes of the running transaction.
    pub(crate) modes: Modes,
    pub(crate) default_modes: Modes,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) idle_in_transaction_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) has_point_path: bool,
    /// Bytes; none for no limit.
    pub(crate) work_mem: Option<usize>,
    /// The level of isolation of a session that sets none.
    pub(crate) usual_isolation: Isolation,
}

impl SessionValues {
    /// What holds after RESET ALL.
    fn usual(self, defaults: &SessionDefaults) -> Self {
        let default_modes = Modes { isolation: self.usual_isolation, ..Modes::default() };
        Self {
            modes: self.modes,
            default_modes,
            statement_timeout: defaults.statement_timeout,
            idle_in_transaction_timeout: defaults.idle_in_transaction_session_timeout,
            idle_timeout: defaults.idle_session_timeout,
            lock_timeout: None,
            has_point_path: true,
            work_mem: defaults.work_mem.or(defaults.max_work_mem),
            usual_isolation: self.usual_isolation,
        }
    }
    fn time(&self, name: &str) -> Option<Option<Duration>> {
        Some(match name {
            "statement_timeout" => self.statement_timeout,
            "idle_in_transaction_session_timeout" => self.idle_in_transaction_timeout,
            "idle_session_timeout" => self.idle_timeout,
            "lock_timeout" => self.lock_timeout,
            _ => return None,
        })
    }
    /// A field as SHOW gives it; none if the setting is not one of the session's fields.
    fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "transaction_isolation" | "transaction_isolation_level" => self.modes.isolation.name().into(),
            "transaction_read_only" => on_or_off(self.modes.read_only),
            "transaction_deferrable" => on_or_off(self.modes.deferrable),
            "default_transaction_isolation" => self.default_modes.isolation.name().into(),
            "default_transaction_read_only" => on_or_off(self.default_modes.read_only),
            "enable_point_path" => on_or_off(self.has_point_path),
            "work_mem" => self.work_mem.map_or("0".into(), |bytes| format!("{}kB", bytes >> 10)),
            time => shown_time(self.time(time)?),
        })
    }
}

/// A setting that nothing changes.
fn preset_value(name: &str) -> Option<&'static str> {
    Some(match name {
        "block_size" => "8192",
        "default_table_access_method" => "heap",
        "default_tablespace" => "",
        "lc_collate" | "lc_ctype" => "C",
        "max_identifier_length" => "63",
        "max_index_keys" => "32",
        "server_encoding" => "UTF8",
        "server_version" => concat!("15.0 (SeracDB ", env!("CARGO_PKG_VERSION"), ")"),
        "server_version_num" => "150000",
        _ => return None,
    })
}

impl Shared {
    /// The session's options of DataFusion.
    fn with_state<T>(&self, look: impl FnOnce(&SessionState) -> T) -> Option<T> {
        let state = self.state.get()?.upgrade()?;
        let state = state.read();
        Some(look(&state))
    }
    /// A setting as SHOW gives it, by its name in lower case; none if there is no such setting. Not
    /// those of DataFusion.
    pub(crate) fn setting(&self, session: &SessionValues, name: &str) -> Option<String> {
        let of_session = || {
            Some(match name {
                "durability" => format!("{:?}", self.database.storage().options().durability).to_lowercase(),
                "threads" => self.with_state(|state| state.config().target_partitions())?.to_string(),
                // Relaxed: the session's own statements change it.
                "enable_bitmap_index" => on_or_off(self.bitmap_indexes.load(Ordering::Relaxed)),
                DISABLED_PASSES => self.disabled_passes.read().join(", "),
                "shared_scans" => self.scan_sharing.setting().name().into(),
                _ => return None,
            })
        };
        let of_client = || {
            let usual = usual_setting(name)?;
            Some(self.client_settings.read().get(name).map_or(usual, String::as_str).to_owned())
        };
        let of_nobody = || preset_value(name).map(str::to_owned);
        session.value(name).or_else(of_session).or_else(of_nobody).or_else(of_client)
    }
    /// What a setting is after RESET; none where that is not known.
    fn usual_value(&self, session: &SessionValues, name: &str) -> Option<String> {
        let value = match name {
            "enable_bitmap_index" => Some("on"),
            "shared_scans" => Some("auto"),
            DISABLED_PASSES => Some(""),
            "threads" => return None,
            _ => usual_setting(name).or_else(|| preset_value(name)),
        };
        let of_session = || session.usual(&self.sql.defaults).value(name);
        value.map(str::to_owned).or_else(of_session).or_else(|| self.setting(session, name))
    }
}

/// A setting with its value.
#[derive(Clone, Debug)]
pub(crate) struct ListedSetting {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) category: &'static str,
    pub(crate) description: String,
    /// Who may set it, in PostgreSQL's words.
    pub(crate) context: &'static str,
    /// As SHOW gives it.
    pub(crate) shown: String,
    /// In the setting's unit.
    pub(crate) value: String,
    /// What RESET makes it, in that unit.
    pub(crate) usual: Option<String>,
}

/// All settings, in the order of their names whatever their case.
pub(crate) fn all_settings(shared: &Arc<Shared>, session: &SessionValues) -> Vec<ListedSetting> {
    let usual = session.usual(&shared.sql.defaults);
    let in_unit = |of: &SessionValues, kind: Kind, name: &str, shown: Option<String>| match kind {
        Kind::Time => of.time(name).map(|time| time.map_or(0, |time| time.as_millis()).to_string()),
        Kind::Memory => Some(of.work_mem.map_or(0, |bytes| bytes >> 10).to_string()),
        _ => shown,
    };
    let listed = |setting: &Setting| {
        let name = setting.name.to_lowercase();
        let shown = shared.setting(session, &name).unwrap_or_default();
        ListedSetting {
            name: setting.name.into(),
            kind: setting.kind,
            category: setting.category,
            description: setting.description.into(),
            context: if setting.is_set { "user" } else { "internal" },
            value: in_unit(session, setting.kind, &name, Some(shown.clone())).unwrap_or_default(),
            usual: in_unit(&usual, setting.kind, &name, shared.usual_value(session, &name)),
            shown,
        }
    };
    let mut all: Vec<ListedSetting> = SETTINGS.iter().map(listed).collect();
    let entries = shared.with_state(|state| state.config().options().entries()).unwrap_or_default();
    all.extend(entries.into_iter().map(|entry| {
        let value = entry.value.unwrap_or_default();
        let is_of_process = entry.key.starts_with("datafusion.runtime.");
        ListedSetting {
            kind: Kind::Text,
            category: "DataFusion",
            description: entry.description.into(),
            context: if is_of_process { "superuser" } else { "user" },
            shown: value.clone(),
            value,
            usual: None,
            name: entry.key,
        }
    }));
    all.sort_by_cached_key(|setting| setting.name.to_lowercase());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::set_names;
    use std::collections::HashSet;

    #[test]
    fn what_set_takes_is_listed_once() {
        let listed: Vec<String> = SETTINGS.iter().map(|setting| setting.name.to_lowercase()).collect();
        assert_eq!(listed.iter().collect::<HashSet<_>>().len(), listed.len());
        for name in set_names() {
            let setting = SETTINGS.iter().find(|setting| setting.name.to_lowercase() == name);
            assert!(setting.is_some_and(|setting| setting.is_set), "{name}");
        }
        for setting in SETTINGS.iter().filter(|setting| !setting.is_set) {
            assert!(!set_names().any(|name| name == setting.name), "{}", setting.name);
        }
    }
}
