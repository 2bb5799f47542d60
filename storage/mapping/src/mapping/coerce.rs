//! From a JSON scalar to the value of a typed column, with OpenSearch's rules and words.
//!
//! Documents, `null_value`s and queries all come through here, so that they agree on what a string
//! means in a number field. A [`Token`] is a scalar as the JSON text has it.

use std::net::IpAddr;

use arrow::datatypes::{ArrowPrimitiveType, Float16Type};

use super::FieldType;
use super::date::{DateFormat, Instant};

/// A JSON scalar that is not null, borrowed from the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A string, unescaped.
    Str(&'a str),
    /// A number as it is written.
    Number(&'a str),
    Bool(bool),
}

impl<'a> Token<'a> {
    /// The token as text: what a keyword field holds of it.
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Str(text) | Self::Number(text) => text,
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
        }
    }
}

/// Why a value does not fit: exception name and reason, as an error's `caused_by` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
}

impl Cause {
    pub(crate) fn new(kind: &'static str, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self::new("illegal_argument_exception", reason)
    }
}

type CoerceResult<T> = Result<T, Cause>;

fn bad_number(text: &str) -> String {
    if text.trim().is_empty() { "empty String".to_owned() } else { format!("For input string: \"{text}\"") }
}

fn not_numeric(flag: bool) -> Cause {
    let name = if flag { "VALUE_TRUE" } else { "VALUE_FALSE" };
    Cause::new(
        "json_parse_exception",
        format!("Current token ({name}) not numeric, can not use numeric value accessors"),
    )
}

