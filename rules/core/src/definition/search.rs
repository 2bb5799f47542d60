//! `search.request`: the search body, whose `query` is the rule's filter.

use serde_json::{Map, Value, json};

use super::options::{self, MAX_NAME, Options, kind};
use crate::error::{Error, Result};

/// Bytes of a search body.
const MAX_BODY: usize = 1 << 20;
/// Members of a body that say how hits are answered: a rule has none of it.
const ANSWER: [&str; 20] = [
    "size",
    "from",
    "sort",
    "_source",
    "track_total_hits",
    "track_scores",
    "version",
    "seq_no_primary_term",
    "stored_fields",
    "docvalue_fields",
    "fields",
    "highlight",
    "timeout",
    "explain",
    "profile",
    "stats",
    "preference",
    "script_fields",
    "indices_boost",
    "include_named_queries_score",
];

/// Takes `search.request`, in whichever of its forms: the dotted names, or objects in one another.
pub(super) fn take(options: &mut Options) -> Result<(Option<String>, Vec<String>, Option<Value>)> {
    let mut request = match options.take("search.request") {
        None => Map::new(),
        Some(value) => object("search.request", value)?,
    };
    if let Some(value) = options.take("search") {
        let mut search = object("search", value)?;
        if let Some(inner) = search.shift_remove("request") {
            merge(&mut request, object("search.request", inner)?)?;
        }
        for (name, value) in search {
            let Some(member) = name.strip_prefix("request.") else {
                return Err(Error::invalid(
                    format!("search.{name}"),
                    "unknown: only [search.request] is there",
                ));
            };
            merge(&mut request, Map::from_iter([(member.to_owned(), value)]))?;
        }
    }
    for member in ["search_type", "index", "body"] {
        if let Some(value) = options.take(&format!("search.request.{member}")) {
            merge(&mut request, Map::from_iter([(member.to_owned(), value)]))?;
        }
    }
    let mut request = Options(request);
    let search_type = request.text("search_type", MAX_NAME)?;
    let index = request.texts("index", 100, MAX_NAME)?.unwrap_or_default();
    let body = request.take("body").map(|body| checked(&body).map(|()| body)).transpose()?;
    match request.0.iter().find(|(_, value)| !value.is_null()) {
        None => Ok((search_type, index, body)),
        Some((name, _)) => {
            let reason = "unknown: search_type, index and body are there";
            Err(Error::invalid(format!("search.request.{name}"), reason))
        }
    }
}

fn object(name: &str, value: Value) -> Result<Map<String, Value>> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(Error::invalid(name, format!("is {}, an object is expected", kind(&other)))),
    }
}

fn merge(request: &mut Map<String, Value>, members: Map<String, Value>) -> Result<()> {
    for (name, value) in members {
        if request.get(&name).is_some_and(|there| *there != value) {
            return Err(Error::invalid(format!("search.request.{name}"), "is there twice, with two values"));
        }
        request.insert(name, value);
    }
    Ok(())
}

/// Checks what can be told of a body without a mapping; its query is compiled by who matches.
fn checked(body: &Value) -> Result<()> {
    const NAME: &str = "search.request.body";
    let Value::Object(members) = body else {
        return Err(Error::invalid(NAME, format!("is {}, an object is expected", kind(body))));
    };
    let size = body.to_string().len();
    if size > MAX_BODY {
        return Err(Error::TooLarge { field: NAME.to_owned(), size, unit: "bytes", bound: MAX_BODY });
    }
    for (member, value) in members {
        if member == "query" {
            if !value.is_object() {
                let reason = format!("is {}, an object is expected", kind(value));
                return Err(Error::invalid(format!("{NAME}.query"), reason));
            }
        } else if !ANSWER.contains(&member.as_str()) {
            let reason = "a rule evaluates [query] for each event by itself: what needs other documents or changes \
                          the hits has no meaning there";
            return Err(Error::invalid(format!("{NAME}.{}", options::short(member)), reason));
        }
    }
    Ok(())
}

/// Makes a search body of ElastAlert's list of filters: all of them must match.
pub(super) fn of_filters(filters: Value) -> Result<Value> {
    let Value::Array(filters) = filters else {
        return Err(Error::invalid(
            "filter",
            format!("is {}, a list of filters is expected", kind(&filters)),
        ));
    };
    let mut clauses = Vec::new();
    for filter in filters {
        // An old way of writing them has each in a `query` of its own.
        let clause = match filter {
            Value::Object(mut members) if members.len() == 1 && members.contains_key("query") => {
                members.shift_remove("query").unwrap_or_default()
            }
            other => other,
        };
        if !clause.is_object() {
            return Err(Error::invalid(
                "filter",
                format!("has {} in it, queries are expected", kind(&clause)),
            ));
        }
        clauses.push(clause);
    }
    let query =
        if clauses.is_empty() { json!({"match_all": {}}) } else { json!({"bool": {"filter": clauses}}) };
    let body = json!({"query": query});
    checked(&body)?;
    Ok(body)
}
