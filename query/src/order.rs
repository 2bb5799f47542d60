//! The order of hits: sort keys against mappings, sort values in and out.
//!
//! [`Order::new`] turns the `sort` of a request into the keys of a table and the sort of a plan;
//! indices that cannot be sorted so are reported as failed. Ties are broken by address, so every
//! order is total and any search can be continued exactly.

use std::net::Ipv6Addr;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, SortExpr, ident, lit};
use millrace_storage::mapping::{ColumnKind, Field, FieldType, Mapping, Scalar};
use serde_json::{Number, Value, json};

use crate::dsl::json::{integer, text};
use crate::dsl::sort::{FieldSort, Missing, Mode, NumericType, SortBy, SortKey};
use crate::error::{Error, Result};
use crate::score::collect::{Address, Cursor};
use crate::table::keys::{Fill, Key, KeyKind, KeySource, Rescale};
use crate::table::{ROW, SCORE, SEGMENT, TableSnapshot};

/// What one sort key compares.
#[derive(Clone, Debug)]
enum Part {
    Score,
    Doc,
    /// Number of the key in the table, and how dates print.
    Key(usize, Option<DateFormat>),
}

/// How sort values of dates are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DateFormat {
    Millis,
    Iso,
    IsoNanos,
}

/// The order of a search.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    parts: Vec<(Part, bool)>,
    /// Sort keys of the table.
    pub keys: Vec<Key>,
    /// Whether the request asked for an order of its own.
    pub explicit: bool,
}

/// A point in an order: the sort values of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// A value for each sort key.
    pub values: Vec<PointValue>,
    /// The row, where known: ties behind it come next. Without it ties are behind.
    pub address: Option<Address>,
}

/// A sort value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum PointValue {
    Score(f32),
    Doc(Address),
    Key(ScalarValue),
}

impl Order {
    /// Makes the order of a request over the indices of a snapshot. Returns it with the indices
    /// that cannot be sorted so.
    pub(crate) fn new(
        sort: &[SortKey],
        snapshot: &TableSnapshot,
        now_ms: i64,
    ) -> Result<(Self, Vec<(usize, Error)>)> {
        let mut order = Self { parts: Vec::new(), keys: Vec::new(), explicit: !sort.is_empty() };
        let mut failed: Vec<(usize, Error)> = Vec::new();
        if sort.is_empty() {
            order.parts.push((Part::Score, true));
        }
        for key in sort {
            let part = match &key.by {
                SortBy::Score => Part::Score,
                SortBy::Doc => Part::Doc,
                SortBy::Field(field) => {
                    let format = field.format.as_deref().map(DateFormat::parse).transpose()?;
                    let number = order.keys.len();
                    let key = field_key(field, key.descending, number, snapshot, now_ms, &mut failed)?;
                    order.keys.push(key);
                    Part::Key(number, format)
                }
            };
            order.parts.push((part, key.descending));
        }
        Ok((order, failed))
    }

    /// Whether scores are compared.
    pub(crate) fn by_score(&self) -> bool {
        self.parts.iter().any(|(part, _)| matches!(part, Part::Score))
    }

    /// Whether the scan itself can find the first rows: best scores first, or address.
    fn by_scan(&self) -> Option<bool> {
        match self.parts.as_slice() {
            [(Part::Score, true)] => Some(true),
            [(Part::Doc, false)] => Some(false),
            _ => None,
        }
    }

    /// Returns the sort of the plan.
    pub(crate) fn sort_expressions(&self) -> Vec<SortExpr> {
        let mut sorts = Vec::new();
        for (part, descending) in &self.parts {
            match part {
                Part::Score => sorts.push(ident(SCORE).sort(!descending, false)),
                Part::Doc => {
                    sorts.push(ident(SEGMENT).sort(!descending, false));
                    sorts.push(ident(ROW).sort(!descending, false));
                    return sorts;
                }
                Part::Key(number, _) => {
                    let key = &self.keys[*number];
                    sorts.push(ident(&key.name).sort(!descending, key.nulls_first));
                }
            }
        }
        sorts.push(ident(SEGMENT).sort(true, false));
        sorts.push(ident(ROW).sort(true, false));
        sorts
    }

