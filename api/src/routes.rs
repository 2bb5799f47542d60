//! From path to handler, for documents, searches and the root; everything else is [`crate::admin`]'s.

use http::Method;

use crate::error::Error;
use crate::http::{Request, Response};
use crate::search::Endpoint;
use crate::sql::Asked;
use crate::{Api, admin, bulk, documents, root, search, security, sql};

/// The type of documents whose request names none.
pub(crate) const DEFAULT_TYPE: &str = "_doc";

/// The type segment that stands for any type when reading.
const ANY_TYPE: &str = "_all";

/// Endpoints under an index that are not served; no document ids.
const NOT_IDS: [&str; 10] = [
    "_explain",
    "_field_caps",
    "_mapping",
    "_msearch",
    "_mtermvectors",
    "_rank_eval",
    "_search_shards",
    "_termvectors",
    "_update_by_query",
    "_validate",
];

/// A path that this module serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    Root,
    Bulk(Option<&'p str>, Option<&'p str>),
    MultiGet(Option<&'p str>, Option<&'p str>),
    /// A document: index, type segment if one was named, id.
    Document(&'p str, Option<&'p str>, &'p str),
    /// A document whose id is to be generated.
    NewDocument(&'p str, Option<&'p str>),
    Create(&'p str, Option<&'p str>, &'p str),
    Source(&'p str, Option<&'p str>, &'p str),
    Update(&'p str, Option<&'p str>, &'p str),
    Explain(&'p str, Option<&'p str>, &'p str),
    Search(Endpoint, &'p str),
    /// Continuing and clearing a scroll, by the id in the path if there is one.
    Scroll(Option<&'p str>),
    /// Statements of SQL.
    Sql(Asked),
    /// An index by itself: the administration's, known here for its methods only.
    Index,
}

impl<'p> Route<'p> {
    /// Recognises a path.
    pub(crate) fn of(path: &'p [String]) -> Option<Self> {
        const ALL: &str = "_all";
        let mut parts = [""; 4];
        if path.len() > parts.len() {
            return None;
        }
        for (part, segment) in parts.iter_mut().zip(path) {
            *part = segment;
        }
        let named = |doc_type: &'p str| (doc_type != DEFAULT_TYPE).then_some(doc_type);
        let plain = |segment: &str| !segment.starts_with('_') || segment == ALL;
        Some(match (path.len(), parts) {
            (0, _) => Self::Root,
            (1, ["_bulk", ..]) => Self::Bulk(None, None),
            (1, ["_mget", ..]) => Self::MultiGet(None, None),
            (1, ["_search", ..]) => Self::Search(Endpoint::Search, ""),
            (1, ["_count", ..]) => Self::Search(Endpoint::Count, ""),
            (1, ["_msearch", ..]) => Self::Search(Endpoint::MultiSearch, ""),
            (1, ["_field_caps", ..]) => Self::Search(Endpoint::FieldCaps, ""),
            (2, ["_validate", "query", ..]) => Self::Search(Endpoint::ValidateQuery, ""),
            (2, ["_search", "point_in_time", ..]) => Self::Search(Endpoint::ClosePointsInTime, ""),
            (3, ["_search", "point_in_time", ALL, _]) => Self::Search(Endpoint::AllPointsInTime, ""),
            (2, ["_search", "scroll", ..]) => Self::Scroll(None),
            (3, ["_search", "scroll", id, _]) => Self::Scroll(Some(id)),
            (2, ["_plugins" | "_opendistro", "_sql", ..]) => Self::Sql(Asked::Rows),
            (3, ["_plugins" | "_opendistro", "_sql", "_explain", _]) => Self::Sql(Asked::Explanation),
            (3, ["_plugins" | "_opendistro", "_sql", "close", _]) => Self::Sql(Asked::Close),
            (1, [index, ..]) if plain(index) => Self::Index,
            (_, [index, ..]) if !plain(index) => return None,
            (2, [index, "_bulk", ..]) => Self::Bulk(Some(index), None),
            (3, [index, doc_type, "_bulk", _]) => Self::Bulk(Some(index), named(doc_type)),
            (2, [index, "_mget", ..]) => Self::MultiGet(Some(index), None),
            (3, [index, doc_type, "_mget", _]) => Self::MultiGet(Some(index), Some(doc_type)),
            (2, [index, "_search", ..]) | (3, [index, _, "_search", _]) => {
                Self::Search(Endpoint::Search, index)
            }
            (2, [index, "_count", ..]) | (3, [index, _, "_count", _]) => Self::Search(Endpoint::Count, index),
            (2, [index, "_delete_by_query", ..]) | (3, [index, _, "_delete_by_query", _]) => {
                Self::Search(Endpoint::DeleteByQuery, index)
            }
            (2, [index, "_msearch", ..]) | (3, [index, _, "_msearch", _]) => {
                Self::Search(Endpoint::MultiSearch, index)
            }
            (2, [index, "_field_caps", ..]) => Self::Search(Endpoint::FieldCaps, index),
            (3, [index, "_validate", "query", _]) | (4, [index, _, "_validate", "query"]) => {
                Self::Search(Endpoint::ValidateQuery, index)
            }
            (3, [index, "_search", "point_in_time", _]) => Self::Search(Endpoint::OpenPointInTime, index),
            (3, [index, "_explain", id, _]) => Self::Explain(index, None, id),
            (4, [index, doc_type, id, "_explain"]) if plain(doc_type) || doc_type == DEFAULT_TYPE => {
                Self::Explain(index, named(doc_type), id)
            }
            (3, [index, "_create", id, _]) => Self::Create(index, None, id),
            (3, [index, "_source", id, _]) => Self::Source(index, None, id),
            (3, [index, "_update", id, _]) => Self::Update(index, None, id),
            (4, [index, doc_type, id, "_create"]) if plain(doc_type) || doc_type == DEFAULT_TYPE => {
                Self::Create(index, named(doc_type), id)
            }
            (4, [index, doc_type, id, "_source"]) if plain(doc_type) || doc_type == DEFAULT_TYPE => {
                Self::Source(index, named(doc_type), id)
            }
            (4, [index, doc_type, id, "_update"]) if plain(doc_type) || doc_type == DEFAULT_TYPE => {
                Self::Update(index, named(doc_type), id)
            }
            (2, [index, DEFAULT_TYPE, ..]) => Self::NewDocument(index, None),
            (3, [index, DEFAULT_TYPE, id, _]) => Self::Document(index, None, id),
            (2, [index, doc_type, ..]) if !doc_type.starts_with('_') => {
                Self::NewDocument(index, Some(doc_type))
            }
            (3, [index, doc_type, id, _]) if plain(doc_type) && !NOT_IDS.contains(&id) => {
                Self::Document(index, Some(doc_type), id)
            }
            _ => return None,
        })
    }

    /// Lists the methods that the path has.
    pub(crate) fn methods(self) -> &'static [Method] {
        const READ: &[Method] = &[Method::GET, Method::HEAD];
        const SEND: &[Method] = &[Method::POST, Method::PUT];
        const ASK: &[Method] = &[Method::GET, Method::POST];
        const POST: &[Method] = &[Method::POST];
        match self {
            Self::Root | Self::Source(..) => READ,
            Self::Bulk(..) | Self::Create(..) => SEND,
            Self::MultiGet(..) => ASK,
            Self::Search(Endpoint::DeleteByQuery | Endpoint::OpenPointInTime, _)
            | Self::Update(..)
            | Self::NewDocument(..) => POST,
            Self::Search(Endpoint::ClosePointsInTime, _) => &[Method::DELETE],
            Self::Search(Endpoint::AllPointsInTime, _) => &[Method::GET, Method::DELETE],
            Self::Explain(..) => ASK,
            Self::Search(..) => ASK,
            Self::Sql(_) => POST,
            Self::Scroll(_) => &[Method::GET, Method::POST, Method::DELETE],
            Self::Document(..) => &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE],
            Self::Index => &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
        }
    }
}

/// Finds and runs the handler of a request. `uri` is the request's own spelling, for messages.
pub(crate) async fn run(api: &Api, request: &mut Request, uri: &str) -> Result<Response, Error> {
    if let Some(result) = security::route(api, request, uri).await {
        return result;
    }
    if let Some(result) = admin::route(api, request).await {
        return result;
    }
    let path = request.path.clone();
    run_here(api, request, &path, uri).await
}

/// Makes the refusal of a path that is none: who creates or deletes what one segment names means an
/// index.
fn unknown(request: &Request, path: &[String], uri: &str) -> Error {
    match path {
        [name] if matches!(request.method, Method::PUT | Method::DELETE) => Error::invalid_index_name(
            name,
            format!("Invalid index name [{name}], must not start with '_', '-', or '+'"),
        ),
        _ => Error::no_handler(uri, &request.method),
    }
}

async fn run_here(api: &Api, request: &mut Request, path: &[String], uri: &str) -> Result<Response, Error> {
    let Some(route) = Route::of(path) else { return Err(unknown(request, path, uri)) };
    let allowed = route.methods();
    if request.method == Method::OPTIONS {
        let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(",");
        let mut response = Response::empty(200);
        response.headers.push(("allow", list));
        return Ok(response);
    }
    if !allowed.contains(&request.method) || route == Route::Index {
        return Err(Error::method_not_allowed(uri, &request.method, allowed));
    }
    match route {
        Route::Root => root::info(&api.identity, request),
        Route::Bulk(index, doc_type) => bulk::run(api, request, index, doc_type).await,
        Route::MultiGet(index, doc_type) => documents::multi_get(api, request, index, doc_type).await,
        Route::NewDocument(index, doc_type) => {
            documents::index(api, request, index, doc_type, None, false).await
        }
        Route::Create(index, doc_type, id) => {
            documents::index(api, request, index, doc_type, Some(id), true).await
        }
        Route::Source(index, doc_type, id) => documents::source(api, request, index, doc_type, id).await,
        Route::Update(index, doc_type, id) => documents::update(api, request, index, doc_type, id).await,
        Route::Document(index, doc_type, id) => match request.method {
            Method::GET | Method::HEAD => {
                let doc_type = doc_type.filter(|name| *name != ANY_TYPE);
                documents::get(api, request, index, doc_type, id).await
            }
            _ if doc_type == Some(ANY_TYPE) => Err(Error::new(
                400,
                "invalid_type_name_exception",
                format!("Document mapping type name can't start with '_', found: [{ANY_TYPE}]"),
            )),
            Method::DELETE => documents::delete(api, request, index, doc_type, id).await,
            _ => documents::index(api, request, index, doc_type, Some(id), false).await,
        },
        Route::Explain(index, doc_type, id) => search::explain(api, request, index, doc_type, id).await,
        Route::Search(endpoint, expression) => search::run(api, request, endpoint, expression).await,
        Route::Sql(asked) => sql::run(api, request, asked).await,
        Route::Scroll(id) => {
            if let Some(id) = id {
                request.params.set("scroll_id", id);
            }
            let endpoint =
                if request.method == Method::DELETE { Endpoint::ClearScroll } else { Endpoint::Scroll };
            search::run(api, request, endpoint, "").await
        }
        Route::Index => Err(Error::no_handler(uri, &request.method)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Option<String> {
        let segments = crate::http::path::segments(path).unwrap();
        Route::of(&segments).map(|route| format!("{route:?}"))
    }

    #[test]
    fn paths_are_recognised() {
        for (path, expected) in [
            ("/", "Root"),
            ("/_bulk", "Bulk(None, None)"),
            ("/a/_bulk", "Bulk(Some(\"a\"), None)"),
            ("/a/t/_bulk/", "Bulk(Some(\"a\"), Some(\"t\"))"),
            ("/a/_doc", "NewDocument(\"a\", None)"),
            ("/a/t", "NewDocument(\"a\", Some(\"t\"))"),
            ("/a/_doc/1", "Document(\"a\", None, \"1\")"),
            ("/a/_doc/_1", "Document(\"a\", None, \"_1\")"),
            ("/a/t/1", "Document(\"a\", Some(\"t\"), \"1\")"),
            ("/a/_all/1", "Document(\"a\", Some(\"_all\"), \"1\")"),
            ("/a/_create/1", "Create(\"a\", None, \"1\")"),
            ("/a/t/1/_create", "Create(\"a\", Some(\"t\"), \"1\")"),
            ("/a/_doc/1/_update", "Update(\"a\", None, \"1\")"),
            ("/a/_source/1", "Source(\"a\", None, \"1\")"),
            ("/_search", "Search(Search, \"\")"),
            ("/_msearch", "Search(MultiSearch, \"\")"),
            ("/a/t/_msearch", "Search(MultiSearch, \"a\")"),
            ("/a/t/_validate/query", "Search(ValidateQuery, \"a\")"),
            ("/_search/point_in_time/_all", "Search(AllPointsInTime, \"\")"),
            ("/a/_search/point_in_time", "Search(OpenPointInTime, \"a\")"),
            ("/a/_explain/1", "Explain(\"a\", None, \"1\")"),
            ("/a/t/1/_explain", "Explain(\"a\", Some(\"t\"), \"1\")"),
            ("/a,b*/_search", "Search(Search, \"a,b*\")"),
            ("/a/t/_count", "Search(Count, \"a\")"),
            ("/_search/scroll/abc", "Scroll(Some(\"abc\"))"),
            ("/a/_delete_by_query", "Search(DeleteByQuery, \"a\")"),
            ("/_plugins/_sql", "Sql(Rows)"),
            ("/_opendistro/_sql/_explain", "Sql(Explanation)"),
            ("/_plugins/_sql/close", "Sql(Close)"),
            ("/a", "Index"),
        ] {
            assert_eq!(of(path).as_deref(), Some(expected), "{path}");
        }
        for path in ["/_foo", "/_foo/bar", "/a/_foo", "/a/_foo/1", "/a/t/1/_foo", "/a/b/c/d/e"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
