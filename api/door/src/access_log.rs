//! The access log: a line for each request, where the configuration asks for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use millrace_accounts::Credentials;

use crate::entry::address_of;
use crate::tasks::opaque_id;

/// Longest path of a line in bytes; the rest of a longer one is left out.
const MAX_PATH_BYTES: usize = 512;

/// The part of a line that is known before the answer.
#[derive(Debug)]
pub(crate) struct AccessLine {
    method: String,
    path: String,
    address: IpAddr,
    /// Name that the request shows, whether it proves it or not.
    user: Option<String>,
    opaque_id: Option<Arc<str>>,
}

impl AccessLine {
    /// Takes note of a request. Parameters are left out: they may have secrets.
    pub(crate) fn new(head: &Parts) -> Self {
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

    /// Writes the line of a request that was answered.
    pub(crate) fn write(&self, listener: &str, route: Option<&str>, status: u16, took: Duration) {
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
