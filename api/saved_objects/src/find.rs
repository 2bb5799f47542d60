//! `_find`: objects by type, words and what they refer to, a page at a time.

use serde::Deserialize;
use serde_json::{Value, json};

use super::object::{self, Kind, Version};
use super::store::{SavedObjectStore, Source};
use crate::error::{Error, invalid};
use crate::http::json as text;
use crate::http::{Params, Request, Response, offload};

/// Objects of a page where nothing else is said.
const PER_PAGE: i64 = 20;
/// Furthest object that a page reaches, and so the largest page.
const MAX_REACHED: i64 = 10_000;
/// Most fields, types and references that a request names.
const MAX_NAMES: usize = 100;
/// Members of objects that are answered whatever attributes are wanted.
const ALWAYS: [&str; 9] = [
    "id",
    "type",
    "updated_at",
    "references",
    "migrationVersion",
    "coreMigrationVersion",
    "typeMigrationVersion",
    "originId",
    "namespaces",
];

/// Results of a search.
#[derive(Debug, Deserialize)]
struct FindResults<'a> {
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Debug, Deserialize)]
struct Hits<'a> {
    total: Total,
    #[serde(borrow)]
    hits: Vec<Hit<'a>>,
}

#[derive(Debug, Deserialize)]
struct Total {
    value: u64,
}

#[derive(Debug, Deserialize)]
struct Hit<'a> {
    #[serde(borrow, rename = "_source")]
    source: Source<'a>,
    #[serde(rename = "_seq_no")]
    seq_no: u64,
    #[serde(rename = "_primary_term")]
    primary_term: u64,
    #[serde(rename = "_score")]
    score: Option<f64>,
}

/// A page of the objects that are searched for.
#[derive(Debug)]
struct FindPage {
    page: i64,
    per_page: i64,
    query: Value,
    sort: Value,
    /// Attributes that are answered; `None` for all.
    fields: Option<Vec<String>>,
}

