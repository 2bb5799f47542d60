//! The functions of SQL, each with OpenSearch's semantics. The registry starts empty: what is not here is an
//! unknown function, whatever DataFusion has of that name.
//!
//! [`math`], [`text`] and [`dates`] list them by name. A [`Definition`] says which types a function takes, which it
//! returns, and computes one row ([`row`]).

pub(crate) mod address;
pub(crate) mod brain;
pub(crate) mod buckets;
mod conversions;
mod dates;
mod digests;
pub(crate) mod distinct;
mod graph;
mod integers;
mod json;
mod json_changes;
mod kernels;
pub(crate) mod lambdas;
pub(crate) mod lists;
mod log_patterns;
mod math;
mod patterns;
mod primitive_kernels;
pub(crate) mod row;
pub(crate) mod search_aggregation;
pub(crate) mod sliding;
mod str_to_date;
mod text;
pub(crate) mod time;
pub(crate) mod values;

use std::cmp::Ordering;

use datafusion::logical_expr::{Expr, Operator};

pub(crate) use self::integers::{checked, integer_operation, sum_as_integer, summed};
use self::kernels::Kernel;
use self::row::{Context, Eval, Val};
use super::bind::{Bound, Literal};
use super::error::{Result, SqlError};
use super::types::{SqlType, TIMESTAMP};

/// The types that a function takes for arguments of some types, and the type that it returns; `None` where it
/// does not take them.
type Rule = fn(&[SqlType]) -> Option<(Vec<SqlType>, SqlType)>;

/// A function.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    rule: Rule,
    eval: Eval,
    /// `true` if a null argument makes the result null.
    strict: bool,
    /// The same function over arrays.
    kernel: Option<Kernel>,
}

impl Definition {
    fn new(rule: Rule, eval: Eval) -> Self {
        Self { rule, eval, strict: true, kernel: None }
    }

    fn with_nulls(rule: Rule, eval: Eval) -> Self {
        Self { rule, eval, strict: false, kernel: None }
    }

    fn with_kernel(self, kernel: Kernel) -> Self {
        Self { kernel: Some(kernel), ..self }
    }
}

/// Functions whose timestamps OpenSearch calls `datetime`.
const DATETIMES: &[&str] = &[
    "adddate",
    "addtime",
    "convert_tz",
    "current_timestamp",
    "date_add",
    "date_sub",
    "datetime",
    "from_unixtime",
    "localtime",
    "localtimestamp",
    "now",
    "str_to_date",
    "subdate",
    "subtime",
    "sysdate",
    "timestampadd",
    "utc_timestamp",
];

fn find(name: &str) -> Option<Definition> {
    let lower = name.to_ascii_lowercase();
    math::find(&lower)
        .or_else(|| text::find(&lower))
        .or_else(|| dates::find(&lower))
        .or_else(|| buckets::find(&lower))
        .or_else(|| patterns::find(&lower))
        .or_else(|| log_patterns::find(&lower))
        .or_else(|| graph::find(&lower))
        .or_else(|| digests::find(&lower))
        .or_else(|| conversions::find(&lower))
        .or_else(|| json::find(&lower))
        .or_else(|| json_changes::find(&lower))
}

/// Looks a function up by its name.
#[cfg(test)]
pub(crate) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// Returns the types that a function takes for arguments of some types; `None` where it does not take them.
pub(crate) fn taken(name: &str, types: &[SqlType]) -> Option<Vec<SqlType>> {
    (find(name)?.rule)(types).map(|(wanted, _)| wanted)
}

/// Binds a call of a function.
pub(crate) fn call(name: &str, args: &[Bound], now_ms: i64) -> Result<Bound> {
    let lower = name.to_ascii_lowercase();
    let Some(definition) = find(&lower) else {
        return Err(SqlError::Semantic(format!("unsupported function name: {name}")));
    };
    let types: Vec<SqlType> = args.iter().map(|arg| arg.ty).collect();
    let (wanted, ty) = (definition.rule)(&types).ok_or_else(|| {
        let given: Vec<&str> = types.iter().map(|ty| ty.general_name()).collect();
        SqlError::Semantic(format!("{lower} function cannot take [{}]", given.join(",")))
    })?;
    let mut exprs = Vec::with_capacity(args.len());
    for (arg, wanted) in args.iter().zip(wanted) {
        let arg = arg.single();
        exprs.push(match arg.ty == wanted || wanted == SqlType::Undefined {
            true => arg.expr,
            false => arg.to(wanted)?,
        });
    }
    // Values of 64 bits without a sign are no integers of a function. They have no negative ones, so a quotient is rounded down.
    if let ("histogram", [SqlType::UnsignedLong, width], [number, _]) =
        (lower.as_str(), types.as_slice(), args)
        && width.is_integer()
        && let Some(width) = args.get(1)
    {
        if !matches!(width.literal, Some(Literal::Int(1..) | Literal::UInt(1..))) {
            return Err(SqlError::Semantic("the width of a bucket is a number greater than 0".to_owned()));
        }
        let ty = SqlType::UnsignedLong;
        let (number, width) = (number.single().to(ty)?, width.to(ty)?);
        let count = checked(Operator::Divide, ty, number, width.clone());
        return Ok(Bound::new(checked(Operator::Multiply, ty, count, width), ty));
    }
    let context = Context { now: now_ms.saturating_mul(1_000), ty };
    let Definition { eval, strict, kernel, .. } = definition;
    let bound = Bound::new(row::call_with_kernel(&lower, (eval, kernel), strict, context, exprs), ty);
    let datetime = matches!(ty, SqlType::Timestamp(_)) && DATETIMES.contains(&lower.as_str());
    Ok(Bound { shown: datetime.then_some("datetime"), ..bound })
}

