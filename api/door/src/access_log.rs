//! Records of requests: counts and durations, and a line of the access log where the configuration asks for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use millrace_accounts::Credentials;
use millrace_runtime::Instant;

use crate::entry::address_of;
use crate::node::Node;
use crate::tasks::opaque_id;

/// Longest path of a line in bytes; the rest of a longer one is left out.
const MAX_PATH_BYTES: usize = 512;
/// Status of a request whose client went away before its answer, as proxies note it.
const CLIENT_GONE: u16 = 499;

/// The part of a line that is known before the answer.
#[derive(Debug)]
struct AccessLine {
    method: String,
    path: String,
    address: IpAddr,
    /// Name that the request shows, whether it proves it or not.
    user: Option<String>,
    opaque_id: Option<Arc<str>>,
}

/// A request on its way: counted and logged when it is dropped, also where its client goes away first.
#[derive(Debug)]
pub struct RequestRecord {
    node: Arc<Node>,
    listener: &'static str,
    line: Option<AccessLine>,
    began: Instant,
    /// Path of the route, once there is one.
    pub(crate) route: Option<&'static str>,
    /// Status of the answer; [`CLIENT_GONE`] until there is one.
    pub(crate) status: u16,
}

impl RequestRecord {
    /// Begins the record of a request, with its line of the access log where that is wanted.
    pub(crate) fn new(node: &Arc<Node>, listener: &'static str, head: &Parts) -> Self {
        let line = node.operation.access_log.then(|| AccessLine::new(head));
        let node = Arc::clone(node);
        Self { node, listener, line, began: Instant::now(), route: None, status: CLIENT_GONE }
    }

    /// Sets the path of the route, with its parameters in braces.
    pub fn set_route(&mut self, route: &'static str) {
        self.route = Some(route);
    }

    /// Sets the status of the answer. Without one the client went away first.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let Self { node, listener, line, began, route, status } = self;
        let took = began.elapsed();
        node.requests.record(listener, *route, *status, took);
        if let Some(line) = line {
            line.write(listener, *route, *status, took);
        }
    }
}

impl AccessLine {
    /// Takes note of a request. Parameters are left out: they may have secrets.
    fn new(head: &Parts) -> Self {
        let path = head.uri.path();
        let user = match Credentials::read(&head.headers) {
            Ok(Some(Credentials::Basic { name, .. })) => Some(name),
            _ => None,
        };
        Self {
            method: head.method.to_string(),
            path: path[..path.floor_char_boundary(MAX_PATH_BYTES)].to_owned(),
            address: address_of(head),
            user,
            opaque_id: opaque_id(&head.headers),
        }
    }

    /// Writes the line of a request that has ended.
    fn write(&self, listener: &str, route: Option<&str>, status: u16, took: Duration) {
        tracing::info!(
            target: "access",
            listener,
            method = self.method,
            path = self.path,
            route,
            status,
            took_ms = took.as_millis() as u64,
            address = %self.address,
            user = self.user,
            opaque_id = self.opaque_id.as_deref(),
            "request"
        );
    }
}
