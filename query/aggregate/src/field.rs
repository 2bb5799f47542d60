//! A field of an aggregation over the indices of a table: where each has its values, of what kind they
//! are, and what stands for them where a document has none.

use std::sync::Arc;

use millrace_dsl::aggs::{ValueType, ValuesSource};
use millrace_dsl::fields::check_format;
use millrace_dsl::json::text;
use millrace_mapping::{ColumnKind, DateFormat, Field, FieldType, Scalar};
use millrace_matching::table::TableIndex;
use millrace_matching::table::metadata_field::MetadataField;
use millrace_scoring::metadata_columns::{ID_COLUMN, SEQ_NO_COLUMN, is_metadata_column};
use millrace_search::fetch::decimal::DecimalFormat;
use millrace_time::Zone;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::batch::{Batch, Column};
use super::result::Format;

/// Stands for every index among those that failed.
pub(crate) const EVERY_INDEX: usize = usize::MAX;

/// Format of dates whose mapping names none. Bounds of buckets may be texts of milliseconds.
const DEFAULT_DATE_FORMAT: &str = "strict_date_optional_time||epoch_millis";

/// Kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Whole numbers, dates as milliseconds, booleans as 0 and 1.
    Long,
    /// Those of an unsigned_long.
    Unsigned,
    /// Floating point numbers.
    Double,
    Text,
    /// Addresses.
    Ip,
    Point,
}

impl ValueKind {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Str => Self::Text,
            ColumnKind::Int(_) | ColumnKind::Bool | ColumnKind::DateMs | ColumnKind::DateNanos => Self::Long,
            ColumnKind::U64 => Self::Unsigned,
            ColumnKind::F32 | ColumnKind::F64 => Self::Double,
            ColumnKind::Ip => Self::Ip,
            ColumnKind::GeoPoint => Self::Point,
        }
    }

    /// Returns whether values are numbers.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Long | Self::Unsigned | Self::Double)
    }
}

/// Field types that an aggregation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptedTypes {
    /// Those with any values that can be told apart.
    Keys,
    /// All that have values.
    Any,
    /// Numbers, dates, booleans.
    Numbers,
    /// Dates and numbers.
    Dates,
    Addresses,
    Points,
}

impl AcceptedTypes {
    fn accepts(self, kind: ValueKind) -> bool {
        match self {
            Self::Any => true,
            Self::Keys => kind != ValueKind::Point,
            Self::Numbers | Self::Dates => kind.is_number(),
            Self::Addresses => kind == ValueKind::Ip,
            Self::Points => kind == ValueKind::Point,
        }
    }
}

/// A value that documents without one are taken to have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MissingValue {
    /// A whole number (the bits of an unsigned one).
    Long(i64),
    /// A floating point number.
    Double(f64),
    Text(Arc<str>),
    /// An address.
    Ip([u8; 16]),
    Point(f64, f64),
}

/// Source of the values in one index.
#[derive(Clone, Debug)]
pub(crate) struct FieldSource {
    /// Place of the column among those of its scope.
    pub slot: usize,
    /// The field.
    pub field: Arc<Field>,
    /// Kind of the values in this index.
    pub kind: ValueKind,
    /// `true` if dates are nanoseconds here.
    pub nanos: bool,
    /// Prefix of the selected strings, in the column of a flat_object.
    inside: Option<Arc<str>>,
}

/// A value that all documents of an index have.
#[derive(Clone, Debug)]
enum Source {
    Column(FieldSource),
    Constant(Arc<str>),
}

/// The values of a field over the indices of a table.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// Kind of the values; `None` where no index has the field.
    pub kind: Option<ValueKind>,
    /// `true` if indices have values that cannot be compared.
    pub mixed: bool,
    /// Format of keys.
    pub format: Format,
    /// The type of the first index that has the field.
    pub field_type: Option<FieldType>,
    places: Vec<Option<Source>>,
    missing: Option<MissingValue>,
}