/// Name of LIKE over single values in plans.
pub(crate) const LIKE: &str = "like";

/// Binds LIKE over single values.
pub(crate) fn like(text: Expr, pattern: Expr) -> Expr {
    let context = Context { now: 0, ty: SqlType::Boolean };
    let eval: Eval = |args, _| match args {
        [text, pattern] => text::like(text.text(), pattern.text()).map(Val::Bool),
        _ => Ok(Val::Null),
    };
    row::call(LIKE, eval, true, context, vec![text, pattern])
}

/// Tells that a subquery which stands for a value has at most one row, and fails where it has more.
pub(crate) fn is_single(rows: Expr) -> Expr {
    let context = Context { now: 0, ty: SqlType::Boolean };
    let eval: Eval = |args, _| match args {
        [Val::Int(rows)] if *rows > 1 => {
            Err("a subquery that stands for a value answers more than one row".to_owned())
        }
        _ => Ok(Val::Bool(true)),
    };
    row::call("is_single", eval, true, context, vec![rows])
}

/// Compares two moments of any types and resolutions. Strings are read as timestamps.
pub(crate) fn instants(left: Expr, operator: Operator, right: Expr) -> Expr {
    let (name, eval): (&str, Eval) = match operator {
        Operator::Lt => ("instant_lt", |args, context| ordered(args, context, Ordering::is_lt)),
        Operator::LtEq => ("instant_lteq", |args, context| ordered(args, context, Ordering::is_le)),
        Operator::Gt => ("instant_gt", |args, context| ordered(args, context, Ordering::is_gt)),
        Operator::GtEq => ("instant_gteq", |args, context| ordered(args, context, Ordering::is_ge)),
        _ => ("instant_eq", |args, context| ordered(args, context, Ordering::is_eq)),
    };
    let context = Context { now: 0, ty: SqlType::Boolean };
    row::call(name, eval, true, context, vec![left, right])
}

fn ordered<'a>(args: &[Val<'a>], context: Context, fits: fn(Ordering) -> bool) -> Result<Val<'a>, String> {
    let [left, right] = args else { return Ok(Val::Null) };
    Ok(Val::Bool(fits(dates::instant(left, context)?.cmp(&dates::instant(right, context)?))))
}

/// Converts an argument to the type that an operator or a function takes: any other value is an error.
pub(crate) fn convert(value: &Bound, ty: SqlType) -> Result<Expr> {
    if !convertible(value.ty, ty) {
        return Err(SqlError::Semantic(format!(
            "a value of type {} cannot be used as {}",
            value.ty.general_name(),
            ty.general_name()
        )));
    }
    let context = Context { now: 0, ty };
    Ok(row::call(&format!("as_{}", ty.name()), cast_value, true, context, vec![value.expr.clone()]))
}

/// Reads a text as the day that a function of dates takes.
pub(crate) fn date_text(value: &Bound) -> Bound {
    let context = Context { now: 0, ty: TIMESTAMP };
    let eval: Eval = |args, context| match args {
        [Val::Str(text)] => {
            time::instant(text).map(Val::Timestamp).ok_or_else(|| unread("date", text, "yyyy-MM-dd"))
        }
        _ => cast_value(args, context),
    };
    let expr = row::call("date_text", eval, true, context, vec![value.single().expr]);
    Bound::new(expr, TIMESTAMP)
}

/// Returns the first element of an array held as JSON, as a value of a type.
pub(crate) fn first_element(array: &Bound, ty: SqlType) -> Bound {
    let context = Context { now: 0, ty };
    let eval: Eval = |args, context| {
        let value = args.first().and_then(|text| serde_json::from_str(text.text()).ok());
        Ok(match value {
            Some(serde_json::Value::Array(values)) => {
                values.first().map_or(Val::Null, |value| json::element(value, context.ty))
            }
            Some(value) => json::element(&value, context.ty),
            None => Val::Null,
        })
    };
    let name = format!("first_element_{}", ty.name());
    Bound::new(row::call(&name, eval, true, context, vec![array.expr.clone()]), ty)
}

