//! Streams of bytes over TCP that become events: what the inputs `tcp`, `syslog` and `gelf` share.
//!
//! A [`StreamProtocol`] says how bytes become events; [`serve`] accepts connections and [`reader`] reads each of them. These
//! protocols acknowledge nothing: while the pipeline is behind, nothing more is read, and TCP slows the client down. What was
//! read and is not stored when the process is killed is lost, unless the pipeline has a queue on disk.

pub(super) mod delivery;
pub(super) mod proxy;
pub(super) mod reader;
#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use millrace_listen::{ByteStream, Listener, StreamConnection, StreamService};
use serde_json::Value;
use tokio::sync::watch;

use self::proxy::ProxyHeader;
use self::reader::{StreamReader, UnfinishedTotal};
use super::sockets::{ACCEPTOR, PARKED};
use super::{Context, InputError, mark_version, stopped};
use crate::codec::Decoder;
use crate::event::{Additions, METADATA};
use crate::{Event, FieldReference, Options, tls};

/// Time for connections to hand on what they have read when the input is to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Conversion of the bytes of a stream to events.
pub(super) trait StreamProtocol: fmt::Debug + Send + Sync + 'static {
    /// Begins a stream.
    fn decoder(&self, origin: &Origin) -> Box<dyn Decoder>;

    /// Pause of a stream after which its decoder is told to finish what it holds; `None` for never.
    fn flush_after(&self) -> Option<Duration> {
        None
    }

    /// Members and metadata that each event gets, which say where it is from.
    fn additions(&self, _origin: &Origin) -> Additions {
        Additions::default()
    }
}

/// Origin of a stream or a datagram.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Address of the client, as a proxy tells it where there is one.
    pub(super) client: SocketAddr,
    /// Address of the proxy.
    pub(super) proxy: Option<SocketAddr>,
    /// Subject of the certificate that the client showed.
    pub(super) subject: Option<Arc<str>>,
    /// Address of the client as text.
    address: Arc<str>,
}

/// Field for the address of the client.
static IP_ADDRESS: LazyLock<Option<FieldReference>> =
    LazyLock::new(|| FieldReference::parse(&format!("[{METADATA}][ip_address]")).ok());

impl Origin {
    /// Makes the origin of what an address sends by itself.
    pub(super) fn new(client: SocketAddr) -> Self {
        let address = client.ip().to_canonical().to_string().into();
        Self { client, proxy: None, subject: None, address }
    }

    /// Returns the address of the client as text.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the proxy as text, and its port.
    pub(super) fn proxy_address(&self) -> Option<(String, u16)> {
        self.proxy.map(|proxy| (proxy.ip().to_canonical().to_string(), proxy.port()))
    }

    /// Returns what events get: the address of their client, as the field of this name and in their metadata.
    pub(super) fn additions(&self, host_field: Option<&str>) -> Additions {
        let additions = match host_field {
            Some(field) => Additions::default().member(field, &*self.address),
            None => Additions::default(),
        };
        additions.member("@version", "1").metadata("ip_address", &*self.address)
    }

    /// Gives an event the address of its client, as a field that may be in another, and in its metadata.
    pub(super) fn mark_at(&self, event: &mut Event, field: &FieldReference) {
        match field.path() {
            [name] => event.set_missing(name, &self.address),
            _ if event.get(field).is_some() => {}
            // A field around it that is no object stays.
            _ => drop(event.put_text(field, &self.address)),
        }
        self.mark_metadata(event);
    }

    /// Gives an event the address of its client in its metadata.
    fn mark_metadata(&self, event: &mut Event) {
        mark_version(event);
        if let Some(reference) = &*IP_ADDRESS {
            // Metadata that is something else stays.
            let _ = event.set(reference, Value::from(&*self.address));
        }
    }
}

/// Settings of a listener for streams.
#[derive(Debug)]
pub(super) struct StreamListener {
    /// Name of the input, for logs.
    pub(super) name: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<tls::Server>,
    pub(super) proxy_protocol: bool,
    /// Bound address, once it listens.
    pub(super) address: watch::Sender<Option<SocketAddr>>,
}

impl StreamListener {
    /// Takes the address of a server that the input connects to.
    pub(super) fn take_address(options: &mut Options, name: &'static str, port: Option<i64>) -> Self {
        let host = options.text("host").unwrap_or_else(|| "0.0.0.0".to_owned());
        let port = take_port(options, "port", port);
        let proxy_protocol = options.boolean("proxy_protocol").unwrap_or(false);
        Self { name, host, port, tls: None, proxy_protocol, address: watch::Sender::new(None) }
    }

