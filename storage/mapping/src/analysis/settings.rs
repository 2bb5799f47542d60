//! Analysis settings: `index.analysis.<kind>.<name>.<parameter>` as named groups of parameters.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::filter::lowercase::lower;
use super::language::named_stop_words;

/// Groups the flattened settings of one kind (`analyzer`, `tokenizer`, `filter`, …) by name.
pub(crate) fn components(settings: &Map<String, Value>, kind: &str) -> BTreeMap<String, Params> {
    let prefix = format!("index.analysis.{kind}.");
    let mut components: BTreeMap<String, Params> = BTreeMap::new();
    for (key, value) in settings {
        let Some((name, parameter)) = key.strip_prefix(&prefix).and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        components
            .entry(name.to_owned())
            .or_insert_with(|| Params { name: name.to_owned(), values: Map::new() })
            .values
            .insert(parameter.to_owned(), value.clone());
    }
    components
}

/// The parameters of one component; settings arrive as strings as often as in their own type.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) name: String,
    values: Map<String, Value>,
}

impl Params {
    /// The component's type, where it is given.
    pub(crate) fn type_name(&self) -> Option<&str> {
        self.values.get("type").and_then(Value::as_str)
    }

    /// Parameters of a component that is named without having been configured.
    pub(crate) fn unconfigured(name: &str) -> Self {
        Self { name: name.to_owned(), values: Map::new() }
    }

    /// Parameters of a component that a request defines; members of objects are joined by dots.
    pub(crate) fn inline(definition: &Map<String, Value>) -> Self {
        let mut values = Map::new();
        // The request's parser bounds the depth.
        let mut open: Vec<(String, &Map<String, Value>)> = vec![(String::new(), definition)];
        while let Some((prefix, object)) = open.pop() {
            for (key, value) in object {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                match value {
                    Value::Object(inner) => open.push((path, inner)),
                    other => drop(values.insert(path, other.clone())),
                }
            }
        }
        let mut params = Self { name: String::new(), values };
        params.name = format!("__anonymous__{}", params.type_name().unwrap_or_default());
        params
    }

    /// Returns whether nothing at all was said about the component.
    pub(crate) fn is_unconfigured(&self) -> bool {
        self.values.is_empty()
    }

    /// The parameters as settings, whose values are text.
    pub(crate) fn to_json(&self) -> Value {
        let text = |value: &Value| match value {
            Value::String(_) | Value::Array(_) | Value::Null => value.clone(),
            other => Value::String(other.to_string()),
        };
        self.values.iter().map(|(key, value)| (key.clone(), text(value))).collect::<Map<_, _>>().into()
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

    /// As [`Params::list`], but items keep the white space around them.
    pub(crate) fn raw_list(&self, parameter: &str) -> Option<Vec<String>> {
        match self.values.get(parameter)? {
            Value::Array(items) => Some(
                items
                    .iter()
                    .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                    .collect(),
            ),
            _ => self.list(parameter),
        }
    }

    /// A list that OpenSearch also reads from a file, `<parameter>_path`, which is refused here: nothing
    /// outside of the store is read.
    pub(crate) fn words(&self, parameter: &str) -> Result<Option<Vec<String>>> {
        let path = format!("{parameter}_path");
        if let Some(file) = self.string(&path) {
            return Err(Error::IllegalArgument(format!(
                "[{path}] of [{}] cannot be read: give the contents of [{file}] in [{parameter}]",
                self.name
            )));
        }
        Ok(self.raw_list(parameter))
    }

    /// A set of words with its case setting `<parameter>_case`, or `ignore_case`.
    pub(crate) fn word_set(&self, parameter: &str, ignore_case: bool) -> Result<Option<HashSet<String>>> {
        let fold = |word: String| {
            if ignore_case { word.chars().map(lower).collect() } else { word }
        };
        Ok(match self.words(parameter)? {
            None => None,
            Some(_) => self.list(parameter).map(|words| words.into_iter().map(fold).collect()),
        })
    }

    /// Stop words: a list, `_none_` or the name of a built-in list.
    pub(crate) fn stop_words(&self, default: &str) -> Result<Vec<String>> {
        self.words_or("stopwords", default)
    }

    /// A list of words in which the built-in ones may be named.
    pub(crate) fn words_or(&self, parameter: &str, default: &str) -> Result<Vec<String>> {
        self.words(parameter)?;
        let mut words = Vec::new();
        let given = self.list(parameter).unwrap_or_else(|| vec![default.to_owned()]);
        if given.len() == 1 && given[0] == "_none_" {
            return Ok(words);
        }
        for word in given {
            match named_stop_words(&word) {
                Some(named) => words.extend(named),
                None => words.push(word),
            }
        }
        Ok(words)
    }
}
