//! The Delta Log of a bitmap index.
#![no_main]

serac_fuzz::target!(delta_log);
