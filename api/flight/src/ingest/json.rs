//! Rows of a batch as JSON: each a document.
//!
//! A [`Rows`] looks at the type of each column once. Nulls are left out, in arrays they stay. Numbers are written exactly; NaN counts as
//! no value, as whoever makes tables of floats means it, and an infinity is refused, since no mapping takes it.

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, GenericListArray, GenericListViewArray, OffsetSizeTrait,
    PrimitiveArray, RecordBatch, RunArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, ArrowPrimitiveType, DataType, Date32Type, Date64Type,
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, RunEndIndexType, TimeUnit, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};

use super::mapping::ID;
use super::time;

/// Longest document, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;
/// Longest id, as with the data API.
const MAX_ID: usize = 512;

/// Why a row is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RowError {
    /// A value that JSON or the mapping has no form for.
    #[error("column [{column}] has [{value}], which documents cannot hold")]
    Value { column: String, value: String },
    /// It is too long.
    #[error("it takes more than [{MAX_DOCUMENT}] bytes")]
    Long,
    /// Its id is none, or too long.
    #[error("its id is empty or takes more than [{MAX_ID}] bytes")]
    Id,
    /// Its type is none that can be written.
    #[error("a column has the type [{0}], which documents cannot hold")]
    Type(String),
}

type Result<T> = std::result::Result<T, RowError>;

/// Writes the values of a column.
trait Values: Send {
    fn is_null(&self, row: usize) -> bool;

    /// Writes a value that is not null.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()>;
}

type Column = Box<dyn Values>;

/// A member of an object: its name with quotes and a colon, and its values.
type Member = (Vec<u8>, String, Column);

/// The rows of a batch.
pub(super) struct Rows {
    members: Vec<Member>,
    ids: Option<Column>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

impl Rows {
    /// Looks at the columns of a batch.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let (mut members, mut ids) = (Vec::with_capacity(batch.num_columns()), None);
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            match field.name() == ID {
                true => ids = Some(values(column)?),
                false => members.push(member(field.name(), column)?),
            }
        }
        Ok(Self { members, ids })
    }

    /// Appends the document of a row.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        object(&self.members, row, out)
    }

    /// Returns the id of a row, if it has one. `text` is room to write in.
    pub(super) fn id(&self, row: usize, text: &mut Vec<u8>) -> Result<Option<String>> {
        let Some(ids) = self.ids.as_ref().filter(|ids| !ids.is_null(row)) else { return Ok(None) };
        text.clear();
        ids.write(row, text)?;
        let id: Option<String> = match text.first() {
            // Each of its bytes takes six at most.
            _ if text.len() > 6 * MAX_ID + 2 => None,
            Some(b'"') => serde_json::from_slice(text).ok(),
            _ => String::from_utf8(text.clone()).ok(),
        };
        id.filter(|id| (1..=MAX_ID).contains(&id.len())).map(Some).ok_or(RowError::Id)
    }
}

fn member(name: &str, column: &ArrayRef) -> Result<Member> {
    let mut prefix = Vec::with_capacity(name.len() + 3);
    string(name, &mut prefix)?;
    prefix.push(b':');
    let shown = name.chars().take(100).collect();
    Ok((prefix, shown, values(column)?))
}

