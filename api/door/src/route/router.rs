//! The routes of one listener, with the state of their handlers and the forms of its refusals.

use std::fmt;

use http::{HeaderMap, Method};

use super::{Call, HandlerFuture, RouteMatch};
use crate::error::Error;
use crate::http::{Params, Response};

/// Finds the routes of a listener's requests, and has handlers answer them.
pub trait Router: fmt::Debug + Send + Sync {
    /// Names the listener for the audit.
    fn listener(&self) -> &'static str;

    /// Finds the route of a request.
    ///
    /// # Errors
    /// The methods of the path, none where no route has it.
    fn find(&self, method: &Method, path: &[String], params: &Params) -> Result<RouteMatch, Vec<Method>>;

    /// Has the handler of a route answer; `position` is that of a match of this router.
    fn handle<'a>(&'a self, position: usize, call: &'a mut Call) -> HandlerFuture<'a>;

    /// Answers a request whose path has no route, by any method. `uri` is the request's own spelling.
    ///
    /// # Errors
    /// The refusal, in the form of this listener's interface.
    fn answer_unmatched(&self, method: &Method, path: &[String], uri: &str) -> Result<Response, Error>;

    /// Checks headers before the body is read; `guarded` tells whether a page of another host may not send the request.
    ///
    /// # Errors
    /// 400 that names the header.
    fn check_headers(&self, _guarded: bool, _headers: &HeaderMap) -> Result<(), Error> {
        Ok(())
    }

    /// Returns true if a header proves that no page of another host had a browser send the request.
    fn is_deliberate(&self, _headers: &HeaderMap) -> bool {
        false
    }

    /// Turns an error into the answer.
    fn error_response(&self, error: Error) -> Response {
        error.into_response()
    }
}
