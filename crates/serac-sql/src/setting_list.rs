//! All settings with their values, as SHOW ALL, `pg_settings` and `current_setting` give them.
//!
//! A setting is in one of three places. It is a field of the session, a setting that clients of
//! PostgreSQL make (`CLIENT_SETTINGS`), or an option of DataFusion's, whose name begins with
//! `datafusion.`. [`SessionValues`] is a copy of the session's fields for queries, which do not see
//! the session. A test checks that all settings that SET takes are listed.

use crate::error::{Result, SqlError};
use crate::identifiers::{quote_ident, split_list};
use crate::session_env::SessionEnv;
use crate::setting_values::{SessionValues, invalid, memory_of, on_or_off, shown_memory, switch};
use datafusion::execution::context::SessionState;
use serac_storage::Durability;
use serac_values::TimeStyle;
use serac_values::time_style::{IntervalStyle, date_style, session_zone, shown_date_style};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The kind of a setting's values.
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
    /// Its description.
    description: &'static str,
}

const PRESET: &str = "Preset Options";
const STATEMENT: &str = "Client Connection Defaults / Statement Behavior";
const LOCALE: &str = "Client Connection Defaults / Locale and Formatting";
const PLANNER: &str = "Query Tuning / Planner Method Configuration";
const OTHER_PLANNER: &str = "Query Tuning / Other Planner Options";
const COMPATIBILITY: &str = "Version and Platform Compatibility / Previous PostgreSQL Versions";

const INTERVAL_STYLE_NAMES: &[&str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];
/// The values of `synchronous_commit`.
const SYNCHRONOUS: &[&str] = &["local", "remote_write", "remote_apply", "on", "off"];
const LEVELS: Kind = Kind::OneOf(&["serializable", "repeatable read", "read committed", "read uncommitted"]);

const fn set(name: &'static str, kind: Kind, category: &'static str, description: &'static str) -> Setting {
    Setting { name, kind, category, is_set: true, description }
}
const fn preset(name: &'static str, kind: Kind, description: &'static str) -> Setting {
    Setting { name, kind, category: PRESET, is_set: false, description }
}

