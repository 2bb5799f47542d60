//! Values of Arrow arrays as answers show them.

use std::fmt::Write;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, UInt64Type,
};

use crate::functions::time;
use crate::types::SqlType;

/// Writes a value as JSON.
pub(crate) fn json(array: &ArrayRef, row: usize, ty: SqlType, out: &mut String) {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        out.push_str("null");
        return;
    }
    match array.data_type() {
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(row);
            // A document with one value has no array.
            if values.len() == 1 {
                return json(&values, 0, ty, out);
            }
            out.push('[');
            for at in 0..values.len() {
                if at > 0 {
                    out.push(',');
                }
                json(&values, at, ty, out);
            }
            out.push(']');
        }
        DataType::Utf8View if ty.is_json() => out.push_str(array.as_string_view().value(row)),
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64 => text(array, row, ty, out),
        _ => {
            let mut shown = String::new();
            text(array, row, ty, &mut shown);
            quoted(&shown, out);
        }
    }
}

/// Writes a value as text; null is empty.
pub(crate) fn text(array: &ArrayRef, row: usize, ty: SqlType, out: &mut String) {
    if array.is_null(row) {
        return;
    }
    // Writing to a string cannot fail.
    let _ = match array.data_type() {
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(row)),
        DataType::Int8 => write!(out, "{}", array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => write!(out, "{}", array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => write!(out, "{}", array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            match serde_json::to_string(&value) {
                Ok(shown) => write!(out, "{shown}"),
                Err(_) => write!(out, "null"),
            }
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            match serde_json::to_string(&value) {
                Ok(shown) => write!(out, "{shown}"),
                Err(_) => write!(out, "null"),
            }
        }
        DataType::Utf8View => write!(out, "{}", array.as_string_view().value(row)),
        DataType::Date32 => {
            write!(out, "{}", time::shown_date(array.as_primitive::<Date32Type>().value(row)))
        }
        DataType::Time64(_) => {
            write!(
                out,
                "{}",
                time::shown_nanos_of_day(array.as_primitive::<Time64NanosecondType>().value(row))
            )
        }
        DataType::Timestamp(unit, _) => {
            let (value, per_second) = match unit {
                TimeUnit::Millisecond => (array.as_primitive::<TimestampMillisecondType>().value(row), 1_000),
                TimeUnit::Nanosecond => {
                    (array.as_primitive::<TimestampNanosecondType>().value(row), 1_000_000_000)
                }
                _ => (array.as_primitive::<TimestampMicrosecondType>().value(row), 1_000_000),
            };
            write!(out, "{}", time::shown_timestamp(value, per_second))
        }
        DataType::Interval(_) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            write!(out, "P{}M{}DT{}S", value.months, value.days, value.nanoseconds as f64 / 1e9)
        }
        DataType::List(_) => {
            let mut shown = String::new();
            json(array, row, ty, &mut shown);
            write!(out, "{}", shown.trim_matches('"'))
        }
        _ => Ok(()),
    };
}

/// Writes a JSON string.
pub(super) fn quoted(text: &str, out: &mut String) {
    match serde_json::to_string(text) {
        Ok(shown) => out.push_str(&shown),
        Err(_) => out.push_str("null"),
    }
}
