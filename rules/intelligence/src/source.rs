//! Source of a rule: a saved search of the console with its index pattern, as an expression, a time field and a query.

use std::sync::Arc;

use bytes::Bytes;
use millrace_engine::{Engine, Session};
use millrace_rules::hex;
use millrace_runtime::{Error as StorageError, Priority};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::kuery;
use crate::store::StoredRule;

/// Index of the console's objects.
const INDEX: &str = ".console";
/// Name of the reference from a saved search to its index pattern.
const REFERENCE: &str = "kibanaSavedObjectMeta.searchSourceJSON.index";
/// Longest search source of a rule, in bytes: it is copied into the rule's record.
const MAX_SOURCE_BYTES: usize = 64 << 10;
/// Filters of a saved search, at most.
const MAX_FILTERS: usize = 200;
/// The time field of a pattern that names none.
const TIME_FIELD: &str = "@timestamp";

/// Source that a rule reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    /// Indices.
    pub(crate) expression: String,
    /// The field that puts documents into buckets.
    pub(crate) time_field: String,
    /// Query that documents match.
    pub(crate) query: Value,
    /// The search source as it is saved.
    pub(crate) text: String,
    /// Stands for what is saved of all that: how it is understood may be another matter in another version.
    pub(crate) digest: String,
}

impl Source {
    /// Reads the saved search of a rule. It has to say what it said when the rule was saved: others may change it, who may not
    /// read what the rule's owner may.
    ///
    /// # Errors
    /// As [`Source::read`]; [`Error::Invalid`] of `search` where it says something else.
    pub(crate) async fn new(engine: &Arc<Engine>, kept: &StoredRule) -> Result<Self> {
        let id = kept.definition.search_id();
        let source = Self::read(engine, id).await?;
        if source.digest != kept.state.search_digest {
            let reason = format!(
                "saved search [{id}], or its index pattern, has changed since the rule was saved: look at it and save the rule \
                 again"
            );
            return Err(Error::invalid("search", reason));
        }
        Ok(source)
    }

    /// Reads a saved search by its id.
    ///
    /// # Errors
    /// [`Error::Invalid`] of `search`: it is not there, or has what is not understood; the store's.
    pub(crate) async fn read(engine: &Arc<Engine>, id: &str) -> Result<Self> {
        let wrong = |reason: String| Error::invalid("search", format!("saved search [{id}] {reason}"));
        let Some(stored) = object(engine, "search", id).await? else {
            return Err(Error::invalid("search", format!("there is no saved search [{id}]")));
        };
        // Saved objects may be of megabytes.
        let search = move || Ok(Search::parse(&stored));
        let search = engine.compute().run(Priority::Foreground, search).await?.map_err(wrong)?;
        let pattern_id = &search.pattern.id;
        let attributes =
            match (object(engine, "index-pattern", pattern_id).await?, search.pattern.may_be_name) {
                (Some(stored), _) => {
                    let pattern = move || Ok(Object::parse(&stored));
                    let pattern = engine.compute().run(Priority::Foreground, pattern).await?;
                    let wrong =
                        |reason| wrong(format!("is over index pattern [{pattern_id}], which {reason}"));
                    pattern.map_err(wrong)?.attributes
                }
                (None, true) => Attributes { title: pattern_id.clone(), ..Attributes::default() },
                (None, false) => {
                    return Err(wrong(format!("is over index pattern [{pattern_id}], which is not there")));
                }
            };
        let Attributes { title, time_field, .. } = attributes;
        let expression = title.trim();
        if expression.is_empty() {
            return Err(wrong(format!("is over index pattern [{pattern_id}], which has no title")));
        }
        let time_field = time_field.filter(|field| !field.is_empty());
        let time_field = time_field.unwrap_or_else(|| TIME_FIELD.to_owned());
        let digest = digest_of(&json!([expression, time_field, search.saved]));
        let expression = expression.to_owned();
        Ok(Self { expression, time_field, query: search.query, text: search.text, digest })
    }
}

/// Returns a digest of a value as JSON.
pub(crate) fn digest_of(value: &impl Serialize) -> String {
    hex(digest(&SHA256, &serde_json::to_vec(value).unwrap_or_default()).as_ref())
}

/// Members of a saved object that are read; others are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    attributes: Attributes,
    references: Vec<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    title: String,
    #[serde(rename = "timeFieldName")]
    time_field: Option<String>,
    #[serde(rename = "kibanaSavedObjectMeta")]
    meta: Option<Meta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(rename = "searchSourceJSON")]
    search_source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    id: String,
}

