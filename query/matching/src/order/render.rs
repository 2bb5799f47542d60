//! Sort values as answers print them.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use millrace_mapping::{ColumnKind, DateFormat};
use serde_json::{Number, Value, json};

use crate::address::AddressText;
use crate::table::keys::{Key, KeyKind, KeySource, Rescale};

/// Renders one value of a key.
pub(super) fn render_key(
    key: &Key,
    source: Option<&KeySource>,
    format: Option<&DateFormat>,
    array: &ArrayRef,
    at: usize,
) -> Value {
    if array.is_null(at) {
        return Value::Null;
    }
    match key.kind {
        KeyKind::I64 => {
            let value = array.as_primitive::<Int64Type>().value(at);
            let kind = source.map(|source| (source.kind, source.rescale));
            let nanos = match kind {
                Some(
                    (ColumnKind::DateMs, Rescale::None) | (ColumnKind::DateNanos, Rescale::NanosToMillis),
                ) => Some(false),
                Some(
                    (ColumnKind::DateNanos, Rescale::None) | (ColumnKind::DateMs, Rescale::MillisToNanos),
                ) => Some(true),
                _ => None,
            };
            match (format, nanos) {
                (Some(format), Some(nanos)) if value != i64::MAX && value != i64::MIN => {
                    let unit = if nanos { 1 } else { 1_000_000 };
                    json!(format.format_nanos(i128::from(value) * unit))
                }
                _ => json!(value),
            }
        }
        KeyKind::U64 => json!(array.as_primitive::<UInt64Type>().value(at)),
        KeyKind::F64 => {
            let single = source.is_some_and(|source| source.single);
            number(array.as_primitive::<Float64Type>().value(at), single)
        }
        KeyKind::Str => json!(array.as_string_view().value(at)),
        KeyKind::Ip => match <[u8; 16]>::try_from(array.as_fixed_size_binary().value(at)) {
            Ok(bytes) => json!(&*AddressText::new(bytes)),
            Err(_) => Value::Null,
        },
    }
}

/// Renders a floating point number; a number that JSON lacks becomes a string, as in OpenSearch.
pub fn number(value: f64, single: bool) -> Value {
    if value.is_infinite() {
        return json!(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if single {
        // The shortest text that gives the same single-precision number.
        return serde_json::from_str(&format!("{:?}", value as f32)).unwrap_or(Value::Null);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_values_print_as_opensearch_prints_them() {
        assert_eq!(number(1.1_f32.into(), true).to_string(), "1.1");
        assert_eq!(number(f64::INFINITY, false), json!("Infinity"));
    }
}
