//! Functions of rows: how a function of plain values becomes one of Arrow arrays.
//!
//! A function gets the values of one row and returns one; null arguments make null unless it asks for
//! them. Hot operators do not come this way, they are DataFusion's own.
//!
//! Strings that a call makes are memory of the statement ([`at_work`]) while they are made and until the array of them is dropped, and a
//! call looks at the statement's stop between some hundred rows.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Date32Builder, Float32Builder, Float64Builder, Int8Builder,
    Int16Builder, Int32Builder, Int64Builder, StringViewArray, StringViewBuilder, Time64NanosecondBuilder,
    TimestampMicrosecondBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, UInt64Type,
};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_work::QueryContext;

use super::brain::BrainFunction;
use super::kernels::Kernel;
use super::lambdas::LambdaFunction;
use super::time::{self, Span};
use crate::error::evaluation;
use crate::types::SqlType;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Cow<'a, str>),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Nanoseconds since 1970.
    Timestamp(i128),
    Interval(Span),
}

impl Val<'_> {
    /// Makes a string.
    pub(crate) fn str(text: impl Into<String>) -> Self {
        Self::Str(Cow::Owned(text.into()))
    }

    /// Reads an integer; a decimal is rounded.
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Float(number) => number.round() as i64,
            Self::Bool(flag) => i64::from(*flag),
            _ => 0,
        }
    }

    /// Reads a number.
    pub(crate) fn float(&self) -> f64 {
        match self {
            Self::Int(number) => *number as f64,
            Self::Float(number) => *number,
            Self::Bool(flag) => f64::from(u8::from(*flag)),
            _ => 0.0,
        }
    }

    /// Reads a string.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Str(text) => text,
            _ => "",
        }
    }
}

/// Context of a running function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Time of the request, in microseconds since 1970.
    pub now: i64,
    /// Type of the result.
    pub ty: SqlType,
}

/// A function of the values of one row.
pub(crate) type Eval = for<'a> fn(&[Val<'a>], Context) -> Result<Val<'a>, String>;

/// A function of rows in plans.
#[derive(Debug)]
pub(crate) struct RowFunction {
    name: String,
    eval: Eval,
    /// The same function over arrays.
    kernel: Option<Kernel>,
    context: Context,
    /// `true` if a null argument makes the result null.
    strict: bool,
    signature: Signature,
    /// Context of the statement that calls it.
    work: QueryContext,
}

/// Rows that are computed between two looks at the stop and at the memory.
const ROWS_AT_A_TIME: usize = 256;
/// Bytes of strings after which these come sooner.
const BYTES_AT_A_TIME: usize = 1 << 20;

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.context.ty, self.context.now) == (&other.name, other.context.ty, other.context.now)
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.context.ty, self.context.now).hash(state);
    }
}

/// Calls a function of rows.
pub(crate) fn call(name: &str, eval: Eval, strict: bool, context: Context, args: Vec<Expr>) -> Expr {
    call_with_kernel(name, (eval, None), strict, context, args)
}

/// Calls a function of rows that may be one of arrays, too.
pub(super) fn call_with_kernel(
    name: &str,
    (eval, kernel): (Eval, Option<Kernel>),
    strict: bool,
    context: Context,
    args: Vec<Expr>,
) -> Expr {
    let volatility = if name.starts_with("rand") { Volatility::Volatile } else { Volatility::Immutable };
    let signature = match args.is_empty() {
        true => Signature::nullary(volatility),
        false => Signature::variadic_any(volatility),
    };
    let (name, work) = (name.to_owned(), QueryContext::default());
    ScalarUDF::from(RowFunction { name, eval, kernel, context, strict, signature, work }).call(args)
}

/// Makes the functions of a plan part of some work: they end with it, and the strings that they make are its memory.
pub(crate) fn at_work(plan: LogicalPlan, work: &QueryContext) -> PlanResult<LogicalPlan> {
    plan.transform_up(|node| node.map_expressions(|expr| expression_at_work(expr, work))).data()
}

