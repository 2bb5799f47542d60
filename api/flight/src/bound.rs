//! Values for parameters as they are kept: copies that hold nothing else of what was sent.
//!
//! Buffers of a message are shared by all its columns, and dictionaries and views may stand for far more than they take. What is kept
//! is plain columns of their own, whose bytes are counted as they are, before texts are written out.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, MutableArrayData, NullArray, RecordBatch, RecordBatchOptions, make_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use tonic::{Code, Status};

use crate::status;

/// Most bytes that the values of one statement take.
const MAX_BYTES: usize = 16 << 20;

/// Copies rows of values.
///
/// # Errors
/// `INVALID_ARGUMENT` for a type that no parameter has; `RESOURCE_EXHAUSTED` where they take too much.
pub(crate) fn values(rows: &RecordBatch) -> Result<RecordBatch, Status> {
    let (mut columns, mut fields, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (at, column) in rows.columns().iter().enumerate() {
        if bytes + texts(column) > MAX_BYTES {
            return Err(too_long());
        }
        let column = plain(column, at + 1)?;
        bytes += column.get_array_memory_size();
        if bytes > MAX_BYTES {
            return Err(too_long());
        }
        fields.push(Field::new((at + 1).to_string(), column.data_type().clone(), true));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| status::internal(&error))
}

fn too_long() -> Status {
    Status::resource_exhausted(format!("the values for parameters take more than [{MAX_BYTES}] bytes"))
}

/// Copies a column, without what encodes it.
fn plain(column: &ArrayRef, number: usize) -> Result<ArrayRef, Status> {
    let kind = match column.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => &DataType::Utf8,
        DataType::Dictionary(_, values) if values.is_string() => &DataType::Utf8,
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    if column.null_count() == column.len() {
        return Ok(Arc::new(NullArray::new(column.len())));
    }
    if kind.is_nested()
        || kind.primitive_width().is_none()
            && !matches!(kind, DataType::Utf8 | DataType::Boolean | DataType::Null)
    {
        let message = format!(
            "the parameter [${number}] has no literal in SQL; send a number, a text, a boolean, a date or a time in place of \
             the type [{kind}]"
        );
        return Err(status::new(Code::InvalidArgument, &message));
    }
    let plain = cast(column, kind)
        .map_err(|error| {
            Status::invalid_argument(format!("the parameter [${number}] cannot be read: {error}"))
        })?
        .to_data();
    let mut copy = MutableArrayData::new(vec![&plain], false, plain.len());
    copy.try_extend(0, 0, plain.len()).map_err(|error| status::internal(&error))?;
    Ok(make_array(copy.freeze()))
}

/// Bytes of the texts of a column, each as often as it is there.
fn texts(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().flatten().map(str::len).sum(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().flatten().map(str::len).sum(),
        DataType::Utf8View => column.as_string_view().iter().flatten().map(str::len).sum(),
        DataType::Dictionary(_, values) if values.is_string() => {
            let dictionary = column.as_any_dictionary();
            let lengths: Vec<usize> = match cast(dictionary.values(), &DataType::LargeUtf8) {
                Ok(values) => values.as_string::<i64>().iter().map(|text| text.map_or(0, str::len)).collect(),
                Err(_) => return usize::MAX / 2,
            };
            let Ok(keys) = cast(&dictionary.keys().slice(0, column.len()), &DataType::UInt64) else {
                return usize::MAX / 2;
            };
            let keys = keys.as_primitive::<UInt64Type>();
            let length = |key: u64| lengths.get(usize::try_from(key).ok()?).copied();
            keys.iter().flatten().filter_map(length).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{BinaryArray, DictionaryArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int8Type;

    fn bind(column: ArrayRef) -> Result<RecordBatch, Status> {
        values(&RecordBatch::try_from_iter([("x", column)]).unwrap())
    }

    #[test]
    fn what_is_kept_is_a_copy_of_its_own() {
        let long = Int64Array::from_iter_values(0..100_000).slice(7, 1);
        let kept = bind(Arc::new(long)).unwrap();
        assert!(kept.get_array_memory_size() < 1_000, "{}", kept.get_array_memory_size());
        assert_eq!(kept.column(0).as_ref(), &Int64Array::from(vec![7]) as &dyn Array);
        let words: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let kept = bind(Arc::new(words)).unwrap();
        assert_eq!(kept.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b", "a"]);
    }

    #[test]
    fn what_stands_for_too_much_and_what_is_no_value_is_refused() {
        let long = "x".repeat(1 << 20);
        let views = StringViewArray::from_iter_values(vec![long.as_str(); 17]);
        assert_eq!(bind(Arc::new(views)).unwrap_err().code(), Code::ResourceExhausted);
        let words: DictionaryArray<Int8Type> = vec![long.as_str(); 17].into_iter().collect();
        assert_eq!(bind(Arc::new(words)).unwrap_err().code(), Code::ResourceExhausted);
        let binary = BinaryArray::from(vec![b"x".as_slice()]);
        assert_eq!(bind(Arc::new(binary)).unwrap_err().code(), Code::InvalidArgument);
        let nothing = BinaryArray::from(vec![None::<&[u8]>]);
        assert_eq!(bind(Arc::new(nothing)).unwrap().num_rows(), 1);
    }
}