/// Context of the resolution of a field.
pub(crate) struct FieldResolution<'a> {
    /// The indices.
    pub indices: &'a [TableIndex],
    /// The aggregation's name in the language, for messages.
    pub aggregation: &'a str,
    /// Field types that it works on.
    pub accepts: AcceptedTypes,
    /// Value of `now`.
    pub now_ms: i64,
    /// Errors of single indices.
    pub failed: &'a mut Vec<(usize, Error)>,
    /// Gives a column of an index its place in the scope.
    pub slot: &'a mut dyn FnMut(usize, millrace_mapping::PathId) -> usize,
}

impl Values {
    /// Resolves a field.
    ///
    /// # Errors
    /// What every index refuses: a format that is none.
    pub(crate) fn resolve(source: &ValuesSource, resolving: FieldResolution<'_>) -> Result<Self> {
        let mut values = Self {
            kind: None,
            mixed: false,
            format: Format::Raw,
            field_type: None,
            places: vec![None; resolving.indices.len()],
            missing: None,
        };
        let path = source.field.as_deref().unwrap_or_default();
        for (at, index) in resolving.indices.iter().enumerate() {
            if resolving.failed.iter().any(|(failed, _)| *failed == at) {
                continue;
            }
            match values.place(source, path, at, index, resolving.aggregation, resolving.accepts) {
                Ok(None) => {}
                Ok(Some(mut place)) => {
                    if let Source::Column(place) = &mut place {
                        place.slot = (resolving.slot)(at, place.field.column);
                    }
                    values.places[at] = Some(place);
                }
                Err(error) => resolving.failed.push((at, error)),
            }
        }
        if let Err(error) = values.fill(source, resolving.indices, resolving.now_ms) {
            resolving.failed.push((EVERY_INDEX, error));
        }
        if values.kind.is_none() {
            values.kind = source.value_type.map(of_type).filter(|_| values.missing.is_some());
        }
        if matches!(values.format, Format::Raw) && values.field_type.is_none() {
            values.format = unmapped_format(source, resolving.accepts)?;
        }
        Ok(values)
    }

    fn place(
        &mut self,
        source: &ValuesSource,
        path: &str,
        at: usize,
        index: &TableIndex,
        aggregation: &str,
        accepts: AcceptedTypes,
    ) -> Result<Option<Source>> {
        let mapping = &index.mapping;
        let of_metadata;
        let (field, inside, type_name) = match (mapping.field(path), mapping.flat_object(path)) {
            (Some(field), _) => (field, None, field.type_name()),
            (None, Some((field, below))) => (field, Some(format!("{below}=")), field.type_name()),
            (None, None) => match MetadataField::find(path)? {
                Some(field) => {
                    of_metadata = metadata_field(field, path);
                    (&of_metadata, None, path)
                }
                None => return Ok(None),
            },
        };
        check(field, inside.is_some())?;
        let kind = ValueKind::new(field.column_kind());
        let is_no_key = matches!(field.field_type, FieldType::Binary | FieldType::Range(_))
            && accepts == AcceptedTypes::Keys;
        let boolean_date = accepts == AcceptedTypes::Dates && kind == ValueKind::Unsigned;
        if !accepts.accepts(kind) || is_no_key || boolean_date {
            return Err(Error::IllegalArgument(match aggregation {
                "weighted_avg" => format!("Expected numeric type on field [{path}], but got [{type_name}]"),
                _ => format!(
                    "Field [{path}] of type [{type_name}] is not supported for aggregation [{aggregation}]"
                ),
            }));
        }
        if path == "_index" {
            match self.kind {
                None => self.kind = Some(ValueKind::Text),
                Some(known) => self.mixed |= known != ValueKind::Text,
            }
            return Ok(Some(Source::Constant(index.meta.name.to_string().into())));
        }
        let format = format_of(source, index, field)?;
        match self.kind {
            None => {
                self.kind = Some(kind);
                self.format = format;
                self.field_type = Some(field.field_type.clone());
            }
            Some(known) if known == kind => {}
            Some(known) if known.is_number() && kind.is_number() => self.kind = Some(ValueKind::Double),
            Some(_) => self.mixed = true,
        }
        let place = FieldSource {
            slot: at,
            kind,
            nanos: field.column_kind() == ColumnKind::DateNanos,
            inside: inside.map(Into::into),
            field: Arc::new(field.clone()),
        };
        Ok(Some(Source::Column(place)))
    }

