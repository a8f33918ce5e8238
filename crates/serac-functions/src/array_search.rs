//! Functions that look for values in arrays, change them, or join arrays.
//!
//! Values are equal by PostgreSQL's `=` of their type: NaN is equal to itself, both zeros are one
//! number, and intervals compare by length. A search finds NULL as a value, but for containment
//! NULL is an element of no other array.

use crate::array_keys::ordered;
use crate::definition::{Definition, Types};
use crate::elements::as_lists;
use crate::interval_operators::LENGTH;
use crate::zeros::single;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int32Builder, ListArray, ListBuilder, UInt64Array,
    make_comparator,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{SortOptions, concat, take};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, IntervalUnit};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use serac_values::SqlError;
use serac_values::text_types::is_text;
use serac_values::wire::{element_of, is_list};
use std::sync::Arc;

type TypesOf = fn(&[DataType]) -> Option<Types>;
type Body = fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>;

const fn named(name: &'static str, (types, body): (TypesOf, Body)) -> Definition {
    Definition { name, types, body }
}

const POSITION: (TypesOf, Body) = (position_types, position);
const POSITIONS: (TypesOf, Body) =
    (|given| with_values(given, 1, |_| DataType::new_list(DataType::Int32, true)), positions);
const REMOVE: (TypesOf, Body) = (|given| with_values(given, 1, DataType::clone), removed);
const REPLACE: (TypesOf, Body) = (|given| with_values(given, 2, DataType::clone), replaced);
const HAS_ALL: (TypesOf, Body) = (two_arrays, |args| contained(args, true));
const HAS_ANY: (TypesOf, Body) = (two_arrays, |args| contained(args, false));
const CONCAT: (TypesOf, Body) = (joined_types, joined);

/// With the names that DuckDB and DataFusion have for them, too.
pub(super) const DEFINITIONS: &[Definition] = &[
    named("array_position", POSITION),
    named("array_indexof", POSITION),
    named("list_position", POSITION),
    named("list_indexof", POSITION),
    named("array_positions", POSITIONS),
    named("list_positions", POSITIONS),
    named("array_remove", REMOVE),
    named("array_remove_all", REMOVE),
    named("list_remove_all", REMOVE),
    named("array_replace", REPLACE),
    named("array_replace_all", REPLACE),
    named("list_replace_all", REPLACE),
    named("array_has_all", HAS_ALL),
    named("list_has_all", HAS_ALL),
    named("array_has_any", HAS_ANY),
    named("list_has_any", HAS_ANY),
    named("arrays_overlap", HAS_ANY),
    named("array_concat", CONCAT),
    named("array_cat", CONCAT),
    named("list_concat", CONCAT),
    named("list_cat", CONCAT),
];

/// The type in which two elements are compared.
fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        // Views of a text that is put in many places share it.
        (DataType::Utf8, DataType::Utf8) => Some(DataType::Utf8View),
        (left, right) if left == right => Some(left.clone()),
        (left, right) if is_text(left) && is_text(right) => Some(DataType::Utf8View),
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (left, right) if is_list(left) || is_list(right) => None,
        (left, right) => comparison_coercion(left, right),
    }
}

/// The types for an array and `values` values of its elements' type. The result type follows from
/// the array's.
fn with_values(given: &[DataType], values: usize, result: fn(&DataType) -> DataType) -> Option<Types> {
    let [list, rest @ ..] = given else { return None };
    let own = element_of(list)?;
    // One of several dimensions is refused when it comes.
    let is_nested = is_list(own);
    if rest.len() != values {
        return None;
    }
    let element = match is_nested {
        true => own.clone(),
        false => rest.iter().try_fold(own.clone(), |element, value| common(&element, value))?,
    };
    let list = DataType::new_list(element.clone(), true);
    let value = |given: &DataType| if is_nested { given.clone() } else { element.clone() };
    let types = std::iter::once(list.clone()).chain(rest.iter().map(value)).collect();
    Some((types, result(&list)))
}

fn position_types(given: &[DataType]) -> Option<Types> {
    match given {
        [list, value, start] if start.is_integer() || start.is_null() => {
            let (mut types, result) = with_values(&[list.clone(), value.clone()], 1, |_| DataType::Int32)?;
            types.push(DataType::Int32);
            Some((types, result))
        }
        _ => with_values(given, 1, |_| DataType::Int32),
    }
}

/// The types for a predicate on two arrays with elements of one type.
fn two_arrays(given: &[DataType]) -> Option<Types> {
    let [left, right] = given else { return None };
    let list = DataType::new_list(common(deepest(left)?, deepest(right)?)?, true);
    Some((vec![as_deep(left, &list), as_deep(right, &list)], DataType::Boolean))
}

