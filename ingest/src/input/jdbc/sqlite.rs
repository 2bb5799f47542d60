//! SQLite's types: the type of a value decides, and the declared type of its column where that says more.

use serde_json::{Map, Number, Value};
use sqlx::sqlite::SqliteRow;
use sqlx::{Column, Row as _, TypeInfo, ValueRef};

use super::row::{Row, RowReadOptions};
use super::value;

/// Reads a row.
///
/// # Errors
/// A value cannot be had.
pub(super) fn row(row: &SqliteRow, reading: &RowReadOptions, track: Option<&str>) -> sqlx::Result<Row> {
    let mut fields = Map::new();
    let mut tracked = None;
    for (at, column) in row.columns().iter().enumerate() {
        let raw = row.try_get_raw(at)?;
        let of = if raw.is_null() { "NULL".to_owned() } else { raw.type_info().name().to_owned() };
        drop(raw);
        let declared = column.type_info().name();
        let wanted = track == Some(column.name());
        let value = match of.as_str() {
            "NULL" => Value::Null,
            "INTEGER" => {
                let number: i64 = row.try_get_unchecked(at)?;
                tracked = if wanted { Some(number.to_string()) } else { tracked };
                match (declared, number) {
                    ("BOOLEAN", 0 | 1) => Value::Bool(number == 1),
                    _ => Value::from(number),
                }
            }
            "REAL" => {
                let number: f64 = row.try_get_unchecked(at)?;
                tracked = if wanted { Some(number.to_string()) } else { tracked };
                Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
            }
            "BLOB" => reading.bytes(column.name(), &row.try_get_unchecked::<Vec<u8>, _>(at)?),
            _ => {
                let bytes: Vec<u8> = row.try_get_unchecked(at)?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                tracked = if wanted { Some(text.clone()) } else { tracked };
                match declared {
                    "DATETIME" => value::timestamp(&text, &reading.zone),
                    _ => Value::String(text),
                }
            }
        };
        fields.insert(reading.name(column.name()), value);
    }
    Ok(Row { fields, tracked })
}
