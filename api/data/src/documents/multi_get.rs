//! `_mget`: many documents by id, each with its own options and its own failure.

use futures::{StreamExt, TryStreamExt};
use millrace_catalog::access::Action;
use serde_json::{Map, Value};

use crate::Api;
use crate::documents::answer::push_address;
use crate::documents::get::{GetParams, push_found, read};
use crate::documents::options;
use crate::documents::source::SourceFilter;
use crate::documents::stored::StoredFields;
use crate::documents::target::Target;
use crate::error::Error;
use crate::http::json::{push_str, token};
use crate::http::{MemoryAllowance, Request, Response};

/// Bytes that a document asked for takes, beside what it has of the request's options.
const ITEM_BYTES: usize = 512;
/// Reads under way at a time.
const CONCURRENT: usize = 16;

/// One document asked for.
#[derive(Clone, Debug)]
struct Item {
    index: String,
    doc_type: Option<String>,
    id: String,
    get_params: GetParams,
}

/// Answers `_mget`.
pub(crate) async fn multi_get(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    doc_type: Option<&str>,
) -> Result<Response, Error> {
    // Each item has the options of the request as its own.
    let item_bytes = ITEM_BYTES + 2 * request.params.bytes();
    let defaults = GetParams::take(request, true)?;
    request.finish()?;
    let body = request
        .json()?
        .ok_or_else(|| Error::new(400, "parse_exception", "request body or source parameter is required"))?;
    let items = parse(&body, index, doc_type, &defaults, &|| request.allowance.take(item_bytes))?;
    let allowance = &request.answer;
    let mut answers = futures::stream::iter(items.into_iter().map(|item| answer(api, item, allowance)))
        .buffered(CONCURRENT);
    let mut out = b"{\"docs\":[".to_vec();
    let empty = out.len();
    while let Some(answer) = answers.try_next().await? {
        if out.len() > empty {
            out.push(b',');
        }
        out.extend_from_slice(&answer);
    }
    out.extend_from_slice(b"]}");
    Ok(Response::held_json(200, out, allowance))
}

async fn answer(api: &Api, mut item: Item, allowance: &MemoryAllowance) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    allowance.take(ITEM_BYTES)?;
    match find(api, &mut item, &mut out, allowance).await {
        Ok(()) => {}
        Err(error) if matches!(error.status(), 413 | 429 | 503) => return Err(error),
        Err(error) => {
            if error.is_refusal() {
                api.session.refusals().note_of(Action::Get.name(), Some(&item.index));
            }
            out.clear();
            out.push(b'{');
            push_untyped(&mut out, &item.index, item.doc_type.as_deref(), &item.id);
            out.extend_from_slice(b",\"error\":");
            out.extend_from_slice(error.exception(true).to_string().as_bytes());
            out.push(b'}');
        }
    }
    Ok(out)
}

async fn find(
    api: &Api,
    item: &mut Item,
    out: &mut Vec<u8>,
    allowance: &MemoryAllowance,
) -> Result<(), Error> {
    let doc_type = item.doc_type.as_deref();
    // Each is a get of its own: what is refused is refused by itself.
    let getting = api.session.doing(Action::Get)?;
    let target = Target::read(&getting, &item.index, doc_type, &item.id, item.get_params.routing.take())?;
    match read(&getting, &target, &item.id, &item.get_params).await? {
        Some(doc) => {
            // Twice: the document is written by itself before it joins the others, which may have as much room again.
            allowance.take(doc.source.len().saturating_mul(2))?;
            push_found(out, &target, doc_type, &doc, &item.get_params)?;
        }
        None => {
            out.push(b'{');
            // An index that never had a field has no type to show, in the 7.10 line.
            if target.index.mapping().fields().next().is_none() {
                push_untyped(out, &target.name, doc_type, &item.id);
            } else {
                push_address(out, &target.name, doc_type, Some(&item.id));
            }
            out.extend_from_slice(b",\"found\":false}");
        }
    }
    Ok(())
}

/// Appends an address whose type is null where none was named.
fn push_untyped(out: &mut Vec<u8>, index: &str, doc_type: Option<&str>, id: &str) {
    if doc_type.is_some() {
        return push_address(out, index, doc_type, Some(id));
    }
    out.extend_from_slice(b"\"_index\":");
    push_str(out, index);
    out.extend_from_slice(b",\"_type\":null,\"_id\":");
    push_str(out, id);
}

