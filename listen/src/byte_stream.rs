//! Connections of protocols other than HTTP, accepted within the same bounds.
//!
//! [`Acceptor::accept_streams`](crate::Acceptor::accept_streams) hands each connection to a [`StreamService`]: its bytes as a
//! [`ByteStream`], and a [`StreamConnection`] that tells who the peer is and when the connection has to end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::activity::{Activity, ActivityGuard};
use crate::certificate::ClientCertificate;
use crate::connection::shake_hands;
use crate::stream::MonitoredSocket;
use crate::tls::Tls;

/// Serves connections of a protocol other than HTTP.
pub trait StreamService: Send + Sync + 'static {
    /// Serves a connection to its end. It ends soon after [`StreamConnection::closing`] completes.
    fn serve(&self, stream: ByteStream, connection: StreamConnection) -> impl Future<Output = ()> + Send;
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// The bytes of a connection, behind TLS where the listener has it. Writes fail once the peer takes nothing for too long.
pub struct ByteStream(Box<dyn Socket>);

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteStream").finish_non_exhaustive()
    }
}

/// A connection beside its bytes.
#[derive(Debug)]
pub struct StreamConnection {
    peer: SocketAddr,
    certificate: Option<ClientCertificate>,
    activity: Arc<Activity>,
    stopped: watch::Receiver<bool>,
}

/// Guard of a connection at work: it does not make room for others.
#[derive(Debug)]
pub struct StreamWorkGuard(#[allow(dead_code, reason = "held for its drop")] ActivityGuard);

impl StreamConnection {
    /// Returns the address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the certificate that TLS verified, if any.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref()
    }

    /// Counts the connection as busy until the guard is dropped. Others are idle since their last work, and the one that is
    /// idle longest goes where there are too many.
    pub fn begin_work(&self) -> StreamWorkGuard {
        StreamWorkGuard(self.activity.begin())
    }

    /// Waits until the connection has to end: its listener ends, or another connection needs its permit.
    pub async fn closing(&self) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            // A listener that is gone ends its connections.
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.activity.evicted() => {}
        }
    }
}

/// Serves an accepted socket.
pub(crate) async fn serve<S: StreamService>(
    service: &S,
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<&Tls>,
    (activity, write_timeout): (Arc<Activity>, Duration),
    stopped: watch::Receiver<bool>,
) {
    let _ = socket.set_nodelay(true);
    let socket = MonitoredSocket::new(socket, Arc::clone(&activity), tls.is_some(), write_timeout);
    let (stream, certificate) = match tls {
        None => (ByteStream(Box::new(socket)), None),
        Some(tls) => match shake_hands(socket, tls, &activity, peer).await {
            Some((stream, certificate)) => (ByteStream(Box::new(stream)), certificate),
            None => return,
        },
    };
    activity.becomes_idle();
    service.serve(stream, StreamConnection { peer, certificate, activity, stopped }).await;
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
