//! Batches as they leave the server: in types that every client of Arrow knows.
//!
//! | SQL | Arrow |
//! |---|---|
//! | `byte`, `short`, `integer`, `long`, `unsigned_long` | `Int8`, `Int16`, `Int32`, `Int64`, `UInt64` |
//! | `float`, `double`, `boolean`, `date`, `time` | `Float32`, `Float64`, `Boolean`, `Date32`, `Time64(µs)` |
//! | `timestamp` | `Timestamp` of UTC, in ms of `date` fields, in ns of `date_nanos` fields, in µs where it is computed |
//! | strings, `ip`, `binary`; objects and points, as JSON | `Utf8` |
//! | intervals, as text; NULL | `Utf8`: drivers of JDBC lack one or the other |
//! | a field of several values | `List` of its values, also in rows that have one |
//!
//! Every column may be null, and names its SQL type in its metadata. Texts are copied out of the buffers that they were read into, and so
//! are rows that are a small part of theirs: what is handed on holds no more than itself.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MutableArrayData, RecordBatch, RecordBatchOptions, StringBuilder,
    make_array, new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use millrace_work::error::Error;

use super::bind::OutColumn;
use super::error::{Result, SqlError};
use super::format::value;
use super::types::SqlType;

/// Member of a field's metadata that names the SQL type, as Arrow Flight SQL has it.
const TYPE_NAME: &str = "ARROW:FLIGHT:SQL:TYPE_NAME";

/// Returns the Arrow type that values of a SQL type leave the server in.
pub(crate) fn exported(ty: SqlType) -> DataType {
    match ty.arrow() {
        DataType::Timestamp(unit, None) => DataType::Timestamp(unit, Some("UTC".into())),
        // Clients know times of day in microseconds.
        DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Utf8View | DataType::Null | DataType::Interval(_) => DataType::Utf8,
        other => other,
    }
}

/// Returns the schema that columns leave the server with.
pub(crate) fn exported_schema(columns: &[OutColumn]) -> SchemaRef {
    let field = |column: &OutColumn| {
        let ty = match column.list {
            true => DataType::List(Arc::new(Field::new_list_field(exported(column.ty), true))),
            false => exported(column.ty),
        };
        let name = column.alias.as_deref().unwrap_or(&column.name);
        let metadata = HashMap::from([(TYPE_NAME.to_owned(), column.shown.to_owned())]);
        Field::new(name, ty, true).with_metadata(metadata)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Makes batches what they leave the server as.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// SQL types of the columns as they are made.
    types: Vec<SqlType>,
    schema: SchemaRef,
}

impl Exporter {
    /// Makes the exporter of columns, which leave as they were described.
    ///
    /// # Errors
    /// [`SqlError::Semantic`] where values of parameters have given a column a type that does not become the one that was described.
    pub(crate) fn new(columns: &[OutColumn], described: &[OutColumn]) -> Result<Self> {
        if columns.len() != described.len() {
            return Err(SqlError::Semantic(
                "the statement has other columns than when it was described; describe it again".to_owned(),
            ));
        }
        for (own, other) in columns.iter().zip(described) {
            if !becomes(own, other) {
                return Err(SqlError::Semantic(format!(
                    "the values of the parameters make the column [{}] of type {}, and it was described as {}",
                    own.alias.as_deref().unwrap_or(&own.name),
                    own.ty.general_name(),
                    other.ty.general_name()
                )));
            }
        }
        let types = columns.iter().map(|column| column.ty).collect();
        Ok(Self { types, schema: exported_schema(described) })
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Exports some rows of a batch.
    ///
    /// # Errors
    /// A value does not fit the type that was described.
    pub(crate) fn rows(&self, batch: &RecordBatch, from: usize, count: usize) -> Result<RecordBatch> {
        // The buffers of a small part are the whole's.
        let copies = count < batch.num_rows() / 2;
        let mut columns = Vec::with_capacity(self.types.len());
        for ((array, ty), field) in batch.columns().iter().zip(&self.types).zip(self.schema.fields()) {
            let rows = array.slice(from, count);
            let made = column(&rows, *ty, field.data_type())?;
            let shares = copies && made.data_type() == rows.data_type();
            columns.push(if shares { copied(&made)? } else { made });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(Error::from)?)
    }
}

/// Returns whether the values of a column become those of the type that was described.
fn becomes(own: &OutColumn, described: &OutColumn) -> bool {
    let (from, to) = (own.ty, described.ty);
    let fits = from == to
        || from == SqlType::Undefined
        || exported(to) == DataType::Utf8
        || (from.is_integer() && to.is_number())
        || (from == SqlType::Float && to == SqlType::Double)
        || matches!((from, to), (SqlType::Timestamp(_), SqlType::Timestamp(_)));
    fits && own.list == described.list
}

/// Makes the values of a column those of an exported type.
fn column(array: &ArrayRef, ty: SqlType, to: &DataType) -> Result<ArrayRef> {
    Ok(match (array.data_type(), to) {
        (from, to) if from == to => Arc::clone(array),
        (DataType::Null, to) => new_null_array(to, array.len()),
        (DataType::Timestamp(unit, _), DataType::Timestamp(other, zone)) if unit == other => {
            let zone = zone.clone();
            match unit {
                TimeUnit::Second => {
                    Arc::new(array.as_primitive::<TimestampSecondType>().clone().with_timezone_opt(zone))
                }
                TimeUnit::Millisecond => {
                    Arc::new(array.as_primitive::<TimestampMillisecondType>().clone().with_timezone_opt(zone))
                }
                TimeUnit::Microsecond => {
                    Arc::new(array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone))
                }
                TimeUnit::Nanosecond => {
                    Arc::new(array.as_primitive::<TimestampNanosecondType>().clone().with_timezone_opt(zone))
                }
            }
        }
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let (first, last) = match (offsets.first(), offsets.last()) {
                (Some(first), Some(last)) => (*first, *last),
                _ => (0, 0),
            };
            // Offsets ascend from zero.
            let values = list.values().slice(first as usize, (last - first) as usize);
            let values = column(&values, ty, item.data_type())?;
            let lengths = offsets.windows(2).map(|pair| match pair {
                [one, next] => (next - one) as usize,
                _ => 0,
            });
            let offsets = OffsetBuffer::from_lengths(lengths);
            let made = ListArray::try_new(Arc::clone(item), offsets, values, list.nulls().cloned());
            Arc::new(made.map_err(Error::from)?)
        }
        (DataType::Utf8View, DataType::Utf8) => cast(array, to)?,
        (_, DataType::Utf8) => {
            let mut texts = StringBuilder::new();
            let mut text = String::new();
            for row in 0..array.len() {
                text.clear();
                value::text(array, row, ty, &mut text);
                texts.append_option(array.is_valid(row).then_some(text.as_str()));
            }
            Arc::new(texts.finish())
        }
        (_, to) => cast(array, to)?,
    })
}

