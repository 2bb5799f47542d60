//! `stored_fields`: values of fields mapped with `store: true`, taken from the source.

use millrace_mapping::{ColumnKind, Field, Mapping};
use serde_json::{Map, Value};

use crate::error::Error;

/// Fields of `stored_fields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredFields {
    names: Vec<String>,
    /// `true` if `_source` is among them.
    pub(crate) source: bool,
}

impl StoredFields {
    /// Sorts the names; metadata fields are answered anyway.
    pub(crate) fn new(list: Vec<String>) -> Self {
        let source = list.iter().any(|name| name == "_source");
        let names = list.into_iter().filter(|name| !name.starts_with('_')).collect();
        Self { names, source }
    }

    /// Parses a member of a body: a name or a list of names.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let list = match value {
            Value::String(one) => vec![one.clone()],
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Self::new(list))
    }

    /// Collects the values of a document; fields that are not stored or have no value are left out.
    pub(crate) fn collect(&self, mapping: &Mapping, source: &[u8]) -> Result<Map<String, Value>, Error> {
        let mut fields = Map::new();
        if self.names.is_empty() {
            return Ok(fields);
        }
        let source = serde_json::from_slice::<Value>(source)
            .map_err(|error| Error::concealed(500, "illegal_state_exception", &error))?;
        for name in &self.names {
            let Some(field) = mapping.field(name) else {
                if mapping.is_object(name) {
                    return Err(Error::illegal_argument(format!("field [{name}] isn't a leaf field")));
                }
                continue;
            };
            if !is_stored(field) {
                continue;
            }
            let mut values = Vec::new();
            gather(&source, &field.path, &mut values);
            if values.is_empty()
                && let Some((parent, _)) = field.path.rsplit_once('.')
                && !mapping.is_object(parent)
            {
                gather(&source, parent, &mut values);
            }
            let kind = field.column_kind();
            values.iter_mut().for_each(|value| coerce(value, kind));
            if !values.is_empty() {
                fields.insert(name.clone(), Value::Array(values));
            }
        }
        Ok(fields)
    }
}

fn is_stored(field: &Field) -> bool {
    matches!(field.params.get("store"), Some(Value::Bool(true)))
        || field.params.get("store").is_some_and(|v| v == "true")
}

/// Collects the leaf values at a dotted path, through arrays and dotted member names.
fn gather(value: &Value, path: &str, out: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, path, out)),
        Value::Object(members) => {
            for (name, member) in members {
                match path.strip_prefix(name.as_str()) {
                    Some("") => flatten(member, out),
                    Some(rest) => {
                        if let Some(rest) = rest.strip_prefix('.') {
                            gather(member, rest, out);
                        }
                    }
                    None => {}
                }
            }
        }
        _ => {}
    }
}

fn flatten(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flatten(item, out)),
        Value::Null | Value::Object(_) => {}
        leaf => out.push(leaf.clone()),
    }
}

/// Gives a value the form in which its field stores it.
fn coerce(value: &mut Value, kind: ColumnKind) {
    let coerced = match (kind, &*value) {
        (ColumnKind::Int(_), Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        (ColumnKind::Int(_), Value::Number(number)) if !number.is_i64() => {
            number.as_f64().map(|float| Value::from(float as i64))
        }
        (ColumnKind::U64, Value::String(text)) => text.trim().parse::<u64>().ok().map(Value::from),
        (ColumnKind::F32 | ColumnKind::F64, Value::String(text)) => {
            text.trim().parse::<f64>().ok().map(Value::from)
        }
        (ColumnKind::F32 | ColumnKind::F64, Value::Number(number)) => number.as_f64().map(Value::from),
        (ColumnKind::Bool, Value::String(text)) => Some(Value::Bool(text == "true")),
        (ColumnKind::Str, Value::Number(number)) => Some(number.to_string().into()),
        (ColumnKind::Str, Value::Bool(flag)) => Some(flag.to_string().into()),
        _ => None,
    };
    if let Some(coerced) = coerced {
        *value = coerced;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_gathered_through_arrays() {
        let source = json!({ "a": [{ "b": 1 }, { "b": [2, null] }], "a.b": 3 });
        let mut values = Vec::new();
        gather(&source, "a.b", &mut values);
        assert_eq!(values, [json!(1), json!(2), json!(3)]);
    }

    #[test]
    fn values_take_their_fields_form() {
        for (kind, value, expected) in [
            (ColumnKind::Int(32), json!("7"), json!(7)),
            (ColumnKind::Int(32), json!(7.9), json!(7)),
            (ColumnKind::Str, json!(7), json!("7")),
            (ColumnKind::Bool, json!("false"), json!(false)),
        ] {
            let mut value = value;
            coerce(&mut value, kind);
            assert_eq!(value, expected);
        }
    }

    #[test]
    fn names_are_sorted() {
        let fields = StoredFields::new(vec!["foo".into(), "_source".into(), "_routing".into()]);
        assert_eq!(fields, StoredFields { names: vec!["foo".into()], source: true });
    }
}
