//! `_plugins/_ism`, `_ilm` and `_plugins/_sm`: policies of indices and of snapshots. `millrace-lifecycle` does the work; here are the
//! requests and answers.

pub(crate) mod ilm;
pub(crate) mod managed;
pub(crate) mod policies;
pub(crate) mod snapshot_policies;

use millrace_catalog::access::{Caller, Principal};
use millrace_lifecycle::{Error as LifecycleError, Lifecycle};
use millrace_mapping::pattern;
use serde_json::{Value, json};

use crate::error::Error;
use crate::http::{Params, Request};
use crate::route::DataApi;

/// Policies on a page, at most.
const MAX_PAGE: usize = 10_000;
/// Policies on a page where a request does not say.
const PAGE: usize = 20;

/// Returns the policies at work.
///
/// # Errors
/// A server that has none.
pub(super) fn lifecycle(served: &DataApi) -> Result<&Lifecycle, Error> {
    let missing = || Error::new(404, "status_exception", "policies are not served here");
    served.lifecycle().ok_or_else(missing)
}

/// Turns an error of policies into the answer, by OpenSearch's names.
pub(super) fn refuse(error: LifecycleError) -> Error {
    let reason = error.to_string();
    match error {
        LifecycleError::Invalid(_) | LifecycleError::TooMany(_) => Error::illegal_argument(reason),
        LifecycleError::Notification(_) => Error::new(503, "status_exception", reason),
        LifecycleError::NotFound(_) => Error::new(404, "status_exception", reason),
        LifecycleError::Conflict(_) => Error::new(409, "version_conflict_engine_exception", reason),
        LifecycleError::ForeignSnapshot { .. } => Error::new(409, "status_exception", reason),
        LifecycleError::Snapshot(error) => super::snapshots::refuse(error),
        LifecycleError::Storage(error) => error.into(),
    }
}

/// Returns the user whose rights a policy has from now on. An API key is none: its rights may be fewer than those of its owner.
fn policy_owner(principal: &Principal) -> Option<&str> {
    match principal.caller() {
        Caller::ApiKey { .. } => None,
        _ => Some(principal.name()),
    }
}

/// Takes `if_seq_no` and `if_primary_term`.
fn condition(params: &mut Params) -> Result<Option<(u64, u64)>, Error> {
    let number = |name: &str, value: Option<i64>| match value {
        None => Ok(None),
        Some(value) => u64::try_from(value)
            .map(Some)
            .map_err(|_| Error::illegal_argument(format!("[{name}] must not be negative, got [{value}]"))),
    };
    let seq_no = number("if_seq_no", params.take_int("if_seq_no")?)?;
    let term = number("if_primary_term", params.take_int("if_primary_term")?)?;
    match (seq_no, term) {
        (Some(seq_no), Some(term)) => Ok(Some((seq_no, term))),
        (None, None) => Ok(None),
        _ => Err(Error::illegal_argument("[if_seq_no] and [if_primary_term] are given together")),
    }
}

/// Reads the body of a request that must have one.
fn required_body(request: &mut Request) -> Result<Value, Error> {
    request.json()?.ok_or_else(|| Error::new(400, "parse_exception", "request body is required"))
}

/// A page of named things, chosen by their names.
struct NamePage {
    from: usize,
    size: usize,
    descending: bool,
    query: String,
}

impl NamePage {
    /// Takes the parameters; `size` is the number on a page without one.
    fn take(params: &mut Params, size: usize) -> Result<Self, Error> {
        let count = |name: &str, value: Option<i64>, default: usize| match value {
            None => Ok(default),
            Some(value) => usize::try_from(value).ok().filter(|value| *value <= MAX_PAGE).ok_or_else(|| {
                Error::illegal_argument(format!("[{name}] must be from 0 to {MAX_PAGE}, got [{value}]"))
            }),
        };
        let from = count("from", params.take_int("from")?, 0)?;
        let size = count("size", params.take_int("size")?, size)?;
        // They are in the order of their names.
        params.take("sortField");
        let descending = match params.take("sortOrder").as_deref() {
            None | Some("asc") => false,
            Some("desc") => true,
            Some(other) => {
                return Err(Error::illegal_argument(format!("[sortOrder] is asc or desc, got [{other}]")));
            }
        };
        let query = params.take("queryString").unwrap_or_else(|| "*".to_owned());
        Ok(Self { from, size, descending, query })
    }

    /// Returns whether a name matches every word of the query. A word is one or more patterns with commas between them, of which one
    /// has to match. A hyphen before a word excludes the names that it matches, as in `* -.ds*`.
    fn matches(&self, name: &str) -> bool {
        // A text that is no pattern is looked for anywhere in a name.
        let is_meant = |text: &str| match pattern::is_wildcard(text) {
            true => pattern::matches(text, name),
            false => !text.is_empty() && name.contains(text),
        };
        self.query.split_whitespace().all(|word| match word.strip_prefix('-') {
            Some(left_out) => !left_out.split(',').any(is_meant),
            None => word.split(',').any(is_meant),
        })
    }

    /// Chooses those of the page; returns them with the number of all that match.
    fn choose<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &str) -> (Vec<T>, usize) {
        let mut matching: Vec<T> = all.into_iter().filter(|one| self.matches(name(one))).collect();
        if self.descending {
            matching.reverse();
        }
        let total = matching.len();
        (matching.into_iter().skip(self.from).take(self.size).collect(), total)
    }
}

/// Answers the deletion of a policy's document.
fn deleted(index: &str, id: &str, revision: u64, (seq_no, primary_term): (u64, u64)) -> Value {
    json!({
        "_index": index,
        "_id": id,
        "_version": revision + 1,
        "result": "deleted",
        "forced_refresh": true,
        "_shards": { "total": 1, "successful": 1, "failed": 0 },
        "_seq_no": seq_no + 1,
        "_primary_term": primary_term,
    })
}
