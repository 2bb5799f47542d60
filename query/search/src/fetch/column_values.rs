//! Values of a field as its column holds them: sorted, strings each once, as doc values are.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use millrace_mapping::{ColumnKind, DateFormat, Field, FieldType, Mapping, PathId};
use millrace_matching::address::AddressText;
use millrace_matching::order::number;
use millrace_scoring::lists::Lists;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use super::decimal::DecimalFormat;
use super::source_values::{date_format, default_date_format, nanos};

/// The format that once said that the mapping's own is wanted.
const OWN_FORMAT: &str = "use_field_mapping";

/// Format of values.
#[derive(Clone, Debug)]
enum ValueFormat {
    Raw,
    Date(DateFormat),
    Decimal(DecimalFormat),
}

/// A field whose values are taken from its column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnField {
    field: Field,
    /// Prefix of the selected values, in the column of a flat_object.
    inside: Option<String>,
    form: ValueFormat,
}

impl ColumnField {
    /// Finds a field by its path; `None` where the index has none.
    ///
    /// # Errors
    /// A field without a column, or a format that the type does not have.
    pub(crate) fn find(mapping: &Mapping, path: &str, format: Option<&str>) -> Result<Option<Self>> {
        let (field, inside) = match mapping.field(path) {
            Some(field) => (field, None),
            None => match mapping.flat_object(path) {
                Some((field, below)) => (field, Some(format!("{below}="))),
                None => return Ok(None),
            },
        };
        check(field, inside.is_some())?;
        let form = form(mapping, field, format.filter(|format| *format != OWN_FORMAT))?;
        Ok(Some(Self { field: field.clone(), inside, form }))
    }

    /// Returns the column that is read.
    pub(crate) fn column(&self) -> PathId {
        self.field.column
    }

    /// Lists the values of a row of the column.
    ///
    /// # Errors
    /// A column that is not of the field's type: a defect.
    pub(crate) fn values(&self, column: &ArrayRef, row: usize) -> Result<Vec<Value>> {
        if *column.data_type() == DataType::Null {
            return Ok(Vec::new());
        }
        let lists = Lists::new(column);
        let places = lists.row(row).filter(|at| lists.values.is_valid(*at));
        let values = &lists.values;
        Ok(match self.field.column_kind() {
            ColumnKind::Str => {
                let values = cast(values, &DataType::Utf8View)?;
                let values = values.as_string_view();
                let mut own: Vec<&str> = places.filter_map(|at| self.string(values.value(at))).collect();
                own.sort_unstable();
                own.dedup();
                own.into_iter().map(|value| json!(value)).collect()
            }
            ColumnKind::Int(_) | ColumnKind::DateMs | ColumnKind::DateNanos => {
                let values = cast(values, &DataType::Int64)?;
                let values = values.as_primitive::<Int64Type>();
                let mut own: Vec<i64> = places.map(|at| values.value(at)).collect();
                own.sort_unstable();
                own.into_iter().map(|value| self.integer(value)).collect()
            }
            ColumnKind::U64 => {
                let values = cast(values, &DataType::UInt64)?;
                let values = values.as_primitive::<UInt64Type>();
                let mut own: Vec<u64> = places.map(|at| values.value(at)).collect();
                own.sort_unstable();
                own.into_iter().map(|value| json!(value)).collect()
            }
            ColumnKind::F32 | ColumnKind::F64 => {
                let values = cast(values, &DataType::Float64)?;
                let values = values.as_primitive::<Float64Type>();
                let mut own: Vec<f64> = places.map(|at| values.value(at)).collect();
                own.sort_unstable_by(f64::total_cmp);
                own.into_iter().map(|value| self.float(value)).collect()
            }
            ColumnKind::Bool => {
                let values = values.as_boolean();
                let mut own: Vec<bool> = places.map(|at| values.value(at)).collect();
                own.sort_unstable();
                own.into_iter().map(|value| json!(value)).collect()
            }
            ColumnKind::Ip => {
                let values = values.as_fixed_size_binary();
                let mut own: Vec<[u8; 16]> =
                    places.filter_map(|at| <[u8; 16]>::try_from(values.value(at)).ok()).collect();
                own.sort_unstable();
                own.dedup();
                own.into_iter().map(|value| json!(&*AddressText::new(value))).collect()
            }
            ColumnKind::GeoPoint => {
                let points = values.as_struct();
                let part = |name: &str| {
                    points
                        .column_by_name(name)
                        .and_then(|column| column.as_primitive_opt::<Float64Type>())
                        .ok_or_else(|| Error::Execution(format!("a column of points lacks [{name}]")))
                };
                let (lat, lon) = (part("lat")?, part("lon")?);
                let mut own: Vec<(i32, i32)> = places
                    .map(|at| (quantized(lat.value(at), 180.0), quantized(lon.value(at), 360.0)))
                    .collect();
                own.sort_unstable();
                own.into_iter()
                    .map(|(lat, lon)| json!(format!("{:?}, {:?}", degrees(lat, 180.0), degrees(lon, 360.0))))
                    .collect()
            }
        })
    }

