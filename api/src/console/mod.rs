//! The console's API, on a listener of its own: saved objects, dashboards as files, alert rules, and AI rules.
//!
//! Every change, run and export needs the header `console-xsrf: true`, which a web page of elsewhere cannot have a browser
//! send ([`check_headers`]). Errors have the form of [`error`]. `route::console` says what there is; [`saved_objects`] keeps
//! objects, [`dashboards`] reads and writes files of them, [`alerts`] and [`ai`] ask rules at work,
//! [`notifications`] says what becomes of alerts and keeps the secrets of channels.

pub(crate) mod ai;
pub(crate) mod alert_plot;
pub(crate) mod alerts;
pub(crate) mod dashboards;
mod error;
pub(crate) mod notifications;
pub(crate) mod saved_objects;
#[cfg(test)]
mod tests;

use http::HeaderMap;

use crate::error::Error;
pub(crate) use error::into_response;

/// Header that changes need, with the value `true`.
const XSRF: &str = "console-xsrf";
/// Header in which clients say their version; it changes nothing.
const VERSION: &str = "console-version";
/// Longest version of a client, in bytes.
const MAX_VERSION_BYTES: usize = 256;

/// Checks the headers of a request before its body is read; `guarded` says whether it has to be told from a page's.
///
/// # Errors
/// 400 that names the header.
pub(crate) fn check_headers(guarded: bool, headers: &HeaderMap) -> Result<(), Error> {
    if headers.get(VERSION).is_some_and(|version| version.len() > MAX_VERSION_BYTES) {
        let reason = format!("header [{VERSION}] is longer than [{MAX_VERSION_BYTES}] bytes");
        return Err(Error::illegal_argument(reason));
    }
    if !guarded {
        return Ok(());
    }
    let given = headers.get(XSRF).map(|value| value.as_bytes().trim_ascii());
    let problem = match given {
        Some(b"true") => return Ok(()),
        Some(_) => "has another value",
        None => "is missing",
    };
    Err(Error::illegal_argument(format!(
        "header [{XSRF}] {problem}: changes, runs and exports need [{XSRF}: true]"
    )))
}