    /// Returns where the scan itself goes on, if this order is its own.
    pub(crate) fn cursor(&self, after: &Point) -> Option<Cursor> {
        let by_score = self.by_scan()?;
        match (by_score, after.values.first()?) {
            (true, PointValue::Score(score)) => Some(Cursor { score: Some(*score), address: after.address }),
            (false, PointValue::Doc(address)) => Some(Cursor { score: None, address: Some(*address) }),
            _ => None,
        }
    }

    /// Returns the sort value of a point by which rows are ordered first, if it is a key's.
    pub(crate) fn first_key(&self, after: &Point) -> Option<ScalarValue> {
        match after.values.first() {
            Some(PointValue::Key(value)) => Some(value.clone()),
            _ => None,
        }
    }

    /// Returns the condition that a row comes behind a point.
    pub(crate) fn behind(&self, after: &Point) -> Expr {
        let mut alternatives: Option<Expr> = None;
        let mut equal: Option<Expr> = None;
        let and = |left: Option<Expr>, right: Expr| match left {
            Some(left) => left.and(right),
            None => right,
        };
        let doc = |address: Address, descending: bool| {
            let (segment, row) = (lit(address.segment), lit(address.row));
            match descending {
                false => {
                    ident(SEGMENT).gt(segment.clone()).or(ident(SEGMENT).eq(segment).and(ident(ROW).gt(row)))
                }
                true => {
                    ident(SEGMENT).lt(segment.clone()).or(ident(SEGMENT).eq(segment).and(ident(ROW).lt(row)))
                }
            }
        };
        let mut add = |condition: Expr, equal: &Option<Expr>| {
            let condition = and(equal.clone(), condition);
            alternatives = Some(match alternatives.take() {
                Some(others) => others.or(condition),
                None => condition,
            });
        };
        for ((part, descending), value) in self.parts.iter().zip(&after.values) {
            let (behind, same) = match (part, value) {
                (Part::Doc, PointValue::Doc(address)) => {
                    add(doc(*address, *descending), &equal);
                    return alternatives.unwrap_or_else(|| lit(false));
                }
                (Part::Key(number, _), PointValue::Key(value)) => {
                    let key = &self.keys[*number];
                    let column = ident(&key.name);
                    if value.is_null() {
                        let behind = if key.nulls_first { column.clone().is_not_null() } else { lit(false) };
                        (behind, column.is_null())
                    } else {
                        let literal = Expr::Literal(value.clone(), None);
                        let mut behind = match descending {
                            false => column.clone().gt(literal.clone()),
                            true => column.clone().lt(literal.clone()),
                        };
                        if !key.nulls_first {
                            behind = behind.or(column.clone().is_null());
                        }
                        (behind, column.eq(literal))
                    }
                }
                (_, PointValue::Score(score)) => {
                    let behind = match descending {
                        true => ident(SCORE).lt(lit(*score)),
                        false => ident(SCORE).gt(lit(*score)),
                    };
                    (behind, ident(SCORE).eq(lit(*score)))
                }
                _ => continue,
            };
            add(behind, &equal);
            equal = Some(and(equal.take(), same));
        }
        if let Some(address) = after.address {
            add(doc(address, false), &equal);
        }
        alternatives.unwrap_or_else(|| lit(false))
    }

