//! Datagrams that become events: what the inputs `udp`, `syslog` and `gelf` share.
//!
//! Nobody acknowledges datagrams. While the pipeline is behind, the system's buffer takes them, and drops those that it has no
//! room for.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::stream::delivery::send;
use super::{Context, InputError, reserve_piece, stopped};
use crate::codec::Events;
use crate::offload::offload;

/// Longest datagram there is.
pub(super) const MAX_DATAGRAM: usize = 65_535;
/// Datagrams that are decoded together.
const MAX_DATAGRAMS: usize = 1_024;
/// Bytes of datagrams that are decoded together.
const MAX_BYTES: usize = 1 << 20;
/// Buffer of the socket where nothing is said; the system may allow less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Conversion of datagrams to events.
pub(super) trait DatagramProtocol: fmt::Debug + Send + Sync + 'static {
    /// Appends the events of a datagram.
    fn decode(&self, datagram: &[u8], source: SocketAddr, events: &mut Events);
}

/// Settings of a socket for datagrams.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    /// Name of the input, for logs.
    pub(super) name: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
    /// Longest datagram; the rest of a longer one is dropped.
    pub(super) max_bytes: usize,
    /// Buffer of the socket.
    pub(super) receive_buffer: Option<usize>,
    /// Bound address, once it is.
    pub(super) address: watch::Sender<Option<SocketAddr>>,
}

impl DatagramSocket {
    /// Makes the settings of an address.
    pub(super) fn new(name: &'static str, host: String, port: u16) -> Self {
        let address = watch::Sender::new(None);
        Self { name, host, port, max_bytes: MAX_DATAGRAM, receive_buffer: None, address }
    }

    /// Reads datagrams until the input is to stop.
    pub(super) async fn read(
        &self,
        protocol: Arc<dyn DatagramProtocol>,
        context: &Context,
    ) -> Result<(), InputError> {
        let (host, port) = (self.host.as_str(), self.port);
        let failed =
            |error: std::io::Error| InputError(format!("cannot listen on [{host}:{port}] over UDP: {error}"));
        let socket = UdpSocket::bind((host, port)).await.map_err(failed)?;
        let wanted = self.receive_buffer.unwrap_or(RECEIVE_BUFFER);
        if let Err(error) = SockRef::from(&socket).set_recv_buffer_size(wanted) {
            tracing::warn!(%error, bytes = wanted, input = self.name, "the system's buffer of a socket stays as it is");
        }
        let bound = socket.local_addr().map_err(failed)?;
        tracing::info!(address = %bound, input = self.name, "an input listens over UDP");
        self.address.send_replace(Some(bound));
        let mut stopping = context.stopping.clone();
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let received = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                received = socket.recv_from(&mut buffer) => received,
            };
            let mut datagrams: Vec<(Bytes, SocketAddr)> = Vec::new();
            match received {
                Ok((length, source)) => datagrams.push((self.copy(&buffer, length), source)),
                // A host that a datagram of ours did not reach says so; the next one tells nothing of it.
                Err(error) => {
                    tracing::debug!(%error, input = self.name, "a datagram cannot be read");
                    continue;
                }
            }
            let mut bytes = 0;
            while datagrams.len() < MAX_DATAGRAMS && bytes < MAX_BYTES {
                let Ok((length, source)) = socket.try_recv_from(&mut buffer) else { break };
                let datagram = self.copy(&buffer, length);
                bytes += datagram.len();
                datagrams.push((datagram, source));
            }
            let mut rest = datagrams.into_iter();
            // Compressed datagrams become many times their size: no more of them is in memory than was reserved, and one.
            while !rest.as_slice().is_empty() {
                let Some(held) = reserve_piece(context).await else { return Ok(()) };
                let (protocol, piece) = (Arc::clone(&protocol), context.budget.piece());
                let events;
                (events, rest) = offload(move || (decode_piece(&*protocol, &mut rest, piece), rest)).await;
                if !send(events, held, context).await {
                    return Ok(());
                }
            }
        }
    }

    fn copy(&self, buffer: &[u8], length: usize) -> Bytes {
        Bytes::copy_from_slice(buffer.get(..length.min(self.max_bytes)).unwrap_or_default())
    }
}

/// Decodes datagrams until their events take so many bytes, at least one.
fn decode_piece(
    protocol: &dyn DatagramProtocol,
    datagrams: &mut impl Iterator<Item = (Bytes, SocketAddr)>,
    piece: u64,
) -> Events {
    let mut events = Events::default();
    for (datagram, source) in datagrams {
        protocol.decode(&datagram, source, &mut events);
        if events.bytes() >= piece {
            break;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::Event;

    /// A datagram to an event of its text.
    #[derive(Debug)]
    struct Texts;

    impl DatagramProtocol for Texts {
        fn decode(&self, datagram: &[u8], _: SocketAddr, events: &mut Events) {
            let mut event = Event::new(Utc::now());
            event.set_text("message", &String::from_utf8_lossy(datagram));
            events.push(event);
        }
    }

    #[test]
    fn a_piece_ends_when_its_events_take_the_bytes() {
        let source: SocketAddr = ([127, 0, 0, 1], 1).into();
        let mut rest = ["a", "b", "c"].map(|text| (Bytes::from_static(text.as_bytes()), source)).into_iter();
        assert_eq!(decode_piece(&Texts, &mut rest, 1).len(), 1);
        assert_eq!(decode_piece(&Texts, &mut rest, 1 << 20).len(), 2);
        assert_eq!(rest.len(), 0);
    }
}
