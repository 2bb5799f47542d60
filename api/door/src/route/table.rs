//! Table of routes: finds the route of a request.
//!
//! Paths are a tree of segments, so that finding one costs as much as the path is long, however many there are. At each
//! segment its word is tried first and then the parameter; where the rest does not fit, or what stands for a parameter may
//! not, the search goes back.

use std::collections::HashMap;

use http::Method;

use super::spec::{PathParams, Spec};
use super::{Call, HandlerFuture, Route};
use crate::http::Params;

/// Every method that routes have, in the order in which they are listed.
pub const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

/// Tells whether a segment may stand for a parameter: the path of the route, the name of the parameter, the segment.
pub type ParameterCheck = fn(&str, &str, &str) -> bool;

/// The routes of a listener that serves an `S`.
#[derive(Debug)]
pub struct Table<S: 'static> {
    routes: Vec<Route<S>>,
    root: Branch,
    may_be: ParameterCheck,
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
pub struct RouteMatch {
    /// Specification of the route.
    pub spec: &'static Spec,
    /// Position of the route in its table.
    pub position: usize,
    /// Values of the parameters of its path.
    pub captured: PathParams,
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
    /// Puts groups of routes together, whose parameters stand for any segment.
    pub fn new(groups: impl IntoIterator<Item = Vec<Route<S>>>) -> Self {
        Self::with_parameter_check(groups, |_, _, _| true)
    }

    /// Puts groups of routes together, whose parameters stand for the segments that a check takes.
    pub fn with_parameter_check(
        groups: impl IntoIterator<Item = Vec<Route<S>>>,
        may_be: ParameterCheck,
    ) -> Self {
        let routes: Vec<Route<S>> = groups.into_iter().flatten().collect();
        let mut root = Branch::default();
        for (place, route) in routes.iter().enumerate() {
            let segments: Vec<&'static str> = segments(route.spec.path).collect();
            root.insert(&segments, place);
        }
        Self { routes, root, may_be }
    }

    /// Lists the routes.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.routes.iter().map(|route| &route.spec)
    }

    /// Finds the route of a request.
    ///
    /// # Errors
    /// The methods that there are for the path, none where no route has it.
    pub fn find(
        &'static self,
        method: &Method,
        path: &[String],
        params: &Params,
    ) -> Result<RouteMatch, Vec<Method>> {
        let mut search = Search { method, path, params, others: Vec::new() };
        if let Some(position) = search.within(self, &self.root, path) {
            let Route { spec, .. } = &self.routes[position];
            let captured = parameters(spec.path, path).map(|(name, segment)| (name, segment.to_owned()));
            return Ok(RouteMatch { spec, position, captured: PathParams(captured.collect()) });
        }
        let has = |method: &&Method| {
            search.others.iter().any(|place| self.routes[*place].spec.methods.contains(method))
        };
        Err(METHODS.iter().filter(has).cloned().collect())
    }

    /// Has the handler of a route answer; `position` is that of a match.
    pub fn handle<'a>(&self, position: usize, served: &'a S, call: &'a mut Call) -> HandlerFuture<'a> {
        (self.routes[position].handler)(served, call)
    }
}

impl Branch {
    fn insert(&mut self, segments: &[&'static str], place: usize) {
        let Some((first, rest)) = segments.split_first() else { return self.ending.push(place) };
        if parameter_name(first).is_some() {
            return self.parameter.get_or_insert_default().insert(rest, place);
        }
        for word in first.split('|') {
            self.words.entry(word).or_default().insert(rest, place);
        }
    }
}

impl Search<'_> {
    fn within<S>(&mut self, table: &Table<S>, branch: &Branch, rest: &[String]) -> Option<usize> {
        let Some((first, rest)) = rest.split_first() else {
            return branch
                .ending
                .iter()
                .copied()
                .find(|place| self.takes(*place, &table.routes[*place].spec, table.may_be));
        };
        let word = branch.words.get(first.as_str());
        [word, branch.parameter.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|branch| self.within(table, branch, rest))
    }

    /// Returns whether a route with a path of this form is the one.
    fn takes(&mut self, place: usize, spec: &Spec, may_be: ParameterCheck) -> bool {
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
pub fn segments(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns the name of a parameter; `None` for a word.
pub fn parameter_name(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
}

fn parameters<'p>(path: &'static str, given: &'p [String]) -> impl Iterator<Item = (&'static str, &'p str)> {
    segments(path).zip(given).filter_map(|(segment, given)| Some((parameter_name(segment)?, given.as_str())))
}
