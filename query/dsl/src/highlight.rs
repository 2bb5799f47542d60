//! `highlight`: which fields are marked up, and how.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::json::{self, token};
use super::query::{self, Query};

/// Most fields and patterns of one `highlight`.
const MAX_FIELDS: usize = 1_024;

/// Members of `highlight` and of a field in it.
const KNOWN: &[&str] = &[
    "boundary_chars",
    "boundary_max_scan",
    "boundary_scanner",
    "boundary_scanner_locale",
    "force_source",
    "fragment_size",
    "fragmenter",
    "highlight_filter",
    "highlight_query",
    "max_analyzer_offset",
    "no_match_size",
    "number_of_fragments",
    "options",
    "order",
    "phrase_limit",
    "post_tags",
    "pre_tags",
    "require_field_match",
    "type",
];

/// Opening tags of the schema `styled`; only the first is ever used by the highlighters built here.
const STYLED: &str = "<em class=\"hlt1\">";

/// Highlights, field by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Highlight {
    /// Names or patterns, each with what holds for it.
    pub fields: Vec<(String, Options)>,
}

/// Ends of fragments, for the unified highlighter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scanner {
    Chars,
    Word,
    Sentence,
}

/// Highlighting options of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the highlighter.
    pub kind: String,
    /// Text before a match.
    pub pre_tag: String,
    /// Text behind it.
    pub post_tag: String,
    /// `true` if the best fragments come first.
    pub by_score: bool,
    /// Length of fragments, in UTF-16 code units.
    pub fragment_size: i32,
    /// Most fragments; with 0 the whole values are one.
    pub fragments: usize,
    /// `true` if only what the query asks of this field is marked.
    pub require_field_match: bool,
    /// Ends of fragments.
    pub scanner: Option<Scanner>,
    /// Fragmenter of the plain highlighter.
    pub fragmenter: Option<String>,
    /// Length of the text that a field without matches shows.
    pub no_match_size: i32,
    /// `true` if values come from the source though the field is stored.
    pub force_source: bool,
    /// Query whose matches are marked, in the place of the search's query.
    pub query: Option<Query>,
    /// `true` if text is escaped for HTML.
    pub html: bool,
    /// Offset at which analysis of a value stops, in place of the index's limit.
    pub max_analyzer_offset: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: "unified".to_owned(),
            pre_tag: "<em>".to_owned(),
            post_tag: "</em>".to_owned(),
            by_score: false,
            fragment_size: 100,
            fragments: 5,
            require_field_match: true,
            scanner: None,
            fragmenter: None,
            no_match_size: 0,
            force_source: false,
            query: None,
            html: false,
            max_analyzer_offset: None,
        }
    }
}

impl Highlight {
    /// Parses the value of `highlight`.
    pub fn parse(value: &Value) -> Result<Self> {
        let members = value
            .as_object()
            .ok_or_else(|| Error::Parsing(format!("Unknown key for a {} in [highlight].", token(value))))?;
        let mut shared = Options::default();
        let mut fields = None;
        let mut tags = Tags::default();
        for (key, value) in members {
            match key.as_str() {
                "fields" => fields = Some(value),
                "encoder" => shared.html = string("highlight", key, value)? == "html",
                "tags_schema" => match string("highlight", key, value)?.as_str() {
                    "default" => {
                        tags.set("<em>", "</em>");
                    }
                    "styled" => {
                        tags.set(STYLED, "</em>");
                    }
                    other => {
                        return Err(failed(
                            key,
                            Error::IllegalArgument(format!("Unknown tag schema [{other}]")),
                        ));
                    }
                },
                _ => shared.take("highlight", key, value, &mut tags)?,
            }
        }
        tags.into_options(&mut shared)?;
        let mut highlight = Self::default();
        match fields {
            None => {}
            Some(Value::Object(named)) => {
                for (name, value) in named {
                    highlight.field(name, value, &shared)?;
                }
            }
            Some(Value::Array(items)) => {
                for item in items {
                    let mut entries = item.as_object().map(Map::iter).into_iter().flatten();
                    match (entries.next(), entries.next()) {
                        (Some((name, value)), None) => highlight.field(name, value, &shared)?,
                        _ => {
                            return Err(json::content(
                                "[fields] can be a single object with any number of fields or an array where each entry is an object with a single field".to_owned(),
                            ));
                        }
                    }
                }
            }
            Some(other) => return Err(wrong_type("highlight", "fields", other)),
        }
        Ok(highlight)
    }

