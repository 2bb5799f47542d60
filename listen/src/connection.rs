//! One connection, from the handshake to the end.
//!
//! Its task looks at the connection's [`Activity`] a few times in each of the times allowed, and
//! [`Watch::look`] decides what becomes of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::activity::{Activity, Answer};
use crate::certificate::ClientCertificate;
use crate::refused;
use crate::request_target::TargetEscaper;
use crate::serve::{Config, Peer, Service};
use crate::stream::MonitoredSocket;
use crate::tls::Tls;

/// Time for a connection without requests to end once it was asked to.
const CLOSING: Duration = Duration::from_secs(5);
/// The same where another connection waits for its place.
const LEAVING: Duration = Duration::from_millis(50);
/// Bytes to be written within the idle time for a connection to count as in use: pings are far less.
const SENT_BYTES: u64 = 4 << 10;

/// Makes the protocol of all connections.
pub(crate) fn builder(config: &Config) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Times are watched here: those of the builder do not tell a head that is slow from one that is awaited.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(config.max_header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .max_concurrent_streams(config.max_streams)
        .max_header_list_size(u32::try_from(config.max_http2_header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// A connection and what serves it.
pub(crate) struct Connection<'a, S> {
    pub(crate) peer: SocketAddr,
    pub(crate) activity: Arc<Activity>,
    pub(crate) builder: &'a Builder<TokioExecutor>,
    pub(crate) config: &'a Config,
    pub(crate) service: Arc<S>,
}

impl<S: Service> Connection<'_, S> {
    /// Serves until the client ends it, or until `stopped` and its requests are through.
    pub(crate) async fn serve(self, socket: TcpStream, tls: Option<&Tls>, stopped: watch::Receiver<bool>) {
        let peer = self.peer;
        let _ = socket.set_nodelay(true);
        let activity = Arc::clone(&self.activity);
        let stream = MonitoredSocket::new(socket, activity, tls.is_some(), self.config.write_timeout);
        let Some(tls) = tls else { return self.run(stream, None, stopped).await };
        let Some((stream, certificate)) = shake_hands(stream, tls, &self.activity, peer).await else {
            return;
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.activity.speaks_http2();
        }
        self.activity.becomes_idle();
        self.run(stream, certificate, stopped).await;
    }

    async fn run<T>(
        self,
        stream: T,
        certificate: Option<ClientCertificate>,
        mut stopped: watch::Receiver<bool>,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = self.peer;
        let served = service_fn(|mut request: http::Request<Incoming>| {
            if request.version() == http::Version::HTTP_2 {
                self.activity.speaks_http2();
            }
            request.extensions_mut().insert(Peer(peer));
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(certificate.clone());
            }
            let (service, in_flight) = (Arc::clone(&self.service), self.activity.begin());
            async move {
                let answer = service.call(request).await;
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, in_flight)))
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(TargetEscaper::new(stream)), served);
        tokio::pin!(connection);
        let mut watch = Watch::new(&self.activity, self.config.write_timeout.max(self.service.patience()));
        let mut tick = tokio::time::interval(self.config.tick());
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let action = tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                    return;
                }
                _ = stopped.wait_for(|stopped| *stopped), if watch.closing.is_none() => Action::Close("the listener ends"),
                () = self.activity.evicted() => Action::Leave,
                _ = tick.tick() => watch.check(&self.activity, self.config),
            };
            match action {
                Action::Keep => {}
                Action::Close(reason) => {
                    tracing::trace!(%peer, reason, "connection closes");
                    watch.closing = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                Action::Leave => {
                    watch.closing = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                    let gone = tokio::time::timeout(LEAVING, connection.as_mut()).await.is_ok();
                    // With a request that began meanwhile it ends after that.
                    if gone || self.activity.idle_since().is_some() {
                        return tracing::debug!(%peer, "idle connection made room for another");
                    }
                }
                Action::Cut(reason) => return tracing::debug!(%peer, reason, "connection cut"),
            }
        }
    }
}

/// Does the handshake of TLS and reads the certificate of the client; `None` where it fails.
pub(crate) async fn shake_hands(
    socket: MonitoredSocket,
    tls: &Tls,
    activity: &Activity,
    peer: SocketAddr,
) -> Option<(TlsStream<MonitoredSocket>, Option<ClientCertificate>)> {
    let handshake = tokio::time::timeout(tls.handshake_timeout, tls.acceptor().accept(socket));
    let stream = tokio::select! {
        shaken = handshake => match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                refused::tell(peer, &error);
                return None;
            }
            Err(_) => {
                tracing::debug!(%peer, "TLS handshake timed out");
                return None;
            }
        },
        () = activity.evicted() => {
            tracing::debug!(%peer, "TLS handshake ended: others wait for its place");
            return None;
        }
    };
    let certificate = match stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
        None => None,
        Some(certificate) => match ClientCertificate::read(certificate) {
            // Nobody is taken for a client without one.
            None => {
                tracing::debug!(%peer, "the subject of the client's certificate cannot be read");
                return None;
            }
            read => read,
        },
    };
    Some((stream, certificate))
}

/// Fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Keep,
    /// It ends after the requests under way.
    Close(&'static str),
    /// It ends at once if it is idle: its place is wanted.
    Leave,
    /// It ends at once.
    Cut(&'static str),
}

/// Observations of a connection.
#[derive(Debug)]
struct Watch {
    closing: Option<Instant>,
    /// Since when a head comes.
    head: Option<Instant>,
    /// Bytes written when it was last seen to send, and when that was.
    sent: (u64, Instant),
    /// Time that an answer may stay unread.
    patience: Duration,
}

impl Watch {
    fn new(activity: &Activity, patience: Duration) -> Self {
        Self { closing: None, head: None, sent: (activity.written(), Instant::now()), patience }
    }

    /// Decides by what the connection does now.
    fn check(&mut self, activity: &Activity, config: &Config) -> Action {
        let now = Instant::now();
        let written = activity.written();
        if written >= self.sent.0 + SENT_BYTES {
            self.sent = (written, now);
        }
        // While the socket is full, its own time counts.
        let blocked = activity.is_blocked();
        let Some(idle_since) = activity.idle_since() else {
            self.head = None;
            // What is not taken though the socket has room is a stream that its client does not read.
            let stalled = activity.oldest_answer().filter(|_| !blocked).map(|taken| now - taken);
            return match (stalled, self.closing) {
                (Some(stalled), _) if stalled >= self.patience * 2 => Action::Cut("an answer is not read"),
                (Some(stalled), None) if stalled >= self.patience => Action::Close("an answer is not read"),
                _ => Action::Keep,
            };
        };
        if blocked {
            return Action::Keep;
        }
        if !activity.is_http2() && activity.has_begun_a_head() {
            if now - *self.head.get_or_insert(now) >= config.head_timeout {
                return Action::Cut("the head of a request did not arrive");
            }
        } else {
            self.head = None;
        }
        let quiet = now - idle_since.max(self.sent.1);
        match self.closing {
            Some(closing) if quiet.min(now - closing) >= CLOSING => Action::Cut("it does not end"),
            None if quiet >= config.idle_timeout => Action::Close("idle"),
            _ => Action::Keep,
        }
    }
}
