//! Values in the binary encoding of Avro, read and written by a schema.

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde_json::{Map, Number, Value};

use super::schema::{Definition, Schema, Type};
use crate::Event;
use crate::event::text_of;
use crate::event::time_format::{Zone, iso8601};

/// Deepest nesting of a value.
const MAX_DEPTH: usize = 64;
/// Most values within one, however long it is.
const MAX_VALUES: u64 = 1_000_000;

/// Values that a datum may have without bytes of their own, such as nulls.
const MAX_EMPTY_VALUES: u64 = 1_024;
/// Values for each byte, beyond which a datum is refused.
const VALUES_PER_BYTE: u64 = 8;

/// Reason why bytes are no value of the schema.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DatumError {
    #[error("the bytes end within a value")]
    Truncated,
    #[error("the bytes are no value of the schema")]
    Malformed,
    #[error(
        "the value has more than {MAX_VALUES} parts, too many for its bytes, or more than {MAX_DEPTH} levels"
    )]
    TooLarge,
    #[error("[{0}] is no value of its type in the schema")]
    Mismatch(String),
}

/// Reads a value, and returns the bytes behind it.
///
/// # Errors
/// The bytes are none, or are too many.
pub(super) fn read<'a>(schema: &Schema, bytes: &'a [u8]) -> Result<(Value, &'a [u8]), DatumError> {
    let most = (bytes.len() as u64).saturating_mul(VALUES_PER_BYTE).saturating_add(MAX_EMPTY_VALUES);
    let mut reader = Reader { schema, bytes, values: 0, most: most.min(MAX_VALUES) };
    let value = reader.value(&schema.root, MAX_DEPTH)?;
    Ok((value, reader.bytes))
}

struct Reader<'s, 'a> {
    schema: &'s Schema,
    bytes: &'a [u8],
    values: u64,
    /// Most values of the datum.
    most: u64,
}

impl<'a> Reader<'_, 'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], DatumError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(DatumError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<i64, DatumError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)? else { return Err(DatumError::Truncated) };
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
            }
        }
        Err(DatumError::Malformed)
    }

    fn length(&mut self) -> Result<usize, DatumError> {
        usize::try_from(self.long()?).map_err(|_| DatumError::Malformed)
    }

    fn text(&mut self) -> Result<String, DatumError> {
        let length = self.length()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn value(&mut self, kind: &Type, depth: usize) -> Result<Value, DatumError> {
        self.values += 1;
        let depth = depth.checked_sub(1).filter(|_| self.values <= self.most).ok_or(DatumError::TooLarge)?;
        Ok(match kind {
            Type::Null => Value::Null,
            Type::Boolean => match self.take(1)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return Err(DatumError::Malformed),
            },
            Type::Int | Type::Long => Value::from(self.long()?),
            Type::Float => {
                let bytes = self.take(4)?.try_into().map_err(|_| DatumError::Truncated)?;
                float(f64::from(f32::from_le_bytes(bytes)))
            }
            Type::Double => {
                let bytes = self.take(8)?.try_into().map_err(|_| DatumError::Truncated)?;
                float(f64::from_le_bytes(bytes))
            }
            Type::Bytes | Type::Text => Value::String(self.text()?),
            Type::Array(items) => {
                let mut elements = Vec::new();
                self.blocks(|reader| {
                    elements.push(reader.value(items, depth)?);
                    Ok(())
                })?;
                Value::Array(elements)
            }
            Type::Map(values) => {
                let mut members = Map::new();
                self.blocks(|reader| {
                    let name = reader.text()?;
                    members.insert(name, reader.value(values, depth)?);
                    Ok(())
                })?;
                Value::Object(members)
            }
            Type::Union(branches) => {
                let branch = self.length()?;
                self.value(branches.get(branch).ok_or(DatumError::Malformed)?, depth)?
            }
            Type::Named(number) => self.named(*number, depth)?,
            Type::Date => {
                let days = self.long()?;
                let epoch = NaiveDate::default();
                let date = match u64::try_from(days) {
                    Ok(days) => epoch.checked_add_days(Days::new(days)),
                    Err(_) => epoch.checked_sub_days(Days::new(days.unsigned_abs())),
                };
                Value::String(date.ok_or(DatumError::Malformed)?.to_string())
            }
            Type::TimestampMillis => time(DateTime::from_timestamp_millis(self.long()?))?,
            Type::TimestampMicros => time(DateTime::from_timestamp_micros(self.long()?))?,
        })
    }

    fn named(&mut self, number: usize, depth: usize) -> Result<Value, DatumError> {
        let schema = self.schema;
        match schema.definitions.get(number).ok_or(DatumError::Malformed)? {
            Definition::Record(fields) => {
                let mut members = Map::new();
                for field in fields {
                    members.insert(field.name.clone(), self.value(&field.kind, depth)?);
                }
                Ok(Value::Object(members))
            }
            Definition::Enumeration(symbols) => {
                let symbol = self.length()?;
                symbols.get(symbol).map(|symbol| Value::from(symbol.as_str())).ok_or(DatumError::Malformed)
            }
            Definition::Fixed(size) => {
                Ok(Value::String(String::from_utf8_lossy(self.take(*size)?).into_owned()))
            }
        }
    }

    /// Reads blocks of items up to the empty one.
    fn blocks(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), DatumError>,
    ) -> Result<(), DatumError> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The bytes of the block follow, for those who skip it.
                self.long()?;
                count = count.checked_neg().ok_or(DatumError::Malformed)?;
            }
            for _ in 0..count {
                item(self)?;
            }
        }
    }
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

