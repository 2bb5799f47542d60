//! Ways to the pages of a search: a scroll, or `search_after` at a point in time.
//!
//! A scroll moves with each request, so a request for its next page is sent once. A page behind given sort values is the same
//! however often it is requested.

use reqwest::{Client, Method};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{SCROLL_PATH, Search};
use crate::Options;
use crate::input::InputError;

/// Version of Elasticsearch from which on `auto` stands for points in time.
const FIRST_AFTER: u32 = 8;

/// The option `search_api`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchApi {
    /// By the version of the server.
    Auto,
    Scroll,
    SearchAfter,
}

impl SearchApi {
    /// Takes the option.
    pub(super) fn take(options: &mut Options) -> Self {
        match options.one_of("search_api", &["auto", "scroll", "search_after"]) {
            Some("scroll") => Self::Scroll,
            Some("search_after") => Self::SearchAfter,
            _ => Self::Auto,
        }
    }
}

/// End of a page, from which the next one begins.
#[derive(Debug, Default)]
pub(super) struct PageEnd {
    /// Number of documents.
    pub(super) hits: usize,
    pub(super) scroll: Option<String>,
    pub(super) point_in_time: Option<String>,
    /// Sort values of the last document.
    pub(super) sort: Option<Value>,
}

/// Place in the pages of a search.
#[derive(Clone, Debug)]
pub(super) enum Cursor {
    /// The id, once a page has come.
    Scroll(Option<String>),
    PointInTime {
        id: String,
        is_opensearch: bool,
        /// Sort values of the last document that was read.
        after: Option<Value>,
    },
}

/// The product that answers, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerVersion {
    is_opensearch: bool,
    major: u32,
}

#[derive(Deserialize)]
struct RootAnswer {
    version: VersionAnswer,
}

#[derive(Deserialize)]
struct VersionAnswer {
    number: String,
    #[serde(default)]
    distribution: Option<String>,
}

#[derive(Deserialize)]
struct OpenedPointInTime {
    #[serde(alias = "pit_id")]
    id: String,
}

impl Cursor {
    /// Moves behind a page.
    ///
    /// # Errors
    /// The page does not say where the next one begins.
    pub(super) fn advance(&mut self, end: PageEnd, is_last: bool) -> Result<(), String> {
        match self {
            Self::Scroll(id) => *id = end.scroll.or(id.take()),
            Self::PointInTime { id, after, .. } => {
                if let Some(renewed) = end.point_in_time {
                    *id = renewed;
                }
                if end.sort.is_none() && !is_last {
                    return Err("the answer has no sort values: give [search_api => scroll]".to_owned());
                }
                *after = end.sort;
            }
        }
        Ok(())
    }

    /// Returns whether a further page can be requested.
    pub(super) fn has_next(&self) -> bool {
        !matches!(self, Self::Scroll(None))
    }
}

impl Search {
    /// Begins a search.
    pub(super) async fn open(&self, client: &Client) -> Result<Cursor, InputError> {
        let settings = &self.settings;
        if settings.api == SearchApi::Scroll {
            return Ok(Cursor::Scroll(None));
        }
        let version = self.version(client).await;
        // A server that does not say what it is has had scrolls for ever.
        let has_after =
            version.as_ref().is_ok_and(|version| !version.is_opensearch && version.major >= FIRST_AFTER);
        if settings.api != SearchApi::SearchAfter && !has_after {
            return Ok(Cursor::Scroll(None));
        }
        let is_opensearch = version?.is_opensearch;
        let suffix = if is_opensearch { "_search/point_in_time" } else { "_pit" };
        let path = format!("/{}/{suffix}", settings.index);
        let parameters = [("keep_alive", settings.scroll.as_str())];
        let answer = self.ask(client, Method::POST, &path, &parameters, None).await?;
        let opened: OpenedPointInTime = serde_json::from_slice(&answer)
            .map_err(|error| InputError(format!("the point in time cannot be read: {error}")))?;
        Ok(Cursor::PointInTime { id: opened.id, is_opensearch, after: None })
    }

