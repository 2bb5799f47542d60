//! The columns of a table of SQL: where each index has their values, and how these become Arrow arrays.
//!
//! A field is read from its column. Objects, what lies in nested objects, and fields without a column are
//! read from `_source`, as the JSON that the document has there.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewArray, StringViewBuilder, new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field as ArrowField, Float64Type, TimestampMillisecondType, TimestampNanosecondType,
};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};
use millrace_mapping::PathId;
use millrace_matching::address::AddressText;
use millrace_matching::table::{TableSegment, TableSnapshot};
use millrace_scoring::lists::Lists;
use millrace_segment::{NumberBounds, PageBounds};
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::elements::{ElementColumn, ElementLayout};
use super::functions::address::{BITS, bits_of};
use super::highlight::HighlightColumn;
use super::push::Clause;
use super::table::ScanSource;
use super::types::{NANOS, SqlType};

/// Suffix of the name of a column of the bits of addresses.
const BITS_SUFFIX: &str = " (bits)";

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct SqlColumn {
    /// Name in plans: the field's path.
    pub name: String,
    /// Type of its values.
    pub ty: SqlType,
    /// `true` if a row may have several values.
    pub list: bool,
    /// `true` if addresses are held as their bits, as keys of groups are.
    pub bits: bool,
    /// Layout of a column of the elements of a nested path.
    pub elements: Option<ElementLayout>,
    /// By index of the snapshot.
    pub sources: Vec<ColumnSource>,
}

/// Bounds of a column in a segment.
#[derive(Clone, Debug)]
pub(crate) struct ColumnBounds {
    /// The least value; null where there is none.
    pub least: ScalarValue,
    /// The greatest.
    pub most: ScalarValue,
    /// `true` if every row has a value.
    pub full: bool,
}

/// Source of a column's values in an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnSource {
    /// It has none.
    Missing,
    Column {
        /// The column.
        id: PathId,
        /// Type of the index's own field.
        ty: SqlType,
        /// Longest string that counts.
        ignore_above: Option<usize>,
    },
    /// In `_source`, at a path.
    Source(Vec<String>),
    /// The document's id.
    Id,
    /// The document's routing value.
    Routing,
    /// The number of the document's last operation, for statements that delete.
    SeqNo,
    /// The term of that operation.
    PrimaryTerm,
    /// The name of the index.
    Index(String),
    /// In the elements of a nested path.
    Elements(ElementColumn),
    /// Fragments of a field that match.
    Highlight(Arc<HighlightColumn>),
}

impl SqlColumn {
    /// Returns the Arrow type of the column.
    pub(crate) fn arrow(&self) -> DataType {
        let list = |item: DataType| DataType::List(Arc::new(ArrowField::new_list_field(item, true)));
        match self.elements {
            _ if self.bits => BITS,
            None | Some(ElementLayout::Values) => arrow_type(self.ty, self.list),
            Some(ElementLayout::Each) => list(arrow_type(self.ty, self.list)),
            Some(ElementLayout::Within) => list(list(arrow_type(self.ty, self.list))),
        }
    }

    /// Returns a column of the bits of its addresses; `None` where it holds something else, or several in a row.
    pub(crate) fn address_bits(&self) -> Option<Self> {
        let addresses = |source: &ColumnSource| match source {
            ColumnSource::Missing => true,
            ColumnSource::Column { ty, .. } => *ty == SqlType::Ip,
            _ => false,
        };
        let plain = self.ty == SqlType::Ip && !self.list && self.sources.iter().all(addresses);
        plain.then(|| Self { name: format!("{}{BITS_SUFFIX}", self.name), bits: true, ..self.clone() })
    }

    /// Returns whether its values are those of a field: highlights and elements of nested paths are not.
    pub(crate) fn is_field(&self) -> bool {
        let highlights = |source: &ColumnSource| matches!(source, ColumnSource::Highlight(_));
        self.elements.is_none() && !self.sources.iter().any(highlights)
    }

    /// Returns the path of the field.
    pub(crate) fn path(&self) -> &str {
        if self.bits { path_of(&self.name) } else { &self.name }
    }

    /// Returns the path of the field, or of the whole elements, that items of a column of elements are values of.
    pub(crate) fn element_path(&self) -> Option<&str> {
        let is_each = self.elements == Some(ElementLayout::Each) && self.element_clause().is_none();
        is_each.then(|| self.name.rsplit_once(" [").map(|(path, _)| path)).flatten()
    }

