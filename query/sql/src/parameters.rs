//! Values of `?`: as a request of the data API has them, and as a row of Arrow. Both become literals, and mean what literals
//! of the same text mean.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Date64Type, Float64Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use millrace_work::error::Error;
use serde_json::Value;

use super::bind::Literal;
use super::error::{Result, SqlError, excerpt};
use super::functions::time::{self, DAY, SECOND};

/// Most parameters of a statement.
const MAX_PARAMETERS: usize = 10_000;

/// The parameters of a statement.
#[derive(Clone, Debug)]
pub enum Parameters {
    /// One value for each placeholder.
    Given(Vec<Literal>),
    /// No values: the statement is described, not run.
    Unbound,
}

impl Default for Parameters {
    fn default() -> Self {
        Self::Given(Vec::new())
    }
}

impl Parameters {
    /// Reads the member `parameters` of a request.
    ///
    /// # Errors
    /// A value is none of its type.
    pub(crate) fn parse(values: &[Value]) -> Result<Self> {
        bounded(values.len())?;
        values.iter().map(parameter).collect::<Result<_>>().map(Self::Given)
    }

    /// Reads the member `params` of a request: values of JSON, or objects as [`Parameters::parse`] takes.
    ///
    /// # Errors
    /// There are too many, or a value is none of its type.
    pub(crate) fn from_values(values: &[Value]) -> Result<Self> {
        bounded(values.len())?;
        values.iter().map(json_literal).collect::<Result<_>>().map(Self::Given)
    }

    /// Reads the one row of a batch, a parameter a column, in their order. Times without a zone are UTC.
    ///
    /// # Errors
    /// There are more rows or none; a column has a type that no literal has, or a value that no literal of its type has.
    pub fn of_batch(batch: &RecordBatch) -> Result<Self> {
        bounded(batch.num_columns())?;
        if batch.num_rows() != 1 && batch.num_columns() > 0 {
            return Err(SqlError::Request(format!(
                "parameters are one row, and there are [{}]",
                batch.num_rows()
            )));
        }
        let columns = batch.columns().iter().enumerate();
        columns.map(|(at, column)| literal(column, at + 1)).collect::<Result<_>>().map(Self::Given)
    }

    /// Makes the refusal of another number of parameters than there are placeholders.
    pub(crate) fn wrong_count(placeholders: usize, given: usize) -> SqlError {
        SqlError::Request(format!(
            "the statement has [{placeholders}] placeholders, and [{given}] parameters are given"
        ))
    }
}

fn bounded(count: usize) -> Result<()> {
    match count > MAX_PARAMETERS {
        true => Err(SqlError::TooLarge(format!("the request has more than {MAX_PARAMETERS} parameters"))),
        false => Ok(()),
    }
}

/// Reads a value of JSON as a literal of its own type, unless it is an object that names one.
fn json_literal(value: &Value) -> Result<Literal> {
    let wrong =
        || SqlError::Request(format!("the member [params] of the request cannot have [{}]", excerpt(value)));
    Ok(match value {
        Value::Object(_) => return parameter(value),
        Value::Null => Literal::Null,
        Value::Bool(is) => Literal::Bool(*is),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Literal::Int(number),
            (_, Some(number), _) => Literal::UInt(number),
            (.., number) => number.and_then(finite).ok_or_else(wrong)?,
        },
        Value::String(text) => Literal::Str(text.clone()),
        Value::Array(_) => return Err(wrong()),
    })
}

/// Reads `{type, value}`; the type decides how the value is read.
fn parameter(parameter: &Value) -> Result<Literal> {
    let kind = parameter.get("type").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let value = parameter.get("value").unwrap_or(&Value::Null);
    let wrong =
        || SqlError::Request(format!("the parameter [{}] is no value of its type", excerpt(parameter)));
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if value.is_null() {
        return Ok(Literal::Null);
    }
    match kind.as_str() {
        "byte" | "short" | "integer" | "long" => text.parse().map(Literal::Int).map_err(|_| wrong()),
        "unsigned_long" => unsigned(&text).ok_or_else(wrong),
        "float" | "double" => text.parse().ok().and_then(finite).ok_or_else(wrong),
        "boolean" => text.parse().map(Literal::Bool).map_err(|_| wrong()),
        "string" | "keyword" | "text" => Ok(Literal::Str(text)),
        "date" | "timestamp" | "datetime" => time::instant(&text).map(Literal::Timestamp).ok_or_else(wrong),
        "null" => Ok(Literal::Null),
        other => Err(SqlError::Request(format!("unsupported parameter type [{}]", excerpt(other)))),
    }
}

