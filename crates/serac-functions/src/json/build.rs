//! Documents of other values.
//!
//! All are written as texts, as json has them; those of jsonb are put in normal form afterwards.

use super::documents::{Form, JSON, documents, elements_of, is_array, is_path};
use crate::definition::{Definition, Types};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serac_engine::json_text::quote;
use serac_engine::values::value_at;
use serac_storage::ColumnType;
use serac_values::SqlError;
use serac_values::wire::{column, missing_blanks, width, write_text};
use std::sync::Arc;

/// Each row's text, as results have it.
fn texts(array: &ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
    let (values, column_type) = column(array, false)?;
    let text = |row: usize| {
        let mut bytes = Vec::new();
        write_text(&mut bytes, value_at(&values, row, column_type), column_type);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok((0..values.len()).map(|row| values.is_valid(row).then(|| text(row))).collect())
}

/// Values on their way into documents.
struct Values<'a> {
    array: &'a ArrayRef,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Document(&'a LargeStringArray),
    List,
    /// The fields of rows, and their values.
    Row(Vec<(&'a str, Values<'a>)>),
    /// Texts that may stand without quotes, where they are numbers or truth values.
    Bare(Vec<Option<String>>),
    Quoted(Vec<Option<String>>),
}

/// Whether a value is NULL. An array of type Null has no bits for its NULLs.
fn is_null(array: &ArrayRef, row: usize) -> bool {
    *array.data_type() == DataType::Null || array.is_null(row)
}

/// Whether JSON has the number: it has neither NaN nor infinity.
fn is_number(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

impl<'a> Values<'a> {
    fn of(array: &'a ArrayRef) -> Result<Self, SqlError> {
        let data_type = array.data_type();
        let kind = match data_type {
            &JSON => Kind::Document(documents(array)),
            data_type if is_array(data_type) => Kind::List,
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let columns = columns.map(|(field, column)| {
                    let values = Self::of(column)?;
                    let values = match width(field) {
                        Some(width) => values.padded(width),
                        None => values,
                    };
                    Ok((field.name().as_str(), values))
                });
                Kind::Row(columns.collect::<Result<_, SqlError>>()?)
            }
            DataType::LargeBinary => Kind::Bare(texts(array)?),
            // Numbers of objects are no numbers.
            DataType::UInt32 => Kind::Quoted(texts(array)?),
            data_type => match serac_values::wire::wire_type(data_type) {
                ColumnType::Boolean => {
                    let truths = array.as_boolean().iter();
                    Kind::Bare(truths.map(|truth| truth.map(|truth| truth.to_string())).collect())
                }
                ColumnType::Int16
                | ColumnType::Int32
                | ColumnType::Int64
                | ColumnType::Float32
                | ColumnType::Float64
                | ColumnType::Decimal { .. } => Kind::Bare(texts(array)?),
                ColumnType::Timestamp { utc } => {
                    let as_iso = |text: String| {
                        let zone = if utc { text.replacen("+00", "+00:00", 1) } else { text };
                        zone.replacen(' ', "T", 1)
                    };
                    Kind::Quoted(texts(array)?.into_iter().map(|text| text.map(as_iso)).collect())
                }
                _ => Kind::Quoted(texts(array)?),
            },
        };
        Ok(Self { array, kind })
    }

    /// Texts with the blanks that a CHAR(n) shows.
    fn padded(mut self, width: usize) -> Self {
        if let Kind::Quoted(texts) = &mut self.kind {
            let padded = |text: &mut String| *text += &" ".repeat(missing_blanks(text.as_bytes(), width));
            texts.iter_mut().flatten().for_each(padded);
        }
        self
    }

    /// Whether they are arrays or rows.
    fn has_parts(&self) -> bool {
        matches!(self.kind, Kind::List | Kind::Row(_))
    }

    /// Adds a row's value. `separator` stands between the parts right inside of it.
    fn write(&self, row: usize, out: &mut String, separator: &str) -> Result<(), SqlError> {
        if is_null(self.array, row) {
            out.push_str("null");
            return Ok(());
        }
        match &self.kind {
            Kind::Document(documents) => out.push_str(documents.value(row)),
            Kind::List => {
                let elements = elements_of(self.array, row).unwrap_or_else(|| self.array.slice(0, 0));
                write_all(&elements, out, |_| separator)?;
            }
            Kind::Row(fields) => {
                out.push('{');
                for (at, (name, values)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push_str(separator);
                    }
                    quote(out, name);
                    out.push(':');
                    values.write(row, out, ",")?;
                }
                out.push('}');
            }
            Kind::Bare(texts) => match texts[row].as_deref().unwrap_or_default() {
                word @ ("true" | "false") => out.push_str(word),
                number if is_number(number) => out.push_str(number),
                other => quote(out, other),
            },
            Kind::Quoted(texts) => quote(out, texts[row].as_deref().unwrap_or_default()),
        }
        Ok(())
    }

    /// Adds a row's value as the key of an object. `null` is the error of a NULL key.
    fn write_key(&self, row: usize, out: &mut String, null: impl FnOnce() -> SqlError) -> Result<(), SqlError> {
        if is_null(self.array, row) {
            return Err(null());
        }
        match &self.kind {
            Kind::Bare(texts) | Kind::Quoted(texts) => {
                quote(out, texts[row].as_deref().unwrap_or_default());
                Ok(())
            }
            _ => Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "key value must be scalar, not array, composite, or json",
            )),
        }
    }
}