/// In the order of their names, ignoring case.
#[rustfmt::skip]
const SETTINGS: &[Setting] = &[
    preset("allow_system_table_mods", Kind::Switch, "Whether system tables can be changed."),
    set("application_name", Kind::Text, "Reporting and Logging / What to Log", "What the client calls itself."),
    set("array_nulls", Kind::Switch, COMPATIBILITY, "NULL without quotes in an array is NULL."),
    preset("block_size", Kind::Number, "Size of the disk blocks in which sizes are told."),
    set("bytea_output", Kind::OneOf(&["hex"]), STATEMENT, "The output format for bytea."),
    set("check_function_bodies", Kind::Switch, STATEMENT, "Changes nothing: the bodies of procedures are checked."),
    set("client_encoding", Kind::Text, LOCALE, "The client's character set encoding."),
    set("client_min_messages", Kind::Text, STATEMENT, "The least severe messages that are sent."),
    set("constraint_exclusion", Kind::OneOf(&["partition", "on", "off"]), OTHER_PLANNER, "Whether CHECK constraints exclude foreign tables, whose filters contradict them: unless it is off."),
    set("DateStyle", Kind::Text, LOCALE, "The display format for date and time values."),
    set("default_statistics_target", Kind::Number, PLANNER, "Changes nothing: statistics are sampled for each query."),
    set("default_table_access_method", Kind::OneOf(&["heap"]), STATEMENT, "The access method of tables."),
    set("default_tablespace", Kind::Text, STATEMENT, "The default tablespace to create tables and indexes in."),
    set("default_transaction_deferrable", Kind::Switch, STATEMENT, "Whether new transactions wait for a safe snapshot."),
    set("default_transaction_isolation", LEVELS, STATEMENT, "The isolation level of new transactions."),
    set("default_transaction_read_only", Kind::Switch, STATEMENT, "Whether new transactions only read."),
    set("default_with_oids", Kind::Switch, COMPATIBILITY, "Tables have no numbers of rows."),
    preset("durability", Kind::OneOf(&["full", "relaxed", "off"]), "When a commit is acknowledged."),
    set("enable_bitmap_index", Kind::Switch, PLANNER, "Whether queries use bitmap indexes."),
    set("enable_point_path", Kind::Switch, PLANNER, "Whether short statements on a key run without planning."),
    set("escape_string_warning", Kind::Switch, COMPATIBILITY, "Changes nothing: backslashes in strings are notifications."),
    set("extra_float_digits", Kind::Number, LOCALE, "Floats have as many digits as tell them apart."),
    set("idle_in_transaction_session_timeout", Kind::Time, STATEMENT, "How long a session may be idle in a transaction."),
    set("idle_session_timeout", Kind::Time, STATEMENT, "How long a session may be idle."),
    preset("in_hot_standby", Kind::Switch, "Whether the server only repeats another one."),
    set("integer_datetimes", Kind::Switch, PRESET, "Times are integers."),
    set("IntervalStyle", Kind::OneOf(INTERVAL_STYLE_NAMES), LOCALE, "The display format for interval values."),
    preset("is_superuser", Kind::Switch, "Whether the current user may do everything."),
    set("jit", Kind::Switch, OTHER_PLANNER, "Changes nothing: queries are not compiled to machine code."),
    preset("lc_collate", Kind::Text, "The collation order."),
    preset("lc_ctype", Kind::Text, "The character classification."),
    set("lc_messages", Kind::OneOf(&["C", "POSIX"]), LOCALE, "The language of messages."),
    set("lc_monetary", Kind::OneOf(&["C", "POSIX"]), LOCALE, "The format of amounts of money."),
    set("lc_numeric", Kind::OneOf(&["C", "POSIX"]), LOCALE, "The format of numbers."),
    set("lc_time", Kind::OneOf(&["C", "POSIX"]), LOCALE, "The language of names of days and months."),
    set("lo_compat_privileges", Kind::Switch, COMPATIBILITY, "There are no large objects."),
    set("lock_timeout", Kind::Time, STATEMENT, "How long a statement waits for another transaction."),
    preset("max_connections", Kind::Number, "Connections at a time."),
    preset("max_identifier_length", Kind::Number, "The length of names that PostgreSQL keeps."),
    preset("max_index_keys", Kind::Number, "The number of columns of an index."),
    preset("max_prepared_transactions", Kind::Number, "There is no two-phase commit."),
    preset("memory_limit", Kind::Memory, "The memory of all queries together."),
    set("password_encryption", Kind::OneOf(&["scram-sha-256"]), "Connections and Authentication / Authentication", "What is kept of passwords."),
    set("plan_cache_mode", Kind::OneOf(&["auto", "force_generic_plan", "force_custom_plan"]), OTHER_PLANNER, "Changes nothing: queries with parameters are optimized for their values each time, others once."),
    set("quote_all_identifiers", Kind::Switch, COMPATIBILITY, "Names have quotes where they need them."),
    set("role", Kind::Text, STATEMENT, "The current user, if it is not the session's."),
    set("row_security", Kind::Switch, STATEMENT, "There is no row security."),
    set("search_path", Kind::Text, STATEMENT, "The schemas in which unqualified names are looked up."),
    set(DISABLED_PASSES, Kind::Text, PLANNER, "Optional passes over statements that are disabled (serac_passes)."),
    preset("server_encoding", Kind::Text, "The database's character set encoding."),
    preset("server_version", Kind::Text, "The version of PostgreSQL whose catalog this is."),
    preset("server_version_num", Kind::Number, "The same as a number."),
    set("session_authorization", Kind::Text, STATEMENT, "The session's user."),
    set("session_replication_role", Kind::OneOf(&["origin"]), STATEMENT, "Constraints are checked for all sessions."),
    set("shared_scans", Kind::OneOf(&["auto", "on", "off"]), PLANNER, "Whether scans of a table go together."),
    set("standard_conforming_strings", Kind::Switch, COMPATIBILITY, "Backslashes in strings are notifications."),
    set("statement_timeout", Kind::Time, STATEMENT, "How long a statement may take."),
    set("synchronize_seqscans", Kind::Switch, COMPATIBILITY, "Changes nothing: see shared_scans."),
    set("synchronous_commit", Kind::OneOf(SYNCHRONOUS), "Write-Ahead Log / Settings", "Whether a commit waits until it is on the disk: see durability."),
    set("temp_tablespaces", Kind::Text, STATEMENT, "The tablespaces of temporary tables."),
    set("threads", Kind::Number, "Resource Usage / Asynchronous Behavior", "How many threads a query may use."),
    set("TimeZone", Kind::Text, LOCALE, "The time zone."),
    set("transaction_deferrable", Kind::Switch, STATEMENT, "Whether the transaction waits for a safe snapshot."),
    set("transaction_isolation", LEVELS, STATEMENT, "The isolation level of the transaction."),
    set("transaction_read_only", Kind::Switch, STATEMENT, "Whether the transaction only reads."),
    set("transform_null_equals", Kind::Switch, COMPATIBILITY, "A comparison with NULL is NULL."),
    set("work_mem", Kind::Memory, "Resource Usage / Memory", "The memory of a session's queries."),
    set("xmlbinary", Kind::OneOf(&["base64"]), STATEMENT, "There is no XML."),
    set("xmloption", Kind::OneOf(&["content", "document"]), STATEMENT, "Changes nothing: there is no XML."),
];

