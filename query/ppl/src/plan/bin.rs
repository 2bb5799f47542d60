//! `bin`: values to buckets. Buckets of numbers are texts such as `10-20`; those of times are their starts.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::spans::{time_bucket, whole};
use super::{Planner, syntax, times};
use crate::ast::{SpanLength, SpanUnit, TimeModifierValue};
use crate::command::{AlignTime, BinCommand, BinOptions, BinSpan};
use crate::parser::time_of_text;

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
                let bucket = time_bucket(field.clone(), whole(length)?, *unit);
                match &options.aligntime {
                    None => Ok(bucket),
                    Some(align) => aligned(field, (length, *unit), align, planner),
                }
            }
            (Some(_), _) => refused(path),
            (None, _) if options.aligntime.is_some() => {
                Err(SqlError::Semantic("aligntime of bin needs a span of time".to_owned()))
            }
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
            let label = if length.count.fract() == 0.0 { "bin_label" } else { "decimal_bin_label" };
            Ok(syntax::call(label, vec![field, number(length.count)]))
        }
        Some(BinSpan::Log { coefficient, base }) => Ok(syntax::call(
            "log_bin_label",
            vec![field, syntax::decimal(*coefficient), syntax::decimal(*base)],
        )),
        None => {
            pipe.level(planner.sql)?;
            let (least, greatest) = match ty.is_string() {
                true => {
                    // The ends are those of numbers, not of texts.
                    let name = planner.fresh_name("number");
                    pipe.extend(&name, field.clone(), planner.sql)?;
                    pipe.hide(&name);
                    pipe.level(planner.sql)?;
                    let end = |function: &str| {
                        let call = syntax::call(function, vec![syntax::column(&name)]);
                        let window = syntax::window(Vec::new(), Vec::new(), Some(syntax::whole_frame()));
                        syntax::over(call, window)
                    };
                    (end("min"), end("max"))
                }
                false => (end("min"), end("max")),
            };
            let width = match (options.bins, &options.minspan) {
                (Some(bins), _) => {
                    // The values have their own range, whatever start and end say.
                    let args = vec![least, greatest, syntax::number(bins), syntax::null(), syntax::null()];
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
            // A range of its own has decimal bounds.
            let is_given = options.bins.is_some() || options.minspan.is_some();
            let is_bounded = options.start.is_some() || options.end.is_some();
            let label = if is_given || is_bounded { "bin_label" } else { "decimal_bin_label" };
            Ok(syntax::call(label, vec![field, width]))
        }
    }
}

/// Makes the bucket of a time whose buckets begin at another one than 1970.
fn aligned(
    field: ast::Expr,
    (length, unit): (&SpanLength, SpanUnit),
    align: &AlignTime,
    planner: &Planner<'_, '_, '_>,
) -> Result<ast::Expr> {
    let AlignTime::At(at) = align else {
        return Err(SqlError::Unsupported(
            "aligntime=earliest and aligntime=latest are not supported: give a time".to_owned(),
        ));
    };
    let text = match &at.expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => text.clone(),
            ast::Value::Number(seconds, _) => seconds.clone(),
            _ => return Err(SqlError::Semantic(format!("[{}] is no time", at.text))),
        },
        _ => return Err(SqlError::Semantic(format!("[{}] is no time", at.text))),
    };
    let value = match text.parse::<f64>() {
        Ok(_) => TimeModifierValue::Epoch(text),
        Err(_) => time_of_text(&text),
    };
    let origin = times::instant(&value, planner.sql.now_ms())?.and_utc().timestamp_micros();
    let args = vec![
        field,
        syntax::number(whole(length)?),
        syntax::string(super::spans::unit_name(unit)),
        syntax::number(origin),
    ];
    Ok(syntax::call("time_bucket_from", args))
}

fn refused<T>(path: &str) -> Result<T> {
    Err(SqlError::Semantic(format!("the field [{path}] has times: give a span with a unit, such as 1h")))
}