/// Makes the functions of an expression part of some work, those in lambdas, too.
fn expression_at_work(expr: Expr, work: &QueryContext) -> PlanResult<Transformed<Expr>> {
    let function = |expr: Expr| {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else {
            return Ok(Transformed::no(expr));
        };
        if let Some(own) = func.inner().downcast_ref::<LambdaFunction>() {
            let own = own.at_work(work, &|body| expression_at_work(body, work).data())?;
            return Ok(Transformed::yes(ScalarUDF::from(own).call(args.clone())));
        }
        if let Some(own) = func.inner().downcast_ref::<BrainFunction>() {
            return Ok(Transformed::yes(ScalarUDF::from(own.at_work(work)).call(args.clone())));
        }
        let Some(own) = func.inner().downcast_ref::<RowFunction>() else { return Ok(Transformed::no(expr)) };
        let own = RowFunction {
            name: own.name.clone(),
            eval: own.eval,
            kernel: own.kernel,
            context: own.context,
            strict: own.strict,
            signature: own.signature.clone(),
            work: work.clone(),
        };
        Ok(Transformed::yes(ScalarUDF::from(own).call(args.clone())))
    };
    expr.transform_up(function)
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(self.context.ty.arrow())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let constant = constant && self.signature.volatility != Volatility::Volatile;
        let rows = if constant { 1 } else { args.number_rows };
        if !constant
            && let Some(kernel) = self.kernel
            && let Some(array) = kernel(&args.args, rows, &self.work.part())?
        {
            return Ok(ColumnarValue::Array(array));
        }
        let arrays = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Array(array) => Ok(Arc::clone(array)),
                // One value stands for all rows.
                ColumnarValue::Scalar(scalar) => scalar.to_array_of_size(1),
            })
            .collect::<PlanResult<Vec<ArrayRef>>>()?;
        let single: Vec<bool> = args.args.iter().map(|arg| matches!(arg, ColumnarValue::Scalar(_))).collect();
        let readers = arrays.iter().map(Reader::new).collect::<PlanResult<Vec<_>>>()?;
        let mut out = Writer::new(self.context.ty, rows)?;
        let mut values = Vec::with_capacity(readers.len());
        let part = self.work.part();
        let mut made = 0;
        for row in 0..rows {
            if row % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 || made > BYTES_AT_A_TIME {
                part.check()?;
                part.hold(std::mem::take(&mut made))?;
            }
            values.clear();
            for (reader, single) in readers.iter().zip(&single) {
                values.push(reader.value(if *single { 0 } else { row }));
            }
            let value = match self.strict && values.contains(&Val::Null) {
                true => Val::Null,
                false => (self.eval)(&values, self.context).map_err(evaluation)?,
            };
            if let Val::Str(text) = &value {
                made += text.len();
            }
            out.push(value).map_err(evaluation)?;
        }
        part.hold(made)?;
        let array = held(&out.finish(), &part)?;
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}

/// Makes an array hold the memory of its strings: those that are not in its views.
pub(super) fn held(array: &ArrayRef, part: &QueryContext) -> PlanResult<ArrayRef> {
    let Some(strings) = array.as_string_view_opt().filter(|strings| !strings.data_buffers().is_empty())
    else {
        return Ok(Arc::clone(array));
    };
    let (views, buffers, nulls) = strings.clone().into_parts();
    let buffers: Vec<Buffer> = buffers
        .iter()
        .map(|buffer| Buffer::from(part.clone().held_by(StringReservation(buffer.clone()))))
        .collect();
    Ok(Arc::new(StringViewArray::try_new(views, buffers, nulls)?))
}

/// Strings whose memory is held.
pub(super) struct StringReservation(pub(super) Buffer);

