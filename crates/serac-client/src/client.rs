//! A connection to the process that has the database open.
