//! `tcp`, `udp` and `statsd`: bytes of events to a socket. The output `syslog` sends by the same [`Socket`].
//!
//! A connection of `tcp` that is lost is made again, and the batch is sent again as a whole: nobody acknowledges its parts. Bytes that the
//! system took before the loss may never reach the peer. A batch of `udp` goes on at the datagram that failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{Mutex, watch};

use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::options::Setting;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::tls::{self, ClientStream, StreamConnector};
use crate::{Event, Fault, Options, Template};

/// Time for a connection, and for each write of at most [`MAX_WRITE`] bytes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a datagram.
const MAX_DATAGRAM: usize = 65_507;

/// Most bytes of a write to a stream.
const MAX_WRITE: usize = 64 << 10;
/// Reads of bytes that a peer sends unasked, before each batch.
const MAX_READS: usize = 1024;

/// Makes the bytes of an event.
pub(super) trait Encode: fmt::Debug + Send + Sync {
    /// Appends messages; each is a datagram, or goes to the stream as it is.
    ///
    /// # Errors
    /// The reason why the event has no message.
    fn encode(&self, event: &Event, messages: &mut Vec<Vec<u8>>) -> Result<(), String>;

    /// Returns the codec that is to be prepared before events are encoded.
    fn codec(&self) -> Option<&Arc<dyn Codec>> {
        None
    }
}

/// A sink of a socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// Name of the output, for logs.
    name: &'static str,
    host: String,
    port: u16,
    encoder: Arc<dyn Encode>,
    transport: Transport,
    first_pause: Duration,
}

/// The way to a peer, with the open socket.
#[derive(Debug)]
pub(super) enum Transport {
    /// A connection, made by a connector.
    Tcp(StreamConnector, Mutex<Option<ClientStream>>),
    /// Datagrams.
    Udp(Mutex<Option<UdpSocket>>),
}

impl Transport {
    /// Makes the way over TCP, with TLS where it is configured.
    ///
    /// # Errors
    /// As [`StreamConnector::new`].
    pub(super) fn tcp(host: &str, port: u16, tls: Option<&tls::Client>) -> Result<Self, String> {
        Ok(Self::Tcp(StreamConnector::new(host, port, tls)?, Mutex::new(None)))
    }

    /// Makes the way over UDP.
    pub(super) fn udp() -> Self {
        Self::Udp(Mutex::new(None))
    }
}

#[derive(Debug)]
struct ByCodec(Arc<dyn Codec>);

impl Encode for ByCodec {
    fn encode(&self, event: &Event, messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let mut message = Vec::with_capacity(256);
        self.0.try_encode(event, &mut message)?;
        messages.push(message);
        Ok(())
    }

    fn codec(&self) -> Option<&Arc<dyn Codec>> {
        Some(&self.0)
    }
}

/// Makes the output `tcp`.
///
/// # Errors
/// The faults of the options.
pub(super) fn build_tcp(mut options: Options) -> Result<Output, Vec<Fault>> {
    let codec = codec::take(&mut options, "json");
    let host = options.required_text("host");
    let port = port(&mut options, None);
    if options.one_of("mode", &["client", "server"]) == Some("server") {
        options.fault_here(
            "[mode => server] of [tcp] is not supported: connect to a server, or use the output http",
        );
    }
    // A client shows its certificate where the server asks for one.
    let _ = options.take("ssl_client_authentication");
    let tls = tls::Client::take_for_stream(&mut options);
    let transport = Transport::tcp(&host, port, tls.as_ref()).map_err(|fault| options.fault_here(fault)).ok();
    let pause = options
        .float("reconnect_interval")
        .filter(|seconds| (0.001..=3600.0).contains(seconds))
        .unwrap_or(10.0);
    options.finish()?;
    // Its fault was the options'.
    let transport = transport.ok_or_else(Vec::new)?;
    let (encoder, first_pause) = (Arc::new(ByCodec(codec?)), Duration::from_secs_f64(pause));
    Ok(Output::Sink(Arc::new(Socket::new("tcp", (host, port), encoder, transport, first_pause))))
}

