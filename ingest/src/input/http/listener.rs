//! Sockets and connections of the input.
//!
//! A listening socket outlives the input that bound it by a moment ([`Parked`]): when a pipeline is reloaded, the
//! next input takes it over, and connections that arrive in between wait in the system's queue.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::request::Service;
use crate::input::{InputError, stopped};

/// Connections of an input; further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 4096;
/// Longest request head.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Requests under way on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Longest wait for a request's head, the pause between two requests included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause after a failed accept, which is mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for requests under way to end when the input is to stop.
const DRAIN: Duration = Duration::from_secs(30);
/// Time for which a socket waits for the next input.
const PARKED: Duration = Duration::from_secs(10);

/// Sockets that wait for the next input, by the address asked for.
type Parked = HashMap<(String, u16), TcpListener>;

static SOCKETS: LazyLock<Mutex<Parked>> = LazyLock::new(Mutex::default);

async fn bind(host: &str, port: u16) -> Result<TcpListener, InputError> {
    if let Some(socket) = SOCKETS.lock().remove(&(host.to_owned(), port)) {
        return Ok(socket);
    }
    let cannot = |error| InputError(format!("cannot listen on [{host}:{port}]: {error}"));
    TcpListener::bind((host, port)).await.map_err(cannot)
}

fn park(host: &str, port: u16, socket: TcpListener) {
    let key = (host.to_owned(), port);
    SOCKETS.lock().insert(key.clone(), socket);
    tokio::spawn(async move {
        tokio::time::sleep(PARKED).await;
        SOCKETS.lock().remove(&key);
    });
}

/// Serves requests until the input is to stop, then those under way.
pub(super) async fn serve(service: Arc<Service>) -> Result<(), InputError> {
    let tls = match &service.settings.tls {
        Some(tls) => {
            let config = tls.config().map_err(InputError)?;
            Some((TlsAcceptor::from(Arc::new(config)), tls.handshake))
        }
        None => None,
    };
    let (host, port) = (service.settings.host.clone(), service.settings.port);
    let socket = bind(&host, port).await?;
    match socket.local_addr() {
        Ok(address) => {
            tracing::info!(%address, tls = tls.is_some(), "input http listens");
            service.listens(address);
        }
        Err(error) => return Err(InputError(format!("cannot listen on [{host}:{port}]: {error}"))),
    }
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut stopping = service.stopping();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (socket.accept().await, permit)
            } => accepted,
        };
        match accepted {
            (Ok((stream, peer)), permit) => {
                let (tls, service) = (tls.clone(), Arc::clone(&service));
                connections.spawn(async move {
                    let _permit = permit;
                    connect(stream, peer, tls, service).await;
                });
            }
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    park(&host, port, socket);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests whose events are not stored yet are cut off");
    }
    Ok(())
}

async fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<(TlsAcceptor, Duration)>,
    service: Arc<Service>,
) {
    let _ = stream.set_nodelay(true);
    let stopping = service.stopping();
    let Some((tls, handshake)) = tls else { return run(stream, peer, service, stopping).await };
    match tokio::time::timeout(handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => run(stream, peer, service, stopping).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
    }
}

async fn run<S>(stream: S, peer: SocketAddr, service: Arc<Service>, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = service_fn(move |request: http::Request<Incoming>| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.call(request, peer).await) }
    });
    let builder = builder();
    let connection = builder.serve_connection(TokioIo::new(stream), served);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