fn parse(
    body: &Value,
    index: Option<&str>,
    doc_type: Option<&str>,
    defaults: &GetParams,
    charge: &dyn Fn() -> Result<(), Error>,
) -> Result<Vec<Item>, Error> {
    let Value::Object(members) = body else {
        return Err(Error::parsing(format!("unexpected token [{}], expected [START_OBJECT]", token(body))));
    };
    let mut items = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in members {
        let Value::Array(list) = value else {
            return Err(Error::parsing(format!(
                "unexpected token [{}] for [{name}], expected [START_ARRAY]",
                token(value)
            )));
        };
        match name.as_str() {
            "docs" => {
                for entry in list {
                    let Value::Object(entry) = entry else {
                        return Err(Error::illegal_argument("docs array element should include an object"));
                    };
                    charge()?;
                    items.push(parse_doc(entry, index, doc_type, defaults, items.len(), &mut problems)?);
                }
            }
            "ids" => {
                for entry in list {
                    let id = scalar(entry).ok_or_else(|| {
                        Error::illegal_argument("ids array element should only contain ids")
                    })?;
                    charge()?;
                    items.push(item(index, doc_type, Some(id), defaults.clone(), items.len(), &mut problems));
                }
            }
            other => {
                return Err(Error::parsing(format!(
                    "unknown key [{other}] for a START_ARRAY, expected [docs] or [ids]"
                )));
            }
        }
    }
    if items.is_empty() {
        problems.push("no documents to get".to_owned());
    }
    if problems.is_empty() { Ok(items) } else { Err(Error::validation(&problems)) }
}

fn item(
    index: Option<&str>,
    doc_type: Option<&str>,
    id: Option<String>,
    get_params: GetParams,
    number: usize,
    problems: &mut Vec<String>,
) -> Item {
    if index.is_none() {
        problems.push(format!("index is missing for doc {number}"));
    }
    if id.is_none() {
        problems.push(format!("id is missing for doc {number}"));
    }
    let index = index.unwrap_or_default().to_owned();
    Item { index, doc_type: doc_type.map(str::to_owned), id: id.unwrap_or_default(), get_params }
}

fn parse_doc(
    entry: &Map<String, Value>,
    index: Option<&str>,
    doc_type: Option<&str>,
    defaults: &GetParams,
    number: usize,
    problems: &mut Vec<String>,
) -> Result<Item, Error> {
    let mut get_params = defaults.clone();
    let (mut own_index, mut own_type, mut id) = (None, None, None);
    let text = |name: &str, value: &Value| {
        scalar(value).ok_or_else(|| {
            Error::new(
                400,
                "parse_exception",
                format!("failed to parse multi get request. [{name}] is no value"),
            )
        })
    };
    for (name, value) in entry {
        if value.is_null() {
            continue;
        }
        match name.as_str() {
            "_index" => own_index = Some(text(name, value)?),
            "_type" => own_type = Some(text(name, value)?),
            "_id" => id = Some(text(name, value)?),
            "routing" => get_params.routing = Some(text(name, value)?),
            "version" => {
                get_params.version = Some(value.as_i64().ok_or_else(|| {
                    Error::illegal_argument(format!("[version] must be a whole number but found [{value}]"))
                })?);
            }
            "version_type" => get_params.version_type = Some(options::version_type(&text(name, value)?)?),
            "_source" => get_params.source = Some(SourceFilter::parse(value)?),
            "stored_fields" => {
                get_params.stored =
                    Some(StoredFields::parse(value).ok_or_else(|| {
                        Error::parsing("[stored_fields] must be a name or a list of names")
                    })?);
            }
            "fields" => {
                return Err(Error::parsing(
                    "Unsupported field [fields] used, expected [stored_fields] instead",
                ));
            }
            other => {
                return Err(Error::new(
                    400,
                    "parse_exception",
                    format!("failed to parse multi get request. unknown field [{other}]"),
                ));
            }
        }
    }
    let index = own_index.as_deref().or(index);
    let doc_type = own_type.as_deref().or(doc_type);
    Ok(item(index, doc_type, id, get_params, number, problems))
}

/// Reads a JSON scalar as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(body: Value, index: Option<&str>) -> Result<Vec<Item>, Error> {
        parse(&body, index, None, &GetParams::default(), &|| Ok(()))
    }

    #[test]
    fn forms() {
        let items = run(json!({ "ids": [1, "b"] }), Some("logs")).unwrap();
        assert_eq!((items[0].id.as_str(), items[1].id.as_str()), ("1", "b"));
        let items = run(
            json!({ "docs": [{ "_id": 1, "_index": "x", "_type": "t", "routing": 5, "_source": false }, { "_id": "2" }] }),
            Some("logs"),
        )
        .unwrap();
        assert_eq!((items[0].index.as_str(), items[0].doc_type.as_deref()), ("x", Some("t")));
        assert_eq!(items[0].get_params.routing.as_deref(), Some("5"));
        assert_eq!(items[0].get_params.source, Some(SourceFilter::None));
        assert_eq!(items[1].index, "logs");
    }

    #[test]
    fn refusals() {
        for (body, reason) in [
            (json!({}), "Validation Failed: 1: no documents to get;"),
            (json!({ "docs": [] }), "Validation Failed: 1: no documents to get;"),
            (json!({ "docs": [{ "_index": "a" }] }), "Validation Failed: 1: id is missing for doc 0;"),
            (json!({ "docs": [{ "_id": "a" }] }), "Validation Failed: 1: index is missing for doc 0;"),
            (
                json!({ "docs": [{ "_id": "a", "_routing": "b" }] }),
                "failed to parse multi get request. unknown field [_routing]",
            ),
            (json!({ "ids": [{}] }), "ids array element should only contain ids"),
        ] {
            assert_eq!(run(body, None).unwrap_err().reason(), reason);
        }
    }
}