/// Makes the output `udp`.
///
/// # Errors
/// The faults of the options.
pub(super) fn build_udp(mut options: Options) -> Result<Output, Vec<Fault>> {
    let codec = codec::take(&mut options, "json");
    let host = options.required_text("host");
    let port = port(&mut options, None);
    // What the system does not take is sent again in any case.
    let _ = options.integer("retry_count", 0..=i64::MAX);
    let pause = options.integer("retry_backoff_ms", 1..=3_600_000).unwrap_or(100);
    options.finish()?;
    let (transport, first_pause) = (Transport::udp(), Duration::from_millis(pause.unsigned_abs()));
    let encoder = Arc::new(ByCodec(codec?));
    Ok(Output::Sink(Arc::new(Socket::new("udp", (host, port), encoder, transport, first_pause))))
}

/// Takes the port of a peer.
pub(super) fn port(options: &mut Options, default: Option<u16>) -> u16 {
    let is_given = options.given().any(|(name, _)| name == "port");
    if !is_given && default.is_none() {
        options.fault_here(format!("[{}] needs the option [port]", options.plugin()));
    }
    let port = options.integer("port", 1..=65_535).and_then(|port| u16::try_from(port).ok());
    port.or(default).unwrap_or(0)
}

/// Metrics of an event.
#[derive(Debug)]
struct Statsd {
    namespace: Template,
    sender: Template,
    metrics: Vec<(Template, Template, &'static str)>,
    sample_rate: f64,
}

/// Makes the output `statsd`.
///
/// # Errors
/// The faults of the options.
pub(super) fn build_statsd(mut options: Options) -> Result<Output, Vec<Fault>> {
    let host = options.text("host").unwrap_or_else(|| "localhost".to_owned());
    let port = port(&mut options, Some(8125));
    let is_tcp = options.one_of("protocol", &["udp", "tcp"]) == Some("tcp");
    let mut metrics = Vec::new();
    for (name, value) in [("increment", "1"), ("decrement", "-1")] {
        let names = options.texts(name);
        metrics.extend(names.iter().map(|name| (Template::parse(name), Template::parse(value), "c")));
    }
    for (name, kind) in [("count", "c"), ("timing", "ms"), ("gauge", "g"), ("set", "s")] {
        for (metric, value) in options.hash(name) {
            match value {
                Setting::Array(_) | Setting::Hash(_) | Setting::Plugin(_) => {
                    options
                        .fault_here(format!("option [{name}] of [statsd] must have a text for [{metric}]"));
                }
                single => metrics.push((
                    Template::parse(&metric),
                    Template::parse(&single.as_text().unwrap_or_default()),
                    kind,
                )),
            }
        }
    }
    let sample_rate = options.float("sample_rate").filter(|rate| (0.0..=1.0).contains(rate)).unwrap_or(1.0);
    let statsd = Statsd {
        namespace: options.template("namespace").unwrap_or_else(|| Template::parse("logstash")),
        sender: options.template("sender").unwrap_or_else(|| Template::parse("%{host}")),
        metrics,
        sample_rate,
    };
    let transport = if is_tcp { Transport::tcp(&host, port, None) } else { Ok(Transport::udp()) };
    let transport = transport.map_err(|fault| options.fault_here(fault)).ok();
    options.finish()?;
    let transport = transport.ok_or_else(Vec::new)?;
    let first_pause = Duration::from_millis(100);
    let socket = Socket::new("statsd", (host, port), Arc::new(statsd), transport, first_pause);
    Ok(Output::Sink(Arc::new(socket)))
}

/// Replaces what has a meaning in a line of metrics.
fn metric_name(text: &str) -> String {
    text.replace("::", ".").replace([':', '|', '@', '\n'], "_")
}

impl Encode for Statsd {
    fn encode(&self, event: &Event, messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let sender = metric_name(&self.sender.render(event)).replace('.', "_");
        let namespace = metric_name(&self.namespace.render(event));
        let rate = if self.sample_rate < 1.0 { format!("|@{}", self.sample_rate) } else { String::new() };
        for (metric, value, kind) in &self.metrics {
            if self.sample_rate < 1.0 && rand::random::<f64>() >= self.sample_rate {
                continue;
            }
            let metric = metric_name(&metric.render(event));
            let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}.") };
            let value = value.render(event).replace(['\n', '|'], "_");
            messages.push(format!("{prefix}{sender}.{metric}:{value}|{kind}{rate}\n").into_bytes());
        }
        Ok(())
    }
}