/// Parses a double as Java does: surrounding blanks and a type suffix are let through.
fn java_double(text: &str) -> Option<f64> {
    let body = text.trim();
    let body = body.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(body);
    match body {
        "NaN" | "+NaN" | "-NaN" => return Some(f64::NAN),
        "Infinity" | "+Infinity" => return Some(f64::INFINITY),
        "-Infinity" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let starts_well =
        body.bytes().next().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.'));
    let has_digit = body.bytes().any(|b| b.is_ascii_digit());
    if starts_well && has_digit { body.parse().ok() } else { None }
}

/// Parses the digits of a JSON integer that fits 64 bits.
fn json_integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (negative, digits) = match bytes.first()? {
        b'-' => (true, &bytes[1..]),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 18 {
        return text.parse().ok();
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// The whole part of a decimal text without an exponent: exact where a double would round it.
fn exact_whole(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 38 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let value: i128 = whole.parse().ok()?;
    Some(if text.starts_with('-') { -value } else { value })
}

fn is_integer_text(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'))
}

/// Bounds, article and Java class of an integer type.
fn integer_type(field_type: &FieldType) -> (i64, i64, &'static str, &'static str) {
    match field_type {
        FieldType::Byte => (i64::from(i8::MIN), i64::from(i8::MAX), "a byte", "Integer"),
        FieldType::Short => (i64::from(i16::MIN), i64::from(i16::MAX), "a short", "Integer"),
        FieldType::Integer | FieldType::TokenCount => {
            (i64::from(i32::MIN), i64::from(i32::MAX), "an integer", "Integer")
        }
        _ => (i64::MIN, i64::MAX, "a long", "Long"),
    }
}

/// Coerces to byte, short, integer or long. `None` is an empty string, which counts as null.
pub(crate) fn integer(field_type: &FieldType, token: Token<'_>, coerce: bool) -> CoerceResult<Option<i64>> {
    let (least, greatest, article, class) = integer_type(field_type);
    let out_of_range = |text: &str| Cause::argument(format!("Value [{text}] is out of range for {article}"));
    let from_double = |value: f64, text: &str| -> CoerceResult<i64> {
        // The bounds of i64 are not doubles: compare below the next power of two.
        let beyond = !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
        let whole = value.trunc();
        if beyond || (whole as i64) < least || (whole as i64) > greatest {
            return Err(out_of_range(text));
        }
        Ok(whole as i64)
    };
    match token {
        Token::Number(text) => {
            if let Some(value) = json_integer(text) {
                return if value < least || value > greatest {
                    Err(out_of_range(text))
                } else {
                    Ok(Some(value))
                };
            }
            if is_integer_text(text) {
                let bounds = if class == "Long" {
                    "long (-9223372036854775808 - 9223372036854775807)"
                } else {
                    "int (-2147483648 - 2147483647)"
                };
                return Err(Cause::new(
                    "input_coercion_exception",
                    format!("Numeric value ({text}) out of range of {bounds}"),
                ));
            }
            let value: f64 = text.parse().map_err(|_| Cause::argument(bad_number(text)))?;
            if !coerce && value.fract() != 0.0 {
                return Err(Cause::argument(format!(
                    "{text} cannot be converted to {class} without data loss"
                )));
            }
            from_double(value, text).map(Some)
        }
        Token::Str(text) => {
            if !coerce {
                return Err(Cause::argument(format!("{class} value passed as String")));
            }
            if text.is_empty() {
                return Ok(None);
            }
            if let Some(value) = json_integer(text.strip_prefix('+').unwrap_or(text)) {
                return if value < least || value > greatest {
                    Err(out_of_range(text))
                } else {
                    Ok(Some(value))
                };
            }
            if let Some(whole) = exact_whole(text) {
                return match i64::try_from(whole) {
                    Ok(value) if (least..=greatest).contains(&value) => Ok(Some(value)),
                    _ => Err(out_of_range(text)),
                };
            }
            let kind = if class == "Long" { "illegal_argument_exception" } else { "number_format_exception" };
            let value = java_double(text).ok_or_else(|| Cause::new(kind, bad_number(text)))?;
            if value.is_nan() {
                return Err(Cause::new(kind, bad_number(text)));
            }
            from_double(value, text).map(Some)
        }
        Token::Bool(flag) => Err(not_numeric(flag)),
    }
}

/// Coerces to unsigned_long.
pub(crate) fn unsigned_long(token: Token<'_>, coerce: bool) -> CoerceResult<Option<u64>> {
    let text = match token {
        Token::Number(text) => text,
        Token::Str(_) if !coerce => return Err(Cause::argument("Long value passed as String")),
        Token::Str("") => return Ok(None),
        Token::Str(text) => text,
        Token::Bool(flag) => return Err(not_numeric(flag)),
    };
    if let Ok(value) = text.parse::<u64>() {
        return Ok(Some(value));
    }
    let out_of_range = || Cause::argument(format!("Value [{text}] is out of range for an unsigned long"));
    let value = java_double(text).filter(|v| !v.is_nan()).ok_or_else(|| Cause::argument(bad_number(text)))?;
    if is_integer_text(text) || value <= -1.0 || value >= 18_446_744_073_709_551_616.0 {
        return Err(out_of_range());
    }
    if !coerce && value.fract() != 0.0 {
        return Err(Cause::argument(format!("Value [{text}] has a decimal part")));
    }
    Ok(Some(value as u64))
}

/// Coerces to a floating-point type, rounded to its precision.
pub(crate) fn float(field_type: &FieldType, token: Token<'_>, coerce: bool) -> CoerceResult<Option<f64>> {
    let value = match token {
        Token::Number(text) => {
            text.parse::<f64>().map_err(|_| Cause::new("number_format_exception", bad_number(text)))?
        }
        Token::Str(text) => {
            if !coerce {
                let class = if matches!(field_type, FieldType::HalfFloat | FieldType::Float) {
                    "Float"
                } else {
                    "Double"
                };
                return Err(Cause::argument(format!("{class} value passed as String")));
            }
            if text.is_empty() {
                return Ok(None);
            }
            java_double(text).ok_or_else(|| Cause::new("number_format_exception", bad_number(text)))?
        }
        Token::Bool(flag) => return Err(not_numeric(flag)),
    };
    round_float(field_type, value).map(Some)
}

/// Rounds a double to the precision of a type, refusing what is not finite in it.
pub(crate) fn round_float(field_type: &FieldType, value: f64) -> CoerceResult<f64> {
    let rounded = match field_type {
        FieldType::HalfFloat => <Float16Type as ArrowPrimitiveType>::Native::from_f64(value).to_f64(),
        FieldType::Float => f64::from(value as f32),
        FieldType::ScaledFloat { scaling_factor } => {
            let scaled = value * scaling_factor;
            // Rounds half up, as Java's Math.round.
            let whole = (scaled + 0.5).floor();
            if whole.is_finite() { whole / scaling_factor } else { value }
        }
        _ => value,
    };
    if rounded.is_finite() {
        return Ok(rounded);
    }
    let shown = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    Err(Cause::argument(match field_type {
        FieldType::ScaledFloat { .. } => {
            format!("[scaled_float] only supports finite values, but got [{shown}]")
        }
        other => format!("[{}] supports only finite values, but got [{shown}]", other.name()),
    }))
}

/// Coerces to boolean.
pub(crate) fn boolean(token: Token<'_>) -> CoerceResult<bool> {
    match token {
        Token::Bool(flag) => Ok(flag),
        Token::Str("true") => Ok(true),
        Token::Str("false" | "") => Ok(false),
        Token::Str(text) => Err(Cause::argument(format!(
            "Failed to parse value [{text}] as only [true] or [false] are allowed."
        ))),
        Token::Number(text) => {
            let kind = if is_integer_text(text) { "INT" } else { "FLOAT" };
            Err(Cause::new(
                "json_parse_exception",
                format!("Current token (VALUE_NUMBER_{kind}) not of boolean type"),
            ))
        }
    }
}

/// Coerces to a date: milliseconds, or nanoseconds for date_nanos.
pub(crate) fn date(field_type: &FieldType, token: Token<'_>, format: &DateFormat) -> CoerceResult<i64> {
    let text = token.text();
    let instant = format.read(text, false).ok_or_else(|| {
        Cause::argument(format!("failed to parse date field [{text}] with format [{}]", format.as_str()))
    })?;
    to_column(field_type, instant, text)
}

/// Puts an instant into the resolution of a column.
pub(crate) fn to_column(field_type: &FieldType, instant: Instant, text: &str) -> CoerceResult<i64> {
    if *field_type == FieldType::DateNanos {
        instant.nanos().ok_or_else(|| {
            Cause::argument(if instant.0 < 0 {
                format!("date[{text}] is before the epoch in 1970 and cannot be stored in nanosecond resolution")
            } else {
                format!(
                    "date[{text}] is after 2262-04-11T23:47:16.854775807 and cannot be stored in nanosecond resolution"
                )
            })
        })
    } else {
        instant.millis().ok_or_else(|| Cause::argument(format!("date [{text}] is out of range")))
    }
}

/// Parses an address to 16 big-endian bytes, IPv4 mapped into IPv6.
pub(crate) fn ip(text: &str) -> CoerceResult<[u8; 16]> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => Ok(v4.to_ipv6_mapped().octets()),
        Ok(IpAddr::V6(v6)) => Ok(v6.octets()),
        Err(_) => Err(Cause::argument(format!("'{text}' is not an IP string literal."))),
    }
}

/// Parses an address or a CIDR block (`10.0.0.0/8`, `2001:db8::/32`) to the least and the greatest
/// address of it.
pub fn parse_ip_range(text: &str) -> Option<([u8; 16], [u8; 16])> {
    let Some((address, prefix)) = text.split_once('/') else {
        let address = ip(text).ok()?;
        return Some((address, address));
    };
    let address: IpAddr = address.parse().ok()?;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let prefix: u32 = prefix.parse().ok()?;
    let (bits, prefix) = match address {
        IpAddr::V4(v4) if prefix <= 32 => (u128::from(v4.to_ipv6_mapped()), prefix + 96),
        IpAddr::V6(v6) if prefix <= 128 => (u128::from(v6), prefix),
        _ => return None,
    };
    let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
    Some(((bits & !hosts).to_be_bytes(), (bits | hosts).to_be_bytes()))
}
