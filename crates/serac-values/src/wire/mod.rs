//! Values as PostgreSQL's clients and COPY write and read them, as text and in binary form, and the
//! numbers of their types.

mod array;
mod array_text;
mod columns;
mod decode;
mod encode;
mod fields;
mod rows;
mod styled;
mod types;

pub use array::{WireColumn, as_told, column, column_of, type_of};
pub use array::{dimensions, element_of, is_list};
pub use array_text::{arrays_of_texts, read_array};
pub use columns::to_wire;
pub use decode::{Given, is_text_of_time, scalar, text, utf8, value};
pub use decode::{object_number_of_text, of_binary, place_of_text};
pub use encode::{write_binary, write_document_text, write_styled_text, write_text};
pub use fields::{
    MOST_WIDTH, check_widths, field_type, is_json, missing_blanks, origin, told_type, width, widths, with_origin,
    with_type, write_blanks,
};
pub use styled::{Purpose, has_styled, schema_in_style, style_of_schema, styled_texts, type_with_texts, with_texts};
pub use types::{TEXT, modifier, of_oid, oid, size, wire_type};
