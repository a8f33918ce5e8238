//! Values as PostgreSQL's clients and COPY write and read them, as text and in binary form, and the numbers of their types.

mod array;
mod decode;
mod encode;
mod types;

pub use array::{WireColumn, as_told, column, type_of};
pub(crate) use array::{element_of, is_list};
pub(crate) use decode::of_binary;
pub use decode::{Given, scalar, value};
pub use encode::{write_binary, write_text};
pub use types::{TEXT, modifier, of_oid, oid, size, to_wire, wire_type};
