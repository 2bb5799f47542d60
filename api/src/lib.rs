//! Protocols of Millrace. Stand-in: binds its listeners and answers nothing yet.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_query::SearchService;
use millrace_storage::Engine;

/// What the listeners are and who may use them.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses of the data API.
    pub listen: Vec<SocketAddr>,
    /// Whether requests need no credentials; refused off loopback.
    pub insecure: bool,
    /// Certificate and key, for HTTPS.
    pub tls: Option<Tls>,
    /// Password of `admin`; generated at first start when absent.
    pub admin_password: Option<String>,
    /// Greatest body accepted, in bytes.
    pub max_content_length: u64,
}

/// PEM files of a listener.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What can go wrong with a listener.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's answer.
        source: std::io::Error,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<tokio::net::TcpListener>,
    generated_password: Option<String>,
}

impl Server {
    /// Opens the listeners.
    ///
    /// # Errors
    ///
    /// An address is taken or not this machine's.
    pub async fn bind(
        config: ServerConfig,
        _engine: Arc<Engine>,
        _search: Arc<SearchService>,
    ) -> Result<Self, Error> {
        let mut listeners = Vec::new();
        for address in config.listen {
            let listener = tokio::net::TcpListener::bind(address)
                .await
                .map_err(|source| Error::Bind { address, source })?;
            listeners.push(listener);
        }
        Ok(Self { listeners, generated_password: None })
    }

    /// Returns the addresses really listened on.
    pub fn local_addr(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the administrator's password if this start generated it.
    pub fn generated_password(&self) -> Option<&str> {
        self.generated_password.as_deref()
    }

    /// Serves until `shutdown` completes, then drains.
    ///
    /// # Errors
    ///
    /// A listener failed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        shutdown.await;
        Ok(())
    }
}