    fn string<'v>(&self, value: &'v str) -> Option<&'v str> {
        match &self.inside {
            Some(prefix) => value.strip_prefix(prefix.as_str()),
            None => (!self.field.ignores_in_column(value)).then_some(value),
        }
    }

    fn integer(&self, value: i64) -> Value {
        match &self.form {
            ValueFormat::Raw => json!(value),
            ValueFormat::Date(format) => json!(format.format_nanos(nanos(&self.field, value))),
            ValueFormat::Decimal(format) => json!(format.write(value as f64)),
        }
    }

    fn float(&self, value: f64) -> Value {
        match &self.form {
            ValueFormat::Decimal(format) => json!(format.write(value)),
            _ => number(value, false),
        }
    }
}

/// Lucene keeps a coordinate in 32 bits.
fn quantized(degrees: f64, range: f64) -> i32 {
    let step = range / 4_294_967_296.0;
    let degrees = if degrees >= range / 2.0 { degrees.next_down() } else { degrees };
    (degrees / step).floor() as i32
}

fn degrees(quantized: i32, range: f64) -> f64 {
    f64::from(quantized) * (range / 4_294_967_296.0)
}

fn check(field: &Field, inside: bool) -> Result<()> {
    let (path, kind) = (&field.path, field.type_name());
    if field.field_type.is_text() {
        return Err(Error::IllegalArgument(format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [{path}] in order to load field data by uninverting the inverted index. Note that this can use significant memory."
        )));
    }
    if field.field_type == FieldType::FlatObject && !inside {
        return Err(Error::IllegalArgument(format!(
            "Field [{path}] of type [{kind}] does not support doc_value in root field"
        )));
    }
    if let (FieldType::Range(_), true) = (&field.field_type, field.doc_values) {
        return Err(Error::IllegalArgument(format!(
            "Field [{path}] of type [{kind}] does not support [docvalue_fields], use [fields] instead"
        )));
    }
    if !field.doc_values {
        return Err(Error::IllegalArgument(format!(
            "Can't load fielddata on [{path}] because fielddata is unsupported on fields of type [{kind}]. Use doc values instead."
        )));
    }
    Ok(())
}

fn form(mapping: &Mapping, field: &Field, format: Option<&str>) -> Result<ValueFormat> {
    let is_date = matches!(field.field_type, FieldType::Date | FieldType::DateNanos);
    match (field.column_kind(), format) {
        (_, Some(format)) if is_date => date_format(format).map(ValueFormat::Date),
        (_, None) if is_date => default_date_format(mapping, field).map(ValueFormat::Date),
        (_, None) | (ColumnKind::U64, _) => Ok(ValueFormat::Raw),
        (ColumnKind::Int(_) | ColumnKind::F32 | ColumnKind::F64, Some(format)) => {
            DecimalFormat::parse(format).map(ValueFormat::Decimal)
        }
        _ => Err(Error::IllegalArgument(format!(
            "Field [{}] of type [{}] does not support custom formats",
            field.path,
            field.type_name()
        ))),
    }
}