impl AsRef<[u8]> for StringReservation {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Reads values of an array.
pub(super) enum Reader<'a> {
    Null,
    Bool(&'a datafusion::arrow::array::BooleanArray),
    I8(&'a datafusion::arrow::array::Int8Array),
    I16(&'a datafusion::arrow::array::Int16Array),
    I32(&'a datafusion::arrow::array::Int32Array),
    I64(&'a datafusion::arrow::array::Int64Array),
    U64(&'a datafusion::arrow::array::UInt64Array),
    F32(&'a datafusion::arrow::array::Float32Array),
    F64(&'a datafusion::arrow::array::Float64Array),
    Str(&'a datafusion::arrow::array::StringViewArray),
    Date(&'a datafusion::arrow::array::Date32Array),
    Time(&'a datafusion::arrow::array::Time64NanosecondArray),
    Millis(&'a datafusion::arrow::array::TimestampMillisecondArray),
    Micros(&'a datafusion::arrow::array::TimestampMicrosecondArray),
    Nanos(&'a datafusion::arrow::array::TimestampNanosecondArray),
    Interval(&'a datafusion::arrow::array::IntervalMonthDayNanoArray),
}

impl<'a> Reader<'a> {
    pub(super) fn new(array: &'a ArrayRef) -> PlanResult<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int8 => Self::I8(array.as_primitive::<Int8Type>()),
            DataType::Int16 => Self::I16(array.as_primitive::<Int16Type>()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>()),
            DataType::UInt64 => Self::U64(array.as_primitive::<UInt64Type>()),
            DataType::Float32 => Self::F32(array.as_primitive::<Float32Type>()),
            DataType::Float64 => Self::F64(array.as_primitive::<Float64Type>()),
            DataType::Utf8View => Self::Str(array.as_string_view()),
            DataType::Date32 => Self::Date(array.as_primitive::<Date32Type>()),
            DataType::Time64(TimeUnit::Nanosecond) => {
                Self::Time(array.as_primitive::<Time64NanosecondType>())
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Self::Millis(array.as_primitive::<TimestampMillisecondType>())
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Micros(array.as_primitive::<TimestampMicrosecondType>())
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                Self::Nanos(array.as_primitive::<TimestampNanosecondType>())
            }
            DataType::Interval(_) => Self::Interval(array.as_primitive::<IntervalMonthDayNanoType>()),
            other => return exec_err!("a function got a value of type {other}"),
        })
    }

    pub(super) fn value(&self, row: usize) -> Val<'a> {
        macro_rules! read {
            ($array:expr, $value:expr) => {
                if $array.is_valid(row) { $value($array.value(row)) } else { Val::Null }
            };
        }
        match self {
            Self::Null => Val::Null,
            Self::Bool(array) => read!(array, Val::Bool),
            Self::I8(array) => read!(array, |value: i8| Val::Int(i64::from(value))),
            Self::I16(array) => read!(array, |value: i16| Val::Int(i64::from(value))),
            Self::I32(array) => read!(array, |value: i32| Val::Int(i64::from(value))),
            Self::I64(array) => read!(array, Val::Int),
            Self::U64(array) => {
                read!(array, |value: u64| i64::try_from(value).map_or(Val::Float(value as f64), Val::Int))
            }
            Self::F32(array) => read!(array, |value: f32| Val::Float(f64::from(value))),
            Self::F64(array) => read!(array, Val::Float),
            Self::Str(array) => read!(array, |text: &'a str| Val::Str(Cow::Borrowed(text))),
            Self::Date(array) => read!(array, Val::Date),
            // Functions of times of day have microseconds.
            Self::Time(array) => read!(array, |nanos: i64| Val::Time(nanos.div_euclid(1_000))),
            Self::Millis(array) => read!(array, |value: i64| Val::Timestamp(i128::from(value) * 1_000_000)),
            Self::Micros(array) => read!(array, |value: i64| Val::Timestamp(time::nanos_of(value))),
            Self::Nanos(array) => read!(array, |value: i64| Val::Timestamp(value.into())),
            Self::Interval(array) => {
                read!(array, |value: datafusion::arrow::datatypes::IntervalMonthDayNano| {
                    Val::Interval(Span { months: value.months, days: value.days, nanos: value.nanoseconds })
                })
            }
        }
    }
}

/// Refuses a time beside values of date_nanos that their type does not hold.
fn beyond(nanos: i128) -> String {
    format!(
        "the time [{}] is outside of 1677-09-21 to 2262-04-11, which values with nanoseconds are limited to; leave such \
         rows out, or CAST both values to STRING",
        time::shown_instant(nanos)
    )
}

/// Collects results.
pub(super) enum Writer {
    Null(usize),
    Bool(BooleanBuilder),
    I8(Int8Builder),
    I16(Int16Builder),
    I32(Int32Builder),
    I64(Int64Builder),
    U64(UInt64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Str(StringViewBuilder),
    Date(Date32Builder),
    Time(Time64NanosecondBuilder),
    Micros(TimestampMicrosecondBuilder),
    Nanos(TimestampNanosecondBuilder),
}

impl Writer {
    pub(super) fn new(ty: SqlType, rows: usize) -> PlanResult<Self> {
        Ok(match ty.arrow() {
            DataType::Null => Self::Null(0),
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::Int8 => Self::I8(Int8Builder::with_capacity(rows)),
            DataType::Int16 => Self::I16(Int16Builder::with_capacity(rows)),
            DataType::Int32 => Self::I32(Int32Builder::with_capacity(rows)),
            DataType::Int64 => Self::I64(Int64Builder::with_capacity(rows)),
            DataType::UInt64 => Self::U64(UInt64Builder::with_capacity(rows)),
            DataType::Float32 => Self::F32(Float32Builder::with_capacity(rows)),
            DataType::Float64 => Self::F64(Float64Builder::with_capacity(rows)),
            DataType::Utf8View => Self::Str(StringViewBuilder::with_capacity(rows)),
            DataType::Date32 => Self::Date(Date32Builder::with_capacity(rows)),
            DataType::Time64(_) => Self::Time(Time64NanosecondBuilder::with_capacity(rows)),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Self::Micros(TimestampMicrosecondBuilder::with_capacity(rows))
            }
            DataType::Timestamp(TimeUnit::Nanosecond, None) => {
                Self::Nanos(TimestampNanosecondBuilder::with_capacity(rows))
            }
            other => return exec_err!("no function returns {other}"),
        })
    }

    /// Takes a result.
    ///
    /// # Errors
    /// It is a time that nanoseconds of 64 bits do not hold.
    pub(super) fn push(&mut self, value: Val<'_>) -> Result<(), String> {
        let null = value == Val::Null;
        macro_rules! put {
            ($builder:expr, $value:expr) => {
                $builder.append_option((!null).then(|| $value))
            };
        }
        match self {
            Self::Null(rows) => *rows += 1,
            Self::Bool(out) => put!(out, matches!(value, Val::Bool(true)) || value.int() != 0),
            Self::I8(out) => put!(out, value.int() as i8),
            Self::I16(out) => put!(out, value.int() as i16),
            Self::I32(out) => put!(out, value.int() as i32),
            Self::I64(out) => put!(out, value.int()),
            Self::U64(out) => put!(out, value.int() as u64),
            Self::F32(out) => put!(out, value.float() as f32),
            // What is no number is no value.
            Self::F64(out) => {
                out.append_option((!null).then(|| value.float()).filter(|number| !number.is_nan()))
            }
            Self::Str(out) => match value {
                Val::Str(text) => out.append_value(text),
                _ => out.append_null(),
            },
            Self::Date(out) => match value {
                Val::Date(days) => out.append_value(days),
                _ => out.append_null(),
            },
            Self::Time(out) => match value {
                Val::Time(micros) => out.append_value(time::nanos_of_day(micros)),
                _ => out.append_null(),
            },
            Self::Micros(out) => match value {
                Val::Timestamp(nanos) => out.append_value(time::whole_micros(nanos)),
                _ => out.append_null(),
            },
            Self::Nanos(out) => match value {
                Val::Timestamp(nanos) => out.append_value(i64::try_from(nanos).map_err(|_| beyond(nanos))?),
                _ => out.append_null(),
            },
        }
        Ok(())
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Null(rows) => Arc::new(datafusion::arrow::array::NullArray::new(rows)),
            Self::Bool(mut out) => Arc::new(out.finish()),
            Self::I8(mut out) => Arc::new(out.finish()),
            Self::I16(mut out) => Arc::new(out.finish()),
            Self::I32(mut out) => Arc::new(out.finish()),
            Self::I64(mut out) => Arc::new(out.finish()),
            Self::U64(mut out) => Arc::new(out.finish()),
            Self::F32(mut out) => Arc::new(out.finish()),
            Self::F64(mut out) => Arc::new(out.finish()),
            Self::Str(mut out) => Arc::new(out.finish()),
            Self::Date(mut out) => Arc::new(out.finish()),
            Self::Time(mut out) => Arc::new(out.finish()),
            Self::Micros(mut out) => Arc::new(out.finish()),
            Self::Nanos(mut out) => Arc::new(out.finish()),
        }
    }
}
