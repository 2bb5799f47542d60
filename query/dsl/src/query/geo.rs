//! Points and distances as queries write them.

use millrace_mapping as mapping;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::function_score::double;
use crate::json::{self, not_a_number};

/// Units of length with their names and metres, in the order in which a text's end is compared.
const UNITS: &[(&[&str], f64)] = &[
    (&["in", "inch"], 0.0254),
    (&["yd", "yards"], 0.9144),
    (&["ft", "feet"], 0.3048),
    (&["km", "kilometers"], 1_000.0),
    (&["NM", "nmi", "nauticalmiles"], 1_852.0),
    (&["mm", "millimeters"], 0.001),
    (&["cm", "centimeters"], 0.01),
    (&["mi", "miles"], 1_609.344),
    (&["m", "meters"], 1.0),
];

/// A point of a query, in degrees, as given: it may be none on the earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoPoint {
    /// Latitude.
    pub lat: f64,
    /// Longitude.
    pub lon: f64,
}

/// The corner of a geohash's cell that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corner {
    /// `true` if it is one of the upper ones.
    pub top: bool,
    /// `true` if it is one of the right ones.
    pub right: bool,
}

impl Corner {
    /// The corner for a geohash that is a point.
    pub const POINT: Self = Self { top: false, right: false };
}

/// Treatment of coordinates that are not on the earth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Refused.
    #[default]
    Strict,
    /// Brought into range.
    Coerce,
    /// Left as they are.
    IgnoreMalformed,
}

impl Validation {
    /// Reads the value of `validation_method`.
    pub fn parse(value: &Value) -> Result<Self> {
        let text = json::text(value).unwrap_or_default();
        Ok(match text.to_ascii_lowercase().as_str() {
            "strict" => Self::Strict,
            "coerce" => Self::Coerce,
            "ignore_malformed" => Self::IgnoreMalformed,
            _ => {
                return Err(Error::IllegalArgument(format!(
                    "operator needs to be either [COERCE, IGNORE_MALFORMED, STRICT], but not [{text}]"
                )));
            }
        })
    }
}

impl GeoPoint {
    /// Reads a point in any of its forms: an object, `[lon, lat]`, `lat,lon`, WKT, a geohash.
    pub fn parse(value: &Value, corner: Corner) -> Result<Self> {
        match value {
            Value::Object(members) => Self::of_members(members, corner),
            Value::Array(items) => Self::of_array(items),
            scalar => match json::text(scalar) {
                Some(text) => Self::of_text(&text, corner),
                None => Err(unreadable("geo_point expected".to_owned())),
            },
        }
    }

    /// Reads a point from text.
    pub fn of_text(text: &str, corner: Corner) -> Result<Self> {
        if text.contains(',') && text.matches(',').count() == 2 {
            let third = text.rsplit(',').next().unwrap_or_default().trim();
            if let Ok(z) = third.parse::<f64>() {
                return Err(third_coordinate(z));
            }
        }
        let is_wkt = text.trim().get(..5).is_some_and(|head| head.eq_ignore_ascii_case("POINT"));
        let [lat, lon] = mapping::parse_point(text).map_err(|reason| match is_wkt {
            true => unreadable("Invalid WKT format".to_owned()),
            false => unreadable(reason),
        })?;
        Ok(Self { lat: lat[usize::from(corner.top)], lon: lon[usize::from(corner.right)] })
    }

    fn of_array(items: &[Value]) -> Result<Self> {
        let numbers: Option<Vec<f64>> = items.iter().map(Value::as_f64).collect();
        match numbers.as_deref() {
            None => Err(unreadable("numeric value expected".to_owned())),
            Some([lon, lat]) => Ok(Self { lat: *lat, lon: *lon }),
            Some([_, _, z, ..]) => Err(third_coordinate(*z)),
            Some(_) => {
                Err(unreadable("[geo_point] field type should have at least two dimensions".to_owned()))
            }
        }
    }

    fn of_members(members: &Map<String, Value>, corner: Corner) -> Result<Self> {
        let (mut lat, mut lon, mut geohash) = (None, None, None);
        for (key, value) in members {
            match key.as_str() {
                "lat" => lat = Some(double(value)?),
                "lon" => lon = Some(double(value)?),
                "geohash" => geohash = json::text(value),
                _ => {
                    return Err(unreadable("field must be either [lat], [lon] or [geohash]".to_owned()));
                }
            }
        }
        match (lat, lon, geohash) {
            (None, None, Some(geohash)) => Self::of_text(&geohash, corner),
            (_, _, Some(_)) => Err(unreadable("field must be either lat/lon or geohash".to_owned())),
            (Some(lat), Some(lon), None) => Ok(Self { lat, lon }),
            (None, _, None) => Err(unreadable("field [lat] missing".to_owned())),
            (_, None, None) => Err(unreadable("field [lon] missing".to_owned())),
        }
    }