/// The type of elements that are no arrays.
fn deepest(list: &DataType) -> Option<&DataType> {
    let element = element_of(list)?;
    if is_list(element) { deepest(element) } else { Some(element) }
}

/// The array type with the elements of `flat`, an array of one dimension, and the dimensions of
/// `list`.
fn as_deep(list: &DataType, flat: &DataType) -> DataType {
    match element_of(list).filter(|element| is_list(element)) {
        Some(inner) => DataType::new_list(as_deep(inner, flat), true),
        None => flat.clone(),
    }
}

fn levels(list: &DataType) -> usize {
    element_of(list).map_or(0, |element| 1 + levels(element))
}

/// Values as they are compared.
fn comparable(values: &ArrayRef) -> Result<ArrayRef, SqlError> {
    match values.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => (LENGTH.body)(std::slice::from_ref(values)),
        DataType::LargeBinary => ordered(values),
        _ => Ok(single(values)),
    }
}

/// Whether values of two columns are equal, by their rows; NULL is equal to itself.
fn equality(left: &ArrayRef, right: &ArrayRef) -> Result<impl Fn(usize, usize) -> bool, SqlError> {
    let (left, right) = (comparable(left)?, comparable(right)?);
    let compare = make_comparator(left.as_ref(), right.as_ref(), SortOptions::default())?;
    Ok(move |i: usize, j: usize| match (left.is_null(i), right.is_null(j)) {
        (false, false) => compare(i, j).is_eq(),
        (no_left, no_right) => no_left && no_right,
    })
}

/// An array of one dimension in each row.
fn flat(lists: &ArrayRef, what: &str) -> Result<ListArray, SqlError> {
    match element_of(lists.data_type()).is_some_and(is_list) {
        true => Err(SqlError::unsupported(format!("{what} multidimensional arrays"))),
        false => as_lists(lists),
    }
}

/// The places of a row's elements among all.
fn places(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize
}

const SEARCH: &str = "searching for elements in";

/// The number of the first element that is equal to a value, from a number on.
fn position(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lists = flat(&args[0], SEARCH)?;
    let equal = equality(lists.values(), &args[1])?;
    let starts = args.get(2).map(|starts| starts.as_primitive::<Int32Type>());
    let mut found = Int32Builder::with_capacity(lists.len());
    for row in 0..lists.len() {
        if lists.is_null(row) {
            found.append_null();
            continue;
        }
        if starts.is_some_and(|starts| starts.is_null(row)) {
            return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "initial position must not be null"));
        }
        let skipped = starts.map_or(0, |starts| starts.value(row).saturating_sub(1).max(0) as usize);
        let number = places(&lists, row).enumerate().skip(skipped).find(|(_, at)| equal(*at, row));
        found.append_option(number.map(|(before, _)| before as i32 + 1));
    }
    Ok(Arc::new(found.finish()))
}

/// The numbers of all elements that are equal to a value.
fn positions(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lists = flat(&args[0], SEARCH)?;
    let equal = equality(lists.values(), &args[1])?;
    let mut found = ListBuilder::new(Int32Builder::new());
    for row in 0..lists.len() {
        let numbers = places(&lists, row).enumerate().filter(|(_, at)| equal(*at, row));
        found.values().extend(numbers.map(|(before, _)| Some(before as i32 + 1)));
        found.append(lists.is_valid(row));
    }
    Ok(Arc::new(found.finish()))
}

/// An array without the elements that are equal to a value.
fn removed(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lists = flat(&args[0], "removing elements from")?;
    let equal = equality(lists.values(), &args[1])?;
    let (mut kept, mut lengths): (Vec<u64>, Vec<usize>) = Default::default();
    for row in 0..lists.len() {
        let before = kept.len();
        kept.extend(places(&lists, row).filter(|at| !equal(*at, row)).map(|at| at as u64));
        lengths.push(kept.len() - before);
    }
    let elements = take(lists.values(), &UInt64Array::from(kept), None)?;
    list_of(elements, lengths, lists.nulls().cloned())
}

/// An array with a new value in place of the elements that are equal to an old one.
fn replaced(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lists = flat(&args[0], "replacing elements of")?;
    let equal = equality(lists.values(), &args[1])?;
    let both = concat(&[lists.values(), &args[2]])?;
    let mut taken: Vec<u64> = Vec::with_capacity(lists.values().len());
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let new = (lists.values().len() + row) as u64;
        taken.extend(places(&lists, row).map(|at| if equal(at, row) { new } else { at as u64 }));
        lengths.push(lists.value_length(row) as usize);
    }
    list_of(take(&both, &UInt64Array::from(taken), None)?, lengths, lists.nulls().cloned())
}

