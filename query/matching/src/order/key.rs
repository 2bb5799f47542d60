//! The key of a sort over all indices of a table, and sort values as requests give them.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use millrace_dsl::json::{integer, not_a_number, text};
use millrace_dsl::query::geo::{Corner, GeoPoint, Validation};
use millrace_dsl::sort::{FieldSort, GeoDistanceSort, Missing, Mode, NumericType};
use millrace_mapping::{ColumnKind, Field, FieldType, Mapping, PathId, Scalar};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::nested::nested_key;
use super::taken;
use crate::table::derived_key::DerivedKey;
use crate::table::distance::Distance;
use crate::table::keys::{Key, KeyKind, KeySource, MissingKey, Rescale};
use crate::table::metadata_field::MetadataField;
use crate::table::snapshot::TableSnapshot;

/// Makes the source of a metadata field of an index.
fn metadata(field: MetadataField, index: &str) -> (KeyKind, KeySource) {
    let kind = match field {
        MetadataField::Id | MetadataField::Index => KeyKind::Str,
        MetadataField::SeqNo => KeyKind::I64,
    };
    let source = KeySource {
        // Never read: a derived key of metadata has no column.
        column: PathId(u32::MAX),
        terms: None,
        kind: field.column_kind(),
        ignore_above: None,
        rescale: Rescale::None,
        single: false,
        distance: None,
        derived: Some(field.sort_key(index)),
    };
    (kind, source)
}

/// Makes the key of a field over all indices; failures of single indices go to `failed`.
pub(super) fn field_key(
    sort: &FieldSort,
    descending: bool,
    number: usize,
    snapshot: &TableSnapshot,
    now_ms: i64,
    failed: &mut Vec<(usize, Error)>,
) -> Result<Key> {
    let nested = sort.nested.as_ref().map(|own| nested_key(own, snapshot, now_ms, failed)).transpose()?;
    let nested = nested.map(DerivedKey::Elements);
    let mut kind: Option<KeyKind> = None;
    let mut sources = Vec::with_capacity(snapshot.indices.len());
    let mut first = None;
    for (at, index) in snapshot.indices.iter().enumerate() {
        let found = index.mapping.field(&sort.field);
        let own = match found {
            Some(field) => source(sort, field).map(|(kind, mut source)| {
                source.derived.clone_from(&nested);
                (Some(kind), Some(source))
            }),
            None => match (MetadataField::find(&sort.field), &sort.unmapped_type) {
                (Err(error), _) => Err(error),
                (Ok(Some(field)), _) => {
                    let (kind, source) = metadata(field, &index.meta.name);
                    Ok((Some(kind), Some(source)))
                }
                (Ok(None), Some(name)) => unmapped_kind(name).map(|kind| (Some(kind), None)),
                (Ok(None), None) => Err(Error::QueryShard {
                    reason: format!("No mapping found for [{}] in order to sort on", sort.field),
                    caused_by: None,
                }),
            },
        };
        let Some((own, source)) = taken(own, at, failed) else {
            sources.push(None);
            continue;
        };
        if first.is_none() {
            first = found.map(|field| (&index.mapping, field));
        }
        kind = match (kind, own) {
            (Some(a), Some(b)) => Some(joined(&sort.field, a, b)?),
            (a, b) => a.or(b),
        };
        sources.push(source);
    }
    let kind = kind.unwrap_or(KeyKind::I64);
    let small_type = |name: &str| matches!(name, "byte" | "short" | "integer" | "boolean");
    let small = sort.numeric_type.is_none()
        && sources.iter().all(|source| match source {
            Some(source) => {
                matches!(source.kind, ColumnKind::Bool | ColumnKind::Int(8 | 16 | 32))
            }
            None => sort.unmapped_type.as_deref().is_some_and(small_type),
        });
    let numeric = !matches!(kind, KeyKind::Str | KeyKind::Ip);
    if !numeric && matches!(sort.mode, Some(Mode::Sum | Mode::Avg | Mode::Median)) {
        return Err(Error::QueryShard {
            reason: "we only support AVG, MEDIAN and SUM on number based fields".to_owned(),
            caused_by: None,
        });
    }
    let mut key = Key {
        name: format!("sort_{number}({})", sort.field),
        kind,
        nulls_first: sort.missing == Missing::First,
        mode: sort.mode.unwrap_or(if descending { Mode::Max } else { Mode::Min }),
        fill: MissingKey::Null,
        sources,
    };
    // Last when ascending and first when descending is where the greatest value is.
    let greatest = (sort.missing == Missing::First) == descending;
    key.fill = match (&sort.missing, kind) {
        (Missing::Value(value), _) => {
            let value = key_value(&key, first, value, now_ms)
                .ok_or_else(|| not_a_number(&text(value).unwrap_or_default()))?;
            fill_of(value)
        }
        // Lucene keeps the small integers as such, and what is missing among them too.
        (_, KeyKind::I64) if small => MissingKey::I64(i64::from(if greatest { i32::MAX } else { i32::MIN })),
        (_, KeyKind::I64) => MissingKey::I64(if greatest { i64::MAX } else { i64::MIN }),
        (_, KeyKind::U64) => MissingKey::U64(if greatest { u64::MAX } else { 0 }),
        (_, KeyKind::F64) => MissingKey::F64(if greatest { f64::INFINITY } else { f64::NEG_INFINITY }),
        _ => MissingKey::Null,
    };
    Ok(key)
}