/// A setting that nothing changes.
fn preset_value(name: &str) -> Option<&'static str> {
    Some(match name {
        "allow_system_table_mods" => "off",
        "block_size" => "8192",
        "in_hot_standby" => "off",
        "lc_collate" | "lc_ctype" => "C",
        "max_identifier_length" => "63",
        "max_index_keys" => "32",
        "max_prepared_transactions" => "0",
        "server_encoding" => "UTF8",
        "server_version" => concat!("15.0 (SeracDB ", env!("CARGO_PKG_VERSION"), ")"),
        "server_version_num" => "150000",
        _ => return None,
    })
}

impl SessionEnv {
    /// Changes the session's state of DataFusion.
    pub(crate) fn change_state(&self, change: impl FnOnce(&mut SessionState)) {
        if let Some(state) = self.state.get().and_then(Weak::upgrade) {
            change(&mut state.write());
        }
    }

    /// The session's options of DataFusion.
    fn with_state<T>(&self, look: impl FnOnce(&SessionState) -> T) -> Option<T> {
        let state = self.state.get()?.upgrade()?;
        let state = state.read();
        Some(look(&state))
    }

    /// A setting as SHOW gives it, by its name in lower case; `None` for an unknown setting. Not
    /// those of DataFusion.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        let of_session = || {
            Some(match name {
                "max_connections" => self.sql.defaults.max_connections.to_string(),
                "memory_limit" => shown_memory(self.sql.memory_limit),
                "work_mem" => shown_memory(self.work_memory.wanted()),
                "durability" => format!("{:?}", self.database.storage().options().durability).to_lowercase(),
                "threads" => self.with_state(|state| state.config().target_partitions())?.to_string(),
                // Relaxed: the session's own statements change it.
                "enable_bitmap_index" => on_or_off(self.bitmap_indexes.load(Ordering::Relaxed)),
                DISABLED_PASSES => self.disabled_passes.read().join(", "),
                "shared_scans" => self.scan_sharing.setting().name().into(),
                "role" | "session_authorization" | "is_superuser" => self.of_roles(name)?,
                _ => return None,
            })
        };
        let of_client = || {
            let made = self.client_settings.read();
            made.get(name).map(String::as_str).or_else(|| self.usual_setting(name)).map(str::to_owned)
        };
        let of_nobody = || preset_value(name).map(str::to_owned);
        self.values.value(name).or_else(of_session).or_else(of_nobody).or_else(of_client)
    }

    /// The value of a setting of clients that has not been made.
    fn usual_setting(&self, name: &str) -> Option<&'static str> {
        match name {
            SYNCHRONOUS_COMMIT if self.database.storage().options().durability != Durability::Full => Some("off"),
            name => usual_setting(name),
        }
    }

    /// A setting of DataFusion's.
    pub(crate) fn engine_setting(&self, name: &str) -> Option<String> {
        let entries =
            self.with_state(|state| state.config().options().entries()).filter(|_| name.starts_with("datafusion."))?;
        entries.into_iter().find(|entry| entry.key == name).map(|entry| entry.value.unwrap_or_default())
    }

    /// A setting that tells of the session's roles.
    fn of_roles(&self, name: &str) -> Option<String> {
        let catalog = self.view().map_or_else(|| self.database.catalog(), |view| view.catalog);
        let (roles, security) = (self.roles.read(), &catalog.security);
        Some(match name {
            "is_superuser" => on_or_off(security.is_superuser(roles.current)),
            "role" if !roles.is_set => "none".into(),
            "role" => roles.name(roles.current, security),
            _ => roles.name(roles.session, security),
        })
    }

    /// A setting's value after RESET; `None` if that is not known.
    fn usual_value(&self, name: &str) -> Option<String> {
        if let Some(initial) = self.initial_settings.read().get(name) {
            return Some(initial.clone());
        }
        let value = match name {
            "enable_bitmap_index" => Some("on"),
            "shared_scans" => Some("auto"),
            DISABLED_PASSES => Some(""),
            "threads" => return Some(self.sql.threads.to_string()),
            "work_mem" => return Some(shown_memory(self.sql.defaults.work_mem.or(self.sql.defaults.max_work_mem))),
            _ => self.usual_setting(name).or_else(|| preset_value(name)),
        };
        let of_session = || self.values.usual(&self.sql.defaults).value(name);
        value.map(str::to_owned).or_else(of_session).or_else(|| self.setting(name))
    }
}

