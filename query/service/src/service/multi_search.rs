//! `_msearch`: several searches in one request, each with an answer or an error of its own.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use millrace_catalog::access::Action;
use millrace_dsl::json;
use millrace_dsl::params::Params;
use millrace_engine::Session;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Outcome, SearchService};
use crate::request::SearchRequest;

/// Most searches of one request.
pub const MAX_SEARCHES: usize = 10_000;
/// Most searches of one request that run at a time where it does not say.
const CONCURRENT: usize = 8;
/// Most that a request may let run at a time.
const MAX_CONCURRENT: usize = 64;
/// Bytes that the head of the answer has at most.
const MAX_HEAD: usize = 64;
/// Bytes of all answers together, above which further searches are refused.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Makes the error of a search whose answer does not fit behind the others.
fn too_long() -> Error {
    Error::CircuitBreaking(format!("the answers exceed [{MAX_ANSWER_BYTES}] bytes"))
}

/// A search of a request: the indices that it names, and what it asks.
struct Item {
    expression: String,
    request: SearchRequest,
}

impl SearchService {
    /// Answers `_msearch`. Each search is a header, which may be null, and a body.
    ///
    /// # Errors
    /// What is wrong with the request itself; an error of one search is part of the answer instead.
    pub fn multi_search<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        searches: Vec<(Value, Value)>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let opened = self.open(expression, "_msearch", params, None)?;
            let mut params = opened.params;
            let concurrent = match params.integer("max_concurrent_searches")? {
                Some(number) if number < 1 => {
                    return Err(Error::IllegalArgument(
                        "maxConcurrentSearchRequests must be positive".to_owned(),
                    ));
                }
                Some(number) => usize::try_from(number).unwrap_or(MAX_CONCURRENT).min(MAX_CONCURRENT),
                None => CONCURRENT,
            };
            // What holds for all searches whose header does not say otherwise.
            const SHARED: [&str; 10] = [
                "allow_no_indices",
                "ccs_minimize_roundtrips",
                "expand_wildcards",
                "ignore_throttled",
                "ignore_unavailable",
                "max_concurrent_shard_requests",
                "pre_filter_shard_size",
                "rest_total_hits_as_int",
                "search_type",
                "typed_keys",
            ];
            let mut shared = Vec::new();
            for name in SHARED {
                if let Some(value) = params.take(name) {
                    shared.push((name.to_owned(), value));
                }
            }
            params.finish()?;
            if searches.is_empty() {
                return Err(Error::Validation("no requests added".to_owned()));
            }
            if searches.len() > MAX_SEARCHES {
                let most = format!("too many searches: at most {MAX_SEARCHES} are allowed in one request");
                return Err(Error::IllegalArgument(most));
            }
            let mut items = Vec::with_capacity(searches.len());
            for (header, body) in &searches {
                items.push(self.item(expression, &shared, header, body)?);
            }
            let run = |item: Item| async move {
                // Each is a search of its own: what is refused is refused by itself.
                let searching = session.doing(Action::Search)?;
                self.answer(&searching, &item.expression, item.request, self.now_ms()).await
            };
            let mut answers = stream::iter(items).map(run).buffered(concurrent);
            // What the answer begins with is known last.
            let mut out = vec![b' '; MAX_HEAD];
            let (work, _ends) = self.searcher()?.begin();
            let (joining, mut held) = (work.part(), 0);
            let mut first = true;
            while let Some(answer) = answers.next().await {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                match answer {
                    Ok(bytes) if out.len().saturating_add(bytes.len()) <= MAX_ANSWER_BYTES => {
                        // The answer is an object; its status goes in as the last member.
                        out.extend_from_slice(bytes.strip_suffix(b"}").unwrap_or(&bytes));
                        out.extend_from_slice(b",\"status\":200}");
                    }
                    Ok(_) => {
                        out.extend_from_slice(too_long().to_item().to_string().as_bytes());
                    }
                    Err(error) => {
                        if let Error::Storage(refused) = &error {
                            session.refusals().note(refused);
                        }
                        let item = error.to_item().to_string();
                        let fits = out.len().saturating_add(item.len()) <= MAX_ANSWER_BYTES;
                        let item = if fits { item } else { too_long().to_item().to_string() };
                        out.extend_from_slice(item.as_bytes());
                    }
                }
                joining.hold(out.capacity().saturating_sub(held))?;
                held = held.max(out.capacity());
            }
            out.extend_from_slice(b"]}");
            let took_ms = (self.now_ms() - opened.now_ms).max(0);
            let head = format!("{{\"took\":{took_ms},\"responses\":[");
            let at = MAX_HEAD.saturating_sub(head.len());
            out[at..MAX_HEAD].copy_from_slice(head.as_bytes());
            drop(joining);
            Ok(Outcome::raw(work.keep(Bytes::from(out).slice(at..))?))
        })
    }

    fn item(
        &self,
        expression: &str,
        shared: &[(String, String)],
        header: &Value,
        body: &Value,
    ) -> Result<Item> {
        let none = Map::new();
        let header = match header {
            Value::Null => &none,
            Value::Object(fields) => fields,
            other => {
                return Err(Error::IllegalArgument(format!(
                    "Malformed content, must start with an object, found [{}]",
                    json::token(other)
                )));
            }
        };
        let mut given = shared.to_vec();
        let mut named = expression.to_owned();
        for (key, value) in header {
            let texts = json::strings(value).ok_or_else(|| {
                Error::IllegalArgument(format!(
                    "key [{key}] cannot have a value of type [{}] in the metadata section",
                    json::token(value)
                ))
            })?;
            let text = texts.join(",");
            let name = match key.as_str() {
                "index" | "indices" => {
                    named = text;
                    continue;
                }
                // Types are names in a path: any will do.
                "type" | "types" => continue,
                "search_type" | "searchType" => "search_type",
                "request_cache" | "requestCache" => "request_cache",
                "ignore_unavailable" | "ignoreUnavailable" => "ignore_unavailable",
                "allow_no_indices" | "allowNoIndices" => "allow_no_indices",
                "expand_wildcards" | "expandWildcards" => "expand_wildcards",
                "ignore_throttled" | "ignoreThrottled" => "ignore_throttled",
                "preference" => "preference",
                "routing" => "routing",
                "allow_partial_search_results" => "allow_partial_search_results",
                "ccs_minimize_roundtrips" | "ccsMinimizeRoundtrips" => "ccs_minimize_roundtrips",
                _ => {
                    return Err(Error::IllegalArgument(format!(
                        "key [{key}] is not supported in the metadata section"
                    )));
                }
            };
            given.retain(|(known, _)| known != name);
            given.push((name.to_owned(), text));
        }
        let params = Params::new("/_msearch".to_owned(), given);
        let request = SearchRequest::parse(params, Some(body), &named, &self.lives())?;
        Ok(Item { expression: named, request })
    }
}