/// Answers `_find`.
pub async fn run(saved: &SavedObjectStore, request: &mut Request) -> Result<Response, Error> {
    let wanted = FindPage::take(&mut request.params)?;
    request.finish()?;
    let bytes = saved.search(wanted.body()).await?;
    request.allowance.take(bytes.len().saturating_mul(2))?;
    let found = offload(bytes.len(), || serde_json::from_slice::<FindResults<'_>>(&bytes));
    let found = found.map_err(|error| Error::concealed(500, "illegal_state_exception", &error))?;
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(b"{\"page\":");
    text::push_u64(&mut out, wanted.page.unsigned_abs());
    out.extend_from_slice(b",\"per_page\":");
    text::push_u64(&mut out, wanted.per_page.unsigned_abs());
    out.extend_from_slice(b",\"total\":");
    text::push_u64(&mut out, found.hits.total.value);
    out.extend_from_slice(b",\"saved_objects\":[");
    for (number, hit) in found.hits.hits.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let version = Version { seq_no: hit.seq_no, primary_term: hit.primary_term };
        object::write(hit.source.object.get().as_bytes(), version, &mut out);
        out.pop();
        out.extend_from_slice(b",\"score\":");
        out.extend_from_slice(json!(hit.score.unwrap_or(0.0)).to_string().as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    Ok(Response::raw_json(200, out))
}

impl FindPage {
    fn take(params: &mut Params) -> Result<Self, Error> {
        let page = whole(params, "page", 1)?;
        let per_page = whole(params, "per_page", PER_PAGE)?;
        if page < 1 {
            return Err(invalid("page", format_args!("must be 1 or greater, not [{page}]")));
        }
        if !(0..=MAX_REACHED).contains(&per_page) {
            return Err(invalid(
                "per_page",
                format_args!("must be from 0 to {MAX_REACHED}, not [{per_page}]"),
            ));
        }
        if page.saturating_mul(per_page) > MAX_REACHED {
            return Err(invalid(
                "page",
                format_args!("[{page}] of [{per_page}] objects is beyond object [{MAX_REACHED}]"),
            ));
        }
        let kinds = names(params, "type")?;
        if kinds.is_empty() {
            return Err(invalid("type", "is required"));
        }
        let kinds = kinds.iter().map(|name| Kind::parse(name)).collect::<Result<Vec<_>, _>>()?;
        let kinds: Vec<&str> = kinds.into_iter().map(Kind::name).collect();
        let mut filters = vec![json!({ "terms": { "object.type": kinds } })];
        filters.extend(take_reference(params)?);
        let fields = Some(names(params, "fields")?).filter(|fields| !fields.is_empty());
        let words = take_search(params)?;
        let sort = take_sort(params, words.is_some())?;
        let query = match words {
            Some(words) => json!({ "bool": { "must": [words], "filter": filters } }),
            None => json!({ "bool": { "filter": filters } }),
        };
        Ok(Self { page, per_page, query, sort, fields })
    }

    fn body(&self) -> Value {
        let source = match &self.fields {
            None => json!(["object"]),
            Some(fields) => {
                let always = ALWAYS.map(|name| format!("object.{name}"));
                let attributes = fields.iter().map(|name| format!("object.attributes.{name}"));
                json!(always.into_iter().chain(attributes).collect::<Vec<_>>())
            }
        };
        json!({
            "from": (self.page - 1) * self.per_page,
            "size": self.per_page,
            "query": self.query,
            "sort": self.sort,
            "_source": source,
            "seq_no_primary_term": true,
            "track_total_hits": true,
            "track_scores": true,
        })
    }
}

fn whole(params: &mut Params, name: &str, default: i64) -> Result<i64, Error> {
    Ok(params.take_int(name)?.unwrap_or(default))
}

/// Takes names, as a list or in a parameter each.
fn names(params: &mut Params, name: &str) -> Result<Vec<String>, Error> {
    let names = params.take_lists(name);
    if names.len() > MAX_NAMES {
        return Err(invalid(name, format_args!("has more than [{MAX_NAMES}] elements")));
    }
    Ok(names)
}

/// Makes the query of words, if there are any.
fn take_search(params: &mut Params) -> Result<Option<Value>, Error> {
    let search = params.take("search").filter(|search| !search.trim().is_empty());
    let operator = match params.take("default_search_operator").as_deref() {
        None | Some("OR" | "or") => "or",
        Some("AND" | "and") => "and",
        Some(other) => {
            return Err(invalid("default_search_operator", format_args!("must be OR or AND, not [{other}]")));
        }
    };
    let mut fields = Vec::new();
    for field in names(params, "search_fields")? {
        let (name, weight) = match field.split_once('^') {
            Some((name, weight)) => (name, Some(weight)),
            None => (field.as_str(), None),
        };
        let weight = weight.map(|weight| {
            let number = weight.parse::<f32>().ok().filter(|number| *number >= 0.0 && number.is_finite());
            number.ok_or_else(|| invalid("search_fields", format_args!("[{weight}] is not a weight")))
        });
        let path = match name {
            "title" | "description" => name,
            _ => {
                let reason = format_args!("may name [title] and [description], not [{name}]");
                return Err(invalid("search_fields", reason));
            }
        };
        fields.push(match weight.transpose()? {
            Some(weight) => format!("{path}^{weight}"),
            None => path.to_owned(),
        });
    }
    if fields.is_empty() {
        fields = vec!["title".to_owned(), "description".to_owned()];
    }
    Ok(search.map(|search| {
        json!({ "simple_query_string": { "query": search, "fields": fields, "default_operator": operator } })
    }))
}

/// Takes what objects are to refer to: one `{"type", "id"}` or an array of them, of which one is enough.
fn take_reference(params: &mut Params) -> Result<Option<Value>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Target {
        #[serde(rename = "type")]
        kind: String,
        id: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Targets {
        One(Target),
        Any(Vec<Target>),
    }
    let Some(given) = params.take("has_reference") else { return Ok(None) };
    let targets = match serde_json::from_str(&given) {
        Ok(Targets::One(target)) => vec![target],
        Ok(Targets::Any(targets)) if (1..=MAX_NAMES).contains(&targets.len()) => targets,
        _ => {
            return Err(invalid(
                "has_reference",
                "must be JSON such as {\"type\":\"index-pattern\",\"id\":\"logs\"}",
            ));
        }
    };
    let refers = targets.into_iter().map(|Target { kind, id }| {
        let both = json!([{ "term": { "object.references.type": kind } }, { "term": { "object.references.id": id } }]);
        json!({ "nested": { "path": "object.references", "query": { "bool": { "filter": both } } } })
    });
    let refers: Vec<Value> = refers.collect();
    Ok(Some(json!({ "bool": { "should": refers, "minimum_should_match": 1 } })))
}

/// Makes the order: by a field, else by score where words are searched for, else the last changed first.
fn take_sort(params: &mut Params, searches: bool) -> Result<Value, Error> {
    let order = params.take("sort_order");
    let order = match order.as_deref() {
        None | Some("asc" | "desc") => order.as_deref(),
        Some(other) => return Err(invalid("sort_order", format_args!("must be asc or desc, not [{other}]"))),
    };
    let (field, usual) = match params.take("sort_field").as_deref() {
        Some("title") => ("title.keyword", "asc"),
        Some("description") => ("description.keyword", "asc"),
        Some("type") => ("object.type", "asc"),
        Some("id") => ("object.id", "asc"),
        Some("updated_at") => ("object.updated_at", "asc"),
        Some("_score") => ("_score", "desc"),
        None if searches => ("_score", "desc"),
        None => ("object.updated_at", "desc"),
        Some(other) => {
            let reason = format_args!(
                "must be one of [title, description, type, id, updated_at, _score], not [{other}]"
            );
            return Err(invalid("sort_field", reason));
        }
    };
    // What is equal keeps its order from page to page.
    Ok(json!([{ field: order.unwrap_or(usual) }, { "object.id": "asc" }, { "object.type": "asc" }]))
}
