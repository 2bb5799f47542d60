//! The mapping of an index that is created for rows: what brings their values back as they were.
//!
//! Strings are keywords, because whoever ingests a table wants its values and not words of them; numbers have their widths; timestamps
//! of seconds and milliseconds are `date`, finer ones `date_nanos`.

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, TimeUnit};
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::status;

/// Column that names documents, and is no field of theirs.
pub(super) const ID: &str = "_id";

/// Makes the mapping for the columns of a schema.
///
/// # Errors
/// `INVALID_ARGUMENT` for what documents cannot hold.
pub(super) fn of(schema: &Schema) -> Result<Value, Status> {
    let fields = schema.fields().iter().filter(|field| field.name() != ID);
    Ok(json!({ "properties": properties(fields)? }))
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
    properties(schema.fields()).map(drop)
}

fn properties<'a>(fields: impl IntoIterator<Item = &'a FieldRef>) -> Result<Value, Status> {
    let mut properties = Map::new();
    let mut names = std::collections::HashSet::new();
    for field in fields {
        let name = field.name();
        if name.is_empty() || name.len() > 512 {
            return Err(refused(name, "its name is empty or longer than 512 bytes"));
        }
        if !names.insert(name) {
            return Err(refused(name, "it is there twice"));
        }
        if let Some(mapped) = mapped(name, field.data_type())? {
            properties.insert(name.clone(), mapped);
        }
    }
    Ok(Value::Object(properties))
}

/// Returns the mapping of a type; none of one that has no values.
fn mapped(name: &str, kind: &DataType) -> Result<Option<Value>, Status> {
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
        DataType::Timestamp(_, _) => "date_nanos",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "binary"
        }
        DataType::Dictionary(_, values) => return mapped(name, values),
        DataType::RunEndEncoded(_, values) => return mapped(name, values.data_type()),
        // An array has the mapping of its elements.
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => return mapped(name, item.data_type()),
        DataType::Struct(fields) => return Ok(Some(json!({ "properties": properties(fields)? }))),
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
            mapped(name, value.data_type())?;
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
        assert_eq!(of(&schema).unwrap(), expected);
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
