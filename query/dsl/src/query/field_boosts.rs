//! `fields`: names and patterns of fields, each with a boost where `^` follows.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::json;

/// Names and patterns of fields with the factors of their scores, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldBoosts(pub Vec<(String, f32)>);

impl FieldBoosts {
    /// Reads the value of `fields`; the last boost of a name counts, multiplied by those before where
    /// it is given none.
    pub(super) fn parse(clause: &str, value: &Value) -> Result<Self> {
        let listed = json::strings(value)
            .ok_or_else(|| Error::Parsing(format!("[{clause}] query does not support [fields]")))?;
        Self::new(clause, &listed)
    }

    /// Reads names, as a setting of an index lists them.
    pub fn new(clause: &str, listed: &[String]) -> Result<Self> {
        let mut fields = Self::default();
        for text in listed {
            let (name, mut boost) = match text.split_once('^') {
                Some((name, boost)) => (name, number(boost)?),
                None => (text.as_str(), 1.0),
            };
            if boost < 0.0 {
                return Err(Error::IllegalArgument(format!(
                    "negative [boost] are not allowed in [{clause}], use a value between 0 and 1 to deboost"
                )));
            }
            match fields.0.iter_mut().find(|(known, _)| known == name) {
                Some((known, before)) => {
                    if known == text {
                        boost *= *before;
                    }
                    *before = boost;
                }
                None => fields.0.push((name.to_owned(), boost)),
            }
        }
        Ok(fields)
    }

    /// Returns whether no field is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether all fields are meant.
    pub fn all(&self) -> bool {
        self.0.iter().any(|(name, _)| name == "*")
    }
}

fn number(text: &str) -> Result<f32> {
    text.trim().parse().map_err(|_| json::not_a_number(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boosts_follow_names() {
        let fields = |listed: &[&str]| {
            let listed: Vec<String> = listed.iter().map(|text| (*text).to_owned()).collect();
            FieldBoosts::new("query_string", &listed).map(|fields| fields.0)
        };
        assert_eq!(fields(&["a", "b.*^2.5"]).unwrap(), [("a".to_owned(), 1.0), ("b.*".to_owned(), 2.5)]);
        assert_eq!(fields(&["a^3", "a"]).unwrap(), [("a".to_owned(), 3.0)]);
        assert_eq!(fields(&["a^3", "a^2"]).unwrap(), [("a".to_owned(), 2.0)]);
        assert!(fields(&["a^x"]).is_err() && fields(&["a^-1"]).is_err());
    }
}