/// A setting with its value.
#[derive(Clone, Debug)]
pub(crate) struct ListedSetting {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) category: &'static str,
    pub(crate) description: String,
    /// The context in which it may be set, in PostgreSQL's words.
    pub(crate) context: &'static str,
    /// As SHOW gives it.
    pub(crate) shown: String,
    /// In the setting's unit.
    pub(crate) value: String,
    /// The value after RESET, in that unit.
    pub(crate) usual: Option<String>,
}

/// All settings, in the order of their names, ignoring case.
pub(crate) fn all_settings(shared: &Arc<SessionEnv>) -> Vec<ListedSetting> {
    let usual = shared.values.usual(&shared.sql.defaults);
    let in_unit = |of: &SessionValues, kind: Kind, name: &str, shown: Option<String>| match kind {
        Kind::Time => of.time(name).map(|time| time.map_or(0, |time| time.as_millis()).to_string()),
        Kind::Memory => shown
            .and_then(|shown| memory_of(name, &shown).ok())
            .map(|bytes| bytes.map_or(0, |bytes| bytes >> 10).to_string()),
        _ => shown,
    };
    let listed = |setting: &Setting| {
        let name = setting.name.to_lowercase();
        let shown = shared.setting(&name).unwrap_or_default();
        ListedSetting {
            name: setting.name.into(),
            kind: setting.kind,
            category: setting.category,
            description: setting.description.into(),
            context: if setting.is_set { "user" } else { "internal" },
            value: in_unit(&shared.values, setting.kind, &name, Some(shown.clone())).unwrap_or_default(),
            usual: in_unit(&usual, setting.kind, &name, shared.usual_value(&name)),
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

/// A setting that clients of PostgreSQL make and ask for.
pub(crate) struct ClientSetting {
    name: &'static str,
    usual: &'static str,
    accepts: Accepts,
}

/// The values that a setting of clients accepts.
enum Accepts {
    /// The values that mean the present behaviour. It keeps its usual value.
    These(&'static [&'static str]),
    /// One of these words, which it keeps.
    Words(&'static [&'static str]),
    /// A switch, from which nothing follows.
    Switch,
    /// A switch, or one of these words.
    SwitchOr(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of names.
    Names,
}

const fn fixed(name: &'static str, usual: &'static str, accepts: &'static [&'static str]) -> ClientSetting {
    ClientSetting { name, usual, accepts: Accepts::These(accepts) }
}

const fn noted(name: &'static str, usual: &'static str) -> ClientSetting {
    ClientSetting { name, usual, accepts: Accepts::Text }
}

const fn switched(name: &'static str, usual: &'static str) -> ClientSetting {
    ClientSetting { name, usual, accepts: Accepts::Switch }
}

impl ClientSetting {
    /// The result of SHOW after a value was set; `None` if it stays the default.
    ///
    /// # Errors
    /// 22023 for a value that it does not take.
    fn shown(&self, value: String) -> Result<Option<String>> {
        let plain = |text: &str| text.to_lowercase().replace(['-', ' ', '_'], "");
        match &self.accepts {
            Accepts::These(accepts) if accepts.iter().any(|accepted| plain(accepted) == plain(&value)) => Ok(None),
            Accepts::These(accepts) => {
                Err(invalid(self.name, &value).explained(format!("It can be {} here.", accepts.join(" or "))))
            }
            Accepts::Words(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(&value));
                let word = word
                    .ok_or_else(|| invalid(self.name, &value).explained(format!("It can be {}.", words.join(", "))))?;
                Ok(Some((*word).to_owned()))
            }
            Accepts::SwitchOr(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(&value));
                let shown = match (word, switch(self.name, Some(&value), false)) {
                    (Some(word), _) => (*word).to_owned(),
                    (None, Ok(on)) => on_or_off(on),
                    (None, Err(_)) => {
                        return Err(invalid(self.name, &value).explained(format!("It can be {}.", words.join(", "))));
                    }
                };
                Ok(Some(shown))
            }
            Accepts::Switch => switch(self.name, Some(&value), false).map(|on| Some(on_or_off(on))),
            Accepts::Text => Ok(Some(value)),
            Accepts::Names => {
                let names = split_list(&value).ok_or_else(|| invalid(self.name, &value))?;
                Ok(Some(names.iter().map(|name| quote_ident(name)).collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

/// The words for a switch that is on, and for one that is off.
const ON: &[&str] = &["on", "true", "tru", "tr", "t", "yes", "ye", "y", "1"];
const OFF: &[&str] = &["off", "of", "false", "fals", "fal", "fa", "f", "no", "n", "0"];

pub(crate) const CLIENT_SETTINGS: &[ClientSetting] = &[
    fixed("client_encoding", "UTF8", &["UTF8", "unicode"]),
    noted("datestyle", "ISO, MDY"),
    noted("intervalstyle", "postgres"),
    noted("timezone", "UTC"),
    fixed("bytea_output", "hex", &["hex"]),
    fixed("standard_conforming_strings", "on", &["on", "true", "1"]),
    fixed("integer_datetimes", "on", &["on", "true", "1"]),
    // Passwords that are given in clear become verifiers of this kind.
    fixed("password_encryption", "scram-sha-256", &["scram-sha-256"]),
    fixed("row_security", "off", &["off", "false", "0"]),
    noted("application_name", ""),
    ClientSetting {
        name: "client_min_messages",
        usual: "notice",
        accepts: Accepts::Words(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error", "debug", "info",
        ]),
    },
    // Floats are written with as many digits as tell them apart.
    fixed("extra_float_digits", "1", &["1", "2", "3"]),
    fixed("check_function_bodies", "on", &["on", "true", "1", "yes", "off", "false", "0", "no"]),
    fixed("jit", "off", &["on", "true", "1", "yes", "off", "false", "0", "no"]),
    ClientSetting { name: "search_path", usual: "public", accepts: Accepts::Names },
    // Strings in which a backslash would be worth a warning are no strings here.
    switched("escape_string_warning", "on"),
    noted("default_statistics_target", "100"),
    fixed("default_with_oids", "off", OFF),
    fixed("lc_messages", "C", &["C", "POSIX"]),
    fixed("lc_monetary", "C", &["C", "POSIX"]),
    fixed("lc_numeric", "C", &["C", "POSIX"]),
    fixed("lc_time", "C", &["C", "POSIX"]),
    fixed("array_nulls", "on", ON),
    fixed("default_table_access_method", "heap", &["heap"]),
    fixed("default_tablespace", "", &[""]),
    fixed("temp_tablespaces", "", &[""]),
    fixed("lo_compat_privileges", "off", OFF),
    fixed("quote_all_identifiers", "off", OFF),
    fixed("session_replication_role", "origin", &["origin"]),
    fixed("transform_null_equals", "off", OFF),
    fixed("xmlbinary", "base64", &["base64"]),
    switched("synchronize_seqscans", "on"),
    ClientSetting {
        name: "constraint_exclusion",
        usual: "partition",
        accepts: Accepts::SwitchOr(&["partition", "on", "off"]),
    },
    ClientSetting {
        name: "plan_cache_mode",
        usual: "auto",
        accepts: Accepts::Words(&["auto", "force_generic_plan", "force_custom_plan"]),
    },
    ClientSetting { name: SYNCHRONOUS_COMMIT, usual: "on", accepts: Accepts::SwitchOr(SYNCHRONOUS) },
    ClientSetting { name: "xmloption", usual: "content", accepts: Accepts::Words(&["content", "document"]) },
];

/// The name of the setting.
const SYNCHRONOUS_COMMIT: &str = "synchronous_commit";

/// The settings that RESET ALL resets.
pub(crate) const RESETTABLE: [&str; 14] = [
    "search_path",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "enable_point_path",
    "enable_bitmap_index",
    "shared_scans",
    DISABLED_PASSES,
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "work_mem",
    "threads",
];

/// The settings that SET takes, but those of DataFusion.
#[cfg(test)]
pub(crate) fn set_names() -> impl Iterator<Item = &'static str> {
    let of_session = RESETTABLE.into_iter().chain(["role", "session_authorization"]);
    let of_session = of_session.chain(["transaction_deferrable", "transaction_isolation", "transaction_read_only"]);
    let of_session = of_session.filter(|name| usual_setting(name).is_none());
    of_session.chain(CLIENT_SETTINGS.iter().map(|setting| setting.name))
}

/// Settings by which a session may differ from a new one, so that its statements have another
/// meaning or end otherwise. `application_name` is not among them.
pub(crate) fn compared() -> impl Iterator<Item = &'static str> {
    RESETTABLE.into_iter().chain(["client_min_messages", "timezone", "datestyle", "intervalstyle"])
}

/// The value of a setting of clients that has not been made.
pub(crate) fn usual_setting(name: &str) -> Option<&'static str> {
    CLIENT_SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.usual)
}

