//! Functions of numbers and times over whole arrays, as [`super::kernels`] has those of strings: each has the results of its function of rows.

use std::sync::Arc;

use chrono::{Datelike, Timelike};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::scalar::ScalarValue;
use millrace_work::QueryContext;

use super::buckets::fixed;
use super::time::{self, DAY, SECOND};

/// Computes a function of doubles; results that are not finite are null.
pub(super) fn of_doubles(
    args: &[ColumnarValue],
    function: impl Fn(f64) -> f64,
) -> PlanResult<Option<ArrayRef>> {
    let [ColumnarValue::Array(numbers), ..] = args else { return Ok(None) };
    let Some(numbers) = numbers.as_primitive_opt::<Float64Type>() else { return Ok(None) };
    let results: Float64Array =
        numbers.unary_opt(|number| Some(function(number)).filter(|result| result.is_finite()));
    Ok(Some(Arc::new(results)))
}

/// Makes numbers positive. Integers of which one has no positive counterpart are left to the function of rows, which tells so.
pub(super) fn abs(args: &[ColumnarValue], _: usize, _: &QueryContext) -> PlanResult<Option<ArrayRef>> {
    fn integers<T: ArrowPrimitiveType>(
        numbers: &PrimitiveArray<T>,
        positive: impl Fn(T::Native) -> Option<T::Native>,
    ) -> Option<ArrayRef> {
        let results = numbers.unary_opt::<_, T>(&positive);
        (results.null_count() == numbers.null_count()).then(|| Arc::new(results) as ArrayRef)
    }
    let [ColumnarValue::Array(numbers)] = args else { return Ok(None) };
    Ok(match numbers.data_type() {
        DataType::Int16 => integers(numbers.as_primitive::<Int16Type>(), i16::checked_abs),
        DataType::Int32 => integers(numbers.as_primitive::<Int32Type>(), i32::checked_abs),
        DataType::Int64 => integers(numbers.as_primitive::<Int64Type>(), i64::checked_abs),
        DataType::Float64 => {
            let results: Float64Array = numbers.as_primitive::<Float64Type>().unary(f64::abs);
            Some(Arc::new(results))
        }
        _ => None,
    })
}

/// Rounds doubles to so many places, or to whole numbers.
pub(super) fn round(args: &[ColumnarValue], _: usize, _: &QueryContext) -> PlanResult<Option<ArrayRef>> {
    let places = match args {
        [_] => 0,
        [_, ColumnarValue::Scalar(ScalarValue::Int64(Some(places)))] => *places,
        _ => return Ok(None),
    };
    let [ColumnarValue::Array(numbers), ..] = args else { return Ok(None) };
    let Some(numbers) = numbers.as_primitive_opt::<Float64Type>() else { return Ok(None) };
    let results: Float64Array =
        numbers.unary_opt(|number| super::math::rounded_double(number, places, false));
    Ok(Some(Arc::new(results)))
}

/// Returns a function of the microseconds since 1970 of timestamps, for whichever array has them.
fn of_micros<T: ArrowPrimitiveType>(
    times: &ArrayRef,
    function: impl Fn(i64) -> T::Native,
) -> Option<PrimitiveArray<T>> {
    Some(match times.data_type() {
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            let times = times.as_primitive::<TimestampMillisecondType>();
            // What has no microseconds has no calendar either.
            let bounded = times.iter().flatten().all(|millis| millis.checked_mul(1_000).is_some());
            if !bounded {
                return None;
            }
            times.unary(|millis| function(millis * 1_000))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            times.as_primitive::<TimestampMicrosecondType>().unary(function)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            times.as_primitive::<TimestampNanosecondType>().unary(|nanos| function(nanos.div_euclid(1_000)))
        }
        _ => return None,
    })
}

/// Extracts a part of timestamps.
pub(super) fn extract(args: &[ColumnarValue], _: usize, _: &QueryContext) -> PlanResult<Option<ArrayRef>> {
    let [
        ColumnarValue::Scalar(ScalarValue::Utf8View(Some(unit)) | ScalarValue::Utf8(Some(unit))),
        ColumnarValue::Array(times),
    ] = args
    else {
        return Ok(None);
    };
    let part: fn(i64) -> i64 = match unit.to_ascii_uppercase().as_str() {
        "MINUTE" => |micros| micros.rem_euclid(DAY) / (60 * SECOND) % 60,
        "HOUR" => |micros| micros.rem_euclid(DAY) / (3_600 * SECOND),
        "SECOND" => |micros| i64::from(time::clock(micros).second()),
        "DAY" => |micros| i64::from(time::civil(micros).day()),
        "MONTH" => |micros| i64::from(time::civil(micros).month()),
        "YEAR" => |micros| i64::from(time::civil(micros).year()),
        _ => return Ok(None),
    };
    let parts: Option<Int64Array> = of_micros::<Int64Type>(times, part);
    Ok(parts.map(|parts| Arc::new(parts) as ArrayRef))
}

