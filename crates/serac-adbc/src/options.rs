//! Values of options.

use crate::error::{Result, error};
use adbc_core::error::{Error, Status};
use adbc_core::options::OptionValue;

/// The text of an option.
///
/// # Errors
/// If the value is of another type.
pub fn text(key: &str, value: OptionValue) -> Result<String> {
    match value {
        OptionValue::String(text) => Ok(text),
        OptionValue::Int(number) => Ok(number.to_string()),
        _ => Err(error(Status::InvalidArguments, format!("the value of the option \"{key}\" is a text"))),
    }
}

/// The truth value of an option.
///
/// # Errors
/// If it is neither `true` nor `false`.
pub fn truth(key: &str, value: OptionValue) -> Result<bool> {
    match text(key, value)?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => {
            let message = format!("the value of the option \"{key}\" is \"true\" or \"false\", not \"{other}\"");
            Err(error(Status::InvalidArguments, message))
        }
    }
}

/// A truth value as ADBC writes it.
pub fn shown(truth: bool) -> String {
    truth.to_string()
}

/// The error of an option that cannot be set.
pub fn unknown(key: &str) -> Error {
    error(Status::NotImplemented, format!("there is no option \"{key}\""))
}

/// The error of an option that has no value.
pub fn not_found(key: &str) -> Error {
    error(Status::NotFound, format!("the option \"{key}\" has no value"))
}

/// The readers of a text option as bytes and as numbers.
macro_rules! other_forms {
    () => {
        fn get_option_bytes(&self, key: Self::Option) -> Result<Vec<u8>> {
            self.get_option_string(key).map(String::into_bytes)
        }

        fn get_option_int(&self, key: Self::Option) -> Result<i64> {
            let name = key.as_ref().to_owned();
            self.get_option_string(key)?.parse().map_err(|_| crate::options::not_found(&name))
        }

        fn get_option_double(&self, key: Self::Option) -> Result<f64> {
            let name = key.as_ref().to_owned();
            self.get_option_string(key)?.parse().map_err(|_| crate::options::not_found(&name))
        }
    };
}
pub(crate) use other_forms;
