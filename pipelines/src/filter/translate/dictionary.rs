//! Dictionaries: pairs of YAML, JSON or CSV files, and the ways to look a text up.

use std::fmt;
use std::path::Path;

use millrace_ingest::csv::CsvDialect;
use millrace_ingest::event::text_of;
use millrace_ingest::pattern::{Deadline, Expression};
use serde::de::{EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::refresh::read_text;

/// Largest dictionary, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Keys and values in the order of the file.
pub(super) type Pairs = Map<String, Value>;

/// The way in which a text is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The text is a key.
    Exact,
    /// A key is an expression that matches the text.
    Expression,
    /// Each part of the text that is a key, or that a key matches, is replaced.
    Substring { is_expression: bool },
}

/// Keys and values, ready for lookups.
#[derive(Debug)]
pub(super) struct Dictionary {
    pairs: Pairs,
    lookup: Lookup,
    /// Compiled keys in their order, for [`Lookup::Expression`].
    keys: Vec<(Expression, Value)>,
    /// Any of the keys, for [`Lookup::Substring`].
    union: Option<Expression>,
}

impl Dictionary {
    /// Makes a dictionary.
    ///
    /// # Errors
    /// A key that is no expression where it has to be one.
    pub(super) fn new(
        lookup: Lookup,
        pairs: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, String> {
        let pairs: Pairs = pairs.into_iter().collect();
        let mut keys = Vec::new();
        let mut union = None;
        match lookup {
            Lookup::Exact => {}
            Lookup::Expression => {
                for (key, value) in &pairs {
                    keys.push((Expression::compile(key)?, value.clone()));
                }
            }
            Lookup::Substring { .. } if pairs.is_empty() => {}
            Lookup::Substring { is_expression } => {
                let alternatives: Vec<String> = pairs
                    .keys()
                    .map(|key| if is_expression { format!("(?:{key})") } else { quoted(key) })
                    .collect();
                union = Some(Expression::compile(&alternatives.join("|"))?);
                if is_expression {
                    for (key, value) in &pairs {
                        keys.push((Expression::compile(key)?, value.clone()));
                    }
                }
            }
        }
        Ok(Self { pairs, lookup, keys, union })
    }

    /// Looks a text up.
    pub(super) fn get(&self, text: &str) -> Option<Value> {
        let deadline = Deadline::default();
        match self.lookup {
            Lookup::Exact => self.pairs.get(text).cloned(),
            Lookup::Expression => self.matching(text, &deadline),
            Lookup::Substring { .. } => self.replaced(text, &deadline).map(Value::String),
        }
    }

    fn matching(&self, text: &str, deadline: &Deadline) -> Option<Value> {
        let found = self.keys.iter().find(|(key, _)| key.is_match(text, deadline).unwrap_or(false));
        found.map(|(_, value)| value.clone())
    }

    /// Replaces each part that has a value; `None` where nothing changes.
    fn replaced(&self, text: &str, deadline: &Deadline) -> Option<String> {
        let union = self.union.as_ref()?;
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        while let Ok(Some(range)) = union.find_at(text, from, deadline) {
            let (Some(before), Some(matched)) = (text.get(from..range.start), text.get(range.clone())) else {
                break;
            };
            if range.is_empty() {
                let letter = text.get(range.end..)?.chars().next();
                let Some(letter) = letter else { break };
                out.push_str(before);
                out.push(letter);
                from = range.end + letter.len_utf8();
                continue;
            }
            out.push_str(before);
            let value = self.pairs.get(matched).cloned().or_else(|| self.matching(matched, deadline));
            out.push_str(&value.map_or_else(String::new, |value| text_of(&value)));
            from = range.end;
        }
        out.push_str(text.get(from..).unwrap_or_default());
        (out != text).then_some(out)
    }
}

/// Escapes all that has a meaning in expressions.
fn quoted(key: &str) -> String {
    let mut quoted = String::with_capacity(key.len() + 8);
    for letter in key.chars() {
        if letter.is_ascii_punctuation() {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}

/// Reads the pairs of a file by its extension: `.yml`, `.yaml`, `.json` or `.csv`.
///
/// # Errors
/// The reason why it is no dictionary, naming it.
pub(super) fn read(path: &Path, max_code_points: Option<u64>) -> Result<Pairs, String> {
    let wrong = |reason: String| format!("[{}] is not a dictionary: {reason}", path.display());
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let kind = match extension.to_ascii_lowercase().as_str() {
        "yml" | "yaml" => "yaml",
        "json" => "json",
        "csv" => "csv",
        _ => return Err(wrong("its name must end with .yml, .yaml, .json or .csv".to_owned())),
    };
    let text = read_text(path, MAX_BYTES)?;
    if let Some(limit) = max_code_points
        && text.chars().count() as u64 > limit
    {
        return Err(wrong(format!("it has more than {limit} code points")));
    }
    match kind {
        // As in Logstash, an empty file is an empty dictionary, whatever its form.
        _ if text.trim().is_empty() => Ok(Pairs::new()),
        "yaml" => {
            // As in Logstash, a document behind another one is not read.
            let first = serde_norway::Deserializer::from_str(&text).next();
            let yaml = first.map(Yaml::deserialize).transpose().map_err(|error| wrong(error.to_string()))?;
            match yaml.map_or(Value::Null, |Yaml(value)| value) {
                Value::Null => Ok(Pairs::new()),
                Value::Object(pairs) => Ok(pairs),
                _ => Err(wrong("it must have keys with values".to_owned())),
            }
        }
        "json" => match serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))? {
            Value::Object(pairs) => Ok(pairs),
            _ => Err(wrong("it must be an object".to_owned())),
        },
        _ => {
            let dialect = CsvDialect::default();
            let mut pairs = Pairs::new();
            for (number, line) in text.lines().enumerate() {
                let row = dialect
                    .parse_row(line)
                    .map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
                let mut values = row.into_iter().flatten();
                if let Some(key) = values.next().flatten() {
                    let value = values.next().flatten().map_or(Value::Null, Value::String);
                    pairs.insert(key, value);
                }
            }
            Ok(pairs)
        }
    }
}

/// A value of YAML as one of JSON, without its tag. As in Logstash, the last one of equal keys counts.
struct Yaml(Value);

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor).map(Self)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Yaml(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut pairs = Pairs::new();
        while let Some((Yaml(key), Yaml(value))) = members.next_entry()? {
            pairs.insert(text_of(&key), value);
        }
        Ok(Value::Object(pairs))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (IgnoredAny, value) = tagged.variant()?;
        value.newtype_variant().map(|Yaml(value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts_and_the_first_document() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        std::fs::write(&path, "---\na: 1\nb: !tag x\n1.5: [~, {c: 1, c: 2}]\na: 2\n---\nz: 1\n").unwrap();
        let pairs = read(&path, None).unwrap();
        assert_eq!(Value::Object(pairs), serde_json::json!({"a": 2, "b": "x", "1.5": [null, {"c": 2}]}));
    }

    #[test]
    fn files_are_read_by_their_extension() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.yml", "one: 1\n2: two\nthree: {a: [x]}\n"),
            ("a.json", r#"{"one": 1, "2": "two", "three": {"a": ["x"]}}"#),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            let pairs = read(&path, None).unwrap();
            assert_eq!(
                Value::Object(pairs),
                serde_json::json!({"one": 1, "2": "two", "three": {"a": ["x"]}})
            );
        }
        let path = directory.path().join("a.csv");
        std::fs::write(&path, "one,1\n\"a,b\",\"c\"\nthree\n").unwrap();
        let pairs = read(&path, None).unwrap();
        assert_eq!(Value::Object(pairs), serde_json::json!({"one": "1", "a,b": "c", "three": null}));
        for name in ["c.yml", "c.json", "c.csv"] {
            let path = directory.path().join(name);
            std::fs::write(&path, "\n").unwrap();
            assert_eq!(read(&path, None).unwrap(), Pairs::new(), "{name}");
        }
        for (name, text) in [("b.json", "[1]"), ("b.yml", "- 1"), ("b.csv", "\"a"), ("b.txt", "a")] {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert!(read(&path, None).unwrap_err().contains("is not a dictionary"), "{name}");
        }
    }
}
