//! `_count`: how many documents match.

use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_dsl::body::{self, SearchBody};
use millrace_dsl::json;
use millrace_dsl::query::Query;
use millrace_engine::Session;
use millrace_search::response::shards_json;
use millrace_search::searcher::Search;
use millrace_target::lookup;
use millrace_work::error::Result;
use serde_json::{Map, Value, json};

use super::{Outcome, SearchService};

impl SearchService {
    /// Answers `_count`.
    ///
    /// # Errors
    /// See [`Error`](millrace_work::error::Error); an error of single shards is part of the answer instead.
    pub fn count<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open(expression, "_count", params, body)?;
            let params = &mut opened.params;
            let from_body = opened.body.as_ref().map(SearchBody::parse_query_only).transpose()?.flatten();
            let mut query = params.uri_query()?.or(from_body).unwrap_or_else(Query::match_all);
            let scope = params.scope()?;
            let terminate_after = match params.integer("terminate_after")? {
                None => 0,
                Some(number) => body::terminate_after(number)?,
            };
            let min_score = match params.take("min_score") {
                None => None,
                Some(text) => Some(json::float(&Value::String(text))?),
            };
            opened.params.finish()?;
            let searcher = self.searcher()?;
            let (work, _ends) = searcher.begin();
            let snapshot = self.pin(session, expression, &scope).await?;
            lookup::read(session, &snapshot, &mut query, &searcher.compute, &work).await?;
            let search = Search {
                track: Some(u64::MAX),
                terminate_after,
                min_score,
                ..Search::new(Arc::clone(&snapshot), &query, opened.now_ms, &work)
            };
            let found = searcher.find(search).await?;
            let mut body = Map::new();
            body.insert("count".into(), json!(found.total.map_or(0, |(total, _)| total)));
            if let Some(early) = found.terminated_early {
                body.insert("terminated_early".into(), json!(early));
            }
            body.insert("_shards".into(), shards_json(snapshot.shards, 0, &found.failures));
            Ok(Outcome::json(200, Value::Object(body)))
        })
    }
}