    /// Reads the values of `search_after`.
    pub(crate) fn parse_after(
        &self,
        values: &[Value],
        snapshot: &TableSnapshot,
        sort: &[SortKey],
        now_ms: i64,
    ) -> Result<Point> {
        if !self.explicit {
            return Err(Error::IllegalArgument("Sort must contain at least one field.".to_owned()));
        }
        if values.len() != self.parts.len() {
            return Err(Error::IllegalArgument(format!(
                "search_after has {} value(s) but sort has {}.",
                values.len(),
                self.parts.len()
            )));
        }
        let mut point = Point { values: Vec::with_capacity(values.len()), address: None };
        for ((at, (part, _)), value) in self.parts.iter().enumerate().zip(values) {
            let name = match sort.get(at).map(|key| &key.by) {
                Some(SortBy::Field(field)) => field.field.as_str(),
                Some(SortBy::Doc) => "_doc",
                _ => SCORE,
            };
            let bad =
                || Error::IllegalArgument(format!("Failed to parse search_after value for field [{name}]."));
            point.values.push(match part {
                Part::Score => PointValue::Score(crate::dsl::json::float(value).map_err(|_| bad())?),
                Part::Doc => {
                    let number = integer(value).ok().and_then(|n| u64::try_from(n).ok());
                    let number = number.ok_or_else(bad)?;
                    PointValue::Doc(Address { segment: (number >> 32) as u32, row: number as u32 })
                }
                Part::Key(number, _) => {
                    let mut fields =
                        snapshot.indices.iter().filter_map(|i| Some((&i.mapping, i.mapping.field(name)?)));
                    let key = &self.keys[*number];
                    let value = key_value(key, fields.next(), value, now_ms).ok_or_else(bad)?;
                    PointValue::Key(value)
                }
            });
        }
        Ok(point)
    }

    /// Reads the point of a row from its place in a result: `keys` are the key arrays.
    pub(crate) fn point(&self, keys: &[ArrayRef], at: usize, score: f32, address: Address) -> Result<Point> {
        let mut values = Vec::with_capacity(self.parts.len());
        for (part, _) in &self.parts {
            values.push(match part {
                Part::Score => PointValue::Score(score),
                Part::Doc => PointValue::Doc(address),
                Part::Key(number, _) => PointValue::Key(ScalarValue::try_from_array(&keys[*number], at)?),
            });
        }
        Ok(Point { values, address: Some(address) })
    }

    /// Renders the sort values of a hit.
    pub(crate) fn render(
        &self,
        keys: &[ArrayRef],
        at: usize,
        index: usize,
        score: f32,
        address: Address,
    ) -> Value {
        Value::Array(
            self.parts
                .iter()
                .map(|(part, _)| match part {
                    Part::Score => number(f64::from(score), true),
                    Part::Doc => json!((u64::from(address.segment) << 32) | u64::from(address.row)),
                    Part::Key(number, format) => {
                        let key = &self.keys[*number];
                        let source = key.sources.get(index).and_then(Option::as_ref);
                        render_key(key, source, *format, &keys[*number], at)
                    }
                })
                .collect(),
        )
    }
}

fn render_key(
    key: &Key,
    source: Option<&KeySource>,
    format: Option<DateFormat>,
    array: &ArrayRef,
    at: usize,
) -> Value {
    if array.is_null(at) {
        return Value::Null;
    }
    match key.kind {
        KeyKind::I64 => {
            let value = array.as_primitive::<Int64Type>().value(at);
            let kind = source.map(|source| (source.kind, source.rescale));
            let nanos = match kind {
                Some(
                    (ColumnKind::DateMs, Rescale::None) | (ColumnKind::DateNanos, Rescale::NanosToMillis),
                ) => Some(false),
                Some(
                    (ColumnKind::DateNanos, Rescale::None) | (ColumnKind::DateMs, Rescale::MillisToNanos),
                ) => Some(true),
                _ => None,
            };
            match (format, nanos) {
                (Some(format), Some(nanos)) if value != i64::MAX && value != i64::MIN => {
                    format.render(value, nanos)
                }
                _ => json!(value),
            }
        }
        KeyKind::U64 => json!(array.as_primitive::<UInt64Type>().value(at)),
        KeyKind::F64 => {
            let single = source.is_some_and(|source| source.single);
            number(array.as_primitive::<Float64Type>().value(at), single)
        }
        KeyKind::Str => json!(array.as_string_view().value(at)),
        KeyKind::Ip => match <[u8; 16]>::try_from(array.as_fixed_size_binary().value(at)) {
            Ok(bytes) => json!(render_ip(bytes)),
            Err(_) => Value::Null,
        },
    }
}

