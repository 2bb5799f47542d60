//! The listeners of a server before they serve: addresses are bound, and refused where they would be open to all.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millrace_listen::{Listener, Tls};

use crate::audit::Audit;

/// Time that the end of the server waits for the audit.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Why listeners cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address cannot be listened on, or a certificate or key cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// Listeners without authentication must be on loopback.
    #[error("insecure is refused: the listener {0} is not on loopback")]
    Insecure(SocketAddr),
}

/// Addresses to listen on. Their service may need to know the addresses that were bound, and comes after.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig<'a> {
    /// Name of the listeners, for logs.
    pub name: &'static str,
    /// Addresses to bind.
    pub addresses: &'a [SocketAddr],
    /// Certificate and key.
    pub tls: Option<&'a Tls>,
    /// True if requests need no credentials.
    pub insecure: bool,
}

/// Listeners with their sockets.
#[derive(Debug)]
pub struct BoundListeners {
    /// Name of the listeners, for logs.
    pub name: &'static str,
    /// The sockets.
    pub listeners: Vec<Listener>,
    /// The addresses that were bound.
    pub addresses: Vec<SocketAddr>,
}

impl ListenerConfig<'_> {
    fn beyond_loopback(&self) -> impl Iterator<Item = &SocketAddr> {
        self.addresses.iter().filter(|address| !address.ip().is_loopback())
    }

    /// Opens all of the listeners or none.
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn bind(self) -> Result<BoundListeners, ListenError> {
        if let Some(address) = self.beyond_loopback().next().filter(|_| self.insecure) {
            return Err(ListenError::Insecure(*address));
        }
        let mut listeners = Vec::with_capacity(self.addresses.len());
        for address in self.addresses {
            let listener = Listener::bind(self.name, *address, self.tls.cloned()).await;
            listeners.push(listener.map_err(ListenError::Io)?);
        }
        for address in self.beyond_loopback().filter(|_| self.tls.is_none()) {
            tracing::warn!(
                listener = self.name,
                %address,
                "credentials are taken in clear text beyond loopback: set tls.certificate and tls.key, or listen on 127.0.0.1"
            );
        }
        let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        Ok(BoundListeners { name: self.name, listeners, addresses })
    }
}

impl BoundListeners {
    /// Returns the first address, which stands for all of them.
    pub fn address(&self) -> String {
        self.addresses.first().map_or_else(String::new, SocketAddr::to_string)
    }
}

/// The audit of a server, which writes events as they come.
#[derive(Debug)]
pub struct AuditWriter(Audit);

impl AuditWriter {
    /// Has the audit write.
    pub async fn start(audit: Audit) -> Self {
        audit.start_writing().await;
        Self(audit)
    }

    /// Writes the rest, for as long as the end may wait for it.
    pub async fn finish(&self) {
        let flushed = tokio::time::timeout(LAST_WRITE, self.0.flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("the last events of the audit were not written");
        }
    }
}
