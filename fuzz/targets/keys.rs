//! Memory-comparable keys.
#![no_main]

serac_fuzz::target!(keys);
