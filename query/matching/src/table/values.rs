//! Query values as the columns of a field's type hold them.
//!
//! Numbers are read here, with OpenSearch's rules for fractions and overflow; dates, addresses,
//! booleans and strings by the mapping.

use millrace_dsl::json::{not_a_number, text, token};
use millrace_dsl::query::{Bound, RangeQuery};
use millrace_mapping::{ColumnKind, Field, FieldType, Mapping, RangeType, Scalar};
use millrace_scoring::operands::ExactValue;
use millrace_segment::ValueRange;
use millrace_time::Zone;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

/// A number of a query: whole, or with a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i128),
    Fraction(f64),
}

fn number(value: &Value) -> Result<Number> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => return Err(not_a_number(&text(other).unwrap_or_else(|| token(other).to_owned()))),
    };
    if let Ok(whole) = text.parse::<i128>() {
        return Ok(Number::Whole(whole));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(if number.fract() == 0.0 && number.abs() < 1e30 {
            Number::Whole(number as i128)
        } else {
            Number::Fraction(number)
        }),
        _ => Err(not_a_number(&text)),
    }
}

fn float(value: &Value) -> Result<f64> {
    Ok(match number(value)? {
        Number::Whole(whole) => whole as f64,
        Number::Fraction(fraction) => fraction,
    })
}

/// Least and greatest value of a whole-number type, and its name with an article.
fn limits(field: &Field) -> Option<(i128, i128, &'static str)> {
    Some(match field.field_type {
        FieldType::Byte => (i8::MIN.into(), i8::MAX.into(), "a byte"),
        FieldType::Short => (i16::MIN.into(), i16::MAX.into(), "a short"),
        FieldType::Integer | FieldType::TokenCount | FieldType::Range(RangeType::Integer) => {
            (i32::MIN.into(), i32::MAX.into(), "an integer")
        }
        FieldType::Long | FieldType::Range(RangeType::Long) => (i64::MIN.into(), i64::MAX.into(), "a long"),
        FieldType::UnsignedLong => (0, u64::MAX.into(), "an unsigned long"),
        _ => return None,
    })
}

/// Checks a number of a query. Bytes and shorts are asked for as integers: what is beyond them alone is more or less than all.
fn in_limits(field: &Field, whole: i128, value: &Value) -> Result<i128> {
    let limits = match field.field_type {
        FieldType::Byte | FieldType::Short => Some((i32::MIN.into(), i32::MAX.into(), "an integer")),
        _ => limits(field),
    };
    match limits {
        Some((least, greatest, name)) if whole < least || whole > greatest => Err(Error::IllegalArgument(
            format!("Value [{}] is out of range for {name}", text(value).unwrap_or_default()),
        )),
        _ => Ok(whole),
    }
}

fn whole_range(field: &Field, from: i128, to: i128) -> Option<ValueRange> {
    if from > to {
        return None;
    }
    Some(match field.field_type {
        FieldType::UnsignedLong => ValueRange::U64(from as u64, to as u64),
        _ => ValueRange::I64(from as i64, to as i64),
    })
}

/// Reads an exact value of a numeric field; `None` where no value of the type can equal it.
pub(crate) fn exact_number(field: &Field, value: &Value) -> Result<Option<ExactValue>> {
    if let Some((least, greatest, _)) = limits(field) {
        let Number::Whole(whole) = number(value)? else { return Ok(None) };
        let whole = in_limits(field, whole, value)?;
        if whole < least || whole > greatest {
            return Ok(None);
        }
        let value = match field.field_type {
            FieldType::UnsignedLong => Scalar::U64(whole as u64),
            _ => Scalar::I64(whole as i64),
        };
        return Ok(Some(ExactValue { value, range: whole_range(field, whole, whole) }));
    }
    let number = round_float(field, float(value)?);
    Ok(Some(ExactValue { value: Scalar::F64(number), range: Some(ValueRange::F64(number, number)) }))
}

/// Rounds to what a column of the type can hold.
fn round_float(field: &Field, number: f64) -> f64 {
    match &field.field_type {
        FieldType::Float => f64::from(number as f32),
        FieldType::HalfFloat => f64::from(round_half(number as f32)),
        FieldType::ScaledFloat { scaling_factor } => (number * scaling_factor).round() / scaling_factor,
        _ => number,
    }
}

