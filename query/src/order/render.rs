//! Sort values as answers print them.

use std::net::Ipv6Addr;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use millrace_storage::mapping::ColumnKind;
use serde_json::{Number, Value, json};

use crate::error::{Error, Result};
use crate::table::keys::{Key, KeyKind, KeySource, Rescale};

/// How sort values of dates are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateFormat {
    Millis,
    Iso,
    IsoNanos,
}

impl DateFormat {
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text {
            "epoch_millis" => Ok(Self::Millis),
            "strict_date_optional_time" | "date_optional_time" | "iso8601" => Ok(Self::Iso),
            "strict_date_optional_time_nanos" => Ok(Self::IsoNanos),
            _ => Err(Error::IllegalArgument(format!(
                "sort format [{text}] is not supported, use [strict_date_optional_time], [strict_date_optional_time_nanos] or [epoch_millis]"
            ))),
        }
    }

    fn render(self, value: i64, nanos: bool) -> Value {
        let unit = if nanos { 1_000_000_000 } else { 1_000 };
        let (seconds, fraction) = (value.div_euclid(unit), value.rem_euclid(unit));
        let fraction = if nanos { fraction } else { fraction * 1_000_000 };
        if self == Self::Millis {
            return json!((seconds * 1_000 + fraction / 1_000_000).to_string());
        }
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let second = seconds.rem_euclid(86_400);
        let clock = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
        let fraction = match self {
            Self::IsoNanos => format!("{fraction:09}"),
            _ => format!("{:03}", fraction / 1_000_000),
        };
        json!(format!("{year:04}-{month:02}-{day:02}T{clock}.{fraction}Z"))
    }
}

/// Renders one value of a key.
pub(super) fn render_key(
    key: &Key,
    source: Option<&KeySource>,
    format: Option<DateFormat>,
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
                    format.render(value, nanos)
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
            Ok(bytes) => json!(render_ip(bytes)),
            Err(_) => Value::Null,
        },
    }
}

/// Renders a floating point number; what JSON has no number for becomes a string, as in OpenSearch.
pub(crate) fn number(value: f64, single: bool) -> Value {
    if value.is_infinite() {
        return json!(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if single {
        // The shortest text that gives the same single-precision number.
        return serde_json::from_str(&format!("{:?}", value as f32)).unwrap_or(Value::Null);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Renders an address; IPv4 where it is mapped.
fn render_ip(bytes: [u8; 16]) -> String {
    let address = Ipv6Addr::from(bytes);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

/// Converts days since the epoch to a date of the proleptic Gregorian calendar
/// (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_values_print_as_opensearch_prints_them() {
        assert_eq!(number(1.1_f32.into(), true).to_string(), "1.1");
        assert_eq!(number(f64::INFINITY, false), json!("Infinity"));
        assert_eq!(render_ip("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets()), "10.0.0.1");
        assert_eq!(DateFormat::Iso.render(1_571_646_604_828, false), json!("2019-10-21T08:30:04.828Z"));
        assert_eq!(
            DateFormat::IsoNanos.render(1_571_646_604_828_733_000, true),
            json!("2019-10-21T08:30:04.828733000Z")
        );
    }
}
