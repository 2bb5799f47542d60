//! Values of texts in YAML, which are no more than was written: an alias stands for all that its anchor has, and a few lines of them
//! for more than there is memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a value of at most so many bytes of texts and as many other values, aliases written out.
///
/// # Errors
/// The reason why it is refused.
pub(super) fn read(text: &str, bytes: usize) -> Result<Value, serde_norway::Error> {
    let left = Cell::new(bytes);
    ExpandedYaml { left: &left }.deserialize(serde_norway::Deserializer::from_str(text))
}

#[derive(Clone, Copy)]
struct ExpandedYaml<'a> {
    left: &'a Cell<usize>,
}

impl ExpandedYaml<'_> {
    fn charge<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes.saturating_add(1));
        let left = left.ok_or_else(|| E::custom("with its aliases written out it is too large"))?;
        self.left.set(left);
        Ok(())
    }

    fn scalar<E: serde::de::Error>(&self, value: impl Into<Value>) -> Result<Value, E> {
        self.charge(0).map(|()| value.into())
    }
}

impl<'de> DeserializeSeed<'de> for ExpandedYaml<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ExpandedYaml<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.scalar(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.charge(value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.charge(0)?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.charge(0)?;
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.charge(name.len())?;
            let value = members.next_value_seed(self)?;
            if all.insert(name.clone(), value).is_some() {
                return Err(A::Error::custom(format!("the member [{name}] is there twice")));
            }
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_the_text() {
        let text = "a: &x [1, -2, 3.5, yes, ~, 'text']\nb: *x\nc: {d: true, 7: .nan}\n";
        let list = json!([1, -2, 3.5, "yes", null, "text"]);
        assert_eq!(read(text, 1_000).unwrap(), json!({"a": list, "b": list, "c": {"d": true, "7": null}}));
        assert_eq!(read(text, 1_000).unwrap(), serde_norway::from_str::<Value>(text).unwrap());
        assert!(read("a: 1\na: 2\n", 1_000).is_err());
        assert!(read("a: [", 1_000).is_err());
    }

    #[test]
    fn aliases_count_as_what_they_stand_for() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), "*a,".repeat(1_000));
        assert!(read(&text, 20_000).unwrap_err().to_string().contains("aliases"));
        assert!(read(&text, 11_000_000).is_ok());
    }
}
