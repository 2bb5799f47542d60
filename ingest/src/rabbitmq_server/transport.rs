//! Transport of AMQP connections: [`BrokerRuntime`] gives the client library the connections of plugins, with their TLS.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::Task;
use async_rs::{Runtime, Tokio};
use futures::future::TryFutureExt;
use futures::io::{AsyncRead, AsyncWrite};
use futures::stream::Stream;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::tls::{ClientStream, StreamConnector};

/// A [`ClientStream`] with the traits that the client library reads and writes by.
#[derive(Debug)]
pub(super) struct BrokerStream(ClientStream);

impl AsyncRead for BrokerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(bytes);
        ready!(tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl AsyncWrite for BrokerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), context)
    }
}

/// The runtime of Tokio, whose connections are [`BrokerStream`]s.
#[derive(Clone, Debug)]
pub(super) struct BrokerRuntime(Tokio);

impl RuntimeKit for BrokerRuntime {}

impl Executor for BrokerRuntime {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        work: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(work)
    }
}

impl Reactor for BrokerRuntime {
    type TcpStream = BrokerStream;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        TcpStream::connect(address).map_ok(|stream| BrokerStream(ClientStream::Plain(stream)))
    }
}

/// Connects to a broker by a connector.
///
/// # Errors
/// The reason why there is no connection.
pub(super) async fn connect(
    uri: AMQPUri,
    connector: StreamConnector,
    properties: ConnectionProperties,
) -> lapin::Result<Connection> {
    let runtime = Runtime::new(BrokerRuntime(Tokio::current()));
    let open = async move |_uri: AMQPUri, _runtime: Runtime<BrokerRuntime>| -> lapin::Result<_> {
        let stream = connector.connect().await?;
        // Acknowledgements and publications are small, and their senders wait.
        stream.tcp().set_nodelay(true)?;
        Ok(AsyncTcpStream::Plain(BrokerStream(stream)))
    };
    Connection::connector(uri, runtime, open, properties).await
}
