//! `terms`: any of a list of exact values, or of those of another document, with one score.

use std::fmt;

use millrace_work::bytes_of;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::clause::listed;
use super::{Clause, Common, Lookup, Parser};
use crate::json::token;

/// A `terms` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct TermsQuery {
    /// Field path.
    pub field: String,
    /// The values, JSON scalars.
    pub values: Vec<Value>,
    /// Lookup that reads values from another document.
    pub lookup: Option<Lookup>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for TermsQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut found: Option<(&str, &Value)> = None;
        for (key, value) in fields {
            match value {
                Value::Array(_) | Value::Object(_) => {
                    if found.is_some() {
                        return Err(Error::Parsing(
                            "[terms] query does not support multiple fields".to_owned(),
                        ));
                    }
                    found = Some((key, value));
                }
                scalar => {
                    if !common.take("terms", key, scalar)? {
                        return Err(unknown_token(key, value));
                    }
                }
            }
        }
        let (field, values, lookup) = match found {
            Some((field, Value::Array(values))) => (field, scalars(field, values)?, None),
            Some((field, Value::Object(members))) => (field, Vec::new(), Some(parse_lookup(members)?)),
            _ => {
                return Err(Error::Parsing(
                    "[terms] query requires a field name, followed by array of terms or a document lookup specification"
                        .to_owned(),
                ));
            }
        };
        Ok(Self { field: field.to_owned(), values, lookup, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in ", self.field)?;
        listed(f, self.values.iter())
    }

    fn lookups(&self, _searched: &[&str]) -> Vec<Lookup> {
        self.lookup.iter().cloned().collect()
    }

    fn fill(&mut self, _searched: &[&str], values: &mut dyn FnMut(&Lookup) -> Vec<Value>) {
        if let Some(lookup) = self.lookup.take() {
            self.values = values(&lookup);
        }
    }

    fn bytes(&self) -> usize {
        self.field.len() + self.values.iter().map(bytes_of).sum::<usize>()
    }
}

fn parse_lookup(members: &Map<String, Value>) -> Result<Lookup> {
    let content = |reason: String| Error::Content { reason, cause: None };
    let (mut index, mut id, mut path, mut routing, mut kind) = (None, None, None, None, None);
    for (key, value) in members {
        let slot = match key.as_str() {
            "index" => &mut index,
            "id" => &mut id,
            "path" => &mut path,
            "routing" => &mut routing,
            // All documents are of the one type there is.
            "type" => &mut kind,
            _ => return Err(content(format!("[terms_lookup] unknown field [{key}]"))),
        };
        let Value::String(text) = value else {
            return Err(content(format!(
                "[terms_lookup] {key} doesn't support values of type: {}",
                token(value)
            )));
        };
        *slot = Some(text.clone());
    }
    match (index, id, path) {
        (Some(index), Some(id), path @ Some(_)) => Ok(Lookup { index, id, path, routing, lenient: false }),
        (index, id, path) => {
            let names = [("index", index), ("id", id), ("path", path)];
            let missing: Vec<&str> =
                names.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
            Err(Error::IllegalArgument(format!("Required [{}]", missing.join(", "))))
        }
    }
}

/// Takes the values of a list: scalars, none of them null.
fn scalars(field: &str, values: &[Value]) -> Result<Vec<Value>> {
    for value in values {
        match value {
            Value::Null => return Err(Error::Parsing("No value specified for terms query".to_owned())),
            Value::Array(_) | Value::Object(_) => return Err(unknown_token(field, value)),
            _ => {}
        }
    }
    Ok(values.to_vec())
}

fn unknown_token(key: &str, value: &Value) -> Error {
    Error::Parsing(format!("[terms] unknown token [{}] after [{key}]", token(value)))
}
