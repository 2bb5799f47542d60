//! `distance_feature` meets a mapping: the rows with a value, scored by a function of it.

use millrace_dsl::json;
use millrace_dsl::query::geo::{self, Corner, GeoPoint};
use millrace_dsl::query::{BoostMode, Combination, DistanceFeatureQuery, ScoreMode};
use millrace_mapping::{ColumnKind, Field, FieldType};
use millrace_scoring::node::{Node, NodeFunction};
use millrace_scoring::operands::Weight;
use millrace_scoring::row_function::{Origin, RowFunction};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::{LowerClause, Resolver, searchable};
use crate::table::values;

const NANOS_PER_MS: f64 = 1e6;

impl LowerClause for DistanceFeatureQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let Some(field) = resolver.index.mapping.field(&self.field) else { return Ok(Node::None) };
        let (from, pivot) = match field.field_type {
            FieldType::Date | FieldType::DateNanos => resolver.date_origin(field, self)?,
            FieldType::GeoPoint => point_origin(field, self)?,
            _ => {
                return Err(Error::IllegalArgument(format!(
                    "Illegal data type of [{}]![distance_feature] query can only be run on a date, date_nanos or geo_point field type!",
                    field.type_name()
                )));
            }
        };
        searchable(field)?;
        let base = Node::Exists { paths: vec![field.id], weight: Weight::None };
        let Weight::Constant(boost) = weight else { return Ok(base) };
        let function = RowFunction::Nearness { from, pivot };
        Ok(Node::FunctionScore {
            base: Box::new(base),
            functions: vec![NodeFunction { filter: None, function, weight: Some(boost) }],
            combination: Combination {
                score_mode: ScoreMode::Sum,
                boost_mode: BoostMode::Replace,
                max_boost: f32::MAX,
                min_score: None,
            },
        })
    }
}

impl Resolver<'_> {
    /// Distances of dates are in milliseconds, in any unit of the field.
    fn date_origin(&self, field: &Field, query: &DistanceFeatureQuery) -> Result<(Origin, f64)> {
        let nanos = field.column_kind() == ColumnKind::DateNanos;
        let unit = if nanos { NANOS_PER_MS } else { 1.0 };
        // Other forms than texts and numbers are no dates: the field's parser says so.
        let origin = match &query.origin {
            other @ (Value::String(_) | Value::Number(_)) => other.clone(),
            other => Value::String(other.to_string()),
        };
        let (_, latest) = values::date_span(self.index.mapping, field, &origin, self.index.now_ms)?;
        let pivot = pivot_ms(&query.pivot, nanos)?;
        Ok((Origin::Number { column: field.column, unit, origin: latest as f64 / unit }, pivot))
    }
}

fn point_origin(field: &Field, query: &DistanceFeatureQuery) -> Result<(Origin, f64)> {
    if let Value::Number(number) = &query.origin {
        let class = if number.is_f64() { "Double" } else { "Long" };
        return Err(Error::IllegalArgument(format!(
            "Illegal type [class java.lang.{class}] for [origin]! Must be of type [geo_point] or [string] for geo_point fields!"
        )));
    }
    let origin = GeoPoint::parse(&query.origin, Corner::POINT)?;
    let pivot = positive(geo::parse_distance(&query.pivot, 1.0)?)?;
    Ok((Origin::Point { column: field.column, lat: origin.lat, lon: origin.lon }, pivot))
}

/// Reads a time in the precision of the field.
fn pivot_ms(text: &str, nanos: bool) -> Result<f64> {
    let fine = [("nanos", 1.0 / NANOS_PER_MS), ("micros", 1e-3)];
    for (unit, ms) in fine.iter().filter(|_| nanos) {
        if let Some(count) = text.trim().strip_suffix(unit).and_then(|count| count.parse::<u64>().ok()) {
            return positive(count as f64 * ms);
        }
    }
    let parsed = json::parse_time("distance_feature.pivot", text)?;
    positive(parsed.map_or(-1.0, |ms| ms as f64))
}

fn positive(pivot: f64) -> Result<f64> {
    match pivot > 0.0 {
        true => Ok(pivot),
        false => Err(Error::IllegalArgument(format!("pivotDistance must be > 0, got {pivot:?}"))),
    }
}
