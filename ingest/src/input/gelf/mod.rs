//! `gelf`: messages of the Graylog Extended Log Format, over UDP and over TCP.
//!
//! Over UDP a message may come in [`chunks`] and compressed; over TCP a null byte ends it. [`message`] reads each.

mod chunks;
mod message;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::Utc;
use millrace_runtime::Instant;
use parking_lot::Mutex;

use self::chunks::{Assembly, ChunkBuffer};
use self::message::{FieldNaming, MAX_MESSAGE};
use super::datagram::{DatagramProtocol, DatagramSocket};
use super::stream::{Origin, StreamListener, StreamProtocol, serve, take_port};
use super::{Context, Input, InputError};
use crate::codec::lines::Lines;
use crate::codec::{Decoder, Events};
use crate::event::Additions;
use crate::{Fault, Options};

/// Port where none is given.
const PORT: i64 = 12_201;

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Gelf {
    listener: Option<StreamListener>,
    socket: Option<DatagramSocket>,
    protocol: Arc<Messages>,
}

/// Messages to events.
#[derive(Debug)]
struct Messages {
    naming: FieldNaming,
    chunks: Mutex<ChunkBuffer>,
}

impl Messages {
    fn push(&self, bytes: &[u8], events: &mut Events) {
        events.push(message::read(bytes, self.naming, Utc::now()));
    }
}

impl DatagramProtocol for Messages {
    fn decode(&self, datagram: &[u8], source: SocketAddr, events: &mut Events) {
        let before = events.len();
        let assembly = self.chunks.lock().add(source.ip(), datagram, Instant::now());
        match assembly {
            Assembly::NotChunked => self.push(datagram, events),
            Assembly::Incomplete => {}
            Assembly::Message(message) => self.push(&message, events),
        }
        let origin = Origin::new(source);
        let mut additions = self.additions(&origin);
        for event in events.get_mut(before..).unwrap_or_default() {
            additions.add_to(event);
        }
    }
}

impl StreamProtocol for Messages {
    fn decoder(&self, _origin: &Origin) -> Box<dyn Decoder> {
        Box::new(MessageStream { naming: self.naming, lines: Lines::new("\0", MAX_MESSAGE) })
    }

    fn additions(&self, origin: &Origin) -> Additions {
        origin.additions(Some("source_host"))
    }
}

/// Messages of a stream, each ended by a null byte.
struct MessageStream {
    naming: FieldNaming,
    lines: Lines,
}

impl Decoder for MessageStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let naming = self.naming;
        self.lines.push(bytes, |message, _| {
            if !message.is_empty() {
                events.push(message::read_plain(message, naming, Utc::now()));
            }
        });
    }

    fn finish(&mut self, events: &mut Events) {
        let naming = self.naming;
        self.lines.finish(|message| events.push(message::read_plain(message, naming, Utc::now())));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}

impl Gelf {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let uses_udp = options.boolean("use_udp").unwrap_or(true);
        let uses_tcp = options.boolean("use_tcp").unwrap_or(false);
        let mut listener = StreamListener::take(&mut options, "gelf", Some(PORT));
        let port = i64::from(listener.port);
        listener.port = take_port(&mut options, "port_tcp", Some(port));
        let mut socket = DatagramSocket::new("gelf", listener.host.clone(), 0);
        socket.port = take_port(&mut options, "port_udp", Some(port));
        let naming = FieldNaming {
            remaps: options.boolean("remap").unwrap_or(true),
            strips_underscore: options.boolean("strip_leading_underscore").unwrap_or(true),
        };
        // Messages are JSON, whatever it is.
        let _ = crate::codec::take(&mut options, "plain");
        let _ = options.ecs_compatibility();
        if !uses_udp && !uses_tcp {
            options.fault_here("[use_udp] and [use_tcp] are both false: nothing would be read");
        }
        options.finish()?;
        let protocol = Arc::new(Messages { naming, chunks: Mutex::default() });
        Ok(Self { listener: uses_tcp.then_some(listener), socket: uses_udp.then_some(socket), protocol })
    }
}

#[async_trait]
impl Input for Gelf {
    fn identity(&self) -> String {
        let tcp = self.listener.as_ref().map(|listener| format!(" tcp {}:{}", listener.host, listener.port));
        let udp = self.socket.as_ref().map(|socket| format!(" udp {}:{}", socket.host, socket.port));
        format!("gelf{}{}", tcp.unwrap_or_default(), udp.unwrap_or_default())
    }

    fn local_address(&self) -> Option<SocketAddr> {
        let udp = self.socket.as_ref().and_then(|socket| *socket.address.borrow());
        udp.or_else(|| self.listener.as_ref().and_then(|listener| *listener.address.borrow()))
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let streams = async {
            match &self.listener {
                Some(listener) => serve(listener, Arc::clone(&self.protocol) as _, context.clone()).await,
                None => Ok(()),
            }
        };
        let datagrams = async {
            match &self.socket {
                Some(socket) => socket.read(Arc::clone(&self.protocol) as _, &context).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(streams, datagrams).map(|_| ())
    }
}

/// Reads a stream, and each chunk of it as a datagram; for fuzzing.
pub(super) fn fuzz<'a>(chunks: impl Iterator<Item = &'a [u8]>) {
    let Ok(gelf) = Gelf::new(Options::new("gelf", crate::Location::default(), [])) else { return };
    let origin = Origin::new(([127, 0, 0, 1], 12_201).into());
    let mut decoder = StreamProtocol::decoder(&*gelf.protocol, &origin);
    let mut events = Events::default();
    for chunk in chunks {
        decoder.decode(chunk, &mut events);
        DatagramProtocol::decode(&*gelf.protocol, chunk, origin.client, &mut events);
    }
    decoder.finish(&mut events);
    assert!(!decoder.holds(), "something is kept after the end");
}
