//! `_geo_distance`: by how far the points of a field are from others.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::nested::OlderNested;
use super::{Mode, NestedSort, SortBy, SortKey, order, unknown_mode};
use crate::json;
use crate::query::geo::Validation;

/// Most points of one key.
const MAX_POINTS: usize = 1_000;

/// Comparison of distances.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoDistanceSort {
    /// Field path.
    pub field: String,
    /// Points that distances are measured from, in any of their forms.
    pub origins: Vec<Value>,
    /// Meters of the unit in which sort values are shown.
    pub unit: f64,
    /// `true` if the earth is taken to be flat.
    pub plane: bool,
    /// Mode that picks one of several distances.
    pub mode: Option<Mode>,
    /// `true` if an index without the field has no distances instead of failing.
    pub ignore_unmapped: bool,
    /// Treatment of points that are not on the earth.
    pub validation: Validation,
    /// Elements of a nested path whose points count.
    pub nested: Option<NestedSort>,
}

impl GeoDistanceSort {
    /// Parses the options of the key.
    pub(super) fn parse(options: &Map<String, Value>) -> Result<SortKey> {
        let mut sort = Self {
            field: String::new(),
            origins: Vec::new(),
            unit: 1.0,
            plane: false,
            mode: None,
            ignore_unmapped: false,
            validation: Validation::Strict,
            nested: None,
        };
        let mut older = OlderNested::default();
        let mut descending = false;
        for (option, value) in options {
            let text = json::text(value).unwrap_or_default();
            match option.as_str() {
                "order" => descending = order(&text)?,
                "unit" => sort.unit = unit(&text)?,
                "distance_type" => {
                    sort.plane = match text.to_ascii_lowercase().as_str() {
                        "plane" => true,
                        "arc" => false,
                        _ => return Err(Error::IllegalArgument(format!("No geo distance for [{text}]"))),
                    };
                }
                "mode" | "sort_mode" => sort.mode = Some(mode(&text)?),
                "ignore_unmapped" => sort.ignore_unmapped = json::boolean(value)?,
                "validation_method" => {
                    sort.validation = Validation::parse(value)?;
                }
                "nested" => sort.nested = NestedSort::parse(value)?,
                _ if older.take(option, value)? => {}
                _ if sort.field.is_empty() && !matches!(value, Value::Number(_) | Value::Bool(_)) => {
                    sort.field = option.clone();
                    sort.origins = origins(value)?;
                }
                _ => return Err(Error::Parsing(format!("[_geo_distance] does not support [{option}]"))),
            }
        }
        if sort.origins.is_empty() {
            return Err(Error::IllegalArgument("Geo distance sorting needs at least one point.".to_owned()));
        }
        sort.nested = older.or(sort.nested.take())?;
        Ok(SortKey { by: SortBy::Distance(sort), descending })
    }
}

/// Takes one point or several: a list of numbers is a point.
fn origins(value: &Value) -> Result<Vec<Value>> {
    let points = match value {
        Value::Array(items) if !items.first().is_some_and(Value::is_number) => items.clone(),
        one => vec![one.clone()],
    };
    if points.len() > MAX_POINTS {
        return Err(Error::IllegalArgument(format!(
            "too many points: {} given, at most {MAX_POINTS} allowed",
            points.len()
        )));
    }
    Ok(points)
}

fn mode(text: &str) -> Result<Mode> {
    match text.to_ascii_lowercase().as_str() {
        "min" => Ok(Mode::Min),
        "max" => Ok(Mode::Max),
        "avg" => Ok(Mode::Avg),
        "median" => Ok(Mode::Median),
        "sum" => Err(Error::IllegalArgument(
            "sort_mode [sum] isn't supported for sorting by geo distance".to_owned(),
        )),
        _ => Err(unknown_mode(text)),
    }
}

fn unit(text: &str) -> Result<f64> {
    Ok(match text {
        "in" | "inch" => 0.0254,
        "yd" | "yards" => 0.9144,
        "ft" | "feet" => 0.3048,
        "km" | "kilometers" => 1_000.0,
        "NM" | "nmi" | "nauticalmiles" => 1_852.0,
        "mm" | "millimeters" => 0.001,
        "cm" | "centimeters" => 0.01,
        "mi" | "miles" => 1_609.344,
        "m" | "meters" => 1.0,
        _ => return Err(Error::IllegalArgument(format!("No distance unit match [{text}]"))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::sort::{SortBy, parse};

    #[test]
    fn points_come_alone_or_in_a_list() {
        for (points, count) in [
            (json!([1, 2]), 1),
            (json!([[1, 2], [3, 4]]), 2),
            (json!("1,2"), 1),
            (json!(["1,2", {"lat": 1, "lon": 2}]), 2),
            (json!({"lat": 1, "lon": 2}), 1),
        ] {
            let keys =
                parse(&json!({"_geo_distance": {"at": points, "unit": "km", "order": "desc"}})).unwrap();
            let SortBy::Distance(sort) = &keys[0].by else { panic!("no distance") };
            assert_eq!((sort.origins.len(), sort.unit, keys[0].descending), (count, 1_000.0, true));
        }
    }

    #[test]
    fn wrong_options_are_refused() {
        let refused = |options| parse(&json!({"_geo_distance": options})).unwrap_err().to_string();
        let texts = [
            refused(json!({"at": [1, 1], "mode": "sum"})),
            refused(json!({"at": [1, 1], "foo": 1})),
            refused(json!({"at": [1, 1], "unit": "foo"})),
            refused(json!({"at": [1, 1], "distance_type": "foo"})),
            refused(json!({"order": "asc"})),
            refused(json!({"at": []})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        sort_mode [sum] isn't supported for sorting by geo distance
        [_geo_distance] does not support [foo]
        No distance unit match [foo]
        No geo distance for [foo]
        Geo distance sorting needs at least one point.
        Geo distance sorting needs at least one point.
        ");
    }
}
