//! Areas on the earth, and which points are in them.
//!
//! Lucene keeps a coordinate in 32 bits: latitudes in steps of 180/2³² degrees, longitudes in steps of
//! 360/2³². Stored points are brought to that grid before they are compared, so that a point on an
//! edge is in or out as there.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use millrace_mapping::PathId;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::source::{Source, visit};

/// Mean radius of the earth, in metres, as Lucene has it.
const EARTH_RADIUS: f64 = 6_371_008.771_4;
/// Steps of a coordinate over its whole range.
const STEPS: f64 = 4_294_967_296.0;
/// Degrees of one step of latitude.
const LAT_STEP: f64 = 180.0 / STEPS;
/// Degrees of one step of longitude.
const LON_STEP: f64 = 360.0 / STEPS;

/// An area on the earth.
#[derive(Clone, Debug, PartialEq)]
pub enum GeoArea {
    /// All points within so many metres of a point.
    Circle {
        /// Latitude of the centre.
        lat: f64,
        /// Longitude of the centre.
        lon: f64,
        /// Radius in metres.
        metres: f64,
    },
    /// A box of grid coordinates, edges included; over the date line where `lon` is reversed.
    Box {
        /// Least and greatest latitude.
        lat: (i64, i64),
        /// Western and eastern longitude.
        lon: (i64, i64),
    },
    /// A polygon of `(lat, lon)` corners; the last is the first again. Edges are included.
    Polygon(Arc<[(f64, f64)]>),
}

impl GeoArea {
    /// Makes a box of degrees; with `left` greater than `right` it goes over the date line.
    pub fn of_box(top: f64, left: f64, bottom: f64, right: f64) -> Self {
        // The end of a range is no step of the grid: a box that begins there is empty.
        let up = |degrees: f64, end: f64, step: f64| match degrees == end {
            true => i64::MAX,
            false => (degrees / step).ceil() as i64,
        };
        let lat = (up(bottom, 90.0, LAT_STEP), lat_step(top));
        let mut lon = (up(left, 180.0, LON_STEP), lon_step(right));
        if left > right && left == 180.0 {
            lon.0 = i64::from(i32::MIN);
        }
        Self::Box { lat, lon }
    }

    /// Returns whether a stored point is in the area.
    pub fn contains(&self, lat: f64, lon: f64) -> bool {
        match self {
            Self::Circle { lat: center_lat, lon: center_lon, metres } => {
                let (lat, lon) = on_grid(lat, lon);
                // A degree of latitude is never shorter than this: most points are out at once.
                if (lat - center_lat).abs() * 111_000.0 > metres + 1_000.0 {
                    return false;
                }
                haversine(*center_lat, *center_lon, lat, lon) <= *metres
            }
            Self::Box { lat: (bottom, top), lon: (left, right) } => {
                let (lat, lon) = (lat_step(lat), lon_step(lon));
                let within = match left <= right {
                    true => *left <= lon && lon <= *right,
                    // Nothing is behind the end of the range.
                    false if *left == i64::MAX => false,
                    false => lon >= *left || lon <= *right,
                };
                within && *bottom <= lat && lat <= *top
            }
            Self::Polygon(corners) => {
                let (lat, lon) = on_grid(lat, lon);
                in_polygon(corners, lat, lon)
            }
        }
    }
}

fn lat_step(lat: f64) -> i64 {
    (lat / LAT_STEP).floor().min(f64::from(i32::MAX)) as i64
}

fn lon_step(lon: f64) -> i64 {
    (lon / LON_STEP).floor().min(f64::from(i32::MAX)) as i64
}

/// Brings a stored point to the grid that Lucene keeps points on.
pub fn on_grid(lat: f64, lon: f64) -> (f64, f64) {
    (lat_step(lat) as f64 * LAT_STEP, lon_step(lon) as f64 * LON_STEP)
}

/// Computes the distance of two points along the surface, in metres, by the haversine formula.
pub fn haversine(lat: f64, lon: f64, other_lat: f64, other_lon: f64) -> f64 {
    let (a, b) = (lat.to_radians(), other_lat.to_radians());
    let h = (1.0 - (a - b).cos()) + a.cos() * b.cos() * (1.0 - (lon - other_lon).to_radians().cos());
    2.0 * EARTH_RADIUS * (h * 0.5).max(0.0).sqrt().min(1.0).asin()
}

/// Returns whether a point is in a polygon or on its edge: it is if a ray from it crosses the edge an odd number of times.
fn in_polygon(corners: &[(f64, f64)], lat: f64, lon: f64) -> bool {
    let mut inside = false;
    for edge in corners.windows(2) {
        let ((a_lat, a_lon), (b_lat, b_lon)) = (edge[0], edge[1]);
        let cross = (b_lon - a_lon) * (lat - a_lat) - (b_lat - a_lat) * (lon - a_lon);
        let along = |a: f64, b: f64, x: f64| a.min(b) <= x && x <= a.max(b);
        if cross == 0.0 && along(a_lat, b_lat, lat) && along(a_lon, b_lon, lon) {
            return true;
        }
        if (a_lat > lat) != (b_lat > lat) && (cross > 0.0) == (b_lat > a_lat) {
            inside = !inside;
        }
    }
    inside
}