impl Socket {
    /// Makes a sink.
    pub(super) fn new(
        name: &'static str,
        (host, port): (String, u16),
        encoder: Arc<dyn Encode>,
        transport: Transport,
        first_pause: Duration,
    ) -> Self {
        Self { name, host, port, encoder, transport, first_pause }
    }

    /// Writes messages. `sent` counts the datagrams that have left, across attempts.
    async fn write(&self, messages: &[Vec<u8>], sent: &mut usize) -> std::io::Result<()> {
        let address = (self.host.as_str(), self.port);
        match &self.transport {
            Transport::Tcp(connector, connection) => {
                let mut connection = connection.lock().await;
                let mut kept = connection.take();
                if kept.as_mut().is_some_and(|stream| !is_open(stream)) {
                    kept = None;
                }
                let mut stream = match kept {
                    Some(stream) => stream,
                    None => connector.connect().await?,
                };
                for message in messages {
                    for chunk in message.chunks(MAX_WRITE) {
                        bounded(stream.write_all(chunk)).await?;
                    }
                }
                bounded(stream.flush()).await?;
                *connection = Some(stream);
            }
            Transport::Udp(socket) => {
                let mut socket = socket.lock().await;
                let open = match socket.take() {
                    Some(open) => open,
                    None => bounded(connected(address)).await?,
                };
                while let Some(message) = messages.get(*sent) {
                    // A refusal is the answer to an earlier datagram: this one has not left yet.
                    if is_refused(bounded(open.send(message)).await)? {
                        is_refused(bounded(open.send(message)).await)?;
                    }
                    *sent += 1;
                }
                *socket = Some(open);
            }
        }
        Ok(())
    }
}

/// Waits for an operation of a socket, at most [`TIMEOUT`].
async fn bounded<T>(operation: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "the peer takes no bytes");
    tokio::time::timeout(TIMEOUT, operation).await.map_err(late)?
}

