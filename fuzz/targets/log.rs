//! The log's frames, and recovery.
#![no_main]

serac_fuzz::target!(log);
