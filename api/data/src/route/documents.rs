//! Documents, one and many, under `_doc` and under types of their own.

use super::{DataApi, Route, RouteCondition, routes};
use crate::documents::{DEFAULT_TYPE, delete, delete_all, get, index as write, multi_get, source, update};
use crate::error::Error;
use crate::http::Params;
use crate::{bulk, root};

/// Endpoints under an index that are no ids of documents under types.
const NOT_IDS: [&str; 11] = [
    "_explain",
    "_field_caps",
    "_mapping",
    "_mappings",
    "_msearch",
    "_mtermvectors",
    "_rank_eval",
    "_search_shards",
    "_termvectors",
    "_update_by_query",
    "_validate",
];

const CREATES: RouteCondition =
    RouteCondition { words: "?op_type=create", holds: |_, params| params.peek("op_type") == Some("create") };
const IS_ID: RouteCondition = RouteCondition { words: "", holds: |path, _| is_id(path) };
const CREATES_ID: RouteCondition = RouteCondition {
    words: "?op_type=create",
    holds: |path, params: &Params| is_id(path) && params.peek("op_type") == Some("create"),
};

fn is_id(path: &[String]) -> bool {
    path.last().is_some_and(|id| !NOT_IDS.contains(&id.as_str()))
}

/// Returns the type that a path names; `None` for the one that is meant where none is named.
fn named(doc_type: &str) -> Option<&str> {
    (doc_type != DEFAULT_TYPE).then_some(doc_type)
}

fn type_of_all() -> Error {
    let reason = "Document mapping type name can't start with '_', found: [_all]";
    Error::new(400, "invalid_type_name_exception", reason)
}

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        read GET HEAD, "/", () Main => root::info(&api.identity, request);

        change POST PUT, "/_bulk", () Bulk => bulk::run(served, api, request, None, None).await;
        change POST PUT, "/{index}/_bulk", (index) Bulk => bulk::run(served, api, request, Some(index), None).await;
        change POST PUT, "/{index}/{any_type}/_bulk", (index, any_type) Bulk => bulk::run(served, api, request, Some(index), named(any_type)).await;

        read GET POST, "/_mget", () MultiGet => multi_get(api, request, None, None).await;
        read GET POST, "/{index}/_mget", (index) MultiGet => multi_get(api, request, Some(index), None).await;
        read GET POST, "/{index}/{any_type}/_mget", (index, any_type) MultiGet => multi_get(api, request, Some(index), Some(any_type)).await;

        change POST, "/{index}/_doc", (index) CreateDocument if CREATES => write(served, api, request, index, None, None, false).await;
        change POST, "/{index}/_doc", (index) IndexDocument => write(served, api, request, index, None, None, false).await;
        read GET HEAD, "/{index}/_doc/{id}", (index, id) Get => get(api, request, index, None, id).await;
        change POST PUT, "/{index}/_doc/{id}", (index, id) CreateDocument if CREATES => write(served, api, request, index, None, Some(id), false).await;
        change POST PUT, "/{index}/_doc/{id}", (index, id) IndexDocument => write(served, api, request, index, None, Some(id), false).await;
        change DELETE, "/{index}/_doc/*", (index) DeleteByQuery => delete_all(api, request, index).await;
        change DELETE, "/{index}/_doc/{id}", (index, id) DeleteDocument => delete(api, request, index, None, id).await;
        change POST PUT, "/{index}/_create/{id}", (index, id) CreateDocument => write(served, api, request, index, None, Some(id), true).await;
        change POST, "/{index}/_update/{id}", (index, id) UpdateDocument => update(served, api, request, index, None, id).await;
        read GET HEAD, "/{index}/_source/{id}", (index, id) Get => source(api, request, index, None, id).await;

        // The word for all types reads a document of any.
        read GET HEAD, "/{index}/_all/{id}", (index, id) Get if IS_ID => get(api, request, index, None, id).await;
        change POST PUT DELETE, "/{index}/_all/{id}", () IndexDocument if IS_ID => Err(type_of_all());
        change POST, "/{index}/{doc_type}", (index, doc_type) CreateDocument if CREATES => write(served, api, request, index, Some(doc_type), None, false).await;
        change POST, "/{index}/{doc_type}", (index, doc_type) IndexDocument => write(served, api, request, index, Some(doc_type), None, false).await;
        read GET HEAD, "/{index}/{doc_type}/{id}", (index, doc_type, id) Get if IS_ID => get(api, request, index, Some(doc_type), id).await;
        change POST PUT, "/{index}/{doc_type}/{id}", (index, doc_type, id) CreateDocument if CREATES_ID => write(served, api, request, index, Some(doc_type), Some(id), false).await;
        change POST PUT, "/{index}/{doc_type}/{id}", (index, doc_type, id) IndexDocument if IS_ID => write(served, api, request, index, Some(doc_type), Some(id), false).await;
        change DELETE, "/{index}/{doc_type}/*", (index) DeleteByQuery => delete_all(api, request, index).await;
        change DELETE, "/{index}/{doc_type}/{id}", (index, doc_type, id) DeleteDocument if IS_ID => delete(api, request, index, Some(doc_type), id).await;
        change POST PUT, "/{index}/{any_type}/{id}/_create", (index, any_type, id) CreateDocument => write(served, api, request, index, named(any_type), Some(id), true).await;
        change POST, "/{index}/{any_type}/{id}/_update", (index, any_type, id) UpdateDocument => update(served, api, request, index, named(any_type), id).await;
        read GET HEAD, "/{index}/{any_type}/{id}/_source", (index, any_type, id) Get => source(api, request, index, named(any_type), id).await;
    }
}