fn object(members: &[Member], row: usize, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    let (begin, empty) = (out.len() - 1, out.len());
    for (prefix, name, column) in members {
        if column.is_null(row) {
            continue;
        }
        if out.len() > empty {
            out.push(b',');
        }
        out.extend_from_slice(prefix);
        column.write(row, out).map_err(|error| named(error, name))?;
        bounded(begin, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Adds the column to an error that has none.
fn named(error: RowError, name: &str) -> RowError {
    match error {
        RowError::Value { column, value } if column.is_empty() => {
            RowError::Value { column: name.to_owned(), value }
        }
        error => error,
    }
}

fn unwritable(value: impl fmt::Display) -> RowError {
    RowError::Value { column: String::new(), value: value.to_string() }
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    if text.len() > MAX_DOCUMENT {
        return Err(RowError::Long);
    }
    serde_json::to_writer(out, text).map_err(unwritable)
}

/// Refuses a document that grows beyond all measure: arrays may be long, and encodings make much of little. `begin` is where what is
/// written began.
fn bounded(begin: usize, out: &[u8]) -> Result<()> {
    if out.len() - begin > MAX_DOCUMENT { Err(RowError::Long) } else { Ok(()) }
}

/// Numbers, and what is written like them.
struct Primitive<T: ArrowPrimitiveType, F>(PrimitiveArray<T>, F);

impl<T, F> Values for Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: Fn(T::Native, &mut Vec<u8>) -> Result<()> + Send,
{
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        (self.1)(self.0.value(row), out)
    }
}

fn primitive<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    write: impl Fn(T::Native, &mut Vec<u8>) -> Result<()> + Send + 'static,
) -> Column {
    Box::new(Primitive(array.as_primitive::<T>().clone(), write))
}

fn integers<T: ArrowPrimitiveType<Native: fmt::Display>>(array: &ArrayRef) -> Column {
    primitive::<T>(array, |value, out| write!(out, "{value}").map_err(unwritable))
}

/// Floats, of which some are no numbers. Those of fewer bits have fewer digits.
enum Floats {
    Narrow(PrimitiveArray<Float32Type>),
    Wide(PrimitiveArray<Float64Type>),
}

impl Floats {
    fn value(&self, row: usize) -> f64 {
        match self {
            Self::Narrow(array) => f64::from(array.value(row)),
            Self::Wide(array) => array.value(row),
        }
    }
}

impl Values for Floats {
    fn is_null(&self, row: usize) -> bool {
        let is_null = match self {
            Self::Narrow(array) => array.is_null(row),
            Self::Wide(array) => array.is_null(row),
        };
        is_null || self.value(row).is_nan()
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let value = self.value(row);
        if value.is_infinite() {
            return Err(unwritable(value));
        }
        let written = match self {
            Self::Narrow(array) => serde_json::to_writer(out, &array.value(row)),
            Self::Wide(_) => serde_json::to_writer(out, &value),
        };
        written.map_err(unwritable)
    }
}

/// No values at all.
struct NullColumn;

impl Values for NullColumn {
    fn is_null(&self, _row: usize) -> bool {
        true
    }

    fn write(&self, _row: usize, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b"null");
        Ok(())
    }
}

/// Anything whose values are found by their row and written by a function.
struct MappedColumn<A, F>(A, F);

impl<A, F> Values for MappedColumn<A, F>
where
    A: Array + Send,
    F: Fn(&A, usize, &mut Vec<u8>) -> Result<()> + Send,
{
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        (self.1)(&self.0, row, out)
    }
}

fn with<A: Array + Send + 'static>(
    array: A,
    write: impl Fn(&A, usize, &mut Vec<u8>) -> Result<()> + Send + 'static,
) -> Column {
    Box::new(MappedColumn(array, write))
}

/// Values that are found by a key.
struct DictionaryColumn<K: ArrowPrimitiveType> {
    keys: PrimitiveArray<K>,
    values: Column,
}

impl<K: ArrowPrimitiveType> DictionaryColumn<K> {
    fn key(&self, row: usize) -> usize {
        self.keys.value(row).to_usize().unwrap_or(usize::MAX)
    }
}

impl<K: ArrowPrimitiveType> Values for DictionaryColumn<K> {
    fn is_null(&self, row: usize) -> bool {
        self.keys.is_null(row) || self.values.is_null(self.key(row))
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        self.values.write(self.key(row), out)
    }
}

fn keyed<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Result<Column> {
    let dictionary = array.as_dictionary::<K>();
    Ok(Box::new(DictionaryColumn { keys: dictionary.keys().clone(), values: values(dictionary.values())? }))
}

/// Lists, as the range of their elements.
struct Lists<A, F> {
    lists: A,
    range: F,
    items: Column,
}

impl<A: Array + Send, F: Fn(&A, usize) -> (usize, usize) + Send> Values for Lists<A, F> {
    fn is_null(&self, row: usize) -> bool {
        self.lists.is_null(row)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let (first, end) = (self.range)(&self.lists, row);
        let begin = out.len();
        out.push(b'[');
        for item in first..end {
            if item > first {
                out.push(b',');
            }
            match self.items.is_null(item) {
                true => out.extend_from_slice(b"null"),
                false => self.items.write(item, out)?,
            }
            bounded(begin, out)?;
        }
        out.push(b']');
        Ok(())
    }
}

fn list<O: OffsetSizeTrait>(array: &GenericListArray<O>) -> Result<Column> {
    let items = values(array.values())?;
    let range = |lists: &GenericListArray<O>, row: usize| {
        let offsets = lists.value_offsets();
        (offsets[row].as_usize(), offsets[row + 1].as_usize())
    };
    Ok(Box::new(Lists { lists: array.clone(), range, items }))
}

