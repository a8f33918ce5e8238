//! What clients send back.
#![no_main]

serac_fuzz::target!(tickets);
