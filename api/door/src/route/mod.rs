//! Routes: their tables, and the macro that lists them, one line each.
//!
//! A [`Route`] says for which methods and paths it is, which [`Action`] its requests are, whether they end with their
//! client, and what answers them. The dispatcher finds it in a [`Table`] and begins a
//! [`Session`](millrace_engine::Session) of its action before the body is read: what is not in a table is not served, and
//! what is cannot be served without its action. Crates above list their routes with [`routes!`](crate::routes), and their
//! [`Router`] has the table.
//!
//! A path is made of words and parameters: `/{index}/_doc/{id}`. A segment may have several words, `_mapping|_mappings`. Words
//! come before parameters, wherever both match; what a parameter may be is said by its name ([`table`]). Where a path is not
//! enough, a route has a condition ([`RouteCondition`]). Of several routes with one path the first whose condition holds is taken.

mod router;
mod spec;
mod table;

use std::fmt;

use futures::future::BoxFuture;

pub use router::Router;
pub use spec::{PathParams, RouteCondition, Spec};
pub use table::{METHODS, ParameterCheck, RouteMatch, Table, parameter_name, segments};

use crate::error::Error;
use crate::http::{Request, Response};
use crate::node::Api;

/// The answer of a handler that is being made.
pub type HandlerFuture<'a> = BoxFuture<'a, Result<Response, Error>>;

/// Function that answers a request on a listener that serves an `S`.
pub type Handler<S> = for<'a> fn(&'a S, &'a mut Call) -> HandlerFuture<'a>;

/// A route on a listener that serves an `S`.
#[derive(Clone, Copy)]
pub struct Route<S: 'static> {
    /// Specification of the route.
    pub spec: Spec,
    /// Function that answers.
    pub handler: Handler<S>,
}

/// A request on its way to its handler.
#[derive(Debug)]
pub struct Call {
    /// The store as the principal sees it by the action of the route.
    pub api: Api,
    /// The request.
    pub request: Request,
    /// Values of the path parameters.
    pub captured: PathParams,
}

impl<S> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// Lists routes, one a line: `read`, `change`, `open` (a change that needs no credentials), `export` (a change whose body is its handler's to read, whatever its media type), or `run` (which changes nothing, but is no less than a change to who may not do
/// it), methods, path, the parameters that the handler takes, action, handler. The
/// names before the list are those under which handlers find what is served, the [`Api`] and the [`Request`].
#[macro_export]
macro_rules! routes {
    (@reads change) => { false };
    (@reads open) => { false };
    (@reads export) => { false };
    (@reads $kind:ident) => { true };
    (@raw export) => { true };
    (@raw $kind:ident) => { false };
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
            ) -> $crate::route::HandlerFuture<'a> {
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
                    reads: $crate::routes!(@reads $kind),
                    guarded: $crate::routes!(@guarded $kind),
                    open: $crate::routes!(@open $kind),
                    has_raw_body: $crate::routes!(@raw $kind),
                    when: [$(Some($when),)? None][0],
                    takes: &[$(stringify!($taken)),*],
                },
                handler,
            }
        }),*]
    };
}
