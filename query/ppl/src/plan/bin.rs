//! `bin`: values to buckets. Buckets of numbers are texts such as `10-20`; those of times are their starts.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::spans::{time_bucket, whole};
use super::{Planner, syntax};
use crate::ast::SpanLength;
use crate::command::{BinCommand, BinOptions, BinSpan};

/// Plans the command.
pub(super) fn plan(command: &BinCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let path = &command.field.path;
    let bucket = bucket(path, &command.options, &mut pipe, planner)?;
    let target = command.alias.as_ref().map_or(path, |alias| &alias.path);
    super::rename::check_name(target)?;
    match is_windowed(&command.options) {
        true => pipe.extend_window(target, bucket, planner.sql)?,
        false => pipe.extend(target, bucket, planner.sql)?,
    }
    Ok(pipe)
}

/// Returns whether buckets depend on all rows.
fn is_windowed(options: &BinOptions) -> bool {
    options.span.is_none()
}

/// Makes the bucket that a field is in.
pub(super) fn bucket(
    path: &str,
    options: &BinOptions,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<ast::Expr> {
    if options.aligntime.is_some() {
        return Err(SqlError::Unsupported("aligntime of bin is not supported".to_owned()));
    }
    let field = syntax::column(path);
    let ty = pipe.type_of(path, planner.sql)?;
    let end = |name: &str| {
        let call = syntax::call(name, vec![syntax::column(path)]);
        syntax::over(call, syntax::window(Vec::new(), Vec::new(), Some(syntax::whole_frame())))
    };
    if ty.is_temporal() {
        return match (&options.span, options.bins) {
            (Some(BinSpan::Length(SpanLength { unit: Some(unit), .. })), _) => {
                let Some(BinSpan::Length(length)) = &options.span else { return refused(path) };
                Ok(time_bucket(field, whole(length)?, *unit))
            }
            (Some(_), _) => refused(path),
            (None, bins) => {
                if is_windowed(options) {
                    pipe.level(planner.sql)?;
                }
                let bins = syntax::number(bins.unwrap_or(100));
                let width = syntax::call("time_bin_width", vec![end("min"), end("max"), bins]);
                Ok(syntax::call("time_bin", vec![field, width]))
            }
        };
    }
    let is_number = ty.is_number() || ty.is_string() || ty == millrace_sql::relational::SqlType::Undefined;
    if !is_number {
        return Err(SqlError::Semantic(format!(
            "Cannot apply binning: field '{path}' is non-numeric and not time-related, expected numeric or time-related type"
        )));
    }
    let field = match ty.is_string() {
        true => syntax::call("tonumber", vec![field]),
        false => field,
    };
    let number = |number: f64| match number.fract() == 0.0 && number.abs() < 1e15 {
        true if number < 0.0 => syntax::decimal(number),
        true => syntax::number(number as i64),
        false => syntax::decimal(number),
    };
    let limit = |limit: Option<f64>| limit.map_or_else(syntax::null, syntax::decimal);
    match &options.span {
        Some(BinSpan::Length(length)) => {
            if let Some(unit) = length.unit {
                let _ = unit;
                return Err(SqlError::Semantic(format!(
                    "the span [{}] is one of time, but the field [{path}] has numbers",
                    length.text
                )));
            }
            Ok(syntax::call("bin_label", vec![field, number(length.count)]))
        }
        Some(BinSpan::Log { coefficient, base }) => Ok(syntax::call(
            "log_bin_label",
            vec![field, syntax::decimal(*coefficient), syntax::decimal(*base)],
        )),
        None => {
            pipe.level(planner.sql)?;
            let (least, greatest) = match ty.is_string() {
                true => {
                    return Err(SqlError::Unsupported(format!(
                        "bins of the text field [{path}] are not supported; give a span"
                    )));
                }
                false => (end("min"), end("max")),
            };
            let width = match (options.bins, &options.minspan) {
                (Some(bins), _) => {
                    let args =
                        vec![least, greatest, syntax::number(bins), limit(options.start), limit(options.end)];
                    syntax::call("bin_width", args)
                }
                (None, Some(minspan)) => {
                    syntax::call("minspan_width", vec![least, greatest, syntax::decimal(minspan.count)])
                }
                (None, None) => {
                    let args = vec![least, greatest, limit(options.start), limit(options.end)];
                    syntax::call("range_width", args)
                }
            };
            Ok(syntax::call("bin_label", vec![field, width]))
        }
    }
}

fn refused<T>(path: &str) -> Result<T> {
    Err(SqlError::Semantic(format!("the field [{path}] has times: give a span with a unit, such as 1h")))
}
