//! The request of `_delete_by_query`: its parameters and its body.

use std::time::Duration;

use millrace_dsl::body::SearchBody;
use millrace_dsl::json;
use millrace_dsl::params::{Params, Scope};
use millrace_dsl::query::Query;
use millrace_dsl::sort::{self, SortKey};
use millrace_work::error::{Error, Result};
use serde_json::Value;

/// Documents of one batch where the request does not say.
const BATCH: usize = 1_000;
/// Most documents of one batch.
const MAX_BATCH: usize = 10_000;
/// Most slices.
const MAX_SLICES: u64 = 1_024;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) query: Query,
    pub(super) sort: Vec<SortKey>,
    pub(super) max_docs: Option<u64>,
    pub(super) proceed: bool,
    pub(super) batch: usize,
    pub(super) slices: u64,
    /// Documents a second; negative is without bound.
    pub(super) per_second: f64,
    pub(super) refresh: bool,
    pub(super) timeout: Duration,
    pub(super) terminate_after: u64,
    pub(super) scope: Scope,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// Parameters or a body that make no deletion.
    pub(super) fn parse(mut params: Params, body: Option<&Value>) -> Result<Self> {
        let (mut query, mut max_docs, mut batch, mut sort) = (None, None, None, Vec::new());
        let mut proceed = None;
        if let Some(body) = body {
            let mut rest = body.as_object().cloned().ok_or_else(|| {
                Error::Parsing(format!("Expected [START_OBJECT] but found [{}]", json::token(body)))
            })?;
            if let Some(value) = rest.remove("max_docs") {
                max_docs = Some(json::integer(&value)?);
            }
            if let Some(value) = rest.remove("conflicts") {
                proceed = Some(conflicts(&json::text(&value).unwrap_or_default())?);
            }
            for (key, text) in [
                ("stored_fields", "stored_fields is not supported in this context"),
                ("_source", "_source is not supported in this context"),
                ("from", "from is not supported in this context"),
                ("search_after", "search_after is not supported in this context"),
            ] {
                if rest.contains_key(key) {
                    return Err(Error::Validation(text.to_owned()));
                }
            }
            let parsed = SearchBody::parse(&Value::Object(rest))?;
            if parsed.slice.is_some() {
                return Err(Error::IllegalArgument(
                    "[slice] of one part is not supported, use [slices]".to_owned(),
                ));
            }
            (query, batch, sort) = (parsed.query, parsed.size, parsed.sort);
        }
        if let Some(from_uri) = params.uri_query()? {
            query = Some(from_uri);
        }
        // The old name of `max_docs`.
        if let Some(number) = params.integer("size")? {
            max_docs = Some(number);
        }
        if let Some(number) = params.integer("max_docs")? {
            if max_docs.is_some_and(|other| other != number) {
                return Err(Error::IllegalArgument(format!(
                    "[max_docs] set to two different values [{}] and [{number}]",
                    max_docs.unwrap_or_default()
                )));
            }
            max_docs = Some(number);
        }
        let max_docs = max_docs
            .filter(|number| *number != -1)
            .map(|number| {
                u64::try_from(number).map_err(|_| {
                    Error::Validation(format!("[max_docs] parameter cannot be negative, found [{number}]"))
                })
            })
            .transpose()?;
        if let Some(size) = params.integer("scroll_size")? {
            batch = Some(millrace_dsl::body::size(size)?);
        }
        let batch = batch.unwrap_or(BATCH);
        if batch == 0 || batch > MAX_BATCH {
            return Err(Error::IllegalArgument(format!(
                "Batch size is too large, size must be less than or equal to: [{MAX_BATCH}] but was [{batch}]"
            )));
        }
        let slices = slices(params.take("slices").as_deref())?;
        if let Some(max_docs) = max_docs
            && max_docs < slices
        {
            return Err(Error::Validation(format!(
                "[max_docs] should be >= [slices], found max_docs [{max_docs}] and slices [{slices}]"
            )));
        }
        if let Some(text) = params.take("conflicts") {
            proceed = Some(conflicts(&text)?);
        }
        if let Some(text) = params.take("sort") {
            sort.extend(sort::parse_param(&text)?);
        }
        let request = Self {
            query: query.ok_or_else(|| Error::Validation("query is missing".to_owned()))?,
            sort,
            max_docs,
            proceed: proceed.unwrap_or(false),
            batch,
            slices,
            per_second: per_second(params.take("requests_per_second").as_deref())?,
            refresh: params.boolean("refresh")?.unwrap_or(false),
            timeout: Duration::from_millis(params.time("timeout")?.flatten().unwrap_or(60_000)),
            terminate_after: match params.integer("terminate_after")? {
                None => 0,
                Some(number) => millrace_dsl::body::terminate_after(number)?,
            },
            scope: params.scope()?,
        };
        params.take("wait_for_active_shards");
        params.boolean("request_cache")?;
        params.time("scroll")?;
        params.time("search_timeout")?;
        params.take("search_type");
        params.finish()?;
        Ok(request)
    }
}

