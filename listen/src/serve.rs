//! Listeners, and what they serve.
//!
//! A [`Server`] is a list of [`Listener`]s, each with a [`Service`] of its own, under one bound on connections.
//! Who runs a single listener and wants its socket back, as an input that is reloaded, uses the [`Acceptor`].

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::{ConnectionPermit, Connections};
use crate::byte_stream::{self, StreamService};
use crate::connection::{self, Connection};
use crate::own_thread::OwnThread;
use crate::tls::Tls;

/// Pause after a failed accept, which is mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds on connections.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections over all listeners. Beyond it idle ones are closed, those idle longest first; where none is
    /// idle, further ones wait.
    pub max_connections: usize,
    /// Connections of one client address (IPv6: network of 64 bits). Beyond it idle ones of that address are
    /// closed; where none is idle, further ones are closed at once.
    pub max_connections_per_address: usize,
    /// Longest request head of HTTP/1.1 in bytes, at least 8 KiB; beyond it requests get 431.
    pub max_header_bytes: usize,
    /// Longest request head of HTTP/2: there are [`Config::max_streams`] of a connection.
    pub max_http2_header_bytes: usize,
    /// Requests under way on one HTTP/2 connection.
    pub max_streams: u32,
    /// Longest time from the first byte of a request's head to its last.
    pub head_timeout: Duration,
    /// Longest pause between requests, and before the first.
    pub idle_timeout: Duration,
    /// Longest time in which a client takes nothing (less than a kilobyte) of its answer.
    pub write_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_address: 1024,
            max_header_bytes: 64 << 10,
            max_http2_header_bytes: 16 << 10,
            max_streams: 32,
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// Files that are not for connections: of the store, and what searches and pipelines open.
const OTHER_FILES: u64 = 512;
/// Listeners of the process that have bounds of their own: the servers' and those of pipelines.
const ACCEPTORS: u64 = 2;
/// Connections that there may be however few files.
const FEW: u64 = 64;

impl Config {
    /// Returns it with bounds on connections that fit a process which may have so many files open.
    #[must_use]
    pub fn within(mut self, open_files: u64) -> Self {
        // Half of what is left: each search and each upload opens files, too.
        let most = (open_files.saturating_sub(OTHER_FILES) / 2 / ACCEPTORS).max(FEW);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if most < self.max_connections {
            self.max_connections_per_address = self.max_connections_per_address.min(most.div_ceil(4));
            self.max_connections = most;
        }
        self
    }

    /// Returns the interval between two looks at a connection.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.head_timeout.min(self.idle_timeout).min(self.write_timeout);
        (shortest / 4).max(Duration::from_millis(1))
    }
}

/// The address of a request's client, an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    /// The body of answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static;

    /// Answers a request, whose extensions have its [`Peer`] and the [`ClientCertificate`](crate::ClientCertificate)
    /// that TLS verified, if any. The future is dropped where the client goes away.
    fn call(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Returns the time that a client may leave an answer unread that has begun, where that is longer than
    /// [`Config::write_timeout`].
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// A bound socket, with TLS or without.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    tls: Option<Tls>,
}

impl Listener {
    /// Binds an address; the name is for logs.
    ///
    /// # Errors
    /// An address in use or not this machine's. The text names it.
    pub async fn bind(name: &'static str, address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on [{address}]: {error}"))
        })?;
        Ok(Self::of_socket(name, socket, tls))
    }

    /// Makes it of a socket that listens.
    pub fn of_socket(name: &'static str, socket: TcpListener, tls: Option<Tls>) -> Self {
        Self { name, socket, tls }
    }

    /// Gives the socket back; connections that arrive wait in the system's queue.
    pub fn into_socket(self) -> TcpListener {
        self.socket
    }

    /// Returns the bound address, with the port that the system chose where 0 was asked for.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Accepts connections within bounds; its clones share them.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<Config>,
    builder: Arc<Builder<TokioExecutor>>,
    connections: Connections,
}

/// Connections that end after the requests under way. Dropping it cuts them off.
#[derive(Debug)]
#[must_use = "dropping it cuts requests off"]
pub struct DrainGuard(JoinSet<()>);