/// Rounds to the nearest half-precision number, ties to even.
fn round_half(number: f32) -> f32 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    // Ten bits of fraction; below 2^-14 numbers are multiples of 2^-24.
    let exponent = ((number.to_bits() >> 23) & 0xff) as i32 - 127;
    let step = (f64::from(exponent.max(-14)) - 10.0).exp2();
    let rounded = ((f64::from(number) / step).round_ties_even() * step) as f32;
    if rounded.abs() > 65_504.0 { f32::INFINITY.copysign(number) } else { rounded }
}

/// Reads a range over a numeric field; `None` where it is empty.
pub(crate) fn number_range(field: &Field, query: &RangeQuery) -> Result<Option<ValueRange>> {
    if let Some((least, greatest, _)) = limits(field) {
        let from = match &query.from {
            None => least,
            Some(bound) => match number(&bound.value)? {
                Number::Whole(whole) => in_limits(field, whole, &bound.value)? + i128::from(!bound.included),
                Number::Fraction(fraction) => in_limits(field, fraction.ceil() as i128, &bound.value)?,
            },
        };
        let to = match &query.to {
            None => greatest,
            Some(bound) => match number(&bound.value)? {
                Number::Whole(whole) => in_limits(field, whole, &bound.value)? - i128::from(!bound.included),
                Number::Fraction(fraction) => in_limits(field, fraction.floor() as i128, &bound.value)?,
            },
        };
        return Ok(whole_range(field, from.max(least), to.min(greatest)));
    }
    let single = field.column_kind() == ColumnKind::F32;
    let edge = |bound: &Bound, up: bool| -> Result<f64> {
        let number = float(&bound.value)?;
        let number = if single { f64::from(number as f32) } else { number };
        if bound.included {
            return Ok(number);
        }
        Ok(match (single, up) {
            (true, true) => f64::from((number as f32).next_up()),
            (true, false) => f64::from((number as f32).next_down()),
            (false, true) => number.next_up(),
            (false, false) => number.next_down(),
        })
    };
    let from = query.from.as_ref().map_or(Ok(f64::NEG_INFINITY), |bound| edge(bound, true))?;
    let to = query.to.as_ref().map_or(Ok(f64::INFINITY), |bound| edge(bound, false))?;
    Ok((from <= to).then_some(ValueRange::F64(from, to)))
}

/// Reads a value of a query over a field of ranges of numbers or addresses.
pub(crate) fn range_value(
    mapping: &Mapping,
    field: &Field,
    range_type: RangeType,
    value: &Value,
    now_ms: i64,
) -> Result<Scalar> {
    match range_type {
        RangeType::Ip => ip(mapping, field, value, now_ms).map(Scalar::Ip),
        RangeType::Integer | RangeType::Long | RangeType::Date => match number(value)? {
            Number::Whole(whole) => Ok(Scalar::I64(in_limits(field, whole, value)? as i64)),
            Number::Fraction(fraction) => {
                let outwards = if fraction < 0.0 { fraction.floor() } else { fraction.ceil() };
                in_limits(field, outwards as i128, value)?;
                let given = text(value).unwrap_or_default();
                Err(Error::IllegalArgument(format!("Value [{given}] has a decimal part")))
            }
        },
        RangeType::Double => finite("double", infinite(value).map_or_else(|| float(value), Ok)?),
        RangeType::Float => {
            let single = infinite(value).map_or_else(|| float(value), Ok)? as f32;
            finite("float", single.into())
        }
    }
}

