//! `tcp`: events of streams, from clients that connect or from a server that this input connects to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;

use super::stream::reader::{StreamReader, UnfinishedTotal};
use super::stream::{Origin, StreamListener, StreamProtocol, serve};
use super::{Context, Input, InputError, additions, stopped};
use crate::codec::{self, Codec, Decoder};
use crate::event::{Additions, METADATA};
use crate::tls::{self, StreamConnector};
use crate::{EcsCompatibility, Fault, Options, Setting};

/// Pause before the next connection to a server that has closed one.
const RECONNECT: Duration = Duration::from_secs(1);

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Tcp {
    listener: StreamListener,
    /// The way to the server, where the input connects to one.
    connector: Option<StreamConnector>,
    protocol: Arc<Lines>,
}

/// Bytes to events by a codec.
#[derive(Debug)]
struct Lines {
    codec: Arc<dyn Codec>,
    ecs: EcsCompatibility,
}

impl StreamProtocol for Lines {
    fn decoder(&self, _origin: &Origin) -> Box<dyn Decoder> {
        self.codec.decoder()
    }

    fn flush_after(&self) -> Option<Duration> {
        self.codec.flush_after()
    }

    fn additions(&self, origin: &Origin) -> Additions {
        let proxy = origin.proxy_address();
        let subject = origin.subject.as_deref();
        if !self.ecs.is_enabled() {
            let mut additions = origin.additions(Some("host")).member("port", origin.client.port());
            if let Some((address, _)) = &proxy {
                additions = additions.member("proxy_host", address.as_str());
            }
            if let Some(subject) = subject {
                additions = additions.member("sslsubject", subject);
            }
            return match proxy {
                Some((_, port)) => additions.replacing_member("proxy_port", port),
                None => additions,
            };
        }
        let own = |path: &[&'static str]| [&[METADATA, "input", "tcp"][..], path].concat();
        let mut additions = additions()
            .at(&own(&["source", "name"]), origin.address())
            .at(&own(&["source", "ip"]), origin.address())
            .at(&own(&["source", "port"]), origin.client.port());
        if let Some((address, port)) = proxy {
            additions = additions.at(&own(&["proxy", "ip"]), address).at(&own(&["proxy", "port"]), port);
        }
        match subject {
            Some(subject) => additions.at(&own(&["tls", "client", "subject"]), subject),
            None => additions,
        }
    }
}

impl Tcp {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        stream_codec(&mut options);
        let is_client = options.one_of("mode", &["server", "client"]) == Some("client");
        let verifies = if is_client { None } else { options.boolean("ssl_verify") };
        let has =
            |options: &Options, names: &[&str]| options.given().any(|(given, _)| names.contains(&given));
        let is_told = has(&options, &["ssl_client_authentication", "ssl_verify_mode", "verify_mode"]);
        // As in Logstash: whoever names authorities wants clients verified.
        if has(&options, &["ssl_certificate_authorities", "ssl_cacert"])
            && !is_told
            && !is_client
            && verifies != Some(false)
        {
            options.set_missing("ssl_client_authentication", Setting::Text("required".to_owned()));
        }
        let client_tls = if is_client { tls::Client::take_for_stream(&mut options) } else { None };
        let listener = match is_client {
            true => StreamListener::take_address(&mut options, "tcp", None),
            false => StreamListener::take(&mut options, "tcp", None),
        };
        let codec = codec::take(&mut options, "line");
        // The system watches connections without being asked.
        let _ = options.boolean("tcp_keep_alive");
        if options.boolean("dns_reverse_lookup_enabled") == Some(true) {
            tracing::warn!(
                "option [dns_reverse_lookup_enabled] of [tcp] has no effect: [host] is the address"
            );
        }
        let ecs = options.ecs_compatibility();
        if is_client && listener.proxy_protocol {
            options.fault_here("[proxy_protocol] is for [mode => server]");
        }
        let connector =
            is_client.then(|| StreamConnector::new(&listener.host, listener.port, client_tls.as_ref()));
        let connector = connector.transpose().map_err(|fault| options.fault_here(fault)).ok().flatten();
        options.finish()?;
        Ok(Self { listener, connector, protocol: Arc::new(Lines { codec: codec?, ecs }) })
    }

    /// Reads what a server sends, over one connection after the other.
    async fn connect(&self, connector: &StreamConnector, context: &Context) -> Result<(), InputError> {
        let (host, port) = (self.listener.host.as_str(), self.listener.port);
        let mut stopping = context.stopping.clone();
        let unfinished = UnfinishedTotal::default();
        loop {
            let failed = |reason: String| InputError(format!("cannot connect to [{host}:{port}]: {reason}"));
            let connected = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                connected = connector.connect() => connected,
            };
            let mut stream = connected.map_err(|error| failed(error.to_string()))?;
            let peer = stream.tcp().peer_addr().map_err(|error| failed(error.to_string()))?;
            let protocol = Arc::clone(&self.protocol) as Arc<dyn StreamProtocol>;
            let origin = Arc::new(Origin::new(peer));
            let reader = StreamReader::new(protocol, origin, context.clone(), &unfinished);
            reader.run(&mut stream, BytesMut::new(), None).await;
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                () = tokio::time::sleep(RECONNECT) => {}
            }
        }
    }
}

/// Replaces codecs of single texts by those of streams, as Logstash does.
pub(super) fn stream_codec(options: &mut Options) {
    options.rename_codec("codec", &[("plain", "line"), ("json", "json_lines")]);
}

#[async_trait]
impl Input for Tcp {
    fn identity(&self) -> String {
        let mode = if self.connector.is_some() { "to" } else { "on" };
        format!("tcp {mode} {}:{}", self.listener.host, self.listener.port)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        *self.listener.address.borrow()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        match &self.connector {
            Some(connector) => self.connect(connector, &context).await,
            None => serve(&self.listener, Arc::clone(&self.protocol) as _, context).await,
        }
    }
}