/// Reads the only value of a column.
fn literal(column: &ArrayRef, number: usize) -> Result<Literal> {
    use DataType as T;
    let ty = column.data_type();
    let refused = |why: &str| SqlError::Request(format!("the parameter [${number}] of type [{ty}] {why}"));
    if column.is_null(0) || *ty == T::Null {
        return Ok(Literal::Null);
    }
    let as_type = |ty: &T| -> Result<ArrayRef> { Ok(cast(column, ty).map_err(Error::from)?) };
    let micros = |value: i64, per_second: i64| {
        let micros = match per_second <= SECOND {
            true => value.checked_mul(SECOND / per_second),
            false => (value % (per_second / SECOND) == 0).then(|| value / (per_second / SECOND)),
        };
        micros.ok_or_else(|| {
            refused("is no whole number of microseconds within 64 bits, as times of statements are")
        })
    };
    let timestamp = |micros: i64| Literal::Timestamp(time::nanos_of(micros));
    Ok(match ty {
        T::Boolean => Literal::Bool(column.as_boolean().value(0)),
        T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 => {
            Literal::Int(as_type(&T::Int64)?.as_primitive::<Int64Type>().value(0))
        }
        T::UInt64 => {
            let number = column.as_primitive::<UInt64Type>().value(0);
            i64::try_from(number).map_or(Literal::UInt(number), Literal::Int)
        }
        T::Float16 | T::Float32 | T::Float64 => {
            finite(as_type(&T::Float64)?.as_primitive::<Float64Type>().value(0))
                .ok_or_else(|| refused("is no finite number"))?
        }
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
            let text = as_type(&T::Utf8)?;
            let text = text.as_string::<i32>().value(0);
            unsigned(text)
                .or_else(|| finite(text.parse().ok()?))
                .ok_or_else(|| refused("is larger than numbers of statements are"))?
        }
        T::Utf8 | T::LargeUtf8 | T::Utf8View => {
            Literal::Str(as_type(&T::Utf8)?.as_string::<i32>().value(0).to_owned())
        }
        T::Date32 => {
            let micros = i64::from(column.as_primitive::<Date32Type>().value(0)).checked_mul(DAY);
            timestamp(micros.ok_or_else(|| refused("is out of the range of times of statements"))?)
        }
        T::Date64 => timestamp(micros(column.as_primitive::<Date64Type>().value(0), 1_000)?),
        T::Time32(TimeUnit::Second) => {
            Literal::Time(micros(column.as_primitive::<Time32SecondType>().value(0).into(), 1)?)
        }
        T::Time32(_) => {
            Literal::Time(micros(column.as_primitive::<Time32MillisecondType>().value(0).into(), 1_000)?)
        }
        T::Time64(TimeUnit::Nanosecond) => {
            Literal::Time(micros(column.as_primitive::<Time64NanosecondType>().value(0), 1_000_000_000)?)
        }
        T::Time64(_) => Literal::Time(column.as_primitive::<Time64MicrosecondType>().value(0)),
        T::Timestamp(TimeUnit::Nanosecond, _) => {
            Literal::Timestamp(column.as_primitive::<TimestampNanosecondType>().value(0).into())
        }
        T::Timestamp(unit, _) => timestamp(match unit {
            TimeUnit::Second => micros(column.as_primitive::<TimestampSecondType>().value(0), 1)?,
            TimeUnit::Millisecond => {
                micros(column.as_primitive::<TimestampMillisecondType>().value(0), 1_000)?
            }
            _ => column.as_primitive::<TimestampMicrosecondType>().value(0),
        }),
        T::Dictionary(_, values) => return literal(&as_type(values)?, number),
        _ => {
            return Err(refused("has no literal in SQL; send a number, a text, a boolean, a date or a time"));
        }
    })
}

/// Reads an integer.
fn unsigned(text: &str) -> Option<Literal> {
    match text.parse() {
        Ok(number) => Some(Literal::Int(number)),
        Err(_) => text.parse().ok().map(Literal::UInt),
    }
}