impl SessionEnv {
    /// Makes plans that depend on settings be made anew.
    pub(crate) fn note_setting(&self) {
        // Relaxed: the session's own statements read it.
        self.settings.fetch_add(1, Ordering::Relaxed);
    }

    /// Another number after every setting that plans depend on.
    pub(crate) fn settings(&self) -> u64 {
        // Relaxed: as in `note_setting`.
        self.settings.load(Ordering::Relaxed)
    }
}

/// Takes a setting that clients of PostgreSQL make, or resets it without a value; `None` for
/// another setting.
pub(crate) fn set_for_client(shared: &SessionEnv, name: &str, value: Option<&str>) -> Option<Result<()>> {
    let Some(known) = CLIENT_SETTINGS.iter().find(|setting| setting.name == name) else {
        return set_of_users(shared, name, value);
    };
    if known.name == "search_path" {
        shared.note_setting();
    }
    let initial = || shared.initial_settings.read().get(known.name).cloned();
    let value = value.map(str::to_owned).or_else(initial);
    if is_of_times(name) {
        return Some(shared.set_time_style(known.name, value.as_deref().unwrap_or(known.usual)));
    }
    let Some(value) = value else {
        shared.client_settings.write().remove(known.name);
        return Some(Ok(()));
    };
    Some(known.shown(value).and_then(|shown| {
        let Some(shown) = shown else { return Ok(()) };
        // A commit may wait longer than is asked for, and not shorter.
        if known.name == SYNCHRONOUS_COMMIT && shown != "off" && shared.usual_setting(known.name) == Some("off") {
            return Err(invalid(known.name, &shown).explained("Commits do not wait for the disk here: see durability."));
        }
        shared.client_settings.write().insert(known.name.to_owned(), shown);
        Ok(())
    }))
}

