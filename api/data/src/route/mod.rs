//! The routes of the data API, one line each; there is a file for each group of them.

mod cat;
mod cluster;
mod documents;
mod indices;
mod ingest;
mod lifecycle;
mod otlp;
mod search;
mod security;
mod snapshots;

use std::sync::LazyLock;

use http::Method;
use millrace_gateway::otlp::OtlpConfig;
use millrace_gateway::route::{Call, HandlerFuture, Route, RouteCondition, RouteMatch, Router, Table};
use millrace_gateway::routes;
use millrace_lifecycle::Lifecycle;
use millrace_snapshot::SnapshotService;

pub use otlp::OtlpApi;

use crate::error::Error;
use crate::http::{Params, Response};
use crate::ingest::IngestService;
use crate::security::opensearch;

/// Endpoints that are under a type of documents as well, and so are no ids.
const UNDER_TYPES: [&str; 6] = ["_bulk", "_count", "_delete_by_query", "_mget", "_msearch", "_search"];

/// Parts of `_nodes` that are not served.
const NOT_NODES: [&str; 3] = ["hot_threads", "reload_secure_settings", "usage"];

/// Returns the routes of the data API.
pub fn data() -> &'static Table<DataApi> {
    static DATA: LazyLock<Table<DataApi>> = LazyLock::new(|| {
        let groups = [
            documents::routes(),
            search::routes(),
            indices::routes(),
            cluster::routes(),
            cat::routes(),
            security::routes(),
            snapshots::routes(),
            lifecycle::routes(),
            otlp::routes(),
            ingest::routes(),
        ];
        Table::with_parameter_check(groups, may_be)
    });
    &DATA
}

/// The router of the data API. Beside what every handler gets, its handlers share the services of snapshots and of ingest
/// pipelines, and the policies at work.
#[derive(Clone, Debug, Default)]
pub struct DataApi {
    snapshots: Option<SnapshotService>,
    lifecycle: Option<Lifecycle>,
    otlp: OtlpConfig,
    ingest: Option<IngestService>,
}

impl DataApi {
    /// Serves snapshots, too.
    #[must_use]
    pub fn with_snapshots(self, snapshots: SnapshotService) -> Self {
        Self { snapshots: Some(snapshots), ..self }
    }

    /// Serves policies of indices and of snapshots, too.
    #[must_use]
    pub fn with_lifecycle(self, lifecycle: Lifecycle) -> Self {
        Self { lifecycle: Some(lifecycle), ..self }
    }

    /// Returns the policies at work, if there are some.
    pub(crate) fn lifecycle(&self) -> Option<&Lifecycle> {
        self.lifecycle.as_ref()
    }

    /// Makes documents of OpenTelemetry's logs by these settings.
    #[must_use]
    pub fn with_otlp(self, otlp: OtlpConfig) -> Self {
        Self { otlp, ..self }
    }

    /// Returns the settings for OpenTelemetry's logs.
    pub(crate) fn otlp(&self) -> &OtlpConfig {
        &self.otlp
    }

    /// Serves ingest pipelines, too.
    #[must_use]
    pub fn with_ingest(self, ingest: IngestService) -> Self {
        Self { ingest: Some(ingest), ..self }
    }

    /// Returns the service of ingest pipelines.
    ///
    /// # Errors
    /// The listener does not serve them.
    pub(crate) fn ingest(&self) -> Result<&IngestService, Error> {
        self.ingest
            .as_ref()
            .ok_or_else(|| Error::new(503, "unavailable_exception", "ingest pipelines are not served here"))
    }

    /// Returns the service of snapshots, if there is one.
    pub(crate) fn snapshots(&self) -> Option<&SnapshotService> {
        self.snapshots.as_ref()
    }
}

impl Router for DataApi {
    fn listener(&self) -> &'static str {
        "data"
    }

    fn find(&self, method: &Method, path: &[String], params: &Params) -> Result<RouteMatch, Vec<Method>> {
        data().find(method, path, params)
    }

    fn handle<'a>(&'a self, position: usize, call: &'a mut Call) -> HandlerFuture<'a> {
        data().handle(position, self, call)
    }

    fn answer_unmatched(&self, method: &Method, path: &[String], uri: &str) -> Result<Response, Error> {
        match path {
            // Who creates or deletes what one segment names means an index.
            [name] if matches!(*method, Method::PUT | Method::DELETE) => {
                let reason = format!("Invalid index name [{name}], must not start with '_', '-', or '+'");
                Err(Error::invalid_index_name(name, reason))
            }
            _ => Err(Error::no_handler(uri, method)),
        }
    }
}

/// Returns whether a segment may stand for a parameter of a name in a path.
fn may_be(path: &str, name: &str, segment: &str) -> bool {
    let plain = || !segment.starts_with('_');
    match name {
        // What begins with `_` is an endpoint, known or not, but for the words for all.
        "index" => plain() || segment == "_all" || segment.starts_with("_all,"),
        "doc_type" => plain(),
        "any_type" => plain() || matches!(segment, "_all" | "_doc"),
        "id" if path.starts_with("/{index}/") => !UNDER_TYPES.contains(&segment),
        "kind" => opensearch::Kind::new(segment).is_some(),
        "nodes" | "parts" => !NOT_NODES.contains(&segment),
        _ => true,
    }
}
