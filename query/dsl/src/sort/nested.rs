//! `nested` of a sort key: whose values count, of the elements of a nested path.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::json;
use crate::query::{self, Query};

/// Most paths within each other.
const MAX_LEVELS: usize = 20;

/// The elements whose values count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NestedSort {
    /// The nested path.
    pub path: String,
    /// Query that its elements must match.
    pub filter: Option<Query>,
    /// Most elements of a document that count, where said.
    pub max_children: Option<usize>,
    /// The same for a path within this one.
    pub nested: Option<Box<NestedSort>>,
}

impl NestedSort {
    /// Parses the option; without a path there is nothing to be done.
    pub(super) fn parse(value: &Value) -> Result<Option<Self>> {
        let nested = Self::level(value, 0)?;
        Ok(Some(nested).filter(|nested| !nested.path.is_empty()))
    }

    fn level(value: &Value, depth: usize) -> Result<Self> {
        let Value::Object(members) = value else {
            return Err(malformed("must start with an object"));
        };
        if depth >= MAX_LEVELS {
            return Err(malformed(&format!("more than {MAX_LEVELS} paths within each other")));
        }
        let mut nested = Self::default();
        for (key, value) in members {
            match key.as_str() {
                "path" => nested.path = json::text(value).unwrap_or_default(),
                "filter" => nested.filter = Some(Self::condition(value)?),
                "max_children" => nested.max_children = usize::try_from(json::integer(value)?).ok(),
                "nested" => nested.nested = Some(Box::new(Self::level(value, depth + 1)?)),
                _ => return Err(malformed(&format!("unknown field name [{key}]"))),
            }
        }
        Ok(nested)
    }

    /// Parses what elements must match.
    pub(super) fn condition(value: &Value) -> Result<Query> {
        query::parse(value)
    }

    /// Returns the paths from the outside in, with what their elements must match.
    pub fn levels(&self) -> Vec<&NestedSort> {
        let mut levels = vec![self];
        let mut at = self;
        while let Some(inner) = &at.nested {
            levels.push(inner);
            at = inner;
        }
        levels
    }
}

/// Options that are older than `nested`, as they are read.
#[derive(Debug, Default)]
pub(super) struct OlderNested {
    path: Option<String>,
    filter: Option<Query>,
}

impl OlderNested {
    /// Takes `nested_path` or `nested_filter`; returns whether the option was one of them.
    pub(super) fn take(&mut self, option: &str, value: &Value) -> Result<bool> {
        match option {
            "nested_path" => self.path = json::text(value),
            "nested_filter" => self.filter = Some(NestedSort::condition(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the combined sort options, where `nested` has none.
    pub(super) fn or(self, nested: Option<NestedSort>) -> Result<Option<NestedSort>> {
        match (nested, self.path, self.filter) {
            (nested, None, None) => Ok(nested),
            (None, Some(path), filter) => Ok(Some(NestedSort { path, filter, ..NestedSort::default() })),
            (None, None, Some(_)) => Err(Error::IllegalArgument(
                "[nested_filter] needs [nested_path]: use the [nested] option of the sort".to_owned(),
            )),
            (Some(_), ..) => Err(Error::IllegalArgument(
                "Setting both nested_path/nested_filter and nested not allowed".to_owned(),
            )),
        }
    }
}

fn malformed(what: &str) -> Error {
    Error::IllegalArgument(format!("malformed nested sort format, {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_nest() {
        let nested = NestedSort::parse(&json!({
            "path": "a", "max_children": 3, "filter": {"match_all": {}}, "nested": {"path": "a.b"}
        }));
        let nested = nested.unwrap().unwrap();
        let paths: Vec<&str> = nested.levels().iter().map(|level| level.path.as_str()).collect();
        assert_eq!((paths.as_slice(), nested.max_children), (["a", "a.b"].as_slice(), Some(3)));
        assert_eq!(NestedSort::parse(&json!({})).unwrap(), None);
        insta::assert_snapshot!(
            NestedSort::parse(&json!({"path": "a", "foo": 1})).unwrap_err(),
            @"malformed nested sort format, unknown field name [foo]"
        );
    }
}