/// Binds CAST of a pipeline: texts that are no truth value are null, and addresses are written in their shortest form.
pub(crate) fn pipeline_cast(value: &Bound, ty: SqlType) -> Result<Expr> {
    let value = value.single();
    let eval: Eval = match (value.ty, ty) {
        (from, SqlType::Boolean) if from.is_string() => |args, _| {
            let text = args.first().map_or("", Val::text).trim();
            Ok(match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "t" | "yes" => Val::Bool(true),
                "false" | "0" | "f" | "no" => Val::Bool(false),
                _ => Val::Null,
            })
        },
        (SqlType::Boolean, SqlType::Keyword) => |args, _| {
            let is_true = args.first() == Some(&Val::Bool(true));
            Ok(Val::str(if is_true { "TRUE" } else { "FALSE" }))
        },
        (from, SqlType::Ip) if from.is_string() => |args, _| {
            let text = args.first().map_or("", Val::text).trim();
            let address: std::net::IpAddr = text.parse().map_err(|_| {
                let reason = match text.contains(['.', ':']) {
                    true => "the text is no address",
                    false => "validation options do not allow you to specify a non-segmented single value",
                };
                format!("{text} IP Address error: {reason}")
            })?;
            Ok(Val::str(address.to_string()))
        },
        _ => return cast(&value, ty),
    };
    let context = Context { now: 0, ty };
    Ok(row::call(&format!("pipeline_cast_{}", ty.name()), eval, true, context, vec![value.expr]))
}

/// Binds CAST.
pub(crate) fn cast(value: &Bound, ty: SqlType) -> Result<Expr> {
    let value = value.single();
    if value.ty == ty {
        return Ok(value.expr);
    }
    // The digits of a float are those of its own type, not of a double.
    if value.ty == SqlType::Float && ty == SqlType::Keyword {
        let eval: Eval = |args, _| {
            let number = args.first().map_or(0.0, Val::float) as f32;
            let is_whole = number == number.trunc() && number.abs() < 1e7;
            Ok(Val::str(if is_whole { format!("{number:.1}") } else { number.to_string() }))
        };
        let context = Context { now: 0, ty };
        return Ok(row::call("cast_float_keyword", eval, true, context, vec![value.expr]));
    }
    if value.ty.is_number()
        && matches!(ty, SqlType::Double | SqlType::Float | SqlType::Long)
        && value.ty != SqlType::UnsignedLong
    {
        return value.to(ty);
    }
    let context = Context { now: 0, ty };
    Ok(row::call(&format!("cast_{}", ty.name()), cast_value, true, context, vec![value.expr]))
}

fn convertible(from: SqlType, to: SqlType) -> bool {
    use SqlType::{Boolean, Date, Ip, Time};
    match (from, to) {
        (from, to) if from == to => true,
        (from, to) if from.is_string() => to.is_number() || to.is_temporal() || matches!(to, Boolean | Ip),
        (Date | SqlType::Timestamp(_), SqlType::Timestamp(_)) | (SqlType::Timestamp(_), Date | Time) => true,
        // The day of a time is today.
        (Time, SqlType::Timestamp(_)) => true,
        (_, SqlType::Keyword) => !from.is_json(),
        (Boolean, to) => to.is_number(),
        _ => false,
    }
}

