//! SHOW and SET.

use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult};
use crate::transactions::{Isolation, Modes};
use datafusion::sql::sqlparser::ast::{Set, Statement};
use serac_engine::DEFAULT_SCHEMA;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A setting that clients of PostgreSQL make and ask for.
struct ClientSetting {
    name: &'static str,
    usual: &'static str,
    /// The values that mean what is done anyway; none where the value changes nothing.
    accepts: &'static [&'static str],
}

const fn fixed(name: &'static str, usual: &'static str, accepts: &'static [&'static str]) -> ClientSetting {
    ClientSetting { name, usual, accepts }
}
const fn noted(name: &'static str, usual: &'static str) -> ClientSetting {
    ClientSetting { name, usual, accepts: &[] }
}

const CLIENT_SETTINGS: [ClientSetting; 12] = [
    fixed("client_encoding", "UTF8", &["UTF8", "unicode"]),
    fixed("datestyle", "ISO, MDY", &["ISO", "ISO, MDY", "ISO, DMY", "ISO, YMD"]),
    fixed("intervalstyle", "postgres", &["postgres"]),
    fixed("timezone", "UTC", &["UTC", "GMT", "Etc/UTC", "+00:00", "0"]),
    fixed("bytea_output", "hex", &["hex"]),
    fixed("standard_conforming_strings", "on", &["on", "true", "1"]),
    fixed("integer_datetimes", "on", &["on", "true", "1"]),
    fixed("row_security", "off", &["off", "false", "0"]),
    noted("application_name", ""),
    noted("client_min_messages", "notice"),
    noted("extra_float_digits", "1"),
    noted("check_function_bodies", "on"),
];

/// A time as settings have it: milliseconds unless a unit is given. Zero is none.
fn time_of(text: &str) -> Option<Option<Duration>> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let millis = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let millis = text[..digits].parse::<u64>().ok()?.checked_mul(millis)?;
    Some((millis > 0).then(|| Duration::from_millis(millis)))
}
fn shown(time: Option<Duration>) -> String {
    time.map_or("0".into(), |time| format!("{}ms", time.as_millis()))
}
fn on_or_off(on: bool) -> String {
    if on { "on".into() } else { "off".into() }
}

impl Session {
    fn modes(&self) -> Modes {
        self.running.as_ref().map_or(self.default_modes, |running| running.modes)
    }
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        Some(match name {
            "transaction_isolation" | "transaction_isolation_level" => self.modes().isolation.name().into(),
            "transaction_read_only" => on_or_off(self.modes().read_only),
            "default_transaction_isolation" => self.default_modes.isolation.name().into(),
            "default_transaction_read_only" => on_or_off(self.default_modes.read_only),
            "server_version" => concat!("15.0 (SeracDB ", env!("CARGO_PKG_VERSION"), ")").into(),
            "server_version_num" => "150000".into(),
            "server_encoding" => "UTF8".into(),
            "transaction_deferrable" => "off".into(),
            "search_path" => DEFAULT_SCHEMA.into(),
            "durability" => format!("{:?}", self.database().storage().options().durability).to_lowercase(),
            "threads" => self.ctx.state().config().target_partitions().to_string(),
            "enable_bitmap_index" => on_or_off(self.shared.bitmap_indexes.load(Ordering::Relaxed)),
            "enable_point_path" => on_or_off(!self.point.is_off),
            "statement_timeout" => shown(self.statement_timeout),
            "lock_timeout" => shown(self.lock_timeout),
            other => {
                let known = CLIENT_SETTINGS.iter().find(|setting| setting.name == other)?;
                self.client_settings.get(known.name).map_or(known.usual, String::as_str).to_owned()
            }
        })
    }

    /// Takes a setting that clients of PostgreSQL make; none if it is not one.
    fn set_for_client(&mut self, name: &str, value: &str) -> Option<Result<()>> {
        let known = CLIENT_SETTINGS.iter().find(|setting| setting.name == name)?;
        let plain = |text: &str| text.to_lowercase().replace(['-', ' ', '_'], "");
        if value.eq_ignore_ascii_case("default") {
            self.client_settings.remove(known.name);
        } else if known.accepts.is_empty() {
            self.client_settings.insert(known.name, value.to_owned());
        } else if !known.accepts.iter().any(|accepted| plain(accepted) == plain(value)) {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            let detail = format!("It can be {} here.", known.accepts.join(" or "));
            return Some(Err(SqlError { detail: Some(detail), ..SqlError::new("22023", message) }));
        }
        Some(Ok(()))
    }

    pub(crate) async fn set(&mut self, set: Set) -> Result<StatementResult> {
        if let Set::SingleAssignment { variable, values, .. } = &set {
            let name = variable.to_string().to_lowercase();
            let value = values.first().map(|v| v.to_string().trim_matches('\'').to_owned()).unwrap_or_default();
            let invalid = || SqlError::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
            let number = || value.parse::<u64>().map_err(|_| invalid());
            let time = || time_of(&value).ok_or_else(invalid);
            let level = || Isolation::of_name(&value).ok_or_else(invalid);
            let switch = || match value.to_lowercase().as_str() {
                "on" | "true" | "1" | "yes" => Ok(true),
                "off" | "false" | "0" | "no" => Ok(false),
                _ => Err(SqlError::new("22023", format!("parameter \"{name}\" requires a Boolean value"))),
            };
            match name.as_str() {
                "default_transaction_isolation" => {
                    self.default_modes.isolation = level()?;
                    return Ok(StatementResult::command("SET"));
                }
                "default_transaction_read_only" => {
                    self.default_modes.read_only = switch()?;
                    return Ok(StatementResult::command("SET"));
                }
                "enable_point_path" => {
                    self.point.is_off = !switch()?;
                    return Ok(StatementResult::command("SET"));
                }
                "statement_timeout" => {
                    self.statement_timeout = time()?;
                    return Ok(StatementResult::command("SET"));
                }
                "lock_timeout" => {
                    self.lock_timeout = time()?;
                    return Ok(StatementResult::command("SET"));
                }
                "enable_bitmap_index" => {
                    // Relaxed: only this session reads it.
                    self.shared.bitmap_indexes.store(switch()?, Ordering::Relaxed);
                    return Ok(StatementResult::command("SET"));
                }
                "threads" => {
                    let threads = (number()? as usize).clamp(1, 1024);
                    self.ctx.state_ref().write().config_mut().options_mut().execution.target_partitions = threads;
                    return Ok(StatementResult::command("SET"));
                }
                _ if name.starts_with("datafusion.runtime.") => {
                    self.access_now().check_superuser(&format!("set parameter \"{name}\""))?;
                }
                _ if name.starts_with("datafusion.") => {}
                _ => {
                    let unknown = || SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""));
                    let values: Vec<String> =
                        values.iter().map(|v| v.to_string().trim_matches('\'').to_owned()).collect();
                    self.set_for_client(&name, &values.join(", ")).ok_or_else(unknown)??;
                    return Ok(StatementResult::command("SET"));
                }
            }
        }
        if let Set::SetTimeZone { value, .. } = &set {
            let value = value.to_string();
            self.set_for_client("timezone", value.trim_matches('\'')).expect("a known setting")?;
            return Ok(StatementResult::command("SET"));
        }
        if let Set::SetNames { charset_name, .. } = &set {
            self.set_for_client("client_encoding", &charset_name.value).expect("a known setting")?;
            return Ok(StatementResult::command("SET"));
        }
        self.settings += 1;
        let plan = self.plan(Statement::Set(set)).await?;
        self.ctx.execute_logical_plan(plan).await?;
        Ok(StatementResult::command("SET"))
    }
}