    /// Reads the value of documents without one.
    fn fill(&mut self, source: &ValuesSource, indices: &[TableIndex], now_ms: i64) -> Result<()> {
        let Some(missing) = &source.missing else { return Ok(()) };
        if self.places.iter().flatten().any(|place| matches!(place, Source::Constant(_))) {
            // No document is without it.
            return Ok(());
        }
        let mapped = self.places.iter().zip(indices).find_map(|(place, index)| match place {
            Some(Source::Column(place)) => Some((place, index)),
            _ => None,
        });
        let number = |value: &Value| -> Result<f64> {
            let text = text(value).unwrap_or_default();
            text.parse::<f64>().map_err(|_| {
                Error::NumberFormat(match text.is_empty() {
                    true => "empty String".to_owned(),
                    false => format!("For input string: \"{text}\""),
                })
            })
        };
        if let Some((place, index)) = mapped {
            self.missing = Some(match place.kind {
                ValueKind::Double => MissingValue::Double(number(missing)?),
                ValueKind::Long if self.kind == Some(ValueKind::Double) => {
                    MissingValue::Double(number(missing)?)
                }
                ValueKind::Text => MissingValue::Text(text(missing).unwrap_or_default().into()),
                ValueKind::Long | ValueKind::Unsigned if is_whole_number(&place.field) => {
                    match whole(missing, number(missing)?, place.kind) {
                        Some(value) => MissingValue::Long(value),
                        None => {
                            // A fraction makes all values floating point numbers.
                            self.kind = Some(ValueKind::Double);
                            MissingValue::Double(number(missing)?)
                        }
                    }
                }
                ValueKind::Long if place.field.field_type == FieldType::Boolean => {
                    let given = text(missing).unwrap_or_default();
                    MissingValue::Long(i64::from(given.parse::<bool>().map_err(|_| {
                        Error::IllegalArgument(format!(
                            "Cannot parse boolean [{given}], expected either [true] or [false]"
                        ))
                    })?))
                }
                _ => match self.parse_missing(source, place, index, missing, now_ms)? {
                    Scalar::I64(value) if place.nanos => MissingValue::Long(value.div_euclid(1_000_000)),
                    Scalar::I64(value) => MissingValue::Long(value),
                    Scalar::U64(value) => MissingValue::Long(value as i64),
                    Scalar::F64(value) => MissingValue::Double(value),
                    Scalar::Bool(value) => MissingValue::Long(i64::from(value)),
                    Scalar::Ip(value) => MissingValue::Ip(value),
                    Scalar::Str(value) => MissingValue::Text(value.into()),
                    Scalar::GeoPoint { lat, lon } => MissingValue::Point(lat, lon),
                },
            });
            return Ok(());
        }
        let kind = source.value_type.map(of_type);
        let (kind, filled) = match (kind, missing) {
            (Some(ValueKind::Long), value) if source.value_type == Some(ValueType::Boolean) => {
                let flag = text(value).is_some_and(|text| text == "true" || text == "1");
                (ValueKind::Long, MissingValue::Long(i64::from(flag)))
            }
            (Some(ValueKind::Long), value) => (ValueKind::Long, MissingValue::Long(number(value)? as i64)),
            (Some(ValueKind::Double), value) => (ValueKind::Double, MissingValue::Double(number(value)?)),
            (None, Value::Number(value)) if value.is_i64() => {
                (ValueKind::Long, MissingValue::Long(value.as_i64().unwrap_or_default()))
            }
            (None, Value::Number(_)) => (ValueKind::Double, MissingValue::Double(number(missing)?)),
            (None, Value::Bool(value)) => (ValueKind::Long, MissingValue::Long(i64::from(*value))),
            (_, value) => (ValueKind::Text, MissingValue::Text(text(value).unwrap_or_default().into())),
        };
        self.kind = Some(kind);
        self.missing = Some(filled);
        Ok(())
    }