/// Finds the start of buckets of fixed length that timestamps of microseconds are in.
pub(super) fn time_bucket(
    args: &[ColumnarValue],
    _: usize,
    _: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    let [
        ColumnarValue::Array(times),
        ColumnarValue::Scalar(ScalarValue::Int64(Some(count))),
        ColumnarValue::Scalar(ScalarValue::Utf8View(Some(unit)) | ScalarValue::Utf8(Some(unit))),
    ] = args
    else {
        return Ok(None);
    };
    // Values with nanoseconds keep their type, which the function of rows writes.
    if matches!(times.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _)) {
        return Ok(None);
    }
    let Some(width) = fixed(unit).and_then(|micros| micros.checked_mul((*count).max(1))) else {
        return Ok(None);
    };
    let starts = of_micros::<TimestampMicrosecondType>(times, |micros| micros.div_euclid(width) * width);
    Ok(starts.map(|starts| Arc::new(starts) as ArrayRef))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, TimestampMillisecondArray, TimestampNanosecondArray};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::find;
    use super::super::row::{Context, Reader, Val};
    use super::*;
    use crate::types::{NANOS, SqlType, TIMESTAMP};

    /// Kernels give what functions of rows give.
    #[test]
    fn kernels_agree_with_functions_of_rows() {
        let mut rng = StdRng::seed_from_u64(9);
        let mut agreed = 0;
        for round in 0..200 {
            let rows = rng.random_range(1..50);
            let mut numbers = || -> Vec<Option<f64>> {
                (0..rows).map(|_| rng.random_bool(0.9).then(|| (rng.random::<f64>() - 0.3) * 1e4)).collect()
            };
            let doubles: ArrayRef = Arc::new(Float64Array::from(numbers()));
            let whole = |number: Option<f64>| number.map(|number| number as i32);
            let integers: ArrayRef = Arc::new(Int32Array::from_iter(numbers().into_iter().map(whole)));
            let millis = |number: Option<f64>| number.map(|number| (number * 3e8) as i64);
            let times: ArrayRef =
                Arc::new(TimestampMillisecondArray::from_iter(numbers().into_iter().map(millis)));
            let nanos = |number: Option<f64>| number.map(|number| (number * 3e14) as i64);
            let fine: ArrayRef =
                Arc::new(TimestampNanosecondArray::from_iter(numbers().into_iter().map(nanos)));
            let text = |text: &str| ScalarValue::Utf8View(Some(text.to_owned()));
            let unit = ["MINUTE", "hour", "SECOND", "DAY", "MONTH", "YEAR"][round % 6];
            let width = ["s", "m", "h", "d"][round % 4];
            let array = |array: &ArrayRef| ColumnarValue::Array(Arc::clone(array));
            let scalar = ColumnarValue::Scalar;
            let count = ScalarValue::Int64(Some(round as i64 % 3 + 1));
            let calls = [
                ("sqrt", SqlType::Double, vec![array(&doubles)]),
                ("ln", SqlType::Double, vec![array(&doubles)]),
                ("abs", SqlType::Double, vec![array(&doubles)]),
                ("abs", SqlType::Integer, vec![array(&integers)]),
                ("round", SqlType::Double, vec![array(&doubles)]),
                ("round", SqlType::Double, vec![array(&doubles), scalar(count.clone())]),
                ("extract", SqlType::Long, vec![scalar(text(unit)), array(&times)]),
                ("extract", SqlType::Long, vec![scalar(text(unit)), array(&fine)]),
                ("time_bucket", TIMESTAMP, vec![array(&times), scalar(count.clone()), scalar(text(width))]),
                ("time_bucket", NANOS, vec![array(&fine), scalar(count.clone()), scalar(text(width))]),
            ];
            for (name, ty, args) in calls {
                let definition = find(name).unwrap();
                let work = QueryContext::default();
                let Some(made) = definition.kernel.unwrap()(&args, rows, &work).unwrap() else { continue };
                assert_eq!(made.data_type(), &ty.arrow(), "{name}");
                let columns: Vec<ArrayRef> =
                    args.iter().map(|arg| arg.clone().into_array(rows).unwrap()).collect();
                let readers: Vec<Reader<'_>> =
                    columns.iter().map(|column| Reader::new(column).unwrap()).collect();
                let results = Reader::new(&made).unwrap();
                for row in 0..rows {
                    let given: Vec<Val<'_>> = readers.iter().map(|reader| reader.value(row)).collect();
                    let expected = match given.contains(&Val::Null) {
                        true => Val::Null,
                        false => (definition.eval)(&given, Context { now: 0, ty }).unwrap(),
                    };
                    assert_eq!(results.value(row), expected, "{name} {given:?}");
                    agreed += 1;
                }
            }
        }
        assert!(agreed > 20_000, "{agreed}");
    }

    #[test]
    fn integers_without_a_positive_counterpart_are_left_to_the_function_of_rows() {
        let least: ArrayRef = Arc::new(Int32Array::from(vec![1, i32::MIN]));
        assert!(abs(&[ColumnarValue::Array(least)], 2, &QueryContext::default()).unwrap().is_none());
    }
}
