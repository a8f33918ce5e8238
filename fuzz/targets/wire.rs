//! The server's end of a PostgreSQL connection.
#![no_main]

serac_fuzz::target!(wire);
