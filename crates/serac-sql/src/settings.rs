//! SHOW and SET.

use crate::error::{Result, SqlError};
use crate::identifiers::{quote, split_list};
use crate::notices::Severity;
use crate::parsed::{Arguments, Source};
use crate::result::{Output, StatementResult};
use crate::session::Session;
use crate::setting_list::{ListedSetting, RESETTABLE, all_settings, client_setting_names, is_of_users, written_name};
use crate::setting_values::{SettingsMark, is_of_transaction, on_or_off, unrecognized};
use crate::transaction::{Running, TransactionStatus};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement as PlanStatement};
use serac_engine::security::Access;
use serac_engine::{Catalog, DEFAULT_SCHEMA};
use serac_parser::tree::{
    IntervalFields, Name, Reset, Set, SetChange, SetScope, SetSetting, SetValue, Show, Text, TransactionMode, Value,
};
use serac_values::TimeStyle;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Settings whose changes are reported to clients of PostgreSQL, by name.
pub type Reported = [(&'static str, String); 6];

/// The output of SHOW.
pub(crate) enum Shown {
    /// Rows.
    Rows(RecordBatch),
    /// The rows of a query.
    Query(Source),
}

/// The columns of SHOW ALL.
fn all_settings_schema() -> SchemaRef {
    let fields = ["name", "setting", "description"].map(|name| Field::new(name, DataType::Utf8, false));
    Arc::new(Schema::new(fields.to_vec()))
}

impl Session {
    /// The schemas in which unqualified names are looked up.
    pub(crate) fn path(&self, catalog: &Catalog, access: &Access) -> Arc<[String]> {
        static USUAL: LazyLock<Arc<[String]>> = LazyLock::new(|| Arc::from([DEFAULT_SCHEMA.to_owned()]));
        let set = self.shared.client_settings.read().get("search_path").and_then(|written| split_list(written));
        let Some(path) = set else { return USUAL.clone() };
        let roles = self.shared.roles.read().clone();
        let named = |name: &String| match name.as_str() {
            "$user" => roles.name(roles.current, &catalog.security),
            _ => name.clone(),
        };
        let usable = |name: &String| catalog.schemas.contains_key(name) && access.check_usage(name).is_ok();
        path.iter().map(named).filter(usable).collect()
    }

    /// Undoes the settings of the transaction.
    pub(crate) fn unset(&mut self) {
        for changed in self.shared.changed_settings.take() {
            // It had been taken once.
            let _ = self.set_or_reset(&changed.name, Some(&changed.before));
        }
    }

    /// Undoes the settings of the transaction since a savepoint.
    pub(crate) fn roll_settings_back(&mut self, mark: SettingsMark) {
        let values = self.shared.changed_settings.roll_back(mark);
        self.keep_settings(values);
    }

    /// Sets again the values that a commit keeps.
    pub(crate) fn keep_settings(&mut self, kept: Vec<(String, String)>) {
        for (name, value) in kept {
            let _ = self.set_or_reset(&name, Some(&value));
        }
    }

    /// SET SESSION CHARACTERISTICS AS TRANSACTION: the settings of the same meaning.
    pub(crate) fn set_default_modes(&mut self, modes: &[TransactionMode]) -> Result<()> {
        let mut wanted = self.shared.values.default_modes();
        wanted.set(modes);
        self.set_in_transaction("default_transaction_isolation", Some(wanted.isolation.name()), false)?;
        self.set_in_transaction("default_transaction_read_only", Some(&on_or_off(wanted.read_only)), false)?;
        self.set_in_transaction("default_transaction_deferrable", Some(&on_or_off(wanted.deferrable)), false)
    }

    /// A setting as SHOW gives it, by its name in lower case; `None` for an unknown setting.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.shared.setting(name)
    }

    /// SHOW.
    pub(crate) async fn show(&mut self, show: &Show) -> Result<Output> {
        match self.shown_by(show).await? {
            Shown::Rows(rows) => {
                let (schema, batches) = (rows.schema(), vec![rows]);
                Ok(Output::Done(StatementResult::Rows { tag: "SHOW", schema, batches }))
            }
            Shown::Query(query) => self.query(query).await,
        }
    }

    /// The output of SHOW.
    ///
    /// # Errors
    /// 42704 for an unknown setting; the errors of the relation.
    pub(crate) async fn shown_by(&self, show: &Show) -> Result<Shown> {
        let name = match show {
            Show::All => return self.show_all().map(Shown::Rows),
            Show::Columns(relation) => return self.shown_columns(relation).await.map(Shown::Query),
            Show::Setting(name) => setting_name(name),
        };
        if let Some(value) = self.setting(&name) {
            let schema = Arc::new(Schema::new(vec![Field::new(written_name(&name), DataType::Utf8, true)]));
            let column = Arc::new(StringArray::from(vec![value])) as ArrayRef;
            return Ok(Shown::Rows(RecordBatch::try_new(schema, vec![column])?));
        }
        if name == "tables" {
            let tables = Source::of_query(
                "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                 WHERE table_schema NOT IN ('pg_catalog', 'information_schema')",
            );
            return tables.map(Shown::Query);
        }
        let is_known = name.starts_with("datafusion.runtime.")
            || self.ctx.state_ref().read().config_options().entries().iter().any(|entry| entry.key == name);
        if !is_known {
            return Err(unrecognized(&name).named(name));
        }
        let of_engine = Source::of_query("SELECT name, value FROM information_schema.df_settings WHERE name = $1")?;
        Ok(Shown::Query(of_engine.with(texts([name.as_str()]))))
    }

    /// The query that SHOW COLUMNS stands for.
    async fn shown_columns(&self, relation: &Name) -> Result<Source> {
        let whole = Source::of_relation(relation, &[]);
        self.bound_columns(&whole).await.map_err(SqlError::unplaced)?;
        let parts = ["table_name", "table_schema", "table_catalog"].into_iter().take(relation.parts.len());
        let conditions = (1..).zip(parts).map(|(number, column)| format!("{column} = ${number}"));
        let query = format!(
            "SELECT table_catalog, table_schema, table_name, column_name, data_type, is_nullable \
             FROM information_schema.columns WHERE {}",
            conditions.collect::<Vec<_>>().join(" AND "),
        );
        Ok(Source::of_query(&query)?.with(texts(relation.parts.iter().rev().map(|part| part.name.as_str()))))
    }

    /// SHOW ALL.
    pub(crate) fn show_all(&self) -> Result<RecordBatch> {
        let all = all_settings(&self.shared);
        let column = |of: fn(&ListedSetting) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(all.iter().map(of)))
        };
        let columns = vec![
            column(|setting| &setting.name),
            column(|setting| &setting.shown),
            column(|setting| &setting.description),
        ];
        Ok(RecordBatch::try_new(all_settings_schema(), columns)?)
    }

    /// Sets a parameter of the client's connection: a setting by name.
    ///
    /// # Errors
    /// SQLSTATE 42704 if there is no such setting, 22023 for a wrong value, 42501 for a role that
    /// the client may not act as, 25001 for a mode of a transaction.
    pub fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "role" => return self.set_initial_role(value),
            "session_authorization" => return self.check_initial_authorization(value),
            _ => self.set_or_reset(name, Some(value))?,
        }
        // There is no transaction whose mode it would be.
        let refused = match name {
            "transaction_isolation" if !value.eq_ignore_ascii_case("read committed") => "ISOLATION LEVEL",
            "transaction_deferrable" => "[NOT] DEFERRABLE",
            _ => return Ok(()),
        };
        let message = format!("SET TRANSACTION {refused} must be called before any query");
        Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message))
    }

    /// Sets a setting, or resets it for `None`.
    fn set_or_reset(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let progress = self.running.as_ref().map(Running::progress).unwrap_or_default();
        self.shared.set_parameter(name, value, progress)?;
        if let Some(running) = self.running.as_mut().filter(|_| is_of_transaction(name)) {
            running.follow_modes(self.shared.values.modes());
        }
        Ok(())
    }

    /// The client's name for itself.
    pub fn application_name(&self) -> String {
        self.shared.client_settings.read().get("application_name").cloned().unwrap_or_default()
    }

    /// Changes whenever [`reported`](Self::reported) may give another result.
    pub fn reported_version(&self) -> u64 {
        // Relaxed: as in `set_for_client`. Roles are noted as settings are.
        self.shared.settings() + self.shared.client_changes.load(Ordering::Relaxed)
    }

    /// The session's settings of times; `None` for the defaults.
    pub fn time_style(&self) -> Option<Arc<TimeStyle>> {
        self.shared.time_style.read().clone()
    }

    /// Notes that RESET gives settings the values that they have now, with which the client has
    /// connected.
    pub fn note_initial_settings(&mut self) {
        let mut initial = self.shared.client_settings.read().clone();
        let values = RESETTABLE.into_iter().filter_map(|name| Some((name.to_owned(), self.setting(name)?)));
        initial.extend(values);
        *self.shared.initial_settings.write() = initial;
    }

    /// The settings whose changes are reported to clients of PostgreSQL, as far as they can change
    /// here.
    pub fn reported(&self) -> Reported {
        let (roles, catalog) = (
            self.shared.roles.read().clone(),
            match &self.running {
                Some(running) => running.txn.catalog().clone(),
                None => self.database().catalog(),
            },
        );
        [
            ("application_name", self.application_name()),
            ("TimeZone", self.setting("timezone").unwrap_or_default()),
            ("DateStyle", self.setting("datestyle").unwrap_or_default()),
            ("IntervalStyle", self.setting("intervalstyle").unwrap_or_default()),
            ("is_superuser", on_or_off(catalog.security.is_superuser(roles.current))),
            ("session_authorization", roles.name(roles.session, &catalog.security)),
        ]
    }

    /// The time that a statement may take; `None` for no limit.
    pub fn statement_limit(&self) -> Option<Duration> {
        self.shared.values.statement_timeout()
    }

    /// The time that the session may be idle in its present state, with a transaction or without;
    /// `None` for no limit.
    pub fn idle_limit(&self) -> Option<Duration> {
        match self.transaction_status() {
            TransactionStatus::Idle => self.shared.values.idle_timeout(),
            _ => self.shared.values.idle_in_transaction_timeout(),
        }
    }

    /// RESET of a setting, or of all but the name that the client has given itself.
    pub(crate) fn reset(&mut self, reset: &Reset) -> Result<StatementResult> {
        match reset {
            Reset::Setting(name) => self.set_in_transaction(&setting_name(name), None, false)?,
            Reset::All => {
                for name in RESETTABLE {
                    self.set_in_transaction(name, None, false)?;
                }
                for name in client_setting_names().filter(|name| *name != "application_name") {
                    self.set_in_transaction(name, None, false)?;
                }
                // User-defined settings stay known from then on, and empty.
                let made = self.shared.client_settings.read().keys().cloned().collect::<Vec<_>>();
                for name in made.iter().filter(|name| is_of_users(name)) {
                    self.set_in_transaction(name, None, false)?;
                }
            }
        }
        Ok(StatementResult::command("RESET"))
    }

    /// SET, which a rollback undoes, or SET LOCAL, which a commit undoes, too; RESET for no value.
    fn set_in_transaction(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        if !self.running.as_ref().is_some_and(Running::is_block) {
            if local {
                self.say(
                    Severity::Warning,
                    sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                );
                return Ok(());
            }
            return self.set_or_reset(name, value);
        }
        let before = self.shared.setting_before(name);
        self.set_or_reset(name, value)?;
        self.shared.note_change(name, before, local);
        Ok(())
    }

    /// SET, except for transactions and roles.
    pub(crate) async fn set(&mut self, set: &Set) -> Result<StatementResult> {
        let Set { scope, change } = set;
        let SetSetting { name, value } = match change {
            SetChange::Setting(setting) => setting,
            SetChange::Snapshot(_) | SetChange::Transaction(_) | SetChange::Characteristics(_) => {
                unreachable!("they are run outside")
            }
        };
        let (name, local) = (setting_name(name), *scope == Some(SetScope::Local));
        let of_engine = name.starts_with("datafusion.");
        let value = match value {
            SetValue::Default if of_engine => Some("default".to_owned()),
            SetValue::Default => None,
            SetValue::List(values) if name == "search_path" => Some(joined(values, |value| quote(&written(value)))),
            SetValue::List(values) if of_engine && values.len() > 1 => {
                return Err(SqlError::unsupported(format!("this value of the setting \"{name}\"")));
            }
            SetValue::List(values) if is_of_users(&name) && values.len() > 1 => {
                return Err(SqlError::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("SET {name} takes only one argument"),
                ));
            }
            SetValue::List(values) => Some(joined(values, written)),
            SetValue::Current if self.setting(&name).is_some() => return Ok(StatementResult::command("SET")),
            SetValue::Current => return Err(unrecognized(&name).named(name)),
            SetValue::Interval { text: Text { text, span: _ }, fields, precision: _ } => {
                let fields = match fields {
                    None => "",
                    Some(IntervalFields::Hour) => " HOUR",
                    Some(IntervalFields::Minute) => " MINUTE",
                    Some(_) => " HOUR TO MINUTE",
                };
                Some(format!("INTERVAL '{text}'{fields}"))
            }
        };
        if !of_engine {
            self.set_in_transaction(&name, value.as_deref(), local)?;
            return Ok(StatementResult::command("SET"));
        }
        if scope.is_some() {
            return Err(SqlError::unsupported("SET LOCAL and SET SESSION of a setting of DataFusion"));
        }
        if name.starts_with("datafusion.runtime.") {
            self.access_now().check_superuser(&format!("set parameter \"{name}\""))?;
        }
        self.shared.note_setting();
        self.has_engine_setting = true;
        let set = PlanStatement::SetVariable(SetVariable { variable: name, value: value.unwrap_or_default() });
        self.ctx.execute_logical_plan(LogicalPlan::Statement(set)).await?;
        Ok(StatementResult::command("SET"))
    }
}

/// The name of a setting, ignoring case.
fn setting_name(name: &Name) -> String {
    name.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(".").to_lowercase()
}

/// Texts as values of a query's parameters.
fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Arguments {
    let values = texts.into_iter().map(|text| ScalarValue::Utf8(Some(text.to_owned())));
    Arguments { values: Some(values.collect()), ..Arguments::default() }
}

/// The value of a setting, without quotes.
fn written(value: &Value) -> String {
    match value {
        Value::Word(word) => word.name.clone(),
        Value::Text(Text { text, span: _ }) => text.clone(),
        Value::Number(number) => format!("{}{}", if number.negative { "-" } else { "" }, number.digits),
    }
}

fn joined(values: &[Value], shown: impl Fn(&Value) -> String) -> String {
    values.iter().map(shown).collect::<Vec<_>>().join(", ")
}