fn time(time: Option<DateTime<Utc>>) -> Result<Value, DatumError> {
    time.map(|time| Value::String(Event::new(time).timestamp_text())).ok_or(DatumError::Malformed)
}

/// Appends a value.
///
/// # Errors
/// The value is none of the schema.
pub(super) fn write(schema: &Schema, value: &Value, out: &mut Vec<u8>) -> Result<(), DatumError> {
    write_value(schema, &schema.root, value, MAX_DEPTH, out)
}

fn write_long(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // Bytes in memory are fewer than the greatest number.
    write_long(i64::try_from(bytes.len()).unwrap_or(i64::MAX), out);
    out.extend_from_slice(bytes);
}

fn write_value(
    schema: &Schema,
    kind: &Type,
    value: &Value,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), DatumError> {
    let depth = depth.checked_sub(1).ok_or(DatumError::TooLarge)?;
    let mismatch = || DatumError::Mismatch(text_of(value).chars().take(80).collect());
    match kind {
        Type::Null if value.is_null() => {}
        Type::Boolean => out.push(u8::from(value.as_bool().ok_or_else(mismatch)?)),
        Type::Int => {
            let number = value.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or_else(mismatch)?;
            write_long(i64::from(number), out);
        }
        Type::Long => write_long(value.as_i64().ok_or_else(mismatch)?, out),
        Type::Float => out.extend((value.as_f64().ok_or_else(mismatch)? as f32).to_le_bytes()),
        Type::Double => out.extend(value.as_f64().ok_or_else(mismatch)?.to_le_bytes()),
        Type::Bytes | Type::Text => write_bytes(value.as_str().ok_or_else(mismatch)?.as_bytes(), out),
        Type::Array(items) => {
            let elements = value.as_array().ok_or_else(mismatch)?;
            if !elements.is_empty() {
                write_long(i64::try_from(elements.len()).unwrap_or(i64::MAX), out);
            }
            for element in elements {
                write_value(schema, items, element, depth, out)?;
            }
            write_long(0, out);
        }
        Type::Map(values) => {
            let members = value.as_object().ok_or_else(mismatch)?;
            if !members.is_empty() {
                write_long(i64::try_from(members.len()).unwrap_or(i64::MAX), out);
            }
            for (name, member) in members {
                write_bytes(name.as_bytes(), out);
                write_value(schema, values, member, depth, out)?;
            }
            write_long(0, out);
        }
        Type::Union(branches) => {
            for (number, branch) in branches.iter().enumerate() {
                let begin = out.len();
                write_long(i64::try_from(number).unwrap_or(i64::MAX), out);
                if write_value(schema, branch, value, depth, out).is_ok() {
                    return Ok(());
                }
                out.truncate(begin);
            }
            return Err(mismatch());
        }
        Type::Named(number) => match schema.definitions.get(*number).ok_or(DatumError::Malformed)? {
            Definition::Record(fields) => {
                let members = value.as_object().ok_or_else(mismatch)?;
                for field in fields {
                    let member = members.get(&field.name).or(field.default.as_ref()).unwrap_or(&Value::Null);
                    write_value(schema, &field.kind, member, depth, out)?;
                }
            }
            Definition::Enumeration(symbols) => {
                let text = value.as_str().ok_or_else(mismatch)?;
                let symbol = symbols.iter().position(|symbol| symbol == text).ok_or_else(mismatch)?;
                write_long(i64::try_from(symbol).unwrap_or(i64::MAX), out);
            }
            Definition::Fixed(size) => {
                let text = value.as_str().filter(|text| text.len() == *size).ok_or_else(mismatch)?;
                out.extend_from_slice(text.as_bytes());
            }
        },
        Type::Date => {
            let date = value.as_str().and_then(|text| text.parse::<NaiveDate>().ok()).ok_or_else(mismatch)?;
            write_long((date - NaiveDate::default()).num_days(), out);
        }
        Type::TimestampMillis => write_long(instant(value).ok_or_else(mismatch)?.timestamp_millis(), out),
        Type::TimestampMicros => write_long(instant(value).ok_or_else(mismatch)?.timestamp_micros(), out),
        Type::Null => return Err(mismatch()),
    }
    Ok(())
}

/// Returns the instant that a text is, or a number of milliseconds.
fn instant(value: &Value) -> Option<DateTime<Utc>> {
    match value {
        Value::String(text) => iso8601(text, Zone::UTC),
        other => DateTime::from_timestamp_millis(other.as_i64()?),
    }
}