    /// Requests the next page of a slice.
    pub(super) async fn next_page(
        &self,
        client: &Client,
        cursor: &Cursor,
        slice: u32,
    ) -> Result<Vec<u8>, InputError> {
        let settings = &self.settings;
        let scroll = settings.scroll.as_str();
        match cursor {
            Cursor::Scroll(None) => {
                let path = format!("/{}/_search", settings.index);
                let query = Value::Object(self.query_of(slice));
                self.ask(client, Method::POST, &path, &[("scroll", scroll)], Some(&query)).await
            }
            Cursor::Scroll(Some(id)) => {
                let body = json!({ "scroll": scroll, "scroll_id": id });
                self.ask(client, Method::POST, SCROLL_PATH, &[], Some(&body)).await
            }
            Cursor::PointInTime { id, is_opensearch, after } => {
                let mut query = self.query_of(slice);
                query.insert("pit".to_owned(), json!({ "id": id, "keep_alive": scroll }));
                query.insert("sort".to_owned(), total_order(&settings.query, *is_opensearch));
                if let Some(after) = after {
                    query.insert("search_after".to_owned(), after.clone());
                }
                self.ask(client, Method::POST, "/_search", &[], Some(&Value::Object(query))).await
            }
        }
    }

    /// Returns the body of the search for a slice.
    fn query_of(&self, slice: u32) -> Map<String, Value> {
        let mut query = self.settings.query.clone();
        if self.settings.slices > 1 {
            query.insert("slice".to_owned(), json!({ "id": slice, "max": self.settings.slices }));
        }
        query
    }

    /// Ends a search. One that cannot be ended ends by itself.
    pub(super) async fn close(&self, client: &Client, cursor: Cursor) {
        let (path, body) = match cursor {
            Cursor::Scroll(None) => return,
            Cursor::Scroll(Some(id)) => (SCROLL_PATH, json!({ "scroll_id": [id] })),
            Cursor::PointInTime { id, is_opensearch: false, .. } => ("/_pit", json!({ "id": id })),
            Cursor::PointInTime { id, .. } => ("/_search/point_in_time", json!({ "pit_id": [id] })),
        };
        let _ = self.ask(client, Method::DELETE, path, &[], Some(&body)).await;
    }

    /// Asks the server for its version.
    async fn version(&self, client: &Client) -> Result<ServerVersion, InputError> {
        let answer = self.ask(client, Method::GET, "/", &[], None).await?;
        let read: Option<RootAnswer> = serde_json::from_slice(&answer).ok();
        let version = read.and_then(|read| {
            let major = read.version.number.split('.').next()?.parse().ok()?;
            let is_opensearch = read.version.distribution.as_deref() == Some("opensearch");
            Some(ServerVersion { is_opensearch, major })
        });
        version.ok_or_else(|| InputError("the server does not say its version".to_owned()))
    }
}

/// Returns an order without ties: pages behind a document of several with the same values would leave out the others. Elasticsearch
/// adds the document's place by itself; OpenSearch gets the id, and the index, for several indices may have the id.
fn total_order(query: &Map<String, Value>, is_opensearch: bool) -> Value {
    let given = match query.get("sort") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(keys)) => keys.clone(),
        Some(single) => vec![single.clone()],
    };
    if !is_opensearch {
        return if given.is_empty() { json!([{ "_shard_doc": "asc" }]) } else { Value::Array(given) };
    }
    let is_by = |key: &Value, name: &str| key == name || key.get(name).is_some();
    // Places of documents are those of a shard.
    let mut keys: Vec<Value> = given.into_iter().filter(|key| !is_by(key, "_doc")).collect();
    for name in ["_id", "_index"] {
        if !keys.iter().any(|key| is_by(key, name)) {
            keys.push(json!({ name: "asc" }));
        }
    }
    Value::Array(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_an_order_without_ties() {
        for (sort, elsewhere, opensearch) in [
            (Value::Null, json!([{"_shard_doc": "asc"}]), json!([{"_id": "asc"}, {"_index": "asc"}])),
            (json!(["_doc"]), json!(["_doc"]), json!([{"_id": "asc"}, {"_index": "asc"}])),
            (json!({"_doc": "desc"}), json!([{"_doc": "desc"}]), json!([{"_id": "asc"}, {"_index": "asc"}])),
            (json!("at"), json!(["at"]), json!(["at", {"_id": "asc"}, {"_index": "asc"}])),
            (
                json!([{"at": "desc"}, "_id"]),
                json!([{"at": "desc"}, "_id"]),
                json!([{"at": "desc"}, "_id", {"_index": "asc"}]),
            ),
        ] {
            let query = Map::from_iter([("sort".to_owned(), sort.clone())]);
            assert_eq!(total_order(&query, false), elsewhere, "{sort}");
            assert_eq!(total_order(&query, true), opensearch, "{sort}");
        }
    }
}
