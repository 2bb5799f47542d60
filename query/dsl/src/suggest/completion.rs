//! The `completion` suggester: inputs that start with a text.

use millrace_mapping::{ContextKind, Contexts, geo_precision};
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{name_of, required_field, size};
use crate::json;
use crate::query::geo::{Corner, GeoPoint};
use crate::query::{Fuzziness, RegexpFlags, regexp_flags};

/// Most values of contexts that a suggestion names.
const MAX_VALUES: usize = 1_000;
/// Most characters of a geohash.
const MAX_GEOHASH: usize = 12;

/// A `completion` suggester.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionSuggester {
    /// Field path.
    pub field: String,
    /// Analyzer of the text; the field's own where absent.
    pub analyzer: Option<String>,
    /// Most options.
    pub size: usize,
    /// `true` if an input is given once, however many documents have it.
    pub skip_duplicates: bool,
    /// Query of the text.
    pub query: CompletionQuery,
    /// Contexts, as the request has them.
    pub contexts: Option<Map<String, Value>>,
    regex: RegexOptions,
}

/// Kind of the text of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CompletionQuery {
    /// Prefix of the inputs.
    Prefix,
    /// Prefix of the inputs, up to a few edits.
    Fuzzy {
        /// Edits.
        edits: u8,
        /// `true` if two characters swapped are one edit.
        transpositions: bool,
        /// Shortest text that may have edits.
        min_length: usize,
        /// Characters at the start that must be the same.
        prefix_length: usize,
    },
    /// An expression of what inputs start with.
    Regex {
        /// Optional operators.
        flags: RegexpFlags,
        /// Most states of its automaton.
        max_states: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct RegexOptions {
    flags: RegexpFlags,
    max_states: i64,
}

impl CompletionSuggester {
    pub(super) fn parse(options: &Map<String, Value>) -> Result<Self> {
        let mut suggester = Self {
            field: String::new(),
            analyzer: None,
            size: 5,
            skip_duplicates: false,
            query: CompletionQuery::Prefix,
            contexts: None,
            regex: RegexOptions { flags: RegexpFlags::ALL, max_states: 10_000 },
        };
        let mut field = None;
        for (key, value) in options {
            match key.as_str() {
                "field" => field = Some(name_of(value, key)?),
                "analyzer" => suggester.analyzer = Some(name_of(value, key)?),
                "size" => {
                    suggester.size = size("size", value).map_err(|error| Error::Content {
                        reason: "[completion] failed to parse field [size]".to_owned(),
                        cause: Some(Box::new(error)),
                    })?;
                }
                "shard_size" => {
                    size("shardSize", value)?;
                }
                "skip_duplicates" => suggester.skip_duplicates = json::boolean(value)?,
                "fuzzy" => suggester.query = fuzzy(value)?.unwrap_or(suggester.query),
                "regex" => suggester.regex = regex(json::object("completion", value)?)?,
                "contexts" => suggester.contexts = Some(json::object("completion", value)?.clone()),
                _ => return Err(json::content(format!("[completion] unknown field [{key}]"))),
            }
        }
        suggester.field = required_field(field)?;
        Ok(suggester)
    }

    /// Takes the text for an expression.
    pub(super) fn by_expression(&mut self) {
        let RegexOptions { flags, max_states } = self.regex;
        self.query = CompletionQuery::Regex { flags, max_states };
    }
}

fn fuzzy(value: &Value) -> Result<Option<CompletionQuery>> {
    let none = Map::new();
    let options = match value {
        Value::Bool(false) => return Ok(None),
        Value::Bool(true) => &none,
        other => json::object("fuzzy", other)?,
    };
    let (mut edits, mut transpositions, mut min_length, mut prefix_length) = (1, true, 3, 1);
    let count = |name: &str, value: &Value| {
        usize::try_from(json::integer(value)?)
            .map_err(|_| Error::IllegalArgument(format!("{name} must not be negative")))
    };
    for (key, value) in options {
        match key.as_str() {
            // What depends on the length of a term is one edit here.
            "fuzziness" => {
                edits = match Fuzziness::parse(value)? {
                    Fuzziness::Edits(edits) => edits,
                    Fuzziness::Auto { .. } => 1,
                };
            }
            "transpositions" => transpositions = json::boolean(value)?,
            "min_length" => min_length = count("fuzzyMinLength", value)?,
            "prefix_length" => prefix_length = count("fuzzyPrefixLength", value)?,
            // Edits are of characters in any case, and no automaton is determinized.
            "unicode_aware" => {
                json::boolean(value)?;
            }
            "max_determinized_states" => {
                count("maxDeterminizedStates", value)?;
            }
            _ => return Err(json::content(format!("[fuzzy] unknown field [{key}]"))),
        }
    }
    Ok(Some(CompletionQuery::Fuzzy { edits, transpositions, min_length, prefix_length }))
}

fn regex(options: &Map<String, Value>) -> Result<RegexOptions> {
    let mut regex = RegexOptions { flags: RegexpFlags::ALL, max_states: 10_000 };
    for (key, value) in options {
        match key.as_str() {
            "flags" => {
                regex.flags = match value {
                    Value::String(names) => regexp_flags(names)?,
                    other => RegexpFlags(u32::try_from(json::integer(other)?).unwrap_or(RegexpFlags::ALL.0)),
                };
            }
            "max_determinized_states" => {
                regex.max_states = json::integer(value)?;
                if regex.max_states < 0 {
                    return Err(Error::IllegalArgument(
                        "maxDeterminizedStates must not be negative".to_owned(),
                    ));
                }
            }
            _ => return Err(json::content(format!("[regex] unknown field [{key}]"))),
        }
    }
    Ok(regex)
}

/// A value of a context that a suggestion names.
#[derive(Clone, Debug, PartialEq)]
pub struct CategoryContext {
    /// Place of the context in the mapping.
    pub place: usize,
    /// The value.
    pub value: String,
    /// `true` if values that start with it are meant, too.
    pub starts: bool,
    /// Factor of weights.
    pub boost: f32,
}

/// A place that a suggestion names.
#[derive(Clone, Debug, PartialEq)]
struct GeoContext {
    point: [f64; 2],
    precision: usize,
    neighbours: Vec<usize>,
    boost: f32,
}

/// Makes the values of a request's contexts by those of a field.
pub fn contexts_of(given: &Map<String, Value>, contexts: &Contexts) -> Result<Vec<CategoryContext>> {
    let mut found = Vec::new();
    for (name, value) in given {
        let (place, context) =
            contexts.get(name).map_err(|error| Error::IllegalArgument(error.to_string()))?;
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        for item in items {
            match context.kind {
                ContextKind::Category => found.push(category(place, item)?),
                ContextKind::Geo { precision } => {
                    let geo = GeoContext::parse(item, precision)?;
                    found.extend(geo.cells().into_iter().map(|value| CategoryContext {
                        place,
                        starts: value.len() < precision,
                        value,
                        boost: geo.boost,
                    }));
                }
            }
            if found.len() > MAX_VALUES {
                return Err(Error::IllegalArgument(format!(
                    "a suggestion names more than [{MAX_VALUES}] values of contexts"
                )));
            }
        }
    }
    Ok(found)
}

fn category(place: usize, item: &Value) -> Result<CategoryContext> {
    let refused = || json::content("category context must be a string, number or boolean".to_owned());
    let Value::Object(members) = item else {
        let value = json::text(item).ok_or_else(refused)?;
        return Ok(CategoryContext { place, value, starts: false, boost: 1.0 });
    };
    let mut context = CategoryContext { place, value: String::new(), starts: false, boost: 1.0 };
    let mut value = None;
    for (key, member) in members {
        match key.as_str() {
            "context" => value = Some(json::text(member).ok_or_else(refused)?),
            "boost" => context.boost = boost(member)?,
            "prefix" => context.starts = json::boolean(member)?,
            _ => return Err(json::content(format!("[category] unknown field [{key}]"))),
        }
    }
    context.value = value.ok_or_else(|| Error::IllegalArgument("category must not be null".to_owned()))?;
    Ok(context)
}

fn boost(value: &Value) -> Result<f32> {
    match json::integer(value)? {
        boost if boost > 0 => Ok(boost as f32),
        _ => Err(Error::IllegalArgument("boost must be greater than 0".to_owned())),
    }
}

impl GeoContext {
    fn parse(item: &Value, most: usize) -> Result<Self> {
        let unfit = || Error::Parse("geo context must be an object or string".to_owned());
        let mut context = Self { point: [0.0; 2], precision: most, neighbours: Vec::new(), boost: 1.0 };
        let point = match item {
            Value::String(_) => item.clone(),
            Value::Object(members) => {
                if let Some(value) = members.get("boost") {
                    context.boost = boost(value)?;
                }
                if let Some(value) = members.get("precision") {
                    context.precision = geo_precision(Some(value))?.min(most);
                }
                let listed = match members.get("neighbours") {
                    None => &[][..],
                    Some(Value::Array(items)) => items.as_slice(),
                    Some(other) => std::slice::from_ref(other),
                };
                for value in listed {
                    context.neighbours.push(geo_precision(Some(value))?.min(MAX_GEOHASH));
                }
                let known = ["boost", "precision", "neighbours", "context", "lat", "lon"];
                if let Some(unknown) = members.keys().find(|key| !known.contains(&key.as_str())) {
                    return Err(json::content(format!("[geo] unknown field [{unknown}]")));
                }
                match members.get("context") {
                    Some(point) => point.clone(),
                    None => {
                        let named = |key: &&str| Some((key.to_string(), members.get(*key)?.clone()));
                        Value::Object(["lat", "lon"].iter().filter_map(named).collect())
                    }
                }
            }
            _ => return Err(unfit()),
        };
        let point = GeoPoint::parse(&point, Corner::POINT)?;
        context.point = [point.lat, point.lon];
        Ok(context)
    }

    /// Lists the geohashes of the place and of what lies around it.
    fn cells(&self) -> Vec<String> {
        let hash = millrace_mapping::to_geohash(self.point, self.precision);
        if self.neighbours.is_empty() {
            return vec![hash];
        }
        let mut cells = Vec::new();
        for &characters in self.neighbours.iter().filter(|characters| **characters < hash.len().max(1) + 1) {
            let [lat, lon] = self.point;
            let [height, width] = cell_size(characters);
            for (up, right) in (-1..=1).flat_map(|up| (-1..=1).map(move |right| (up, right))) {
                let lat = lat + f64::from(up) * height;
                if !(-90.0..=90.0).contains(&lat) {
                    continue;
                }
                let lon = (lon + f64::from(right) * width + 180.0).rem_euclid(360.0) - 180.0;
                let cell = millrace_mapping::to_geohash([lat, lon], characters);
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
        cells
    }
}

/// Height and width of the cell of a geohash, in degrees.
fn cell_size(characters: usize) -> [f64; 2] {
    let bits = 5 * characters as i32;
    let lon_bits = (bits + 1) / 2;
    [180.0 / 2f64.powi(bits - lon_bits), 360.0 / 2f64.powi(lon_bits)]
}
