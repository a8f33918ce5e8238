//! Data files and manifests.
#![no_main]

serac_fuzz::target!(data_file);