    fn field(&mut self, name: &str, value: &Value, shared: &Options) -> Result<()> {
        let members = value.as_object().ok_or_else(|| wrong_type("highlight_field", name, value))?;
        let mut options = shared.clone();
        let mut tags = Tags::default();
        for (key, value) in members {
            match key.as_str() {
                // These shape the fast vector highlighter only.
                "fragment_offset" => {
                    json::integer(value)?;
                }
                "matched_fields" => {
                    json::strings(value).ok_or_else(|| wrong_type("highlight_field", key, value))?;
                }
                _ => options.take("highlight_field", key, value, &mut tags)?,
            }
        }
        tags.into_options(&mut options)?;
        if self.fields.len() == MAX_FIELDS {
            return Err(Error::IllegalArgument(format!(
                "too many fields to highlight, at most {MAX_FIELDS} are allowed"
            )));
        }
        self.fields.push((name.to_owned(), options));
        Ok(())
    }
}

/// Tags as given: where the first are set, so must the second be.
#[derive(Default)]
struct Tags {
    pre: Option<String>,
    post: Option<String>,
}

impl Tags {
    fn set(&mut self, pre: &str, post: &str) {
        (self.pre, self.post) = (Some(pre.to_owned()), Some(post.to_owned()));
    }

    fn into_options(self, options: &mut Options) -> Result<()> {
        if self.pre.is_some() && self.post.is_none() {
            return Err(Error::Parsing("pre_tags are set but post_tags are not set".to_owned()));
        }
        if let Some(pre) = self.pre {
            options.pre_tag = pre;
        }
        if let Some(post) = self.post {
            options.post_tag = post;
        }
        Ok(())
    }
}

impl Options {
    fn take(&mut self, parser: &str, key: &str, value: &Value, tags: &mut Tags) -> Result<()> {
        match key {
            "type" => self.kind = string(parser, key, value)?,
            "pre_tags" => tags.pre = Some(first_tag(parser, key, value)?),
            "post_tags" => tags.post = Some(first_tag(parser, key, value)?),
            "order" => self.by_score = string(parser, key, value)?.eq_ignore_ascii_case("score"),
            "fragment_size" => self.fragment_size = int(parser, key, value)?,
            "number_of_fragments" => {
                let number = int(parser, key, value)?;
                self.fragments = usize::try_from(number).map_err(|_| {
                    Error::IllegalArgument(format!(
                        "[number_of_fragments] must not be negative, found [{number}]"
                    ))
                })?;
            }
            "require_field_match" => self.require_field_match = boolean(parser, key, value)?,
            "boundary_scanner" => {
                let name = string(parser, key, value)?.to_uppercase();
                self.scanner = Some(match name.as_str() {
                    "CHARS" => Scanner::Chars,
                    "WORD" => Scanner::Word,
                    "SENTENCE" => Scanner::Sentence,
                    _ => {
                        return Err(failed(
                            key,
                            Error::IllegalArgument(format!(
                                "No enum constant org.opensearch.search.fetch.subphase.highlight.HighlightBuilder.BoundaryScannerType.{name}"
                            )),
                        ));
                    }
                });
            }
            "fragmenter" => self.fragmenter = Some(string(parser, key, value)?),
            "no_match_size" => self.no_match_size = int(parser, key, value)?,
            "force_source" => self.force_source = boolean(parser, key, value)?,
            "highlight_query" => self.query = Some(query::parse(value)?),
            "max_analyzer_offset" => {
                self.max_analyzer_offset = Some(int(parser, key, value)?).filter(|n| *n > 0).map(i64::from);
            }
            // Boundaries of words and sentences are the same in all locales known; the rest is said to
            // the fast vector highlighter or to plugins.
            "boundary_scanner_locale" | "boundary_chars" => {
                string(parser, key, value)?;
            }
            "boundary_max_scan" | "phrase_limit" => {
                int(parser, key, value)?;
            }
            "highlight_filter" => {
                boolean(parser, key, value)?;
            }
            "options" if value.is_object() => {}
            "options" => return Err(wrong_type(parser, key, value)),
            _ => {
                return Err(json::content(format!(
                    "[{parser}] unknown field [{key}]{}",
                    json::did_you_mean(key, KNOWN)
                )));
            }
        }
        Ok(())
    }
}

