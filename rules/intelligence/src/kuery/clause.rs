//! The clauses of the search API that kuery stands for.

use std::fmt;

use serde_json::{Value, json};

use super::MAX_DEPTH;
use super::token::{Literal, short};

/// A query, with the levels of clauses in it. A search takes 64, some of which stand around this one.
#[derive(Debug)]
pub(super) struct Clause {
    query: Value,
    levels: usize,
}

impl Clause {
    pub(super) fn leaf(query: Value) -> Self {
        Self { query, levels: 1 }
    }

    /// Any of several; one is itself.
    pub(super) fn any(terms: Vec<Self>) -> Result<Self, String> {
        Self::joined(terms, |terms| json!({"bool": {"should": terms, "minimum_should_match": 1}}))
    }

    /// All of several; one is itself.
    pub(super) fn all(terms: Vec<Self>) -> Result<Self, String> {
        Self::joined(terms, |terms| json!({"bool": {"filter": terms}}))
    }

    pub(super) fn negated(self) -> Result<Self, String> {
        Self::over(json!({"bool": {"must_not": [self.query]}}), self.levels)
    }

    /// Asks it of the elements of a nested object.
    pub(super) fn of_elements(self, path: &str) -> Result<Self, String> {
        let query = json!({"nested": {"path": path, "query": self.query, "score_mode": "none"}});
        Self::over(query, self.levels)
    }

    pub(super) fn into_query(self) -> Value {
        self.query
    }

    fn joined(mut terms: Vec<Self>, with: fn(Vec<Value>) -> Value) -> Result<Self, String> {
        match terms.pop() {
            Some(only) if terms.is_empty() => return Ok(only),
            last => terms.extend(last),
        }
        let levels = terms.iter().map(|term| term.levels).max().unwrap_or_default();
        Self::over(with(terms.into_iter().map(Self::into_query).collect()), levels)
    }

    /// Puts a clause above what has so many levels.
    fn over(query: Value, levels: usize) -> Result<Self, String> {
        match levels < MAX_DEPTH {
            true => Ok(Self { query, levels: levels + 1 }),
            false => Err(too_deep()),
        }
    }
}

/// The error of what is nested too deep.
pub(super) fn too_deep() -> String {
    format!("is nested more than {MAX_DEPTH} deep")
}

/// Field of a condition: one field, or all whose names fit a pattern, by the mapping of each index.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    /// `true` if the name is a pattern.
    pattern: bool,
    /// `true` if it is one that all names fit, within the object of a path.
    every: bool,
}

impl Field {
    /// Names a field, behind the path of a nested object where its elements are asked.
    ///
    /// # Errors
    /// A pattern that cannot be written in a search: every star means something there, and `^` begins a boost.
    pub(super) fn new(literal: &Literal, path: Option<&str>) -> Result<Self, String> {
        let name = match path {
            Some(path) => format!("{path}.{literal}"),
            None => literal.to_string(),
        };
        let pattern = literal.is_pattern();
        let odd = |part: &str| part.contains(['*', '^']);
        if pattern && (path.is_some_and(odd) || literal.parts().iter().any(|part| odd(part))) {
            let name = short(&name);
            return Err(format!(
                "names fields by a pattern, [{name}], in which [*] or [^] stands for itself, which is not supported"
            ));
        }
        Ok(Self { name, pattern, every: literal.is_star() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Asks for a value. Of the fields of a pattern it is asked leniently: most do not take every value.
    ///
    /// # Errors
    /// A pattern of a field whose name a search would read as one with a boost.
    pub(super) fn is(&self, value: &Literal) -> Result<Value, String> {
        let name = self.name.as_str();
        if value.is_star() {
            return Ok(match self.every {
                true => json!({"match_all": {}}),
                false => json!({"exists": {"field": name}}),
            });
        }
        Ok(match (self.pattern, value.is_pattern()) {
            (false, true) if name.contains('^') => {
                return Err(format!(
                    "asks {self} for a pattern, which is not supported where a name has [^]"
                ));
            }
            (false, true) => json!({"query_string": {"fields": [name], "query": query_string(value)}}),
            (true, true) => {
                json!({"query_string": {"fields": [name], "query": query_string(value), "lenient": true}})
            }
            (false, false) if value.quoted => json!({"match_phrase": {name: value.to_string()}}),
            (false, false) => json!({"match": {name: value.to_string()}}),
            (true, false) => {
                let text = value.to_string();
                json!({"multi_match": {"fields": [name], "type": kind(value), "query": text, "lenient": true}})
            }
        })
    }

    /// Compares with a value, `of` as ranges name it.
    ///
    /// # Errors
    /// Values that fields of a pattern cannot be compared with.
    pub(super) fn compared(&self, of: &str, value: &str) -> Result<Value, String> {
        let name = self.name.as_str();
        if !self.pattern {
            return Ok(json!({"range": {name: {of: value}}}));
        }
        // A bound that is a star is none there, and quotes around nothing are two letters.
        if matches!(value, "" | "*") {
            return Err(format!(
                "compares fields of the pattern {self} with [{value}], which is not supported"
            ));
        }
        let bound = value.replace('\\', r"\\").replace('"', "\\\"");
        let range = match of {
            "gt" => format!("{{\"{bound}\" TO *}}"),
            "gte" => format!("[\"{bound}\" TO *}}"),
            "lt" => format!("{{* TO \"{bound}\"}}"),
            _ => format!("{{* TO \"{bound}\"]"),
        };
        Ok(json!({"query_string": {"fields": [name], "query": range, "lenient": true}}))
    }
}

impl fmt::Display for Field {
    /// Writes it as errors name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", short(&self.name))
    }
}

/// Asks for a value of any field.
pub(super) fn anywhere(value: &Literal) -> Value {
    match value.is_pattern() {
        true => json!({"query_string": {"query": query_string(value)}}),
        false => {
            json!({"multi_match": {"type": kind(value), "query": value.to_string(), "lenient": true}})
        }
    }
}

/// Returns the type of `multi_match` query for a value.
fn kind(value: &Literal) -> &'static str {
    if value.quoted { "phrase" } else { "best_fields" }
}

/// Writes a pattern as query strings have it.
fn query_string(value: &Literal) -> String {
    let parts: Vec<String> = value.parts().iter().map(|part| escaped(part)).collect();
    parts.join("*")
}

/// Takes from all characters what they mean in a query string.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for one in text.chars() {
        // These cannot be escaped there.
        if matches!(one, '<' | '>') {
            continue;
        }
        if one.is_whitespace() || "+-=&|!(){}[]^\"~*?:\\/".contains(one) {
            escaped.push('\\');
        }
        escaped.push(one);
    }
    escaped
}
