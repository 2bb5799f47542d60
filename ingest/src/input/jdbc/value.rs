//! Conversion of database values to JSON: the part that all databases share.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, Utc};
use serde_json::{Number, Value};
use sqlx::types::BigDecimal;

use super::zone::DatabaseZone;

/// Longest decimal that is looked at as a number.
const MAX_DIGITS: usize = 400;

/// A decimal as a number where a double has exactly its value, and as its text otherwise: no digit is
/// lost.
pub(super) fn decimal(text: &str) -> Value {
    if let Some(number) = integer(text) {
        return Value::Number(number);
    }
    let exact = || {
        if text.len() > MAX_DIGITS || text.contains(['e', 'E']) {
            return None;
        }
        let double: f64 = text.parse().ok().filter(|double: &f64| double.is_finite())?;
        let shown = BigDecimal::from_str(&double.to_string()).ok()?;
        (shown == BigDecimal::from_str(text).ok()?).then(|| Number::from_f64(double))?
    };
    exact().map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn integer(text: &str) -> Option<Number> {
    text.parse::<i64>().map(Number::from).ok().or_else(|| text.parse::<u64>().map(Number::from).ok())
}

/// A whole number, or its text where it is beyond 64 bits.
pub(super) fn whole(text: &str) -> Value {
    integer(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// A floating-point number; a number that JSON lacks (NaN, Infinity) as text.
pub(super) fn float(text: &str) -> Value {
    let number = text.parse().ok().and_then(Number::from_f64);
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// Bytes in base64.
pub(super) fn bytes(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

/// A date and time as ISO 8601 in UTC, with all its digits; one without an offset is read in the
/// database's zone. What cannot be read stays as it is.
pub(super) fn timestamp(text: &str, zone: &DatabaseZone) -> Value {
    let moment = DatabaseTimestamp::parse(text);
    Value::String(moment.map_or_else(|| text.to_owned(), |moment| iso(moment.instant(zone))))
}

/// An instant as ISO 8601 in UTC, in milliseconds or as many digits as it has.
pub(super) fn iso(instant: DateTime<Utc>) -> String {
    let digits = match instant.timestamp_subsec_nanos() {
        nanos if nanos % 1_000_000 == 0 => SecondsFormat::Millis,
        nanos if nanos % 1_000 == 0 => SecondsFormat::Micros,
        _ => SecondsFormat::Nanos,
    };
    instant.to_rfc3339_opts(digits, true)
}

/// A date and time as a database writes it, with the form in which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatabaseTimestamp {
    /// Date and time as written.
    local: NaiveDateTime,
    offset: Option<FixedOffset>,
    /// Separator of date and time; `None` for a date alone.
    separator: Option<char>,
    digits: usize,
    suffix: String,
}

impl DatabaseTimestamp {
    /// Reads `yyyy-mm-dd`, `yyyy-mm-dd hh:mm:ss` or `…T…`, with or without a fraction and an offset.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (date, rest) = (text.get(..10)?, text.get(10..)?);
        let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
        let Some(separator) = rest.chars().next() else {
            let local = date.and_time(NaiveTime::MIN);
            return Some(Self { local, offset: None, separator: None, digits: 0, suffix: String::new() });
        };
        if !matches!(separator, ' ' | 'T') {
            return None;
        }
        let rest = rest.get(1..)?;
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')).unwrap_or(rest.len());
        let (time, suffix) = rest.split_at_checked(end)?;
        let digits = time.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let time = NaiveTime::parse_from_str(time, "%H:%M:%S%.f").ok()?;
        let offset = match suffix {
            "" => None,
            suffix => Some(parse_offset(suffix)?),
        };
        let local = date.and_time(time);
        Some(Self { local, offset, separator: Some(separator), digits, suffix: suffix.to_owned() })
    }

    /// The instant that it tells.
    pub(super) fn instant(&self, zone: &DatabaseZone) -> DateTime<Utc> {
        match self.offset {
            Some(_) => self.ordered().and_utc(),
            None => zone.instant(self.local),
        }
    }

    /// Sort key of the moments of one column: the instant where they have offsets.
    pub(super) fn ordered(&self) -> NaiveDateTime {
        self.offset.and_then(|offset| self.local.checked_sub_offset(offset)).unwrap_or(self.local)
    }

    /// An earlier moment in the same form.
    pub(super) fn earlier(&self, by: chrono::TimeDelta) -> String {
        let local = self.local.checked_sub_signed(by).unwrap_or(NaiveDateTime::MIN);
        let Some(separator) = self.separator else {
            // A part of a day takes a whole day off, for a date cannot tell it.
            return local.date().format("%Y-%m-%d").to_string();
        };
        let digits = if by.subsec_nanos() == 0 { self.digits } else { self.digits.max(6) };
        let mut text = local.format(&format!("%Y-%m-%d{separator}%H:%M:%S")).to_string();
        if digits > 0 {
            let fraction = format!("{:09}", local.and_utc().timestamp_subsec_nanos());
            text.push('.');
            text.push_str(fraction.get(..digits.min(9)).unwrap_or(&fraction));
        }
        text.push_str(&self.suffix);
        text
    }
}

/// `Z`, `+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss`.
fn parse_offset(text: &str) -> Option<FixedOffset> {
    if text == "Z" {
        return FixedOffset::east_opt(0);
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let digits: String = text.get(1..)?.chars().filter(|c| *c != ':').collect();
    if digits.len() % 2 == 1 || digits.is_empty() || digits.len() > 6 {
        return None;
    }
    let part = |at: usize| digits.get(at..at + 2).map_or(Some(0), |part| part.parse::<i32>().ok());
    FixedOffset::east_opt(sign * (part(0)? * 3600 + part(2)? * 60 + part(4)?))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn decimals_lose_no_digit() {
        for (text, value) in [
            ("12", json!(12)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551615", json!(u64::MAX)),
            ("12.50", json!(12.5)),
            ("0.1", json!(0.1)),
            ("123456789012345678.125", json!("123456789012345678.125")),
            ("36893488147419103233", json!("36893488147419103233")),
            ("NaN", json!("NaN")),
        ] {
            assert_eq!(decimal(text), value, "{text}");
        }
        assert_eq!(float("-Infinity"), json!("-Infinity"));
        assert_eq!(float("1e-7"), json!(1e-7));
    }

    #[test]
    fn timestamps_keep_their_precision() {
        let berlin = DatabaseZone::parse("Europe/Berlin").expect("a zone");
        for (text, zone, value) in [
            ("2024-05-01 10:00:00", &DatabaseZone::utc(), "2024-05-01T10:00:00.000Z"),
            ("2024-05-01 10:00:00.123456", &DatabaseZone::utc(), "2024-05-01T10:00:00.123456Z"),
            ("2024-05-01 10:00:00.5+05:30", &DatabaseZone::utc(), "2024-05-01T04:30:00.500Z"),
            ("2024-05-01 10:00:00+02", &berlin, "2024-05-01T08:00:00.000Z"),
            ("2024-05-01T10:00:00Z", &berlin, "2024-05-01T10:00:00.000Z"),
            ("2024-01-01 10:00:00", &berlin, "2024-01-01T09:00:00.000Z"),
            ("infinity", &berlin, "infinity"),
            ("0044-03-15 10:00:00 BC", &berlin, "0044-03-15 10:00:00 BC"),
        ] {
            assert_eq!(timestamp(text, zone), json!(value), "{text}");
        }
    }

    #[test]
    fn an_earlier_moment_has_the_same_form() {
        for (text, by, earlier) in [
            ("2024-05-01 10:00:00", TimeDelta::seconds(5), "2024-05-01 09:59:55"),
            ("2024-05-01 10:00:00.123456", TimeDelta::milliseconds(1), "2024-05-01 10:00:00.122456"),
            ("2024-05-01T10:00:00Z", TimeDelta::milliseconds(1), "2024-05-01T09:59:59.999000Z"),
            ("2024-05-01 10:00:00+00", TimeDelta::minutes(1), "2024-05-01 09:59:00+00"),
            ("2024-05-01", TimeDelta::milliseconds(1), "2024-04-30"),
        ] {
            assert_eq!(DatabaseTimestamp::parse(text).expect(text).earlier(by), earlier);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_kept(text in "\\PC{0,40}") {
            let _ = DatabaseTimestamp::parse(&text);
            let _ = decimal(&text);
            let _ = float(&text);
        }

        #[test]
        fn a_decimal_has_the_value_of_its_text(whole in any::<i64>(), fraction in "[0-9]{0,12}") {
            let text = format!("{whole}.{fraction}0");
            let shown = match decimal(&text) {
                Value::Number(number) => number.to_string(),
                other => other.as_str().expect("a text").to_owned(),
            };
            prop_assert_eq!(BigDecimal::from_str(&shown).expect("a number"), BigDecimal::from_str(&text).expect("a number"));
        }
    }
}
