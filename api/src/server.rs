//! Listeners and connections: TLS, HTTP/1.1 and HTTP/2, bounds in number and time, graceful drain.
//!
//! Each connection is a task. A connection without a request under way is closed after
//! `idle_timeout_secs`; at shutdown idle connections close at once, the others after their request, and
//! what still runs after `drain_timeout_secs` is cut off.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::pipelines::Management;
use crate::{Api, Authenticator, Error, Identity, Service};
use millrace_pipelines::Manager;
use millrace_query::SearchService;
use millrace_storage::Engine;

/// Time that a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the node and of its cluster.
const NAME: &str = "millrace";
/// Pause after a failed accept, which is mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of the HTTP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Longest request body in bytes, before and after decompression; beyond it requests get 413.
    pub max_content_length: u64,
    /// Bytes of the bodies of all requests that are read or answered; beyond it requests get 429.
    pub max_in_flight_bytes: u64,
    /// Longest request head in bytes; beyond it requests get 431.
    pub max_header_bytes: usize,
    /// Connections over all listeners; further ones wait in the system's queue.
    pub max_connections: usize,
    /// Requests under way on one HTTP/2 connection.
    pub max_streams: u32,
    /// Longest silence within a request's body, in seconds.
    pub body_timeout_secs: u64,
    /// Longest pause between requests of a connection, a request's head included, in seconds.
    pub idle_timeout_secs: u64,
    /// Time for requests to end at shutdown, in seconds; what runs on is cut off.
    pub drain_timeout_secs: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_content_length: 100 << 20,
            max_in_flight_bytes: 512 << 20,
            max_header_bytes: 64 << 10,
            max_connections: 4096,
            max_streams: 128,
            body_timeout_secs: 60,
            idle_timeout_secs: 120,
            drain_timeout_secs: 30,
        }
    }
}

/// Certificate and key of a listener.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file of the certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// A bound socket, with TLS or without.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("socket", &self.socket).field("tls", &self.tls.is_some()).finish()
    }
}

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    /// An address in use; unreadable or mismatching certificate and key. The text names the culprit.
    pub async fn bind(address: SocketAddr, tls: Option<&Tls>) -> io::Result<Self> {
        let tls = tls.map(acceptor).transpose()?;
        let socket = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on [{address}]: {error}"))
        })?;
        Ok(Self { socket, tls })
    }

    /// Returns the bound address, with the port that the system chose where 0 was asked for.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn acceptor(config: &Tls) -> io::Result<TlsAcceptor> {
    let bad = |file: &std::path::Path, what: &str, error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("TLS {what} [{}]: {error}", file.display()))
    };
    let chain = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(&config.certificate, "certificate", &error))?;
    if chain.is_empty() {
        return Err(bad(&config.certificate, "certificate", &"no certificate in the file"));
    }
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(|error| bad(&config.key, "key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&config.certificate, "protocol versions", &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| bad(&config.key, "key", &error))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

/// Serves requests on all listeners until `shutdown` completes, then drains.
///
/// # Errors
/// None today: accept errors are logged and retried.
pub async fn serve(
    listeners: Vec<Listener>,
    config: HttpConfig,
    api: Arc<Api>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let service = Service::new(api, &config);
    serve_with(listeners, config, service, shutdown).await
}

async fn serve_with(
    listeners: Vec<Listener>,
    config: HttpConfig,
    service: Service,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stop, stopped) = watch::channel(());
    let permits = Arc::new(Semaphore::new(config.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let drain = Duration::from_secs(config.drain_timeout_secs);
    let shared = Arc::new(Shared { builder: builder(&config), config, service });
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, shared.clone(), permits.clone(), stopped.clone()));
    }
    drop(stopped);
    shutdown.await;
    let _ = stop.send(());
    // Acceptors hold their connections: once they are done, so is everything.
    let drained = tokio::time::timeout(drain, async { while accepting.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!("requests still under way after the drain timeout are cut off");
        accepting.shutdown().await;
    }
    Ok(())
}

/// What the listeners are and who may use them.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses of the data API.
    pub listen: Vec<SocketAddr>,
    /// Whether requests need no credentials; for loopback only.
    pub insecure: bool,
    /// Certificate and key, for HTTPS.
    pub tls: Option<Tls>,
    /// Password of `admin`; generated at first start when absent.
    pub admin_password: Option<String>,
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

/// The data API on its listeners: [`serve`] with everything that it needs.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    http: HttpConfig,
    api: Arc<Api>,
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
        let mut listeners = Vec::with_capacity(config.listen.len());
        let tls = config.tls.clone();
        for address in config.listen {
            listeners.push(Listener::bind(address, config.tls.as_ref()).await.map_err(StartError::Listen)?);
        }
        let (authenticator, generated_password) = if config.insecure {
            (Authenticator::insecure(), None)
        } else {
            let password = config.admin_password.as_deref();
            Authenticator::open(&*engine, password, engine.clock().clone())
                .await
                .map_err(StartError::Accounts)?
        };
        let address = listeners.first().and_then(|listener| listener.local_addr().ok());
        let address = address.map_or_else(String::new, |address| address.to_string());
        let data_dir = engine.data_dir().to_owned();
        let mut identity =
            Identity::open(&*engine, NAME, NAME, data_dir, address).await.map_err(StartError::Accounts)?;
        identity.max_content_length = config.max_content_length;
        let api = Arc::new(Api::new(engine, search, authenticator, identity));
        // Whoever runs the server bounds the drain, by dropping it.
        let http = HttpConfig {
            max_content_length: config.max_content_length,
            drain_timeout_secs: u64::from(u32::MAX),
            ..HttpConfig::default()
        };
        Ok(Self { listeners, http, api, generated_password, tls, management: None })
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
        if let Some(address) = open.filter(|_| self.api.authenticator.is_insecure()) {
            return Err(StartError::Insecure(*address));
        }
        let mut listeners = Vec::with_capacity(listen.len());
        for address in listen {
            listeners.push(Listener::bind(address, self.tls.as_ref()).await.map_err(StartError::Listen)?);
        }
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

    /// Serves until `shutdown` completes, then drains; dropping it cuts everything off.
    ///
    /// # Errors
    /// See [`serve`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let data = Service::new(self.api, &self.http);
        let Some((listeners, management)) = self.management else {
            return serve_with(self.listeners, self.http, data, shutdown).await;
        };
        let manage = data.clone().with_management(management);
        let stop = watch::Sender::new(false);
        let stopped = |mut stopped: watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let both = async {
            let data = serve_with(self.listeners, self.http.clone(), data, stopped(stop.subscribe()));
            let manage = serve_with(listeners, self.http, manage, stopped(stop.subscribe()));
            tokio::try_join!(data, manage).map(|((), ())| ())
        };
        let stopping = async {
            shutdown.await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            served = both => served,
            () = stopping => Ok(()),
        }
    }
}

