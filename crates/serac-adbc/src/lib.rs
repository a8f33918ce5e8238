//! The embedded database as a driver of ADBC 1.1, Arrow's interface to databases. Driver managers
//! load the library that this crate is linked into (`libseracdb`) and call [`AdbcDriverInit`].
//!
//! | module | what |
//! |---|---|
//! | `error` | errors, with their SQLSTATEs |
//! | `nested` `info` `objects` | what a driver tells about itself and about tables |
//! | `parameters` | rows of parameters |
//! | `options` `database` `connection` `statement` | the objects of ADBC |
//! | `functions` | the table of the driver's functions |
//!
//! `adbc_ffi` makes the C interface of the traits of `adbc_core`: null pointers are refused, and
//! panics are caught there.

mod connection;
mod database;
mod error;
mod functions;
mod info;
mod nested;
mod objects;
mod options;
mod parameters;
mod statement;

use crate::error::Result;
use adbc_core::error::{AdbcStatusCode, Error, Status};
use adbc_core::options::{AdbcVersion, OptionDatabase, OptionValue};
use adbc_ffi::{FFI_AdbcDriver, FFI_AdbcError, export_error};
use database::AdbcDatabase;
use std::ffi::{c_int, c_void};

/// The driver.
#[derive(Debug, Default)]
pub struct SeracDriver;

impl adbc_core::Driver for SeracDriver {
    type DatabaseType = AdbcDatabase;

    fn new_database(&mut self) -> Result<AdbcDatabase> {
        self.new_database_with_opts([])
    }

    fn new_database_with_opts(
        &mut self,
        options: impl IntoIterator<Item = (OptionDatabase, OptionValue)>,
    ) -> Result<AdbcDatabase> {
        AdbcDatabase::open(options)
    }
}

/// The entry point: fills the table of the driver's functions.
///
/// # Safety
/// `driver` is null or a place for an `AdbcDriver` of version 1.1, and `error` null or an
/// `AdbcError`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdbcDriverInit(
    version: c_int,
    driver: *mut c_void,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    let refuse = |message: &str, status: Status| {
        // SAFETY: the caller gives null or an error.
        unsafe { export_error(error, Error::with_message_and_status(message, status)) };
        status.into()
    };
    if !matches!(AdbcVersion::try_from(version), Ok(AdbcVersion::V110)) {
        return refuse("the driver has version 1.1.0 of ADBC, and no other", Status::NotImplemented);
    }
    if driver.is_null() {
        return refuse("there is no place for the driver", Status::InvalidArguments);
    }
    // SAFETY: the caller gives a place for the table.
    unsafe { driver.cast::<FFI_AdbcDriver>().write_unaligned(functions::table()) };
    adbc_core::constants::ADBC_STATUS_OK
}

/// The same, by the name that driver managers make of `libseracdb`.
///
/// # Safety
/// As for [`AdbcDriverInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdbcSeracdbInit(
    version: c_int,
    driver: *mut c_void,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    // SAFETY: the caller's arguments are those of this function.
    unsafe { AdbcDriverInit(version, driver, error) }
}