impl Object {
    fn parse(stored: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Document {
            #[serde(default)]
            object: Object,
        }
        let document: Document =
            serde_json::from_slice(stored).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(document.object)
    }
}

/// A saved search.
#[derive(Debug)]
struct Search {
    text: String,
    pattern: PatternReference,
    query: Value,
    /// Parts that `query` is made of.
    saved: Value,
}

impl Search {
    fn parse(stored: &[u8]) -> Result<Self, String> {
        let Object { attributes, references } = Object::parse(stored)?;
        let text = attributes.meta.and_then(|meta| meta.search_source).ok_or("has no search source")?;
        if text.len() > MAX_SOURCE_BYTES {
            let there = text.len();
            return Err(format!(
                "has a search source of {there} bytes; {MAX_SOURCE_BYTES} are allowed for AI rules"
            ));
        }
        let source: Value =
            serde_json::from_str(&text).map_err(|error| format!("has no search source in JSON: {error}"))?;
        let pattern = pattern_of(&source, &references).ok_or("names no index pattern")?;
        let saved = json!([source["query"], source["filter"]]);
        Ok(Self { query: query(&source)?, text, pattern, saved })
    }
}

async fn object(engine: &Arc<Engine>, kind: &str, id: &str) -> Result<Option<Bytes>> {
    match Session::system(engine).get(INDEX, &format!("{kind}:{id}"), None, true).await {
        Err(StorageError::IndexNotFound { .. }) => Ok(None),
        found => Ok(found?.map(|stored| stored.source)),
    }
}

/// The index pattern of a saved search.
#[derive(Debug, PartialEq, Eq)]
struct PatternReference {
    id: String,
    /// True if it is the name of indices where there is no such index pattern.
    may_be_name: bool,
}

/// Finds the index pattern: said in the source, or by a reference that it names.
fn pattern_of(source: &Value, references: &[Reference]) -> Option<PatternReference> {
    if let Some(id) = source["index"].as_str() {
        return Some(PatternReference { id: id.to_owned(), may_be_name: true });
    }
    let name = source["indexRefName"].as_str().unwrap_or(REFERENCE);
    let mut references = references.iter();
    let reference =
        references.find(|reference| reference.name == name && reference.kind == "index-pattern")?;
    Some(PatternReference { id: reference.id.clone(), may_be_name: false })
}

/// Makes the query of a search source: the typed text, and the filters beside it.
fn query(source: &Value) -> Result<Value, String> {
    let (mut filter, mut must_not) = (Vec::new(), Vec::new());
    match &source["query"] {
        Value::Null => {}
        typed => filter.extend(self::typed(typed)?),
    }
    let filters = match &source["filter"] {
        Value::Null => &[][..],
        Value::Array(filters) if filters.len() <= MAX_FILTERS => filters,
        Value::Array(_) => return Err(format!("has more than {MAX_FILTERS} filters")),
        _ => return Err("has a filter that is no list".to_owned()),
    };
    for (at, one) in filters.iter().enumerate() {
        let members = one.as_object().ok_or_else(|| format!("has filter [{at}], which is no object"))?;
        let meta = &one["meta"];
        if meta["disabled"] == true {
            continue;
        }
        let condition = condition(members).ok_or_else(|| format!("has filter [{at}] without a query"))?;
        if meta["negate"] == true { must_not.push(condition) } else { filter.push(condition) }
    }
    Ok(json!({"bool": {"filter": filter, "must_not": must_not}}))
}

/// The query of a filter: its member `query`, or what it has beside what the console keeps there.
fn condition(members: &Map<String, Value>) -> Option<Value> {
    if let Some(query) = members.get("query").filter(|query| query.is_object()) {
        return Some(query.clone());
    }
    let rest = members.iter().filter(|(name, _)| !matches!(name.as_str(), "meta" | "$state" | "query"));
    let rest: Map<String, Value> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    (rest.len() == 1).then_some(Value::Object(rest))
}

