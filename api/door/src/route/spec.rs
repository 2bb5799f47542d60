//! The description of a route, apart from its handler, and the parameters that its path captured.

use std::fmt;

use http::Method;
use millrace_catalog::access::Action;

use crate::http::Params;

/// The description of a route, apart from its handler.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its methods.
    pub methods: &'static [Method],
    /// Its path; names it in metrics, too.
    pub path: &'static str,
    /// Required action, which also selects the view of the store.
    pub action: Action,
    /// `true` if a request ends with its client; those that change something run to their end.
    pub reads: bool,
    /// `true` if the console wants it to be asked for by a header that pages of elsewhere cannot send.
    pub guarded: bool,
    /// `true` if it needs no credentials.
    pub open: bool,
    /// `true` if its handler reads the body by the media type that the client gave.
    pub has_raw_body: bool,
    /// Condition beside the path.
    pub when: Option<RouteCondition>,
    /// Parameters of the path that the handler asks for; a test compares them with the path.
    pub takes: &'static [&'static str],
}

/// A condition beside the path.
#[derive(Clone, Copy)]
pub struct RouteCondition {
    /// For documents: `?op_type=create`.
    pub words: &'static str,
    /// Predicate over the segments of a path, and the parameters.
    pub holds: fn(&[String], &Params) -> bool,
}

/// Values of a path's parameters, by their names.
#[derive(Clone, Debug, Default)]
pub struct PathParams(pub(super) Vec<(&'static str, String)>);

impl PathParams {
    /// Returns the value of a parameter of the route's path.
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        debug_assert!(found.is_some(), "the path has no parameter {name}");
        found.map_or("", |(_, segment)| segment)
    }

    /// Lists the parameters of the route's path and what stands for them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, segment)| (*name, segment.as_str()))
    }

    /// Returns the value of a parameter, where the route's path has it.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, segment)| segment.as_str())
    }
}

impl fmt::Debug for RouteCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}