impl DrainGuard {
    /// Waits until all connections have ended.
    pub async fn done(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl Acceptor {
    /// Makes one with these bounds.
    pub fn new(config: Config) -> Self {
        let builder = Arc::new(connection::builder(&config));
        let connections = Connections::new(config.max_connections, config.max_connections_per_address);
        Self { config: Arc::new(config), builder, connections }
    }

    /// Serves a listener's connections until `stop` completes. Dropping the future cuts them off.
    pub async fn accept<S: Service>(
        &self,
        listener: &Listener,
        service: Arc<S>,
        stop: impl Future<Output = ()>,
    ) -> DrainGuard {
        self.accept_each(listener, stop, |accepted, stopped| {
            let (this, tls, service) = (self.clone(), listener.tls.clone(), Arc::clone(&service));
            async move {
                let AcceptedSocket { socket, peer, permit } = accepted;
                let activity = Arc::clone(&permit.activity);
                let (builder, config) = (&*this.builder, &*this.config);
                Connection { peer, activity, builder, config, service }
                    .serve(socket, tls.as_ref(), stopped)
                    .await;
                drop(permit);
            }
        })
        .await
    }

    /// Serves a listener's connections by a protocol other than HTTP until `stop` completes. Dropping the future cuts them off.
    pub async fn accept_streams<S: StreamService>(
        &self,
        listener: &Listener,
        service: Arc<S>,
        stop: impl Future<Output = ()>,
    ) -> DrainGuard {
        self.accept_each(listener, stop, |accepted, stopped| {
            let (tls, service) = (listener.tls.clone(), Arc::clone(&service));
            let write_timeout = self.config.write_timeout;
            async move {
                let AcceptedSocket { socket, peer, permit } = accepted;
                let activity = (Arc::clone(&permit.activity), write_timeout);
                byte_stream::serve(&*service, socket, peer, tls.as_ref(), activity, stopped).await;
                drop(permit);
            }
        })
        .await
    }

    /// Accepts connections within the bounds and spawns what serves each of them.
    async fn accept_each<F: Future<Output = ()> + Send + 'static>(
        &self,
        listener: &Listener,
        stop: impl Future<Output = ()>,
        serve: impl Fn(AcceptedSocket, watch::Receiver<bool>) -> F,
    ) -> DrainGuard {
        let (stopping, stopped) = watch::channel(false);
        let mut open = JoinSet::new();
        tokio::pin!(stop);
        loop {
            while open.try_join_next().is_some() {}
            let accepted = tokio::select! {
                biased;
                () = stop.as_mut() => break,
                accepted = listener.socket.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = listener.name, %error, "cannot accept a connection");
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                        self.connections.make_room();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let permit = tokio::select! {
                biased;
                () = stop.as_mut() => break,
                permit = self.connections.admit(peer.ip()) => permit,
            };
            let Some(permit) = permit else {
                tracing::debug!(listener = listener.name, %peer, "refused: too many connections of this address");
                continue;
            };
            open.spawn(serve(AcceptedSocket { socket, peer, permit }, stopped.clone()));
        }
        stopping.send_replace(true);
        DrainGuard(open)
    }
}

/// An accepted socket with its permit.
struct AcceptedSocket {
    socket: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
}

type AcceptFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type StartFuture = Box<dyn FnOnce(Acceptor, watch::Receiver<bool>) -> AcceptFuture + Send>;

/// Serves the connections of a listener until it is told to stop, and then what is under way.
async fn serve_until_stopped<S: Service>(
    acceptor: Acceptor,
    listener: Listener,
    service: Arc<S>,
    mut stopped: watch::Receiver<bool>,
) {
    let stop = async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let draining = acceptor.accept(&listener, service, stop).await;
    drop(listener);
    draining.done().await;
}

/// Listeners that are served together.
pub struct Server {
    acceptor: Acceptor,
    listening: Vec<StartFuture>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listening", &self.listening.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Makes one that serves nothing yet.
    pub fn new(config: Config) -> Self {
        Self { acceptor: Acceptor::new(config), listening: Vec::new() }
    }

    /// Adds a listener and what it serves.
    pub fn add<S: Service>(&mut self, listener: Listener, service: Arc<S>) {
        self.listening.push(Box::new(move |acceptor, stopped| {
            Box::pin(serve_until_stopped(acceptor, listener, service, stopped))
        }));
    }

    /// Adds a listener whose connections share one thread of their own: for many short requests.
    /// `prepare` runs first on the thread.
    ///
    /// # Errors
    /// The system refuses the thread, or files for its runtime.
    pub fn add_on_thread<S: Service>(
        &mut self,
        listener: Listener,
        service: Arc<S>,
        prepare: fn(),
    ) -> io::Result<()> {
        let Listener { name, socket, tls } = listener;
        // Its readiness is told to the runtime of the thread from now on.
        let socket = socket.into_std()?;
        let thread = OwnThread::start(name, prepare)?;
        self.listening.push(Box::new(move |acceptor, stopped| {
            Box::pin(thread.run(move || async move {
                match TcpListener::from_std(socket) {
                    Ok(socket) => {
                        let listener = Listener { name, socket, tls };
                        serve_until_stopped(acceptor, listener, service, stopped).await;
                    }
                    Err(error) => tracing::error!(listener = name, %error, "cannot serve a listener"),
                }
            }))
        }));
        Ok(())
    }

    /// Serves until `shutdown` completes, and then what is under way. Dropping the future cuts that off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut listening = JoinSet::new();
        for start in self.listening {
            listening.spawn(start(self.acceptor.clone(), stopped.clone()));
        }
        shutdown.await;
        stopping.send_replace(true);
        while listening.join_next().await.is_some() {}
    }
}