fn finite(number: f64) -> Option<Literal> {
    number.is_finite().then_some(Literal::Float(number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray, Float32Array,
        Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray, NullArray, StringArray,
        StringViewArray, Time32SecondArray, Time64NanosecondArray, TimestampMillisecondArray,
        TimestampNanosecondArray, TimestampSecondArray, UInt16Array, UInt64Array,
    };
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    fn read(column: ArrayRef) -> Result<Literal> {
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        match Parameters::of_batch(&batch)? {
            Parameters::Given(mut values) => Ok(values.remove(0)),
            Parameters::Unbound => panic!("values were given"),
        }
    }

    #[test]
    fn values_of_arrow_are_literals() {
        let zoned = TimestampSecondArray::from(vec![-1]).with_timezone("+02:00");
        let decimal = |value| Decimal128Array::from(vec![value]).with_precision_and_scale(38, 2).unwrap();
        let words: DictionaryArray<Int32Type> = vec!["a"].into_iter().collect();
        let cases: Vec<(ArrayRef, Literal)> = vec![
            (Arc::new(BooleanArray::from(vec![true])), Literal::Bool(true)),
            (Arc::new(Int8Array::from(vec![-3])), Literal::Int(-3)),
            (Arc::new(UInt16Array::from(vec![60_000])), Literal::Int(60_000)),
            (Arc::new(Int64Array::from(vec![i64::MIN])), Literal::Int(i64::MIN)),
            (Arc::new(UInt64Array::from(vec![5])), Literal::Int(5)),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), Literal::UInt(u64::MAX)),
            (Arc::new(Float32Array::from(vec![0.5])), Literal::Float(0.5)),
            (Arc::new(Float64Array::from(vec![0.1])), Literal::Float(0.1)),
            (Arc::new(decimal(1_234)), Literal::Float(12.34)),
            (Arc::new(StringArray::from(vec!["ü"])), Literal::Str("ü".to_owned())),
            (Arc::new(LargeStringArray::from(vec!["7"])), Literal::Str("7".to_owned())),
            (
                Arc::new(StringViewArray::from(vec!["long enough for a buffer"])),
                Literal::Str("long enough for a buffer".to_owned()),
            ),
            (Arc::new(words), Literal::Str("a".to_owned())),
            (Arc::new(Date32Array::from(vec![-1])), Literal::Timestamp(time::nanos_of(-DAY))),
            (Arc::new(Date64Array::from(vec![1_500])), Literal::Timestamp(1_500_000_000)),
            (Arc::new(Time32SecondArray::from(vec![61])), Literal::Time(61 * SECOND)),
            (Arc::new(Time64NanosecondArray::from(vec![2_000])), Literal::Time(2)),
            (Arc::new(zoned), Literal::Timestamp(time::nanos_of(-SECOND))),
            (Arc::new(TimestampMillisecondArray::from(vec![7])), Literal::Timestamp(7_000_000)),
            (Arc::new(TimestampNanosecondArray::from(vec![-3_000])), Literal::Timestamp(-3_000)),
            (Arc::new(TimestampNanosecondArray::from(vec![-3_001])), Literal::Timestamp(-3_001)),
            (Arc::new(NullArray::new(1)), Literal::Null),
            (Arc::new(Int32Array::from(vec![None])), Literal::Null),
        ];
        for (column, expected) in cases {
            assert_eq!(read(Arc::clone(&column)).unwrap(), expected, "{column:?}");
        }
    }

    #[test]
    fn what_is_no_literal_is_refused_by_name() {
        let refused: Vec<(ArrayRef, &str)> = vec![
            (Arc::new(BinaryArray::from(vec![b"x".as_slice()])), "[$1] of type [Binary]"),
            (Arc::new(Float64Array::from(vec![f64::NAN])), "no finite number"),
            (Arc::new(Time64NanosecondArray::from(vec![1])), "microseconds"),
            (Arc::new(TimestampSecondArray::from(vec![i64::MAX])), "microseconds"),
            (Arc::new(Date32Array::from(vec![i32::MAX])), "out of the range"),
            (Arc::new(Date32Array::from(vec![i32::MIN])), "out of the range"),
        ];
        for (column, part) in refused {
            let error = read(column).unwrap_err();
            assert!(error.status() == 400 && error.to_string().contains(part), "{error}");
        }
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let error = read(rows).unwrap_err();
        assert!(error.to_string().contains("one row, and there are [2]"), "{error}");
    }
}
