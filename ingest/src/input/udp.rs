//! `udp`: events of datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::datagram::{DatagramProtocol, DatagramSocket, MAX_DATAGRAM};
use super::stream::{Origin, take_port, take_top_level};
use super::{Context, Input, InputError};
use crate::codec::{self, Codec, Events};
use crate::{Fault, Options};

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Udp {
    socket: DatagramSocket,
    protocol: Arc<Datagrams>,
}

/// Datagrams to events by a codec.
#[derive(Debug)]
struct Datagrams {
    codec: Arc<dyn Codec>,
    host_field: String,
}

impl DatagramProtocol for Datagrams {
    fn decode(&self, datagram: &[u8], source: SocketAddr, events: &mut Events) {
        let before = events.len();
        // A datagram is whole: nothing of it waits for the next one.
        let mut decoder = self.codec.decoder();
        decoder.set_peer(source.ip());
        decoder.decode(datagram, events);
        decoder.finish(events);
        let origin = Origin::new(source);
        events.iter_mut().skip(before).for_each(|event| origin.mark(event, &self.host_field));
    }
}

impl Udp {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let host = options.text("host").unwrap_or_else(|| "0.0.0.0".to_owned());
        let port = take_port(&mut options, "port", None);
        let mut socket = DatagramSocket::new("udp", host, port);
        let max = options.integer("buffer_size", 1..=i64::from(i32::MAX));
        socket.max_bytes = max.and_then(|max| usize::try_from(max).ok()).unwrap_or(MAX_DATAGRAM);
        let buffer = options.integer("receive_buffer_bytes", 1..=i64::from(i32::MAX));
        socket.receive_buffer = buffer.and_then(|bytes| usize::try_from(bytes).ok());
        let codec = codec::take(&mut options, "plain");
        let host_field = take_top_level(&mut options, "source_ip_fieldname");
        // The pipeline's queue and its workers take their part.
        let _ = options.integer("queue_size", 1..=i64::from(i32::MAX));
        let _ = options.integer("workers", 1..=1_024);
        let _ = options.one_of("ecs_compatibility", &["disabled"]);
        options.finish()?;
        let host_field = host_field.unwrap_or_else(|| "host".to_owned());
        Ok(Self { socket, protocol: Arc::new(Datagrams { codec: codec?, host_field }) })
    }
}

#[async_trait]
impl Input for Udp {
    fn identity(&self) -> String {
        format!("udp {}:{}", self.socket.host, self.socket.port)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        *self.socket.address.borrow()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        self.socket.read(Arc::clone(&self.protocol) as _, &context).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::options;

    #[test]
    fn the_field_of_the_sender_is_in_no_other() {
        let given =
            |field: &str| options("udp", &[("port", "0".into()), ("source_ip_fieldname", field.into())]);
        assert_eq!(Udp::new(given("[ip]")).unwrap().protocol.host_field, "ip");
        let faults = Udp::new(given("[host][ip]")).unwrap_err();
        assert!(faults[0].message.contains("option [source_ip_fieldname]"), "{faults:?}");
    }
}