fn list_view<O: OffsetSizeTrait>(array: &GenericListViewArray<O>) -> Result<Column> {
    let items = values(array.values())?;
    let range = |lists: &GenericListViewArray<O>, row: usize| {
        let first = lists.value_offset(row).as_usize();
        (first, first + lists.value_size(row).as_usize())
    };
    Ok(Box::new(Lists { lists: array.clone(), range, items }))
}

/// Objects whose members are their own.
struct Maps {
    maps: datafusion::arrow::array::MapArray,
    keys: Column,
    values: Column,
}

impl Values for Maps {
    fn is_null(&self, row: usize) -> bool {
        self.maps.is_null(row)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let offsets = self.maps.value_offsets();
        let (first, end) = (offsets[row] as usize, offsets[row + 1] as usize);
        if end.saturating_sub(first) > MAX_DOCUMENT {
            return Err(RowError::Long);
        }
        let begin = out.len();
        out.push(b'{');
        for entry in first..end {
            if self.keys.is_null(entry) || self.values.is_null(entry) {
                continue;
            }
            if out.len() > begin + 1 {
                out.push(b',');
            }
            self.keys.write(entry, out)?;
            out.push(b':');
            self.values.write(entry, out)?;
            bounded(begin, out)?;
        }
        out.push(b'}');
        Ok(())
    }
}

fn runs<R: RunEndIndexType>(array: &ArrayRef) -> Result<Column> {
    let runs = array.as_any().downcast_ref::<RunArray<R>>();
    let runs = runs.ok_or_else(|| RowError::Type(array.data_type().to_string()))?.clone();
    let values = values(runs.values())?;
    Ok(Box::new(RunEndColumn { runs, values }))
}

/// Values that repeat, found by the run that a row is in.
struct RunEndColumn<R: RunEndIndexType> {
    runs: RunArray<R>,
    values: Column,
}

impl<R: RunEndIndexType> Values for RunEndColumn<R> {
    fn is_null(&self, row: usize) -> bool {
        self.values.is_null(self.runs.get_physical_index(row))
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        self.values.write(self.runs.get_physical_index(row), out)
    }
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
    Ok(())
}

/// Writes a text that has nothing to escape.
fn quoted(
    value: impl fmt::Display,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Option<()>,
) -> Result<()> {
    out.push(b'"');
    write(out).ok_or_else(|| unwritable(value))?;
    out.push(b'"');
    Ok(())
}

/// Timestamps and times, as their numbers.
fn moments(
    array: &ArrayRef,
    unit: TimeUnit,
    write: fn(i64, &TimeUnit, &mut Vec<u8>) -> Option<()>,
) -> Result<Column> {
    let numbers = cast(array, &DataType::Int64).map_err(|_| RowError::Type(array.data_type().to_string()))?;
    Ok(primitive::<Int64Type>(&numbers, move |value, out| quoted(value, out, |out| write(value, &unit, out))))
}

fn decimals<T>(array: &ArrayRef) -> Column
where
    T: datafusion::arrow::datatypes::DecimalType + Send,
{
    with(array.as_primitive::<T>().clone(), |array, row, out| {
        // What reads batches does not look, and digits beyond would be left out.
        if !T::is_valid_decimal_precision(array.value(row), array.precision()) {
            return Err(unwritable(format_args!("a number of more than {} digits", array.precision())));
        }
        out.extend_from_slice(array.value_as_string(row).as_bytes());
        Ok(())
    })
}