    /// Takes the options that listeners have, `port` under this name.
    pub(super) fn take(options: &mut Options, name: &'static str, port: Option<i64>) -> Self {
        for (old, new) in [
            ("ssl_enable", "ssl_enabled"),
            ("ssl_cert", "ssl_certificate"),
            ("ssl_cacert", "ssl_certificate_authorities"),
        ] {
            options.rename(old, new);
        }
        let tls = tls::Server::take(options);
        Self { tls, ..Self::take_address(options, name, port) }
    }
}

/// Takes a port; one without a default must be given.
pub(super) fn take_port(options: &mut Options, name: &'static str, default: Option<i64>) -> u16 {
    let is_given = options.given().any(|(given, _)| given == name);
    let port = options.integer(name, 0..=65_535);
    if !is_given && default.is_none() {
        options.fault_here(format!("[{}] needs the option [{name}]", options.plugin()));
    }
    port.or(default).and_then(|port| u16::try_from(port).ok()).unwrap_or_default()
}

/// Takes the name of a field that is in no other.
pub(super) fn take_top_level(options: &mut Options, name: &'static str) -> Option<String> {
    let field = options.field(name)?;
    match field.path() {
        [name] => Some(name.clone()),
        _ => {
            options.fault_here(format!("option [{name}] must be a field that is in no other"));
            None
        }
    }
}

/// Serves streams until the input is to stop.
pub(super) async fn serve(
    listener: &StreamListener,
    protocol: Arc<dyn StreamProtocol>,
    context: Context,
) -> Result<(), InputError> {
    let service = StreamInput {
        protocol,
        context: context.clone(),
        proxy_protocol: listener.proxy_protocol,
        unfinished: UnfinishedTotal::default(),
    };
    listen(listener, service, &context).await
}

/// Has a service answer on the address of a listener until the input is to stop.
pub(super) async fn listen(
    listener: &StreamListener,
    service: impl StreamService,
    context: &Context,
) -> Result<(), InputError> {
    let failed = |error: std::io::Error| InputError(error.to_string());
    let StreamListener { name, host, port, tls, address, .. } = listener;
    let tls = tls.as_ref().map(|tls| tls.load().map_err(failed)).transpose()?;
    let with_tls = tls.is_some();
    let socket = PARKED.bind(host, *port).await.map_err(failed)?;
    let socket = Listener::of_socket(name, socket, tls);
    let bound = socket.local_addr().map_err(failed)?;
    tracing::info!(address = %bound, tls = with_tls, input = name, "an input listens");
    address.send_replace(Some(bound));
    let mut stopping = context.stopping.clone();
    let draining = ACCEPTOR.accept_streams(&socket, Arc::new(service), stopped(&mut stopping)).await;
    PARKED.park(host, *port, socket.into_socket());
    if tokio::time::timeout(DRAIN, draining.done()).await.is_err() {
        tracing::warn!(input = name, "connections whose events are not handed on yet are cut off");
    }
    Ok(())
}

struct StreamInput {
    protocol: Arc<dyn StreamProtocol>,
    context: Context,
    proxy_protocol: bool,
    unfinished: UnfinishedTotal,
}

impl StreamService for StreamInput {
    async fn serve(&self, mut stream: ByteStream, connection: StreamConnection) {
        let (mut client, mut proxy) = (connection.peer(), None);
        let mut first = bytes::BytesMut::new();
        if self.proxy_protocol {
            match proxy::read_header(&mut stream, &mut first).await {
                Ok(ProxyHeader { client: Some(told) }) => (client, proxy) = (told, Some(connection.peer())),
                Ok(ProxyHeader { client: None }) => {}
                Err(error) => {
                    return tracing::warn!(peer = %connection.peer(), %error, "a connection without a PROXY header is closed");
                }
            }
        }
        let subject = connection.certificate().map(|certificate| Arc::clone(&certificate.subject));
        let origin = Origin { proxy, subject, ..Origin::new(client) };
        let (protocol, context) = (Arc::clone(&self.protocol), self.context.clone());
        let reader = StreamReader::new(protocol, Arc::new(origin), context, &self.unfinished);
        reader.run(&mut stream, first, Some(&connection)).await;
    }
}
