//! Values of queries, in the form in which columns hold them.

use millrace_runtime::{Error, Result};
use millrace_time::Zone;
use serde_json::Value;

use super::coerce::{self, Cause, Token};
use super::date::Instant;
use super::leaf_spec::geo_value;
use super::tree::Mapping;
use super::{Child, Field, FieldType, Scalar, geo, java};

impl Mapping {
    /// Parses a query value (a JSON scalar) for a field into the column's own form: what a term
    /// or a range bound compares with. Dates honour the field's format and date math
    /// (`now` = `now_ms`); `round_up` fills missing parts upwards, as `lte` and `gt` bounds do.
    ///
    /// A decimal bound of an integer field becomes the integer that selects the same rows: rounded down
    /// with `round_up`, up without; a bound beyond 64 bits becomes the nearest that fits. Terms, which
    /// must not be rounded, go through [`Mapping::parse_term`].
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] with OpenSearch's text for a value that is none of the field's type.
    pub fn parse_value(&self, field: &Field, value: &Value, now_ms: i64, round_up: bool) -> Result<Scalar> {
        self.parse_value_in(field, value, now_ms, round_up, Zone::UTC)
    }

    /// Parses a query value as [`Mapping::parse_value`] does; dates that name no zone are local times of `zone`.
    ///
    /// # Errors
    /// As [`Mapping::parse_value`].
    pub fn parse_value_in(
        &self,
        field: &Field,
        value: &Value,
        now_ms: i64,
        round_up: bool,
        zone: Zone,
    ) -> Result<Scalar> {
        let text = java::to_string(value);
        let token = match value {
            Value::Bool(flag) => Token::Bool(*flag),
            Value::Number(_) => Token::Number(&text),
            Value::String(_) => Token::Str(&text),
            Value::Object(_) | Value::Array(_) if field.field_type == FieldType::GeoPoint => Token::Str(""),
            other => {
                return Err(Error::IllegalArgument(format!(
                    "field [{}] of type [{}] cannot be compared with [{}]",
                    field.path,
                    field.type_name(),
                    java::to_string(other)
                )));
            }
        };
        let argument = |cause: Cause| Error::IllegalArgument(cause.reason);
        let value_type = match &field.field_type {
            FieldType::Range(range_type) => &range_type.value_type(),
            other => other,
        };
        match value_type {
            FieldType::Text
            | FieldType::MatchOnlyText
            | FieldType::Keyword
            | FieldType::Wildcard
            | FieldType::ConstantKeyword
            | FieldType::FlatObject
            | FieldType::RankFeature
            | FieldType::RankFeatures
            | FieldType::Completion
            | FieldType::SearchAsYouType(_)
            | FieldType::Range(_)
            | FieldType::Binary => {
                let text = token.text();
                Ok(Scalar::Str(match &field.normalizer {
                    Some(normalizer) => {
                        self.analyzers().normalize(normalizer, text).unwrap_or_else(|| text.to_owned())
                    }
                    None => text.to_owned(),
                }))
            }
            FieldType::Byte
            | FieldType::Short
            | FieldType::Integer
            | FieldType::Long
            | FieldType::TokenCount => integer_bound(token, round_up).map(Scalar::I64).map_err(argument),
            FieldType::UnsignedLong => unsigned_bound(token, round_up).map(Scalar::U64).map_err(argument),
            FieldType::HalfFloat | FieldType::Float | FieldType::Double | FieldType::ScaledFloat { .. } => {
                // Bounds keep their precision: a float column is compared as doubles.
                let kind = match value_type {
                    FieldType::HalfFloat | FieldType::Float => &FieldType::Double,
                    other => other,
                };
                let value = coerce::float(kind, token, true).map_err(argument)?;
                value.map(Scalar::F64).ok_or_else(|| Error::IllegalArgument("empty String".to_owned()))
            }
            // A document's empty text is false; a query's is an error, as in OpenSearch.
            FieldType::Boolean if token == Token::Str("") => Err(Error::IllegalArgument(
                "Can't parse boolean value [], expected [true] or [false]".to_owned(),
            )),
            FieldType::Boolean => coerce::boolean(token).map(Scalar::Bool).map_err(argument),
            FieldType::Date | FieldType::DateNanos => {
                let Some(Child::Leaf(at)) = self.lookup(&field.path) else {
                    return Err(Error::Internal(format!("field [{}] is not of this mapping", field.path)));
                };
                let Some(format) = &self.leaf(at).rules.format else {
                    return Err(Error::Internal(format!("date field [{}] has no format", field.path)));
                };
                let text = token.text();
                // Numbers are milliseconds whatever the format, as OpenSearch answers sort values with them.
                let instant = match format.parse_math_in(text, Instant::from_millis(now_ms), round_up, zone) {
                    Ok(instant) => instant,
                    Err(reason) => match (token, text.parse::<i64>()) {
                        (Token::Number(_), Ok(millis)) => Instant::from_millis(millis),
                        _ => return Err(Error::IllegalArgument(reason)),
                    },
                };
                let clamped = match field.field_type {
                    FieldType::DateNanos => instant.0.clamp(0, i128::from(i64::MAX)) as i64,
                    _ => instant.0.div_euclid(1_000_000).clamp(i128::from(i64::MIN), i128::from(i64::MAX))
                        as i64,
                };
                Ok(Scalar::I64(clamped))
            }
            FieldType::Ip => coerce::ip(token.text()).map(Scalar::Ip).map_err(argument),
            FieldType::GeoPoint => {
                let point = geo_value(value).map_err(argument)?;
                geo::check(point, &field.path).map_err(argument)?;
                Ok(Scalar::GeoPoint { lat: point[0], lon: point[1] })
            }
        }
    }

    /// Parses the value of a term query: like [`Mapping::parse_value`], but `None` where no row can have
    /// the value (a decimal in an integer field, a number beyond the type).
    ///
    /// # Errors
    /// As [`Mapping::parse_value`].
    pub fn parse_term(&self, field: &Field, value: &Value, now_ms: i64) -> Result<Option<Scalar>> {
        let down = self.parse_value(field, value, now_ms, false)?;
        match (&field.field_type, &down) {
            (FieldType::HalfFloat | FieldType::Float, Scalar::F64(value)) => {
                Ok(coerce::round_float(&field.field_type, *value).ok().map(Scalar::F64))
            }
            (_, Scalar::I64(integer))
                if !matches!(field.field_type, FieldType::Date | FieldType::DateNanos) =>
            {
                let (least, greatest) = match field.field_type {
                    FieldType::Byte => (i64::from(i8::MIN), i64::from(i8::MAX)),
                    FieldType::Short => (i64::from(i16::MIN), i64::from(i16::MAX)),
                    FieldType::Integer | FieldType::TokenCount => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    _ => (i64::MIN, i64::MAX),
                };
                let fits = (least..=greatest).contains(integer)
                    && self.parse_value(field, value, now_ms, true)? == down
                    && !is_beyond(value, i64::MIN as f64, 9_223_372_036_854_775_808.0);
                Ok(fits.then_some(down))
            }
            (_, Scalar::U64(_)) => {
                let fits = self.parse_value(field, value, now_ms, true)? == down
                    && !is_beyond(value, 0.0, 18_446_744_073_709_551_616.0);
                Ok(fits.then_some(down))
            }
            _ => Ok(Some(down)),
        }
    }
}