/// Whether a setting is one of those of [`TimeStyle`].
fn is_of_times(name: &str) -> bool {
    matches!(name, "timezone" | "datestyle" | "intervalstyle")
}

impl SessionEnv {
    /// Sets a setting of times.
    fn set_time_style(&self, name: &'static str, value: &str) -> Result<()> {
        let before = self.time_style.read().clone();
        let mut style = before.as_ref().unwrap_or(TimeStyle::usual()).as_ref().clone();
        let shown = match name {
            "timezone" => {
                style.zone = session_zone(value)?;
                style.zone.name().to_owned()
            }
            "datestyle" => {
                (style.format, style.order) = date_style(value, split_list(value), (style.format, style.order))?;
                shown_date_style(style.format, style.order)
            }
            _ => {
                style.intervals = IntervalStyle::of_name(value)?;
                style.intervals.name().to_owned()
            }
        };
        self.client_settings.write().insert(name.to_owned(), shown);
        let style = Some(style).filter(|style| !style.is_usual()).map(Arc::new);
        if style != before {
            *self.time_style.write() = style;
            self.note_setting();
        }
        Ok(())
    }
}

/// The names of settings that clients of PostgreSQL make.
pub(crate) fn client_setting_names() -> impl Iterator<Item = &'static str> {
    CLIENT_SETTINGS.iter().map(|setting| setting.name)
}