/// Returns whether a peer refuses datagrams.
///
/// # Errors
/// Any other failure.
fn is_refused(sent: std::io::Result<usize>) -> std::io::Result<bool> {
    match sent {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns whether a peer has not closed its connection. Drops bytes that the peer has sent, as they hide the end behind them.
fn is_open(stream: &mut ClientStream) -> bool {
    let mut buffer = [0; 4096];
    for _ in 0..MAX_READS {
        match stream.read(&mut buffer).now_or_never() {
            // Nothing has come.
            None => return true,
            Some(Ok(0) | Err(_)) => return false,
            Some(Ok(_)) => {}
        }
    }
    true
}

async fn connected(address: (&str, u16)) -> std::io::Result<UdpSocket> {
    let peer = lookup_host(address).await?.next();
    let peer =
        peer.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address"))?;
    let local = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(peer).await?;
    Ok(socket)
}

#[async_trait]
impl Sink for Socket {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let pauses = || Backoff::new(self.first_pause, Duration::from_secs(60).max(self.first_pause));
        if let Some(codec) = self.encoder.codec() {
            prepare_codec(codec, self.name, pauses(), &mut stopping).await?;
        }
        let mut backoff = pauses();
        let (encoder, events) = (Arc::clone(&self.encoder), events.to_vec());
        let limit = if matches!(self.transport, Transport::Udp(_)) { MAX_DATAGRAM } else { usize::MAX };
        let (messages, refused) = offload(move || {
            let (mut all, mut refused) = (Vec::new(), Vec::new());
            for (number, (event, _)) in events.iter().enumerate() {
                let mut messages = Vec::new();
                if let Err(reason) = encoder.encode(event, &mut messages) {
                    refused.push(RefusedEvent { event: number, reason });
                } else if messages.iter().any(|message| message.len() > limit) {
                    let reason = format!("the event exceeds a datagram of {limit} bytes");
                    refused.push(RefusedEvent { event: number, reason });
                } else {
                    all.extend(messages);
                }
            }
            (all, refused)
        })
        .await;
        let mut sent = 0;
        loop {
            let written = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                written = self.write(&messages, &mut sent) => written,
            };
            let Err(error) = written else { return Ok(refused) };
            tracing::warn!(%error, host = self.host, port = self.port, "the output cannot send, it tries again");
            backoff.wait(&mut stopping).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn sink(built: Result<Output, Vec<Fault>>) -> Arc<dyn Sink> {
        match built.unwrap() {
            Output::Sink(sink) => sink,
            Output::Local(_) => panic!("it is a sink"),
        }
    }

    fn events(names: &[&str]) -> Vec<(Arc<Event>, Option<String>)> {
        let event = |name: &&str| {
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            event.fields_mut().insert("host".to_owned(), json!(name));
            (Arc::new(event), None)
        };
        names.iter().map(event).collect()
    }

    async fn send(sink: &Arc<dyn Sink>, names: &[&str]) -> Vec<RefusedEvent> {
        sink.send(&events(names), watch::Sender::new(false).subscribe(), OrderTicket::new().0).await.unwrap()
    }

    #[tokio::test]
    async fn batches_go_over_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let given: [(&str, OptionValue); 3] =
            [("host", "127.0.0.1".into()), ("port", port.into()), ("codec", "json_lines".into())];
        let sink = sink(build_tcp(options("tcp", &given)));
        assert_eq!(send(&sink, &["a"]).await, Vec::new());
        assert_eq!(send(&sink, &["b"]).await, Vec::new());
        drop(sink);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let line =
            |name: &str| format!("{{\"@timestamp\":\"1970-01-01T00:00:00.000Z\",\"host\":\"{name}\"}}\n");
        assert_eq!(text, line("a") + &line("b"));
    }

    #[tokio::test]
    async fn datagrams_have_an_event_or_a_metric_each() {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = peer.local_addr().unwrap().port().to_string();
        let mut buffer = vec![0; 1024];
        let address: [(&str, OptionValue); 2] = [("host", "127.0.0.1".into()), ("port", port.into())];
        let udp = sink(build_udp(options("udp", &[&address[..], &[("codec", "plain".into())]].concat())));
        let large = "x".repeat(70_000);
        let refused = send(&udp, &["a", &large]).await;
        assert!(matches!(refused.as_slice(), [refused] if refused.event == 1), "{refused:?}");
        let read = peer.recv(&mut buffer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..read]), "1970-01-01T00:00:00.000Z a %{message}");
        let metrics: [(&str, OptionValue); 2] =
            [("increment", "apache.%{host}".into()), ("gauge", [("load::x", "7")].into())];
        let statsd = sink(build_statsd(options("statsd", &[&address[..], &metrics[..]].concat())));
        assert_eq!(send(&statsd, &["web.1"]).await, Vec::new());
        for expected in ["logstash.web_1.apache.web.1:1|c\n", "logstash.web_1.load.x:7|g\n"] {
            let read = peer.recv(&mut buffer).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&buffer[..read]), expected);
        }
    }

    #[tokio::test]
    async fn datagrams_to_a_closed_port_do_not_restart_the_batch() {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = peer.local_addr().unwrap().port().to_string();
        drop(peer);
        let udp = sink(build_udp(options("udp", &[("host", "127.0.0.1".into()), ("port", port.into())])));
        assert_eq!(send(&udp, &["a", "b", "c"]).await, Vec::new());
    }

    #[tokio::test]
    async fn bytes_of_a_peer_do_not_hide_that_it_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connector = StreamConnector::new("127.0.0.1", address.port(), None).unwrap();
        let mut stream = connector.connect().await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        assert!(is_open(&mut stream));
        peer.write_all(&[0; 10_000]).await.unwrap();
        drop(peer);
        while is_open(&mut stream) {
            stream.tcp().readable().await.unwrap();
        }
    }

    #[test]
    fn wrong_options_are_named() {
        let faults = build_tcp(options("tcp", &[("mode", "server".into())])).unwrap_err();
        for expected in ["needs the option [host]", "needs the option [port]", "[mode => server]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
