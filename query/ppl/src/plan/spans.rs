//! Buckets of numbers and of times.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::ast::{SpanLength, SpanUnit};

/// Returns the name of a unit, as the function `time_bucket` knows it.
pub(super) fn unit_name(unit: SpanUnit) -> &'static str {
    match unit {
        SpanUnit::Microsecond => "us",
        SpanUnit::Millisecond => "ms",
        SpanUnit::Centisecond => "cs",
        SpanUnit::Decisecond => "ds",
        SpanUnit::Second => "s",
        SpanUnit::Minute => "m",
        SpanUnit::Hour => "h",
        SpanUnit::Day => "d",
        SpanUnit::Week => "w",
        SpanUnit::Month => "M",
        SpanUnit::Quarter => "q",
        SpanUnit::Year => "y",
    }
}

/// Makes the start of the bucket that a field is in, and tells whether it is one of time.
pub(super) fn bucket(
    path: &str,
    length: &SpanLength,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<(ast::Expr, bool)> {
    let field = syntax::column(path);
    match length.unit {
        Some(unit) => {
            let count = whole(length)?;
            let ty = pipe.type_of(path, planner.sql)?;
            if !ty.is_temporal() && !ty.is_string() && ty != millrace_sql::relational::SqlType::Undefined {
                return Err(SqlError::Semantic(format!(
                    "Cannot apply the span [{}] to field [{path}] of type {}",
                    length.text,
                    super::type_name(ty)
                )));
            }
            Ok((time_bucket(field, count, unit), true))
        }
        None => {
            let bucket = number_bucket(field, length);
            let is_int = length.count.fract() == 0.0
                && pipe.type_of(path, planner.sql)? == millrace_sql::relational::SqlType::Integer;
            Ok((if is_int { syntax::cast(bucket, ast::DataType::Int(None)) } else { bucket }, false))
        }
    }
}

/// Makes the start of a bucket of time.
pub(super) fn time_bucket(field: ast::Expr, count: u64, unit: SpanUnit) -> ast::Expr {
    syntax::call("time_bucket", vec![field, syntax::number(count), syntax::string(unit_name(unit))])
}

/// Makes the start of a bucket of numbers.
pub(super) fn number_bucket(field: ast::Expr, length: &SpanLength) -> ast::Expr {
    let width = match length.count.fract() == 0.0 && length.count.abs() < 1e15 {
        true => syntax::number(length.count as i64),
        false => syntax::decimal(length.count),
    };
    syntax::call("histogram", vec![field, width])
}

/// Returns the number of units of a length of time.
pub(super) fn whole(length: &SpanLength) -> Result<u64> {
    match length.count >= 1.0 && length.count.fract() == 0.0 && length.count < 1e9 {
        true => Ok(length.count as u64),
        false => Err(SqlError::Semantic(format!("the span [{}] is no whole number of units", length.text))),
    }
}
