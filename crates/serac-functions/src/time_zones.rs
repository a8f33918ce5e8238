//! `time AT TIME ZONE zone`, the function timezone (zone, time): for a TIMESTAMPTZ the time on a
//! zone's clocks, for a TIMESTAMP the instant at which these show it.

use super::definition::{Definition, Types};
use super::times::{TIMESTAMP, with_zone};
use crate::sql_result::SqlResult;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimestampMicrosecondType};
use serac_engine::Infinity;
use serac_values::SqlError;
use serac_values::intervals::{INTERVAL, Parts, intervals, is_interval};
use serac_values::text_types::{is_text, is_text_or_null};
use serac_values::time_zones::Zone;
use std::sync::Arc;

fn types(given: &[DataType]) -> Option<Types> {
    let [zone, time] = given else { return None };
    let zone = if is_interval(zone) { INTERVAL } else { Some(DataType::Utf8).filter(|_| is_text_or_null(zone))? };
    // A text becomes a time with a zone, as everywhere in PostgreSQL.
    let (time, result) = match time {
        DataType::Timestamp(_, None) => (TIMESTAMP, with_zone()),
        DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Null => (with_zone(), TIMESTAMP),
        text if is_text(text) => (with_zone(), TIMESTAMP),
        _ => return None,
    };
    Some((vec![zone, time], result))
}

fn body(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let (zones, times) = (&args[0], args[1].as_primitive::<TimestampMicrosecondType>());
    let is_local = times.timezone().is_none();
    let names = (!is_interval(zones.data_type())).then(|| cast(zones, &DataType::Utf8)).transpose()?;
    let names: Option<&StringArray> = names.as_ref().map(|names| names.as_string());
    // Most often it is one zone for all.
    let mut last: Option<(usize, Zone)> = None;
    let converted = |row: usize| -> SqlResult<Option<i64>> {
        if zones.is_null(row) || times.is_null(row) {
            return Ok(None);
        }
        let is_last = |at: usize| names.is_some_and(|names| names.value(at) == names.value(row));
        if !last.as_ref().is_some_and(|(at, _)| is_last(*at)) {
            let zone = match names {
                Some(names) => Zone::of_name(names.value(row))?,
                None => Zone::of_interval(Parts::of(intervals(zones).value(row)))?,
            };
            last = Some((row, zone));
        }
        let zone = &last.as_ref().expect("set above").1;
        let out_of_range = || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
        let time = times.value(row);
        if Infinity::of_micros(time).is_some() {
            return Ok(Some(time));
        }
        let moved = if is_local { zone.instant(time) } else { zone.local(time) };
        Ok(Some(moved.ok_or_else(out_of_range)?))
    };
    let moved: TimestampMicrosecondArray = (0..times.len()).map(converted).collect::<SqlResult<Vec<_>>>()?.into();
    Ok(if is_local { Arc::new(moved.with_timezone("UTC")) } else { Arc::new(moved) })
}

pub(super) const DEFINITIONS: &[Definition] = &[Definition { name: "timezone", types, body }];
