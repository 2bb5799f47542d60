//! MySQL's and MariaDB's types, from their text form.

use chrono::FixedOffset;
use serde_json::{Map, Value};
use sqlx::mysql::{MySqlRow, MySqlTypeInfo};
use sqlx::{Column, MySql, Row as _, Type, TypeInfo, ValueRef};

use super::row::{Row, RowReadOptions};
use super::value;

/// Reads a row. Values of the type TIMESTAMP have the session's offset, and without one the zone of [`RowReadOptions`].
///
/// # Errors
/// A value cannot be had.
pub(super) fn row(
    row: &MySqlRow,
    reading: &RowReadOptions,
    session: Option<FixedOffset>,
    track: Option<&str>,
) -> sqlx::Result<Row> {
    let mut fields = Map::new();
    let mut tracked = None;
    for (at, column) in row.columns().iter().enumerate() {
        let value = if row.try_get_raw(at)?.is_null() {
            Value::Null
        } else {
            let bytes: &[u8] = row.try_get_unchecked(at)?;
            if track == Some(column.name()) {
                tracked = Some(String::from_utf8_lossy(bytes).into_owned());
            }
            of_type(bytes, column.type_info(), column.name(), reading, session)
        };
        fields.insert(reading.name(column.name()), value);
    }
    Ok(Row { fields, tracked })
}

fn of_type(
    bytes: &[u8],
    of: &MySqlTypeInfo,
    column: &str,
    reading: &RowReadOptions,
    session: Option<FixedOffset>,
) -> Value {
    let name = of.name();
    if name == "BIT" {
        return bits(bytes);
    }
    // What has a collation is text, in the session's UTF-8; the rest of these types is binary.
    let character = matches!(name, "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB");
    if name == "GEOMETRY" || character && !<str as Type<MySql>>::compatible(of) {
        return reading.bytes(column, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    match name {
        "BOOLEAN" => match &*text {
            "0" => Value::Bool(false),
            "1" => Value::Bool(true),
            other => value::whole(other),
        },
        "DECIMAL" => value::decimal(&text),
        "FLOAT" | "DOUBLE" => value::float(&text),
        "DATE" | "DATETIME" | "TIMESTAMP" if text.starts_with("0000-00-00") => Value::Null,
        "DATETIME" => value::timestamp(&text, &reading.zone),
        "TIMESTAMP" => match session {
            Some(offset) => value::timestamp(&format!("{text}{offset}"), &reading.zone),
            None => value::timestamp(&text, &reading.zone),
        },
        "YEAR" => value::whole(&text),
        name if name.contains("INT") => value::whole(&text),
        _ => Value::String(text.into_owned()),
    }
}

/// A bit field as a number, in base64 beyond 64 bits.
fn bits(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return value::bytes(bytes);
    }
    Value::from(bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
}
