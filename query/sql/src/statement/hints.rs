//! Hints in comments (`/*! DOCS_WITH_AGGREGATION(10) */`), as OpenSearch's first engine has them.
//!
//! A hint changes the search that a statement is rendered as. Other hints, such as those on the way to join, are without effect.

use serde_json::{Value, json};
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::renderer::RenderedSearch;

/// Most hints of a statement.
const MAX_HINTS: usize = 64;

/// The hints of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hints(Vec<Hint>);

#[derive(Clone, Debug, PartialEq)]
struct Hint {
    /// In lower case.
    name: String,
    arguments: Vec<String>,
}

impl Hints {
    /// Reads the hints among the tokens of a statement.
    pub(super) fn new(tokens: &[TokenWithSpan]) -> Self {
        let comments = tokens.iter().filter_map(|token| match &token.token {
            Token::Whitespace(Whitespace::MultiLineComment(text)) => text.trim().strip_prefix('!'),
            _ => None,
        });
        Self(comments.map(Hint::new).take(MAX_HINTS).collect())
    }

    /// Returns how many rows of a side of a join are read: `JOIN_TABLES_LIMIT(10, null)`.
    pub(crate) fn join_limit(&self, side: usize) -> Option<usize> {
        let limits = self.0.iter().find(|hint| hint.name == "join_tables_limit")?;
        limits.arguments.get(side)?.parse().ok()
    }

    /// Applies the hints to a search.
    pub(crate) fn apply(&self, search: &mut RenderedSearch) {
        for Hint { name, arguments } in &self.0 {
            let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
            let body = &mut search.body;
            match name.as_str() {
                // Groups come without documents.
                "docs_with_aggregation" if search.is_grouped => {
                    body["size"] = json!(number(0));
                    body["from"] = json!(number(1).unwrap_or(0));
                    if let Some(members) = body.as_object_mut() {
                        members.remove("stored_fields");
                        members.remove("_source");
                    }
                }
                "highlight" => {
                    if let Some((field, options)) = arguments.split_first() {
                        body["highlight"]["fields"][field.as_str()] = highlight(options);
                    }
                }
                "collapse" | "post_filter" => {
                    let text = arguments.join(",");
                    if let Ok(value) = serde_json::from_str::<Value>(text.trim_matches('\'')) {
                        body[name.as_str()] = value;
                    }
                }
                _ => {}
            }
        }
    }
}

impl Hint {
    fn new(text: &str) -> Self {
        let text = text.trim();
        let (name, rest) = text.split_once('(').unwrap_or((text, ""));
        let inner = rest.rsplit_once(')').map_or(rest, |(inner, _)| inner);
        let arguments = match inner.trim().is_empty() {
            true => Vec::new(),
            false => inner.split(',').map(|argument| argument.trim().to_owned()).collect(),
        };
        Self { name: name.trim().to_ascii_lowercase(), arguments }
    }
}

/// Reads options of a highlight: `name : value`.
fn highlight(options: &[String]) -> Value {
    let mut members = serde_json::Map::new();
    for option in options {
        let Some((name, value)) = option.split_once(':') else { continue };
        let value = value.trim();
        let value = match (name.trim(), value.trim_matches(['\'', '[', ']'])) {
            (tags @ ("pre_tags" | "post_tags"), tag) => {
                members.insert(tags.to_owned(), json!([tag]));
                continue;
            }
            (_, plain) => serde_json::from_str(value).unwrap_or_else(|_| json!(plain)),
        };
        members.insert(name.trim().to_owned(), value);
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_names_with_arguments() {
        let hint = |name: &str, arguments: &[&str]| Hint {
            name: name.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        assert_eq!(Hint::new(" USE_NL"), hint("use_nl", &[]));
        assert_eq!(Hint::new("DOCS_WITH_AGGREGATION(10, 5) "), hint("docs_with_aggregation", &["10", "5"]));
        assert_eq!(Hint::new("JOIN_TABLES_LIMIT(2,null"), hint("join_tables_limit", &["2", "null"]));
    }

    #[test]
    fn documents_come_with_groups_where_a_hint_asks() {
        let body = json!({"from": 0, "size": 0, "aggregations": {}, "stored_fields": "a"});
        let mut search = RenderedSearch { index: "i".to_owned(), body, is_grouped: true };
        Hints(vec![Hint::new("DOCS_WITH_AGGREGATION(10)")]).apply(&mut search);
        assert_eq!(search.body, json!({"from": 0, "size": 10, "aggregations": {}}));
        search.is_grouped = false;
        Hints(vec![Hint::new("COLLAPSE('{\"field\":\"a\"}')")]).apply(&mut search);
        assert_eq!(search.body["collapse"], json!({"field": "a"}));
    }
}