fn first_tag(parser: &str, key: &str, value: &Value) -> Result<String> {
    let tags = json::strings(value).ok_or_else(|| wrong_type(parser, key, value))?;
    tags.into_iter()
        .next()
        .ok_or_else(|| Error::IllegalArgument(format!("[{key}] must name at least one tag")))
}

fn string(parser: &str, key: &str, value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong_type(parser, key, other)),
    }
}

fn int(parser: &str, key: &str, value: &Value) -> Result<i32> {
    if !matches!(value, Value::Number(_) | Value::String(_)) {
        return Err(wrong_type(parser, key, value));
    }
    let number = json::integer(value).map_err(|error| failed(key, error))?;
    i32::try_from(number).map_err(|_| {
        failed(key, Error::IllegalArgument(format!("Value [{number}] is out of range for an integer")))
    })
}

fn boolean(parser: &str, key: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(_) | Value::String(_) => json::boolean(value).map_err(|error| failed(key, error)),
        other => Err(wrong_type(parser, key, other)),
    }
}

fn wrong_type(parser: &str, key: &str, value: &Value) -> Error {
    json::content(format!("[{parser}] {key} doesn't support values of type: {}", token(value)))
}

fn failed(key: &str, cause: Error) -> Error {
    json::content(format!("[highlight] failed to parse field [{key}]: {cause}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_inherit_what_is_said_for_all() {
        let highlight = Highlight::parse(&json!({
            "number_of_fragments": 0, "pre_tags": ["<b>"], "post_tags": "</b>",
            "fields": [{"a": {"fragment_size": 10}}, {"b*": {"tags_schema": "x"}}]
        }));
        insta::assert_snapshot!(highlight.unwrap_err(), @"[highlight_field] unknown field [tags_schema]");
        let highlight = Highlight::parse(&json!({
            "number_of_fragments": 0, "pre_tags": ["<b>"], "post_tags": "</b>",
            "fields": {"a": {"fragment_size": 10}, "b*": {"pre_tags": "(", "post_tags": ")"}}
        }));
        let fields = highlight.unwrap().fields;
        assert_eq!((fields[0].1.fragments, fields[0].1.fragment_size), (0, 10));
        assert_eq!((fields[0].1.pre_tag.as_str(), fields[1].1.pre_tag.as_str()), ("<b>", "("));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let refused = |value| Highlight::parse(&value).unwrap_err().to_string();
        let texts = [
            refused(json!({"phrase_limits": 1})),
            refused(json!({"pre_tags": "<b>"})),
            refused(json!({"fields": "a"})),
            refused(json!({"boundary_scanner": "page"})),
            refused(json!({"number_of_fragments": -1})),
            refused(json!({"fields": {"a": 1}})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        [highlight] unknown field [phrase_limits] did you mean [phrase_limit]?
        pre_tags are set but post_tags are not set
        [highlight] fields doesn't support values of type: VALUE_STRING
        [highlight] failed to parse field [boundary_scanner]: No enum constant org.opensearch.search.fetch.subphase.highlight.HighlightBuilder.BoundaryScannerType.PAGE
        [number_of_fragments] must not be negative, found [-1]
        [highlight_field] a doesn't support values of type: VALUE_NUMBER
        ");
    }
}
