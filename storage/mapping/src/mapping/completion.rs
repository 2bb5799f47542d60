//! The parameters of `completion` fields: what they make of an input, and the contexts that inputs have.

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value, json};

use super::{Field, java};

/// Most contexts of a field.
const MAX_CONTEXTS: usize = 10;

/// The contexts of a field's inputs, as the mapping names them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contexts(Arc<[Context]>);

/// A context of inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// Its name.
    pub name: String,
    /// Kind of its values.
    pub kind: ContextKind,
    /// The field of the document that has its values, if it is not given with the input alone.
    pub path: Option<String>,
}

/// Kind of a context's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKind {
    /// Words.
    Category,
    /// Places, as geohashes of so many characters.
    Geo {
        /// Characters.
        precision: usize,
    },
}

impl Contexts {
    /// Lists them.
    pub fn list(&self) -> &[Context] {
        &self.0
    }

    /// Finds a context by name: its place, and itself.
    ///
    /// # Errors
    /// A name that there is not is an illegal argument.
    pub fn get(&self, name: &str) -> Result<(usize, &Context)> {
        self.0.iter().enumerate().find(|(_, context)| context.name == name).ok_or_else(|| {
            let mut names: Vec<&str> = self.0.iter().map(|context| context.name.as_str()).collect();
            names.sort_unstable();
            Error::IllegalArgument(format!(
                "Unknown context name [{name}], must be one of [{}]",
                names.join(", ")
            ))
        })
    }

    /// Reads the parameter `contexts`.
    pub(super) fn parse(value: &Value) -> Result<Self> {
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        if items.is_empty() {
            return Err(refused("expected at least one context mapping"));
        }
        if items.len() > MAX_CONTEXTS {
            return Err(Error::IllegalArgument(format!(
                "Limit of contexts [{MAX_CONTEXTS}] has been exceeded"
            )));
        }
        let mut contexts: Vec<Context> = Vec::with_capacity(items.len());
        for item in items {
            let Value::Object(members) = item else {
                return Err(refused(&format!(
                    "expected a context mapping, but got [{}]",
                    java::to_string(item)
                )));
            };
            let context = Context::parse(members)?;
            if contexts.iter().any(|known| known.name == context.name) {
                return Err(Error::IllegalArgument(format!(
                    "Context name [{}] is used more than once",
                    context.name
                )));
            }
            contexts.push(context);
        }
        Ok(Self(contexts.into()))
    }

    /// Renders the parameter.
    pub(super) fn to_json(&self) -> Value {
        self.0.iter().map(Context::to_json).collect()
    }
}

impl Context {
    fn parse(members: &Map<String, Value>) -> Result<Self> {
        let text = |key: &str| members.get(key).map(java::to_string);
        let missing = |key: &str| refused(&format!("missing [{key}] in context mapping"));
        let name = text("name").ok_or_else(|| missing("name"))?;
        let kind = text("type").ok_or_else(|| missing("type"))?;
        let kind = match kind.to_ascii_lowercase().as_str() {
            "category" => ContextKind::Category,
            "geo" => ContextKind::Geo { precision: geo_precision(members.get("precision"))? },
            _ => return Err(Error::IllegalArgument(format!("No context type for [{kind}]"))),
        };
        let geo = matches!(kind, ContextKind::Geo { .. });
        for key in members.keys() {
            let known = matches!(key.as_str(), "name" | "type" | "path") || geo && key == "precision";
            if !known {
                return Err(Error::mapper_parsing(format!(
                    "Mapping definition for [contexts] has unsupported parameters:  [{key} : {}]",
                    members.get(key).map(java::to_string).unwrap_or_default()
                )));
            }
        }
        Ok(Self { name, kind, path: text("path") })
    }

    fn to_json(&self) -> Value {
        let mut shown = Map::new();
        shown.insert("name".to_owned(), json!(self.name));
        shown.insert(
            "type".to_owned(),
            json!(match self.kind {
                ContextKind::Category => "CATEGORY",
                ContextKind::Geo { .. } => "GEO",
            }),
        );
        if let ContextKind::Geo { precision } = self.kind {
            shown.insert("precision".to_owned(), json!(precision));
        }
        if let Some(path) = &self.path {
            shown.insert("path".to_owned(), json!(path));
        }
        Value::Object(shown)
    }
}

/// Characters of geohashes: a number of them, or the greatest size of a cell.
///
/// # Errors
/// What is neither is an illegal argument.
pub fn geo_precision(value: Option<&Value>) -> Result<usize> {
    /// Width of the cells in metres.
    const CELLS: [f64; 12] = [
        5_009_378.0,
        1_252_344.0,
        156_543.0,
        39_135.8,
        4_891.97,
        1_222.99,
        152.874,
        38.2185,
        4.777_31,
        1.194_33,
        0.149_291,
        0.037_323,
    ];
    let Some(value) = value else { return Ok(6) };
    let text = java::to_string(value);
    let unfit = || {
        Error::IllegalArgument(format!(
            "precision [{text}] is neither a number of characters from 1 to 12 nor a distance such as 5km"
        ))
    };
    if let Ok(characters) = text.parse::<usize>() {
        return (1..=CELLS.len()).contains(&characters).then_some(characters).ok_or_else(unfit);
    }
    let metres = metres(&text).ok_or_else(unfit)?;
    Ok(CELLS.iter().position(|cell| *cell <= metres).map_or(CELLS.len(), |at| at + 1))
}

fn metres(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 8] = [
        ("km", 1_000.0),
        ("cm", 0.01),
        ("mm", 0.001),
        ("mi", 1_609.344),
        ("yd", 0.9144),
        ("ft", 0.3048),
        ("in", 0.0254),
        ("m", 1.0),
    ];
    let text = text.trim();
    let (unit, metres) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let count: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
    (count.is_finite() && count > 0.0).then_some(count * metres)
}

fn refused(reason: &str) -> Error {
    Error::MapperParsing {
        reason: reason.to_owned(),
        caused_by: Some(("parse_exception".to_owned(), reason.to_owned())),
    }
}

/// Conversion of a field's inputs to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionKeys {
    /// `true` if terms stay apart.
    pub separators: bool,
    /// `true` if positions without a term count.
    pub increments: bool,
}

impl Field {
    /// Returns the conversion of inputs to keys of a `completion` field.
    pub fn completion_keys(&self) -> CompletionKeys {
        let flag = |key: &str| self.params.get(key).and_then(Value::as_bool).unwrap_or(true);
        CompletionKeys {
            separators: flag("preserve_separators"),
            increments: flag("preserve_position_increments"),
        }
    }

    /// The contexts of a `completion` field; none where the mapping says nothing of any.
    pub fn contexts(&self) -> Contexts {
        self.params.get("contexts").and_then(|value| Contexts::parse(value).ok()).unwrap_or_default()
    }

    /// Longest input of a `completion` field, in UTF-16 code units.
    pub(crate) fn max_input_length(&self) -> usize {
        self.params.get("max_input_length").and_then(Value::as_u64).map_or(50, |n| n as usize)
    }
}
