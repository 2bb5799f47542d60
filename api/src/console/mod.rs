//! The console's API, on a listener of its own: saved objects, and dashboards as files.
//!
//! Every change, run and export needs the header `console-xsrf: true`, which a web page of elsewhere cannot have a browser
//! send ([`check_headers`]). Errors have the form of [`error`]. [`ROUTES`] says what there is; [`saved_objects`] keeps
//! objects, [`dashboards`] reads and writes files of them.

mod dashboards;
mod error;
pub(crate) mod saved_objects;
#[cfg(test)]
mod tests;

use http::{HeaderMap, Method};
use millrace_storage::access::Action;

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
pub(crate) use error::into_response;

/// Header that changes need, with the value `true`.
const XSRF: &str = "console-xsrf";
/// Header in which clients say their version; it changes nothing.
const VERSION: &str = "console-version";
/// Longest version of a client, in bytes.
const MAX_VERSION_BYTES: usize = 256;

/// What answers a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Find,
    BulkCreate,
    BulkGet,
    Create,
    CreateById,
    Get,
    Update,
    Delete,
    Import,
    Export,
}

/// A route of the console.
#[derive(Debug)]
struct Route {
    method: Method,
    /// Segments; `*` stands for any one, which the handler gets.
    path: &'static str,
    action: Action,
    /// Whether it needs [`XSRF`].
    guarded: bool,
    endpoint: Endpoint,
}

const fn route(
    method: Method,
    path: &'static str,
    action: Action,
    guarded: bool,
    endpoint: Endpoint,
) -> Route {
    Route { method, path, action, guarded, endpoint }
}

/// Every route; the first one that fits answers.
static ROUTES: [Route; 10] = [
    route(Method::GET, "api/saved_objects/_find", Action::GetSavedObjects, false, Endpoint::Find),
    route(
        Method::POST,
        "api/saved_objects/_bulk_create",
        Action::PutSavedObjects,
        true,
        Endpoint::BulkCreate,
    ),
    route(Method::POST, "api/saved_objects/_bulk_get", Action::GetSavedObjects, true, Endpoint::BulkGet),
    route(Method::POST, "api/saved_objects/*", Action::PutSavedObjects, true, Endpoint::Create),
    route(Method::POST, "api/saved_objects/*/*", Action::PutSavedObjects, true, Endpoint::CreateById),
    route(Method::GET, "api/saved_objects/*/*", Action::GetSavedObjects, false, Endpoint::Get),
    route(Method::PUT, "api/saved_objects/*/*", Action::PutSavedObjects, true, Endpoint::Update),
    route(Method::DELETE, "api/saved_objects/*/*", Action::PutSavedObjects, true, Endpoint::Delete),
    route(Method::POST, "api/console-app/dashboards/import", Action::PutSavedObjects, true, Endpoint::Import),
    route(Method::GET, "api/console-app/dashboards/export", Action::GetSavedObjects, true, Endpoint::Export),
];

impl Route {
    /// Returns the segments that stand for `*`; `None` for another path.
    fn captures<'p>(&self, path: &'p [String]) -> Option<Vec<&'p str>> {
        let mut captured = Vec::new();
        let mut segments = path.iter();
        for part in self.path.split('/') {
            let segment = segments.next()?;
            match part {
                "*" => captured.push(segment.as_str()),
                part if part == segment => {}
                _ => return None,
            }
        }
        segments.next().is_none().then_some(captured)
    }

    fn find<'p>(method: &Method, path: &'p [String]) -> Option<(&'static Self, Vec<&'p str>)> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let of_method = ROUTES.iter().filter(|route| route.method == *method);
        of_method.filter_map(|route| Some((route, route.captures(path)?))).next()
    }
}

/// Checks the headers of a request before its body is read.
///
/// # Errors
/// 400 that names the header.
pub(crate) fn check_headers(method: &Method, path: &[String], headers: &HeaderMap) -> Result<(), Error> {
    if headers.get(VERSION).is_some_and(|version| version.len() > MAX_VERSION_BYTES) {
        let reason = format!("header [{VERSION}] is longer than [{MAX_VERSION_BYTES}] bytes");
        return Err(Error::illegal_argument(reason));
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !changes && !Route::find(method, path).is_some_and(|(route, _)| route.guarded) {
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

/// Finds and runs the handler of a request. `uri` is the request's own spelling, for messages.
pub(crate) async fn run(api: &Api, request: &mut Request, uri: &str) -> Result<Response, Error> {
    let path = request.path.clone();
    let Some((route, captured)) = Route::find(&request.method, &path) else {
        return Err(unknown(&request.method, &path, uri));
    };
    let api = &api.doing(route.action)?;
    match (route.endpoint, captured.as_slice()) {
        (Endpoint::Find, _) => saved_objects::find(api, request).await,
        (Endpoint::BulkCreate, _) => saved_objects::bulk_create(api, request).await,
        (Endpoint::BulkGet, _) => saved_objects::bulk_get(api, request).await,
        (Endpoint::Create, [kind]) => saved_objects::create(api, request, kind, None).await,
        (Endpoint::CreateById, [kind, id]) => saved_objects::create(api, request, kind, Some(id)).await,
        (Endpoint::Get, [kind, id]) => saved_objects::get(api, request, kind, id).await,
        (Endpoint::Update, [kind, id]) => saved_objects::update(api, request, kind, id).await,
        (Endpoint::Delete, [kind, id]) => saved_objects::delete(api, request, kind, id).await,
        (Endpoint::Import, _) => dashboards::import(api, request).await,
        (Endpoint::Export, _) => dashboards::export(api, request).await,
        _ => Err(unknown(&request.method, &path, uri)),
    }
}

fn unknown(method: &Method, path: &[String], uri: &str) -> Error {
    let here = ROUTES.iter().filter(|route| route.captures(path).is_some());
    let allowed: Vec<Method> = here.map(|route| route.method.clone()).collect();
    if allowed.is_empty() {
        return Error::resource_not_found(format!("there is no [{method}] of [{uri}] here"));
    }
    Error::method_not_allowed(uri, method, &allowed)
}