    /// Reads the value of documents without one: a date in the format and the zone of the request, where it gives them.
    fn parse_missing(
        &self,
        source: &ValuesSource,
        place: &FieldSource,
        index: &TableIndex,
        missing: &Value,
        now_ms: i64,
    ) -> Result<Scalar> {
        let zone = source.time_zone.unwrap_or(Zone::UTC);
        if let (Format::Date(format, _), Value::String(text), Some(_)) =
            (&self.format, missing, &source.format)
        {
            let millis = format
                .parse_millis_in(text, now_ms, false, zone)
                .map_err(|reason| Error::Exception { kind: "parse_exception", status: 400, reason })?;
            let unit = if place.nanos { 1_000_000 } else { 1 };
            return Ok(Scalar::I64(millis.saturating_mul(unit)));
        }
        Ok(index.mapping.parse_value_in(&place.field, missing, now_ms, false, zone)?)
    }

    /// Returns the value that documents without one are taken to have.
    pub(crate) fn missing(&self) -> Option<&MissingValue> {
        self.missing.as_ref()
    }

    /// Returns the place in an index, where the values are in a column.
    pub(crate) fn place_in(&self, index: usize) -> Option<&FieldSource> {
        match self.places.get(index)? {
            Some(Source::Column(place)) => Some(place),
            _ => None,
        }
    }

    /// Returns the place of the column in an index, if it is one of numbers.
    pub(crate) fn number_in(&self, index: usize) -> Option<usize> {
        let place = self.place_in(index).filter(|place| place.kind.is_number() && !place.is_inside());
        place.map(|place| place.slot)
    }

    /// Returns the value that all documents of an index have.
    pub(crate) fn constant_in(&self, index: usize) -> Option<&Arc<str>> {
        match self.places.get(index)? {
            Some(Source::Constant(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the column of a batch.
    pub(crate) fn column<'b>(&self, batch: &'b Batch<'_>) -> Option<(&FieldSource, &'b Column)> {
        let place = self.place_in(batch.segment.index)?;
        let column = batch.columns.get(place.slot)?.as_ref()?;
        Some((place, column))
    }
}

impl FieldSource {
    /// Milliseconds of a date as the column holds it; other numbers as they are.
    #[inline]
    pub(crate) fn long(&self, value: i64) -> i64 {
        if self.nanos { value.div_euclid(1_000_000) } else { value }
    }

    /// Returns true if values are metadata, of which every document has exactly one.
    pub(crate) fn is_metadata(&self) -> bool {
        is_metadata_column(self.field.column)
    }

    /// Returns whether values are those at a place inside of a flat_object.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// Returns whether every string of a batch's column counts as it is.
    pub(crate) fn is_verbatim(&self, column: &Column) -> Result<bool> {
        if self.inside.is_some() {
            return Ok(false);
        }
        let Some(limit) = self.field.column_limit() else { return Ok(true) };
        // Lengths in bytes, which are no less than those that count.
        let longest = column.strings()?.views().iter().map(|view| *view as u32).max();
        Ok(longest.unwrap_or(0) as usize <= limit)
    }

    /// Returns the value that a string of the column counts as; nothing where it does not count.
    pub(crate) fn string<'v>(&self, value: &'v str) -> Option<&'v str> {
        match &self.inside {
            Some(prefix) => value.strip_prefix(&**prefix),
            None => (!self.field.ignores_in_column(value)).then_some(value),
        }
    }
}

fn of_type(value_type: ValueType) -> ValueKind {
    match value_type {
        ValueType::Boolean | ValueType::Date | ValueType::Long => ValueKind::Long,
        ValueType::Double | ValueType::Numeric => ValueKind::Double,
        ValueType::Ip => ValueKind::Ip,
        ValueType::String => ValueKind::Text,
        ValueType::UnsignedLong => ValueKind::Unsigned,
    }
}

/// Makes the field that a metadata field is to aggregations.
fn metadata_field(field: MetadataField, path: &str) -> Field {
    let (field_type, column) = match field {
        MetadataField::Id => (FieldType::Keyword, ID_COLUMN),
        MetadataField::Index => (FieldType::ConstantKeyword, ID_COLUMN),
        MetadataField::SeqNo => (FieldType::Long, SEQ_NO_COLUMN),
    };
    Field {
        id: column,
        path: path.into(),
        field_type,
        column,
        index: false,
        doc_values: true,
        ignore_above: None,
        analyzer: "".into(),
        search_analyzer: "".into(),
        normalizer: None,
        norms: false,
        params: Map::new(),
    }
}

/// Returns true if values of a field are whole numbers and nothing else.
fn is_whole_number(field: &Field) -> bool {
    matches!(field.column_kind(), ColumnKind::Int(_) | ColumnKind::U64)
}

/// Reads a whole number, unsigned ones as their bits; `None` where it has a fraction.
fn whole(value: &Value, number: f64, kind: ValueKind) -> Option<i64> {
    if number.fract() != 0.0 || kind == ValueKind::Unsigned && number < 0.0 {
        return None;
    }
    let text = text(value)?;
    Some(match kind {
        ValueKind::Unsigned => text.parse::<u64>().unwrap_or(number as u64).cast_signed(),
        _ => text.parse::<i64>().unwrap_or(number as i64),
    })
}

/// Refuses fields that have no columns for aggregations.
fn check(field: &Field, inside: bool) -> Result<()> {
    let (path, kind) = (&field.path, field.type_name());
    if field.field_type.is_text() && !field.params.get("fielddata").is_some_and(|on| *on == true) {
        return Err(Error::IllegalArgument(format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [{path}] in order to load field data by uninverting the inverted index. Note that this can use significant memory."
        )));
    }
    if field.field_type == FieldType::FlatObject && !inside {
        return Err(Error::IllegalArgument(format!(
            "Field [{path}] of type [{kind}] does not support doc_value in root field"
        )));
    }
    if !field.doc_values && !field.field_type.is_text() {
        return Err(Error::IllegalArgument(format!(
            "Can't load fielddata on [{path}] because fielddata is unsupported on fields of type [{kind}]. Use doc values instead."
        )));
    }
    Ok(())
}

