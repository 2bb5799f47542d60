//! Points in time: snapshots that several searches share.

use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_dsl::json;
use millrace_engine::Session;
use millrace_search::response::shards_json;
use millrace_search::searcher::refused_by_all;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use super::{Outcome, SearchService};
use crate::contexts::Kind;
use crate::request::keep_alive;

/// Most ids of one closing request.
const MAX_CLOSED: usize = 10_000;

impl SearchService {
    /// Answers `POST /<index>/_search/point_in_time`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_point_in_time<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open(expression, "_search/point_in_time", params, body)?;
            let longest = self.longest_life(Kind::PointInTime);
            let life = opened.params.take("keep_alive");
            let scope = opened.params.scope()?;
            // Shards of one node are all there or none.
            opened.params.boolean("allow_partial_pit_creation")?;
            opened.params.finish()?;
            let keep_alive_ms = match life {
                Some(text) => keep_alive("keep_alive", &text, &longest)?,
                None => return Err(Error::Validation("keep alive not specified".to_owned())),
            };
            let pinned = self.pin_to_keep(session, expression, &scope, 0).await?;
            let snapshot = Arc::clone(&pinned.snapshot);
            let shards = shards_json(snapshot.shards, 0, &[]);
            let (counted, most) =
                (self.counted_over(Kind::PointInTime, &snapshot), self.most_open(Kind::PointInTime));
            let id = self
                .points_in_time
                .open(session.principal(), pinned, counted, keep_alive_ms, most)
                .map_err(|error| refused_by_all(&snapshot, error))?;
            Ok(Outcome::json(200, json!({"pit_id": id, "_shards": shards, "creation_time": opened.now_ms})))
        })
    }

    /// Answers `GET /_search/point_in_time/_all`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn list_points_in_time<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let opened = self.open("", "_search/point_in_time/_all", params, None)?;
            opened.params.finish()?;
            let listed = self.points_in_time.list(session.principal());
            let listed = listed.iter().map(
            |one| json!({"pit_id": one.id, "creation_time": one.created_ms, "keep_alive": one.keep_alive_ms}),
        );
            Ok(Outcome::json(200, json!({"pits": listed.collect::<Vec<_>>()})))
        })
    }

    /// Answers `DELETE /_search/point_in_time`, and that of `_all` if `all`.
    ///
    /// # Errors
    /// An invalid-input error when no id is given.
    pub fn close_points_in_time<'a>(
        &'a self,
        session: &'a Session,
        all: bool,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let opened = self.open("", "_search/point_in_time", params, body)?;
            opened.params.finish()?;
            let closed: Vec<(String, bool)> = if all {
                self.points_in_time
                    .close_all(session.principal())
                    .await
                    .into_iter()
                    .map(|id| (id, true))
                    .collect()
            } else {
                self.points_in_time.close_each(closing(opened.body.as_ref())?, session.principal()).await
            };
            let status =
                if !closed.is_empty() && closed.iter().all(|(_, closed)| !closed) { 404 } else { 200 };
            let pits: Vec<Value> =
                closed.iter().map(|(id, closed)| json!({"successful": closed, "pit_id": id})).collect();
            Ok(Outcome::json(status, json!({"pits": pits})))
        })
    }
}

/// Reads the ids of a closing request's body.
fn closing(body: Option<&Value>) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    match body {
        None => {}
        Some(Value::Object(fields)) => {
            for (key, value) in fields {
                let named = (key == "pit_id").then(|| json::strings(value)).flatten();
                ids = named.ok_or_else(|| {
                    Error::IllegalArgument(format!(
                        "Unknown parameter [{key}] in request body or parameter is of the wrong type[{}] ",
                        json::token(value)
                    ))
                })?;
            }
        }
        Some(_) => {
            return Err(Error::IllegalArgument("Malformed content, must start with an object".to_owned()));
        }
    }
    if ids.is_empty() {
        return Err(Error::Validation("no pit ids specified".to_owned()));
    }
    if ids.len() > MAX_CLOSED {
        return Err(Error::IllegalArgument(format!(
            "too many pit ids: {} given, at most {MAX_CLOSED} allowed",
            ids.len()
        )));
    }
    Ok(ids)
}