fn values(array: &ArrayRef) -> Result<Column> {
    let unknown = || RowError::Type(array.data_type().to_string());
    Ok(match array.data_type() {
        DataType::Null => Box::new(NullColumn),
        DataType::Boolean => with(array.as_boolean().clone(), |array: &BooleanArray, row, out| {
            out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
            Ok(())
        }),
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::UInt64 => integers::<UInt64Type>(array),
        DataType::Duration(TimeUnit::Second) => integers::<DurationSecondType>(array),
        DataType::Duration(TimeUnit::Millisecond) => integers::<DurationMillisecondType>(array),
        DataType::Duration(TimeUnit::Microsecond) => integers::<DurationMicrosecondType>(array),
        DataType::Duration(TimeUnit::Nanosecond) => integers::<DurationNanosecondType>(array),
        DataType::Float16 => {
            let wide = cast(array, &DataType::Float32).map_err(|_| unknown())?;
            Box::new(Floats::Narrow(wide.as_primitive::<Float32Type>().clone()))
        }
        DataType::Float32 => Box::new(Floats::Narrow(array.as_primitive::<Float32Type>().clone())),
        DataType::Float64 => Box::new(Floats::Wide(array.as_primitive::<Float64Type>().clone())),
        DataType::Decimal32(..) => decimals::<Decimal32Type>(array),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(array),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(array),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(array),
        DataType::Utf8 => {
            with(array.as_string::<i32>().clone(), |array, row, out| string(array.value(row), out))
        }
        DataType::LargeUtf8 => {
            with(array.as_string::<i64>().clone(), |array, row, out| string(array.value(row), out))
        }
        DataType::Utf8View => {
            with(array.as_string_view().clone(), |array, row, out| string(array.value(row), out))
        }
        DataType::Binary => {
            with(array.as_binary::<i32>().clone(), |array, row, out| base64(array.value(row), out))
        }
        DataType::LargeBinary => {
            with(array.as_binary::<i64>().clone(), |array, row, out| base64(array.value(row), out))
        }
        DataType::BinaryView => {
            with(array.as_binary_view().clone(), |array, row, out| base64(array.value(row), out))
        }
        DataType::FixedSizeBinary(_) => {
            with(array.as_fixed_size_binary().clone(), |array, row, out| base64(array.value(row), out))
        }
        DataType::Date32 => primitive::<Date32Type>(array, |days, out| {
            quoted(days, out, |out| time::day(i64::from(days), out))
        }),
        DataType::Date64 => primitive::<Date64Type>(array, |value, out| {
            quoted(value, out, |out| time::instant(value, &TimeUnit::Millisecond, out))
        }),
        DataType::Timestamp(unit, _) => moments(array, *unit, time::instant)?,
        DataType::Time32(unit) => {
            let numbers = cast(array, &DataType::Int32).map_err(|_| unknown())?;
            moments(&numbers, *unit, time::time)?
        }
        DataType::Time64(unit) => moments(array, *unit, time::time)?,
        DataType::Dictionary(keys, _) => match **keys {
            DataType::Int8 => keyed::<Int8Type>(array)?,
            DataType::Int16 => keyed::<Int16Type>(array)?,
            DataType::Int32 => keyed::<Int32Type>(array)?,
            DataType::Int64 => keyed::<Int64Type>(array)?,
            DataType::UInt8 => keyed::<UInt8Type>(array)?,
            DataType::UInt16 => keyed::<UInt16Type>(array)?,
            DataType::UInt32 => keyed::<UInt32Type>(array)?,
            DataType::UInt64 => keyed::<UInt64Type>(array)?,
            _ => return Err(unknown()),
        },
        // Never as what it stands for: a few bytes may stand for any number.
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => runs::<Int16Type>(array)?,
            DataType::Int32 => runs::<Int32Type>(array)?,
            DataType::Int64 => runs::<Int64Type>(array)?,
            _ => return Err(unknown()),
        },
        DataType::List(_) => list(array.as_list::<i32>())?,
        DataType::LargeList(_) => list(array.as_list::<i64>())?,
        DataType::ListView(_) => list_view(array.as_list_view::<i32>())?,
        DataType::LargeListView(_) => list_view(array.as_list_view::<i64>())?,
        DataType::FixedSizeList(_, size) => {
            let (lists, size) =
                (array.as_fixed_size_list().clone(), usize::try_from(*size).unwrap_or_default());
            let items = values(lists.values())?;
            let range = move |_: &datafusion::arrow::array::FixedSizeListArray, row: usize| {
                (row * size, (row + 1) * size)
            };
            Box::new(Lists { lists, range, items })
        }
        DataType::Struct(fields) => {
            let structs = array.as_struct().clone();
            let members =
                fields.iter().zip(structs.columns()).map(|(field, column)| member(field.name(), column));
            let members = members.collect::<Result<Vec<_>>>()?;
            with(structs, move |_, row, out| object(&members, row, out))
        }
        DataType::Map(..) => {
            let maps = array.as_map().clone();
            let (keys, values) = (values(maps.keys())?, values(maps.values())?);
            Box::new(Maps { maps, keys, values })
        }
        DataType::Interval(_) | DataType::Union(..) => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests;
