//! Tests of one-sided access by any transport.
#![allow(dead_code, reason = "each test binary uses what it needs")]

pub mod flight;
pub mod transport;