/// Makes the key of distances over all indices; failures of single indices go to `failed`. What has no
/// point is infinitely far away.
pub(super) fn distance_key(
    sort: &GeoDistanceSort,
    descending: bool,
    number: usize,
    snapshot: &TableSnapshot,
    now_ms: i64,
    failed: &mut Vec<(usize, Error)>,
) -> Result<Key> {
    let nested = sort.nested.as_ref().map(|own| nested_key(own, snapshot, now_ms, failed)).transpose()?;
    let nested = nested.map(DerivedKey::Elements);
    let mut sources = Vec::with_capacity(snapshot.indices.len());
    for (at, index) in snapshot.indices.iter().enumerate() {
        sources.push(taken(distance_source(sort, &nested, &index.mapping), at, failed).flatten());
    }
    Ok(Key {
        name: format!("sort_{number}(distance of {})", sort.field),
        kind: KeyKind::F64,
        nulls_first: false,
        mode: sort.mode.unwrap_or(if descending { Mode::Max } else { Mode::Min }),
        fill: MissingKey::F64(f64::INFINITY),
        sources,
    })
}

fn distance_source(
    sort: &GeoDistanceSort,
    nested: &Option<DerivedKey>,
    mapping: &Mapping,
) -> Result<Option<KeySource>> {
    let Some(field) = mapping.field(&sort.field) else {
        if sort.ignore_unmapped {
            return Ok(None);
        }
        return Err(Error::IllegalArgument(format!(
            "failed to find mapper for [{}] for geo distance based sort",
            sort.field
        )));
    };
    if field.field_type != FieldType::GeoPoint {
        return Err(Error::IllegalArgument(format!(
            "can't sort by the distance of field [{}] of type [{}], it has no points",
            sort.field,
            field.type_name()
        )));
    }
    let mut origins = Vec::with_capacity(sort.origins.len());
    for origin in &sort.origins {
        let mut point = GeoPoint::parse(origin, Corner::POINT)?;
        if sort.validation == Validation::Coerce {
            point = point.normalized(false);
        }
        for (name, degrees, most) in [("latitude", point.lat, 90.0), ("longitude", point.lon, 180.0)] {
            if (-most..=most).contains(&degrees) {
                continue;
            }
            return Err(match sort.validation {
                Validation::Strict => Error::Exception {
                    kind: "parse_exception",
                    status: 400,
                    reason: format!(
                        "illegal {name} value [{degrees:?}] for [GeoDistanceSort] for field [{}].",
                        sort.field
                    ),
                },
                _ => Error::IllegalArgument(format!(
                    "invalid {name} {degrees:?}; must be between -{most:?} and {most:?}"
                )),
            });
        }
        origins.push([point.lat, point.lon]);
    }
    let distance = Distance { origins, unit: sort.unit, plane: sort.plane };
    Ok(Some(KeySource {
        column: field.column,
        terms: None,
        kind: ColumnKind::GeoPoint,
        ignore_above: None,
        rescale: Rescale::None,
        single: false,
        distance: Some(Arc::new(distance)),
        derived: nested.clone(),
    }))
}

/// Reads a value of a key; `None` where it is none.
pub(super) fn key_value(
    key: &Key,
    field: Option<(&Arc<Mapping>, &Field)>,
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

fn fill_of(value: ScalarValue) -> MissingKey {
    match value {
        ScalarValue::Int64(Some(value)) => MissingKey::I64(value),
        ScalarValue::UInt64(Some(value)) => MissingKey::U64(value),
        ScalarValue::Float64(Some(value)) => MissingKey::F64(value),
        ScalarValue::Utf8View(Some(value)) => MissingKey::Str(value),
        ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            <[u8; 16]>::try_from(bytes.as_slice()).map_or(MissingKey::Null, MissingKey::Ip)
        }
        _ => MissingKey::Null,
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
    if matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_))
    {
        return Err(Error::IllegalArgument(format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [{}] in order to load field data by uninverting the inverted index. Note that this can use significant memory.",
            field.path
        )));
    }
    if field.field_type == FieldType::FlatObject {
        return Err(Error::IllegalArgument(format!(
            "can't sort on the flat_object field [{}], use a keyword field instead",
            field.path
        )));
    }
    if let FieldType::Range(_) = field.field_type {
        return Err(Error::IllegalArgument(format!(
            "can't sort on the field [{}] of type [{}]: ranges have no order",
            field.path,
            field.type_name()
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
            return Err(Error::QueryShard {
                reason: format!(
                    "[numeric_type] option cannot be set on a non-numeric field, got {}",
                    field.type_name()
                ),
                caused_by: None,
            });
        }
        (Some(NumericType::Double), _, _) => (KeyKind::F64, Rescale::None),
        (Some(NumericType::Date), _, ColumnKind::DateNanos) => (KeyKind::I64, Rescale::NanosToMillis),
        (Some(NumericType::DateNanos), _, ColumnKind::DateMs) => (KeyKind::I64, Rescale::MillisToNanos),
        (Some(_), _, _) => (KeyKind::I64, Rescale::None),
    };
    // Terms are the values themselves only where nothing changes these.
    let plain = field.index && field.normalizer.is_none() && !field.params.contains_key("null_value");
    let source = KeySource {
        column: field.column,
        terms: (plain && (field.field_type == FieldType::Keyword || matches!(column, ColumnKind::Int(_))))
            .then_some(field.id),
        kind: column,
        ignore_above: field.column_limit().filter(|_| column == ColumnKind::Str),
        rescale,
        single: column == ColumnKind::F32 && sort.numeric_type.is_none(),
        distance: None,
        derived: None,
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
