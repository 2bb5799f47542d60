//! Every route of the server, one line each.
//!
//! A [`Route`] says for which methods and paths it is, which [`Action`] its requests are, whether they end with their
//! client, and what answers them. The dispatcher finds it in a [`Table`] and begins a
//! [`Session`](millrace_engine::Session) of its action before the body is read: what is not in a table is not served, and
//! what is cannot be served without its action. There is a file for each group of routes; [`data`] and [`management`] put them
//! together.
//!
//! A path is made of words and parameters: `/{index}/_doc/{id}`. A segment may have several words, `_mapping|_mappings`. Words
//! come before parameters, wherever both match; what a parameter may be is said by its name ([`table`]). Where a path is not
//! enough, a route has a condition ([`RouteCondition`]). Of several routes with one path the first whose condition holds is taken.

mod cat;
mod cluster;
mod console;
mod documents;
mod indices;
mod management;
mod search;
mod security;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::LazyLock;

use futures::future::BoxFuture;
use http::Method;
use millrace_catalog::access::Action;

pub(crate) use table::{RouteMatch, Table};

use crate::Api;
use crate::console::saved_objects::Store;
use crate::error::Error;
use crate::http::{Params, Request, Response};
use crate::pipelines::Management;

/// What answers a request on a listener that serves an `S`.
pub(crate) type Handler<S> = for<'a> fn(&'a S, &'a mut Call) -> BoxFuture<'a, Result<Response, Error>>;

/// A route on a listener that serves an `S`.
#[derive(Clone, Copy)]
pub(crate) struct Route<S: 'static> {
    /// What it is.
    pub(crate) spec: Spec,
    /// What answers.
    pub(crate) handler: Handler<S>,
}

/// What a route is, apart from its handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Its methods.
    pub(crate) methods: &'static [Method],
    /// Its path; names it in metrics, too.
    pub(crate) path: &'static str,
    /// What has to be allowed, and by what the store is seen.
    pub(crate) action: Action,
    /// Whether a request ends with its client; those that change something run to their end.
    pub(crate) reads: bool,
    /// Whether the console wants it to be asked for by a header that pages of elsewhere cannot send.
    pub(crate) guarded: bool,
    /// Whether it needs no credentials.
    pub(crate) open: bool,
    /// What has to hold beside the path.
    pub(crate) when: Option<RouteCondition>,
    /// Parameters of the path that the handler asks for.
    #[cfg_attr(not(test), allow(dead_code, reason = "a test compares it with the path"))]
    pub(crate) takes: &'static [&'static str],
}

/// A condition beside the path.
#[derive(Clone, Copy)]
pub(crate) struct RouteCondition {
    /// For documents: `?op_type=create`.
    pub(crate) words: &'static str,
    /// Whether it holds for the segments of a path, and the parameters.
    pub(crate) holds: fn(&[String], &Params) -> bool,
}

/// A request on its way to its handler.
#[derive(Debug)]
pub(crate) struct Call {
    /// The store as the principal sees it by the action of the route.
    pub(crate) api: Api,
    /// The request.
    pub(crate) request: Request,
    /// What stands for the parameters of the path.
    pub(crate) captured: PathParams,
}

/// What stands in a path for parameters, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathParams(Vec<(&'static str, String)>);

impl PathParams {
    /// Returns what stands for a parameter of the route's path.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        debug_assert!(found.is_some(), "the path has no parameter {name}");
        found.map_or("", |(_, segment)| segment)
    }

    /// Returns what stands for a parameter, where the route's path has it.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, segment)| segment.as_str())
    }
}

impl fmt::Debug for RouteCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

impl<S> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// Lists routes, one a line: `read`, `change`, `open` (a change that needs no credentials), or `run` (which changes nothing, but is no less than a change to who may not do
/// it), methods, path, the parameters that the handler takes, action, handler. The
/// names before the list are those under which handlers find what is served, the [`Api`] and the [`Request`].
macro_rules! routes {
    (@reads change) => { false };
    (@reads open) => { false };
    (@reads $kind:ident) => { true };
    (@open open) => { true };
    (@open $kind:ident) => { false };
    (@guarded read) => { false };
    (@guarded $kind:ident) => { true };
    (|$served:ident: $of:ty, $api:ident, $request:ident|
        $($kind:ident $($method:ident)+, $path:literal, ($($taken:ident),*)
            $action:ident $(if $when:ident)? => $answer:expr;)*) => {
        vec![$({
            fn handler<'a>(
                served: &'a $of,
                call: &'a mut $crate::route::Call,
            ) -> futures::future::BoxFuture<'a, Result<$crate::http::Response, $crate::error::Error>> {
                Box::pin(async move {
                    let $crate::route::Call { api, request, captured } = call;
                    let ($served, $api, $request) = (served, &*api, request);
                    // Not every handler needs all.
                    let _ = (&$served, &$api, &$request, &captured);
                    $(let $taken = captured.get(stringify!($taken));)*
                    $answer
                })
            }
            $crate::route::Route {
                spec: $crate::route::Spec {
                    methods: const { &[$(http::Method::$method),+] },
                    path: $path,
                    action: millrace_catalog::access::Action::$action,
                    reads: routes!(@reads $kind),
                    guarded: routes!(@guarded $kind),
                    open: routes!(@open $kind),
                    when: [$(Some($when),)? None][0],
                    takes: &[$(stringify!($taken)),*],
                },
                handler,
            }
        }),*]
    };
}
use routes;

/// Returns the routes of the data API.
pub(crate) fn data() -> &'static Table<()> {
    static DATA: LazyLock<Table<()>> = LazyLock::new(|| {
        Table::new([
            documents::routes(),
            search::routes(),
            indices::routes(),
            cluster::routes(),
            cat::routes(),
            security::routes(),
        ])
    });
    &DATA
}

/// Returns the routes of the management of pipelines.
pub(crate) fn management() -> &'static Table<Management> {
    static MANAGEMENT: LazyLock<Table<Management>> = LazyLock::new(|| Table::new([management::routes()]));
    &MANAGEMENT
}

/// Returns the routes of the console.
pub(crate) fn console() -> &'static Table<Store> {
    static CONSOLE: LazyLock<Table<Store>> = LazyLock::new(|| Table::new([console::routes()]));
    &CONSOLE
}
