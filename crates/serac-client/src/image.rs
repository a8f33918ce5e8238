//! A snapshot in shared memory.