/// Adds an array of values; the separator before all but the first depends on whether the value is
/// NULL.
fn write_all<'s>(elements: &ArrayRef, out: &mut String, separator: impl Fn(bool) -> &'s str) -> Result<(), SqlError> {
    let values = Values::of(elements)?;
    out.push('[');
    for at in 0..elements.len() {
        if at > 0 {
            out.push_str(separator(is_null(elements, at)));
        }
        values.write(at, out, ",")?;
    }
    out.push(']');
    Ok(())
}

/// A document of each row, in a form; NULL without a value.
fn written(
    rows: usize,
    form: Form,
    mut write: impl FnMut(usize, &mut String) -> Result<bool, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let row = |row: usize| {
        let mut out = String::new();
        if write(row, &mut out)? { form.of(out).map(Some) } else { Ok(None) }
    };
    Ok(Arc::new((0..rows).map(row).collect::<Result<LargeStringArray, SqlError>>()?))
}

/// Any values become a document.
fn any(given: &[DataType]) -> Option<Types> {
    Some((given.to_vec(), JSON))
}
fn one(given: &[DataType]) -> Option<Types> {
    (given.len() == 1).then(|| (given.to_vec(), JSON))
}
/// A value, and whether it is written over several lines.
fn one_or_pretty(given: &[DataType]) -> Option<Types> {
    matches!(given, [_] | [_, DataType::Boolean]).then(|| (given.to_vec(), JSON))
}
fn arrays(given: &[DataType]) -> Option<Types> {
    let fits = matches!(given.len(), 1 | 2) && given.iter().all(is_path);
    fits.then(|| (given.to_vec(), JSON))
}

fn to_json(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    if let (&JSON, Form::Text) = (args[0].data_type(), form) {
        return Ok(args[0].clone());
    }
    let values = Values::of(&args[0])?;
    let pretty = args.get(1).map(|pretty| pretty.as_boolean());
    // NULL stays NULL at the top.
    written(args[0].len(), form, |row, out| {
        if args.iter().any(|arg| is_null(arg, row)) {
            return Ok(false);
        }
        let separator = if pretty.is_some_and(|pretty| pretty.value(row)) { ",\n " } else { "," };
        values.write(row, out, separator)?;
        Ok(true)
    })
}

/// Keys and values in turn.
fn build_object(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    if args.len() % 2 == 1 {
        let message = "argument list must have even number of elements";
        let name = if form == Form::Text { "json_build_object" } else { "jsonb_build_object" };
        let hint = format!("The arguments of {name}() must consist of alternating keys and values.");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message).hinted(hint));
    }
    let null = |number: usize| match form {
        Form::Text => SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("argument {number} cannot be null")),
        Form::Normal => {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("argument {number}: key must not be null"))
        }
    };
    let rows = args.first().map_or(1, |array| array.len());
    let values = args.iter().map(Values::of).collect::<Result<Vec<_>, _>>()?;
    written(rows, form, |row, out| {
        out.push('{');
        for (at, pair) in values.chunks(2).enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            pair[0].write_key(row, out, || null(2 * at + 1))?;
            out.push_str(" : ");
            pair[1].write(row, out, ",")?;
        }
        out.push('}');
        Ok(true)
    })
}
fn build_array(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let rows = args.first().map_or(1, |array| array.len());
    let values = args.iter().map(Values::of).collect::<Result<Vec<_>, _>>()?;
    written(rows, form, |row, out| {
        out.push('[');
        for (at, values) in values.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            values.write(row, out, ",")?;
        }
        out.push(']');
        Ok(true)
    })
}

/// The texts of a row's array, and the lengths of its dimensions.
fn texts_and_lengths(array: &ArrayRef, row: usize) -> Result<Option<(super::documents::Texts, Vec<usize>)>, SqlError> {
    if !is_array(array.data_type()) {
        let texts = super::documents::texts_of(&array.slice(row, 1))?.swap_remove(0);
        return Ok(texts.map(|texts| {
            let lengths = vec![texts.len()];
            (texts, lengths)
        }));
    }
    let Some(elements) = elements_of(array, row) else { return Ok(None) };
    let mut lengths = vec![elements.len()];
    let mut parts = vec![elements];
    while parts.first().is_some_and(|part| is_array(part.data_type())) {
        let inner = |part: &ArrayRef| (0..part.len()).map(|at| elements_of(part, at)).collect::<Vec<_>>();
        parts = parts.iter().flat_map(inner).flatten().collect();
        lengths.push(parts.first().map_or(0, |part| part.len()));
    }
    let mut all = Vec::new();
    for part in parts {
        let texts = cast(&part, &DataType::Utf8View)?;
        all.extend(texts.as_string_view().iter().map(|text| text.map(str::to_owned)));
    }
    Ok(Some((all, lengths)))
}

