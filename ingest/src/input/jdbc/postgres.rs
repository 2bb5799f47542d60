//! PostgreSQL's types, from their text form.

use serde_json::{Map, Value};
use sqlx::postgres::{PgRow, PgTypeInfo, PgTypeKind};
use sqlx::{Column, Row as _, TypeInfo, ValueRef};

use super::row::{Row, RowReadOptions};
use super::value;
use super::zone::DatabaseZone;

/// Most dimensions that an array of PostgreSQL has.
const MAX_DIMENSIONS: usize = 6;
/// Domains over domains that are followed.
const MAX_DOMAINS: usize = 8;

/// Reads a row.
///
/// # Errors
/// A value is not UTF-8.
pub(super) fn row(row: &PgRow, reading: &RowReadOptions, track: Option<&str>) -> sqlx::Result<Row> {
    let mut fields = Map::new();
    let mut tracked = None;
    for (at, column) in row.columns().iter().enumerate() {
        let raw = row.try_get_raw(at)?;
        let value = if raw.is_null() {
            Value::Null
        } else {
            let text = raw.as_str().map_err(sqlx::Error::Decode)?;
            if track == Some(column.name()) {
                tracked = Some(text.to_owned());
            }
            of_column(text, column.type_info(), column.name(), reading)
        };
        fields.insert(reading.name(column.name()), value);
    }
    Ok(Row { fields, tracked })
}

fn of_column(text: &str, of: &PgTypeInfo, column: &str, reading: &RowReadOptions) -> Value {
    match bytea(text).filter(|_| of.name() == "BYTEA") {
        Some(bytes) => reading.bytes(column, &bytes),
        None => of_type(text, of, &reading.zone),
    }
}

fn of_type(text: &str, of: &PgTypeInfo, zone: &DatabaseZone) -> Value {
    let mut of = of;
    for _ in 0..MAX_DOMAINS {
        // A type that was not looked up has no kind to ask for.
        if of.name() == "?" {
            break;
        }
        match of.kind() {
            PgTypeKind::Domain(base) => of = base,
            PgTypeKind::Array(element) => {
                return array(text, element, zone).unwrap_or_else(|| Value::String(text.to_owned()));
            }
            _ => break,
        }
    }
    match of.name() {
        "BOOL" => Value::Bool(text == "t"),
        "INT2" | "INT4" | "INT8" | "OID" => value::whole(text),
        "FLOAT4" | "FLOAT8" => value::float(text),
        "NUMERIC" => value::decimal(text),
        "TIMESTAMP" | "TIMESTAMPTZ" => value::timestamp(text, zone),
        "BYTEA" => bytea(text).map_or_else(|| Value::String(text.to_owned()), |bytes| value::bytes(&bytes)),
        _ => Value::String(text.to_owned()),
    }
}

/// `\x0a1b`.
fn bytea(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.strip_prefix("\\x")?.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// `{1,NULL,"a \"b\""}`, nested, perhaps with bounds before it (`[0:2]={…}`).
fn array(text: &str, element: &PgTypeInfo, zone: &DatabaseZone) -> Option<Value> {
    let text = if text.starts_with('[') { text.split_once('=')?.1 } else { text };
    let delimiter = if element.name() == "BOX" { ';' } else { ',' };
    let mut open: Vec<Vec<Value>> = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        match *chars.peek()? {
            '{' => {
                chars.next();
                open.push(Vec::new());
                if open.len() > MAX_DIMENSIONS {
                    return None;
                }
            }
            '}' => {
                chars.next();
                let done = Value::Array(open.pop()?);
                match open.last_mut() {
                    Some(outer) => outer.push(done),
                    None => return chars.next().is_none().then_some(done),
                }
            }
            c if c == delimiter => {
                chars.next();
            }
            '"' => {
                chars.next();
                let mut item = String::new();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => item.push(chars.next()?),
                        c => item.push(c),
                    }
                }
                open.last_mut()?.push(of_type(&item, element, zone));
            }
            _ => {
                let mut item = String::new();
                while let Some(c) = chars.next_if(|c| *c != delimiter && *c != '}') {
                    item.push(c);
                }
                let value = if item == "NULL" { Value::Null } else { of_type(&item, element, zone) };
                open.last_mut()?.push(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use sqlx::{Postgres, Type};

    use super::*;

    fn read<T: Type<Postgres>>(text: &str) -> Value {
        of_type(text, &T::type_info(), &DatabaseZone::utc())
    }

    #[test]
    fn arrays_keep_their_shape() {
        assert_eq!(read::<Vec<i32>>("{1,NULL,-3}"), json!([1, null, -3]));
        assert_eq!(read::<Vec<i64>>("[0:1]={1,2}"), json!([1, 2]));
        assert_eq!(read::<Vec<i32>>("{{1,2},{3,4}}"), json!([[1, 2], [3, 4]]));
        assert_eq!(read::<Vec<String>>(r#"{a,"b,\"c\\","NULL",""}"#), json!(["a", "b,\"c\\", "NULL", ""]));
        assert_eq!(read::<Vec<bool>>("{}"), json!([]));
        assert_eq!(read::<Vec<String>>("{a"), json!("{a"));
    }

    #[test]
    fn types_without_a_mapping_stay_text() {
        assert_eq!(read::<bool>("f"), json!(false));
        assert_eq!(read::<Vec<u8>>("\\x00ff"), json!("AP8="));
        assert_eq!(read::<sqlx::types::Uuid>("a-b"), json!("a-b"));
        assert_eq!(read::<serde_json::Value>("{\"a\": 1}"), json!("{\"a\": 1}"));
    }

    proptest! {
        #[test]
        fn any_text_is_an_array_or_stays(text in "[\\[\\]{},\"\\\\a1=:]{0,40}") {
            let _ = read::<Vec<i32>>(&text);
            let _ = read::<Vec<String>>(&text);
        }
    }
}