/// Converts an array; a value that does not fit is refused.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &options).map_err(|error| {
        SqlError::Evaluation(format!("a value is none of [{to}], as it was described: {error}"))
    })
}

/// Copies an array out of the buffers that it is a part of.
fn copied(array: &ArrayRef) -> Result<ArrayRef> {
    let data = array.to_data();
    let mut own = MutableArrayData::new(vec![&data], false, data.len());
    own.try_extend(0, 0, data.len()).map_err(Error::from)?;
    Ok(make_array(own.freeze()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Int32Array, Int64Array, IntervalMonthDayNanoArray, ListBuilder, NullArray, StringViewArray,
        StringViewBuilder, TimestampMillisecondArray,
    };
    use datafusion::arrow::datatypes::{IntervalMonthDayNano, TimestampMillisecondType};

    use super::*;

    fn out(ty: SqlType, list: bool) -> OutColumn {
        OutColumn { name: "c".to_owned(), alias: None, ty, list, shown: ty.name(), element: None }
    }

    /// Exports rows of one column, as another was described.
    fn export(
        array: ArrayRef,
        own: &OutColumn,
        described: &OutColumn,
        from: usize,
        count: usize,
    ) -> Result<ArrayRef> {
        let batch = RecordBatch::try_from_iter_with_nullable([("c0", array, true)]).unwrap();
        let exporter = Exporter::new(std::slice::from_ref(own), std::slice::from_ref(described))?;
        Ok(Arc::clone(exporter.rows(&batch, from, count)?.column(0)))
    }

    fn same(array: ArrayRef, ty: SqlType) -> ArrayRef {
        let (column, rows) = (out(ty, false), array.len());
        export(array, &column, &column, 0, rows).unwrap()
    }

    #[test]
    fn types_are_those_of_clients() {
        let texts = same(
            Arc::new(StringViewArray::from(vec![Some("a"), None, Some("longer than a view holds")])),
            SqlType::Text,
        );
        let expected = [Some("a"), None, Some("longer than a view holds")];
        assert_eq!(texts.as_string::<i32>().iter().collect::<Vec<_>>(), expected);
        let nulls = same(Arc::new(NullArray::new(2)), SqlType::Undefined);
        assert_eq!((nulls.data_type(), nulls.null_count()), (&DataType::Utf8, 2));
        let spans = vec![Some(IntervalMonthDayNano::new(1, 2, 3_500_000_000)), None];
        let spans = same(Arc::new(IntervalMonthDayNanoArray::from(spans)), SqlType::Interval);
        assert_eq!(spans.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("P1M2DT3.5S"), None]);
        let times = TimestampMillisecondArray::from(vec![Some(5), None]);
        let times = same(Arc::new(times), SqlType::Timestamp(crate::types::Resolution::Millis));
        assert_eq!(times.data_type(), &DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())));
        assert_eq!(
            times.as_primitive::<TimestampMillisecondType>().iter().collect::<Vec<_>>(),
            [Some(5), None]
        );
    }

    #[test]
    fn lists_leave_with_their_own_values_only() {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for row in [vec!["a"; 1_000], vec!["b", "c"], vec![], vec!["d"]] {
            row.iter().for_each(|text| lists.values().append_value(text));
            lists.append(true);
        }
        lists.append(false);
        let column = out(SqlType::Keyword, true);
        let made = export(Arc::new(lists.finish()), &column, &column, 1, 4).unwrap();
        let made = made.as_list::<i32>();
        assert_eq!(made.values().as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!((made.value_offsets(), made.null_count()), ([0, 2, 2, 3, 3].as_slice(), 1));
    }

    #[test]
    fn columns_leave_as_they_were_described() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        let (integer, long) = (out(SqlType::Integer, false), out(SqlType::Long, false));
        let made = export(Arc::clone(&numbers), &integer, &long, 0, 2).unwrap();
        assert_eq!(made.as_ref(), &Int64Array::from(vec![Some(7), None]) as &dyn Array);
        let text = export(Arc::clone(&numbers), &integer, &out(SqlType::Undefined, false), 0, 2).unwrap();
        assert_eq!(text.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("7"), None]);
        // What does not fit is refused, by its type before it is run, by its value else.
        let refused = export(numbers, &out(SqlType::Double, false), &integer, 0, 2).unwrap_err();
        assert!(refused.to_string().contains("described as INTEGER"), "{refused}");
        let large: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        assert_eq!(export(large, &long, &integer, 0, 1).unwrap_err().status(), 400);
    }
}