struct Shared {
    builder: Builder<TokioExecutor>,
    config: HttpConfig,
    service: Service,
}

fn builder(config: &HttpConfig) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(config.idle_timeout_secs.max(1)))
        .max_buf_size(config.max_header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .max_concurrent_streams(config.max_streams)
        .max_header_list_size(u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

async fn accept(
    listener: Listener,
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    mut stopped: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let permit = tokio::select! {
            permit = permits.clone().acquire_owned() => permit,
            _ = stopped.changed() => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (tls, shared, stopped) = (listener.tls.clone(), shared.clone(), stopped.clone());
                connections.spawn(async move {
                    let _permit = permit;
                    connect(stream, peer, tls, &shared, stopped).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: &Shared,
    stopped: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return run(stream, peer, shared, stopped).await };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => run(stream, peer, shared, stopped).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
    }
}

async fn run<S>(stream: S, peer: SocketAddr, shared: &Shared, mut stopped: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let busy = Arc::new(AtomicUsize::new(0));
    let served = service_fn({
        let (service, busy) = (shared.service.clone(), busy.clone());
        move |request: http::Request<Incoming>| {
            let (service, guard) = (service.clone(), Busy::new(busy.clone()));
            async move {
                let response = service.call(request).await;
                drop(guard);
                Ok::<_, Infallible>(response)
            }
        }
    });
    let connection = shared.builder.serve_connection(TokioIo::new(stream), served);
    tokio::pin!(connection);
    // `busy` counts requests started (upper bits) and under way: a value that stands still over a whole
    // period without any under way is an idle connection.
    let idle = Duration::from_secs(shared.config.idle_timeout_secs.max(1));
    let mut last = busy.load(Ordering::Relaxed);
    let mut deadline = Instant::now() + idle;
    let mut closing = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                return;
            }
            _ = stopped.changed(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(deadline) => {
                let now = busy.load(Ordering::Relaxed);
                if now == last && Busy::none(now) {
                    if closing {
                        return;
                    }
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                last = now;
                deadline = Instant::now() + idle;
            }
        }
    }
}

/// A request under way.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    const STARTED: usize = 1 << 16;

    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(Self::STARTED + 1, Ordering::Relaxed);
        Self(count)
    }

    fn none(count: usize) -> bool {
        count.is_multiple_of(Self::STARTED)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