    /// Returns the nested path whose elements items are; `None` where that is not the same in all indices.
    pub(crate) fn nested_path<'s>(&self, scan: &'s ScanSource) -> Option<&'s str> {
        if self.elements != Some(ElementLayout::Each) {
            return None;
        }
        let mut found: Option<&str> = None;
        for (source, index) in self.sources.iter().zip(&scan.snapshot.indices) {
            let ColumnSource::Elements(column) = source else { continue };
            let path = index.mapping.nested_path_of(column.path)?;
            if found.is_some_and(|known| known != path) {
                return None;
            }
            found = Some(path);
        }
        found
    }

    /// Returns the clause whose truth for each element the column is.
    pub(crate) fn element_clause(&self) -> Option<&Clause> {
        self.sources.iter().find_map(|source| match source {
            ColumnSource::Elements(column) => column.clause(),
            _ => None,
        })
    }

    /// Returns the bounds that segments have of the column over all of their rows: the least and the greatest number or time.
    pub(crate) fn known(&self, snapshot: &TableSnapshot) -> Option<ColumnStatistics> {
        let (mut min, mut max, mut full) = (ScalarValue::Null, ScalarValue::Null, true);
        for segment in &snapshot.segments {
            let own = self.extremes(segment)?;
            full &= own.full;
            if !own.least.is_null() && (min.is_null() || own.least < min) {
                min = own.least;
            }
            if !own.most.is_null() && (max.is_null() || own.most > max) {
                max = own.most;
            }
        }
        if min.is_null() {
            return None;
        }
        let mut known = ColumnStatistics::new_unknown();
        (known.min_value, known.max_value) = (Precision::Exact(min), Precision::Exact(max));
        if full {
            known.null_count = Precision::Exact(0);
        }
        Some(known)
    }

    /// Returns the bounds that a segment has of the column over all of its rows; `None` where it has none.
    pub(crate) fn extremes(&self, segment: &TableSegment) -> Option<ColumnBounds> {
        if self.list || self.bits || self.elements.is_some() {
            return None;
        }
        let bounds = match self.sources.get(segment.index)? {
            ColumnSource::Missing => PageBounds { rows: 0..0, values: NumberBounds::Empty, full: false },
            ColumnSource::Column { id, ty, .. } if *ty == self.ty => segment.reader.bounds(*id),
            _ => return None,
        };
        let counts = self.ty.is_integer() || matches!(self.ty, SqlType::Timestamp(_));
        let (least, most): (ScalarValue, ScalarValue) = match bounds.values {
            NumberBounds::I64(least, most) if counts => (least.into(), most.into()),
            NumberBounds::U64(least, most) if counts => (least.into(), most.into()),
            NumberBounds::F64(least, most) if !counts && self.ty.is_number() => (least.into(), most.into()),
            NumberBounds::Empty => (ScalarValue::Null, ScalarValue::Null),
            _ => return None,
        };
        let full = bounds.full && bounds.values != NumberBounds::Empty;
        let (least, most) = (least.cast_to(&self.arrow()).ok()?, most.cast_to(&self.arrow()).ok()?);
        Some(ColumnBounds { least, most, full })
    }

    /// Makes the column's array of a segment's.
    pub(crate) fn of_array(&self, source: &ColumnSource, array: &ArrayRef) -> Result<ArrayRef> {
        let ColumnSource::Column { ty, ignore_above, .. } = source else {
            return Ok(new_null_array(&self.arrow(), array.len()));
        };
        if *array.data_type() == DataType::Null {
            return Ok(new_null_array(&self.arrow(), array.len()));
        }
        if self.bits {
            return bits_of(array).ok_or_else(|| {
                Error::Execution(format!("the column [{}] does not hold single addresses", self.name))
            });
        }
        let lists = Lists::new(array);
        let values = typed(&lists.values, *ty, *ignore_above)?;
        let values = match values.data_type() == &self.ty.arrow() {
            true => values,
            false if self.ty == NANOS => self.to_nanos(&values)?,
            false => cast(&values, &self.ty.arrow())?,
        };
        if !self.list {
            return Ok(match array.as_list_opt::<i32>() {
                None => values,
                // A segment that came to have several values behind the look at the snapshot: the first counts.
                Some(_) => {
                    let first = (0..array.len()).map(|row| lists.row(row).next().map(|at| at as u32));
                    let places: datafusion::arrow::array::UInt32Array = first.collect();
                    datafusion::arrow::compute::take(&values, &places, None)?
                }
            });
        }
        let item = Arc::new(ArrowField::new_list_field(self.ty.arrow(), true));
        match array.as_list_opt::<i32>() {
            Some(list) => {
                Ok(Arc::new(ListArray::try_new(item, list.offsets().clone(), values, list.nulls().cloned())?))
            }
            None => {
                let nulls = values.logical_nulls();
                let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, values.len()));
                Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
            }
        }
    }

    /// Makes nanoseconds of the times of an index whose field is a date, where it is date_nanos in another.
    fn to_nanos(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(values, &self.ty.arrow(), &exact).map_err(|_| {
            Error::IllegalArgument(format!(
                "field [{}] is a date in one index and date_nanos in another, which times before 1677-09-21 and after \
                 2262-04-11 are no values of; name the indices in statements of their own",
                self.name
            ))
        })
    }

    /// Returns whether it holds single texts.
    pub(crate) fn is_text(&self) -> bool {
        let plain = !self.list && !self.bits && self.elements.is_none();
        plain && matches!(self.ty, SqlType::Keyword | SqlType::Text)
    }

    /// Makes the column's array of the texts that documents have at its name; `None` where one has none, or something else.
    pub(crate) fn of_texts(&self, sources: &[Value]) -> Option<ArrayRef> {
        let texts = sources.iter().map(|source| source.get(&self.name)?.as_str());
        let texts = texts.collect::<Option<Vec<&str>>>()?;
        Some(Arc::new(StringViewArray::from_iter_values(texts)))
    }

    /// Makes the column's array of the values that documents have in `_source`.
    pub(crate) fn of_sources(&self, path: &[String], sources: &[Value]) -> Result<ArrayRef> {
        let mut texts = StringViewBuilder::with_capacity(sources.len());
        for source in sources {
            match at_path(source, path) {
                None | Some(Value::Null) => texts.append_null(),
                Some(Value::String(text)) if !self.ty.is_json() => texts.append_value(text),
                Some(value) => texts.append_value(value.to_string()),
            }
        }
        let texts: ArrayRef = Arc::new(texts.finish());
        let values = match self.ty.arrow() {
            DataType::Utf8View => texts,
            other => cast(&texts, &other)?,
        };
        if !self.list {
            return Ok(values);
        }
        let item = Arc::new(ArrowField::new_list_field(self.ty.arrow(), true));
        let nulls = values.logical_nulls();
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, values.len()));
        Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
    }
}