    /// Brings the point into range: beyond a pole it goes down on the other side.
    pub fn normalized(self, keep_longitude: bool) -> Self {
        let mut lat = centered(self.lat, 360.0);
        let mut lon = self.lon;
        let beyond = if lat < -90.0 {
            lat = -180.0 - lat;
            true
        } else if lat > 90.0 {
            lat = 180.0 - lat;
            true
        } else {
            false
        };
        if beyond {
            lon += 180.0;
        }
        if !keep_longitude || beyond {
            lon = centered(lon, 360.0);
        }
        Self { lat, lon }
    }
}

/// Brings an angle into `(-full/2, full/2]`.
fn centered(angle: f64, full: f64) -> f64 {
    if angle > -full / 2.0 && angle <= full / 2.0 {
        return angle;
    }
    let rest = angle.rem_euclid(full);
    if rest > full / 2.0 { rest - full } else { rest }
}

/// Reads a length, in metres; a number without a unit is in `unit`, itself in metres.
pub fn distance(value: &Value, unit: f64) -> Result<f64> {
    match value {
        Value::Number(number) => Ok(number.as_f64().unwrap_or_default() * unit),
        other => parse_distance(&json::text(other).unwrap_or_default(), unit),
    }
}

/// Parses a length with or without a unit, in metres.
pub fn parse_distance(text: &str, unit: f64) -> Result<f64> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| not_a_number(text));
    for (names, metres) in UNITS {
        for name in *names {
            if let Some(digits) = text.strip_suffix(name) {
                return Ok(number(digits)? * metres);
            }
        }
    }
    Ok(number(text)? * unit)
}

/// Finds a unit of length by its name, in metres.
pub(crate) fn unit(name: &str) -> Result<f64> {
    UNITS
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map(|(_, metres)| *metres)
        .ok_or_else(|| Error::IllegalArgument(format!("No distance unit match [{name}]")))
}

/// Makes the error of a value that cannot be read.
pub(super) fn unreadable(reason: String) -> Error {
    Error::Exception { kind: "parse_exception", status: 400, reason }
}

fn third_coordinate(z: f64) -> Error {
    unreadable(format!(
        "Exception parsing coordinates: found Z value [{z:?}] but [ignore_z_value] parameter is [false]"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn points_in_all_forms() {
        let point = |value: Value| GeoPoint::parse(&value, Corner::POINT).map(|point| (point.lat, point.lon));
        for form in [
            json!({"lat": 52.5, "lon": "13.25"}),
            json!([13.25, 52.5]),
            json!("52.5, 13.25"),
            json!("POINT (13.25 52.5)"),
        ] {
            assert_eq!(point(form).unwrap(), (52.5, 13.25));
        }
        assert_eq!(point(json!("u33db")).unwrap(), (52.5146484375, 13.359375));
        let top_right = Corner { top: true, right: true };
        assert_eq!(GeoPoint::parse(&json!("u"), top_right).unwrap(), GeoPoint { lat: 90.0, lon: 45.0 });
        for refused in [
            json!({}),
            json!({"lat": 1}),
            json!([1]),
            json!([1, 2, 3]),
            json!("1,2,3"),
            json!("a,b"),
            json!({"x": 1}),
            json!(null),
        ] {
            assert!(point(refused.clone()).is_err(), "{refused}");
        }
    }

    #[test]
    fn lengths_have_units() {
        let metres = |text: &str| parse_distance(text, 1.0).unwrap();
        assert_eq!(metres("12"), 12.0);
        assert_eq!(metres("1.5km"), 1_500.0);
        assert_eq!(metres("2 mi"), 3_218.688);
        assert_eq!(metres("2nmi"), 3_704.0);
        assert_eq!(metres("3cm"), 0.03);
        assert_eq!(parse_distance("2", 1_000.0).unwrap(), 2_000.0);
        insta::assert_snapshot!(parse_distance("abckm", 1.0).unwrap_err(), @r#"For input string: "abc""#);
    }

    #[test]
    fn points_beyond_a_pole_come_down_on_the_other_side() {
        let normalized = |lat, lon| {
            let point = GeoPoint { lat, lon }.normalized(false);
            (point.lat, point.lon)
        };
        assert_eq!(normalized(52.5, 373.25), (52.5, 13.25));
        assert_eq!(normalized(127.5, 13.0), (52.5, -167.0));
        assert_eq!(normalized(-100.0, 0.0), (-80.0, 180.0));
        assert_eq!(normalized(10.0, -190.0), (10.0, 170.0));
    }
}
