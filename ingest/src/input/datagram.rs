//! Datagrams that become events: what the inputs `udp`, `syslog` and `gelf` share.
//!
//! Nobody acknowledges datagrams. While the pipeline is behind, the system's buffer takes them, and drops those that it has no
//! room for. An input that ends leaves its socket with that buffer to the next one of its address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::sockets::PARKED_DATAGRAMS;
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

    /// Takes the socket of an input before this one, or binds the address.
    async fn bind(&self) -> std::io::Result<UdpSocket> {
        let (host, port) = (self.host.as_str(), self.port);
        PARKED_DATAGRAMS.take_or_bind(host, port, || UdpSocket::bind((host, port))).await
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
        let socket = self.bind().await.map_err(failed)?;
        let wanted = self.receive_buffer.unwrap_or(RECEIVE_BUFFER);
        if let Err(error) = SockRef::from(&socket).set_recv_buffer_size(wanted) {
            tracing::warn!(%error, bytes = wanted, input = self.name, "the system's buffer of a socket stays as it is");
        }
        let bound = socket.local_addr().map_err(failed)?;
        tracing::info!(address = %bound, input = self.name, "an input listens over UDP");
        self.address.send_replace(Some(bound));
        let guard = ParkGuard { host, port, socket: Some(socket) };
        if let Some(socket) = &guard.socket {
            self.receive(socket, protocol, context).await;
        }
        Ok(())
    }

    /// Reads datagrams of a socket until the input is to stop, or the pipeline is gone.
    async fn receive(&self, socket: &UdpSocket, protocol: Arc<dyn DatagramProtocol>, context: &Context) {
        let mut stopping = context.stopping.clone();
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let received = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return,
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
                // When the input is to stop, what was read goes on to the end of the pipeline.
                let held = reserve_piece(context).await.unwrap_or_else(|| context.budget.empty());
                let (protocol, piece) = (Arc::clone(&protocol), context.budget.piece());
                let events;
                (events, rest) = offload(move || (decode_piece(&*protocol, &mut rest, piece), rest)).await;
                if !send(events, held, context).await {
                    return;
                }
            }
        }
    }

    fn copy(&self, buffer: &[u8], length: usize) -> Bytes {
        Bytes::copy_from_slice(buffer.get(..length.min(self.max_bytes)).unwrap_or_default())
    }
}

/// Leaves a socket to the next input of its address, also where this one is ended while it waits for the pipeline.
struct ParkGuard<'a> {
    host: &'a str,
    port: u16,
    socket: Option<UdpSocket>,
}

impl Drop for ParkGuard<'_> {
    fn drop(&mut self) {
        // Without a runtime, nothing is to follow.
        if let (Some(socket), Ok(_)) = (self.socket.take(), Handle::try_current()) {
            PARKED_DATAGRAMS.park(self.host, self.port, socket);
        }
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
    use crate::input::testing::Pipeline;

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

    /// Returns a client and a port that is free: a socket whose port the system chose is not kept.
    async fn client_and_port() -> (UdpSocket, u16) {
        let port = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), port)
    }

    /// Starts an input that listens; returns its task.
    async fn start(port: u16, pipeline: &mut Pipeline) -> tokio::task::JoinHandle<()> {
        let socket = DatagramSocket::new("udp", "127.0.0.1".to_owned(), port);
        let (mut address, context) = (socket.address.subscribe(), pipeline.context());
        let running = tokio::spawn(async move { socket.read(Arc::new(Texts), &context).await.unwrap() });
        address.wait_for(Option::is_some).await.unwrap();
        running
    }

    #[tokio::test]
    async fn datagrams_that_come_between_two_inputs_are_kept() {
        let (client, port) = client_and_port().await;
        let mut pipeline = Pipeline::new(4);
        let running = start(port, &mut pipeline).await;
        client.send_to(b"one", ("127.0.0.1", port)).await.unwrap();
        pipeline.take().await.unwrap().unwrap();
        pipeline.stop.send_replace(true);
        running.await.unwrap();
        client.send_to(b"two", ("127.0.0.1", port)).await.unwrap();
        let mut next = Pipeline::new(4);
        let running = start(port, &mut next).await;
        next.take().await.unwrap().unwrap();
        next.stop.send_replace(true);
        running.await.unwrap();
        assert_eq!((pipeline.messages(), next.messages()), (vec!["one".to_owned()], vec!["two".to_owned()]));
    }

    #[tokio::test]
    async fn an_input_that_is_ended_while_the_pipeline_is_behind_leaves_its_socket() {
        let (client, port) = client_and_port().await;
        let mut behind = Pipeline::new(1);
        let running = start(port, &mut behind).await;
        client.send_to(b"taken", ("127.0.0.1", port)).await.unwrap();
        let _full = behind.next().await.unwrap();
        behind.stop.send_replace(true);
        running.abort();
        let _ = running.await;
        client.send_to(b"kept", ("127.0.0.1", port)).await.unwrap();
        let mut next = Pipeline::new(4);
        let running = start(port, &mut next).await;
        next.take().await.unwrap().unwrap();
        assert_eq!(next.messages(), ["kept"]);
        next.stop.send_replace(true);
        running.await.unwrap();
        // An input of another host takes the port, though not the socket.
        let wide = DatagramSocket::new("udp", "0.0.0.0".to_owned(), port);
        assert_eq!(wide.bind().await.unwrap().local_addr().unwrap().port(), port);
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
