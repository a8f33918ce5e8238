//! SHOW and SET.

use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult};
use crate::transactions::{Isolation, Modes};
use datafusion::sql::sqlparser::ast::{Set, Statement};
use serac_engine::DEFAULT_SCHEMA;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
            "server_version" => env!("CARGO_PKG_VERSION").into(),
            "search_path" => DEFAULT_SCHEMA.into(),
            "durability" => format!("{:?}", self.database().storage().options().durability).to_lowercase(),
            "threads" => self.ctx.state().config().target_partitions().to_string(),
            "enable_bitmap_index" => on_or_off(self.shared.bitmap_indexes.load(Ordering::Relaxed)),
            "enable_point_path" => on_or_off(!self.point.is_off),
            "statement_timeout" => self.statement_timeout.map_or("0".into(), |t| format!("{}ms", t.as_millis())),
            _ => return None,
        })
    }

    pub(crate) async fn set(&mut self, set: Set) -> Result<StatementResult> {
        if let Set::SingleAssignment { variable, values, .. } = &set {
            let name = variable.to_string().to_lowercase();
            let value = values.first().map(|v| v.to_string().trim_matches('\'').to_owned()).unwrap_or_default();
            let number = || {
                value
                    .trim_end_matches("ms")
                    .parse::<u64>()
                    .map_err(|_| SqlError::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\"")))
            };
            let level = || {
                let message = || format!("invalid value for parameter \"{name}\": \"{value}\"");
                Isolation::of_name(&value).ok_or_else(|| SqlError::new("22023", message()))
            };
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
                    self.statement_timeout = Some(number()?).filter(|ms| *ms > 0).map(Duration::from_millis);
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
                _ if name.starts_with("datafusion.") => {}
                _ => return Err(SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""))),
            }
        }
        self.settings += 1;
        let plan = self.plan(Statement::Set(set)).await?;
        self.ctx.execute_logical_plan(plan).await?;
        Ok(StatementResult::command("SET"))
    }
}