fn list_of(elements: ArrayRef, lengths: Vec<usize>, nulls: Option<NullBuffer>) -> Result<ArrayRef, SqlError> {
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), elements, nulls)?))
}

/// Whether all elements of the second array, or any, are elements of the first. NULL is no element.
fn contained(args: &[ArrayRef], all: bool) -> Result<ArrayRef, SqlError> {
    let [left, right] = [0, 1].map(|at| super::arrays::all_elements(&args[at..=at]));
    let (left, right) = (as_lists(&left?)?, as_lists(&right?)?);
    let equal = equality(left.values(), right.values())?;
    let holds = |row: usize| {
        let is_found = |at: usize| {
            right.values().is_valid(at)
                && places(&left, row).any(|other| left.values().is_valid(other) && equal(other, at))
        };
        let mut wanted = places(&right, row);
        let is_there = left.is_valid(row) && right.is_valid(row);
        is_there.then(|| if all { wanted.all(is_found) } else { wanted.any(is_found) })
    };
    Ok(Arc::new((0..left.len()).map(holds).collect::<BooleanArray>()))
}

/// Two arrays of one number of dimensions, or of one more.
fn joined_types(given: &[DataType]) -> Option<Types> {
    let [left, right] = given else { return None };
    if left.is_null() || right.is_null() {
        let other = if left.is_null() { right } else { left };
        let other = if other.is_null() { DataType::new_list(DataType::Null, true) } else { other.clone() };
        return Some((vec![other.clone(), other.clone()], other));
    }
    let list = DataType::new_list(common(deepest(left)?, deepest(right)?)?, true);
    let (left, right) = (as_deep(left, &list), as_deep(right, &list));
    let deeper = if levels(&left) >= levels(&right) { left.clone() } else { right.clone() };
    (levels(&left).abs_diff(levels(&right)) <= 1).then_some((vec![left, right], deeper))
}

/// Concatenates arrays. NULL or an empty array adds no elements; an array of one dimension less
/// becomes an element of the other.
fn joined(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let deepest = levels(args[0].data_type()).max(levels(args[1].data_type()));
    let side = |list: &ArrayRef| {
        let lists = as_lists(list)?;
        Ok::<_, SqlError>(if levels(list.data_type()) < deepest { as_elements(lists) } else { lists })
    };
    let (left, right) = (&side(&args[0])?, &side(&args[1])?);
    let both = concat(&[left.values(), right.values()])?;
    let (mut taken, mut lengths, mut there): (Vec<u64>, Vec<usize>, Vec<bool>) = Default::default();
    for row in 0..left.len() {
        let before = taken.len();
        taken.extend(places(left, row).map(|at| at as u64));
        taken.extend(places(right, row).map(|at| (left.values().len() + at) as u64));
        lengths.push(taken.len() - before);
        there.push(left.is_valid(row) || right.is_valid(row));
        if taken.len() > before {
            have_one_length(&both, &taken[before..])?;
        }
    }
    list_of(take(&both, &UInt64Array::from(taken), None)?, lengths, Some(NullBuffer::from(there)))
}

/// Each array as an array whose only element it is; an array without elements as an empty one.
fn as_elements(lists: ListArray) -> ListArray {
    let lengths: Vec<usize> =
        (0..lists.len()).map(|row| usize::from(lists.is_valid(row) && lists.value_length(row) > 0)).collect();
    let kept: Vec<u64> = (0..lists.len()).filter(|row| lengths[*row] > 0).map(|row| row as u64).collect();
    let nulls = lists.nulls().cloned();
    let lists: ArrayRef = Arc::new(lists);
    let elements = take(&lists, &UInt64Array::from(kept), None).expect("the rows are there");
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    ListArray::new(field, OffsetBuffer::from_lengths(lengths), elements, nulls)
}

/// # Errors
/// 2202E where elements are arrays of several lengths.
fn have_one_length(elements: &ArrayRef, taken: &[u64]) -> Result<(), SqlError> {
    let Some(inner) = elements.as_list_opt::<i32>() else { return Ok(()) };
    let lengths: Int32Array = taken.iter().map(|at| Some(inner.value_length(*at as usize))).collect();
    if lengths.values().windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays"));
    }
    let of_first = places(inner, taken[0] as usize).map(|at| at as u64).collect::<Vec<_>>();
    for at in taken {
        let own: Vec<u64> = places(inner, *at as usize).map(|at| at as u64).collect();
        if !own.is_empty() && inner.values().as_list_opt::<i32>().is_some() {
            let all: Vec<u64> = of_first.iter().chain(&own).copied().collect();
            have_one_length(inner.values(), &all)?;
        }
    }
    Ok(())
}
