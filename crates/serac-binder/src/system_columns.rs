//! The columns that each table has and `*` does not stand for.

/// The places of rows: the only one that is here.
pub(crate) const CTID: &str = "ctid";

/// Whether every table of PostgreSQL's has a column of this name.
pub(crate) fn is_of_system(name: &str) -> bool {
    matches!(name, CTID | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid")
}
