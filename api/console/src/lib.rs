//! The console's API, on a listener of its own: saved objects, dashboards as files, alert rules, and AI rules.
//!
//! Every change, run and export needs the header `console-xsrf: true`, which a web page of elsewhere cannot have a browser
//! send ([`check_headers`]). Errors have the form of [`error`]. `route::console` says what there is; `millrace-saved-objects`
//! keeps objects and files of dashboards, [`alerts`] and [`ai`] ask rules at work,
//! [`notifications`] says what becomes of alerts and keeps the secrets of channels.

mod ai;
mod alert_plot;
mod alerts;
mod error;
mod notifications;
mod route;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ::http::HeaderMap;
use millrace_alerting::Alerting;
use millrace_engine::Engine;
use millrace_gateway::{Api, DeniedRule, FaultSource, http};
use millrace_intelligence::Intelligence;
use millrace_notifications::Notifications;
use millrace_query::SearchService;
use millrace_saved_objects::SavedObjectStore;

pub use route::console as console_routes;

use crate::error::Error;

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

/// The router of the console, with what its handlers share.
#[derive(Clone, Debug)]
pub struct Console {
    objects: SavedObjectStore,
    alerting: Option<Alerting>,
    intelligence: Option<Intelligence>,
}

impl Console {
    /// Makes the console of a server that has no rules at work.
    pub fn new(engine: &Arc<Engine>, search: &Arc<SearchService>) -> Self {
        Self { objects: SavedObjectStore::new(engine, search), alerting: None, intelligence: None }
    }

    /// Serves alert rules and notifications, too.
    #[must_use]
    pub fn with_alerting(self, alerting: Alerting) -> Self {
        Self { alerting: Some(alerting), ..self }
    }

    /// Serves AI rules, too.
    #[must_use]
    pub fn with_intelligence(self, intelligence: Intelligence) -> Self {
        Self { intelligence: Some(intelligence), ..self }
    }

    /// Returns the alert rules at work.
    ///
    /// # Errors
    /// 503 where the server has none.
    fn alerting(&self) -> Result<&Alerting, Error> {
        let none = || Error::new(503, "unavailable_exception", "this server evaluates no rules");
        self.alerting.as_ref().ok_or_else(none)
    }

    /// Returns the AI rules at work.
    ///
    /// # Errors
    /// As [`Console::alerting`].
    fn intelligence(&self) -> Result<&Intelligence, Error> {
        let none = || Error::new(503, "unavailable_exception", "this server runs no AI rules");
        self.intelligence.as_ref().ok_or_else(none)
    }

    /// Returns the notifications of alerts.
    ///
    /// # Errors
    /// As [`Console::alerting`].
    fn notifications(&self) -> Result<&Notifications, Error> {
        let none = || Error::new(503, "unavailable_exception", "this server sends no notifications");
        self.alerting()?.notifications().ok_or_else(none)
    }
}

impl FaultSource for Console {
    fn faults(&self) -> Vec<String> {
        let mut faults = self.alerting.as_ref().map(Alerting::faults).unwrap_or_default();
        faults.extend(self.intelligence.iter().flat_map(Intelligence::faults));
        faults
    }
}
