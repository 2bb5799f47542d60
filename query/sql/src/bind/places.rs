//! Conditions on points that the index answers: `geo_polygon`, `geo_bounding_box` and `geo_distance`, as OpenSearch's first engine
//! has them. Longitudes come before latitudes.

use serde_json::{Value, json};
use sqlparser::ast;

use super::call::arguments;
use super::relevance::{answered, number, string};
use super::{Binder, Bound, Scope};
use crate::error::{Result, SqlError};
use crate::push::Clause;

impl Binder<'_> {
    /// Binds a condition on a field of points; `None` for another function.
    pub(super) fn point_condition(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let what = match name {
            "geo_polygon" => "a field, and a longitude and a latitude of each of three or more corners",
            "geo_bounding_box" => {
                "a field, and longitude and latitude of the top left and of the bottom right corner"
            }
            "geo_distance" => "a field, a distance, a longitude and a latitude",
            _ => return Ok(None),
        };
        let usage = || SqlError::Semantic(format!("{name} takes {what}"));
        let args = self.spelt(&arguments(call)?)?;
        let [field, args @ ..] = args.as_slice() else { return Err(usage()) };
        let (source, path) = self.searched(field, scope)?;
        let (distance, args) = match (name, args) {
            ("geo_distance", [distance, args @ ..]) => (Some(string(distance).ok_or_else(usage)?), args),
            _ => (None, args),
        };
        let numbers = args.iter().map(number).collect::<Option<Vec<f64>>>().ok_or_else(usage)?;
        let points: Vec<Value> = numbers.chunks_exact(2).map(|point| json!(point)).collect();
        if points.len() * 2 != numbers.len() {
            return Err(usage());
        }
        let clause = match (name, points.as_slice()) {
            ("geo_polygon", [_, _, _, ..]) => json!({name: {path: {"points": points}}}),
            ("geo_bounding_box", [top_left, bottom_right]) => {
                json!({name: {path: {"top_left": top_left, "bottom_right": bottom_right}}})
            }
            ("geo_distance", [point]) => json!({name: {"distance": distance, path: point}}),
            _ => return Err(usage()),
        };
        answered(scope, source, Clause::Leaf(clause)).map(Some)
    }
}
