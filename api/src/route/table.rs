//! Table of routes: finds the route of a request.
//!
//! Paths are a tree of segments, so that finding one costs as much as the path is long, however many there are. At each
//! segment its word is tried first and then the parameter; where the rest does not fit, or what stands for a parameter may
//! not, the search goes back.

use std::collections::HashMap;

use http::Method;

use super::{Handler, PathParams, Route, Spec};
use crate::http::Params;
use crate::security::opensearch;

/// Every method that routes have, in the order in which they are listed.
pub(super) const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

/// Endpoints that are also valid under a type of documents, and so are no ids.
const UNDER_TYPES: [&str; 6] = ["_bulk", "_count", "_delete_by_query", "_mget", "_msearch", "_search"];

/// Parts of `_nodes` that are not served.
const NOT_NODES: [&str; 3] = ["hot_threads", "reload_secure_settings", "usage"];

/// The routes of a listener that serves an `S`.
#[derive(Debug)]
pub(crate) struct Table<S: 'static> {
    routes: Vec<Route<S>>,
    root: Branch,
}

/// The routes whose paths begin alike.
#[derive(Debug, Default)]
struct Branch {
    words: HashMap<&'static str, Branch>,
    parameter: Option<Box<Branch>>,
    /// Places of those whose paths end here, in the order of the table.
    ending: Vec<usize>,
}

/// The route of a request.
#[derive(Debug)]
pub(crate) struct RouteMatch<S: 'static> {
    pub(crate) spec: &'static Spec,
    pub(crate) handler: Handler<S>,
    pub(crate) captured: PathParams,
}

/// A search for a route.
struct Search<'a> {
    method: &'a Method,
    path: &'a [String],
    params: &'a Params,
    /// Places of routes with the path and without the method.
    others: Vec<usize>,
}

impl<S> Table<S> {
    /// Puts groups of routes together.
    pub(super) fn new(groups: impl IntoIterator<Item = Vec<Route<S>>>) -> Self {
        let routes: Vec<Route<S>> = groups.into_iter().flatten().collect();
        let mut root = Branch::default();
        for (place, route) in routes.iter().enumerate() {
            let segments: Vec<&'static str> = segments(route.spec.path).collect();
            root.insert(&segments, place);
        }
        Self { routes, root }
    }

    /// Lists the routes.
    #[cfg(test)]
    pub(crate) fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.routes.iter().map(|route| &route.spec)
    }

    /// Finds the route of a request.
    ///
    /// # Errors
    /// The methods that there are for the path, none where no route has it.
    pub(crate) fn find(
        &'static self,
        method: &Method,
        path: &[String],
        params: &Params,
    ) -> Result<RouteMatch<S>, Vec<Method>> {
        let mut search = Search { method, path, params, others: Vec::new() };
        if let Some(place) = search.within(&self.routes, &self.root, path) {
            let Route { spec, handler } = &self.routes[place];
            let captured = parameters(spec.path, path).map(|(name, segment)| (name, segment.to_owned()));
            return Ok(RouteMatch { spec, handler: *handler, captured: PathParams(captured.collect()) });
        }
        let has = |method: &&Method| {
            search.others.iter().any(|place| self.routes[*place].spec.methods.contains(method))
        };
        Err(METHODS.iter().filter(has).cloned().collect())
    }
}

impl Branch {
    fn insert(&mut self, segments: &[&'static str], place: usize) {
        let Some((first, rest)) = segments.split_first() else { return self.ending.push(place) };
        if name(first).is_some() {
            return self.parameter.get_or_insert_default().insert(rest, place);
        }
        for word in first.split('|') {
            self.words.entry(word).or_default().insert(rest, place);
        }
    }
}

impl Search<'_> {
    fn within<S>(&mut self, routes: &[Route<S>], branch: &Branch, rest: &[String]) -> Option<usize> {
        let Some((first, rest)) = rest.split_first() else {
            return branch.ending.iter().copied().find(|place| self.takes(*place, &routes[*place].spec));
        };
        let word = branch.words.get(first.as_str());
        [word, branch.parameter.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|branch| self.within(routes, branch, rest))
    }

    /// Returns whether a route with a path of this form is the one.
    fn takes(&mut self, place: usize, spec: &Spec) -> bool {
        let fits = parameters(spec.path, self.path).all(|(name, segment)| may_be(spec.path, name, segment))
            && spec.when.is_none_or(|when| (when.holds)(self.path, self.params));
        if fits && !spec.methods.contains(self.method) {
            self.others.push(place);
            return false;
        }
        fits
    }
}

/// Splits the path of a route.
pub(super) fn segments(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns the name of a parameter; `None` for a word.
pub(super) fn name(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
}

fn parameters<'p>(path: &'static str, given: &'p [String]) -> impl Iterator<Item = (&'static str, &'p str)> {
    segments(path).zip(given).filter_map(|(segment, given)| Some((name(segment)?, given.as_str())))
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
