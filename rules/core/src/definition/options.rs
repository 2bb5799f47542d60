//! Taking options out of an object, each with its type and bound.

use serde_json::{Map, Value};

use super::span;
use crate::error::{Error, Result};
use crate::fields::cut;
use crate::time::Span;

/// Bytes of a text that may be long.
pub(crate) const MAX_TEXT: usize = 64 << 10;
/// Bytes of a name.
pub(crate) const MAX_NAME: usize = 256;
/// Bytes of the path of a field.
pub(crate) const MAX_PATH: usize = 512;

/// Options that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Options(pub(crate) Map<String, Value>);

/// At most 100 bytes of a text, for messages.
pub(crate) fn short(text: &str) -> String {
    if text.len() <= 100 { text.to_owned() } else { format!("{}…", cut(text, 97)) }
}

/// The name of a value's kind.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wrong(name: &str, value: &Value, wanted: &str) -> Error {
    Error::invalid(name, format!("is {}, {wanted} is expected", kind(value)))
}

impl Options {
    /// Takes an option; `null` is as good as none.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes a text of at most `bound` bytes.
    pub(crate) fn text(&mut self, name: &str, bound: usize) -> Result<Option<String>> {
        self.take(name).map(|value| text(name, value, bound)).transpose()
    }

    /// Takes a text or a list of texts, none of them empty.
    pub(crate) fn texts(&mut self, name: &str, most: usize, bound: usize) -> Result<Option<Vec<String>>> {
        self.take(name).map(|value| texts(name, value, most, bound)).transpose()
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match &value {
            Value::Bool(flag) => return Ok(Some(*flag)),
            // YAML 1.1, which ElastAlert reads, has more words for it.
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => return Ok(Some(true)),
                "false" | "no" | "off" => return Ok(Some(false)),
                _ => {}
            },
            _ => {}
        }
        Err(wrong(name, &value, "true or false"))
    }

    pub(crate) fn integer(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => {
                number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
            }
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return Err(wrong(name, &value, "an integer")) };
        match u64::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Error::invalid(
                name,
                format!("[{number}] is out of range: {least} to {most} are allowed"),
            )),
        }
    }

    pub(crate) fn span(&mut self, name: &str, shortest: Span) -> Result<Option<Span>> {
        self.take(name).map(|value| span::read(name, &value, shortest)).transpose()
    }

    /// Takes the path of a field.
    pub(crate) fn path(&mut self, name: &str) -> Result<Option<String>> {
        let path = self.text(name, MAX_PATH)?;
        path.map(|path| self::path(name, path)).transpose()
    }

    /// Takes the paths of one or several fields.
    pub(crate) fn paths(&mut self, name: &str, most: usize) -> Result<Option<Vec<String>>> {
        let Some(paths) = self.texts(name, most, MAX_PATH)? else { return Ok(None) };
        paths.into_iter().map(|path| self::path(name, path)).collect::<Result<_>>().map(Some)
    }
}

pub(crate) fn path(name: &str, path: String) -> Result<String> {
    let whole = path.split('.').all(|part| !part.is_empty());
    // Each dot doubles the ways in which a source can be read.
    if !whole || path.matches('.').count() > 20 {
        return Err(Error::invalid(
            name,
            format!("[{}] is no field: names joined by single dots, at most 20", short(&path)),
        ));
    }
    Ok(path)
}

pub(crate) fn text(name: &str, value: Value, bound: usize) -> Result<String> {
    let text = match value {
        Value::String(text) => text,
        // YAML makes numbers of names such as `2026`.
        Value::Number(number) => number.to_string(),
        other => return Err(wrong(name, &other, "a text")),
    };
    if text.len() > bound {
        return Err(Error::TooLarge { field: name.to_owned(), size: text.len(), unit: "bytes", bound });
    }
    Ok(text)
}

pub(crate) fn texts(name: &str, value: Value, most: usize, bound: usize) -> Result<Vec<String>> {
    let list = match value {
        Value::Array(list) => list,
        one @ (Value::String(_) | Value::Number(_)) => vec![one],
        other => return Err(wrong(name, &other, "a text or a list of texts")),
    };
    if list.len() > most {
        return Err(Error::TooLarge {
            field: name.to_owned(),
            size: list.len(),
            unit: "entries",
            bound: most,
        });
    }
    let texts = list.into_iter().map(|entry| text(name, entry, bound)).collect::<Result<Vec<_>>>()?;
    if texts.iter().any(String::is_empty) {
        return Err(Error::invalid(name, "has an empty text"));
    }
    Ok(texts)
}
