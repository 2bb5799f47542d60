//! The mapping of an index that is created for rows: it brings their values back as they were.
//!
//! Strings are keywords, because whoever ingests a table wants its values and not words of them; numbers have their widths; timestamps
//! of seconds and milliseconds are `date`, finer ones `date_nanos` where it holds those of the first rows, else `date`.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use datafusion::arrow::compute::{max, min};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::status;

/// Column that names documents, and is no field of theirs.
pub(super) const ID: &str = "_id";

/// Makes the mapping for the columns of a schema, with the first rows where there are some.
///
/// # Errors
/// `INVALID_ARGUMENT` for what documents cannot hold.
pub(super) fn from_schema(schema: &Schema, rows: Option<&RecordBatch>) -> Result<Value, Status> {
    let fields = schema.fields().iter().enumerate();
    let fields = fields.map(|(at, field)| (field, rows.and_then(|rows| rows.columns().get(at))));
    Ok(json!({ "properties": properties(fields.filter(|(field, _)| field.name() != ID))? }))
}

/// Refuses a schema whose rows no documents can be made of.
///
/// # Errors
/// `INVALID_ARGUMENT` with the column.
pub(super) fn check(schema: &Schema) -> Result<(), Status> {
    let ids = schema.fields().iter().find(|field| field.name() == ID);
    if let Some(id) = ids {
        let kind = plain(id.data_type());
        let names =
            matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
                || kind.is_integer();
        if !names {
            return Err(refused(ID, "it is neither text nor an integer"));
        }
    }
    properties(schema.fields().iter().map(|field| (field, None))).map(drop)
}

fn properties<'a>(
    fields: impl IntoIterator<Item = (&'a FieldRef, Option<&'a ArrayRef>)>,
) -> Result<Value, Status> {
    let mut properties = Map::new();
    let mut names = std::collections::HashSet::new();
    for (field, column) in fields {
        let name = field.name();
        if name.is_empty() || name.len() > 512 {
            return Err(refused(name, "its name is empty or longer than 512 bytes"));
        }
        if !names.insert(name) {
            return Err(refused(name, "it is there twice"));
        }
        if let Some(mapped) = mapped(name, field.data_type(), column)? {
            properties.insert(name.clone(), mapped);
        }
    }
    Ok(Value::Object(properties))
}

/// Returns true where `date_nanos` holds all times of a column: none is before 1970 or after 2262-04-11.
fn are_nanos(column: &ArrayRef) -> bool {
    let (least, most) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            (min(times), max(times).and_then(|most| most.checked_mul(1_000)).or(max(times).map(|_| -1)))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let times = column.as_primitive::<TimestampNanosecondType>();
            (min(times), max(times))
        }
        _ => (None, None),
    };
    least.into_iter().chain(most).all(|time| time >= 0)
}

/// Returns the values that an encoded column or one of lists has.
fn inner(column: &ArrayRef) -> Option<&ArrayRef> {
    Some(match column.data_type() {
        DataType::Dictionary(..) => column.as_any_dictionary_opt()?.values(),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => column.as_run_opt::<Int16Type>()?.values(),
            DataType::Int32 => column.as_run_opt::<Int32Type>()?.values(),
            _ => column.as_run_opt::<Int64Type>()?.values(),
        },
        DataType::List(_) => column.as_list_opt::<i32>()?.values(),
        DataType::LargeList(_) => column.as_list_opt::<i64>()?.values(),
        DataType::ListView(_) => column.as_list_view_opt::<i32>()?.values(),
        DataType::LargeListView(_) => column.as_list_view_opt::<i64>()?.values(),
        DataType::FixedSizeList(..) => column.as_fixed_size_list_opt()?.values(),
        _ => return None,
    })
}

/// Returns the mapping of a type; none of one that has no values.
fn mapped(name: &str, kind: &DataType, column: Option<&ArrayRef>) -> Result<Option<Value>, Status> {
    let word = match kind {
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale)
            if *digits == 0 || i16::from(*scale) > i16::from(*digits) =>
        {
            return Err(refused(name, &format!("[{kind}] has fewer digits than places")));
        }
        DataType::Null => return Ok(None),
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 | DataType::UInt8 => "short",
        DataType::Int32 | DataType::UInt16 => "integer",
        DataType::Int64 | DataType::UInt32 | DataType::Duration(_) => "long",
        DataType::UInt64 => "unsigned_long",
        DataType::Float16 => "half_float",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Decimal32(digits, 0) | DataType::Decimal64(digits, 0) | DataType::Decimal128(digits, 0)
            if *digits <= 18 =>
        {
            "long"
        }
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "keyword",
        DataType::Time32(_) | DataType::Time64(_) => "keyword",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _) => "date",
        DataType::Timestamp(_, _) if column.is_none_or(are_nanos) => "date_nanos",
        DataType::Timestamp(_, _) => "date",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "binary"
        }
        DataType::Dictionary(_, values) => return mapped(name, values, column.and_then(inner)),
        DataType::RunEndEncoded(_, values) => {
            return mapped(name, values.data_type(), column.and_then(inner));
        }
        // An array has the mapping of its elements.
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            return mapped(name, item.data_type(), column.and_then(inner));
        }
        DataType::Struct(fields) => {
            let columns = column.and_then(AsArray::as_struct_opt).map(StructArray::columns);
            let fields = fields.iter().enumerate();
            let fields = fields.map(|(at, field)| (field, columns.and_then(|columns| columns.get(at))));
            return Ok(Some(json!({ "properties": properties(fields)? })));
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(refused(name, "its map has no entries"));
            };
            let [key, value] = &fields[..] else {
                return Err(refused(name, "the entries of its map are not keys and values"));
            };
            let text =
                matches!(plain(key.data_type()), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            if !text {
                return Err(refused(name, "the keys of its map are not text"));
            }
            mapped(name, value.data_type(), None)?;
            // Its members are not known: they get their mapping as they come.
            return Ok(Some(json!({ "type": "object" })));
        }
        DataType::Interval(_) | DataType::Union(..) => {
            return Err(refused(name, &format!("documents cannot hold values of the type [{kind}]")));
        }
    };
    Ok(Some(json!({ "type": word })))
}

