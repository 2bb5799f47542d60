//! Analysis settings: `index.analysis.<kind>.<name>.<parameter>` as named groups of parameters.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::filter::english_stop_words;
use crate::{Error, Result};

/// Groups the flattened settings of one kind (`analyzer`, `tokenizer`, `filter`, …) by name.
pub(crate) fn components(settings: &Map<String, Value>, kind: &'static str) -> BTreeMap<String, Params> {
    let prefix = format!("index.analysis.{kind}.");
    let mut components: BTreeMap<String, Params> = BTreeMap::new();
    for (key, value) in settings {
        let Some((name, parameter)) = key.strip_prefix(&prefix).and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        components
            .entry(name.to_owned())
            .or_insert_with(|| Params { kind, name: name.to_owned(), values: Map::new() })
            .values
            .insert(parameter.to_owned(), value.clone());
    }
    components
}

/// The parameters of one component; settings arrive as strings as often as in their own type.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    values: Map<String, Value>,
}

impl Params {
    /// The component's type, where it is given.
    pub(crate) fn type_name(&self) -> Option<&str> {
        self.values.get("type").and_then(Value::as_str)
    }

    /// Refuses parameters that the component does not know: one that is not obeyed would change the
    /// tokens behind the user's back.
    pub(crate) fn allow(&self, known: &[&str]) -> Result<()> {
        for parameter in self.values.keys() {
            let base = parameter.split('.').next().unwrap_or(parameter);
            if !known.contains(&base) && !matches!(base, "type" | "version") {
                return Err(Error::IllegalArgument(format!(
                    "unknown setting [index.analysis.{}.{}.{parameter}] please check that any required plugins \
                     are installed, or check the breaking changes documentation for removed settings",
                    self.kind, self.name
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn string(&self, parameter: &str) -> Option<String> {
        match self.values.get(parameter)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    pub(crate) fn integer(&self, parameter: &str, default: i64) -> Result<i64> {
        match self.string(parameter) {
            None => Ok(default),
            Some(text) => text.trim().parse().map_err(|_| {
                Error::IllegalArgument(format!("Failed to parse value [{text}] for setting [{parameter}]"))
            }),
        }
    }

    /// A length: an integer of at least `least`.
    pub(crate) fn length(&self, parameter: &str, default: usize, least: i64) -> Result<usize> {
        let default = i64::try_from(default).unwrap_or(i64::MAX);
        let value = self.integer(parameter, default)?;
        usize::try_from(value).ok().filter(|_| value >= least).ok_or_else(|| {
            Error::IllegalArgument(format!(
                "Failed to parse value [{value}] for setting [{parameter}] must be >= {least}"
            ))
        })
    }

    pub(crate) fn boolean(&self, parameter: &str, default: bool) -> Result<bool> {
        match self.string(parameter).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(text) => Err(Error::IllegalArgument(format!(
                "Failed to parse value [{text}] as only [true] or [false] are allowed."
            ))),
        }
    }

    /// A list: an array, a comma-separated string, or flattened further as `parameter.0`, `.1`, ….
    pub(crate) fn list(&self, parameter: &str) -> Option<Vec<String>> {
        let item = |value: &Value| match value {
            Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        if let Some(value) = self.values.get(parameter) {
            return Some(match value {
                Value::Array(items) => items.iter().map(item).collect(),
                Value::Null => Vec::new(),
                other => item(other)
                    .split(',')
                    .map(|part| part.trim().to_owned())
                    .filter(|part| !part.is_empty())
                    .collect(),
            });
        }
        let mut numbered: Vec<(usize, String)> = self
            .values
            .iter()
            .filter_map(|(key, value)| {
                let number = key.strip_prefix(parameter)?.strip_prefix('.')?.parse().ok()?;
                Some((number, item(value)))
            })
            .collect();
        numbered.sort_unstable();
        (!numbered.is_empty()).then(|| numbered.into_iter().map(|(_, item)| item).collect())
    }

    /// Stop words: a list, `_none_` or the name of a built-in list.
    pub(crate) fn stop_words(&self, default: &str) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for word in self.list("stopwords").unwrap_or_else(|| vec![default.to_owned()]) {
            match word.as_str() {
                "_none_" => {}
                "_english_" => words.extend(english_stop_words()),
                named if named.len() > 2 && named.starts_with('_') && named.ends_with('_') => {
                    return Err(Error::IllegalArgument(format!(
                        "unknown stop word list [{named}] of [{}]; give the words themselves",
                        self.name
                    )));
                }
                _ => words.push(word),
            }
        }
        Ok(words)
    }
}
