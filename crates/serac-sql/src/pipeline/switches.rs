//! `SET serac.disabled_passes = 'name, name'`: the session plans without these optional passes;
//! `'all'`: without any of them.
//!
//! The rules of the session's state are made anew when the setting changes, so it costs nothing
//! otherwise. Plans that are kept are made again, because the change counts as one of a setting
//! ([`SessionEnv::note_setting`]).

use super::table::PASSES;
use crate::error::{Result, SqlError};
use crate::pipeline::pass::{Pass, Resources};
use crate::pipeline::rules::Rules;
use crate::session_env::SessionEnv;
use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::execution::SessionStateBuilder;

/// What stands for all optional passes.
const ALL: &str = "all";

/// The names in a list of optional passes, each once, as the table has them.
///
/// # Errors
/// 22023 for a name that no pass has, or that of a pass that is not optional.
fn names_in(written: &str) -> Result<Vec<&'static str>> {
    let mut names = Vec::new();
    if written.trim().is_empty() {
        return Ok(names);
    }
    if written.trim().eq_ignore_ascii_case(ALL) {
        let optional = PASSES.iter().filter(|pass| pass.is_optional);
        optional.for_each(|pass| {
            if !names.contains(&pass.name) {
                names.push(pass.name)
            }
        });
        return Ok(names);
    }
    for name in written.split(',').map(|name| name.trim().trim_matches('"')) {
        let Some(pass) = PASSES.iter().find(|pass| pass.name.eq_ignore_ascii_case(name)) else {
            return Err(unknown(name));
        };
        if !pass.is_optional {
            let message = format!("pass \"{}\" cannot be disabled", pass.name);
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message).explained(pass.description));
        }
        if !names.contains(&pass.name) {
            names.push(pass.name);
        }
    }
    Ok(names)
}

/// The error of a name that no pass has.
fn unknown(name: &str) -> SqlError {
    let distance = |pass: &&Pass| levenshtein(&pass.name.to_lowercase(), &name.to_lowercase());
    let nearest = PASSES.iter().filter(|pass| pass.is_optional).min_by_key(distance);
    let nearest = nearest.map_or("", |pass| pass.name);
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("there is no pass \"{name}\""))
        .explained(format!("The nearest that can be disabled is \"{nearest}\". The view serac_passes has all."))
}

impl SessionEnv {
    /// Plans without the optional passes in a list of names from now on.
    ///
    /// # Errors
    /// As [`names_in`]; then nothing has changed.
    pub(crate) fn disable_passes(&self, written: &str) -> Result<()> {
        let disabled = names_in(written)?;
        if *self.disabled_passes.read() == disabled {
            return Ok(());
        }
        let resources = Resources::new(self.work_memory.clone());
        let rules = Rules::new(&resources, &disabled);
        self.change_state(|state| {
            let session_id = state.session_id().to_owned();
            let builder = SessionStateBuilder::new_from_existing(state.clone()).with_session_id(session_id);
            *state = rules.put_into(builder).build();
        });
        *self.disabled_passes.write() = disabled;
        self.note_setting();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::names_in;

    #[test]
    fn names_are_those_of_the_table() {
        assert_eq!(names_in(" ").unwrap(), Vec::<&str>::new());
        assert_eq!(names_in("limitpushdown, \"join_order\",LimitPushdown").unwrap(), ["LimitPushdown", "join_order"]);
        let all = names_in("ALL").unwrap();
        assert!(all.contains(&"LimitPushdown") && all.contains(&"join_order") && !all.contains(&"type_coercion"));
        for (written, message) in [
            ("join_oder", "there is no pass \"join_oder\""),
            ("join_order,", "there is no pass \"\""),
            ("join_order, type_coercion", "pass \"type_coercion\" cannot be disabled"),
        ] {
            let error = names_in(written).unwrap_err();
            assert_eq!((error.sqlstate, error.message.as_str()), (sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        assert!(names_in("join_oder").unwrap_err().detail.unwrap().contains("\"join_order\""));
    }
}
