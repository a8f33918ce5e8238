//! The parser and the binder.
#![no_main]

serac_fuzz::target!(sql);
