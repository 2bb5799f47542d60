//! Source filtering: `_source`, `_source_includes`, `_source_excludes`.
//!
//! A pattern names a path or an object above it; `*` matches any characters, dots included.

use std::sync::Arc;

use bytes::Bytes;
use millrace_mapping::fields::FieldRules;
use millrace_mapping::pattern::matches;
use millrace_mapping::source::{PathProjection, leave_out_of_text};
use millrace_mapping::{Mapping, fields};
use serde_json::Value;

use crate::error::Error;
use crate::http::{Params, offload};

/// Most patterns of one request.
const MAX_PATTERNS: usize = 1024;

/// Selection of the parts of a source that are returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceFilter {
    /// The whole source, byte for byte.
    #[default]
    All,
    None,
    /// Members by pattern; no includes means all.
    Some {
        includes: Vec<String>,
        excludes: Vec<String>,
    },
    /// Parts that a filter leaves, and all of some rules show.
    Ruled(Box<SourceFilter>, Arc<[Arc<FieldRules>]>),
}

impl SourceFilter {
    /// Takes the three parameters; `None` where none is given.
    pub(crate) fn take(params: &mut Params) -> Result<Option<Self>, Error> {
        let own = params.take("_source");
        let mut includes = params.take_list("_source_includes");
        let excludes = params.take_list("_source_excludes");
        match own.as_deref() {
            None => {}
            Some("false") => return Ok(Some(Self::None)),
            Some("" | "true") if includes.is_none() && excludes.is_none() => return Ok(Some(Self::All)),
            Some("" | "true") => {}
            Some(list) => includes = Some(list.split(',').map(str::to_owned).collect()),
        }
        if includes.is_none() && excludes.is_none() {
            return Ok(None);
        }
        Self::new(includes.unwrap_or_default(), excludes.unwrap_or_default()).map(Some)
    }

    /// Parses the `_source` member of a body: boolean, pattern, list, or includes and excludes.
    pub(crate) fn parse(value: &Value) -> Result<Self, Error> {
        match value {
            Value::Bool(true) => Ok(Self::All),
            Value::Bool(false) => Ok(Self::None),
            Value::String(_) | Value::Array(_) => Self::new(patterns(value)?, Vec::new()),
            Value::Object(members) => {
                let (mut includes, mut excludes) = (Vec::new(), Vec::new());
                for (name, value) in members {
                    match name.as_str() {
                        "includes" | "include" => includes = patterns(value)?,
                        "excludes" | "exclude" => excludes = patterns(value)?,
                        other => {
                            return Err(Error::parsing(format!("Unknown key [{other}] in [_source].")));
                        }
                    }
                }
                Self::new(includes, excludes)
            }
            other => Err(Error::parsing(format!(
                "Expected one of [VALUE_BOOLEAN, VALUE_STRING, START_ARRAY, START_OBJECT] for [_source] but found [{}]",
                crate::http::json::token(other)
            ))),
        }
    }

    /// Returns the parts of sources that an index's mapping shows.
    pub(crate) fn of_mapping(mapping: &Mapping) -> Self {
        let (includes, excludes) = mapping.source_patterns();
        let shown = if includes.is_empty() && excludes.is_empty() {
            Self::All
        } else {
            Self::Some { includes, excludes }
        };
        let rules = mapping.field_rules();
        if rules.is_empty() { shown } else { Self::Ruled(Box::new(shown), Arc::clone(rules)) }
    }

    fn new(includes: Vec<String>, excludes: Vec<String>) -> Result<Self, Error> {
        if includes.len() + excludes.len() > MAX_PATTERNS {
            return Err(Error::illegal_argument(format!(
                "[_source] has more than [{MAX_PATTERNS}] patterns"
            )));
        }
        if includes.is_empty() && excludes.is_empty() {
            return Ok(Self::All);
        }
        Ok(Self::Some { includes, excludes })
    }

    /// Applies the filter to a stored source; `None` where nothing is to be answered.
    pub(crate) fn apply(&self, source: &Bytes) -> Result<Option<Bytes>, Error> {
        let (includes, excludes) = match self {
            Self::All => return Ok(Some(source.clone())),
            Self::None => return Ok(None),
            Self::Some { includes, excludes } => (includes, excludes),
            Self::Ruled(inner, rules) => {
                let Some(source) = inner.apply(source)? else { return Ok(None) };
                return offload(source.len(), || {
                    let shown = fields::shown_of_text(&source, rules).ok_or_else(no_json)?;
                    Ok(Some(Bytes::from(shown)))
                });
            }
        };
        offload(source.len(), || {
            let named =
                |patterns: &[String], path: &str| patterns.iter().any(|pattern| matches(pattern, path));
            let kept = leave_out_of_text(source, false, |path, above| {
                let itself = above || includes.is_empty() || named(includes, path);
                match itself && excludes.is_empty() {
                    true => PathProjection::Whole,
                    false if named(excludes, path) => PathProjection::Nothing,
                    false => PathProjection::Inside { itself },
                }
            });
            Ok(Some(Bytes::from(kept.ok_or_else(no_json)?)))
        })
    }
}

fn no_json() -> Error {
    Error::concealed(500, "illegal_state_exception", &"a stored source is not JSON")
}

fn patterns(value: &Value) -> Result<Vec<String>, Error> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(Error::parsing(format!("[_source] patterns must be strings but found [{other}]"))),
    };
    match value {
        Value::Array(items) => items.iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SOURCE: &str = r#"{"include":{"field1":"v1","field2":"v2"},"count":1,"list":[{"a":1,"b":2},3]}"#;

    fn filter(query: &str) -> String {
        let filter = SourceFilter::take(&mut Params::parse(query).unwrap()).unwrap().unwrap_or_default();
        let bytes = filter.apply(&Bytes::from_static(SOURCE.as_bytes())).unwrap();
        bytes.map_or("none".to_owned(), |bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn parameters() {
        assert_eq!(filter(""), SOURCE);
        assert_eq!(filter("_source=true"), SOURCE);
        assert_eq!(filter("_source=false"), "none");
        assert_eq!(filter("_source=include.field1"), r#"{"include":{"field1":"v1"}}"#);
        assert_eq!(
            filter("_source_includes=include&_source_excludes=*.field2"),
            r#"{"include":{"field1":"v1"}}"#
        );
        assert_eq!(filter("_source_includes=list.a,count"), r#"{"count":1,"list":[{"a":1}]}"#);
        assert_eq!(filter("_source_excludes=include,list"), r#"{"count":1}"#);
        // As searches show it: of an object in an array nothing is shown where nothing is left of it.
        assert_eq!(filter("_source=list&_source_excludes=list.a,list.b"), r#"{"list":[3]}"#);
        assert_eq!(filter("_source=nothing"), "{}");
    }

    #[test]
    fn bodies() {
        let parse = |value| SourceFilter::parse(&value);
        assert_eq!(parse(json!(true)).unwrap(), SourceFilter::All);
        assert_eq!(
            parse(json!({ "include": "a", "exclude": ["b"] })).unwrap(),
            SourceFilter::Some { includes: vec!["a".into()], excludes: vec!["b".into()] }
        );
        assert!(parse(json!({ "inclde": "a" })).is_err());
        assert!(parse(json!(3)).is_err());
    }
}
