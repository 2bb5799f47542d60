//! Distances of a column's points, as sort keys.

use arrow::array::{AsArray, StructArray};
use arrow::datatypes::Float64Type;
use millrace_work::error::{Error, Result};

/// Mean radius of the earth in meters, as Lucene has it.
const EARTH_RADIUS: f64 = 6_371_008.771_4;

/// From which points distances are measured, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// Latitudes and longitudes.
    pub origins: Vec<[f64; 2]>,
    /// Meters of the unit.
    pub unit: f64,
    /// `true` if the earth is taken to be flat.
    pub plane: bool,
}

/// The points of a column.
#[derive(Debug)]
pub struct Points<'a> {
    lat: &'a [f64],
    lon: &'a [f64],
}

impl<'a> Points<'a> {
    /// Reads the values of a column of points.
    pub fn new(values: &'a StructArray) -> Result<Self> {
        let axis = |name: &str| {
            let array = values.column_by_name(name).and_then(|array| array.as_primitive_opt::<Float64Type>());
            array
                .map(|array| array.values().as_ref())
                .ok_or_else(|| Error::Execution(format!("a column of points has no number [{name}]")))
        };
        Ok(Self { lat: axis("lat")?, lon: axis("lon")? })
    }
}

impl Distance {
    /// Appends the distances of a point from every origin.
    pub fn measure(&self, points: &Points<'_>, at: usize, into: &mut Vec<f64>) {
        let (lat, lon) = (quantized(points.lat[at], 180.0), quantized(points.lon[at], 360.0));
        into.extend(self.origins.iter().map(|[from_lat, from_lon]| {
            let meters = match self.plane {
                true => plane(*from_lat, *from_lon, lat, lon),
                false => arc(*from_lat, *from_lon, lat, lon),
            };
            meters / self.unit
        }));
    }
}

/// Rounds degrees down to the 32 bits that Lucene keeps of them.
fn quantized(degrees: f64, span: f64) -> f64 {
    let step = span / 4_294_967_296.0;
    (degrees / step).floor().clamp(-2_147_483_648.0, 2_147_483_647.0) * step
}

/// The haversine distance on a sphere (`SloppyMath.haversinMeters`).
fn arc(lat1: f64, lon1: f64, lat2: f64, lon2: f64) -> f64 {
    let (x1, x2) = (lat1.to_radians(), lat2.to_radians());
    let h1 = 1.0 - (x1 - x2).cos();
    let h2 = 1.0 - (lon1 - lon2).to_radians().cos();
    let h = h1 + x1.cos() * x2.cos() * h2;
    // The lowest bits are noise of the cosines.
    let h = f64::from_bits(h.to_bits() & !7);
    EARTH_RADIUS * 2.0 * (h * 0.5).sqrt().min(1.0).asin()
}

/// The distance on a plane that touches the earth between both points (`GeoUtils.planeDistance`).
fn plane(lat1: f64, lon1: f64, lat2: f64, lon2: f64) -> f64 {
    let x = (lon2 - lon1).to_radians() * ((lat2 + lat1).to_radians() / 2.0).cos();
    let y = (lat2 - lat1).to_radians();
    (x * x + y * y).sqrt() * EARTH_RADIUS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() <= expected * 1e-9 + 1e-3, "{actual} is not {expected}");
    }

    /// Distances that OpenSearch 2.19 gives.
    #[test]
    fn distances_are_those_of_lucene() {
        let far = |lat: f64| arc(1.0, 1.0, quantized(lat, 180.0), quantized(1.0, 360.0));
        close(far(2.0), 111_195.075_799_138_39);
        close(far(5.0), 444_780.318_419_685_2);
        close(plane(1.0, 1.0, quantized(4.0, 180.0), quantized(1.0, 360.0)), 333_585.235_992_78);
    }
}