/// Returns the type of values, however they are encoded.
pub(super) fn plain(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        kind => kind,
    }
}

fn refused(name: &str, reason: &str) -> Status {
    let name: String = name.chars().take(100).collect();
    status::new(Code::InvalidArgument, &format!("column [{name}] cannot be ingested: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{Field, Fields, IntervalUnit};

    use super::*;

    fn schema(fields: Vec<(&str, DataType)>) -> Schema {
        Schema::new(fields.into_iter().map(|(name, kind)| Field::new(name, kind, true)).collect::<Vec<_>>())
    }

    #[test]
    fn types_have_the_mapping_that_brings_them_back() {
        let inner = Fields::from(vec![Field::new("n", DataType::Int16, true)]);
        let schema = schema(vec![
            (ID, DataType::Utf8),
            ("text", DataType::Utf8View),
            ("words", DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))),
            ("int", DataType::Int32),
            ("small", DataType::UInt8),
            ("big", DataType::UInt64),
            ("ratio", DataType::Float32),
            ("money", DataType::Decimal128(18, 2)),
            ("count", DataType::Decimal128(18, 0)),
            ("ms", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
            ("ns", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("list", DataType::new_list(DataType::Boolean, true)),
            ("object", DataType::Struct(inner)),
            ("nothing", DataType::Null),
        ]);
        check(&schema).unwrap();
        let expected = json!({ "properties": {
            "text": { "type": "keyword" }, "words": { "type": "keyword" }, "int": { "type": "integer" },
            "small": { "type": "short" }, "big": { "type": "unsigned_long" }, "ratio": { "type": "float" },
            "money": { "type": "double" }, "count": { "type": "long" }, "ms": { "type": "date" },
            "ns": { "type": "date_nanos" }, "list": { "type": "boolean" },
            "object": { "properties": { "n": { "type": "short" } } },
        }});
        assert_eq!(from_schema(&schema, None).unwrap(), expected);
    }

    #[test]
    fn times_that_nanoseconds_do_not_hold_are_dates() {
        use datafusion::arrow::array::{
            DictionaryArray, Int32Array, ListArray, StructArray, TimestampMicrosecondArray,
            TimestampNanosecondArray,
        };
        use datafusion::arrow::buffer::OffsetBuffer;
        let micros =
            |time: i64| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![None, Some(time)])) };
        let nanos =
            |time: i64| -> ArrayRef { Arc::new(TimestampNanosecondArray::from(vec![None, Some(time)])) };
        let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
        let listed = |array: ArrayRef| -> ArrayRef {
            Arc::new(ListArray::new(item(&array), OffsetBuffer::from_lengths([1, 1]), array, None))
        };
        let words = |array: ArrayRef| -> ArrayRef {
            Arc::new(DictionaryArray::new(Int32Array::from(vec![1, 1]), array))
        };
        let within =
            |array: ArrayRef| -> ArrayRef { Arc::new(StructArray::from(vec![(item(&array), array)])) };
        let zoned: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1, 5]).with_timezone("UTC"));
        let last = i64::MAX / 1_000;
        for (column, expected) in [
            (micros(0), "date_nanos"),
            (micros(last), "date_nanos"),
            (micros(last + 1), "date"),
            (micros(i64::MAX), "date"),
            (micros(-1), "date"),
            (nanos(0), "date_nanos"),
            (nanos(i64::MAX), "date_nanos"),
            (nanos(-1), "date"),
            (zoned, "date"),
            (listed(micros(-1)), "date"),
            (listed(micros(1)), "date_nanos"),
            (words(nanos(-1)), "date"),
            (words(nanos(1)), "date_nanos"),
            (within(listed(micros(-1))), "object of date"),
        ] {
            let rows = RecordBatch::try_from_iter([("t", Arc::clone(&column))]).unwrap();
            let mapped = match expected.strip_prefix("object of ") {
                None => json!({ "type": expected }),
                Some(kind) => json!({ "properties": { "item": { "type": kind } } }),
            };
            let whole = json!({ "properties": { "t": mapped } });
            assert_eq!(from_schema(&rows.schema(), Some(&rows)).unwrap(), whole, "{column:?}");
        }
    }

    #[test]
    fn what_documents_cannot_hold_is_refused_by_its_column() {
        for (fields, named) in [
            (vec![("a", DataType::Interval(IntervalUnit::DayTime))], "[a]"),
            (vec![("a", DataType::Utf8), ("a", DataType::Int8)], "[a]"),
            (vec![("", DataType::Utf8)], "[]"),
            (vec![(ID, DataType::Float64)], "[_id]"),
        ] {
            let error = check(&schema(fields)).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            assert!(error.message().contains(named), "{error}");
        }
    }
}