/// Parses typed query text, in the language that it names.
fn typed(query: &Value) -> Result<Option<Value>, String> {
    let language = query["language"].as_str().unwrap_or("lucene");
    let text = match &query["query"] {
        Value::String(text) => text.trim(),
        Value::Null => "",
        // Of old searches it is a query of the search API.
        Value::Object(_) if language == "lucene" => return Ok(Some(query["query"].clone())),
        _ => return Err("has a query that is no text".to_owned()),
    };
    if text.is_empty() || text == "*" {
        return Ok(None);
    }
    match language {
        "lucene" => Ok(Some(json!({"query_string": {"query": text, "analyze_wildcard": true}}))),
        "kuery" => {
            kuery::query(text).map(Some).map_err(|reason| format!("has a query in kuery that {reason}"))
        }
        other => Err(format!("has a query in language [{other}], which is not known: use lucene or kuery")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query_of(source: Value) -> Result<Value, String> {
        query(&source)
    }

    #[test]
    fn a_source_is_what_was_typed_and_its_filters() {
        let found = query_of(json!({
            "query": {"language": "lucene", "query": "status:500"},
            "filter": [
                {"meta": {"disabled": false, "negate": false, "key": "host"}, "query": {"match_phrase": {"host": "a"}}, "$state": {}},
                {"meta": {"negate": true}, "exists": {"field": "error"}},
                {"meta": {"disabled": true}, "query": {"match_all": {}}},
            ],
        }));
        assert_eq!(
            found.unwrap(),
            json!({"bool": {
                "filter": [
                    {"query_string": {"query": "status:500", "analyze_wildcard": true}},
                    {"match_phrase": {"host": "a"}},
                ],
                "must_not": [{"exists": {"field": "error"}}],
            }})
        );
        let nothing = json!({"bool": {"filter": [], "must_not": []}});
        for empty in [
            json!({}),
            json!({"query": {"language": "kuery", "query": " "}, "filter": []}),
            json!({"query": {"query": "*"}}),
        ] {
            assert_eq!(query_of(empty).unwrap(), nothing);
        }
        let old = query_of(json!({"query": {"query": {"match_all": {}}, "language": "lucene"}})).unwrap();
        assert_eq!(old["bool"]["filter"], json!([{"match_all": {}}]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (source, expected) in [
            (json!({"query": {"language": "ppl", "query": "x"}}), "language [ppl]"),
            (json!({"query": {"language": "kuery", "query": "a:("}}), "in kuery"),
            (json!({"query": {"language": "kuery", "query": 5}}), "no text"),
            (json!({"filter": {}}), "no list"),
            (json!({"filter": [5]}), "filter [0]"),
            (json!({"filter": [{"meta": {}}]}), "filter [0] without"),
            (json!({"filter": vec![json!({}); 201]}), "more than 200"),
        ] {
            let refused = query_of(source.clone()).unwrap_err();
            assert!(refused.contains(expected), "{source}: {refused}");
        }
    }

    #[test]
    fn the_pattern_is_named_or_referred_to() {
        let references = json!([{"name": REFERENCE, "type": "index-pattern", "id": "p"}]);
        let references: Vec<Reference> = serde_json::from_value(references).unwrap();
        let pattern = |id: &str, may_be_name| Some(PatternReference { id: id.to_owned(), may_be_name });
        assert_eq!(pattern_of(&json!({"indexRefName": REFERENCE}), &references), pattern("p", false));
        assert_eq!(pattern_of(&json!({"index": "q"}), &references), pattern("q", true));
        assert_eq!(pattern_of(&json!({}), &[]), None);
    }

    #[test]
    fn of_a_saved_object_the_search_alone_is_read() {
        let search_of = |source: String| {
            let attributes = json!({
                "title": "s", "columns": [[0, {"a": null}], 5], "kibanaSavedObjectMeta": {"searchSourceJSON": source},
            });
            let object = json!({"id": "s", "attributes": attributes, "references": [], "namespaces": ["x"]});
            Search::parse(json!({"title": "s", "object": object}).to_string().as_bytes())
        };
        let search = search_of(json!({"index": "p", "query": {"query": "a"}}).to_string()).unwrap();
        assert_eq!((search.pattern.id.as_str(), search.text.contains("index")), ("p", true));
        assert_eq!(search.saved, json!([{"query": "a"}, null]));
        let long = json!({"index": "p", "other": " ".repeat(MAX_SOURCE_BYTES)}).to_string();
        assert!(search_of(long).unwrap_err().contains("65536 are allowed"));
        assert!(search_of("{".to_owned()).unwrap_err().contains("in JSON"));
        assert!(Search::parse(b"{}").unwrap_err().contains("no search source"));
        assert!(Search::parse(br#"{"object": 5}"#).unwrap_err().contains("cannot be read"));
    }
}
