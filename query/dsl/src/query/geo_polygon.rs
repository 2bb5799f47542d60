//! `geo_polygon`: documents with a point in a polygon.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::geo::{Corner, GeoPoint, Validation};
use super::{Clause, Common, Parser, unsupported};
use crate::json;

/// Most corners of a polygon.
const MAX_CORNERS: usize = 10_000;

/// A `geo_polygon` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoPolygonQuery {
    /// Field path.
    pub field: String,
    /// The corners in order; the last is the first again.
    pub corners: Vec<GeoPoint>,
    /// Treatment of corners that are not on the earth.
    pub validation: Validation,
    /// `true` if an unknown field matches nothing instead of being refused.
    pub ignore_unmapped: bool,
    /// Boost and name.
    pub common: Common,
}

impl Clause for GeoPolygonQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let (mut field, mut corners) = (None, Vec::new());
        let (mut validation, mut ignore_unmapped) = (Validation::default(), false);
        for (key, value) in fields {
            match (key.as_str(), value) {
                (_, Value::Object(members)) => {
                    field = Some(key.clone());
                    for (key, value) in members {
                        let ("points", Value::Array(points)) = (key.as_str(), value) else {
                            return Err(unsupported("geo_polygon", key));
                        };
                        if points.len() > MAX_CORNERS {
                            return Err(Error::IllegalArgument(format!(
                                "geo_polygon query has {} points, at most {MAX_CORNERS} are allowed",
                                points.len()
                            )));
                        }
                        for point in points {
                            corners.push(GeoPoint::parse(point, Corner::POINT)?);
                        }
                    }
                }
                ("validation_method", value) => validation = Validation::parse(value)?,
                ("ignore_unmapped", value) => ignore_unmapped = json::boolean(value)?,
                (_, value) if !value.is_array() && common.take("geo_polygon", key, value)? => {}
                _ => {
                    return Err(Error::Parsing(format!("[geo_polygon] unexpected field [{key}]")));
                }
            }
        }
        let refused = |reason: &str| Error::IllegalArgument(reason.to_owned());
        let field = field.ok_or_else(|| refused("fieldName must not be null"))?;
        let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) else {
            return Err(refused("polygon must not be null or empty"));
        };
        let closed = first == last;
        if corners.len() < if closed { 4 } else { 3 } {
            return Err(refused("too few points defined for geo_polygon query"));
        }
        if !closed {
            corners.push(first);
        }
        Ok(Self { field, corners, validation, ignore_unmapped, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in a polygon of {} points", self.field, self.corners.len())
    }
}
