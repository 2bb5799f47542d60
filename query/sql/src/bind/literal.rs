//! Values that statements spell out: their types, and their form in another type.

use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::{Bound, Literal};
use crate::error::{Result, SqlError};
use crate::functions::time;
use crate::types::{NANOS, Resolution, SqlType, TIMESTAMP};

/// Binds a literal.
pub(super) fn bound(literal: Literal) -> Bound {
    let (value, ty) = match &literal {
        Literal::Null => (ScalarValue::Null, SqlType::Undefined),
        Literal::Bool(flag) => (ScalarValue::Boolean(Some(*flag)), SqlType::Boolean),
        Literal::Int(number) => match i32::try_from(*number) {
            Ok(number) => (ScalarValue::Int32(Some(number)), SqlType::Integer),
            Err(_) => (ScalarValue::Int64(Some(*number)), SqlType::Long),
        },
        Literal::UInt(number) => (ScalarValue::UInt64(Some(*number)), SqlType::UnsignedLong),
        Literal::Float(number) => (ScalarValue::Float64(Some(*number)), SqlType::Double),
        Literal::Str(text) => (ScalarValue::Utf8View(Some(text.clone())), SqlType::Keyword),
        Literal::Time(micros) => {
            (ScalarValue::Time64Nanosecond(Some(time::nanos_of_day(*micros))), SqlType::Time)
        }
        Literal::Timestamp(nanos) => match i64::try_from(*nanos) {
            Ok(nanos) if nanos % 1_000 != 0 => (ScalarValue::TimestampNanosecond(Some(nanos), None), NANOS),
            _ => (ScalarValue::TimestampMicrosecond(Some(time::whole_micros(*nanos)), None), TIMESTAMP),
        },
    };
    Bound { literal: Some(literal), ..Bound::new(Expr::Literal(value, None), ty) }
}

/// Reads a literal of the syntax tree.
pub(super) fn of_value(value: &ast::Value) -> Result<Literal> {
    Ok(match value {
        ast::Value::Number(text, _) => number(text)?,
        ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => {
            Literal::Str(text.clone())
        }
        ast::Value::Boolean(flag) => Literal::Bool(*flag),
        ast::Value::Null => Literal::Null,
        other => return Err(SqlError::Syntax(format!("[{other}] is no literal of this dialect"))),
    })
}

/// Reads a number: an integer where it is one that fits.
fn number(text: &str) -> Result<Literal> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(Literal::Int(number));
    }
    if let Ok(number) = text.parse::<u64>() {
        return Ok(Literal::UInt(number));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Literal::Float(number)),
        _ => Err(SqlError::Syntax(format!("[{text}] is no number"))),
    }
}

/// Converts a literal at planning where that is plain.
pub(super) fn converted(literal: &Literal, ty: SqlType) -> Option<ScalarValue> {
    Some(match (literal, ty) {
        (Literal::Null, ty) => ScalarValue::try_from(&ty.arrow()).ok()?,
        (Literal::Int(number), SqlType::Byte) => ScalarValue::Int8(Some(i8::try_from(*number).ok()?)),
        (Literal::Int(number), SqlType::Short) => ScalarValue::Int16(Some(i16::try_from(*number).ok()?)),
        (Literal::Int(number), SqlType::Integer) => ScalarValue::Int32(Some(i32::try_from(*number).ok()?)),
        (Literal::Int(number), SqlType::Long) => ScalarValue::Int64(Some(*number)),
        (Literal::Int(number), SqlType::Double) => ScalarValue::Float64(Some(*number as f64)),
        (Literal::UInt(number), SqlType::Double) => ScalarValue::Float64(Some(*number as f64)),
        (Literal::Float(number), SqlType::Double) => ScalarValue::Float64(Some(*number)),
        (Literal::Str(text), SqlType::Timestamp(Resolution::Micros)) => {
            ScalarValue::TimestampMicrosecond(Some(time::timestamp(text)?), None)
        }
        (Literal::Str(text), NANOS) => {
            ScalarValue::TimestampNanosecond(Some(i64::try_from(time::instant(text)?).ok()?), None)
        }
        (Literal::Timestamp(nanos), SqlType::Timestamp(resolution)) => timestamp(*nanos, resolution)?,
        _ => return None,
    })
}

/// Makes a timestamp of nanoseconds since 1970; `None` where the resolution does not hold it.
pub(super) fn timestamp(nanos: i128, resolution: Resolution) -> Option<ScalarValue> {
    let unit = resolution.nanos();
    let whole = i64::try_from(nanos / unit).ok().filter(|_| nanos % unit == 0);
    Some(match resolution {
        Resolution::Millis => ScalarValue::TimestampMillisecond(Some(whole?), None),
        Resolution::Micros => ScalarValue::TimestampMicrosecond(Some(whole?), None),
        Resolution::Nanos => ScalarValue::TimestampNanosecond(Some(whole?), None),
    })
}

/// Returns the nanoseconds since 1970 that a literal spells.
pub(super) fn instant(literal: &Literal) -> Option<i128> {
    match literal {
        Literal::Timestamp(nanos) => Some(*nanos),
        Literal::Str(text) => time::instant(text),
        _ => None,
    }
}

/// Returns whether a text is a value of another type, as a conversion reads it.
pub(super) fn spells(text: &str, ty: SqlType) -> bool {
    match ty {
        SqlType::Boolean => ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)),
        SqlType::Date => time::date(text).is_some(),
        SqlType::Time => time::time(text).is_some(),
        SqlType::Timestamp(_) => time::timestamp(text).is_some(),
        ty if ty.is_number() => match text.trim().parse::<f64>() {
            Ok(number) => number.is_finite() && (ty != SqlType::UnsignedLong || number >= 0.0),
            Err(_) => false,
        },
        _ => true,
    }
}

/// Binds `INTERVAL value unit`.
pub(super) fn interval(count: &Bound, unit: &str) -> Result<Bound> {
    let Some(Literal::Int(count)) = &count.literal else {
        return Err(SqlError::Semantic("the value of an interval has to be an integer".to_owned()));
    };
    let value = time::interval(*count, unit)
        .ok_or_else(|| SqlError::Semantic(format!("interval unit [{unit}] is not supported")))?;
    let value = IntervalMonthDayNano::new(value.months, value.days, value.nanos);
    let expr = Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), None);
    Ok(Bound::new(expr, SqlType::Interval))
}