/// Returns the path of the field of a column with a name.
pub(crate) fn path_of(name: &str) -> &str {
    name.strip_suffix(BITS_SUFFIX).unwrap_or(name)
}

/// Returns the Arrow type of a column.
pub(crate) fn arrow_type(ty: SqlType, list: bool) -> DataType {
    match list {
        false => ty.arrow(),
        true => DataType::List(Arc::new(ArrowField::new_list_field(ty.arrow(), true))),
    }
}

/// Makes values of a segment's column those of its SQL type.
fn typed(values: &ArrayRef, ty: SqlType, ignore_above: Option<usize>) -> Result<ArrayRef> {
    Ok(match (ty, values.data_type()) {
        (SqlType::Timestamp(_), DataType::Timestamp(_, _)) => {
            match (values.as_primitive_opt::<TimestampMillisecondType>(), values) {
                (Some(millis), _) => Arc::new(millis.clone().with_timezone_opt(None::<Arc<str>>)),
                (None, values) => match values.as_primitive_opt::<TimestampNanosecondType>() {
                    Some(nanos) => Arc::new(nanos.clone().with_timezone_opt(None::<Arc<str>>)),
                    None => Arc::clone(values),
                },
            }
        }
        (SqlType::Ip, DataType::FixedSizeBinary(16)) => {
            let addresses = values.as_fixed_size_binary();
            let mut texts = StringViewBuilder::with_capacity(values.len());
            for at in 0..values.len() {
                match <[u8; 16]>::try_from(addresses.value(at)) {
                    Ok(bytes) if addresses.is_valid(at) => texts.append_value(&*AddressText::new(bytes)),
                    _ => texts.append_null(),
                }
            }
            Arc::new(texts.finish())
        }
        (SqlType::GeoPoint, DataType::Struct(_)) => {
            let points = values.as_struct();
            let (Some(lat), Some(lon)) = (points.column_by_name("lat"), points.column_by_name("lon")) else {
                return Err(Error::Execution("a column of points lacks a coordinate".to_owned()));
            };
            let (lat, lon) = (lat.as_primitive::<Float64Type>(), lon.as_primitive::<Float64Type>());
            let mut texts = StringViewBuilder::with_capacity(values.len());
            for at in 0..values.len() {
                match points.is_valid(at) {
                    true => texts.append_value(
                        serde_json::json!({"lat": lat.value(at), "lon": lon.value(at)}).to_string(),
                    ),
                    false => texts.append_null(),
                }
            }
            Arc::new(texts.finish())
        }
        (_, DataType::Utf8View) => match ignore_above {
            None => Arc::clone(values),
            Some(limit) => {
                let strings = values.as_string_view();
                // Most strings are settled by their length in bytes.
                if strings.lengths().all(|length| length as usize <= limit) {
                    return Ok(Arc::clone(values));
                }
                let mut texts = StringViewBuilder::with_capacity(values.len());
                for value in strings {
                    texts.append_option(value.filter(|text| text.encode_utf16().count() <= limit));
                }
                Arc::new(texts.finish())
            }
        },
        _ => Arc::clone(values),
    })
}

