//! The routes of the management of pipelines, one line each.

use std::sync::LazyLock;

use http::Method;
use millrace_gateway::http::{Params, Response};
use millrace_gateway::route::{Call, HandlerFuture, Route, RouteMatch, Router, Table};
use millrace_gateway::{Error, routes};

use crate::{Management, how, not_found, stats};

/// Returns the routes of the management of pipelines.
pub fn management_routes() -> &'static Table<Management> {
    static MANAGEMENT: LazyLock<Table<Management>> = LazyLock::new(|| Table::new([routes()]));
    &MANAGEMENT
}

fn routes() -> Vec<Route<Management>> {
    routes! { |management: Management, api, request|
        read GET HEAD, "/", () Main => management.info(api, request);
        read GET HEAD, "/_node", () Main => management.info(api, request);
        read GET HEAD, "/_node/pipelines", () GetPipelines => management.list(api, request, how);
        read GET HEAD, "/_node/pipelines/{name}", (name) GetPipelines => management.get(api, request, name, how);
        change PUT, "/_node/pipelines/{name}", (name) PutPipelines => management.change(api, request, name).await;
        read GET HEAD, "/_node/stats/pipelines", () GetPipelines => management.list(api, request, stats);
        read GET HEAD, "/_node/stats/pipelines/{name}", (name) GetPipelines => management.get(api, request, name, stats);
        read GET HEAD, "/_node/dead_letters", () GetDeadLetters => management.dead_letters(request).await;
        change POST, "/_node/dead_letters/_replay", () PutDeadLetters => management.replay(request).await;
    }
}

impl Router for Management {
    fn listener(&self) -> &'static str {
        "management"
    }

    fn find(&self, method: &Method, path: &[String], params: &Params) -> Result<RouteMatch, Vec<Method>> {
        management_routes().find(method, path, params)
    }

    fn handle<'a>(&'a self, position: usize, call: &'a mut Call) -> HandlerFuture<'a> {
        management_routes().handle(position, self, call)
    }

    fn answer_unmatched(&self, _: &Method, _: &[String], uri: &str) -> Result<Response, Error> {
        Ok(not_found(uri, "Not Found"))
    }
}