/// Finds the rows with a point in an area, of `among` where given.
pub(crate) fn rows_in(
    source: &Source,
    column: PathId,
    area: &GeoArea,
    among: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    let mut rows = RoaringBitmap::new();
    let mut last = None;
    visit(source, column, among.cloned(), &mut |batch, array| {
        for_each_point(array, &mut |at, lat, lon| {
            let row = batch.rows[at];
            if last != Some(row) && area.contains(lat, lon) {
                last = Some(row);
                rows.insert(row);
            }
        });
        Ok(())
    })?;
    Ok(rows)
}

/// Calls `visit` with the row, latitude and longitude of each point of a column.
pub(crate) fn for_each_point(column: &ArrayRef, visit: &mut dyn FnMut(usize, f64, f64)) {
    let list = column.as_list_opt::<i32>();
    let values = list.map_or(column, |list| list.values());
    let Some(points) = values.as_struct_opt() else { return };
    let coordinate =
        |name| points.column_by_name(name).and_then(|array| array.as_primitive_opt::<Float64Type>());
    let (Some(lats), Some(lons)) = (coordinate("lat"), coordinate("lon")) else { return };
    let mut point = |row: usize, at: usize| {
        if points.is_valid(at) && lats.is_valid(at) && lons.is_valid(at) {
            visit(row, lats.value(at), lons.value(at));
        }
    };
    match list {
        None => (0..column.len()).for_each(|row| point(row, row)),
        Some(list) => {
            for row in (0..list.len()).filter(|row| list.is_valid(*row)) {
                let offsets = list.value_offsets();
                (offsets[row] as usize..offsets[row + 1] as usize).for_each(|at| point(row, at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::geo::*;

    fn circle(lat: f64, lon: f64, metres: f64) -> GeoArea {
        GeoArea::Circle { lat, lon, metres }
    }

    #[test]
    fn distances_along_the_surface() {
        // Berlin to Munich.
        let metres = haversine(52.52, 13.405, 48.137, 11.575);
        assert!((metres - 504_416.0).abs() < 500.0, "{metres}");
        assert_eq!(haversine(10.0, 20.0, 10.0, 20.0), 0.0);
        let half = haversine(0.0, 0.0, 0.0, 180.0);
        assert!((half - std::f64::consts::PI * EARTH_RADIUS).abs() < 1e-3);
        assert!((haversine(0.0, 179.5, 0.0, -179.5) - haversine(0.0, 0.0, 0.0, 1.0)).abs() < 1e-3);
    }

    /// Laws that hold for any points, over a lattice of them.
    #[test]
    fn distance_is_a_metric_and_circles_agree_with_it() {
        let points: Vec<(f64, f64)> = (0..200)
            .map(|n: u32| {
                let spread = |m: u32| f64::from(n.wrapping_mul(m) % 10_007) / 10_007.0;
                (spread(7_919) * 180.0 - 90.0, spread(104_729) * 360.0 - 180.0)
            })
            .collect();
        for (i, a) in points.iter().enumerate() {
            for (j, b) in points.iter().enumerate().skip(i % 7).step_by(7) {
                let d = haversine(a.0, a.1, b.0, b.1);
                assert!((d - haversine(b.0, b.1, a.0, a.1)).abs() < 1e-6);
                let c = points[(i + j) % points.len()];
                let round = haversine(a.0, a.1, c.0, c.1) + haversine(c.0, c.1, b.0, b.1);
                assert!(d <= round + 1e-3, "{a:?} {b:?} {c:?}");
                assert!(circle(a.0, a.1, d + 0.1).contains(b.0, b.1), "{a:?} {b:?}");
                assert!(d < 1.0 || !circle(a.0, a.1, d - 0.1).contains(b.0, b.1), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn boxes_go_over_the_date_line() {
        let pacific = GeoArea::of_box(10.0, 170.0, -10.0, -170.0);
        assert!(pacific.contains(0.0, 175.0) && pacific.contains(0.0, -175.0));
        assert!(!pacific.contains(0.0, 0.0) && !pacific.contains(11.0, 175.0));
        let world = GeoArea::of_box(90.0, -180.0, -90.0, 180.0);
        assert!(world.contains(90.0, 180.0) && world.contains(-90.0, -180.0));
        assert!(!GeoArea::of_box(53.0, 180.0, 52.0, -180.0).contains(52.5, 13.0));
    }

    #[test]
    fn polygons_have_insides_and_edges() {
        // These coordinates are on the grid, so that edges stay where they are.
        let corners = [(67.5, 11.25), (67.5, 22.5), (45.0, 22.5), (45.0, 11.25), (67.5, 11.25)];
        let square = GeoArea::Polygon(corners.into());
        for (lat, lon) in [(50.0, 15.0), (50.0, 11.25), (45.0, 15.0), (67.5, 22.5)] {
            assert!(square.contains(lat, lon), "{lat}, {lon}");
        }
        for (lat, lon) in [(50.0, 23.0), (44.9, 15.0), (50.0, 11.2), (68.0, 15.0)] {
            assert!(!square.contains(lat, lon), "{lat}, {lon}");
        }
        let corners = [(0.0, 0.0), (10.0, 0.0), (2.0, 5.0), (10.0, 10.0), (0.0, 10.0), (0.0, 0.0)];
        let notched = GeoArea::Polygon(corners.into());
        assert!(notched.contains(1.0, 5.0) && !notched.contains(5.0, 5.0));
    }
}