/// Returns whether a number given as a float or a string lies outside of `[least, beyond)`.
fn is_beyond(value: &Value, least: f64, beyond: f64) -> bool {
    let number = match value {
        // Exact integers need no detour over floats, which round.
        Value::Number(number) if number.is_u64() && beyond > 1e19 => return false,
        Value::Number(number) if number.is_i64() && least < 0.0 => return false,
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.is_some_and(|number| number < least || number >= beyond)
}

fn decimal(token: Token<'_>) -> std::result::Result<f64, Cause> {
    coerce::float(&FieldType::Double, token, true)?.ok_or_else(|| Cause::argument("empty String"))
}

fn rounded(value: f64, round_up: bool) -> f64 {
    if round_up { value.floor() } else { value.ceil() }
}

fn integer_bound(token: Token<'_>, round_up: bool) -> std::result::Result<i64, Cause> {
    if let Ok(value) = token.text().parse::<i64>() {
        return Ok(value);
    }
    // A cast from float to integer saturates.
    decimal(token).map(|value| rounded(value, round_up) as i64)
}

fn unsigned_bound(token: Token<'_>, round_up: bool) -> std::result::Result<u64, Cause> {
    if let Ok(value) = token.text().parse::<u64>() {
        return Ok(value);
    }
    decimal(token).map(|value| rounded(value, round_up) as u64)
}