fn conflicts(text: &str) -> Result<bool> {
    match text {
        "proceed" => Ok(true),
        "abort" => Ok(false),
        other => Err(Error::IllegalArgument(format!(
            "conflicts may only be \"proceed\" or \"abort\" but was [{other}]"
        ))),
    }
}

fn slices(text: Option<&str>) -> Result<u64> {
    match text {
        None | Some("auto") => Ok(1),
        Some(text) => match text.parse::<u64>() {
            Ok(slices @ 1..=MAX_SLICES) => Ok(slices),
            Ok(slices) if slices > MAX_SLICES => Err(Error::IllegalArgument(format!(
                "The number of slices [{slices}] is too large. It must be less than [{MAX_SLICES}]."
            ))),
            _ => Err(Error::IllegalArgument(
                "[slices] must be a positive integer or the string \"auto\"".to_owned(),
            )),
        },
    }
}

fn per_second(text: Option<&str>) -> Result<f64> {
    let Some(text) = text else { return Ok(-1.0) };
    match text.parse::<f64>() {
        Ok(-1.0) => Ok(-1.0),
        Ok(rate) if rate > 0.0 => Ok(rate),
        _ => Err(Error::IllegalArgument(
            "[requests_per_second] must be a float greater than 0. Use -1 to disable throttling.".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_validated() {
        let all = json!({"query": {"match_all": {}}});
        let refused = |params: &[(&str, &str)], body: &Value| {
            let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let params = Params::new("/t/_delete_by_query".to_owned(), params);
            Request::parse(params, Some(body)).unwrap_err().to_string()
        };
        let texts = [
            refused(&[], &json!({})),
            refused(&[("max_docs", "-4")], &all),
            refused(&[("size", "-4")], &all),
            refused(&[("max_docs", "1"), ("slices", "2")], &all),
            refused(&[("slices", "junk")], &all),
            refused(&[("requests_per_second", "0")], &all),
            refused(&[("requests_per_second", "unlimited")], &all),
            refused(&[("conflicts", "ask")], &all),
            refused(&[], &json!({"stored_fields": ["_id"]})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
        Validation Failed: 1: query is missing;
        Validation Failed: 1: [max_docs] parameter cannot be negative, found [-4];
        Validation Failed: 1: [max_docs] parameter cannot be negative, found [-4];
        Validation Failed: 1: [max_docs] should be >= [slices], found max_docs [1] and slices [2];
        [slices] must be a positive integer or the string "auto"
        [requests_per_second] must be a float greater than 0. Use -1 to disable throttling.
        [requests_per_second] must be a float greater than 0. Use -1 to disable throttling.
        conflicts may only be "proceed" or "abort" but was [ask]
        Validation Failed: 1: stored_fields is not supported in this context;
        "#);
    }
}
