//! The routes of the console, one line each.

mod console;

use std::sync::LazyLock;

use http::{HeaderMap, Method};
use millrace_gateway::route::{Call, HandlerFuture, Route, RouteMatch, Router, Table};
use millrace_gateway::routes;

use crate::error::Error;
use crate::http::{Params, Response};
use crate::{Console, check_headers, error};

/// Returns the routes of the console.
pub fn console() -> &'static Table<Console> {
    static CONSOLE: LazyLock<Table<Console>> = LazyLock::new(|| Table::new([console::routes()]));
    &CONSOLE
}

impl Router for Console {
    fn listener(&self) -> &'static str {
        "console"
    }

    fn find(&self, method: &Method, path: &[String], params: &Params) -> Result<RouteMatch, Vec<Method>> {
        console().find(method, path, params)
    }

    fn handle<'a>(&'a self, position: usize, call: &'a mut Call) -> HandlerFuture<'a> {
        console().handle(position, self, call)
    }

    fn answer_unmatched(&self, method: &Method, _: &[String], uri: &str) -> Result<Response, Error> {
        Err(Error::resource_not_found(format!("there is no [{method}] of [{uri}] here")))
    }

    fn check_headers(&self, guarded: bool, headers: &HeaderMap) -> Result<(), Error> {
        check_headers(guarded, headers)
    }

    fn is_deliberate(&self, headers: &HeaderMap) -> bool {
        check_headers(true, headers).is_ok()
    }

    fn error_response(&self, error: Error) -> Response {
        error::into_response(error)
    }
}
