//! The server: the data API and the management of pipelines on their listeners.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_listen::{Config, Listener, Tls, TlsFiles};
use millrace_pipelines::Manager;
use millrace_query::SearchService;
use millrace_storage::Engine;

use crate::pipelines::Management;
use crate::{Authenticator, Error, Identity, Node, Service};

/// Name of the node and of its cluster.
const NAME: &str = "millrace";

/// Bounds on what requests hold.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Longest request body in bytes, before and after decompression; beyond it requests get 413.
    pub max_content_length: u64,
    /// Bytes of the bodies of all requests that are read or answered; beyond it requests get 429.
    pub max_in_flight_bytes: u64,
    /// Longest silence within a request's body.
    pub body_timeout: Duration,
}

/// Bytes of bodies where nothing is said: no more than a quarter of the memory that there is.
fn in_flight_within(memory: u64) -> u64 {
    const USUAL: u64 = 192 << 20;
    if memory == 0 { USUAL } else { USUAL.min(memory / 4) }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_content_length: 100 << 20,
            max_in_flight_bytes: in_flight_within(crate::memory_limit()),
            body_timeout: Duration::from_secs(60),
        }
    }
}

/// What the listeners are and who may use them.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses of the data API.
    pub listen: Vec<SocketAddr>,
    /// Whether requests need no credentials; for loopback only.
    pub insecure: bool,
    /// Certificate and key, for HTTPS.
    pub tls: Option<TlsFiles>,
    /// Password of `admin`; generated at first start when absent.
    pub admin_password: Option<String>,
    /// File that a generated password is written to before it is valid.
    pub password_file: Option<PathBuf>,
    /// Greatest body accepted, in bytes.
    pub max_content_length: u64,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener cannot be opened.
    #[error("{0}")]
    Listen(io::Error),
    /// Listeners without authentication must be on loopback.
    #[error("insecure is refused: the listener {0} is not on loopback")]
    Insecure(SocketAddr),
    /// Accounts or the cluster's identity cannot be read or written.
    #[error("accounts: {0}")]
    Accounts(Error),
}

/// The data API on its listeners, and the management of pipelines on theirs.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    http: HttpConfig,
    node: Arc<Node>,
    generated_password: Option<String>,
    tls: Option<Tls>,
    management: Option<(Vec<Listener>, Arc<Management>)>,
}

impl Server {
    /// Opens accounts and listeners.
    ///
    /// # Errors
    /// An address in use or not this machine's; bad certificate or key; a failing store.
    pub async fn bind(
        config: ServerConfig,
        engine: Arc<Engine>,
        search: Arc<SearchService>,
    ) -> Result<Self, StartError> {
        let open = config.listen.iter().find(|address| !address.ip().is_loopback());
        if let Some(address) = open.filter(|_| config.insecure) {
            return Err(StartError::Insecure(*address));
        }
        let tls = config.tls.map(Tls::load).transpose().map_err(StartError::Listen)?;
        let listeners = bind("data API", &config.listen, tls.as_ref()).await?;
        let (authenticator, generated_password) = if config.insecure {
            (Authenticator::insecure(), None)
        } else {
            let password = config.admin_password.as_deref();
            let file = config.password_file.as_deref();
            Authenticator::open(&*engine, password, file, engine.clock().clone())
                .await
                .map_err(StartError::Accounts)?
        };
        let address = listeners.first().and_then(|listener| listener.local_addr().ok());
        let address = address.map_or_else(String::new, |address| address.to_string());
        let data_dir = engine.data_dir().to_owned();
        let mut identity =
            Identity::open(&*engine, NAME, NAME, data_dir, address).await.map_err(StartError::Accounts)?;
        identity.max_content_length = config.max_content_length;
        let node = Arc::new(Node::new(engine, search, authenticator, identity));
        let http = HttpConfig { max_content_length: config.max_content_length, ..HttpConfig::default() };
        Ok(Self { listeners, http, node, generated_password, tls, management: None })
    }

    /// Opens listeners for the management of pipelines, with the certificate and the users of the data API.
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn manage(
        &mut self,
        listen: Vec<SocketAddr>,
        pipelines: Arc<Manager>,
    ) -> Result<(), StartError> {
        let open = listen.iter().find(|address| !address.ip().is_loopback());
        if let Some(address) = open.filter(|_| self.node.authenticator.is_insecure()) {
            return Err(StartError::Insecure(*address));
        }
        let listeners = bind("management of pipelines", &listen, self.tls.as_ref()).await?;
        let address = listeners.first().and_then(|listener| listener.local_addr().ok());
        let address = address.map_or_else(String::new, |address| address.to_string());
        self.management = Some((listeners, Arc::new(Management::new(pipelines, address))));
        Ok(())
    }

    /// Returns the addresses on which pipelines are managed.
    pub fn management_addr(&self) -> Vec<SocketAddr> {
        let listeners = self.management.iter().flat_map(|(listeners, _)| listeners);
        listeners.filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the addresses really listened on.
    pub fn local_addr(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the administrator's password if this start generated it.
    pub fn generated_password(&self) -> Option<&str> {
        self.generated_password.as_deref()
    }

    /// Serves until `shutdown` completes, then what is under way; dropping it cuts that off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut server = millrace_listen::Server::new(Config::default().within(open_files()));
        let data = Service::new(self.node, &self.http);
        let ending = data.ending();
        if let Some((listeners, management)) = self.management {
            let manage = Arc::new(data.clone().with_management(management));
            for listener in listeners {
                server.add(listener, Arc::clone(&manage));
            }
        }
        let data = Arc::new(data);
        for listener in self.listeners {
            server.add(listener, Arc::clone(&data));
        }
        // From here on probes tell load balancers to send no more.
        let ends = async {
            shutdown.await;
            ending.store(true, Ordering::Release);
        };
        server.run(ends).await;
    }
}

/// Files that the process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

async fn bind(
    name: &'static str,
    addresses: &[SocketAddr],
    tls: Option<&Tls>,
) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(Listener::bind(name, *address, tls.cloned()).await.map_err(StartError::Listen)?);
    }
    Ok(listeners)
}
