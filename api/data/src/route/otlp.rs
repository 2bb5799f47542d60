//! Logs of OpenTelemetry, on the data listener and on a listener of their own.

use std::sync::LazyLock;

use http::Method;
use millrace_gateway::otlp::OtlpConfig;
use millrace_gateway::route::{Call, HandlerFuture, RouteMatch, Router, Table};

use super::{DataApi, Route, routes};
use crate::error::Error;
use crate::http::{Params, Response};
use crate::otlp;

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        export POST, "/v1/logs", () Bulk => otlp::export(served.otlp(), api, request).await;
    }
}

/// The router of listeners for OpenTelemetry alone.
#[derive(Clone, Debug, Default)]
pub struct OtlpApi {
    config: OtlpConfig,
}

impl OtlpApi {
    /// Makes documents by these settings.
    pub fn new(config: OtlpConfig) -> Self {
        Self { config }
    }
}

fn table() -> &'static Table<OtlpApi> {
    static TABLE: LazyLock<Table<OtlpApi>> = LazyLock::new(|| {
        let routes: Vec<Route<OtlpApi>> = routes! { |served: OtlpApi, api, request|
            export POST, "/v1/logs", () Bulk => otlp::export(&served.config, api, request).await;
        };
        Table::new([routes])
    });
    &TABLE
}

impl Router for OtlpApi {
    fn listener(&self) -> &'static str {
        "otlp"
    }

    fn find(&self, method: &Method, path: &[String], params: &Params) -> Result<RouteMatch, Vec<Method>> {
        table().find(method, path, params)
    }

    fn handle<'a>(&'a self, position: usize, call: &'a mut Call) -> HandlerFuture<'a> {
        table().handle(position, self, call)
    }

    fn answer_unmatched(&self, method: &Method, path: &[String], uri: &str) -> Result<Response, Error> {
        match path {
            [version, signal] if version == "v1" && matches!(signal.as_str(), "traces" | "metrics") => {
                let reason = format!("signal [{signal}] is not stored: this server takes logs, at /v1/logs");
                Err(Error::new(404, "illegal_argument_exception", reason))
            }
            _ => Err(Error::no_handler(uri, method)),
        }
    }
}