/// Finds what a document has at a path: keys may hold dots, and arrays are looked through. Of an object that the document spells in
/// several members (`a.b`, `a.c`) it makes one.
pub(crate) fn at_path(value: &Value, path: &[String]) -> Option<Value> {
    if path.is_empty() {
        return Some(undotted(value));
    }
    match value {
        Value::Object(members) => {
            let mut found = (1..=path.len()).filter_map(|taken| {
                let key = path.get(..taken)?.join(".");
                at_path(members.get(&key)?, path.get(taken..)?)
            });
            let start = format!("{}.", path.join("."));
            let within =
                members.iter().filter_map(|(name, member)| Some((name.strip_prefix(&start)?, member)));
            let mut within = within.peekable();
            if within.peek().is_none() {
                return found.next();
            }
            let mut object = Value::Object(Map::new());
            within.for_each(|(name, member)| put(&mut object, name, undotted(member)));
            Some(found.fold(object, joined))
        }
        Value::Array(elements) => {
            let found: Vec<Value> = elements.iter().filter_map(|element| at_path(element, path)).collect();
            (!found.is_empty()).then_some(Value::Array(found))
        }
        _ => None,
    }
}

/// Returns a value whose objects have a member for each step of a path.
fn undotted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut object = Value::Object(Map::new());
            members.iter().for_each(|(name, member)| put(&mut object, name, undotted(member)));
            object
        }
        Value::Array(elements) => Value::Array(elements.iter().map(undotted).collect()),
        scalar => scalar.clone(),
    }
}

/// Puts a value at a path below an object, beside what is there.
fn put(object: &mut Value, path: &str, value: Value) {
    // What has an empty step is no path.
    let steps = path.split('.').all(|step| !step.is_empty());
    let nested = match path.rsplit_once('.').filter(|_| steps) {
        None => Value::Object(Map::from_iter([(path.to_owned(), value)])),
        Some(_) => path
            .rsplit('.')
            .fold(value, |inner, step| Value::Object(Map::from_iter([(step.to_owned(), inner)]))),
    };
    *object = joined(std::mem::take(object), nested);
}

/// Joins two values of one place: objects member by member, others to a list.
fn joined(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut members), Value::Object(others)) => {
            for (name, value) in others {
                let value = match members.remove(&name) {
                    None => value,
                    Some(there) => joined(there, value),
                };
                members.insert(name, value);
            }
            Value::Object(members)
        }
        (Value::Null, value) | (value, Value::Null) => value,
        (Value::Array(mut values), Value::Array(others)) => {
            values.extend(others);
            Value::Array(values)
        }
        (Value::Array(mut values), other) => {
            values.push(other);
            Value::Array(values)
        }
        (one, Value::Array(mut values)) => {
            values.insert(0, one);
            Value::Array(values)
        }
        (one, other) => Value::Array(vec![one, other]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_dots_and_arrays() {
        let source = json!({"a.b": {"c": 1}, "d": [{"e": 2}, {"f": 3}, {"e": null}], "g": 4});
        let at = |path: &str| at_path(&source, &path.split('.').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(at("a.b.c"), Some(json!(1)));
        assert_eq!(at("d.e"), Some(json!([2, null])));
        assert_eq!(at("g.h"), None);
        assert_eq!(at("d"), Some(json!([{"e": 2}, {"f": 3}, {"e": null}])));
        assert_eq!(at("a"), Some(json!({"b": {"c": 1}})));
    }

    #[test]
    fn objects_are_made_of_dotted_members() {
        let source = json!({
            "host.name": "web1", "host.os.name": "x", "host": {"os.version": 1, "name": "web2", "..": 0},
            "hostile": 1, "list": [{"a.b": 1, "a.c": 2}], "http.status": 200,
        });
        let at = |path: &str| at_path(&source, &path.split('.').map(str::to_owned).collect::<Vec<_>>());
        let host = json!({"name": ["web1", "web2"], "os": {"name": "x", "version": 1}, "..": 0});
        assert_eq!(at("host"), Some(host));
        assert_eq!(at("host.os"), Some(json!({"name": "x", "version": 1})));
        assert_eq!(at("list"), Some(json!([{"a": {"b": 1, "c": 2}}])));
        assert_eq!(at("http"), Some(json!({"status": 200})));
        assert_eq!((at("http.status"), at("ho")), (Some(json!(200)), None));
    }
}