/// An object of an array of keys and an array of values, or of an array of pairs, or of an array in
/// which they alternate. All of them are texts.
fn object_of_texts(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let wrong = |message: &str| Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, message));
    written(args[0].len(), form, |row, out| {
        let Some((mut keys, lengths)) = texts_and_lengths(&args[0], row)? else { return Ok(false) };
        let values = match args.get(1) {
            None => {
                match lengths[..] {
                    [count] if count % 2 == 1 => return wrong("array must have even number of elements"),
                    [_] | [_, 2] | [0, ..] => {}
                    [_, _] => return wrong("array must have two columns"),
                    _ => return wrong("wrong number of array subscripts"),
                }
                let mut values = Vec::with_capacity(keys.len() / 2);
                let mut own = Vec::with_capacity(keys.len() / 2);
                for (at, text) in keys.into_iter().enumerate() {
                    if at % 2 == 0 { own.push(text) } else { values.push(text) }
                }
                keys = own;
                values
            }
            Some(values) => {
                let Some((values, others)) = texts_and_lengths(values, row)? else { return Ok(false) };
                let is_plain = |lengths: &[usize]| lengths.len() == 1;
                // One without elements has no dimensions.
                if !is_plain(&lengths) || !is_plain(&others) || keys.is_empty() != values.is_empty() {
                    return wrong("wrong number of array subscripts");
                }
                if values.len() != keys.len() {
                    return wrong("mismatched array dimensions");
                }
                values
            }
        };
        out.push('{');
        for (at, (key, value)) in keys.iter().zip(&values).enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            let null = || SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key");
            quote(out, key.as_deref().ok_or_else(null)?);
            out.push_str(" : ");
            match value {
                Some(value) => quote(out, value),
                None => out.push_str("null"),
            }
        }
        out.push('}');
        Ok(true)
    })
}

/// The function behind `json_object_agg`: an object of an array of keys and one of values, of any
/// types.
fn object_of_arrays(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    let null = || SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "field name must not be null");
    written(args[0].len(), form, |row, out| {
        let (Some(keys), Some(values)) = (elements_of(&args[0], row), elements_of(&args[1], row)) else {
            return Ok(false);
        };
        let (keys, values) = (Values::of(&keys)?, Values::of(&values)?);
        out.push_str("{ ");
        for at in 0..keys.array.len() {
            if at > 0 {
                out.push_str(", ");
            }
            keys.write_key(at, out, null)?;
            out.push_str(" : ");
            values.write(at, out, ",")?;
        }
        out.push_str(" }");
        Ok(true)
    })
}

/// The function behind `json_agg`: an array of all values, with arrays and rows on lines of their
/// own.
fn array_of_elements(args: &[ArrayRef], form: Form) -> Result<ArrayRef, SqlError> {
    written(args[0].len(), form, |row, out| {
        let Some(elements) = elements_of(&args[0], row) else { return Ok(false) };
        let has_parts = Values::of(&elements.slice(0, 0))?.has_parts();
        write_all(&elements, out, |is_null| if has_parts && !is_null { ", \n " } else { ", " })?;
        Ok(true)
    })
}

fn two_arrays(given: &[DataType]) -> Option<Types> {
    (given.len() == 2 && given.iter().all(is_array)).then(|| (given.to_vec(), JSON))
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition { name: "to_json", types: one, body: |args| to_json(args, Form::Text) },
    Definition { name: "to_jsonb", types: one, body: |args| to_json(args, Form::Normal) },
    Definition { name: "array_to_json", types: one_or_pretty, body: |args| to_json(args, Form::Text) },
    Definition { name: "row_to_json", types: one_or_pretty, body: |args| to_json(args, Form::Text) },
    Definition { name: "json_build_object", types: any, body: |args| build_object(args, Form::Text) },
    Definition { name: "jsonb_build_object", types: any, body: |args| build_object(args, Form::Normal) },
    Definition { name: "json_build_array", types: any, body: |args| build_array(args, Form::Text) },
    Definition { name: "jsonb_build_array", types: any, body: |args| build_array(args, Form::Normal) },
    Definition { name: "json_object", types: arrays, body: |args| object_of_texts(args, Form::Text) },
    Definition { name: "jsonb_object", types: arrays, body: |args| object_of_texts(args, Form::Normal) },
    Definition {
        name: "json_of_elements",
        types: |given| (given.len() == 1 && given.iter().all(is_array)).then(|| (given.to_vec(), JSON)),
        body: |args| array_of_elements(args, Form::Text),
    },
    Definition { name: "json_object_of_arrays", types: two_arrays, body: |args| object_of_arrays(args, Form::Text) },
    Definition { name: "jsonb_object_of_arrays", types: two_arrays, body: |args| object_of_arrays(args, Form::Normal) },
];