/// Converts one value.
fn cast_value<'a>(args: &[Val<'a>], context: Context) -> Result<Val<'a>, String> {
    let [value] = args else { return Err("CAST takes one value".to_owned()) };
    let ty = context.ty;
    let wrong = || format!("{} cannot be cast to {}", shown(value), ty.general_name());
    Ok(match (ty, value) {
        (ty, value) if ty.is_string() || ty == SqlType::Ip => Val::str(shown(value)),
        (ty, Val::Str(text)) if ty.is_number() => {
            let text = text.trim();
            match text.parse::<i64>() {
                Ok(number) => ranged(number, ty).ok_or_else(wrong)?,
                Err(_) => {
                    let number =
                        text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong)?;
                    if ty.is_integer() {
                        ranged(number as i64, ty).ok_or_else(wrong)?
                    } else {
                        Val::Float(number)
                    }
                }
            }
        }
        (ty, Val::Float(number)) if ty.is_integer() => ranged(*number as i64, ty).ok_or_else(wrong)?,
        (ty, Val::Int(number)) if ty.is_integer() => ranged(*number, ty).ok_or_else(wrong)?,
        (ty, Val::Bool(flag)) if ty.is_number() => Val::Int(i64::from(*flag)),
        (ty, value @ (Val::Int(_) | Val::Float(_))) if ty.is_number() => Val::Float(value.float()),
        (SqlType::Boolean, Val::Str(text)) => Val::Bool(text.trim().eq_ignore_ascii_case("true")),
        (SqlType::Boolean, value @ (Val::Int(_) | Val::Float(_))) => Val::Bool(value.float() != 0.0),
        (SqlType::Boolean, Val::Bool(flag)) => Val::Bool(*flag),
        (SqlType::Date, Val::Str(text)) => {
            Val::Date(time::date(text).ok_or_else(|| unread("date", text, "yyyy-MM-dd"))?)
        }
        (SqlType::Time, Val::Str(text)) => {
            Val::Time(time::time(text).ok_or_else(|| unread("time", text, "HH:mm:ss[.SSSSSSSSS]"))?)
        }
        (SqlType::Timestamp(_), Val::Str(text)) => Val::Timestamp(
            time::instant(text)
                .ok_or_else(|| unread("timestamp", text, "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]"))?,
        ),
        (SqlType::Date, Val::Timestamp(at)) => {
            Val::Date(i32::try_from(time::whole_micros(*at).div_euclid(time::DAY)).map_err(|_| wrong())?)
        }
        (SqlType::Time, Val::Timestamp(at)) => Val::Time(time::whole_micros(*at).rem_euclid(time::DAY)),
        (SqlType::Timestamp(_), Val::Date(days)) => {
            Val::Timestamp(time::nanos_of(i64::from(*days) * time::DAY))
        }
        (SqlType::Timestamp(_), Val::Time(at)) => {
            Val::Timestamp(time::nanos_of(context.now.div_euclid(time::DAY) * time::DAY + at))
        }
        (SqlType::Timestamp(_), Val::Timestamp(at)) => Val::Timestamp(*at),
        (SqlType::Date, Val::Date(days)) => Val::Date(*days),
        (SqlType::Time, Val::Time(at)) => Val::Time(*at),
        _ => return Err(wrong()),
    })
}

fn unread(kind: &str, text: &str, format: &str) -> String {
    format!("{kind}:{text} in unsupported format, please use '{format}'")
}

/// An integer where it fits its type.
fn ranged<'a>(number: i64, ty: SqlType) -> Option<Val<'a>> {
    let fits = match ty {
        SqlType::Byte => i8::try_from(number).is_ok(),
        SqlType::Short => i16::try_from(number).is_ok(),
        SqlType::Integer => i32::try_from(number).is_ok(),
        SqlType::UnsignedLong => number >= 0,
        _ => true,
    };
    fits.then_some(Val::Int(number))
}

/// Writes a value as a string.
fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Null => String::new(),
        Val::Bool(flag) => flag.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Float(number) => decimal(*number),
        Val::Str(text) => text.to_string(),
        Val::Date(days) => time::shown_date(*days),
        Val::Time(micros) => time::shown_time(*micros),
        Val::Timestamp(nanos) => time::shown_instant(*nanos),
        Val::Interval(span) => format!("P{}M{}DT{}S", span.months, span.days, span.nanos as f64 / 1e9),
    }
}

/// Writes a decimal with a point.
fn decimal(number: f64) -> String {
    if number == number.trunc() && number.abs() < 1e15 { format!("{number:.1}") } else { number.to_string() }
}

/// Makes numbers of moments, for their mean.
pub(crate) fn to_micros(value: &Bound) -> Result<Expr> {
    let context = Context { now: 0, ty: SqlType::Double };
    let eval: Eval = |args, _| {
        Ok(match args.first() {
            Some(Val::Timestamp(at)) => Val::Float(time::whole_micros(*at) as f64),
            Some(Val::Time(at)) => Val::Float(*at as f64),
            Some(Val::Date(days)) => Val::Float(f64::from(*days)),
            _ => Val::Null,
        })
    };
    Ok(row::call("moment_as_number", eval, true, context, vec![value.single().expr]))
}

/// Makes moments of numbers. Those with a time of day are whole milliseconds, as OpenSearch's averages are.
pub(crate) fn from_micros(expr: Expr, ty: SqlType) -> Result<Bound> {
    let ty = if matches!(ty, SqlType::Timestamp(_)) { TIMESTAMP } else { ty };
    let context = Context { now: 0, ty };
    let eval: Eval = |args, context| {
        let number = args.first().map_or(0.0, Val::float);
        let millis = || (number / 1e3).trunc() * 1e3;
        Ok(match context.ty {
            SqlType::Date => Val::Date(number.round() as i32),
            SqlType::Time => Val::Time(millis() as i64),
            _ => Val::Timestamp(time::nanos_of(millis() as i64)),
        })
    };
    Ok(Bound::new(row::call("number_as_moment", eval, true, context, vec![expr]), ty))
}
