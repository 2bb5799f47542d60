//! `udp`: events of datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::datagram::{DatagramProtocol, DatagramSocket, MAX_DATAGRAM};
use super::stream::{Origin, take_port};
use super::{Context, Input, InputError};
use crate::codec::{self, Codec, Events};
use crate::{Fault, FieldReference, Options};

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
    host_field: FieldReference,
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
        events.iter_mut().skip(before).for_each(|event| origin.mark_at(event, &self.host_field));
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
        let host_field = options.field("source_ip_fieldname");
        // The pipeline's queue and its workers take their part.
        let _ = options.integer("queue_size", 1..=i64::from(i32::MAX));
        let _ = options.integer("workers", 1..=1_024);
        let own_field = options.ecs_compatibility().select("host", "[host][ip]");
        options.finish()?;
        let host_field = host_field.map_or_else(|| FieldReference::parse(own_field), Ok);
        let host_field = host_field.map_err(|_| Vec::new())?;
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
    use serde_json::json;

    use super::*;
    use crate::input::testing::options;

    #[test]
    fn the_field_of_the_sender_may_be_in_another() {
        let given =
            |field: &str| options("udp", &[("port", "0".into()), ("source_ip_fieldname", field.into())]);
        for (field, expected) in [
            ("[ip]", json!({"message": "x", "ip": "192.0.2.1"})),
            ("[observer][ip]", json!({"message": "x", "observer": {"ip": "192.0.2.1"}})),
            ("[message][ip]", json!({"message": "x"})),
        ] {
            let input = Udp::new(given(field)).unwrap();
            let mut events = Events::default();
            input.protocol.decode(b"x", ([192, 0, 2, 1], 514).into(), &mut events);
            let mut fields = events[0].fields().clone();
            fields.remove("@version");
            assert_eq!(serde_json::Value::Object(fields), expected, "{field}");
        }
    }
}
