//! Queries over points meet a mapping.

use millrace_dsl::query::geo::{GeoPoint, Validation};
use millrace_dsl::query::{GeoBoundingBoxQuery, GeoDistanceQuery, GeoPolygonQuery};
use millrace_mapping::{Field, FieldType};
use millrace_scoring::geo::GeoArea;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use super::{LowerClause, Resolver};

impl LowerClause for GeoBoundingBoxQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let field = resolver.point_field("geo_bounding_box", &self.field, self.ignore_unmapped)?;
        let Some(field) = field else { return Ok(Node::None) };
        let bounds = self.bounds;
        let mut top_left = checked(GeoPoint { lat: bounds.top, lon: bounds.left }, self.validation)?;
        let mut bottom_right = checked(GeoPoint { lat: bounds.bottom, lon: bounds.right }, self.validation)?;
        if self.validation == Validation::Coerce {
            let whole = (bounds.right - bounds.left) % 360.0 == 0.0 && bounds.right > bounds.left;
            top_left = top_left.normalized(whole);
            bottom_right = bottom_right.normalized(whole);
            if whole {
                (top_left.lon, bottom_right.lon) = (-180.0, 180.0);
            }
        }
        on_earth(top_left)?;
        on_earth(bottom_right)?;
        let area = GeoArea::of_box(top_left.lat, top_left.lon, bottom_right.lat, bottom_right.lon);
        Ok(Node::Within { column: field.column, area, weight })
    }
}

impl LowerClause for GeoDistanceQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let field = resolver.point_field("geo_distance", &self.field, self.ignore_unmapped)?;
        let Some(field) = field else { return Ok(Node::None) };
        let center = checked(self.center, self.validation)?;
        let center = match self.validation {
            Validation::Coerce => center.normalized(false),
            _ => center,
        };
        on_earth(center)?;
        let area = GeoArea::Circle { lat: center.lat, lon: center.lon, metres: self.distance };
        Ok(Node::Within { column: field.column, area, weight })
    }
}

impl LowerClause for GeoPolygonQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let refused = |reason: String| Error::QueryShard { reason, caused_by: None };
        let field = match resolver.index.mapping.field(&self.field) {
            None if self.ignore_unmapped => return Ok(Node::None),
            None => return Err(refused(format!("failed to find geo_point field [{}]", self.field))),
            Some(field) if field.field_type != FieldType::GeoPoint => {
                return Err(refused(format!("field [{}] is not a geo_point field", self.field)));
            }
            Some(field) => field,
        };
        let mut corners = Vec::with_capacity(self.corners.len());
        for corner in &self.corners {
            let corner = match self.validation {
                Validation::Coerce => corner.normalized(false),
                _ => *corner,
            };
            if self.validation == Validation::Strict {
                if !(-90.0..=90.0).contains(&corner.lat) {
                    return Err(refused(format!(
                        "illegal latitude value [{:?}] for [geo_polygon]",
                        corner.lat
                    )));
                }
                if !(-180.0..=180.0).contains(&corner.lon) {
                    return Err(refused(format!(
                        "illegal longitude value [{:?}] for [geo_polygon]",
                        corner.lon
                    )));
                }
            }
            on_earth(corner)?;
            corners.push((corner.lat, corner.lon));
        }
        Ok(Node::Within { column: field.column, area: GeoArea::Polygon(corners.into()), weight })
    }
}

impl Resolver<'_> {
    /// Finds a field of points; `None` where an index need not have it.
    fn point_field(&self, clause: &str, path: &str, ignore_unmapped: bool) -> Result<Option<&Field>> {
        let reason = match self.index.mapping.field(path) {
            Some(field) if field.field_type == FieldType::GeoPoint => return Ok(Some(field)),
            Some(field) => format!(
                "type [{}] for field [{path}] is not supported for [{clause}] queries. Must be one of [geo_point] or [geo_shape]",
                field.type_name()
            ),
            None if ignore_unmapped => return Ok(None),
            None => format!("failed to find geo field [{path}]"),
        };
        Err(Error::QueryShard { reason, caused_by: None })
    }
}

/// Refuses a point that is not on the earth, where that is not left to later.
fn checked(point: GeoPoint, validation: Validation) -> Result<GeoPoint> {
    let valid = (-90.0..=90.0).contains(&point.lat) && (-180.0..=180.0).contains(&point.lon);
    if valid || validation != Validation::Strict {
        return Ok(point);
    }
    Err(Error::QueryShard {
        reason: "couldn't validate latitude/ longitude values".to_owned(),
        caused_by: None,
    })
}

/// Refuses a point that is still not on the earth.
fn on_earth(point: GeoPoint) -> Result<()> {
    let refused = |reason: String| Err(Error::IllegalArgument(reason));
    if !(-90.0..=90.0).contains(&point.lat) {
        return refused(format!("invalid latitude {:?}; must be between -90.0 and 90.0", point.lat));
    }
    if !(-180.0..=180.0).contains(&point.lon) {
        return refused(format!("invalid longitude {:?}; must be between -180.0 and 180.0", point.lon));
    }
    Ok(())
}
