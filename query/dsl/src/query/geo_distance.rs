//! `geo_distance`: documents with a point within a distance of another.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::geo::{self, Corner, GeoPoint, Validation};
use super::{Clause, Common, Parser, unsupported};
use crate::json;

/// A `geo_distance` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoDistanceQuery {
    /// Field path.
    pub field: String,
    /// The centre.
    pub center: GeoPoint,
    /// Greatest distance, in metres.
    pub distance: f64,
    /// Treatment of a centre that is not on the earth.
    pub validation: Validation,
    /// `true` if an unknown field matches nothing instead of being refused.
    pub ignore_unmapped: bool,
    /// Boost and name.
    pub common: Common,
}

impl Clause for GeoDistanceQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let (mut field, mut object): (Option<String>, Option<&str>) = (None, None);
        let mut center = GeoPoint { lat: f64::NAN, lon: f64::NAN };
        let (mut distance, mut unit) = (None, 1.0);
        let (mut validation, mut ignore_unmapped) = (Validation::default(), false);
        for (key, value) in fields {
            match (key.as_str(), value) {
                (_, Value::Array(_)) => {
                    field = Some(key.clone());
                    center = GeoPoint::parse(value, Corner::POINT)?;
                }
                (_, Value::Object(members)) => {
                    if let Some(first) = object {
                        return Err(Error::Parsing(format!(
                            "[geo_distance] query doesn't support multiple fields, found [{first}] and [{key}]"
                        )));
                    }
                    object = Some(key);
                    field = Some(key.clone());
                    center = object_center(key, members)?;
                }
                ("distance", value) => distance = Some(value),
                ("unit", value) => unit = geo::unit(&json::text(value).unwrap_or_default())?,
                // Filters measure along the surface whatever is asked, as OpenSearch's do.
                ("distance_type", value) => distance_type(&json::text(value).unwrap_or_default())?,
                ("validation_method", value) => validation = Validation::parse(value)?,
                ("ignore_unmapped", value) => ignore_unmapped = json::boolean(value)?,
                _ if common.take("geo_distance", key, value)? => {}
                (key, value) => {
                    if let Some(name) = key.strip_suffix(".lat") {
                        field = Some(name.to_owned());
                        center.lat = super::function_score::double(value)?;
                    } else if let Some(name) = key.strip_suffix(".lon") {
                        field = Some(name.to_owned());
                        center.lon = super::function_score::double(value)?;
                    } else if field.is_none() {
                        field = Some(key.to_owned());
                        center = GeoPoint::parse(value, Corner::POINT)?;
                    } else {
                        return Err(Error::Parsing(format!(
                            "failed to parse [geo_distance] query. unexpected field [{key}]"
                        )));
                    }
                }
            }
        }
        let distance = distance
            .ok_or_else(|| Error::Parsing("geo_distance requires 'distance' to be specified".to_owned()))?;
        let field = field
            .filter(|field| !field.is_empty())
            .ok_or_else(|| Error::IllegalArgument("fieldName must not be null or empty".to_owned()))?;
        let distance = geo::distance(distance, unit)?;
        if distance.is_nan() || distance <= 0.0 {
            return Err(Error::IllegalArgument("distance must be greater than zero".to_owned()));
        }
        Ok(Self { field, center, distance, validation, ignore_unmapped, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GeoPoint { lat, lon } = self.center;
        write!(f, "{} within {} m of [{lat}, {lon}]", self.field, self.distance)
    }
}

/// Reads a centre of which parts may be missing: that is found out with the mapping.
fn object_center(field: &str, members: &Map<String, Value>) -> Result<GeoPoint> {
    let mut center = GeoPoint { lat: f64::NAN, lon: f64::NAN };
    for (key, value) in members {
        match key.as_str() {
            "lat" => center.lat = super::function_score::double(value)?,
            "lon" => center.lon = super::function_score::double(value)?,
            "geohash" => {
                center = GeoPoint::of_text(&json::text(value).unwrap_or_default(), Corner::POINT)?;
            }
            _ => return Err(unsupported("geo_distance", field)),
        }
    }
    Ok(center)
}

/// Checks the name of a way to measure.
pub(crate) fn distance_type(name: &str) -> Result<()> {
    match name.to_ascii_lowercase().as_str() {
        "arc" | "plane" => Ok(()),
        _ => Err(Error::IllegalArgument(format!("No geo distance for [{name}]"))),
    }
}