/// Renders a floating point number; what JSON has no number for becomes a string, as in OpenSearch.
pub(crate) fn number(value: f64, single: bool) -> Value {
    if value.is_infinite() {
        return json!(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if single {
        // The shortest text that gives the same single-precision number.
        return serde_json::from_str(&format!("{:?}", value as f32)).unwrap_or(Value::Null);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Renders an address; IPv4 where it is mapped.
fn render_ip(bytes: [u8; 16]) -> String {
    let address = Ipv6Addr::from(bytes);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

impl DateFormat {
    fn parse(text: &str) -> Result<Self> {
        match text {
            "epoch_millis" => Ok(Self::Millis),
            "strict_date_optional_time" | "date_optional_time" | "iso8601" => Ok(Self::Iso),
            "strict_date_optional_time_nanos" => Ok(Self::IsoNanos),
            _ => Err(Error::IllegalArgument(format!(
                "sort format [{text}] is not supported, use [strict_date_optional_time], [strict_date_optional_time_nanos] or [epoch_millis]"
            ))),
        }
    }

    fn render(self, value: i64, nanos: bool) -> Value {
        let unit = if nanos { 1_000_000_000 } else { 1_000 };
        let (seconds, fraction) = (value.div_euclid(unit), value.rem_euclid(unit));
        let fraction = if nanos { fraction } else { fraction * 1_000_000 };
        if self == Self::Millis {
            return json!((seconds * 1_000 + fraction / 1_000_000).to_string());
        }
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let second = seconds.rem_euclid(86_400);
        let clock = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
        let fraction = match self {
            Self::IsoNanos => format!("{fraction:09}"),
            _ => format!("{:03}", fraction / 1_000_000),
        };
        json!(format!("{year:04}-{month:02}-{day:02}T{clock}.{fraction}Z"))
    }
}

/// Converts days since the epoch to a date of the proleptic Gregorian calendar
/// (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn key_value(
    key: &Key,
    field: Option<(&std::sync::Arc<Mapping>, &Field)>,
    value: &Value,
    now_ms: i64,
) -> Option<ScalarValue> {
    let date = field.filter(|(_, f)| matches!(f.field_type, FieldType::Date | FieldType::DateNanos));
    Some(match key.kind {
        KeyKind::I64 => match (value, date) {
            (Value::String(_), Some((mapping, field))) => {
                match mapping.parse_value(field, value, now_ms, false).ok()? {
                    Scalar::I64(instant) => ScalarValue::Int64(Some(instant)),
                    _ => return None,
                }
            }
            (Value::Bool(flag), _) => ScalarValue::Int64(Some(i64::from(*flag))),
            (Value::Number(number), _) if number.as_i64().is_some() => ScalarValue::Int64(number.as_i64()),
            _ => ScalarValue::Int64(Some(integer(value).ok()?)),
        },
        KeyKind::U64 => ScalarValue::UInt64(Some(match value {
            Value::Number(number) => number.as_u64()?,
            other => text(other)?.parse().ok()?,
        })),
        KeyKind::F64 => ScalarValue::Float64(Some(match value {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => match text.as_str() {
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                other => other.parse().ok()?,
            },
            _ => return None,
        })),
        KeyKind::Str => match value {
            Value::Null => ScalarValue::Utf8View(None),
            other => ScalarValue::Utf8View(Some(text(other)?)),
        },
        KeyKind::Ip => match value {
            Value::Null => ScalarValue::FixedSizeBinary(16, None),
            other => ScalarValue::FixedSizeBinary(16, Some(parse_ip(&text(other)?)?.to_vec())),
        },
    })
}

fn parse_ip(text: &str) -> Option<[u8; 16]> {
    match text.parse().ok()? {
        std::net::IpAddr::V4(v4) => Some(v4.to_ipv6_mapped().octets()),
        std::net::IpAddr::V6(v6) => Some(v6.octets()),
    }
}

/// Makes the key of a field over all indices; failures of single indices go to `failed`.
fn field_key(
    sort: &FieldSort,
    descending: bool,
    number: usize,
    snapshot: &TableSnapshot,
    now_ms: i64,
    failed: &mut Vec<(usize, Error)>,
) -> Result<Key> {
    let mut kind: Option<KeyKind> = None;
    let mut sources = Vec::with_capacity(snapshot.indices.len());
    let mut first = None;
    for (at, index) in snapshot.indices.iter().enumerate() {
        let found = index.mapping.field(&sort.field);
        let own = match found {
            Some(field) => source(sort, field).map(|(kind, source)| (Some(kind), Some(source))),
            None => match &sort.unmapped_type {
                Some(name) => unmapped_kind(name).map(|kind| (Some(kind), None)),
                None if sort.field == "_id" => Err(Error::IllegalArgument(
                    "Fielddata access on the _id field is disallowed, you can re-enable it by updating the dynamic cluster setting: indices.id_field_data.enabled".to_owned(),
                )),
                None => Err(Error::QueryShard {
                    reason: format!("No mapping found for [{}] in order to sort on", sort.field),
                    caused_by: None,
                }),
            },
        };
        match own {
            Ok((own, source)) => {
                if first.is_none() {
                    first = found.map(|field| (&index.mapping, field));
                }
                kind = match (kind, own) {
                    (Some(a), Some(b)) => Some(joined(&sort.field, a, b)?),
                    (a, b) => a.or(b),
                };
                sources.push(source);
            }
            Err(error) => {
                if !failed.iter().any(|(index, _)| *index == at) {
                    failed.push((at, error));
                }
                sources.push(None);
            }
        }
    }
    let kind = kind.unwrap_or(KeyKind::I64);
    let numeric = !matches!(kind, KeyKind::Str | KeyKind::Ip);
    if !numeric && matches!(sort.mode, Some(Mode::Sum | Mode::Avg | Mode::Median)) {
        return Err(Error::IllegalArgument(
            "we only support AVG, MEDIAN and SUM on number based fields".to_owned(),
        ));
    }
    let mut key = Key {
        name: format!("sort_{number}({})", sort.field),
        kind,
        nulls_first: sort.missing == Missing::First,
        mode: sort.mode.unwrap_or(if descending { Mode::Max } else { Mode::Min }),
        fill: Fill::Null,
        sources,
    };
    // Last when ascending and first when descending is where the greatest value is.
    let greatest = (sort.missing == Missing::First) == descending;
    key.fill = match (&sort.missing, kind) {
        (Missing::Value(value), _) => {
            let value = key_value(&key, first, value, now_ms).ok_or_else(|| {
                Error::IllegalArgument(format!(
                    "missing value [{}] does not fit the sort field [{}]",
                    text(value).unwrap_or_default(),
                    sort.field
                ))
            })?;
            fill_of(value)
        }
        (_, KeyKind::I64) => Fill::I64(if greatest { i64::MAX } else { i64::MIN }),
        (_, KeyKind::U64) => Fill::U64(if greatest { u64::MAX } else { 0 }),
        (_, KeyKind::F64) => Fill::F64(if greatest { f64::INFINITY } else { f64::NEG_INFINITY }),
        _ => Fill::Null,
    };
    Ok(key)
}

fn fill_of(value: ScalarValue) -> Fill {
    match value {
        ScalarValue::Int64(Some(value)) => Fill::I64(value),
        ScalarValue::UInt64(Some(value)) => Fill::U64(value),
        ScalarValue::Float64(Some(value)) => Fill::F64(value),
        ScalarValue::Utf8View(Some(value)) => Fill::Str(value),
        ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            <[u8; 16]>::try_from(bytes.as_slice()).map_or(Fill::Null, Fill::Ip)
        }
        _ => Fill::Null,
    }
}

fn joined(field: &str, a: KeyKind, b: KeyKind) -> Result<KeyKind> {
    match (a, b) {
        (a, b) if a == b => Ok(a),
        (KeyKind::I64, KeyKind::F64) | (KeyKind::F64, KeyKind::I64) => Ok(KeyKind::F64),
        (a, b) => Err(Error::IllegalArgument(format!(
            "Can't sort on field [{field}]; the field has incompatible sort types: [{}] and [{}] across shards!",
            a.name(),
            b.name()
        ))),
    }
}

fn source(sort: &FieldSort, field: &Field) -> Result<(KeyKind, KeySource)> {
    if matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText) {
        return Err(Error::IllegalArgument(format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [{}] in order to load field data by uninverting the inverted index. Note that this can use significant memory.",
            field.path
        )));
    }
    let column = field.column_kind();
    let kind = match column {
        ColumnKind::Int(_) | ColumnKind::Bool | ColumnKind::DateMs | ColumnKind::DateNanos => KeyKind::I64,
        ColumnKind::U64 => KeyKind::U64,
        ColumnKind::F32 | ColumnKind::F64 => KeyKind::F64,
        ColumnKind::Str if field.field_type != FieldType::Binary => KeyKind::Str,
        ColumnKind::Ip => KeyKind::Ip,
        ColumnKind::Str | ColumnKind::GeoPoint => {
            return Err(Error::IllegalArgument(format!(
                "can't sort on {} field without using specific sorting feature, like geo_distance",
                field.type_name()
            )));
        }
    };
    if !field.doc_values {
        return Err(Error::IllegalArgument(format!(
            "Can't load fielddata on [{}] because fielddata is unsupported on fields of type [{}]. Use doc values instead.",
            field.path,
            field.type_name()
        )));
    }
    let (kind, rescale) = match (sort.numeric_type, kind, column) {
        (None, kind, _) => (kind, Rescale::None),
        (Some(_), KeyKind::Str | KeyKind::Ip, _) => {
            return Err(Error::IllegalArgument(format!(
                "[numeric_type] option cannot be set on a non-numeric field, got {}",
                field.type_name()
            )));
        }
        (Some(NumericType::Double), _, _) => (KeyKind::F64, Rescale::None),
        (Some(NumericType::Date), _, ColumnKind::DateNanos) => (KeyKind::I64, Rescale::NanosToMillis),
        (Some(NumericType::DateNanos), _, ColumnKind::DateMs) => (KeyKind::I64, Rescale::MillisToNanos),
        (Some(_), _, _) => (KeyKind::I64, Rescale::None),
    };
    let source = KeySource {
        column: field.column,
        kind: column,
        ignore_above: field.ignore_above.filter(|_| column == ColumnKind::Str),
        rescale,
        single: column == ColumnKind::F32 && sort.numeric_type.is_none(),
    };
    Ok((kind, source))
}

fn unmapped_kind(name: &str) -> Result<KeyKind> {
    match name {
        "byte" | "short" | "integer" | "long" | "boolean" | "date" | "date_nanos" => Ok(KeyKind::I64),
        "unsigned_long" => Ok(KeyKind::U64),
        "half_float" | "float" | "double" | "scaled_float" => Ok(KeyKind::F64),
        "keyword" | "wildcard" | "constant_keyword" => Ok(KeyKind::Str),
        "ip" => Ok(KeyKind::Ip),
        _ => Err(Error::IllegalArgument(format!("No mapper found for type [{name}]"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_values_print_as_opensearch_prints_them() {
        assert_eq!(number(1.1_f32.into(), true).to_string(), "1.1");
        assert_eq!(number(f64::INFINITY, false), json!("Infinity"));
        assert_eq!(render_ip(parse_ip("10.0.0.1").unwrap()), "10.0.0.1");
        assert_eq!(DateFormat::Iso.render(1_571_646_604_828, false), json!("2019-10-21T08:30:04.828Z"));
        assert_eq!(
            DateFormat::IsoNanos.render(1_571_646_604_828_733_000, true),
            json!("2019-10-21T08:30:04.828733000Z")
        );
    }

    #[test]
    fn scores_continue_in_the_scan_and_keys_above_it() {
        let snapshot = TableSnapshot::default();
        let (order, _) = Order::new(&[], &snapshot, 0).unwrap();
        let after = Point { values: vec![PointValue::Score(2.0)], address: None };
        assert_eq!(order.cursor(&after), Some(Cursor { score: Some(2.0), address: None }));

        let sort = crate::dsl::sort::parse_param("size:desc,_doc").unwrap();
        let (order, _) = Order::new(&sort, &snapshot, 0).unwrap();
        let after = Point {
            values: vec![
                PointValue::Key(ScalarValue::Int64(Some(7))),
                PointValue::Doc(Address { segment: 1, row: 2 }),
            ],
            address: None,
        };
        insta::assert_snapshot!(
            order.behind(&after),
            @"sort_0(size) < Int64(7) OR sort_0(size) IS NULL OR sort_0(size) = Int64(7) AND (_segment > UInt32(1) OR _segment = UInt32(1) AND _row > UInt32(2))"
        );
    }
}
