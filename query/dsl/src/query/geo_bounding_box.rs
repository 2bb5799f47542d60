//! `geo_bounding_box`: documents with a point in a box of degrees.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::function_score::double;
use super::geo::{Corner, GeoPoint, Validation, unreadable};
use super::{Clause, Common, Parser};
use crate::json;

/// A `geo_bounding_box` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoBoundingBoxQuery {
    /// Field path.
    pub field: String,
    /// The box.
    pub bounds: GeoBox,
    /// Treatment of corners that are not on the earth.
    pub validation: Validation,
    /// `true` if an unknown field matches nothing instead of being refused.
    pub ignore_unmapped: bool,
    /// Boost and name.
    pub common: Common,
}

/// A box of degrees, as given; with `left` greater than `right` it goes over the date line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct GeoBox {
    pub top: f64,
    pub left: f64,
    pub bottom: f64,
    pub right: f64,
}

impl Clause for GeoBoundingBoxQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut found: Option<(&String, GeoBox)> = None;
        let (mut validation, mut ignore_unmapped) = (Validation::default(), false);
        for (key, value) in fields {
            match (key.as_str(), value) {
                (_, Value::Object(members)) => {
                    let bounds = GeoBox::parse(members).map_err(|error| failed(&format!("[{error}]")))?;
                    found = Some((key, bounds));
                }
                (_, Value::Array(_)) => return Err(unexpected(key)),
                ("validation_method", value) => validation = Validation::parse(value)?,
                ("ignore_unmapped", value) => ignore_unmapped = json::boolean(value)?,
                // How the box is looked up: there is one way here.
                ("type", value) => {
                    let name = json::text(value).unwrap_or_default();
                    if !matches!(name.as_str(), "memory" | "indexed") {
                        return Err(Error::IllegalArgument(format!(
                            "no type can be parsed from ordinal {name}"
                        )));
                    }
                }
                _ if common.take("geo_bounding_box", key, value)? => {}
                _ => return Err(unexpected(key)),
            }
        }
        let (field, bounds) = found.ok_or_else(|| failed("bounding box not provided"))?;
        if validation == Validation::Strict {
            bounds.check()?;
        }
        Ok(Self { field: field.clone(), bounds, validation, ignore_unmapped, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GeoBox { top, left, bottom, right } = self.bounds;
        write!(f, "{} in [{top}, {left}] to [{bottom}, {right}]", self.field)
    }
}

impl GeoBox {
    fn parse(members: &Map<String, Value>) -> Result<Self> {
        let nowhere = f64::NAN;
        let mut bounds = Self { top: nowhere, left: nowhere, bottom: nowhere, right: nowhere };
        let mut envelope = None;
        for (key, value) in members {
            let corner = |top, right| GeoPoint::parse(value, Corner { top, right });
            match key.as_str() {
                "top" => bounds.top = double(value)?,
                "bottom" => bounds.bottom = double(value)?,
                "left" => bounds.left = double(value)?,
                "right" => bounds.right = double(value)?,
                "top_left" => {
                    let point = corner(true, false)?;
                    (bounds.top, bounds.left) = (point.lat, point.lon);
                }
                "bottom_right" => {
                    let point = corner(false, true)?;
                    (bounds.bottom, bounds.right) = (point.lat, point.lon);
                }
                "top_right" => {
                    let point = corner(true, true)?;
                    (bounds.top, bounds.right) = (point.lat, point.lon);
                }
                "bottom_left" => {
                    let point = corner(false, false)?;
                    (bounds.bottom, bounds.left) = (point.lat, point.lon);
                }
                "wkt" => envelope = Some(wkt(&json::text(value).unwrap_or_default())?),
                _ => {
                    return Err(unreadable(format!(
                        "failed to parse bounding box. unexpected field [{key}]"
                    )));
                }
            }
        }
        match envelope {
            None => Ok(bounds),
            Some(envelope) => {
                let all = [bounds.top, bounds.left, bounds.bottom, bounds.right];
                if all.iter().any(|side| !side.is_nan()) {
                    return Err(unreadable(
                        "failed to parse bounding box. Conflicting definition found using well-known text and explicit corners."
                            .to_owned(),
                    ));
                }
                Ok(envelope)
            }
        }
    }

    fn check(&self) -> Result<()> {
        let Self { top, left, bottom, right } = *self;
        let refused = |reason: String| Err(Error::IllegalArgument(reason));
        for (side, name) in [
            (top, "top latitude"),
            (left, "left longitude"),
            (bottom, "bottom latitude"),
            (right, "right longitude"),
        ] {
            if !side.is_finite() {
                return refused(format!(
                    "{name} is invalid: {}",
                    if side.is_nan() { "NaN" } else { "Infinity" }
                ));
            }
        }
        if top < bottom {
            return refused(format!("top is below bottom corner: {top:?} vs. {bottom:?}"));
        }
        if top == bottom {
            return refused(format!("top cannot be the same as bottom: {top:?} == {bottom:?}"));
        }
        if left == right {
            return refused(format!("left cannot be the same as right: {left:?} == {right:?}"));
        }
        Ok(())
    }
}

/// Parses `BBOX (left, right, top, bottom)`.
fn wkt(text: &str) -> Result<GeoBox> {
    let failed = |what: &str| Err(unreadable(format!("failed to parse WKT bounding box{what}")));
    let trimmed = text.trim();
    let Some((kind, rest)) = trimmed.split_once('(') else { return failed("") };
    let kind = kind.trim().to_ascii_uppercase();
    if matches!(
        kind.as_str(),
        "POINT"
            | "LINESTRING"
            | "POLYGON"
            | "MULTIPOINT"
            | "MULTILINESTRING"
            | "MULTIPOLYGON"
            | "GEOMETRYCOLLECTION"
    ) {
        return failed(&format!(". [{kind}] found. expected [ENVELOPE]"));
    }
    let Some(inside) = rest.trim_end().strip_suffix(')') else { return failed("") };
    let numbers: Option<Vec<f64>> = inside.split(',').map(|part| part.trim().parse().ok()).collect();
    match (kind.as_str(), numbers.as_deref()) {
        ("BBOX", Some([left, right, top, bottom])) => {
            Ok(GeoBox { top: *top, left: *left, bottom: *bottom, right: *right })
        }
        _ => failed(""),
    }
}

fn failed(what: &str) -> Error {
    unreadable(format!("failed to parse [geo_bounding_box] query. {what}"))
}

fn unexpected(key: &str) -> Error {
    Error::Parsing(format!("failed to parse [geo_bounding_box] query. unexpected field [{key}]"))
}
