//! `_source`: whole, none, or some of its fields.

use std::sync::Arc;

use millrace_mapping::fields::FieldRules;
use millrace_mapping::source::{PathProjection, leave_out, leave_out_of_text};
use millrace_mapping::{Mapping, fields};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::json;

/// Most patterns of one filter.
const MAX_PATTERNS: usize = 1_024;

/// Part of the source that a hit shows.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceFilter {
    /// All of it, byte for byte.
    All,
    /// None.
    None,
    /// The fields that fit a pattern of `includes` (all, where empty) and none of `excludes`.
    Fields {
        /// Patterns of paths to keep.
        includes: Vec<String>,
        /// Patterns of paths to leave out.
        excludes: Vec<String>,
    },
    /// Parts that a filter leaves, and all of some rules show.
    Ruled(Box<SourceFilter>, Arc<[Arc<FieldRules>]>),
}

impl SourceFilter {
    /// Makes a filter from patterns.
    pub fn fields(includes: Vec<String>, excludes: Vec<String>) -> Result<Self> {
        let patterns = includes.len() + excludes.len();
        if patterns > MAX_PATTERNS {
            return Err(Error::IllegalArgument(format!(
                "too many _source patterns: {patterns} given, at most {MAX_PATTERNS} allowed"
            )));
        }
        Ok(if patterns == 0 { Self::All } else { Self::Fields { includes, excludes } })
    }

    /// Returns the parts of sources that an index's mapping shows.
    pub fn of_mapping(mapping: &Mapping) -> Self {
        if !mapping.source_enabled() {
            return Self::None;
        }
        let (includes, excludes) = mapping.source_patterns();
        let shown = if includes.is_empty() && excludes.is_empty() {
            Self::All
        } else {
            Self::Fields { includes, excludes }
        };
        let rules = mapping.field_rules();
        if rules.is_empty() { shown } else { Self::Ruled(Box::new(shown), Arc::clone(rules)) }
    }

    /// Parses the value of `_source` in a body.
    pub fn parse(value: &Value) -> Result<Self> {
        match value {
            Value::Bool(true) => Ok(Self::All),
            Value::Bool(false) => Ok(Self::None),
            Value::String(one) => Self::fields(vec![one.clone()], Vec::new()),
            Value::Array(_) => Self::fields(list("_source", value)?, Vec::new()),
            Value::Object(options) => {
                let (mut includes, mut excludes) = (Vec::new(), Vec::new());
                for (key, value) in options {
                    match key.as_str() {
                        "includes" | "include" => includes = list(key, value)?,
                        "excludes" | "exclude" => excludes = list(key, value)?,
                        _ => {
                            return Err(Error::Parsing(format!(
                                "Unknown key for a {} in [{key}].",
                                json::token(value)
                            )));
                        }
                    }
                }
                Self::fields(includes, excludes)
            }
            other => Err(Error::Parsing(format!(
                "Expected one of [VALUE_BOOLEAN, START_OBJECT] but found [{}]",
                json::token(other)
            ))),
        }
    }

    /// Applies the filter to the text of a source, whose values stay as they are written; `None` where it is no JSON.
    pub fn apply_to_text(&self, source: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::All => Some(source.to_vec()),
            Self::None => Some(b"null".to_vec()),
            Self::Ruled(inner, rules) => fields::shown_of_text(&inner.apply_to_text(source)?, rules),
            Self::Fields { includes, excludes } => {
                let (includes, excludes) = (Patterns::new(includes), Patterns::new(excludes));
                leave_out_of_text(source, false, |path, above| stays(&includes, &excludes, path, above))
            }
        }
    }

    /// Applies the filter to a parsed source.
    pub fn apply(&self, source: Value) -> Value {
        match self {
            Self::All => source,
            Self::None => Value::Null,
            Self::Ruled(inner, rules) => fields::shown(inner.apply(source), rules),
            Self::Fields { includes, excludes } => match source {
                Value::Object(fields) => {
                    let includes = Patterns::new(includes);
                    let excludes = Patterns::new(excludes);
                    let stays = |path: &str, above| stays(&includes, &excludes, path, above);
                    Value::Object(leave_out(fields, false, stays))
                }
                other => other,
            },
        }
    }
}

/// Returns the projection of the value at a path.
fn stays(includes: &Patterns, excludes: &Patterns, path: &str, above: bool) -> PathProjection {
    let itself = above || includes.0.is_empty() || includes.accepts(path);
    let inside = itself || includes.reaches_below(path);
    match excludes.accepts(path) || !inside {
        true => PathProjection::Nothing,
        false if itself && !excludes.reaches_below(path) => PathProjection::Whole,
        false => PathProjection::Inside { itself },
    }
}

fn list(key: &str, value: &Value) -> Result<Vec<String>> {
    json::strings(value)
        .ok_or_else(|| Error::Parsing(format!("Unknown key for a {} in [{key}].", json::token(value))))
}

/// Patterns, each also standing for everything below what it names.
struct Patterns(Vec<(Vec<char>, Vec<char>)>);

impl Patterns {
    fn new(patterns: &[String]) -> Self {
        let expand = |pattern: &String| {
            let own: Vec<char> = pattern.chars().collect();
            let below = own.iter().copied().chain(['.', '*']).collect();
            (own, below)
        };
        Self(patterns.iter().map(expand).collect())
    }

    /// Returns whether a pattern names the path or something above it.
    fn accepts(&self, path: &str) -> bool {
        self.0.iter().any(|(own, below)| run(own, path).1 || run(below, path).1)
    }

    /// Returns whether a pattern may name something below the path.
    fn reaches_below(&self, path: &str) -> bool {
        let inside = format!("{path}.");
        self.0.iter().any(|(own, _)| run(own, &inside).0)
    }
}

/// Runs a pattern over a text: whether it can still match, and whether it matches here.
fn run(pattern: &[char], text: &str) -> (bool, bool) {
    let mut states = vec![false; pattern.len() + 1];
    let close = |states: &mut Vec<bool>| {
        for at in 0..pattern.len() {
            if states[at] && pattern[at] == '*' {
                states[at + 1] = true;
            }
        }
    };
    states[0] = true;
    close(&mut states);
    for c in text.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for at in 0..pattern.len() {
            if states[at] {
                if pattern[at] == '*' {
                    next[at] = true;
                } else if pattern[at] == c {
                    next[at + 1] = true;
                }
            }
        }
        close(&mut next);
        states = next;
    }
    (states.iter().any(|alive| *alive), states[pattern.len()])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filtered(filter: Value) -> Value {
        let source = json!({"include": {"field1": "v1", "field2": "v2"}, "count": 1,
                            "list": [{"a": 1, "b": 2}, {"b": 3}]});
        SourceFilter::parse(&filter).unwrap().apply(source)
    }

    #[test]
    fn patterns_keep_and_leave_out() {
        assert_eq!(filtered(json!("include.field1")), json!({"include": {"field1": "v1"}}));
        assert_eq!(
            filtered(json!({"includes": "include", "excludes": "*.field2"})),
            json!({"include": {"field1": "v1"}})
        );
        assert_eq!(filtered(json!(["list.a"])), json!({"list": [{"a": 1}]}));
        assert_eq!(filtered(json!({"excludes": ["list", "include.*"]})), json!({"include": {}, "count": 1}));
        assert_eq!(
            filtered(json!({"includes": "list", "excludes": ["list.a", "list.b"]})),
            json!({"list": []})
        );
        assert_eq!(filtered(json!("c*")), json!({"count": 1}));
        assert_eq!(filtered(json!("nothing")), json!({}));
    }
}