/// Reads a number that is not finite: one beyond all doubles, or `Infinity` or `NaN` by its name.
fn infinite(value: &Value) -> Option<f64> {
    let given = text(value).filter(|_| value.is_string() || value.is_number())?;
    let given = given.trim();
    let named = ["Infinity", "NaN"].contains(&given.trim_start_matches(['+', '-']));
    let number = given.parse::<f64>().ok().filter(|number| !number.is_finite())?;
    (named || given.bytes().any(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Refuses a number that is not finite, in the words of documents.
fn finite(type_name: &str, number: f64) -> Result<Scalar> {
    if number.is_finite() {
        return Ok(Scalar::F64(number));
    }
    let shown = match number.is_nan() {
        true => "NaN",
        false if number > 0.0 => "Infinity",
        false => "-Infinity",
    };
    Err(Error::IllegalArgument(format!("[{type_name}] supports only finite values, but got [{shown}]")))
}

/// Reads a range over a date field; `None` where it is empty. `format` and `time_zone` of the
/// query stand in for the field's own.
pub(crate) fn date_range(
    mapping: &Mapping,
    field: &Field,
    query: &RangeQuery,
    now_ms: i64,
) -> Result<Option<ValueRange>> {
    let (from, to) = date_bounds(mapping, field, query, now_ms)?;
    let included = |bound: &Option<Bound>| bound.as_ref().is_none_or(|bound| bound.included);
    let from = from.map_or(Some(i64::MIN), |from| from.checked_add(i64::from(!included(&query.from))));
    let to = to.map_or(Some(i64::MAX), |to| to.checked_sub(i64::from(!included(&query.to))));
    Ok(match (from, to) {
        (Some(from), Some(to)) if from <= to => Some(ValueRange::I64(from, to)),
        _ => None,
    })
}

/// Reads the bounds of a range of dates, rounded away from what they exclude.
pub(crate) fn date_bounds(
    mapping: &Mapping,
    field: &Field,
    query: &RangeQuery,
    now_ms: i64,
) -> Result<(Option<i64>, Option<i64>)> {
    let zone = query.time_zone.as_deref().map(zone).transpose()?;
    let formatted = match &query.format {
        None => None,
        Some(format) => Some(reformatted(field, format)?),
    };
    let (mapping, field) = match &formatted {
        None => (mapping, field),
        Some(mapping) => {
            let field = mapping
                .field(REFORMATTED)
                .ok_or_else(|| Error::Execution("a mapping of one date field lost it".to_owned()))?;
            (mapping, field)
        }
    };
    let zone = zone.unwrap_or(Zone::UTC);
    let edge = |bound: &Bound, round_up: bool| -> Result<i64> {
        date_value(mapping, field, &bound.value, now_ms, round_up, zone)
    };
    Ok((
        query.from.as_ref().map(|bound| edge(bound, !bound.included)).transpose()?,
        query.to.as_ref().map(|bound| edge(bound, bound.included)).transpose()?,
    ))
}

/// Reads one exact date: the span that the text leaves open, such as a whole day.
pub(crate) fn date_span(mapping: &Mapping, field: &Field, value: &Value, now_ms: i64) -> Result<(i64, i64)> {
    let from = date_value(mapping, field, value, now_ms, false, Zone::UTC)?;
    let to = date_value(mapping, field, value, now_ms, true, Zone::UTC)?;
    Ok((from, to.max(from)))
}

fn date_value(
    mapping: &Mapping,
    field: &Field,
    value: &Value,
    now_ms: i64,
    round_up: bool,
    zone: Zone,
) -> Result<i64> {
    match mapping.parse_value_in(field, value, now_ms, round_up, zone)? {
        Scalar::I64(instant) => Ok(instant),
        other => Err(Error::Execution(format!("date [{}] parsed as {other:?}", field.path))),
    }
}

/// Name of the field of [`reformatted`].
pub(crate) const REFORMATTED: &str = "date";

/// Makes a mapping with one date field of the given format.
pub(crate) fn reformatted(field: &Field, format: &str) -> Result<Mapping> {
    let body = json!({"properties": {REFORMATTED: {"type": field.type_name(), "format": format}}});
    Ok(Mapping::parse(&body, &serde_json::Map::new())?)
}

/// Reads a time zone.
fn zone(text: &str) -> Result<Zone> {
    Zone::parse(text).ok_or_else(|| {
        Error::IllegalArgument(format!(
            "time zone [{text}] is not known, give a name such as [Europe/Berlin] or an offset such as [+01:00]"
        ))
    })
}

/// Refuses a time zone that is not known.
pub(crate) fn known_zone(text: &str) -> Result<()> {
    zone(text).map(|_| ())
}

/// Reads an exact address, or a network as a range.
pub(crate) fn ip_value(
    mapping: &Mapping,
    field: &Field,
    value: &Value,
    now_ms: i64,
) -> Result<(Option<Scalar>, ValueRange)> {
    let given = text(value).unwrap_or_default();
    let Some((address, bits)) = given.split_once('/') else {
        let address = ip(mapping, field, value, now_ms)?;
        return Ok((Some(Scalar::Ip(address)), ValueRange::Ip(address, address)));
    };
    let bad = || {
        Error::IllegalArgument(format!(
            "illegal prefix length in [{given}]. Must be 0-32 for IPv4 ranges, 0-128 for IPv6 ranges"
        ))
    };
    let bits: u32 = bits.parse().map_err(|_| bad())?;
    let v4 = address.contains('.') && !address.contains(':');
    if bits > if v4 { 32 } else { 128 } {
        return Err(bad());
    }
    let base = u128::from_be_bytes(ip(mapping, field, &Value::String(address.to_owned()), now_ms)?);
    let fixed = if v4 { bits + 96 } else { bits };
    let mask = if fixed == 0 { 0 } else { u128::MAX << (128 - fixed) };
    let from = base & mask;
    Ok((None, ValueRange::Ip(from.to_be_bytes(), (from | !mask).to_be_bytes())))
}

fn ip(mapping: &Mapping, field: &Field, value: &Value, now_ms: i64) -> Result<[u8; 16]> {
    match mapping.parse_value(field, value, now_ms, false) {
        Ok(Scalar::Ip(address)) => Ok(address),
        _ => Err(Error::IllegalArgument(format!(
            "'{}' is not an IP string literal.",
            text(value).unwrap_or_default()
        ))),
    }
}

/// Reads a range over an address field; `None` where it is empty.
pub(crate) fn ip_range(
    mapping: &Mapping,
    field: &Field,
    query: &RangeQuery,
    now_ms: i64,
) -> Result<Option<([u8; 16], [u8; 16])>> {
    let edge = |bound: &Bound| -> Result<u128> {
        Ok(u128::from_be_bytes(ip(mapping, field, &bound.value, now_ms)?))
    };
    let from = match &query.from {
        None => Some(0),
        Some(bound) if bound.included => Some(edge(bound)?),
        Some(bound) => edge(bound)?.checked_add(1),
    };
    let to = match &query.to {
        None => Some(u128::MAX),
        Some(bound) if bound.included => Some(edge(bound)?),
        Some(bound) => edge(bound)?.checked_sub(1),
    };
    Ok(match (from, to) {
        (Some(from), Some(to)) if from <= to => Some((from.to_be_bytes(), to.to_be_bytes())),
        _ => None,
    })
}

/// Reads a boolean as a query writes it.
pub(crate) fn boolean(value: &Value) -> Result<bool> {
    match text(value).as_deref() {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        other => Err(Error::IllegalArgument(format!(
            "Can't parse boolean value [{}], expected [true] or [false]",
            other.unwrap_or_default()
        ))),
    }
}

/// Reads a string of a keyword field, through its normalizer.
pub(crate) fn keyword(mapping: &Mapping, field: &Field, value: &Value) -> Result<String> {
    let given = text(value).unwrap_or_default();
    match &field.normalizer {
        None => Ok(given),
        Some(normalizer) => mapping.analyzers().normalize(normalizer, &given).ok_or_else(|| {
            Error::IllegalArgument(format!("normalizer [{normalizer}] not found for field [{}]", field.path))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_numbers() {
        assert!(zone("Europe/Berlin").is_ok() && zone("Mars/Olympus").is_err());
        assert_eq!(number(&json!("5.5")).unwrap(), Number::Fraction(5.5));
        assert_eq!(number(&json!(5.0)).unwrap(), Number::Whole(5));
        insta::assert_snapshot!(number(&json!("abc")).unwrap_err(), @r#"For input string: "abc""#);
    }

    #[test]
    fn halves_round_to_even() {
        assert_eq!(round_half(1.0), 1.0);
        assert_eq!(round_half(2049.0), 2048.0);
        assert_eq!(round_half(2051.0), 2052.0);
        assert_eq!(round_half(70_000.0), f32::INFINITY);
        assert_eq!(round_half(0.1), 0.099_975_586);
    }
}