/// Whether a name is that of a setting that users make as they like: it has a point.
pub(crate) fn is_of_users(name: &str) -> bool {
    name.contains('.') && name != DISABLED_PASSES && !name.starts_with("datafusion.")
}

/// Takes a user-defined setting; `None` if the name is not of that kind.
fn set_of_users(shared: &SessionEnv, name: &str, value: Option<&str>) -> Option<Result<()>> {
    let is_preset = |setting: &Setting| !setting.is_set && setting.name.eq_ignore_ascii_case(name);
    if SETTINGS.iter().any(is_preset) {
        return Some(Err(SqlError::new(
            sqlstate::CANT_CHANGE_RUNTIME_PARAM,
            format!("parameter \"{name}\" cannot be changed"),
        )
        .named(name)));
    }
    if !is_of_users(name) {
        return None;
    }
    let invalid = |detail: &str| {
        let message = format!("invalid configuration parameter name \"{name}\"");
        Some(Err(SqlError { detail: Some(detail.into()), ..SqlError::new(sqlstate::INVALID_NAME, message) }))
    };
    let begins = |letter: char| letter.is_alphabetic() || letter == '_';
    let goes_on = |letter: char| begins(letter) || letter.is_ascii_digit() || letter == '$';
    if !name.split('.').all(|part| part.starts_with(begins) && part.chars().all(goes_on)) {
        return invalid("Custom parameter names must be two or more simple identifiers separated by dots.");
    }
    if name.starts_with("serac.") {
        return invalid("\"serac\" is a reserved prefix.");
    }
    let initial = || shared.initial_settings.read().get(name).cloned().unwrap_or_default();
    let value = value.map_or_else(initial, str::to_owned);
    shared.client_settings.write().insert(name.to_owned(), value);
    Some(Ok(()))
}

/// The name of a setting as PostgreSQL writes it, by that in lower case.
pub(crate) fn written_name(name: &str) -> &str {
    let setting = SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name));
    setting.map_or(name, |setting| setting.name)
}

/// The name of the setting.
pub(crate) const DISABLED_PASSES: &str = "serac.disabled_passes";

#[cfg(test)]
mod tests {
    use super::*;
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
