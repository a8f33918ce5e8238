//! SHOW and SET.

use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult};
use datafusion::sql::sqlparser::ast::{Set, Statement};
use serac_engine::DEFAULT_SCHEMA;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Session {
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        Some(match name {
            "transaction_isolation" | "transaction_isolation_level" => "repeatable read".into(),
            "server_version" => env!("CARGO_PKG_VERSION").into(),
            "search_path" => DEFAULT_SCHEMA.into(),
            "durability" => format!("{:?}", self.database().storage().options().durability).to_lowercase(),
            "threads" => self.ctx.state().config().target_partitions().to_string(),
            "enable_bitmap_index" => {
                if self.shared.bitmap_indexes.load(Ordering::Relaxed) {
                    "on".into()
                } else {
                    "off".into()
                }
            }
            "statement_timeout" => self.statement_timeout.map_or("0".into(), |t| format!("{}ms", t.as_millis())),
            _ => return None,
        })
    }

    pub(crate) async fn set(&mut self, set: Set) -> Result<StatementResult> {
        if let Set::SetTransaction { .. } = set {
            // Every transaction is a snapshot transaction, which is what REPEATABLE READ means here.
            return Ok(StatementResult::command("SET"));
        }
        if let Set::SingleAssignment { variable, values, .. } = &set {
            let name = variable.to_string().to_lowercase();
            let value = values.first().map(|v| v.to_string().trim_matches('\'').to_owned()).unwrap_or_default();
            let number = || {
                value
                    .trim_end_matches("ms")
                    .parse::<u64>()
                    .map_err(|_| SqlError::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\"")))
            };
            match name.as_str() {
                "statement_timeout" => {
                    self.statement_timeout = Some(number()?).filter(|ms| *ms > 0).map(Duration::from_millis);
                    return Ok(StatementResult::command("SET"));
                }
                "enable_bitmap_index" => {
                    let on = match value.to_lowercase().as_str() {
                        "on" | "true" | "1" | "yes" => true,
                        "off" | "false" | "0" | "no" => false,
                        _ => {
                            let message = format!("parameter \"{name}\" requires a Boolean value");
                            return Err(SqlError::new("22023", message));
                        }
                    };
                    // Relaxed: only this session reads it.
                    self.shared.bitmap_indexes.store(on, Ordering::Relaxed);
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
        let plan = self.plan(Statement::Set(set)).await?;
        self.ctx.execute_logical_plan(plan).await?;
        Ok(StatementResult::command("SET"))
    }
}