fn format_of(source: &ValuesSource, index: &TableIndex, field: &Field) -> Result<Format> {
    let zone = source.time_zone.unwrap_or(Zone::UTC);
    Ok(match (&field.field_type, source.format.as_deref()) {
        (FieldType::Date | FieldType::DateNanos, Some(format)) => {
            Format::Date(Arc::new(date_format(format)?), zone)
        }
        (FieldType::Date | FieldType::DateNanos, None) => {
            let format = match index.mapping.date_format(field) {
                Some(format) => format.clone(),
                None => date_format(DEFAULT_DATE_FORMAT)?,
            };
            Format::Date(Arc::new(format), zone)
        }
        (FieldType::Boolean, None) => Format::Boolean,
        (FieldType::Ip, None) => Format::Ip,
        (_, None) => Format::Raw,
        (kind, Some(format))
            if ValueKind::new(kind.column_kind()).is_number() && *kind != FieldType::Boolean =>
        {
            Format::Decimal(Arc::new(DecimalFormat::parse(format)?))
        }
        (_, Some(_)) => {
            return Err(Error::IllegalArgument(format!(
                "Field [{}] of type [{}] does not support custom formats",
                field.path,
                field.type_name()
            )));
        }
    })
}

/// The form of keys where no index has the field.
fn unmapped_format(source: &ValuesSource, accepts: AcceptedTypes) -> Result<Format> {
    let zone = source.time_zone.unwrap_or(Zone::UTC);
    let dates = accepts == AcceptedTypes::Dates || source.value_type == Some(ValueType::Date);
    Ok(match (dates, &source.format) {
        (true, Some(format)) => Format::Date(Arc::new(date_format(format)?), zone),
        (true, None) => Format::Date(Arc::new(date_format(DEFAULT_DATE_FORMAT)?), zone),
        (false, Some(format)) => Format::Decimal(Arc::new(DecimalFormat::parse(format)?)),
        (false, None) if source.value_type == Some(ValueType::Boolean) => Format::Boolean,
        (false, None) => Format::Raw,
    })
}

/// Compiles a date format of a request.
pub(crate) fn date_format(text: &str) -> Result<DateFormat> {
    DateFormat::parse(check_format(text)?).map_err(Error::IllegalArgument)
}
